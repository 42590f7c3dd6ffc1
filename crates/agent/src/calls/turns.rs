//! Turns: a short command that comes while all CPUs are taken waits a moment until one is free.
//!
//! Of commands that share a CPU each takes as long as all, and together they take longer than one after the other, since none finds in the caches
//! what it had there. So they go in the order in which they have come. Two things say whether there is room: how many short commands run here, and
//! how many processes the system has for its CPUs. The first cannot see what others do, and the second not what those that have just
//! started will do in a moment, so that alone it would let in far too many.
//!
//! Nobody waits for much longer than such commands take, nor in vain: what keeps the CPUs may be there for hours. A command that sleeps has no CPU, so
//! one that waits for what it has called for is in nobody's way.

use std::fs;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_gossip::{Costs, Policy};
use nix::libc;
use tokio::sync::{Mutex as Queue, MutexGuard as First, Notify};
use tokio::time::{Instant, sleep, timeout_at};

use super::{lock, micros};

/// For how many times the CPU time that it usually takes a command waits at most, if nobody has a turn meanwhile; and is expected to want a CPU.
const PATIENCE: u32 = 4;

/// Whoever would wait for less runs at once: it is over before anything is gained.
const LEAST_PATIENCE: Duration = Duration::from_millis(10);

/// Between two looks at the CPUs, as a part of what a command waits at most, and at least: looking costs time, too.
const LOOKS: u32 = 32;
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// For how long what others keep of the CPUs is left out of account after somebody has waited for it in vain: at first, and when it has been in vain time and again.
const VAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(16)];

/// After how many looks in a row that find a CPU idle those that have their turns are taken to sleep. One look is not enough: a command that starts
/// another, or reads, has no CPU for an instant, and if each such instant let in one more there would soon be far too many.
const IDLE_LOOKS: u32 = 2;

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
    /// Until when each of the short commands that run may be expected to want a CPU.
    running: Mutex<Vec<Instant>>,
    /// A command has ended.
    over: Notify,
    lately: Mutex<Lately>,
    /// The CPUs of the machine. One command more may run, so that none of them idles when a process ends or reads from a disk.
    cpus: u32,
    room: Room,
}

/// How many more may run, by what the system sees.
type Room = Box<dyn Fn() -> u64 + Send + Sync>;

/// What waiting has led to.
#[derive(Default)]
struct Lately {
    /// When somebody had a turn.
    turn: Option<Instant>,
    /// Since when others than commands that run here have kept the CPUs.
    barred: Option<Instant>,
    /// Until when it is known to be of no use to wait so long.
    vain: Option<(Instant, Duration)>,
    /// How long that is.
    spell: Duration,
}

/// A command's turn.
pub(super) struct Turn<'a> {
    /// The next one's turn comes when this is dropped: when the command runs, so that it can be seen.
    pub(super) first: Option<First<'a, ()>>,
    pub(super) place: Place<'a>,
    /// How long it has waited.
    pub(super) waited: Duration,
}

/// A command's place among those that run, until this is dropped.
pub(super) struct Place<'a> {
    turns: &'a Turns,
    /// `None` where that is not known, or the command is a long one: it may do nothing but wait for others.
    until: Option<Instant>,
}

/// One that waits.
struct Waiting<'a>(&'a AtomicU32);

impl Turns {
    /// Nobody waits longer than `most`.
    pub(super) fn new(most: Duration, waiting: Arc<AtomicU32>) -> Self {
        let cpus = online_cpus();
        let room = move || room(&fs::read_to_string("/proc/loadavg").unwrap_or_default(), cpus);
        Self::seeing(most, waiting, cpus, Box::new(room))
    }

    /// Whether it is known when so many CPUs are taken: what runs is only told of all that the machine has.
    pub(super) const fn can_tell(&self, cpus: u32) -> bool {
        cpus >= self.cpus
    }

    fn seeing(most: Duration, waiting: Arc<AtomicU32>, cpus: u32, room: Room) -> Self {
        Self {
            costs: Mutex::default(),
            most,
            waiting,
            first: Queue::default(),
            running: Mutex::default(),
            over: Notify::new(),
            lately: Mutex::default(),
            cpus,
            room,
        }
    }

