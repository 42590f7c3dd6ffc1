//! One node's controller, as the head uses it: every verb begins with the question how things are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hostler_model::{NodeName, PowerVerb as Verb, Supply};
use tokio::time::Instant;

use crate::command::CommandDriver;
use crate::ipmi::IpmiDriver;
use crate::pace::{Lane, Outage};
use crate::redfish::RedfishDriver;
use crate::slurm::SlurmDriver;
use crate::wake_on_lan::WakeOnLanDriver;
use crate::{ControllerConfig, Driver, Fault, FaultKind, Off, Pace, Site};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The controller has confirmed that this is so. For any verb but the status: so it was already, and nothing was done.
    Confirmed(Supply),
    /// The controller has accepted the verb. Whether and when it is done the status will say.
    Accepted,
}

/// How long it may take to give something back. Who leaves does not wait long: sessions end by themselves, only later.
const LEAVING: Duration = Duration::from_secs(5);

/// One per node.
pub struct Controller {
    node: NodeName,
    driver: Box<dyn Driver>,
    pace: Pace,
    lane: Arc<Lane>,
    outage: Outage,
}

impl Controller {
    /// The controller of `node` as it is configured. Nothing is sent yet, and no file is read.
    ///
    /// # Errors
    /// When the configuration cannot be meant, with what to write instead.
    pub fn new(node: &NodeName, config: &ControllerConfig, site: &Site) -> Result<Self, Fault> {
        let driver: Box<dyn Driver> = match config {
            ControllerConfig::Redfish(config) => Box::new(RedfishDriver::new(config, site)?),
            ControllerConfig::Ipmi(config) => Box::new(IpmiDriver::new(config)),
            ControllerConfig::WakeOnLan(config) => Box::new(WakeOnLanDriver::new(node, config, site)),
            ControllerConfig::Command(config) => Box::new(CommandDriver::new(node, config)?),
            ControllerConfig::Slurm(config) => Box::new(SlurmDriver::new(node, config)?),
            ControllerConfig::Virtual(_) => {
                return Err(Fault::unprepared(format!("{node} is virtual, which has no controller"))
                    .hint("only the head that starts virtual nodes can switch them"));
            }
        };
        let lane = config.shares().map_or_else(Arc::default, |name| site.lane(&name));
        Ok(Self { node: node.clone(), driver, pace: config.pace(), lane, outage: Outage::default() })
    }

    /// A controller with a driver of the caller's own.
    #[must_use]
    pub fn with(node: &NodeName, driver: Box<dyn Driver>, pace: Pace) -> Self {
        Self { node: node.clone(), driver, pace, lane: Arc::default(), outage: Outage::default() }
    }

    /// Does this, unless the controller confirms that it is so already.
    ///
    /// Dropping the call does not take back what has been sent.
    ///
    /// # Errors
    /// When the present state is not confirmed, in which case no verb has been sent; when the verb was not accepted, or nobody knows
    /// whether it was. After a fault that may go away by itself the controller is left alone for a while, and the same fault is
    /// returned at once, with how long that will be.
    pub async fn act(&self, verb: Verb) -> Result<Answer, Fault> {
        let work = async {
            let supply = self.driver.status().await?;
            match (verb, supply) {
                (Verb::Status, _) | (Verb::On, Supply::On) | (Verb::OffGracefully | Verb::OffByForce, Supply::Off) => {
                    return Ok(Answer::Confirmed(supply));
                }
                (Verb::On, Supply::Off) => self.driver.on().await?,
                (Verb::OffGracefully, Supply::On) => self.driver.off(Off::Gracefully).await?,
                (Verb::OffByForce, Supply::On) => self.driver.off(Off::ByForce).await?,
            }
            Ok(Answer::Accepted)
        };
        self.attempt(work).await.map_err(|fault| fault.about(|| self.not_done(verb)))
    }

    /// What the node draws now, in watts; nothing where that cannot be read.
    ///
    /// # Errors
    /// As for the status.
    pub async fn watts(&self) -> Result<Option<f64>, Fault> {
        self.may_ask()?;
        let _turn = self.lane.turn(self.pace.gap).await;
        self.may_ask()?;
        // Whether it can be switched does not depend on whether it can measure: nothing is remembered of a fault.
        let read = tokio::time::timeout(self.pace.time_limit, self.driver.watts()).await;
        read.unwrap_or_else(|_| Err(self.took_too_long()))
            .map_err(|fault| fault.about(|| format!("what {} draws could not be read", self.node)))
    }

    /// Gives back what is held at the controller, such as a session: when the head ends, or the node has another controller from now on.
    pub async fn leave(&self) {
        let _turn = self.lane.turn(self.pace.gap).await;
        let _ = tokio::time::timeout(LEAVING, self.driver.leave()).await;
    }

    /// Lets the controller be asked at once, whatever was wrong a moment ago: for a person who has mended it.
    pub fn forget_faults(&self) {
        self.lane.outage.forget();
        self.outage.forget();
    }

