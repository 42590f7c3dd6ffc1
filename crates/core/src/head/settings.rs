//! Settings that operators change while the head runs.
//!
//! [`Setting`] lists each setting with its name, kind of value and meaning. [`Settings`] holds the values. [`Settings::changed`]
//! parses and checks a new value, and [`super::decide`] turns it into an event. Start options of the head, such as addresses and
//! directories, are not settings.

use std::fmt;
use std::str::FromStr;

use hostler_model::{JobSpec, ParseError, Submission, WallTime, parse_bytes, parse_duration};
use hostler_proto::link::OUTPUT_CAP_BYTES;
use hostler_sched::Policy;
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Default memory of a job, in bytes.
const USUAL_MEMORY_BYTES: u64 = 512 << 20;

/// The least difference between the heartbeat interval and `suspect-after`, in milliseconds, since a heartbeat may
/// arrive late.
const LATENESS_MS: u64 = SECOND;

/// The values of all settings. Times are in milliseconds on the cluster's clock.
///
/// The three silence limits must increase in the order of their fields. The first must leave time for a late heartbeat,
/// since an agent on a busy machine may need seconds to send one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// An agent that has sent nothing for this long sends a heartbeat.
    pub heartbeat_ms: u64,
    /// A node that is silent for this long gets no new work.
    pub suspect_after_ms: u64,
    /// A node that is silent for this long is down. Runs that can safely run again are placed on other nodes.
    pub down_after_ms: u64,
    /// The head gives up all runs of a node that is silent for this long. The limit is long, because a node that was
    /// only disconnected then loses its work.
    pub lost_after_ms: u64,
    /// Default time between TERM and KILL.
    pub grace_ms: u64,
    /// How long ended jobs are kept. Those with files that nobody has fetched are kept longer.
    pub retention_ms: u64,
    /// How long files are kept that nobody has fetched, but at least for `retention`. `None`: until they are fetched or the
    /// disk needs their space.
    pub unfetched_retention_ms: Option<u64>,
    /// Disk space for results, in bytes. Above it, the head drops fetched results. `None`: the value from the head's
    /// command line.
    pub results_cap_bytes: Option<u64>,
    /// How many bytes of each output of a job are kept. `None`: [`OUTPUT_CAP_BYTES`].
    pub output_cap_bytes: Option<u64>,
    /// Whether operators, admins and the account that runs the head keep their identity when they connect through a node or run
    /// commands on another node. Off by default: the head trusts a node about its users, so root of any node could become an admin.
    pub roles_through_nodes: bool,
    /// Whether all system accounts may run jobs and commands. Off by default: a service of one node must not act on other nodes.
    pub system_accounts: bool,
    /// Whether callers that the head cannot identify may see the overview, the nodes and the queue.
    pub dashboard_public: bool,
    /// How many jobs of one user may wait; an array counts once. Bounds the head's memory. Operators have no limit.
    pub waiting_jobs: u32,
    /// How many bytes of the head's memory the waiting jobs of one user may take. Operators have no limit.
    pub waiting_bytes: u64,
    /// The highest priority that users may give their jobs. Operators have no limit.
    pub user_priority: u32,
    /// The scheduling policy: first come first served, or EASY backfill.
    pub policy: Policy,
    /// Defaults for options that a submission leaves out. `None`: Hostler's own default applies.
    pub job: JobDefaults,
}

/// Operator defaults for options that a submission leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobDefaults {
    /// Nodes per task, at least one.
    pub nodes: Option<u32>,
    /// Processes per node, at least one.
    pub tasks_per_node: Option<u32>,
    /// CPUs per node, at least one.
    pub cpus: Option<u32>,
    /// Memory per node, in bytes.
    pub memory_bytes: Option<u64>,
    /// The time limit in milliseconds; zero for no limit.
    pub time_limit_ms: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_ms: 4 * SECOND,
            suspect_after_ms: 7 * SECOND,
            down_after_ms: 9 * SECOND,
            lost_after_ms: MINUTE,
            grace_ms: 10 * SECOND,
            retention_ms: 14 * DAY,
            unfetched_retention_ms: None,
            results_cap_bytes: None,
            output_cap_bytes: None,
            roles_through_nodes: false,
            system_accounts: false,
            dashboard_public: false,
            waiting_jobs: 100_000,
            waiting_bytes: 64 << 20,
            user_priority: 0,
            // Backfill that never delays the first waiting job.
            policy: Policy::Easy,
            job: JobDefaults::default(),
        }
    }
}

