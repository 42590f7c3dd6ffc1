//! The gateway with real namespaces, packets, leases and tunnels: what it permits, what it blocks, and rollbacks.

mod lab;
mod systemd;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use hostler_testkit::{Daemon, wait_until};
use lab::{Lab, answered, ask, assert_same, bring_up, call, lease, reach, serve};
use serde_json::Value;
use systemd::Machine;

/// The controller's address, as the server sees it for translated packets.
fn seen_as(lab: &Lab) -> Option<String> {
    Some(lab.controller.address().to_owned())
}

#[test]
fn nodes_get_leases_and_names_and_reach_the_outside() {
    let names = ["server", "laptop", "r1", "r2", "bmc"];
    let lab = Lab::with(&names);
    let [server, laptop, r1, r2, bmc] = names.map(|name| lab.host(name));
    let _daemons: Vec<Daemon> = [server, &lab.controller, r1, r2, bmc].map(serve).into();
    // The controller's resolver, and a dnsmasq that does not belong to the gateway.
    lab.controller.write("/etc/resolv.conf", "nameserver 127.0.0.1\n");
    let theirs = "dnsmasq --no-resolv --listen-address=127.0.0.1 --bind-interfaces --conf-file=/dev/null --pid-file \
                  --address=/theirs.example/192.0.2.9";
    let _theirs = lab.controller.daemon("theirs", &["sh", "-c", &format!("exec {theirs} --keep-in-foreground")]);
    wait_until("the other dnsmasq to answer", 10, || {
        (lab.controller.run(&["getent", "hosts", "theirs.example"]).code == 0).then_some(())
    });

    lab.set_up();
    lease(r1);
    lease(r2);
    lease(bmc);
    assert!(r1.ok(&["ip", "-4", "address", "show", "dev", "eth0"]).contains("inet 10.42.0.11/24"));
    assert!(r2.ok(&["ip", "-4", "address", "show", "dev", "eth0"]).contains("inet 10.42.0.12/24"));
    assert!(bmc.ok(&["ip", "-4", "address", "show", "dev", "eth0"]).contains("inet 10.43.0.11/24"));
    assert_eq!(bmc.ok(&["ip", "route", "show", "default"]), "", "controllers get no default route");

    for (name, address) in [("r2", "10.42.0.12"), ("r2.cluster", "10.42.0.12"), ("head", "10.42.0.1")] {
        assert!(r1.ok(&["getent", "hosts", name]).starts_with(address), "{name}");
    }
    assert!(r1.ok(&["getent", "hosts", "theirs.example"]).starts_with("192.0.2.9"), "by the controller's own resolver");

    assert_eq!(reach(r1, server.address()), seen_as(&lab), "the server sees the controller");
    assert_eq!(reach(r1, "10.42.0.12").as_deref(), Some("10.42.0.11"), "nodes see each other");
    assert_eq!(reach(r1, "10.42.0.1").as_deref(), Some("10.42.0.11"), "the head sees nodes");
    // Packets from outside are blocked, even with a route.
    laptop.ok(&["ip", "route", "add", "10.42.0.0/24", "via", lab.controller.address()]);
    laptop.ok(&["ip", "route", "add", "10.43.0.0/24", "via", lab.controller.address()]);
    assert_eq!(ask(laptop, "10.42.0.11"), None);

    assert_eq!(
        reach(&lab.controller, "10.43.0.11").as_deref(),
        Some("10.43.0.1"),
        "the controller reaches the management network"
    );
    assert_eq!(ask(r1, "10.43.0.11"), None, "nodes do not reach it");
    assert_eq!(ask(laptop, "10.43.0.11"), None);
    bmc.ok(&["ip", "route", "add", "default", "via", "10.43.0.1"]);
    assert_eq!(ask(bmc, "10.42.0.11"), None, "management controllers reach no node");
    assert_eq!(ask(bmc, server.address()), None);

    let status: Value = serde_json::from_str(&lab.gateway_ok(&["status", "--json"])).expect("JSON");
    let leases = status["running"]["leases"].as_array().expect("a list");
    let has =
        |name: &str, address: &str| leases.iter().any(|lease| lease["name"] == name && lease["address"] == address);
    assert!(has("r1", "10.42.0.11") && has("r2", "10.42.0.12") && has("r1-mgmt", "10.43.0.11"), "{status}");
    assert_eq!(status["running"]["problems"], serde_json::json!([]), "{status}");
}

