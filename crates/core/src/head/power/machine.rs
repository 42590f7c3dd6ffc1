//! Decides a node's next stage from confirmed facts.

use hostler_model::{NodeName, PowerPolicy, PowerVerb, Supply, Timestamp, format_ms};

use super::state::{Power, PowerEvent, Stage};
use crate::head::nodes::node::Node;

/// How long an agent may take to answer, in milliseconds.
const ANSWER_MS: u64 = 30_000;

/// Time in milliseconds after which an unanswered request to a power controller counts as lost.
const LOST_MS: u64 = 300_000;

/// How long messages that the agent sent before a power-off may still arrive, in milliseconds.
const LATE_MESSAGES_MS: u64 = 5_000;

/// The longest pause before the head retries a failed node, in milliseconds.
const LONGEST_RETRY_MS: u64 = 24 * 3_600_000;

/// A node's next power stage, and the reason for people.
pub(super) type Turn = (Stage, String);

/// What the choice of a node's next power stage depends on.
pub(super) struct View<'a> {
    pub(super) power: &'a Power,
    pub(super) node: Option<&'a Node>,
    pub(super) policy: &'a PowerPolicy,
    pub(super) now: Timestamp,
}

/// The event with which a node enters a stage.
pub(super) fn entered(node: &NodeName, (stage, why): Turn) -> PowerEvent {
    PowerEvent::Entered { node: node.clone(), stage, why }
}

/// The events, or `None` if there are none.
pub(super) fn some(events: Vec<PowerEvent>) -> Option<Vec<PowerEvent>> {
    (!events.is_empty()).then_some(events)
}

