//! What is being written on disks that machines share, for those who have to look again.
//!
//! The kernel tells an agent of root which files were written on a mount. That is asked for once a command has run in a directory
//! there; what other agents know is then what was written here in the last minute, and what a caller learns is what was
//! written while its command ran, by it or by others, as far as it may know of those files: to look again costs little.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hostler_remote::Proof;
use hostler_remote::shared_files::{MOST_PATHS, is_shared};
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use super::lock;

/// How long others are told of what was written: longer than any disk remembers in its usual settings.
const RECENT: Duration = Duration::from_secs(60);

/// The most that is remembered.
const MOST_KEPT: usize = 10 * MOST_PATHS;

/// What was written. Whatever looks at files here may wait for a server that does not answer, and so does whoever asks then.
pub(super) struct Written {
    /// By device. A number that is given to another disk later is as good or bad a guess as none. Never held while anything is waited for.
    disks: Mutex<HashMap<u64, Disk>>,
    news: Mutex<News>,
}

struct News {
    /// What the kernel tells it by; `None` where it does not.
    group: Option<Fanotify>,
    /// Newest last.
    files: VecDeque<(Instant, PathBuf)>,
}

impl Default for Written {
    fn default() -> Self {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC);
        Self { disks: Mutex::default(), news: Mutex::new(News { group: group.ok(), files: VecDeque::new() }) }
    }
}

/// What is known of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    /// Other machines do not write there, or at most by way of this one.
    Own,
    /// They do, and the kernel tells what is written here.
    Watched,
    /// They do, and nobody tells.
    Unwatched,
}

impl Written {
    /// What is known of a disk by now.
    pub(super) fn known(&self, device: u64) -> Option<Disk> {
        lock(&self.disks).get(&device).copied()
    }

    /// Whether there is anything to hear.
    pub(super) fn is_watching(&self) -> bool {
        lock(&self.disks).values().any(|disk| *disk == Disk::Watched)
    }

    /// Begins to look at the mount that a directory is on, if other machines may write there, too; and whether that is a beginning, before which
    /// things were written that nobody has told. Blocks where the server is slow.
    pub(super) fn watch(&self, directory: &Path) -> (Disk, bool) {
        use std::os::unix::fs::MetadataExt;
        // A disk that is its user's alone.
        let Ok(found) = fs::metadata(directory) else { return (Disk::Unwatched, false) };
        if let Some(known) = self.known(found.dev()) {
            return (known, false);
        }
        let is_shared = is_shared(directory);
        let news = lock(&self.news);
        let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        let disk = match &news.group {
            _ if !is_shared => Disk::Own,
            None => Disk::Unwatched,
            Some(group) => match group.mark(flags, MaskFlags::FAN_CLOSE_WRITE, AT_FDCWD, Some(directory)) {
                Ok(()) => Disk::Watched,
                Err(error) => {
                    tracing::debug!(directory = %directory.display(), %error, "cannot be told what is written there");
                    Disk::Unwatched
                }
            },
        };
        lock(&self.disks).insert(found.dev(), disk);
        (disk, true)
    }

    /// What was written since then. Blocks.
    pub(super) fn since(&self, then: Instant) -> Vec<PathBuf> {
        let mut news = lock(&self.news);
        news.hear();
        let newest = news.files.iter().rev().take_while(|(at, _)| *at >= then).take(MOST_PATHS);
        newest.map(|(_, path)| path.clone()).collect()
    }

    /// What was written lately. Blocks.
    pub(super) fn recently(&self) -> Vec<PathBuf> {
        let Some(then) = Instant::now().checked_sub(RECENT) else { return Vec::new() };
        self.since(then)
    }

    /// Takes what the kernel has to tell, so that nothing waits there for long: what waits holds its mount. Blocks.
    pub(super) fn hear(&self) {
        lock(&self.news).hear();
    }
}

impl News {
    fn hear(&mut self) {
        let Some(group) = &self.group else { return };
        let now = Instant::now();
        for _ in 0..MOST_KEPT {
            let events = match group.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => break,
                // A file that is gone already cannot be told of, and neither can one that is not the agent's to open.
                Err(_) => continue,
            };
            for event in &events {
                let Some(fd) = event.fd() else { continue };
                let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) else { continue };
                if is_ours(&path) {
                    continue;
                }
                // The same file again is news of the same kind.
                self.files.retain(|(_, known)| *known != path);
                self.files.push_back((now, path));
            }
        }
        while self.files.front().is_some_and(|(at, _)| at.elapsed() > RECENT) || self.files.len() > MOST_KEPT {
            self.files.pop_front();
        }
    }
}

/// Whether it is a file by which directories are told apart or looked at anew.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(Proof::FILE_PREFIX.as_bytes()))
}

/// Entries that are looked at to find out what is new, and how many of the newest count.
const LOOKED_AT: usize = 2000;
const NEWEST: usize = 200;

/// The files below a directory that were changed last, where nobody has told. Blocks.
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
    fn the_newest_come_first_and_not_all() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let below = directory.path().join("below");
        fs::create_dir(&below).expect("it is ours");
        for number in 0..NEWEST + 10 {
            fs::write(below.join(format!("{number}")), "").expect("writable");
        }
        let old = std::fs::File::create(directory.path().join("old")).expect("writable");
        old.set_modified(std::time::UNIX_EPOCH).expect("it is ours");
        let found = newest(directory.path());
        assert_eq!(found.len(), NEWEST);
        assert!(!found.contains(&directory.path().join("old")));
    }

    #[test]
    fn a_disk_of_ones_own_is_not_watched() {
        let written = Written::default();
        assert_eq!(written.watch(Path::new("/proc")), (Disk::Own, true));
        assert_eq!(written.watch(Path::new("/proc")), (Disk::Own, false));
        assert!(written.recently().is_empty());
    }
}