/// Requests a file by TFTP and prints what arrives within two seconds.
const FETCH: &str = "\
import socket, sys
ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ask.settimeout(2)
ask.sendto(b'\\0\\1boot.txt\\0octet\\0', (sys.argv[1], 69))
try:
    print(ask.recv(600)[4:].decode())
except (TimeoutError, ConnectionError):
    sys.exit(1)
";

#[test]
fn reserved_names_are_not_served_and_boot_files_are_only_for_nodes() {
    let lab = Lab::with(&["r1", "r2", "bmc"]);
    let [r1, guest, bmc] = ["r1", "r2", "bmc"].map(|name| lab.host(name));
    let nodes = "address = \"10.42.0.1/24\"\n";
    let pool = format!("{nodes}pool = \"10.42.0.100-10.42.0.150\"\n");
    let listed = "[[node]]\nname = \"r2\"\nmac = \"52:54:00:00:01:02\"\naddress = \"10.42.0.12\"\n";
    let boot = "[pxe]\nboot_file = \"boot.txt\"\ntftp_root = \"/home/op/tftp\"\n";
    let description = lab.description().replace(nodes, &pool).replace(listed, boot);
    assert!(description.contains("pool") && description.contains("tftp_root"), "{description}");
    lab.describe(&description);
    lab.controller.write("/home/op/tftp/boot.txt", "start here");
    lab.set_up();
    lease(r1);
    lease(bmc);
    // A guest from the pool claims names that other machines look up automatically.
    for claimed in ["wpad", "isatap", "localhost"] {
        guest.write("/tmp/claims.conf", format!("send host-name \"{claimed}\";\n"));
        let ask = ["dhclient", "-4", "-1", "-cf", "/tmp/claims.conf", "-lf", "/tmp/leases", "-pf", "/tmp/pid", "eth0"];
        guest.ok(&ask);
        assert!(guest.ok(&["ip", "-4", "address", "show", "dev", "eth0"]).contains("inet 10.42.0.1"), "it has a lease");
        let found = r1.run(&["getent", "hosts", &format!("{claimed}.cluster")]);
        assert_ne!(found.code, 0, "{claimed} leads to the guest: {found:?}");
        guest.ok(&["sh", "-c", "kill $(cat /tmp/pid); rm -f /tmp/leases; ip address flush dev eth0"]);
    }
    assert!(r1.ok(&["getent", "hosts", "r1.cluster"]).starts_with("10.42.0.11"), "configured names have priority");

    for host in [r1, bmc] {
        host.write("/home/op/fetch.py", FETCH);
    }
    assert_eq!(r1.ok(&["python3", "/home/op/fetch.py", "10.42.0.1"]), "start here");
    for address in ["10.43.0.1", "10.42.0.1"] {
        let fetched = bmc.run(&["python3", "/home/op/fetch.py", address]);
        assert_ne!(fetched.code, 0, "a controller was served by {address}: {fetched:?}");
    }
    // Controllers get no DNS answers either.
    bmc.write("/etc/resolv.conf", "nameserver 10.43.0.1\noptions timeout:1 attempts:1\n");
    let found = bmc.run(&["getent", "hosts", "r1.cluster"]);
    assert_ne!(found.code, 0, "{found:?}");
}

