//! Blobs and snapshots: upload and download of chunks, and commits of snapshots.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, NoContent};
use axum::{Extension, Json};
use futures_util::{StreamExt, stream};
use hostler_core::head::Refusal;
use hostler_listen::is_stalled;
use hostler_model::{Attempt, Digest, Role, TaskId};
use hostler_proto::api::{BlobRequest, DigestList};
use hostler_proto::record::EndedTask;
use hostler_snapshot::pack;
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Json as JsonBody, Path, Query, list as parse_list};
use super::reply::Binary;
use super::results::readable;
use super::who::{Anyone, User};
use crate::answers::{Answer, hold};
use crate::blobs::{Library, LibraryError};
use crate::client_limits::Party;
use crate::head::Head;
use crate::identity::Identity;

/// Amount of chunk data to gather before a write to disk, in bytes.
const GATHER_BYTES: usize = 2 << 20;

/// Size above which a chunk waits for a memory reservation.
const LONG_BYTES: usize = 2 << 20;

/// Maximum number of results that a request may list to prove that its user may read the requested chunks.
const MOST_RESULTS: usize = 1_000;

/// Maximum number of unfetched earlier attempts of a task that are searched for a blob.
const MOST_ATTEMPTS: usize = 1_000;

/// Maximum size of file chunks; only manifests are larger. This much memory is reserved before the head knows a blob's
/// size.
const CHUNK_BYTES: usize = 1 << 20;

/// Size of a digest in a JSON list.
const DIGEST_BYTES: usize = 2 * size_of::<Digest>() + 3;

const BINARY: &str = "application/octet-stream";

/// `POST /blobs/missing`.
pub(crate) async fn missing(
    _: Anyone,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    JsonBody(DigestList { digests }): JsonBody<DigestList>,
) -> Result<Json<DigestList>, ApiError> {
    answer.reserve(&head.client_limits, digests.len() * DIGEST_BYTES).await;
    let digests = on_disk(&head, move |library| library.missing(&digests)).await?;
    Ok(Json(DigestList { digests }))
}

/// `POST /blobs`: a pack. Complete chunks are kept even if the upload breaks off.
pub(crate) async fn upload(
    who: Anyone,
    Extension(identity): Extension<Identity>,
    State(head): State<Arc<Head>>,
    body: Body,
) -> Result<NoContent, ApiError> {
    let party = Party::from(&identity);
    let _turn = head.client_limits.uploads.take(&party, 1).await;
    let mut room = None;
    let mut body = body.into_data_stream();
    let mut decoder = pack::Decoder::default();
    let (mut frames, mut size) = (Vec::new(), 0);
    let outcome = loop {
        while let Some(frame) = decoder.next_frame().map_err(|error| not_a_pack(&error))? {
            size += frame.wire.len();
            frames.push(frame);
            if size >= GATHER_BYTES {
                keep(&head, who, std::mem::take(&mut frames)).await?;
                size = 0;
                room = None;
            }
        }
        if room.is_none() && decoder.announced() > LONG_BYTES {
            room = Some(head.client_limits.long.take(&party, decoder.announced().div_ceil(1 << 20)).await);
        }
        match body.next().await {
            Some(Ok(bytes)) => decoder.feed(&bytes),
            Some(Err(error)) if is_stalled(&error) => {
                break Err(ApiError::stalled().hint("the received chunks are kept; upload the rest again"));
            }
            Some(Err(error)) => break Err(ApiError::bad_request(format!("the request body ended early: {error}"))),
            None => break decoder.finish().map_err(|error| not_a_pack(&error)),
        }
    };
    keep(&head, who, frames).await?;
    outcome.map(|()| NoContent)
}

/// Stores chunks, unless the disk is nearly full. Agents may use the space that is reserved for results.
async fn keep(head: &Arc<Head>, who: Anyone, frames: Vec<pack::Frame>) -> Result<(), ApiError> {
    if who == Anyone::User
        && let Some(why) = head.library.too_full()
    {
        return Err(ApiError::disk_full(why));
    }
    Ok(on_disk(head, move |library| library.insert(&frames)).await?)
}

fn not_a_pack(error: &pack::PackError) -> ApiError {
    ApiError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "bad_pack",
        format!("the body is not a valid pack of chunks: {error}"),
    )
}

/// `POST /blobs/fetch`: a pack of the requested chunks. Reads each chunk only when it is about to be sent.
pub(crate) async fn fetch(
    _: Anyone,
    (Extension(identity), Extension(answer)): (Extension<Identity>, Extension<Arc<Answer>>),
    State(head): State<Arc<Head>>,
    JsonBody(BlobRequest { digests, results }): JsonBody<BlobRequest>,
) -> Result<Binary, ApiError> {
    answer.reserve_list(&head.client_limits, digests.len() * size_of::<Digest>()).await;
    may_read(&head, &identity, &digests, results).await?;
    // The status cannot change later, so missing chunks must be found before the first byte.
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
    Ok(Binary(([(CONTENT_TYPE, BINARY)], Body::from_stream(frames)).into_response()))
}

