//! Folders that browsers upload: the chunks of their files, and the manifest that names them.
//!
//! Chunks and manifest go to the API on behalf of the caller, which checks each chunk against its hash and each path
//! against leaving the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hostler_model::{Digest, os_string_of};
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest, VERSION};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;

use crate::api::{Api, Refused, succeeded};
use crate::page::Frame;
use crate::url::Url;

/// Maximum size of the list of a folder's files: about a hundred thousand files.
const MAX_LIST_BYTES: usize = 16 << 20;

/// Maximum length of a path, as of Linux.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum size of the paths of a folder's directories.
const MAX_DIRECTORY_BYTES: usize = 64 << 20;

/// Longest time for a list to arrive.
const LIST_TIME: Duration = Duration::from_secs(60);

/// The users whose lists are being read: one list of each user at a time.
static READING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// First byte of a chunk that is sent without compression.
const RAW: u8 = 0;

/// A file or link of an uploaded folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    /// Path below the folder.
    path: String,
    /// Whether the file is a program.
    #[serde(default)]
    runs: bool,
    /// Time of the last change, in milliseconds since the Unix epoch.
    #[serde(default)]
    modified: i64,
    /// Hash and length of each chunk.
    #[serde(default)]
    chunks: Vec<(Digest, u32)>,
    /// Target of a symbolic link.
    #[serde(default)]
    target: Option<String>,
}

/// `POST /submit/missing`: which of these chunks the head lacks.
pub(crate) async fn missing(frame: Frame, request: Request) -> Response {
    frame.api.send(Method::POST, "/blobs/missing", request.into_body()).await
}

/// `POST /submit/chunks`: a pack of chunks.
pub(crate) async fn chunks(frame: Frame, request: Request) -> Response {
    frame.api.send(Method::POST, "/blobs", request.into_body()).await
}