/// A setting that operators can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// The setting `heartbeat`: [`Settings::heartbeat_ms`].
    Heartbeat,
    /// The setting `suspect-after`: [`Settings::suspect_after_ms`].
    SuspectAfter,
    /// The setting `down-after`: [`Settings::down_after_ms`].
    DownAfter,
    /// The setting `lost-after`: [`Settings::lost_after_ms`].
    LostAfter,
    /// The setting `grace`: [`Settings::grace_ms`].
    Grace,
    /// The setting `retention`: [`Settings::retention_ms`].
    Retention,
    /// The setting `unfetched-retention`: [`Settings::unfetched_retention_ms`].
    UnfetchedRetention,
    /// The setting `results-cap`: [`Settings::results_cap_bytes`].
    ResultsCap,
    /// The setting `output-cap`: [`Settings::output_cap_bytes`].
    OutputCap,
    /// The setting `roles-through-nodes`: [`Settings::roles_through_nodes`].
    RolesThroughNodes,
    /// The setting `system-accounts`: [`Settings::system_accounts`].
    SystemAccounts,
    /// The setting `dashboard-public`: [`Settings::dashboard_public`].
    DashboardPublic,
    /// The setting `waiting-jobs`: [`Settings::waiting_jobs`].
    WaitingJobs,
    /// The setting `waiting-bytes`: [`Settings::waiting_bytes`].
    WaitingBytes,
    /// The setting `user-priority`: [`Settings::user_priority`].
    UserPriority,
    /// The setting `policy`: [`Settings::policy`].
    Policy,
    /// The setting `default-nodes`: [`JobDefaults::nodes`].
    DefaultNodes,
    /// The setting `default-processes`: [`JobDefaults::tasks_per_node`].
    DefaultProcesses,
    /// The setting `default-cpus`: [`JobDefaults::cpus`].
    DefaultCpus,
    /// The setting `default-memory`: [`JobDefaults::memory_bytes`].
    DefaultMemory,
    /// The setting `default-time-limit`: [`JobDefaults::time_limit_ms`].
    DefaultTimeLimit,
}

/// The kind of values that a setting accepts, with their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time between these bounds, in milliseconds.
    Time(u64, u64),
    /// A time up to this bound, in milliseconds, or `none`.
    TimeOrNone(u64),
    /// A size in bytes that is at least this bound.
    Size(u64),
    /// A number between these bounds.
    Count(u32, u32),
    /// `yes` or `no`.
    Switch,
    /// The word `fcfs`, `easy` or `greedy`.
    Policy,
}

/// The value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingValue {
    /// Milliseconds; zero means no limit where the setting allows `none`.
    TimeMs(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A number, as [`Kind::Count`].
    Count(u32),
    /// `true` for `yes`.
    Switch(bool),
    /// The scheduling policy.
    Policy(Policy),
}

/// Who changed a setting, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetBy {
    /// The user who changed the setting.
    pub user: String,
    /// When the setting was changed, on the wall clock.
    pub at: WallTime,
}

impl Setting {
    /// Every setting, in display order.
    pub const ALL: [Self; 21] = [
        Self::Heartbeat,
        Self::SuspectAfter,
        Self::DownAfter,
        Self::LostAfter,
        Self::Grace,
        Self::Retention,
        Self::UnfetchedRetention,
        Self::ResultsCap,
        Self::OutputCap,
        Self::RolesThroughNodes,
        Self::SystemAccounts,
        Self::DashboardPublic,
        Self::WaitingJobs,
        Self::WaitingBytes,
        Self::UserPriority,
        Self::Policy,
        Self::DefaultNodes,
        Self::DefaultProcesses,
        Self::DefaultCpus,
        Self::DefaultMemory,
        Self::DefaultTimeLimit,
    ];

