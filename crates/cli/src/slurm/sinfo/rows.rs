//! Rows of `sinfo`: nodes that print the same share one.

use std::cmp::Ordering;

use hostler_slurm::layout::{self, Piece};

use super::super::machines::{Cluster, Machine, Part, by_name};
use super::super::table::layout_line;
use super::fields::{Field, Writer, find};
use super::row::Row;

/// Which nodes and partitions to list, and which of them share a row.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Names of partitions; all if absent.
    pub(super) partitions: Option<Vec<String>>,
    /// Names of nodes; all if absent.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) states: Option<hostler_slurm::node_state::StateFilter>,
    /// Whether to list nodes that respond, or those that do not; both if absent.
    pub(super) responding: Option<bool>,
    /// Whether each node has a row of its own.
    pub(super) by_node: bool,
    /// Whether only nodes of the same size share a row.
    pub(super) exact: bool,
}

impl Selection {
    fn takes(&self, machine: &Machine) -> bool {
        let state = machine.state();
        self.nodes.as_ref().is_none_or(|names| names.iter().any(|name| name == machine.name()))
            && self.states.as_ref().is_none_or(|states| states.takes(state))
            && self.responding.is_none_or(|responding| responding != state.silent)
    }

    /// The rows for these fields, in the order of partitions and nodes.
    pub(super) fn rows<'a>(&self, cluster: &'a Cluster, fields: &[&Field], writer: &mut Writer) -> Vec<Row<'a>> {
        let splitting: Vec<&Field> = fields.iter().filter(|field| field.splits(self.exact)).copied().collect();
        let shows_parts = fields.iter().any(|field| field.names_partition());
        let mut rows: Vec<(Vec<String>, Row<'a>)> = Vec::new();
        let is_named = |part: &&Part| self.partitions.as_ref().is_none_or(|names| names.contains(&part.name));
        for (place, part) in cluster.parts.iter().enumerate().filter(|(_, part)| is_named(part)) {
            let mut is_empty = true;
            for machine in cluster.machines_of(part).into_iter().filter(|machine| self.takes(machine)) {
                is_empty = false;
                let alone = Row { part, place, machines: vec![machine] };
                let key: Vec<String> = splitting.iter().map(|field| field.value(writer, &alone)).collect();
                let same = if self.by_node { None } else { rows.iter_mut().find(|(other, _)| *other == key) };
                match same {
                    // A node may be in several partitions.
                    Some((_, row)) if row.machines.iter().any(|other| std::ptr::eq(*other, machine)) => {}
                    Some((_, row)) => row.machines.push(machine),
                    None => rows.push((key, alone)),
                }
            }
            if is_empty && shows_parts && !self.by_node {
                rows.push((Vec::new(), Row { part, place, machines: Vec::new() }));
            }
        }
        let mut rows: Vec<Row<'a>> = rows.into_iter().map(|(_, row)| row).collect();
        rows.iter_mut().for_each(|row| row.machines.sort_by(|a, b| by_name(a.name(), b.name())));
        rows
    }
}

/// Sorts rows by fields such as `#P,-t`. Fields that nobody knows are ignored.
pub(super) fn sorted<'a>(rows: Vec<Row<'a>>, order: &str, writer: &mut Writer) -> Vec<Row<'a>> {
    let keys: Vec<SortKey> = order.split(',').filter_map(|key| SortKey::parse(key.trim())).collect();
    let mut keyed: Vec<(Vec<String>, Row<'a>)> = Vec::with_capacity(rows.len());
    for row in rows {
        let text = |key: &SortKey| find(&key.letter.to_string()).map(|field| field.value(writer, &row));
        let texts = keys.iter().map(text).map(Option::unwrap_or_default).collect();
        keyed.push((texts, row));
    }
    keyed.sort_by(|(a_texts, a), (b_texts, b)| {
        let orderings = keys.iter().zip(a_texts).zip(b_texts).map(|((key, a_text), b_text)| {
            let ordering = match key.letter {
                'P' | 'R' if key.by_place => a.place.cmp(&b.place),
                't' | 'T' => a.state_number().cmp(&b.state_number()),
                'N' | 'n' | 'o' => by_first_name(a, b),
                _ => by_value(a_text, b_text),
            };
            if key.descends { ordering.reverse() } else { ordering }
        });
        orderings.fold(Ordering::Equal, Ordering::then)
    });
    keyed.into_iter().map(|(_, row)| row).collect()
}

