//! The style sheet, the scripts and the icons. Their names contain their hash, so that browsers may keep them forever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::parts::Tone;

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

/// Icons of pages: what a tab is about has this tone.
static ICONS: LazyLock<[(Tone, Asset); 5]> = LazyLock::new(|| {
    macro_rules! icon {
        ($colour:literal) => {
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill=""#,
                $colour,
                r##""/><path d="M5 3v10M11 3v10M5 8h6" stroke="#fff" stroke-width="2.5" stroke-linecap="round"/></svg>"##
            )
        };
    }
    [
        (Tone::Good, icon!("#1a7f37")),
        (Tone::Active, icon!("#0969da")),
        (Tone::Waiting, icon!("#9a6700")),
        (Tone::Bad, icon!("#cf222e")),
        (Tone::Muted, icon!("#6e7781")),
    ]
    .map(|(tone, picture)| (tone, Asset::new("icon", "svg", "image/svg+xml", picture.as_bytes())))
});

/// Path of the icon of pages with this tone.
pub(crate) fn icon(tone: Tone) -> &'static str {
    ICONS.iter().find(|(known, _)| *known == tone).map_or("", |(_, icon)| &icon.path)
}

impl Asset {
    fn new(name: &str, extension: &str, kind: &'static str, content: &'static [u8]) -> Self {
        let hash = blake3::hash(content).to_hex();
        Self { path: format!("/assets/{name}-{}.{extension}", &hash[..16]), kind, content }
    }
}

/// `GET /assets/{name}`.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let icons = ICONS.iter().map(|(_, icon)| icon);
    let mut assets = [&*STYLE, &*SCRIPT, &*TERMINAL, &*SUBMIT].into_iter().chain(icons);
    let found = assets.find(|asset| asset.path.strip_prefix("/assets/") == Some(&name));
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let headers: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.content).into_response()
}
