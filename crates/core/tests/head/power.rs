//! Scenarios of switching machines on and off: orders to controllers, requests to agents, and cases without either.

mod expected;
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

    /// Orders to switch on or off that controllers have not answered yet; without status requests.
    fn pending_orders(&self) -> Vec<(String, PowerVerb)> {
        let orders = self.orders.iter().filter(|(_, verb, _)| *verb != PowerVerb::Status);
        orders.map(|(node, verb, _)| (node.to_string(), *verb)).collect()
    }

    /// Answers every request as if the nodes in `on` were on and all others off. Returns the orders that were accepted
    /// but not yet done.
    fn answer(&mut self, on: &[&str]) -> Vec<(String, PowerVerb)> {
        let mut ordered = Vec::new();
        while !self.orders.is_empty() {
            for (node, verb, ask) in std::mem::take(&mut self.orders) {
                let supply = if on.contains(&node.as_str()) { Supply::On } else { Supply::Off };
                let is_done = match verb {
                    PowerVerb::Status => true,
                    PowerVerb::On => supply == Supply::On,
                    PowerVerb::OffGracefully | PowerVerb::OffByForce => supply == Supply::Off,
                };
                if !is_done {
                    ordered.push((node.to_string(), verb));
                }
                let outcome = Ok(is_done.then_some(supply));
                self.power(PowerCommand::Said { node, ask, outcome }).expect("any answer is accepted");
            }
        }
        ordered
    }

    /// Advances time while controllers answer every request and agents send heartbeats. Returns as [`Self::answer`] does.
    fn pass(&mut self, ms: u64, on: &[&str]) -> Vec<(String, PowerVerb)> {
        let until = self.now.at.plus_ms(ms);
        let mut ordered = self.answer(on);
        while self.now.at < until {
            self.pass_ms(SECOND.min(until.ms_since(self.now.at)));
            self.heartbeats();
            ordered.extend(self.answer(on));
        }
        ordered
    }

    /// Every connected agent sends a heartbeat.
    fn heartbeats(&mut self) {
        let links: Vec<_> = self.state.nodes().filter_map(|node| Some(node.link.as_ref()?.connection)).collect();
        for connection in links {
            let message = AgentMessage::Heartbeat;
            self.command(&Command::Message { connection, message, result_is_complete: false }).expect("connected");
        }
    }

    fn stage(&self, node: &str) -> Stage {
        self.state.power.node(&name(node)).expect("the plan lists the node").stage
    }

    fn why(&self, node: &str) -> &str {
        &self.state.power.node(&name(node)).expect("the plan lists the node").why
    }

    /// Ends the connection of a node, as when its machine goes off.
    fn disconnect(&mut self, connection: u64) {
        let connection = hostler_core::head::ConnectionId(connection);
        self.command(&Command::ConnectionEnded { connection }).expect("accepted");
    }

    /// Whether the head has sent a `Rest` request since messages were last read.
    fn has_asked_agent(&mut self) -> bool {
        self.sent().iter().any(|message| matches!(message, HeadMessage::Rest { .. }))
    }

    /// Answers the last request to an agent: `busy` is the reason why its machine must stay on.
    fn agent_reports(&mut self, connection: u64, busy: Option<&str>) {
        self.agent_answers(connection, busy, false);
    }

    /// Answers as [`Self::agent_reports`] does; `is_leaving` says that the machine is shutting down.
    fn agent_answers(&mut self, connection: u64, busy: Option<&str>, is_leaving: bool) {
        let asked = |(to, said): (u64, HeadMessage)| match said {
            HeadMessage::Rest { ask } if to == connection => Some(ask),
            _ => None,
        };
        let last = self.sent_to().into_iter().filter_map(asked).last();
        let ask = last.expect("the head asked the agent");
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

/// A job that needs both CPUs of a node.
fn two_cpus() -> hostler_model::JobSpec {
    hostler_model::JobSpec { request: Request::new(2, 1 << 30), ..spec() }
}

/// A head with three nodes of two CPUs, all of which are off.
fn three_nodes_off() -> Head {
    let mut head = Head::new();
    for (node, connection) in [("r1", 1), ("r2", 2), ("r3", 3)] {
        head.hello(node, connection, "first", vec![]);
        head.disconnect(connection);
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
fn cheapest_sufficient_nodes_are_switched_on_and_off_again_when_idle() {
    let mut head = three_nodes_off();
    let first = head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")], "only the node with the lowest power draw");
    assert_eq!(head.stage("r2"), Stage::Waking);
    // Two more jobs of one CPU: the first still fits on the node that is starting.
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), []);
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r3")]);
    let reason = explain(&head.state, head.job(first)).expect("the job waits").to_string();
    assert!(reason.starts_with("waking r2 for the first time"), "{reason}");

    assert_eq!(head.pass(2 * MINUTE, &["r2", "r3"]), [], "an order is not repeated");
    head.hello("r2", 12, "second", vec![]);
    head.hello("r3", 13, "second", vec![]);
    assert_eq!(head.stage("r2"), Stage::Up);
    assert_eq!(head.state.power.node(&name("r2")).expect("it is in the plan").boots.count, 1);
    let jobs: Vec<_> = head.state.jobs().map(|job| job.id).collect();
    for job in &jobs {
        assert_eq!(head.state_of(*job), JobState::Starting);
    }
    // A node stays on while a job runs, however long that takes.
    assert_eq!(head.pass(30 * MINUTE, &["r2", "r3"]), []);
    for job in jobs {
        let run = head.run_of(job);
        let connection = if head.state.node(&name("r2")).expect("known").runs.contains_key(&run) { 12 } else { 13 };
        head.report(connection, run, ended(0)).expect("connected");
    }
    head.sent();
    assert_eq!(head.pass(9 * MINUTE, &["r2", "r3"]), []);
    assert_eq!(head.state.power.node(&name("r2")).expect("the plan lists the node").state(), PowerState::Idle);
    head.pass(MINUTE, &["r2", "r3"]);
    assert_eq!((head.stage("r2"), head.stage("r3")), (Stage::Asking, Stage::Asking));
    head.agent_reports(13, None);
    assert_eq!(head.answer(&["r2", "r3"]), [("r3".to_owned(), PowerVerb::OffGracefully)]);
    head.disconnect(13);
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
    assert_eq!(head.stage("r3"), Stage::Off);
}

#[test]
fn new_job_keeps_a_node_that_is_only_asked_but_does_not_use_one_that_is_stopping() {
    let mut head = three_nodes_off();
    head.power(PowerCommand::On { node: name("r2"), by: "root".into() }).expect("the node is off");
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    head.pass(12 * MINUTE, &["r2"]);
    // The head asked after 10 idle minutes, and the agent has not answered.
    head.power(PowerCommand::Off { node: name("r2"), by: "root".into(), force: false }).expect("the node is idle");
    assert_eq!(head.stage("r2"), Stage::Asking);
    let job = head.submit(spec()).expect("accepted");
    assert_eq!((head.stage("r2"), head.state_of(job)), (Stage::Up, JobState::Starting), "{}", head.why("r2"));
    // A late answer is ignored.
    head.agent_reports(12, None);
    assert_eq!((head.stage("r2"), head.answer(&["r2"])), (Stage::Up, vec![]));
    let run = head.run_of(job);
    head.report(12, run, ended(0)).expect("connected");

    head.power(PowerCommand::Off { node: name("r2"), by: "root".into(), force: false }).expect("the node is idle");
    head.agent_reports(12, None);
    assert_eq!(head.answer(&["r2"]), [("r2".to_owned(), PowerVerb::OffGracefully)]);
    let job = head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Pending, "a stopping node gets no work");
    assert_eq!(head.answer(&["r2"]), [on("r3")], "another node is woken at once");
}

