//! `sacct`: lists jobs and their steps, also those that ended long ago.

mod columns;
mod entry;
mod format;
mod json;
mod options;
pub(crate) mod seff;
mod selection;
mod settings;
pub(crate) mod sreport;

use std::collections::BTreeMap;
use std::ffi::OsString;

use hostler_client::{Client, ClientError};
use hostler_model::{JobId, Role};
use hostler_proto::api::JobRecord;
use hostler_slurm::table::write_header;

use super::clock::Clock;
use super::rows::{Accounts, Row};
use super::table::write_row;
use super::{Ended, Outcome, Refused, own_name, print, print_scripts, steps};
use crate::context::{Context, block_on};

use entry::{Entry, Report};
use selection::LiveSteps;
use settings::{Content, Settings};

pub(crate) const NAME: &str = "sacct";

/// The line between the title of a script and the script.
const RULER: &str = "--------------------------------------------------------------------------------";

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let format = || std::env::var("SACCT_FORMAT").ok();
    // Finds mistakes before the head is asked for its time.
    let _ = options::parse(args.clone(), &Clock::of_process(), format())?;
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let asked = async {
        let clock = match Clock::of_head(&client).await {
            Ok(clock) => clock,
            Err(error) => return Ok(Err(unreadable(error))),
        };
        let mut settings = match options::parse(args, &clock, format()) {
            Ok(settings) => settings,
            Err(ended) => return Ok(Err(ended)),
        };
        let records = match fetch(&client, &mut settings).await {
            Ok(records) => records,
            Err(ended) => return Ok(Err(ended)),
        };
        let mut accounts = Accounts::default();
        let rows = settings.selection.rows(&records, clock.now, &mut accounts);
        let scripts = match settings.content {
            Content::Script => scripts(&client, &records).await?,
            _ => BTreeMap::new(),
        };
        let live = match settings.content {
            Content::Table | Content::Json => live_steps(context, &client, &settings, &rows).await,
            Content::Script | Content::Environment => LiveSteps::new(),
        };
        let entries = settings.selection.entries(&rows, &live);
        Ok(Ok((text(&settings, &entries, &scripts, accounts, clock), settings.content)))
    };
    let (text, content) = block_on(asked).map_err(Ended::from)??;
    let print = if content == Content::Script { print_scripts } else { print };
    Ok(print(context, &text))
}

