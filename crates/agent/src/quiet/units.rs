//! Units of systemd that are stopped while a run with `--quiet-machine` lasts: services and timers that would disturb it.
//!
//! To the transaction, a unit is a setting like a file: its value is `active` or `inactive`.

use std::io::{self, ErrorKind};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Kinds of units that can be stopped and started again without harm to others.
const KINDS: [&str; 4] = ["service", "timer", "socket", "path"];
/// Longest name, in bytes.
const LONGEST: usize = 64;
/// Longest reason, in bytes. Certificates have the reasons of all units.
const REASON: usize = 160;

/// The name of a unit, such as `irqbalance.service`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unit(String);

impl TryFrom<String> for Unit {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.@\\".contains(c);
        let kind = name.rsplit_once('.').map(|(before, kind)| (before.is_empty(), kind));
        if !kind.is_some_and(|(is_empty, kind)| !is_empty && KINDS.contains(&kind)) {
            return Err(format!("unit {name:?} does not end in .service, .timer, .socket or .path"));
        }
        if name.len() > LONGEST || name.starts_with('-') || !name.chars().all(allowed) {
            return Err(format!("{name:?} is not the name of a unit, or is longer than {LONGEST} characters"));
        }
        if name.starts_with("hostler-") {
            return Err(format!("unit {name} belongs to Hostler, which must run during jobs"));
        }
        Ok(Self(name))
    }
}

impl From<Unit> for String {
    fn from(unit: Unit) -> Self {
        unit.0
    }
}

impl Unit {
    pub(super) fn name(&self) -> &str {
        &self.0
    }
}

/// What a unit is during the run.
pub(super) const STOPPED: &str = "inactive";
const STARTED: &str = "active";

/// Returns whether the unit is active, as the value of a setting.
///
/// # Errors
/// If systemd does not know the unit (`NotFound`), it is about to start or stop, or systemd does not run.
pub(super) fn state(unit: &str) -> io::Result<String> {
    let shown = systemctl(&["show", "--property=LoadState,ActiveState", "--", unit])?;
    meaning(&shown)
}

/// Starts or stops a unit, and returns when it has.
pub(super) fn set(unit: &str, value: &str) -> io::Result<()> {
    let verb = if value == STARTED { "start" } else { "stop" };
    systemctl(&[verb, "--", unit]).map(drop)
}

/// The value that the output of `systemctl show` means.
fn meaning(shown: &str) -> io::Result<String> {
    let value = |key: &str| shown.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("LoadState"), value("ActiveState")) {
        (Some("not-found"), _) => Err(io::Error::new(ErrorKind::NotFound, "this machine has no such unit")),
        (_, Some("active")) => Ok(STARTED.to_owned()),
        (_, Some("inactive" | "failed")) => Ok(STOPPED.to_owned()),
        // A service of the type oneshot, such as an update of packages, would be interrupted in the middle.
        (_, Some(other)) => Err(io::Error::other(format!("the unit is {other}"))),
        (_, None) => Err(io::Error::other("systemctl does not say whether the unit is active")),
    }
}

fn systemctl(arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new("systemctl");
    command.arg("--no-ask-password").args(arguments).stdin(Stdio::null()).env("LC_ALL", "C");
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other("systemctl is not installed"),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or("systemctl failed");
    let end = first.floor_char_boundary(REASON);
    Err(io::Error::other(&first[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_stoppable_units_are_accepted() {
        for name in ["irqbalance.service", "apt-daily.timer", "getty@tty1.service", r"dev-sda\x2d1.path"] {
            assert_eq!(Unit::try_from(name.to_owned()).map(String::from).as_deref(), Ok(name));
        }
        let long = format!("{}.service", "x".repeat(LONGEST));
        for name in ["", "cron", ".service", "-x.service", "a b.service", "../a.service", "graphical.target", &long] {
            assert!(Unit::try_from(name.to_owned()).is_err(), "{name}");
        }
        let own = Unit::try_from("hostler-agent.service".to_owned());
        assert_eq!(own, Err("unit hostler-agent.service belongs to Hostler, which must run during jobs".to_owned()));
    }

    #[test]
    fn unit_is_active_or_inactive_or_left_alone() {
        let of = |shown: &str| meaning(shown).map_err(|error| error.to_string());
        assert_eq!(of("LoadState=loaded\nActiveState=active\n").as_deref(), Ok("active"));
        assert_eq!(of("ActiveState=failed\nLoadState=loaded\n").as_deref(), Ok("inactive"));
        assert_eq!(of("LoadState=masked\nActiveState=inactive\n").as_deref(), Ok("inactive"));
        assert_eq!(of("LoadState=loaded\nActiveState=activating\n"), Err("the unit is activating".to_owned()));
        assert_eq!(of("LoadState=not-found\nActiveState=inactive\n"), Err("this machine has no such unit".to_owned()));
        assert_eq!(of(""), Err("systemctl does not say whether the unit is active".to_owned()));
    }
}
