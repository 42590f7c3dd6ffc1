//! Bringing a captured folder to the head: only the chunks that it lacks.
//!
//! Nothing is remembered between attempts: whoever starts over asks what is missing, and what had arrived is not sent again.

use bytes::Bytes;
use hostler_model::Digest;
use hostler_snapshot::Capture;

use crate::{Client, ClientError, LocalError};

/// How many content bytes travel in one request: enough to keep the connection busy, little enough to hold in memory.
const REQUEST_BYTES: u64 = 4 << 20;

/// How many hashes are asked about in one request.
const DIGESTS_AT_ONCE: usize = 10_000;

/// How often to start over when the head loses chunks before the snapshot is committed. It collects garbage seldom.
const ROUNDS: usize = 3;

/// How far an upload has come, and in the end what it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// Chunks sent.
    pub chunks: usize,
    /// Their size in bytes, before compression.
    pub bytes: u64,
    /// Bytes that had to be sent.
    pub missing_bytes: u64,
    /// Chunks in the folder.
    pub total_chunks: usize,
}

/// Sends what the head lacks of `capture` and makes it known there as a whole. Safe to drop and to repeat.
///
/// # Errors
/// [`ClientError::Local`] when a file changed after it was captured; otherwise as for every call.
pub async fn upload(
    client: &Client,
    capture: &Capture,
    mut progress: impl FnMut(&Uploaded),
) -> Result<Uploaded, ClientError> {
    let all: Vec<Digest> = capture.sources.digests().collect();
    let mut done = Uploaded { total_chunks: all.len(), ..Uploaded::default() };
    let mut rounds_left = ROUNDS;
    loop {
        send_missing(client, capture, &all, &mut done, &mut progress).await?;
        rounds_left -= 1;
        match client.commit_snapshot(&capture.digest).await {
            Ok(()) => return Ok(done),
            Err(error) if error.code() == Some("chunks_missing") && rounds_left > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

async fn send_missing(
    client: &Client,
    capture: &Capture,
    all: &[Digest],
    done: &mut Uploaded,
    progress: &mut impl FnMut(&Uploaded),
) -> Result<(), ClientError> {
    let length = |digest: &Digest| capture.sources.length(digest).unwrap_or(0);
    let mut missing = Vec::new();
    for asked in all.chunks(DIGESTS_AT_ONCE) {
        missing.extend(client.missing_blobs(asked.to_vec()).await?);
    }
    done.missing_bytes = done.bytes + missing.iter().map(length).sum::<u64>();
    let mut rest = missing.as_slice();
    while !rest.is_empty() {
        let (request, after) = rest.split_at(first_request(rest, length));
        client.send_pack(pack(capture, request)?).await?;
        done.chunks += request.len();
        done.bytes += request.iter().map(length).sum::<u64>();
        progress(done);
        rest = after;
    }
    Ok(())
}

/// How many of `digests`, at least one, go into one request.
fn first_request(digests: &[Digest], length: impl Fn(&Digest) -> u64) -> usize {
    let mut bytes = 0;
    let fits = digests.iter().take_while(|digest| {
        bytes += length(digest);
        bytes <= REQUEST_BYTES
    });
    fits.count().max(1)
}

fn pack(capture: &Capture, digests: &[Digest]) -> Result<Bytes, ClientError> {
    let frames: Result<Vec<Vec<u8>>, _> = capture.sources.pack(digests).collect();
    match frames {
        Ok(frames) => Ok(frames.concat().into()),
        Err(error) => Err(LocalError::new("the folder changed while it was being sent", error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_by_size() {
        let digests: Vec<Digest> = (0..10).map(|i| Digest([i; 32])).collect();
        assert_eq!(first_request(&digests, |_| 1), 10);
        assert_eq!(first_request(&digests, |_| REQUEST_BYTES / 4), 4);
        assert_eq!(first_request(&digests, |_| REQUEST_BYTES * 2), 1);
    }
}
