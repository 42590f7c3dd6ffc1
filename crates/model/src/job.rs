//! Jobs: specifications, and the states of jobs and tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Schema, Type};

use crate::object::object_only;
use crate::{
    ArraySpec, Constraint, Counted, Dependency, Digest, Files, Labels, LimitSignal, PartitionName, RequestedTime,
    Subscription, Surroundings, TaskState, WallTime, format_bytes, labels_schema,
};

/// The smallest memory request, in bytes. With less memory, the shepherd does not fit into the job's memory group under
/// cgroup v1, and the job's exit status would be lost.
pub const LEAST_MEMORY_BYTES: u64 = 8 << 20;

/// The longest name of a job, in characters.
pub const MAX_JOB_NAME_CHARACTERS: usize = 255;

/// Returns whether the text can be the name of a job: 1 to 255 characters, and no control characters.
#[must_use]
pub fn is_job_name(text: &str) -> bool {
    (1..=MAX_JOB_NAME_CHARACTERS).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// Environment variables: values by name.
pub type Environment = BTreeMap<String, String>;

/// The specification of a job.
///
/// A [`Submission`], the form in the API, has optional values for `Count` and `Amounts`, and a `Time` that may be a duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Submission, bound = "")]
#[serde(deny_unknown_fields)]
pub struct JobSpec<Count = u32, Amounts = Request, Time = WallTime> {
    /// The job's name, for people; several jobs may have the same name. Equal names share memory.
    #[schema(value_type = String, pattern = r"^[^\x00-\x1f\x7f-\x9f]{1,255}$")]
    pub name: Arc<str>,
    /// The command or the project that the job runs.
    pub work: Work,
    /// The resources of each task on each of its nodes.
    #[schema(value_type = PartialRequest)]
    pub request: Amounts,
    /// The number of nodes that each task uses at the same time; at least one.
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub nodes: Count,
    /// The number of processes of each task on each of its nodes; at least one. Each process has its own rank.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 4096)]
    pub tasks_per_node: Count,
    /// What surrounds each task.
    #[serde(flatten)]
    #[schema(inline)]
    pub surroundings: Surroundings,
    /// Whether the program starts on the first node only. `mpirun` or `hostler step` then start processes on the other
    /// nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_node: bool,
    /// Makes the job an allocation without a program: the job holds its resources for a client, which starts steps on
    /// the nodes. Requires `first_node`. `argv` is then the command that the client runs on its own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AllocationHolder>)]
    pub holder: Option<Box<AllocationHolder>>,
    /// Whether each line of output begins with the rank of its process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub label: bool,
    /// The partition whose nodes the job may use. When absent: the default partition, or all nodes if there is no
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// The constraint that the job's nodes must satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// The time limit of a task in milliseconds. No limit when absent; in a [`Submission`], zero means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The array's indices; a single task 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    /// Conditions on other jobs that must hold before the job starts. Either all of them begin with `?`, and one is enough, or none.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[schema(value_type = Vec<Dependency>, max_items = 1000)]
    pub after: Box<[Dependency]>,
    /// Whether the job waits until all earlier jobs with its name and its user have ended. The head adds them to `after`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub singleton: bool,
    /// The earliest time at which the job starts.
    // Without `default`, which would demand a default of `Time`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RequestedTime>)]
    pub begin: Option<Box<Time>>,
    /// The job's priority. Jobs with a higher priority start first; jobs of equal priority start in the order of
    /// submission.
    #[serde(default)]
    pub priority: i32,
    /// Whether the job is on hold from the start.
    #[serde(default)]
    pub hold: bool,
    /// Whether the job runs again when its node is lost; otherwise it ends as `node_fail`.
    #[serde(default)]
    pub requeue: bool,
    /// Environment variables in addition to those that Hostler sets.
    ///
    /// Here and in arguments, directories and scripts, U+EF80 to U+EFFF stand for bytes that are not UTF-8.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub environment: Environment,
    /// The size of the job's terminal; the job has no terminal when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<WindowSize>,
    /// A signal before the time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<LimitSignal>)]
    pub limit_signal: Option<Box<LimitSignal>>,
    /// Time between TERM and KILL when the job is ended, in milliseconds. When absent: the head's setting `grace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3_600_000)]
    pub grace_ms: Option<u32>,
    /// The file mode creation mask of the job; the agent's mask when absent. Only permission bits (octal 777) count.
    #[serde(default, deserialize_with = "permission_bits", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub umask: Option<u16>,
    /// Files on the job's nodes, instead of kept output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Box<Files>>,
    /// Notifications about the job's events.
    // In a box, because few jobs have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Subscription>, max_items = 8)]
    pub notify: Option<Box<Vec<Subscription>>>,
    /// Labels: values by name, which Hostler only stores and shows. In a box, because few jobs have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = labels_schema, required = false)]
    pub labels: Option<Box<Labels>>,
}

/// Reads a mask of file modes. The kernel ignores all other bits.
fn permission_bits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let mask: Option<u32> = Option::deserialize(deserializer)?;
    Ok(mask.map(|mask| (mask & 0o777) as u16))
}

