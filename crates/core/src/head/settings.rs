//! What an operator may set about the head's decisions, while it runs.
//!
//! [`Setting`] is the table: every name with its kind, its meaning and what it may be. [`Settings`] holds the values. What comes in as
//! text is read and judged here ([`Settings::changed`]); [`super::decide`] makes an event of it. How the head is started (addresses,
//! directories) is none of this: that is settled before there is a state.

use std::fmt;
use std::str::FromStr;

use hostler_model::{JobSpec, ParseError, WallTime, parse_bytes, parse_duration};
use hostler_proto::api::Unsaid;
use hostler_proto::link::OUTPUT_CAP_BYTES;
use hostler_sched::Policy;
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// By how much a heartbeat may be late before the silence counts.
const LATENESS_MS: u64 = SECOND;

/// Values of the settings. All times are in milliseconds on the cluster's clock.
///
/// The three limits of silence must grow in the order in which they stand here, and the first must leave room for a heartbeat that
/// comes late: a machine under full load may take seconds to send one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// An agent that has nothing to say says so after this long.
    pub heartbeat_ms: u64,
    /// After how long a silence a node gets no new work.
    pub suspect_after_ms: u64,
    /// After how long a silence a node counts as down: what can run again without harm is placed elsewhere.
    pub down_after_ms: u64,
    /// After how long a silence every run on a node is given up. Longer, since this loses work where the node was only cut off.
    pub lost_after_ms: u64,
    /// Between TERM and KILL, unless the job says otherwise.
    pub grace_ms: u64,
    /// How long an ended job and its results are kept, fetched or not.
    pub retention_ms: u64,
    /// What results may take before fetched ones are dropped, in bytes; what the head was started with when absent.
    pub results_cap_bytes: Option<u64>,
    /// How much is kept of each output of a job, in bytes; [`OUTPUT_CAP_BYTES`] when absent.
    pub output_cap_bytes: Option<u64>,
    /// Whether accounts with a role above *user*, and the one that runs the head, are themselves when they come through a node, or call
    /// another one. Then root of any node can make itself an admin: a node's word is taken for who its users are.
    pub roles_through_nodes: bool,
    /// How many jobs of one user may wait, an array counting as one: each takes the head's memory. Operators' own do not count.
    pub waiting_jobs: u32,
    /// How much of the head's memory the waiting jobs of one user may take, in bytes. Operators' own do not count.
    pub waiting_bytes: u64,
    /// How waiting jobs are chosen.
    pub policy: Policy,
    /// What a submission has that does not say it. What is absent here is left to the tool that submits.
    pub job: JobDefaults,
}

/// What a submission has that does not say it itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobDefaults {
    /// Nodes of each task.
    pub nodes: Option<u32>,
    /// Processes on each node.
    pub tasks_per_node: Option<u32>,
    /// CPUs on each node.
    pub cpus: Option<u32>,
    /// Memory on each node, in bytes.
    pub memory_bytes: Option<u64>,
    /// The time limit in milliseconds, zero for none.
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
            waiting_jobs: 100_000,
            waiting_bytes: 64 << 20,
            // Backfill that never delays the first waiting job.
            policy: Policy::Easy,
            job: JobDefaults::default(),
        }
    }
}

/// A setting by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// [`Settings::heartbeat_ms`].
    Heartbeat,
    /// [`Settings::suspect_after_ms`].
    SuspectAfter,
    /// [`Settings::down_after_ms`].
    DownAfter,
    /// [`Settings::lost_after_ms`].
    LostAfter,
    /// [`Settings::grace_ms`].
    Grace,
    /// [`Settings::retention_ms`].
    Retention,
    /// [`Settings::results_cap_bytes`].
    ResultsCap,
    /// [`Settings::output_cap_bytes`].
    OutputCap,
    /// [`Settings::roles_through_nodes`].
    RolesThroughNodes,
    /// [`Settings::waiting_jobs`].
    WaitingJobs,
    /// [`Settings::waiting_bytes`].
    WaitingBytes,
    /// [`Settings::policy`].
    Policy,
    /// [`JobDefaults::nodes`].
    DefaultNodes,
    /// [`JobDefaults::tasks_per_node`].
    DefaultProcesses,
    /// [`JobDefaults::cpus`].
    DefaultCpus,
    /// [`JobDefaults::memory_bytes`].
    DefaultMemory,
    /// [`JobDefaults::time_limit_ms`].
    DefaultTimeLimit,
}

