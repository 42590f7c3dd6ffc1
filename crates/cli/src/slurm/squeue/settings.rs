//! The request to `squeue`: the command line, and the variables that give its defaults.

use std::collections::BTreeSet;
use std::ffi::OsString;

use hostler_slurm::hostlist;
use hostler_slurm::size::Conversion;
use hostler_slurm::state::{State, parse_list};

use super::super::{Ended, Line, check_clusters, items, own_name, parse as parse_arguments, text};
use super::filter::Filter;
use super::options::{Key, NAME, OPTIONS, USAGE};
use super::{ids, sort};

/// The usual formats.
pub(super) const USUAL: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// What the user asks for.
pub(super) enum Request {
    /// A text about the command.
    Help(&'static str),
    Version,
    List(Box<Settings>),
}

/// What to list, and how.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filter: Filter,
    pub(super) short_format: Option<String>,
    pub(super) long_format: Option<String>,
    pub(super) sort: String,
    pub(super) conversion: Conversion,
    pub(super) iterate_seconds: Option<u64>,
    pub(super) has_header: bool,
    /// Whether the current time stands above the header.
    pub(super) has_date: bool,
    /// Whether the name of the cluster stands above the header.
    pub(super) names_cluster: bool,
    pub(super) lists_steps: bool,
    pub(super) is_json: bool,
}

/// The options as they were given.
#[derive(Default)]
struct Given {
    filter: Filter,
    states: Option<String>,
    format: Option<String>,
    format_long: Option<String>,
    sort: Option<String>,
    iterate_seconds: Option<u64>,
    /// The list of jobs; `Some(None)` if the option has no value.
    jobs: Option<Option<String>>,
    steps: bool,
    long: bool,
    start: bool,
    verbose: bool,
    no_header: bool,
    no_convert: bool,
    cluster: bool,
    json: bool,
}

/// Parses the command line. `variable` returns variables of the environment; `warn` prints a line that does not end the
/// command.
pub(super) fn parse(
    args: Vec<OsString>,
    variable: impl Fn(&str) -> Option<String>,
    warn: &mut dyn FnMut(String),
) -> Result<Request, Ended> {
    let parsed = parse_arguments(NAME, OPTIONS, args)?;
    let mut given = Given::default();
    for (key, value) in &parsed.options {
        match key {
            Key::Help => return Ok(Request::Help(USAGE)),
            Key::Version => return Ok(Request::Version),
            key => given.apply(*key, value.as_ref(), warn)?,
        }
    }
    // A list of jobs may be the next argument.
    let mut operands = parsed.operands.iter().map(|word| word.to_string_lossy().into_owned());
    if (given.jobs.is_some() || given.steps)
        && let Some(list) = operands.next()
    {
        given.jobs = Some(Some(list));
    }
    if let Some(word) = operands.next() {
        let mut ended = Ended::error(format!("Unrecognized option: {word}"));
        ended.lines.push(Line::Plain(USAGE.trim_end().to_owned()));
        return Err(ended);
    }
    given.take_variables(&variable, warn)?;
    given.settings().map(|settings| Request::List(Box::new(settings)))
}

impl Given {
    fn apply(&mut self, key: Key, value: Option<&OsString>, warn: &mut dyn FnMut(String)) -> Result<(), Ended> {
        let list = || Some(items(&text(value)));
        match key {
            Key::Accounts => self.filter.accounts = list(),
            Key::Array => self.filter.splits_arrays = true,
            Key::Clusters => {
                check_clusters(&text(value))?;
                self.cluster = true;
            }
            Key::Format => self.format = Some(text(value)),
            Key::FormatLong => self.format_long = Some(text(value)),
            Key::Iterate => self.iterate_seconds = Some(seconds(&text(value))?),
            Key::Jobs => self.jobs = Some(value.map(|value| text(Some(value)))),
            Key::Json => self.json = true,
            Key::Licenses => self.filter.licenses = list(),
            Key::Long => self.long = true,
            Key::Me => self.filter.users = Some(vec![own_name()?]),
            Key::Names => self.filter.names = list(),
            Key::NoConvert => self.no_convert = true,
            Key::Nodes => self.filter.nodes = Some(nodes(&text(value))?),
            Key::NoHeader => self.no_header = true,
            Key::Partitions => self.filter.partitions = list(),
            Key::Qos => self.filter.qos = list(),
            Key::Reservation => self.filter.reservation = Some(text(value)),
            Key::Sort => self.sort = Some(text(value)),
            Key::Start => self.start = true,
            Key::States => self.states = Some(text(value)),
            Key::Steps => {
                self.steps = true;
                if let Some(list) = value {
                    self.jobs = Some(Some(text(Some(list))));
                }
            }
            Key::Users => self.filter.users = Some(users(&text(value), warn)),
            Key::Verbose => self.verbose = true,
            Key::Yaml => return Err(Ended::error("--yaml is not supported; use --json")),
            Key::Help | Key::Version | Key::Nothing(_) => {}
        }
        if self.format.is_some() && self.format_long.is_some() {
            let (now, before) = if key == Key::Format { ("-o", "-O") } else { ("-O", "-o") };
            let long = |short| if short == "-o" { "--format" } else { "--Format" };
            return Err(Ended::error(format!(
                "{now} ({}) is incompatible with {before} ({})",
                long(now),
                long(before)
            )));
        }
        Ok(())
    }

