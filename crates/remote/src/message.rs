//! The messages in the bodies of frames.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use hostler_model::{Constraint, NodeName, Rank, RunId, WindowSize};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::paths::Paths;
use crate::tree_spec::TreeSpec;

/// Maximum number of arguments, variables and limits of a command, and of node names in a request. The arguments and
/// variables that Linux accepts by default have at most 2 MiB, including 8 bytes for each pointer.
pub(crate) const MOST_ELEMENTS: usize = 100_000;

/// Message that opens a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Open {
    /// Program to its agent: run this command on the best node.
    Exec(Box<ExecRequest>),
    /// Agent to agent: run this command.
    Start(Box<Start>),
    /// Program of a job to the step host of another node of the job: start this command.
    Step(Box<StepStart>),
    /// Holder of an allocation without a program to the step host of the first node: the allocation lasts as long as
    /// this channel.
    Hold,
    /// Caller of a step to the step host of the first node: the step begins when these CPUs are free, and holds them as
    /// long as this channel.
    Claim(Box<StepClaim>),
    /// Owner of a job to the step host of one of its nodes: send the output of this step until the step ends. Each piece of
    /// output begins with the number of its process, in four bytes with the lowest first.
    Watch(u32),
    /// Agent to agent: this channel carries packets of the sandbox of a run to the sandbox of the same run on the other
    /// node, until the run ends. The frames of [`Stream::PACKETS`](crate::Stream::PACKETS) contain whole packets, one after
    /// the other.
    Packets(RunId),
}

/// Message that answers the request that opened the channel. Every variant except `Started` ends the channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Agent to its caller: execute the command yourself, on this node.
    RunHere(Box<Destination>),
    /// Agent to its caller: the scores of the nodes. Nothing runs.
    Explained(Box<Choice>),
    Started(Box<Started>),
    Refused(Box<Refusal>),
    Ended(Box<Report>),
}

/// Message that neither opens a channel nor answers the request that opened it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Agent to its caller: prove the identity of your directory by creating an empty file with this name in the
    /// directory.
    ProveDirectory(String),
    /// Caller to its agent: the answer to `ProveDirectory`.
    Proof(Proof),
    /// Node to the caller: it has verified the proof file, but cannot remove it. It starts the command when the caller
    /// has removed the file.
    RemoveProof,
    /// Agent to its caller: describe the tree to be copied; the command runs on another node.
    DescribeTree,
    /// Caller to its agent: the answer to `DescribeTree`.
    Tree(Box<TreeSpec>),
    /// Agent to its caller: forget what the last node asked about the tree, because another node will ask. Caller to
    /// its agent: done.
    ResetTree,
    /// To the command: deliver this signal.
    Signal(i32),
    /// To the command: the size of the caller's window has changed.
    Resize(WindowSize),
    /// To the command's node: end the command, because its caller has disconnected.
    Cancel,
    /// To the caller: this signal has stopped the command.
    Stopped(i32),
    /// Holder of an allocation to the step host: end the allocation with this exit code.
    Release(i32),
    /// Caller of a step to the step host of the first node: the step has ended in this way.
    Finish(StepOutcome),
}

impl Open {
    /// Returns whether the operating system can accept the requested values.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Exec(request) => request.is_sound(),
            Self::Start(start) => start.command.is_sound(),
            Self::Step(start) => start.is_sound(),
            Self::Hold | Self::Claim(_) | Self::Watch(_) | Self::Packets(_) => true,
        }
    }
}

/// A program's request to its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    pub command: Command,
    /// Features that the node must have.
    #[serde(default)]
    pub constraint: Option<Constraint>,
    /// Run on one of these nodes. Empty means any node.
    #[serde(default)]
    pub only: Vec<NodeName>,
    /// Do not run on these nodes.
    #[serde(default)]
    pub not: Vec<NodeName>,
    /// Whether to prefer the caller's own node.
    #[serde(default)]
    pub prefer_local: bool,
    /// Compare the nodes with this expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Whether to copy the source tree to the command's node, if this is another node. The caller describes the tree
    /// after the agent has chosen the node.
    #[serde(default)]
    pub mirrors_tree: bool,
    /// Whether to report the scores of the nodes instead of running the command.
    #[serde(default)]
    pub explain: bool,
}

impl ExecRequest {
    /// Returns whether the operating system can accept the command, and whether the number of node names is allowed.
    fn is_sound(&self) -> bool {
        self.command.is_sound() && self.only.len() + self.not.len() <= MOST_ELEMENTS
    }
}

