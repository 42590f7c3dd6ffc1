//! Describes a tree that a command temporarily takes to another machine.
//!
//! Unlike a [`capture`](crate::capture()), a survey leaves nothing out by default: a compiler needs a header that the
//! repository ignores. It also refuses nothing. It skips special files and files that the user cannot read, and a
//! link may lead anywhere. The tree may be in use. A file that keeps changing, such as the log of the running build,
//! is taken as it was when it was read.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};

use super::look::{Fresh, Look, Looked};
use super::memory::{Memory, Writer};
use super::named::Named;
use crate::beneath::{Kind, Root, Stat};
use crate::chunk::Chunker;
use crate::hashing::{HashError, Hashed, OnFailure, hash_all};
use crate::seen::{Seen, is_settled};
use crate::sources::Sources;

/// The maximum size of a file that keeps changing, in bytes. Larger changing files are skipped.
const CHANGING_BYTES: u64 = 64 << 20;

/// The savings from which on a new memory is written. Writing one takes about as long as asking the kernel for the
/// metadata of this many entries, or as reading this many bytes.
const WORTH: Worth = Worth { entries: 24, bytes: 512 << 10 };

#[derive(Debug, Clone, Copy)]
struct Worth {
    entries: usize,
    bytes: u64,
}

/// Size in bytes up to which one thread reads all files. For so little data, starting threads takes longer than
/// reading.
const FOR_ONE_THREAD_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct Survey {
    /// Permission bits of the tree's root directory.
    pub mode: u32,
    /// The entries, sorted by path.
    pub entries: Vec<Arc<Named>>,
    /// Reads the chunks of the files after they were [located](Sources::locate).
    pub sources: Sources,
    /// The memory for the next survey; `None` if writing a new memory does not pay.
    pub memory: Option<Memory>,
    /// For how many entries the kernel was asked for metadata.
    pub asked: usize,
}

/// Describes everything below `path` except paths that `skips` accepts. Reads only files that are new or have changed
/// since `memory` was made. Reads nothing if `is_too_much` returns a reason, given the number of entries and bytes.
///
/// # Errors
/// The directory itself cannot be read, or the tree is too large.
pub fn survey(
    path: &Path,
    memory: &Memory,
    skips: &dyn Fn(&[u8]) -> bool,
    is_too_much: &dyn Fn(usize, u64) -> Option<String>,
) -> io::Result<Survey> {
    survey_at(path, memory, (skips, is_too_much), Seen::now(), WORTH)
}

/// The function for skipped paths, and the function that limits the number of entries and bytes.
type Terms<'a> = (&'a dyn Fn(&[u8]) -> bool, &'a dyn Fn(usize, u64) -> Option<String>);

/// Describes a tree like [`survey`], with `now` as the current time.
fn survey_at(
    path: &Path,
    memory: &Memory,
    (skips, is_too_much): Terms<'_>,
    now: i64,
    worth: Worth,
) -> io::Result<Survey> {
    let root = Arc::new(Root::open(path)?);
    let mut looked = Look::at(&root, memory, skips)?;
    if let Some(why) = is_too_much(looked.kept.len() + looked.fresh.len(), looked.bytes(memory)) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let mut sources = Sources::beneath(Arc::clone(&root));
    let read = read(&root, &looked, &mut sources);
    for (it, _) in looked.fresh.iter().zip(&read).filter(|(_, read)| read.is_none()) {
        looked.untrusted.insert(crate::paths::parent(&it.path).to_vec());
    }
    let merged = merge(memory, &looked, read);
    let entries = merged.iter().map(|it| Arc::clone(&it.named)).collect();
    let memory = pays(worth, &looked, &merged, memory, now).then(|| remember(&looked, &merged, memory, now));
    Ok(Survey { mode: looked.root.mode, entries, sources, memory, asked: looked.asked })
}

/// An entry of the tree, and where its metadata come from.
struct Merged {
    named: Arc<Named>,
    from: From,
}

enum From {
    /// The memory's record at this index.
    Memory(usize),
    /// The metadata that were just read from the disk.
    Look(Stat),
}

