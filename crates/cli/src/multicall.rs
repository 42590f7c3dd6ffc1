//! Selects the tool to run by the name of the executable.
//!
//! The name selects a row of [`TOOLS`]. Any other name means `hostler`, so a renamed copy still works.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use hostler_remote::step::REMOTE_SHELL;

use crate::args;
use crate::cm;
use crate::commands::act::Cancel;
use crate::commands::configure::Configure;
use crate::commands::exec::Dsh;
use crate::commands::step;
use crate::dsh::dshd;
use crate::slurm::others::{scrontab, sdiag, sprio, sshare, sstat};
use crate::slurm::{self, sacct, sacctmgr, salloc, sbatch, scancel, scontrol, sinfo, squeue, srun};

/// A tool, selected by the name of a link to the executable.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
    /// The command line, for completions and manual pages; `None` for Slurm's commands, which Slurm documents.
    pub(crate) definition: Option<fn() -> clap::Command>,
}

/// All tools; `hostler` is the first.
pub(crate) const TOOLS: &[Tool] = &[
    Tool { name: "hostler", main: args::main, definition: Some(args::definition) },
    tool::<cm::info::Cminfo>(),
    tool::<cm::run::Cmrun>(),
    tool::<Cancel>(),
    tool::<Configure>(),
    tool::<Dsh>(),
    Tool { name: "cmdaemon", main: cm::daemon::main, definition: Some(cm::daemon::definition) },
    Tool { name: dshd::NAME, main: dshd::main, definition: Some(dshd::definition) },
    Tool { name: sacct::NAME, main: |args| slurm::main(sacct::NAME, args, sacct::run), definition: None },
    Tool { name: sacctmgr::NAME, main: |args| slurm::main(sacctmgr::NAME, args, sacctmgr::run), definition: None },
    Tool { name: salloc::NAME, main: |args| slurm::main(salloc::NAME, args, salloc::run), definition: None },
    Tool { name: sbatch::NAME, main: |args| slurm::main(sbatch::NAME, args, sbatch::run), definition: None },
    Tool { name: scancel::NAME, main: |args| slurm::main(scancel::NAME, args, scancel::run), definition: None },
    Tool { name: scontrol::NAME, main: |args| slurm::main(scontrol::NAME, args, scontrol::run), definition: None },
    Tool { name: scrontab::NAME, main: |args| slurm::main(scrontab::NAME, args, scrontab::run), definition: None },
    Tool { name: sdiag::NAME, main: |args| slurm::main(sdiag::NAME, args, sdiag::run), definition: None },
    Tool { name: sinfo::NAME, main: |args| slurm::main(sinfo::NAME, args, sinfo::run), definition: None },
    Tool { name: sprio::NAME, main: |args| slurm::main(sprio::NAME, args, sprio::run), definition: None },
    Tool { name: squeue::NAME, main: |args| slurm::main(squeue::NAME, args, squeue::run), definition: None },
    Tool { name: srun::NAME, main: |args| slurm::main(srun::NAME, args, srun::run), definition: None },
    Tool { name: sshare::NAME, main: |args| slurm::main(sshare::NAME, args, sshare::run), definition: None },
    Tool { name: sstat::NAME, main: |args| slurm::main(sstat::NAME, args, sstat::run), definition: None },
];

const fn tool<T: cm::Tool>() -> Tool {
    Tool { name: T::NAME, main: cm::main::<T>, definition: Some(cm::definition::<T>) }
}

/// Runs the tool that `args[0]` names.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    // Only launchers of MPI programs use this name; they call it like `ssh`.
    if called_as(args.first()) == Some(REMOTE_SHELL) {
        return step::remote_shell(&args[1..]);
    }
    (tool_for(args.first()).main)(args)
}

/// The file name of the path by which the executable was called.
fn called_as(path: Option<&OsString>) -> Option<&str> {
    path.and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str)
}

fn tool_for(path: Option<&OsString>) -> &'static Tool {
    let name = called_as(path);
    TOOLS.iter().find(|tool| Some(tool.name) == name).unwrap_or(&TOOLS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_runs_hostler() {
        for path in ["hostler", "/usr/bin/hostler", "./target/debug/hostler-1.0", ""] {
            assert_eq!(tool_for(Some(&path.into())).name, "hostler", "{path}");
        }
        assert_eq!(tool_for(None).name, "hostler");
        for tool in TOOLS {
            assert_eq!(tool_for(Some(&format!("/usr/local/bin/{}", tool.name).into())).name, tool.name);
        }
    }

    #[test]
    fn every_definition_passes_claps_checks() {
        for tool in TOOLS {
            let Some(definition) = tool.definition else { continue };
            let command = definition();
            assert_eq!(command.get_name(), tool.name);
            assert!(command.get_about().is_some() && command.get_version().is_some(), "{}", tool.name);
            command.debug_assert();
        }
    }
}
