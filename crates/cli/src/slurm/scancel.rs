//! `scancel`: cancels jobs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use hostler_client::{Client, ClientError, JobFilter, RecordFilter};
use hostler_model::{IndexSet, JobId, JobState, SignalNumber, SignalTarget};
use hostler_proto::api::{JobAction, JobRecord};
use hostler_slurm::getopt::Takes::{Nothing, Value};
use hostler_slurm::ids::split_far_number;
use hostler_slurm::state::parse_list;
use nix::unistd::{Uid, User};

use super::machines::ALL_NODES;
use super::node_files::nodes_in;
use super::options::{self, Setter, checked, flag, nothing, prints, value, version};
use super::rows::{ACCOUNT, QOS, find_task, rows, task_with_number};
use super::steps;
use super::{Ended, Outcome, Refused, check_clusters, own_name, print, tell};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "scancel";

const USAGE: &str = "Usage: scancel [OPTIONS] [job_id[_array_id]...]\n";

const OPTIONS: &[Setter<Given>] = &[
    value("account", "A", |given, name| given.filter.account = Some(name.to_owned())),
    // `--full` counts, whichever comes first.
    flag("batch", "b", |given| {
        if given.to != SignalTarget::All {
            given.to = SignalTarget::Program;
        }
    }),
    checked("clusters", "M", Value, |_, list| list.map_or(Ok(()), check_clusters)),
    nothing("ctld", "c", Nothing),
    flag("full", "f", |given| given.to = SignalTarget::All),
    prints("help", "", || USAGE.to_owned()),
    nothing("hurry", "H", Nothing),
    flag("interactive", "i", |given| given.interactive = true),
    value("jobname", "", |given, name| given.filter.name = Some(name.to_owned())),
    checked("me", "", Nothing, |given, _| {
        given.filter.user = Some(own_name()?);
        Ok(())
    }),
    value("name", "n", |given, name| given.filter.name = Some(name.to_owned())),
    checked("nodelist", "w", Value, |given, list| {
        given.filter.nodes = list.map(nodes).transpose()?;
        Ok(())
    }),
    value("partition", "p", |given, name| given.filter.partition = Some(name.to_owned())),
    value("qos", "q", |given, name| given.filter.qos = Some(name.to_owned())),
    flag("quiet", "Q", |given| given.quiet = true),
    value("reservation", "R", |given, name| given.filter.reservation = Some(name.to_owned())),
    nothing("sibling", "", Value),
    value("signal", "s", |given, signal| given.signal = Some(signal.to_owned())),
    checked("state", "t", Value, |given, list| {
        given.filter.states = list.map(states).transpose()?;
        Ok(())
    }),
    prints("usage", "", || USAGE.to_owned()),
    checked("user", "u", Value, |given, name| {
        given.filter.user = name.map(user).transpose()?;
        Ok(())
    }),
    flag("verbose", "v", |given| given.verbose = true),
    prints("version", "V", version),
    value("wckey", "", |given, key| given.filter.wckey = Some(key.to_owned())),
];

/// The options that variables such as `SCANCEL_USER` give, too.
const VARIABLES: [&str; 13] = [
    "account",
    "batch",
    "ctld",
    "full",
    "hurry",
    "interactive",
    "name",
    "partition",
    "qos",
    "state",
    "user",
    "verbose",
    "wckey",
];

/// The options as they were given.
struct Given {
    filter: Filter,
    interactive: bool,
    quiet: bool,
    signal: Option<String>,
    to: SignalTarget,
    verbose: bool,
}

/// States of jobs that have not ended.
const LIVE: [JobState; 4] = [JobState::Pending, JobState::Starting, JobState::Running, JobState::Completing];

/// The largest number of jobs that one request may name.
const MOST_NAMED: usize = 1000;

/// What Slurm says about a job that has ended or never existed.
const UNKNOWN: &str = "Invalid job id specified";

