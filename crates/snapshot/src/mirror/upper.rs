//! Reads the changes to a tree from the upper directory of an unused overlay.
//!
//! The upper directory holds copies of new and changed files. A character device with number zero stands for a
//! removed entry. A directory with the opaque attribute hides everything below it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;

use hostler_model::format_bytes;
use hostler_proto::manifest::{Entry, EntryKind};
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, fstatat, mknodat};

use crate::beneath::{Kind, Root};
use crate::hashing::{Hashed, OnFailure, hash_all};
use crate::paths;
use crate::sources::Sources;
use crate::walk::{Found, ProblemReason, Rules, WalkError, walk_up_to};

/// The permission bits that are copied between machines.
const MODE_BITS: u32 = 0o777;

/// The extended attributes that mark an opaque directory: set by root, and set by other users.
const OPAQUE: [&CStr; 2] = [c"trusted.overlay.opaque", c"user.overlay.opaque"];

/// The changes that a command made to a tree, read from the upper directory of an overlay.
#[derive(Debug, Default)]
pub struct Upper {
    /// New and changed entries, sorted by path.
    pub entries: Vec<Entry>,
    pub removed: Vec<Vec<u8>>,
    /// Directories whose old entries were all removed. Only the entries in `entries` remain.
    pub emptied: Vec<Vec<u8>>,
    /// Reads the chunks of the entries.
    pub sources: Sources,
}

/// Reads the upper directory at `path`. `was` returns the tree's entry at a path. Ignores a file that was opened for
/// writing but is unchanged.
///
/// # Errors
/// The directory cannot be read, or it exceeds `most` files or bytes.
pub fn upper<'t>(
    path: &Path,
    was: &dyn Fn(&[u8]) -> Option<&'t Entry>,
    (most, most_bytes): (usize, u64),
) -> io::Result<Upper> {
    let root = Arc::new(Root::open(path)?);
    let walked = walk_up_to(most, &root, &Rules::SkipKeepingLinks(&|_| false)).map_err(|error| match error {
        WalkError::Root(error) => error,
        WalkError::TooMuch(what) => io::Error::new(io::ErrorKind::FileTooLarge, what),
    })?;
    let sizes = walked.found.iter().filter(|it| it.stat.kind == Kind::File).map(|it| it.stat.size);
    if sizes.fold(0, u64::saturating_add) > most_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the changed files take more than {}", format_bytes(most_bytes)),
        ));
    }
    let jobs: Vec<_> = walked.found.iter().filter(|it| it.stat.kind == Kind::File).collect();
    let jobs: Vec<_> = jobs.iter().map(|it| (it.path.as_slice(), it.stat.size)).collect();
    let mut hashed = hash_all(&root, &jobs, 0, OnFailure::GoOn, 0, &|_| ()).into_iter();
    let mut upper = Upper { sources: Sources::beneath(Arc::clone(&root)), ..Upper::default() };
    for problem in walked.problems {
        match problem.reason {
            ProblemReason::Device if is_whiteout(&root, &problem.path)? => upper.removed.push(problem.path),
            ProblemReason::Unreadable(why) => {
                return Err(io::Error::other(format!("{}: {why}", paths::show(&problem.path))));
            }
            ProblemReason::TooDeep => return Err(io::Error::other(problem.to_string())),
            _ => {}
        }
    }
    for it in &walked.found {
        let before = was(&it.path);
        let kind = match it.stat.kind {
            Kind::File => {
                let Hashed { content, .. } =
                    match hashed.next().flatten().expect("every file has a result unless the work stops") {
                        Ok(hashed) => hashed,
                        Err(error) => return Err(io::Error::other(format!("{}: {error:?}", paths::show(&it.path)))),
                    };
                upper.sources.add_content(&it.path, &content);
                EntryKind::File(content)
            }
            Kind::Symlink => EntryKind::Symlink { target: it.target.clone() },
            _ => {
                if is_opaque(&root, &it.path)? {
                    upper.emptied.push(it.path.clone());
                }
                EntryKind::Directory
            }
        };
        let entry = entry(it, kind);
        if !before.is_some_and(|before| is_same(before, &entry)) {
            upper.entries.push(entry);
        }
    }
    Ok(upper)
}

