//! The attempts to break each promise.

use std::path::PathBuf;
use std::time::Duration;

use hostler_client::Client;
use hostler_model::{JobId, JobState, NodeState, SandboxNetwork};
use hostler_proto::api::{JobDetail, NodeView};
use hostler_proto::partitions::PartitionView;
use hostler_proto::users::UserView;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::report::{Finding, Report};
use super::tester::{Said, Tester, when_ended};
use crate::failure::Failure;
use crate::output::Output;

/// How often to look whether a job has printed something.
const LOOK: Duration = Duration::from_millis(200);

/// Memory of the jobs that do not need much, and of the one that starts many processes.
const LITTLE: &str = "64M";
const FOR_PROCESSES: &str = "1G";

/// How long a job may take to start that must not start.
const SETTLED: Duration = Duration::from_secs(3);

/// The head's refusal of what only a job's owner may do.
const NOT_YOURS: &str = "not_yours";

/// A promise, and how it is tried.
type Promise = (&'static str, &'static str);

const ACCOUNTS: Promise = ("students' jobs run on every node, in a sandbox", "submit jobs without --sandbox");
const OTHERS_JOBS: Promise =
    ("students cannot end or change jobs of others", "cancel, signal and update a running job");
const OTHERS_OUTPUT: Promise = ("students cannot read output and commands of others", "read those of a running job");
const OTHERS_RESULTS: Promise = ("students cannot fetch results of others", "fetch those of a job that has ended");
const MEMORY: Promise = ("a job that exceeds its memory is ended, and says so", "use 400 MB with -m 64M");
const TIME: Promise = ("a job ends at its time limit", "run on with -t 2s");
const BOMB: Promise = ("a fork bomb ends, and the node goes on", "start 10000 threads, then another job");
const WHOLE: Promise = ("a measured job has its node to itself", "submit a second job to its node");
const CERTIFICATE: Promise = ("a measured job gets a certificate", "read the job's certificate");
const COUNTERS: Promise = ("a measured job can use hardware counters", "call perf_event_open");

/// What a job tries while a job of another student runs on its node: name in the probe's output, promise, and how it is tried.
const INSIDE: [(&str, &str, &str); 7] = [
    (
        "files",
        "a job reads no files of other students",
        "read a file of another job, list /home and other jobs' folders",
    ),
    ("temporary", "each job has its own /tmp, $HOME and /dev/shm", "look for another job's files there"),
    ("processes", "jobs cannot see processes of other users", "search /proc for another student's job"),
    ("sockets", "a job reaches no daemon of its node", "look for the sockets in /run"),
    ("network", "a job has no network", "list interfaces, connect to the head"),
    ("writes", "a job writes only in its folder", "create files in ten other places"),
    ("counters", "a job beside others gets no hardware counters", "call perf_event_open"),
];

/// What the attempts share.
pub(super) struct Class<'a> {
    pub(super) admin: &'a Client,
    /// The partition with the sandboxes.
    pub(super) partition: PartitionView,
    /// The partition for measurements.
    pub(super) measure: Option<PartitionView>,
    /// Time limit of jobs in the partition for measurements.
    pub(super) measure_time: String,
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
    class.results(one, other, report).await?;
    let nodes = class.admin.nodes().await?;
    let mut here = nodes.iter().filter(|node| class.partition.nodes.matches(&node.name)).peekable();
    if here.peek().is_none() {
        report.untried(None, &on_each_node(), &format!("partition {} has no node", class.partition.name));
    }
    for node in here {
        output.aside(&format!("trying node {}", node.name));
        if let Some(why) = why_not(node) {
            report.untried(Some(node.name.as_str()), &on_each_node(), &why);
            continue;
        }
        if class.beside_another(one, other, node, report).await? {
            class.limits(one, node, report).await?;
        }
    }
    class.measurement(one, other, &nodes, report).await
}

