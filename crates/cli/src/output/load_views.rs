//! Text views of the nodes' loads.

use hostler_model::{format_bytes, format_ms};
use hostler_proto::peers::{LoadTable, LoadView, NodeLoad, NodePresence};

use super::table::{Align, Table};

/// Index of the column WEIGHTS, which is hidden if all weights are 1.
const WEIGHTS: usize = 11;

/// A table with one row per node; a star marks the node that reports.
pub(crate) fn loads(table: &LoadTable, width: Option<usize>) -> String {
    let mut rows = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("LOAD", Align::Right),
        ("BUSY", Align::Right),
        ("RUNNABLE", Align::Right),
        ("CPUS", Align::Right),
        ("CPUS FREE", Align::Right),
        ("MEMORY", Align::Right),
        ("MEMORY FREE", Align::Right),
        ("PRESSURE", Align::Left),
        ("HEARD", Align::Right),
        ("WEIGHTS", Align::Left),
    ]);
    for node in &table.nodes {
        let own = if node.name == table.node { "*" } else { "" };
        let of_load = |cell: fn(&LoadView) -> String| node.load.as_ref().map_or_else(|| "-".to_owned(), cell);
        rows.row([
            format!("{}{own}", node.name),
            state(node).to_owned(),
            of_load(|load| hundredths(load.average)),
            of_load(|load| hundredths(load.recent)),
            of_load(|load| load.runnable.to_string()),
            of_load(|load| load.cpus.to_string()),
            of_load(|load| load.cpus_unallocated.to_string()),
            of_load(|load| format_bytes(load.memory_bytes)),
            of_load(|load| format_bytes(load.memory_free_bytes)),
            of_load(pressure),
            heard(node),
            of_load(weights),
        ]);
    }
    let mut weighted = table.nodes.iter().filter_map(|node| node.load.as_ref()).map(weights);
    let rows = if weighted.all(|weights| weights == "1/1") { rows.without(&[WEIGHTS]) } else { rows };
    rows.render(width)
}

fn state(node: &NodeLoad) -> &'static str {
    match node.presence {
        NodePresence::Live if node.load.as_ref().is_some_and(|load| !load.accepts) => "live, no commands",
        NodePresence::Live => "live",
        NodePresence::Gone => "gone",
        NodePresence::Unheard => "unheard",
    }
}

fn hundredths(count: u32) -> String {
    format!("{}.{:02}", count / 100, count % 100)
}

/// Shares of time in which tasks waited for CPU, memory and IO, e.g. `12% 0% 3%`; `-` if unknown.
fn pressure(load: &LoadView) -> String {
    let percent = |share: Option<u16>| share.map_or_else(|| "-".to_owned(), |share| format!("{}%", share.div_ceil(10)));
    [load.cpu_pressure, load.memory_pressure, load.io_pressure].map(percent).join(" ")
}

/// Weights of load and memory, e.g. `2/0.5`.
fn weights(load: &LoadView) -> String {
    format!("{}/{}", f64::from(load.load_weight) / 100.0, f64::from(load.memory_weight) / 100.0)
}

fn heard(node: &NodeLoad) -> String {
    match node.presence {
        NodePresence::Unheard => "-".to_owned(),
        NodePresence::Live | NodePresence::Gone => format!("{} ago", format_ms(node.silent_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_a_table_of_nodes() {
        let load = LoadView {
            age_ms: 300,
            average: 75,
            recent: 203,
            runnable: 4,
            cpus: 4,
            cpus_unallocated: 1,
            memory_bytes: 4 << 30,
            memory_free_bytes: 1 << 30,
            memory_unallocated_bytes: Some(4 << 30),
            cpu_pressure: Some(123),
            memory_pressure: Some(0),
            io_pressure: None,
            load_weight: 100,
            memory_weight: 100,
            accepts: true,
        };
        let node = |name: &str, presence, silent_ms, load| NodeLoad {
            name: name.parse().expect("a name"),
            presence,
            silent_ms,
            load,
        };
        let mut table = LoadTable {
            node: "n1".parse().expect("a name"),
            nodes: vec![
                node("n1", NodePresence::Live, 0, Some(load.clone())),
                node("n2", NodePresence::Gone, 9000, Some(load)),
                node("n3", NodePresence::Unheard, 7, None),
            ],
            accepted: 2,
            refused: 1,
        };
        let expected = "\
NODE  STATE    LOAD  BUSY  RUNNABLE  CPUS  CPUS FREE  MEMORY  MEMORY FREE  PRESSURE     HEARD
n1*   live     0.75  2.03         4     4          1      4G           1G  13% 0% -    0s ago
n2    gone     0.75  2.03         4     4          1      4G           1G  13% 0% -  9.0s ago
n3    unheard     -     -         -     -          -       -            -  -                -
";
        assert_eq!(loads(&table, None), expected);
        let load = table.nodes[0].load.as_mut().expect("the node has a load");
        (load.load_weight, load.memory_weight) = (250, 50);
        let text = loads(&table, None);
        let ends: Vec<_> = text.lines().map(|line| line.split_whitespace().next_back().expect("words")).collect();
        assert_eq!(ends, ["WEIGHTS", "2.5/0.5", "1/1", "-"]);
        table.nodes[0].load.as_mut().expect("the node has a load").accepts = false;
        assert!(loads(&table, None).contains("n1*   live, no commands  "));
    }
}
