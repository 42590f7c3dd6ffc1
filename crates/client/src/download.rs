//! Downloads results: receives chunks and hands them to [`Delivery`], which stores them.
//!
//! After a broken connection, only missing chunks are requested again. After a restart, the program continues with the
//! chunks that the delivery finds on disk. One request carries the chunks of many small results.

use std::collections::HashMap;

use bytes::Bytes;
use hostler_model::{Digest, TaskId};
use hostler_proto::api::BlobRequest;
use hostler_proto::manifest::{ResultManifest, VERSION};
use hostler_snapshot::{Delivery, pack, wire};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;

use crate::connection::{failure, full};
use crate::{Client, ClientError, LocalError};

/// Maximum number of chunks per request.
const CHUNKS_AT_ONCE: usize = 1000;

/// Downloads the manifests with these `digests`, which belong to results of `tasks`. Returns them in the order of
/// `digests`.
///
/// # Errors
/// [`ClientError::Local`] if a manifest is damaged or has a newer format; else see [`ClientError`].
pub async fn manifests(
    client: &Client,
    tasks: &[TaskId],
    digests: &[Digest],
) -> Result<Vec<ResultManifest>, ClientError> {
    let mut found = HashMap::new();
    let mut keep = |digest: Digest, wire: &[u8]| {
        found.insert(digest, read_manifest(&digest, wire)?);
        Ok(())
    };
    fetch(client, tasks, digests.to_vec(), &mut keep).await?;
    let get = |digest: &Digest| found.get(digest).cloned().expect("fetch fails if a manifest is missing");
    Ok(digests.iter().map(get).collect())
}

fn read_manifest(digest: &Digest, wire: &[u8]) -> Result<ResultManifest, LocalError> {
    let damaged = || format!("the result {} is damaged", digest.short());
    let bytes = wire::decode(digest, wire).map_err(|error| LocalError::new(damaged(), error))?;
    let manifest: ResultManifest = hostler_proto::decode(&bytes).map_err(|error| LocalError::new(damaged(), error))?;
    if manifest.version > VERSION {
        let why =
            format!("the format has version {}; this program supports versions up to {VERSION}", manifest.version);
        return Err(LocalError::new(format!("the result {} has a newer format", digest.short()), why));
    }
    Ok(manifest)
}

/// Downloads the chunks that `deliveries` lack. The deliveries store results of `tasks`. `progress` gets the received
/// and the total bytes.
///
/// # Errors
/// [`ClientError::Local`] if a delivery cannot store a chunk, e.g. because the disk is full; else see
/// [`ClientError`]. Received chunks stay in the deliveries.
pub async fn fill(
    client: &Client,
    tasks: &[TaskId],
    deliveries: &mut [Delivery],
    mut progress: impl FnMut(u64, u64),
) -> Result<(), ClientError> {
    let mut wanted: HashMap<Digest, Vec<usize>> = HashMap::new();
    let mut order = Vec::new();
    for (i, delivery) in deliveries.iter().enumerate() {
        for digest in delivery.missing() {
            let takers = wanted.entry(digest).or_default();
            if takers.is_empty() {
                order.push(digest);
            }
            takers.push(i);
        }
    }
    let missing = |deliveries: &[Delivery]| deliveries.iter().map(Delivery::missing_bytes).sum::<u64>();
    let total = missing(deliveries);
    for request in order.chunks(CHUNKS_AT_ONCE) {
        let mut left = missing(deliveries);
        let mut accept = |digest: Digest, wire: &[u8]| {
            for &i in wanted.get(&digest).into_iter().flatten() {
                let before = deliveries[i].missing_bytes();
                deliveries[i].accept(&digest, wire).map_err(|error| LocalError::new(error.to_string(), error))?;
                left -= before - deliveries[i].missing_bytes();
            }
            progress(total - left, total);
            Ok(())
        };
        fetch(client, tasks, request.to_vec(), &mut accept).await?;
    }
    Ok(())
}

/// Downloads all `digests`, with retries, and passes each once to `accept`, in wire form and unchecked.
async fn fetch(
    client: &Client,
    tasks: &[TaskId],
    digests: Vec<Digest>,
    accept: &mut impl FnMut(Digest, &[u8]) -> Result<(), LocalError>,
) -> Result<(), ClientError> {
    let mut tries = client.tries();
    let mut wanted = digests;
    wanted.sort_unstable();
    wanted.dedup();
    while !wanted.is_empty() {
        let before = wanted.len();
        match fetch_once(client, tasks, &mut wanted, accept).await {
            Ok(()) if wanted.len() < before => client.end_outage(&mut tries),
            Ok(()) => {
                return Err(
                    LocalError::new("the head sent an incomplete answer", "requested chunks are missing").into()
                );
            }
            Err(error) => {
                if wanted.len() < before {
                    client.end_outage(&mut tries);
                }
                client.retry_pause(&mut tries, error).await?;
            }
        }
    }
    Ok(())
}

/// Makes one request for `wanted` and removes the chunks that arrive.
async fn fetch_once(
    client: &Client,
    tasks: &[TaskId],
    wanted: &mut Vec<Digest>,
    accept: &mut impl FnMut(Digest, &[u8]) -> Result<(), LocalError>,
) -> Result<(), ClientError> {
    let list = BlobRequest { digests: wanted.clone(), results: tasks.to_vec() };
    let body = Bytes::from(serde_json::to_vec(&list).expect("API types are valid JSON"));
    let (connection, response) =
        client.open_with(Method::POST, "/blobs/fetch", Some("application/json"), full(body)).await?;
    let mut body: Incoming = response.into_body();
    let mut decoder = pack::Decoder::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(client.endpoint(), &error))?;
        let Ok(bytes) = frame.into_data() else { continue };
        decoder.feed(&bytes);
        while let Some(frame) = decoder.next_frame().map_err(not_a_pack)? {
            if let Ok(at) = wanted.binary_search(&frame.digest) {
                accept(frame.digest, &frame.wire)?;
                wanted.remove(at);
            }
        }
    }
    decoder.finish().map_err(not_a_pack)?;
    client.keep(connection);
    Ok(())
}

fn not_a_pack(error: pack::PackError) -> LocalError {
    LocalError::new("the head sent invalid chunk data", error)
}
