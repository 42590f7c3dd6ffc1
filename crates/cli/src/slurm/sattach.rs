//! `sattach`: shows the output of a running step.

use std::cell::RefCell;
use std::ffi::OsString;
use std::time::Instant;

use futures_util::future::join_all;
use hostler_client::{Client, RecordFilter};
use hostler_model::{NodeName, TaskId};
use hostler_proto::link::StepRecord;
use hostler_remote::Stream;
use hostler_remote::step::StepError;
use hostler_shepherd::merge::{Labels, Merger};
use hostler_slurm::getopt::Takes::{Nothing, Value};
use hostler_slurm::hostlist::compress;
use hostler_slurm::state::State;

use super::options::{self, Setter, checked, flag, nothing, prints, version};
use super::squeue::ids::{named_rows, parse_list};
use super::steps::{BATCH, LOAD};
use super::{Ended, Outcome, print, unreadable};
use crate::context::{Context, block_on};
use crate::steps;
use crate::steps::outside::Outside;

pub(crate) const NAME: &str = "sattach";

const USAGE: &str = "Usage: sattach [-lQuvV] [--layout] [--output-filter TASK] [--error-filter TASK] JOBID.STEPID\n";

/// The options as they were given.
#[derive(Default)]
struct Given {
    is_labelled: bool,
    layout: bool,
    /// The only task whose standard output and standard error are shown.
    only: [Option<u32>; 2],
}

const OPTIONS: &[Setter<Given>] = &[
    checked("error-filter", "", Value, |given, task| only(&mut given.only[1], task)),
    prints("help usage", "hu", || USAGE.to_owned()),
    checked("input-filter", "", Value, |_, task| match task {
        Some("none" | "-") => Ok(()),
        _ => Err(no_input("--input-filter")),
    }),
    flag("label", "l", |given| given.is_labelled = true),
    flag("layout", "", |given| given.layout = true),
    checked("output-filter", "", Value, |given, task| only(&mut given.only[0], task)),
    checked("pty", "", Nothing, |_, _| Err(no_input("--pty"))),
    nothing("quiet", "Q", Nothing),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
];

/// The refusal of an option for input: only the program that started a step sends it.
fn no_input(option: &str) -> Ended {
    Ended::error(format!("{option} is not supported: sattach shows output and sends no input"))
        .and("hint: srun --jobid=JOBID --overlap --pty bash starts a shell in the job")
}

fn only(task: &mut Option<u32>, text: Option<&str>) -> Result<(), Ended> {
    let text = text.unwrap_or_default();
    *task = match text {
        "all" | "-" => None,
        number => Some(number.parse().map_err(|_| Ended::error(format!("Invalid task number: {text}")))?),
    };
    Ok(())
}

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let [id] = operands.as_slice() else {
        return Err(Ended::error("One step is needed, e.g. 12.0").and_plain(USAGE.trim_end()));
    };
    block_on(async { Ok(attach(context, &given, &id.to_string_lossy()).await) })?
}

async fn attach(context: &Context, given: &Given, id: &str) -> Outcome {
    let invalid = || Ended::error(format!("Invalid job id or step id: {id}"));
    let named = parse_list(id).map_err(|_| invalid())?;
    let [one] = named.as_slice() else { return Err(invalid()) };
    let client = context.watching_client()?;
    let step = one.step.as_deref().ok_or_else(invalid)?;
    let filter = RecordFilter { jobs: vec![one.job], live: true, ..RecordFilter::default() };
    let records = client.records(&filter).await.map_err(|error| unreadable(LOAD, error))?;
    let mut all = records.iter().flat_map(|job| named_rows(job, Some(&named), false));
    let ended = || Ended::error(format!("step {id} does not run"));
    let row = all.find(|row| row.state() == State::Running).ok_or_else(ended)?;
    let task = TaskId { job: row.job.id, index: row.index().ok_or_else(invalid)? };
    if step == BATCH {
        let [_, output, error] = row.files();
        let files = if output == error { output } else { format!("{output} {error}") };
        return Err(
            Ended::error("the script writes to files, and not to sattach").and(format!("hint: tail -f {files}"))
        );
    }
    let steps = client.steps(task).await.map_err(|error| unreadable(LOAD, error))?;
    let is_it = |it: &StepRecord| it.ended_at.is_none() && it.step.to_string() == step;
    let step = steps.into_iter().find(is_it).ok_or_else(ended)?;
    if given.layout {
        let nodes: Vec<&str> = step.nodes.iter().map(NodeName::as_str).collect();
        let text = format!("Job step layout:\n\t{} tasks, {} nodes ({})\n", step.tasks, nodes.len(), compress(&nodes));
        return Ok(print(context, &text));
    }
    watch(context, given, client, task, &row.nodes(), &step).await
}

/// Shows the output of a step until it ends, and returns its exit code. `nodes`: those of the job.
async fn watch(
    context: &Context,
    given: &Given,
    client: Client,
    task: TaskId,
    nodes: &[&str],
    step: &StepRecord,
) -> Outcome {
    let has = |node: &str| step.nodes.iter().any(|one| one.as_str() == node);
    let ranks = (0..).zip(nodes).filter(|(_, node)| has(node)).map(|(rank, _)| rank);
    let allocation = Outside::allocation(nodes)?;
    let links = Outside { client, task }.connect(&allocation, ranks, None).await;
    let links = links.map_err(|error| unreadable(LOAD, error))?;
    let width = step.tasks.saturating_sub(1).to_string().len();
    let mergers = [(); 2].map(|()| RefCell::new(Merger::new(Labels::Numbers { width })));
    let write = |is_error: bool, bytes: &[u8]| {
        let written = context.output.job_output(!is_error, bytes);
        written.map_err(|_| std::io::Error::other("the output of sattach is lost"))
    };
    let tell = |rank: u32, stream: Stream, bytes: &[u8]| {
        let is_error = stream == Stream::STDERR;
        if given.only[usize::from(is_error)].is_some_and(|only| only != rank) {
            return Ok(());
        }
        match given.is_labelled {
            true => write(
                is_error,
                &mergers[usize::from(is_error)].borrow_mut().add((rank as usize, 0), bytes, Instant::now()),
            ),
            false => write(is_error, bytes),
        }
    };
    let ends = join_all(links.values().map(|link| link.watch(step.step, tell))).await;
    for (is_error, merger) in [false, true].into_iter().zip(mergers) {
        let mut merger = merger.into_inner();
        for rank in 0..step.tasks as usize {
            // The step has ended, so a failed write of its last output is ignored.
            let _ = write(is_error, &merger.finish((rank, 0)));
        }
    }
    let mut code = 0;
    for (rank, end) in links.keys().zip(ends) {
        match end {
            Ok(of_step) if *rank == 0 => code = u8::try_from(of_step).unwrap_or(u8::MAX),
            Ok(_) => {}
            // On this node, all tasks of the step had ended.
            Err(StepError::Refused { .. }) if *rank > 0 => {}
            Err(error) => return Err(Ended::error(steps::failure(&error).summary())),
        }
    }
    Ok(code)
}