#[test]
fn vpn_admits_added_clients_until_they_are_revoked() {
    let names = ["laptop", "r1", "bmc"];
    let lab = Lab::with(&names);
    let [laptop, r1, bmc] = names.map(|name| lab.host(name));
    let _daemons: Vec<Daemon> = [&lab.controller, r1, bmc].map(serve).into();
    let early = lab.gateway(&["client", "add", "laptop"]);
    assert!(early.code == 1 && early.stderr.contains("no gateway has been set up"), "{early:?}");
    lab.set_up();
    lease(r1);
    lease(bmc);

    // A client with an unknown key and otherwise correct settings gets no connection.
    let stranger = lab.gateway_ok(&["client", "add", "stranger"]);
    let key = laptop.ok(&["wg", "genkey"]);
    let own = |line: &str| {
        line.strip_prefix("PrivateKey = ").map_or_else(|| line.to_owned(), |_| format!("PrivateKey = {key}"))
    };
    let profile: String = stranger.lines().map(|line| own(line) + "\n").collect();
    bring_up(laptop, "wrong", &profile);
    assert_eq!(ask(laptop, "10.44.0.1"), None, "a key that was not added gives no access");
    laptop.ok(&["wg-quick", "down", "/home/op/wrong.conf"]);
    lab.gateway_ok(&["client", "revoke", "stranger"]);

    lab.connect_laptop();
    let own_address = Some("10.44.0.2".to_owned());
    wait_until("the laptop to reach the head", 30, || ask(laptop, "10.44.0.1"));
    assert_eq!(reach(laptop, "10.44.0.1"), own_address);
    assert_eq!(reach(laptop, "10.42.0.1"), own_address, "the head has two addresses for it");
    assert_eq!(reach(laptop, "10.42.0.11"), own_address, "nodes see the client's address");
    assert!(laptop.ok(&["getent", "hosts", "r1"]).starts_with("10.42.0.11"), "names are resolved");
    // The management network is blocked even if the client routes its addresses through the tunnel.
    let peer = laptop.ok(&["wg", "show", "vpn", "peers"]);
    laptop.ok(&["wg", "set", "vpn", "peer", &peer, "allowed-ips", "10.44.0.0/24,10.42.0.0/24,10.43.0.0/24"]);
    laptop.ok(&["ip", "route", "add", "10.43.0.0/24", "dev", "vpn"]);
    assert_eq!(ask(laptop, "10.43.0.11"), None, "clients do not reach the management network");
    assert_eq!(ask(r1, "10.44.0.2"), None, "nodes do not reach clients");

    let clients: Value = serde_json::from_str(&lab.gateway_ok(&["client", "list", "--json"])).expect("JSON");
    let [client] = clients.as_array().expect("a list").as_slice() else { panic!("{clients}") };
    assert!(client["handshake_secs"].is_u64() && client["received_bytes"].as_u64() > Some(0), "{client}");
    assert!(lab.gateway_ok(&["client", "list"]).contains(laptop.address()), "the list says from where");

    lab.gateway_ok(&["client", "revoke", "laptop"]);
    assert_eq!(ask(laptop, "10.44.0.1"), None, "access ends immediately");
    assert_eq!(ask(laptop, "10.42.0.11"), None);
    let again = lab.gateway(&["client", "revoke", "laptop"]);
    assert!(again.code == 1 && again.stderr.contains("no client is called laptop"), "{again:?}");
}

#[test]
fn profiles_are_private() {
    let lab = Lab::with(&[]);
    lab.set_up();
    let code = lab.gateway(&["client", "add", "phone", "--qr"]);
    assert!(code.stdout.contains("[Interface]\nPrivateKey = ") && code.stderr.contains("▀▀▀▀▀"), "{code:?}");
    let key = code.stdout.lines().find_map(|line| line.strip_prefix("PrivateKey = ")).expect("a key").to_owned();
    let kept = lab.controller.run(&["grep", "-rlF", &key, "/var/lib", "/etc", "/run", "/tmp"]);
    assert_eq!((kept.code, kept.stdout.as_str()), (1, ""), "the client's key is not stored");
    lab.gateway_ok(&["client", "add", "tablet", "--output", "/home/op/tablet.conf"]);
    assert_eq!(lab.controller.ok(&["stat", "-c", "%a", "/home/op/tablet.conf"]), "600");
    let taken = lab.gateway(&["client", "add", "desktop", "--output", "/home/op/tablet.conf"]);
    assert!(taken.code == 1 && lab.gateway_ok(&["client", "list"]).lines().count() == 3, "{taken:?}");
    let open =
        lab.controller.ok(&["sh", "-c", "find /var/lib/hostler/gateway ! -perm 600 ! -perm 700 ! -name 'dnsmasq.*'"]);
    assert_eq!(open, "", "only root can read keys");
}

#[test]
fn apply_that_cuts_off_the_caller_is_rolled_back() {
    let lab = Lab::with(&["laptop"]);
    let laptop = lab.host("laptop");
    let _server = serve(&lab.controller);
    lab.set_up();
    lab.connect_laptop();
    wait_until("the laptop to reach the head", 30, || ask(laptop, "10.44.0.1"));
    let _caller = call(laptop, "10.44.0.1");
    wait_until("the caller to be answered", 20, || (answered(laptop) > 5).then_some(()));
    let before = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
    lab.describe(&lab.description().replace(&lab.vpn(), ""));

    // The change removes the VPN, which breaks the administrator's connection and ends the command.
    let apply = lab.controller.daemon("apply", &["hostler", "gateway", "apply", "--confirm-within", "4s"]);
    wait_until("the VPN to be removed", 20, || {
        (!lab.controller.ok(&["ip", "link"]).contains("hostler-vpn")).then_some(())
    });
    drop(apply);
    let at_the_cut = answered(laptop);
    assert_eq!(ask(laptop, "10.44.0.1"), None, "it is really cut off");
    wait_until("the change to be rolled back", 30, || lab.has_no_trial().then_some(()));
    wait_until("the same connection to go on", 60, || (answered(laptop) > at_the_cut + 3).then_some(()));
    assert_eq!(lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]), before);
    let late = lab.gateway(&["confirm"]);
    assert!(late.code == 1 && late.stderr.contains("the change was not confirmed in time"), "{late:?}");
}

