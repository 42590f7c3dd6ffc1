//! Finds the changes that a run made to its work directory: files created, changed and removed.
//!
//! A file with the same metadata as in the [`Baseline`] is unchanged and is not read. Any other file is hashed. If
//! the bytes and the mode are the same, the file is unchanged too, even with other times. All results count, so no
//! `.gitignore` applies. Only Python's by-products (`__pycache__`, `*.pyc`) and `.hostler` are left out, unless they
//! were captured.
//!
//! One bad entry must not lose the other results: an entry that cannot be captured becomes a sentence in
//! [`Changes::problems`]. Only exceeding the limits of [`crate::bounds`] is an error.
//!
//! Processes that outlive the run may still write. A file that grows is captured up to its length at the start. If a
//! file is renamed or removed after the walk, the directory is walked again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hostler_proto::manifest::{Entry, EntryKind, Manifest, VERSION};

use crate::baseline::Baseline;
use crate::beneath::{Kind, Root, Stat};
use crate::bounds::TooMuch;
use crate::hashing::{HashError, Hashed, OnFailure, hash_all};
use crate::paths;
use crate::seen::{Seen, is_settled};
use crate::sources::Sources;
use crate::walk::{Found, Problem, ProblemReason, Rules, WalkError, Walked, has_stat, plain, walk};

/// How often the directory is walked again because files were removed or renamed after the last walk.
const REWALKS: u32 = 5;

/// The pause before the directory is walked again.
const REWALK_PAUSE: Duration = Duration::from_millis(20);

/// The maximum size of the recently written files whose bytes are kept in memory until the upload, in bytes.
const MOST_KEPT_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, Default)]
pub struct ChangesOptions {
    /// Number of threads that read and hash; 0 (the default) means one per processor.
    pub threads: usize,
}

/// The changes that a run made to its work directory.
#[derive(Debug, Default)]
pub struct Changes {
    /// Created and changed entries, with their parent directories.
    pub tree: Manifest,
    /// Paths of the laid out folder that no longer exist, sorted.
    pub removed: Vec<Vec<u8>>,
    /// Entries that could not be captured completely, one sentence each.
    pub problems: Vec<String>,
    /// Number of files that are missing in `tree` because they differed each time they were read.
    pub missed: usize,
    /// Reads the chunks of `tree`.
    pub sources: Sources,
}

/// Compares `directory` with the `manifest` that was laid out in `directory`. With an empty `baseline`, every file is
/// read.
///
/// # Errors
/// The directory exceeds a limit of [`crate::bounds`].
pub fn changes(
    directory: &Path,
    manifest: &Manifest,
    baseline: &Baseline,
    options: &ChangesOptions,
) -> Result<Changes, TooMuch> {
    let known: HashMap<&[u8], &Entry> = manifest.entries.iter().map(|entry| (entry.path.as_slice(), entry)).collect();
    let compared = Root::open(directory)
        .map_err(WalkError::Root)
        .and_then(|root| Comparison { root: Arc::new(root), known, baseline, options }.run(manifest));
    match compared {
        Ok(changes) => Ok(changes),
        Err(WalkError::Root(error)) => Ok(unreadable_directory(&error)),
        Err(WalkError::TooMuch(what)) => Err(what),
    }
}

/// Returns whether programs create `path` as a by-product, e.g. a cache, so that it is not part of the result.
fn is_byproduct(path: &[u8]) -> bool {
    path == b".hostler" || paths::name(path) == b"__pycache__" || path.ends_with(b".pyc")
}

/// Returns the changes for an unreadable work directory: one problem. Removed files are unknown, so none are listed.
fn unreadable_directory(error: &io::Error) -> Changes {
    let problem = match error.kind() {
        io::ErrorKind::NotFound => "The work directory no longer exists, so its files are lost.".to_owned(),
        _ => format!("The work directory cannot be read: {}.", plain(error)),
    };
    let tree = Manifest { version: VERSION, entries: Vec::new() };
    Changes { tree, problems: vec![problem], ..Changes::default() }
}

struct Comparison<'a> {
    root: Arc<Root>,
    known: HashMap<&'a [u8], &'a Entry>,
    baseline: &'a Baseline,
    options: &'a ChangesOptions,
}

