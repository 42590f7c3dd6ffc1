//! Tests the chunk store with damage, crashes, full disks and eviction.

#![expect(clippy::disallowed_methods, reason = "the test owns the directories, and they are shallow")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::{noise, with_small_disk};
use hostler_model::Digest;
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{ChunkStore, StoreError, pack, wire};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

fn store() -> (tempfile::TempDir, ChunkStore) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    (dir, store)
}

fn place(dir: &Path, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    dir.join("chunks").join(&name[..2]).join(&name[2..])
}

/// Makes a chunk look as if it was last used `secs` ago.
fn age(dir: &Path, digest: &Digest, secs: u64) {
    let file = fs::File::options().append(true).open(place(dir, digest)).expect("the file exists");
    file.set_modified(SystemTime::now() - Duration::from_secs(secs)).expect("the test owns it");
}

#[test]
fn stored_chunks_are_read_back_unchanged() {
    let (dir, store) = store();
    let text = b"compressible ".repeat(10_000);
    let contents = [Vec::new(), b"x".to_vec(), text.clone(), noise(1, 1 << 20)];
    let digests: Vec<Digest> = contents.iter().map(|raw| store.add(raw).expect("writable")).collect();
    for (raw, digest) in contents.iter().zip(&digests) {
        assert_eq!(*digest, digest_of(raw));
        assert!(store.contains(digest));
        assert_eq!(store.get(digest).expect("inserted"), *raw);
        assert_eq!(wire::decode(digest, &store.get_wire(digest).expect("inserted")).expect("intact"), *raw);
    }
    let absent = digest_of(b"absent");
    assert_eq!(store.missing(&[digests[0], absent, digests[1]]), [absent]);
    assert!(matches!(store.get(&absent), Err(StoreError::Missing(it)) if it == absent));

    let on_disk: u64 =
        digests.iter().map(|it| fs::metadata(place(dir.path(), it)).expect("the file exists").len()).sum();
    assert_eq!(store.total_bytes().expect("readable"), on_disk);
    assert!(on_disk < (1 << 20) + text.len() as u64 / 10);
    store.insert(&digests[1], b"x").expect("an existing chunk is kept");
    let more = store.add(b"more").expect("writable");
    assert_eq!(store.total_bytes().expect("readable"), on_disk + 5);
    assert!(store.remove(&more).expect("the test owns it"));
    assert_eq!(store.total_bytes().expect("readable"), on_disk);
    store.sync().expect("the disk works");
    assert!(store.free_bytes().expect("the system reports it") > 0);

    drop(store);
    let again = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    assert!(digests.iter().all(|digest| again.get(digest).is_ok()));
    assert_eq!(again.total_bytes().expect("readable"), on_disk);
}

#[test]
fn chunk_with_a_wrong_digest_is_refused() {
    let (_dir, store) = store();
    let name = digest_of(b"right");
    assert!(matches!(store.insert(&name, b"wrong"), Err(StoreError::Refused { .. })));
    assert!(matches!(store.insert_wire(&name, &wire::encode(b"wrong")), Err(StoreError::Refused { .. })));
    assert!(matches!(store.insert_wire(&name, b"\x01garbage"), Err(StoreError::Refused { .. })));
    let bomb = zstd::bulk::compress(&vec![0; 65 << 20], 3).expect("memory suffices");
    let error =
        store.insert_wire(&name, &[b"\x01".as_slice(), &bomb].concat()).expect_err("the chunk exceeds the size limit");
    assert!(matches!(error, StoreError::Refused { source: wire::WireError::TooLong, .. }), "{error:?}");
    assert!(!store.contains(&name));
    store.insert_wire(&name, &wire::encode(b"right")).expect("right");
    assert_eq!(store.get(&name).expect("inserted"), b"right");
}

