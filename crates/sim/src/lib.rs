//! Workloads on a virtual clock.
//!
//! ```text
//! swf        recorded workloads in the Standard Workload Format         -> Trace
//! replay     a workload through the production scheduler                -> Replay
//! metrics    the figures by which schedules are compared                -> Metrics
//! ```
//!
//! No daemon is linked here and no real time passes: a day of a cluster takes a moment, and comes out the same every time.

pub mod cluster;
mod metrics;
mod replay;
mod swf;

pub use metrics::Metrics;
pub use replay::{Placement, Replay, ReplayError, ReplayOptions, replay};
pub use swf::{Problem, SwfError, Trace, TraceJob};
