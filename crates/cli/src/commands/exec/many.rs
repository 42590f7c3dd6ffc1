//! Runs one command on several nodes at once and labels its output with the nodes' names.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Instant;

use hostler_model::{NodeName, plural};
use hostler_shepherd::merge::{Labels, Merger, Source};
use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::Output;

/// Size of a read, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The nodes for a command.
pub(super) struct Nodes {
    /// The nodes that get it.
    pub(super) present: Vec<NodeName>,
    /// The nodes that should get it and cannot, with the reason.
    pub(super) missing: Vec<(NodeName, String)>,
}

/// Runs the command on all these nodes. The exit code is that of the first node that failed.
pub(super) fn run(context: &Context, nodes: &Nodes, command: impl Fn(&NodeName) -> Command) -> Outcome {
    let Nodes { present: nodes, missing } = nodes;
    for (node, why) in missing {
        context.output.say(&format!("node {node} is left out: {why}"));
    }
    if nodes.is_empty() {
        return Err(Failure::new("no node accepts commands at the moment")
            .hint("`hostler nodes --load` shows their state")
            .exiting(exit::RUN_FAILED));
    }
    let children = nodes.iter().map(|node| start(command(node), node)).collect::<Result<Vec<_>, Failure>>()?;
    let output = &context.output;
    let codes = follow(output, nodes, children);
    Ok(summarize(output, nodes, &codes, missing.len()))
}

fn start(mut command: Command, node: &NodeName) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let own = std::process::id();
    // SAFETY: the two system calls may be used between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // The commands on the nodes end with this process, also if it is killed.
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            if nix::unistd::getppid().as_raw().cast_unsigned() == own { Ok(()) } else { Err(Errno::ESRCH.into()) }
        });
    }
    command.spawn().during(|| format!("cannot start the command for node {node}"))
}

/// Writes the labelled outputs of all commands until they end. Returns the exit codes.
fn follow(output: &Output, nodes: &[NodeName], children: Vec<Child>) -> Vec<u8> {
    let labels = Labels::Names(nodes.iter().map(ToString::to_string).collect());
    let mut mergers = [Merger::new(labels.clone()), Merger::new(labels)];
    let write = |stream: usize, text: &[u8]| match (stream, text) {
        (_, []) => {}
        (0, text) => output.job_stdout(text),
        (_, text) => output.job_stderr(text),
    };
    // One waiting piece for each reader, so that a slow terminal slows the commands down.
    let (sender, pieces) = mpsc::sync_channel::<Piece>(2 * nodes.len());
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..)
            .zip(children)
            .map(|(node, mut child)| {
                let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
                let senders = [sender.clone(), sender.clone()];
                scope.spawn(move || {
                    let [to_stdout, to_stderr] = senders;
                    std::thread::scope(|scope| {
                        scope.spawn(move || read(stderr, (node, 1), &to_stderr));
                        read(stdout, (node, 0), &to_stdout);
                    });
                    child.wait().map_or(exit::RUN_FAILED, exit::of)
                })
            })
            .collect();
        drop(sender);
        loop {
            let due = mergers.iter().filter_map(Merger::due).min();
            let piece = match due.map(|at| pieces.recv_timeout(at.saturating_duration_since(Instant::now()))) {
                None => pieces.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(piece) => piece,
            };
            let now = Instant::now();
            match piece {
                Ok((source, bytes)) => {
                    let (_, stream) = source;
                    let merger = &mut mergers[stream];
                    let text = if bytes.is_empty() { merger.finish(source) } else { merger.add(source, &bytes, now) };
                    write(stream, &text);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for (stream, merger) in mergers.iter_mut().enumerate() {
                write(stream, &merger.write_due(now));
            }
        }
        waits.into_iter().map(|wait| wait.join().unwrap_or(exit::RUN_FAILED)).collect()
    })
}

/// The position of a node and the number of its stream, and bytes of it; no bytes at the end of the stream.
type Piece = (Source, Vec<u8>);

/// Sends the bytes of one stream.
fn read(from: Option<impl Read>, of: Source, to: &SyncSender<Piece>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut piece).unwrap_or(0);
        if to.send((of, piece[..count].to_vec())).is_err() || count == 0 {
            return;
        }
    }
}

/// Prints exit codes, and returns the exit code of the first node that failed, or else an error if nodes are missing.
fn summarize(output: &Output, nodes: &[NodeName], codes: &[u8], missing: usize) -> u8 {
    let failed: Vec<_> = nodes.iter().zip(codes).filter(|(_, code)| **code != exit::OK).collect();
    for (node, code) in &failed {
        output.say(&format!("node {node}: exit code {code}"));
    }
    let all = plural(nodes.len() + missing, "node");
    output.say(&format!("{} of {all}: exit code 0", nodes.len() - failed.len()));
    let otherwise = if missing == 0 { exit::OK } else { exit::RUN_FAILED };
    failed.first().map_or(otherwise, |(_, code)| **code)
}
