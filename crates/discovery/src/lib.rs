//! Detects the resources of a machine.
//!
//! [`machine`] detects the resources of the current machine. It always returns a result within two seconds, even when a
//! driver hangs. A [`Note`] reports facts that are unknown and resources that are left out. All data comes from a
//! [`Source`], so the same code works for a machine recorded in a [`Fixture`].
//!
//! This crate enforces, watches and stores nothing. Configuration can only reduce the detected resources ([`Caps`]).
//! Load and temperature are not part of the result.

mod caps;
mod cgroup;
mod cpus;
mod fixture;
mod gpu;
mod machine;
mod memory;
mod note;
mod source;
mod within;

pub use caps::{Caps, GpuPick};
pub use fixture::{Fixture, FixtureError};
pub use gpu::answer::{NvmlAnswer, NvmlCard, NvmlSlice};
pub use gpu::card::{DeviceFile, Gpu};
pub use hostler_model::Vendor;
pub use machine::{Machine, capture, machine};
pub use memory::Memory;
pub use note::{Note, Topic};
pub use source::Source;
