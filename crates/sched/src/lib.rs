//! The scheduler: computes a plan, and a reason for every waiting job, from the nodes, the queue and the time.
//!
//! ```text
//! Pool            total and free resources of each node, indexed for best fit   pool.rs, fit.rs
//! plan            tasks that start now and their nodes; reservations            plan.rs, reservation.rs
//! Pool::admit     whether a request can ever be satisfied                       admission.rs
//! explain         why a job waits                                               explain.rs
//! Share           how much of the cluster a user holds                          share.rs
//! ```
//!
//! The scheduler keeps no state: the caller stores jobs and nodes, updates the [`Pool`], and carries out the [`Plan`]. The code reads no
//! clock, uses no randomness, and computes with integers only. So the same input gives the same plan on every machine.
//!
//! The caller orders the queue, and learns during the pass what has started ([`Queue`]): so users of equal priority can take turns, each
//! by what they hold by then ([`Share`]).
//!
//! Not supported by design: preemption, and several reservations on the same nodes.

#![warn(missing_docs)]

mod admission;
mod amount;
mod explain;
mod fit;
mod node_set;
mod plan;
mod policy;
mod pool;
mod queue;
mod reservation;
mod share;
mod waiting;

pub use admission::{NeverFits, NodeSize};
pub use explain::explain;
pub use node_set::{NodeIx, NodeSet};
pub use plan::{Plan, plan};
pub use policy::Policy;
pub use pool::{MAX_CPUS, Pool};
pub use queue::{Queue, Start};
pub use reservation::{Reservation, Running};
pub use share::{Holding, Share};
pub use waiting::Waiting;
