//! From options of Slurm's commands to a submission.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hostler_client::{Client, ClientError};
use hostler_model::{
    ArraySpec, Condition, Constraint, Counted, CountedError, Dependency, Environment, Files, JobId, Labels,
    LimitSignal, MAX_SUBMIT_LINE, NUMBERED, OpenMode, PartialRequest, RequestedTime, SignalTarget, Submission,
    Surroundings, WallTime, Work, text_of,
};
use hostler_proto::api::NodeView;
use hostler_remote::step::LoginRequest;
use hostler_slurm::container_options::PREFERRED;
use hostler_slurm::hostlist;
use hostler_slurm::ids::split_far_number;
use hostler_slurm::job_options::{JobOptions, Key, LOGIN_SECONDS, Layout, MISTAKE, SRUN_VARIABLES};
use hostler_slurm::time::Limit;
use nix::unistd::{Group, User};

use super::clock::Clock;
use super::container::contain;
use super::rows::find_task;
use super::{CLUSTER, Ended};
use crate::commands::run::{own_environment, own_umask};
use crate::flags::MAX_NAME_CHARACTERS;
use crate::passed_on::PassedOn;

/// Variables of the caller that a job gets even if it gets no others.
const OF_THE_USER: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "LANG"];

/// `PATH` of a job that does not get the caller's.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Returns the submission that the options describe. `directory`: where the command was called. `commands`: the directory
/// of Slurm's commands, which the job must find.
///
/// # Errors
/// If a value is not valid, or means something that this cluster cannot do.
pub(crate) fn submission(
    options: &JobOptions,
    work: Work,
    default_name: &str,
    directory: &str,
    commands: Option<&Path>,
) -> Result<Submission, Ended> {
    check_identity(options)?;
    let layout = options.layout();
    let failed = |text: &str| Ended::error(format!("Batch job submission failed: {text}"));
    let array = options.array.as_deref().filter(|array| !array.is_empty());
    // As in Slurm, `%0` stands for no limit.
    let array = array.map(|array| bare(array.strip_suffix("%0").unwrap_or(array)).parse::<ArraySpec>()).transpose();
    let array = array.map_err(|_| failed("Invalid job array specification"))?;
    let partition =
        options.partition.as_deref().filter(|list| !list.is_empty()).map(first_partition).map(str::parse).transpose();
    let partition = partition.map_err(|_| failed("Invalid partition name specified"))?;
    let nodes = layout.nodes.unwrap_or(1).max(listed_nodes(options)?);
    let dependencies = dependencies(options.dependency.as_deref())?;
    let named = dependencies.all.iter().map(|it| it.plain().to_string());
    let singleton = [WORD.to_owned()].into_iter().chain(named).collect::<Vec<_>>().join(",");
    let singleton = Some(singleton).filter(|_| dependencies.singleton);
    // Nothing else can start on a node without free memory.
    let exclusive = options.exclusive || options.mem_mib == Some(0);
    let mut spec = Submission {
        request: request(options, &layout, nodes)?,
        nodes: Some(nodes),
        tasks_per_node: Some(layout.tasks_per_node),
        surroundings: Surroundings { exclusive, submit_line: Some(Box::new(own_line())), ..Surroundings::default() },
        first_node: true,
        partition,
        constraint: constraint(options)?,
        time_limit_ms: options.time.map(|limit| match limit {
            Limit::Unlimited => 0,
            Limit::Seconds(seconds) => seconds.saturating_mul(1000),
        }),
        array,
        after: dependencies.all.into(),
        singleton: dependencies.singleton,
        begin: begin_before_deadline(options)?.map(Box::new),
        priority: options.priority.unwrap_or(0).saturating_sub(options.nice),
        hold: options.hold,
        requeue: options.requeue.unwrap_or(true),
        environment: environment(options, directory, commands)?,
        limit_signal: options.signal.as_deref().map(|text| limit_signal(text).map(Box::new)).transpose()?,
        umask: Some(own_umask()),
        labels: Some(Box::new(labels(options, singleton))),
        ..Submission::with_defaults(name(options.job_name.as_deref().unwrap_or(default_name)), work)
    };
    spec.environment.extend(described(options, &spec, &layout, directory));
    contain(options, &mut spec)?;
    Ok(spec)
}

