//! An embedded cluster in a private home, controlled by the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::workspace::shown;

/// Four virtual nodes with two CPUs each, as in the measurements of the peers.
const SIZE: [&str; 6] = ["--nodes", "4", "--cpus", "2", "--memory", "4000M"];

/// The uid and gid of a user other than root, usually named `nobody`.
const ANOTHER_USER: (u32, u32) = (65534, 65534);

/// A running cluster. Dropping it stops the cluster and removes its files.
pub(crate) struct Cluster {
    program: PathBuf,
    home: TempDir,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Daemon {
    pub(crate) pid: u32,
    pub(crate) role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Head,
    Agent,
    /// Launchers, shepherds and other processes of the daemons.
    Helper,
}

impl Cluster {
    /// Starts a cluster and waits until its nodes are ready.
    pub(crate) fn up(program: &Path) -> Result<Self> {
        Self::up_within(program, &[])
    }

    /// Like [`Self::up`], with a view of the machine without control groups. Needs root.
    pub(crate) fn up_without_control_groups(program: &Path) -> Result<Self> {
        let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
        Self::up_within(program, &["unshare", "--mount", "sh", "-c", hide, "sh"])
    }

    /// Like [`Self::up`], so that jobs of [`ANOTHER_USER`] can be submitted and can have a sandbox. Needs root.
    pub(crate) fn up_for_another_user(program: &Path) -> Result<Self> {
        let (user, group) = ANOTHER_USER;
        let traversable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o711));
        let cluster = Self::prepared(program)?;
        let home = cluster.home.path();
        traversable(home)?;
        traversable(&home.join("run"))?;
        // Sandboxes open the folder of a job with the rights of its user.
        for directory in ["state", "state/hostler", "state/hostler/nodes"] {
            fs::create_dir(home.join(directory))?;
            traversable(&home.join(directory))?;
        }
        let copy = home.join("hostler");
        fs::copy(&cluster.program, copy)?;
        let folder = home.join("folder");
        fs::create_dir(&folder)?;
        std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        cluster.output(cluster.command(&["up"]).args(SIZE))?;
        traversable(&home.join("run/hostler"))?;
        // On most systems, the account is one of the system.
        cluster.output(&mut cluster.command(&["configure", "setting", "system-accounts", "yes"]))?;
        Ok(cluster)
    }

    /// `hostler WORDS…` as [`ANOTHER_USER`], in a folder of that user.
    pub(crate) fn command_of_another_user(&self, words: &[&str]) -> Command {
        let (user, group) = ANOTHER_USER;
        let folder = self.home.path().join("folder");
        let mut command = Command::new(self.home.path().join("hostler"));
        command.args(words).uid(user).gid(group).current_dir(&folder).env_clear().env("HOME", &folder);
        command.env("PATH", "/usr/bin:/bin");
        command.env("HOSTLER_HEAD", format!("unix:{}", self.home.path().join("run/hostler/n1.sock").display()));
        command
    }

    /// Starts a cluster through the wrapper command `within`.
    fn up_within(program: &Path, within: &[&str]) -> Result<Self> {
        let cluster = Self::prepared(program)?;
        let mut up = match within.split_first() {
            None => cluster.command(&[]),
            Some((outer, words)) => {
                let mut command = cluster.in_its_home(Path::new(outer));
                command.args(words).arg(&cluster.program);
                command
            }
        };
        cluster.output(up.arg("up").args(SIZE))?;
        Ok(cluster)
    }

    /// The home of a cluster that does not run yet.
    fn prepared(program: &Path) -> Result<Self> {
        // Short, for the sake of socket paths.
        let home = tempfile::Builder::new().prefix("hb").rand_bytes(4).tempdir()?;
        let runtime = home.path().join("run");
        fs::create_dir(&runtime)?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))?;
        Ok(Self { program: program.to_owned(), home })
    }

    /// Creates an empty project folder.
    pub(crate) fn empty_project(&self) -> Result<PathBuf> {
        let project = self.home.path().join("empty");
        fs::create_dir_all(&project)?;
        Ok(project)
    }

    /// `hostler WORDS…` in the home of this cluster.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.in_its_home(&self.program);
        command.args(words);
        command
    }

    /// A command of another program in the home of this cluster.
    pub(crate) fn other(&self, program: &str) -> Command {
        self.in_its_home(Path::new(program))
    }

    fn in_its_home(&self, program: &Path) -> Command {
        let home = self.home.path();
        let mut command = Command::new(program);
        command.current_dir(home).env_clear().env("HOME", home);
        for name in ["PATH", "TMPDIR", "SSL_CERT_FILE", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        for (name, directory) in [("CONFIG", "config"), ("DATA", "data"), ("STATE", "state"), ("CACHE", "cache")] {
            command.env(format!("XDG_{name}_HOME"), home.join(directory));
        }
        command.env("XDG_RUNTIME_DIR", home.join("run"));
        command
    }

    /// The trimmed stdout of `command`.
    pub(crate) fn output(&self, command: &mut Command) -> Result<String> {
        let shown = shown(command);
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{shown}` failed ({}): {}", output.status, stderr.trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Submits one job of `true` with an empty folder, and returns its id. `flags` precede the project.
    pub(crate) fn submit(&self, project: &Path, flags: &[&str]) -> Result<String> {
        self.output(self.command(&["submit"]).args(flags).arg(project).arg("true"))
    }

    /// Resident memory of the head in KiB.
    pub(crate) fn head_kib(&self) -> Result<f64> {
        let daemons = self.daemons()?;
        let head = daemons.iter().find(|daemon| daemon.role == Role::Head);
        Ok(head.context("the head is not among its processes")?.resident_kib())
    }

    /// Stops the cluster. Its files stay.
    pub(crate) fn down(&self) -> Result<()> {
        self.output(&mut self.command(&["down"])).map(drop)
    }

    /// Restarts the cluster after [`Self::down`].
    pub(crate) fn up_again(&self) -> Result<()> {
        self.output(self.command(&["up"]).args(SIZE)).map(drop)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.home.path().join("state/hostler/head/head.db")
    }

    /// Waits until the jobs have ended. Splits the list if it exceeds the length of a command line.
    pub(crate) fn wait(&self, ids: &[String]) -> Result<()> {
        for ids in ids.chunks(5_000) {
            self.output(self.command(&["wait"]).args(ids))?;
        }
        Ok(())
    }

    pub(crate) fn cancel(&self, ids: &[String]) -> Result<()> {
        for ids in ids.chunks(5_000) {
            self.output(self.command(&["cancel"]).args(ids))?;
        }
        Ok(())
    }

    /// Whether a node cannot enforce memory or CPU limits.
    pub(crate) fn is_advisory(&self) -> Result<bool> {
        let nodes: Value = serde_json::from_str(&self.output(&mut self.command(&["nodes", "--json"]))?)?;
        let lacks = |node: &Value| ["cpus", "memory"].iter().any(|limit| node["advisory"][limit].is_string());
        Ok(nodes.as_array().is_some_and(|nodes| nodes.iter().any(lacks)))
    }

    /// The processes of this cluster that run the program, except clients.
    pub(crate) fn daemons(&self) -> Result<Vec<Daemon>> {
        let info: Value = serde_json::from_str(&self.output(&mut self.command(&["info", "--json"]))?)?;
        let head = info["head"]["pid"].as_u64().context("`info --json` names no head.pid")?;
        let home = self.home.path().as_os_str().as_encoded_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
            let contains = |file: &str| {
                let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                content.windows(home.len()).any(|window| window == home)
            };
            let ours = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == self.program);
            if ours && (contains("environ") || contains("cmdline")) {
                found.push(Daemon { pid, role: role(pid, head) });
            }
        }
        Ok(found)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Jobs that wait go with the home; what matters is that no process stays behind, and no-ops end by themselves.
        if let Err(error) = self.output(&mut self.command(&["down", "--keep"])) {
            eprintln!("warning: the cluster in {} did not go down: {error:#}", self.home.path().display());
        }
    }
}

/// Environment variables as in a user's shell: about 5 kB.
pub(crate) fn ordinary_environment() -> impl Iterator<Item = (String, String)> {
    (0..60).map(|number| (format!("ORDINARY_VARIABLE_{number}"), format!("{number}-{}", "value".repeat(12))))
}

/// The role of process `pid`. Launchers and shepherds have the command line of their agent, and another name.
fn role(pid: u32, head: u64) -> Role {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let is_helper = ["hostler-launch", "hostler-sheph"].iter().any(|name| read("comm").starts_with(name.as_bytes()));
    match read("cmdline").split(|byte| *byte == 0).nth(1) {
        _ if u64::from(pid) == head => Role::Head,
        Some(b"agent") if !is_helper => Role::Agent,
        _ => Role::Helper,
    }
}

impl Daemon {
    /// Resident memory in KiB; 0 if the process has ended.
    pub(crate) fn resident_kib(self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
    }

    /// CPU time since the start, in clock ticks; 0 if the process has ended.
    pub(crate) fn cpu_ticks(self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name in parentheses may hold anything; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_of_a_process_are_read() {
        let this = Daemon { pid: std::process::id(), role: Role::Helper };
        assert!(this.resident_kib() > 500.0);
        let before = this.cpu_ticks();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while this.cpu_ticks() <= before {
            assert!(std::time::Instant::now() < deadline, "spinning costs CPU time");
        }
    }
}
