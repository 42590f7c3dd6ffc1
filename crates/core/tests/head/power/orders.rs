//! Orders to controllers: those that may still take effect, during which the node gets no work, and refused ones.

use super::*;

/// Brings a node up and has its controller accept an order to shut it down.
fn order_shutdown(head: &mut Head, node: &str, connection: u64, boot: &str) {
    if head.stage(node) != Stage::Up {
        head.hello(node, connection, boot, vec![]);
    }
    head.answer(&[node]);
    head.power(PowerCommand::Off { node: name(node), by: "root".into(), force: false }).expect("the node is idle");
    head.agent_reports(connection, None);
    assert_eq!(head.answer(&[node]), [(node.to_owned(), PowerVerb::OffGracefully)]);
}

/// Answers status requests as if the nodes in `on` were on, and the waiting order with `outcome`.
fn answer_order(head: &mut Head, on: &[&str], outcome: &Result<Option<Supply>, PowerFault>) {
    let orders = std::mem::take(&mut head.orders);
    assert!(orders.iter().any(|(_, verb, _)| verb.is_off()), "{orders:?}");
    for (node, verb, ask) in orders {
        let supply = if on.contains(&node.as_str()) { Supply::On } else { Supply::Off };
        let outcome = if verb == PowerVerb::Status { Ok(Some(supply)) } else { outcome.clone() };
        head.power(PowerCommand::Said { node, ask, outcome }).expect("any answer is accepted");
    }
}

fn lasting() -> PowerFault {
    PowerFault { text: "its controller refuses".into(), is_lasting: true, retry_after_ms: 0 }
}

#[test]
fn node_that_is_switched_off_on_purpose_is_off_and_not_down() {
    let mut head = three_nodes_off();
    let shown = |head: &Head, node: &str| head.state.node_state(head.state.node(&name(node)).expect("known"));
    let counts = head.state.node_counts();
    assert_eq!((shown(&head, "r1"), counts.off, counts.down, counts.suspect), (NodeState::Off, 3, 0, 0));
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("the node is off");
    assert_eq!(shown(&head, "r1"), NodeState::Waking);
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    assert_eq!(shown(&head, "r1"), NodeState::Up);
    order_shutdown(&mut head, "r1", 11, "second");
    let counts = head.state.node_counts();
    assert_eq!((shown(&head, "r1"), counts.stopping, counts.off), (NodeState::Stopping, 1, 2));
    // A node that disconnects without an order to switch off is down.
    head.hello("r2", 12, "second", vec![]);
    head.disconnect(12);
    head.pass(MINUTE, &["r1", "r2"]);
    assert_eq!(shown(&head, "r2"), NodeState::Down);
}

#[test]
fn operators_are_notified_of_nodes_that_go_down_without_an_order() {
    let mut head = three_nodes_off();
    let of_r1 = |head: &Head| head.for_operators().into_iter().filter(|it| format!("{it:?}").contains("r1")).count();
    assert_eq!(of_r1(&head), 1, "the node went off by itself");
    head.hello("r1", 11, "second", vec![]);
    assert_eq!(of_r1(&head), 2, "the node is back");
    order_shutdown(&mut head, "r1", 11, "second");
    head.disconnect(11);
    head.pass(10 * MINUTE, &[]);
    assert_eq!((head.stage("r1"), of_r1(&head)), (Stage::Off, 2), "a planned power-off is silent");
}

#[test]
fn refused_order_does_not_void_the_accepted_order_of_an_earlier_head() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.restart();
    head.hello("r1", 12, "second", vec![]);
    answer_order(&mut head, &["r1"], &Err(lasting()));
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    // The order of the first head may still take effect.
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    head.pass(MINUTE, &["r1"]);
    head.agent_reports(12, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("its controller refuses"), "{}", head.why("r1"));
}

#[test]
fn refused_order_may_still_take_effect() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("the node is idle");
    assert_eq!(head.answer(&["r1"]), []);
    head.agent_reports(11, None);
    answer_order(&mut head, &["r1"], &Err(lasting()));
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    head.pass(10 * SECOND, &[]);
    assert_eq!(head.stage("r1"), Stage::Off, "the controller reports the machine off");
}

