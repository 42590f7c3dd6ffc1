//! Mirrors trees for remote commands on a node without the caller's disk, and brings changes back.
//!
//! Unlike a captured project, a mirrored tree is described completely, including links that lead outside
//! ([`survey`]). The caller remembers it for the next command ([`Memory`]). The node reads the command's changes from
//! the upper directory of an overlay ([`upper`]), and the caller puts them in place ([`Placing`]).

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
