//! Tests which entries a capture takes, leaves out and refuses.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{capture, noise, paths, put, set_mode, unprivileged};
use hostler_proto::manifest::EntryKind;
use hostler_snapshot::{Capture, CaptureError, CaptureOptions, Scan, SourceError, mark_results};

/// Captures a folder of empty files and returns the captured paths without directories.
fn taken(files: &[&str], rules: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    files.iter().for_each(|path| put(dir.path(), path, ""));
    rules.iter().for_each(|(path, lines)| put(dir.path(), path, lines));
    let all = paths(&capture(dir.path()).manifest);
    all.into_iter().filter(|path| files.contains(&path.as_str())).collect()
}

#[test]
fn gitignore_rules_have_the_meaning_of_git() {
    let files = ["a.log", "keep.log", "build/x", "src/build/x", "src/a.log", "src/top", "top", "doc/build"];
    let rules = "*.log\n!keep.log\nbuild/\n/top\n# comment\n\n";
    // `build/` matches only directories, so the file doc/build stays. `/top` matches only at the top.
    assert_eq!(taken(&files, &[(".gitignore", rules)]), ["doc/build", "keep.log", "src/top"]);
    // Nearer files win; an excluded directory is never entered.
    let nested = [(".gitignore", "*.log\nsub/\n"), ("src/.gitignore", "!*.log\n"), ("sub/.gitignore", "!x\n")];
    assert_eq!(taken(&["a.log", "src/b.log", "sub/x"], &nested), ["src/b.log"]);
    // Lines with carriage returns, a byte order mark and an invalid pattern.
    assert_eq!(taken(&["a.log", "b.tmp", "c"], &[(".gitignore", "\u{feff}*.log\r\n[z-a]\r\n*.tmp\r\n")]), ["c"]);
    assert_eq!(taken(&["x/y/z", "x/z"], &[(".gitignore", "x/**/z\n!x/z\n")]), ["x/z"]);
    assert_eq!(taken(&["d/a", "d/b"], &[("d/.gitignore", "/a\n")]), ["d/b"]);
}

#[test]
fn captured_files_are_those_that_git_does_not_ignore() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    for path in
        ["a.o", "b/c.o", "b/keep.o", "b/d/e.txt", "out/x", "out/y/z", "lib/out", "we ird ", "#hash", "!bang", "q/r/s/t"]
    {
        put(folder, path, "");
    }
    put(folder, ".gitignore", "*.o\nout/*\n!out/y\n\\#hash\n\\!bang\nq/**/t\nwe\\ ird\\ \n");
    put(folder, "b/.gitignore", "!keep.o\nd\n");
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"])
            .args(arguments)
            .current_dir(folder)
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("the names are UTF-8")
    };
    git(&["init", "-q"]);
    let listed = git(&["ls-files", "-z", "--others", "--exclude-standard"]);
    let mut expected: Vec<&str> = listed.split_terminator('\0').collect();
    expected.sort_unstable();
    let manifest = capture(folder).manifest;
    let is_directory = |entry: &&hostler_proto::manifest::Entry| entry.kind == EntryKind::Directory;
    let ours: Vec<&str> = (manifest.entries.iter())
        .filter(|entry| !is_directory(entry))
        .map(|entry| std::str::from_utf8(&entry.path).expect("the names are UTF-8"))
        .collect();
    assert_eq!(ours, expected);
}

/// Paths left out by default, in listed order.
fn left_out(folder: &Path) -> Vec<String> {
    let scan = Scan::of(folder).expect("every entry can be captured");
    scan.left_out().iter().map(|it| String::from_utf8_lossy(&it.path).into_owned()).collect()
}

