//! Machines on demand, as scripts: what the head tells controllers and agents, and what it does not.

mod orders;

use hostler_core::head::{
    Command, NewUser, PartitionsCommand, PowerCommand, PowerFault, Refusal, Stage, UsersCommand, explain,
};
use hostler_model::{
    Energy, Gauge, Hours, JobState, NodeState, PowerPlan, PowerPolicy, PowerState, PowerTraits, PowerVerb, Request,
    Supply, Timestamp, WallTime, Watts,
};
use hostler_proto::link::{AgentMessage, HeadMessage, RunStatus};

use crate::harness::{Head, ended, name, spec};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

impl Head {
    fn plan(&mut self, plan: PowerPlan) {
        self.power(PowerCommand::Plan(Box::new(plan))).expect("a plan is never refused");
    }

    fn power(&mut self, command: PowerCommand) -> Result<(), Refusal> {
        self.command(&Command::Power(command))
    }

    /// What controllers are to be told that have not answered yet, but for questions how things are.
    fn told(&self) -> Vec<(String, PowerVerb)> {
        let orders = self.orders.iter().filter(|(_, verb, _)| *verb != PowerVerb::Status);
        orders.map(|(node, verb, _)| (node.to_string(), *verb)).collect()
    }

    /// Answers every question as if these nodes were on and the others off, and accepts every order.
    fn answer(&mut self, on: &[&str]) -> Vec<(String, PowerVerb)> {
        let mut told = Vec::new();
        while !self.orders.is_empty() {
            for (node, verb, ask) in std::mem::take(&mut self.orders) {
                let supply = if on.contains(&node.as_str()) { Supply::On } else { Supply::Off };
                let is_done = match verb {
                    PowerVerb::Status => true,
                    PowerVerb::On => supply == Supply::On,
                    PowerVerb::OffGracefully | PowerVerb::OffByForce => supply == Supply::Off,
                };
                if !is_done {
                    told.push((node.to_string(), verb));
                }
                let outcome = Ok(is_done.then_some(supply));
                self.power(PowerCommand::Said { node, ask, outcome }).expect("controllers may say anything");
            }
        }
        told
    }

    /// Time passes, and controllers answer all the while.
    fn pass(&mut self, ms: u64, on: &[&str]) -> Vec<(String, PowerVerb)> {
        let until = self.now.at.plus_ms(ms);
        let mut told = self.answer(on);
        while self.now.at < until {
            self.pass_ms(SECOND.min(until.ms_since(self.now.at)));
            self.heartbeats();
            told.extend(self.answer(on));
        }
        told
    }

    /// Every agent says that it lives.
    fn heartbeats(&mut self) {
        let links: Vec<_> = self.state.nodes().filter_map(|node| Some(node.link.as_ref()?.connection)).collect();
        for connection in links {
            let message = AgentMessage::Heartbeat;
            self.command(&Command::Message { connection, message, result_is_complete: false }).expect("connected");
        }
    }

    fn stage(&self, node: &str) -> Stage {
        self.state.power.node(&name(node)).expect("it is in the plan").stage
    }

    fn why(&self, node: &str) -> &str {
        &self.state.power.node(&name(node)).expect("it is in the plan").why
    }

    /// Its machine is gone, and with it its connection.
    fn vanish(&mut self, connection: u64) {
        let connection = hostler_core::head::ConnectionId(connection);
        self.command(&Command::ConnectionEnded { connection }).expect("it may end");
    }

    /// Whether an agent was asked, since the last look, if anything runs there.
    fn has_asked(&mut self) -> bool {
        self.sent().iter().any(|message| matches!(message, HeadMessage::Rest { .. }))
    }

    /// Answers the last question that its agent was asked.
    fn rests(&mut self, connection: u64, busy: Option<&str>) {
        self.agent_answers(connection, busy, false);
    }

    /// The same, and says whether its machine is shutting down.
    fn agent_answers(&mut self, connection: u64, busy: Option<&str>, is_leaving: bool) {
        let asked = |(to, said): (u64, HeadMessage)| match said {
            HeadMessage::Rest { ask } if to == connection => Some(ask),
            _ => None,
        };
        let last = self.sent_to().into_iter().filter_map(asked).last();
        let ask = last.expect("it was asked");
        let message = AgentMessage::Resting { ask, busy: busy.map(str::to_owned), is_leaving };
        let connection = hostler_core::head::ConnectionId(connection);
        self.command(&Command::Message { connection, message, result_is_complete: false }).expect("connected");
    }
}

