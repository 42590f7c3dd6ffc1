//! The agent's state machine: which runs a node holds and how far each is.
//!
//! An [`Event`] is something that happened on the node or came from the head; [`update`] changes the state and answers with
//! [`Effect`]s: work for the shell. The shell keeps what must survive the agent in each run's own directory, so a restarted agent
//! begins with [`Event::Recovered`] for every directory it finds.
//!
//! A run's stages: `Staging → Running → Collecting → Over`; a run on several nodes is `Ready` before it is running, and waits there for
//! the others. The agent never decides that a run may start: it has a launch for it or it
//! has not.

mod state;
mod update;

pub use state::{Effect, Event, Exit, Found, Run, RunLaunch, Stage, State, Uncollected, Why};
pub use update::update;
