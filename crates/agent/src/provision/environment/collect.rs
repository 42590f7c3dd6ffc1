//! Garbage collection of the cache: removes the least recently used environments, but never used or pinned ones.
//!
//! Downloads may use a quarter of the limit, because they speed up the next build. Beyond that, they are pruned, then
//! deleted. Files that uv hard-linked from its downloads into an environment count for the environment. A file in two
//! environments counts twice, so the cache stays below its limit.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hostler_snapshot::remove_tree;
use nix::fcntl::{Flock, FlockArg};

use super::cache::Cache;
use super::files;
use super::key::Key;
use super::runner::{Runner, Step};
use crate::rights::act_as;

/// Age at which lock files are removed. Lock files store build failures for waiting jobs, which read them much more
/// often.
const LOCK_FILE_KEPT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct EnvironmentInfo {
    pub key: Key,
    /// Size in bytes after the build.
    pub size_bytes: u64,
    /// Last time that the environment was used or released.
    pub last_used: SystemTime,
    /// Ids of the runs that pin the environment.
    pub pins: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Environments removed, oldest first.
    pub removed: Vec<Key>,
    /// Whether downloads were pruned or deleted.
    pub downloads_reduced: bool,
    /// Current size of environments and downloads. Exceeds the limit only if nothing unused is left to remove.
    pub total_bytes: u64,
}

impl Cache {
    /// The ready environments, least recently used first.
    pub fn environments(&self) -> Vec<EnvironmentInfo> {
        let mut found: Vec<EnvironmentInfo> = self.keys().into_iter().filter_map(|key| self.info(key)).collect();
        found.sort_by(|a, b| a.last_used.cmp(&b.last_used).then_with(|| a.key.cmp(&b.key)));
        found
    }

    /// Reduces the cache to its size limit. Removes no environments or downloads that are in use. Runs after every
    /// build, and can be called at any time. Returns immediately if another thread or process is already reducing the
    /// cache.
    pub fn collect(&self, runner: &dyn Runner) -> Collected {
        let Some(_collecting) = self.exclusive_file("collect.lock") else { return Collected::default() };
        let mut done = Collected::default();
        let mut downloads = self.downloads_bytes();
        if downloads > self.settings.cap_bytes / 4 {
            downloads = self.prune_downloads(runner);
            done.downloads_reduced = true;
        }
        let environments = self.environments();
        let mut total = downloads + environments.iter().map(|env| env.size_bytes).sum::<u64>();
        for env in environments {
            if total <= self.settings.cap_bytes {
                break;
            }
            // Check without the lock first, so that jobs that use a pinned environment never see a lock.
            if env.pins.is_empty() && self.remove_unused(&env.key) {
                total -= env.size_bytes;
                done.removed.push(env.key);
            }
        }
        if !done.removed.is_empty() {
            // Files that a removed environment shared with the downloads now count for the downloads.
            total = total - downloads + self.downloads_bytes();
        }
        if total > self.settings.cap_bytes {
            total -= self.drop_downloads();
            done.downloads_reduced = true;
        }
        done.total_bytes = total;
        done
    }

    /// Removes unlocked incomplete environments and old lock files.
    pub(super) fn sweep(&self) {
        for key in self.keys().into_iter().chain(self.lock_keys()) {
            if self.read_ready(&key).is_some() {
                continue;
            }
            let Ok(Some(_exclusive)) = self.lock(&key, FlockArg::LockExclusiveNonblock) else { continue };
            if self.read_ready(&key).is_none() {
                self.discard(&key);
                self.remove_lock_file(&key);
            }
        }
    }

