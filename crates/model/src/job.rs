//! Jobs: what was asked for, and the states a job and its tasks go through.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ArraySpec, Constraint, Counted, Digest, JobId, ParseError, PartitionName, format_bytes};

/// The least memory that a job may ask for, in bytes. With less, on machines with cgroups of version 1, not even the process that looks after
/// the job has room in the job's memory group, so that nobody could tell how the job ended.
pub const LEAST_MEMORY_BYTES: u64 = 4 << 20;

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// What a user submits. It never changes after it is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// A name for people; need not be unique. Shared, as the directory is, by jobs that have the same.
    pub name: Arc<str>,
    /// What to run.
    pub work: Work,
    /// What each task needs on each of its nodes.
    pub request: Request,
    /// On how many nodes each task runs, all at once or not at all; at least one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// How many processes each task has on each of its nodes, with a rank each; at least one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub tasks_per_node: u32,
    /// The program starts on the first node only; the others wait for what it launches there, as with `mpirun` or `hostler step`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_node: bool,
    /// Every line of output begins with the rank of the process that wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub label: bool,
    /// The partition whose nodes it may use; when absent the default one, or all nodes where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// What its nodes must have or be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// How long a task may run, in milliseconds; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The array's indices; a single task 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    /// What must have happened to other jobs first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// Higher goes first; equal priorities go in the order of submission.
    #[serde(default)]
    pub priority: i32,
    /// Submitted on hold.
    #[serde(default)]
    pub hold: bool,
    /// Run again when its node is lost; otherwise it ends as `node_fail`.
    #[serde(default)]
    pub requeue: bool,
    /// Variables for the job beyond those that Hostler sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: Environment,
    /// A terminal of this size, for `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<WindowSize>,
    /// Milliseconds between TERM and KILL when the job is ended; the head's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The file mode creation mask; the agent's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
}

impl JobSpec {
    /// One task that needs `request`, and of everything else the least: no limits, nothing to wait for, not run again when it is lost.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, work: Work, request: Request) -> Self {
        Self {
            name: name.into(),
            work,
            request,
            nodes: 1,
            tasks_per_node: 1,
            first_node: false,
            label: false,
            partition: None,
            constraint: None,
            time_limit_ms: None,
            array: None,
            after: Vec::new(),
            priority: 0,
            hold: false,
            requeue: false,
            environment: Environment::new(),
            pty: None,
            grace_ms: None,
            umask: None,
        }
    }

    /// Has what is equal in `other` once for both: where it runs, and its name.
    pub fn share_with(&mut self, other: &Self) {
        if self.name == other.name {
            self.name = Arc::clone(&other.name);
        }
        if let (Work::Command { directory, .. }, Work::Command { directory: same, .. }) = (&mut self.work, &other.work)
            && directory == same
        {
            *directory = Arc::clone(same);
        }
    }

    /// How many processes each task has on all of its nodes together.
    #[must_use]
    pub fn world_size(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.tasks_per_node)
    }
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_one(count: &u32) -> bool {
    *count == 1
}

/// What a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A captured project folder: laid out afresh on the node, its changed files come home.
    Project {
        /// The captured folder's manifest.
        snapshot: Digest,
        /// A file in the folder, or a command.
        entrypoint: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A command in a directory that exists on the node; only its output comes home.
    Command {
        /// Program and arguments; at least the program.
        argv: Vec<String>,
        /// An absolute path.
        directory: Arc<str>,
    },
}

impl Work {
    /// A program and its arguments, to run in `directory`.
    pub fn command(argv: impl IntoIterator<Item = impl Into<String>>, directory: impl Into<Arc<str>>) -> Self {
        Self::Command { argv: argv.into_iter().map(Into::into).collect(), directory: directory.into() }
    }
}

/// What one task needs on each of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// CPUs, at least one.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// GPUs.
    #[serde(default, skip_serializing_if = "is_none")]
    pub gpus: u32,
    /// What the nodes' configurations count.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl Request {
    /// CPUs and memory, and nothing else.
    #[must_use]
    pub const fn new(cpus: u32, memory_bytes: u64) -> Self {
        Self { cpus, memory_bytes, gpus: 0, counted: Counted::NONE }
    }

    /// Whether there is enough of everything for `wanted`.
    #[must_use]
    pub fn covers(&self, wanted: &Self) -> bool {
        wanted.cpus <= self.cpus
            && wanted.memory_bytes <= self.memory_bytes
            && wanted.gpus <= self.gpus
            && self.counted.covers(&wanted.counted)
    }
}

