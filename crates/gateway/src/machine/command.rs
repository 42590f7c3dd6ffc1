//! Runs external programs with a timeout, and keeps their error output.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::GatewayError;

/// Timeout for a program, far above the usual run times.
const LIMIT: Duration = Duration::from_secs(30);

/// Directories of administration programs, in addition to the caller's path.
const ADMIN_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// The search path for programs: the caller's path, then [`ADMIN_PATHS`].
pub(super) fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    format!("{own}:{ADMIN_PATHS}")
}

pub(super) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Returns an error if a program is missing.
pub(super) fn require(program: &'static str, package: &'static str) -> Result<(), GatewayError> {
    if find(program).is_some() { Ok(()) } else { Err(GatewayError::Missing { program, package }) }
}

/// Runs a program and returns its standard output.
///
/// # Errors
/// The program cannot be started, fails, or does not end in time.
pub(super) fn run(program: &'static str, arguments: &[&str]) -> Result<String, GatewayError> {
    run_with_input(program, arguments, "")
}

/// Like [`run`], with input for the program.
pub(super) fn run_with_input(program: &'static str, arguments: &[&str], input: &str) -> Result<String, GatewayError> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let failed = |said: String| GatewayError::Command { command: shown(), said };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", search_path()).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (status, output, said) = std::thread::scope(|scope| {
        // One thread per stream, so that no full pipe blocks the program.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())));
        let output = scope.spawn(move || read_all(&mut stdout));
        let said = scope.spawn(move || read_all(&mut stderr));
        let status = wait(&mut child);
        (status, output.join().unwrap_or_default(), said.join().unwrap_or_default())
    });
    match status {
        Some(status) if status.success() => Ok(output),
        Some(_) => Err(failed(said.trim().to_owned())),
        None => Err(failed(format!("the command did not end within {} s", LIMIT.as_secs()))),
    }
}

fn read_all(stream: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the exit status. `None` if the program exceeded the timeout and was killed.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + LIMIT;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
