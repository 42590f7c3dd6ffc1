//! The flags that `submit` and `run` share.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use hostler_discovery::GpuPick;
pub(crate) use hostler_model::MAX_JOB_NAME_CHARACTERS as MAX_NAME_CHARACTERS;
use hostler_model::{
    ArraySpec, Constraint, Container, Counted, Dependency, Engine, Environment, LEAST_MEMORY_BYTES, Labels,
    LimitSignal, ParseError, PartialRequest, PartitionName, RequestedTime, SandboxNetwork, Submission, Subscription,
    Surroundings, WallTime, WindowSize, Work, format_bytes, labels_problem, os_string_of, parse_bytes, parse_duration,
    text_of,
};
use jiff::civil::DateTime;
use jiff::{ToSpan, Zoned};
use serde::{Deserialize, Serialize};

use crate::commands::target::{derived_name, job_name};
use crate::failure::Failure;
use crate::output;

/// Parses a number of at least 1.
pub fn at_least_one(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("the smallest value is 1, and values are whole numbers")
}

/// Takes any bytes for a word of a job's command line, and returns the word as [`text_of`] writes it.
pub(crate) fn words() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(text_of)
}

/// Parses a number from `LEAST` to `MOST`.
pub fn number<const LEAST: u32, const MOST: u32>(text: &str) -> Result<u32, String> {
    let fits = |number: &u32| (LEAST..=MOST).contains(number);
    text.parse().ok().filter(fits).ok_or_else(|| match MOST {
        u32::MAX => format!("the smallest value is {LEAST}, and values are whole numbers"),
        _ => format!("values are whole numbers from {LEAST} to {MOST}"),
    })
}

