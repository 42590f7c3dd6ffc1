//! Shepherds with real processes, files, terminals and cgroup leaves.
//!
//! The leaf tests need a writable cgroup2 hierarchy, and a few need root; they fail, and say so, where that is missing.

mod adoption;
mod calls;
mod common;
mod enclosures;
mod endings;
mod floods;
mod footprint;
mod limits;
mod linger;
mod runs;
mod terminals;
mod users;
