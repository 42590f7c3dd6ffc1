//! Parses and validates a description in TOML. Reports all mistakes at once, each with its line.

mod checks;
mod raw;
mod reader;

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::str::FromStr;

use toml::Spanned;

use self::reader::Reader;
use crate::description::{BootServer, Description, Machine, Management, Nodes, Pxe, Reach, Vpn};
use crate::mac::Mac;
use crate::mistake::Mistake;
use crate::names;
use crate::subnet::{InterfaceAddress, Subnet};

const DEFAULT_VPN_PORT: u16 = 51820;

const DEFAULT_LEASE: &str = "12h";

const DEFAULT_DOMAIN: &str = "cluster";

/// A value and its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At<T> {
    line: usize,
    value: T,
}

/// Lines of values, for checks across tables.
#[derive(Default)]
struct Lines {
    interfaces: Vec<(usize, &'static str, String)>,
    /// Subnets and the names of their fields.
    subnets: Vec<(At<Subnet>, &'static str)>,
    /// One entry per machine, in order.
    machines: Vec<MachineLines>,
    pool: Option<usize>,
    reach: Vec<At<Reach>>,
}

/// Valid values, for checks across tables. Invalid values are `None`, and the checks skip them.
#[derive(Default)]
struct Parts {
    outer: Option<String>,
    /// This machine's address in the nodes' network.
    nodes: Option<InterfaceAddress>,
    pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Whether the description contains a management network.
    has_management: bool,
    management: Option<InterfaceAddress>,
    /// One entry per machine, in order.
    machines: Vec<MachineParts>,
}

#[derive(Default)]
struct MachineParts {
    name: Option<String>,
    mac: Option<Mac>,
    address: Option<Ipv4Addr>,
    management_mac: Option<Mac>,
    management_address: Option<Ipv4Addr>,
}

/// Lines of a machine's fields; 0 for a missing field.
#[derive(Clone, Default)]
struct MachineLines {
    name: usize,
    mac: usize,
    address: usize,
    management_mac: usize,
    management_address: usize,
}

impl Description {
    /// Parses a description.
    ///
    /// # Errors
    /// All mistakes, sorted by line.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        read(text, None)
    }

    /// Parses a description for a machine with these interfaces.
    ///
    /// # Errors
    /// Like [`Self::parse`]. Interfaces that the machine does not have are mistakes too.
    pub fn parse_for(text: &str, present: &[String]) -> Result<Self, Vec<Mistake>> {
        read(text, Some(present))
    }
}

/// Parses a description. If `present` lists the machine's interfaces, checks that they exist. Mistakes are sorted by
/// line.
fn read(text: &str, present: Option<&[String]>) -> Result<Description, Vec<Mistake>> {
    let mut reader = Reader { text, mistakes: Vec::new() };
    let description = reader.description(present);
    let mut mistakes = reader.mistakes;
    mistakes.sort_by_key(|mistake| mistake.line);
    match description {
        Some(description) if mistakes.is_empty() => Ok(description),
        _ => Err(mistakes),
    }
}

impl Reader<'_> {
    fn description(&mut self, present: Option<&[String]>) -> Option<Description> {
        let file = self.file()?;
        let (mut lines, mut parts) = (Lines::default(), Parts::default());
        // A mistake does not stop the parsing of other tables, so that users can fix all mistakes at once.
        parts.outer = self.interface("outer.interface", file.outer.interface.as_ref(), &mut lines);
        let nodes = self.nodes(&file.nodes, &mut lines, &mut parts);
        parts.has_management = file.management.is_some();
        let management = file.management.as_ref().map(|raw| self.management(raw, &mut lines, &mut parts));
        let machines: Vec<_> = file.node.iter().map(|raw| self.machine(raw, &mut lines, &mut parts)).collect();
        let vpn = file.vpn.as_ref().map(|raw| self.vpn(raw, &mut lines));
        let pxe = file.pxe.as_ref().map(|raw| self.pxe(raw));
        self.check(&parts, &lines);
        if let Some(present) = present {
            self.check_presence(&lines, present);
        }
        Some(Description {
            outer: parts.outer?,
            nodes: nodes?,
            management: valid_or_absent(management)?,
            machines: machines.into_iter().collect::<Option<_>>()?,
            vpn: valid_or_absent(vpn)?,
            pxe: valid_or_absent(pxe)?,
        })
    }

