//! Paths of an embedded cluster: persistent state in the XDG state directory, sockets in the runtime directory.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hostler_model::NodeName;
use nix::unistd::{Uid, geteuid};

use super::RunningHead;
use crate::failure::{During, Failure};
use crate::xdg;

/// Maximum length of the path of a Unix socket in bytes, without the final zero.
const SOCKET_PATH_LIMIT: usize = 107;

/// The directories of one embedded cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    state: PathBuf,
    runtime: PathBuf,
    /// The directory in `/tmp` that contains `runtime`, if any. Another user may have created it, so [`Self::create`]
    /// checks the owner and mode.
    exposed: Option<PathBuf>,
}

impl Places {
    /// The paths of this user: `$XDG_STATE_HOME/hostler` and `$XDG_RUNTIME_DIR/hostler`, or the XDG defaults. While the
    /// cluster's head runs, its runtime directory is the one in which the head listens. Otherwise, without a usable
    /// runtime directory, each state directory gets its own one in `/tmp`, because a user may have several
    /// clusters. If the variable is not set, the directory of the last start is used while it exists.
    pub fn from_environment() -> Result<Self, Failure> {
        let user = geteuid();
        let state = xdg::directory("XDG_STATE_HOME", ".local/state");
        if let Some(places) = state.as_ref().and_then(|state| Self::of_running_head(state.join("hostler"), user)) {
            return Ok(places);
        }
        let places = Self::chosen(state, xdg::runtime(&shared_runtime(user).to_string_lossy()), user)?;
        let is_set = std::env::var_os("XDG_RUNTIME_DIR").is_some();
        Ok(if is_set { places } else { places.with_last_runtime(user) })
    }

    /// The paths of a cluster whose head runs.
    fn of_running_head(state: PathBuf, uid: Uid) -> Option<Self> {
        let head = RunningHead::of(&head_in(&state))?;
        let runtime = head.socket().parent()?.to_owned();
        let shared = shared_runtime(uid);
        let exposed = runtime.starts_with(&shared).then_some(shared);
        (head.socket() == socket_in(&runtime)).then_some(Self { state, runtime, exposed })
    }

    /// Uses the runtime directory of the last start, if it still exists. `cron` runs commands without XDG_RUNTIME_DIR,
    /// and some programs hide the variable from the commands that they run, as Toil does from `sbatch`.
    fn with_last_runtime(self, uid: Uid) -> Self {
        let Ok(path) = std::fs::read(self.state.join(LAST_RUNTIME)) else { return self };
        let last = PathBuf::from(OsString::from_vec(path));
        let is_ours = std::fs::symlink_metadata(&last).is_ok_and(|metadata| is_private(&metadata, uid));
        // The directories in `/tmp` follow from the state directory.
        if !is_ours || !last.is_absolute() || last.starts_with(shared_runtime(uid)) {
            return self;
        }
        Self { runtime: last, exposed: None, ..self }
    }

    pub fn below(directory: &Path) -> Self {
        Self { state: directory.join("state"), runtime: directory.join("run"), exposed: None }
    }

    fn chosen(state: Option<PathBuf>, runtime: Option<PathBuf>, uid: Uid) -> Result<Self, Failure> {
        let state = state.ok_or_else(|| {
            Failure::new("there is no directory for the cluster's files: neither HOME nor XDG_STATE_HOME is set")
        })?;
        let shared = shared_runtime(uid);
        let (runtime, exposed) = match runtime.map(|runtime| runtime.join("hostler")) {
            None => (shared.join(short_name(&state)), Some(shared)),
            Some(long) if socket_in(&long).as_os_str().len() > SOCKET_PATH_LIMIT => {
                (shared.join(short_name(&long)), Some(shared))
            }
            Some(runtime) => (runtime, None),
        };
        Ok(Self { state: state.join("hostler"), runtime, exposed })
    }

    /// Fails if another user may have made the sockets, because they are in `/tmp`.
    pub fn ensure_ours(&self) -> Result<(), Failure> {
        match &self.exposed {
            Some(exposed) if exposed.symlink_metadata().is_ok() => ensure_ours(exposed),
            _ => Ok(()),
        }
    }

    /// Removes the directory for sockets, and its parent in `/tmp`, unless something is in them.
    pub fn remove_empty(&self) {
        let allocations = self.runtime.join("allocations");
        for directory in [Some(&allocations), Some(&self.runtime), self.exposed.as_ref()].into_iter().flatten() {
            // Another cluster of this user may use the parent.
            drop(std::fs::remove_dir(directory));
        }
    }