#[test]
fn rollback_is_reported_until_the_configuration_is_applied() {
    let lab = Lab::with(&[]);
    lab.set_up();
    assert!(lab.gateway_ok(&["status"]).starts_with("gateway    running as configured\n"));
    lab.describe(&lab.description().replace("10.42.0.12", "10.42.0.13"));
    lab.gateway_ok(&["apply", "--confirm-within", "1s"]);
    wait_until("the change to be rolled back", 30, || lab.has_no_trial().then_some(()));
    let status = lab.gateway_ok(&["status"]);
    assert!(status.starts_with("gateway    running; the last change was rolled back\nrollback   "), "{status}");
    lab.describe(&lab.description());
    assert!(lab.gateway(&["apply", "--yes"]).stderr.contains("nothing to change"));
    let status = lab.gateway_ok(&["status"]);
    assert!(status.starts_with("gateway    running as configured\n") && !status.contains("rollback"), "{status}");
}

#[test]
fn plan_lists_all_mistakes_and_missing_programs() {
    let lab = Lab::with(&[]);
    let wrong = lab
        .description()
        .replace("10.42.0.12", "10.42.9.9")
        .replace("interface = \"eth2\"", "interface = \"eth7\"")
        .replace("name = \"r1\"", "nam = \"r1\"");
    lab.describe(&wrong);
    let refused = lab.gateway(&["plan"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    for said in
        ["4 mistakes in", "no interface `eth7`", "node.name: required, but missing", "unknown field `nam`", "10.42.9.9"]
    {
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
    }

    let refused = lab.gateway(&["plan", "--diagram"]);
    assert!(refused.code == 1 && refused.stderr.contains("4 mistakes in"), "{refused:?}");

    // A machine without wireguard-go, whose kernel may or may not support WireGuard.
    lab.describe(&lab.description());
    let diagram = lab.gateway_ok(&["plan", "--diagram"]);
    assert!(diagram.starts_with("outside network\n") && diagram.contains(" r1  10.42.0.11  "), "{diagram}");
    let links = "mkdir /tmp/few && for it in hostler ip nft wg dnsmasq diff sh timeout unshare; do ln -s $(command -v $it) /tmp/few/; done";
    lab.controller.ok(&["sh", "-c", links]);
    let plan = lab.controller.run(&["env", "PATH=/tmp/few", "hostler", "gateway", "plan"]);
    assert_eq!(plan.code, 2, "{plan:?}");
    let by_kernel = lab.controller.run(&["ip", "link", "add", "probe", "type", "wireguard"]).code == 0;
    let said =
        "`apply` would fail: the kernel does not support WireGuard, and the program `wireguard-go` is not installed";
    assert_eq!(plan.stderr.contains(said), !by_kernel, "{plan:?}");
    assert!(!lab.gateway(&["plan"]).stderr.contains("would fail"), "with wireguard-go nothing is missing");
    assert!(!lab.controller.ok(&["ip", "link"]).contains("hostler-vpn"), "a plan changes nothing");

    lab.controller.ok(&["rm", "/tmp/few/wg"]);
    let plan = lab.controller.run(&["env", "PATH=/tmp/few", "hostler", "gateway", "plan"]);
    assert!(plan.stderr.contains("the program `wg` is not installed: install the program"), "{plan:?}");
}

#[test]
fn killed_apply_is_rolled_back_at_once() {
    let lab = Lab::with(&["laptop"]);
    let laptop = lab.host("laptop");
    let _server = serve(&lab.controller);
    lab.set_up();
    lab.connect_laptop();
    wait_until("the laptop to reach the head", 30, || ask(laptop, "10.44.0.1"));
    let _caller = call(laptop, "10.44.0.1");
    wait_until("the caller to be answered", 20, || (answered(laptop) > 5).then_some(()));
    let before = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
    lab.describe(&lab.description().replace(&lab.vpn(), "").replace("10.42.0.12", "10.42.0.13"));

    lab.controller.write("/run/stall", "");
    let apply = lab.controller.daemon("apply", &["hostler", "gateway", "apply", "--confirm-within", "10m"]);
    wait_until("`apply` to be in the middle of the change", 20, || {
        let is_cut = !lab.controller.ok(&["ip", "link"]).contains("hostler-vpn");
        (is_cut && lab.controller.ok(&["ps", "-e", "-o", "args="]).contains("sleep 1000")).then_some(())
    });
    lab.controller.ok(&["rm", "/run/stall"]);
    apply.kill_9();
    let at_the_cut = answered(laptop);
    wait_until("the change to be rolled back", 30, || lab.has_no_trial().then_some(()));
    wait_until("the same connection to go on", 60, || (answered(laptop) > at_the_cut + 3).then_some(()));
    assert_eq!(lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]), before);
    assert!(lab.gateway_ok(&["status"]).contains("killed before it finished"));
    lab.describe(&lab.description());
    assert_eq!(lab.gateway(&["plan"]).code, 0, "the configuration is as before");
}

