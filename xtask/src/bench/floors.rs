//! Floors: the least time that the kernel and the disk need for the same work.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::measure::spread;
use crate::workspace::find_program;

/// `bash -c true`: the least overhead of a command that a user starts by hand.
pub(crate) fn bash() -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", "true"]);
    command
}

/// Starts `count` processes of `true` from `threads` threads, and waits for their ends.
pub(crate) fn spawn_loop(count: usize, threads: usize) -> Result<()> {
    let program = find_program("true").context("there is no `true` on PATH")?;
    let program = CString::new(program.as_os_str().as_bytes())?;
    spread(count, threads, |_| spawn_and_wait(&program))
}

/// One `posix_spawn` and `waitpid`, without pipes, environment and allocation.
fn spawn_and_wait(program: &CStr) -> Result<()> {
    let argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let environment = [std::ptr::null_mut()];
    let (mut pid, mut status) = (0, 0);
    // SAFETY: both arrays end with null and outlive the call; null stands for default actions and attributes.
    let failed = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            std::ptr::null(),
            std::ptr::null(),
            argv.as_ptr(),
            environment.as_ptr(),
        )
    };
    ensure!(failed == 0, "posix_spawn failed: {}", std::io::Error::from_raw_os_error(failed));
    // SAFETY: `pid` is our own unreaped child and `status` a valid place.
    let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    ensure!(reaped == pid && status == 0, "`true` ended with wait status {status}");
    Ok(())
}

/// Runs `xargs -P2 -n1 true` on `count` numbers.
pub(crate) fn xargs(count: usize) -> Result<()> {
    let mut child = Command::new("xargs").args(["-P2", "-n1", "true"]).stdin(Stdio::piped()).spawn()?;
    let mut numbers = child.stdin.take().expect("stdin was asked for as a pipe");
    let text: String = (0..count).map(|number| format!("{number}\n")).collect();
    numbers.write_all(text.as_bytes())?;
    drop(numbers);
    let status = child.wait()?;
    ensure!(status.success(), "xargs failed ({status})");
    Ok(())
}

/// Appends `count` records of 256 bytes to a file in `directory`. Each record is synced before the next one is written.
pub(crate) fn fsync_loop(directory: &Path, count: usize) -> Result<()> {
    let path = directory.join("fsync-floor");
    let mut file = File::create(&path)?;
    for _ in 0..count {
        file.write_all(&[b'x'; 256])?;
        file.sync_data()?;
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_run_without_errors() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        spawn_loop(10, 2).expect("ten processes");
        xargs(10).expect("ten more");
        fsync_loop(directory.path(), 3).expect("three records");
        assert_eq!(std::fs::read_dir(directory.path()).expect("the directory exists").count(), 0);
        assert!(spawn_and_wait(c"/nonexistent/program").is_err());
    }
}
