//! Images of jobs: unpacks each image once, and keeps it for later jobs.
//!
//! ```text
//! images/<id>/root         the unpacked root file system
//! images/<id>/image        its size; the time of the last use
//! images/<id>/sources      files and repositories that have proved to contain a layer of the image
//! images/<id>/runs/<run>   pins of runs, which outlive the agent
//! images/attempt-<n>/      an image that is being unpacked, or removed
//! ```
//!
//! The id is the digest of the image's configuration, which lists the digests of all layers. The files of an image are opened
//! with the rights of the job's user. A sandboxed process unpacks their layers, under a uid of its own: all users of the node
//! share the result, and other processes of the job's user could change a process with the uid of that user. Only root can
//! enter the directory of an unpacked image. An agent that is not root has a single user, who does and owns all of this.
//!
//! An image's id alone gives no access to a cached image: the user's own files must contain each of its layers. For an image in
//! a registry, the registry is asked with the user's login data, and its repository must have contained each layer.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use hostler_image::{Config, Image, ImageError, LayerOrder, Sha256};
use hostler_model::{ImageRef, ImageSource};
use hostler_shepherd::{Credentials, RootImage};
use hostler_snapshot::remove_tree;
use nix::unistd::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use crate::account::{Ids, UNPACKER};
use crate::mutex::lock;
use crate::provision::environment::{Runner, Stopped};
use crate::provision::images::pull::{Answers, ImageSettings, Pull};
use crate::rights::act_as;

mod process;
pub(crate) mod pull;
pub(crate) mod registry;

use process::process;
pub use process::unpack_layer;

/// Maximum size of all unpacked images, in bytes. Above it, those that were not used for longest are removed.
const CACHE_BYTES: u64 = 40 << 30;

/// What an image may use while it is unpacked, for messages.
const ROOM: &str = "half of the free space of the node's disk";

/// Maximum size of one unpacked image, in bytes.
const IMAGE_BYTES: u64 = 32 << 30;

/// Maximum number of entries of all layers of an image.
const IMAGE_ENTRIES: u64 = 1_000_000;

/// Interval in which a job that waits for another one's unpacking looks whether it still goes on.
const LOOK: Duration = Duration::from_millis(50);

/// Maximum number of lines about files that contain a layer.
const MAX_SOURCES: usize = 1000;

/// Prefix of directories that a new agent removes.
const ATTEMPT: &str = "attempt-";

/// Whose image is being unpacked, and its id.
type Busy = (Option<u32>, String);

/// The unpacked images of a node.
#[derive(Debug)]
pub(crate) struct Images {
    root: PathBuf,
    /// The directories of all runs, by which pins are recognized as outdated.
    runs: PathBuf,
    settings: ImageSettings,
    answers: Answers,
    cap_bytes: u64,
    /// Locks of the images that are being unpacked or verified, by uid and id: no user waits for another one's slow file.
    busy: Mutex<HashMap<Busy, Arc<Mutex<()>>>>,
    /// Held while a file `sources` is written.
    noting: Mutex<()>,
    /// Held while images are chosen and pinned, or removed.
    choosing: Mutex<()>,
    count: AtomicU64,
}

/// An image that a run can use.
#[derive(Debug, Clone)]
pub(crate) struct Obtained {
    pub(crate) root: RootImage,
    /// What the image sets.
    pub(crate) config: Config,
    /// The id; `None` for a plain directory.
    pub(crate) id: Option<String>,
}

impl Obtained {
    /// Makes the image's entry point the program. `words` are its arguments, if there are any. Returns the command line.
    ///
    /// # Errors
    /// If the image names no program.
    pub(crate) fn enter(&mut self, words: Vec<String>) -> anyhow::Result<Vec<String>> {
        let Config { entrypoint, command, directory, .. } = &self.config;
        let words = if words.is_empty() { command.clone() } else { words };
        let argv: Vec<String> = entrypoint.iter().cloned().chain(words).collect();
        if argv.first().is_none_or(String::is_empty) {
            anyhow::bail!("the image names no entry point and no command; add a command");
        }
        self.root.start_in = directory.clone().map(CString::new).transpose()?;
        Ok(argv)
    }
}

/// Who wants which image.
pub(crate) struct Wanted<'a> {
    pub(crate) image: &'a ImageRef,
    /// The run, as a file name.
    pub(crate) run: &'a str,
    /// The job's folder, where relative paths start.
    pub(crate) folder: &'a Path,
    pub(crate) user: Option<&'a Ids>,
    /// The user's home directory; that of the agent if `user` is absent.
    pub(crate) home: Option<&'a Path>,
    /// Whether the login data there are those of the job's user.
    pub(crate) has_login: bool,
    /// The agent's own user, if it is not root.
    pub(crate) own: Option<Credentials>,
    /// Path of this executable.
    pub(crate) program: &'a str,
}

