//! `sinfo`: lists nodes and partitions.

mod fields;
mod json;
mod row;
mod rows;

use std::ffi::OsString;
use std::time::Duration;

use hostler_client::ClientError;
use hostler_slurm::getopt::Takes::{Attached, Nothing, Value};
use hostler_slurm::hostlist;
use hostler_slurm::layout::{Piece, parse_long, parse_short};
use hostler_slurm::node_state::StateFilter;

use super::clock::Clock;
use super::machines::{Cluster, Details};
use super::options::{self, Setter, checked, flag, nothing, prints, value, version};
use super::rows::Accounts;
use super::{Ended, Outcome, Refused, check_clusters, items, mistaken, print};
use crate::context::{Context, block_on};
use fields::{FIELDS, Writer, cluster_line, find};
use rows::{Format, Selection, sorted};

pub(crate) const NAME: &str = "sinfo";

const USAGE: &str = "Usage: sinfo [-adelNRrsv] [-i seconds] [-t states] [-p partition] [-n nodes]\n\
    \x20            [-S fields] [-o format] [-O Format] [-M clusters] [--json]\n";

/// The smallest width of a column whose width follows from its values.
const LEAST_WIDTH: usize = 9;

const OPTIONS: &[Setter<Asked>] = &[
    nothing("all", "a", Nothing),
    checked("clusters", "M", Value, |asked, list| {
        asked.clusters = true;
        list.map_or(Ok(()), check_clusters)
    }),
    flag("dead", "d", |asked| asked.selection.responding = Some(false)),
    flag("exact", "e", |asked| asked.selection.exact = true),
    nothing("federation", "", Nothing),
    value("Format", "O", |asked, format| asked.format = Some(long_format(format, &mut asked.reports))),
    value("format", "o", |asked, format| asked.format = Some(short_format(format, &mut asked.reports))),
    prints("help", "", || USAGE.to_owned()),
    nothing("hide", "", Nothing),
    checked("iterate", "i", Value, |asked, text| {
        asked.every = text.map(seconds).transpose()?;
        Ok(())
    }),
    checked("json", "", Attached, set_json),
    flag("list-reasons", "R", |asked| asked.reasons = true),
    nothing("local", "", Nothing),
    flag("long", "l", |asked| asked.long = true),
    nothing("noconvert", "", Nothing),
    flag("Node", "N", |asked| asked.selection.by_node = true),
    checked("nodes", "n", Value, |asked, list| {
        asked.selection.nodes = list.map(hostlist::expand).transpose().map_err(Ended::error)?;
        Ok(())
    }),
    flag("noheader", "h", |asked| asked.no_header = true),
    value("partition", "p", |asked, names| asked.selection.partitions = Some(items(names))),
    flag("reservation", "T", |asked| asked.reservations = true),
    flag("responding", "r", |asked| asked.selection.responding = Some(true)),
    value("sort", "S", |asked, fields| asked.sort = Some(fields.to_owned())),
    checked("states", "t", Value, |asked, list| {
        asked.selection.states = list.map(states).transpose()?.flatten();
        Ok(())
    }),
    flag("summarize", "s", |asked| asked.summary = true),
    prints("usage", "", || USAGE.to_owned()),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
    checked("yaml", "", Attached, set_json),
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
    /// What is wrong with the formats, for stderr.
    reports: Vec<String>,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let parsed = options::parse(OPTIONS, args).map_err(|mistake| mistaken(NAME, &mistake))?;
    let mut asked = Asked::default();
    let applied = options::apply(OPTIONS, &parsed.options, &mut asked);
    if applied.is_ok() {
        asked.apply_variables();
    }
    asked.reports.iter().for_each(|text| context.output.job_stderr(text.as_bytes()));
    applied?;
    if asked.reservations {
        return Ok(print(context, "No reservations in the system\n"));
    }
    loop {
        let (cluster, clock) = load(context, &asked)?;
        let mut writer = Writer { clock, accounts: Accounts::default() };
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

/// Asks the head for the nodes, with the details that the user wants to see, and for its time.
fn load(context: &Context, asked: &Asked) -> Result<(Cluster, Clock), Ended> {
    let client = context.client()?;
    let fields = asked.format_for(None).fields();
    let details = match asked.json {
        true => Details::All,
        false => fields.iter().map(|field| field.details()).max().unwrap_or(Details::None),
    };
    let load = async { Ok::<_, ClientError>((Cluster::load(&client, details).await?, Clock::of_head(&client).await?)) };
    block_on(async { Ok(load.await) })?.map_err(|error| {
        let refused = Refused::from(error);
        let ended = Ended::plain(format!("slurm_load_partitions: {}", refused.text));
        if refused.code.is_none() { ended } else { refused.lines().fold(ended, Ended::and) }
    })
}

impl Asked {
    /// Applies variables of the environment for options that are absent.
    fn apply_variables(&mut self) {
        let variable = |name: &str| std::env::var(format!("SINFO_{name}")).ok().filter(|value| !value.is_empty());
        if self.selection.partitions.is_none() {
            self.selection.partitions = variable("PARTITION").map(|names| items(&names));
        }
        let is_usual = !self.long && !self.summary && !self.reasons && !self.selection.by_node;
        if self.format.is_none() && is_usual {
            self.format = variable("FORMAT").map(|format| short_format(&format, &mut self.reports));
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
            return json::document(&rows, writer.clock.now);
        }
        let mut text = String::new();
        if self.long && self.format.is_none() && !self.no_header {
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
fn short_format(format: &str, reports: &mut Vec<String>) -> Vec<Piece> {
    if format == "%all" {
        let letters: Vec<String> =
            FIELDS.iter().filter(|known| known.letter != ' ').map(|known| format!("%{}", known.letter)).collect();
        return parse_short(&letters.join("|"));
    }
    let as_text = |piece: Piece| match piece {
        Piece::Field(field) if find(&field.name).is_none() => {
            reports.push(format!("Invalid node format specification: {}\n", field.name));
            let width = field.width.map(|width| width.to_string()).unwrap_or_default();
            Piece::Text(format!("%{}{width}{}", if field.is_right { "." } else { "" }, field.name))
        }
        piece => piece,
    };
    parse_short(format).into_iter().map(as_text).collect()
}

/// Parses a long format. Fields that nobody knows are left out, and reported.
fn long_format(format: &str, reports: &mut Vec<String>) -> Vec<Piece> {
    if format.eq_ignore_ascii_case("all") {
        return short_format("%all", reports);
    }
    let is_known = |piece: &Piece| match piece {
        Piece::Field(field) if find(&field.name).is_none() => {
            reports.push(format!("{NAME}: error: Invalid job format specification: {}\n", field.name));
            false
        }
        _ => true,
    };
    parse_long(format).into_iter().filter(is_known).collect()
}

fn set_json(asked: &mut Asked, _: Option<&str>) -> Result<(), Ended> {
    asked.json = true;
    Ok(())
}

fn seconds(text: &str) -> Result<Duration, Ended> {
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds > 0);
    let bad = || Ended::error(format!("Error: invalid entry for --iterate={text}"));
    Ok(Duration::from_secs(seconds.ok_or_else(bad)?))
}

fn states(text: &str) -> Result<Option<StateFilter>, Ended> {
    StateFilter::parse(text).map_err(|word| {
        Ended::error(format!("Bad state string: \"{word}\""))
            .and(format!("error: valid states: {}", StateFilter::names()))
    })
}