#[test]
fn derived_directories_are_left_out_by_default() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    put(folder, "main.py", "");
    put(folder, ".git/HEAD", "");
    put(folder, "lib/.git", "gitdir: elsewhere");
    put(folder, "lib/__pycache__/x.pyc", "");
    put(folder, "lib/x.py", "");
    put(folder, "web/node_modules/left-pad/index.js", "");
    // A virtual environment may have any name, and its links lead out of the folder.
    put(folder, "my-env/pyvenv.cfg", "home = /usr/bin");
    fs::create_dir(folder.join("my-env/bin")).expect("writable");
    symlink("/usr/bin/python3", folder.join("my-env/bin/python")).expect("writable");
    put(folder, "12/out", "a result");
    mark_results(&folder.join("12")).expect("writable");
    mark_results(&folder.join("12")).expect("an existing mark stays");
    // The names apply only to directories, not to files.
    put(folder, "doc/node_modules", "");
    assert_eq!(paths(&capture(folder).manifest), ["doc", "doc/node_modules", "lib", "lib/x.py", "main.py", "web"]);
    assert_eq!(left_out(folder), [".git", "lib/.git", "my-env", "lib/__pycache__", "web/node_modules", "12"]);
    // A folder with a results marker can be captured if the user names it.
    assert_eq!(paths(&capture(&folder.join("12")).manifest), ["out"]);
}

#[test]
fn hostlerignore_can_include_directories_left_out_by_default() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    put(folder, "venv/pyvenv.cfg", "");
    put(folder, "venv/lib/__pycache__/x.pyc", "");
    put(folder, "old/pyvenv.cfg", "");
    put(folder, ".git/HEAD", "");
    put(folder, "3/out", "");
    put(folder, "skipped/pyvenv.cfg", "");
    mark_results(&folder.join("3")).expect("writable");
    // In a .gitignore such a line is common and has another meaning.
    put(folder, ".gitignore", "!*/\nskipped/\n");
    assert_eq!(paths(&capture(folder).manifest), [".gitignore"]);
    assert_eq!(left_out(folder), [".git", "old", "venv", "3"], "directories that a rule excludes are not listed");
    put(folder, ".hostlerignore", "!/venv/\n!.git/\n!3/\n");
    let taken =
        [".git", ".git/HEAD", ".gitignore", ".hostlerignore", "3", "3/out", "venv", "venv/lib", "venv/pyvenv.cfg"];
    assert_eq!(paths(&capture(folder).manifest), taken);
    assert_eq!(left_out(folder), ["old", "venv/lib/__pycache__"]);
}

#[test]
fn hostlerignore_overrides_gitignore_but_hostler_state_is_never_captured() {
    let rules = [
        (".gitignore", "data/\n*.csv\n"),
        (".hostlerignore", "!data/\nnotes\n!*.csv\n"),
        ("sub/.gitignore", "*.csv\n"),
    ];
    let files = ["data/x", "notes", "sub/a.csv", ".git/HEAD", "sub/.git/HEAD", ".hostler/state", ".hidden", "x.git"];
    assert_eq!(taken(&files, &rules), [".hidden", "data/x", "sub/a.csv", "x.git"]);
}