impl View<'_> {
    /// Returns the node's next stage and the reason; `None` if it stays in its stage.
    pub(super) fn turn(&self) -> Option<Turn> {
        match self.power.stage {
            Stage::Unknown => self.when_unknown(),
            Stage::Off => self.when_off(),
            Stage::Waking => self.when_waking(),
            Stage::Up => self.when_up(),
            Stage::Asking => self.when_asking(),
            Stage::Stopping => self.when_stopping(),
            Stage::Failed => self.when_failed(),
        }
    }

    /// Returns the next request to the node's power controller; `None` if no request is due.
    pub(super) fn verb(&self) -> Option<PowerVerb> {
        let live = &self.power.live;
        if live.asked.is_some() && !self.is_lost() || live.ask_at > self.now {
            return None;
        }
        let first = self.needs_first_order();
        Some(match self.power.stage {
            Stage::Waking if first || self.must_repeat_order() => PowerVerb::On,
            Stage::Stopping if self.is_started_again() || live.refused.is_some() => PowerVerb::Status,
            Stage::Stopping if first => PowerVerb::OffGracefully,
            Stage::Stopping if self.must_be_forced() => PowerVerb::OffByForce,
            _ => PowerVerb::Status,
        })
    }

    /// Returns whether this stage begins with an order to the controller that was not yet sent.
    pub(super) fn needs_first_order(&self) -> bool {
        let live = &self.power.live;
        live.told == 0
            && match self.power.stage {
                Stage::Waking => true,
                Stage::Stopping => live.refused.is_none() && !self.is_started_again(),
                _ => false,
            }
    }

    /// Returns the next time at which a time limit passes, so that the node may change its stage or need a request.
    pub(super) fn due(&self) -> Timestamp {
        let Power { since, live, again_at, .. } = self.power;
        let answer = live.asked.map_or(live.ask_at, |(_, _, at)| at.plus_ms(LOST_MS));
        let limit = match self.power.stage {
            Stage::Waking => since.plus_ms(self.policy.boot_timeout_ms),
            Stage::Asking => since.plus_ms(ANSWER_MS),
            Stage::Stopping => self.stop_limit().unwrap_or(Timestamp::NEVER),
            Stage::Up | Stage::Failed => again_at.unwrap_or(Timestamp::NEVER),
            Stage::Unknown | Stage::Off => Timestamp::NEVER,
        };
        // A time that has passed without a change of stage waits for another event.
        let window = self.power.settles_at.unwrap_or(Timestamp::NEVER);
        let silence = self.power.off_since.map_or(Timestamp::NEVER, |at| at.plus_ms(LATE_MESSAGES_MS));
        let agent = live.agent_asked.map_or(Timestamp::NEVER, |(_, at)| at.plus_ms(ANSWER_MS));
        [answer, limit, window, silence, agent]
            .into_iter()
            .filter(|at| *at > self.now)
            .min()
            .unwrap_or(Timestamp::NEVER)
    }

    /// Returns when the head may retry the node if it fails now. The pause doubles with each failure.
    pub(super) fn retry_at(&self) -> Timestamp {
        let pause = self.policy.retry_ms.saturating_mul(1 << self.power.failures.min(16));
        self.now.plus_ms(pause.min(LONGEST_RETRY_MS.max(self.policy.retry_ms)))
    }

    /// Returns whether the controller has left a request unanswered for too long.
    fn is_lost(&self) -> bool {
        self.power.live.asked.is_some_and(|(_, _, at)| self.waited(at) >= LOST_MS)
    }

    fn when_unknown(&self) -> Option<Turn> {
        self.came().or_else(|| match self.reported_since_message()? {
            Supply::Off => Some((Stage::Off, "the power controller reports that the node is off".to_owned())),
            Supply::On if self.waited(self.power.since) >= self.policy.boot_timeout_ms => {
                let so_far = self.so_far();
                Some((Stage::Failed, format!("the node is on, but its agent has been silent for {so_far}")))
            }
            Supply::On => None,
        })
    }

    fn when_off(&self) -> Option<Turn> {
        let came_on =
            || (Stage::Unknown, "someone else switched the node on, and its agent has not connected yet".to_owned());
        self.came().or_else(|| (self.reported_in_stage()? == Supply::On).then(came_on))
    }

    fn when_waking(&self) -> Option<Turn> {
        let policy = self.policy;
        let failed = |why: String| Some((Stage::Failed, why));
        if let Some(up) = self.came() {
            return Some(up);
        }
        if let Some((fault, times)) = &self.power.live.fault
            && (fault.is_lasting || *times >= policy.tries)
        {
            return failed(format!("the node could not be switched on: {}", fault.text));
        }
        if self.power.live.told >= policy.tries && self.stays(Supply::Off) {
            let told = self.power.live.told;
            return failed(format!(
                "the power controller accepted {told} requests to switch the node on, and the node is still off"
            ));
        }
        if self.waited(self.power.since) < policy.boot_timeout_ms {
            return None;
        }
        let so_far = self.so_far();
        failed(match self.said() {
            Some(Supply::On) => format!("the node was switched on {so_far} ago, and its agent has not connected"),
            Some(Supply::Off) if self.power.live.told > 0 => {
                format!(
                    "the power controller accepted the request to switch the node on {so_far} ago, and the node is still off"
                )
            }
            _ => format!(
                "the node's start was requested {so_far} ago, and neither its power controller nor its agent has answered"
            ),
        })
    }

    /// Returns the next stage of a failed node. The node stays failed, so that people see it, until a retry is allowed.
    fn when_failed(&self) -> Option<Turn> {
        self.came().or_else(|| {
            let may_be_tried = self.power.again_at.is_none_or(|at| at <= self.now);
            let is_off =
                self.reported_since_message() == Some(Supply::Off) && self.reported_in_stage() == Some(Supply::Off);
            (may_be_tried && is_off)
                .then(|| (Stage::Off, format!("the node is off; the last failure: {}", self.power.why)))
        })
    }

    /// Returns the next stage of a node that is up: off or unknown if its agent is disconnected, depending on the
    /// controller.
    fn when_up(&self) -> Option<Turn> {
        if self.is_linked() {
            return None;
        }
        match self.reported_since_message() {
            Some(Supply::Off) => Some((Stage::Off, "the node went off without an order from the head".to_owned())),
            _ if self.node.is_none_or(|node| !node.is_within_limits()) => {
                Some((Stage::Unknown, "the node's agent is silent".to_owned()))
            }
            _ => None,
        }
    }

    fn when_asking(&self) -> Option<Turn> {
        if !self.is_linked() {
            return Some((
                Stage::Unknown,
                "the node's agent disconnected when it was asked whether anything runs".to_owned(),
            ));
        }
        let is_late = self.waited(self.power.since) >= ANSWER_MS;
        is_late.then(|| (Stage::Up, "the node's agent did not answer whether anything runs".to_owned()))
    }

    fn when_stopping(&self) -> Option<Turn> {
        let is_told = self.power.live.told > 0 || self.power.live.refused.is_some();
        if is_told && self.reported_since_order() == Some(Supply::Off) && !self.is_started_again() {
            return Some((Stage::Off, "switched off".to_owned()));
        }
        if !self.is_stop_over() {
            return None;
        }
        if self.is_started_again() {
            return Some((Stage::Up, "the node was started again while it was being switched off".to_owned()));
        }
        let why = match &self.power.live.refused {
            Some(why) => format!("the node could not be switched off: {why}"),
            None => format!("the node was ordered to shut down {} ago, and is still on", self.so_far()),
        };
        // A node with a live agent stays usable once the agent has confirmed that its machine is not shutting down.
        match self.is_linked() {
            true => self.stays_on().then_some((Stage::Up, why)),
            false => Some((Stage::Failed, why)),
        }
    }

    /// Returns [`Stage::Up`] if the agent is connected and no earlier off order can still take effect.
    fn came(&self) -> Option<Turn> {
        (self.is_linked() && !self.may_still_go_off()).then(|| {
            let why = match self.power.stage {
                Stage::Waking => format!("the node's agent connected after {}", self.so_far()),
                _ => "the node's agent is connected".to_owned(),
            };
            (Stage::Up, why)
        })
    }

    /// Returns whether the machine of the connected agent may still go off because of an earlier order.
    fn may_still_go_off(&self) -> bool {
        let Some(at) = self.power.settles_at else { return false };
        // The same boot means that the controller reported off wrongly, or before the machine was off.
        self.now < at || self.is_boot_shut_down() && !(self.stays_on() && self.is_old_boot_silent())
    }

    /// Returns whether the machine has been off for so long that an agent of the earlier boot would be silent.
    fn is_old_boot_silent(&self) -> bool {
        self.power.off_since.is_none_or(|at| self.waited(at) >= LATE_MESSAGES_MS)
    }

    /// Returns whether the head must now ask the agent whether the machine is shutting down.
    pub(super) fn must_ask_agent(&self) -> bool {
        let is_over = match self.power.stage {
            Stage::Stopping => self.is_stop_over(),
            Stage::Up | Stage::Asking => false,
            Stage::Unknown | Stage::Off | Stage::Waking | Stage::Failed => {
                self.power.settles_at.is_some_and(|at| at <= self.now) && self.is_old_boot_silent()
            }
        };
        let link = self.node.and_then(|node| node.link.as_ref());
        let is_asked = |connection| {
            let asked = self.power.live.agent_asked;
            asked.is_some_and(|(on, at)| on == connection && self.waited(at) < ANSWER_MS)
        };
        is_over && self.is_boot_shut_down() && !self.stays_on() && link.is_some_and(|link| !is_asked(link.connection))
    }

    /// Returns whether the connected agent has answered that the machine is not shutting down.
    fn stays_on(&self) -> bool {
        let link = self.node.and_then(|node| node.link.as_ref());
        link.is_some_and(|link| self.power.live.agent_said == Some((link.connection, false)))
    }

    /// Returns whether the connected agent belongs to the boot that was ordered to shut down.
    fn is_boot_shut_down(&self) -> bool {
        self.is_linked() && self.node.is_some_and(|node| Some(&node.facts.boot) == self.power.boot_before.as_ref())
    }

    fn is_linked(&self) -> bool {
        self.node.is_some_and(|node| node.link.is_some())
    }

    /// Returns whether the controller last reported the machine on or off.
    fn said(&self) -> Option<Supply> {
        self.power.live.supply.map(|(supply, _)| supply)
    }

    /// Returns what the controller reported since the agent's last message. An older report may be out of date.
    fn reported_since_message(&self) -> Option<Supply> {
        let heard = self.node.map_or(Timestamp::default(), |node| node.last_heard);
        self.power.live.supply.filter(|(_, at)| *at >= heard).map(|(supply, _)| supply)
    }

    /// Returns what the controller reported since this stage began.
    fn reported_in_stage(&self) -> Option<Supply> {
        self.power.live.supply.filter(|(_, at)| *at > self.power.since).map(|(supply, _)| supply)
    }

    /// Returns what the controller reported since the last order.
    fn reported_since_order(&self) -> Option<Supply> {
        self.power.live.supply.filter(|(_, at)| *at >= self.power.live.told_at).map(|(supply, _)| supply)
    }

    /// Returns whether the machine is still in the state `supply`, although it has had enough time to follow the last
    /// order.
    fn stays(&self, supply: Supply) -> bool {
        self.waited(self.power.live.told_at) >= self.policy.again_ms && self.reported_since_order() == Some(supply)
    }

    fn must_repeat_order(&self) -> bool {
        self.power.live.told < self.policy.tries && self.stays(Supply::Off)
    }

    fn must_be_forced(&self) -> bool {
        let live = &self.power.live;
        self.policy.force_off && !live.is_forced && self.waited(self.power.since) >= self.policy.stop_timeout_ms
    }

    /// Returns when the off orders of this head and earlier heads can no longer take effect. `None` until the
    /// controller has answered this head, because it may not yet have received an order of an earlier head.
    fn stop_limit(&self) -> Option<Timestamp> {
        let limit_ms = self.policy.stop_timeout_ms;
        let first = self.power.since.plus_ms(limit_ms * (1 + u64::from(self.policy.force_off)));
        Some(first.max(self.power.live.off_told_at?.plus_ms(limit_ms)))
    }

    /// Returns whether no off order can take effect any longer, as far as the head knows. False while an order to the
    /// controller is unanswered.
    fn is_stop_over(&self) -> bool {
        let is_told = self.power.live.asked.is_some_and(|(_, verb, _)| verb != PowerVerb::Status) && !self.is_lost();
        !is_told && self.stop_limit().is_some_and(|at| at <= self.now)
    }

    /// Returns whether the agent has connected from a new boot while the node is being switched off.
    fn is_started_again(&self) -> bool {
        self.is_linked() && !self.is_boot_shut_down()
    }

    fn waited(&self, since: Timestamp) -> u64 {
        self.now.ms_since(since)
    }

    fn so_far(&self) -> String {
        format_ms(self.waited(self.power.since))
    }
}
