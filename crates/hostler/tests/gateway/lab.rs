//! A test network: an outer network with a server and a laptop, a controller, two nodes behind it, and a management
//! controller.

use std::fmt::Write as _;

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};

/// Programs that the tests need in addition to the programs for networks, with their Debian packages.
const TOOLS: [(&str, &str); 6] = [
    ("dnsmasq", "dnsmasq-base"),
    ("wg", "wireguard-tools"),
    ("wg-quick", "wireguard-tools"),
    ("wireguard-go", "wireguard-go"),
    ("dhclient", "isc-dhcp-client"),
    ("script", "bsdutils"),
];

/// A server that sends the client's address and then echoes.
const SERVER: &str = "\
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write((self.client_address[0] + '\\n').encode())
        for line in self.rfile:
            self.wfile.write(line)
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(('', 9000), Handler)
print('ready', flush=True)
server.serve_forever()
";

/// Sends data every 0.1 s on one connection and counts the answers.
const CALLER: &str = "\
import socket, sys, time
lines = socket.create_connection((sys.argv[1], 9000)).makefile('rw')
lines.readline()
for number in range(1, 100000):
    lines.write(f'{number}\\n')
    lines.flush()
    if lines.readline() != f'{number}\\n':
        break
    with open('/home/op/answered', 'w') as file:
        file.write(str(number))
    time.sleep(0.1)
open('/home/op/broken', 'w')
";

/// Wraps dnsmasq: hangs while `/run/stall` exists.
const DNSMASQ: &str = "#!/bin/sh\n[ -e /run/stall ] && exec sleep 1000\n\
                       for at in /usr/sbin /usr/bin; do [ -x $at/dnsmasq ] && exec $at/dnsmasq \"$@\"; done\n";

/// Writes the name servers of `wg-quick` to /etc/resolv.conf.
const RESOLVCONF: &str = "#!/bin/sh\n[ \"$1\" = -a ] && cat > /etc/resolv.conf\nexit 0\n";

/// The hosts, then their networks, which must be dropped later.
pub(crate) struct Lab {
    pub(crate) controller: Host,
    others: Vec<Host>,
    _networks: [Network; 3],
}

impl Lab {
    /// Starts the controller and the hosts in `names`: any of `server`, `laptop`, `r1`, `r2` and `bmc`. All hosts are
    /// connected; only the outer network has addresses.
    pub(crate) fn with(names: &[&str]) -> Self {
        require_tools();
        let [outer, inner, management] = [(); 3].map(|()| Network::new(env!("CARGO_BIN_EXE_hostler")));
        let controller = outer.host("controller");
        controller.connect_to(&inner, "eth1");
        controller.connect_to(&management, "eth2");
        // Network namespaces inherit settings of the machine.
        controller.ok(&["sysctl", "-q", "net.ipv4.ip_forward=0"]);
        script(&controller, "dnsmasq", DNSMASQ);
        // `remove` leaves the parent of the gateway's directory.
        controller.ok(&["mkdir", "-p", "/var/lib/hostler"]);
        let other = |name: &&str| {
            let (network, mac) = match *name {
                "r1" => (&inner, "52:54:00:00:01:01"),
                "r2" => (&inner, "52:54:00:00:01:02"),
                "bmc" => (&management, "52:54:00:00:02:01"),
                _ => return outer.host(name),
            };
            let host = network.host(name);
            without_address(&host, mac);
            host
        };
        let others = names.iter().map(other).collect();
        let lab = Self { controller, others, _networks: [outer, inner, management] };
        lab.describe(&lab.description());
        lab
    }

    /// A host other than the controller.
    pub(crate) fn host(&self, name: &str) -> &Host {
        self.others.iter().find(|host| host.name() == name).expect("the laboratory was built with it")
    }

    /// A gateway configuration for this network.
    pub(crate) fn description(&self) -> String {
        format!(
            "[outer]\ninterface = \"eth0\"\n\n[nodes]\ninterface = \"eth1\"\naddress = \"10.42.0.1/24\"\n\n\
             [management]\ninterface = \"eth2\"\naddress = \"10.43.0.1/24\"\n\n\
             [[node]]\nname = \"r1\"\nmac = \"52:54:00:00:01:01\"\naddress = \"10.42.0.11\"\n\
             management_mac = \"52:54:00:00:02:01\"\nmanagement_address = \"10.43.0.11\"\n\n\
             [[node]]\nname = \"r2\"\nmac = \"52:54:00:00:01:02\"\naddress = \"10.42.0.12\"\n\n{}",
            self.vpn()
        )
    }

    /// The VPN part of the configuration.
    pub(crate) fn vpn(&self) -> String {
        format!("[vpn]\naddress = \"10.44.0.1/24\"\nendpoint = \"{}\"\n", self.controller.address())
    }

    pub(crate) fn describe(&self, description: &str) {
        self.controller.write("/etc/hostler/gateway.toml", description);
    }

    /// Runs `hostler gateway` on the controller.
    pub(crate) fn gateway(&self, arguments: &[&str]) -> Outcome {
        self.controller.run(&[&["hostler", "gateway"], arguments].concat())
    }

    /// Runs `hostler gateway`, which must succeed.
    pub(crate) fn gateway_ok(&self, arguments: &[&str]) -> String {
        self.controller.ok(&[&["hostler", "gateway"], arguments].concat())
    }

