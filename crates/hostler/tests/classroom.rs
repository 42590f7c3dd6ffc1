//! `hostler classroom check`: what a class is promised holds on real nodes, and a promise broken on purpose is found. Needs root.

use std::process::Stdio;

use hostler_testkit::{Network, Outcome, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The files that the page for classrooms uses.
const ROSTER: &str = include_str!("../../../packaging/classroom/roster.csv");
const SETUP: &str = include_str!("../../../packaging/classroom/setup.sh");
const WORKER: &str = include_str!("../../../packaging/classroom/worker.toml");

/// Virtual machines often have no counters.
const COUNTERS: &str = "a measured job can use hardware counters";

const CHECK: [&str; 8] =
    ["hostler", "classroom", "check", "--group", "class", "--testers", "check-a,check-b", "--json"];

/// The results by promise.
fn results(outcome: &Outcome) -> Vec<(String, String)> {
    let promises: Vec<Value> =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    promises.iter().map(|promise| (text(&promise["promise"]), text(&promise["result"]))).collect()
}

fn with_result(outcome: &Outcome, result: &str) -> Vec<String> {
    results(outcome).into_iter().filter(|(_, of)| of == result).map(|(promise, _)| promise).collect()
}

#[test]
fn promises_hold_and_one_that_is_broken_on_purpose_is_found() {
    let network = Network::new(HOSTLER);
    let (head, _head) = network.head();
    let node = network.host("n1");
    node.join(&head);
    // Hosts share `/srv` with the machine.
    node.write("/etc/hostler/agent.toml", WORKER.replace("/srv/course", "/etc/course"));
    node.write("/etc/course/data", "material\n");
    let _agent = node.daemon("agent", &["hostler", "agent", "run"]);
    wait_until("the node to be up", 30, || (head.json(&["hostler", "nodes"])[0]["state"] == "up").then_some(()));

    head.write("/var/lib/roster.csv", ROSTER);
    let configure = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        drop(head.ok(&[&["hostler", "configure"], &words[..]].concat()));
    };
    head.write("/var/lib/setup.sh", SETUP);
    let setup = ["sh", "/var/lib/setup.sh", "/var/lib/roster.csv", "n*"];
    head.ok(&setup);
    head.ok(&setup[..3]);
    for name in ["lab", "measure"] {
        let partition = head.json(&["hostler", "configure", "partition", "show", name]);
        assert_eq!(partition["nodes"], "n*", "it keeps its nodes if the script names none: {partition}");
    }

    let kept = head.run(&CHECK);
    assert_eq!(with_result(&kept, "broken"), [""; 0], "{kept:?}");
    let untried = with_result(&kept, "not_tried");
    let no_counters = kept.stdout.contains("the node has no hardware counters");
    assert_eq!(untried, if no_counters { vec![COUNTERS] } else { Vec::new() }, "{kept:?}");
    assert_eq!((kept.code, results(&kept).len()), (if no_counters { 2 } else { 0 }, 21), "{kept:?}");

    // Nothing is broken where nothing can be tried, but that is not a success.
    configure("partition set lab --nodes x*");
    let nowhere = head.run(&CHECK);
    assert_eq!((nowhere.code, with_result(&nowhere, "broken").len()), (2, 0), "{nowhere:?}");
    assert!(with_result(&nowhere, "not_tried").len() > 12, "{nowhere:?}");
    configure("partition set lab --nodes n*");

    // A class whose partition demands no sandbox, and where one student has no quota.
    configure("partition set lab --sandbox optional");
    configure("group quota class --each --jobs none");
    let broken = head.run(&CHECK);
    assert_eq!(broken.code, 1, "{broken:?}");
    let found = with_result(&broken, "broken");
    for promise in [
        "each student has a quota",
        "students' jobs run on every node, in a sandbox",
        "jobs cannot see processes of other users",
        "each job has its own /tmp, $HOME and /dev/shm",
        "a job has no network",
    ] {
        assert!(found.iter().any(|it| it == promise), "{promise}: {broken:?}");
    }

    // Ctrl-C while a job runs: the check ends its jobs and logins.
    let mut check = head.command(&CHECK);
    let check = check.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let live = || head.json(&["hostler", "jobs"])["jobs"].as_array().map_or(0, Vec::len);
    wait_until("a job of the check", 60, || (live() > 0).then_some(()));
    head.ok(&["pkill", "--signal", "INT", "--full", "classroom check"]);
    let ended = Outcome::of(&check.wait_with_output().expect("it ends"));
    assert_eq!(ended.code, 128 + Signal::SIGINT as i32, "{ended:?}");
    assert_eq!(live(), 0, "{ended:?}");
    assert_eq!(head.ok(&["ls", "/tmp"]), "");
}
