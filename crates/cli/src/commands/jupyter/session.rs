//! What this machine keeps about a Jupyter that runs as a job: where it listens, and its token.
//!
//! The head shows the variables of a job to nobody, so this machine keeps the token for a later `--attach` in a private file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hostler_client::new_key;
use hostler_model::JobId;
use serde::{Deserialize, Serialize};

/// A Jupyter application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum App {
    /// JupyterLab, version 3 or newer
    Lab,
    /// Jupyter Notebook, version 7 or newer
    Notebook,
}

impl App {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Notebook => "notebook",
        }
    }
}

/// A Jupyter server on a Unix socket in a directory of its own. Not printed for debugging, because of the token.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) app: App,
    /// The directory on the node, which the job creates.
    pub(super) directory: String,
    pub(super) token: String,
}

impl Session {
    /// A session with a new directory and token. `/tmp` is local to the node, and its path is short enough for a socket.
    pub(super) fn new(app: App) -> Self {
        Self { app, directory: format!("/tmp/hostler-jupyter-{}", &new_key()[..16]), token: new_key() }
    }

    /// Path of the server's socket.
    pub(super) fn socket(&self) -> String {
        format!("{}/server.sock", self.directory)
    }

    /// The address of the page in a browser, with the token. `base` is the server's address.
    pub(super) fn url(&self, base: &str, app: App) -> String {
        let page = match app {
            App::Lab => "lab",
            App::Notebook => "tree",
        };
        format!("{base}/{page}?token={}", self.token)
    }

    pub(super) fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    /// Writes the file for this user alone.
    pub(super) fn store(&self, file: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        if let Some(directory) = file.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        hostler_sys::replace_file(file, &serde_json::to_vec(self)?, 0o600)
    }
}

/// The file of a job's session. `cluster` distinguishes clusters, whose jobs have the same numbers.
pub(super) fn file_of(state: &Path, cluster: &str, job: JobId) -> PathBuf {
    state.join("hostler/jupyter").join(format!("{cluster}-{job}.json"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sessions_differ_and_urls_contain_the_token() {
        let (one, other) = (Session::new(App::Lab), Session::new(App::Lab));
        assert!(one.token != other.token && one.directory != other.directory);
        assert!(one.token.len() == 32 && one.socket().len() < 100);
        assert_eq!(one.url("http://127.0.0.1:9", App::Lab), format!("http://127.0.0.1:9/lab?token={}", one.token));
        assert_eq!(one.url("http://h", App::Notebook), format!("http://h/tree?token={}", one.token));
    }

    #[test]
    fn only_the_user_can_read_the_file() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let file = file_of(state.path(), "abc", JobId(12));
        let session = Session::new(App::Notebook);
        session.store(&file).expect("writable");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().expect("a parent"))), (0o600, 0o700));
        let again = Session::read(&file).expect("readable");
        assert_eq!((again.app, again.socket(), again.token), (App::Notebook, session.socket(), session.token));
    }
}
