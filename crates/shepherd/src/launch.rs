//! Launch orders: descriptions of the programs that a shepherd runs.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Device, LeafSpec};

/// A run (one attempt of one job task on this machine) or a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The run's own directory, which must exist. It contains no files of an earlier run, and only the agent can write
    /// to it. Calls have no directory.
    pub directory: PathBuf,
    /// Program and arguments. A program without a slash is searched in the `PATH` of [`Launch::env`], as in a shell.
    pub argv: Vec<OsString>,
    /// The complete environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub options: Options,
}

impl Launch {
    /// Creates a launch of `argv` with an empty environment, in `/`, with default [`Options`].
    pub fn new<S: Into<OsString>>(directory: impl Into<PathBuf>, argv: impl IntoIterator<Item = S>) -> Launch {
        Launch {
            directory: directory.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            options: Options::default(),
        }
    }
}

/// Options of a run. An older shepherd ignores fields that it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Identity of the run, copied to every record and compared with the journal's identity. The shepherd does not
    /// interpret it. The agent uses the run id and a part that is new for each request.
    pub identity: String,
    /// Whether the run's journal was created by [`crate::journal::begin`]. The shepherd then refuses the launch if the
    /// journal is missing or belongs to another run.
    pub has_journal: bool,
    /// Time limit from the start of the program. The clock stops while the machine is suspended. `None`: no limit.
    pub time_limit: Option<Duration>,
    /// Time that the preparation of the run has taken. `time_limit` does not contain it; a later limit does.
    pub time_spent: Duration,
    /// A signal before the time limit, and the time between both.
    pub limit_signal: Option<(RunSignal, Duration)>,
    /// Whether the program is a step host: its children in other process groups are steps, and the one in its own group is
    /// the program of the job.
    pub has_steps: bool,
    /// Time between TERM and KILL when a limit ends the run. Default: 10 s.
    pub grace: Duration,
    /// Run on a terminal of this size, to which clients can attach.
    pub terminal: Option<WindowSize>,
    /// Write standard error into the `stdout` file too, interleaved.
    pub merge_output: bool,
    /// Files that the program's streams are redirected to.
    pub files: Files,
    /// Disk usage limit for each output: only the first bytes up to this limit are kept. Once per second, the shepherd
    /// punches a hole for the rest; the file length stays correct. If the file system does not support holes, the run
    /// is ended.
    pub output_limit_bytes: Option<u64>,
    /// File mode creation mask. Default: 0o022.
    pub umask: u32,
    /// Run as this user. Needs root; `None` for the agent's own user.
    pub credentials: Option<Credentials>,
    /// File that the program sees as `/etc/hosts`, in a mount namespace of its own. Needs root. If it cannot be shown, the
    /// program sees the machine's. Not for sandboxes, which have their own.
    pub hosts: Option<String>,
    /// Whether set-user-id programs work for the user, as in a login. Otherwise nothing gains rights.
    pub may_gain_rights: bool,
    /// Allowed CPUs. Enforced by the leaf; without a leaf, set as CPU affinity, which the job may change.
    pub cpus: Option<Vec<u32>>,
    /// Memory limit in bytes. Needs a leaf.
    pub memory_limit_bytes: Option<u64>,
    /// Limit on processes and threads. Needs a leaf.
    pub process_limit: Option<u64>,
    /// Character devices that the run may not open under any name; all others are allowed. Needs a leaf. If the node
    /// supports denying devices but denying these devices fails, the program is not started.
    pub denied_devices: Option<Vec<Device>>,
    /// Cgroup leaf to create for the run, from [`crate::cgroup::Tree::leaf`].
    pub leaf: Option<LeafSpec>,
    /// Flush the exit record to the disk before the end is announced.
    pub durable: bool,
    /// After a run that left no processes, wait this long for the next launch on the same connection.
    pub linger: Option<Duration>,
    /// Set for a call instead of a run.
    pub call: Option<CallOptions>,
    /// Run in a sandbox, of which the working directory is usually the only lasting writable part. Needs credentials of a user
    /// other than root, who owns that directory: any user if the shepherd is root, otherwise its own.
    pub sandbox: Option<Sandbox>,
}

impl Options {
    /// Directory in which the program starts, if it is not the working directory.
    pub(crate) fn start_in(&self) -> Option<&CStr> {
        self.sandbox.as_ref()?.image.as_ref()?.start_in.as_deref()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            identity: String::new(),
            has_journal: false,
            time_limit: None,
            time_spent: Duration::ZERO,
            limit_signal: None,
            has_steps: false,
            grace: Duration::from_secs(10),
            terminal: None,
            merge_output: false,
            files: Files::default(),
            output_limit_bytes: None,
            umask: 0o022,
            credentials: None,
            hosts: None,
            may_gain_rights: false,
            cpus: None,
            memory_limit_bytes: None,
            process_limit: None,
            denied_devices: None,
            leaf: None,
            durable: false,
            linger: None,
            call: None,
            sandbox: None,
        }
    }
}

/// Files for the streams of a program without a terminal, opened as the run's user. Relative paths start in
/// [`Launch::cwd`]. A stream without a file is as for other runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Files {
    pub stdin: Option<String>,
    /// Created with missing parent directories, as is `stderr`.
    pub stdout: Option<String>,
    /// Shares the open file with `stdout` if the paths are equal.
    pub stderr: Option<String>,
    /// Whether existing content stays.
    pub append: bool,
}