/// Which of the named jobs to cancel.
#[derive(Debug, Default)]
struct Filter {
    account: Option<String>,
    name: Option<String>,
    /// Jobs that run on any of these nodes.
    nodes: Option<Vec<String>>,
    partition: Option<String>,
    qos: Option<String>,
    user: Option<String>,
    reservation: Option<String>,
    wckey: Option<String>,
    /// States of jobs; `None` means any.
    states: Option<Vec<JobState>>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        let Self { account, name, nodes, partition, qos, user, reservation, wckey, states } = self;
        let texts = [account, name, partition, qos, user, reservation, wckey];
        texts.into_iter().all(Option::is_none) && states.is_none() && nodes.is_none()
    }

    /// Whether the job matches; does not check the states and nodes of its tasks.
    fn takes(&self, job: &JobRecord) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            let any = |wanted: &str| Some(wanted) == value || wanted.split(',').any(|one| Some(one) == value);
            wanted.as_deref().is_none_or(any)
        };
        let label = |name: &str| job.labels.get(name).map(String::as_str);
        is(&self.account, Some(label("account").unwrap_or(ACCOUNT)))
            && is(&self.qos, Some(label("qos").unwrap_or(QOS)))
            && is(&self.name, Some(&job.name))
            && is(&self.user, Some(&job.user))
            && is(&self.partition, Some(job.partition.as_ref().map_or(ALL_NODES, hostler_model::PartitionName::as_str)))
            && is(&self.reservation, label("reservation"))
            && is(&self.wckey, label("wckey"))
    }

    /// What to cancel of a job, or of those of its tasks that the user named: all, or of an array the tasks in these states and
    /// on these nodes.
    fn matching(&self, job: &JobRecord, named: Option<&Named>) -> Option<Named> {
        let whole = Named { text: job.id.to_string(), job: job.id, tasks: None, step: None };
        let named = named.unwrap_or(&whole);
        let is_in = |state: JobState| self.states.as_ref().is_none_or(|states| states.contains(&state));
        let is_there = |nodes: &[&str]| {
            self.nodes.as_ref().is_none_or(|names| nodes.iter().any(|node| names.iter().any(|name| name == node)))
        };
        let all = rows(job, false);
        let is_whole = match &job.array {
            None => is_in(job.state) && all.iter().any(|row| is_there(&row.nodes())),
            Some(_) => self.states.is_none() && self.nodes.is_none(),
        };
        if is_whole || job.array.is_none() {
            return is_whole.then(|| named.clone());
        }
        let waiting = job.waiting.as_ref().filter(|_| is_in(JobState::Pending) && self.nodes.is_none());
        let mut set = waiting.map(|waiting| waiting.indices.clone()).unwrap_or_default();
        let tasks = all.iter().filter(|row| is_there(&row.nodes())).filter_map(|row| row.task);
        let started = tasks.filter(|task| is_in(task.state) && !task.state.is_ended());
        set.add_all(&started.map(|task| task.index).collect());
        let set = named.tasks.as_ref().map_or(set.clone(), |named| named.intersection(&set));
        let text = format!("{}_{}", job.id, bracketed(&set));
        (!set.is_empty()).then(|| Named { text, tasks: Some(set), ..named.clone() })
    }
}

/// A job, tasks of an array, or a step, by the number that the user gave.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    text: String,
    job: JobId,
    tasks: Option<IndexSet>,
    step: Option<Step>,
}

impl Named {
    /// Finds the job among live ones. Returns it with what is named of it and has not ended, and the ids of the rest.
    fn among<'a>(&self, live: &'a [JobRecord]) -> (Option<(&'a JobRecord, Self)>, Vec<String>) {
        let number = |job: &JobRecord| task_with_number(job, self.job).filter(|_| self.tasks.is_none());
        let Some(job) = live.iter().find(|job| job.id == self.job || number(job).is_some()) else {
            return (None, self.tasks.as_ref().map_or_else(|| vec![self.text.clone()], |set| self.each(self.job, set)));
        };
        let named = number(job).map(IndexSet::one).or_else(|| self.tasks.clone());
        let Some(named) = named else { return (Some((job, self.clone())), Vec::new()) };
        let waiting = job.waiting.as_ref().map(|waiting| waiting.indices.clone()).unwrap_or_default();
        let started = job.tasks.iter().filter(|task| !task.state.is_ended()).map(|task| task.index);
        let mut alive = waiting.intersection(&named);
        alive.add_all(&started.filter(|index| named.contains(*index)).collect());
        let ended = self.each(job.id, &named.difference(&alive));
        let text = if named == alive { self.text.clone() } else { format!("{}_{}", job.id, bracketed(&alive)) };
        let alive = (!alive.is_empty()).then_some(Self { text, job: job.id, tasks: Some(alive), step: self.step });
        (alive.map(|alive| (job, alive)), ended)
    }

    /// The ids of tasks of an array, or that of the named step.
    fn each(&self, array: JobId, tasks: &IndexSet) -> Vec<String> {
        match self.step {
            Some(_) => vec![self.text.clone(); usize::from(!tasks.is_empty())],
            None => tasks.iter().map(|index| format!("{array}_{index}")).collect(),
        }
    }

    /// The task whose number this is, if it is that of an array's task.
    async fn task(&self, client: &Client) -> Result<Option<Self>, ClientError> {
        let task = if self.tasks.is_none() { find_task(client, self.job).await? } else { None };
        Ok(task.map(|task| Self { job: task.job, tasks: Some(IndexSet::one(task.index)), ..self.clone() }))
    }
}