    /// Returns the setting's name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the kind of value that the setting takes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.row().1
    }

    /// Returns a short description for tables.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        self.row().2
    }

    /// The setting's name, kind and description.
    const fn row(self) -> (&'static str, Kind, &'static str) {
        match self {
            Self::Heartbeat => (
                "heartbeat",
                Kind::Time(SECOND, 10 * MINUTE),
                "an agent that has sent nothing for this long sends a heartbeat",
            ),
            Self::SuspectAfter => {
                ("suspect-after", Kind::Time(2 * SECOND, DAY), "a node that is silent for this long gets no new work")
            }
            Self::DownAfter => (
                "down-after",
                Kind::Time(2 * SECOND, DAY),
                "a node that is silent for this long is down; jobs that may run again move to other nodes",
            ),
            Self::LostAfter => (
                "lost-after",
                Kind::Time(2 * SECOND, 30 * DAY),
                "the head gives up the jobs of a node that is silent for this long",
            ),
            Self::Grace => ("grace", Kind::Time(0, HOUR), "time between TERM and KILL, unless the job sets its own"),
            Self::Retention => (
                "retention",
                Kind::Time(MINUTE, 3650 * DAY),
                "how long ended jobs are kept, and their results once they were fetched",
            ),
            Self::UnfetchedRetention => (
                "unfetched-retention",
                Kind::Time(MINUTE, 3650 * DAY),
                "how long files that nobody has fetched are kept, at least for `retention`; by default until the disk is needed",
            ),
            Self::ResultsCap => (
                "results-cap",
                Kind::Size(1 << 20),
                "disk space for results on the head; above it, fetched results are dropped, then old unfetched ones",
            ),
            Self::OutputCap => (
                "output-cap",
                Kind::Size(1 << 20),
                "how much of a job's stdout, and of its stderr, is kept; the rest is cut",
            ),
            Self::RolesThroughNodes => (
                "roles-through-nodes",
                Kind::Switch,
                "whether operators, admins and the head's own account keep their rights through nodes; only admins change this",
            ),
            Self::SystemAccounts => (
                "system-accounts",
                Kind::Switch,
                "whether all system accounts, such as daemon, may run jobs and commands; only admins change this",
            ),
            Self::DashboardPublic => (
                "dashboard-public",
                Kind::Switch,
                "whether the overview, the nodes and the queue need no sign-in; only admins change this",
            ),
            Self::WaitingJobs => (
                "waiting-jobs",
                Kind::Count(1, 100_000_000),
                "how many jobs of one user may wait; an array counts once, and operators have no limit",
            ),
            Self::WaitingBytes => (
                "waiting-bytes",
                Kind::Size(1 << 20),
                "how much of the head's memory the waiting jobs of one user may take",
            ),
            Self::UserPriority => (
                "user-priority",
                Kind::Count(0, i32::MAX.unsigned_abs()),
                "the highest priority that users may give their jobs; operators have no limit",
            ),
            Self::Policy => (
                "policy",
                Kind::Policy,
                "fcfs keeps the queue's order; easy starts a later job early if the first waiting job starts no later; greedy \
                 starts each job that fits, so a large one may wait for ever",
            ),
            Self::DefaultNodes => {
                ("default-nodes", Kind::Count(1, 10_000), "nodes per task, for jobs that do not specify the number")
            }
            Self::DefaultProcesses => (
                "default-processes",
                Kind::Count(1, 4_096),
                "processes per node, for jobs that do not specify the number",
            ),
            Self::DefaultCpus => {
                ("default-cpus", Kind::Count(1, 65_536), "CPUs per node, for jobs that do not specify the number")
            }
            Self::DefaultMemory => {
                ("default-memory", Kind::Size(1 << 20), "memory per node, for jobs that do not specify it")
            }
            Self::DefaultTimeLimit => {
                ("default-time-limit", Kind::TimeOrNone(3650 * DAY), "time limit, for jobs that do not specify one")
            }
        }
    }

    /// Returns the default value, as text for tables.
    ///
    /// # Panics
    /// Never: every setting that the function does not match has a default in [`Settings::default`].
    #[must_use]
    pub fn default_text(self) -> String {
        match self {
            Self::ResultsCap => "half of the disk".to_owned(),
            Self::OutputCap => write_size(OUTPUT_CAP_BYTES),
            Self::DefaultNodes | Self::DefaultProcesses | Self::DefaultCpus => "1".to_owned(),
            Self::DefaultMemory => "512M, cmrun 100M".to_owned(),
            Self::DefaultTimeLimit | Self::UnfetchedRetention => "none".to_owned(),
            _ => Settings::default()
                .get(self)
                .map(|value| self.write(value))
                .expect("every other setting has a default value"),
        }
    }

    /// Parses a value that a person typed.
    ///
    /// # Errors
    /// When the value does not parse or is out of bounds. The message says what is allowed.
    pub fn read(self, text: &str) -> Result<SettingValue, String> {
        let kind = self.kind();
        let wrong = || format!("{self} must be {kind}, not `{text}`");
        // For a number without a unit, the parser's error says that the unit is missing.
        let unit_or_wrong = |error: &ParseError| match text.trim().parse::<f64>() {
            Ok(_) => format!("{self}: {error}"),
            Err(_) => wrong(),
        };
        let value = match kind {
            Kind::TimeOrNone(_) if text == "none" => SettingValue::TimeMs(0),
            Kind::Time(..) | Kind::TimeOrNone(_) => {
                let span = parse_duration(text).map_err(|error| unit_or_wrong(&error))?;
                SettingValue::TimeMs(u64::try_from(span.as_millis()).map_err(|_| wrong())?)
            }
            Kind::Size(_) => SettingValue::Bytes(parse_bytes(text).map_err(|error| unit_or_wrong(&error))?),
            Kind::Count(..) => SettingValue::Count(text.parse().map_err(|_| wrong())?),
            Kind::Switch => match text {
                "yes" => SettingValue::Switch(true),
                "no" => SettingValue::Switch(false),
                _ => return Err(wrong()),
            },
            Kind::Policy => SettingValue::Policy(text.parse().map_err(|_| wrong())?),
        };
        if kind.holds(value) { Ok(value) } else { Err(wrong()) }
    }

    /// Formats a value such that [`Self::read`] parses it back.
    #[must_use]
    pub fn write(self, value: SettingValue) -> String {
        match value {
            SettingValue::TimeMs(0) if matches!(self.kind(), Kind::TimeOrNone(_)) => "none".to_owned(),
            SettingValue::TimeMs(ms) => write_time(ms),
            SettingValue::Bytes(bytes) => write_size(bytes),
            SettingValue::Count(count) => count.to_string(),
            SettingValue::Switch(is_on) => if is_on { "yes" } else { "no" }.to_owned(),
            SettingValue::Policy(policy) => policy.to_string(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Setting {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|setting| setting.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "a setting's name, such as retention"))
    }
}