/// Reads new and changed entries in order. The result of an entry that cannot be read is `None`.
fn read(root: &Root, looked: &Looked, sources: &mut Sources) -> Vec<Option<(Arc<Named>, Stat)>> {
    let files = || looked.fresh.iter().filter(|it| it.stat.kind == Kind::File);
    let jobs: Vec<_> = files().map(|it| (it.path.as_slice(), it.stat.size)).collect();
    let threads = usize::from(jobs.iter().map(|(_, size)| size).sum::<u64>() < FOR_ONE_THREAD_BYTES);
    let mut hashed = hash_all(root, &jobs, threads, OnFailure::GoOn, 0, &|_| ()).into_iter();
    let mut describe = |it: &Fresh| {
        let (kind, stat) = match it.stat.kind {
            Kind::File => {
                let (content, stat) =
                    match hashed.next().flatten().expect("every file has a result unless the work stops") {
                        Ok(Hashed { content, stat, .. }) => (content, stat),
                        Err(HashError::Changed) => as_it_is(root, &it.path, sources).ok()?,
                        // The file has just vanished, or this user cannot read it.
                        Err(HashError::Gone | HashError::Read(_)) => return None,
                    };
                (EntryKind::File(content), stat)
            }
            Kind::Symlink => (EntryKind::Symlink { target: it.target.clone() }, it.stat),
            _ => (EntryKind::Directory, it.stat),
        };
        Some((Arc::new(Named::new(entry(&it.path, &stat, kind))), stat))
    };
    looked.fresh.iter().map(&mut describe).collect()
}

/// Merges unchanged and newly read entries by path.
fn merge(memory: &Memory, looked: &Looked, read: Vec<Option<(Arc<Named>, Stat)>>) -> Vec<Merged> {
    let mut merged = Vec::with_capacity(looked.kept.len() + read.len());
    let mut fresh = read.into_iter().flatten().peekable();
    for &place in &looked.kept {
        let record = memory.record(place as usize);
        while let Some((named, stat)) = fresh.next_if(|(named, _)| named.path.as_slice() < record.path) {
            merged.push(Merged { named, from: From::Look(stat) });
        }
        let named = Arc::new(Named::again(record.entry(), record.name));
        merged.push(Merged { named, from: From::Memory(place as usize) });
    }
    merged.extend(fresh.map(|(named, stat)| Merged { named, from: From::Look(stat) }));
    merged
}

/// Returns whether a new memory would save more time than writing it takes.
fn pays(worth: Worth, looked: &Looked, merged: &[Merged], memory: &Memory, now: i64) -> bool {
    let spared = merged.iter().filter_map(|it| match &it.from {
        From::Look(stat) if may_be_remembered(looked, &it.named.path, stat, now) => Some(stat),
        _ => None,
    });
    let (entries, bytes) = spared.fold((0, 0_u64), |(entries, bytes), stat| {
        let size = if stat.kind == Kind::File { stat.size } else { 0 };
        (entries + 1, bytes.saturating_add(size))
    });
    entries >= worth.entries || bytes >= worth.bytes || (memory.is_empty() && entries > 0)
}

fn may_be_remembered(looked: &Looked, path: &[u8], stat: &Stat, now: i64) -> bool {
    is_settled(stat, now) && (stat.kind != Kind::Directory || looked.may_trust(path))
}

fn remember(looked: &Looked, merged: &[Merged], memory: &Memory, now: i64) -> Memory {
    let may = |path: &[u8], stat| may_be_remembered(looked, path, stat, now);
    let mut writer = Writer::of(&looked.root, may(b"", &looked.root));
    for it in merged {
        match &it.from {
            From::Look(stat) => writer.entry(it.named.entry(), it.named.name(), stat, may(&it.named.path, stat)),
            From::Memory(place) => {
                let record = memory.record(*place);
                let is_trusted = record.kind != Kind::Directory || looked.may_trust(record.path);
                writer.again(&record, record.is_settled && is_trusted);
            }
        }
    }
    writer.finish()
}