/// All that is tried on each node.
fn on_each_node() -> Vec<Promise> {
    let inside = INSIDE.map(|(_, promise, tried)| (promise, tried));
    [&[ACCOUNTS][..], &inside, &[OTHERS_JOBS, OTHERS_OUTPUT, MEMORY, TIME, BOMB]].concat()
}

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
            SandboxNetwork::None | SandboxNetwork::Job => self.refused(tester, &options, "partition_refuses").await?,
            SandboxNetwork::Host => Finding::NotTried("the partition has --sandbox-network host".to_owned()),
        };
        report.add("jobs cannot ask for the network of their nodes", "submit a job with --network host", None, finding);
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
        let nothing_else = |report: &mut Report, finding: Finding| {
            report.add(ACCOUNTS.0, ACCOUNTS.1, Some(name), finding);
            report.untried(Some(name), &on_each_node()[1..], "no job of a student runs here");
        };
        let victim = match one.submit(&self.project, &options, &["hold", &marker]).await? {
            Ok(job) => job,
            Err(said) => {
                nothing_else(report, Finding::Broken(said.error()));
                return Ok(false);
            }
        };
        let said = match self.ready(one, victim).await? {
            Ok(said) => said,
            Err(finding) => {
                nothing_else(report, finding);
                self.end(one, victim).await?;
                return Ok(false);
            }
        };
        let (folder, home) = (value(&said, "ready"), value(&said, "home"));
        let is_sandboxed = self.admin.job(victim, 1).await?.surroundings.sandbox;
        let finding = Finding::of(is_sandboxed, || format!("job {victim} has no sandbox"));
        report.add(ACCOUNTS.0, ACCOUNTS.1, Some(name), finding);

        let (host, port) = other.address.rsplit_once(':').unwrap_or((&other.address, "7760"));
        let arguments = ["attempts", &marker, &folder, &home, host.trim_matches(['[', ']']), port];
        let (ended, printed) = match other.submit(&self.project, &options, &arguments).await? {
            Ok(job) => (self.ended(job).await?, other.run(&["logs", &job.to_string()]).await?.stdout),
            Err(said) => (Err(said.error()), String::new()),
        };
        for (key, promise, tried) in INSIDE {
            let line = printed.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            let finding = match finding_of(line, ended.as_ref().err()) {
                Finding::Kept if key == "temporary" && said.contains("unwritten ") => {
                    Finding::NotTried(format!("job {victim} could not write {}", value(&said, "unwritten")))
                }
                finding => finding,
            };
            report.add(promise, tried, Some(name), finding);
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
        let mut finding = Finding::Kept;
        for (what, arguments) in acts {
            let said = other.run(&[arguments, &["--json"]].concat()).await?;
            finding = finding.and(must_be_refused(&said, &format!("{what} job {job}")));
        }
        let state = self.admin.job(victim, 1).await?.summary.state;
        let lives = Finding::of(state == JobState::Running, || format!("the state of job {job} is {state}"));
        report.add(OTHERS_JOBS.0, OTHERS_JOBS.1, Some(node), lives.and(finding));

        let said = other.run(&["logs", &job, "--json"]).await?;
        let output = must_be_refused(&said, &format!("read the output of job {job}"));
        let said = other.run(&["job", &job, "--json"]).await?;
        let details: Option<Value> = serde_json::from_str(&said.stdout).ok();
        let command = match (details, said.refusal().as_deref()) {
            (None, Some(NOT_YOURS)) => Finding::Kept,
            (None, _) => Finding::NotTried(said.error()),
            (Some(_), _) => Finding::of(!said.stdout.contains("probe.sh"), || format!("read the command of job {job}")),
        };
        report.add(OTHERS_OUTPUT.0, OTHERS_OUTPUT.1, Some(node), output.and(command));
        Ok(())
    }

    /// Lets another student fetch the results of a job that has ended.
    async fn results(&self, one: &Tester, other: &Tester, report: &mut Report) -> Result<(), Failure> {
        let finding = match self.finished(one, &self.within(LITTLE), &["true"]).await? {
            Ok(job) if job.summary.state == JobState::Completed => {
                let (id, to) = (job.summary.id.to_string(), self.project.with_file_name("fetched"));
                let said = other.run(&["fetch", &id, "--to", &to.to_string_lossy(), "--json"]).await?;
                must_be_refused(&said, &format!("fetch the results of job {id}"))
            }
            Ok(job) => Finding::NotTried(format!("job {} ended as {}", job.summary.id, job.summary.state)),
            Err(why) => Finding::NotTried(why),
        };
        report.add(OTHERS_RESULTS.0, OTHERS_RESULTS.1, None, finding);
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
        report.add(MEMORY.0, MEMORY.1, Some(name), memory);

        let time =
            ends_as(self.finished_on(tester, name, &["-m", LITTLE, "-t", "2s"], "time").await?, JobState::Timeout);
        report.add(TIME.0, TIME.1, Some(name), time);

        let finding = match self.finished_on(tester, name, &["-m", FOR_PROCESSES], "bomb").await? {
            Err(why) => Finding::NotTried(why),
            Ok(bomb) => {
                let id = bomb.summary.id;
                let printed = tester.run(&["logs", &id.to_string()]).await?.stdout;
                let ended = bomb_ended(&printed, id, bomb.summary.state, &advisory(&bomb));
                ended.and(match self.finished_on(tester, name, &["-m", LITTLE], "true").await? {
                    Ok(after) if after.summary.state == JobState::Completed => Finding::Kept,
                    Ok(after) => Finding::Broken(format!("the next job ended as {}", after.summary.state)),
                    Err(why) => Finding::Broken(format!("no job runs any more: {why}")),
                })
            }
        };
        report.add(BOMB.0, BOMB.1, Some(name), finding);
        Ok(())
    }

    /// Runs a job in the partition for measurements, and submits another one to its node.
    async fn measurement(
        &self,
        tester: &Tester,
        other: &Tester,
        nodes: &[NodeView],
        report: &mut Report,
    ) -> Result<(), Failure> {
        let untried = |report: &mut Report, why: &str| report.untried(None, &[WHOLE, CERTIFICATE, COUNTERS], why);
        let Some(partition) = &self.measure else {
            untried(report, "no partition has --exclusive always");
            return Ok(());
        };
        let options = ["-p", partition.name.as_str(), "-m", LITTLE, "-t", &self.measure_time];
        let id = match tester.submit(&self.project, &options, &["measure"]).await? {
            Ok(job) => job,
            Err(said) => {
                untried(report, &said.error());
                return Ok(());
            }
        };
        let printed = match self.ready(tester, id).await? {
            Ok(printed) => printed,
            Err(Finding::Kept) => String::new(),
            Err(Finding::NotTried(why) | Finding::Broken(why)) => {
                untried(report, &why);
                return self.end(tester, id).await;
            }
        };
        let running = self.admin.job(id, 1).await?;
        let node = running.tasks_shown.first().and_then(|task| task.node.clone());
        let finding = match nodes.iter().find(|known| Some(&known.name) == node.as_ref()) {
            Some(node) => {
                let cpus = value(&printed, "cpus");
                let whole = Finding::of(running.surroundings.exclusive && cpus == node.cpus.to_string(), || {
                    format!("job {id} had {cpus} of {} CPUs of {}", node.cpus, node.name)
                });
                whole.and(self.joins(other, id, node).await?)
            }
            None => Finding::NotTried(format!("the node of job {id} is unknown")),
        };
        report.add(WHOLE.0, WHOLE.1, None, finding);

        tester.run(&["signal", &id.to_string(), "USR1"]).await?;
        let certificate = match self.ended(id).await? {
            Ok(job) => {
                let has_one = job.tasks_shown.first().is_some_and(|task| task.certificate.is_some());
                Finding::of(has_one, || format!("job {id} has none"))
            }
            Err(why) => Finding::NotTried(why),
        };
        report.add(CERTIFICATE.0, CERTIFICATE.1, None, certificate);
        let finding = match value(&printed, "counters").as_str() {
            "works" => Finding::Kept,
            "refused" => Finding::NotTried("the node's admin has not set `performance_counters`".to_owned()),
            "none" => Finding::NotTried("the node has no hardware counters".to_owned()),
            _ => Finding::NotTried("the node has no python3".to_owned()),
        };
        report.add(COUNTERS.0, COUNTERS.1, None, finding);
        Ok(())
    }

    /// Submits a job of another student to the node of a measured job, which must wait.
    async fn joins(&self, other: &Tester, measured: JobId, node: &NodeView) -> Result<Finding, Failure> {
        if !self.partition.nodes.matches(&node.name) {
            return Ok(Finding::NotTried(format!("{} is not in partition {}", node.name, self.partition.name)));
        }
        let options = [&self.within(LITTLE)[..], &["--constraint", node.name.as_str()]].concat();
        let second = match other.submit(&self.project, &options, &["true"]).await? {
            Ok(job) => job,
            Err(said) => return Ok(Finding::NotTried(said.error())),
        };
        let state = self.admin.job_when_running(second, SETTLED).await?.summary.state;
        let still = self.admin.job(measured, 1).await?.summary.state;
        self.end(other, second).await?;
        Ok(match (state, still) {
            (JobState::Pending, JobState::Running) => Finding::Kept,
            (_, JobState::Running) => Finding::Broken(format!("job {second} was {state} beside job {measured}")),
            _ => Finding::NotTried(format!("job {measured} ended as {still}")),
        })
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
        self.finished(tester, &[&place, options].concat(), &[mode]).await
    }

    /// Submits a job and waits for its end. The inner error says why it did not end.
    async fn finished(
        &self,
        tester: &Tester,
        options: &[&str],
        arguments: &[&str],
    ) -> Result<Result<JobDetail, String>, Failure> {
        match tester.submit(&self.project, options, arguments).await? {
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

    /// Waits until a job runs and has printed that it is ready, and returns what it printed. The inner error says why it does not.
    async fn ready(&self, tester: &Tester, job: JobId) -> Result<Result<String, Finding>, Failure> {
        let deadline = Instant::now() + self.timeout;
        let detail = self.admin.job_when_running(job, self.timeout).await?;
        if detail.summary.state == JobState::Pending {
            let why = detail.summary.reason.unwrap_or_default();
            return Ok(Err(Finding::NotTried(format!("job {job} did not start in time: {why}"))));
        }
        while Instant::now() < deadline {
            let Said { stdout, .. } = tester.run(&["logs", &job.to_string()]).await?;
            if stdout.lines().any(|line| line.starts_with("ready ")) {
                return Ok(Ok(stdout));
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

/// The rest of the line of a probe's output that begins with this word.
fn value(printed: &str, name: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or("?").to_owned()
}

/// Result of an act that the head must refuse because the job belongs to another user.
fn must_be_refused(said: &Said, act: &str) -> Finding {
    match (said.code, said.refusal().as_deref()) {
        (0, _) => Finding::Broken(format!("could {act}")),
        (_, Some(NOT_YOURS)) => Finding::Kept,
        _ => Finding::NotTried(format!("cannot try to {act}: {}", said.error())),
    }
}

/// Result of a job that starts more threads than it may have.
fn bomb_ended(printed: &str, job: JobId, state: JobState, advisory: &str) -> Finding {
    if printed.contains("started all") {
        Finding::Broken(format!("job {job} started 10000 threads{advisory}"))
    } else if printed.contains("refused at ") {
        Finding::Kept
    } else {
        Finding::NotTried(format!("job {job} ended as {state} before it reached a limit on processes"))
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
    fn only_a_refusal_for_the_job_of_another_keeps_a_promise() {
        let said = |code, stderr: &str| Said { code, stdout: String::new(), stderr: stderr.to_owned() };
        let refused = |code: &str| format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"no\"}}}}");
        assert_eq!(must_be_refused(&said(4, &refused("not_yours")), "read job 3"), Finding::Kept);
        assert_eq!(must_be_refused(&said(0, ""), "read job 3"), Finding::Broken("could read job 3".to_owned()));
        for other in [said(2, "error: unexpected argument"), said(4, &refused("no_result")), said(3, "no head")] {
            assert!(matches!(must_be_refused(&other, "read job 3"), Finding::NotTried(_)), "{other:?}");
        }
    }

    #[test]
    fn a_bomb_must_reach_the_limit_on_processes() {
        let job = JobId(3);
        let of = |printed| bomb_ended(printed, job, JobState::Completed, "");
        assert_eq!(of("refused at 8187\n"), Finding::Kept);
        assert!(matches!(of("started all\n"), Finding::Broken(_)));
        assert!(matches!(of(""), Finding::NotTried(_)));
    }

    #[test]
    fn lines_of_the_probe_are_findings() {
        let why = "job 3 did not end in time".to_owned();
        assert_eq!(finding_of(Some("kept"), None), Finding::Kept);
        assert_eq!(finding_of(Some("broken interface eth0"), None), Finding::Broken("interface eth0".to_owned()));
        assert_eq!(finding_of(Some("untried no python3"), Some(&why)), Finding::NotTried("no python3".to_owned()));
        assert_eq!(finding_of(None, Some(&why)), Finding::NotTried(why));
    }
}
