//! Transfer of chunks between this node and the head.
//!
//! Users control the number of chunks and files, so all work except waiting runs outside the async runtime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use hostler_client::{Client, ClientError};
use hostler_model::Digest;
use hostler_proto::decode;
use hostler_proto::manifest::{EntryKind, Manifest, ResultManifest};
use hostler_snapshot::{ChunkStore, Sources, pack, wire};

use crate::account::Ids;
use crate::measure::metrics::Metrics;
use crate::mutex::lock;
use crate::rights::act_as;

/// Content bytes per request: enough to keep the connection busy, few enough to hold in memory.
const REQUEST_BYTES: u64 = 4 << 20;

/// Maximum number of hashes per query.
const DIGESTS_AT_ONCE: usize = 10_000;

/// Size in bytes from which on manifests are decoded one at a time.
const LARGE_MANIFEST_BYTES: u64 = 4 << 20;

/// Lock for decoding large manifests. Decoding needs several times their size in memory, outside any job's limits, and
/// many jobs may start at once.
static LARGE_MANIFESTS: Mutex<()> = Mutex::new(());

/// First and longest delay between attempts to reach the head.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Moves chunks between the node's store and the head.
#[derive(Clone)]
pub(crate) struct Transfer {
    pub(crate) head: Arc<Client>,
    pub(crate) chunks: Arc<ChunkStore>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether transfers fail, which is logged once.
    pub(crate) fails: Arc<AtomicBool>,
}

/// The files that a run starts with.
pub(crate) struct Folder {
    /// The captured folder, with which the run's files are compared at the end.
    pub(crate) captured: Manifest,
    /// The captured folder with the changes of an earlier attempt, if the run starts with those.
    changed: Option<Manifest>,
}

impl Folder {
    /// Returns the folder in which the run starts.
    pub(crate) fn start(&self) -> &Manifest {
        self.changed.as_ref().unwrap_or(&self.captured)
    }

    /// Returns whether the run starts in the captured folder.
    pub(crate) fn is_captured(&self) -> bool {
        self.changed.is_none()
    }
}

impl Transfer {
    /// Downloads the manifest and all chunks of a captured folder, and of the result of a run in the folder, except those in the
    /// node's store.
    pub(crate) async fn fetch_folder(&self, snapshot: Digest, result: Option<Digest>) -> anyhow::Result<Folder> {
        let manifests: Vec<Digest> = std::iter::once(snapshot).chain(result).collect();
        for manifest in manifests.iter().filter(|manifest| !self.chunks.contains(manifest)) {
            self.fetch(vec![*manifest]).await.context("cannot get the captured folder's manifest")?;
        }
        let chunks = Arc::clone(&self.chunks);
        let (folder, requests) = blocking(move || {
            let folder = {
                let is_large = |it: &Digest| chunks.length_of(it).is_none_or(|bytes| bytes > LARGE_MANIFEST_BYTES);
                let _turn = manifests.iter().any(is_large).then(|| lock(&LARGE_MANIFESTS));
                let captured = decode::<Manifest>(&chunks.get(&snapshot)?).context("the manifest is damaged")?;
                let result = result.map(|result| -> anyhow::Result<Manifest> {
                    let result: ResultManifest = decode(&chunks.get(&result)?).context("the result is damaged")?;
                    Ok(captured.after(&result))
                });
                Folder { changed: result.transpose()?, captured }
            };
            let mut wanted: Vec<(Digest, u64)> = Vec::new();
            for entry in &folder.start().entries {
                if let EntryKind::File(content) = &entry.kind {
                    wanted.extend(content.chunks.iter().map(|chunk| (chunk.digest, u64::from(chunk.len))));
                }
            }
            wanted.sort_unstable();
            wanted.dedup();
            wanted.retain(|(digest, _)| !chunks.contains(digest));
            Ok((folder, cut(&wanted)))
        })
        .await?;
        for request in requests {
            self.fetch(request).await.context("cannot get the captured folder's files")?;
        }
        Ok(folder)
    }

    /// Downloads these chunks from the head and verifies their hashes.
    async fn fetch(&self, digests: Vec<Digest>) -> anyhow::Result<()> {
        let body = self.retried(|| self.head.fetch_pack(digests.clone())).await?;
        self.metrics.received.inc_by(body.len() as u64);
        let chunks = Arc::clone(&self.chunks);
        blocking(move || {
            let mut decoder = pack::Decoder::new(wire::MAX_WIRE_BYTES);
            decoder.feed(&body);
            while let Some(frame) = decoder.next_frame()? {
                chunks.insert_wire(&frame.digest, &frame.wire)?;
            }
            Ok(decoder.finish()?)
        })
        .await
    }

    /// Uploads a result: all chunks that the head lacks, then the manifest. Retries while the head is unreachable or its
    /// disk is full. Fails only if the head refuses or the files are no longer readable. Reads the files with the rights of
    /// `owner`, or with the agent's rights if `owner` is `None`.
    pub(crate) async fn upload(
        &self,
        sources: Arc<Sources>,
        manifest: Digest,
        owner: Option<Ids>,
    ) -> anyhow::Result<()> {
        let head = &self.head;
        let all: Vec<Digest> = sources.digests().collect();
        loop {
            for asked in all.chunks(DIGESTS_AT_ONCE) {
                let missing = self.retried(|| head.missing_blobs(asked.to_vec())).await?;
                let sized: Vec<(Digest, u64)> =
                    missing.iter().map(|digest| (*digest, sources.length(digest).unwrap_or_default())).collect();
                for request in cut(&sized) {
                    let (sources, owner) = (Arc::clone(&sources), owner.clone());
                    let body = blocking(move || {
                        let frames: Result<Vec<Vec<u8>>, _> =
                            act_as(owner.as_ref(), || sources.pack(&request).collect())?;
                        Ok(Bytes::from(frames?.concat()))
                    })
                    .await?;
                    self.retried(|| head.send_pack(body.clone())).await?;
                    self.metrics.sent.inc_by(body.len() as u64);
                }
            }
            match self.retried(|| head.commit_snapshot(&manifest)).await {
                // Garbage collection removed chunks between the query and the commit: ask again.
                Err(error) if error.code() == Some("chunks_missing") => {}
                result => return Ok(result?),
            }
        }
    }

    /// Retries a call while the head is unreachable or its disk is full.
    async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut pause = PAUSES.0;
        loop {
            match call().await {
                Err(error) if error.is_transient() || error.code() == Some("disk_full") => {
                    if !self.fails.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "cannot transfer files of jobs between this node and the head; retrying: {error}"
                        );
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                result => {
                    if self.fails.swap(false, Ordering::Relaxed) {
                        tracing::info!("transfers of jobs' files work again");
                    }
                    return result;
                }
            }
        }
    }
}

/// Runs `work` on a blocking thread, because its duration depends on the users' data.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("a background operation was interrupted")?
}

/// Splits a list of chunks and lengths into requests.
fn cut(wanted: &[(Digest, u64)]) -> Vec<Vec<Digest>> {
    let mut requests: Vec<Vec<Digest>> = Vec::new();
    let mut size = u64::MAX;
    for (digest, len) in wanted {
        if size.saturating_add(*len) > REQUEST_BYTES {
            requests.push(Vec::new());
            size = 0;
        }
        size += len;
        requests.last_mut().expect("the list is not empty").push(*digest);
    }
    requests
}
