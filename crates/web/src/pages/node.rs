//! A node: what runs there, its limits, its power, and the actions of operators.

use std::time::Duration;

use askama::Template;
use axum::extract::Path;
use axum::response::{Html, Response};
use hostler_model::{Feature, NodeName, NodeState, Role, format_bytes, format_duration};
use hostler_proto::api::{DrainRequest, GpuView, NodeDetail, NodeRunView, NodeView};
use hostler_proto::partitions::TraitsChange;
use hostler_proto::power::{PowerAction, PowerRequest, PowerView};
use serde_json::Value;

use super::usage::Usage;
use crate::api::Refused;
use crate::form::Fields;
use crate::held::Held;
use crate::measured::Measured;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::{Action, Badge, Bar};
use crate::url::Url;

#[derive(Template)]
#[template(path = "node.html")]
struct NodePage {
    frame: Frame,
    detail: NodeDetail,
    badge: Badge,
    held: Held,
    memory: Bar,
    measured: Option<Measured>,
    url: Url,
    actions: Vec<Action>,
    /// What the node used in the last day.
    usage: Option<Usage>,
}

impl NodePage {
    fn node(&self) -> &NodeView {
        &self.detail.node
    }

    fn job_url(&self, run: &NodeRunView) -> Url {
        Url::job(run.job)
    }

    fn task_of(&self, gpu: &GpuView) -> Option<(Url, String)> {
        gpu.held_by.map(|task| (Url::job(task.job), task.to_string()))
    }

    fn gpu_ids(&self, run: &NodeRunView) -> String {
        joined(&run.gpu_ids)
    }

    fn bytes(&self, bytes: &u64) -> String {
        format_bytes(*bytes)
    }

    fn span(&self, ms: &u64) -> String {
        format_duration(Duration::from_secs(ms / 1000))
    }

    fn partitions(&self) -> String {
        joined(&self.node().partitions)
    }

    fn features(&self) -> String {
        joined(&self.node().features)
    }

    fn assigned_features(&self) -> String {
        joined(&self.detail.assigned_features)
    }

    /// Limits that the kernel of the node does not enforce, and why.
    fn advisory(&self) -> Vec<(&'static str, &str)> {
        let advisory = &self.node().advisory;
        let all = [
            ("CPUs", &advisory.cpus),
            ("Memory", &advisory.memory),
            ("GPUs", &advisory.gpus),
            ("Users", &advisory.users),
            ("Sandboxes", &advisory.sandbox),
            ("Job networks", if advisory.sandbox.is_none() { &advisory.job_network } else { &None }),
        ];
        all.into_iter().filter_map(|(name, why)| Some((name, why.as_deref()?))).collect()
    }

    /// The measured or estimated power, in words.
    fn watts(&self, power: &PowerView) -> String {
        let how = match (power.gauge, power.are_watts_assumed) {
            (Some(_), _) => "measured",
            (None, false) => "estimated",
            (None, true) => "estimated from assumed values",
        };
        format!("{} W ({how})", power.watts)
    }