/// An agent's request to another agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub command: Command,
    /// The user who runs the command.
    pub caller: Caller,
    /// Recently written files that the command may read. The node refreshes its cached data about these files.
    #[serde(default)]
    pub written: Paths,
}

/// A request of a job's program to start a command on another node of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStart {
    /// The command. The host adds environment variables of its own node.
    pub command: Command,
    /// The working directory relative to the job's directory, which differs between nodes; `None` for a directory
    /// outside the job's directory.
    #[serde(default)]
    pub below_job: Option<ByteBuf>,
    /// Variables of this process, such as its rank. They replace the command's variables and those of the node.
    #[serde(default)]
    variables: Vec<(ByteBuf, ByteBuf)>,
    /// Number of the step to which the process belongs.
    #[serde(default)]
    pub step: Option<u32>,
    /// The variable that names the descriptor on which the process exchanges messages with the caller; `None` without one.
    #[serde(default)]
    pub messages: Option<String>,
}

impl StepStart {
    /// Creates a request.
    #[must_use]
    pub fn new(command: Command, below_job: Option<ByteBuf>, variables: &[(OsString, OsString)]) -> Self {
        let bytes = |text: &OsString| ByteBuf::from(text.as_bytes());
        let variables = variables.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        Self { command, below_job, variables, step: None, messages: None }
    }

    /// Returns the variables of this process.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        self.variables.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// Returns whether the operating system can accept the request.
    fn is_sound(&self) -> bool {
        self.command.is_sound()
            && self.command.elements() + self.variables.len() <= MOST_ELEMENTS
            && !self.below_job.iter().any(|path| path.contains(&0))
            && self.variables.iter().all(|(name, value)| is_variable(name) && !value.contains(&0))
            && self.messages.iter().all(|name| is_variable(name.as_bytes()))
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutcome {
    /// The largest exit code of its processes.
    pub exit_code: i32,
    /// CPU time of its processes, in milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// The part of the CPU time that the kernel needed, in milliseconds.
    #[serde(default)]
    pub system_ms: u64,
    /// Peak memory of the largest process, in bytes.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
}

/// What a step needs of its job, and what its record says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepClaim {
    /// Name of the step's program.
    #[serde(default)]
    pub name: String,
    /// The nodes of the step.
    #[serde(default)]
    pub nodes: Vec<NodeName>,
    /// Number of processes.
    #[serde(default)]
    pub tasks: u32,
    /// CPUs on each node of the job, by rank. Nodes after the last one are not needed.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// Returns whether the operating system can accept this name of a variable.
fn is_variable(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0)
}

/// A user, as reported by the kernel of the caller's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub name: String,
    pub uid: u32,
}

/// A command with its caller's environment, directory, terminal and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    argv: Vec<ByteBuf>,
    environment: Vec<(ByteBuf, ByteBuf)>,
    directory: ByteBuf,
    /// Identity of the working directory on the caller's machine; `None` when the path means the target node's own
    /// directory.
    #[serde(default)]
    pub directory_id: Option<DirectoryId>,
    /// Proof by which the target node recognises the caller's working directory.
    #[serde(default)]
    pub proof: Proof,
    /// The file mode creation mask.
    pub umask: u32,
    /// The caller's resource limits.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// The size of the caller's terminal; `None` when no standard stream is on it.
    #[serde(default)]
    pub terminal: Option<WindowSize>,
    /// Which of standard input, output and error are not on the terminal.
    #[serde(default)]
    pub redirected: [bool; 3],
    pub has_input: bool,
    /// Whether standard error goes to the same file as standard output.
    #[serde(default)]
    pub is_merged: bool,
    /// Memory limit in bytes; `None` means a share of the free memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The source tree to be mirrored at the same path on the target node.
    #[serde(default)]
    pub tree: Option<TreeSpec>,
    /// Whether the command runs in a sandbox, of which the directory or the mirrored tree is the only lasting part.
    #[serde(default)]
    pub sandbox: bool,
}

/// A resource limit as in `getrlimit`; `u64::MAX` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub resource: i32,
    /// The limit that the kernel enforces.
    pub soft: u64,
    /// The maximum to which the process may raise the soft limit.
    pub hard: u64,
}

/// The identity of a directory on one running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryId {
    /// The boot id of that kernel.
    pub boot: String,
    pub device: u64,
    pub inode: u64,
}

