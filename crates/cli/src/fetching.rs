//! Downloads results and places their files.
//!
//! The results of a job go to `DIR/<job>`, those of an array task to `DIR/<job>_<index>`, and those of further nodes to
//! `DIR/<job>.node1` and so on. The logs `stdout.log`, `stderr.log` and, if there is one, `setup.log` are added,
//! and `measurement.json` for exclusive jobs. A hidden file marks the directory, so that `submit` leaves it out of a
//! project that contains it. The command confirms the download to the head only after all files are in place, so an
//! interrupted download can be repeated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hostler_client::{Client, download};
use hostler_model::{Digest, IndexSet, JobId, JobState, TaskId, format_bytes, plural};
use hostler_proto::api::{Fetched, ResultView};
use hostler_proto::manifest::{Content, Entry, EntryKind, Manifest, ResultManifest};
use hostler_snapshot::{
    Delivered, Delivery, OnConflict, Property, RESULTS_MARKER, TIME_OF_DELIVERY, mark_results, show,
};
use serde::Serialize;

use crate::context::Context;
use crate::failure::{During, Failure};

/// Results per request: many, so that small results need few requests; not too many, so that an interruption repeats
/// little.
const RESULTS_AT_ONCE: usize = 64;

/// The target directory, and what to do with existing files.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) directory: PathBuf,
    pub(crate) on_conflict: OnConflict,
}

#[derive(Debug, Serialize)]
pub(crate) struct Arrived {
    pub(crate) job: JobId,
    pub(crate) index: Option<u32>,
    /// Rank of the node, for a job on several nodes.
    pub(crate) node_rank: Option<u32>,
    pub(crate) state: JobState,
    pub(crate) path: PathBuf,
    /// Number of files that were written, logs included.
    pub(crate) files: u64,
    /// Total size of the written files, in bytes.
    pub(crate) bytes: u64,
    /// Number of files that existed already.
    pub(crate) kept: u64,
    /// Number of written files that replaced those of an earlier attempt.
    pub(crate) replaced: u64,
}

/// The downloaded results and the failures.
#[derive(Debug, Default)]
pub(crate) struct Downloads {
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) failures: Vec<Failure>,
    /// Tasks for which the download of at least one result failed.
    undelivered: BTreeSet<TaskId>,
}

impl Downloads {
    fn fail(&mut self, result: &ResultView, error: &hostler_snapshot::DeliveryError) {
        self.undelivered.insert(TaskId { job: result.job, index: result.index.unwrap_or(0) });
        self.failures.push(undeliverable(result, error));
    }
}

/// Downloads `results` and prints what arrived. If one result fails, the others are still downloaded.
///
/// # Errors
/// Fails if the head is unreachable or refuses a request.
pub(crate) async fn fetch(
    context: &Context,
    client: &Client,
    results: &[ResultView],
    destination: &Destination,
) -> Result<Downloads, Failure> {
    let mut haul = Downloads::default();
    // Names the results for all time: another cluster has a job 12 too.
    let cluster = match results {
        [] => None,
        _ => {
            create(&destination.directory)?;
            client.info().await?.head.authority
        }
    };
    for batch in results.chunks(RESULTS_AT_ONCE) {
        fetch_batch(context, client, batch, destination, cluster, &mut haul).await?;
    }
    for failure in &haul.failures {
        context.output.fail(failure);
    }
    Ok(haul)
}

