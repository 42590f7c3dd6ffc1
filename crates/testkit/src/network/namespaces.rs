//! Processes in namespaces.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Starts a process that prints `ready` and lives until its stdin is closed.
pub(super) fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux is installed");
    let mut said = String::new();
    let _ = BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut said);
    assert_eq!(said.trim(), "ready", "no namespace could be made; what refused has said why above");
    child
}

pub(super) fn succeed(command: &mut Command) {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a shell command in a process's network namespace. It must succeed.
pub(super) fn in_network_of(process: u32, script: &str) {
    succeed(Command::new("nsenter").args(["--target", &process.to_string(), "--net", "sh", "-c", script]));
}
