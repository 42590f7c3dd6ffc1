//! The root directory of a sandbox from an image.
//!
//! What the image has is mounted, read-only, into an empty file system in memory. So the sandbox can have its own /dev, /proc,
//! /tmp and files in /etc on every image, and the image stays as it is. There is no overlay: ordinary users can mount none on older
//! kernels, and not on every file system.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use hostler_sys::MountTree;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use super::files::{LOCKED, directory, file, how, is};
use super::folder::{self, Use};
use super::plan::{During, Plan};
use crate::launch::RootImage;

/// Opens the directory of an image.
pub(super) fn open(host: &OwnedFd, plan: &Plan<'_>, image: &RootImage) -> io::Result<OwnedFd> {
    let what = format_args!("use {} as the root directory", image.path);
    if !image.of_user {
        return openat2(host, image.path.as_str(), how(OFlag::O_DIRECTORY, ResolveFlag::empty())).during(what);
    }
    let opened = folder::open(host, plan, &image.path, Use::Image).during(what)?;
    let has = |name: &str| openat2(&opened, name, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_BENEATH)).is_ok();
    if !has("usr") && !has("bin") {
        return Err(io::Error::other("it has neither /usr nor /bin")).during(what);
    }
    Ok(opened)
}

/// Maximum number of entries that are shown one by one.
const MAX_ENTRIES: u32 = 10_000;

/// Size and number of files of the file system in memory: a long link takes a page.
pub(super) const TMPFS: (&str, &str) = ("64m", "64k");

/// Shows the image in the root file system of the sandbox, which is empty and in memory, except at the paths where the sandbox
/// mounts something else.
///
/// `own` are these paths, without the leading slash. Directories on the way to them are made anew, and what the image has in them
/// is mounted one by one, read-only. A link or file in their way is left out, so no mount point is behind a link of the image.
pub(super) fn show(image: &OwnedFd, root: &MountTree, own: &BTreeSet<PathBuf>) -> io::Result<()> {
    let root = root.as_fd().try_clone_to_owned()?;
    Shown { own, left: MAX_ENTRIES }.directory(image, &root, Path::new(""))
}

/// The entries of an image that a sandbox shows.
struct Shown<'a> {
    own: &'a BTreeSet<PathBuf>,
    /// Number of entries that may be added.
    left: u32,
}

impl Shown<'_> {
    fn directory(&mut self, from: &OwnedFd, into: &OwnedFd, at: &Path) -> io::Result<()> {
        for name in names(from).during(format_args!("list /{} of the image", at.display()))? {
            let path = at.join(&name);
            if !self.own.contains(&path) {
                self.left = self.left.checked_sub(1).ok_or_else(|| {
                    io::Error::other(format!(
                        "the image has more than {MAX_ENTRIES} entries in directories that the sandbox shows entry by entry, \
                         such as / and /etc; the last one is /{}",
                        at.display()
                    ))
                })?;
                let shown = self.entry(from, into, &name, &path);
                shown.during(format_args!("show /{} of the image", path.display()))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, from: &OwnedFd, into: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<()> {
        let is_on_the_way = self.own.range(path.to_owned()..).next().is_some_and(|next| next.starts_with(path));
        let beneath = ResolveFlag::RESOLVE_BENEATH;
        let found = match openat2(from, name, how(OFlag::O_NOFOLLOW, beneath | ResolveFlag::RESOLVE_NO_XDEV)) {
            Ok(found) => found,
            // Something else is mounted there, which is not part of the image.
            Err(Errno::EXDEV) => {
                let mounted = openat2(from, name, how(OFlag::O_NOFOLLOW, beneath))?;
                return match is(&fstat(&mounted)?, SFlag::S_IFDIR) {
                    true => directory(into, Path::new(name)).map(drop),
                    false if is_on_the_way => Ok(()),
                    false => file(into, Path::new(name)).map(drop),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let metadata = fstat(&found)?;
        if is(&metadata, SFlag::S_IFDIR) {
            let place = directory(into, Path::new(name))?;
            if !is_on_the_way {
                match attach(&found, &place) {
                    // In a user namespace, a mount deeper inside cannot be taken away, and all of the directory with it.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                    attached => return attached,
                }
            }
            make_alike(&found, &metadata, &place)?;
            return self.directory(&found, &place, path);
        }
        if is_on_the_way {
            return Ok(());
        }
        if is(&metadata, SFlag::S_IFLNK) {
            return Ok(symlinkat(readlinkat(&found, "")?.as_os_str(), into, name)?);
        }
        if is(&metadata, SFlag::S_IFREG) {
            return attach(&found, &file(into, Path::new(name))?);
        }
        // Devices, pipes and sockets.
        Ok(())
    }
}

/// Gives a directory that was made anew the owner and mode of the image's: one of a user may be closed to others.
fn make_alike(found: &OwnedFd, metadata: &FileStat, place: &OwnedFd) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(metadata.st_uid), Gid::from_raw(metadata.st_gid));
    match fchownat(place, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH) {
        // In a user namespace, other users do not exist.
        Ok(()) | Err(Errno::EINVAL | Errno::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    let readable = OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
    let original = openat2(found, ".", readable)?;
    // With an access control list, the bits of the group say what named users may do at most.
    let bits = if has_acl(&original) { 0o707 } else { 0o777 };
    Ok(fchmod(openat2(place, ".", readable)?, Mode::from_bits_truncate(metadata.st_mode & bits))?)
}

/// Whether a file has an access control list.
fn has_acl(file: &OwnedFd) -> bool {
    // SAFETY: the name ends with a zero byte, and a size of 0 says that nothing is written.
    let size =
        unsafe { libc::fgetxattr(file.as_raw_fd(), c"system.posix_acl_access".as_ptr(), std::ptr::null_mut(), 0) };
    size > 0
}

/// Mounts a file or directory of the image, read-only, without file systems that are mounted below.
fn attach(found: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let tree = MountTree::copy(found, false)?;
    tree.add(LOCKED, false)?;
    tree.attach(place)
}

fn names(directory: &OwnedFd) -> nix::Result<Vec<OsString>> {
    let mut all = Dir::openat(directory, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in all.iter() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            found.push(OsString::from_vec(name));
        }
    }
    Ok(found)
}