    /// The turn of a command that waits for nobody and of which nothing is known.
    pub(super) fn at_once(&self) -> Turn<'_> {
        Turn { first: None, place: Place { turns: self, until: None }, waited: Duration::ZERO }
    }

    /// Waits for the turn of a command of this kind, if that is short.
    pub(super) async fn take(&self, kind: &str) -> Turn<'_> {
        let usual = lock(&self.costs).run_us(kind).map(Duration::from_micros);
        let Some(usual) = usual.filter(|usual| *usual < self.most) else { return self.at_once() };
        let patience = (usual * PATIENCE).min(self.most);
        let began = Instant::now();
        let first = if patience >= LEAST_PATIENCE { self.wait(patience, began).await } else { None };
        let now = Instant::now();
        // Who goes after the first look has not waited.
        let waited = Some(now - began).filter(|waited| *waited >= LEAST_LOOK).unwrap_or_default();
        let until = now + patience;
        lock(&self.running).push(until);
        Turn { first, place: Place { turns: self, until: Some(until) }, waited }
    }

    /// What a command of this kind has taken, of all CPUs together. One that sleeps takes nothing, and one that shares a CPU no more than by itself.
    pub(super) fn took(&self, kind: &str, cpu: Duration) {
        lock(&self.costs).ran(kind, micros(cpu), 1000);
    }

    /// Waits until there is room, or until for so long nobody has had a turn. That others have theirs says that it is not in vain.
    async fn wait(&self, patience: Duration, began: Instant) -> Option<First<'_, ()>> {
        let mut look = pin!(self.look(patience));
        loop {
            let since = lock(&self.lately).turn.map_or(began, |turn| turn.max(began));
            let until = (since + patience).min(began + self.most);
            match timeout_at(until, &mut look).await {
                Ok(first) => return first,
                Err(_) => {
                    let mut lately = lock(&self.lately);
                    if until == began + self.most || lately.turn.is_none_or(|turn| turn <= since) {
                        lately.give_up(patience);
                        return None;
                    }
                }
            }
        }
    }

    /// Waits to be the first, and then for a CPU, with pauses between looks. Whoever comes next is held up only if there is not room for all that wait.
    async fn look(&self, patience: Duration) -> Option<First<'_, ()>> {
        let waiting = Waiting::among(&self.waiting);
        let first = self.first.lock().await;
        let mut idle_looks = 0;
        loop {
            let now = Instant::now();
            let (free, room) = (self.free(now), (self.room)());
            let more = lock(&self.lately).look(free, room, idle_looks, patience, now);
            if more > 0 {
                return (more < waiting.count().into()).then_some(first);
            }
            tokio::select! {
                () = self.over.notified() => {}
                () = sleep((patience / LOOKS).max(LEAST_LOOK)) => idle_looks = if room > 1 { idle_looks + 1 } else { 0 },
            }
        }
    }

    /// How many more may run, by what those that do may be expected to want.
    fn free(&self, now: Instant) -> u64 {
        let running = lock(&self.running).iter().filter(|until| now < **until).count();
        (u64::from(self.cpus) + 1).saturating_sub(u64::try_from(running).unwrap_or(u64::MAX))
    }
}

impl Lately {
    /// How many may run now, where by what is known here so many more may, and so many by what the system sees.
    fn look(&mut self, free: u64, room: u64, idle_looks: u32, patience: Duration, now: Instant) -> u64 {
        // What was in vain for a short one says nothing to one that can wait for longer.
        let is_vain = self.vain.is_some_and(|(until, span)| now < until && patience <= 2 * span);
        let more = match free.min(room) {
            0 if is_vain => free,
            0 if idle_looks >= IDLE_LOOKS => room.saturating_sub(1),
            0 => 0,
            more => more,
        };
        if more > 0 {
            self.turn = Some(now);
        }
        self.barred = if room > 0 || free == 0 { None } else { self.barred.or(Some(now)) };
        if room > 0 {
            (self.vain, self.spell) = (None, Duration::ZERO);
        }
        more
    }

