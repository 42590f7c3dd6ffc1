//! Units of systemd that are stopped while a run with `--quiet-machine` lasts: services and timers that would disturb it.
//!
//! To the transaction, a unit is a setting like a file. Its value is `active`, `inactive`, or the name of a state between them.

use std::io::{self, ErrorKind, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Kinds of units that can be stopped and started again without harm to others.
const KINDS: [&str; 4] = ["service", "timer", "socket", "path"];
/// Longest name, in bytes.
const LONGEST: usize = 64;
/// Longest reason, in bytes. Certificates have the reasons of all units.
const REASON: usize = 160;
/// How long a call of `systemctl` may take. Longer ones are given up; systemd finishes on its own.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at whether `systemctl` has ended.
const LOOK: Duration = Duration::from_millis(5);

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

    /// Whether the unit starts no others. Timers, sockets and paths start services, so they must stop before these. They must
    /// also start before these: a socket refuses to start while its service is active.
    pub(super) fn is_service(&self) -> bool {
        self.0.ends_with(".service")
    }
}

/// What a unit is during the run.
pub(super) const STOPPED: &str = "inactive";
pub(super) const STARTED: &str = "active";

/// Properties of a unit that list others, which stop when it stops.
const STOPS: [&str; 4] = ["RequiredBy", "BoundBy", "ConsistsOf", "PropagatesStopTo"];

/// Returns the state of a unit, as the value of a setting.
///
/// # Errors
/// If systemd does not know the unit (`NotFound`), or does not run.
pub(super) fn state(unit: &str) -> io::Result<String> {
    let shown = systemctl(&["show", "--property=LoadState,ActiveState", "--", unit])?;
    meaning(&shown)
}

/// The units that stop when this one stops.
pub(super) fn stopped_with(unit: &str) -> io::Result<Vec<String>> {
    let shown = systemctl(&["show", &format!("--property={}", STOPS.join(",")), "--", unit])?;
    let names = shown.lines().filter_map(|line| line.split_once('=')).flat_map(|(_, names)| names.split_whitespace());
    Ok(names.map(str::to_owned).collect())
}

/// Starts or stops a unit, and returns when it has.
pub(super) fn set(unit: &str, value: &str) -> io::Result<()> {
    let verb = if value == STARTED { "start" } else { "stop" };
    if value == STARTED {
        // Without this, systemd refuses frequent starts, for example after each task of an array. The command fails if there
        // is nothing to reset.
        let _ = systemctl(&["reset-failed", "--", unit]);
    }
    systemctl(&[verb, "--", unit]).map(drop)
}

/// Converts the output of `systemctl show` to a value.
fn meaning(shown: &str) -> io::Result<String> {
    let value = |key: &str| shown.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (value("LoadState"), value("ActiveState")) {
        (Some("not-found"), _) => Err(io::Error::new(ErrorKind::NotFound, "this machine has no such unit")),
        (_, Some("active")) => Ok(STARTED.to_owned()),
        (_, Some("inactive" | "failed")) => Ok(STOPPED.to_owned()),
        (_, Some(other)) if !other.is_empty() => Ok(other.to_owned()),
        _ => Err(io::Error::other("systemctl does not say whether the unit is active")),
    }
}

fn systemctl(arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new("systemctl");
    command.arg("--no-ask-password").args(arguments).env("LC_ALL", "C");
    let (succeeded, output, errors) = outcome(&mut command, PATIENCE).map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other("systemctl is not installed"),
        _ => error,
    })?;
    if succeeded {
        return Ok(output);
    }
    let first = errors.lines().next().unwrap_or("systemctl failed");
    let end = first.floor_char_boundary(REASON);
    Err(io::Error::other(&first[..end]))
}

/// Returns whether a command succeeded, and its output and errors, which must fit into a pipe.
///
/// # Errors
/// If it cannot run, or was ended because it ran for longer than `patience`.
fn outcome(command: &mut Command, patience: Duration) -> io::Result<(bool, String, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < until => thread::sleep(LOOK),
            None => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other(format!("systemd needs more than {} seconds", patience.as_secs())));
            }
        }
    };
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    child.stdout.take().map(|mut it| it.read_to_end(&mut output)).transpose()?;
    child.stderr.take().map(|mut it| it.read_to_end(&mut errors)).transpose()?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status.success(), text(output), text(errors)))
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
    fn state_of_a_unit_is_read() {
        let of = |shown: &str| meaning(shown).map_err(|error| error.to_string());
        assert_eq!(of("LoadState=loaded\nActiveState=active\n").as_deref(), Ok("active"));
        assert_eq!(of("ActiveState=failed\nLoadState=loaded\n").as_deref(), Ok("inactive"));
        assert_eq!(of("LoadState=masked\nActiveState=inactive\n").as_deref(), Ok("inactive"));
        assert_eq!(of("LoadState=loaded\nActiveState=activating\n"), Ok("activating".to_owned()));
        assert_eq!(of("LoadState=not-found\nActiveState=inactive\n"), Err("this machine has no such unit".to_owned()));
        assert_eq!(of(""), Err("systemctl does not say whether the unit is active".to_owned()));
    }

    #[test]
    fn command_that_takes_too_long_is_ended() {
        let of = |text: &str| outcome(Command::new("sh").args(["-c", text]), Duration::from_secs(60));
        assert_eq!(of("echo a; echo b >&2; exit 3").expect("it ends"), (false, "a\n".to_owned(), "b\n".to_owned()));
        let late = outcome(Command::new("sleep").arg("600"), Duration::ZERO).expect_err("it does not end");
        assert_eq!(late.to_string(), "systemd needs more than 0 seconds");
    }
}