#[test]
fn apply_killed_at_any_moment_is_rolled_back() {
    let lab = Lab::with(&[]);
    lab.set_up();
    let look = || {
        let rules = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
        let sysctls =
            lab.controller.ok(&["sh", "-c", "grep -r . /proc/sys/net/ipv4/conf | grep -v hostler-vpn | sort"]);
        let addresses = lab.controller.ok(&["sh", "-c", "ip -4 -brief address | awk '{ print $1, $3, $4 }' | sort"]);
        (rules, sysctls, addresses)
    };
    let before = look();
    let other = lab.description().replace("10.42.0.", "10.45.0.").replace(&lab.vpn(), "");
    for (number, moment_ms) in [3, 30, 60, 90, 130, 180, 240, 320, 450, 800].into_iter().enumerate() {
        lab.describe(&other);
        // Without a trial period, an incomplete change is rolled back too.
        let is_short = number % 2 == 1 && moment_ms < 200;
        let how = if is_short { &["--yes"][..] } else { &["--confirm-within", "1s"] };
        let apply = lab.controller.daemon("apply", &[&["hostler", "gateway", "apply"], how].concat());
        // Kill `apply` at a random moment, so wait for a time and not for a condition.
        std::thread::sleep(std::time::Duration::from_millis(moment_ms));
        apply.kill_9();
        wait_until("the change to be rolled back", 30, || lab.has_no_trial().then_some(()));
        if is_short && lab.gateway(&["plan"]).code == 0 {
            // The change was complete before the kill, and needs no confirmation with --yes.
            lab.describe(&lab.description());
            lab.set_up();
        }
        lab.describe(&lab.description());
        let plan = lab.gateway(&["plan"]);
        assert_eq!(plan.code, 0, "killed after {moment_ms} ms: {plan:?}\n{}", lab.notes());
        assert_eq!(look(), before, "killed after {moment_ms} ms");
    }
    assert_eq!(lab.gateway(&["apply", "--yes"]).stderr, "nothing to change; the files are loaded again\n");
}

#[test]
fn change_can_be_confirmed_by_enter_or_by_command() {
    let lab = Lab::with(&[]);
    let mut command =
        lab.controller.command(&["script", "-qec", "hostler gateway apply --confirm-within 60s", "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script can be started");
    let mut stdin = child.stdin.take().expect("the stream is piped");
    // Input from before the question confirms nothing.
    stdin.write_all(b"\n").expect("the program reads its input");
    let mut lines = BufReader::new(child.stdout.take().expect("the stream is piped")).lines().map_while(Result::ok);
    let mut wait_for = |text: &str| {
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(text)) {
            said.push(lines.next().unwrap_or_else(|| panic!("it ended without `{text}`: {said:#?}")));
        }
    };
    wait_for("press Enter within 60 s");
    let status: Value = serde_json::from_str(&lab.gateway_ok(&["status", "--json"])).expect("JSON");
    assert!(status["confirm_within_secs"].is_u64() && status["is_guarded"] == true, "{status}");
    stdin.write_all(b"\n").expect("the program reads its input");
    wait_for("the gateway is confirmed");
    assert!(child.wait().expect("the process ends").success());
    assert_eq!(lab.gateway(&["plan"]).code, 0);

    lab.describe(&lab.description().replace("10.42.0.12", "10.42.0.13"));
    assert_eq!(lab.gateway(&["plan"]).code, 2);
    let trial: Value = serde_json::from_str(&lab.gateway_ok(&["apply", "--json"])).expect("JSON");
    assert_eq!((trial["state"].as_str(), trial["confirm_within_secs"].as_u64()), (Some("trial"), Some(60)), "{trial}");
    let second = lab.gateway(&["apply"]);
    assert!(second.code == 1 && second.stderr.contains("waits for confirmation"), "{second:?}");
    lab.gateway_ok(&["confirm"]);
    assert_eq!(lab.gateway(&["plan"]).code, 0);
    assert_eq!(lab.gateway(&["confirm"]).code, 1, "there is nothing left to confirm");
}

