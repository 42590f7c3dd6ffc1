//! The process that unpacks or verifies a layer: how the agent starts it, and what it does.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use hostler_image::{Applied, LayerError, LayerOrder, Limits};
use hostler_model::escaped;
use hostler_shepherd::Sandbox;

use super::{Failure, Wanted, unpacker};
use crate::provision::environment::{Ended, Runner, Step};

/// Start of the unpacking process's output if a layer is larger than it may be; how much larger follows.
pub(super) const FULL: &str = "larger by ";

/// Unpacks a layer into a directory, or only verifies it. Returns the bytes and entries that it has added.
pub(super) fn process(
    layer: &File,
    order: &LayerOrder,
    number: usize,
    root: Option<&Path>,
    (bytes, entries): (u64, u64),
    wanted: &Wanted<'_>,
    runner: &dyn Runner,
) -> Result<(u64, u64), Failure> {
    let mut argv = vec![
        wanted.program.to_owned(),
        "unpack-layer".to_owned(),
        format!("--offset={}", order.offset),
        format!("--length={}", order.length),
        format!("--diff-id={}", order.diff_id),
        format!("--max-bytes={bytes}"),
        format!("--max-entries={entries}"),
    ];
    argv.extend(order.digest.map(|digest| format!("--digest={digest}")));
    argv.extend(root.map(|root| format!("--into={}", root.display())));
    let step = Step {
        argv: argv.into_iter().map(Into::into).collect(),
        cwd: "/".into(),
        credentials: unpacker().or_else(|| wanted.own.clone()),
        sandbox: Some(Sandbox {
            settings: vec![wanted.program.to_owned()],
            writable: root.map(|root| root.display().to_string()).into_iter().collect(),
            without_folder: true,
            ..Sandbox::default()
        }),
        input: Some(Arc::new(layer.try_clone()?)),
        ..Step::default()
    };
    let mut output = Vec::new();
    let ended = runner.run(&step, &mut |bytes| {
        const MOST: usize = 4096;
        output.extend_from_slice(&bytes[..bytes.len().min(MOST - output.len().min(MOST))]);
    })?;
    let text = String::from_utf8_lossy(&output);
    let why = |why: &str| format!("cannot unpack layer {} of the image: {}", number + 1, escaped(why));
    let failed = |it: &str| Failure::Unpack(why(it));
    match ended {
        Ended::Exited(0) => {
            if let Some(missing) = text.trim().strip_prefix(FULL) {
                let missing = missing.parse().map_err(|_| failed("unexpected output"))?;
                return Err(Failure::NoRoom { why: why(&LayerError::Bytes { missing }.to_string()), missing });
            }
            let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
            let (Some(Some(bytes)), Some(Some(entries))) = (numbers.next(), numbers.next()) else {
                return Err(failed("unexpected output"));
            };
            Ok((bytes, entries))
        }
        Ended::Exited(_) => Err(failed(text.trim().trim_start_matches("error: "))),
        Ended::NotStarted(error) => {
            Err(failed(&format!("{error}; all users of the node must be able to execute {}", wanted.program)))
        }
        other => Err(failed(&format!("the process {other}"))),
    }
}

/// Unpacks a layer from standard input as `process` says, and prints what it has added.
///
/// # Errors
/// If the directory does not exist, or as [`hostler_image::layer::unpack`].
pub fn unpack_layer(order: &LayerOrder, into: Option<&Path>, limits: Limits) -> anyhow::Result<()> {
    use std::os::fd::{AsFd, OwnedFd};
    // Other processes of this user, if there are any, must not reach this one.
    nix::sys::prctl::set_dumpable(false)?;
    let blob = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let root = into.map(File::open).transpose()?.map(OwnedFd::from);
    let done = hostler_image::layer::unpack(&blob, order, root.as_ref(), limits);
    writeln!(io::stdout(), "{}", result(done)?)?;
    Ok(())
}

/// What the unpacking process prints before it exits with 0. Has no text of the layer.
pub(super) fn result(done: Result<Applied, LayerError>) -> Result<String, LayerError> {
    match done {
        Ok(Applied { bytes, entries }) => Ok(format!("{bytes} {entries}")),
        Err(LayerError::Bytes { missing }) => Ok(format!("{FULL}{missing}")),
        Err(error) => Err(error),
    }
}