/// The query of `GET /blobs/{digest}`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct BlobQuery {
    /// Tasks whose results contain the blob, separated by commas, e.g. `12_0`. Operators can omit this list.
    #[schema(pattern = "^[1-9][0-9]{0,18}_[0-9]{1,9}(,[1-9][0-9]{0,18}_[0-9]{1,9})*$")]
    result: Option<String>,
}

/// `GET /blobs/{digest}`: the bytes of a blob.
pub(crate) async fn show(
    _: Anyone,
    (Extension(identity), Extension(answer)): (Extension<Identity>, Extension<Arc<Answer>>),
    State(head): State<Arc<Head>>,
    Path(digest): Path<Digest>,
    Query(BlobQuery { result }): Query<BlobQuery>,
) -> Result<Binary, ApiError> {
    may_read(&head, &identity, &[digest], parse_list(result.as_deref())?).await?;
    let bytes = read(&head, &answer, digest, Library::get).await?;
    Ok(Binary(([(CONTENT_TYPE, BINARY)], bytes).into_response()))
}

/// Reads a blob when the caller's limit for response memory allows it. The bytes keep the memory reservation.
pub(super) async fn read<B: AsRef<[u8]> + Send + 'static>(
    head: &Head,
    answer: &Answer,
    digest: Digest,
    how: fn(&Library, &Digest) -> Result<B, LibraryError>,
) -> Result<Bytes, Failure> {
    let memory = answer.memory_for(&head.client_limits, CHUNK_BYTES).await;
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
            let memory = answer.memory_for(&head.client_limits, length).await;
            Ok(hold(on_disk(head, move |library| how(library, &digest)).await?, memory))
        }
    }
}

/// Checks that the caller may read the blobs `digests`. Agents and operators may read all blobs. A user may read only
/// blobs in the results of their own jobs: knowing a digest must not give access to another user's files.
async fn may_read(head: &Head, identity: &Identity, digests: &[Digest], results: Vec<TaskId>) -> Result<(), ApiError> {
    let person = match identity {
        Identity::Agent(_) => return Ok(()),
        Identity::User(person) if person.role >= Role::Operator => return Ok(()),
        Identity::User(person) => person,
        Identity::Unidentified(_) => return Err(ApiError::internal("an unidentified caller asked for blobs")),
    };
    let results: BTreeSet<TaskId> = results.into_iter().collect();
    if results.len() > MOST_RESULTS {
        let text = format!("a request can list at most {MOST_RESULTS} results, but this one lists {}", results.len());
        return Err(
            ApiError::new(StatusCode::BAD_REQUEST, "too_many_results", text).hint("split the request into several")
        );
    }
    // Reading a manifest blocks a thread, and the number of such threads is limited.
    let _turn = head.client_limits.manifests.take(&Party::from(identity), 1).await;
    let user = User::from(person);
    for task in &results {
        let job = readable(head, &user, task.job).await?;
        if !job.has_result_of(task.index) {
            return Err(Refusal::NoSuchTask { job: task.job, index: task.index }.into());
        }
    }
    let history = head.history.clone();
    let named = on_disk(head, move |library| {
        let mut named = HashSet::new();
        for task in results {
            let mut rows: Vec<EndedTask> = history.ended_one(task)?.into_iter().collect();
            let earlier = history.earlier_attempts((task, Attempt(0)), MOST_ATTEMPTS)?;
            rows.extend(earlier.into_iter().filter(|row| (row.job, row.index) == (task.job, task.index)));
            // If a row is not durable yet, it is missing here. Then no client knows its result yet either.
            for result in rows.iter().flat_map(EndedTask::results) {
                named.extend(library.referenced_blobs(&result.manifest)?);
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
            format!("blob {} is not part of any of the listed results", first.short()),
        )
        .hint("in the request, list your tasks whose results contain the blob")),
    }
}

/// `POST /snapshots/{digest}/commit`.
pub(crate) async fn commit(
    _: Anyone,
    Extension(identity): Extension<Identity>,
    State(head): State<Arc<Head>>,
    Path(manifest): Path<Digest>,
) -> Result<NoContent, ApiError> {
    // The number of threads for blocking work is limited.
    let _turn = head.client_limits.commits.take(&Party::from(&identity), 1).await;
    let outcome = on_disk(&head, move |library| library.commit(&manifest)).await;
    outcome.map(|()| NoContent).map_err(|error| match error {
        // This error differs from that of a missing blob, because the client can upload the manifest.
        Failure::Library(LibraryError::Missing(_)) => {
            ApiError::new(StatusCode::CONFLICT, "chunks_missing", format!("the manifest {manifest} is not on the head"))
                .hint("upload the manifest and its chunks")
        }
        other => other.into(),
    })
}

/// Why an operation on the head's disk failed.
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

/// Runs `work` on a thread for blocking work.
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
