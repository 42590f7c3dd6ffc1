//! Users reach the ports of their own jobs, and no others.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

use hostler_testkit::{Cluster, Outcome, Random, SharedCluster, Size, free_port, kill, program, wait_until};
use nix::sys::signal::Signal;

use crate::{ADA, BOB, Forward, HOSTLER, through_stdio, uid_of};

/// An echo server that prints its port. It answers the end of its input with `end`.
const ECHO: &str = r#"
import socket, sys, threading
def echo(connection):
    while piece := connection.recv(1 << 16):
        connection.sendall(piece)
    connection.sendall(b'end')
    connection.close()
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
server = socket.socket(family)
# Also at addresses that the machine does not have.
server.setsockopt(socket.IPPROTO_IP, 15, 1)
server.bind((sys.argv[1], 0))
server.listen(100)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=echo, args=(server.accept()[0],)).start()
"#;

/// Starts an echo server on this address as a job of Ada. Returns the job's id and the server's port.
fn serve(cluster: &SharedCluster, options: &[&str], address: &str) -> (String, String) {
    cluster.write(ADA, "echo.py", ECHO);
    let run = ["run", "--detach", "-c", "1", "-m", "100M"];
    let id = cluster.ok(ADA, &[&run, options, &["--", "python3", "echo.py", address]].concat());
    let port = wait_until("the server to listen", 60, || {
        let printed = cluster.run(ADA, &["logs", &id]).stdout;
        printed.ends_with('\n').then(|| printed.trim().to_owned())
    });
    (id, port)
}

/// Forwards a port of Ada's job to a free one.
fn forward_port(cluster: &SharedCluster, id: &str, port: &str) -> Forward {
    Forward::start(cluster.command(ADA, &["forward", id, &format!("0:{port}")]), 1)
}

#[test]
fn web_server_of_a_job_is_reached_in_each_way() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.write(ADA, "page.html", "a page of the job");
    let server = "python3 -u -m http.server --bind 127.0.0.1 0 2>&1";
    let id = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "100M", "--", "sh", "-c", server]);
    let port = wait_until("the server to listen", 60, || {
        let printed = cluster.run(ADA, &["logs", &id]).stdout;
        Some(printed.split_once(" port ")?.1.split_once(' ')?.0.to_owned())
    });
    let request = b"GET /page.html HTTP/1.0\r\n\r\n";
    let mut answer = String::new();

    let (first, second) = (format!("0:{port}"), format!("0:{port}"));
    let by_tcp = Forward::start(cluster.command(ADA, &["forward", &id, &first, &second]), 2);
    for local in &by_tcp.local {
        let mut stream = TcpStream::connect(local).expect("the program listens");
        stream.write_all(request).expect("connected");
        stream.read_to_string(&mut answer).expect("text");
    }
    assert_eq!(answer.matches("a page of the job").count(), 2, "{answer}");

    let by_socket = Forward::start(cluster.command(ADA, &["forward", &id, &port, "--socket", "./job.sock"]), 1);
    let path = cluster.home_of(ADA).join("job.sock");
    assert_eq!(
        (by_socket.local[0].as_str(), path.metadata().expect("there").permissions().mode() & 0o777),
        ("./job.sock", 0o600)
    );
    let mut stream = UnixStream::connect(&path).expect("the program listens");
    stream.write_all(request).expect("connected");
    answer.clear();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.contains("a page of the job"), "{answer}");
    kill(by_socket.process.id(), Signal::SIGINT);
    assert_eq!(by_socket.end().0, Some(0));
    assert!(!path.exists(), "the program removes its socket");

    let mut command = cluster.command(ADA, &["forward", &id, &port, "--stdio"]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the executable starts");
    let mut input = process.stdin.take().expect("piped");
    input.write_all(request).expect("the program reads");
    answer.clear();
    // Its standard output ends with the server's answer, although its standard input is open.
    process.stdout.take().expect("piped").read_to_string(&mut answer).expect("text");
    assert!(answer.contains("a page of the job"), "{answer}");
    drop(input);
    assert!(process.wait().expect("not reaped yet").success());

    let json = Forward::start(cluster.command(ADA, &["forward", &id, &first, "--json"]), 1);
    let shown: serde_json::Value = serde_json::from_str(&json.local[0]).expect("JSON");
    let numbers = ["port", "job", "index"].map(|field| shown[field].to_string());
    assert_eq!(numbers, [port.as_str(), &id, "0"]);
    assert_eq!(shown["node"], "n1");
}