    fn counted(&self) -> String {
        let node = self.node();
        let all = node.counted.iter().map(|(name, total)| {
            let free = node.counted_free.iter().find(|(it, _)| *it == name).map_or(0, |(_, free)| free);
            format!("{name}: {free} of {total} free")
        });
        all.collect::<Vec<_>>().join(", ")
    }
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

/// `GET /nodes/{name}`.
pub(crate) async fn show(frame: Frame, Path(name): Path<String>) -> Result<Html<String>, Refused> {
    let detail: NodeDetail = frame.api.get(&Url::node(&name)).await?;
    let node = &detail.node;
    let held = Held::new(node.name.as_str(), node.cpus, node.cpus_free, &detail.runs);
    let used = node.memory_bytes.saturating_sub(node.memory_free_bytes);
    let words = format!("Jobs hold {} of {} memory", format_bytes(used), format_bytes(node.memory_bytes));
    let usage = Usage::of_day(&frame, &node.name).await.ok();
    Ok(render(&NodePage {
        badge: Badge::node(node.state),
        held,
        measured: Measured::of(node),
        memory: Bar::new(words, used, node.memory_bytes),
        url: Url::node(&node.name),
        actions: actions(&frame, &detail),
        usage,
        detail,
        frame,
    }))
}

/// The buttons that make sense in the node's state. Draining has a form of its own, for the reason.
fn actions(frame: &Frame, detail: &NodeDetail) -> Vec<Action> {
    if !frame.is_operator() {
        return Vec::new();
    }
    let NodeView { name, state, tasks, .. } = &detail.node;
    let button = |label: &str, action: &str| Action::new(Url::node(name), label, frame.token()).field("action", action);
    let mut actions = Vec::new();
    if detail.drain.is_some() {
        actions.push(button("Resume", "resume"));
    }
    if detail.power_detail.is_some() {
        if !matches!(state, NodeState::Up | NodeState::Waking) {
            actions.push(button("Switch on", "on"));
        }
        if *state != NodeState::Off {
            actions.push(
                button("Switch off", "off")
                    .confirm(format!("Switch {name} off? Jobs cannot use it until it is on again.")),
            );
        }
        actions.push(button("Query the controller", "look"));
    }
    if *tasks == 0 && !matches!(state, NodeState::Up | NodeState::Draining | NodeState::Drained) {
        let question = format!("Forget {name}? It leaves the list until its agent connects again.");
        actions.push(button("Forget", "forget").confirm(question));
    }
    if frame.me.role == Role::Admin {
        let lost = match tasks {
            0 => String::new(),
            tasks => format!(" {tasks} tasks that run there are given up."),
        };
        let question = format!(
            "Remove {name} from the cluster? Its certificate is revoked.{lost} It needs a new join code to return."
        );
        actions.push(button("Remove", "remove").confirm(question));
    }
    actions
}

/// `POST /nodes/{name}`.
pub(crate) async fn act(frame: Frame, Path(name): Path<String>, fields: Fields) -> Result<Response, Refused> {
    let action = fields.get("action").unwrap_or_default();
    let back = Url::node(&name);
    let notice = match act_on(&frame, &name, action, &fields).await {
        Ok(said) => Notice::good(said),
        Err(refused) => return Ok(frame.redirect(&back, refused.notice())),
    };
    let is_gone = matches!(action, "forget" | "remove");
    Ok(frame.redirect(&if is_gone { Url::of(["nodes"]) } else { back }, notice))
}

/// Carries out an action on a node. Returns what was done, as a sentence.
pub(super) async fn act_on(frame: &Frame, name: &str, action: &str, fields: &Fields) -> Result<String, Refused> {
    let name: NodeName =
        name.parse().map_err(|_| Refused::bad_request(format!("`{name}` is not the name of a node")))?;
    let url = Url::node(&name);
    let power = |action| (url.clone().then("power"), PowerRequest { action, force: false });
    match action {
        "drain" => {
            let reason = fields.text("reason").map(str::to_owned);
            let _: Value = frame.api.post(&url.then("drain"), &DrainRequest { reason }).await?;
            Ok(format!("{name} gets no new tasks. Its tasks continue."))
        }
        "resume" => {
            let _: Value = frame.api.post(&url.then("resume"), &()).await?;
            Ok(format!("{name} gets tasks again."))
        }
        "on" => {
            let (url, request) = power(PowerAction::On);
            let _: Value = frame.api.post(&url, &request).await?;
            Ok(format!("{name} is being switched on."))
        }
        "off" => {
            let (url, request) = power(PowerAction::Off);
            let _: Value = frame.api.post(&url, &request).await?;
            Ok(format!("{name} is being switched off."))
        }
        "look" => {
            let (url, request) = power(PowerAction::Look);
            let _: Value = frame.api.post(&url, &request).await?;
            Ok(format!("The head asks the power controller of {name}."))
        }
        "traits" => {
            let features = fields.get("features").map(parse_features).transpose()?;
            let change = TraitsChange { weight: fields.read("weight")?, features };
            let _: Value = frame.api.post(&url.then("traits"), &change).await?;
            Ok(format!("Changed the weight and features of {name}."))
        }
        "forget" => {
            let _: Value = frame.api.post(&url.then("forget"), &()).await?;
            Ok(format!("{name} is forgotten until its agent connects again."))
        }
        "remove" => {
            let _: Value = frame.api.post(&url.then("remove"), &()).await?;
            Ok(format!("{name} is removed."))
        }
        other => Err(Refused::bad_request(format!("`{other}` is not an action on a node"))),
    }
}

/// Parses features that are separated by commas or spaces.
fn parse_features(text: &str) -> Result<std::collections::BTreeSet<Feature>, Refused> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let feature = |word: &str| word.parse().map_err(|error| Refused::bad_request(format!("{error}")));
    words.map(feature).collect()
}
