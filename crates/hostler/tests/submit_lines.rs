//! `hostler submit -`: a job for each line of standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use hostler_testkit::{Cluster, Outcome, Size};
use serde_json::{Value, json};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Runs a command with this standard input.
fn fed(command: &mut Command, input: impl AsRef<[u8]>) -> Outcome {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("hostler starts");
    child.stdin.take().expect("piped").write_all(input.as_ref()).expect("it reads");
    Outcome::of(&child.wait_with_output().expect("it ends"))
}

fn values(outcome: &Outcome) -> Vec<Value> {
    outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn lines_are_shell_commands_or_objects_with_options_as_keys() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("model/main.sh", "echo model $1 $SEED $HOSTLER_CPUS");
    let input = r#"
# a comment, and an empty line

echo plain | tr a-z A-Z; exit 3
  /bin/echo  "two  spaces"
{"command": "echo $HOSTLER_CPUS $SEED", "cpus": 2, "env": {"SEED": 7}, "name": "chosen"}
{"command": ["echo", "$HOME", "a b"], "memory": "40M", "priority": -2, "tag": {"lot": 2, "of": "x"}, "hold": false}
{"project": "model", "entrypoint": "main.sh", "args": ["--fast"], "env": {"SEED": 8}}
{"command": ["sh", "-c", "echo $SEED"], "stdout": "out/%j.txt"}"#;
    let given = ["submit", "-", "-m", "50M", "--tag", "lot=1", "--env", "SEED=1", "--wait"];
    let odd = b"\n-v\nSEED=5 /bin/echo>odd caf\xe9 # after a byte order mark";
    let input = [b"\xef\xbb\xbf", input.as_bytes(), odd].concat();
    let outcome = fed(&mut cluster.command(&given), input);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, "1\n2\n3\n4\n5\n6\n7\n8\n"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("job 1 failed with exit code 3"), "{}", outcome.stderr);
    let output = |job: &str| cluster.ok(&["logs", job]);
    for (job, expected) in
        [("1", "PLAIN\n"), ("2", "two  spaces\n"), ("3", "2 7\n"), ("4", "$HOME a b\n"), ("5", "model --fast 8 1\n")]
    {
        assert_eq!(output(job), expected.trim_end(), "job {job}");
    }
    assert_eq!(std::fs::read_to_string(cluster.path("out/6.txt")).expect("written"), "1\n");
    let shown = |job: &str| cluster.json(&["job", job]);
    for (job, name, cpus, memory, priority) in
        [("1", "echo", 1, 50, 0), ("2", "echo", 1, 50, 0), ("3", "chosen", 2, 50, 0), ("4", "echo", 1, 40, -2)]
    {
        let job = shown(job);
        assert_eq!(
            (&job["name"], &job["cpus"], &job["memory_bytes"], &job["priority"]),
            (&name.into(), &cpus.into(), &(memory << 20).into(), &priority.into()),
            "{job}"
        );
    }
    for (job, labels) in
        [("3", json!({ "lot": "1" })), ("4", json!({ "lot": "2", "of": "x" })), ("8", json!({ "lot": "1" }))]
    {
        assert_eq!(shown(job)["labels"], labels, "job {job}");
    }
    assert!(cluster.ok(&["job", "7"]).contains("127"), "a command, not an option of the shell");
    assert_eq!(std::fs::read(cluster.path("odd")).expect("written"), b"caf\xe9\n");
    assert_eq!(shown("8")["name"], "echo");
}