/// Proof that a directory is the caller's directory, and not another directory with the same path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// No proof yet.
    #[default]
    None,
    /// The caller has just created this empty file in the directory.
    File(String),
    /// An earlier command found the directory on the target node, with this identity.
    Known(DirectoryId),
    /// The inode and change time of a directory in which the caller may not create files.
    Seen {
        inode: u64,
        /// Time of the last change of the directory's entries, in nanoseconds since the epoch by the file server's
        /// clock.
        changed_ns: i128,
    },
}

/// How the agent rates the nodes for a command: the answer to a request with [`ExecRequest::explain`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Suitable nodes, best first.
    pub candidates: Vec<NodeScore>,
    /// Unsuitable nodes, each with the reason.
    pub unfit: Vec<(NodeName, String)>,
    /// Those of the unsuitable nodes that the caller did not want: excluded, not named, or without a demanded feature.
    #[serde(default)]
    pub unwanted: Vec<NodeName>,
    /// Average cost of commands of this kind, if known.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// Outcomes of earlier commands.
    #[serde(default)]
    pub counts: Counts,
}

/// The score of one node: lower is better. All numbers are in thousandths of a command's run time on an idle node with
/// load weight 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScore {
    pub node: NodeName,
    /// Whether the node is the caller's own.
    pub is_local: bool,
    /// The sum of the fields below, times the node's load weight.
    pub score: u64,
    /// Extra time because commands share the node's CPUs.
    pub sharing: u64,
    /// Penalty for a full node.
    pub fullness: u64,
    /// Penalty for stalled work (pressure) on the node.
    pub pressure: u64,
    /// Penalty for used memory.
    pub memory: u64,
    /// Penalty for running commands that the node's reported load does not include yet.
    pub in_flight: u64,
}

/// Where a command runs, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    pub node: NodeName,
    /// The node's score, if several nodes were compared.
    #[serde(default)]
    pub how: Option<NodeScore>,
    /// Average cost of commands of this kind, if known.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// Better nodes that could not run the command.
    #[serde(default)]
    pub tried: Vec<FailedAttempt>,
    /// Limits that the kernel does not enforce, with the reasons.
    #[serde(default)]
    pub advisory: Vec<String>,
}

/// Average cost of one kind of command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The name of the program, and the program's mode such as `-c` for a compiler.
    pub kind: String,
    /// Run time on an idle node with load weight 1, in microseconds.
    pub run_us: u64,
    /// Overhead of running on another node, in microseconds.
    pub overhead_us: u64,
}

/// Numbers of commands since the start of this machine's agent, by where they ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Commands that ran on this machine as the best node.
    pub here: u64,
    /// Commands that ran on another node, which was the best node.
    pub elsewhere: u64,
    /// Commands that ran on a worse node than the best, or on this machine, because better nodes refused.
    pub fallen_back: u64,
}

/// A better node that could not run the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    pub node: NodeName,
    /// Why the node did not run the command, as a sentence.
    pub why: String,
    /// Whether the node lacks the caller's directory.
    #[serde(default)]
    pub lacks_directory: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Where the command runs, and why. The caller's agent adds this.
    #[serde(default)]
    pub placed: Option<Destination>,
    /// Whether the command uses the caller's handed-over streams. The channel then carries only the end of the
    /// command.
    #[serde(default)]
    pub has_streams: bool,
    /// Identity of the working directory on the command's node, for later commands.
    #[serde(default)]
    pub directory_id: Option<DirectoryId>,
    /// Whether machines other than the command's node may write to the directory, so that data cached on the command's
    /// node may be stale.
    #[serde(default)]
    pub is_shared: bool,
    /// Limits that the kernel does not enforce, with the reasons.
    #[serde(default)]
    pub advisory: Vec<String>,
    /// The number of the step within its job, if the request was a claim.
    #[serde(default)]
    pub step: Option<u32>,
    /// Whether the process exchanges messages with its caller.
    #[serde(default)]
    pub has_messages: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Whether another node could run the command.
    pub kind: RefusalKind,
    /// The exit status that a shell would return.
    pub code: u8,
    /// The reason, as a sentence that names the node.
    pub message: String,
    /// What the user can do.
    #[serde(default)]
    pub hints: Vec<String>,
    /// Whether the node lacks the caller's directory.
    #[serde(default)]
    pub lacks_directory: bool,
}