/// `4 CPUs, 1 GPU, 16G of memory and license=2`; `nothing` when it is nothing.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = |count: u32, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            many => Some(format!("{many} {one}s")),
        };
        let memory = (self.memory_bytes > 0).then(|| format!("{} of memory", format_bytes(self.memory_bytes)));
        let counted = self.counted.iter().map(|(name, count)| format!("{name}={count}"));
        let parts = [units(self.cpus, "CPU"), units(self.gpus, "GPU"), memory];
        let parts: Vec<String> = parts.into_iter().flatten().chain(counted).collect();
        match parts.as_slice() {
            [] => f.write_str("nothing"),
            [one] => f.write_str(one),
            [first @ .., last] => write!(f, "{} and {last}", first.join(", ")),
        }
    }
}

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// A job starts only when another job has reached a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dependency {
    /// What must have happened.
    pub condition: Condition,
    /// To which job.
    pub job: JobId,
}

/// What must have happened to the other job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// It has started (every task, for an array) or was cancelled.
    After,
    /// It has ended, whatever way.
    AfterAny,
    /// It has completed: every task with exit code 0.
    AfterOk,
    /// It has ended otherwise than completed.
    AfterNotOk,
}

impl Condition {
    /// The word for it on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::AfterAny => "afterany",
            Self::AfterOk => "afterok",
            Self::AfterNotOk => "afternotok",
        }
    }
}

impl Dependency {
    /// Reads a list such as `afterok:3:4,after:5`; a bare job id means `afterok`.
    ///
    /// # Errors
    /// When a part is no dependency.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        let error = || ParseError::new(text, "a dependency such as afterok:12, afterany:12:13 or 12");
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim) {
            let mut words = part.split(':');
            let first = words.next().unwrap_or_default();
            let condition = match first {
                "after" => Condition::After,
                "afterany" => Condition::AfterAny,
                "afterok" => Condition::AfterOk,
                "afternotok" => Condition::AfterNotOk,
                _ => {
                    all.push(Self { condition: Condition::AfterOk, job: first.parse().map_err(|_| error())? });
                    if words.next().is_some() {
                        return Err(error());
                    }
                    continue;
                }
            };
            let before = all.len();
            for job in words {
                all.push(Self { condition, job: job.parse().map_err(|_| error())? });
            }
            if all.len() == before {
                return Err(error());
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.condition.as_str(), self.job)
    }
}

impl FromStr for Dependency {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match Self::parse_list(text)?.as_slice() {
            [one] => Ok(*one),
            _ => Err(ParseError::new(text, "one dependency such as afterok:12")),
        }
    }
}

impl TryFrom<String> for Dependency {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Dependency> for String {
    fn from(dependency: Dependency) -> Self {
        dependency.to_string()
    }
}

/// The state of a job. For an array it is the one that says most: running while any task runs, and when all have ended the
/// worst ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits; [`crate::Reason`] says why.
    Pending,
    /// Placed; its folder and environment are being made ready.
    Starting,
    /// Its process runs.
    Running,
    /// Its process has ended; results are on their way.
    Completing,
    /// Ended with exit code 0, results verified.
    Completed,
    /// Ended with another exit code or a signal, or could not be started.
    Failed,
    /// Ended because a user asked.
    Cancelled,
    /// Ended because its time was up.
    Timeout,
    /// Ended by the kernel because it used more memory than it asked for.
    OutOfMemory,
    /// Its node was lost and it was not to be requeued.
    NodeFail,
    /// Ended to make room for another job.
    Preempted,
}

/// The state of one task of a job.
pub type TaskState = JobState;

impl JobState {
    /// Every state, in the order a job goes through them.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Completing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::OutOfMemory,
        Self::NodeFail,
        Self::Preempted,
    ];

    /// Whether nothing more will happen to it.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Starting | Self::Running | Self::Completing => false,
            Self::Completed
            | Self::Failed
            | Self::Cancelled
            | Self::Timeout
            | Self::OutOfMemory
            | Self::NodeFail
            | Self::Preempted => true,
        }
    }

    /// The word shown to people and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Completing => "completing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::NodeFail => "node_fail",
            Self::Preempted => "preempted",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| ParseError::new(text, "a job state such as pending, running or completed"))
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// An ended state.
    pub state: TaskState,
    /// What a shell would show: the exit code, or 128 plus the signal; absent when it never ran.
    pub exit_code: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_said_in_words() {
        assert_eq!(Request::default().to_string(), "nothing");
        assert_eq!(Request::new(1, 0).to_string(), "1 CPU");
        assert_eq!(Request::new(2, 16 << 30).to_string(), "2 CPUs and 16G of memory");
        let counted = "camera,license=2".parse().expect("counts");
        let all = Request { gpus: 1, counted, ..Request::new(4, 1 << 30) };
        assert_eq!(all.to_string(), "4 CPUs, 1 GPU, 1G of memory, camera=1 and license=2");
    }

    #[test]
    fn dependencies_as_people_write_them() {
        let list = Dependency::parse_list("afterok:3:4,after:5").expect("valid");
        let written: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["afterok:3", "afterok:4", "after:5"]);
        assert_eq!(Dependency::parse_list("12").expect("valid")[0].to_string(), "afterok:12");
        for text in ["", "afterok", "afterok:", "after:x", "12:13", "afterok:1,"] {
            assert!(Dependency::parse_list(text).is_err(), "{text}");
        }
    }
}
