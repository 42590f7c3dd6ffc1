//! Turns: a short command that comes while all CPUs are taken waits a moment until one is free.
//!
//! Of commands that share a CPU each takes as long as all, and together they take longer than one after the other, since none finds in the caches
//! what it had there. So they go in the order in which they have come. Nobody waits for much longer than such commands take, nor in vain: what
//! keeps the CPUs may be there for hours. A command that sleeps has no CPU, so one that waits for what it has called for is in nobody's way.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_gossip::{Costs, Policy};
use nix::libc;
use tokio::sync::{Mutex as Queue, MutexGuard as First, Notify};
use tokio::time::{Instant, sleep, timeout};

use super::lock;

/// For how many times its usual time a command waits at most.
const PATIENCE: u32 = 4;

/// Between two looks at the CPUs, as a part of what a command waits at most, and at least: looking costs time, too.
const LOOKS: u32 = 64;
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// For how long nobody waits after somebody has in vain.
const VAIN: Duration = Duration::from_secs(10);

/// Who runs next here.
pub(super) struct Turns {
    /// How long commands have run here.
    costs: Mutex<Costs>,
    /// The longest that anybody waits.
    most: Duration,
    /// How many wait, for others to know.
    waiting: Arc<AtomicU32>,
    /// Whoever has this looks for a CPU; the others are in line.
    first: Queue<()>,
    /// A command has ended.
    over: Notify,
    lately: Mutex<Lately>,
    is_free: Box<dyn Fn() -> bool + Send + Sync>,
}

/// What waiting has led to.
#[derive(Default)]
struct Lately {
    /// When somebody had a turn.
    turn: Option<Instant>,
    /// Until when there is no use in waiting.
    vain: Option<Instant>,
}

/// A command's turn. The next one's comes when this is dropped: when the command runs, so that it can be seen.
#[derive(Default)]
pub(super) struct Turn<'a> {
    _first: Option<First<'a, ()>>,
    /// How long it has waited.
    pub(super) waited: Duration,
}

/// One that waits.
struct Waiting<'a>(&'a AtomicU32);

impl Turns {
    /// Nobody waits longer than `most`.
    pub(super) fn new(most: Duration, waiting: Arc<AtomicU32>) -> Self {
        let is_free = || is_free(&fs::read_to_string("/proc/loadavg").unwrap_or_default(), cpus());
        Self::seeing(most, waiting, Box::new(is_free))
    }

    fn seeing(most: Duration, waiting: Arc<AtomicU32>, is_free: Box<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self {
            costs: Mutex::default(),
            most,
            waiting,
            first: Queue::default(),
            over: Notify::new(),
            lately: Mutex::default(),
            is_free,
        }
    }

    /// Waits for the turn of a command of this kind, if that is short.
    pub(super) async fn take(&self, kind: &str) -> Turn<'_> {
        let began = Instant::now();
        let Some(patience) = self.patience(kind, began) else { return Turn::default() };
        let first = timeout(patience, self.look(patience / LOOKS)).await.ok();
        let now = Instant::now();
        let mut lately = lock(&self.lately);
        if first.is_some() {
            lately.turn = Some(now);
        } else if lately.turn.is_none_or(|turn| turn < began) {
            lately.vain = Some(now + VAIN);
        }
        Turn { _first: first, waited: now - began }
    }

    /// A command of this kind has ended that ran for so long, in microseconds.
    pub(super) fn ended(&self, kind: &str, run_us: u64) {
        lock(&self.costs).ran(kind, run_us, 1000);
        self.over.notify_one();
    }

    /// How long a command of this kind waits; `None` if it does not.
    fn patience(&self, kind: &str, now: Instant) -> Option<Duration> {
        let run = lock(&self.costs).run_us(kind).map(Duration::from_micros)?;
        let is_vain = lock(&self.lately).vain.is_some_and(|until| now < until);
        (!is_vain && run < self.most).then(|| (run * PATIENCE).min(self.most))
    }

    /// Waits to be the first, and then for a CPU, with pauses between looks.
    async fn look(&self, pause: Duration) -> First<'_, ()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let first = self.first.lock().await;
        while !(self.is_free)() {
            tokio::select! {
                () = self.over.notified() => {}
                () = sleep(pause.max(LEAST_LOOK)) => {}
            }
        }
        first
    }
}

