//! What `sacct` lists: jobs and their scripts, with the figures that several fields show.

use hostler_model::{NodeName, WallTime};
use hostler_proto::link::{StepRecord, Usage};
use hostler_remote::step::OUT_OF_MEMORY;
use hostler_slurm::hostlist::compress;
use hostler_slurm::size::Conversion;
use hostler_slurm::state::State;

use super::super::clock::Clock;
use super::super::rows::{Accounts, Row, split_code, step_exit};

/// A job, or a step of it. Slurm counts the script as a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) row: Row<'a>,
    /// Whether this is a step: the script, unless `step` is another one.
    pub(super) is_step: bool,
    /// A step that `srun` or `hostler step` started.
    pub(super) step: Option<&'a StepRecord>,
}

/// What values need besides their entry.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) clock: Clock,
    pub(super) accounts: Accounts,
    pub(super) conversion: Conversion,
    /// Start and end of the time to which starts and ends are cut.
    pub(super) cut: Option<(WallTime, WallTime)>,
}

impl Report {
    /// Time of the start.
    pub(super) fn start(&self, entry: &Entry<'_>) -> Option<WallTime> {
        let start = entry.step.map(|step| step.started_at).or_else(|| entry.row.started_at())?;
        Some(self.cut.map_or(start, |(from, _)| start.max(from)))
    }

    /// Time of the end.
    pub(super) fn end(&self, entry: &Entry<'_>) -> Option<WallTime> {
        let ended_at = match entry.step {
            Some(step) => step.ended_at,
            None => entry.row.ended_at(),
        };
        match self.cut {
            None => ended_at,
            Some((_, to)) => entry.row.started_at().map(|_| ended_at.map_or(to, |end| end.min(to))),
        }
    }

    /// Seconds from the start to the end, or to now.
    pub(super) fn elapsed(&self, entry: &Entry<'_>) -> u64 {
        let Some(start) = self.start(entry) else { return 0 };
        self.end(entry).unwrap_or(self.clock.now).ms_since(start) / 1000
    }

    /// Seconds from the time at which the job could have started to its start, or to now.
    pub(super) fn planned(&self, entry: &Entry<'_>) -> u64 {
        let row = &entry.row;
        let Some(eligible) = row.eligible_at() else { return 0 };
        row.started_at().unwrap_or(self.clock.now).ms_since(eligible) / 1000
    }
}

impl Entry<'_> {
    /// The id: `12`, `12_3.batch`, `12.0`.
    pub(super) fn id(&self) -> String {
        self.row.id() + &self.suffix()
    }

    /// What follows the id of the job.
    pub(super) fn suffix(&self) -> String {
        match self.step {
            Some(step) => format!(".{}", step.step),
            None if self.is_step => ".batch".to_owned(),
            None => String::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self.step {
            Some(step) => &step.name,
            None if self.is_step => "batch",
            None => &self.row.job.name,
        }
    }

    pub(super) fn state(&self) -> State {
        if let Some(step) = self.step {
            return match step.exit_code {
                _ if step.ended_at.is_none() => State::Running,
                Some(0) => State::Completed,
                Some(OUT_OF_MEMORY) => State::OutOfMemory,
                Some(code) if split_code(code).1 == 0 => State::Failed,
                _killed_or_lost => State::Cancelled,
            };
        }
        match (self.row.state(), self.is_step) {
            (State::Completing, _) => State::Running,
            // The script was killed, whatever the reason.
            (State::Timeout | State::Preempted, true) => State::Cancelled,
            (State::Failed, true) if self.row.exit().1 > 0 => State::Cancelled,
            (state, _) => state,
        }
    }

    pub(super) fn exit(&self) -> (i32, i32) {
        if let Some(step) = self.step {
            return step_exit(step);
        }
        match (self.state(), self.is_step) {
            (State::Cancelled, true) if self.row.state() != State::Failed => (0, 15),
            _ => self.row.exit(),
        }
    }

    /// The uid of the user who cancelled the job; `None` if a dependency did.
    pub(super) fn cancelled_by(&self, accounts: &mut Accounts) -> Option<u32> {
        let is_cancelled = !self.is_step && self.state() == State::Cancelled;
        (is_cancelled && !self.row.is_cancelled_by_dependency()).then(|| accounts.uid(&self.row.job.user))
    }

    pub(super) fn is_allocated(&self) -> bool {
        !self.row.nodes().is_empty()
    }

    /// CPUs that the job has, or had.
    pub(super) fn cpus(&self) -> u64 {
        if let Some(step) = self.step {
            return step.cpus.max(step.tasks).into();
        }
        match (self.is_allocated(), self.is_step) {
            (false, _) => 0,
            (true, false) => self.row.cpus(),
            (true, true) => u64::from(self.row.job.cpus),
        }
    }

    /// Nodes that the job has, or asks for.
    pub(super) fn nodes(&self) -> u32 {
        match self.step {
            Some(step) => u32::try_from(step.nodes.len()).unwrap_or(u32::MAX),
            None if self.is_step => 1,
            None => self.row.job.nodes,
        }
    }

    pub(super) fn node_list(&self) -> String {
        match self.node_names() {
            names if names.is_empty() => "None assigned".to_owned(),
            names => compress(&names),
        }
    }

    /// The names of the nodes, in order of rank; empty before the start.
    pub(super) fn node_names(&self) -> Vec<&str> {
        match self.step {
            Some(step) => step.nodes.iter().map(NodeName::as_str).collect(),
            None if self.is_step => self.row.nodes().into_iter().take(1).collect(),
            None => self.row.nodes(),
        }
    }

    /// The number of processes of a step.
    pub(super) fn tasks(&self) -> u32 {
        self.step.map_or(1, |step| step.tasks)
    }

    /// What the job used, or a step of it. The script has what no other step used.
    pub(super) fn usage(&self) -> Option<Usage> {
        if let Some(step) = self.step {
            return step.ended_at.map(|_| Usage {
                user_ms: step.cpu_ms.saturating_sub(step.system_ms),
                system_ms: step.system_ms,
                max_rss_bytes: step.peak_memory_bytes.unwrap_or(0),
                ..Usage::default()
            });
        }
        let task = self.row.task?;
        let mut usage = task.usage?;
        for step in task.steps.iter().filter(|_| self.is_step) {
            if step.is_script() {
                usage.max_rss_bytes = step.peak_memory_bytes.unwrap_or(usage.max_rss_bytes);
            } else {
                usage.user_ms = usage.user_ms.saturating_sub(step.cpu_ms.saturating_sub(step.system_ms));
                usage.system_ms = usage.system_ms.saturating_sub(step.system_ms);
            }
        }
        Some(usage)
    }

    /// Resources by name, in the order of the names.
    pub(super) fn tres(&self, conversion: Conversion) -> String {
        let text = self.row.tres_of(self.nodes(), conversion);
        let mut parts: Vec<&str> = text.split(',').collect();
        if self.is_step {
            parts.retain(|part| !part.starts_with("billing="));
        }
        parts.sort_unstable();
        parts.join(",")
    }
}