/// Resources, dependencies and other properties of a job.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobFlags {
    /// CPUs on each node [default: --tasks-per-node, else the setting default-cpus]
    ///
    /// Each task of an array gets this many CPUs on each of its nodes. The setting default-cpus is initially 1.
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub(crate) cpus: Option<u32>,

    /// Number of nodes [default: the setting default-nodes, initially 1]
    ///
    /// Each task of an array gets this many nodes.
    #[arg(short = 'N', long, value_name = "N", value_parser = at_least_one)]
    pub(crate) nodes: Option<u32>,

    /// Processes per node [default: the setting default-processes, initially 1]
    ///
    /// In each process, the environment variable RANK is the rank of the process among all processes of the job,
    /// LOCAL_RANK the rank among those on the same node, and WORLD_SIZE the number of all processes.
    #[arg(short = 'n', long, value_name = "N", value_parser = number::<1, 4096>)]
    pub(crate) tasks_per_node: Option<u32>,

    /// Use whole nodes, without other jobs
    ///
    /// The job, or each task of an array, starts on idle nodes and gets all their CPUs, memory and GPUs. Until it ends, no
    /// other job starts there, and no remote command from another node. Other options say what a node must have at least.
    #[arg(long)]
    pub(crate) exclusive: bool,

    /// Tune kernel settings for stable timings while the job runs; needs --exclusive
    ///
    /// For example the frequency governor. The admin of each node decides which settings, and the agent restores them
    /// after the job. Jobs run only on nodes that allow this. The job's measurement certificate lists what was changed.
    #[arg(long, requires = "exclusive")]
    pub(crate) quiet_machine: bool,

    /// Run the job in a sandbox, which nothing but its folder outlives
    ///
    /// Inside, there are the node's programs and libraries, an empty /tmp and home directory, and the job's folder, and
    /// no network, other users, files and processes. Only nodes whose kernel allows it run such jobs. The job has one
    /// node, or several with --network job or host.
    #[arg(long)]
    pub(crate) sandbox: bool,

    /// Network of the sandbox: `none`, `job` or `host`
    ///
    /// With `job`, a job on several nodes reaches its other nodes by their names, and no other machine. With `host`, the
    /// job reaches the same machines and ports as a job without a sandbox, for example to download data. Partitions that
    /// demand a sandbox refuse both unless an operator has allowed it.
    #[arg(long, value_name = "NETWORK", default_value_t, hide_default_value = true)]
    pub(crate) network: SandboxNetwork,

    /// Run in a sandbox with the root directory of an image, e.g. docker://debian:12
    ///
    /// docker://NAME[:TAG] is in a registry, by default Docker Hub. oci:DIR[:NAME] is an OCI layout,
    /// oci-archive:FILE[:NAME] an archive of one, docker-archive:FILE[:NAME] a file from `docker save`, dir:DIR a directory with
    /// a root file system. They are on the node; relative paths start in the job's folder. The job gets the image's
    /// environment variables, and of the current ones only TERM and those of --env and --env-only. The root directory
    /// is read-only. Implies --sandbox.
    ///
    /// With --runtime, the image is one as the engine knows it, e.g. debian:12, and there is no sandbox.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// Run the image with an engine of the node: `docker`, `podman` or `apptainer`
    ///
    /// Only nodes whose admin allows the engine run such jobs. The engine runs as you, with the rights that you have on
    /// the node. The job's folder is at the same path in the container, which has the node's network.
    #[arg(long, value_name = "ENGINE", requires = "image")]
    pub(crate) runtime: Option<Engine>,

    /// Start the program only on the first node of the job
    ///
    /// For programs that start processes on the other nodes themselves, with `mpirun` or `hostler step`. The other
    /// nodes stay reserved until the program ends.
    #[arg(long)]
    pub(crate) first_node: bool,

    /// Memory on each node, e.g. 600M or 2G
    ///
    /// Each task of an array gets this much memory on each of its nodes. [default: the setting default-memory,
    /// initially 512M]
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<Memory>,

    /// When the kernel kills a process for memory: `continue` or `fail` [default: continue]
    ///
    /// With `fail`, the job ends as out_of_memory, even if its program goes on and succeeds. With `continue`, it ends so
    /// only if its main process was killed or passes on the exit code 137; otherwise a message says that a process was killed.
    #[arg(long, value_name = "ACTION", hide_possible_values = true)]
    pub(crate) oom: Option<Oom>,

    /// GPUs on each node; the job cannot see other GPUs [default: 0]
    ///
    /// Each task of an array gets this many GPUs on each of its nodes.
    #[arg(short, long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) gpus: u32,

    /// Counted resource to reserve on each node, e.g. license=2; repeatable
    ///
    /// NAME without a count means NAME=1. `hostler nodes` lists the resources of each node.
    #[arg(long, value_name = "NAME=COUNT")]
    pub(crate) resource: Vec<Counted>,

    /// Time limit of the job or of each array task, e.g. 90s, 1h30m or 1-12:00:00
    ///
    /// 1-12:00:00 means 1 day and 12 hours. [default: the time limit of the partition, else the setting
    /// default-time-limit, initially none]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) time: Option<TimeLimit>,

    /// Run only on nodes of this partition; `hostler info` lists partitions
    #[arg(short, long, value_name = "NAME")]
    pub(crate) partition: Option<PartitionName>,

    /// Run only on nodes with these features or names, e.g. ssd, 'intel&!old', 'n1|n2'
    ///
    /// `&` means and, `|` means or, `!` means not.
    #[arg(long, value_name = "FEATURES")]
    pub(crate) constraint: Option<Constraint>,

    /// Run the job as an array with one task per index, e.g. 0-99 or 1,5,7
    ///
    /// 1-9:2 means every second index from 1 to 9. 0-99%10 runs at most 10 tasks at the same time. The variable
    /// HOSTLER_ARRAY_INDEX tells each task its index.
    #[arg(short, long, value_name = "INDICES")]
    pub(crate) array: Option<ArraySpec>,

    /// Start only after other jobs, e.g. 12 or afterany:12:13
    ///
    /// Write a condition and a colon before the job ids. Conditions: `after` (the jobs have started, or ended before
    /// they could), `afterok` (the jobs have completed), `afternotok` (the jobs have ended without completing),
    /// `afterany` (the jobs have ended), `aftercorr` (each task of an array starts after the task of the other array
    /// with the same index has completed). Job ids without a condition mean `afterok`. `afterok:12_3` waits for one task
    /// of an array, and `after:12+5` for five minutes after job 12 began. Commas separate conditions that must all hold;
    /// with `?` instead, one of them is enough.
    #[arg(short = 'd', long, value_name = "JOBS")]
    pub(crate) after: Vec<Dependencies>,

    /// Start after all earlier jobs with the same name have ended
    #[arg(long)]
    pub(crate) singleton: bool,

    /// Earliest time at which the job starts, e.g. 18:00, 2026-12-24T18:00 or +2h
    ///
    /// The time is of this machine's time zone. 18:00 means the next time that clocks show 18:00.
    #[arg(long, value_name = "TIME")]
    pub(crate) begin: Option<BeginTime>,

    /// Name of the job [default: the name of the folder or program]
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub(crate) name: Option<String>,

    /// Run the job again from the start if one of its nodes is lost
    #[arg(long)]
    pub(crate) requeue: bool,

    /// Priority; jobs with a higher number start first
    ///
    /// Operators may set any number. Users may lower it, and raise it up to the setting `user-priority`, 0 by default.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,

    /// Keep the job waiting until `hostler release`
    #[arg(long)]
    pub(crate) hold: bool,

    /// Set an environment variable of the job; repeatable
    ///
    /// NAME without a value passes on the variable from the current environment. Use it for secrets: all users of this
    /// machine can read command lines.
    #[arg(long, value_name = "NAME=VALUE", value_parser = words())]
    pub(crate) env: Vec<String>,

    /// Send a signal before the time limit, e.g. USR1@2m, so that the program saves its work
    ///
    /// The program gets the signal. After a colon: `group` for the program and the processes that it started, `steps` for
    /// the job's steps, `all` for both.
    #[arg(long, value_name = "SIGNAL@TIME[:TO]")]
    pub(crate) signal: Option<LimitSignal>,

    /// Time between SIGTERM and SIGKILL when Hostler ends the job, e.g. 30s
    ///
    /// [default: the setting grace, initially 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<TimeLimit>,

    /// Send a notification, e.g. to mail:ada@example.org or chat=start,failure; repeatable
    ///
    /// Names a destination that an admin has defined, an address if the destination needs one, and the events to
    /// report. Events: `start`, `end`, `failure` (the job has ended and has failed), `wait:TIME` (the job still waits
    /// after this time). `hostler configure notify list` shows the destinations. [default event: end]
    #[arg(long, value_name = "DESTINATION[:ADDRESS][=EVENTS]")]
    pub(crate) notify: Vec<Subscription>,

    /// Label of the job, e.g. project=apollo; repeatable
    ///
    /// Hostler stores and shows labels and gives them no meaning. Everyone who sees the queue can see them. Names have
    /// the characters a-z, 0-9, `_`, `.` and `-`.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) tag: Vec<String>,

    /// Run the job in a terminal; connect to the terminal with `hostler attach`
    #[arg(long)]
    pub(crate) pty: bool,
}

