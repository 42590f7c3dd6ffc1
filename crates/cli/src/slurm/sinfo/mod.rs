//! `sinfo`: lists nodes and partitions.

mod fields;
mod json;
mod row;
mod rows;

use std::ffi::OsString;
use std::time::Duration;

use hostler_slurm::getopt::{Opt, Takes};
use hostler_slurm::hostlist;
use hostler_slurm::layout::{Piece, parse_long, parse_short};
use hostler_slurm::node_state::StateFilter;

use super::clock::Clock;
use super::machines::{Cluster, Details};
use super::rows::Accounts;
use super::{Ended, Outcome, Refused, VERSION, check_clusters, items, opt, parse, print, text};
use crate::context::{Context, block_on};
use fields::{FIELDS, Field, Writer, cluster_line, find};
use rows::{Format, Selection, sorted};

pub(crate) const NAME: &str = "sinfo";

const USAGE: &str = "Usage: sinfo [-adelNRrsv] [-i seconds] [-t states] [-p partition] [-n nodes]\n\
    \x20            [-S fields] [-o format] [-O Format] [-M clusters] [--json]\n";

/// The smallest width of a column whose width follows from its values.
const LEAST_WIDTH: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Clusters,
    Dead,
    Exact,
    Format,
    Help,
    Iterate,
    Json,
    ListReasons,
    Long,
    LongFormat,
    Node,
    Nodes,
    NoHeader,
    Nothing(&'static str),
    Partition,
    Reservation,
    Responding,
    Sort,
    States,
    Summarize,
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Nothing("all"), "all", b'a', Takes::Nothing),
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Dead, "dead", b'd', Takes::Nothing),
    opt(Key::Exact, "exact", b'e', Takes::Nothing),
    opt(Key::Nothing("federation"), "federation", 0, Takes::Nothing),
    opt(Key::LongFormat, "Format", b'O', Takes::Value),
    opt(Key::Format, "format", b'o', Takes::Value),
    opt(Key::Help, "help", 0, Takes::Nothing),
    opt(Key::Nothing("hide"), "hide", 0, Takes::Nothing),
    opt(Key::Iterate, "iterate", b'i', Takes::Value),
    opt(Key::Json, "json", 0, Takes::Attached),
    opt(Key::ListReasons, "list-reasons", b'R', Takes::Nothing),
    opt(Key::Nothing("local"), "local", 0, Takes::Nothing),
    opt(Key::Long, "long", b'l', Takes::Nothing),
    opt(Key::Nothing("noconvert"), "noconvert", 0, Takes::Nothing),
    opt(Key::Node, "Node", b'N', Takes::Nothing),
    opt(Key::Nodes, "nodes", b'n', Takes::Value),
    opt(Key::NoHeader, "noheader", b'h', Takes::Nothing),
    opt(Key::Partition, "partition", b'p', Takes::Value),
    opt(Key::Reservation, "reservation", b'T', Takes::Nothing),
    opt(Key::Responding, "responding", b'r', Takes::Nothing),
    opt(Key::Sort, "sort", b'S', Takes::Value),
    opt(Key::States, "states", b't', Takes::Value),
    opt(Key::Summarize, "summarize", b's', Takes::Nothing),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
    opt(Key::Json, "yaml", 0, Takes::Attached),
];

/// What the user asked for.
#[derive(Debug, Default)]
struct Asked {
    selection: Selection,
    format: Option<Vec<Piece>>,
    sort: Option<String>,
    clusters: bool,
    every: Option<Duration>,
    json: bool,
    long: bool,
    no_header: bool,
    reasons: bool,
    reservations: bool,
    summary: bool,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    let mut asked = Asked::default();
    for (key, value) in &given.options {
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            key => asked.apply(context, *key, &text(value.as_ref()))?,
        }
    }
    asked.apply_variables(context);
    if asked.reservations {
        return Ok(print(context, "No reservations in the system\n"));
    }
    loop {
        let mut writer = Writer { clock: Clock::of_process(), accounts: Accounts::default() };
        let cluster = load(context, &asked)?;
        let mut table = asked.table(&cluster, &mut writer);
        if asked.every.is_some() && !asked.long && !asked.no_header {
            table.insert_str(0, &format!("{}\n", writer.clock.date_line()));
        }
        print(context, &table);
        let Some(every) = asked.every else { return Ok(0) };
        print(context, "\n");
        std::thread::sleep(every);
    }
}

/// Asks the head for the nodes, with the details that the user wants to see.
fn load(context: &Context, asked: &Asked) -> Result<Cluster, Ended> {
    let client = context.client()?;
    let fields = asked.format_for(None).fields();
    let has = |some: &[Field]| fields.iter().any(|field| some.contains(field));
    let details = match () {
        () if asked.json || has(&[Field::FreeMem, Field::CpuLoad]) => Details::All,
        () if has(&[Field::Reason, Field::TimeStamp, Field::User, Field::UserLong]) => Details::Reasons,
        () => Details::None,
    };
    block_on(async { Ok(Cluster::load(&client, details).await) })?.map_err(|error| {
        let refused = Refused::from(error);
        let ended = Ended::plain(format!("slurm_load_partitions: {}", refused.text));
        if refused.code.is_none() { ended } else { refused.lines().fold(ended, Ended::and) }
    })
}

