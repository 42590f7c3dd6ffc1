//! Tests that execute steps on a simulated machine: they lead to the wanted state, and back to the original state.

use proptest::prelude::*;

use super::*;
use crate::description::{Description, EXAMPLE};
use crate::setup::Setup;
use crate::vpn_state::ObservedVpn;
use crate::vpn_state::Peer;

/// Executes a step on a simulated machine.
fn carry_out(step: &Step, machine: &mut Observed, wanted: &Wanted) {
    match step {
        Step::StopDnsmasq => machine.dnsmasq = None,
        Step::StartDnsmasq { configuration } => machine.dnsmasq = Some(configuration.clone()),
        Step::CreateVpn => {
            machine.vpn = Some(ObservedVpn { public_key: None, port: 0, peers: Vec::new() });
            machine.interfaces.insert(VPN_INTERFACE.to_owned(), ObservedInterface::default());
        }
        Step::ConfigureVpn { port } => {
            let wanted = wanted.vpn.as_ref().expect("only a wanted VPN is configured");
            let peer = |(key, address): (&PublicKey, &Ipv4Addr)| Peer {
                public_key: *key,
                address: Some(*address),
                endpoint: None,
                handshake_secs: None,
                received_bytes: 0,
                sent_bytes: 0,
            };
            let peers = wanted.peers.iter().map(peer).collect();
            machine.vpn = Some(ObservedVpn { public_key: wanted.public_key, port: *port, peers });
        }
        Step::RemoveVpn => {
            machine.vpn = None;
            machine.interfaces.remove(VPN_INTERFACE);
        }
        Step::LoadTable { text } => machine.table = Some(format!("listed {text}")),
        Step::DropTable => machine.table = None,
        Step::Link { interface, up } => at(machine, interface).up = *up,
        Step::AddAddress { interface, address } => at(machine, interface).addresses.push(*address),
        Step::RemoveAddress { interface, address } => at(machine, interface).addresses.retain(|other| other != address),
        Step::Forwarding { interface, on } => {
            if *on {
                assert!(machine.table.is_some(), "rules must be loaded before forwarding is enabled");
            }
            at(machine, interface).forwarding = *on;
        }
    }
}

fn at<'a>(machine: &'a mut Observed, name: &str) -> &'a mut ObservedInterface {
    machine.interfaces.get_mut(name).unwrap_or_else(|| panic!("{name} does not exist yet"))
}

fn wanted(text: &str) -> Wanted {
    let setup = Setup::of(&Description::parse(text).expect("a description"));
    let key = crate::keys::PrivateKey::from_bytes([1; 32]).public();
    let vpn = setup.vpn.map(|vpn| WantedVpn {
        port: vpn.port,
        public_key: Some(key),
        peers: BTreeMap::from([(key, [10, 44, 0, 2].into())]),
    });
    let table = WantedTable { listing: Some(format!("listed {}", setup.table)), text: setup.table };
    Wanted { interfaces: setup.interfaces, table: Some(table), dnsmasq: Some(setup.dnsmasq), vpn }
}

fn machine(up: [bool; 4], forwarding: [bool; 4], own: bool) -> Observed {
    let names = ["enp1s0", "enp2s0", "enp3s0", "docker0"];
    let interface = |number: usize| {
        // An address that the gateway would add may already exist.
        let address = if number == 1 && own {
            "10.42.0.1/24"
        } else {
            ["192.0.2.7/24", "10.9.0.1/16", "10.8.0.1/16", "172.17.0.1/16"][number]
        };
        ObservedInterface {
            up: up[number],
            forwarding: forwarding[number],
            addresses: vec![address.parse().expect("an address")],
        }
    };
    let interfaces = (0..4).map(|number| (names[number].to_owned(), interface(number))).collect();
    Observed { interfaces, ..Observed::default() }
}

/// Descriptions that affect different parts of the machine.
fn texts() -> [String; 4] {
    let without_vpn = EXAMPLE.split("# VPN access").next().expect("the part before the VPN").to_owned();
    [
        EXAMPLE.to_owned(),
        without_vpn,
        EXAMPLE.replace("10.42.0.", "10.45.0.").replace("outside = true", "outside = false"),
        EXAMPLE.replace("enp3s0", "enp2s0").replace("51820", "51821"),
    ]
}

#[test]
fn steps_are_not_repeated() {
    let wanted = wanted(EXAMPLE);
    let (mut machine, mut found) = (machine([true; 4], [false; 4], false), OriginalState::default());
    assert!(found.note(&wanted.interfaces, &machine));
    let first = steps(&wanted, &machine, &found);
    assert_eq!(first.first(), Some(&Step::CreateVpn), "{first:?}");
    first.iter().for_each(|step| carry_out(step, &mut machine, &wanted));
    assert!(!found.note(&wanted.interfaces, &machine));
    assert_eq!(steps(&wanted, &machine, &found), []);
    machine.table = Some("changed by hand".to_owned());
    let text = wanted.table.clone().expect("the wanted state has a table").text;
    assert_eq!(steps(&wanted, &machine, &found), [Step::LoadTable { text }]);
}

#[test]
fn machine_that_became_a_router_stays_one() {
    let wanted = wanted(EXAMPLE);
    let (mut machine, mut found) = (machine([true; 4], [false; 4], false), OriginalState::default());
    found.note(&wanted.interfaces, &machine);
    let first = steps(&wanted, &machine, &found);
    first.iter().for_each(|step| carry_out(step, &mut machine, &wanted));
    machine.is_router = true;
    machine.interfaces.values_mut().for_each(|interface| interface.forwarding = true);
    let last = steps(&Wanted::default(), &machine, &found);
    assert!(!last.iter().any(|step| matches!(step, Step::Forwarding { .. })), "{last:?}");
}

proptest! {
    /// For any sequence of changes, each interrupted at any step, removal restores the original state.
    #[test]
    fn removal_restores_the_original_state(
        up: [bool; 4], forwarding: [bool; 4], own: bool,
        applied in proptest::collection::vec((0_usize..4, 0_usize..20), 0..5),
    ) {
        let before = machine(up, forwarding, own);
        let (mut machine, mut found) = (before.clone(), OriginalState::default());
        for (which, survives) in applied {
            let wanted = wanted(&texts()[which]);
            found.note(&wanted.interfaces, &machine);
            let todo = steps(&wanted, &machine, &found);
            todo.iter().take(survives).for_each(|step| carry_out(step, &mut machine, &wanted));
            if survives >= todo.len() {
                prop_assert_eq!(steps(&wanted, &machine, &found), vec![], "no steps are left");
            }
        }
        let nothing = Wanted::default();
        for step in steps(&nothing, &machine, &found) {
            carry_out(&step, &mut machine, &nothing);
        }
        prop_assert_eq!(machine, before);
    }
}
