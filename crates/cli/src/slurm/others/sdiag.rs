//! `sdiag`: numbers of jobs. Times of the scheduler's cycles and counts of messages are zero, since the head does not have
//! them.

use std::ffi::OsString;

use hostler_proto::api::{Info, LiveCounts};
use hostler_slurm::getopt::{Opt, Takes};
use serde_json::json;

use super::super::clock::Clock;
use super::super::json::document;
use super::super::{Ended, Outcome, Refused, VERSION, check_clusters, opt, parse, print, text};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sdiag";

const USAGE: &str = "Usage: sdiag [-airtTV] [-M clusters] [--json]\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Clusters,
    Help,
    Json,
    Nothing(&'static str),
    Reset,
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Nothing("all"), "all", b'a', Takes::Nothing),
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Help, "help", b'h', Takes::Nothing),
    opt(Key::Json, "json", 0, Takes::Attached),
    opt(Key::Reset, "reset", b'r', Takes::Nothing),
    opt(Key::Nothing("sort-by-id"), "sort-by-id", b'i', Takes::Nothing),
    opt(Key::Nothing("sort-by-time"), "sort-by-time", b't', Takes::Nothing),
    opt(Key::Nothing("sort-by-time2"), "sort-by-time2", b'T', Takes::Nothing),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
    opt(Key::Json, "yaml", 0, Takes::Attached),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    let mut is_json = false;
    for (key, value) in &given.options {
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Reset => return Ok(print(context, "Reset scheduling statistics\n")),
            Key::Clusters => check_clusters(&text(value.as_ref()))?,
            Key::Json => is_json = true,
            Key::Nothing(_) => {}
        }
    }
    let client = context.client()?;
    let info = block_on(async { Ok(client.info().await) })?.map_err(|error| {
        let refused = Refused::from(error);
        refused.lines().fold(Ended::plain(format!("slurm_get_statistics: {}", refused.text)), Ended::and)
    })?;
    let clock = Clock::of_process();
    Ok(print(context, &if is_json { as_json(&info, &clock) } else { report(&info.tasks, &clock) }))
}

/// Tasks that have their resources.
const fn running(tasks: &LiveCounts) -> u64 {
    tasks.starting + tasks.running + tasks.completing
}

fn as_json(info: &Info, clock: &Clock) -> String {
    let statistics = json!({
        "req_time": clock.now.0 / 1000,
        "jobs_pending": info.tasks.pending,
        "jobs_running": running(&info.tasks),
    });
    document("statistics", [statistics])
}

/// The report in Slurm's layout.
fn report(tasks: &LiveCounts, clock: &Clock) -> String {
    let stars = "*".repeat(55);
    let now = format!("{} ({})", clock.date_line(), clock.now.0 / 1000);
    let (pending, running) = (tasks.pending, running(tasks));
    format!(
        "{stars}\n\
         sdiag output at {now}\n\
         Data since      {now}\n\
         {stars}\n\
         Server thread count:  1\n\
         Agent queue size:     0\n\
         Agent count:          0\n\
         Agent thread count:   0\n\
         DBD Agent queue size: 0\n\
         \n\
         Jobs submitted: 0\n\
         Jobs started:   0\n\
         Jobs completed: 0\n\
         Jobs canceled:  0\n\
         Jobs failed:    0\n\
         \n\
         Job states ts:  {now}\n\
         Jobs pending:   {pending}\n\
         Jobs running:   {running}\n\
         \n\
         Main schedule statistics (microseconds):\n\
         \tLast cycle:   0\n\
         \tMax cycle:    0\n\
         \tTotal cycles: 0\n\
         \tLast queue length: {pending}\n\
         \n\
         Backfilling stats\n\
         \tTotal backfilled jobs (since last slurm start): 0\n\
         \tTotal backfilled jobs (since last stats cycle start): 0\n\
         \tTotal backfilled heterogeneous job components: 0\n\
         \tTotal cycles: 0\n\
         \tLast cycle when: N/A\n\
         \tLast cycle: 0\n\
         \tMax cycle:  0\n\
         \tLast depth cycle: 0\n\
         \tLast depth cycle (try sched): 0\n\
         \tLast queue length: 0\n\
         \tLast table size: 0\n\
         \n\
         Latency for 1000 calls to gettimeofday(): 0 microseconds\n\
         \n\
         Remote Procedure Call statistics by message type\n\
         \n\
         Remote Procedure Call statistics by user\n\
         \n\
         Pending RPC statistics\n\
         \tNo pending RPCs\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_counts_jobs() {
        let tasks = LiveCounts { pending: 3, starting: 1, running: 2, completing: 0 };
        let text = report(&tasks, &Clock::of_process());
        assert!(text.contains("\nJobs pending:   3\nJobs running:   3\n"), "{text}");
        assert!(text.contains("\n\tLast queue length: 3\n"), "{text}");
    }
}
