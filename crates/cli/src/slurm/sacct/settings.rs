//! The request to `sacct`: the command line, with its defaults.

use std::ffi::OsString;

use hostler_model::WallTime;
use hostler_slurm::getopt::{self, Order};
use hostler_slurm::hostlist;
use hostler_slurm::size::{Conversion, Unit};
use hostler_slurm::state::parse_list;
use hostler_slurm::time::{Limit, parse_limit};

use super::super::clock::Clock;
use super::super::squeue::{fatal, ids};
use super::super::{Ended, Line, check_clusters, items, text};
use super::format::{self, Column, Style};
use super::options::{HELP, Key, OPTIONS};
use super::selection::{Range, Selection};

/// What the user asks for.
pub(super) enum Request {
    /// A text about the command.
    Help(String),
    Version,
    List(Box<Settings>),
}

/// What to print about the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Content {
    #[default]
    Table,
    Json,
    Script,
    Environment,
}

/// What to list, and how.
pub(super) struct Settings {
    pub(super) selection: Selection,
    /// Whether the jobs of other users are left out, unless the user is an operator.
    pub(super) only_own: bool,
    pub(super) columns: Vec<Column>,
    pub(super) style: Style,
    pub(super) has_header: bool,
    pub(super) conversion: Conversion,
    /// Whether starts and ends are cut to the period.
    pub(super) cuts_times: bool,
    pub(super) content: Content,
}

/// The options as they were given.
#[derive(Default)]
struct Given {
    selection: Selection,
    from: Option<WallTime>,
    to: Option<WallTime>,
    all_users: bool,
    fields: Option<String>,
    is_brief: bool,
    is_long: bool,
    delimiter: Option<String>,
    /// Whether a delimiter also ends lines; `None` without delimiters.
    is_closed: Option<bool>,
    no_header: bool,
    no_convert: bool,
    unit: Option<Unit>,
    limit_min: Option<u64>,
    limit_max: Option<u64>,
    truncate: bool,
    content: Content,
}

/// Parses the command line. `usual` is the format in the environment.
pub(super) fn parse(args: Vec<OsString>, clock: &Clock, usual: Option<String>) -> Result<Request, Ended> {
    // Unlike other commands, sacct prints no hint about its help.
    let mistaken = |mistake: getopt::Mistake| Ended { lines: vec![Line::Named(mistake.to_string())], code: 1 };
    let parsed = getopt::parse(OPTIONS, Order::Permute, args.into_iter().skip(1)).map_err(mistaken)?;
    let mut given = Given::default();
    for (key, value) in &parsed.options {
        match key {
            Key::Help => return Ok(Request::Help(HELP.to_owned())),
            Key::Usage => return Ok(Request::Help("Usage: sacct [options]\n\tUse --help for help\n".to_owned())),
            Key::HelpFormat => return Ok(Request::Help(format::names())),
            Key::Version => return Ok(Request::Version),
            key => given.apply(*key, &text(value.as_ref()), clock)?,
        }
    }
    if !parsed.operands.is_empty() {
        let words = parsed.operands.iter().map(|word| format!("error:  {}", word.display()));
        return Err(words.fold(Ended::error("Unknown arguments:"), Ended::and));
    }
    given.settings(clock, usual).map(|settings| Request::List(Box::new(settings)))
}

