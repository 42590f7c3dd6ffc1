//! Power management: which machines are on, and which should be.
//!
//! ```text
//!  unknown ──▶ off ──▶ waking ──▶ up ──▶ asking ──▶ stopping ──▶ off
//!                │        │        ▲        │           │
//!                │        ▼        │        ▼           ▼
//!                └─────▶ failed ───┴─── up again ◀──────┘
//! ```
//!
//! **The idea.** The log records every intention as an event before the head acts on it. Each action depends only on
//! later confirmations: of the node's agent, which is connected or not, and of its power controller, which has
//! answered *on*, *off* or nothing. So a restarted head needs no special code: it asks for the current state and
//! continues.
//!
//! [`manage`] checks all nodes when something has changed or a time limit has passed, and returns events. [`machine`] decides a node's
//! next stage, [`wake`] which nodes the queue needs, and [`rest`] which nodes it does not need.
//!
//! **A busy node is never switched off.** The event with which the head asks a node's agent also removes the node from the scheduler's
//! pool ([`Stage::Asking`]). The controller gets the order ([`Stage::Stopping`]) only when no run is placed on the node and the agent
//! confirms that nothing runs, including staging and the upload of results. Until then the head can still cancel.
//!
//! **An order to switch off cannot be cancelled.** A controller may carry it out late, twice, or after answering with an error, whether
//! this head sent it or an earlier one. So after [`Stage::Stopping`] a node returns to work only
//!
//! - when the stop timeout has passed since the controller's last answer to such an order, or it accepted a later order to switch on, and
//! - when its agent belongs to a later boot, or confirms that its machine is not shutting down.

mod energy;
mod machine;
mod pass;
mod rest;
mod state;
mod wake;

pub use energy::Meter;
pub(super) use pass::manage;
pub(super) use pass::{decide_drew, decide_power, decide_resting, update_power};
pub use state::{Boots, Power, PowerCommand, PowerEvent, PowerFault, Powers, Stage};
pub(super) use wake::explain_off_nodes;
