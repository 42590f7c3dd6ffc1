//! The Unix socket of a daemon, which stays reachable at its path.
//!
//! A logout removes the directory of a user's sockets, and cleaners remove old files. The daemon still listens then, but
//! clients no longer find its socket. Nothing tells the daemon when a mount hides the path, so the daemon calls
//! [`SocketFile::restore`] every [`SOCKET_CHECK_INTERVAL`] and continues with the listener that the call returns.

use std::collections::BTreeSet;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::geteuid;

use crate::{create_directory, create_new_directory, random, refuse_descriptors};

/// Interval at which a daemon without new connections checks its socket.
pub const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Who may connect to a socket. Missing directories are created with the same access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAccess {
    /// All users of the machine.
    Everybody,
    /// The daemon's own user, and root.
    Owner,
}

/// Whether clients may send descriptors, such as their standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptors {
    /// The kernel refuses them, if it can.
    Refused,
    Taken,
}

/// The file of a listening socket. Dropping this value removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    access: SocketAccess,
    descriptors: Descriptors,
    /// The directories that lead to the socket, the outermost first.
    directories: Vec<Directory>,
    state: Mutex<State>,
}

/// A directory at the first bind.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    mode: u32,
    owner: u32,
}

#[derive(Debug)]
struct State {
    /// Device and inode of the file.
    id: (u64, u64),
    /// The error that the last [`SocketFile::restore`] met.
    error: Option<String>,
}

impl SocketFile {
    /// Binds a socket at `path`, and creates missing directories. Replaces the socket of a daemon that has ended. The
    /// listener does not block.
    ///
    /// # Errors
    /// Another daemon listens at `path`, `path` is another kind of file, or the system refuses an operation.
    pub fn bind(path: &Path, access: SocketAccess, descriptors: Descriptors) -> io::Result<(Self, UnixListener)> {
        if let Some(parent) = path.parent() {
            let mode = if access == SocketAccess::Everybody { 0o755 } else { 0o700 };
            create_directory(parent, mode)?;
        }
        let (listener, id) = listen(path, access, descriptors)?;
        let directories = directories_to(path)?;
        let state = Mutex::new(State { id, error: None });
        Ok((Self { path: path.to_owned(), access, descriptors, directories, state }, listener))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds the socket again if its path no longer leads to it, and returns the new listener. Creates directories that
    /// were removed.
    ///
    /// # Errors
    /// As for [`Self::bind`], or if a directory now belongs to a user who owned none at the first bind. A repeated error
    /// is returned once.
    pub fn restore(&self) -> io::Result<Option<UnixListener>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if leads_to(&self.path, state.id) {
            state.error = None;
            return Ok(None);
        }
        let bound = self.create_directories().and_then(|()| listen(&self.path, self.access, self.descriptors));
        match bound {
            Ok((listener, id)) => {
                *state = State { id, error: None };
                Ok(Some(listener))
            }
            Err(error) if state.error.as_ref() == Some(&error.to_string()) => Ok(None),
            Err(error) => {
                state.error = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Creates missing directories as they were. Another user who creates one first, e.g. in `/tmp`, could replace the
    /// socket later.
    fn create_directories(&self) -> io::Result<()> {
        let own = [0, geteuid().as_raw()];
        let known: BTreeSet<u32> = self.directories.iter().map(|directory| directory.owner).chain(own).collect();
        for Directory { path, mode, .. } in &self.directories {
            match create_new_directory(path, *mode) {
                Ok(()) => {}
                Err(_) if path.is_dir() => {}
                Err(error) => return Err(error),
            }
            if !known.contains(&fs::symlink_metadata(path)?.uid()) {
                let why = format!("{} now belongs to another user", path.display());
                return Err(io::Error::new(ErrorKind::PermissionDenied, why));
            }
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let id = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).id;
        if leads_to(&self.path, id) {
            // The next daemon would recognise a leftover socket as stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether the file at `path` is the one with this id. The kernel does not reuse the id while the socket listens.
fn leads_to(path: &Path, id: (u64, u64)) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| id_of(&metadata) == id)
}

fn directories_to(path: &Path) -> io::Result<Vec<Directory>> {
    let mut directories = path
        .ancestors()
        .skip(1)
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| {
            let mode = fs::metadata(path)?.mode() & 0o7777;
            // A link leads elsewhere as soon as its owner wants.
            Ok(Directory { path: path.to_owned(), mode, owner: fs::symlink_metadata(path)?.uid() })
        })
        .collect::<io::Result<Vec<_>>>()?;
    directories.reverse();
    Ok(directories)
}

/// Binds a socket under a temporary name, sets its mode, and renames it to `path`. Returns the listener with the id of
/// the file.
fn listen(path: &Path, access: SocketAccess, descriptors: Descriptors) -> io::Result<(UnixListener, (u64, u64))> {
    ensure_free(path)?;
    // A short name, because socket paths are limited to 107 bytes.
    let temporary = path.with_file_name(format!(".{:08x}", u32::from_ne_bytes(random())));
    let listener = UnixListener::bind(&temporary)?;
    let publish = || {
        listener.set_nonblocking(true)?;
        if descriptors == Descriptors::Refused {
            refuse_descriptors(&listener);
        }
        let mode = if access == SocketAccess::Everybody { 0o666 } else { 0o600 };
        fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
        let id = id_of(&fs::symlink_metadata(&temporary)?);
        fs::rename(&temporary, path)?;
        Ok(id)
    };
    let published: io::Result<_> = publish();
    if published.is_err() {
        // The first error matters.
        let _ = fs::remove_file(&temporary);
    }
    Ok((listener, published?))
}

/// Fails if a daemon listens at `path`, or if the file there is no socket.
fn ensure_free(path: &Path) -> io::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let probe = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(probe.as_raw_fd(), &UnixAddr::new(path)?) {
        // EAGAIN: the daemon's queue of connections is full.
        Ok(()) | Err(Errno::EAGAIN) => {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another daemon uses this socket"));
        }
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ECONNREFUSED) => {}
        Err(error) => return Err(error.into()),
    }
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "the path exists and is not a socket; remove it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn bind(path: &Path) -> io::Result<(SocketFile, UnixListener)> {
        SocketFile::bind(path, SocketAccess::Owner, Descriptors::Refused)
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("the file exists").mode() & 0o7777
    }