    fn nodes(&mut self, raw: &raw::Nodes, lines: &mut Lines, parts: &mut Parts) -> Option<Nodes> {
        let interface = self.interface("nodes.interface", raw.interface.as_ref(), lines);
        let address = self.own_address("nodes.address", raw.address.as_ref(), lines);
        let domain = match &raw.domain {
            Some(text) => {
                self.kept("nodes.domain", Some(text), names::is_domain, "a domain in lower case, e.g. cluster")
            }
            None => Some(DEFAULT_DOMAIN.to_owned()),
        };
        let lease = match &raw.lease {
            Some(text) => {
                self.kept("nodes.lease", Some(text), is_lease, "a time of two minutes or more, e.g. 45m or 12h")
            }
            None => Some(DEFAULT_LEASE.to_owned()),
        };
        let pool = raw.pool.as_ref().map(|text| {
            lines.pool = Some(self.line_of(text));
            let ends = text.get_ref().split_once('-');
            let ends = ends.and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
            self.some("nodes.pool", text, ends, "first and last address, e.g. 10.42.0.200-10.42.0.250")
        });
        (parts.nodes, parts.pool) = (address, pool.flatten());
        Some(Nodes {
            interface: interface?,
            address: address?,
            domain: domain?,
            outside: raw.outside.unwrap_or(true),
            pool: valid_or_absent(pool)?,
            lease: lease?,
        })
    }

    fn management(&mut self, raw: &raw::Management, lines: &mut Lines, parts: &mut Parts) -> Option<Management> {
        let interface = self.interface("management.interface", raw.interface.as_ref(), lines);
        let address = self.own_address("management.address", raw.address.as_ref(), lines);
        parts.management = address;
        Some(Management { interface: interface?, address: address? })
    }

    fn machine(&mut self, raw: &raw::Node, lines: &mut Lines, parts: &mut Parts) -> Option<Machine> {
        let line = |text: &raw::Text| text.as_ref().map_or(0, |text| self.line_of(text));
        lines.machines.push(MachineLines {
            name: line(&raw.name),
            mac: line(&raw.mac),
            address: line(&raw.address),
            management_mac: line(&raw.management_mac),
            management_address: line(&raw.management_address),
        });
        let advice = "lower-case letters, digits and inner hyphens";
        let name = self.kept("node.name", raw.name.as_ref(), names::is_label, advice);
        let mac = self.parsed("node.mac", raw.mac.as_ref(), "write a MAC address, e.g. 52:54:00:00:01:01");
        let address = self.parsed("node.address", raw.address.as_ref(), "write an address, e.g. 10.42.0.11");
        let controller = raw.management_mac.as_ref();
        let management_mac = controller
            .map(|text| self.parsed("node.management_mac", Some(text), "write a MAC address, e.g. 52:54:00:00:02:01"));
        let controller = raw.management_address.as_ref();
        let management_address = controller
            .map(|text| self.parsed("node.management_address", Some(text), "write an address, e.g. 10.43.0.11"));
        parts.machines.push(MachineParts {
            name: name.clone(),
            mac,
            address,
            management_mac: management_mac.flatten(),
            management_address: management_address.flatten(),
        });
        Some(Machine {
            name: name?,
            mac: mac?,
            address: address?,
            management_mac: valid_or_absent(management_mac)?,
            management_address: valid_or_absent(management_address)?,
        })
    }

    fn vpn(&mut self, raw: &raw::Vpn, lines: &mut Lines) -> Option<Vpn> {
        let address = self.own_address("vpn.address", raw.address.as_ref(), lines);
        let port = match &raw.port {
            Some(port) => {
                let number = u16::try_from(*port.get_ref()).ok().filter(|port| *port != 0);
                self.some("vpn.port", port, number, "a UDP port from 1 to 65535, usually 51820")
            }
            None => Some(DEFAULT_VPN_PORT),
        };
        let endpoint = raw.endpoint.as_ref().and_then(|text| {
            let endpoint = names::endpoint(text.get_ref(), port.unwrap_or(DEFAULT_VPN_PORT));
            self.some("vpn.endpoint", text, endpoint, "a name or an address, with or without a port")
        });
        for text in &raw.reach {
            if let Some(reach) = self.reach(text) {
                lines.reach.push(At { line: self.line_of(text), value: reach });
            }
        }
        let reach = match raw.reach.is_empty() {
            true => vec![Reach::Head, Reach::Nodes],
            false => lines.reach.iter().map(|at| at.value).collect(),
        };
        Some(Vpn { address: address?, port: port?, endpoint: endpoint?, reach })
    }

    fn reach(&mut self, text: &Spanned<String>) -> Option<Reach> {
        match text.get_ref().as_str() {
            "head" => Some(Reach::Head),
            "nodes" => Some(Reach::Nodes),
            "management" => Some(Reach::Management),
            "outside" => Some(Reach::Outside),
            _ => self
                .parsed(
                    "vpn.reach",
                    Some(text),
                    "write head, nodes, management, outside or a subnet, e.g. 192.168.7.0/24",
                )
                .map(Reach::Subnet),
        }
    }

