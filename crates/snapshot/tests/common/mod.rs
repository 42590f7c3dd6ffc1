//! Helpers for the tests of this crate: folders, and an inventory that does not use the code under test.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest, VERSION};
use hostler_snapshot::{Capture, CaptureOptions, ChunkStore};

/// Pseudo-random bytes that are equal on every call.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

pub fn at(directory: &Path, path: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(path))
}

/// Writes a file and creates its parent directories.
pub fn put(directory: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().expect("below a directory")).expect("writable");
    fs::write(path, content).expect("writable");
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the test owns it");
}

/// One entry of a folder: type and mode, modification time, and content or target.
pub type Item = (u32, i128, Vec<u8>);

/// Everything below `directory`, by path.
pub fn inventory(directory: &Path) -> BTreeMap<Vec<u8>, Item> {
    fn visit(base: &Path, directory: &Path, items: &mut BTreeMap<Vec<u8>, Item>) {
        for entry in fs::read_dir(directory).expect("readable") {
            let path = entry.expect("readable").path();
            let metadata = fs::symlink_metadata(&path).expect("the entry exists");
            let content = if metadata.is_file() {
                fs::read(&path).expect("readable")
            } else if metadata.is_symlink() {
                fs::read_link(&path).expect("readable").into_os_string().into_vec()
            } else {
                Vec::new()
            };
            let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
            let name = path.strip_prefix(base).expect("below").as_os_str().as_bytes().to_vec();
            items.insert(name, (metadata.mode(), modified, content));
            if metadata.is_dir() {
                visit(base, &path, items);
            }
        }
    }
    let mut items = BTreeMap::new();
    visit(directory, directory, &mut items);
    items
}

pub fn capture(directory: &Path) -> Capture {
    hostler_snapshot::capture(directory, &CaptureOptions::default(), &|_| ()).expect("every entry can be captured")
}

/// The paths of a capture as text.
pub fn paths(manifest: &Manifest) -> Vec<String> {
    manifest.entries.iter().map(|entry| hostler_snapshot::show(&entry.path)).collect()
}

/// Moves every chunk of a capture into a store, as an upload does.
pub fn upload(capture: &Capture, store: &ChunkStore) {
    let wanted: Vec<_> = capture.sources.digests().collect();
    let missing = store.missing(&wanted);
    let mut decoder = hostler_snapshot::pack::Decoder::default();
    for frame in capture.sources.pack(&missing) {
        decoder.feed(&frame.expect("unchanged"));
        while let Some(frame) = decoder.next_frame().expect("well-formed") {
            store.insert_wire(&frame.digest, &frame.wire).expect("intact");
        }
    }
    decoder.finish().expect("complete");
    store.sync().expect("the disk works");
}

/// The sparse files of [`sparse_folder`], with their lengths and where they hold a mebibyte of data.
const SPARSE: [(&str, u64, &[u64]); 3] =
    [("start", 4 << 30, &[0]), ("middle", 2 << 30, &[(1 << 30) + 12_345]), ("end", 3 << 30, &[(3 << 30) - (1 << 20)])];

/// Writes a few long files that consist mostly of holes.
pub fn sparse_folder(folder: &Path) {
    for (name, length, data) in SPARSE {
        let file = fs::File::create_new(folder.join(name)).expect("writable");
        data.iter().for_each(|at| file.write_all_at(&noise(*at, 1 << 20), *at).expect("writable"));
        file.set_len(length).expect("the disk supports holes");
    }
}

/// Checks the files of [`sparse_folder`]: their data, their lengths and the space that they take.
pub fn check_sparse_folder(folder: &Path) {
    for (name, length, data) in SPARSE {
        let file = fs::File::open(folder.join(name)).expect("the file exists");
        let metadata = file.metadata().expect("the file exists");
        assert_eq!(metadata.len(), length, "{name}");
        assert!(metadata.blocks() * 512 <= 4 << 20, "{name} takes {} blocks of 512 bytes", metadata.blocks());
        for at in data {
            let mut bytes = vec![0; 1 << 20];
            file.read_exact_at(&mut bytes, *at).expect("readable");
            assert!(bytes == noise(*at, 1 << 20), "{name} at {at}");
        }
    }
}

pub fn file(path: &str, store: &ChunkStore, bytes: &[u8]) -> Entry {
    let digest = store.add(bytes).expect("writable");
    let chunks = if bytes.is_empty() { Vec::new() } else { vec![Chunk { digest, len: bytes.len() as u32 }] };
    let kind = EntryKind::File(Content { size: bytes.len() as u64, chunks });
    Entry { path: path.into(), mode: 0o644, modified_ns: 1, kind }
}

pub fn directory(path: &str) -> Entry {
    Entry { path: path.into(), mode: 0o755, modified_ns: 1, kind: EntryKind::Directory }
}

pub fn link(path: &str, target: &str) -> Entry {
    Entry { path: path.into(), mode: 0o777, modified_ns: 1, kind: EntryKind::Symlink { target: target.into() } }
}

pub fn manifest(entries: Vec<Entry>) -> Manifest {
    Manifest { version: VERSION, entries }
}

/// Runs `work` on another thread as the user nobody. Without root, keeps the current user.
pub fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const NOBODY: libc::c_long = 65534;
    in_thread(|| {
        if nix::unistd::geteuid().is_root() {
            // SAFETY: the system calls take integers only. Raw system calls change only this thread and those that it
            // starts; all end with the test.
            let done = unsafe {
                libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
                    && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
            };
            assert!(done, "cannot change the user of this thread");
        }
        work()
    })
}

/// Runs `work` with a file system of `bytes` mounted at `place`. Only this thread sees the mount, which ends with the
/// thread.
pub fn with_small_disk<T: Send>(place: &Path, bytes: u64, work: impl FnOnce() -> T + Send) -> T {
    with_mounts(|| {
        hostler_sys::mount_tmpfs("none", place, &format!("size={bytes}")).expect("root may mount");
        work()
    })
}

/// Like [`with_small_disk`], with a file system that can share blocks: `btrfs` or `xfs`, in an image file next to
/// `place`.
pub fn with_sharing_disk<T: Send>(kind: &str, place: &Path, bytes: u64, work: impl FnOnce() -> T + Send) -> T {
    let image = place.with_extension("image");
    let file = fs::File::create_new(&image).expect("writable");
    file.set_len(bytes).expect("a sparse file takes no room");
    run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
    with_mounts(|| {
        run(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(&image).arg(place));
        work()
    })
}

fn run(command: &mut Command) {
    let help = "this test needs xfsprogs, btrfs-progs, and a machine where root may mount loop devices";
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; {help}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {said}; {help}");
}

/// Runs `work` on a thread with its own mount namespace.
fn with_mounts<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    assert!(nix::unistd::geteuid().is_root(), "this test mounts a file system: run it as root");
    in_thread(|| {
        hostler_sys::unshare_mounts().expect("root may have a mount namespace");
        work()
    })
}

/// Runs `work` on a thread whose system calls `refused` fail with `errno`, as on a disk that lacks a feature.
pub fn refusing<T: Send>(refused: &[libc::c_long], errno: i32, work: impl FnOnce() -> T + Send) -> T {
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    // Load the number of the system call, compare it with each refused one, and allow all others.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for number in refused {
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *number as u32, 0, 1));
        program.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0));
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    in_thread(move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the calls change only this thread, which ends with the test; the kernel copies the program.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
        };
        assert!(done, "the kernel has no seccomp filters");
        work()
    })
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