    /// Removes the environment, starting with its marker, so that a crash leaves no incomplete environment with a
    /// marker. The caller holds the exclusive lock.
    pub(super) fn discard(&self, key: &Key) {
        let dir = self.env_dir(key);
        let removed = match fs::remove_file(dir.join("ready")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => remove_tree(&dir),
        };
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %dir.display(), %error, "cannot remove an environment");
        }
    }

    fn info(&self, key: Key) -> Option<EnvironmentInfo> {
        let ready = self.read_ready(&key)?;
        let last_used = fs::metadata(self.env_dir(&key).join("last_used")).and_then(|file| file.modified());
        let pins = self.pins(&key);
        Some(EnvironmentInfo {
            size_bytes: ready.size_bytes,
            last_used: last_used.unwrap_or(SystemTime::UNIX_EPOCH),
            pins,
            key,
        })
    }

    /// Removes the environment unless it is used. Checks the pins under the lock, because runs pin while they hold a
    /// lease.
    fn remove_unused(&self, key: &Key) -> bool {
        let Ok(Some(_exclusive)) = self.lock(key, FlockArg::LockExclusiveNonblock) else { return false };
        if !self.pins(key).is_empty() {
            return false;
        }
        self.discard(key);
        self.read_ready(key).is_none()
    }

    /// Removes an old lock file. The caller holds the lock. Processes that have the file open detect that it is gone
    /// and open a new one.
    fn remove_lock_file(&self, key: &Key) {
        let path = self.lock_path(key);
        let age = fs::metadata(&path).and_then(|file| file.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > LOCK_FILE_KEPT) {
            // A failure leaves only an empty file.
            let _ = fs::remove_file(path);
        }
    }

    fn downloads_bytes(&self) -> u64 {
        // Directories that the user cannot read count as empty.
        act_as(self.settings.builder(), || files::unshared_disk_usage(&self.downloads())).unwrap_or_default()
    }

    /// Runs `uv cache prune`, and deletes all downloads if that is not enough. Returns the remaining size.
    fn prune_downloads(&self, runner: &dyn Runner) -> u64 {
        if let Ok(Some(uv)) = self.tools.uv(&self.settings, runner)
            && let Some(_idle) = self.exclusive_file("downloads.lock")
        {
            let mut prune = Step::new(uv.program, ["cache", "prune", "--quiet"]);
            prune.env("UV_CACHE_DIR", self.downloads().join("uv"));
            let mut prune = self.settings.as_builder(prune);
            prune.sandbox = self.settings.sandbox_of_step(&prune, &[&self.downloads()]);
            if let Err(error) = runner.run(&prune, &mut |_| {}) {
                tracing::warn!(?error, "cannot run uv cache prune");
            }
        }
        if self.downloads_bytes() > self.settings.cap_bytes / 4 {
            self.drop_downloads();
        }
        self.downloads_bytes()
    }

    /// Deletes all downloads unless a build uses them. Returns the number of freed bytes.
    fn drop_downloads(&self) -> u64 {
        let Some(_idle) = self.exclusive_file("downloads.lock") else { return 0 };
        let before = self.downloads_bytes();
        // With the user's rights: the user may have replaced the directory with a link.
        if let Err(error) = act_as(self.settings.builder(), || self.empty_downloads()) {
            tracing::warn!(%error, "cannot switch to the owner of the downloads");
        }
        before.saturating_sub(self.downloads_bytes())
    }

    fn empty_downloads(&self) {
        for directory in fs::read_dir(self.downloads()).into_iter().flatten().flatten().map(|entry| entry.path()) {
            // A package in a sandbox may have replaced it by a link to the user's other files.
            if fs::symlink_metadata(&directory).is_ok_and(|metadata| metadata.is_symlink()) {
                let _ = fs::remove_file(&directory);
            }
            let entries = fs::read_dir(&directory);
            for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
                let is_directory = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
                let removed = if is_directory { remove_tree(&path) } else { fs::remove_file(&path) };
                if let Err(error) = removed {
                    tracing::warn!(path = %path.display(), %error, "cannot remove downloads");
                }
            }
        }
    }

    /// Marks the downloads as in use while the returned lock exists.
    pub(super) fn use_downloads(&self) -> Option<Flock<File>> {
        let file = File::options().create(true).append(true).mode(0o600).open(self.root.join("downloads.lock")).ok()?;
        Flock::lock(file, FlockArg::LockShared).ok()
    }

    fn exclusive_file(&self, name: &str) -> Option<Flock<File>> {
        let file = File::options().create(true).append(true).mode(0o600).open(self.root.join(name)).ok()?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
    }

    pub(super) fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }
}
