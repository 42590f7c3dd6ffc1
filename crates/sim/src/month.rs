//! A month of a cluster that switches machines on and off, on a virtual clock: job wait times and energy use.
//!
//! The head is the production state machine with power management; nothing fails. Machines boot and shut down,
//! controllers and agents answer, and jobs run as long as their trace says. Two other policies serve as a comparison:
//! machines that are always on, and a home-made script. Every two minutes the script switches one machine on if a job
//! waits, and switches every idle machine off.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Effect, Ended, Event, KEY_LIFE_MS, Now, PowerCommand, Replaces, Stage,
    Stamped, State, SubmissionKey, decide, follow_up, update,
};
use hostler_model::{
    BootId, CpuSet, Digest, Ending, JobId, JobSpec, JobState, NodeFacts, NodeName, PowerPlan, PowerPolicy, PowerTraits,
    PowerVerb, Request, Resources, RunId, Supply, Timestamp, WallTime, Watts, Work,
};
use hostler_proto::link::{AgentHello, AgentMessage, Fate, HeadMessage, RunEnd, RunReport, RunStatus};

use crate::cluster::Rng;
use crate::{Trace, TraceJob};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// The interval between two runs of the script of [`Rule::Script`].
const SCRIPT_MS: u64 = 2 * MINUTE;

/// The delay between a request and its answer.
const ANSWER_MS: u64 = 200;

/// How long a machine takes to shut down.
const STOP_MS: u64 = 30 * SECOND;

/// An agent timeout that never expires.
const NEVER_SILENT_MS: u64 = 1 << 50;

/// What switches the machines on and off.
#[derive(Debug, Clone)]
pub enum Rule {
    /// All machines are always on.
    AlwaysOn,
    /// Every two minutes a script switches one machine on if a job waits, and every idle machine off.
    Script,
    /// The head, with this policy.
    Head(PowerPolicy),
}

/// The machines, all of the same kind.
#[derive(Debug, Clone, Copy)]
pub struct Machines {
    /// The number of machines.
    pub count: u32,
    /// CPUs per machine.
    pub cpus: u32,
    /// Power draw per machine.
    pub watts: Watts,
    /// Boot time per machine, in milliseconds.
    pub boot_ms: u64,
}

/// The outcome of a month.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonthReport {
    /// Started jobs.
    pub jobs: usize,
    /// The mean time from submission to start, in seconds.
    pub mean_wait_secs: f64,
    /// The 95th percentile of wait times, in seconds.
    pub p95_wait_secs: u64,
    /// The longest wait, in seconds.
    pub max_wait_secs: u64,
    /// Energy, in kilowatt-hours.
    pub kwh: f64,
    /// The mean number of starts per machine.
    pub starts_per_machine: f64,
    /// Time from the first submission to the end of the last job, in milliseconds, and at least the requested number of
    /// days.
    pub lasted_ms: u64,
}

/// Makes a trace of thirty days in a home lab: bursts of jobs during the day, fewer at weekends, none at night.
#[must_use]
pub fn home_lab(seed: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let mut jobs = Vec::new();
    for day in 0..30_u64 {
        let bursts = if day % 7 < 5 { rng.range(2, 5) } else { rng.below(2) };
        for _ in 0..bursts {
            let begins = day * DAY / SECOND + rng.range(9 * 3600, 22 * 3600);
            for _ in 0..rng.range(3, 21) {
                let run_secs = 60 * rng.range(2, 40) * if rng.chance(150) { 5 } else { 1 };
                jobs.push(TraceJob {
                    number: 0,
                    submit_secs: begins + rng.below(900),
                    run_secs,
                    request: Request::new(1 << rng.below(4), 1 << 30),
                    limit_secs: rng.chance(500).then_some(2 * run_secs),
                });
            }
        }
    }
    jobs.sort_by_key(|job| job.submit_secs);
    jobs.iter_mut().zip(1..).for_each(|(job, number)| job.number = number);
    Trace { processors: None, jobs, skipped: 0 }
}