/// What kind of value a setting has, and between which bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time between these, in milliseconds.
    Time(u64, u64),
    /// A time of at most this, in milliseconds, or `none`.
    TimeOrNone(u64),
    /// A size of at least this, in bytes.
    Size(u64),
    /// A number from one to this.
    Count(u32),
    /// `yes` or `no`.
    Switch,
    /// A scheduling policy.
    Policy,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingValue {
    /// Milliseconds; zero stands for none where there may be none.
    TimeMs(u64),
    /// Bytes.
    Bytes(u64),
    /// A number.
    Count(u32),
    /// Yes or no.
    Switch(bool),
    /// A scheduling policy.
    Policy(Policy),
}

/// Who has set a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetBy {
    /// The user.
    pub user: String,
    /// When, on the wall clock.
    pub at: WallTime,
}

impl Setting {
    /// Every setting, in the order in which they are shown.
    pub const ALL: [Self; 17] = [
        Self::Heartbeat,
        Self::SuspectAfter,
        Self::DownAfter,
        Self::LostAfter,
        Self::Grace,
        Self::Retention,
        Self::ResultsCap,
        Self::OutputCap,
        Self::RolesThroughNodes,
        Self::WaitingJobs,
        Self::WaitingBytes,
        Self::Policy,
        Self::DefaultNodes,
        Self::DefaultProcesses,
        Self::DefaultCpus,
        Self::DefaultMemory,
        Self::DefaultTimeLimit,
    ];

    /// Its name.
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
            Self::WaitingJobs => "waiting-jobs",
            Self::WaitingBytes => "waiting-bytes",
            Self::Policy => "policy",
            Self::DefaultNodes => "default-nodes",
            Self::DefaultProcesses => "default-processes",
            Self::DefaultCpus => "default-cpus",
            Self::DefaultMemory => "default-memory",
            Self::DefaultTimeLimit => "default-time-limit",
        }
    }

    /// What it means, as the rest of a sentence.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Heartbeat => "an agent that has nothing to say says that it lives after this long",
            Self::SuspectAfter => "a node that is silent for this long gets no new work",
            Self::DownAfter => "a node that is silent for this long is down: what can run again runs elsewhere",
            Self::LostAfter => "the jobs of a node that is silent for this long are given up",
            Self::Grace => "the time between TERM and KILL, unless the job says otherwise",
            Self::Retention => "how long ended jobs and their results are kept",
            Self::ResultsCap => "what results may take on the head's disk before fetched ones are dropped",
            Self::OutputCap => "how much is kept of a job's stdout, and of its stderr; the rest is cut",
            Self::RolesThroughNodes => {
                "whether accounts with a role above user, and the one that runs the head, are themselves through nodes; only admins change it"
            }
            Self::WaitingJobs => "how many jobs of one user may wait; an array is one, and operators may have more",
            Self::WaitingBytes => "how much of the head's memory the waiting jobs of one user may take",
            Self::Policy => {
                "fcfs keeps the order of the queue; easy lets later jobs start when that delays none before them"
            }
            Self::DefaultNodes => "nodes of a job that does not say how many",
            Self::DefaultProcesses => "processes on each node of a job that does not say how many",
            Self::DefaultCpus => "CPUs on each node of a job that does not say how many",
            Self::DefaultMemory => "memory on each node of a job that does not say how much",
            Self::DefaultTimeLimit => "the time limit of a job that does not say one",
        }
    }

    /// What kind of value it has.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Heartbeat => Kind::Time(SECOND, 10 * MINUTE),
            Self::SuspectAfter | Self::DownAfter => Kind::Time(2 * SECOND, DAY),
            Self::LostAfter => Kind::Time(2 * SECOND, 30 * DAY),
            Self::Grace => Kind::Time(0, HOUR),
            Self::Retention => Kind::Time(MINUTE, 3650 * DAY),
            Self::ResultsCap | Self::OutputCap | Self::WaitingBytes => Kind::Size(1 << 20),
            Self::RolesThroughNodes => Kind::Switch,
            Self::WaitingJobs => Kind::Count(100_000_000),
            Self::Policy => Kind::Policy,
            Self::DefaultNodes => Kind::Count(10_000),
            Self::DefaultProcesses => Kind::Count(4_096),
            Self::DefaultCpus => Kind::Count(65_536),
            Self::DefaultMemory => Kind::Size(1 << 20),
            Self::DefaultTimeLimit => Kind::TimeOrNone(3650 * DAY),
        }
    }

    /// What it is when nobody has set it, in words.
    ///
    /// # Panics
    /// Never: what is not named here has a value by default.
    #[must_use]
    pub fn default_text(self) -> String {
        match self {
            Self::ResultsCap => "half of the disk".to_owned(),
            Self::OutputCap => write_size(OUTPUT_CAP_BYTES),
            Self::DefaultNodes | Self::DefaultProcesses | Self::DefaultCpus => "1".to_owned(),
            Self::DefaultMemory => "512M, cmrun 100M".to_owned(),
            Self::DefaultTimeLimit => "none".to_owned(),
            _ => Settings::default().get(self).map(|value| self.write(value)).expect("all others have a value"),
        }
    }

    /// Reads a value as people write it.
    ///
    /// # Errors
    /// A sentence about what it may be, when it is not one of those.
    pub fn read(self, text: &str) -> Result<SettingValue, String> {
        let kind = self.kind();
        let wrong = || format!("{self} is {kind}, and not `{text}`");
        let value = match kind {
            Kind::TimeOrNone(_) if text == "none" => SettingValue::TimeMs(0),
            Kind::Time(..) | Kind::TimeOrNone(_) => {
                let span = parse_duration(text).map_err(|error| match text.trim().parse::<f64>() {
                    // Which unit was meant?
                    Ok(_) => format!("{self}: {error}"),
                    Err(_) => wrong(),
                })?;
                SettingValue::TimeMs(u64::try_from(span.as_millis()).map_err(|_| wrong())?)
            }
            Kind::Size(_) => SettingValue::Bytes(parse_bytes(text).map_err(|_| wrong())?),
            Kind::Count(_) => SettingValue::Count(text.parse().map_err(|_| wrong())?),
            Kind::Switch => match text {
                "yes" => SettingValue::Switch(true),
                "no" => SettingValue::Switch(false),
                _ => return Err(wrong()),
            },
            Kind::Policy => SettingValue::Policy(text.parse().map_err(|_| wrong())?),
        };
        if kind.holds(value) { Ok(value) } else { Err(wrong()) }
    }

    /// Writes a value so that [`Self::read`] reads the same.
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
        found.ok_or_else(|| ParseError::new(text, "the name of a setting such as retention"))
    }
}

