//! Tests that every change of a run is found.

#![expect(clippy::disallowed_methods, reason = "the test owns the directories, and they are shallow")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{capture, inventory, noise, paths, put, set_mode, unprivileged, upload};
use hostler_proto::manifest::{EntryKind, Manifest};
use hostler_snapshot::{Baseline, Changes, ChangesOptions, ChunkStore, LayoutOptions, lay_out};
use proptest::prelude::*;

/// A laid out folder, ready for a run.
struct Run {
    dir: tempfile::TempDir,
    store: ChunkStore,
    manifest: Manifest,
    baseline: Baseline,
}

impl Run {
    fn of(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).expect("writable");
        files.iter().for_each(|(path, content)| put(&folder, path, content));
        let store = ChunkStore::open(&dir.path().join("chunks")).expect("writable");
        let captured = capture(&folder);
        upload(&captured, &store);
        let work = dir.path().join("work");
        let laid_out =
            lay_out(&captured.manifest, &store, &work, &LayoutOptions::default()).expect("the manifest is valid");
        Self { dir, store, manifest: captured.manifest, baseline: laid_out.baseline }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn changes(&self) -> Changes {
        let changes = |baseline| {
            hostler_snapshot::changes(&self.work(), &self.manifest, baseline, &ChangesOptions::default())
                .expect("within the limits")
        };
        let (fast, thorough) = (changes(&self.baseline), changes(&Baseline::default()));
        assert_eq!(
            (&fast.tree, &fast.removed, &fast.problems),
            (&thorough.tree, &thorough.removed, &thorough.problems)
        );
        fast
    }

    /// Uploads the changes, lays them out alone and returns the result.
    fn bring_home(&self, changes: &Changes) -> std::collections::BTreeMap<Vec<u8>, common::Item> {
        for digest in changes.sources.digests() {
            self.store.insert(&digest, &changes.sources.read_chunk(&digest).expect("unchanged")).expect("writable");
        }
        let home = self.dir.path().join("home");
        lay_out(&changes.tree, &self.store, &home, &LayoutOptions::default())
            .expect("the manifest of the changes is valid");
        inventory(&home)
    }
}

const FOLDER: [(&str, &[u8]); 5] =
    [("main.py", b"print(1)"), ("data/a", b"aaaa"), ("data/b", b"bbbb"), ("data/deep/c", b"cccc"), ("empty", b"")];

#[test]
fn unchanged_folder_has_no_changes() {
    let run = Run::of(&FOLDER);
    let changes = run.changes();
    assert_eq!((changes.tree.entries.len(), changes.removed.len(), changes.problems.len()), (0, 0, 0));
    assert_eq!(changes.sources.digests().count(), 0);
}

#[test]
fn created_changed_and_removed_files_are_found_with_their_directories() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    put(&work, "data/deep/c", "changed");
    put(&work, "out/model.bin", noise(1, 3 << 20));
    put(&work, "out/log", "");
    fs::create_dir(work.join("out/empty")).expect("writable");
    symlink("model.bin", work.join("out/latest")).expect("writable");
    fs::remove_file(work.join("data/a")).expect("the test owns it");
    let changes = run.changes();
    assert_eq!(
        paths(&changes.tree),
        ["data", "data/deep", "data/deep/c", "out", "out/empty", "out/latest", "out/log", "out/model.bin"]
    );
    assert_eq!(changes.removed, [b"data/a"]);
    assert!(changes.problems.is_empty());
    let (home, mut expected) = (run.bring_home(&changes), inventory(&work));
    expected.retain(|path, _| home.contains_key(path));
    assert_eq!(home, expected);
    assert_eq!(home.len(), 8);
}

