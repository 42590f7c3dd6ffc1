//! Orders to switch a machine off that may still be carried out: until when it gets no work.

use super::*;

/// Brings a node up and has its controller accept an order to shut it down.
fn told_to_shut_down(head: &mut Head, node: &str, connection: u64, boot: &str) {
    if head.stage(node) != Stage::Up {
        head.hello(node, connection, boot, vec![]);
    }
    head.answer(&[node]);
    head.power(PowerCommand::Off { node: name(node), by: "root".into(), force: false }).expect("nothing runs there");
    head.rests(connection, None);
    assert_eq!(head.answer(&[node]), [(node.to_owned(), PowerVerb::OffGracefully)]);
}

/// Controllers answer questions as if these nodes were on, and the order that waits with this.
fn answer_order(head: &mut Head, on: &[&str], outcome: &Result<Option<Supply>, PowerFault>) {
    let orders = std::mem::take(&mut head.orders);
    assert!(orders.iter().any(|(_, verb, _)| verb.is_off()), "{orders:?}");
    for (node, verb, ask) in orders {
        let supply = if on.contains(&node.as_str()) { Supply::On } else { Supply::Off };
        let outcome = if verb == PowerVerb::Status { Ok(Some(supply)) } else { outcome.clone() };
        head.power(PowerCommand::Said { node, ask, outcome }).expect("controllers may say anything");
    }
}

fn lasting() -> PowerFault {
    PowerFault { text: "its controller refuses".into(), is_lasting: true, retry_after_ms: 0 }
}

#[test]
fn node_that_is_switched_off_on_purpose_is_off_and_not_down() {
    let mut head = three_asleep();
    let shown = |head: &Head, node: &str| head.state.node_state(head.state.node(&name(node)).expect("known"));
    let counts = head.state.node_counts();
    assert_eq!((shown(&head, "r1"), counts.off, counts.down, counts.suspect), (NodeState::Off, 3, 0, 0));
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("it is off");
    assert_eq!(shown(&head, "r1"), NodeState::Waking);
    head.answer(&["r1"]);
    head.hello("r1", 11, "second", vec![]);
    assert_eq!(shown(&head, "r1"), NodeState::Up);
    told_to_shut_down(&mut head, "r1", 11, "second");
    let counts = head.state.node_counts();
    assert_eq!((shown(&head, "r1"), counts.stopping, counts.off), (NodeState::Stopping, 1, 2));
    // One that falls silent by itself is lost all the same.
    head.hello("r2", 12, "second", vec![]);
    head.vanish(12);
    head.pass(MINUTE, &["r1", "r2"]);
    assert_eq!(shown(&head, "r2"), NodeState::Down);
}

#[test]
fn refused_order_does_not_void_the_accepted_order_of_an_earlier_head() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.restart();
    head.hello("r1", 12, "second", vec![]);
    answer_order(&mut head, &["r1"], &Err(lasting()));
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    // The order of the first head is still within its time.
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    head.pass(MINUTE, &["r1"]);
    head.rests(12, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("its controller refuses"), "{}", head.why("r1"));
}

#[test]
fn refused_order_may_be_carried_out_all_the_same() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("nothing runs there");
    assert_eq!(head.answer(&["r1"]), []);
    head.rests(11, None);
    answer_order(&mut head, &["r1"], &Err(lasting()));
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    head.pass(10 * SECOND, &[]);
    assert_eq!(head.stage("r1"), Stage::Off, "its controller says so");
}