#[test]
fn damaged_chunk_is_reported_and_removed() {
    let (dir, store) = store();
    let (raw, packed) = (noise(1, 5000), b"text ".repeat(5000));
    for bytes in [raw, packed] {
        let digest = store.add(&bytes).expect("writable");
        let path = place(dir.path(), &digest);
        let mut stored = fs::read(&path).expect("the file exists");
        let middle = stored.len() / 2;
        stored[middle] ^= 1;
        fs::write(&path, stored).expect("the test owns it");
        let error = store.get(&digest).expect_err("a bit has flipped");
        assert!(matches!(error, StoreError::Corrupt { digest: it, .. } if it == digest));
        assert!(error.to_string().contains(&digest.to_string()));
        assert!(!store.contains(&digest) && !path.exists());
        // The chunk can be inserted again.
        store.insert(&digest, &bytes).expect("writable");
        assert_eq!(store.get(&digest).expect("inserted"), bytes);
    }
}

#[test]
fn an_empty_file_left_by_a_crash_counts_as_absent() {
    let (dir, store) = store();
    let digest = store.add(b"lost in a power cut").expect("writable");
    fs::write(place(dir.path(), &digest), b"").expect("the test owns it");
    assert!(!store.contains(&digest));
    assert_eq!(store.missing(&[digest]), [digest]);
    store.insert(&digest, b"lost in a power cut").expect("writable");
    assert!(store.get(&digest).is_ok());
}

#[test]
fn sweep_keeps_live_young_and_requested_chunks() {
    let (dir, store) = store();
    let [live, young, old, asked] = [b"live", b"yng_", b"old_", b"askd"].map(|raw| store.add(raw).expect("writable"));
    for digest in [live, old, asked] {
        age(dir.path(), &digest, 7200);
    }
    // A client is told that it need not upload this chunk.
    assert!(store.missing(&[asked]).is_empty());
    store.total_bytes().expect("readable");
    let freed = store.sweep(|digest| *digest == live, Duration::from_secs(3600)).expect("the test owns it");
    assert_eq!((freed.chunks, freed.bytes), (1, 5));
    assert!(!store.contains(&old));
    assert!([live, young, asked].iter().all(|digest| store.contains(digest)));
    assert_eq!(store.total_bytes().expect("readable"), 15);
}

#[test]
fn eviction_removes_the_least_recently_used_chunks() {
    let (dir, store) = store();
    let digests: Vec<Digest> = (0..10).map(|seed| store.add(&noise(seed, 999)).expect("writable")).collect();
    for (index, digest) in digests.iter().enumerate() {
        age(dir.path(), digest, 10_000 - 100 * index as u64);
    }
    // The oldest chunk is used again; `keep` protects the second oldest.
    store.get(&digests[0]).expect("the chunk exists");
    let freed = store.evict_to(4500, &|digest| *digest == digests[1]).expect("the test owns it");
    assert_eq!((freed.chunks, freed.bytes), (6, 6000));
    let left: Vec<usize> = (0..10).filter(|&index| store.contains(&digests[index])).collect();
    assert_eq!(left, [0, 1, 8, 9]);
    assert_eq!(store.evict_to(4500, &|_| false).expect("the test owns it").chunks, 0);
}

#[test]
fn threads_may_insert_the_same_chunks_concurrently() {
    let (_dir, store) = store();
    store.total_bytes().expect("readable");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for seed in 0..50 {
                    let digest = store.add(&noise(seed, 999)).expect("writable");
                    assert_eq!(store.get(&digest).expect("inserted").len(), 999);
                }
                store.sync().expect("the disk works");
            });
        }
    });
    assert_eq!(store.total_bytes().expect("readable"), 50 * 1000);
}

#[test]
fn packs_transfer_chunks_between_stores() {
    let (_dir, from) = store();
    let (_other, to) = store();
    let wanted: Vec<Digest> = (0..20).map(|seed| from.add(&noise(seed, 100_000)).expect("writable")).collect();
    let body: Vec<u8> = from.pack(&wanted).flat_map(|frame| frame.expect("the chunk exists")).collect();
    let mut decoder = pack::Decoder::default();
    for piece in body.chunks(16_000) {
        decoder.feed(piece);
        while let Some(frame) = decoder.next_frame().expect("well-formed") {
            to.insert_wire(&frame.digest, &frame.wire).expect("intact");
        }
    }
    decoder.finish().expect("complete");
    assert!(to.missing(&wanted).is_empty());
}

