//! Tests of shepherds with real processes, files, terminals and cgroup leaves.
//!
//! The leaf tests need a writable cgroup2 hierarchy, and a few tests need root. They fail with a hint if that is
//! missing.

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
mod sandboxes;
mod terminals;
mod users;
