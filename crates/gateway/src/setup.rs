//! All settings for the machine, as one value that can be shown, compared, stored and restored.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::description::{Description, Reach};
use crate::names::VPN_INTERFACE;
use crate::render;
use crate::subnet::{InterfaceAddress, Subnet};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The interfaces of the gateway, including the VPN interface.
    pub interfaces: Vec<InterfaceSetup>,
    /// The gateway's table, as input for `nft`.
    pub table: String,
    /// The configuration of the gateway's dnsmasq.
    pub dnsmasq: String,
    pub vpn: Option<VpnSetup>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSetup {
    pub name: String,
    /// Addresses to add. If there are any, the link is set up.
    pub addresses: Vec<InterfaceAddress>,
    pub forwarding: bool,
}

/// Settings of the VPN, without keys and clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VpnSetup {
    /// This machine's address in the VPN.
    pub address: InterfaceAddress,
    /// UDP port of the server.
    pub port: u16,
    /// Host and port that clients connect to.
    pub endpoint: String,
    /// Subnets that clients route through the VPN.
    pub routes: Vec<Subnet>,
    /// DNS server for clients; `None` if clients cannot reach the nodes' network, in which it listens.
    pub names: Option<Ipv4Addr>,
    /// The domain of the nodes' names.
    pub domain: String,
}

impl Setup {
    /// Renders a description.
    #[must_use]
    pub fn of(description: &Description) -> Self {
        Self {
            interfaces: interfaces(description),
            table: render::table(description),
            dnsmasq: render::dnsmasq(description),
            vpn: description.vpn.as_ref().map(|_| vpn(description)),
        }
    }

    /// The setup as named texts for display, without secrets.
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
            "{VPN_INTERFACE} {} port {}\nclients connect to {}\nclients reach {}\n{names}",
            self.address,
            self.port,
            self.endpoint,
            routes.join(", ")
        )
    }
}

/// The wanted settings of the interfaces. Forwarding is set per interface, because setting it for the machine would
/// connect all networks and reset other settings. An interface forwards the packets that it receives, so the outer
/// interface must forward too: it receives the replies.
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
        Some(management) if description.shares_segment() => all[1].addresses.push(management.address),
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
    // Skip the outer interface if it does not need forwarding.
    all.retain(|interface| interface.forwarding || !interface.addresses.is_empty());
    all
}

fn vpn(description: &Description) -> VpnSetup {
    let vpn = description.vpn.as_ref().expect("the caller has checked that there is a VPN");
    let mut routes = vec![vpn.address.subnet()];
    let management = description.management.as_ref().map(|management| management.address.subnet());
    for reach in &vpn.reach {
        match reach {
            Reach::Head => {}
            Reach::Nodes => routes.push(description.nodes.address.subnet()),
            Reach::Management => routes.extend(management),
            // The default route includes all other routes.
            Reach::Outside => routes = vec![Subnet::around(Ipv4Addr::UNSPECIFIED, 0)],
            Reach::Subnet(subnet) => routes.push(*subnet),
        }
        if routes.first().is_some_and(|route| route.prefix() == 0) {
            routes.truncate(1);
            break;
        }
    }
    let (host, port) = &vpn.endpoint;
    // The DNS server listens on the address in the nodes' network, so only clients that reach this network can use it.
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
    fn forwarding_is_set_only_where_needed() {
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
    fn client_routes_match_the_allowed_destinations() {
        let routes = |reach: &str| {
            let setup = setup(&EXAMPLE.replace("[\"head\", \"nodes\"]", reach));
            setup.vpn.expect("a VPN").routes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(routes("[\"head\"]"), ["10.44.0.0/24"]);
        assert_eq!(routes("[\"nodes\", \"192.168.7.0/24\"]"), ["10.44.0.0/24", "10.42.0.0/24", "192.168.7.0/24"]);
        assert_eq!(routes("[\"management\", \"outside\", \"nodes\"]"), ["0.0.0.0/0"]);
    }

    #[test]
    fn setup_round_trips_through_json() {
        let setup = setup(EXAMPLE);
        let text = serde_json::to_string(&setup).expect("a setup can be serialized");
        assert_eq!(serde_json::from_str::<Setup>(&text).expect("valid"), setup);
    }
}