impl<Count, Amounts, Time> JobSpec<Count, Amounts, Time> {
    /// The notifications about the job's events.
    #[must_use]
    pub fn subscriptions(&self) -> &[Subscription] {
        self.notify.as_ref().map_or(&[], |all| all)
    }
}

impl JobSpec {
    /// Creates the specification of a job with one task and this request. The job has no limits and no dependencies,
    /// and is not requeued.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, work: Work, request: Request) -> Self {
        Self {
            name: name.into(),
            work,
            request,
            nodes: 1,
            tasks_per_node: 1,
            surroundings: Surroundings::default(),
            first_node: false,
            holder: None,
            label: false,
            partition: None,
            constraint: None,
            time_limit_ms: None,
            array: None,
            after: Box::default(),
            singleton: false,
            begin: None,
            priority: 0,
            hold: false,
            requeue: false,
            environment: Environment::new(),
            pty: None,
            limit_signal: None,
            grace_ms: None,
            umask: None,
            files: None,
            notify: None,
            labels: None,
        }
    }

    /// Returns the number of processes of each task on all of its nodes.
    #[must_use]
    pub fn world_size(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.tasks_per_node)
    }

    /// Returns whether a sandbox can run the job: on nodes that it can reach, with a program of its own, which starts all steps.
    #[must_use]
    pub fn fits_sandbox(&self) -> bool {
        let reaches_others = self.nodes == 1 || !self.surroundings.network.is_none();
        reaches_others && self.holder.is_none() && self.surroundings.container.is_none()
    }

    /// Returns whether a container can run the job: without a sandbox, and as one process on each node. Ranks and steps need this
    /// program, which no image has.
    #[must_use]
    pub fn fits_container(&self) -> bool {
        let is_single = self.tasks_per_node == 1 && !self.first_node && !self.label;
        let Surroundings { sandbox, network, image, .. } = &self.surroundings;
        is_single && !sandbox && image.is_none() && network.is_none()
    }

    /// Demands nodes with the engine of the job's container, if it has one.
    pub fn demand_engine(&mut self) {
        if let Some(container) = &self.surroundings.container {
            self.constraint = Some(Constraint::demanding(self.constraint.take(), container.engine.feature()));
        }
    }

    /// Returns whether one satisfied condition of `after` is enough.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        self.after.first().is_some_and(|dependency| dependency.alternative)
    }

    /// Returns how many job numbers the job takes, from its id on: one for each task of an array of `sbatch`.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        let array = self.array.as_ref().filter(|_| self.labels().any(|(name, _)| name == crate::NUMBERED));
        array.map_or(1, |array| array.indices.len().max(1))
    }

    /// Iterates over the labels, by name.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().flat_map(|labels| labels.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Makes an equal name and directory share memory with those of `other`.
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
}

/// The client that holds an allocation without a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllocationHolder {
    /// The fingerprint of the client's certificate, which the nodes trust. The private key never leaves the client.
    pub certificate: Digest,
    /// Whether the allocation stays when the client's connection breaks. Otherwise it ends soon after.
    #[serde(default)]
    pub stays: bool,
}

/// A job as a user submits it. The head fills absent values with the operators' defaults, or with Hostler's own.
pub type Submission = JobSpec<Option<u32>, PartialRequest, RequestedTime>;

/// A [`Request`] with optional values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct PartialRequest {
    /// CPUs per task and node, at least one; `default-cpus`, or 1, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cpus: Option<u32>,
    /// Memory in bytes, per task and node; `default-memory`, or 512 MiB, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8_388_608)]
    pub memory_bytes: Option<u64>,
    /// GPUs per task and node.
    #[serde(default, skip_serializing_if = "is_none")]
    pub gpus: u32,
    /// Counted resources that each task needs on each of its nodes.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl PartialRequest {
    /// Fills absent values.
    #[must_use]
    pub fn or(self, cpus: u32, memory_bytes: u64) -> Request {
        let (cpus, memory_bytes) = (self.cpus.unwrap_or(cpus), self.memory_bytes.unwrap_or(memory_bytes));
        Request { cpus, memory_bytes, gpus: self.gpus, counted: self.counted }
    }
}

object_only!(PartialRequest);

impl Submission {
    /// Creates the submission of a job with one task, which leaves its resources to the defaults.
    #[must_use]
    pub fn with_defaults(name: impl Into<Arc<str>>, work: Work) -> Self {
        JobSpec::new(name, work, Request::NOTHING).resized(PartialRequest::default(), None, None, None)
    }
}

