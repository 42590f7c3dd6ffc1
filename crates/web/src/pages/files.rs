//! The files of a task's result: a list, previews and downloads.
//!
//! A preview never runs what a task wrote. Texts are escaped, images are sent with the type that their first bytes say,
//! and everything else is only downloaded.

use askama::Template;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{JobId, format_bytes};
use hostler_proto::files::{FileKind, FilePage, FileView};
use http_body_util::BodyExt;

use crate::api::Refused;
use crate::page::{Frame, render};
use crate::preview::{IMAGE_BYTES, Preview, TEXT_BYTES, image_type};
use crate::url::Url;

/// Entries of a directory on one page.
const PER_PAGE: usize = 200;

/// Number of first bytes that decide the type of an image.
const MAGIC_BYTES: u64 = 16;

/// The policy of answers with content of users.
pub(crate) const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'");

#[derive(Template)]
#[template(path = "files.html")]
struct Files {
    frame: Frame,
    job: Url,
    task: String,
    place: Place,
    crumbs: Vec<(Url, String)>,
    page: FilePage,
    next: Option<Url>,
    shown: Option<Shown>,
}

/// A task's result on one of its nodes.
#[derive(Clone)]
pub(crate) struct Place {
    job: JobId,
    index: u32,
    node_rank: u32,
}

/// A file with its preview.
struct Shown {
    name: String,
    size: u64,
    is_cut: bool,
    download: Url,
    image: Url,
    preview: Preview,
}

impl Place {
    pub(crate) fn of(frame: &Frame, (job, index): (JobId, u32)) -> Result<Self, Refused> {
        Ok(Self { job, index, node_rank: frame.query.read("node_rank")?.unwrap_or(0) })
    }

    /// Address of the page, or of the operation of the same path.
    fn url(&self) -> Url {
        self.below("files")
    }

    fn below(&self, last: &str) -> Url {
        Url::of(["jobs", &self.job.to_string(), "tasks", &self.index.to_string(), last])
    }

    fn ranked(&self, url: Url) -> Url {
        if self.node_rank > 0 { url.with("node_rank", self.node_rank) } else { url }
    }

    pub(crate) fn directory(&self, path: &str) -> Url {
        let url = self.ranked(self.url());
        if path.is_empty() { url } else { url.with("directory", path) }
    }

    fn file(&self, path: &str) -> Url {
        self.directory(parent(path)).with("file", path)
    }

    fn download(&self, path: &str) -> Url {
        self.ranked(self.url().then("download").with("path", path))
    }

    fn image(&self, path: &str) -> Url {
        self.ranked(self.url().then("image").with("path", path))
    }

    /// All files as one archive.
    fn archive(&self) -> Url {
        self.ranked(self.url().then("archive"))
    }

    /// The operation that returns a file.
    pub(crate) fn operation(&self, path: &str) -> Url {
        self.ranked(self.below("file").with("path", path))
    }
}

impl Files {
    fn url(&self, file: &FileView) -> Option<Url> {
        match file.kind {
            FileKind::Directory => Some(self.place.directory(&file.path)),
            FileKind::File => Some(self.place.file(&file.path)),
            FileKind::Symlink => None,
        }
    }

    fn download(&self, file: &FileView) -> Url {
        self.place.download(&file.path)
    }

    fn name(&self, file: &FileView) -> String {
        match file.kind {
            FileKind::Directory => format!("{}/", name(&file.path)),
            FileKind::File | FileKind::Symlink => name(&file.path).to_owned(),
        }
    }

    fn entries(&self) -> String {
        match self.page.total {
            1 => "1 entry".to_owned(),
            total => format!("{total} entries"),
        }
    }

