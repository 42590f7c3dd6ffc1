//! Tests that results are delivered whole, once, and never over the user's files.

mod common;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use common::{
    capture, check_sparse_folder, directory, file, inventory, link, manifest, noise, paths, put, refusing, set_mode,
    sparse_folder, upload, with_small_disk,
};
use hostler_model::Digest;
use hostler_proto::manifest::Manifest;
use hostler_snapshot::{ChunkStore, Conflict, Delivered, Delivery, DeliveryError, OnConflict, Property};

/// A head with results, and a destination.
struct Head {
    dir: tempfile::TempDir,
    store: ChunkStore,
    manifest: Manifest,
}

impl Head {
    fn with(files: &[(&str, Vec<u8>)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let folder = dir.path().join("results");
        fs::create_dir(&folder).expect("writable");
        files.iter().for_each(|(path, content)| put(&folder, path, content));
        let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
        let captured = capture(&folder);
        upload(&captured, &store);
        Self { dir, store, manifest: captured.manifest }
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn plan(&self, on_conflict: OnConflict) -> Result<Delivery, DeliveryError> {
        Delivery::plan(&self.home(), &self.manifest, on_conflict, None)
    }

    fn send(&self, delivery: &mut Delivery, wanted: &[Digest]) {
        for digest in wanted {
            delivery
                .accept(digest, &self.store.get_wire(digest).expect("the chunk exists"))
                .expect("the disk has space");
        }
    }

    /// Like `deliver`, but returns every error.
    fn try_deliver(&self) -> Result<Delivered, DeliveryError> {
        let mut delivery = self.plan(OnConflict::Refuse)?;
        for digest in delivery.missing() {
            delivery.accept(&digest, &self.store.get_wire(&digest).expect("the chunk exists"))?;
        }
        delivery.finish()
    }

    fn deliver(&self, on_conflict: OnConflict) -> Result<Delivered, DeliveryError> {
        let mut delivery = self.plan(on_conflict)?;
        let wanted = delivery.missing();
        self.send(&mut delivery, &wanted);
        delivery.finish()
    }
}

fn results() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("model.bin", noise(1, 3 << 20)),
        ("copy.bin", noise(1, 3 << 20)),
        ("log/out", b"done".to_vec()),
        ("log/empty", Vec::new()),
        ("-odd\nname", b"x".to_vec()),
    ]
}

#[test]
fn delivery_copies_the_results_and_leaves_no_temporary_files() {
    let head = Head::with(&results());
    set_mode(&head.results().join("log/out"), 0o400);
    symlink("../model.bin", head.results().join("log/latest")).expect("writable");
    fs::create_dir(head.results().join("empty")).expect("writable");
    let captured = capture(&head.results());
    upload(&captured, &head.store);
    let head = Head { manifest: captured.manifest, ..head };

    let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
    let mut wanted = delivery.missing();
    assert_eq!(wanted.len(), wanted.iter().collect::<HashSet<_>>().len());
    wanted.reverse();
    head.send(&mut delivery, &wanted);
    // Nothing is visible before the end.
    assert_eq!(fs::read_dir(head.home()).expect("the directory exists").count(), 1);
    let delivered = delivery.finish().expect("complete");
    assert_eq!((delivered.files, delivered.bytes, delivered.kept), (5, (6 << 20) + 5, 0));
    assert_eq!(inventory(&head.home()), inventory(&head.results()));

    // A second delivery: everything exists already.
    let delivery = head.plan(OnConflict::Refuse).expect("equal files do not conflict");
    assert!(delivery.missing().is_empty());
    let delivered = delivery.finish().expect("complete");
    assert_eq!((delivered.files, delivered.kept), (0, 6));
    assert_eq!(inventory(&head.home()), inventory(&head.results()));
}

