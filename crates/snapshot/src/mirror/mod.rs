//! Trees that a remote command uses on a node without the caller's disk, and what comes back.
//!
//! Unlike a captured project, a mirrored tree is described completely, with links that lead outside ([`survey`]). The caller remembers it for the
//! next command ([`Memory`]). The node reads what the command wrote from the upper directory of an overlay ([`upper`]), and the caller puts
//! that in place ([`Placing`]).

mod look;
mod memory;
mod named;
mod place;
mod survey;
mod upper;

pub use memory::Memory;
pub use named::Named;
pub use place::{Filling, PlaceError, Placing, Stamp};
pub use survey::{Survey, survey};
pub use upper::{Upper, upper, whiteout};
