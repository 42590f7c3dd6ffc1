//! Users let their own jobs, and nobody else, reach this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use hostler_testkit::{Random, SharedCluster, free_port, kill, wait_until};
use nix::sys::signal::Signal;

use crate::{ADA, BOB, Forward, HOSTLER, send, through_stdio, uid_of};

/// A server that connects where the first line of each connection says, and passes on everything else in both directions.
const BRIDGE: &str = r#"
import socket, sys, threading
def pass_on(source, sink):
    while piece := source.recv(1 << 16):
        sink.sendall(piece)
    sink.shutdown(socket.SHUT_WR)
def serve(connection):
    to = connection.makefile('rb', buffering=0).readline().decode().strip()
    far = socket.socket(socket.AF_UNIX if '/' in to else socket.AF_INET)
    try:
        far.connect(to if '/' in to else ('127.0.0.1', int(to)))
        threading.Thread(target=pass_on, args=(connection, far)).start()
        pass_on(far, connection)
    except OSError as error:
        connection.sendall(type(error).__name__.encode())
    connection.shutdown(socket.SHUT_RDWR)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(100)
print('listening', flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

/// A job of Ada with a bridge.
struct Bridge<'a> {
    cluster: &'a SharedCluster,
    id: String,
    socket: String,
}

impl<'a> Bridge<'a> {
    fn start(cluster: &'a SharedCluster, name: &str, options: &[&str]) -> Self {
        cluster.write(ADA, "bridge.py", BRIDGE);
        let socket = format!("./{name}.sock");
        let run = ["run", "--detach", "-c", "1", "-m", "100M"];
        let id = cluster.ok(ADA, &[&run, options, &["--", "python3", "bridge.py", &socket]].concat());
        wait_until("the bridge to listen", 60, || {
            (cluster.run(ADA, &["logs", &id]).stdout == "listening\n").then_some(())
        });
        Self { cluster, id, socket }
    }

    fn of(cluster: &'a SharedCluster, id: &str) -> Self {
        Self { cluster, id: id.to_owned(), socket: "./bridge.sock".to_owned() }
    }

    /// Lets the job reach this machine.
    fn reverse(&self, pairs: &[&str]) -> Forward {
        let options = pairs.iter().flat_map(|pair| ["--reverse", pair]);
        let arguments: Vec<&str> = ["forward", &self.id].into_iter().chain(options).collect();
        Forward::start(self.cluster.command(ADA, &arguments), pairs.len())
    }

    /// What comes back when the job sends a message to this address.
    fn answer(&self, to: &str, message: &[u8]) -> String {
        let sent = [to.as_bytes(), b"\n", message].concat();
        send(self.cluster, ADA, &self.id, &self.socket, &sent).stdout
    }

    fn reaches(&self, to: &str) -> bool {
        self.answer(to, b"hello ") == "hello end"
    }
}

/// The port or path in `port 8081 of job 1 on n1`.
fn address(listens: &str) -> &str {
    listens.split(' ').nth(1).expect("a second word")
}

fn echo(mut stream: impl Read + Write) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        stream.write_all(&piece[..length]).expect("connected");
    }
    stream.write_all(b"end").expect("connected");
}

/// Starts an echo server of this process. Returns its port.
fn serve_here() -> u16 {
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = server.local_addr().expect("bound").port();
    thread::spawn(move || server.incoming().for_each(|stream| drop(thread::spawn(|| echo(stream.expect("one"))))));
    port
}