#[test]
fn interrupted_delivery_is_resumed() {
    let head = Head::with(&results());
    let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
    let wanted = delivery.missing();
    let (before, after) = wanted.split_at(wanted.len() / 2);
    head.send(&mut delivery, before);
    assert!(matches!(delivery.finish(), Err(DeliveryError::Incomplete(count)) if count == after.len()));

    // The same place in another process: chunks that arrived are found, except the part that the crash damaged.
    let delivery = head.plan(OnConflict::Refuse).expect("no file conflicts");
    assert_eq!(delivery.missing(), after);
    drop(delivery);
    let partial = head.home().join(".hostler-partial");
    let area = fs::read_dir(&partial).expect("the directory exists").next().expect("one").expect("readable").path();
    let mut torn = 0;
    for entry in fs::read_dir(area).expect("the directory exists") {
        let path = entry.expect("readable").path();
        if fs::metadata(&path).expect("the file exists").len() > 1 << 20 {
            let mut bytes = fs::read(&path).expect("the test owns it");
            bytes[10] ^= 1;
            fs::write(&path, bytes).expect("the test owns it");
            torn += 1;
        }
    }
    assert_eq!(torn, 2);
    let mut delivery = head.plan(OnConflict::Refuse).expect("no file conflicts");
    let wanted = delivery.missing();
    assert_eq!(wanted.len(), after.len() + 1);
    head.send(&mut delivery, &wanted);
    delivery.finish().expect("complete");
    assert_eq!(inventory(&head.home()), inventory(&head.results()));
}

#[test]
fn damaged_chunks_are_refused_and_unrequested_ones_ignored() {
    let head = Head::with(&results());
    let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
    let wanted = delivery.missing();
    let other = head.store.get_wire(&wanted[1]).expect("the chunk exists");
    assert!(matches!(delivery.accept(&wanted[0], &other), Err(DeliveryError::Damaged { .. })));
    delivery.accept(&Digest([7; 32]), b"whatever").expect("an unrequested chunk is ignored");
    assert_eq!(delivery.missing(), wanted);
}

#[test]
fn second_delivery_to_a_busy_destination_is_refused() {
    let head = Head::with(&results());
    let first = head.plan(OnConflict::Refuse).expect("the destination is empty");
    assert!(matches!(head.plan(OnConflict::Refuse), Err(DeliveryError::Busy(_))));
    drop(first);
    head.deliver(OnConflict::Refuse).expect("the first delivery was dropped");
}

#[test]
fn conflicting_files_are_listed_and_unchanged_by_default() {
    let head = Head::with(&results());
    put(&head.home(), "model.bin", "mine");
    put(&head.home(), "log/out", "done");
    put(&head.home(), "log/empty", "not empty");
    put(&head.home(), "unrelated", "mine");
    let before = inventory(&head.home());
    let error = head.deliver(OnConflict::Refuse).expect_err("two files differ");
    let DeliveryError::Conflicts { conflicts, .. } = &error else { panic!("{error:?}") };
    let named: Vec<&[u8]> = conflicts.iter().map(|it| it.path.as_slice()).collect();
    assert_eq!(named, [b"log/empty".as_slice(), b"model.bin"]);
    assert!(error.to_string().ends_with("\n  log/empty\n  model.bin"), "{error}");
    assert_eq!(inventory(&head.home()), before);
}

#[test]
fn overwriting_requests_only_missing_chunks() {
    let head = Head::with(&results());
    let mut old = noise(1, 3 << 20);
    old[3_000_000] ^= 1;
    put(&head.home(), "model.bin", &old);
    put(&head.home(), "copy.bin", &old);
    put(&head.home(), "unrelated", "mine");
    let mut delivery = head.plan(OnConflict::Overwrite).expect("the policy resolves conflicts");
    let wanted = delivery.missing();
    assert!(wanted.len() <= 3, "{} chunks for one changed byte and two small files", wanted.len());
    head.send(&mut delivery, &wanted);
    delivery.finish().expect("complete");
    let mut home = inventory(&head.home());
    assert_eq!(home.remove(b"unrelated".as_slice()).expect("the unrelated file still exists").2, b"mine");
    let contents = |items: std::collections::BTreeMap<Vec<u8>, common::Item>| -> Vec<_> {
        items.into_iter().map(|(path, item)| (path, item.2)).collect()
    };
    assert_eq!(contents(home), contents(inventory(&head.results())));
}

