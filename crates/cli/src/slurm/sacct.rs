//! `sacct`: lists jobs and their scripts, also those that ended long ago.

mod columns;
mod entry;
mod format;
mod json;
mod options;
mod selection;
mod settings;

use std::collections::BTreeMap;
use std::ffi::OsString;

use hostler_client::{Client, ClientError};
use hostler_model::{JobId, Role};
use hostler_proto::api::JobRecord;

use super::clock::Clock;
use super::rows::Accounts;
use super::{Ended, Outcome, Refused, VERSION, own_name, print, print_scripts};
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
    let asked = async {
        let records = fetch(&client, &mut settings).await;
        let scripts = match (&records, settings.content) {
            (Ok(records), Content::Script) => scripts(&client, records).await?,
            _ => BTreeMap::new(),
        };
        Ok((records, scripts))
    };
    let (records, scripts) = block_on(asked).map_err(Ended::from)?;
    let print = if settings.content == Content::Script { print_scripts } else { print };
    Ok(print(context, &text(&settings, &records?, &scripts, clock)))
}

/// The scripts of jobs. Leaves out those that the user may not read or that the head has deleted.
async fn scripts(client: &Client, records: &[JobRecord]) -> Result<BTreeMap<JobId, String>, ClientError> {
    let mut all = BTreeMap::new();
    for record in records.iter().filter(|record| record.script) {
        match client.script(record.id).await {
            Ok(script) => drop(all.insert(record.id, script)),
            Err(error) if matches!(error.code(), Some("no_script" | "not_yours" | "no_such_job")) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
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

fn text(settings: &Settings, records: &[JobRecord], scripts: &BTreeMap<JobId, String>, clock: Clock) -> String {
    let now = clock.now;
    let cut = settings.cuts_times.then(|| (settings.selection.from, settings.selection.to.unwrap_or(now).min(now)));
    let mut report = Report { clock, accounts: Accounts::default(), conversion: settings.conversion, cut };
    let entries = settings.selection.entries(records, now, &mut report.accounts);
    match settings.content {
        Content::Table => table(settings, &entries, &mut report),
        Content::Json => json::document(&entries, &mut report),
        Content::Script => blocks("Batch Script for", "", &entries, scripts),
        Content::Environment => {
            blocks("Environment used for", " (must be batch to display)", &entries, &BTreeMap::new())
        }
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

/// A text of each job; Slurm's word if there is none. The head gives the environments of jobs to their nodes only.
fn blocks(before: &str, after: &str, entries: &[Entry<'_>], texts: &BTreeMap<JobId, String>) -> String {
    let block = |entry: &Entry<'_>| {
        let text = texts.get(&entry.row.job.id).map_or("NONE\n", String::as_str);
        format!("{before} {}{after}\n{RULER}\n{text}\n", entry.row.raw_id())
    };
    entries.iter().filter(|entry| !entry.is_step).map(block).collect()
}
