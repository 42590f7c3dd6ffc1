//! Tests block sharing of whole files on file systems that support it, and that nothing depends on it.

#![expect(clippy::disallowed_methods, reason = "the test owns the directories, and they are shallow")]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{at, inventory, manifest, noise, set_mode, with_sharing_disk, with_small_disk};
use hostler_model::Digest;
use hostler_proto::manifest::{Entry, EntryKind, Manifest};
use hostler_snapshot::{ChangesOptions, ChunkStore, LaidOut, LayoutError, LayoutOptions, changes, chunk, lay_out};

/// Enough for `mkfs.xfs`.
const DISK_BYTES: u64 = 400 << 20;

fn open(place: &Path) -> ChunkStore {
    ChunkStore::open(&place.join("chunks")).expect("writable").sharing_files()
}

fn big_file(path: &str, store: &ChunkStore, seed: u64, length: usize) -> Entry {
    let bytes = noise(seed, length);
    let content = chunk::content_of(&mut bytes.as_slice()).expect("memory can be read");
    let mut rest = bytes.as_slice();
    for chunk in &content.chunks {
        let (first, others) = rest.split_at(chunk.len as usize);
        store.insert(&chunk.digest, first).expect("writable");
        rest = others;
    }
    Entry { path: path.into(), mode: 0o644, modified_ns: 1, kind: EntryKind::File(content) }
}

fn lay(manifest: &Manifest, store: &ChunkStore, directory: &Path) -> LaidOut {
    lay_out(manifest, store, directory, &LayoutOptions::default()).expect("the manifest is valid")
}

fn whole_files(place: &Path) -> Vec<PathBuf> {
    let Ok(shards) = fs::read_dir(place.join("chunks/whole")) else { return Vec::new() };
    let shards = shards.map(|shard| shard.expect("readable").path());
    shards.flat_map(|shard| fs::read_dir(shard).expect("readable")).map(|it| it.expect("readable").path()).collect()
}

fn on_sharing_disks(work: impl Fn(&Path) + Sync) {
    for kind in ["btrfs", "xfs"] {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let place = dir.path().join("disk");
        fs::create_dir(&place).expect("writable");
        with_sharing_disk(kind, &place, DISK_BYTES, || work(&place));
    }
}

#[test]
fn layouts_share_the_blocks_of_equal_files() {
    on_sharing_disks(|place| {
        let store = open(place);
        assert!(store.shares_files());
        let folder = manifest(vec![
            big_file("data", &store, 1, 16 << 20),
            common::file("main.py", &store, b"print(1)"),
            Entry { mode: 0o555, modified_ns: 7, ..big_file("tool", &store, 1, 16 << 20) },
        ]);
        // 448 MiB of files on a disk of 400 MiB that also holds other data.
        let directories: Vec<PathBuf> = (0..14).map(|index| place.join(format!("work-{index}"))).collect();
        let laid_out: Vec<LaidOut> = directories.iter().map(|directory| lay(&folder, &store, directory)).collect();
        assert!(laid_out.iter().all(|it| it.bytes == 2 * (16 << 20) + 8));
        let expected = inventory(&directories[0]);
        assert_eq!(expected[b"tool".as_slice()].0 & 0o7777, 0o555);
        assert!(directories.iter().all(|directory| inventory(directory) == expected));
        assert_eq!(whole_files(place).len(), 1, "files of equal content share one whole file");
        for (directory, laid_out) in directories.iter().zip(&laid_out) {
            let found =
                changes(directory, &folder, &laid_out.baseline, &ChangesOptions::default()).expect("within the limits");
            assert!(found.tree.entries.is_empty() && found.removed.is_empty() && found.problems.is_empty());
        }
    });
}

#[test]
fn change_of_a_shared_file_is_private_to_its_job() {
    on_sharing_disks(|place| {
        let store = open(place);
        let folder = manifest(vec![big_file("data", &store, 1, 1 << 20)]);
        let laid_out: Vec<LaidOut> = (0..3).map(|it| lay(&folder, &store, &place.join(format!("work-{it}")))).collect();
        let expected = inventory(&place.join("work-0"));
        let file =
            fs::File::options().write(true).open(place.join("work-2/data")).expect("the file belongs to the job");
        file.write_all_at(b"changed in place", 500_000).expect("the file belongs to the job");
        drop(file);
        let found = changes(&place.join("work-2"), &folder, &laid_out[2].baseline, &ChangesOptions::default())
            .expect("within the limits");
        assert_eq!(common::paths(&found.tree), ["data"]);
        lay(&folder, &store, &place.join("work-3"));
        assert!([0, 1, 3].iter().all(|it| inventory(&place.join(format!("work-{it}"))) == expected));
    });
}

