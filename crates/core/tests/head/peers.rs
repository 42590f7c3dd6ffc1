//! Which nodes gossip, and that they are told of each other.

use hostler_core::head::Command;
use hostler_model::{CpuSet, Hardware, NodeState, Resources};
use hostler_proto::link::HeadMessage;

use super::harness::{Head, name};

/// An agent with this port says hello.
fn hello(head: &mut Head, node: &str, connection: u64, port: Option<u16>) {
    head.gossip_at = port.map(|port| ([0, 0, 0, 0], port).into());
    let machine = (Resources::new(CpuSet::first(2), 1 << 30), Hardware::default());
    head.hello_of(node, connection, "boot", Vec::new(), machine);
}

/// The connections that were told that the peers have changed.
fn told(head: &mut Head) -> Vec<u64> {
    let sent = head.sent_to().into_iter();
    sent.filter(|(_, message)| matches!(message, HeadMessage::PeersChanged)).map(|(connection, _)| connection).collect()
}

fn addresses(head: &Head) -> Vec<String> {
    head.state.nodes().filter_map(|node| Some(format!("{} {}", node.name, node.gossip_address()?))).collect()
}

#[test]
fn a_change_is_told_once_to_all_that_gossip() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    hello(&mut head, "n2", 2, Some(8));
    hello(&mut head, "old", 3, None);
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7", "n2 192.0.2.7:8"]);
    assert!(told(&mut head).is_empty(), "more may come");
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [1, 2], "once for both, and not to a release that does not know the words");
    head.pass_ms(1_500);
    assert!(told(&mut head).is_empty());

    // The same hello again changes nothing; another port does.
    hello(&mut head, "n1", 4, Some(7));
    head.pass_ms(1_500);
    assert!(told(&mut head).is_empty());
    hello(&mut head, "n1", 5, Some(9));
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [5, 2]);
    hello(&mut head, "n1", 6, None);
    head.pass_ms(1_500);
    assert_eq!((told(&mut head), addresses(&head)), (vec![2], vec!["n2 192.0.2.7:8".to_owned()]));
}

#[test]
fn who_is_removed_is_gone_for_the_others() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    hello(&mut head, "n2", 2, Some(8));
    head.pass_ms(1_500);
    told(&mut head);
    head.command(&Command::RemoveNode { node: name("n2"), by: "ada".to_owned() }).expect("it is there");
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7"]);
    assert_eq!(head.state.expelled, 1, "what they share is another now");
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [1]);
    assert_eq!(head.node_state("n1"), NodeState::Up);
}

#[test]
fn a_machine_that_takes_a_name_over_takes_no_secret_over() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    let join = |key| Command::Join {
        node: name("n1"),
        key: hostler_model::Digest([key; 32]),
        life_ms: 1 << 40,
        may_replace: true,
    };
    head.command(&join(1)).expect("the same key again");
    assert_eq!(head.state.expelled, 0);
    head.command(&join(2)).expect("it is invited by its name");
    assert_eq!(head.state.expelled, 1);
}

#[test]
fn an_address_of_its_own_choice_and_new_features_are_passed_on() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    head.gossip_at = Some(([10, 0, 0, 5], 9).into());
    head.hello_of("n1", 2, "boot", Vec::new(), (Resources::new(CpuSet::first(2), 1 << 30), Hardware::default()));
    assert_eq!(addresses(&head), ["n1 10.0.0.5:9"]);
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [2]);
}

#[test]
fn a_restarted_head_knows_where_they_gossip() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    head.restart();
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7"]);
}
