//! Capturing a folder: from a directory to a manifest, in two steps.
//!
//! [`Scan::of`] looks without reading and names *everything* that cannot be captured in one error, so that nobody fixes a
//! folder one complaint at a time. [`Scan::capture`] then reads every file once. What cannot be captured is refused rather
//! than left out: a job that lacks a file fails in a way that its owner cannot explain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hostler_model::Digest;
use hostler_proto::manifest::{Entry, EntryKind, Manifest, VERSION};

use crate::beneath::{Kind, Root};
use crate::bounds::TooMuch;
use crate::hashing::{HashError, OnFailure, hash_all};
use crate::ignores::LeftOut;
use crate::seen::Seen;
use crate::sources::{SourceError, Sources};
use crate::walk::{Found, Problem, Rules, WalkError, Walked, walk};
use crate::wire::MAX_BLOB_BYTES;

/// How to capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// Threads that read and hash; 0 (the default) takes as many as there are processors.
    pub threads: usize,
    /// What the files held at an earlier capture.
    pub seen: Seen,
}

/// How far a capture has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files read.
    pub files: u64,
    /// Files in the folder.
    pub total_files: u64,
    /// Bytes of the files read.
    pub bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// A captured folder.
#[derive(Debug)]
pub struct Capture {
    /// What the folder holds.
    pub manifest: Manifest,
    /// The manifest's name: the hash of its encoding.
    pub digest: Digest,
    /// Where to read its chunks, the encoded manifest among them.
    pub sources: Sources,
    /// What the files hold, for the next capture; `None` when that is what the options said already.
    pub seen: Option<Seen>,
    /// How many files were read.
    pub files_read: u64,
}

impl Capture {
    /// The bytes of one chunk, or of the manifest, read again and checked.
    ///
    /// # Errors
    /// [`SourceError::Changed`] when the file has been edited since.
    pub fn read_chunk(&self, digest: &Digest) -> Result<Vec<u8>, SourceError> {
        self.sources.read_chunk(digest)
    }
}

/// Why a folder was not captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The folder itself cannot be read.
    #[error("cannot read the folder {}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folder holds what cannot be captured; all of it is listed, sorted by path.
    #[error("{}", listed(.0))]
    Uncapturable(Vec<Problem>),
    /// A file changed while it was being read.
    #[error("changed while it was being read: {}", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file that looked readable was not.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folder holds more than can travel.
    #[error("the folder {} is too large: {what}", .path.display())]
    TooMuch {
        /// The folder.
        path: PathBuf,
        /// What there is too much of.
        what: TooMuch,
    },
}

fn listed(problems: &[Problem]) -> String {
    let mut text = String::from("the folder holds what cannot be captured:");
    for problem in problems {
        text.push_str(&format!("\n  {problem}"));
    }
    text
}

/// A folder that has been looked at, and whose every part can be captured as far as looking tells.
#[derive(Debug)]
pub struct Scan {
    path: PathBuf,
    root: Arc<Root>,
    found: Vec<Found>,
    left_out: Vec<LeftOut>,
}

impl Scan {
    /// Looks through the folder at `path`, leaving out what its `.gitignore` and `.hostlerignore` files say, and what is left out by
    /// default.
    ///
    /// # Errors
    /// [`CaptureError::Folder`], or [`CaptureError::Uncapturable`] with everything that is in the way.
    pub fn of(path: &Path) -> Result<Self, CaptureError> {
        let on_error = |source| CaptureError::Folder { path: path.to_owned(), source };
        let root = Arc::new(Root::open(path).map_err(on_error)?);
        let Walked { found, problems, left_out } = walk(&root, &Rules::IgnoreFiles).map_err(|error| match error {
            WalkError::Root(source) => on_error(source),
            WalkError::TooMuch(what) => CaptureError::TooMuch { path: path.to_owned(), what },
        })?;
        if !problems.is_empty() {
            return Err(CaptureError::Uncapturable(problems));
        }
        Ok(Self { path: path.to_owned(), root, found, left_out })
    }

    /// Directories that are left out by default, sorted by kind and path.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// How many files the folder holds, without directories and links.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.regular_files().count() as u64
    }

    /// How many bytes its files hold.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regular_files().map(|found| found.stat.size).sum()
    }

    fn regular_files(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|found| found.stat.kind == Kind::File)
    }

    /// Reads every file that it has not seen, and writes the manifest. `progress` is called from several threads, after each
    /// file.
    ///
    /// # Errors
    /// When a file changes or vanishes meanwhile, or cannot be read after all.
    pub fn capture(
        self,
        options: &CaptureOptions,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Capture, CaptureError> {
        let now = Seen::now();
        let is_new = |found: &&Found| options.seen.recall(&found.path, &found.stat).is_none();
        let jobs = self.regular_files().filter(is_new).map(|found| (found.path.as_slice(), found.stat.size));
        let jobs: Vec<_> = jobs.collect();
        let (total_files, total_bytes) = (jobs.len() as u64, jobs.iter().map(|(_, size)| size).sum());
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let done = |size| {
            let bytes = bytes.fetch_add(size, Ordering::Relaxed) + size;
            let files = files.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { files, total_files, bytes, total_bytes });
        };
        let mut hashed = hash_all(&self.root, &jobs, options.threads, OnFailure::Stop, &done);
        // Work stopped at the first failure, which need not be the first in order: report that, not a file left unread.
        for ((path, _), answer) in jobs.iter().zip(&mut hashed) {
            if let Some(Err(error)) = answer.take_if(|answer| answer.is_err()) {
                return Err(self.failure(path, error));
            }
        }
        drop(jobs);
        let mut seen = Seen::default();

        let mut sources = Sources::beneath(self.root);
        let mut contents = hashed.into_iter().flatten().flatten();
        let mut entries = Vec::with_capacity(self.found.len());
        for Found { path, mut stat, target } in self.found {
            let kind = match stat.kind {
                Kind::File => {
                    let content = match options.seen.recall(&path, &stat) {
                        Some(content) => content.clone(),
                        None => {
                            let hashed = contents.next().expect("every file that was not seen was hashed");
                            // What was read is what the manifest describes, even if a mode changed since the scan.
                            stat = hashed.stat;
                            hashed.content
                        }
                    };
                    sources.add_hashed(&path, &content);
                    seen.remember(&path, &stat, &content, now);
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
        Ok(Capture { manifest, digest, sources, seen, files_read: total_files })
    }

    fn failure(&self, path: &[u8], error: HashError) -> CaptureError {
        let path = self.root.full(path);
        match error {
            HashError::Changed => CaptureError::Changed { path },
            HashError::Read(source) if source.kind() == io::ErrorKind::NotFound => CaptureError::Changed { path },
            HashError::Read(source) => CaptureError::Read { path, source },
        }
    }
}

/// Looks through the folder at `path` and captures it: [`Scan::of`], then [`Scan::capture`].
///
/// # Errors
/// Those of both.
pub fn capture(
    path: &Path,
    options: &CaptureOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Capture, CaptureError> {
    Scan::of(path)?.capture(options, progress)
}
