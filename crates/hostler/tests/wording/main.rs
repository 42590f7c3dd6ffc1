//! What commands print, as golden text in `snapshots`, so that wording is reviewed as text.
//!
//! CONTRIBUTING.md names the command that accepts changes. Values that differ between runs are replaced, e.g. by
//! `[TIME]`, and columns are separated by two spaces; `output` has tests of their exact width. Help is not repeated
//! here, because docs/reference/cli.md has all of it.

mod transcript;

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use hostler_testkit::{Cluster, RealCluster, end, hide_people_for_this_thread};

use transcript::Transcript;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn commands_of_users_print_golden_text() {
    let cluster = Cluster::none(HOSTLER);
    mistakes_without_a_cluster(&cluster);
    let mut text = Transcript::of(&cluster);
    text.run(&["up", "--nodes", "2", "--cpus", "1", "--memory", "256M"]);
    text.run(&["up", "--nodes", "3"]);
    text.run(&["info"]);
    text.run(&["info", "--json", "--energy"]);
    text.check("up");
    submissions(&cluster);
    arrays(&cluster);
    refusals(&cluster);
    commands_at_once(&cluster);
    administration(&cluster);
    cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "true"]);
    let mut text = Transcript::of(&cluster);
    text.run(&["down"]);
    text.run(&["down", "--cancel"]);
    text.run(&["down"]);
    text.run(&["jobs"]);
    text.check("down");
}

fn mistakes_without_a_cluster(cluster: &Cluster) {
    cluster.write("project/main.sh", "echo hello\n");
    let mut text = Transcript::of(cluster).with_times();
    text.run(&["jobs"]);
    text.run(&["--head", "unix:/nowhere/head.sock", "submit", "project", "main.sh"]);
    text.run(&["--head", "unix:/nowhere/head.sock", "submit", "project", "missing.sh"]);
    text.run(&["--head", "cluster.example:7760", "jobs"]);
    text.run(&["--head", "nonsense", "jobs"]);
    text.run(&["exec", "--node", "n1", "true"]);
    text.run(&["exec"]);
    text.run(&["jbos"]);
    text.run(&["run", "--memroy", "3G", "true"]);
    text.run(&["run", "-m", "4", "--", "true"]);
    text.run(&["run", "-m", "lots", "--", "true"]);
    text.run(&["run", "-t", "5", "true"]);
    text.run(&["run", "--grace", "5", "true"]);
    text.run(&["job", "seven"]);
    text.run(&["submit", "project"]);
    text.run(&["step", "n1", "true"]);
    text.check("mistakes");

    let site = "ClusterName=course\nKillWait=20\nPrologFlags=Contain\nNodeName=n[1-2] CPUs=2 Feature=ssd\n\
                PartitionName=short Nodes=ALL Default=YES MaxTime=30 OverSubscribe=EXCLUSIVE AllowGroups=staff\n";
    cluster.write("slurm.conf", site);
    cluster.write("wrong.conf", format!("{site}KillWait=long\nPartitionName=long Nodes=n3 MaxTime=soon\n"));
    let mut text = Transcript::of(cluster);
    text.run(&["import", "slurm", "slurm.conf", "--dry-run"]);
    text.run(&["import", "slurm", "slurm.conf", "--dry-run", "--json"]);
    text.run(&["import", "slurm", "slurm.conf"]);
    text.run(&["import", "slurm", "wrong.conf"]);
    text.check("import");
}

/// A job from its submission to its results.
fn submissions(cluster: &Cluster) {
    cluster.write("project/main.sh", "echo hello; echo trouble >&2; echo data > result.txt; exit 3\n");
    let mut text = Transcript::of(cluster);
    text.run(&["submit", "project", "main.sh", "-m", "16M", "--name", "try", "--constraint", "n1"]);
    cluster.wait_for_state("1", "failed");
    text.run(&["jobs"]);
    text.run(&["jobs", "--all"]);
    text.run(&["job", "1"]);
    text.run(&["why", "1"]);
    text.run(&["logs", "1"]);
    text.run(&["wait", "1"]);
    text.run(&["fetch", "1"]);
    text.run(&["fetch", "1"]);
    text.run(&["fetch", "--all"]);
    text.run(&["requeue", "1"]);
    cluster.wait_for_state("1", "failed");
    text.run(&["cancel", "1"]);
    text.check("submit");

    let mut text = Transcript::of(cluster);
    text.run(&["run", "-m", "16M", "--", "echo", "hello"]);
    text.run(&["run", "-m", "16M", "--", "sh", "-c", "exit 7"]);
    text.run(&["run", "-m", "16M", "--", "sh", "-c", "kill -9 $$"]);
    text.run(&["run", "-m", "16M", "--", "no-such-program"]);
    text.run(&["run", "-m", "16M", "-t", "200ms", "--grace", "100ms", "--", "sleep", "600"]);
    text.run(&["run", "--detach", "--hold", "--constraint", "n1", "-m", "16M", "--", "sleep", "600"]);
    let held = cluster.json(&["jobs"])["jobs"][0]["id"].to_string();
    text.run(&["jobs"]);
    text.run(&["why", &held]);
    text.run(&["fetch", &held]);
    text.run(&["attach", &held]);
    text.run(&["release", &held]);
    cluster.wait_for_state(&held, "running");
    text.run(&["why", &held]);
    text.run(&["hold", &held]);
    text.run(&["cancel", &held]);
    cluster.wait_for_state(&held, "cancelled");
    text.run(&["job", &held]);
    text.run(&["job", &held, "--json"]);
    text.check("run");
}

