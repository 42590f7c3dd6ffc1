//! Which cluster: `--head`, then HOSTLER_HEAD, then the configuration file, then the embedded cluster of this user, then that of which this
//! machine is a node, then that of the last login.

use std::path::PathBuf;

use hostler_client::Endpoint;

use crate::cluster::Places;
use crate::exit;
use crate::failure::{During, Failure};
use crate::logins;
use crate::xdg;

/// Where an agent that root runs lets users of its machine in.
pub(crate) const AGENT_SOCKET: &str = "/run/hostler/agent.sock";

/// Every key of the configuration file.
const KEYS: &[&str] = &["head"];

/// Where the chosen head is. `named` is what `--head` or HOSTLER_HEAD says.
pub(crate) fn endpoint(named: Option<&str>) -> Result<Endpoint, Failure> {
    if let Some(text) = named {
        return located(text);
    }
    if let Some(text) = head_in_file()? {
        return located(&text);
    }
    let socket = Places::from_environment()?.socket()?;
    if let Some(socket) = [socket, AGENT_SOCKET.into()].into_iter().find(|socket| socket.exists()) {
        return Ok(Endpoint::Unix(socket));
    }
    logins::last()?.map(|login| login.endpoint()).ok_or_else(no_cluster)
}

/// A head as people name it: by its socket, or by its address if they have logged in there.
fn located(text: &str) -> Result<Endpoint, Failure> {
    if text.starts_with("unix:") || text.starts_with('/') {
        Ok(Endpoint::from_text(text)?)
    } else {
        logins::endpoint(text)
    }
}

fn no_cluster() -> Failure {
    Failure::new("no cluster is running and none is configured")
        .hint("`hostler up` starts a cluster on this machine")
        .hint("`hostler login` with the address of a head uses a cluster elsewhere")
        .hint("`--head unix:/path`, HOSTLER_HEAD or `head = \"unix:/path\"` in ~/.config/hostler/config.toml names another")
        .exiting(exit::UNREACHABLE)
}

fn head_in_file() -> Result<Option<String>, Failure> {
    let Some(path) = config_file() else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&text).map_err(|failure| failure.hint(format!("the file is {}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during(|| format!("cannot read {}", path.display())),
    }
}

fn config_file() -> Option<PathBuf> {
    Some(xdg::directory("XDG_CONFIG_HOME", ".config")?.join("hostler/config.toml"))
}

/// Reads the file's text; `None` when it names no head.
fn parse(text: &str) -> Result<Option<String>, Failure> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Failure::usage("the configuration is not valid TOML").because(&error))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let failure = Failure::usage(format!("the configuration has the unknown key `{key}`"));
        return Err(match closest(key, KEYS) {
            Some(known) => failure.hint(format!("did you mean `{known}`?")),
            None => failure.hint(format!("known keys: {}", KEYS.join(", "))),
        });
    }
    match table.get("head") {
        None => Ok(None),
        Some(toml::Value::String(head)) => Ok(Some(head.clone())),
        Some(other) => Err(Failure::usage(format!("`head` is a {}, not a text", other.type_str()))
            .hint("write it as head = \"unix:/path/to/head.sock\"")),
    }
}

/// The candidate that differs least from `word`, if a slip of the fingers explains the difference.
fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let best = candidates.iter().min_by_key(|candidate| distance(word, candidate))?;
    (distance(word, best) <= best.len().div_ceil(2)).then_some(best)
}

/// How many characters must be added, removed or replaced to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_head_or_none() {
        assert_eq!(parse("head = \"unix:/x\""), Ok(Some("unix:/x".to_owned())));
        assert_eq!(parse("# nothing\n"), Ok(None));
    }

    #[test]
    fn mistakes_are_errors_that_help() {
        let hint = |text: &str| parse(text).expect_err(text).render();
        assert!(hint("haed = \"unix:/x\"").contains("did you mean `head`?"));
        assert!(hint("colour = 3").contains("known keys: head"));
        assert!(hint("head = 7").contains("not a text"));
        assert!(hint("head = ").contains("not valid TOML"));
    }
}
