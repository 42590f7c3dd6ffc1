//! Tests that hostile manifests change nothing outside, and that failed layouts leave nothing behind.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use common::{
    capture, check_sparse_folder, directory, file, inventory, link, manifest, noise, put, sparse_folder, upload,
    with_small_disk,
};
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest};
use hostler_snapshot::check::{ManifestError, check};
use hostler_snapshot::{ChunkStore, LayoutError, LayoutOptions, StoreError, lay_out};
use proptest::prelude::*;

fn try_lay_out(build: impl FnOnce(&ChunkStore, &Path) -> Manifest) -> (tempfile::TempDir, Result<(), LayoutError>) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let manifest = build(&store, dir.path());
    let answer = lay_out(&manifest, &store, &dir.path().join("work"), &LayoutOptions::default());
    (dir, answer.map(|_| ()))
}

#[test]
fn hostile_manifests_are_refused_before_anything_is_written() {
    type Build = fn(&ChunkStore) -> Vec<Entry>;
    let cases: [(&str, Build); 19] = [
        ("absolute", |store| vec![file("/tmp/x", store, b"x")]),
        ("dots", |store| vec![file("../x", store, b"x")]),
        ("dots inside", |store| vec![directory("a"), file("a/../../x", store, b"x")]),
        ("dot", |store| vec![file("./x", store, b"x")]),
        ("empty", |store| vec![file("", store, b"x")]),
        ("zero", |store| vec![file("a\0b", store, b"x")]),
        ("long name", |store| vec![file(&"n".repeat(256), store, b"x")]),
        ("twice", |store| vec![file("x", store, b"x"), file("x", store, b"y")]),
        ("out of order", |store| vec![file("y", store, b"x"), file("x", store, b"y")]),
        ("no parent", |store| vec![file("a/x", store, b"x")]),
        ("below a file", |store| vec![file("a", store, b"x"), file("a/x", store, b"x")]),
        ("below a link", |store| vec![directory("b"), link("c", "b"), file("c/x", store, b"x")]),
        ("absolute link", |_| vec![link("a", "/etc")]),
        ("escaping link", |_| vec![link("a", "../x")]),
        ("link through a link", |_| vec![directory("d"), link("d/up", ".."), link("z", "d/up/../x")]),
        ("empty link", |_| vec![link("a", "")]),
        ("mode", |store| vec![Entry { mode: 0o10_0644, ..file("a", store, b"x") }]),
        ("size", |store| {
            let mut entry = file("a", store, b"x");
            if let EntryKind::File(content) = &mut entry.kind {
                content.size = 2;
            }
            vec![entry]
        }),
        ("giant chunk", |store| {
            let chunk = Chunk { digest: store.add(b"x").expect("writable"), len: 2 << 20 };
            let content = Content { size: 2 << 20, chunks: vec![chunk] };
            vec![Entry { kind: EntryKind::File(content), ..file("a", store, b"x") }]
        }),
    ];
    for (name, build) in cases {
        let (dir, answer) = try_lay_out(|store, _| manifest(build(store)));
        assert!(matches!(answer, Err(LayoutError::Manifest(ManifestError::Entry { .. }))), "{name}: {answer:?}");
        let left: Vec<_> = fs::read_dir(dir.path()).expect("the directory exists").collect();
        assert_eq!(left.len(), 1, "{name}: the layout left files behind");
    }
    let (_dir, newer) = try_lay_out(|_, _| Manifest { version: 2, entries: Vec::new() });
    assert!(matches!(newer, Err(LayoutError::Manifest(ManifestError::Version { found: 2 }))));
}

#[test]
fn links_inside_the_folder_are_created() {
    let (dir, answer) = try_lay_out(|store, _| {
        manifest(vec![directory("a"), link("a/up", ".."), link("a/x", "../b"), file("b", store, b"b"), link("c", "c")])
    });
    answer.expect("the manifest is valid");
    assert_eq!(fs::read(dir.path().join("work/a/up/a/x")).expect("the links lead to the file"), b"b");
}

#[test]
fn missing_and_damaged_chunks_leave_nothing_behind() {
    let (dir, answer) = try_lay_out(|store, _| {
        let entries = vec![file("a", store, b"here"), file("b", store, b"lost")];
        store.remove(&hostler_snapshot::chunk::digest_of(b"lost")).expect("the test owns it");
        manifest(entries)
    });
    assert!(matches!(answer, Err(LayoutError::MissingChunks(ref chunks)) if chunks.len() == 1), "{answer:?}");
    assert!(!dir.path().join("work").exists());

    let (dir, answer) = try_lay_out(|store, dir| {
        let entries = (0..40).map(|index| file(&format!("{index:02}"), store, &noise(index, 5000))).collect();
        let name = hostler_snapshot::chunk::digest_of(&noise(30, 5000)).to_string();
        let path = dir.join("chunks").join(&name[..2]).join(&name[2..]);
        fs::write(path, b"\0damaged").expect("the test owns it");
        manifest(entries)
    });
    assert!(matches!(answer, Err(LayoutError::Store(StoreError::Corrupt { .. }))), "{answer:?}");
    assert!(!dir.path().join("work").exists());

    let (_dir, answer) = try_lay_out(|store, _| {
        let chunk = Chunk { digest: store.add(b"four").expect("writable"), len: 3 };
        let kind = EntryKind::File(Content { size: 3, chunks: vec![chunk] });
        manifest(vec![Entry { kind, ..file("a", store, b"x") }])
    });
    assert!(matches!(answer, Err(LayoutError::WrongLength(_))), "{answer:?}");
}