/// A step of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The script.
    Batch,
    /// What `srun` started.
    Number(u32),
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given {
        filter: Filter::default(),
        interactive: false,
        quiet: false,
        signal: None,
        to: SignalTarget::Steps,
        verbose: false,
    };
    options::apply_variables(OPTIONS, NAME, &VARIABLES, |name| std::env::var(name).ok(), &mut given)?;
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let Given { filter, interactive, quiet, signal, to, verbose } = given;
    let named_signal = signal.clone();
    let signal: Option<SignalNumber> = match signal.filter(|signal| !is_kill(signal)) {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| Ended::plain(format!("Unknown job signal: {text}")))?),
    };
    let is_plain = filter.is_empty() && named_signal.is_none() && to != SignalTarget::Program && !interactive;
    let how = Treatment { signal, to, interactive, quiet, verbose, is_plain };
    if operands.iter().any(|word| word.is_empty()) {
        return Err(Ended::error("Invalid job id "));
    }
    let named = operands.iter().flat_map(|word| split(&word.to_string_lossy())).map(|word| parse_id(&word));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    if named.is_empty() && filter.is_empty() {
        return Err(Ended::error("No job identification provided"));
    }
    let client = context.watching_client().map_err(|failure| Ended::error(failure.summary()))?;
    let cancelled = block_on(async { Ok(cancel(context, &client, &named, &filter, how).await) });
    cancelled.map_err(|failure| Ended::error(failure.summary()))?
}

/// What happens to the jobs.
#[derive(Debug, Clone, Copy)]
struct Treatment {
    /// The signal that they get; `None` to cancel them.
    signal: Option<SignalNumber>,
    to: SignalTarget,
    /// Whether to ask before each job.
    interactive: bool,
    /// Whether to say nothing about jobs that have ended.
    quiet: bool,
    verbose: bool,
    /// Whether the command only names jobs to cancel. It then ignores unknown ones.
    is_plain: bool,
}

