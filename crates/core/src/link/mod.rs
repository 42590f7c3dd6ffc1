//! Both ends of the agent link, without the connection.
//!
//! The agent opens a connection and sends its hello, which lists its runs. The head checks the results in the hello, passes the hello to
//! its loop, and sends the welcome once the loop's answer is durable. From then on, both sides send numbered frames. When the link
//! breaks, the agent reconnects ([`Dialler`]), and the next hello makes up for everything that was lost. [`HeadLink`] and [`AgentLink`]
//! are the two ends; the daemons and the simulator drive them. Times count from an arbitrary start.

mod agent;
mod dialler;
mod frames;
mod head;
mod queue;

pub use agent::{AgentLink, HELLO_TIMEOUT, LinkEnd, Terms};
pub(crate) use dialler::LONGEST_RETURN;
pub use dialler::{Attempt, Dialler};
pub use frames::{EncodedSize, Gap, Inbox, Outbox};
pub use head::{Check, HeadLink, Inline, Step};
