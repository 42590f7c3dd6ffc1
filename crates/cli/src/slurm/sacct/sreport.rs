//! `sreport`: sums what jobs used in a period, by account and user or for the whole cluster.
//!
//! Jobs count with the part of the period in which they ran. The head deletes ended jobs after a while; of those, it keeps the
//! sums of each day, by user.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;

use hostler_client::Client;
use hostler_model::{Role, WallTime, parse_duration};
use hostler_proto::accounting::AccountingPage;
use hostler_slurm::getopt::Takes::{Nothing, Value};
use hostler_slurm::table::{Column, Fit, Style, choose, write_header};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::clock::Clock;
use super::super::options::{self, Setter, checked, flag, nothing, prints, version};
use super::super::rows::{ACCOUNT, Accounts, Row};
use super::super::table::write_row;
use super::super::{CLUSTER, Ended, Outcome, check_clusters, items, own_name, print};
use super::selection::Selection;
use super::{RULER, unreadable};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sreport";

const USAGE: &str = "\
Usage: sreport [OPTIONS] REPORT [start=TIME] [end=TIME] [users=NAMES] [accounts=NAMES] [format=FIELDS]
  cluster Utilization               how busy the cluster was
  cluster AccountUtilizationByUser  what accounts used, and their users
  cluster UserUtilizationByAccount  what users used, and in which accounts
  user TopUsage                     the users who used most; topcount=N [default: 10]
  job SizesByAccount                what accounts used, by the size of the jobs
The period is yesterday by default.
  -n, --noheader    print no header
  -p, --parsable    separate values by `|`, with one at the end of each line
  -P, --parsable2   separate values by `|`
  -t FORM           Seconds, Minutes, Hours, Percent, SecPer, MinPer or HourPer [default: Minutes]
  -V, --version     print the version
";

const OPTIONS: &[Setter<Given>] = &[
    nothing("all_clusters", "a", Nothing),
    checked("cluster", "M", Value, |_, list| check_clusters(list.unwrap_or_default())),
    nothing("federation", "", Nothing),
    prints("help", "h", || USAGE.to_owned()),
    nothing("local", "", Nothing),
    flag("noheader", "n", |given| given.no_header = true),
    flag("parsable", "p", |given| given.style = Style::bars(true)),
    flag("parsable2", "P", |given| given.style = Style::bars(false)),
    nothing("quiet", "Q", Nothing),
    checked("", "t", Value, |given, form| {
        given.form = Form::parse(form.unwrap_or_default())?;
        Ok(())
    }),
    checked("tres", "T", Value, |_, list| match list {
        Some("cpu") | None => Ok(()),
        Some(other) => Err(Ended::error(format!("no TRES of {other} is reported: jobs are counted by CPUs"))),
    }),
    prints("usage", "", || USAGE.to_owned()),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
];

/// The options as they were given.
#[derive(Default)]
struct Given {
    style: Style,
    no_header: bool,
    form: Form,
}

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    /// The word for the unit.
    word: &'static str,
    /// Seconds of the unit; `None` for a share only.
    unit: Option<u64>,
    has_share: bool,
}

const FORMS: &[(&str, Form)] = &[
    ("seconds", Form { word: "Seconds", unit: Some(1), has_share: false }),
    ("minutes", Form { word: "Minutes", unit: Some(60), has_share: false }),
    ("hours", Form { word: "Hours", unit: Some(3600), has_share: false }),
    ("percent", Form { word: "Percentage of Total", unit: None, has_share: true }),
    ("secper", Form { word: "Seconds/Percentage of Total", unit: Some(1), has_share: true }),
    ("minper", Form { word: "Minutes/Percentage of Total", unit: Some(60), has_share: true }),
    ("hourper", Form { word: "Hours/Percentage of Total", unit: Some(3600), has_share: true }),
];

impl Default for Form {
    fn default() -> Self {
        FORMS[1].1
    }
}

impl Form {
    fn parse(text: &str) -> Result<Self, Ended> {
        let lower = text.to_ascii_lowercase();
        let found = FORMS.iter().find(|(name, _)| !lower.is_empty() && name.starts_with(&lower));
        found.map(|(_, form)| *form).ok_or_else(|| Ended::error(format!("unknown time format {text}")))
    }

