//! What a sandbox consists of, and errors that name the failed step.

use std::fmt::Display;
use std::io;
use std::os::fd::BorrowedFd;

use libc::c_int;

use crate::launch::{Credentials, JobNetwork, Sandbox};
use crate::sys;

/// Namespaces of the init process besides that of the network. It adds a cgroup namespace when it is in its leaf.
const NAMESPACES: c_int = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Host name inside.
pub(super) const HOST_NAME: &str = "sandbox";

/// What to build.
pub(crate) struct Plan<'a> {
    pub(crate) wanted: &'a Sandbox,
    pub(crate) user: &'a Credentials,
    /// Whether the shepherd is not root. `user` is then its own.
    pub(crate) is_unprivileged: bool,
    /// The job's folder, an absolute path.
    pub(crate) folder: &'a str,
    /// Size of all file systems in memory together, in bytes.
    pub(crate) memory_bytes: u64,
    /// The terminal of the program, if it has one.
    pub(crate) terminal: Option<BorrowedFd<'a>>,
}

impl Plan<'_> {
    /// The flags of `clone` for the init process.
    pub(crate) const fn namespaces(&self) -> c_int {
        let network = if self.wanted.host_network { 0 } else { libc::CLONE_NEWNET };
        let rights = if self.is_unprivileged { libc::CLONE_NEWUSER } else { 0 };
        NAMESPACES | network | rights
    }

    /// The host name inside, unless it is the machine's. Programs on several nodes, such as MPI, tell the nodes apart by it.
    pub(super) fn host_name(&self) -> &str {
        self.wanted.job_network.as_ref().and_then(JobNetwork::host_name).unwrap_or(HOST_NAME)
    }
}

/// Adds the failed step to errors.
pub(super) trait During<T> {
    /// The value, or an error that says what could not be done.
    fn during(self, what: impl Display) -> io::Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> io::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            io::Error::new(error.kind(), format!("cannot {what}: {}", sys::explain(&error)))
        })
    }
}
