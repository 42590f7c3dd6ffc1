//! A mount namespace in which a caller's tree has the same path as on the caller's machine.
//!
//! Only processes in the namespace see these mounts. The mounts disappear with the last process. The node's files stay
//! unchanged. If the tree's path does not exist, a tmpfs covers the nearest directory above it. Bind mounts in the
//! tmpfs show that directory's entries again.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hostler_sys::{bind, change_propagation, create_directory, mount_tmpfs, unshare_mounts};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{chdir, pivot_root};

use crate::account::Ids;
use crate::rights::act_as;

/// Maximum number of entries in a directory that is replaced by a copy. Each entry needs a mount.
const MOST_NEIGHBOURS: usize = 1000;

/// Mode of the directories above the tree, which the user passes through and may list.
const OPEN: u32 = 0o755;

/// Overlay options with which the upper directory contains only whole files, and no renamed directories.
const OVERLAY: &str = "redirect_dir=off,metacopy=off,index=off";

/// The directories of a mirrored tree.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The directory that contains the layers and the command's directory.
    pub(super) mirror: PathBuf,
    pub(super) layers: Vec<String>,
    /// The directory of the command.
    pub(super) call: String,
    /// The path at which the command sees the tree.
    pub(super) root: PathBuf,
    /// The tree's owner; `None` for the agent's own user.
    pub(super) user: Option<Ids>,
}

/// Creates the namespace on a temporary thread. Blocks.
///
/// # Errors
/// Fails when the kernel refuses; the error says which step failed.
pub(super) fn make(layout: Layout) -> io::Result<OwnedFd> {
    let thread = std::thread::Builder::new().name("namespace".to_owned()).spawn(move || enter_and_make(&layout))?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
}

fn enter_and_make(layout: &Layout) -> io::Result<OwnedFd> {
    unshare_mounts()?;
    let namespace = File::open("/proc/thread-self/ns/mnt")?;
    let Nearest { path, directory, may_list } = nearest(layout)?;
    if path == Path::new("/") {
        replace_root(layout, may_list)?;
        mount_tree(layout, &layout.root)?;
    } else if path == layout.root {
        mount_tree(layout, &place_of(&directory))?;
    } else {
        mount_copy(layout, path, &directory, may_list)?;
    }
    Ok(namespace.into())
}

/// The tree's path, or the nearest existing directory above it.
struct Nearest<'a> {
    path: &'a Path,
    directory: OwnedFd,
    /// Whether the user may list the directory. If not, its entries must not become mounts, because all processes in
    /// the namespace can list mounts.
    may_list: bool,
}

