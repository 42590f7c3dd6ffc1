//! Command lines whose options are keys of a table: `job.toml` and the lines of `hostler submit -`. Every option of a command is a
//! key, with the same checks.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser};
use toml::{Table, Value};

use crate::flags::JobFlags;

/// Parses words as the command line of `P`.
///
/// # Errors
/// Names the first mistake, in one line.
pub(crate) fn parse<P: Parser>(words: Vec<OsString>) -> Result<P, String> {
    let mut definition = P::command().no_binary_name(true).disable_help_flag(true);
    let parsed = definition.try_get_matches_from_mut(words).and_then(|mut it| P::from_arg_matches_mut(&mut it));
    parsed.map_err(|error| {
        let text = error.render().to_string();
        // The rest is about a command line.
        let (what, _) = text.split_once("\n\nUsage:").unwrap_or((&text, ""));
        let lines = what.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"));
        lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ").trim_start_matches("error: ").to_owned()
    })
}

/// The options that the entries of a table stand for.
///
/// # Errors
/// If a value is nested too deeply.
pub(crate) fn options(table: &Table) -> Result<Vec<OsString>, String> {
    let mut options = Vec::new();
    for (key, value) in table {
        let option = option_of(key);
        match value {
            Value::Boolean(true) => options.push(option.into()),
            Value::Boolean(false) => {}
            value => {
                options.extend(words(key, value)?.into_iter().map(|word| OsString::from(format!("{option}={word}"))));
            }
        }
    }
    Ok(options)
}

/// The values of a key: those of a list, `NAME=VALUE` for each entry of a table, or one.
///
/// # Errors
/// If one of several values is itself a list or a table.
pub(crate) fn words(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let plain = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) | Value::Table(_) => Err(format!("the value of {key} is nested too deeply")),
        other => Ok(other.to_string()),
    };
    match value {
        Value::Array(values) => values.iter().map(plain).collect(),
        Value::Table(pairs) => pairs.iter().map(|(name, value)| Ok(format!("{name}={}", plain(value)?))).collect(),
        value => Ok(vec![plain(value)?]),
    }
}

/// The options of a job on a command line, in the words of the caller. They are defaults for other command lines. Comes before the
/// [`JobFlags`] of the same command, which take the values out of what was parsed.
#[derive(Debug, Clone)]
pub(crate) struct Given(Vec<Word>);

#[derive(Debug, Clone)]
struct Word {
    text: OsString,
    /// Whether the option may be given several times.
    repeats: bool,
}

impl Given {
    /// The options for a command line with the options of `table`, whose words are `own`: a value of its own replaces the given
    /// one. Values such as `NAME=VALUE` replace only those of the same name.
    pub(crate) fn beside(&self, table: &Table, own: &[OsString]) -> Vec<OsString> {
        let holds = |given: &&Word| {
            let (option, name, value) = parts(&given.text);
            let is_same = |own: &&OsString| parts(own).0 == option;
            let is_named = table.keys().any(|key| option_of(key).as_bytes() == option);
            let has_names = value.is_some() || own.iter().filter(is_same).any(|own| parts(own).2.is_some());
            let has_name = own.iter().filter(is_same).any(|own| parts(own).1 == name);
            !is_named || given.repeats && has_names && !has_name
        };
        self.0.iter().filter(holds).map(|given| &given.text).chain(own).cloned().collect()
    }
}

/// Splits `--option=NAME=VALUE`, of which the value or both may be absent.
fn parts(word: &OsString) -> (&[u8], Option<&[u8]>, Option<&[u8]>) {
    let mut parts = word.as_encoded_bytes().splitn(3, |byte| *byte == b'=');
    (parts.next().unwrap_or_default(), parts.next(), parts.next())
}

fn option_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let known = JobFlags::augment_args(Command::new("job"));
        let mut words = Vec::new();
        for option in known.get_arguments() {
            let id = option.get_id().as_str();
            let Some(long) = option.get_long() else { continue };
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            if !option.get_action().takes_values() {
                words.push(Word { text: format!("--{long}").into(), repeats: false });
                continue;
            }
            let repeats = matches!(option.get_action(), ArgAction::Append);
            for value in matches.get_raw(id).into_iter().flatten() {
                let mut text = OsString::from(format!("--{long}="));
                text.push(value);
                words.push(Word { text, repeats });
            }
        }
        Ok(Self(words))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Beside the options themselves, which must be arguments of the same command.
impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_line_replaces_that_of_the_command_line_and_variables_those_of_the_same_name() {
        let word = |text: &str, repeats| Word { text: text.into(), repeats };
        let given = Given(vec![word("--env=TOKEN", true), word("--env=A=1", true), word("--name=a=b", false)]);
        let beside = |line: &str| {
            let table: Table = line.parse().expect("a table");
            let words = given.beside(&table, &options(&table).expect("plain values"));
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(beside("env = { A = 2 }"), "--env=TOKEN --name=a=b --env=A=2");
        assert_eq!(beside("env = { TOKEN = 3 }\nname = 'c'"), "--env=A=1 --env=TOKEN=3 --name=c");
    }
}