fn git(folder: &Path, arguments: &[&str]) {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "core.excludesFile=/dev/null"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn files_that_git_tracks_are_captured_although_gitignore_names_them() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let repository = dir.path();
    let folder = repository.join("project");
    let all = [
        "model.bin",
        "other.bin",
        "data/kept/a",
        "data/kept/b",
        "data/x",
        "sub/.gitignore",
        "sub/list",
        "own/model.bin",
        "deep/venv/pyvenv.cfg",
    ];
    all.iter().for_each(|path| put(&folder, path, *path));
    put(&folder, ".gitignore", "*.bin\n/data/\ndeep/\n");
    put(&folder, "sub/.gitignore", "list\n");
    put(&folder, ".hostlerignore", "/own/\n");
    git(repository, &["init", "-q"]);
    let tracked = ["model.bin", "data/kept/a", "sub/list", "own/model.bin", "deep/venv/pyvenv.cfg"];
    let tracked: Vec<_> = tracked.iter().map(|path| format!("project/{path}")).collect();
    git(
        repository,
        &[&["add", "-f", "project/sub/.gitignore"], &*tracked.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
    );
    let expected = [
        ".gitignore",
        ".hostlerignore",
        "data",
        "data/kept",
        "data/kept/a",
        "deep",
        "deep/venv",
        "deep/venv/pyvenv.cfg",
        "model.bin",
        "sub",
        "sub/.gitignore",
        "sub/list",
    ];
    assert_eq!(paths(&capture(&folder).manifest), expected);
    // The same folder outside a repository.
    fs::rename(repository.join(".git"), repository.join("git")).expect("the test owns it");
    assert_eq!(paths(&capture(&folder).manifest), [".gitignore", ".hostlerignore", "sub", "sub/.gitignore"]);
}

#[test]
fn programs_that_a_repository_names_are_not_run() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (folder, ran) = (dir.path().join("folder"), dir.path().join("ran"));
    put(&folder, ".gitignore", "*.bin\n");
    put(&folder, "sub/.gitignore", "!*.bin\n");
    ["a.bin", "sub/b.bin"].iter().for_each(|path| put(&folder, path, *path));
    git(&folder, &["init", "-q"]);
    git(&folder, &["add", "-f", "."]);
    // To read this file of the index, git needs an object that only the remote has.
    git(&folder, &["update-index", "--skip-worktree", "sub/.gitignore"]);
    fs::remove_file(folder.join("sub/.gitignore")).expect("the test owns it");
    let object = blob_of(&folder, ":sub/.gitignore");
    fs::remove_file(folder.join(".git/objects").join(&object[..2]).join(&object[2..])).expect("the test owns it");
    put(&folder, ".git/hooks/post-index-change", format!("#!/bin/sh\ntouch {}\n", ran.display()));
    set_mode(&folder.join(".git/hooks/post-index-change"), 0o755);
    let program = format!("touch {};", ran.display());
    let ext = format!("ext::touch {}", ran.display());
    let local = folder.to_str().expect("the path is text");
    for (name, value, url) in [
        ("core.sshCommand", program.as_str(), "ssh://localhost/x"),
        ("protocol.ext.allow", "always", ext.as_str()),
        ("remote.origin.uploadpack", program.as_str(), local),
        ("core.fsmonitor", program.as_str(), "/nonexistent"),
        ("alias.ls-files", &format!("!{program}"), "/nonexistent"),
        ("pager.ls-files", program.as_str(), "/nonexistent"),
    ] {
        fs::write(folder.join(".git/config"), "").expect("writable");
        for (name, value) in [
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", url),
            (name, value),
        ] {
            git(&folder, &["config", name, value]);
        }
        assert!(paths(&capture(&folder).manifest).contains(&"a.bin".to_owned()), "git was not asked: {name}");
        assert!(!ran.exists(), "{name}");
    }
}

fn blob_of(folder: &Path, name: &str) -> String {
    let output = std::process::Command::new("git").args(["rev-parse", name]).current_dir(folder).output();
    String::from_utf8(output.expect("git is installed").stdout).expect("a digest").trim().to_owned()
}

