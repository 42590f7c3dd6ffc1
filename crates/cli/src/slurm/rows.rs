//! Jobs as Slurm's commands list them: one row for each task that runs or has ended, and one for those that wait.

mod asked;

use std::collections::BTreeMap;
use std::path::Path;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{IndexSet, JobId, JobState, NUMBERED, PathFacts, Reason, TaskId, WallTime};
use hostler_proto::api::{JobRecord, TaskView};
use hostler_proto::link::StepRecord;
use hostler_remote::step::OUT_OF_MEMORY;
use hostler_slurm::hostlist::compress;
use hostler_slurm::ids;
use hostler_slurm::state::State;

/// Account and QOS of a job that names none.
pub(crate) const ACCOUNT: &str = "default";
pub(crate) const QOS: &str = "normal";

/// A job, or some of its tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) job: &'a JobRecord,
    which: Which,
    /// The task that runs or has ended.
    pub(crate) task: Option<&'a TaskView>,
}

/// Which tasks of its job a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The only one of a job without an array.
    Only,
    /// One of an array.
    One(u32),
    /// The waiting tasks of an array that are held in the same way, or the ones that are not held.
    Waiting(Held),
}

/// Whether tasks of an array are held, although the whole array is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Not,
    ByOwner,
    ByOperator,
}

/// The rows of a job. With `split`, each task of an array that waits has a row of its own.
pub(crate) fn rows(job: &JobRecord, split: bool) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    if job.array.is_none() {
        return vec![Row { job, which: Which::Only, task: job.tasks.first() }];
    }
    if let Some(waiting) = job.waiting.as_ref().filter(|_| split) {
        rows.extend(waiting.indices.iter().map(|index| Row { job, which: Which::One(index), task: None }));
    } else if job.waiting.is_some() {
        for held in [Held::Not, Held::ByOwner, Held::ByOperator] {
            let indices = waiting_tasks(job, held);
            rows.extend((!indices.is_empty()).then_some(Row { job, which: Which::Waiting(held), task: None }));
        }
    }
    rows.extend(job.tasks.iter().map(|task| Row { job, which: Which::One(task.index), task: Some(task) }));
    rows
}

/// Whether each task of an array takes a job number.
fn takes_numbers(job: &JobRecord) -> bool {
    job.labels.contains_key(NUMBERED)
}

/// The index of the array task with this job number. `None` for the array's own number.
pub(super) fn task_with_number(job: &JobRecord, number: JobId) -> Option<u32> {
    let array = job.array.as_ref().filter(|_| takes_numbers(job) && number != job.id)?;
    array.indices.nth(ids::position(job.id.0, number.0, array.indices.len())?)
}

/// Finds the task of an array that has a number.
///
/// # Errors
/// See [`ClientError`].
pub(super) async fn find_task(client: &Client, number: JobId) -> Result<Option<TaskId>, ClientError> {
    let filter = RecordFilter { jobs: vec![number], live: true, ..RecordFilter::default() };
    let records = client.records(&filter).await?;
    Ok(records.iter().find_map(|job| Some(TaskId { job: job.id, index: task_with_number(job, number)? })))
}

/// The waiting tasks of an array that are held like this.
fn waiting_tasks(job: &JobRecord, held: Held) -> IndexSet {
    let Some(waiting) = &job.waiting else { return IndexSet::default() };
    let (all, by_operator) = (job.held_tasks.as_ref(), job.held_tasks_by_operator.clone().unwrap_or_default());
    match (held, all) {
        (Held::Not, None) => waiting.indices.clone(),
        (Held::Not, Some(held)) => waiting.indices.difference(held),
        (Held::ByOwner, held) => held.map(|held| held.difference(&by_operator)).unwrap_or_default(),
        (Held::ByOperator, _) => by_operator,
    }
}

impl<'a> Row<'a> {
    /// The id: `12`, `12_3`, `12_[4-9%2]`.
    pub(crate) fn id(&self) -> String {
        let id = self.job.id;
        match self.which {
            Which::Only => id.to_string(),
            Which::One(index) => format!("{id}_{index}"),
            Which::Waiting(held) => format!("{id}_[{}]", self.waiting(held)),
        }
    }

