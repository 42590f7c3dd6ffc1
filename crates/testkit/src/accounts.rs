//! Private copies of the machine's account files, with system accounts only. A test can use all other names and numbers
//! for its own users, and its accounts disappear with the copies.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hostler_sys::{bind, unshare_mounts};
use nix::unistd::geteuid;

/// The first uid and gid of people.
const FIRST_PERSON: u32 = 1_000;

/// The uid of `nobody` and the gid of `nogroup`.
const NOBODY: u32 = 65_534;

/// Files in `/etc` with a line for each account or group.
const DATABASES: [&str; 4] = ["passwd", "shadow", "group", "gshadow"];

/// The lines of system accounts and groups in a database of this machine, e.g. `passwd`.
fn system_accounts(database: &str) -> String {
    let read = |file: &str| {
        let bytes = fs::read(Path::new("/etc").join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    // Only these two databases have numbers.
    let numbers = read(if database.starts_with('g') { "group" } else { "passwd" });
    let is_of_system = |line: &&str| {
        let id = line.split(':').nth(2).and_then(|id| id.parse().ok());
        id.is_some_and(|id: u32| id < FIRST_PERSON || id == NOBODY)
    };
    let names: BTreeSet<String> = numbers.lines().filter(is_of_system).map(name).collect();
    read(database).lines().filter(|line| names.contains(&name(line))).map(|line| format!("{line}\n")).collect()
}

/// Removes the accounts of people from a copy of `/etc`.
pub(crate) fn remove_people(etc: &Path) {
    for database in DATABASES.into_iter().filter(|database| etc.join(database).exists()) {
        fs::write(etc.join(database), system_accounts(database)).expect("the copy is writable");
    }
}

/// Hides the accounts of people from this thread and its later children. Does nothing without root, or when it was done.
///
/// # Panics
/// If the kernel refuses.
pub fn hide_people_for_this_thread() {
    thread_local!(static IS_DONE: Cell<bool> = const { Cell::new(false) });
    if geteuid().is_root() && !IS_DONE.replace(true) {
        replace_people_for_this_thread(&[]);
    }
}

/// The account of a person in a test.
#[derive(Debug, Clone)]
pub struct Person {
    /// Name of the user and of the user's group.
    pub name: String,
    /// Uid and gid.
    pub id: u32,
    pub home: PathBuf,
}

/// Replaces the accounts of people by others, for this thread and its later children.
///
/// # Panics
/// If the kernel refuses, e.g. without root.
pub fn replace_people_for_this_thread(people: &[Person]) {
    unshare_mounts().expect("root has permission");
    let [mut passwd, mut group] = ["passwd", "group"].map(system_accounts);
    for Person { name, id, home } in people {
        passwd.push_str(&format!("{name}:x:{id}:{id}::{}:/bin/sh\n", home.display()));
        group.push_str(&format!("{name}:x:{id}:\n"));
    }
    // The mounts keep the files until the last process that sees them has ended.
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (database, content) in [("passwd", passwd), ("group", group)] {
        let copy = directory.path().join(database);
        fs::write(&copy, content).expect("the test owns the directory");
        fs::set_permissions(&copy, Permissions::from_mode(0o644)).expect("the test owns the file");
        bind(&copy, &Path::new("/etc").join(database)).expect("root has permission");
    }
}