#[test]
fn busy_agent_keeps_its_machine_on() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "by itself", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up, "a machine that someone else switched on is up");
    head.pass(10 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Asking);
    head.agent_reports(11, Some("somebody is logged in at terminal 3"));
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("terminal 3"));
    assert_eq!(head.pass(9 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Up, "the head does not ask again at once");
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Asking);
}

#[test]
fn head_orders_nothing_while_the_state_of_a_machine_is_unconfirmed() {
    let mut head = Head::new();
    head.hello("r1", 1, "first", vec![]);
    head.disconnect(1);
    head.plan(plan(&[("r1", 100)]));
    head.submit(spec()).expect("accepted");
    // First the controller does not answer, then it reports errors.
    head.pass_ms(MINUTE);
    assert_eq!((head.stage("r1"), head.pending_orders()), (Stage::Unknown, vec![]));
    let fault = PowerFault { text: "503".into(), is_lasting: false, retry_after_ms: 0 };
    for _ in 0..20 {
        for (node, _, ask) in std::mem::take(&mut head.orders) {
            head.power(PowerCommand::Said { node, ask, outcome: Err(fault.clone()) }).expect("any answer is accepted");
        }
        head.pass_ms(MINUTE);
    }
    assert_eq!((head.stage("r1"), head.pending_orders()), (Stage::Unknown, vec![]));
    let job = head.state.jobs().next().expect("the job waits").id;
    let reason = explain(&head.state, head.job(job)).expect("the job waits").to_string();
    assert!(reason.contains("r1 is not known to be off"), "{reason}");
    // An answer to an old request is ignored.
    head.power(PowerCommand::Said { node: name("r1"), ask: 0, outcome: Ok(Some(Supply::Off)) })
        .expect("any answer is accepted");
    assert_eq!(head.stage("r1"), Stage::Unknown);
    assert_eq!(head.pass(20 * SECOND, &[]), [on("r1")]);
}

