//! Selects the tool to run by the name of the executable.
//!
//! The executable `hostler` contains all tools. `hostler-tools` contains those that are started often: a small executable
//! starts faster.

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
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::slurm::sacct::{seff, sreport};
use crate::slurm::{
    self, sacct, sacctmgr, salloc, sattach, sbatch, sbcast, scancel, scontrol, sinfo, squeue, srun, sshare, sstat,
};

/// A tool, selected by the name of a link to the executable.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
    /// The command line, for completions and manual pages; `None` for Slurm's commands, which Slurm documents.
    pub(crate) definition: Option<fn() -> clap::Command>,
}

/// The tools that only `hostler` contains; `hostler` is the first.
const FULL: &[Tool] = &[
    Tool { name: "hostler", main: args::main, definition: Some(args::definition) },
    Tool { name: "cmdaemon", main: cm::daemon::main, definition: Some(cm::daemon::definition) },
    Tool { name: dshd::NAME, main: dshd::main, definition: Some(dshd::definition) },
];

/// The file name of the smaller program.
pub(crate) const LIGHT_PROGRAM: &str = "hostler-tools";

/// The tools that [`LIGHT_PROGRAM`] contains too: those that people and programs start often.
const LIGHT: &[Tool] = &[
    tool::<cm::info::Cminfo>(),
    tool::<cm::run::Cmrun>(),
    tool::<Cancel>(),
    tool::<Configure>(),
    tool::<Dsh>(),
    Tool { name: sacct::NAME, main: |args| slurm::main(sacct::NAME, args, sacct::run), definition: None },
    Tool { name: sacctmgr::NAME, main: |args| slurm::main(sacctmgr::NAME, args, sacctmgr::run), definition: None },
    Tool { name: salloc::NAME, main: |args| slurm::main(salloc::NAME, args, salloc::run), definition: None },
    Tool { name: sattach::NAME, main: |args| slurm::main(sattach::NAME, args, sattach::run), definition: None },
    Tool { name: sbatch::NAME, main: |args| slurm::main(sbatch::NAME, args, sbatch::run), definition: None },
    Tool { name: sbcast::NAME, main: |args| slurm::main(sbcast::NAME, args, sbcast::run), definition: None },
    Tool { name: scancel::NAME, main: |args| slurm::main(scancel::NAME, args, scancel::run), definition: None },
    Tool { name: scontrol::NAME, main: |args| slurm::main(scontrol::NAME, args, scontrol::run), definition: None },
    Tool { name: seff::NAME, main: |args| slurm::main(seff::NAME, args, seff::run), definition: None },
    Tool { name: sinfo::NAME, main: |args| slurm::main(sinfo::NAME, args, sinfo::run), definition: None },
    Tool { name: squeue::NAME, main: |args| slurm::main(squeue::NAME, args, squeue::run), definition: None },
    Tool { name: sreport::NAME, main: |args| slurm::main(sreport::NAME, args, sreport::run), definition: None },
    Tool { name: srun::NAME, main: |args| slurm::main(srun::NAME, args, srun::run), definition: None },
    Tool { name: sshare::NAME, main: |args| slurm::main(sshare::NAME, args, sshare::run), definition: None },
    Tool { name: sstat::NAME, main: |args| slurm::main(sstat::NAME, args, sstat::run), definition: None },
];

/// All tools; `hostler` is the first.
pub(crate) fn tools() -> impl Iterator<Item = &'static Tool> {
    FULL.iter().chain(LIGHT)
}

/// Whether [`LIGHT_PROGRAM`] contains the tool.
pub(crate) fn is_light(name: &str) -> bool {
    LIGHT.iter().any(|tool| tool.name == name)
}

const fn tool<T: cm::Tool>() -> Tool {
    Tool { name: T::NAME, main: cm::main::<T>, definition: Some(cm::definition::<T>) }
}

/// Runs the tool that `args[0]` names. Any other name means `hostler`, so a renamed copy still works.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let tool = named(tools(), &args).unwrap_or(&FULL[0]);
    run(tool.main, args)
}

/// As [`main`], in the executable that contains only the light tools.
pub(crate) fn light_main(args: Vec<OsString>) -> ExitCode {
    let tool = named(LIGHT.iter(), &args);
    run(tool.map_or(only_by_link, |tool| tool.main), args)
}

fn run(tool: fn(Vec<OsString>) -> ExitCode, args: Vec<OsString>) -> ExitCode {
    // Only launchers of MPI programs use this name; they call it like `ssh`.
    if called_as(args.first()) == Some(REMOTE_SHELL) {
        return step::remote_shell(&args[1..]);
    }
    tool(args)
}

/// Says how to use `hostler-tools`.
fn only_by_link(_: Vec<OsString>) -> ExitCode {
    let names: Vec<&str> = LIGHT.iter().map(|tool| tool.name).collect();
    let failure = Failure::usage(format!("{LIGHT_PROGRAM} must be called by the name of a tool"))
        .hint(format!("tools: {}", names.join(", ")))
        .hint("create links with these names: hostler shims DIR");
    Output::new(Format::Text).fail(&failure);
    failure.exit.into()
}

fn named(mut tools: impl Iterator<Item = &'static Tool>, args: &[OsString]) -> Option<&'static Tool> {
    let name = called_as(args.first())?;
    tools.find(|tool| tool.name == name)
}

/// The file name of the path by which the executable was called.
fn called_as(path: Option<&OsString>) -> Option<&str> {
    path.and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_executable_selects_the_tool() {
        for path in ["./target/debug/hostler-1.0", ""] {
            assert!(named(tools(), &[path.into()]).is_none(), "{path}");
        }
        assert!(named(tools(), &[]).is_none());
        for tool in tools() {
            let called = [format!("/usr/local/bin/{}", tool.name).into()];
            assert_eq!(named(tools(), &called).expect("a tool").name, tool.name);
        }
    }

    #[test]
    fn every_definition_passes_claps_checks() {
        for tool in tools() {
            let Some(definition) = tool.definition else { continue };
            let command = definition();
            assert_eq!(command.get_name(), tool.name);
            assert!(command.get_about().is_some() && command.get_version().is_some(), "{}", tool.name);
            command.debug_assert();
        }
    }
}
