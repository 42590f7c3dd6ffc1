//! The file tree of a sandbox: read-only parts of the machine's own tree or an [`image`], and the job's folder.
//!
//! All sources are opened first, and then mounted by descriptor, so that a path that is replaced meanwhile has no effect.
//! Paths of the user are opened with the user's rights. Targets are found without symbolic links, in a file system that
//! this module has just created.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use hostler_sys::{MountAttributes, MountTree, change_propagation};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, ResolveFlag, openat2, readlinkat};
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::stat::{Mode, SFlag, fstat, makedev, mknodat};
use nix::unistd::{Gid, Uid, chdir, fchdir, fchownat, pivot_root, symlinkat};

use super::files::{LOCKED, WRITABLE, as_user, directory, file, how, is, only_of_root, refuse_kernel, relative};
use super::folder::folder;
use super::image;
use super::plan::{During, HOST_NAME, Plan};
use crate::cgroup::Device;
use crate::launch::{Credentials, DeviceFile, Shown};

/// Directories of the machine's programs. Where they are symbolic links, the sandbox has the same links.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Files and directories of the machine that programs need and that contain no secrets.
const SETTINGS: [&str; 11] = [
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/ssl/certs",
    "etc/ssl/openssl.cnf",
    "etc/pki/ca-trust",
    "etc/pki/tls/certs",
    "etc/crypto-policies",
    "etc/alternatives",
    "etc/localtime",
    "etc/timezone",
];

/// Files of the machine without which programs find no other machines.
const OF_NETWORK: [&str; 2] = ["etc/hosts", "etc/resolv.conf"];

/// The machine's processors and memory nodes, without which numeric libraries do not find their topology.
const PROCESSORS: &str = "sys/devices/system";

/// What drivers of devices need of /sys. Other file systems are mounted below the rest of it, such as control groups.
const OF_DRIVERS: [&str; 5] = ["sys/devices", "sys/class", "sys/bus", "sys/dev", "sys/module"];

/// The directory of network interfaces, empty.
const INTERFACES: &str = "sys/class/net";

/// Character devices: name, major and minor number.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// Files and directories in /proc that settings of the machine are in.
const READ_ONLY_IN_PROC: [&str; 5] = ["sys", "bus", "fs", "irq", "sysrq-trigger"];

/// Files and directories in /proc that tell about the machine and its other users.
const HIDDEN_IN_PROC: [&str; 9] =
    ["kcore", "keys", "key-users", "kmsg", "timer_list", "sched_debug", "latency_stats", "acpi", "scsi"];

/// Directory of this program in sandboxes with an image, which have nothing else there.
const OF_HOSTLER: &str = "/run/hostler";

/// Directory of the user's own files. It is empty, and disappears with the job.
pub const HOME: &str = "/tmp/home";

/// A part of the machine to show, at a path without the leading slash.
enum Part {
    Link { path: PathBuf, target: PathBuf },
    Tree { path: PathBuf, tree: MountTree, is_directory: bool },
}

impl Part {
    fn path(&self) -> &Path {
        match self {
            Self::Link { path, .. } | Self::Tree { path, .. } => path,
        }
    }
}