#[test]
fn node_that_does_not_start_is_replaced_and_may_still_connect_later() {
    let mut head = three_nodes_off();
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
    // The controller of r2 accepts every order, but the machine stays off: after three orders, the head wakes r3.
    let ordered = head.pass(3 * MINUTE + 10 * SECOND, &[]);
    assert_eq!(ordered, [on("r2"), on("r2"), on("r3")]);
    assert_eq!(head.stage("r2"), Stage::Failed);
    assert!(head.why("r2").contains("accepted 3 requests"), "{}", head.why("r2"));
    // r3 is on, but its agent does not connect.
    let ordered = head.pass(15 * MINUTE, &["r3"]);
    assert_eq!(head.stage("r3"), Stage::Failed);
    assert!(head.why("r3").contains("its agent has not connected"), "{}", head.why("r3"));
    // r2 may be retried by then. r3 is on, and is not power-cycled.
    assert_eq!(ordered, [on("r2")], "{}", head.why("r1"));
    head.hello("r3", 13, "late", vec![]);
    assert_eq!(head.stage("r3"), Stage::Up);
    assert_eq!(head.state.live_counts().starting, 1);
}

#[test]
fn wrong_password_is_not_retried() {
    let mut head = three_nodes_off();
    head.submit(spec()).expect("accepted");
    let fault = PowerFault { text: "its controller refuses the password".into(), is_lasting: true, retry_after_ms: 0 };
    let (node, verb, ask) = head.orders.pop().expect("an order to wake r2");
    assert_eq!((node.as_str(), verb), ("r2", PowerVerb::On));
    head.power(PowerCommand::Said { node, ask, outcome: Err(fault) }).expect("any answer is accepted");
    assert_eq!(head.stage("r2"), Stage::Failed);
    assert!(head.why("r2").contains("refuses the password"));
    assert_eq!(head.answer(&[]), [on("r3")]);
}

#[test]
fn idle_machine_that_does_not_shut_down_is_forced_off_if_the_policy_allows_it() {
    let mut head = three_nodes_off();
    let mut forced = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    forced.policy.force_off = true;
    head.plan(forced);
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.agent_reports(11, None);
    head.answer(&["r1"]);
    head.disconnect(11);
    assert_eq!(head.pass(6 * MINUTE, &["r1"]), [("r1".to_owned(), PowerVerb::OffByForce)]);
    head.pass(MINUTE, &[]);
    assert_eq!(head.stage("r1"), Stage::Off);
}

