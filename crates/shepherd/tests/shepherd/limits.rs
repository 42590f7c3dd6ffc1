//! Tests of limits that the kernel enforces, and of their isolation from other jobs.
//!
//! On machines with cgroups of version 2 only, the controllers must be delegated to the group of these tests.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use hostler_shepherd::cgroup::{Controller, Device, LeafSpec, Place, Tree};
use hostler_shepherd::{Cause, Enforcement, Event, Status};

use crate::common::{command, directory, drop_and_end, eventually, finish, finished, run, script, start_run, stdout};

const MEBIBYTE: u64 = 1 << 20;

/// A leaf of the real tree with a unique name.
pub(crate) fn leaf() -> LeafSpec {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let tree = Tree::find().expect("these tests need a writable cgroup2 hierarchy: run them as root");
    for controller in Controller::ALL {
        assert_eq!(tree.missing(controller), None, "these tests need every controller: run them as root");
    }
    tree.leaf(&format!("limits-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))).expect("plain")
}

pub(crate) fn groups(leaf: &LeafSpec) -> Vec<PathBuf> {
    let v1 = leaf.controllers.values().filter_map(|place| match place {
        Place::V1(group) => Some(group.clone()),
        Place::Unified | Place::Missing(_) => None,
    });
    v1.chain([leaf.path.clone()]).collect()
}

#[test]
fn job_above_its_memory_limit_is_killed_without_affecting_others() {
    let (dir, other) = (directory(), directory());
    let leaf = leaf();
    let mut neighbour = start_run(&script(other.path(), "sleep 1; echo unharmed"));
    // `tail` keeps its last line in memory, and this input has only one line.
    let mut launch = script(dir.path(), "head -c 300000000 /dev/zero | tail > /dev/null");
    launch.options.memory_limit_bytes = Some(32 * MEBIBYTE);
    launch.options.leaf = Some(leaf.clone());
    let record = run(&launch);
    assert_eq!(record.limits.memory, Some(Enforcement::Enforced));
    // The kernel kills `tail`, and sometimes the shell as well, when another process asks for memory at the same time.
    assert_eq!((record.oom_kill, record.status.exit_code()), (Some(true), 137));
    let peak = record.memory_peak_bytes.expect("the controller counts");
    assert!(peak > 24 * MEBIBYTE && peak <= 32 * MEBIBYTE, "{peak}");
    assert!(groups(&leaf).iter().all(|group| !group.exists()), "the leaf is removed");
    finish(&mut neighbour, other.path());
    assert_eq!(stdout(other.path()), "unharmed\n");
}

#[test]
fn oom_killer_prefers_the_job_to_its_shepherd() {
    let dir = directory();
    let file = PathBuf::from(format!("/dev/shm/hostler-test-{}", std::process::id()));
    let text = format!("dd if=/dev/zero of='{}' bs=1M count=64 2> /dev/null", file.display());
    let mut launch = command(dir.path(), ["sh", "-c", &text]);
    launch.options.memory_limit_bytes = Some(24 * MEBIBYTE);
    launch.options.leaf = Some(leaf());
    let record = run(&launch);
    fs::remove_file(&file).expect("the file exists");
    assert_eq!((record.oom_kill, record.status.exit_code()), (Some(true), 137));
}

#[test]
fn reused_leaf_changes_its_limits_and_killed_leaf_is_replaced() {
    let leaf = leaf();
    let dirs: Vec<_> = (0..4).map(|_| directory()).collect();
    let launch = |index: usize, memory: u64, text: &str| {
        let mut launch = script(dirs[index].path(), text);
        launch.options.linger = Some(crate::common::DEADLINE);
        launch.options.memory_limit_bytes = Some(memory * MEBIBYTE);
        launch.options.leaf = Some(leaf.clone());
        launch
    };
    let mut shepherd = start_run(&launch(0, 32, "exit 0"));
    assert_eq!(finished(&mut shepherd).limits.memory, Some(Enforcement::Enforced));
    shepherd
        .launch_next(&launch(1, 128, "head -c 50000000 /dev/zero | tail > /dev/null"))
        .expect("the shepherd waits for another run");
    let higher = finished(&mut shepherd);
    assert_eq!((higher.limits.memory, higher.status), (Some(Enforcement::Enforced), Status::Exited { code: 0 }));
    shepherd
        .launch_next(&launch(2, 32, "trap '' TERM; echo ready; while :; do sleep 1; done"))
        .expect("the shepherd waits for another run");
    let output = dirs[2].path().join("stdout");
    eventually("the job runs", || fs::read_to_string(&output).is_ok_and(|text| text == "ready\n"));
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    assert_eq!(finished(&mut shepherd).cause, Some(Cause::Cancelled));
    shepherd.launch_next(&launch(3, 32, "sleep 0.2; exit 3")).expect("the shepherd waits for another run");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 3 });
    drop_and_end(shepherd);
}

