//! The gateway's table of packet rules.
//!
//! Its chains run before those of other programs and drop only packets from or to the gateway's networks. A later chain
//! may still drop accepted packets, because in `nft` a drop is final and an accept is not. The accept rules exist for
//! their counters.

use std::fmt::Write as _;

use crate::description::{BootServer, Description, Reach};
use crate::names::{TABLE, VPN_INTERFACE};
use crate::subnet::Subnet;

/// The rules of one chain of the table, one per line.
struct Chain(String);

/// Ports of the head and of SSH.
const HEAD_PORTS: &str = "{ 22, 7760 }";

/// The table as input for `nft -f`.
pub(crate) fn table(description: &Description) -> String {
    let chains = [
        ("input", "filter hook input priority filter - 10", input(description)),
        ("forward", "filter hook forward priority filter - 10", forward(description)),
        ("postrouting", "nat hook postrouting priority srcnat", postrouting(description)),
    ];
    // Replaces the table in one transaction, whether or not it exists.
    let mut text = format!("table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    for (name, place, Chain(rules)) in chains {
        write!(text, "\tchain {name} {{\n\t\ttype {place}; policy accept;\n{rules}\t}}\n")
            .expect("strings can be written to");
    }
    text.push_str("}\n");
    text
}

impl Chain {
    fn rule(&mut self, rule: &str) {
        writeln!(self.0, "\t\t{rule}").expect("strings can be written to");
    }
}

/// Packets to this machine: counts them, and drops packets of VPN clients that may not reach the machine.
fn input(description: &Description) -> Chain {
    let mut chain = Chain(String::new());
    let nodes = &description.nodes.interface;
    chain.rule(&format!("iifname \"{nodes}\" udp dport 67 counter accept comment \"leases\""));
    if let Some(management) = description.management.as_ref().filter(|_| !description.shares_segment()) {
        chain.rule(&format!(
            "iifname \"{}\" udp dport 67 counter accept comment \"leases of controllers\"",
            management.interface
        ));
        chain.rule(&format!(
            "iifname \"{}\" meta l4proto {{ tcp, udp }} th dport {{ 53, 69 }} counter drop comment \"not for controllers\"",
            management.interface
        ));
    }
    chain
        .rule(&format!("iifname \"{nodes}\" meta l4proto {{ tcp, udp }} th dport 53 counter accept comment \"names\""));
    if description.pxe.as_ref().is_some_and(|pxe| matches!(pxe.from, BootServer::Here(_))) {
        chain.rule(&format!("iifname \"{nodes}\" udp dport 69 counter accept comment \"boot files\""));
    }
    chain.rule(&format!("iifname \"{nodes}\" tcp dport {HEAD_PORTS} counter accept comment \"head\""));
    if let Some(vpn) = &description.vpn {
        chain.rule(&format!("udp dport {} counter accept comment \"VPN\"", vpn.port));
        if vpn.reaches(Reach::Nodes) {
            chain.rule(&format!("iifname \"{VPN_INTERFACE}\" meta l4proto {{ tcp, udp }} th dport 53 counter accept comment \"names for clients\""));
        }
        if vpn.reaches(Reach::Head) {
            chain.rule(&format!("iifname \"{VPN_INTERFACE}\" counter accept comment \"head for clients\""));
        } else {
            chain.rule(&format!("iifname \"{VPN_INTERFACE}\" ct state established,related accept"));
            chain.rule(&format!("iifname \"{VPN_INTERFACE}\" icmp type echo-request accept"));
            chain.rule(&format!("iifname \"{VPN_INTERFACE}\" counter drop comment \"not for clients\""));
        }
    }
    chain
}

/// Forwarded packets from or to the gateway's networks. The rules of the management network come first, so that no
/// later rule accepts packets from or to it.
fn forward(description: &Description) -> Chain {
    let mut chain = Chain(String::new());
    management(description, &mut chain);
    from_and_to_nodes(description, &mut chain);
    if description.vpn.is_some() {
        vpn(description, &mut chain);
    }
    chain
}

fn management(description: &Description, chain: &mut Chain) {
    let Some(management) = &description.management else { return };
    let (interface, subnet) = (&management.interface, management.address.subnet());
    if description.vpn.as_ref().is_some_and(|vpn| vpn.reaches(Reach::Management)) {
        chain.rule(&format!("iifname \"{VPN_INTERFACE}\" oifname \"{interface}\" ip daddr {subnet} counter accept comment \"controllers for clients\""));
        chain.rule(&format!(
            "iifname \"{interface}\" oifname \"{VPN_INTERFACE}\" ip saddr {subnet} ct state established,related accept"
        ));
    }
    chain.rule(&format!("ip daddr {subnet} counter drop comment \"controllers\""));
    chain.rule(&format!("ip saddr {subnet} counter drop comment \"controllers\""));
    if !description.shares_segment() {
        chain.rule(&format!("iifname \"{interface}\" counter drop comment \"controllers\""));
        chain.rule(&format!("oifname \"{interface}\" counter drop comment \"controllers\""));
    }
}