    /// Applies the configuration and confirms it.
    pub(crate) fn set_up(&self) {
        self.gateway_ok(&["apply", "--yes"]);
    }

    /// Adds the laptop as a VPN client and starts its end of the VPN.
    pub(crate) fn connect_laptop(&self) {
        let profile = self.gateway_ok(&["client", "add", "laptop"]);
        bring_up(self.host("laptop"), "vpn", &profile);
    }

    /// All state of the controller that the gateway could have changed, without volatile values.
    pub(crate) fn fingerprint(&self) -> String {
        let mut print = String::new();
        for script in [
            "nft list ruleset",
            "grep -r . /proc/sys/net/ipv4/conf /proc/sys/net/ipv4/ip_forward | sort",
            "(ip -4 address show | grep -v valid_lft; ip link show | grep -v link/; ip -4 route show table all) | \
             sed -E 's/NO-CARRIER,|,LOWER_UP| state [A-Z]+| linkdown| qdisc [a-z_]+//g'",
            "find /etc /var/lib /run | sort; find /etc /var/lib /run -type f -exec md5sum {} + | sort",
            "ps -e -o args= | grep -v '^ps \\|^sh \\|^sort\\|^grep\\|defunct' | sort",
        ] {
            writeln!(print, "$ {script}\n{}", self.controller.ok(&["sh", "-c", script]))
                .expect("strings can be written to");
        }
        print
    }

    /// Whether no change waits for confirmation or is being made.
    pub(crate) fn has_no_trial(&self) -> bool {
        let is_free = || self.controller.run(&["flock", "--nonblock", "/run/hostler-gateway/lock", "true"]).code == 0;
        !self.controller.path("/var/lib/hostler/gateway/previous").exists() && is_free()
    }

    /// The gateway's notes on the controller, for failed tests.
    pub(crate) fn notes(&self) -> String {
        self.controller
            .run(&["tail", "-n", "+1", "/var/lib/hostler/gateway/rolled-back", "/run/hostler-gateway/undo"])
            .stdout
    }
}

/// Panics with the differing lines, if any.
#[track_caller]
pub(crate) fn assert_same(now: &str, before: &str) {
    let lines = |one: &str, other: &str| {
        let is_in_it = |line: &&str| !other.lines().any(|found| found == *line);
        one.lines().filter(is_in_it).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert!(now == before, "new: {:#?}\ngone: {:#?}", lines(now, before), lines(before, now));
}

/// Starts a VPN on a host from a profile.
pub(crate) fn bring_up(host: &Host, name: &str, profile: &str) {
    let file = format!("/home/op/{name}.conf");
    script(host, "resolvconf", RESOLVCONF);
    host.write(&file, format!("{profile}\n"));
    host.ok(&["chmod", "600", &file]);
    host.ok(&["wg-quick", "up", &file]);
}

/// Installs a script that replaces a system program.
fn script(host: &Host, name: &str, text: &str) {
    host.write(&format!("/run/bin/{name}"), text);
    host.ok(&["chmod", "755", &format!("/run/bin/{name}")]);
}

/// Starts the server on a host.
pub(crate) fn serve(host: &Host) -> Daemon {
    host.write("/home/op/server.py", SERVER);
    let daemon = host.daemon("server", &["python3", "/home/op/server.py"]);
    wait_until("a server to answer", 30, || ask(host, "127.0.0.1"));
    daemon
}

/// This host's address as the server at `address` sees it; `None` if the server is unreachable for two seconds.
pub(crate) fn ask(host: &Host, address: &str) -> Option<String> {
    let script = format!("exec 3<>/dev/tcp/{address}/9000 && read -r line <&3 && echo $line");
    let outcome = host.run(&["timeout", "2", "bash", "-c", &script]);
    (outcome.code == 0).then(|| outcome.stdout.trim().to_owned())
}

/// Like [`ask`], with retries.
pub(crate) fn reach(host: &Host, address: &str) -> Option<String> {
    Some(wait_until(&format!("{} to reach {address}", host.name()), 30, || ask(host, address)))
}

/// Starts a connection to `address` that survives short interruptions.
pub(crate) fn call(host: &Host, address: &str) -> Daemon {
    host.write("/home/op/caller.py", CALLER);
    host.daemon("caller", &["python3", "/home/op/caller.py", address])
}

/// How often the server has answered on the connection of [`call`]. Panics if the connection is broken.
pub(crate) fn answered(host: &Host) -> u64 {
    assert!(!host.path("/home/op/broken").exists(), "the connection is broken");
    host.read("/home/op/answered").trim().parse().unwrap_or(0)
}

/// Requests a DHCP lease for a host, as at its start.
pub(crate) fn lease(host: &Host) {
    host.ok(&["dhclient", "-4", "-1", "-lf", "/tmp/leases", "-pf", "/tmp/dhclient.pid", "eth0"]);
}

/// Resets a host's network configuration and sets its hardware address.
fn without_address(host: &Host, mac: &str) {
    let script = format!(
        "ip link set eth0 down && ip address flush dev eth0 && ip link set eth0 address {mac} && ip link set eth0 up && \
         echo 127.0.0.1 localhost > /etc/hosts && rm -f /etc/resolv.conf"
    );
    host.ok(&["sh", "-c", &script]);
}

fn require_tools() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in TOOLS {
        let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        let is_there = places.map(|directory| directory.join(tool)).any(|path| path.exists());
        assert!(is_there, "`{tool}` is missing: install the package {package}, as .ci/run does");
    }
}