#[test]
fn files_that_are_small_or_used_once_are_not_kept() {
    on_sharing_disks(|place| {
        let store = open(place);
        let folder = manifest(vec![big_file("data", &store, 1, 1 << 20), big_file("small", &store, 2, 100_000)]);
        lay(&folder, &store, &place.join("first"));
        assert_eq!(whole_files(place).len(), 0);
        lay(&folder, &store, &place.join("second"));
        assert_eq!(whole_files(place).len(), 1);
    });
}

#[test]
fn damaged_whole_files_are_never_used() {
    type Damage = fn(&Path);
    let flip: Damage = |path| {
        let modified = fs::metadata(path).and_then(|it| it.modified()).expect("the file exists");
        set_mode(path, 0o600);
        let file = fs::File::options().write(true).open(path).expect("the test owns it");
        file.write_all_at(b"damage", 700_000).expect("the test owns it");
        // Like a disk fault, change only the bytes.
        file.set_modified(modified).expect("the test owns it");
        drop(file);
        set_mode(path, 0o400);
    };
    let cut: Damage = |path| fs::File::options().write(true).open(path).expect("open").set_len(123_456).expect("cut");
    let grow: Damage = |path| {
        let length = fs::metadata(path).expect("the file exists").size();
        let file = fs::File::options().write(true).open(path).expect("the test owns it");
        file.write_all_at(b"x", length).expect("the test owns it");
    };
    let empty: Damage = |path| fs::File::options().write(true).open(path).expect("open").set_len(0).expect("cut");
    let replace: Damage = |path| {
        fs::remove_file(path).expect("the test owns it");
        std::os::unix::fs::symlink("/etc/passwd", path).expect("the test owns it");
    };
    on_sharing_disks(|place| {
        let mut store = open(place);
        let folder = manifest(vec![big_file("data", &store, 1, 1 << 20)]);
        let mut round = 0;
        let mut lay_next = |store: &ChunkStore| {
            round += 1;
            let directory = place.join(format!("work-{round}"));
            lay(&folder, store, &directory);
            inventory(&directory)
        };
        let expected = lay_next(&store);
        assert_eq!(lay_next(&store), expected);
        for damage in [flip, cut, grow, empty, replace] {
            // Both while the store is open and while it is closed, as in a crash.
            for restarts in [false, true] {
                let [path] = whole_files(place).try_into().expect("one file is kept");
                damage(&path);
                if restarts {
                    drop(store);
                    store = open(place);
                }
                for _ in 0..3 {
                    assert_eq!(lay_next(&store), expected);
                }
                assert_eq!(
                    fs::read(&whole_files(place)[0]).expect("the whole file was written again"),
                    noise(1, 1 << 20)
                );
                assert!(!whole_files(place)[0].is_symlink());
            }
        }
    });
}

#[test]
fn whole_files_count_as_used_space_and_are_evicted_before_their_chunks() {
    on_sharing_disks(|place| {
        let store = open(place);
        let old = store.add(&noise(9, 300_000)).expect("writable");
        let name = old.to_string();
        let old_place = place.join("chunks").join(&name[..2]).join(&name[2..]);
        let file = fs::File::options().append(true).open(old_place).expect("the file exists");
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("the test owns it");
        let folder = manifest(vec![big_file("a", &store, 1, 1 << 20), big_file("b", &store, 2, 1 << 20)]);
        let chunks: Vec<Digest> = (folder.entries.iter())
            .flat_map(|entry| match &entry.kind {
                EntryKind::File(content) => content.chunks.iter().map(|chunk| chunk.digest).collect(),
                _ => Vec::new(),
            })
            .collect();
        let before = store.total_bytes().expect("readable");
        for index in 0..3 {
            lay(&folder, &store, &place.join(format!("work-{index}")));
        }
        assert_eq!(store.total_bytes().expect("readable"), before + (2 << 20));
        drop(store);
        let store = open(place);
        assert_eq!(store.total_bytes().expect("readable"), before + (2 << 20));

        assert_eq!(store.evict_to(before + (2 << 20), &|_| false).expect("the test owns it").bytes, 0);
        // Eviction removes the least recently used entries first, then whole files, and the chunks of these files last.
        let freed = store.evict_to(before + (2 << 20) - 1, &|_| false).expect("the test owns it");
        assert_eq!((freed.chunks, freed.files, freed.bytes), (1, 0, 300_001));
        let freed = store.evict_to(before, &|_| false).expect("the test owns it");
        assert_eq!((freed.chunks, freed.files, freed.bytes), (0, 2, 2 << 20));
        assert!(store.missing(&chunks).is_empty() && whole_files(place).is_empty());
        // An evicted whole file is written again.
        for index in 3..6 {
            lay(&folder, &store, &place.join(format!("work-{index}")));
        }
        assert_eq!(whole_files(place).len(), 2);
        store.evict_to(0, &|_| false).expect("the test owns it");
        assert_eq!((whole_files(place).len(), store.total_bytes().expect("readable")), (0, 0));
    });
}

