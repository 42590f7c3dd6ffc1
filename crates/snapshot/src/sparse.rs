//! Keeps holes in files: long runs of zeros take no disk space.
//!
//! A manifest does not record holes, but a long hole consists of equal chunks of zeros. Such a chunk is recognised by its
//! digest and is neither read nor written. Shorter runs of zeros become holes when a file is written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use crate::beneath::read_at;
use crate::chunk::{MAX_BYTES, digest_of};

/// The size of a file system's blocks, in bytes. A hole consists of whole blocks.
const BLOCK_BYTES: usize = 4096;

/// The digest of the chunks that a long hole consists of.
static ZEROS: LazyLock<Digest> = LazyLock::new(|| digest_of(&vec![0; MAX_BYTES]));

/// Returns whether `chunk` is a part of a long hole: as many zeros as fit into a chunk.
pub(crate) fn is_zeros(chunk: &Chunk) -> bool {
    chunk.len as usize == MAX_BYTES && chunk.digest == *ZEROS
}

/// Returns the disk space that a file with this content takes at most, in bytes.
pub(crate) fn disk_bytes(content: &Content) -> u64 {
    let holes: u64 = content.chunks.iter().filter(|chunk| is_zeros(chunk)).map(|chunk| u64::from(chunk.len)).sum();
    content.size.saturating_sub(holes)
}

/// Returns whether `file` holds no data in the `length` bytes from `offset`. The range may be beyond the file's end.
pub(crate) fn is_hole(file: &File, offset: u64, length: u64) -> bool {
    match lseek(file, offset.cast_signed(), Whence::SeekData) {
        Ok(data) => data.cast_unsigned() >= offset.saturating_add(length),
        Err(Errno::ENXIO) => true,
        // The file system cannot tell.
        Err(_) => false,
    }
}

/// Returns whether `file` holds `chunk` at `offset`.
pub(crate) fn holds_chunk(file: &File, offset: u64, chunk: &Chunk) -> io::Result<bool> {
    let end = offset + u64::from(chunk.len);
    if is_zeros(chunk) && is_hole(file, offset, u64::from(chunk.len)) {
        return Ok(file.metadata()?.len() >= end);
    }
    Ok(digest_of(&read_at(file, offset, chunk.len as usize)?) == chunk.digest)
}

/// Writes `bytes` at `offset`, except zeros where the file has a hole. Returns whether it left out zeros. The file may
/// then be shorter than `offset + bytes.len()`: set its length in the end.
pub(crate) fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> io::Result<bool> {
    let to_block = |at: usize| BLOCK_BYTES - ((offset + at as u64) % BLOCK_BYTES as u64) as usize;
    let block_at = |at: usize| &bytes[at..bytes.len().min(at + to_block(at))];
    let (mut start, mut leaves_out) = (0, false);
    while start < bytes.len() {
        // Blocks of the same kind are one run.
        let is_zero = is_all_zeros(block_at(start));
        let mut end = start;
        while end < bytes.len() && is_all_zeros(block_at(end)) == is_zero {
            end += block_at(end).len();
        }
        let (at, run) = (offset + start as u64, &bytes[start..end]);
        if is_zero && is_hole(file, at, run.len() as u64) {
            leaves_out = true;
        } else {
            file.write_all_at(run, at)?;
        }
        start = end;
    }
    Ok(leaves_out)
}

/// Returns whether a block, or a part of one, consists of zeros.
fn is_all_zeros(block: &[u8]) -> bool {
    *block == [0; BLOCK_BYTES][..block.len()]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_bytes_replace_what_the_file_held(
            runs in prop::collection::vec((0_u8..2, 1_usize..9000), 1..6), offset in 0_u64..9000, old in 0_usize..20_000,
        ) {
            let bytes: Vec<u8> = runs.iter().flat_map(|&(byte, length)| vec![byte; length]).collect();
            let file = tempfile::tempfile().expect("a temporary file");
            file.write_all_at(&vec![7; old], 0).expect("writable");
            write_sparse(&file, &bytes, offset).expect("writable");
            let end = offset + bytes.len() as u64;
            file.set_len(end).expect("writable");
            prop_assert_eq!(read_at(&file, offset, bytes.len()).expect("readable"), bytes);
            let before = old.min(offset as usize);
            prop_assert_eq!(read_at(&file, 0, before).expect("readable"), vec![7; before]);
        }
    }

    #[test]
    fn runs_of_zeros_take_no_space() {
        let file = tempfile::tempfile().expect("a temporary file");
        let mut bytes = vec![0; 4 << 20];
        bytes[70_000] = 1;
        bytes[3 << 20] = 1;
        write_sparse(&file, &bytes, 0).expect("writable");
        file.set_len(bytes.len() as u64).expect("writable");
        assert_eq!(read_at(&file, 0, bytes.len()).expect("readable"), bytes);
        let metadata = file.metadata().expect("the file exists");
        assert!(metadata.blocks() * 512 <= 256 << 10, "the file takes {} blocks of 512 bytes", metadata.blocks());
    }
}