/// The indices of an array without brackets around them, which Slurm accepts: `[0-4]`, `[0-9]%2`.
fn bare(array: &str) -> String {
    let without = array.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    without.map_or_else(|| array.to_owned(), |(indices, rest)| format!("{indices}{rest}"))
}

/// Makes a submission with another number of nodes, for options that leave the number open.
pub(crate) fn spread(options: &JobOptions, spec: &Submission, nodes: u32) -> Result<Submission, Ended> {
    let layout = options.layout();
    let each = layout.ntasks.div_ceil(nodes).max(1);
    let request = request(options, &Layout { tasks_per_node: each, ..layout }, nodes)?;
    Ok(Submission { request, nodes: Some(nodes), tasks_per_node: Some(each), ..spec.clone() })
}

/// Returns the smallest number of nodes on which the tasks fit at all; `None` if they fit on no number.
pub(crate) fn nodes_for(options: &JobOptions, all: &[NodeView]) -> Option<u32> {
    let layout = options.layout();
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX).min(layout.ntasks);
    (2..=count).find(|nodes| {
        let cpus = u64::from(layout.ntasks.div_ceil(*nodes)) * u64::from(layout.cpus_per_task);
        all.iter().filter(|node| u64::from(node.cpus) >= cpus).count() >= *nodes as usize
    })
}

/// The files of a batch job.
pub(crate) fn files(options: &JobOptions) -> Files {
    let usual = if options.array.is_some() { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    Files {
        stdin: options.input.clone(),
        stdout: Some(options.output.clone().unwrap_or_else(|| usual.to_owned())),
        stderr: options.error.clone(),
        open_mode: options.append.map(|append| if append { OpenMode::Append } else { OpenMode::Truncate }),
    }
}

/// Refuses to submit a job for another user or group: users of the cluster act only as themselves.
pub(crate) fn check_identity(options: &JobOptions) -> Result<(), Ended> {
    let hint = "hint: call the command as that user, for example with `su`";
    let refuse = |option: &str, what: &str, id: Option<u32>, own: u32| match id {
        None => Err(Ended { code: MISTAKE, ..Ended::error(format!("Invalid --{option} specification")) }),
        Some(id) if id == own => Ok(()),
        Some(_) => Err(Ended { code: MISTAKE, ..Ended::error(format!("--{option} names another {what}")) }.and(hint)),
    };
    if let Some(text) = &options.uid {
        let of_name = || User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
        refuse("uid", "user", text.parse().ok().or_else(of_name), nix::unistd::Uid::effective().as_raw())?;
    }
    if let Some(text) = &options.gid {
        let of_name = || Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw());
        refuse("gid", "group", text.parse().ok().or_else(of_name), nix::unistd::Gid::effective().as_raw())?;
    }
    Ok(())
}

/// Warnings about nodes that no task would use, and about what has no effect here.
pub(crate) fn warnings(options: &JobOptions) -> Vec<String> {
    let nodes = options.nodes_without_tasks().map(|(nodes, tasks)| {
        format!("Warning: can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}")
    });
    let deadline = options.deadline.as_ref().map(|deadline| {
        format!("Warning: nothing ends the job at its deadline of {deadline}; -t limits how long it runs")
    });
    let kept_invalid = options.keeps_invalid_dependency.then(|| {
        "Warning: a job whose dependencies cannot be satisfied any more is cancelled, also with --kill-on-invalid-dep=no"
            .to_owned()
    });
    nodes.into_iter().chain(deadline).chain(kept_invalid).collect()
}

fn request(options: &JobOptions, layout: &Layout, nodes: u32) -> Result<PartialRequest, Ended> {
    let sharing = if options.overcommit { 1 } else { layout.tasks_per_node };
    let cpus = sharing.saturating_mul(layout.cpus_per_task).max(options.min_cpus.unwrap_or(0));
    let gpus = match (options.gpus_per_node, options.gpus_per_task, options.gpus) {
        (Some(each), ..) => each,
        (None, Some(each), _) => each.saturating_mul(layout.tasks_per_node),
        (None, None, all) => all.unwrap_or(0).div_ceil(nodes.max(1)),
    };
    let mebibytes = match (options.mem_mib, options.mem_per_cpu_mib, options.mem_per_gpu_mib) {
        // All memory of a node, whatever that is.
        (Some(0), ..) => None,
        (Some(each), ..) => Some(each),
        (None, Some(each), _) => Some(each.saturating_mul(cpus.into())),
        (None, None, Some(each)) => Some(each.saturating_mul(gpus.into())),
        (None, None, None) => None,
    };
    let bad = |_| Ended::error("Batch job submission failed: Invalid generic resource (gres) specification");
    let counted = counted(options).map_err(bad)?;
    // The smallest sizes of Slurm are below what a process needs.
    let memory_bytes =
        mebibytes.map(|mebibytes| mebibytes.saturating_mul(1 << 20).max(hostler_model::LEAST_MEMORY_BYTES));
    Ok(PartialRequest { cpus: Some(cpus), memory_bytes, gpus, counted })
}

