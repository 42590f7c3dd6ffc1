//! The environment cache. Kernel locks coordinate use, building and removal.
//!
//! Every environment has a lock file: a shared lock to use it, and an exclusive lock to build or remove it. The kernel
//! releases the locks of a process that ends, so a crash leaves nothing to clean up manually. An interrupted build has
//! no `ready` marker and is repeated. Jobs outlive the agent and its locks, so they use pins, which are files. All this
//! works between processes, so agents on one machine may share a cache.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::SystemTime;

use hostler_project::{Kind, Requirements};
use hostler_snapshot::remove_tree;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::build::Build;
use super::error::{BuildError, EnvError, IoContext, explain, system_error};
use super::files;
use super::key::{self, Key};
use super::runner::{POLL_INTERVAL, Runner, take_lock};
use super::settings::Settings;
use super::tools::ToolBox;
use crate::mutex::lock;
use crate::rights::act_as;

/// Directories of downloads: packages, and archives of Python.
const DOWNLOADS: [&str; 2] = ["uv", "python"];

/// Mode of directories of the agent that lead to files of users: the user passes through, and nobody else lists
/// them.
pub(super) const PASSAGE: u32 = 0o711;

/// Permissions of the directory of the downloads.
const DOWNLOADS_MODE: u32 = 0o700;

/// The environments of one node or of one of its users. Share it between threads by reference or `Arc`.
pub struct Cache {
    pub(super) root: PathBuf,
    pub(super) settings: Settings,
    pub(super) tools: ToolBox,
    /// Held while the directories of the downloads are created.
    making_downloads: Mutex<()>,
}

/// An environment in use. It is not removed while a lease or a pin exists.
#[derive(Debug)]
pub struct Lease {
    /// Directory of the environment, for `VIRTUAL_ENV`.
    pub path: PathBuf,
    /// The directory that has all of the environment, with the interpreter if uv has installed it.
    pub attempt: PathBuf,
    /// Path of the environment's interpreter.
    pub python: PathBuf,
    /// Directory of the environment's programs, for `PATH`.
    pub bin_dir: PathBuf,
    pub key: Key,
    /// Whether [`Cache::obtain`] has built the environment for this lease.
    pub built: bool,
    users: PathBuf,
    node: String,
    _in_use: Flock<File>,
}

impl Lease {
    /// Keeps the environment in use after the end of this lease and this process, until [`Cache::release`].
    ///
    /// `run_id` must be a plain file name, e.g. `17.2`. Idempotent.
    pub fn pin(&self, run_id: &str) -> Result<(), EnvError> {
        let file = self.users.join(pin_name(&self.node, run_id)?);
        File::create(&file).context("create", &file).map(drop)
    }
}

/// Content of the marker of a complete environment.
#[derive(Serialize, Deserialize)]
pub(super) struct Ready {
    /// Directory of the successful attempt.
    pub(super) attempt: String,
    /// Size of the environment after the build, in bytes.
    pub(super) size_bytes: u64,
    /// Tool that built the environment, as shown to users.
    pub(super) tool: String,
}

/// The last failed build of a key, for jobs that waited for it.
#[derive(Serialize, Deserialize)]
struct Failure {
    attempt: String,
    error: BuildError,
}

impl Cache {
    /// Opens or creates the cache in the directory `root`, which must be on a local file system, and removes incomplete
    /// builds of an earlier agent.
    pub fn with_settings(root: &Path, settings: Settings) -> Result<Self, EnvError> {
        let cache = Self::unswept(root, settings)?;
        cache.sweep();
        Ok(cache)
    }

    /// Opens or creates the cache without removing anything. Touches only directories of the agent, so that a file
    /// system that the user has mounted cannot delay it.
    pub(super) fn unswept(root: &Path, settings: Settings) -> Result<Self, EnvError> {
        hostler_sys::create_directory(root, PASSAGE).context("create", root)?;
        // Other users must not open locks, because they could hold them. The user passes through `envs` to the
        // environments.
        for (dir, mode) in [("locks", 0o700), ("envs", PASSAGE)] {
            make_directory(&root.join(dir), mode)?;
        }
        // Environments are built in place and contain their absolute path.
        let root = root.canonicalize().context("open", root)?;
        Ok(Self { tools: ToolBox::open(root.join("tools.json")), making_downloads: Mutex::default(), root, settings })
    }