    /// Takes defaults from the environment.
    fn take_variables(
        &mut self,
        variable: &impl Fn(&str) -> Option<String>,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), Ended> {
        let list = |name: &str| variable(name).map(|list| items(&list));
        let Self { filter, .. } = self;
        filter.accounts = filter.accounts.take().or_else(|| list("SQUEUE_ACCOUNT"));
        filter.names = filter.names.take().or_else(|| list("SQUEUE_NAMES"));
        filter.licenses = filter.licenses.take().or_else(|| list("SQUEUE_LICENSES"));
        filter.partitions = filter.partitions.take().or_else(|| list("SQUEUE_PARTITION"));
        filter.qos = filter.qos.take().or_else(|| list("SQUEUE_QOS"));
        filter.splits_arrays |= ["SQUEUE_ARRAY", "SQUEUE_ARRAY_UNIQUE"].iter().any(|name| variable(name).is_some());
        if filter.users.is_none() {
            filter.users = variable("SQUEUE_USERS").map(|list| users(&list, warn));
        }
        self.states = self.states.take().or_else(|| variable("SQUEUE_STATES"));
        self.sort = self.sort.take().or_else(|| variable("SQUEUE_SORT"));
        if let Some(clusters) = variable("SLURM_CLUSTERS").filter(|_| !self.cluster) {
            check_clusters(&clusters)?;
            self.cluster = true;
        }
        let is_chosen = self.format.is_some() || self.format_long.is_some() || self.long || self.start || self.steps;
        if !is_chosen {
            self.format = variable("SQUEUE_FORMAT");
            self.format_long = variable("SQUEUE_FORMAT2").filter(|_| self.format.is_none());
        }
        Ok(())
    }

    fn settings(self) -> Result<Settings, Ended> {
        let mut filter = self.filter;
        let is_start = self.start && !self.steps;
        if self.long && self.format.is_some() {
            let text = "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.";
            return Err(fatal(text));
        }
        let usual = match (self.steps, is_start, self.long) {
            (true, ..) => STEPS,
            (false, true, _) => START,
            (false, false, true) => LONG,
            (false, false, false) => USUAL,
        };
        let states = self.states.or_else(|| is_start.then(|| "PD".to_owned()));
        filter.states = match &states {
            Some(list) => states_of(list)?,
            None => Some(State::OF_QUEUE.to_vec()),
        };
        filter.named = match self.jobs.flatten() {
            Some(list) => Some(ids::parse_list(&list).map_err(|id| Ended::error(format!("Invalid job id: {id}")))?),
            None => None,
        };
        Ok(Settings {
            filter,
            short_format: Some(self.format.unwrap_or_else(|| usual.to_owned())),
            long_format: self.format_long,
            sort: self.sort.unwrap_or_else(|| if is_start { "S" } else { sort::USUAL }.to_owned()),
            conversion: if self.no_convert { Conversion::Keep } else { Conversion::Exact },
            has_date: self.long || self.verbose || self.iterate_seconds.is_some(),
            iterate_seconds: self.iterate_seconds,
            has_header: !self.no_header,
            names_cluster: self.cluster,
            lists_steps: self.steps,
            is_json: self.json,
        })
    }
}

/// An error that Slurm calls fatal.
pub(in crate::slurm) fn fatal(text: impl std::fmt::Display) -> Ended {
    Ended { lines: vec![Line::Named(format!("fatal: {text}"))], code: 1 }
}

fn seconds(text: &str) -> Result<u64, Ended> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let seconds = text[..digits].parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| Ended::error(format!("--iterate={text}\n")))
}

fn nodes(list: &str) -> Result<BTreeSet<String>, Ended> {
    let nodes = hostlist::expand(list);
    let nodes = nodes.map_err(|_| Ended::error(format!("'{list}' invalid entry for --nodelist")))?;
    Ok(nodes.into_iter().collect())
}

