//! The Unix socket for users of this machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hostler_sys::{Descriptors, SOCKET_CHECK_INTERVAL, SocketAccess, SocketFile};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The open socket, bound again whenever its file is lost.
pub(crate) struct LocalSocket {
    file: Arc<SocketFile>,
    listener: UnixListener,
}

impl LocalSocket {
    /// Opens the socket. It replaces the socket of a head that has crashed.
    pub(crate) async fn open(path: &Path, access: SocketAccess) -> anyhow::Result<Self> {
        let owned = path.to_owned();
        let bound = spawn_blocking(move || SocketFile::bind(&owned, access, Descriptors::Refused)).await?;
        let (file, listener) = bound.with_context(|| format!("cannot listen on {}", path.display()))?;
        Ok(Self { file: Arc::new(file), listener: UnixListener::from_std(listener)? })
    }

    /// The file of the socket. It exists until the last reference to it is dropped.
    pub(crate) fn file(&self) -> Arc<SocketFile> {
        Arc::clone(&self.file)
    }

    /// Accepts the next connection.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            if let Ok(accepted) = timeout(SOCKET_CHECK_INTERVAL, self.listener.accept()).await {
                return Ok(accepted?.0);
            }
            let file = self.file();
            match spawn_blocking(move || file.restore()).await? {
                Ok(None) => {}
                Ok(Some(listener)) => {
                    self.listener = UnixListener::from_std(listener)?;
                    tracing::warn!(socket = %self.file.path().display(), "the socket was removed; it is bound again");
                }
                Err(error) => {
                    tracing::warn!(socket = %self.file.path().display(), %error, "the socket was removed and cannot be bound again");
                }
            }
        }
    }
}
