//! Networks of only the nodes of a job.

use std::fs;
use std::net::{TcpListener, UdpSocket};

use hostler_testkit::{SharedCluster, wait_until};

use crate::{ADA, HOSTLER, run};

/// The two ranks of a job connect to each other, try to reach anything else, and connect again when the file `go-JOB` exists.
const RANKS: &str = r#"
import hashlib, os, socket, sys, time
rank, job, port = int(os.environ["RANK"]), os.environ["HOSTLER_JOB_ID"], int(os.environ["MASTER_PORT"])
outside = (sys.argv[1], int(sys.argv[2]))
nodes = os.environ["HOSTLER_NODE_LIST"].split(",")
addresses = os.environ["HOSTLER_NODE_ADDRESSES"].split(",")
assert socket.gethostname() == nodes[rank]
assert [socket.gethostbyname(node) for node in nodes] == addresses, addresses
assert os.environ["MASTER_ADDR"] == addresses[0]
other = nodes[1 - rank]
content = bytes(range(256)) * 8192

def connect(to, patience=30):
    until = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(to, timeout=1)
        except OSError as error:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)

def meet(server):
    connection = server.accept()[0] if rank == 0 else connect((os.environ["MASTER_ADDR"], port))
    connection.settimeout(60)
    return connection

def swap(connection, text):
    """Both send a large text at once, and the job's number, by which another job would be noticed."""
    import threading
    sent = (text + job).encode() + content
    sender = threading.Thread(target=connection.sendall, args=(sent,))
    sender.start()
    got = b""
    while len(got) < len(sent):
        piece = connection.recv(1 << 20)
        assert piece, "closed early"
        got += piece
    sender.join()
    assert got == sent

# A wildcard, so that only the network decides who connects.
server = socket.create_server(("", port)) if rank == 0 else None
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 7000))
connection = meet(server)
swap(connection, "first ")
udp.settimeout(0.2)
heard = None
while heard is None:
    udp.sendto(str(rank).encode() * 20000, (other, 7000))
    try:
        heard = udp.recvfrom(65536)
    except TimeoutError:
        pass
# The other one may still wait for a datagram.
udp.sendto(str(rank).encode() * 20000, (other, 7000))
assert heard == (str(1 - rank).encode() * 20000, (addresses[1 - rank], 7000)), heard[1]

def fails(what):
    try:
        what()
    except OSError:
        return
    raise AssertionError("this must fail")

# The machine, its network, an address of the range without a node, and packets with another source.
for address in [outside, ("127.0.0.1", outside[1]), ("192.0.2.1", 80), ("10.0.0.3", outside[1]), ("10.0.0.0", 80)]:
    fails(lambda: socket.create_connection(address, timeout=0.3))
fails(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
fails(lambda: os.open("/dev/net/tun", os.O_RDWR))
stray = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stray.bind(("127.0.0.1", 0))
try:
    stray.sendto(b"from another address", (other, 7000))
except OSError:
    pass
# A flood, which must lose packets rather than stop the node.
for _ in range(3000):
    stray = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if _ == 0 else stray
    stray.sendto(b"x" * 30000, (other, 7001))
open(f"ready-{job}-{rank}", "w").close()
while not os.path.exists(f"go-{job}"):
    time.sleep(0.02)
swap(connection, "second ")
swap(meet(server), "third ")
print(rank, "done")
"#;

#[test]
fn sandboxes_of_a_job_reach_each_other_and_nothing_else_also_after_a_restart_of_an_agent() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.add_node("n2");
    cluster.write(ADA, "ranks.py", RANKS);
    let home = cluster.home_of(ADA);
    // A server of the machine, at the address that the machine has in its network, if it has one.
    let route = UdpSocket::bind("0.0.0.0:0").expect("a free port");
    let ip = route
        .connect("192.0.2.1:9")
        .and_then(|()| route.local_addr())
        .map_or_else(|_| "127.0.0.1".to_owned(), |at| at.ip().to_string());
    let server = TcpListener::bind((ip.as_str(), 0)).expect("a free port");
    let port = server.local_addr().expect("bound").port().to_string();
    let options = ["run", "--sandbox", "--network", "job", "-N", "2", "-c", "1", "-m", "100M"];
    let start = |cluster: &SharedCluster| {
        cluster.ok(ADA, &[&options[..], &["--detach", "--", "python3", "ranks.py", &ip, &port]].concat())
    };
    // Two jobs at once have the same addresses.
    let jobs = [start(&cluster), start(&cluster)];
    let exists = |name: String| home.join(name).exists();
    wait_until("both jobs to have met", 60, || {
        let is_ready = |job: &String| exists(format!("ready-{job}-0")) && exists(format!("ready-{job}-1"));
        let has_ended = |job: &String| !cluster.job(job)["ended_at"].is_null();
        assert!(
            !jobs.iter().any(has_ended),
            "{}{}",
            cluster.ok(ADA, &["logs", &jobs[0]]),
            cluster.ok(ADA, &["logs", &jobs[1]])
        );
        jobs.iter().all(is_ready).then_some(())
    });
    assert!(cluster.ok(ADA, &["job", &jobs[0]]).contains("sandbox    yes, with a network of the job's nodes only"));

    cluster.kill_agent();
    cluster.start_agent();
    for job in &jobs {
        fs::write(home.join(format!("go-{job}")), "").expect("writable");
    }
    for job in &jobs {
        let waited = cluster.run(ADA, &["wait", job]);
        let output = cluster.ok(ADA, &["logs", job]);
        assert_eq!(waited.code, 0, "{waited:?} {output}");
        assert!(output.contains("0 done") && output.contains("1 done"), "{output}");
    }
    // Steps find the other nodes too, and a job on one node has no network.
    let options = ["--network", "job", "-N", "2", "-c", "1", "--first-node"];
    let told = run(&cluster, &options, "hostler step --all hostname | sort");
    assert_eq!((told.stdout.as_str(), told.code), ("n1: n1\nn2: n2\n", 0), "{told:?}");
    let told = run(
        &cluster,
        &["--network", "job"],
        "hostname; ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1",
    );
    assert_eq!((told.stdout.as_str(), told.code), ("sandbox\n    lo\n", 0), "{told:?}");

    // An open interface would keep the network of its sandbox.
    let files = format!("/proc/{}/fd", cluster.agent_pid());
    wait_until("the agent to close the interfaces", 60, || {
        let open = fs::read_dir(&files).expect("the agent runs").flatten();
        let is_interface = |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|it| it.ends_with("net/tun"));
        (!open.into_iter().any(|file| is_interface(&file))).then_some(())
    });
}