/// The counted resources on each node.
pub(super) fn counted(options: &JobOptions) -> Result<Counted, CountedError> {
    let mut counted = Counted::NONE;
    options.gres.iter().try_for_each(|(name, amount)| counted.insert(name, *amount))?;
    Ok(counted)
}

/// Parses a signal before the time limit: `USR1`, `B:TERM@120`. Without `B:`, the steps get it, and the script does not.
fn limit_signal(text: &str) -> Result<LimitSignal, Ended> {
    let bad = || Ended { code: MISTAKE, ..Ended::error("Invalid --signal specification") };
    let (flags, rest) = text.split_once(':').map_or(("", text), |(flags, rest)| (flags, rest));
    if !flags.chars().all(|flag| matches!(flag.to_ascii_uppercase(), 'B' | 'R')) {
        return Err(bad());
    }
    let (signal, seconds) = rest.split_once('@').unwrap_or((rest, "60"));
    let seconds: u64 = seconds.parse().ok().filter(|seconds| *seconds <= 65_535).ok_or_else(bad)?;
    let to = if flags.to_ascii_uppercase().contains('B') { SignalTarget::Program } else { SignalTarget::Steps };
    Ok(LimitSignal { signal: signal.parse().map_err(|_| bad())?, before_ms: seconds * 1000, to })
}

/// A name that the head accepts.
pub(super) fn name(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARACTERS).collect();
    if clean.is_empty() { "no-name".to_owned() } else { clean }
}

/// The first of several partitions: the scheduler does not choose among partitions.
pub(super) fn first_partition(list: &str) -> &str {
    list.split(',').next().unwrap_or(list)
}

pub(super) fn expanded(list: Option<&String>) -> Result<Vec<String>, Ended> {
    let Some(list) = list else { return Ok(Vec::new()) };
    hostlist::expand(list).map_err(|_| Ended::error("Batch job submission failed: Invalid node name specified"))
}

/// The number of different nodes that the options list. The job gets all of them.
fn listed_nodes(options: &JobOptions) -> Result<u32, Ended> {
    let names: BTreeSet<String> = expanded(options.nodelist.as_ref())?.into_iter().collect();
    Ok(u32::try_from(names.len()).unwrap_or(u32::MAX))
}

/// Features, required nodes and excluded nodes as one constraint.
pub(super) fn constraint(options: &JobOptions) -> Result<Option<Constraint>, Ended> {
    let mut parts: Vec<String> = Vec::new();
    // Scripts give an empty list for any node.
    if let Some(features) = options.constraint.as_deref().filter(|features| !features.is_empty()) {
        parts.push(format!("({})", features.replace(',', "&")));
    }
    let required = expanded(options.nodelist.as_ref())?;
    if !required.is_empty() {
        parts.push(format!("({})", required.join("|")));
    }
    parts.extend(expanded(options.exclude.as_ref())?.iter().map(|node| format!("!{node}")));
    parts.extend(options.gpu_model.as_ref().map(|model| format!("gpu-{}", model.to_ascii_lowercase())));
    if parts.is_empty() {
        return Ok(None);
    }
    let bad = |_| Ended::error("Batch job submission failed: Invalid feature specification");
    parts.join("&").parse().map(Some).map_err(bad)
}

/// Slurm's word for the dependency on all earlier jobs of the same name and user.
pub(super) const WORD: &str = "singleton";

/// The label of a job with that dependency. Its value has that word and the other dependencies, separated by commas.
pub(super) const SINGLETON: &str = "slurm.singleton";

/// The label of a job that asks for a model of GPUs.
pub(super) const GPU_MODEL: &str = "slurm.gpu_model";

/// The dependencies of a job.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    pub(super) all: Vec<Dependency>,
    pub(super) singleton: bool,
}

