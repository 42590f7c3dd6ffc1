//! Scripts given by content, and files in place of kept output.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use hostler_testkit::{Cluster, Outcome, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 1, cpus: 2, memory: "1G" };

#[test]
fn scripts_run_as_they_were_at_their_submission() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    cluster.write("job.sh", "#!/bin/sh -e\necho first $1; test -e again || exit 3\n");
    let script = cluster.path("job.sh").to_string_lossy().into_owned();
    let held = cluster.ok(&["run", "--detach", "--hold", "--script", "-m", "16M", "--", &script, "a word"]);
    fs::remove_file(&script).expect("the script exists");
    cluster.kill_9(cluster.head_pid());
    cluster.start(SMALL);
    cluster.ok(&["release", &held]);
    cluster.wait_for_state(&held, "failed");
    assert_eq!(cluster.ok(&["logs", &held]), "first a word");
    assert!(cluster.json(&["job", &held])["command"].as_str().expect("text").ends_with("job.sh 'a word'"));

    // A requeue runs the stored script again, in the same directory.
    cluster.write("again", "");
    cluster.ok(&["requeue", &held]);
    cluster.wait_for_state(&held, "completed");

    let mut piped = cluster.command(&["run", "--script", "-m", "16M", "-"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut stdin = piped.stdin.take().expect("a pipe");
    stdin.write_all(b"#! /usr/bin/env python3\nprint(6 * 7)\n").expect("the program reads");
    drop(stdin);
    assert_eq!(piped.wait_with_output().expect("the program ends").stdout, b"42\n");
}

#[test]
fn python_output_appears_at_once_unless_the_user_set_the_variable() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let shown = "echo \"<${PYTHONUNBUFFERED-unset}>\"";
    cluster.write("project/main.sh", format!("{shown}\n"));
    for (value, expected) in [(None, "<1>\n"), (Some(""), "<>\n"), (Some("x"), "<x>\n")] {
        let set = value.map(|value| format!("PYTHONUNBUFFERED={value}"));
        let env: Vec<&str> = set.iter().flat_map(|set| ["--env", set.as_str()]).collect();
        let run = |head: &[&str], rest: &[&str]| cluster.run(&[head, &env[..], rest].concat());
        let outcome = run(&["run", "-m", "16M"], &["sh", "-c", shown]);
        assert_eq!(outcome.stdout, expected, "a command: {outcome:?}");
        let outcome = run(&["submit", "project", "main.sh", "-m", "16M", "--follow"], &[]);
        assert!(outcome.stdout.contains(expected), "a project: {outcome:?}");
        cluster.write("job.sh", format!("#!/bin/sh\n{shown}\n"));
        let outcome = run(&["run", "-m", "16M", "--script"], &["job.sh"]);
        assert_eq!(outcome.stdout, expected, "a script: {outcome:?}");
    }

    let mut buffered = cluster.command(&["run", "-m", "64M", "python3", "-c"]);
    buffered.arg("import os, time\nprint('begun')\nwhile not os.path.exists('go'): time.sleep(0.05)");
    let mut child = buffered.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("text");
    assert_eq!(line, "begun\n");
    cluster.write("go", "");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn scripts_that_cannot_run_are_refused() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let long = format!("#!/bin/sh\n{}", "#".repeat(5 << 20));
    for (content, why) in [
        ("", "must begin with #!"),
        ("echo no interpreter\n", "must begin with #!"),
        ("#!sh\n", "must begin with #!"),
        ("#!/bin/sh\r\necho DOS\r\n", "DOS line ends"),
        ("#!/bin/sh\n\0", "NUL byte"),
        ("\u{feff}#!/bin/sh\n", "byte order mark"),
        (&long, "at most 4M"),
    ] {
        cluster.write("bad.sh", content);
        let script = cluster.path("bad.sh").to_string_lossy().into_owned();
        let refused = cluster.run(&["run", "--script", &script]);
        assert_eq!(refused.code, 125, "{why}");
        assert!(refused.stderr.contains(why), "{why}: {}", refused.stderr);
    }
    let missing = cluster.run(&["run", "--script", "missing.sh"]);
    assert!(missing.code == 125 && missing.stderr.contains("cannot read the script missing.sh"), "{missing:?}");
    assert_eq!(cluster.json(&["jobs", "--all"])["jobs"], serde_json::json!([]));

    // The kernel does not see a `#!` after a byte order mark, and a shell would take that line as a command.
    let marked = cluster.write("marked/script", "\u{feff}#!/usr/bin/env python3\n");
    fs::set_permissions(marked, Permissions::from_mode(0o755)).expect("the file is the test's");
    let folder = cluster.path("marked").display().to_string();
    for command in
        [&["run", "-m", "16M", "--", "marked/script"][..], &["submit", &folder, "script", "-m", "16M", "--wait"]]
    {
        assert_ne!(cluster.run(command).code, 0, "{command:?}");
        let job = cluster.json(&["job", "last"]);
        assert!(job["message"].as_str().is_some_and(|it| it.contains("byte order mark")), "{command:?}: {job}");
    }
}

