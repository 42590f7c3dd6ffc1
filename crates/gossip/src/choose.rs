//! Chooses the node for a command.
//!
//! All inputs are arguments: the nodes' loads, the command's needs, the policy, commands in flight, and random bits. The choice asks no
//! other node, so it takes microseconds.

use std::collections::BTreeSet;
use std::fmt;

use hostler_model::{Constraint, Feature, NodeName, Rank, RankValue, Timestamp};

use crate::dice::Dice;
use crate::{Calls, Load, Member, MemberId, Node, Policy, Presence};

/// What a command requires of a node, and which nodes its user prefers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Memory that the node must have available, in bytes.
    pub memory_bytes: u64,
    /// Features that the node must have.
    pub constraint: Option<Constraint>,
    /// The only nodes that may run the command; all nodes may if empty.
    pub only: BTreeSet<NodeName>,
    /// Nodes that must not run the command.
    pub not: BTreeSet<NodeName>,
    /// Whether the command prefers the local node.
    pub prefer_local: bool,
    /// The overhead of running the command on another node, in thousandths of its run time: see
    /// [`crate::Estimate::overhead`].
    pub way: u64,
    /// Replaces [`Policy::rank`].
    pub rank: Option<Rank>,
}

/// A node that can run the command, with its score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The node's number.
    pub id: MemberId,
    /// The node's name.
    pub name: NodeName,
    /// Whether the node is the one that chooses.
    pub is_local: bool,
    /// The node's score for this command; lower is better.
    pub score: Score,
    /// The number of commands that were sent to the node and that its load does not include yet.
    pub in_flight: u64,
    /// The load that the node published last.
    pub load: Load,
}

/// A node's score for one more command, in thousandths of the command's time on an idle reference node; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// The slowdown because commands share CPUs, in thousandths; 1000 if they share none.
    pub sharing: u64,
    /// The penalty for busy CPUs.
    pub fullness: u64,
    /// The penalty for pressure, i.e. for work that waits for CPU, memory or IO.
    pub pressure: u64,
    /// The penalty for used memory.
    pub memory: u64,
    /// The sum of the parts, times the node's load weight.
    pub total: u64,
}

/// Why a node cannot run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The user named the nodes for the command, and this node is not among them.
    NotListed,
    /// The user excluded this node.
    RuledOut,
    /// No message from the node has arrived since this agent started.
    Unheard,
    /// The node has been silent for this many milliseconds.
    Silent(u64),
    /// A command could not be sent to the node a moment ago.
    Unreachable,
    /// The node has not published its load yet.
    Unknown,
    /// The node accepts no commands at the moment, because it is drained or a job has it exclusively.
    Closed,
    /// The node's agent is configured to accept no commands.
    NeverOpen,
    /// The node lacks features that the command requires.
    Features,
    /// The node has only this many bytes of available memory.
    Memory(u64),
    /// The rank expression has this value, which is negative or not a number.
    Rank(String),
}

/// Which nodes can run a command, with their scores, and why the others cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The nodes that can run the command, best first.
    pub candidates: Vec<Candidate>,
    /// The nodes that cannot run the command, with the reason, in order of their numbers.
    pub unfit: Vec<(NodeName, Unfit)>,
}

/// The maximum number of nodes that a choice returns.
const RANKED: usize = 8;

/// Returns the best nodes for a command: the first choice, then fallbacks. Empty if no node can run the command.
///
/// A caller that sends the command must record it in `calls`.
pub fn choose<'a>(
    nodes: impl IntoIterator<Item = Node<'a>>,
    needs: &Needs,
    policy: &Policy,
    calls: &Calls,
    now: Timestamp,
    random: u64,
) -> Vec<Candidate> {
    let fit = nodes.into_iter().filter_map(|node| judge(&node, needs, policy, calls, now, random).ok());
    ranked(fit.collect(), RANKED, policy, random)
}

/// Assesses every node for a command, as [`choose`] does.
pub fn explain<'a>(
    nodes: impl IntoIterator<Item = Node<'a>>,
    needs: &Needs,
    policy: &Policy,
    calls: &Calls,
    now: Timestamp,
    random: u64,
) -> Explanation {
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    for node in nodes {
        match judge(&node, needs, policy, calls, now, random) {
            Ok(rank) => fit.push(rank),
            Err(why) => unfit.push((node.member.name.clone(), why)),
        }
    }
    Explanation { candidates: ranked(fit, usize::MAX, policy, random), unfit }
}