#[test]
fn root_does_not_ask_git_in_a_repository_of_the_user_of_sudo() {
    const NAME: &str = "root_does_not_ask_git_in_a_repository_of_the_user_of_sudo";
    const USER: u32 = 65534;
    if std::env::var("SUDO_UID").ok() != Some(USER.to_string()) {
        let this = std::env::current_exe().expect("the test is a program");
        let mut again = std::process::Command::new(this);
        let output = again.args(["--exact", NAME]).env("SUDO_UID", USER.to_string()).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let repository = dir.path();
    for path in [".gitignore", "project/.gitignore"] {
        put(repository, path, "*.bin\n");
    }
    ["a.bin", "project/a.bin"].iter().for_each(|path| put(repository, path, *path));
    git(repository, &["init", "-q"]);
    git(repository, &["add", "-f", "."]);
    let tracks = |folder: &Path| paths(&capture(folder).manifest).contains(&"a.bin".to_owned());
    let give = |path: &Path, user| chown(path, Some(user), Some(user)).expect("needs root");
    assert!(tracks(repository) && tracks(&repository.join("project")));
    // The user's repository, also around a directory of root.
    [repository.to_owned(), repository.join(".git")].iter().for_each(|path| give(path, USER));
    assert!(!tracks(repository) && !tracks(&repository.join("project")));
    // The user's directory in a repository of root.
    [repository.to_owned(), repository.join(".git")].iter().for_each(|path| give(path, 0));
    give(&repository.join("project"), USER);
    assert!(tracks(repository) && !tracks(&repository.join("project")));
}

#[test]
fn files_that_ignore_rules_exclude_are_counted() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    put(folder, ".gitignore", "*.log\n/data/\n__pycache__/\n.venv\n");
    put(folder, ".hostlerignore", "notes\n");
    for (path, length) in [("a.log", 10), ("data/x/big", 5000), ("data/y", 20), ("notes", 300), ("main.py", 9000)] {
        put(folder, path, vec![0; length]);
    }
    // Defaults leave these out anyway.
    put(folder, ".venv/pyvenv.cfg", noise(1, 70_000));
    put(folder, "data/__pycache__/x.pyc", noise(1, 70_000));
    symlink("big", folder.join("data/x/link")).expect("writable");
    let scan = Scan::of(folder).expect("every entry can be captured");
    let ignored = scan.ignored();
    assert_eq!((ignored.files, ignored.bytes, ignored.has_more), (4, 5330, false));
    let largest = ignored.largest.as_ref().expect("files are excluded");
    assert_eq!((largest.path.as_slice(), largest.bytes), (b"data/x/big".as_slice(), 5000));
    let pattern = largest.pattern.clone().expect("a pattern can name it");
    assert_eq!(pattern, "!/data/");
    put(folder, ".hostlerignore", format!("notes\n{pattern}\n"));
    assert!(paths(&capture(folder).manifest).contains(&"data/x/big".to_owned()));
    let scan = Scan::of(folder).expect("every entry can be captured");
    let largest = scan.ignored().largest.as_ref().expect("files are excluded");
    assert_eq!((largest.path.as_slice(), &largest.pattern), (b"notes".as_slice(), &None));
}

#[test]
fn rules_above_the_folder_are_ignored() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    put(dir.path(), ".gitignore", "*\n");
    put(dir.path(), "folder/file", "");
    assert_eq!(paths(&capture(&dir.path().join("folder")).manifest), ["file"]);
}

#[test]
fn absolute_links_into_the_folder_are_captured_as_relative_links() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (folder, alias) = (dir.path().join("folder"), dir.path().join("alias"));
    put(&folder, "out/3/model", "");
    symlink(&folder, &alias).expect("writable");
    symlink(folder.join("out/3"), folder.join("latest")).expect("writable");
    symlink(alias.join("latest/model"), folder.join("out/model")).expect("writable");
    symlink(folder.join("../outside"), folder.join("escape")).expect("writable");
    let error = Scan::of(&alias).expect_err("a link leads out of the folder").to_string();
    assert!(error.contains("/../outside, which leads out") && !error.contains("latest"), "{error}");
    std::fs::remove_file(folder.join("escape")).expect("the test owns it");
    let manifest = capture(&alias).manifest;
    let target = |path: &str| match &manifest.entries.iter().find(|it| it.path == path.as_bytes()).expect(path).kind {
        EntryKind::Symlink { target } => String::from_utf8(target.clone()).expect("text"),
        kind => panic!("{kind:?}"),
    };
    assert_eq!((target("latest").as_str(), target("out/model").as_str()), ("out/3", "../latest/model"));
}

