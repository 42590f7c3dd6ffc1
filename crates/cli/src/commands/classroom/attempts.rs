//! The attempts to break each promise.

use std::path::PathBuf;
use std::time::Duration;

use hostler_client::Client;
use hostler_model::{JobId, JobState, NodeState, SandboxNetwork};
use hostler_proto::api::{JobDetail, NodeView};

use hostler_proto::partitions::PartitionView;
use hostler_proto::users::UserView;
use tokio::time::{Instant, sleep};

use super::report::{Finding, Report};
use super::tester::{Said, Tester, when_ended};
use crate::failure::Failure;
use crate::output::Output;

/// How often to look whether a job has printed something.
const LOOK: Duration = Duration::from_millis(200);

/// Memory of the jobs that do not need much, and of the one that starts many processes.
const LITTLE: &str = "64M";
const FOR_PROCESSES: &str = "256M";

/// The attempts inside of a job beside that of another student: name in the probe's output, promise, and how it is tried.
const INSIDE: [(&str, &str, &str); 7] = [
    (
        "files",
        "a job reads no files of other students",
        "read a file of another job, list /home and other jobs' folders",
    ),
    ("temporary", "/tmp, $HOME and /dev/shm are a job's own", "look for another job's files there"),
    ("processes", "a job sees no processes of others", "search /proc for another student's job"),
    ("sockets", "a job reaches no daemon of its node", "look for the sockets in /run"),
    ("network", "a job has no network", "list interfaces, connect to the head"),
    ("writes", "a job writes only in its folder", "create files in ten other places"),
    ("counters", "a job beside others gets no hardware counters", "call perf_event_open"),
];

/// What the attempts share.
pub(super) struct Class<'a> {
    pub(super) admin: &'a Client,
    /// The partition with the sandboxes.
    pub(super) partition: &'a PartitionView,
    /// The partition for measurements.
    pub(super) measure: Option<&'a PartitionView>,
    /// The longest that a job may wait or run.
    pub(super) timeout: Duration,
    /// The folder with the program of the jobs.
    pub(super) project: PathBuf,
}

/// Checks that each student has a quota.
pub(super) fn quotas(report: &mut Report, students: &[UserView]) {
    let without = |user: &&UserView| {
        let quota = user.limits();
        quota.cpus.is_none() && quota.memory_bytes.is_none() && quota.jobs.is_none()
    };
    let names: Vec<&str> = students.iter().filter(without).map(|user| user.name.as_str()).collect();
    let first: Vec<&str> = names.iter().copied().take(5).collect();
    let finding = Finding::of(names.is_empty(), || {
        format!(
            "{} of {} have none: {}{}",
            names.len(),
            students.len(),
            first.join(", "),
            if names.len() > 5 { ", …" } else { "" }
        )
    });
    report.add("each student has a quota", &format!("read the quotas of {} users", students.len()), None, finding);
}

/// Makes all other attempts. Fails only if the check itself cannot go on.
pub(super) async fn all(
    class: &Class<'_>,
    one: &Tester,
    other: &Tester,
    report: &mut Report,
    output: &Output,
) -> Result<(), Failure> {
    class.over_quota(one, report).await?;
    class.other_network(one, report).await?;
    let nodes = class.admin.nodes().await?;
    for node in nodes.iter().filter(|node| class.partition.nodes.matches(&node.name)) {
        output.aside(&format!("trying node {}", node.name));
        if let Some(why) = why_not(node) {
            report.add(ACCOUNTS.0, ACCOUNTS.1, Some(node.name.as_str()), Finding::NotTried(why));
            continue;
        }
        if class.beside_another(one, other, node, report).await? {
            class.limits(one, node, report).await?;
        }
    }
    class.measurement(one, &nodes, report).await
}

const ACCOUNTS: (&str, &str) = ("students' jobs run on every node, in a sandbox", "submit jobs without --sandbox");

/// Why nothing can be tried on a node.
fn why_not(node: &NodeView) -> Option<String> {
    (node.state != NodeState::Up).then(|| format!("the node is {}", node.state.as_str()))
}

