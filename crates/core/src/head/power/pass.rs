//! One pass over all nodes, and the effects of power commands and events.

use std::collections::BTreeMap;

use hostler_model::{Gauge, NodeFacts, NodeName, NodeState, PowerTraits, PowerVerb, Timestamp};
use hostler_proto::link::HeadMessage;
use hostler_proto::power::PowerChange;

use super::energy::Load;
use super::machine::{View, entered, some};
use super::rest;
use super::state::{MOST_CHANGES, Power, PowerCommand, PowerEvent, Stage};
use super::wake;
use crate::head::command::Refusal;
use crate::head::event::{Effect, Event};
use crate::head::ids::Now;
use crate::head::nodes::node::Node;
use crate::head::state::State;
use crate::head::step::Step;

/// Returns the power events that are due now, in order. The caller applies them and calls again until none are left,
/// because a change of one node may allow the change of another. Call it when [`super::Powers::needs_manage`] is true.
pub(in crate::head) fn manage(state: &mut State, now: Now) -> Vec<Event> {
    state.power.is_changed = false;
    let events = turns(state, now)
        .or_else(|| rest::needed_again(state, now))
        .or_else(|| wake::wanted(state, now))
        .or_else(|| rest::next_to_switch_off(state, now))
        .or_else(|| asks(state, now));
    state.power.due = next_due(state, now.at);
    events.unwrap_or_default().into_iter().map(Event::Power).collect()
}

/// The inputs for deciding a node's stage.
fn view<'a>(state: &'a State, name: &NodeName, power: &'a Power, now: Timestamp) -> View<'a> {
    View { power, node: state.node(name), policy: state.power.policy(), now }
}

fn turns(state: &State, now: Now) -> Option<Vec<PowerEvent>> {
    let turn = |(name, power)| Some(entered(name, view(state, name, power, now.at).turn()?));
    some(state.power.nodes().filter_map(turn).collect())
}

fn asks(state: &State, now: Now) -> Option<Vec<PowerEvent>> {
    let ask = |(name, power): (&NodeName, &Power)| {
        let verb = view(state, name, power, now.at).verb()?;
        Some(PowerEvent::Asked { node: name.clone(), verb })
    };
    let ask_agent = |(name, power): (&NodeName, &Power)| {
        let must = view(state, name, power, now.at).must_ask_agent();
        must.then(|| PowerEvent::AskedAgent { node: name.clone() })
    };
    some(state.power.nodes().filter_map(ask).chain(state.power.nodes().filter_map(ask_agent)).collect())
}

fn next_due(state: &State, now: Timestamp) -> Option<Timestamp> {
    let nodes = state.power.nodes().map(|(name, power)| view(state, name, power, now).due());
    let idle = rest::due(state, now);
    nodes.chain(idle).filter(|at| *at != Timestamp::NEVER).min()
}

/// Returns the events that follow from an operator's command or a controller's answer.
pub(in crate::head) fn decide_power(state: &State, command: &PowerCommand) -> Result<Vec<PowerEvent>, Refusal> {
    match command {
        PowerCommand::Plan(plan) if state.power.plan == **plan => Ok(Vec::new()),
        PowerCommand::Plan(plan) => Ok(vec![PowerEvent::Planned(plan.clone())]),
        // Orders of operators. A node that has never joined is refused before its power controller gets a request.
        PowerCommand::On { node, .. } | PowerCommand::Off { node, .. } | PowerCommand::Look { node }
            if state.node(node).is_none() =>
        {
            Err(Refusal::NoSuchNode(node.clone()))
        }
        PowerCommand::On { node, by } => decide_on(state, node, by),
        PowerCommand::Off { node, by, force } => decide_off(state, node, by, *force),
        PowerCommand::Look { node } => {
            let _ = switchable(state, node)?;
            Ok(vec![PowerEvent::Look { node: node.clone() }])
        }
        PowerCommand::Said { node, ask, outcome } => {
            let power = state.power.node(node);
            let Some((_, verb, _)) = power.and_then(|power| power.live.asked).filter(|(it, _, _)| it == ask) else {
                return Ok(Vec::new());
            };
            let mut events = vec![PowerEvent::Said { node: node.clone(), outcome: outcome.clone() }];
            let may_still_go_off =
                power.is_some_and(|power| power.stage == Stage::Waking && power.settles_at.is_some());
            if verb == PowerVerb::On && *outcome == Ok(None) && may_still_go_off {
                events.push(PowerEvent::Woken { node: node.clone() });
            }
            Ok(events)
        }
        PowerCommand::Drew { node, gauge, milliwatts } => {
            let _ = switchable(state, node)?;
            Ok(decide_drew(state, node, *gauge, *milliwatts).into_iter().collect())
        }
    }
}

