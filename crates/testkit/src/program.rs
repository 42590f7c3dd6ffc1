//! Runs other programs in tests.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A process started by a test, with its descendants.
pub struct Running(Child);

impl Running {
    /// Starts the process with its output in `log`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::create(log).expect("a log can be written");
        let errors = log.try_clone().expect("a descriptor can be duplicated");
        let started = command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0).spawn();
        Self(started.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().cast_signed());
        // The process is not reaped yet, so its pid cannot be reused.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// The path of a required program.
///
/// # Panics
/// If it is missing; the message says how to install it.
#[must_use]
pub fn program(name: &str, how_to_get_it: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(system).map(|directory| directory.join(name)).find(|it| it.exists());
    found.unwrap_or_else(|| panic!("`{name}` is missing: {how_to_get_it}, as .ci/run does"))
}

/// Returns a free TCP port. The UDP port of the same number may be in use.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free").port()
}