#[test]
fn killed_head_continues_where_it_stopped() {
    let mut head = three_nodes_off();
    head.submit(spec()).expect("accepted");
    head.orders.clear();
    head.restart();
    assert_eq!(head.stage("r2"), Stage::Waking);
    assert_eq!(head.answer(&[]), [on("r2")], "the controller may not have received the order");
    head.restart();
    assert_eq!(head.answer(&["r2"]), [], "the machine is on, so no order is repeated");
    head.hello("r2", 12, "second", vec![]);
    let job = head.state.jobs().next().expect("the job runs").id;
    let run = head.run_of(job);
    head.report(12, run, RunStatus::Running).expect("connected");
    head.report(12, run, ended(0)).expect("connected");
    head.pass(10 * MINUTE, &["r2"]);
    head.agent_reports(12, None);
    assert_eq!(head.stage("r2"), Stage::Stopping);
    head.orders.clear();
    head.restart();
    assert_eq!(head.answer(&["r2"]), [("r2".to_owned(), PowerVerb::OffGracefully)]);
    head.restart();
    assert_eq!(head.answer(&[]), []);
    assert_eq!(head.stage("r2"), Stage::Off);
}

#[test]
fn reconnect_of_the_same_boot_does_not_end_a_shutdown() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.agent_reports(11, None);
    head.answer(&["r1"]);
    head.disconnect(11);
    head.hello("r1", 12, "second", vec![]);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.disconnect(12);
    // Someone switched it on again, but the accepted order may still take effect.
    head.hello("r1", 13, "third", vec![]);
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up);
}

#[test]
fn node_that_goes_off_by_itself_is_off_and_one_that_starts_by_itself_is_up() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.disconnect(11);
    head.pass(2 * MINUTE, &[]);
    assert_eq!((head.stage("r1"), head.why("r1")), (Stage::Off, "the node went off without an order from the head"));
    head.pass(2 * MINUTE, &["r1"]);
    assert_eq!(
        (head.stage("r1"), head.why("r1")),
        (Stage::Unknown, "someone else switched the node on, and its agent has not connected yet")
    );
    head.hello("r1", 12, "third", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up);
    // A machine that is on does not count as off when its agent is silent.
    head.disconnect(12);
    head.pass(20 * MINUTE, &["r1"]);
    assert_ne!(head.stage("r1"), Stage::Off);
    assert_eq!(head.pending_orders(), []);
}

#[test]
fn old_answer_of_a_controller_does_not_count_for_a_node_that_falls_silent_later() {
    let mut head = three_nodes_off();
    // The node starts by itself. From then on its controller does not answer.
    head.pass_ms(SECOND);
    head.hello("r1", 11, "second", vec![]);
    head.disconnect(11);
    head.orders.clear();
    for _ in 0..20 {
        head.pass_ms(MINUTE);
        head.orders.clear();
    }
    assert_eq!(head.stage("r1"), Stage::Unknown, "{}", head.why("r1"));
}

