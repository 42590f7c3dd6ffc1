//! Run directories: everything that the node knows about a run, so that a restarted agent can continue.
//!
//! ```text
//! runs/12_3.1.4/journal     launch and boot id                    (this module)
//!                           shepherd, and how the run ended       (the shepherd)
//!               work/       the job's folder                      (stage)
//!               manifest    the captured folder's manifest        (stage)
//!               baseline    state of the folder at the start      (stage)
//!               script      the job's script                    (stage)
//!               container.env   variables for the job's container (containers)
//!               steps/      files for launches on the job's other nodes (steps)
//!               temporary   link to a temporary directory         (temporary)
//!               setup       output of the environment setup       (stage)
//!               certificate how quiet the node was                (certificate)
//!               stdout, stderr                                    (the job)
//!               end         end of the run, if not in the journal (this module)
//! spare-7/                  a directory for reuse
//! ```
//!
//! The directory and the journal belong to the agent, so no other user can replace their contents. `work`, `steps` and
//! the outputs belong to the job's user, and no other user can read them.
//!
//! Creating and removing a directory with its files takes longer than a short command. The directory of an ended
//! command is therefore kept with its three files, and reused for a later run of the same user.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use hostler_core::agent::RunLaunch;
use hostler_model::{BootId, RunId, Work};
use hostler_proto::certificate::Certificate;
use hostler_proto::link::{Output, RunAge, RunEnd};
use hostler_shepherd::Moment;
use hostler_shepherd::journal::{self, JournalContent};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::mutex::lock;
use crate::runs::surroundings::Surrounding;
use crate::runs::temporary;

/// Name of the job's folder in the directory of a run.
pub(crate) const WORK: &str = "work";

/// Maximum number of directories kept for reuse.
const MAX_SPARE: usize = 64;

/// The directories of all runs.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    /// Permissions of each run's directory. If jobs belong to several users, the permissions let each user pass through
    /// to the user's own files.
    mode: u32,
    spares: Mutex<Spares>,
}

#[derive(Debug, Default)]
struct Spares {
    waiting: Vec<Spare>,
    /// Counter that makes the names of spare directories unique.
    count: u64,
}

#[derive(Debug)]
struct Spare {
    path: PathBuf,
    /// Uid of the user whose output the directory held. Only runs of this user may reuse the directory.
    owner: u32,
}

/// A run that an earlier agent started.
pub(crate) struct FoundRun {
    pub(crate) launch: Arc<RunLaunch>,
    /// Boot id at the time of the launch.
    pub(crate) boot: BootId,
    pub(crate) directory: RunDirectory,
}

#[derive(Debug, Clone)]
pub(crate) struct RunDirectory {
    path: PathBuf,
}

/// Name of the parent directory of all runs, in the agent's directory.
pub(crate) const RUNS: &str = "runs";

impl Runs {
    /// Opens or creates the parent directory of all runs. `are_of_many`: runs may belong to several users.
    pub(crate) fn open(root: PathBuf, are_of_many: bool) -> io::Result<Self> {
        let mode = if are_of_many { 0o711 } else { 0o700 };
        hostler_sys::make_directory(&root, mode)?;
        Ok(Self { root, mode, spares: Mutex::default() })
    }

    /// The runs that have a directory in the parent directory of all runs.
    pub(crate) fn present(root: &Path) -> Vec<RunId> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The parent directory of all runs.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of a run, whether or not it exists.
    pub(crate) fn of(&self, run: RunId) -> RunDirectory {
        RunDirectory { path: self.root.join(run.to_string()) }
    }

    /// Creates the directory of a new run and writes launch and boot id to its journal. `owner` is the uid of the run's
    /// user, if known. Returns the journal's identity, which a shepherd must present to start the run.
    pub(crate) fn create(&self, launch: &RunLaunch, boot: &BootId, owner: Option<u32>) -> io::Result<String> {
        let directory = self.of(launch.run());
        match owner.and_then(|owner| lock(&self.spares).take(owner)) {
            Some(spare) if fs::rename(&spare.path, &directory.path).is_ok() => {}
            // The run's directory already exists.
            Some(Spare { path, .. }) => {
                remove_later(RunDirectory { path });
                self.make(&directory)?;
            }
            None => self.make(&directory)?,
        }
        directory.begin(launch, boot)
    }

    /// Whether the directory of a run may be reused, which takes little time.
    pub(crate) fn reuses_directory_of(launch: &RunLaunch) -> bool {
        matches!(launch.spec().work, Work::Command { .. }) && !launch.spec().first_node
    }

    /// Keeps the directory of an ended command for reuse, or removes it. Never waits for the user, to whom the outputs
    /// belong: they are on the node's own disk, and `wipe` waits for no lease.
    fn retire(&self, run: RunId) {
        let mut directory = self.of(run);
        if let Some(spare) = self.name_spare().filter(|_| directory.has_little_output())
            && fs::rename(&directory.path, &spare).is_ok()
        {
            // The new name hides the directory; `wipe` detects processes that still use it.
            directory.path = spare;
            if let Ok(Some(owner)) = directory.wipe() {
                return lock(&self.spares).waiting.push(Spare { path: directory.path, owner });
            }
        }
        self.discard(directory);
    }

