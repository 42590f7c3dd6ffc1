//! A method per route of the API, in the order of its documentation.

use std::time::Duration;

use bytes::Bytes;
use hostler_model::{
    DestinationName, Digest, IndexSet, JobId, JobState, NodeName, Offer, PartitionName, SignalNumber, SignalTarget,
    Submission, TaskId, WallTime,
};
use hostler_proto::api::{
    CancelTasks, DigestList, DrainRequest, Fetched, Info, Invitation, Invite, JobAction, JobChange, JobDetail,
    JobOrder, JobPage, JobRecord, JobSummary, JoinRequest, Joined, KeyedSubmission, NodeDetail, NodeView, RecordPage,
    RenewRequest, ResultPage, ScriptView, Signalled, SubmissionAnswer, SubmitRequest, SubmitSeveral, Submitted,
    SubmittedSeveral, Why,
};
use hostler_proto::dry_run::{DryRunRequest, DryRunView};
use hostler_proto::link::StepRecord;
use hostler_proto::notify::{Notifications, TestMessage};
use hostler_proto::partitions::{InvitePartition, NewPartition, PartitionChange, PartitionView, TraitsChange};
use hostler_proto::peers::{LOAD_PATH, LoadTable, Peers};
use hostler_proto::power::{EnergyView, PowerRequest};
use hostler_proto::settings::{NewValue, SettingView};
use hostler_proto::usage::{UsageReport, UsageView};
use hostler_proto::users::Me;
use serde_json::json;

use crate::client::Call;
use crate::submit::new_key;
use crate::{Client, ClientError};

/// Timeout of a shutdown, which may include the grace time of running jobs.
const SHUTDOWN_TIME: Duration = Duration::from_secs(120);

/// How long one request waits for the end of a job.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Timeout of a test message.
const NOTIFICATION_TIME: Duration = Duration::from_secs(120);

/// What to do at a shutdown with jobs that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveJobs {
    /// Do not shut down.
    Refuse,
    /// Keep all jobs: running jobs continue, waiting jobs keep waiting.
    Keep,
    /// Cancel all jobs before the shutdown.
    Cancel,
}

impl LiveJobs {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Keep => "keep",
            Self::Cancel => "cancel",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// States; empty means all.
    pub states: Vec<JobState>,
    /// Whether to include arrays with a task in one of these states, whatever the state of the job is.
    pub any_task: bool,
    /// User; `None` means all.
    pub user: Option<String>,
    /// Text in the name, the id or the command line; `None` means any.
    pub text: Option<String>,
    /// Partition; `None` means all.
    pub partition: Option<PartitionName>,
    /// Only jobs that ended at this time or later.
    pub ended_since: Option<WallTime>,
    /// Maximum number of jobs; `None` means the head's default.
    pub limit: Option<u32>,
    /// Only jobs that follow this job in the order. For the next page, pass `next` of the previous page.
    pub before: Option<JobId>,
    /// Order of the jobs. An order other than newest first requires states of jobs that have not ended.
    pub order: JobOrder,
    /// Whether to include the commands of the jobs.
    pub commands: bool,
}

impl JobFilter {
    /// Returns the query string, with a leading `?` unless it is empty.
    fn query(&self) -> String {
        let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
        let mut parts = Vec::new();
        if !states.is_empty() {
            parts.push(format!("state={}", states.join(",")));
        }
        parts.extend(self.any_task.then(|| "any_task=true".to_owned()));
        parts.extend(self.user.as_ref().map(|user| format!("user={}", escape(user))));
        parts.extend(self.text.as_ref().map(|text| format!("text={}", escape(text))));
        parts.extend(self.partition.as_ref().map(|partition| format!("partition={partition}")));
        parts.extend(self.ended_since.map(|since| format!("ended_since={}", since.0)));
        parts.extend(self.limit.map(|limit| format!("limit={limit}")));
        parts.extend(self.before.map(|before| format!("before={before}")));
        parts.extend((self.order != JobOrder::Newest).then(|| format!("order={}", self.order.as_str())));
        parts.extend(self.commands.then(|| "commands=true".to_owned()));
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}

/// Filter and page of a list of records.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    /// Only these jobs; empty means all. Unknown ones are left out.
    pub jobs: Vec<JobId>,
    /// States; empty means all.
    pub states: Vec<JobState>,
    /// User; `None` means all.
    pub user: Option<String>,
    /// Name of the jobs; `None` means any.
    pub name: Option<String>,
    /// Only jobs that ended at this time or later.
    pub ended_since: Option<WallTime>,
    /// Whether to leave out tasks that have ended.
    pub live: bool,
}

