//! Tests the resources found on simulated machines, made from the documented formats of kernels and drivers, and on the
//! machine that runs the test.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use hostler_discovery::{Fixture, Machine, Source};
use hostler_model::{CoreKind, Cpu, CpuSet, format_bytes};

fn fixture(name: &str) -> Fixture {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.toml"));
    Fixture::parse(&fs::read_to_string(path).expect("the fixture file exists")).expect("the fixture file is valid")
}

fn machine(name: &str) -> Machine {
    Machine::of(&Source::fixture(fixture(name)))
}

/// A short description of a machine.
fn brief(machine: &Machine) -> String {
    let mut text = String::new();
    let mut line = |line: &dyn std::fmt::Display| writeln!(text, "{line}").expect("strings can be written to");
    let of =
        |is: &dyn Fn(&Cpu) -> bool| machine.cpus.iter().filter(|cpu| is(cpu)).map(|cpu| cpu.id).collect::<CpuSet>();
    let numbers = |number: &dyn Fn(&Cpu) -> u32| machine.cpus.iter().map(number).collect::<CpuSet>();
    let memory = &machine.memory;
    line(&format!("cpus {} usable {}", of(&|_| true), machine.usable));
    for package in numbers(&|cpu| cpu.package).iter() {
        line(&format!("package {package}: {}", of(&|cpu| cpu.package == package)));
    }
    for numa in numbers(&|cpu| cpu.numa).iter() {
        line(&format!("numa {numa}: {}", of(&|cpu| cpu.numa == numa)));
    }
    line(&format!(
        "cores begin at {}, frugal: {}",
        numbers(&|cpu| cpu.core),
        of(&|cpu| cpu.kind == CoreKind::Efficiency)
    ));
    line(&format!("memory {} of {}", format_bytes(memory.usable_bytes), format_bytes(memory.total_bytes)));
    for gpu in &machine.gpus {
        let memory = gpu.memory_bytes.map_or("?".to_owned(), format_bytes);
        let numa = gpu.numa.map_or("?".to_owned(), |numa| numa.to_string());
        let pci = gpu.pci.as_deref().unwrap_or("?");
        line(&format!("gpu {} {} {} memory {memory} pci {pci} numa {numa}", gpu.index, gpu.name, gpu.uuid));
        let devices = gpu.devices.iter().map(|device| format!(" {} {}:{}", device.path, device.major, device.minor));
        line(&format!(" {}", devices.collect::<String>()));
    }
    machine.notes.iter().for_each(|note| line(note));
    text
}

#[track_caller]
fn check(machine: &Machine, expected: &str) {
    let expected = expected.lines().skip(1).map(|line| line.strip_prefix("        ").unwrap_or(line));
    let found = brief(machine);
    let found_lines = found.lines().map(str::trim_end).chain([""]);
    assert!(found_lines.eq(expected), "found\n{found}");
}

#[test]
fn a_laptop() {
    check(
        &machine("laptop"),
        "
        cpus 0-7 usable 0-7
        package 0: 0-7
        numa 0: 0-7
        cores begin at 0-3, frugal:
        memory 15.2G of 15.5G
        gpus: Intel's renderD128 is part of the processor and is not offered
        ",
    );
}

#[test]
fn a_server() {
    check(
        &machine("server"),
        "
        cpus 0-127 usable 0-127
        package 0: 0-31,64-95
        package 1: 32-63,96-127
        numa 0: 0-31,64-95
        numa 1: 32-63,96-127
        cores begin at 0-63, frugal:
        memory 243G of 252G
        memory: 4G are reserved for huge pages
        ",
    );
}

#[test]
fn a_server_with_four_numa_nodes() {
    let mut fixture = fixture("server");
    for (node, cpus) in ["0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"].into_iter().enumerate() {
        fixture.insert(&format!("/sys/devices/system/node/node{node}/cpulist"), cpus);
    }
    check(
        &Machine::of(&Source::fixture(fixture)),
        "
        cpus 0-127 usable 0-127
        package 0: 0-31,64-95
        package 1: 32-63,96-127
        numa 0: 0-15,64-79
        numa 1: 16-31,80-95
        numa 2: 32-47,96-111
        numa 3: 48-63,112-127
        cores begin at 0-63, frugal:
        memory 243G of 252G
        memory: 4G are reserved for huge pages
        ",
    );
}

