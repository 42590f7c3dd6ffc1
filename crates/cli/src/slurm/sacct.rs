//! `sacct`: lists jobs and their scripts, also those that ended long ago.

mod columns;
mod entry;
mod format;
mod json;
mod options;
mod selection;
mod settings;

use std::ffi::OsString;

use hostler_client::{Client, ClientError};
use hostler_model::Role;
use hostler_proto::api::JobRecord;

use super::clock::Clock;
use super::rows::Accounts;
use super::{Ended, Outcome, Refused, VERSION, own_name, print};
use crate::context::{Context, block_on};

use entry::{Entry, Report};
use settings::{Content, Request, Settings};

pub(crate) const NAME: &str = "sacct";

/// The line between the title of a script and the script.
const RULER: &str = "--------------------------------------------------------------------------------";

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let clock = Clock::of_process();
    let mut settings = match settings::parse(args, &clock, std::env::var("SACCT_FORMAT").ok())? {
        Request::Help(text) => return Ok(print(context, &text)),
        Request::Version => return Ok(print(context, &format!("{VERSION}\n"))),
        Request::List(settings) => settings,
    };
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let records = block_on(async { Ok(fetch(&client, &mut settings).await) }).map_err(Ended::from)??;
    Ok(print(context, &text(&settings, &records, clock)))
}

async fn fetch(client: &Client, settings: &mut Settings) -> Result<Vec<JobRecord>, Ended> {
    let refuse = |error: ClientError| {
        let refused = Refused::from(error);
        let ended = Ended::error(format!("Problem talking to the database: {}", refused.text));
        if refused.code.is_none() { ended } else { refused.lines().fold(ended, Ended::and) }
    };
    if settings.only_own {
        // Operators see all jobs, as root does in Slurm.
        let is_user = client.me().await.map_err(refuse)?.role == Role::User;
        settings.selection.users = if is_user { Some(vec![own_name()?]) } else { None };
    }
    settings.selection.fetch(client).await.map_err(refuse)
}

fn text(settings: &Settings, records: &[JobRecord], clock: Clock) -> String {
    let now = clock.now;
    let cut = settings.cuts_times.then(|| (settings.selection.from, settings.selection.to.unwrap_or(now).min(now)));
    let mut report = Report { clock, accounts: Accounts::default(), conversion: settings.conversion, cut };
    let entries = settings.selection.entries(records, now, &mut report.accounts);
    match settings.content {
        Content::Table => table(settings, &entries, &mut report),
        Content::Json => json::document(&entries, &mut report),
        Content::Script => untold("Batch Script for", "", &entries),
        Content::Environment => untold("Environment used for", " (must be batch to display)", &entries),
    }
}

fn table(settings: &Settings, entries: &[Entry<'_>], report: &mut Report) -> String {
    let Settings { columns, style, .. } = settings;
    let mut out = String::with_capacity(100 * (entries.len() + 2));
    if settings.has_header {
        format::write_header(columns, style, &mut out);
    }
    for entry in entries {
        format::write_entry(columns, style, report, entry, &mut out);
    }
    out
}

/// What Slurm prints if it does not keep the scripts and environments of jobs; the head gives them to nodes only.
fn untold(before: &str, after: &str, entries: &[Entry<'_>]) -> String {
    let jobs = entries.iter().filter(|entry| !entry.is_step);
    jobs.map(|entry| format!("{before} {}{after}\n{RULER}\nNONE\n", entry.row.raw_id())).collect()
}
