//! A run's directory: everything that is known of the run on this node, so that a restarted agent can go on.
//!
//! ```text
//! runs/12_3.1.4/journal     what was launched, and in which boot   (this room)
//!                           who took it and how it ended          (the shepherd)
//!               work/       the job's folder                      (stage)
//!               manifest    the captured folder's manifest        (stage)
//!               baseline    what was laid out of it               (stage)
//!               steps/      how to launch on the job's other nodes (steps)
//!               temporary   a link to a directory elsewhere       (temporary)
//!               setup       output of preparing the environment   (stage)
//!               stdout, stderr                                    (the job)
//!               end         how it ended when no journal says so  (this room)
//! spare-7/                  a directory that waits to be used again
//! ```
//!
//! The directory and the journal belong to the agent, so nobody can put anything else in the place of what is in it. `work`, `steps`
//! and the outputs belong to the job's user, and nobody else can enter or read them.
//!
//! Making a directory with its files costs more than a short command takes, and removing them as much again. So the
//! directory of a command that is over is kept with its three files and given to a later run of the same user.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hostler_core::agent::RunLaunch;
use hostler_model::{BootId, RunId};
use hostler_proto::link::{Output, RunEnd};
use hostler_shepherd::journal::{self, Story};
use hostler_snapshot::remove_tree;

use crate::temporary;

/// The most directories kept for later runs.
const MAX_SPARE: usize = 64;

/// The directories of all runs.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    /// Of each run's directory: others pass through to their own files where jobs belong to several users.
    mode: u32,
    spares: Mutex<Spares>,
}

/// Directories that wait for a run.
#[derive(Debug, Default)]
struct Spares {
    waiting: Vec<Spare>,
    /// How many there ever were: each has a name of its own.
    count: u64,
}

/// One of them.
#[derive(Debug)]
struct Spare {
    path: PathBuf,
    /// Whose outputs are in it, a user id: they must not become another's.
    owner: u32,
}

/// A run that an earlier agent left.
pub(crate) struct FoundRun {
    pub(crate) launch: Arc<RunLaunch>,
    /// The boot in which it was launched.
    pub(crate) boot: BootId,
    pub(crate) directory: RunDirectory,
}

/// One run's directory.
#[derive(Debug, Clone)]
pub(crate) struct RunDirectory {
    path: PathBuf,
}

impl Runs {
    /// Opens or creates the directory of runs, which belong to several users or only to the agent's own.
    pub(crate) fn open(root: PathBuf, are_of_many: bool) -> io::Result<Self> {
        let mode = if are_of_many { 0o711 } else { 0o700 };
        fs::DirBuilder::new().recursive(true).mode(mode).create(&root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(mode))?;
        Ok(Self { root, mode, spares: Mutex::default() })
    }

    /// The directory of a run, whether or not it exists.
    pub(crate) fn of(&self, run: RunId) -> RunDirectory {
        RunDirectory { path: self.root.join(run.to_string()) }
    }

    /// The directory of a new run of the user with id `owner`, if that is known, with what was launched, and in which boot, written
    /// in it. Returns what a shepherd must name to take it.
    pub(crate) fn create(&self, launch: &RunLaunch, boot: &BootId, owner: Option<u32>) -> io::Result<String> {
        let directory = self.of(launch.run);
        match owner.and_then(|owner| self.spares().take(owner)) {
            Some(spare) if fs::rename(&spare.path, &directory.path).is_ok() => {}
            // The run's own directory is in the way.
            Some(Spare { path, .. }) => {
                remove_later(RunDirectory { path });
                self.make(&directory)?;
            }
            None => self.make(&directory)?,
        }
        directory.begin(launch, boot)
    }

    /// Keeps the directory of a command that is over for a later run, or removes it.
    pub(crate) fn retire(&self, run: RunId) {
        let mut directory = self.of(run);
        if let Some(spare) = self.name_spare().filter(|_| directory.has_little_output())
            && fs::rename(&directory.path, &spare).is_ok()
        {
            // Under its new name nobody finds it any more; who has found it before is noticed.
            directory.path = spare;
            if let Ok(Some(owner)) = directory.wipe() {
                return self.spares().waiting.push(Spare { path: directory.path, owner });
            }
        }
        self.discard(directory);
    }