    /// One command, in its turn and within its time.
    async fn attempt<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.may_ask()?;
        let _turn = self.lane.turn(self.pace.gap).await;
        // Those before may have found out.
        self.may_ask()?;
        let result = match tokio::time::timeout(self.pace.time_limit, work).await {
            Ok(result) => result,
            Err(_) => Err(self.took_too_long()),
        };
        self.note(result)
    }

    fn may_ask(&self) -> Result<(), Fault> {
        let now = Instant::now();
        self.lane.outage.check(now)?;
        self.outage.check(now)
    }

    /// One that does not answer, or has no time, has none for the other nodes behind it either. Everything else is this node's own.
    fn note<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        let now = Instant::now();
        let is_shared =
            result.as_ref().is_err_and(|fault| matches!(fault.kind(), FaultKind::Unreachable | FaultKind::Busy));
        if is_shared {
            return self.lane.outage.note(now, &self.pace, result);
        }
        self.lane.outage.forget();
        self.outage.note(now, &self.pace, result)
    }

    fn took_too_long(&self) -> Fault {
        let why = format!("its controller had not finished after {} s", self.pace.time_limit.as_secs());
        Fault::unreachable(why).hint("whether it took effect is not known: ask for the status")
    }

    fn not_done(&self, verb: Verb) -> String {
        let node = &self.node;
        match verb {
            Verb::Status => format!("whether {node} is on is not known"),
            Verb::On => format!("{node} was not switched on"),
            Verb::OffGracefully => format!("{node} was not asked to switch itself off"),
            Verb::OffByForce => format!("{node} was not switched off"),
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("node", &self.node).field("pace", &self.pace).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;

    use super::*;

    /// Says what it is told to say, and writes down what it is asked.
    struct Script {
        status: Option<Supply>,
        asked: Arc<Mutex<Vec<&'static str>>>,
        answers: bool,
    }

    impl Script {
        fn asked(&self, what: &'static str) -> BoxFuture<'_, Result<(), Fault>> {
            self.asked.lock().expect("whole").push(what);
            Box::pin(async {
                if !self.answers {
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
        }
    }

    impl Driver for Script {
        fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
            self.asked.lock().expect("whole").push("status");
            Box::pin(async { self.status.ok_or_else(|| Fault::confused("it does not say")) })
        }

        fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
            self.asked("on")
        }

        fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
            self.asked(match how {
                Off::Gracefully => "gracefully",
                Off::ByForce => "by force",
            })
        }
    }

    const PACE: Pace = Pace { time_limit: Duration::from_millis(50), ..Pace::PROGRAM };

    fn controller(status: Option<Supply>, answers: bool) -> (Controller, Arc<Mutex<Vec<&'static str>>>) {
        let asked = Arc::<Mutex<_>>::default();
        let driver = Script { status, asked: Arc::clone(&asked), answers };
        (Controller::with(&"r1".parse().expect("a name"), Box::new(driver), PACE), asked)
    }

    const VERBS: [Verb; 4] = [Verb::Status, Verb::On, Verb::OffGracefully, Verb::OffByForce];

    #[tokio::test]
    async fn a_verb_is_sent_only_where_it_changes_something() {
        for (status, sent) in [
            (Supply::On, [None, None, Some("gracefully"), Some("by force")]),
            (Supply::Off, [None, Some("on"), None, None]),
        ] {
            for (verb, sent) in VERBS.into_iter().zip(sent) {
                let (controller, asked) = controller(Some(status), true);
                let answer = controller.act(verb).await.expect("it answers");
                assert_eq!(answer, if sent.is_some() { Answer::Accepted } else { Answer::Confirmed(status) });
                assert_eq!(*asked.lock().expect("whole"), ["status"].into_iter().chain(sent).collect::<Vec<_>>());
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_when_the_state_is_not_known() {
        for verb in VERBS {
            let (controller, asked) = controller(None, true);
            let fault = controller.act(verb).await.expect_err("it does not say");
            assert_eq!(fault.kind(), FaultKind::Confused);
            assert!(fault.what().is_some_and(|what| what.contains("r1")), "{fault}");
            assert_eq!(*asked.lock().expect("whole"), ["status"]);
        }
    }

    #[tokio::test]
    async fn one_that_hangs_is_given_up_and_left_alone_until_a_person_says_otherwise() {
        let (controller, asked) = controller(Some(Supply::Off), false);
        let fault = controller.act(Verb::On).await.expect_err("it hangs");
        assert_eq!((fault.kind(), fault.retry_after()), (FaultKind::Unreachable, Some(PACE.first_pause)));
        controller.act(Verb::Status).await.expect_err("it is left alone");
        assert_eq!(asked.lock().expect("whole").len(), 2);
        controller.forget_faults();
        assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    }

    #[tokio::test]
    async fn a_virtual_node_has_no_controller_here() {
        let config = ControllerConfig::Virtual(crate::VirtualConfig {});
        let made = Controller::new(&"r1".parse().expect("a name"), &config, &Site::new(Arc::new(crate::NoNodes)));
        assert_eq!(made.map(drop).expect_err("there is none").kind(), FaultKind::Unprepared);
    }
}
