//! Failures of remote commands, and how the caller's machine reports them.

use std::time::Instant;

use hostler_testkit::{Outcome, wait_until};

use crate::machines::{Machines, USER, end_of};

/// Runs a script on n1. It must fail within seconds with this exit code and these words.
fn refused(machines: &Machines, script: &str, code: i32, words: &[&str]) -> Outcome {
    let since = Instant::now();
    let outcome = machines.run(0, script);
    assert_eq!(outcome.code, code, "{script}: {outcome:?}");
    assert!(words.iter().all(|words| outcome.stderr.contains(words)), "{words:?}: {outcome:?}");
    assert!(since.elapsed().as_secs() < 15, "{script}: {:?}", since.elapsed());
    outcome
}

#[test]
fn lost_node_or_link_ends_a_command_on_both_sides() {
    let mut machines = Machines::of(3);
    // Each node has a command that ignores SIGTERM, and one without output.
    let start = |machines: &Machines, node: &str| {
        // Once the commands' output has arrived, the caller's node knows that they have started.
        let deaf = machines.start(
            0,
            &format!("exec dsh --node {node} sh -c 'trap \"\" TERM; echo up; while :; do sleep 1004; done' >{node}-1"),
        );
        let silent = machines.start(0, &format!("exec dsh --node {node} sh -c 'echo up; exec sleep 1004' >{node}-2"));
        ["1", "2"].iter().for_each(|which| drop(machines.line_of(&format!("{node}-{which}"))));
        [deaf, silent]
    };

    // Kill the agent: its commands end at once, and their callers get an error.
    let calls = start(&machines, "n3");
    machines.kill_agent(2);
    for call in calls {
        let (outcome, took) = end_of(call);
        assert!(outcome.code == 125 && took < 10.0, "{took} s: {outcome:?}");
        assert!(outcome.stderr.contains("the connection with node n3 broke while the command ran"), "{outcome:?}");
    }
    machines.wait_for_none(2, "sleep 1004", 10);
    // A command for n3 does not run on another node; commands for other nodes run.
    refused(&machines, "dsh --node n3 true", 125, &["n3"]);
    assert_eq!(machines.ok(0, "dsh --exclude n1 sh -c 'echo $HOSTLER_NODE'"), "n2");

    // Cut the link: both sides detect the cut by timeouts.
    let calls = start(&machines, "n2");
    machines.nodes[1].cut();
    for call in calls {
        let (outcome, took) = end_of(call);
        assert!(outcome.code == 125 && took < 20.0, "{took} s: {outcome:?}");
        assert!(outcome.stderr.contains("the connection with node n2 broke while the command ran"), "{outcome:?}");
    }
    machines.wait_for_none(1, "sleep 1004", 20);
    refused(&machines, "dsh --node n2 true", 125, &["n2"]);
    assert_eq!(machines.ok(0, "dsh sh -c 'echo $HOSTLER_NODE'"), "n1", "the remaining node runs it");
    machines.nodes[1].heal();
    machines.start_agent(2, &[]);
    machines.wait_for(0, 3);
    assert_eq!(machines.ok(0, "dsh --node n2 echo again; dsh --node n3 echo again"), "again\nagain");
}