    /// The number that no other task has. The waiting tasks of an array share the number of the job.
    pub(crate) fn raw_id(&self) -> u64 {
        let job = self.job.id.0;
        let (Which::One(index), Some(array)) = (self.which, &self.job.array) else { return job };
        match (takes_numbers(self.job), array.indices.position(index)) {
            (true, Some(position)) => ids::number(job, position, array.indices.len()),
            _ => ids::far_number(job, index, array.indices.last().unwrap_or(index)),
        }
    }

    /// The index, or the indices that wait; `None` without an array.
    pub(crate) fn array_task(&self) -> Option<String> {
        match self.which {
            Which::Only => None,
            Which::One(index) => Some(index.to_string()),
            Which::Waiting(held) => Some(self.waiting(held)),
        }
    }

    /// The index of the only task that the row stands for.
    pub(crate) fn index(&self) -> Option<u32> {
        match self.which {
            Which::Only => Some(0),
            Which::One(index) => Some(index),
            Which::Waiting(_) => None,
        }
    }

    /// Whether the row stands for a task of an array that has one of these indices.
    pub(crate) fn has_any(&self, tasks: &IndexSet) -> bool {
        match self.which {
            Which::Only => false,
            Which::One(own) => tasks.contains(own),
            Which::Waiting(held) => !waiting_tasks(self.job, held).intersection(tasks).is_empty(),
        }
    }

    fn waiting(&self, held: Held) -> String {
        let limit = self.job.waiting.as_ref().and_then(|waiting| waiting.limit);
        let limit = limit.map(|limit| format!("%{limit}")).unwrap_or_default();
        format!("{}{limit}", indices(&waiting_tasks(self.job, held)))
    }

    /// Whether the row's tasks are held, with the whole job or on their own.
    fn held(&self) -> Held {
        if self.state() != State::Pending {
            return Held::Not;
        }
        let is_in = |set: Option<&IndexSet>, index| set.is_some_and(|set| set.contains(index));
        let on_their_own = match self.which {
            Which::Only => Held::Not,
            Which::One(index) if is_in(self.job.held_tasks_by_operator.as_ref(), index) => Held::ByOperator,
            Which::One(index) if is_in(self.job.held_tasks.as_ref(), index) => Held::ByOwner,
            Which::One(_) => Held::Not,
            Which::Waiting(held) => held,
        };
        match &self.job.reason {
            Some(Reason::Held) if self.job.held_by_operator => Held::ByOperator,
            Some(Reason::Held) if on_their_own == Held::Not => Held::ByOwner,
            _ => on_their_own,
        }
    }

    /// Whether the row's tasks are held.
    pub(crate) fn is_held(&self) -> bool {
        self.held() != Held::Not
    }

    pub(crate) fn state(&self) -> State {
        match self
            .task
            .map_or(if self.which == Which::Only { self.job.state } else { JobState::Pending }, |task| task.state)
        {
            JobState::Pending => State::Pending,
            JobState::Starting | JobState::Running => State::Running,
            JobState::Completing => State::Completing,
            JobState::Completed => State::Completed,
            JobState::Failed => State::Failed,
            JobState::Cancelled => State::Cancelled,
            JobState::Timeout => State::Timeout,
            JobState::OutOfMemory => State::OutOfMemory,
            JobState::NodeFail => State::NodeFail,
            JobState::Preempted => State::Preempted,
        }
    }

