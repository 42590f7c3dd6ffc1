//! Power in the simulation: in some worlds the head switches nodes on and off through slow and faulty controllers. The
//! check: the head switches off no machine on which a run runs or may run, and places nothing on a machine that is
//! shutting down.

use hostler_core::head::{Command, PowerCommand, PowerEvent, PowerFault, Stage};
use hostler_model::{Gauge, NodeName, PowerPlan, PowerPolicy, PowerTraits, PowerVerb, RunId, Supply};

use super::books::Books;
use super::rng::Rng;
use super::world::faults::Fault;
use super::world::head::Input;
use super::world::power::{Controllers, PowerStep};
use super::world::time::{MS, SECOND};
use super::world::{ScheduledEvent, World};

/// The longest time that an order takes, in microseconds: slightly less than the stop timeout of the plan.
const LATEST: u64 = 11_900 * MS;

/// Worlds of these seeds keep the milder controllers, so that seeds that failed once give the same trace.
const FIRST_ROUGH_SEED: u64 = 50_000;

impl World {
    /// Plans power steps. Uses separate random numbers, so that the other parts of a world do not depend on them.
    pub(super) fn plan_power(&mut self, calm: u64, seed: u64) {
        let mut dice = Rng::new((!seed).rotate_left(16));
        if !dice.chance(350) {
            return;
        }
        let at = dice.below(5 * SECOND);
        self.later(at, ScheduledEvent::Power(PowerStep::Plan));
        let mut rough = (seed >= FIRST_ROUGH_SEED).then(|| Rng::new(seed.rotate_left(48)));
        if let Some(dice) = &mut rough {
            for _ in 0..dice.below(4) {
                let at = dice.below(calm);
                self.later(at, ScheduledEvent::Power(PowerStep::Plan));
            }
            for _ in 0..dice.below(8) {
                let at = dice.below(calm);
                self.later(at, ScheduledEvent::Power(PowerStep::Operate));
            }
            // The final plan has every node.
            self.later(calm + 20 * SECOND, ScheduledEvent::Power(PowerStep::Plan));
        }
        self.controllers = Some(Controllers { dice, orders: vec![0; self.nodes.len()], rough });
    }

    /// Whether a node is off and the head does not wake it.
    pub(super) fn is_off_intentionally(&self, node: usize) -> bool {
        let name = &self.nodes[node].name;
        let power = self.head.process.as_ref().and_then(|process| process.state.power.node(name));
        !self.nodes[node].is_powered
            && power.is_some_and(|power| matches!(power.stage, Stage::Off | Stage::Failed | Stage::Unknown))
    }

    /// Whether a node that is removed now would stay off. In rough worlds nodes leave the plan, and orders to switch
    /// them off may still arrive. The head does not switch on a node that it does not know.
    pub(super) fn would_stay_off(&self, name: &NodeName) -> bool {
        let is_planned = self.head.process.as_ref().is_some_and(|process| process.state.power.is_planned(name));
        self.controllers.as_ref().is_some_and(|controllers| controllers.rough.is_some()) && !is_planned
    }

    pub(super) fn power_step(&mut self, step: PowerStep) {
        match step {
            PowerStep::Plan => {
                if self.head.process.is_none() {
                    return self.later(SECOND, ScheduledEvent::Power(PowerStep::Plan));
                }
                let plan = Box::new(self.power_plan());
                self.input(Input::of(Command::Power(PowerCommand::Plan(plan))));
            }
            PowerStep::Answer { life, node, ask, outcome } => {
                if self.head.process.is_some() && self.head.lives == life {
                    let command = Command::Power(PowerCommand::Said { node: node.clone(), ask, outcome });
                    self.input(Input::of(command));
                    self.measure(node);
                }
            }
            PowerStep::Follow { node, order, verb } => self.follow(node, order, verb),
            PowerStep::Operate => {
                let Some(Controllers { rough: Some(dice), .. }) = &mut self.controllers else { return };
                let node = self.nodes[dice.below(self.nodes.len() as u64) as usize].name.clone();
                let by = "root".to_owned();
                let command = match dice.below(5) {
                    0 | 1 => PowerCommand::Off { node, by, force: false },
                    2 => PowerCommand::On { node, by },
                    _ => PowerCommand::Look { node },
                };
                self.note(format_args!("an operator wants {command:?}"));
                if self.head.process.is_some() {
                    self.input(Input::of(Command::Power(command)));
                }
            }
        }
    }

    /// Occasionally reports the power draw of a machine, or that it cannot be measured.
    fn measure(&mut self, node: NodeName) {
        let Some(Controllers { dice, .. }) = &mut self.controllers else { return };
        if dice.chance(100) {
            let milliwatts = dice.chance(800).then(|| dice.range(4_000, 300_000));
            let gauge = if dice.chance(500) { Gauge::Controller } else { Gauge::Agent };
            let command = Command::Power(PowerCommand::Drew { node, gauge, milliwatts });
            self.input(Input::of(command));
        }
    }