#[test]
fn restarted_head_waits_for_the_stop_timeout_from_the_first_answer_on() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.restart();
    head.hello("r1", 12, "third", vec![]);
    for _ in 0..120 {
        head.heartbeats();
        head.pass_ms(SECOND);
    }
    assert_eq!(head.stage("r1"), Stage::Stopping, "no controller has said anything to this head");
    head.pass(4 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Stopping);
    head.pass(MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn boot_that_comes_soon_after_a_confirmed_off_waits_until_a_late_order_has_passed() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.vanish(11);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    // Somebody else has switched it on again.
    head.hello("r1", 12, "third", vec![]);
    assert_ne!(head.stage("r1"), Stage::Up);
    head.submit(spec()).expect("accepted");
    assert!(head.state.node(&name("r1")).expect("known").runs.is_empty());
    head.pass(5 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn node_that_its_controller_has_agreed_to_wake_works_at_once() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.vanish(11);
    while head.stage("r1") != Stage::Off {
        head.pass(SECOND, &[]);
    }
    head.power(PowerCommand::On { node: name("r1"), by: "root".into() }).expect("it is off");
    assert_eq!(head.answer(&[]), [on("r1")]);
    head.hello("r1", 12, "third", vec![]);
    assert_eq!(head.stage("r1"), Stage::Up, "the later order takes the place of the earlier");
}

#[test]
fn agent_that_is_shutting_down_gets_no_work() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.pass(5 * MINUTE, &["r1"]);
    head.agent_answers(11, Some("it is shutting down"), true);
    head.pass(10 * MINUTE, &["r1"]);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
    // It is asked again when it comes from the same boot on a new connection.
    head.vanish(11);
    head.hello("r1", 12, "second", vec![]);
    head.rests(12, None);
    assert_eq!(head.stage("r1"), Stage::Up, "{}", head.why("r1"));
}

#[test]
fn order_without_an_answer_is_waited_for_whoever_looks() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("nothing runs there");
    assert_eq!(head.answer(&["r1"]), []);
    head.rests(11, None);
    // It waits for its turn at a controller that many share.
    let waits = std::mem::take(&mut head.orders);
    head.power(PowerCommand::Look { node: name("r1") }).expect("it can be switched");
    assert_eq!(head.answer(&["r1"]), [], "nothing is asked before that has an answer");
    head.pass(4 * MINUTE, &["r1"]);
    head.orders = waits;
    assert_eq!(head.answer(&["r1"]), [("r1".to_owned(), PowerVerb::OffGracefully)]);
    assert_eq!(head.pass(4 * MINUTE, &["r1"]), []);
    assert_eq!(head.stage("r1"), Stage::Stopping, "{}", head.why("r1"));
}

#[test]
fn node_that_leaves_the_plan_while_it_is_switched_off_takes_no_work_until_that_is_over() {
    let mut head = three_asleep();
    told_to_shut_down(&mut head, "r1", 11, "second");
    head.plan(plan(&[]));
    let job = head.submit(spec()).expect("accepted");
    assert_eq!((head.stage("r1"), head.state_of(job)), (Stage::Stopping, JobState::Pending));
    head.answer(&["r1"]);
    head.plan(plan(&[("r1", 300)]));
    assert_eq!(head.stage("r1"), Stage::Stopping, "nor when it comes back");
    head.plan(plan(&[]));
    head.pass(5 * MINUTE, &["r1"]);
    assert_eq!(head.state_of(job), JobState::Pending);
    head.rests(11, None);
    assert_eq!(head.state_of(job), JobState::Starting);
    assert!(head.state.power.node(&name("r1")).is_none(), "nothing is left of it");
}

#[test]
fn answers_to_the_head_before_do_not_count() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.power(PowerCommand::Off { node: name("r1"), by: "root".into(), force: false }).expect("nothing runs there");
    assert_eq!(head.answer(&["r1"]), []);
    head.rests(11, None);
    let before: Vec<u64> = std::mem::take(&mut head.orders).into_iter().map(|(_, _, ask)| ask).collect();
    head.restart();
    let now: Vec<u64> = head.orders.iter().map(|(_, _, ask)| *ask).collect();
    assert!(before.iter().all(|ask| !now.contains(ask)), "{before:?} {now:?}");
}

#[test]
fn one_that_is_told_to_shut_down_and_does_not_works_on() {
    let mut head = three_asleep();
    head.hello("r1", 11, "second", vec![]);
    head.pass(10 * MINUTE, &["r1"]);
    head.rests(11, None);
    assert_eq!(head.answer(&["r1"]), [("r1".to_owned(), PowerVerb::OffGracefully)]);
    assert_eq!(head.pass(6 * MINUTE, &["r1"]), [], "never by force unless it is said");
    assert_eq!(head.stage("r1"), Stage::Stopping, "its agent has not said yet that it stays on");
    head.rests(11, None);
    assert_eq!(head.stage("r1"), Stage::Up);
    assert!(head.why("r1").contains("still on"), "{}", head.why("r1"));
    let job = head.submit(spec()).expect("accepted");
    assert_eq!(head.state_of(job), JobState::Starting);
}
