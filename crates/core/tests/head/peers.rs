//! Gossip peers: which nodes gossip, and how they learn of each other.

use hostler_core::head::{Command, Replaces};
use hostler_model::{CpuSet, Hardware, NodeState, Resources};
use hostler_proto::link::HeadMessage;

use super::harness::{Head, name};

/// Sends the hello of an agent that gossips at this port.
fn hello(head: &mut Head, node: &str, connection: u64, port: Option<u16>) {
    head.gossip_at = port.map(|port| ([0, 0, 0, 0], port).into());
    let machine = (Resources::new(CpuSet::first(2), 1 << 30), Hardware::default());
    head.hello_of(node, connection, "boot", Vec::new(), machine);
}

/// The connections that got a notification of changed peers.
fn told(head: &mut Head) -> Vec<u64> {
    let sent = head.sent_to().into_iter();
    sent.filter(|(_, message)| matches!(message, HeadMessage::PeersChanged)).map(|(connection, _)| connection).collect()
}

fn addresses(head: &Head) -> Vec<String> {
    head.state.nodes().filter_map(|node| Some(format!("{} {}", node.name, node.gossip_address()?))).collect()
}

#[test]
fn change_of_peers_is_notified_once() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    hello(&mut head, "n2", 2, Some(8));
    hello(&mut head, "old", 3, None);
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7", "n2 192.0.2.7:8"]);
    assert!(told(&mut head).is_empty(), "the head waits for further changes before it notifies");
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [1, 2], "one notification for both changes, only to agents that gossip");
    head.pass_ms(1_500);
    assert!(told(&mut head).is_empty());

    // Repeating the same hello changes nothing; another port does.
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
fn removed_node_is_no_longer_a_peer() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    hello(&mut head, "n2", 2, Some(8));
    head.pass_ms(1_500);
    told(&mut head);
    head.command(&Command::RemoveNode { node: name("n2"), by: "ada".to_owned() }).expect("accepted");
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7"]);
    assert_eq!(head.state.expelled, 1, "the shared key changes");
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [1]);
    assert_eq!(head.node_state("n1"), NodeState::Up);
}

#[test]
fn machine_that_replaces_a_node_changes_the_shared_key() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    let join = |key| Command::Join {
        node: name("n1"),
        key: hostler_model::Digest([key; 32]),
        life_ms: 1 << 40,
        replaces: Replaces::Any,
    };
    head.command(&join(1)).expect("a repeated join is accepted");
    assert_eq!(head.state.expelled, 0);
    head.command(&join(2)).expect("the name is invited");
    assert_eq!(head.state.expelled, 1);
}

#[test]
fn configured_gossip_address_is_passed_on() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    head.gossip_at = Some(([10, 0, 0, 5], 9).into());
    head.hello_of("n1", 2, "boot", Vec::new(), (Resources::new(CpuSet::first(2), 1 << 30), Hardware::default()));
    assert_eq!(addresses(&head), ["n1 10.0.0.5:9"]);
    head.pass_ms(1_500);
    assert_eq!(told(&mut head), [2]);
}

#[test]
fn restarted_head_knows_the_gossip_addresses() {
    let mut head = Head::new();
    hello(&mut head, "n1", 1, Some(7));
    head.restart();
    assert_eq!(addresses(&head), ["n1 192.0.2.7:7"]);
}
