//! Jobs: what is stored of them, their checks and changes, and how they get to nodes.

pub(in crate::head) mod change;
pub(in crate::head) mod dependencies;
pub(in crate::head) mod dependency;
pub(in crate::head) mod dry_run;
pub(in crate::head) mod ended;
pub(in crate::head) mod explain;
pub(in crate::head) mod holds;
pub(in crate::head) mod job;
pub(in crate::head) mod queue;
pub(in crate::head) mod requests;
pub(in crate::head) mod runs;
pub(in crate::head) mod schedule;
pub(in crate::head) mod submission;
pub(in crate::head) mod turns;
pub(in crate::head) mod waiting;