#[test]
fn fork_bomb_is_limited_and_killed() {
    let dir = directory();
    // Not a shell's bomb: shells that cannot fork exit, so the bomb could end before the check.
    let mut launch = script(dir.path(), "exec perl -e 'for (;;) { defined(fork) or sleep(1) }'");
    launch.options.process_limit = Some(40);
    launch.options.leaf = Some(leaf());
    let mut shepherd = start_run(&launch);
    eventually("the fork bomb has reached its limit", || {
        shepherd.status().expect("the shepherd responds").processes > 20
    });
    assert!(shepherd.status().expect("the shepherd runs").processes <= 40);
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.limits.processes, Some(Enforcement::Enforced));
    assert!(record.unkillable.is_empty());
}

#[test]
fn job_cannot_use_other_cpus() {
    let dir = directory();
    let mut launch = script(dir.path(), "nproc; taskset -p -c 0,1 $$ > /dev/null 2>&1; nproc");
    launch.options.cpus = Some(vec![1]);
    launch.options.leaf = Some(leaf());
    let record = run(&launch);
    assert_eq!(record.limits.cpus, Some(Enforcement::Enforced));
    assert_eq!(stdout(dir.path()), "1\n1\n");

    let dir = directory();
    let mut launch = command(dir.path(), ["true"]);
    launch.options.cpus = Some(vec![4000]);
    launch.options.leaf = Some(leaf());
    let record = run(&launch);
    let Some(Enforcement::Advisory(reason)) = record.limits.cpus else {
        panic!("a CPU that does not exist was accepted")
    };
    assert!(reason.contains("the cpuset controller refuses"), "{reason}");
}

#[test]
fn tasks_in_one_leaf_have_separate_memory_peaks() {
    let dirs = [directory(), directory()];
    let leaf = leaf();
    let launch = |index: usize, text: &str| {
        let mut launch = script(dirs[index].path(), text);
        launch.options.linger = Some(crate::common::DEADLINE);
        launch.options.memory_limit_bytes = Some(256 * MEBIBYTE);
        launch.options.leaf = Some(leaf.clone());
        launch
    };
    let mut shepherd = start_run(&launch(0, "head -c 60000000 /dev/zero | tail > /dev/null"));
    let first = finished(&mut shepherd).memory_peak_bytes.expect("counted");
    shepherd.launch_next(&launch(1, "true")).expect("the shepherd waits for another run");
    assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
    let second = finished(&mut shepherd).memory_peak_bytes.expect("counted again from zero");
    assert!(first > 50 * MEBIBYTE && second < 30 * MEBIBYTE, "the peaks are {first} and {second}");
    let in_v1 = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.is_empty());
    assert!(groups(&leaf).iter().any(in_v1) || leaf.path.exists(), "the idle shepherd keeps its leaf");
    drop_and_end(shepherd);
    assert!(groups(&leaf).iter().all(|group| !group.exists()), "the leaf is removed with the shepherd");
}

/// Leaves that can deny devices: by a BPF program as with version 2, and by the version 1 controller if this machine
/// has it.
fn leaves_that_deny() -> Vec<LeafSpec> {
    let by_program = |mut leaf: LeafSpec| {
        leaf.controllers.insert(Controller::Devices, Place::Unified);
        leaf
    };
    let found = leaf();
    match found.controllers[&Controller::Devices] {
        Place::V1(_) => vec![found, by_program(leaf())],
        Place::Unified | Place::Missing(_) => vec![found],
    }
}

/// `/dev/zero` and `/dev/full`, which tests can do without.
const ZERO: Device = Device { major: 1, minor: 5 };
const FULL: Device = Device { major: 1, minor: 7 };

