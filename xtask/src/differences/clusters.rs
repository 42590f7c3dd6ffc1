//! The two clusters: a real Slurm with daemons of its own, and Hostler with nodes of the same names and sizes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::side::Side;
use crate::workspace::{find_program, shown};

/// Programs of the real Slurm, and the Debian package that has each of them.
const PROGRAMS: [(&str, &str); 9] = [
    ("sbatch", "slurm-client"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("slurmdbd", "slurmdbd"),
    ("munged", "munge"),
    ("mariadbd", "mariadb-server-core"),
    ("setpriv", "util-linux"),
    ("bash", "bash"),
    ("hostname", "hostname"),
];

/// Size of both clusters.
const NODES: u32 = 2;
const CPUS: u32 = 2;
const MEMORY_MIB: u32 = 1024;

/// How long a daemon may take to start or to stop.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(60);

/// A real Slurm. Dropping it ends its daemons.
pub(crate) struct Slurm {
    directory: PathBuf,
    daemons: Vec<Child>,
}

/// A Hostler cluster. Dropping it stops the cluster.
pub(crate) struct Hostler {
    program: PathBuf,
    side: Side,
}

/// Fails if a program of the real Slurm is missing, and says how to install it.
pub(crate) fn check_programs() -> Result<()> {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
        bail!(
            "not installed: {}; on Debian: apt install --no-install-recommends slurm-client slurmctld slurmd slurmdbd \
             slurm-wlm-mysql-plugin munge mariadb-server-core",
            names.join(", ")
        );
    }
    // SAFETY: `geteuid` has no preconditions.
    ensure!(unsafe { libc::geteuid() } == 0, "Slurm's daemons need root: run this task as root");
    Ok(())
}

