//! Reads the chunks of a manifest again from the files that they were hashed from.
//!
//! Capturing copies nothing. Once the head has named the chunks that it lacks, they are read a second time and
//! checked against their hashes. A file edited in between is detected and not sent.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};

use crate::beneath::{Kind, Root, Stat, is_gone, read_at};
use crate::chunk::{Chunker, digest_of};
use crate::hashing::Hashed;
use crate::{pack, wire};

/// The reason why a chunk could not be read again.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The chunk is not part of the [`Sources`].
    #[error("chunk {0} is not part of the captured files")]
    Unknown(Digest),
    /// The file has changed since it was hashed, or it no longer exists.
    #[error("changed while it was being read: {}", .path.display())]
    Changed { path: PathBuf },
    /// The chunk exceeds the maximum size of a pack.
    #[error(transparent)]
    Pack(#[from] pack::PackError),
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The digests of chunks and the files that contain them.
#[derive(Debug, Default)]
pub struct Sources {
    root: Option<Arc<Root>>,
    files: Vec<FileAt>,
    places: HashMap<Digest, Place>,
    blobs: HashMap<Digest, Vec<u8>>,
}

#[derive(Debug)]
enum FileAt {
    /// A path relative to the root of the snapshot.
    Beneath(Vec<u8>),
    /// A file that the program itself chose. The file stays open, because another file may get its path later.
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

    /// Adds the chunks of a hashed file beneath the root.
    pub(crate) fn add_hashed(&mut self, path: &[u8], hashed: &mut Hashed) {
        let Some(bytes) = hashed.kept.take() else { return self.add_content(path, &hashed.content) };
        let mut rest = bytes.as_slice();
        for chunk in &hashed.content.chunks {
            let (start, end) = rest.split_at(chunk.len as usize);
            self.blobs.insert(chunk.digest, start.to_vec());
            rest = end;
        }
    }

    /// Adds the chunks of a file beneath the root.
    pub(crate) fn add_content(&mut self, path: &[u8], content: &Content) {
        self.add_places(FileAt::Beneath(path.to_vec()), content);
    }

    /// Finds out where the `wanted` chunks are in files beneath the root.
    pub fn locate<'e>(&mut self, files: impl IntoIterator<Item = &'e Entry>, wanted: &[Digest]) {
        let mut wanted: HashSet<&Digest> = wanted.iter().filter(|digest| self.length(digest).is_none()).collect();
        for entry in files {
            let EntryKind::File(content) = &entry.kind else { continue };
            if wanted.is_empty() {
                return;
            }
            if content.chunks.iter().any(|chunk| wanted.contains(&chunk.digest)) {
                wanted.retain(|digest| content.chunks.iter().all(|chunk| chunk.digest != **digest));
                self.add_content(&entry.path, content);
            }
        }
    }

    /// Adds the first `most` bytes of one of the program's own files, such as a job's output. Returns the content and
    /// the full length of the file, which may grow later. The file stays open as long as these sources exist.
    ///
    /// # Errors
    /// The file cannot be read, is a link or is not a regular file.
    pub fn add_file(&mut self, path: &Path, most: u64) -> io::Result<(Content, u64)> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let stat = Stat::of(&file)?;
        if stat.kind != Kind::File {
            return Err(io::Error::other("not a regular file"));
        }
        let content = Chunker::new().content_of_file(&file, stat.size.min(most))?;
        self.add_places(FileAt::Open { path: path.to_owned(), file }, &content);
        Ok((content, stat.size))
    }

    /// Adds bytes as one chunk that is kept in memory, such as an encoded manifest.
    pub fn add_blob(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = digest_of(&bytes);
        self.blobs.insert(digest, bytes);
        digest
    }

    fn add_places(&mut self, file: FileAt, content: &Content) {
        let index = u32::try_from(self.files.len()).expect("there are fewer than four thousand million files");
        let mut offset = 0;
        for &Chunk { digest, len } in &content.chunks {
            self.places.entry(digest).or_insert(Place { file: index, len, offset });
            offset += u64::from(len);
        }
        self.files.push(file);
    }

    /// Iterates over the digests of all chunks, each once, in no particular order.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        self.blobs.keys().chain(self.places.keys().filter(|it| !self.blobs.contains_key(it))).copied()
    }

    /// Returns the length of the chunk `digest`; `None` if the chunk is not part of these sources.
    #[must_use]
    pub fn length(&self, digest: &Digest) -> Option<u64> {
        let blob = self.blobs.get(digest).map(|bytes| bytes.len() as u64);
        blob.or_else(|| self.places.get(digest).map(|place| u64::from(place.len)))
    }

    /// Reads one chunk again and checks it.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if the file no longer holds it.
    pub fn read_chunk(&self, digest: &Digest) -> Result<Vec<u8>, SourceError> {
        if let Some(bytes) = self.blobs.get(digest) {
            return Ok(bytes.clone());
        }
        let place = self.places.get(digest).ok_or(SourceError::Unknown(*digest))?;
        let file = &self.files[place.file as usize];
        let bytes = match self.read(file, place) {
            Ok(bytes) => bytes,
            Err(error) if is_gone(&error) => {
                return Err(SourceError::Changed { path: self.full_path(file) });
            }
            Err(source) => return Err(SourceError::Read { path: self.full_path(file), source }),
        };
        if digest_of(&bytes) == *digest { Ok(bytes) } else { Err(SourceError::Changed { path: self.full_path(file) }) }
    }

    /// Iterates over the frames of a [`pack`] of the `wanted` chunks. Reads and compresses each chunk when its frame is
    /// requested.
    pub fn pack<'a>(&'a self, wanted: &'a [Digest]) -> impl Iterator<Item = Result<Vec<u8>, SourceError>> + 'a {
        wanted.iter().map(|digest| Ok(pack::frame(digest, &wire::encode(&self.read_chunk(digest)?))?))
    }

    fn read(&self, file: &FileAt, place: &Place) -> io::Result<Vec<u8>> {
        let read = |file: &File| read_at(file, place.offset, place.len as usize);
        match (file, &self.root) {
            (FileAt::Beneath(path), Some(root)) => read(&root.open_file(path)?),
            (FileAt::Beneath(_), None) => unreachable!("files beneath a root exist only in sources with a root"),
            (FileAt::Open { file, .. }, _) => read(file),
        }
    }

    fn full_path(&self, file: &FileAt) -> PathBuf {
        match (file, &self.root) {
            (FileAt::Beneath(path), Some(root)) => root.full(path),
            (FileAt::Beneath(_), None) => unreachable!("files beneath a root exist only in sources with a root"),
            (FileAt::Open { path, .. }, _) => path.clone(),
        }
    }
}