async fn fetch_batch(
    context: &Context,
    client: &Client,
    batch: &[ResultView],
    destination: &Destination,
    cluster: Option<Digest>,
    haul: &mut Downloads,
) -> Result<(), Failure> {
    let digests: Vec<Digest> = batch.iter().map(|result| result.manifest).collect();
    let tasks: Vec<TaskId> = batch.iter().map(task).collect();
    let manifests = download::manifests(client, &tasks, &digests).await?;
    let (mut planned, mut deliveries) = (Vec::new(), Vec::new());
    for (result, manifest) in batch.iter().zip(&manifests) {
        let path = destination.directory.join(name(result));
        for problem in &manifest.problems {
            context.output.say(&format!("note: job {}: {problem}", name(result)));
        }
        // A job that wrote a file of the marker's name gets its own file back, and no marker.
        let marks = !manifest.tree.entries.iter().any(|entry| entry.path == RESULTS_MARKER.as_bytes());
        let source = cluster.filter(|_| marks).map(|cluster| format!("{cluster} {}", name(result)));
        match Delivery::plan(&path, &with_logs(manifest), destination.on_conflict, source.as_deref()) {
            Ok(delivery) => {
                if marks {
                    mark(context, &path);
                }
                planned.push((result, path));
                deliveries.push(delivery);
            }
            Err(error) => haul.fail(result, &error),
        }
    }
    fill(context, client, &tasks, &mut deliveries).await?;
    let mut arrived = Vec::new();
    for ((result, path), delivery) in planned.into_iter().zip(deliveries) {
        match delivery.finish() {
            Ok(delivered) => {
                if let Some(missing) = not_held(&delivered.not_held) {
                    context.output.say(&format!("note: the disk of {} cannot hold {missing}", path.display()));
                }
                arrived.push(arrival(result, path, &delivered));
            }
            Err(error) => haul.fail(result, &error),
        }
    }
    acknowledge(client, &arrived, &haul.undelivered).await?;
    say_what_arrived(context, &arrived);
    haul.arrived.append(&mut arrived);
    Ok(())
}

/// Marks the directory before it has content, so that a later `submit` of a parent folder leaves the directory out.
fn mark(context: &Context, directory: &Path) {
    if let Err(error) = mark_results(directory) {
        context.output.say(&format!("note: cannot mark {} as job results: {error}", directory.display()));
    }
}

async fn fill(
    context: &Context,
    client: &Client,
    tasks: &[TaskId],
    deliveries: &mut [Delivery],
) -> Result<(), Failure> {
    let total = deliveries.iter().map(Delivery::missing_bytes).sum();
    let progress = context.output.progress("fetching", total);
    Ok(download::fill(client, tasks, deliveries, |done, total| progress.at(done, total)).await?)
}

fn arrival(result: &ResultView, path: PathBuf, delivered: &Delivered) -> Arrived {
    Arrived {
        job: result.job,
        index: result.index,
        node_rank: result.node_rank,
        state: result.state,
        path,
        files: delivered.files,
        bytes: delivered.bytes,
        kept: delivered.kept,
        replaced: delivered.replaced,
    }
}

/// Lists what a disk cannot hold, by property and with an example each.
fn not_held(all: &[(Property, Vec<u8>)]) -> Option<String> {
    let kinds = all.chunk_by(|a, b| a.0 == b.0).map(|of_one_kind| {
        let (property, first) = &of_one_kind[0];
        let noun = match property {
            Property::Mode => "mode",
            Property::Time => "modification time",
            Property::Link => "link",
        };
        match (property, of_one_kind.len()) {
            (Property::Link, 1) => format!("the link {}", show(first)),
            (Property::Link, count) => format!("{count} links, e.g. {}", show(first)),
            (_, 1) => format!("the {noun} of {}", show(first)),
            (_, count) => format!("the {noun}s of {count} entries, e.g. {}", show(first)),
        }
    });
    let kinds: Vec<String> = kinds.collect();
    (!kinds.is_empty()).then(|| kinds.join("; "))
}

fn undeliverable(result: &ResultView, error: &hostler_snapshot::DeliveryError) -> Failure {
    let failure = Failure::new(format!("the results of job {} were not delivered", name(result))).because(error);
    match error {
        hostler_snapshot::DeliveryError::Conflicts { conflicts, .. }
            if conflicts.iter().all(|it| it.can_be_settled) =>
        {
            failure.hint("fetch into another directory with --to, or replace these files with --overwrite")
        }
        hostler_snapshot::DeliveryError::Busy(_) => failure.hint("wait until the other fetch ends"),
        _ => failure.hint("the results stay on the head; correct the problem and fetch the results again"),
    }
}

/// Confirms to the head, job by job, which tasks were downloaded. The result of a task's first node comes last, so its
/// arrival confirms the whole task, unless the result of another node failed.
async fn acknowledge(client: &Client, arrived: &[Arrived], undelivered: &BTreeSet<TaskId>) -> Result<(), Failure> {
    for of_one_job in arrived.chunk_by(|a, b| a.job == b.job) {
        let job = of_one_job[0].job;
        let last = of_one_job.iter().filter(|result| result.node_rank.unwrap_or(0) == 0);
        let indices = last.map(|result| result.index.unwrap_or(0));
        let indices: IndexSet = indices.filter(|&index| !undelivered.contains(&TaskId { job, index })).collect();
        if !indices.is_empty() {
            client.fetched(job, &Fetched { indices }).await?;
        }
    }
    Ok(())
}

