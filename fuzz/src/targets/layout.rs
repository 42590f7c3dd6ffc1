//! Layout and delivery of malicious manifests: nothing outside the directory may change.
//!
//! The bytes are a script for a manifest, so that most manifests pass the checks. The target lays each manifest out on
//! a real file system and delivers it twice to the same place, next to a witness file that must not change.

use std::fs;
use std::path::Path;

use hostler_proto::manifest::{Content, Entry, EntryKind, Manifest, VERSION};
use hostler_snapshot::{ChunkStore, Delivery, LayoutOptions, OnConflict, lay_out, wire};

use super::values;
use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "layout", about: "hostile manifests, laid out on a real file system", run, seeds };

const NAMES: [&str; 12] = ["a", "b", "c", "a/b", "a/b/c", "b/a", "..", "a/..", "/a", "a/../../x", "witness", "."];

fn run(bytes: &[u8]) {
    let manifest = manifest(bytes);
    let room = tempfile::tempdir_in(memory()).expect("a temporary directory");
    let witness = room.path().join("witness");
    fs::write(&witness, "untouched").expect("the directory is writable");
    let store = ChunkStore::open(&room.path().join("store")).expect("the directory is writable");
    store.add(values::CONTENT).expect("the directory is writable");
    let directory = room.path().join("work");
    let options = LayoutOptions { threads: 1, ..LayoutOptions::default() };
    let laid_out = lay_out(&manifest, &store, &directory, &options);
    if laid_out.is_ok() {
        for entry in &manifest.entries {
            let path = directory.join(std::ffi::OsStr::new(std::str::from_utf8(&entry.path).expect("UTF-8")));
            let real = path.symlink_metadata().expect("the entry was laid out");
            assert_eq!(real.is_dir(), matches!(entry.kind, EntryKind::Directory));
        }
    }
    deliver(&manifest, &room.path().join("out"), OnConflict::Rename);
    // Deliver over existing files, and over the layout with its links.
    deliver(&manifest, &room.path().join("out"), OnConflict::Overwrite);
    deliver(&manifest, &directory, OnConflict::Overwrite);
    let mut left: Vec<_> = fs::read_dir(room.path()).expect("ours").map(|it| it.expect("ours").file_name()).collect();
    left.retain(|name| !["witness", "store", "work", "out"].iter().any(|known| name == known));
    assert!(left.is_empty(), "{left:?} appeared outside");
    assert_eq!(fs::read(&witness).expect("the witness is there"), b"untouched");
    make_removable(room.path());
}

fn deliver(manifest: &Manifest, destination: &Path, on_conflict: OnConflict) {
    let Ok(mut delivery) = Delivery::plan(destination, manifest, on_conflict, None) else { return };
    let wire = wire::encode(values::CONTENT);
    for digest in delivery.missing() {
        let _ = delivery.accept(&digest, &wire);
    }
    let _ = delivery.finish();
}

/// Makes all directories accessible to their owner, so that the temporary directory can be removed.
fn make_removable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if path.symlink_metadata().is_ok_and(|it| it.is_dir()) {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            make_removable(&entry.path());
        }
    }
}

/// A directory in memory, if the machine has one.
fn memory() -> &'static Path {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared } else { Path::new("/tmp") }
}

/// Builds a manifest from four bytes per entry: name, kind, mode, target.
fn manifest(bytes: &[u8]) -> Manifest {
    let entries = bytes.chunks_exact(4).take(16).map(|piece| {
        let [name, kind, mode, target] = piece else { unreachable!("pieces are four bytes") };
        let kind = match kind % 4 {
            0 => EntryKind::Directory,
            1 | 2 => EntryKind::Symlink { target: NAMES[usize::from(*target) % NAMES.len()].as_bytes().to_vec() },
            _ if kind & 4 == 0 => EntryKind::File(Content::default()),
            _ => {
                let EntryKind::File(content) = &values::folder().entries[3].kind else { unreachable!("a file") };
                EntryKind::File(content.clone())
            }
        };
        let path = NAMES[usize::from(*name) % NAMES.len()].as_bytes().to_vec();
        Entry { path, mode: u32::from(*mode) << 4 & 0o7777, modified_ns: i64::from(*mode), kind }
    });
    let mut entries: Vec<Entry> = entries.collect();
    // Sort most manifests, because the checks refuse unsorted ones.
    if bytes.len() % 4 != 1 {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.dedup_by(|a, b| a.path == b.path);
    }
    Manifest { version: VERSION, entries }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 0x1e, 0, 3, 7, 0x1a, 0, 1, 1, 0, 0],
        vec![0, 1, 0, 6, 1, 0, 0x1e, 0, 5, 1, 0, 7],
        vec![0, 0, 0, 0, 3, 0, 0xff, 0, 4, 3, 0, 0, 2, 2, 9, 3],
    ]
}
