//! A mount namespace in which a caller's tree is where it was on the caller's machine.
//!
//! Only who is in the namespace sees any of this, and it is gone with the last of them. Nothing is made or changed on the node: where the place
//! of the tree does not exist, the nearest directory above it is shown once more, with everything that is in it, from memory.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{chdir, pivot_root};

use crate::account::{Ids, act_as};

/// The most that the directory may hold in which the place of a tree is missing: each costs a mount.
const MOST_NEIGHBOURS: usize = 1000;

/// Options that keep what is written over a tree simple: whole files, and directories that are not renamed.
const OVERLAY: &str = "redirect_dir=off,metacopy=off,index=off";

/// What lies where.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The directory that all else is named in.
    pub(super) mirror: PathBuf,
    /// Layers of the tree, uppermost first.
    pub(super) layers: Vec<String>,
    /// The directory of the call.
    pub(super) call: String,
    /// Where the tree is to be.
    pub(super) root: PathBuf,
    /// Whose it is, if not the agent's own user's.
    pub(super) user: Option<Ids>,
}

/// Makes it, on a thread that ends. Blocks.
///
/// # Errors
/// When the kernel refuses, in words about what.
pub(super) fn make(layout: Layout) -> io::Result<OwnedFd> {
    let thread = std::thread::Builder::new().name("namespace".to_owned()).spawn(move || enter_and_make(&layout))?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("it was given up")))
}

fn enter_and_make(layout: &Layout) -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| said("cannot have a mount namespace", &error.into()))?;
    let namespace = File::open("/proc/thread-self/ns/mnt")?;
    // What is mounted on the node later shows here as well; nothing from here shows there.
    change("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    let Nearest { path, directory, may_list } = nearest(layout)?;
    if path == Path::new("/") {
        replace_root(layout, may_list)?;
        show_tree(layout, &layout.root)?;
    } else if path == layout.root {
        show_tree(layout, &place_of(&directory))?;
    } else {
        show_again(layout, path, &directory, may_list)?;
    }
    Ok(namespace.into())
}

/// The place of the tree, or a directory above it.
struct Nearest<'a> {
    path: &'a Path,
    directory: OwnedFd,
    /// Whether the user may see what is in it. What is shown again is a mount each, and everybody in the namespace can list those.
    may_list: bool,
}

/// The place of the tree, or the nearest directory above it that is there.
///
/// It is found with the user's rights and held: the agent sees directories that this user may not come to, and must not show them where a link
/// has led it.
fn nearest(layout: &Layout) -> io::Result<Nearest<'_>> {
    let find = || {
        for at in layout.root.ancestors() {
            // The dot asks whether the user may look up names in it.
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

/// A name for what is open, whatever its other names lead to by now.
fn place_of(open: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_raw_fd()).into()
}

/// Mounts the tree at a place that is there.
fn show_tree(layout: &Layout, at: &Path) -> io::Result<()> {
    chdir(&layout.mirror)?;
    let Layout { call, layers, .. } = layout;
    let options = format!("lowerdir={},upperdir={call}/u,workdir={call}/w,{OVERLAY}", layers.join(":"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("hostler-mirror"), at, Some("overlay"), flags, Some(options.as_str()))
        .map_err(|error| said("cannot mount the tree", &error.into()))
}

/// Shows a directory once more, with the tree in it.
///
/// The directory may be a user's, who may put another one or a link in its place at any moment. So everything is made in a directory of the
/// agent's own, where names mean what they meant before, and then moved to the one that is held.
fn show_again(layout: &Layout, path: &Path, directory: &OwnedFd, may_list: bool) -> io::Result<()> {
    let call = layout.mirror.join(&layout.call);
    let (before, staged) = (call.join("b"), call.join("s"));
    fs::create_dir(&before)?;
    bind(&place_of(directory), &before)?;
    let found = fs::metadata(&before)?;
    fs::create_dir(&staged)?;
    memory(&staged, &found)?;
    // It is not to be shown in itself.
    change(&staged, MsFlags::MS_UNBINDABLE)?;
    let below = layout.root.strip_prefix(path).map_err(io::Error::other)?;
    if may_list {
        neighbours(&before, &staged, below)?;
    }
    let place = staged.join(below);
    fs::create_dir_all(&place)?;
    umount2(&before, MntFlags::MNT_DETACH)?;
    fs::remove_dir(&before)?;
    show_tree(layout, &place)?;
    let moved = mount(Some(&staged), &place_of(directory), None::<&str>, MsFlags::MS_MOVE, None::<&str>);
    moved.map_err(|error| said("cannot show the tree at its place", &error.into()))
}

/// The same for the directory that all others are in: it cannot be covered, only replaced.
fn replace_root(layout: &Layout, may_list: bool) -> io::Result<()> {
    let new = layout.mirror.join(&layout.call).join("r");
    fs::create_dir(&new)?;
    memory(&new, &fs::metadata("/")?)?;
    // It is not to be shown in itself.
    change(&new, MsFlags::MS_UNBINDABLE)?;
    let below = layout.root.strip_prefix("/").unwrap_or(&layout.root);
    if !may_list {
        // Without its neighbours there would be no programs.
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "cannot list /"));
    }
    neighbours(Path::new("/"), &new, below)?;
    fs::create_dir_all(new.join(below))?;
    chdir(&new)?;
    pivot_root(".", ".").map_err(|error| said("cannot change the root", &error.into()))?;
    Ok(umount2(".", MntFlags::MNT_DETACH)?)
}

