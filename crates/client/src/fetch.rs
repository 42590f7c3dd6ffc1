//! Downloads the results of jobs and places their files.
//!
//! The results of a job go to `DIR/<job>`, those of an array task to `DIR/<job>_<index>`, and those of further nodes to
//! `DIR/<job>.node1` and so on; those of an attempt after which the task was requeued to `DIR/<job>.attempt1`. The logs `stdout.log`, `stderr.log` and, if there is one, `setup.log` are added,
//! and `measurement.json` for exclusive jobs. A hidden file marks the directory, so that a later submission of a project
//! that contains it leaves it out. The download is confirmed to the head only after all files are in place, so an
//! interrupted download can be repeated.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use hostler_model::{Attempt, Digest, IndexSet, JobId, JobState, TaskId};
use hostler_proto::api::{Fetched, ResultView};
use hostler_proto::manifest::{Content, Entry, EntryKind, Manifest, ResultManifest};
use hostler_snapshot::{
    Delivered, Delivery, DeliveryError, OnConflict, Property, RESULTS_MARKER, TIME_OF_DELIVERY, mark_results, show,
};
use serde::Serialize;

use crate::{Client, ClientError, LocalError, download};

/// Results per request: many, so that small results need few requests; not too many, so that an interruption repeats
/// little.
const RESULTS_AT_ONCE: usize = 64;

/// The target directory, and what to do with existing files.
#[derive(Debug, Clone)]
pub struct Destination {
    pub directory: PathBuf,
    pub on_conflict: OnConflict,
}

/// What happens during a download, for messages and progress bars.
#[derive(Debug)]
pub enum FetchEvent<'a> {
    /// A problem that the agent met when it collected the result.
    Problem {
        result: &'a str,
        text: &'a str,
    },
    /// The directory cannot be marked as results of jobs.
    Unmarked {
        directory: &'a Path,
        error: io::Error,
    },
    Fetching {
        part: Part,
        bytes: u64,
        total_bytes: u64,
    },
    /// The file system of the directory cannot hold these properties of entries.
    NotHeld {
        directory: &'a Path,
        properties: &'a [(Property, Vec<u8>)],
    },
    /// Some of the results are in place.
    Arrived(&'a [Arrived]),
}

/// The results that are being downloaded, of all that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of results before this part.
    pub before: usize,
    /// Number of results in this part.
    pub results: usize,
    /// Number of all wanted results.
    pub total: usize,
    /// Number of files to write in this part.
    pub files: usize,
}

/// A downloaded result.
#[derive(Debug, Serialize)]
pub struct Arrived {
    pub job: JobId,
    pub index: Option<u32>,
    /// Rank of the node, for a job on several nodes.
    pub node_rank: Option<u32>,
    /// The attempt, if the task was requeued after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_attempt: Option<Attempt>,
    pub state: JobState,
    pub path: PathBuf,
    /// Number of files that were written, logs included.
    pub files: u64,
    /// Total size of the written files, in bytes.
    pub bytes: u64,
    /// Number of files that existed already.
    pub kept: u64,
    /// Number of written files that replaced those of an earlier attempt.
    pub replaced: u64,
}

/// A result whose files could not be placed.
#[derive(Debug)]
pub struct Undelivered {
    task: TaskId,
    /// Name of the result, e.g. `12_3`.
    pub name: String,
    pub error: DeliveryError,
}

#[derive(Debug, Default)]
pub struct Downloads {
    pub arrived: Vec<Arrived>,
    pub undelivered: Vec<Undelivered>,
}