/// A candidate while candidates are sorted. The struct is small, since there may be thousands.
struct Fit<'a> {
    /// The score, with margin and overhead unless the node is the local one, and random bits to break ties.
    key: (u64, u64),
    member: &'a Member,
    load: &'a Load,
    in_flight: u64,
    is_local: bool,
    score: Score,
}

impl Fit<'_> {
    fn candidate(&self) -> Candidate {
        Candidate {
            id: self.member.id,
            name: self.member.name.clone(),
            is_local: self.is_local,
            score: self.score,
            in_flight: self.in_flight,
            load: *self.load,
        }
    }
}

/// Sorts the best candidates. Among those whose scores nearly equal the best, a random one comes first.
fn ranked(mut ranks: Vec<Fit<'_>>, most: usize, policy: &Policy, random: u64) -> Vec<Candidate> {
    let Some(best) = ranks.iter().map(|rank| rank.key.0).min() else { return Vec::new() };
    let is_equal = |rank: &Fit<'_>| rank.key.0 <= best.saturating_add(policy.tie.into());
    let equals = ranks.iter().filter(|rank| is_equal(rank)).count();
    let drawn = Dice::new(random).below(equals);
    let first = ranks.iter().enumerate().filter(|(_, rank)| is_equal(rank)).nth(drawn).map_or(0, |(at, _)| at);
    ranks.swap(0, first);
    let rest = &mut ranks[1..];
    if rest.len() >= most {
        rest.select_nth_unstable_by_key(most - 1, |rank| rank.key);
        ranks.truncate(most);
    }
    ranks[1..].sort_unstable_by_key(|rank| rank.key);
    ranks.iter().map(Fit::candidate).collect()
}

/// Returns a node's rank for a command, or why the node cannot run it.
fn judge<'a>(
    node: &Node<'a>,
    needs: &Needs,
    policy: &Policy,
    calls: &Calls,
    now: Timestamp,
    random: u64,
) -> Result<Fit<'a>, Unfit> {
    let member = node.member;
    if needs.not.contains(&member.name) {
        return Err(Unfit::RuledOut);
    }
    if !needs.only.is_empty() && !needs.only.contains(&member.name) {
        return Err(Unfit::NotListed);
    }
    match node.presence {
        Presence::Live => {}
        Presence::Unheard => return Err(Unfit::Unheard),
        Presence::Silent => return Err(Unfit::Silent(node.silent_ms)),
    }
    if calls.is_avoided(member.id, now) {
        return Err(Unfit::Unreachable);
    }
    let load = node.load.ok_or(Unfit::Unknown)?;
    if !load.accepts {
        return Err(if load.commands.port() == 0 { Unfit::NeverOpen } else { Unfit::Closed });
    }
    let has = |feature: &Feature| member.features.contains(feature) || feature.as_str() == member.name.as_str();
    if needs.constraint.as_ref().is_some_and(|constraint| !constraint.holds(has)) {
        return Err(Unfit::Features);
    }
    let available_bytes = u64::from(load.available_memory_mib()) << 20;
    if available_bytes < needs.memory_bytes {
        return Err(Unfit::Memory(available_bytes));
    }
    let in_flight = calls.in_flight(member.id, node.load_version, policy, now);
    let margin = match node.is_local {
        true => 0,
        false if needs.prefer_local => policy.prefer_local_margin,
        false => policy.remote_margin,
    };
    // A rank is not a time, so the overhead of another node is not added to it.
    let rank = needs.rank.as_ref().or(policy.rank.as_ref());
    let way = if node.is_local { 0 } else { needs.way };
    let (score, key) = match rank {
        None => {
            let score = score(load, in_flight, policy);
            (score, (score.total.saturating_mul(1000 + u64::from(margin)) / 1000).saturating_add(way))
        }
        Some(rank) => {
            let (score, value) = ranked_score(rank, load, in_flight, policy)?;
            // A value may be in any unit, so it is not rounded. The bits of numbers from zero have the order of the numbers.
            (score, (value * (1.0 + f64::from(margin) / 1000.0)).to_bits())
        }
    };
    let chance = Dice::new(random ^ u64::from(member.id.0)).next();
    Ok(Fit { key: (key, chance), member, load, in_flight, is_local: node.is_local, score })
}

