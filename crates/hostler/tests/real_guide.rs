//! Runs the commands of the guide to real machines exactly as written. Needs root.

use hostler_testkit::{Host, Network, Outcome, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const GUIDE: &str = include_str!("../../../docs/guides/real-machines.md");

/// The words of a command that stands in an example of the guide. Text after `#` is a comment.
fn written(command: &str) -> Vec<&str> {
    let is_it = |line: &str| line.split('#').next().is_some_and(|line| line.trim() == command);
    assert!(GUIDE.lines().any(is_it), "the guide has no line `{command}`");
    command.split_whitespace().collect()
}

/// Runs a command of the guide as a user.
fn typed(host: &Host, user: &str, command: &str) -> Outcome {
    let become_them = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "-C", "/", "HOME=/"];
    host.run(&[&become_them[..], &written(command)].concat())
}

#[test]
fn the_guide_to_real_machines_works_as_written() {
    let network = Network::new(HOSTLER);
    let (head, n1) = (network.host("head"), network.host("n1"));
    head.ok(&written("hostler head init"));
    let _runs = head.daemon("head", &written("hostler head run"));
    wait_until("the head to answer", 30, || (head.run(&["hostler", "info"]).code == 0).then_some(()));
    let code = head.ok(&written("hostler node invite n1"));

    // The settings that the guide describes, so that accounts are created on the node.
    let settings: Vec<&str> = ["accounts = true", "homes = true"]
        .into_iter()
        .inspect(|line| assert!(GUIDE.contains(line), "{line}"))
        .collect();
    n1.write("/etc/hostler/agent.toml", settings.join("\n"));
    let joined = n1.run_with_input(&written("hostler agent join -"), &format!("{code}\n"));
    assert_eq!(joined.code, 0, "{joined:?}");
    let _agent = n1.daemon("agent", &written("hostler agent run"));
    wait_until("the node to be up", 30, || (head.json(&["hostler", "nodes"])[0]["state"] == "up").then_some(()));
    assert!(head.ok(&written("hostler nodes")).contains("n1"));

    // A job of root is refused at submission, with a hint.
    let refused = head.run(&written("hostler run -- uname -n"));
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("no node that this job may use runs jobs of root"), "{refused:?}");
    assert!(refused.stderr.contains("--root-jobs") && refused.stderr.contains("as another user"), "{refused:?}");
    assert_eq!(head.json(&["hostler", "jobs", "--all"])["total"], 0, "nothing was submitted");

    head.ok(&["useradd", "--uid", "20001", "--user-group", "--no-create-home", "ada"]);
    head.ok(&written("hostler configure user add ada"));
    wait_until("the account and its home directory", 30, || n1.path("/home/ada").exists().then_some(()));
    assert_eq!(n1.ok(&["stat", "-c", "%a", "/home/ada"]).trim(), "700", "other users cannot read what she fetches");
    let ran = typed(&head, "ada", "hostler run -- uname -n");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "n1\n"), "{ran:?}");

    head.ok(&["hostler", "node", "drain", "n1", "--reason", "new disk"]);
    head.ok(&["hostler", "node", "show", "n1"]);
    head.ok(&written("hostler node resume n1"));
    let asked = head.run(&written("hostler node remove n1"));
    assert!(asked.code != 0 && asked.stderr.contains("--yes"), "{asked:?}");
    head.ok(&["hostler", "node", "remove", "n1", "--yes"]);
}

#[test]
fn agent_runs_jobs_of_root_if_its_settings_allow_it() {
    let network = Network::new(HOSTLER);
    let (head, _runs) = network.head();
    let n1 = network.host("n1");
    assert!(GUIDE.contains("root_jobs = true"));
    n1.write("/etc/hostler/agent.toml", "root_jobs = true\n");
    n1.join(&head);
    let _agent = n1.daemon("agent", &["hostler", "agent", "run"]);
    wait_until("the node to be up", 30, || (head.json(&["hostler", "nodes"])[0]["state"] == "up").then_some(()));
    assert_eq!(head.ok(&["hostler", "run", "-m", "64M", "--", "id", "-u"]).trim(), "0");
}
