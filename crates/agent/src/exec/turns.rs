//! Turns: a short command that comes while all CPUs are taken waits a moment until one is free.
//!
//! Of commands that share a CPU each takes as long as all, and together they take longer than one after the other, since none finds in the caches
//! what it had there. So they go in the order in which they have come. Two things say whether there is room: how many short commands run here, and
//! how many processes the system has for its CPUs. The first cannot see what others do, and the second not what those that have just
//! started will do in a moment, so that alone it would let in far too many.
//!
//! Nobody waits for long if nobody else has a turn meanwhile, nor in vain: what keeps the CPUs may be there for hours. A command that sleeps has no
//! CPU, so one that waits for what it has called for is in nobody's way.

use std::fs::File;
use std::os::unix::fs::FileExt;
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

/// For how long what others keep of the CPUs is left out of account after somebody has waited for it in vain: at first, and when it has been in vain
/// time and again.
const LEAST_SPELL: Duration = Duration::from_millis(250);
const MOST_SPELL: Duration = Duration::from_secs(16);

/// After how many pauses in which a CPU was idle those that have their turns are taken to sleep. One look is not enough: a command that starts another,
/// or reads, has no CPU for an instant, and if each such instant let in one more there would soon be far too many.
const IDLE_PAUSES: u32 = 2;

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
    /// When somebody had a turn, or gave up waiting and ran.
    turn: Option<Instant>,
    /// Since when the CPUs have been taken though few short commands run here.
    barred: Option<Instant>,
    vain: Option<Vain>,
}