#[test]
fn connections_are_independent_and_carry_much_in_both_directions() {
    const PIECES: u64 = 64;
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (id, port) = serve(&cluster, &[], "0.0.0.0");
    let forward = forward_port(&cluster, &id, &port);

    let mut streams: Vec<TcpStream> = (0..50).map(|_| forward.connect()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        writeln!(stream, "{number}").expect("connected");
    }
    for (number, stream) in streams.iter_mut().enumerate().rev() {
        stream.shutdown(Shutdown::Write).expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert_eq!(answer, format!("{number}\nend"));
    }

    let mut random = Random::new(1);
    let block: Vec<u8> = (0..1 << 20).map(|_| random.below(256) as u8).collect();
    let piece = |number: u64| [&number.to_le_bytes(), &block[..]].concat();
    let mut stream = forward.connect();
    let mut writer = stream.try_clone().expect("a descriptor is free");
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..PIECES).for_each(|number| writer.write_all(&piece(number)).expect("connected"));
            writer.shutdown(Shutdown::Write).expect("connected");
        });
        for number in 0..PIECES {
            let mut came = vec![0; block.len() + 8];
            stream.read_exact(&mut came).expect("connected");
            assert!(came == piece(number), "piece {number} is unchanged");
        }
        let mut last = Vec::new();
        stream.read_to_end(&mut last).expect("connected");
        assert_eq!(last, b"end", "the end of the input reaches the server, and that of its output the client");
    });
}

#[test]
fn only_servers_of_the_job_are_reached_and_only_by_its_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (id, port) = serve(&cluster, &[], "127.0.0.1");
    let reached = through_stdio(&cluster, ADA, &id, &port);
    assert_eq!((reached.stdout.as_str(), reached.code), ("hello end", 0), "{}", reached.stderr);
    for address in ["::1", "0.0.0.0", "::"] {
        let (id, port) = serve(&cluster, &[], address);
        let reached = through_stdio(&cluster, ADA, &id, &port);
        assert_eq!(reached.stdout, "hello end", "{address}: {}", reached.stderr);
        cluster.ok(ADA, &["cancel", &id]);
    }

    let of_node = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (other, port_of_other) = serve(&cluster, &[], "127.0.0.1");
    let mut outside = Command::new("python3");
    outside.args(["-c", ECHO, "127.0.0.1"]).uid(uid_of(ADA)).gid(uid_of(ADA)).stdout(Stdio::piped());
    let mut outside = outside.spawn().expect("Python starts");
    let mut port_outside = String::new();
    BufReader::new(outside.stdout.take().expect("piped")).read_line(&mut port_outside).expect("text");
    let closed = free_port().to_string();
    let of_node = of_node.local_addr().expect("bound").port().to_string();
    for foreign in [&of_node, &port_of_other, port_outside.trim(), &closed] {
        let refused = through_stdio(&cluster, ADA, &id, foreign);
        assert_eq!((refused.stdout.as_str(), refused.code), ("", 1), "{}", refused.stderr);
        let why = format!("nothing in task {id}_0 listens on port {foreign} of node n1");
        assert!(refused.stderr.contains(&why), "{}", refused.stderr);
    }
    outside.kill().expect("not reaped yet");
    outside.wait().expect("not reaped yet");
    cluster.ok(ADA, &["cancel", &other]);
    // The job listens at an address of another machine.
    let (elsewhere, port_elsewhere) = serve(&cluster, &[], "198.51.100.7");
    let refused = through_stdio(&cluster, ADA, &elsewhere, &port_elsewhere);
    assert!(refused.code == 1 && refused.stderr.contains("nothing in task"), "{}", refused.stderr);
    cluster.ok(ADA, &["cancel", &elsewhere]);

    // Root is an admin here.
    for user in [BOB, "root"] {
        let refused = through_stdio(&cluster, user, &id, &port);
        assert_eq!(refused.code, 4, "{}", refused.stderr);
        assert!(refused.stdout.is_empty() && refused.stderr.contains("belongs to games"), "{}", refused.stderr);
        let refused = cluster.run(user, &["forward", &id, &format!("0:{port}")]);
        assert!(refused.code == 4 && refused.stderr.contains("belongs to games"), "{}", refused.stderr);
    }
}

#[test]
fn server_in_a_sandbox_is_reached() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (id, port) = serve(&cluster, &["--sandbox"], "127.0.0.1");
    let reached = through_stdio(&cluster, ADA, &id, &port);
    assert_eq!((reached.stdout.as_str(), reached.code), ("hello end", 0), "{}", reached.stderr);
    // The node's own ports are outside of the sandbox.
    let of_node = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let refused = through_stdio(&cluster, ADA, &id, &of_node.local_addr().expect("bound").port().to_string());
    assert!(refused.code == 1 && refused.stderr.contains("nothing in task"), "{}", refused.stderr);
    let forward = forward_port(&cluster, &id, &port);
    assert!(forward.works() && forward.works());
}