#[test]
fn renaming_keeps_both_files_and_is_idempotent() {
    let head = Head::with(&[("a", b"new".to_vec()), ("b", b"new".to_vec()), ("a.2", b"a result".to_vec())]);
    put(&head.home(), "a", "mine");
    put(&head.home(), "a.1", "mine too");
    for files in [3, 0] {
        let delivered = head.deliver(OnConflict::Rename).expect("the policy resolves conflicts");
        assert_eq!(delivered.files, files);
        // `a.2` is the name of another result.
        assert_eq!(delivered.renamed, [(b"a".to_vec(), b"a.3".to_vec())]);
        let home = inventory(&head.home());
        let contents: Vec<_> = home.iter().map(|(path, item)| (path.as_slice(), item.2.as_slice())).collect();
        let expected = [
            (b"a".as_slice(), b"mine".as_slice()),
            (b"a.1", b"mine too"),
            (b"a.2", b"a result"),
            (b"a.3", b"new"),
            (b"b", b"new"),
        ];
        assert_eq!(contents, expected);
    }
}

/// Delivers `files` and a link to `link` as the result `source`.
fn deliver_as(home: &Path, source: &str, files: &[(&str, &str)], link: &str) -> Result<Delivered, DeliveryError> {
    let files: Vec<_> = files.iter().map(|&(path, content)| (path, content.as_bytes().to_vec())).collect();
    let mut head = Head::with(&files);
    symlink(link, head.results().join("latest")).expect("writable");
    head.manifest = capture(&head.results()).manifest;
    let mut delivery = Delivery::plan(home, &head.manifest, OnConflict::Refuse, Some(source))?;
    let wanted = delivery.missing();
    head.send(&mut delivery, &wanted);
    delivery.finish()
}

#[test]
fn unchanged_files_of_an_earlier_attempt_are_replaced() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let home = dir.path().join("12");
    let read = |name: &str| fs::read_to_string(home.join(name)).expect("the file exists");
    let attempts = [
        [("same", "1"), ("log/out", "first"), ("first", "1")],
        [("same", "1"), ("log/out", "other"), ("second", "2")],
        [("same", "2"), ("log/out", "third"), ("first", "3")],
    ];
    let mut replaced = Vec::new();
    for (files, link) in attempts.iter().zip(["first", "second", "first"]) {
        replaced.push(deliver_as(&home, "c 12", files, link).expect("nobody changed the files").replaced);
    }
    assert_eq!(replaced, [0, 2, 4], "changed files and the link");
    assert_eq!([read("same"), read("log/out"), read("first"), read("second")], ["2", "third", "3", "2"]);
    assert_eq!(fs::read_link(home.join("latest")).expect("a link"), Path::new("first"));
    let marker = fs::read(home.join(".hostler-results")).expect("the marker exists");
    assert!(marker.starts_with(b"Hostler wrote the results"));
}

#[test]
fn files_that_may_be_the_users_are_not_replaced() {
    /// Name, source of the second delivery, and what happens to the directory before it.
    type Case = (&'static str, &'static str, fn(&Path));
    let cases: [Case; 6] = [
        ("edited", "c 12", |home| fs::write(home.join("out"), "mine!").expect("writable")),
        ("another result", "c 13", |_| {}),
        ("another cluster", "d 12", |_| {}),
        ("no marker", "c 12", |home| fs::remove_file(home.join(".hostler-results")).expect("removable")),
        ("damaged marker", "c 12", |home| fs::write(home.join(".hostler-results"), "text\0x").expect("writable")),
        ("renamed over", "c 12", |home| {
            fs::write(home.join("new"), "first").expect("writable");
            fs::rename(home.join("new"), home.join("out")).expect("writable");
        }),
    ];
    for (case, source, change) in cases {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        deliver_as(dir.path(), "c 12", &[("out", "first")], "a").expect("the destination is empty");
        change(dir.path());
        let before = inventory(dir.path());
        let error = deliver_as(dir.path(), source, &[("out", "other")], "a").expect_err(case);
        assert!(
            matches!(error, DeliveryError::Conflicts { ref conflicts, .. } if conflicts.len() == 1),
            "{case}: {error}"
        );
        assert_eq!(inventory(dir.path()), before, "{case}");
    }
}

