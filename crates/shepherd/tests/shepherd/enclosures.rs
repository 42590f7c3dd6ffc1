//! Tests of enclosures around existing processes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hostler_shepherd::cgroup::{Controller, Device, ExistingProcess, LeafSpec, Place, Tree};
use hostler_shepherd::{Enforcement, Options, pidfd_open};

use crate::common::{Leaves, directory, eventually, is_alive, pid_in};
use crate::limits::{groups, leaf};

/// A shell that waits for end of input before it executes `text`.
fn waiting(directory: &Path, text: &str) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("read line; {text}")]).current_dir(directory).stdin(Stdio::piped());
    command.spawn().expect("a shell")
}

fn let_go(child: &mut Child) {
    drop(child.stdin.take());
}

fn groups_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("alive")
}

fn options() -> Options {
    Options { memory_limit_bytes: Some(48 << 20), process_limit: Some(6), cpus: Some(vec![0]), ..Options::default() }
}

/// Creates an enclosure around the process with this pid.
fn around(pid: u32, spec: &LeafSpec, options: &Options) -> io::Result<ExistingProcess> {
    let pidfd = pidfd_open(pid)?;
    ExistingProcess::around(pid, pidfd.as_fd(), spec, options)
}

/// Waits until the enclosure is empty and removes it.
fn dispose(enclosure: ExistingProcess, leaf: &LeafSpec) {
    eventually("the enclosure is empty", || enclosure.is_empty());
    let mut enclosure = Some(enclosure);
    eventually("the enclosure can be removed", || {
        match enclosure.take().expect("the enclosure is not yet removed").remove() {
            Ok(()) => true,
            Err(_) => {
                enclosure = Some(ExistingProcess::open(leaf).expect("the leaf still exists"));
                false
            }
        }
    });
    assert!(groups(leaf).iter().all(|group| !group.exists()), "the leaf is removed");
}

#[test]
fn enclosed_process_and_its_later_children_are_limited_and_killed() {
    let dir = directory();
    let leaf = leaf();
    let own = groups_of(std::process::id());
    // A shell that cannot fork exits.
    let text = "nproc > cpus; setsid sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 600' &
        head -c 300000000 /dev/zero | tail > /dev/null; echo $? > hog
        (for n in 1 2 3 4 5 6 7 8; do sleep 600 & done) 2> /dev/null; echo 1 > full; wait";
    let mut child = waiting(dir.path(), text);
    let enclosure = around(child.id(), &leaf, &options()).expect("encloses");
    let limits = enclosure.limits();
    let enforced = Some(Enforcement::Enforced);
    assert_eq!(
        (&limits.cpus, &limits.memory, &limits.processes, &limits.devices),
        (&enforced, &enforced, &enforced, &None)
    );
    assert_eq!(groups_of(std::process::id()), own, "the calling process stays in its groups");
    let_go(&mut child);
    let inner = pid_in(dir.path(), "child");
    assert_eq!(groups_of(inner), groups_of(child.id()));
    assert_eq!(pid_in(dir.path(), "hog"), 137, "the OOM killer killed the process");
    assert_eq!(fs::read_to_string(dir.path().join("cpus")).expect("written"), "1\n");
    pid_in(dir.path(), "full");
    let members = fs::read_to_string(leaf.path.join("cgroup.procs")).expect("the file exists");
    assert_eq!(members.lines().count(), 5, "the limit of six includes the shell that exited: {members}");
    assert!(!enclosure.is_empty());
    enclosure.signal_all(libc::SIGTERM);
    child.wait().expect("ours");
    eventually("all processes except one end on SIGTERM", || {
        fs::read_to_string(leaf.path.join("cgroup.procs")).is_ok_and(|members| members == format!("{inner}\n"))
    });
    enclosure.kill().expect("can");
    eventually("all processes end", || !is_alive(inner));
    dispose(enclosure, &leaf);
}

#[test]
fn enclosure_of_an_earlier_agent_is_found_and_kept() {
    let dir = directory();
    let leaves = Leaves::new();
    let leaf = leaves.leaf("login-1");
    let mut child = waiting(dir.path(), "true");
    drop(around(child.id(), &leaf, &Options::default()).expect("encloses"));
    fs::create_dir(leaves.leaf("login-2").path).expect("ours");
    let mut names = leaves.tree.names("login-").expect("listed");
    names.sort();
    assert_eq!(names, ["login-1", "login-2"]);
    assert!(leaves.tree.names("other-").expect("listed").is_empty());
    let live = HashSet::from(["login-1".to_owned()]);
    assert_eq!(leaves.tree.sweep("login-", &live).expect("sweeps").removed, ["login-2"]);
    assert!(is_alive(child.id()));
    let again = ExistingProcess::open(&leaf).expect("the enclosure exists");
    assert!(!again.is_empty());
    let_go(&mut child);
    child.wait().expect("ours");
    dispose(again, &leaf);
    assert!(ExistingProcess::open(&leaf).is_err());
}

#[test]
fn failed_enclosure_restores_the_process_and_removes_the_leaf() {
    let dir = directory();
    let tree = Tree::find().expect("these tests need a writable cgroup2 hierarchy: run them as root");
    let mut child = waiting(dir.path(), "true");
    let before = groups_of(child.id());
    let refused = |leaf: &LeafSpec, options: &Options| {
        let error = around(child.id(), leaf, options).expect_err("the enclosure cannot be created");
        assert_eq!(groups_of(child.id()), before);
        assert!(groups(leaf).iter().all(|group| !group.exists()), "the leaf is removed");
        error.to_string()
    };
    // Other limits are applied before, so the process has already been moved.
    let mut without_rule = leaf();
    without_rule.controllers.insert(Controller::Devices, Place::V1("/proc/no/such/group".into()));
    let denied = Options { denied_devices: Some(vec![Device { major: 1, minor: 5 }]), ..options() };
    let reason = refused(&without_rule, &denied);
    assert!(reason.starts_with("cannot deny devices that the job does not hold: the devices controller"), "{reason}");
    let nowhere = LeafSpec { path: PathBuf::from("/proc/no/such/leaf"), ..leaf() };
    refused(&nowhere, &options());

    // A leaf in use is refused.
    let leaf = leaf();
    let mut other = waiting(dir.path(), "true");
    let enclosure = around(other.id(), &leaf, &Options::default()).expect("encloses");
    let error = around(child.id(), &leaf, &Options::default()).expect_err("the leaf is in use");
    assert_eq!((error.raw_os_error(), groups_of(child.id()) == before), (Some(libc::EBUSY), true));
    for process in [&mut other, &mut child] {
        let_go(process);
        process.wait().expect("ours");
    }
    dispose(enclosure, &leaf);

    let error = around(child.id(), &leaf, &options()).expect_err("the process has ended");
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    assert!(!leaf.path.exists() && tree.path().exists());
}

#[test]
fn enclosed_process_cannot_open_denied_devices() {
    let dir = directory();
    let leaf = leaf();
    let mut child = waiting(dir.path(), "(: < /dev/zero) && echo 1 > opened; (: < /dev/null) && echo 1 > over");
    let denied = Options { denied_devices: Some(vec![Device { major: 1, minor: 5 }]), ..Options::default() };
    let enclosure = around(child.id(), &leaf, &denied).expect("encloses");
    assert_eq!(enclosure.limits().devices, Some(Enforcement::Enforced));
    let_go(&mut child);
    child.wait().expect("ours");
    assert!(dir.path().join("over").exists() && !dir.path().join("opened").exists());
    dispose(enclosure, &leaf);
}