impl<Count, Amounts, Time> JobSpec<Count, Amounts, Time> {
    /// Creates a copy with other resources, other numbers of nodes and processes, and another time.
    #[must_use]
    pub fn resized<C, A, T>(self, request: A, nodes: C, tasks_per_node: C, begin: Option<Box<T>>) -> JobSpec<C, A, T> {
        JobSpec {
            name: self.name,
            work: self.work,
            request,
            nodes,
            tasks_per_node,
            surroundings: self.surroundings,
            first_node: self.first_node,
            holder: self.holder,
            label: self.label,
            partition: self.partition,
            constraint: self.constraint,
            time_limit_ms: self.time_limit_ms,
            array: self.array,
            after: self.after,
            singleton: self.singleton,
            begin,
            priority: self.priority,
            hold: self.hold,
            requeue: self.requeue,
            environment: self.environment,
            pty: self.pty,
            limit_signal: self.limit_signal,
            grace_ms: self.grace_ms,
            umask: self.umask,
            files: self.files,
            notify: self.notify,
            labels: self.labels,
        }
    }
}

/// Creates a submission in which no value is left to the defaults.
impl From<JobSpec> for Submission {
    fn from(spec: JobSpec) -> Self {
        let Request { cpus, memory_bytes, gpus, counted } = spec.request.clone();
        let request = PartialRequest { cpus: Some(cpus), memory_bytes: Some(memory_bytes), gpus, counted };
        let (nodes, tasks_per_node) = (Some(spec.nodes), Some(spec.tasks_per_node));
        let time_limit_ms = spec.time_limit_ms.or(Some(0));
        let begin = spec.begin.as_deref().map(|at| Box::new(RequestedTime::At(*at)));
        Self { time_limit_ms, ..spec.resized(request, nodes, tasks_per_node, begin) }
    }
}

const fn is_empty<T>(list: &[T]) -> bool {
    list.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

/// What a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A captured project folder. Each run gets a fresh copy of the folder and returns the files that it created or
    /// changed.
    Project {
        /// The hash of the captured folder's manifest.
        snapshot: Digest,
        /// The program to run: a file in the folder, or a command.
        #[schema(min_length = 1)]
        entrypoint: String,
        /// The arguments of the entry point.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A command in a directory that exists on the node. The run returns only its output.
    Command {
        /// The program, followed by its arguments.
        #[schema(schema_with = argv_schema)]
        argv: Vec<String>,
        /// The working directory, an absolute path.
        #[schema(value_type = String, pattern = "^/")]
        directory: Arc<str>,
        /// A script whose content runs in place of the program. The first line names the interpreter after `#!`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(max_length = 4_194_304, pattern = r"^#![ \t]*/(\r*[^\x00\r\n]|\n)*\r*$")]
        script: Option<String>,
    },
}

/// The largest script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 4 << 20;

/// The most bytes of a job's environment variables. Linux passes no more to a program with the usual limit of its stack.
pub const MAX_ENVIRONMENT_BYTES: usize = 2 << 20;

/// Returns the JSON schema of a command line: a list of words, the first of which is not empty.
#[must_use]
pub fn argv_schema() -> Schema {
    let word = || ObjectBuilder::new().schema_type(Type::String);
    let program = Schema::from(word().min_length(Some(1)));
    ArrayBuilder::new().items(word()).prefix_items([program]).min_items(Some(1)).into()
}

impl Work {
    /// Creates the work of running a program with arguments in `directory`.
    pub fn command(argv: impl IntoIterator<Item = impl Into<String>>, directory: impl Into<Arc<str>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self::Command { argv, directory: directory.into(), script: None }
    }

    /// Returns the script of a command that runs one.
    pub const fn script_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Command { script, .. } => script.as_mut(),
            Self::Project { .. } => None,
        }
    }

    /// The command line, quoted for a shell.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words: Vec<String> = match self {
            Self::Project { entrypoint, args, .. } => {
                std::iter::once(entrypoint).chain(args).map(|word| quoted(word)).collect()
            }
            Self::Command { argv, .. } => argv.iter().map(|word| quoted(word)).collect(),
        };
        words.join(" ")
    }
}

