//! The caller's side of a step with one process.

use std::env;
use std::ffi::OsString;
use std::io;

use tokio::sync::broadcast;

use super::allocation::Allocation;
use super::input::standard_input;
use super::link::{Control, Link, Process, Progress, StepError, Surroundings};
use crate::Stream;

/// The command of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<OsString>,
    /// Whether the step reads this process's standard input.
    pub has_input: bool,
}

/// Runs a step on the node with rank `rank`, in the current directory and environment. Forwards the output and the
/// controls, and returns the exit code.
///
/// Dropping the future ends the step.
///
/// # Errors
/// Fails when the step cannot be started, or its outcome is unknown.
///
/// # Panics
/// Panics when the allocation has no such rank.
pub async fn launch(
    allocation: &Allocation,
    rank: u32,
    step: &Step,
    controls: broadcast::Receiver<Control>,
    mut output: impl FnMut(Stream, &[u8]) -> io::Result<()>,
) -> Result<u8, StepError> {
    let node = allocation.nodes[rank as usize].name.to_string();
    let directory = env::current_dir().map_err(|source| StepError::Broken { node, source })?;
    let surroundings = Surroundings::new(allocation, env::vars_os(), directory);
    let process = Process { argv: step.argv.clone(), ..Process::default() };
    let input = if step.has_input { standard_input(1).pop() } else { None };
    let link = Link::open(allocation, rank).await?;
    let tell = |progress: Progress<'_>| match progress {
        Progress::Started | Progress::Message(_) => Ok(()),
        Progress::Output(stream, bytes) => output(stream, bytes),
    };
    let report = link.run(&process, &surroundings, input, None, controls, tell).await?;
    Ok(u8::try_from(report.code).unwrap_or(u8::MAX))
}
