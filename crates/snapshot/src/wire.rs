//! The form of a chunk on the network and on disk: one byte for the encoding, then the bytes, compressed if that
//! helps.
//!
//! Sender, receiver and store share the form, so a chunk is compressed only once. A receiver trusts nothing: it
//! decompresses at most [`MAX_BLOB_BYTES`] and compares the hash.

use std::cell::RefCell;
use std::io;

use hostler_model::Digest;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::get_frame_content_size;

use crate::chunk::digest_of;

/// The maximum size of the content of one digest, uncompressed, in bytes. File chunks have at most 1 MiB, but the
/// manifest of a folder with half a million files is longer.
pub const MAX_BLOB_BYTES: usize = 64 << 20;
/// The maximum size of a wire form, in bytes. Incompressible content is stored uncompressed, after one byte for the
/// form.
pub const MAX_WIRE_BYTES: usize = MAX_BLOB_BYTES + 1;

/// How many bytes at the start of a wire form contain the content's length: one byte for the form, and the header of a
/// zstd frame.
pub(crate) const START_BYTES: usize = 1 + 18;

const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// The zstd compression level: fast enough to saturate a gigabit link with one core.
const LEVEL: i32 = 1;

/// The reason why bytes are not the wire form of the expected content.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The first byte, which tells the form, is missing or unknown.
    #[error("the first byte of the chunk is missing or unknown")]
    Form,
    /// The decompressed content is longer than [`MAX_BLOB_BYTES`].
    #[error("the content is longer than {MAX_BLOB_BYTES} bytes")]
    TooLong,
    /// The compressed bytes are damaged.
    #[error("the compressed bytes are damaged")]
    Damaged(#[source] io::Error),
    /// The content has another hash.
    #[error("the content has the hash {found} instead")]
    OtherContent {
        /// The hash of the received content.
        found: Digest,
    },
}

thread_local! {
    // A context takes about 1 MiB, and creating one costs more than compressing a small file.
    static COMPRESSOR: RefCell<Compressor<'static>> =
        RefCell::new(Compressor::new(LEVEL).expect("creating a zstd context fails only without memory"));
    static DECOMPRESSOR: RefCell<Decompressor<'static>> =
        RefCell::new(Decompressor::new().expect("creating a zstd context fails only without memory"));
}

/// Encodes `raw` in the wire form.
#[must_use]
pub fn encode(raw: &[u8]) -> Vec<u8> {
    compressed(raw).unwrap_or_else(|| [[RAW].as_slice(), raw].concat())
}

/// Compresses `raw`; `None` if that saves less than an eighth, which is not worth the decompression.
fn compressed(raw: &[u8]) -> Option<Vec<u8>> {
    let mut wire = vec![0; 1 + raw.len() - raw.len() / 8];
    wire[0] = ZSTD;
    // The only possible failure is that the result does not fit into the buffer.
    let length = COMPRESSOR.with_borrow_mut(|zstd| zstd.compress_to_buffer(raw, &mut wire[1..])).ok()?;
    wire.truncate(1 + length);
    wire.shrink_to_fit();
    Some(wire)
}

/// Decodes a wire form and checks that the content has the hash `digest`.
///
/// # Errors
/// The wire form is damaged, too long or has another hash.
pub fn decode(digest: &Digest, wire: &[u8]) -> Result<Vec<u8>, WireError> {
    let raw = match wire.split_first() {
        Some((&RAW, raw)) if raw.len() <= MAX_BLOB_BYTES => raw.to_vec(),
        Some((&RAW, _)) => return Err(WireError::TooLong),
        Some((&ZSTD, frame)) => decompressed(frame)?,
        _ => return Err(WireError::Form),
    };
    verify(digest, &raw)?;
    Ok(raw)
}

/// Decodes like [`decode`], without allocating. The content is in `wire` itself or, if it was compressed, in `buffer`,
/// which grows if needed.
pub(crate) fn decode_into<'a>(digest: &Digest, wire: &'a [u8], buffer: &'a mut Vec<u8>) -> Result<&'a [u8], WireError> {
    let raw = match wire.split_first() {
        Some((&RAW, raw)) => raw,
        Some((&ZSTD, frame)) => {
            let length = length_of(frame)?;
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let room = &mut buffer[..length];
            let length = DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress_to_buffer(frame, room));
            &buffer[..length.map_err(WireError::Damaged)?]
        }
        _ => return Err(WireError::Form),
    };
    verify(digest, raw)?;
    Ok(raw)
}