fn switchable<'a>(state: &'a State, name: &NodeName) -> Result<&'a Power, Refusal> {
    if let Some(power) = state.power.node(name).filter(|_| state.power.is_planned(name)) {
        return Ok(power);
    }
    match state.node(name) {
        Some(_) => Err(Refusal::NoPower(name.clone())),
        None => Err(Refusal::NoSuchNode(name.clone())),
    }
}

/// Decides an operator's order to switch a node on. A node that is on or waking gets no event; a node that is being
/// switched off is refused.
fn decide_on(state: &State, name: &NodeName, by: &str) -> Result<Vec<PowerEvent>, Refusal> {
    let in_use = |why: &str| Err(Refusal::NodeInUse { node: name.clone(), why: why.to_owned() });
    let why = format!("{by} asked to switch the node on");
    match switchable(state, name)?.stage {
        Stage::Off | Stage::Failed | Stage::Unknown => Ok(vec![entered(name, (Stage::Waking, why))]),
        Stage::Asking => Ok(vec![entered(name, (Stage::Up, why))]),
        Stage::Waking | Stage::Up => Ok(Vec::new()),
        Stage::Stopping => in_use("is being switched off; retry after the node is off"),
    }
}

fn decide_off(state: &State, name: &NodeName, by: &str, force: bool) -> Result<Vec<PowerEvent>, Refusal> {
    let power = switchable(state, name)?;
    let in_use = |why: String| Err(Refusal::NodeInUse { node: name.clone(), why });
    let tasks = state.node(name).map_or(0, |node| node.runs.len());
    let is_linked = state.node(name).is_some_and(|node| node.link.is_some());
    let why = format!("{by} asked to switch the node off");
    match power.stage {
        _ if tasks > 0 => in_use(format!(
            "has {tasks} {}; drain the node and wait for its tasks, or cancel the tasks",
            if tasks == 1 { "task" } else { "tasks" }
        )),
        Stage::Off | Stage::Stopping => Ok(Vec::new()),
        Stage::Asking if !force => Ok(Vec::new()),
        _ if force => Ok(vec![entered(name, (Stage::Stopping, format!("{why}, by force")))]),
        Stage::Up | Stage::Asking if is_linked => Ok(vec![entered(name, (Stage::Asking, why))]),
        Stage::Waking => in_use("is being switched on; retry after the node is up, or use --force".to_owned()),
        _ => in_use(
            "has no connected agent to confirm that nothing runs there; use --force if you know that nothing runs"
                .to_owned(),
        ),
    }
}

/// Returns the event for a new measurement; `None` if it adds no information or the node has no meter.
pub(in crate::head) fn decide_drew(
    state: &State,
    name: &NodeName,
    gauge: Gauge,
    milliwatts: Option<u64>,
) -> Option<PowerEvent> {
    let power = state.power.node(name)?;
    let is_news = power.stage.is_powered() && power.meter.is_news((gauge, milliwatts), is_idle(state, name));
    is_news.then(|| PowerEvent::Drew { node: name.clone(), gauge, milliwatts })
}

/// Returns whether the node is up and no run is placed on it.
fn is_idle(state: &State, name: &NodeName) -> bool {
    state.power.node(name).is_some_and(|power| power.stage == Stage::Up)
        && state.node(name).is_some_and(|node| node.runs.is_empty())
}

/// Returns the event for an agent's answer to a request to rest.
pub(in crate::head) fn decide_resting(
    state: &State,
    node: &Node,
    ask: u64,
    busy: Option<&str>,
    is_leaving: bool,
) -> Option<PowerEvent> {
    let power = state.power.node(&node.name)?;
    if power.live.rest != Some(ask) || power.stage == Stage::Up {
        return None;
    }
    if power.stage != Stage::Asking {
        return Some(PowerEvent::AgentSaid { node: node.name.clone(), is_leaving });
    }
    Some(match busy {
        // The machine is shutting down, even if the head wants it on.
        Some(_) if is_leaving && node.runs.is_empty() => entered(&node.name, (Stage::Stopping, power.why.clone())),
        Some(busy) => entered(&node.name, (Stage::Up, format!("the node was not switched off: {busy}"))),
        None if !node.runs.is_empty() => return None,
        None => entered(&node.name, (Stage::Stopping, power.why.clone())),
    })
}