/// The names of users that are given by name or by uid.
fn users(list: &str, warn: &mut dyn FnMut(String)) -> Vec<String> {
    let mut names = Vec::new();
    for user in items(list) {
        let found = match user.parse::<u32>() {
            Ok(uid) => nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)),
            Err(_) => nix::unistd::User::from_name(&user),
        };
        match found.ok().flatten() {
            Some(found) => names.push(found.name),
            None => {
                if user.parse::<u32>().is_err() {
                    warn(format!("error: Invalid user: {user}\n"));
                }
                names.push(user);
            }
        }
    }
    names
}

fn states_of(list: &str) -> Result<Option<Vec<State>>, Ended> {
    const ALL: &str = "PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,\
        DEADLINE,OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,REVOKED,\
        SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED";
    parse_list(list).map_err(|state| {
        Ended::error(format!("Invalid job state specified: {state}"))
            .and(format!("error: Valid job states include: {ALL}\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(args: &[&str], variables: &[(&str, &str)]) -> Result<Settings, String> {
        let args = std::iter::once("squeue").chain(args.iter().copied()).map(OsString::from).collect();
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        match parse(args, variable, &mut |_| ()) {
            Ok(Request::List(settings)) => Ok(*settings),
            Ok(_) => Err("a text".to_owned()),
            Err(ended) => Err(ended.texts().collect::<Vec<_>>().join("|")),
        }
    }

    #[test]
    fn lists_of_jobs_may_be_attached_or_follow() {
        for args in [vec!["-j", "5,6"], vec!["-j5,6"], vec!["--jobs=5,6"], vec!["--jobs", "5,6"], vec!["--job", "5,6"]]
        {
            let named = settings(&args, &[]).expect("valid").filter.named;
            assert_eq!(named, Some(ids::parse_list("5,6").expect("ids")), "{args:?}");
        }
        assert!(settings(&["-j"], &[]).expect("valid").filter.named.is_none());
        assert!(settings(&["-h", "-j", "5", "-o", "%T"], &[]).expect("valid").filter.named.is_some());
        assert_eq!(settings(&["-j", "x"], &[]).err().as_deref(), Some("error: Invalid job id: x"));
        let stray = settings(&["-j", "1", "2"], &[]).expect_err("a stray operand");
        assert!(stray.starts_with("error: Unrecognized option: 2|Usage: squeue"), "{stray}");
    }

    #[test]
    fn formats_follow_options_and_variables() {
        let formats = |args: &[&str], variables: &[(&str, &str)]| {
            let settings = settings(args, variables).expect("valid");
            (settings.short_format.unwrap_or_default(), settings.long_format)
        };
        assert_eq!(formats(&[], &[]), (USUAL.to_owned(), None));
        assert_eq!(formats(&["-o", "%i"], &[("SQUEUE_FORMAT", "%j")]).0, "%i");
        assert_eq!(formats(&["-o %i"], &[]).0, " %i");
        assert_eq!(formats(&[], &[("SQUEUE_FORMAT", "%j"), ("SQUEUE_FORMAT2", "name")]), ("%j".to_owned(), None));
        assert_eq!(formats(&[], &[("SQUEUE_FORMAT2", "name")]).1.as_deref(), Some("name"));
        for (args, format) in [(["-l"], LONG), (["--start"], START), (["-s"], STEPS)] {
            assert_eq!(formats(&args, &[("SQUEUE_FORMAT", "%j")]).0, format);
        }
        for (args, text) in [
            (["-o%i", "-Ojobid"], "error: -O (--Format) is incompatible with -o (--format)"),
            (["-Ojobid", "-o%i"], "error: -o (--format) is incompatible with -O (--Format)"),
            (
                ["-l", "-o%i"],
                "fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ),
            (["-i", "0"], "error: --iterate=0\n"),
            (["--yaml", "-h"], "error: --yaml is not supported; use --json"),
        ] {
            assert_eq!(settings(&args, &[]).err().as_deref(), Some(text));
        }
    }

    #[test]
    fn states_have_slurms_defaults() {
        let states =
            |args: &[&str], variables: &[(&str, &str)]| settings(args, variables).expect("valid").filter.states;
        assert_eq!(states(&[], &[]), Some(State::OF_QUEUE.to_vec()));
        assert_eq!(states(&["-t", "All"], &[]), None);
        assert_eq!(states(&["--state", "PD,CF,RF"], &[]), Some(vec![State::Pending]));
        assert_eq!(states(&["--start"], &[]), Some(vec![State::Pending]));
        assert_eq!(states(&[], &[("SQUEUE_STATES", "ca")]), Some(vec![State::Cancelled]));
        let error = settings(&["-t", "soon"], &[]).expect_err("an unknown state");
        assert!(
            error.starts_with("error: Invalid job state specified: soon|error: Valid job states include: PENDING,")
        );
    }
}