/// Where nobody knows of anybody else, commands wait no less.
impl Default for Turns {
    fn default() -> Self {
        Self::new(Duration::from_millis(Policy::default().wait_ms.into()), Arc::default())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether no more processes run or could run than there are CPUs, by `/proc/loadavg`: with one more, none of them idles when a process ends or
/// reads from a disk. The file counts the whole machine, and this process, which looks.
fn is_free(loadavg: &str, cpus: u64) -> bool {
    let running = loadavg.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/')?.0.parse::<u64>().ok());
    running.is_none_or(|running| running.saturating_sub(1) <= cpus)
}

/// The CPUs of the machine.
fn cpus() -> u64 {
    // SAFETY: it takes a number and gives one.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(online).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const MOST: Duration = Duration::from_secs(2);

    /// Turns where commands of the kind "gcc -c" take 100 ms, and whether a CPU is free there.
    fn turns(most: Duration) -> (Arc<Turns>, Arc<AtomicBool>) {
        let free = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&free);
        let turns = Turns::seeing(most, Arc::default(), Box::new(move || seen.load(Ordering::Relaxed)));
        turns.ended("gcc -c", 100_000);
        turns.ended("gcc", 5_000_000);
        (Arc::new(turns), free)
    }

    fn waiting(turns: &Turns) -> u32 {
        turns.waiting.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn only_short_commands_wait_and_not_for_long() {
        let (turns, _) = turns(MOST);
        for kind in ["never seen", "gcc"] {
            assert_eq!(turns.take(kind).await.waited, Duration::ZERO, "{kind}");
        }
        let began = Instant::now();
        let waited = turns.take("gcc -c").await.waited;
        assert!(waited >= Duration::from_millis(400) && waited <= began.elapsed(), "{waited:?}");
        assert_eq!(turns.take("gcc -c").await.waited, Duration::ZERO, "there is no use in it");
        assert_eq!(waiting(&turns), 0);
        lock(&turns.lately).vain = Some(Instant::now());
        assert!(turns.take("gcc -c").await.waited >= Duration::from_millis(400), "there may be now");
    }

    #[tokio::test]
    async fn nobody_waits_where_nobody_is_to() {
        let (turns, _) = turns(Duration::ZERO);
        assert_eq!(turns.take("gcc -c").await.waited, Duration::ZERO);
    }

    #[tokio::test]
    async fn who_comes_first_goes_first_and_the_next_when_that_one_runs() {
        let (turns, free) = turns(MOST);
        // Long enough that none of them loses patience.
        turns.ended("gcc -c", 2_000_000);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..4 {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.push(tokio::spawn({
                let turns = Arc::clone(&turns);
                async move {
                    let turn = turns.take("gcc -c").await;
                    lock(&order).push((number, "goes"));
                    sleep(Duration::from_millis(5)).await;
                    lock(&order).push((number, "runs"));
                    drop(turn);
                }
            }));
            while waiting(&turns) <= number {
                tokio::task::yield_now().await;
            }
        }
        free.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("it does not panic");
        }
        let expected: Vec<_> = (0..4).flat_map(|number| [(number, "goes"), (number, "runs")]).collect();
        assert_eq!(*lock(&order), expected);
        assert_eq!(waiting(&turns), 0);
    }

    #[tokio::test]
    async fn it_is_not_in_vain_while_others_have_their_turns() {
        let (turns, free) = turns(MOST);
        let last = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                let first = turns.first.lock().await;
                let waited = turns.take("gcc -c").await.waited;
                drop(first);
                waited
            }
        });
        while waiting(&turns) == 0 {
            tokio::task::yield_now().await;
        }
        // As if somebody before it had had a turn.
        lock(&turns.lately).turn = Some(Instant::now());
        assert!(last.await.expect("it does not panic") >= Duration::from_millis(400));
        free.store(true, Ordering::Relaxed);
        assert!(lock(&turns.lately).vain.is_none());
        assert!(turns.take("gcc -c").await._first.is_some(), "the next one looks again");
    }

    #[test]
    fn what_runs_is_counted_without_the_one_that_looks() {
        for (running, is_room) in [(1, true), (3, true), (4, false), (40, false)] {
            assert_eq!(is_free(&format!("0.50 0.40 0.30 {running}/812 4711\n"), 2), is_room, "{running}");
        }
        assert!(is_free("", 2), "who cannot see it waits for nothing");
        assert!(cpus() >= 1);
    }
}
