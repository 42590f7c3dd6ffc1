//! Environment caches of a node: one for the agent's own user, and one for each user whose jobs ran here.
//!
//! Package installation can run arbitrary code, so environments are built as their user and used only by that user.
//! Users can only damage their own environments. Markers, pins and locks belong to the agent.
//!
//! ```text
//! <root>/…               cache of the agent's own user
//! <root>/users/<uid>/…   cache of another user, with the same layout
//! <root>/sandboxed/<uid>/…   cache of a user's sandboxed jobs, with the same layout
//! <root>/uv/uv           the uv of all caches, if the node had none
//! ```
//!
//! What a sandboxed job's packages leave in their cache must not reach jobs without a sandbox. So the two caches of a user
//! share nothing, and each command for a sandboxed job runs in a sandbox: also a query, because the job names the programs.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hostler_snapshot::remove_tree;

use super::cache::{Cache, PASSAGE};
use super::error::{EnvError, IoContext, one_line};
use super::files;
use super::settings::{BuildSandbox, Settings};
use crate::account::Account;
use crate::mutex::lock;

/// Name prefix of directories that are being removed.
const ORPHAN: &str = "orphan-";

/// The environment caches of one node. If a cache cannot be opened, only the jobs of its user fail.
pub struct Environments {
    root: PathBuf,
    settings: Settings,
    /// What the sandboxes of builds have.
    sandbox: Arc<BuildSandbox>,
    /// The open caches.
    caches: Mutex<HashMap<Whose, Arc<Cache>>>,
}

/// The uid of a cache's user, `None` for that of the agent, and whether the cache is for sandboxed jobs.
type Whose = (Option<u32>, bool);

/// Directories of the users' caches: for jobs without and with a sandbox.
const DIRECTORIES: [(&str, bool); 2] = [("users", false), ("sandboxed", true)];