/// Whether a refusal also applies to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// This node does not meet a requirement of the command. Another node may run the command.
    Unsuitable,
    /// This node needs proof that the directory is the caller's directory.
    Unproven,
    /// Every node would refuse.
    Hopeless,
    /// The agent is of another build than its caller, and has not read the request.
    OtherBuild,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The exit code, or 128 plus the number of the signal that ended the command.
    pub code: i32,
    #[serde(default)]
    pub signal: Option<i32>,
    /// Whether the kernel killed the process because of the job's memory limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// A message for the caller about how the command ended.
    #[serde(default)]
    pub message: Option<String>,
    /// Run time in microseconds.
    #[serde(default)]
    pub wall_us: u64,
    /// CPU time in milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// The part of the CPU time that the kernel needed, in milliseconds.
    #[serde(default)]
    pub system_ms: u64,
    /// Peak memory in bytes, if known.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// Bytes of standard input that the command has read.
    #[serde(default)]
    pub input_bytes: u64,
    /// Files written on possibly shared disks during the command.
    #[serde(default)]
    pub written: Paths,
}

impl Command {
    /// Creates a command with an environment and standard input but no terminal. The command runs in a directory of the
    /// caller's machine.
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
            redirected: [false; 3],
            has_input: true,
            is_merged: false,
            memory_bytes: None,
            tree: None,
            sandbox: false,
        }
    }

    /// Which of standard input, output and error are on the terminal.
    #[must_use]
    pub fn on_terminal(&self) -> [bool; 3] {
        self.redirected.map(|is_redirected| self.terminal.is_some() && !is_redirected)
    }

    /// Whether the command controls its terminal and gets each key. Otherwise the caller's terminal sends whole lines and
    /// signals.
    #[must_use]
    pub fn is_interactive(&self) -> bool {
        let [input, output, _] = self.on_terminal();
        input && output
    }

    /// Returns the program and its arguments; the first element always exists.
    #[must_use]
    pub fn argv(&self) -> Vec<OsString> {
        self.argv.iter().map(text).collect()
    }

    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// Returns the working directory.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        OsStr::from_bytes(&self.directory).into()
    }

    /// Returns the command with a mirrored tree; `None` if the command's directory is not in the tree, or the tree's
    /// path is not allowed.
    #[must_use]
    pub fn with_tree(&self, tree: TreeSpec) -> Option<Self> {
        tree.is_sound(&self.directory).then(|| Self { tree: Some(tree), ..self.clone() })
    }

    /// Returns the number of arguments, variables and limits.
    fn elements(&self) -> usize {
        self.argv.len() + self.environment.len() + self.limits.len()
    }

    /// Returns whether the operating system can accept the command.
    pub(crate) fn is_sound(&self) -> bool {
        let names = self.environment.iter().map(|(name, _)| name);
        let values = self.environment.iter().map(|(_, value)| value);
        let has_nul = |bytes: &ByteBuf| bytes.contains(&0);
        self.elements() <= MOST_ELEMENTS
            && self.argv.first().is_some_and(|program| !program.is_empty())
            && self.directory.starts_with(b"/")
            && names.clone().all(|name| !name.is_empty() && !name.contains(&b'='))
            && !self.argv.iter().chain(names).chain(values).chain([&self.directory]).any(has_nul)
            && self.proof.is_sound()
            && self.tree.as_ref().is_none_or(|tree| tree.is_sound(&self.directory))
    }
}

impl DirectoryId {
    /// Creates the identity from the boot id of this kernel and the directory's metadata.
    #[must_use]
    pub fn of(boot: &str, found: &Metadata) -> Self {
        Self { boot: boot.to_owned(), device: found.dev(), inode: found.ino() }
    }
}

impl Proof {
    /// Creates a proof from metadata that is the same on every machine with this directory.
    #[must_use]
    pub fn seen(found: &Metadata) -> Self {
        let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Self::Seen { inode: found.ino(), changed_ns }
    }

    /// Prefix of the names of proof files.
    pub const FILE_PREFIX: &str = ".hostler-here-";

    /// Returns whether the name of a proof file is valid. A valid name does not lead out of the directory.
    fn is_sound(&self) -> bool {
        let Self::File(name) = self else { return true };
        name.strip_prefix(Self::FILE_PREFIX)
            .is_some_and(|rest| rest.len() <= 64 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    }
}

fn text(bytes: &ByteBuf) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