    /// Checks that a client at `path` reaches the listener.
    fn reaches(path: &Path, listener: &UnixListener) {
        let mut client = UnixStream::connect(path).expect("a daemon listens");
        client.write_all(b"x").expect("connected");
        // The queue may begin with closed connections of other daemons, which have looked whether somebody listens.
        while listener.accept().expect("the client waits in the queue").0.read(&mut [0]).expect("connected") == 0 {}
    }

    #[test]
    fn removed_socket_is_bound_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/b/s");
        let (file, listener) = bind(&path).expect("the path is free");
        reaches(&path, &listener);
        assert!(file.restore().expect("unchanged").is_none());
        fs::set_permissions(directory.path().join("a"), Permissions::from_mode(0o1750)).expect("ours");
        drop((file, listener));

        let (file, _listener) = bind(&path).expect("the daemon has ended");
        fs::remove_file(&path).expect("ours");
        let listener = file.restore().expect("the path is free").expect("the socket was lost");
        reaches(&path, &listener);
        fs::remove_file(&path).expect("ours");
        for name in ["a/b", "a"] {
            fs::remove_dir(directory.path().join(name)).expect("empty");
        }
        let listener = file.restore().expect("the path is free").expect("the socket was lost");
        reaches(&path, &listener);
        assert!(file.restore().expect("unchanged").is_none());
        let modes = ["a", "a/b", "a/b/s"].map(|name| mode_of(&directory.path().join(name)));
        assert_eq!(modes, [0o1750, 0o700, 0o600], "the modes of the first bind");
        drop(file);
        assert!(!path.exists(), "the daemon removes its socket");
    }

    #[test]
    fn socket_of_another_daemon_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("s");
        let (first, _listener) = bind(&path).expect("the path is free");
        let error = bind(&path).map(drop).expect_err("the first daemon listens");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        fs::remove_file(&path).expect("ours");
        let (second, listener) = bind(&path).expect("nobody finds the first daemon");
        assert_eq!(first.restore().map(drop).expect_err("the second daemon listens").kind(), ErrorKind::AddrInUse);
        assert!(first.restore().expect("the error was returned before").is_none());
        drop(first);
        reaches(&path, &listener);
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn stale_socket_is_replaced_and_other_files_are_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("s");
        drop(UnixListener::bind(&path).expect("the path is free"));
        drop(bind(&path).expect("the daemon has ended"));
        fs::write(&path, "mine").expect("ours");
        let error = bind(&path).map(drop).expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(directory.path()).expect("ours").count(), 1, "no temporary name remains");
    }

    #[test]
    fn socket_is_not_bound_in_a_directory_that_another_user_has_created_meanwhile() {
        if !geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/s");
        let (file, _listener) = bind(&path).expect("the path is free");
        fs::remove_file(&path).expect("ours");
        fs::remove_dir(directory.path().join("a")).expect("empty");
        fs::create_dir(directory.path().join("a")).expect("ours");
        std::os::unix::fs::chown(directory.path().join("a"), Some(12345), None).expect("root has permission");
        let error = file.restore().map(drop).expect_err("the owner could replace the socket");
        assert!(error.to_string().contains("belongs to another user"), "{error}");
        assert!(!path.exists());
    }
}