impl Kind {
    /// Returns whether a value is of this kind and within the bounds.
    fn holds(self, value: SettingValue) -> bool {
        match (self, value) {
            (Self::Time(least, most), SettingValue::TimeMs(ms)) => (least..=most).contains(&ms),
            (Self::TimeOrNone(most), SettingValue::TimeMs(ms)) => ms <= most,
            (Self::Size(least), SettingValue::Bytes(bytes)) => bytes >= least,
            (Self::Count(least, most), SettingValue::Count(count)) => (least..=most).contains(&count),
            (Self::Switch, SettingValue::Switch(_)) | (Self::Policy, SettingValue::Policy(_)) => true,
            _ => false,
        }
    }

    /// Returns the kind of value in one word, for tables.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time(..) | Self::TimeOrNone(_) => "time",
            Self::Size(_) => "size",
            Self::Count(..) => "number",
            Self::Switch | Self::Policy => "word",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(least, most) => write!(f, "a time from {} to {}", write_time(least), write_time(most)),
            Self::TimeOrNone(most) => write!(f, "a time of at most {}, or none", write_time(most)),
            Self::Size(least) => write!(f, "a size of at least {}, such as 512M", write_size(least)),
            Self::Count(least, most) => write!(f, "a number from {least} to {most}"),
            Self::Switch => write!(f, "yes or no"),
            Self::Policy => write!(f, "fcfs, easy or greedy"),
        }
    }
}

