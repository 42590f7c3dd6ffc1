//! Why a job waits, in words for people.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Ability, Constraint, JobId, NodeName, PartitionName, QuotaKind, Request, WallTime, format_ms, plural};

/// Why a job is pending. Every pending job has a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// A user put the job on hold.
    Held,
    /// The job waits until other jobs reach a state.
    Dependency {
        /// The jobs that this job waits for.
        jobs: Vec<JobId>,
    },
    /// The time at which the job may start has not come.
    BeginTime {
        /// That time.
        at: WallTime,
    },
    /// As many tasks of the job's array run as its `%limit` allows.
    ArrayLimit {
        /// How many tasks of the array may run at once.
        limit: u32,
    },
    /// A quota is used up.
    Quota {
        /// The user's name, or `group` and the group's name.
        whose: String,
        /// The limited resource.
        #[serde(rename = "of")]
        kind: QuotaKind,
        /// The amount in use, counting running jobs and jobs ahead in the queue.
        used: u64,
        /// The amount that the quota allows.
        limit: u64,
    },
    /// An admin has blocked the job's user.
    Blocked {
        /// The blocked account.
        user: String,
        /// The reason, in the admin's words.
        why: Option<String>,
    },
    /// An operator has paused the job's partition.
    PartitionPaused {
        /// The paused partition.
        partition: PartitionName,
    },
    /// An operator has removed the job's partition.
    PartitionGone {
        /// The removed partition.
        partition: PartitionName,
    },
    /// The job has no sandbox, or one with more network than allowed, and all nodes that it may use otherwise are in partitions
    /// whose jobs run in a sandbox.
    NeedsSandbox {
        /// The partition that demands a sandbox: the job's own, or one whose nodes a job without a partition could use.
        partition: PartitionName,
        /// Whether the job has a sandbox, with the network of the node, which the partition does not allow.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        for_network: bool,
    },
    /// The cluster has no node that the job may use, regardless of the nodes' size.
    NoNodes {
        /// The partition whose nodes the job may use; all nodes when absent.
        partition: Option<PartitionName>,
        /// The constraint that the nodes must satisfy.
        constraint: Option<Constraint>,
        /// Whether the job belongs to root and every node that it may use refuses jobs of root.
        #[serde(default)]
        for_root: bool,
        /// Abilities that the job needs, up to the first one that no node has together with those before it. Empty if
        /// abilities are not the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        abilities: Vec<Ability>,
    },
    /// The job is first in the queue, and no up node has enough free resources or is large enough.
    Resources {
        /// The closest nodes and what each lacks, best first; at most three.
        closest: Vec<Shortfall>,
    },
    /// The job is first in the queue, and too few up nodes have enough free resources at the same time or are large
    /// enough.
    TooFewNodes {
        /// The number of nodes that the job needs at the same time.
        wanted: u32,
        /// The number of nodes that have enough.
        enough: u64,
        /// The closest of the remaining nodes and what each lacks, best first; at most three.
        closest: Vec<Shortfall>,
    },
    /// The job is first in the queue and needs its nodes to itself, and too few up nodes are idle.
    NotIdle {
        /// The number of nodes that the job needs at the same time.
        wanted: u32,
        /// Nodes that are large enough: those that are kept for the job, then those of which the least is in use; at most
        /// three.
        closest: Vec<NodeName>,
    },
    /// Jobs ahead in the queue wait for the same resources.
    Priority {
        /// The number of jobs ahead.
        ahead: u64,
    },
    /// The job fits now, but starting it could delay the first waiting job.
    Reservation {
        /// The job that holds the reservation.
        job: JobId,
    },
    /// Too few of the nodes that could run the job are up; some are down or suspect.
    NodesDown {
        /// The down and suspect nodes, at most three.
        nodes: Vec<NodeName>,
        /// The number of nodes that the job needs at the same time; zero if an older release wrote the reason.
        #[serde(default)]
        wanted: u32,
    },
    /// Too few of the nodes that could run the job accept work, because operators drain some.
    NodesDrained {
        /// The drained nodes; at most three together with `down`.
        nodes: Vec<NodeName>,
        /// Nodes that could run the job but are down or suspect.
        down: Vec<NodeName>,
        /// The number of nodes that the job needs at the same time; zero if an older release wrote the reason.
        #[serde(default)]
        wanted: u32,
    },
    /// Nodes that could run the job are being switched on.
    Waking {
        /// The nodes that are being switched on; at most three.
        nodes: Vec<WakingNode>,
    },
    /// Nodes that could run the job are off, and none of them is being switched on.
    NodesAsleep {
        /// All nodes that could run the job and are not up.
        nodes: Vec<NodeName>,
        /// Why these nodes are not switched on; names at most three of them.
        why: String,
    },
    /// The scheduler has not examined the job yet.
    Scheduling,
}

