//! Hashes the files of a folder on several threads and detects files that change meanwhile.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use hostler_proto::manifest::Content;

use crate::beneath::{Root, Stat};
use crate::chunk::Chunker;

/// The content of a file, and its metadata when it was read.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) content: Content,
    pub(crate) stat: Stat,
}

/// The reason why a file has no hash.
#[derive(Debug)]
pub(crate) enum HashError {
    /// The file changed while it was being read.
    Changed,
    Read(io::Error),
}

/// Whether hashing stops at the first failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Stop,
    GoOn,
}

/// A file to hash: its path below the root, and its expected size in bytes.
pub(crate) type Job<'a> = (&'a [u8], u64);

/// Hashes `files` and calls `done` with the size of each. Results are in the order of `files`; some are missing after a
/// failure that stops the work.
pub(crate) fn hash_all(
    root: &Root,
    files: &[Job<'_>],
    threads: usize,
    on_failure: OnFailure,
    done: &(dyn Fn(u64) + Sync),
) -> Vec<Option<Result<Hashed, HashError>>> {
    if files.is_empty() {
        return Vec::new();
    }
    let order = big_files_first(files);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut chunker = Chunker::new();
        let mut answers = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let (path, size) = files[index];
            let answer = hash_file(root, path, &mut chunker);
            if answer.is_err() && on_failure == OnFailure::Stop {
                stop.store(true, Ordering::Relaxed);
            }
            answers.push((index, answer));
            done(size);
        }
        answers
    };
    let mut answers: Vec<_> = files.iter().map(|_| None).collect();
    for (index, answer) in on_threads(threads_for(threads, files.len()), work).into_iter().flatten() {
        answers[index] = Some(answer);
    }
    answers
}

/// Sorts big files first, so that no thread starts a big file at the end. Other files keep their order, which is
/// usually their order on disk.
fn big_files_first(files: &[Job<'_>]) -> Vec<usize> {
    const BIG_BYTES: u64 = 8 << 20;
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(Some(files[index].1).filter(|&size| size >= BIG_BYTES)));
    order
}

fn hash_file(root: &Root, path: &[u8], chunker: &mut Chunker) -> Result<Hashed, HashError> {
    let mut hash = || {
        let file = root.open_file(path)?;
        let before = Stat::of(&file)?;
        let content = chunker.content_of_file(&file, before.size)?;
        Ok((content, before, Stat::of(&file)?))
    };
    match hash() {
        Ok((content, before, after)) if before == after && content.size == before.size => {
            Ok(Hashed { content, stat: before })
        }
        Ok(_) => Err(HashError::Changed),
        Err(error) => Err(HashError::Read(error)),
    }
}

/// Returns how many threads to start for `items` pieces of work, at most `asked`. If `asked` is 0, at most one per
/// processor.
pub(crate) fn threads_for(asked: usize, items: usize) -> usize {
    const ITEMS_PER_THREAD: usize = 16;
    // A few items may be big files: use one thread each.
    let useful = if items <= ITEMS_PER_THREAD { items } else { items / ITEMS_PER_THREAD + 1 };
    match (useful, asked) {
        // Asking the system for its processors takes longer than a small item.
        (0 | 1, _) => 1,
        (_, 0) => useful.min(thread::available_parallelism().map_or(1, NonZeroUsize::get)),
        (_, asked) => useful.min(asked),
    }
}

/// Runs `work` on `count` threads, including the caller's.
pub(crate) fn on_threads<T: Send>(count: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        // If the system has no thread left, fewer threads do the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..count).map_while(spawn).collect();
        let mut answers = vec![work()];
        for other in others {
            answers.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        answers
    })
}