    fn power_plan(&mut self) -> PowerPlan {
        let dice = &mut self.controllers.as_mut().expect("a world with a power plan has controllers").dice;
        let policy = PowerPolicy {
            idle_ms: dice.range(500, 8_000),
            min_up_ms: dice.range(0, 5_000),
            keep_warm: dice.below(2) as u32,
            boot_timeout_ms: 20_000,
            stop_timeout_ms: 12_000,
            force_off: dice.chance(300),
            watch_ms: 500,
            poll_ms: 4_000,
            again_ms: 7_000,
            tries: 3,
            retry_ms: dice.range(500, 5_000),
            ..PowerPolicy::default()
        };
        let traits = PowerTraits { boot_ms: 3_000, ..PowerTraits::default() };
        let mut names: Vec<NodeName> = self.nodes.iter().map(|node| node.name.clone()).collect();
        let is_calm = self.is_calm;
        // Occasionally a node is missing from the plan.
        if let Some(Controllers { rough: Some(dice), .. }) = &mut self.controllers
            && !is_calm
        {
            names.retain(|_| dice.chance(750));
        }
        PowerPlan { policy, nodes: names.into_iter().map(|name| (name, traits)).collect() }
    }

    /// Makes a controller handle a query or an order.
    pub(super) fn controller_receives(&mut self, name: &NodeName, verb: PowerVerb, ask: u64) {
        let Some(node) = self.nodes.iter().position(|node| node.name == *name) else { return };
        let (life, is_calm, is_on) = (self.head.lives, self.is_calm, self.nodes[node].is_powered);
        let Some(Controllers { dice, orders, rough }) = &mut self.controllers else { return };
        let delay = dice.skewed(300 * MS);
        let mood = if is_calm { 100 } else { dice.below(100) };
        let supply = if is_on { Supply::On } else { Supply::Off };
        let is_so = match verb {
            PowerVerb::Status => true,
            PowerVerb::On => is_on,
            PowerVerb::OffGracefully | PowerVerb::OffByForce => !is_on,
        };
        // The controller carries out an off order late, and sometimes twice, regardless of its answer.
        let rough = rough.as_mut().filter(|_| verb.is_off() && !is_so && !is_calm);
        let late: Vec<u64> =
            rough.map_or_else(Vec::new, |dice| (0..dice.below(3)).map(|_| dice.below(LATEST)).collect());
        if !late.is_empty() {
            orders[node] += 1;
        }
        let late_order = orders[node];
        let outcome = match mood {
            // The controller never answers.
            0..5 => None,
            5..15 => Some(Err(fault(mood == 5))),
            _ if !late.is_empty() => Some(Ok(None)),
            _ if is_so => Some(Ok(Some(supply))),
            _ => {
                orders[node] += 1;
                let order = orders[node];
                // The controller accepts the order but sometimes does not follow it.
                let is_followed = mood > 25;
                let takes = dice.below(5 * SECOND);
                if is_followed {
                    self.later(takes, ScheduledEvent::Power(PowerStep::Follow { node, order, verb }));
                }
                Some(Ok(None))
            }
        };
        for takes in late {
            self.later(takes, ScheduledEvent::Power(PowerStep::Follow { node, order: late_order, verb }));
        }
        let name = name.clone();
        let answer = match &outcome {
            None => "no answer".to_owned(),
            Some(Ok(Some(supply))) => format!("the answer is {supply:?}"),
            Some(Ok(None)) => "accepted".to_owned(),
            Some(Err(fault)) => format!("failed: {}", fault.text),
        };
        self.note(format_args!("the controller of {name} is asked for {verb:?}: {answer}"));
        if let Some(outcome) = outcome {
            self.later(delay, ScheduledEvent::Power(PowerStep::Answer { life, node: name, ask, outcome }));
        }
    }

    fn follow(&mut self, node: usize, order: u64, verb: PowerVerb) {
        if self.controllers.as_ref().is_none_or(|controllers| controllers.orders[node] != order) {
            return;
        }
        match verb {
            PowerVerb::Status => {}
            PowerVerb::On => {
                self.note(format_args!("n{node} is switched on"));
                self.power_on(node);
            }
            PowerVerb::OffGracefully | PowerVerb::OffByForce => {
                if !self.nodes[node].is_powered {
                    return;
                }
                let name = self.nodes[node].name.clone();
                let runs: Vec<RunId> = self.nodes[node].shepherds.keys().copied().collect();
                self.books.expect(runs.is_empty(), || format!("{name} is switched off while {runs:?} run there"));
                self.books.check_nothing_placed(&name);
                self.lose_power(node);
                // Occasionally someone switches the machine on again.
                if !self.is_calm && self.rng.chance(50) {
                    self.later(self.now_us % (8 * SECOND), ScheduledEvent::Fault(Fault::PowerOn { node }));
                }
            }
        }
    }
}

fn fault(is_lasting: bool) -> PowerFault {
    PowerFault { text: "a simulated fault".to_owned(), is_lasting, retry_after_ms: 0 }
}

impl Books {
    /// Checks that no run is still placed on a node that is being switched off.
    fn check_nothing_placed(&mut self, name: &NodeName) {
        let held = self.held_on(name);
        self.expect(held == hostler_model::Resources::default(), || {
            format!("{name} is switched off while {held:?} is held there")
        });
    }

    pub(super) fn see_power(&mut self, event: &PowerEvent) {
        match event {
            PowerEvent::Entered { node, stage, .. } => match stage {
                Stage::Asking | Stage::Stopping => _ = self.leaving.insert(node.clone(), *stage == Stage::Stopping),
                _ => _ = self.leaving.remove(node),
            },
            // Pending queries end when the head no longer manages the power of a node.
            PowerEvent::Planned(plan) => {
                self.leaving.retain(|node, is_told| *is_told || plan.nodes.contains_key(node));
            }
            _ => {}
        }
    }

    pub(super) fn check_not_leaving(&mut self, run: RunId, node: &NodeName) {
        let is_leaving = self.leaving.contains_key(node);
        self.expect(!is_leaving, || format!("{run} is placed on {node}, which is being switched off"));
    }
}