/// Builds the tree in this process's mount namespace, and makes it the root directory.
pub(super) fn build(plan: &Plan<'_>) -> io::Result<()> {
    // Opening a source may make the machine mount it.
    let propagate = |how| change_propagation(Path::new("/"), MsFlags::MS_REC | how).during("separate the mounts");
    propagate(MsFlags::MS_SLAVE)?;
    let host = openat2(nix::fcntl::AT_FDCWD, "/", how(OFlag::O_DIRECTORY, ResolveFlag::empty()))
        .during("open the root directory")?;
    let image = plan.wanted.image.as_ref().map(|image| image::open(&host, plan, image)).transpose()?;
    let parts = parts(&host, plan)?;
    let more =
        plan.wanted.of_machine.iter().map(|path| of_machine(&host, plan, path)).collect::<io::Result<Vec<_>>>()?;
    let files = files(&host, plan)?;
    let driver = plan.wanted.driver.iter().map(|file| of_root(&host, plan, file, false));
    let shown = driver.chain(plan.wanted.shown.iter().map(|file| of_root(&host, plan, file, true)));
    let shown = shown.collect::<io::Result<Vec<_>>>()?;
    let settings = plan.wanted.settings.iter().filter_map(|path| setting(&host, plan, path).transpose());
    let settings = settings.collect::<io::Result<Vec<_>>>()?;
    let writable = plan.wanted.writable.iter().map(|path| Ok((path.as_str(), own_directory(&host, plan, path)?)));
    let writable = writable.collect::<io::Result<Vec<_>>>()?;
    let folder = (!plan.wanted.without_folder).then(|| folder(&host, plan)).transpose()?;
    let terminal = plan.terminal.and_then(|terminal| same_file(&host, terminal));
    propagate(MsFlags::MS_PRIVATE)?;

    // Any directory will do: the file system becomes the root directory at the end.
    let place = openat2(&host, "usr", how(OFlag::O_DIRECTORY, ResolveFlag::empty())).during("open /usr")?;
    let (size, inodes) = if image.is_some() { image::TMPFS } else { ("1m", "64k") };
    let root = tmpfs(size, inodes, "0755", WRITABLE).during("create the root file system")?;
    root.attach(&place).during("mount the root file system")?;
    if let Some(image) = &image {
        let more = more.iter().map(|part| part.path().to_owned());
        image::show(image, &root, &targets(plan).chain(more).collect())?;
    }
    for part in parts {
        show(&root, part)?;
    }
    if plan.wanted.devices.is_empty() {
        // Libraries of MPI complain if it is missing.
        directory(&root, Path::new(INTERFACES)).during("make /sys/class/net")?;
    }
    settings_files(&root, plan)?;
    for part in more {
        if image.is_some() { show(&root, part)? } else { show_new(&root, part)? }
    }
    let null = devices(&host, &root, plan, terminal)?;
    processes(&root, &null)?;
    temporary(&root, plan)?;
    for file in shown {
        show(&root, file)?;
    }
    // The last ones, because they may be in /tmp.
    for file in files {
        show(&root, file)?;
    }
    for setting in settings {
        show_new(&root, setting)?;
    }
    for (path, tree) in writable {
        let place = directory(&root, relative(path)?).during(format_args!("mount {path}: its parent directory"))?;
        tree.attach(&place).during(format_args!("mount {path}"))?;
    }
    if let Some(folder) = folder {
        let place = directory(&root, relative(plan.folder)?)
            .during(format_args!("mount the job's folder at {}: its parent directory", plan.folder))?;
        folder.attach(&place).during(format_args!("mount the job's folder at {}", plan.folder))?;
    }
    root.add(LOCKED, false).during("make the root file system read-only")?;
    become_root(&root).during("change the root directory")
}

/// Paths of which the sandbox has its own, also with an image, without the leading slash.
fn targets<'a>(plan: &'a Plan<'_>) -> impl Iterator<Item = PathBuf> + 'a {
    let fixed = ["dev", "proc", "tmp", PROCESSORS, INTERFACES, "etc/passwd", "etc/group", "etc/nsswitch.conf"];
    let wanted = plan.wanted;
    let of_job = wanted.read_only.iter().chain(&wanted.settings).chain(&wanted.writable).map(String::as_str);
    let folder = (!wanted.without_folder).then_some(plan.folder);
    let driver = wanted.driver.iter().map(|file| file.at.as_str());
    let shown = || wanted.shown.iter().map(|file| file.at.as_str());
    // Nothing of an image there may change how this program starts.
    let of_program = shown().any(|at| Path::new(at).starts_with(OF_HOSTLER)).then_some(OF_HOSTLER);
    let of_job = of_job.chain(driver).chain(shown()).chain(of_program);
    fixed.into_iter().chain(OF_NETWORK).chain(of_job).chain(folder).map(|path| path.trim_start_matches('/').into())
}

