//! The gateway's directories: the files in use, the previous ones while a change waits for confirmation, and the VPN's
//! key and clients. Only root can read them.
//!
//! A directory is written under another name and renamed, so that a crash leaves the old files or the new ones.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::time::{ClockId, clock_gettime};

use crate::changes::VOLATILE;
use crate::clients::Clients;
use crate::error::GatewayError;
use crate::keys::PrivateKey;
use crate::setup::{DESCRIPTION, Setup};

/// The files in use.
const CURRENT: &str = "current";

/// The files to restore; exists while a change waits for confirmation. Empty if there was no gateway before.
const PREVIOUS: &str = "previous";

/// A directory that is being written or deleted.
const SCRATCH: &str = "scratch";

const SERVER_KEY: &str = "server.key";
const CLIENTS: &str = "clients.json";
const ROLLED_BACK: &str = "rolled-back";
const UNDO: &str = "undo";
const DEADLINE: &str = "deadline";

/// State of a change on trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The change is being applied.
    Loading,
    /// The change is rolled back in this time unless a user confirms it.
    Waits { secs: u64 },
}

#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
}

impl Store {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path of the files in use.
    pub(crate) fn current(&self) -> PathBuf {
        self.directory.join(CURRENT)
    }

    pub(crate) fn leases(&self) -> PathBuf {
        self.directory.join("dnsmasq.leases")
    }

    pub(crate) fn prepare(&self) -> Result<(), GatewayError> {
        [&self.directory, Path::new(VOLATILE)].into_iter().try_for_each(make)
    }

    /// Takes the lock for changes. Dropping the result releases it. `None` if another process has it and `wait` is
    /// unset.
    pub(crate) fn lock(&self, wait: bool) -> Result<Option<Flock<File>>, GatewayError> {
        lock("lock", wait)
    }

    /// Takes the lock that shows that a process guards the change on trial.
    pub(crate) fn guard(&self, wait: bool) -> Result<Option<Flock<File>>, GatewayError> {
        lock("guard", wait)
    }

    pub(crate) fn is_guarded(&self) -> Result<bool, GatewayError> {
        Ok(Path::new(VOLATILE).exists() && self.guard(false)?.is_none())
    }

