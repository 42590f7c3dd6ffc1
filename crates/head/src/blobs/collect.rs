//! Garbage collection of blobs: mark all blobs that known jobs and results refer to, then delete all other blobs.
//!
//! Chunk files and table use the same marks but different protection for new blobs. Chunk files carry the time of their
//! last use. The table has no times and uses [`Pins`](super::pins::Pins) instead.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use hostler_core::head::{Command, Job};
use hostler_model::{Attempt, Digest, JobId, TaskId, Work};
use hostler_proto::record::{EndedTask, TaskResult};
use hostler_store::{Batch, Change};

use super::marks::Marks;
use super::{COMPLETENESS_TTL, Library, LibraryError, NEXT_IN_NEED, YOUNG, YOUNG_IN_NEED};
use crate::archive;
use crate::engine::Engine;

/// Table blobs per read or delete. The number is small, so that queued acknowledgements do not wait long.
const PAGE_LEN: usize = 1_000;

impl Library {
    /// Deletes all blobs that no job or result refers to. Does nothing if nothing has changed since the last
    /// collection.
    ///
    /// First drops downloaded results, if all results together exceed their limit. `tell` makes the head execute a
    /// command, and returns whether the command and all earlier commands are durable. Returns how long to wait for the
    /// next collection, if space is scarce and it can delete more.
    ///
    /// # Errors
    /// The disk fails. Blobs deleted until then were unused.
    pub(crate) fn collect(
        &self,
        engine: &Engine,
        tell: impl Fn(Command) -> bool,
    ) -> Result<Option<Duration>, LibraryError> {
        if !self.changed.swap(false, Ordering::AcqRel) {
            return Ok(None);
        }
        self.make_room(engine, &tell)?;
        self.pins().set_collecting(true);
        let collected = self.mark_and_sweep(engine, &tell);
        self.pins().set_collecting(false);
        collected
    }

    fn mark_and_sweep(
        &self,
        engine: &Engine,
        tell: &impl Fn(Command) -> bool,
    ) -> Result<Option<Duration>, LibraryError> {
        // The reply to a tick comes after all earlier writes. After it, every blob without a pin is stored together
        // with the event that refers to it, so the marking finds the reference.
        if !tell(Command::Tick) {
            self.changed.store(true, Ordering::Release);
            return Ok(None);
        }
        let live = self.mark(engine)?;
        let in_need = self.in_need.load(Ordering::Acquire) || self.nearly_full().is_some();
        let freed = self.chunks.sweep(|digest| live.contains(digest), if in_need { YOUNG_IN_NEED } else { YOUNG })?;
        let dropped = self.sweep_table(&live)?;
        self.complete().retain(|_, seen| seen.elapsed() < COMPLETENESS_TTL);
        if freed.chunks > 0 || dropped > 0 {
            tracing::info!(
                chunks = freed.chunks,
                bytes = freed.bytes,
                blobs = dropped,
                "deleted unused chunks and blobs"
            );
        }
        match freed.young {
            0 => self.in_need.store(false, Ordering::Release),
            _ => self.changed.store(true, Ordering::Release),
        }
        Ok((in_need && freed.young > 0).then_some(NEXT_IN_NEED))
    }

    /// Marks everything that a job or result refers to.
    fn mark(&self, engine: &Engine) -> Result<Marks, LibraryError> {
        let mut live = Marks::new(self.turns.fetch_add(1, Ordering::Relaxed));
        let mut manifests: HashSet<Digest> = {
            let state = engine.state();
            let moves = engine.archive().moves();
            let snapshots = state.jobs().chain(moves.jobs()).filter_map(|job| snapshot_of(&job.spec.work));
            // These manifests are read before the history: when the last part of a task ends, the results of its other
            // parts move from the state to the history.
            let kept =
                state.jobs().filter_map(|job| job.kept_files.as_deref()).flat_map(|kept| kept.values().flatten());
            snapshots.chain(state.early_results()).chain(kept.map(|(_, manifest)| *manifest)).collect()
        };
        // This table is read after the state, because ended jobs move from the state to the table.
        manifests.extend(self.table.snapshots_of_ended()?);
        manifests.extend(self.complete().keys());
        for manifest in manifests {
            self.mark_manifest(&manifest, &mut live)?;
        }
        self.each_kept_result(engine, &mut |result| self.mark_manifest(&result.manifest, &mut live))?;
        Ok(live)
    }

