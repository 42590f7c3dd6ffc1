//! Conversions between the gossip's types and the API's load views.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hostler_gossip::{Load, Node, Presence, Pressure};
use hostler_proto::peers::{LoadView, NodeLoad, NodePresence};

pub(super) fn view(node: Node<'_>) -> NodeLoad {
    let of_load = |load: &Load| LoadView {
        age_ms: node.load_age_ms,
        average: load.average,
        recent: load.recent,
        runnable: load.runnable,
        cpus: load.cpus,
        cpus_unallocated: load.unallocated_cpus,
        memory_bytes: u64::from(load.memory_mib) << 20,
        memory_free_bytes: u64::from(load.free_memory_mib) << 20,
        memory_unallocated_bytes: Some(u64::from(load.unallocated_memory_mib) << 20),
        cpu_pressure: load.pressure.cpu,
        memory_pressure: load.pressure.memory,
        io_pressure: load.pressure.io,
        load_weight: load.load_weight,
        memory_weight: load.memory_weight,
        accepts: load.accepts,
    };
    NodeLoad {
        name: node.member.name.clone(),
        presence: match node.presence {
            Presence::Live => NodePresence::Live,
            Presence::Silent => NodePresence::Gone,
            Presence::Unheard => NodePresence::Unheard,
        },
        silent_ms: node.silent_ms,
        load: node.load.map(of_load),
    }
}

pub(super) const fn presence(of: NodePresence) -> Presence {
    match of {
        NodePresence::Live => Presence::Live,
        NodePresence::Gone => Presence::Silent,
        NodePresence::Unheard => Presence::Unheard,
    }
}

/// The load of a view; fields that a view does not contain get neutral values.
pub(super) fn load(view: &LoadView) -> Load {
    let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    let nowhere = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    Load {
        average: view.average,
        recent: view.recent,
        runnable: view.runnable,
        free_memory_mib: mib(view.memory_free_bytes),
        pressure: Pressure { cpu: view.cpu_pressure, memory: view.memory_pressure, io: view.io_pressure },
        unallocated_cpus: view.cpus_unallocated,
        unallocated_memory_mib: mib(view.memory_unallocated_bytes.unwrap_or(view.memory_bytes)),
        load_weight: view.load_weight,
        memory_weight: view.memory_weight,
        accepts: view.accepts,
        ..Load::idle(view.cpus, mib(view.memory_bytes), nowhere)
    }
}

#[cfg(test)]
mod tests {
    use hostler_gossip::{Member, MemberId, Version};

    use super::*;

    #[test]
    fn load_survives_conversion_to_a_view_and_back() {
        let nowhere = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let told = Load {
            average: 1,
            recent: 2,
            runnable: 3,
            free_memory_mib: 4,
            pressure: Pressure { cpu: Some(5), memory: None, io: Some(6) },
            unallocated_cpus: 7,
            unallocated_memory_mib: 8,
            load_weight: 9,
            memory_weight: 10,
            accepts: false,
            ..Load::idle(11, 12, nowhere)
        };
        let member = Member {
            id: MemberId(1),
            name: "n1".parse().expect("a name"),
            address: nowhere,
            features: Default::default(),
        };
        let node = Node {
            member: &member,
            presence: Presence::Silent,
            is_local: false,
            version: Version::default(),
            load: Some(&told),
            load_version: Version::default(),
            silent_ms: 13,
            load_age_ms: 14,
        };
        let seen = view(node);
        assert_eq!(presence(seen.presence), Presence::Silent);
        assert_eq!(seen.load.as_ref().map(load), Some(told));
    }
}
