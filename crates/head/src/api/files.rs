//! Files of a task's result, for people who look at them one by one. Whole results are fetched with
//! [`super::results`] and [`super::blobs`].
//!
//! A path is only looked up among the paths of the result's manifest, so no path leads to another file. Files are sent
//! as attachments that a browser never runs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hostler_core::head::{Job, Refusal};
use hostler_model::{JobId, TaskId, WallTime};
use hostler_proto::files::{FileKind, FilePage, FileView, path_as_text, path_from_text};
use hostler_proto::manifest::{Content, Entry, EntryKind, ResultManifest};
use serde::Deserialize;
use utoipa::ToSchema;

use super::blobs::read;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::reply::Binary;
use super::results::readable;
use super::who::User;
use crate::answers::Answer;
use crate::blobs::{Library, read_content};
use crate::head::Head;

/// Default number of entries per page.
const PAGE: usize = 200;
/// Maximum number of entries per page.
const LONGEST_PAGE: usize = 1_000;
/// Maximum number of problems in an answer.
const MOST_PROBLEMS: usize = 100;
/// Memory to reserve for each entry: a path has at most 4096 bytes, each of which becomes at most four characters.
const ENTRY_BYTES: usize = 16 << 10;

/// The query of a list of files.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Listing {
    /// Path of the directory to list; the top of the result if absent.
    #[serde(default)]
    directory: String,
    /// The value of `next` on the previous page.
    #[serde(default)]
    from: u64,
    /// Maximum number of entries: 200 if absent, at most 1000.
    #[schema(minimum = 1)]
    limit: Option<u32>,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

/// `GET /jobs/{id}/tasks/{index}/files`.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path((job, index)): Path<(JobId, u32)>,
    Query(Listing { directory, from, limit, node_rank }): Query<Listing>,
) -> Result<Json<FilePage>, ApiError> {
    let limit = limit.map_or(PAGE, |limit| limit as usize).clamp(1, LONGEST_PAGE);
    let wanted = exact(&directory)?;
    answer.reserve(&head.client_limits, limit * ENTRY_BYTES).await;
    let task = TaskId { job, index };
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let page = manifest_of(&head, &user, &answer, task, node_rank, move |result| page(&result, &wanted, from, limit));
    let page = page.await?.ok_or_else(|| {
        let message = format!("the result of task {task} has no directory `{directory}`");
        ApiError::new(StatusCode::NOT_FOUND, "no_such_directory", message)
    })?;
    Ok(Json(page))
}

/// A page of a directory; `None` if the result has no such directory.
fn page(result: &ResultManifest, directory: &[u8], from: usize, limit: usize) -> Option<FilePage> {
    let entries = &result.tree.entries;
    let is_it = |entry: &Entry| entry.path == directory && matches!(entry.kind, EntryKind::Directory);
    if !directory.is_empty() && !entries.iter().any(is_it) {
        return None;
    }
    let parent = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_in = |entry: &&Entry| &entry.path[..parent(&entry.path)] == directory;
    let mut inside: Vec<&Entry> = entries.iter().filter(is_in).collect();
    inside.sort_by_key(|entry| !matches!(entry.kind, EntryKind::Directory));
    let end = from.saturating_add(limit).min(inside.len());
    Some(FilePage {
        directory: path_as_text(directory),
        files: inside.get(from..end).unwrap_or_default().iter().map(|entry| view(entry)).collect(),
        total: inside.len() as u64,
        next: (end < inside.len()).then_some(end as u64),
        problems: result.problems.iter().take(MOST_PROBLEMS).cloned().collect(),
    })
}

fn view(entry: &Entry) -> FileView {
    let (kind, size_bytes, target) = match &entry.kind {
        EntryKind::File(content) => (FileKind::File, Some(content.size), None),
        EntryKind::Directory => (FileKind::Directory, None, None),
        EntryKind::Symlink { target } => (FileKind::Symlink, None, Some(path_as_text(target))),
    };
    let modified_at = WallTime(entry.modified_ns.div_euclid(1_000_000));
    FileView { path: path_as_text(&entry.path), kind, size_bytes, modified_at, target }
}

/// The query of a request for a file.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Wanted {
    /// Path of the file, as the list of files shows it.
    path: String,
    /// Rank of the node, for a task on several nodes; 0 if absent.
    #[serde(default)]
    node_rank: u32,
}