#[test]
fn input_that_a_job_does_not_read_is_mentioned() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let words = cluster.write("words", "b\na\n");
    let run = |arguments: &[&str], input: Stdio| {
        let output = cluster.command(&[&["run", "-m", "16M"], arguments].concat()).stdin(input).output();
        let outcome = Outcome::of(&output.expect("the program starts"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stderr.contains("the job does not read this standard input")
    };
    let file = || Stdio::from(fs::File::open(&words).expect("just written"));
    let pipe = |content: &[u8]| {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(content).expect("the pipe has room");
        Stdio::from(reader)
    };
    let count = ["--", "wc", "-l"];
    assert!(run(&count, file()) && run(&count, pipe(b"a\n")));
    assert!(!run(&count, Stdio::null()) && !run(&count, pipe(b"")));
    assert!(!run(&["--stdin", "words", "--", "wc", "-l"], file()), "the job has an input");
    assert!(!run(&["--script", "-"], pipe(b"#!/bin/sh\ntrue\n")), "the command has read the script");
}

#[test]
fn files_replace_kept_output() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    cluster.write("words", "b\na\n");
    let read = |name: &str| fs::read_to_string(cluster.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let run =
        |flags: &[&str], line: &str| cluster.ok(&[&["run", "-m", "16M"], flags, &["--", "sh", "-c", line]].concat());
    assert_eq!(run(&["--stdin", "words", "--stdout", "log/%4j/%x.txt", "--name", "sorted"], "sort; echo bad >&2"), "");
    assert_eq!(read("log/0001/sorted.txt"), "a\nb\nbad\n", "standard error goes to the same file");
    assert_eq!(cluster.json(&["job", "1"])["files"]["stdout"], "log/%4j/%x.txt");

    run(&["--stdout", "out", "--stderr", "err"], "echo 1; echo 2 >&2");
    run(&["--stdout", "out", "--append"], "echo 3");
    assert_eq!((read("out").as_str(), read("err").as_str()), ("1\n3\n", "2\n"));
    run(&["--stdout", "out"], "echo 4");
    assert_eq!(read("out"), "4\n");
    run(&["--stdout", "/dev/null"], "echo 5");

    // An array has a file for each task; a requeue appends.
    let array =
        cluster.ok(&["run", "--detach", "-a", "3,7", "--stdout", "%A_%a", "-m", "16M", "sh", "-c", "echo $0; exit 1"]);
    cluster.wait_for_state(&array, "failed");
    cluster.ok(&["requeue", &array]);
    wait_until("both tasks to have run twice", 30, || {
        ["3", "7"].iter().all(|index| read(&format!("{array}_{index}")) == "sh\nsh\n").then_some(())
    });

    // The job says which file cannot be opened. A FIFO without a reader blocks nothing.
    nix::unistd::mkfifo(&cluster.path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO can be made");
    for (flag, path, why) in [
        ("--stdin", "missing", "cannot open `missing` for standard input"),
        ("--stdout", "words/x", "Not a directory"),
        ("--stderr", "fifo", "cannot open `fifo` for standard error"),
    ] {
        let failed = cluster.run(&["run", "-m", "16M", flag, path, "true"]);
        assert!(failed.code != 0 && failed.stderr.contains(why), "{flag} {path}: {}", failed.stderr);
    }
}

#[test]
fn job_waits_for_its_begin_time() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let later = cluster.ok(&["run", "--detach", "--begin", "+1h", "-m", "16M", "true"]);
    assert!(cluster.ok(&["why", &later]).contains("its begin time has not come"));
    assert_eq!(cluster.json(&["why", &later])["reason"]["kind"], "begin_time");
    cluster.ok(&["run", "--begin", "+2s", "-m", "16M", "true"]);
    assert_eq!(cluster.state(&later), "pending");
    cluster.ok(&["cancel", &later]);
}
