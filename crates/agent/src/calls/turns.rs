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

use super::{lock, micros};

/// For how many times the CPU time that it usually takes a command waits at most.
const PATIENCE: u32 = 4;

/// Whoever would wait for less runs at once: it is over before anything is gained.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// Between two looks at the CPUs, as a part of what a command waits at most, and at least: looking costs time, too.
const LOOKS: u32 = 64;
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// For how long nobody waits after somebody has in vain.
const VAIN: Duration = Duration::from_secs(10);

/// Who runs next here.
pub(super) struct Turns {
    /// How much CPU time commands have taken here.
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
    /// The CPUs of the machine.
    cpus: u32,
    /// How many more may run.
    room: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What waiting has led to.
#[derive(Default)]
struct Lately {
    /// When somebody had a turn.
    turn: Option<Instant>,
    /// Until when it is known to be of no use to wait so long.
    vain: Option<(Instant, Duration)>,
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
        let cpus = online_cpus();
        let room = move || room(&fs::read_to_string("/proc/loadavg").unwrap_or_default(), cpus);
        Self { cpus, ..Self::seeing(most, waiting, Box::new(room)) }
    }

    /// Whether it is known when so many CPUs are taken: what runs is only told of all that the machine has.
    pub(super) const fn can_tell(&self, cpus: u32) -> bool {
        cpus >= self.cpus
    }

    fn seeing(most: Duration, waiting: Arc<AtomicU32>, room: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self {
            costs: Mutex::default(),
            most,
            waiting,
            first: Queue::default(),
            over: Notify::new(),
            lately: Mutex::default(),
            cpus: 0,
            room,
        }
    }

    /// Waits for the turn of a command of this kind, if that is short.
    pub(super) async fn take(&self, kind: &str) -> Turn<'_> {
        let began = Instant::now();
        let Some(patience) = self.patience(kind, began) else { return Turn::default() };
        let found = timeout(patience, self.look(patience / LOOKS)).await;
        let now = Instant::now();
        let mut lately = lock(&self.lately);
        if found.is_ok() {
            lately.turn = Some(now);
        } else if lately.turn.is_none_or(|turn| turn < began) {
            let known = lately.vain.filter(|(until, _)| now < *until).map_or(Duration::ZERO, |(_, span)| span);
            lately.vain = Some((now + VAIN, patience.max(known)));
        }
        Turn { _first: found.ok().flatten(), waited: now - began }
    }

    /// A CPU may be free: a command has ended.
    pub(super) fn ended(&self) {
        self.over.notify_one();
    }

    /// What a command of this kind has taken, of all CPUs together. One that sleeps takes nothing, and one that shares a CPU no more than by itself.
    pub(super) fn took(&self, kind: &str, cpu: Duration) {
        lock(&self.costs).ran(kind, micros(cpu), 1000);
    }

    /// How long a command of this kind waits; `None` if it does not.
    fn patience(&self, kind: &str, now: Instant) -> Option<Duration> {
        let usual = lock(&self.costs).run_us(kind).map(Duration::from_micros).filter(|usual| *usual < self.most)?;
        let patience = (usual * PATIENCE).min(self.most);
        // What was in vain for a short one says nothing to one that can wait for longer.
        let is_vain = lock(&self.lately).vain.is_some_and(|(until, span)| now < until && patience <= 2 * span);
        (!is_vain && patience >= LEAST_PATIENCE).then_some(patience)
    }

    /// Waits to be the first, and then for a CPU, with pauses between looks. Whoever comes next is held up only if there is not room for all that wait.
    async fn look(&self, pause: Duration) -> Option<First<'_, ()>> {
        let waiting = Waiting::among(&self.waiting);
        let first = self.first.lock().await;
        loop {
            match (self.room)() {
                0 => {}
                room if room >= waiting.count().into() => return None,
                _ => return Some(first),
            }
            tokio::select! {
                () = self.over.notified() => {}
                () = sleep(pause.max(LEAST_LOOK)) => {}
            }
        }
    }
}

/// Where nobody knows of anybody else, commands wait no less.
impl Default for Turns {
    fn default() -> Self {
        Self::new(Duration::from_millis(Policy::default().wait_ms.into()), Arc::default())
    }
}

