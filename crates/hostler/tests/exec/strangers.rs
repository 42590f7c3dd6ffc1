//! Clients without permission: none of their commands runs, and others are not disturbed.

use std::fs;
use std::time::Instant;

use hostler_remote::{
    Caller, Command, Credentials, Frame, Open, PROTOCOL, Refusal, RefusalKind, Start, write_blocking,
};
use hostler_testkit::wait_until;
use serde_json::Value;

use crate::machines::{Machines, USER, ids};

/// Another account that every Debian has.
const OTHER: &str = "news";

/// Sends a file to a node or to an agent's socket in one of several ways. Prints the number of bytes received.
const KNOCK: &str = "\
import socket, ssl, sys
place, how, file = sys.argv[1:]
try:
    if place.startswith('/'):
        line = socket.socket(socket.AF_UNIX)
        line.connect(place)
    else:
        line = socket.create_connection((place, 7761), 10)
    line.settimeout(15)
    if how != 'raw':
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if how != 'nobody':
            context.load_cert_chain(how)
        line = context.wrap_socket(line, server_hostname='step.hostler.internal')
    line.sendall(open(file, 'rb').read())
    count = len(line.recv(1000))
    # Whoever hangs up ends what they have brought: the line is held until nothing more is said.
    line.settimeout(3)
    try:
        while line.recv(1000):
            pass
    except TimeoutError:
        pass
    print(count)
except (ssl.SSLError, ConnectionError):
    print(0)
";

/// A command of [`USER`], as the agent of another node would send it on a new connection.
fn start_frame(command: &str) -> Vec<u8> {
    let command = Command::new(&["/bin/sh".into(), "-c".into(), command.into()], [], "/".into());
    let caller = Caller { name: USER.to_owned(), uid: ids().0 };
    let mut bytes = Vec::new();
    write_blocking(
        &mut bytes,
        &Frame::Open(Open::Start(Box::new(Start { command, caller, written: hostler_remote::Paths::default() }))),
    )
    .expect("memory");
    bytes[..4].copy_from_slice(&1_u32.to_be_bytes());
    bytes
}

/// Certificate and key in one file, as TLS programs read them.
fn pem(credentials: &Value) -> String {
    format!("{}{}", credentials["key"].as_str().expect("a key"), credentials["certificate"].as_str().expect("one"))
}