/// Shows everything that is in one directory in another, which is empty and the agent's own; but nothing where the way begins to what is
/// `below`: that was not there a moment ago, and what is made there must not follow a link that is now.
fn neighbours(from: &Path, to: &Path, below: &Path) -> io::Result<()> {
    let directory = open(from, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let way = below.components().next().map(|first| first.as_os_str().to_owned());
    for (count, entry) in fs::read_dir(from)?.enumerate() {
        if count >= MOST_NEIGHBOURS {
            let why =
                format!("there are more than {MOST_NEIGHBOURS} files beside its place; an empty directory there helps");
            return Err(io::Error::other(why));
        }
        let entry = entry?;
        if way.as_ref() == Some(&entry.file_name()) {
            continue;
        }
        match show_one(&directory, &entry.file_name(), &to.join(entry.file_name())) {
            // It has just gone, or is a mount that is not to be shown twice.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {}
            shown => shown?,
        }
    }
    Ok(())
}

/// Shows one file or directory at another place. It is held first: what is a directory now may be a link a moment later, and the agent may go where
/// that leads.
fn show_one(directory: &OwnedFd, name: &OsStr, target: &Path) -> io::Result<()> {
    let source = openat(directory, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    match SFlag::from_bits_truncate(fstat(source.as_fd())?.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFLNK => return symlink(readlinkat(&source, "")?, target),
        SFlag::S_IFDIR => fs::create_dir(target)?,
        _ => drop(File::create(target)?),
    }
    bind(&place_of(&source), target)
}

/// Mounts a directory in memory that looks as another one.
fn memory(at: &Path, like: &fs::Metadata) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("hostler-mirror"), at, Some("tmpfs"), flags, Some("size=1m"))
        .map_err(|error| said("cannot mount a directory", &error.into()))?;
    std::os::unix::fs::chown(at, Some(like.uid()), Some(like.gid()))?;
    fs::set_permissions(at, Permissions::from_mode(like.mode() & 0o7777))
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    Ok(mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?)
}

fn change(at: impl AsRef<Path>, how: MsFlags) -> io::Result<()> {
    mount(None::<&str>, at.as_ref(), None::<&str>, how, None::<&str>)
        .map_err(|error| said("cannot change how mounts are shown", &error.into()))
}

