//! One of the two clusters that answer the same command lines, and what it answers.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Time after which a line is killed.
const LINE_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest output of a line that is read.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Time after which a condition of a set-up counts as failed.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(60);

/// What the shell of each line knows: `batch` submits a job and waits for its end, faster than `sbatch --wait` of Slurm.
/// A line may write no larger files, because a command of Slurm may repeat an error without end.
const PRELUDE: &str = "ulimit -f 1024\nbatch() { local j; j=$(sbatch --parsable \"$@\") || return; \
    while test -n \"$(squeue -h -j $j 2>/dev/null)\"; do sleep 0.1; done; }\n";

/// A cluster, as a user's shell sees it.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    /// Home directory of the user and working directory of each line.
    home: PathBuf,
    environment: Vec<(String, String)>,
    /// Variables that set-ups have stored, such as ids of jobs.
    pub(crate) variables: Vec<(String, String)>,
}

/// What a command line did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The exit code, or why there is none.
    pub(crate) code: String,
}

impl Side {
    /// A cluster whose commands are found with these variables of the environment.
    pub(crate) fn new(name: &'static str, home: PathBuf, environment: Vec<(String, String)>) -> Self {
        Self { name, home, environment, variables: Vec::new() }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// A command in the environment of this cluster, with no standard input.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.home).env_clear().stdin(Stdio::null());
        command.env("HOME", &self.home).env("USER", "root").env("LOGNAME", "root").env("SHELL", "/bin/sh");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a line of the shell to its end.
    pub(crate) fn run(&self, line: &str) -> Result<Answer> {
        let path = |name: &str| self.home.parent().expect("a home has a parent").join(format!("{}.{name}", self.name));
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        let mut command = self.command("bash");
        command
            .args(["-c", &format!("{PRELUDE}{line}")])
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .process_group(0);
        let mut child = command.spawn().context("cannot start bash")?;
        let end = Instant::now() + LINE_TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > end {
                let group = libc::pid_t::try_from(child.id()).context("a process id fits")?;
                // SAFETY: `kill` takes no pointers. The group is that of our child, which has not been waited for.
                unsafe { libc::kill(-group, libc::SIGKILL) };
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let read = |path: &Path| -> Result<String> {
            let mut bytes = Vec::new();
            File::open(path)?.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Answer { stdout: read(&stdout)?, stderr: read(&stderr)?, code: code(status) })
    }

    /// Runs a line that must succeed, and returns its trimmed standard output.
    pub(crate) fn set_up(&self, line: &str) -> Result<String> {
        let answer = self.run(line)?;
        let Answer { stdout, stderr, code } = &answer;
        ensure!(code == "0", "{}: the set-up `{line}` ended with {code}: {stdout}{stderr}", self.name);
        Ok(stdout.trim().to_owned())
    }

    /// Repeats a line until it succeeds.
    pub(crate) fn wait_for(&self, line: &str) -> Result<()> {
        let end = Instant::now() + CONDITION_TIMEOUT;
        while self.run(line)?.code != "0" {
            if Instant::now() > end {
                let queue = self.run("squeue -t all; sinfo")?.stdout;
                anyhow::bail!("{}: `{line}` does not succeed. The queue:\n{queue}", self.name);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn code(status: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status {
        None => format!("no end within {} s", LINE_TIMEOUT.as_secs()),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => code.to_string(),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        },
    }
}