impl Slurm {
    /// Starts all daemons in a new directory. `features` are those of the nodes.
    /// The directory becomes private, because the database does not ask for a password.
    pub(crate) fn up(directory: &Path, features: &str) -> Result<Self> {
        let mut slurm = Self { directory: directory.to_owned(), daemons: Vec::new() };
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        slurm.configure(features)?;
        let mut key = [0; 128];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        fs::File::options().write(true).create_new(true).mode(0o400).open(slurm.path("munge.key"))?.write_all(&key)?;
        let file = |option: &str, name: &str| format!("--{option}={}", slurm.path(name).display());
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            file("socket", "munge.socket"),
            file("key-file", "munge.key"),
            file("pid-file", "munge.pid"),
            file("log-file", "munge.log"),
            file("seed-file", "munge.seed"),
        ];
        // Without grant tables, the database needs no system tables, and starts from an empty directory.
        let database = [
            "--no-defaults".to_owned(),
            "--user=root".to_owned(),
            file("datadir", "database"),
            file("socket", "database.socket"),
            file("pid-file", "database.pid"),
            "--skip-networking".to_owned(),
            "--skip-grant-tables".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
        ];
        slurm.start("munged", &munge)?;
        slurm.start("mariadbd", &database)?;
        let socket = slurm.path("munge.socket");
        slurm.wait("munge to listen", || Ok(socket.exists()))?;
        let socket = slurm.path("database.socket");
        slurm.wait("the database to listen", || Ok(UnixStream::connect(&socket).is_ok()))?;
        slurm.start("slurmdbd", &["-D".to_owned()])?;
        let accounting = fs::read_to_string(slurm.path("accounting.port"))?;
        slurm.wait("slurmdbd to listen", || Ok(TcpStream::connect(format!("127.0.0.1:{accounting}")).is_ok()))?;
        slurm.start("slurmctld", &["-D".to_owned()])?;
        for number in 1..=NODES {
            slurm.start("slurmd", &["-D".to_owned(), "-N".to_owned(), format!("n{number}")])?;
        }
        let side = slurm.side(directory)?;
        slurm.wait("the nodes to be idle", || {
            Ok(side.run("sinfo -h -t idle -o %D")?.stdout.trim() == NODES.to_string())
        })?;
        // Hostler shows this account for jobs that name none.
        side.set_up("sacctmgr -i add account default")?;
        side.set_up("sacctmgr -i add user root account=default defaultaccount=default")?;
        Ok(slurm)
    }

    /// How a user sees this cluster from a home directory.
    pub(crate) fn side(&self, home: &Path) -> Result<Side> {
        let path = std::env::var("PATH").context("PATH is not set")?;
        let configuration = self.path("slurm.conf").display().to_string();
        let environment = vec![("PATH".to_owned(), path), ("SLURM_CONF".to_owned(), configuration)];
        let side = Side::new("Slurm", home.to_owned(), environment);
        let version = side.run("sbatch --version")?.stdout;
        ensure!(version.starts_with("slurm-wlm "), "`sbatch` on PATH is not that of a Debian package: {version}");
        Ok(side)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn configure(&self, features: &str) -> Result<()> {
        for name in ["state", "spool", "database"] {
            fs::create_dir(self.path(name))?;
        }
        let host = Command::new("hostname").arg("-s").output().context("cannot run `hostname`")?;
        let host = String::from_utf8(host.stdout)?.trim().to_owned();
        let here = self.directory.display();
        // Held open until all are chosen, so that no two are the same.
        let held = (0..4).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
        let ports = held.iter().map(|port| Ok(port.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
        let [controller, accounting, first, second] = ports[..] else { bail!("four ports were bound") };
        fs::write(self.path("accounting.port"), accounting.to_string())?;
        let munge = format!("AuthType=auth/munge\nAuthInfo=socket={here}/munge.socket\n");
        let mut text = format!(
            "ClusterName=hostler\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n{munge}\
             CredType=cred/munge\nSlurmUser=root\nSlurmdUser=root\n\
             CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n\
             SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd.%n.pid\nSlurmdSpoolDir={here}/spool/%n\n\
             StateSaveLocation={here}/state\nSlurmctldLogFile={here}/slurmctld.log\nSlurmdLogFile={here}/slurmd.%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/cgroup\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nDefMemPerNode=512\n\
             SchedulerParameters=batch_sched_delay=0,bf_interval=5\nSlurmdParameters=config_overrides\n\
             GresTypes=gpu\nAllowSpecResourcesUsage=YES\nReturnToService=2\nKillWait=2\nAccountingStorageType=accounting_storage/slurmdbd\n\
             AccountingStorageHost=127.0.0.1\nAccountingStoragePort={accounting}\n\
             AccountingStoragePass={here}/munge.socket\nJobAcctGatherType=jobacct_gather/linux\n"
        );
        for (name, port) in [("n1", first), ("n2", second)] {
            text += &format!(
                "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} \
                 RealMemory={MEMORY_MIB} Weight=0 Feature={features} State=UNKNOWN\n"
            );
        }
        text += "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        fs::write(self.path("slurm.conf"), text)?;
        // The kernel kills what needs more memory than its job has. Slurm finds the version of the control groups itself.
        fs::write(self.path("cgroup.conf"), "CgroupPlugin=autodetect\nIgnoreSystemd=yes\nConstrainRAMSpace=yes\n")?;
        let text = format!(
            "{munge}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={accounting}\nSlurmUser=root\n\
             PidFile={here}/slurmdbd.pid\nLogFile={here}/slurmdbd.log\nStorageType=accounting_storage/mysql\n\
             StorageHost=localhost\nStorageUser=root\nStorageLoc=slurm\n"
        );
        fs::write(self.path("slurmdbd.conf"), text)?;
        fs::set_permissions(self.path("slurmdbd.conf"), fs::Permissions::from_mode(0o600))?;
        Ok(())
    }

    /// Starts a daemon in the foreground. It also ends when this process is killed.
    fn start(&mut self, program: &str, arguments: &[String]) -> Result<()> {
        let path = find_program(program).with_context(|| format!("{program} is not installed"))?;
        let log = fs::File::options().create(true).append(true).open(self.path(&format!("{program}.out")))?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "--"])
            .arg(path)
            .args(arguments)
            .env("SLURM_CONF", self.path("slurm.conf"))
            // slurmdbd has no option for the database's socket. Its client library reads this variable.
            .env("MYSQL_UNIX_PORT", self.path("database.socket"));
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push(command.spawn().with_context(|| format!("cannot start {program}"))?);
        Ok(())
    }

    fn wait(&mut self, what: &str, is_done: impl Fn() -> Result<bool>) -> Result<()> {
        let end = Instant::now() + DAEMON_TIMEOUT;
        while !is_done()? {
            for daemon in &mut self.daemons {
                if let Some(status) = daemon.try_wait()? {
                    bail!("a daemon of Slurm ended ({status}) during the wait for {what}:\n{}", self.logs());
                }
            }
            ensure!(Instant::now() < end, "timed out waiting for {what}:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The last lines of each daemon's output.
    fn logs(&self) -> String {
        let tail = |program: &str| {
            let text = fs::read_to_string(self.path(&format!("{program}.out"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{program}: {}\n", lines[lines.len().saturating_sub(5)..].join("\n    "))
        };
        ["munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd"].map(tail).concat()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Daemons that depend on others end first.
        while let Some(mut daemon) = self.daemons.pop() {
            if let Ok(pid) = libc::pid_t::try_from(daemon.id()) {
                // SAFETY: `kill` takes no pointers, and the child has not been waited for.
                unsafe { libc::kill(pid, libc::SIGTERM) };
            }
            let end = Instant::now() + DAEMON_TIMEOUT;
            while Instant::now() < end && matches!(daemon.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        // Slurm leaves the control groups of its nodes.
        for number in 1..=NODES {
            let _ = fs::remove_dir(format!("/sys/fs/cgroup/memory/slurm_n{number}"));
        }
    }
}

impl Hostler {
    /// Starts a cluster with the state in `directory`, seen from the home directory `home`.
    pub(crate) fn up(program: &Path, directory: &Path, home: &Path) -> Result<Self> {
        let mut environment = Vec::new();
        for (name, part) in
            [("CONFIG_HOME", "config"), ("DATA_HOME", "data"), ("STATE_HOME", "state"), ("CACHE_HOME", "cache")]
        {
            environment.push((format!("XDG_{name}"), directory.join(part).display().to_string()));
        }
        let runtime = directory.join("run");
        fs::create_dir(&runtime)?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))?;
        environment.push(("XDG_RUNTIME_DIR".to_owned(), runtime.display().to_string()));
        let links = directory.join("links");
        let path = std::env::var("PATH").context("PATH is not set")?;
        environment.push(("PATH".to_owned(), format!("{}:{path}", links.display())));
        let side = Side::new("Hostler", home.to_owned(), environment);
        let hostler = Self { program: program.to_owned(), side };
        let [nodes, cpus] = [NODES, CPUS].map(|number| number.to_string());
        hostler.call(&["up", "--nodes", &nodes, "--cpus", &cpus, "--memory", &format!("{MEMORY_MIB}M")])?;
        hostler.call(&["shims", &links.display().to_string()])?;
        Ok(hostler)
    }

    /// How a user sees this cluster.
    pub(crate) fn side(&mut self) -> &mut Side {
        &mut self.side
    }

    fn call(&self, words: &[&str]) -> Result<()> {
        let mut command = self.side.command(&self.program.display().to_string());
        let output = command.args(words).output().with_context(|| format!("cannot run `{}`", shown(&command)))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}` failed: {stderr}", shown(&command));
        Ok(())
    }
}

impl Drop for Hostler {
    fn drop(&mut self) {
        if let Err(error) = self.call(&["down", "--cancel"]).or_else(|_| self.call(&["down", "--keep"])) {
            eprintln!("warning: the Hostler cluster in {} did not stop: {error:#}", self.side.home().display());
        }
    }
}
