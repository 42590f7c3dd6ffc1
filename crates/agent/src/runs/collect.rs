//! Results: captures the files that a run created or changed, and its output, and delivers them to the head.
//!
//! The files belong to the job's user, who can replace them at any time. They are therefore found and read with that
//! user's rights, below the working directory, and the agent sends exactly the bytes that it hashed. The outputs are in
//! the agent's own directory.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostler_core::agent::{RunLaunch, Uncollected};
use hostler_model::{Digest, Work, format_bytes};
use hostler_proto::link::{Output, RunResult};
use hostler_proto::manifest::{Chunk, Content, Manifest, ResultManifest, VERSION};
use hostler_snapshot::bounds::MOST_BYTES;
use hostler_snapshot::wire::MAX_BLOB_BYTES;
use hostler_snapshot::{Baseline, Changes, ChangesOptions, SourceError, Sources, TooMuch, changes};
use serde_bytes::ByteBuf;

use crate::account::Ids;
use crate::provision::transfer::{Transfer, blocking};
use crate::rights::act_as;
use crate::runs::directory::RunDirectory;
use crate::runs::output;

/// Maximum size in bytes of a result inside the final report of a run. The agent uploads larger results.
const INLINE_BYTES: u64 = 32 << 10;

/// Maximum number of capture problems shown with the job; the manifest lists more.
const PROBLEMS_SHOWN: usize = 3;

/// Maximum number of capture problems in the manifest.
const PROBLEMS_KEPT: usize = 1000;

/// Maximum number of attempts to collect a result whose files change between capture and upload.
const ATTEMPTS: u32 = 5;

/// Pause before a result is captured again.
const PAUSE: Duration = Duration::from_millis(100);

/// Captures the result of an ended run and delivers it to the head. Processes that outlive the run may replace files
/// before they are uploaded; the result is then captured again.
///
/// # Errors
/// If files cannot be read or change at each attempt, or the head refuses the result.
pub(crate) async fn collect(
    launch: &Arc<RunLaunch>,
    directory: &RunDirectory,
    transfer: &Transfer,
) -> Result<(RunResult, Option<String>), Uncollected> {
    let mut attempt = 1;
    loop {
        let (launch, directory) = (Arc::clone(launch), directory.clone());
        // Blocking work: a command's output can be long.
        let delivered = match blocking(move || capture(&launch, &directory)).await {
            Ok(captured) => captured.deliver(transfer).await,
            Err(error) => Err(error),
        };
        match delivered {
            Ok(delivered) => return delivered,
            Err(error) if attempt < ATTEMPTS && is_about_changed_file(&error) => {
                tracing::debug!(%error, "capturing a result again");
                tokio::time::sleep(PAUSE).await;
                attempt += 1;
            }
            Err(error) => return Err(lost(&error)),
        }
    }
}

fn lost(error: &anyhow::Error) -> Uncollected {
    Uncollected { reason: format!("{error:#}"), rest: None }
}

/// Returns whether a file changed between capture and upload.
fn is_about_changed_file(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(SourceError::Changed { .. })))
}

/// Captures the result of an ended run. Blocks.
///
/// # Errors
/// If files of the run cannot be read, or change meanwhile.
fn capture(launch: &RunLaunch, directory: &RunDirectory) -> anyhow::Result<Captured> {
    let mut owner = None;
    let found = match &launch.spec().work {
        Work::Project { .. } if directory.baseline().exists() => {
            let manifest: Manifest = hostler_proto::decode(&fs::read(directory.manifest())?)?;
            let baseline = Baseline::load(&directory.baseline());
            let work = directory.work();
            // Only the agent can change the parent directory, so the owner is reliable.
            owner =
                Ids::of_directory(&work).or_else(none_if_missing).context("cannot read the run's working directory")?;
            let compare = || changes(&work, &manifest, &baseline, &ChangesOptions::default());
            act_as(owner.as_ref(), compare)?
        }
        // A folder that was never staged, or a command: only the output is collected.
        Work::Project { .. } | Work::Command { .. } => Ok(no_changes()),
    };
    let whole = found.and_then(|found| {
        let incomplete = incomplete(found.missed);
        Ok((pack(launch, directory, found)?, incomplete))
    });
    // Send the output in any case; it shows what the run did.
    let (packed, incomplete) = match whole {
        Ok(whole) => whole,
        Err(what) => {
            let reason = format!("the job's folder is too large: {what}; only the output was collected");
            (pack(launch, directory, no_changes())?, Some(reason))
        }
    };
    let Packed { sources, digest, message } = packed;
    let size: u64 = sources.digests().filter_map(|chunk| sources.length(&chunk)).sum();
    let read = || sources.digests().map(|chunk| sources.read_chunk(&chunk).map(ByteBuf::from)).collect();
    let inline: Option<Result<_, SourceError>> =
        (size <= INLINE_BYTES).then(|| act_as(owner.as_ref(), read)).transpose()?;
    let inline = inline.transpose().context("the job's files changed after its end")?;
    Ok(Captured { sources: Arc::new(sources), digest, inline, message, incomplete, owner })
}