    /// The socket of the head.
    ///
    /// # Errors
    /// Fails if the path is too long for a socket.
    pub fn socket(&self) -> Result<PathBuf, Failure> {
        let socket = socket_in(&self.runtime);
        if socket.as_os_str().len() <= SOCKET_PATH_LIMIT {
            return Ok(socket);
        }
        Err(Failure::new(format!("the path {} is too long for a socket", socket.display()))
            .hint(format!("the kernel allows {SOCKET_PATH_LIMIT} bytes; choose a shorter XDG_RUNTIME_DIR")))
    }

    /// The socket of a real head that this user runs.
    ///
    /// # Errors
    /// Fails if the path is too long for a socket.
    pub fn real_socket(&self) -> Result<PathBuf, Failure> {
        Ok(self.socket()?.with_file_name("real.sock"))
    }

    /// The socket of a node's agent. The agent does not open it if the path is too long.
    pub fn node_socket(&self, name: &NodeName) -> PathBuf {
        socket_in(&self.runtime).with_file_name(format!("{name}.sock"))
    }

    /// The directory for sockets.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    pub fn head(&self) -> PathBuf {
        head_in(&self.state)
    }

    pub fn node(&self, name: &NodeName) -> PathBuf {
        self.state.join(NODES).join(name.as_str())
    }

    /// The directory of Python environments. All nodes share it, because they are on one machine.
    pub fn environments(&self) -> PathBuf {
        self.state.join("environments")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.state.join("logs").join(format!("{name}.log"))
    }

    pub fn record(&self) -> PathBuf {
        self.state.join(RECORD)
    }

    pub fn lock(&self) -> PathBuf {
        self.state.join("up.lock")
    }

    /// A file with the join code for a node.
    pub fn join_file(&self, name: &NodeName) -> PathBuf {
        self.runtime.join(format!("join-{name}"))
    }

    /// Creates the directories, readable only by this user.
    pub fn create(&self) -> Result<(), Failure> {
        xdg::tell();
        for directory in [self.state.clone(), self.state.join(NODES), self.state.join("logs")] {
            create_private(&directory)?;
        }
        if let Some(exposed) = &self.exposed {
            create_private(exposed)?;
            ensure_ours(exposed)?;
        }
        create_private(&self.runtime)?;
        let last = self.state.join(LAST_RUNTIME);
        // At once, since other commands may read it.
        let written = hostler_sys::replace_file_unflushed(&last, self.runtime.as_os_str().as_bytes(), 0o600);
        written.during(|| format!("cannot write {}", last.display()))
    }
}

/// Fails if `hostler up` keeps its head or one of its nodes in this directory.
fn refuse_embedded(directory: &Path) -> Result<(), Failure> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let is_in = |state: Option<&Path>, name: &str| {
        state.is_some_and(|state| state.join(RECORD).exists() && directory.starts_with(state.join(name)))
    };
    if !is_in(directory.parent(), HEAD) && !is_in(directory.ancestors().nth(2), NODES) {
        return Ok(());
    }
    Err(Failure::new(format!("{} belongs to the cluster of `hostler up`", directory.display()))
        .hint("`hostler up` starts that cluster")
        .hint("choose another --directory, or leave it out"))
}

/// A kind of daemon, by the directory with its keys in its own directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    Head,
    Agent,
}

impl Daemon {
    /// Fails if a daemon of the other kind, or `hostler up`, keeps its state in this directory. Both kinds have directories of
    /// the same names, such as the one with chunks, and each would delete those of the other.
    pub fn ensure_own(self, directory: &Path) -> Result<(), Failure> {
        refuse_embedded(directory)?;
        ensure_controlled(directory)?;
        let (keys_of_other, other) = match self {
            Self::Head => ("identity", "an agent"),
            Self::Agent => ("trust", "a head"),
        };
        if !directory.join(keys_of_other).exists() {
            return Ok(());
        }
        Err(Failure::new(format!("{} is the directory of {other}", directory.display()))
            .hint("choose another --directory, or leave it out"))
    }
}

