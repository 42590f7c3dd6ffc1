//! The settings files `head.toml` and `agent.toml`.

use std::fs::{File, Permissions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hostler_agent::{ImageSettings, NoiseLimits, Policy, QuietSettings, SandboxSettings, StatusPorts, Weight, Weights};
use hostler_cli::failure::{During, Failure};
use hostler_cli::flags::{GpuCap, Memory, TimeLimit};
use hostler_cli::toml_file::Settings;
use hostler_model::{Counted, CpuSet, Engine, Feature, ParseError};
use hostler_proto::join::{Address, DEFAULT_PORT};

/// All keys of `head.toml`.
const HEAD_KEYS: &[&str] = &[
    "directory",
    "socket",
    "listen",
    "advertise",
    "results_cap",
    "certificate_life",
    "tls_cert",
    "tls_key",
    "http",
    "site",
    "proxy_user",
];

/// All keys of `agent.toml`.
const AGENT_KEYS: &[&str] = &[
    "cpus",
    "memory",
    "gpus",
    "environments",
    "environment",
    "features",
    "engines",
    "resources",
    "gossip",
    "shared_machine",
    "root_jobs",
    "install_python",
    "sandbox",
    "images",
    "measurement",
    "quiet_machine",
    "accounts",
    "homes",
    "remote_commands",
    "load_weight",
    "memory_weight",
    "status",
    "dsh",
    "metrics",
    "metrics_public",
];

/// All keys of the table `status`.
const STATUS_KEYS: &[&str] = &["table", "best"];

/// Example of the table `environment`.
const UV: &str = "{ uv = \"/opt/uv\" }";

/// All keys of the table `environment`.
const ENVIRONMENT_KEYS: &[&str] = &["uv"];

/// All keys of the table `sandbox`.
const SANDBOX_KEYS: &[&str] = &["read_only", "performance_counters"];

/// Default address at which a head listens: all IPv4 addresses, because nodes are on other machines.
pub(crate) const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PORT);

/// The content of `head.toml`; absent keys have defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeadSettings {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) advertise: Vec<Address>,
    pub(crate) results_cap: Option<Memory>,
    pub(crate) certificate_life: Option<TimeLimit>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) site: Option<SiteOrigin>,
    pub(crate) proxy_user: Option<String>,
}

/// The origin of the dashboard in browsers, such as `https://cluster.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteOrigin(pub(crate) String);

impl FromStr for SiteOrigin {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "an address without a path, such as https://cluster.example.org");
        let authority = text.strip_prefix("https://").ok_or_else(error)?.trim_end_matches('/').to_ascii_lowercase();
        let Address { host, port } = authority.parse().map_err(|_| error())?;
        // Browsers leave out the usual port.
        let port = port.filter(|port| *port != 443).map(|port| format!(":{port}")).unwrap_or_default();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Ok(Self(format!("https://{host}{port}")))
    }
}

/// The content of `agent.toml`: limits and descriptions of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentSettings {
    /// CPUs that the node may offer.
    pub(crate) cpus: Option<CpuSet>,
    /// Memory that the node may offer.
    pub(crate) memory: Option<Memory>,
    /// GPUs that the node may offer.
    pub(crate) gpus: Option<GpuCap>,
    pub(crate) environments: Option<PathBuf>,
    /// Additional features of the machine.
    pub(crate) features: Vec<Feature>,
    /// Container engines that jobs may use.
    pub(crate) engines: Vec<Engine>,
    pub(crate) resources: Counted,
    pub(crate) gossip: Option<GossipAt>,
    /// Whether the node takes part in remote commands [default: true].
    pub(crate) remote_commands: Option<bool>,
    /// Whether remote commands of other nodes run in a sandbox.
    pub(crate) sandboxed_commands: bool,
    /// Relative speed and memory of the node.
    pub(crate) weights: Weights,
    pub(crate) status: StatusPorts,
    /// Address of the port for metrics, if any.
    pub(crate) metrics: Option<SocketAddr>,
    /// How nodes are compared when this node sends a command.
    pub(crate) policy: Policy,
    /// Whether the machine may be switched off without checking whether other users need it.
    pub(crate) shared_machine: bool,
    /// Whether the node runs jobs of root.
    pub(crate) root_jobs: bool,
    /// Whether uv may install Python versions that projects require.
    pub(crate) install_python: bool,
    /// The uv that builds environments.
    pub(crate) uv: Option<PathBuf>,
    pub(crate) sandbox: SandboxSettings,
    /// How images are pulled.
    pub(crate) images: ImageSettings,
    /// Which settings of the machine jobs may ask to change.
    pub(crate) quiet_machine: QuietSettings,
    /// Values up to which the node counts as quiet while an exclusive job runs.
    pub(crate) noise_limits: NoiseLimits,
    /// Whether the agent creates missing accounts of cluster users.
    pub(crate) accounts: bool,
    /// Whether the agent creates home directories together with accounts.
    pub(crate) homes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GossipAt {
    None,
    Address(SocketAddr),
}

