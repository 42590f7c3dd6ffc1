//! The state machines of the head and the agent. Each takes events, changes its state and returns effects.
//!
//! Only [`head::update`] and [`agent::update`] change the state. Both are deterministic: events carry the time, nothing is random, and
//! effects describe all IO. The *shell*, i.e. the code of the daemon around the state machine, carries the effects out. The simulator
//! runs the same code.

#![warn(missing_docs)]

pub mod agent;
pub mod head;
pub mod link;