#[test]
fn restarted_head_waits_for_the_stop_timeout_from_the_first_answer_on() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.restart();
    head.hello("r1", 12, "third", vec![]);
    for _ in 0..120 {
        head.heartbeats();
        head.pass_ms(SECOND);
    }
    assert_eq!(head.stage("r1"), Stage::Stopping, "no controller has answered this head");
    head.pass(4 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn boot_soon_after_a_confirmed_off_gets_no_work_until_a_late_order_has_expired() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.disconnect(11);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    // Someone else switched the machine on again.
    head.hello("r1", 12, "third", vec![]);
    assert_ne!(head.stage("r1"), Stage::Up);
    head.submit(spec()).expect("accepted");
    assert!(head.state.node(&name("r1")).expect("known").runs.is_empty());
    head.pass(5 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn node_whose_controller_accepted_an_order_to_wake_works_at_once() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.disconnect(11);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("the node is off");
    assert_eq!(head.answer(&[]), [on("r1")]);
    head.hello("r1", 12, "third", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up, "the later order replaces the earlier one");
}

#[test]
fn agent_that_is_shutting_down_gets_no_work() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.pass(5 * MINUTE, &["r1"]);
    head.agent_answers(11, Some("the machine is shutting down"), true);
    head.pass(10 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    // The head asks the agent again when the same boot makes a new connection.
    head.disconnect(11);
    head.hello("r1", 12, "second", vec![]);
    head.agent_reports(12, None);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn no_status_is_requested_before_an_order_is_answered() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("the node is idle");
    assert_eq!(head.answer(&["r1"]), []);
    head.agent_reports(11, None);
    // The order waits for a controller that many nodes share.
    let waits = std::mem::take(&mut head.orders);
    head.power(PowerCommand::Look { node: name("r1") }).expect("the plan lists the node");
    assert_eq!(head.answer(&["r1"]), [], "the order is not answered yet");
    head.pass(4 * MINUTE, &["r1"]);
    head.orders = waits;
    assert_eq!(head.answer(&["r1"]), [("r1".to_owned(), PowerVerb::OffGracefully)]);
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
}

#[test]
fn node_removed_from_the_plan_while_it_stops_gets_no_work_until_the_order_expires() {
    let mut head = three_nodes_off();
    order_shutdown(&mut head, "r1", 11, "second");
    head.plan(plan(&[]));
    let job = head.submit(spec()).expect("accepted");
    assert_eq!((head.stage("r1"), head.state_of(job)), (Stage::Stopping, JobState::Pending));
    head.answer(&["r1"]);
    head.plan(plan(&[("r1", 300)]));
    assert_eq!(head.stage("r1"), Stage::Stopping, "the order still counts when the node is back in the plan");
    head.plan(plan(&[]));
    head.pass(5 * MINUTE, &["r1"]);
    assert_eq!(head.state_of(job), JobState::Pending);
    head.agent_reports(11, None);
    assert_eq!(head.state_of(job), JobState::Starting);
    assert!(head.state.power.node(&name("r1")).is_none(), "the node's power state is deleted");
}

#[test]
fn answers_to_the_previous_head_do_not_count() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("the node is idle");
    assert_eq!(head.answer(&["r1"]), []);
    head.agent_reports(11, None);
    let before: Vec<u64> = std::mem::take(&mut head.orders).into_iter().map(|(_, _, ask)| ask).collect();
    head.restart();
    let now: Vec<u64> = head.orders.iter().map(|(_, _, ask)| *ask).collect();
    assert!(before.iter().all(|ask| !now.contains(ask)), "{before:?} {now:?}");
}

#[test]
fn node_that_does_not_shut_down_gets_work_again() {
    let mut head = three_nodes_off();
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.agent_reports(11, None);
    assert_eq!(head.answer(&["r1"]), [("r1".to_owned(), PowerVerb::OffGracefully)]);
    assert_eq!(head.pass(6 * MINUTE, &["r1"]), [], "force is used only if the policy allows it");
    assert_eq!(head.stage("r1"), Stage::Stopping, "the agent has not yet confirmed that the machine stays on");
    head.agent_reports(11, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("still on"), "{}", head.why("r1"));
    let job = head.submit(spec()).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Starting);
}

#[test]
fn orders_for_a_node_that_has_never_joined_reach_no_controller() {
    let mut head = three_nodes_off();
    head.plan(plan(&[("r1", 1), ("r2", 1), ("r3", 1), ("r9", 1)]));
    head.orders.clear();
    let by = || "root".to_owned();
    for order in [
        PowerCommand::On { node: name("r9"), by: by() },
        PowerCommand::Off { node: name("r9"), by: by(), force: false },
        PowerCommand::Off { node: name("r9"), by: by(), force: true },
        PowerCommand::Look { node: name("r9") },
    ] {
        assert!(matches!(head.power(order), Err(Refusal::NoSuchNode(_))));
    }
    assert_eq!(head.pending_orders(), []);
}

#[test]
fn head_rests_after_the_last_node_has_left_the_plan() {
    for wait_ms in [0, 700_000] {
        let mut head = three_nodes_off();
        head.power(PowerCommand::Plan(Box::new(plan(&[])))).expect("a plan is never refused");
        head.pass_ms(wait_ms);
        assert!(head.deadline().is_none_or(|at| at > head.now.at), "{:?}", head.deadline());
    }
}