impl FromStr for GossipAt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "none" => Ok(Self::None),
            _ => text
                .parse()
                .map(Self::Address)
                .map_err(|_| ParseError::new(text, "an address and a port such as 192.0.2.7:7761, or `none`")),
        }
    }
}

/// A port with its address; a number alone is a port of the loopback address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortAt(pub(crate) SocketAddr);

impl PortAt {
    pub(crate) const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl FromStr for PortAt {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let address = text.parse().map(Self::loopback).or_else(|_| text.parse().map(Self));
        address
            .map_err(|_| ParseError::new(text, "a port such as 8181, or an address and a port such as 192.0.2.7:8181"))
    }
}

impl HeadSettings {
    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let settings = Settings::read(path, HEAD_KEYS)?;
        settings.as_ref().map(Self::from_file).transpose().map_err(|failure| failure.hint(file_hint(path)))
    }

    fn from_file(file: &Settings) -> Result<Self, Failure> {
        Ok(Self {
            directory: absolute_path(file, "directory", "\"/var/lib/hostler/head\"")?,
            socket: absolute_path(file, "socket", "\"/run/hostler/head.sock\"")?,
            listen: file.parsed("listen", &format!("\"{DEFAULT_LISTEN}\""))?,
            advertise: file.list("advertise", "[\"head.example:7760\"]")?,
            results_cap: file.parsed("results_cap", "\"200G\"")?,
            certificate_life: file.parsed("certificate_life", "\"365d\"")?,
            tls_cert: absolute_path(file, "tls_cert", "\"/etc/hostler/site.pem\"")?,
            tls_key: absolute_path(file, "tls_key", "\"/etc/hostler/site.key\"")?,
            http: file.parsed("http", "\"127.0.0.1:8080\"")?,
            site: file.parsed("site", "\"https://cluster.example.org\"")?,
            proxy_user: file.parsed("proxy_user", "\"www-data\"")?,
        })
    }

    /// The text of a new file with these values, and with comments on all keys.
    pub(crate) fn to_text(&self) -> String {
        let line = |key: &str, value: Option<String>, example: &str| match value {
            Some(value) => format!("{key} = {value}"),
            None => format!("#{key} = {example}"),
        };
        let quoted = |text: String| toml::Value::String(text).to_string();
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| quoted(path.display().to_string()));
        let advertise = (!self.advertise.is_empty()).then(|| {
            let all: Vec<String> = self.advertise.iter().map(|address| quoted(address.to_string())).collect();
            format!("[{}]", all.join(", "))
        });
        format!(
            "# Settings of a Hostler head, read when `hostler head run` starts. Flags of that command override them.\n\
             \n\
             # Address for connections of nodes. 0.0.0.0 means all IPv4 addresses, [::] also all IPv6 addresses.\n\
             {}\n\
             \n\
             # Names or addresses that nodes use to reach this machine; join codes carry the first. Default: the hostname.\n\
             {}\n\
             \n\
             # Directory for the head's state.\n\
             {}\n\
             \n\
             # Unix socket for users of this machine. The kernel tells the head which user connects.\n\
             {}\n\
             \n\
             # Maximum size of stored results; beyond it, results that were fetched are deleted. Default: half of the disk.\n\
             {}\n\
             \n\
             # Validity of a node's certificate. Nodes renew it after two thirds of this time. Time during which the head is down\n\
             # does not count.\n\
             {}\n\
             \n\
             # Certificate and key for browsers, as PEM files, for the dashboard on the head's port. Nodes still use the\n\
             # cluster's own certificate. The head loads the files again when they change.\n\
             {}\n\
             {}\n\
             \n\
             # Loopback address for the dashboard over plain HTTP, for a reverse proxy.\n\
             {}\n\
             \n\
             # Address of the dashboard in browsers. Needed behind a reverse proxy.\n\
             {}\n\
             \n\
             # Account that runs the reverse proxy. The head ignores X-Forwarded-For of others. Default: root.\n\
             {}\n",
            line("listen", self.listen.map(|listen| quoted(listen.to_string())), &format!("\"{DEFAULT_LISTEN}\"")),
            line("advertise", advertise, "[\"head.example\", \"192.0.2.1:7760\"]"),
            line("directory", path(&self.directory), "\"/var/lib/hostler/head\""),
            line("socket", path(&self.socket), "\"/run/hostler/head.sock\""),
            line("results_cap", None, "\"200G\""),
            line("certificate_life", None, "\"365d\""),
            line("tls_cert", None, "\"/etc/hostler/site.pem\""),
            line("tls_key", None, "\"/etc/hostler/site.key\""),
            line("http", None, "\"127.0.0.1:8080\""),
            line("site", None, "\"https://cluster.example.org\""),
            line("proxy_user", None, "\"www-data\""),
        )
    }
}