    /// Makes a run's directory afresh.
    fn make(&self, directory: &RunDirectory) -> io::Result<()> {
        let create = || fs::DirBuilder::new().mode(self.mode).create(&directory.path);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.discard(directory.clone());
                create()
            }
            made => made,
        }
    }

    /// Has a directory go: it has another name at once, and is removed when there is time for that, as a user may have left anything in it.
    fn discard(&self, mut directory: RunDirectory) {
        let doomed = {
            let mut spares = self.spares();
            spares.count += 1;
            self.root.join(format!("doomed-{}-{}", std::process::id(), spares.count))
        };
        match fs::rename(&directory.path, &doomed) {
            Ok(()) => directory.path = doomed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => tracing::warn!(path = %directory.path.display(), %error, "cannot put a directory aside"),
        }
        remove_later(directory);
    }

    /// Where another spare directory may be; `None` when there are enough.
    fn name_spare(&self) -> Option<PathBuf> {
        let mut spares = self.spares();
        if spares.waiting.len() >= MAX_SPARE {
            return None;
        }
        spares.count += 1;
        Some(self.root.join(format!("spare-{}", spares.count)))
    }

    fn spares(&self) -> std::sync::MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the disk that holds the directories has no room left.
    pub(crate) fn disk_is_full(&self) -> bool {
        const ROOM_BYTES: u64 = 64 << 10;
        nix::sys::statvfs::statvfs(&self.root)
            .is_ok_and(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()) < ROOM_BYTES)
    }

    /// Every run that has a directory with a readable launch. What a crash left without one never began and is removed, as are
    /// spare directories.
    ///
    /// # Errors
    /// When a run of which something is there cannot be read: its job may go on, and must neither be ended nor begun again.
    pub(crate) fn found(&self) -> io::Result<Vec<FoundRun>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let directory = RunDirectory { path: entry?.path() };
            match directory.launch() {
                Ok(Some((boot, launch))) => found.push(FoundRun { launch: Arc::new(launch), boot, directory }),
                Ok(None) => self.discard(directory),
                Err(error) => {
                    return Err(io::Error::other(format!(
                        "cannot read what ran in {}: {error}; remove that directory if nothing of it runs any more",
                        directory.path.display()
                    )));
                }
            }
        }
        Ok(found)
    }
}

impl Spares {
    /// The last one that a run of this user may have.
    fn take(&mut self, owner: u32) -> Option<Spare> {
        let at = self.waiting.iter().rposition(|spare| spare.owner == owner)?;
        Some(self.waiting.remove(at))
    }
}