/// Parses dependencies such as `afterok:12:13,afterany:14_3,singleton` or `afterok:12?after:13+5`.
pub(super) fn dependencies(text: Option<&str>) -> Result<Dependencies, Ended> {
    let problem =
        |hint: &str| Ended::error("Batch job submission failed: Job dependency problem").and(format!("hint: {hint}"));
    let text = text.unwrap_or_default();
    let mut list = Dependencies::default();
    let alternative = text.contains('?');
    if alternative && text.contains(',') {
        return Err(problem("separate all dependencies by `,` if all must hold, or by `?` if one is enough"));
    }
    for part in text.split(if alternative { '?' } else { ',' }).filter(|part| !part.is_empty()) {
        if part == WORD {
            list.singleton = true;
            continue;
        }
        let (condition, jobs) = match part.split_once(':') {
            // The old form, without a condition.
            _ if part.starts_with(|c: char| c.is_ascii_digit()) => (Condition::AfterAny, part),
            Some((word, jobs)) => {
                let condition = Condition::from_word(word).ok_or_else(|| {
                    problem(&format!(
                        "`{word}` is not supported; the conditions are after, afterany, afterok, afternotok, aftercorr and singleton"
                    ))
                })?;
                (condition, jobs)
            }
            None => return Err(problem(&format!("`{part}` names no job; write for example afterok:12"))),
        };
        for job in jobs.split(':') {
            let dependency = slurm_dependency(condition, job).ok_or_else(|| {
                problem(&format!(
                    "`{job}` is not valid after `{}`; valid are 12, 12_3 for a task (not with aftercorr), and with `after` also 12+5",
                    condition.as_str()
                ))
            })?;
            list.all.push(Dependency { alternative, ..dependency });
        }
    }
    if alternative && list.singleton {
        return Err(problem("`singleton` cannot be one of several alternatives; separate the dependencies by `,`"));
    }
    Ok(list)
}

/// Makes dependencies on numbers of array tasks name the tasks.
///
/// # Errors
/// See [`ClientError`].
pub(super) async fn name_tasks(client: &Client, after: &mut [Dependency]) -> Result<(), ClientError> {
    for dependency in after.iter_mut().filter(|it| it.task.is_none() && it.condition != Condition::AfterCorr) {
        if let Some(task) = find_task(client, dependency.job).await? {
            (dependency.job, dependency.task) = (task.job, Some(task.index));
        }
    }
    Ok(())
}

/// Parses a job of a dependency: `12`, the number of a task, `12_3`, `12_*` for all tasks; with `after` also `12+5`.
fn slurm_dependency(condition: Condition, text: &str) -> Option<Dependency> {
    let plain = text.replacen("_*", "", 1);
    let of_job = Dependency::of_job(condition, &plain)?;
    let (job, index) = split_far_number(of_job.job.0);
    // The number of a task names the task, except where only whole arrays can be meant.
    let index = index.filter(|_| condition != Condition::AfterCorr);
    Some(Dependency { job: JobId(job), task: of_job.task.or(index), ..of_job })
}

/// The earliest start, which must be before the deadline.
fn begin_before_deadline(options: &JobOptions) -> Result<Option<RequestedTime>, Ended> {
    let begin = options.begin.as_deref().map(begin).transpose()?;
    let Some(text) = options.deadline.as_deref() else { return Ok(begin) };
    let now = WallTime(jiff::Timestamp::now().as_millisecond());
    let deadline = start_time(text).map_err(|mistake| wrong_time(text, mistake, "deadline"))?.at(now);
    if deadline <= now {
        let why = "Requested time limit is invalid (missing or exceeds some limit)";
        return Err(Ended::error(format!("Batch job submission failed: {why}")));
    }
    match begin {
        Some(begin) if begin.at(now) >= deadline => {
            Err(Ended::error("Incompatible begin and deadline time specification"))
        }
        begin => Ok(begin),
    }
}

/// Parses the value of `--begin`.
fn begin(text: &str) -> Result<RequestedTime, Ended> {
    start_time(text).map_err(|mistake| wrong_time(text, mistake, "begin"))
}

/// Parses the earliest time of a start: `now+1hour`, `16:00`, `tomorrow`, `2030-01-20T12:34`.
pub(super) fn start_time(text: &str) -> Result<RequestedTime, Ended> {
    Clock::of_process().parse_next(text).ok_or_else(|| {
        // Slurm names the place of the mistake.
        let place = text.strip_prefix("now").map_or(0, |_| "now".len());
        Ended::plain(format!("Invalid time specification (pos={place}): {text}"))
    })
}

