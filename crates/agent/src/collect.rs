//! What a run leaves behind, as a result on the head: the files it created or changed, and its output.
//!
//! The files are in the hands of the job's user, who may put anything in their place at any time. So they are found and read with
//! that user's rights, beneath the work directory, and what is sent is what was hashed. Outputs lie in the agent's own directory.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use hostler_client::Client;
use hostler_core::agent::RunLaunch;
use hostler_model::Work;
use hostler_proto::link::{Output, RunResult};
use hostler_proto::manifest::{Content, Manifest, ResultManifest, VERSION};
use hostler_snapshot::{Baseline, ChangesOptions, Sources, changes};
use serde_bytes::ByteBuf;

use crate::account::{Ids, act_as};
use crate::directory::RunDirectory;
use crate::transfer;

/// A result up to this size, in bytes, travels with the report of the run's end.
const INLINE_BYTES: u64 = 32 << 10;

/// How many sentences about what could not be captured are shown with the job; the manifest has them all.
const PROBLEMS_SHOWN: usize = 3;

/// Captures the result of a run that has ended. Blocks.
///
/// # Errors
/// When something cannot be read that the run is known to have left.
pub(crate) fn capture(launch: &RunLaunch, directory: &RunDirectory) -> anyhow::Result<Captured> {
    let mut owner = None;
    let (mut sources, tree, removed, mut problems) = match &launch.spec.work {
        Work::Project { .. } if directory.baseline().exists() => {
            let manifest: Manifest = hostler_proto::decode(&fs::read(directory.manifest())?)?;
            let baseline = Baseline::load(&directory.baseline())?;
            let work = directory.work();
            // It lies in the agent's own directory, so what it says of its owner is true.
            owner = Ids::of_directory(&work).or_else(unless_gone).context("its work directory cannot be looked at")?;
            let compare = || changes(&work, &manifest, &baseline, &ChangesOptions::default());
            let found = act_as(owner.as_ref(), compare)?;
            (found.sources, found.tree, found.removed, found.problems)
        }
        // A folder that was never laid out, or a command: only output comes home.
        Work::Project { .. } | Work::Command { .. } => {
            (Sources::default(), Manifest { version: VERSION, ..Manifest::default() }, Vec::new(), Vec::new())
        }
    };
    let mut output = |output: Output| {
        content(&mut sources, &directory.output(output)).unwrap_or_else(|error| {
            problems.push(format!("its {} could not be read: {error}", output.as_str()));
            Content::default()
        })
    };
    let (stdout, stderr, setup) = (output(Output::Stdout), output(Output::Stderr), output(Output::Setup));
    let message = summary(&problems);
    let manifest = ResultManifest {
        version: VERSION,
        run: launch.run,
        tree,
        removed: removed.into_iter().map(ByteBuf::from).collect(),
        stdout,
        stderr,
        setup,
        problems,
    };
    let digest = sources.add_blob(hostler_proto::encode(&manifest));
    Ok(Captured { sources, digest, message, owner })
}

/// A captured result, still on the node.
pub(crate) struct Captured {
    sources: Sources,
    digest: hostler_model::Digest,
    message: Option<String>,
    /// With whose rights its files are read again; `None` is the agent's own user.
    owner: Option<Ids>,
}

/// Brings a captured result to the head, or packs it to travel with the report when it is small.
///
/// # Errors
/// When its files have changed since they were captured, or the head refuses them.
pub(crate) async fn deliver(captured: Captured, head: &Client) -> anyhow::Result<(RunResult, Option<String>)> {
    let Captured { sources, digest, message, owner } = captured;
    let size: u64 = sources.digests().filter_map(|chunk| sources.length(&chunk)).sum();
    let inline = if size <= INLINE_BYTES {
        let read = || sources.digests().map(|chunk| sources.read_chunk(&chunk).map(ByteBuf::from)).collect();
        let blobs: Result<Vec<ByteBuf>, _> = act_as(owner.as_ref(), read)?;
        blobs.context("its files changed after it had ended")?
    } else {
        transfer::upload(head, &sources, digest, owner.as_ref()).await?;
        Vec::new()
    };
    Ok((RunResult { manifest: digest, inline }, message))
}

/// The content of an output; none when the file was never made.
fn content(sources: &mut Sources, path: &Path) -> anyhow::Result<Content> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.len() == 0 => Ok(Content::default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        Ok(_) => Ok(sources.add_file(path)?),
        Err(error) => Err(error.into()),
    }
}

/// A job of the agent's own user may have removed the directory: then there is nothing to read, with any rights.
fn unless_gone(error: io::Error) -> io::Result<Option<Ids>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
}

/// The first problems as one text.
fn summary(problems: &[String]) -> Option<String> {
    let mut text = problems.iter().take(PROBLEMS_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if problems.len() > PROBLEMS_SHOWN {
        text.push_str(&format!("; and {} more", problems.len() - PROBLEMS_SHOWN));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Needs root.
    #[test]
    fn a_directory_that_is_swapped_for_a_link_meanwhile_yields_nothing_of_others() {
        const SECRET: &[u8] = b"for root's eyes only";
        let place = tempfile::tempdir().expect("a temporary directory");
        let (work, elsewhere) = (place.path().join("work"), place.path().join("elsewhere"));
        for directory in [place.path(), &work, &work.join("d"), &elsewhere] {
            fs::create_dir_all(directory).expect("ours");
            fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("ours");
        }
        fs::write(elsewhere.join("x"), SECRET).expect("ours");
        fs::set_permissions(elsewhere.join("x"), Permissions::from_mode(0o600)).expect("ours");
        fs::write(work.join("d/x"), "mine").expect("ours");
        for path in [&work, &work.join("d"), &work.join("d/x")] {
            chown(path, Some(65534), Some(65533)).expect("root may");
        }
        let owner = Ids::of_directory(&work).expect("there").expect("another user's");
        assert_eq!((owner.uid, owner.gid), (65534, 65533));

        let is_over = AtomicBool::new(false);
        let swap = || -> io::Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                fs::rename(work.join("d"), work.join("other"))?;
                symlink(&elsewhere, work.join("d"))?;
                fs::remove_file(work.join("d"))?;
                fs::rename(work.join("other"), work.join("d"))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let swapping = scope.spawn(|| owner.act(swap));
            let has_secret = (0..300).any(|_| {
                let (manifest, baseline) = (Manifest::default(), Baseline::default());
                let look = || {
                    let found = changes(&work, &manifest, &baseline, &ChangesOptions { threads: 1 }).sources;
                    found.digests().filter_map(|chunk| found.read_chunk(&chunk).ok()).collect::<Vec<_>>()
                };
                let contents = owner.act(look).expect("needs root");
                contents.iter().any(|content| content == SECRET)
            });
            is_over.store(true, Ordering::Relaxed);
            swapping.join().expect("no panic").expect("needs root").expect("it is theirs");
            assert!(!has_secret);
        });
    }
}
