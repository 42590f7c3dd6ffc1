//! A method for each route of the API, in the order of its documentation.

use std::time::Duration;

use bytes::Bytes;
use hostler_model::{Digest, JobId, JobState, NodeName, PartitionName, TaskId};
use hostler_proto::api::{
    DigestList, DrainRequest, Fetched, Info, Invitation, Invite, JobAction, JobDetail, JobPage, JobSummary,
    JoinRequest, Joined, NodeDetail, NodeView, RenewRequest, ResultPage, SubmitRequest, Submitted, Why,
};
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView, TraitsChange};
use hostler_proto::peers::{LOAD_PATH, LoadTable, Peers};
use hostler_proto::power::{EnergyView, PowerRequest};
use hostler_proto::settings::{NewValue, SettingView};
use serde_json::json;

use crate::client::Call;
use crate::{Client, ClientError};

/// How long a shutdown may take: live jobs may be given their grace first.
const SHUTDOWN_TIME: Duration = Duration::from_secs(120);

/// What a shutdown does about jobs that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveJobs {
    /// Nothing stops while there are any.
    Refuse,
    /// Waiting jobs wait on, running ones run on.
    Keep,
    /// They are cancelled first.
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

/// Which jobs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// In one of these states; all when empty.
    pub states: Vec<JobState>,
    /// Of this user; of all when absent.
    pub user: Option<String>,
    /// At most this many; the head's default when absent.
    pub limit: Option<u32>,
    /// Older than this job: the `next` of the page before.
    pub before: Option<JobId>,
    /// With what each of them runs.
    pub commands: bool,
}

impl JobFilter {
    /// The query, with its `?` when there is one.
    fn query(&self) -> String {
        let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
        let mut parts = Vec::new();
        if !states.is_empty() {
            parts.push(format!("state={}", states.join(",")));
        }
        parts.extend(self.user.as_ref().map(|user| format!("user={}", escape(user))));
        parts.extend(self.limit.map(|limit| format!("limit={limit}")));
        parts.extend(self.before.map(|before| format!("before={before}")));
        parts.extend(self.commands.then(|| "commands=true".to_owned()));
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}

/// Percent-encodes what is neither letter, digit nor one of `-_.~`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Every method fails with a [`ClientError`]; all but [`Client::shutdown`] and requeueing are tried again while the head is away.
impl Client {
    /// The cluster at a glance.
    ///
    /// # Errors
    /// See above.
    pub async fn info(&self) -> Result<Info, ClientError> {
        self.call(Call::get("/info")).await
    }

    /// Stops the head and the agents of an embedded cluster.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when jobs are live and `jobs` is [`LiveJobs::Refuse`].
    pub async fn shutdown(&self, jobs: LiveJobs) -> Result<(), ClientError> {
        let call = Call::post("/shutdown").json(&json!({ "jobs": jobs.as_str() })).waiting(SHUTDOWN_TIME).once();
        match self.call_bytes(call).await {
            // A head that stops need not wait until its answer has been read.
            Ok(_) | Err(ClientError::Interrupted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Every node.
    ///
    /// # Errors
    /// See above.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.call(Call::get("/nodes")).await
    }

    /// A join code for a node of this name.
    ///
    /// # Errors
    /// See above.
    pub async fn invite(&self, node: &NodeName) -> Result<Invitation, ClientError> {
        self.invite_as(&Invite { node: Some(node.clone()), address: None }).await
    }

    /// A join code, with or without a name and an address.
    ///
    /// # Errors
    /// See above.
    pub async fn invite_as(&self, invite: &Invite) -> Result<Invitation, ClientError> {
        self.call(Call::post("/nodes/invite").json(invite)).await
    }

    /// All about one node.
    ///
    /// # Errors
    /// See above.
    pub async fn node(&self, node: &NodeName) -> Result<NodeDetail, ClientError> {
        self.call(Call::get(format!("/nodes/{node}"))).await
    }

    /// Lets a node finish what it has and gives it nothing new.
    ///
    /// # Errors
    /// See above.
    pub async fn drain_node(&self, node: &NodeName, reason: Option<String>) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/drain")).json(&DrainRequest { reason })).await
    }

    /// Lets a drained node take work again.
    ///
    /// # Errors
    /// See above.
    pub async fn resume_node(&self, node: &NodeName) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/resume"))).await
    }

    /// Switches a node on or off, or has its controller asked how it is.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_power` when the head cannot switch it, `node_in_use` when it must not go off now.
    pub async fn power_node(&self, node: &NodeName, request: PowerRequest) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/power")).json(&request)).await
    }

    /// What the nodes have drawn that the head can switch.
    ///
    /// # Errors
    /// See above.
    pub async fn energy(&self) -> Result<EnergyView, ClientError> {
        self.call(Call::get("/energy")).await
    }

    /// Removes a node: its certificate is revoked and its tasks are given up.
    ///
    /// # Errors
    /// See above. Not tried again once it may have arrived: a node of that name may have joined since.
    pub async fn remove_node(&self, node: &NodeName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/nodes/{node}/remove")).once()).await.map(drop)
    }

