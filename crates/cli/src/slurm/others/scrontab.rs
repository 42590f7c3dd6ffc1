//! `scrontab`: refuses, since the cluster has no periodic jobs.

use std::ffi::OsString;

use hostler_slurm::getopt::{Opt, Takes};

use super::super::{Ended, Outcome, VERSION, opt, parse, print};
use crate::context::Context;

pub(crate) const NAME: &str = "scrontab";

const USAGE: &str = "Usage: scrontab [-u user] [-e | -l | -r] [file]\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Help,
    Nothing(&'static str),
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Nothing("edit"), "edit", b'e', Takes::Nothing),
    opt(Key::Help, "help", 0, Takes::Nothing),
    opt(Key::Nothing("list"), "list", b'l', Takes::Nothing),
    opt(Key::Nothing("quiet"), "quiet", b'Q', Takes::Nothing),
    opt(Key::Nothing("remove"), "remove", b'r', Takes::Nothing),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Nothing("user"), "user", b'u', Takes::Value),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    for (key, _) in &given.options {
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Nothing(_) => {}
        }
    }
    Err(Ended::fatal("scrontab is disabled on this cluster")
        .and("hint: `crontab` with `sbatch` submits jobs periodically"))
}
