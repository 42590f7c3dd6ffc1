//! Load gossip: every node knows the load of every other node, and chooses a node for a command without asking any of them.
//!
//! ```text
//! Load            a node's load                                                         load.rs
//! Gossip          one node's protocol state: rounds, incoming and outgoing datagrams    node.rs, round.rs, receive.rs
//! Pace            update intervals for a cluster of this size                           settings.rs
//! Members         the nodes that take part, as the head defines them                    member.rs
//! Key             authentication of datagrams                                           auth.rs
//! choose, explain which node a command should run on, and why                           choose.rs, policy.rs
//! Calls           commands in flight that loads do not include yet                      calls.rs
//! ```
//!
//! Internal modules: the state of each member (`table`), the encoding of datagrams (`wire`), the limit of bytes per second (`budget`)
//! and the clock that stops while the node is suspended (`awake`). The protocol and measurements are in `docs/internals/gossip.md`.
//!
//! The crate reads no clock, draws no random numbers and opens no sockets: times, random bits and datagrams are arguments, outgoing
//! datagrams are return values. So simulations of thousands of nodes run the agents' code.
//!
//! # What the agent must provide
//!
//! - A UDP socket bound to [`Member::address`], from which it sends everything. Incoming datagrams go to [`Gossip::receive`].
//! - A timer for [`Gossip::next_round`] on a thread that runs even when all CPUs are busy. Delays are tolerated; see [`Settings`].
//! - An [`Incarnation`] that is one greater than at the previous start, written to disk before the first round and whenever
//!   [`Gossip::incarnation`] has grown. If the disk loses it, peers report it.
//! - Members and the key, which the head sends over its authenticated connection. They are stored on disk, so gossip works without the
//!   head. A member number that is reassigned to another node comes with another name.
//! - Measurements for [`Gossip::publish`], about once per second.
//! - 64 random bits for each round and choice.
//!
//! Not included by design: encryption (loads are not secret within the cluster's network), a farewell message (silence is enough), and
//! shared suspicions (each node judges only by what it received itself).

#![warn(missing_docs)]

mod auth;
mod awake;
mod budget;
mod calls;
mod choose;
mod costs;
mod counters;
mod dice;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod load;
mod member;
mod node;
mod policy;
mod receive;
mod round;
mod settings;
mod table;
mod version;
mod wire;

pub use auth::Key;
pub use calls::{Calls, Ticket};
pub use choose::{Candidate, Explanation, Needs, Score, Unfit, choose, explain};
pub use costs::{Costs, Estimate};
pub use counters::{Counters, Refused};
pub use load::{Load, Pressure};
pub use member::{Member, MemberId, Members};
pub use node::{Datagram, Gossip, Node};
pub use policy::Policy;
pub use settings::{Pace, Settings};
pub use table::Presence;
pub use version::{Incarnation, Version};
