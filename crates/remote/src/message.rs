//! The messages in the bodies of frames.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use hostler_model::{Constraint, NodeName, WindowSize};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::mirror::TreeSpec;
use crate::shared_files::Paths;

/// Opens a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Open {
    /// Program to its agent: run this on the best node.
    Exec(Box<Ask>),
    /// Agent to agent: run this.
    Start(Box<Start>),
    /// Program of a job to the host of another node of the job: start this.
    Step(Box<StepStart>),
}

/// Answers the request that opened the channel. All but `Started` end the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Agent to its caller: execute the command yourself, on this node.
    RunHere(Box<Placed>),
    /// Agent to its caller: how the nodes compare. Nothing runs.
    Explained(Box<Choice>),
    /// The command has started.
    Started(Box<Started>),
    /// The command could not be started.
    Refused(Box<Refusal>),
    /// The command has ended.
    Ended(Box<Report>),
}

/// Anything else that one side tells the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Agent to its caller: prove which directory you are in by creating an empty file of this name in it.
    ProveDirectory(String),
    /// Caller to its agent: the answer to `ProveDirectory`.
    Proof(Proof),
    /// Agent to its caller: describe the tree to be copied; the command runs on another node.
    DescribeTree,
    /// Caller to its agent: the answer to `DescribeTree`.
    Tree(Box<TreeSpec>),
    /// Agent to its caller: forget what was sent of the tree, another node will ask for it. Caller to its agent: done.
    ResetTree,
    /// To the command: this signal.
    Signal(i32),
    /// To the command: the size of the caller's window has changed.
    Resize(WindowSize),
    /// To the command's node: end the command, nobody waits for it.
    Cancel,
    /// To the caller: this signal has stopped the command.
    Stopped(i32),
}

impl Open {
    /// Whether the operating system can take what is requested.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Exec(request) => request.command.is_sound(),
            Self::Start(start) => start.command.is_sound(),
            Self::Step(start) => start.command.is_sound() && !start.below_job.iter().any(|path| path.contains(&0)),
        }
    }
}

/// What a program asks its agent for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// What to run.
    pub command: Command,
    /// Features of the node.
    #[serde(default)]
    pub constraint: Option<Constraint>,
    /// One of these nodes; any, if none is named.
    #[serde(default)]
    pub only: Vec<NodeName>,
    /// None of these nodes.
    #[serde(default)]
    pub not: Vec<NodeName>,
    /// It had rather run here.
    #[serde(default)]
    pub prefer_local: bool,
    /// Whether the source tree is copied to another node. The caller describes the tree when the agent has chosen another node.
    #[serde(default)]
    pub mirrors_tree: bool,
    /// Say how nodes are judged and run nothing.
    #[serde(default)]
    pub explain: bool,
}

/// What an agent asks another one for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// What to run.
    pub command: Command,
    /// Whose it is.
    pub caller: Caller,
    /// Files that were written lately where the command may read them.
    #[serde(default)]
    pub written: Paths,
}

/// What a program of a job starts on another node of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStart {
    /// What to run. The host adds what is true on its node.
    pub command: Command,
    /// The command's directory below the job's own directory, which differs between nodes; `None` for a directory elsewhere.
    #[serde(default)]
    pub below_job: Option<ByteBuf>,
}

/// A user, as the kernel of the caller's machine knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Their name there.
    pub name: String,
    /// Their number there.
    pub uid: u32,
}

