//! Users reach the Unix sockets of their own jobs, and no others.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use hostler_testkit::{SharedCluster, wait_until};

use crate::{ADA, BOB, HOSTLER, through_stdio, uid_of};

/// An echo server on a Unix socket that prints when it listens. It answers the end of its input with the uid of its peer.
const ECHO: &str = r#"
import os, socket, struct, sys, threading
def echo(connection):
    uid = struct.unpack('3i', connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    while piece := connection.recv(1 << 16):
        connection.sendall(piece)
    connection.sendall(b'end for %d' % uid)
    connection.close()
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
server.listen(100)
print('listening', flush=True)
while True:
    threading.Thread(target=echo, args=(server.accept()[0],)).start()
"#;

/// Starts an echo server at this path as a job of Ada. Returns the job's id.
fn serve(cluster: &SharedCluster, options: &[&str], path: &str) -> String {
    cluster.write(ADA, "echo.py", ECHO);
    let run = ["run", "--detach", "-c", "1", "-m", "100M"];
    let id = cluster.ok(ADA, &[&run, options, &["--", "python3", "echo.py", path]].concat());
    wait_until("the server to listen", 60, || (cluster.run(ADA, &["logs", &id]).stdout == "listening\n").then_some(()));
    id
}

/// Starts an echo server of a user outside of any job.
fn serve_outside(user: &str, path: &str) -> Child {
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-c", ECHO, path]).uid(uid_of(user)).gid(uid_of(user));
    // A connection from the agent breaks off.
    server.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().expect("Python starts");
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut String::new()).expect("text");
    server
}

/// Checks that the job's server answers at this path, and sees its own user.
fn reaches(cluster: &SharedCluster, id: &str, path: &str) {
    let reached = through_stdio(cluster, ADA, id, path);
    let answer = format!("hello end for {}", uid_of(ADA));
    assert_eq!((reached.stdout, reached.code), (answer, 0), "{path}: {}", reached.stderr);
}

/// Checks that the answer is the same as for a path at which nothing is.
fn does_not_reach(cluster: &SharedCluster, id: &str, path: &str) {
    let refused = through_stdio(cluster, ADA, id, path);
    assert_eq!((refused.stdout.as_str(), refused.code), ("", 1), "{path}: {}", refused.stderr);
    let why = format!("error: nothing in task {id}_0 listens on socket {path} of node n1\n");
    assert!(refused.stderr.starts_with(&why), "{}", refused.stderr);
}

