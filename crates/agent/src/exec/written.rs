//! Tracks files written on shared disks, so that other machines can refresh their caches.
//!
//! With root rights, the agent asks the kernel for notifications (fanotify) about a mount, once a command has run in
//! a directory there. Other agents learn which files were written here in the last minute. A caller learns which
//! files were written during its command, by any process, if the caller may see them. Extra refreshes are cheap.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hostler_remote::MOST_PATHS;
use hostler_remote::Proof;
use hostler_remote::shared_files::is_shared;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use nix::sys::stat::{major, minor};

use crate::mutex::lock;

/// How long a written file is reported. With usual settings, file systems cache attributes for a shorter time.
const RECENT: Duration = Duration::from_secs(60);

/// Maximum number of remembered files.
const MOST_KEPT: usize = 10 * MOST_PATHS;

/// How long a caller waits for the kernel's notifications. Reading one opens the written file, so it may take for ever.
const HEAR_BOUND: Duration = Duration::from_millis(250);

/// Recently written files on shared disks.
pub(super) struct Written {
    /// Disks by device number. Device numbers may be reused, so an entry can be stale. The lock is not held while
    /// waiting.
    disks: Mutex<HashMap<u64, Disk>>,
    /// The kernel's notifications; `None` if unavailable.
    group: Option<Arc<Fanotify>>,
    news: Arc<News>,
}

impl Default for Written {
    fn default() -> Self {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        // The kernel opens the file of each event. With O_NONBLOCK, it does not wait for a lease on the file.
        let files = EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC | EventFFlags::O_NONBLOCK;
        let group = Fanotify::init(flags, files).ok().map(Arc::new);
        let news = Arc::<News>::default();
        let is_read = |group: &Arc<Fanotify>| {
            let (group, news) = (Arc::clone(group), Arc::clone(&news));
            thread::Builder::new().name("written".to_owned()).spawn(move || news.read_all(&group)).is_ok()
        };
        Self { disks: Mutex::default(), group: group.filter(is_read), news }
    }
}

/// The notifications that one thread reads. Only that thread waits for file servers, and it holds no lock meanwhile.
#[derive(Default)]
struct News {
    state: Mutex<NewsState>,
    changed: Condvar,
}

#[derive(Default)]
struct NewsState {
    /// Written files, newest last.
    files: VecDeque<(Instant, PathBuf)>,
    /// When a notification was last lost, so that a written file is unknown.
    lost: Option<Instant>,
    /// The last round of reading that a caller has asked for.
    wanted: u64,
    /// The last round that is complete.
    done: u64,
    /// When the present round began.
    reading_since: Option<Instant>,
}

