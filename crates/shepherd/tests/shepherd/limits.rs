//! What the kernel holds a job to, and that its neighbours do not notice.
//!
//! On a machine of version 2 only, the controllers must be delegated to the group of these tests.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use hostler_shepherd::cgroup::{Controller, Device, LeafSpec, Place, Tree};
use hostler_shepherd::{Cause, Enforcement, Event, Status};

use crate::common::{command, directory, drop_and_end, eventually, finish, finished, run, script, start_run, stdout};

const MEBIBYTE: u64 = 1 << 20;

/// A leaf of the real tree with a name of its own.
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
fn a_memory_hog_is_killed_alone_and_the_verdict_has_its_figure() {
    let (dir, other) = (directory(), directory());
    let leaf = leaf();
    let mut neighbour = start_run(&script(other.path(), "sleep 1; echo unharmed"));
    // `tail` keeps its last line in memory, and this input has only one.
    let mut launch = script(dir.path(), "head -c 300000000 /dev/zero | tail > /dev/null");
    launch.options.memory_limit_bytes = Some(32 * MEBIBYTE);
    launch.options.leaf = Some(leaf.clone());
    let record = run(&launch);
    assert_eq!(record.limits.memory, Some(Enforcement::Enforced));
    assert_eq!((record.oom_kill, record.status), (Some(true), Status::Exited { code: 137 }));
    let peak = record.memory_peak_bytes.expect("the controller counts");
    assert!(peak > 24 * MEBIBYTE && peak <= 32 * MEBIBYTE, "{peak}");
    assert!(groups(&leaf).iter().all(|group| !group.exists()), "nothing of the leaf is left");
    finish(&mut neighbour, other.path());
    assert_eq!(stdout(other.path()), "unharmed\n");
}

#[test]
fn a_job_that_fills_a_file_in_memory_is_killed_and_its_shepherd_is_not() {
    let dir = directory();
    let file = PathBuf::from(format!("/dev/shm/hostler-test-{}", std::process::id()));
    let text = format!("dd if=/dev/zero of='{}' bs=1M count=64 2> /dev/null", file.display());
    let mut launch = command(dir.path(), ["sh", "-c", &text]);
    launch.options.memory_limit_bytes = Some(24 * MEBIBYTE);
    launch.options.leaf = Some(leaf());
    let record = run(&launch);
    fs::remove_file(&file).expect("it was begun");
    assert_eq!((record.oom_kill, record.status.exit_code()), (Some(true), 137));
}

#[test]
fn a_reused_leaf_takes_higher_and_lower_limits_and_one_that_was_killed_is_made_anew() {
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
    shepherd.launch_next(&launch(1, 128, "head -c 50000000 /dev/zero | tail > /dev/null")).expect("it lingers");
    let higher = finished(&mut shepherd);
    assert_eq!((higher.limits.memory, higher.status), (Some(Enforcement::Enforced), Status::Exited { code: 0 }));
    shepherd.launch_next(&launch(2, 32, "trap '' TERM; echo ready; while :; do sleep 1; done")).expect("it lingers");
    let output = dirs[2].path().join("stdout");
    eventually("it runs", || fs::read_to_string(&output).is_ok_and(|text| text == "ready\n"));
    shepherd.kill(Cause::Cancelled).expect("there");
    assert_eq!(finished(&mut shepherd).cause, Some(Cause::Cancelled));
    shepherd.launch_next(&launch(3, 32, "sleep 0.2; exit 3")).expect("it lingers");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 3 });
    drop_and_end(shepherd);
}

#[test]
fn a_fork_bomb_is_contained_and_ended() {
    let dir = directory();
    // Each leaves a sleeper behind: shells that can fork no more give up, and the bomb would be over before anybody looks.
    let mut launch = script(dir.path(), "f() { sleep 60 & f | f & }; f; exec sleep 60");
    launch.options.process_limit = Some(40);
    launch.options.leaf = Some(leaf());
    let mut shepherd = start_run(&launch);
    eventually("it has reached its limit", || shepherd.status().expect("the shepherd is well").processes > 20);
    assert!(shepherd.status().expect("there").processes <= 40);
    shepherd.kill(Cause::Cancelled).expect("there");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.limits.processes, Some(Enforcement::Enforced));
    assert!(record.unkillable.is_empty());
}