#[test]
fn a_board() {
    check(
        &machine("board"),
        "
        cpus 0-7 usable 0-7
        package 0: 0-7
        numa 0: 0-7
        cores begin at 0-7, frugal: 0-3
        memory 7.5G of 7.8G
        ",
    );
}

#[test]
fn a_hybrid_processor() {
    check(
        &machine("hybrid"),
        "
        cpus 0-19 usable 0-19
        package 0: 0-19
        numa 0: 0-19
        cores begin at 0,2,4,6,8,10,12,14,16-19, frugal: 16-19
        memory 30.5G of 31.1G
        ",
    );
}

#[test]
fn a_container() {
    check(
        &machine("container"),
        "
        cpus 0-15 usable 4,12
        package 0: 0-15
        numa 0: 0-15
        cores begin at 0-7, frugal:
        memory 1.8G of 62.8G
        cpus: the affinity mask allows 4-7,12-15 of 0-15
        cpus: a control group limits the CPU time to 2.5 CPUs; 2 of 8 CPUs are offered
        memory: a control group limits memory to 2G
        ",
    );
}

#[test]
fn cpus_with_gaps() {
    check(
        &machine("gaps"),
        "
        cpus 0-1,4,6-7 usable 0-1,4,6-7
        package 0: 0-1,4,6-7
        numa 0: 0-1,4,6-7
        cores begin at 0-1,6-7, frugal:
        memory 3.8G of 7.6G
        memory: a control group limits memory to 4G
        ",
    );
}

#[test]
fn nvidia_without_its_library() {
    check(
        &machine("nvidia"),
        "
        cpus 0-31 usable 0-31
        package 0: 0-15
        package 1: 16-31
        numa 0: 0-15
        numa 1: 16-31
        cores begin at 0-31, frugal:
        memory 493G of 503G
        gpu 0 NVIDIA A100-SXM4-40GB GPU-5d8f0c1a-0000-4000-8000-000000000000 memory ? pci 0000:07:00.0 numa 0
          /dev/nvidia0 195:0 /dev/nvidiactl 195:255 /dev/nvidia-uvm 507:0 /dev/nvidia-uvm-tools 507:1
        gpu 1 NVIDIA A100-SXM4-40GB GPU-5d8f0c1a-0000-4000-8000-000000000001 memory ? pci 0000:0f:00.0 numa 0
          /dev/nvidia1 195:1 /dev/nvidiactl 195:255 /dev/nvidia-uvm 507:0 /dev/nvidia-uvm-tools 507:1
        gpu 2 NVIDIA A100-SXM4-40GB GPU-5d8f0c1a-0000-4000-8000-000000000002 memory ? pci 0000:87:00.0 numa 1
          /dev/nvidia2 195:2 /dev/nvidiactl 195:255 /dev/nvidia-uvm 507:0 /dev/nvidia-uvm-tools 507:1
        gpu 3 NVIDIA A100-SXM4-40GB pci-0000:90:00.0 memory ? pci 0000:90:00.0 numa 1
          /dev/nvidia3 195:3 /dev/nvidiactl 195:255 /dev/nvidia-uvm 507:0 /dev/nvidia-uvm-tools 507:1
        gpus: NVIDIA's library is not queried; its GPUs are detected through /proc
        gpus: the memory size of NVIDIA's GPUs is unknown without their library
        ",
    );
}

#[test]
fn amd_and_intel() {
    check(
        &machine("amd"),
        "
        cpus 0-15 usable 0-15
        package 0: 0-15
        numa 0: 0-7
        numa 1: 8-15
        cores begin at 0-15, frugal:
        memory 123G of 126G
        gpu 0 Instinct MI210 GPU-9a1b2c3d4e5f6001 memory 64.0G pci 0000:43:00.0 numa 0
          /dev/dri/renderD128 226:128 /dev/kfd 234:0
        gpu 1 AMD gfx90a GPU-9a1b2c3d4e5f6002 memory 64.0G pci 0000:c3:00.0 numa 1
          /dev/dri/renderD129 226:129 /dev/kfd 234:0
        gpu 2 Intel 0x56c0 pci-0000:e3:00.0 memory ? pci 0000:e3:00.0 numa ?
          /dev/dri/renderD131 226:131
        gpus: AMD's renderD130 is unknown to the compute driver and is not offered
        ",
    );
}