fn entry(path: &[u8], stat: &Stat, kind: EntryKind) -> Entry {
    // A directory's time changes with its entries and so differs on each side.
    let modified_ns = if kind == EntryKind::Directory { 0 } else { stat.modified_ns };
    Entry { path: path.to_vec(), mode: stat.mode, modified_ns, kind }
}

/// Reads a file that is being written. Keeps its bytes in memory, because the file may change at any time.
fn as_it_is(root: &Root, path: &[u8], sources: &mut Sources) -> io::Result<(Content, Stat)> {
    let file = root.open_file(path)?;
    let stat = Stat::of(&file)?;
    if stat.size > CHANGING_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut content = Content::default();
    Chunker::new().split(&mut file.take(stat.size), |bytes| {
        content.size += bytes.len() as u64;
        content.chunks.push(Chunk { digest: sources.add_blob(bytes.to_vec()), len: bytes.len() as u32 });
    })?;
    Ok((content, stat))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn paths(survey: &Survey) -> Vec<String> {
        survey.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    #[test]
    fn survey_lists_all_entries_except_skipped_and_special_files() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let path = folder.path();
        fs::create_dir_all(path.join(".git/objects")).expect("writable");
        fs::create_dir(path.join("empty")).expect("writable");
        fs::write(path.join(".gitignore"), "config.h\n").expect("writable");
        fs::write(path.join("config.h"), "#define A 1\n").expect("writable");
        symlink("/usr/include", path.join("include")).expect("writable");
        nix::unistd::mkfifo(&path.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("writable");
        let mut survey = survey(path, &Memory::default(), &|path| path == b".git", &|_, _| None).expect("readable");
        assert_eq!(paths(&survey), [".gitignore", "config.h", "empty", "include"]);
        let EntryKind::File(content) = &survey.entries[1].kind else { panic!("a file") };
        let too_much = super::survey(path, &Memory::default(), &|_| false, &|files, bytes| {
            assert_eq!((files, bytes), (6, 21));
            Some("too much".to_owned())
        });
        assert_eq!(too_much.expect_err("over the limits").to_string(), "too much");
        let digest = content.chunks[0].digest;
        survey.sources.locate(survey.entries.iter().map(|it| it.entry()), &[digest]);
        assert_eq!(survey.sources.read_chunk(&digest).expect("the chunk exists"), b"#define A 1\n");
    }

    /// Surveys with a memory and replaces it. Everything counts as settled and is remembered at once.
    fn found(path: &Path, memory: &mut Memory) -> Vec<Arc<Named>> {
        // Longer than a tick, so that the next change is visible.
        std::thread::sleep(std::time::Duration::from_millis(12));
        let later = Seen::now() + 10_000_000_000;
        let all: Terms<'_> = (&|path| path.ends_with(b"skipped"), &|_, _| None);
        let worth = Worth { entries: 1, bytes: 1 };
        let survey = survey_at(path, memory, all, later, worth).expect("readable");
        if let Some(new) = survey.memory {
            *memory = new;
        }
        survey.entries
    }

    fn do_something(at: &Path, what: u8, text: u8) {
        let (path, other) = (at.join(["a", "b", "d", "d/e", "d/f", "d.x"][usize::from(what) % 6]), at.join("d/g"));
        // Operations that cannot succeed are skipped.
        let _ = match what / 6 {
            0 | 1 => fs::write(&path, vec![text; usize::from(text) % 5]),
            2 => fs::create_dir_all(&path),
            3 => fs::remove_file(&path),
            4 => crate::remove::remove_tree(&path),
            5 => fs::rename(&path, &other),
            6 => symlink(format!("to{text}"), &path),
            7 => fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700 + u32::from(text % 8))),
            8 => fs::write(path.join("skipped"), "x"),
            _ => fs::rename(&other, &path),
        };
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
        #[test]
        fn survey_with_a_memory_equals_one_without(steps in prop::collection::vec((0_u8..60, any::<u8>()), 1..12)) {
            let folder = tempfile::tempdir().expect("a temporary directory can be made");
            fs::create_dir_all(folder.path().join("d/e")).expect("writable");
            let mut memory = Memory::default();
            found(folder.path(), &mut memory);
            for (what, text) in steps {
                do_something(folder.path(), what, text);
                let with = found(folder.path(), &mut memory);
                prop_assert_eq!(&with, &found(folder.path(), &mut Memory::default()), "after {} {}", what, text);
                prop_assert!(with.iter().all(|it| **it == Named::new(it.entry().clone())), "entries have the digests of their content");
            }
        }
    }

    #[test]
    fn remembered_entries_are_not_read_again() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        fs::create_dir(folder.path().join("d")).expect("writable");
        fs::write(folder.path().join("d/file"), "text").expect("writable");
        let mut memory = Memory::default();
        let first = found(folder.path(), &mut memory);
        let root = Root::open(folder.path()).expect("exists");
        let looked = Look::at(&root, &memory, &|_| false).expect("readable");
        assert_eq!((looked.kept.len(), looked.fresh.len()), (2, 0));
        let again = survey(folder.path(), &memory, &|_| false, &|_, _| None).expect("readable");
        assert_eq!(again.entries, first);
        assert!(again.memory.is_none(), "an unchanged tree gives no new memory");
        // The file was created just now, so a later change might have the same stamp.
        let new = survey(folder.path(), &Memory::default(), &|_| false, &|_, _| None).expect("readable");
        assert!(new.memory.is_none(), "recent changes are not remembered");
        fs::write(folder.path().join("d/new"), "text").expect("writable");
        let looked = Look::at(&root, &memory, &|_| false).expect("readable");
        let fresh: Vec<_> = looked.fresh.iter().map(|it| it.path.as_slice()).collect();
        assert_eq!(fresh, [&b"d"[..], b"d/new"]);
    }

    /// Needs root, to switch to a user who cannot read everything.
    #[test]
    fn unreadable_entries_are_tried_again() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let mode = |name: &str, mode| {
            let set = fs::set_permissions(folder.path().join(name), std::os::unix::fs::PermissionsExt::from_mode(mode));
            set.expect("the test owns it");
        };
        fs::create_dir(folder.path().join("closed")).expect("writable");
        fs::write(folder.path().join("closed/file"), "text").expect("writable");
        fs::write(folder.path().join("secret"), "text").expect("writable");
        mode("", 0o755);
        let (path, mut memory) = (folder.path().to_owned(), Memory::default());
        let mut seen = |file, directory| {
            mode("secret", file);
            mode("closed", directory);
            let (path, before) = (path.clone(), memory.clone());
            let nobody = std::thread::spawn(move || {
                // SAFETY: the call takes only numbers and changes only this thread, which ends.
                let code = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
                assert_eq!(code, 0, "this test needs root");
                let mut memory = before;
                (found(&path, &mut memory), memory)
            });
            let (entries, after) = nobody.join().expect("the thread does not panic");
            memory = after;
            entries.iter().map(|it| String::from_utf8_lossy(&it.path).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(seen(0o600, 0o700), ["closed"]);
        assert_eq!(seen(0o600, 0o700), ["closed"]);
        assert_eq!(seen(0o644, 0o700), ["closed", "secret"]);
        assert_eq!(seen(0o644, 0o755), ["closed", "closed/file", "secret"]);
        assert_eq!(seen(0o600, 0o711), ["closed"]);
    }

    #[test]
    fn growing_file_is_captured_at_one_size() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(folder.path().join("log"), "first").expect("writable");
        let root = Root::open(folder.path()).expect("exists");
        let mut sources = Sources::default();
        let (content, stat) = as_it_is(&root, b"log", &mut sources).expect("readable");
        fs::write(folder.path().join("log"), "first, and more").expect("writable");
        assert_eq!((content.size, stat.size), (5, 5));
        assert_eq!(sources.read_chunk(&content.chunks[0].digest).expect("kept"), b"first");
    }
}
