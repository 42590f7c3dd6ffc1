//! One test per rule.

use hostler_gossip::{Counters, Gossip, Incarnation, MemberId, Presence, Refused};
use hostler_model::Timestamp;

use crate::pair::{Nodes, address, key, load, members, started};

#[test]
fn nodes_know_each_other_after_a_round() {
    let mut nodes = Nodes::new(4);
    assert_eq!(nodes.sees(0, 1), Presence::Unheard);
    nodes.round();
    for observer in 0..4 {
        for id in 0..4 {
            let node = nodes.get(observer, id);
            assert_eq!((node.presence, node.is_local), (Presence::Live, observer == id as usize));
            assert_eq!(node.load, Some(&load(4)));
        }
    }
}

#[test]
fn news_take_a_detour_around_a_broken_link() {
    let mut nodes = Nodes::new(3);
    for _ in 0..20 {
        for from in 0..3 {
            let mut sent = nodes.round_of(from);
            // The link between 0 and 1 is cut.
            sent.retain(|datagram| from == 2 || datagram.to == address(2));
            nodes.carry(from, sent);
        }
        nodes.now = nodes.now.plus_ms(1200);
    }
    assert_eq!((nodes.sees(0, 1), nodes.sees(1, 0)), (Presence::Live, Presence::Live));
    assert!(nodes.get(0, 1).load.is_some());
    assert_eq!(nodes.nodes[0].counters().expired, 0);
}

#[test]
fn silent_node_is_noticed_within_seconds_and_returns_at_once() {
    let mut nodes = Nodes::new(3);
    nodes.round();
    let died = nodes.now;
    let gone = nodes.nodes.remove(2);
    while nodes.sees(0, 2) == Presence::Live {
        for from in 0..2 {
            let mut sent = nodes.round_of(from);
            sent.retain(|datagram| datagram.to != address(2));
            nodes.carry(from, sent);
        }
        nodes.now = nodes.now.plus_ms(1000);
        assert!(nodes.now.ms_since(died) < 9000);
    }
    assert_eq!((nodes.sees(0, 2), nodes.sees(1, 2)), (Presence::Silent, Presence::Silent));
    nodes.nodes.push(gone);
    nodes.round();
    assert_eq!(nodes.sees(0, 2), Presence::Live);
}

/// Tries every defect of a datagram. Only counters may change.
#[test]
fn refused_datagrams_change_only_counters() {
    let mut nodes = Nodes::new(2);
    nodes.round();
    let honest = nodes.round_of(1).remove(0).bytes;
    let mut stranger = started(8, 1, nodes.now);
    stranger.set_members(members([0, 8]), nodes.now);
    stranger.publish(load(1));
    let stranger = stranger.round(nodes.now, 1).remove(0).bytes;
    let mut outsider = Gossip::new(MemberId(1), Incarnation(9), key(66), Default::default(), nodes.now);
    outsider.set_members(members([0, 1]), nodes.now);
    outsider.publish(load(1));
    let outsider = outsider.round(nodes.now, 1).remove(0).bytes;
    let before = format!("{:?}", nodes.nodes[0].nodes(nodes.now).collect::<Vec<_>>());
    let (from, elsewhere) = (address(1), address(3));
    let other_port = (from.ip(), 7).into();
    let damaged = |at: usize| {
        let mut bytes = honest.clone();
        bytes[at] ^= 1;
        bytes
    };
    let one = Refused::default();
    let cases = [
        (from, Vec::new(), Refused { malformed: 1, ..one }),
        (from, vec![0; 31], Refused { malformed: 1, ..one }),
        (from, vec![1; 65_000], Refused { malformed: 1, ..one }),
        (from, damaged(0), Refused { malformed: 1, ..one }),
        (elsewhere, honest.clone(), Refused { wrong_address: 1, ..one }),
        (other_port, honest.clone(), Refused { wrong_address: 1, ..one }),
        (from, stranger, Refused { stranger: 1, ..one }),
        (from, outsider, Refused { wrong_tag: 1, ..one }),
        (from, damaged(honest.len() - 1), Refused { wrong_tag: 1, ..one }),
        (from, damaged(honest.len() / 2), Refused { wrong_tag: 1, ..one }),
        (from, honest[..honest.len() - 1].to_vec(), Refused { wrong_tag: 1, ..one }),
    ];
    for (from, bytes, refused) in cases {
        let already = nodes.nodes[0].counters().refused;
        assert!(nodes.nodes[0].receive(from, &bytes, nodes.now).is_empty(), "refused datagrams get no answer");
        let now = nodes.nodes[0].counters().refused;
        assert_eq!(now.total(), already.total() + 1);
        assert_eq!(now.malformed - already.malformed, refused.malformed, "{now:?}");
        assert_eq!(now.stranger - already.stranger, refused.stranger, "{now:?}");
        assert_eq!(now.wrong_address - already.wrong_address, refused.wrong_address, "{now:?}");
        assert_eq!(now.wrong_tag - already.wrong_tag, refused.wrong_tag, "{now:?}");
        assert_eq!(format!("{:?}", nodes.nodes[0].nodes(nodes.now).collect::<Vec<_>>()), before);
    }
    nodes.nodes[0].receive(from, &honest, nodes.now);
    assert_ne!(
        format!("{:?}", nodes.nodes[0].nodes(nodes.now).collect::<Vec<_>>()),
        before,
        "the original datagram is accepted"
    );
}