fn plan(nodes: &[(&str, u32)]) -> PowerPlan {
    let traits =
        |busy| PowerTraits { watts: Watts { off: 5, idle: busy / 2, busy }, boot_ms: 2 * MINUTE, ..Default::default() };
    PowerPlan {
        policy: PowerPolicy { idle_ms: 10 * MINUTE, min_up_ms: 5 * MINUTE, ..PowerPolicy::default() },
        nodes: nodes.iter().map(|(node, busy)| (name(node), traits(*busy))).collect(),
    }
}

/// A job that takes a node for itself.
fn two_cpus() -> hostler_model::JobSpec {
    hostler_model::JobSpec { request: Request::new(2, 1 << 30), ..spec() }
}

/// A head that knows three nodes of two CPUs, all of which are off.
fn three_asleep() -> Head {
    let mut head = Head::new();
    for (node, connection) in [("r1", 1), ("r2", 2), ("r3", 3)] {
        head.hello(node, connection, "first", vec![]);
        head.vanish(connection);
    }
    head.plan(plan(&[("r1", 300), ("r2", 100), ("r3", 200)]));
    assert_eq!(head.answer(&[]), []);
    head.pass(10 * MINUTE, &[]);
    for node in ["r1", "r2", "r3"] {
        assert_eq!(head.stage(node), Stage::Off, "{}", head.why(node));
    }
    head
}

fn on(node: &str) -> (String, PowerVerb) {
    (node.to_owned(), PowerVerb::On)
}

#[test]
fn the_cheapest_nodes_that_are_enough_are_switched_on_and_go_off_again_when_nothing_is_left_to_do() {
    let mut head = three_asleep();
    let first = head.submit(spec()).expect("one of them could run it");
    assert_eq!(head.answer(&[]), [on("r2")], "the one that draws least, and no other");
    assert_eq!(head.stage("r2"), Stage::Waking);
    // Two more of one CPU: one of them still fits on the node that is on its way.
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), []);
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r3")]);
    let reason = explain(&head.state, head.job(first)).expect("it waits").to_string();
    assert!(reason.starts_with("waking r2 for the first time"), "{reason}");

    assert_eq!(head.pass(2 * MINUTE, &["r2", "r3"]), [], "what was told once is not told again");
    head.hello("r2", 12, "second", vec![]);
    head.hello("r3", 13, "second", vec![]);
    assert_eq!(head.stage("r2"), Stage::Up);
    assert_eq!(head.state.power.node(&name("r2")).expect("there").boots.count, 1);
    let jobs: Vec<_> = head.state.live_jobs().map(|job| job.id).collect();
    for job in &jobs {
        assert_eq!(head.state_of(*job), JobState::Starting);
    }
    // Nothing goes off while it runs, however long that takes.
    assert_eq!(head.pass(30 * MINUTE, &["r2", "r3"]), []);
    for job in jobs {
        let run = head.run_of(job);
        let connection = if head.state.node(&name("r2")).expect("known").runs.contains_key(&run) { 12 } else { 13 };
        head.report(connection, run, ended(0)).expect("connected");
    }
    head.sent();
    assert_eq!(head.pass(9 * MINUTE, &["r2", "r3"]), []);
    assert_eq!(head.state.power.node(&name("r2")).expect("there").state(), PowerState::Idle);
    head.pass(MINUTE, &["r2", "r3"]);
    assert_eq!((head.stage("r2"), head.stage("r3")), (Stage::Asking, Stage::Asking));
    head.rests(13, None);
    assert_eq!(head.answer(&["r2", "r3"]), [("r3".to_owned(), PowerVerb::OffGracefully)]);
    head.vanish(13);
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
    assert_eq!(head.stage("r3"), Stage::Off);
}