impl Kind {
    /// Whether a value is of this kind and within its bounds.
    fn holds(self, value: SettingValue) -> bool {
        match (self, value) {
            (Self::Time(least, most), SettingValue::TimeMs(ms)) => (least..=most).contains(&ms),
            (Self::TimeOrNone(most), SettingValue::TimeMs(ms)) => ms <= most,
            (Self::Size(least), SettingValue::Bytes(bytes)) => bytes >= least,
            (Self::Count(most), SettingValue::Count(count)) => (1..=most).contains(&count),
            (Self::Switch, SettingValue::Switch(_)) | (Self::Policy, SettingValue::Policy(_)) => true,
            _ => false,
        }
    }

    /// The unit in which people write it, for a table.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time(..) | Self::TimeOrNone(_) => "time",
            Self::Size(_) => "size",
            Self::Count(_) => "number",
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
            Self::Count(most) => write!(f, "a number from 1 to {most}"),
            Self::Switch => write!(f, "yes or no"),
            Self::Policy => write!(f, "fcfs or easy"),
        }
    }
}

impl Settings {
    /// A setting's value; `None` when that is left to others.
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
            Setting::WaitingJobs => Some(Count(self.waiting_jobs)),
            Setting::WaitingBytes => Some(Bytes(self.waiting_bytes)),
            Setting::Policy => Some(SettingValue::Policy(self.policy)),
            Setting::DefaultNodes => self.job.nodes.map(Count),
            Setting::DefaultProcesses => self.job.tasks_per_node.map(Count),
            Setting::DefaultCpus => self.job.cpus.map(Count),
            Setting::DefaultMemory => self.job.memory_bytes.map(Bytes),
            Setting::DefaultTimeLimit => self.job.time_limit_ms.map(TimeMs),
        }
    }

    /// The settings with one of them changed, or as it is by default when `value` is absent.
    ///
    /// # Panics
    /// When the value is of another kind than the setting's: it was not read by [`Setting::read`], or the log is damaged.
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

    /// Where a setting's value is.
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
            Setting::WaitingJobs => Slot::Count(&mut self.waiting_jobs),
            Setting::WaitingBytes => Slot::Wide(&mut self.waiting_bytes),
            Setting::Policy => Slot::Policy(&mut self.policy),
            Setting::DefaultNodes => Slot::MayBeCount(&mut self.job.nodes),
            Setting::DefaultProcesses => Slot::MayBeCount(&mut self.job.tasks_per_node),
            Setting::DefaultCpus => Slot::MayBeCount(&mut self.job.cpus),
            Setting::DefaultMemory => Slot::MayBeWide(&mut self.job.memory_bytes),
            Setting::DefaultTimeLimit => Slot::MayBeWide(&mut self.job.time_limit_ms),
        }
    }

    /// What `setting` would be as `text`, or by default when that is absent, if it then fits the others.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub(super) fn changed(&self, setting: Setting, text: Option<&str>) -> Result<Option<SettingValue>, String> {
        let value = text.map(|text| setting.read(text)).transpose()?;
        self.with(setting, value).check()?;
        Ok(value)
    }

    /// Whether the limits of silence are in their order.
    fn check(&self) -> Result<(), String> {
        if self.suspect_after_ms < self.heartbeat_ms + LATENESS_MS {
            return Err(format!(
                "suspect-after ({}) must be at least {} more than heartbeat ({}), which may come late",
                write_time(self.suspect_after_ms),
                write_time(LATENESS_MS),
                write_time(self.heartbeat_ms)
            ));
        }
        let limits = [
            (Setting::SuspectAfter, self.suspect_after_ms),
            (Setting::DownAfter, self.down_after_ms),
            (Setting::LostAfter, self.lost_after_ms),
        ];
        match limits.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
            None => Ok(()),
            Some(pair) => Err(format!(
                "{} ({}) must be less than {} ({})",
                pair[0].0,
                write_time(pair[0].1),
                pair[1].0,
                write_time(pair[1].1)
            )),
        }
    }

    /// Puts what operators have set in the place of what a submission did not say itself.
    ///
    /// A job with a terminal stays a single process: nobody has asked for more.
    pub fn fill(&self, spec: &mut JobSpec, unsaid: &[Unsaid]) {
        for unsaid in unsaid {
            match unsaid {
                Unsaid::Nodes if spec.pty.is_none() => spec.nodes = self.job.nodes.unwrap_or(spec.nodes),
                Unsaid::TasksPerNode if spec.pty.is_none() => {
                    spec.tasks_per_node = self.job.tasks_per_node.unwrap_or(spec.tasks_per_node);
                }
                Unsaid::Nodes | Unsaid::TasksPerNode => {}
                Unsaid::Cpus => spec.request.cpus = self.job.cpus.unwrap_or(spec.request.cpus),
                Unsaid::MemoryBytes => {
                    spec.request.memory_bytes = self.job.memory_bytes.unwrap_or(spec.request.memory_bytes);
                }
                Unsaid::TimeLimitMs => {
                    if let Some(ms) = self.job.time_limit_ms {
                        spec.time_limit_ms = Some(ms).filter(|ms| *ms > 0);
                    }
                }
            }
        }
        // Only now it is known whether there is more than one writer to tell apart.
        spec.label &= spec.world_size() > 1;
    }
}