#[test]
fn marker_that_a_full_disk_cut_off_is_written_again() {
    for text in ["", "Hostler wrote the res"] {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(dir.path().join(".hostler-results"), text).expect("writable");
        deliver_as(dir.path(), "c 12", &[("out", "first")], "a").expect("no file is in the way");
        deliver_as(dir.path(), "c 12", &[("out", "second")], "a").expect("the marker notes the first delivery");
        assert_eq!(fs::read(dir.path().join("out")).expect("the file exists"), b"second");
    }
}

#[test]
fn what_only_has_the_name_of_the_marker_stays() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    fs::create_dir(dir.path().join(".hostler-results")).expect("writable");
    deliver_as(dir.path(), "c 12", &[("out", "first")], "a").expect("a directory is not in the way");
    fs::remove_dir(dir.path().join(".hostler-results")).expect("it is empty");
    put(dir.path(), ".hostler-results", "mine");
    deliver_as(dir.path(), "c 12", &[("other", "1")], "a").expect("nothing conflicts");
    assert_eq!(fs::read(dir.path().join(".hostler-results")).expect("the file exists"), b"mine");
}

/// Whoever may write to the destination could note anything there. Needs root.
#[test]
fn marker_of_another_user_notes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    deliver_as(dir.path(), "c 12", &[("out", "first")], "a").expect("the destination is empty");
    chown(dir.path().join(".hostler-results"), Some(12_345), None).expect("needs root");
    let error = deliver_as(dir.path(), "c 12", &[("out", "other")], "a").expect_err("the marker is not this user's");
    assert!(matches!(error, DeliveryError::Conflicts { .. }), "{error}");
}

#[test]
fn directories_and_links_in_the_way_are_never_replaced() {
    let head = Head::with(&[("a", b"x".to_vec()), ("log/out", b"x".to_vec()), ("sub/deep/y", b"x".to_vec())]);
    let outside = head.dir.path().join("outside");
    fs::create_dir_all(outside.join("deep")).expect("writable");
    put(&head.home(), "a/mine", "x");
    put(&head.home(), "log", "a file where a directory should be");
    symlink(&outside, head.home().join("sub")).expect("writable");
    for policy in [OnConflict::Refuse, OnConflict::Overwrite, OnConflict::Rename] {
        let before = inventory(&head.home());
        let error = head.deliver(policy).expect_err("the conflicts cannot be resolved");
        let DeliveryError::Conflicts { conflicts, .. } = error else { panic!("{error:?}") };
        let hopeless = |path: &str| conflicts.contains(&Conflict { path: path.into(), can_be_settled: false });
        assert!(hopeless("a") && hopeless("log") && hopeless("sub") && hopeless("sub/deep/y"), "{conflicts:?}");
        assert_eq!(inventory(&head.home()), before);
        assert_eq!(fs::read_dir(outside.join("deep")).expect("the directory exists").count(), 0);
    }
}

#[test]
fn file_created_during_the_delivery_is_kept() {
    let head = Head::with(&results());
    let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
    let wanted = delivery.missing();
    head.send(&mut delivery, &wanted);
    put(&head.home(), "copy.bin", "mine, just now");
    let error = delivery.finish().expect_err("the user's file conflicts");
    assert!(matches!(&error, DeliveryError::Conflicts { conflicts, .. } if conflicts.len() == 1), "{error:?}");
    assert_eq!(fs::read(head.home().join("copy.bin")).expect("the file exists"), b"mine, just now");
    fs::remove_file(head.home().join("copy.bin")).expect("the test owns it");
    // Chunks that had arrived are not requested again.
    let delivery = head.plan(OnConflict::Refuse).expect("the conflict is gone");
    assert!(delivery.missing().is_empty());
    delivery.finish().expect("complete");
    let home = inventory(&head.home());
    assert_eq!(home.keys().collect::<Vec<_>>(), inventory(&head.results()).keys().collect::<Vec<_>>());
}

#[test]
fn hostile_manifests_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
    let home = dir.path().join("home");
    for entries in [
        vec![file("../x", &store, b"x")],
        vec![link("a", "/etc"), file("a/x", &store, b"x")],
        vec![directory("a"), link("a/b", "../../x")],
    ] {
        let answer = Delivery::plan(&home, &manifest(entries), OnConflict::Overwrite, None);
        assert!(matches!(answer, Err(DeliveryError::Manifest(_))));
        assert!(!home.exists());
    }
}