    fn size(&self, bytes: &u64) -> String {
        format_bytes(*bytes)
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// `GET /jobs/{id}/tasks/{index}/files`.
pub(crate) async fn show(frame: Frame, Path(task): Path<(JobId, u32)>) -> Result<Html<String>, Refused> {
    let place = Place::of(&frame, task)?;
    let directory = frame.query.get("directory").unwrap_or_default();
    let from: u64 = frame.query.read("from")?.unwrap_or(0);
    let list = place.directory(directory).with("limit", PER_PAGE).with("from", from);
    let page: FilePage = frame.api.get(&list).await?;
    let shown = match frame.query.get("file") {
        Some(path) => Some(preview(&frame, &place, path).await?),
        None => None,
    };
    let mut crumbs = vec![(place.directory(""), "result".to_owned())];
    for (at, _) in page.directory.match_indices('/').chain([(page.directory.len(), "")]) {
        let path = &page.directory[..at];
        if !path.is_empty() {
            crumbs.push((place.directory(path), name(path).to_owned()));
        }
    }
    let id = match place.index {
        0 => format!("job {}", place.job),
        index => format!("task {}_{index}", place.job),
    };
    Ok(render(&Files {
        job: Url::job(place.job),
        task: id,
        crumbs,
        next: page.next.map(|next| place.directory(directory).with("from", next)),
        page,
        shown,
        place,
        frame,
    }))
}

async fn preview(frame: &Frame, place: &Place, path: &str) -> Result<Shown, Refused> {
    let (start, size) = start(frame, place, path, TEXT_BYTES).await?;
    Ok(Shown {
        name: name(path).to_owned(),
        size,
        is_cut: (start.len() as u64) < size,
        download: place.download(path),
        image: place.image(path),
        preview: Preview::of(path, &start, size),
    })
}

/// The first bytes of a file, and its size.
async fn start(frame: &Frame, place: &Place, path: &str, most: u64) -> Result<(Vec<u8>, u64), Refused> {
    let range = format!("bytes=0-{}", most - 1);
    let response = frame.api.fetch(&place.operation(path), HeaderValue::try_from(range).ok()).await;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return Ok((Vec::new(), 0));
    }
    let response = crate::api::succeeded(response).await?;
    let total = |headers: &HeaderMap| -> Option<u64> {
        headers.get(header::CONTENT_RANGE)?.to_str().ok()?.rsplit('/').next()?.parse().ok()
    };
    let size = total(response.headers());
    let start = response.into_body().collect().await.map(|body| body.to_bytes().to_vec()).map_err(|_| {
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, "unreadable", format!("`{path}` cannot be read to its end"))
    })?;
    let size = size.unwrap_or(start.len() as u64);
    Ok((start, size))
}

/// `GET /jobs/{id}/tasks/{index}/files/download`: the file as an attachment.
pub(crate) async fn download(
    frame: Frame,
    Path(task): Path<(JobId, u32)>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let place = Place::of(&frame, task)?;
    let path = wanted(&frame)?;
    let response = frame.api.fetch(&place.operation(path), headers.get(header::RANGE).cloned()).await;
    if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return Ok(response);
    }
    let mut response = crate::api::succeeded(response).await?;
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    Ok(response)
}

/// `GET /jobs/{id}/tasks/{index}/files/image`: an image for a preview. Its first bytes decide its type.
pub(crate) async fn image(frame: Frame, Path(task): Path<(JobId, u32)>) -> Result<Response, Refused> {
    let place = Place::of(&frame, task)?;
    let path = wanted(&frame)?;
    let (magic, size) = start(&frame, &place, path, MAGIC_BYTES).await?;
    let Some(kind) = image_type(&magic).filter(|_| size <= IMAGE_BYTES) else {
        return Err(Refused::bad_request(format!("`{path}` is not an image that a page can show")));
    };
    let body = crate::api::succeeded(frame.api.fetch(&place.operation(path), None).await).await?.into_body();
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
        (header::CONTENT_SECURITY_POLICY, SANDBOX),
    ];
    Ok((headers, body).into_response())
}

fn wanted(frame: &Frame) -> Result<&str, Refused> {
    frame.query.get("path").ok_or_else(|| Refused::bad_request("the address names no file"))
}