#[test]
fn rewriting_equal_bytes_is_no_change_but_a_new_mode_is() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    // One file is rewritten in place, another is replaced by a new file.
    put(&work, "main.py", "print(1)");
    fs::remove_file(work.join("data/a")).expect("the test owns it");
    put(&work, "data/a", "aaaa");
    assert_eq!(paths(&run.changes().tree), [""; 0]);

    set_mode(&work.join("data/b"), 0o755);
    set_mode(&work.join("data/deep"), 0o700);
    let changes = run.changes();
    assert_eq!(paths(&changes.tree), ["data", "data/b", "data/deep"]);
    assert_eq!(changes.tree.entries[1].mode, 0o755);
    assert!(changes.removed.is_empty());
}

#[test]
fn restored_modification_time_hides_no_change() {
    let run = Run::of(&FOLDER);
    let path = run.work().join("data/a");
    let modified = fs::metadata(&path).expect("the file exists").modified().expect("the system reports it");
    fs::write(&path, "AAAA").expect("the test owns it");
    fs::File::options()
        .append(true)
        .open(&path)
        .and_then(|file| file.set_modified(modified))
        .expect("the test owns it");
    assert_eq!(paths(&run.changes().tree), ["data", "data/a"]);
}

#[test]
fn change_in_the_same_clock_tick_is_found() {
    let run = Run::of(&FOLDER);
    for round in 0..50 {
        let work = run.dir.path().join(format!("work-{round}"));
        let laid_out =
            lay_out(&run.manifest, &run.store, &work, &LayoutOptions::default()).expect("the manifest is valid");
        let path = work.join("data/a");
        fs::write(&path, "AAAA").expect("the test owns it");
        let file = fs::File::options().append(true).open(&path).expect("the test owns it");
        let modified =
            fs::metadata(run.work().join("data/a")).and_then(|it| it.modified()).expect("the system reports it");
        file.set_modified(modified).expect("the test owns it");
        let options = ChangesOptions::default();
        let changes =
            hostler_snapshot::changes(&work, &run.manifest, &laid_out.baseline, &options).expect("within the limits");
        assert_eq!(paths(&changes.tree), ["data", "data/a"], "round {round}");
    }
}

#[test]
fn entries_may_change_their_type() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    fs::remove_dir_all(work.join("data")).expect("the test owns it");
    put(&work, "data", "a file now");
    fs::remove_file(work.join("main.py")).expect("the test owns it");
    fs::create_dir(work.join("main.py")).expect("the test owns it");
    fs::remove_file(work.join("empty")).expect("the test owns it");
    symlink("data", work.join("empty")).expect("the test owns it");
    let changes = run.changes();
    assert_eq!(paths(&changes.tree), ["data", "empty", "main.py"]);
    assert!(matches!(changes.tree.entries[0].kind, EntryKind::File(_)));
    let removed = ["data/a", "data/b", "data/deep", "data/deep/c"];
    assert_eq!(changes.removed, removed.map(str::as_bytes));
}

#[test]
fn python_caches_are_ignored_unless_they_were_captured() {
    // The `.hostlerignore` file includes this directory.
    let captured: [(&str, &[u8]); 3] =
        [(".hostlerignore", b"!__pycache__/\n"), ("lib/__pycache__/old.pyc", b"old"), ("lib/x.py", b"")];
    let run = Run::of(&captured);
    let work = run.work();
    put(&work, "__pycache__/new.pyc", "new");
    put(&work, "lib/__pycache__/new.pyc", "new");
    put(&work, "lib/__pycache__/old.pyc", "newer");
    put(&work, "lib/y.pyc", "new");
    put(&work, ".hostler/state", "ours");
    put(&work, ".gitignore", "*\n");
    put(&work, ".git/HEAD", "results are results");
    assert_eq!(
        paths(&run.changes().tree),
        [".git", ".git/HEAD", ".gitignore", "lib", "lib/__pycache__", "lib/__pycache__/old.pyc"]
    );
}

