//! A real Slurm on this machine for a single test, with its own munge, controller and node daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::{geteuid, gethostname};
use tempfile::TempDir;

use crate::program::{Running, free_port, program};
use crate::wait_until;

/// Slurm with one node of two CPUs. Dropping it ends the daemons.
pub struct Slurm {
    directory: TempDir,
    daemons: Vec<Running>,
}

impl Slurm {
    /// Starts all daemons in a new directory.
    ///
    /// # Panics
    /// Without root or Slurm's programs. The message names the missing program.
    #[must_use]
    pub fn start() -> Self {
        assert!(geteuid().is_root(), "Slurm's daemons need root: run this test as root");
        let how = "install the packages slurm-wlm and munge";
        let [munged, slurmctld, slurmd] = ["munged", "slurmctld", "slurmd"].map(|name| program(name, how));
        let directory = tempfile::Builder::new().prefix("hostler-slurm-").tempdir_in("/tmp").expect("a directory");
        let mut slurm = Self { directory, daemons: Vec::new() };
        slurm.configure();
        let key = slurm.path("munge.key");
        fs::write(&key, [7; 128]).expect("the file is writable");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("the test owns the file");
        let option = |name: &str, file: &str| format!("--{name}={}", slurm.path(file).display());
        let options = [
            option("key-file", "munge.key"),
            option("socket", "munge.socket"),
            option("pid-file", "munge.pid"),
            option("log-file", "munge.log"),
            option("seed-file", "munge.seed"),
        ];
        slurm.run(Command::new(munged).args(["--foreground", "--force"]).args(options), "munged");
        wait_until("munge to listen", 20, || slurm.path("munge.socket").exists().then_some(()));
        slurm.run(Command::new(slurmctld).arg("-D"), "slurmctld");
        slurm.run(Command::new(slurmd).args(["-D", "-N", "borrowed"]), "slurmd");
        wait_until("Slurm's node to be idle", 60, || {
            (slurm.try_ask("sinfo", &["-h", "-o", "%T"]).as_deref() == Some("idle")).then_some(())
        });
        slurm
    }

    fn configure(&self) {
        for name in ["state", "spool"] {
            fs::create_dir(self.path(name)).expect("the directory can be created");
        }
        let host = gethostname().expect("the machine has a hostname").to_string_lossy().into_owned();
        let host = host.split('.').next().expect("a split text has a first part");
        let here = self.directory.path().display();
        let (controller, node) = (free_port(), free_port());
        let text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={controller}\n\
             AuthType=auth/munge\nAuthInfo=socket={here}/munge.socket\nCredType=cred/munge\n\
             CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n\
             SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd.pid\nSlurmdSpoolDir={here}/spool\n\
             StateSaveLocation={here}/state\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\nReturnToService=2\n\
             MpiDefault=none\nKillWait=5\nSchedulerParameters=batch_sched_delay=0\n\
             NodeName=borrowed NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=2 RealMemory=100 State=UNKNOWN\n\
             PartitionName=idle Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(self.path("slurm.conf"), text).expect("the file is writable");
    }

    /// A path below the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&mut self, command: &mut Command, name: &str) {
        command.env("SLURM_CONF", self.path("slurm.conf"));
        let log = self.path(&format!("{name}.out"));
        self.daemons.push(Running::start(command, &log));
    }

    /// Runs one of Slurm's commands and returns its output.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn ask(&self, name: &str, arguments: &[&str]) -> String {
        self.try_ask(name, arguments).unwrap_or_else(|| panic!("`{name}` has failed"))
    }

    fn try_ask(&self, name: &str, arguments: &[&str]) -> Option<String> {
        let output = Command::new(name).args(arguments).env("SLURM_CONF", self.path("slurm.conf")).output();
        let output = output.expect("the program can be started");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["slurmctld.out", "slurmd.out", "munged.out"] {
                #[expect(clippy::print_stderr, reason = "a failing test prints the daemons' logs")]
                {
                    eprintln!("{name}: {}", fs::read_to_string(self.path(name)).unwrap_or_default());
                }
            }
        }
        // Stop dependent daemons first.
        while self.daemons.pop().is_some() {}
    }
}