/// Fills the disk except for half of the space that the returned second folder needs. The first folder has a whole file.
fn fill_beside_a_whole_file(place: &Path, store: &ChunkStore) -> (Manifest, Manifest) {
    let kept = manifest(vec![big_file("data", store, 1, 40 << 20)]);
    for directory in ["first", "second"].map(|name| place.join(name)) {
        lay(&kept, store, &directory);
        fs::remove_dir_all(directory).expect("the test owns it");
    }
    assert_eq!(whole_files(place).len(), 1);
    let other = manifest(vec![big_file("data", store, 2, 32 << 20)]);
    let disk = fs::File::open(place).expect("mounted");
    nix::unistd::syncfs(&disk).expect("the disk works");
    let fill = store.free_bytes().expect("the system reports it") - (16 << 20);
    let ballast = fs::File::create(place.join("ballast")).expect("writable");
    nix::fcntl::fallocate(&ballast, nix::fcntl::FallocateFlags::empty(), 0, fill as i64).expect("the disk has space");
    (kept, other)
}

#[test]
fn layout_waits_until_the_space_of_removed_whole_files_is_free() {
    on_sharing_disks(|place| {
        let store = open(place);
        let (_, other) = fill_beside_a_whole_file(place, &store);
        let whole = whole_files(place).remove(0);
        // An open file keeps its blocks after its removal, as a file system does that frees them later.
        let open = fs::File::open(&whole).expect("readable");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while whole.exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(200));
                drop(open);
            });
            lay(&other, &store, &place.join("work"));
        });
    });
}

#[test]
fn whole_files_are_removed_when_the_disk_is_full() {
    on_sharing_disks(|place| {
        let store = open(place);
        let (kept, other) = fill_beside_a_whole_file(place, &store);
        lay(&other, &store, &place.join("work"));
        assert_eq!(fs::read(place.join("work/data")).expect("laid out"), noise(2, 32 << 20));
        assert_eq!(whole_files(place).len(), 0);
        // Without whole files to remove, the layout reports the full disk and leaves nothing behind.
        let answer = lay_out(&kept, &store, &place.join("no"), &LayoutOptions::default());
        assert!(matches!(answer, Err(LayoutError::DiskFull { .. })), "{answer:?}");
        assert!(!place.join("no").exists());
    });
}

#[test]
fn concurrent_layouts_are_complete() {
    on_sharing_disks(|place| {
        let store = open(place);
        let folder = manifest((0..6).map(|it| big_file(&format!("{it}"), &store, it, 700_000)).collect());
        std::thread::scope(|scope| {
            for job in 0..6 {
                let (folder, store) = (&folder, &store);
                scope.spawn(move || {
                    for round in 0..3 {
                        lay(folder, store, &place.join(format!("work-{job}-{round}")));
                    }
                });
            }
        });
        let expected = inventory(&place.join("work-0-0"));
        for seed in 0..6 {
            assert_eq!(expected[seed.to_string().as_bytes()].2, noise(seed, 700_000));
        }
        for job in 0..6 {
            for round in 0..3 {
                assert_eq!(inventory(&place.join(format!("work-{job}-{round}"))), expected);
            }
        }
        assert_eq!(whole_files(place).len(), 6);
        assert_eq!(fs::read_dir(scratch(place)).expect("the directory exists").count(), 0, "no temporary file is left");
    });
}

fn scratch(place: &Path) -> PathBuf {
    let mut ours = fs::read_dir(place.join("chunks/tmp")).expect("the directory exists");
    ours.next().expect("one store is open").expect("readable").path()
}

#[test]
fn layout_on_another_disk_copies_the_files() {
    on_sharing_disks(|place| {
        let store = open(place);
        let folder = manifest(vec![big_file("data", &store, 1, 1 << 20)]);
        let elsewhere = at(place, b"elsewhere");
        fs::create_dir(&elsewhere).expect("writable");
        with_small_disk(&elsewhere, 64 << 20, || {
            for index in 0..4 {
                let directory = elsewhere.join(format!("work-{index}"));
                lay(&folder, &store, &directory);
                assert_eq!(fs::read(directory.join("data")).expect("laid out"), noise(1, 1 << 20));
            }
        });
        assert!(!store.shares_files(), "the store stops sharing after a failed attempt");
    });
}

#[test]
fn disk_that_cannot_share_blocks_keeps_no_whole_files() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    with_small_disk(dir.path(), 64 << 20, || {
        fs::create_dir_all(dir.path().join("chunks/whole/ab")).expect("writable");
        fs::write(dir.path().join("chunks/whole/ab/cdef"), "of a disk that could").expect("writable");
        let store = open(dir.path());
        assert!(!store.shares_files());
        let folder = manifest(vec![big_file("data", &store, 1, 1 << 20)]);
        let before = store.total_bytes().expect("readable");
        for index in 0..3 {
            lay(&folder, &store, &dir.path().join(format!("work-{index}")));
        }
        assert_eq!(store.total_bytes().expect("readable"), before);
        assert!(!dir.path().join("chunks/whole").exists());
    });
}
