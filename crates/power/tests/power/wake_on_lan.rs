//! Wake-on-LAN: the packet on the wire, and detection of the power state.

use std::ffi::OsStr;
use std::fs;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use hostler_model::NodeName;
use hostler_power::{Answer, Controller, ControllerConfig, Fault, FaultKind, Reach, Site, Supply, Verb, WakeUp};
use hostler_testkit::{Network, wait_until};

use crate::common::{free_port, site};

const MAC: &str = "52:54:00:12:34:56";

/// Prints the first packet for the port on the wire, with its destination address, source address and content.
const CAPTURE: &str = r#"
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
wire.bind(("eth0", 0))
print("listening", flush=True)
seen = {}
while len(seen) < int(sys.argv[2]):
    frame = wire.recv(2048)
    ip = frame[14:]
    if ip[9] != 17:
        continue
    udp = ip[(ip[0] & 15) * 4:]
    if int.from_bytes(udp[2:4], "big") != int(sys.argv[1]):
        continue
    to = socket.inet_ntoa(ip[16:20])
    seen[to] = seen.get(to, 0) + 1
    print(frame[:6].hex(), socket.inet_ntoa(ip[12:16]), to, udp[8:].hex(), flush=True)
"#;

/// Runs on a test host in place of the head.
fn wake(path: &OsStr) {
    let text = fs::read_to_string(path).expect("the test wrote it");
    let config: ControllerConfig = toml::from_str(&text).expect("valid");
    let controller = Controller::new(&"r1".parse().expect("a name"), &config, &site()).expect("a valid configuration");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert_eq!(runtime.block_on(controller.act(Verb::On)), Ok(Answer::Accepted));
}

#[test]
fn packet_reaches_every_machine_of_the_segment() {
    if let Some(path) = std::env::var_os("HOSTLER_TEST_WAKE") {
        return wake(&path);
    }
    let here = std::env::current_exe().expect("the test program has a path");
    let network = Network::new(here.to_str().expect("the path is UTF-8"));
    let (controller, sleeper) = (network.host("controller"), network.host("sleeper"));
    sleeper.write("/home/op/capture.py", CAPTURE);
    let content = format!("{}{}", "ff".repeat(6), MAC.replace(':', "").repeat(16));
    // A machine that is off has no address, only a network card, so each frame must be a broadcast. Without settings,
    // one frame goes to each interface's segment, even without a default route.
    for (number, (more, port)) in [("", 9), ("broadcast = '10.203.0.255'", 9), ("port = 7", 7)].into_iter().enumerate()
    {
        let log = format!("/home/op/capture-{number}.log");
        let script = format!("exec python3 /home/op/capture.py {port} 1 > {log} 2>&1");
        let _capture = sleeper.daemon("capture", &["sh", "-c", &script]);
        wait_until("the wire to be listened to", 20, || sleeper.read(&log).contains("listening").then_some(()));
        controller.write("/home/op/r1.toml", format!("kind = 'wake_on_lan'\nmac = '{MAC}'\n{more}\n"));
        controller.ok(&[
            "env",
            "HOSTLER_TEST_WAKE=/home/op/r1.toml",
            "hostler",
            "--exact",
            "wake_on_lan::packet_reaches_every_machine_of_the_segment",
            "--nocapture",
        ]);
        let expected = format!("ffffffffffff {} 10.203.0.255 {content}", controller.address());
        wait_until("the packet to come by", 10, || {
            sleeper.read(&log).lines().any(|line| line == expected).then_some(())
        });
    }
}

/// A head with one node, whose agent's state is configurable.
#[derive(Default)]
struct Nodes {
    is_alive: Mutex<bool>,
    asked: Mutex<Vec<String>>,
}

impl Reach for Nodes {
    fn relay<'a>(&'a self, relay: &'a NodeName, packet: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>> {
        self.asked.lock().expect("the lock is not poisoned").push(format!("{relay} wakes {}", packet.mac));
        Box::pin(async { Ok(()) })
    }

    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>> {
        self.asked.lock().expect("the lock is not poisoned").push(format!("{node} shuts down"));
        Box::pin(async { Ok(()) })
    }

    fn is_alive(&self, _: &NodeName) -> bool {
        *self.is_alive.lock().expect("the lock is not poisoned")
    }
}

fn with_nodes(more: &str) -> (Arc<Nodes>, Controller) {
    let nodes = Arc::new(Nodes::default());
    let config: ControllerConfig =
        toml::from_str(&format!("kind = 'wake_on_lan'\nmac = '{MAC}'\nrelay = 'n1'\n{more}")).expect("valid");
    let site = Site::new(Arc::clone(&nodes) as Arc<dyn Reach>);
    (nodes, Controller::new(&"r1".parse().expect("a name"), &config, &site).expect("a valid configuration"))
}

#[tokio::test]
async fn relay_wakes_the_machine_and_its_agent_shuts_it_down() {
    let (nodes, controller) = with_nodes("");
    assert_eq!(controller.act(Verb::OffGracefully).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    *nodes.is_alive.lock().expect("the lock is not poisoned") = true;
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    let fault = controller.act(Verb::OffByForce).await.expect_err("not supported");
    assert_eq!(fault.kind(), FaultKind::Unsupported);
    assert_eq!(controller.act(Verb::OffGracefully).await, Ok(Answer::Accepted));
    assert_eq!(
        *nodes.asked.lock().expect("the lock is not poisoned"),
        [format!("n1 wakes {MAC}"), "r1 shuts down".to_owned()]
    );
}

#[tokio::test]
async fn machine_without_agent_is_on_if_its_probe_responds() {
    let port = free_port();
    let (nodes, controller) = with_nodes(&format!("probe = '127.0.0.1:{port}'"));
    assert_eq!(
        controller.act(Verb::On).await,
        Ok(Answer::Confirmed(Supply::On)),
        "a refused connection counts as a response"
    );
    assert!(nodes.asked.lock().expect("the lock is not poisoned").is_empty());
    let (_, controller) = with_nodes("probe = 'nowhere'");
    assert_eq!(controller.act(Verb::On).await.expect_err("not an address").kind(), FaultKind::Confused);
}