impl RecordFilter {
    /// Returns the query string, with a leading `?`.
    fn query(&self, before: Option<&str>) -> String {
        let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
        let jobs: Vec<String> = self.jobs.iter().map(ToString::to_string).collect();
        let mut parts = vec![format!("live={}", self.live)];
        parts.extend((!jobs.is_empty()).then(|| format!("jobs={}", jobs.join(","))));
        parts.extend((!states.is_empty()).then(|| format!("state={}", states.join(","))));
        parts.extend(self.user.as_ref().map(|user| format!("user={}", escape(user))));
        parts.extend(self.name.as_ref().map(|name| format!("name={}", escape(name))));
        parts.extend(self.ended_since.map(|since| format!("ended_since={}", since.0)));
        parts.extend(before.map(|before| format!("before={before}")));
        format!("?{}", parts.join("&"))
    }
}

/// Percent-encodes all bytes except letters, digits and `-_.~`.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Most methods are retried while the head is unreachable. Exceptions are noted. All methods fail with a
/// [`ClientError`].
impl Client {
    pub async fn info(&self) -> Result<Info, ClientError> {
        self.call(Call::get("/info")).await
    }

    /// Who this client is to the head, and with which role.
    pub async fn me(&self) -> Result<Me, ClientError> {
        self.call(Call::get("/me")).await
    }

    /// Stops the head and the agents of an embedded cluster. Not retried once the request may have arrived.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if jobs have not ended and `jobs` is [`LiveJobs::Refuse`].
    pub async fn shutdown(&self, jobs: LiveJobs) -> Result<(), ClientError> {
        let call = Call::post("/shutdown").json(&json!({ "jobs": jobs.as_str() })).waiting(SHUTDOWN_TIME).once();
        match self.call_bytes(call).await {
            // A head that stops may close the connection before its answer is read.
            Ok(_) | Err(ClientError::Interrupted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.call(Call::get("/nodes")).await
    }

    /// The nodes with the tasks that hold them and what was measured last.
    pub async fn nodes_in_use(&self) -> Result<Vec<NodeView>, ClientError> {
        self.call(Call::get("/nodes?holders=true&measured=true")).await
    }

    /// Creates a join code for a node of this name.
    pub async fn invite(&self, node: &NodeName) -> Result<Invitation, ClientError> {
        self.invite_as(&Invite { node: Some(node.clone()), address: None }).await
    }

    /// Creates a join code, optionally with a name and an address.
    pub async fn invite_as(&self, invite: &Invite) -> Result<Invitation, ClientError> {
        self.call(Call::post("/nodes/invite").json(invite)).await
    }

    pub async fn node(&self, node: &NodeName) -> Result<NodeDetail, ClientError> {
        self.call(Call::get(format!("/nodes/{node}"))).await
    }

    /// Drains a node: its tasks finish and no new ones start.
    pub async fn drain_node(&self, node: &NodeName, reason: Option<String>) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/drain")).json(&DrainRequest { reason })).await
    }

    /// Resumes a drained node: it gets tasks again.
    pub async fn resume_node(&self, node: &NodeName) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/resume"))).await
    }

