//! Captures a folder: from a directory to a manifest, in two steps.
//!
//! [`Scan::of`] looks at the folder without reading files. It reports *all* problems in one error, so the user can
//! fix them together. [`Scan::capture`] then reads every file. An entry that cannot be captured is an error and
//! is never skipped: a job with a missing file would fail for no visible reason.
//!
//! Programs may write to the folder meanwhile. A file that grows is captured up to the length that it had when it was
//! opened. If a file is removed or renamed after the scan, the folder is scanned again.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use hostler_model::Digest;
use hostler_proto::manifest::{Entry, EntryKind, Manifest, VERSION};

use crate::beneath::{Kind, Root};
use crate::bounds::TooMuch;
use crate::hashing::{HashError, Hashed, OnFailure, hash_all};
use crate::ignores::{Ignored, LeftOut};
use crate::seen::Seen;
use crate::sources::{SourceError, Sources};
use crate::walk::{Found, Problem, Rules, WalkError, Walked, has_stat, walk};
use crate::wire::MAX_BLOB_BYTES;

/// How often a folder is scanned again because files were removed or renamed after the last scan.
const RESCANS: u32 = 10;

/// The pause before the folder is scanned again.
const RESCAN_PAUSE: Duration = Duration::from_millis(10);

/// The maximum size of the recently written files whose bytes a capture keeps in memory, in bytes. A program may
/// replace these files before they are uploaded.
const MOST_KEPT_BYTES: u64 = 32 << 20;

#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// Number of threads that read and hash; 0 (the default) means one per processor.
    pub threads: usize,
    /// The contents of the files at an earlier capture. Unchanged files are not read again.
    pub seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of files read so far.
    pub files: u64,
    /// Number of files in the folder.
    pub total_files: u64,
    /// Number of bytes read so far.
    pub bytes: u64,
    /// Size of all files in bytes.
    pub total_bytes: u64,
}

#[derive(Debug)]
pub struct Capture {
    pub manifest: Manifest,
    /// The digest of the manifest: the hash of the encoded manifest.
    pub digest: Digest,
    /// Reads the chunks again, including the encoded manifest.
    pub sources: Sources,
    /// The contents of the files, for the next capture; `None` if they equal [`CaptureOptions::seen`].
    pub seen: Option<Seen>,
    /// The number of files, without directories and links.
    pub files: u64,
    /// The number of files that had to be read.
    pub files_read: u64,
    /// The size of all files together, in bytes.
    pub bytes: u64,
    path: PathBuf,
    tracked: OnceLock<HashSet<Vec<u8>>>,
    never: Vec<Vec<u8>>,
}

impl Capture {
    /// Scans the folder again, but does not ask git again and does not count what the ignore files exclude.
    ///
    /// # Errors
    /// As [`Scan::of`].
    pub fn scan_again(self) -> Result<Scan, CaptureError> {
        Scan::with(&self.path, self.tracked, self.never, false)
    }

    /// Reads one chunk, or the manifest, again and checks it.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if the file has changed since the capture.
    pub fn read_chunk(&self, digest: &Digest) -> Result<Vec<u8>, SourceError> {
        self.sources.read_chunk(digest)
    }
}

/// The reason why a folder was not captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("cannot read the folder {}", .path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder holds entries that cannot be captured. The list contains all these entries, sorted by path.
    #[error("{}", listed(.0))]
    Uncapturable(Vec<Problem>),
    /// A file changed, or was removed or renamed, each time it was read.
    #[error("changed each time it was read: {}", .path.display())]
    Changed { path: PathBuf },
    /// A file could not be read although the scan found it readable.
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder exceeds a limit of [`crate::bounds`].
    #[error("the folder {} is too large: {what}", .path.display())]
    TooMuch {
        path: PathBuf,
        /// The exceeded limit.
        what: TooMuch,
    },
}

/// Number of entries that the message names.
const MOST_LISTED: usize = 20;