/// Creates device nodes for both devices, and a script that opens the devices under several names, also from a
/// background child, and tries to create a node.
fn tries_devices(directory: &std::path::Path) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    for (name, device) in [("mine", FULL), ("theirs", ZERO)] {
        let number = makedev(device.major.into(), device.minor.into());
        mknod(&directory.join(name), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), number)
            .expect("creating device nodes needs root");
        fs::File::open(directory.join(name)).expect("these tests need a directory whose devices can be opened");
    }
    let text = "for it in mine theirs /dev/zero; do (: < $it) && echo $it; done; \
        sh -c '(: < theirs) && echo child' & wait; mknod again c 1 5 && echo again; : < /dev/null && echo null";
    fs::write(directory.join("try"), text).expect("writable");
}

#[test]
fn denied_device_cannot_be_opened_under_any_name() {
    for leaf in leaves_that_deny() {
        let dir = directory();
        tries_devices(dir.path());
        let mut launch = script(dir.path(), "sh ./try");
        launch.options.denied_devices = Some(vec![ZERO]);
        launch.options.leaf = Some(leaf.clone());
        let record = run(&launch);
        assert_eq!(record.limits.devices, Some(Enforcement::Enforced), "{leaf:?}");
        let errors = fs::read_to_string(dir.path().join("stderr")).expect("the file exists");
        assert_eq!(stdout(dir.path()), "mine\nnull\n", "{leaf:?}: {errors}");
        assert!(errors.contains("Operation not permitted"), "{errors}");
        assert!(groups(&leaf).iter().all(|group| !group.exists()), "the leaf is removed");
    }
}

#[test]
fn each_run_in_a_reused_leaf_has_its_own_denied_devices() {
    for leaf in leaves_that_deny() {
        let dirs: Vec<_> = (0..3).map(|_| directory()).collect();
        let launch = |index: usize, denied: Option<Vec<Device>>| {
            let dir: &tempfile::TempDir = &dirs[index];
            tries_devices(dir.path());
            let mut launch = script(dir.path(), "sh ./try 2> /dev/null");
            launch.options.linger = Some(crate::common::DEADLINE);
            launch.options.denied_devices = denied;
            launch.options.leaf = Some(leaf.clone());
            launch
        };
        let mut shepherd = start_run(&launch(0, Some(vec![ZERO])));
        assert_eq!(finished(&mut shepherd).limits.devices, Some(Enforcement::Enforced));
        shepherd.launch_next(&launch(1, Some(vec![FULL]))).expect("the shepherd waits for another run");
        assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
        assert_eq!(finished(&mut shepherd).limits.devices, Some(Enforcement::Enforced));
        shepherd.launch_next(&launch(2, None)).expect("the shepherd waits for another run");
        assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
        assert_eq!(finished(&mut shepherd).limits.devices, None);
        let opened: Vec<String> = dirs.iter().map(|dir| stdout(dir.path())).collect();
        assert_eq!(opened[0], "mine\nnull\n", "{leaf:?}");
        assert_eq!(opened[1], "theirs\n/dev/zero\nchild\nagain\nnull\n", "{leaf:?}");
        assert_eq!(opened[2], "mine\ntheirs\n/dev/zero\nchild\nagain\nnull\n", "{leaf:?}");
        drop_and_end(shepherd);
    }
}

#[test]
fn program_does_not_start_if_denying_devices_fails() {
    let dir = directory();
    let mut launch = script(dir.path(), "echo started");
    let mut leaf = leaf();
    leaf.controllers.insert(Controller::Devices, Place::V1("/proc/no/such/group".into()));
    launch.options.denied_devices = Some(vec![ZERO]);
    launch.options.leaf = Some(leaf);
    let record = run(&launch);
    let Status::StartFailed { message, code: 126 } = &record.status else { panic!("the run started: {record:?}") };
    assert!(message.contains("cannot deny devices that the job does not hold: the devices controller"), "{message}");

    // If it is known in advance that devices cannot be denied, the limit is reported as advisory.
    let dir = directory();
    let mut launch = script(dir.path(), "echo started");
    launch.options.denied_devices = Some(vec![ZERO]);
    let record = run(&launch);
    assert_eq!(record.limits.devices, Some(Enforcement::Advisory("no leaf was requested".to_owned())));
    assert_eq!(stdout(dir.path()), "started\n");
}
