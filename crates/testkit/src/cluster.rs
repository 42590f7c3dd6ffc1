//! A private home directory, and the embedded cluster whose files are in it.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{is_alive, kill, processes_with, wait_until};

#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub nodes: u32,
    /// CPUs per node.
    pub cpus: u32,
    /// Memory per node, in the format of `up --memory`.
    pub memory: &'static str,
}

impl Default for Size {
    fn default() -> Self {
        Self { nodes: 2, cpus: 2, memory: "1G" }
    }
}

/// A private home for the executable. Dropping it ends every process of this home and removes the home.
pub struct Cluster {
    home: TempDir,
    executable: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit code; 128 plus the signal number if a signal ended the command.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Cluster {
    /// Creates a home without a cluster.
    ///
    /// # Panics
    /// If no temporary directory can be created.
    #[must_use]
    pub fn none(executable: &str) -> Self {
        // Daemons refuse a directory that others can change, so the umask must not decide.
        let home =
            tempfile::Builder::new().prefix("hostler-test-").permissions(Permissions::from_mode(0o755)).tempdir();
        let home = home.expect("a temporary directory");
        create_private(&home.path().join("run"));
        Self { home, executable: executable.into() }
    }

    /// Creates a home and starts a cluster in it.
    ///
    /// # Panics
    /// If `hostler up` fails.
    #[must_use]
    pub fn up(executable: &str, size: Size) -> Self {
        let cluster = Self::none(executable);
        cluster.start(size);
        cluster
    }

    /// Starts the cluster, or starts it again.
    ///
    /// # Panics
    /// If `hostler up` fails.
    pub fn start(&self, size: Size) {
        let (nodes, cpus) = (size.nodes.to_string(), size.cpus.to_string());
        self.ok(&["up", "--nodes", &nodes, "--cpus", &cpus, "--memory", size.memory]);
    }

    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// A path below the home.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// Writes a file below the home, and creates its parent directories.
    ///
    /// # Panics
    /// If writing fails.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the path has a parent")).expect("directories can be created");
        fs::write(&path, content).expect("a file can be written");
        path
    }

    /// Builds a command of the executable in this home, which is also the command's working directory.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .args(arguments)
            .current_dir(self.home())
            .env_clear()
            .envs(std::env::vars().filter(|(name, _)| configures_index_access(name)))
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command of the executable to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&self.command(arguments).output().expect("the executable can be started"))
    }

    /// Runs a command that must succeed. Returns stdout without the final newline.
    ///
    /// # Panics
    /// If it fails; the message has its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "hostler {arguments:?} failed: {}{}", outcome.stderr, self.logs());
        outcome.stdout.trim_end_matches('\n').to_owned()
    }

    /// Runs a command that must fail. Returns stderr.
    ///
    /// # Panics
    /// If it succeeds.
    #[must_use]
    pub fn fails(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_ne!(outcome.code, 0, "hostler {arguments:?} should fail: {}", outcome.stdout);
        outcome.stderr
    }

    /// Runs a command with `--json`. Returns its output.
    ///
    /// # Panics
    /// If it fails or prints no JSON.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let text = self.ok(&all);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("hostler {all:?} printed no JSON: {error}: {text}"))
    }

    /// The state of a job.
    ///
    /// # Panics
    /// If the job does not exist.
    #[must_use]
    pub fn state(&self, job: &str) -> String {
        self.json(&["job", job])["state"].as_str().expect("a job has a state").to_owned()
    }

    /// Waits until a job has this state.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub fn wait_for_state(&self, job: &str, state: &str) {
        wait_until(&format!("job {job} {state}"), 60, || (self.state(job) == state).then_some(()));
    }

    /// The head's pid.
    ///
    /// # Panics
    /// If the head does not answer.
    #[must_use]
    pub fn head_pid(&self) -> u32 {
        pid(&self.json(&["info"])["head"]["pid"])
    }

    /// The agents' pids.
    ///
    /// # Panics
    /// If the head does not answer.
    #[must_use]
    pub fn agent_pids(&self) -> Vec<u32> {
        let nodes = self.json(&["nodes"]);
        nodes.as_array().expect("a list of nodes").iter().map(|node| pid(&node["agent_pid"])).collect()
    }

    /// Sends SIGKILL to a process of the cluster and waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill_9(&self, pid: u32) {
        kill(pid, Signal::SIGKILL);
        wait_until("a killed process to end", 10, || (!is_alive(pid)).then_some(()));
    }

    /// The logs of all daemons, for messages of failed tests.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        collect_logs(&self.path("state"), &mut text);
        text
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test prints the daemons' logs")]
            {
                eprintln!("{}", self.logs());
            }
        }
        let home = self.home().to_string_lossy().into_owned();
        // Shepherds that are terminated remove their cgroup leaves; the leaves of killed shepherds would stay.
        let _ = self.command(&["down", "--cancel"]).output();
        let gone = std::time::Instant::now() + std::time::Duration::from_secs(3);
        while std::time::Instant::now() < gone && !processes_with(&home).is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        kill_processes_with(&home);
    }
}

/// Kills all processes with `text` in their environment or command line. Repeats this until none is left, because a job
/// outlives its shepherd.
pub(crate) fn kill_processes_with(text: &str) {
    for _ in 0..100 {
        let left = processes_with(text);
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(|pid| kill(pid, Signal::SIGKILL));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Whether a variable configures access to package indexes: proxies, mirrors and certificates.
pub(crate) fn configures_index_access(name: &str) -> bool {
    ["UV_", "PIP_", "SSL_CERT_"].iter().any(|prefix| name.starts_with(prefix))
        || name.to_ascii_lowercase().ends_with("_proxy")
        || name == "REQUESTS_CA_BUNDLE"
}

fn pid(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a process id")).expect("a process id")
}

impl Outcome {
    #[must_use]
    pub fn of(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default());
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Appends the end of every log below `directory`.
pub(crate) fn collect_logs(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("runs") {
            collect_logs(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            text.push_str(&end_of_log(&path));
        }
    }
}

/// Creates a directory that only its owner can access, e.g. for XDG_RUNTIME_DIR, and its parents.
///
/// # Panics
/// If it cannot be created.
pub fn create_private(directory: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).expect("a directory can be created");
}

/// The last lines of a log, with its name.
pub(crate) fn end_of_log(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4000)..]).into_owned();
    format!("\n--- {}\n{tail}", path.display())
}