/// Cancels or signals the jobs, all that it may, and returns the exit code.
async fn cancel(context: &Context, client: &Client, named: &[Named], filter: &Filter, how: Treatment) -> Outcome {
    let verbose = how.verbose;
    let refuse = |error: ClientError| Ended::error(Refused::from(error).text);
    let mut code = 0;
    let report = |text: &str, step: Option<&Step>, why: &str| {
        let what = if step.is_some() { "job step id" } else { "job id" };
        tell(context, NAME, &[format!("error: Kill job error on {what} {text}: {why}")]);
    };
    let chosen = if how.is_plain && named.iter().all(|named| named.step.is_none()) {
        named.to_vec()
    } else if named.is_empty() {
        let matching = live_jobs(client, filter).await.map_err(refuse)?;
        matching.iter().filter_map(|job| filter.matching(job, None)).collect()
    } else {
        // With a filter, a signal or a step, Slurm refuses jobs that have ended as it refuses unknown ones.
        let live = named_jobs(client, named).await.map_err(refuse)?;
        let mut chosen = Vec::new();
        for named in named {
            let (alive, ended) = named.among(&live);
            for text in ended {
                code = 1;
                if !how.quiet {
                    report(&text, named.step.as_ref(), UNKNOWN);
                }
            }
            let alive = alive.filter(|(job, _)| filter.takes(job));
            chosen.extend(alive.and_then(|(job, named)| filter.matching(job, Some(&named))));
        }
        chosen
    };
    if let Some(user) = filter.user.as_deref().filter(|_| chosen.is_empty())
        && User::from_name(user).ok().flatten().is_none()
    {
        // Users such as `root@n1` have no local account, but jobs.
        let all = JobFilter { user: Some(user.to_owned()), limit: Some(1), ..JobFilter::default() };
        if client.jobs(&all).await.map_err(refuse)?.total == 0 {
            return Err(invalid_user(user));
        }
    }
    let chosen = if how.interactive { confirmed(context, client, chosen).await? } else { chosen };
    let mut refused = |text: &str, step: Option<&Step>, error: ClientError| {
        let refused = Refused::from(error);
        // The user wants the job not to run, which is true of jobs that have ended or never existed.
        let is_unknown = matches!(refused.code.as_deref(), Some("no_such_job" | "no_such_task"));
        let is_gone = is_unknown && how.is_plain && step.is_none();
        let is_over = is_unknown || refused.code.as_deref() == Some("not_running");
        if (!is_gone || verbose) && !(how.quiet && is_over) {
            report(text, step, refused.text);
        }
        if !is_gone {
            code = 1;
        }
    };
    let mut waiting = Vec::new();
    let mut open = VecDeque::from(chosen);
    while let Some(named) = open.pop_front() {
        let Named { text, job, tasks, step } = &named;
        if verbose {
            let doing =
                how.signal.map_or_else(|| "Terminating".to_owned(), |signal| format!("Signal {} to", signal.get()));
            tell(context, NAME, &[format!("{doing} job {text}")]);
        }
        let at_once = tasks.as_ref().filter(|set| how.signal.is_none() && step.is_none() && set.len() > 1);
        let indices: Vec<Option<u32>> = match tasks {
            Some(set) if at_once.is_none() => set.iter().map(Some).collect(),
            _ => vec![None],
        };
        for index in indices {
            let done = match (step, how.signal) {
                (None, None) => match at_once {
                    Some(set) => client.cancel_tasks(*job, set.clone()).await.map(drop),
                    None => client.act(*job, index, JobAction::Cancel).await.map(drop),
                },
                (None, Some(signal)) => {
                    let signal = Signalled { text: text.clone(), job: *job, index, signal, to: how.to };
                    match signal.send(client).await {
                        Ok(Sent::TooEarly(_)) => {
                            if verbose {
                                tell(context, NAME, &["Job is in transitional state, retrying".to_owned()]);
                            }
                            waiting.push(signal);
                            Ok(())
                        }
                        sent => sent.map(drop),
                    }
                }
                (Some(step), signal) => {
                    let signal = signal.unwrap_or(SignalNumber::KILL);
                    match step {
                        Step::Batch => client.signal(*job, index, signal, SignalTarget::Group).await.map(drop),
                        Step::Number(step) => client.signal_step(*job, index, *step, signal).await.map(drop),
                    }
                }
            };
            let Err(error) = done else { continue };
            if error.code() == Some("no_such_job")
                && let Some(task) = named.task(client).await.map_err(refuse)?
            {
                open.push_front(task);
            } else {
                refused(text, step.as_ref(), error);
            }
        }
    }
    for (text, error) in signal_started(client, waiting).await {
        refused(&text, None, error);
    }
    Ok(code)
}

/// How long signals wait for the start of their jobs: as long as Slurm's ten attempts, whose pauses grow from 5 s to 14 s.
const START_TIMEOUT: Duration = Duration::from_secs(95);

/// A signal to a job or to a task of an array.
#[derive(Debug)]
struct Signalled {
    /// The job, as the user named it.
    text: String,
    job: JobId,
    index: Option<u32>,
    signal: SignalNumber,
    to: SignalTarget,
}

enum Sent {
    Done,
    /// The job waited or was being prepared, so the head refused the signal with this error.
    TooEarly(ClientError),
}

impl Signalled {
    async fn send(&self, client: &Client) -> Result<Sent, ClientError> {
        match client.signal(self.job, self.index, self.signal, self.to).await {
            Ok(_) => Ok(Sent::Done),
            Err(error) if error.code() == Some("not_running") && may_run(client, self.job, self.index).await? => {
                Ok(Sent::TooEarly(error))
            }
            Err(error) => Err(error),
        }
    }
}