impl Given {
    fn apply(&mut self, key: Key, value: &str, clock: &Clock) -> Result<(), Ended> {
        let add = |list: &mut Option<Vec<String>>| list.get_or_insert_default().extend(items(value));
        let Self { selection, .. } = self;
        match key {
            Key::Accounts => add(&mut selection.accounts),
            Key::AllUsers => self.all_users = true,
            Key::Allocations => selection.only_jobs = true,
            Key::Array => selection.splits_arrays = true,
            Key::BatchScript => self.content = Content::Script,
            Key::Brief => self.is_brief = true,
            Key::Clusters => check_clusters(value)?,
            Key::Completion => return Err(Ended::plain("Slurm job completion is disabled")),
            Key::Constraints => add(&mut selection.features),
            Key::Cpus => selection.cpu_count = Some(range(value, "cpu")?),
            Key::Delimiter => self.delimiter = Some(value.to_owned()),
            Key::EndTime => self.to = Some(time(value, clock)?),
            Key::Environment => self.content = Content::Environment,
            Key::Format => {
                let fields = self.fields.get_or_insert_default();
                fields.push_str(value);
                fields.push(',');
            }
            Key::Groups => selection.groups.get_or_insert_default().extend(groups(value)?),
            Key::Jobs => {
                let named = ids::parse_list(value).map_err(|id| fatal(format!("Bad job/step specified: {id}")))?;
                if !named.is_empty() {
                    selection.named.get_or_insert_default().extend(named);
                }
            }
            Key::Json => self.content = Content::Json,
            Key::Long => self.is_long = true,
            Key::Name => add(&mut selection.names),
            Key::NoConvert => self.no_convert = true,
            Key::Nodelist => {
                let nodes = hostlist::expand(value).map_err(|_| Ended::error(format!("Invalid node name {value}")))?;
                selection.nodes = Some(nodes.into_iter().collect());
            }
            Key::Nodes => selection.node_count = Some(range(value, "node")?),
            Key::NoHeader => self.no_header = true,
            Key::Parsable => self.is_closed = Some(true),
            Key::Parsable2 => self.is_closed = Some(false),
            Key::Partition => add(&mut selection.partitions),
            Key::Qos => add(&mut selection.qos),
            Key::Reason => add(&mut selection.reasons),
            Key::StartTime => self.from = Some(time(value, clock)?),
            Key::State => {
                let states = parse_list(value);
                let states = states.map_err(|state| fatal(format!("unrecognized job state value '{state}'")))?;
                selection.states = states.map(|states| [selection.states.take().unwrap_or_default(), states].concat());
            }
            Key::TimelimitMax => self.limit_max = Some(limit(value)?),
            Key::TimelimitMin => self.limit_min = Some(limit(value)?),
            Key::Truncate => self.truncate = true,
            Key::Units => self.unit = Some(Unit::parse(value).ok_or_else(|| no_unit(value))?),
            Key::Users if value == "-1" => self.all_users = true,
            Key::Users => {
                self.all_users = false;
                selection.users.get_or_insert_default().extend(users(value)?);
            }
            Key::WcKeys => add(&mut selection.wckeys),
            Key::Yaml => return Err(Ended::error("--yaml is not supported; use --json")),
            Key::Help | Key::HelpFormat | Key::Usage | Key::Version | Key::Nothing(_) => {}
        }
        Ok(())
    }

    fn settings(self, clock: &Clock, usual: Option<String>) -> Result<Settings, Ended> {
        let mut selection = self.selection;
        let is_named = selection.named.is_some();
        if matches!(self.content, Content::Script | Content::Environment) && !is_named {
            return Err(fatal("--batch-script and --env-vars require the option --jobs"));
        }
        (selection.from, selection.to) = period(self.from, self.to, is_named, selection.states.is_some(), clock);
        let end = selection.to.unwrap_or(clock.now);
        if selection.from > end {
            let (from, end) = (clock.write(selection.from), clock.write(end));
            let text = format!("Start time ({from}) requested is after end time ({end}).");
            return Err(Ended::error(text));
        }
        selection.limit = self.limit_min.map(|min| Range { min, max: self.limit_max });
        if self.all_users {
            selection.users = None;
        }
        let is_root = nix::unistd::Uid::effective().is_root();
        let sees_all = self.all_users || is_root || is_named || selection.nodes.is_some();
        let mut fields = self.fields.unwrap_or_default();
        for (is_chosen, more) in [(self.is_brief, format::BRIEF), (self.is_long, format::LONG)] {
            if is_chosen {
                fields.push_str(more);
                fields.push(',');
            }
        }
        if fields.is_empty() {
            fields = usual.unwrap_or_else(|| format::USUAL.to_owned());
        }
        let unknown = |name| Ended::error(format!("Invalid field requested: \"{name}\""));
        let delimiter = self.delimiter.unwrap_or_else(|| "|".to_owned());
        Ok(Settings {
            only_own: selection.users.is_none() && !sees_all,
            selection,
            columns: format::choose(&fields).map_err(unknown)?,
            style: match self.is_closed {
                Some(is_closed) => Style::Delimited { delimiter, is_closed },
                None => Style::Padded,
            },
            has_header: !self.no_header,
            conversion: match (self.unit, self.no_convert) {
                (Some(unit), _) => Conversion::To(unit),
                (None, true) => Conversion::Keep,
                (None, false) => Conversion::Exact,
            },
            cuts_times: self.truncate,
            content: self.content,
        })
    }
}

/// The period, whose defaults depend on whether jobs or states are named.
fn period(
    from: Option<WallTime>,
    to: Option<WallTime>,
    names_jobs: bool,
    names_states: bool,
    clock: &Clock,
) -> (WallTime, Option<WallTime>) {
    let start = match (names_jobs, names_states) {
        (true, _) => WallTime(0),
        (false, true) => clock.now,
        (false, false) => clock.midnight(),
    };
    (from.unwrap_or(start), to.or(from.filter(|_| names_states)))
}

fn time(text: &str, clock: &Clock) -> Result<WallTime, Ended> {
    clock.parse(text).ok_or_else(|| Ended::plain(format!("Invalid time specification (pos=0): {text}")))
}

fn range(text: &str, what: &str) -> Result<Range, Ended> {
    let bad = || Ended::error(format!("Invalid numeric value \"{text}\" for requested {what} range."));
    Range::parse(text).ok_or_else(bad)
}

