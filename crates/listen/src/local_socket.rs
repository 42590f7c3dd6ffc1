//! The Unix socket of a daemon, which stays reachable at its path.

use std::io;
use std::path::Path;
use std::sync::Arc;

use hostler_sys::{Descriptors, SOCKET_CHECK_INTERVAL, SocketAccess, SocketFile};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::admission::Listener;
use crate::network::Origin;

/// The open socket, bound again whenever its file is lost.
pub struct LocalSocket {
    file: Arc<SocketFile>,
    listener: UnixListener,
}

impl LocalSocket {
    /// Opens the socket. It replaces the socket of a daemon that has crashed.
    ///
    /// # Errors
    /// Another daemon listens at `path`, `path` is another kind of file, or the system refuses an operation.
    pub async fn open(path: &Path, access: SocketAccess, descriptors: Descriptors) -> io::Result<Self> {
        let path = path.to_owned();
        let (file, listener) = spawn_blocking(move || SocketFile::bind(&path, access, descriptors)).await??;
        Ok(Self { file: Arc::new(file), listener: UnixListener::from_std(listener)? })
    }

    /// The file of the socket. It exists until the last reference to it is dropped.
    #[must_use]
    pub fn file(&self) -> Arc<SocketFile> {
        Arc::clone(&self.file)
    }
}

impl Listener for LocalSocket {
    type Stream = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Origin)> {
        loop {
            if let Ok(accepted) = timeout(SOCKET_CHECK_INTERVAL, Listener::accept(&mut self.listener)).await {
                return accepted;
            }
            let file = self.file();
            match spawn_blocking(move || file.restore()).await? {
                Ok(None) => {}
                Ok(Some(listener)) => {
                    self.listener = UnixListener::from_std(listener)?;
                    tracing::warn!(socket = %self.file.path().display(), "the socket was removed; it is bound again");
                }
                Err(error) => {
                    let socket = self.file.path().display();
                    tracing::warn!(%socket, %error, "the socket was removed and cannot be bound again");
                }
            }
        }
    }
}