/// Sends signals to jobs when they have started, as Slurm does. Returns what could not be sent.
async fn signal_started(client: &Client, mut waiting: Vec<Signalled>) -> Vec<(String, ClientError)> {
    let until = Instant::now() + START_TIMEOUT;
    let mut pause = Duration::from_millis(50);
    let mut failed = Vec::new();
    while !waiting.is_empty() {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
        for signal in std::mem::take(&mut waiting) {
            match signal.send(client).await {
                Ok(Sent::Done) => {}
                Ok(Sent::TooEarly(_)) if Instant::now() < until => waiting.push(signal),
                Ok(Sent::TooEarly(error)) | Err(error) => failed.push((signal.text, error)),
            }
        }
    }
    failed
}

/// Whether a job or a task runs or may do so later. One that was refused a signal because it did not run may have started
/// since.
async fn may_run(client: &Client, job: JobId, index: Option<u32>) -> Result<bool, ClientError> {
    let records = client.records(&RecordFilter { jobs: vec![job], ..RecordFilter::default() }).await?;
    let Some(record) = records.first() else { return Ok(false) };
    let state = match index.filter(|_| record.array.is_some()) {
        None => record.state,
        Some(index) => {
            record.tasks.iter().find(|task| task.index == index).map_or(JobState::Pending, |task| task.state)
        }
    };
    Ok(matches!(state, JobState::Pending | JobState::Starting | JobState::Running))
}

/// The named jobs that have not ended, without their ended tasks.
async fn named_jobs(client: &Client, named: &[Named]) -> Result<Vec<JobRecord>, ClientError> {
    let mut all = Vec::new();
    for some in named.chunks(MOST_NAMED) {
        let jobs = some.iter().map(|named| named.job).collect();
        let asked = RecordFilter { jobs, states: LIVE.to_vec(), live: true, ..RecordFilter::default() };
        all.extend(client.records(&asked).await?);
    }
    Ok(all)
}

/// The jobs that have not ended and that the filter takes.
async fn live_jobs(client: &Client, filter: &Filter) -> Result<Vec<JobRecord>, ClientError> {
    let user = filter.user.clone().filter(|user| !user.contains(','));
    let asked = RecordFilter { states: LIVE.to_vec(), user, live: true, ..RecordFilter::default() };
    let mut all = client.records(&asked).await?;
    all.retain(|job| filter.takes(job));
    Ok(all)
}

/// The jobs that the user confirms, one after the other.
async fn confirmed(context: &Context, client: &Client, chosen: Vec<Named>) -> Result<Vec<Named>, Ended> {
    let refuse = |error: ClientError| Ended::error(Refused::from(error).text);
    let mut left = Vec::new();
    let mut answers = std::io::stdin().lines();
    for named in chosen {
        let job = client.job(named.job, 0).await.map_err(refuse)?;
        let what = if named.step.is_some() { "step_id" } else { "job_id" };
        let partition = job.summary.partition.as_ref().map_or(ALL_NODES, hostler_model::PartitionName::as_str);
        let question = format!("Cancel {what}={} name={} partition={partition} [y/n]? ", named.text, job.summary.name);
        loop {
            print(context, &question);
            let Some(Ok(answer)) = answers.next() else {
                return Err(Ended::error("standard input has ended before the answer, so nothing was cancelled"));
            };
            match answer.trim_start().chars().next() {
                Some('y' | 'Y') => left.push(named),
                Some('n' | 'N') => {}
                _ => continue,
            }
            break;
        }
    }
    Ok(left)
}

/// Indices of tasks after the number of their array: `3`, `[1-3,7]`.
fn bracketed(tasks: &IndexSet) -> String {
    let text = tasks.to_string();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { format!("[{text}]") }
}