/// `GET /jobs/{id}/tasks/{index}/file`. Supports the header `range` with one range of bytes.
pub(crate) async fn file(
    user: User,
    Extension(holds): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path((job, index)): Path<(JobId, u32)>,
    Query(Wanted { path: text, node_rank }): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Binary, ApiError> {
    let path = exact(&text)?;
    let task = TaskId { job, index };
    let wanted = path.clone();
    let content = manifest_of(&head, &user, &holds, task, node_rank, move |result| content_of(result, &wanted)).await?;
    let content = content.ok_or_else(|| {
        let message = format!("the result of task {task} has no file `{text}`");
        ApiError::new(StatusCode::NOT_FOUND, "no_such_file", message)
            .hint("the result has only files that the task created or changed")
    })?;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let range = headers.get(RANGE).and_then(|range| range.to_str().ok());
    let (status, from, len) = match range.and_then(|range| part(range, content.size)) {
        None => (StatusCode::OK, 0, content.size),
        Some(Some((from, len))) => (StatusCode::PARTIAL_CONTENT, from, len),
        Some(None) => return Ok(Binary(unsatisfiable(content.size))),
    };
    let size = content.size;
    let read = move |digest| {
        let (head, holds) = (Arc::clone(&head), Arc::clone(&holds));
        async move { Ok(read(&head, &holds, digest, Library::get).await?) }
    };
    let bytes = read_content(&content, from, Some(len), read);
    let mut response = (status, Body::from_stream(bytes)).into_response();
    let headers = response.headers_mut();
    for (header, value) in [
        (CONTENT_TYPE, "application/octet-stream"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (ACCEPT_RANGES, "bytes"),
    ] {
        headers.insert(header, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_DISPOSITION, attachment(name));
    headers.insert(CONTENT_LENGTH, len.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {from}-{}/{size}", from + len - 1);
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(range).expect("digits are valid in a header"));
    }
    Ok(Binary(response))
}

/// The content of the file with this path, if the result has it.
fn content_of(result: ResultManifest, path: &[u8]) -> Option<Content> {
    result.tree.entries.into_iter().find(|entry| entry.path == path).and_then(|entry| match entry.kind {
        EntryKind::File(content) => Some(content),
        EntryKind::Directory | EntryKind::Symlink { .. } => None,
    })
}

fn exact(text: &str) -> Result<Vec<u8>, ApiError> {
    path_from_text(text).ok_or_else(|| ApiError::bad_request("in a path, write a backslash as `\\x5c`"))
}

/// Reads the result of an ended task, and takes from it what `take` returns.
async fn manifest_of<T: Send + 'static>(
    head: &Head,
    user: &User,
    holds: &Answer,
    task: TaskId,
    rank: u32,
    take: impl FnOnce(ResultManifest) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let job: Arc<Job> = readable(head, user, task.job).await?;
    if !job.indices().contains(task.index) {
        return Err(Refusal::NoSuchTask { job: task.job, index: task.index }.into());
    }
    if job.ending_of(task.index).is_none() {
        return Err(no_result(task, "the task has not ended"));
    }
    // The end of the task may not be durable yet.
    head.engine.settled().await?;
    let history = head.history.clone();
    let row = tokio::task::spawn_blocking(move || history.ended_one(task)).await.map_err(ApiError::internal)??;
    let Some(result) = row.and_then(|row| row.results().find(|result| result.rank == rank)) else {
        return Err(no_result(task, "the task never ran, or its node was lost"));
    };
    if !job.results.contains(task.index) {
        return Err(ApiError::dropped(task));
    }
    let library = Arc::clone(&head.library);
    // Reading a manifest blocks a thread, and the number of such threads is limited.
    let _turn = head.client_limits.manifests.take(holds.party(), 1).await;
    let read = move || library.result(&result.manifest).map(take);
    Ok(tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??)
}

fn no_result(task: TaskId, why: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_result", format!("task {task} has no result: {why}"))
}

/// The offset and length of a requested range. `None` if the header is to be ignored, as several ranges and other units
/// are; `Some(None)` if the range lies behind the end.
fn part(range: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    if first.is_empty() {
        let len = number(last)?.min(size);
        return Some((len > 0).then(|| (size - len, len)));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last).filter(|last| *last >= first)? };
    Some((first < size).then(|| (first, last.min(size - 1) - first + 1)))
}

fn unsatisfiable(size: u64) -> Response {
    let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", format!("the file has {size} bytes"));
    let mut response = error.into_response();
    let range = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are valid in a header");
    response.headers_mut().insert(CONTENT_RANGE, range);
    response
}

/// The header that makes browsers save a file under its name instead of showing it.
fn attachment(name: &[u8]) -> HeaderValue {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let name: String = name.iter().map(encode).collect();
    HeaderValue::try_from(format!("attachment; filename*=UTF-8''{name}")).expect("the name is encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_defines_them() {
        assert_eq!(part("bytes=0-9", 100), Some(Some((0, 10))));
        assert_eq!(part("bytes=90-", 100), Some(Some((90, 10))));
        assert_eq!(part("bytes=-5", 100), Some(Some((95, 5))));
        assert_eq!(part("bytes=-500", 100), Some(Some((0, 100))));
        assert_eq!(part("bytes=50-500", 100), Some(Some((50, 50))));
        for behind in ["bytes=100-", "bytes=-0", "bytes=200-300"] {
            assert_eq!(part(behind, 100), Some(None), "{behind}");
        }
        assert_eq!(part("bytes=0-", 0), Some(None));
        for ignored in ["bytes=0-1,5-6", "lines=1-2", "bytes=9-1", "bytes=+1-2", "bytes=-", "1-2"] {
            assert_eq!(part(ignored, 100), None, "{ignored}");
        }
    }

    #[test]
    fn names_of_downloads_cannot_add_headers() {
        let header = attachment(b"a\r\nset-cookie: x=\"1\"; \xff.html");
        let expected = "attachment; filename*=UTF-8''a%0D%0Aset-cookie%3A%20x%3D%221%22%3B%20%FF.html";
        assert_eq!(header, expected);
    }
}
