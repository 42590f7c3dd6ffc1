//! Commands on the caller's own machine: on its streams, or in place of the caller on a terminal; and the cgroup of a
//! command.

use hostler_testkit::wait_until;

use crate::machines::{Machines, USER, end_of};

/// The cgroup of a process, by the name of its leaf.
const LEAF: &str = "sed -n s/^0::.*\\\\///p /proc/self/cgroup";

#[test]
fn local_command_replaces_the_calling_process() {
    let mut machines = Machines::of(2);
    let script = "script -qec \"echo \\$\\$ >shell; exec dsh --node n1 sh -c 'echo \\$\\$ >pid'\" /dev/null && cmp shell pid && echo same";
    assert_eq!(machines.ok(0, script), "same");

    // The command has a cgroup of its own. Its background processes end with it, even if they ignore signals.
    let leaf = machines.ok(0, &format!("dsh --node n1 {LEAF}"));
    assert!(leaf.contains("call-"), "{leaf}");
    let on_terminal = machines.ok(0, &format!("script -qec 'dsh --node n1 {LEAF}' /dev/null"));
    assert!(on_terminal.contains("here-"), "{on_terminal}");
    assert_eq!(machines.ok(0, "dsh --node n1 sh -c 'sleep 1005 >/dev/null 2>&1 & (trap \"\" TERM; setsid sleep 1005 >/dev/null 2>&1 &) ; echo left'"), "left");
    machines.wait_for_none(0, "sleep 1005", 10);
    let of_n1 = |machines: &Machines, leaf: &str| {
        machines.nodes[0].ok(&["sh", "-c", &format!("find /sys/fs/cgroup -type d -name '{leaf}' 2>/dev/null | wc -l")])
            != "0"
    };
    // The shepherd waits for another command for a while before it ends and removes the leaf.
    wait_until("the command's leaf to be removed", 30, || (!of_n1(&machines, leaf.trim())).then_some(()));

    // A command in a job does not leave the job's cgroup.
    let job = [
        "setpriv",
        "--reuid",
        USER,
        "--regid",
        USER,
        "--init-groups",
        "env",
        "-C",
        "/",
        "hostler",
        "run",
        "--constraint",
        "n1",
        "-m",
        "64M",
        "--",
    ];
    let nested = machines
        .head
        .run(&[&job[..], &["sh", "-c", &format!("PATH=/run/bin:$PATH; {LEAF}; dsh --node n1 {LEAF}")]].concat());
    let lines: Vec<&str> = nested.stdout.lines().collect();
    assert!(
        lines.len() == 2 && lines[0] == lines[1] && !lines[0].contains("here-") && !lines[0].contains("call-"),
        "{nested:?}"
    );

    // If the agent is killed, a command on a terminal continues, and the next agent cleans up after it. One more
    // shell has this text on its command line.
    let quoted = LEAF.replace('\\', "\\\\");
    let call = machines.start(0, &format!("exec script -qec \"dsh --node n1 sh -c '{quoted} >leaf; (setsid sleep \\$((1000 + 6)) >/dev/null 2>&1 &); until [ -e done ]; do sleep 0.05; done; exit 7'\" /dev/null"));
    let leaf = machines.line_of("leaf");
    machines.kill_agent(0);
    assert!(of_n1(&machines, &leaf));
    machines.start_agent(0, &[]);
    machines.wait_for(0, 2);
    assert_eq!(machines.processes(0, "sleep 1006"), 1, "the command and its child continue");
    machines.write("done", "");
    let (outcome, _) = end_of(call);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (7, ""));
    machines.wait_for_none(0, "sleep 1006", 10);
    wait_until("the command's leaf to be removed", 10, || (!of_n1(&machines, &leaf)).then_some(()));

    // Without an agent, the command runs here, with a message.
    machines.kill_agent(0);
    let outcome = machines.run(0, "dsh sh -c 'echo ran; exit 4'");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (4, "ran\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("running the command here"), "{outcome:?}");
    assert_eq!(machines.run(0, "dsh --node n2 true").code, 125);
}

#[test]
fn memory_flag_limits_the_command() {
    let machines = Machines::of(2);
    for node in ["n1", "n2"] {
        let take = |memory: &str| {
            let outcome = machines
                .run(0, &format!("dsh --node {node} --memory {memory} python3 -c 'print(len(bytearray(150 << 20)))'"));
            (outcome.code, outcome.stdout.trim().to_owned(), outcome.stderr)
        };
        let (code, said, _) = take("300M");
        assert_eq!((code, said.as_str()), (0, "157286400"), "{node}");
        let (code, said, message) = take("64M");
        assert_eq!((code, said.as_str()), (137, ""), "{node}: {message}");
        // On the caller's own node, only the kernel reports the limit.
        assert!(node == "n1" || message.contains("memory limit"), "{message}");
    }
}