/// The error of an option with a wrong time. Slurm names no place in an empty one.
fn wrong_time(text: &str, mistake: Ended, option: &str) -> Ended {
    let wrong = format!("Invalid --{option} specification");
    let ended = if text.is_empty() { Ended::error(wrong) } else { mistake.and(format!("error: {wrong}")) };
    Ended { code: MISTAKE, ..ended }
}

/// Whether the job gets all of the caller's variables.
pub(super) fn exports_all(options: &JobOptions) -> bool {
    options.export.as_deref().is_none_or(|export| export_items(export).iter().any(|item| item == "ALL"))
}

/// The variables that `--export` lets pass.
fn environment(options: &JobOptions, directory: &str, commands: Option<&Path>) -> Result<Environment, Ended> {
    let export = options.export.as_deref().unwrap_or("ALL");
    let items = export_items(export);
    let is_all = exports_all(options);
    let mut all = if is_all { own_environment(&PassedOn::All) } else { Environment::new() };
    if is_all {
        // Options of `srun` that the user chose for the steps.
        let of_steps = SRUN_VARIABLES.iter().filter(|(_, key)| !matches!(key, Key::JobName | Key::NtasksPerNode));
        let chosen = of_steps.map(|(name, _)| *name).chain(["SLURM_CPU_BIND", "SLURM_HINT"]);
        all.extend(chosen.filter_map(|name| Some((name.to_owned(), text_of(std::env::var_os(name)?)))));
    } else {
        all.insert("PATH".to_owned(), USUAL_PATH.to_owned());
        for name in OF_THE_USER {
            all.extend(std::env::var_os(name).map(|value| (name.to_owned(), text_of(value))));
        }
    }
    all.extend(options.export_file.as_deref().map(variables_of).transpose()?.unwrap_or_default());
    for item in items.iter().filter(|item| !["ALL", "NONE", "NIL"].contains(&item.as_str())) {
        match item.split_once('=') {
            Some(("", _)) => return Err(Ended::error(format!("Invalid --export specification: {item}"))),
            Some((name, value)) => drop(all.insert(name.to_owned(), value.to_owned())),
            None => all.extend(std::env::var_os(item).map(|value| (item.clone(), text_of(value)))),
        }
    }
    if let Some(commands) = commands.and_then(Path::to_str) {
        let path = all.entry("PATH".to_owned()).or_insert_with(|| USUAL_PATH.to_owned());
        if !path.split(':').any(|known| known == commands) {
            *path = format!("{commands}:{path}");
        }
    }
    all.insert("PWD".to_owned(), directory.to_owned());
    // `cron` and containers may start programs without these.
    if let Ok(Some(user)) = User::from_uid(nix::unistd::Uid::effective()) {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let (home, shell) = (path(user.dir), path(user.shell));
        for (variable, value) in [("USER", user.name.clone()), ("LOGNAME", user.name), ("HOME", home), ("SHELL", shell)]
        {
            all.entry(variable.to_owned()).or_insert(value);
        }
    }
    Ok(all)
}

/// The variable that asks the job's node for the variables of a login, as Slurm does if the job gets none of the caller's.
pub(super) fn login(options: &JobOptions) -> Option<(String, String)> {
    let is_nil = || export_items(options.export.as_deref().unwrap_or_default()).iter().any(|item| item == "NIL");
    let is_implied = !exports_all(options) && !is_nil();
    let seconds = options.get_user_env.or(is_implied.then_some(LOGIN_SECONDS))?;
    let request = LoginRequest { seconds, keeps_path: exports_all(options) };
    Some((LoginRequest::VARIABLE.to_owned(), request.to_string()))
}

