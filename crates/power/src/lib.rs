//! Power controllers: switching one machine on and off, whatever it hangs on.
//!
//! ```text
//!  head ──act(verb)──▶ Controller ──▶ Driver ──▶ Redfish · ipmitool · magic packet · command · Slurm
//!                      serialises,    speaks
//!                      limits, pauses one language
//! ```
//!
//! **The idea.** A [`Driver`] speaks one controller's language and says only what that controller has confirmed; a [`Controller`] around it
//! is what the head uses. Every verb begins with the question how things are: a machine that is on already is not switched on, one that is
//! off not switched off, and where the answer is not known nothing is done at all. There is no verb that cycles, and graceful never becomes
//! forced.
//!
//! **Accepted is not done.** Controllers answer at once and act seconds later, or never. [`Answer::Accepted`] says no more than that; whoever
//! wants to know asks for the status until it is so or too late.
//!
//! **Controllers are small machines.** They freeze when they are asked too often, have few sessions and lock accounts. So whoever shares
//! one waits for the others ([`Site`]), commands have a pause between them, faults make it longer, and credentials that were refused are
//! not shown again before they have changed or some minutes have passed.
//!
//! Deliberately absent: what a machine is needed for, when to switch it, and whether a job runs there. Nothing here is
//! remembered across a restart, apart from what controllers themselves remember.

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
pub use wake_on_lan::{MacAddress, WakeUp};