/// Opens the tree's path, or the nearest existing directory above it.
///
/// Uses the user's rights and keeps the directory open. The agent can access more directories than the user, and must
/// not expose such a directory through a symbolic link.
fn nearest(layout: &Layout) -> io::Result<Nearest<'_>> {
    let find = || {
        for at in layout.root.ancestors() {
            // The trailing dot checks the user's permission to enter the directory.
            match open(&at.join("."), OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(said(&format!("cannot enter {}", at.display()), &error.into())),
                Ok(directory) => {
                    let own = place_of(&directory);
                    let may_list = open(&own, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
                    return Ok(Nearest { path: at, directory, may_list: may_list.is_ok() });
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    };
    act_as(layout.user.as_ref(), find)?
}

/// Returns a path for an open file that does not depend on later renames.
fn place_of(open: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// Mounts the tree at an existing directory.
fn mount_tree(layout: &Layout, at: &Path) -> io::Result<()> {
    chdir(&layout.mirror)?;
    let Layout { call, layers, .. } = layout;
    let options = format!("lowerdir={},upperdir={call}/u,workdir={call}/w,{OVERLAY}", layers.join(":"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("hostler-mirror"), at, Some("overlay"), flags, Some(options.as_str()))
        .map_err(|error| said("cannot mount the tree", &error.into()))
}

/// Replaces the directory at `path` by a copy that also contains the tree.
///
/// The user may own the directory and can replace it by a link at any moment. So the copy is built in a private
/// directory of the agent, and then moved onto the open directory.
fn mount_copy(layout: &Layout, path: &Path, directory: &OwnedFd, may_list: bool) -> io::Result<()> {
    let call = layout.mirror.join(&layout.call);
    let (before, staged) = (call.join("b"), call.join("s"));
    fs::create_dir(&before)?;
    bind(&place_of(directory), &before)?;
    let found = fs::metadata(&before)?;
    fs::create_dir(&staged)?;
    mount_like(&staged, &found)?;
    // The copy must not contain itself.
    change_propagation(&staged, MsFlags::MS_UNBINDABLE)?;
    let below = layout.root.strip_prefix(path).map_err(io::Error::other)?;
    if may_list {
        bind_entries(&before, &staged, below)?;
    }
    let place = staged.join(below);
    create_directory(&place, OPEN)?;
    umount2(&before, MntFlags::MNT_DETACH)?;
    fs::remove_dir(&before)?;
    mount_tree(layout, &place)?;
    let moved = mount(Some(&staged), &place_of(directory), None::<&str>, MsFlags::MS_MOVE, None::<&str>);
    moved.map_err(|error| said("cannot mount the tree at its path", &error.into()))
}

/// Like [`mount_copy`], for `/`: the root cannot be covered by a mount, so a new root replaces it.
fn replace_root(layout: &Layout, may_list: bool) -> io::Result<()> {
    let new = layout.mirror.join(&layout.call).join("r");
    fs::create_dir(&new)?;
    mount_like(&new, &fs::metadata("/")?)?;
    // The copy must not contain itself.
    change_propagation(&new, MsFlags::MS_UNBINDABLE)?;
    let below = layout.root.strip_prefix("/").unwrap_or(&layout.root);
    if !may_list {
        // Without the entries of `/` there would be no programs.
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "cannot list /"));
    }
    bind_entries(Path::new("/"), &new, below)?;
    create_directory(&new.join(below), OPEN)?;
    chdir(&new)?;
    pivot_root(".", ".").map_err(|error| said("cannot change the root", &error.into()))?;
    Ok(umount2(".", MntFlags::MNT_DETACH)?)
}

/// Bind-mounts every entry of `from` in `to`, an empty private directory of the agent. Skips the entry named by the
/// first component of `below`: the entry was missing a moment ago, and may now be a link that the agent must not
/// follow.
fn bind_entries(from: &Path, to: &Path, below: &Path) -> io::Result<()> {
    let directory = open(from, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let way = below.components().next().map(|first| first.as_os_str().to_owned());
    for (count, entry) in fs::read_dir(from)?.enumerate() {
        if count >= MOST_NEIGHBOURS {
            let why = format!(
                "the tree's parent directory has more than {MOST_NEIGHBOURS} entries; create an empty directory at the tree's path"
            );
            return Err(io::Error::other(why));
        }
        let entry = entry?;
        if way.as_ref() == Some(&entry.file_name()) {
            continue;
        }
        match bind_entry(&directory, &entry.file_name(), &to.join(entry.file_name())) {
            // The entry is gone, or is an unbindable mount.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {}
            shown => shown?,
        }
    }
    Ok(())
}

/// Bind-mounts the file or directory `name` at the path `target`. Opens the source first, because a user may replace it
/// by a link that only the agent may follow. Skips a mount that root cannot access, such as a user's FUSE file system or
/// one without a server.
fn bind_entry(directory: &OwnedFd, name: &OsStr, target: &Path) -> io::Result<()> {
    let source = openat(directory, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let Ok(found) = fstat(source.as_fd()) else { return Ok(()) };
    match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFLNK => return symlink(readlinkat(&source, "")?, target),
        SFlag::S_IFDIR => fs::create_dir(target)?,
        _ => drop(File::create(target)?),
    }
    bind(&place_of(&source), target)
}

/// Mounts a tmpfs with the owner and mode of another directory.
fn mount_like(at: &Path, like: &fs::Metadata) -> io::Result<()> {
    mount_tmpfs("hostler-mirror", at, "size=1m")?;
    std::os::unix::fs::chown(at, Some(like.uid()), Some(like.gid()))?;
    fs::set_permissions(at, Permissions::from_mode(like.mode() & 0o7777))
}

fn said(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, setns, unshare};

    use super::*;

    /// Creates a mirror with a tree of two files, and a directory for one command.
    fn layout(folder: &Path, root: &Path) -> Layout {
        let mirror = folder.join("mirror");
        for directory in ["l1", "l2", "c1/u", "c1/w"] {
            fs::create_dir_all(mirror.join(directory)).expect("writable");
        }
        fs::write(mirror.join("l1/a.c"), "old").expect("writable");
        fs::write(mirror.join("l2/a.c"), "new").expect("writable");
        fs::write(mirror.join("l1/b.c"), "b").expect("writable");
        let layers = vec!["l2".to_owned(), "l1".to_owned()];
        Layout { mirror, layers, call: "c1".to_owned(), root: root.to_owned(), user: None }
    }

    /// Runs a closure in the namespace, on a temporary thread.
    fn inside<T: Send + 'static>(namespace: OwnedFd, act: impl FnOnce() -> T + Send + 'static) -> T {
        let act = move || {
            unshare(CloneFlags::CLONE_FS).expect("a thread can change its namespace");
            setns(namespace, CloneFlags::CLONE_NEWNS).expect("root has permission");
            act()
        };
        std::thread::spawn(act).join().expect("the thread does not panic")
    }

    /// Needs root to make namespaces.
    fn compiles(folder: &Path, root: &Path) {
        let layout = layout(folder, root);
        let namespace = make(layout.clone()).expect("root may make a namespace");
        let at = root.to_owned();
        let seen = inside(namespace, move || {
            fs::write(at.join("a.o"), "object").expect("writable");
            fs::remove_file(at.join("b.c")).expect("writable");
            let programs = Path::new("/bin/sh").exists() && Path::new("/proc/self").exists();
            (fs::read_to_string(at.join("a.c")).expect("the file exists"), programs)
        });
        assert_eq!(seen, ("new".to_owned(), true));
        let upper = layout.mirror.join("c1/u");
        assert_eq!(fs::read_to_string(upper.join("a.o")).expect("the command wrote the file"), "object");
        assert!(upper.join("b.c").symlink_metadata().is_ok(), "the upper layer has a whiteout");
        assert_eq!(fs::read_to_string(layout.mirror.join("l1/b.c")).expect("the layers stay unchanged"), "b");
        assert!(!layout.mirror.join("c1/b").exists());
        // The mounts are visible inside only.
        assert_eq!(
            fs::read_dir(layout.mirror.join("c1"))
                .expect("the directory exists")
                .filter(|it| {
                    it.as_ref().is_ok_and(|it| {
                        it.file_name() == "s" && fs::read_dir(it.path()).expect("the directory exists").count() > 0
                    })
                })
                .count(),
            0
        );
    }

    #[test]
    fn tree_is_mounted_over_its_existing_directory() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("home/tree");
        fs::create_dir_all(&root).expect("writable");
        compiles(folder.path(), &root);
        assert_eq!(fs::read_dir(&root).expect("the path exists").count(), 0);
    }

    #[test]
    fn nothing_is_created_behind_a_link() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (home, elsewhere) = (folder.path().join("home"), folder.path().join("elsewhere"));
        fs::create_dir(&home).expect("writable");
        fs::create_dir(&elsewhere).expect("writable");
        symlink(&elsewhere, home.join("way")).expect("writable");
        let layout = layout(folder.path(), &home.join("way/to/tree"));
        make(layout.clone()).expect("root may make a namespace");
        // The path may become a link after it was checked.
        bind_entries(&home, &layout.mirror.join("l2"), Path::new("way/to")).expect("root may mount");
        assert!(layout.mirror.join("l2/way").symlink_metadata().is_err());
        assert_eq!(fs::read_dir(&elsewhere).expect("the path exists").count(), 0);
        assert_eq!(fs::read_dir(&home).expect("the path exists").count(), 1);
    }

    /// Needs root to make namespaces.
    #[test]
    fn user_without_access_to_the_directory_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("the directory belongs to root");
        let (home, private) = (folder.path().join("home"), folder.path().join("private"));
        fs::create_dir_all(&home).expect("writable");
        fs::create_dir_all(private.join("open")).expect("writable");
        fs::write(private.join("open/file"), "secret").expect("writable");
        symlink("../private/open", home.join("way")).expect("writable");
        fs::set_permissions(&private, Permissions::from_mode(0o700)).expect("the directory belongs to root");
        let nobody = Ids { uid: 65534, gid: 65534, groups: Vec::new() };
        for place in [home.join("way"), home.join("way/tree"), private.join("open/tree"), private.join("tree")] {
            let layout = Layout { user: Some(nobody.clone()), ..layout(folder.path(), &place) };
            let refused = make(layout).expect_err("the user has no access to the directory");
            assert!(refused.to_string().contains("cannot enter"), "{}: {refused}", place.display());
            hostler_snapshot::remove_tree(&folder.path().join("mirror")).expect("root may remove it");
        }
        let layout = Layout { user: Some(nobody), ..layout(folder.path(), &home.join("tree")) };
        make(layout).expect("the user has access to the directory");
        // A listed directory may become a link before it is shown.
        let shown = folder.path().join("shown");
        let directory = open(&home, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).expect("the directory exists");
        bind_entry(&directory, OsStr::new("way"), &shown).expect("root may mount");
        assert_eq!(fs::read_link(&shown).expect("a link"), Path::new("../private/open"));
    }

    /// Needs root to make namespaces.
    #[test]
    fn nobody_learns_what_is_in_a_directory_that_they_may_not_list() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("the directory belongs to root");
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("secret-project")).expect("writable");
        let nobody = Ids { uid: 65534, gid: 65534, groups: Vec::new() };
        for (mode, is_shown) in [(0o711, false), (0o755, true)] {
            fs::set_permissions(&home, Permissions::from_mode(mode)).expect("the directory belongs to root");
            let tree = home.join("ada/tree");
            let layout = Layout { user: Some(nobody.clone()), ..layout(folder.path(), &tree) };
            let (seen, is_there) = inside(make(layout).expect("root may make a namespace"), move || {
                let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("the file is readable for all");
                (mounts.contains("secret-project"), tree.join("a.c").exists())
            });
            assert!(is_there, "the tree is at its place");
            assert_eq!(seen, is_shown, "{mode:o}");
            hostler_snapshot::remove_tree(&folder.path().join("mirror")).expect("root may remove it");
        }
    }

    #[test]
    fn missing_parent_directories_exist_only_in_the_namespace() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("neighbour")).expect("writable");
        fs::write(home.join("neighbour/file"), "x").expect("writable");
        symlink("neighbour", home.join("link")).expect("writable");
        compiles(folder.path(), &home.join("ada/src/tree"));
        assert!(!home.join("ada").exists());
        let again = Layout { call: "c2".to_owned(), ..layout(folder.path(), &home.join("ada")) };
        fs::create_dir_all(again.mirror.join("c2/u")).expect("writable");
        fs::create_dir_all(again.mirror.join("c2/w")).expect("writable");
        let beside = home.clone();
        let seen = inside(make(again).expect("root may make a namespace"), move || {
            fs::write(beside.join("neighbour/new"), "from inside").expect("the directory itself is shown");
            fs::read_to_string(beside.join("link/file")).expect("the link is shown")
        });
        assert_eq!(seen, "x");
        assert!(home.join("neighbour/new").exists(), "writes beside the tree reach the node's file system");
    }

    /// Needs root and FUSE.
    #[test]
    fn mount_that_root_cannot_access_is_left_out() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let home = folder.path().join("home");
        let gone = home.join("gone");
        fs::create_dir_all(&gone).expect("writable");
        fs::write(home.join("file"), "x").expect("writable");
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("the kernel has FUSE");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        mount(Some("gone"), gone.as_path(), Some("fuse"), MsFlags::empty(), Some(options.as_str()))
            .expect("needs root");
        // Without a server, every request fails.
        drop(device);
        let is_inaccessible = fs::metadata(&gone).is_err();
        let made = make(layout(folder.path(), &home.join("tree")));
        umount2(&gone, MntFlags::MNT_DETACH).expect("the test has mounted it");
        assert!(is_inaccessible);
        let seen = inside(made.expect("root may make a namespace"), move || {
            ["file", "tree/a.c", "gone"].map(|name| home.join(name).symlink_metadata().is_ok())
        });
        assert_eq!(seen, [true, true, false]);
    }

    #[test]
    fn missing_directory_below_the_root_exists_only_in_the_namespace() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let name = format!("/hostler-test-{}", std::process::id());
        compiles(folder.path(), &Path::new(&name).join("tree"));
        assert!(!Path::new(&name).exists());
    }
}
