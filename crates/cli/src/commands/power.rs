//! `hostler node power` and `hostler node power-test`: switch nodes and wait for the result.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hostler_client::Client;
use hostler_model::{NodeName, PowerState, Supply, format_duration};
use hostler_proto::api::NodeDetail;
use hostler_proto::power::{PowerAction, PowerRequest, PowerView};
use serde_json::json;
use tokio::time::sleep;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::output::node_views;

/// Poll interval for the state of a node.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long to wait for a controller's answer. The head continues to query the controller.
const ANSWER: Duration = Duration::from_secs(90);

/// Switch a node on or off, or query its power controller
///
/// The file `power.toml` next to the head's settings configures the power controllers. `off` fails while a task runs on
/// the node. Otherwise, `off` asks the node's agent for permission and shuts down the operating system. The head may
/// switch the node on again for waiting jobs; to keep the node off, drain the node.
#[derive(Debug, Args)]
pub(crate) struct Power {
    /// Name of the node, e.g. n4
    #[arg(value_name = "NAME")]
    name: NodeName,

    /// Action on the node
    #[arg(value_name = "ACTION")]
    what: What,

    /// With `off`: cut the power without asking the agent, for a machine that hangs
    #[arg(long)]
    force: bool,

    /// Return without waiting for the result
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Switch the node on and wait until its agent connects
    On,
    /// Switch the node off and wait until the power controller confirms
    Off,
    /// Switch the node off and on again
    Cycle,
    /// Query the power controller
    Status,
}

/// Test switching a node on, off and on again, and print the times
///
/// Test a new machine before jobs rely on power switching. The command fails if a task runs on the node. During the
/// test, the head may place new jobs on the node. At the end, the node is on or off as before the test.
#[derive(Debug, Args)]
pub(crate) struct PowerTest {
    /// Name of the node, e.g. n4
    #[arg(value_name = "NAME")]
    name: NodeName,
}

impl Power {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let Self { name, what, force, no_wait } = self;
        if force && what != What::Off {
            return Err(Failure::usage("--force is only valid with `off`"));
        }
        let client = context.client()?;
        let tell = |text: &str| context.output.aside(text);
        let switch = Switch { client: &client, name: &name, tell: &tell };
        let node = block_on(async {
            match what {
                What::Status => switch.ask().await,
                What::On if no_wait => switch.order(PowerAction::On, false).await,
                What::Off if no_wait => switch.order(PowerAction::Off, force).await,
                What::On => switch.on().await.map(|(node, _)| node),
                What::Off => switch.off(force).await.map(|(node, _)| node),
                What::Cycle => {
                    switch.off(false).await?;
                    switch.on().await.map(|(node, _)| node)
                }
            }
        })?;
        if context.output.is_json() {
            context.output.json(&node);
        } else {
            let power = node.power_detail.as_ref().expect("a node that was switched has power details");
            context.output.data(&node_views::power(&name, power));
        }
        Ok(exit::OK)
    }
}

impl PowerTest {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let name = self.name;
        let client = context.client()?;
        let output = &context.output;
        let tell = |text: &str| output.aside(text);
        let switch = Switch { client: &client, name: &name, tell: &tell };
        let learnt = block_on(async {
            let asked = Instant::now();
            let found = switch.ask().await?;
            let answer = asked.elapsed();
            let was_on = is_up(state_of(&found)?);
            tell(&format!("the power controller reports {} after {}", supply(&found), format_duration(answer)));
            let mut boots = Vec::new();
            if !was_on {
                boots.push(switch.on().await?.1);
            }
            let (_, stop) = switch.off(false).await?;
            boots.push(switch.on().await?.1);
            let stops = match was_on {
                true => vec![stop],
                false => vec![stop, switch.off(false).await?.1],
            };
            Ok((answer, boots, stops))
        })?;
        let (answer, boots, stops) = learnt;
        if output.is_json() {
            let ms = |spans: &[Duration]| spans.iter().map(Duration::as_millis).collect::<Vec<_>>();
            output.json(&json!({
                "node": name, "answer_ms": answer.as_millis(), "boot_ms": ms(&boots), "stop_ms": ms(&stops),
            }));
            return Ok(exit::OK);
        }
        let list = |spans: &[Duration]| spans.iter().map(|span| format_duration(*span)).collect::<Vec<_>>().join(", ");
        output.data(&format!("controller  answers in {}", format_duration(answer)));
        output.data(&format!("on          agent connected after {}", list(&boots)));
        output.data(&format!("off         confirmed after {}", list(&stops)));
        output.say(&format!("node {name} can be switched on and off; the head has recorded the times"));
        Ok(exit::OK)
    }
}

