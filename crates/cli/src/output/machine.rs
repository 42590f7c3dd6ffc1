//! Text view of a machine's resources.

use std::fmt::Write as _;

use hostler_discovery::{Gpu, Machine};
use hostler_model::{CoreKind, CpuSet, format_bytes};

use super::table::{Align, Table, one_line};
use super::text::Lines;

/// CPUs, memory and GPUs, then notes. The table of GPUs has at most `width` columns.
pub(crate) fn offer(machine: &Machine, width: Option<usize>) -> String {
    let mut lines = Lines::default();
    lines.add("cpus", cpus(machine));
    lines.add("layout", layout(machine));
    let memory = &machine.memory;
    let kept = format_bytes(memory.reserved_bytes);
    let of = format_bytes(memory.total_bytes);
    lines.add("memory", format!("{} of {of}, {kept} reserved for the system", format_bytes(memory.usable_bytes)));
    lines.add("gpus", if machine.gpus.is_empty() { "none".to_owned() } else { machine.gpus.len().to_string() });
    let mut text = lines.text;
    if !machine.gpus.is_empty() {
        write!(text, "\n{}", gpus(&machine.gpus, width)).expect("strings can always be written to");
    }
    for (index, note) in machine.notes.iter().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        writeln!(text, "{gap}note: {}", one_line(&note.to_string())).expect("strings can always be written to");
    }
    text
}

fn cpus(machine: &Machine) -> String {
    let usable = machine.usable.len();
    match machine.cpus.len() {
        all if all == usable as usize => format!("{usable}: {}", machine.usable),
        all => format!("{usable} of {all}: {}", machine.usable),
    }
}

fn layout(machine: &Machine) -> String {
    let count = |of: &dyn Fn(&hostler_model::Cpu) -> u32| machine.cpus.iter().map(of).collect::<CpuSet>().len();
    let efficient: CpuSet =
        machine.cpus.iter().filter(|cpu| cpu.kind == CoreKind::Efficiency).map(|cpu| cpu.core).collect();
    let (packages, cores, nodes) = (count(&|cpu| cpu.package), count(&|cpu| cpu.core), count(&|cpu| cpu.numa));
    let kinds = if efficient.is_empty() { String::new() } else { format!(" ({} efficiency)", efficient.len()) };
    format!("{}, {}{kinds}, {}", some(packages, "package"), some(cores, "core"), some(nodes, "NUMA node"))
}

fn some(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn gpus(gpus: &[Gpu], width: Option<usize>) -> String {
    let columns = [
        ("GPU", Align::Right),
        ("MEMORY", Align::Right),
        ("NUMA", Align::Right),
        ("ID", Align::Left),
        ("MODEL", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let unknown = || "-".to_owned();
    for gpu in gpus {
        table.row([
            gpu.index.to_string(),
            gpu.memory_bytes.map_or_else(unknown, format_bytes),
            gpu.numa.map_or_else(unknown, |numa| numa.to_string()),
            gpu.uuid.clone(),
            gpu.name.clone(),
        ]);
    }
    table.render(width)
}

#[cfg(test)]
mod tests {
    use hostler_discovery::{Fixture, Source};

    use super::*;

    fn offered(files: &[(&str, &str)], devices: &[(&str, u32, u32)]) -> String {
        let mut fixture = Fixture::default();
        files.iter().for_each(|(path, content)| fixture.insert(path, content));
        devices.iter().for_each(|(path, major, minor)| fixture.insert_device(path, *major, *minor));
        offer(&Machine::of(&Source::fixture(fixture)), None)
    }

    #[test]
    fn cpus_layout_and_memory_are_shown() {
        let files = [
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/proc/self/status", "Cpus_allowed_list: 1-2"),
            ("/sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1"),
            ("/sys/devices/system/cpu/cpu2/topology/core_cpus_list", "2-3"),
            ("/sys/devices/system/cpu/cpu0/topology/package_cpus_list", "0-3"),
            ("/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0"),
            ("/proc/meminfo", "MemTotal: 4194304 kB"),
        ];
        let expected = "\
cpus       2 of 4: 1-2
layout     1 package, 2 cores, 1 NUMA node
memory     3.8G of 4G, 256M reserved for the system
gpus       none

note: cpus: the affinity mask allows 1-2 of 0-3
";
        assert_eq!(offered(&files, &[]), expected);
    }

    #[test]
    fn gpus_are_shown_in_a_table() {
        let files = [
            ("/sys/class/drm/renderD129/device/vendor", "0x8086"),
            ("/sys/class/drm/renderD129/device/device", "0x56c0"),
            ("/sys/class/drm/renderD129/device/uevent", "PCI_SLOT_NAME=0000:e3:00.0"),
        ];
        let text = offered(&files, &[("/dev/dri/renderD129", 226, 129)]);
        let expected = "\ngpus       1\n\nGPU  MEMORY  NUMA  ID                MODEL\n  0       -     -  pci-0000:e3:00.0  Intel 0x56c0\n\nnote: ";
        assert!(text.contains(expected), "{text}");
    }
}
