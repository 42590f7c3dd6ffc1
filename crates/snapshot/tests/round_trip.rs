//! Tests that a folder is unchanged after capture, upload and layout.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{at, capture, inventory, noise, paths, put, set_mode, upload};
use hostler_snapshot::{ChunkStore, LayoutOptions, capture as capture_with, lay_out};
use proptest::prelude::*;

fn round_trip(folder: &Path, options: &LayoutOptions) -> BTreeMap<Vec<u8>, common::Item> {
    let elsewhere = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&elsewhere.path().join("chunks")).expect("writable");
    let captured = capture(folder);
    upload(&captured, &store);
    // The receiver knows only the manifest's digest.
    let encoded = store.get(&captured.digest).expect("uploaded");
    let manifest = hostler_proto::decode(&encoded).expect("encoded manifests can be decoded");
    assert_eq!(manifest, captured.manifest);
    let work = elsewhere.path().join("work");
    let laid_out = lay_out(&manifest, &store, &work, options).expect("the manifest is valid");
    assert_eq!(
        laid_out.files,
        inventory(&work).values().filter(|it| it.0 & libc::S_IFMT == libc::S_IFREG).count() as u64
    );
    inventory(&work)
}

#[test]
fn folder_with_unusual_entries_round_trips() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    put(folder, "-rf", "leading dash");
    put(folder, ".hidden/.deep", "hidden");
    put(folder, "empty file", "");
    put(folder, "line\nbreak/tab\tname", "odd names");
    put(folder, "big.bin", noise(1, 5 << 20));
    put(folder, "twice/a", noise(2, 300_000));
    put(folder, "twice/b", noise(2, 300_000));
    put(folder, "a/x", "sorts after a-b");
    put(folder, "a-b", "sorts between a and a/x");
    fs::write(at(folder, b"not \xff\xfe utf-8"), "bytes").expect("writable");
    fs::create_dir_all(folder.join("empty/inner")).expect("writable");
    symlink("../big.bin", folder.join("empty/link")).expect("writable");
    symlink("nowhere", folder.join("dangling")).expect("writable");
    symlink("loop", folder.join("loop")).expect("writable");
    symlink("empty/link", folder.join("chain")).expect("writable");
    for (name, mode) in [("secret", 0o400), ("locked", 0o000), ("tool", 0o755), ("odd", 0o642)] {
        put(folder, name, name);
        // Only root can capture a file without read permission.
        set_mode(&folder.join(name), if mode == 0 && !nix::unistd::geteuid().is_root() { 0o444 } else { mode });
    }
    put(folder, "sealed/inside", "in a directory without write permission");
    set_mode(&folder.join("sealed"), 0o555);
    set_mode(&folder.join("empty/inner"), 0o1777);

    let before = inventory(folder);
    assert_eq!(before.len(), 26, "{before:#?}");
    assert_eq!(round_trip(folder, &LayoutOptions::default()), before);
    assert_eq!(round_trip(folder, &LayoutOptions { threads: 1, ..LayoutOptions::default() }), before);
    set_mode(&folder.join("sealed"), 0o755);
}

#[test]
fn set_id_bits_are_dropped_unless_requested() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    put(dir.path(), "tool", "x");
    set_mode(&dir.path().join("tool"), 0o6755);
    let mode = |options| round_trip(dir.path(), &options)[b"tool".as_slice()].0 & 0o7777;
    assert_eq!(mode(LayoutOptions::default()), 0o755);
    assert_eq!(mode(LayoutOptions { keep_set_id: true, ..LayoutOptions::default() }), 0o6755);
}

#[test]
fn unchanged_folder_keeps_its_digest_and_an_edited_one_shares_chunks() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path().join("folder");
    put(&folder, "data", noise(3, 4 << 20));
    put(&folder, "main.py", "print(1)");
    let first = capture(&folder);
    assert_eq!(capture(&folder).digest, first.digest);

    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    upload(&first, &store);
    let mut data = noise(3, 4 << 20);
    data.insert(2 << 20, 7);
    put(&folder, "data", data);
    let second = capture(&folder);
    assert_ne!(second.digest, first.digest);
    let wanted: Vec<_> = second.sources.digests().collect();
    let missing = store.missing(&wanted);
    assert!((2..=4).contains(&missing.len()), "{} of {} chunks", missing.len(), wanted.len());
}

/// A small random folder with names that stress sorting, matching and quoting.
fn folders() -> impl Strategy<Value = Vec<(Vec<Vec<u8>>, u32, Node)>> {
    let name = prop::collection::vec(prop::sample::select(b"ab-.#!* \n\xff\\".to_vec()), 1..4)
        .prop_filter("special names", |name| !matches!(name.as_slice(), b"." | b".."));
    let node = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000).prop_map(Node::File),
        (any::<u64>(), 60_000usize..900_000).prop_map(|(seed, length)| Node::File(noise(seed, length))),
        Just(Node::Directory),
        prop::collection::vec(prop::sample::select(b"ab-.".to_vec()), 1..4).prop_map(Node::Link),
    ];
    prop::collection::vec((prop::collection::vec(name, 1..4), 0u32..0o1000, node), 0..12)
}

#[derive(Debug, Clone)]
enum Node {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
}

/// Makes all possible entries; skips a name that is already used.
fn build(folder: &Path, nodes: &[(Vec<Vec<u8>>, u32, Node)]) {
    for (names, mode, node) in nodes {
        let path = at(folder, &names.join(&b'/'));
        let made = match node {
            _ if path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_err()) => continue,
            _ if path.symlink_metadata().is_ok() => continue,
            Node::File(bytes) => fs::write(&path, bytes),
            Node::Directory => fs::create_dir(&path),
            // Without a slash, only `..` at the top could lead outside.
            Node::Link(target) if target == b".." => continue,
            Node::Link(target) => {
                symlink(at(Path::new(""), target), &path).expect("the name is free");
                continue;
            }
        };
        made.expect("the name is free");
        let readable = if path.is_dir() { 0o700 } else { 0o400 };
        set_mode(&path, mode | readable);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_folder_round_trips(nodes in folders()) {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        build(dir.path(), &nodes);
        let before = inventory(dir.path());
        prop_assert_eq!(round_trip(dir.path(), &LayoutOptions::default()), before);
    }
}

#[test]
fn progress_ends_at_the_total() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    for index in 0..100 {
        put(dir.path(), &format!("{index}"), noise(index, 1000));
    }
    let seen = std::sync::Mutex::new(Vec::new());
    let on_progress = |progress| seen.lock().expect("the lock is not poisoned").push(progress);
    let captured =
        capture_with(dir.path(), &hostler_snapshot::CaptureOptions { threads: 3, ..Default::default() }, &on_progress)
            .expect("readable");
    assert_eq!(paths(&captured.manifest).len(), 100);
    let seen = seen.into_inner().expect("the lock is not poisoned");
    assert_eq!(seen.len(), 100);
    let last = seen.iter().max_by_key(|progress| progress.files).expect("some");
    assert_eq!((last.files, last.total_files, last.total_bytes), (100, 100, 100_000));
    assert_eq!(seen.iter().map(|progress| progress.bytes).max(), Some(100_000));
}