fn tmpfs(size: &str, inodes: &str, mode: &str, attributes: u64) -> io::Result<MountTree> {
    MountTree::create(c"tmpfs", &[(c"size", size), (c"nr_inodes", inodes), (c"mode", mode)], attributes)
}

/// Opens the directories and files of the system.
fn parts(host: &OwnedFd, plan: &Plan<'_>) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let of_sys = if plan.wanted.devices.is_empty() { &[PROCESSORS][..] } else { &OF_DRIVERS };
    let of_network = if plan.wanted.host_network { &OF_NETWORK[..] } else { &[] };
    // An image has its own.
    let (programs, settings) =
        if plan.wanted.image.is_some() { (&[][..], &[][..]) } else { (&PROGRAMS[..], &SETTINGS[..]) };
    let others = settings.iter().chain(of_network).chain(of_sys);
    for (path, resolve) in (programs.iter().map(|path| (*path, ResolveFlag::RESOLVE_NO_SYMLINKS)))
        .chain(others.map(|path| (*path, ResolveFlag::RESOLVE_IN_ROOT)))
    {
        let what = format_args!("show /{path}");
        match openat2(host, path, how(OFlag::empty(), resolve)) {
            Ok(found) => {
                let is_directory = is(&fstat(&found).during(what)?, SFlag::S_IFDIR);
                let is_recursive = is_directory && !path.starts_with("sys/");
                let tree = MountTree::copy(&found, is_recursive).during(what)?;
                tree.add(LOCKED, is_recursive).during(what)?;
                parts.push(Part::Tree { path: path.into(), tree, is_directory });
            }
            Err(Errno::ELOOP) => {
                let target = readlinkat(host, path).during(what)?;
                parts.push(Part::Link { path: path.into(), target: target.into() });
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(error) => return Err(error).during(what),
        }
    }
    Ok(parts)
}

/// Places of which every sandbox has its own, or the machine's already, or which contain sockets of its servers.
const NOT_TO_ADD: [&str; 12] =
    ["proc", "sys", "dev", "tmp", "run", "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Opens a directory or file of the machine that an admin adds to sandboxes.
fn of_machine(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<Part> {
    let what = format_args!("show {path}");
    let is_own = |inside: &Path| NOT_TO_ADD.iter().any(|place| inside.starts_with(place)) || inside == Path::new("etc");
    if relative(path).is_ok_and(is_own) {
        let why =
            "sandboxes have their own /etc, /tmp, /dev, /proc and /sys, and the machine's /usr, and never its /run";
        return Err(io::Error::other(why)).during(what);
    }
    let found = only_of_root(host, plan, path).during(what)?;
    let metadata = fstat(&found).during(what)?;
    let is_directory = is(&metadata, SFlag::S_IFDIR);
    if !is_directory && !is(&metadata, SFlag::S_IFREG) {
        return Err(io::Error::other("it is neither a directory nor a file")).during(what);
    }
    // Without the file systems that are mounted below: one of them may show processes of the machine.
    let tree = MountTree::copy(&found, false).during(what)?;
    tree.add(LOCKED, false).during(what)?;
    Ok(Part::Tree { path: relative(path)?.to_owned(), tree, is_directory })
}

/// Opens a file of root that is shown at another place. `may_be_own`: the file may belong to a shepherd that is not root.
fn of_root(host: &OwnedFd, plan: &Plan<'_>, file: &Shown, may_be_own: bool) -> io::Result<Part> {
    let what = format_args!("show {}", file.from);
    let found = openat2(host, relative(&file.from)?, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS));
    let found = found.during(what)?;
    let metadata = fstat(&found).during(what)?;
    // An unprivileged sandbox cannot tell root from other users but its own.
    let is_of_root = metadata.st_uid == 0 || plan.is_unprivileged;
    // Where users have a group of their own, it may usually write. Whoever may change the agent's program acts as the agent.
    let is_own = plan.is_unprivileged && metadata.st_uid == plan.user.uid;
    let is_safe = if is_own { may_be_own } else { is_of_root && metadata.st_mode & 0o022 == 0 };
    if !is(&metadata, SFlag::S_IFREG) {
        return Err(io::Error::other("it is not a regular file")).during(what);
    }
    if !is_safe {
        return Err(io::Error::other("users other than root can change this file")).during(what);
    }
    let tree = MountTree::copy(&found, false).during(what)?;
    tree.add(LOCKED, false).during(what)?;
    Ok(Part::Tree { path: relative(&file.at)?.to_owned(), tree, is_directory: false })
}

/// Opens a setting of the machine with the rights of the user; `None` if the user has no use of it.
fn setting(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<Option<Part>> {
    let what = format_args!("show {path}");
    let inside = relative(path).during(what)?;
    if PROGRAMS.iter().any(|place| inside.starts_with(place)) {
        return Ok(None);
    }
    let opened = as_user(plan, || Ok(openat2(host, inside, how(OFlag::empty(), ResolveFlag::RESOLVE_IN_ROOT))));
    let found = match opened.during(what)? {
        Ok(found) => found,
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => return Ok(None),
        Err(error) => return Err(error).during(what),
    };
    let metadata = fstat(&found).during(what)?;
    let is_directory = is(&metadata, SFlag::S_IFDIR);
    if !is_directory && !is(&metadata, SFlag::S_IFREG) {
        return Ok(None);
    }
    refuse_kernel(&found).during(what)?;
    let tree = MountTree::copy(&found, false).during(what)?;
    tree.add(LOCKED, false).during(what)?;
    Ok(Some(Part::Tree { path: inside.to_owned(), tree, is_directory }))
}

/// Opens a directory with the rights of the user, to whom it must belong.
fn own_directory(host: &OwnedFd, plan: &Plan<'_>, path: &str) -> io::Result<MountTree> {
    let what = format_args!("use {path}");
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = as_user(plan, || openat2(host, path, how(flags, ResolveFlag::empty()))).during(what)?;
    if fstat(&opened).during(what)?.st_uid != plan.user.uid {
        return Err(io::Error::other(format!("it does not belong to user {}", plan.user.name))).during(what);
    }
    refuse_kernel(&opened).during(what)?;
    let tree = MountTree::copy(&opened, false).during(what)?;
    tree.add(WRITABLE, false).during(what)?;
    Ok(tree)
}

/// Opens the files and directories of the job with the rights of the user.
fn files(host: &OwnedFd, plan: &Plan<'_>) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for path in &plan.wanted.read_only {
        let what = format_args!("show {path}");
        let found = as_user(plan, || openat2(host, path.as_str(), how(OFlag::O_NOFOLLOW, ResolveFlag::empty())));
        let found = found.during(what)?;
        let metadata = fstat(&found).during(what)?;
        let is_directory = is(&metadata, SFlag::S_IFDIR);
        if !is_directory && !is(&metadata, SFlag::S_IFREG) {
            return Err(io::Error::other("it is neither a file nor a directory")).during(what);
        }
        refuse_kernel(&found).during(what)?;
        let tree = MountTree::copy(&found, false).during(what)?;
        tree.add(LOCKED, false).during(what)?;
        parts.push(Part::Tree { path: relative(path)?.to_owned(), tree, is_directory });
    }
    Ok(parts)
}

/// Mounts a part, or creates its link.
fn show(root: &MountTree, part: Part) -> io::Result<()> {
    match part {
        Part::Link { path, target } => symlinkat(&target, root, &path).during(format_args!("link /{}", path.display())),
        Part::Tree { path, tree, is_directory } => {
            let place = if is_directory { directory(root, &path) } else { file(root, &path) };
            place.and_then(|place| tree.attach(&place)).during(format_args!("mount /{}", path.display()))
        }
    }
}

/// Mounts a setting, unless something else is shown at its path already.
fn show_new(root: &MountTree, part: Part) -> io::Result<()> {
    match openat2(root, part.path(), how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_IN_ROOT)) {
        Ok(_) => Ok(()),
        Err(_) => show(root, part),
    }
}

/// Writes the files of /etc that are made up: the machine's own ones tell about its users and network.
fn settings_files(root: &MountTree, plan: &Plan<'_>) -> io::Result<()> {
    let Credentials { name, uid, gid, .. } = plan.user;
    let hosts = if plan.wanted.host_network { "files dns" } else { "files" };
    // A name that would break the format is not shown.
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    let name = if is_plain { name.as_str() } else { "user" };
    for (path, text) in [
        (
            "etc/passwd",
            format!(
                "root:x:0:0:root:/root:/bin/sh\n{name}:x:{uid}:{gid}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
            ),
        ),
        ("etc/group", format!("root:x:0:\n{name}:x:{gid}:\nnogroup:x:65534:\n")),
        ("etc/nsswitch.conf", format!("passwd: files\ngroup: files\nhosts: {hosts}\n")),
        ("etc/hosts", hosts_file(plan)),
    ] {
        if plan.wanted.host_network && OF_NETWORK.contains(&path) {
            // The machine's own one, if it has one.
            continue;
        }
        let written = file(root, Path::new(path)).and_then(|it| File::from(it).write_all(text.as_bytes()));
        written.during(format_args!("write /{path}"))?;
    }
    Ok(())
}

/// The text of /etc/hosts: this sandbox, and the other nodes that it reaches.
fn hosts_file(plan: &Plan<'_>) -> String {
    match &plan.wanted.job_network {
        Some(network) => format!("127.0.0.1 localhost\n::1 localhost\n{}", network.hosts()),
        None => format!("127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n"),
    }
}

/// Makes /dev. Returns its null device.
fn devices(host: &OwnedFd, root: &MountTree, plan: &Plan<'_>, terminal: Option<MountTree>) -> io::Result<OwnedFd> {
    let what = "make /dev";
    let attributes = MountAttributes::NO_SUID | MountAttributes::NO_EXECUTION;
    let dev = tmpfs("64k", "1k", "0755", attributes).during(what)?;
    dev.attach(directory(root, Path::new("dev"))?).during(what)?;
    for (name, major, minor) in DEVICES {
        let make = || match plan.is_unprivileged {
            // No device can be made, but those of the machine can be shown.
            true => {
                let found = copy_device(host, &Path::new("dev").join(name), Device { major, minor })?;
                found.attach(file(&dev, Path::new(name))?)
            }
            false => {
                let mode = Mode::from_bits_truncate(0o666);
                mknodat(&dev, name, SFlag::S_IFCHR, mode, makedev(major.into(), minor.into())).map_err(io::Error::from)
            }
        };
        make().during(format_args!("make the device /dev/{name}"))?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlinkat(target, &dev, name).during(what)?;
    }
    let options = [(c"ptmxmode", "0666"), (c"mode", "0620"), (c"max", "256")];
    let terminals = MountTree::create(c"devpts", &options, attributes).during("create /dev/pts")?;
    terminals.attach(directory(&dev, Path::new("pts"))?).during("mount /dev/pts")?;
    let shared = memory(plan).during("create /dev/shm")?;
    shared.attach(directory(&dev, Path::new("shm"))?).during("mount /dev/shm")?;
    for device in &plan.wanted.devices {
        show_device(host, root, device).during(format_args!("show the device {}", device.path))?;
    }
    if let Some(terminal) = terminal {
        // Programs that look for the name of their terminal find this one.
        terminal.attach(file(&dev, Path::new("console"))?).during("mount /dev/console")?;
    }
    let null = openat2(&dev, "null", how(OFlag::O_NOFOLLOW, ResolveFlag::empty())).during(what)?;
    dev.add(MountAttributes::READ_ONLY, false).during(what)?;
    Ok(null)
}

/// A file system in memory for half of what the job may use. The kernel also charges its contents to the job.
fn memory(plan: &Plan<'_>) -> io::Result<MountTree> {
    tmpfs(&(plan.memory_bytes / 2).to_string(), "256k", "1777", WRITABLE)
}

/// Shows a device of the machine at its own path, if it has the expected number.
fn show_device(host: &OwnedFd, root: &MountTree, device: &DeviceFile) -> io::Result<()> {
    let path = relative(&device.path)?;
    copy_device(host, path, device.device)?.attach(file(root, path)?)
}

/// Copies the mount of a character device of the machine, if it has the expected number.
fn copy_device(host: &OwnedFd, path: &Path, Device { major, minor }: Device) -> io::Result<MountTree> {
    let found = openat2(host, path, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS))?;
    let metadata = fstat(&found)?;
    if !is(&metadata, SFlag::S_IFCHR) || metadata.st_rdev != makedev(major.into(), minor.into()) {
        return Err(io::Error::other("it is another device now"));
    }
    let tree = MountTree::copy(&found, false)?;
    tree.add(MountAttributes::NO_SUID | MountAttributes::NO_EXECUTION, false)?;
    Ok(tree)
}