/// That somebody has waited in vain.
#[derive(Clone, Copy)]
struct Vain {
    /// For how long.
    patience: Duration,
    /// How long that counts.
    spell: Duration,
    until: Instant,
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
        // Read as it is now whenever it is read from its beginning.
        let loadavg = File::open("/proc/loadavg").ok();
        let room = move || {
            let mut text = [0; 128];
            let length = loadavg.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
            room(str::from_utf8(&text[..length]).unwrap_or_default(), cpus)
        };
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
                        lately.give_up(patience, Instant::now());
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
        let pause = (patience / LOOKS).max(LEAST_LOOK);
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            let (free, room) = (self.free(now), (self.room)());
            idle_since = if room > 1 { idle_since.or(Some(now)) } else { None };
            let are_asleep = idle_since.is_some_and(|since| now - since >= pause * IDLE_PAUSES);
            let more = lock(&self.lately).admit(free, room, are_asleep, patience, now);
            if more > 0 {
                return (more < waiting.count().into()).then_some(first);
            }
            tokio::select! {
                () = self.over.notified() => {}
                () = sleep(pause) => {}
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
    /// How many may run now: by what is known here so many more, and so many by what the system sees.
    fn admit(&mut self, free: u64, room: u64, are_asleep: bool, patience: Duration, now: Instant) -> u64 {
        let more = match free.min(room) {
            0 if self.is_vain(patience, now) => free,
            0 if are_asleep => room.saturating_sub(1),
            0 => 0,
            more => more,
        };
        if more > 0 {
            self.turn = Some(now);
        }
        self.barred = if room > 0 || free == 0 { None } else { self.barred.or(Some(now)) };
        if room > 0 {
            self.vain = None;
        }
        more
    }

    /// Somebody has waited for so long, and runs. It was in vain if others kept the CPUs, and not if it was the turn of other commands.
    fn give_up(&mut self, patience: Duration, now: Instant) {
        // A turn, too: what goes on for long would else let in all that wait at once.
        self.turn = Some(now);
        if self.is_vain(patience, now) || self.barred.is_none_or(|since| now - since < patience / 2) {
            return;
        }
        let spell = self.vain.map_or(LEAST_SPELL, |vain| (vain.spell * 2).min(MOST_SPELL));
        // Also after a spell: else one that has more patience would again hold up all that come after it.
        let known = self.vain.map_or(Duration::ZERO, |vain| vain.patience);
        self.vain = Some(Vain { patience: patience.max(known), spell, until: now + spell });
    }

    /// Whether others are not waited for. What was in vain for a short command says nothing to one that can wait for longer.
    fn is_vain(&self, patience: Duration, now: Instant) -> bool {
        self.vain.is_some_and(|vain| now < vain.until && patience <= 2 * vain.patience)
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

    use tokio::task::JoinSet;

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

    /// So many short commands that run and want a CPU for long.
    fn run(turns: &Turns, count: usize) {
        lock(&turns.running).extend(vec![Instant::now() + Duration::from_secs(60); count]);
    }

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Whether it is so long, or a little longer: the machine may have other things to do.
    fn is_about(waited: Duration, expected: Duration) -> bool {
        waited >= expected && waited < expected + millis(200)
    }

    #[tokio::test]
    async fn only_short_commands_wait_and_not_for_long() {
        let (turns, _) = turns(MOST);
        for kind in ["never seen", "gcc", "true", "sleep"] {
            assert_eq!(turns.take(kind).await.waited, Duration::ZERO, "{kind}");
        }
        for (kind, patience, spell) in
            [("gcc -c", millis(400), LEAST_SPELL), ("gcc -O3 -c", millis(1200), LEAST_SPELL * 2)]
        {
            assert!(is_about(turns.take(kind).await.waited, patience), "{kind}");
            let vain = lock(&turns.lately).vain.expect("it was in vain");
            assert_eq!((vain.patience, vain.spell), (patience, spell), "{kind}");
        }
        assert_eq!(waiting(&turns), 0);
    }

    #[tokio::test]
    async fn nobody_waits_where_nobody_is_to() {
        let (turns, _) = turns(Duration::ZERO);
        assert_eq!(turns.take("gcc -c").await.waited, Duration::ZERO);
    }

    #[tokio::test]
    async fn who_comes_first_goes_first_and_the_next_when_that_one_runs() {
        let (turns, room) = turns(MOST);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for number in 0..4 {
            let (its, order) = (Arc::clone(&turns), Arc::clone(&order));
            tasks.spawn(async move {
                let turn = its.take("gcc -c").await;
                lock(&order).push((number, "goes"));
                sleep(millis(5)).await;
                lock(&order).push((number, "runs"));
                drop(turn);
            });
            while waiting(&turns) <= number {
                tokio::task::yield_now().await;
            }
        }
        room.store(1, Ordering::Relaxed);
        turns.over.notify_one();
        tasks.join_all().await;
        let expected: Vec<_> = (0..4).flat_map(|number| [(number, "goes"), (number, "runs")]).collect();
        assert_eq!(*lock(&order), expected);
        assert_eq!(waiting(&turns), 0);
    }

    #[tokio::test]
    async fn patience_begins_anew_when_somebody_has_a_turn() {
        let (turns, _) = turns(MOST);
        run(&turns, 3);
        let meanwhile = async {
            sleep(millis(200)).await;
            lock(&turns.lately).turn = Some(Instant::now());
        };
        let (turn, ()) = tokio::join!(turns.take("gcc -c"), meanwhile);
        assert!(is_about(turn.waited, millis(600)), "{:?}", turn.waited);
        assert!(lock(&turns.lately).vain.is_none(), "it was the turn of others");
    }

    #[tokio::test]
    async fn they_do_not_lose_patience_all_at_once() {
        let (turns, _) = turns(MOST);
        run(&turns, 3);
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for turns in vec![turns; 10] {
            tasks.spawn(async move {
                turns.take("gcc -c").await;
                began.elapsed()
            });
        }
        // As they end.
        let ran = tasks.join_all().await;
        let expected = [millis(400), millis(800), millis(1200), millis(1600)].into_iter().chain([MOST; 6]);
        assert!(ran.iter().zip(expected).all(|(after, expected)| *after >= expected), "{ran:?}");
        assert!(ran[9] < MOST + millis(400), "{ran:?}");
    }

    #[tokio::test]
    async fn nobody_is_held_up_where_there_is_room_for_all() {
        let (turns, room) = turns(MOST);
        room.store(2, Ordering::Relaxed);
        let one = turns.take("gcc -c").await;
        let other = turns.take("gcc -c").await;
        assert!(one.first.is_none() && other.waited < millis(200), "{:?}", other.waited);
    }

    #[tokio::test]
    async fn one_more_runs_than_there_are_cpus_and_then_one_for_each_that_ends() {
        let (turns, room) = turns(MOST);
        // None of them is seen yet, or each is starting another program.
        room.store(1, Ordering::Relaxed);
        let mut running = Vec::new();
        for _ in 0..3 {
            let turn = turns.take("gcc -c").await;
            assert!(turn.waited < millis(50));
            running.push(turn.place);
        }
        let end = async {
            sleep(millis(150)).await;
            running.pop();
        };
        let (next, ()) = tokio::join!(turns.take("gcc -c"), end);
        assert!(is_about(next.waited, millis(150)), "{:?}", next.waited);
    }

    #[tokio::test]
    async fn those_that_sleep_are_in_nobodys_way() {
        let (turns, room) = turns(MOST);
        room.store(3, Ordering::Relaxed);
        let mut asleep = Vec::new();
        for _ in 0..5 {
            let turn = turns.take("gcc -c").await;
            assert!(turn.waited < millis(200), "{:?}", turn.waited);
            asleep.push(turn.place);
        }
        let now = Instant::now();
        assert_eq!(turns.free(now), 0);
        assert_eq!(turns.free(now + millis(400)), 3, "what they may be expected to want they have had");
    }

    #[tokio::test]
    async fn one_look_that_finds_a_cpu_idle_is_not_enough() {
        for (rooms, waited) in [([0, 3, 0, 3], true), ([3, 3, 3, 3], false)] {
            let looks = AtomicU64::new(0);
            let flickering = move || rooms[usize::try_from(looks.fetch_add(1, Ordering::Relaxed)).expect("few") % 4];
            let turns = Turns::seeing(MOST, Arc::default(), 2, Box::new(flickering));
            turns.took("gcc -c", millis(100));
            run(&turns, 3);
            assert_eq!(turns.take("gcc -c").await.waited >= millis(400), waited, "{rooms:?}");
        }
    }

    #[test]
    fn what_is_in_vain_time_and_again_is_tried_less_and_less_until_there_is_room() {
        let (mut lately, mut now) = (Lately::default(), Instant::now());
        for spell in [LEAST_SPELL, LEAST_SPELL * 2, LEAST_SPELL * 4] {
            assert_eq!(lately.admit(3, 0, false, millis(400), now), 0);
            now += millis(400);
            lately.give_up(millis(400), now);
            now += spell - millis(1);
            assert_eq!(lately.admit(2, 0, false, millis(400), now), 2, "there is no use in it");
            assert_eq!(lately.admit(2, 0, false, millis(1200), now), 0, "who has more patience may have more luck");
            now += millis(1);
        }
        assert_eq!(lately.admit(3, 1, false, millis(400), now), 1);
        assert_eq!(lately.admit(3, 0, false, millis(400), now), 0, "there may be room again");
    }

    #[test]
    fn those_who_give_up_at_once_have_waited_in_vain_once() {
        let (mut lately, began) = (Lately::default(), Instant::now());
        assert_eq!(lately.admit(3, 0, false, millis(400), began), 0);
        for (after, is_vain) in [(millis(199), false), (millis(200), true), (millis(201), true)] {
            lately.give_up(millis(400), began + after);
            assert_eq!(lately.vain.is_some_and(|vain| vain.spell == LEAST_SPELL), is_vain, "{after:?}");
        }
    }

    #[tokio::test]
    async fn in_vain_too_no_more_run_than_there_are_cpus_and_one() {
        let (turns, _) = turns(MOST);
        let spell = Duration::from_secs(60);
        lock(&turns.lately).vain = Some(Vain { patience: millis(400), spell, until: Instant::now() + spell });
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(turns.take("gcc -c").await.place);
        }
        assert!(turns.take("gcc -c").await.waited > LEAST_SPELL);
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