    /// Takes a node off the list until its agent connects again.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `node_in_use` while it is connected or a task is placed there.
    pub async fn forget_node(&self, node: &NodeName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/nodes/{node}/forget"))).await.map(drop)
    }

    /// Says which features a node has and its weight; what is absent stays.
    ///
    /// # Errors
    /// See above.
    pub async fn set_traits(&self, node: &NodeName, change: &TraitsChange) -> Result<NodeDetail, ClientError> {
        self.call(Call::post(format!("/nodes/{node}/traits")).json(change)).await
    }

    /// Every partition.
    ///
    /// # Errors
    /// See above.
    pub async fn partitions(&self) -> Result<Vec<PartitionView>, ClientError> {
        self.call(Call::get("/partitions")).await
    }

    /// One partition.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_partition`.
    pub async fn partition(&self, name: &PartitionName) -> Result<PartitionView, ClientError> {
        self.call(Call::get(format!("/partitions/{name}"))).await
    }

    /// Adds a partition.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `partition_exists` or `bad_partition`. Not tried again once it may have arrived.
    pub async fn add_partition(&self, new: &NewPartition) -> Result<PartitionView, ClientError> {
        self.call(Call::post("/partitions").json(new).once()).await
    }

    /// Changes a partition; what is absent stays.
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

    /// Removes a partition.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `partition_in_use` while jobs wait in it. Not tried again once it may have arrived.
    pub async fn remove_partition(&self, name: &PartitionName) -> Result<(), ClientError> {
        self.call_bytes(Call::delete(format!("/partitions/{name}")).once()).await.map(drop)
    }

    /// Every setting.
    ///
    /// # Errors
    /// See above.
    pub async fn settings(&self) -> Result<Vec<SettingView>, ClientError> {
        self.call(Call::get("/settings")).await
    }

    /// Changes a setting; makes it what it is by default when `value` is absent.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_setting`, or `bad_setting` when it cannot be that.
    pub async fn change_setting(&self, name: &str, value: Option<&str>) -> Result<SettingView, ClientError> {
        let path = format!("/settings/{}", escape(name));
        let call = match value {
            Some(value) => Call::put(path).json(&NewValue { value: value.to_owned() }),
            None => Call::delete(path),
        };
        self.call(call).await
    }