#[test]
fn uncapturable_entries_are_reported_and_the_rest_is_captured() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    let _socket = UnixListener::bind(work.join("socket")).expect("writable");
    nix::unistd::mkfifo(&work.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("writable");
    symlink("/etc/shadow", work.join("leak")).expect("writable");
    fs::rename(work.join("data"), run.dir.path().join("moved")).expect("the test owns it");
    symlink("../moved", work.join("data")).expect("writable");
    put(&work, "result", "kept");
    let changes = run.changes();
    assert_eq!(paths(&changes.tree), ["result"]);
    assert_eq!(
        changes.problems,
        [
            "data is a link to ../moved, which leads out of the folder.",
            "leak is a link to /etc/shadow, which leads out of the folder.",
            "pipe is a named pipe.",
            "socket is a socket.",
        ]
    );
    assert_eq!(changes.removed.len(), 5);
}

#[test]
fn unreadable_entries_are_reported_and_not_removed() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    for path in [run.dir.path(), &work] {
        set_mode(path, 0o755);
    }
    put(&work, "secret", "x");
    set_mode(&work.join("secret"), 0o000);
    set_mode(&work.join("data"), 0o000);
    let (manifest, baseline) = (&run.manifest, &run.baseline);
    let changes = unprivileged(|| hostler_snapshot::changes(&work, manifest, baseline, &ChangesOptions::default()))
        .expect("within the limits");
    set_mode(&work.join("data"), 0o755);
    assert_eq!(
        changes.problems,
        ["data cannot be read: permission denied.", "secret cannot be read: permission denied."]
    );
    assert_eq!(changes.removed, Vec::<Vec<u8>>::new());
}

/// Collects the changes while `write` runs again and again on another thread, until `is_wanted` accepts them. On a busy
/// machine the thread may pause during a collection.
fn changes_while(run: &Run, write: impl Fn(u64) + Sync, is_wanted: impl Fn(&Changes) -> bool) -> Changes {
    let (stop, writes) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                write(round);
                writes.store(true, Ordering::Relaxed);
            }
        });
        while !writes.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let (manifest, baseline) = (&run.manifest, &run.baseline);
        let find = || hostler_snapshot::changes(&run.work(), manifest, baseline, &ChangesOptions::default()).ok();
        let changes = (0..200).filter_map(|_| find()).find(is_wanted);
        stop.store(true, Ordering::Relaxed);
        changes.expect("the changes are found while a program writes")
    })
}

#[test]
fn growing_results_are_taken_with_a_remark() {
    let run = Run::of(&[("old.log", b"start\n")]);
    let start = noise(1, 1 << 20);
    put(&run.work(), "out/model.bin", &start);
    put(&run.work(), "done.bin", &start);
    let write = |_| {
        for path in ["out/model.bin", "old.log", "out/small.log"] {
            let options = fs::OpenOptions::new().append(true).create(true).open(run.work().join(path));
            options.and_then(|mut it| it.write_all(b"more")).expect("the test owns it");
        }
    };
    write(0);
    let changes = changes_while(&run, write, |changes| changes.problems.len() == 3);
    assert_eq!(paths(&changes.tree), ["done.bin", "old.log", "out", "out/model.bin", "out/small.log"]);
    assert_eq!((changes.missed, changes.removed.len()), (0, 0));
    assert!(changes.problems[1].starts_with("out/model.bin was still growing; its first 1M"), "{:?}", changes.problems);
    let home = run.bring_home(&changes);
    assert!(home[b"out/model.bin".as_slice()].2.starts_with(&start));
    assert!(home[b"old.log".as_slice()].2.starts_with(b"start\nmore"));
}

