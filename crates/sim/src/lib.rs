//! Workloads and whole clusters ([`cluster`]) on a virtual clock.
//!
//! ```text
//! swf        recorded workloads in the Standard Workload Format      -> Trace
//! replay     a workload through the production scheduler             -> Replay
//! month      a month of machines that are switched on and off        -> MonthReport
//! metrics    the figures by which schedules are compared             -> Metrics
//! ```
//!
//! The crate links no daemon and uses no real time: a day of a cluster takes moments and is reproducible.

pub mod cluster;
mod metrics;
mod month;
mod replay;
mod swf;

pub use metrics::Metrics;
pub use month::{Machines, MonthReport, Rule, home_lab, month};
pub use replay::{Placement, Replay, ReplayError, ReplayOptions, replay};
pub use swf::{Problem, SwfError, Trace, TraceJob};