fn arrays(cluster: &Cluster) {
    let mut text = Transcript::of(cluster);
    let failing = "[ $HOSTLER_ARRAY_INDEX != 1 ]";
    text.run(&["run", "--detach", "-a", "0-2", "--constraint", "n1", "-m", "16M", "--", "sh", "-c", failing]);
    let array = cluster.json(&["jobs", "--all"])["jobs"][0]["id"].to_string();
    cluster.wait_for_state(&array, "failed");
    text.run(&["wait", &array]);
    text.run(&["job", &format!("{array}_1")]);
    text.run(&["why", &format!("{array}_1")]);
    text.run(&["job", &format!("{array}_9")]);
    text.run(&["logs", &array]);
    let after = format!("afterok:{array}");
    text.run(&["run", "--detach", "--after", &after, "-m", "16M", "--", "true"]);
    let dependent = cluster.json(&["jobs", "--all"])["jobs"][0]["id"].to_string();
    text.run(&["why", &dependent]);
    text.run(&["fetch", &dependent]);
    text.check("array");
}

/// Submissions and questions that the head refuses.
fn refusals(cluster: &Cluster) {
    let mut text = Transcript::of(cluster);
    text.run(&["submit", "no-such-folder", "main.sh"]);
    text.run(&["submit", "project", "missing.sh"]);
    cluster.write("odd/main.sh", "true\n");
    let _socket = UnixListener::bind(cluster.path("odd/socket")).expect("a socket");
    symlink("/etc/passwd", cluster.path("odd/outside")).expect("a link");
    text.run(&["submit", "odd", "main.sh"]);
    text.run(&["run", "-c", "64", "true"]);
    text.run(&["run", "-m", "900G", "true"]);
    text.run(&["run", "--gpus", "1", "true"]);
    text.run(&["run", "--nodes", "3", "-m", "16M", "true"]);
    text.run(&["run", "--constraint", "tape", "true"]);
    text.run(&["run", "--constraint", "a&", "true"]);
    text.run(&["run", "--partition", "slow", "true"]);
    text.run(&["run", "--after", "afterok:99", "true"]);
    for command in ["job", "why", "logs", "cancel", "fetch", "wait"] {
        text.run(&[command, "99"]);
    }
    text.run(&["node", "show", "n9"]);
    text.run(&["node", "drain", "n9"]);
    text.run(&["node", "forget", "n1"]);
    text.run(&["node", "power", "n1", "on"]);
    text.run(&["node", "remove", "n1"]);
    text.run(&["jobs", "--json", "--state", "odd"]);
    text.run(&["job", "99", "--json"]);
    text.check("refusals");
}

/// `hostler exec`.
fn commands_at_once(cluster: &Cluster) {
    let mut text = Transcript::of(cluster);
    text.run(&["exec", "--node", "n2", "--", "echo", "hello"]);
    text.run(&["exec", "--node", "n2", "--report", "--", "true"]);
    text.run(&["exec", "--explain", "--node", "n2", "--", "gcc", "-c", "x.c"]);
    text.run(&["exec", "--nodes", "n2", "--", "sh", "-c", "echo hello; exit 4"]);
    text.run(&["exec", "--nodes", "n2", "--exclude", "n1", "--", "true"]);
    text.run(&["exec", "--node", "n9", "--", "true"]);
    text.run(&["exec", "--constraint", "tape", "--", "true"]);
    text.run(&["exec", "--memory", "900G", "--", "true"]);
    text.run(&["exec", "--node", "n2", "--", "no-such-program"]);
    text.check("exec");
}