/// Downloads `results`. If one result cannot be delivered, the others are still downloaded.
///
/// # Errors
/// [`ClientError::Local`] if the target directory cannot be created; else see [`ClientError`].
pub async fn fetch(
    client: &Client,
    results: &[ResultView],
    destination: &Destination,
    report: &dyn Fn(FetchEvent<'_>),
) -> Result<Downloads, ClientError> {
    let mut downloads = Downloads::default();
    if results.is_empty() {
        return Ok(downloads);
    }
    create(&destination.directory)?;
    // Names the results for all time: another cluster has a job 12 too.
    let cluster = client.info().await?.head.authority;
    for (number, batch) in results.chunks(RESULTS_AT_ONCE).enumerate() {
        let part = Part { before: number * RESULTS_AT_ONCE, results: batch.len(), total: results.len(), files: 0 };
        fetch_batch(client, (batch, part), destination, cluster, report, &mut downloads).await?;
    }
    Ok(downloads)
}

/// Creates the target directory, so that a failure is reported once and not for each result.
fn create(directory: &Path) -> Result<(), LocalError> {
    let place = || show(directory.as_os_str().as_encoded_bytes());
    std::fs::create_dir_all(directory)
        .map_err(|error| LocalError::new(format!("cannot create the directory {}", place()), error))
}

async fn fetch_batch(
    client: &Client,
    (batch, part): (&[ResultView], Part),
    destination: &Destination,
    cluster: Option<Digest>,
    report: &dyn Fn(FetchEvent<'_>),
    downloads: &mut Downloads,
) -> Result<(), ClientError> {
    let digests: Vec<Digest> = batch.iter().map(|result| result.manifest).collect();
    let tasks: Vec<TaskId> = batch.iter().map(task).collect();
    let manifests = download::manifests(client, &tasks, &digests).await?;
    let fail = |result, error| Undelivered { task: task(result), name: name(result), error };
    let (mut planned, mut deliveries) = (Vec::new(), Vec::new());
    for (result, manifest) in batch.iter().zip(&manifests) {
        let name = name(result);
        let path = destination.directory.join(&name);
        manifest.problems.iter().for_each(|text| report(FetchEvent::Problem { result: &name, text }));
        // A job that wrote a file of the marker's name gets its own file back, and no marker.
        let marks = !manifest.tree.entries.iter().any(|entry| entry.path == RESULTS_MARKER.as_bytes());
        // An id returns when a backup of the head is restored; id and time of submission do not.
        let source = cluster.filter(|_| marks).map(|cluster| format!("{cluster} {name} {}", result.submitted_at.0));
        match Delivery::plan(&path, &with_logs(manifest), destination.on_conflict, source.as_deref()) {
            Ok(delivery) => {
                // Marked before it has content, so that a submission of a parent folder leaves the directory out.
                if marks && let Err(error) = mark_results(&path) {
                    report(FetchEvent::Unmarked { directory: &path, error });
                }
                planned.push((result, path));
                deliveries.push(delivery);
            }
            Err(error) => downloads.undelivered.push(fail(result, error)),
        }
    }
    let total_bytes = deliveries.iter().map(Delivery::missing_bytes).sum();
    let part = Part { files: deliveries.iter().map(Delivery::missing_files).sum(), ..part };
    report(FetchEvent::Fetching { part, bytes: 0, total_bytes });
    let progress = |bytes, total_bytes| report(FetchEvent::Fetching { part, bytes, total_bytes });
    download::fill(client, &tasks, &mut deliveries, progress).await?;
    let mut arrived = Vec::new();
    for ((result, path), delivery) in planned.into_iter().zip(deliveries) {
        match delivery.finish() {
            Ok(delivered) => {
                if !delivered.not_held.is_empty() {
                    report(FetchEvent::NotHeld { directory: &path, properties: &delivered.not_held });
                }
                arrived.push(arrival(result, path, &delivered));
            }
            Err(error) => downloads.undelivered.push(fail(result, error)),
        }
    }
    acknowledge(client, &arrived, &downloads.undelivered).await?;
    report(FetchEvent::Arrived(&arrived));
    downloads.arrived.append(&mut arrived);
    Ok(())
}

fn arrival(result: &ResultView, path: PathBuf, delivered: &Delivered) -> Arrived {
    Arrived {
        job: result.job,
        index: result.index,
        node_rank: result.node_rank,
        earlier_attempt: result.earlier.then_some(result.attempt),
        state: result.state,
        path,
        files: delivered.files,
        bytes: delivered.bytes,
        kept: delivered.kept,
        replaced: delivered.replaced,
    }
}

/// Confirms to the head, job by job, which tasks were downloaded. The result of a task's first node comes last, so its
/// arrival confirms the whole task, unless the result of another node failed.
async fn acknowledge(client: &Client, arrived: &[Arrived], undelivered: &[Undelivered]) -> Result<(), ClientError> {
    let failed: BTreeSet<TaskId> = undelivered.iter().map(|it| it.task).collect();
    for of_one_job in arrived.chunk_by(|a, b| (a.job, a.earlier_attempt) == (b.job, b.earlier_attempt)) {
        let (job, attempt) = (of_one_job[0].job, of_one_job[0].earlier_attempt);
        let last = of_one_job.iter().filter(|result| result.node_rank.unwrap_or(0) == 0);
        let indices = last.map(|result| result.index.unwrap_or(0));
        let indices: IndexSet = indices.filter(|&index| !failed.contains(&TaskId { job, index })).collect();
        if !indices.is_empty() {
            client.fetched(job, &Fetched { indices, attempt }).await?;
        }
    }
    Ok(())
}

fn task(result: &ResultView) -> TaskId {
    TaskId { job: result.job, index: result.index.unwrap_or(0) }
}

/// Returns the name of a result and of its directory: `12` or `12_3`; for earlier attempts with the attempt, e.g.
/// `12.attempt1`, and for nodes after the first with the rank, e.g. `12.node1`.
fn name(result: &ResultView) -> String {
    let task = result.index.map(|index| format!("_{index}")).unwrap_or_default();
    let node = result.node_rank.filter(|&rank| rank > 0).map(|rank| format!(".node{rank}")).unwrap_or_default();
    let attempt = if result.earlier { format!(".attempt{}", result.attempt) } else { String::new() };
    format!("{}{task}{attempt}{node}", result.job)
}

/// File name of the log with the job's standard output.
const STDOUT_LOG: &str = "stdout.log";

/// File name of the log with the job's standard error.
const STDERR_LOG: &str = "stderr.log";

/// File name of the log of the environment setup.
const SETUP_LOG: &str = "setup.log";

/// File name of the measurement certificate of an exclusive job.
const CERTIFICATE: &str = "measurement.json";

/// The files of the result, with its logs.
fn with_logs(result: &ResultManifest) -> Manifest {
    let mut tree = result.tree.clone();
    add_log(&mut tree, STDOUT_LOG, &result.stdout);
    add_log(&mut tree, STDERR_LOG, &result.stderr);
    if result.setup.size > 0 {
        add_log(&mut tree, SETUP_LOG, &result.setup);
    }
    if let Some(certificate) = &result.certificate {
        add_log(&mut tree, CERTIFICATE, certificate);
    }
    tree
}

/// Adds a log or the certificate under `name`. If the job wrote a file of this name, Hostler's file gets the prefix `hostler-`.
fn add_log(tree: &mut Manifest, name: &str, content: &Content) {
    let mut path = name.as_bytes().to_vec();
    loop {
        match tree.entries.binary_search_by(|entry| entry.path.as_slice().cmp(&path)) {
            Ok(_) => path = [b"hostler-".as_slice(), &path].concat(),
            Err(at) => {
                let kind = EntryKind::File(content.clone());
                tree.entries.insert(at, Entry { path, mode: 0o644, modified_ns: TIME_OF_DELIVERY, kind });
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{RunId, WallTime};

    use super::*;

    fn file(path: &str) -> Entry {
        Entry { path: path.into(), mode: 0o600, modified_ns: 5, kind: EntryKind::File(Content::default()) }
    }

    fn result(paths: &[&str], setup_bytes: u64) -> ResultManifest {
        let run: RunId = "12_0.1.1".parse().expect("valid");
        let mut entries: Vec<Entry> = paths.iter().map(|path| file(path)).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        ResultManifest {
            version: 1,
            run,
            tree: Manifest { version: 1, entries },
            removed: Vec::new(),
            stdout: Content::default(),
            stderr: Content::default(),
            setup: Content { size: setup_bytes, chunks: Vec::new() },
            certificate: None,
            problems: Vec::new(),
        }
    }

    fn names(manifest: &Manifest) -> Vec<String> {
        manifest.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    #[test]
    fn results_are_named_by_job_task_and_node() {
        let result = |index, node_rank| ResultView {
            job: JobId(12),
            name: "try".to_owned(),
            index,
            node_rank,
            state: JobState::Completed,
            project: true,
            map: false,
            manifest: Digest([0; 32]),
            fetched: false,
            attempt: Attempt(1),
            earlier: false,
            submitted_at: WallTime(0),
        };
        let names = [(None, None), (Some(0), None), (None, Some(0)), (Some(3), Some(1))];
        let names = names.map(|(index, rank)| name(&result(index, rank)));
        assert_eq!(names, ["12", "12_0", "12", "12_3.node1"]);
    }

    #[test]
    fn logs_are_added_to_the_files_of_the_job() {
        let plain = with_logs(&result(&["metrics.json", "zebra.png"], 0));
        assert_eq!(names(&plain), ["metrics.json", "stderr.log", "stdout.log", "zebra.png"]);
        assert_eq!(names(&with_logs(&result(&[], 7))), ["setup.log", "stderr.log", "stdout.log"]);
        let measured = ResultManifest { certificate: Some(Box::default()), ..result(&["measurement.json"], 0) };
        let expected = ["hostler-measurement.json", "measurement.json", "stderr.log", "stdout.log"];
        assert_eq!(names(&with_logs(&measured)), expected, "the job's own file keeps its name");
    }

    #[test]
    fn logs_are_renamed_if_the_job_wrote_files_of_these_names() {
        let manifest = with_logs(&result(&["stdout.log", "hostler-stdout.log", "stderr.log"], 0));
        let expected =
            ["hostler-hostler-stdout.log", "hostler-stderr.log", "hostler-stdout.log", "stderr.log", "stdout.log"];
        assert_eq!(names(&manifest), expected);
        assert_eq!(manifest.entries[4].mode, 0o600, "the job's own file keeps its name");
    }
}
