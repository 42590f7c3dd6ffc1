//! Executes the core's power orders through controllers, and reloads `power.toml` when it changes.

mod ahead;
mod file;
mod reach;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hostler_core::head::{Command, PowerCommand, PowerFault, Stage};
use hostler_model::{Gauge, NodeName, PowerVerb, Supply};
use hostler_power::{Answer, CommandConfig, Controller, ControllerConfig, Fault, FaultKind, Site};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use self::ahead::Ahead;
use self::file::PowerFile;
use self::reach::Agents;
use crate::engine::Engine;
use crate::head::Head;

/// Interval between checks of `power.toml` for changes.
const LOOK: Duration = Duration::from_secs(2);

/// Interval for reloading the local UTC offset, which changes with daylight saving time.
const CLOCK: Duration = Duration::from_secs(600);

/// Timeout for reading a controller's power meter. Orders for the controller wait during the reading.
const READING: Duration = Duration::from_secs(8);

/// After this many failed readings in a row, a controller counts as unable to measure.
const MISSES: u32 = 3;

/// An order is dropped when it has waited for its controller for this long. The core's timeout for orders is longer, so
/// no order runs after the core has given up on the order.
const TURN: Duration = Duration::from_secs(240);

/// Timeout for closing controller sessions when the head stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Path of this executable, which works even when the file was replaced.
const ITSELF: &str = "/proc/self/exe";

/// A query or order for a node's controller.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) node: NodeName,
    pub(crate) verb: PowerVerb,
    /// Number that identifies the order in the reply.
    pub(crate) ask: u64,
}

/// The controllers of the switchable nodes.
pub(crate) struct Switches {
    engine: Engine,
    site: Site,
    path: PathBuf,
    known: Mutex<BTreeMap<NodeName, Switch>>,
    /// The reason why `power.toml` is ignored, if it is invalid.
    trouble: Mutex<Option<String>>,
}

/// A node's controller, or the reason why it cannot be used.
#[derive(Clone)]
struct Switch {
    config: ControllerConfig,
    controller: Result<Arc<Controller>, PowerFault>,
}

/// Executes orders, and watches `power.toml` for changes, until the head stops.
pub(crate) async fn keep(head: Arc<Head>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let switches = Arc::clone(&head.switches);
    let (mut looks, mut clocks) = (interval(LOOK), interval(CLOCK));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    let ahead = Ahead::default();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return };
                if order.verb == PowerVerb::On {
                    ahead.read(&head);
                }
                let switches = Arc::clone(&switches);
                tokio::spawn(async move { switches.carry_out(order).await });
            }
            _ = looks.tick() => switches.look(&mut seen, false).await,
            _ = clocks.tick() => switches.look(&mut seen, true).await,
            () = head.stop.cancelled() => break,
        }
    }
    let leaving: Vec<Arc<Controller>> =
        switches.known().values().filter_map(|switch| switch.controller.clone().ok()).collect();
    let all = futures_util::future::join_all(leaving.iter().map(|controller| controller.leave()));
    if timeout(FAREWELL, all).await.is_err() {
        tracing::info!("stopping without closing all controller sessions; they expire on their own");
    }
}

/// Reads the power meters of switched-on machines until the head stops.
pub(crate) async fn measure(head: Arc<Head>) {
    let switches = Arc::clone(&head.switches);
    let mut misses: BTreeMap<NodeName, u32> = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        let poll = Duration::from_millis(head.engine.state().power.plan.policy.poll_ms);
        // The plan may change during the pause.
        tokio::select! {
            () = sleep(poll.min(LOOK)) => {}
            () = head.stop.cancelled() => return,
        }
        if last.elapsed() < poll {
            continue;
        }
        last = Instant::now();
        let read = switches.powered().into_iter().map(|(node, controller)| async move {
            let watts = timeout(READING, controller.watts()).await;
            (node, watts.map_err(|_| "timeout".to_owned()).and_then(|read| read.map_err(|fault| fault.to_string())))
        });
        let read = tokio::select! {
            read = futures_util::future::join_all(read) => read,
            () = head.stop.cancelled() => return,
        };
        for (node, watts) in read {
            let missed = misses.entry(node.clone()).or_default();
            let milliwatts = match watts {
                Ok(watts) => {
                    *missed = 0;
                    // Any real power draw fits, and none is negative.
                    watts.map(|watts| (watts * 1_000.0).round().clamp(0.0, 1e12) as u64)
                }
                Err(why) => {
                    tracing::debug!(%node, why, "cannot read a machine's power meter");
                    *missed += 1;
                    if *missed < MISSES {
                        continue;
                    }
                    None
                }
            };
            let drew = PowerCommand::Drew { node, gauge: Gauge::Controller, milliwatts };
            head.engine.post(Command::Power(drew), Vec::new()).await;
        }
    }
}

/// Modification time and length of `power.toml`.
type Seen = Option<(SystemTime, u64)>;