/// Prints one line per job.
fn say_what_arrived(context: &Context, arrived: &[Arrived]) {
    for of_one_job in arrived.chunk_by(|a, b| a.job == b.job) {
        let first = of_one_job.iter().find(|result| result.node_rank.unwrap_or(0) == 0).unwrap_or(&of_one_job[0]);
        let (files, bytes) = of_one_job.iter().fold((0, 0), |sum, it| (sum.0 + it.files, sum.1 + it.bytes));
        let what = match (first.index, of_one_job.len()) {
            (None, 1) => format!("job {}", first.job),
            (None, nodes) => format!("job {} from its {nodes} nodes", first.job),
            (Some(index), 1) => format!("task {}_{index}", first.job),
            (Some(_), _) => format!("{} of job {}", plural(tasks_in(of_one_job), "task"), first.job),
        };
        let place = match of_one_job.len() {
            1 => first.path.clone(),
            _ if first.index.is_none() => first.path.clone(),
            _ => first.path.with_file_name(format!("{}_*", first.job)),
        };
        let replaced = match of_one_job.iter().map(|it| it.replaced).sum() {
            0 => String::new(),
            replaced => format!("; replaced {} of an earlier attempt", plural(replaced, "file")),
        };
        let amount = match files {
            0 => format!("all files existed already{replaced}"),
            _ => format!("{}, {}{replaced}", plural(files, "file"), format_bytes(bytes)),
        };
        context.output.say(&format!("fetched {what} into {} ({amount})", place.display()));
    }
}

fn task(result: &ResultView) -> TaskId {
    TaskId { job: result.job, index: result.index.unwrap_or(0) }
}

/// Returns the number of different tasks among results of one job.
fn tasks_in(of_one_job: &[Arrived]) -> usize {
    of_one_job.iter().map(|result| result.index).collect::<BTreeSet<_>>().len()
}

/// Returns the name of a result: `12` or `12_3`; for nodes after the first with the rank, e.g. `12.node1`.
fn name(result: &ResultView) -> String {
    let name = directory_name(result.job, result.index);
    match result.node_rank {
        None | Some(0) => name,
        Some(rank) => format!("{name}.node{rank}"),
    }
}

/// The directory of a result below the target directory.
pub(crate) fn directory_name(job: JobId, index: Option<u32>) -> String {
    match index {
        Some(index) => format!("{job}_{index}"),
        None => job.to_string(),
    }
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

/// Creates the target directory, so that a failure is reported once and not for each result.
fn create(directory: &Path) -> Result<(), Failure> {
    let place = || show(directory.as_os_str().as_encoded_bytes());
    std::fs::create_dir_all(directory).during(|| format!("cannot create the directory {}", place()))
}

/// Makes the target directory absolute, so that printed paths are valid everywhere.
pub(crate) fn destination(to: Option<&Path>, overwrite: bool) -> Result<Destination, Failure> {
    let directory = to.unwrap_or(Path::new("."));
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::new(format!("{} is not a directory", show(directory.as_os_str().as_encoded_bytes()))));
    }
    let directory = std::path::absolute(directory).during(|| format!("cannot use {}", directory.display()))?;
    let on_conflict = if overwrite { OnConflict::Overwrite } else { OnConflict::Refuse };
    Ok(Destination { directory, on_conflict })
}

#[cfg(test)]
mod tests {
    use hostler_model::RunId;

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
    fn each_job_and_array_task_has_a_directory() {
        assert_eq!(directory_name(JobId(12), None), "12");
        assert_eq!(directory_name(JobId(12), Some(0)), "12_0");
    }

    #[test]
    fn properties_that_a_disk_cannot_hold_are_listed_in_one_line() {
        let of = |property, path: &str| (property, path.as_bytes().to_vec());
        let all =
            [of(Property::Mode, "a"), of(Property::Mode, "run.sh"), of(Property::Time, "a"), of(Property::Link, "l")];
        let expected = "the modes of 2 entries, e.g. a; the modification time of a; the link l";
        assert_eq!(not_held(&all).as_deref(), Some(expected));
        assert_eq!(not_held(&[]), None);
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