/// Returns why a result is incomplete without the `missed` files, which differed at each reading.
fn incomplete(missed: usize) -> Option<String> {
    let files = if missed == 1 { "1 file is".to_owned() } else { format!("{missed} files are") };
    (missed > 0).then(|| format!("{files} missing, because a process of the job did not stop writing"))
}

fn no_changes() -> Changes {
    Changes { tree: Manifest { version: VERSION, ..Manifest::default() }, ..Changes::default() }
}

/// A result's manifest and the sources of its chunks.
struct Packed {
    sources: Sources,
    digest: Digest,
    message: Option<String>,
}

/// Combines the files and outputs of a run into one result.
fn pack(launch: &RunLaunch, directory: &RunDirectory, found: Changes) -> Result<Packed, TooMuch> {
    let Changes { tree, removed, mut problems, missed: _, mut sources } = found;
    let cap_bytes = launch.job.output_cap_bytes().min(MOST_BYTES);
    let mut output = |output: Output| {
        content(&mut sources, &directory.output(output), cap_bytes).unwrap_or_else(|error| {
            problems.push(format!("cannot read the job's {}: {error}", output.as_str()));
            (Content::default(), 0)
        })
    };
    let outputs = [Output::Stdout, Output::Stderr, Output::Setup].map(|which| (which, output(which)));
    for (which, (_, length)) in &outputs {
        if *length > cap_bytes {
            let (which, kept, length) = (which.as_str(), format_bytes(cap_bytes), format_bytes(*length));
            problems.insert(0, format!("the job's {which} was cut: {kept} of {length} are kept (setting output-cap)"));
        }
    }
    let certificate = directory.certificate();
    let certificate = certificate.exists().then(|| sources.add_file(&certificate, MAX_BLOB_BYTES as u64));
    let certificate = certificate.and_then(|added| match added {
        Ok((content, _)) => Some(Box::new(content)),
        Err(error) => {
            problems.push(format!("cannot read the measurement certificate: {error}"));
            None
        }
    });
    let [stdout, stderr, setup] = outputs.map(|(_, (content, _))| content);
    let is_project = matches!(launch.spec().work, Work::Project { .. });
    let advice = is_project.then(|| missing_module(&directory.output(Output::Stderr))).flatten();
    let message: Vec<String> = advice.into_iter().chain(summary(&problems)).collect();
    let message = (!message.is_empty()).then(|| message.join("; "));
    let not_kept = problems.len().saturating_sub(PROBLEMS_KEPT);
    problems.truncate(PROBLEMS_KEPT);
    problems.extend((not_kept > 0).then(|| format!("And {not_kept} more.")));
    let manifest = ResultManifest {
        version: VERSION,
        run: launch.run(),
        tree,
        removed: removed.into_iter().map(ByteBuf::from).collect(),
        stdout,
        stderr,
        setup,
        certificate,
        problems,
    };
    let encoded = hostler_proto::encode(&manifest);
    if encoded.len() > MAX_BLOB_BYTES {
        return Err(TooMuch::Manifest(MAX_BLOB_BYTES));
    }
    let digest = sources.add_blob(encoded);
    Ok(Packed { sources, digest, message })
}

/// A captured result that is not on the head yet.
struct Captured {
    sources: Arc<Sources>,
    digest: Digest,
    /// The result's blobs, if they are small enough to be sent with the report.
    inline: Option<Vec<ByteBuf>>,
    message: Option<String>,
    /// Why the result lacks files, if it does.
    incomplete: Option<String>,
    /// The user with whose rights the agent reads the files again; `None` for the agent's own user.
    owner: Option<Ids>,
}