/// Switches a node and waits for the result.
struct Switch<'a> {
    client: &'a Client,
    name: &'a NodeName,
    tell: &'a dyn Fn(&str),
}

impl Switch<'_> {
    async fn order(&self, action: PowerAction, force: bool) -> Result<NodeDetail, Failure> {
        Ok(self.client.power_node(self.name, PowerRequest { action, force }).await?)
    }

    /// Queries the controller and waits for an answer that is newer than the query.
    async fn ask(&self) -> Result<NodeDetail, Failure> {
        let asked = Instant::now();
        self.order(PowerAction::Look, false).await?;
        loop {
            let node = self.client.node(self.name).await?;
            let power = power_of(&node)?;
            let is_new = |age_ms: u64| Duration::from_millis(age_ms) < asked.elapsed();
            if power.supply_age_ms.is_some_and(is_new) {
                return Ok(node);
            }
            if asked.elapsed() > Duration::from_secs(1)
                && let Some(fault) = &power.fault
            {
                return Err(Failure::new(fault.clone()));
            }
            if asked.elapsed() > ANSWER {
                return Err(Failure::new(format!("the controller of {} does not answer", self.name))
                    .hint("`hostler node show` prints the last known state"));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn on(&self) -> Result<(NodeDetail, Duration), Failure> {
        let began = Instant::now();
        self.order(PowerAction::On, false).await?;
        let node = self.wait(is_up).await?;
        Ok((node, began.elapsed()))
    }

    async fn off(&self, force: bool) -> Result<(NodeDetail, Duration), Failure> {
        let began = Instant::now();
        self.order(PowerAction::Off, force).await?;
        let node = self.wait(|state| state == PowerState::Off).await?;
        Ok((node, began.elapsed()))
    }

    /// Waits until the node has the wanted state. Fails if the node could not be switched on or off, or if the order
    /// was reversed.
    async fn wait(&self, is_there: impl Fn(PowerState) -> bool) -> Result<NodeDetail, Failure> {
        let mut last = None;
        loop {
            let node = self.client.node(self.name).await?;
            let power = power_of(&node)?;
            if is_there(power.state) {
                return Ok(node);
            }
            let is_under_way = matches!(power.state, PowerState::Waking | PowerState::Stopping);
            if !is_under_way {
                return Err(Failure::new(format!("node {} is {}", self.name, power.state.as_str()))
                    .because(&std::io::Error::other(power.why.clone())));
            }
            if last.as_ref() != Some(&(power.state, power.fault.clone())) {
                let fault = power.fault.as_ref().map_or_else(String::new, |fault| format!(" ({fault})"));
                (self.tell)(&format!("{} is {}: {}{fault}", self.name, power.state.as_str(), power.why));
                last = Some((power.state, power.fault.clone()));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

const fn is_up(state: PowerState) -> bool {
    matches!(state, PowerState::Up | PowerState::Idle)
}

fn power_of(node: &NodeDetail) -> Result<&PowerView, Failure> {
    node.power_detail.as_ref().ok_or_else(|| {
        Failure::new(format!("the head can no longer switch node {} on and off", node.node.name))
            .hint("power.toml on the head's machine lists the nodes that the head can switch on and off")
    })
}

fn state_of(node: &NodeDetail) -> Result<PowerState, Failure> {
    power_of(node).map(|power| power.state)
}

fn supply(node: &NodeDetail) -> &'static str {
    match node.power_detail.as_ref().and_then(|power| power.supply) {
        Some(Supply::On) => "on",
        Some(Supply::Off) => "off",
        None => "no state",
    }
}