    fn write(self, seconds: u64, total: u64) -> String {
        let share = || format!("{:.2}%", 100.0 * seconds as f64 / total.max(1) as f64);
        match self.unit.map(|unit| (seconds + unit / 2) / unit) {
            None => share(),
            Some(count) if self.has_share => format!("{count}({})", share()),
            Some(count) => count.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Utilization,
    AccountsByUser,
    UsersByAccount,
    Top,
    Sizes,
}

/// Each report by its two words, with its title and columns.
const REPORTS: &[(&str, &str, Report, &str, &[Column])] = &[
    ("cluster", "utilization", Report::Utilization, "Cluster Utilization", UTILIZATION),
    ("cluster", "accountutilizationbyuser", Report::AccountsByUser, "Cluster/Account/User Utilization", BY_ACCOUNT),
    ("cluster", "userutilizationbyaccount", Report::UsersByAccount, "Cluster/User/Account Utilization", BY_USER),
    ("user", "topusage", Report::Top, "Top Users", BY_USER),
    ("job", "sizesbyaccount", Report::Sizes, "Job Sizes", SIZES),
];

const fn amount(name: &'static str, width: i32) -> Column {
    Column { name: Cow::Borrowed(name), width, fit: Fit::Number, value: () }
}

const UTILIZATION: &[Column] = &[
    Column::new("Cluster", 9),
    amount("Allocated", 9),
    amount("Down", 8),
    amount("PLND Down", 9),
    amount("Idle", 8),
    amount("Planned", 8),
    amount("Reported", 8),
];
const BY_ACCOUNT: &[Column] = &[
    Column::new("Cluster", 9),
    Column::new("Account", 15),
    Column::new("Login", 9),
    Column::new("Proper Name", 15),
    amount("Used", 8),
    amount("Energy", 8),
];
const BY_USER: &[Column] = &[
    Column::new("Cluster", 9),
    Column::new("Login", 9),
    Column::new("Proper Name", 15),
    Column::new("Account", 15),
    amount("Used", 8),
    amount("Energy", 8),
];
const SIZES: &[Column] = &[
    Column::new("Cluster", 9),
    Column::new("Account", 9),
    amount("0-49 CPUs", 13),
    amount("50-249 CPUs", 13),
    amount("250-499 CPUs", 13),
    amount("500-999 CPUs", 13),
    amount(">= 1000 CPUs", 13),
    amount("% of cluster", 12),
];

/// The smallest job in each but the first of the columns by size.
const SIZE_LIMITS: [u64; 4] = [50, 250, 500, 1000];

/// The conditions of a report.
#[derive(Debug)]
struct Query {
    from: WallTime,
    to: WallTime,
    format: Option<String>,
    users: Option<Vec<String>>,
    accounts: Option<Vec<String>>,
    top: usize,
}

impl Query {
    fn parse(words: &[String], clock: &Clock) -> Result<Self, Ended> {
        let day = |text: &str| clock.parse(text).unwrap_or(clock.now);
        let mut query =
            Self { from: day("yesterday"), to: day("today"), format: None, users: None, accounts: None, top: 10 };
        let mut has_end = false;
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let name = name.to_ascii_lowercase();
            let is = |known: &str, least: usize| name.len() >= least && known.starts_with(&name);
            let list = || Some(items(value));
            let time =
                || clock.parse(value).ok_or_else(|| Ended::error(format!("Invalid time specification: {value}")));
            match () {
                () if is("start", 1) => query.from = time()?,
                () if is("end", 1) => (query.to, has_end) = (time()?, true),
                () if is("format", 1) => query.format = Some(value.to_owned()),
                () if is("users", 1) => query.users = list(),
                () if is("accounts", 1) => query.accounts = list(),
                () if is("clusters", 1) => check_clusters(value)?,
                () if is("topcount", 2) => query.top = value.parse().unwrap_or(query.top),
                () if ["tree", "group", "where"].contains(&name.as_str()) => {}
                () => return Err(Ended::error(format!("Unknown condition: {word}"))),
            }
        }
        if !has_end && query.to <= query.from {
            query.to = clock.now;
        }
        query.to = query.to.min(clock.now);
        query.from = query.from.min(query.to);
        Ok(query)
    }

    fn seconds(&self) -> u64 {
        self.to.ms_since(self.from) / 1000
    }
}

/// What somebody used: CPU seconds, by the size of the jobs.
type Used = [u64; SIZE_LIMITS.len() + 1];

fn total(used: &Used) -> u64 {
    used.iter().sum()
}

/// What users used, by account and user.
#[derive(Debug, Default)]
struct Sums(BTreeMap<(String, String), Used>);

impl Sums {
    fn add(&mut self, account: &str, user: &str, size: usize, seconds: u64) {
        if seconds > 0 {
            self.0.entry((account.to_owned(), user.to_owned())).or_default()[size] += seconds;
        }
    }