/// A time limit in seconds.
fn limit(text: &str) -> Result<u64, Ended> {
    match parse_limit(text) {
        Some(Limit::Seconds(seconds)) => Ok(seconds),
        Some(Limit::Unlimited) => Ok(u64::MAX),
        None => Err(fatal("Invalid time limit specification")),
    }
}

/// The names of users that are given by name or by uid.
fn users(list: &str) -> Result<Vec<String>, Ended> {
    let one = |user: String| match user.parse::<u32>() {
        Ok(uid) => {
            let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
            Ok(found.map_or(user, |found| found.name))
        }
        Err(_) => match nix::unistd::User::from_name(&user) {
            Ok(Some(_)) => Ok(user),
            _ => Err(Ended::error(format!("Invalid user id: {user}"))),
        },
    };
    items(list).into_iter().map(one).collect()
}

/// The gids of groups that are given by name or by gid.
fn groups(list: &str) -> Result<Vec<u32>, Ended> {
    let one = |group: String| {
        let found = || nix::unistd::Group::from_name(&group).ok().flatten().map(|found| found.gid.as_raw());
        let gid = group.parse().ok().or_else(found);
        gid.ok_or_else(|| Ended::error(format!("Invalid group id: {group}")))
    };
    items(list).into_iter().map(one).collect()
}

fn no_unit(text: &str) -> Ended {
    Ended::error(format!("Invalid unit type '{text}'. Possible options are 'KMGTP'")).and("fatal: Invalid unit type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(args: &[&str]) -> Result<Settings, String> {
        let args = std::iter::once("sacct").chain(args.iter().copied()).map(OsString::from).collect();
        match parse(args, &Clock::of_process(), None) {
            Ok(Request::List(settings)) => Ok(*settings),
            Ok(_) => Err("a text".to_owned()),
            Err(ended) => Err(ended.texts().collect::<Vec<_>>().join("|")),
        }
    }

    #[test]
    fn jobs_accumulate() {
        let named = |args: &[&str]| settings(args).expect("valid").selection.named;
        assert_eq!(named(&["-j", "1", "-j", "2,3_4"]), Some(ids::parse_list("1,2,3_4").expect("ids")));
        assert_eq!(named(&["--job", "1.batch"]), Some(ids::parse_list("1.batch").expect("ids")));
        assert_eq!(named(&["-Xnj", "7"]), Some(ids::parse_list("7").expect("ids")));
        assert_eq!(named(&["-j", ""]), None);
    }

    #[test]
    fn periods_have_slurms_defaults() {
        let clock = Clock::of_process();
        let at = |time: i64| Some(WallTime(time));
        assert_eq!(period(None, None, false, false, &clock), (clock.midnight(), None));
        assert_eq!(period(None, None, true, false, &clock), (WallTime(0), None));
        assert_eq!(period(None, None, true, true, &clock), (WallTime(0), None));
        assert_eq!(period(None, None, false, true, &clock), (clock.now, None));
        assert_eq!(period(at(5), None, false, true, &clock), (WallTime(5), at(5)));
        assert_eq!(period(at(5), at(9), false, true, &clock), (WallTime(5), at(9)));
        assert_eq!(period(at(5), None, false, false, &clock), (WallTime(5), None));
    }

    #[test]
    fn mistakes_have_slurms_words() {
        for (args, text) in [
            (vec!["-n", "-o", "Account%256", "|", "tail", "-1"], "invalid option -- '1'"),
            (vec!["-n", "|", "tail"], "error: Unknown arguments:|error:  ||error:  tail"),
            (vec!["--bogus"], "unrecognized option '--bogus'"),
            (vec!["-o", "jobid,bogus"], "error: Invalid field requested: \"bogus\""),
            (vec!["-j", "abc"], "fatal: Bad job/step specified: abc"),
            (vec!["-S", "soon"], "Invalid time specification (pos=0): soon"),
            (vec!["-s", "soon"], "fatal: unrecognized job state value 'soon'"),
            (vec!["-u", "no such user"], "error: Invalid user id: no such user"),
            (
                vec!["--units", "X"],
                "error: Invalid unit type 'X'. Possible options are 'KMGTP'|fatal: Invalid unit type",
            ),
            (vec!["-c"], "Slurm job completion is disabled"),
            (vec!["-i", "x"], "error: Invalid numeric value \"x\" for requested node range."),
        ] {
            assert_eq!(settings(&args).err().as_deref(), Some(text), "{args:?}");
        }
    }

    #[test]
    fn styles_follow_the_options() {
        let style = |args: &[&str]| settings(args).expect("valid").style;
        let delimited = |delimiter: &str, is_closed| Style::Delimited { delimiter: delimiter.to_owned(), is_closed };
        assert_eq!(style(&["--delimiter", ";"]), Style::Padded);
        assert_eq!(style(&["-p"]), delimited("|", true));
        assert_eq!(style(&["--parsable2", "--delimiter=^|^"]), delimited("^|^", false));
        assert_eq!(style(&["-p", "-P"]), delimited("|", false));
    }
}
