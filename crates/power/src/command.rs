//! Commands written by the operator, e.g. for smart plugs, power strips, virtual machines and clouds.

use std::time::Duration;

use futures_util::future::BoxFuture;
use hostler_model::NodeName;

use crate::fault::quoted;
use crate::program::{Finished, Program};
use crate::{CommandConfig, Driver, Fault, Off, Supply};

/// Exit code for a temporary failure: `EX_TEMPFAIL` in sysexits.h.
const TRY_AGAIN: i32 = 75;

/// Driver that runs the operator's commands.
pub(crate) struct CommandDriver {
    node: NodeName,
    config: CommandConfig,
    limit: Duration,
}

impl CommandDriver {
    /// Creates the driver.
    ///
    /// # Errors
    /// A command is empty.
    pub(crate) fn new(node: &NodeName, config: &CommandConfig) -> Result<Self, Fault> {
        let optional = [("force_off", &config.force_off), ("watts", &config.watts)];
        let given = [("status", &config.status), ("on", &config.on), ("off", &config.off)].into_iter();
        let mut all = given.chain(optional.into_iter().filter_map(|(verb, argv)| Some((verb, argv.as_ref()?))));
        if let Some((verb, _)) = all.find(|(_, argv)| argv.is_empty()) {
            return Err(Fault::unprepared(format!("the command for `{verb}` is empty")).hint(format!(
                "write the program and its arguments, e.g. {verb} = [\"/usr/local/bin/plug\", \"{verb}\"]"
            )));
        }
        Ok(Self { node: node.clone(), config: config.clone(), limit: config.limit() })
    }

    async fn run(&self, verb: &str, argv: &[String]) -> Result<Finished, Fault> {
        let more = self.config.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let ours = [("HOSTLER_NODE", self.node.as_str()), ("HOSTLER_VERB", verb)];
        let finished = Program::new(argv, self.limit).environment(more).environment(ours).run().await?;
        if finished.status.success() {
            return Ok(finished);
        }
        let why = format!("the command for `{verb}`, `{}`, {}", argv[0], finished.failure());
        Err(if finished.status.code() == Some(TRY_AGAIN) {
            Fault::busy(why)
        } else {
            Fault::confused(why)
                .hint(format!("run the command manually with HOSTLER_NODE={} HOSTLER_VERB={verb}", self.node))
        })
    }
}

impl Driver for CommandDriver {
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
        Box::pin(async {
            let finished = self.run("status", &self.config.status).await?;
            supply(&finished.stdout).ok_or_else(|| unexpected_output("status", &finished.stdout, "`on` or `off`"))
        })
    }

    fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async { self.run("on", &self.config.on).await.map(drop) })
    }

    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            match (how, &self.config.force_off) {
                (Off::Gracefully, _) => self.run("off", &self.config.off).await.map(drop),
                (Off::ByForce, Some(argv)) => self.run("force_off", argv).await.map(drop),
                (Off::ByForce, None) => Err(Fault::unsupported("no command for cutting the power is configured")
                    .hint("add `force_off = [...]` to the node's configuration")),
            }
        })
    }

    fn watts(&self) -> BoxFuture<'_, Result<Option<f64>, Fault>> {
        Box::pin(async {
            let Some(argv) = &self.config.watts else { return Ok(None) };
            let finished = self.run("watts", argv).await?;
            watts(&finished.stdout)
                .map(Some)
                .ok_or_else(|| unexpected_output("watts", &finished.stdout, "a number of watts, e.g. 87.5"))
        })
    }
}

/// Parses the output of a status command, which must be a single word.
pub(crate) fn supply(output: &[u8]) -> Option<Supply> {
    match word(output)?.to_ascii_lowercase().as_str() {
        "on" => Some(Supply::On),
        "off" => Some(Supply::Off),
        _ => None,
    }
}

/// Parses the output of a watts command.
pub(crate) fn watts(output: &[u8]) -> Option<f64> {
    let word = word(output)?;
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    word.parse().ok().filter(|watts: &f64| is_plain && watts.is_finite())
}

fn word(output: &[u8]) -> Option<&str> {
    std::str::from_utf8(output).ok().map(str::trim)
}

fn unexpected_output(verb: &str, output: &[u8], expected: &str) -> Fault {
    let shown = match quoted(&String::from_utf8_lossy(output)) {
        shown if shown.is_empty() => "nothing".to_owned(),
        shown => format!("\"{shown}\""),
    };
    Fault::confused(format!("the command for `{verb}` printed {shown}"))
        .hint(format!("the command must print only {expected}; other messages belong on standard error"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn status_output_must_be_on_or_off() {
        for (output, expected) in [
            ("on\n", Some(Supply::On)),
            (" Off \r\n", Some(Supply::Off)),
            ("", None),
            ("on\noff", None),
            ("one", None),
            ("power is on", None),
            ("unknown", None),
            ("1", None),
        ] {
            assert_eq!(supply(output.as_bytes()), expected, "{output}");
        }
        assert_eq!(supply(b"on\xff"), None);
    }

    #[test]
    fn watts_are_a_plain_number() {
        assert_eq!(watts(b"87.5\n"), Some(87.5));
        for text in ["", "-3", "1e9", "inf", "NaN", "87 W", "1.2.3", "."] {
            assert_eq!(watts(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn only_on_and_off_are_accepted(text in "(on|off|ON|Of)?[ \n]?\\PC{0,4}") {
            let taken = supply(text.as_bytes());
            let word = text.trim().to_lowercase();
            prop_assert_eq!(taken.is_some(), word == "on" || word == "off");
        }
    }
}