#[test]
fn machine_with_few_files_is_described() {
    check(
        &machine("bare"),
        "
        cpus 0-2 usable 0-2
        package 0: 0-2
        numa 0: 0-2
        cores begin at 0-2, frugal:
        memory 1.8G of 2G
        cpus: /sys does not list the online CPUs; only the CPUs that this process may use are counted
        cpus: the CPUs of each core are unknown; each CPU counts as a core
        cpus: the packages of CPUs are unknown; one package is assumed
        ",
    );
}

#[test]
fn machine_without_files_has_one_cpu() {
    check(
        &Machine::of(&Source::fixture(Fixture::default())),
        "
        cpus 0 usable 0
        package 0: 0
        numa 0: 0
        cores begin at 0, frugal:
        memory 0B of 0B
        cpus: neither /sys nor /proc lists the CPUs; one CPU is assumed
        cpus: the CPUs of each core are unknown; each CPU counts as a core
        cpus: the packages of CPUs are unknown; one package is assumed
        memory: /proc/meminfo does not contain the memory size; no memory is offered
        ",
    );
}

#[test]
fn an_old_kernel_lists_cpus_by_their_directories() {
    let mut fixture = fixture("bare");
    for (cpu, online) in [("0", None), ("1", Some("0")), ("2", Some("1")), ("4294967295", Some("1")), ("x", Some("1"))]
    {
        fixture.insert(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0");
        online.into_iter().for_each(|text| fixture.insert(&format!("/sys/devices/system/cpu/cpu{cpu}/online"), text));
    }
    assert_eq!(Machine::of(&Source::fixture(fixture)).usable.to_string(), "0,2");
}

#[test]
fn recording_of_this_machine_describes_the_same_machine() {
    let (machine, fixture) = hostler_discovery::capture();
    assert!(!machine.usable.is_empty() && machine.memory.usable_bytes > 0, "{machine:?}");
    let again = Fixture::parse(&fixture.to_toml()).expect("a written fixture can be parsed");
    assert_eq!(Machine::of(&Source::fixture(again)), machine);
}

#[test]
fn affinity_and_memory_of_this_machine_equal_those_of_the_kernel() {
    let machine = hostler_discovery::machine();
    let allowed = std::thread::available_parallelism().expect("the kernel reports the CPUs").get() as u32;
    // The standard library rounds a quota down as well, and uses the same affinity mask.
    assert_eq!(machine.usable.len(), allowed, "{machine:?}");
    let meminfo = fs::read_to_string("/proc/meminfo").expect("Linux");
    let total = format!(" {} kB", machine.memory.total_bytes >> 10);
    assert!(meminfo.lines().any(|line| line.starts_with("MemTotal:") && line.ends_with(&total)), "{meminfo}");
}

#[test]
fn machine_round_trips_through_json() {
    let machine = machine("amd");
    let json = serde_json::to_value(&machine).expect("JSON");
    assert_eq!(json["usable"], "0-15");
    assert_eq!(json["gpus"][0]["devices"][1], serde_json::json!({"path": "/dev/kfd", "major": 234, "minor": 0}));
    assert_eq!(serde_json::from_value::<Machine>(json).expect("read back"), machine);
}

#[test]
fn siblings_share_a_core() {
    let hybrid = machine("hybrid");
    assert_eq!(hybrid.siblings(3).to_string(), "2-3");
    assert_eq!(hybrid.siblings(17).to_string(), "17");
    assert_eq!(hybrid.siblings(99).to_string(), "");
}

#[test]
fn graphics_devices_belong_to_their_gpu() {
    let mut fixture = fixture("nvidia");
    for (name, minor, pci) in
        [("card1", 1, "0000:07:00.0"), ("renderD128", 128, "0000:07:00.0"), ("card0", 0, "0000:03:00.0")]
    {
        fixture.insert(&format!("/sys/class/drm/{name}/device/uevent"), &format!("DRIVER=nvidia\nPCI_SLOT_NAME={pci}"));
        fixture.insert_device(&format!("/dev/dri/{name}"), 226, minor);
    }
    let machine = Machine::of(&Source::fixture(fixture));
    let drawing: Vec<Vec<&str>> = machine
        .gpus
        .iter()
        .map(|gpu| {
            gpu.devices.iter().map(|device| device.path.as_str()).filter(|path| path.starts_with("/dev/dri/")).collect()
        })
        .collect();
    assert_eq!(drawing[0], ["/dev/dri/card1", "/dev/dri/renderD128"], "{:?}", machine.gpus[0]);
    assert!(drawing[1..].iter().all(Vec::is_empty), "the display's graphics device belongs to no GPU");
}
