//! `hostler completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Arguments;
use crate::context::Context;
use crate::exit;
use crate::failure::Outcome;

/// Print a completion script for a shell
///
/// For bash: hostler completions bash > ~/.local/share/bash-completion/completions/hostler
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        context.output.data(&String::from_utf8_lossy(&script(self.shell)));
        Ok(exit::OK)
    }
}

/// The script for `shell`.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "hostler", &mut script);
    script
}
