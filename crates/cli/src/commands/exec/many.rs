//! Runs one command on several nodes at once and labels its output with the nodes' names.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use hostler_model::{NodeName, plural};

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::Output;
use crate::output::labelled::Labelled;

/// Size of a read, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Runs the command on all these nodes. The exit code is that of the first node that failed.
pub(super) fn run(context: &Context, nodes: &[NodeName], command: impl Fn(&NodeName) -> Command) -> Outcome {
    if nodes.is_empty() {
        return Err(Failure::new("no node accepts commands at the moment")
            .hint("`hostler nodes --load` shows their state")
            .exiting(exit::RUN_FAILED));
    }
    let children =
        nodes.iter().map(|node| Ok((node, start(command(node), node)?))).collect::<Result<Vec<_>, Failure>>()?;
    let output = &context.output;
    let codes: Vec<u8> = std::thread::scope(|scope| {
        let readers: Vec<_> = children
            .into_iter()
            .map(|(node, mut child)| {
                let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
                scope.spawn(move || {
                    std::thread::scope(|scope| {
                        scope.spawn(|| label(stderr, node, |lines| output.job_stderr(lines)));
                        label(stdout, node, |lines| output.job_stdout(lines));
                    });
                    child.wait().map_or(exit::RUN_FAILED, exit::of)
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(exit::RUN_FAILED)).collect()
    });
    Ok(summarize(output, nodes, &codes))
}

fn start(mut command: Command, node: &NodeName) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().during(|| format!("cannot start the command for node {node}"))
}

/// Copies lines, each labelled with the node's name.
fn label(from: Option<impl Read>, node: &NodeName, write: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut lines = Labelled::new(node.as_str(), write);
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count) = from.read(&mut piece)
        && count > 0
    {
        lines.add(&piece[..count]);
    }
}

/// Prints exit codes, and returns the exit code of the first node that failed.
fn summarize(output: &Output, nodes: &[NodeName], codes: &[u8]) -> u8 {
    let failed: Vec<_> = nodes.iter().zip(codes).filter(|(_, code)| **code != exit::OK).collect();
    for (node, code) in &failed {
        output.say(&format!("node {node}: exit code {code}"));
    }
    output.say(&format!("{} of {}: exit code 0", nodes.len() - failed.len(), plural(nodes.len(), "node")));
    failed.first().map_or(exit::OK, |(_, code)| **code)
}