/// The steps of running tasks that the list shows. If the head stops answering, prints an error and returns no steps: the list of
/// jobs is still true.
async fn live_steps(context: &Context, client: &Client, settings: &Settings, rows: &[Row<'_>]) -> LiveSteps {
    let rows = rows.iter().copied().filter(|row| settings.selection.shows_launched(row));
    steps::launched_by(client, rows).await.unwrap_or_else(|error| {
        context.output.say(&format!("{} error: {}", steps::LOAD, Refused::from(error).text));
        LiveSteps::new()
    })
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
    if settings.only_own {
        // Operators see all jobs, as root does in Slurm.
        let is_user = client.me().await.map_err(unreadable)?.role == Role::User;
        settings.selection.users = if is_user { Some(vec![own_name()?]) } else { None };
    }
    settings.selection.fetch(client).await.map_err(unreadable)
}

/// The error if jobs cannot be read.
fn unreadable(error: ClientError) -> Ended {
    let refused = Refused::from(error);
    let ended = Ended::error(format!("Problem talking to the database: {}", refused.text));
    if refused.code.is_none() { ended } else { refused.lines().fold(ended, Ended::and) }
}

fn text(
    settings: &Settings,
    entries: &[Entry<'_>],
    scripts: &BTreeMap<JobId, String>,
    accounts: Accounts,
    clock: Clock,
) -> String {
    let now = clock.now;
    let cut = settings.cuts_times.then(|| (settings.selection.from, settings.selection.to.unwrap_or(now).min(now)));
    let mut report = Report { clock, accounts, conversion: settings.conversion, cut };
    match settings.content {
        Content::Table => table(settings, entries, &mut report),
        Content::Json => json::document(entries, &mut report),
        Content::Script => blocks("Batch Script for", "", entries, scripts),
        Content::Environment => {
            blocks("Environment used for", " (must be batch to display)", entries, &BTreeMap::new())
        }
    }
}

fn table(settings: &Settings, entries: &[Entry<'_>], report: &mut Report) -> String {
    let Settings { columns, style, .. } = settings;
    let mut out = String::with_capacity(100 * (entries.len() + 2));
    if settings.has_header {
        write_header(columns, style, &mut out);
    }
    for entry in entries {
        write_row(columns, style, &mut out, |field, out| field.value.append(report, entry, out));
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

#[cfg(test)]
pub(crate) mod tests {
    use hostler_model::{TaskId, WallTime};
    use hostler_slurm::size::Conversion;
    use hostler_slurm::table::Style;
    use serde_json::json;

    use super::super::rows::rows;
    use super::super::squeue::ids::parse_list;
    use super::selection::Selection;
    use super::*;

    /// A job that has run on two nodes for 70 seconds.
    pub(super) fn running_job() -> JobRecord {
        let part = |node: &str| json!({ "node": node, "state": "running", "exit_code": null, "message": null, "result": null, "usage": null });
        let task = json!({
            "index": 0, "state": "running", "attempt": 1, "node": null, "exit_code": null, "message": null,
            "started_at": 10_000, "ended_at": null, "result": null, "fetched": false, "usage": null,
            "parts": [part("n1"), part("n2")],
        });
        let record = json!({
            "id": 12, "name": "x", "user": "ada", "state": "running", "nodes": 2, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 1, "priority": 0, "requeue": false, "submitted_at": 0, "tasks": [task],
        });
        serde_json::from_value(record).expect("a record")
    }

    fn selection(named: Option<&str>) -> Selection {
        Selection { named: named.map(|list| parse_list(list).expect("ids")), ..Selection::default() }
    }

    #[test]
    fn steps_of_running_jobs_show_what_is_known_so_far() {
        let job = running_job();
        let rows = rows(&job, false);
        let step = json!({ "step": 0, "name": "hostname", "nodes": ["n1", "n2"], "tasks": 4, "cpus": 0, "started_at": 20_000 });
        let mut ended = step.clone();
        for (name, value) in [("step", json!(1)), ("ended_at", json!(50_000)), ("exit_code", json!(3))] {
            ended[name] = value;
        }
        let steps = [step, ended].map(|step| serde_json::from_value(step).expect("a step")).to_vec();
        let live = LiveSteps::from([(TaskId { job: job.id, index: 0 }, steps)]);
        let list = |selection: &Selection| {
            let mut clock = Clock::of_process();
            clock.now = WallTime(80_000);
            let accounts = Accounts::default();
            let mut report = Report { clock, accounts, conversion: Conversion::Exact, cut: None };
            let fields = "JobID,JobName,State,ExitCode,End,ElapsedRaw,AllocCPUS,NNodes,NodeList,NTasks,MaxRSS,AveCPU";
            let columns = format::choose(fields).unwrap_or_else(|name| panic!("{name}"));
            let style = Style::bars(false);
            let mut out = String::new();
            for entry in selection.entries(&rows, &live) {
                write_row(&columns, &style, &mut out, |field, out| field.value.append(&mut report, &entry, out));
            }
            out
        };
        let of_job = "12|x|RUNNING|0:0|Unknown|70|2|2|n[1-2]|||\n";
        let of_script = "12.batch|batch|RUNNING|0:0|Unknown|70|1|1|n1|1||\n";
        let of_step = "12.0|hostname|RUNNING|0:0|Unknown|60|4|2|n[1-2]|4||\n";
        let of_ended = "12.1|hostname|FAILED|3:0|1970-01-01T00:00:50|30|4|2|n[1-2]|4|0|00:00:00\n";
        assert_eq!(list(&selection(None)), [of_job, of_script, of_step, of_ended].concat());
        assert_eq!(list(&selection(Some("12.0"))), of_step);
        assert_eq!(list(&Selection { only_jobs: true, ..Selection::default() }), of_job);
    }

    #[test]
    fn steps_are_requested_only_if_the_list_shows_them() {
        let job = running_job();
        let row = rows(&job, false)[0];
        for (named, expected) in [(None, true), (Some("12"), true), (Some("12.0"), true), (Some("12.batch"), false)] {
            assert_eq!(selection(named).shows_launched(&row), expected, "{named:?}");
        }
        assert!(!Selection { only_jobs: true, ..selection(Some("12")) }.shows_launched(&row));
    }
}
