//! The list of nodes: their states, and what holds their CPUs.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{NodeState, format_bytes, plural};
use hostler_proto::api::{Info, NodeDetail, NodeView};
use hostler_proto::partitions::PartitionView;

use super::node::act_on;
use crate::api::Refused;
use crate::form::Fields;
use crate::held::Held;
use crate::measured::Brief;
use crate::notice::Notice;
use crate::page::{Confirm, Frame, render};
use crate::parts::Badge;
use crate::url::Url;

/// Number of nodes on a page.
const PER_PAGE: usize = 100;

/// Maximum number of nodes of one action.
const MOST_SELECTED: usize = 1_000;

/// What the filter offers: groups of states first.
const STATES: [(&str, &str); 10] = [
    ("suspect,down", "not responding"),
    ("off,waking,stopping", "switched off or changing"),
    ("draining,drained", "drained or draining"),
    ("up", "up"),
    ("suspect", "suspect"),
    ("down", "down"),
    ("off", "off"),
    ("waking", "waking"),
    ("draining", "draining"),
    ("drained", "drained"),
];

#[derive(Template)]
#[template(path = "nodes.html")]
struct Nodes {
    frame: Frame,
    counts: String,
    states: &'static [(&'static str, &'static str)],
    partitions: Vec<String>,
    state: String,
    partition: String,
    feature: String,
    text: String,
    is_filtered: bool,
    has_gpus: bool,
    rows: Vec<Row>,
    first: Option<Url>,
    next: Option<Url>,
    per_page: usize,
}

struct Row {
    node: NodeView,
    url: Url,
    badge: Badge,
    /// Absent for a node that gets no jobs and runs none: nothing is free there.
    held: Option<Held>,
    measured: Brief,
}

impl Row {
    fn new((node, measured): (NodeView, Brief)) -> Self {
        let runs = node.holders.as_deref().unwrap_or_default();
        let is_up = node.state == NodeState::Up;
        let held = (is_up || node.tasks > 0).then(|| Held::new(node.name.as_str(), node.cpus, node.cpus_free, runs));
        Self { url: Url::node(&node.name), badge: Badge::node(node.state), held, measured, node }
    }

    fn partitions(&self) -> String {
        self.node.partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn memory(&self) -> String {
        let total = format_bytes(self.node.memory_bytes);
        match self.held {
            Some(_) => format!("{} of {total}", format_bytes(self.node.memory_free_bytes)),
            None => format!("– of {total}"),
        }
    }
}

/// `GET /nodes`.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let filter = |name: &str| frame.query.text(name).unwrap_or_default().to_owned();
    let [state, partition, feature, text] = ["state", "partition", "feature", "text"].map(filter);
    let mut path = Url::of(["nodes"]).with("holders", true).with("measured", true).with("limit", PER_PAGE + 1);
    let mut page = Url::of(["nodes"]);
    for (name, value) in [("state", &state), ("partition", &partition), ("feature", &feature), ("text", &text)] {
        if !value.is_empty() {
            path = path.with(name, value);
            page = page.with(name, value);
        }
    }
    let is_filtered = page != Url::of(["nodes"]);
    let after = frame.query.text("after");
    if let Some(after) = after {
        path = path.with("after", after);
    }
    let mut nodes: Vec<NodeView> = frame.api.get(&path).await?;
    let info: Info = frame.api.get("/info").await?;
    let partitions: Vec<PartitionView> = frame.api.get("/partitions").await?;
    let has_more = nodes.len() > PER_PAGE;
    nodes.truncate(PER_PAGE);
    let next = nodes.last().filter(|_| has_more).map(|last| page.clone().with("after", &last.name));
    let measured = Brief::of_list(&nodes);
    Ok(render(&Nodes {
        counts: counts(&info),
        states: &STATES,
        partitions: partitions.into_iter().map(|partition| partition.name.to_string()).collect(),
        is_filtered,
        has_gpus: nodes.iter().any(|node| node.gpus > 0),
        rows: nodes.into_iter().zip(measured).map(Row::new).collect(),
        first: after.map(|_| page),
        next,
        per_page: PER_PAGE,
        state,
        partition,
        feature,
        text,
        frame,
    }))
}