impl News {
    /// Reads the notifications whenever a caller asks for that.
    fn read_all(&self, group: &Fanotify) {
        loop {
            let idle = lock(&self.state);
            let mut state = self
                .changed
                .wait_while(idle, |state| state.wanted == state.done)
                .unwrap_or_else(PoisonError::into_inner);
            let round = state.wanted;
            state.reading_since = Some(Instant::now());
            drop(state);
            self.read_round(group);
            let mut state = lock(&self.state);
            state.done = round;
            state.reading_since = None;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn read_round(&self, group: &Fanotify) {
        for _ in 0..MOST_KEPT {
            match group.read_events() {
                Ok(events) => {
                    let path = |event: &FanotifyEvent| {
                        let fd = event.fd()?;
                        fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
                    };
                    let paths: Vec<_> = events.iter().map(path).collect();
                    lock(&self.state).add(paths);
                }
                // No event, or a file with a lease; the next round reads the other events.
                Err(Errno::EAGAIN) => break,
                // The file is gone.
                Err(Errno::EINTR | Errno::ENOENT | Errno::ESTALE) => {}
                // Root may not open the file, for example. The error does not say which file it is.
                Err(_) => lock(&self.state).lost = Some(Instant::now()),
            }
        }
    }

    /// Asks for a round of reading. Returns its number.
    fn ask(&self) -> u64 {
        let mut state = lock(&self.state);
        state.wanted += 1;
        self.changed.notify_all();
        state.wanted
    }

    /// Returns the files written since `then`, and whether they are all. Waits for [`HEAR_BOUND`] at most, and not at all for
    /// a file server that has not answered for longer.
    fn since(&self, then: Instant) -> (Vec<PathBuf>, bool) {
        let round = self.ask();
        let is_stuck = |state: &NewsState| state.reading_since.is_some_and(|since| since.elapsed() >= HEAR_BOUND);
        let waits = |state: &mut NewsState| state.done < round && !is_stuck(state);
        let found = self.changed.wait_timeout_while(lock(&self.state), HEAR_BOUND, waits);
        let (state, _) = found.unwrap_or_else(PoisonError::into_inner);
        let newest = state.files.iter().rev().take_while(|(at, _)| *at >= then).take(MOST_PATHS);
        let is_lossless = state.lost.is_none_or(|at| at.elapsed() > RECENT);
        (newest.map(|(_, path)| path.clone()).collect(), state.done >= round && is_lossless)
    }
}

impl NewsState {
    /// Adds the written files of some notifications, of which some may name no file, and forgets old ones.
    fn add(&mut self, paths: Vec<Option<PathBuf>>) {
        let now = Instant::now();
        for path in paths {
            match path {
                // The kernel's queue was full.
                None => self.lost = Some(now),
                Some(path) if is_ours(&path) => {}
                Some(path) => {
                    // Keep only the newest entry per file.
                    self.files.retain(|(_, known)| *known != path);
                    self.files.push_back((now, path));
                }
            }
        }
        while self.files.front().is_some_and(|(at, _)| at.elapsed() > RECENT) || self.files.len() > MOST_KEPT {
            self.files.pop_front();
        }
    }
}

/// How writes on a disk are tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    /// The disk is not shared: other machines can write to it only through this machine.
    Own,
    /// Other machines can write to the disk, and the kernel reports this machine's writes.
    Watched,
    /// Other machines can write to the disk, and the kernel does not report this machine's writes, or must not be asked
    /// to: reading a notification opens the written file, and on a FUSE file system of a user that may take for ever.
    Unwatched,
}

impl Written {
    /// Returns how writes on a disk are tracked; `None` for a disk on which no command has run yet.
    pub(super) fn known(&self, device: u64) -> Option<Disk> {
        lock(&self.disks).get(&device).copied()
    }

    /// Returns whether any disk is watched.
    pub(super) fn is_watching(&self) -> bool {
        lock(&self.disks).values().any(|disk| *disk == Disk::Watched)
    }

    /// Starts to watch the mount of `directory`, if other machines can write to its disk. Also returns whether the
    /// watch is new, so that earlier writes are unknown. Blocks while the file server is slow.
    pub(super) fn watch(&self, directory: &Path) -> (Disk, bool) {
        use std::os::unix::fs::MetadataExt;
        // The disk may be accessible for its user only.
        let Ok(found) = fs::metadata(directory) else { return (Disk::Unwatched, false) };
        if let Some(known) = self.known(found.dev()) {
            return (known, false);
        }
        let is_shared = is_shared(directory);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        let disk = match self.group.as_ref().filter(|_| !is_of_user(&mounts, found.dev())) {
            _ if !is_shared => Disk::Own,
            None => Disk::Unwatched,
            Some(group) => match group.mark(flags, MaskFlags::FAN_CLOSE_WRITE, AT_FDCWD, Some(directory)) {
                Ok(()) => Disk::Watched,
                Err(error) => {
                    tracing::debug!(directory = %directory.display(), %error, "cannot watch writes on the disk of a directory");
                    Disk::Unwatched
                }
            },
        };
        lock(&self.disks).insert(found.dev(), disk);
        (disk, true)
    }

    /// Returns the files written since `then`, and whether they are all. Waits for a short time at most.
    pub(super) fn since(&self, then: Instant) -> (Vec<PathBuf>, bool) {
        if self.group.is_some() { self.news.since(then) } else { (Vec::new(), true) }
    }

    /// Returns the recently written files, and whether they are all. Waits for a short time at most.
    pub(super) fn recently(&self) -> (Vec<PathBuf>, bool) {
        let Some(then) = Instant::now().checked_sub(RECENT) else { return (Vec::new(), false) };
        self.since(then)
    }

