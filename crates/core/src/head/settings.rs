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
    /// How long ended jobs and their results are kept, whether or not the results were fetched.
    pub retention_ms: u64,
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
    /// The word `fcfs` or `easy`.
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
    pub const ALL: [Self; 20] = [
        Self::Heartbeat,
        Self::SuspectAfter,
        Self::DownAfter,
        Self::LostAfter,
        Self::Grace,
        Self::Retention,
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
        match self {
            Self::Heartbeat => "heartbeat",
            Self::SuspectAfter => "suspect-after",
            Self::DownAfter => "down-after",
            Self::LostAfter => "lost-after",
            Self::Grace => "grace",
            Self::Retention => "retention",
            Self::ResultsCap => "results-cap",
            Self::OutputCap => "output-cap",
            Self::RolesThroughNodes => "roles-through-nodes",
            Self::SystemAccounts => "system-accounts",
            Self::DashboardPublic => "dashboard-public",
            Self::WaitingJobs => "waiting-jobs",
            Self::WaitingBytes => "waiting-bytes",
            Self::UserPriority => "user-priority",
            Self::Policy => "policy",
            Self::DefaultNodes => "default-nodes",
            Self::DefaultProcesses => "default-processes",
            Self::DefaultCpus => "default-cpus",
            Self::DefaultMemory => "default-memory",
            Self::DefaultTimeLimit => "default-time-limit",
        }
    }

    /// Returns a short description for tables.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Heartbeat => "an agent that has sent nothing for this long sends a heartbeat",
            Self::SuspectAfter => "a node that is silent for this long gets no new work",
            Self::DownAfter => {
                "a node that is silent for this long is down; jobs that may run again move to other nodes"
            }
            Self::LostAfter => "the head gives up the jobs of a node that is silent for this long",
            Self::Grace => "time between TERM and KILL, unless the job sets its own",
            Self::Retention => "how long ended jobs and their results are kept",
            Self::ResultsCap => "disk space for results on the head; above it, fetched results are dropped",
            Self::OutputCap => "how much of a job's stdout, and of its stderr, is kept; the rest is cut",
            Self::RolesThroughNodes => {
                "whether operators, admins and the head's own account keep their rights through nodes; only admins change this"
            }
            Self::SystemAccounts => {
                "whether all system accounts, such as daemon, may run jobs and commands; only admins change this"
            }
            Self::DashboardPublic => {
                "whether the overview, the nodes and the queue need no sign-in; only admins change this"
            }
            Self::WaitingJobs => {
                "how many jobs of one user may wait; an array counts once, and operators have no limit"
            }
            Self::WaitingBytes => "how much of the head's memory the waiting jobs of one user may take",
            Self::UserPriority => "the highest priority that users may give their jobs; operators have no limit",
            Self::Policy => {
                "fcfs keeps the queue's order; easy starts a later job early if the first waiting job starts no later"
            }
            Self::DefaultNodes => "nodes per task, for jobs that do not specify the number",
            Self::DefaultProcesses => "processes per node, for jobs that do not specify the number",
            Self::DefaultCpus => "CPUs per node, for jobs that do not specify the number",
            Self::DefaultMemory => "memory per node, for jobs that do not specify it",
            Self::DefaultTimeLimit => "time limit, for jobs that do not specify one",
        }
    }

    /// Returns the kind of value that the setting takes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Heartbeat => Kind::Time(SECOND, 10 * MINUTE),
            Self::SuspectAfter | Self::DownAfter => Kind::Time(2 * SECOND, DAY),
            Self::LostAfter => Kind::Time(2 * SECOND, 30 * DAY),
            Self::Grace => Kind::Time(0, HOUR),
            Self::Retention => Kind::Time(MINUTE, 3650 * DAY),
            Self::ResultsCap | Self::OutputCap | Self::WaitingBytes => Kind::Size(1 << 20),
            Self::RolesThroughNodes | Self::SystemAccounts | Self::DashboardPublic => Kind::Switch,
            Self::WaitingJobs => Kind::Count(1, 100_000_000),
            Self::UserPriority => Kind::Count(0, i32::MAX.unsigned_abs()),
            Self::Policy => Kind::Policy,
            Self::DefaultNodes => Kind::Count(1, 10_000),
            Self::DefaultProcesses => Kind::Count(1, 4_096),
            Self::DefaultCpus => Kind::Count(1, 65_536),
            Self::DefaultMemory => Kind::Size(1 << 20),
            Self::DefaultTimeLimit => Kind::TimeOrNone(3650 * DAY),
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
            Self::DefaultTimeLimit => "none".to_owned(),
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
        let value = match kind {
            Kind::TimeOrNone(_) if text == "none" => SettingValue::TimeMs(0),
            Kind::Time(..) | Kind::TimeOrNone(_) => {
                let span = parse_duration(text).map_err(|error| match text.trim().parse::<f64>() {
                    // A bare number: the error of the parser says that the unit is missing.
                    Ok(_) => format!("{self}: {error}"),
                    Err(_) => wrong(),
                })?;
                SettingValue::TimeMs(u64::try_from(span.as_millis()).map_err(|_| wrong())?)
            }
            Kind::Size(_) => SettingValue::Bytes(parse_bytes(text).map_err(|_| wrong())?),
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
            Self::Policy => write!(f, "fcfs or easy"),
        }
    }
}

