//! The tools of the `dsh` of 1998, by their names, flags and ports: `dshd`.

mod cluster_file;
pub(crate) mod dshd;
mod headless;
mod key_file;
