//! Users of jobs on nodes where the agent creates accounts, or that have their own accounts. Needs root.

use std::process::Stdio;

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A Python program that holds the lock of `useradd` until its stdin is closed.
const HOLD_USERADD_LOCK: &str = "import fcntl, sys; lock = open('/etc/.pwd.lock', 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); open('/tmp/kept', 'w'); sys.stdin.read()";

/// A head, and a node that creates accounts. Root's umask makes new files private.
struct Machines {
    node: Host,
    head: Host,
    _daemons: [Daemon; 2],
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn new() -> Self {
        let network = Network::new(HOSTLER);
        let (head, node) = (network.host("head"), network.host("n1"));
        head.ok(&["sh", "-c", "umask 077 && hostler head init --advertise head"]);
        let runs = head.daemon("head", &["hostler", "head", "run"]);
        wait_until("the head to answer", 30, || (head.run(&["hostler", "info"]).code == 0).then_some(()));
        let code = head.ok(&["hostler", "node", "invite", "n1"]);
        let joined = node.run_with_input(&["sh", "-c", "umask 077 && hostler agent join -"], &format!("{code}\n"));
        assert_eq!(joined.code, 0, "{joined:?}");
        let agent = node.daemon("agent", &["hostler", "agent", "run", "--accounts"]);
        wait_until("the node to be up", 30, || (head.json(&["hostler", "nodes"])[0]["state"] == "up").then_some(()));
        Self { node, head, _daemons: [runs, agent], _network: network }
    }

    /// Runs a command as this user on the head's machine.
    fn run(&self, user: &str, arguments: &[&str]) -> Outcome {
        let begin =
            ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "-C", "/", "HOME=/", "hostler"];
        self.head.run(&[&begin, arguments].concat())
    }
}

fn add(host: &Host, name: &str, uid: &str) {
    host.ok(&["useradd", "--uid", uid, "--user-group", "--no-create-home", name]);
}

#[test]
fn job_waits_for_the_account_and_a_different_uid_is_an_error() {
    let machines = Machines::new();
    let modes = |host: &Host, own: &str| host.ok(&["stat", "-c", "%a", "/var/lib/hostler", own]);
    assert_eq!(modes(&machines.head, "/var/lib/hostler/head").trim(), "755\n700");
    assert_eq!(modes(&machines.node, "/var/lib/hostler/agent").trim(), "755\n711");

    // Creating the account takes a while.
    let mut keeper = machines.node.command(&["python3", "-c", HOLD_USERADD_LOCK]);
    let mut keeper = keeper.stdin(Stdio::piped()).spawn().expect("the program starts");
    wait_until("the lock of useradd to be held", 30, || machines.node.path("/tmp/kept").exists().then_some(()));
    add(&machines.head, "ada", "20001");
    machines.head.ok(&["hostler", "configure", "user", "add", "ada"]);
    let id = machines.run("ada", &["run", "--detach", "-m", "64M", "--", "id", "-u"]);
    assert_eq!(id.code, 0, "{id:?}");
    let job = || machines.head.json(&["hostler", "job", id.stdout.trim()]);
    wait_until("the job to be placed", 30, || (job()["state"] != "pending").then_some(()));
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(job()["ended_at"].is_null(), "it waits for the account: {}", job());
    }
    drop(keeper.stdin.take());
    assert!(keeper.wait().expect("ours").success());
    let waited = machines.run("ada", &["wait", id.stdout.trim()]);
    assert_eq!(waited.code, 0, "{waited:?} {}", job());
    assert_eq!(machines.run("ada", &["logs", id.stdout.trim()]).stdout, "20001\n");

    // An account with the same name and another uid is another user.
    add(&machines.head, "ben", "20002");
    add(&machines.node, "ben", "20003");
    let refused = machines.run("ben", &["run", "-m", "64M", "--", "id", "-u"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    let why = "node n1 cannot run the job: user `ben` has uid 20003 on this node and uid 20002 in the cluster";
    assert!(refused.stderr.contains(why), "{refused:?}");
}

#[test]
fn no_two_users_share_a_uid() {
    let machines = Machines::new();
    let uid_of = |user: &str| machines.head.json(&["hostler", "configure", "user", "show", user])["uid"].clone();
    // An account and a group of the head's machine use the first two automatic ids.
    add(&machines.head, "local", "20000");
    machines.head.ok(&["groupadd", "--gid", "20001", "crew"]);
    machines.head.ok(&["hostler", "configure", "user", "add", "ada"]);
    assert_eq!(uid_of("ada"), 20002);
    let refused = machines.head.run(&["hostler", "configure", "user", "add", "cy", "--uid", "20000"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("uid 20000 belongs to local on the head's machine"), "{refused:?}");

    // Another account has ada's uid on the head's machine and on the node. Neither may act as ada.
    machines.head.ok(&["hostler", "configure", "user", "role", "ada", "admin"]);
    for host in [&machines.head, &machines.node] {
        host.ok(&["sh", "-c", "userdel ada 2>/dev/null; true"]);
        add(host, "eve", "20002");
        let eve =
            ["setpriv", "--reuid", "eve", "--regid", "eve", "--init-groups", "env", "-C", "/", "HOME=/", "hostler"];
        for command in [&["configure", "user", "list"][..], &["run", "-m", "64M", "--", "id"]] {
            let refused = host.run(&[&eve, command].concat());
            assert_ne!(refused.code, 0, "{refused:?}");
            let why = "uid 20002 is called eve on that machine, but in the cluster the uid belongs to ada";
            assert!(refused.stderr.contains(why), "{refused:?}");
        }
    }
    // The uid of a removed user is not reused.
    machines.head.ok(&["hostler", "configure", "user", "remove", "ada"]);
    machines.head.ok(&["hostler", "configure", "user", "add", "dan"]);
    assert_eq!(uid_of("dan"), 20003);
}
