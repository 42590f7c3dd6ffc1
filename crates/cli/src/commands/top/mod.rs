//! `hostler top`: the queue, the nodes and the output of jobs in the terminal.
//!
//! - [`model`]: the state, and how keys and answers of the head change it. [`filter`], [`lists`] and [`tail`] are parts
//!   of the state.
//! - [`view`]: draws the state.
//! - [`head`]: asks the head for what the screen shows, without delaying the keyboard.
//! - [`screen`]: the terminal, its modes and keys.
//! - [`shell`]: the loop that connects them.

mod filter;
mod head;
mod lists;
mod model;
mod screen;
mod shell;
mod tail;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};

use clap::Args;

use crate::context::{Context, block_on};
use crate::failure::{Failure, Outcome};

/// Watch jobs, nodes and output in the terminal, and act on jobs
///
/// The first screen lists your jobs; `?` lists the keys. The screen follows changes at the head, at most once per second.
/// Actions need a confirmation. Colours depend on TERM, and NO_COLOR turns them off.
#[derive(Debug, Args)]
pub struct Top {
    /// Refuse all keys that change something
    #[arg(long)]
    read_only: bool,
}

impl Top {
    pub fn run(self, context: &Context) -> Outcome {
        if context.output.is_json() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::usage("hostler top needs a terminal for input and output")
                .hint("programs use `hostler jobs --json`, `hostler nodes --json` and `hostler logs`"));
        }
        if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Err(Failure::usage("hostler top needs a terminal that can move the cursor, and TERM is `dumb`")
                .hint("use another terminal, or `hostler jobs` and `hostler nodes`"));
        }
        // The first answer comes with the usual retries and messages, before the screen changes.
        let client = context.client()?;
        block_on(async {
            let me = client.me().await?;
            shell::run(context.quiet_client()?, me, self.read_only).await
        })
    }
}