    /// The setup in use.
    pub(crate) fn setup(&self) -> Result<Option<Setup>, GatewayError> {
        let path = self.current().join(DESCRIPTION);
        let Some(text) = read(&path)? else { return Ok(None) };
        let damaged = |mistakes: Vec<crate::Mistake>| {
            let source = io::Error::other(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
            GatewayError::File { what: "use", path, source }
        };
        Setup::parse(&text, None).map(Some).map_err(damaged)
    }

    /// Replaces the files in use, and keeps the previous ones.
    pub(crate) fn replace(&self, files: &[(&str, String)]) -> Result<(), GatewayError> {
        let [current, previous, scratch] = [CURRENT, PREVIOUS, SCRATCH].map(|name| self.directory.join(name));
        delete(&scratch)?;
        make(&scratch)?;
        files.iter().try_for_each(|(name, text)| write(&scratch.join(name), text))?;
        remove_file(&Path::new(VOLATILE).join(DEADLINE))?;
        if current.exists() {
            rename(&current, &previous)?;
        } else {
            make(&previous)?;
        }
        rename(&scratch, &current)
    }

    /// Restores the previous files.
    pub(crate) fn restore(&self) -> Result<(), GatewayError> {
        let [current, previous] = [CURRENT, PREVIOUS].map(|name| self.directory.join(name));
        delete(&current)?;
        rename(&previous, &current)
    }

    /// Deletes the previous files, which ends the trial.
    pub(crate) fn keep(&self) -> Result<(), GatewayError> {
        let [previous, scratch] = [PREVIOUS, SCRATCH].map(|name| self.directory.join(name));
        remove_file(&self.directory.join(ROLLED_BACK))?;
        delete(&scratch)?;
        if previous.exists() {
            rename(&previous, &scratch)?;
        }
        delete(&scratch)
    }

    /// Deletes all files; with `keep_clients`, all but the VPN's key and clients.
    pub(crate) fn remove(&self, keep_clients: bool) -> Result<(), GatewayError> {
        for name in [PREVIOUS, SCRATCH, CURRENT] {
            delete(&self.directory.join(name))?;
        }
        delete(Path::new(VOLATILE))?;
        if !keep_clients {
            return delete(&self.directory);
        }
        [self.leases(), self.directory.join(ROLLED_BACK)].iter().try_for_each(|path| remove_file(path))
    }

    /// The change on trial.
    pub(crate) fn trial(&self) -> Result<Option<Trial>, GatewayError> {
        if !self.directory.join(PREVIOUS).exists() {
            return Ok(None);
        }
        let deadline = read(&Path::new(VOLATILE).join(DEADLINE))?.and_then(|text| text.parse::<u64>().ok());
        let waits = |at_ms: u64| Trial::Waits { secs: at_ms.saturating_sub(since_boot_ms()).div_ceil(1000) };
        Ok(Some(deadline.map_or(Trial::Loading, waits)))
    }

    pub(crate) fn set_deadline(&self, within: Duration) -> Result<(), GatewayError> {
        let at_ms = since_boot_ms().saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        write(&Path::new(VOLATILE).join(DEADLINE), &at_ms.to_string())
    }

    /// Why the last change was rolled back, in the first line, then what failed meanwhile.
    pub(crate) fn rolled_back(&self) -> Result<Option<String>, GatewayError> {
        read(&self.directory.join(ROLLED_BACK))
    }

    pub(crate) fn set_rolled_back(&self, why: &str) -> Result<(), GatewayError> {
        write(&self.directory.join(ROLLED_BACK), why)
    }

    /// Commands that undo what the gateway has changed since the last boot, in the order of the changes.
    pub(crate) fn undo(&self) -> Result<Vec<String>, GatewayError> {
        let text = read(&Path::new(VOLATILE).join(UNDO))?.unwrap_or_default();
        Ok(text.lines().map(ToOwned::to_owned).collect())
    }

    pub(crate) fn set_undo(&self, lines: &[String]) -> Result<(), GatewayError> {
        write(&Path::new(VOLATILE).join(UNDO), &lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }

    pub(crate) fn clients(&self) -> Result<Clients, GatewayError> {
        let path = self.directory.join(CLIENTS);
        let Some(text) = read(&path)? else { return Ok(Clients::default()) };
        serde_json::from_str(&text).map_err(|error| GatewayError::File { what: "use", path, source: error.into() })
    }

    pub(crate) fn set_clients(&self, clients: &Clients) -> Result<(), GatewayError> {
        let text = serde_json::to_string_pretty(clients).expect("names, keys and addresses are valid JSON");
        write(&self.directory.join(CLIENTS), &text)
    }

    /// The VPN server's private key. Creates it if it does not exist.
    pub(crate) fn server_key(&self) -> Result<PrivateKey, GatewayError> {
        let path = self.directory.join(SERVER_KEY);
        if let Some(text) = read(&path)? {
            let damaged = |error| GatewayError::File { what: "use", path, source: io::Error::other(error) };
            return text.parse().map_err(damaged);
        }
        let key = PrivateKey::generate();
        write(&path, &format!("{}\n", key.to_text()))?;
        Ok(key)
    }
}

/// Takes a lock that the kernel releases when this process ends.
fn lock(name: &str, wait: bool) -> Result<Option<Flock<File>>, GatewayError> {
    let path = Path::new(VOLATILE).join(name);
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let how = if wait { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
    match Flock::lock(file.map_err(failed("open", &path))?, how) {
        Ok(held) => Ok(Some(held)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(failed("lock", &path)(error.into())),
    }
}

/// Reads a file. `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, GatewayError> {
    unless_missing(fs::read_to_string(path)).map_err(failed("read", path))
}

/// Replaces a file atomically.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), GatewayError> {
    hostler_sys::replace_file(path, text.as_bytes(), 0o600).map_err(failed("write", path))
}

fn remove_file(path: &Path) -> Result<(), GatewayError> {
    unless_missing(fs::remove_file(path)).map(drop).map_err(failed("remove", path))
}

/// Creates a directory that only root can read.
fn make(path: impl AsRef<Path>) -> Result<(), GatewayError> {
    let path = path.as_ref();
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path)(error)),
        _ => Ok(()),
    }
}

/// Deletes a directory without subdirectories, if it exists.
fn delete(path: &Path) -> Result<(), GatewayError> {
    let Some(entries) = unless_missing(fs::read_dir(path)).map_err(failed("remove", path))? else { return Ok(()) };
    entries.flatten().try_for_each(|entry| remove_file(&entry.path()))?;
    fs::remove_dir(path).map_err(failed("remove", path))
}

fn rename(from: &Path, to: &Path) -> Result<(), GatewayError> {
    let sync = || to.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all());
    fs::rename(from, to).and_then(|()| sync()).map_err(failed("rename", from))
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GatewayError {
    let path = path.to_owned();
    move |source| GatewayError::File { what, path, source }
}

/// Time since boot in milliseconds, including suspend.
fn since_boot_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
