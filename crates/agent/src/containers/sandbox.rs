//! Sandboxed jobs: whether this node can run them, and what they see of it.
//!
//! The agent starts one small sandbox, as any job would, before it reports to the head. A kernel or a container may refuse
//! any of the steps, so nothing but the whole recipe proves that it works. A node on which it fails gets no sandboxed
//! jobs: a weaker sandbox would be worse than none.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use hostler_core::agent::RunLaunch;
use hostler_model::{Environment, ImageRef, ImageSource, JobSpec, NodeName, SandboxNetwork, Work};
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{
    CallOptions, Credentials, Event, Folders, JobNetwork, Launch, Launcher, Options, SANDBOX_HOME, Sandbox, Status,
};
use nix::unistd::{getegid, geteuid};

use crate::account::{Account, Accounts};
use crate::job_network;
use crate::provision::environment::Environments;
use crate::provision::gpus::Gpus;
use crate::provision::images::{Images, Obtained};
use crate::runs::directory::{RunDirectory, Runs, WORK};
use crate::runs::leaves::Leaves;
use crate::runs::shepherds;

/// Time for the trial. It usually takes some milliseconds.
const TRIAL_BOUND: Duration = Duration::from_secs(20);

/// Uid and gid for the trial sandbox of an agent of root; usually those of `nobody`. Any user except root works.
const NOBODY: u32 = 65534;

/// Variables about directories and servers that are not in the sandbox.
const OF_OUTSIDE: [&str; 9] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "XAUTHORITY",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "OLDPWD",
];

/// What the admin of a node adds to sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Directories and files of the machine that sandboxed jobs see read-only. If one is missing, or users other than root may
    /// change it, the node runs no sandboxed jobs.
    pub read_only: Vec<String>,
    /// Whether sandboxed jobs that are alone on the node may measure with performance counters. Needs an agent of root.
    pub performance_counters: bool,
}

/// Trials of sandboxes when the agent starts.
pub(crate) struct Trial<'a> {
    pub(crate) launcher: &'a Launcher,
    /// The agent's directory.
    pub(crate) directory: &'a Path,
    pub(crate) leaves: &'a Leaves,
    pub(crate) settings: &'a SandboxSettings,
}

impl Trial<'_> {
    /// Starts a sandbox in the agent's directory. Returns why this node cannot run sandboxed jobs, and what to do.
    pub(crate) async fn sandbox(&self) -> Result<(), String> {
        let tried = self.usual().await;
        if let Err(reason) = &tried {
            if *self.settings == SandboxSettings::default() {
                tracing::info!(%reason, "this node runs no sandboxed jobs");
            } else {
                tracing::warn!(%reason, "this node runs no sandboxed jobs");
            }
        }
        tried
    }

    async fn usual(&self) -> Result<(), String> {
        if self.settings.performance_counters && !geteuid().is_root() {
            return Err("`sandbox.performance_counters` needs an agent of root".to_owned());
        }
        if let Some(closed) = closed_to_users(self.directory).filter(|_| geteuid().is_root()) {
            return Err(format!(
                "sandboxed jobs never run as root, and other users cannot enter {}, which contains the agent's directory; start \
                 `hostler up` as an ordinary user, or give the agent a directory such as /var/lib/hostler",
                closed.display()
            ));
        }
        self.attempt(self.leaves.leaf("sandbox-trial"), None).await
    }

    /// Starts a sandbox with the network of a job, like [`Self::sandbox`].
    pub(crate) async fn job_network(&self) -> Result<(), String> {
        let network = JobNetwork { rank: 0, nodes: vec!["trial".to_owned()] };
        self.attempt(self.leaves.leaf("network-trial"), Some(network)).await
    }

    async fn attempt(&self, leaf: Option<LeafSpec>, job_network: Option<JobNetwork>) -> Result<(), String> {
        let folder = self.directory.join("sandbox-trial");
        let run = run(self.launcher, &folder, leaf, self.settings, job_network);
        let tried = match tokio::time::timeout(TRIAL_BOUND, run).await {
            Ok(tried) => tried,
            Err(_) => Err(format!("the trial did not end within {} s", TRIAL_BOUND.as_secs())),
        };
        let _ = fs::remove_dir(&folder);
        let root =
            if geteuid().is_root() { "" } else { ", or start the agent as root, which needs no user namespaces" };
        tried.map_err(|why| {
            format!("{why}; this was tried when its agent started, so restart the agent after a change{root}")
        })
    }
}

/// The first directory that keeps other users from entering `directory`.
fn closed_to_users(directory: &Path) -> Option<&Path> {
    let is_closed = |it: &&Path| fs::metadata(it).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0);
    directory.ancestors().filter(is_closed).last()
}

