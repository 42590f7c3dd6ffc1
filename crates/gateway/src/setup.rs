//! All that is to be set on the machine, as one value: it is shown before it is made so, compared with what is, stored, and gone back to.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::description::{Description, Reach};
use crate::render;
use crate::subnet::{InterfaceAddress, Subnet};

/// The interface of the VPN on this machine.
pub const VPN_INTERFACE: &str = "hostler-vpn";

/// The name of our table of packet rules; its family is `inet`.
pub const TABLE: &str = "hostler_gateway";

/// What is to be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The interfaces that take part, that of the VPN included.
    pub interfaces: Vec<InterfaceSetup>,
    /// Our table, as `nft` reads it.
    pub table: String,
    /// The configuration of our dnsmasq.
    pub dnsmasq: String,
    /// The VPN.
    pub vpn: Option<VpnSetup>,
}

/// What is to be set on one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSetup {
    /// Its name.
    pub name: String,
    /// Addresses that it has besides those of others; with any, the link is up.
    pub addresses: Vec<InterfaceAddress>,
    /// Whether what comes in there may be forwarded.
    pub forwarding: bool,
}

/// The VPN, without keys and clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VpnSetup {
    /// This machine's address in it.
    pub address: InterfaceAddress,
    /// The UDP port at which it listens.
    pub port: u16,
    /// Where clients find it, with the port.
    pub endpoint: String,
    /// The subnets that clients send through it.
    pub routes: Vec<Subnet>,
    /// Who answers clients' questions for names, if they may ask.
    pub names: Option<Ipv4Addr>,
    /// The domain of the nodes' names.
    pub domain: String,
}

impl Setup {
    /// What makes a description true.
    #[must_use]
    pub fn of(description: &Description) -> Self {
        Self {
            interfaces: interfaces(description),
            table: render::table(description),
            dnsmasq: render::dnsmasq(description),
            vpn: description.vpn.as_ref().map(|_| vpn(description)),
        }
    }