pub(in crate::head) fn update_power(step: &mut Step<'_>, event: &PowerEvent) {
    match event {
        PowerEvent::Planned(plan) => step.plan_power(plan),
        PowerEvent::Entered { node, stage, why } => step.enter(node, *stage, why),
        PowerEvent::Asked { node, verb } => step.ask(node, *verb),
        PowerEvent::Said { node, outcome } => step.note_said(node, outcome),
        PowerEvent::Drew { node, gauge, milliwatts } => {
            let now = step.now.at;
            let is_idle = is_idle(step.state, node);
            step.change_power(node, |power| power.meter.measure(now, (*gauge, *milliwatts), is_idle));
            // No decision depends on measurements.
            return step.state.meter(node, now);
        }
        PowerEvent::Look { node } => {
            // Keep waiting for an open order, which may still be carried out.
            step.change_power(node, |power| {
                power.live.asked = power.live.asked.filter(|(_, verb, _)| *verb != PowerVerb::Status);
            });
            step.request_power_status(node);
        }
        PowerEvent::Woken { node } => {
            let now = step.now.at;
            step.change_power(node, |power| power.settles_at = power.settles_at.map(|at| at.min(now)));
        }
        PowerEvent::AskedAgent { node } => step.ask_agent(node),
        PowerEvent::AgentSaid { node, is_leaving } => {
            let on = step.state.node(node).and_then(|node| Some(node.link.as_ref()?.connection));
            step.change_power(node, |power| power.live.agent_said = on.map(|on| (on, *is_leaving)));
        }
    }
    step.state.power.changed();
}