/// A node that is being switched on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WakingNode {
    /// The name of the node.
    pub node: NodeName,
    /// Time since the node was switched on, in milliseconds.
    pub for_ms: u64,
    /// The usual time from power-on until the node's agent connects, in milliseconds; absent if none was observed.
    pub usual_ms: Option<u64>,
}

/// What a node lacks for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortfall {
    /// The name of the node.
    pub node: NodeName,
    /// The amounts that are missing from the free resources, or from the total if even that is too small.
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
                "the quota of {whose} limits running jobs to {}; {} in use or ahead in the queue",
                kind.amount(*limit),
                kind.figure(*used)
            ),
            Self::Blocked { user, why: None } => write!(f, "{user} is blocked on this cluster"),
            Self::Blocked { user, why: Some(why) } => write!(f, "{user} is blocked on this cluster: {why}"),
            Self::PartitionPaused { partition } => write!(f, "partition {partition} is paused"),
            Self::PartitionGone { partition } => write!(f, "partition {partition} no longer exists"),
            Self::NeedsSandbox { partition, for_network: false } => {
                write!(f, "partition {partition} runs its jobs in a sandbox, and this job has none")
            }
            Self::NeedsSandbox { partition, for_network: true } => {
                write!(f, "partition {partition} allows less network than the sandbox of this job has")
            }
            Self::NoNodes { partition, constraint, for_root, abilities } => {
                f.write_str("no node")?;
                partition.iter().try_for_each(|partition| write!(f, " of partition {partition}"))?;
                constraint.iter().try_for_each(|constraint| write!(f, " that has {constraint}"))?;
                match abilities.split_last() {
                    _ if *for_root => f.write_str(" runs jobs of root"),
                    None => f.write_str(" is in the cluster"),
                    Some((missing, present)) => {
                        for (number, ability) in present.iter().enumerate() {
                            write!(f, " {} {}", if number == 0 { "that" } else { "and" }, ability.verb())?;
                        }
                        write!(f, " {}", missing.verb())
                    }
                }
            }
            Self::BeginTime { .. } => f.write_str("its begin time has not come"),
            Self::ArrayLimit { limit } => write!(f, "the array runs at most {} at once", plural(limit, "task")),
            Self::Resources { closest } => match closest.first() {
                Some(nearest) => write!(f, "no node has enough free now; closest is {nearest}"),
                None => f.write_str("no node has enough free now"),
            },
            Self::TooFewNodes { wanted, enough, closest } => {
                write!(f, "the job needs {wanted} nodes at once and ")?;
                match enough {
                    0 => f.write_str("none has enough free now")?,
                    1 => f.write_str("one has enough free now")?,
                    enough => write!(f, "{enough} have enough free now")?,
                }
                let of_others = if *enough == 0 { "" } else { " of the others" };
                closest.first().map_or(Ok(()), |nearest| write!(f, "; closest{of_others} is {nearest}"))
            }
            Self::NotIdle { wanted, closest } => {
                match wanted {
                    1 => f.write_str("the job needs an idle node, and none that it may use is idle")?,
                    wanted => {
                        write!(f, "the job needs {wanted} idle nodes at once, and too few that it may use are idle")?;
                    }
                }
                closest.first().map_or(Ok(()), |nearest| write!(f, "; next is {nearest}"))
            }
            Self::Priority { ahead: 1 } => f.write_str("one job is ahead in the queue"),
            Self::Priority { ahead } => write!(f, "{ahead} jobs are ahead in the queue"),
            Self::Reservation { job } => {
                write!(f, "starting this job now could delay job {job}, which is first in the queue")
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
            Self::NodesAsleep { why, .. } => write!(f, "nodes that could run the job are not on: {why}"),
            Self::Scheduling => f.write_str("about to be scheduled"),
        }
    }
}

/// Writes that the nodes that could run the job are drained or down.
fn absent<'a>(
    f: &mut fmt::Formatter<'_>,
    wanted: u32,
    state: &str,
    mut nodes: impl Iterator<Item = &'a NodeName>,
) -> fmt::Result {
    match wanted {
        0 | 1 => write!(f, "every node that could run the job is {state}:")?,
        _ => write!(f, "the job needs {wanted} nodes at once, and too many that could run it are {state}:")?,
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
        match self.usual_ms {
            Some(usual) => {
                write!(f, "{}, usually ready in {}, {} so far", self.node, format_ms(usual), format_ms(self.for_ms))
            }
            None => write!(f, "{} for the first time, {} so far", self.node, format_ms(self.for_ms)),
        }
    }
}

/// Formats ids as `job 3` or `jobs 3, 4, 5`.
struct Jobs<'a>(&'a [JobId]);

impl fmt::Display for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "job " } else { "jobs " })?;
        joined(f, self.0)
    }
}

/// Writes the items separated by commas.
fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(i, item)| {
        f.write_str(if i > 0 { ", " } else { "" })?;
        item.fmt(f)
    })
}