/// The number of nodes in each state, and what is free, as a sentence.
fn counts(info: &Info) -> String {
    let nodes = &info.nodes;
    let all = [
        (nodes.up, NodeState::Up),
        (nodes.suspect, NodeState::Suspect),
        (nodes.down, NodeState::Down),
        (nodes.draining, NodeState::Draining),
        (nodes.drained, NodeState::Drained),
        (nodes.off, NodeState::Off),
        (nodes.waking, NodeState::Waking),
        (nodes.stopping, NodeState::Stopping),
    ];
    let said: Vec<String> = all
        .into_iter()
        .filter(|(count, state)| *count > 0 || *state == NodeState::Up)
        .map(|(count, state)| format!("{count} {}", state.as_str()))
        .collect();
    let capacity = &info.capacity;
    let mut free = vec![
        format!("{} of {}", capacity.cpus.free, plural(capacity.cpus.total, "CPU")),
        format!("{} of {} memory", format_bytes(capacity.memory_bytes.free), format_bytes(capacity.memory_bytes.total)),
    ];
    if capacity.gpus.total > 0 {
        free.push(format!("{} of {}", capacity.gpus.free, plural(capacity.gpus.total, "GPU")));
    }
    format!("Nodes: {}. Free on nodes that are up: {}.", said.join(", "), free.join(", "))
}

/// `POST /nodes`: the same action on all selected nodes.
pub(crate) async fn act(frame: Frame, fields: Fields) -> Result<Response, Refused> {
    let back = fields.get("back").and_then(Url::local).unwrap_or_else(|| Url::of(["nodes"]));
    let names: Vec<&str> = fields.all("node").take(MOST_SELECTED).collect();
    if names.is_empty() {
        return Ok(frame.redirect(&back, Notice::bad(vec!["Select nodes first.".to_owned()])));
    }
    let action = fields.get("action").unwrap_or_default();
    let done = match action {
        "drain" => "drained",
        "resume" => "resumed",
        "on" => "switched on",
        "off" => "switched off",
        _ => return Err(Refused::bad_request(format!("`{action}` is not an action on several nodes"))),
    };
    if action == "off" && fields.get("confirmed") != Some("yes") {
        let question = ask(frame.clone(), &names, &fields, back).await;
        return Ok(question.into_response());
    }
    let mut problems = Vec::new();
    for name in &names {
        if let Err(refused) = act_on(&frame, name, action, &fields).await {
            problems.push(format!("{name}: {}", refused.error.message));
        }
    }
    let count = names.len() - problems.len();
    let said = format!("{count} of {} nodes are being {done}.", names.len());
    let notice = if problems.is_empty() {
        Notice::good(said)
    } else {
        problems.insert(0, said);
        Notice::bad(problems)
    };
    Ok(frame.redirect(&back, notice))
}

/// Asks before nodes are switched off.
async fn ask(frame: Frame, names: &[&str], fields: &Fields, back: Url) -> Html<String> {
    let mut items = Vec::new();
    for name in names {
        let node: Result<NodeDetail, Refused> = frame.api.get(&Url::node(name)).await;
        items.push(match node {
            Ok(NodeDetail { node, .. }) => match node.tasks {
                0 => format!("{name}: {}", node.state.as_str()),
                tasks => format!("{name}: {}, {} there", node.state.as_str(), plural(tasks, "task")),
            },
            Err(refused) => format!("{name}: {}", refused.error.message),
        });
    }
    let which = plural(names.len(), "node");
    let title = format!("Switch off {which}? Jobs cannot use them until they are on again.");
    let repeated = fields.iter().filter(|(name, _)| !matches!(*name, "token" | "confirmed"));
    let fields = repeated.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    render(&Confirm {
        frame,
        title,
        items,
        url: Url::of(["nodes"]),
        fields,
        button: format!("Switch off {which}"),
        back,
    })
}