#[test]
fn a_job_cannot_leave_its_cpus() {
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
    let Some(Enforcement::Advisory(reason)) = record.limits.cpus else { panic!("there is no such CPU") };
    assert!(reason.contains("the cpuset controller refuses"), "{reason}");
}

#[test]
fn tasks_in_one_leaf_have_a_peak_each() {
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
    shepherd.launch_next(&launch(1, "true")).expect("it lingers");
    assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
    let second = finished(&mut shepherd).memory_peak_bytes.expect("counted anew");
    assert!(first > 50 * MEBIBYTE && second < 30 * MEBIBYTE, "{first} {second}");
    let in_v1 = |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| !text.is_empty());
    assert!(groups(&leaf).iter().any(in_v1) || leaf.path.exists(), "it waits in its leaf");
    drop_and_end(shepherd);
    assert!(groups(&leaf).iter().all(|group| !group.exists()), "and takes it along");
}

/// A leaf that is denied devices by a program, as on machines of version 2, and one that is by the controller of version 1 where this
/// machine has it.
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

/// `/dev/zero` and `/dev/full`, which nobody misses.
const ZERO: Device = Device { major: 1, minor: 5 };
const FULL: Device = Device { major: 1, minor: 7 };

/// Opens both devices under another name, the first one also from a child in the background, and tries to make a name.
fn tries_devices(directory: &std::path::Path) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    for (name, device) in [("mine", FULL), ("theirs", ZERO)] {
        let number = makedev(device.major.into(), device.minor.into());
        mknod(&directory.join(name), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), number).expect("as root");
        fs::File::open(directory.join(name)).expect("these tests need a directory whose devices can be opened");
    }
    let text = "for it in mine theirs /dev/zero; do (: < $it) && echo $it; done; \
        sh -c '(: < theirs) && echo child' & wait; mknod again c 1 5 && echo again; : < /dev/null && echo null";
    fs::write(directory.join("try"), text).expect("writable");
}

#[test]
fn a_device_that_is_denied_cannot_be_opened_under_any_name() {
    for leaf in leaves_that_deny() {
        let dir = directory();
        tries_devices(dir.path());
        let mut launch = script(dir.path(), "sh ./try");
        launch.options.denied_devices = Some(vec![ZERO]);
        launch.options.leaf = Some(leaf.clone());
        let record = run(&launch);
        assert_eq!(record.limits.devices, Some(Enforcement::Enforced), "{leaf:?}");
        let errors = fs::read_to_string(dir.path().join("stderr")).expect("there");
        assert_eq!(stdout(dir.path()), "mine\nnull\n", "{leaf:?}: {errors}");
        assert!(errors.contains("Operation not permitted"), "{errors}");
        assert!(groups(&leaf).iter().all(|group| !group.exists()), "nothing of the leaf is left");
    }
}

#[test]
fn the_next_run_in_a_leaf_is_denied_its_own_devices() {
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
        shepherd.launch_next(&launch(1, Some(vec![FULL]))).expect("it lingers");
        assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
        assert_eq!(finished(&mut shepherd).limits.devices, Some(Enforcement::Enforced));
        shepherd.launch_next(&launch(2, None)).expect("it lingers");
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
fn a_program_that_could_not_be_kept_from_devices_does_not_start() {
    let dir = directory();
    let mut launch = script(dir.path(), "echo started");
    let mut leaf = leaf();
    leaf.controllers.insert(Controller::Devices, Place::V1("/proc/no/such/group".into()));
    launch.options.denied_devices = Some(vec![ZERO]);
    launch.options.leaf = Some(leaf);
    let record = run(&launch);
    let Status::StartFailed { message, code: 126 } = &record.status else { panic!("it started: {record:?}") };
    assert!(message.contains("cannot deny devices that the job does not hold: the devices controller"), "{message}");

    // Where it is known beforehand that nothing can be denied, that is advice, and said.
    let dir = directory();
    let mut launch = script(dir.path(), "echo started");
    launch.options.denied_devices = Some(vec![ZERO]);
    let record = run(&launch);
    assert_eq!(record.limits.devices, Some(Enforcement::Advisory("no leaf was requested".to_owned())));
    assert_eq!(stdout(dir.path()), "started\n");
}