#[test]
fn partial_directory_that_is_a_link_is_refused() {
    let head = Head::with(&results());
    let outside = head.dir.path().join("outside");
    fs::create_dir(&outside).expect("writable");
    fs::create_dir(head.home()).expect("writable");
    symlink(&outside, head.home().join(".hostler-partial")).expect("writable");
    assert!(matches!(head.plan(OnConflict::Overwrite), Err(DeliveryError::Io { .. })));
    assert!(inventory(&outside).is_empty());
}

/// Another user who may write to the destination prepares the files that an interrupted delivery of root left. Needs root.
#[test]
fn partial_files_of_another_user_are_never_followed() {
    let head = Head::with(&[("model.bin", noise(1, 100))]);
    let secret = head.dir.path().join("secret");
    fs::write(&secret, "the owner's").expect("writable");
    set_mode(&secret, 0o640);
    let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
    let wanted = delivery.missing();
    head.send(&mut delivery, &wanted);
    drop(delivery);
    let area = head.home().join(".hostler-partial");
    let partial = fs::read_dir(&area).expect("there").next().expect("one").expect("readable").path();
    let file = fs::read_dir(&partial).expect("there").next().expect("one").expect("readable").path();
    let is_untouched = || {
        let mode = fs::metadata(&secret).expect("there").permissions().mode() & 0o777;
        assert_eq!((fs::read_to_string(&secret).expect("there").as_str(), mode), ("the owner's", 0o640));
    };

    // A link, or another name of the file, in a directory of this user, which was moved here.
    for plant in [|from: &Path, to: &Path| symlink(from, to), |from: &Path, to: &Path| fs::hard_link(from, to)] {
        fs::remove_file(&file).expect("there");
        plant(&secret, &file).expect("new");
        assert!(head.try_deliver().is_err());
        is_untouched();
    }
    // Directories of the other user.
    for foreign in [&partial, &area] {
        chown(foreign, Some(65534), Some(65534)).expect("needs root");
        let error = head.plan(OnConflict::Refuse).expect_err("the directory belongs to another user");
        let why = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(why.contains("another user"), "{why}");
        is_untouched();
    }
}

fn walk_files(directory: &Path) -> Vec<Vec<u8>> {
    inventory(directory)
        .into_iter()
        .filter(|(_, it)| it.0 & libc::S_IFMT == libc::S_IFREG)
        .map(|(path, _)| path)
        .collect()
}

#[test]
fn full_disk_is_reported_and_received_chunks_are_kept() {
    let head = Head::with(&[("big", noise(1, 3 << 20)), ("small", b"x".to_vec())]);
    assert_eq!(paths(&head.manifest), ["big", "small"]);
    fs::create_dir(head.home()).expect("writable");
    with_small_disk(&head.home(), 1 << 20, || {
        let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
        let failed = delivery
            .missing()
            .iter()
            .find_map(|digest| delivery.accept(digest, &head.store.get_wire(digest).expect("the chunk exists")).err());
        let Some(DeliveryError::DiskFull { needed, .. }) = failed else { panic!("{failed:?}") };
        assert!(needed > 2 << 20);
        assert_eq!(walk_files(&head.home()).len(), 1);
    });
}

#[test]
fn sparse_results_are_delivered_with_their_holes() {
    let head = Head::with(&[("log", b"text".to_vec())]);
    sparse_folder(&head.results());
    let captured = capture(&head.results());
    upload(&captured, &head.store);
    let head = Head { manifest: captured.manifest, ..head };
    fs::create_dir(head.home()).expect("writable");
    with_small_disk(&head.home(), 32 << 20, || {
        // An interrupted attempt leaves a partial file that is shorter than the hole.
        let mut delivery = head.plan(OnConflict::Refuse).expect("the destination is empty");
        let missing = delivery.missing();
        assert!(delivery.missing_bytes() < 16 << 20, "{} bytes", delivery.missing_bytes());
        head.send(&mut delivery, &missing[..1]);
        drop(delivery);
        assert_eq!(head.deliver(OnConflict::Refuse).expect("holes fit").files, 4);
        check_sparse_folder(&head.home());
        assert_eq!(head.deliver(OnConflict::Refuse).expect("nothing to do").kept, 4);
        // A changed file that has data where the result has a hole.
        let changed = head.home().join("start");
        fs::write(&changed, noise(5, 3 << 20)).expect("writable");
        head.deliver(OnConflict::Overwrite).expect("holes fit");
        check_sparse_folder(&head.home());
    });
}