/// An upper limit for a node's CPUs, more than any node has.
const MOST_CPUS: u32 = 1 << 20;

/// Computes the score of a node with this load, on which `in_flight` more commands run than the load includes.
fn score(load: &Load, in_flight: u64, policy: &Policy) -> Score {
    let capacity = 100 * u64::from(load.cpus.clamp(1, MOST_CPUS));
    let demand = load.busy() + in_flight * u64::from(policy.call_load) + 100;
    let sharing = (demand * 1000 / capacity).max(1000);
    let fullness = demand.min(capacity) * u64::from(policy.fullness) / capacity;
    let held_up = [
        (load.pressure.cpu, policy.cpu_pressure),
        (load.pressure.memory, policy.memory_pressure),
        (load.pressure.io, policy.io_pressure),
    ];
    let pressure = held_up.iter().map(|(share, cost)| u64::from(share.unwrap_or(0)) * u64::from(*cost) / 1000).sum();
    let memory_mib = u64::from(load.memory_mib.max(1));
    let used_mib = memory_mib.saturating_sub(load.available_memory_mib().into());
    let memory = used_mib * u64::from(policy.used_memory) / memory_mib * 100 / u64::from(load.memory_weight.max(1));
    let sum: u64 = sharing + fullness + pressure + memory;
    let total = sum.saturating_mul(load.load_weight.max(1).into()) / 100;
    Score { sharing, fullness, pressure, memory, total }
}

/// Computes the score of a node with a rank expression, whose value replaces the total. Also returns the exact value.
fn ranked_score(rank: &Rank, load: &Load, in_flight: u64, policy: &Policy) -> Result<(Score, f64), Unfit> {
    let score = score(load, in_flight, policy);
    let hundredths = |value: u32| f64::from(value) / 100.0;
    let share = |thousandths: Option<u16>| f64::from(thousandths.unwrap_or(0)) / 1000.0;
    let value = rank.compute(|value| match value {
        RankValue::Load => hundredths(load.average),
        RankValue::Busy => load.busy() as f64 / 100.0,
        RankValue::Cpus => load.cpus.into(),
        RankValue::FreeMemory => load.available_memory_mib().into(),
        RankValue::Memory => load.memory_mib.into(),
        RankValue::CpuPressure => share(load.pressure.cpu),
        RankValue::MemoryPressure => share(load.pressure.memory),
        RankValue::IoPressure => share(load.pressure.io),
        RankValue::LoadWeight => hundredths(load.load_weight),
        RankValue::MemoryWeight => hundredths(load.memory_weight),
        RankValue::UnderWay => in_flight as f64,
        RankValue::Score => score.total as f64 / 1000.0,
    });
    if !(value.is_finite() && value >= 0.0) {
        return Err(Unfit::Rank(value.to_string()));
    }
    // Without the sign of a negative zero.
    let value = value.abs();
    Ok((Score { total: (value * 1000.0).round() as u64, ..score }, value))
}

impl Unfit {
    /// Whether the user did not want this node.
    #[must_use]
    pub const fn is_unwanted(&self) -> bool {
        matches!(self, Self::NotListed | Self::RuledOut | Self::Features)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => f.write_str("the node is not one of the named nodes"),
            Self::RuledOut => f.write_str("the node is excluded"),
            Self::Unheard => f.write_str("no message from the node has arrived yet"),
            Self::Silent(ms) => {
                let silent = std::time::Duration::from_millis(*ms);
                write!(f, "the node has been silent for {}", hostler_model::format_duration(silent))
            }
            Self::Unreachable => f.write_str("the node was unreachable a moment ago"),
            Self::Unknown => f.write_str("the load of the node is not known yet"),
            Self::Closed => f.write_str("the node accepts no commands now"),
            Self::NeverOpen => f.write_str("the node's agent accepts no commands"),
            Self::Features => f.write_str("the node lacks the requested features"),
            Self::Rank(value) => write!(f, "the rank expression gives {value}, which is negative or not a number"),
            Self::Memory(bytes) => {
                write!(f, "the node has only {} of available memory", hostler_model::format_bytes(*bytes))
            }
        }
    }
}
