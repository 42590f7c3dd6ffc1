//! What came of a run.

use std::fmt;

/// A world that lived through everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed it came from.
    pub seed: u64,
    /// A hash over everything that happened.
    pub trace_hash: u64,
    /// How many lines the trace had.
    pub trace_lines: u64,
    /// How much virtual time passed, in milliseconds.
    pub virtual_ms: u64,
    /// How often a head started.
    pub head_starts: u64,
    /// How often an agent started.
    pub agent_starts: u64,
    /// Jobs that were accepted.
    pub jobs: u64,
    /// Processes that were started.
    pub processes: u64,
    /// Events that became durable.
    pub events: u64,
    /// The whole trace, if it was asked for.
    pub trace: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "seed {}: {} jobs, {} processes, {} events, {} head and {} agent starts in {:.1} virtual seconds; trace {:016x}",
            self.seed,
            self.jobs,
            self.processes,
            self.events,
            self.head_starts,
            self.agent_starts,
            self.virtual_ms as f64 / 1000.0,
            self.trace_hash,
        )
    }
}

/// Something is wrong. Its text has all that is needed to look into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// When, in milliseconds of virtual time.
    pub virtual_ms: u64,
    /// The end of the trace.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {} after {} ms: {}", self.seed, self.virtual_ms, self.what)?;
        write!(f, "to see all that happened: hostler sim --seed {} --trace", self.seed)
    }
}
