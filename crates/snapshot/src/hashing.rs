//! Hashes the files of a folder on several threads, also while programs write to them.
//!
//! If a file's metadata change during the first reading, the file is read a second time, up to the length that it had
//! at the start. Two equal readings are a valid state of the file: it has only grown, or another file has replaced it.
//! Otherwise the file is opened and read again after a short pause.

use std::fs::File;
use std::io::{self, Seek};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hostler_proto::manifest::Content;

use crate::beneath::{Root, Stat, is_gone, read_at};
use crate::chunk::{Chunker, MAX_BYTES};
use crate::seen::{Seen, is_settled};

/// How often a file that changes is read before hashing gives up.
const ATTEMPTS: u32 = 5;

/// The pause after the first attempt; it doubles with each further attempt.
const PAUSE: Duration = Duration::from_millis(2);

/// The content of a file, and its metadata when it was read.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) content: Content,
    pub(crate) stat: Stat,
    /// The bytes of a small file that has just been written, and which may therefore soon change again.
    pub(crate) kept: Option<Vec<u8>>,
}

/// The reason why a file has no hash.
#[derive(Debug)]
pub(crate) enum HashError {
    /// The file changed each time it was read.
    Changed,
    /// The file no longer exists, or something else has its path.
    Gone,
    Read(io::Error),
}

/// Whether hashing stops at the first failure, other than [`HashError::Gone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Stop,
    GoOn,
}

/// A file to hash: its path below the root, and its expected size in bytes.
pub(crate) type Job<'a> = (&'a [u8], u64);

/// Hashes `files` and calls `done` with the size of each. Results are in the order of `files`; some are missing after a
/// failure that stops the work. Keeps the bytes of small files in memory that were written in the last seconds, up to
/// `keeps` bytes in total.
pub(crate) fn hash_all(
    root: &Root,
    files: &[Job<'_>],
    threads: usize,
    on_failure: OnFailure,
    keeps: u64,
    done: &(dyn Fn(u64) + Sync),
) -> Vec<Option<Result<Hashed, HashError>>> {
    if files.is_empty() {
        return Vec::new();
    }
    let order = big_files_first(files);
    let (next, stop, room) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicU64::new(keeps));
    let now = Seen::now();
    let may_keep = |stat: &Stat| stat.size <= MAX_BYTES as u64 && !is_settled(stat, now);
    // Only here, after a successful reading, so that failed attempts use up no room.
    let keep = |bytes: &Vec<u8>| {
        let take = |room: u64| room.checked_sub(bytes.len() as u64);
        room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    };
    let work = || {
        let mut chunker = Chunker::new();
        let mut answers = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let (path, size) = files[index];
            let mut answer = hash_file(root, path, size, &mut chunker, &may_keep);
            if let Ok(hashed) = &mut answer {
                hashed.kept = hashed.kept.take().filter(keep);
            }
            if matches!(answer, Err(HashError::Changed | HashError::Read(_))) && on_failure == OnFailure::Stop {
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

/// Hashes a file that had `seen_bytes` bytes when the folder was walked.
fn hash_file(
    root: &Root,
    path: &[u8],
    seen_bytes: u64,
    chunker: &mut Chunker,
    may_keep: &dyn Fn(&Stat) -> bool,
) -> Result<Hashed, HashError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            thread::sleep(PAUSE * 2_u32.pow(attempt - 1));
        }
        let hashed = root.open_file(path).and_then(|file| hash_open(&file, seen_bytes, chunker, may_keep));
        match hashed {
            Ok(Some(hashed)) => return Ok(hashed),
            Ok(None) => {}
            Err(error) if is_gone(&error) => return Err(HashError::Gone),
            Err(error) => return Err(HashError::Read(error)),
        }
    }
    Err(HashError::Changed)
}

/// Hashes an open file up to its present length. Returns `None` if the bytes read may not be one state of the file.
fn hash_open(
    mut file: &File,
    seen_bytes: u64,
    chunker: &mut Chunker,
    may_keep: &dyn Fn(&Stat) -> bool,
) -> io::Result<Option<Hashed>> {
    let stat = Stat::of(file)?;
    let (content, kept) = if may_keep(&stat) {
        let bytes = read_at(file, 0, stat.size as usize)?;
        (chunker.content_of(&mut bytes.as_slice())?, Some(bytes))
    } else {
        (chunker.content_of_file(file, stat.size)?, None)
    };
    let after = Stat::of(file)?;
    let is_short = content.size < stat.size;
    // A file that is shorter than before and grows is being rewritten.
    let is_being_rewritten = after.size != stat.size && stat.size < seen_bytes;
    if is_short || is_being_rewritten {
        return Ok(None);
    }
    if after != stat {
        file.rewind()?;
        if chunker.content_of_file(file, stat.size)? != content {
            return Ok(None);
        }
    }
    Ok(Some(Hashed { content, stat, kept }))
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn file_that_shrinks_at_every_reading_is_given_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("b");
        std::fs::write(&path, [7; 1000]).expect("writable");
        let root = Root::open(dir.path()).expect("readable");
        let file = File::options().write(true).open(&path).expect("writable");
        let readings = Cell::new(0);
        // Called between the look at the file and its reading.
        let shrink = |stat: &Stat| {
            readings.set(readings.get() + 1);
            file.set_len(stat.size - 1).expect("writable");
            false
        };
        let hashed = hash_file(&root, b"b", 1000, &mut Chunker::new(), &shrink);
        assert!(matches!(hashed, Err(HashError::Changed)), "{hashed:?}");
        assert_eq!(readings.get(), ATTEMPTS);
    }

    #[test]
    fn failed_readings_take_no_room_from_files_that_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Root::open(dir.path()).expect("readable");
        std::fs::write(dir.path().join("a"), [1; 2000]).expect("writable");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // The reading of `a` often fails, because the file becomes shorter meanwhile.
            scope.spawn(|| {
                let file = File::options().write(true).open(dir.path().join("a")).expect("writable");
                while !stop.load(Ordering::Relaxed) {
                    file.set_len(1000).and_then(|()| file.set_len(2000)).expect("writable");
                }
            });
            let jobs: [Job<'_>; 2] = [(b"a", 2000), (b"b", 1000)];
            let kept = |_| {
                std::fs::write(dir.path().join("b"), [2; 1000]).expect("writable");
                let answers = hash_all(&root, &jobs, 1, OnFailure::GoOn, 3000, &|_| ());
                // Whether `a` is kept depends on timing.
                matches!(&answers[1], Some(Ok(b)) if b.kept.is_some())
            };
            let is_always_kept = (0..100).all(kept);
            stop.store(true, Ordering::Relaxed);
            assert!(is_always_kept);
        });
    }
}
