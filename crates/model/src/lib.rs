//! The basic types of Hostler: typed ids, states, units and resource arithmetic.
//!
//! Every other crate uses these types. The crate reads no clock, file or environment, and makes no decisions: `hostler-sched` and
//! `hostler-core` do.

#![warn(missing_docs)]

mod ability;
mod array;
mod constraint;
mod container;
mod counted;
mod cpus;
mod dependency;
mod digest;
mod files;
mod gpu;
mod hardware;
mod ids;
mod image;
mod job;
mod job_state;
mod labels;
mod node;
mod notify;
mod object;
mod octets;
mod partition;
mod power;
mod python;
mod rank;
mod reason;
mod resources;
mod signal;
mod surroundings;
mod text;
mod time;
mod topology;
mod units;
mod usage;
mod users;

pub use ability::Ability;
pub use array::{ArraySpec, IndexSet};
pub use constraint::{Constraint, Feature};
pub use container::{Container, Engine, EngineImage};
pub use counted::{Counted, CountedError};
pub use cpus::CpuSet;
pub use dependency::{Condition, Dependency};
pub use digest::Digest;
pub use files::{Files, OpenMode, PathFacts};
pub use gpu::{Gpu, GpuId, Vendor};
pub use hardware::Hardware;
pub use ids::{Attempt, BootId, Epoch, JobId, NodeName, RunId, TaskId};
pub use image::{DOCKER_HUB, ImageRef, ImageSource, RegistryImage};
pub use job::{
    AllocationHolder, Ending, Environment, JobSpec, LEAST_MEMORY_BYTES, MAX_ENVIRONMENT_BYTES, MAX_JOB_NAME_CHARACTERS,
    MAX_SCRIPT_BYTES, PartialRequest, Request, Submission, WindowSize, Work, argv_schema, is_job_name,
};
pub use job_state::{JobState, TaskState};
pub use labels::{
    Labels, MAP, MAX_LABELS, NUMBERED, is_label_name, label_changes_schema, labels_problem, labels_schema,
};
pub use node::{Advisory, NodeFacts, NodeState};
pub use notify::{DestinationName, JobOccasion, Subscription};
pub use octets::{os_string_of, text_of};
pub use partition::{ExclusiveRule, NodePatterns, PartitionName, PartitionState, SandboxNetwork, SandboxRule};
pub use power::{
    Energy, Expected, Gauge, Hours, PowerPlan, PowerPolicy, PowerState, PowerTraits, PowerVerb, Supply, Watts,
};
pub use python::{PYTHON_INSTALL, PythonVersions, VersionFile};
pub use rank::{Rank, RankValue};
pub use reason::{Reason, Shortfall, WakingNode};
pub use resources::{Offer, Resources};
pub use signal::{LimitSignal, SignalNumber, SignalTarget};
pub use surroundings::{MAX_SUBMIT_LINE, Surroundings};
pub use text::{ParseError, TYPOGRAPHIC_QUOTES, escaped, escaped_html, escaped_lines, plural, quote_advice, shortened};
pub use time::{RequestedTime, Timestamp, WallTime};
pub use topology::{CoreKind, Cpu, Topology};
pub use units::{format_bytes, format_duration, format_ms, parse_bytes, parse_duration};
pub use usage::{Bucket, Figures, Metric, Unit};
pub use users::{FIRST_PERSON_UID, Quota, QuotaKind, Role, UserName, is_system_uid};
