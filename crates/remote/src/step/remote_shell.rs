//! Parses command lines of `ssh` and `rsh`, as used by MPI launchers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options of `ssh` that take a value.
const WITH_VALUE: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";

/// Options of `ssh` that a command on a node cannot have: forwarding, and other hosts on the way.
const UNSUPPORTED: &[u8] = b"DJLRWw";

/// A parsed `ssh` command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteShell {
    /// The destination.
    pub host: String,
    /// The user of the destination, if named.
    pub user: Option<String>,
    /// The shell command: the words joined by spaces, as `ssh` does.
    pub command: OsString,
    /// Whether standard input is disabled.
    pub no_input: bool,
}

impl RemoteShell {
    /// Parses the arguments of `ssh`. Ignores options for keys, ports and terminals.
    ///
    /// # Errors
    /// Returns the reason.
    pub fn parse(arguments: &[OsString]) -> Result<Self, &'static str> {
        let mut rest = arguments.iter();
        let (mut no_input, mut user) = (false, None);
        let host = loop {
            let word = rest.next().ok_or("the node is missing")?;
            let bytes = word.as_bytes();
            match bytes.strip_prefix(b"-") {
                None => break word,
                Some(b"-") => break rest.next().ok_or("the node is missing")?,
                Some(flags) => {
                    // `-p22` contains its value; `-p 22` has it in the next word.
                    let with_value = flags.iter().position(|flag| WITH_VALUE.contains(flag));
                    no_input |= flags[..with_value.unwrap_or(flags.len())].contains(&b'n');
                    let Some(at) = with_value else { continue };
                    let value = match &flags[at + 1..] {
                        b"" => rest.next().ok_or("the value of an option is missing")?.as_bytes(),
                        value => value,
                    };
                    if UNSUPPORTED.contains(&flags[at]) {
                        return Err("-D, -J, -L, -R, -W and -w are not supported; `hostler forward` forwards ports");
                    }
                    if flags[at] == b'l' {
                        user = Some(String::from_utf8_lossy(value).into_owned());
                    }
                }
            }
        };
        let words: Vec<&[u8]> = rest.map(|word| word.as_bytes()).collect();
        if words.is_empty() {
            return Err("the command is missing");
        }
        let host = host.to_string_lossy();
        if let Some((name, _)) = host.rsplit_once('@') {
            user.get_or_insert_with(|| name.to_owned());
        }
        let host = host.rsplit_once('@').map_or(&*host, |(_, host)| host).to_owned();
        Ok(Self { host, user, command: OsString::from_vec(words.join(&b' ')), no_input })
    }

    /// Returns a command line that runs the shell command on a node.
    #[must_use]
    pub fn argv(&self) -> Vec<OsString> {
        let shell = ["/bin/sh", "-c"].map(OsStr::new);
        shell.into_iter().map(OsStr::to_owned).chain([self.command.clone()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_mpi_launchers_are_parsed() {
        let check = |line: &str, host: &str, command: &str, no_input: bool| {
            let words: Vec<OsString> = line.split('|').map(Into::into).collect();
            let user = line.contains("me").then(|| "me".to_owned());
            let expected = RemoteShell { host: host.into(), user, command: command.into(), no_input };
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
        check("-o|BatchMode=yes|-p22|-nx|-l|me|you@n2|true", "n2", "true", true);
        check("-xlme|n2|true", "n2", "true", false);
        check("-pn|--|n2|true", "n2", "true", false);
        for line in ["-x", "n2", "-p", "-L|80:a:80|n2|true", "-Ja|n2|true"] {
            let words: Vec<OsString> = line.split('|').map(Into::into).collect();
            assert!(RemoteShell::parse(&words).is_err(), "{line}");
        }
    }
}