    /// Has the kernel's notifications read. A mount with unread notifications stays busy. Does not wait.
    pub(super) fn hear(&self) {
        self.news.ask();
    }
}

/// Whether a user other than root runs the FUSE program of a device. `mounts` is the content of `mountinfo`.
fn is_of_user(mounts: &str, device: u64) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    mounts.lines().filter(|mount| mount.split(' ').nth(2) == Some(&number)).any(|mount| {
        let after = mount.split_once(" - ").map_or("", |(_, after)| after);
        let options = after.rsplit(' ').next().unwrap_or_default();
        after.starts_with("fuse") && !options.split(',').any(|option| option == "user_id=0")
    })
}

/// Returns whether an agent or a caller created the file, to prove a directory or to refresh a cache.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(Proof::FILE_PREFIX.as_bytes()))
}

/// Maximum number of directory entries that [`newest`] examines.
const LOOKED_AT: usize = 2000;

/// Maximum number of files that [`newest`] returns.
const NEWEST: usize = 200;

/// Returns the most recently changed files below a directory, for disks without notifications. Blocks.
pub(super) fn newest(directory: &Path) -> Vec<PathBuf> {
    let mut directories = VecDeque::from([directory.to_owned()]);
    let mut files = Vec::new();
    let mut looked_at = 0;
    while let Some(directory) = directories.pop_front() {
        let left = LOOKED_AT.saturating_sub(looked_at);
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten().take(left) {
            looked_at += 1;
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                directories.push_back(entry.path());
            } else if found.is_file() {
                files.push((found.modified().ok(), entry.path()));
            }
        }
        if looked_at >= LOOKED_AT {
            break;
        }
    }
    files.sort_by_key(|(changed, _)| std::cmp::Reverse(*changed));
    files.into_iter().take(NEWEST).map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_files_are_found() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let below = directory.path().join("below");
        fs::create_dir(&below).expect("this test owns the directory");
        for number in 0..NEWEST + 10 {
            fs::write(below.join(format!("{number}")), "").expect("writable");
        }
        let old = std::fs::File::create(directory.path().join("old")).expect("writable");
        old.set_modified(std::time::UNIX_EPOCH).expect("this test owns the file");
        let found = newest(directory.path());
        assert_eq!(found.len(), NEWEST);
        assert!(!found.contains(&directory.path().join("old")));
    }

    #[test]
    fn fuse_file_system_of_a_user_is_not_watched() {
        let mounts = "\
            36 25 0:42 / /srv rw,relatime shared:1 - nfs4 server:/srv rw,vers=4.2\n\
            37 25 0:43 / /mnt/root rw - fuse.sshfs server: rw,user_id=0,group_id=0,allow_other\n\
            38 25 0:44 / /home/ada/mnt rw - fuse.sshfs server: rw,user_id=1000,group_id=1000,allow_other\n\
            39 25 0:45 / /home/ada/10 rw - fuse x rw,user_id=10,group_id=0\n";
        let found = [42, 43, 44, 45, 46].map(|minor| is_of_user(mounts, nix::sys::stat::makedev(0, minor)));
        assert_eq!(found, [false, false, true, true, false]);
    }

    #[test]
    fn private_disk_is_not_watched() {
        let written = Written::default();
        assert_eq!(written.watch(Path::new("/proc")), (Disk::Own, true));
        assert_eq!(written.watch(Path::new("/proc")), (Disk::Own, false));
        assert!(written.recently().0.is_empty());
    }

    #[test]
    fn nobody_waits_long_for_a_file_server_that_does_not_answer() {
        let news = News::default();
        let path = PathBuf::from("/srv/known");
        let then = Instant::now();
        lock(&news.state).add(vec![Some(path.clone())]);
        // No thread reads notifications here, so the caller waits for the bound and gets the files that are known.
        assert_eq!(news.since(then), (vec![path.clone()], false));
        lock(&news.state).reading_since = then.checked_sub(HEAR_BOUND);
        let began = Instant::now();
        for _ in 0..1000 {
            assert_eq!(news.since(then), (vec![path.clone()], false));
        }
        assert!(began.elapsed() < 100 * HEAR_BOUND, "only the first callers wait");
        // After a notification without a file, the files are not all.
        let mut state = lock(&news.state);
        (state.reading_since, state.done) = (None, u64::MAX);
        drop(state);
        assert_eq!(news.since(then), (vec![path.clone()], true));
        lock(&news.state).add(vec![None]);
        assert_eq!(news.since(then), (vec![path], false));
    }
}
