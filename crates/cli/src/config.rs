//! Chooses the cluster. In this order: `--head`, HOSTLER_HEAD, the configuration file, this user's embedded cluster,
//! a head that this user or root runs on this machine, the cluster of which this machine is a node, the last login.

use std::path::{Path, PathBuf};

use hostler_client::Endpoint;
use nix::unistd::geteuid;

use crate::cluster::{Places, Record, RunningHead, wait_for_socket};
use crate::daemons::places::{AgentPlaces, HeadPlaces, SYSTEM_SOCKET};
use crate::exit;
use crate::failure::Failure;
use crate::flags::VariableNames;
use crate::logins;
use crate::toml_file::Settings;
use crate::xdg;

/// The socket at which an agent of root serves the users of its machine.
pub const AGENT_SOCKET: &str = "/run/hostler/agent.sock";

/// Where the package keeps the state of this machine's head.
const SYSTEM_HEAD: &str = "/var/lib/hostler/head";

const KEYS: &[&str] = &["head", "env_only"];

/// The endpoint of the chosen head. `named` is the value of `--head` or HOSTLER_HEAD.
pub(crate) fn endpoint(named: Option<&str>) -> Result<Endpoint, Failure> {
    if let Some(text) = chosen(named)? {
        return located(&text);
    }
    let places = Places::from_environment()?;
    xdg::tell();
    if let Some(socket) = own_head(&places, places.socket()?, || Ok(places.head()))? {
        return Ok(Endpoint::Unix(socket));
    }
    not_embedded(&places)?.ok_or_else(no_cluster)
}

/// The head that the user has named: as `named`, or in the configuration file.
fn chosen(named: Option<&str>) -> Result<Option<String>, Failure> {
    // An empty HOSTLER_HEAD counts as unset.
    match named.filter(|text| !text.is_empty()) {
        Some(text) => Ok(Some(text.to_owned())),
        None => head_in_file(),
    }
}

/// The head of commands that name none, if no embedded cluster runs.
fn not_embedded(places: &Places) -> Result<Option<Endpoint>, Failure> {
    if let Some(socket) = own_head(places, places.real_socket()?, || Ok(HeadPlaces::choose(None)?.directory))? {
        return Ok(Some(Endpoint::Unix(socket)));
    }
    if let Some(socket) = [SYSTEM_SOCKET, AGENT_SOCKET].into_iter().find(|socket| Path::new(socket).exists()) {
        return Ok(Some(Endpoint::Unix(socket.into())));
    }
    if let Some(login) = logins::last()? {
        return Ok(Some(login.endpoint()));
    }
    if geteuid().is_root() && hostler_sys::is_locked(&AgentPlaces::choose(None)?.directory) {
        wait_for_socket(Path::new(AGENT_SOCKET), AN_AGENT_RUNS)?;
        return Ok(Some(Endpoint::Unix(AGENT_SOCKET.into())));
    }
    Ok(None)
}

/// A note if commands use another cluster than this user's embedded one, which has just started, or used one before; `None` if there is
/// no other.
pub fn other_cluster_note(named: Option<&str>, places: &Places) -> Result<Option<String>, Failure> {
    let own = Endpoint::Unix(places.socket()?).to_string();
    if let Some(text) = chosen(named)? {
        let is_own = Endpoint::from_text(&text).is_ok_and(|endpoint| endpoint.to_string() == own);
        let note = || {
            format!(
                "commands still use {text}, which --head, HOSTLER_HEAD or config.toml names; `--head {own}` selects this cluster"
            )
        };
        return Ok((!is_own).then(note));
    }
    Ok(not_embedded(places)?.map(|other| {
        format!("commands now use this cluster instead of {other}; `--head {other}` selects that one, `hostler down` goes back")
    }))
}

/// The socket of a head of this user: `usual` if it exists, else that of the head that runs in the directory. A socket that
/// another user may have made counts as missing.
fn own_head(
    places: &Places,
    usual: PathBuf,
    directory: impl FnOnce() -> Result<PathBuf, Failure>,
) -> Result<Option<PathBuf>, Failure> {
    if usual.exists() && places.ensure_ours().is_ok() {
        return Ok(Some(usual));
    }
    let Some(head) = RunningHead::of(&directory()?) else { return Ok(None) };
    head.wait_for_socket()?;
    places.ensure_ours()?;
    Ok(Some(head.socket().to_owned()))
}

const AN_AGENT_RUNS: &str = "an agent runs";

/// Sockets at which agents of this machine may serve its users: agents of this user's embedded cluster, the machine's
/// agent, and an agent that this user runs in the default directory.
pub(crate) fn agent_sockets() -> Result<Vec<PathBuf>, Failure> {
    let places = Places::from_environment()?;
    let nodes = if places.ensure_ours().is_ok() { Record::load(&places.record())?.nodes } else { Vec::new() };
    let embedded = nodes.into_iter().map(|node| places.node_socket(&node.name));
    let own = AgentPlaces::choose(None)?.directory.join("agent.sock");
    Ok(embedded.chain([AGENT_SOCKET.into(), own]).filter(|socket| socket.exists()).collect())
}

