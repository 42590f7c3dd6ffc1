//! Chooses nodes to switch on for the queue.
//!
//! **The idea.** The scheduler plans as if a set of off nodes were on and free. The set is sufficient if as much
//! starts as with all nodes that could be switched on. So the head wakes only nodes that will be used, for all kinds
//! of requests: constraints, several nodes, GPUs. Among the sufficient sets it takes the cheapest. Nodes that are
//! waking count as on.

use std::collections::BTreeMap;

use hostler_model::{JobId, NodeName, PowerPolicy, Reason, Timestamp, WakingNode};
use hostler_sched::{Pool, plan};

use super::machine::{entered, some};
use super::state::{Power, PowerEvent, Stage};
use crate::head::ids::Now;
use crate::head::jobs::job::Job;
use crate::head::jobs::requests::{asked, running, startable};
use crate::head::jobs::turns::Turns;
use crate::head::state::State;

/// With up to this many candidates, the head tries all subsets. With more, it starts from all and drops nodes that are
/// not needed.
const MAX_EXHAUSTIVE: usize = 8;

/// The maximum number of nodes named in a reason.
const NAMED: usize = 3;

/// By job: how many tasks a plan starts, and whether it reserves nodes for the job. A plan without the flag would
/// prefer other jobs forever to one that needs off nodes together with busy nodes.
type Started = BTreeMap<JobId, (u64, bool)>;

/// An off node that the head could switch on now.
struct Candidate<'a> {
    name: &'a NodeName,
    weight: u32,
    /// The energy to switch the node on and let it work for an hour, in watt-seconds.
    cost: u64,
    busy_watts: u32,
}

pub(super) fn wanted(state: &State, now: Now) -> Option<Vec<PowerEvent>> {
    let candidates = candidates(state, now);
    if candidates.is_empty() {
        return None;
    }
    let warm = missing_warm_nodes(state, &candidates);
    let chosen = if warm.is_empty() { for_queue(state, &candidates, now.at) } else { warm };
    some(chosen)
}

