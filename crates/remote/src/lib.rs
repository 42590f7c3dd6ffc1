//! Authenticated, multiplexed, flow-controlled execution of processes on another agent.
//!
//! ```text
//!  caller's machine                                    another node
//!  program ── Unix socket ──▶ agent ══ connection ════▶ agent ──▶ the command
//!  (streams, terminal, signals)  (chooses, relays)         (as the same user, in its own cgroup)
//! ```
//!
//! Users of the crate: `exec` and `dsh` run a command through the agents; [`step`] starts processes of a job on its other nodes.
//!
//! **The caller's program** knows nothing of the cluster. It sends its request to the agent of its machine, which chooses a node from gossip.
//! If that is its own node, the command gets the program's streams, which were [handed over](handover); on a terminal the program itself
//! becomes the command. Otherwise [`Frame`]s carry the streams to the other node.
//!
//! **Multiplexing.** Two agents have one [`Connection`] for all commands from one to the other, so a command costs no handshake. Each command
//! is a [`Channel`]. A sender has at most [`WINDOW`] unacknowledged pieces of a stream on the way, so memory per command is bounded
//! everywhere between its ends, a slow reader delays no other command, and the agents in between count nothing.
//!
//! **Trust.** A node is known by the fingerprint of its certificate ([`Credentials`]). The kernel of the caller's machine tells the agent there
//! who the caller is. Everything else that the caller says is an ordinary user's word: it can only ask for what that user may do.
//!
//! Deliberately absent: the choice of a node (`hostler-gossip`), and starting the command (`hostler-shepherd`).

use std::path::{Path, PathBuf};

mod connection;
mod credentials;
mod follow;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handover;
mod keep_alive;
mod message;
pub mod mirror;
pub mod shared_files;
pub mod step;
mod streams;

pub use connection::{Channel, Connection, Heartbeat, Incoming, multiplex};
pub use credentials::{Credentials, explain_tls, fingerprint_of, server_name};
pub use follow::{Ending, Shown, follow, follow_home};
pub use frame::{Frame, PIECE_BYTES, PROTOCOL, Stream, WINDOW, read_blocking, write_blocking};
pub use hostler_model::WindowSize;
pub use keep_alive::keep_alive;
pub use message::{
    Ask, Caller, Choice, Command, Cost, Counts, DirectoryId, Event, How, Limit, Open, Placed, Proof, Refusal,
    RefusalKind, Reply, Report, Start, Started, StepStart, Tried,
};
pub use mirror::TreeSpec;
pub use streams::{Became, Input, Streams, Wanted, carry, carry_home};

/// The socket for remote commands of the agent whose other socket is `socket`.
#[must_use]
pub fn socket_beside(socket: &Path) -> PathBuf {
    socket.with_extension("calls")
}