    /// Somebody has waited for so long. It was in vain if others kept the CPUs, and not if it was the turn of other commands.
    fn give_up(&mut self, patience: Duration) {
        let now = Instant::now();
        if self.barred.is_some_and(|since| now - since >= patience / 2) {
            let known = self.vain.filter(|(until, _)| now < *until).map_or(Duration::ZERO, |(_, span)| span);
            let [least, most] = VAIN;
            self.spell = (self.spell * 2).clamp(least, most);
            self.vain = Some((now + self.spell, patience.max(known)));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut running = lock(&self.turns.running);
        // Any that is as long does: nobody asks whose it is.
        if let Some(at) = self.until.and_then(|until| running.iter().position(|other| *other == until)) {
            running.swap_remove(at);
        }
        // A CPU may be free.
        self.turns.over.notify_one();
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
        let turns = Turns::seeing(most, Arc::default(), 2, Box::new(move || seen.load(Ordering::Relaxed)));
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
        assert!(turns.take("gcc -c").await.waited < Duration::from_millis(200), "there is no use in it");
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
        turns.over.notify_one();
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
        assert!(one.first.is_none() && other.waited < Duration::from_millis(400), "{:?}", other.waited);
    }

    #[tokio::test]
    async fn one_more_runs_than_there_are_cpus_and_then_one_for_each_that_ends() {
        let (turns, room) = turns(MOST);
        // None of them is seen yet, or each is starting another program.
        room.store(1, Ordering::Relaxed);
        let mut running = Vec::new();
        for _ in 0..3 {
            let turn = turns.take("gcc -c").await;
            assert!(turn.waited < Duration::from_millis(200));
            running.push(turn.place);
        }
        let mut next = pin!(turns.take("gcc -c"));
        assert!(timeout_at(Instant::now() + Duration::from_millis(150), &mut next).await.is_err());
        running.pop();
        assert!(next.await.waited < Duration::from_millis(350));
    }

    #[tokio::test]
    async fn those_that_sleep_are_in_nobodys_way() {
        let (turns, room) = turns(MOST);
        room.store(3, Ordering::Relaxed);
        let mut asleep = Vec::new();
        for _ in 0..5 {
            let turn = turns.take("gcc -c").await;
            assert!(turn.waited < Duration::from_millis(200), "{:?}", turn.waited);
            asleep.push(turn.place);
        }
        let now = Instant::now();
        assert_eq!(turns.free(now), 0);
        assert_eq!(turns.free(now + Duration::from_millis(400)), 3, "what they may be expected to want they have had");
    }

    #[tokio::test]
    async fn one_look_that_finds_a_cpu_idle_is_not_enough() {
        let looks = AtomicU64::new(0);
        let flickering = move || looks.fetch_add(1, Ordering::Relaxed) % 2 * 3;
        let turns = Turns::seeing(MOST, Arc::default(), 2, Box::new(flickering));
        turns.took("gcc -c", Duration::from_millis(100));
        let long = Instant::now() + Duration::from_secs(60);
        lock(&turns.running).extend([long; 3]);
        assert!(turns.take("gcc -c").await.waited >= Duration::from_millis(400));
    }

    #[tokio::test]
    async fn to_wait_for_other_commands_is_not_in_vain() {
        let (turns, _) = turns(MOST);
        lock(&turns.running).extend([Instant::now() + Duration::from_secs(60); 3]);
        assert!(turns.take("gcc -c").await.waited >= Duration::from_millis(400));
        assert!(lock(&turns.lately).vain.is_none());
    }

    #[tokio::test]
    async fn what_is_in_vain_time_and_again_is_tried_less_and_less_until_there_is_room() {
        let (turns, room) = turns(MOST);
        for _ in 0..3 {
            assert!(turns.take("gcc -c").await.waited >= Duration::from_millis(400));
            lock(&turns.lately).vain.as_mut().expect("it was in vain").0 = Instant::now();
        }
        assert_eq!(lock(&turns.lately).spell, VAIN[0] * 4);
        room.store(1, Ordering::Relaxed);
        drop(turns.take("gcc -c").await);
        assert_eq!(lock(&turns.lately).spell, Duration::ZERO);
        assert!(lock(&turns.lately).vain.is_none());
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
