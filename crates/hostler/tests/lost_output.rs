//! When the output of a job cannot be written, `hostler run` ends the job and says so with its exit code.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use hostler_testkit::{Cluster, Outcome, Size};
use nix::sys::signal::Signal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn run(cluster: &Cluster, script: &str) -> Command {
    let mut command = cluster.command(&["run", "-m", "16M", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("every Linux has it")
}

#[test]
fn job_ends_when_its_reader_has_gone() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let mut child = run(&cluster, "while :; do echo x; echo y >&2; sleep 0.1; done").spawn().expect("it starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("text");
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((line.as_str(), output.status.signal()), ("x\n", Some(Signal::SIGPIPE as i32)), "{output:?}");
    cluster.wait_for_state("1", "cancelled");

    // The same with standard error.
    let mut child = run(&cluster, "while :; do echo y >&2; sleep 0.1; done").spawn().expect("it starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::SIGPIPE as i32));
    cluster.wait_for_state("2", "cancelled");
}

#[test]
fn full_disk_at_the_output_is_an_error() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let output = run(&cluster, "echo hi; sleep 600").stdout(full()).output().expect("it starts");
    let outcome = Outcome::of(&output);
    assert_eq!(outcome.code, 125, "{outcome:?}");
    assert!(outcome.stderr.contains("cannot write to standard output"), "{outcome:?}");
    assert!(outcome.stderr.contains("No space left on device"), "{outcome:?}");
    cluster.wait_for_state("1", "cancelled");

    let output = run(&cluster, "echo hi >&2; sleep 600").stderr(full()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(125));
    cluster.wait_for_state("2", "cancelled");

    // A job that ends by itself.
    let output = run(&cluster, "echo hi >&2").stderr(full()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let cluster = Cluster::none(HOSTLER);
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"]] {
        let output = cluster.command(arguments).stdout(full()).output().expect("it starts");
        let outcome = Outcome::of(&output);
        assert_eq!(outcome.code, 1, "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.contains("cannot write to standard output"), "{outcome:?}");
        assert_eq!(cluster.run(arguments).code, 0);
    }
    assert_eq!(cluster.run(&["run", "--no-such-option"]).code, 2);
}
