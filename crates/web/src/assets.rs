//! The style sheet and the scripts. Their names contain their hash, so that browsers may keep them forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A file that pages refer to.
pub(crate) struct Asset {
    /// Path on the server.
    pub(crate) path: String,
    kind: &'static str,
    content: &'static [u8],
}

pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("hostler", "css", "text/css; charset=utf-8", include_bytes!("../assets/hostler.css")));

pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("hostler", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/hostler.js"))
});

/// The script of the terminal's page.
pub(crate) static TERMINAL: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("terminal", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/terminal.js"))
});

/// The script that uploads folders.
pub(crate) static SUBMIT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("submit", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/submit.js"))
});

impl Asset {
    fn new(name: &str, extension: &str, kind: &'static str, content: &'static [u8]) -> Self {
        let hash = blake3::hash(content).to_hex();
        Self { path: format!("/assets/{name}-{}.{extension}", &hash[..16]), kind, content }
    }
}

/// `GET /assets/{name}`.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let found =
        [&*STYLE, &*SCRIPT, &*TERMINAL, &*SUBMIT].into_iter().find(|asset| asset.path.ends_with(&format!("/{name}")));
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let headers: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.content).into_response()
}
