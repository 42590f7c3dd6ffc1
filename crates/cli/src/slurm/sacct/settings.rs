//! The request to `sacct`: the command line, with its defaults.

use hostler_model::WallTime;
use hostler_slurm::size::{Conversion, Unit};
use hostler_slurm::table::Style;
use hostler_slurm::time::{Limit, parse_limit};

use super::super::clock::Clock;
use super::super::{Ended, items};
use super::columns::Field;
use super::format;
use super::selection::{Range, Selection};

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
    pub(super) columns: Vec<Field>,
    pub(super) style: Style,
    pub(super) has_header: bool,
    pub(super) conversion: Conversion,
    /// Whether starts and ends are cut to the period.
    pub(super) cuts_times: bool,
    pub(super) content: Content,
}

/// The options as they were given.
#[derive(Default)]
pub(super) struct Given {
    pub(super) clock: Clock,
    pub(super) selection: Selection,
    pub(super) from: Option<WallTime>,
    pub(super) to: Option<WallTime>,
    pub(super) all_users: bool,
    pub(super) fields: Option<String>,
    pub(super) is_brief: bool,
    pub(super) is_long: bool,
    pub(super) delimiter: Option<String>,
    /// Whether a delimiter also ends lines; `None` without delimiters.
    pub(super) is_closed: Option<bool>,
    pub(super) no_header: bool,
    pub(super) no_convert: bool,
    pub(super) unit: Option<Unit>,
    pub(super) limit_min: Option<u64>,
    pub(super) limit_max: Option<u64>,
    pub(super) truncate: bool,
    pub(super) content: Content,
}

impl Given {
    pub(super) fn settings(self, clock: &Clock, usual: Option<String>) -> Result<Settings, Ended> {
        let mut selection = self.selection;
        let is_named = selection.named.is_some();
        if matches!(self.content, Content::Script | Content::Environment) && !is_named {
            return Err(Ended::fatal("--batch-script and --env-vars require the option --jobs"));
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
pub(super) fn period(
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

pub(super) fn time(text: &str, clock: &Clock) -> Result<WallTime, Ended> {
    clock.parse(text).ok_or_else(|| Ended::plain(format!("Invalid time specification (pos=0): {text}")))
}

pub(super) fn range(text: &str, what: &str) -> Result<Range, Ended> {
    let bad = || Ended::error(format!("Invalid numeric value \"{text}\" for requested {what} range."));
    Range::parse(text).ok_or_else(bad)
}

/// A time limit in seconds.
pub(super) fn limit(text: &str) -> Result<u64, Ended> {
    match parse_limit(text) {
        Some(Limit::Seconds(seconds)) => Ok(seconds),
        Some(Limit::Unlimited) => Ok(u64::MAX),
        None => Err(Ended::fatal("Invalid time limit specification")),
    }
}

/// The names of users that are given by name or by uid.
pub(super) fn users(list: &str) -> Result<Vec<String>, Ended> {
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
pub(super) fn groups(list: &str) -> Result<Vec<u32>, Ended> {
    let one = |group: String| {
        let found = || nix::unistd::Group::from_name(&group).ok().flatten().map(|found| found.gid.as_raw());
        let gid = group.parse().ok().or_else(found);
        gid.ok_or_else(|| Ended::error(format!("Invalid group id: {group}")))
    };
    items(list).into_iter().map(one).collect()
}

pub(super) fn no_unit(text: &str) -> Ended {
    Ended::error(format!("Invalid unit type '{text}'. Possible options are 'KMGTP'")).and("fatal: Invalid unit type")
}
