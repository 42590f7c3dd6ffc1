//! Checks the words of a command before it runs elsewhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

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
    let is_name = |name: &str| {
        name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let first = command.first().and_then(|word| word.as_ref().to_str());
    if let Some((variable, _)) = first.and_then(|word| word.split_once('=')).filter(|(variable, _)| is_name(variable)) {
        context.output.say(&format!(
            "note: `{variable}=…` is read as a program; to set a variable, write `env {variable}=… PROGRAM`"
        ));
    }
    // An absolute path may lead to a disk that does not answer, and only the node needs the program.
    let program = command.first().filter(|word| Path::new(word).is_relative());
    if let Some(note) = program.and_then(|word| unfit_file(name, word.as_ref())) {
        context.output.say(&note);
    }
    Ok(())
}

/// A note about a program that is a file here but will not start: it is not in PATH, or not executable.
fn unfit_file(name: &str, word: &OsStr) -> Option<String> {
    let path = Path::new(word);
    let is_executable = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if !path.is_file() {
        return None;
    }
    let word = word.to_string_lossy();
    if is_executable(path) {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_in_path = || std::env::split_paths(&paths).any(|directory| is_executable(&directory.join(path)));
        let is_found = word.contains('/') || is_in_path();
        return (!is_found)
            .then(|| format!("note: `{word}` is looked up in PATH; write ./{word} for the file in this directory"));
    }
    let begins_with_interpreter = || {
        let mut start = [0; 2];
        File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok_and(|()| start == *b"#!")
    };
    let script = match name == "run" && begins_with_interpreter() {
        true => format!(", or `hostler run --script {word}`"),
        false => String::new(),
    };
    let then = if word.contains('/') { String::new() } else { format!(" and then ./{word}") };
    Some(format!("note: the file `{word}` is not executable; write `chmod +x {word}`{then}{script}"))
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
    fn files_that_will_not_start_are_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let script = folder.path().join("job.sh");
        std::fs::write(&script, "#!/bin/sh\n").expect("ours");
        let note = unfit_file("run", script.as_os_str()).expect("not executable");
        assert!(note.contains("`chmod +x ") && note.contains("hostler run --script "), "{note}");
        assert!(!unfit_file("exec", script.as_os_str()).expect("not executable").contains("--script"));
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
        assert_eq!(unfit_file("run", script.as_os_str()), None);
        assert_eq!(unfit_file("run", OsStr::new("true")), None);
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