impl Comparison<'_> {
    fn run(&self, manifest: &Manifest) -> Result<Changes, WalkError> {
        let now = Seen::now();
        let mut hashed = HashMap::new();
        let mut rewalks = 0;
        let Walked { found, mut problems, .. } = loop {
            let walked = walk(&self.root, &Rules::Skip(&|path| !self.known.contains_key(path) && is_byproduct(path)))?;
            if self.hash(&walked.found, &mut hashed) || rewalks == REWALKS {
                break walked;
            }
            rewalks += 1;
            thread::sleep(REWALK_PAUSE);
        };
        let mut sources = Sources::beneath(Arc::clone(&self.root));
        let mut changed: Vec<Option<Entry>> = Vec::with_capacity(found.len());
        let mut gone: HashSet<Vec<u8>> = HashSet::new();
        let mut missed = 0;
        for found in &found {
            let entry = match found.stat.kind {
                Kind::File if self.must_be_hashed(found) => match hashed.remove(&found.path) {
                    Some(Ok(hashed)) => {
                        let entry = self.changed_file(found, hashed, &mut sources);
                        problems.extend(entry.as_ref().and_then(|entry| self.growth(entry, &found.stat, now)));
                        entry
                    }
                    Some(Err(reason)) => {
                        missed += usize::from(reason == ProblemReason::Changing);
                        problems.push(Problem { path: found.path.clone(), reason });
                        None
                    }
                    None => {
                        gone.insert(found.path.clone());
                        None
                    }
                },
                Kind::File => None,
                Kind::Symlink => self.changed_link(found),
                _ => self.changed_directory(found),
            };
            changed.push(entry);
        }
        let removed = removed(manifest, &found, &gone, &problems);
        let tree = Manifest { version: VERSION, entries: with_parents(&found, changed) };
        problems.sort_unstable();
        let problems = problems.iter().map(|problem| format!("{problem}.")).collect();
        Ok(Changes { tree, removed, problems, missed, sources })
    }

    /// Returns whether the file must be hashed to know if it changed.
    fn must_be_hashed(&self, found: &Found) -> bool {
        let known_file = matches!(self.known.get(found.path.as_slice()), Some(Entry { kind: EntryKind::File(_), .. }));
        found.stat.kind == Kind::File && !(known_file && self.baseline.is_untouched(&found.path, &found.stat))
    }

    /// Hashes the files that may have changed and that are not in `hashed` yet, and adds them to `hashed`. Files that
    /// were hashed before and have changed, or had failed, are hashed again. Returns false if some files no longer exist.
    fn hash(&self, found: &[Found], hashed: &mut HashMap<Vec<u8>, Result<Hashed, ProblemReason>>) -> bool {
        hashed.retain(|path, it| it.as_ref().is_ok_and(|it| has_stat(found, path, &it.stat)));
        let is_new = |it: &&Found| self.must_be_hashed(it) && !hashed.contains_key(&it.path);
        let jobs: Vec<_> = found.iter().filter(is_new).map(|it| (it.path.as_slice(), it.stat.size)).collect();
        let kept: u64 = hashed.values().flatten().filter_map(|it| it.kept.as_ref()).map(|it| it.len() as u64).sum();
        let keeps = MOST_KEPT_BYTES.saturating_sub(kept);
        let answers = hash_all(&self.root, &jobs, self.options.threads, OnFailure::GoOn, keeps, &|_| ());
        let mut is_complete = true;
        for (&(path, _), answer) in jobs.iter().zip(answers) {
            let answer = match answer.expect("every file has a result unless the work stops") {
                Ok(answer) => Ok(answer),
                Err(HashError::Gone) => {
                    is_complete = false;
                    continue;
                }
                Err(HashError::Changed) => Err(ProblemReason::Changing),
                Err(HashError::Read(error)) => Err(ProblemReason::Unreadable(plain(&error))),
            };
            hashed.insert(path.to_vec(), answer);
        }
        is_complete
    }

    fn changed_file(&self, found: &Found, mut hashed: Hashed, sources: &mut Sources) -> Option<Entry> {
        let same = self.known.get(found.path.as_slice()).is_some_and(|entry| {
            matches!(&entry.kind, EntryKind::File(known) if *known == hashed.content)
                && self.has_mode(entry, &hashed.stat)
        });
        if same {
            return None;
        }
        sources.add_hashed(&found.path, &mut hashed);
        Some(entry(found, &hashed.stat, EntryKind::File(hashed.content)))
    }

    /// Returns a remark if the file has grown since the walk found it, or still grows.
    fn growth(&self, entry: &Entry, walked: &Stat, now: i64) -> Option<Problem> {
        let EntryKind::File(content) = &entry.kind else { return None };
        if is_settled(walked, now) && content.size == walked.size {
            return None;
        }
        let is_longer = |stat: Stat| stat.inode == walked.inode && stat.size > content.size;
        let is_growing = self.root.stat(&entry.path).is_ok_and(is_longer);
        let reason = ProblemReason::Growing { taken_bytes: content.size };
        is_growing.then(|| Problem { path: entry.path.clone(), reason })
    }

    fn changed_link(&self, found: &Found) -> Option<Entry> {
        let kind = EntryKind::Symlink { target: found.target.clone() };
        let same = self.known.get(found.path.as_slice()).is_some_and(|entry| entry.kind == kind);
        (!same).then(|| entry(found, &found.stat, kind))
    }

    /// Returns a directory if its mode changed. The time of a directory is ignored, because it changes with the
    /// directory's contents.
    fn changed_directory(&self, found: &Found) -> Option<Entry> {
        let same = self
            .known
            .get(found.path.as_slice())
            .is_some_and(|entry| entry.kind == EntryKind::Directory && self.has_mode(entry, &found.stat));
        (!same).then(|| entry(found, &found.stat, EntryKind::Directory))
    }

    /// Returns whether `stat` has the mode that `entry` was laid out with; layout drops the set-id bits.
    fn has_mode(&self, entry: &Entry, stat: &Stat) -> bool {
        match self.baseline.mode(&entry.path) {
            Some(mode) => stat.mode == mode,
            None => stat.mode == entry.mode || stat.mode == entry.mode & 0o1777,
        }
    }
}

