//! Bringing a captured folder to the head: only the chunks that it lacks.
//!
//! Nothing is remembered between attempts: whoever starts over asks what is missing, and what had arrived is not sent again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hostler_model::Digest;
use hostler_snapshot::Capture;

use crate::{Client, ClientError, LocalError};

/// How many content bytes travel in one request: at most enough to keep the connection busy, little enough to hold in memory. On a slow
/// line fewer, so that it is seen how far the upload has come, and little is sent again when the line breaks.
const MOST_REQUEST_BYTES: u64 = 4 << 20;
const FIRST_REQUEST_BYTES: u64 = 256 << 10;

/// A request that took less than this may be larger the next time.
const QUICK: Duration = Duration::from_secs(1);

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
    let mut request_bytes = FIRST_REQUEST_BYTES;
    progress(done);
    while !rest.is_empty() {
        let (request, after) = rest.split_at(first_request(rest, request_bytes, length));
        let began = Instant::now();
        client.send_pack(pack(capture, request)?).await?;
        request_bytes = next_size(request_bytes, began.elapsed());
        done.chunks += request.len();
        done.bytes += request.iter().map(length).sum::<u64>();
        progress(done);
        rest = after;
    }
    Ok(())
}

/// How large the next request should be after one that took so long.
fn next_size(bytes: u64, took: Duration) -> u64 {
    if took < QUICK { (bytes * 2).min(MOST_REQUEST_BYTES) } else { (bytes / 2).max(FIRST_REQUEST_BYTES) }
}

/// How many of `digests`, at least one, go into one request of at most so many bytes.
fn first_request(digests: &[Digest], most_bytes: u64, length: impl Fn(&Digest) -> u64) -> usize {
    let mut bytes = 0;
    let fits = digests.iter().take_while(|digest| {
        bytes += length(digest);
        bytes <= most_bytes
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
        assert_eq!(first_request(&digests, 4000, |_| 1), 10);
        assert_eq!(first_request(&digests, 4000, |_| 1000), 4);
        assert_eq!(first_request(&digests, 4000, |_| 8000), 1);
    }

    #[test]
    fn requests_are_large_on_a_fast_line_and_small_on_a_slow_one() {
        let after =
            |took: u64| (0..10).fold(FIRST_REQUEST_BYTES * 2, |bytes, _| next_size(bytes, Duration::from_millis(took)));
        assert_eq!((after(10), after(2_000)), (MOST_REQUEST_BYTES, FIRST_REQUEST_BYTES));
    }
}