fn said(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use nix::sched::setns;

    use super::*;

    /// A mirror with a tree of one file, and a directory for a call.
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

    /// What is done in the namespace, by a thread that ends there.
    fn inside<T: Send + 'static>(namespace: OwnedFd, act: impl FnOnce() -> T + Send + 'static) -> T {
        let act = move || {
            unshare(CloneFlags::CLONE_FS).expect("threads may");
            setns(namespace, CloneFlags::CLONE_NEWNS).expect("root may");
            act()
        };
        std::thread::spawn(act).join().expect("no panic")
    }

    /// Needs root, as what it tests does.
    fn compiles(folder: &Path, root: &Path) {
        let layout = layout(folder, root);
        let namespace = make(layout.clone()).expect("it can be made");
        let at = root.to_owned();
        let seen = inside(namespace, move || {
            fs::write(at.join("a.o"), "object").expect("writable");
            fs::remove_file(at.join("b.c")).expect("writable");
            let programs = Path::new("/bin/sh").exists() && Path::new("/proc/self").exists();
            (fs::read_to_string(at.join("a.c")).expect("it is there"), programs)
        });
        assert_eq!(seen, ("new".to_owned(), true));
        let upper = layout.mirror.join("c1/u");
        assert_eq!(fs::read_to_string(upper.join("a.o")).expect("it was written"), "object");
        assert!(upper.join("b.c").symlink_metadata().is_ok(), "what is gone is said");
        assert_eq!(fs::read_to_string(layout.mirror.join("l1/b.c")).expect("below nothing changes"), "b");
        assert!(!layout.mirror.join("c1/b").exists());
        // What was mounted there is seen inside alone.
        assert_eq!(
            fs::read_dir(layout.mirror.join("c1"))
                .expect("there")
                .filter(|it| {
                    it.as_ref()
                        .is_ok_and(|it| it.file_name() == "s" && fs::read_dir(it.path()).expect("there").count() > 0)
                })
                .count(),
            0
        );
    }

    #[test]
    fn a_tree_is_mounted_where_its_place_is() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("home/tree");
        fs::create_dir_all(&root).expect("writable");
        compiles(folder.path(), &root);
        assert_eq!(fs::read_dir(&root).expect("there").count(), 0);
    }

    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (home, elsewhere) = (folder.path().join("home"), folder.path().join("elsewhere"));
        fs::create_dir(&home).expect("writable");
        fs::create_dir(&elsewhere).expect("writable");
        symlink(&elsewhere, home.join("way")).expect("writable");
        let layout = layout(folder.path(), &home.join("way/to/tree"));
        make(layout.clone()).expect("it can be made");
        // It may have become a link only after it was looked at.
        neighbours(&home, &layout.mirror.join("l2"), Path::new("way/to")).expect("it can be shown");
        assert!(layout.mirror.join("l2/way").symlink_metadata().is_err());
        assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0);
        assert_eq!(fs::read_dir(&home).expect("there").count(), 1);
    }

    /// Needs root, as what it tests does.
    #[test]
    fn nobody_is_shown_what_they_may_not_come_to() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let (home, private) = (folder.path().join("home"), folder.path().join("private"));
        fs::create_dir_all(&home).expect("writable");
        fs::create_dir_all(private.join("open")).expect("writable");
        fs::write(private.join("open/file"), "secret").expect("writable");
        symlink("../private/open", home.join("way")).expect("writable");
        fs::set_permissions(&private, Permissions::from_mode(0o700)).expect("ours");
        let nobody = Ids { uid: 65534, gid: 65534, groups: Vec::new() };
        for place in [home.join("way"), home.join("way/tree"), private.join("open/tree"), private.join("tree")] {
            let layout = Layout { user: Some(nobody.clone()), ..layout(folder.path(), &place) };
            let refused = make(layout).expect_err("the user may not go there");
            assert!(refused.to_string().contains("cannot enter"), "{}: {refused}", place.display());
            hostler_snapshot::remove_tree(&folder.path().join("mirror")).expect("ours");
        }
        let layout = Layout { user: Some(nobody), ..layout(folder.path(), &home.join("tree")) };
        make(layout).expect("the user may go there");
        // What was a directory when it was listed may be a link when it is shown.
        let shown = folder.path().join("shown");
        let directory = open(&home, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).expect("there");
        show_one(&directory, OsStr::new("way"), &shown).expect("a link can be made");
        assert_eq!(fs::read_link(&shown).expect("a link"), Path::new("../private/open"));
    }

    /// Needs root, as what it tests does.
    #[test]
    fn nobody_learns_what_is_in_a_directory_that_they_may_not_list() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("secret-project")).expect("writable");
        let nobody = Ids { uid: 65534, gid: 65534, groups: Vec::new() };
        for (mode, is_shown) in [(0o711, false), (0o755, true)] {
            fs::set_permissions(&home, Permissions::from_mode(mode)).expect("ours");
            let tree = home.join("ada/tree");
            let layout = Layout { user: Some(nobody.clone()), ..layout(folder.path(), &tree) };
            let (seen, is_there) = inside(make(layout).expect("it can be made"), move || {
                let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("everybody may");
                (mounts.contains("secret-project"), tree.join("a.c").exists())
            });
            assert!(is_there, "the tree is at its place");
            assert_eq!(seen, is_shown, "{mode:o}");
            hostler_snapshot::remove_tree(&folder.path().join("mirror")).expect("ours");
        }
    }

    #[test]
    fn a_way_to_it_is_made_for_those_inside_alone() {
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
        let seen = inside(make(again).expect("it can be made"), move || {
            fs::write(beside.join("neighbour/new"), "from inside").expect("it is the very directory");
            fs::read_to_string(beside.join("link/file")).expect("it is shown")
        });
        assert_eq!(seen, "x");
        assert!(home.join("neighbour/new").exists(), "what is beside the tree is the node's own");
    }

    #[test]
    fn a_way_is_made_from_the_root_if_need_be() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let name = format!("/hostler-test-{}", std::process::id());
        compiles(folder.path(), &Path::new(&name).join("tree"));
        assert!(!Path::new(&name).exists());
    }
}