/// Splits a list of ids at the commas outside of brackets.
fn split(list: &str) -> Vec<String> {
    let (mut words, mut word, mut depth) = (Vec::new(), String::new(), 0_i32);
    for c in list.chars() {
        match c {
            ',' if depth == 0 => words.push(std::mem::take(&mut word)),
            c => {
                depth += i32::from(c == '[') - i32::from(c == ']');
                word.push(c);
            }
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Parses `12`, `12_3`, `12_[1-3,7]`, the numbers of array tasks, and steps such as `12.0` and `12_3.batch`.
fn parse_id(text: &str) -> Result<Named, Ended> {
    let bad = || Ended::error(format!("Invalid job id {text}"));
    let (id, step) = text.split_once('.').map_or((text, None), |(id, step)| (id, Some(step)));
    let step = match step {
        None => None,
        Some(steps::BATCH) => Some(Step::Batch),
        Some(number) => Some(Step::Number(number.parse().map_err(|_| bad())?)),
    };
    let (job, tasks) = id.split_once('_').map_or((id, None), |(job, tasks)| (job, Some(tasks)));
    let raw: u64 = job.parse().map_err(|_| bad())?;
    let (job, index) = split_far_number(raw);
    let tasks = match (tasks, index) {
        (None, index) => index.map(IndexSet::one),
        (Some("*"), None) => None,
        (Some(tasks), None) => {
            let list = tasks.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(tasks);
            let list = list.split('%').next().unwrap_or(list);
            let array: hostler_model::ArraySpec = list.parse().map_err(|_| bad())?;
            Some(array.indices)
        }
        (Some(_), Some(_)) => return Err(bad()),
    };
    if job == 0 {
        return Err(bad());
    }
    Ok(Named { text: text.to_owned(), job: JobId(job), tasks, step })
}

/// The states of jobs that a state of Slurm stands for. None, if jobs in that state cannot be cancelled.
fn states(text: &str) -> Result<Vec<JobState>, Ended> {
    match text.to_ascii_uppercase().as_str() {
        "PENDING" | "PD" => Ok(vec![JobState::Pending]),
        // `squeue` lists jobs as running whose nodes still prepare them.
        "RUNNING" | "R" => Ok(vec![JobState::Starting, JobState::Running]),
        "COMPLETING" | "CG" => Ok(vec![JobState::Completing]),
        "CONFIGURING" | "CF" => Ok(vec![JobState::Starting]),
        // Slurm accepts one state only, no list.
        word if !word.is_empty() && !word.contains(',') && word != "ALL" && parse_list(word).is_ok() => Ok(Vec::new()),
        _ => {
            let mistake = Ended::plain(format!("Invalid job state specified: {text}"));
            Err(mistake.and_plain("Valid job states are PENDING, RUNNING, and SUSPENDED"))
        }
    }
}

/// The names in a host list, or in the file of that path.
fn nodes(text: &str) -> Result<Vec<String>, Ended> {
    let listed = if text.contains('/') { nodes_in(Path::new(text))? } else { text.to_owned() };
    hostler_slurm::hostlist::expand(&listed).map_err(|_| Ended::error(format!("Invalid node name {text}")))
}

fn invalid_user(name: &str) -> Ended {
    Ended::error(format!("Invalid user name: {name}"))
}

/// The name of a user, given by name or by uid.
fn user(text: &str) -> Result<String, Ended> {
    let invalid = || invalid_user(text);
    match text.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name).ok_or_else(invalid),
        Err(_) if text.is_empty() => Err(invalid()),
        Err(_) => Ok(text.to_owned()),
    }
}

/// Whether a signal ends a job for sure, as cancelling does.
fn is_kill(signal: &str) -> bool {
    let name = signal.to_ascii_uppercase();
    ["9", "KILL", "SIGKILL"].contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_need_no_local_account() {
        for (text, name) in
            [("0", Some("root")), ("root@n1", Some("root@n1")), ("ada,bob", Some("ada,bob")), ("", None)]
        {
            assert_eq!(user(text).ok().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn ids_have_slurms_forms() {
        let tasks = |text: &str| {
            let Named { job, tasks, .. } = parse_id(text).expect(text);
            (job.0, tasks.map(|set| set.iter().collect::<Vec<_>>()))
        };
        let step = |text: &str| parse_id(text).expect(text).step;
        assert_eq!(tasks("12"), (12, None));
        assert_eq!(tasks("12_3"), (12, Some(vec![3])));
        assert_eq!(tasks("12_[1-3,7%2]"), (12, Some(vec![1, 2, 3, 7])));
        assert_eq!(tasks("4000000012"), (12, Some(vec![3])));
        assert_eq!(split("1,2_[3,4],5"), ["1", "2_[3,4]", "5"]);
        assert_eq!((step("12.0"), step("12_3.batch"), step("12")), (Some(Step::Number(0)), Some(Step::Batch), None));
        assert_eq!(tasks("12_3.1"), (12, Some(vec![3])));
        ["", "x", "0", "12_", "12_x", "12.", "12.x", "12.0.1"]
            .iter()
            .for_each(|text| assert!(parse_id(text).is_err(), "{text}"));
    }
}