impl AgentSettings {
    /// The text of a new file: comments on all keys.
    pub(crate) const NEW: &str = include_str!("agent.toml");

    /// Reads the file; all defaults if it does not exist.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let Some(file) = Settings::read(path, AGENT_KEYS)? else { return Ok(Self::default()) };
        Self::from_file(&file).map_err(|failure| failure.hint(file_hint(path)))
    }

    fn from_file(file: &Settings) -> Result<Self, Failure> {
        let is_set = |key: &str| Ok::<_, Failure>(file.truth(key, "true")?.unwrap_or(false));
        let (accounts, homes) = (is_set("accounts")?, is_set("homes")?);
        if homes && !accounts {
            return Err(Failure::usage(
                "`homes` is set without `accounts`: home directories are created together with accounts",
            )
            .hint("add a line accounts = true"));
        }
        let (remote_commands, sandboxed_commands) = remote_commands(file)?;
        Ok(Self {
            cpus: file.parsed("cpus", "\"0-3,8\"")?,
            memory: file.parsed("memory", "\"8G\"")?,
            gpus: file.parsed("gpus", "\"0,2\"")?,
            environments: absolute_path(file, "environments", "\"/var/cache/hostler/environments\"")?,
            features: file.list("features", "[\"ssd\", \"rack-2\"]")?,
            engines: file.list("engines", "[\"podman\"]")?,
            resources: file.counts("resources", "{ license = 10, camera = 1 }")?,
            gossip: file.parsed("gossip", "\"10.0.0.5:7761\"")?,
            remote_commands,
            sandboxed_commands,
            weights: Weights {
                load: weight(file, "load_weight", "2.0")?,
                memory: weight(file, "memory_weight", "0.5")?,
            },
            status: status(file)?,
            metrics: metrics(file)?,
            shared_machine: is_set("shared_machine")?,
            root_jobs: is_set("root_jobs")?,
            install_python: is_set("install_python")?,
            uv: absolute_path(&file.table("environment", ENVIRONMENT_KEYS, UV)?, "uv", "\"/opt/uv\"")?,
            sandbox: sandbox(file)?,
            images: file.structure("images", "{ registries = [\"docker.io\", \"ghcr.io\"] }")?,
            quiet_machine: file.structure("quiet_machine", "{ knobs = [\"governor\", \"watchdog\"] }")?,
            noise_limits: file.structure("measurement", "{ others_millicpus = 100 }")?,
            accounts,
            homes,
            policy: file.structure("dsh", "{ call_ms = 3000, remote_margin = 150 }")?,
        })
    }
}

/// Reads whether the node takes part in remote commands, and whether those of other nodes run in a sandbox.
fn remote_commands(file: &Settings) -> Result<(Option<bool>, bool), Failure> {
    const KEY: &str = "remote_commands";
    if matches!(file.text(KEY, "\"sandboxed\""), Ok(Some("sandboxed"))) {
        return Ok((Some(true), true));
    }
    let hint = "write remote_commands = \"sandboxed\" to run commands of other nodes in a sandbox";
    Ok((file.truth(KEY, "false").map_err(|failure| failure.hint(hint))?, false))
}

/// Reads what sandboxed jobs get. The agent checks the places.
fn sandbox(file: &Settings) -> Result<SandboxSettings, Failure> {
    const EXAMPLE: &str = "[\"/opt/matlab\"]";
    let table = file.table("sandbox", SANDBOX_KEYS, "{ read_only = [\"/opt/matlab\"] }")?;
    let places: Vec<String> = table.list("read_only", EXAMPLE)?;
    let performance_counters = table.truth("performance_counters", "true")?.unwrap_or(false);
    match places.iter().find(|place| !place.starts_with('/')) {
        Some(place) => Err(Failure::usage(format!("`sandbox.read_only` has a path that is not absolute: {place}"))
            .hint(format!("write read_only = {EXAMPLE}"))),
        None => Ok(SandboxSettings { read_only: places, performance_counters }),
    }
}

