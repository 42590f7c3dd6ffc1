//! One node's controller. Each verb first reads the power state.

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

/// The controller's answer to a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The controller confirmed this state. For verbs other than the status, the machine was already in this state, and
    /// nothing was sent.
    Confirmed(Supply),
    /// The controller accepted the verb. Later status requests show whether and when it takes effect.
    Accepted,
}

/// Timeout for releasing resources at a controller. Sessions also expire on their own.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Controller {
    node: NodeName,
    driver: Box<dyn Driver>,
    pace: Pace,
    lane: Arc<Lane>,
    outage: Outage,
}

impl Controller {
    /// Creates the controller of `node` from its configuration. Sends nothing and reads no file.
    ///
    /// # Errors
    /// The configuration is invalid. The hint contains the correction.
    pub fn new(node: &NodeName, config: &ControllerConfig, site: &Site) -> Result<Self, Fault> {
        let driver: Box<dyn Driver> = match config {
            ControllerConfig::Redfish(config) => Box::new(RedfishDriver::new(config, site)?),
            ControllerConfig::Ipmi(config) => Box::new(IpmiDriver::new(config)),
            ControllerConfig::WakeOnLan(config) => Box::new(WakeOnLanDriver::new(node, config, site)),
            ControllerConfig::Command(config) => Box::new(CommandDriver::new(node, config)?),
            ControllerConfig::Slurm(config) => Box::new(SlurmDriver::new(node, config)?),
            ControllerConfig::Virtual(_) => {
                return Err(Fault::unprepared(format!("{node} is a virtual node, which has no controller"))
                    .hint("only the head that starts a virtual node can switch the node on and off"));
            }
        };
        let lane = config.shares().map_or_else(Arc::default, |name| site.lane(&name));
        Ok(Self { node: node.clone(), driver, pace: config.pace(), lane, outage: Outage::default() })
    }

    /// Creates a controller with a custom driver.
    #[must_use]
    pub fn with(node: &NodeName, driver: Box<dyn Driver>, pace: Pace) -> Self {
        Self { node: node.clone(), driver, pace, lane: Arc::default(), outage: Outage::default() }
    }

    /// Executes a verb, unless the machine is already in the wanted state.
    ///
    /// Dropping the future does not undo requests that were sent.
    ///
    /// # Errors
    /// The current state is unknown (then no verb was sent), the verb was not accepted, or its outcome is unknown.
    ///
    /// After a temporary fault the controller is not used for a while. Calls during this back-off return the same fault
    /// immediately, with the remaining time.
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

    /// Returns the node's current power draw in watts, or `None` if it cannot be measured.
    ///
    /// # Errors
    /// The controller does not respond, or is not used because of an earlier fault.
    pub async fn watts(&self) -> Result<Option<f64>, Fault> {
        self.check_back_off()?;
        let _turn = self.lane.turn(self.pace.gap).await;
        self.check_back_off()?;
        // A failed measurement does not affect switching, so it causes no back-off.
        let read = tokio::time::timeout(self.pace.time_limit, self.driver.watts()).await;
        read.unwrap_or_else(|_| Err(self.timeout_fault()))
            .map_err(|fault| fault.about(|| format!("the power draw of {} could not be read", self.node)))
    }

    /// Releases resources at the controller, such as a session. Call it when the head stops, or when the node gets
    /// another controller.
    pub async fn leave(&self) {
        let _turn = self.lane.turn(self.pace.gap).await;
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, self.driver.leave()).await;
    }

    /// Ends the back-off, e.g. after a user has repaired the controller.
    pub fn forget_faults(&self) {
        self.lane.outage.forget();
        self.outage.forget();
    }

    /// Runs one request, after all earlier ones and with a timeout.
    async fn attempt<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.check_back_off()?;
        let _turn = self.lane.turn(self.pace.gap).await;
        // An earlier request may have failed in the meantime.
        self.check_back_off()?;
        let result = match tokio::time::timeout(self.pace.time_limit, work).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout_fault()),
        };
        self.note(result)
    }

    fn check_back_off(&self) -> Result<(), Fault> {
        let now = Instant::now();
        self.lane.outage.check(now)?;
        self.outage.check(now)
    }

    /// Records the result of a request. An unreachable or busy controller causes a back-off for all nodes of the
    /// controller. Other faults cause a back-off only for this node.
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

    fn timeout_fault(&self) -> Fault {
        let why = format!("the controller did not finish within {} s", self.pace.time_limit.as_secs());
        Fault::unreachable(why).hint("the outcome is unknown; check the status")
    }

    fn not_done(&self, verb: Verb) -> String {
        let node = &self.node;
        match verb {
            Verb::Status => format!("the power state of {node} is unknown"),
            Verb::On => format!("{node} was not switched on"),
            Verb::OffGracefully => format!("{node} was not shut down"),
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

    /// A driver with a fixed status that records its calls.
    struct Script {
        status: Option<Supply>,
        asked: Arc<Mutex<Vec<&'static str>>>,
        answers: bool,
    }

    impl Script {
        fn asked(&self, what: &'static str) -> BoxFuture<'_, Result<(), Fault>> {
            self.asked.lock().expect("the lock is not poisoned").push(what);
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
            self.asked.lock().expect("the lock is not poisoned").push("status");
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
    async fn verb_is_sent_only_if_it_changes_the_state() {
        for (status, sent) in [
            (Supply::On, [None, None, Some("gracefully"), Some("by force")]),
            (Supply::Off, [None, Some("on"), None, None]),
        ] {
            for (verb, sent) in VERBS.into_iter().zip(sent) {
                let (controller, asked) = controller(Some(status), true);
                let answer = controller.act(verb).await.expect("a response");
                assert_eq!(answer, if sent.is_some() { Answer::Accepted } else { Answer::Confirmed(status) });
                assert_eq!(
                    *asked.lock().expect("the lock is not poisoned"),
                    ["status"].into_iter().chain(sent).collect::<Vec<_>>()
                );
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_if_the_state_is_unknown() {
        for verb in VERBS {
            let (controller, asked) = controller(None, true);
            let fault = controller.act(verb).await.expect_err("the state is unknown");
            assert_eq!(fault.kind(), FaultKind::Confused);
            assert!(fault.what().is_some_and(|what| what.contains("r1")), "{fault}");
            assert_eq!(*asked.lock().expect("the lock is not poisoned"), ["status"]);
        }
    }

    #[tokio::test]
    async fn hanging_controller_is_not_used_until_faults_are_cleared() {
        let (controller, asked) = controller(Some(Supply::Off), false);
        let fault = controller.act(Verb::On).await.expect_err("the controller hangs");
        assert_eq!((fault.kind(), fault.retry_after()), (FaultKind::Unreachable, Some(PACE.first_pause)));
        controller.act(Verb::Status).await.expect_err("the controller is in back-off");
        assert_eq!(asked.lock().expect("the lock is not poisoned").len(), 2);
        controller.forget_faults();
        assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    }

    #[tokio::test]
    async fn virtual_node_has_no_controller() {
        let config = ControllerConfig::Virtual(crate::VirtualConfig {});
        let made = Controller::new(&"r1".parse().expect("a name"), &config, &Site::new(Arc::new(crate::NoNodes)));
        assert_eq!(made.map(drop).expect_err("a virtual node has no controller").kind(), FaultKind::Unprepared);
    }
}
