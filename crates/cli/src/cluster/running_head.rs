//! The head that runs in a state directory, and where it listens.
//!
//! Environment variables such as XDG_RUNTIME_DIR say where a head would listen. They may have changed since its start,
//! and its socket may be missing for a moment. The head's own file `head.json` names its process and its socket.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hostler_sys::SOCKET_CHECK_INTERVAL;
use serde::Deserialize;

use super::process::ProcessId;
use crate::exit;
use crate::failure::Failure;

/// Name of the file in the head's directory that names its process, address and socket.
pub const HEAD_FILE: &str = "head.json";

/// How long a daemon may take to bind its socket again.
const BIND_TIME: Duration = SOCKET_CHECK_INTERVAL.saturating_mul(3);

/// Poll interval while the socket is missing.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Deserialize)]
pub struct RunningHead {
    pid: i32,
    started_ticks: u64,
    boot: String,
    socket: PathBuf,
}

impl RunningHead {
    /// The head that runs in this state directory, if this user may know.
    pub fn of(directory: &Path) -> Option<Self> {
        let text = std::fs::read(directory.join(HEAD_FILE)).ok()?;
        let head: Self = serde_json::from_slice(&text).ok()?;
        let process = ProcessId { pid: head.pid, start_ticks: head.started_ticks, boot: head.boot.clone() };
        process.is_alive().then_some(head)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until the socket exists.
    ///
    /// # Errors
    /// If the head does not bind its socket again.
    pub fn wait_for_socket(&self) -> Result<(), Failure> {
        wait_for_socket(&self.socket, &format!("a head runs (pid {})", self.pid)).map_err(|failure| {
            failure.hint("the head's log says why it cannot bind the socket").hint(
                "to restart the head: `hostler down --keep` and `hostler up`, or restart its service; running jobs continue",
            )
        })
    }
}

/// Waits until the socket of a running daemon exists. `who` says which daemon runs.
///
/// # Errors
/// If the daemon does not bind its socket again.
pub fn wait_for_socket(socket: &Path, who: &str) -> Result<(), Failure> {
    if socket.exists() {
        return Ok(());
    }
    let what = format!("{who}, but its socket {} is missing", socket.display());
    let note = hostler_model::escaped(&what);
    // Nobody may read it.
    let _ = writeln!(std::io::stderr(), "note: {note}; waiting until it binds the socket again");
    let deadline = Instant::now() + BIND_TIME;
    while Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
        if socket.exists() {
            return Ok(());
        }
    }
    Err(Failure::new(what).exiting(exit::UNREACHABLE))
}