/// Runs all jobs that are submitted within the first `days` of the trace.
///
/// # Panics
/// Panics when a job can never run on these machines.
#[must_use]
pub fn month(trace: &Trace, days: u64, machines: Machines, rule: &Rule) -> MonthReport {
    let first = trace.jobs.first().map_or(0, |job| job.submit_secs);
    let in_time = |job: &&TraceJob| job.submit_secs - first < days * DAY / SECOND;
    let jobs: Vec<&TraceJob> = trace.jobs.iter().filter(in_time).collect();
    let mut world = World::new(jobs, first, machines, rule.clone());
    world.live(days * DAY);
    world.report()
}

enum ScheduledEvent {
    Arrives(usize),
    Says(usize, AgentMessage),
    Ends { on: usize, run: RunId },
    Answers { node: NodeName, ask: u64, supply: Option<Supply> },
    HasBooted(usize),
    HasStopped(usize),
    ScriptLooks,
}

struct Machine {
    name: NodeName,
    is_on: bool,
    boots: u64,
    connection: Option<ConnectionId>,
}

struct World<'t> {
    state: State,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), ScheduledEvent>,
    queued: u64,
    connections: u64,
    jobs: Vec<&'t TraceJob>,
    /// The submission time of the first job, in seconds.
    first_secs: u64,
    /// The index of each submitted job in `jobs`.
    known: BTreeMap<JobId, usize>,
    starts_ms: Vec<Option<u64>>,
    machines: Vec<Machine>,
    kind: Machines,
    rule: Rule,
}

impl<'t> World<'t> {
    fn new(jobs: Vec<&'t TraceJob>, first_secs: u64, kind: Machines, rule: Rule) -> Self {
        let name = |number: u32| format!("r{number}").parse().expect("a valid name");
        let mut state = State::default();
        state.settings.suspect_after_ms = NEVER_SILENT_MS;
        state.settings.down_after_ms = NEVER_SILENT_MS;
        state.settings.lost_after_ms = NEVER_SILENT_MS;
        let mut world = Self {
            state,
            now_ms: 0,
            queue: BTreeMap::new(),
            queued: 0,
            connections: 0,
            starts_ms: vec![None; jobs.len()],
            known: BTreeMap::new(),
            machines: (1..=kind.count)
                .map(|number| Machine { name: name(number), is_on: true, boots: 0, connection: None })
                .collect(),
            jobs,
            first_secs,
            kind,
            rule,
        };
        let epoch = world.state.next_epoch();
        world.apply(Event::EpochStarted { epoch, owner: None });
        world
    }

    fn live(&mut self, least_ms: u64) {
        let is_managed = matches!(self.rule, Rule::Head(_));
        let policy = if let Rule::Head(policy) = &self.rule { policy.clone() } else { PowerPolicy::default() };
        let policy = PowerPolicy { poll_ms: DAY, watch_ms: 15 * SECOND, ..policy };
        let traits =
            PowerTraits { watts: self.kind.watts, boot_ms: self.kind.boot_ms, is_managed, ..PowerTraits::default() };
        let nodes = self.machines.iter().map(|machine| (machine.name.clone(), traits)).collect();
        self.command(&Command::Power(PowerCommand::Plan(Box::new(PowerPlan { policy, nodes }))));
        (0..self.machines.len()).for_each(|machine| self.later(0, ScheduledEvent::HasBooted(machine)));
        for (number, job) in self.jobs.clone().into_iter().enumerate() {
            self.later((job.submit_secs - self.first_secs) * SECOND, ScheduledEvent::Arrives(number));
        }
        if matches!(self.rule, Rule::Script) {
            self.later(SCRIPT_MS, ScheduledEvent::ScriptLooks);
        }
        while self.now_ms < least_ms || self.starts_ms.contains(&None) || self.state.jobs().next().is_some() {
            let happens = self.queue.keys().next().map(|(at, _)| *at);
            let due = self.state.next_deadline(self.now()).map(|at| at.0.max(self.now_ms));
            match (happens, due) {
                (Some(at), due) if due.is_none_or(|due| at <= due) => {
                    let (_, happening) = self.queue.pop_first().expect("the queue is not empty");
                    self.now_ms = at;
                    self.happen(happening);
                }
                (_, Some(due)) => {
                    self.now_ms = due;
                    self.command(&Command::Tick);
                }
                _ => break,
            }
        }
    }

