//! The virtual clock, which counts microseconds.

pub(crate) const MS: u64 = 1_000;

pub(crate) const SECOND: u64 = 1_000 * MS;