/// Reads a weight; returns the default weight if the key does not exist.
fn weight(file: &Settings, key: &str, example: &str) -> Result<Weight, Failure> {
    let Some(number) = file.number(key, example)? else { return Ok(Weight::default()) };
    Weight::new(number).ok_or_else(|| {
        Failure::usage(format!("`{key}` is {number}, not a weight from 0.01 to 100"))
            .hint(format!("write {key} = {example}"))
    })
}

/// Reads the plain-text ports. Each is an address with a port, or a port number.
fn status(file: &Settings) -> Result<StatusPorts, Failure> {
    let table = file.table("status", STATUS_KEYS, "{ table = \"127.0.0.1:8181\", best = \"127.0.0.1:8282\" }")?;
    let port = |key: &str, example: &str| Ok::<_, Failure>(table.text_or_integer(key, example)?.map(|PortAt(at)| at));
    Ok(StatusPorts { table: port("table", "\"127.0.0.1:8181\"")?, best: port("best", "\"127.0.0.1:8282\"")? })
}

/// Reads the address of the port for metrics. Anyone who can connect may read the metrics, so an address that the whole
/// Internet may reach needs a second setting.
fn metrics(file: &Settings) -> Result<Option<SocketAddr>, Failure> {
    const EXAMPLE: &str = "\"127.0.0.1:9101\"";
    let address = file.text_or_integer("metrics", EXAMPLE)?.map(|PortAt(at)| at);
    let may_be_public = file.truth("metrics_public", "true")?.unwrap_or(false);
    match address {
        Some(at) if !may_be_public && !is_private(at.ip()) => Err(Failure::usage(format!(
            "`metrics` is {at}, which may be reachable from other networks, and anyone who can connect may read the metrics"
        ))
        .hint(format!("choose a private address, e.g. metrics = {EXAMPLE}, or add a line metrics_public = true"))),
        address => Ok(address),
    }
}

/// Whether only this machine or its local network can reach an address.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Writes a new settings file, which all users may read.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        if let Some(parent) = path.parent() {
            hostler_sys::create_directory(parent, 0o755)?;
        }
        let mut file = File::create_new(path)?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().during(|| format!("cannot write {}", path.display()))
}

fn file_hint(path: &Path) -> String {
    format!("the file is {}", path.display())
}

fn absolute_path(file: &Settings, key: &str, example: &str) -> Result<Option<PathBuf>, Failure> {
    let Some(text) = file.text(key, example)? else { return Ok(None) };
    if text.starts_with('/') {
        return Ok(Some(text.into()));
    }
    Err(Failure::usage(format!("`{key}` is not an absolute path: {text}")).hint(format!("write {key} = {example}")))
}

#[cfg(test)]
mod tests {
    use hostler_agent::Knob;

    use super::*;

    fn parse(text: &str) -> Result<HeadSettings, Failure> {
        HeadSettings::from_file(&Settings::parse(text, HEAD_KEYS)?)
    }

    #[test]
    fn new_settings_file_has_the_given_values_only() {
        assert_eq!(parse(&HeadSettings::default().to_text()), Ok(HeadSettings::default()));
        let settings = HeadSettings {
            directory: Some("/srv/a \"quoted\" place".into()),
            socket: Some("/srv/head.sock".into()),
            listen: Some("[::]:7000".parse().expect("an address")),
            advertise: ["head.example", "[2001:db8::1]:7"].map(|text| text.parse().expect(text)).to_vec(),
            ..HeadSettings::default()
        };
        assert_eq!(parse(&settings.to_text()), Ok(settings));
    }

    #[test]
    fn commented_examples_are_valid() {
        let text = HeadSettings::default().to_text();
        let uncommented: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .collect();
        let settings = parse(&uncommented.join("\n")).expect("examples are right");
        assert!(settings.listen == Some(DEFAULT_LISTEN) && settings.certificate_life.is_some());
        HEAD_KEYS.iter().for_each(|key| assert!(text.contains(&format!("#{key} = ")), "{key} is not explained"));
    }