/// A size in bytes, more than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory(pub u64);

impl FromStr for Memory {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match parse_bytes(text)? {
            0 => Err(ParseError::new(text, "a size above zero such as 512M")),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// Adds up the values of several `--resource` flags.
pub fn counted(all: &[Counted]) -> Result<Counted, Failure> {
    let mut together = Counted::NONE;
    for (name, count) in all.iter().flat_map(Counted::iter) {
        together.insert(name, count).map_err(|error| Failure::usage("`--resource` is not valid").because(&error))?;
    }
    Ok(together)
}

/// What becomes of a job in which the kernel killed a process for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Oom {
    Continue,
    Fail,
}

/// The GPUs of a machine that jobs may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuCap {
    All,
    /// By index or unique id; empty means none.
    Only(Vec<GpuPick>),
}

impl FromStr for GpuCap {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.trim() {
            "all" => Ok(Self::All),
            "none" => Ok(Self::Only(Vec::new())),
            list => list.split(',').map(str::parse).collect::<Result<_, _>>().map(Self::Only),
        }
        .map_err(|_| ParseError::new(text, "`all`, `none`, or a list such as 0,2 or GPU-5d8f0c1a-…"))
    }
}

/// A time limit, more than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit(pub Duration);

impl FromStr for TimeLimit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match parse_duration(text)? {
            Duration::ZERO => Err(ParseError::new(text, "a time above zero such as 30m")),
            span => Ok(Self(span)),
        }
    }
}