/// Copies the mount of an open terminal; `None` if this mount namespace has no path to it.
fn same_file(host: &OwnedFd, terminal: impl AsFd) -> Option<MountTree> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", terminal.as_fd().as_raw_fd())).ok()?;
    let found = openat2(host, &path, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS)).ok()?;
    let (one, other) = (fstat(&terminal).ok()?, fstat(&found).ok()?);
    let are_same = (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev);
    let tree = MountTree::copy(&found, false).ok().filter(|_| are_same)?;
    tree.add(MountAttributes::NO_SUID | MountAttributes::NO_EXECUTION, false).ok()?;
    Some(tree)
}

/// Mounts /proc for the processes of the sandbox. `null` covers hidden files.
fn processes(root: &MountTree, null: &OwnedFd) -> io::Result<()> {
    let attributes = WRITABLE | MountAttributes::NO_EXECUTION;
    let proc = MountTree::create(c"proc", &[], attributes).during("create /proc")?;
    proc.attach(directory(root, Path::new("proc"))?).during("mount /proc")?;
    let find = |name: &str| match openat2(&proc, name, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS)) {
        Ok(found) => Ok(Some(found)),
        // Not in this kernel.
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(io::Error::from(error)),
    };
    for name in READ_ONLY_IN_PROC {
        let cover = || -> io::Result<()> {
            let Some(found) = find(name)? else { return Ok(()) };
            let copy = MountTree::copy(&found, false)?;
            copy.add(LOCKED | MountAttributes::NO_EXECUTION, false)?;
            copy.attach(&found)
        };
        cover().during(format_args!("make /proc/{name} read-only"))?;
    }
    for name in HIDDEN_IN_PROC {
        let cover = || -> io::Result<()> {
            let Some(found) = find(name)? else { return Ok(()) };
            if is(&fstat(&found)?, SFlag::S_IFDIR) {
                return tmpfs("4k", "1", "0555", LOCKED)?.attach(&found);
            }
            MountTree::copy(null, false)?.attach(&found)
        };
        cover().during(format_args!("hide /proc/{name}"))?;
    }
    Ok(())
}

/// Mounts /tmp, with the user's home directory.
fn temporary(root: &MountTree, plan: &Plan<'_>) -> io::Result<()> {
    let what = "make /tmp";
    let tmp = memory(plan).during(what)?;
    tmp.attach(directory(root, Path::new("tmp"))?).during(what)?;
    let home = directory(root, Path::new(HOME.trim_start_matches('/'))).during(what)?;
    let (uid, gid) = (Uid::from_raw(plan.user.uid), Gid::from_raw(plan.user.gid));
    fchownat(&home, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH).during(what)
}

/// Makes the tree the root directory, and detaches the machine's own one.
fn become_root(root: &MountTree) -> io::Result<()> {
    fchdir(root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    Ok(chdir("/")?)
}
