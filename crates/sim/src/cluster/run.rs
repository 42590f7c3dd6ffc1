//! Runs one world from its seed to its end.

use std::cell::Cell;
use std::collections::BTreeMap;

use hostler_core::head::Settings;

use super::books::Books;
use super::outcome::{Failure, Report};
use super::rng::Rng;
use super::rules::Options;
use super::trace::Trace;
use super::world::head::Head;
use super::world::network::Network;
use super::world::node::{Node, NodeStep};
use super::world::time::{MS, SECOND};
use super::world::users::Users;
use super::world::{ScheduledEvent, World};

/// The interval between two checks of the world.
const LOOK: u64 = SECOND;

/// How long the world may take to become idle after the last fault.
const PATIENCE: u64 = 1_800 * SECOND;

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
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}

impl World {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let nodes: Vec<Node> = (0..rng.range(2, 5)).map(|number| Node::new(number as usize, &mut rng)).collect();
        let mut world = Self {
            now_us: 0,
            trace: Trace::new(options.whole_trace),
            books: Books::new(
                nodes.iter().map(|node| (node.name.clone(), node.resources.clone())).collect(),
                &settings,
            ),
            settings,
            head: Head::default(),
            network: Network::new(nodes.len()),
            users: Users::default(),
            frozen_head: None,
            frozen_nodes: nodes.iter().map(|_| None).collect(),
            nodes,
            is_calm: false,
            partition_dice: None,
            controllers: None,
            break_rule: options.break_rule,
            queue: BTreeMap::new(),
            queued: 0,
            rng,
        };
        world.start_head();
        for node in 0..world.nodes.len() {
            let delay = world.rng.below(500 * MS);
            world.later(delay, ScheduledEvent::Node { node, step: NodeStep::StartAgent });
        }
        let calm = world.plan_faults();
        world.plan_users(calm);
        world.plan_quota(calm, Rng::new(!seed));
        world.plan_partitions(calm, Rng::new(seed.rotate_left(32)));
        world.plan_power(calm, seed);
        world.later(LOOK, ScheduledEvent::Look);
        world
    }

    /// Runs until everything is idle.
    pub(super) fn live(&mut self) -> Result<(), String> {
        let mut calm_since = None;
        while let Some(((now_us, _), happening)) = self.queue.pop_first() {
            self.now_us = now_us;
            let is_look = matches!(happening, ScheduledEvent::Look);
            self.happen(happening);
            if let Some(what) = self.books.take_wrong() {
                return Err(what);
            }
            if !(is_look && self.is_calm) {
                continue;
            }
            let Some(busy) = self.busy_reason() else { return self.final_check() };
            if now_us > *calm_since.get_or_insert(now_us) + PATIENCE {
                return Err(format!("the world does not become idle after the last fault: {busy}"));
            }
        }
        Err("no event is scheduled".to_owned())
    }

    fn happen(&mut self, happening: ScheduledEvent) {
        match happening {
            ScheduledEvent::Head { life, step } => self.head_step(life, step),
            ScheduledEvent::Node { node, step } => self.node_step(node, step),
            ScheduledEvent::Arrival { connection, at, packet } => self.arrive(connection, at, packet),
            ScheduledEvent::Broken { connection, at } => self.find_broken(connection, at),
            ScheduledEvent::User(step) => self.user_step(step),
            ScheduledEvent::Fault(fault) => self.apply_fault(fault),
            ScheduledEvent::Power(step) => self.power_step(step),
            ScheduledEvent::Look => self.check_world(),
        }
    }

    fn check_world(&mut self) {
        self.later(LOOK, ScheduledEvent::Look);
        if let Some(process) = &self.head.process {
            self.books.check_live(&process.state);
        }
    }

    /// Describes the first activity in progress, if any.
    fn busy_reason(&self) -> Option<String> {
        if let Some(unanswered) = self.users.unanswered() {
            return Some(unanswered);
        }
        let Some(process) = &self.head.process else { return Some("the head is down".to_owned()) };
        if let Some(job) = process.state.jobs().next() {
            return Some(format!("job {} has not ended: {job:?}", job.id));
        }
        let nodes = (0..self.nodes.len()).filter(|node| !self.is_off_intentionally(*node));
        nodes.into_iter().find_map(|node| self.nodes[node].busy_reason()).or_else(|| process.busy_reason())
    }

    /// Checks that all accounts agree at the end.
    fn final_check(&mut self) -> Result<(), String> {
        self.note(format_args!("the world is idle"));
        let process = self.head.process.as_ref().expect("an idle world has a running head");
        self.books.check_settled(&process.state, &self.head.disk);
        self.books.take_wrong().map_or(Ok(()), Err)
    }

    pub(super) fn report(self, seed: u64) -> Report {
        Report {
            seed,
            trace_hash: self.trace.hash(),
            trace_lines: self.trace.lines(),
            virtual_ms: self.now_us / MS,
            head_starts: self.head.lives,
            agent_starts: self.nodes.iter().map(|node| node.agent_lives).sum(),
            jobs: self.books.jobs(),
            processes: self.books.processes(),
            events: self.books.events(),
            trace: self.trace.into_whole(),
        }
    }

    pub(super) fn failure(self, seed: u64, what: String) -> Failure {
        Failure { seed, what, virtual_ms: self.now_us / MS, trace: self.trace.into_lines() }
    }
}

/// Returns settings that cause many events in a short time.
fn settings(rng: &mut Rng) -> Settings {
    Settings {
        heartbeat_ms: 1_500,
        suspect_after_ms: 4_000,
        down_after_ms: 6_000,
        lost_after_ms: rng.range(7_000, 22_000),
        grace_ms: rng.range(100, 3_000),
        retention_ms: if rng.chance(300) { rng.range(40_000, 120_000) } else { 14 * 24 * 3_600_000 },
        ..Settings::default()
    }
}