#[test]
fn results_that_are_replaced_or_renamed_meanwhile_are_taken() {
    let run = Run::of(&FOLDER);
    let work = run.work();
    put(&work, "best.pt", noise(0, 200_000));
    let write = |round: u64| {
        let new = work.join(format!("best.{round}.tmp"));
        fs::write(&new, noise(round % 5, 200_000)).and_then(|()| fs::rename(new, work.join("best.pt"))).expect("ours");
        let (from, to) = (format!("step-{round}"), format!("step-{}", round + 1));
        if round == 0 {
            put(&work, &from, "state");
        }
        fs::rename(work.join(from), work.join(to)).expect("the test owns it");
    };
    let changes = changes_while(&run, write, |_| true);
    assert_eq!((changes.missed, changes.removed.len()), (0, 0), "{:?}", changes.problems);
    assert!(paths(&changes.tree).contains(&"best.pt".to_owned()), "{:?}", paths(&changes.tree));
}

#[test]
fn result_that_differs_at_every_reading_is_counted_as_missed() {
    let run = Run::of(&FOLDER);
    put(&run.work(), "db", noise(1, 4 << 20));
    put(&run.work(), "result", "kept");
    let file = fs::OpenOptions::new().write(true).open(run.work().join("db")).expect("the test owns it");
    let write = |round: u64| file.write_all_at(&round.to_le_bytes(), 4096).expect("writable");
    let changes = changes_while(&run, write, |changes| changes.missed > 0);
    assert_eq!((paths(&changes.tree), changes.missed), (vec!["result".to_owned()], 1));
    assert_eq!(changes.problems, ["db changed each time it was read."]);
}

#[test]
fn missing_work_directory_is_reported() {
    let run = Run::of(&FOLDER);
    fs::remove_dir_all(run.work()).expect("the test owns it");
    let changes = run.changes();
    assert_eq!(changes.problems, ["The work directory no longer exists, so its files are lost."]);
    assert!(changes.tree.entries.is_empty() && changes.removed.is_empty());
}

#[test]
fn saved_baseline_finds_the_same_changes() {
    let run = Run::of(&FOLDER);
    let path = run.dir.path().join("baseline");
    run.baseline.save(&path).expect("writable");
    put(&run.work(), "new", "x");
    let baseline = Baseline::load(&path);
    let changes = hostler_snapshot::changes(&run.work(), &run.manifest, &baseline, &ChangesOptions::default())
        .expect("within the limits");
    assert_eq!(paths(&changes.tree), ["new"]);
}

#[test]
fn output_files_and_manifests_are_added_to_the_sources() {
    let run = Run::of(&FOLDER);
    put(&run.work(), "new", "x");
    let mut changes = run.changes();
    let log = run.dir.path().join("stdout");
    fs::write(&log, noise(7, 700_000)).expect("writable");
    let content = changes.sources.add_file(&log, u64::MAX).expect("readable").0;
    let manifest = changes.sources.add_blob(hostler_proto::encode(&changes.tree));
    // A log that grows afterwards still holds the named chunks.
    fs::File::options()
        .append(true)
        .open(&log)
        .and_then(|mut it| std::io::Write::write_all(&mut it, b"more"))
        .expect("the test owns it");
    let bytes: Vec<u8> =
        content.chunks.iter().flat_map(|it| changes.sources.read_chunk(&it.digest).expect("unchanged")).collect();
    assert_eq!(bytes, noise(7, 700_000));
    assert_eq!(changes.sources.digests().count(), content.chunks.len() + 2);
    assert!(changes.sources.read_chunk(&manifest).is_ok());
}

/// An action of a run on one of a few paths.
#[derive(Debug, Clone, Copy)]
enum Act {
    Write(u8),
    Remove,
    Touch,
    MakeDirectory,
    Link,
}