    fn happen(&mut self, happening: ScheduledEvent) {
        match happening {
            ScheduledEvent::Arrives(number) => self.submit(number),
            ScheduledEvent::Says(machine, message) => self.say(machine, message),
            ScheduledEvent::Ends { on, run } => {
                let fate = Fate::Ended(Ending { state: JobState::Completed, exit_code: Some(0) });
                let end = RunEnd::without_result(fate, None);
                self.say(on, AgentMessage::Report(RunReport { run, status: RunStatus::Ended(end) }));
            }
            ScheduledEvent::Answers { node, ask, supply } => {
                self.command(&Command::Power(PowerCommand::Said { node, ask, outcome: Ok(supply) }));
            }
            ScheduledEvent::HasBooted(machine) => self.come(machine),
            ScheduledEvent::HasStopped(machine) => {
                let machine = &mut self.machines[machine];
                machine.is_on = false;
                if let Some(connection) = machine.connection.take() {
                    self.command(&Command::ConnectionEnded { connection });
                }
            }
            ScheduledEvent::ScriptLooks => self.follow_script(),
        }
    }

    fn submit(&mut self, number: usize) {
        let job = self.jobs[number];
        let nodes = job.request.cpus.div_ceil(self.kind.cpus);
        let cpus = job.request.cpus.div_ceil(nodes);
        let mut spec = JobSpec::new("job", Work::command(["true"], "/"), Request::new(cpus, 8 << 20));
        spec.nodes = nodes;
        // As in a replay: the requested time, or else the run time.
        spec.time_limit_ms = Some(job.limit_secs.unwrap_or(job.run_secs).max(1) * SECOND);
        let caller = Caller { user: "user".to_owned(), uid: None, operator: true };
        let key = SubmissionKey(number as u128 + 1);
        self.command(&Command::Submit {
            caller,
            key,
            spec: Arc::new(spec),
            environment: None,
            snapshot_is_complete: true,
        });
        let id = self.state.job_of_key(key).expect("the machines are large enough for the job");
        self.known.insert(id, number);
    }

    /// Connects the agent of a machine that has booted.
    fn come(&mut self, at: usize) {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let machine = &mut self.machines[at];
        (machine.is_on, machine.connection) = (true, Some(connection));
        machine.boots += 1;
        let (node, boot) = (machine.name.clone(), BootId(format!("{}", machine.boots)));
        let key = Digest([1; 32]);
        self.command(&Command::Join { node: node.clone(), key, life_ms: KEY_LIFE_MS, replaces: Replaces::Any });
        let facts =
            NodeFacts { boot, resources: Resources::new(CpuSet::first(self.kind.cpus), 1 << 40), ..Default::default() };
        let hello = AgentHello::new(node, 1, facts, Vec::new());
        self.command(&Command::Hello { connection, key, hello: Box::new(hello), complete: Default::default() });
    }

    fn say(&mut self, machine: usize, message: AgentMessage) {
        if let Some(connection) = self.machines[machine].connection {
            self.command(&Command::Message { connection, message, result_is_complete: true });
        }
    }

