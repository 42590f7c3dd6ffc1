//! The environment cache. Kernel locks coordinate use, building and removal.
//!
//! Every environment has a lock file: a shared lock to use it, and an exclusive lock to build or remove it. The kernel
//! releases the locks of a process that ends, so a crash leaves nothing to clean up manually. An interrupted build has
//! no `ready` marker and is repeated. Jobs outlive the agent and its locks, so they use pins, which are files. All this
//! works between processes, so agents on one machine may share a cache.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use hostler_snapshot::remove_tree;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::build::{self, Build};
use super::detect::{Kind, Requirements};
use super::key::{self, Key};
use super::runner::{Runner, Step};
use super::tools::ToolBox;
use super::{BuildError, EnvError, IoContext, files};
use crate::account::{Account, Ids, act_as};

/// Poll interval while another job builds the environment. A build takes much longer than the interval, and a check
/// much less.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Tools with a download cache: uv, pip, and uv's Python archives.
pub(super) const DOWNLOADS: [&str; 3] = ["uv", "pip", "python"];

#[derive(Clone, Debug)]
pub struct Settings {
    /// Size limit for environments and downloads in bytes. Above the limit, the least recently used environments and
    /// downloads are removed.
    pub cap_bytes: u64,
    /// Search path for interpreters, uv and compilers; by default the agent's `PATH`.
    pub search_path: OsString,
    /// Interpreter to use instead of the first `python3` on the search path.
    pub python: Option<PathBuf>,
    /// Whether to use uv if present. Default: yes.
    pub use_uv: bool,
    /// Whether uv may install Python versions that projects require and this node lacks. Default: no.
    pub install_python: bool,
    /// Variables for builds in addition to the agent's own, e.g. `UV_INDEX_URL` and `PIP_INDEX_URL`.
    pub variables: Vec<(String, String)>,
    /// User who builds and owns this cache, because package installation can run arbitrary code. Default: the agent's
    /// own user.
    pub run_as: Option<Arc<Account>>,
    /// Name of the node, which is part of each pin's name: agents on one machine may share a cache, but each knows only
    /// its own runs.
    pub node: String,
}

impl Settings {
    pub fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes,
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            python: None,
            use_uv: true,
            install_python: false,
            variables: Vec::new(),
            run_as: None,
            node: String::new(),
        }
    }

    /// Variables for builds: the agent's, and those in the settings. If the building user is not the agent's own user,
    /// only those agent variables are included that configure the locale or access to package indexes; others may be
    /// confidential.
    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        let overridden = |name: &OsString| self.variables.iter().any(|(other, _)| OsStr::new(other) == name);
        std::env::vars_os()
            .filter(move |(name, _)| !overridden(name))
            .filter(|(name, _)| self.run_as.is_none() || is_of_the_site(name))
            .chain(self.variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    /// Whether the settings allow the installation of missing Python versions.
    pub(super) fn installs_python(&self) -> bool {
        self.install_python && self.use_uv && self.python.is_none()
    }

    /// Ids of the building user, with whose rights the agent accesses that user's files; `None` for the agent's own
    /// user.
    pub(super) fn builder(&self) -> Option<&Ids> {
        self.run_as.as_ref().map(|user| &user.ids)
    }

    /// Configures a step to run as the building user, with that user's home directory and the permitted variables.
    pub(super) fn as_builder(&self, mut step: Step) -> Step {
        let mut env: BTreeMap<OsString, OsString> = self.environment().collect();
        env.insert("PATH".into(), self.search_path.clone());
        env.extend(self.identity().map(|(name, value)| (name.into(), value)));
        env.extend(step.env);
        step.env = env.into_iter().collect();
        step.credentials = self.run_as.as_ref().map(|user| user.credentials());
        step
    }

    /// Variables that identify the building user; empty for the agent's own user.
    pub(super) fn identity(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let of = |user: &Arc<Account>| {
            let name = OsString::from(&user.name);
            [("HOME", user.home.clone().into_os_string()), ("USER", name.clone()), ("LOGNAME", name)]
        };
        self.run_as.iter().flat_map(of).collect::<Vec<_>>().into_iter()
    }

    pub(super) fn home(&self) -> Option<OsString> {
        self.run_as.as_ref().map_or_else(|| std::env::var_os("HOME"), |user| Some(user.home.clone().into()))
    }
}

/// Whether a variable configures access to package indexes or the locale.
fn is_of_the_site(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["UV_", "PIP_", "SSL_CERT_", "LC_"].iter().any(|prefix| name.starts_with(prefix))
        || ["LANG", "TZ", "REQUESTS_CA_BUNDLE"].contains(&&*name)
        || name.to_ascii_lowercase().ends_with("_proxy")
}

