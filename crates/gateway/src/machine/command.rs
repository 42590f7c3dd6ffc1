//! Calling the programs that do the work. None may hang for ever, and what they say when they fail is kept.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::error::GatewayError;

/// Longer than any of them takes; whoever does not answer by then is ended.
const LIMIT: Duration = Duration::from_secs(30);

/// Where such programs are, whatever the caller's path says.
const ADMIN_PATHS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Where to look for programs: the caller's path, and then where administrators' programs are.
pub(super) fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    format!("{own}:{ADMIN_PATHS}")
}

/// Where a program is.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Refuses when a program is missing.
pub(super) fn require(program: &'static str, package: &'static str) -> Result<(), GatewayError> {
    if find(program).is_some() { Ok(()) } else { Err(GatewayError::Missing { program, package }) }
}

/// Calls a program; what it printed.
///
/// # Errors
/// When it cannot be started, says that it failed, or does not end in time.
pub(super) fn run(program: &'static str, arguments: &[&str]) -> Result<String, GatewayError> {
    run_with_input(program, arguments, "")
}

/// Calls a program with this on its standard input.
///
/// # Errors
/// As [`run`].
pub(super) fn run_with_input(program: &'static str, arguments: &[&str], input: &str) -> Result<String, GatewayError> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let failed = |said: String| GatewayError::Command { command: shown(), said };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", search_path()).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (status, output, said) = std::thread::scope(|scope| {
        // Each stream has its thread, so that none can fill up while another is waited for.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())));
        let output = scope.spawn(move || read_all(&mut stdout));
        let said = scope.spawn(move || read_all(&mut stderr));
        let status = wait(&mut child);
        (status, output.join().unwrap_or_default(), said.join().unwrap_or_default())
    });
    match status {
        Some(status) if status.success() => Ok(output),
        Some(_) => Err(failed(said.trim().to_owned())),
        None => Err(failed(format!("it did not end within {} s", LIMIT.as_secs()))),
    }
}

fn read_all(stream: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How it ended; `None` when it had to be ended.
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