#[test]
fn all_uncapturable_entries_are_listed_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path().join("folder");
    put(&folder, "good", "");
    put(&folder, "sub/good", "");
    put(dir.path(), "outside", "");
    let _socket = UnixListener::bind(folder.join("sub/socket")).expect("writable");
    nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("writable");
    symlink("/etc/passwd", folder.join("absolute")).expect("writable");
    symlink("../outside", folder.join("escape")).expect("writable");
    symlink("../..", folder.join("sub/up")).expect("writable");
    symlink("sub/up/x", folder.join("through")).expect("writable");
    symlink("/ignored", folder.join("skipped")).expect("writable");
    put(&folder, ".gitignore", "skipped\n");
    let mut expected = vec![
        "absolute is a link to /etc/passwd, which leads out of the folder",
        "escape is a link to ../outside, which leads out of the folder",
        "pipe is a named pipe",
        "sub/socket is a socket",
        "sub/up is a link to ../.., which leads out of the folder",
        "through is a link to sub/up/x, which leads out of the folder",
    ];
    if nix::unistd::geteuid().is_root() {
        use nix::sys::stat::{Mode, SFlag, makedev, mknod};
        mknod(&folder.join("null"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).expect("root may make devices");
        expected.insert(2, "null is a device");
    }
    let error = Scan::of(&folder).expect_err("many entries cannot be captured");
    assert!(matches!(error, CaptureError::Uncapturable(_)));
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    assert_eq!(lines, expected);
}

#[test]
fn unreadable_entries_are_listed_before_any_file_is_read() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path();
    set_mode(folder, 0o755);
    put(folder, "public", "");
    put(folder, "private", "");
    put(folder, "closed/x", "");
    put(folder, "unsearchable/x", "");
    put(folder, "ignored", "");
    put(folder, ".gitignore", "ignored\n");
    for (name, mode) in [("private", 0o000), ("closed", 0o000), ("unsearchable", 0o444), ("ignored", 0o000)] {
        set_mode(&folder.join(name), mode);
    }
    let error = unprivileged(|| Scan::of(folder).expect_err("three entries are unreadable"));
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "closed cannot be read: permission denied",
            "private cannot be read: permission denied",
            "unsearchable/x cannot be read: permission denied",
        ]
    );
    for name in ["closed", "unsearchable"] {
        set_mode(&folder.join(name), 0o755);
    }
}

#[test]
fn missing_folder_is_a_clear_error() {
    let missing = Scan::of(Path::new("/nonexistent/folder")).expect_err("the folder does not exist");
    assert_eq!(missing.to_string(), "cannot read the folder /nonexistent/folder");
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    put(dir.path(), "file", "");
    assert!(matches!(Scan::of(&dir.path().join("file")), Err(CaptureError::Folder { .. })));
}

#[test]
fn edit_after_the_capture_is_detected_and_not_sent() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    put(dir.path(), "edited", noise(1, 1_200_000));
    put(dir.path(), "removed", noise(3, 1_200_000));
    let captured = capture(dir.path());
    let digests: Vec<_> = captured.sources.digests().collect();
    assert!(digests.iter().all(|digest| captured.read_chunk(digest).is_ok()));

    put(dir.path(), "edited", noise(2, 1_200_000));
    fs::remove_file(dir.path().join("removed")).expect("the test owns it");
    let errors: Vec<_> = digests.iter().filter_map(|digest| captured.read_chunk(digest).err()).collect();
    // The manifest itself is in memory; all other chunks have changed.
    assert_eq!(errors.len(), digests.len() - 1);
    assert!(errors.iter().all(|error| matches!(error, SourceError::Changed { .. })));
    let edited = dir.path().join("edited");
    let expected = format!("changed while it was being read: {}", edited.display());
    assert!(errors.iter().any(|error| error.to_string() == expected));
}