    /// Switches one machine on if a job waits, and every idle machine off.
    fn follow_script(&mut self) {
        self.later(SCRIPT_MS, ScheduledEvent::ScriptLooks);
        let by = || "script".to_owned();
        let is_off = |machine: &&Machine| self.state.power.node(&machine.name).is_some_and(|it| it.stage == Stage::Off);
        let waits = self.state.queue().next().is_some();
        let next = self.machines.iter().find(is_off).filter(|_| waits).map(|machine| machine.name.clone());
        if let Some(node) = next {
            self.command(&Command::Power(PowerCommand::On { node, by: by() }));
        }
        let is_idle = |node: &&hostler_core::head::Node| node.link.is_some() && node.runs.is_empty();
        let idle: Vec<NodeName> = self.state.nodes().filter(is_idle).map(|node| node.name.clone()).collect();
        for node in idle {
            self.command(&Command::Power(PowerCommand::Off { node, by: by(), force: false }));
        }
    }

    fn command(&mut self, command: &Command) {
        // A refused command changes nothing: the script does not check whether its commands make sense.
        let events = decide(&self.state, command, &Ended::default(), self.now()).unwrap_or_default();
        events.into_iter().for_each(|event| self.apply(event));
        loop {
            let now = self.now();
            let events = follow_up(&mut self.state, now);
            if events.is_empty() {
                return;
            }
            events.into_iter().for_each(|event| self.apply(event));
        }
    }

    fn apply(&mut self, event: Event) {
        let mut changes = Changes::default();
        let stamped = Stamped { now: self.now(), event };
        update(&mut self.state, &stamped, &mut changes);
        for effect in changes.effects {
            match effect {
                Effect::Send { connection, message } => self.hear(connection, message),
                Effect::Power { node, verb, ask } => self.switch(node, verb, ask),
                Effect::Close { .. }
                | Effect::Notify(_)
                | Effect::Count(_)
                | Effect::Deliver
                | Effect::ReportNode { .. } => {}
            }
        }
    }

    /// Makes an agent handle a message from the head.
    fn hear(&mut self, connection: ConnectionId, message: HeadMessage) {
        let Some(at) = self.machines.iter().position(|machine| machine.connection == Some(connection)) else { return };
        match message {
            HeadMessage::Launch(launch) => {
                for placement in launch.runs {
                    match placement.gang {
                        Some(_) => self.reports(at, placement.run, RunStatus::Ready { port: 1, endpoint: None }),
                        None => self.start(at, placement.run),
                    }
                }
            }
            HeadMessage::Begin { run, .. } => self.start(at, run),
            HeadMessage::Rest { ask } => {
                self.later(
                    ANSWER_MS,
                    ScheduledEvent::Says(at, AgentMessage::Resting { ask, busy: None, is_leaving: false }),
                );
            }
            _ => {}
        }
    }

    fn start(&mut self, at: usize, run: RunId) {
        let number = self.known.get(&run.task.job).copied().unwrap_or(self.known.len());
        self.starts_ms[number].get_or_insert(self.now_ms);
        self.reports(at, run, RunStatus::Running);
        self.later(self.jobs[number].run_secs * SECOND, ScheduledEvent::Ends { on: at, run });
    }

    fn reports(&mut self, at: usize, run: RunId, status: RunStatus) {
        self.later(0, ScheduledEvent::Says(at, AgentMessage::Report(RunReport { run, status })));
    }

    /// Makes a controller handle a query or an order.
    fn switch(&mut self, node: NodeName, verb: PowerVerb, ask: u64) {
        let at = self.machines.iter().position(|machine| machine.name == node).expect("the plan has the node");
        let supply = if self.machines[at].is_on { Supply::On } else { Supply::Off };
        let supply = match (verb, supply) {
            (PowerVerb::On, Supply::Off) => {
                self.machines[at].is_on = true;
                self.later(self.kind.boot_ms, ScheduledEvent::HasBooted(at));
                None
            }
            (PowerVerb::OffGracefully | PowerVerb::OffByForce, Supply::On) => {
                self.later(STOP_MS, ScheduledEvent::HasStopped(at));
                None
            }
            (_, supply) => Some(supply),
        };
        self.later(ANSWER_MS, ScheduledEvent::Answers { node, ask, supply });
    }

