//! `hostler configure notify`: shows destinations and undelivered notifications, and sends test messages.

use std::str::FromStr;

use clap::{Args, Subcommand};
use hostler_model::{DestinationName, ParseError, Subscription};

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::text::Moment;
use crate::output::{self, notifications};

/// Show and test destinations of notifications
///
/// Admins define destinations in the file notify.toml beside the head's settings. Users name a destination with
/// `--notify` when they submit a job.
#[derive(Debug, Args)]
pub(crate) struct Notify {
    #[command(subcommand)]
    command: NotifyCommand,
}

#[derive(Debug, Subcommand)]
enum NotifyCommand {
    /// List destinations, and notifications that could not be delivered
    List,
    /// Send a test message to a destination, and wait until the receiver has it
    Test {
        /// Destination, with an address if it needs one, e.g. mail:ada@example.org
        #[arg(value_name = "DESTINATION[:ADDRESS]")]
        to: Target,
    },
    /// Deliver the notifications again that could not be delivered
    Retry,
    /// Delete the notifications that could not be delivered
    Clear,
}

#[derive(Debug, Clone)]
struct Target {
    to: DestinationName,
    address: Option<String>,
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.contains('=') {
            return Err(ParseError::new(text, "a destination such as chat or mail:ada@example.org"));
        }
        let Subscription { to, address, .. } = text.parse()?;
        Ok(Self { to, address })
    }
}

impl Notify {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let output = &context.output;
        match self.command {
            NotifyCommand::List => {
                let all = block_on(async { Ok(client.notifications().await?) })?;
                if output.is_json() {
                    output.json(&all);
                    return Ok(exit::OK);
                }
                if all.destinations.is_empty() {
                    output.say("an admin has defined no destinations in the head's notify.toml");
                } else {
                    output.data(&notifications::destinations(&all.destinations, output::width()));
                }
                if !all.dead_letters.is_empty() {
                    output.say("\nnot delivered:");
                    output.data(&notifications::dead_letters(&all.dead_letters, &Moment::now(), output::width()));
                }
                if all.dropped > 0 {
                    output.say(&format!("{} notifications were dropped, because too many waited", all.dropped));
                }
                if let Some(trouble) = &all.trouble {
                    output.say(&format!("warning: {trouble}"));
                }
            }
            NotifyCommand::Test { to: Target { to, address } } => {
                block_on(async { Ok(client.test_notification(&to, address.as_deref()).await?) }).map_err(explained)?;
                output.say(&format!("destination {to} has accepted the test message"));
            }
            NotifyCommand::Retry => {
                block_on(async { Ok(client.retry_notifications().await?) })?;
                output.say("the head delivers the notifications again");
            }
            NotifyCommand::Clear => {
                block_on(async { Ok(client.clear_notifications().await?) })?;
                output.say("the notifications that could not be delivered are deleted");
            }
        }
        Ok(exit::OK)
    }
}

/// The head has one text for all receivers that it does not reach, so that users cannot explore its network.
fn explained(failure: Failure) -> Failure {
    if !failure.summary().contains("cannot connect") {
        return failure;
    }
    failure.hint(
        "check the name and the port in notify.toml; a receiver on this machine or in a private network also needs \
         `allow_private = true`",
    )
}
