//! Programs that go on: as transient units of systemd where that runs the machine, otherwise as processes of our own, each in a session of
//! its own and known by its start time.
//!
//! With systemd one that dies is started again, and ends with nobody's login. Without it nobody starts it again; `status` says so.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;
use serde::{Deserialize, Serialize};

use super::boot::UNIT;
use super::command::{find, run, search_path};
use super::error::GatewayError;
use super::process::Process;
use super::records::Records;

/// Is there when systemd runs the machine.
const BOOTED_BY_SYSTEMD: &str = "/run/systemd/system";

/// What looks after the programs.
#[derive(Debug)]
pub(super) struct Services {
    records: Records,
    by_systemd: bool,
}

/// A program that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Dnsmasq,
    /// WireGuard for kernels that have none.
    WireGuard,
    /// What takes an attempt back.
    Guard,
}

/// That a service was started, or was about to be: written before as well as after, so that nothing runs that nobody knows of.
#[derive(Debug, Serialize, Deserialize)]
struct Started {
    /// `None` when systemd knows it, and when whoever started it was killed before this was written.
    process: Option<Process>,
    /// Its arguments, by which it is found; empty when systemd knows it.
    #[serde(default)]
    arguments: Vec<OsString>,
    /// It has been told to end.
    #[serde(default)]
    is_ending: bool,
    /// What it was started with, for whom it concerns.
    configuration: String,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Dnsmasq => "dnsmasq",
            Self::WireGuard => "wireguard-go",
            Self::Guard => "guard",
        }
    }

    fn unit(self) -> String {
        format!("hostler-gateway-{}.service", self.name())
    }

    fn record(self) -> String {
        format!("{}.json", self.name())
    }

    fn log(self) -> String {
        format!("{}.log", self.name())
    }
}

impl Services {
    pub(super) fn of_this_machine(records: Records) -> Self {
        Self { records, by_systemd: is_systemd() }
    }

    /// Whether systemd looks after them.
    pub(super) fn by_systemd(&self) -> bool {
        self.by_systemd
    }

    /// Starts a program, which stays in the foreground. `configuration` is remembered with it.
    pub(super) fn start(
        &self,
        service: Service,
        program: &Path,
        arguments: &[OsString],
        configuration: &str,
    ) -> Result<(), GatewayError> {
        let program = find(&program.to_string_lossy()).unwrap_or_else(|| program.to_owned());
        let mut started =
            Started { process: None, arguments: Vec::new(), is_ending: false, configuration: configuration.to_owned() };
        if self.by_systemd {
            self.note(service, &started)?;
            return self.start_unit(service, &program, arguments);
        }
        started.arguments = arguments.to_vec();
        self.note(service, &started)?;
        started.process = Some(self.start_process(service, &program, arguments)?);
        self.note(service, &started)
    }

    fn note(&self, service: Service, started: &Started) -> Result<(), GatewayError> {
        self.records.write_text(&service.record(), &serde_json::to_string(started).expect("it is JSON"))
    }

    fn start_unit(&self, service: Service, program: &Path, arguments: &[OsString]) -> Result<(), GatewayError> {
        let unit = service.unit();
        // What failed before would be in the way of its name.
        let _ = run("systemctl", &["reset-failed", &unit]);
        let on_death = match service {
            Service::Dnsmasq => "--property=Restart=on-failure".to_owned(),
            // Alone it would come back without key, address and clients. Not by `OnFailure=`: what refers to a unit keeps its name taken.
            Service::WireGuard => format!(
                "--property=ExecStopPost=/bin/sh -c 'test \"$SERVICE_RESULT\" = success || systemctl --no-block start {UNIT}'"
            ),
            Service::Guard => "--property=Restart=no".to_owned(),
        };
        let unit = format!("--unit={unit}");
        let mut all = vec!["--quiet", "--collect", &unit, &on_death, "--property=RestartSec=1s", "--"];
        let program = program.to_string_lossy();
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        all.push(&program);
        all.extend(arguments.iter().map(AsRef::as_ref));
        run("systemd-run", &all).map(drop)
    }

    fn start_process(&self, service: Service, program: &Path, arguments: &[OsString]) -> Result<Process, GatewayError> {
        let name = service.log();
        let failed = |error| self.records.failed("write", &name, error);
        let log = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(self.records.path(&name));
        let log: File = log.map_err(failed)?;
        let copy = log.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", search_path()).current_dir("/");
        command.stdin(Stdio::null()).stdout(copy).stderr(log);
        // SAFETY: only system calls that are safe after fork, and no memory of ours is touched.
        unsafe {
            command.pre_exec(|| {
                // Whoever ends the caller's session must not end this.
                nix::unistd::setsid()?;
                // A pipe that our caller left open must not live as long as the service.
                libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                Ok(())
            });
        }
        let child = command.spawn().map_err(|error| self.ended(service, &error.to_string()))?;
        Process::of(i32::try_from(child.id()).unwrap_or(0)).ok_or_else(|| self.ended(service, "it ended at once"))
    }

