//! The head of a swarm: a real head with its own directory and port.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Timeout for the head to be ready.
const DEADLINE: Duration = Duration::from_secs(30);

/// Clock ticks per second in `/proc`, on every Linux machine.
const TICKS: f64 = 100.0;

/// A head process. Dropping it kills the head.
pub(crate) struct Head {
    executable: PathBuf,
    directory: TempDir,
    child: Child,
}

impl Head {
    /// Sets up a head and starts it.
    pub(crate) async fn start(executable: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("hostler-swarm-").tempdir()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (listen, place) = (port.to_string(), directory.path().join("head"));
        let mut init = Command::new(executable);
        init.args(["head", "init", "--listen", &listen, "--advertise", &listen, "--directory"]).arg(place);
        let output = init.output().await.context("cannot start the program")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let child = spawn(executable, directory.path())?;
        let head = Self { executable: executable.to_owned(), directory, child };
        head.ready().await?;
        Ok(head)
    }

    /// Sends SIGKILL to the head.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await?;
        Ok(fs::remove_file(self.announcement())?)
    }

    pub(crate) async fn run(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.executable, self.directory.path())?;
        self.ready().await
    }

    /// Runs an array with this number of tasks to its end.
    pub(crate) async fn run_array(&self, tasks: usize) -> anyhow::Result<()> {
        let mut command = Command::new(&self.executable);
        let array = format!("0-{}", tasks.saturating_sub(1));
        command.arg("--head").arg(format!("unix:{}", self.socket().display()));
        command.args(["run", "--detach", "-m", "16M", "-a", &array, "--", "true"]).current_dir("/");
        let output = command.output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let id = String::from_utf8(output.stdout)?;
        let mut wait = Command::new(&self.executable);
        wait.arg("--head").arg(format!("unix:{}", self.socket().display())).args(["wait", id.trim()]);
        let output = wait.output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The head's socket for users.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("head/head.sock")
    }

    /// Resident memory of the head, in KiB.
    pub(crate) fn memory_kib(&self) -> anyhow::Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// CPU time of the head since its start, in seconds.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = self.proc("stat")?;
        let (_, rest) = stat.rsplit_once(") ").context("/proc/PID/stat has an unknown format")?;
        let ticks: u64 = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(ticks as f64 / TICKS)
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let pid = self.child.id().context("the head has ended")?;
        Ok(fs::read_to_string(format!("/proc/{pid}/{file}"))?)
    }

    /// The file that the head writes when it is ready.
    fn announcement(&self) -> PathBuf {
        self.directory.path().join("head/head.json")
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while !self.announcement().exists() {
            ensure!(Instant::now() < deadline, "the head is not ready: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

fn spawn(executable: &Path, directory: &Path) -> anyhow::Result<Child> {
    let log = File::options().append(true).create(true).open(directory.join("log"))?;
    let mut command = Command::new(executable);
    command.args(["head", "run", "--new", "--directory"]).arg(directory.join("head"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    command.spawn().context("cannot start the head")
}
