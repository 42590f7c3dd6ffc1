//! A machine without a controller: a node on its segment sends a wake-on-LAN packet, and its agent shuts it down.

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{self, Receiver};

use hostler_testkit::{Daemon, Host, Network, wait_until};

use crate::timeline::Timeline;

const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// Replaces the system's shutdown command; logs the call.
const SHUTDOWN: &str = "#!/bin/sh\necho \"$0 $*\" >> /home/op/shutdown\n";

/// The network card of a machine that is off; receives wake-on-LAN packets.
fn packets(host: &Host) -> Receiver<String> {
    // Capacity for more packets than the test expects.
    let (heard, hears) = mpsc::sync_channel(8);
    drop(host.thread(move || {
        let socket = UdpSocket::bind("0.0.0.0:9").expect("the port is free on this host");
        let mut packet = [0; 256];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            let magic =
                [[0xff; 6], MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC, MAC].concat();
            if packet[..length] == magic && heard.send(from.ip().to_string()).is_err() {
                return;
            }
        }
    }));
    hears
}

/// Boots a machine and starts its agent.
fn boot(host: &Host) -> Daemon {
    for name in ["systemctl", "shutdown", "poweroff"] {
        let path = format!("/run/bin/{name}");
        host.write(&path, SHUTDOWN);
        std::fs::set_permissions(host.path(&path), std::fs::Permissions::from_mode(0o755))
            .expect("the test owns the file");
    }
    let feature = host.name();
    let agent = ["hostler", "agent", "run", "--root-jobs", "--shared-machine", "--cpus", "0-1", "--feature", feature];
    host.daemon("agent", &agent)
}

#[test]
fn packet_wakes_a_machine_and_its_agent_shuts_it_down() {
    let timeline = Timeline::new("wake_on_lan");
    let network = Network::new(env!("CARGO_BIN_EXE_hostler"));
    let (head, _daemon) = network.head();
    let (relay, mut sleeper) = (network.host("relay"), network.host("sleeper"));
    let card = network.host("card");
    let hears = packets(&card);
    for host in [&relay, &sleeper] {
        host.join(&head);
        let _: Daemon = boot(host);
    }
    let up =
        || head.json(&["hostler", "nodes"]).as_array().expect("a list").iter().filter(|it| it["state"] == "up").count();
    wait_until("both nodes to be up", 60, || (up() == 2).then_some(()));
    let [a, b, c, d, e, f] = MAC;
    head.write(
        "/etc/hostler/power.toml",
        format!(
            "idle = '2s'\nmin_up = '0s'\nwatch = '500ms'\npoll = '1s'\n[nodes.sleeper.controller]\nkind = 'wake_on_lan'\n\
             mac = '{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}'\nrelay = 'relay'\nbroadcast = '10.203.0.255'\n"
        ),
    );
    let power = || head.json(&["hostler", "info", "--energy"])["nodes"]["sleeper"]["state"].as_str().map(str::to_owned);
    let is = |wanted: &str| power().as_deref() == Some(wanted);

    for round in 0..2 {
        wait_until("the agent to shut the machine down", 60, || {
            (!sleeper.read("/home/op/shutdown").is_empty()).then_some(())
        });
        let said = sleeper.read("/home/op/shutdown");
        timeline.tell(format!("the agent says: {said}"));
        assert!(said.starts_with("/run/bin/systemctl poweroff\n"), "{said}");
        assert!(!is("off"), "it is still shutting down");
        sleeper.power_off();
        timeline.tell("the machine is off");
        wait_until("the head to report the node as off", 60, || is("off").then_some(()));
        if round == 1 {
            break;
        }
        sleeper.write("/home/op/shutdown", "");
        assert!(hears.try_recv().is_err(), "no packet was sent");

        let job = head.ok(&["hostler", "run", "--detach", "--constraint", "sleeper", "-m", "16M", "--", "uname", "-n"]);
        let from = hears.recv_timeout(std::time::Duration::from_secs(60)).expect("the packet comes");
        timeline.tell(format!("the packet comes, from {from}"));
        assert_eq!(from, relay.address(), "sent by a node of the segment, not by the head");
        assert!(head.ok(&["hostler", "why", &job]).contains("waking sleeper"));
        sleeper.power_on();
        let _: Daemon = boot(&sleeper);
        head.ok(&["hostler", "wait", &job]);
        assert_eq!(head.ok(&["hostler", "logs", &job]), "sleeper");
        timeline.tell("the job has run there");
    }
    timeline.show();
}