#[test]
fn full_disk_is_reported_and_later_inserts_succeed() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    with_small_disk(dir.path(), 1 << 20, || {
        let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
        let first = store.add(&noise(0, 600_000)).expect("the disk has space");
        let error = store.add(&noise(1, 600_000)).expect_err("the disk is full");
        let StoreError::DiskFull { path, needed, free } = &error else { panic!("{error:?}") };
        assert!(path.ends_with("chunks") && *needed == 600_001 && *free < 600_000, "{error}");
        assert!(error.to_string().starts_with("no space left in "), "{error}");
        // The failed attempt leaves nothing, and the earlier chunk is intact.
        assert!(store.free_bytes().expect("the system reports it") > 300_000);
        assert!(store.get(&first).is_ok());
        store.remove(&first).expect("the test owns it");
        store.add(&noise(1, 600_000)).expect("the disk has space again");
    });
}

const CHILD: &str = "HOSTLER_TEST_INSERT_INTO";

/// Not a test: the child process that the next test kills.
#[test]
fn child_that_inserts_until_it_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let store = ChunkStore::open(Path::new(&directory)).expect("writable");
    for seed in 0.. {
        store.add(&noise(seed, 900_000)).expect("writable");
    }
}

#[test]
fn kill_leaves_complete_chunks_and_no_temporary_files() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let chunks = dir.path().join("chunks");
    let digests: Vec<Digest> = (0..400).map(|seed| digest_of(&noise(seed, 900_000))).collect();
    for _round in 0..5 {
        let _ = fs::remove_dir_all(&chunks);
        let mut child = Command::new(std::env::current_exe().expect("the system reports it"))
            .args(["--exact", "child_that_inserts_until_it_is_killed"])
            .env(CHILD, &chunks)
            .stdout(Stdio::null())
            .spawn()
            .expect("the test program can be started");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !place(dir.path(), &digests[3]).exists() {
            assert!(Instant::now() < deadline, "the child inserts nothing");
            std::thread::yield_now();
        }
        child.kill().expect("the test owns it");
        child.wait().expect("the test owns it");
        let store = ChunkStore::open(&chunks).expect("writable");
        let there: Vec<_> = digests.iter().filter(|digest| store.contains(digest)).collect();
        assert!(there.len() >= 4 && there.iter().all(|digest| store.get(digest).is_ok()));
        // Only this process's scratch directory is left, and it is empty.
        let scratch: Vec<_> = fs::read_dir(chunks.join("tmp")).expect("the directory exists").collect();
        assert_eq!(scratch.len(), 1);
        let ours = scratch[0].as_ref().expect("readable").path();
        assert_eq!(fs::read_dir(ours).expect("the directory exists").count(), 0);
    }
}

/// The resident bytes of a chunk in the page cache.
fn resident(dir: &Path, digest: &Digest) -> u64 {
    let output =
        Command::new("fincore").args(["--noheadings", "--bytes", "--output", "RES"]).arg(place(dir, digest)).output();
    let output = output.expect("util-linux is installed");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of bytes")
}

#[test]
fn read_ahead_loads_chunks_into_the_page_cache() {
    // On a disk: tmpfs cannot drop pages.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let digests: Vec<Digest> =
        (0..3).map(|seed| store.add(&noise(seed, 1 << 20)).expect("the disk has space")).collect();
    let forget = |digest: &Digest| {
        let file = fs::File::open(place(dir.path(), digest)).expect("the file exists");
        file.sync_all().expect("the file can be synced");
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("the kernel accepts the advice");
        assert_eq!(resident(dir.path(), digest), 0);
    };
    digests.iter().for_each(forget);
    let missing = digest_of(b"elsewhere");
    let wanted: Vec<Digest> = [&[missing], &digests[..]].concat();
    let asked = store.read_ahead(&wanted, 5 << 19);
    assert!((2 << 20..5 << 19).contains(&asked), "read-ahead requested {asked} bytes instead of two chunks");
    let deadline = Instant::now() + Duration::from_secs(30);
    while digests[..2].iter().any(|digest| resident(dir.path(), digest) < 1 << 20) {
        assert!(Instant::now() < deadline, "read-ahead does not load the chunks");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(resident(dir.path(), &digests[2]), 0);
}