#[test]
fn foreign_settings_are_kept_and_remove_restores_the_machine() {
    let lab = Lab::with(&[]);
    let theirs = "table ip nat {\n\tchain POSTROUTING {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\tip saddr 172.17.0.0/16 masquerade\n\t}\n}\n\
                  table inet theirs {\n\tset friends {\n\t\ttype ipv4_addr\n\t\telements = { 192.0.2.1 }\n\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t\tip saddr @friends accept\n\t}\n}\n";
    lab.controller.write("/home/op/theirs.nft", theirs);
    lab.controller.ok(&["nft", "-f", "/home/op/theirs.nft"]);
    // One interface is up with a foreign address, the other is down.
    lab.controller.ok(&["sh", "-c", "ip address add 172.20.0.1/16 dev eth1 && ip link set eth1 up"]);
    lab.controller.ok(&["sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/all/accept_redirects"]);
    let found = lab.fingerprint();

    let plan = lab.gateway(&["plan"]);
    assert_eq!(plan.code, 2, "{plan:?}");
    assert!(
        plan.stdout.contains("+table inet hostler_gateway {")
            && plan.stdout.contains("run: ip address add 10.42.0.1/24 broadcast + dev eth1"),
        "{plan:?}"
    );
    assert!(plan.stderr.contains("nft insert rule inet theirs forward iifname \"eth1\" accept"), "{plan:?}");
    assert_same(&lab.fingerprint(), &found);

    let rules = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
    lab.set_up();
    let with_ours = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
    assert!(with_ours.starts_with(&rules), "their rules are as they were:\n{with_ours}");
    assert_eq!(
        lab.gateway(&["apply", "--yes"]).stderr.lines().last(),
        Some("nothing to change; the files are loaded again")
    );
    assert_eq!(
        lab.controller.ok(&["sysctl", "-n", "net.ipv4.ip_forward"]),
        "0",
        "the machine does not route between other networks"
    );

    // `start` repairs manual changes.
    lab.controller.ok(&[
        "nft",
        "add",
        "rule",
        "inet",
        "hostler_gateway",
        "forward",
        "ip",
        "saddr",
        "192.0.2.77",
        "drop",
    ]);
    let pid = lab.controller.read("/run/hostler-gateway/dnsmasq.pid").trim().to_owned();
    lab.controller.ok(&["kill", "-9", &pid]);
    wait_until("the process to end", 10, || {
        lab.controller
            .ok(&["sh", "-c", &format!("grep State /proc/{pid}/status || echo Z")])
            .contains('Z')
            .then_some(())
    });
    let status = lab.gateway_ok(&["status"]);
    assert!(
        status.contains("problem    `hostler gateway start` would run: ") && status.contains("dnsmasq"),
        "{status}"
    );
    lab.gateway_ok(&["start"]);
    assert_eq!(lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]), with_ours);
    assert_eq!(lab.gateway(&["plan"]).code, 0);
    assert!(lab.gateway_ok(&["status"]).contains("running as configured"));

    lab.gateway_ok(&["client", "add", "laptop"]);
    let nobody_there = lab.gateway(&["remove"]);
    assert!(nobody_there.code == 2 && nobody_there.stderr.contains("--yes"), "{nobody_there:?}");
    lab.gateway_ok(&["remove", "--yes"]);
    assert_same(&lab.fingerprint(), &found);
    lab.gateway_ok(&["remove", "--yes"]);

    // After the rollback of a first change, only the records of the gateway remain, and `remove` deletes them.
    let trial = lab.gateway(&["apply", "--confirm-within", "1s"]);
    assert_eq!(trial.code, 0, "{trial:?}");
    wait_until("the change to be rolled back", 30, || lab.has_no_trial().then_some(()));
    lab.gateway_ok(&["remove", "--yes"]);
    assert_same(&lab.fingerprint(), &found);
}

