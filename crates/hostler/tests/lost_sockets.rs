//! Sockets and runtime directories that disappear while daemons run, and daemons started in wrong directories.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hostler_snapshot::remove_tree;
use hostler_testkit::{Cluster, Outcome, RealCluster, Size, end, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Checks that a command has waited for the socket of a running daemon.
fn has_waited(said: &Outcome, who: &str) {
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stderr.contains(who) && said.stderr.contains("is missing; waiting"), "{said:?}");
}

#[test]
fn embedded_cluster_survives_the_removal_of_its_runtime_directory() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, ..Size::default() });
    let job = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "1000"]);
    let daemons = (cluster.head_pid(), cluster.agent_pids());
    // A logout removes the directory above, too.
    let remove = || remove_tree(&cluster.path("run")).expect("the test owns the directory");
    let head = format!("note: a head runs (pid {})", daemons.0);

    remove();
    has_waited(&cluster.run(&["nodes"]), &head);
    assert_eq!(fs::metadata(cluster.path("run/hostler")).expect("made again").mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(cluster.path("run/hostler/head.sock")).expect("made again").mode() & 0o777, 0o600);

    remove();
    let up = cluster.run(&["up"]);
    has_waited(&up, &head);
    assert!(up.stderr.contains("the cluster is already running"), "{up:?}");
    assert_eq!((cluster.head_pid(), cluster.agent_pids()), daemons);
    assert_eq!(cluster.state(&job), "running");

    let nodes_socket = cluster.path("run/hostler/n1.sock");
    // The head's socket, and two of each agent.
    wait_until("the agents to bind their sockets", 20, || {
        (nodes_socket.exists() && socket_count(&cluster.path("run/hostler")) == 5).then_some(())
    });
    fs::remove_file(&nodes_socket).expect("the test owns the file");
    let named = format!("unix:{}", nodes_socket.display());
    has_waited(&cluster.run(&["--head", &named, "nodes"]), "note: an agent runs");

    remove();
    has_waited(&cluster.run(&["down", "--keep"]), &head);
    let up = cluster.run(&["up"]);
    assert!(up.code == 0 && up.stderr.contains("the cluster is up"), "{up:?}");
    assert_eq!(cluster.state(&job), "running");
}

/// Number of sockets in a directory.
fn socket_count(directory: &Path) -> usize {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| !name.to_string_lossy().starts_with('.') && name != "allocations").count()
}

#[test]
fn running_cluster_is_found_with_another_runtime_directory() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let other = cluster.path("other");
    hostler_testkit::create_private(&other);
    for runtime in [other, cluster.path("not/there")] {
        for (arguments, expected) in [(&["nodes"][..], ""), (&["up"], "the cluster is already running")] {
            let mut command = cluster.command(arguments);
            let said = Outcome::of(&command.env("XDG_RUNTIME_DIR", &runtime).output().expect("it starts"));
            assert!(said.code == 0 && said.stderr.contains(expected), "{}: {said:?}", runtime.display());
            assert!(!said.stderr.contains("XDG_RUNTIME_DIR"), "the variable does not matter: {said:?}");
        }
    }
}

#[test]
fn real_head_and_agent_bind_lost_sockets_again() {
    let real = RealCluster::start(HOSTLER);
    let agent = real.add_node("n1");
    fs::remove_file(real.path("head/head.sock")).expect("the test owns the file");
    has_waited(&real.home.run(&["--head", &real.address, "nodes"]), "note: a head runs (pid ");
    assert_eq!(fs::metadata(real.path("head/head.sock")).expect("made again").mode() & 0o777, 0o666);
    fs::remove_file(real.path("n1/agent.sock")).expect("the test owns the file");
    let node = format!("unix:{}", real.path("n1/agent.sock"));
    has_waited(&real.home.run(&["--head", &node, "nodes"]), "note: an agent runs");
    real.wait_for_log("n1", "the socket was removed; it is bound again");

    // A head that has ended is not waited for.
    real.kill_head();
    fs::remove_file(real.path("head/head.sock")).expect("the killed head has left the file");
    let said = real.fails(&["nodes"]);
    assert!(said.contains("no such socket") && !said.contains("a head runs"), "{said}");
    end(agent);
}

#[test]
fn daemons_refuse_directories_in_which_nothing_was_set_up() {
    let home = Cluster::none(HOSTLER);
    let wrong = home.path("typo").display().to_string();
    let said = home.fails(&["head", "run", "--directory", &wrong, "--listen", "127.0.0.1:0"]);
    assert!(said.contains(&format!("no head is set up in {wrong}")), "{said}");
    assert!(said.contains(&format!("`hostler head init --directory {wrong}`")), "{said}");
    let said = home.fails(&["agent", "run", "--directory", &wrong]);
    assert!(said.contains("has not joined a cluster yet") && said.contains(&wrong), "{said}");
    assert!(!home.path("typo").exists(), "a daemon that refuses a directory creates nothing");

    // The settings may name a directory on a disk that is not mounted.
    home.ok(&["head", "init", "--directory", &wrong, "--listen", "127.0.0.1:0"]);
    remove_tree(&home.path("typo/trust")).expect("the test owns the directory");
    let said = home.fails(&["head", "run", "--directory", &wrong]);
    assert!(said.contains("no head is set up") && said.contains("disk is mounted"), "{said}");
}

#[test]
fn daemons_refuse_directories_of_the_embedded_cluster() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    cluster.ok(&["down"]);
    let head = cluster.path("state/hostler/head").display().to_string();
    let node = cluster.path("state/hostler/nodes/n1").display().to_string();
    for arguments in [
        ["head", "run", "--directory", &head],
        ["head", "init", "--directory", &head],
        ["agent", "run", "--directory", &node],
    ] {
        let said = cluster.fails(&arguments);
        assert!(said.contains("belongs to the cluster of `hostler up`"), "{arguments:?}: {said}");
    }
    assert!(!cluster.path("state/hostler/head/head.toml").exists());
    cluster.ok(&["up"]);
}

#[test]
fn unit_for_the_start_at_boot_is_written_once() {
    let home = Cluster::none(HOSTLER);
    for _ in 0..2 {
        let said = home.run(&["up", "--unit"]);
        assert!(said.code == 0 && said.stderr.contains("systemctl --user enable --now hostler"), "{said:?}");
    }
    let path = home.path("config/systemd/user/hostler.service");
    let text = fs::read_to_string(&path).expect("the unit was written");
    assert!(text.contains(&format!("ExecStart=\"{HOSTLER}\" up\n")), "{text}");
    assert!(text.contains(&format!("XDG_STATE_HOME={}", home.path("state").display())), "{text}");
    assert!(!home.path("state").exists(), "nothing was started");
    fs::write(&path, "# mine").expect("the test owns the file");
    let said = home.fails(&["up", "--unit"]);
    assert!(said.contains("exists with other contents"), "{said}");
    assert!(home.fails(&["up", "--unit", "--nodes", "2"]).contains("cannot be used with"));
}
