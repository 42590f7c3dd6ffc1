//! Power controllers: drivers that switch one machine on or off.
//!
//! ```text
//!  head ──act(verb)──▶ Controller ──▶ Driver ──▶ Redfish · ipmitool · magic packet · command · Slurm
//!                      serialises,    speaks
//!                      limits, pauses one language
//! ```
//!
//! **Design.** A [`Driver`] implements one protocol and reports only what the controller has confirmed. The head uses a
//! [`Controller`], which wraps a driver. Every verb first reads the power state. A machine that is on is not switched
//! on again, one that is off is not switched off again, and if the state is unknown, nothing is sent. There is no power
//! cycle verb, and a graceful shutdown never becomes a forced one.
//!
//! **Accepted does not mean done.** Controllers reply immediately and act seconds later, or never. [`Answer::Accepted`]
//! means only that the controller has replied. The caller polls the status until it changes or a timeout expires.
//!
//! **Controllers are small machines.** They freeze under frequent requests, support few sessions, and lock accounts.
//! Nodes that share a controller therefore take turns ([`Site`]). There is a pause between requests, which grows after
//! faults. Rejected credentials are not used again until they have changed or some minutes have passed.
//!
//! This crate contains no policy: it does not know why or when to switch a machine, or whether a job runs there. It
//! keeps no state across a restart; only the controllers themselves keep theirs.

mod command;
mod config;
mod controller;
mod credentials;
mod driver;
mod fault;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod ipmi;
mod pace;
mod program;
mod redfish;
mod secret;
mod site;
mod slurm;
mod tree;
mod wake_on_lan;
mod wake_up;

pub use config::{
    CommandConfig, ControllerConfig, CredentialsConfig, IpmiConfig, RedfishConfig, SlurmConfig, Span, VirtualConfig,
    WakeOnLanConfig,
};
pub use controller::{Answer, Controller};
pub use driver::{Driver, Off};
pub use fault::{Fault, FaultKind};
pub use hostler_model::{PowerVerb as Verb, Supply};
pub use pace::Pace;
pub use redfish::{Address, Fingerprint};
pub use secret::Secret;
pub use site::{NoNodes, Reach, Site};
pub use wake_up::{MacAddress, WakeUp, segments};