    /// Switches a node on or off, or queries its controller.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_power` if the head cannot switch the node on and off, or with `node_in_use`
    /// if the node must stay on now.
    pub async fn power_node(&self, node: &NodeName, request: PowerRequest) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/power")).json(&request)).await
    }

    /// Energy use of the nodes that the head can switch on and off.
    pub async fn energy(&self) -> Result<EnergyView, ClientError> {
        self.call(Call::get("/energy")).await
    }

    /// Removes a node: revokes its certificate and ends its tasks. Not retried once the request may have arrived,
    /// because a new node of this name may have joined.
    pub async fn remove_node(&self, node: &NodeName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/nodes/{node}/remove")).once()).await.map(drop)
    }

    /// Removes a node from the list until its agent connects again.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `node_in_use` if the node is connected or has a task.
    pub async fn forget_node(&self, node: &NodeName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/nodes/{node}/forget"))).await.map(drop)
    }

    /// Changes a node's features and weight; absent values stay unchanged.
    pub async fn set_traits(&self, node: &NodeName, change: &TraitsChange) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/traits")).json(change)).await
    }

    /// Sets the most that a node offers to jobs; absent amounts are all that it has.
    pub async fn set_offer(&self, node: &NodeName, offer: &Offer) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/offer")).json(offer)).await
    }

    pub async fn partitions(&self) -> Result<Vec<PartitionView>, ClientError> {
        self.call(Call::get("/partitions")).await
    }

    /// Returns a partition with the resources of its nodes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_partition`.
    pub async fn partition(&self, name: &PartitionName) -> Result<PartitionView, ClientError> {
        self.call(Call::get(format!("/partitions/{name}"))).await
    }

    /// Adds a partition. Not retried once the request may have arrived.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `partition_exists` or `bad_partition`.
    pub async fn add_partition(&self, new: &NewPartition) -> Result<PartitionView, ClientError> {
        self.call(Call::post("/partitions").json(new).once()).await
    }

    /// Changes a partition; absent values stay unchanged.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_partition` or `bad_partition`.
    pub async fn change_partition(
        &self,
        name: &PartitionName,
        change: &PartitionChange,
    ) -> Result<PartitionView, ClientError> {
        self.call(Call::post(format!("/partitions/{name}")).json(change)).await
    }

    /// Removes a partition. Not retried once the request may have arrived.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `partition_in_use` if jobs wait in it.
    pub async fn remove_partition(&self, name: &PartitionName) -> Result<(), ClientError> {
        self.call_bytes(Call::delete(format!("/partitions/{name}")).once()).await.map(drop)
    }

    /// Creates the join code for the nodes of a partition.
    pub async fn invite_partition(
        &self,
        name: &PartitionName,
        invite: &InvitePartition,
    ) -> Result<Invitation, ClientError> {
        self.call(Call::post(format!("/partitions/{name}/invite")).json(invite)).await
    }

    pub async fn settings(&self) -> Result<Vec<SettingView>, ClientError> {
        self.call(Call::get("/settings")).await
    }

    /// Changes a setting; without `value`, restores its default.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_setting`, or `bad_setting` if the value is not valid.
    pub async fn change_setting(&self, name: &str, value: Option<&str>) -> Result<SettingView, ClientError> {
        let path = format!("/settings/{}", escape(name));
        let call = match value {
            Some(value) => Call::put(path).json(&NewValue { value: value.to_owned() }),
            None => Call::delete(path),
        };
        self.call(call).await
    }

    /// Destinations of notifications, and messages that could not be delivered.
    pub async fn notifications(&self) -> Result<Notifications, ClientError> {
        self.call(Call::get("/notifications")).await
    }

    /// Sends a test message and waits until the receiver has it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `not_delivered` if the receiver did not accept the message.
    pub async fn test_notification(&self, to: &DestinationName, address: Option<&str>) -> Result<(), ClientError> {
        let test = TestMessage { to: to.clone(), address: address.map(str::to_owned) };
        let call = Call::post("/notifications/test").json(&test).waiting(NOTIFICATION_TIME).once();
        self.call_bytes(call).await.map(drop)
    }

    /// Delivers the messages again that could not be delivered.
    pub async fn retry_notifications(&self) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/notifications/retry")).await.map(drop)
    }

    /// Deletes the messages that could not be delivered.
    pub async fn clear_notifications(&self) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/notifications/clear")).await.map(drop)
    }

    /// Submits a job and returns once the job is on the head's disk. Idempotent: the same key gives the same job.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `snapshot_missing` if the folder must be uploaded first, `never_fits` if no
    /// node can run the job.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<Submitted, ClientError> {
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(0));
        self.call(Call::post("/jobs").json(request).waiting(wait)).await
    }

    /// Submits a job under a new key.
    pub async fn submit_new(&self, spec: Submission) -> Result<JobId, ClientError> {
        Ok(self.submit(&SubmitRequest { key: new_key(), spec, wait_ms: None }).await?.id)
    }

    /// Submits several jobs in one request. Returns the answers in order.
    pub async fn submit_several(
        &self,
        submissions: Vec<KeyedSubmission>,
    ) -> Result<Vec<Result<Submitted, ClientError>>, ClientError> {
        let call = Call::post("/submissions").json(&SubmitSeveral { submissions });
        let SubmittedSeveral { answers } = self.call(call).await?;
        let answers = answers.into_iter().map(|answer| match answer {
            SubmissionAnswer::Submitted(job) => Ok(job),
            SubmissionAnswer::Refused(body) => Err(ClientError::Refused { status: 422, body }),
        });
        Ok(answers.collect())
    }

    /// The caller's job that was submitted with this key; none if there is no such job any more.
    pub async fn job_of_key(&self, key: &str) -> Result<Option<JobId>, ClientError> {
        match self.call::<Submitted>(Call::get(format!("/keys/{}", escape(key)))).await {
            Ok(found) => Ok(Some(found.id)),
            Err(error) if error.code() == Some("no_such_key") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What would happen to a job if it was submitted now.
    pub async fn dry_run(&self, spec: &Submission) -> Result<DryRunView, ClientError> {
        self.call(Call::post("/dry-run").json(&DryRunRequest { spec: spec.clone() })).await
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<JobPage, ClientError> {
        self.call(Call::get(format!("/jobs{}", filter.query()))).await
    }

    /// All matching jobs with their tasks.
    pub async fn records(&self, filter: &RecordFilter) -> Result<Vec<JobRecord>, ClientError> {
        const JOBS_AT_ONCE: usize = 500;
        let parts: Vec<RecordFilter> = match filter.jobs.chunks(JOBS_AT_ONCE) {
            chunks if chunks.len() < 2 => vec![filter.clone()],
            chunks => chunks.map(|jobs| RecordFilter { jobs: jobs.to_vec(), ..filter.clone() }).collect(),
        };
        let mut all = Vec::new();
        for part in parts {
            let mut before: Option<String> = None;
            loop {
                let path = format!("/records{}", part.query(before.as_deref()));
                let page: RecordPage = self.call(Call::get(path)).await?;
                all.extend(page.records);
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// A job with its live tasks and up to `tasks` ended ones.
    pub async fn job(&self, job: JobId, tasks: u32) -> Result<JobDetail, ClientError> {
        self.call(Call::get(format!("/jobs/{job}?tasks={tasks}"))).await
    }

    /// A job with the first of its cancelled tasks.
    pub async fn job_with_cancelled_task(&self, job: JobId) -> Result<JobDetail, ClientError> {
        self.call(Call::get(format!("/jobs/{job}?tasks=1&state=cancelled"))).await
    }

    /// A job with up to `tasks` ended tasks, starting at index `from`.
    pub async fn job_from(&self, job: JobId, tasks: u32, from: u32) -> Result<JobDetail, ClientError> {
        self.call(Call::get(format!("/jobs/{job}?tasks={tasks}&from={from}"))).await
    }

    /// Returns a job with one of its tasks. Waits until the task has ended, but at most `wait`.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the job has no such task; else see [`ClientError`].
    pub async fn task(&self, task: TaskId, wait: Duration) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{}?index={}&wait_ms={}", task.job, task.index, wait.as_millis());
        self.call(Call::get(path).waiting(wait)).await
    }

    /// Like [`Self::job`]. Waits until all tasks have ended, but at most `wait`.
    pub async fn job_when_ended(&self, job: JobId, tasks: u32, wait: Duration) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{job}?tasks={tasks}&wait_ms={}", wait.as_millis());
        self.call(Call::get(path).waiting(wait)).await
    }

    /// Waits until all tasks have ended. Returns the job with up to `tasks` of its tasks.
    pub async fn ended(&self, job: JobId, tasks: u32) -> Result<JobDetail, ClientError> {
        loop {
            let detail = self.job_when_ended(job, tasks, LONGEST_WAIT).await?;
            if detail.summary.state.is_ended() {
                return Ok(detail);
            }
        }
    }

    /// A job with all of its tasks. Waits until it has ended or its [`TaskCounts::progress`](hostler_proto::api::TaskCounts) is not
    /// `seen`, but returns after half a minute in any case.
    pub async fn job_after(&self, job: JobId, seen: u64) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{job}?tasks={}&progress={seen}&wait_ms={}", u32::MAX, LONGEST_WAIT.as_millis());
        let mut job: JobDetail = self.call(Call::get(path).waiting(LONGEST_WAIT)).await?;
        while let Some(from) = job.tasks_next {
            let more = self.job_from(job.summary.id, u32::MAX, from).await?;
            job.tasks_shown.extend(more.tasks_shown);
            job.tasks_next = more.tasks_next.filter(|next| *next > from);
        }
        Ok(job)
    }

    /// Like [`Self::job_when_ended`], but also returns once a task runs.
    pub async fn job_when_running(&self, job: JobId, wait: Duration) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{job}?tasks=1&running=true&wait_ms={}", wait.as_millis());
        self.call(Call::get(path).waiting(wait)).await
    }

    /// Returns the script of a job.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_script` if the job was not submitted as a script, or has completed.
    pub async fn script(&self, job: JobId) -> Result<String, ClientError> {
        let view: ScriptView = self.call(Call::get(format!("/jobs/{job}/script"))).await?;
        Ok(view.script)
    }

    pub async fn why(&self, job: JobId) -> Result<Why, ClientError> {
        self.call(Call::get(format!("/jobs/{job}/why"))).await
    }

    /// Explains why a task waits.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the job has no such task; else see [`ClientError`].
    pub async fn why_task(&self, task: TaskId) -> Result<Why, ClientError> {
        self.call(Call::get(format!("/jobs/{}/why?index={}", task.job, task.index))).await
    }

    /// Applies an action to a job or to one of its tasks. A requeue is not retried after the request may have arrived,
    /// because the job would run twice.
    pub async fn act(&self, job: JobId, index: Option<u32>, action: JobAction) -> Result<JobSummary, ClientError> {
        self.act_and_keep(job, index, action, false).await
    }

    /// Like [`Self::act`]. With `keep_files`, the next attempts of a requeued job start with the files of the last ones.
    pub async fn act_and_keep(
        &self,
        job: JobId,
        index: Option<u32>,
        action: JobAction,
        keep_files: bool,
    ) -> Result<JobSummary, ClientError> {
        let how = match action {
            JobAction::HoldForOwner => Some("owner=true"),
            JobAction::RequeueAll => Some("completed=true"),
            JobAction::RequeueHeld { completed: false } => Some("hold=true"),
            JobAction::RequeueHeld { completed: true } => Some("hold=true&completed=true"),
            JobAction::RequeueDependent => Some("dependent=true"),
            JobAction::Cancel | JobAction::Hold | JobAction::Release | JobAction::Requeue => None,
        };
        let how = how.into_iter().chain(keep_files.then_some("keep_files=true")).map(str::to_owned);
        let fields: Vec<String> = index.map(|index| format!("index={index}")).into_iter().chain(how).collect();
        let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
        let call = Call::post(format!("/jobs/{job}/{}{query}", action.as_str()));
        let is_requeue = action.as_str() == JobAction::Requeue.as_str();
        self.call(if is_requeue { call.once() } else { call }).await
    }

    /// Cancels several tasks of an array. Tasks that have ended or do not exist are ignored.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_task` if none of them exists; else see [`ClientError`].
    pub async fn cancel_tasks(&self, job: JobId, indices: IndexSet) -> Result<JobSummary, ClientError> {
        self.call(Call::post(format!("/jobs/{job}/cancel-tasks")).json(&CancelTasks { indices })).await
    }

    /// Changes a job.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the job cannot have the new values; else see [`ClientError`].
    pub async fn change_job(&self, job: JobId, change: &JobChange) -> Result<JobSummary, ClientError> {
        self.call(Call::post(format!("/jobs/{job}")).json(change)).await
    }

    /// Sends a signal to running processes of a job or of one of its tasks.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `not_running` if nothing runs; else see [`ClientError`].
    pub async fn signal(
        &self,
        job: JobId,
        index: Option<u32>,
        signal: SignalNumber,
        to: SignalTarget,
    ) -> Result<Signalled, ClientError> {
        let index = index.map(|index| format!("&index={index}")).unwrap_or_default();
        let path = format!("/jobs/{job}/signal?signal={}&to={}{index}", signal.get(), to.as_str());
        self.call(Call::post(path).once()).await
    }

    /// Sends a signal to the processes of a running step.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `not_running` if the step does not run; else see [`ClientError`].
    pub async fn signal_step(
        &self,
        job: JobId,
        index: Option<u32>,
        step: u32,
        signal: SignalNumber,
    ) -> Result<Signalled, ClientError> {
        let index = index.map(|index| format!("&index={index}")).unwrap_or_default();
        let path = format!("/jobs/{job}/signal?signal={}&step={step}{index}", signal.get());
        self.call(Call::post(path).once()).await
    }

    /// The steps that a running task has started, by number. Empty if the task does not run.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `node_unreachable` if the task's first node does not answer; else see
    /// [`ClientError`].
    pub async fn steps(&self, task: TaskId) -> Result<Vec<StepRecord>, ClientError> {
        self.call(Call::get(format!("/jobs/{}/tasks/{}/steps", task.job, task.index))).await
    }

    /// Results on the head: of `jobs`, or of all the user's jobs if `jobs` is empty. With `unfetched`, only results
    /// that were never fetched. Includes results of earlier attempts.
    pub async fn results(&self, unfetched: bool, jobs: &[JobId]) -> Result<ResultPage, ClientError> {
        const JOBS_AT_ONCE: usize = 1_000;
        let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let jobs = if ids.is_empty() { String::new() } else { format!("&jobs={}", ids.join(",")) };
        let mut all = ResultPage { results: Vec::new(), next: None, deleted: Vec::new() };
        loop {
            let after = all.next.map(|after| format!("&after={after}")).unwrap_or_default();
            let path = format!("/results?unfetched={unfetched}&earlier=true&limit={JOBS_AT_ONCE}{jobs}{after}");
            let page: ResultPage = self.call(Call::get(path)).await?;
            all.results.extend(page.results);
            all.deleted.extend(page.deleted);
            all.next = page.next;
            if all.next.is_none() {
                return Ok(all);
            }
        }
    }

    /// Confirms that this client has stored the results.
    pub async fn fetched(&self, job: JobId, fetched: &Fetched) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/jobs/{job}/fetched")).json(fetched)).await.map(drop)
    }

    /// Returns those of `digests` whose chunks the head lacks.
    pub async fn missing_blobs(&self, digests: Vec<Digest>) -> Result<Vec<Digest>, ClientError> {
        let list: DigestList = self.call(Call::post("/blobs/missing").json(&DigestList { digests })).await?;
        Ok(list.digests)
    }

    pub async fn send_pack(&self, pack: Bytes) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/blobs").bytes(pack)).await.map(drop)
    }

    /// Downloads a pack with these chunks; for agents and operators. The caller limits their total size, because the
    /// pack is in memory.
    pub async fn fetch_pack(&self, digests: Vec<Digest>) -> Result<Bytes, ClientError> {
        self.call_bytes(Call::post("/blobs/fetch").json(&DigestList { digests })).await
    }

    /// Commits a snapshot whose chunks have all arrived.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `chunks_missing`.
    pub async fn commit_snapshot(&self, manifest: &Digest) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/snapshots/{manifest}/commit"))).await.map(drop)
    }

    /// The OpenAPI description, as JSON.
    pub async fn openapi(&self) -> Result<Bytes, ClientError> {
        self.call_bytes(Call::get("/openapi.json")).await
    }

    /// For agents: requests a certificate with a one-time secret, over [`crate::tls::pinned`].
    pub async fn join(&self, request: &JoinRequest) -> Result<Joined, ClientError> {
        self.call(Call::post("/agent/join").json(request)).await
    }

    /// For agents: requests a certificate for a new key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `unwelcome` if the present certificate is no longer valid.
    pub async fn renew(&self, request: &RenewRequest) -> Result<Joined, ClientError> {
        self.call(Call::post("/agent/renew").json(request)).await
    }

    /// For agents: the members of the gossip; `None` if version `known` is current.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_route` if the head does not support gossip.
    pub async fn peers(&self, known: Option<u64>) -> Result<Option<Peers>, ClientError> {
        let query = known.map_or_else(String::new, |known| format!("?known={known}"));
        self.call(Call::get(format!("/agent/peers{query}"))).await
    }

    /// For agents: reports what the node and its runs used.
    pub async fn report_usage(&self, report: &UsageReport) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/agent/samples").json(report).once()).await.map(drop)
    }

    /// What a node used over time. `query` is empty or begins with `?`.
    pub async fn node_usage(&self, node: &NodeName, query: &str) -> Result<UsageView, ClientError> {
        self.call(Call::get(format!("/nodes/{node}/usage{query}"))).await
    }

    /// What a task used over time. `query` is empty or begins with `?`.
    pub async fn task_usage(&self, task: TaskId, query: &str) -> Result<UsageView, ClientError> {
        self.call(Call::get(format!("/jobs/{}/tasks/{}/usage{query}", task.job, task.index))).await
    }

    /// Returns the loads of all nodes, as an agent knows them. Only agents answer this request, on their sockets.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_route` if a head answers.
    pub async fn load(&self) -> Result<LoadTable, ClientError> {
        self.call(Call::get(LOAD_PATH)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_contains_only_given_filters() {
        assert_eq!(JobFilter::default().query(), "");
        let filter = JobFilter {
            states: vec![JobState::Pending, JobState::OutOfMemory],
            any_task: true,
            user: Some("a&b ü".to_owned()),
            text: Some("try 1".to_owned()),
            partition: Some("gpu".parse().expect("a name")),
            ended_since: Some(WallTime(5)),
            limit: Some(10),
            before: Some(JobId(7)),
            order: JobOrder::Name,
            commands: true,
        };
        let query = "?state=pending,out_of_memory&any_task=true&user=a%26b%20%C3%BC&text=try%201&partition=gpu&ended_since=5&limit=10&before=7&order=name&commands=true";
        assert_eq!(filter.query(), query);
    }
}
