//! The scheduler: what is free, what waits and the time go in; a plan, and a reason for every wait, come out.
//!
//! ```text
//! Pool            what each node has and has free, indexed for best fit        pool.rs, fit.rs
//! plan            which tasks start now and where; who must wait, until when   plan.rs, reservation.rs
//! Pool::admit     whether a request can ever be satisfied                      admission.rs
//! explain         why a job waits                                              explain.rs
//! ```
//!
//! The scheduler decides and remembers nothing: the caller holds jobs and nodes, keeps the [`Pool`] in line with them, and
//! carries the [`Plan`] out. Nothing here reads a clock or depends on chance, and all arithmetic is on integers, so the same
//! input gives the same plan on every machine.
//!
//! Deliberately absent: preemption, fair shares, and reservations for more than one waiting job.

mod admission;
mod amount;
mod explain;
mod fit;
mod node_set;
mod plan;
mod policy;
mod pool;
mod reservation;

pub use admission::{NeverFits, NodeSize};
pub use explain::explain;
pub use node_set::NodeSet;
pub use plan::{Plan, Start, Waiting, plan};
pub use policy::Policy;
pub use pool::{MAX_CPUS, NodeIx, Pool};
pub use reservation::{Reservation, Running};