impl Switches {
    pub(crate) fn new(engine: Engine, path: PathBuf) -> Self {
        let site = Site::new(Arc::new(Agents(engine.clone())));
        Self { engine, site, path, known: Mutex::default(), trouble: Mutex::default() }
    }

    /// Returns the reason why `power.toml` is ignored, if it is invalid.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears a controller's back-off, so that the next request is sent immediately.
    pub(crate) fn forget_faults(&self, node: &NodeName) {
        if let Some(Switch { controller: Ok(controller), .. }) = self.known().get(node) {
            controller.forget_faults();
        }
    }

    /// The controllers of nodes that are on or change their power state.
    fn powered(&self) -> Vec<(NodeName, Arc<Controller>)> {
        let state = self.engine.state();
        let is_on = |name: &NodeName| {
            let stage = state.power.node(name).map(|power| power.stage);
            matches!(stage, Some(Stage::Waking | Stage::Up | Stage::Asking | Stage::Stopping))
        };
        let known = self.known();
        let controllers =
            known.iter().filter_map(|(name, switch)| Some((name.clone(), switch.controller.clone().ok()?)));
        controllers.filter(|(name, _)| is_on(name)).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<NodeName, Switch>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads `power.toml` if it has changed, or if `again` is set.
    async fn look(&self, seen: &mut Option<Seen>, again: bool) {
        let now: Seen = std::fs::metadata(&self.path).ok().and_then(|it| Some((it.modified().ok()?, it.len())));
        if *seen == Some(now) && !again {
            return;
        }
        let is_new = *seen != Some(now);
        *seen = Some(now);
        match PowerFile::read(&self.path) {
            Ok(file) => {
                self.follow(file).await;
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            Err(error) => {
                if is_new {
                    tracing::error!("{error}; the previous settings stay in effect");
                }
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
        }
    }

    /// Applies a plan. Controllers with unchanged settings stay, because they keep sessions and faults.
    async fn follow(&self, PowerFile { plan, controllers }: PowerFile) {
        {
            let mut known = self.known();
            known.retain(|name, switch| controllers.get(name) == Some(&switch.config));
            for (name, config) in controllers {
                known.entry(name).or_insert_with_key(|name| Switch { controller: self.make(name, &config), config });
            }
        }
        // A stopping head rejects the plan.
        let _ = self.engine.command(Command::Power(PowerCommand::Plan(Box::new(plan)))).await;
    }

    fn make(&self, name: &NodeName, config: &ControllerConfig) -> Result<Arc<Controller>, PowerFault> {
        let virtual_node = virtual_node(name);
        let config = if matches!(config, ControllerConfig::Virtual(_)) { &virtual_node } else { config };
        Controller::new(name, config, &self.site).map(Arc::new).map_err(|fault| {
            tracing::error!(node = %name, "{fault}");
            fault_of(&fault)
        })
    }

    async fn carry_out(&self, Order { node, verb, ask }: Order) {
        let switch = self.known().get(&node).cloned();
        let outcome = match switch.map(|switch| switch.controller) {
            Some(Ok(controller)) => {
                let late = || Fault::new(FaultKind::Busy, format!("the controller was busy for {} s", TURN.as_secs()));
                let outcome = timeout(TURN, controller.act(verb)).await.unwrap_or_else(|_| Err(late()));
                outcome.map(supply_of).map_err(|fault| fault_of(&fault))
            }
            Some(Err(fault)) => Err(fault),
            None => {
                let text = "the controller is unknown: power.toml was not read yet".to_owned();
                Err(PowerFault { text, is_lasting: false, retry_after_ms: 0 })
            }
        };
        match (&outcome, verb) {
            (Ok(supply), PowerVerb::Status) => tracing::debug!(%node, ?supply, "power"),
            (Ok(_), verb) => tracing::info!(%node, ?verb, "power"),
            (Err(fault), verb) => tracing::warn!(%node, ?verb, "{}", fault.text),
        }
        self.engine.post(Command::Power(PowerCommand::Said { node, ask, outcome }), Vec::new()).await;
    }
}

/// The controller of a virtual node: an agent on this machine, which this program starts and stops.
fn virtual_node(name: &NodeName) -> ControllerConfig {
    let call = |verb: &str| vec![ITSELF.to_owned(), "virtual-node".to_owned(), verb.to_owned(), name.to_string()];
    ControllerConfig::Command(CommandConfig {
        status: call("status"),
        on: call("on"),
        off: call("off"),
        force_off: Some(call("off")),
        watts: None,
        environment: BTreeMap::new(),
        time_limit: None,
    })
}

const fn supply_of(answer: Answer) -> Option<Supply> {
    match answer {
        Answer::Accepted => None,
        Answer::Confirmed(supply) => Some(supply),
    }
}

fn fault_of(fault: &Fault) -> PowerFault {
    let hint = fault.what_to_do().map_or_else(String::new, |hint| format!("; {hint}"));
    let retry_after_ms = fault.retry_after().map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    PowerFault { text: format!("{fault}{hint}"), is_lasting: !fault.is_worth_retrying(), retry_after_ms }
}
