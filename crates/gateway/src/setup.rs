//! What a description means for the machine: files, and the commands that load them.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::changes::{self, Change};
use crate::description::{Description, Reach};
use crate::mistake::Mistake;
use crate::names::VPN_INTERFACE;
use crate::render;
use crate::subnet::{InterfaceAddress, Subnet};

/// Names of the files, in the order in which `plan` shows them.
pub(crate) const DESCRIPTION: &str = "gateway.toml";
pub(crate) const TABLE_FILE: &str = "table.nft";
pub(crate) const DNSMASQ_FILE: &str = "dnsmasq.conf";

/// A valid description and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    pub description: Description,
    text: String,
}

/// Settings of one interface.
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Addresses to add. If there are any, the link is set up.
    pub(crate) addresses: Vec<InterfaceAddress>,
    pub(crate) forwarding: bool,
}

impl Setup {
    /// Parses a description. If `present` lists the machine's interfaces, checks that they exist.
    ///
    /// # Errors
    /// All mistakes, sorted by line.
    pub fn parse(text: &str, present: Option<&[String]>) -> Result<Self, Vec<Mistake>> {
        let description = match present {
            Some(present) => Description::parse_for(text, present),
            None => Description::parse(text),
        };
        Ok(Self { description: description?, text: text.to_owned() })
    }

    /// The files, without secrets: name and content. `leases` is the path of the DHCP server's leases.
    pub(crate) fn files(&self, leases: &Path) -> [(&'static str, String); 3] {
        [
            (DESCRIPTION, self.text.clone()),
            (TABLE_FILE, render::table(&self.description)),
            (DNSMASQ_FILE, render::dnsmasq(&self.description, leases)),
        ]
    }

    /// The commands that load the files in `directory`, in order. Forwarding is enabled after the packet rules are
    /// loaded, and undone in reverse order.
    pub(crate) fn changes(&self, directory: &Path, by_systemd: bool) -> Vec<Change> {
        let interfaces = interfaces(&self.description);
        let mut all = Vec::new();
        if self.description.vpn.is_some() {
            all.push(changes::create_vpn(by_systemd));
        }
        for interface in &interfaces {
            all.extend(interface.addresses.iter().map(|address| changes::address(&interface.name, *address)));
            all.extend((!interface.addresses.is_empty()).then(|| changes::link_up(&interface.name)));
        }
        all.extend(self.description.vpn.as_ref().map(|vpn| changes::configure_vpn(vpn.port)));
        all.push(changes::table(&directory.join(TABLE_FILE)));
        let forwarding = interfaces.iter().filter(|interface| interface.forwarding);
        all.extend(forwarding.map(|interface| changes::forwarding(&interface.name)));
        all.push(changes::dnsmasq(&directory.join(DNSMASQ_FILE), by_systemd));
        all
    }
}

/// The settings of the interfaces. Forwarding is set per interface, because setting it for the machine would connect
/// all networks and reset other settings. An interface forwards the packets that it receives, so the outer interface
/// must forward too: it receives the replies.
fn interfaces(description: &Description) -> Vec<Interface> {
    let reaches = |is_it: fn(&Reach) -> bool| description.vpn.iter().any(|vpn| vpn.reach.iter().any(is_it));
    let outside = description.nodes.outside || reaches(|to| matches!(to, Reach::Outside | Reach::Subnet(_)));
    let nodes = description.nodes.outside || reaches(|to| *to == Reach::Nodes);
    let interface = |name: &str, addresses, forwarding| Interface { name: name.to_owned(), addresses, forwarding };
    let mut all = vec![
        interface(&description.outer, Vec::new(), outside),
        interface(&description.nodes.interface, vec![description.nodes.address], nodes),
    ];
    match &description.management {
        Some(management) if description.shares_segment() => all[1].addresses.push(management.address),
        Some(management) => {
            let forwarding = reaches(|to| *to == Reach::Management);
            all.push(interface(&management.interface, vec![management.address], forwarding));
        }
        None => {}
    }
    if let Some(vpn) = &description.vpn {
        all.push(interface(VPN_INTERFACE, vec![vpn.address], reaches(|to| *to != Reach::Head)));
    }
    all
}

/// Subnets that VPN clients route through the VPN.
pub(crate) fn client_routes(description: &Description) -> Vec<Subnet> {
    let Some(vpn) = &description.vpn else { return Vec::new() };
    if vpn.reaches(Reach::Outside) {
        // The default route includes all other routes.
        return vec![Subnet::around(Ipv4Addr::UNSPECIFIED, 0)];
    }
    let management = description.management.as_ref().map(|management| management.address.subnet());
    let route = |reach: &Reach| match reach {
        Reach::Head | Reach::Outside => None,
        Reach::Nodes => Some(description.nodes.address.subnet()),
        Reach::Management => management,
        Reach::Subnet(subnet) => Some(*subnet),
    };
    [vpn.address.subnet()].into_iter().chain(vpn.reach.iter().filter_map(route)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::EXAMPLE;

    fn commands(text: &str, word: &str) -> Vec<String> {
        let changes = Setup::parse(text, None).expect("a description").changes(Path::new("/x"), false);
        changes.into_iter().map(|change| change.run).filter(|run| run.contains(word)).collect()
    }

    #[test]
    fn forwarding_is_enabled_only_where_needed_and_after_the_rules() {
        let forwards = |text: &str| {
            let of = |run: &String| run.split('/').nth(6).unwrap_or_default().to_owned();
            commands(text, "/forwarding").iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(forwards(EXAMPLE), ["enp1s0", "enp2s0", VPN_INTERFACE]);
        let closed =
            EXAMPLE.replace("outside = true", "outside = false").replace("[\"head\", \"nodes\"]", "[\"head\"]");
        assert_eq!(forwards(&closed), [""; 0]);
        let all = commands(EXAMPLE, "");
        let rules = all.iter().position(|run| run.starts_with("nft -f ")).expect("the rules are loaded");
        assert!(all[..rules].iter().all(|run| !run.contains("/forwarding")), "{all:?}");
    }

    #[test]
    fn addresses_are_added_to_their_interfaces() {
        let all = commands(EXAMPLE, "ip address add");
        assert_eq!(all[0], "ip address add 10.42.0.1/24 broadcast + dev enp2s0");
        assert_eq!(all.len(), 3, "{all:?}");
        let one_wire = commands(&EXAMPLE.replace("enp3s0", "enp2s0"), "dev enp2s0");
        assert_eq!(one_wire.len(), 3, "two addresses and one link: {one_wire:?}");
    }

    #[test]
    fn client_routes_match_the_allowed_destinations() {
        let routes = |reach: &str| {
            let setup = Setup::parse(&EXAMPLE.replace("[\"head\", \"nodes\"]", reach), None).expect("a description");
            client_routes(&setup.description).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(routes("[\"head\"]"), ["10.44.0.0/24"]);
        assert_eq!(routes("[\"nodes\", \"192.168.7.0/24\"]"), ["10.44.0.0/24", "10.42.0.0/24", "192.168.7.0/24"]);
        assert_eq!(routes("[\"management\", \"outside\", \"nodes\"]"), ["0.0.0.0/0"]);
    }
}
