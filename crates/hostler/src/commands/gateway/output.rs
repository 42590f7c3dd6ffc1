//! Text views of the gateway.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hostler_gateway::{ClientState, Description, Running, Status, VPN_INTERFACE, VpnStatus};
use hostler_model::{format_bytes, format_duration};

use hostler_cli::output::table::{Align, Table};
use hostler_cli::output::text::Lines;

/// The network of the cluster as a tree: the outside, this machine with its interfaces, and the machines behind them.
pub(crate) fn diagram(description: &Description, clients: &[ClientState]) -> String {
    let nodes = &description.nodes;
    let outside = if nodes.outside { "nodes reach the outside" } else { "nodes do not reach the outside" };
    let pool = nodes.pool.map(|(first, last)| format!("other machines  {first}-{last}"));
    let machines = description.machines.iter();
    let machines = machines.map(|machine| format!("{}  {}  {}", machine.name, machine.address, machine.mac));
    let mut branches = vec![(
        format!("{}  {}  nodes: DHCP, DNS as .{}; {outside}", nodes.interface, nodes.address, nodes.domain),
        machines.chain(pool).collect::<Vec<String>>(),
    )];
    if let Some(management) = &description.management {
        let controllers = description.machines.iter().filter_map(|machine| {
            machine.management_address.map(|address| format!("controller of {}  {address}", machine.name))
        });
        let title = format!("{}  {}  power controllers", management.interface, management.address);
        branches.push((title, controllers.collect()));
    }
    if let Some(vpn) = &description.vpn {
        let (host, port) = &vpn.endpoint;
        let title = format!("{VPN_INTERFACE}  {}  VPN: WireGuard at {host}, UDP port {port}", vpn.address);
        branches.push((title, clients.iter().map(|client| format!("{}  {}", client.name, client.address)).collect()));
    }
    let mut text = format!("outside network\n└─ {}  this machine: the gateway\n", description.outer);
    for (at, (title, leaves)) in branches.iter().enumerate() {
        let (branch, rest) = if at + 1 == branches.len() { ("└─", "  ") } else { ("├─", "│ ") };
        text += &format!("   {branch} {title}\n");
        for (at, leaf) in leaves.iter().enumerate() {
            let branch = if at + 1 == leaves.len() { "└─" } else { "├─" };
            text += &format!("   {rest} {branch} {leaf}\n");
        }
    }
    text
}

pub(crate) fn status(status: &Status, width: Option<usize>) -> String {
    let mut lines = Lines::default();
    match &status.running {
        None => lines.add("gateway", "not set up"),
        Some(running) if running.problems.is_empty() && status.rolled_back.is_some() => {
            lines.add("gateway", "running; the last change was rolled back");
        }
        Some(running) if running.problems.is_empty() => lines.add("gateway", "running as configured"),
        Some(running) => {
            running
                .problems
                .iter()
                .for_each(|command| lines.add("problem", format!("`hostler gateway start` would run: {command}")));
        }
    }
    lines.add_some("trial", status.confirm_within_secs.map(|secs| on_trial(secs, status.is_guarded)));
    lines.add_some("rollback", status.rolled_back.as_ref());
    lines.add_some("problem", status.not_rolled_back.as_ref());
    let mut text = lines.into_text();
    if let Some(running) = &status.running {
        text.push_str(&self::running(running, width));
    }
    text
}

fn on_trial(secs: u64, is_guarded: bool) -> String {
    let guard =
        if is_guarded { "" } else { "; the guard process has died, so call `hostler gateway apply` or `remove`" };
    format!("rolled back in {secs} s without `hostler gateway confirm`{guard}")
}

fn running(running: &Running, width: Option<usize>) -> String {
    let mut lines = Lines::default();
    let boot = if running.by_systemd { "started by systemd" } else { "run `hostler gateway start`" };
    lines.add("after boot", boot);
    lines.add_some("vpn", running.vpn.as_ref().map(vpn));
    let mut text = lines.into_text();
    if !running.counts.is_empty() {
        text.push('\n');
        text.push_str(&counts(&running.counts, width));
    }
    if !running.leases.is_empty() {
        text.push('\n');
        text.push_str(&leases(running, width));
    }
    if let Some(vpn) = running.vpn.as_ref().filter(|vpn| !vpn.clients.is_empty()) {
        text.push('\n');
        text.push_str(&clients(&vpn.clients, now_secs(), width));
    }
    text
}

fn vpn(vpn: &VpnStatus) -> String {
    let by = if vpn.by_kernel { "" } else { ", using wireguard-go" };
    format!("port {}{by}, reachable at {}", vpn.port, vpn.endpoint)
}

