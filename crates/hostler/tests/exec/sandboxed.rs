//! Remote commands in a sandbox.

use hostler_testkit::wait_until;

use crate::machines::Machines;

/// Tells where a command runs.
const WHERE: &str = "sh -c 'test -e /home && echo outside || echo inside'";

#[test]
fn sandboxed_command_has_its_directory_and_no_way_around_the_sandbox() {
    let mut machines = Machines::of(2);
    machines.ok(0, "mkdir work; echo text > work/data; echo secret > beside");
    // The same holds on the caller's own node.
    for node in ["n1", "n2"] {
        let tell = "hostname; cat; cat data; ls -A ..; id -un; echo $HOME $HOSTLER_NODE; ls /sys/class/net 2>/dev/null; echo made > made-there";
        let told = machines.ok(
            0,
            &format!("cd work; echo input | dsh --sandbox --node {node} sh -c '{tell}'; cat made-there; rm made-there"),
        );
        assert_eq!(told, format!("sandbox\ninput\ntext\nwork\ngames\n/tmp/home {node}\nmade"));
        let ends = format!(
            "cd work; dsh --sandbox --node {node} sh -c 'exit 7'; echo $?; dsh --sandbox --node {node} sh -c 'kill -USR1 $$' 2>/dev/null; echo $?"
        );
        assert_eq!(machines.run(0, &ends).stdout, "7\n138\n");
        // A directory as standard input would be a way out.
        let out = machines.run(0, &format!("cd work; dsh --sandbox --node {node} cat /proc/self/fd/0/beside < .."));
        assert!(out.code != 0 && !out.stdout.contains("secret"), "{out:?}");
        // The caller's signals reach the program, although it has another parent.
        let signalled = format!(
            "cd work; dsh --sandbox --node {node} sh -c 'trap \"exit 3\" TERM; echo yes > started; while :; do sleep 0.05; done' & \
             until [ -s started ]; do sleep 0.05; done; kill $!; wait $!; echo $?; rm started"
        );
        assert_eq!(machines.run(0, &signalled).stdout, "3\n");
        let elsewhere = machines.run(0, &format!("dsh --sandbox -C /tmp --node {node} true"));
        assert!(
            elsewhere.code == 126 && elsewhere.stderr.contains("it does not belong to user games"),
            "{elsewhere:?}"
        );
    }
    let both = machines.run(0, &format!("cd work; dsh --all --sandbox {WHERE} | sort"));
    assert_eq!(both.stdout, "n1: inside\nn2: inside\n", "{both:?}");
    // On a terminal, too, an own command is not run outside.
    let on_terminal = machines.ok(0, &format!("cd work; script -qec \"dsh --sandbox --node n1 {WHERE}\" /dev/null"));
    assert_eq!(on_terminal.trim_end(), "inside");

    // A node can demand it of the commands of others.
    machines.kill_agent(1);
    machines.nodes[1].write("/etc/hostler/agent.toml", "remote_commands = \"sandboxed\"\n");
    machines.start_agent(1, &[]);
    wait_until("n2 to accept commands again", 60, || {
        let ran = machines.run(0, &format!("cd work; dsh --node n2 {WHERE}"));
        assert!(ran.code == 0 && ran.stdout == "inside\n" || ran.code == 125, "{ran:?}");
        (ran.code == 0).then_some(())
    });
    assert_eq!(machines.ok(0, &format!("cd work; dsh --node n1 {WHERE}")), "outside");
    // Without an agent, other commands run here.
    machines.kill_agent(0);
    let alone = machines.run(0, "cd work; dsh --sandbox echo outside");
    assert!(alone.code == 125 && alone.stdout.is_empty(), "{alone:?}");
}