    /// Returns the environment for `requirements`, and builds it if it is missing.
    ///
    /// A ready environment costs a few file reads. One caller, among all threads and processes, builds a missing
    /// environment while the other callers wait. If the build fails, all waiting callers fail with its error; a later
    /// call builds again. `log` gets the output of the build as it is produced.
    ///
    /// The build runs within the limits of its caller. If these limits end the build (cancelled, out of memory,
    /// timeout), a waiting caller builds the environment instead, within its own limits.
    pub fn obtain(
        &self,
        requirements: &Requirements,
        log: &mut dyn FnMut(&[u8]),
        runner: &dyn Runner,
    ) -> Result<Lease, EnvError> {
        let tools = self.tools.find(&self.settings, requirements.python(), runner, log)?;
        let key = key::derive(requirements, &tools, &self.settings);
        if let Some(lease) = self.ready(&key)? {
            return Ok(lease);
        }
        let earlier_failure = self.last_failure(&key).map(|failure| failure.attempt);
        let mut told = false;
        loop {
            runner.goes_on().map_err(|stopped| explain(stopped, &self.root))?;
            if let Some(lease) = self.ready(&key)? {
                return Ok(lease);
            }
            // A failure that is newer than this call belongs to the build that it waited for.
            if let Some(failure) =
                self.last_failure(&key).filter(|failure| Some(&failure.attempt) != earlier_failure.as_ref())
            {
                if let BuildError::Failed { output, .. } = &failure.error {
                    log(format!("hostler: the build of the other task failed; its last output:\n{output}\n").as_bytes());
                }
                return Err(failure.error.into());
            }
            if let Some(exclusive) = self.lock(&key, FlockArg::LockExclusiveNonblock)? {
                // The state may have changed between the checks above and the lock.
                if self.read_ready(&key).is_none()
                    && self.last_failure(&key).map(|failure| failure.attempt) == earlier_failure
                {
                    let (root, downloads, settings) = (self.root.as_path(), self.downloads(), &self.settings);
                    let build = Build { root, downloads, settings, requirements, tools: &tools, runner };
                    return self.build(&key, &build, exclusive, log);
                }
                continue;
            }
            if !told {
                log(b"hostler: waiting until another task has built this environment\n");
                told = true;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The key that [`Cache::obtain`] would use. Does not build.
    pub fn key(&self, requirements: &Requirements, runner: &dyn Runner) -> Result<Key, EnvError> {
        let tools = self.tools.find(&self.settings, requirements.python(), runner, &mut |_| {})?;
        Ok(key::derive(requirements, &tools, &self.settings))
    }

    /// Whether a project needs no environment: it requires only a version of Python, and `program` has that version.
    pub fn is_needless(
        &self,
        requirements: &Requirements,
        program: Option<&Path>,
        runner: &dyn Runner,
    ) -> Result<bool, EnvError> {
        match (requirements.kind(), requirements.python(), program) {
            (Kind::Python, Some(wanted), Some(program)) => self.tools.fits(program, &self.settings, wanted, runner),
            _ => Ok(false),
        }
    }

    /// Removes the pins of a run. Idempotent; unknown runs are ignored.
    pub fn release(&self, run_id: &str) -> Result<(), EnvError> {
        let name = pin_name(&self.settings.node, run_id)?;
        for key in self.keys() {
            let pin = self.env_dir(&key).join("users").join(&name);
            match fs::remove_file(&pin) {
                Ok(()) => self.touch(&key),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).context("remove", &pin),
            }
        }
        Ok(())
    }

    /// Removes the pins of all runs of this node that are not in `alive`. A restarted agent calls this function after
    /// it has recovered its runs and before it starts new runs. Returns the number of removed pins.
    pub fn retain_pins(&self, alive: &HashSet<String>) -> Result<usize, EnvError> {
        let mut removed = 0;
        for key in self.keys() {
            for name in self.pins(&key) {
                let (node, run_id) = name.split_once(PIN_SEPARATOR).unwrap_or(("", &name));
                if node == self.settings.node && !alive.contains(run_id) {
                    let pin = self.env_dir(&key).join("users").join(name);
                    fs::remove_file(&pin).context("remove", &pin)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn build(
        &self,
        key: &Key,
        build: &Build<'_>,
        exclusive: Flock<File>,
        log: &mut dyn FnMut(&[u8]),
    ) -> Result<Lease, EnvError> {
        let attempt = files::unique_name();
        if let Err(error) = self.try_build(key, build, &attempt, log) {
            self.discard(key);
            if let EnvError::Build(error) = &error
                && !error.is_of_the_builder()
            {
                self.remember_failure(key, &Failure { attempt, error: error.clone() });
            }
            return Err(error);
        }
        let in_use = exclusive;
        let lock = self.lock_path(key);
        in_use.relock(FlockArg::LockShared).map_err(io::Error::from).context("lock", &lock)?;
        // Garbage collection of another job may have removed the environment between the two locks.
        let Some(ready) = self.read_ready(key) else { return self.obtain(build.requirements, log, build.runner) };
        let lease = self.lease(key, &ready, in_use, true);
        self.collect(build.runner);
        Ok(lease)
    }

    fn try_build(
        &self,
        key: &Key,
        build: &Build<'_>,
        attempt: &str,
        log: &mut dyn FnMut(&[u8]),
    ) -> Result<(), EnvError> {
        // Remove a crashed build attempt, or an environment after a crash during its removal.
        self.discard(key);
        let env = self.env_dir(key);
        [(&env, PASSAGE), (&env.join("users"), 0o700)]
            .into_iter()
            .try_for_each(|(path, mode)| hostler_sys::make_directory(path, mode))
            .map_err(|error| system_error(&self.root, &error))?;
        let attempt_dir = env.join(attempt);
        self.make_downloads()?;
        let _downloads = match self.settings.sandbox {
            // Two builds in sandboxes could pass open files to each other through the downloads, and so one could change the
            // other's environment.
            Some(_) => {
                let waiting =
                    b"hostler: waiting until another environment of yours is built: one at a time in sandboxes\n";
                Some(take_lock(&self.root.join("downloads.lock"), waiting, build.runner, log)?.0)
            }
            None => self.use_downloads(),
        };
        build.run(&attempt_dir, log)?;
        let ready = Ready {
            attempt: attempt.to_owned(),
            size_bytes: act_as(self.settings.builder(), || files::disk_usage(&attempt_dir)).unwrap_or_default(),
            tool: build.tool(),
        };
        File::create(env.join("last_used")).map_err(|error| system_error(&self.root, &error))?;
        let marker = serde_json::to_vec(&ready).expect("a marker is plain text and numbers");
        hostler_sys::replace_file(&env.join("ready"), &marker, 0o600)
            .map_err(|error| system_error(&self.root, &error))?;
        Ok(())
    }

    /// Creates the directories of the tools' downloads, which belong to the user.
    pub(super) fn make_downloads(&self) -> Result<(), EnvError> {
        // Several builds may be the first one of the user. Only they wait.
        let _alone = lock(&self.making_downloads);
        let downloads = self.downloads();
        make_directory(&downloads, DOWNLOADS_MODE)?;
        if let Some(user) = &self.settings.run_as {
            // If the cache is new or its owner changes.
            if fs::symlink_metadata(&downloads).context("read", &downloads)?.uid() != user.ids.uid {
                remove_tree(&downloads).context("remove", &downloads)?;
                make_directory(&downloads, DOWNLOADS_MODE)?;
                lchown(&downloads, Some(user.ids.uid), Some(user.ids.gid))
                    .context("change the owner of", &downloads)?;
            }
        }
        // The tools also create these directories. If the user replaces one, only that user's builds are affected. A package
        // may have left a link, which would keep later builds from their downloads.
        let make = || {
            for directory in DOWNLOADS.map(|tool| downloads.join(tool)) {
                if fs::symlink_metadata(&directory).is_ok_and(|found| !found.is_dir()) {
                    drop(fs::remove_file(&directory));
                }
                drop(fs::create_dir(&directory));
            }
        };
        if let Err(error) = act_as(self.settings.builder(), make) {
            tracing::debug!(%error, "cannot switch to the owner of the downloads");
        }
        Ok(())
    }

    /// Returns a lease if the environment is ready; `None` for a missing environment, or while the environment is being
    /// removed.
    fn ready(&self, key: &Key) -> Result<Option<Lease>, EnvError> {
        // Checks the marker before the lock, so that a missing environment leaves no lock file, and again under the
        // lock.
        if self.read_ready(key).is_none() {
            return Ok(None);
        }
        let Some(in_use) = self.lock(key, FlockArg::LockSharedNonblock)? else { return Ok(None) };
        let Some(ready) = self.read_ready(key) else { return Ok(None) };
        self.touch(key);
        Ok(Some(self.lease(key, &ready, in_use, false)))
    }

    fn lease(&self, key: &Key, ready: &Ready, in_use: Flock<File>, built: bool) -> Lease {
        let env = self.env_dir(key);
        let attempt = env.join(&ready.attempt);
        let path = attempt.join("venv");
        let bin_dir = path.join("bin");
        let users = env.join("users");
        let (python, node) = (bin_dir.join("python"), self.settings.node.clone());
        Lease { python, attempt, path, bin_dir, key: key.clone(), built, users, node, _in_use: in_use }
    }

    /// Takes the lock of `key`; `None` if another process or thread holds a conflicting lock.
    pub(super) fn lock(&self, key: &Key, how: FlockArg) -> Result<Option<Flock<File>>, EnvError> {
        let path = self.lock_path(key);
        loop {
            let file = File::options().create(true).append(true).open(&path).context("open", &path)?;
            match Flock::lock(file, how) {
                // The file was removed between opening and locking, so the lock is useless.
                Ok(lock) if lock.metadata().is_ok_and(|metadata| metadata.nlink() == 0) => {}
                Ok(lock) => return Ok(Some(lock)),
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, errno)) => return Err(io::Error::from(errno)).context("lock", &path),
            }
        }
    }

    fn last_failure(&self, key: &Key) -> Option<Failure> {
        // Incomplete content counts as no failure, and is read again later.
        serde_json::from_slice(&fs::read(self.lock_path(key)).ok()?).ok()
    }

    /// Stores a failure in the lock file. Overwrites the file in place, because this process holds the lock on this
    /// file.
    fn remember_failure(&self, key: &Key, failure: &Failure) {
        let content = serde_json::to_vec(failure).expect("a build failure serializes to JSON");
        if let Err(error) = fs::write(self.lock_path(key), content) {
            // Waiting jobs will find out by building.
            tracing::warn!(%key, %error, "cannot store the failure of a build for waiting jobs");
        }
    }

    pub(super) fn read_ready(&self, key: &Key) -> Option<Ready> {
        serde_json::from_slice(&fs::read(self.env_dir(key).join("ready")).ok()?).ok()
    }

    fn touch(&self, key: &Key) {
        let file = self.env_dir(key).join("last_used");
        // Only the eviction order depends on it.
        let _ = File::options().write(true).open(file).and_then(|file| file.set_modified(SystemTime::now()));
    }

    pub(super) fn pins(&self, key: &Key) -> Vec<String> {
        let users = fs::read_dir(self.env_dir(key).join("users"));
        users.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        keys_in(&self.root.join("envs"))
    }

    pub(super) fn lock_keys(&self) -> Vec<Key> {
        keys_in(&self.root.join("locks"))
    }

    pub(super) fn env_dir(&self, key: &Key) -> PathBuf {
        self.root.join("envs").join(key.as_str())
    }

    pub(super) fn lock_path(&self, key: &Key) -> PathBuf {
        self.root.join("locks").join(key.as_str())
    }
}

/// Creates a directory with these permissions. An existing directory gets them too.
fn make_directory(dir: &Path, mode: u32) -> Result<(), EnvError> {
    hostler_sys::make_directory(dir, mode).context("create", dir)
}

fn keys_in(dir: &Path) -> Vec<Key> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Key::parse(entry.file_name().to_str()?)).collect()
}

/// Separates node name and run id in the file name of a pin; neither contains this character.
const PIN_SEPARATOR: char = '~';

/// File name of a pin. The run id must not contain path components.
fn pin_name(node: &str, run_id: &str) -> Result<String, EnvError> {
    let foreign = ['/', '\0', PIN_SEPARATOR];
    let plain = !run_id.is_empty() && run_id.len() < 128 && !run_id.starts_with('.') && !run_id.contains(foreign);
    if plain { Ok(format!("{node}{PIN_SEPARATOR}{run_id}")) } else { Err(EnvError::RunId(run_id.to_owned())) }
}
