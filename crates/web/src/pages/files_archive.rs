//! All files of a task's result as one tar archive, made while it is sent.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use hostler_model::JobId;
use hostler_proto::files::{FileKind, FilePage, FileView, path_from_text};
use tokio::sync::mpsc;

use super::files::{Place, SANDBOX};
use crate::api::{Api, succeeded};
use crate::page::Frame;

/// Entries of a directory per request.
const PER_PAGE: usize = 1_000;

/// Size of the blocks of an archive.
const BLOCK: u64 = 512;

/// Pieces that wait for a slow reader.
const AHEAD: usize = 4;

/// `GET /jobs/{id}/tasks/{index}/files/archive`.
pub(crate) async fn download(frame: Frame, Path(task): Path<(JobId, u32)>) -> Response {
    let place = match Place::of(&frame, task) {
        Ok(place) => place,
        Err(refused) => return refused.into_response(),
    };
    // An error can still be shown as a page now; once the archive has begun, it can only break off.
    let first: FilePage = match frame.api.get(&place.directory("").with("limit", PER_PAGE)).await {
        Ok(page) => page,
        Err(refused) => return refused.into_response(),
    };
    let name = match task {
        (job, 0) => format!("job-{job}"),
        (job, index) => format!("job-{job}_{index}"),
    };
    let (sender, receiver) = mpsc::channel(AHEAD);
    let archive = Archive { api: frame.api.clone(), place, top: name.clone(), sender };
    tokio::spawn(async move {
        if let Err(error) = archive.send_all(first).await {
            // The browser sees a download that broke off, and no archive that looks whole.
            archive.sender.send(Err(error)).await.ok();
        }
    });
    let pieces = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let attachment = HeaderValue::from_str(&format!("attachment; filename=\"{name}.tar\"")).expect("digits are valid");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CONTENT_DISPOSITION, attachment),
        (header::CONTENT_SECURITY_POLICY, SANDBOX),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

/// An archive in progress.
struct Archive {
    api: Api,
    place: Place,
    /// Name of the directory that holds all files.
    top: String,
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Archive {
    /// Sends all entries, directory by directory. `first` is the first page of the top.
    async fn send_all(&self, first: FilePage) -> io::Result<()> {
        let mut page = first;
        let mut directories: Vec<String> = Vec::new();
        loop {
            for entry in &page.files {
                self.send_entry(entry).await?;
                if entry.kind == FileKind::Directory {
                    directories.push(entry.path.clone());
                }
            }
            let (directory, from) = match (page.next, directories.pop()) {
                (Some(from), last) => {
                    directories.extend(last);
                    (page.directory.clone(), from)
                }
                (None, Some(directory)) => (directory, 0),
                (None, None) => break,
            };
            let request = self.place.directory(&directory).with("limit", PER_PAGE).with("from", from);
            page = self.api.get(&request).await.map_err(|refused| io::Error::other(refused.error.message))?;
        }
        self.send(vec![0; 2 * BLOCK as usize]).await
    }

    async fn send_entry(&self, entry: &FileView) -> io::Result<()> {
        self.send(header_of(&self.top, entry)?).await?;
        let Some(size) = entry.size_bytes.filter(|size| *size > 0) else { return Ok(()) };
        let content = self.api.fetch(&self.place.operation(&entry.path), None).await;
        let content = succeeded(content).await.map_err(|refused| io::Error::other(refused.error.message))?;
        let mut content = content.into_body().into_data_stream();
        let mut sent = 0;
        while let Some(piece) = content.next().await {
            let piece = piece.map_err(io::Error::other)?;
            sent += piece.len() as u64;
            self.send(piece).await?;
        }
        if sent != size {
            return Err(io::Error::other(format!("`{}` broke off", entry.path)));
        }
        self.send(vec![0; (sent.next_multiple_of(BLOCK) - sent) as usize]).await
    }

    /// Fails if the browser no longer reads.
    async fn send(&self, piece: impl Into<Bytes>) -> io::Result<()> {
        let sent = self.sender.send(Ok(piece.into())).await;
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// The blocks before the content of an entry.
fn header_of(top: &str, entry: &FileView) -> io::Result<Vec<u8>> {
    let bytes = |text: &str| {
        let bytes = path_from_text(text).ok_or_else(|| io::Error::other(format!("`{text}` is no path")))?;
        Ok::<_, io::Error>(PathBuf::from(OsString::from_vec(bytes)))
    };
    let path = PathBuf::from(top).join(bytes(&entry.path)?);
    let mut header = tar::Header::new_gnu();
    header.set_mtime(u64::try_from(entry.modified_at.0 / 1_000).unwrap_or(0));
    header.set_size(entry.size_bytes.unwrap_or(0));
    header.set_mode(if entry.kind == FileKind::Directory { 0o755 } else { 0o644 });
    // The builder writes more than one block for long paths. It counts the content that it copies, here none.
    let mut builder = tar::Builder::new(Vec::new());
    match (entry.kind, &entry.target) {
        (FileKind::Symlink, Some(target)) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, path, bytes(target)?)?;
        }
        (FileKind::Directory, _) => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, path, io::empty())?;
        }
        _ => builder.append_data(&mut header, path, io::empty())?,
    }
    Ok(builder.get_ref().clone())
}

#[cfg(test)]
mod tests {
    use hostler_model::WallTime;

    use super::*;

    #[test]
    fn headers_keep_long_paths_sizes_and_links() {
        let long = "d/".repeat(120) + "f\\xff";
        let entry = |path: &str, kind, size_bytes, target: Option<&str>| FileView {
            path: path.to_owned(),
            kind,
            size_bytes,
            modified_at: WallTime(1_800_000_000_000),
            target: target.map(str::to_owned),
        };
        let mut all = Vec::new();
        all.extend(header_of("job-7", &entry("sub", FileKind::Directory, None, None)).expect("a header"));
        all.extend(header_of("job-7", &entry("link", FileKind::Symlink, None, Some("sub"))).expect("a header"));
        all.extend(header_of("job-7", &entry(&long, FileKind::File, Some(3), None)).expect("a header"));
        all.extend(b"abc");
        all.resize(all.len() + 509 + 1024, 0);
        let mut archive = tar::Archive::new(all.as_slice());
        let read = archive.entries().expect("an archive").map(|entry| {
            let mut entry = entry.expect("an entry");
            let path = entry.path_bytes().into_owned();
            let mut text = String::new();
            io::Read::read_to_string(&mut entry, &mut text).expect("its content");
            (path, entry.header().entry_type(), text)
        });
        let read: Vec<_> = read.collect();
        assert_eq!(read[0], (b"job-7/sub".to_vec(), tar::EntryType::Directory, String::new()));
        assert_eq!(read[1], (b"job-7/link".to_vec(), tar::EntryType::Symlink, String::new()));
        let path = [b"job-7/".to_vec(), "d/".repeat(120).into_bytes(), b"f\xff".to_vec()].concat();
        assert_eq!(read[2], (path, tar::EntryType::Regular, "abc".to_owned()));
        assert_eq!(read.len(), 3);
        assert!(header_of("job-7", &entry("../etc/passwd", FileKind::File, Some(1), None)).is_err());
    }
}
