//! Steps: launches inside a job's allocation, from one of its nodes on another.
//!
//! ```text
//!  first node                                  each node of the run
//!  program ── mpirun ──▶ launcher ══ TLS ════▶ host ──fork──▶ the command
//!                        (hostler step)        (in the run's own leaf, as the job's user)
//! ```
//!
//! **The idea.** A job whose program is on its first node only holds the others with a [`host`]: a process of ours that is the job's own
//! there and starts what its other nodes ask for. So whatever is launched has the job's user, limits and end, and no node needs
//! `ssh`, nor any account to be logged in to.
//!
//! **Who may launch.** Each node makes a key for the run, which never leaves it, and says the fingerprint of its certificate over the
//! agent link; the head tells every node all of them when the run begins. Both ends of a connection show their certificate, and neither
//! takes one that is not the run's. There is nothing that could be read on a command line, in the environment or in the head's
//! store: the key is in one file, for the job's user alone.
//!
//! **What a step is.** A command with its arguments, environment, directory and standard input; its output comes back as it is written,
//! and its exit code at the end. Signals go to its process group. It ends with the connection that asked for it.
//!
//! Deliberately absent: terminals, and steps with resources of their own: a step may use what its job has on the node.

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

/// The variable that says where a run's [`Allocation`] is.
pub const VARIABLE: &str = "HOSTLER_STEPS";
