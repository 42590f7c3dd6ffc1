//! Content-defined chunks: where content is cut and how a piece is named.
//!
//! Boundaries depend on the bytes around them (FastCDC, 2020 variant), so an insertion in a large file changes one or two
//! chunks, not all that follow. The parameters are frozen: other boundaries would still be correct, but would share
//! nothing with what heads and nodes already hold. A test pins the cut points of a known input.

use std::io::{self, Read};

use fastcdc::v2020;
use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content};

/// The smallest chunk but the last of a file, in bytes. Shorter content is one chunk.
pub const MIN_BYTES: usize = 64 << 10;
/// The chunk length that boundaries aim at, in bytes.
pub const AVERAGE_BYTES: usize = 256 << 10;
/// The largest chunk, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The name of `bytes`: their BLAKE3 hash.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// Reads `reader` to its end and names its chunks, holding a few MiB at a time.
///
/// # Errors
/// Those of the reader.
pub fn content_of(reader: &mut impl Read) -> io::Result<Content> {
    Chunker::new().content_of(reader)
}

/// Cuts content into chunks with a buffer that is kept between files.
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
    /// Two of the largest chunks: each refill then reads at least one, and moves at most one to the front.
    const BUFFER_BYTES: usize = 2 * MAX_BYTES;

    /// A chunker with an empty buffer of 2 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buffer: vec![0; Self::BUFFER_BYTES],
            masks: v2020::select_masks(AVERAGE_BYTES, v2020::Normalization::Level1),
        }
    }

    /// Reads `reader` to its end and names its chunks.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn content_of(&mut self, reader: &mut impl Read) -> io::Result<Content> {
        let mut content = Content::default();
        self.split(reader, |bytes| {
            content.size += bytes.len() as u64;
            content.chunks.push(Chunk { digest: digest_of(bytes), len: bytes.len() as u32 });
        })?;
        Ok(content)
    }

    /// Reads `reader` to its end and hands out its chunks in order.
    ///
    /// # Errors
    /// Those of the reader; chunks before the failure have been handed out.
    pub fn split(&mut self, reader: &mut impl Read, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut start, mut end, mut at_end) = (0, 0, false);
        loop {
            // A cut is only final when it could see a whole largest chunk, or the end of the content.
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
                return Ok(());
            }
            let length = self.cut(&self.buffer[start..end]);
            each(&self.buffer[start..start + length]);
            start += length;
        }
    }

    /// The length of the first chunk of `bytes`, which is not empty.
    fn cut(&self, bytes: &[u8]) -> usize {
        let (small, large) = self.masks;
        v2020::cut(bytes, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES, small, large, small << 1, large << 1).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes on every machine and in every version.
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
    fn boundaries_are_frozen() {
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
    fn short_content_is_one_chunk_and_none_is_no_chunk() {
        let content = content_of(&mut noise(MIN_BYTES).as_slice()).expect("memory can be read");
        assert_eq!(content.chunks, [Chunk { digest: digest_of(&noise(MIN_BYTES)), len: MIN_BYTES as u32 }]);
        assert_eq!(content_of(&mut io::empty()).expect("memory can be read"), Content::default());
    }
}
