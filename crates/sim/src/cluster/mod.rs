//! A whole cluster in one thread, from one seed: the production state machines in a world where everything breaks.
//!
//! [`run`] builds a head, a few nodes and some users. What decides is the code that ships: [`hostler_core::head`] with the head's loop,
//! [`hostler_core::agent`], [`hostler_core::link`], the scheduler below them, and the store's group commit and recovery
//! ([`hostler_store::Committer`]) on its memory backend. What drives them is made up here: the head's process (`head.rs`), its disk
//! (`disk.rs`), agents (`agent.rs`), directories and shepherds (`node.rs`), the link (`head_link.rs`, `agent_link.rs`), connections
//! (`network.rs`) and users (`users.rs`), all on a virtual clock. For the first part of a run `faults.rs` crashes, freezes, cuts off,
//! fills up and misleads any of them, chosen by the seed; then everything is mended.
//!
//! `books.rs` watches from outside. It knows nothing of the head's state but reads the log on the disk, what users were told and
//! which processes really ran, and keeps its own accounts of who may hold what:
//!
//! - an acknowledged submission exists after every crash, and a key means one job, also when it has ended (I1);
//! - a job is in the state or on the disk, as it has ended or not, and its environment is there when it is launched;
//! - a run is started once, an end is taken from the current run only, and a task that was completed really ran to its end (I3);
//! - placements fit their nodes, no CPU is given out twice, nothing runs beyond its end (I4, I6);
//! - no machine on which something runs or may run is switched off at the head's word, and nothing is placed on one that is going off (I8),
//!   although controllers carry out orders late, twice and after they have answered with an error;
//! - nothing is placed beyond a quota, nor on a node that its job may not use;
//! - a result is on the head whole, when its task ends and for as long as it is kept (I5);
//! - whatever waits has a reason, and counts add up (I10);
//! - a state loaded from snapshot and log is byte for byte the one that the log alone gives;
//! - once the faults have stopped, every job ends, everything is given back, and no agent holds anything.
//!
//! The same seed gives the same trace. [`Rule`] breaks one rule of the shells on purpose, which shows that the books would notice.
//!
//! Absent: captured folders and environments (staging is a time that may end in failure), terminals and streams of output.

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

/// What kind of world to build.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A rule of the shells to break on purpose.
    pub break_rule: Option<Rule>,
    /// Keep the whole trace, messages included, and not only its end for a failure.
    pub whole_trace: bool,
}

/// A rule that the shells keep. Breaking one must be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Replies wait until what they say is durable.
    ReplyAfterDurable,
    /// Messages to agents wait until what they rest on is durable.
    SendAfterDurable,
    /// An ending is taken only with its whole result.
    CompleteResults,
    /// A report counts for the run it names, not for whichever the task has now.
    ReportsNameTheirRun,
    /// A restarted agent adopts what goes on.
    AdoptShepherds,
    /// After a restart of the machine, nothing that may have begun is begun again.
    NothingTwiceAfterBoot,
    /// A snapshot that was taken before the store was reloaded is thrown away.
    SnapshotsOfThisLoad,
    /// A frame that is missing ends the connection.
    GapsEndConnections,
    /// The blobs of kept results are kept.
    KeepResults,
    /// A node's agent ends what it is told to end.
    EndsAreObeyed,
    /// The processes of a run on several nodes begin when all are ready.
    BeginTogether,
    /// A job that has ended is found also while it is on its way to the disk.
    LookWhereJobsMove,
    /// The environment of a job is kept as long as it may run.
    KeepEnvironments,
}

impl Rule {
    /// Every rule.
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

/// The seed of the world that this thread lives, for a program in which a panic is the end.
#[must_use]
pub fn current_seed() -> Option<u64> {
    CURRENT_SEED.get()
}

/// Lives one world from its beginning to its end.
///
/// # Errors
/// When a checker found something wrong, or the production code panicked: with the story of how it came to that.
pub fn run(seed: u64, options: &Options) -> Result<Report, Failure> {
    CURRENT_SEED.set(Some(seed));
    let mut world = World::new(seed, options);
    // A broken invariant in the production code panics there; here it is a finding like any other.
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    let verdict = lived.unwrap_or_else(|panic| Err(format!("the production code panicked: {}", words_of(&*panic))));
    match verdict {
        Ok(()) => Ok(world.report(seed)),
        Err(what) => Err(world.failure(seed, what)),
    }
}

/// What a panic said.
fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}