#[test]
fn only_nodes_can_send_commands() {
    let machines = Machines::of(3);
    let shared = machines.shared();
    let key_of = |node: usize| -> Value {
        let path = machines.nodes[node].path("/var/lib/hostler/agent/call-key.json");
        serde_json::from_slice(&fs::read(path).expect("the node has credentials")).expect("JSON")
    };
    let made_up = serde_json::to_value(Credentials::generate().expect("randomness")).expect("JSON");
    machines.head.write("/home/op/knock.py", KNOCK);
    machines.head.write("/home/op/made-up.pem", pem(&made_up));
    machines.head.write("/home/op/n3.pem", pem(&key_of(2)));
    machines.head.write(
        "/home/op/garbage",
        (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
    );
    let knock = |how: &str, file: &str| machines.head.ok(&["timeout", "60", "python3", "knock.py", "n2", how, file]);
    let bring = |how: &str, name: &str| {
        machines.head.write("/home/op/start", start_frame(&format!("echo ran >{shared}/{name}")));
        knock(how, "start")
    };
    let agent = machines.agent_pid(1);
    let went_on = |what: &str| assert_eq!(machines.ok(0, "dsh --node n2 echo here"), "here", "{what}");
    went_on("before");

    // The frames are valid: with the key of a node, the command runs.
    assert_ne!(bring("n3.pem", "by-a-node"), "0");
    assert_eq!(machines.line_of("by-a-node"), "ran");
    for how in ["raw", "nobody", "made-up.pem"] {
        // At most a TLS alert.
        assert!(bring(how, "by-a-stranger").parse::<usize>().expect("a number") <= 7, "{how}");
        went_on(how);
        knock(how, "garbage");
        went_on(how);
    }
    // A node that sends garbage does not disturb others.
    knock("n3.pem", "garbage");
    went_on("nonsense of a node");

    // A removed node whose agent runs on: its commands end, and no new ones are accepted.
    let call = machines.start(2, "exec dsh --node n2 sh -c 'echo up >up; exec sleep 1007'");
    machines.line_of("up");
    machines.head.ok(&["hostler", "node", "remove", "n3", "--yes"]);
    let (outcome, took) = crate::machines::end_of(call);
    assert!(outcome.code == 125 && took < 20.0, "{took} s: {outcome:?}");
    machines.wait_for_none(1, "sleep 1007", 10);
    let since = Instant::now();
    let outcome = machines.run(2, "dsh --node n2 sh -c 'echo ran >by-a-stranger'");
    assert!(outcome.code == 125 && since.elapsed().as_secs() < 20, "{outcome:?}");
    assert_eq!(bring("n3.pem", "by-a-stranger"), "0");
    // The other nodes start gossip again with a new secret.
    wait_until("n1 to send commands to n2", 20, || (machines.run(0, "dsh --node n2 true").code == 0).then_some(()));
    assert_eq!(machines.read("by-a-stranger"), "");
    assert_eq!(machines.agent_pid(1), agent);
    assert_eq!(
        machines.nodes[1].read("/home/op/agent.log").matches("agent started").count(),
        1,
        "gossip has not started again"
    );

    // Many silent connections do not lock out a known node.
    let idle = "import socket, time\nheld = [socket.create_connection(('n2', 7761)) for _ in range(150)]\nprint('held', flush=True)\ntime.sleep(1008)\n";
    machines.head.write("/home/op/idle.py", idle);
    let held = machines.head.daemon("idle", &["sh", "-c", "exec python3 idle.py >/home/op/held"]);
    wait_until("the connections", 30, || machines.head.read("/home/op/held").contains("held").then_some(()));
    went_on("the silent");
    held.kill_9();
}

#[test]
fn node_itself_refuses_commands_of_a_blocked_account() {
    const AGENT: &str = "/var/lib/hostler/agent";
    let mut machines = Machines::of(2);
    let credentials = serde_json::from_str(&machines.nodes[0].read(&format!("{AGENT}/call-key.json"))).expect("JSON");
    machines.head.write("/home/op/knock.py", KNOCK);
    machines.head.write("/home/op/n1.pem", pem(&credentials));
    let uid = ids().0.to_string();
    // An agent of root, and one of the user.
    for agent in ["root", USER] {
        if agent == USER {
            machines.kill_agent(1);
            machines.nodes[1].ok(&["chown", "-R", USER, AGENT]);
            let run = ["hostler", "agent", "run", "--directory", AGENT, "--memory", "512M", "--cpus", "0-1"];
            let become_user = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env", "HOME=/home/games"];
            machines.agents[1] = Some(machines.nodes[1].daemon("agent", &[&become_user[..], &run].concat()));
        }
        // Sends a command as n1 does, but without the checks of its agent.
        let bring = |name: &str| {
            let command = format!("echo ran >{}/{agent}-{name}", machines.shared());
            machines.head.write("/home/op/start", start_frame(&command));
            machines.head.ok(&["timeout", "60", "python3", "knock.py", "n2", "n1.pem", "start"])
        };
        let is_blocked = |blocked: bool| {
            wait_until("n2 to learn of the change", 30, || {
                let known: Value =
                    serde_json::from_str(&machines.nodes[1].read(&format!("{AGENT}/accounts.json"))).ok()?;
                (known["blocked"].as_array()?.is_empty() != blocked).then_some(())
            });
        };
        let works = |name: &str| {
            wait_until("n2 to run a command of n1", 60, || (bring(name) != "0").then_some(()));
            assert_eq!(machines.line_of(&format!("{agent}-{name}")), "ran");
        };
        works("before");
        machines.head.ok(&["hostler", "configure", "user", "block", USER, "--uid", &uid]);
        is_blocked(true);
        assert_ne!(bring("blocked"), "0", "n2 answers");
        machines.head.ok(&["hostler", "configure", "user", "unblock", USER]);
        is_blocked(false);
        works("after");
        assert_eq!(machines.read(&format!("{agent}-blocked")), "", "an agent of {agent} ran the command");
    }
}

#[test]
fn silent_connections_do_not_lock_out_a_node() {
    let machines = Machines::of(2);
    // More connections than the limit, from twenty loopback addresses, while n1 has never called n2.
    let idle = "import socket, time\nheld = [socket.create_connection(('127.0.0.1', 7761), 10, (f'127.0.0.{i % 20 + 2}', 0)) for i in range(200)]\n\
                print('held', flush=True)\ntime.sleep(1008)\n";
    machines.nodes[1].write("/home/op/idle.py", idle);
    let held = machines.nodes[1].daemon("idle", &["sh", "-c", "exec python3 /home/op/idle.py >/home/op/held"]);
    wait_until("the connections", 30, || machines.nodes[1].read("/home/op/held").contains("held").then_some(()));
    assert_eq!(machines.ok(0, "dsh --node n2 echo here"), "here");
    held.kill_9();
}

#[test]
fn user_cannot_act_as_another_user() {
    let machines = Machines::of(2);
    machines.nodes[0].ok(&["sh", "-c", &format!("mkdir /home/{OTHER} && chown {OTHER} /home/{OTHER}")]);
    let as_other = |arguments: &[&str]| {
        let output = machines.command_of(OTHER, 0, arguments).output().expect("nsenter can be started");
        hostler_testkit::Outcome::of(&output)
    };
    for node in ["n1", "n2"] {
        assert_eq!(as_other(&["dsh", "--node", node, "id", "-un"]).stdout, format!("{OTHER}\n"));
        let outcome = as_other(&["dsh", "--node", node, "sh", "-c", "USER=games LOGNAME=games touch theirs"]);
        assert!(outcome.code != 0 && outcome.stderr.contains("Permission denied"), "{outcome:?}");
    }
    // Users cannot read the node's key, and the agent does not accept frames of nodes from users.
    assert_ne!(as_other(&["cat", "/var/lib/hostler/agent/call-key.json"]).code, 0);
    machines.write("knock.py", KNOCK);
    let start = start_frame(&format!("echo ran >{}/by-another", machines.shared()));
    machines.write("start", [&[PROTOCOL, 0][..], &start].concat());
    let outcome = as_other(&["timeout", "60", "python3", "knock.py", "/run/hostler/agent.calls", "raw", "start"]);
    // At most the frame that closes the channel.
    let answer: usize = outcome.stdout.trim().parse().expect("a number");
    assert!(outcome.code == 0 && answer < 32, "{outcome:?}");
    // A command cannot reach processes of other users.
    let victim = machines.start(0, "exec dsh --node n2 sh -c 'echo $$ >pid; exec sleep 1009'");
    let pid = machines.line_of("pid");
    let outcome = as_other(&["dsh", "--node", "n2", "sh", "-c", &format!("kill -KILL {pid}; cat /proc/{pid}/environ")]);
    assert!(outcome.code != 0 && outcome.stderr.contains("not permitted"), "{outcome:?}");
    assert_eq!(machines.processes(1, "sleep 1009"), 1);
    assert_eq!(machines.read("by-another"), "");
    drop(victim);
}

/// Answers every request on the socket of the agent's commands with the content of a file.
const SERVE: &str = "\
import os, socket, sys
path = '/run/hostler/agent.calls'
if os.path.exists(path):
    os.unlink(path)
line = socket.socket(socket.AF_UNIX)
line.bind(path)
os.chmod(path, 0o666)
line.listen()
while True:
    caller = line.accept()[0]
    caller.recv(2)
    caller.sendall(open(sys.argv[1], 'rb').read())
    caller.close()
";

#[test]
fn command_runs_here_if_the_agent_is_of_another_build() {
    let mut machines = Machines::of(1);
    machines.write("knock.py", KNOCK);
    machines.write("older", [PROTOCOL - 1, 0]);
    let answer: usize =
        machines.ok(0, "python3 knock.py /run/hostler/agent.calls raw older").parse().expect("a number");
    assert!(answer > 32, "the agent says why it refuses");

    machines.kill_agent(0);
    let refusal = Refusal {
        kind: RefusalKind::OtherBuild,
        code: 125,
        message: "another build".to_owned(),
        hints: vec!["restart the agent".to_owned()],
        lacks_directory: false,
    };
    let mut answer = Vec::new();
    write_blocking(&mut answer, &Frame::refused(Box::new(refusal))).expect("memory has room");
    machines.write("answer", answer);
    let file = format!("{}/answer", machines.shared());
    let mut server =
        machines.nodes[0].command(&["python3", "-c", SERVE, &file]).spawn().expect("nsenter can be started");
    let answered = || Some(machines.run(0, "dsh echo here")).filter(|told| told.stderr.contains("another build"));
    let told = wait_until("the agent of another build answers", 30, answered);
    assert_eq!((told.code, told.stdout.as_str()), (0, "here\n"), "{told:?}");
    assert!(told.stderr.contains("another build; running the command here; restart the agent"), "{told:?}");
    let told = machines.run(0, "dsh --node n1 echo there");
    assert_eq!((told.code, told.stdout.as_str()), (125, ""), "{told:?}");
    assert!(told.stderr.contains("hint: restart the agent"), "{told:?}");
    server.kill().and_then(|()| server.wait()).expect("the server is the test's");
}