impl Step<'_> {
    fn change_power(&mut self, name: &NodeName, change: impl FnOnce(&mut Power)) {
        if let Some(power) = self.state.power.nodes.get_mut(name) {
            change(power);
        }
    }

    /// Requests the status from a node's controller at once.
    pub(in crate::head) fn request_power_status(&mut self, name: &NodeName) {
        let now = self.now.at;
        self.change_power(name, |power| power.live.ask_at = now);
    }

    /// Applies a new plan. Nodes that stay in the plan keep their state. If a node leaves the plan while an earlier
    /// order may still switch it off, the node gets no work until it is up again.
    fn plan_power(&mut self, plan: &hostler_model::PowerPlan) {
        let now = self.now;
        let before = std::mem::take(&mut self.state.power.nodes);
        let mut left: Vec<NodeName> = before.keys().filter(|name| !plan.nodes.contains_key(*name)).cloned().collect();
        let mut before = before;
        self.state.power.nodes = plan
            .nodes
            .keys()
            .map(|name| (name.clone(), before.remove(name).unwrap_or_else(|| Power::new(now.at, now.wall))))
            .collect();
        // A node that was only asked returns to work.
        let asked = before.iter().filter(|(_, power)| power.stage == Stage::Asking).map(|(name, _)| name.clone());
        asked.collect::<Vec<_>>().iter().for_each(|name| self.tell(name, HeadMessage::Rise));
        before.retain(|_, power| power.stage == Stage::Stopping || power.settles_at.is_some());
        self.state.power.nodes.append(&mut before);
        self.state.power.plan = plan.clone();
        self.expect_nodes();
        left.retain(|name| self.state.nodes.contains_key(name));
        let known: Vec<NodeName> =
            plan.nodes.keys().filter(|name| self.state.nodes.contains_key(*name)).cloned().collect();
        known.iter().chain(&left).for_each(|name| self.state.sync_pool(name));
        plan.nodes.keys().for_each(|name| self.state.meter(name, now.at));
    }

    /// Adds the nodes that the plan expects, and removes those that it expects no longer and whose agent has never connected.
    fn expect_nodes(&mut self) {
        let has_connected = |state: &State, name: &NodeName| state.node(name).is_some_and(Node::has_connected);
        let expected = |(name, traits): (&NodeName, &PowerTraits)| Some((name.clone(), traits.expected?));
        let expected: BTreeMap<_, _> = self.state.power.plan.nodes.iter().filter_map(expected).collect();
        let known = self.state.nodes().map(|node| node.name.clone());
        let left: Vec<NodeName> =
            known.filter(|name| !expected.contains_key(name) && !has_connected(self.state, name)).collect();
        left.iter().for_each(|name| self.state.remove_node(name, self.now.at));
        for (name, expected) in
            expected.into_iter().filter(|(name, _)| !has_connected(self.state, name)).collect::<Vec<_>>()
        {
            self.see_node(&name, |node| node.facts = NodeFacts::expected(expected));
        }
    }

    fn enter(&mut self, name: &NodeName, stage: Stage, why: &str) {
        let now = self.now;
        let retry_at = self.state.power.node(name).map(|power| view(self.state, name, power, now.at).retry_at());
        let boot = self.state.node(name).map(|node| node.facts.boot.clone());
        let (mut before, epoch) = (Stage::Unknown, self.state.epoch);
        let stop_timeout_ms = self.state.power.policy().stop_timeout_ms;
        self.change_power(name, |power| {
            before = power.stage;
            // Only boots within one epoch count, since the clock stops while no head runs.
            if (power.stage, stage) == (Stage::Waking, Stage::Up) && power.woken_in == epoch {
                power.boots.learn(now.at.ms_since(power.since));
            }
            (power.stage, power.since, power.since_wall) = (stage, now.at, now.wall);
            power.why = why.to_owned();
            power.history.push(PowerChange { state: stage.state(), at: now.wall, why: why.to_owned() });
            if power.history.len() > MOST_CHANGES {
                power.history.remove(0);
            }
            power.live.told = 0;
            power.live.is_forced = false;
            power.live.fault = None;
            power.live.off_told_at = None;
            power.live.refused = None;
            (power.live.rest, power.live.agent_asked, power.live.agent_said) = (None, None, None);
            match (before, stage) {
                (_, Stage::Up) => (power.settles_at, power.boot_before) = (None, None),
                // The machine went off before the timeout of the last order.
                (Stage::Stopping, Stage::Off) => power.settles_at = Some(now.at.plus_ms(stop_timeout_ms)),
                (Stage::Stopping, _) => power.settles_at = Some(now.at),
                _ => {}
            }
            power.live.ask_at = now.at;
            power.again_at = None;
            match stage {
                Stage::Off => {
                    // A node that could not be switched on has not recovered by being off.
                    power.failures = if before == Stage::Failed { power.failures } else { 0 };
                    (power.up_since, power.off_since) = (None, Some(now.at));
                }
                Stage::Waking => {
                    power.starts += 1;
                    power.woken_in = epoch;
                    power.up_since = None;
                }
                Stage::Up if before.ends_a_shutdown() => {
                    // The node could not be switched off, or is busy: wait before the next attempt.
                    power.again_at = retry_at;
                    power.failures = power.failures.saturating_add(u32::from(before == Stage::Stopping));
                }
                Stage::Up => {
                    power.up_since = Some(now.at);
                    power.live.idle_since = power.live.idle_since.map(|_| now.at);
                    power.failures = 0;
                }
                Stage::Stopping => power.boot_before = boot,
                Stage::Failed => {
                    power.again_at = retry_at;
                    power.failures = power.failures.saturating_add(1);
                }
                Stage::Asking | Stage::Unknown => {}
            }
        });
        if self.state.node(name).is_none() {
            return;
        }
        match (before, stage) {
            (_, Stage::Off) => self.disconnect_node(name, "the power controller reports that this machine is off"),
            (_, Stage::Asking) => self.tell_to_rest(name),
            (_, Stage::Up) => self.tell(name, HeadMessage::Rise),
            _ => {}
        }
        if stage == Stage::Up && !self.state.power.is_planned(name) {
            self.state.power.nodes.remove(name);
        }
        self.state.sync_pool(name);
        self.state.meter(name, now.at);
        self.notify_node(name);
    }

    /// Sends a message to a node's agent, if it is connected.
    fn tell(&mut self, name: &NodeName, message: HeadMessage) {
        if let Some(connection) = self.state.node(name).and_then(|node| Some(node.link.as_ref()?.connection)) {
            self.send(connection, message);
        }
    }

    fn tell_to_rest(&mut self, name: &NodeName) {
        self.state.power.asks += 1;
        let ask = self.state.power.asks;
        self.change_power(name, |power| power.live.rest = Some(ask));
        self.tell(name, HeadMessage::Rest { ask });
    }

    /// Asks a node's agent whether its machine is shutting down. The node accepts no new work meanwhile.
    fn ask_agent(&mut self, name: &NodeName) {
        let now = self.now.at;
        let on = self.state.node(name).and_then(|node| Some(node.link.as_ref()?.connection));
        self.change_power(name, |power| power.live.agent_asked = on.map(|on| (on, now)));
        self.tell_to_rest(name);
    }

    /// Sends a newly connected agent the power stage of its node.
    pub(in crate::head) fn tell_power(&mut self, name: &NodeName) {
        match self.state.power.node(name).map(|power| power.stage) {
            Some(Stage::Asking) => self.tell_to_rest(name),
            Some(Stage::Stopping) => {
                self.tell_to_rest(name);
                // The answer would come too early to count.
                self.change_power(name, |power| power.live.rest = None);
            }
            Some(Stage::Off) | None => {}
            Some(_) => self.tell(name, HeadMessage::Rise),
        }
    }

    fn ask(&mut self, name: &NodeName, verb: PowerVerb) {
        let now = self.now.at;
        self.state.power.asks += 1;
        let ask = self.state.power.asks;
        self.change_power(name, |power| {
            let lost = power.live.asked.replace((ask, verb, now));
            if lost.is_some_and(|(_, verb, _)| verb.is_off()) {
                power.live.off_told_at = Some(now);
            }
            if verb != PowerVerb::Status {
                power.live.told += 1;
                power.live.told_at = now;
                power.live.is_forced |= verb == PowerVerb::OffByForce;
            }
            if verb.is_off() {
                (power.live.agent_asked, power.live.agent_said) = (None, None);
            }
        });
        self.changes.effects.push(Effect::Power { node: name.clone(), verb, ask });
    }

    fn note_said(&mut self, name: &NodeName, outcome: &Result<Option<hostler_model::Supply>, super::PowerFault>) {
        let now = self.now.at;
        let policy = self.state.power.policy().clone();
        let power = self.state.power.node(name);
        let needs_first_order = power.is_some_and(|power| view(self.state, name, power, now).needs_first_order());
        self.change_power(name, |power| {
            let asked = power.live.asked.take();
            let told = asked.filter(|(_, verb, _)| *verb != PowerVerb::Status);
            let is_busy = matches!(power.stage, Stage::Waking | Stage::Stopping);
            let pause = match is_busy {
                // The answered request was sent before the order became due.
                true if needs_first_order => 0,
                true => policy.watch_ms,
                false => policy.poll_ms,
            };
            let before = power.live.fault.take().map_or(0, |(_, times)| times);
            // A controller may carry out an order that it answered with an error.
            if power.stage == Stage::Stopping && (told.is_some() || power.live.off_told_at.is_none()) {
                power.live.off_told_at = Some(now);
            }
            match outcome {
                Ok(supply) => {
                    power.live.ask_at = now.plus_ms(pause);
                    // The controller may have queued the order until now.
                    if told.is_some() && supply.is_none() {
                        power.live.told_at = now;
                    }
                    if let Some(supply) = supply {
                        // The answer was true at some time after the request.
                        power.live.supply = Some((*supply, asked.map_or(now, |(_, _, at)| at)));
                    }
                }
                Err(fault) => {
                    power.live.ask_at = now.plus_ms(pause.max(policy.watch_ms).max(fault.retry_after_ms));
                    // Repeat an order that was not carried out.
                    power.live.told = power.live.told.saturating_sub(u32::from(told.is_some()));
                    let times = before.saturating_add(1);
                    if power.live.told == 0 && told.is_some() && (fault.is_lasting || times >= policy.tries) {
                        power.live.refused = Some(fault.text.clone());
                    }
                    power.live.fault = Some((fault.clone(), times));
                }
            }
        });
    }
}