    /// Creates an empty directory for a run.
    fn make(&self, directory: &RunDirectory) -> io::Result<()> {
        let create = || hostler_sys::create_new_directory(&directory.path, self.mode);
        match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.discard(directory.clone());
                create()
            }
            made => made,
        }
    }

    /// Renames a directory immediately and removes it in the background, because a user may have left many files in it.
    fn discard(&self, mut directory: RunDirectory) {
        let doomed = {
            let mut spares = lock(&self.spares);
            spares.count += 1;
            self.root.join(format!("doomed-{}-{}", std::process::id(), spares.count))
        };
        match fs::rename(&directory.path, &doomed) {
            Ok(()) => directory.path = doomed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::warn!(path = %directory.path.display(), %error, "cannot rename a directory for removal");
            }
        }
        remove_later(directory);
    }

    /// Path for another spare directory; `None` if [`MAX_SPARE`] spare directories exist.
    fn name_spare(&self) -> Option<PathBuf> {
        let mut spares = lock(&self.spares);
        if spares.waiting.len() >= MAX_SPARE {
            return None;
        }
        spares.count += 1;
        Some(self.root.join(format!("spare-{}", spares.count)))
    }

    /// Whether the disk of the run directories is full.
    pub(crate) fn disk_is_full(&self) -> bool {
        const ROOM_BYTES: u64 = 64 << 10;
        nix::sys::statvfs::statvfs(&self.root)
            .is_ok_and(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()) < ROOM_BYTES)
    }

    /// Lists all runs with a readable launch. Removes spare directories, and directories without a launch, which a
    /// crash left before the run began.
    ///
    /// # Errors
    /// If the launch of an existing run cannot be read. Its job may still be running, so the agent must not end it or
    /// start it again.
    pub(crate) fn found(&self) -> io::Result<Vec<FoundRun>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let directory = RunDirectory { path: entry?.path() };
            match directory.launch() {
                Ok(Some(Note { boot, launch })) => found.push(FoundRun { launch: Arc::new(launch), boot, directory }),
                Ok(None) => self.discard(directory),
                Err(error) => {
                    return Err(io::Error::other(format!(
                        "cannot read the run's launch file in {}: {error}; if no process of the run is left, remove that directory",
                        directory.path.display()
                    )));
                }
            }
        }
        Ok(found)
    }
}

impl Surrounding for Runs {
    fn release(&self, launch: &RunLaunch) {
        if Self::reuses_directory_of(launch) {
            self.retire(launch.run());
        } else {
            self.of(launch.run()).remove();
        }
    }
}

impl Spares {
    /// Takes the newest spare directory that the user `owner` may reuse.
    fn take(&mut self, owner: u32) -> Option<Spare> {
        let at = self.waiting.iter().rposition(|spare| spare.owner == owner)?;
        Some(self.waiting.remove(at))
    }
}

/// The launch of a run, as stored in its journal.
#[derive(Serialize, Deserialize)]
struct Note<L> {
    /// Boot id of the machine at the launch.
    boot: BootId,
    launch: L,
}

