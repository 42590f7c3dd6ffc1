//! `power.toml`: the nodes that the head switches on and off, their controllers, and the policy.
//!
//! The settings are in a file and cannot be changed over the network. The file contains commands and paths of
//! credentials on the head's machine, so only root and the user that runs the head may write it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler_model::{Expected, Hours, NodeName, ParseError, PowerPlan, PowerPolicy, PowerTraits, Watts, parse_bytes};
use hostler_power::{ControllerConfig, Span};
use hostler_proto::power::Cost;
use jiff::Zoned;
use serde::Deserialize;

use crate::private_file;

/// The most CPUs that a node can have before it has joined.
const MOST_CPUS: u32 = 4096;

/// Parsed content of `power.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PowerFile {
    /// The nodes and the policy, for the core. The plan contains no credentials or commands.
    pub(crate) plan: PowerPlan,
    /// The controller of each node in the plan.
    pub(crate) controllers: BTreeMap<NodeName, ControllerConfig>,
    /// The price of energy.
    pub(crate) price: Option<Price>,
}

/// The price of a kilowatt-hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Price {
    millionths: u64,
    currency: String,
}

impl Price {
    fn read(price: Option<f64>, currency: Option<String>) -> Result<Option<Self>, String> {
        match (price, currency) {
            (None, None) => Ok(None),
            (Some(_), None) => Err("`price` needs a currency, such as currency = \"EUR\"".to_owned()),
            (None, Some(_)) => Err("`currency` needs a price per kWh, such as price = 0.31".to_owned()),
            (Some(price), Some(_)) if !(0.0..=1_000_000.0).contains(&price) => {
                Err(format!("price = {price} is not a price per kWh from 0 to 1000000"))
            }
            (Some(_), Some(currency)) if !(1..=8).contains(&currency.len()) || currency.contains(char::is_control) => {
                Err(format!("currency = {currency:?} is not a short name such as EUR"))
            }
            (Some(price), Some(currency)) => {
                Ok(Some(Self { millionths: (price * 1_000_000.0).round() as u64, currency }))
            }
        }
    }

    /// Returns the cost of an amount of energy.
    pub(crate) fn of(&self, watt_hours: f64) -> Cost {
        let amount = self.millionths as f64 / 1_000_000.0 * watt_hours / 1_000.0;
        Cost { amount, currency: self.currency.clone() }
    }
}

/// Why the head does not use `power.toml`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// The content is invalid.
    #[error("{} is ignored: {why}", path.display())]
    Wrong { path: PathBuf, why: String },
    /// Another user owns `power.toml` or can write to it.
    #[error("{} is ignored: {why}", path.display())]
    Open { path: PathBuf, why: &'static str },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    idle: Option<Span>,
    min_up: Option<Span>,
    #[serde(default)]
    keep_warm: u32,
    max_on: Option<u32>,
    max_watts: Option<u32>,
    #[serde(default)]
    hours: Vec<HoursText>,
    boot_timeout: Option<Span>,
    stop_timeout: Option<Span>,
    #[serde(default)]
    force_off: bool,
    watch: Option<Span>,
    poll: Option<Span>,
    again: Option<Span>,
    tries: Option<u32>,
    retry: Option<Span>,
    price: Option<f64>,
    currency: Option<String>,
    #[serde(default)]
    nodes: BTreeMap<NodeName, NodeText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    controller: ControllerConfig,
    watts: Option<WattsText>,
    boot: Option<Span>,
    idle: Option<Span>,
    #[serde(default = "yes")]
    managed: bool,
    cpus: Option<u32>,
    memory: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct WattsText {
    off: Option<u32>,
    idle: Option<u32>,
    busy: Option<u32>,
}

/// Hours of the day as text, e.g. `07:00-23:00`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct HoursText(Hours);

const fn yes() -> bool {
    true
}

impl TryFrom<String> for HoursText {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (minute < 60 && hour * 60 + minute <= Hours::DAY).then_some(hour * 60 + minute)
        };
        let both = text.split_once('-').and_then(|(from, to)| Some(Hours { from: minute(from)?, to: minute(to)? }));
        both.map(Self).ok_or_else(|| ParseError::new(&text, "hours such as 07:00-23:00"))
    }
}

