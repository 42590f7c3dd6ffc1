//! Uploads a captured folder: only the chunks that the head lacks.
//!
//! No state is kept between attempts: a new attempt queries the missing chunks, so received chunks are not sent again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hostler_model::Digest;
use hostler_snapshot::Capture;

use crate::{Client, ClientError, LocalError};

/// Maximum size of the content of a request, in bytes. Large requests keep a fast connection busy.
const MOST_REQUEST_BYTES: u64 = 4 << 20;
/// Size of the content of the first request, and the minimum size. Small requests show progress on a slow line, and
/// lose little if the line breaks.
const FIRST_REQUEST_BYTES: u64 = 256 << 10;

/// Duration below which a request counts as quick. After a quick request, the next one may be larger.
const QUICK: Duration = Duration::from_secs(1);

const DIGESTS_AT_ONCE: usize = 10_000;

/// Number of attempts if the head's garbage collection deletes chunks before the commit, which is rare.
const ROUNDS: usize = 3;

/// Progress and result of an upload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// Number of chunks sent.
    pub chunks: usize,
    /// Size of the sent chunks in bytes, before compression.
    pub bytes: u64,
    /// Bytes to send in total.
    pub missing_bytes: u64,
    /// Number of chunks in the folder.
    pub total_chunks: usize,
}

/// Sends the chunks of `capture` that the head lacks, and commits the snapshot. Idempotent, and safe to cancel.
///
/// # Errors
/// [`ClientError::Local`] if a file changed after the capture; else see [`ClientError`].
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

/// The size of the next request, given the size and duration of the last one.
fn next_size(bytes: u64, took: Duration) -> u64 {
    if took < QUICK { (bytes * 2).min(MOST_REQUEST_BYTES) } else { (bytes / 2).max(FIRST_REQUEST_BYTES) }
}

/// How many of `digests` fit into a request of `most_bytes`; at least one.
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
        Err(error) => Err(LocalError::new("the folder changed during the upload", error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_by_size() {
        let digests: Vec<Digest> = (0..10).map(|i| Digest([i; 32])).collect();
        assert_eq!(first_request(&digests, 4000, |_| 1), 10);
        assert_eq!(first_request(&digests, 4000, |_| 1000), 4);
        assert_eq!(first_request(&digests, 4000, |_| 8000), 1);
    }

    #[test]
    fn request_size_adapts_to_the_speed_of_the_line() {
        let after =
            |took: u64| (0..10).fold(FIRST_REQUEST_BYTES * 2, |bytes, _| next_size(bytes, Duration::from_millis(took)));
        assert_eq!((after(10), after(2_000)), (MOST_REQUEST_BYTES, FIRST_REQUEST_BYTES));
    }
}
