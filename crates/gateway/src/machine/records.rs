//! Records on disk. Each record is a file that is replaced atomically and that only root can read.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::GatewayError;
use super::process::{boot_id, since_boot_ms};
use crate::clients::Clients;
use crate::found::OriginalState;
use crate::keys::{PrivateKey, PublicKey};
use crate::setup::Setup;

#[derive(Debug, Clone)]
pub(super) struct Records {
    directory: PathBuf,
}

/// A type that is stored in one file.
pub(super) trait Record: Serialize + DeserializeOwned {
    const FILE: &'static str;
}

/// The confirmed setup, which is applied after a boot and restored by a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confirmed {
    pub(super) setup: Setup,
    /// Token of the change that created the setup.
    pub(super) token: String,
}

/// The table as it was passed to `nft`, and as `nft` then listed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) text: String,
    pub(super) listing: String,
}

/// A change that waits for confirmation, with all data for a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Unique token of the change.
    pub(super) token: String,
    pub(super) boot: String,
    pub(super) setup: Setup,
    pub(super) before: Before,
    /// Deadline for the confirmation, in milliseconds since boot; `None` while the change is being applied.
    pub(super) deadline_ms: Option<u64>,
}

/// The state to restore in a rollback.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    pub(super) confirmed: Option<Confirmed>,
    /// The table as `nft` lists it. The listing may differ from the loaded table.
    pub(super) table: Option<String>,
    pub(super) loaded: Option<Loaded>,
    /// Last known endpoints of clients.
    pub(super) endpoints: BTreeMap<PublicKey, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    pub token: String,
    pub why: String,
    /// Time in seconds since 1970, for display only.
    pub at_secs: u64,
    /// Problems during the rollback.
    pub problems: Vec<String>,
}

impl Record for OriginalState {
    const FILE: &'static str = "found.json";
}
impl Record for Confirmed {
    const FILE: &'static str = "confirmed.json";
}
impl Record for Loaded {
    const FILE: &'static str = "loaded.json";
}
impl Record for Trial {
    const FILE: &'static str = "trial.json";
}
impl Record for RolledBack {
    const FILE: &'static str = "rolled-back.json";
}
impl Record for Clients {
    const FILE: &'static str = "clients.json";
}

const LOCK: &str = "lock";
const SERVER_KEY: &str = "server.key";

impl Trial {
    /// Seconds left for the confirmation; `None` while the change is being applied.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        self.deadline_ms.map(|deadline| deadline.saturating_sub(since_boot_ms()).div_ceil(1000))
    }

    /// Whether the deadline has passed, or the machine was rebooted.
    pub(super) fn is_over(&self) -> bool {
        self.boot != boot_id() || self.deadline_ms.is_some_and(|deadline| since_boot_ms() >= deadline)
    }
}