impl Files {
    /// The same files for a program that starts in another directory than `cwd`.
    pub(crate) fn from(&self, cwd: &CStr) -> Files {
        let cwd = Path::new(OsStr::from_bytes(cwd.to_bytes()));
        let from = |path: &Option<String>| path.as_ref().map(|path| cwd.join(path).to_string_lossy().into_owned());
        Files { stdin: from(&self.stdin), stdout: from(&self.stdout), stderr: from(&self.stderr), append: self.append }
    }
}

/// Options of a remote command (call). The call's streams are descriptors sent with the launch. A call ends when its
/// connection closes. See [`crate::Launcher::call`].
///
/// For a call, the directory, the journal, the terminal and the output options of [`Options`] and [`Launch`] have no
/// effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOptions {
    /// Whether standard input is the slave of a pseudo terminal. If so, the terminal becomes the call's controlling
    /// terminal. The shepherd does not change the terminal's owner.
    pub terminal: bool,
    /// Resource limits of the program. A limit above the shepherd's own has no effect.
    pub limits: Vec<ResourceLimit>,
    /// Whether a fourth descriptor follows: the mount namespace for the program, which then has no sandbox. Needs root.
    pub namespace: bool,
}

/// What a sandbox shows of the machine, besides programs and libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// Which directories may be the job's folder and the root directory of an image.
    pub folders: Folders,
    /// Files and directories that the user may read, as absolute paths.
    pub read_only: Vec<String>,
    /// Settings of the machine, as absolute paths, to show read-only as far as they exist and the user may read them. Links are
    /// followed.
    pub settings: Vec<String>,
    /// Directories that belong to the user, as absolute paths, in which the program may write.
    pub writable: Vec<String>,
    /// Whether the working directory is shown only as part of what else is shown.
    pub without_folder: bool,
    /// Whether the program has the machine's network, instead of one without other machines.
    pub host_network: bool,
    /// The nodes of the job, if the program can reach these over a network of their own.
    pub job_network: Option<JobNetwork>,
    /// Directories and files of the machine, such as `/opt/matlab`, to show read-only. Nobody but root may be able to
    /// change them or their parent directories.
    pub of_machine: Vec<String>,
    /// Whether the program may measure with `perf_event_open`, for which it has `CAP_PERFMON`. It can then observe processes
    /// of others and the kernel. Needs a shepherd of root.
    pub performance_counters: bool,
    /// The image of the root directory, instead of the machine's programs.
    pub image: Option<RootImage>,
    /// Devices of the job, such as its GPUs.
    pub devices: Vec<DeviceFile>,
    /// Files of root, such as a driver's libraries, to show read-only at other places.
    pub driver: Vec<Shown>,
    /// Files of this program, as `driver`; also files of a shepherd that is not root.
    pub shown: Vec<Shown>,
}

/// The nodes of a job that has a network of only these nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNetwork {
    /// Rank of this node.
    pub rank: u32,
    /// Names of all nodes, by rank.
    pub nodes: Vec<String>,
}

/// Which directories may be the job's folder, or the root directory of an image that is a directory. They must belong to the
/// user. All paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Folders {
    /// The folder that the agent has made for the run. It and what is in it may be shown.
    pub made: Option<String>,
    /// Whether nothing else may be shown: files of the shepherd's user are not those of the job's owner.
    pub only_made: bool,
    /// Directories with files that are trusted outside, such as the user's home directory. No folder may contain one. With a
    /// shepherd that is not root, no folder may be in a hidden directory in one.
    pub private: Vec<String>,
    /// Directories in which the agent keeps its state. No folder may contain one or be in one.
    pub state: Vec<String>,
    /// The parent directory of all runs' directories, and the name of the folder in each. These folders may be shown to their
    /// owners, although they are in `state`.
    pub of_runs: Option<(String, String)>,
    /// Directories that an admin allows to all users as root directories. Nobody but root may be able to change them or their
    /// parent directories.
    pub images: Vec<String>,
}

/// A file of the machine that a sandbox shows at another place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its path, without links.
    pub from: String,
    /// The path inside.
    pub at: String,
}

/// A directory with the root file system of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootImage {
    /// The directory, as an absolute path.
    pub path: String,
    /// Whether the user names the directory. It is then opened with the user's rights, and must be in [`Sandbox::folders`].
    pub of_user: bool,
    /// Directory inside in which the program starts, instead of the job's folder.
    #[serde(default)]
    pub start_in: Option<CString>,
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFile {
    pub path: String,
    /// Major and minor number.
    pub device: Device,
}

/// A resource limit as for `setrlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// Number of the resource on this machine, e.g. `libc::RLIMIT_NOFILE`. Unknown numbers are ignored.
    pub resource: i32,
    /// Soft limit; `u64::MAX` for unlimited.
    pub soft: u64,
    /// Hard limit; `u64::MAX` for unlimited.
    pub hard: u64,
}

/// A signal for processes of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSignal {
    pub signal: i32,
    pub to: Members,
}

/// Which processes of a run get a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Members {
    /// The job's program.
    Program,
    /// The job's program and its descendants in the same process group.
    Group,
    /// The process groups of the steps.
    Steps,
    /// Of the steps' process groups, those with these numbers.
    Groups(Vec<u32>),
    /// The group and the steps.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// User of a run. The agent looks up the supplementary groups, because the lookup may use NSS modules.
///
/// The program has no capabilities and cannot gain privileges. Its output files belong to this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    #[serde(default)]
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary group ids, which replace the agent's own.
    pub groups: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::Files;

    #[test]
    fn files_start_in_the_folder_of_a_program_that_starts_elsewhere() {
        let files = Files { stdin: Some("in".into()), stdout: Some("/abs/out".into()), ..Files::default() };
        let expected = Files { stdin: Some("/folder/in".into()), ..files.clone() };
        assert_eq!(files.from(c"/folder"), expected);
    }
}
