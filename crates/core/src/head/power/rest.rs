//! Chooses idle nodes to switch off. Keeps a chosen node on if a job needs it before it is switched off.

use hostler_model::{NodeName, NodeState, PowerPolicy, Timestamp};

use super::machine::{entered, some};
use super::state::{Power, PowerEvent, Stage};
use crate::head::ids::Now;
use crate::head::jobs::requests::startable;
use crate::head::nodes::node::Node;
use crate::head::state::State;

/// Returns the events that bring nodes in [`Stage::Asking`] back up because a new job needs them.
pub(super) fn needed_again(state: &State, _now: Now) -> Option<Vec<PowerEvent>> {
    let asked = state.power.nodes().filter(|(_, power)| power.stage == Stage::Asking);
    let needed =
        asked.filter_map(|(name, _)| Some((name, state.node(name)?))).filter(|(_, node)| is_wanted(state, node));
    some(needed.map(|(name, _)| entered(name, (Stage::Up, "a job needs the node".to_owned()))).collect())
}

/// Returns the event that starts switching off one idle node: the node that saves most power. Later calls switch off
/// further nodes, because they must consider that this node is no longer available.
pub(super) fn next_to_switch_off(state: &State, now: Now) -> Option<Vec<PowerEvent>> {
    let policy = state.power.policy();
    let on = state
        .power
        .nodes()
        .filter(|(name, power)| power.stage == Stage::Up && is_up(state, name) && state.is_not_drained(name))
        .count();
    let are_spare = on > policy.keep_warm as usize;
    let idle = state
        .power
        .nodes()
        .filter(|(name, power)| may_switch_off_at(state, name, power).is_some_and(|at| at <= now.at));
    // A drained node does not count as warm.
    let spare = idle.filter(|(name, _)| are_spare || !state.is_not_drained(name));
    let unwanted = spare.filter(|(name, _)| state.node(name).is_some_and(|node| !is_wanted(state, node)));
    let (name, power) =
        unwanted.max_by_key(|(name, _)| (state.power.traits(name).watts.idle, std::cmp::Reverse(*name)))?;
    let idle_ms = now.at.ms_since(power.live.idle_since.unwrap_or(now.at));
    let idle = hostler_model::format_ms(idle_ms);
    Some(vec![entered(name, (Stage::Asking, format!("the node has been idle for {idle}")))])
}

/// Returns the earliest time at which a node may be switched off.
pub(super) fn due(state: &State, now: Timestamp) -> Option<Timestamp> {
    let times = state.power.nodes().filter_map(|(name, power)| may_switch_off_at(state, name, power));
    times.filter(|at| *at > now).min()
}

/// Returns when the node's idle time, minimum time up and retry pause allow switching it off; `None` if it must stay
/// on.
fn may_switch_off_at(state: &State, name: &NodeName, power: &Power) -> Option<Timestamp> {
    let (policy, traits): (&PowerPolicy, _) = (state.power.policy(), state.power.traits(name));
    if power.stage != Stage::Up || !traits.is_managed || !is_up(state, name) {
        return None;
    }
    let idle = power.live.idle_since?.plus_ms(traits.idle_ms.unwrap_or(policy.idle_ms));
    let stayed = power.up_since.unwrap_or(power.since).plus_ms(policy.min_up_ms);
    Some(idle.max(stayed).max(power.again_at.unwrap_or_default()))
}

/// Returns whether the node's agent is connected and no run is placed on the node.
fn is_up(state: &State, name: &NodeName) -> bool {
    state.node(name).is_some_and(|node| matches!(node.state(), NodeState::Up | NodeState::Drained))
}

/// Returns whether a queued job could use the node.
fn is_wanted(state: &State, node: &Node) -> bool {
    if node.drain.is_some() {
        return false;
    }
    let fits = |job: hostler_sched::Waiting| {
        job.among.as_ref().is_none_or(|among| among.contains(node.ix)) && node.total().covers(&job.request)
    };
    startable(state).any(fits)
}