#[test]
fn repeated_datagram_is_refused() {
    let mut nodes = Nodes::new(2);
    nodes.round();
    let sent = nodes.round_of(1).remove(0).bytes;
    nodes.nodes[0].receive(address(1), &sent, nodes.now);
    let accepted = nodes.nodes[0].counters().accepted;
    // A replay long after the node's death is not a sign of life.
    for _ in 0..10 {
        nodes.now = nodes.now.plus_ms(1000);
        nodes.round_of(0);
        nodes.nodes[0].receive(address(1), &sent, nodes.now);
    }
    let Counters { accepted: now, refused, .. } = nodes.nodes[0].counters();
    assert_eq!((now, refused.repeated), (accepted, 10));
    assert_eq!(nodes.sees(0, 1), Presence::Silent);
}

#[test]
fn datagram_for_one_node_is_refused_by_another() {
    let mut nodes = Nodes::new(3);
    let sent = nodes.round_of(2);
    for datagram in sent {
        let other = if datagram.to == address(0) { 1 } else { 0 };
        assert!(nodes.nodes[other].receive(address(2), &datagram.bytes, nodes.now).is_empty());
        assert_eq!(nodes.nodes[other].counters().refused.wrong_tag, 1);
    }
}

#[test]
fn node_with_a_lost_incarnation_continues_above_it() {
    for forgotten in [1, 5, 9] {
        let mut nodes = Nodes::new(2);
        let restart = |nodes: &mut Nodes, incarnation| {
            nodes.nodes[1] = started(1, incarnation, nodes.now);
            nodes.nodes[1].set_members(members([0, 1]), nodes.now);
        };
        restart(&mut nodes, 9);
        (0..100).for_each(|_| nodes.round());
        assert_eq!(nodes.get(0, 1).version.incarnation, Incarnation(9));
        let before = nodes.get(0, 1).version;
        restart(&mut nodes, forgotten);
        (0..4).for_each(|_| nodes.round());
        assert_eq!(nodes.nodes[1].incarnation(), Incarnation(10), "the lost incarnation was reset to {forgotten}");
        assert!(nodes.get(0, 1).version > before && nodes.sees(0, 1) == Presence::Live);
        assert_eq!(nodes.get(0, 1).load_version, nodes.nodes[1].version());
    }
}

#[test]
fn news_of_strangers_and_removed_members_are_dropped() {
    let mut nodes = Nodes::new(3);
    nodes.round();
    nodes.nodes[0].set_members(members([0, 1]), nodes.now);
    assert!(nodes.nodes[0].get(MemberId(2), nodes.now).is_none());
    nodes.round();
    nodes.round();
    let counters = nodes.nodes[0].counters();
    assert!(counters.about_strangers > 0, "node 1 has forwarded its news");
    assert!(counters.refused.stranger > 0, "node 2 has sent datagrams itself");
    assert_eq!(nodes.nodes[0].nodes(nodes.now).count(), 2);
    nodes.nodes[0].set_members(members([0, 1, 2]), nodes.now);
    nodes.round();
    assert_eq!(nodes.sees(0, 2), Presence::Live, "node 2 is a member again");
}

#[test]
fn node_that_is_not_a_member_sends_and_accepts_nothing() {
    let mut nodes = Nodes::new(2);
    nodes.nodes[0].set_members(members([1]), nodes.now);
    assert!(nodes.round_of(0).is_empty());
    let sent = nodes.round_of(1).remove(0).bytes;
    assert!(nodes.nodes[0].receive(address(1), &sent, nodes.now).is_empty());
    assert_eq!(nodes.nodes[0].counters().refused.stranger, 1);
}