fn act(work: &Path, path: &str, act: Act) {
    let path = work.join(path);
    // An action that fails has no effect, as in a real run.
    let _ = match act {
        Act::Write(byte) => {
            fs::create_dir_all(path.parent().expect("below")).and_then(|()| fs::write(&path, [byte; 9]))
        }
        Act::Remove if path.is_dir() && !path.is_symlink() => fs::remove_dir_all(&path),
        Act::Remove => fs::remove_file(&path),
        Act::Touch => fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|it| it.set_modified(std::time::SystemTime::UNIX_EPOCH)),
        Act::MakeDirectory => fs::create_dir_all(&path),
        Act::Link => symlink("main.py", &path),
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Laying the folder out again, then removing and adding the reported changes, gives the same tree as the run.
    #[test]
    fn folder_plus_changes_equals_the_work_directory(
        acts in prop::collection::vec((
            prop::sample::select(vec!["main.py", "data", "data/a", "data/deep/c", "new", "new/x", "empty"]),
            prop_oneof![
                (0u8..3).prop_map(Act::Write), Just(Act::Remove), Just(Act::Touch), Just(Act::MakeDirectory), Just(Act::Link)
            ],
        ), 0..10)
    ) {
        let run = Run::of(&FOLDER);
        acts.iter().for_each(|(path, what)| act(&run.work(), path, *what));
        let changes = run.changes();
        prop_assert!(changes.problems.is_empty(), "{:?}", changes.problems);
        let mut outcome = inventory(&run.dir.path().join("folder"));
        outcome.retain(|path, _| changes.removed.binary_search(path).is_err());
        outcome.extend(run.bring_home(&changes));
        // Times of files rewritten with the same bytes, and of directories, are not part of the result.
        let plain = |items: std::collections::BTreeMap<Vec<u8>, common::Item>| -> Vec<_> {
            items.into_iter().map(|(path, (mode, _, content))| (path, mode, content)).collect()
        };
        prop_assert_eq!(plain(outcome), plain(inventory(&run.work())));
    }
}

#[test]
fn too_deep_directory_is_reported_and_the_rest_is_captured() {
    let run = Run::of(&[]);
    fs::write(run.work().join("result"), "42").expect("the test owns it");
    nest(&run.work().join("deep"), 18_000);
    let changes = run.changes();
    assert_eq!(paths(&changes.tree)[..2], ["deep", "deep/d"]);
    assert!(paths(&changes.tree).contains(&"result".to_owned()), "{:?}", changes.problems);
    let [problem] = changes.problems.as_slice() else { panic!("{:?}", changes.problems) };
    assert!(problem.contains("nested more than 512 directories deep") && problem.len() < 200, "{problem}");
    // `TempDir` would remove the deep directory by recursion.
    hostler_snapshot::remove_tree(&run.work()).expect("the test owns it");
}

#[test]
fn changes_above_a_limit_give_an_error_that_names_the_limit() {
    let run = Run::of(&[]);
    let find = || hostler_snapshot::changes(&run.work(), &run.manifest, &run.baseline, &ChangesOptions::default());
    let long = "x".repeat(4000);
    for number in 0..17_500 {
        symlink(&long, run.work().join(number.to_string())).expect("the test owns it");
    }
    let error = find().expect_err("the links exceed the limit").to_string();
    assert!(error.contains("paths, link targets and chunks") && error.contains("64M"), "{error}");
    for number in 0..17_500 {
        fs::remove_file(run.work().join(number.to_string())).expect("the test owns it");
    }
    let sparse = fs::File::create(run.work().join("sparse")).expect("the test owns it");
    sparse.set_len(10 << 40).expect("the disk supports holes");
    let error = find().expect_err("the file exceeds the limit").to_string();
    assert!(error.contains("more than 512G"), "{error}");
    sparse.set_len(100 << 30).expect("shorter");
    let found = find().expect("holes are not read");
    assert_eq!(paths(&found.tree), ["sparse"]);
}

/// Makes nested directories.
fn nest(path: &Path, levels: usize) {
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::{Mode, mkdirat};
    fs::create_dir(path).expect("the test owns it");
    let mut at = open(path, OFlag::O_DIRECTORY, Mode::empty()).expect("the directory exists");
    for _ in 0..levels {
        mkdirat(&at, "d", Mode::S_IRWXU).expect("the test owns it");
        at = openat(&at, "d", OFlag::O_DIRECTORY, Mode::empty()).expect("the directory exists");
    }
}
