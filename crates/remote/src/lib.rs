//! Authenticated, multiplexed, flow-controlled execution of processes on another agent.
//!
//! ```text
//! caller's machine                                    another node
//! program ── Unix socket ──▶ agent ══ connection ════▶ agent ──▶ the command
//! (streams, terminal, signals)  (chooses, relays)         (as the same user, in its own cgroup)
//! ```
//!
//! Users of the crate: `exec` and `dsh` run a command through the agents; [`step`] starts processes of a job on its
//! other nodes.
//!
//! **The caller's program** knows nothing of the cluster. It sends its request to the local agent, which chooses a
//! node from gossip. If the agent chooses its own node, the command uses the program's [handed-over](handover)
//! streams. On a terminal, the program itself becomes the command. Otherwise [`Frame`]s carry the streams to the
//! other node.
//!
//! **Multiplexing.** Two agents share one [`Connection`] for all commands from one to the other, so a command needs
//! no handshake. Each command is a [`Channel`]. A sender has at most [`WINDOW`] unacknowledged pieces of a stream in
//! flight. This bounds the memory per command everywhere between its ends, and a slow reader delays no other command.
//! Relaying agents need no counters of their own.
//!
//! **Trust.** A node is identified by the fingerprint of its certificate ([`Credentials`]). The kernel of the
//! caller's machine tells the local agent the caller's user id. All other claims of the caller are untrusted: it can
//! only request actions that this user may do.
//!
//! Deliberately absent: the choice of a node (`hostler-gossip`), and starting the command (`hostler-shepherd`).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

mod connection;
mod credentials;
mod follow;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handover;
pub mod inherited;
mod keep_alive;
mod message;
pub mod mirror;
mod paths;
pub mod shared_files;
mod signals;
pub mod step;
mod streams;
mod tree_spec;

pub use connection::{Channel, Connection, Heartbeat, Incoming, multiplex};
pub use credentials::{Credentials, explain_tls, server_name};
pub use follow::{Ending, Shown, follow, follow_home};
pub use frame::{Frame, PIECE_BYTES, PROTOCOL, Stream, WINDOW, read_blocking, write_blocking};
pub use hostler_model::WindowSize;
pub use keep_alive::keep_alive;
pub use message::{
    Caller, Choice, Command, Cost, Counts, Destination, DirectoryId, Event, ExecRequest, FailedAttempt, Limit,
    NodeScore, Open, Proof, Refusal, RefusalKind, Reply, Report, Start, Started, StepClaim, StepOutcome, StepStart,
};
pub use paths::{MOST_PATHS, Paths};
pub use signals::HeldSignals;
pub use streams::{Became, Copies, Input, Streams, Wanted, carry, carry_home};
pub use tree_spec::TreeSpec;

/// Returns the address at which a `dshd` without a head answers programs of this machine. It has no path, because the daemon may
/// run as `nobody`, so everybody can use the address: check who listens.
///
/// # Errors
/// Never on Linux, because the name is short.
pub fn headless_address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name("hostler-dshd")
}

/// Returns the path of the agent's socket for remote commands, given the path of its main socket.
#[must_use]
pub fn socket_beside(socket: &Path) -> PathBuf {
    socket.with_extension("calls")
}
