//! `job.toml`: what to run, with the options of `hostler submit` as keys.

use clap::Parser;
use toml::Table;

use crate::failure::Failure;
use crate::flags::JobFlags;
use crate::keyed;
use crate::toml_file::invalid;

/// What a `job.toml` asks for.
#[derive(Debug, Parser)]
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
        let table: Table = text.parse().map_err(|error| invalid("job.toml is not a TOML file", text, &error))?;
        let order = keyed::options(&table).and_then(keyed::parse);
        order.map_err(|what| Failure::usage(format!("job.toml: {what}")))
    }
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