impl PowerFile {
    /// Reads `power.toml`. Without the file, the head switches no node on or off.
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(FileError::Unreadable { path: path.to_owned(), error }),
        };
        check_access(path)?;
        Self::parse(&text).map_err(|why| FileError::Wrong { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let text: Text = private_file::from_toml(text)?;
        let usual = PowerPolicy::default();
        let ms = |span: Option<Span>, usual: u64| span.map_or(usual, |Span(span)| millis(span));
        let policy = PowerPolicy {
            idle_ms: ms(text.idle, usual.idle_ms),
            min_up_ms: ms(text.min_up, usual.min_up_ms),
            keep_warm: text.keep_warm,
            max_on: text.max_on,
            max_watts: text.max_watts,
            hours: text.hours.into_iter().map(|HoursText(hours)| hours).collect(),
            utc_offset_minutes: Zoned::now().offset().seconds() / 60,
            boot_timeout_ms: ms(text.boot_timeout, usual.boot_timeout_ms),
            stop_timeout_ms: ms(text.stop_timeout, usual.stop_timeout_ms),
            force_off: text.force_off,
            watch_ms: ms(text.watch, usual.watch_ms).max(100),
            poll_ms: ms(text.poll, usual.poll_ms).max(1_000),
            again_ms: ms(text.again, usual.again_ms),
            tries: text.tries.unwrap_or(usual.tries).max(1),
            retry_ms: ms(text.retry, usual.retry_ms),
        };
        if policy.max_on.is_some_and(|most| most < policy.keep_warm) {
            return Err("keep_warm is larger than max_on".to_owned());
        }
        let (plan, price) = (PowerPlan { policy, nodes: BTreeMap::new() }, Price::read(text.price, text.currency)?);
        let mut file = Self { plan, controllers: BTreeMap::new(), price };
        for (name, node) in text.nodes {
            file.plan.nodes.insert(name.clone(), node.traits().map_err(|why| format!("nodes.{name}: {why}"))?);
            file.controllers.insert(name, node.controller);
        }
        Ok(file)
    }
}

