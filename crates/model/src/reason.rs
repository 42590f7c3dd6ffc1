//! Why a job waits, in words a person understands.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Constraint, JobId, NodeName, PartitionName, QuotaKind, Request, format_duration};

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
    /// An admin keeps its user out.
    Blocked {
        /// The account that is blocked.
        user: String,
        /// Why, in the admin's words.
        why: Option<String>,
    },
    /// Its partition starts nothing at present.
    PartitionPaused {
        /// The partition.
        partition: PartitionName,
    },
    /// Its partition was removed.
    PartitionGone {
        /// The partition.
        partition: PartitionName,
    },
    /// No node that it may use is in the cluster, whatever its size.
    NoNodes {
        /// The partition whose nodes it may use; all when absent.
        partition: Option<PartitionName>,
        /// What they must have.
        constraint: Option<Constraint>,
        /// There are such nodes, but it is a job of root and none of them runs those.
        #[serde(default)]
        for_root: bool,
    },
    /// No node that is up has enough free and it is the first in the queue, or no node is large enough at all.
    Resources {
        /// The nodes that came closest and what each lacks, best first; at most three.
        closest: Vec<Shortfall>,
    },
    /// Too few nodes that are up have enough free at once, and it is the first in the queue; or too few are large enough at all.
    TooFewNodes {
        /// How many it needs.
        wanted: u32,
        /// How many have enough.
        enough: u64,
        /// The others that came closest and what each lacks, best first; at most three.
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
    /// Too few nodes are up that could ever run it; some that could are down or suspect.
    NodesDown {
        /// Those nodes, at most three.
        nodes: Vec<NodeName>,
        /// How many nodes it needs at once; zero where an older release wrote this.
        #[serde(default)]
        wanted: u32,
    },
    /// Too few nodes that take work could ever run it; some that an operator drains could.
    NodesDrained {
        /// Those nodes, at most three with the next.
        nodes: Vec<NodeName>,
        /// Others that could and are down or suspect.
        down: Vec<NodeName>,
        /// How many nodes it needs at once; zero where an older release wrote this.
        #[serde(default)]
        wanted: u32,
    },
    /// Nodes are being switched on for which it may wait.
    Waking {
        /// Which, at most three.
        nodes: Vec<WakingNode>,
    },
    /// Nodes that could run it are off and are not being switched on.
    NodesAsleep {
        /// Which.
        nodes: Vec<NodeName>,
        /// Why, of at most three.
        why: String,
    },
    /// It was submitted a moment ago and has not been looked at yet.
    Scheduling,
}

/// A node that is being switched on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakingNode {
    /// Which.
    pub node: NodeName,
    /// For how long already, in milliseconds.
    pub for_ms: u64,
    /// How long it usually takes, in milliseconds; nothing while that was not seen.
    pub usual_ms: Option<u64>,
}

/// What one node lacks for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// The node.
    pub node: NodeName,
    /// What it lacks of a request: of what is free there, or of what it has in all.
    #[serde(flatten)]
    pub lacks: Request,
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
            Self::Blocked { user, why: None } => write!(f, "{user} is blocked on this cluster"),
            Self::Blocked { user, why: Some(why) } => write!(f, "{user} is blocked on this cluster: {why}"),
            Self::PartitionPaused { partition } => write!(f, "partition {partition} is paused"),
            Self::PartitionGone { partition } => write!(f, "there is no partition {partition} any more"),
            Self::NoNodes { partition, constraint, for_root } => {
                f.write_str("no node")?;
                partition.iter().try_for_each(|partition| write!(f, " of partition {partition}"))?;
                constraint.iter().try_for_each(|constraint| write!(f, " that has {constraint}"))?;
                f.write_str(if *for_root { " runs jobs of root" } else { " is in the cluster" })
            }
            Self::ArrayLimit { limit } => write!(f, "its array runs at most {limit} tasks at once"),
            Self::Resources { closest } => match closest.first() {
                Some(nearest) => write!(f, "no node has enough free now; closest is {nearest}"),
                None => f.write_str("no node has enough free now"),
            },
            Self::TooFewNodes { wanted, enough, closest } => {
                write!(f, "it needs {wanted} nodes at once and ")?;
                match enough {
                    0 => f.write_str("none has enough free now")?,
                    1 => f.write_str("one has enough free now")?,
                    enough => write!(f, "{enough} have enough free now")?,
                }
                let of_others = if *enough == 0 { "" } else { " of the others" };
                closest.first().map_or(Ok(()), |nearest| write!(f, "; closest{of_others} is {nearest}"))
            }
            Self::Priority { ahead: 1 } => f.write_str("one job is ahead of it"),
            Self::Priority { ahead } => write!(f, "{ahead} jobs are ahead of it"),
            Self::Reservation { job } => {
                write!(f, "starting it now could delay job {job}, which is first in the queue")
            }
            Self::NodesDown { nodes, wanted } => absent(f, *wanted, "down", nodes.iter()),
            Self::NodesDrained { nodes, down, wanted } => {
                let state = if down.is_empty() { "drained" } else { "drained or down" };
                absent(f, *wanted, state, nodes.iter().chain(down))
            }
            Self::Waking { nodes } => {
                f.write_str("waking ")?;
                joined(f, nodes)
            }
            Self::NodesAsleep { why, .. } => write!(f, "nodes that could run it are not on: {why}"),
            Self::Scheduling => f.write_str("about to be scheduled"),
        }
    }
}

/// That nodes which could run it do not take work.
fn absent<'a>(
    f: &mut fmt::Formatter<'_>,
    wanted: u32,
    state: &str,
    mut nodes: impl Iterator<Item = &'a NodeName>,
) -> fmt::Result {
    match wanted {
        0 | 1 => write!(f, "every node that could run it is {state}:")?,
        _ => write!(f, "it needs {wanted} nodes at once, and too many that could run it are {state}:")?,
    }
    nodes.try_for_each(|node| write!(f, " {node}"))
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, which lacks {}", self.node, self.lacks)
    }
}

impl fmt::Display for WakingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |ms: u64| format_duration(Duration::from_millis(ms));
        match self.usual_ms {
            Some(usual) => write!(f, "{}, usually ready in {}, {} so far", self.node, span(usual), span(self.for_ms)),
            None => write!(f, "{} for the first time, {} so far", self.node, span(self.for_ms)),
        }
    }
}

/// `job 3`, or `jobs 3, 4, 5`.
struct Jobs<'a>(&'a [JobId]);

impl fmt::Display for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "job " } else { "jobs " })?;
        joined(f, self.0)
    }
}

/// With commas between.
fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(i, item)| {
        f.write_str(if i > 0 { ", " } else { "" })?;
        item.fmt(f)
    })
}
