//! `slurm.conf` and the files beside it: their lines, included files, records with defaults, and lists of nodes.
//!
//! The modules know the syntax, and what a record inherits. They do not know what a key means; keys are compared without case.

mod include;
mod lines;
mod nodes;
mod records;

pub use include::{Found, MAX_BYTES, NotFound, read};
pub use lines::{Line, Place, Problem, Value, parse};
pub use nodes::{Members, Nodes};
pub use records::{Kind, Record, records};
