//! Content-defined chunking: chunk boundaries and chunk names.
//!
//! Boundaries depend on the bytes around them (FastCDC, 2020 variant), so an insertion into a large file changes only
//! one or two chunks. The parameters are frozen: other boundaries would still be correct, but would share nothing
//! with the chunks that heads and nodes already hold. A test pins the cut points of a known input.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use fastcdc::v2020;
use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content};

/// The minimum size of a chunk, in bytes. The last chunk of a file may be smaller.
pub const MIN_BYTES: usize = 64 << 10;
/// The target size of a chunk, in bytes.
pub const AVERAGE_BYTES: usize = 256 << 10;
/// The maximum size of a chunk, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Returns the digest of `bytes`: their BLAKE3 hash.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Reads `reader` to its end and returns the digests of its chunks. Uses a few MiB of memory.
///
/// # Errors
/// Errors of the reader.
pub fn content_of(reader: &mut impl Read) -> io::Result<Content> {
    Chunker::new().content_of(reader)
}

/// Splits content into chunks. Reuses its buffer between files.
#[derive(Debug)]
pub struct Chunker {
    buffer: Vec<u8>,
    masks: (u64, u64),
}

impl Default for Chunker {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunker {
    /// Room for two chunks of maximum size. Each refill then reads at least one and moves at most one to the front.
    const BUFFER_BYTES: usize = 2 * MAX_BYTES;

    /// Creates a chunker with an empty buffer of 2 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buffer: vec![0; Self::BUFFER_BYTES],
            masks: v2020::select_masks(AVERAGE_BYTES, v2020::Normalization::Level1),
        }
    }

    /// Reads `reader` to its end and returns the digests of its chunks.
    ///
    /// # Errors
    /// Errors of the reader.
    pub fn content_of(&mut self, reader: &mut impl Read) -> io::Result<Content> {
        let mut content = Content::default();
        self.split(reader, |bytes| {
            content.size += bytes.len() as u64;
            content.chunks.push(Chunk { digest: digest_of(bytes), len: bytes.len() as u32 });
        })?;
        Ok(content)
    }

    /// Computes the digests of the chunks of a newly opened file: of its first `size` bytes, or of the whole file if it
    /// is shorter. Does not read holes, because a user can make a file very long without using disk space.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn content_of_file(&mut self, file: &File, size: u64) -> io::Result<Content> {
        // For smaller files, looking for holes costs more than it saves.
        if size <= 2 * MAX_BYTES as u64 || file.metadata()?.blocks().saturating_mul(512) >= size {
            return self.content_of(&mut file.take(size));
        }
        let mut content = Content::default();
        let mut holes = Holes { file, at: 0, end: size, is_data: true, until: 0, hole: 0..0 };
        let zeros = vec![0; MAX_BYTES];
        let zero = Chunk { digest: digest_of(&zeros), len: MAX_BYTES as u32 };
        let are_whole = self.cut(&zeros) == MAX_BYTES;
        loop {
            // Inside a hole, all chunks are equal.
            while are_whole && holes.hole.contains(&content.size) && holes.hole.end - content.size >= MAX_BYTES as u64 {
                content.size += MAX_BYTES as u64;
                content.chunks.push(zero);
            }
            holes.at = content.size;
            let is_over = self.split_some(&mut holes, |holes, bytes| {
                content.size += bytes.len() as u64;
                content.chunks.push(Chunk { digest: digest_of(bytes), len: bytes.len() as u32 });
                let hole = &holes.hole;
                are_whole && hole.contains(&content.size) && hole.end - content.size >= MAX_BYTES as u64
            })?;
            if is_over {
                return Ok(content);
            }
        }
    }

    /// Reads `reader` to its end and passes its chunks to `each` in order.
    ///
    /// # Errors
    /// Errors of the reader. Chunks before the failure have been passed to `each`.
    pub fn split(&mut self, reader: &mut impl Read, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let each = |_: &_, bytes: &[u8]| {
            each(bytes);
            false
        };
        self.split_some(reader, each).map(drop)
    }

    /// Splits like [`Chunker::split`], but ends when `stops` returns true; bytes read beyond that chunk are lost.
    /// Returns whether the reader reached its end.
    fn split_some<R: Read>(&mut self, reader: &mut R, mut stops: impl FnMut(&R, &[u8]) -> bool) -> io::Result<bool> {
        let (mut start, mut end, mut at_end) = (0, 0, false);
        loop {
            // A cut is final only if it saw a chunk of maximum size or the end of the content.
            while !at_end && end - start < MAX_BYTES {
                if end == self.buffer.len() {
                    self.buffer.copy_within(start..end, 0);
                    (start, end) = (0, end - start);
                }
                match reader.read(&mut self.buffer[end..]) {
                    Ok(0) => at_end = true,
                    Ok(count) => end += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if start == end {
                return Ok(true);
            }
            let length = self.cut(&self.buffer[start..end]);
            if stops(reader, &self.buffer[start..start + length]) {
                return Ok(false);
            }
            start += length;
        }
    }

    /// Returns the length of the first chunk of `bytes`, which must not be empty.
    fn cut(&self, bytes: &[u8]) -> usize {
        let (small, large) = self.masks;
        v2020::cut(bytes, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES, small, large, small << 1, large << 1).1
    }
}

/// Reads a file and skips its holes.
struct Holes<'f> {
    file: &'f File,
    at: u64,
    end: u64,
    /// Whether the range from `at` to `until` holds data.
    is_data: bool,
    until: u64,
    /// The hole that was found last.
    hole: Range<u64>,
}

