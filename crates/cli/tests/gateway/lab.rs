//! A laboratory: an outer network with a server and a laptop, a controller, two nodes behind it, and a management controller.

use std::fmt::Write as _;

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};

/// The programs that the tests need besides those of the network, and the Debian package of each.
const TOOLS: [(&str, &str); 6] = [
    ("dnsmasq", "dnsmasq-base"),
    ("wg", "wireguard-tools"),
    ("wg-quick", "wireguard-tools"),
    ("wireguard-go", "wireguard-go"),
    ("dhclient", "isc-dhcp-client"),
    ("script", "bsdutils"),
];

/// Answers whoever connects: first with their address, then with what they say.
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

/// Says something every tenth of a second on one connection, and writes down what has been answered.
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

/// Stands before the real one, and goes on for ever instead while `/run/stall` is there.
const DNSMASQ: &str = "#!/bin/sh\n[ -e /run/stall ] && [ \"$1\" = --keep-in-foreground ] && exec sleep 1000\n\
                       for at in /usr/sbin /usr/bin; do [ -x $at/dnsmasq ] && exec $at/dnsmasq \"$@\"; done\n";

/// What `wg-quick` tells of name servers goes where the resolver looks.
const RESOLVCONF: &str = "#!/bin/sh\n[ \"$1\" = -a ] && cat > /etc/resolv.conf\nexit 0\n";

/// The hosts, and then their networks, which must outlive them.
pub(crate) struct Lab {
    pub(crate) controller: Host,
    others: Vec<Host>,
    _networks: [Network; 3],
}

impl Lab {
    /// The controller and those of `server`, `laptop`, `r1`, `r2` and `bmc` that are named. Everything is plugged in; only the outer
    /// network has addresses.
    pub(crate) fn with(names: &[&str]) -> Self {
        require_tools();
        let [outer, inner, management] = [(); 3].map(|()| Network::new(env!("CARGO_BIN_EXE_hostler")));
        let controller = outer.host("controller");
        controller.also_on(&inner, "eth1");
        controller.also_on(&management, "eth2");
        // Namespaces have what the machine has.
        controller.ok(&["sysctl", "-q", "net.ipv4.ip_forward=0"]);
        script(&controller, "dnsmasq", DNSMASQ);
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

    /// One of the others.
    pub(crate) fn host(&self, name: &str) -> &Host {
        self.others.iter().find(|host| host.name() == name).expect("the laboratory was built with it")
    }

    /// A description of all of it.
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

    /// The part of it about the VPN.
    pub(crate) fn vpn(&self) -> String {
        format!("[vpn]\naddress = \"10.44.0.1/24\"\nendpoint = \"{}\"\n", self.controller.address())
    }

    pub(crate) fn describe(&self, description: &str) {
        self.controller.write("/etc/hostler/gateway.toml", description);
    }

    /// `hostler gateway` on the controller.
    pub(crate) fn gateway(&self, arguments: &[&str]) -> Outcome {
        self.controller.run(&[&["hostler", "gateway"], arguments].concat())
    }

    /// The same; it must go well.
    pub(crate) fn gateway_ok(&self, arguments: &[&str]) -> String {
        self.controller.ok(&[&["hostler", "gateway"], arguments].concat())
    }

    /// The gateway as the description says, for good.
    pub(crate) fn set_up(&self) {
        self.gateway_ok(&["apply", "--yes"]);
    }

    /// Lets the laptop in, and brings its end of the VPN up as its owner would.
    pub(crate) fn let_laptop_in(&self) {
        let profile = self.gateway_ok(&["client", "add", "laptop"]);
        bring_up(self.host("laptop"), "vpn", &profile);
    }

    /// All that the gateway could have changed on the controller and is not of the moment.
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

    /// Whether no attempt waits any more, by the record of it.
    pub(crate) fn waits_for_no_one(&self) -> bool {
        !self.controller.path("/var/lib/hostler/gateway/trial.json").exists()
    }

    /// What the controller has written down about services and attempts, and what they said; for whoever reads why a test failed.
    pub(crate) fn records(&self) -> String {
        self.controller
            .run(&["sh", "-c", "cd /var/lib/hostler/gateway && tail -n 20 rolled-back.json dnsmasq.json *.log"])
            .stdout
    }
}

/// Panics with the lines that are different, if there are any.
#[track_caller]
pub(crate) fn assert_same(now: &str, before: &str) {
    let lines = |one: &str, other: &str| {
        let is_in_it = |line: &&str| !other.lines().any(|found| found == *line);
        one.lines().filter(is_in_it).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert!(now == before, "new: {:#?}\ngone: {:#?}", lines(now, before), lines(before, now));
}

/// Brings a VPN up on a host, as its owner would with the profile that they were given.
pub(crate) fn bring_up(host: &Host, name: &str, profile: &str) {
    let file = format!("/home/op/{name}.conf");
    script(host, "resolvconf", RESOLVCONF);
    host.write(&file, format!("{profile}\n"));
    host.ok(&["chmod", "600", &file]);
    host.ok(&["wg-quick", "up", &file]);
}

/// Puts a program of the test's before that of the system.
fn script(host: &Host, name: &str, text: &str) {
    host.write(&format!("/run/bin/{name}"), text);
    host.ok(&["chmod", "755", &format!("/run/bin/{name}")]);
}

/// Starts what answers whoever connects to that host.
pub(crate) fn serve(host: &Host) -> Daemon {
    host.write("/home/op/server.py", SERVER);
    let daemon = host.daemon("server", &["python3", "/home/op/server.py"]);
    wait_until("a server to answer", 30, || ask(host, "127.0.0.1"));
    daemon
}

/// As whom the server at that address sees this host; `None` when it is not reached within two seconds.
pub(crate) fn ask(host: &Host, address: &str) -> Option<String> {
    let script = format!("exec 3<>/dev/tcp/{address}/9000 && read -r line <&3 && echo $line");
    let outcome = host.run(&["timeout", "2", "bash", "-c", &script]);
    (outcome.code == 0).then(|| outcome.stdout.trim().to_owned())
}

/// The same of a server that is to be reached, however long that takes.
pub(crate) fn reach(host: &Host, address: &str) -> Option<String> {
    Some(wait_until(&format!("{} to reach {address}", host.name()), 30, || ask(host, address)))
}

/// Starts a connection to that address that lasts as long as packets get through now and then.
pub(crate) fn call(host: &Host, address: &str) -> Daemon {
    host.write("/home/op/caller.py", CALLER);
    host.daemon("caller", &["python3", "/home/op/caller.py", address])
}

/// How often that connection's other end has answered. It must not be broken.
pub(crate) fn answered(host: &Host) -> u64 {
    assert!(!host.path("/home/op/broken").exists(), "the connection is broken");
    host.read("/home/op/answered").trim().parse().unwrap_or(0)
}

/// Lets a host ask for its lease, as it does when it starts.
pub(crate) fn lease(host: &Host) {
    host.ok(&["dhclient", "-4", "-1", "-lf", "/tmp/leases", "-pf", "/tmp/dhclient.pid", "eth0"]);
}

/// A host that knows nobody yet, with that hardware address.
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