    /// Adds the part of a job that ran in the period.
    fn add_row(&mut self, row: &Row<'_>, query: &Query) {
        let Some(started) = row.started_at() else { return };
        let ended = row.ended_at().unwrap_or(query.to).min(query.to);
        let size = SIZE_LIMITS.iter().filter(|least| row.cpus() >= **least).count();
        self.add(row.account(), &row.job.user, size, row.cpus() * ended.ms_since(started.max(query.from)) / 1000);
    }

    /// Adds the daily sums of jobs that the head has deleted. These sums have no accounts and no job sizes.
    fn add_deleted(&mut self, page: &AccountingPage, query: &Query) {
        let is_wanted = |wanted: &Option<Vec<String>>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one == name))
        };
        for group in page.groups.iter().filter(|group| is_wanted(&query.users, &group.key)) {
            if is_wanted(&query.accounts, ACCOUNT) {
                self.add(ACCOUNT, &group.key, 0, (group.core_hours * 3600.0) as u64);
            }
        }
    }

    /// The sums by a part of the key, the largest first.
    fn by(&self, part: impl Fn(&(String, String)) -> String) -> Vec<(String, Used)> {
        let mut all: BTreeMap<String, Used> = BTreeMap::new();
        for (key, used) in &self.0 {
            let sum = all.entry(part(key)).or_default();
            sum.iter_mut().zip(used).for_each(|(sum, used)| *sum += used);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(_, used)| Reverse(total(used)));
        all
    }
}

/// A line of a report.
#[derive(Debug)]
struct Line {
    account: String,
    login: String,
    used: Used,
}

/// The lines of a report in their order.
fn lines(report: Report, sums: &Sums, top: usize) -> Vec<Line> {
    let key = |(account, user): (&str, &str)| (account.to_owned(), user.to_owned());
    let line = |account: &str, login: &str, used| Line { account: account.to_owned(), login: login.to_owned(), used };
    let (accounts, users) = (sums.by(|(account, _)| account.clone()), sums.by(|(_, user)| user.clone()));
    let everything = line("root", "", sums.by(|_| String::new()).first().map_or_else(Used::default, |(_, used)| *used));
    let both = |account: &str, user: &str| Some(line(account, user, *sums.0.get(&key((account, user)))?));
    match report {
        Report::Utilization => vec![everything],
        Report::Sizes => accounts.iter().map(|(account, used)| line(account, "", *used)).collect(),
        Report::AccountsByUser => {
            let of_account = |(account, used): &(String, Used)| {
                let members = users.iter().filter_map(|(user, _)| both(account, user));
                std::iter::once(line(account, "", *used)).chain(members).collect::<Vec<_>>()
            };
            std::iter::once(everything).chain(accounts.iter().flat_map(of_account)).collect()
        }
        Report::UsersByAccount | Report::Top => {
            let count = if report == Report::Top { top } else { usize::MAX };
            let of_user = |(user, _): &(String, Used)| {
                accounts.iter().filter_map(|(account, _)| both(account, user)).collect::<Vec<_>>()
            };
            users.iter().take(count).flat_map(of_user).collect()
        }
    }
}

/// The values of a line's columns. `capacity`: CPU seconds of the cluster in the period.
fn value(line: &Line, column: &str, form: Form, capacity: u64) -> String {
    let used = total(&line.used);
    let shown = |seconds| form.write(seconds, capacity);
    let by_size = || {
        let sizes = SIZES.iter().skip(2).position(|it| it.name == column)?;
        line.used.get(sizes).map(|seconds| shown(*seconds))
    };
    match column {
        "Cluster" => CLUSTER.to_owned(),
        "Account" => line.account.clone(),
        "Login" => line.login.clone(),
        "Proper Name" => proper_name(&line.login),
        "Energy" => "0".to_owned(),
        "Used" | "Allocated" => shown(used),
        "Idle" => shown(capacity.saturating_sub(used)),
        "Reported" => shown(capacity.max(used)),
        "% of cluster" => format!("{:.2}%", 100.0 * used as f64 / capacity.max(1) as f64),
        _ => by_size().unwrap_or_else(|| shown(0)),
    }
}

