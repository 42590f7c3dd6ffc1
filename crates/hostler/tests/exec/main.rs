//! `hostler exec`, also called `dsh`: commands on other hosts. Needs root, python3, vim and rsync.

mod failures;
mod hanging;
mod here;
mod identity;
mod load;
mod machines;
mod many;
mod placement;
mod sandboxed;
mod signals;
mod strangers;
mod streams;
mod terminal;