/// Captures `folder` while `write` runs again and again on another thread, and passes the captures to `check`.
fn capture_while(folder: &Path, write: impl Fn(u64) + Sync, check: impl Fn(&Capture)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(&write));
        let answers: Vec<_> = (0..10)
            .map(|_| {
                let capture = hostler_snapshot::capture(folder, &CaptureOptions::default(), &|_| ());
                capture.inspect(&check)
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        for answer in answers {
            answer.expect("the folder can be captured while a program writes to it");
        }
    });
}

/// Reads all bytes of the file `path` of a capture again, as an upload does.
fn bytes_of(capture: &Capture, path: &str) -> Vec<u8> {
    let entry = capture.manifest.entries.iter().find(|it| it.path == path.as_bytes()).expect("the file was captured");
    let EntryKind::File(content) = &entry.kind else { panic!("{path} is not a file") };
    let chunks = content.chunks.iter().map(|it| capture.read_chunk(&it.digest).expect("the bytes can be read again"));
    chunks.flatten().collect()
}

#[test]
fn growing_file_is_captured_up_to_its_length_at_the_start() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (big, log) = (noise(1, 1 << 20), dir.path().join("train.log"));
    put(dir.path(), "big", &big);
    put(dir.path(), "train.log", noise(2, 200_000));
    let append = |path: &Path, bytes: &[u8]| {
        let mut file = fs::OpenOptions::new().append(true).open(path).expect("the test owns it");
        file.write_all(bytes).expect("writable");
    };
    let write = |_| {
        append(&log, b"one more line\n");
        append(&dir.path().join("big"), b"more");
    };
    let start = noise(2, 200_000);
    capture_while(dir.path(), write, |capture| {
        let log = bytes_of(capture, "train.log");
        assert!(log.starts_with(&start) && log[start.len()..].iter().all(|byte| b"one more line\n".contains(byte)));
        assert!(bytes_of(capture, "big").starts_with(&big));
    });
}

#[test]
fn replaced_rewritten_and_temporary_files_are_read_again() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (folder, elsewhere) = (dir.path().join("folder"), dir.path().join("elsewhere"));
    fs::create_dir_all(&folder).expect("writable");
    fs::create_dir_all(&elsewhere).expect("writable");
    let state = |round: u64| vec![b'0' + (round % 10) as u8; 100_000 + (round % 7) as usize];
    put(&folder, "state.json", state(0));
    put(&folder, "moved.json", state(0));
    put(&folder, "rewritten", state(0));
    // A replacement from the same folder, a replacement from another one, and a file that is written in place.
    let write = |round| {
        let replace = |from: &Path, to: &str| {
            fs::write(from, state(round)).and_then(|()| fs::rename(from, folder.join(to))).expect("writable");
        };
        replace(&folder.join(format!(".state-{round}")), "state.json");
        replace(&elsewhere.join("new"), "moved.json");
        fs::write(folder.join("rewritten"), state(round)).expect("writable");
        std::thread::sleep(Duration::from_millis(3));
    };
    capture_while(&folder, write, |capture| {
        for path in ["state.json", "moved.json"] {
            let bytes = bytes_of(capture, path);
            assert!(
                bytes.len() >= 100_000 && bytes.iter().all(|byte| *byte == bytes[0]),
                "{path} is one of the states"
            );
        }
        bytes_of(capture, "rewritten");
    });
}

#[test]
fn file_renamed_after_the_scan_is_captured_under_its_new_name() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    for path in ["a", "b", "c/d"] {
        put(dir.path(), path, path);
    }
    let scan = Scan::of(dir.path()).expect("readable");
    fs::rename(dir.path().join("b"), dir.path().join("renamed")).expect("the test owns it");
    fs::remove_file(dir.path().join("c/d")).expect("the test owns it");
    let capture = scan.capture(&CaptureOptions::default(), &|_| ()).expect("the folder is scanned again");
    assert_eq!(paths(&capture.manifest), ["a", "c", "renamed"]);
    assert_eq!((capture.files, capture.files_read, capture.bytes), (2, 2, 2));
}

