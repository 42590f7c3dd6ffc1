//! A small registry on a port of this machine, with the images of an OCI layout.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

/// A registry that runs until the test ends. Every repository has the images of the layout.
pub(crate) struct Registry {
    pub(crate) host: String,
}

impl Registry {
    /// `login`: the value of the header `Authorization` that it demands.
    pub(crate) fn serve(layout: PathBuf, login: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let host = listener.local_addr().expect("bound").to_string();
        let (layout, login): (Arc<Path>, _) = (layout.into(), login.map(str::to_owned));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (layout, login) = (Arc::clone(&layout), login.clone());
                std::thread::spawn(move || answer(&connection, &layout, login.as_deref()));
            }
        });
        Self { host }
    }
}

/// Answers one request.
fn answer(mut connection: &TcpStream, layout: &Path, login: Option<&str>) {
    let lines: Vec<String> =
        BufReader::new(connection).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let given = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then_some(value)
    });
    let (status, body) = match found(path, layout) {
        _ if login.is_some() && given != login => ("401 Unauthorized", Vec::new()),
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nwww-authenticate: Basic realm=\"test\"\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The client may have gone.
    let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body));
}

fn found(path: &str, layout: &Path) -> Option<Vec<u8>> {
    let (_, what) = path.strip_prefix("/v2/")?.split_once("/manifests/").or_else(|| path.split_once("/blobs/"))?;
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).ok()?).ok()?;
    let of_tag = index["manifests"].as_array()?.iter().find(|manifest| {
        manifest["annotations"]["org.opencontainers.image.ref.name"].as_str().is_some_and(|tag| tag == what)
    });
    let digest = of_tag.and_then(|manifest| manifest["digest"].as_str()).unwrap_or(what);
    fs::read(layout.join("blobs/sha256").join(digest.strip_prefix("sha256:")?)).ok()
}
