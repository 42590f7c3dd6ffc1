//! The agent's state machine: the runs on a node and the stage of each.
//!
//! An [`Event`] comes from the node or from the head. [`update`] changes the state and returns [`Effect`]s, which the agent process
//! carries out. Data that must survive the agent is in each run's own directory, so a restarted agent begins with
//! [`Event::Recovered`] for every directory.
//!
//! A run's stages: `Staging → Running → Collecting → Over`. A run on several nodes is `Ready` before `Running`, until the other nodes
//! are ready too. Only the head decides that a run starts.

mod state;
mod update;

pub use state::{Effect, Event, Exit, Found, Run, RunLaunch, Stage, State, Uncollected, Why};
pub use update::update;
