//! What a node's agent measured last: load, memory, pressure, temperature and more.

use std::collections::HashSet;

use askama::Template;
use askama::filters::HtmlSafe;
use hostler_model::{Metric, NodeState, WallTime};
use hostler_proto::api::NodeView;

use crate::chart::{amount, title};
use crate::parts::{Badge, Bar, Tone};

/// Pressure from which the list of nodes names it, in per cent of the time.
const HIGH_PRESSURE: f32 = 10.0;

/// What else is shown if it was measured.
const OTHERS: [Metric; 4] = [Metric::DiskFree, Metric::Gpu, Metric::Temperature, Metric::Power];

const PRESSURES: [Metric; 3] = [Metric::CpuPressure, Metric::MemoryPressure, Metric::IoPressure];

/// All current figures of a node, with bars where there is a limit.
pub(crate) struct Measured {
    pub(crate) at: WallTime,
    pub(crate) figures: Vec<Figure>,
}

pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) bar: Option<Bar>,
}

impl Measured {
    pub(crate) fn of(node: &NodeView) -> Option<Self> {
        let reading = node.measured.as_ref()?;
        let shown = [Metric::Cpu, Metric::Load, Metric::Memory].into_iter().chain(PRESSURES).chain(OTHERS);
        let figures = shown.filter_map(|metric| {
            let value = f64::from(*reading.values.get(&metric)?);
            let limit = limit(metric, node);
            let text = match (metric, limit) {
                (_, None) => amount(metric.unit(), value),
                (Metric::Cpu | Metric::Memory | Metric::Gpu, Some(limit)) => {
                    let [value, limit] = [value, limit].map(|value| amount(metric.unit(), value));
                    format!("{value}; {limit} for jobs")
                }
                (_, Some(_)) => format!("{} of the time", amount(metric.unit(), value)),
            };
            let name = title(metric);
            let bar = limit.map(|limit| Bar::new(format!("{name}: {text}"), thousandths(value), thousandths(limit)));
            Some(Figure { name, text, bar })
        });
        Some(Self { at: reading.at, figures: figures.collect() })
    }
}

/// The current figures that people compare between nodes, for a cell of the list.
#[derive(Debug, Clone, Default, Template)]
#[template(source = "{{ text }}{% for badge in badges %} {{ badge }}{% endfor %}", ext = "html")]
pub(crate) struct Brief {
    text: String,
    badges: Vec<Badge>,
}

impl HtmlSafe for Brief {}

impl Brief {
    /// The figures of each node that is up. Those of a machine are said only with the first of the nodes that share it.
    pub(crate) fn of_list(nodes: &[NodeView]) -> Vec<Self> {
        let mut machines = HashSet::new();
        let of_node = |node: &NodeView| match node.state {
            NodeState::Up => Self::of(node, !node.shares_cpus || machines.insert(node.address)),
            _ => Self::default(),
        };
        nodes.iter().map(of_node).collect()
    }

    fn of(node: &NodeView, with_machine: bool) -> Self {
        let Some(reading) = &node.measured else { return Self::default() };
        let said = |metric: Metric| reading.values.get(&metric).map(|value| amount(metric.unit(), f64::from(*value)));
        let figures = [
            said(Metric::Load).filter(|_| with_machine).map(|load| format!("load {load}")),
            said(Metric::Memory).map(|memory| format!("{memory} in use")),
            said(Metric::Temperature).filter(|_| with_machine),
        ];
        let pressures: &[Metric] = if with_machine { &PRESSURES } else { &[] };
        let high = pressures.iter().filter_map(|metric| {
            reading.values.get(metric).filter(|value| **value >= HIGH_PRESSURE)?;
            let share = said(*metric)?;
            Some(Badge::new(format!("{} {share}", title(*metric).to_lowercase().replace("cpu", "CPU")), Tone::Waiting))
        });
        Self { text: figures.into_iter().flatten().collect::<Vec<_>>().join(", "), badges: high.collect() }
    }
}

/// The end of a figure's bar; `None` if nothing limits it.
fn limit(metric: Metric, node: &NodeView) -> Option<f64> {
    match metric {
        Metric::Cpu => Some(f64::from(node.cpus)),
        Metric::Memory => Some(node.memory_bytes as f64),
        Metric::Gpu => Some(f64::from(node.gpus)),
        Metric::CpuPressure | Metric::MemoryPressure | Metric::IoPressure => Some(100.0),
        _ => None,
    }
}

/// Bars take whole numbers.
fn thousandths(value: f64) -> u64 {
    (value * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn node(values: &[(Metric, f32)]) -> NodeView {
        let values: BTreeMap<_, _> = values.iter().map(|(metric, value)| (metric.as_str(), value)).collect();
        let node = json!({
            "name": "n1", "state": "up", "power": "on", "cpus": 8, "cpus_free": 8, "memory_bytes": 1_u64 << 34,
            "memory_free_bytes": 0, "tasks": 0, "agent_pid": 1, "version": "1", "measured": {"at": 0, "values": values},
        });
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn figures_have_units_and_bars_up_to_their_limits() {
        let node = node(&[(Metric::Memory, 4_294_967_296.0), (Metric::Load, 2.5), (Metric::CpuPressure, 12.5)]);
        let figures = Measured::of(&node).expect("measured").figures;
        let said: Vec<_> = figures.iter().map(|it| (it.name, it.text.as_str(), it.bar.is_some())).collect();
        let expected = [
            ("Load average", "2.5", false),
            ("Memory", "4 GiB; 16 GiB for jobs", true),
            ("Waiting for CPUs", "12.5 % of the time", true),
        ];
        assert_eq!(said, expected);
        let brief = Brief::of(&node, true).render().expect("templates write to memory");
        let badge = "<span class=\"badge waiting\">waiting for CPUs 12.5 %</span>";
        assert_eq!(brief, format!("load 2.5, 4 GiB in use {badge}"));
    }

    #[test]
    fn node_without_current_figures_shows_none() {
        let node = NodeView { measured: None, ..node(&[]) };
        assert!(Measured::of(&node).is_none());
        assert_eq!(Brief::of(&node, true).render().expect("templates write to memory"), "");
    }

    #[test]
    fn load_of_a_machine_is_said_once() {
        let one = NodeView { shares_cpus: true, ..node(&[(Metric::Load, 2.5), (Metric::CpuPressure, 50.0)]) };
        let apart = NodeView { shares_cpus: false, ..one.clone() };
        let said: Vec<String> = Brief::of_list(&[one.clone(), one, apart])
            .iter()
            .map(|brief| brief.render().expect("templates write to memory"))
            .collect();
        assert!(said[0].starts_with("load 2.5 <span") && said[1].is_empty() && said[2] == said[0], "{said:?}");
    }
}