#[test]
fn file_replaced_between_two_scans_is_captured_with_its_new_content() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let at = |path: &str| dir.path().join(path);
    for (path, content) in [("a.json", "old"), ("b.json", "old"), ("c.json", "old"), ("z.tmp", "new")] {
        put(dir.path(), path, content);
    }
    // After the first three files have been read, they change, and the fourth vanishes.
    let write = |progress: hostler_snapshot::Progress| {
        if progress.files == 3 && at("z.tmp").exists() {
            fs::rename(at("z.tmp"), at("a.json")).expect("the test owns it");
            fs::write(at("b.json"), "longer").expect("the test owns it");
            fs::remove_file(at("c.json")).expect("the test owns it");
        }
    };
    let options = CaptureOptions { threads: 1, ..CaptureOptions::default() };
    let capture = Scan::of(dir.path()).and_then(|it| it.capture(&options, &write)).expect("it is scanned again");
    assert_eq!(paths(&capture.manifest), ["a.json", "b.json"]);
    assert_eq!((bytes_of(&capture, "a.json"), bytes_of(&capture, "b.json")), (b"new".to_vec(), b"longer".to_vec()));
}

#[test]
fn git_is_asked_only_in_the_first_scan() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    for path in [".gitignore", "a.bin", "sub/b.bin", "deep/er/c.bin", "z"] {
        put(dir.path(), path, "*.bin\n");
    }
    git(dir.path(), &["init", "-q"]);
    git(dir.path(), &["add", "-f", "."]);
    let scan = Scan::of(dir.path()).expect("readable");
    // The capture scans the folder again, which is not a repository by then.
    fs::remove_file(dir.path().join("z")).expect("the test owns it");
    fs::rename(dir.path().join(".git"), dir.path().join(".hostler")).expect("the test owns it");
    let capture = scan.capture(&CaptureOptions::default(), &|_| ()).expect("the folder is scanned again");
    let expected = [".gitignore", "a.bin", "deep", "deep/er", "deep/er/c.bin", "sub", "sub/b.bin"];
    assert_eq!(paths(&capture.manifest), expected);
    let scan = capture.scan_again().expect("readable");
    assert_eq!((scan.ignored().files, scan.bytes()), (0, 4 * "*.bin\n".len() as u64));
}

/// Sets a time old enough for the file to be remembered.
fn settle(path: &Path) {
    let then = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(path).expect("the file exists").set_modified(then).expect("the test owns it");
}

#[test]
fn unchanged_files_are_not_read_again() {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (kept, edited) = (dir.path().join("kept"), dir.path().join("edited"));
    for file in [&kept, &edited] {
        fs::write(file, "one").expect("writable");
        settle(file);
    }
    let again = |seen| {
        let options = CaptureOptions { seen, ..Default::default() };
        hostler_snapshot::capture(dir.path(), &options, &|_| ()).expect("every entry can be captured")
    };
    // Setting the time changed the ctime, which must also be old enough.
    let deadline = Instant::now() + Duration::from_secs(20);
    let first = loop {
        match again(Default::default()).seen {
            Some(seen) if seen.len() == 2 => break seen,
            _ => assert!(Instant::now() < deadline, "the capture does not remember both files"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(again(first.clone()).files_read, 0);
    assert!(again(first.clone()).seen.is_none(), "an unchanged folder gives nothing new to remember");
    assert_eq!(again(first.clone()).digest, again(Default::default()).digest);

    // Same size and restored modification time: only the ctime shows the change.
    fs::write(&edited, "two").expect("writable");
    settle(&edited);
    let second = again(first);
    assert_eq!(second.files_read, 1);
    assert_eq!(second.digest, again(Default::default()).digest);
}
