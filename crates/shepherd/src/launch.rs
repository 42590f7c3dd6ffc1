//! What the agent asks a shepherd to run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Device, LeafSpec};

/// One run: one attempt of one job task on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The run's own directory. It exists, is empty of a previous run, and is writable for the agent only. A call has none.
    pub directory: PathBuf,
    /// Program and arguments. A program without a slash is looked up in `PATH` of [`Launch::env`], as shells do.
    pub argv: Vec<OsString>,
    /// The complete environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Where the program starts.
    pub cwd: PathBuf,
    /// Everything else.
    pub options: Options,
}

impl Launch {
    /// A launch of `argv` with an empty environment, in `/`, with default [`Options`].
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

/// How a run is looked after. A field that an older shepherd does not know is ignored by it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Echoed in every record, and compared with that of the journal. Opaque here; the agent's run, and something that is new
    /// each time it asks for it.
    pub identity: String,
    /// The run's journal has been begun, by [`crate::journal::begin`]. Without it, or with another's, the launch is stale.
    pub has_journal: bool,
    /// From the start of the program, on a clock that stops while the machine sleeps. `None`: no limit.
    pub time_limit: Option<Duration>,
    /// Between TERM and KILL when a limit ends the run. Default 10 s.
    pub grace: Duration,
    /// Run on a terminal of this size, which clients can attach to.
    pub terminal: Option<WindowSize>,
    /// Write standard error into the `stdout` file too, in order.
    pub merge_output: bool,
    /// Of each output, let no more take room on the disk than its first bytes up to this: what the run writes beyond becomes a hole, once
    /// a second. The files are as long as they would be. Where the disk cannot do that, the run is ended.
    pub output_limit_bytes: Option<u64>,
    /// Default 0o022.
    pub umask: u32,
    /// Run as this user. Needs root; `None` keeps the agent's own.
    pub credentials: Option<Credentials>,
    /// Only these CPUs: held to them by the leaf, without one bound to them, which the job may undo.
    pub cpus: Option<Vec<u32>>,
    /// No more memory, in bytes. Needs a leaf.
    pub memory_limit_bytes: Option<u64>,
    /// No more processes and threads. Needs a leaf.
    pub process_limit: Option<u64>,
    /// None of these character devices, under whatever name; all others. Needs a leaf. Where that can deny devices and yet does not, the
    /// program is not started.
    pub denied_devices: Option<Vec<Device>>,
    /// The cgroup leaf to create for the run, from [`crate::cgroup::Tree::leaf`].
    pub leaf: Option<LeafSpec>,
    /// Flush the exit record to the disk before it is announced.
    pub durable: bool,
    /// After a run that left nothing behind, wait this long for the next one over the same connection.
    pub linger: Option<Duration>,
    /// This is a call and no run.
    pub call: Option<CallOptions>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            identity: String::new(),
            has_journal: false,
            time_limit: None,
            grace: Duration::from_secs(10),
            terminal: None,
            merge_output: false,
            output_limit_bytes: None,
            umask: 0o022,
            credentials: None,
            cpus: None,
            memory_limit_bytes: None,
            process_limit: None,
            denied_devices: None,
            leaf: None,
            durable: false,
            linger: None,
            call: None,
        }
    }
}

/// A command that somebody runs on this machine from elsewhere, now: its streams are descriptors that come with it, it has no directory
/// and no journal, and it ends with the connection that asked for it. See [`crate::Launcher::call`].
///
/// Of [`Options`] and [`Launch`], a call has no use for the directory, the journal, the terminal and what is about output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOptions {
    /// Standard input is the slave of a pseudo terminal, which becomes the user's and the controlling one.
    pub terminal: bool,
    /// What the program may use at most, as far as that is less than what the shepherd itself may.
    pub limits: Vec<ResourceLimit>,
    /// A fourth descriptor comes with it: the mount namespace that the program starts in. Needs root.
    pub namespace: bool,
}

/// A limit as `setrlimit` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// Its number on this machine, as `libc::RLIMIT_NOFILE`. One that the kernel does not know is ignored.
    pub resource: i32,
    /// In force; `u64::MAX`: unlimited.
    pub soft: u64,
    /// The most that the program may give itself; `u64::MAX`: unlimited.
    pub hard: u64,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// The user a run belongs to. Supplementary groups are looked up by the agent, which may use NSS.
///
/// The program has no capabilities and can gain no privileges; its outputs are files of this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The user's name, for messages.
    #[serde(default)]
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids; replaces the agent's own.
    pub groups: Vec<u32>,
}
