//! Tests that arbitrary file contents give a consistent description of a machine.

use std::collections::BTreeSet;
use std::path::Path;

use hostler_discovery::{Caps, Fixture, GpuPick, Machine, Source};
use hostler_model::CpuSet;
use proptest::prelude::*;

/// Recorded machines. A test replaces the contents of their files.
const MACHINES: [&str; 9] = ["laptop", "server", "board", "hybrid", "container", "gaps", "nvidia", "amd", "bare"];

fn fixture(name: &str) -> Fixture {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.toml"));
    Fixture::parse(&std::fs::read_to_string(path).expect("the fixture file exists")).expect("the fixture file is valid")
}

/// The paths of the files of a fixture.
fn paths(fixture: &Fixture) -> Vec<String> {
    let document: toml::Table = fixture.to_toml().parse().expect("TOML");
    let directories = document["files"].as_table().expect("files").iter();
    let files = |directory: &str, files: &toml::Value| -> Vec<String> {
        files.as_table().expect("a directory").keys().map(|name| format!("{directory}/{name}")).collect()
    };
    directories.flat_map(|(directory, content)| files(directory, content)).collect()
}

/// Contents of a file: numbers near limits, lists, lines of other files, or arbitrary text.
fn content() -> impl Strategy<Value = String> {
    prop_oneof![
        prop_oneof![
            Just(""),
            Just("-1"),
            Just("0"),
            Just("4294967295"),
            Just("4294967296"),
            Just("18446744073709551615"),
            Just("-9223372036854775808"),
            Just("9223372036854775807"),
            Just("max"),
            Just("max 0"),
            Just("1 0"),
            Just("0-65535"),
            Just("65535"),
            Just("65536"),
            Just("7-3"),
            Just("0-"),
            Just(","),
            Just("0,,1"),
            Just("9223372036854775807 1"),
            Just("0::/../.."),
            Just("0::"),
            Just("MemTotal: 18014398509481983 kB"),
            Just("Cpus_allowed_list:\t65535"),
            Just("Device Minor: 4294967295"),
            Just("DeviceFileMinor: x"),
            Just(
                "simd_count 1\ndrm_render_minor 18446744073709551615\nlocation_id 18446744073709551615\ndomain 99999999"
            ),
            Just("1 2 3 / /sys/fs/cgroup rw - cgroup2 x rw"),
            Just(" - cgroup2"),
            Just("heap_type 1\nsize_in_bytes 18446744073709551615"),
        ]
        .prop_map(str::to_owned),
        "[0-9,-]{0,12}",
        "[a-zA-Z_]{1,12}[: ]{1,2}[0-9]{1,20}( kB)?",
        "\\PC{0,40}",
        (1..2000_usize).prop_map(|times| "\u{0}7, -\n".repeat(times)),
    ]
}

fn holds_together(machine: &Machine) {
    let ids: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    assert_eq!(ids.len() as usize, machine.cpus.len(), "a CPU is listed twice");
    assert!(!machine.usable.is_empty() && ids.is_superset(&machine.usable), "{machine:?}");
    if let Some(quota) = machine.quota_millicpus {
        assert!(u64::from(machine.usable.len()) <= (quota / 1000).max(1), "{machine:?}");
    }
    let memory = machine.memory;
    assert!(memory.limit_bytes <= memory.total_bytes, "{memory:?}");
    assert_eq!(memory.usable_bytes, memory.limit_bytes - memory.reserved_bytes);
    let uuids: BTreeSet<_> = machine.gpus.iter().map(|gpu| &gpu.uuid).collect();
    assert_eq!(uuids.len(), machine.gpus.len(), "a GPU is listed twice: {:?}", machine.gpus);
    assert!(machine.gpus.iter().enumerate().all(|(index, gpu)| gpu.index == index as u32 && !gpu.devices.is_empty()));
}

proptest! {
    #[test]
    fn garbage_in_files_gives_a_consistent_machine(
        name in proptest::sample::select(MACHINES.to_vec()),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), content()), 1..12),
    ) {
        let mut fixture = fixture(name);
        let paths = paths(&fixture);
        for (path, content) in changes {
            let path: &String = path.get(&paths);
fixture.insert(path, &content);
        }
        let machine = Machine::of(&Source::fixture(fixture.clone()));
        holds_together(&machine);
        prop_assert_eq!(Machine::of(&Source::fixture(fixture)), machine, "the same files give the same answer");
    }

    #[test]
    fn caps_only_reduce(
        name in proptest::sample::select(MACHINES.to_vec()),
        cpus in proptest::option::of(0..200_u32),
        memory_bytes in proptest::option::of(any::<u64>()),
        gpus in proptest::option::of(proptest::collection::vec((0..6_u32).prop_map(GpuPick::Index), 0..4)),
    ) {
        let machine = Machine::of(&Source::fixture(fixture(name)));
        let caps = Caps { cpus, memory_bytes, gpus };
        let capped = machine.clone().capped(&caps);
        prop_assert!(machine.usable.is_superset(&capped.usable));
        prop_assert_eq!(capped.usable.len(), machine.usable.len().min(cpus.unwrap_or(u32::MAX)));
        prop_assert!(capped.memory.usable_bytes <= machine.memory.usable_bytes);
        prop_assert!(capped.gpus.iter().all(|gpu| machine.gpus.contains(gpu)));
        prop_assert_eq!(&capped.clone().capped(&caps).usable, &capped.usable);
    }

    #[test]
    fn arbitrary_text_is_parsed_or_refused(text in "\\PC{0,200}") {
        if let Ok(fixture) = Fixture::parse(&text) {
            holds_together(&Machine::of(&Source::fixture(fixture)));
        }
    }
}

#[test]
fn cyclic_links_and_endless_devices_do_not_hang() {
    let root = tempfile::tempdir().expect("a directory");
    let make = |path: &str| std::fs::create_dir_all(root.path().join(path)).expect("a directory");
    make("sys/devices/system/node");
    make("sys/class/drm");
    make("proc/self");
    for (link, target) in [
        ("sys/devices/system/cpu", "cpu"),
        ("sys/devices/system/node/node0", "."),
        ("sys/class/drm/renderD128", "../drm"),
        ("proc/self/status", "../self/status"),
        ("proc/meminfo", "/dev/zero"),
    ] {
        std::os::unix::fs::symlink(target, root.path().join(link)).expect("a link");
    }
    let machine = Machine::of(&Source::directory(root.path()));
    holds_together(&machine);
    assert_eq!((machine.usable.len(), machine.memory.usable_bytes), (1, 0));
}