#[test]
fn a_job_that_comes_while_a_node_is_asked_has_it_back_and_one_that_comes_later_waits_until_it_is_off() {
    let mut head = three_asleep();
    head.power(PowerCommand::On { node: name("r2"), by: "root".into() }).expect("it is off");
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    head.pass(12 * MINUTE, &["r2"]);
    // Its agent did not answer, was asked again later, and so on.
    head.power(PowerCommand::Off { node: name("r2"), by: "root".into(), force: false }).expect("nothing runs there");
    assert_eq!(head.stage("r2"), Stage::Asking);
    let job = head.submit(spec()).expect("accepted");
    assert_eq!((head.stage("r2"), head.state_of(job)), (Stage::Up, JobState::Starting), "{}", head.why("r2"));
    // A late answer means nothing any more.
    head.rests(12, None);
    assert_eq!((head.stage("r2"), head.answer(&["r2"])), (Stage::Up, vec![]));
    let run = head.run_of(job);
    head.report(12, run, ended(0)).expect("connected");

    head.power(PowerCommand::Off { node: name("r2"), by: "root".into(), force: false }).expect("nothing runs there");
    head.rests(12, None);
    assert_eq!(head.answer(&["r2"]), [("r2".to_owned(), PowerVerb::OffGracefully)]);
    let job = head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Pending, "nothing is placed on a node that is going off");
    assert_eq!(head.answer(&["r2"]), [on("r3")], "another one is there at once");
}

#[test]
fn an_agent_that_says_it_is_busy_keeps_its_machine_on() {
    let mut head = three_asleep();
    head.hello("r1", 11, "by itself", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up, "whoever switched it on");
    head.pass(10 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Asking);
    head.rests(11, Some("somebody is logged in at terminal 3"));
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("terminal 3"));
    assert_eq!(head.pass(9 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Up, "not asked again at once");
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Asking);
}

#[test]
fn what_is_not_confirmed_is_not_acted_on() {
    let mut head = Head::new();
    head.hello("r1", 1, "first", vec![]);
    head.vanish(1);
    head.plan(plan(&[("r1", 100)]));
    head.submit(spec()).expect("accepted");
    // Its controller says nothing, and then that it cannot.
    head.pass_ms(MINUTE);
    assert_eq!((head.stage("r1"), head.told()), (Stage::Unknown, vec![]));
    let fault = PowerFault { text: "503".into(), is_lasting: false, retry_after_ms: 0 };
    for _ in 0..20 {
        for (node, _, ask) in std::mem::take(&mut head.orders) {
            head.power(PowerCommand::Said { node, ask, outcome: Err(fault.clone()) }).expect("it may");
        }
        head.pass_ms(MINUTE);
    }
    assert_eq!((head.stage("r1"), head.told()), (Stage::Unknown, vec![]));
    let job = head.state.live_jobs().next().expect("it waits").id;
    let reason = explain(&head.state, head.job(job)).expect("it waits").to_string();
    assert!(reason.contains("r1 is not known to be off"), "{reason}");
    // An answer to a question of long ago is none.
    head.power(PowerCommand::Said { node: name("r1"), ask: 0, outcome: Ok(Some(Supply::Off)) }).expect("it may");
    assert_eq!(head.stage("r1"), Stage::Unknown);
    assert_eq!(head.pass(20 * SECOND, &[]), [on("r1")]);
}

#[test]
fn a_node_that_does_not_come_has_failed_another_takes_its_place_and_it_is_welcome_later() {
    let mut head = three_asleep();
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
    // Accepted, and nothing happens: told three times, then the next.
    let told = head.pass(3 * MINUTE + 10 * SECOND, &[]);
    assert_eq!(told, [on("r2"), on("r2"), on("r3")]);
    assert_eq!(head.stage("r2"), Stage::Failed);
    assert!(head.why("r2").contains("accepted 3 requests"), "{}", head.why("r2"));
    // On, and its agent does not come.
    let told = head.pass(15 * MINUTE, &["r3"]);
    assert_eq!(head.stage("r3"), Stage::Failed);
    assert!(head.why("r3").contains("its agent has not connected"), "{}", head.why("r3"));
    // By then the first may be tried again; the third is on, and is not switched off and on.
    assert_eq!(told, [on("r2")], "{}", head.why("r1"));
    head.hello("r3", 13, "late", vec![]);
    assert_eq!(head.stage("r3"), Stage::Up);
    assert_eq!(head.state.live_counts().starting, 1);
}

