//! IPMI controllers: two independent emulators, one process per machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;

use hostler_testkit::{Host, ipmi_sim, program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::bmcs::{Bmcs, Fault, secret_path, write_secret};

/// The chassis of an `ipmi_sim`. It stores its state in a file and executes orders after one or two seconds, unless
/// it is stuck.
const CHASSIS: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
later() {
    [ -e stuck ] || (sleep $(($(od -An -N1 -tu1 /dev/urandom) % 2 + 1)); echo "$1" > power) < /dev/null > /dev/null 2>&1 &
}
case "$1 $2" in
'get power') echo "power:$(cat power)" ;;
'set power') later "$3" ;;
'set shutdown') later 0 ;;
esac
"#;

/// The kinds of emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmulatorKind {
    /// OpenIPMI, whose chassis is a script.
    Sim,
    /// pyghmi, which prints its actions on stdout.
    Fake,
}

pub(crate) struct Ipmi {
    maker: EmulatorKind,
    head: Arc<Host>,
    machines: BTreeMap<String, Machine>,
    directory: TempDir,
    // Last: the emulators run on it.
    host: Host,
}

struct Machine {
    port: u16,
    emulator: Child,
}

impl Ipmi {
    /// Starts controllers of machines that are all off.
    pub(crate) fn start(maker: EmulatorKind, host: Host, head: Arc<Host>, machines: &[String]) -> Self {
        let _ = program("ipmitool", "install the package ipmitool");
        let directory = tempfile::tempdir().expect("a directory");
        let start = |(name, port): (&String, u16)| {
            let place = directory.path().join(name);
            fs::create_dir(&place).expect("the directory can be created");
            write_secret(&head, name, "admin:password");
            let mut command = match maker {
                EmulatorKind::Sim => sim(&host, &place, port),
                EmulatorKind::Fake => fake(&host, port),
            };
            let log = File::create(place.join("log")).expect("the file is writable");
            let errors = log.try_clone().expect("a descriptor can be doubled");
            let emulator = command.stdout(log).stderr(errors).spawn().expect("nsenter can be started");
            (name.clone(), Machine { port, emulator })
        };
        let machines = machines.iter().zip(9001..).map(start).collect();
        let it = Self { maker, head, machines, directory, host };
        for machine in it.machines.keys() {
            wait_until("an emulator to answer", 60, || it.tool(machine, "status").then_some(()));
        }
        it
    }

    /// Runs `ipmitool chassis power` on the emulators' host; returns whether it succeeded.
    fn tool(&self, machine: &str, verb: &str) -> bool {
        let port = self.machines[machine].port.to_string();
        let mut command = self.host.in_network(&program("ipmitool", "install the package ipmitool"));
        command.args([
            "-I",
            "lanplus",
            "-C",
            "3",
            "-N",
            "2",
            "-R",
            "2",
            "-H",
            self.host.address(),
            "-p",
            &port,
            "-U",
            "admin",
        ]);
        command.args(["-E", "chassis", "power", verb]).env("IPMI_PASSWORD", "password");
        command.output().is_ok_and(|output| output.status.success())
    }

    fn signal(&self, machine: &str, signal: Signal) {
        let pid = Pid::from_raw(self.machines[machine].emulator.id().cast_signed());
        kill(pid, signal).expect("the process runs");
    }
}

impl Bmcs for Ipmi {
    fn table(&self, machine: &str) -> String {
        format!(
            "{{ kind = 'ipmi', address = '{}', port = {}, cipher = 3, credentials = '{}', time_limit = '6s' }}",
            self.host.address(),
            self.machines[machine].port,
            secret_path(machine)
        )
    }

    fn is_on(&self, machine: &str) -> bool {
        let read = |name: &str| fs::read_to_string(self.directory.path().join(machine).join(name)).unwrap_or_default();
        match self.maker {
            EmulatorKind::Sim => read("power").trim() == "1",
            EmulatorKind::Fake => {
                let log = read("log");
                let done = ["powered on", "abruptly remove power", "politely shut down the system"];
                log.lines().rfind(|line| done.contains(line)) == Some(done[0])
            }
        }
    }

    fn press(&self, machine: &str, on: bool) {
        match self.maker {
            EmulatorKind::Sim => {
                let state = self.directory.path().join(machine).join("power");
                fs::write(state, if on { "1\n" } else { "0\n" }).expect("the file is writable");
            }
            EmulatorKind::Fake => wait_until("the emulator to execute the order", 30, || {
                self.tool(machine, if on { "on" } else { "off" }).then_some(())
            }),
        }
    }

    fn spoil(&self, machine: &str, fault: Fault) -> bool {
        match (fault, self.maker) {
            (Fault::Silent, _) => self.signal(machine, Signal::SIGSTOP),
            (Fault::WrongPassword, _) => write_secret(&self.head, machine, "admin:wrong"),
            (Fault::Idle, EmulatorKind::Sim) => {
                fs::write(self.directory.path().join(machine).join("stuck"), "").expect("the file is writable");
            }
            (Fault::Idle, EmulatorKind::Fake) | (Fault::Busy, _) => return false,
        }
        true
    }

    fn mend(&self, machine: &str) {
        self.signal(machine, Signal::SIGCONT);
        write_secret(&self.head, machine, "admin:password");
        let _ = fs::remove_file(self.directory.path().join(machine).join("stuck"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

fn sim(host: &Host, place: &Path, port: u16) -> Command {
    let arguments = ipmi_sim(place, (host.address(), port), CHASSIS);
    let mut command = host.in_network(&program("ipmi_sim", "install the package openipmi"));
    command.current_dir(place).args(arguments);
    command
}

fn fake(host: &Host, port: u16) -> Command {
    let mut command = host.in_network(&program("fakebmc", "install the Python package pyghmi"));
    command.args(["--port", &port.to_string()]).env("PYTHONUNBUFFERED", "1");
    command
}
