//! Load gossip: every node knows how every other is, and chooses among them without asking anyone.
//!
//! ```text
//! Load            what a node says of itself                                            load.rs
//! Gossip          one node's part: rounds, what comes in, what goes out                 node.rs, round.rs, receive.rs
//! Pace            how often there are news in a cluster of this size                    settings.rs
//! Members         who may take part, as the head says                                   member.rs
//! Keyring         which datagrams are believed                                          auth.rs
//! choose, explain which node a command should run on, and why                           choose.rs, policy.rs
//! Calls           commands under way, of which loads do not speak yet                   calls.rs
//! ```
//!
//! Inside: what is known of each member (`table`), the bytes of datagrams (`wire`), the budget of a second (`budget`) and the clock
//! that stands still while the node does (`awake`). How it all works together, and the figures, are in `docs/internals/gossip.md`.
//!
//! Nothing here reads a clock, draws a random number or touches a socket: times, random bits and datagrams are arguments, datagrams to
//! send are return values. So a simulation of thousands of nodes runs what agents run.
//!
//! # What the agent must provide
//!
//! - A UDP socket on the address that [`Member::address`] says, from which everything is sent. What comes goes to [`Gossip::receive`].
//! - A timer for [`Gossip::next_round`] on a thread that gets its turn when all CPUs are busy. Being late is borne; see [`Settings`].
//! - An [`Incarnation`] one greater than at the start before, written to disk before the first round; and, whenever
//!   [`Gossip::incarnation`] has grown, that. If the disk forgets, peers tell.
//! - Members and keys, which the head sends over its authenticated link, kept on disk so that all works while the head is away. A member's
//!   number that is given to another node has another name with it.
//! - Measurements, about once a second, for [`Gossip::publish`].
//! - 64 random bits for each round and choice.
//!
//! Deliberately absent: encryption (loads are no secret on the cluster's network), leaving with a word (silence is enough), and
//! suspicions that are passed on (each node judges by what it has heard itself).

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

pub use auth::{Key, Keyring};
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