impl Captured {
    /// Uploads the result, or returns a small result for the report to carry. An incomplete result is delivered as
    /// [`Uncollected`], so that the job does not complete.
    ///
    /// # Errors
    /// If the result's files have changed since the capture, or the head refuses the result.
    async fn deliver(self, transfer: &Transfer) -> anyhow::Result<Result<(RunResult, Option<String>), Uncollected>> {
        let Self { sources, digest, inline, message, incomplete, owner } = self;
        if inline.is_none() {
            transfer.upload(sources, digest, owner).await?;
        }
        let result = RunResult { manifest: digest, inline: inline.unwrap_or_default() };
        Ok(match incomplete {
            None => Ok((result, message)),
            Some(reason) => {
                let reason = message.into_iter().fold(reason, |reason, message| format!("{reason}; {message}"));
                Err(Uncollected { reason, rest: Some(result) })
            }
        })
    }
}

/// Returns the content of an output up to `cap_bytes`, and the output's full length. Adds a notice to the content if
/// the output is longer. Empty if the file does not exist.
fn content(sources: &mut Sources, path: &Path, cap_bytes: u64) -> anyhow::Result<(Content, u64)> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.len() == 0 => Ok((Content::default(), 0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Content::default(), 0)),
        Ok(_) => {
            let (mut content, length) = sources.add_file(path, cap_bytes)?;
            if length > cap_bytes {
                let notice = output::cut_notice(cap_bytes);
                content.size += notice.len() as u64;
                let len = notice.len() as u32;
                content.chunks.push(Chunk { digest: sources.add_blob(notice), len });
            }
            Ok((content, length))
        }
        Err(error) => Err(error.into()),
    }
}

/// Converts a "not found" error to `Ok(None)`, and returns other errors. A job of the agent's own user may remove its
/// working directory.
fn none_if_missing(error: io::Error) -> io::Result<Option<Ids>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
}

/// Returns what to do if a Python program ended because it lacks a module: its last line on standard error says so.
fn missing_module(stderr: &Path) -> Option<String> {
    const TAIL_BYTES: u64 = 1024;
    let mut file = File::open(stderr).ok()?;
    let start = file.metadata().ok()?.len().saturating_sub(TAIL_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(start)).ok()?;
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let module =
        tail.trim_end().lines().last()?.strip_prefix("ModuleNotFoundError: No module named '")?.split('\'').next()?;
    let module = module.split('.').next()?;
    Some(format!(
        "Python found no module {module}: list its package in the folder's requirements.txt or pyproject.toml"
    ))
}

/// Joins the first [`PROBLEMS_SHOWN`] problems into one text. Returns `None` without problems.
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

    #[test]
    fn missing_module_is_named_from_the_last_line() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let stderr = place.path().join("stderr");
        assert_eq!(missing_module(&stderr), None);
        let of = |text: String| {
            fs::write(&stderr, text).expect("writable");
            missing_module(&stderr)
        };
        let traceback = "x".repeat(5000) + "\n  File main.py\nModuleNotFoundError: No module named 'sklearn.svm'\n";
        assert!(
            of(traceback.clone()).expect("a module").starts_with("Python found no module sklearn: list its package")
        );
        assert_eq!(of(traceback + "went on without it\n"), None);
        assert_eq!(of("ModuleNotFoundError: numpy\n".to_owned()), None);
        assert_eq!(of(String::new()), None);
    }

    /// Needs root.
    #[test]
    fn capture_never_follows_a_directory_swapped_for_a_link() {
        const SECRET: &[u8] = b"for root's eyes only";
        let place = tempfile::tempdir().expect("a temporary directory");
        let (work, elsewhere) = (place.path().join("work"), place.path().join("elsewhere"));
        for directory in [place.path(), &work, &work.join("d"), &elsewhere] {
            fs::create_dir_all(directory).expect("this test owns the path");
            fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("this test owns the path");
        }
        fs::write(elsewhere.join("x"), SECRET).expect("this test owns the path");
        fs::set_permissions(elsewhere.join("x"), Permissions::from_mode(0o600)).expect("this test owns the path");
        fs::write(work.join("d/x"), "mine").expect("this test owns the path");
        for path in [&work, &work.join("d"), &work.join("d/x")] {
            chown(path, Some(65534), Some(65533)).expect("root has permission");
        }
        let owner = Ids::of_directory(&work).expect("the path exists").expect("another user owns it");
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
                    let found = changes(&work, &manifest, &baseline, &ChangesOptions { threads: 1 });
                    let found = found.expect("a few files").sources;
                    found.digests().filter_map(|chunk| found.read_chunk(&chunk).ok()).collect::<Vec<_>>()
                };
                let contents = owner.act(look).expect("needs root");
                contents.iter().any(|content| content == SECRET)
            });
            is_over.store(true, Ordering::Relaxed);
            swapping.join().expect("the thread does not panic").expect("needs root").expect("the user owns the path");
            assert!(!has_secret);
        });
    }
}
