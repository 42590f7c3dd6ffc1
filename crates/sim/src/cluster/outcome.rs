//! The outcome of a simulation.

use std::fmt;

/// The report about a world without violations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    /// A hash over the whole trace.
    pub trace_hash: u64,
    /// The number of lines in the trace.
    pub trace_lines: u64,
    /// The virtual time that passed, in milliseconds.
    pub virtual_ms: u64,
    /// The number of head starts.
    pub head_starts: u64,
    /// The number of agent starts.
    pub agent_starts: u64,
    /// Accepted jobs.
    pub jobs: u64,
    /// Started processes.
    pub processes: u64,
    /// Durable events.
    pub events: u64,
    /// The whole trace, if requested.
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

/// A violation. Its text has everything that an investigation needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The seed of the world.
    pub seed: u64,
    pub what: String,
    /// When the violation happened, in milliseconds of virtual time.
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
        write!(f, "to see the whole trace: hostler sim --seed {} --trace", self.seed)
    }
}