impl RunDirectory {
    /// Begins its journal, over an earlier one: what was launched, and in which boot. Returns what a shepherd must name to take
    /// the run, which is new each time: one that was asked earlier, and comes late, does not take it.
    pub(crate) fn begin(&self, launch: &RunLaunch, boot: &BootId) -> io::Result<String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let identity = format!("{}#{}.{now}.{count}", launch.run, std::process::id());
        journal::begin(&self.path, &identity, &(boot, launch))?;
        Ok(identity)
    }

    /// Whether its outputs take so little that emptying them takes no time.
    fn has_little_output(&self) -> bool {
        const LITTLE_BYTES: u64 = 1 << 20;
        let size = |output: Output| fs::symlink_metadata(self.output(output)).map_or(0, |metadata| metadata.len());
        size(Output::Stdout).saturating_add(size(Output::Stderr)) <= LITTLE_BYTES
    }

    /// Makes a command's directory as good as new, for another run of the user whose id is returned; `None` when somebody still
    /// looks into it.
    fn wipe(&self) -> io::Result<Option<u32>> {
        match fs::remove_file(self.path.join("end")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => hostler_shepherd::wipe(&self.path),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the job's processes need to launch on its other nodes.
    pub(crate) fn steps(&self) -> PathBuf {
        self.path.join("steps")
    }

    /// The link to where its temporary files are.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path.join("temporary")
    }

    /// The job's folder.
    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// What was in the job's folder at the start.
    pub(crate) fn baseline(&self) -> PathBuf {
        self.path.join("baseline")
    }

    /// The manifest of the captured folder.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.path.join("manifest")
    }

    /// One of its outputs.
    pub(crate) fn output(&self, output: Output) -> PathBuf {
        self.path.join(output.as_str())
    }

    /// Stores how it ended. Replaced whole, so a crash leaves the old or the new.
    pub(crate) fn store_end(&self, end: &RunEnd) -> io::Result<()> {
        let partial = self.path.join("end.partial");
        self.store(&partial, &hostler_proto::encode(end))?;
        fs::rename(partial, self.path.join("end"))
    }

    /// Writes one of its files, which only the agent may read.
    pub(crate) fn store(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(path.starts_with(&self.path), "one of its own files");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(bytes)
    }

    /// How it ended, if that was stored.
    pub(crate) fn end(&self) -> Option<RunEnd> {
        hostler_proto::decode(&fs::read(self.path.join("end")).ok()?).ok()
    }

    /// What was launched here; `None` when nothing was, or it was for a run of another name.
    fn launch(&self) -> io::Result<Option<(BootId, RunLaunch)>> {
        let story = Story::read(&self.path)?;
        if !story.is_of(self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()) {
            return Ok(None);
        }
        Ok(Some(story.note()?))
    }

    fn clear(&self) -> io::Result<()> {
        if let Err(error) = temporary::remove(&self.temporary()) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a run's temporary files");
        }
        remove_tree(&self.path)
    }

    /// Removes it with all that is in it, and its temporary files.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.clear() {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a run's directory");
        }
    }
}

/// Removes a directory when there is time for that: on the runtime, a thread beside it does so.
fn remove_later(directory: RunDirectory) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || directory.remove())),
        Err(_) => directory.remove(),
    }
}

/// Writes a file that only the agent can read, whole or not at all; it is on disk when this returns.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_added_extension("partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(partial, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_left_directories_of_any_depth_is_removed() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let runs = Runs::open(root.path().to_owned(), false).expect("writable");
        let directory = runs.of("5_0.1.1".parse().expect("a run"));
        fs::create_dir_all(directory.work()).expect("writable");
        nest(&directory.work(), 18_000);
        // As on a thread of the runtime.
        let remove = std::thread::Builder::new().stack_size(2 << 20).spawn(move || directory.remove());
        remove.expect("there is room").join().expect("no panic");
        assert_eq!(fs::read_dir(root.path()).expect("there").count(), 0);
    }

    /// Makes directories in one another.
    fn nest(path: &Path, levels: usize) {
        use nix::fcntl::{OFlag, open, openat};
        use nix::sys::stat::{Mode, mkdirat};
        let mut at = open(path, OFlag::O_DIRECTORY, Mode::empty()).expect("there");
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::S_IRWXU).expect("writable");
            at = openat(&at, "d", OFlag::O_DIRECTORY, Mode::empty()).expect("there");
        }
    }

    #[test]
    fn what_never_began_goes_and_what_cannot_be_read_stops_the_agent() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let runs = Runs::open(root.path().to_owned(), false).expect("writable");
        let begin = |name: &str, identity: &str| {
            let directory = root.path().join(name);
            fs::create_dir(&directory).expect("new");
            journal::begin(&directory, identity, &"no launch of this version").expect("writable");
        };
        fs::create_dir(root.path().join("1_0.1.1")).expect("new");
        begin("spare-3", "2_0.1.1#7");
        begin("3_0.1.1", "2_0.1.1#7");
        assert!(runs.found().expect("all readable").is_empty());
        assert_eq!(fs::read_dir(root.path()).expect("there").count(), 0);

        begin("4_0.1.1", "4_0.1.1#7");
        let error = runs.found().err().expect("its job may go on").to_string();
        assert!(error.contains("4_0.1.1: ") && error.contains("remove that directory"), "{error}");
        assert!(root.path().join("4_0.1.1").exists());
    }
}
