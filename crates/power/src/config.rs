//! Configuration of a node's controller.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hostler_model::{NodeName, ParseError, format_duration, parse_duration};
use serde::{Deserialize, Serialize};

use crate::{Address, Fingerprint, MacAddress, Pace};

/// A node's controller, selected by `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControllerConfig {
    /// Redfish, e.g. iLO 4 and later, iDRAC, XCC, OpenBMC.
    Redfish(RedfishConfig),
    /// IPMI over the network, through `ipmitool`.
    Ipmi(IpmiConfig),
    /// Wake-on-LAN. The node's agent shuts the machine down.
    WakeOnLan(WakeOnLanConfig),
    /// Commands written by the operator.
    Command(CommandConfig),
    /// A node borrowed from a Slurm cluster, where a job runs the agent.
    Slurm(SlurmConfig),
    /// An agent on the head's own machine, which the head starts and stops.
    Virtual(VirtualConfig),
}

/// A Redfish controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedfishConfig {
    /// Address of the controller, e.g. `10.0.9.11`, `ilo-r1:8443`, or an address with `https://`.
    pub address: Address,
    pub credentials: CredentialsConfig,
    /// The system's id, name, UUID or path; needed only if the controller has several systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// SHA-256 fingerprint of the controller's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Whether to accept any certificate and, with `http://`, an unencrypted connection. If so, an attacker in the
    /// network can read the password.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// An IPMI 2.0 controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpmiConfig {
    pub address: String,
    /// UDP port [default: 623].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub credentials: CredentialsConfig,
    /// Number of the cipher suite [default: chosen by `ipmitool`]. Old controllers need 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// A machine without a controller, whose network card supports Wake-on-LAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeOnLanConfig {
    /// MAC address of the network card.
    pub mac: MacAddress,
    /// Destination of the packet [default: the broadcast addresses of all interfaces].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<IpAddr>,
    /// UDP port [default: 9].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The node that sends the packet: an always-on node in the same network segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<NodeName>,
    /// Address and TCP port for detecting a running machine without an agent, e.g. `10.0.0.7:22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
}

/// Commands, each as a list of program and arguments. No shell is involved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// Command that prints `on` or `off`.
    pub status: Vec<String>,
    /// Command that switches the machine on.
    pub on: Vec<String>,
    /// Command that shuts the machine down.
    pub off: Vec<String>,
    /// Command that cuts the machine's power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_off: Option<Vec<String>>,
    /// Command that prints the power draw in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<Vec<String>>,
    /// Environment variables for all commands, in addition to the head's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Timeout of each command [default: 30 s].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// A node borrowed from Slurm. The head's machine needs `sbatch`, `squeue` and `scancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmConfig {
    /// The agent's command, as a list.
    pub agent: Vec<String>,
    /// Partition for the job [default: Slurm's default].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Further options of `sbatch`, e.g. `--time=8:00:00`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Shell lines to run before the agent, e.g. `module load python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prologue: Option<String>,
    /// Environment variables for Slurm's commands, in addition to the head's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Timeout of each Slurm command [default: 30 s].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// The settings of a virtual node's controller: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualConfig {}

/// Source of credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "credentials are a file such as \"/etc/hostler/ilo.secret\", or a command such as { command = [\"pass\", \"ilo\"] }"
)]
pub enum CredentialsConfig {
    /// A file with `user:password` that only its owner can read.
    File(PathBuf),
    /// A command that prints `user:password`.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

/// A duration as text, e.g. `30s` or `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

impl TryFrom<String> for Span {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        parse_duration(&text).map(Self)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        format_duration(span.0)
    }
}

/// Default timeout of programs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

impl CommandConfig {
    pub(crate) fn limit(&self) -> Duration {
        self.time_limit.map_or(PROGRAM_LIMIT, |span| span.0)
    }
}

impl SlurmConfig {
    pub(crate) fn limit(&self) -> Duration {
        self.time_limit.map_or(PROGRAM_LIMIT, |span| span.0)
    }
}