    fn later(&mut self, in_ms: u64, happening: ScheduledEvent) {
        self.queued += 1;
        self.queue.insert((self.now_ms + in_ms, self.queued), happening);
    }

    fn now(&self) -> Now {
        Now { at: Timestamp(self.now_ms), wall: WallTime(i64::try_from(self.now_ms).unwrap_or(i64::MAX)) }
    }

    fn report(&self) -> MonthReport {
        let submitted = self.jobs.iter().map(|job| (job.submit_secs - self.first_secs) * SECOND);
        let starts = self.starts_ms.iter().zip(submitted);
        let mut waits: Vec<u64> =
            starts.filter_map(|(start, submitted)| Some((*start)?.saturating_sub(submitted) / SECOND)).collect();
        waits.sort_unstable();
        let count = waits.len().max(1);
        let meters = self.state.power.nodes().map(|(_, power)| (power.meter.at(Timestamp(self.now_ms)), power.starts));
        let (drawn, starts) =
            meters.fold((0, 0), |(drawn, all), (meter, starts)| (drawn + meter.energy.drawn_uj, all + starts));
        MonthReport {
            jobs: waits.len(),
            mean_wait_secs: waits.iter().sum::<u64>() as f64 / count as f64,
            p95_wait_secs: waits.get(waits.len() * 19 / 20).copied().unwrap_or(0),
            max_wait_secs: waits.last().copied().unwrap_or(0),
            kwh: drawn as f64 / 3.6e12,
            starts_per_machine: starts as f64 / self.machines.len().max(1) as f64,
            lasted_ms: self.now_ms,
        }
    }
}

impl fmt::Display for MonthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, mean_wait_secs, p95_wait_secs, max_wait_secs, kwh, starts_per_machine, .. } = self;
        write!(f, "{jobs:6} jobs, wait {mean_wait_secs:7.0} s mean {p95_wait_secs:7} s p95 {max_wait_secs:8} s max; ")?;
        write!(f, "{kwh:7.1} kWh; {starts_per_machine:5.1} starts per machine")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: Machines =
        Machines { count: 6, cpus: 8, watts: Watts { off: 8, idle: 90, busy: 200 }, boot_ms: 4 * MINUTE };

    fn idle(ms: u64) -> Rule {
        Rule::Head(PowerPolicy { idle_ms: ms, min_up_ms: ms, ..PowerPolicy::default() })
    }

    #[test]
    fn idle_rule_halves_the_energy_of_a_home_lab_and_starts_every_job() {
        let trace = home_lab(1);
        let always = month(&trace, 30, MACHINES, &Rule::AlwaysOn);
        let script = month(&trace, 30, MACHINES, &Rule::Script);
        let ours = month(&trace, 30, MACHINES, &idle(15 * MINUTE));
        let eager = month(&trace, 30, MACHINES, &idle(2 * MINUTE));
        for report in [&always, &script, &ours, &eager] {
            assert_eq!(report.jobs, trace.jobs.len(), "every job has started");
        }
        assert!(ours.kwh < always.kwh / 2.0, "{ours}\n{always}");
        assert!(ours.mean_wait_secs < script.mean_wait_secs, "{ours}\n{script}");
        assert!(eager.kwh < ours.kwh && eager.starts_per_machine > ours.starts_per_machine, "{eager}\n{ours}");
        assert!(always.starts_per_machine == 0.0 && always.mean_wait_secs <= ours.mean_wait_secs);
    }

    #[test]
    fn the_same_seed_gives_the_same_month() {
        let rule = idle(15 * MINUTE);
        assert_eq!(month(&home_lab(2), 5, MACHINES, &rule), month(&home_lab(2), 5, MACHINES, &rule));
    }
}