impl Class<'_> {
    /// Asks for more than a quota allows.
    async fn over_quota(&self, tester: &Tester, report: &mut Report) -> Result<(), Failure> {
        const PROMISE: (&str, &str) = ("a quota is enforced", "submit more tasks than may wait, or with more CPUs");
        let quota = self.admin.user(&tester.name).await?.limits();
        let (array, cpus) =
            (quota.queued.map(|most| format!("0-{most}")), quota.cpus.map(|most| (most + 1).to_string()));
        let options = match (&array, &cpus) {
            (Some(array), _) => ["-a", array],
            (None, Some(cpus)) => ["-c", cpus],
            (None, None) => {
                let why = "neither --queued nor --cpus is set for the tester".to_owned();
                report.add(PROMISE.0, PROMISE.1, None, Finding::NotTried(why));
                return Ok(());
            }
        };
        let options = [&self.within(LITTLE)[..], &options, &["--hold"]].concat();
        let finding = self.refused(tester, &options, "over_quota").await?;
        report.add(PROMISE.0, PROMISE.1, None, finding);
        Ok(())
    }

    /// Asks for the network of the nodes.
    async fn other_network(&self, tester: &Tester, report: &mut Report) -> Result<(), Failure> {
        let options = [&self.within(LITTLE)[..], &["--sandbox", "--network", "host", "--hold"]].concat();
        let finding = match self.partition.sandbox_network {
            SandboxNetwork::None => self.refused(tester, &options, "partition_refuses").await?,
            SandboxNetwork::Host => Finding::NotTried("the partition has --sandbox-network host".to_owned()),
        };
        report.add("jobs cannot ask for a network", "submit a job with --network host", None, finding);
        Ok(())
    }

    /// Submits a job that must be refused with this code.
    async fn refused(&self, tester: &Tester, options: &[&str], code: &str) -> Result<Finding, Failure> {
        let submitted = tester.submit(&self.project, options, &["true"]).await?;
        Ok(match submitted {
            Ok(job) => Finding::Broken(format!("the head accepted job {job}")),
            Err(said) if said.refusal().as_deref() == Some(code) => Finding::Kept,
            Err(said) => Finding::NotTried(said.error()),
        })
    }

    /// Runs the jobs of two students beside each other, and lets one of them attack the other. Returns whether jobs run on
    /// the node at all.
    async fn beside_another(
        &self,
        one: &Tester,
        other: &Tester,
        node: &NodeView,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        let name = node.name.as_str();
        let options = [&self.within(LITTLE)[..], &["--constraint", name]].concat();
        let marker = format!("{}-{name}", std::process::id());
        let victim = match one.submit(&self.project, &options, &["hold", &marker]).await? {
            Ok(job) => job,
            Err(said) => {
                report.add(ACCOUNTS.0, ACCOUNTS.1, Some(name), Finding::Broken(said.error()));
                return Ok(false);
            }
        };
        let folder = match self.folder_of(one, victim).await? {
            Ok(folder) => folder,
            Err(finding) => {
                report.add(ACCOUNTS.0, ACCOUNTS.1, Some(name), finding);
                self.end(one, victim).await?;
                return Ok(false);
            }
        };
        let is_sandboxed = self.admin.job(victim, 1).await?.sandbox;
        let finding = Finding::of(is_sandboxed, || format!("job {victim} has no sandbox"));
        report.add(ACCOUNTS.0, ACCOUNTS.1, Some(name), finding);

        let (host, port) = other.address.rsplit_once(':').unwrap_or((&other.address, "7760"));
        let arguments = ["attempts", &marker, &folder, host.trim_matches(['[', ']']), port];
        let (ended, printed) = match other.submit(&self.project, &options, &arguments).await? {
            Ok(job) => (self.ended(job).await?, other.run(&["logs", &job.to_string()]).await?.stdout),
            Err(said) => (Err(said.error()), String::new()),
        };
        for (key, promise, tried) in INSIDE {
            let line = printed.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            report.add(promise, tried, Some(name), finding_of(line, ended.as_ref().err()));
        }

        self.interfere(other, victim, name, report).await?;
        self.end(one, victim).await?;
        Ok(true)
    }

    /// Lets another student cancel, signal and read a running job.
    async fn interfere(&self, other: &Tester, victim: JobId, node: &str, report: &mut Report) -> Result<(), Failure> {
        let job = victim.to_string();
        let acts: [(&str, &[&str]); 3] = [
            ("cancel", &["cancel", &job]),
            ("signal", &["signal", &job, "KILL"]),
            ("update", &["update", &job, "-t", "1m"]),
        ];
        let mut allowed = Vec::new();
        for (what, arguments) in acts {
            allowed.extend((other.run(arguments).await?.code == 0).then_some(what));
        }
        let state = self.admin.job(victim, 1).await?.summary.state;
        let finding = Finding::of(allowed.is_empty() && state == JobState::Running, || {
            format!("{} of job {job} was allowed, and its state is {state}", allowed.join(", "))
        });
        let promise = "students cannot end or change jobs of others";
        report.add(promise, "cancel, signal and update a running job", Some(node), finding);

        let to = self.project.with_file_name("fetched");
        let reads: [(&str, &[&str]); 2] =
            [("output", &["logs", &job]), ("results", &["fetch", &job, "--to", &to.to_string_lossy()])];
        let mut seen = Vec::new();
        for (what, arguments) in reads {
            let said = other.run(arguments).await?;
            seen.extend((said.code == 0 || said.stdout.contains("ready")).then_some(what));
        }
        let details = other.run(&["job", &job, "--json"]).await?.stdout;
        seen.extend(details.contains("probe.sh").then_some("command line"));
        let finding = Finding::of(seen.is_empty(), || format!("{} of job {job} can be read", seen.join(" and ")));
        let promise = "students cannot read output, results and commands of others";
        report.add(promise, "read those of a running job", Some(node), finding);
        Ok(())
    }

    /// Exceeds the limits on memory, processes and time.
    async fn limits(&self, tester: &Tester, node: &NodeView, report: &mut Report) -> Result<(), Failure> {
        let name = node.name.as_str();
        let ends_as = |job: Result<JobDetail, String>, wanted: JobState| match job {
            Ok(job) if job.summary.state == wanted => Finding::Kept,
            Ok(job) => {
                Finding::Broken(format!("job {} ended as {}{}", job.summary.id, job.summary.state, advisory(&job)))
            }
            Err(why) => Finding::NotTried(why),
        };
        let memory = ends_as(self.finished_on(tester, name, &["-m", LITTLE], "memory").await?, JobState::OutOfMemory);
        report.add("a job that exceeds its memory is ended, and says so", "use 400 MB with -m 64M", Some(name), memory);

        let time =
            ends_as(self.finished_on(tester, name, &["-m", LITTLE, "-t", "2s"], "time").await?, JobState::Timeout);
        report.add("a job ends at its time limit", "run on with -t 2s", Some(name), time);

        let bomb = self.finished_on(tester, name, &["-m", FOR_PROCESSES, "-t", "1m"], "bomb").await?;
        let after = self.finished_on(tester, name, &["-m", LITTLE], "true").await?;
        let finding = match (bomb, after) {
            (Err(why), _) => Finding::NotTried(why),
            (Ok(bomb), _) if bomb.summary.state == JobState::Completed => {
                Finding::Broken(format!("job {} started 10000 processes{}", bomb.summary.id, advisory(&bomb)))
            }
            (Ok(_), Ok(after)) if after.summary.state == JobState::Completed => Finding::Kept,
            (Ok(_), Ok(after)) => Finding::Broken(format!("the next job ended as {}", after.summary.state)),
            (Ok(_), Err(why)) => Finding::Broken(format!("no job runs any more: {why}")),
        };
        report.add(
            "a fork bomb ends, and the node goes on",
            "start 10000 processes, then another job",
            Some(name),
            finding,
        );
        Ok(())
    }

    /// Runs a job in the partition for measurements.
    async fn measurement(&self, tester: &Tester, nodes: &[NodeView], report: &mut Report) -> Result<(), Failure> {
        const WHOLE: (&str, &str) =
            ("a measured job has its node to itself", "submit a job to the partition without --exclusive");
        const CERTIFICATE: (&str, &str) = ("a measured job gets a certificate", "read the job's certificate");
        const COUNTERS: (&str, &str) = ("a measured job can use hardware counters", "call perf_event_open");
        let Some(partition) = self.measure else {
            let why = "no partition has --exclusive".to_owned();
            report.add(WHOLE.0, WHOLE.1, None, Finding::NotTried(why));
            return Ok(());
        };
        let options = ["-p", partition.name.as_str(), "-m", LITTLE];
        let job = match self.finished(tester, &options, "measure").await? {
            Ok(job) => job,
            Err(why) => {
                report.add(WHOLE.0, WHOLE.1, None, Finding::NotTried(why));
                return Ok(());
            }
        };
        let id = job.summary.id;
        let task = job.tasks_shown.first();
        let node = task.and_then(|task| nodes.iter().find(|node| Some(&node.name) == task.node.as_ref()));
        let printed = tester.run(&["logs", &id.to_string()]).await?.stdout;
        let value =
            |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
        let cpus = value("cpus");
        let finding = match node {
            Some(node) => Finding::of(job.exclusive && cpus == node.cpus.to_string(), || {
                format!("job {id} had {cpus} of {} CPUs of {}", node.cpus, node.name)
            }),
            None => Finding::NotTried(format!("the node of job {id} is unknown")),
        };
        report.add(WHOLE.0, WHOLE.1, None, finding);
        let has_certificate = task.is_some_and(|task| task.certificate.is_some());
        report.add(CERTIFICATE.0, CERTIFICATE.1, None, Finding::of(has_certificate, || format!("job {id} has none")));
        let finding = match value("counters").as_str() {
            "works" => Finding::Kept,
            "refused" => Finding::NotTried("the node's admin has not set `performance_counters`".to_owned()),
            _ => Finding::NotTried("the node has no python3".to_owned()),
        };
        report.add(COUNTERS.0, COUNTERS.1, None, finding);
        Ok(())
    }

    /// Options of jobs in the partition with the sandboxes.
    fn within<'b>(&'b self, memory: &'b str) -> [&'b str; 4] {
        ["-p", self.partition.name.as_str(), "-m", memory]
    }

    /// Like [`Self::finished`], for a job on one node.
    async fn finished_on(
        &self,
        tester: &Tester,
        node: &str,
        options: &[&str],
        mode: &str,
    ) -> Result<Result<JobDetail, String>, Failure> {
        let place = ["-p", self.partition.name.as_str(), "--constraint", node];
        self.finished(tester, &[&place, options].concat(), mode).await
    }

    /// Submits a job and waits for its end. The inner error says why it did not end.
    async fn finished(
        &self,
        tester: &Tester,
        options: &[&str],
        mode: &str,
    ) -> Result<Result<JobDetail, String>, Failure> {
        match tester.submit(&self.project, options, &[mode]).await? {
            Ok(job) => self.ended(job).await,
            Err(said) => Ok(Err(said.error())),
        }
    }

    /// Waits for the end of a job.
    async fn ended(&self, job: JobId) -> Result<Result<JobDetail, String>, Failure> {
        let detail = when_ended(self.admin, job, Instant::now() + self.timeout).await?;
        if detail.summary.state.is_ended() {
            return Ok(Ok(detail));
        }
        let why = detail.summary.reason.unwrap_or_else(|| format!("it is {}", detail.summary.state));
        Ok(Err(format!("job {job} did not end in time: {why}")))
    }

    /// Waits until a job runs and has printed its folder. The inner error says why it does not.
    async fn folder_of(&self, tester: &Tester, job: JobId) -> Result<Result<String, Finding>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let detail = self.admin.job_when_running(job, self.timeout).await?;
        if detail.summary.state == JobState::Pending {
            let why = detail.summary.reason.unwrap_or_default();
            return Ok(Err(Finding::NotTried(format!("job {job} did not start in time: {why}"))));
        }
        while Instant::now() < deadline {
            let Said { stdout, .. } = tester.run(&["logs", &job.to_string()]).await?;
            if let Some(folder) = stdout.lines().find_map(|line| line.strip_prefix("ready ")) {
                return Ok(Ok(folder.to_owned()));
            }
            let detail = self.admin.job(job, 1).await?;
            if detail.summary.state.is_ended() {
                let message = detail.summary.message.unwrap_or_default();
                return Ok(Err(Finding::Broken(format!("job {job} ended as {}: {message}", detail.summary.state))));
            }
            sleep(LOOK).await;
        }
        Ok(Err(Finding::NotTried(format!("job {job} printed nothing in time"))))
    }

    /// Ends a job of a tester.
    async fn end(&self, tester: &Tester, job: JobId) -> Result<(), Failure> {
        tester.run(&["cancel", &job.to_string()]).await?;
        self.ended(job).await.map(drop)
    }
}

