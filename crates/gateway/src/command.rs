//! Runs shell commands with a timeout, and finds programs.

use std::process::Command;

use hostler_sys::LOGIN_PATH;

use crate::error::GatewayError;

/// Timeout for a command in seconds, far above the usual run times.
const LIMIT_SECS: &str = "30";

/// The search path for programs: the caller's path, then the directories of administration programs.
fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| LOGIN_PATH.to_owned());
    format!("{own}:/usr/local/sbin:/usr/sbin:/sbin")
}

pub(crate) fn is_installed(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|directory| directory.join(program).is_file())
}

/// Returns an error if a program is missing.
pub(crate) fn require(program: &'static str, package: &'static str) -> Result<(), GatewayError> {
    if is_installed(program) { Ok(()) } else { Err(GatewayError::Missing { program, package }) }
}

/// Runs a shell command and returns its standard output.
///
/// # Errors
/// The command fails, or does not end in time.
pub(crate) fn run(line: &str) -> Result<String, GatewayError> {
    let failed = |said: &str| GatewayError::Command { command: line.to_owned(), said: said.trim().to_owned() };
    let mut command = Command::new("timeout");
    command.args([LIMIT_SECS, "sh", "-c", line]).env("PATH", search_path()).env("LC_ALL", "C").current_dir("/");
    let output = command.output().map_err(|error| failed(&format!("cannot start `timeout`: {error}")))?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(124) => Err(failed(&format!("the command did not end within {LIMIT_SECS} s"))),
        _ => Err(failed(&String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_contains_the_command_and_its_message() {
        assert_eq!(run("echo $((6 * 7))").expect("it succeeds"), "42\n");
        let error = run("echo busy >&2; exit 3").expect_err("it fails");
        assert_eq!(error.to_string(), "`echo busy >&2; exit 3` failed: busy");
    }
}
