//! `hostler session-leader`, for agents: leads the terminal session of a remote command on this node.

use std::ffi::OsString;

use clap::Args;
use hostler_agent::session_leader;
use hostler_cli::exit;
use hostler_cli::failure::{During, Outcome};

/// Run a command in the foreground of this terminal, with job control
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct SessionLeader {
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<OsString>,
}

impl SessionLeader {
    pub(crate) fn run(self) -> Outcome {
        let code = session_leader::run(&self.argv).during(|| format!("cannot run {}", self.argv[0].display()))?;
        Ok(u8::try_from(code).unwrap_or(exit::FAILED))
    }
}