impl Settings {
    /// Returns a setting's value. `None` if none is set: the head or the submitting tool then uses its own default.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<SettingValue> {
        let wide = |wide| match setting.kind() {
            Kind::Size(_) => SettingValue::Bytes(wide),
            _ => SettingValue::TimeMs(wide),
        };
        match self.clone().slot(setting) {
            Slot::Wide(slot) => Some(wide(*slot)),
            Slot::Count(slot) => Some(SettingValue::Count(*slot)),
            Slot::Switch(slot) => Some(SettingValue::Switch(*slot)),
            Slot::Policy(slot) => Some(SettingValue::Policy(*slot)),
            Slot::MayBeWide(slot) => slot.map(wide),
            Slot::MayBeCount(slot) => slot.map(SettingValue::Count),
        }
    }

    /// Creates a copy of the settings with one value changed, or reset to its default when `value` is absent.
    ///
    /// # Panics
    /// When the value is not of the setting's kind: it was not parsed by [`Setting::read`], or the log is damaged.
    #[must_use]
    pub(super) fn with(&self, setting: Setting, value: Option<SettingValue>) -> Self {
        let mut new = self.clone();
        let value = value.or_else(|| Self::default().get(setting));
        let slot = new.slot(setting);
        match (slot, value) {
            (Slot::Wide(slot), Some(SettingValue::TimeMs(wide) | SettingValue::Bytes(wide))) => *slot = wide,
            (Slot::Switch(slot), Some(SettingValue::Switch(is_on))) => *slot = is_on,
            (Slot::Policy(slot), Some(SettingValue::Policy(policy))) => *slot = policy,
            (Slot::MayBeWide(slot), Some(SettingValue::TimeMs(wide) | SettingValue::Bytes(wide))) => *slot = Some(wide),
            (Slot::MayBeWide(slot), None) => *slot = None,
            (Slot::Count(slot), Some(SettingValue::Count(count))) => *slot = count,
            (Slot::MayBeCount(slot), Some(SettingValue::Count(count))) => *slot = Some(count),
            (Slot::MayBeCount(slot), None) => *slot = None,
            (_, value) => panic!("{setting} cannot be {value:?}"),
        }
        new
    }

    fn slot(&mut self, setting: Setting) -> Slot<'_> {
        match setting {
            Setting::Heartbeat => Slot::Wide(&mut self.heartbeat_ms),
            Setting::SuspectAfter => Slot::Wide(&mut self.suspect_after_ms),
            Setting::DownAfter => Slot::Wide(&mut self.down_after_ms),
            Setting::LostAfter => Slot::Wide(&mut self.lost_after_ms),
            Setting::Grace => Slot::Wide(&mut self.grace_ms),
            Setting::Retention => Slot::Wide(&mut self.retention_ms),
            Setting::UnfetchedRetention => Slot::MayBeWide(&mut self.unfetched_retention_ms),
            Setting::ResultsCap => Slot::MayBeWide(&mut self.results_cap_bytes),
            Setting::OutputCap => Slot::MayBeWide(&mut self.output_cap_bytes),
            Setting::RolesThroughNodes => Slot::Switch(&mut self.roles_through_nodes),
            Setting::SystemAccounts => Slot::Switch(&mut self.system_accounts),
            Setting::DashboardPublic => Slot::Switch(&mut self.dashboard_public),
            Setting::WaitingJobs => Slot::Count(&mut self.waiting_jobs),
            Setting::WaitingBytes => Slot::Wide(&mut self.waiting_bytes),
            Setting::UserPriority => Slot::Count(&mut self.user_priority),
            Setting::Policy => Slot::Policy(&mut self.policy),
            Setting::DefaultNodes => Slot::MayBeCount(&mut self.job.nodes),
            Setting::DefaultProcesses => Slot::MayBeCount(&mut self.job.tasks_per_node),
            Setting::DefaultCpus => Slot::MayBeCount(&mut self.job.cpus),
            Setting::DefaultMemory => Slot::MayBeWide(&mut self.job.memory_bytes),
            Setting::DefaultTimeLimit => Slot::MayBeWide(&mut self.job.time_limit_ms),
        }
    }

    /// Parses and checks a new value for `setting`; `None` resets the setting to its default.
    ///
    /// # Errors
    /// When the value does not parse, is out of bounds, or conflicts with another setting.
    pub(super) fn changed(&self, setting: Setting, text: Option<&str>) -> Result<Option<SettingValue>, String> {
        let value = text.map(|text| setting.read(text)).transpose()?;
        self.with(setting, value).check()?;
        Ok(value)
    }

    /// Checks that the silence limits increase, and that a late heartbeat fits into the first.
    fn check(&self) -> Result<(), String> {
        if self.suspect_after_ms < self.heartbeat_ms + LATENESS_MS {
            let [suspect, more, heartbeat] = [self.suspect_after_ms, LATENESS_MS, self.heartbeat_ms].map(write_time);
            return Err(format!(
                "suspect-after ({suspect}) must be at least {more} more than heartbeat ({heartbeat}), because a heartbeat may arrive late"
            ));
        }
        let limits = [
            (Setting::SuspectAfter, self.suspect_after_ms),
            (Setting::DownAfter, self.down_after_ms),
            (Setting::LostAfter, self.lost_after_ms),
        ];
        match limits.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            Some([(one, its_ms), (next, next_ms)]) => {
                let [its, following] = [*its_ms, *next_ms].map(write_time);
                Err(format!("{one} ({its}) must be less than {next} ({following})"))
            }
            _ => Ok(()),
        }
    }

    /// Creates a job from a submission that arrives at `now`. Options that the submission does not set get the operators' defaults, or
    /// Hostler's own. A job with a terminal always stays a single process.
    #[must_use]
    pub fn complete(&self, submission: Submission, now: WallTime) -> JobSpec {
        let (cpus, memory_bytes) = (self.job.cpus.unwrap_or(1), self.job.memory_bytes.unwrap_or(USUAL_MEMORY_BYTES));
        let request = submission.request.clone().or(cpus, memory_bytes);
        let usual = |count: Option<u32>| count.filter(|_| submission.pty.is_none()).unwrap_or(1);
        let nodes = submission.nodes.unwrap_or_else(|| usual(self.job.nodes));
        let tasks_per_node = submission.tasks_per_node.unwrap_or_else(|| usual(self.job.tasks_per_node));
        let begin = submission.begin.as_deref().map(|begin| Box::new(begin.at(now)));
        let mut spec = submission.resized(request, nodes, tasks_per_node, begin);
        spec.time_limit_ms = spec.time_limit_ms.or(self.job.time_limit_ms).filter(|ms| *ms > 0);
        // Labels tell the lines of several processes apart. The number of processes is known only here.
        spec.label &= spec.world_size() > 1;
        spec
    }
}

/// A mutable reference to the field that stores a setting. A `MayBe` field may be unset.
enum Slot<'a> {
    Wide(&'a mut u64),
    Count(&'a mut u32),
    Switch(&'a mut bool),
    Policy(&'a mut Policy),
    MayBeWide(&'a mut Option<u64>),
    MayBeCount(&'a mut Option<u32>),
}

/// Formats a time as a whole number of the largest possible unit.
fn write_time(ms: u64) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    match units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// Formats a size as a whole number of the largest possible unit.
fn write_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests;