#[test]
fn a_wrong_password_is_not_tried_again_and_again() {
    let mut head = three_asleep();
    head.submit(spec()).expect("accepted");
    let fault = PowerFault { text: "its controller refuses the password".into(), is_lasting: true, retry_after_ms: 0 };
    let (node, verb, ask) = head.orders.pop().expect("it is told");
    assert_eq!((node.as_str(), verb), ("r2", PowerVerb::On));
    head.power(PowerCommand::Said { node, ask, outcome: Err(fault) }).expect("it may");
    assert_eq!(head.stage("r2"), Stage::Failed);
    assert!(head.why("r2").contains("refuses the password"));
    assert_eq!(head.answer(&[]), [on("r3")]);
}

#[test]
fn by_force_only_when_that_is_said_and_only_what_rests() {
    let mut head = three_asleep();
    let mut forced = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    forced.policy.force_off = true;
    head.plan(forced);
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.rests(11, None);
    head.answer(&["r1"]);
    head.vanish(11);
    assert_eq!(head.pass(6 * MINUTE, &["r1"]), [("r1".to_owned(), PowerVerb::OffByForce)]);
    head.pass(MINUTE, &[]);
    assert_eq!(head.stage("r1"), Stage::Off);
}

#[test]
fn a_head_that_is_killed_goes_on_where_it_was() {
    let mut head = three_asleep();
    head.submit(spec()).expect("accepted");
    head.orders.clear();
    head.restart();
    assert_eq!(head.stage("r2"), Stage::Waking);
    assert_eq!(head.answer(&[]), [on("r2")], "nobody knows whether it was told");
    head.restart();
    assert_eq!(head.answer(&["r2"]), [], "it was, and is on");
    head.hello("r2", 12, "second", vec![]);
    let job = head.state.live_jobs().next().expect("it runs").id;
    let run = head.run_of(job);
    head.report(12, run, RunStatus::Running).expect("connected");
    head.report(12, run, ended(0)).expect("connected");
    head.pass(10 * MINUTE, &["r2"]);
    head.rests(12, None);
    assert_eq!(head.stage("r2"), Stage::Stopping);
    head.orders.clear();
    head.restart();
    assert_eq!(head.answer(&["r2"]), [("r2".to_owned(), PowerVerb::OffGracefully)]);
    head.restart();
    assert_eq!(head.answer(&[]), []);
    assert_eq!(head.stage("r2"), Stage::Off);
}

#[test]
fn the_same_agent_that_comes_back_while_it_is_going_off_is_not_taken_for_another_boot() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.rests(11, None);
    head.answer(&["r1"]);
    head.vanish(11);
    head.hello("r1", 12, "second", vec![]);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.vanish(12);
    // Somebody has started it again; but what it was told may still be done.
    head.hello("r1", 13, "third", vec![]);
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up);
}

#[test]
fn one_that_goes_off_by_itself_is_off_and_one_that_comes_by_itself_is_up() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.vanish(11);
    head.pass(2 * MINUTE, &[]);
    assert_eq!((head.stage("r1"), head.why("r1")), (Stage::Off, "it went off by itself"));
    head.pass(2 * MINUTE, &["r1"]);
    assert_eq!(
        (head.stage("r1"), head.why("r1")),
        (Stage::Unknown, "someone else switched it on, and its agent has not connected yet")
    );
    head.hello("r1", 12, "third", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up);
    // One whose agent is silent but that is on is not off.
    head.vanish(12);
    head.pass(20 * MINUTE, &["r1"]);
    assert_ne!(head.stage("r1"), Stage::Off);
    assert_eq!(head.told(), []);
}

#[test]
fn what_a_controller_said_of_an_earlier_time_does_not_count_for_one_that_falls_silent() {
    let mut head = three_asleep();
    // It comes by itself; from then on its controller does not answer.
    head.pass_ms(SECOND);
    head.hello("r1", 11, "second", vec![]);
    head.vanish(11);
    head.orders.clear();
    for _ in 0..20 {
        head.pass_ms(MINUTE);
        head.orders.clear();
    }
    assert_eq!(head.stage("r1"), Stage::Unknown, "{}", head.why("r1"));
}

