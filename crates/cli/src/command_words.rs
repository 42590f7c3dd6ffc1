//! Checks the words of a command before it runs elsewhere.

use std::ffi::OsStr;
use std::path::Path;

use crate::context::Context;
use crate::failure::Failure;

/// Characters that only a shell interprets.
const OF_SHELLS: &str = "$|;&<>*`";

/// Refuses a command that is an option which `hostler NAME` does not have. Says so if the command looks like a line for
/// a shell.
pub(crate) fn check_command<Word: AsRef<OsStr>>(
    context: &Context,
    name: &str,
    command: &[Word],
) -> Result<(), Failure> {
    if let Some(option) = command.first().and_then(|word| word.as_ref().to_str()).filter(|word| is_option(word)) {
        return Err(Failure::usage(format!("`hostler {name}` has no option `{option}`"))
            .hint(format!("options come before the command; `hostler {name} --help` lists them")));
    }
    if let [word] = command
        && let Some(line) = shell_line(word.as_ref())
    {
        context.output.say(&format!(
            "note: `{line}` is taken as the name of a program; for a shell command, write sh -c {}",
            quoted(line)
        ));
    }
    Ok(())
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// The word, if it is a line for a shell and no file has this name.
fn shell_line(word: &OsStr) -> Option<&str> {
    let text = word.to_str()?.trim();
    let needs_shell = text.contains(|c: char| c.is_whitespace() || OF_SHELLS.contains(c));
    (needs_shell && !Path::new(word).exists()).then_some(text)
}

fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Output};

    fn check(name: &str, command: &[&str]) -> Result<(), Failure> {
        let context = Context { output: Output::new(Format::Quiet), head: None, wait_for_head: None };
        check_command(&context, name, command)
    }

    #[test]
    fn unknown_option_is_not_taken_as_the_command() {
        for option in ["--time", "-x", "--nodes=2"] {
            let said = check("exec", &[option, "5", "true"]).expect_err(option).render();
            assert!(said.contains(&format!("`hostler exec` has no option `{option}`")), "{said}");
        }
        for command in [&["true"][..], &["-"], &["grep", "-x"], &[]] {
            assert_eq!(check("run", command), Ok(()), "{command:?}");
        }
    }

    #[test]
    fn lines_for_a_shell_are_recognised() {
        for line in ["echo $HOME", "ls -l", "a|b", "sleep 1; date", "make&", "cat<x", "ls *.txt", "echo `date`"] {
            assert_eq!(shell_line(OsStr::new(line)), Some(line));
        }
        for word in ["true", "/usr/bin/env", "./a.out", "größe", "a=b"] {
            assert_eq!(shell_line(OsStr::new(word)), None, "{word}");
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let program = folder.path().join("my program");
        std::fs::write(&program, "").expect("ours");
        assert_eq!(shell_line(program.as_os_str()), None, "a program with a space in its name");
        assert_eq!(quoted("echo 'a b'"), r"'echo '\''a b'\'''");
    }
}