fn counts(counts: &[(String, String, u64)], width: Option<usize>) -> String {
    let mut table = Table::new(&[("CHAIN", Align::Left), ("PACKETS", Align::Right), ("FOR", Align::Left)]);
    for (chain, what, packets) in counts {
        table.row([chain.clone(), packets.to_string(), what.clone()]);
    }
    table.render(width)
}

fn leases(running: &Running, width: Option<usize>) -> String {
    let mut table =
        Table::new(&[("NODE", Align::Left), ("ADDRESS", Align::Left), ("MAC", Align::Left), ("LEASE", Align::Left)]);
    for lease in &running.leases {
        let left = match lease.until_secs {
            0 => "unlimited".to_owned(),
            until => format!("{} left", format_duration(Duration::from_secs(until.saturating_sub(now_secs())))),
        };
        table.row([lease.name.clone(), lease.address.to_string(), lease.mac.clone(), left]);
    }
    table.render(width)
}

/// The VPN clients, each with its last handshake and its traffic.
pub(crate) fn clients(clients: &[ClientState], now_secs: u64, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("CLIENT", Align::Left),
        ("ADDRESS", Align::Left),
        ("HANDSHAKE", Align::Left),
        ("RECEIVED", Align::Right),
        ("SENT", Align::Right),
        ("FROM", Align::Left),
    ]);
    for client in clients {
        let connection = &client.connection;
        let handshake = connection
            .handshake_secs
            .map(|at| format!("{} ago", format_duration(Duration::from_secs(now_secs.saturating_sub(at)))));
        table.row([
            client.name.clone(),
            client.address.to_string(),
            handshake.unwrap_or_else(|| "-".to_owned()),
            format_bytes(connection.received_bytes),
            format_bytes(connection.sent_bytes),
            connection.endpoint.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.render(width)
}

/// Returns the wall-clock time in seconds since 1970, for display only.
pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use hostler_gateway::Connection;

    use super::*;

    #[test]
    fn clients_without_a_handshake_show_a_dash() {
        let client = |name: &str, handshake_secs| ClientState {
            name: name.to_owned(),
            address: [10, 44, 0, 2].into(),
            public_key: String::new(),
            added_secs: 0,
            connection: Connection {
                handshake_secs,
                endpoint: handshake_secs.map(|_| "192.0.2.7:4321".to_owned()),
                received_bytes: 2048,
                sent_bytes: 0,
            },
        };
        let text = clients(&[client("laptop", Some(940)), client("phone", None)], 1000, None);
        let expected = "\
CLIENT  ADDRESS    HANDSHAKE  RECEIVED  SENT  FROM
laptop  10.44.0.2  1m00s ago        2K    0B  192.0.2.7:4321
phone   10.44.0.2  -                2K    0B  -
";
        assert_eq!(text, expected);
    }

    #[test]
    fn missing_gateway_is_shown_as_not_set_up() {
        assert_eq!(status(&stands(None), None), "gateway    not set up\n");
    }

    #[test]
    fn rolled_back_change_is_shown() {
        let running =
            || Running { problems: Vec::new(), by_systemd: true, leases: Vec::new(), vpn: None, counts: Vec::new() };
        let well = status(&stands(Some(running())), None);
        assert!(well.starts_with("gateway    running as configured\n"), "{well}");
        let back = Status {
            rolled_back: Some("the change was not confirmed in time".to_owned()),
            not_rolled_back: Some("dnsmasq does not run".to_owned()),
            ..stands(Some(running()))
        };
        let text = status(&back, None);
        assert!(text.starts_with("gateway    running; the last change was rolled back\n"), "{text}");
        assert!(
            text.contains("rollback   the change was not confirmed in time\nproblem    dnsmasq does not run\n"),
            "{text}"
        );
    }

    fn stands(running: Option<Running>) -> Status {
        Status { running, confirm_within_secs: None, is_guarded: false, rolled_back: None, not_rolled_back: None }
    }

    #[test]
    fn diagram_shows_every_network_and_machine() {
        let setup = hostler_gateway::Setup::parse(hostler_gateway::EXAMPLE, None).expect("a description");
        let expected = "\
outside network
└─ enp1s0  this machine: the gateway
   ├─ enp2s0  10.42.0.1/24  nodes: DHCP, DNS as .cluster; nodes reach the outside
   │  ├─ r1  10.42.0.11  52:54:00:00:01:01
   │  └─ r2  10.42.0.12  52:54:00:00:01:02
   ├─ enp3s0  10.43.0.1/24  power controllers
   │  └─ controller of r1  10.43.0.11
   └─ hostler-vpn  10.44.0.1/24  VPN: WireGuard at lab.example.org, UDP port 51820
";
        assert_eq!(diagram(&setup.description, &[]), expected);
    }
}