    /// Why the row's tasks wait or failed; `None` in Slurm's words if there is nothing to say.
    pub(crate) fn reason(&self) -> &'static str {
        match self.state() {
            State::Pending => match self.held() {
                Held::ByOperator => "JobHeldAdmin",
                Held::ByOwner => "JobHeldUser",
                Held::Not => self.job.reason.as_ref().map_or("None", reason),
            },
            State::Failed => "NonZeroExitCode",
            State::Timeout => "TimeLimit",
            State::NodeFail => "NodeDown",
            State::OutOfMemory => "OutOfMemory",
            State::Cancelled if self.is_cancelled_by_dependency() => "DependencyNeverSatisfied",
            _ => "None",
        }
    }

    /// Whether the job was cancelled because its dependencies cannot be satisfied any more.
    pub(crate) fn is_cancelled_by_dependency(&self) -> bool {
        let has_message = self.task.is_some_and(|task| task.message.is_some());
        !self.job.after.is_empty() && has_message && self.nodes().is_empty()
    }

    /// The names of the nodes, in order of rank.
    pub(crate) fn nodes(&self) -> Vec<&'a str> {
        let Some(task) = self.task else { return Vec::new() };
        if task.parts.is_empty() {
            return task.node.iter().map(hostler_model::NodeName::as_str).collect();
        }
        task.parts.iter().map(|part| part.node.as_str()).collect()
    }

    /// The nodes as a host list; empty before the start.
    pub(crate) fn node_list(&self) -> String {
        compress(&self.nodes())
    }

    pub(crate) fn cpus(&self) -> u64 {
        u64::from(self.job.cpus) * u64::from(self.job.nodes)
    }

    /// Time of the start; of a job that was cancelled before, the time of its end. A task that its nodes prepare has
    /// started, too.
    pub(crate) fn started_at(&self) -> Option<WallTime> {
        let of_task = self.task.and_then(|task| task.started_at);
        let placed = || self.task.filter(|task| !task.state.is_ended()).and_then(|task| task.stages.placed_at);
        of_task.or_else(|| self.ended_at()).or_else(placed)
    }

    /// The time from which nothing but resources kept the row's tasks from starting; `None` while something else does.
    pub(crate) fn eligible_at(&self) -> Option<WallTime> {
        let waits = matches!(self.job.reason, Some(Reason::Dependency { .. })) || self.is_held();
        if waits && self.state() == State::Pending {
            return None;
        }
        Some(self.job.begin_at.map_or(self.job.submitted_at, |begin| begin.max(self.job.submitted_at)))
    }

    /// Time of the end; `None` if the row's tasks have not ended.
    pub(crate) fn ended_at(&self) -> Option<WallTime> {
        if !self.state().is_ended() {
            return None;
        }
        self.task.and_then(|task| task.ended_at).or(self.job.ended_at)
    }

    /// Seconds from the start to the end, or to now.
    pub(crate) fn elapsed(&self, now: WallTime) -> u64 {
        let Some(started) = self.started_at() else { return 0 };
        let until = self.ended_at().unwrap_or(now);
        u64::try_from(until.0.saturating_sub(started.0)).unwrap_or(0) / 1000
    }

    /// The time limit in seconds.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.job.time_limit_ms.map(|limit| limit.div_ceil(1000))
    }

    /// Exit code and signal.
    pub(crate) fn exit(&self) -> (i32, i32) {
        // A limit or a cancellation is the reason, whatever the program made of the signal.
        match (self.state(), self.task.and_then(|task| task.exit_code)) {
            (State::Failed, Some(code)) => split_code(code),
            (State::Failed, None) | (State::NodeFail, _) => (1, 0),
            (State::OutOfMemory, _) => (0, 125),
            _ => (0, 0),
        }
    }

    /// How often the task started again. For waiting tasks of an array this is zero: the record of the job does not say which of them
    /// were requeued.
    pub(crate) fn restarts(&self) -> u32 {
        match self.task {
            Some(task) => task.attempt.0.saturating_sub(1),
            None if self.job.array.is_some() => 0,
            None => self.job.attempt.0,
        }
    }

    pub(crate) fn label(&self, name: &str) -> Option<&'a str> {
        self.job.labels.get(name).map(String::as_str)
    }

    pub(crate) fn account(&self) -> &'a str {
        self.label("account").unwrap_or(ACCOUNT)
    }

    pub(crate) fn qos(&self) -> &'a str {
        self.label("qos").unwrap_or(QOS)
    }

    pub(crate) fn partition(&self) -> &'a str {
        self.job.partition.as_ref().map_or(super::machines::ALL_NODES, hostler_model::PartitionName::as_str)
    }

    /// Absolute paths of standard input, output and error.
    pub(crate) fn files(&self) -> [String; 3] {
        let Some(files) = &self.job.files else { return [const { String::new() }; 3] };
        let input = files.stdin.clone().unwrap_or_else(|| "/dev/null".to_owned());
        let output = files.stdout.clone().unwrap_or_else(|| "/dev/null".to_owned());
        let error = files.stderr.clone().unwrap_or_else(|| output.clone());
        [input, output, error].map(|path| self.absolute(&path))
    }

    fn absolute(&self, path: &str) -> String {
        let nodes = self.nodes();
        let waiting = |held| waiting_tasks(self.job, held);
        let only = match self.which {
            Which::Waiting(held) => waiting(held).first().filter(|_| waiting(held).len() == 1),
            Which::Only | Which::One(_) => self.index(),
        };
        let facts = PathFacts {
            job: self.job.id,
            number: self.raw_id(),
            index: only.unwrap_or_default(),
            name: &self.job.name,
            user: &self.job.user,
            node: nodes.first().copied().unwrap_or_default(),
            node_rank: 0,
            rank: 0,
            step: None,
            restarts: self.restarts(),
        };
        let directory = Path::new(self.job.directory.as_deref().unwrap_or("/"));
        // Several tasks have no common index.
        let path = if only.is_none() { path.to_owned() } else { facts.expand(path) };
        directory.join(path).to_string_lossy().into_owned()
    }
}