impl NodeText {
    fn traits(&self) -> Result<PowerTraits, String> {
        let (usual, traits) = (Watts::default(), PowerTraits::default());
        let watts = self.watts.map_or(usual, |watts| {
            let idle = watts.idle.unwrap_or(usual.idle);
            Watts {
                off: watts.off.unwrap_or(usual.off.min(idle)),
                idle,
                busy: watts.busy.unwrap_or(usual.busy.max(idle)),
            }
        });
        if watts.off > watts.idle || watts.idle > watts.busy {
            return Err("watts must satisfy off <= idle <= busy".to_owned());
        }
        let expected = match (self.cpus, &self.memory) {
            (None, None) => None,
            (Some(cpus @ 1..=MOST_CPUS), Some(memory)) => {
                let memory_bytes = parse_bytes(memory).map_err(|error| format!("memory: {error}"))?;
                Some(Expected { cpus, memory_bytes })
            }
            _ => {
                return Err(format!("a machine that has not joined needs both `cpus`, 1 to {MOST_CPUS}, and `memory`"));
            }
        };
        Ok(PowerTraits {
            expected,
            watts,
            boot_ms: self.boot.map_or(traits.boot_ms, |Span(span)| millis(span)),
            idle_ms: self.idle.map(|Span(span)| millis(span)),
            is_managed: self.managed,
            are_watts_assumed: self.watts.is_none(),
        })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Checks the file's owner and mode, because the file contains commands that the head runs as its own user.
fn check_access(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
    let own = nix::unistd::geteuid().as_raw();
    let open = |why| Err(FileError::Open { path: path.to_owned(), why });
    if metadata.uid() != 0 && metadata.uid() != own {
        return open("the file belongs to a user other than root and the head's user");
    }
    if metadata.mode() & 0o022 != 0 {
        return open("other users may write to the file; run `chmod go-w` on the file");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
        idle = "15m"
        max_watts = 600
        price = 0.31
        currency = "EUR"
        hours = ["07:00-23:00", "23:30-01:00"]

        [nodes.r1]
        controller = { kind = "redfish", address = "10.0.9.11", credentials = "/etc/hostler/ilo.secret" }
        watts = { idle = 120, busy = 340 }
        boot = "4m"

        [nodes.r2]
        controller = { kind = "command", status = ["plug", "status"], on = ["plug", "on"], off = ["plug", "off"] }
        managed = false
        cpus = 4
        memory = "8G"
    "#;

    #[test]
    fn example_file_is_parsed() {
        let file = PowerFile::parse(EXAMPLE).expect("valid");
        let PowerPolicy { idle_ms, max_watts, ref hours, .. } = file.plan.policy;
        assert_eq!((idle_ms, max_watts), (900_000, Some(600)));
        assert_eq!(hours[..], [Hours { from: 420, to: 1380 }, Hours { from: 1410, to: 60 }]);
        let r1 = file.plan.nodes[&"r1".parse().expect("a name")];
        assert_eq!((r1.watts, r1.boot_ms, r1.is_managed), (Watts { off: 8, idle: 120, busy: 340 }, 240_000, true));
        let r2 = file.plan.nodes[&"r2".parse().expect("a name")];
        assert_eq!((r2.is_managed, r2.expected), (false, Some(Expected { cpus: 4, memory_bytes: 8 << 30 })));
        assert_eq!(file.controllers.len(), 2);
        assert_eq!(file.price.expect("a price").of(12_500.0).to_string(), "3.88 EUR");
    }

    #[test]
    fn example_in_the_guide_is_valid() {
        let guide = include_str!("../../../../docs/guides/power.md");
        let block = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let file = PowerFile::parse(block).expect("valid");
        assert_eq!(file.controllers.len(), 2);
    }

    #[test]
    fn errors_name_the_wrong_setting() {
        for (text, named) in [
            ("idel = \"5m\"", "idel"),
            ("idle = \"soon\"", "soon"),
            ("price = 0.31", "currency"),
            ("currency = \"EUR\"", "price = 0.31"),
            ("price = -1\ncurrency = \"EUR\"", "price = -1"),
            ("price = nan\ncurrency = \"EUR\"", "price = NaN"),
            ("price = 1\ncurrency = \"\"", "a short name"),
            ("hours = [\"7-23\"]", "07:00-23:00"),
            ("hours = [\"07:00-25:00\"]", "07:00-23:00"),
            ("keep_warm = 3\nmax_on = 2", "keep_warm"),
            ("[nodes.r1]", "controller"),
            ("[nodes.r1]\ncontroller = { kind = \"carrier-pigeon\" }", "carrier-pigeon"),
            ("[nodes.r1]\ncontroller = { kind = \"virtual\" }\nwatts = { idle = 10, busy = 5 }", "nodes.r1"),
            ("[nodes.r1]\ncontroller = { kind = \"virtual\" }\ncpus = 4", "memory"),
            ("[nodes.r1]\ncontroller = { kind = \"virtual\" }\ncpus = 0\nmemory = \"8G\"", "cpus"),
            ("[nodes.r1]\ncontroller = { kind = \"virtual\" }\ncpus = 4\nmemory = \"much\"", "much"),
        ] {
            let why = PowerFile::parse(text).expect_err(text);
            assert!(why.contains(named), "{text}: {why}");
        }
    }

    #[test]
    fn file_writable_by_others_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("power.toml");
        assert_eq!(PowerFile::read(&path).expect("no file is valid"), PowerFile::default());
        std::fs::write(&path, EXAMPLE).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).expect("permitted");
        assert!(PowerFile::read(&path).expect_err("open").to_string().contains("chmod go-w"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("permitted");
        assert_eq!(PowerFile::read(&path).expect("private").controllers.len(), 2);
    }
}