/// Fails if another user could replace the directory or what is in it: programs of root would then do what that user wants. Root
/// also trusts the person who ran `sudo`.
pub fn ensure_controlled(directory: &Path) -> Result<(), Failure> {
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()).filter(|_| geteuid().is_root());
    let trusted = [Some(0), Some(geteuid().as_raw()), sudo];
    let resolved = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    for level in directory.ancestors().chain(resolved.ancestors()) {
        let Ok(metadata) = level.symlink_metadata() else { continue };
        let is_open = metadata.is_dir() && metadata.mode() & 0o1002 == 0o002;
        if is_open || !trusted.contains(&Some(metadata.uid())) {
            let owner = metadata.uid();
            let why =
                if is_open { "all users can write to it".to_owned() } else { format!("it belongs to uid {owner}") };
            return Err(Failure::new(format!("{} is not safe for the state of a daemon", level.display()))
                .because(&io::Error::other(why))
                .hint("choose another --directory, or give it to root or the user of the daemon"));
        }
    }
    Ok(())
}

const HEAD: &str = "head";
const NODES: &str = "nodes";
const RECORD: &str = "cluster.json";

/// The file in the state directory with the path of the runtime directory.
const LAST_RUNTIME: &str = "runtime";

/// Contains the runtime directories of a user who has no usable XDG_RUNTIME_DIR.
fn shared_runtime(user: Uid) -> PathBuf {
    format!("/tmp/hostler-{user}").into()
}

fn head_in(state: &Path) -> PathBuf {
    state.join(HEAD)
}

fn socket_in(runtime: &Path) -> PathBuf {
    runtime.join("head.sock")
}

