//! The listeners of the daemons: which connections may stay, for how long, and how slowly they may send.
//!
//! [`Admission`] is the only way to accept a connection of a stranger or a user. A connection that is accepted never waits
//! for others, and others never wait for it:
//!
//! - An unidentified connection takes one of a fixed number of places, for a bounded time. If all places are taken, the
//!   oldest connection of the origin with the most connections is closed.
//! - An identified connection counts for its party, which has a bounded share. If all shares together exceed the
//!   listener's total, the party with the most connections loses its oldest one.
//!
//! [`service`] is the only way to answer HTTP requests: their bodies are [`Paced`], so no handler can wait for a client
//! that sends slower than the minimum pace. The lint in `clippy.toml` enforces both.
//!
//! [`UsageLimits`] limits what a party uses at once, whatever it is.

mod admission;
mod local_socket;
mod network;
mod pace;
mod place;
mod usage;

pub use admission::{Admission, Limits, Listener, Party, TooMany};
pub use local_socket::LocalSocket;
pub use network::{Network, Origin};
pub use pace::{Pace, Paced, Stalled, http1, is_stalled, service};
pub use place::{Evicted, Place, Tied};
pub use usage::{UsageLimits, UsagePermit};
