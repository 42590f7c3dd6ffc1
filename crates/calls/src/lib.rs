//! Calls: commands that run now, on the node with the most room, as if they ran where they were typed.
//!
//! ```text
//!  machine of the caller                         another node
//!  program ── Unix socket ──▶ agent ══ trunk ════▶ agent ──▶ the command
//!  (streams, terminal, signals)  (chooses, passes on)        (as the same user, in a leaf of its own)
//! ```
//!
//! **The idea.** The program that people call knows nothing of the cluster. It hands what it was asked for to the agent of its machine,
//! which knows from gossip where there is room. When that is here, the command has the program's own streams, which were handed over
//! ([`along`]); on a terminal the program simply becomes the command. Otherwise its streams are carried to the other node in [`Frame`]s.
//!
//! **Many on one connection.** Two agents have one connection for all calls from the one to the other, a [`Trunk`], so that a call costs no
//! handshake. Each call is a [`Line`] of it. A sender has no more than [`WINDOW`] pieces of a stream on the way; the receiver says when it
//! has passed them on ([`Frame::Taken`]). So what is kept for a call is bounded everywhere between its ends, a call whose reader is slow
//! holds up no other, and none of those in between counts anything.
//!
//! **Whose word counts.** The node at the other end of a trunk is known by its key. Who the caller is, that node's kernel has said to its
//! agent; what else the caller claims is worth what a user's word is: it can only ask for what is theirs.
//!
//! Deliberately absent: the choice of a node (`hostler-gossip`), and starting the command (the shepherd).

use std::path::{Path, PathBuf};

pub mod along;
mod caller;
mod frame;
pub mod fresh;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host;
pub mod ship;
mod trunk;
mod wire;

pub use caller::{Ending, Shown, follow, follow_home};
pub use frame::{
    Ask, Caller, Choice, Command, Cost, Counts, DirectoryId, Frame, How, Limit, Placed, Proof, Refusal, RefusalKind,
    Report, Sought, Start, Started, Tried,
};
pub use host::{Became, Input, Streams, Wanted, carry, carry_home};
pub use hostler_model::WindowSize;
pub use ship::Ship;
pub use trunk::{Line, Lines, Trunk, Watch, trunk};
pub use wire::{PIECE_BYTES, WINDOW, read_blocking, write_blocking};

/// Where an agent takes calls whose door for everything else is this one.
#[must_use]
pub fn socket_beside(door: &Path) -> PathBuf {
    door.with_extension("calls")
}
