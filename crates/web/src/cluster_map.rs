//! The nodes of the cluster at a glance: a tile for each, or a cell in one picture if there are many.

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{JobId, NodeState, format_bytes, plural};
use hostler_proto::api::NodeView;

use crate::held::Held;
use crate::measured::Brief;
use crate::page::Frame;
use crate::parts::{Badge, Time, Tone};
use crate::url::Url;

/// Most nodes that get a tile each.
pub(crate) const TILES: usize = 30;

/// Most nodes in the picture.
pub(crate) const CELLS: usize = 1_000;

/// Cells in a row of the picture, and the size of one with its margin.
const PER_ROW: usize = 40;
const CELL: usize = 10;

#[derive(Template)]
#[template(path = "parts/cluster-map.html")]
pub(crate) struct ClusterMap {
    tiles: Vec<Tile>,
    cells: Vec<Cell>,
    /// Says in words what the cells show.
    label: String,
    width: usize,
    height: usize,
}

impl HtmlSafe for ClusterMap {}

/// A node that is named.
struct Tile {
    name: String,
    url: Url,
    badge: Badge,
    /// What holds its CPUs; absent for a node that gets no jobs and runs none.
    held: Option<Held>,
    /// Its other amounts, or why it gets no jobs.
    text: String,
    measured: Brief,
    kept_for: Option<JobId>,
    /// Since when it has been away.
    since: Option<Time>,
}

/// A node in the picture.
struct Cell {
    url: Url,
    title: String,
    x: usize,
    y: usize,
    tone: Tone,
    /// Share of its CPUs that jobs hold, from 0 to 1.
    held: f32,
}

impl ClusterMap {
    pub(crate) fn new(frame: &Frame, nodes: &[NodeView]) -> Self {
        let count = nodes.len();
        let up = nodes.iter().filter(|node| node.state == NodeState::Up).count();
        let label = format!("{}, {up} up", plural(count, "node"));
        let (tiles, cells) = match count {
            ..=TILES => {
                let tile = |(node, measured)| Tile::new(frame, node, measured);
                (nodes.iter().zip(Brief::of_list(nodes)).map(tile).collect(), Vec::new())
            }
            _ => (Vec::new(), nodes.iter().enumerate().map(|(at, node)| Cell::new(at, node)).collect()),
        };
        Self { tiles, cells, label, width: PER_ROW * CELL, height: count.div_ceil(PER_ROW) * CELL }
    }
}

impl Tile {
    fn new(frame: &Frame, node: &NodeView, measured: Brief) -> Self {
        let is_up = node.state == NodeState::Up;
        let runs = node.holders.as_deref().unwrap_or_default();
        let held = (is_up || node.tasks > 0).then(|| Held::new(node.name.as_str(), node.cpus, node.cpus_free, runs));
        let mut amounts = vec![format!(
            "{} of {} memory held",
            format_bytes(node.memory_bytes.saturating_sub(node.memory_free_bytes)),
            format_bytes(node.memory_bytes)
        )];
        if node.gpus > 0 {
            amounts.push(format!("{} of {} held", node.gpus.saturating_sub(node.gpus_free), plural(node.gpus, "GPU")));
        }
        let is_silent = matches!(node.state, NodeState::Suspect | NodeState::Down);
        let text = match (is_up, is_silent) {
            (true, _) => amounts.join(", "),
            (false, true) => "Not responding: silent".to_owned(),
            (false, false) => node.why.clone().unwrap_or_default(),
        };
        Self {
            name: node.name.to_string(),
            url: Url::node(&node.name),
            badge: Badge::node(node.state),
            held,
            text,
            measured,
            kept_for: node.kept_for,
            since: node.since.filter(|_| !is_up).map(|since| frame.lasting(since)),
        }
    }
}

impl Cell {
    fn new(at: usize, node: &NodeView) -> Self {
        let used = node.cpus.saturating_sub(node.cpus_free);
        let is_up = node.state == NodeState::Up;
        let load = if is_up { format!(", {used} of {} held", plural(node.cpus, "CPU")) } else { String::new() };
        Self {
            url: Url::node(&node.name),
            title: format!("{}: {}{load}", node.name, node.state.as_str()),
            x: at % PER_ROW * CELL,
            y: at / PER_ROW * CELL,
            tone: Badge::node(node.state).tone,
            held: if is_up { used as f32 / node.cpus.max(1) as f32 } else { 0.0 },
        }
    }

    /// Height of the filled part: the share of CPUs that jobs hold.
    fn filled(&self) -> f32 {
        ((CELL - 1) as f32 * self.held.min(1.0) * 10.0).round() / 10.0
    }

    fn filled_from(&self) -> f32 {
        self.y as f32 + (CELL - 1) as f32 - self.filled()
    }
}
