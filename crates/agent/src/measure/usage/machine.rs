//! Measures the node's machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hostler_model::{CpuSet, Metric};
use nix::sys::statvfs::statvfs;

use super::read::{Buffer, Counter, KernelFile, value_of};
use crate::gossip::{Ticks, busy_between, ticks};
use crate::measure::rapl::{POWERCAP, Rapl};

/// Bytes per sector in `/proc/diskstats`, on every disk.
const SECTOR_BYTES: u64 = 512;

/// Drivers of the temperature sensors in processors. Other sensors may be slow, or wake sleeping disks.
const PROCESSOR_SENSORS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal"];

/// Prefixes of block devices to skip: some pass requests on to other devices and would count twice; some are not disks.
const VIRTUAL_DISKS: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"];

/// Open files and last counters of the machine.
#[derive(Debug)]
pub(super) struct MachineMeter {
    /// CPUs that the node offers.
    cpus: CpuSet,
    /// Memory that the node offers, in bytes.
    memory_bytes: u64,
    /// The agent's directory.
    directory: PathBuf,
    stat: Option<KernelFile>,
    load: Option<KernelFile>,
    memory: Option<KernelFile>,
    pressure: [(Metric, Option<KernelFile>, Counter); 3],
    disks: Option<KernelFile>,
    network: Option<KernelFile>,
    sensors: Vec<KernelFile>,
    rapl: Option<Rapl>,
    busy: Option<Ticks>,
    reads: Counter,
    writes: Counter,
    received: Counter,
    sent: Counter,
}

impl MachineMeter {
    /// Opens the files. `has_power`: whether the machine's power use is that of the node.
    pub(super) fn open(cpus: CpuSet, memory_bytes: u64, directory: PathBuf, has_power: bool) -> Self {
        let pressure =
            |metric, name: &str| (metric, KernelFile::open(format!("/proc/pressure/{name}")), Counter::default());
        Self {
            cpus,
            memory_bytes,
            directory,
            stat: KernelFile::open("/proc/stat"),
            load: KernelFile::open("/proc/loadavg"),
            memory: KernelFile::open("/proc/meminfo"),
            pressure: [
                pressure(Metric::CpuPressure, "cpu"),
                pressure(Metric::MemoryPressure, "memory"),
                pressure(Metric::IoPressure, "io"),
            ],
            disks: KernelFile::open("/proc/diskstats"),
            network: KernelFile::open("/proc/net/dev"),
            sensors: processor_sensors().into_iter().filter_map(KernelFile::open).collect(),
            rapl: if has_power { Rapl::find(Path::new(POWERCAP)) } else { None },
            busy: None,
            reads: Counter::default(),
            writes: Counter::default(),
            received: Counter::default(),
            sent: Counter::default(),
        }
    }

    /// Measures the machine. Metrics that cannot be measured are absent. Used memory is the memory that the node
    /// offers minus the machine's available memory, since programs outside of jobs use memory too.
    pub(super) fn measure(&mut self, buffer: &mut Buffer, now: Instant) -> BTreeMap<Metric, f32> {
        let mut values = BTreeMap::new();
        let mut put = |metric, value: Option<f32>| {
            if let Some(value) = value {
                values.insert(metric, value);
            }
        };
        put(Metric::Cpu, self.busy_cpus(buffer));
        let read = |file: &Option<KernelFile>, buffer: &mut Buffer, parse: fn(&str) -> Option<f32>| {
            file.as_ref().and_then(|file| file.read(buffer)).and_then(parse)
        };
        put(Metric::Load, read(&self.load, buffer, |text| text.split(' ').next()?.parse().ok()));
        let available = self.memory.as_ref().and_then(|file| value_of(file.read(buffer)?, "MemAvailable"));
        put(Metric::Memory, available.map(|kib| self.memory_bytes.saturating_sub(kib << 10) as f32));
        for (metric, file, counter) in &mut self.pressure {
            let waited_us = file.as_ref().and_then(|file| file.read(buffer)).and_then(waited);
            // Microseconds per second; 100 % are a million.
            put(*metric, counter.rate(waited_us, now).map(|rate| (rate / 1e4).min(100.0)));
        }
        let disks = self.disks.as_ref().and_then(|file| file.read(buffer)).map(disk_bytes);
        put(Metric::DiskRead, self.reads.rate(disks.map(|sums| sums.0), now));
        put(Metric::DiskWrite, self.writes.rate(disks.map(|sums| sums.1), now));
        let network = self.network.as_ref().and_then(|file| file.read(buffer)).map(network_bytes);
        put(Metric::NetworkIn, self.received.rate(network.map(|sums| sums.0), now));
        put(Metric::NetworkOut, self.sent.rate(network.map(|sums| sums.1), now));
        put(Metric::DiskFree, free_bytes(&self.directory).map(|bytes| bytes as f32));
        let degrees = self.sensors.iter().filter_map(|sensor| sensor.number(buffer)).max();
        put(Metric::Temperature, degrees.map(|thousandths| thousandths as f32 / 1000.0));
        let milliwatts = self.rapl.as_mut().and_then(|rapl| rapl.milliwatts(now));
        put(Metric::Power, milliwatts.map(|milliwatts| milliwatts as f32 / 1000.0));
        values
    }

    fn busy_cpus(&mut self, buffer: &mut Buffer) -> Option<f32> {
        let text = self.stat.as_ref().and_then(|file| file.read(buffer));
        let now = text.map(|text| ticks(text, |cpu| self.cpus.contains(cpu)));
        let before = std::mem::replace(&mut self.busy, now);
        busy_between(before?, now?).map(|hundredths| hundredths as f32 / 100.0)
    }
}