#[test]
fn the_last_words_of_an_agent_do_not_make_a_machine_on_that_is_off() {
    let mut head = three_asleep();
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("it is off");
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("nothing runs there");
    head.rests(11, None);
    head.answer(&["r1"]);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    // Its controller was a moment ahead of it. A job that only it could run changes nothing of that.
    head.plan(plan(&[("r1", 300)]));
    head.submit(two_cpus()).expect("accepted");
    head.hello("r1", 12, "second", vec![]);
    assert_eq!(head.stage("r1"), Stage::Waking);
    assert!(head.state.node(&name("r1")).expect("known").runs.is_empty());
    head.vanish(12);
    // One that stays is on, whatever its controller says, once nothing can come any more of what it was told.
    head.hello("r1", 13, "second", vec![]);
    head.pass(4 * MINUTE, &[]);
    assert_ne!(head.stage("r1"), Stage::Up);
    head.pass(MINUTE, &[]);
    head.rests(13, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(!head.state.node(&name("r1")).expect("known").runs.is_empty());
}

#[test]
fn nothing_is_woken_for_what_could_not_start_anyway() {
    let mut head = three_asleep();
    let mut held = spec();
    held.hold = true;
    let held = head.submit(held).expect("accepted");
    let mut dependent = spec();
    dependent.after = vec![hostler_model::Dependency { condition: hostler_model::Condition::AfterOk, job: held }];
    head.submit(dependent).expect("accepted");
    assert_eq!(head.pass(MINUTE, &[]), []);
    // Two nodes at once, and only as many as that.
    let mut gang = spec();
    gang.nodes = 2;
    head.submit(gang).expect("accepted");
    let mut told = head.answer(&[]);
    told.sort();
    assert_eq!(told, [on("r2"), on("r3")]);
}

#[test]
fn a_job_that_needs_a_busy_node_and_one_that_is_off_is_not_passed_over_for_ever() {
    let mut head = three_asleep();
    head.plan(plan(&[("r1", 300), ("r2", 100)]));
    head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    let mut gang = two_cpus();
    gang.nodes = 2;
    let gang = head.submit(gang).expect("accepted");
    assert_eq!(head.answer(&["r2"]), [on("r1")]);
    head.hello("r1", 11, "second", vec![]);
    // What comes later does not go first, and the node stays for it.
    let later = head.submit(spec()).expect("accepted");
    head.pass(60 * MINUTE, &["r1", "r2"]);
    assert_eq!((head.state_of(gang), head.state_of(later)), (JobState::Pending, JobState::Pending));
    assert_eq!(head.stage("r1"), Stage::Up);
}

#[test]
fn caps_and_hours_hold_and_the_reason_says_so() {
    let mut head = three_asleep();
    let mut capped = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    capped.policy.max_watts = Some(250);
    head.plan(capped.clone());
    let jobs: Vec<_> = (0..3).map(|_| head.submit(two_cpus()).expect("accepted")).collect();
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    let reason = explain(&head.state, head.job(jobs[1])).expect("it waits").to_string();
    assert!(reason.contains("would exceed the power limit"), "{reason}");
    capped.policy.max_watts = None;
    capped.policy.hours = vec![Hours { from: 22 * 60, to: 6 * 60 }];
    head.now.wall = WallTime(12 * 3_600_000);
    head.plan(capped);
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
    let reason = explain(&head.state, head.job(jobs[1])).expect("it waits").to_string();
    assert!(reason.contains("may not be switched on at this time of day"), "{reason}");
    head.now.wall = WallTime(23 * 3_600_000);
    let mut told = head.pass(2 * MINUTE, &["r2"]);
    told.sort();
    told.dedup();
    assert_eq!(told, [on("r1"), on("r3")]);
}

#[test]
fn some_stay_on_and_nothing_flaps() {
    let mut head = three_asleep();
    let mut warm = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    warm.policy.keep_warm = 1;
    head.plan(warm);
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    assert_eq!(head.pass(60 * MINUTE, &["r2"]), []);
    assert_eq!(head.stage("r2"), Stage::Up);
    let power = head.state.power.node(&name("r2")).expect("there");
    assert_eq!(power.starts, 1);
}

#[test]
fn operators_are_refused_what_would_end_a_task() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.submit(spec()).expect("accepted");
    for force in [false, true] {
        let refusal =
            head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force }).expect_err("a task is there");
        assert_eq!(refusal.code(), "node_in_use");
    }
    assert!(matches!(head.power(PowerCommand::Look { node: name("r9") }), Err(Refusal::NoSuchNode(_))));
    head.hello("n9", 19, "b", vec![]);
    assert!(matches!(head.power(PowerCommand::Look { node: name("n9") }), Err(Refusal::NoPower(_))));
}

