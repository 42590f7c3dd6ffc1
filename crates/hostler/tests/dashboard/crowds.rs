//! Clients that open more connections than a listener has, and keep them, do not delay anybody else.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::http::Ask;
use crate::site::{Site, free_port};

/// Deadline of each request. It is answered in milliseconds, unless it waits for a place.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens connections, sends a text on each, and opens those again that the server closes.
const CROWD: &str = r"
import resource, select, socket, sys, time
kind, address, count, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
def join():
    if kind == 'unix':
        one = socket.socket(socket.AF_UNIX)
        one.connect(address)
    else:
        one = socket.create_connection(('127.0.0.1', int(address)))
    one.setblocking(False)
    try:
        one.send(text)
    except OSError:
        pass
    crowd[one.fileno()] = one
    poll.register(one, select.POLLIN)
crowd, poll = {}, select.poll()
for _ in range(count):
    join()
print('ready', flush=True)
while True:
    for number, _ in poll.poll(1000)[:20]:
        one = crowd[number]
        try:
            alive = one.recv(65536)
        except OSError:
            alive = b''
        if not alive:
            poll.unregister(number)
            crowd.pop(number).close()
            join()
    time.sleep(0.1)
";

/// A process with many connections. Dropping it ends the process.
struct Crowd(Child);

impl Crowd {
    fn open(kind: &str, address: &str, uid: u32, count: u32, text: &str) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", CROWD, kind, address, &count.to_string(), text]).uid(uid).current_dir("/");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let mut said = [0; 6];
        child.stdout.as_mut().expect("it is a pipe").read_exact(&mut said).expect("the connections open");
        Self(child)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends requests one after another, for a minute with `HOSTLER_LONG`. Prints the median and the longest time.
fn ask_during(what: &str, ask: impl Fn()) {
    let time = Duration::from_secs(if std::env::var_os("HOSTLER_LONG").is_some() { 60 } else { 4 });
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let asked = Instant::now();
        ask();
        times.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let line = format!("{what}: {} requests, median {median:.1?}, longest {worst:.1?}\n", times.len());
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
    assert!(worst < PATIENCE, "{line}");
}

#[test]
fn unfinished_forms_of_strangers_do_not_close_the_dashboard() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", host]);
    site.admin(&["configure", "user", "add", "ada"]);
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    let form = format!(
        "POST /sign-in HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken="
    );
    let _crowd = Crowd::open("tcp", &port.to_string(), 65534, 800, &form);
    ask_during("800 unfinished forms, page of a user", || {
        assert_eq!(Ask::get("/", host).with("cookie", &cookie).send(port).status, 200);
    });
    ask_during("800 unfinished forms, page of a stranger", || {
        assert_eq!(Ask::get("/sign-in", host).send(port).status, 200);
    });
}

#[test]
fn streams_of_one_user_do_not_close_the_dashboard() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", host]);
    let [ada, eve] = ["ada", "eve"].map(|user| {
        site.admin(&["configure", "user", "add", user]);
        site.sign_in(port, host, &site.invite(user))
    });
    let stream = format!("GET /live HTTP/1.1\r\nHost: {host}\r\nCookie: {eve}\r\n\r\n");
    let _crowd = Crowd::open("tcp", &port.to_string(), 65534, 600, &stream);
    ask_during("600 streams of a user, page of another", || {
        assert_eq!(Ask::get("/", host).with("cookie", &ada).send(port).status, 200);
    });
    let refused = Ask::get("/", host).with("cookie", &eve).send(port);
    assert!(refused.status == 429 && refused.body.contains("the maximum per user"), "{refused:?}");
}

/// Needs root.
#[test]
fn accounts_with_many_connections_do_not_close_the_socket_of_a_node() {
    let mut site = Site::start(&[]);
    site.start_agent();
    std::fs::set_permissions(site.cluster.home(), std::fs::Permissions::from_mode(0o711)).expect("this test owns it");
    let socket = site.path("agent.sock");
    let uid = |name: &str| {
        nix::unistd::User::from_name(name).expect("readable").expect("every Debian has this account").uid.as_raw()
    };
    let body =
        "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
    // Two accounts, and many uids without an account, as a user namespace gives them to a user.
    let mut crowds = vec![Crowd::open("unix", &socket, uid("games"), 513, body)];
    crowds.push(Crowd::open("unix", &socket, uid("news"), 513, body));
    crowds.extend((0..4).map(|number| Crowd::open("unix", &socket, 200_000 + number, 200, body)));
    ask_during("1,026 connections of two accounts, 800 without account, request of root", || {
        let mut stream = UnixStream::connect(&socket).expect("the agent listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        stream.write_all(b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("the agent reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer in time");
        assert!(answer.contains("\"user\":\"root@n1\""), "{answer}");
    });
}