#[test]
fn reconnect_of_an_old_boot_does_not_make_a_node_up_that_is_off() {
    let mut head = three_nodes_off();
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("the node is off");
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("the node is idle");
    head.agent_reports(11, None);
    head.answer(&["r1"]);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    // The agent of the old boot connects after its controller reported the machine off. It gets no run, even if a job needs it.
    head.plan(plan(&[("r1", 300)]));
    head.submit(two_cpus()).expect("accepted");
    head.hello("r1", 12, "second", vec![]);
    assert_eq!(head.stage("r1"), Stage::Waking);
    assert!(head.state.node(&name("r1")).expect("known").runs.is_empty());
    head.disconnect(12);
    // If that agent stays connected, the node is up once the off order has expired, even if the controller disagrees.
    head.hello("r1", 13, "second", vec![]);
    head.pass(4 * MINUTE, &[]);
    assert_ne!(head.stage("r1"), Stage::Up);
    head.pass(MINUTE, &[]);
    head.agent_reports(13, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(!head.state.node(&name("r1")).expect("known").runs.is_empty());
}

#[test]
fn jobs_that_could_not_start_wake_no_nodes() {
    let mut head = three_nodes_off();
    let mut held = spec();
    held.hold = true;
    let held = head.submit(held).expect("accepted");
    let mut dependent = spec();
    dependent.after = [hostler_model::Dependency::new(hostler_model::Condition::AfterOk, held)].into();
    head.submit(dependent).expect("accepted");
    assert_eq!(head.pass(MINUTE, &[]), []);
    // A job on two nodes wakes exactly two.
    let mut gang = spec();
    gang.nodes = 2;
    head.submit(gang).expect("accepted");
    let mut ordered = head.answer(&[]);
    ordered.sort();
    assert_eq!(ordered, [on("r2"), on("r3")]);
}

#[test]
fn job_that_needs_a_busy_node_and_one_that_is_off_is_not_overtaken_for_ever() {
    let mut head = three_nodes_off();
    head.plan(plan(&[("r1", 300), ("r2", 100)]));
    head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    let mut gang = two_cpus();
    gang.nodes = 2;
    let gang = head.submit(gang).expect("accepted");
    assert_eq!(head.answer(&["r2"]), [on("r1")]);
    head.hello("r1", 11, "second", vec![]);
    // A later job does not overtake the job on two nodes, and r1 stays on for that job.
    let later = head.submit(spec()).expect("accepted");
    head.pass(60 * MINUTE, &["r1", "r2"]);
    assert_eq!((head.state_of(gang), head.state_of(later)), (JobState::Pending, JobState::Pending));
    assert_eq!(head.stage("r1"), Stage::Up);
}

#[test]
fn power_limit_and_hours_are_enforced_and_shown_in_the_reason() {
    let mut head = three_nodes_off();
    let mut capped = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    capped.policy.max_watts = Some(250);
    head.plan(capped.clone());
    let jobs: Vec<_> = (0..3).map(|_| head.submit(two_cpus()).expect("accepted")).collect();
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    let reason = explain(&head.state, head.job(jobs[1])).expect("the job waits").to_string();
    assert!(reason.contains("would exceed the power limit"), "{reason}");
    capped.policy.max_watts = None;
    capped.policy.hours = vec![Hours { from: 22 * 60, to: 6 * 60 }];
    head.now.wall = WallTime(12 * 3_600_000);
    head.plan(capped);
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
    let reason = explain(&head.state, head.job(jobs[1])).expect("the job waits").to_string();
    assert!(reason.contains("may not be switched on at this time of day"), "{reason}");
    head.now.wall = WallTime(23 * 3_600_000);
    let mut ordered = head.pass(2 * MINUTE, &["r2"]);
    ordered.sort();
    ordered.dedup();
    assert_eq!(ordered, [on("r1"), on("r3")]);
}

#[test]
fn warm_nodes_stay_on_and_are_not_power_cycled() {
    let mut head = three_nodes_off();
    let mut warm = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    warm.policy.keep_warm = 1;
    head.plan(warm);
    assert_eq!(head.answer(&[]), [on("r2")]);
    head.hello("r2", 12, "second", vec![]);
    assert_eq!(head.pass(60 * MINUTE, &["r2"]), []);
    assert_eq!(head.stage("r2"), Stage::Up);
    let power = head.state.power.node(&name("r2")).expect("the plan lists the node");
    assert_eq!(power.starts, 1);
}

#[test]
fn switching_off_a_node_with_a_task_is_refused() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.submit(spec()).expect("accepted");
    for force in [false, true] {
        let refusal = head
            .power(PowerCommand::Off { node: name("r1"), by: "root".into(), force })
            .expect_err("a task runs there");
        assert_eq!(refusal.code(), "node_in_use");
    }
    assert!(matches!(head.power(PowerCommand::Look { node: name("r9") }), Err(Refusal::NoSuchNode(_))));
    head.hello("n9", 19, "b", vec![]);
    assert!(matches!(head.power(PowerCommand::Look { node: name("n9") }), Err(Refusal::NoPower(_))));
}