impl ControllerConfig {
    /// Returns a name for a controller that several nodes can share. Nodes whose controllers have the same name take
    /// turns.
    pub(crate) fn shares(&self) -> Option<String> {
        match self {
            Self::Redfish(config) => Some(format!("redfish {}", config.address)),
            Self::Ipmi(config) => Some(format!("ipmi {} {}", config.address, config.port.unwrap_or_default())),
            Self::Slurm(_) => Some("slurm".to_owned()),
            Self::WakeOnLan(_) | Self::Command(_) | Self::Virtual(_) => None,
        }
    }

    pub(crate) fn pace(&self) -> Pace {
        let within =
            |pace: Pace, limit: Option<Span>| Pace { time_limit: limit.map_or(pace.time_limit, |span| span.0), ..pace };
        // A verb runs two programs, the status first. Each program has its own, more specific timeout.
        let programs = |limit: Duration| Pace { time_limit: limit * 2 + Duration::from_secs(5), ..Pace::PROGRAM };
        match self {
            Self::Redfish(config) => within(Pace::CONTROLLER, config.time_limit),
            Self::Ipmi(config) => within(Pace::CONTROLLER, config.time_limit),
            Self::Command(config) => programs(config.limit()),
            Self::Slurm(config) => programs(config.limit()),
            Self::WakeOnLan(_) | Self::Virtual(_) => Pace::PROGRAM,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ControllerConfig, toml::de::Error> {
        toml::from_str(text)
    }

    const EXAMPLES: [&str; 7] = [
        "kind = 'redfish'\naddress = '10.0.9.11'\ncredentials = '/etc/hostler/ilo.secret'\nsystem = '1'",
        "kind = 'redfish'\naddress = 'http://127.0.0.1:8000'\ninsecure = true\ncredentials = { command = ['pass', 'ilo'] }\n\
         time_limit = '90s'",
        "kind = 'ipmi'\naddress = 'bmc-r2'\nport = 6230\ncipher = 3\ncredentials = '/etc/hostler/bmc.secret'",
        "kind = 'wake_on_lan'\nmac = '52:54:00:12:34:56'\nrelay = 'n1'\nprobe = '10.0.0.7:22'\nbroadcast = '10.0.0.255'",
        "kind = 'command'\nstatus = ['plug', 'status']\non = ['plug', 'on']\noff = ['plug', 'off']\n\
         environment = { PLUG = '7' }",
        "kind = 'slurm'\nagent = ['hostler', 'agent', 'run']\npartition = 'idle'\noptions = ['--time=8:00:00']",
        "kind = 'virtual'",
    ];

    #[test]
    fn examples_round_trip() {
        for text in EXAMPLES {
            let config = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = toml::to_string(&config).expect("the configuration can be serialized");
            assert_eq!(read(&again).unwrap_or_else(|error| panic!("{again}: {error}")), config);
        }
    }

    #[test]
    fn unknown_fields_are_errors() {
        for text in EXAMPLES {
            let text = text.replacen('\n', "\ncolour = 'red'\n", 1);
            let text = if text.contains("colour") { text } else { format!("{text}\ncolour = 'red'") };
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains("colour"), "{error}");
        }
        let error = read("kind = 'ilo'").expect_err("the kind `ilo` does not exist").to_string();
        assert!(error.contains("redfish") && error.contains("wake_on_lan"), "{error}");
        let text = "kind = 'ipmi'\naddress = 'x'\ncredentials = { comand = ['pass'] }";
        let error = read(text).expect_err("a typo").to_string();
        assert!(error.contains("credentials are a file"), "{error}");
    }

    #[test]
    fn nodes_with_one_address_share_a_queue() {
        let [first, second] = ["1", "2"].map(|system| {
            let text = format!("kind = 'redfish'\naddress = 'chassis'\ncredentials = '/x'\nsystem = '{system}'");
            read(&text).expect("the configuration is valid").shares()
        });
        assert!(first.is_some() && first == second);
    }
}