fn from_and_to_nodes(description: &Description, chain: &mut Chain) {
    let (nodes, outer) = (&description.nodes.interface, &description.outer);
    let subnet = description.nodes.address.subnet();
    chain.rule(&format!("iifname \"{nodes}\" ip saddr != {subnet} counter drop comment \"no node's address\""));
    chain.rule(&format!("iifname \"{nodes}\" oifname \"{nodes}\" accept"));
    chain.rule(&format!("iifname \"{nodes}\" ct state established,related accept"));
    if description.nodes.outside {
        chain.rule(&format!("iifname \"{nodes}\" oifname \"{outer}\" counter accept comment \"outside\""));
    }
    chain.rule(&format!("iifname \"{nodes}\" counter drop comment \"not for nodes\""));
    chain.rule(&format!("oifname \"{nodes}\" ct state established,related accept"));
    if description.vpn.as_ref().is_some_and(|vpn| vpn.reaches(Reach::Nodes)) {
        chain.rule(&format!(
            "iifname \"{VPN_INTERFACE}\" oifname \"{nodes}\" counter accept comment \"nodes for clients\""
        ));
    }
    chain.rule(&format!("oifname \"{nodes}\" counter drop comment \"no way to nodes\""));
}

fn vpn(description: &Description, chain: &mut Chain) {
    let vpn = description.vpn.as_ref().expect("the caller has checked that there is a VPN");
    chain.rule(&format!("iifname \"{VPN_INTERFACE}\" ct state established,related accept"));
    for subnet in reached_subnets(description) {
        let outer = &description.outer;
        chain.rule(&format!("iifname \"{VPN_INTERFACE}\" oifname \"{outer}\" ip daddr {subnet} counter accept"));
    }
    if vpn.reaches(Reach::Outside) {
        chain.rule(&format!(
            "iifname \"{VPN_INTERFACE}\" oifname \"{}\" counter accept comment \"outside for clients\"",
            description.outer
        ));
    }
    chain.rule(&format!("iifname \"{VPN_INTERFACE}\" counter drop comment \"not for clients\""));
    chain.rule(&format!("oifname \"{VPN_INTERFACE}\" ct state established,related accept"));
    chain.rule(&format!("oifname \"{VPN_INTERFACE}\" counter drop comment \"no way to clients\""));
}

/// Masquerading. Controllers have no route to the VPN, so they see this machine's address instead of the clients'.
fn postrouting(description: &Description) -> Chain {
    let mut chain = Chain(String::new());
    let (nodes, outer) = (description.nodes.address.subnet(), &description.outer);
    if description.nodes.outside {
        chain.rule(&format!("ip saddr {nodes} oifname \"{outer}\" counter masquerade comment \"nodes\""));
    }
    let Some(vpn) = &description.vpn else { return chain };
    let clients = vpn.address.subnet();
    if vpn.reaches(Reach::Outside) {
        chain.rule(&format!("ip saddr {clients} oifname \"{outer}\" counter masquerade comment \"clients\""));
    } else {
        for subnet in reached_subnets(description) {
            chain.rule(&format!(
                "ip saddr {clients} oifname \"{outer}\" ip daddr {subnet} counter masquerade comment \"clients\""
            ));
        }
    }
    if let Some(management) = description.management.as_ref().filter(|_| vpn.reaches(Reach::Management)) {
        let (interface, subnet) = (&management.interface, management.address.subnet());
        chain.rule(&format!(
            "ip saddr {clients} oifname \"{interface}\" ip daddr {subnet} counter masquerade comment \"clients\""
        ));
    }
    chain
}

fn reached_subnets(description: &Description) -> Vec<Subnet> {
    let of = |reach: &Reach| if let Reach::Subnet(subnet) = reach { Some(*subnet) } else { None };
    description.vpn.iter().flat_map(|vpn| &vpn.reach).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::EXAMPLE;

    fn of(text: &str) -> String {
        table(&Description::parse(text).expect("a description"))
    }

    #[test]
    fn management_network_is_closed_before_other_rules() {
        let table = of(EXAMPLE);
        let drop = table.find("ip daddr 10.43.0.0/24 counter drop").expect("closed");
        let forward = table.find("chain forward").expect("a chain");
        let first_accept = forward + table[forward..].find("accept\n").expect("something is open");
        assert!(forward < drop && drop < first_accept, "{table}");
        assert!(!table.contains("controllers for clients"), "{table}");
    }

    #[test]
    fn only_described_access_is_open() {
        let closed =
            of(&EXAMPLE.replace("outside = true", "outside = false").replace("[\"head\", \"nodes\"]", "[\"nodes\"]"));
        assert!(!closed.contains("masquerade") && !closed.contains("\"outside\""), "{closed}");
        assert!(closed.contains("iifname \"hostler-vpn\" counter drop comment \"not for clients\""), "{closed}");
        let no_vpn = of(EXAMPLE.split("# VPN access").next().expect("the part before the VPN"));
        assert!(!no_vpn.contains(VPN_INTERFACE) && !no_vpn.contains("51820"), "{no_vpn}");
        let open = of(&EXAMPLE.replace("[\"head\", \"nodes\"]", "[\"management\", \"192.168.7.0/24\"]"));
        assert!(
            open.contains("controllers for clients") && open.contains("ip daddr 192.168.7.0/24 counter accept"),
            "{open}"
        );
    }

    #[test]
    fn every_forward_rule_names_a_network_of_the_gateway() {
        let reach = "[\"head\", \"nodes\", \"management\", \"outside\", \"192.168.7.0/24\"]";
        let table = of(&EXAMPLE.replace("[\"head\", \"nodes\"]", reach));
        let chain = table.split("chain forward {").nth(1).and_then(|rest| rest.split("\t}").next()).expect("a chain");
        for rule in chain.lines().skip(2).filter(|line| !line.trim().is_empty()) {
            let ours = ["enp2s0", "enp3s0", VPN_INTERFACE, "10.43.0.0/24"];
            assert!(ours.iter().any(|word| rule.contains(word)), "{rule}");
        }
    }
}