/// Returns events that switch on nodes until `keep_warm` nodes are on.
fn missing_warm_nodes(state: &State, candidates: &[Candidate<'_>]) -> Vec<PowerEvent> {
    let is_warm = |(name, power): &(&NodeName, &Power)| {
        matches!(power.stage, Stage::Up | Stage::Waking) && state.is_not_drained(name)
    };
    let on = state.power.nodes().filter(is_warm).count();
    let missing = (state.power.policy().keep_warm as usize).saturating_sub(on);
    let room = Room::of(state);
    let mut chosen: Vec<&Candidate<'_>> = Vec::new();
    for candidate in candidates {
        if chosen.len() < missing && room.is_enough_for(chosen.iter().copied().chain([candidate])) {
            chosen.push(candidate);
        }
    }
    let why = || match state.power.policy().keep_warm {
        1 => "one node stays on (keep_warm)".to_owned(),
        kept => format!("{kept} nodes stay on (keep_warm)"),
    };
    chosen.into_iter().map(|candidate| entered(candidate.name, (Stage::Waking, why()))).collect()
}

/// Returns events that switch on the cheapest nodes with which as much of the queue starts as with all candidates.
fn for_queue(state: &State, candidates: &[Candidate<'_>], now: Timestamp) -> Vec<PowerEvent> {
    let question = Forecast { state, now, soonest_ms: soonest_ms(state, candidates) };
    let coming: Vec<&NodeName> =
        state.power.nodes().filter(|(_, it)| it.stage == Stage::Waking).map(|(name, _)| name).collect();
    let without = question.started(&coming);
    if question.starts_all(&without) {
        return Vec::new();
    }
    let started = |chosen: &[&Candidate<'_>]| {
        question
            .started(&coming.iter().copied().chain(chosen.iter().map(|candidate| candidate.name)).collect::<Vec<_>>())
    };
    let room = Room::of(state);
    let chosen = if candidates.len() <= MAX_EXHAUSTIVE {
        best_subset(candidates, &room, &without, started)
    } else {
        reduced_set(candidates, &room, &without, started)
    };
    chosen
        .into_iter()
        .map(|candidate| entered(candidate.name, (Stage::Waking, "waiting jobs need the node".to_owned())))
        .collect()
}

/// Tries all subsets. Returns the cheapest one with which most tasks start; empty if none helps.
fn best_subset<'c>(
    candidates: &'c [Candidate<'c>],
    room: &Room,
    without: &Started,
    started: impl Fn(&[&Candidate<'_>]) -> Started,
) -> Vec<&'c Candidate<'c>> {
    if !is_better(&started(&candidates.iter().collect::<Vec<_>>()), without) {
        return Vec::new();
    }
    let sets = (1_u32..1 << candidates.len()).map(|set| {
        let is_in = |(at, _): &(usize, &Candidate<'_>)| set >> at & 1 == 1;
        candidates.iter().enumerate().filter(is_in).map(|(_, candidate)| candidate).collect::<Vec<_>>()
    });
    let mut sets: Vec<Vec<&Candidate<'_>>> = sets.filter(|set| room.is_enough_for(set.iter().copied())).collect();
    sets.sort_by_key(|set| price(set));
    let mut best: (Vec<&Candidate<'_>>, Started) = (Vec::new(), without.clone());
    for set in sets {
        let with = started(&set);
        if is_better(&with, &best.1) {
            best = (set, with);
        }
    }
    best.0
}

/// Takes as many candidates as the limits allow. Then drops candidates without which just as many tasks start.
fn reduced_set<'c>(
    candidates: &'c [Candidate<'c>],
    room: &Room,
    without: &Started,
    started: impl Fn(&[&Candidate<'_>]) -> Started,
) -> Vec<&'c Candidate<'c>> {
    let mut chosen: Vec<&Candidate<'_>> = Vec::new();
    for candidate in candidates {
        if room.is_enough_for(chosen.iter().copied().chain([candidate])) {
            chosen.push(candidate);
        }
    }
    let most = started(&chosen);
    if !is_better(&most, without) {
        return Vec::new();
    }
    // The most expensive first, and in large groups where possible.
    let mut step = chosen.len().next_power_of_two();
    while step > 0 {
        let mut end = chosen.len();
        while end > 0 {
            let begin = end.saturating_sub(step);
            let rest: Vec<&Candidate<'_>> = chosen[..begin].iter().chain(&chosen[end..]).copied().collect();
            if !is_better(&most, &started(&rest)) {
                chosen = rest;
            }
            end = begin;
        }
        step /= 2;
    }
    chosen
}

/// Returns the sort key of a set, the cheapest first: total weight, energy, number of nodes.
fn price(set: &[&Candidate<'_>]) -> (u64, u64, usize) {
    (set.iter().map(|it| u64::from(it.weight)).sum(), set.iter().map(|it| it.cost).sum(), set.len())
}

/// Returns whether `one` is better than `other`. The first job in order of submission for which they differ decides.
fn is_better(one: &Started, other: &Started) -> bool {
    let jobs = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    let count = |started: &Started, job: &JobId| started.get(job).copied().unwrap_or_default();
    let differing = jobs.into_iter().find(|job| count(one, job) != count(other, job));
    differing.is_some_and(|job| count(one, job) > count(other, job))
}

/// Computes what the scheduler would start if more nodes were on.
struct Forecast<'a> {
    state: &'a State,
    now: Timestamp,
    /// The shortest boot time of the nodes that could be switched on.
    soonest_ms: u64,
}

impl Forecast<'_> {
    /// Returns what would start if these nodes were on, including what starts in any case before the first of these
    /// nodes is up.
    fn started(&self, nodes: &[&NodeName]) -> Started {
        let state = self.state;
        let mut pool: Pool = state.pool.clone();
        for node in nodes.iter().filter_map(|name| state.node(name)) {
            pool.set(node.ix, &node.name, &node.total(), &node.free(), true);
        }
        let plan = plan(&pool, Turns::of(state, self.now), || running(state), state.settings.policy, self.now);
        let mut started = Started::new();
        for start in plan.starts {
            started.entry(start.job).or_default().0 += u64::from(start.count);
        }
        for reservation in plan.blocked {
            let (count, is_kept) = started.entry(reservation.job).or_default();
            *count += u64::from(reservation.at <= self.now.plus_ms(self.soonest_ms));
            *is_kept = true;
        }
        started
    }

    fn starts_all(&self, started: &Started) -> bool {
        startable(self.state).all(|job| started.get(&job.job).is_some_and(|(count, _)| *count >= job.tasks))
    }
}

/// How many nodes and watts may still be switched on under `max_on` and `max_watts`.
struct Room {
    nodes: Option<u32>,
    watts: Option<u32>,
}

impl Room {
    fn of(state: &State) -> Self {
        let policy = state.power.policy();
        let on = || state.power.nodes().filter(|(_, power)| power.is_on()).map(|(name, _)| name);
        let watts: u32 = on().map(|name| state.power.traits(name).watts.busy).sum();
        let nodes = u32::try_from(on().count()).unwrap_or(u32::MAX);
        Self {
            nodes: policy.max_on.map(|most| most.saturating_sub(nodes)),
            watts: policy.max_watts.map(|most| most.saturating_sub(watts)),
        }
    }

    fn is_enough_for<'c>(&self, candidates: impl Iterator<Item = &'c Candidate<'c>>) -> bool {
        let (nodes, watts) =
            candidates.fold((0_u32, 0_u32), |(nodes, watts), it| (nodes + 1, watts.saturating_add(it.busy_watts)));
        self.nodes.is_none_or(|most| nodes <= most) && self.watts.is_none_or(|most| watts <= most)
    }
}

/// Returns the nodes that the head may switch on now, the cheapest first.
fn candidates(state: &State, now: Now) -> Vec<Candidate<'_>> {
    let may = |(name, power): &(&NodeName, &Power)| why_not(state, name, power, now).is_none();
    let mut candidates: Vec<Candidate<'_>> = state
        .power
        .nodes()
        .filter(may)
        .map(|(name, power)| {
            let traits = state.power.traits(name);
            let seconds = 3_600 + power.usual_boot_ms(&traits) / 1_000;
            Candidate {
                name,
                weight: state.partitions.traits(name).map_or(0, |traits| traits.weight),
                cost: u64::from(traits.watts.busy).saturating_mul(seconds),
                busy_watts: traits.watts.busy,
            }
        })
        .collect();
    candidates.sort_by_key(|it| (it.weight, it.cost, it.name));
    candidates
}

fn soonest_ms(state: &State, candidates: &[Candidate<'_>]) -> u64 {
    let boots = candidates.iter().filter_map(|candidate| {
        let traits = state.power.traits(candidate.name);
        Some(state.power.node(candidate.name)?.usual_boot_ms(&traits))
    });
    boots.min().unwrap_or(0)
}

/// Returns why the head does not switch on a node that is off, as the rest of a sentence; `None` if it may switch the
/// node on.
fn why_not(state: &State, name: &NodeName, power: &Power, now: Now) -> Option<String> {
    let policy: &PowerPolicy = state.power.policy();
    let is_down = |what: &str| Some(format!("{what}: {}", power.why));
    match power.stage {
        Stage::Off => {}
        Stage::Failed => return is_down("has failed"),
        Stage::Unknown => return is_down("is not known to be off"),
        Stage::Asking | Stage::Stopping => return Some("is being switched off".to_owned()),
        Stage::Waking | Stage::Up => return Some("is on".to_owned()),
    }
    if !state.power.is_planned(name) {
        return Some("cannot be switched on: the node is not in the head's power.toml".to_owned());
    }
    if !state.power.traits(name).is_managed {
        return Some("is switched on by operators only".to_owned());
    }
    if !state.is_not_drained(name) {
        return Some("is drained, or its agent has never connected".to_owned());
    }
    (!policy.allows(now.wall)).then(|| "may not be switched on at this time of day".to_owned())
}

/// For a waiting job: returns the nodes that are being switched on for the job, or why no suitable node is being
/// switched on. `None` if all suitable nodes are up.
pub(in crate::head) fn explain_off_nodes(state: &State, job: &Job, now: Now) -> Option<Reason> {
    // Most heads cannot switch any node, and a listing asks this for every job.
    state.power.nodes().next()?;
    let waiting = asked(state, state.owner_of(job), &job.spec);
    let fits = |name: &NodeName| {
        state.node(name).is_some_and(|node| state.may_use(job, node) && node.total().covers(&waiting.request))
    };
    let suited: Vec<(&NodeName, &Power)> = state.power.nodes().filter(|(name, _)| fits(name)).collect();
    let waking: Vec<WakingNode> = suited
        .iter()
        .filter(|(_, power)| power.stage == Stage::Waking)
        .map(|(name, power)| WakingNode {
            node: (*name).clone(),
            for_ms: now.at.ms_since(power.since),
            usual_ms: (power.boots.count > 0).then_some(power.boots.usual_ms),
        })
        .take(NAMED)
        .collect();
    if !waking.is_empty() {
        return Some(Reason::Waking { nodes: waking });
    }
    let asleep = suited.iter().filter(|(_, power)| !matches!(power.stage, Stage::Up | Stage::Waking));
    let asleep: Vec<(&NodeName, Option<String>)> =
        asleep.map(|(name, power)| (*name, why_not(state, name, power, now))).collect();
    let room = Room::of(state);
    let told = asleep.iter().map(|(name, why)| match why {
        Some(why) => format!("{name} {why}"),
        None if room.nodes == Some(0) => format!("{name} is off, and the maximum number of nodes is on"),
        None if room.watts.is_some_and(|most| state.power.traits(name).watts.busy > most) => {
            format!("{name} is off, and switching it on would exceed the power limit")
        }
        None => format!("{name} is off"),
    });
    let told: Vec<String> = told.take(NAMED).collect();
    (!told.is_empty()).then(|| Reason::NodesAsleep {
        nodes: asleep.iter().map(|(name, _)| (*name).clone()).collect(),
        why: told.join("; "),
    })
}
