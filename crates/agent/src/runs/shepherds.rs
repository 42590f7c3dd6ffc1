//! Connections to shepherds, and shepherds that are kept for the next run or remote command.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hostler_model::CpuSet;
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{Event, Launch, LaunchError, Launcher, LinkError, Shepherd, Starting};

use crate::mutex::lock;
use crate::readiness::Readiness;

/// Timeout for a lingering shepherd to start its next run; afterwards another one is used.
const NEXT_BOUND: Duration = Duration::from_secs(10);

/// Time that an idle shepherd waits for another run: creating one with its leaf costs more than a short command.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// Time that the agent relies on an idle shepherd: slightly shorter than [`LINGER`].
const STAYS: Duration = Duration::from_secs(9);

/// Maximum number of idle shepherds; each takes a fraction of a mebibyte.
const MAX_IDLE: usize = 64;

/// Shepherds that have finished a run and wait for the next one, newest last.
#[derive(Default)]
pub(crate) struct IdleShepherds {
    waiting: Mutex<Vec<Idle>>,
}

/// Whether an idle shepherd has taken another launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// The shepherd has exited, and starts nothing.
    No,
    /// No answer. The program may start later.
    Unknown,
}

/// A shepherd with a connection that is registered with the async runtime.
pub(crate) struct Watched {
    shepherd: Shepherd,
    /// `None` if no file descriptor was free; the run's journal is then polled.
    connection: Option<Readiness<OwnedFd>>,
    has_started: bool,
}

/// Starts a new shepherd with a run, or with a call and its descriptors. Waits for the program's start without delaying
/// other tasks of this thread: the user's file system decides how long it takes.
///
/// # Errors
/// If no shepherd took the run or call. After [`LaunchError::NoAnswer`], it may have started.
pub(crate) async fn start(
    launcher: &Launcher,
    orders: &Launch,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Watched, LaunchError> {
    let mut starting = launcher.begin(orders, descriptors)?;
    let connection = starting.connection().try_clone_to_owned().and_then(Readiness::of);
    // The run may start, although its answer cannot be awaited.
    let connection = connection.map_err(|error| LaunchError::NoAnswer(LinkError::Io(error)))?;
    let until = tokio::time::Instant::now() + Starting::ANSWER_BOUND;
    loop {
        starting = match starting.try_finish()? {
            Ok(shepherd) => {
                return Ok(Watched { has_started: shepherd.child().is_some(), shepherd, connection: Some(connection) });
            }
            Err(starting) => starting,
        };
        tokio::time::timeout_at(until, connection.readable()).await.map_err(|_| Starting::timed_out())?;
    }
}

impl Watched {
    /// Registers the connection with the runtime.
    pub(crate) fn new(shepherd: Shepherd) -> Self {
        let connection = shepherd.connection().try_clone_to_owned().and_then(Readiness::of);
        if let Err(error) = &connection {
            tracing::error!(%error, "cannot watch a shepherd's connection");
        }
        Self { has_started: shepherd.child().is_some(), shepherd, connection: connection.ok() }
    }

    /// Hands another run to the shepherd. Returns whether the shepherd confirmed it.
    pub(crate) async fn take(&mut self, orders: &Launch) -> bool {
        // Pending events belong to the previous run.
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        self.shepherd.launch_next(orders).is_ok() && self.says_started().await == Taken::Yes
    }

    /// Hands another remote command to the shepherd with its descriptors: the streams, and an optional mount namespace.
    pub(crate) async fn take_call(&mut self, orders: &Launch, descriptors: &[BorrowedFd<'_>]) -> Taken {
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        match self.shepherd.call_next(orders, descriptors) {
            Ok(()) => self.says_started().await,
            Err(_) => Taken::No,
        }
    }

    async fn says_started(&mut self) -> Taken {
        match tokio::time::timeout(NEXT_BOUND, self.next_event()).await {
            Ok(Some(Event::Started(started))) => {
                self.has_started = started.child.is_some();
                Taken::Yes
            }
            Ok(_) => Taken::No,
            Err(_) => Taken::Unknown,
        }
    }

    /// Whether the connection is watched.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether the last program could be started.
    pub(crate) const fn has_started(&self) -> bool {
        self.has_started
    }

    pub(crate) const fn shepherd(&self) -> &Shepherd {
        &self.shepherd
    }

    /// The next event from the shepherd; `None` if it is gone or unreachable.
    pub(crate) async fn next_event(&mut self) -> Option<Event> {
        let connection = self.connection.as_ref()?;
        loop {
            match self.shepherd.try_next_event() {
                Ok(Some(event)) => return Some(event),
                Ok(None) => connection.readable().await,
                Err(_) => return None,
            }
        }
    }
}

struct Idle {
    shepherd: Watched,
    /// The cgroup leaf of its runs. Its next run reuses this leaf at no cost.
    leaf: Option<LeafSpec>,
    /// CPUs of the leaf.
    cpus: CpuSet,
    /// User of the last run; `None` for the agent's own user. The shepherd serves only this user.
    owner: Option<u32>,
    since: Instant,
}

impl IdleShepherds {
    /// Takes an idle shepherd of the same user, preferably one with these CPUs, and its leaf.
    pub(crate) fn take(&self, cpus: &CpuSet, owner: Option<u32>) -> Option<(Watched, Option<LeafSpec>)> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        let best = waiting.iter().rposition(|idle| idle.owner == owner && idle.cpus == *cpus);
        let at = best.or_else(|| waiting.iter().rposition(|idle| idle.owner == owner))?;
        let Idle { shepherd, leaf, .. } = waiting.remove(at);
        Some((shepherd, leaf))
    }

    /// Keeps a shepherd that is idle since this time, with its leaf, the leaf's CPUs, and the user of the last run.
    pub(crate) fn put(
        &self,
        shepherd: Watched,
        leaf: Option<LeafSpec>,
        cpus: CpuSet,
        owner: Option<u32>,
        since: Instant,
    ) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        if waiting.len() >= MAX_IDLE {
            // Dropping the connection ends the shepherd.
            waiting.remove(0);
        }
        waiting.push(Idle { shepherd, leaf, cpus, owner, since });
    }
}
