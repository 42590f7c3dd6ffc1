//! The configuration of dnsmasq: DHCP and DNS for the nodes, on the gateway's interfaces only.

use std::fmt::Write as _;
use std::path::Path;

use crate::changes::DNSMASQ_PID;
use crate::description::{BootServer, Description, HEAD_NAME, MANAGEMENT_SUFFIX, Management, Pxe};

/// The configuration. `leases` is the path of the lease file.
pub(crate) fn dnsmasq(description: &Description, leases: &Path) -> String {
    let mut text = String::from("# Written by `hostler gateway`; changes to this file are lost.\n");
    let nodes = &description.nodes;
    let mut line = |entry: String| writeln!(text, "{entry}").expect("strings can be written to");
    line(format!("interface={}", nodes.interface));
    let separate = description.management.as_ref().filter(|_| !description.shares_segment());
    if let Some(management) = separate {
        line(format!("interface={}", management.interface));
    }
    line("except-interface=lo".to_owned());
    // Listen only on these interfaces, so that other DNS servers on the machine keep working.
    line("bind-interfaces".to_owned());
    line(format!("dhcp-leasefile={}", leases.display()));
    line(format!("pid-file={DNSMASQ_PID}"));
    line("no-hosts".to_owned());
    line("domain-needed".to_owned());
    line("bogus-priv".to_owned());
    line(format!("domain={}", nodes.domain));
    line(format!("local=/{}/", nodes.domain));
    line("expand-hosts".to_owned());
    line("dhcp-authoritative".to_owned());
    // Use only names from the description. A client that names itself, e.g. `wpad`, could deceive all others.
    line("dhcp-ignore-names".to_owned());
    for entry in addresses(description) {
        line(entry);
    }
    for entry in names(description) {
        line(entry);
    }
    for entry in description.pxe.iter().flat_map(|pxe| boot(pxe, &nodes.interface)) {
        line(entry);
    }
    text
}

fn addresses(description: &Description) -> Vec<String> {
    let nodes = &description.nodes;
    let subnet = nodes.address.subnet();
    let mut entries = match nodes.pool {
        Some((first, last)) => vec![format!("dhcp-range=set:nodes,{first},{last},{},{}", subnet.mask(), nodes.lease)],
        None => vec![format!("dhcp-range=set:nodes,{},static,{},{}", subnet.network(), subnet.mask(), nodes.lease)],
    };
    entries.push(format!("dhcp-option=tag:nodes,option:router,{}", nodes.address.address));
    entries.push(format!("dhcp-option=tag:nodes,option:dns-server,{}", nodes.address.address));
    for machine in &description.machines {
        entries.push(format!("dhcp-host={},{},{}", machine.mac, machine.address, machine.name));
    }
    entries.extend(description.management.iter().flat_map(|management| controllers(management, description)));
    entries
}

/// The DHCP settings for controllers, which get an address but no router and no DNS server.
fn controllers(management: &Management, description: &Description) -> Vec<String> {
    let subnet = management.address.subnet();
    let lease = &description.nodes.lease;
    let mut entries = vec![
        format!("dhcp-range=set:management,{},static,{},{lease}", subnet.network(), subnet.mask()),
        "dhcp-option=tag:management,option:router".to_owned(),
        "dhcp-option=tag:management,option:dns-server".to_owned(),
    ];
    for machine in &description.machines {
        if let (Some(mac), Some(address)) = (machine.management_mac, machine.management_address) {
            entries.push(format!("dhcp-host={mac},{address},{}{MANAGEMENT_SUFFIX}", machine.name));
        }
    }
    entries
}

/// The DNS records, which let a name resolve before the machine has requested its lease.
fn names(description: &Description) -> Vec<String> {
    let domain = &description.nodes.domain;
    let record = |name: &str, address| format!("host-record={name},{name}.{domain},{address}");
    let mut entries = vec![record(HEAD_NAME, description.nodes.address.address)];
    for machine in &description.machines {
        entries.push(record(&machine.name, machine.address));
        if let Some(address) = machine.management_address {
            entries.push(record(&format!("{}{MANAGEMENT_SUFFIX}", machine.name), address));
        }
    }
    entries
}

fn boot(pxe: &Pxe, interface: &str) -> Vec<String> {
    let (server, mut entries) = match &pxe.from {
        BootServer::At(address) => (format!(",,{address}"), Vec::new()),
        BootServer::Here(root) => {
            (String::new(), vec![format!("enable-tftp={interface}"), format!("tftp-root={root}")])
        }
    };
    if let Some(file) = &pxe.efi_boot_file {
        // Client architectures of RFC 4578: EFI byte code, x86-64 and ARM 64.
        for architecture in [7, 9, 11] {
            entries.push(format!("dhcp-match=set:efi,option:client-arch,{architecture}"));
        }
        entries.push(format!("dhcp-boot=tag:nodes,tag:efi,{file}{server}"));
        entries.push(format!("dhcp-boot=tag:nodes,tag:!efi,{}{server}", pxe.boot_file));
    } else {
        entries.push(format!("dhcp-boot=tag:nodes,{}{server}", pxe.boot_file));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::EXAMPLE;

    fn of(text: &str) -> String {
        dnsmasq(&Description::parse(text).expect("a description"), Path::new("/leases"))
    }

    #[test]
    fn nodes_get_their_own_addresses_and_names() {
        let text = of(EXAMPLE);
        for line in [
            "interface=enp2s0",
            "interface=enp3s0",
            "dhcp-range=set:nodes,10.42.0.0,static,255.255.255.0,12h",
            "dhcp-host=52:54:00:00:01:01,10.42.0.11,r1",
            "dhcp-host=52:54:00:00:02:01,10.43.0.11,r1-mgmt",
            "host-record=r2,r2.cluster,10.42.0.12",
            "host-record=head,head.cluster,10.42.0.1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
        }
        assert!(!text.contains("enp1s0"), "the outside network is not served:\n{text}");
        assert!(!text.contains("r2-mgmt") && !text.contains("tftp"), "{text}");
        assert!(text.contains("\ndhcp-ignore-names\n"), "clients must not choose names:\n{text}");
    }

    #[test]
    fn boot_file_depends_on_the_firmware() {
        let pxe = "[pxe]\nboot_file = \"bios.0\"\nefi_boot_file = \"efi.0\"\ntftp_root = \"/srv/tftp\"";
        let text = of(&EXAMPLE.replace("# [pxe]", pxe));
        for line in [
            "enable-tftp=enp2s0",
            "tftp-root=/srv/tftp",
            "dhcp-boot=tag:nodes,tag:efi,efi.0",
            "dhcp-boot=tag:nodes,tag:!efi,bios.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
        }
        let elsewhere = of(&EXAMPLE.replace("# [pxe]", "[pxe]\nboot_file = \"bios.0\"\nserver = \"10.42.0.12\""));
        assert!(elsewhere.contains("dhcp-boot=tag:nodes,bios.0,,10.42.0.12\n"), "{elsewhere}");
    }
}