/// Where a setting's value is; what may be absent is left to others then.
enum Slot<'a> {
    Wide(&'a mut u64),
    Count(&'a mut u32),
    Switch(&'a mut bool),
    Policy(&'a mut Policy),
    MayBeWide(&'a mut Option<u64>),
    MayBeCount(&'a mut Option<u32>),
}

/// A time in the largest unit of which it is a whole number.
fn write_time(ms: u64) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    match units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// A size in the largest unit of which it is a whole number.
fn write_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{Request, WindowSize, Work};

    use super::*;

    fn after(settings: &Settings, setting: Setting, text: &str) -> Result<Settings, String> {
        Ok(settings.with(setting, settings.changed(setting, Some(text))?))
    }

    #[test]
    fn every_value_is_read_as_it_was_written() {
        for setting in Setting::ALL {
            assert_eq!(setting.as_str().parse(), Ok(setting));
            let stored = hostler_proto::encode(&setting);
            assert_eq!(stored, hostler_proto::encode(&setting.as_str()), "one word everywhere");
            let text = match setting.kind() {
                Kind::Time(..) => "61s",
                Kind::TimeOrNone(_) => "90m",
                Kind::Size(_) => "1536M",
                Kind::Count(_) => "3",
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
    fn a_store_of_before_has_the_defaults_of_what_it_does_not_know() {
        let of_before = std::collections::BTreeMap::from([("heartbeat_ms", 1_500), ("retention_ms", DAY)]);
        let read: Settings = hostler_proto::decode(&hostler_proto::encode(&of_before)).expect("fields may be absent");
        assert_eq!(read, Settings { heartbeat_ms: 1_500, retention_ms: DAY, ..Settings::default() });
    }

    #[test]
    fn every_setting_is_documented_as_it_is() {
        let page = include_str!("../../../../docs/reference/settings.md");
        for setting in Setting::ALL {
            let (default, kind, meaning) = (setting.default_text(), setting.kind(), setting.meaning());
            let row = format!("| `{setting}` | {default} | {kind} | {meaning} |");
            assert!(page.contains(&row), "docs/reference/settings.md lacks this row:\n{row}");
        }
        let table = page.split("\n## ").next().expect("split yields at least one part");
        let rows = table.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, Setting::ALL.len(), "docs/reference/settings.md has a setting that there is not");
    }

    #[test]
    fn the_defaults_are_right_and_what_is_wrong_is_said() {
        let settings = Settings::default();
        assert_eq!(settings.check(), Ok(()));
        let refusal = |setting, text: &str| after(&settings, setting, text).expect_err(text);
        assert!(refusal(Setting::SuspectAfter, "4500ms").contains("1s more than heartbeat (4s)"));
        assert!(refusal(Setting::SuspectAfter, "9s").contains("suspect-after (9s) must be less than down-after (9s)"));
        assert!(refusal(Setting::LostAfter, "5s").contains("must be less than lost-after (5s)"));
        assert!(refusal(Setting::Heartbeat, "10ms").contains("a time from 1s to 10m, and not `10ms`"));
        assert!(refusal(Setting::Retention, "soon").contains("retention is a time"));
        assert!(refusal(Setting::Retention, "none").contains("retention is a time"));
        assert!(refusal(Setting::DefaultMemory, "100").contains("a size of at least 1M"));
        assert!(refusal(Setting::DefaultNodes, "0").contains("a number from 1"));
        assert!(refusal(Setting::Policy, "random").contains("fcfs or easy"));
        let slower = after(&settings, Setting::LostAfter, "10m").expect("longer");
        let slower = after(&slower, Setting::DownAfter, "2m").expect("longer");
        assert_eq!(after(&slower, Setting::SuspectAfter, "90s").map(|it| it.suspect_after_ms), Ok(90_000));
    }

    #[test]
    fn only_what_was_left_unsaid_is_filled_in_and_only_with_what_was_set() {
        let all = [Unsaid::Nodes, Unsaid::TasksPerNode, Unsaid::Cpus, Unsaid::MemoryBytes, Unsaid::TimeLimitMs];
        let asked = JobSpec::new("x", Work::command(["x"], "/"), Request::new(3, 7 << 20));
        let mut spec = asked.clone();
        Settings::default().fill(&mut spec, &all);
        assert_eq!(spec, asked, "nothing is set");
        let job = JobDefaults {
            nodes: Some(2),
            tasks_per_node: Some(4),
            cpus: Some(1),
            memory_bytes: Some(1 << 30),
            time_limit_ms: Some(HOUR),
        };
        let settings = Settings { job, ..Settings::default() };
        settings.fill(&mut spec, &[Unsaid::MemoryBytes]);
        assert_eq!((spec.request.memory_bytes, spec.request.cpus, spec.nodes), (1 << 30, 3, 1));
        settings.fill(&mut spec, &all);
        assert_eq!((spec.nodes, spec.tasks_per_node, spec.request.cpus), (2, 4, 1));
        assert_eq!(spec.time_limit_ms, Some(HOUR));
        let mut terminal = JobSpec { pty: Some(WindowSize { rows: 24, columns: 80 }), ..asked };
        settings.fill(&mut terminal, &all);
        assert_eq!(terminal.world_size(), 1);
    }

    #[test]
    fn lines_are_labelled_when_there_are_several_writers_whoever_said_so() {
        let work = Work::command(["x"], "/");
        let asked = JobSpec { label: true, ..JobSpec::new("x", work, Request::new(1, 1)) };
        let two = Settings { job: JobDefaults { nodes: Some(2), ..JobDefaults::default() }, ..Settings::default() };
        for (settings, unsaid, labelled) in [
            (&Settings::default(), vec![Unsaid::Nodes], false),
            (&two, vec![Unsaid::Nodes], true),
            (&two, vec![], false),
        ] {
            let mut spec = asked.clone();
            settings.fill(&mut spec, &unsaid);
            assert_eq!(spec.label, labelled, "{unsaid:?}");
        }
    }
}
