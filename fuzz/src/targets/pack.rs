//! Packs of chunks: frames cut at any byte, and the compressed form of each chunk.

use hostler_model::Digest;
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{pack, wire};

use super::values;
use crate::Target;

pub(crate) const TARGET: Target = Target { name: "pack", about: "packs of compressed chunks", run, seeds };

/// A low limit, so that the fuzzer reaches it.
const LIMIT: usize = 4096;

/// The first byte is the size of the pieces in which the body arrives.
fn run(bytes: &[u8]) {
    let Some((step, body)) = bytes.split_first() else { return };
    let whole = read(body, body.len().max(1));
    assert_eq!(read(body, usize::from(*step).max(1)), whole, "the result must not depend on how the body is split");
    for frame in whole.0 {
        assert!(frame.wire.len() <= LIMIT);
        if let Ok(raw) = wire::decode(&frame.digest, &frame.wire) {
            assert_eq!(digest_of(&raw), frame.digest);
        }
        // The fuzzer cannot forge a hash. To test the code behind the check, decode again with the correct hash.
        if let Err(wire::WireError::OtherContent { found }) = wire::decode(&frame.digest, &frame.wire) {
            let raw = wire::decode(&found, &frame.wire).expect("only the digest was wrong");
            assert!(raw.len() <= wire::MAX_BLOB_BYTES && digest_of(&raw) == found);
            assert_eq!(wire::decode(&found, &wire::encode(&raw)).expect("just encoded"), raw);
        }
    }
}

/// Returns the frames and the outcome of the decoder.
fn read(body: &[u8], step: usize) -> (Vec<pack::Frame>, Result<(), pack::PackError>) {
    let mut decoder = pack::Decoder::new(LIMIT);
    let mut frames = Vec::new();
    for piece in body.chunks(step) {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    let outcome = decoder.finish();
    (frames, outcome)
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = |raw: &[u8]| pack::frame(&digest_of(raw), &wire::encode(raw)).expect("short");
    let text = b"the same line again\n".repeat(50);
    let two = [frame(values::CONTENT), frame(&text)].concat();
    let misnamed = pack::frame(&Digest([0; 32]), &wire::encode(&text)).expect("short");
    [frame(b""), two, misnamed].into_iter().map(|body| [vec![7], body].concat()).collect()
}
