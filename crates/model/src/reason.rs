//! Why a job waits, in words a person understands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{JobId, NodeName, QuotaKind, format_bytes};

/// Why a job is pending. Every pending job has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// It was submitted or held with `hold` and waits for `release`.
    Held,
    /// It waits for other jobs to reach the state it named.
    Dependency {
        /// The jobs it still waits for.
        jobs: Vec<JobId>,
    },
    /// As many tasks of its array run as its `%limit` allows.
    ArrayLimit {
        /// The limit.
        limit: u32,
    },
    /// As much runs already as a quota allows.
    Quota {
        /// A user, or `group` and its name.
        whose: String,
        /// What is limited.
        #[serde(rename = "of")]
        kind: QuotaKind,
        /// How much of it is used, by what runs and by what is ahead in the queue.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// No node that is up has enough free and it is the first in the queue, or no node is large enough at all.
    Resources {
        /// The nodes that came closest and what each lacks, best first; at most three.
        closest: Vec<Shortfall>,
    },
    /// Jobs ahead of it in the queue wait for the same resources.
    Priority {
        /// How many are ahead.
        ahead: u64,
    },
    /// It would fit now but could delay the first waiting job.
    Reservation {
        /// The job that holds the reservation.
        job: JobId,
    },
    /// No node is up that could ever run it; one that could is down or suspect.
    NodesDown {
        /// Those nodes, at most three.
        nodes: Vec<NodeName>,
    },
    /// It was submitted a moment ago and has not been looked at yet.
    Scheduling,
}

/// What one node lacks for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// The node.
    pub node: NodeName,
    /// Free CPUs it lacks.
    pub cpus: u32,
    /// Free memory it lacks, in bytes.
    pub memory_bytes: u64,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held until released"),
            Self::Dependency { jobs } => write!(f, "waits for {}", Jobs(jobs)),
            Self::Quota { whose, kind, used, limit } => write!(
                f,
                "the quota of {whose} allows {} running, and {} of that is taken",
                kind.amount(*limit),
                kind.figure(*used)
            ),
            Self::ArrayLimit { limit } => write!(f, "its array runs at most {limit} tasks at once"),
            Self::Resources { closest } => match closest.first() {
                Some(nearest) => write!(f, "no node has enough free now; closest is {nearest}"),
                None => f.write_str("no node has enough free now"),
            },
            Self::Priority { ahead: 1 } => f.write_str("one job is ahead of it"),
            Self::Priority { ahead } => write!(f, "{ahead} jobs are ahead of it"),
            Self::Reservation { job } => {
                write!(f, "starting it now could delay job {job}, which is first in the queue")
            }
            Self::NodesDown { nodes } => {
                f.write_str("every node that could run it is down:")?;
                nodes.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Self::Scheduling => f.write_str("about to be scheduled"),
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which lacks ", self.node)?;
        match (self.cpus, self.memory_bytes) {
            (0, memory) => write!(f, "{} of memory", format_bytes(memory)),
            (1, 0) => f.write_str("1 CPU"),
            (cpus, 0) => write!(f, "{cpus} CPUs"),
            (cpus, memory) => write!(f, "{cpus} CPUs and {} of memory", format_bytes(memory)),
        }
    }
}

/// `job 3`, or `jobs 3, 4, 5`.
struct Jobs<'a>(&'a [JobId]);

impl fmt::Display for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "job " } else { "jobs " })?;
        for (i, job) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            job.fmt(f)?;
        }
        Ok(())
    }
}