    fn pxe(&mut self, raw: &raw::Pxe) -> Option<Pxe> {
        let advice = "a file name of letters, digits and -_./, e.g. undionly.kpxe";
        let boot_file = self.kept("pxe.boot_file", raw.boot_file.as_ref(), names::is_boot_file, advice);
        let efi = raw.efi_boot_file.as_ref();
        let efi_boot_file = efi.map(|text| self.kept("pxe.efi_boot_file", Some(text), names::is_boot_file, advice));
        let from = match (&raw.server, &raw.tftp_root) {
            (Some(text), None) => {
                self.parsed("pxe.server", Some(text), "write an address, e.g. 10.42.0.12").map(BootServer::At)
            }
            (None, Some(text)) => {
                let is_path = |path: &str| path.starts_with('/') && names::is_boot_file(path);
                let advice = "a directory of this machine, of letters, digits and -_./, e.g. /srv/tftp";
                self.kept("pxe.tftp_root", Some(text), is_path, advice).map(BootServer::Here)
            }
            _ => {
                self.mistake(
                    raw.line,
                    "pxe",
                    "the source of the boot files is missing",
                    "add either server or tftp_root",
                );
                None
            }
        };
        Some(Pxe { boot_file: boot_file?, efi_boot_file: valid_or_absent(efi_boot_file)?, from: from? })
    }

    fn interface(&mut self, field: &'static str, text: Option<&Spanned<String>>, lines: &mut Lines) -> Option<String> {
        let text = text?;
        let name =
            self.kept(field, Some(text), names::is_interface, "the name of an interface as `ip link` shows it")?;
        lines.interfaces.push((self.line_of(text), field, name.clone()));
        Some(name)
    }

    /// This machine's address in one of the gateway's networks.
    fn own_address(
        &mut self,
        field: &'static str,
        text: Option<&Spanned<String>>,
        lines: &mut Lines,
    ) -> Option<InterfaceAddress> {
        let text = text?;
        let address: InterfaceAddress =
            self.parsed(field, Some(text), "write this machine's address in the network, e.g. 10.42.0.1/24")?;
        let (line, subnet) = (self.line_of(text), address.subnet());
        if !(8..=30).contains(&subnet.prefix()) {
            let what = format!("the subnet {subnet} is too {}", if subnet.prefix() < 8 { "large" } else { "small" });
            self.mistake(line, field, &what, "use a prefix from 8 to 30, usually 24");
            return None;
        }
        if !subnet.is_host_address(address.address) {
            let what = format!("{} is the network or broadcast address of {subnet}", address.address);
            let first = subnet.hosts().next().expect("a subnet with a prefix up to 30 has host addresses");
            self.mistake(line, field, &what, &format!("use an address in between, e.g. {first}/{}", subnet.prefix()));
            return None;
        }
        lines.subnets.push((At { line, value: subnet }, field));
        Some(address)
    }

    /// Parses a text with the `FromStr` of `T`, or reports the error.
    fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        field: &str,
        text: Option<&Spanned<String>>,
        advice: &str,
    ) -> Option<T> {
        let text = text?;
        let line = self.line_of(text);
        let value = text.get_ref().parse();
        value.map_err(|error| self.mistake(line, field, &format!("`{}`: {error}", text.get_ref()), advice)).ok()
    }

    /// Returns a text unchanged if it is valid, else reports it.
    fn kept(
        &mut self,
        field: &str,
        text: Option<&Spanned<String>>,
        is_fine: fn(&str) -> bool,
        advice: &str,
    ) -> Option<String> {
        let text = text?;
        let value = is_fine(text.get_ref()).then(|| text.get_ref().clone());
        self.some(field, text, value, advice)
    }

    /// Returns a parsed value, or reports that the text is invalid.
    fn some<T, S: Display>(&mut self, field: &str, text: &Spanned<S>, value: Option<T>, advice: &str) -> Option<T> {
        if value.is_none() {
            let shown = text.get_ref().to_string().escape_debug().to_string();
            self.mistake(self.line_of(text), field, &format!("`{shown}` is not valid"), &format!("write {advice}"));
        }
        value
    }
}

/// Returns `None` for an invalid value, so that the checks skip it. An omitted value is valid.
#[expect(clippy::option_option, reason = "the outer `None` is an omitted value, the inner one a mistake")]
fn valid_or_absent<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(Some(value)) => Some(Some(value)),
    }
}

/// Whether dnsmasq accepts this as a lease time.
fn is_lease(text: &str) -> bool {
    let Some((unit, seconds)) =
        [('m', 60), ('h', 3600), ('d', 86_400)].into_iter().find(|(unit, _)| text.ends_with(*unit))
    else {
        return false;
    };
    let number = text.trim_end_matches(unit);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && (1..=5).contains(&number.len());
    is_number && text.len() == number.len() + 1 && number.parse::<u64>().is_ok_and(|count| count * seconds >= 120)
}

#[cfg(test)]
mod tests;