impl Holes<'_> {
    /// Determines whether the position `at` is in data or in a hole, and where that part ends. A file system without
    /// hole support reports only data.
    fn look(&mut self) {
        use nix::unistd::{Whence, lseek};
        let ask = |from: u64, what| lseek(self.file, from.cast_signed(), what).map(i64::cast_unsigned);
        let data = match ask(self.at, Whence::SeekData) {
            Ok(data) => data.min(self.end),
            Err(nix::errno::Errno::ENXIO) => self.end,
            Err(_) => self.at,
        };
        self.is_data = data == self.at;
        if self.is_data {
            // Advance by at least a byte, so that the loop ends.
            self.until = ask(self.at, Whence::SeekHole).unwrap_or(self.end).clamp(self.at + 1, self.end);
        } else {
            self.until = data;
            self.hole = self.at..data;
        }
    }
}

impl Read for Holes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.end || buffer.is_empty() {
            return Ok(0);
        }
        if self.at >= self.until {
            self.look();
        }
        let length = buffer.len().min(usize::try_from(self.until - self.at).unwrap_or(usize::MAX));
        let length = if self.is_data {
            self.file.read_at(&mut buffer[..length], self.at)?
        } else {
            buffer[..length].fill(0);
            length
        };
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn hole_has_the_same_chunks_as_zeros() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let (data, gap) = (noise(3_000_000), 9 << 20);
        let mut same = Vec::new();
        for round in 0..3 {
            file.write_all_at(&data, same.len() as u64).expect("writable");
            same.extend_from_slice(&data);
            same.resize(same.len() + gap + round * 4096, 0);
        }
        file.set_len(same.len() as u64).expect("sparse");
        assert!(
            file.metadata().expect("the file exists").blocks() * 512 < same.len() as u64,
            "the test needs a disk with holes"
        );
        let whole = content_of(&mut same.as_slice()).expect("memory can be read");
        assert_eq!(Chunker::new().content_of_file(&file, same.len() as u64).expect("readable"), whole);
        for size in [0, 1, 4_000_000, 5_000_000, 20_000_000] {
            file.rewind().expect("a file");
            let start = content_of(&mut &same[..size]).expect("memory can be read");
            assert_eq!(Chunker::new().content_of_file(&file, size as u64).expect("readable"), start, "{size}");
        }
    }

    #[test]
    fn large_sparse_file_is_chunked_quickly() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(200 << 30).expect("sparse");
        let began = Instant::now();
        let content = Chunker::new().content_of_file(&file, 200 << 30).expect("readable");
        assert_eq!((content.size, content.chunks.len()), (200 << 30, 200 << 10));
        assert!(began.elapsed() < Duration::from_secs(20), "chunking took {:?}", began.elapsed());
    }

    /// The same pseudo-random bytes on every machine and in every version.
    fn noise(length: usize) -> Vec<u8> {
        let mut reader = blake3::Hasher::new().finalize_xof();
        let mut bytes = vec![0; length];
        reader.fill(&mut bytes);
        bytes
    }

    fn lengths(content: &Content) -> Vec<u32> {
        content.chunks.iter().map(|chunk| chunk.len).collect()
    }

    #[test]
    fn chunk_boundaries_are_stable() {
        let content = content_of(&mut noise(2_000_000).as_slice()).expect("memory can be read");
        let frozen = [531_215, 93_777, 506_155, 463_976, 351_611, 53_266];
        assert_eq!(lengths(&content), frozen, "chunk boundaries changed: every stored chunk would be orphaned");
        assert_eq!(content.size, 2_000_000);
    }

    #[test]
    fn reads_of_any_size_give_the_same_chunks() {
        struct Dribble<'a>(&'a [u8], usize);
        impl Read for Dribble<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = self.1.min(buffer.len()).min(self.0.len());
                buffer[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let bytes = noise(5_000_001);
        let whole = content_of(&mut bytes.as_slice()).expect("memory can be read");
        for step in [4097, 65_536, 1 << 20] {
            assert_eq!(content_of(&mut Dribble(&bytes, step)).expect("memory can be read"), whole);
        }
        assert!(whole.chunks.iter().all(|chunk| chunk.len as usize <= MAX_BYTES));
    }

    #[test]
    fn an_insertion_changes_few_chunks() {
        let mut bytes = noise(8 << 20);
        let before = content_of(&mut bytes.as_slice()).expect("memory can be read");
        bytes.insert(3 << 20, b'!');
        let after = content_of(&mut bytes.as_slice()).expect("memory can be read");
        let new = after.chunks.iter().filter(|chunk| !before.chunks.contains(chunk)).count();
        assert!(new <= 3, "{new} of {} chunks are new", after.chunks.len());
    }

    #[test]
    fn short_content_is_one_chunk_and_empty_content_has_none() {
        let content = content_of(&mut noise(MIN_BYTES).as_slice()).expect("memory can be read");
        assert_eq!(content.chunks, [Chunk { digest: digest_of(&noise(MIN_BYTES)), len: MIN_BYTES as u32 }]);
        assert_eq!(content_of(&mut io::empty()).expect("memory can be read"), Content::default());
    }
}
