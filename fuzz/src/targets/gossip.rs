//! Datagrams of the load gossip, from members and strangers.

use hostler_gossip::fuzzing;

use crate::Target;

pub(crate) const TARGET: Target = Target { name: "gossip", about: "datagrams of the load gossip", run, seeds };

fn run(bytes: &[u8]) {
    fuzzing::datagram(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    fuzzing::honest_bodies()
}
