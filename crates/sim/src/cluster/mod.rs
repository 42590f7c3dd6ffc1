//! Simulates a whole cluster in one thread from one seed: the production state machines in a world where everything
//! fails.
//!
//! [`run`] builds a head, some nodes and some users. All decisions come from production code: [`hostler_core::head`]
//! with the head's loop, [`hostler_core::agent`], [`hostler_core::link`], the scheduler, and the store's group commit
//! and recovery ([`hostler_store::Committer`]) on its memory backend. The simulation provides the surroundings on a
//! virtual clock: the head's process (`head.rs`), its disk (`disk.rs`), agents (`agent.rs`), directories and shepherds
//! (`node.rs`), the link (`head_link.rs`, `agent_link.rs`), connections (`network.rs`) and users (`users.rs`). In the
//! first part of a run `faults.rs` injects faults chosen by the seed: crashes, freezes, network partitions, full disks
//! and wrong clocks. Then everything is repaired.
//!
//! `books.rs` checks from outside. It ignores the head's state. It reads the log on the disk, the answers to users and
//! the list of processes, and keeps its own accounts:
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
mod disk;
mod faults;
mod head;
mod head_link;
mod many;
mod network;
mod node;
mod operators;
mod outcome;
mod partitions;
mod power;
mod quotas;
mod rng;
mod trace;
mod users;
mod world;

pub use many::run_many;
pub use outcome::{Failure, Report};

use std::cell::Cell;

use world::World;

pub(crate) use rng::Rng;

/// Options of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A rule of the simulated processes to break on purpose.
    pub break_rule: Option<Rule>,
    /// Keep the whole trace with all messages, instead of only its end for a failure.
    pub whole_trace: bool,
}

/// A rule of the simulated processes. The checks must notice when it is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Replies wait until their events are durable.
    ReplyAfterDurable,
    /// Messages to agents wait until their events are durable.
    SendAfterDurable,
    /// The head accepts an end only with its whole result.
    CompleteResults,
    /// A report applies to the run that it contains, not to the current run of the task.
    ReportsNameTheirRun,
    /// A restarted agent adopts running shepherds.
    AdoptShepherds,
    /// After a restart of the machine, a run that may have begun does not start again.
    NothingTwiceAfterBoot,
    /// A snapshot from before a reload of the store is discarded.
    SnapshotsOfThisLoad,
    /// A missing frame ends the connection.
    GapsEndConnections,
    /// The blobs of kept results are kept.
    KeepResults,
    /// A node's agent obeys orders to end a run.
    EndsAreObeyed,
    /// The processes of a multi-node run begin when all nodes are ready.
    BeginTogether,
    /// Lookups find an ended job while it moves to the disk.
    LookWhereJobsMove,
    /// The environment of a job is kept as long as the job may run.
    KeepEnvironments,
}

impl Rule {
    pub const ALL: [Self; 13] = [
        Self::ReplyAfterDurable,
        Self::SendAfterDurable,
        Self::CompleteResults,
        Self::ReportsNameTheirRun,
        Self::AdoptShepherds,
        Self::NothingTwiceAfterBoot,
        Self::SnapshotsOfThisLoad,
        Self::GapsEndConnections,
        Self::KeepResults,
        Self::EndsAreObeyed,
        Self::BeginTogether,
        Self::LookWhereJobsMove,
        Self::KeepEnvironments,
    ];
}

thread_local! {
    static CURRENT_SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The seed of the world on this thread, for programs in which a panic aborts.
#[must_use]
pub fn current_seed() -> Option<u64> {
    CURRENT_SEED.get()
}

/// Runs one world from start to end.
///
/// # Errors
/// Returns an error with the trace when a check failed or the production code panicked.
pub fn run(seed: u64, options: &Options) -> Result<Report, Failure> {
    CURRENT_SEED.set(Some(seed));
    let mut world = World::new(seed, options);
    // A broken invariant panics in the production code; the simulation reports it like any other violation.
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    let verdict = lived.unwrap_or_else(|panic| Err(format!("the production code panicked: {}", words_of(&*panic))));
    match verdict {
        Ok(()) => Ok(world.report(seed)),
        Err(what) => Err(world.failure(seed, what)),
    }
}

/// The message of a panic.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}