/// The environments of one node or of one of its users. Threads can share a cache by reference or `Arc`.
pub struct Cache {
    pub(super) root: PathBuf,
    pub(super) settings: Settings,
    tools: ToolBox,
}

/// An environment in use. It is not removed while a lease or a pin exists.
#[derive(Debug)]
pub struct Lease {
    /// Directory of the environment, for `VIRTUAL_ENV`.
    pub path: PathBuf,
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

    /// Opens or creates the cache without removing anything.
    pub(super) fn unswept(root: &Path, settings: Settings) -> Result<Self, EnvError> {
        // The contents of `downloads` belong to the user.
        for dir in ["locks", "envs", "downloads"] {
            let dir = root.join(dir);
            fs::create_dir_all(&dir).context("create", &dir)?;
        }
        // Other users must not open locks, because they could hold them.
        let locks = root.join("locks");
        fs::set_permissions(&locks, Permissions::from_mode(0o700)).context("close", &locks)?;
        // Environments are built in place and contain their absolute path.
        let root = root.canonicalize().context("open", root)?;
        if let Some(user) = &settings.run_as {
            let downloads = root.join("downloads");
            // If the cache is new or its owner changes.
            if fs::symlink_metadata(&downloads).context("read", &downloads)?.uid() != user.ids.uid {
                remove_tree(&downloads).context("remove", &downloads)?;
                fs::create_dir(&downloads).context("create", &downloads)?;
                lchown(&downloads, Some(user.ids.uid), Some(user.ids.gid))
                    .context("change the owner of", &downloads)?;
            }
        }
        // The tools also create these directories. If the user replaces one, only that user's builds are affected.
        let make = || DOWNLOADS.iter().for_each(|tool| drop(fs::create_dir(root.join("downloads").join(tool))));
        if let Err(error) = act_as(settings.builder(), make) {
            tracing::debug!(%error, "cannot switch to the owner of the downloads");
        }
        Ok(Self { tools: ToolBox::open(root.join("tools.json")), root, settings })
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
        let tools = self.tools.find(&self.settings, requirements.python(), runner)?;
        let key = key::derive(requirements, &tools, &self.settings);
        if let Some(lease) = self.ready(&key)? {
            return Ok(lease);
        }
        let earlier_failure = self.last_failure(&key).map(|failure| failure.attempt);
        let mut told = false;
        loop {
            runner.goes_on().map_err(|stopped| stopped.explain(&self.root))?;
            if let Some(lease) = self.ready(&key)? {
                return Ok(lease);
            }
            // A failure that is newer than this call belongs to the build that it waited for.
            if let Some(failure) =
                self.last_failure(&key).filter(|failure| Some(&failure.attempt) != earlier_failure.as_ref())
            {
                return Err(failure.error.into());
            }
            if let Some(exclusive) = self.lock(&key, FlockArg::LockExclusiveNonblock)? {
                // The state may have changed between the checks above and the lock.
                if self.read_ready(&key).is_none()
                    && self.last_failure(&key).map(|failure| failure.attempt) == earlier_failure
                {
                    let build = Build { cache: self, requirements, tools: &tools, runner };
                    return self.build(&key, &build, exclusive, log);
                }
                continue;
            }
            if !told {
                log(b"hostler: waiting for another job to build this environment\n");
                told = true;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// The key that [`Cache::obtain`] would use. Does not build.
    pub fn key(&self, requirements: &Requirements, runner: &dyn Runner) -> Result<Key, EnvError> {
        Ok(key::derive(requirements, &self.tools.find(&self.settings, requirements.python(), runner)?, &self.settings))
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
        let users = env.join("users");
        fs::create_dir_all(&users).map_err(|error| build::system_error(&self.root, &error))?;
        let attempt_dir = env.join(attempt);
        build.run(&attempt_dir, log)?;
        let ready = Ready {
            attempt: attempt.to_owned(),
            size_bytes: act_as(self.settings.builder(), || files::disk_usage(&attempt_dir)).unwrap_or_default(),
            tool: build.tool(),
        };
        File::create(env.join("last_used")).map_err(|error| build::system_error(&self.root, &error))?;
        let marker = serde_json::to_vec(&ready).expect("a ready marker serializes to JSON");
        hostler_sys::replace_file(&env.join("ready"), &marker, 0o644)
            .map_err(|error| build::system_error(&self.root, &error))?;
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
        let path = env.join(&ready.attempt).join("venv");
        let bin_dir = path.join("bin");
        let users = env.join("users");
        let (python, node) = (bin_dir.join("python"), self.settings.node.clone());
        Lease { python, path, bin_dir, key: key.clone(), built, users, node, _in_use: in_use }
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
