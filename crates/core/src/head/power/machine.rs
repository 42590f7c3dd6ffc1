//! A node's next stage, from what has been confirmed.

use std::time::Duration;

use hostler_model::{PowerPolicy, PowerVerb, Supply, Timestamp, format_duration};

use super::{Power, Stage};
use crate::head::node::Node;

/// An agent that does not answer for so long whether anything runs does not answer, in milliseconds.
const ANSWER_MS: u64 = 30_000;

/// A question to a controller that is not answered for so long was lost, in milliseconds.
const LOST_MS: u64 = 300_000;

/// An agent of the boot that was switched off may still say a word for so long, in milliseconds.
const LAST_WORDS_MS: u64 = 5_000;

/// The longest pause before a node that has failed is tried again, in milliseconds.
const LONGEST_RETRY_MS: u64 = 24 * 3_600_000;

/// Where a node goes, and why.
pub(super) type Turn = (Stage, String);

/// What counts when a node's stage is judged.
pub(super) struct View<'a> {
    pub(super) power: &'a Power,
    pub(super) node: Option<&'a Node>,
    pub(super) policy: &'a PowerPolicy,
    pub(super) now: Timestamp,
}

impl View<'_> {
    /// Its next stage, if it has another now.
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

    /// What its controller should be asked or told now, if anything.
    pub(super) fn verb(&self) -> Option<PowerVerb> {
        let live = &self.power.live;
        if live.asked.is_some() && !self.is_lost() || live.ask_at > self.now {
            return None;
        }
        let first = live.told == 0;
        Some(match self.power.stage {
            Stage::Waking if first || self.must_be_told_again() => PowerVerb::On,
            Stage::Stopping if self.is_started_again() => PowerVerb::Status,
            Stage::Stopping if first => PowerVerb::OffGracefully,
            Stage::Stopping if self.must_be_forced() => PowerVerb::OffByForce,
            _ => PowerVerb::Status,
        })
    }

    /// When time alone next matters for it.
    pub(super) fn due(&self) -> Timestamp {
        let Power { since, live, again_at, .. } = self.power;
        let answer = live.asked.map_or(live.ask_at, |(_, _, at)| at.plus_ms(LOST_MS));
        let limit = match self.power.stage {
            Stage::Waking => since.plus_ms(self.policy.boot_timeout_ms),
            Stage::Asking => since.plus_ms(ANSWER_MS),
            Stage::Stopping => self.stop_limit(),
            Stage::Up | Stage::Failed => again_at.unwrap_or(Timestamp::NEVER),
            Stage::Unknown | Stage::Off => Timestamp::NEVER,
        };
        // What has passed without a turn waits for something else to happen.
        let silence = self.power.off_since.map_or(Timestamp::NEVER, |at| at.plus_ms(LAST_WORDS_MS));
        [answer, limit, silence].into_iter().filter(|at| *at > self.now).min().unwrap_or(Timestamp::NEVER)
    }

    /// When it may be tried again, should it fail now.
    pub(super) fn retry_at(&self) -> Timestamp {
        let pause = self.policy.retry_ms.saturating_mul(1 << self.power.failures.min(16));
        self.now.plus_ms(pause.min(LONGEST_RETRY_MS.max(self.policy.retry_ms)))
    }

    /// A question that nobody will answer any more.
    fn is_lost(&self) -> bool {
        self.power.live.asked.is_some_and(|(_, _, at)| self.waited(at) >= LOST_MS)
    }

    fn when_unknown(&self) -> Option<Turn> {
        self.came().or_else(|| match self.said_since_heard()? {
            Supply::Off => Some((Stage::Off, "its controller says that it is off".to_owned())),
            Supply::On if self.waited(self.power.since) >= self.policy.boot_timeout_ms => {
                let so_far = self.so_far();
                Some((Stage::Failed, format!("it is on, and its agent has not been heard of for {so_far}")))
            }
            Supply::On => None,
        })
    }

    fn when_off(&self) -> Option<Turn> {
        let came_on =
            || (Stage::Unknown, "somebody else has switched it on, and its agent has not come yet".to_owned());
        self.came().or_else(|| (self.said_since()? == Supply::On).then(came_on))
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
            return failed(format!("it could not be switched on: {}", fault.text));
        }
        if self.power.live.told >= policy.tries && self.stays(Supply::Off) {
            let told = self.power.live.told;
            return failed(format!("its controller has accepted {told} times to switch it on, and it is still off"));
        }
        if self.waited(self.power.since) < policy.boot_timeout_ms {
            return None;
        }
        let so_far = self.so_far();
        failed(match self.said() {
            Some(Supply::On) => format!("it was switched on {so_far} ago, and its agent has not come"),
            Some(Supply::Off) if self.power.live.told > 0 => {
                format!("its controller accepted {so_far} ago to switch it on, and it is still off")
            }
            _ => format!("it was to be switched on {so_far} ago, and nothing has been heard of it"),
        })
    }

    /// It stays failed, for people to see, until it may be tried again.
    fn when_failed(&self) -> Option<Turn> {
        self.came().or_else(|| {
            let may_be_tried = self.power.again_at.is_none_or(|at| at <= self.now);
            let is_off = self.said_since_heard() == Some(Supply::Off) && self.said_since() == Some(Supply::Off);
            (may_be_tried && is_off).then(|| (Stage::Off, format!("it is off; the last time, {}", self.power.why)))
        })
    }

    /// Its agent is gone: whether the machine is, its controller has to say.
    fn when_up(&self) -> Option<Turn> {
        if self.is_linked() {
            return None;
        }
        match self.said_since_heard() {
            Some(Supply::Off) => Some((Stage::Off, "it went off by itself".to_owned())),
            _ if self.node.is_none_or(|node| !node.is_expected_back()) => {
                Some((Stage::Unknown, "its agent is not heard of any more".to_owned()))
            }
            _ => None,
        }
    }

    fn when_asking(&self) -> Option<Turn> {
        if !self.is_linked() {
            return Some((Stage::Unknown, "its agent went away when it was asked whether anything runs".to_owned()));
        }
        let is_late = self.waited(self.power.since) >= ANSWER_MS;
        is_late.then(|| (Stage::Up, "its agent did not say whether anything runs".to_owned()))
    }

    fn when_stopping(&self) -> Option<Turn> {
        if self.is_started_again() {
            // What its controller has accepted may still be done, to this boot now.
            return self
                .is_stop_over()
                .then(|| (Stage::Up, "it was started again while it was being switched off".to_owned()));
        }
        if self.power.live.told > 0 && self.said_since_told() == Some(Supply::Off) {
            return Some((Stage::Off, "switched off".to_owned()));
        }
        let fault = self.power.live.fault.as_ref();
        let refused = fault.filter(|(fault, times)| fault.is_lasting || *times >= self.policy.tries);
        let why = match refused {
            Some((fault, _)) if self.power.live.told == 0 => format!("it could not be switched off: {}", fault.text),
            _ if !self.is_stop_over() => return None,
            _ => format!("it was told to shut down {} ago, and is still on", self.so_far()),
        };
        // One whose agent lives is of use as it is.
        Some((if self.is_linked() { Stage::Up } else { Stage::Failed }, why))
    }

    /// Its agent is connected, however that came about.
    fn came(&self) -> Option<Turn> {
        (self.is_linked() && !self.says_last_words()).then(|| {
            let why = match self.power.stage {
                Stage::Waking => format!("its agent came after {}", self.so_far()),
                _ => "its agent is connected".to_owned(),
            };
            (Stage::Up, why)
        })
    }

    /// Its controller is ahead of the machine itself, whose agent has connected once more.
    fn says_last_words(&self) -> bool {
        matches!(self.power.stage, Stage::Off | Stage::Waking)
            && self.power.off_since.is_some_and(|at| self.waited(at) < LAST_WORDS_MS)
            && self.node.is_some_and(|node| Some(&node.boot) == self.power.boot_before.as_ref())
    }

    fn is_linked(&self) -> bool {
        self.node.is_some_and(|node| node.link.is_some())
    }

    /// What its controller said last.
    fn said(&self) -> Option<Supply> {
        self.power.live.supply.map(|(supply, _)| supply)
    }

    /// What it has said since the node's agent was last heard: before that it may have been otherwise.
    fn said_since_heard(&self) -> Option<Supply> {
        let heard = self.node.map_or(Timestamp::default(), |node| node.last_heard);
        self.power.live.supply.filter(|(_, at)| *at >= heard).map(|(supply, _)| supply)
    }

    /// What it has said in this stage.
    fn said_since(&self) -> Option<Supply> {
        self.power.live.supply.filter(|(_, at)| *at > self.power.since).map(|(supply, _)| supply)
    }

    /// What it has said since it was told something.
    fn said_since_told(&self) -> Option<Supply> {
        self.power.live.supply.filter(|(_, at)| *at >= self.power.live.told_at).map(|(supply, _)| supply)
    }

    /// Whether it has not done what it was told although it has had the time.
    fn stays(&self, supply: Supply) -> bool {
        self.waited(self.power.live.told_at) >= self.policy.again_ms && self.said_since_told() == Some(supply)
    }

    fn must_be_told_again(&self) -> bool {
        self.power.live.told < self.policy.tries && self.stays(Supply::Off)
    }

    fn must_be_forced(&self) -> bool {
        let live = &self.power.live;
        self.policy.force_off && !live.is_forced && self.waited(self.power.since) >= self.policy.stop_timeout_ms
    }

    /// From then on nothing comes any more of what it was told, by this head or an earlier one.
    fn stop_limit(&self) -> Timestamp {
        let limit_ms = self.policy.stop_timeout_ms;
        let first = self.power.since.plus_ms(limit_ms * (1 + u64::from(self.policy.force_off)));
        if self.power.live.told > 0 { first.max(self.power.live.told_at.plus_ms(limit_ms)) } else { first }
    }

    /// Whether nothing comes any more of what it was told, as far as that can be known: not while its controller has yet to answer.
    fn is_stop_over(&self) -> bool {
        let is_told = self.power.live.asked.is_some_and(|(_, verb, _)| verb != PowerVerb::Status) && !self.is_lost();
        !is_told && self.stop_limit() <= self.now
    }

    /// While it is being switched off its agent has come with another boot.
    fn is_started_again(&self) -> bool {
        self.is_linked() && self.node.is_some_and(|node| Some(&node.boot) != self.power.boot_before.as_ref())
    }

    fn waited(&self, since: Timestamp) -> u64 {
        self.now.ms_since(since)
    }

    fn so_far(&self) -> String {
        format_duration(Duration::from_millis(self.waited(self.power.since)))
    }
}