/// A field by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SortKey {
    letter: char,
    /// Whether partitions keep their order.
    by_place: bool,
    descends: bool,
}

impl SortKey {
    /// Parses a key such as `-t` or `#P`.
    fn parse(key: &str) -> Option<Self> {
        let signs = key.chars().take_while(|c| "+-#".contains(*c)).count();
        let letter = key[signs..].chars().next()?;
        Some(Self { letter, by_place: key[..signs].contains('#'), descends: key[..signs].contains('-') })
    }
}

fn by_first_name(a: &Row<'_>, b: &Row<'_>) -> Ordering {
    match (a.machines.first(), b.machines.first()) {
        (Some(a), Some(b)) => by_name(a.name(), b.name()),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Compares numbers by their values, and other texts by their letters.
fn by_value(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.trim_end_matches('+').parse::<f64>().ok();
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    }
}

/// The fields of a format, and the lines of its header and rows.
#[derive(Debug)]
pub(super) struct Format(pub(super) Vec<Piece>);

impl Format {
    pub(super) fn fields(&self) -> Vec<&'static Field> {
        let field = |piece: &Piece| match piece {
            Piece::Field(field) => find(&field.name),
            Piece::Text(_) => None,
        };
        self.0.iter().filter_map(field).collect()
    }

    pub(super) fn header(&self) -> String {
        // The headers of lists of names are never cut.
        let whole = |piece: &Piece| match piece {
            Piece::Field(cell) => {
                let known = find(&cell.name);
                let is_cut = |known: &&Field| cell.width.is_some_and(|width| width < known.header.len());
                let list = known.filter(|known| known.is_list()).filter(is_cut);
                let width = if list.is_some() { None } else { cell.width };
                Piece::Field(layout::Field { width, ..cell.clone() })
            }
            text => text.clone(),
        };
        let pieces: Vec<Piece> = self.0.iter().map(whole).collect();
        layout::line(&pieces, |field| find(&field.name).map(|known| known.header.to_owned()))
    }

    pub(super) fn line(&self, row: &Row<'_>, writer: &mut Writer) -> String {
        layout_line(&self.0, |field| find(&field.name).map(|known| known.value(writer, row)))
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::NodeState;
    use hostler_proto::partitions::PartitionView;
    use hostler_slurm::node_state::StateFilter;

    use super::super::super::clock::Clock;
    use super::super::super::machines::tests::machine;
    use super::super::super::rows::Accounts;
    use super::*;

    fn part(name: &str, nodes: &str, is_default: bool) -> PartitionView {
        PartitionView {
            name: name.parse().expect("a name"),
            nodes: nodes.to_owned().try_into().expect("patterns"),
            is_default,
            state: hostler_model::PartitionState::Open,
            priority: 1,
            default_time_ms: None,
            max_time_ms: (!is_default).then_some(86_400_000),
            max_nodes: (!is_default).then_some(2),
            users: std::collections::BTreeSet::new(),
            groups: std::collections::BTreeSet::new(),
            sandbox: hostler_model::SandboxRule::Optional,
            sandbox_network: hostler_model::SandboxNetwork::None,
            exclusive: hostler_model::ExclusiveRule::Optional,
            join_code_until: None,
            pace: None,
            node_count: 0,
            nodes_up: 0,
            cpus: 0,
            cpus_free: 0,
            waiting: 0,
        }
    }

    /// The nodes with which the expected texts below were made by Slurm itself.
    fn cluster() -> Cluster {
        let mut machines = vec![
            machine("n1", NodeState::Up, 2, 1),
            machine("n2", NodeState::Up, 2, 2),
            machine("n3", NodeState::Up, 4, 0),
            machine("n4", NodeState::Suspect, 4, 4),
        ];
        for machine in &mut machines {
            let names: &[&str] = match machine.name() {
                "n3" => &["main", "big"],
                "n4" => &["big"],
                _ => &["main"],
            };
            machine.view.partitions = names.iter().map(|name| name.parse().expect("a name")).collect();
        }
        Cluster::new(machines, &[part("main", "n[1-3]", true), part("big", "n[3-4]", false)])
    }

    fn printed(selection: &Selection, format: &str, order: &str) -> Vec<String> {
        let cluster = cluster();
        let mut writer = Writer { clock: Clock::of_process(), accounts: Accounts::default() };
        let format = Format(layout::parse_short(format));
        let rows = selection.rows(&cluster, &format.fields(), &mut writer);
        let rows = sorted(rows, order, &mut writer);
        rows.iter().map(|row| format.line(row, &mut writer).trim_end_matches('\n').to_owned()).collect()
    }

    #[test]
    fn nodes_that_print_the_same_share_a_row() {
        let all = Selection::default();
        let rows = |format: &str| printed(&all, format, "#P,-t");
        assert_eq!(
            rows("%9P %.5a %.10l %.6D %.6t %N"),
            [
                "main*        up   infinite      1    mix n1",
                "main*        up   infinite      1  alloc n3",
                "main*        up   infinite      1   idle n2",
                "big          up 1-00:00:00      1  idle* n4",
                "big          up 1-00:00:00      1  alloc n3",
            ]
        );
        assert_eq!(rows("%P|%D|%c|%m|%N"), ["main*|3|2+|2048+|n[1-3]", "big|2|4|4096|n[3-4]"]);
        assert_eq!(rows("%C %F %A"), ["5/7/0/12 2/2/0/4 2/2"]);
        assert_eq!(rows("%D,%T"), ["1,mixed", "1,allocated", "1,idle", "1,idle*"]);
        assert_eq!(rows("%R,%C"), ["main,5/3/0/8", "big,4/4/0/8"]);
        assert_eq!(rows("%n %c"), ["n1 2", "n3 4", "n2 2", "n4 4"]);
        assert_eq!(
            rows("%s %g %p %z %E %e %O"),
            ["1-infinite all 1 2+:1:1 none N/A N/A", "1-2 all 1 4:1:1 none N/A N/A"]
        );
    }

    #[test]
    fn rows_are_selected() {
        let states = |text: &str| StateFilter::parse(text).expect("states");
        let some = Selection { states: states("idle"), responding: Some(true), ..Selection::default() };
        assert_eq!(printed(&some, "%P %D %t %N", "#P,-t"), ["main* 1 idle n2", "big 0 n/a "]);
        let some = Selection { nodes: Some(vec!["n3".to_owned()]), by_node: true, ..Selection::default() };
        assert_eq!(printed(&some, "%N %P", "N"), ["n3 main*", "n3 big"]);
        let some = Selection { partitions: Some(vec!["big".to_owned()]), ..Selection::default() };
        assert_eq!(printed(&some, "%R", "#P,-t"), ["big"]);
        let exact = Selection { exact: true, ..Selection::default() };
        assert_eq!(printed(&exact, "%P %c %N", "#P,-t"), ["main* 2 n[1-2]", "main* 4 n3", "big 4 n[3-4]"]);
    }

    #[test]
    fn headers_are_cut_except_those_of_lists() {
        let header = |format: &str| Format(layout::parse_short(format)).header();
        assert_eq!(header("%.3P|%3N|%.3n|%12N|"), "PAR|NODELIST|HOSTNAMES|NODELIST    |\n");
    }

    #[test]
    fn rows_are_sorted() {
        let all = Selection { by_node: true, ..Selection::default() };
        assert_eq!(printed(&all, "%N", "-N"), ["n4", "n3", "n3", "n2", "n1"]);
        assert_eq!(printed(&all, "%R %N", "P,-c"), ["big n3", "big n4", "main n3", "main n1", "main n2"]);
        assert_eq!(printed(&all, "%t", "t"), ["idle", "alloc", "alloc", "mix", "idle*"]);
        assert_eq!(SortKey::parse("-#P"), Some(SortKey { letter: 'P', by_place: true, descends: true }));
        assert_eq!((SortKey::parse(""), SortKey::parse("-")), (None, None));
    }
}