impl Settings {
    /// Returns a setting's value. `None` if none is set: the head or the submitting tool then uses its own default.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<SettingValue> {
        use SettingValue::{Bytes, Count, TimeMs};
        match setting {
            Setting::Heartbeat => Some(TimeMs(self.heartbeat_ms)),
            Setting::SuspectAfter => Some(TimeMs(self.suspect_after_ms)),
            Setting::DownAfter => Some(TimeMs(self.down_after_ms)),
            Setting::LostAfter => Some(TimeMs(self.lost_after_ms)),
            Setting::Grace => Some(TimeMs(self.grace_ms)),
            Setting::Retention => Some(TimeMs(self.retention_ms)),
            Setting::ResultsCap => self.results_cap_bytes.map(Bytes),
            Setting::OutputCap => self.output_cap_bytes.map(Bytes),
            Setting::RolesThroughNodes => Some(SettingValue::Switch(self.roles_through_nodes)),
            Setting::SystemAccounts => Some(SettingValue::Switch(self.system_accounts)),
            Setting::DashboardPublic => Some(SettingValue::Switch(self.dashboard_public)),
            Setting::WaitingJobs => Some(Count(self.waiting_jobs)),
            Setting::WaitingBytes => Some(Bytes(self.waiting_bytes)),
            Setting::UserPriority => Some(Count(self.user_priority)),
            Setting::Policy => Some(SettingValue::Policy(self.policy)),
            Setting::DefaultNodes => self.job.nodes.map(Count),
            Setting::DefaultProcesses => self.job.tasks_per_node.map(Count),
            Setting::DefaultCpus => self.job.cpus.map(Count),
            Setting::DefaultMemory => self.job.memory_bytes.map(Bytes),
            Setting::DefaultTimeLimit => self.job.time_limit_ms.map(TimeMs),
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
mod tests {
    use hostler_model::{PartialRequest, Request, WindowSize, Work};

    use super::*;

    fn after(settings: &Settings, setting: Setting, text: &str) -> Result<Settings, String> {
        Ok(settings.with(setting, settings.changed(setting, Some(text))?))
    }

    #[test]
    fn every_value_parses_back_from_its_text() {
        for setting in Setting::ALL {
            assert_eq!(setting.as_str().parse(), Ok(setting));
            let stored = hostler_proto::encode(&setting);
            assert_eq!(stored, hostler_proto::encode(&setting.as_str()), "stored under the name that people type");
            let text = match setting.kind() {
                Kind::Time(..) => "61s",
                Kind::TimeOrNone(_) => "90m",
                Kind::Size(_) => "1536M",
                Kind::Count(..) => "3",
                Kind::Switch => "yes",
                Kind::Policy => "fcfs",
            };
            let value = setting.read(text).expect(text);
            assert_eq!(setting.write(value), text, "{setting}");
            let settings = Settings::default().with(setting, Some(value));
            assert_eq!(settings.get(setting), Some(value), "{setting}");
            assert_eq!(settings.with(setting, None), Settings::default(), "{setting}");
        }
        assert_eq!(Setting::DefaultTimeLimit.read("none"), Ok(SettingValue::TimeMs(0)));
        assert_eq!(Setting::DefaultTimeLimit.write(SettingValue::TimeMs(0)), "none");
        assert_eq!((write_time(0), write_time(1500), write_size(1000)), ("0s".into(), "1500ms".into(), "1000B".into()));
    }

    #[test]
    fn settings_missing_from_an_old_store_get_their_defaults() {
        let old = std::collections::BTreeMap::from([("heartbeat_ms", 1_500), ("retention_ms", DAY)]);
        let read: Settings = hostler_proto::decode(&hostler_proto::encode(&old)).expect("fields may be absent");
        assert_eq!(read, Settings { heartbeat_ms: 1_500, retention_ms: DAY, ..Settings::default() });
    }

    #[test]
    fn settings_page_lists_every_setting() {
        let page = include_str!("../../../../docs/reference/settings.md");
        for setting in Setting::ALL {
            let (default, kind, meaning) = (setting.default_text(), setting.kind(), setting.meaning());
            let row = format!("| `{setting}` | {default} | {kind} | {meaning} |");
            assert!(page.contains(&row), "docs/reference/settings.md lacks this row:\n{row}");
        }
        let table = page.split("\n## ").next().expect("split yields at least one part");
        let rows = table.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, Setting::ALL.len(), "docs/reference/settings.md lists a setting that does not exist");
    }

    #[test]
    fn defaults_are_valid_and_bad_values_are_refused() {
        let settings = Settings::default();
        assert_eq!(settings.check(), Ok(()));
        let refusal = |setting, text: &str| after(&settings, setting, text).expect_err(text);
        assert!(refusal(Setting::SuspectAfter, "4500ms").contains("1s more than heartbeat (4s)"));
        assert!(refusal(Setting::SuspectAfter, "9s").contains("suspect-after (9s) must be less than down-after (9s)"));
        assert!(refusal(Setting::LostAfter, "5s").contains("must be less than lost-after (5s)"));
        assert!(refusal(Setting::Heartbeat, "10ms").contains("a time from 1s to 10m, not `10ms`"));
        assert!(refusal(Setting::Retention, "soon").contains("retention must be a time"));
        assert!(refusal(Setting::Retention, "none").contains("retention must be a time"));
        assert!(refusal(Setting::DefaultMemory, "100").contains("a size of at least 1M"));
        assert!(refusal(Setting::DefaultNodes, "0").contains("a number from 1"));
        assert!(refusal(Setting::UserPriority, "-1").contains("a number from 0 to 2147483647"));
        assert!(refusal(Setting::UserPriority, "2147483648").contains("a number from 0 to 2147483647"));
        assert!(refusal(Setting::Policy, "random").contains("fcfs or easy"));
        let slower = after(&settings, Setting::LostAfter, "10m").expect("accepted");
        let slower = after(&slower, Setting::DownAfter, "2m").expect("accepted");
        assert_eq!(after(&slower, Setting::SuspectAfter, "90s").map(|it| it.suspect_after_ms), Ok(90_000));
    }

    #[test]
    fn defaults_fill_only_options_that_were_left_out() {
        let chosen = JobSpec::new("x", Work::command(["x"], "/"), Request::new(3, 7 << 20));
        let open = chosen.clone().resized(PartialRequest::default(), None, None, None);
        let usual = Settings::default().complete(open.clone(), WallTime(0));
        assert_eq!((usual.request.clone(), usual.world_size()), (Request::new(1, 512 << 20), 1), "nothing is set");
        assert_eq!(usual.time_limit_ms, None);
        let job = JobDefaults {
            nodes: Some(2),
            tasks_per_node: Some(4),
            cpus: Some(1),
            memory_bytes: Some(1 << 30),
            time_limit_ms: Some(HOUR),
        };
        let settings = Settings { job, ..Settings::default() };
        assert_eq!(settings.complete(chosen.clone().into(), WallTime(0)), chosen);
        let request = PartialRequest { cpus: Some(3), ..PartialRequest::default() };
        let some = settings
            .complete(Submission { request, nodes: Some(1), time_limit_ms: Some(0), ..open.clone() }, WallTime(0));
        assert_eq!((some.request.memory_bytes, some.request.cpus, some.nodes), (1 << 30, 3, 1));
        assert_eq!(some.time_limit_ms, None, "no limit was chosen");
        let all = settings.complete(open.clone(), WallTime(0));
        assert_eq!((all.nodes, all.tasks_per_node, all.request.cpus), (2, 4, 1));
        assert_eq!(all.time_limit_ms, Some(HOUR));
        let terminal = Submission { pty: Some(WindowSize { rows: 24, columns: 80 }), ..open };
        assert_eq!(settings.complete(terminal, WallTime(0)).world_size(), 1);
    }

    #[test]
    fn lines_are_labelled_when_a_job_has_several_processes() {
        let work = Work::command(["x"], "/");
        let asked: Submission = JobSpec { label: true, ..JobSpec::new("x", work, Request::new(1, 1)) }.into();
        let two = Settings { job: JobDefaults { nodes: Some(2), ..JobDefaults::default() }, ..Settings::default() };
        for (settings, nodes, labelled) in
            [(&Settings::default(), None, false), (&two, None, true), (&two, Some(1), false)]
        {
            let spec = settings.complete(Submission { nodes, ..asked.clone() }, WallTime(0));
            assert_eq!(spec.label, labelled, "{nodes:?}");
        }
    }
}
