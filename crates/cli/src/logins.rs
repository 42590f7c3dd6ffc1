//! Logins of this user at remote clusters. Each head's address has a private file with the fingerprint of the cluster's
//! authority and the token of the last login. A logout removes the token and keeps the fingerprint.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use hostler_client::Endpoint;
use hostler_client::Token;
use hostler_model::Digest;
use hostler_proto::join::DEFAULT_PORT;
use serde::{Deserialize, Serialize};

use crate::exit;
use crate::failure::{During, Failure};
use crate::xdg;

/// Name of the file with the address of the last login.
const LAST: &str = "last";

/// The stored login of a remote cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Login {
    /// Host and port of the head.
    pub(crate) address: String,
    pub(crate) authority: Digest,
    /// Name of the user in the cluster.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// Login token. A secret.
    #[serde(default)]
    pub(crate) token: Option<String>,
}

/// Adds the default port if the address has none.
pub(crate) fn with_port(text: &str) -> Result<String, Failure> {
    let wrong =
        || Failure::usage(format!("`{text}` is not a head's address")).hint("e.g. head.example.org or 192.0.2.7:7760");
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
    if text.is_empty() || text.len() > 255 || !text.chars().all(is_host) || text.starts_with(['-', '.', ':']) {
        return Err(wrong());
    }
    let behind_host = text.rsplit_once(']').map_or(text, |(_, rest)| rest);
    match behind_host.matches(':').count() {
        0 => Ok(format!("{text}:{DEFAULT_PORT}")),
        1 => {
            let (_, port) = text.rsplit_once(':').ok_or_else(wrong)?;
            port.parse::<u16>().map(|_| text.to_owned()).map_err(|_| wrong())
        }
        _ => Err(wrong().hint("put an IPv6 address in brackets: [2001:db8::1]:7760")),
    }
}

/// The endpoint of a head at which this user is logged in.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, Failure> {
    let address = with_port(text)?;
    let login = find(&address)?.filter(|login| login.token.is_some()).ok_or_else(|| {
        Failure::new(format!("you are not logged in at {address}"))
            .hint(format!("run `hostler login {address}`"))
            .exiting(exit::REFUSED)
    })?;
    Ok(login.endpoint())
}

/// The last login, if it still has a token.
pub(crate) fn last() -> Result<Option<Login>, Failure> {
    let Some(path) = directory().map(|directory| directory.join(LAST)) else { return Ok(None) };
    match fs::read_to_string(&path) {
        Ok(address) => Ok(find(address.trim())?.filter(|login| login.token.is_some())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).during(|| format!("cannot read {}", path.display())),
    }
}

/// The stored login for `address`.
pub(crate) fn find(address: &str) -> Result<Option<Login>, Failure> {
    let Some(path) = path_of(address) else { return Ok(None) };
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).during(|| format!("cannot read {}", path.display())),
    };
    let login: Login = serde_json::from_slice(&text).during(|| format!("{} is damaged", path.display()))?;
    Ok(Some(login).filter(|login| login.address == address))
}

impl Login {
    /// Returns the endpoint of the login's head, with the login token if there is one.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::remote_head(&self.address, self.authority, self.token.clone().map(Token))
    }

    pub(crate) fn store(&self) -> Result<(), Failure> {
        let home = || Failure::new("there is no directory to store the login in").hint("set HOME or XDG_CONFIG_HOME");
        let path = path_of(&self.address).ok_or_else(home)?;
        xdg::tell();
        let text = serde_json::to_vec_pretty(self).expect("plain data");
        write(&path, &text)?;
        if self.token.is_some() {
            write(&path.with_file_name(LAST), self.address.as_bytes())?;
        }
        Ok(())
    }
}

fn directory() -> Option<PathBuf> {
    Some(xdg::directory("XDG_CONFIG_HOME", ".config")?.join("hostler/logins"))
}

fn path_of(address: &str) -> Option<PathBuf> {
    let name: String =
        address.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' }).collect();
    Some(directory()?.join(format!("{name}.json")))
}

/// Writes a file atomically, readable only by its owner from the start.
fn write(path: &std::path::Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        hostler_sys::replace_file(path, bytes, 0o600)
    };
    write().during(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_port_is_added_and_invalid_addresses_are_rejected() {
        for (text, expected) in [
            ("head", "head:7760"),
            ("192.0.2.7:1234", "192.0.2.7:1234"),
            ("[2001:db8::1]", "[2001:db8::1]:7760"),
            ("[2001:db8::1]:5", "[2001:db8::1]:5"),
        ] {
            assert_eq!(with_port(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "2001:db8::1", "head:", "head:99999", "-x", "a b", "../x", "https://head"] {
            assert!(with_port(text).is_err(), "{text}");
        }
    }
}