impl<'a> Waiting<'a> {
    fn among(all: &'a AtomicU32) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }

    /// How many do.
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many more may run before there is one more than there are CPUs, by `/proc/loadavg`: with one more, none of them idles when a process ends or
/// reads from a disk. The file counts the whole machine, and this process, which looks.
fn room(loadavg: &str, cpus: u32) -> u64 {
    let running = loadavg.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/')?.0.parse::<u64>().ok());
    let others = running.unwrap_or(0).saturating_sub(1);
    (u64::from(cpus) + 1).saturating_sub(others)
}

/// The CPUs of the machine. The system reads a file for that.
fn online_cpus() -> u32 {
    // SAFETY: it takes a number and gives one.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(online).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const MOST: Duration = Duration::from_secs(2);

    /// Turns where commands of the kind "gcc -c" take 100 ms, and how many more may run there.
    fn turns(most: Duration) -> (Arc<Turns>, Arc<AtomicU64>) {
        let room = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&room);
        let turns = Turns::seeing(most, Arc::default(), Box::new(move || seen.load(Ordering::Relaxed)));
        turns.took("gcc -c", Duration::from_millis(100));
        turns.took("gcc -O3 -c", Duration::from_millis(300));
        turns.took("gcc", Duration::from_secs(5));
        turns.took("true", Duration::from_millis(1));
        turns.took("sleep", Duration::ZERO);
        (Arc::new(turns), room)
    }

    fn waiting(turns: &Turns) -> u32 {
        turns.waiting.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn only_short_commands_wait_and_not_for_long() {
        let (turns, _) = turns(MOST);
        for kind in ["never seen", "gcc", "true", "sleep"] {
            assert_eq!(turns.take(kind).await.waited, Duration::ZERO, "{kind}");
        }
        let began = Instant::now();
        let waited = turns.take("gcc -c").await.waited;
        assert!(waited >= Duration::from_millis(400) && waited <= began.elapsed(), "{waited:?}");
        assert_eq!(turns.take("gcc -c").await.waited, Duration::ZERO, "there is no use in it");
        assert_eq!(waiting(&turns), 0);
        let longer = turns.take("gcc -O3 -c").await.waited;
        assert!(longer >= Duration::from_millis(1200), "who has more patience may have more luck: {longer:?}");
        let vain = lock(&turns.lately).vain.as_mut().map(|(until, _)| std::mem::replace(until, Instant::now()));
        assert!(vain > Some(Instant::now()));
        assert!(turns.take("gcc -c").await.waited >= Duration::from_millis(400), "there may be now");
    }

    #[tokio::test]
    async fn nobody_waits_where_nobody_is_to() {
        let (turns, _) = turns(Duration::ZERO);
        assert_eq!(turns.take("gcc -c").await.waited, Duration::ZERO);
    }

    #[tokio::test]
    async fn who_comes_first_goes_first_and_the_next_when_that_one_runs() {
        let (turns, room) = turns(MOST);
        // Long enough that none of them loses patience.
        turns.took("gcc -c", Duration::from_secs(4));
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
        room.store(1, Ordering::Relaxed);
        turns.ended();
        for task in tasks {
            task.await.expect("it does not panic");
        }
        let expected: Vec<_> = (0..4).flat_map(|number| [(number, "goes"), (number, "runs")]).collect();
        assert_eq!(*lock(&order), expected);
        assert_eq!(waiting(&turns), 0);
    }

    #[tokio::test]
    async fn it_is_not_in_vain_while_others_have_their_turns() {
        let (turns, room) = turns(MOST);
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
        assert!(lock(&turns.lately).vain.is_none());
        room.store(1, Ordering::Relaxed);
        assert!(turns.take("gcc -c").await.waited < Duration::from_millis(400), "the next one looks again");
    }

    #[tokio::test]
    async fn nobody_is_held_up_where_there_is_room_for_all() {
        let (turns, room) = turns(MOST);
        room.store(2, Ordering::Relaxed);
        let one = turns.take("gcc -c").await;
        let other = turns.take("gcc -c").await;
        assert!(one._first.is_none() && other.waited < Duration::from_millis(400), "{:?}", other.waited);
    }

    #[test]
    fn what_runs_is_counted_without_the_one_that_looks() {
        for (running, more) in [(1, 3), (3, 1), (4, 0), (40, 0)] {
            assert_eq!(room(&format!("0.50 0.40 0.30 {running}/812 4711\n"), 2), more, "{running}");
        }
        assert!(room("", 2) > 0, "who cannot see it waits for nothing");
        assert!(online_cpus() >= 1);
    }
}