    /// Marks a manifest and all its chunks.
    fn mark_manifest(&self, manifest: &Digest, live: &mut Marks) -> Result<(), LibraryError> {
        match self.read_manifest(manifest) {
            Ok(anything) => anything.chunks().for_each(|chunk| {
                live.insert(&chunk.digest);
            }),
            // The chunks of a damaged or lost manifest are unknown and stay unmarked. The collection continues.
            Err(LibraryError::Missing(_) | LibraryError::NotAManifest(_)) => {}
            Err(LibraryError::Chunks(hostler_snapshot::StoreError::Corrupt { digest, source })) => {
                tracing::error!(%digest, "a manifest on disk is damaged: {source}");
            }
            Err(error) => return Err(error),
        }
        live.insert(manifest);
        Ok(())
    }

    /// Visits every kept result: first the results of jobs in memory, then the results of ended jobs, page by page.
    pub(super) fn each_kept_result(
        &self,
        engine: &Engine,
        visit: &mut dyn FnMut(TaskResult) -> Result<(), LibraryError>,
    ) -> Result<(), LibraryError> {
        let in_memory: BTreeMap<JobId, Arc<Job>> = {
            let state = engine.state();
            let moves = engine.archive().moves();
            let with_results = state.jobs().chain(moves.jobs()).filter(|job| job.has_results());
            with_results.map(|job| (job.id, Arc::clone(job))).collect()
        };
        self.visit_results(&in_memory, visit)?;
        let mut after = JobId(0);
        loop {
            let page = self.table.jobs_with_results(None, false, after, PAGE_LEN)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let mut jobs = BTreeMap::new();
            for (id, bytes) in page {
                match archive::read(&bytes) {
                    Ok(job) => {
                        jobs.insert(id, job);
                    }
                    // Nothing is marked for a damaged job. The collection continues.
                    Err(error) => tracing::error!(job = %id, "{error}"),
                }
            }
            self.visit_results(&jobs, visit)?;
        }
        self.visit_earlier(visit)
    }

    /// Visits the results of earlier attempts, last: a requeue moves them from the ended tasks to the earlier attempts.
    fn visit_earlier(&self, visit: &mut dyn FnMut(TaskResult) -> Result<(), LibraryError>) -> Result<(), LibraryError> {
        let mut after = (TaskId { job: JobId(0), index: 0 }, Attempt(0));
        loop {
            let page = self.table.earlier_attempts(after, PAGE_LEN)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = (TaskId { job: last.job, index: last.index }, last.attempt);
            page.iter().flat_map(EndedTask::results).try_for_each(&mut *visit)?;
        }
    }

