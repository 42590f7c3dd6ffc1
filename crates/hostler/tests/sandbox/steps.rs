//! Ranks and steps of sandboxed jobs, all in one sandbox.

use std::fs;

use hostler_testkit::{SharedCluster, wait_until};

use crate::{ADA, HOSTLER, run, start};

/// Prints the namespaces and rights of a process.
const RIGHTS: &str = "readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/uts; \
     grep -E '^(Uid|CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status";

#[test]
fn ranks_and_steps_are_in_the_sandbox_of_their_job() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let home = cluster.home_of(ADA);
    let ranks = run(
        &cluster,
        &["-n", "3", "-c", "2", "--label"],
        "hostname; echo $RANK of $WORLD_SIZE > /tmp/rank$RANK; until [ $(ls /tmp | grep -c rank) = 3 ]; do :; done",
    );
    let mut lines: Vec<&str> = ranks.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, ranks.code), (vec!["0: sandbox", "1: sandbox", "2: sandbox"], 0), "{}", ranks.stderr);

    // Steps see the files and processes of the job, have no more rights, and nothing else of the node.
    let script = format!(
        "sh -c \"{RIGHTS}\" > outside-a-step; touch /tmp/of-the-job; sleep 300 & \
         hostler step --tasks 2 sh -c '{{ {rights}; }} > rights$RANK; ls /tmp/of-the-job; kill -0 '$!' && echo same; ls -d /home 2>&1 | grep -c such; touch /tmp/of-step$RANK'; \
         ls /tmp/of-step*; kill $!; hostler step --tasks 1 sh -c 'exit 5'; echo $?",
        rights = RIGHTS.replace('\'', "\""),
    );
    let told = run(&cluster, &["--first-node", "-n", "2"], &script);
    let mut lines: Vec<&str> = told.stdout.lines().collect();
    lines.sort_unstable();
    let expected =
        ["/tmp/of-step0", "/tmp/of-step1", "/tmp/of-the-job", "/tmp/of-the-job", "1", "1", "5", "same", "same"];
    assert_eq!(lines, expected, "{}", told.stderr);
    let rights = |name: &str| fs::read_to_string(home.join(name)).expect("written");
    for rank in ["rights0", "rights1"] {
        assert_eq!(rights(rank), rights("outside-a-step"));
    }
    assert!(rights("rights0").contains("CapBnd:\t0000000000000000"), "{}", rights("rights0"));
    let steps = cluster.ok(ADA, &["job", "2"]);
    assert!(steps.contains("\nSTEP "), "{steps}");
}

#[test]
fn sandboxes_on_several_nodes_reach_each_other_over_the_network_of_their_nodes() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.add_node("n2");
    // The first rank serves the second one, whose files it does not see.
    let ranks = "import os, socket, time\nrank, at = os.environ['RANK'], (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n\
                 open('/tmp/of-' + rank, 'w')\nif rank == '0':\n    client = socket.create_server(at).accept()[0]\n\
                 else:\n    while True:\n        try:\n            client = socket.create_connection(at)\n            break\n\
                 \u{20}       except OSError:\n            time.sleep(0.05)\n\
                 files = [name for name in os.listdir('/tmp') if name.startswith('of-')]\n\
                 client.sendall((rank + str(files)).encode())\nclient.shutdown(socket.SHUT_WR)\n\
                 print(rank, 'got', client.makefile().read(), os.path.exists('/root'))";
    let options = ["--network", "host", "-N", "2", "-c", "1"];
    let arguments = ["run", "--sandbox", "-m", "100M", "--", "python3", "-c", ranks];
    let (before, after) = arguments.split_at(2);
    let told = cluster.run(ADA, &[before, &options, after].concat());
    let mut lines: Vec<&str> = told.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 got 1['of-1'] False", "1 got 0['of-0'] False"], "{told:?}");

    let script = format!("hostler step --all sh -c '{RIGHTS_OF_STEP}' | sort");
    let told = run(&cluster, &[&options[..], &["--first-node"]].concat(), &script);
    let rights = "CapBnd: 0000000000000000 /tmp/home absent";
    assert_eq!(told.stdout, format!("n1: {rights}\nn2: {rights}\n"), "{told:?}");
}

/// Prints what a step in a sandbox must not have.
const RIGHTS_OF_STEP: &str =
    "echo $(grep CapBnd /proc/self/status) $HOME $(ls -d /root >/dev/null 2>&1 || echo absent)";

#[test]
fn signal_reaches_a_step_in_a_sandbox_and_no_process_outlives_it() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let home = cluster.home_of(ADA);
    let script = "hostler step --tasks 1 sh -c 'trap \"echo got >> told; exit 3\" USR1; echo ready > told; while :; do sleep 0.05; done'; echo $? > ended; exec sleep 300";
    let id = start(&cluster, &["--first-node"], script);
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    wait_until("the step to run", 30, || (read("told") == "ready\n").then_some(()));
    assert!(cluster.ok(ADA, &["job", &id]).contains("RUNNING STEP"));
    cluster.ok(ADA, &["signal", &id, "USR1", "--step", "0"]);
    wait_until("the step to end", 30, || (read("ended") == "3\n").then_some(()));
    assert_eq!(read("told"), "ready\ngot\n");
    cluster.ok(ADA, &["cancel", &id]);
    assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0);
}
