//! File operations of the environment cache: copy and measure trees, and give directories to users.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, lchown};
use std::path::Path;

use hostler_project::files::{below, for_each_piece, open_regular, tree, within};
use hostler_project::{GoesOn, Stopped};
use nix::libc;

/// Copies a regular file to `to`, which must not exist.
pub(super) fn copy_regular(from: &Path, to: &Path, most_bytes: u64) -> io::Result<()> {
    copy_opened(open_regular(from)?, to, most_bytes)
}

/// Like [`copy_regular`], for an open file.
pub(super) fn copy_opened(from: fs::File, to: &Path, most_bytes: u64) -> io::Result<()> {
    within(io::copy(&mut from.take(most_bytes.saturating_add(1)), &mut create_new(to)?)?, most_bytes)
}

/// Writes a file to `to`, which must not exist, in a directory that another user controls.
pub(super) fn write_new(to: &Path, content: &[u8]) -> io::Result<()> {
    create_new(to)?.write_all(content)
}

/// Creates a file in a directory that another user controls. Anything that exists at the path is an error, and never
/// blocks: neither a link nor a pipe is opened.
fn create_new(path: &Path) -> io::Result<fs::File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    fs::OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)
}

/// Copies everything below `from` (a file or a folder) to `to`, without files larger than `most_bytes`. Keeps links.
pub(super) fn copy_tree(from: &Path, to: &Path, most_bytes: u64, goes_on: GoesOn<'_>) -> Result<(), Stopped> {
    for name in tree(from, most_bytes, goes_on)? {
        goes_on()?;
        let (entry, target) = (below(from, &name), below(to, &name));
        let metadata = fs::symlink_metadata(&entry)?;
        if metadata.is_dir() {
            fs::create_dir_all(&target)?;
        } else if metadata.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&entry)?, &target)?;
        } else if metadata.is_file() {
            let (mut source, mut copy) = (open_regular(&entry)?, create_new(&target)?);
            for_each_piece(metadata.len(), goes_on, |piece| {
                io::copy(&mut Read::by_ref(&mut source).take(piece), &mut copy).map(|_| ())
            })?;
            copy.set_permissions(metadata.permissions())?;
        }
    }
    Ok(())
}

/// Disk usage of everything below `path`, in bytes. Ignores files that vanish.
pub(super) fn disk_usage(path: &Path) -> u64 {
    measure(path, |_| true)
}

/// Like [`disk_usage`], without files that have other hard links: deleting them frees nothing.
pub(super) fn unshared_disk_usage(path: &Path) -> u64 {
    measure(path, |metadata| metadata.is_dir() || metadata.nlink() == 1)
}

fn measure(path: &Path, counts: impl Fn(&fs::Metadata) -> bool) -> u64 {
    let size = |metadata: &fs::Metadata| if counts(metadata) { metadata.blocks() * 512 } else { 0 };
    let Ok(top) = fs::symlink_metadata(path) else { return 0 };
    let mut bytes = size(&top);
    // Keeps only directories in memory, because there may be too many files.
    let mut pending: Vec<_> = top.is_dir().then(|| path.to_owned()).into_iter().collect();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += size(&metadata);
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    bytes
}

/// Gives a directory of root, and the entries `inside` of it, to a user. The directory comes last: as soon as the user
/// owns it, the user can replace its entries, and root must not follow them.
pub(super) fn give(directory: &Path, inside: &[&Path], uid: u32, gid: u32) -> io::Result<()> {
    inside.iter().chain([&directory]).try_for_each(|path| lchown(path, Some(uid), Some(gid)))
}

/// A name that no other thread, process or earlier boot uses in the same folder.
pub(super) fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let nanos =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("{nanos:x}-{:x}-{:x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}
