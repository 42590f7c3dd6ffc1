//! The basic types of Hostler: typed ids, states, units and resource arithmetic.
//!
//! Every other crate uses these types. The crate reads no clock, file or environment, and makes no decisions: `hostler-sched` and
//! `hostler-core` do.

#![warn(missing_docs)]

mod array;
mod constraint;
mod counted;
mod cpus;
mod digest;
mod gpu;
mod hardware;
mod ids;
mod job;
mod node;
mod partition;
mod power;
mod python;
mod reason;
mod resources;
mod text;
mod time;
mod topology;
mod units;
mod users;

pub use array::{ArraySpec, IndexSet};
pub use constraint::{Constraint, Feature};
pub use counted::{Counted, CountedError};
pub use cpus::CpuSet;
pub use digest::Digest;
pub use gpu::{Gpu, GpuId, Vendor};
pub use hardware::Hardware;
pub use ids::{Attempt, BootId, Epoch, JobId, NodeName, RunId, TaskId};
pub use job::{
    Condition, Dependency, Ending, Environment, JobSpec, JobState, LEAST_MEMORY_BYTES, PartialRequest, Request,
    Submission, TaskState, WindowSize, Work,
};
pub use node::{Advisory, NodeFacts, NodeState};
pub use partition::{NodePatterns, PartitionName, PartitionState};
pub use power::{Energy, Gauge, Hours, PowerPlan, PowerPolicy, PowerState, PowerTraits, PowerVerb, Supply, Watts};
pub use python::{PYTHON_INSTALL, PythonVersions};
pub use reason::{Reason, Shortfall, WakingNode};
pub use resources::Resources;
pub use text::{ParseError, escaped, escaped_lines};
pub use time::{Timestamp, WallTime};
pub use topology::{CoreKind, Cpu, Topology};
pub use units::{format_bytes, format_duration, parse_bytes, parse_duration};
pub use users::{Quota, QuotaKind, Role, UserName};