async fn run(
    launcher: &Launcher,
    folder: &Path,
    leaf: Option<LeafSpec>,
    settings: &SandboxSettings,
    job_network: Option<JobNetwork>,
) -> Result<(), String> {
    let (uid, gid) = if geteuid().is_root() { (NOBODY, NOBODY) } else { (geteuid().as_raw(), getegid().as_raw()) };
    let user = Credentials { name: "nobody".to_owned(), uid, gid, groups: Vec::new() };
    let failed = |error: io::Error| format!("cannot prepare the trial of a sandbox: {error}");
    let make = || {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        std::os::unix::fs::lchown(folder, Some(user.uid), Some(user.gid))?;
        fs::File::options().read(true).write(true).open("/dev/null")
    };
    let null = make().map_err(failed)?;
    let launch = Launch {
        cwd: folder.to_owned(),
        options: Options {
            identity: "sandbox-trial".to_owned(),
            credentials: Some(user),
            sandbox: Some(Sandbox {
                folders: Folders { made: Some(folder.display().to_string()), ..Folders::default() },
                of_machine: settings.read_only.clone(),
                performance_counters: settings.performance_counters,
                job_network,
                ..Sandbox::default()
            }),
            call: Some(CallOptions::default()),
            leaf,
            ..Options::default()
        },
        ..Launch::new("", ["/bin/true"])
    };
    let started = shepherds::start(launcher, &launch, &[null.as_fd(); 3]).await;
    let mut shepherd = started.map_err(|error| format!("cannot start the trial of a sandbox: {error}"))?;
    loop {
        match shepherd.next_event().await {
            Some(Event::Finished(record)) => {
                return match record.status {
                    Status::Exited { code: 0 } => Ok(()),
                    Status::StartFailed { message, .. } => Err(message),
                    other => Err(format!("the trial of a sandbox ended with status {}", other.exit_code())),
                };
            }
            Some(_) => {}
            None => return Err("the shepherd of the sandbox's trial has gone".to_owned()),
        }
    }
}

/// The sandboxes of this node.
pub(crate) struct Sandboxes {
    pub(crate) node: NodeName,
    /// Whether the node runs sandboxed jobs, or why it does not.
    pub(crate) offered: Result<(), String>,
    pub(crate) settings: SandboxSettings,
    /// Path of this executable.
    pub(crate) program: String,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) gpus: Arc<Gpus>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) images: Arc<Images>,
    pub(crate) environments: Arc<Environments>,
}

impl Sandboxes {
    /// Refuses a sandboxed job if this node runs none, or if it names files of the agent's user and belongs to another user.
    ///
    /// # Errors
    /// The message says what to do instead.
    pub(crate) fn check(&self, launch: &RunLaunch) -> anyhow::Result<()> {
        let (spec, job) = (launch.spec(), &launch.job);
        if !spec.surroundings.sandbox {
            return Ok(());
        }
        if let Err(why) = &self.offered {
            bail!("node {} runs no sandboxed jobs: {why}", self.node);
        }
        if self.accounts.owns_files(&job.user, job.uid) {
            return Ok(());
        }
        let own = self.accounts.in_sandbox(None).map_or_else(String::new, |own| own.name.clone());
        let why = format!("the agent of node {} runs as {own}, so a sandboxed job of {}", self.node, job.user);
        if !has_made_folder(launch) {
            bail!("{why} cannot use a directory of the node; send your files with `hostler submit DIR ENTRYPOINT`");
        }
        match spec.surroundings.image.as_deref().map(ImageRef::source) {
            Some(ImageSource::Layout { .. } | ImageSource::Archive { .. }) => {
                bail!("{why} gets images from registries only (docker://NAME), or with dir: from its own project")
            }
            _ => Ok(()),
        }
    }

    /// What the sandbox of a run shows; `None` for runs without a sandbox.
    pub(crate) fn of_run(
        &self,
        launch: &RunLaunch,
        directory: &RunDirectory,
        account: Option<&Account>,
        image: Option<&Obtained>,
    ) -> Option<Sandbox> {
        let has_script = matches!(launch.spec().work, Work::Command { script: Some(_), .. });
        let spec = launch.spec();
        let has_own_program = starts_processes_inside(spec) && image.is_none();
        spec.surroundings.sandbox.then(|| Sandbox {
            folders: self.folders(account, Some((launch, directory))),
            read_only: has_script.then(|| directory.script().display().to_string()).into_iter().collect(),
            settings: has_own_program.then(|| self.program.clone()).into_iter().collect(),
            of_machine: self.of_machine(image.is_some()),
            // They show what others do, so only without others.
            performance_counters: self.settings.performance_counters && spec.surroundings.exclusive,
            devices: self.gpus.device_files(&launch.placement.resources.gpus),
            host_network: spec.surroundings.network == SandboxNetwork::Host,
            job_network: job_network::of_run(launch),
            image: image.map(|image| image.root.clone()),
            driver: if image.is_some() { self.gpus.driver_files(&launch.placement.resources.gpus) } else { Vec::new() },
            ..Sandbox::default()
        })
    }

