//! Blobs and snapshots: chunks in, chunks out, and when a folder is complete.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt, stream};
use hostler_core::head::Refusal;
use hostler_model::{Digest, Role, TaskId};
use hostler_proto::api::{BlobRequest, DigestList};
use hostler_snapshot::pack;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::access::Identity;
use super::error::ApiError;
use super::extract::{Json as JsonBody, Path, Query, list as parse_list};
use super::results::readable;
use super::who::{Anyone, User};
use crate::answers::{Answer, hold};
use crate::blobs::{Library, LibraryError};
use crate::guests::Party;
use crate::head::Head;

/// Chunks gathered before they are written, in bytes: enough to keep a disk busy.
const GATHER_BYTES: usize = 2 << 20;

/// Chunks longer than this have to wait until there is memory for them.
const LONG_BYTES: usize = 2 << 20;

/// An upload brings at least this many bytes in each such time: others may be waiting for its place. A kilobyte a second is slower than
/// any line that people still use.
const PACE_BYTES: usize = 30 << 10;
const PACE_TIME: Duration = Duration::from_secs(30);

/// How many results a request may name, whose manifests say what it may read.
const MOST_RESULTS: usize = 1_000;

/// Chunks of files are no longer than this, only manifests are. Memory for one is reserved before it is read.
const CHUNK_BYTES: usize = 1 << 20;

/// A digest in a JSON list.
const DIGEST_BYTES: usize = 2 * size_of::<Digest>() + 3;

const BINARY: &str = "application/octet-stream";

/// `POST /blobs/missing`.
pub(crate) async fn missing(
    _: Anyone,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    JsonBody(DigestList { digests }): JsonBody<DigestList>,
) -> Result<Json<DigestList>, ApiError> {
    answer.reserve(&head.guests, digests.len() * DIGEST_BYTES).await;
    let digests = on_disk(&head, move |library| library.missing(&digests)).await?;
    Ok(Json(DigestList { digests }))
}

/// `POST /blobs`: a pack. Chunks that came whole are kept even when the rest never comes.
pub(crate) async fn upload(
    who: Anyone,
    Extension(identity): Extension<Identity>,
    State(head): State<Arc<Head>>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let party = Party::from(&identity);
    let _turn = head.guests.uploads.take(&party, 1).await;
    let mut room = None;
    let mut body = body.into_data_stream();
    let mut decoder = pack::Decoder::default();
    let (mut frames, mut size) = (Vec::new(), 0);
    let (mut due, mut came) = (Instant::now() + PACE_TIME, 0);
    let outcome = loop {
        while let Some(frame) = decoder.next_frame().map_err(|error| not_a_pack(&error))? {
            size += frame.wire.len();
            frames.push(frame);
            if size >= GATHER_BYTES {
                keep(&head, who, std::mem::take(&mut frames)).await?;
                size = 0;
                room = None;
                // The disk's time is not the sender's.
                due = Instant::now() + PACE_TIME;
            }
        }
        if room.is_none() && decoder.announced() > LONG_BYTES {
            room = Some(head.guests.long.take(&party, decoder.announced().div_ceil(1 << 20)).await);
            due = Instant::now() + PACE_TIME;
        }
        match timeout_at(due, body.next()).await {
            Ok(Some(Ok(bytes))) => {
                came += bytes.len();
                if came >= PACE_BYTES {
                    (due, came) = (Instant::now() + PACE_TIME, 0);
                }
                decoder.feed(&bytes);
            }
            Ok(Some(Err(error))) => break Err(ApiError::bad_request(format!("the body broke off: {error}"))),
            Ok(None) => break decoder.finish().map_err(|error| not_a_pack(&error)),
            Err(_) => break Err(stalled()),
        }
    };
    keep(&head, who, frames).await?;
    outcome.map(|()| StatusCode::NO_CONTENT)
}

/// Keeps chunks, unless the disk is nearly full. What is kept free then is for the results of what runs, so agents may use it.
async fn keep(head: &Arc<Head>, who: Anyone, frames: Vec<pack::Frame>) -> Result<(), ApiError> {
    if who == Anyone::User
        && let Some(why) = head.library.too_full()
    {
        return Err(ApiError::disk_full(why));
    }
    Ok(on_disk(head, move |library| library.insert(&frames)).await?)
}

fn stalled() -> ApiError {
    let message = format!("less than {} KiB came in {} seconds", PACE_BYTES >> 10, PACE_TIME.as_secs());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "stalled", message).hint("what had arrived is kept; send the rest again")
}

fn not_a_pack(error: &pack::PackError) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_pack", format!("this is no pack of chunks: {error}"))
}

/// `POST /blobs/fetch`: a pack with the chunks asked for, read as they are sent.
pub(crate) async fn fetch(
    _: Anyone,
    (Extension(identity), Extension(answer)): (Extension<Identity>, Extension<Arc<Answer>>),
    State(head): State<Arc<Head>>,
    JsonBody(BlobRequest { digests, results }): JsonBody<BlobRequest>,
) -> Result<Response, ApiError> {
    answer.reserve_list(&head.guests, digests.len() * size_of::<Digest>()).await;
    may_read(&head, &identity, &digests, results).await?;
    // A status cannot be taken back: what is missing must be known before the first byte.
    let (digests, missing) = on_disk(&head, move |library| {
        let missing = library.missing(&digests)?;
        Ok((digests, missing))
    })
    .await?;
    if let Some(first) = missing.first() {
        return Err(LibraryError::Missing(*first).into());
    }
    let frames = stream::iter(digests).then(move |digest| {
        let (head, answer) = (Arc::clone(&head), Arc::clone(&answer));
        async move {
            let wire = read(&head, &answer, digest, Library::get_wire).await?;
            pack::frame(&digest, &wire).map_err(io::Error::other)
        }
    });
    Ok(([(CONTENT_TYPE, BINARY)], Body::from_stream(frames)).into_response())
}

