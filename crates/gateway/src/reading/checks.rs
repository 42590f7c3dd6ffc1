//! Checks across tables: duplicate addresses, overlapping subnets, and references to missing parts.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv4Addr;

use super::reader::Reader;
use super::{Lines, MachineLines, MachineParts, Parts};
use crate::description::{HEAD_NAME, MANAGEMENT_SUFFIX, Reach};
use crate::names::VPN_INTERFACE;
use crate::subnet::InterfaceAddress;

impl Reader<'_> {
    /// Runs all checks across tables.
    pub(super) fn check(&mut self, parts: &Parts, lines: &Lines) {
        self.check_interfaces(parts, lines);
        self.check_subnets(lines);
        self.check_pool(parts, lines);
        self.check_machines(parts, lines);
        self.check_reach(parts, lines);
    }

    /// Reports interfaces that this machine does not have.
    pub(super) fn check_presence(&mut self, lines: &Lines, present: &[String]) {
        let there: Vec<&str> = present.iter().map(String::as_str).filter(|name| *name != "lo").collect();
        for (line, field, name) in lines.interfaces.iter().filter(|(_, _, name)| !present.contains(name)) {
            let what = format!("this machine has no interface `{name}`");
            self.mistake(*line, field, &what, &format!("available interfaces: {}", there.join(", ")));
        }
    }

    fn check_interfaces(&mut self, parts: &Parts, lines: &Lines) {
        for (line, field, name) in &lines.interfaces {
            if name == VPN_INTERFACE {
                self.mistake(*line, field, &format!("`{name}` is the interface of the VPN"), "use a network port");
            } else if *field != "outer.interface" && parts.outer.as_ref() == Some(name) {
                let what = format!("`{name}` is the outer interface as well");
                self.mistake(*line, field, &what, "use a separate port or VLAN for the outer network");
            }
        }
    }

    fn check_subnets(&mut self, lines: &Lines) {
        for (number, (later, field)) in lines.subnets.iter().enumerate() {
            for (earlier, other) in &lines.subnets[..number] {
                if later.value.overlaps(earlier.value) {
                    let what = format!("{} overlaps with {} of {other}", later.value, earlier.value);
                    self.mistake(later.line, field, &what, "use separate subnets for the networks");
                }
            }
        }
    }

    fn check_pool(&mut self, parts: &Parts, lines: &Lines) {
        let (Some((first, last)), Some(line), Some(own)) = (parts.pool, lines.pool, parts.nodes) else { return };
        let subnet = own.subnet();
        if !subnet.is_host_address(first) || !subnet.is_host_address(last) || first > last {
            let what = format!("{first}-{last} is not a part of {subnet}");
            self.mistake(line, "nodes.pool", &what, "write the first and then the last address");
        } else if (first..=last).contains(&own.address) {
            let what = format!("the pool contains {}, the address of this machine", own.address);
            self.mistake(line, "nodes.pool", &what, "start the pool after this address");
        }
    }

    fn check_machines(&mut self, parts: &Parts, lines: &Lines) {
        let mut seen = Seen::default();
        seen.names.insert(HEAD_NAME.to_owned(), "this machine".to_owned());
        for (machine, at) in parts.machines.iter().zip(&lines.machines) {
            self.check_uniqueness(machine, at, &mut seen);
            if let (Some(address), Some(own)) = (machine.address, parts.nodes) {
                self.check_address("node.address", at.address, address, own);
            }
            if let (Some((first, last)), Some(address)) = (parts.pool, machine.address)
                && (first..=last).contains(&address)
            {
                let what = format!("{address} is in the pool for machines that are not listed");
                self.mistake(at.address, "node.address", &what, "use an address outside nodes.pool");
            }
            self.check_management(machine, at, parts);
        }
    }

    fn check_uniqueness(&mut self, machine: &MachineParts, at: &MachineLines, seen: &mut Seen) {
        let name = display_name(machine);
        if machine.name.is_some() {
            self.once("node.name", at.name, name.clone(), &name, &mut seen.names);
        }
        if let Some(mac) = machine.mac {
            self.once("node.mac", at.mac, mac.to_string(), &name, &mut seen.macs);
        }
        if let Some(address) = machine.address {
            self.once("node.address", at.address, address, &name, &mut seen.addresses);
        }
        let owner = format!("the controller of {name}");
        if let Some(mac) = machine.management_mac {
            self.once("node.management_mac", at.management_mac, mac.to_string(), &owner, &mut seen.macs);
        }
        if let Some(address) = machine.management_address {
            self.once("node.management_address", at.management_address, address, &owner, &mut seen.addresses);
        }
        if machine.name.is_some() && at.management_address != 0 {
            self.once("node.name", at.name, format!("{name}{MANAGEMENT_SUFFIX}"), &owner, &mut seen.names);
        }
    }

    fn check_management(&mut self, machine: &MachineParts, at: &MachineLines, parts: &Parts) {
        if let (Some(own), Some(address)) = (parts.management, machine.management_address) {
            self.check_address("node.management_address", at.management_address, address, own);
        }
        if !parts.has_management && at.management_address != 0 {
            self.no_management("node.management_address", at.management_address);
        }
        if at.management_mac != 0 && at.management_address == 0 {
            let what = format!("the controller of {} has no address", display_name(machine));
            self.mistake(at.management_mac, "node.management_mac", &what, "add a management_address");
        }
    }

    fn check_address(&mut self, field: &str, line: usize, address: Ipv4Addr, own: InterfaceAddress) {
        let subnet = own.subnet();
        if address == own.address {
            self.mistake(line, field, &format!("{address} is the address of this machine"), "use another address");
        } else if !subnet.is_host_address(address) {
            let range =
                format!("{} to {}", subnet.hosts().next().unwrap_or(address), subnet.hosts().last().unwrap_or(address));
            self.mistake(
                line,
                field,
                &format!("{address} is not a host address in {subnet}"),
                &format!("use an address from {range}"),
            );
        }
    }

    fn check_reach(&mut self, parts: &Parts, lines: &Lines) {
        for (number, at) in lines.reach.iter().enumerate() {
            if lines.reach[..number].iter().any(|earlier| earlier.value == at.value) {
                self.mistake(at.line, "vpn.reach", "the same value appears twice", "remove one");
            }
            match at.value {
                Reach::Management if !parts.has_management => self.no_management("vpn.reach", at.line),
                Reach::Subnet(subnet) => {
                    for (own, field) in lines.subnets.iter().filter(|(own, _)| own.value.overlaps(subnet)) {
                        let what = format!("{subnet} overlaps with {} of {field}", own.value);
                        self.mistake(
                            at.line,
                            "vpn.reach",
                            &what,
                            "use the words nodes and management for the gateway's own networks",
                        );
                    }
                }
                Reach::Head | Reach::Nodes | Reach::Management | Reach::Outside => {}
            }
        }
    }

    fn no_management(&mut self, field: &str, line: usize) {
        self.mistake(line, field, "there is no management network", "add a table [management], or remove this line");
    }

    /// Records a value, or reports a duplicate.
    fn once<K: Ord + Display + Clone>(
        &mut self,
        field: &str,
        line: usize,
        value: K,
        owner: &str,
        seen: &mut BTreeMap<K, String>,
    ) {
        match seen.get(&value) {
            Some(other) => {
                self.mistake(line, field, &format!("{value} is already used by {other}"), "use each value once");
            }
            None => {
                seen.insert(value, owner.to_owned());
            }
        }
    }
}

/// The machine's name for messages. The name itself may be invalid.
fn display_name(machine: &MachineParts) -> String {
    machine.name.clone().unwrap_or_else(|| "another machine".to_owned())
}

/// Owners of names, MAC addresses and addresses.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, String>,
    macs: BTreeMap<String, String>,
    addresses: BTreeMap<Ipv4Addr, String>,
}
