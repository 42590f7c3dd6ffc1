//! `job.toml`: what to run, with the options of `hostler submit` as keys.

use std::ffi::OsString;

use clap::{FromArgMatches, Parser};
use toml::Value;

use crate::failure::Failure;
use crate::flags::JobFlags;
use crate::toml_file::invalid;

/// What a `job.toml` asks for. Parsed as a command line, so that every option of a job is a key here, with the same checks.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(super) struct Order {
    /// Program to run: a .py file or executable in the folder, or a command
    #[arg(long)]
    pub(super) entrypoint: String,

    /// Arguments of the program
    #[arg(long, allow_hyphen_values = true)]
    pub(super) args: Vec<String>,

    #[command(flatten)]
    pub(super) flags: JobFlags,
}

impl Order {
    /// Parses the text of a `job.toml`.
    ///
    /// # Errors
    /// Names the first mistake.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let table: toml::Table = text.parse().map_err(|error| invalid("job.toml is not a TOML file", text, &error))?;
        let mut options = Vec::new();
        for (key, value) in &table {
            add(&mut options, key, value)?;
        }
        let mut definition = <Self as clap::CommandFactory>::command();
        let parsed =
            definition.try_get_matches_from_mut(options).and_then(|mut it| Self::from_arg_matches_mut(&mut it));
        parsed.map_err(|error| {
            let text = error.render().to_string();
            // The rest is about a command line.
            let what = text.split("\n\nUsage:").next().unwrap_or(&text).trim().trim_start_matches("error: ");
            Failure::usage(format!("job.toml: {what}"))
        })
    }
}

/// Adds the option that a key stands for.
fn add(options: &mut Vec<OsString>, key: &str, value: &Value) -> Result<(), Failure> {
    let option = format!("--{}", key.replace('_', "-"));
    let plain = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) | Value::Table(_) => {
            Err(Failure::usage(format!("job.toml: the value of {key} is nested too deeply")))
        }
        other => Ok(other.to_string()),
    };
    let values = match value {
        Value::Boolean(true) => {
            options.push(option.into());
            return Ok(());
        }
        Value::Boolean(false) => return Ok(()),
        Value::Array(values) => values.iter().map(plain).collect::<Result<Vec<_>, _>>()?,
        Value::Table(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| Ok(format!("{name}={}", plain(value)?)));
            pairs.collect::<Result<Vec<_>, Failure>>()?
        }
        value => vec![plain(value)?],
    };
    options.extend(values.iter().map(|value| format!("{option}={value}").into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use hostler_model::Environment;

    use super::*;

    #[test]
    fn keys_are_options_of_submit() {
        let text = "entrypoint = 'main.py'\nargs = ['--epochs', 3]\ncpus = 2\nmemory = '1G'\ntime = '2h'\nrequeue = false\n\
                    [env]\nSEED = 7\n";
        let order = Order::parse(text).expect("valid");
        let args = ["--epochs", "3"].map(str::to_owned);
        assert_eq!((order.entrypoint.as_str(), order.args.as_slice()), ("main.py", args.as_slice()));
        let program = hostler_model::Work::Command { argv: args.into(), directory: "/".into(), script: None };
        let spec = order.flags.spec(program, "folder", Environment::new()).expect("valid");
        assert_eq!((spec.request.cpus, spec.request.memory_bytes), (Some(2), Some(1 << 30)));
    }

    #[test]
    fn mistakes_are_named_with_what_was_meant() {
        for (text, named) in [
            ("entrypoint = ", "job.toml is not a TOML file"),
            ("cpus = 2", "--entrypoint"),
            ("entrypoint = 'a'\ncpu = 2", "'--cpus'"),
            ("entrypoint = 'a'\ncpus = 'many'", "many"),
            ("entrypoint = 'a'\nfetch = true", "--fetch"),
            ("entrypoint = 'a'\nenv = [[1]]", "the value of env is nested too deeply"),
        ] {
            let said = Order::parse(text).expect_err("a mistake").render();
            assert!(said.contains(named) && !said.contains("Usage"), "{text}: {said}");
        }
    }
}