#[test]
fn impossible_changes_are_reported_and_change_nothing() {
    let lab = Lab::with(&[]);
    let found = lab.fingerprint();
    lab.describe(&lab.description().replace("eth1", "eth7"));
    let wrong = lab.gateway(&["apply", "--yes"]);
    assert!(
        wrong.code == 1 && wrong.stderr.contains("line 5: nodes.interface: this machine has no interface `eth7`"),
        "{wrong:?}"
    );
    lab.describe(&lab.description());
    assert_same(&lab.fingerprint(), &found);

    // If a command fails, earlier commands are undone.
    let taken = "exec python3 -c \"import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 53)); time.sleep(1000)\"";
    let _taken = lab.controller.daemon("taken", &["sh", "-c", taken]);
    wait_until("the port to be taken", 10, || lab.controller.ok(&["ss", "-lun"]).contains(":53 ").then_some(()));
    for arguments in [&["apply", "--yes"][..], &["apply"]] {
        let failed = lab.gateway(arguments);
        assert!(failed.code == 1 && failed.stderr.contains("failed and was rolled back"), "{failed:?}");
        assert!(failed.stderr.contains("Address already in use"), "{failed:?}");
        assert_eq!(lab.controller.ok(&["nft", "list", "ruleset"]), "");
        assert!(!lab.controller.ok(&["ip", "address"]).contains("10.42.0.1"));
    }
    lab.gateway_ok(&["remove", "--yes"]);
}

#[test]
fn all_kinds_of_configuration_are_accepted_by_the_programs() {
    let lab = Lab::with(&[]);
    let all = lab.description();
    let nodes = "address = \"10.42.0.1/24\"\n";
    let pool = format!("{nodes}pool = \"10.42.0.100-10.42.0.150\"\nlease = \"45m\"\ndomain = \"lab.home\"\n");
    let boot = "[pxe]\nboot_file = \"undionly.kpxe\"\nefi_boot_file = \"ipxe.efi\"\n";
    for description in [
        all.replace(nodes, &pool),
        all.replace("\"eth2\"", "\"eth1\""),
        format!("{all}reach = [\"nodes\"]\n"),
        format!("{all}reach = [\"head\", \"management\", \"192.168.7.0/24\"]\n"),
        format!("{all}reach = [\"outside\"]\nport = 4500\n"),
        all.replace(nodes, &format!("{nodes}outside = false\n")).replace(&lab.vpn(), ""),
        format!("{all}\n{boot}server = \"10.42.0.12\"\n"),
        format!("{all}\n{boot}tftp_root = \"/srv\"\n"),
    ] {
        lab.describe(&description);
        let applied = lab.gateway(&["apply", "--yes"]);
        assert_eq!(applied.code, 0, "{description}\n{applied:?}");
        let plan = lab.gateway(&["plan"]);
        assert_eq!(plan.code, 0, "plan shows no change after apply:\n{description}\n{plan:?}");
        assert_eq!(
            plan.stderr.contains("share one interface"),
            description.contains("eth1\"\naddress = \"10.43"),
            "{plan:?}"
        );
    }
}