/// A found image, whose layers can be read.
struct Ready<'a> {
    id: Sha256,
    config: Config,
    layers: Vec<LayerOrder>,
    origin: Origin<'a>,
}

/// Where the layers are.
enum Origin<'a> {
    /// In these files, one for each layer.
    Files(Vec<File>),
    Registry(Pull<'a>),
}

impl From<Image> for Ready<'_> {
    fn from(image: Image) -> Self {
        let (files, layers) = image.layers.into_iter().map(|layer| (layer.file, layer.order)).unzip();
        Self { id: image.id, config: image.config, layers, origin: Origin::Files(files) }
    }
}

/// Why an image is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("{0}")]
    Unpack(String),
    /// The image needs this much more than it may use of the disk.
    #[error("{why}")]
    NoRoom { why: String, missing: u64 },
    #[error("cannot keep the image")]
    Io(#[from] io::Error),
    #[error("the job was ended before its start")]
    Cancelled,
    #[error("the time limit of {0} s was reached while the image was unpacked")]
    TimedOut(u64),
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => Self::Cancelled,
            Stopped::TimedOut { limit_secs } => Self::TimedOut(limit_secs),
            Stopped::System(error) => Self::Io(error),
        }
    }
}

/// The file `image` of an unpacked image.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    bytes: u64,
}

