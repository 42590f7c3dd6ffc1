//! `sprio`: the priorities of jobs that wait and are not held. They have no factors: the priority is the one that the user
//! gave.

use std::ffi::OsString;

use hostler_client::RecordFilter;
use hostler_model::JobState;
use hostler_slurm::getopt::{Opt, Takes};
use hostler_slurm::layout::{Field, Piece, parse_short};

use super::super::rows::{Row, rows};
use super::super::squeue::ids::{Named, parse_list};
use super::super::table::layout_line;
use super::super::{Outcome, VERSION, check_clusters, items, opt, parse, print, text, unreadable};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sprio";

const USAGE: &str = "Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions] [-hlnwV]\n";

const USUAL: &str = "%.15i %9r %.10Y %.10S";
const LONG: &str = "%.15i %9r %.8u %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q %.11N";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Clusters,
    Format,
    Help,
    Jobs,
    Long,
    NoHeader,
    Nothing(&'static str),
    Partition,
    User,
    Version,
    Weights,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Nothing("federation"), "federation", 0, Takes::Nothing),
    opt(Key::Format, "format", b'o', Takes::Value),
    opt(Key::Help, "help", 0, Takes::Nothing),
    opt(Key::Jobs, "jobs", b'j', Takes::Attached),
    opt(Key::Nothing("local"), "local", 0, Takes::Nothing),
    opt(Key::Long, "long", b'l', Takes::Nothing),
    opt(Key::NoHeader, "noheader", b'h', Takes::Nothing),
    opt(Key::Nothing("norm"), "norm", b'n', Takes::Nothing),
    opt(Key::Partition, "partition", b'p', Takes::Value),
    opt(Key::Nothing("sibling"), "sibling", 0, Takes::Nothing),
    opt(Key::Nothing("sort"), "sort", b'S', Takes::Value),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::User, "user", b'u', Takes::Value),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
    opt(Key::Weights, "weights", b'w', Takes::Nothing),
];

/// Which jobs to list; empty lists mean all.
#[derive(Debug, Default)]
struct Filter {
    jobs: Vec<String>,
    users: Vec<String>,
    partitions: Vec<String>,
}

impl Filter {
    fn takes(&self, row: &Row<'_>) -> bool {
        let has = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
        let is_named = |id: &String| {
            let is_of_row =
                |named: &Named| named.job == row.job.id && named.tasks.as_ref().is_none_or(|tasks| row.has_any(tasks));
            parse_list(id).is_ok_and(|named| named.iter().any(is_of_row))
        };
        (self.jobs.is_empty() || self.jobs.iter().any(is_named))
            && has(&self.users, &row.job.user)
            && has(&self.partitions, row.partition())
    }
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    let mut filter = Filter::default();
    let (mut format, mut has_header, mut weights) = (USUAL.to_owned(), true, false);
    for (key, value) in &given.options {
        let value = text(value.as_ref());
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Clusters => check_clusters(&value)?,
            Key::Format => format = value,
            Key::Jobs => filter.jobs.extend(items(&value)),
            Key::Long => LONG.clone_into(&mut format),
            Key::NoHeader => has_header = false,
            Key::Partition => filter.partitions.extend(items(&value)),
            Key::User => filter.users.extend(items(&value)),
            Key::Weights => weights = true,
            Key::Nothing(_) => {}
        }
    }
    filter.jobs.extend(given.operands.iter().flat_map(|word| items(&word.to_string_lossy())));
    let pieces = parse_short(if weights { USUAL } else { &format });
    let mut table =
        if has_header { layout_line(&pieces, |field| header(field).map(str::to_owned)) } else { String::new() };
    if weights {
        table.push_str(&layout_line(&pieces, |field| header(field).map(|_| weight(field).to_owned())));
        return Ok(print(context, &table));
    }
    let client = context.client()?;
    let waiting = RecordFilter { states: vec![JobState::Pending], live: true, ..RecordFilter::default() };
    let mut records = block_on(async { Ok(client.records(&waiting).await) })?
        .map_err(|error| unreadable("Couldn't get priority factors from controller:", error))?;
    records.sort_by_key(|record| record.id);
    let shown =
        records.iter().flat_map(|record| rows(record, false)).filter(|row| row.task.is_none() && row.priority() > 0);
    table.extend(shown.filter(|row| filter.takes(row)).map(|row| row_line(&pieces, &row)));
    Ok(print(context, &table))
}

fn header(field: &Field) -> Option<&'static str> {
    Some(match field.name.as_str() {
        "a" | "A" => "AGE",
        "b" | "B" => "ASSOC",
        "c" => "CLUSTER",
        "f" | "F" => "FAIRSHARE",
        "i" => "JOBID",
        "j" | "J" => "JOBSIZE",
        "N" => "NICE",
        "n" => "QOS",
        "o" => "ACCOUNT",
        "p" | "P" => "PARTITION",
        "q" | "Q" => "QOS",
        "r" => "PARTITION",
        "S" => "SITE",
        "t" | "T" => "TRES",
        "u" => "USER",
        "y" | "Y" => "PRIORITY",
        _ => return None,
    })
}

/// The weight of a factor, in the line that shows all weights.
fn weight(field: &Field) -> &'static str {
    match field.name.as_str() {
        "i" => "Weights",
        "S" => "1",
        _ => "",
    }
}

fn row_line(pieces: &[Piece], row: &Row<'_>) -> String {
    layout_line(pieces, |field| {
        Some(match field.name.as_str() {
            "c" => super::super::CLUSTER.to_owned(),
            "i" => row.id(),
            "N" => row.label("slurm.nice").unwrap_or("0").to_owned(),
            "n" => row.qos().to_owned(),
            "o" => row.account().to_owned(),
            "r" => row.partition().to_owned(),
            "u" => row.job.user.clone(),
            "Y" => row.priority().to_string(),
            "y" => format!("{:.10}", f64::from(row.priority()) / f64::from(u32::MAX)),
            _ => header(field).map(|_| "0")?.to_owned(),
        })
    })
}