/// `POST /submit/folder`: a JSON list of [`Item`]s whose chunks the head has. Answers with the hash of the folder.
pub(crate) async fn finish(frame: Frame, request: Request) -> Response {
    if !frame.me.identified {
        return refuse(Refused::new(StatusCode::UNAUTHORIZED, "unidentified", "sign in to upload a folder"));
    }
    let Some(_turn) = Turn::take(&frame.me.user) else {
        const WHY: &str = "another folder of yours is being stored; send this one again in a moment";
        return refuse(Refused::new(StatusCode::TOO_MANY_REQUESTS, "busy", WHY));
    };
    let list = Limited::new(request.into_body(), MAX_LIST_BYTES).collect();
    let Ok(Ok(list)) = tokio::time::timeout(LIST_TIME, list).await else {
        const WHY: &str = "the list of files is larger than 16 MiB, or it did not arrive within a minute";
        return refuse(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_list", WHY));
    };
    let read = move || {
        let items = serde_json::from_slice::<Vec<Item>>(&list.to_bytes());
        manifest(items.map_err(|_| Refused::bad_request("the list of files cannot be read"))?)
    };
    let stored =
        async { store(&frame.api, &tokio::task::spawn_blocking(read).await.expect("it does not panic")?).await };
    match stored.await {
        Ok(digest) => digest.to_string().into_response(),
        Err(refused) => refuse(refused),
    }
}

/// The right of a user to have a list read.
struct Turn(String);

impl Turn {
    fn take(user: &str) -> Option<Self> {
        let mut reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
        reading.insert(user.to_owned()).then(|| Self(user.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        READING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// An error as the API says it.
fn refuse(Refused { status, error }: Refused) -> Response {
    (status, Json(error)).into_response()
}

/// Stores a folder with one file, whose content is as [`hostler_model::text_of`] writes it. Returns the hash of the folder.
pub(crate) async fn store_file(api: &Api, name: &str, content: &str) -> Result<Digest, Refused> {
    send(api, os_string_of(content).as_bytes()).await?;
    store(api, &with_file(name, content)).await
}

/// A folder with one program, whose content is as [`hostler_model::text_of`] writes it.
pub(crate) fn with_file(name: &str, content: &str) -> Manifest {
    let content = os_string_of(content);
    let chunk = (digest_of(content.as_bytes()), content.len() as u32);
    let path = name.to_owned();
    let folder = manifest(vec![Item { path, runs: true, modified: 0, chunks: vec![chunk], target: None }]);
    folder.expect("the path is short")
}

/// The hash that names a folder.
pub(crate) fn digest(manifest: &Manifest) -> Digest {
    digest_of(&hostler_proto::encode(manifest))
}

/// The folder with these files, and the directories that they are in. Of two files with the same path, the later one
/// counts, as in an archive.
fn manifest(items: Vec<Item>) -> Result<Manifest, Refused> {
    let mut entries = BTreeMap::new();
    let mut directory_bytes = 0;
    for Item { path, runs, modified, chunks, target } in items {
        if path.len() > MAX_PATH_BYTES {
            return Err(Refused::bad_request("a path is longer than 4096 bytes"));
        }
        let modified_ns = modified.saturating_mul(1_000_000);
        for (end, _) in path.match_indices('/') {
            let directory = &path.as_bytes()[..end];
            if entries.contains_key(directory) {
                continue;
            }
            directory_bytes += directory.len();
            if directory_bytes > MAX_DIRECTORY_BYTES {
                return Err(Refused::bad_request("the folder has too many directories in each other"));
            }
            let entry = Entry { path: directory.to_vec(), mode: 0o755, modified_ns, kind: EntryKind::Directory };
            entries.insert(directory.to_vec(), entry);
        }
        let kind = match target {
            Some(target) => EntryKind::Symlink { target: target.into_bytes() },
            None => EntryKind::File(Content {
                size: chunks.iter().map(|(_, length)| u64::from(*length)).sum(),
                chunks: chunks.into_iter().map(|(digest, len)| Chunk { digest, len }).collect(),
            }),
        };
        let path = path.into_bytes();
        entries.insert(path.clone(), Entry { path, mode: if runs { 0o755 } else { 0o644 }, modified_ns, kind });
    }
    Ok(Manifest { version: VERSION, entries: entries.into_values().collect() })
}

/// Stores a manifest whose chunks the head has. Returns the hash of the folder.
async fn store(api: &Api, manifest: &Manifest) -> Result<Digest, Refused> {
    let digest = send(api, &hostler_proto::encode(manifest)).await?;
    let commit = Url::of(["snapshots"]).then(digest).then("commit");
    succeeded(api.send(Method::POST, &commit, Body::empty()).await).await.map(|_| digest)
}

/// Sends one chunk to the API, as a pack. Returns its hash.
async fn send(api: &Api, bytes: &[u8]) -> Result<Digest, Refused> {
    let digest = digest_of(bytes);
    let length = u32::try_from(bytes.len() + 1).map_err(|_| Refused::bad_request("the folder has too many files"))?;
    let pack = [digest.0.as_slice(), &length.to_le_bytes(), &[RAW], bytes].concat();
    succeeded(api.send(Method::POST, "/blobs", Body::from(pack)).await).await.map(|_| digest)
}

pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_lists_each_path_once_below_its_directories() {
        let list = br#"[{"path": "b/c/x", "modified": 5}, {"path": "a.sh", "runs": true}, {"path": "b/c/x"},
                        {"path": "b/link", "target": "c/x"}]"#;
        let entries = manifest(serde_json::from_slice(list).expect("a list")).expect("short paths").entries;
        let shown: Vec<_> = entries
            .iter()
            .map(|it| (String::from_utf8_lossy(&it.path).into_owned(), it.mode, it.modified_ns))
            .collect();
        let expected = [("a.sh", 0o755, 0), ("b", 0o755, 5_000_000), ("b/c", 0o755, 5_000_000)];
        assert_eq!(shown[..3], expected.map(|(path, mode, at)| (path.to_owned(), mode, at)));
        assert_eq!((shown[3].0.as_str(), shown[3].2, shown[4].0.as_str(), shown.len()), ("b/c/x", 0, "b/link", 5));
        assert!(matches!(&entries[4].kind, EntryKind::Symlink { target } if target == b"c/x"), "{entries:?}");
    }

    #[test]
    fn paths_that_would_fill_the_memory_are_refused() {
        let item = |path: String| Item { path, runs: false, modified: 0, chunks: Vec::new(), target: None };
        assert!(manifest(vec![item("a/".repeat(2048))]).is_ok());
        assert!(manifest(vec![item("a/".repeat(3000))]).is_err(), "a long path");
        let deep = (0..40).map(|number| item(format!("{number}/{}", "a/".repeat(2040)))).collect();
        assert!(manifest(deep).is_err(), "many deep paths");
    }

    #[test]
    fn unknown_fields_and_foul_hashes_are_refused() {
        for list in [r#"[{"path": "a", "mode": 4}]"#, r#"[{"path": "a", "chunks": [["zz", 1]]}]"#, r#"{"path": "a"}"#] {
            assert!(serde_json::from_str::<Vec<Item>>(list).is_err(), "{list}");
        }
    }
}
