//! The state machines of the head and the agent: events in, state changed, effects out.
//!
//! [`head::update`] and [`agent::update`] are the only places where their state changes, and both are deterministic: time comes in
//! with events, randomness not at all, IO is described by effects that a shell carries out. The daemons and the simulator run this
//! same code.

pub mod agent;
pub mod doorway;
pub mod head;
pub mod link;