impl Asked {
    fn apply(&mut self, context: &Context, key: Key, value: &str) -> Result<(), Ended> {
        let selection = &mut self.selection;
        match key {
            Key::Clusters => {
                check_clusters(value)?;
                self.clusters = true;
            }
            Key::Dead => selection.responding = Some(false),
            Key::Responding => selection.responding = Some(true),
            Key::Exact => selection.exact = true,
            Key::Format => self.format = Some(short_format(context, value)),
            Key::LongFormat => self.format = Some(long_format(context, value)),
            Key::Iterate => {
                let seconds = value.parse::<u64>().ok().filter(|seconds| *seconds > 0);
                let bad = || Ended::error(format!("Error: invalid entry for --iterate={value}"));
                self.every = Some(Duration::from_secs(seconds.ok_or_else(bad)?));
            }
            Key::Json => self.json = true,
            Key::ListReasons => self.reasons = true,
            Key::Long => self.long = true,
            Key::Node => selection.by_node = true,
            Key::Nodes => selection.nodes = Some(hostlist::expand(value).map_err(Ended::error)?),
            Key::NoHeader => self.no_header = true,
            Key::Partition => selection.partitions = Some(items(value)),
            Key::Reservation => self.reservations = true,
            Key::Sort => self.sort = Some(value.to_owned()),
            Key::States => selection.states = states(value)?,
            Key::Summarize => self.summary = true,
            Key::Help | Key::Version | Key::Nothing(_) => {}
        }
        Ok(())
    }

    /// Applies variables of the environment for options that are absent.
    fn apply_variables(&mut self, context: &Context) {
        let variable = |name: &str| std::env::var(format!("SINFO_{name}")).ok().filter(|value| !value.is_empty());
        if self.selection.partitions.is_none() {
            self.selection.partitions = variable("PARTITION").map(|names| items(&names));
        }
        let is_usual = !self.long && !self.summary && !self.reasons && !self.selection.by_node;
        if self.format.is_none() && is_usual {
            self.format = variable("FORMAT").map(|format| short_format(context, &format));
        }
        self.sort = self.sort.take().or_else(|| variable("SORT"));
        if self.reasons && self.selection.states.is_none() {
            self.selection.states = Some(StateFilter::with_reasons());
        }
    }

    /// The format: the user's, or the usual one with columns as wide as the names in the cluster.
    fn format_for(&self, cluster: Option<&Cluster>) -> Format {
        if let Some(pieces) = &self.format {
            return Format(pieces.clone());
        }
        let widest = |lengths: Vec<usize>| lengths.into_iter().max().unwrap_or(0).max(LEAST_WIDTH);
        let part = widest(cluster.map_or_else(Vec::new, |cluster| {
            cluster.parts.iter().map(|part| part.name.chars().count() + usize::from(part.is_default)).collect()
        }));
        let node = widest(cluster.map_or_else(Vec::new, |cluster| {
            cluster.machines.iter().map(|machine| machine.name().chars().count()).collect()
        }));
        let format = match (self.reasons, self.summary, self.selection.by_node, self.long) {
            (true, _, _, false) => "%20E %9u %19H %N".to_owned(),
            (true, _, _, true) => "%20E %12U %19H %6t %N".to_owned(),
            (_, true, ..) => format!("%{part}P %.5a %.10l %.16F %N"),
            (_, _, true, false) => format!("%{node}N %.6D %.{part}P %6t"),
            (_, _, true, true) => {
                format!("%{node}N %.6D %.{part}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E")
            }
            (_, _, _, false) => format!("%{part}P %.5a %.10l %.6D %.6t %N"),
            (_, _, _, true) => format!("%{part}P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"),
        };
        Format(parse_short(&format))
    }

    fn order(&self) -> &str {
        self.sort.as_deref().unwrap_or(if self.selection.by_node { "N" } else { "#P,-t" })
    }

    /// Everything that the command prints.
    fn table(&self, cluster: &Cluster, writer: &mut Writer) -> String {
        let format = self.format_for(Some(cluster));
        let rows = self.selection.rows(cluster, &format.fields(), writer);
        let rows = sorted(rows, self.order(), writer);
        if self.json {
            return json::document(&rows);
        }
        let mut text = String::new();
        if self.long && self.format.is_none() {
            text.push_str(&format!("{}\n", writer.clock.date_line()));
        }
        if !self.no_header {
            if self.clusters {
                text.push_str(&cluster_line());
            }
            text.push_str(&format.header());
        }
        rows.iter().for_each(|row| text.push_str(&format.line(row, writer)));
        text
    }
}

/// Parses a short format. Fields that nobody knows stay as they are written, and are reported.
fn short_format(context: &Context, format: &str) -> Vec<Piece> {
    if format == "%all" {
        let letters: Vec<String> =
            FIELDS.iter().filter(|known| known.letter != ' ').map(|known| format!("%{}", known.letter)).collect();
        return parse_short(&letters.join("|"));
    }
    let as_text = |piece: Piece| match piece {
        Piece::Field(field) if find(&field.name).is_none() => {
            report(context, &format!("Invalid node format specification: {}\n", field.name));
            let width = field.width.map(|width| width.to_string()).unwrap_or_default();
            Piece::Text(format!("%{}{width}{}", if field.is_right { "." } else { "" }, field.name))
        }
        piece => piece,
    };
    parse_short(format).into_iter().map(as_text).collect()
}

/// Parses a long format. Fields that nobody knows are left out, and reported.
fn long_format(context: &Context, format: &str) -> Vec<Piece> {
    let is_known = |piece: &Piece| match piece {
        Piece::Field(field) if find(&field.name).is_none() => {
            report(context, &format!("{NAME}: error: Invalid job format specification: {}\n", field.name));
            false
        }
        _ => true,
    };
    parse_long(format).into_iter().filter(is_known).collect()
}

fn report(context: &Context, text: &str) {
    context.output.job_stderr(text.as_bytes());
}

fn states(text: &str) -> Result<Option<StateFilter>, Ended> {
    StateFilter::parse(text).map_err(|word| {
        Ended::error(format!("Bad state string: \"{word}\""))
            .and(format!("error: valid states: {}", StateFilter::names()))
    })
}