impl TimeLimit {
    pub(crate) fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A time at which a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeginTime(pub(crate) RequestedTime);

impl BeginTime {
    /// Parses a time that is written at `now`.
    fn parse(text: &str, now: &Zoned) -> Option<Self> {
        if let Some(span) = text.strip_prefix('+') {
            let in_ms = u64::try_from(parse_duration(span).ok()?.as_millis()).ok()?;
            return Some(Self(RequestedTime::In { in_ms }));
        }
        let at = if let Ok(date) = text.parse::<DateTime>() {
            date.to_zoned(now.time_zone().clone()).ok()?
        } else {
            let today = now.with().time(text.parse().ok()?).build().ok()?;
            if today > *now { today } else { today.checked_add(1.day()).ok()? }
        };
        Some(Self(RequestedTime::At(WallTime(at.timestamp().as_millisecond()))))
    }
}

impl FromStr for BeginTime {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text, &Zoned::now())
            .ok_or_else(|| ParseError::new(text, "a time such as 18:00, 2026-12-24T18:00 or +2h"))
    }
}

/// A list of dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependencies(pub(crate) Vec<Dependency>);

impl FromStr for Dependencies {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Dependency::parse_list(text).map(Self)
    }
}

impl Memory {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// Fails when the memory is too little for any process of `what`.
    pub(crate) fn bytes_for(self, what: &str) -> Result<u64, Failure> {
        if self.0 < LEAST_MEMORY_BYTES {
            let (asked, least) = (format_bytes(self.0), format_bytes(LEAST_MEMORY_BYTES));
            return Err(Failure::usage(format!("`--memory` is {asked}; {what} needs at least {least}"))
                .hint("request more, e.g. --memory 512M or --memory 4G"));
        }
        Ok(self.0)
    }
}

/// Milliseconds of a grace time.
fn grace_ms(grace: TimeLimit) -> Result<u32, Failure> {
    u32::try_from(grace.as_ms()).map_err(|_| Failure::usage("--grace is at most 49 days"))
}

impl JobFlags {
    /// Checks that alternatives are not mixed with conditions that must all hold.
    fn check_alternatives(&self) -> Result<(), Failure> {
        let any = self.after.iter().flat_map(|list| &list.0).any(|dependency| dependency.alternative);
        if any && self.after.len() > 1 {
            return Err(Failure::usage("`--after` is given more than once, and one list is separated by `?`")
                .hint("write all alternatives in one list, e.g. --after 'afterok:12?afterany:13'"));
        }
        if any && self.singleton {
            return Err(Failure::usage(
                "--singleton waits for all earlier jobs of the name, and `?` in `--after` for one of several",
            )
            .hint("separate the conditions by commas, or omit --singleton"));
        }
        Ok(())
    }

    /// Returns what surrounds the job, with the image of a sandbox or the container of an engine.
    fn surroundings(&self) -> Result<Surroundings, Failure> {
        let Self { exclusive, quiet_machine, sandbox, network, oom, .. } = *self;
        let oom_fails = oom == Some(Oom::Fail);
        let mut all = Surroundings { exclusive, quiet_machine, sandbox, network, oom_fails, ..Surroundings::default() };
        let wrong = |error: ParseError| Failure::usage(format!("--image: {error}"));
        match (&self.image, self.runtime) {
            (Some(text), Some(engine)) => {
                all.container = Some(Box::new(Container { engine, image: text.parse().map_err(wrong)? }));
            }
            (Some(text), None) => {
                all.image = Some(Box::new(text.parse().map_err(wrong)?));
                all.sandbox = true;
            }
            (None, _) => {}
        }
        if !all.sandbox && !network.is_none() {
            return Err(Failure::usage("--network needs --sandbox or --image"));
        }
        Ok(all)
    }

