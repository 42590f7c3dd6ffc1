//! `sshare`: lists no shares, since users of Hostler have none.
//!
//! Snakemake asks it for the accounts of a user if `sacctmgr` lists none. An empty list means that any account is valid.

use std::ffi::OsString;

use hostler_slurm::getopt::{Opt, Takes};

use super::{Outcome, VERSION, opt, parse, print, tell};
use crate::context::Context;

pub(crate) const NAME: &str = "sshare";

const USAGE: &str = "Usage: sshare [-hnpPUV] [-A accounts] [-o format] [-u users]\n";

/// The options, each with its letter as key.
const OPTIONS: &[Opt<u8>] = &[
    opt(b'A', "accounts", b'A', Takes::Value),
    opt(b'o', "format", b'o', Takes::Value),
    opt(b'?', "help", 0, Takes::Nothing),
    opt(b'n', "noheader", b'n', Takes::Nothing),
    opt(b'n', "noheader", b'h', Takes::Nothing),
    opt(b'p', "parsable", b'p', Takes::Nothing),
    opt(b'P', "parsable2", b'P', Takes::Nothing),
    opt(b'?', "usage", 0, Takes::Nothing),
    opt(b'U', "Users", b'U', Takes::Nothing),
    opt(b'u', "users", b'u', Takes::Value),
    opt(b'V', "version", b'V', Takes::Nothing),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    for (key, _) in parse(NAME, OPTIONS, args)?.options {
        match key {
            b'?' => return Ok(print(context, USAGE)),
            b'V' => return Ok(print(context, &format!("{VERSION}\n"))),
            _ => {}
        }
    }
    tell(context, NAME, &["users have no shares; `hostler why JOB` explains when a job starts".to_owned()]);
    Ok(0)
}