impl RunDirectory {
    /// Starts a new journal with launch and boot id, replacing an earlier one. Returns the journal's identity, which a
    /// shepherd must present to start the run. Each journal gets a new identity, so a delayed shepherd of an earlier
    /// attempt cannot start the run.
    pub(crate) fn begin(&self, launch: &RunLaunch, boot: &BootId) -> io::Result<String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let identity = format!("{}#{}.{now}.{count}", launch.run(), std::process::id());
        journal::begin(&self.path, &identity, &Note { boot: boot.clone(), launch })?;
        Ok(identity)
    }

    /// Whether the outputs are small enough to truncate quickly.
    fn has_little_output(&self) -> bool {
        const LITTLE_BYTES: u64 = 1 << 20;
        let size = |output: Output| fs::symlink_metadata(self.output(output)).map_or(0, |metadata| metadata.len());
        size(Output::Stdout).saturating_add(size(Output::Stderr)) <= LITTLE_BYTES
    }

    /// Empties a command's directory for reuse. Returns the uid of the owner of its outputs; `None` if the directory
    /// must not be reused, e.g. because a process still uses it.
    fn wipe(&self) -> io::Result<Option<u32>> {
        for file in [self.path.join("end"), self.script(), self.container_variables(), self.certificate()] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        hostler_shepherd::wipe(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the files that the job's processes need to launch processes on the job's other nodes.
    pub(crate) fn steps(&self) -> PathBuf {
        self.path.join("steps")
    }

    /// Path of the link to the run's temporary directory.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path.join("temporary")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }

    /// File with the state of the job's folder at the start.
    pub(crate) fn baseline(&self) -> PathBuf {
        self.path.join("baseline")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.path.join("manifest")
    }

    /// The job's script. Scripts of Slurm's users know this name from `$0`.
    pub(crate) fn script(&self) -> PathBuf {
        self.path.join("slurm_script")
    }

    /// Variables of the job's container, for its engine.
    pub(crate) fn container_variables(&self) -> PathBuf {
        self.path.join("container.env")
    }

    /// The measurement certificate, as JSON.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.path.join("certificate")
    }

    /// The stored measurement certificate.
    pub(crate) fn stored_certificate(&self) -> Option<Certificate> {
        serde_json::from_slice(&fs::read(self.certificate()).ok()?).ok()
    }

    /// Stores the measurement certificate. If that fails, the run has a certificate without figures.
    pub(crate) fn store_certificate(&self, certificate: &Certificate) {
        let text = serde_json::to_vec_pretty(certificate).expect("a certificate is valid JSON");
        if let Err(error) = self.store(&self.certificate(), &text) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot store the measurement certificate of a run");
        }
    }

    pub(crate) fn output(&self, output: Output) -> PathBuf {
        self.path.join(output.as_str())
    }

    /// Stores how the run ended. Replaces an earlier file atomically.
    pub(crate) fn store_end(&self, end: &RunEnd) -> io::Result<()> {
        hostler_sys::replace_file_unflushed(&self.path.join("end"), &hostler_proto::encode(end), 0o600)
    }

    /// Writes a file of this run that only the agent may read. Never waits for a lease on an existing file.
    pub(crate) fn store(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(path.starts_with(&self.path), "the file is in the run's directory");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options.open(path)?.write_all(bytes)
    }

    /// How the run ended, if stored.
    pub(crate) fn end(&self) -> Option<RunEnd> {
        hostler_proto::decode(&fs::read(self.path.join("end")).ok()?).ok()
    }

    /// How long ago the run's process started and ended, if its shepherd wrote that since the machine's start `boot`.
    pub(crate) fn age(&self, run: RunId, boot: &BootId) -> Option<RunAge> {
        let content = JournalContent::read(&self.path).ok()?;
        let taken = content.taken.filter(|record| record.boot_id == boot.0)?.taken;
        let ms = |moment: Moment| u64::try_from(moment.elapsed().as_millis()).unwrap_or(u64::MAX);
        let exited_ms = content.ended.as_ref().map(|record| ms(record.ended));
        let started_ms = ms(content.ended.map_or(taken, |record| record.started));
        Some(RunAge { run, started_ms, exited_ms })
    }

    /// The launch in the journal; `None` if the journal is missing or belongs to another run.
    fn launch(&self) -> io::Result<Option<Note<RunLaunch>>> {
        let story = JournalContent::read(&self.path)?;
        if !story.is_of(self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()) {
            return Ok(None);
        }
        Ok(Some(story.note()?))
    }

    fn clear(&self) -> io::Result<()> {
        if let Err(error) = temporary::remove(&self.temporary()) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a run's temporary files");
        }
        temporary::remove_with_mounts(&self.path)
    }

    /// Removes the directory and the run's temporary files.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.clear() {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a run's directory");
        }
    }
}

/// Removes a directory, on a background thread if called on the async runtime.
fn remove_later(directory: RunDirectory) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || directory.remove())),
        Err(_) => directory.remove(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_with_deeply_nested_directories_is_removed() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let runs = Runs::open(root.path().to_owned(), false).expect("writable");
        let directory = runs.of("5_0.1.1".parse().expect("a run"));
        fs::create_dir_all(directory.work()).expect("writable");
        nest(&directory.work(), 18_000);
        // The stack size of a runtime thread.
        let remove = std::thread::Builder::new().stack_size(2 << 20).spawn(move || directory.remove());
        remove.expect("a thread can be started").join().expect("the thread does not panic");
        assert_eq!(fs::read_dir(root.path()).expect("the path exists").count(), 0);
    }

    /// Creates nested directories.
    fn nest(path: &Path, levels: usize) {
        use nix::fcntl::{OFlag, open, openat};
        use nix::sys::stat::{Mode, mkdirat};
        let mut at = open(path, OFlag::O_DIRECTORY, Mode::empty()).expect("the path exists");
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::S_IRWXU).expect("writable");
            at = openat(&at, "d", OFlag::O_DIRECTORY, Mode::empty()).expect("the path exists");
        }
    }

    #[test]
    fn runs_that_never_began_are_removed_and_unreadable_ones_stop_the_agent() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let runs = Runs::open(root.path().to_owned(), false).expect("writable");
        let begin = |name: &str, identity: &str| {
            let directory = root.path().join(name);
            fs::create_dir(&directory).expect("the directory is new");
            journal::begin(&directory, identity, &"no launch of this version").expect("writable");
        };
        fs::create_dir(root.path().join("1_0.1.1")).expect("the directory is new");
        begin("spare-3", "2_0.1.1#7");
        begin("3_0.1.1", "2_0.1.1#7");
        assert!(runs.found().expect("all readable").is_empty());
        assert_eq!(fs::read_dir(root.path()).expect("the path exists").count(), 0);

        begin("4_0.1.1", "4_0.1.1#7");
        let error = runs.found().err().expect("the job may still run").to_string();
        assert!(error.contains("4_0.1.1: ") && error.contains("remove that directory"), "{error}");
        assert!(root.path().join("4_0.1.1").exists());
    }
}