    /// Returns the job that these flags describe. `--env` adds variables to `environment` and overrides them.
    pub(crate) fn spec(
        &self,
        work: Work,
        default_name: &str,
        mut environment: Environment,
    ) -> Result<Submission, Failure> {
        for text in &self.env {
            let (name, value) = variable(text)?;
            environment.insert(name, value);
        }
        self.check_alternatives()?;
        let memory_bytes = self.memory.map(|memory| memory.bytes_for("a job")).transpose()?;
        let name = self.name.clone().unwrap_or_else(|| derived_name(default_name));
        Ok(Submission {
            request: PartialRequest {
                // A number of processes implies one CPU for each.
                cpus: self.cpus.or(self.tasks_per_node),
                memory_bytes,
                gpus: self.gpus,
                counted: counted(&self.resource)?,
            },
            nodes: self.nodes,
            tasks_per_node: self.tasks_per_node,
            surroundings: self.surroundings()?,
            first_node: self.first_node,
            partition: self.partition.clone(),
            constraint: self.constraint.clone(),
            time_limit_ms: self.time.map(TimeLimit::as_ms),
            array: self.array.clone(),
            after: self.after.iter().flat_map(|list| list.0.iter().copied()).collect(),
            singleton: self.singleton,
            begin: self.begin.map(|BeginTime(at)| Box::new(at)),
            priority: self.priority,
            hold: self.hold,
            requeue: self.requeue,
            environment,
            pty: self.pty.then(|| output::window_size().unwrap_or(WindowSize { rows: 24, columns: 80 })),
            limit_signal: self.signal.map(Box::new),
            grace_ms: self.grace.map(grace_ms).transpose()?,
            notify: (!self.notify.is_empty()).then(|| Box::new(self.notify.clone())),
            labels: labels(&self.tag)?.map(Box::new),
            ..Submission::with_defaults(name, work)
        })
    }
}

/// Parses the values of all `--tag` flags.
fn labels(all: &[String]) -> Result<Option<Labels>, Failure> {
    let mut labels = Labels::new();
    for text in all {
        let (name, value) =
            text.split_once('=').ok_or_else(|| Failure::usage(format!("--tag {text}: not of the form NAME=VALUE")))?;
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("--tag {name} is given twice; a label has one value")));
        }
    }
    match labels_problem(&labels) {
        Some(problem) => Err(Failure::usage(problem)),
        None => Ok((!labels.is_empty()).then_some(labels)),
    }
}

/// Begins the names of variables in which the Python package passes on the values of a job's variables. On the command line,
/// all users of the machine could read them.
const VALUE_OF: &str = "HOSTLER_VALUE_OF_";

/// Parses `NAME=VALUE`. A `NAME` alone takes the caller's value.
fn variable(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => {
            let own = |name: &str| std::env::var_os(os_string_of(name));
            let value = own(&format!("{VALUE_OF}{text}")).or_else(|| own(text)).ok_or_else(|| {
                Failure::usage(format!("--env {text}: this variable is not set"))
                    .hint(format!("give the variable a value: --env {text}=VALUE"))
            })?;
            (text, text_of(value))
        }
    };
    if name.is_empty() || text.contains('\0') {
        return Err(Failure::usage(format!("--env {text}: not of the form NAME=VALUE")));
    }
    Ok((name.to_owned(), value))
}

/// Names of variables, separated by commas. A name that ends with `*` matches all names with this prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VariableNames(Vec<String>);

impl FromStr for VariableNames {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let names: Vec<String> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_name = |name: &String| {
            let plain = name.strip_suffix('*').unwrap_or(name);
            !plain.contains(['=', '*', '\0']) && !plain.contains(char::is_whitespace)
        };
        if names.iter().all(is_name) {
            Ok(Self(names))
        } else {
            Err(ParseError::new(text, "a list of variables such as PATH,HOME,LC_*, or an empty list"))
        }
    }
}