    /// Submits a job: when this returns, it is on the head's disk. The same key gives the same job, however often it is sent.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `snapshot_missing` when the folder has to be uploaded first, with `never_fits` when no
    /// node could ever run it.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<Submitted, ClientError> {
        self.call(Call::post("/jobs").json(request)).await
    }

    /// A page of jobs, newest first.
    ///
    /// # Errors
    /// See above.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<JobPage, ClientError> {
        self.call(Call::get(format!("/jobs{}", filter.query()))).await
    }

    /// One job, with its live tasks and up to `tasks` that have ended.
    ///
    /// # Errors
    /// See above.
    pub async fn job(&self, job: JobId, tasks: u32) -> Result<JobDetail, ClientError> {
        self.call(Call::get(format!("/jobs/{job}?tasks={tasks}"))).await
    }

    /// A job with the next `tasks` tasks that have ended, from index `from` on.
    ///
    /// # Errors
    /// See above.
    pub async fn job_from(&self, job: JobId, tasks: u32, from: u32) -> Result<JobDetail, ClientError> {
        self.call(Call::get(format!("/jobs/{job}?tasks={tasks}&from={from}"))).await
    }

    /// A job with one of its tasks, at once or as soon as the task has ended or `wait` is over.
    ///
    /// # Errors
    /// See above, and when the job has no such task.
    pub async fn task(&self, task: TaskId, wait: Duration) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{}?index={}&wait_ms={}", task.job, task.index, wait.as_millis());
        self.call(Call::get(path).waiting(wait)).await
    }

    /// The same as [`Self::job`], as soon as every task has ended or `wait` is over.
    ///
    /// # Errors
    /// See above.
    pub async fn job_when_ended(&self, job: JobId, tasks: u32, wait: Duration) -> Result<JobDetail, ClientError> {
        let path = format!("/jobs/{job}?tasks={tasks}&wait_ms={}", wait.as_millis());
        self.call(Call::get(path).waiting(wait)).await
    }

    /// Why a job waits.
    ///
    /// # Errors
    /// See above.
    pub async fn why(&self, job: JobId) -> Result<Why, ClientError> {
        self.call(Call::get(format!("/jobs/{job}/why"))).await
    }

    /// Why a task waits.
    ///
    /// # Errors
    /// See above, and when the job has no such task.
    pub async fn why_task(&self, task: TaskId) -> Result<Why, ClientError> {
        self.call(Call::get(format!("/jobs/{}/why?index={}", task.job, task.index))).await
    }

    /// Tells a job, or one task of it, to do something.
    ///
    /// # Errors
    /// See above. A requeue is not tried again once it may have arrived: it would run the job twice.
    pub async fn act(&self, job: JobId, index: Option<u32>, action: JobAction) -> Result<JobSummary, ClientError> {
        let query = index.map(|index| format!("?index={index}")).unwrap_or_default();
        let call = Call::post(format!("/jobs/{job}/{}{query}", action.as_str()));
        self.call(if action == JobAction::Requeue { call.once() } else { call }).await
    }

    /// Results on the head: of `jobs`, or of all when empty; only those never fetched if `unfetched`.
    ///
    /// # Errors
    /// See above.
    pub async fn results(&self, unfetched: bool, jobs: &[JobId]) -> Result<ResultPage, ClientError> {
        const JOBS_AT_ONCE: usize = 1_000;
        let ids: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let jobs = if ids.is_empty() { String::new() } else { format!("&jobs={}", ids.join(",")) };
        let mut all = ResultPage { results: Vec::new(), next: None };
        loop {
            let after = all.next.map(|after| format!("&after={after}")).unwrap_or_default();
            let path = format!("/results?unfetched={unfetched}&limit={JOBS_AT_ONCE}{jobs}{after}");
            let page: ResultPage = self.call(Call::get(path)).await?;
            all.results.extend(page.results);
            all.next = page.next;
            if all.next.is_none() {
                return Ok(all);
            }
        }
    }

    /// Says that results are safely here.
    ///
    /// # Errors
    /// See above.
    pub async fn fetched(&self, job: JobId, fetched: &Fetched) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/jobs/{job}/fetched")).json(fetched)).await.map(drop)
    }

    /// Which of these the head lacks.
    ///
    /// # Errors
    /// See above.
    pub async fn missing_blobs(&self, digests: Vec<Digest>) -> Result<Vec<Digest>, ClientError> {
        let list: DigestList = self.call(Call::post("/blobs/missing").json(&DigestList { digests })).await?;
        Ok(list.digests)
    }

    /// Sends a pack of chunks.
    ///
    /// # Errors
    /// See above.
    pub async fn send_pack(&self, pack: Bytes) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/blobs").bytes(pack)).await.map(drop)
    }

    /// Gets a pack with these chunks, as agents and operators may. The caller keeps the sum of their sizes within memory.
    ///
    /// # Errors
    /// See above.
    pub async fn fetch_pack(&self, digests: Vec<Digest>) -> Result<Bytes, ClientError> {
        self.call_bytes(Call::post("/blobs/fetch").json(&DigestList { digests })).await
    }

    /// Makes a snapshot whose chunks have all arrived known to the head.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `chunks_missing`.
    pub async fn commit_snapshot(&self, manifest: &Digest) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/snapshots/{manifest}/commit"))).await.map(drop)
    }

    /// The description of the API, JSON.
    ///
    /// # Errors
    /// See above.
    pub async fn openapi(&self) -> Result<Bytes, ClientError> {
        self.call_bytes(Call::get("/openapi.json")).await
    }

    /// For agents: asks for a certificate with a one-time secret, over [`crate::tls::pinned`].
    ///
    /// # Errors
    /// See above.
    pub async fn join(&self, request: &JoinRequest) -> Result<Joined, ClientError> {
        self.call(Call::post("/agent/join").json(request)).await
    }

    /// For agents: asks for a certificate for a new key.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `unwelcome` when the present one is not good any more.
    pub async fn renew(&self, request: &RenewRequest) -> Result<Joined, ClientError> {
        self.call(Call::post("/agent/renew").json(request)).await
    }

    /// The nodes that gossip, for an agent; `None` when they are as in what it knows, by its version.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_route` from a head that knows nothing of gossip.
    pub async fn peers(&self, known: Option<u64>) -> Result<Option<Peers>, ClientError> {
        let query = known.map_or_else(String::new, |known| format!("?known={known}"));
        self.call(Call::get(format!("/agent/peers{query}"))).await
    }

    /// What an agent knows of the load of all nodes. Only agents answer, on their sockets.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_such_route` from a head.
    pub async fn load(&self) -> Result<LoadTable, ClientError> {
        self.call(Call::get(LOAD_PATH)).await
    }
}

/// The path of one output of a task.
pub(crate) fn output_path(task: TaskId, output: hostler_proto::link::Output, part: &crate::OutputPart) -> String {
    let crate::OutputPart { node_rank, from, follow } = part;
    let output = output.as_str();
    format!("/jobs/{}/tasks/{}/output/{output}?from={from}&follow={follow}&node_rank={node_rank}", task.job, task.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_only_what_was_asked_for() {
        assert_eq!(JobFilter::default().query(), "");
        let filter = JobFilter {
            states: vec![JobState::Pending, JobState::OutOfMemory],
            user: Some("a&b ü".to_owned()),
            limit: Some(10),
            before: Some(JobId(7)),
            commands: true,
        };
        assert_eq!(filter.query(), "?state=pending,out_of_memory&user=a%26b%20%C3%BC&limit=10&before=7&commands=true");
    }
}