/// A command and what it takes along from where it was called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    argv: Vec<ByteBuf>,
    environment: Vec<(ByteBuf, ByteBuf)>,
    directory: ByteBuf,
    /// Which directory that is, on the machine of the caller; `None` when the path is meant as it is there.
    #[serde(default)]
    pub directory_id: Option<DirectoryId>,
    /// What a node should know that directory by.
    #[serde(default)]
    pub proof: Proof,
    /// The file mode creation mask.
    pub umask: u32,
    /// The caller's resource limits.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// The terminal that the caller sits at, unless its input or output is something else.
    #[serde(default)]
    pub terminal: Option<WindowSize>,
    /// Whether it may read standard input.
    pub has_input: bool,
    /// Whether its errors go where its output goes.
    #[serde(default)]
    pub is_merged: bool,
    /// Memory that it may have, in bytes; a share of what is free if `None`.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The tree that it takes along, to be at the same place there.
    #[serde(default)]
    pub tree: Option<TreeSpec>,
}

/// A resource limit as `getrlimit` knows it; `u64::MAX` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Linux's number of the resource.
    pub resource: i32,
    /// What counts.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// A directory, known to one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryId {
    /// The boot of that kernel.
    pub boot: String,
    /// The device that it is on, for that kernel.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// By what a node can tell that a directory is the caller's own, and not merely another one of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Nothing yet.
    #[default]
    None,
    /// This empty file, which the caller has just made in it.
    File(String),
    /// An earlier call: it was this one on that node.
    Known(DirectoryId),
    /// The caller may not write there; these are its number, and when it was changed last, in nanoseconds.
    Seen {
        /// Its number on its file system.
        inode: u64,
        /// When its entries were changed last, by the clock of whoever keeps it.
        changed_ns: i128,
    },
}

/// How nodes were judged, best first, in text for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Where it would run, in the order in which they would be tried.
    pub candidates: Vec<How>,
    /// Where not, and why.
    pub unfit: Vec<(NodeName, String)>,
    /// What such commands have cost so far, if that is known.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// What became of earlier calls.
    #[serde(default)]
    pub counts: Counts,
}

/// How one node was judged, in thousandths of the time that a command takes on an idle usual node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct How {
    /// The node.
    pub node: NodeName,
    /// Whether it is the caller's own.
    pub is_local: bool,
    /// All of what follows, times its load weight.
    pub score: u64,
    /// How much longer it takes since CPUs are shared.
    pub sharing: u64,
    /// For how full the node is.
    pub fullness: u64,
    /// For work that is held up there.
    pub pressure: u64,
    /// For memory that is used.
    pub memory: u64,
    /// Commands under way that its load does not show yet.
    pub in_flight: u64,
}

/// Where a call ended up, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The node.
    pub node: NodeName,
    /// How it was judged, if it was chosen among several.
    #[serde(default)]
    pub how: Option<How>,
    /// What such commands have cost so far, if that is known.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// Where it should have run, and could not.
    #[serde(default)]
    pub tried: Vec<Tried>,
    /// Limits that the kernel does not hold it to, and why.
    #[serde(default)]
    pub advisory: Vec<String>,
}

/// What commands of a kind have cost on average.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The program, and what it is told to do.
    pub kind: String,
    /// How long they run on an idle usual node, in microseconds.
    pub run_us: u64,
    /// What the way to another node and back adds, in microseconds.
    pub way_us: u64,
}

/// How many calls of this machine ended up where, since its agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// On this machine, as chosen.
    pub here: u64,
    /// On other nodes.
    pub elsewhere: u64,
    /// On a node that was not the first choice, or here for want of any, because others could not take them.
    pub fallen_back: u64,
}

/// A node that would have been better and did not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Which one.
    pub node: NodeName,
    /// Why not, as a sentence about it.
    pub why: String,
}

/// A command has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Where, and why there: an agent adds it for its caller.
    #[serde(default)]
    pub placed: Option<Placed>,
    /// Whether it reads and writes what its caller has handed over, so that nothing comes on this line but its end.
    #[serde(default)]
    pub has_streams: bool,
    /// What the directory is on that node, for the next call.
    #[serde(default)]
    pub directory_id: Option<DirectoryId>,
    /// Whether other machines may write there, so that what this one knows of it may be old.
    #[serde(default)]
    pub is_shared: bool,
    /// Limits that the kernel does not hold it to, and why.
    #[serde(default)]
    pub advisory: Vec<String>,
}

