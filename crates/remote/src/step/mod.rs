//! Steps: commands that one node of a job launches on another node of the same job.
//!
//! ```text
//! first node                                  each node of the run
//! program ── mpirun ──▶ launcher ══ TLS ════▶ host ──fork──▶ the command
//! (hostler step)        (in the run's cgroup, as the job's user)
//! ```
//!
//! **The idea.** When a job's program runs on the first node only, the other nodes each run a [`host`]. This process
//! belongs to the job and starts commands for the job's other nodes. A step therefore has the job's user, limits and
//! lifetime, and nodes need neither `ssh` nor login accounts.
//!
//! **Who may launch.** Each node makes a key for the run. The key never leaves the node; the agent sends the
//! fingerprint of its certificate to the head. When the run begins, the head sends all fingerprints to every node.
//! Both ends of a connection present their certificates and accept only those of the run. Command lines, environments
//! and the head's store contain no secret. The key is in a file that only the job's user can read.
//!
//! **Contents of a step.** A step has arguments, an environment, a directory and standard input. Its output comes
//! back as it is written, and its exit code at the end. Signals go to its process group. The step ends when the
//! connection to its caller closes.
//!
//! Deliberately absent: terminals, and resources per step. A step may use all of the job's resources on the node.

mod allocation;
mod environment;
mod host;
mod launch;
mod remote_shell;

pub use allocation::{Allocation, Place};
pub use environment::{HOSTFILE, MACHINEFILE, REMOTE_SHELL, TEMPORARY, hostfile, launcher_variables, machinefile};
pub use host::host;
pub use launch::{Step, StepError, launch};
pub use remote_shell::RemoteShell;

/// The variable with the path of a run's [`Allocation`].
pub const VARIABLE: &str = "HOSTLER_STEPS";