#[test]
fn a_wrong_line_has_no_effect_on_others() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let input = r#"true
{"command": "true", "cpu": 2}
{"command": "true", "cpus": "many"}
{"command": "true"
{"cpus": 1}
{"command": "true", "project": "."}
{"command": ["true"], "env": [[1]]}
{"command": {"a": 1}}
{"command": []}
{"command": "true", "cpus": 1000}
{"project": "missing", "entrypoint": "main.py"}
{"project": "."}
{"command": "true", "dry_run": true}
{"project": ".", "entrypoint": "main.sh", "wait": true}
{"command": "true", "cpus": [1, 2]}
{"command": ["-"], "script": true}
{"command": "x.sh", "script": true}
{"command": " "}
true"#;
    let outcome = fed(&mut cluster.command(&["submit", "-"]), input);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, "1\n2\n"), "{}", outcome.stderr);
    for expected in [
        "line 2: unexpected argument '--cpu' found; tip: a similar argument exists: '--cpus'\n",
        "line 3: invalid value 'many' for '--cpus <N>'",
        "line 4: the line begins with { but is not valid JSON: ",
        "line 5: the line has neither a command nor a project\nhint: e.g. {",
        "line 6: a line has either a command or a project\n",
        "line 7: the value of env is nested too deeply\n",
        "line 8: the command is neither a string nor a list\n",
        "line 9: the command is empty\n",
        "line 10: ",
        "line 11: ",
        "line 12: the following required arguments were not provided: --entrypoint <ENTRYPOINT>\n",
        "line 13: unexpected argument '--dry-run' found\n",
        "line 14: unexpected argument '--wait' found\n",
        "line 15: the argument '--cpus <N>' cannot be used multiple times\n",
        "line 16: the script cannot be `-`: standard input has the lines\n",
        "line 17: the command of a script is a list: its file and the arguments\n",
        "line 18: the command is empty\n",
        "error: 17 lines not submitted\n",
    ] {
        assert!(outcome.stderr.contains(expected), "{expected}: {}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("Usage"), "{}", outcome.stderr);
    let outcome =
        fed(&mut cluster.command(&["submit", "-", "--json"]), "true\n{}\n{\"command\": \"true\", \"cpus\": 1000}\n");
    let mut found = values(&outcome);
    // Mistakes are reported at once, and the head's answers later.
    found.sort_by_key(|it| it["line"].as_u64());
    assert_eq!((outcome.code, &found[0]["line"], &found[0]["id"]), (1, &1.into(), &3.into()), "{found:?}");
    assert_eq!((&found[1]["line"], &found[1]["error"]["code"]), (&2.into(), &Value::Null), "{found:?}");
    assert_eq!((&found[2]["line"], &found[2]["error"]["code"]), (&3.into(), &"never_fits".into()), "{found:?}");

    for (arguments, text) in [
        (&["submit", "-", "main.py"][..], "unexpected argument \"main.py\""),
        (&["submit", "-", "--dry-run"], "does not take --dry-run"),
        (&["submit", "."], "the program to run is missing"),
        (&["run", "-"], "`hostler submit -`"),
    ] {
        let refused = fed(&mut cluster.command(arguments), "");
        assert!(refused.code == 2 && refused.stderr.contains(text), "{arguments:?}: {refused:?}");
    }
    assert_eq!(fed(&mut cluster.command(&["submit", "-", "--wait"]), "\n").code, 0);
    cluster.ok(&["down"]);
    let away = fed(&mut cluster.command(&["--wait-for-head", "0", "submit", "-"]), "true\n");
    assert!(away.code == 3 && away.stdout.is_empty(), "{away:?}");
}

#[test]
fn a_thousand_jobs_run_once_in_the_order_of_their_lines() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let input: String = (1..=1000)
        .map(|number| format!("{{\"command\": \"echo {number} >> ran\", \"key\": \"k{number}\"}}\n"))
        .collect();
    let submit = || fed(&mut cluster.command(&["submit", "-"]), &input);
    let first = submit();
    let ids: Vec<u64> = first.stdout.lines().map(|id| id.parse().expect("an id")).collect();
    assert_eq!((first.code, ids.len()), (0, 1000), "{}", first.stderr);
    assert!(ids.is_sorted(), "{ids:?}");
    // A caller that does not know whether it has submitted may do it again.
    assert_eq!(submit().stdout, first.stdout);
    // A key that stands for another command is a mistake.
    let line = r#"{"command": "rm ran", "key": "k7", "cpus": null}"#;
    let other = fed(&mut cluster.command(&["submit", "-"]), line);
    assert!(other.code == 1 && other.stdout.is_empty() && other.stderr.contains("another command"), "{other:?}");
    cluster.ok(&["wait", "1-1000"]);
    let ran = std::fs::read_to_string(cluster.path("ran")).expect("written");
    let mut ran: Vec<u64> = ran.lines().map(|number| number.parse().expect("a number")).collect();
    ran.sort_unstable();
    assert_eq!(ran, (1..=1000).collect::<Vec<_>>());
}

#[test]
fn a_line_is_submitted_before_the_next_one_comes() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let mut command = cluster.command(&["submit", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("hostler starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    for id in 1..=3 {
        writeln!(input, "echo {id}").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, format!("{id}\n"));
        cluster.ok(&["wait", &id.to_string()]);
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
}