fn entry(found: &Found, stat: &Stat, kind: EntryKind) -> Entry {
    Entry { path: found.path.clone(), mode: stat.mode, modified_ns: stat.modified_ns, kind }
}

/// Returns the entries of the manifest that are missing in the directory. Skips entries below unreadable directories,
/// since they may still exist.
fn removed(manifest: &Manifest, found: &[Found], gone: &HashSet<Vec<u8>>, problems: &[Problem]) -> Vec<Vec<u8>> {
    let here: HashSet<&[u8]> = found.iter().map(|it| it.path.as_slice()).collect();
    let unreadable: HashSet<&[u8]> = (problems.iter())
        .filter(|it| matches!(it.reason, ProblemReason::Unreadable(_) | ProblemReason::TooDeep))
        .map(|it| it.path.as_slice())
        .collect();
    let is_hidden = |path: &[u8]| ancestors(path).chain([path]).any(|it| unreadable.contains(it));
    (manifest.entries.iter())
        .map(|entry| entry.path.as_slice())
        .filter(|path| (!here.contains(path) || gone.contains(*path)) && !is_hidden(path))
        .map(<[u8]>::to_vec)
        .collect()
}

/// Returns the changed entries and their parent directories.
fn with_parents(found: &[Found], changed: Vec<Option<Entry>>) -> Vec<Entry> {
    let needed: BTreeSet<Vec<u8>> =
        changed.iter().flatten().flat_map(|entry| ancestors(&entry.path)).map(<[u8]>::to_vec).collect();
    (found.iter().zip(changed))
        .filter_map(|(found, changed)| {
            changed.or_else(|| needed.contains(&found.path).then(|| entry(found, &found.stat, EntryKind::Directory)))
        })
        .collect()
}

/// Iterates over the parent directories of `path`, nearest first, without the folder itself.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(paths::parent(path)), |path| Some(paths::parent(path)))
        .take_while(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::chunk::digest_of;

    #[test]
    fn file_that_changed_between_two_walks_is_hashed_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let names = ["replaced", "longer", "same", "gone", "replaced.tmp"];
        for name in names {
            fs::write(at(name), name).expect("writable");
        }
        let root = Arc::new(Root::open(dir.path()).expect("readable"));
        let (baseline, options) = (&Baseline::default(), &ChangesOptions::default());
        let comparison = Comparison { root: Arc::clone(&root), known: HashMap::new(), baseline, options };
        let walk = || walk(&root, &Rules::Skip(&|_| false)).expect("within the limits").found;
        let mut hashed = HashMap::new();
        assert!(comparison.hash(&walk(), &mut hashed));
        // An error says nothing about the file that has the path now.
        hashed.insert(b"same".to_vec(), Err(ProblemReason::Changing));
        fs::rename(at("replaced.tmp"), at("replaced")).expect("ours");
        fs::write(at("longer"), "longer than before").expect("writable");
        fs::remove_file(at("gone")).expect("ours");
        assert!(comparison.hash(&walk(), &mut hashed));
        let digest =
            |name: &str| hashed.get(name.as_bytes())?.as_ref().ok()?.content.chunks.first().map(|it| it.digest);
        for (name, content) in [("replaced", "replaced.tmp"), ("longer", "longer than before"), ("same", "same")] {
            assert_eq!(digest(name), Some(digest_of(content.as_bytes())), "{name}");
        }
        assert_eq!(digest("gone"), None);
    }

    #[test]
    fn kept_bytes_of_all_walks_together_stay_within_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Arc::new(Root::open(dir.path()).expect("readable"));
        let (baseline, options) = (&Baseline::default(), &ChangesOptions::default());
        let comparison = Comparison { root: Arc::clone(&root), known: HashMap::new(), baseline, options };
        let mut hashed = HashMap::new();
        for round in 0..3 {
            for index in 0..10 {
                fs::write(dir.path().join(format!("{round}-{index}")), vec![0; 1 << 20]).expect("writable");
            }
            let found = walk(&root, &Rules::Skip(&|_| false)).expect("within the limits").found;
            assert!(comparison.hash(&found, &mut hashed));
            let kept: usize = hashed.values().flatten().filter_map(|it| it.kept.as_ref()).map(Vec::len).sum();
            assert!(kept as u64 <= MOST_KEPT_BYTES, "{kept} bytes after round {round}");
        }
    }
}