    #[test]
    fn commented_examples_for_a_node_are_valid() {
        let read = |text: &str| AgentSettings::from_file(&Settings::parse(text, AGENT_KEYS)?);
        assert_eq!(read(AgentSettings::NEW), Ok(AgentSettings::default()), "a new file changes nothing");
        let uncommented: Vec<&str> = AgentSettings::NEW
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .collect();
        let settings = read(&uncommented.join("\n")).expect("examples are right");
        assert!(settings.homes && settings.metrics.is_some() && settings.sandboxed_commands);
        for key in AGENT_KEYS {
            assert!(AgentSettings::NEW.contains(&format!("\n#{key} = ")), "{key} is not explained");
        }
    }

    #[test]
    fn damaged_settings_are_read_or_rejected_with_an_error() {
        let text = HeadSettings::default().to_text();
        let honest: String = text
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert!(parse(&honest).is_ok(), "{honest}");
        let mut refused = 0;
        for at in 0..honest.len() {
            let mut ruins = vec![honest[..at].to_owned()];
            for other in ["\"", "[", "]", "=", "\n", "\0", "9", "-", "\u{fffd}", "[[x]]", "a.b.c=1"] {
                ruins.push(format!("{}{other}{}", &honest[..at], &honest[at + 1..]));
            }
            for ruin in ruins {
                if let Err(failure) = parse(&ruin) {
                    assert!(failure.render().len() > 20 && failure.exit == hostler_cli::exit::USAGE, "{ruin}");
                    refused += 1;
                }
            }
        }
        assert!(refused > honest.len(), "most damaged files are rejected");
    }

