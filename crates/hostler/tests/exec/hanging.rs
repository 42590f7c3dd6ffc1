//! Remote commands with programs or streams on a file system that never answers. Needs FUSE.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use hostler_testkit::{HangingDisk, wait_until};

use crate::machines::{Machines, USER, end_of};

/// Another account that every Debian has.
const OTHER: &str = "news";

/// Hands descriptors over to the agent with an invalid request. Closes its own only when stdin ends.
const HAND_OVER: &str = "\
import array, os, socket, sys
agent = socket.socket(socket.AF_UNIX)
agent.connect('/run/hostler/agent.calls')
files = [os.open('disk/program', os.O_RDONLY) for _ in range(int(sys.argv[1]))]
agent.sendmsg([b'\\xff\\xff'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', files))])
sys.stdin.read()
";

/// Hands over a socket that contains a file of `disk`, and cached writes to it: whoever closes the last copy of the
/// socket waits. Ends when stdin ends. The arguments are the number of copies, and the message before them.
const HAND_OVER_UNWRITTEN: &str = "\
import array, os, socket, sys
def send(to, text, files):
    to.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', files))])
outer, inner = socket.socketpair()
file = os.open('disk/program', os.O_RDONLY)
send(outer, b'x', [file])
os.close(file)
os.write(os.open('disk/program', os.O_WRONLY), b'y' * 4096)
agent = socket.socket(socket.AF_UNIX)
agent.connect('/run/hostler/agent.calls')
before = bytes.fromhex(sys.argv[2])
try:
    agent.sendall(before)
    send(agent, b'\\xff\\xff', [inner.fileno()] * int(sys.argv[1]))
except (PermissionError, BrokenPipeError):
    pass
outer.close()
inner.close()
sys.stdin.read()
";

#[test]
fn hanging_program_or_stream_delays_no_other_user() {
    let machines = Machines::of(1);
    machines.ok(0, "mkdir disk");
    let start = |user: &str, arguments: &[&str]| -> Child {
        let mut command = machines.command_of(user, 0, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("nsenter can be started")
    };
    let cases = [
        ("lookup", "dsh --node n1 disk/program"),
        ("open", "dsh --node n1 disk/program"),
        ("read", "dsh --node n1 disk/program"),
        // The agent gets this stream, and closes it after the start.
        ("flush", "dsh --node n1 sleep 1 < disk/program"),
        ("release", "dsh --node n1 sleep 1 < disk/program"),
        // The same in requests that the agent rejects: of another version, and with too many descriptors.
        ("flush", "python3 hand_over.py 3"),
        ("flush", "python3 hand_over.py 5"),
        // The agent closes a file inside a socket: a stream, one of too many, and one after an incomplete request.
        ("write", "python3 hand_over_unwritten.py 3 ''"),
        ("write", "python3 hand_over_unwritten.py 200 ''"),
        ("write", "python3 hand_over_unwritten.py 3 00"),
    ];
    machines.write("hand_over_unwritten.py", HAND_OVER_UNWRITTEN);
    machines.write("hand_over.py", HAND_OVER);
    for (request, command) in cases {
        let at = Path::new(&machines.shared()).join("disk");
        let disk = HangingDisk::mount(machines.nodes[0].command(&["python3"]), &at, request);
        let mut stuck = start(USER, &["sh", "-c", command]);
        // The stuck command reaches the agent before the last of these.
        for _ in 0..10 {
            let mut other = start(OTHER, &["dsh", "--node", "n1", "echo", "fine"]);
            let what = format!("another user's command beside a hanging {request}");
            wait_until(&what, 15, || other.try_wait().expect("a child"));
            let output = other.wait_with_output().expect("it has ended");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{what}: {output:?}");
        }
        drop(disk);
        // Ends the script, which outlives `nsenter`.
        drop(stuck.stdin.take());
        stuck.kill().expect("a child");
        stuck.wait_with_output().expect("the file system is gone");
    }
}

#[test]
fn node_on_which_the_directory_hangs_is_refused_soon_and_passed_over() {
    // n1 is so slow that it is the last choice.
    let slow: &[&str] = &["--load-weight", "100"];
    let machines = Machines::prepared(2, |host| if host.name() == "n1" { slow } else { &[] });
    machines.ok(0, "mkdir disk");
    let at = Path::new(&machines.shared()).join("disk");
    let disk = HangingDisk::mount(machines.nodes[1].command(&["python3"]), &at, "getattr");
    let (named, seconds) = end_of(machines.start(0, "cd disk && dsh --node n2 true"));
    assert!(named.code == 126 && named.stderr.contains("node n2 cannot use the directory"), "{named:?}");
    assert!(named.stderr.contains("does not answer") && seconds < 30.0, "{seconds} s: {named:?}");
    let (free, seconds) = end_of(machines.start(0, "cd disk && dsh --report sh -c 'echo $HOSTLER_NODE'"));
    assert_eq!((free.code, free.stdout.as_str()), (0, "n1\n"), "{free:?}");
    assert!(free.stderr.contains("not on n2: ") && seconds < 30.0, "{seconds} s: {free:?}");
    drop(disk);
}

#[test]
fn written_file_that_cannot_be_opened_delays_no_other_user() {
    let machines = Machines::of(1);
    machines.ok(0, "mkdir disk");
    let at = Path::new(&machines.shared()).join("disk");
    let disk = HangingDisk::mount(machines.nodes[0].command(&["python3"]), &at, "open-to-read");
    // The agent watches writes on this disk from now on, and opens each written file.
    machines.ok(0, "cd disk && dsh --node n1 true");
    machines.ok(0, ": >> disk/program");
    let began = Instant::now();
    for _ in 0..10 {
        let mut other = machines.command_of(OTHER, 0, &["dsh", "--node", "n1", "echo", "fine"]);
        let output = other.output().expect("nsenter can be started");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{output:?}");
    }
    let seconds = began.elapsed().as_secs_f64();
    assert!(seconds < 15.0, "each command waits for the disk: {seconds} s");
    drop(disk);
}
