//! What does this machine have to give?
//!
//! [`machine`] answers for the machine it runs on: one call that always has an answer, within two seconds even when a
//! driver hangs. What it could not find out, or left out, is a [`Note`]. Everything it knows comes through a [`Source`],
//! so the same code answers for a machine recorded in a [`Fixture`].
//!
//! Nothing here is enforced, watched or stored, and nothing is believed that a person typed: configuration may only cap
//! ([`Caps`]). Load and temperature are deliberately absent: this is what a machine
//! has at this moment, not what it does.

mod caps;
mod cgroup;
mod cpus;
mod fixture;
mod gpu;
mod machine;
mod memory;
mod source;
mod within;

pub use caps::{Caps, GpuPick};
pub use fixture::{Fixture, FixtureError};
pub use gpu::nvml::{NvmlAnswer, NvmlCard, NvmlSlice};
pub use gpu::{DeviceFile, Gpu};
pub use hostler_model::Vendor;
pub use machine::{Machine, Note, Topic, capture, machine};
pub use memory::Memory;
pub use source::Source;