/// Reads `NAME=VALUE` entries, each with a NUL at its end, from a file or an open descriptor of this process.
fn variables_of(file: &str) -> Result<Environment, Ended> {
    /// More than the kernel gives to a program.
    const LIMIT: u64 = 16 << 20;
    let descriptor = file.parse::<u32>().ok().filter(|number| *number > 2).map(|number| format!("/dev/fd/{number}"));
    let path = descriptor.filter(|path| Path::new(path).exists()).unwrap_or_else(|| file.to_owned());
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LIMIT).read_to_end(&mut text));
    read.map_err(|_| Ended::error(format!("Could not open user environment file {file}")))?;
    let mut variables = Environment::new();
    for entry in text.split(|byte| *byte == 0) {
        let entry = text_of(OsStr::from_bytes(entry));
        variables.extend(entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    Ok(variables)
}

/// Splits the value of `--export` at commas outside of quotes, and removes the quotes.
pub(crate) fn export_items(text: &str) -> Vec<String> {
    let (mut items, mut item, mut quote) = (Vec::new(), String::new(), None);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            (',', None) => items.push(std::mem::take(&mut item)),
            (c, _) => item.push(c),
        }
    }
    items.push(item);
    items.retain(|item| !item.is_empty());
    // As in Slurm, the words may have any case.
    for item in &mut items {
        if ["ALL", "NONE", "NIL"].iter().any(|word| word.eq_ignore_ascii_case(item)) {
            item.make_ascii_uppercase();
        }
    }
    items
}

/// Variables with Slurm's names whose values do not depend on the nodes.
fn described(options: &JobOptions, spec: &Submission, layout: &Layout, directory: &str) -> Environment {
    let mut all = Environment::new();
    let mut add = |name: &str, value: String| drop(all.insert(format!("SLURM_{name}"), value));
    add("SUBMIT_DIR", directory.to_owned());
    add("SUBMIT_HOST", host());
    add("CLUSTER_NAME", CLUSTER.to_owned());
    add("JOB_NAME", spec.name.to_string());
    add("JOB_ACCOUNT", options.account.clone().unwrap_or_else(|| "default".to_owned()));
    add("JOB_QOS", options.qos.clone().unwrap_or_else(|| "normal".to_owned()));
    let uid = nix::unistd::Uid::effective();
    add("JOB_UID", uid.to_string());
    add("JOB_GID", nix::unistd::Gid::effective().to_string());
    if let Ok(Some(user)) = User::from_uid(uid) {
        add("JOB_USER", user.name);
    }
    if let Ok(Some(group)) = Group::from_gid(nix::unistd::Gid::effective()) {
        add("JOB_GROUP", group.name);
    }
    // Niceness is not handed on, as usual in Slurm.
    add("PRIO_PROCESS", "0".to_owned());
    add("UMASK", format!("{:04o}", own_umask()));
    let mut maybe = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            add(name, value);
        }
    };
    maybe("JOB_DEPENDENCY", options.dependency.clone());
    maybe("JOB_RESERVATION", options.reservation.clone().filter(|name| !name.is_empty()));
    maybe("JOB_LICENSES", options.licenses.clone());
    maybe("GPUS_PER_NODE", options.gpus_per_node.map(|count| count.to_string()));
    maybe("GPUS_PER_TASK", options.gpus_per_task.map(|count| count.to_string()));
    maybe("OVERCOMMIT", options.overcommit.then(|| "1".to_owned()));
    let (kind, size) = options.distribution.as_deref().map_or((None, None), |kind| match kind.split_once('=') {
        Some((kind, size)) => (Some(kind), Some(size)),
        None => (Some(kind), None),
    });
    maybe("HOSTFILE", std::env::var("SLURM_HOSTFILE").ok().filter(|_| options.is_arbitrary()));
    maybe("DISTRIBUTION", kind.map(str::to_owned));
    maybe("DIST_PLANESIZE", size.map(str::to_owned));
    maybe("MEM_PER_GPU", options.mem_per_gpu_mib.map(|each| each.to_string()));
    if options.ntasks.is_some() || options.ntasks_per_node.is_some() {
        add("NTASKS", layout.ntasks.to_string());
        add("NPROCS", layout.ntasks.to_string());
    }
    if let Some(each) = options.ntasks_per_node {
        add("NTASKS_PER_NODE", each.to_string());
    }
    if let Some(cpus) = options.cpus_per_task {
        add("CPUS_PER_TASK", cpus.to_string());
    }
    if let Some(each) = options.mem_per_cpu_mib {
        add("MEM_PER_CPU", each.to_string());
    }
    if let Some(array) = &spec.array {
        let (first, last) = (array.indices.first().unwrap_or(0), array.indices.last().unwrap_or(0));
        let step = array.indices.iter().nth(1).map_or(1, |second| second - first);
        add("ARRAY_TASK_MIN", first.to_string());
        add("ARRAY_TASK_MAX", last.to_string());
        add("ARRAY_TASK_COUNT", array.indices.len().to_string());
        add("ARRAY_TASK_STEP", step.to_string());
    }
    all
}

