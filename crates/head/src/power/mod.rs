//! Executes the core's power orders through controllers, and reloads `power.toml` when it changes.

mod ahead;
mod file;
pub(crate) mod keep;
pub(crate) mod order;
mod reach;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hostler_core::head::{Command, PowerCommand, PowerFault, Stage};
use hostler_model::{NodeName, PowerVerb, Supply};
use hostler_power::{Answer, CommandConfig, Controller, ControllerConfig, Fault, FaultKind, Site};
use tokio::time::timeout;

pub(crate) use self::file::Price;

use self::file::PowerFile;
use self::order::Order;
use self::reach::Agents;
use crate::engine::Engine;

/// An order is dropped when it has waited for its controller for this long. The core's timeout for orders is longer, so
/// no order runs after the core has given up on the order.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(240);

/// This executable, even when its file was replaced.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The controllers of the switchable nodes.
pub(crate) struct Switches {
    engine: Engine,
    site: Site,
    path: PathBuf,
    known: Mutex<BTreeMap<NodeName, Switch>>,
    /// The reason why `power.toml` is ignored, if it is invalid.
    trouble: Mutex<Option<String>>,
    price: Mutex<Option<Price>>,
}

/// A node's controller, or the reason why it cannot be used.
#[derive(Clone)]
pub(super) struct Switch {
    config: ControllerConfig,
    pub(super) controller: Result<Arc<Controller>, PowerFault>,
}

/// Modification time and length of the file.
pub(super) type FileVersion = Option<(i64, i64, u64)>;

impl Switches {
    pub(crate) fn new(engine: Engine, path: PathBuf) -> Self {
        let site = Site::new(Arc::new(Agents(engine.clone())));
        Self { engine, site, path, known: Mutex::default(), trouble: Mutex::default(), price: Mutex::default() }
    }

    /// Returns the reason why `power.toml` is ignored, if it is invalid.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the price of energy, if `power.toml` has one.
    pub(crate) fn price(&self) -> Option<Price> {
        self.price.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why some nodes are not switched as `power.toml` says: it is invalid, a node is unknown, or a controller fails.
    pub(crate) fn warning(&self) -> Option<String> {
        if let Some(trouble) = self.trouble() {
            return Some(trouble);
        }
        let state = self.engine.state();
        let unknown = |name: &NodeName| format!("power.toml names {name}, but no node has this name");
        let fault = |name: &NodeName| {
            Some(format!("the power controller of {name}: {}", state.power.node(name)?.fault()?.text))
        };
        let known = self.known();
        let all: Vec<String> = known
            .keys()
            .filter_map(|name| if state.node(name).is_none() { Some(unknown(name)) } else { fault(name) })
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Clears a controller's back-off, so that the next request is sent immediately.
    pub(crate) fn forget_faults(&self, node: &NodeName) {
        if let Some(Switch { controller: Ok(controller), .. }) = self.known().get(node) {
            controller.forget_faults();
        }
    }

    /// The controllers of nodes that are on or change their power state.
    pub(super) fn powered(&self) -> Vec<(NodeName, Arc<Controller>)> {
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

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<NodeName, Switch>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the file if it has changed, or if `again` is set.
    pub(super) async fn look(&self, seen: &mut Option<FileVersion>, again: bool) {
        let now: FileVersion = std::fs::metadata(&self.path).ok().map(|it| (it.ctime(), it.ctime_nsec(), it.ino()));
        if *seen == Some(now) && !again {
            return;
        }
        let is_new = *seen != Some(now);
        *seen = Some(now);
        match PowerFile::read(&self.path) {
            Ok(file) => {
                self.price.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&file.price);
                self.follow(file).await;
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            Err(error) => {
                let trouble = format!("{error}; the previous settings stay in effect");
                if is_new {
                    tracing::error!("{trouble}");
                }
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
            }
        }
    }

    /// Applies a plan. Controllers with unchanged settings stay, because they keep sessions and faults.
    async fn follow(&self, PowerFile { plan, controllers, .. }: PowerFile) {
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

    pub(super) async fn carry_out(&self, Order { node, verb, ask }: Order) {
        let switch = self.known().get(&node).cloned();
        let outcome = match switch.map(|switch| switch.controller) {
            Some(Ok(controller)) => {
                let late = || {
                    Fault::new(FaultKind::Busy, format!("the controller was busy for {} s", QUEUE_TIMEOUT.as_secs()))
                };
                let outcome = timeout(QUEUE_TIMEOUT, controller.act(verb)).await.unwrap_or_else(|_| Err(late()));
                outcome.map(supply_of).map_err(|fault| fault_of(&fault))
            }
            Some(Err(fault)) => Err(fault),
            None => {
                let text = "the controller is unknown: power.toml was not read yet".to_owned();
                Err(PowerFault { text, is_lasting: false, retry_after_ms: 0 })
            }
        };
        // Status queries repeat all the time, so only orders are written to the audit log.
        match (&outcome, verb) {
            (Ok(supply), PowerVerb::Status) => tracing::debug!(%node, ?supply, "power"),
            (Ok(_), verb) => {
                tracing::info!(%node, ?verb, "power");
                self.engine.happened(Some(node.clone()), format!("node {node}: {}", order(verb)), None);
            }
            (Err(fault), PowerVerb::Status) => tracing::warn!(%node, "{}", fault.text),
            (Err(fault), verb) => {
                tracing::warn!(%node, ?verb, "{}", fault.text);
                let what = format!("node {node}: {} failed", order(verb));
                self.engine.happened(Some(node.clone()), what, Some(fault.text.clone()));
            }
        }
        self.engine.post(Command::Power(PowerCommand::Said { node, ask, outcome }), Vec::new()).await;
    }
}

/// An order to a power controller in words.
const fn order(verb: PowerVerb) -> &'static str {
    match verb {
        PowerVerb::Status => "power query",
        PowerVerb::On => "switch-on",
        PowerVerb::OffGracefully => "shutdown",
        PowerVerb::OffByForce => "power cut",
    }
}

/// The controller of a virtual node: an agent on this machine, which this program starts and stops.
fn virtual_node(name: &NodeName) -> ControllerConfig {
    let call =
        |verb: &str| vec![OWN_EXECUTABLE.to_owned(), "virtual-node".to_owned(), verb.to_owned(), name.to_string()];
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