#[test]
fn only_confirmed_changes_are_restored_after_a_boot() {
    let lab = Lab::with(&["laptop"]);
    let laptop = lab.host("laptop");
    let _server = serve(&lab.controller);
    lab.set_up();
    lab.connect_laptop();
    wait_until("the laptop to reach the head", 30, || ask(laptop, "10.44.0.1"));
    let before = lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]);
    lab.describe(&lab.description().replace("10.42.0.", "10.45.0."));
    lab.gateway_ok(&["apply", "--confirm-within", "10m"]);

    // Simulate a boot, which keeps files but no processes, rules, created interfaces, addresses and kernel settings.
    lab.controller.ok(&["sh", "-c", "kill -9 $(pgrep -f '[g]ateway guard|[w]ireguard-go|[d]nsmasq --conf')"]);
    let boot = "set -e; nft flush ruleset; ip address flush dev eth1; ip address flush dev eth2; ip link set eth1 down; ip link set eth2 down
                for file in /proc/sys/net/ipv4/conf/*/forwarding; do echo 0 > $file; done
                rm -r /run/hostler-gateway";
    lab.controller.ok(&["sh", "-c", boot]);
    wait_until("the VPN to be removed", 10, || {
        (!lab.controller.ok(&["ip", "link"]).contains("hostler-vpn")).then_some(())
    });
    assert!(lab.gateway_ok(&["status"]).contains("the guard process has died"), "no guard process is left");

    lab.gateway_ok(&["start"]);
    assert_eq!(
        lab.controller.ok(&["nft", "--stateless", "list", "ruleset"]),
        before,
        "an unconfirmed change is not restored"
    );
    let status = lab.gateway_ok(&["status"]);
    assert!(status.starts_with("gateway    running; the last change was rolled back\n"), "{status}");
    wait_until("the laptop to reach the head again", 60, || ask(laptop, "10.44.0.1"));
    lab.describe(&lab.description());
    assert_eq!(lab.gateway(&["plan"]).code, 0);
    lab.gateway_ok(&["remove", "--yes", "--keep-clients"]);
    assert_eq!(lab.controller.ok(&["nft", "list", "ruleset"]), "");

    // Since the keys were kept, the earlier profile works again.
    lab.set_up();
    wait_until("the laptop to reach the head once more", 60, || ask(laptop, "10.44.0.1"));
    assert_eq!(lab.gateway_ok(&["client", "list", "-q"]), "laptop");
}

#[test]
fn systemd_supervises_the_gateway() {
    let description = "[outer]\ninterface = \"eth0\"\n\n[nodes]\ninterface = \"eth1\"\naddress = \"10.42.0.1/24\"\n\n\
                       [vpn]\naddress = \"10.44.0.1/24\"\nendpoint = \"192.0.2.7\"\n";
    let mut machine = Machine::new(description);
    let addresses = |machine: &Machine| machine.ok(&["ip", "-4", "-brief", "address"]);
    let is_well = |machine: &Machine| machine.gateway(&["status"]).stdout.starts_with("gateway    running");
    let found = machine.ok(&["find", "/etc/systemd", "/var/lib"]);

    let applied = machine.gateway(&["apply"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let guard = machine.ok(&["systemctl", "show", "--property=MainPID", "--value", "hostler-gateway-guard-*"]);
    let group = machine.ok(&["cat", &format!("/proc/{}/cgroup", guard.trim())]);
    assert!(group.contains("hostler-gateway-guard-"), "the guard does not end with a login session: {group}");
    let kept = machine.gateway(&["confirm"]);
    assert!(kept.stderr.contains("the system restores the gateway at boot"), "{kept:?}");
    wait_until("the guard to end", 10, || {
        (machine.run(&["systemctl", "is-active", "hostler-gateway-guard-*"]).code != 0).then_some(())
    });

    machine.gateway(&["client", "add", "laptop"]);
    for service in ["dnsmasq", "wireguard-go"] {
        let unit = format!("hostler-gateway-{service}");
        let pid = || machine.ok(&["systemctl", "show", "--property=MainPID", "--value", &unit]);
        let before = pid();
        machine.ok(&["systemctl", "kill", "--signal=KILL", &unit]);
        wait_until("the dead service to run again", 30, || {
            (![before.as_str(), "0\n"].contains(&pid().as_str()) && is_well(&machine)).then_some(())
        });
    }
    assert!(machine.ok(&["wg", "show", "hostler-vpn"]).contains("10.44.0.2/32"), "with its clients");

    // Cut the power while a change waits for confirmation: the boot restores the confirmed configuration instead.
    machine.describe(&description.replace("10.42.0.1", "10.45.0.1"));
    assert_eq!(machine.gateway(&["apply", "--confirm-within", "10m"]).code, 0);
    assert!(addresses(&machine).contains("10.45.0.1/24"));
    machine.start_anew();
    wait_until("the gateway to run again", 60, || is_well(&machine).then_some(()));
    assert!(addresses(&machine).contains("10.42.0.1/24") && !addresses(&machine).contains("10.45.0.1/24"));
    machine.describe(description);
    assert_eq!(machine.gateway(&["plan"]).code, 0);

    let removed = machine.gateway(&["remove", "--yes"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(machine.ok(&["find", "/etc/systemd", "/var/lib"]), found);
    assert_eq!(machine.ok(&["nft", "list", "ruleset"]), "");
    assert_eq!(machine.ok(&["systemctl", "list-units", "--all", "--plain", "--no-legend", "hostler*"]), "");
}