/// The command line of this process, on one line, as `sacct` shows it.
fn own_line() -> String {
    let mut words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(name) = words.first_mut() {
        *name = name.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let blank = |c: char| if c.is_control() { ' ' } else { c };
    words.join(" ").chars().map(blank).take(MAX_SUBMIT_LINE).collect()
}

/// What the options say that only Slurm's commands show.
fn labels(options: &JobOptions, singleton: Option<String>) -> Labels {
    let clean = |value: &str| -> String { value.chars().filter(|c| !c.is_control()).take(1024).collect() };
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let all = [
        ("account", options.account.clone()),
        ("qos", options.qos.clone()),
        ("comment", options.comment.clone()),
        ("wckey", options.wckey.clone()),
        ("reservation", options.reservation.clone()),
        ("licenses", options.licenses.clone()),
        ("slurm.submit_host", Some(host())),
        ("slurm.ntasks", Some(options.layout().ntasks.to_string())),
        ("slurm.cpus_per_task", number(options.cpus_per_task)),
        ("slurm.ntasks_per_node", number(options.ntasks_per_node)),
        ("slurm.mem_per_cpu", options.mem_per_cpu_mib.map(|each| each.to_string())),
        ("slurm.features", options.constraint.clone()),
        ("slurm.nodelist", options.nodelist.clone()),
        ("slurm.exclude", options.exclude.clone()),
        (GPU_MODEL, options.gpu_model.clone()),
        (SINGLETON, singleton),
        (PREFERRED, options.container.image.as_ref().and(options.container.env.clone())),
        (NUMBERED, options.array.as_ref().map(|_| String::new())),
        ("slurm.nice", (options.nice != 0).then(|| options.nice.to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), clean(&value?)))).collect()
}

/// The name of this machine, without its domain.
pub(crate) fn host() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_items_are_split_outside_of_quotes() {
        assert_eq!(export_items("ALL,A=1,B='x, y',C=\"z\""), ["ALL", "A=1", "B=x, y", "C=z"]);
        assert_eq!(export_items(""), [""; 0]);
    }

    #[test]
    fn signals_before_the_limit_have_slurms_forms() {
        let parse = |text: &str| limit_signal(text).ok().map(|it| (it.signal.get(), it.before_ms, it.to.as_str()));
        assert_eq!(parse("USR2@90"), Some((12, 90_000, "steps")));
        assert_eq!(parse("B:10"), Some((10, 60_000, "program")));
        assert_eq!(parse("R:SIGTERM@5"), Some((15, 5000, "steps")));
        ["", "@5", "X:USR1", "USR1@x", "USR1@70000"].iter().for_each(|text| assert_eq!(parse(text), None, "{text}"));
    }

    #[test]
    fn dependencies_have_slurms_forms() {
        let text = |list: &str| {
            let list = dependencies(Some(list)).map_err(|ended| ended.texts().collect::<Vec<_>>().join(" "))?;
            let all = list.all.iter().map(ToString::to_string).chain(list.singleton.then(|| WORD.to_owned()));
            Ok::<_, String>(all.collect::<Vec<_>>().join(" "))
        };
        for (list, parsed) in [
            ("afterok:1:2,afterany:3", "afterok:1 afterok:2 afterany:3"),
            ("afterok:1,2", "afterok:1 afterany:2"),
            ("7", "afterany:7"),
            ("7:8_2", "afterany:7 afterany:8_2"),
            ("aftercorr:3,singleton", "aftercorr:3 singleton"),
            ("after:12+5:13+10", "after:12+5 after:13+10"),
            ("afterok:12_3,afternotok:12_*", "afterok:12_3 afternotok:12"),
            ("afterok:4000000012", "afterok:12_3"),
            ("aftercorr:4000000012", "aftercorr:12"),
            ("afterok:1:2?afterany:3", "?afterok:1 ?afterok:2 ?afterany:3"),
        ] {
            assert_eq!(text(list).as_deref(), Ok(parsed), "{list}");
        }
        for list in [
            "afterok",
            "afterok:",
            "afterok:x",
            "soon:1",
            "afterok:1?2,3",
            "aftercorr:1_2",
            "afterok:1+5",
            "singleton?1",
        ] {
            assert!(text(list).expect_err(list).contains("Job dependency problem"), "{list}");
        }
    }
}
