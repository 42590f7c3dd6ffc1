//! What the user asked for, in Slurm's terms.

use std::fmt::Write;

use hostler_model::{Dependency, Reason, WallTime};
use hostler_proto::link::StepRecord;
use hostler_slurm::hostlist::{compress, expand};
use hostler_slurm::script::words;
use hostler_slurm::size::{Conversion, Unit, convert};
use hostler_slurm::state::State;

use super::{Row, raw_status, step_exit};
use crate::slurm::request::{SINGLETON, WORD};

impl<'a> Row<'a> {
    /// Memory of all nodes, in mebibytes.
    pub(crate) fn memory_mib(&self) -> u64 {
        self.memory_mib_per_node().saturating_mul(u64::from(self.job.nodes))
    }

    /// Memory of each node, in mebibytes.
    pub(crate) fn memory_mib_per_node(&self) -> u64 {
        self.job.memory_bytes.div_ceil(1 << 20)
    }

    /// Memory of each CPU, in mebibytes, if the user gave that.
    pub(crate) fn memory_mib_per_cpu(&self) -> Option<u64> {
        self.number("slurm.mem_per_cpu")
    }

    /// The least number of CPUs of each node.
    pub(crate) fn min_cpus_per_node(&self) -> u32 {
        match self.label("slurm.ntasks") {
            Some(_) => self.cpus_per_task().saturating_mul(self.number("slurm.ntasks_per_node").unwrap_or(1)),
            None => self.job.cpus,
        }
    }

    /// The number in a label.
    pub(crate) fn number<N: std::str::FromStr>(&self, label: &str) -> Option<N> {
        self.label(label)?.parse().ok()
    }

    /// GPUs and counted resources per node, as `gres/gpu:2,gres/fpga:1`.
    pub(crate) fn gres(&self) -> String {
        self.each_gres().map(|(name, amount)| format!("gres/{name}:{amount}")).collect::<Vec<_>>().join(",")
    }

    fn each_gres(&self) -> impl Iterator<Item = (&'a str, u64)> {
        let job = self.job;
        let gpus = (job.gpus > 0).then_some(("gpu", u64::from(job.gpus)));
        gpus.into_iter().chain(job.counted.iter())
    }

    /// The resources of all nodes, as `cpu=4,mem=2G,node=1,billing=4`.
    pub(crate) fn tres(&self, conversion: Conversion) -> String {
        self.tres_of(self.job.nodes, conversion)
    }

    /// The resources of some nodes.
    pub(crate) fn tres_of(&self, nodes: u32, conversion: Conversion) -> String {
        let cpus = u64::from(self.job.cpus) * u64::from(nodes);
        let memory = self.memory_mib_per_node().saturating_mul(u64::from(nodes));
        let memory = convert(memory as f64, Unit::Mega, conversion);
        let mut text = format!("cpu={cpus},mem={memory},node={nodes},billing={cpus}");
        for (name, amount) in self.each_gres() {
            write!(text, ",gres/{name}={}", amount.saturating_mul(u64::from(nodes))).expect("text grows");
        }
        text
    }

    /// The number of processes that the job runs on all nodes.
    pub(crate) fn tasks(&self) -> u64 {
        let usual = || u64::from(self.job.nodes) * u64::from(self.job.tasks_per_node);
        self.number("slurm.ntasks").unwrap_or_else(usual)
    }

    /// The number of CPUs of each process.
    pub(crate) fn cpus_per_task(&self) -> u32 {
        self.number("slurm.cpus_per_task").unwrap_or_else(|| match self.label("slurm.ntasks") {
            Some(_) => 1,
            None => self.job.cpus / self.job.tasks_per_node.max(1),
        })
    }

    /// Whether other jobs may run on the job's nodes, in Slurm's words.
    pub(crate) fn over_subscribe(&self) -> &'static str {
        if self.job.surroundings.exclusive { "NO" } else { "OK" }
    }

    /// Slurm's priority: zero stands for a held job.
    pub(crate) fn priority(&self) -> u32 {
        if self.is_held() { 0 } else { u32::try_from(self.job.priority.max(1)).unwrap_or(1) }
    }

    /// The dependencies that the job still waits for.
    pub(crate) fn dependency(&self) -> String {
        if self.state() != State::Pending {
            return String::new();
        }
        let unmet = &self.job.unmet;
        let separator = if unmet.iter().any(|dependency| dependency.alternative) { "?" } else { "," };
        // A singleton waits for the end of each earlier job of its name, besides the jobs that the user named.
        let singleton = self.label(SINGLETON).map(|named| named.split(',').collect::<Vec<_>>());
        let is_named = |dependency: &&Dependency| {
            let text = dependency.plain().to_string();
            singleton.as_ref().is_none_or(|named| named.contains(&text.as_str()))
        };
        let word = unmet.iter().any(|dependency| !is_named(&dependency)).then(|| WORD.to_owned());
        let all = unmet.iter().filter(is_named).map(|dependency| dependency.plain().to_string()).chain(word);
        all.map(|dependency| format!("{dependency}(unfulfilled)")).collect::<Vec<_>>().join(separator)
    }

    /// The nodes in a label that the user gave, as a host list.
    pub(crate) fn named_nodes(&self, label: &str) -> String {
        let list = self.label(label).unwrap_or_default();
        expand(list).map_or_else(|_| list.to_owned(), |names| compress(&names))
    }

    /// The script's path and its arguments, without quotes as Slurm writes them. `None` if the user gave a script without a
    /// file, or may not see it.
    pub(crate) fn command(&self) -> Option<String> {
        let command = self.job.command.as_deref()?;
        let is_made = self.job.script && ["wrap", "sbatch"].contains(&command);
        // The head quotes the words for a shell.
        (!is_made).then(|| words(command).map_or_else(|_| command.to_owned(), |words| words.join(" ")))
    }

    /// The largest exit code of the steps that `srun` started and that have ended: exit code and signal.
    pub(crate) fn derived_exit(&self, live: &[StepRecord]) -> (i32, i32) {
        let steps = self.task.map_or(&[][..], |task| &task.steps).iter().chain(live);
        steps.filter(|step| !step.is_script()).map(step_exit).max_by_key(|exit| raw_status(*exit)).unwrap_or_default()
    }

    /// The node of the script; of an allocation, the machine that asked for it.
    pub(crate) fn batch_host(&self) -> Option<&'a str> {
        if self.job.allocation { self.label("slurm.submit_host") } else { self.nodes().first().copied() }
    }

    /// Time of the start, or of the expected start; `None` if it is not known.
    pub(crate) fn expected_start(&self) -> Option<WallTime> {
        let waits_for_time = matches!(self.job.reason, Some(Reason::BeginTime { .. })) || self.is_held();
        let begin = self.job.begin_at.filter(|_| waits_for_time);
        let expected = || self.job.expected_start_at.or(begin).filter(|_| self.state() == State::Pending);
        self.started_at().or_else(expected)
    }

    /// Time of the end, or at which the time limit ends the job.
    pub(crate) fn expected_end(&self) -> Option<WallTime> {
        let at_limit = || {
            let limit = i64::try_from(self.job.time_limit_ms?).ok()?;
            Some(WallTime(self.expected_start()?.0.saturating_add(limit)))
        };
        self.ended_at().or_else(at_limit)
    }
}
