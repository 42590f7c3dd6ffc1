//! One command on several nodes at once, and programs that launch by a remote shell.

use std::collections::BTreeMap;

use crate::machines::{Machines, USER};

#[test]
fn output_of_several_nodes_is_labelled() {
    let mut machines = Machines::of(3);
    // Lines that arrive in pieces, from all nodes at once.
    let script = "for i in $(seq 200); do printf 'line '; printf \"$i \"; printf of; echo \" $HOSTLER_NODE\"; done\n\
                  printf 'no newline' >&2; printf end";
    machines.write("pieces.sh", script);
    let outcome = machines.run(0, "dsh --all sh pieces.sh");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let mut next = BTreeMap::<&str, usize>::new();
    for line in outcome.stdout.lines() {
        let (label, line) = line.split_once(": ").expect("a label");
        let number = next.entry(label).or_insert(1);
        let expected = if *number > 200 { "end".to_owned() } else { format!("line {number} of {label}") };
        assert_eq!(line, expected);
        *number += 1;
    }
    assert_eq!(next, ["n1", "n2", "n3"].map(|name| (name, 202)).into());
    for line in ["n1: no newline\n", "n2: no newline\n", "n3: no newline\n", "3 of 3 nodes: exit code 0\n"] {
        assert!(outcome.stderr.contains(line), "{outcome:?}");
    }

    // The exit code is that of the first node that failed; the others run to their end.
    let outcome = machines.run(0, "dsh --nodes n2,n3 sh -c 'sleep 0.2; echo ran; [ $HOSTLER_NODE = n2 ] || exit 9'");
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((outcome.code, lines), (9, vec!["n2: ran", "n3: ran"]), "{outcome:?}");
    assert!(
        outcome.stderr.contains("node n3: exit code 9") && outcome.stderr.contains("1 of 2 nodes: exit code 0"),
        "{outcome:?}"
    );
    let outcome = machines.run(0, "dsh --nodes n1,n2 sh -c 'kill -KILL $$'");
    assert!(outcome.code == 137 && outcome.stderr.contains("0 of 2 nodes"), "{outcome:?}");
    let outcome = machines.run(0, "dsh --nodes n1,n9 echo ran");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, "n1: ran\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("n9: no node of that name") || outcome.stderr.contains("node n9"), "{outcome:?}");

    // Requirements hold on each node. The name of a node is one of its features.
    let outcome = machines.run(0, "dsh --all --exclude n3 --constraint 'n2|n3' echo ran");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "n2: ran\n"), "{outcome:?}");
    let outcome = machines.run(0, "dsh --nodes n1,n2 --constraint n2 echo ran");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, "n2: ran\n"), "{outcome:?}");
    for useless in ["--exclude n1", "--prefer-local"] {
        let outcome = machines.run(0, &format!("dsh --nodes n1,n2 {useless} echo ran"));
        assert!(outcome.code == 2 && outcome.stderr.contains("cannot be used with"), "{outcome:?}");
    }

    // A progress bar appears while its line is incomplete, and does not overwrite its label.
    machines.write("bar.sh", "printf '10%%\\r20%%\\r'; while ! [ -e go ]; do sleep 0.05; done; echo 100%");
    let script = "dsh --nodes n2,n3 sh bar.sh | while read -r line; do echo \"$line\"; touch go; done";
    let outcome = machines.run(0, &format!("timeout 30 sh -c '{script}'"));
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let expected: &[&str] = &["n2: 100%", "n2: 20%", "n3: 100%", "n3: 20%"];
    assert!(lines.iter().all(|line| expected.contains(line)), "{outcome:?}");
    assert!(outcome.code == 0 && outcome.stdout.contains(": 20%\n"), "{outcome:?}");

    // A node that is down counts as one of all.
    machines.kill_agent(2);
    machines.wait_for(0, 2);
    let outcome = machines.run(0, "dsh --all echo ran");
    assert!(outcome.code == 125 && outcome.stdout.lines().count() == 2, "{outcome:?}");
    assert!(outcome.stderr.contains("node n3 is left out: ") && outcome.stderr.contains("2 of 3 nodes"), "{outcome:?}");
    let outcome = machines.run(0, "dsh --all --available echo ran");
    assert!(outcome.code == 0 && outcome.stderr.contains("2 of 2 nodes"), "{outcome:?}");
    let outcome = machines.run(0, "dsh --all --exclude n3 echo ran");
    assert!(outcome.code == 0 && !outcome.stderr.contains("left out"), "{outcome:?}");
}

#[test]
fn programs_can_use_it_as_a_remote_shell() {
    let machines = Machines::of(3);
    // Copies a folder to the home on another node, which is not visible here, and back.
    let home = format!("/home/{USER}");
    let copy = format!(
        "mkdir folder && cd folder && for i in $(seq 200); do head -c $((i * 50)) /dev/urandom >$i; done && ln -s 7 link && chmod 750 3 && cd .. \
         && rsync -a -e 'hostler exec --rsh' folder/ n2:{home}/copy/ && [ ! -e {home}/copy ] && rsync -a -e 'hostler exec --rsh' n2:{home}/copy/ back/ \
         && diff -r --no-dereference folder back && stat -c '%a %Y' folder/3 | cmp - <(stat -c '%a %Y' back/3) && ls back | wc -l"
    );
    assert_eq!(machines.ok(0, &copy), "201");
    assert!(machines.nodes[1].path(&format!("{home}/copy/200")).exists());
    // Like ssh: a shell command in the user's home, whose exit code is passed on.
    let outcome = machines.run(0, "hostler exec --rsh -x -l games n3 'cd / && echo $HOSTLER_NODE;' exit 6");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (6, "n3\n"), "{outcome:?}");
    assert_eq!(machines.ok(0, "hostler exec --rsh n2 pwd"), home);

    let script = "mpirun --mca plm_rsh_agent 'hostler exec --rsh' -H n1:1,n2:2,n3:1 sh -c 'echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $(hostname)' | sort";
    assert_eq!(machines.run(0, script).stdout, "0 4 n1\n1 4 n2\n2 4 n2\n3 4 n3\n");
}