impl Environments {
    /// Opens or creates the caches in the directory `root`. Starts to remove leftovers of earlier builds in the
    /// background. A cache that cannot be opened is logged, and opened again when a job needs it.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn open(root: &Path, settings: Settings, sandbox: BuildSandbox) -> Result<Self, EnvError> {
        hostler_sys::create_directory(root, PASSAGE).context("create", root)?;
        let root = root.canonicalize().context("open", root)?;
        let kept_uv = root.join("uv/uv");
        passage(&root.join("uv"))?;
        let settings = Settings { kept_uv, ..settings };
        let environments = Self { root, settings, sandbox: Arc::new(sandbox), caches: Mutex::default() };
        if let Err(error) = environments.of(None, false) {
            tracing::warn!(error = one_line(&error), "cannot open the cache of environments");
        }
        let mut orphans = Vec::new();
        if nix::unistd::geteuid().is_root() {
            orphans = environments.open_users()?;
        } else if environments.directory(true).exists()
            && let Err(error) = environments.of(None, true)
        {
            tracing::warn!(error = one_line(&error), "cannot open the cache of environments of sandboxed jobs");
        }
        environments.sweep(orphans);
        Ok(environments)
    }

    /// The directory of all caches.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The cache of a user, for jobs with or without a sandbox. No account stands for the agent's own user.
    ///
    /// # Errors
    /// As [`Cache::with_settings`].
    pub fn of(&self, account: Option<&Arc<Account>>, sandboxed: bool) -> Result<Arc<Cache>, EnvError> {
        let uid = account.map(|account| account.ids.uid);
        // Held while a cache is opened, so that each is opened only once. No user can delay that.
        let mut caches = lock(&self.caches);
        if let Some(cache) = caches.get(&(uid, sandboxed)) {
            return Ok(Arc::clone(cache));
        }
        let mut directory = self.root.clone();
        let own = || sandboxed.then(|| nix::unistd::geteuid().as_raw());
        if let Some(uid) = uid.or_else(own) {
            let users = self.directory(sandboxed);
            directory = users.join(uid.to_string());
            passage(&users)?;
            match sandboxed {
                // A package can make its own files accessible to everybody, but not this directory, which its sandbox lacks.
                true => private_passage(&directory, uid)?,
                false => passage(&directory)?,
            }
        }
        let mut settings = Settings { run_as: account.cloned(), ..self.settings.clone() };
        if sandboxed {
            settings.uv_search_path = Some(settings.search_path.clone());
            settings.search_path = self.sandbox.search_path(&settings.search_path);
            settings.sandbox = Some(Arc::clone(&self.sandbox));
        }
        let cache = Arc::new(Cache::unswept(&directory, settings)?);
        caches.insert((uid, sandboxed), Arc::clone(&cache));
        Ok(cache)
    }

    /// A search path without the directories that sandboxes do not show.
    #[must_use]
    pub fn search_path_in_sandbox(&self, all: &OsStr) -> OsString {
        self.sandbox.search_path(all)
    }

    /// Removes the pins of a run in all caches. Unknown runs are ignored.
    ///
    /// # Errors
    /// If a pin cannot be removed. Pins in other caches are still removed.
    pub fn release(&self, run_id: &str) -> Result<(), EnvError> {
        self.each(|cache| cache.release(run_id))
    }

    /// Removes the pins of all runs of this node that are not in `alive`.
    ///
    /// # Errors
    /// If a pin cannot be removed. Pins in other caches are still removed.
    pub fn retain_pins(&self, alive: &HashSet<String>) -> Result<(), EnvError> {
        self.each(|cache| cache.retain_pins(alive).map(drop))
    }

    /// Opens the existing caches. Renames the caches of users without an account, and returns them for removal. A new
    /// user who gets the uid of a removed user must not run that user's programs.
    fn open_users(&self) -> Result<Vec<PathBuf>, EnvError> {
        passage(&self.root)?;
        let mut orphans = Vec::new();
        for (_, sandboxed) in DIRECTORIES {
            orphans.extend(self.open_users_in(sandboxed)?);
        }
        Ok(orphans)
    }

    fn open_users_in(&self, sandboxed: bool) -> Result<Vec<PathBuf>, EnvError> {
        let directory = self.directory(sandboxed);
        passage(&directory)?;
        let mut orphans = Vec::new();
        for entry in fs::read_dir(&directory).context("read", &directory)?.flatten() {
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.parse().ok()) else {
                orphans.extend(name.to_str().is_some_and(|name| name.starts_with(ORPHAN)).then(|| entry.path()));
                continue;
            };
            match Account::numbered(uid) {
                Ok(Some(account)) => {
                    if let Err(error) = self.of(Some(&Arc::new(account)), sandboxed) {
                        tracing::warn!(uid, error = one_line(&error), "cannot open a user's cache of environments");
                    }
                }
                Ok(None) => {
                    let orphan = directory.join(format!("{ORPHAN}{}", files::unique_name()));
                    match fs::rename(entry.path(), &orphan) {
                        Ok(()) => orphans.push(orphan),
                        Err(error) => {
                            tracing::warn!(uid, %error, "cannot rename the environments of a removed account");
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(uid, %error, "cannot look up the owner of cached environments; keeping the environments");
                }
            }
        }
        Ok(orphans)
    }

    /// Removes the directories `orphans` and the leftovers of earlier builds on a separate thread, because users may
    /// have left many files.
    fn sweep(&self, orphans: Vec<PathBuf>) {
        let caches = self.all();
        let sweep = move || {
            for orphan in orphans {
                if let Err(error) = remove_tree(&orphan) {
                    tracing::warn!(path = %orphan.display(), %error, "cannot remove the environments of a removed account");
                }
            }
            caches.iter().for_each(|cache| cache.sweep());
        };
        if let Err(error) = std::thread::Builder::new().name("env-sweep".to_owned()).spawn(sweep) {
            tracing::warn!(%error, "cannot remove leftovers of earlier builds; retrying at the next start");
        }
    }

    /// Calls `work` for every cache and returns the first error.
    fn each(&self, work: impl Fn(&Cache) -> Result<(), EnvError>) -> Result<(), EnvError> {
        self.all().iter().map(|cache| work(cache)).fold(Ok(()), Result::and)
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        lock(&self.caches).values().map(Arc::clone).collect()
    }

    fn directory(&self, sandboxed: bool) -> PathBuf {
        let name =
            DIRECTORIES.iter().find(|(_, of_sandboxed)| *of_sandboxed == sandboxed).map_or("users", |(name, _)| name);
        self.root.join(name)
    }
}

/// Creates a directory that other users can pass through but not list.
fn passage(directory: &Path) -> Result<(), EnvError> {
    hostler_sys::make_directory(directory, PASSAGE).context("create", directory)
}

/// Creates a directory that only root and a user can pass through.
fn private_passage(directory: &Path, uid: u32) -> Result<(), EnvError> {
    hostler_sys::create_directory(directory, 0o700).context("create", directory)?;
    hostler_sys::admit_only(directory, uid).context("set the access control list of", directory)
}