#[test]
fn what_is_drawn_is_counted_by_the_figures() {
    let mut head = three_asleep();
    let meter = |head: &Head| head.state.power.node(&name("r2")).expect("there").meter;
    head.power(PowerCommand::On { node: name("r2"), by: "root".into() }).expect("it is off");
    let before = meter(&head);
    assert_eq!(before.draws_mw, 50_000);
    head.pass(MINUTE, &["r2"]);
    head.hello("r2", 12, "second", vec![]);
    let after = meter(&head);
    assert_eq!(after.energy.drawn_uj - before.energy.drawn_uj, 50_000 * MINUTE);
    assert_eq!(after.until, Timestamp(before.until.0 + MINUTE));
    head.submit(spec()).expect("accepted");
    assert_eq!(meter(&head).draws_mw, 75_000, "one of two CPUs is busy");
}

#[test]
fn a_job_is_charged_its_share_of_what_its_node_draws() {
    let mut head = three_asleep();
    let job = head.submit(spec()).expect("accepted");
    head.answer(&[]);
    head.hello("r2", 12, "second", vec![]);
    let energy = |head: &Head| head.state.energy_of(head.job(job), head.now.at).expect("it has a meter");
    assert_eq!(energy(&head), Energy::default());
    // One of two CPUs is its own, of a node that draws 75 W by the figures of the plan.
    head.pass(MINUTE, &["r2"]);
    assert_eq!(energy(&head), Energy { drawn_uj: 75_000 * MINUTE / 2, measured_uj: 0 });
    let drew = |gauge, milliwatts| PowerCommand::Drew { node: name("r2"), gauge, milliwatts };
    head.power(drew(Gauge::Controller, Some(120_000))).expect("it is known");
    // Its processors see less of the machine.
    head.power(drew(Gauge::Agent, Some(40_000))).expect("it is known");
    head.pass(MINUTE, &["r2"]);
    let both = Energy { drawn_uj: 195_000 * MINUTE / 2, measured_uj: 120_000 * MINUTE / 2 };
    assert_eq!(energy(&head), both);
    let run = head.run_of(job);
    head.report(12, run, ended(0)).expect("connected");
    head.pass(MINUTE, &["r2"]);
    assert_eq!(energy(&head), both, "what is over draws no more");
    assert!(matches!(
        head.power(PowerCommand::Drew { node: name("r9"), gauge: Gauge::Agent, milliwatts: None }),
        Err(Refusal::NoSuchNode(_))
    ));
}

#[test]
fn it_stays_for_the_time_that_a_start_is_worth() {
    let mut head = three_asleep();
    let mut patient = plan(&[("r1", 300)]);
    (patient.policy.idle_ms, patient.policy.min_up_ms) = (MINUTE, 20 * MINUTE);
    head.plan(patient);
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("it is off");
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    head.pass(19 * MINUTE, &["r1"]);
    assert!(!head.has_asked(), "it has been idle for long enough, and not been up for long enough");
    head.pass(2 * MINUTE, &["r1"]);
    assert!(head.has_asked());
}

#[test]
fn no_more_than_may_be_on_are_on_and_the_weight_that_people_gave_comes_before_what_is_drawn() {
    let mut head = three_asleep();
    let weigh =
        |node: &str, weight| PartitionsCommand::SetTraits { node: name(node), weight: Some(weight), features: None };
    // The one that draws least is the one that people would rather not hear.
    for (node, weight) in [("r2", 9), ("r1", 1), ("r3", 1)] {
        head.command(&Command::Partitions(weigh(node, weight))).expect("it is known");
    }
    let mut capped = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    capped.policy.max_on = Some(2);
    head.plan(capped);
    let jobs: Vec<_> = (0..3).map(|_| head.submit(two_cpus()).expect("accepted")).collect();
    assert_eq!(head.answer(&[]), [on("r3"), on("r1")]);
    head.hello("r3", 13, "second", vec![]);
    head.hello("r1", 11, "second", vec![]);
    assert_eq!(head.pass(MINUTE, &["r1", "r3"]), []);
    let reason = explain(&head.state, head.job(jobs[2])).expect("it waits").to_string();
    assert!(reason.contains("the maximum number of nodes is on"), "{reason}");
}