    /// The directories and files that the node's settings add. An image has its own settings in /etc.
    fn of_machine(&self, has_image: bool) -> Vec<String> {
        let all = &self.settings.read_only;
        all.iter().filter(|path| !(has_image && path.starts_with("/etc/"))).cloned().collect()
    }

    /// What the sandbox of a remote command shows.
    pub(crate) fn of_command(&self, account: Option<&Account>) -> Sandbox {
        Sandbox {
            folders: self.folders(account, None),
            of_machine: self.settings.read_only.clone(),
            ..Sandbox::default()
        }
    }

    /// Which folders a sandbox on this node may show: the only place that says it, for jobs, images and remote commands. `run`: the
    /// job and its directory; `None` for a remote command, whose user is that of an agent that is not root.
    fn folders(&self, account: Option<&Account>, run: Option<(&RunLaunch, &RunDirectory)>) -> Folders {
        let text = |path: &Path| path.display().to_string();
        let is_root = geteuid().is_root();
        let home = account.map(|account| account.home.clone());
        // The agent's own user may have another home directory than the account says.
        let of_agent = std::env::var_os("HOME").filter(|_| !is_root).map(PathBuf::from);
        let program = Path::new(&self.program).parent().map(Path::to_owned);
        let runs = self.runs.root();
        // Some may be links to other disks.
        let state = runs.parent().into_iter().chain([runs, self.images.root(), self.environments.root()]);
        Folders {
            made: run.filter(|(launch, _)| has_made_folder(launch)).map(|(_, directory)| text(&directory.work())),
            only_made: run.is_some_and(|(launch, _)| !self.accounts.owns_files(&launch.job.user, launch.job.uid)),
            private: [home, of_agent, program].into_iter().flatten().map(|path| text(&path)).collect(),
            state: state.map(text).collect(),
            // All folders of an agent that is not root belong to its own user.
            of_runs: is_root.then(|| (text(runs), WORK.to_owned())),
            images: self.images.directories().to_vec(),
        }
    }
}

/// Whether this program starts the job's processes inside, because there are ranks or steps.
pub(crate) fn starts_processes_inside(spec: &JobSpec) -> bool {
    spec.tasks_per_node > 1 || spec.label || spec.first_node
}

/// Whether the agent makes the folder of a job, which otherwise names one of its node.
fn has_made_folder(launch: &RunLaunch) -> bool {
    matches!(launch.job.spec.work, Work::Project { .. })
}

/// Variables that name places in a sandbox.
const OF_INSIDE: [(&str, &str); 5] =
    [("HOME", SANDBOX_HOME), ("TMPDIR", "/tmp"), ("TMP", "/tmp"), ("TEMP", "/tmp"), ("SHELL", "/bin/sh")];

/// Replaces variables that name what is not in a sandbox.
pub(crate) fn adapt(environment: &mut Environment) {
    for name in OF_OUTSIDE {
        environment.remove(name);
    }
    for (name, value) in OF_INSIDE {
        environment.insert(name.to_owned(), value.to_owned());
    }
}

/// Like [`adapt`], for the environment of a remote command.
pub(crate) fn adapt_command(environment: &mut Vec<(OsString, OsString)>) {
    let is_replaced = |name: &OsString| OF_INSIDE.iter().any(|(inside, _)| name == inside);
    environment.retain(|(name, _)| !OF_OUTSIDE.iter().any(|outside| name == outside) && !is_replaced(name));
    environment.extend(OF_INSIDE.map(|(name, value)| (name.into(), value.into())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_other_users_cannot_enter_is_found() {
        let directory = tempfile::tempdir().expect("a directory of the test");
        let (outer, inner) = (directory.path().join("outer"), directory.path().join("outer/inner"));
        fs::create_dir_all(&inner).expect("the test owns the directory");
        let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        set(directory.path(), 0o711);
        set(&outer, 0o700);
        set(&inner, 0o700);
        assert_eq!(closed_to_users(&inner), Some(outer.as_path()));
        set(&outer, 0o711);
        assert_eq!(closed_to_users(&inner), Some(inner.as_path()));
        set(&inner, 0o755);
        assert_eq!(closed_to_users(&inner), None);
    }
}
