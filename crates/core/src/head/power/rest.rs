//! Which nodes nobody needs, and which of them are needed after all.

use hostler_model::{NodeName, NodeState, PowerPolicy, Timestamp};

use super::pass::{entered, some};
use super::{Power, PowerEvent, Stage};
use crate::head::event::Now;
use crate::head::node::Node;
use crate::head::schedule::startable;
use crate::head::state::State;

/// Nodes whose agents are being asked and that a job needs which has come in the meantime.
pub(super) fn recalled(state: &State, _now: Now) -> Option<Vec<PowerEvent>> {
    let asked = state.power.nodes().filter(|(_, power)| power.stage == Stage::Asking);
    let needed =
        asked.filter_map(|(name, _)| Some((name, state.node(name)?))).filter(|(_, node)| is_wanted(state, node));
    some(needed.map(|(name, _)| entered(name, (Stage::Up, "a job needs it".to_owned()))).collect())
}

/// The node that is to be switched off next, if any: the one that saves most. One at a time, so that the next is judged without it.
pub(super) fn unwanted(state: &State, now: Now) -> Option<Vec<PowerEvent>> {
    let policy = state.power.policy();
    let on = state
        .power
        .nodes()
        .filter(|(name, power)| power.stage == Stage::Up && is_up(state, name) && state.would_take_work(name))
        .count();
    let are_spare = on > policy.keep_warm as usize;
    let idle =
        state.power.nodes().filter(|(name, power)| may_rest_at(state, name, power).is_some_and(|at| at <= now.at));
    // One that is drained keeps nothing warm.
    let spare = idle.filter(|(name, _)| are_spare || !state.would_take_work(name));
    let unwanted = spare.filter(|(name, _)| state.node(name).is_some_and(|node| !is_wanted(state, node)));
    let (name, power) =
        unwanted.max_by_key(|(name, _)| (state.power.traits(name).watts.idle, std::cmp::Reverse(*name)))?;
    let idle_ms = now.at.ms_since(power.live.idle_since.unwrap_or(now.at));
    let idle = hostler_model::format_duration(std::time::Duration::from_millis(idle_ms));
    Some(vec![entered(name, (Stage::Asking, format!("nothing has run there for {idle}")))])
}

/// When the next node may be switched off.
pub(super) fn due(state: &State, now: Timestamp) -> Option<Timestamp> {
    let times = state.power.nodes().filter_map(|(name, power)| may_rest_at(state, name, power));
    times.filter(|at| *at > now).min()
}

/// From when on a node may be switched off as far as it is itself concerned; `None` while it may not.
fn may_rest_at(state: &State, name: &NodeName, power: &Power) -> Option<Timestamp> {
    let (policy, traits): (&PowerPolicy, _) = (state.power.policy(), state.power.traits(name));
    if power.stage != Stage::Up || !traits.is_managed || !is_up(state, name) {
        return None;
    }
    let idle = power.live.idle_since?.plus_ms(traits.idle_ms.unwrap_or(policy.idle_ms));
    let stayed = power.up_since.unwrap_or(power.since).plus_ms(policy.min_up_ms);
    Some(idle.max(stayed).max(power.again_at.unwrap_or_default()))
}

/// Whether its agent is there and nothing is placed on it.
fn is_up(state: &State, name: &NodeName) -> bool {
    state.node(name).is_some_and(|node| matches!(node.state(), NodeState::Up | NodeState::Drained))
}

/// Whether a job of the queue could use it.
fn is_wanted(state: &State, node: &Node) -> bool {
    if node.drain.is_some() {
        return false;
    }
    let fits = |job: hostler_sched::Waiting| {
        job.among.as_ref().is_none_or(|among| among.contains(node.ix)) && node.resources.counts().covers(&job.request)
    };
    startable(state).any(fits)
}