    #[test]
    fn mistakes_give_errors_with_hints() {
        let hint = |text: &str| parse(text).expect_err(text).render();
        assert!(hint("lisen = \"x\"").contains("did you mean `listen`?"));
        assert!(hint("listen = 7760").contains("not a string"));
        assert!(hint("listen = \"everywhere\"").contains("write listen = \"0.0.0.0:7760\""));
        assert!(hint("advertise = \"head\"").contains("not a list"));
        assert!(hint("advertise = [\"http://head\"]").contains("HOST:PORT"));
        assert!(hint("socket = \"head.sock\"").contains("not an absolute path"));
        let agent = |text: &str| AgentSettings::from_file(&Settings::parse(text, AGENT_KEYS).expect("known keys"));
        let wrong = |text: &str| agent(text).expect_err(text).render();
        assert!(wrong("gossip = \"here\"").contains("`none`"));
        assert_eq!(agent("gossip = \"none\"").expect("right").gossip, Some(GossipAt::None));
        assert!(wrong("remote_commands = \"no\"").contains("a string, not true or false"));
        assert_eq!(
            (
                agent("remote_commands = false").expect("right").remote_commands,
                agent("").expect("right").remote_commands
            ),
            (Some(false), None)
        );
        let sandboxed = agent("remote_commands = \"sandboxed\"").expect("right");
        assert_eq!((sandboxed.remote_commands, sandboxed.sandboxed_commands), (Some(true), true));
        assert!(wrong("load_weight = 0").contains("not a weight from 0.01 to 100"));
        assert!(wrong("memory_weight = \"2\"").contains("a string, not a number"));
        for public in ["0.0.0.0:9101", "[::]:9101", "203.0.113.7:9101", "[::ffff:203.0.113.7]:9101", "[2001:db8::1]:1"]
        {
            assert!(wrong(&format!("metrics = \"{public}\"")).contains("metrics_public = true"), "{public}");
            let text = format!("metrics = \"{public}\"\nmetrics_public = true");
            assert_eq!(agent(&text).expect("a right value").metrics, public.parse().ok());
        }
        for private in ["127.0.0.1:9101", "[::1]:9101", "10.1.2.3:9101", "192.168.0.1:1", "[fd00::1]:1"] {
            let text = format!("metrics = \"{private}\"");
            assert_eq!(agent(&text).expect(private).metrics, private.parse().ok());
        }
        assert_eq!(agent("metrics = 9101").expect("a port").metrics, Some(PortAt::loopback(9101).0));
        assert!(wrong("metrics = \"everywhere\"").contains("a port such as 8181"));
        assert!(wrong("status = 8181").contains("is a integer, not a table"));
        assert!(wrong("[status]\nbets = 1").contains("did you mean `best`?"));
        assert!(wrong("[status]\nbest = \"everywhere\"").contains("a port such as 8181"));
        assert!(wrong("[status]\ntable = 65536").contains("a port such as 8181"));
        assert!(wrong("[dsh]\ncall_sm = 3").contains("unknown field `call_sm`"));
        assert!(wrong("[dsh]\ntie = -3").contains("`dsh` is not valid"));
        let unknown = wrong("[quiet_machine]\nknobs = [\"turbo\"]");
        assert!(unknown.contains("unknown variant `turbo`") && unknown.contains("`boost`"), "{unknown}");
        let quiet = agent("[quiet_machine]\nknobs = [\"boost\", \"idle-states\"]").expect("right").quiet_machine;
        assert!(quiet.knobs.into_iter().eq([Knob::Boost, Knob::IdleStates]));
        let quiet = agent("[quiet_machine]\nstop_units = [\"apt-daily.timer\"]").expect("right").quiet_machine;
        assert!(quiet.stop_units.into_iter().map(String::from).eq(["apt-daily.timer"]));
        let own = wrong("[quiet_machine]\nstop_units = [\"hostler-agent.service\"]");
        assert!(own.contains("unit hostler-agent.service belongs to Hostler"), "{own}");
        assert!(wrong("[measurement]\nothers_cpus = 3").contains("unknown field `others_cpus`"));
        assert!(wrong("[measurement]\ngap_us = -3").contains("`measurement` is not valid"));
        assert_eq!(agent("[measurement]\ngap_us = 9").expect("right").noise_limits.gap_us, 9);
        assert!(wrong("resources = 3").contains("not a table of counts"));
        assert!(wrong("[resources]\nlicense = \"ten\"").contains("`resources.license` is a string, not a count"));
        for text in ["license = 0", "license = -1"] {
            let text = format!("[resources]\n{text}");
            assert!(
                wrong(&text).contains("not between 1 and") && wrong(&text).contains("{ license = 10, camera = 1 }")
            );
        }
        assert!(wrong("resources = { gpus = 2 }").contains("reserved"));
        assert!(wrong("homes = true").contains("add a line accounts = true"));
        assert!(wrong("root_jobs = \"yes\"").contains("not true or false"));
        assert!(wrong("sandbox = [\"/opt\"]").contains("not a table"));
        assert!(wrong("[sandbox]\nread_olny = []").contains("did you mean `read_only`?"));
        assert!(wrong("[sandbox]\nread_only = [\"opt\"]").contains("not absolute: opt"));
        let places = agent("[sandbox]\nread_only = [\"/opt/matlab\", \"/etc/R\"]").expect("right").sandbox.read_only;
        assert_eq!(places, ["/opt/matlab", "/etc/R"]);
        assert!(agent("install_python = true\n").expect("a right value").install_python);
        let uv = agent("[environment]\nuv = \"/opt/uv\"\n").expect("a right value").uv;
        assert_eq!(uv.as_deref(), Some(Path::new("/opt/uv")));
        assert!(agent("[environment]\nuv = \"uv\"\n").is_err() && agent("[environment]\npip = \"/pip\"\n").is_err());
        let users = agent("accounts = true\nhomes = true\nroot_jobs = true\n").expect("right values");
        assert_eq!((users.accounts, users.homes, users.root_jobs), (true, true, true));
        let set = agent(
            "load_weight = 2\nmemory_weight = 0.5\n[status]\ntable = 8181\nbest = \"10.0.0.5:8282\"\n[dsh]\ntie = 7\n",
        );
        let set = set.expect("right values");
        assert_eq!((set.weights.load.to_string(), set.weights.memory.to_string()), ("2".to_owned(), "0.5".to_owned()));
        assert_eq!(set.status.table, Some(PortAt::loopback(8181).0));
        assert_eq!(set.status.best, "10.0.0.5:8282".parse().ok());
        assert_eq!(set.policy, Policy { tie: 7, ..Policy::default() });
        let agent = agent(
            "cpus = \"0-1\"\nmemory = \"1G\"\ngpus = \"none\"\nfeatures = [\"ssd\"]\nengines = [\"docker\"]\n[resources]\nlicense = 10\n",
        );
        let agent = agent.expect("right values");
        assert_eq!(agent.resources.to_string(), "license=10");
        assert_eq!((agent.cpus, agent.memory), (Some(CpuSet::first(2)), Some(Memory(1 << 30))));
        assert_eq!(agent.engines, [Engine::Docker]);
        assert_eq!(agent.features, ["ssd".parse().expect("a feature")]);
        assert_eq!(agent.gpus, Some(GpuCap::Only(Vec::new())));
    }
}