#[test]
fn ssh_reaches_a_server_in_a_job() {
    // A server of root needs this directory, which the service of the system makes.
    fs::create_dir_all("/run/sshd").expect("root may");
    let sshd = program("sshd", "apt install openssh-server").to_string_lossy().into_owned();
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let key = |name: &str| {
        let path = cluster.path(name).to_string_lossy().into_owned();
        let made = Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-f", &path]).status();
        assert!(made.expect("ssh-keygen starts").success());
        path
    };
    let (host, own) = (key("host_key"), key("own_key"));
    let options = [
        "ListenAddress=127.0.0.1".to_owned(),
        format!("HostKey={host}"),
        format!("AuthorizedKeysFile={own}.pub"),
        "PidFile=none".to_owned(),
        "StrictModes=no".to_owned(),
        "UsePAM=no".to_owned(),
    ];
    let options: Vec<&str> = options.iter().flat_map(|option| ["-o", option]).collect();
    let port = free_port().to_string();
    let run = ["run", "--detach", "-m", "100M", "--", &sshd, "-D", "-e", "-p", &port];
    let id = cluster.ok(&[&run[..], &options].concat());
    wait_until("the server to listen", 60, || {
        cluster.run(&["logs", &id]).stderr.contains("Server listening").then_some(())
    });
    let forward = format!("ProxyCommand={HOSTLER} forward {id} {port} --stdio");
    let known = format!("UserKnownHostsFile={}", cluster.path("known").display());
    let mut ssh = Command::new("ssh");
    // The proxy command finds the cluster by the variables.
    ssh.envs(cluster.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    ssh.args(["-F", "none", "-i", &own, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]);
    ssh.args(["-o", &known, "-o", &forward, "job", "echo inside; exit 7"]);
    let told = Outcome::of(&ssh.output().expect("ssh starts"));
    assert_eq!((told.stdout.as_str(), told.code), ("inside\n", 7), "{}", told.stderr);
}

#[test]
fn restarts_of_head_and_agent_break_connections_and_new_ones_work() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let (id, port) = serve(&cluster, &[], "127.0.0.1");
    let forward = forward_port(&cluster, &id, &port);
    let connect = || {
        let mut stream = forward.connect();
        stream.write_all(b"x").expect("connected");
        stream.read_exact(&mut [0]).expect("the server answers");
        stream
    };
    let broken = |mut stream: TcpStream| {
        let error = stream.read_to_end(&mut Vec::new()).expect_err("an end would look like the server's");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    let stream = connect();
    cluster.kill_agent();
    broken(stream);
    cluster.start_agent();
    wait_until("a new connection to work", 60, || forward.works().then_some(()));
    let stream = connect();
    cluster.kill_and_restart_head();
    broken(stream);
    wait_until("a new connection to work", 60, || forward.works().then_some(()));
}

#[test]
fn forwarding_ends_with_the_job_and_needs_a_running_one() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (id, port) = serve(&cluster, &["-a", "3"], "127.0.0.1");
    let said = cluster.run(ADA, &["forward", &id, &port]);
    assert!(said.code == 4 && said.stderr.contains("is an array"), "{}", said.stderr);
    let task = format!("{id}_3");
    let forward = forward_port(&cluster, &task, &port);
    assert!(forward.works());
    let mut open = forward.connect();
    open.write_all(b"x").and_then(|()| open.read_exact(&mut [0])).expect("the server answers");
    cluster.ok(ADA, &["cancel", &id]);
    let (code, said) = forward.end();
    let end = format!("job {task} was cancelled; nothing is forwarded any more\n");
    assert!(code == Some(0) && said.ends_with(&end), "{code:?} {said}");
    // The connection is over, whether it was reset or ended.
    let _ = open.read_to_end(&mut Vec::new());

    let over = cluster.run(ADA, &["forward", &task, &port]);
    assert!(over.code == 4 && over.stderr.contains("was cancelled, so nothing listens"), "{}", over.stderr);
    let over = through_stdio(&cluster, ADA, &task, &port);
    assert!(over.code == 4 && over.stderr.contains("is over, so nothing listens"), "{}", over.stderr);
    let held = cluster.ok(ADA, &["run", "--detach", "--hold", "-m", "32M", "--", "true"]);
    let waiting = cluster.run(ADA, &["forward", &held, &port]);
    assert!(waiting.code == 4 && waiting.stderr.contains("is pending, so nothing listens"), "{}", waiting.stderr);
    let waiting = through_stdio(&cluster, ADA, &held, &port);
    assert!(waiting.code == 4 && waiting.stderr.contains("is waiting, so nothing listens"), "{}", waiting.stderr);
    let rank = cluster.run(ADA, &["forward", &held, &port, "--node-rank", "1", "--stdio"]);
    assert!(rank.code == 4 && rank.stderr.contains("no node of rank 1"), "{}", rank.stderr);
}

#[test]
fn connection_that_breaks_silently_is_reset() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    cluster.write("echo.py", ECHO);
    let id = cluster.ok(&["run", "--detach", "-m", "100M", "--", "python3", "echo.py", "127.0.0.1"]);
    let port = wait_until("the server to listen", 60, || {
        let printed = cluster.run(&["logs", &id]).stdout;
        printed.ends_with('\n').then(|| printed.trim().to_owned())
    });
    let forward = Forward::start(cluster.command(&["forward", &id, &format!("0:{port}")]), 1);
    let mut stream = forward.connect();
    stream.write_all(b"x").expect("connected");
    stream.read_exact(&mut [0]).expect("the server answers");
    // A stopped head does not close its connections, like a network that drops everything.
    let head = cluster.head_pid();
    kill(head, Signal::SIGSTOP);
    let error = stream.read(&mut [0]).expect_err("an end would look like the server's");
    kill(head, Signal::SIGCONT);
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    wait_until("a new connection to work", 60, || forward.works().then_some(()));
}