impl Images {
    /// Opens or creates the directory of images, and removes what an earlier agent has not finished. `runs`: the parent of all
    /// runs' directories.
    pub(crate) fn open(root: PathBuf, runs: PathBuf, settings: ImageSettings) -> io::Result<Self> {
        make_passage(&root)?;
        let entries = fs::read_dir(&root)?.flatten();
        let left: Vec<_> =
            entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(ATTEMPT.as_bytes())).collect();
        let mut next = 0;
        for entry in &left {
            let number = entry.file_name().to_str().and_then(|name| name.strip_prefix(ATTEMPT)?.parse::<u64>().ok());
            next = next.max(number.map_or(0, |number| number.saturating_add(1)));
        }
        if !left.is_empty() {
            // Takes long for large images.
            std::thread::spawn(move || left.iter().for_each(|entry| remove(&entry.path())));
        }
        let (busy, noting, choosing) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (cap_bytes, count) = (CACHE_BYTES, AtomicU64::new(next));
        Ok(Self { root, runs, settings, answers: Answers::default(), cap_bytes, busy, noting, choosing, count })
    }

    /// The directory of all images.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Directories that the node's admin allows to all users as root directories.
    pub(crate) fn directories(&self) -> &[String] {
        &self.settings.directories
    }

    /// Provides an image to a run, and unpacks it if necessary. Blocks.
    ///
    /// # Errors
    /// If the image does not exist, is damaged or is hostile, or if the job ends meanwhile. The message is for the user.
    pub(crate) fn obtain(
        &self,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
        log: &mut dyn FnMut(&[u8]),
    ) -> Result<Obtained, Failure> {
        let at = |path: &str| wanted.folder.join(path);
        let image: Ready<'_> = match wanted.image.source() {
            ImageSource::Directory { path } => {
                // The sandbox opens and checks it.
                let root = RootImage { path: at(path).display().to_string(), of_user: true, start_in: None };
                return Ok(Obtained { root, config: Config::default(), id: None });
            }
            ImageSource::Layout { path, name } => act_as(wanted.user, || Image::in_layout(&at(path), name))??.into(),
            ImageSource::Archive { path, name } => act_as(wanted.user, || Image::in_archive(&at(path), name))??.into(),
            ImageSource::Registry(name) => {
                let pull = Pull::new(name, &self.settings, wanted)?;
                let (name, remote) = pull.describe(&self.answers, wanted, runner, log)?;
                log(format!("hostler: image {} is docker://{name}\n", wanted.image).as_bytes());
                Ready { id: remote.id, config: remote.config, layers: remote.layers, origin: Origin::Registry(pull) }
            }
        };
        let id = image.id.hex();
        if let Some(number) = image.layers.iter().position(|layer| layer.length > IMAGE_BYTES) {
            return Err(Failure::Unpack(format!("layer {} of the image has more than 32 GiB", number + 1)));
        }
        let own = {
            let mut busy = lock(&self.busy);
            busy.retain(|_, unpacking| Arc::strong_count(unpacking) > 1);
            Arc::clone(busy.entry((wanted.user.map(|user| user.uid), id.clone())).or_default())
        };
        let _unpacking = wait_for(&own, runner)?;
        let began = Instant::now();
        let is_cached = self.pin(&lock(&self.choosing), &id, wanted.run);
        if is_cached {
            self.prove(&id, &image, wanted, runner)?;
        } else {
            match self.unpack(&id, &image, wanted, runner) {
                // Unused images may take the space that this one needs.
                Err(Failure::NoRoom { missing, .. }) if self.make_room(missing) => {
                    self.unpack(&id, &image, wanted, runner)?;
                }
                done => done?,
            }
        }
        let how = match &image.origin {
            _ if is_cached => "found in the cache".to_owned(),
            Origin::Files(_) => format!("unpacked in {:.1} s", began.elapsed().as_secs_f64()),
            Origin::Registry(_) => format!("pulled and unpacked in {:.1} s", began.elapsed().as_secs_f64()),
        };
        log(format!("hostler: image sha256:{id} {how}\n").as_bytes());
        self.evict(self.cap_bytes);
        let path = self.root.join(&id).join("root").display().to_string();
        let root = RootImage { path, of_user: false, start_in: None };
        Ok(Obtained { root, config: image.config, id: Some(format!("sha256:{id}")) })
    }

    /// Pins an unpacked image for a run. Returns whether the image is there.
    fn pin(&self, _choosing: &MutexGuard<'_, ()>, id: &str, run: &str) -> bool {
        let directory = self.root.join(id);
        let about = directory.join("image");
        if !about.exists() || File::create(directory.join("runs").join(run)).is_err() {
            return false;
        }
        if let Ok(file) = File::options().write(true).open(about) {
            // Only the order of removal depends on it.
            let _ = file.set_modified(SystemTime::now());
        }
        true
    }

    /// Verifies that the user has the layers, unless the same files or repository have proved it before.
    fn prove(&self, id: &str, image: &Ready<'_>, wanted: &Wanted<'_>, runner: &dyn Runner) -> Result<(), Failure> {
        let path = self.root.join(id).join("sources");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let known: HashSet<&str> = text.lines().collect();
        let mut new = Vec::new();
        let scratch = Scratch(self.new_attempt());
        for number in 0..image.layers.len() {
            let source = image.source(number)?;
            if !known.contains(source.as_str()) {
                let layer = image.layer(number, &scratch.0, half_free(&self.root)?, wanted, runner)?;
                process(&layer, &image.layers[number], number, None, (0, 0), wanted, runner)?;
                new.push(source);
            }
        }
        self.note_sources(&path, &new);
        Ok(())
    }

    /// Adds lines to a file `sources`, and keeps the newest ones. Without them, the next job of the user verifies the layers again.
    fn note_sources(&self, path: &Path, new: &[String]) {
        if new.is_empty() {
            return;
        }
        let _noting = lock(&self.noting);
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut kept: Vec<&str> = text.lines().filter(|line| !new.iter().any(|it| it == line)).collect();
        kept.extend(new.iter().map(String::as_str));
        let newest = &kept[kept.len().saturating_sub(MAX_SOURCES)..];
        if let Err(error) = fs::write(path, newest.join("\n")) {
            tracing::warn!(path = %path.display(), %error, "cannot note which files contain an image");
        }
    }

    /// Unpacks an image, pins it for the run, and makes it available in one step. If another user's job was faster, its
    /// directory stays, and is pinned.
    fn unpack(&self, id: &str, image: &Ready<'_>, wanted: &Wanted<'_>, runner: &dyn Runner) -> Result<(), Failure> {
        let attempt = self.new_attempt();
        let made = self.unpack_into(&attempt, image, wanted, runner).and_then(|()| {
            let choosing = lock(&self.choosing);
            if self.pin(&choosing, id, wanted.run) {
                return Ok(false);
            }
            fs::rename(&attempt, self.root.join(id)).map(|()| true).map_err(Failure::Io)
        });
        if !matches!(made, Ok(true)) {
            remove(&attempt);
        }
        made.map(drop)
    }

    fn unpack_into(
        &self,
        attempt: &Path,
        image: &Ready<'_>,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
    ) -> Result<(), Failure> {
        let root = attempt.join("root");
        make_passage(attempt)?;
        DirBuilder::new().mode(0o700).create(&root)?;
        give_to_unpacker(&root)?;
        let (budget, mut used, mut entries) = (half_free(attempt)?, 0_u64, IMAGE_ENTRIES);
        image.check_downloads(budget)?;
        let mut sources = Vec::new();
        for (number, order) in image.layers.iter().enumerate() {
            // Others use the disk meanwhile, too.
            let room = budget.saturating_sub(used).min(half_free(attempt)?);
            sources.push(image.source(number)?);
            let layer = image.layer(number, attempt, room, wanted, runner)?;
            let for_files = room - image.downloaded(number).min(room);
            let bytes = for_files.min(IMAGE_BYTES.saturating_sub(used));
            let limits = (bytes, entries);
            let added = match process(&layer, order, number, Some(&root), limits, wanted, runner) {
                // More room would not help.
                Err(Failure::NoRoom { why, missing }) if (used + bytes).saturating_add(missing) > IMAGE_BYTES => {
                    return Err(Failure::Unpack(why));
                }
                Err(Failure::NoRoom { why, missing }) => {
                    // Later layers need at least what has to be downloaded.
                    let later: u64 = (number + 1..image.layers.len()).map(|later| image.downloaded(later)).sum();
                    let (why, missing) = (format!("{why}: {ROOM}"), missing.saturating_add(later));
                    return Err(Failure::NoRoom { why, missing });
                }
                done => done?,
            };
            (used, entries) = (used + added.0, entries.saturating_sub(added.1));
        }
        // From here on, no other process can reach the files.
        fs::set_permissions(attempt, Permissions::from_mode(0o700))?;
        let bytes = give_to_agent(&root)?;
        fs::set_permissions(&root, Permissions::from_mode(0o755))?;
        DirBuilder::new().mode(0o700).create(attempt.join("runs"))?;
        File::create(attempt.join("runs").join(wanted.run))?;
        fs::write(attempt.join("sources"), sources.join("\n"))?;
        let about = About { bytes };
        fs::write(attempt.join("image"), serde_json::to_vec(&about).expect("an image serializes to JSON"))?;
        // Otherwise a crash of the machine could leave a complete name with incomplete files.
        nix::unistd::syncfs(File::open(attempt)?).map_err(io::Error::from)?;
        Ok(())
    }

    /// Removes the images that were not used for longest, until the others have at most `cap_bytes`. Images of runs stay.
    fn evict(&self, cap_bytes: u64) {
        self.remove_oldest(|all, _| all.saturating_sub(cap_bytes));
    }

    /// Removes the images that were not used for longest, until there is room for an image that needs `missing` more bytes
    /// than it may use. Removes none if that is not enough. Returns whether it has removed any.
    fn make_room(&self, missing: u64) -> bool {
        // An image may use half of what is free.
        let needed = missing.saturating_mul(2);
        self.remove_oldest(|_, unused| if needed <= unused { needed } else { 0 })
    }

    /// Removes unused images of as many bytes as `choose` says, by the bytes of all images and of the unused ones. Returns
    /// whether it has removed any.
    fn remove_oldest(&self, choose: impl FnOnce(u64, u64) -> u64) -> bool {
        let choosing = lock(&self.choosing);
        let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let about = entry.path().join("image");
            let Ok(text) = fs::read(&about) else { continue };
            let Ok(About { bytes, .. }) = serde_json::from_slice(&text) else { continue };
            let used = fs::metadata(&about).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            if !entry.file_name().as_encoded_bytes().starts_with(ATTEMPT.as_bytes()) {
                all.push((used, bytes, entry.path()));
            }
        }
        let sum = |all: &[(SystemTime, u64, PathBuf)]| all.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        let total = sum(&all);
        all.retain(|(.., path)| !self.is_used(path));
        all.sort();
        let mut excess = choose(total, sum(&all));
        let mut removed = Vec::new();
        for (_, bytes, path) in all {
            if excess == 0 {
                break;
            }
            let attempt = self.new_attempt();
            if fs::rename(&path, &attempt).is_ok() {
                excess = excess.saturating_sub(bytes);
                removed.push(attempt);
            }
        }
        drop(choosing);
        removed.iter().for_each(|path| remove(path));
        !removed.is_empty()
    }

    /// Whether a run uses the image. Removes the pins of runs that have gone.
    fn is_used(&self, image: &Path) -> bool {
        let mut is_used = false;
        for pin in fs::read_dir(image.join("runs")).into_iter().flatten().flatten() {
            if self.runs.join(pin.file_name()).exists() {
                is_used = true;
            } else {
                let _ = fs::remove_file(pin.path());
            }
        }
        is_used
    }

    fn new_attempt(&self) -> PathBuf {
        self.root.join(format!("{ATTEMPT}{}", self.count.fetch_add(1, Ordering::Relaxed)))
    }
}

