//! `seff`: how much of its CPUs and memory a job used.

use std::ffi::OsString;
use std::fmt::Write;

use hostler_slurm::getopt::Takes::Nothing;
use hostler_slurm::state::State;
use hostler_slurm::time::long;

use super::super::clock::Clock;
use super::super::options::{self, Setter, nothing, prints, version};
use super::super::rows::Accounts;
use super::super::squeue::ids::parse_list;
use super::super::{CLUSTER, Ended, Outcome, print};
use super::entry::Entry;
use super::selection::{LiveSteps, Selection};
use super::unreadable;
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "seff";

const USAGE: &str = "Usage: seff [Options] <Jobid>\n       Options:\n       -h    Help menu\n       -v    Version\n       \
                     -d    accepted, changes nothing\n";

const OPTIONS: &[Setter<()>] =
    &[nothing("debug", "d", Nothing), prints("help", "h", || USAGE.to_owned()), prints("version", "v", version)];

/// Exit code if no job has the id, and if the id names several tasks that wait.
const NOT_FOUND: u8 = 2;
const SEVERAL: u8 = 3;

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let operands = options::read(NAME, OPTIONS, args, &mut ())?;
    let [id] = operands.as_slice() else { return Err(Ended { code: 1, ..Ended::plain(USAGE.trim_end()) }) };
    let not_found = || Ended { code: NOT_FOUND, ..Ended::plain("Job not found.") };
    let mut named = parse_list(&id.to_string_lossy()).map_err(|_| not_found())?;
    named.iter_mut().for_each(|named| named.step = None);
    let selection = Selection { named: Some(named), ..Selection::default() };
    let client = context.client().map_err(|failure| Ended::error(failure.summary()))?;
    let records = block_on(async { Ok(selection.fetch(&client).await.map_err(unreadable)) })??;
    let clock = block_on(async { Ok(Clock::of_head(&client).await.map_err(unreadable)) })??;
    let mut accounts = Accounts::default();
    let rows = selection.rows(&records, clock.now, &mut accounts);
    let row = rows.first().ok_or_else(not_found)?;
    if row.index().is_none() {
        let text = format!("Badly formatted array jobid {} with task_id = -2", row.job.id);
        return Err(Ended { code: SEVERAL, ..Ended::plain(text) });
    }
    let live = LiveSteps::new();
    let entries = selection.entries(&[*row], &live);
    Ok(print(context, &describe(&entries, &clock, &mut accounts)))
}

/// The text about a job: the first entry is the job, and the others are its steps.
fn describe(entries: &[Entry<'_>], clock: &Clock, accounts: &mut Accounts) -> String {
    let [job, steps @ ..] = entries else { return String::new() };
    let row = &job.row;
    let user = &row.job.user;
    let mut text = format!("Job ID: {}\n", row.raw_id());
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("text grows");
    if row.job.array.is_some() {
        line(format_args!("Array Job ID: {}", row.id()));
    }
    line(format_args!("Cluster: {CLUSTER}"));
    line(format_args!("User/Group: {user}/{}", accounts.group(user)));
    let state = job.state();
    match state {
        State::Pending | State::Running => line(format_args!("State: {}", state.name())),
        _ => line(format_args!("State: {} (exit code {})", state.name(), job.exit().0)),
    }
    let (cpus, nodes) = (job.cpus().max(1), row.nodes().len().max(1) as u64);
    if cpus == 1 {
        line(format_args!("Cores: 1"));
    } else {
        line(format_args!("Nodes: {nodes}"));
        line(format_args!("Cores per node: {}", cpus / nodes));
    }
    if state == State::Pending {
        line(format_args!("Efficiency not available for jobs in the PENDING state."));
        return text;
    }
    let usages = || steps.iter().filter_map(Entry::usage);
    let used_ms: u64 = usages().map(|usage| usage.user_ms + usage.system_ms).sum();
    let (used, wall) = ((used_ms + 500) / 1000, row.elapsed(clock.now));
    let memory = usages().map(|usage| usage.max_rss_bytes).max().unwrap_or(0) >> 10;
    let allocated = if job.is_allocated() { row.memory_mib() << 10 } else { 0 };
    let (share, unit) = if row.memory_mib_per_cpu().is_some() { (cpus, "core") } else { (nodes, "node") };
    line(format_args!("CPU Utilized: {}", long(used)));
    line(format_args!("CPU Efficiency: {:.2}% of {} core-walltime", percent(used, wall * cpus), long(wall * cpus)));
    line(format_args!("Job Wall-clock time: {}", long(wall)));
    line(format_args!("Memory Utilized: {}", size(memory)));
    line(format_args!(
        "Memory Efficiency: {:.2}% of {} ({}/{unit})",
        percent(memory, allocated),
        size(allocated),
        size(allocated / share)
    ));
    if state == State::Running {
        line(format_args!(
            "WARNING: Efficiency statistics can only be obtained after the job has ended as seff tool is based on the accounting \
             database data."
        ));
    }
    text
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// Writes kibibytes as `1.50 GB`.
fn size(kibibytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if kibibytes == 0 {
        return "0.00 MB".to_owned();
    }
    let unit = (kibibytes.ilog2() / 10) as usize;
    format!("{:.2} {}B", kibibytes as f64 / 1024_f64.powi(unit as i32), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_slurms_form() {
        for (kibibytes, text) in [
            (0, "0.00 MB"),
            (1, "1.00 KB"),
            (1023, "1023.00 KB"),
            (1536, "1.50 MB"),
            (1 << 20, "1.00 GB"),
            (u64::MAX, "16.00 EB"),
        ] {
            let expected = if kibibytes == u64::MAX { size(kibibytes >> 10) } else { size(kibibytes) };
            assert_eq!(expected, text, "{kibibytes}");
        }
    }
}