fn listed(problems: &[Problem]) -> String {
    let mut text = String::from("the folder contains entries that cannot be captured:");
    for problem in problems.iter().take(MOST_LISTED) {
        text.push_str(&format!("\n  {problem}"));
    }
    if let Some(more) = problems.len().checked_sub(MOST_LISTED).filter(|more| *more > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

/// A scanned folder. The scan has found no entry that cannot be captured.
#[derive(Debug)]
pub struct Scan {
    path: PathBuf,
    root: Arc<Root>,
    found: Vec<Found>,
    left_out: Vec<LeftOut>,
    ignored: Ignored,
    tracked: OnceLock<HashSet<Vec<u8>>>,
    /// Paths below the folder that are never captured.
    never: Vec<Vec<u8>>,
}

impl Scan {
    /// Scans the folder at `path`. Skips entries that `.gitignore` and `.hostlerignore` files exclude, and the
    /// directories left out by default. Takes files that git tracks even if a `.gitignore` names them.
    ///
    /// # Errors
    /// [`CaptureError::Folder`], or [`CaptureError::Uncapturable`] with all problems.
    pub fn of(path: &Path) -> Result<Self, CaptureError> {
        Self::without(path, &[])
    }

    /// Scans like [`Self::of`], but skips these directories if they are in the folder. No ignore file includes them.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn without(path: &Path, directories: &[PathBuf]) -> Result<Self, CaptureError> {
        let in_folder = |directory: &PathBuf| {
            let (folder, directory) = (path.canonicalize().ok()?, directory.canonicalize().ok()?);
            Some(directory.strip_prefix(folder).ok()?.as_os_str().as_bytes().to_vec())
        };
        Self::with(path, OnceLock::new(), directories.iter().filter_map(in_folder).collect(), true)
    }

    /// Scans the folder again, but does not ask git again and does not count what the ignore files exclude.
    fn again(self) -> Result<Self, CaptureError> {
        Self::with(&self.path, self.tracked, self.never, false)
    }

    fn with(
        path: &Path,
        tracked: OnceLock<HashSet<Vec<u8>>>,
        never: Vec<Vec<u8>>,
        counts: bool,
    ) -> Result<Self, CaptureError> {
        let on_error = |source| CaptureError::Folder { path: path.to_owned(), source };
        let root = Arc::new(Root::open(path).map_err(on_error)?);
        let Walked { found, problems, left_out, ignored } =
            walk(&root, &Rules::IgnoreFiles { tracked: &tracked, counts, never: &never }).map_err(
                |error| match error {
                    WalkError::Root(source) => on_error(source),
                    WalkError::TooMuch(what) => CaptureError::TooMuch { path: path.to_owned(), what },
                },
            )?;
        if !problems.is_empty() {
            return Err(CaptureError::Uncapturable(problems));
        }
        Ok(Self { path: path.to_owned(), root, found, left_out, ignored, tracked, never })
    }

    /// Returns the directories left out by default, sorted by kind and path.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns what the folder's ignore files exclude.
    #[must_use]
    pub fn ignored(&self) -> &Ignored {
        &self.ignored
    }

    /// Returns the size of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regular_files().map(|found| found.stat.size).sum()
    }

    fn regular_files(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|found| found.stat.kind == Kind::File)
    }

    /// Reads every file that is not in [`CaptureOptions::seen`], and builds the manifest. Calls `progress` after each
    /// file, from several threads.
    ///
    /// # Errors
    /// A file changes each time it is read, or cannot be read.
    pub fn capture(
        mut self,
        options: &CaptureOptions,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Capture, CaptureError> {
        let now = Seen::now();
        let mut hashed = HashMap::new();
        let mut rescans = 0;
        while let Some(gone) = self.hash(&options.seen, options.threads, &mut hashed, progress)? {
            if rescans == RESCANS {
                return Err(CaptureError::Changed { path: self.root.full(&gone) });
            }
            rescans += 1;
            thread::sleep(RESCAN_PAUSE);
            self = self.again()?;
        }
        let mut seen = Seen::default();
        let mut sources = Sources::beneath(self.root);
        let mut entries = Vec::with_capacity(self.found.len());
        let (mut files, mut files_read, mut bytes) = (0, 0, 0);
        for Found { path, mut stat, target } in self.found {
            let kind = match stat.kind {
                Kind::File => {
                    let content = if let Some(mut hashed) = hashed.remove(&path) {
                        sources.add_hashed(&path, &mut hashed);
                        files_read += 1;
                        // The manifest describes the file as it was read, even if its mode changed since the scan.
                        stat = hashed.stat;
                        hashed.content
                    } else {
                        let content = options.seen.recall(&path, &stat).expect("every other file was hashed");
                        sources.add_content(&path, content);
                        content.clone()
                    };
                    seen.remember(&path, &stat, &content, now);
                    files += 1;
                    bytes += content.size;
                    EntryKind::File(content)
                }
                Kind::Symlink => EntryKind::Symlink { target },
                _ => EntryKind::Directory,
            };
            entries.push(Entry { path, mode: stat.mode, modified_ns: stat.modified_ns, kind });
        }
        let manifest = Manifest { version: VERSION, entries };
        let encoded = hostler_proto::encode(&manifest);
        if encoded.len() > MAX_BLOB_BYTES {
            return Err(CaptureError::TooMuch { path: self.path, what: TooMuch::Manifest(MAX_BLOB_BYTES) });
        }
        let digest = sources.add_blob(encoded);
        let seen = (seen != options.seen).then_some(seen);
        Ok(Capture {
            manifest,
            digest,
            sources,
            seen,
            files,
            files_read,
            bytes,
            path: self.path,
            tracked: self.tracked,
            never: self.never,
        })
    }

    /// Hashes the files that are neither in `seen` nor in `hashed` yet, and adds them to `hashed`. Files that were hashed
    /// before and have changed are hashed again. Returns the path of a file that no longer exists, if any.
    fn hash(
        &self,
        seen: &Seen,
        threads: usize,
        hashed: &mut HashMap<Vec<u8>, Hashed>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Option<Vec<u8>>, CaptureError> {
        hashed.retain(|path, it| has_stat(&self.found, path, &it.stat));
        let is_new = |it: &&Found| !hashed.contains_key(&it.path) && seen.recall(&it.path, &it.stat).is_none();
        let jobs: Vec<_> = self.regular_files().filter(is_new).map(|it| (it.path.as_slice(), it.stat.size)).collect();
        let kept: u64 = hashed.values().filter_map(|it| it.kept.as_ref()).map(|bytes| bytes.len() as u64).sum();
        let (total_files, total_bytes) = (jobs.len() as u64, jobs.iter().map(|(_, size)| size).sum());
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let done = |size| {
            let bytes = bytes.fetch_add(size, Ordering::Relaxed) + size;
            let files = files.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { files, total_files, bytes, total_bytes });
        };
        let keeps = MOST_KEPT_BYTES.saturating_sub(kept);
        let answers = hash_all(&self.root, &jobs, threads, OnFailure::Stop, keeps, &done);
        let mut gone = None;
        // Work stops at the first failure, which need not be the first in order.
        for ((path, _), answer) in jobs.iter().zip(answers) {
            match answer {
                Some(Ok(answer)) => drop(hashed.insert(path.to_vec(), answer)),
                Some(Err(HashError::Gone)) => gone = Some(path.to_vec()),
                Some(Err(HashError::Changed)) => return Err(CaptureError::Changed { path: self.root.full(path) }),
                Some(Err(HashError::Read(source))) => {
                    return Err(CaptureError::Read { path: self.root.full(path), source });
                }
                None => {}
            }
        }
        Ok(gone)
    }
}

/// Scans and captures the folder at `path`: [`Scan::of`], then [`Scan::capture`].
///
/// # Errors
/// As [`Scan::of`] and [`Scan::capture`].
pub fn capture(
    path: &Path,
    options: &CaptureOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Capture, CaptureError> {
    Scan::of(path)?.capture(options, progress)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn excluded_files_are_counted_in_the_first_scan_only() {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in
            [(".gitignore", "*.log\n"), (".hostlerignore", "*.bin\n"), ("a.log", "a"), ("b.bin", "b")]
        {
            fs::write(dir.path().join(path), content).expect("writable");
        }
        let scan = Scan::of(dir.path()).expect("readable");
        assert_eq!(scan.ignored().files, 2);
        let again = scan.again().expect("readable");
        assert_eq!((again.ignored().files, again.found.len()), (0, 2));
    }
}