/// Quotes a word for a shell, if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Resources that a task requests on each of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Request {
    /// The number of CPUs, at least one.
    #[schema(minimum = 1)]
    pub cpus: u32,
    /// Memory in bytes.
    #[schema(minimum = 8_388_608)]
    pub memory_bytes: u64,
    /// The number of GPUs.
    #[serde(default, skip_serializing_if = "is_none")]
    pub gpus: u32,
    /// Counted resources by name.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl Request {
    /// A request for no resources.
    pub const NOTHING: Self = Self::new(0, 0);

    /// Creates a request for CPUs and memory only.
    #[must_use]
    pub const fn new(cpus: u32, memory_bytes: u64) -> Self {
        Self { cpus, memory_bytes, gpus: 0, counted: Counted::NONE }
    }

    /// Combines the two amounts of each resource with `amount`.
    #[must_use]
    pub fn zip(&self, other: &Self, amount: impl Fn(u64, u64) -> u64) -> Self {
        let count = |one: u32, other: u32| u32::try_from(amount(one.into(), other.into())).unwrap_or(u32::MAX);
        Self {
            cpus: count(self.cpus, other.cpus),
            memory_bytes: amount(self.memory_bytes, other.memory_bytes),
            gpus: count(self.gpus, other.gpus),
            counted: self.counted.zip(&other.counted, amount),
        }
    }

    /// Iterates over the resources of this request. Each item is the amount in this request and the amount in `other`.
    pub fn pairs<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let Self { cpus, memory_bytes, gpus, counted } = self;
        let fixed = [
            (u64::from(*cpus), u64::from(other.cpus)),
            (*memory_bytes, other.memory_bytes),
            (u64::from(*gpus), u64::from(other.gpus)),
        ];
        fixed.into_iter().chain(counted.iter().map(|(name, count)| (count, other.counted.count(name))))
    }

    /// Iterates over the amounts of all resources.
    pub fn amounts(&self) -> impl Iterator<Item = u64> + '_ {
        self.pairs(self).map(|(amount, _)| amount)
    }

    /// Returns the request without CPUs and memory, which every node has: only GPUs and counted resources.
    #[must_use]
    pub fn rare(&self) -> Self {
        Self { cpus: 0, memory_bytes: 0, ..self.clone() }
    }

    /// Returns the number of different rare resources, i.e. GPUs and counted resources.
    #[must_use]
    pub fn rare_kinds(&self) -> usize {
        self.rare().amounts().filter(|amount| *amount > 0).count()
    }

    /// Iterates over the rare resources, with a separate request for each.
    pub fn each_rare(&self) -> impl Iterator<Item = Self> + '_ {
        let gpus = (self.gpus > 0).then_some(Self { gpus: self.gpus, ..Self::NOTHING });
        gpus.into_iter().chain(self.counted.each_alone().map(|counted| Self { counted, ..Self::NOTHING }))
    }

    /// Returns whether each amount is at least the amount in `wanted`.
    #[must_use]
    pub fn covers(&self, wanted: &Self) -> bool {
        wanted.pairs(self).all(|(wanted, had)| wanted <= had)
    }
}

/// Formats the request, e.g. `4 CPUs, 1 GPU, 16G of memory and license=2`; `nothing` if it is empty.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowSize {
    /// Height in lines.
    pub rows: u16,
    /// Width in characters.
    pub columns: u16,
}

/// The final state and the exit code of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// The final state of the task.
    pub state: TaskState,
    /// The exit code, or 128 plus the signal number; absent if the task never ran.
    pub exit_code: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
        let work = Work::command(["echo", "two words", "", "it's", "a=b,c"], "/");
        assert_eq!(work.command_line(), r"echo 'two words' '' 'it'\''s' a=b,c");
    }

    #[test]
    fn masks_of_earlier_releases_are_read() {
        let spec = JobSpec::new("j", Work::command(["true"], "/"), Request::new(1, 1 << 30));
        let mut value = serde_json::to_value(&spec).expect("a job can be serialized");
        for (stored, read) in [(0o27_u32, 0o27), (0xffff_0012, 0o22)] {
            value["umask"] = stored.into();
            let spec: Result<JobSpec, _> = serde_json::from_value(value.clone());
            assert_eq!(spec.ok().and_then(|spec| spec.umask), Some(read), "{stored:o}");
        }
    }

    #[test]
    fn partial_requests_are_objects() {
        let request = PartialRequest { cpus: Some(2), ..PartialRequest::default() };
        let text = serde_json::to_string(&request).expect("a request can be serialized");
        assert_eq!(serde_json::from_str(&text).ok(), Some(request));
        for text in ["[]", "[1, 5000000]", r#"{"cpu": 1}"#, "1", "null"] {
            assert!(serde_json::from_str::<PartialRequest>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn requests_are_displayed_in_words() {
        assert_eq!(Request::default().to_string(), "nothing");
        assert_eq!(Request::new(1, 0).to_string(), "1 CPU");
        assert_eq!(Request::new(2, 16 << 30).to_string(), "2 CPUs and 16G of memory");
        let counted = "camera,license=2".parse().expect("counts");
        let all = Request { gpus: 1, counted, ..Request::new(4, 1 << 30) };
        assert_eq!(all.to_string(), "4 CPUs, 1 GPU, 1G of memory, camera=1 and license=2");
    }
}