/// Waits for another job that does the same.
///
/// # Errors
/// If this job ends meanwhile.
pub(crate) fn wait_for<'a, T>(mutex: &'a Mutex<T>, runner: &dyn Runner) -> Result<MutexGuard<'a, T>, Stopped> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                runner.goes_on()?;
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Half of what is free on the disk of a directory, in bytes.
fn half_free(directory: &Path) -> io::Result<u64> {
    let disk = nix::sys::statvfs::statvfs(directory)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()) / 2)
}

fn remove(path: &Path) {
    if let Err(error) = remove_tree(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove an image");
    }
}

impl Ready<'_> {
    /// What distinguishes a layer's place from all others.
    fn source(&self, number: usize) -> io::Result<String> {
        let order = &self.layers[number];
        match &self.origin {
            Origin::Files(files) => source(&files[number], order),
            Origin::Registry(pull) => Ok(pull.source(order)),
        }
    }

    /// How much of the node's disk a layer needs before it is unpacked, in bytes.
    fn downloaded(&self, number: usize) -> u64 {
        match &self.origin {
            Origin::Files(_) => 0,
            Origin::Registry(_) => self.layers[number].length,
        }
    }

    /// Refuses layers that need more than an image may use, before any of them is downloaded.
    fn check_downloads(&self, room: u64) -> Result<(), Failure> {
        let total = (0..self.layers.len()).map(|number| self.downloaded(number)).fold(0, u64::saturating_add);
        let has = format!("the image's layers have {}", hostler_model::format_bytes(total));
        match total.saturating_sub(room) {
            _ if total > IMAGE_BYTES => Err(Failure::Unpack(format!("{has}, more than 32 GiB"))),
            0 => Ok(()),
            missing => Err(Failure::NoRoom { why: format!("{has}, and an image may use {ROOM}"), missing }),
        }
    }

    /// Opens a layer. One of a registry is downloaded into this directory, if it has at most `room` bytes, and has no name
    /// afterwards.
    fn layer(
        &self,
        number: usize,
        directory: &Path,
        room: u64,
        wanted: &Wanted<'_>,
        runner: &dyn Runner,
    ) -> Result<File, Failure> {
        match &self.origin {
            Origin::Files(files) => Ok(files[number].try_clone()?),
            Origin::Registry(pull) => {
                let length = self.downloaded(number);
                if length > room {
                    let bytes = hostler_model::format_bytes(length);
                    let why = format!("layer {} of the image has {bytes}, and the image may use {ROOM}", number + 1);
                    return Err(Failure::NoRoom { why, missing: length - room });
                }
                make_passage(directory)?;
                let path = directory.join("layer");
                let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
                give_to_unpacker(&path)?;
                let pulled = pull.layer(&self.layers[number], &path, wanted, runner);
                fs::remove_file(&path)?;
                pulled.map(|()| file)
            }
        }
    }
}

