//! Tests queries of NVIDIA's library NVML, with a simulated library: compiled C that is loaded like the driver's
//! library.

#![cfg(feature = "nvml")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hostler_discovery::{Fixture, Machine, Source};
use tempfile::TempDir;

/// Compiles a simulated NVML library with this behaviour.
fn library(kind: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", &format!("-D{kind}"), "-o"]).arg(&library).arg(source);
    let status = compiler.status().expect("a C compiler is installed");
    assert!(status.success());
    (directory, library)
}

/// A machine with NVIDIA's driver and four cards; the third card has MIG parts.
fn driver() -> Fixture {
    let mut fixture = Fixture::default();
    fixture.insert("/sys/devices/system/cpu/online", "0-3");
    fixture.insert("/proc/meminfo", "MemTotal: 8388608 kB");
    fixture.insert_device("/dev/nvidiactl", 195, 255);
    fixture.insert_device("/dev/nvidia-uvm", 507, 0);
    for card in 0..4 {
        fixture.insert_device(&format!("/dev/nvidia{card}"), 195, card);
        let address = format!("0000:{:02x}:00.0", 100 + card);
        let information = format!("Model: NVIDIA H200\nGPU UUID: GPU-{}\nDevice Minor: {card}\n", 100 + card);
        fixture.insert(&format!("/proc/driver/nvidia/gpus/{address}/information"), &information);
        fixture.insert(&format!("/sys/bus/pci/devices/{address}/numa_node"), "1");
    }
    for (place, minor) in [(1, 30), (3, 39), (4, 48)] {
        let part = format!("/proc/driver/nvidia/capabilities/gpu2/mig/gi{place}");
        fixture.insert(&format!("{part}/access"), &format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292"));
        fixture.insert(&format!("{part}/ci0/access"), &format!("DeviceFileMinor: {}\n", minor + 1));
        if place < 4 {
            fixture.insert_device(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 236, minor);
            fixture.insert_device(&format!("/dev/nvidia-caps/nvidia-cap{}", minor + 1), 236, minor + 1);
        }
    }
    fixture
}

fn names(machine: &Machine) -> Vec<&str> {
    machine.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect()
}

fn notes(machine: &Machine) -> String {
    machine.notes.iter().map(|note| format!("{note}\n")).collect()
}

#[test]
fn gpus_and_mig_slices_are_listed() {
    let (_directory, library) = library("FINE");
    let machine = Machine::of(&Source::fixture(driver()).with_nvml(&library));
    assert_eq!(names(&machine), ["GPU-100", "GPU-101", "MIG-1000", "MIG-1002"], "{}", notes(&machine));
    let [whole, shared, part, _] = &machine.gpus[..] else { panic!("{:?}", machine.gpus) };
    assert_eq!((whole.memory_bytes, shared.memory_bytes, part.memory_bytes), (Some(141 << 30), None, Some(71 << 30)));
    assert_eq!((whole.pci.as_deref(), whole.numa, whole.index, part.index), (Some("0000:64:00.0"), Some(1), 0, 2));
    assert_eq!((part.name.as_str(), part.slice_of.as_deref()), ("NVIDIA H200 MIG 3g.71gb", Some("GPU-102")));
    let numbers: Vec<_> = part.devices.iter().map(|device| (device.major, device.minor)).collect();
    assert_eq!(numbers, [(195, 2), (195, 255), (507, 0), (236, 30), (236, 31)]);
    let notes = notes(&machine);
    assert!(notes.contains("card 3 cannot be queried (GPU is lost) and is not offered"), "{notes}");
    assert!(notes.contains("jobs cannot open MIG-1003"), "{notes}");
}

#[test]
fn driver_without_mig_support_lists_whole_gpus() {
    let (_directory, library) = library("OLD");
    let machine = Machine::of(&Source::fixture(driver()).with_nvml(&library));
    assert_eq!(names(&machine), ["GPU-100", "GPU-101", "GPU-102"]);
}

#[test]
fn library_of_another_version_falls_back_to_proc() {
    let (_directory, library) = library("FAILS");
    let machine = Machine::of(&Source::fixture(driver()).with_nvml(&library));
    assert_eq!(names(&machine), ["GPU-100", "GPU-101", "GPU-103"], "GPUs found in /proc, without the one in MIG mode");
    assert!(notes(&machine).contains("library cannot start (Driver/library version mismatch)"), "{}", notes(&machine));
    assert!(notes(&machine).contains("at 0000:66:00.0 is in MIG mode"), "{}", notes(&machine));
}

#[test]
fn missing_or_invalid_library_falls_back_to_proc() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libnvidia-ml.so.1");
    for (content, why) in [(None, "cannot be loaded"), (Some("not a library"), "cannot be loaded")] {
        if let Some(content) = content {
            std::fs::write(&library, content).expect("a file");
        }
        let machine = Machine::of(&Source::fixture(driver()).with_nvml(&library));
        assert_eq!(names(&machine), ["GPU-100", "GPU-101", "GPU-103"]);
        assert!(notes(&machine).contains(why), "{}", notes(&machine));
    }
}

#[test]
fn hanging_driver_times_out() {
    let (_directory, library) = library("HANGS");
    let source = Source::fixture(driver()).with_nvml(&library);
    for _ in 0..3 {
        let began = Instant::now();
        let machine = Machine::of(&source);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(names(&machine), ["GPU-100", "GPU-101", "GPU-103"]);
        assert!(notes(&machine).contains("does not respond"), "{}", notes(&machine));
    }
    // Threads that have answered need a moment to end.
    let deadline = Instant::now() + Duration::from_secs(10);
    while asking() > 1 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(asking(), 1, "only one query of the driver hangs");
}

/// Number of this process's threads that query a driver.
fn asking() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "discovery").count()
}

#[test]
fn a_slow_driver_is_waited_for() {
    let (_directory, library) = library("SLOW");
    let machine = Machine::of(&Source::fixture(driver()).with_nvml(&library));
    assert_eq!(names(&machine), ["GPU-100", "GPU-101", "MIG-1000", "MIG-1002"], "{}", notes(&machine));
}

#[test]
fn without_a_driver_the_library_is_not_loaded() {
    let (_directory, library) = library("HANGS");
    let mut fixture = Fixture::default();
    fixture.insert("/proc/meminfo", "MemTotal: 8388608 kB");
    let machine = Machine::of(&Source::fixture(fixture).with_nvml(&library));
    assert!(machine.gpus.is_empty() && !notes(&machine).contains("NVIDIA"), "{}", notes(&machine));
}

#[test]
fn answers_of_the_library_are_recorded() {
    let mut fixture = driver();
    let text = "[nvml.Ok]\n[[nvml.Ok.cards]]\nuuid = 'GPU-7'\nname = 'H200'\nminor = 0\n";
    fixture.nvml = Fixture::parse(text).expect("an answer").nvml;
    let machine = Machine::of(&Source::fixture(fixture.clone()));
    assert_eq!(names(&machine), ["GPU-7"]);
    assert_eq!(Fixture::parse(&fixture.to_toml()).expect("written and read"), fixture);
}