/// The full name of a user; empty if this machine does not know the user.
fn proper_name(login: &str) -> String {
    let user = nix::unistd::User::from_name(login).ok().flatten();
    let gecos = user.map(|user| user.gecos.to_string_lossy().into_owned()).unwrap_or_default();
    gecos.split(',').next().unwrap_or_default().to_owned()
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let words: Vec<String> = operands.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let [kind, rest @ ..] = words.as_slice() else { return Ok(print(context, USAGE)) };
    let (kind, word) = (kind.to_ascii_lowercase(), rest.first().map(|word| word.to_ascii_lowercase()));
    let is = |known: &str, word: &str| !word.is_empty() && known.starts_with(word);
    let found = REPORTS.iter().find(|(first, second, ..)| is(first, &kind) && word.iter().any(|word| is(second, word)));
    let Some((_, _, report, title, all)) = found else {
        return Err(Ended::error(format!("no report {}", words.join(" "))).and_plain(USAGE.trim_end()));
    };
    // Finds mistakes before the head is asked for its time.
    let query = Query::parse(&rest[1..], &Clock::of_process())?;
    let list = query
        .format
        .clone()
        .unwrap_or_else(|| all.iter().map(|column| column.name.as_ref()).collect::<Vec<_>>().join(","));
    let columns = choose(&list, all).map_err(|name| Ended::plain(format!("Unknown field '{name}'")))?;
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let clock = block_on(async { Ok(Clock::of_head(&client).await.map_err(unreadable)) })??;
    let query = Query::parse(&rest[1..], &clock)?;
    let (sums, cpus) = block_on(async { Ok(load(&client, *report, &query, &clock).await) })??;
    let mut text = String::new();
    if !given.no_header {
        let last = WallTime(query.to.0.saturating_sub(1000));
        let period = format!("{} - {}", clock.write(query.from), clock.write(last));
        let (title, seconds) = match report {
            Report::Top => (format!("Top {} Users", query.top), format!(" ({} secs)", query.seconds())),
            Report::Utilization => ((*title).to_owned(), String::new()),
            _ => ((*title).to_owned(), format!(" ({} secs)", query.seconds())),
        };
        let word = given.form.word;
        text = format!("{RULER}\n{title} {period}{seconds}\nUsage reported in CPU {word}\n{RULER}\n");
        write_header(&columns, &given.style, &mut text);
    }
    let capacity = cpus * query.seconds();
    for line in lines(*report, &sums, query.top) {
        write_row(&columns, &given.style, &mut text, |column, out| {
            out.push_str(&value(&line, &column.name, given.form, capacity));
        });
    }
    Ok(print(context, &text))
}

/// What was used in the period, and the CPUs of the cluster.
async fn load(client: &Client, report: Report, query: &Query, clock: &Clock) -> Result<(Sums, u64), Ended> {
    let mut users = query.users.clone();
    if report != Report::Utilization && client.me().await.map_err(unreadable)?.role == Role::User {
        // As for `sacct`. The whole cluster's sum reveals nothing about single users.
        users = Some(vec![own_name()?]);
    }
    let cpus = client.nodes().await.map_err(unreadable)?.iter().map(|node| u64::from(node.cpus)).sum();
    let mut sums = Sums::default();
    let kept_from = kept_from(client, clock).await?;
    let mut from = query.from;
    if query.from < kept_from {
        from = kept_from;
        let last = WallTime(kept_from.min(query.to).0 - 1);
        let own = Query { users: users.clone(), accounts: query.accounts.clone(), format: None, ..*query };
        let (from, to) = (day(query.from).to_string(), day(last).to_string());
        let page = client.accounting("user", &from, Some(&to), None).await.map_err(unreadable)?;
        sums.add_deleted(&page, &own);
    }
    let selection =
        Selection { from, to: Some(query.to), users, accounts: query.accounts.clone(), ..Selection::default() };
    let records = selection.fetch(client).await.map_err(unreadable)?;
    for row in selection.rows(&records, clock.now, &mut Accounts::default()) {
        sums.add_row(&row, query);
    }
    Ok((sums, cpus))
}

