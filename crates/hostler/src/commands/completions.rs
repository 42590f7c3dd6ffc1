//! `hostler completions`: prints completion scripts for shells.

use clap::Args;
use clap_complete::Shell;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};
use hostler_cli::tools::Tool;

use crate::multicall::tools;

/// Print a shell completion script
///
/// For bash, e.g.: hostler completions bash > ~/.local/share/bash-completion/completions/hostler. The tools that
/// `hostler shims` links need their own scripts; print them with --tool.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell for which to print the script
    shell: Shell,

    /// Name of the tool to complete, e.g. dsh
    #[arg(long, value_name = "NAME", default_value = "hostler")]
    tool: String,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let tool = tools().find(|tool| tool.name == self.tool);
        let script = tool.and_then(|tool| script(self.shell, tool)).ok_or_else(|| {
            let known = tools().filter(|tool| tool.definition.is_some());
            let names: Vec<&str> = known.map(|tool| tool.name).collect();
            Failure::usage(format!("no completions for {}", self.tool)).hint(format!("tools: {}", names.join(", ")))
        })?;
        context.output.data(&String::from_utf8_lossy(&script));
        Ok(exit::OK)
    }
}

/// The completion script of `tool` for `shell`; `None` for Slurm's commands.
pub(crate) fn script(shell: Shell, tool: &Tool) -> Option<Vec<u8>> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut (tool.definition?)(), tool.name, &mut script);
    Some(script)
}