#[test]
fn energy_is_estimated_from_the_figures_of_the_plan() {
    let mut head = three_nodes_off();
    let meter = |head: &Head| head.state.power.node(&name("r2")).expect("the plan lists the node").meter;
    head.power(PowerCommand::On { node: name("r2"), by: "root".into() }).expect("the node is off");
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
fn job_is_charged_its_share_of_the_energy_of_its_node() {
    let mut head = three_nodes_off();
    let job = head.submit(spec()).expect("accepted");
    head.answer(&[]);
    head.hello("r2", 12, "second", vec![]);
    let energy = |head: &Head| head.state.energy_of(head.job(job), head.now.at).expect("the job has a meter");
    assert_eq!(energy(&head), Energy::default());
    // The job has one of two CPUs of a node that draws 75 W according to the plan.
    head.pass(MINUTE, &["r2"]);
    assert_eq!(energy(&head), Energy { drawn_uj: 75_000 * MINUTE / 2, measured_uj: 0 });
    let drew = |gauge, milliwatts| PowerCommand::Drew { node: name("r2"), gauge, milliwatts };
    head.power(drew(Gauge::Controller, Some(120_000))).expect("accepted");
    // The agent measures only part of the machine, so the controller's value counts.
    head.power(drew(Gauge::Agent, Some(40_000))).expect("accepted");
    head.pass(MINUTE, &["r2"]);
    let both = Energy { drawn_uj: 195_000 * MINUTE / 2, measured_uj: 120_000 * MINUTE / 2 };
    assert_eq!(energy(&head), both);
    let run = head.run_of(job);
    head.report(12, run, ended(0)).expect("connected");
    head.pass(MINUTE, &["r2"]);
    assert_eq!(energy(&head), both, "an ended job uses no energy");
    assert!(matches!(
        head.power(PowerCommand::Drew { node: name("r9"), gauge: Gauge::Agent, milliwatts: None }),
        Err(Refusal::NoSuchNode(_))
    ));
}

#[test]
fn node_stays_on_for_its_minimum_uptime() {
    let mut head = three_nodes_off();
    let mut patient = plan(&[("r1", 300)]);
    (patient.policy.idle_ms, patient.policy.min_up_ms) = (MINUTE, 20 * MINUTE);
    head.plan(patient);
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("the node is off");
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    head.pass(19 * MINUTE, &["r1"]);
    assert!(!head.has_asked_agent(), "idle for long enough, but not up for long enough");
    head.pass(2 * MINUTE, &["r1"]);
    assert!(head.has_asked_agent());
}

#[test]
fn at_most_max_on_nodes_are_on_and_weight_takes_precedence_over_watts() {
    let mut head = three_nodes_off();
    let weigh =
        |node: &str, weight| PartitionsCommand::SetTraits { node: name(node), weight: Some(weight), features: None };
    // The node with the lowest power draw has the highest weight, so it is woken last.
    for (node, weight) in [("r2", 9), ("r1", 1), ("r3", 1)] {
        head.command(&Command::Partitions(weigh(node, weight))).expect("accepted");
    }
    let mut capped = plan(&[("r1", 300), ("r2", 100), ("r3", 200)]);
    capped.policy.max_on = Some(2);
    head.plan(capped);
    let jobs: Vec<_> = (0..3).map(|_| head.submit(two_cpus()).expect("accepted")).collect();
    assert_eq!(head.answer(&[]), [on("r3"), on("r1")]);
    head.hello("r3", 13, "second", vec![]);
    head.hello("r1", 11, "second", vec![]);
    assert_eq!(head.pass(MINUTE, &["r1", "r3"]), []);
    let reason = explain(&head.state, head.job(jobs[2])).expect("the job waits").to_string();
    assert!(reason.contains("the maximum number of nodes is on"), "{reason}");
}

#[test]
fn node_that_boots_faster_is_preferred_at_equal_watts() {
    let mut head = three_nodes_off();
    head.plan(plan(&[("r1", 200), ("r2", 200), ("r3", 900)]));
    for (node, connection, boot) in [("r1", 11, 9), ("r2", 12, 1)] {
        head.power(PowerCommand::On { node: name(node), by: "root".into() }).expect("the node is off");
        head.pass(boot * MINUTE, &[node]);
        head.hello(node, connection, "second", vec![]);
        head.disconnect(connection);
        head.pass(3 * MINUTE, &[]);
        assert_eq!(head.stage(node), Stage::Off, "{}", head.why(node));
    }
    head.submit(spec()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")]);
}

#[test]
fn no_more_nodes_than_needed_are_woken_in_a_large_cluster() {
    let mut head = Head::new();
    let names: Vec<String> = (1..=20).map(|number| format!("n{number:02}")).collect();
    for (node, connection) in names.iter().zip(1..) {
        head.hello(node, connection, "first", vec![]);
        head.disconnect(connection);
    }
    let watts: Vec<(&str, u32)> = names.iter().zip(100..).map(|(node, watts)| (node.as_str(), watts)).collect();
    head.plan(plan(&watts));
    head.pass(10 * MINUTE, &[]);
    let mut gang = two_cpus();
    gang.nodes = 3;
    head.submit(gang).expect("accepted");
    head.submit(spec()).expect("accepted");
    let mut ordered = head.answer(&[]);
    ordered.sort();
    assert_eq!(ordered, ["n01", "n02", "n03", "n04"].map(on), "the cheapest nodes, and no more than needed");
}

#[test]
fn node_that_fails_repeatedly_is_retried_at_growing_intervals() {
    let mut head = three_nodes_off();
    let mut alone = plan(&[("r1", 300)]);
    (alone.policy.boot_timeout_ms, alone.policy.retry_ms, alone.policy.tries) = (5 * MINUTE, 10 * MINUTE, 9);
    head.plan(alone);
    head.submit(spec()).expect("accepted");
    let mut starts = vec![0];
    for minute in 1..=120 {
        let now = head.state.power.node(&name("r1")).expect("the plan lists the node").starts;
        head.pass(MINUTE, &[]);
        if head.state.power.node(&name("r1")).expect("the plan lists the node").starts > now {
            starts.push(minute);
        }
    }
    let pauses: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 3 && pauses.windows(2).skip(1).all(|pair| pair[1] > pair[0]), "{starts:?}");
}

#[test]
fn node_stays_on_while_a_run_is_prepared_or_uploads_its_result() {
    let mut head = three_nodes_off();
    let job = head.submit(spec()).expect("accepted");
    head.answer(&[]);
    head.hello("r2", 12, "second", vec![]);
    let run = head.run_of(job);
    for status in [RunStatus::Accepted, RunStatus::Running, RunStatus::Completing] {
        head.report(12, run, status).expect("connected");
        assert_eq!(head.pass(60 * MINUTE, &["r2"]), []);
        assert!(!head.has_asked_agent() && head.stage("r2") == Stage::Up);
    }
    head.report(12, run, ended(0)).expect("connected");
    head.pass(20 * MINUTE, &["r2"]);
    assert!(head.has_asked_agent());
}

#[test]
fn boot_time_is_not_measured_across_a_restart_of_the_head() {
    let mut head = three_nodes_off();
    head.submit(spec()).expect("accepted");
    head.answer(&["r2"]);
    // The new head does not know how long no head was running.
    head.restart();
    head.hello("r2", 12, "second", vec![]);
    assert_eq!(head.stage("r2"), Stage::Up);
    assert_eq!(head.state.power.node(&name("r2")).expect("the plan lists the node").boots.count, 0);
}

#[test]
fn jobs_over_quota_wake_no_nodes() {
    let mut head = three_nodes_off();
    let ada: hostler_model::UserName = "ada".parse().expect("a name");
    let role = hostler_model::Role::User;
    let new = NewUser { name: ada.clone(), uid: None, role, groups: Default::default(), keys: Vec::new() };
    let quota = hostler_model::Quota { cpus: Some(2), ..Default::default() };
    for command in [UsersCommand::Add(new), UsersCommand::SetQuota(ada, quota)] {
        head.command(&Command::Users(command)).expect("accepted");
    }
    head.submit(two_cpus()).expect("accepted");
    head.submit(two_cpus()).expect("accepted");
    assert_eq!(head.answer(&[]), [on("r2")], "only the first job is within the quota");
    assert_eq!(head.pass(MINUTE, &["r2"]), []);
}
