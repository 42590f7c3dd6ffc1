//! What an operator writes about a node's controller.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hostler_model::{NodeName, ParseError, format_duration, parse_duration};
use serde::{Deserialize, Serialize};

use crate::{Address, Fingerprint, MacAddress, Pace};

/// A node's controller. `kind` says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControllerConfig {
    /// HTTP and JSON, by the standard of the same name: iLO 4 and later, iDRAC, XCC, OpenBMC.
    Redfish(RedfishConfig),
    /// IPMI over the network, through `ipmitool`.
    Ipmi(IpmiConfig),
    /// A magic packet wakes it, its agent shuts it down.
    WakeOnLan(WakeOnLanConfig),
    /// Commands of the operator's.
    Command(CommandConfig),
    /// A node borrowed from a Slurm cluster, where a job runs the agent.
    Slurm(SlurmConfig),
    /// An agent on the head's own machine, which the head itself starts and stops.
    Virtual(VirtualConfig),
}

/// A controller that speaks Redfish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedfishConfig {
    /// `10.0.9.11`, `ilo-r1:8443` or an address with `https://`.
    pub address: Address,
    /// Who asks.
    pub credentials: CredentialsConfig,
    /// Which system, by its id, name, UUID or path; needed only where the controller has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// SHA-256 of the controller's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Takes any certificate, and none at all with `http://`: whoever is in between learns the password.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// How long one command may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// A controller that speaks IPMI 2.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpmiConfig {
    /// Name or address.
    pub address: String,
    /// UDP port; 623 unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Who asks.
    pub credentials: CredentialsConfig,
    /// Number of the cipher suite; `ipmitool` chooses unless said otherwise. Old controllers want 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<u8>,
    /// How long one command may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// A machine without a controller whose network card listens while it is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeOnLanConfig {
    /// Of the card.
    pub mac: MacAddress,
    /// Where to send the packet; the broadcast addresses of all interfaces unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<IpAddr>,
    /// UDP port; 9 unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The node that sends it: one on the machine's own segment, which is always on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<NodeName>,
    /// Address and TCP port by which a machine without an agent can be told from one that is off, such as `10.0.0.7:22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
}

/// Commands, each as a list of the program and its arguments; no shell is involved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// Prints `on` or `off`.
    pub status: Vec<String>,
    /// Switches it on.
    pub on: Vec<String>,
    /// Shuts it down.
    pub off: Vec<String>,
    /// Takes its power away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_off: Option<Vec<String>>,
    /// Prints what it draws, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<Vec<String>>,
    /// Variables for all of them, besides the head's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// How long each may take; 30 s unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// A node borrowed from Slurm. `sbatch`, `squeue` and `scancel` must be on the head's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmConfig {
    /// The command that runs the agent, as a list.
    pub agent: Vec<String>,
    /// Where to submit; Slurm's default unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Further options of `sbatch`, such as `--time=8:00:00`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Lines of shell before the agent, such as `module load python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prologue: Option<String>,
    /// Variables for Slurm's commands, besides the head's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// How long each of Slurm's commands may take; 30 s unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
}

/// Nothing is to be said about a virtual node's controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualConfig {}

/// Where credentials come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "credentials are a file, as in \"/etc/hostler/ilo.secret\", or what prints them, as in { command = [\"pass\", \"ilo\"] }"
)]
pub enum CredentialsConfig {
    /// A file with `user:password` that only its owner may read.
    File(PathBuf),
    /// A command that prints `user:password`.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
}

/// A span of time as people write it: `30s`, `2m`.
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

/// How long a program may take unless said otherwise.
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
    /// Whether what [`Off::Gracefully`](crate::Off) needs is the node's agent: then there is no other way to switch it off.
    #[must_use]
    pub const fn needs_the_agent(&self) -> bool {
        matches!(self, Self::WakeOnLan(_))
    }

    /// Whether nobody confirms that a machine is off: it counts as off while nothing is heard of it.
    #[must_use]
    pub const fn guesses(&self) -> bool {
        matches!(self, Self::WakeOnLan(WakeOnLanConfig { probe: None, .. }))
    }

    /// What several nodes' controllers have in common, so that they wait for each other.
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
        // A verb is two programs: the one that says how things are comes first. Each has its own limit, which says more.
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
    fn examples_are_read_and_come_back_as_they_were() {
        for text in EXAMPLES {
            let config = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = toml::to_string(&config).expect("it can be written");
            assert_eq!(read(&again).unwrap_or_else(|error| panic!("{again}: {error}")), config);
        }
    }

    #[test]
    fn words_that_mean_nothing_are_errors() {
        for text in EXAMPLES {
            let text = text.replacen('\n', "\ncolour = 'red'\n", 1);
            let text = if text.contains("colour") { text } else { format!("{text}\ncolour = 'red'") };
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains("colour"), "{error}");
        }
        let error = read("kind = 'ilo'").expect_err("there is none").to_string();
        assert!(error.contains("redfish") && error.contains("wake_on_lan"), "{error}");
        let text = "kind = 'ipmi'\naddress = 'x'\ncredentials = { comand = ['pass'] }";
        let error = read(text).expect_err("a typo").to_string();
        assert!(error.contains("credentials are a file"), "{error}");
    }

    #[test]
    fn those_behind_one_address_wait_for_each_other() {
        let [first, second] = ["1", "2"].map(|system| {
            let text = format!("kind = 'redfish'\naddress = 'chassis'\ncredentials = '/x'\nsystem = '{system}'");
            read(&text).expect("it can be read").shares()
        });
        assert!(first.is_some() && first == second);
    }
}