impl VariableNames {
    /// Whether a name of the list matches `name`.
    pub(crate) fn contain(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => pattern == name,
        };
        self.0.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        flags: JobFlags,
    }

    fn parse(line: &str) -> Result<JobFlags, clap::Error> {
        Probe::try_parse_from(std::iter::once("probe").chain(line.split_whitespace())).map(|probe| probe.flags)
    }

    fn spec(line: &str) -> Submission {
        let work = Work::command(["true"], "/");
        parse(line).expect(line).spec(work, "true", Environment::new()).expect(line)
    }

    #[test]
    fn job_without_flags_gets_the_defaults() {
        let spec = spec("");
        assert_eq!((spec.request, spec.nodes, spec.tasks_per_node), (PartialRequest::default(), None, None));
        assert_eq!((spec.time_limit_ms, spec.array, &*spec.name), (None, None, "true"));
    }

    #[test]
    fn resource_flags_add_up_and_reject_duplicates() {
        let spec = spec("--resource license=2 --resource camera");
        assert_eq!(spec.request.counted.to_string(), "camera=1,license=2");
        for (line, part) in
            [("--resource a --resource a=2", "listed twice"), ("--resource A=1", "not a valid resource name")]
        {
            let work = Work::command(["true"], "/");
            let failure = match parse(line) {
                Ok(flags) => flags.spec(work, "true", Environment::new()).expect_err(line).render(),
                Err(error) => error.to_string(),
            };
            assert!(failure.contains(part), "{line}: {failure}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_answered_with_the_range() {
        assert_eq!(number::<1, 4096>("4096"), Ok(4096));
        let said = [number::<1, 4096>("5000"), number::<1000, { u32::MAX }>("-1")].map(Result::unwrap_err);
        let expected =
            ["values are whole numbers from 1 to 4096", "the smallest value is 1000, and values are whole numbers"];
        assert_eq!(said, expected);
    }

    #[test]
    fn begin_times_are_of_this_time_zone_and_in_the_future() {
        let now: Zoned = "2026-11-24T17:30:00+01:00[Europe/Berlin]".parse().expect("a time");
        let shown = |text: &str| {
            let BeginTime(begin) = BeginTime::parse(text, &now)?;
            let RequestedTime::At(WallTime(ms)) = begin else { return Some(format!("{begin:?}")) };
            let at = jiff::Timestamp::from_millisecond(ms).expect("in range");
            Some(at.to_zoned(now.time_zone().clone()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        };
        for (text, at) in [
            ("18:00", "2026-11-24 18:00:00"),
            ("17:30", "2026-11-25 17:30:00"),
            ("2026-12-24", "2026-12-24 00:00:00"),
            ("2027-07-01T08:15:30", "2027-07-01 08:15:30"),
            ("+1h30m", "In { in_ms: 5400000 }"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(at), "{text}");
        }
        for text in ["", "+", "25:00", "soon", "2026-13-01"] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn each_process_gets_a_cpu_unless_cpus_are_set() {
        assert_eq!(spec("-N 1 -n 3").request.cpus, Some(3));
        assert_eq!(spec("-n 3 -c 2").request.cpus, Some(2));
    }

    #[test]
    fn sizes_times_and_lists_are_parsed() {
        let spec = spec(
            "-g 2 -c 4 -m 1.5G -t 1h30m -a 0-9%3 -d afterok:3:4 --after 7 --priority -5 --env A=b=c --hold --requeue",
        );
        let request = PartialRequest { cpus: Some(4), memory_bytes: Some(3 << 29), gpus: 2, ..Default::default() };
        assert_eq!(spec.request, request);
        assert_eq!(spec.time_limit_ms, Some(5_400_000));
        assert_eq!(spec.array.map(|array| array.to_string()).as_deref(), Some("0-9%3"));
        assert_eq!(
            spec.after.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["afterok:3", "afterok:4", "afterok:7"]
        );
        assert_eq!((spec.priority, spec.hold, spec.requeue), (-5, true, true));
        assert_eq!(spec.environment.get("A").map(String::as_str), Some("b=c"));
    }

    #[test]
    fn gpu_cap_accepts_indices_and_ids() {
        let cap = |text: &str| text.parse::<GpuCap>();
        assert_eq!((cap("all"), cap("none")), (Ok(GpuCap::All), Ok(GpuCap::Only(Vec::new()))));
        let both = GpuCap::Only(vec![GpuPick::Index(2), GpuPick::Uuid("GPU-1".to_owned())]);
        assert_eq!(cap("2, GPU-1"), Ok(both));
        ["", "1,", "a b"].iter().for_each(|text| assert!(cap(text).is_err(), "{text}"));
    }

    #[test]
    fn invalid_values_are_rejected() {
        for line in ["-c 0", "-m 0", "-m lots", "-t 0", "-t soon", "-a 5-1", "-a", "-d afterok", "--gpus -1", "-g some"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(variable("=x").is_err() && variable("HOSTLER_TEST_SURELY_NOT_SET").is_err());
    }

    #[test]
    fn jobs_without_a_name_get_a_derived_one() {
        let flags = parse("").expect("no flags");
        let work = Work::command(vec!["true".to_owned()], "/".to_owned());
        let spec = flags.spec(work.clone(), "a\tb", Environment::new()).expect("a job");
        assert_eq!(&*spec.name, "a_b");
        // The head refuses a name that the user gave and that breaks the rules.
        let flags = JobFlags { name: Some("a\tb".to_owned()), ..flags };
        assert_eq!(&*flags.spec(work, "x", Environment::new()).expect("a job").name, "a\tb");
    }
}
