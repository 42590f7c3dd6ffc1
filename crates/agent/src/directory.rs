//! A run's directory: everything that is known of the run on this node, so that a restarted agent can go on.
//!
//! ```text
//! runs/12_3.1.4/launch      what was launched, and in which boot   (this room)
//!               work/       the job's folder                      (stage)
//!               manifest    the captured folder's manifest        (stage)
//!               baseline    what was laid out of it               (stage)
//!               setup       output of preparing the environment   (stage)
//!               stdout, stderr, shepherd.*, exit.json             (the shepherd)
//!               end         how it ended, until the head knows    (this room)
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_core::agent::RunLaunch;
use hostler_model::{BootId, RunId};
use hostler_proto::link::RunEnd;

/// The directories of all runs.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    root: PathBuf,
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
    /// Opens or creates the directory of runs.
    pub(crate) fn open(root: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        Ok(Self { root })
    }

    /// The directory of a run, whether or not it exists.
    pub(crate) fn of(&self, run: RunId) -> RunDirectory {
        RunDirectory { path: self.root.join(run.to_string()) }
    }

    /// Whether the disk that holds the directories has no room left.
    pub(crate) fn disk_is_full(&self) -> bool {
        const ROOM_BYTES: u64 = 64 << 10;
        nix::sys::statvfs::statvfs(&self.root)
            .is_ok_and(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()) < ROOM_BYTES)
    }

    /// Every run that has a directory with a readable launch. What a crash left without one never began and is removed.
    pub(crate) fn found(&self) -> io::Result<Vec<FoundRun>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let directory = RunDirectory { path: entry?.path() };
            match directory.launch() {
                Some((boot, launch)) => found.push(FoundRun { launch: Arc::new(launch), boot, directory }),
                None => directory.remove(),
            }
        }
        Ok(found)
    }
}

impl RunDirectory {
    /// Creates it afresh and stores in it the launch, and the boot in which it came.
    pub(crate) fn create(&self, launch: &RunLaunch, boot: &BootId) -> io::Result<()> {
        let builder = {
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        if let Err(error) = builder.create(&self.path) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            fs::remove_dir_all(&self.path)?;
            builder.create(&self.path)?;
        }
        write(&self.path.join("launch"), &hostler_proto::encode(&(boot, launch)))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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

    /// Whether a folder was laid out for it.
    pub(crate) fn has_work(&self) -> bool {
        self.work().exists()
    }

    /// Whether its shepherd has written how it ended.
    pub(crate) fn has_exit_record(&self) -> bool {
        self.path.join("exit.json").exists()
    }

    /// One of its outputs.
    pub(crate) fn output(&self, output: hostler_proto::link::Output) -> PathBuf {
        self.path.join(output.as_str())
    }

    /// Stores how it ended. Replaced whole, so a crash leaves the old or the new.
    pub(crate) fn store_end(&self, end: &RunEnd) -> io::Result<()> {
        let partial = self.path.join("end.partial");
        write(&partial, &hostler_proto::encode(end))?;
        fs::rename(partial, self.path.join("end"))
    }

    /// How it ended, if that was stored.
    pub(crate) fn end(&self) -> Option<RunEnd> {
        hostler_proto::decode(&fs::read(self.path.join("end")).ok()?).ok()
    }

    fn launch(&self) -> Option<(BootId, RunLaunch)> {
        hostler_proto::decode(&fs::read(self.path.join("launch")).ok()?).ok()
    }

    /// Removes it with all that is in it.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a run's directory");
        }
    }
}

/// Writes a new private file.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