impl Stage {
    /// Returns whether a gauge can measure the node in this stage, because the node is or may be on.
    pub(super) const fn is_powered(self) -> bool {
        matches!(self, Self::Waking | Self::Up | Self::Asking | Self::Stopping)
    }

    /// Returns whether a node that becomes up from this stage was about to be switched off.
    const fn ends_a_shutdown(self) -> bool {
        matches!(self, Self::Asking | Self::Stopping)
    }
}

impl State {
    /// Updates a node's meter. Call this whenever the node's power stage or placed runs change.
    pub(in crate::head) fn meter(&mut self, name: &NodeName, now: Timestamp) {
        let traits = self.power.traits(name);
        let (held, all) = self.nodes.get(name).map_or((0, 1), |node| {
            (node.runs.values().map(|held| held.cpus.len()).sum(), node.facts.resources.cpus.len())
        });
        if let Some(power) = self.power.nodes.get_mut(name) {
            // Use only logged data, so that a replay of the log gives the same readings.
            let (is_off, is_measured) = (power.stage == Stage::Off, power.stage.is_powered());
            power.meter.read(now, Load { watts: traits.watts, is_off, is_measured, held, all });
        }
    }

    /// Returns whether a node would get work if it were on, i.e. no operator has drained it.
    pub(super) fn is_not_drained(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|node| node.drain.is_none() && node.state() != NodeState::Removed)
    }
}