#[test]
fn only_sockets_of_the_job_are_reached() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let home = cluster.home_of(ADA);
    let in_home = |name: &str| home.join(name).display().to_string();
    let id = serve(&cluster, &[], "own.sock");
    symlink("own.sock", home.join("link.sock")).expect("root may");
    for path in ["./own.sock", &in_home("own.sock"), "./link.sock", "./../home-games/own.sock"] {
        reaches(&cluster, &id, path);
    }

    // All of them listen, and some of them let everybody connect.
    let other = serve(&cluster, &[], "other.sock");
    let open = cluster.path("open");
    fs::create_dir(&open).expect("new");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("root may");
    let in_open = |name: &str| open.join(name).display().to_string();
    let of_ada = serve_outside(ADA, &in_open("ada.sock"));
    let of_bob = serve_outside(BOB, &in_open("bob.sock"));
    let of_root = UnixListener::bind(in_open("root.sock")).expect("a free name");
    fs::set_permissions(in_open("root.sock"), Permissions::from_mode(0o777)).expect("root may");
    let closed = cluster.path("closed");
    fs::create_dir(&closed).expect("new");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("root may");
    let in_closed = closed.join("root.sock").display().to_string();
    let of_root_alone = UnixListener::bind(&in_closed).expect("a free name");
    for (name, target) in [("to-root.sock", in_open("root.sock")), ("to-root-alone.sock", in_closed.clone())] {
        symlink(target, home.join(name)).expect("root may");
    }
    // Things at a path that are not listening stream sockets.
    drop(UnixListener::bind(home.join("stale.sock")).expect("a free name"));
    let _datagrams = UnixDatagram::bind(home.join("datagrams.sock")).expect("a free name");
    for foreign in [
        "./other.sock",
        &in_open("ada.sock"),
        &in_open("bob.sock"),
        &in_open("root.sock"),
        &in_closed,
        "./to-root.sock",
        "./to-root-alone.sock",
        "./stale.sock",
        "./datagrams.sock",
        "./echo.py",
        "./echo.py/own.sock",
        "./missing.sock",
        "/proc/self/cwd/own.sock",
        "/",
    ] {
        does_not_reach(&cluster, &id, foreign);
    }
    // Root connects nowhere on behalf of a user, and a server of others gets nothing.
    of_root_alone.set_nonblocking(true).expect("open");
    of_root_alone.accept().expect_err("nobody has connected");
    of_root.set_nonblocking(true).expect("open");
    while let Ok((mut stream, _)) = of_root.accept() {
        let mut came = Vec::new();
        stream.set_nonblocking(false).and_then(|()| stream.read_to_end(&mut came)).expect("ended");
        assert!(came.is_empty());
    }
    for mut server in [of_ada, of_bob] {
        server.kill().expect("not reaped yet");
        server.wait().expect("not reaped yet");
    }

    for user in [BOB, "root"] {
        let refused = through_stdio(&cluster, user, &id, "./own.sock");
        assert!(refused.code == 4 && refused.stderr.contains("belongs to games"), "{}", refused.stderr);
    }
    let abstract_name = cluster.run(ADA, &["forward", &id, "@own.sock"]);
    assert!(abstract_name.code == 2 && abstract_name.stderr.contains("./job.sock"), "{}", abstract_name.stderr);

    cluster.kill_agent();
    cluster.start_agent();
    reaches(&cluster, &id, "./own.sock");
    does_not_reach(&cluster, &id, "./other.sock");
    cluster.ok(ADA, &["cancel", &id, &other]);
}

#[test]
fn socket_in_a_sandbox_is_reached() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let inside = serve(&cluster, &["--sandbox"], "/tmp/own.sock");
    reaches(&cluster, &inside, "/tmp/own.sock");
    reaches(&cluster, &inside, "../../../../tmp/own.sock");
    does_not_reach(&cluster, &inside, "./own.sock");
    let in_folder = serve(&cluster, &["--sandbox"], "own.sock");
    reaches(&cluster, &in_folder, "./own.sock");
    // The other sandbox has a file system of its own.
    does_not_reach(&cluster, &in_folder, "/tmp/own.sock");
}

#[test]
fn socket_of_a_project_is_reached_over_a_local_port() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.write(ADA, "project/echo.py", ECHO);
    let id = cluster.ok(ADA, &["submit", "project", "echo.py", "-m", "100M", "--", "own.sock"]);
    wait_until("the server to listen", 60, || {
        (cluster.run(ADA, &["logs", &id, "--stdout"]).stdout == "listening\n").then_some(())
    });
    let mut command = cluster.command(ADA, &["forward", &id, "./own.sock", "--json"]);
    let mut forward = command.stdout(Stdio::piped()).spawn().expect("the executable starts");
    let mut line = String::new();
    BufReader::new(forward.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let shown: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&shown["socket"], &shown["port"]), (&"./own.sock".into(), &serde_json::Value::Null));
    let mut stream = TcpStream::connect(shown["local"].as_str().expect("text")).expect("the program listens");
    stream.write_all(b"hello ").and_then(|()| stream.shutdown(Shutdown::Write)).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert_eq!(answer, format!("hello end for {}", uid_of(ADA)));
    forward.kill().expect("not reaped yet");
    forward.wait().expect("not reaped yet");
}