#[test]
fn disk_without_modes_times_or_links_gets_the_files() {
    let head = Head::with(&[("a/run.sh", b"#!/bin/sh".to_vec()), ("log", b"text".to_vec())]);
    set_mode(&head.results().join("a/run.sh"), 0o755);
    symlink("log", head.results().join("latest")).expect("writable");
    let captured = capture(&head.results());
    let head = Head { manifest: captured.manifest, ..head };
    let names = |delivered: &Delivered, property| -> Vec<String> {
        let of_one_kind = delivered.not_held.iter().filter(|it| it.0 == property);
        of_one_kind.map(|(_, path)| String::from_utf8_lossy(path).into_owned()).collect()
    };
    // FAT answers EPERM, network disks EOPNOTSUPP.
    for errno in [libc::EPERM, libc::EOPNOTSUPP] {
        let calls = [libc::SYS_fchmod, libc::SYS_symlinkat, libc::SYS_utimensat];
        let delivered = refusing(&calls, errno, || head.deliver(OnConflict::Overwrite)).expect("the files fit");
        assert_eq!(fs::read(head.home().join("a/run.sh")).expect("delivered"), b"#!/bin/sh");
        assert_eq!(fs::read(head.home().join("log")).expect("delivered"), b"text");
        assert_eq!(names(&delivered, Property::Mode), ["a", "a/run.sh", "log"]);
        assert_eq!(names(&delivered, Property::Time), ["a", "a/run.sh", "log"]);
        assert_eq!(names(&delivered, Property::Link), ["latest"]);
        assert!(!head.home().join(".hostler-partial").exists());
        // A second attempt has only the links left to do.
        let again = refusing(&calls, errno, || head.deliver(OnConflict::Refuse)).expect("the files are there");
        assert_eq!((again.files, again.kept, names(&again, Property::Link)), (0, 2, vec!["latest".to_owned()]));
        fs::remove_file(head.home().join("a/run.sh")).expect("the test owns it");
        fs::remove_dir(head.home().join("a")).expect("the test owns it");
        fs::remove_file(head.home().join("log")).expect("the test owns it");
    }
}

#[test]
fn entry_that_a_link_cannot_replace_stays() {
    let head = Head::with(&[("log", b"text".to_vec())]);
    symlink("log", head.results().join("latest")).expect("writable");
    let captured = capture(&head.results());
    let head = Head { manifest: captured.manifest, ..head };
    let place = head.home().join("latest");
    let links = vec![(Property::Link, b"latest".to_vec())];
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS] {
        put(&head.home(), "latest", "the user's");
        let delivered = refusing(&[libc::SYS_symlinkat], errno, || head.deliver(OnConflict::Overwrite));
        assert_eq!(delivered.expect("the file fits").not_held, links);
        assert_eq!(fs::read_to_string(&place).expect("it stays"), "the user's");
        fs::remove_file(&place).expect("the test owns it");
        symlink("elsewhere", &place).expect("writable");
        let delivered = refusing(&[libc::SYS_symlinkat], errno, || head.deliver(OnConflict::Overwrite));
        assert_eq!(delivered.expect("the file is there").not_held, links);
        assert_eq!(fs::read_link(&place).expect("it stays"), Path::new("elsewhere"));
        fs::remove_file(&place).expect("the test owns it");
    }
    // The disk can hold links, but the entry cannot be replaced, e.g. in a sticky directory.
    put(&head.home(), "latest", "the user's");
    let renames = [libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_unlinkat];
    let delivery = head.plan(OnConflict::Overwrite).expect("no other delivery is running");
    let failed = refusing(&renames, libc::EPERM, || delivery.finish());
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(fs::read_to_string(&place).expect("it stays"), "the user's");
    head.deliver(OnConflict::Overwrite).expect("the disk can hold it");
    assert_eq!(fs::read_link(&place).expect("delivered"), Path::new("log"));
    assert!(!head.home().join(".hostler-partial").exists());
}
