//! Selects the tool to run by the name of the executable.

use std::ffi::OsString;
use std::process::ExitCode;

use hostler_cli::tools::{self, LIGHT, Tool};

use crate::dsh::dshd;
use crate::{args, cmdaemon};

/// The tools that only `hostler` contains.
const FULL: &[Tool] = &[
    Tool { name: "hostler", main: args::main, definition: Some(args::definition) },
    Tool { name: "cmdaemon", main: cmdaemon::main, definition: Some(cmdaemon::definition) },
    Tool { name: dshd::NAME, main: dshd::main, definition: Some(dshd::definition) },
];

/// All tools; `hostler` is the first.
pub(crate) fn tools() -> impl Iterator<Item = &'static Tool> {
    FULL.iter().chain(LIGHT)
}

/// Runs the tool that `args[0]` names. Any other name means `hostler`, so a renamed copy still works.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    tools::run(tools(), args, args::main)
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    use clap::{Arg, Command};
    use hostler_cli::codes::CodeArgument;

    use super::*;

    #[test]
    fn name_of_the_executable_selects_the_tool() {
        const TOOLS: [Tool; 2] = [
            Tool { name: "one", main: |_| ExitCode::from(1), definition: None },
            Tool { name: "two", main: |_| ExitCode::from(2), definition: None },
        ];
        let code = |args: &[&str]| {
            let args = args.iter().map(OsString::from).collect();
            format!("{:?}", tools::run(TOOLS.iter(), args, |_| ExitCode::from(3)))
        };
        let expected = |code| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(&["/usr/local/bin/two", "one"]), expected(2));
        assert_eq!(code(&["one"]), expected(1));
        for other in [&["./target/debug/two-1.0"][..], &[""], &[]] {
            assert_eq!(code(other), expected(3), "{other:?}");
        }
    }

    #[test]
    fn names_of_tools_are_unique() {
        let names: Vec<&str> = tools().map(|tool| tool.name).collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), unique.len(), "{names:?}");
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

    const SECRETS: [&str; 6] = ["code", "secret", "token", "password", "passphrase", "credential"];

    /// Whether the name or the summary of an argument with a value announces a secret.
    fn announces_secret(argument: &Arg) -> bool {
        let names = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
        let help = argument.get_help().map(ToString::to_string);
        let help = help.and_then(|help| Some(help.split("[default").next()?.to_owned()));
        let mut text = names.chain(argument.get_long().map(str::to_owned)).chain(help).collect::<Vec<_>>().join(" ");
        text.make_ascii_lowercase();
        let text = text.replace("exit code", "");
        argument.get_action().takes_values() && SECRETS.iter().any(|secret| text.contains(secret))
    }

    /// The arguments of a command and its subcommands that announce a secret, and whether their type keeps it off the command
    /// line.
    fn find(command: &Command, path: &str, found: &mut BTreeMap<String, bool>) {
        let path = format!("{path} {}", command.get_name());
        for argument in command.get_arguments().filter(|argument| announces_secret(argument)) {
            let parser = argument.get_value_parser().type_id();
            let is_safe = parser == TypeId::of::<PathBuf>() || parser == TypeId::of::<CodeArgument>();
            found.insert(format!("{path} {}", argument.get_id()).trim().to_owned(), is_safe);
        }
        command.get_subcommands().for_each(|command| find(command, &path, found));
    }

    #[test]
    fn no_command_takes_a_secret_as_an_argument() {
        let mut found = BTreeMap::new();
        for definition in tools().filter_map(|tool| tool.definition) {
            find(&definition(), "", &mut found);
        }
        // Codes from standard input, and a file with one.
        for expected in ["hostler login target", "hostler agent join code", "hostler agent run join_file"] {
            assert!(found.contains_key(expected), "{expected} is not among {found:?}");
        }
        found.retain(|_, is_safe| !*is_safe);
        assert!(found.is_empty(), "read these secrets from a file or from standard input: {found:?}");
    }
}