/// The query of `GET /blobs/{digest}`.
#[derive(Deserialize)]
pub(crate) struct Within {
    result: Option<String>,
}

/// `GET /blobs/{digest}`: its bytes.
pub(crate) async fn show(
    _: Anyone,
    (Extension(identity), Extension(answer)): (Extension<Identity>, Extension<Arc<Answer>>),
    State(head): State<Arc<Head>>,
    Path(digest): Path<Digest>,
    Query(Within { result }): Query<Within>,
) -> Result<Response, ApiError> {
    may_read(&head, &identity, &[digest], parse_list(result.as_deref())?).await?;
    let bytes = read(&head, &answer, digest, Library::get).await?;
    Ok(([(CONTENT_TYPE, BINARY)], bytes).into_response())
}

/// Reads a blob when there is memory for it among the answers of whoever asks. The bytes hold that memory.
pub(super) async fn read<B: AsRef<[u8]> + Send + 'static>(
    head: &Head,
    answer: &Answer,
    digest: Digest,
    how: fn(&Library, &Digest) -> Result<B, LibraryError>,
) -> Result<Bytes, Failure> {
    let memory = answer.memory_for(&head.guests, CHUNK_BYTES).await;
    let is_long = move |library: &Library| library.length_of(&digest).filter(|bytes| *bytes > CHUNK_BYTES as u64);
    let chunk = on_disk(head, move |library| match is_long(library) {
        Some(length) => Ok(Err(length)),
        None => how(library, &digest).map(Ok),
    });
    match chunk.await? {
        Ok(bytes) => Ok(hold(bytes, memory)),
        Err(length) => {
            drop(memory);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let memory = answer.memory_for(&head.guests, length).await;
            Ok(hold(on_disk(head, move |library| how(library, &digest)).await?, memory))
        }
    }
}

/// Whether these blobs may be read by whoever asks: by agents and operators any, by others what results of theirs name. A hash alone
/// gives nobody another's files.
async fn may_read(head: &Head, identity: &Identity, digests: &[Digest], results: Vec<TaskId>) -> Result<(), ApiError> {
    let person = match identity {
        Identity::Agent(_) => return Ok(()),
        Identity::User(person) if person.role >= Role::Operator => return Ok(()),
        Identity::User(person) => person,
        Identity::Nobody(_) => return Err(ApiError::internal("blobs are asked for by nobody")),
    };
    let results: BTreeSet<TaskId> = results.into_iter().collect();
    if results.len() > MOST_RESULTS {
        let text = format!("a request names at most {MOST_RESULTS} results, and this one names {}", results.len());
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "too_many_results", text).hint("ask in several requests"));
    }
    // Reading manifests blocks a thread, and threads that may block are few.
    let _turn = head.guests.manifests.take(&Party::from(identity), 1).await;
    let user = User(person.caller());
    for task in &results {
        let job = readable(head, &user, task.job).await?;
        if !job.results.contains(task.index) {
            return Err(Refusal::NoSuchTask { job: task.job, index: task.index }.into());
        }
    }
    let history = head.history.clone();
    let named = on_disk(head, move |library| {
        let mut named = HashSet::new();
        for task in results {
            let row = history.ended_one(task)?;
            // Its row may be on its way to the disk, and then nobody can have asked for the result's name.
            for result in row.iter().flat_map(hostler_proto::record::EndedTask::results) {
                named.extend(library.named_by(&result.manifest)?);
            }
        }
        Ok(named)
    })
    .await?;
    match digests.iter().find(|digest| !named.contains(digest)) {
        None => Ok(()),
        Some(first) => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "not_in_results",
            format!("blob {} is in none of the results that were named", first.short()),
        )
        .hint("name the tasks of yours in whose results it is")),
    }
}

/// `POST /snapshots/{digest}/commit`.
pub(crate) async fn commit(
    _: Anyone,
    Extension(identity): Extension<Identity>,
    State(head): State<Arc<Head>>,
    Path(manifest): Path<Digest>,
) -> Result<StatusCode, ApiError> {
    // Threads that may block are few.
    let _turn = head.guests.commits.take(&Party::from(&identity), 1).await;
    let outcome = on_disk(&head, move |library| library.commit(&manifest)).await;
    outcome.map(|()| StatusCode::NO_CONTENT).map_err(|error| match error {
        // Not "no such blob": what is missing can be sent.
        Failure::Library(LibraryError::Missing(_)) => {
            ApiError::new(StatusCode::CONFLICT, "chunks_missing", format!("the manifest {manifest} is not on the head"))
                .hint("upload it with its chunks")
        }
        other => other.into(),
    })
}

/// Why work on the disk came to nothing.
pub(super) enum Failure {
    Library(LibraryError),
    Panicked(tokio::task::JoinError),
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Library(error) => error.into(),
            Failure::Panicked(error) => Self::internal(error),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Library(error) => Self::other(error),
            Failure::Panicked(error) => Self::other(error),
        }
    }
}

/// Does `work` where blocking is allowed.
async fn on_disk<T: Send + 'static>(
    head: &Head,
    work: impl FnOnce(&Library) -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, Failure> {
    let library = Arc::clone(&head.library);
    match tokio::task::spawn_blocking(move || work(&library)).await {
        Ok(outcome) => outcome.map_err(Failure::Library),
        Err(panic) => Err(Failure::Panicked(panic)),
    }
}
