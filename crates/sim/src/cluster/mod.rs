//! Simulates a whole cluster in one thread from one seed: the production state machines in a world where everything
//! fails.
//!
//! [`run`] builds a head, some nodes and some users. All decisions come from production code: [`hostler_core::head`]
//! with the head's loop, [`hostler_core::agent`], [`hostler_core::link`], the scheduler, and the store's group commit
//! and recovery ([`hostler_store::Committer`]) on its memory backend. The simulation provides the surroundings on a
//! virtual clock. `world/` holds what there is, and the other files let it act: the head's process, loop, writer and
//! links (`head*.rs`), its disk (`disk.rs`), agents and their links (`agent*.rs`), directories and shepherds
//! (`node.rs`), connections (`network.rs`) and users (`users.rs`). In the first part of a run `faults.rs` injects faults
//! chosen by the seed: crashes, freezes, network partitions, full disks and wrong clocks. Then everything is repaired.
//!
//! `books.rs` checks from outside. It ignores the head's state. It reads the log on the disk, the answers to users and
//! the list of processes, and keeps its own accounts. It checks these invariants (I1 to I10 are their numbers in
//! ARCHITECTURE.md):
//!
//! - an acknowledged submission survives every crash, and a key belongs to one job, even after the job has ended (I1);
//! - a job is either in the state or, once ended, on the disk; its environment exists at launch;
//! - a run starts once, an end counts for the current run only, and a completed task really ran to its end (I3);
//! - placements fit their nodes, no CPU is assigned twice, and no process outlives its run (I4, I6);
//! - the head switches off no machine on which a run runs or may run, and places nothing on a machine that is shutting
//!   down (I8), although controllers carry out orders late, twice or after an error;
//! - no placement exceeds a quota or uses a node that is not allowed for its job;
//! - the head has the whole result when a task ends and for as long as the result is kept (I5);
//! - every waiting task has a reason, and counts add up (I10);
//! - a state loaded from snapshot and log is byte for byte equal to the state from the log alone;
//! - after the last fault every job ends, all resources are released, and agents hold no run.
//!
//! The same seed gives the same trace. The option [`Rule`] breaks one rule of the simulated processes on purpose, to show
//! that the checks notice.
//!
//! Not simulated: captured folders and environments (staging only takes time and may fail), terminals and output
//! streams.

mod agent;
mod agent_link;
mod books;
mod brief;
mod disk;
mod faults;
mod head;
mod head_link;
mod head_loop;
mod head_writer;
mod many;
mod network;
mod node;
mod operators;
mod outcome;
mod partitions;
mod power;
mod quotas;
mod rng;
mod rules;
mod run;
mod trace;
mod users;
mod world;

pub use many::run_many;
pub use outcome::{Failure, Report};
pub(crate) use rng::Rng;
pub use rules::{Options, Rule};
pub use run::{current_seed, run};
