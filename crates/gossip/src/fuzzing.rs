//! Entry points for the fuzz targets. Not part of the product.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_model::Timestamp;

use crate::wire::{Header, Item, Packer, Standing, items};
use crate::{Gossip, Incarnation, Key, Load, Member, MemberId, Members, Settings, Version};

const NOW: Timestamp = Timestamp(1_000_000);

/// Decodes bytes in four ways: as sections, as a load, as a datagram of a stranger, and as sections of a datagram from
/// a member. Returns the number of decoded items.
///
/// # Panics
/// When an item changes in a round trip of encoding and decoding, or when a node exceeds its budget for answers.
pub fn datagram(bytes: &[u8]) -> usize {
    let read: Vec<_> = items(bytes).map_while(Result::ok).collect();
    let mut packer = Packer::default();
    read.iter().for_each(|item| packer.push(item));
    let written = packer.finish();
    let again: Vec<_> = written.iter().flat_map(|body| items(body).map(|item| item.expect("just written"))).collect();
    assert_eq!(again, read);
    if let Ok(load) = Load::decode(bytes) {
        assert_eq!(Load::decode(&load.encode()), Ok(load));
    }
    let mut node = node(0);
    let peer = members().get(MemberId(1)).expect("node 1 is a member").address;
    assert!(node.receive(peer, bytes, NOW).is_empty());
    let mut whole = Header { sender: MemberId(1), incarnation: Incarnation(1), counter: 1 }.write();
    whole.extend_from_slice(bytes);
    key().seal(MemberId(0), &mut whole);
    let answers = node.receive(peer, &whole, NOW);
    assert!(answers.iter().map(|answer| answer.bytes.len() + 48).sum::<usize>() <= (32 << 10) / 5);
    node.round(NOW, 1);
    node.round(NOW.plus_ms(10_000), 1);
    assert!(node.nodes(NOW).count() == 4);
    read.len()
}

/// Returns valid datagram bodies, with news and questions of a node that knows other nodes.
#[must_use]
pub fn honest_bodies() -> Vec<Vec<u8>> {
    let version = |seq| Version { incarnation: Incarnation(3), seq };
    let load = Load::idle(8, 16 << 10, ([10, 0, 0, 1], 7707).into()).encode();
    let all = [
        Item::Beat { id: MemberId(1), version: version(70), standing: Standing::News },
        Item::Beat { id: MemberId(2), version: version(1 << 40), standing: Standing::Old },
        Item::Load { id: MemberId(2), version: version(9), standing: Standing::Answer, load: &load },
        Item::ExecRequest { id: MemberId(0), known: version(1) },
        Item::Want { id: MemberId(3), known: Version::default() },
    ];
    let mut bodies: Vec<_> = all.iter().map(std::slice::from_ref).chain([&all[..]]).map(pack).collect();
    bodies.push(load);
    bodies
}

fn pack(items: &[Item<'_>]) -> Vec<u8> {
    let mut packer = Packer::default();
    items.iter().for_each(|item| packer.push(item));
    packer.finish().remove(0)
}

fn node(id: u32) -> Gossip {
    let mut node = Gossip::new(MemberId(id), Incarnation(1), key(), Settings::default(), NOW);
    node.set_members(Arc::new(members()), NOW);
    node.publish(Load::idle(8, 16 << 10, ([10, 0, 0, 1], 7707).into()));
    node
}

fn key() -> Key {
    Key::new(&[1; 32])
}

fn members() -> Members {
    let member = |id| Member {
        id: MemberId(id),
        name: format!("n{id}").parse().expect("a name"),
        address: ([10, 0, 0, id as u8], 7706).into(),
        features: BTreeSet::new(),
    };
    Members::new((0..4).map(member))
}

#[cfg(test)]
mod tests {
    #[test]
    fn well_formed_and_damaged_bodies_are_handled() {
        for body in super::honest_bodies() {
            assert!(super::datagram(&body) > 0 || body.len() < 40);
            for at in 0..body.len() {
                super::datagram(&body[..at]);
                for flip in [1, 0x81, 0xFF] {
                    let mut damaged = body.clone();
                    damaged[at] ^= flip;
                    super::datagram(&damaged);
                }
            }
        }
    }
}