    /// The same as texts for people, each with its name. No secret is in them.
    #[must_use]
    pub fn documents(&self) -> [(&'static str, String); 4] {
        [
            ("interfaces", self.interfaces.iter().map(InterfaceSetup::line).collect()),
            ("nftables", self.table.clone()),
            ("dnsmasq", self.dnsmasq.clone()),
            ("wireguard", self.vpn.as_ref().map(VpnSetup::text).unwrap_or_default()),
        ]
    }
}

impl InterfaceSetup {
    fn line(&self) -> String {
        let mut line = self.name.clone();
        for address in &self.addresses {
            line.push_str(&format!(" {address}"));
        }
        if self.forwarding {
            line.push_str(" forwarding");
        }
        line.push('\n');
        line
    }
}

impl VpnSetup {
    fn text(&self) -> String {
        let routes: Vec<String> = self.routes.iter().map(ToString::to_string).collect();
        let names =
            self.names.map(|server| format!("names from {server}, domain {}\n", self.domain)).unwrap_or_default();
        format!(
            "{VPN_INTERFACE} {} port {}\nclients find it at {}\nclients reach {}\n{names}",
            self.address,
            self.port,
            self.endpoint,
            routes.join(", ")
        )
    }
}

/// Forwarding is set for each interface rather than for the machine: that would make it a router between all its networks, and would
/// reset other settings of theirs. It counts where a packet comes in, so replies need it on the outer interface.
fn interfaces(description: &Description) -> Vec<InterfaceSetup> {
    let vpn_forwards = description.vpn.as_ref().is_some_and(|vpn| vpn.reach.iter().any(|reach| *reach != Reach::Head));
    let vpn_to = |what| description.vpn.as_ref().is_some_and(|vpn| vpn.reaches(what));
    let vpn_outside = description
        .vpn
        .as_ref()
        .is_some_and(|vpn| vpn.reach.iter().any(|reach| matches!(reach, Reach::Outside | Reach::Subnet(_))));
    let mut all = vec![
        InterfaceSetup {
            name: description.outer.clone(),
            addresses: Vec::new(),
            forwarding: description.nodes.outside || vpn_outside,
        },
        InterfaceSetup {
            name: description.nodes.interface.clone(),
            addresses: vec![description.nodes.address],
            forwarding: description.nodes.outside || vpn_to(Reach::Nodes),
        },
    ];
    match &description.management {
        Some(management) if description.shares_a_wire() => all[1].addresses.push(management.address),
        Some(management) => all.push(InterfaceSetup {
            name: management.interface.clone(),
            addresses: vec![management.address],
            forwarding: vpn_to(Reach::Management),
        }),
        None => {}
    }
    if let Some(vpn) = &description.vpn {
        let addresses = vec![vpn.address];
        all.push(InterfaceSetup { name: VPN_INTERFACE.to_owned(), addresses, forwarding: vpn_forwards });
    }
    // An interface that only would have forwarding, and has not, is none of our business.
    all.retain(|interface| interface.forwarding || !interface.addresses.is_empty());
    all
}

fn vpn(description: &Description) -> VpnSetup {
    let vpn = description.vpn.as_ref().expect("the caller has seen it");
    let mut routes = vec![vpn.address.subnet()];
    let management = description.management.as_ref().map(|management| management.address.subnet());
    for reach in &vpn.reach {
        match reach {
            Reach::Head => {}
            Reach::Nodes => routes.push(description.nodes.address.subnet()),
            Reach::Management => routes.extend(management),
            // Everything, the other routes included.
            Reach::Outside => routes = vec![Subnet::around(Ipv4Addr::UNSPECIFIED, 0)],
            Reach::Subnet(subnet) => routes.push(*subnet),
        }
        if routes.first().is_some_and(|route| route.prefix() == 0) {
            routes.truncate(1);
            break;
        }
    }
    let (host, port) = &vpn.endpoint;
    // Names are answered at the address in the node network, which only those who reach that can ask.
    let names = vpn.reaches(Reach::Nodes).then_some(description.nodes.address.address);
    VpnSetup {
        address: vpn.address,
        port: vpn.port,
        endpoint: format!("{host}:{port}"),
        routes,
        names,
        domain: description.nodes.domain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::EXAMPLE;

    fn setup(text: &str) -> Setup {
        Setup::of(&Description::parse(text).expect("a description"))
    }

    #[test]
    fn only_interfaces_that_forward_do() {
        let lines = setup(EXAMPLE).documents()[0].1.clone();
        let expected = "enp1s0 forwarding\nenp2s0 10.42.0.1/24 forwarding\nenp3s0 10.43.0.1/24\nhostler-vpn 10.44.0.1/24 forwarding\n";
        assert_eq!(lines, expected);
        let closed =
            EXAMPLE.replace("outside = true", "outside = false").replace("[\"head\", \"nodes\"]", "[\"head\"]");
        let expected = "enp2s0 10.42.0.1/24\nenp3s0 10.43.0.1/24\nhostler-vpn 10.44.0.1/24\n";
        assert_eq!(setup(&closed).documents()[0].1, expected);
        let one_wire = EXAMPLE.replace("enp3s0", "enp2s0");
        assert!(setup(&one_wire).documents()[0].1.contains("enp2s0 10.42.0.1/24 10.43.0.1/24 forwarding\n"));
    }

    #[test]
    fn clients_send_what_they_may_reach() {
        let routes = |reach: &str| {
            let setup = setup(&EXAMPLE.replace("[\"head\", \"nodes\"]", reach));
            setup.vpn.expect("a VPN").routes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(routes("[\"head\"]"), ["10.44.0.0/24"]);
        assert_eq!(routes("[\"nodes\", \"192.168.7.0/24\"]"), ["10.44.0.0/24", "10.42.0.0/24", "192.168.7.0/24"]);
        assert_eq!(routes("[\"management\", \"outside\", \"nodes\"]"), ["0.0.0.0/0"]);
    }

    #[test]
    fn a_setup_is_read_as_it_was_written() {
        let setup = setup(EXAMPLE);
        let text = serde_json::to_string(&setup).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Setup>(&text).expect("it was ours"), setup);
    }
}
