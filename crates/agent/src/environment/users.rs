//! The caches of a node: the agent's own, and one for each user whose jobs came here.
//!
//! Installing a package can run its code, so each user's environments are built as that user and used by nobody else: they can spoil
//! their own and no other's. What says that an environment is whole, who uses it and who builds it stays the agent's.
//!
//! ```text
//! <root>/…               the cache of the agent's own user
//! <root>/users/<uid>/…   that of a user, of the same form
//! ```

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::{Cache, Settings};
use super::{EnvError, IoContext};
use crate::account::Account;

/// The caches of one node.
pub struct Environments {
    root: PathBuf,
    settings: Settings,
    own: Arc<Cache>,
    users: Mutex<HashMap<u32, Arc<Cache>>>,
}

impl Environments {
    /// Opens or creates the caches in the folder `root`, each with these settings.
    ///
    /// # Errors
    /// As [`Cache::with_settings`].
    pub fn open(root: &Path, settings: Settings) -> Result<Self, EnvError> {
        let own = Arc::new(Cache::with_settings(root, settings.clone())?);
        let root = root.canonicalize().context("open", root)?;
        let environments = Self { root, settings, own, users: Mutex::default() };
        if nix::unistd::geteuid().is_root() {
            environments.open_users()?;
        }
        Ok(environments)
    }

    /// The cache of a user; `None` is the agent's own.
    ///
    /// # Errors
    /// As [`Cache::with_settings`].
    pub fn of(&self, account: Option<&Arc<Account>>) -> Result<Arc<Cache>, EnvError> {
        let Some(account) = account else { return Ok(Arc::clone(&self.own)) };
        // Held while a cache is opened, so that each is opened once.
        let mut users = self.users();
        if let Some(cache) = users.get(&account.ids.uid) {
            return Ok(Arc::clone(cache));
        }
        let directory = self.directory().join(account.ids.uid.to_string());
        passage(&directory)?;
        let settings = Settings { run_as: Some(Arc::clone(account)), ..self.settings.clone() };
        let cache = Arc::new(Cache::with_settings(&directory, settings)?);
        users.insert(account.ids.uid, Arc::clone(&cache));
        Ok(cache)
    }

    /// Ends the pin of a run, whosever it was. Unknown runs are fine.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn release(&self, run_id: &str) -> Result<(), EnvError> {
        self.all().iter().try_for_each(|cache| cache.release(run_id))
    }

    /// Removes the pins of all runs of this node that are not in `alive`.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    pub fn retain_pins(&self, alive: &HashSet<String>) -> Result<(), EnvError> {
        self.all().iter().try_for_each(|cache| cache.retain_pins(alive).map(drop))
    }

    /// Opens the caches that there are. Those of users who have no account any more go: whoever gets their number must not get
    /// their programs.
    fn open_users(&self) -> Result<(), EnvError> {
        passage(&self.root)?;
        passage(&self.directory())?;
        for entry in fs::read_dir(self.directory()).context("read", &self.directory())?.flatten() {
            let Some(uid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match Account::numbered(uid) {
                Ok(Some(account)) => drop(self.of(Some(&Arc::new(account)))?),
                Ok(None) => fs::remove_dir_all(entry.path()).context("remove", &entry.path())?,
                Err(error) => tracing::warn!(uid, %error, "cannot look up whose environments these are; they are kept"),
            }
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        self.users().values().chain([&self.own]).map(Arc::clone).collect()
    }

    fn directory(&self) -> PathBuf {
        self.root.join("users")
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, Arc<Cache>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory of the agent's that everybody may pass through and nobody else may list.
fn passage(directory: &Path) -> Result<(), EnvError> {
    const MODE: u32 = 0o711;
    fs::DirBuilder::new().recursive(true).mode(MODE).create(directory).context("create", directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(MODE)).context("open to its users", directory)
}