/// What the probe says about one attempt: `kept`, `broken WHAT` or `untried WHY`.
fn finding_of(line: Option<&str>, failed: Option<&String>) -> Finding {
    let (word, rest) = line.map_or(("", ""), |line| line.split_once(' ').unwrap_or((line, "")));
    match (word, failed) {
        ("kept", _) => Finding::Kept,
        ("broken", _) => Finding::Broken(rest.to_owned()),
        ("untried", _) => Finding::NotTried(rest.to_owned()),
        (_, Some(why)) => Finding::NotTried(why.clone()),
        _ => Finding::NotTried("the job ended before this attempt".to_owned()),
    }
}

/// The limits of a job that the kernel does not enforce, in words.
fn advisory(job: &JobDetail) -> String {
    let names: Vec<&str> =
        job.limits.iter().filter(|limit| limit.enforcement == "advisory").map(|limit| limit.name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!("; the kernel does not enforce: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_probe_are_findings() {
        let why = "job 3 did not end in time".to_owned();
        assert_eq!(finding_of(Some("kept"), None), Finding::Kept);
        assert_eq!(finding_of(Some("broken interface eth0"), None), Finding::Broken("interface eth0".to_owned()));
        assert_eq!(finding_of(Some("untried no python3"), Some(&why)), Finding::NotTried("no python3".to_owned()));
        assert_eq!(finding_of(None, Some(&why)), Finding::NotTried(why));
    }
}