/// A command could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Whose matter it is.
    pub kind: RefusalKind,
    /// What a shell would exit with.
    pub code: u8,
    /// Why, as a sentence that names the node.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// What a refusal says of other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Another node may do: this one has not what it takes.
    Unsuitable,
    /// This node wants it shown that its directory is the caller's.
    Unproven,
    /// It would be the same anywhere.
    Hopeless,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its exit code; 128 plus the signal that ended it.
    pub code: i32,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Something that its caller should know of how it ended.
    #[serde(default)]
    pub message: Option<String>,
    /// How long it ran, in microseconds.
    #[serde(default)]
    pub wall_us: u64,
    /// How much CPU it used, in milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// The most memory it had at once, in bytes, if known.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// How much of the input it has read, in bytes.
    #[serde(default)]
    pub input_bytes: u64,
    /// Files that were written on disks that the caller may share, while it ran.
    #[serde(default)]
    pub written: Paths,
}

impl Command {
    /// A command in a directory of the caller's machine, with an environment and standard input and without a terminal.
    #[must_use]
    pub fn new(
        argv: &[OsString],
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        directory: PathBuf,
    ) -> Self {
        let bytes = |text: OsString| ByteBuf::from(text.into_vec());
        Self {
            argv: argv.iter().cloned().map(bytes).collect(),
            environment: environment.into_iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            directory: bytes(directory.into_os_string()),
            directory_id: None,
            proof: Proof::None,
            umask: 0o022,
            limits: Vec::new(),
            terminal: None,
            has_input: true,
            is_merged: false,
            memory_bytes: None,
            tree: None,
        }
    }

    /// The program and its arguments; at least the program.
    #[must_use]
    pub fn argv(&self) -> Vec<OsString> {
        self.argv.iter().map(text).collect()
    }

    /// The whole environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// Where it starts.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        OsStr::from_bytes(&self.directory).into()
    }

    /// The same with this tree, if it can start in that.
    #[must_use]
    pub fn with_tree(&self, tree: TreeSpec) -> Option<Self> {
        tree.is_sound(&self.directory).then(|| Self { tree: Some(tree), ..self.clone() })
    }

    /// Whether the system can take it.
    pub(crate) fn is_sound(&self) -> bool {
        let names = self.environment.iter().map(|(name, _)| name);
        let values = self.environment.iter().map(|(_, value)| value);
        let has_nul = |bytes: &ByteBuf| bytes.contains(&0);
        self.argv.first().is_some_and(|program| !program.is_empty())
            && self.directory.starts_with(b"/")
            && names.clone().all(|name| !name.is_empty() && !name.contains(&b'='))
            && !self.argv.iter().chain(names).chain(values).chain([&self.directory]).any(has_nul)
            && self.proof.is_sound()
            && self.tree.as_ref().is_none_or(|tree| tree.is_sound(&self.directory))
    }
}

impl DirectoryId {
    /// That of a directory of which this was found in this boot of the kernel.
    #[must_use]
    pub fn of(boot: &str, found: &Metadata) -> Self {
        Self { boot: boot.to_owned(), device: found.dev(), inode: found.ino() }
    }
}

impl Proof {
    /// What can be seen of a directory on any machine that has it.
    #[must_use]
    pub fn seen(found: &Metadata) -> Self {
        let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Self::Seen { inode: found.ino(), changed_ns }
    }

    /// What the names of such files begin with.
    pub const FILE_PREFIX: &str = ".hostler-here-";

    /// A file of ours, in the directory itself.
    fn is_sound(&self) -> bool {
        let Self::File(name) = self else { return true };
        name.strip_prefix(Self::FILE_PREFIX)
            .is_some_and(|rest| rest.len() <= 64 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    }
}

fn text(bytes: &ByteBuf) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