    /// Visits the results of some jobs. Skips history rows of results that were dropped.
    fn visit_results(
        &self,
        jobs: &BTreeMap<JobId, Arc<Job>>,
        visit: &mut dyn FnMut(TaskResult) -> Result<(), LibraryError>,
    ) -> Result<(), LibraryError> {
        let ids: Vec<JobId> = jobs.keys().copied().collect();
        for some in ids.chunks(PAGE_LEN) {
            for result in self.table.results_of(some)? {
                // The row of a task that was just requeued may not be among the earlier attempts yet.
                if jobs[&result.task.job].has_result_of(result.task.index) {
                    visit(result)?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the table blobs that are neither marked nor pinned, page by page. Returns their number.
    fn sweep_table(&self, live: &Marks) -> Result<usize, LibraryError> {
        self.pins().let_go(YOUNG);
        let (mut last, mut dropped) = (None, 0);
        loop {
            let page = self.table.blobs_after(last, PAGE_LEN)?;
            let Some(end) = page.last() else { return Ok(dropped) };
            last = Some(*end);
            dropped += self.drop_page(&page, live);
        }
    }

    fn drop_page(&self, page: &[Digest], live: &Marks) -> usize {
        let (done, dropped) = mpsc::sync_channel(1);
        let count = {
            let pins = self.pins();
            let is_needed = |digest: &&Digest| live.contains(digest) || pins.contains(digest);
            let unneeded: Vec<Change> =
                page.iter().filter(|digest| !is_needed(digest)).copied().map(Change::DropBlob).collect();
            let count = unneeded.len();
            if count > 0 {
                // The deletion is queued while the pins are locked. A new upload of one of these blobs is therefore
                // stored after the deletion.
                self.writer.commit(Batch::of_changes(unneeded), move |outcome| {
                    // Sending cannot fail, because the receiver waits below.
                    let _ = done.send(outcome);
                });
            }
            count
        };
        if count == 0 {
            return 0;
        }
        match dropped.recv() {
            Ok(Ok(())) => count,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot delete unused blobs from the store");
                0
            }
            // The store is closing. The next head collects again.
            Err(mpsc::RecvError) => 0,
        }
    }
}

/// The captured folder of a job, if it has one.
fn snapshot_of(work: &Work) -> Option<Digest> {
    match work {
        Work::Project { snapshot, .. } => Some(*snapshot),
        Work::Command { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use hostler_core::head::{Caller, ConnectionId, KeptFiles, Now, Replaces, State, SubmissionKey};
    use hostler_model::{CpuSet, Ending, JobSpec, JobState, NodeFacts, Request, Resources, RunId};
    use hostler_proto::api::JobAction;
    use hostler_proto::link::{AgentHello, AgentMessage, Fate, RunEnd, RunReport, RunResult, RunStatus};
    use hostler_proto::manifest::{Chunk, Content, Manifest, ResultManifest, VERSION};
    use hostler_snapshot::{pack::Frame, wire};
    use hostler_store::{MemoryStore, Reader, Store, Writer};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::audit::Events;
    use crate::blobs::name_of;
    use crate::engine::first_batch;
    use crate::power::order::Order;

    /// An engine on an empty store.
    fn started(writer: &Writer, reader: &Reader) -> (Engine, UnboundedReceiver<Order>) {
        let mut state = State::default();
        let first = first_batch(&mut state, 1, Now::default());
        writer.commit_and_wait(first).expect("memory is available");
        Engine::start(state, (1, 2), writer.clone(), reader.clone(), Events::default())
    }

    /// Sets the time of last use of every chunk file to two hours ago.
    fn age(directory: &Path) {
        age_by(directory, Duration::from_secs(7200));
    }

    fn age_by(directory: &Path, age: Duration) {
        for entry in fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path()) {
            if entry.is_dir() {
                age_by(&entry, age);
            } else {
                let file = File::options().append(true).open(&entry).expect("permitted");
                file.set_modified(SystemTime::now() - age).expect("permitted");
            }
        }
    }

    fn project(snapshot: Digest) -> Command {
        let work = Work::Project { snapshot, entrypoint: "main.py".to_owned(), args: Vec::new() };
        let spec = JobSpec::new("test", work, Request::new(1, 8 << 20));
        let caller = Caller { user: "a".to_owned(), uid: None, operator: false };
        Command::Submit {
            caller,
            key: SubmissionKey(1),
            spec: Arc::new(spec),
            environment: None,
            snapshot_is_complete: true,
        }
    }

    #[tokio::test]
    async fn referenced_blobs_stay_and_old_unreferenced_ones_are_deleted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = MemoryStore::new();
        let reader = store.reader();
        let writer = Writer::start(store).expect("a thread");
        let (engine, _orders) = started(&writer, &reader);
        let library = Library::open(directory.path(), reader, writer.clone(), None).expect("a directory of chunks");
        let manifest = hostler_proto::encode(&Manifest { version: VERSION, entries: Vec::new() });
        let (kept, old, young) = (name_of(&manifest), name_of(b"old"), name_of(b"young"));
        let insert = |raw: &[u8]| {
            let frame = Frame { digest: name_of(raw), wire: wire::encode(raw) };
            library.insert(&[frame]).expect("enough space");
        };
        insert(&manifest);
        insert(b"old");
        age(directory.path());
        insert(b"young");
        // In the table: a blob that just arrived, one that a client asked for, and an unused one.
        let on_table = [b"came".to_vec(), b"asked".to_vec(), b"unwanted".to_vec()].map(|raw| (name_of(&raw), raw));
        let puts = on_table.iter().map(|(digest, raw)| Change::PutBlob(*digest, raw.clone().into())).collect();
        writer.commit_and_wait(Batch::of_changes(puts)).expect("memory is available");
        library.expect(&on_table[..1]);
        assert!(library.missing(&[on_table[1].0]).expect("the table works").is_empty());
        engine.command(project(kept)).await.expect("accepted");

        library.collect(&engine, |_| true).expect("the disk works");
        let gone = library.missing(&[kept, old, young, on_table[0].0, on_table[1].0, on_table[2].0]);
        assert_eq!(gone.expect("the table works"), [old, on_table[2].0]);
        engine.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn fetched_results_are_dropped_above_the_limit_and_unfetched_ones_stay() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = MemoryStore::new();
        let reader = store.reader();
        let writer = Writer::start(store).expect("a thread");
        let (engine, _orders) = started(&writer, &reader);
        let library = Library::open(directory.path(), reader, writer.clone(), Some(250_000)).expect("a directory");
        let shared = vec![b's'; 10_000];
        let runs = runs(&engine, 3).await;
        let (mut chunks, mut manifests) = (Vec::new(), Vec::new());
        for (i, run) in runs.iter().enumerate() {
            let own = vec![b'0' + i as u8; 100_000];
            let manifest = result_of(*run, &[&own, &shared]);
            for raw in [&own, &shared, &manifest] {
                library.insert(&[Frame { digest: name_of(raw), wire: wire::encode(raw) }]).expect("enough space");
            }
            end(&engine, *run, name_of(&manifest)).await;
            chunks.push(name_of(&own));
            manifests.push(name_of(&manifest));
        }
        let tell = |command| tokio::runtime::Handle::current().block_on(engine.command(command)).is_ok();
        let collect = || tokio::task::block_in_place(|| library.collect(&engine, tell)).expect("the disk works");
        assert_eq!(collect(), None, "nothing can be deleted");
        assert!(library.room().warning().is_some_and(|text| text.contains("not fetched")));
        assert!(chunks.iter().all(|chunk| library.chunks.contains(chunk)), "no unfetched result is dropped");

        let caller = Caller { user: "a".to_owned(), uid: None, operator: false };
        for run in [runs[1], runs[2]] {
            let caller = caller.clone();
            let indices = hostler_model::IndexSet::one(0);
            engine
                .command(Command::Fetched { caller, job: run.task.job, indices, attempt: None })
                .await
                .expect("the job has a result");
        }
        library.note_change();
        assert_eq!(collect(), Some(NEXT_IN_NEED), "a dropped chunk is new");
        assert_eq!(library.room().warning(), None);
        assert!(chunks.iter().all(|chunk| library.chunks.contains(chunk)));
        age_by(directory.path(), NEXT_IN_NEED);
        assert_eq!(collect(), None, "nothing is left to delete");
        let left: Vec<bool> = chunks.iter().map(|chunk| library.chunks.contains(chunk)).collect();
        assert_eq!(left, [true, false, true], "only the fetched result that ended first is dropped");
        assert!(library.chunks.contains(&name_of(&shared)), "other results still use the chunk");

        // A fetched result with whose files the next attempt starts.
        let files = KeptFiles::from([(0, vec![(0, manifests[2])])]);
        let (job, action) = (runs[2].task.job, JobAction::RequeueAll);
        let again = Command::RequeueWithFiles { caller, job, index: None, action, files };
        engine.command(again).await.expect("accepted");
        collect();
        assert!(library.chunks.contains(&chunks[2]), "the next attempt needs the files");
        engine.stop().await;
    }

    /// Submits jobs with one task each to a connected node, and returns their runs.
    async fn runs(engine: &Engine, count: usize) -> Vec<RunId> {
        let resources = Resources::new(CpuSet::first(8), 1 << 30);
        let node = "n1".parse().expect("a valid name");
        let hello = AgentHello::new(node, 1, NodeFacts::new("boot", resources), Vec::new());
        let key = Digest([1; 32]);
        let join = Command::Join { node: hello.node.clone(), key, life_ms: 1 << 40, replaces: Replaces::Any };
        engine.command(join).await.expect("invited");
        let hello =
            Command::Hello { connection: ConnectionId(1), key, hello: Box::new(hello), complete: BTreeSet::new() };
        engine.command(hello).await.expect("welcome");
        for key in 0..count {
            let Command::Submit { caller, spec, .. } = project(Digest([0; 32])) else {
                unreachable!("`project` returns a submission")
            };
            let key = SubmissionKey(key as u128);
            let submit = Command::Submit { caller, key, spec, environment: None, snapshot_is_complete: true };
            engine.command(submit).await.expect("accepted");
        }
        engine.state().jobs().flat_map(|job| job.active.values().map(|active| active.run)).collect()
    }

    /// A result with this standard output.
    fn result_of(run: RunId, parts: &[&Vec<u8>]) -> Vec<u8> {
        let chunks: Vec<Chunk> =
            parts.iter().map(|part| Chunk { digest: name_of(part), len: part.len() as u32 }).collect();
        hostler_proto::encode(&ResultManifest {
            version: VERSION,
            run,
            tree: Manifest { version: VERSION, entries: Vec::new() },
            removed: Vec::new(),
            stdout: Content { size: parts.iter().map(|part| part.len() as u64).sum(), chunks },
            stderr: Content::default(),
            setup: Content::default(),
            certificate: None,
            problems: Vec::new(),
        })
    }

    /// Completes a run with this result.
    async fn end(engine: &Engine, run: RunId, manifest: Digest) {
        let fate = Fate::Ended(Ending { state: JobState::Completed, exit_code: Some(0) });
        let result = Some(RunResult { manifest, inline: Vec::new() });
        let end =
            RunEnd { fate, message: None, result, usage: Default::default(), steps: Vec::new(), certificate: None };
        let message = AgentMessage::Report(RunReport { run, status: RunStatus::Ended(end) });
        let command = Command::Message { connection: ConnectionId(1), message, result_is_complete: true };
        engine.command(command).await.expect("on the node's connection");
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_the_head_cannot_persist() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = MemoryStore::new();
        let reader = store.reader();
        let writer = Writer::start(store).expect("a thread");
        let (engine, _orders) = started(&writer, &reader);
        let library = Library::open(directory.path(), reader, writer, None).expect("a directory of chunks");
        library.insert(&[Frame { digest: name_of(b"old"), wire: wire::encode(b"old") }]).expect("enough space");
        age(directory.path());
        library.collect(&engine, |_| false).expect("postponed");
        assert!(library.chunks.contains(&name_of(b"old")));
        library.collect(&engine, |_| true).expect("the disk works");
        assert!(!library.chunks.contains(&name_of(b"old")), "the collection was only postponed");
        engine.stop().await;
    }
}