impl Records {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates the directory. Returns the directories that did not exist, innermost first.
    pub(super) fn prepare(&self) -> Result<Vec<PathBuf>, GatewayError> {
        let missing: Vec<PathBuf> =
            self.directory.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
        for directory in missing.iter().rev() {
            // Only root may access the records. Parent directories may be shared.
            let mode = if *directory == self.directory { 0o700 } else { 0o755 };
            let made = DirBuilder::new().mode(mode).create(directory);
            if let Err(source) = made
                && source.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(GatewayError::File { what: "create", path: directory.clone(), source });
            }
        }
        Ok(missing)
    }

    /// Waits for the lock for changes. Dropping the result releases the lock. If this process is killed, the lock stays
    /// until the program that it called has ended, so no other process works at the same time.
    pub(super) fn lock(&self) -> Result<Flock<File>, GatewayError> {
        let held = Flock::lock(self.lock_file()?, FlockArg::LockExclusive);
        self.share_with_children(held.map_err(|(_, error)| self.failed("lock", LOCK, error.into()))?)
    }

    /// Like [`Self::lock`] without waiting. `None` if another process has the lock.
    pub(super) fn try_lock(&self) -> Result<Option<Flock<File>>, GatewayError> {
        match Flock::lock(self.lock_file()?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => self.share_with_children(held).map(Some),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(self.failed("lock", LOCK, error.into())),
        }
    }

    /// Lets called programs inherit the lock. Services close the inherited lock at their start.
    fn share_with_children(&self, held: Flock<File>) -> Result<Flock<File>, GatewayError> {
        let shared = nix::fcntl::fcntl(&*held, FcntlArg::F_SETFD(FdFlag::empty()));
        shared.map(|_| held).map_err(|error| self.failed("share", LOCK, error.into()))
    }

    fn lock_file(&self) -> Result<File, GatewayError> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.path(LOCK));
        file.map_err(|error| self.failed("open", LOCK, error))
    }

    /// Reads a record. `None` if it does not exist.
    pub(super) fn read<R: Record>(&self) -> Result<Option<R>, GatewayError> {
        let Some(text) = self.read_text(R::FILE)? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| GatewayError::Record { path: self.path(R::FILE), source })
    }

    pub(super) fn write<R: Record>(&self, record: &R) -> Result<(), GatewayError> {
        let text = serde_json::to_string_pretty(record).expect("records are JSON");
        self.write_text(R::FILE, &text)
    }

    /// Writes a record, or deletes it for `None`.
    pub(super) fn put<R: Record>(&self, record: Option<&R>) -> Result<(), GatewayError> {
        match record {
            Some(record) => self.write(record),
            None => self.remove(R::FILE),
        }
    }

    /// Reads a file. `None` if it does not exist.
    pub(super) fn read_text(&self, name: &str) -> Result<Option<String>, GatewayError> {
        match fs::read_to_string(self.path(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", name, error)),
        }
    }

    /// Replaces a file atomically, readable by its owner only.
    pub(super) fn write_text(&self, name: &str, text: &str) -> Result<(), GatewayError> {
        let written = hostler_sys::replace_file(&self.path(name), text.as_bytes(), 0o600);
        written.map_err(|error| self.failed("write", name, error))
    }

    /// Deletes a file if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<(), GatewayError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", name, error)),
            _ => Ok(()),
        }
    }

    pub(super) fn clients(&self) -> Result<Clients, GatewayError> {
        Ok(self.read()?.unwrap_or_default())
    }

    /// The VPN server's private key, if it exists.
    pub(super) fn server_key(&self) -> Result<Option<PrivateKey>, GatewayError> {
        let Some(text) = self.read_text(SERVER_KEY)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| self.failed("read", SERVER_KEY, io::Error::other(error)))
    }

    /// The VPN server's private key. Creates it if it does not exist.
    pub(super) fn make_server_key(&self) -> Result<PrivateKey, GatewayError> {
        if let Some(key) = self.server_key()? {
            return Ok(key);
        }
        let key = PrivateKey::generate();
        self.write_text(SERVER_KEY, &format!("{}\n", key.to_text()))?;
        Ok(key)
    }

    pub(super) fn failed(&self, what: &'static str, name: &str, source: io::Error) -> GatewayError {
        GatewayError::File { what, path: self.path(name), source }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn records_are_replaceable_and_private() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let records = Records::new(directory.path().join("a/b"));
        assert_eq!(records.prepare().expect("made"), [directory.path().join("a/b"), directory.path().join("a")]);
        assert_eq!(records.prepare().expect("the directory can be prepared again"), [] as [PathBuf; 0]);
        assert_eq!(records.read::<Loaded>().expect("fine"), None);
        for text in ["one", "two"] {
            let loaded = Loaded { text: text.to_owned(), listing: String::new() };
            records.write(&loaded).expect("written");
            assert_eq!(records.read().expect("fine"), Some(loaded));
        }
        let mode = |path: PathBuf| fs::metadata(path).expect("the file exists").permissions().mode() & 0o777;
        assert_eq!((mode(records.path(Loaded::FILE)), mode(records.directory().to_owned())), (0o600, 0o700));
        let key = records.make_server_key().expect("made");
        assert_eq!(records.make_server_key().expect("the key exists"), key);
        assert_eq!(mode(records.path(SERVER_KEY)), 0o600);
        records.write_text(Loaded::FILE, "{").expect("written");
        assert!(matches!(records.read::<Loaded>(), Err(GatewayError::Record { .. })));
        records.put::<Loaded>(None).expect("removed");
        assert_eq!(records.read::<Loaded>().expect("fine"), None);
    }

    #[test]
    fn lock_is_exclusive() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let records = Records::new(directory.path().to_owned());
        let held = records.lock().expect("free");
        assert!(records.try_lock().expect("asked").is_none());
        drop(held);
        assert!(records.try_lock().expect("asked").is_some());
    }
}