#[test]
fn unsuitable_node_is_reported_and_another_one_is_used() {
    // n1 is so slow that it is the last choice.
    let slow: &[&str] = &["--load-weight", "100"];
    let machines = Machines::prepared(3, |host| if host.name() == "n1" { slow } else { &[] });
    let shared = machines.shared();
    let ran = "for i in 1 2 3 4 5 6; do dsh sh -c 'echo $HOSTLER_NODE'; done | sort -u";

    // A directory that exists only on this machine.
    let only = format!("/home/{USER}/only");
    let first = machines.run(0, &format!("mkdir {only} && cd {only} && touch here && dsh ls"));
    assert_eq!((first.code, first.stdout.as_str()), (0, "here\n"), "{first:?}");
    for part in
        ["note: running here, not on n", "n2", "n3", "cannot enter the directory", "`--mirror` copies the directory"]
    {
        assert!(first.stderr.contains(part), "{part}: {first:?}");
    }
    // `ok` fails with output on stderr: the note is said once a minute.
    assert_eq!(machines.ok(0, &format!("cd {only} && {ran}")), "n1");
    refused(
        &machines,
        &format!("cd {only} && dsh --node n2 touch made"),
        126,
        &["node n2 cannot enter the directory", &only, "No such file or directory", "-C"],
    );
    // Nodes refuse commands for other reasons too.
    let root = machines.nodes[0].run(&["dsh", "-C", "/", "echo", "here"]);
    assert_eq!((root.code, root.stdout.as_str()), (0, "here\n"), "{root:?}");
    for part in ["note: running here, not on n", "--root-jobs", "; `--report` shows the reason of each"] {
        assert!(root.stderr.contains(part) && !root.stderr.contains("--mirror"), "{part}: {root:?}");
    }
    let told = machines.run(0, &format!("cd {only} && dsh --report true"));
    assert!(told.code == 0 && told.stderr.contains("ran on n1"), "{told:?}");
    for node in ["not on n2: ", "not on n3: "] {
        assert!(told.stderr.contains(node), "{told:?}");
    }

    // The node has another directory of this name: the command does not run in it.
    let sub = format!("{shared}/sub");
    machines.ok(0, "mkdir sub && chmod 700 sub");
    machines.nodes[1].ok(&["sh", "-c", &format!("mount -t tmpfs none {sub} && chown {USER} {sub}")]);
    refused(&machines, "cd sub && dsh --node n2 touch made", 126, &["node n2 is not the caller's directory", &sub]);
    let elsewhere = ran.replace("dsh", "dsh --exclude n1");
    assert_eq!(machines.ok(0, &format!("cd sub && {elsewhere}")), "n3");
    assert_eq!(machines.ok(1, "ls -A sub; echo nothing"), "nothing");
    // Each command checks the directory, even if the previous command has just found the right one.
    assert_eq!(machines.ok(0, "cd sub && dsh --node n3 sh -c 'touch made; ls'"), "made");
    machines.nodes[2].ok(&["mount", "-t", "tmpfs", "none", &sub]);
    refused(&machines, "cd sub && dsh --node n3 touch again", 126, &["node n3"]);
    machines.nodes[2].ok(&["umount", &sub]);
    machines.nodes[1].ok(&["umount", &sub]);
    assert_eq!(machines.ok(0, "cd sub && dsh --node n3 ls && dsh --node n2 ls"), "made\nmade");
    // With -C, the node's own directory is used.
    assert_eq!(machines.ok(0, &format!("dsh --node n2 -C /home/{USER} pwd")), format!("/home/{USER}"));
    refused(&machines, "dsh --node n2 -C /no/such true", 126, &["n2", "/no/such", "No such file or directory"]);

    // A directory that the user may not enter on the node.
    machines.nodes[1].ok(&["sh", "-c", "mkdir -m 700 /home/closed"]);
    refused(&machines, "dsh --node n2 -C /home/closed true", 126, &["/home/closed", "Permission denied"]);

    // The disk of the directory is full.
    machines.nodes[1].ok(&["sh", "-c", "mkdir /home/small && mount -t tmpfs -o size=64k,mode=1777 none /home/small"]);
    refused(
        &machines,
        "dsh --node n2 -C /home/small sh -c 'head -c 200000 /dev/zero >big'",
        1,
        &["No space left on device"],
    );
    // The node's own disk is full; commands do not need it.
    let full = "mount -t tmpfs -o size=64k,mode=1777 none /tmp; head -c 200000 /dev/zero >/tmp/big; echo full";
    machines.nodes[1].ok(&["sh", "-c", full]);
    assert_eq!(machines.ok(0, "dsh --node n2 echo all the same"), "all the same");

    // A user who does not exist on the node, and one with another uid there.
    for (user, change, words) in [
        ("news", "/^news:/d", ["node n3", "this node has no user `news`"]),
        ("mail", "/^mail:/s/x:8:/x:4321:/", ["node n3", "4321"]),
    ] {
        machines.nodes[2].ok(&["sed", "-i", change, "/etc/passwd"]);
        let as_user = |arguments: &[&str]| {
            Outcome::of(
                &machines.command_of(user, 0, &[&["dsh"], arguments].concat()).output().expect("the program starts"),
            )
        };
        let outcome = as_user(&["--node", "n3", "true"]);
        assert!(outcome.code == 126 && words.iter().all(|word| outcome.stderr.contains(word)), "{outcome:?}");
        for _ in 0..4 {
            let outcome = as_user(&["sh", "-c", "echo $HOSTLER_NODE"]);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "n2\n"), "{outcome:?}");
        }
    }

    // A drained node.
    machines.head.ok(&["hostler", "node", "drain", "n2", "--reason", "new disk"]);
    wait_until("n2 to take no commands", 30, || (machines.candidates(0) == ["n1", "n3"]).then_some(()));
    assert_eq!(machines.ok(0, ran), "n3");
    refused(
        &machines,
        "dsh --node n2 true",
        125,
        &["no node can run this command", "n2: the node accepts no commands now"],
    );
    refused(&machines, "dsh --node n9 true", 125, &["n9: no node of that name"]);
    refused(&machines, "dsh --memory 64G true", 125, &["n1: the node has only", "n3: the node has only"]);
    machines.head.ok(&["hostler", "node", "resume", "n2"]);
    machines.wait_for(0, 3);
    assert_eq!(machines.ok(0, "dsh --node n2 echo again"), "again");
}

#[test]
fn node_that_a_job_has_to_itself_gets_no_commands() {
    let machines = Machines::of(2);
    let script = "until [ -e release ]; do sleep 0.1; done; echo $HOSTLER_CPUS";
    let alone = format!("hostler run --detach --exclusive --constraint n2 -m 64M -- sh -c '{script}'");
    let id = machines.ok(0, &alone);
    // At once on n2 itself, and soon before a node is chosen.
    wait_until("n2 to take no commands", 30, || (machines.candidates(0) == ["n1"]).then_some(()));
    assert_eq!(machines.ok(0, "dsh sh -c 'echo $HOSTLER_NODE'"), "n1");
    refused(&machines, "dsh --node n2 true", 125, &["n2: the node accepts no commands now"]);
    machines.ok(0, "touch release");
    assert_eq!(machines.ok(0, &format!("hostler logs -f {id}")), "2", "the job has all CPUs of the node");
    machines.wait_for(0, 2);
    assert_eq!(machines.ok(0, "dsh --node n2 echo again"), "again");
}
