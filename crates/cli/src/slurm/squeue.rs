//! `squeue`: lists jobs.

mod columns;
mod filter;
mod format;
pub(super) mod ids;
mod options;
mod settings;
mod sort;

use std::ffi::OsString;
use std::time::Duration;

use hostler_client::Client;
use hostler_proto::api::JobRecord;
use hostler_slurm::size::Conversion;

use super::clock::Clock;
use super::steps;
use super::{CLUSTER, Ended, Outcome, job_json, print, tell, unreadable};
use crate::context::{Context, block_on};

use columns::Printer;
use format::Format;
pub(crate) use options::NAME;
use settings::Settings;
use sort::Order;

/// What the command could not do, in its errors.
const LOAD: &str = "slurm_load_jobs";

/// A table to print.
struct Table {
    format: Format,
    order: Order,
    settings: Box<Settings>,
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut warn = |line: String| tell(context, NAME, &[line]);
    let settings = options::parse(args, |name| std::env::var(name).ok(), &mut warn)?;
    let format = match (&settings.short_format, &settings.long_format) {
        (_, Some(list)) => Format::long(list, settings.lists_steps),
        (short, None) => Format::short(short.as_deref().unwrap_or(settings::USUAL), settings.lists_steps),
    };
    let kind = if settings.lists_steps { "job step" } else { "job" };
    for name in &format.unknown {
        tell(context, NAME, &[format!("error: Invalid {kind} format specification: {name}")]);
    }
    let order =
        Order::parse(&settings.sort).map_err(|letter| Ended::error(format!("Invalid sort specification: {letter}")))?;
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let mut table = Table { format, order, settings };
    block_on(async { Ok(list(context, &client, &mut table).await) }).map_err(Ended::from)?
}

/// Prints the table once, or again and again if the user wants that.
async fn list(context: &Context, client: &Client, table: &mut Table) -> Outcome {
    if let Some(nodes) = &table.settings.filter.nodes {
        let known = client.nodes().await.map_err(|error| unreadable("slurm_load_node", error))?;
        if let Some(name) = nodes.iter().find(|name| known.iter().all(|node| node.name.as_str() != name.as_str())) {
            return Err(Ended::error(format!("Invalid node name {name}")));
        }
    }
    loop {
        let clock = Clock::of_head(client).await.map_err(|error| unreadable(LOAD, error))?;
        let fetched = table.settings.filter.fetch(client, clock.now).await;
        let records = fetched.map_err(|error| unreadable(LOAD, error))?;
        check_known(&table.settings, &records)?;
        let text = match (table.settings.is_json, table.settings.lists_steps) {
            (true, _) => json(table, &records, clock),
            (false, true) => steps(table, client, &records, clock).await?,
            (false, false) => text(table, &records, clock),
        };
        print(context, &text);
        match table.settings.iterate_seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => return Ok(0),
        }
    }
}

/// Refuses the id of a job that is not known, if it is the only one. Several may be unknown, as in Slurm.
fn check_known(settings: &Settings, records: &[JobRecord]) -> Result<(), Ended> {
    match settings.filter.named.as_deref() {
        Some([_]) if records.is_empty() && !settings.lists_steps => {
            Err(Ended::plain(format!("{LOAD} error: Invalid job id specified")))
        }
        _ => Ok(()),
    }
}

fn text(table: &Table, records: &[JobRecord], clock: Clock) -> String {
    let Table { format, order, settings } = table;
    let mut rows = settings.filter.rows(records, clock.now);
    let mut printer = Printer::new(clock, settings.conversion);
    order.sort(&mut rows, printer.clock.now, &mut printer.accounts);
    let mut out = String::with_capacity(80 * (rows.len() + 2));
    write_header(table, &printer.clock, &mut out);
    for row in &rows {
        format.write_row(&mut printer, row, &mut out);
    }
    if settings.iterate_seconds.is_some() {
        out.push('\n');
    }
    out
}

/// The table of the steps that run. The nodes of each job report them.
async fn steps(table: &Table, client: &Client, records: &[JobRecord], clock: Clock) -> Result<String, Ended> {
    let Table { format, order, settings } = table;
    let mut rows = settings.filter.rows(records, clock.now);
    let mut printer = Printer::new(clock, settings.conversion);
    order.sort(&mut rows, printer.clock.now, &mut printer.accounts);
    let mut out = String::new();
    write_header(table, &printer.clock, &mut out);
    for row in &rows {
        for step in steps::running(client, row).await.map_err(|error| unreadable(steps::LOAD, error))? {
            if ids::names_step(settings.filter.named.as_deref(), row, Some(&step.number)) {
                printer.step = step;
                format.write_row(&mut printer, row, &mut out);
            }
        }
    }
    Ok(out)
}

fn write_header(table: &Table, clock: &Clock, out: &mut String) {
    let settings = &table.settings;
    if settings.has_header {
        if settings.has_date {
            out.push_str(&clock.date_line());
            out.push('\n');
        }
        if settings.names_cluster {
            out.push_str(&format!("CLUSTER: {CLUSTER}\n"));
        }
        table.format.write_header(out);
    }
}

fn json(table: &Table, records: &[JobRecord], clock: Clock) -> String {
    let mut rows = table.settings.filter.rows(records, clock.now);
    let mut printer = Printer::new(clock, Conversion::Exact);
    table.order.sort(&mut rows, printer.clock.now, &mut printer.accounts);
    job_json::document(&rows, printer.clock.now, &mut printer.accounts)
}