/// The endpoint for a socket, or for an address at which the user is logged in.
fn located(text: &str) -> Result<Endpoint, Failure> {
    if text.starts_with("unix:") || text.starts_with('/') {
        let endpoint = Endpoint::from_text(text)?;
        if let Endpoint::Unix(socket) = &endpoint {
            wait_for_daemon_at(socket)?;
        }
        Ok(endpoint)
    } else {
        logins::endpoint(text)
    }
}

/// If the socket is missing and its daemon runs, waits until the daemon binds the socket again. Knows the daemons with
/// the socket in their directory, this user's embedded cluster, and a head in the default directory.
fn wait_for_daemon_at(socket: &Path) -> Result<(), Failure> {
    let Some(directory) = socket.parent().filter(|_| !socket.exists()) else { return Ok(()) };
    let places = Places::from_environment()?;
    let heads = [directory.to_owned(), places.head(), HeadPlaces::choose(None)?.directory];
    if let Some(head) = heads.iter().filter_map(|head| RunningHead::of(head)).find(|head| head.socket() == socket) {
        return head.wait_for_socket();
    }
    let nodes = Record::load(&places.record())?.nodes;
    let is_agents = hostler_sys::is_locked(directory)
        || nodes.iter().any(|node| node.is_on() && places.node_socket(&node.name) == socket);
    if is_agents { wait_for_socket(socket, AN_AGENT_RUNS) } else { Ok(()) }
}

fn no_cluster() -> Failure {
    let system = Path::new(SYSTEM_HEAD);
    if system.exists() {
        return Failure::new(format!("the head of this machine, in {}, is not running", system.display()))
            .hint("`systemctl start hostler-head` or `hostler head run` starts it; `journalctl -u hostler-head` says why it stopped")
            .hint("`--head ADDRESS` selects another cluster; `hostler up` starts one on this machine")
            .exiting(exit::UNREACHABLE);
    }
    Failure::new("no cluster is running and none is configured")
        .hint("`hostler up` starts a cluster on this machine; `hostler head init` sets up a head for several machines")
        .hint("`hostler login ADDRESS` logs in to a remote cluster")
        .hint("`--head unix:/path`, HOSTLER_HEAD or `head = \"unix:/path\"` in ~/.config/hostler/config.toml selects a cluster")
        .exiting(exit::UNREACHABLE)
}

fn head_in_file() -> Result<Option<String>, Failure> {
    in_file(|settings| Ok(settings.text("head", "\"unix:/path/to/head.sock\"")?.map(str::to_owned)))
}

/// The variables that commands pass on, if the configuration file limits them.
pub(crate) fn env_only() -> Result<Option<VariableNames>, Failure> {
    in_file(names_in)
}

fn names_in(settings: &Settings) -> Result<Option<VariableNames>, Failure> {
    let example = "[\"PATH\", \"HOME\", \"LC_*\"]";
    let names: Option<Vec<String>> = settings.structure("env_only", example)?;
    names.map(|names| names.join(",").parse().map_err(Failure::from)).transpose()
}

/// Reads a value from the configuration file, if the file exists.
fn in_file<T>(read: impl FnOnce(&Settings) -> Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    let Some(path) = config_file() else { return Ok(None) };
    let Some(settings) = Settings::read(&path, KEYS)? else { return Ok(None) };
    read(&settings).map_err(|failure| failure.hint(format!("the file is {}", path.display())))
}

fn config_file() -> Option<PathBuf> {
    Some(xdg::directory("XDG_CONFIG_HOME", ".config")?.join("hostler/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<String>, Failure> {
        Ok(Settings::parse(text, KEYS)?.text("head", "\"unix:/path\"")?.map(str::to_owned))
    }

    #[test]
    fn head_is_optional() {
        assert_eq!(parse("head = \"unix:/x\""), Ok(Some("unix:/x".to_owned())));
        assert_eq!(parse("# nothing\n"), Ok(None));
    }

    #[test]
    fn env_only_is_optional_and_validated() {
        let names = |text: &str| names_in(&Settings::parse(text, KEYS)?);
        assert_eq!(names("head = \"unix:/x\""), Ok(None));
        assert_eq!(names("env_only = [\"PATH\", \"LC_*\"]"), Ok(Some("PATH,LC_*".parse().expect("names"))));
        assert_eq!(names("env_only = []"), Ok(Some("".parse().expect("none"))));
        assert!(names("env_only = \"PATH\"").is_err() && names("env_only = [\"A=b\"]").is_err());
    }

    #[test]
    fn mistakes_give_errors_with_hints() {
        let hint = |text: &str| parse(text).expect_err(text).render();
        assert!(hint("haed = \"unix:/x\"").contains("did you mean `head`?"));
        assert!(hint("colour = 3").contains("known keys: head, env_only"));
        assert!(hint("head = 7").contains("not a string"));
        assert!(hint("head = ").contains("not valid TOML"));
        assert!(hint("# “a”\nhead = “unix:/x”\n").contains("`“` is a typographic quote"));
        assert!(!hint("# “a”\nhead = x\n").contains("typographic"));
    }
}