#[test]
fn of_two_that_draw_the_same_the_one_that_boots_faster_is_taken() {
    let mut head = three_asleep();
    head.plan(plan(&[("r1", 200), ("r2", 200), ("r3", 900)]));
    for (node, connection, boot) in [("r1", 11, 9), ("r2", 12, 1)] {
        head.power(PowerCommand::On { node: name(node), by: "root".into() }).expect("it is off");
        head.pass(boot * MINUTE, &[node]);
        head.hello(node, connection, "second", vec![]);
        head.vanish(connection);
        head.pass(3 * MINUTE, &[]);
        assert_eq!(head.stage(node), Stage::Off, "{}", head.why(node));
    }
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
}

#[test]
fn among_many_nodes_as_few_are_switched_on_as_among_few() {
    let mut head = Head::new();
    let names: Vec<String> = (1..=20).map(|number| format!("n{number:02}")).collect();
    for (node, connection) in names.iter().zip(1..) {
        head.hello(node, connection, "first", vec![]);
        head.vanish(connection);
    }
    let watts: Vec<(&str, u32)> = names.iter().zip(100..).map(|(node, watts)| (node.as_str(), watts)).collect();
    head.plan(plan(&watts));
    head.pass(10 * MINUTE, &[]);
    let mut gang = two_cpus();
    gang.nodes = 3;
    head.submit(gang).expect("accepted");
    head.submit(spec()).expect("accepted");
    let mut told = head.answer(&[]);
    told.sort();
    assert_eq!(told, ["n01", "n02", "n03", "n04"].map(on), "the cheapest, and no more than are needed");
}

#[test]
fn one_that_fails_again_and_again_is_left_alone_for_longer_each_time() {
    let mut head = three_asleep();
    let mut alone = plan(&[("r1", 300)]);
    (alone.policy.boot_timeout_ms, alone.policy.retry_ms, alone.policy.tries) = (5 * MINUTE, 10 * MINUTE, 9);
    head.plan(alone);
    head.submit(spec()).expect("accepted");
    let mut starts = vec![0];
    for minute in 1..=120 {
        let now = head.state.power.node(&name("r1")).expect("there").starts;
        head.pass(MINUTE, &[]);
        if head.state.power.node(&name("r1")).expect("there").starts > now {
            starts.push(minute);
        }
    }
    let pauses: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 3 && pauses.windows(2).skip(1).all(|pair| pair[1] > pair[0]), "{starts:?}");
}

#[test]
fn what_is_made_ready_and_what_is_brought_home_keeps_a_node_on() {
    let mut head = three_asleep();
    let job = head.submit(spec()).expect("accepted");
    head.answer(&[]);
    head.hello("r2", 12, "second", vec![]);
    let run = head.run_of(job);
    for status in [RunStatus::Accepted, RunStatus::Running, RunStatus::Completing] {
        head.report(12, run, status).expect("connected");
        assert_eq!(head.pass(60 * MINUTE, &["r2"]), []);
        assert!(!head.has_asked() && head.stage("r2") == Stage::Up);
    }
    head.report(12, run, ended(0)).expect("connected");
    head.pass(20 * MINUTE, &["r2"]);
    assert!(head.has_asked());
}

#[test]
fn how_long_it_boots_is_not_learnt_across_heads() {
    let mut head = three_asleep();
    head.submit(spec()).expect("accepted");
    head.answer(&["r2"]);
    // Nobody knows how long there was none.
    head.restart();
    head.hello("r2", 12, "second", vec![]);
    assert_eq!(head.stage("r2"), Stage::Up);
    assert_eq!(head.state.power.node(&name("r2")).expect("there").boots.count, 0);
}

#[test]
fn nothing_is_woken_for_what_is_over_its_quota() {
    let mut head = three_asleep();
    let ada: hostler_model::UserName = "ada".parse().expect("a name");
    let role = hostler_model::Role::User;
    let new = NewUser { name: ada.clone(), uid: None, role, groups: Default::default(), keys: Vec::new() };
    let quota = hostler_model::Quota { cpus: Some(2), ..Default::default() };
    for command in [UsersCommand::Add(new), UsersCommand::SetQuota(ada, quota)] {
        head.command(&Command::Users(command)).expect("it makes sense");
    }
    head.submit(two_cpus()).expect("accepted");
    head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")], "for the first, and not for the second");
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
}