#[test]
fn job_reaches_this_machine_and_nobody_else_does() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let here = serve_here();
    // Ada's program connects to it.
    let local = cluster.home_of(ADA).join("local.sock");
    let server = UnixListener::bind(&local).expect("a free name");
    fs::set_permissions(&local, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("root may");
    thread::spawn(move || server.incoming().for_each(|stream| echo(stream.expect("one"))));
    let (to_port, to_socket) = (format!("0:{here}"), format!("./job.sock:127.0.0.1:{here}"));
    for options in [&[][..], &["--sandbox"]] {
        let bridge = Bridge::start(&cluster, if options.is_empty() { "open" } else { "inside" }, options);
        let forward = bridge.reverse(&[&to_port, &to_socket, "0:./local.sock"]);
        assert_eq!(forward.to, [format!("127.0.0.1:{here}"), format!("127.0.0.1:{here}"), "./local.sock".to_owned()]);
        let [port, socket, other] = [0, 1, 2].map(|at: usize| address(&forward.local[at]));
        for to in [port, socket, other] {
            assert_eq!(bridge.answer(to, b"hello "), "hello end", "{options:?} {to}");
        }
        let mut random = Random::new(1);
        let much: String = (0..8 << 20).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        thread::scope(|scope| {
            for to in [port, socket, port, socket] {
                let (bridge, much) = (&bridge, &much);
                scope.spawn(move || assert!(bridge.answer(to, much.as_bytes()) == format!("{much}end"), "{to}"));
            }
        });
        let file = cluster.home_of(ADA).join("job.sock");
        let made = file.metadata().expect("in the job's folder");
        assert_eq!((made.mode() & 0o777, made.uid()), (0o600, uid_of(ADA)));

        if options.is_empty() {
            // Other users, root, and programs of the same user that do not belong to the job.
            let get =
                format!("import socket\ns = socket.create_connection(('127.0.0.1', {port}), 60)\nprint(s.recv(9))");
            for user in [BOB, "root", ADA] {
                let mut outside = Command::new("/usr/bin/python3");
                outside.args(["-c", &get]).uid(uid_of(user)).gid(uid_of(user));
                let said = outside.output().expect("Python starts");
                assert!(String::from_utf8_lossy(&said.stderr).contains("ConnectionResetError"), "{user}: {said:?}");
            }
            let neighbour = Bridge::start(&cluster, "neighbour", &[]);
            assert_eq!(neighbour.answer(port, b""), "ConnectionResetError");
            assert_eq!(neighbour.answer(socket, b""), "");
            cluster.ok(ADA, &["cancel", &neighbour.id]);
            for user in [BOB, "root"] {
                let refused = cluster.run(user, &["forward", &bridge.id, "--reverse", &to_port]);
                assert!(refused.code == 4 && refused.stderr.contains("belongs to games"), "{}", refused.stderr);
            }
            // What the agent listens on is not a server of the job.
            let refused = through_stdio(&cluster, ADA, &bridge.id, port);
            assert!(refused.stderr.contains("nothing in task"), "{}", refused.stderr);
        } else {
            TcpStream::connect(format!("127.0.0.1:{port}")).expect_err("the sandbox has a network of its own");
        }
        for (pair, why) in [
            (format!("{port}:{here}"), format!("port {port} of node n1 is taken")),
            (to_socket.clone(), "socket ./job.sock of node n1 is taken".to_owned()),
            (format!("./bridge.py:{here}"), "socket ./bridge.py of node n1 is taken".to_owned()),
            (format!("80:{here}"), "ports below 1024 are only for root".to_owned()),
            (format!("./missing/x:{here}"), "No such file".to_owned()),
        ] {
            let refused = cluster.run(ADA, &["forward", &bridge.id, "--reverse", &pair]);
            assert!(refused.code == 4 && refused.stderr.contains(&why), "{pair}: {} {}", refused.code, refused.stderr);
        }
        let nobody = bridge.reverse(&[&format!("0:{}", free_port())]);
        assert_eq!(bridge.answer(address(&nobody.local[0]), b""), "ConnectionResetError");
        kill(nobody.process.id(), Signal::SIGINT);
        let (code, said) = nobody.end();
        assert!(code == Some(0) && said.contains("cannot connect to 127.0.0.1:"), "{code:?} {said}");

        let [port, socket] = [port, socket].map(str::to_owned);
        kill(forward.process.id(), Signal::SIGINT);
        assert_eq!(forward.end().0, Some(0));
        wait_until("the listeners to end", 60, || {
            let errors = [(&port, "ConnectionRefusedError"), (&socket, "FileNotFoundError")];
            errors.iter().all(|(to, error)| bridge.answer(to, b"") == *error).then_some(())
        });
        assert!(!file.exists());
        cluster.ok(ADA, &["cancel", &bridge.id]);
    }
}

#[test]
fn listeners_come_back_after_restarts_and_end_with_the_job() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let here = serve_here();
    let id = Bridge::start(&cluster, "bridge", &[]).id;
    let forward = Bridge::of(&cluster, &id).reverse(&[&format!("0:{here}"), &format!("./job.sock:{here}")]);
    let [port, socket] = [0, 1].map(|at: usize| address(&forward.local[at]).to_owned());
    let works = |cluster: &SharedCluster| {
        wait_until("new connections to work", 60, || {
            [&port, &socket].iter().all(|to| Bridge::of(cluster, &id).reaches(to)).then_some(())
        });
    };
    works(&cluster);
    cluster.kill_and_restart_head();
    works(&cluster);
    // Its socket stays behind.
    cluster.kill_agent();
    cluster.start_agent();
    works(&cluster);
    let file = cluster.home_of(ADA).join("job.sock");
    let mut outside = UnixStream::connect(&file).expect("root may");
    outside.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid timeout");
    // It may be an error or an end.
    assert_eq!(outside.read(&mut [0]).unwrap_or(0), 0);

    cluster.ok(ADA, &["cancel", &id]);
    let (code, said) = forward.end();
    assert!(code == Some(0) && said.ends_with("was cancelled; nothing is forwarded any more\n"), "{code:?} {said}");
    wait_until("the listener to end", 60, || {
        (TcpStream::connect(format!("127.0.0.1:{port}")).is_err() && !file.exists()).then_some(())
    });
}