/// The first midnight (UTC) since which the head has kept all ended jobs.
async fn kept_from(client: &Client, clock: &Clock) -> Result<WallTime, Ended> {
    const DAY_MS: i64 = 86_400_000;
    let settings = client.settings().await.map_err(unreadable)?;
    let kept = settings.iter().find(|setting| setting.name == "retention");
    let kept = kept.and_then(|setting| parse_duration(&setting.value).ok()).unwrap_or_default();
    let first = clock.now.0.saturating_sub(i64::try_from(kept.as_millis()).unwrap_or(i64::MAX));
    Ok(WallTime((first.div_euclid(DAY_MS) + 1) * DAY_MS))
}

/// The day of a time, as the API names it.
fn day(at: WallTime) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| String::new(), |at| at.to_zoned(TimeZone::UTC).date().to_string())
}

#[cfg(test)]
mod tests {
    use hostler_proto::accounting::{AccountingGroup, GroupBy};

    use super::*;

    #[test]
    fn amounts_have_slurms_forms() {
        for (form, expected) in [
            ("Seconds", "5400"),
            ("min", "90"),
            ("Hour", "2"),
            ("percent", "25.00%"),
            ("SecPer", "5400(25.00%)"),
            ("hourper", "2(25.00%)"),
        ] {
            assert_eq!(
                Form::parse(form).map(|form| form.write(5400, 21_600)).ok().as_deref(),
                Some(expected),
                "{form}"
            );
        }
        assert!(Form::parse("weeks").is_err() && Form::parse("").is_err());
    }

    #[test]
    fn lines_sum_accounts_and_users() {
        let mut sums = Sums::default();
        for (account, user, size, seconds) in
            [("default", "ada", 0, 10), ("physics", "ada", 1, 40), ("physics", "bob", 0, 20), ("none", "bob", 0, 0)]
        {
            sums.add(account, user, size, seconds);
        }
        let shown = |report, top| {
            let line = |line: &Line| format!("{}|{}|{}", line.account, line.login, total(&line.used));
            lines(report, &sums, top).iter().map(line).collect::<Vec<_>>()
        };
        let by_account =
            ["root||70", "physics||60", "physics|ada|40", "physics|bob|20", "default||10", "default|ada|10"];
        assert_eq!(shown(Report::AccountsByUser, 10), by_account);
        assert_eq!(shown(Report::Top, 1), ["physics|ada|40", "default|ada|10"]);
        assert_eq!(shown(Report::UsersByAccount, 1).len(), 3);
        let sizes = lines(Report::Sizes, &sums, 10);
        assert_eq!(value(&sizes[0], "50-249 CPUs", FORMS[0].1, 100), "40");
        assert_eq!(value(&sizes[0], "% of cluster", FORMS[0].1, 100), "60.00%");
        let all = &lines(Report::Utilization, &sums, 10)[0];
        assert_eq!(
            ["Allocated", "Down", "Idle", "Reported"].map(|it| value(all, it, FORMS[0].1, 100)),
            ["70", "0", "30", "100"]
        );
    }

    #[test]
    fn deleted_jobs_count_by_user() {
        let of_ada = AccountingGroup { key: "ada".to_owned(), core_hours: 2.0, ..AccountingGroup::default() };
        let page = AccountingPage {
            from: String::new(),
            to: String::new(),
            user: None,
            by: GroupBy::User,
            groups: vec![of_ada],
            total: AccountingGroup::default(),
        };
        let sums = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let query = Query::parse(&words, &Clock::of_process()).unwrap_or_else(|_| panic!("a query"));
            let mut sums = Sums::default();
            sums.add_deleted(&page, &query);
            sums.0.values().map(total).sum::<u64>()
        };
        assert_eq!(
            (sums(&[]), sums(&["users=ada,bob"]), sums(&["user=bob"]), sums(&["acc=physics"])),
            (7200, 7200, 0, 0)
        );
        assert_eq!(day(WallTime(86_400_000)), "1970-01-02");
    }
}
