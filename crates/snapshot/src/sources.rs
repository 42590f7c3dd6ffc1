//! Where the chunks of a manifest can be read again: in the files that they were hashed from.
//!
//! Capturing copies nothing. When the head has said which chunks it lacks, they are read a second time, here, and checked
//! against their hash, so that a file edited in between is noticed instead of sent.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};

use crate::beneath::{Kind, Root, Stat, read_at};
use crate::chunk::{Chunker, digest_of};
use crate::{pack, wire};

/// Why a chunk could not be read again.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The chunk was never part of these sources.
    #[error("chunk {0} does not belong to what was captured")]
    Unknown(Digest),
    /// The file has other bytes now than when it was hashed, or is gone.
    #[error("changed while it was being read: {}", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The chunk is too long to travel.
    #[error(transparent)]
    Pack(#[from] pack::PackError),
    /// The file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Names of chunks and the places to read them from.
#[derive(Debug, Default)]
pub struct Sources {
    root: Option<Arc<Root>>,
    files: Vec<FileAt>,
    places: HashMap<Digest, Place>,
    blobs: HashMap<Digest, Vec<u8>>,
}

#[derive(Debug)]
enum FileAt {
    /// Beneath the root.
    Beneath(Vec<u8>),
    /// Anywhere, named by the program itself. Held open: what takes its place by name later is another file.
    Open { path: PathBuf, file: File },
}

#[derive(Debug, Clone, Copy)]
struct Place {
    file: u32,
    len: u32,
    offset: u64,
}

impl Sources {
    pub(crate) fn beneath(root: Arc<Root>) -> Self {
        Self { root: Some(root), ..Self::default() }
    }

    /// Adds the chunks of a file beneath the root that has been hashed.
    pub(crate) fn add_hashed(&mut self, path: &[u8], content: &Content) {
        self.add_places(FileAt::Beneath(path.to_vec()), content);
    }

    /// Finds out where to read these chunks, which are in files beneath the root.
    pub fn locate<'e>(&mut self, files: impl IntoIterator<Item = &'e Entry>, wanted: &[Digest]) {
        let mut wanted: HashSet<&Digest> = wanted.iter().filter(|digest| self.length(digest).is_none()).collect();
        for entry in files {
            let EntryKind::File(content) = &entry.kind else { continue };
            if wanted.is_empty() {
                return;
            }
            if content.chunks.iter().any(|chunk| wanted.contains(&chunk.digest)) {
                wanted.retain(|digest| content.chunks.iter().all(|chunk| chunk.digest != **digest));
                self.add_hashed(&entry.path, content);
            }
        }
    }

    /// Adds the first `most` bytes of a file of the program's own, such as a job's output, and names its chunks; also says how long the
    /// file is. The file may grow later; what is named is what it holds now. It stays open for as long as these sources live.
    ///
    /// # Errors
    /// When it cannot be read, or is a link or no regular file.
    pub fn add_file(&mut self, path: &Path, most: u64) -> io::Result<(Content, u64)> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let stat = Stat::of(&file)?;
        if stat.kind != Kind::File {
            return Err(io::Error::other("no regular file"));
        }
        let content = Chunker::new().content_of_file(&file, stat.size.min(most))?;
        self.add_places(FileAt::Open { path: path.to_owned(), file }, &content);
        Ok((content, stat.size))
    }

    /// Adds bytes that are kept in memory as one chunk, such as an encoded manifest.
    pub fn add_blob(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = digest_of(&bytes);
        self.blobs.insert(digest, bytes);
        digest
    }

    fn add_places(&mut self, file: FileAt, content: &Content) {
        let index =
            u32::try_from(self.files.len()).expect("manifests of four thousand million files do not fit anywhere");
        let mut offset = 0;
        for &Chunk { digest, len } in &content.chunks {
            self.places.entry(digest).or_insert(Place { file: index, len, offset });
            offset += u64::from(len);
        }
        self.files.push(file);
    }

    /// The names of all chunks, each once, in no particular order.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        self.blobs.keys().chain(self.places.keys().filter(|it| !self.blobs.contains_key(it))).copied()
    }

    /// How many bytes the chunk `digest` has, or `None` if it is not part of these sources.
    #[must_use]
    pub fn length(&self, digest: &Digest) -> Option<u64> {
        let blob = self.blobs.get(digest).map(|bytes| bytes.len() as u64);
        blob.or_else(|| self.places.get(digest).map(|place| u64::from(place.len)))
    }

    /// The bytes of one chunk, read again and checked.
    ///
    /// # Errors
    /// [`SourceError::Changed`] when the file no longer holds them.
    pub fn read_chunk(&self, digest: &Digest) -> Result<Vec<u8>, SourceError> {
        if let Some(bytes) = self.blobs.get(digest) {
            return Ok(bytes.clone());
        }
        let place = self.places.get(digest).ok_or(SourceError::Unknown(*digest))?;
        let file = &self.files[place.file as usize];
        let bytes = match self.read(file, place) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SourceError::Changed { path: self.full_path(file) });
            }
            Err(source) => return Err(SourceError::Read { path: self.full_path(file), source }),
        };
        if digest_of(&bytes) == *digest { Ok(bytes) } else { Err(SourceError::Changed { path: self.full_path(file) }) }
    }

    /// The frames of a [`pack`] that holds the chunks `wanted`, read and compressed one at a time as they are asked for.
    pub fn pack<'a>(&'a self, wanted: &'a [Digest]) -> impl Iterator<Item = Result<Vec<u8>, SourceError>> + 'a {
        wanted.iter().map(|digest| Ok(pack::frame(digest, &wire::encode(&self.read_chunk(digest)?))?))
    }

    fn read(&self, file: &FileAt, place: &Place) -> io::Result<Vec<u8>> {
        let read = |file: &File| read_at(file, place.offset, place.len as usize);
        match (file, &self.root) {
            (FileAt::Beneath(path), Some(root)) => read(&root.open_file(path)?),
            (FileAt::Beneath(_), None) => unreachable!("only sources with a root have files beneath it"),
            (FileAt::Open { file, .. }, _) => read(file),
        }
    }

    fn full_path(&self, file: &FileAt) -> PathBuf {
        match (file, &self.root) {
            (FileAt::Beneath(path), Some(root)) => root.full(path),
            (FileAt::Beneath(_), None) => unreachable!("only sources with a root have files beneath it"),
            (FileAt::Open { path, .. }, _) => path.clone(),
        }
    }
}
