//! `sshare`: lists no shares, since users of Hostler have none.
//!
//! Snakemake asks it for the accounts of a user if `sacctmgr` lists none. An empty list means that any account is valid.

use std::ffi::OsString;

use hostler_slurm::getopt::Takes::{Nothing, Value};

use super::options::{self, Setter, nothing, prints, version};
use super::{Outcome, tell};
use crate::context::Context;

pub(crate) const NAME: &str = "sshare";

const USAGE: &str = "Usage: sshare [-hnpPUV] [-A accounts] [-o format] [-u users]\n";

const OPTIONS: &[Setter<()>] = &[
    nothing("accounts", "A", Value),
    nothing("format", "o", Value),
    prints("help", "", || USAGE.to_owned()),
    nothing("noheader", "nh", Nothing),
    nothing("parsable", "p", Nothing),
    nothing("parsable2", "P", Nothing),
    prints("usage", "", || USAGE.to_owned()),
    nothing("Users", "U", Nothing),
    nothing("users", "u", Value),
    prints("version", "V", version),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    options::read(NAME, OPTIONS, args, &mut ())?;
    tell(context, NAME, &["users have no shares; `hostler why JOB` explains when a job starts".to_owned()]);
    Ok(0)
}