fn entry(found: &Found, kind: EntryKind) -> Entry {
    let modified_ns = if kind == EntryKind::Directory { 0 } else { found.stat.modified_ns };
    Entry { path: found.path.clone(), mode: found.stat.mode & MODE_BITS, modified_ns, kind }
}

fn is_same(before: &Entry, now: &Entry) -> bool {
    let is_link = matches!(now.kind, EntryKind::Symlink { .. });
    before.kind == now.kind
        && (is_link || before.mode & MODE_BITS == now.mode)
        && (before.kind == EntryKind::Directory || before.modified_ns == now.modified_ns)
}

fn is_whiteout(root: &Root, path: &[u8]) -> io::Result<bool> {
    let directory = root.open_directory(paths::parent(path))?;
    let stat = fstatat(directory, paths::name(path), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(stat.st_rdev == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR)
}

fn is_opaque(root: &Root, path: &[u8]) -> io::Result<bool> {
    let directory = root.open_directory(path)?;
    let has = |name: &CStr| {
        let mut value = [0_u8; 1];
        // SAFETY: the kernel writes at most one byte, to a local variable.
        let length = unsafe {
            libc::fgetxattr(directory.as_fd().as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        length == 1 && matches!(value, [b'y' | b'x'])
    };
    Ok(OPAQUE.into_iter().any(has))
}

/// Marks `path` as removed in the overlay layer at `layer`, which must contain the parent directory of `path`.
///
/// # Errors
/// The marker cannot be written.
pub fn whiteout(layer: &Path, path: &[u8]) -> io::Result<()> {
    let root = Root::open(layer)?;
    let directory = root.open_directory(paths::parent(path))?;
    Ok(mknodat(directory, paths::name(path), SFlag::S_IFCHR, Mode::empty(), 0)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use super::super::memory::Memory;
    use super::super::survey::survey;
    use super::*;
    use crate::chunk::digest_of;

    /// Needs root, to make whiteouts.
    #[test]
    fn upper_directory_gives_the_changes() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let (lower, over) = (folder.path().join("lower"), folder.path().join("upper"));
        for directory in [lower.join("sub/old"), over.join("sub"), over.join("new")] {
            fs::create_dir_all(directory).expect("writable");
        }
        for (name, text) in [("same", "same"), ("changed", "before"), ("gone", "gone"), ("mode", "mode")] {
            fs::write(lower.join(name), text).expect("writable");
        }
        let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for name in ["same", "changed", "mode"] {
            let text = if name == "changed" { "after!" } else { name };
            fs::write(over.join(name), text).expect("writable");
            for at in [&lower, &over] {
                File::options()
                    .append(true)
                    .open(at.join(name))
                    .expect("the file exists")
                    .set_modified(stamp)
                    .expect("the test owns it");
            }
        }
        fs::set_permissions(over.join("mode"), PermissionsExt::from_mode(0o755)).expect("the test owns it");
        whiteout(&over, b"gone").expect("root has permission");
        whiteout(&over, b"sub/old").expect("root has permission");
        fs::write(over.join("new/file"), "new").expect("writable");
        let tree = survey(&lower, &Memory::default(), &|_| false, &|_, _| None).expect("readable").entries;
        let was = |path: &[u8]| tree.iter().find(|entry| entry.path == path).map(|it| it.entry());
        let done = upper(&over, &was, (8, 1000)).expect("readable");
        for most in [(7, 1000), (8, 10)] {
            let error = upper(&over, &was, most).expect_err("over the limits");
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
        let changed: Vec<_> = done.entries.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(changed, [b"changed".as_slice(), b"mode", b"new", b"new/file"], "same size and time is not enough");
        assert_eq!(done.removed, [b"gone".to_vec(), b"sub/old".to_vec()]);
        assert_eq!(done.sources.read_chunk(&digest_of(b"after!")).expect("the chunk exists"), b"after!");
        assert!(done.emptied.is_empty());
    }
}
