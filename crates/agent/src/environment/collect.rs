//! Keeping the cache under its cap: the least recently used environments go first, used and pinned ones never.
//!
//! Downloads may keep a quarter of the cap, since they make the next build fast; beyond that they are pruned, then
//! dropped. Files that uv hard-linked from its downloads into an environment count as the environment's. The same file
//! in two environments counts twice, so the cache stops short of its cap rather than passing it.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hostler_snapshot::remove_tree;
use nix::fcntl::{Flock, FlockArg};

use super::cache::{Cache, DOWNLOADS};
use super::key::Key;
use super::runner::{Runner, Step};
use super::{files, tools};
use crate::account::act_as;

/// Lock files keep a failure for jobs that still wait for it; no job looks away for this long.
const LOCK_FILE_KEPT: Duration = Duration::from_secs(3600);

/// One environment of the cache.
#[derive(Clone, Debug)]
pub struct EnvironmentInfo {
    /// Its name.
    pub key: Key,
    /// What it occupied when it was built.
    pub size_bytes: u64,
    /// When it was last handed out or released.
    pub last_used: SystemTime,
    /// Runs that pin it.
    pub pins: Vec<String>,
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Environments removed, oldest first.
    pub removed: Vec<Key>,
    /// Whether downloads were pruned or dropped.
    pub downloads_reduced: bool,
    /// What environments and downloads occupy now; above the cap only if all of it is in use.
    pub total_bytes: u64,
}

impl Cache {
    /// The ready environments, least recently used first.
    pub fn environments(&self) -> Vec<EnvironmentInfo> {
        let mut found: Vec<EnvironmentInfo> = self.keys().into_iter().filter_map(|key| self.info(key)).collect();
        found.sort_by(|a, b| a.last_used.cmp(&b.last_used).then_with(|| a.key.cmp(&b.key)));
        found
    }

    /// Brings the cache under its cap as far as nothing in use is touched. Done after every build; safe at any time.
    /// Returns at once, with nothing done, while another thread or process is collecting.
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
            // Looked at without the lock first, so that a job which takes a pinned environment meets no lock.
            if env.pins.is_empty() && self.remove_unused(&env.key) {
                total -= env.size_bytes;
                done.removed.push(env.key);
            }
        }
        if !done.removed.is_empty() {
            // What an environment shared with the downloads now belongs to the downloads alone.
            total = total - downloads + self.downloads_bytes();
        }
        if total > self.settings.cap_bytes {
            total -= self.drop_downloads();
            done.downloads_reduced = true;
        }
        done.total_bytes = total;
        done
    }

    /// Removes half-built environments and old lock files that nobody holds.
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

    /// Removes what there is of `key`, marker first, so that a crash on the way leaves no environment with holes. The
    /// caller holds its exclusive lock.
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

    /// Whether it was removed. The pins are looked at under the lock: a run pins while it holds a lease.
    fn remove_unused(&self, key: &Key) -> bool {
        let Ok(Some(_exclusive)) = self.lock(key, FlockArg::LockExclusiveNonblock) else { return false };
        if !self.pins(key).is_empty() {
            return false;
        }
        self.discard(key);
        self.read_ready(key).is_none()
    }

    /// The caller holds the lock; whoever has the file open finds it gone and opens a new one.
    fn remove_lock_file(&self, key: &Key) {
        let path = self.lock_path(key);
        let age = fs::metadata(&path).and_then(|file| file.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > LOCK_FILE_KEPT) {
            // Costs an empty file at worst.
            let _ = fs::remove_file(path);
        }
    }

    fn downloads_bytes(&self) -> u64 {
        // What cannot be looked at with its user's rights counts as nothing.
        act_as(self.settings.builder(), || files::unshared_disk_usage(&self.downloads())).unwrap_or_default()
    }

    /// Lets uv drop what it knows to be useless, then everything if that was not enough. Returns what is left.
    fn prune_downloads(&self, runner: &dyn Runner) -> u64 {
        if let Some(uv) = tools::which("uv", &self.settings.search_path).filter(|_| self.settings.use_uv)
            && let Some(_idle) = self.exclusive_file("downloads.lock")
        {
            let mut prune = Step::new(uv, ["cache", "prune", "--quiet"]);
            prune.env("UV_CACHE_DIR", self.downloads().join("uv"));
            if let Err(error) = runner.run(&self.settings.as_builder(prune), &mut |_| {}) {
                tracing::warn!(?error, "cannot run uv cache prune");
            }
        }
        if self.downloads_bytes() > self.settings.cap_bytes / 4 {
            self.drop_downloads();
        }
        self.downloads_bytes()
    }

    /// Removes all downloads unless a build is using them. Returns the bytes freed.
    fn drop_downloads(&self) -> u64 {
        let Some(_idle) = self.exclusive_file("downloads.lock") else { return 0 };
        let before = self.downloads_bytes();
        // Their user may have put a link to anywhere in their place, and then removes what they may remove there.
        if let Err(error) = act_as(self.settings.builder(), || self.empty_downloads()) {
            tracing::warn!(%error, "cannot act as the user whose downloads these are");
        }
        before.saturating_sub(self.downloads_bytes())
    }

    fn empty_downloads(&self) {
        for tool in DOWNLOADS {
            let entries = fs::read_dir(self.downloads().join(tool));
            for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
                let is_directory = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
                let removed = if is_directory { remove_tree(&path) } else { fs::remove_file(&path) };
                if let Err(error) = removed {
                    tracing::warn!(path = %path.display(), %error, "cannot remove downloads");
                }
            }
        }
    }

    /// Says that a build uses the downloads, for as long as the result lives.
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