#[test]
fn nodes_communicate_again_when_all_have_the_new_key() {
    let mut nodes = Nodes::new(2);
    nodes.round();
    // Like the agent: a new key starts a new state.
    let take_new_key = |nodes: &mut Nodes, node: usize| {
        let id = MemberId(node as u32);
        nodes.nodes[node] = Gossip::new(id, Incarnation(2), key(8), Default::default(), nodes.now);
        nodes.nodes[node].set_members(members([0, 1]), nodes.now);
    };
    take_new_key(&mut nodes, 0);
    nodes.round();
    assert!(nodes.nodes.iter().all(|node| node.counters().refused.wrong_tag > 0), "the other key is not accepted");
    assert_eq!(nodes.sees(0, 1), Presence::Unheard);
    take_new_key(&mut nodes, 1);
    let refused_before = nodes.nodes[0].counters().refused;
    nodes.round();
    nodes.round();
    assert_eq!(nodes.nodes[0].counters().refused, refused_before);
    assert_eq!(nodes.nodes[1].counters().refused, Refused::default());
    assert_eq!((nodes.sees(0, 1), nodes.sees(1, 0)), (Presence::Live, Presence::Live));
}

#[test]
fn suspended_node_declares_no_one_silent() {
    let mut nodes = Nodes::new(3);
    nodes.round();
    nodes.now = nodes.now.plus_ms(3_600_000);
    nodes.round_of(0);
    assert_eq!((nodes.sees(0, 1), nodes.sees(0, 2)), (Presence::Live, Presence::Live));
    let counters = nodes.nodes[0].counters();
    assert!(counters.expired == 0 && counters.away_ms > 3_500_000, "{counters:?}");
    // It needs the usual time to notice that they have disappeared meanwhile.
    for _ in 0..8 {
        nodes.now = nodes.now.plus_ms(1000);
        nodes.round_of(0);
    }
    assert_eq!((nodes.sees(0, 1), nodes.sees(0, 2)), (Presence::Silent, Presence::Silent));
}

#[test]
fn node_publishes_nothing_before_its_first_measurement() {
    let now = Timestamp(0);
    let mut node = started(0, 1, now);
    node.set_members(members([0, 1]), now);
    assert_eq!(node.round(now, 1).len(), 1, "a sign of life");
    assert_eq!(node.version().seq, 0);
    node.publish(load(1));
    node.round(now.plus_ms(1000), 1);
    assert_eq!(node.version().seq, 1);
}

#[test]
fn flood_of_questions_is_answered_within_the_budget() {
    let mut nodes = Nodes::new(2);
    nodes.round();
    let mut sent_bytes = 0;
    for _ in 0..500 {
        // Node 1 restarts each time without knowledge, so it asks for everything.
        nodes.nodes[1] = started(1, nodes.nodes[1].incarnation().0 + 1, nodes.now);
        nodes.nodes[1].set_members(members([0, 1]), nodes.now);
        for _ in 0..2 {
            let sent = nodes.round_of(1);
            for datagram in sent {
                let answers = nodes.nodes[0].receive(address(1), &datagram.bytes, nodes.now);
                sent_bytes += answers.iter().map(|answer| answer.bytes.len() + 48).sum::<usize>();
            }
        }
    }
    assert!(sent_bytes <= (32 << 10) / 5, "{sent_bytes} bytes of answers at once");
}

#[test]
fn table_of_4000_members_is_small_and_fits_the_budget() {
    let mut now = Timestamp(0);
    let mut node = started(0, 1, now);
    node.set_members(members(0..4000), now);
    let mut speakers: Vec<_> = (1..4000).map(|id| started(id, 1, now)).collect();
    for (id, speaker) in (1..4000).zip(&mut speakers) {
        speaker.set_members(members([0, id]), now);
        speaker.publish(load(64));
    }
    let bytes_of = |sent: &[hostler_gossip::Datagram]| sent.iter().map(|one| one.bytes.len() + 48).sum::<usize>();
    let mut in_seconds = Vec::new();
    for second in 0..10 {
        node.publish(load(64));
        let mut bytes = bytes_of(&node.round(now, second));
        // All members send within this second, far more often than usual, and first ask about the node itself.
        for (id, speaker) in (1..4000).zip(&mut speakers) {
            for datagram in speaker.round(now, 1) {
                bytes += bytes_of(&node.receive(address(id), &datagram.bytes, now));
            }
        }
        in_seconds.push(bytes);
        now = now.plus_ms(1000);
    }
    assert!(node.nodes(now).all(|node| node.presence == Presence::Live && node.load.is_some()));
    assert!(in_seconds[1..].iter().all(|bytes| *bytes > 16 << 10), "the budget is used: {in_seconds:?}");
    assert!(in_seconds.iter().all(|bytes| *bytes <= 32 << 10), "the budget is kept: {in_seconds:?}");
    assert!(node.memory_bytes() < 2 << 20, "{} bytes", node.memory_bytes());
}
