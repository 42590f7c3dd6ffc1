//! The shell commands that change the machine, each with a check and a command that undoes it. Names in them are
//! validated (see [`crate::names`]) or quoted.

use std::path::Path;

use crate::names::{TABLE, VPN_INTERFACE};
use crate::subnet::InterfaceAddress;

/// Files that do not survive a boot, as the changes of the machine do not.
pub(crate) const VOLATILE: &str = "/run/hostler-gateway";

/// The unit that loads the gateway after a boot, and when its VPN program has died.
pub(crate) const UNIT: &str = "hostler-gateway.service";

/// The control socket of `wireguard-go`.
pub(crate) const WIREGUARD_SOCKET: &str = "/var/run/wireguard/hostler-vpn.sock";

/// Where dnsmasq writes its pid.
pub(crate) const DNSMASQ_PID: &str = "/run/hostler-gateway/dnsmasq.pid";

/// Where [`configure_vpn`] expects the VPN's key and clients.
pub(crate) const WIREGUARD_FILE: &str = "wireguard.conf";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Succeeds if the machine is already so.
    pub(crate) check: String,
    pub(crate) run: String,
    /// Undoes the change, if it is still in effect. Identifies the change. Empty if another change undoes this one too.
    pub(crate) undo: String,
    pub(crate) when: When,
}

/// When a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// If the check fails.
    Missing,
    /// Always, because the file that it loads may have changed.
    Always,
    /// Always, after the command that undoes it, because the program reads its file only at its start.
    Restart,
}

impl Change {
    fn new(check: String, run: String, undo: &str) -> Self {
        let undo = format!("if {check}; then {undo}; fi");
        Self { check, run, undo, when: When::Missing }
    }
}

pub(crate) fn address(interface: &str, address: InterfaceAddress) -> Change {
    Change::new(
        format!("ip -4 -o address show dev {interface} | grep -qF 'inet {address} '"),
        format!("ip address add {address} broadcast + dev {interface}"),
        &format!("ip address delete {address} dev {interface}"),
    )
}

pub(crate) fn link_up(interface: &str) -> Change {
    Change::new(
        format!("ip -o link show dev {interface} up | grep -q ."),
        format!("ip link set dev {interface} up"),
        &format!("ip link set dev {interface} down"),
    )
}

/// Enables forwarding of packets that an interface receives. If another program has since made the whole machine a
/// router, undoing keeps it one.
pub(crate) fn forwarding(interface: &str) -> Change {
    let file = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
    Change::new(
        format!("grep -qs 1 {file}"),
        format!("echo 1 > {file}"),
        &format!("grep -q 1 /proc/sys/net/ipv4/ip_forward || echo 0 > {file}"),
    )
}

/// Loads the packet rules. The file replaces the table in one transaction, so that there is no moment without rules.
pub(crate) fn table(file: &Path) -> Change {
    let loads = format!("nft -f {}", quoted(file));
    let change = Change::new(format!("nft list table inet {TABLE}"), loads, &format!("nft delete table inet {TABLE}"));
    Change { when: When::Always, ..change }
}

pub(crate) fn create_vpn(by_systemd: bool) -> Change {
    let unit = "hostler-gateway-wireguard-go";
    // A restarted program has no key, address and clients, so start the unit that loads the whole gateway. `OnFailure=`
    // does not work: its reference to the unit would keep the unit's name in use.
    let on_death = format!(
        "--property=ExecStopPost=\"/bin/sh -c 'test \\\"\\$SERVICE_RESULT\\\" = success || systemctl --no-block start {UNIT}'\""
    );
    let start = daemon(by_systemd, unit, &on_death, &format!("wireguard-go {VPN_INTERFACE}"));
    let stop = if by_systemd { format!("systemctl stop {unit} 2>&1; ") } else { String::new() };
    let check = format!("ip link show dev {VPN_INTERFACE}");
    // `wireguard-go` ends when its interface is deleted, and leaves its directory behind, which other VPNs may use.
    let delete = format!(
        "{stop}ip link delete dev {VPN_INTERFACE}; while [ -S {WIREGUARD_SOCKET} ]; do sleep 0.1; done; \
         rmdir /var/run/wireguard 2>&1; ! {check}"
    );
    let run = format!("ip link add dev {VPN_INTERFACE} type wireguard || {start}");
    Change::new(check, run, &delete)
}

/// Sets the VPN's key, port and clients. Connections of unchanged clients continue.
pub(crate) fn configure_vpn(port: u16) -> Change {
    Change {
        check: format!("wg show {VPN_INTERFACE} listen-port | grep -qx {port}"),
        run: format!("wg syncconf {VPN_INTERFACE} {VOLATILE}/{WIREGUARD_FILE}"),
        undo: String::new(),
        when: When::Always,
    }
}

/// Starts dnsmasq.
pub(crate) fn dnsmasq(file: &Path, by_systemd: bool) -> Change {
    let (unit, pid, file) = ("hostler-gateway-dnsmasq", DNSMASQ_PID, quoted(file));
    let (check, undo) = if by_systemd {
        let check = format!("systemctl is-active --quiet {unit}");
        // A unit may also wait for its restart.
        let undo = format!("systemctl stop {unit} 2>&1; ! {check}");
        (check, undo)
    } else {
        let check = format!("[ -e {pid} ] && grep -qsF {file} /proc/$(cat {pid})/cmdline");
        // Its sockets are closed when it is a zombie or gone.
        let ends = "while grep -qs '^State:.[^Z]' /proc/$pid/status; do sleep 0.1; done";
        let undo = format!("if {check}; then pid=$(cat {pid}); kill $pid; {ends}; fi");
        (check, undo)
    };
    let properties = format!("--property=PIDFile={pid} --property=Restart=on-failure --property=RestartSec=1s");
    let start = daemon(by_systemd, unit, &properties, &format!("dnsmasq --conf-file={file}"));
    Change { check, run: start, undo, when: When::Restart }
}

/// A command that starts a program which goes to the background when it is ready, as a unit if systemd runs the
/// machine.
fn daemon(by_systemd: bool, unit: &str, properties: &str, program: &str) -> String {
    if !by_systemd {
        return program.to_owned();
    }
    format!(
        "systemd-run --quiet --collect --unit={unit} --property=Type=forking {properties} -- {program} || \
         {{ journalctl --no-pager -o cat -n 5 -u {unit} >&2; false; }}"
    )
}

/// Quotes a path for the shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_undone_only_while_they_are_in_effect() {
        let change = link_up("eth1");
        assert_eq!(change.undo, format!("if {}; then ip link set dev eth1 down; fi", change.check));
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(table(Path::new("/a b/it's")).run, "nft -f '/a b/it'\\''s'");
    }

    #[test]
    fn commands_are_valid_shell() {
        let file = Path::new("/var/lib/x y/file");
        for by_systemd in [false, true] {
            for change in [create_vpn(by_systemd), dnsmasq(file, by_systemd), table(file), forwarding("eth1.7")] {
                for line in [change.check, change.run, change.undo] {
                    let parsed = std::process::Command::new("sh").args(["-n", "-c", &line]).output();
                    assert!(parsed.expect("every system has sh").status.success(), "{line}");
                }
            }
        }
    }
}
