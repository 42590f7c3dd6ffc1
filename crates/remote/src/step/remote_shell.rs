//! Parses command lines of `ssh` and `rsh`, as used by MPI launchers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options of `ssh` that take a value.
const WITH_VALUE: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";

/// A parsed `ssh` command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteShell {
    /// The destination.
    pub host: String,
    /// The shell command: the words joined by spaces, as `ssh` does.
    pub command: OsString,
    /// Whether standard input is disabled.
    pub no_input: bool,
}

impl RemoteShell {
    /// Parses the arguments of `ssh`. Ignores options for keys, ports and terminals. Also ignores the user name, because a
    /// step always runs as the job's user.
    ///
    /// # Errors
    /// Returns the reason.
    pub fn parse(arguments: &[OsString]) -> Result<Self, &'static str> {
        let mut rest = arguments.iter();
        let mut no_input = false;
        let host = loop {
            let word = rest.next().ok_or("the node is missing")?;
            let bytes = word.as_bytes();
            match bytes.strip_prefix(b"-") {
                None => break word,
                Some(b"-") => break rest.next().ok_or("the node is missing")?,
                Some(flags) => {
                    no_input |= flags.contains(&b'n') && !takes_value(flags);
                    // `-p22` contains its value; `-p 22` has it in the next word.
                    if flags.last().is_some_and(|last| WITH_VALUE.contains(last))
                        && !takes_value(&flags[..flags.len() - 1])
                    {
                        rest.next().ok_or("the value of an option is missing")?;
                    }
                }
            }
        };
        let words: Vec<&[u8]> = rest.map(|word| word.as_bytes()).collect();
        if words.is_empty() {
            return Err("the command is missing");
        }
        let host = host.to_string_lossy();
        let host = host.rsplit_once('@').map_or(&*host, |(_, host)| host).to_owned();
        Ok(Self { host, command: OsString::from_vec(words.join(&b' ')), no_input })
    }

    /// Returns a command line that runs the shell command on a node.
    #[must_use]
    pub fn argv(&self) -> Vec<OsString> {
        let shell = ["/bin/sh", "-c"].map(OsStr::new);
        shell.into_iter().map(OsStr::to_owned).chain([self.command.clone()]).collect()
    }
}

/// Returns whether one of the combined one-letter options in `flags` takes a value that follows in the same word.
fn takes_value(flags: &[u8]) -> bool {
    flags.iter().any(|flag| WITH_VALUE.contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_mpi_launchers_are_parsed() {
        let check = |line: &str, host: &str, command: &str, no_input: bool| {
            let words: Vec<OsString> = line.split('|').map(Into::into).collect();
            let expected = RemoteShell { host: host.into(), command: command.into(), no_input };
            assert_eq!(RemoteShell::parse(&words), Ok(expected), "{line}");
        };
        // Open MPI and PRRTE pass one word. Hydra passes several words, including quotes.
        check("n2|orted -mca ess \"env\"", "n2", "orted -mca ess \"env\"", false);
        check(
            "-x|n2|\"/usr/bin/hydra_pmi_proxy\"|--proxy-id|3",
            "n2",
            "\"/usr/bin/hydra_pmi_proxy\" --proxy-id 3",
            false,
        );
        check("-o|BatchMode=yes|-p22|-nx|-l|me|me@n2|true", "n2", "true", true);
        check("-pn|--|n2|true", "n2", "true", false);
        for line in ["-x", "n2", "-p"] {
            let words: Vec<OsString> = line.split('|').map(Into::into).collect();
            assert!(RemoteShell::parse(&words).is_err(), "{line}");
        }
    }
}