#[test]
fn nonempty_directory_is_refused_and_an_empty_one_is_used() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let work = dir.path().join("work");
    fs::create_dir(&work).expect("writable");
    fs::write(work.join("mine"), "x").expect("writable");
    let manifest = manifest(vec![file("a", &store, b"x")]);
    let answer = lay_out(&manifest, &store, &work, &LayoutOptions::default());
    assert!(matches!(answer, Err(LayoutError::NotEmpty(_))));
    assert_eq!(inventory(&work).len(), 1);
    fs::remove_file(work.join("mine")).expect("the test owns it");
    lay_out(&manifest, &store, &work, &LayoutOptions::default()).expect("empty");
}

#[test]
fn root_can_give_the_folder_to_the_jobs_user() {
    assert!(nix::unistd::geteuid().is_root(), "this test changes owners: run it as root");
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let manifest = manifest(vec![directory("a"), file("a/x", &store, b"x"), link("a/y", "x")]);
    let work = dir.path().join("work");
    let options = LayoutOptions { owner: Some((1234, 1235)), ..LayoutOptions::default() };
    lay_out(&manifest, &store, &work, &options).expect("the manifest is valid");
    for path in ["", "a", "a/x", "a/y"] {
        let metadata = fs::symlink_metadata(work.join(path)).expect("the entry exists");
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 1235), "{path}");
    }
}

#[test]
fn full_disk_is_reported_before_and_during_the_layout() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let place = dir.path().join("small");
    fs::create_dir(&place).expect("writable");
    let too_much = manifest(vec![file("a", &store, &noise(1, 1 << 20)), file("b", &store, &noise(2, 1 << 20))]);
    // Each file takes a page, which the sum of the sizes does not show.
    let many: Vec<Entry> = (0..400).map(|index| file(&format!("{index:03}"), &store, b"tiny")).collect();
    with_small_disk(&place, 1 << 20, || {
        for manifest in [too_much, manifest(many)] {
            let answer = lay_out(&manifest, &store, &place.join("work"), &LayoutOptions::default());
            assert!(matches!(answer, Err(LayoutError::DiskFull { .. })), "{answer:?}");
            assert!(!place.join("work").exists());
        }
    });
}

/// Manifests that are nearly valid, and sometimes valid.
fn manifests() -> impl Strategy<Value = Manifest> {
    let part = prop::sample::select(vec!["a", "b", "..", ".", "", "c"]);
    let path = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    let kind = prop_oneof![
        Just(EntryKind::Directory),
        Just(EntryKind::File(Content::default())),
        path.clone().prop_map(|target| EntryKind::Symlink { target: target.into_bytes() }),
        Just(EntryKind::Symlink { target: b"/".to_vec() }),
    ];
    let entry =
        (path, kind).prop_map(|(path, kind)| Entry { path: path.into_bytes(), mode: 0o755, modified_ns: 0, kind });
    prop::collection::vec(entry, 0..8).prop_map(|mut entries| {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        manifest(entries)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_manifest_changes_anything_outside_the_directory(manifest in manifests()) {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
        fs::create_dir(dir.path().join("base")).expect("writable");
        symlink("base", dir.path().join("c")).expect("writable");
        let work = dir.path().join("base/work");
        let answer = lay_out(&manifest, &store, &work, &LayoutOptions::default());
        prop_assert_eq!(answer.is_ok(), check(&manifest).is_ok());
        prop_assert_eq!(fs::read_dir(dir.path()).expect("the directory exists").count(), 3);
        prop_assert_eq!(fs::read_dir(dir.path().join("base")).expect("the directory exists").count(), usize::from(answer.is_ok()));
        if answer.is_ok() {
            for (path, item) in inventory(&work) {
                let resolved = fs::canonicalize(common::at(&work, &path));
                let inside = resolved.is_ok_and(|it| it.starts_with(fs::canonicalize(&work).expect("the directory exists")));
                let leads_nowhere = item.0 & libc::S_IFMT == libc::S_IFLNK && fs::metadata(common::at(&work, &path)).is_err();
                prop_assert!(inside || leads_nowhere);
            }
        }
    }
}

#[test]
fn sparse_files_are_laid_out_with_their_holes() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (folder, work) = (dir.path().join("folder"), dir.path().join("disk"));
    fs::create_dir_all(&folder).expect("writable");
    fs::create_dir_all(&work).expect("writable");
    sparse_folder(&folder);
    // Zeros that were written take no space either.
    put(&folder, "zeros", vec![0; 8 << 20]);
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let captured = capture(&folder);
    upload(&captured, &store);
    with_small_disk(&work, 32 << 20, || {
        let laid_out =
            lay_out(&captured.manifest, &store, &work.join("work"), &LayoutOptions::default()).expect("holes fit");
        assert_eq!(laid_out.bytes, captured.bytes);
        check_sparse_folder(&work.join("work"));
        let zeros = fs::read(work.join("work/zeros")).expect("readable");
        assert!(zeros.len() == 8 << 20 && zeros.iter().all(|byte| *byte == 0));
        let needed = manifest(vec![file("big", &store, &noise(3, 1 << 20))]);
        lay_out(&needed, &store, &work.join("other"), &LayoutOptions::default()).expect("the holes left space");
    });
}
