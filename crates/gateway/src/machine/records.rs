//! What is kept on disk: each record is a file that is replaced at once, and that only root may read.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::GatewayError;
use super::process::{boot_id, since_boot_ms};
use crate::clients::Clients;
use crate::found::Found;
use crate::keys::{PrivateKey, PublicKey};
use crate::setup::Setup;

/// The directory of the records.
#[derive(Debug, Clone)]
pub(super) struct Records {
    directory: PathBuf,
}

/// A record: its file and what is in it.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// The name of the file.
    const FILE: &'static str;
}

/// The setup that someone has confirmed: what counts after a boot, and what is gone back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confirmed {
    pub(super) setup: Setup,
    /// Of the attempt by which it came.
    pub(super) token: String,
}

/// Our table as it was given to `nft`, and as `nft` listed it then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) text: String,
    pub(super) listing: String,
}

/// An attempt that nobody has confirmed yet, with all that is needed to go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Tells it from others.
    pub(super) token: String,
    pub(super) boot: String,
    pub(super) setup: Setup,
    pub(super) before: Before,
    /// When it is over, in milliseconds since boot; `None` while it is still being made so.
    pub(super) deadline_ms: Option<u64>,
}

/// What to go back to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    pub(super) confirmed: Option<Confirmed>,
    /// The table as it was listed, which need not be the one that had been loaded.
    pub(super) table: Option<String>,
    pub(super) loaded: Option<Loaded>,
    /// From where clients were last heard of.
    pub(super) endpoints: BTreeMap<PublicKey, String>,
}

/// That an attempt was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// Of the attempt.
    pub token: String,
    /// Why.
    pub why: String,
    /// When, in seconds since 1970. Only shown.
    pub at_secs: u64,
    /// What could not be put back.
    pub problems: Vec<String>,
}

impl Record for Found {
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
    /// How many seconds are left to confirm it; `None` while it is still being made so.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        self.deadline_ms.map(|deadline| deadline.saturating_sub(since_boot_ms()).div_ceil(1000))
    }

    /// Whether its time is up, or the machine has been started anew since.
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

    /// Makes the directory; which ones were not there, innermost first.
    pub(super) fn prepare(&self) -> Result<Vec<PathBuf>, GatewayError> {
        let missing: Vec<PathBuf> =
            self.directory.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
        for directory in missing.iter().rev() {
            // What is inside ours is root's alone; what is above may be for others as well.
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

    /// Waits until nobody else changes anything. Given back when dropped, or when we and the program that we have just called are dead: what such a
    /// one does after our death is done before anybody else looks.
    pub(super) fn lock(&self) -> Result<Flock<File>, GatewayError> {
        let held = Flock::lock(self.lock_file()?, FlockArg::LockExclusive);
        self.hand_on(held.map_err(|(_, error)| self.failed("lock", LOCK, error.into()))?)
    }

    /// The same at once, or `None` when someone else has it.
    pub(super) fn try_lock(&self) -> Result<Option<Flock<File>>, GatewayError> {
        match Flock::lock(self.lock_file()?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => self.hand_on(held).map(Some),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(self.failed("lock", LOCK, error.into())),
        }
    }

    /// Lets programs that we call have it as well. Services do not: they close what is not theirs.
    fn hand_on(&self, held: Flock<File>) -> Result<Flock<File>, GatewayError> {
        let shared = nix::fcntl::fcntl(&*held, FcntlArg::F_SETFD(FdFlag::empty()));
        shared.map(|_| held).map_err(|error| self.failed("share", LOCK, error.into()))
    }

    fn lock_file(&self) -> Result<File, GatewayError> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.path(LOCK));
        file.map_err(|error| self.failed("open", LOCK, error))
    }

    /// A record, if it is there.
    pub(super) fn read<R: Record>(&self) -> Result<Option<R>, GatewayError> {
        let Some(text) = self.read_text(R::FILE)? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| GatewayError::Record { path: self.path(R::FILE), source })
    }

    /// Writes a record. It is on disk when this returns.
    pub(super) fn write<R: Record>(&self, record: &R) -> Result<(), GatewayError> {
        let text = serde_json::to_string_pretty(record).expect("records are JSON");
        self.write_text(R::FILE, &text)
    }

    /// Writes a record, or removes it when there is none.
    pub(super) fn put<R: Record>(&self, record: Option<&R>) -> Result<(), GatewayError> {
        match record {
            Some(record) => self.write(record),
            None => self.remove(R::FILE),
        }
    }

    /// A file's text, if it is there.
    pub(super) fn read_text(&self, name: &str) -> Result<Option<String>, GatewayError> {
        match fs::read_to_string(self.path(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", name, error)),
        }
    }

    /// Replaces a file at once; only its owner may read it.
    pub(super) fn write_text(&self, name: &str, text: &str) -> Result<(), GatewayError> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.new")));
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error| self.failed("write", name, error))
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), GatewayError> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", name, error)),
            _ => Ok(()),
        }
    }

    pub(super) fn clients(&self) -> Result<Clients, GatewayError> {
        Ok(self.read()?.unwrap_or_default())
    }

    /// The key of the VPN's server, if one was made.
    pub(super) fn server_key(&self) -> Result<Option<PrivateKey>, GatewayError> {
        let Some(text) = self.read_text(SERVER_KEY)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| self.failed("read", SERVER_KEY, io::Error::other(error)))
    }

    /// The key of the VPN's server, made now if there is none.
    pub(super) fn make_server_key(&self) -> Result<PrivateKey, GatewayError> {
        if let Some(key) = self.server_key()? {
            return Ok(key);
        }
        let key = PrivateKey::generate().map_err(|error| self.failed("make", SERVER_KEY, error))?;
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
    fn records_are_replaced_and_private() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let records = Records::new(directory.path().join("a/b"));
        assert_eq!(records.prepare().expect("made"), [directory.path().join("a/b"), directory.path().join("a")]);
        assert_eq!(records.prepare().expect("there"), [] as [PathBuf; 0]);
        assert_eq!(records.read::<Loaded>().expect("fine"), None);
        for text in ["one", "two"] {
            let loaded = Loaded { text: text.to_owned(), listing: String::new() };
            records.write(&loaded).expect("written");
            assert_eq!(records.read().expect("fine"), Some(loaded));
        }
        let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(records.path(Loaded::FILE)), mode(records.directory().to_owned())), (0o600, 0o700));
        let key = records.make_server_key().expect("made");
        assert_eq!(records.make_server_key().expect("there"), key);
        assert_eq!(mode(records.path(SERVER_KEY)), 0o600);
        records.write_text(Loaded::FILE, "{").expect("written");
        assert!(matches!(records.read::<Loaded>(), Err(GatewayError::Record { .. })));
        records.put::<Loaded>(None).expect("removed");
        assert_eq!(records.read::<Loaded>().expect("fine"), None);
    }

    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let records = Records::new(directory.path().to_owned());
        let held = records.lock().expect("free");
        assert!(records.try_lock().expect("asked").is_none());
        drop(held);
        assert!(records.try_lock().expect("asked").is_some());
    }
}