/// Hashes a long path to a short name. Uses FNV-1a, because the standard library's hash may differ between versions.
fn short_name(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn create_private(directory: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .during(|| format!("cannot create the directory {}", directory.display()))
}

/// Fails unless only this user can access the directory. Another user may have created it in `/tmp`.
fn ensure_ours(directory: &Path) -> Result<(), Failure> {
    let metadata = std::fs::symlink_metadata(directory).during(|| format!("cannot examine {}", directory.display()))?;
    if is_private(&metadata, geteuid()) {
        return Ok(());
    }
    Err(Failure::new(format!("{} is not a directory that only you can access", directory.display()))
        .because(&io::Error::other("the directory's owner or mode would allow other users to replace the head"))
        .hint("remove the directory, or set XDG_RUNTIME_DIR to a private directory of your own"))
}

fn is_private(metadata: &Metadata, uid: Uid) -> bool {
    metadata.is_dir() && metadata.uid() == uid.as_raw() && metadata.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn chosen(state: Option<&str>, runtime: Option<&str>) -> Places {
        let state = state.unwrap_or("/home/ada/.local/state");
        Places::chosen(Some(state.into()), runtime.map(Into::into), Uid::from_raw(7)).expect("a state directory")
    }

    #[test]
    fn xdg_directories_have_defaults() {
        let places = chosen(Some("/state"), Some("/run/user/7"));
        assert_eq!(places.head(), Path::new("/state/hostler/head"));
        assert_eq!(places.socket().expect("short"), Path::new("/run/user/7/hostler/head.sock"));

        let places = chosen(None, None);
        assert_eq!(places.state(), Path::new("/home/ada/.local/state/hostler"));
        let socket = places.socket().expect("short");
        assert!(socket.starts_with("/tmp/hostler-7/") && socket.ends_with("head.sock"), "{}", socket.display());
        assert_eq!(socket, chosen(None, None).socket().expect("short"));
        assert_ne!(
            socket,
            chosen(Some("/state"), None).socket().expect("short"),
            "each state directory has its own socket"
        );
        assert!(Places::chosen(None, None, Uid::from_raw(7)).is_err());
    }

    #[test]
    fn long_runtime_directory_is_replaced_by_a_short_one() {
        let long = |end: &str| chosen(None, Some(&format!("/run/{}{end}", "x".repeat(100)))).socket().expect("short");
        assert!(long("a").starts_with("/tmp/hostler-7/") && long("a") != long("b"));
        assert!(long("a").as_os_str().len() <= SOCKET_PATH_LIMIT);
    }

    #[test]
    fn runtime_directory_of_the_last_start_is_used_while_it_exists() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (state, runtime) = (directory.path().join("state"), directory.path().join("run"));
        let chosen = |runtime: Option<&PathBuf>| {
            Places::chosen(Some(state.clone()), runtime.cloned(), geteuid()).expect("a state directory")
        };
        let started = chosen(Some(&runtime));
        started.create().expect("made just now");
        let later = chosen(None).with_last_runtime(geteuid());
        assert_eq!(later.socket().expect("short"), started.socket().expect("short"));
        std::fs::set_permissions(&started.runtime, PermissionsExt::from_mode(0o755)).expect("ours");
        assert_eq!(chosen(None).with_last_runtime(geteuid()), chosen(None), "others can access the directory");
        std::fs::remove_dir(&started.runtime).expect("empty");
        assert_eq!(chosen(None).with_last_runtime(geteuid()), chosen(None), "the directory is gone");
    }

    #[test]
    fn only_empty_directories_for_sockets_are_removed() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let exposed = directory.path().join("hostler-7");
        let clusters = ["a", "b"].map(|name| Places {
            state: directory.path().join(name).join("state"),
            runtime: exposed.join(name),
            exposed: Some(exposed.clone()),
        });
        clusters.iter().for_each(|places| places.create().expect("made just now"));
        let held = clusters[0].runtime.join("real.sock");
        std::fs::write(&held, "").expect("ours");
        clusters.iter().for_each(Places::remove_empty);
        assert!(held.exists() && !clusters[1].runtime.exists(), "only the other cluster's directory was empty");
        std::fs::remove_file(&held).expect("ours");
        std::fs::create_dir(clusters[0].runtime.join("allocations")).expect("ours");
        clusters[0].remove_empty();
        assert!(!exposed.exists(), "the last cluster removes the parent");
        clusters[0].create().expect("the next `hostler up` creates the directories again");
    }

    #[test]
    fn directories_of_the_embedded_cluster_are_refused() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let places = Places::below(directory.path());
        let node = places.node(&"n1".parse().expect("valid"));
        for directory in
            [places.head(), node.clone(), places.state().join("cluster-head"), places.state().join("agent")]
        {
            std::fs::create_dir_all(&directory).expect("ours");
            assert_eq!(refuse_embedded(&directory), Ok(()), "no cluster was started here");
        }
        std::fs::write(places.record(), "{}").expect("ours");
        for directory in [&places.head(), &node, &places.state().join("nodes/../head")] {
            let said = refuse_embedded(directory).expect_err("the cluster's").render();
            assert!(said.contains("belongs to the cluster of `hostler up`"), "{said}");
        }
        for name in ["cluster-head", "agent", "nodes", "head/chunks"] {
            assert_eq!(refuse_embedded(&places.state().join(name)), Ok(()), "{name}");
        }
    }

    #[test]
    fn head_and_agent_do_not_share_a_directory() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let [of_head, of_agent] = ["head", "agent"].map(|name| directory.path().join(name));
        std::fs::create_dir_all(of_head.join("trust")).expect("ours");
        std::fs::create_dir_all(of_agent.join("identity")).expect("ours");
        assert_eq!((Daemon::Head.ensure_own(&of_head), Daemon::Agent.ensure_own(&of_agent)), (Ok(()), Ok(())));
        std::fs::set_permissions(&of_agent, std::fs::Permissions::from_mode(0o777)).expect("ours");
        let open = Daemon::Agent.ensure_own(&of_agent.join("agent")).expect_err("others can write above it").render();
        assert!(open.contains("all users can write to it"), "{open}");
        std::fs::set_permissions(&of_agent, std::fs::Permissions::from_mode(0o700)).expect("ours");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&of_agent, Some(4711), None).expect("root may");
            let others = Daemon::Agent.ensure_own(&of_agent).expect_err("it belongs to somebody else").render();
            assert!(others.contains("it belongs to uid 4711"), "{others}");
            std::os::unix::fs::chown(&of_agent, Some(0), None).expect("root may");
        }
        let said =
            |daemon: Daemon, directory: &Path| daemon.ensure_own(directory).expect_err("another daemon's").render();
        assert!(said(Daemon::Head, &of_agent).contains("is the directory of an agent"));
        assert!(said(Daemon::Agent, &of_head).contains("is the directory of a head"));
    }

    #[test]
    fn runtime_directory_open_to_others_is_rejected() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let runtime = directory.path().join("run");
        let places =
            Places { state: directory.path().join("state"), runtime: runtime.clone(), exposed: Some(runtime.clone()) };
        places.create().expect("made just now");
        places.create().expect("made before");
        std::fs::set_permissions(&runtime, PermissionsExt::from_mode(0o755)).expect("ours");
        let refusal = places.ensure_ours().expect_err("open to others").render();
        assert!(refusal.contains("not a directory that only you can access"), "{refusal}");
        std::fs::remove_dir(&runtime).expect("empty");
        assert_eq!(places.ensure_ours(), Ok(()), "nobody has made it");
        std::os::unix::fs::symlink(directory.path(), &runtime).expect("ours");
        assert!(places.ensure_ours().is_err(), "a link could lead anywhere");
    }
}
