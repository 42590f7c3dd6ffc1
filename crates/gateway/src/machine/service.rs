//! Long-running programs. On a machine with systemd, they are transient units. Otherwise they are processes in sessions
//! of their own, identified by their start time.
//!
//! systemd restarts a program that dies. Without systemd, a dead program is not restarted, and `status` reports it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;
use serde::{Deserialize, Serialize};

use super::command::{find, run, search_path};
use super::error::GatewayError;
use super::process::Process;
use super::records::Records;

/// Directory that exists when systemd runs the machine.
const BOOTED_BY_SYSTEMD: &str = "/run/systemd/system";

/// The unit that sets the gateway up after a boot, and again when the gateway's VPN program has died.
pub(super) const UNIT: &str = "hostler-gateway.service";

/// Starts and stops the programs.
#[derive(Debug)]
pub(super) struct Services {
    records: Records,
    by_systemd: bool,
}

/// A long-running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Dnsmasq,
    /// `wireguard-go`, for kernels without WireGuard.
    WireGuard,
    /// The process that rolls back an unconfirmed change.
    Guard,
}

/// Record of a started service. The record is written before and after the start, so that no process is lost.
#[derive(Debug, Serialize, Deserialize)]
struct Started {
    /// The process; `None` under systemd, and if the starting process was killed before it could write the pid.
    process: Option<Process>,
    /// Arguments for finding the process; empty under systemd.
    #[serde(default)]
    arguments: Vec<OsString>,
    #[serde(default)]
    is_ending: bool,
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

    pub(super) fn by_systemd(&self) -> bool {
        self.by_systemd
    }

    /// Starts a program in the foreground. The record of the service contains `configuration`.
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
        self.records.write_text(&service.record(), &serde_json::to_string(started).expect("a record is valid JSON"))
    }

    fn start_unit(&self, service: Service, program: &Path, arguments: &[OsString]) -> Result<(), GatewayError> {
        let unit = service.unit();
        // A unit that has failed would prevent a new unit of the same name.
        let _ = run("systemctl", &["reset-failed", &unit]);
        let on_death = match service {
            Service::Dnsmasq => "--property=Restart=on-failure".to_owned(),
            // A restarted program has no key, address and clients, so start the unit that sets up the whole gateway.
            // `OnFailure=` does not work: its reference to the unit would keep the unit's name in use.
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
        // SAFETY: only async-signal-safe system calls, and no access to this process's memory.
        unsafe {
            command.pre_exec(|| {
                // Detach from the caller's session, which may be killed.
                nix::unistd::setsid()?;
                // Inherited pipes must not stay open as long as the service.
                libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                Ok(())
            });
        }
        let child = command.spawn().map_err(|error| self.ended(service, &error.to_string()))?;
        Process::of(i32::try_from(child.id()).unwrap_or(0))
            .ok_or_else(|| self.ended(service, "the process ended at once"))
    }

    pub(super) fn stop(&self, service: Service) -> Result<(), GatewayError> {
        if let Some(mut started) = self.started(service)? {
            started.is_ending = true;
            self.note(service, &started)?;
            let failed = |error| self.records.failed("end the process recorded in", &service.record(), error);
            match started.process {
                Some(process) => process.end().map_err(failed)?,
                None if started.arguments.is_empty() => stop_unit(&service.unit())?,
                // The starting process was killed. It and the new process before its exec held the lock, which this
                // process holds now. So the new process has executed the program, and its arguments identify it.
                None => Process::running(&started.arguments).iter().try_for_each(Process::end).map_err(failed)?,
            }
        }
        self.records.remove(&service.record())
    }

    /// The configuration of a running service.
    pub(super) fn running(&self, service: Service) -> Result<Option<String>, GatewayError> {
        let Some(started) = self.started(service)?.filter(|started| !started.is_ending) else { return Ok(None) };
        let is_alive = match &started.process {
            Some(process) => process.is_alive(),
            None if !started.arguments.is_empty() => false,
            None => run("systemctl", &["is-active", "--quiet", &service.unit()]).is_ok(),
        };
        Ok(is_alive.then_some(started.configuration))
    }

    /// Whether a start or stop of the service was interrupted.
    pub(super) fn is_interrupted(&self, service: Service) -> Result<bool, GatewayError> {
        let is_interrupted = |it: &Started| it.is_ending || (it.process.is_none() && !it.arguments.is_empty());
        Ok(self.started(service)?.is_some_and(|started| is_interrupted(&started)))
    }

    /// Error for a service that does not run, with the last line of the service's log.
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

/// Stops a unit. Fails only if the unit still runs afterwards, because `systemctl stop` also fails for a unit that has
/// ended.
pub(super) fn stop_unit(unit: &str) -> Result<(), GatewayError> {
    let stopped = run("systemctl", &["stop", unit]).map(drop);
    if run("systemctl", &["is-active", "--quiet", unit]).is_ok() { stopped } else { Ok(()) }
}

pub(super) fn is_systemd() -> bool {
    Path::new(BOOTED_BY_SYSTEMD).is_dir() && find("systemd-run").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_stopped_even_after_an_interrupted_start_or_stop() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let records = || Records::new(folder.path().to_owned());
        let services = Services { records: records(), by_systemd: false };
        // A unique duration.
        let arguments = [OsString::from(format!("{}", 100_000 + std::process::id()))];
        let start =
            || services.start(Service::Dnsmasq, Path::new("sleep"), &arguments, "text").expect("the service starts");
        let noted = || services.started(Service::Dnsmasq).expect("readable").expect("the service was started");

        start();
        let process = noted().process.expect("known");
        assert_eq!(services.running(Service::Dnsmasq).expect("readable").as_deref(), Some("text"));
        // As after a kill during the start.
        services.note(Service::Dnsmasq, &Started { process: None, ..noted() }).expect("writable");
        assert_eq!(
            services.running(Service::Dnsmasq).expect("readable"),
            None,
            "an incomplete start does not count as running"
        );
        assert!(services.is_interrupted(Service::Dnsmasq).expect("readable"));
        assert!(Process::running(&noted().arguments).contains(&process));
        services.stop(Service::Dnsmasq).expect("permitted");
        assert!(!process.is_alive() && services.started(Service::Dnsmasq).expect("readable").is_none());

        start();
        let process = noted().process.expect("known");
        assert!(!services.is_interrupted(Service::Dnsmasq).expect("readable"));
        // As after a kill during the stop.
        services.note(Service::Dnsmasq, &Started { is_ending: true, ..noted() }).expect("writable");
        assert!(services.is_interrupted(Service::Dnsmasq).expect("readable"));
        assert_eq!(
            services.running(Service::Dnsmasq).expect("readable"),
            None,
            "a service that is being stopped does not count as running"
        );
        services.stop(Service::Dnsmasq).expect("permitted");
        assert!(!process.is_alive());
        services.stop(Service::Dnsmasq).expect("stopping a stopped service succeeds");
    }
}
