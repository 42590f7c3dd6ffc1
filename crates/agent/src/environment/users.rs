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

use hostler_snapshot::remove_tree;

use super::cache::{Cache, Settings};
use super::{EnvError, IoContext, files, one_line};
use crate::account::Account;

/// What the names of directories begin with that wait to be removed.
const ORPHAN: &str = "orphan-";

/// The caches of one node. One that cannot be opened fails the jobs of its user, and nothing else.
pub struct Environments {
    root: PathBuf,
    settings: Settings,
    /// By user id; `None` is the agent's own user.
    caches: Mutex<HashMap<Option<u32>, Arc<Cache>>>,
}

impl Environments {
    /// Opens or creates the caches in the folder `root`, each with these settings, and begins to remove what earlier builds have left in
    /// them. A cache that cannot be opened is logged, and tried again when a job needs it.
    ///
    /// # Errors
    /// When the folder itself cannot be made.
    pub fn open(root: &Path, settings: Settings) -> Result<Self, EnvError> {
        fs::create_dir_all(root).context("create", root)?;
        let root = root.canonicalize().context("open", root)?;
        let environments = Self { root, settings, caches: Mutex::default() };
        if let Err(error) = environments.of(None) {
            tracing::warn!(error = one_line(&error), "cannot open the cache of environments");
        }
        let mut orphans = Vec::new();
        if nix::unistd::geteuid().is_root() {
            orphans = environments.open_users()?;
        }
        environments.sweep(orphans);
        Ok(environments)
    }

    /// The cache of a user; `None` is the agent's own.
    ///
    /// # Errors
    /// As [`Cache::with_settings`].
    pub fn of(&self, account: Option<&Arc<Account>>) -> Result<Arc<Cache>, EnvError> {
        let uid = account.map(|account| account.ids.uid);
        // Held while a cache is opened, so that each is opened once.
        let mut caches = self.caches();
        if let Some(cache) = caches.get(&uid) {
            return Ok(Arc::clone(cache));
        }
        let mut directory = self.root.clone();
        if let Some(uid) = uid {
            directory = self.directory().join(uid.to_string());
            passage(&directory)?;
        }
        let settings = Settings { run_as: account.cloned(), ..self.settings.clone() };
        let cache = Arc::new(Cache::unswept(&directory, settings)?);
        caches.insert(uid, Arc::clone(&cache));
        Ok(cache)
    }

    /// Ends the pin of a run, whosever it was. Unknown runs are fine.
    ///
    /// # Errors
    /// When a pin cannot be removed; those in other caches are removed all the same.
    pub fn release(&self, run_id: &str) -> Result<(), EnvError> {
        self.each(|cache| cache.release(run_id))
    }

    /// Removes the pins of all runs of this node that are not in `alive`.
    ///
    /// # Errors
    /// When a pin cannot be removed; those in other caches are removed all the same.
    pub fn retain_pins(&self, alive: &HashSet<String>) -> Result<(), EnvError> {
        self.each(|cache| cache.retain_pins(alive).map(drop))
    }

    /// Opens the caches that there are. Returns those of users who have no account any more, renamed and to be removed: whoever gets
    /// their number must not get their programs.
    fn open_users(&self) -> Result<Vec<PathBuf>, EnvError> {
        passage(&self.root)?;
        passage(&self.directory())?;
        let mut orphans = Vec::new();
        for entry in fs::read_dir(self.directory()).context("read", &self.directory())?.flatten() {
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.parse().ok()) else {
                orphans.extend(name.to_str().is_some_and(|name| name.starts_with(ORPHAN)).then(|| entry.path()));
                continue;
            };
            match Account::numbered(uid) {
                Ok(Some(account)) => {
                    if let Err(error) = self.of(Some(&Arc::new(account))) {
                        tracing::warn!(uid, error = one_line(&error), "cannot open a user's cache of environments");
                    }
                }
                Ok(None) => {
                    let orphan = self.directory().join(format!("{ORPHAN}{}", files::unique_name()));
                    match fs::rename(entry.path(), &orphan) {
                        Ok(()) => orphans.push(orphan),
                        Err(error) => tracing::warn!(uid, %error, "cannot put aside the environments of nobody"),
                    }
                }
                Err(error) => tracing::warn!(uid, %error, "cannot look up whose environments these are; they are kept"),
            }
        }
        Ok(orphans)
    }

    /// Removes these directories and what earlier builds have left, on a thread of its own: users may have left any number of files.
    fn sweep(&self, orphans: Vec<PathBuf>) {
        let caches = self.all();
        let sweep = move || {
            for orphan in orphans {
                if let Err(error) = remove_tree(&orphan) {
                    tracing::warn!(path = %orphan.display(), %error, "cannot remove the environments of nobody");
                }
            }
            caches.iter().for_each(|cache| cache.sweep());
        };
        if let Err(error) = std::thread::Builder::new().name("env-sweep".to_owned()).spawn(sweep) {
            tracing::warn!(%error, "cannot remove what earlier builds have left; the next start tries again");
        }
    }

    /// Does something with every cache; the first error counts.
    fn each(&self, work: impl Fn(&Cache) -> Result<(), EnvError>) -> Result<(), EnvError> {
        self.all().iter().map(|cache| work(cache)).fold(Ok(()), Result::and)
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        self.caches().values().map(Arc::clone).collect()
    }

    fn directory(&self) -> PathBuf {
        self.root.join("users")
    }

    fn caches(&self) -> MutexGuard<'_, HashMap<Option<u32>, Arc<Cache>>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory of the agent's that everybody may pass through and nobody else may list.
fn passage(directory: &Path) -> Result<(), EnvError> {
    const MODE: u32 = 0o711;
    fs::DirBuilder::new().recursive(true).mode(MODE).create(directory).context("create", directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(MODE)).context("open to its users", directory)
}