/// Total time in which a process waited, in microseconds, from a file of `/proc/pressure`.
pub(crate) fn waited(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Bytes read from and written to disks, from `/proc/diskstats`. Partitions are listed after their disk, whose name is
/// the beginning of theirs.
fn disk_bytes(text: &str) -> (u64, u64) {
    let mut disk = "";
    let mut sums = (0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let is_partition = !disk.is_empty() && name.strip_prefix(disk).is_some_and(|rest| !rest.is_empty());
        if is_partition || VIRTUAL_DISKS.iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        disk = name;
        let sectors: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).take(7).collect();
        let bytes = |field: usize| sectors.get(field).copied().unwrap_or(0).saturating_mul(SECTOR_BYTES);
        sums = (sums.0.saturating_add(bytes(2)), sums.1.saturating_add(bytes(6)));
    }
    sums
}

/// Bytes received and sent, from `/proc/net/dev`. Bridges and virtual interfaces would count traffic twice.
fn network_bytes(text: &str) -> (u64, u64) {
    const VIRTUAL: [&str; 9] = ["lo", "veth", "docker", "br-", "virbr", "tun", "tap", "wg", "dummy"];
    let mut sums = (0u64, 0u64);
    for line in text.lines() {
        let Some((name, rest)) = line.trim_start().split_once(':') else { continue };
        if VIRTUAL.iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        let words: Vec<u64> = rest.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let word = |field: usize| words.get(field).copied().unwrap_or(0);
        sums = (sums.0.saturating_add(word(0)), sums.1.saturating_add(word(8)));
    }
    sums
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.blocks_available() * found.fragment_size())
}

/// The temperature sensors of the processors.
pub(crate) fn processor_sensors() -> Vec<PathBuf> {
    sensors(Path::new("/sys/class"))
}

/// The temperature sensors of the processors below `class`.
fn sensors(class: &Path) -> Vec<PathBuf> {
    let list = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let name_of = |path: &Path, file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    let starts =
        |path: &Path, text: &str| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(text));
    let mut found = Vec::new();
    for chip in list(&class.join("hwmon")) {
        if PROCESSOR_SENSORS.contains(&name_of(&chip, "name").trim()) {
            let inputs = list(&chip).filter(|path| starts(path, "temp") && path.to_string_lossy().ends_with("_input"));
            found.extend(inputs);
        }
    }
    if found.is_empty() {
        for zone in list(&class.join("thermal")).filter(|path| starts(path, "thermal_zone")) {
            let kind = name_of(&zone, "type");
            if kind.trim() == "x86_pkg_temp" || kind.starts_with("cpu") {
                found.push(zone.join("temp"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn disks_count_once() {
        let text = "   7       0 loop0 9 0 9000 0 9 0 9000 0\n\
             8       0 sda 1 0 100 0 1 0 10 0 0 0 0\n   8       1 sda1 1 0 60 0 1 0 5 0\n 8 2 sda2 1 0 40 0 1 0 5 0\n\
             259       0 nvme0n1 1 0 200 0 1 0 20 0\n 259 1 nvme0n1p1 1 0 200 0 1 0 20 0\n\
             253       0 dm-0 1 0 300 0 1 0 30 0\n 8 16 sdb 0 0 1 0 0 0 1 0\n";
        assert_eq!(disk_bytes(text), (301 * 512, 31 * 512));
        assert_eq!(disk_bytes(""), (0, 0));
    }

    #[test]
    fn only_real_interfaces_count() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n\
             eth0: 70 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\nveth1@if2: 9 1 0 0 0 0 0 0 9 1\n  wlan0:3 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text), (73, 12));
    }

    #[test]
    fn only_sensors_of_processors_are_read() {
        let class = tempfile::tempdir().expect("a temporary directory");
        let sensor = |chip: &str, name: &str, input: &str| {
            let chip = class.path().join("hwmon").join(chip);
            fs::create_dir_all(&chip).expect("the test owns the directory");
            fs::write(chip.join("name"), format!("{name}\n")).expect("the test owns the directory");
            fs::write(chip.join("temp1_input"), format!("{input}\n")).expect("the test owns the directory");
        };
        sensor("hwmon0", "drivetemp", "90000");
        assert!(sensors(class.path()).is_empty());
        sensor("hwmon1", "coretemp", "45500");
        let found = sensors(class.path());
        assert_eq!(found, [class.path().join("hwmon/hwmon1/temp1_input")]);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let mut meter = MachineMeter::open(CpuSet::first(1), 1 << 60, "/".into(), false);
        let (mut buffer, start) = (Buffer::default(), Instant::now());
        meter.measure(&mut buffer, start);
        let values = meter.measure(&mut buffer, start + Duration::from_secs(10));
        for metric in [Metric::Load, Metric::Memory, Metric::DiskFree, Metric::NetworkIn] {
            assert!(values.contains_key(&metric), "{metric} is missing: {values:?}");
        }
        assert!(values[&Metric::Memory] > 0.0, "no machine has as much memory: {values:?}");
        let mut small = MachineMeter::open(CpuSet::first(1), 1 << 20, "/".into(), false);
        let values = small.measure(&mut buffer, start);
        assert!(values[&Metric::Memory] < 1.0, "the machine has the node's memory available: {values:?}");
    }

    #[test]
    fn total_waiting_time_is_parsed() {
        assert_eq!(waited("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=5\n"), Some(1234));
        assert_eq!(waited("full total=5\n"), None);
    }
}
