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
//! **Several processes.** A step may have any number of processes on any of the nodes. One [`Link`] to each node carries
//! those of that node, and the caller gives each its rank as variables.
//!
//! **Allocations without a program.** Such a job only holds its resources. The client that submitted it is the
//! [`Holder`]: it has a key of its own, whose certificate the hosts trust, and keeps a connection with the first host.
//! The job ends when the client says so, or some time after the connection broke.
//!
//! **Messages.** A process may have a socket, on which it exchanges messages with the caller. `srun` manages MPI programs so.
//!
//! **CPUs.** A step with several processes may claim CPUs at the first node's host, which counts them and numbers the steps.
//! It begins when no other step holds them. The kernel does not confine a step: it may use all of the job's resources on a
//! node. The hosts write what runs to files, from which the agents list steps and find their processes.

mod allocation;
mod child;
mod claims;
mod environment;
mod host;
mod input;
mod launch;
mod layout;
mod link;
mod login;
mod notices;
mod remote_shell;
mod running;

pub use allocation::{Allocation, Holder, Place};
pub use environment::{
    COMMANDS_IN_IMAGE, HOSTFILE, MACHINEFILE, REMOTE_SHELL, TEMPORARY, hostfile, launcher_variables, machinefile,
};
pub use host::{HostEnd, host};
pub use input::{Pieces, standard_input};
pub use launch::{Step, launch};
pub use layout::layout;
pub use link::{AGAIN, Claimed, Control, Link, Messages, Process, Progress, REACH_BOUND, StepError, Surroundings};
pub use login::LoginRequest;
pub use notices::{OUT_OF_MEMORY, detected};
pub use remote_shell::RemoteShell;
pub use running::{RUNNING, RunningSteps};

/// Name of the step host's socket for the job's owner, in the directory of the node list. Only the owner can enter that
/// directory. The agent brings connections there that the owner makes through the head.
pub const SOCKET: &str = "host";

/// Name of the file with a JSON line for each ended step, in the directory of a run's [`Allocation`] on the first node.
pub const RECORDS: &str = "records";

/// The variable with the path of a run's [`Allocation`].
pub const VARIABLE: &str = "HOSTLER_STEPS";