/// Nodes, partitions and settings.
fn administration(cluster: &Cluster) {
    let mut text = Transcript::of(cluster);
    text.run(&["nodes"]);
    text.run(&["node", "drain", "n2", "--reason", "new disk"]);
    text.run(&["nodes"]);
    text.run(&["node", "show", "n2"]);
    text.run(&["node", "resume", "n2"]);
    text.run(&["node", "set", "n2", "--features", "ssd,rack-2", "--weight", "5"]);
    text.run(&["node", "set", "n2"]);
    text.run(&["node", "invite", "n3"]);
    text.run(&["node", "remove", "n2", "--yes"]);
    text.run(&["info", "--energy"]);
    text.check("nodes");

    let mut text = Transcript::of(cluster).with_times();
    let partition = ["configure", "partition"];
    text.run(&[&partition[..], &["add", "fast", "--nodes", "n1", "--default", "--max-time", "1h"]].concat());
    text.run(&[&partition[..], &["add", "fast", "--nodes", "*"]].concat());
    text.run(&[&partition[..], &["add", "slow", "--nodes", "n[3-1]"]].concat());
    text.run(&[&partition[..], &["list"]].concat());
    text.run(&[&partition[..], &["show", "fast"]].concat());
    text.run(&["run", "-t", "2h", "true"]);
    text.run(&[&partition[..], &["set", "fast", "--state", "closed"]].concat());
    text.run(&["run", "true"]);
    text.run(&[&partition[..], &["remove", "fast"]].concat());
    text.check("partitions");

    let mut text = Transcript::of(cluster).with_times();
    text.run(&["configure", "setting"]);
    text.run(&["configure", "setting", "lost-after"]);
    text.run(&["configure", "setting", "lost-after", "2m"]);
    text.run(&["configure", "setting", "lost-after", "2"]);
    text.run(&["configure", "setting", "lost-aftr", "2m"]);
    text.run(&["configure", "setting", "lost-after", "--reset"]);
    text.check("settings");
}

#[test]
fn commands_of_real_machines_print_golden_text() {
    // The user and the uid below must belong to nobody on this machine.
    hide_people_for_this_thread();
    let real = RealCluster::start(HOSTLER);
    let mut text = Transcript::of(&real.home);
    let head = ["--head", &real.address];
    let directory = real.path("other");
    text.run(&["head", "init", "--directory", &directory, "--listen", "127.0.0.1:0"]);
    text.run(&["head", "init", "--directory", &directory]);
    text.run(&[&head[..], &["node", "invite", "n1"]].concat());
    let joined = real.join("n1", &real.ok(&["node", "invite", "n1"]), &[], |_| {});
    text.add("hostler agent join -", &joined);
    text.add("hostler agent join -", &real.join("n2", "nonsense", &[], |_| {}));
    text.run(&["agent", "join", &real.ok(&["node", "invite", "n2"])]);
    text.run(&["agent", "join", "nonsense"]);
    let agent = real.run_agent("n1");
    real.wait_for_node("n1", "up");
    text.run(&[&head[..], &["node", "invite", "n1"]].concat());
    text.check("head_and_agent");

    let mut text = Transcript::of(&real.home);
    let key = real.home.write("key.pub", KEY).display().to_string();
    let user = [&head[..], &["configure", "user"]].concat();
    text.run(&[&user[..], &["add", "ada", "--uid", "4711", "--role", "operator", "--key", &key]].concat());
    text.run(&[&user[..], &["add", "ada"]].concat());
    text.run(&[&user[..], &["list"]].concat());
    text.run(&[&user[..], &["show", "ada"]].concat());
    text.run(&[&user[..], &["role", "ada", "king"]].concat());
    text.run(&[&user[..], &["quota", "ada", "--cpus", "4", "--jobs", "2"]].concat());
    text.run(&[&head[..], &["configure", "group", "quota", "students", "--memory", "1G"]].concat());
    text.run(
        &[&head[..], &["configure", "group", "quota", "students", "--each", "--cpus", "2", "--queued", "9"]].concat(),
    );
    text.run(&[&head[..], &["configure", "group", "list"]].concat());
    text.run(&[&user[..], &["block", "ada"]].concat());
    text.run(&[&user[..], &["unblock", "ada"]].concat());
    text.run(&[&user[..], &["invite", "ada"]].concat());
    let address = real.json(&["info"])["head"]["address"].as_str().expect("an address").to_owned();
    let authority = real.json(&["info"])["head"]["authority"].as_str().expect("a fingerprint").to_owned();
    text.run(&["login", &address, "--user", "ada"]);
    text.run(&["login", &address, "--user", "ada", "--authority", &authority]);
    text.run(&["login", &address, "--user", "ada", "--authority", &"0".repeat(64)]);
    text.run(&["login", "127.0.0.1:1", "--user", "ada"]);
    text.run(&["login"]);
    text.run(&["login", &real.ok(&["configure", "user", "invite", "ada"])]);
    text.run(&["logout"]);
    text.run(&[&user[..], &["remove", "ada"]].concat());
    text.run(&[&user[..], &["remove", "ada"]].concat());
    text.check("users_and_login");
    end(agent);

    real.kill_head();
    let mut text = Transcript::of(&real.home);
    text.run(&[&head[..], &["info"]].concat());
    text.check("head_has_ended");
}

/// A public key that nobody uses.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada@laptop\n";
