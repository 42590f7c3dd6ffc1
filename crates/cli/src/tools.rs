//! The tools that people and programs start often, by the names of the links to the executable.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use hostler_remote::step::REMOTE_SHELL;

use crate::cm;
use crate::commands::act::Cancel;
use crate::commands::configure::Configure;
use crate::commands::exec::Dsh;
use crate::commands::step;
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::slurm::sacct::{seff, sreport};
use crate::slurm::{
    self, sacct, sacctmgr, salloc, sattach, sbatch, sbcast, scancel, scontrol, sinfo, squeue, srun, sshare, sstat,
};

/// A tool, selected by the name of a link to the executable.
pub struct Tool {
    pub name: &'static str,
    /// Runs the tool with its arguments, of which the first is its name.
    pub main: fn(Vec<OsString>) -> ExitCode,
    /// The command line, for completions and manual pages; `None` for Slurm's commands, which Slurm documents.
    pub definition: Option<fn() -> clap::Command>,
}

/// The file name of the smaller program.
pub const LIGHT_PROGRAM: &str = "hostler-tools";

/// The tools of [`LIGHT_PROGRAM`].
pub const LIGHT: &[Tool] = &[
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

/// Whether [`LIGHT_PROGRAM`] contains the tool.
#[must_use]
pub fn is_light(name: &str) -> bool {
    LIGHT.iter().any(|tool| tool.name == name)
}

const fn tool<T: cm::Tool>() -> Tool {
    Tool { name: T::NAME, main: cm::main::<T>, definition: Some(cm::definition::<T>) }
}

/// Runs the tool of `tools` that `args[0]` names, or else `other`.
pub fn run<'a>(
    mut tools: impl Iterator<Item = &'a Tool>,
    args: Vec<OsString>,
    other: fn(Vec<OsString>) -> ExitCode,
) -> ExitCode {
    let name = called_as(args.first());
    // Only launchers of MPI programs use this name; they call it like `ssh`.
    if name == Some(REMOTE_SHELL) {
        return step::remote_shell(&args[1..]);
    }
    let main = tools.find(|tool| Some(tool.name) == name).map_or(other, |tool| tool.main);
    main(args)
}

/// The file name of the path by which the executable was called.
fn called_as(path: Option<&OsString>) -> Option<&str> {
    path.and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str)
}

/// The program `hostler-tools`: runs the tool by whose name it was called.
#[must_use]
pub fn light_main() -> ExitCode {
    run(LIGHT.iter(), std::env::args_os().collect(), only_by_link)
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