    /// Ends a service, if it runs.
    pub(super) fn stop(&self, service: Service) -> Result<(), GatewayError> {
        if let Some(mut started) = self.started(service)? {
            started.is_ending = true;
            self.note(service, &started)?;
            let failed = |error| self.records.failed("end what is in", &service.record(), error);
            match started.process {
                Some(process) => process.end().map_err(failed)?,
                None if started.arguments.is_empty() => stop_unit(&service.unit())?,
                // Whoever started it had the lock, and so had the new process until it was this program: it can be found by now.
                None => Process::running(&started.arguments).iter().try_for_each(Process::end).map_err(failed)?,
            }
        }
        self.records.remove(&service.record())
    }

    /// What a service was started with, if it runs.
    pub(super) fn running(&self, service: Service) -> Result<Option<String>, GatewayError> {
        let Some(started) = self.started(service)?.filter(|started| !started.is_ending) else { return Ok(None) };
        let is_alive = match &started.process {
            Some(process) => process.is_alive(),
            None if !started.arguments.is_empty() => false,
            None => run("systemctl", &["is-active", "--quiet", &service.unit()]).is_ok(),
        };
        Ok(is_alive.then_some(started.configuration))
    }

    /// Whether somebody was killed while they started or ended it.
    pub(super) fn is_between(&self, service: Service) -> Result<bool, GatewayError> {
        let is_between = |it: &Started| it.is_ending || (it.process.is_none() && !it.arguments.is_empty());
        Ok(self.started(service)?.is_some_and(|started| is_between(&started)))
    }

    /// Why a service is not there, with the end of what it said.
    pub(super) fn ended(&self, service: Service, otherwise: &str) -> GatewayError {
        let log = fs::read_to_string(self.records.path(&service.log())).unwrap_or_default();
        let last = log.lines().rfind(|line| line.contains(char::is_alphabetic));
        let said = last.map_or_else(|| otherwise.to_owned(), |line| line.trim().to_owned());
        GatewayError::Service { name: service.name(), said }
    }

    fn started(&self, service: Service) -> Result<Option<Started>, GatewayError> {
        let name = service.record();
        let Some(text) = self.records.read_text(&name)? else { return Ok(None) };
        let path = self.records.path(&name);
        serde_json::from_str(&text).map(Some).map_err(|source| GatewayError::Record { path, source })
    }
}

/// Ends a unit. One that is gone, after a boot or because it has ended, systemd does not even know.
pub(super) fn stop_unit(unit: &str) -> Result<(), GatewayError> {
    let stopped = run("systemctl", &["stop", unit]).map(drop);
    if run("systemctl", &["is-active", "--quiet", unit]).is_ok() { stopped } else { Ok(()) }
}

/// Whether systemd runs this machine.
pub(super) fn is_systemd() -> bool {
    Path::new(BOOTED_BY_SYSTEMD).is_dir() && find("systemd-run").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_is_ended_whether_it_was_noted_or_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let records = || Records::new(folder.path().to_owned());
        let services = Services { records: records(), by_systemd: false };
        // Nobody else sleeps for as long.
        let arguments = [OsString::from(format!("{}", 100_000 + std::process::id()))];
        let start = || services.start(Service::Dnsmasq, Path::new("sleep"), &arguments, "text").expect("it starts");
        let noted = || services.started(Service::Dnsmasq).expect("readable").expect("it was started");

        start();
        let process = noted().process.expect("it is known");
        assert_eq!(services.running(Service::Dnsmasq).expect("readable").as_deref(), Some("text"));
        // As it is when whoever starts it is killed in between.
        services.note(Service::Dnsmasq, &Started { process: None, ..noted() }).expect("writable");
        assert_eq!(services.running(Service::Dnsmasq).expect("readable"), None, "nobody knows whether it is complete");
        assert!(services.is_between(Service::Dnsmasq).expect("readable"));
        assert!(Process::running(&noted().arguments).contains(&process));
        services.stop(Service::Dnsmasq).expect("ours");
        assert!(!process.is_alive() && services.started(Service::Dnsmasq).expect("readable").is_none());

        start();
        let process = noted().process.expect("it is known");
        assert!(!services.is_between(Service::Dnsmasq).expect("readable"));
        // As it is when whoever ends it is killed before it has ended.
        services.note(Service::Dnsmasq, &Started { is_ending: true, ..noted() }).expect("writable");
        assert!(services.is_between(Service::Dnsmasq).expect("readable"));
        assert_eq!(services.running(Service::Dnsmasq).expect("readable"), None, "it is as good as gone");
        services.stop(Service::Dnsmasq).expect("ours");
        assert!(!process.is_alive());
        services.stop(Service::Dnsmasq).expect("there is none");
    }
}