/// The exit code and the signal in an exit code as a shell reports it.
pub(crate) const fn split_code(code: i32) -> (i32, i32) {
    /// The last signal of Linux.
    const LAST: i32 = 64;
    if code > 128 && code <= 128 + LAST { (0, code - 128) } else { (code, 0) }
}

/// Exit code and signal of a step; zeros while the step runs.
pub(crate) fn step_exit(step: &StepRecord) -> (i32, i32) {
    match step.exit_code {
        _ if step.ended_at.is_none() => (0, 0),
        Some(OUT_OF_MEMORY) => (0, 125),
        Some(code) => split_code(code),
        None => (0, 15),
    }
}

/// Exit code and signal as one number, as `wait` returns them.
pub(crate) const fn raw_status((code, signal): (i32, i32)) -> i32 {
    code << 8 | signal
}

/// Indices in Slurm's words: `1-3,7`, and `1-59:2` if many have the same distance.
fn indices(set: &IndexSet) -> String {
    /// A shorter list is written with commas.
    const LEAST_SPAN: u32 = 10;
    let (Some(first), Some(last)) = (set.first(), set.last()) else { return String::new() };
    let step = set.next_from(first + 1).map_or(1, |second| second - first);
    let are_even = || set.iter().zip(set.iter().skip(1)).all(|(one, next)| next - one == step);
    if last - first > LEAST_SPAN && step > 1 && are_even() { format!("{first}-{last}:{step}") } else { set.to_string() }
}

/// Slurm's word for the reason why a job waits.
const fn reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::Held => "JobHeldUser",
        Reason::Dependency { .. } => "Dependency",
        Reason::BeginTime { .. } => "BeginTime",
        Reason::ArrayLimit { .. } => "JobArrayTaskLimit",
        Reason::Quota { .. } => "AssocMaxJobsLimit",
        Reason::Blocked { .. } => "AccountNotAllowed",
        Reason::PartitionPaused { .. } => "PartitionDown",
        Reason::PartitionGone { .. } | Reason::NeedsSandbox { .. } => "PartitionConfig",
        Reason::NoNodes { .. } => "BadConstraints",
        Reason::Priority { .. } | Reason::Reservation { .. } => "Priority",
        Reason::NodesDown { .. } | Reason::NodesDrained { .. } => "ReqNodeNotAvail",
        // Nodes that are switched on for a job are resources that are not there yet.
        Reason::Resources { .. }
        | Reason::TooFewNodes { .. }
        | Reason::NotIdle { .. }
        | Reason::Waking { .. }
        | Reason::NodesAsleep { .. } => "Resources",
        Reason::Scheduling => "None",
    }
}

/// Ids of users and groups, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Accounts(BTreeMap<String, Option<nix::unistd::User>>);

impl Accounts {
    fn user(&mut self, name: &str) -> Option<&nix::unistd::User> {
        let find = || nix::unistd::User::from_name(name).ok().flatten();
        self.0.entry(name.to_owned()).or_insert_with(find).as_ref()
    }

    /// The user's id on this machine; `nobody`'s if there is none.
    pub(crate) fn uid(&mut self, name: &str) -> u32 {
        self.user(name).map_or(65_534, |user| user.uid.as_raw())
    }

    /// The id of the user's group on this machine.
    pub(crate) fn gid(&mut self, name: &str) -> u32 {
        self.user(name).map_or(65_534, |user| user.gid.as_raw())
    }

    /// The name of the user's group.
    pub(crate) fn group(&mut self, name: &str) -> String {
        let gid = self.gid(name);
        let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(gid)).ok().flatten();
        group.map_or_else(|| gid.to_string(), |group| group.name)
    }
}
