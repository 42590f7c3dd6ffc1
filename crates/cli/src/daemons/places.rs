//! Paths of a real head and a real node: system directories for root, XDG directories for other users.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::cluster::Places;
use crate::failure::Failure;
use crate::here::absolute;
use crate::xdg;

/// The socket of a head that root runs.
pub(crate) const SYSTEM_SOCKET: &str = "/run/hostler/head.sock";

const SYSTEM_SETTINGS: &str = "/etc/hostler";
const SYSTEM_STATE: &str = "/var/lib/hostler";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadPlaces {
    pub directory: PathBuf,
    pub settings: PathBuf,
    /// Socket for users.
    pub socket: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlaces {
    pub directory: PathBuf,
    pub settings: PathBuf,
}

impl HeadPlaces {
    /// Returns paths in `directory` if one is given, else the default paths.
    pub fn choose(directory: Option<&Path>) -> Result<Self, Failure> {
        match directory.map(absolute).transpose()? {
            Some(directory) => {
                Ok(Self { settings: directory.join("head.toml"), socket: directory.join("head.sock"), directory })
            }
            None if geteuid().is_root() => Ok(Self {
                directory: Path::new(SYSTEM_STATE).join("head"),
                settings: Path::new(SYSTEM_SETTINGS).join("head.toml"),
                socket: SYSTEM_SOCKET.into(),
            }),
            None => {
                let places = Places::from_environment()?;
                Ok(Self {
                    directory: places.state().join("cluster-head"),
                    settings: user_settings()?.join("head.toml"),
                    socket: places.real_socket()?,
                })
            }
        }
    }
}

impl AgentPlaces {
    /// Returns paths in `directory` if one is given, else the default paths.
    pub fn choose(directory: Option<&Path>) -> Result<Self, Failure> {
        match directory.map(absolute).transpose()? {
            Some(directory) => Ok(Self { settings: directory.join("agent.toml"), directory }),
            None if geteuid().is_root() => Ok(Self {
                directory: Path::new(SYSTEM_STATE).join("agent"),
                settings: Path::new(SYSTEM_SETTINGS).join("agent.toml"),
            }),
            None => Ok(Self {
                directory: Places::from_environment()?.state().join("agent"),
                settings: user_settings()?.join("agent.toml"),
            }),
        }
    }
}

fn user_settings() -> Result<PathBuf, Failure> {
    let directory = xdg::directory("XDG_CONFIG_HOME", ".config");
    let directory = directory.ok_or_else(|| Failure::new("there is no directory for settings: HOME is not set"))?;
    Ok(directory.join("hostler"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_directory_contains_all_files() {
        let head = HeadPlaces::choose(Some(Path::new("/srv/head"))).expect("named");
        assert_eq!(
            (head.settings.to_str(), head.socket.to_str()),
            (Some("/srv/head/head.toml"), Some("/srv/head/head.sock"))
        );
        let relative = HeadPlaces::choose(Some(Path::new("head"))).expect("named");
        assert!(relative.directory.is_absolute() && relative.settings.is_absolute() && relative.socket.is_absolute());
        let agent = AgentPlaces::choose(Some(Path::new("/srv/node"))).expect("named");
        assert_eq!(agent.settings.to_str(), Some("/srv/node/agent.toml"));
    }
}
