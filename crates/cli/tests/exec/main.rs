//! `hostler exec`, also called `dsh`: commands that run now on another host, as if they ran here. Needs root, python3, vim and rsync.

mod failures;
mod here;
mod identity;
mod load;
mod machines;
mod many;
mod placement;
mod signals;
mod strangers;
mod streams;
mod terminal;