/// A directory that may not exist, and does not afterwards.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.exists() {
            remove(&self.0);
        }
    }
}

/// Makes a directory through which the unpacking process can pass to what is its own.
fn make_passage(directory: &Path) -> io::Result<()> {
    hostler_sys::make_directory(directory, 0o711)
}

fn give_to_unpacker(path: &Path) -> io::Result<()> {
    let owner = unpacker().map(|it| it.uid);
    lchown(path, owner, owner)
}

/// The user who reads registries and unpacks layers; `None` for an agent that is not root, whose own user does it.
pub(crate) fn unpacker() -> Option<Credentials> {
    let name = "hostler-images".to_owned();
    geteuid().is_root().then(|| Credentials { name, uid: UNPACKER, gid: UNPACKER, groups: Vec::new() })
}

/// What distinguishes the file of a layer from all other files of the machine, also from itself after a change.
fn source(file: &File, order: &LayerOrder) -> io::Result<String> {
    let it = file.metadata()?;
    Ok(format!(
        "{} {} {} {}.{:09} {}.{:09} {} {} {}",
        it.dev(),
        it.ino(),
        it.len(),
        it.mtime(),
        it.mtime_nsec(),
        it.ctime(),
        it.ctime_nsec(),
        order.offset,
        order.length,
        order.diff_id,
    ))
}

/// Makes the agent's user the owner of all files, and returns their size on the disk. Other users cannot reach the files yet.
fn give_to_agent(root: &Path) -> io::Result<u64> {
    let (mut bytes, uid, gid) = (0, geteuid().as_raw(), getegid().as_raw());
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        lchown(&directory, Some(uid), Some(gid))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else {
                lchown(entry.path(), Some(uid), Some(gid))?;
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