/// Decompresses a frame that declares its length. Fails if the content is longer than declared or a second frame
/// follows.
fn decompressed(frame: &[u8]) -> Result<Vec<u8>, WireError> {
    let length = length_of(frame)?;
    DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress(frame, length)).map_err(WireError::Damaged)
}

/// Returns the declared content length of a frame, in bytes.
fn length_of(frame: &[u8]) -> Result<usize, WireError> {
    let damaged = || WireError::Damaged(io::Error::other("not a valid frame"));
    let length = get_frame_content_size(frame).ok().flatten().ok_or_else(damaged)?;
    if length > MAX_BLOB_BYTES as u64 { Err(WireError::TooLong) } else { Ok(length as usize) }
}

/// Returns the content length that the start of a wire form declares; `None` if the start is invalid. The wire form has
/// `wire_bytes` bytes; its first [`START_BYTES`] suffice.
pub(crate) fn content_length(start: &[u8], wire_bytes: u64) -> Option<u64> {
    match start.split_first() {
        Some((&RAW, _)) => Some(wire_bytes - 1),
        Some((&ZSTD, frame)) => get_frame_content_size(frame).ok().flatten(),
        _ => None,
    }
}

/// Checks that `raw` has the hash `digest`.
///
/// # Errors
/// [`WireError::OtherContent`] if it does not; [`WireError::TooLong`] if it exceeds the limit.
pub fn verify(digest: &Digest, raw: &[u8]) -> Result<(), WireError> {
    if raw.len() > MAX_BLOB_BYTES {
        return Err(WireError::TooLong);
    }
    let found = digest_of(raw);
    if found == *digest { Ok(()) } else { Err(WireError::OtherContent { found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressed_and_noise_is_not() {
        let text = b"the same line again\n".repeat(1000);
        let wire = encode(&text);
        assert!(wire[0] == ZSTD && wire.len() < text.len() / 10);
        assert_eq!(decode(&digest_of(&text), &wire).expect("encoded chunks can be decoded"), text);

        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let wire = encode(&noise);
        assert!(wire[0] == RAW && wire.len() == noise.len() + 1);
        assert_eq!(decode(&digest_of(&noise), &wire).expect("encoded chunks can be decoded"), noise);

        assert_eq!(decode(&digest_of(b""), &encode(b"")).expect("encoded chunks can be decoded"), b"");
    }

    #[test]
    fn reused_buffer_shows_no_earlier_content() {
        let mut buffer = Vec::new();
        for raw in [b"long ".repeat(9000), b"short ".repeat(90), b"x".to_vec(), Vec::new()] {
            let wire = encode(&raw);
            assert_eq!(decode_into(&digest_of(&raw), &wire, &mut buffer).expect("encoded chunks can be decoded"), raw);
        }
        // A second frame does not fit, whatever capacity an earlier chunk has left in the buffer.
        let [one, two] = [b"one", b"two"].map(|raw| zstd::bulk::compress(raw, 1).expect("memory suffices"));
        let chained = [[ZSTD].as_slice(), &one, &two].concat();
        assert!(matches!(decode_into(&digest_of(b"onetwo"), &chained, &mut buffer), Err(WireError::Damaged(_))));
    }

    #[test]
    fn decompression_bombs_are_refused_early() {
        // 1 GiB of zeros in about 32 KiB, with the true length declared.
        let frame = zstd::bulk::compress(&vec![0; 1 << 30], 19).expect("memory suffices");
        let bomb = [[ZSTD].as_slice(), &frame].concat();
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(decode(&digest_of(b""), &bomb), Err(WireError::TooLong)));

        // The same bytes behind a frame that declares a small length: the second frame does not fit.
        let small = zstd::bulk::compress(b"small", 1).expect("memory suffices");
        let chained = [[ZSTD].as_slice(), &small, &frame].concat();
        assert!(matches!(decode(&digest_of(b"small"), &chained), Err(WireError::Damaged(_))));
    }

    #[test]
    fn wrong_content_and_unknown_encodings_are_refused() {
        assert!(matches!(decode(&digest_of(b"a"), &encode(b"b")), Err(WireError::OtherContent { .. })));
        assert!(matches!(decode(&digest_of(b"a"), &[]), Err(WireError::Form)));
        assert!(matches!(decode(&digest_of(b"a"), &[7, b'a']), Err(WireError::Form)));
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_are_errors(wire: Vec<u8>) {
            proptest::prop_assert!(decode(&digest_of(b"x"), &wire).is_err());
        }
    }
}
