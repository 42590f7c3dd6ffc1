//! Measures one run: by its cgroups, and by its processes for what no cgroup counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use hostler_model::{GpuId, Metric};
use hostler_shepherd::cgroup::{Controller, LeafSpec, Place};
use nix::unistd::{SysconfVar, sysconf};

use super::members::{Sums, descendants, sums};
use super::read::{Buffer, Counter, KernelFile, value_of};

/// Where a run can be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunPlace {
    /// The run's cgroup leaf, if there is one.
    pub(crate) leaf: Option<LeafSpec>,
    /// Process id of the run's shepherd.
    pub(crate) shepherd: u32,
    /// GPUs of the run.
    pub(crate) gpus: BTreeSet<GpuId>,
}

impl RunPlace {
    /// The processes of the run. `None` if they cannot be listed, as after its end, or are too many.
    pub(crate) fn processes(&self) -> Option<Vec<u32>> {
        let Some(leaf) = &self.leaf else { return descendants(self.shepherd) };
        let file = KernelFile::open(leaf.path.join(MEMBERS))?;
        Some(pids(file.read(&mut Buffer::default())?))
    }
}

/// File of a cgroup with the ids of its processes.
const MEMBERS: &str = "cgroup.procs";

/// Open files and last counters of a run.
#[derive(Debug)]
pub(super) struct RunMeter {
    pub(super) place: RunPlace,
    members: Option<KernelFile>,
    cpu: Option<KernelFile>,
    memory: Option<KernelFile>,
    /// Statistics of the memory, and the key of cached files that have not been used recently.
    cache: (Option<KernelFile>, &'static str),
    threads: Option<KernelFile>,
    /// Processes that the file counts, but that do not belong to the run.
    guests: u64,
    io: Option<KernelFile>,
    /// The memory in use at the last measurement, in bytes.
    pub(super) memory_used: f32,
    busy: Counter,
    reads: Counter,
    writes: Counter,
}

impl RunMeter {
    pub(super) fn open(place: RunPlace) -> Self {
        let leaf = |name: &str| place.leaf.as_ref().and_then(|leaf| KernelFile::open(leaf.path.join(name)));
        let controlled = |controller, unified: &str, v1: &str| {
            let leaf = place.leaf.as_ref()?;
            match leaf.controllers.get(&controller)? {
                Place::Unified => KernelFile::open(leaf.path.join(unified)),
                Place::V1(group) => KernelFile::open(group.join(v1)),
                Place::Missing(_) => None,
            }
        };
        let controllers = place.leaf.as_ref().map(|leaf| &leaf.controllers);
        let has_v1 = |controller| controllers.is_some_and(|all| matches!(all.get(&controller), Some(Place::V1(_))));
        Self {
            members: leaf(MEMBERS),
            cpu: leaf("cpu.stat"),
            memory: controlled(Controller::Memory, "memory.current", "memory.usage_in_bytes"),
            cache: (
                controlled(Controller::Memory, "memory.stat", "memory.stat"),
                if has_v1(Controller::Memory) { "total_inactive_file" } else { "inactive_file" },
            ),
            threads: controlled(Controller::Pids, "pids.current", "pids.current"),
            // The shepherd is in the groups of version 1.
            guests: u64::from(has_v1(Controller::Pids)),
            io: leaf("io.stat"),
            memory_used: 0.0,
            busy: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            place,
        }
    }

    /// Measures the run. Metrics that cannot be measured are absent.
    pub(super) fn measure(&mut self, buffer: &mut Buffer, now: Instant) -> BTreeMap<Metric, f32> {
        let is_counted = self.cpu.is_some() && self.memory.is_some() && self.threads.is_some() && self.io.is_some();
        let summed = if is_counted { Sums::default() } else { self.sums(buffer) };
        let cpu_seconds = |file: &KernelFile, buffer: &mut Buffer| value_of(file.read(buffer)?, "usage_usec");
        let (micros, is_micros) = match &self.cpu {
            Some(file) => (cpu_seconds(file, buffer), true),
            None => (summed.cpu_ticks, false),
        };
        let per_second = if is_micros { 1e6 } else { constant(SysconfVar::CLK_TCK) };
        let memory = match &self.memory {
            Some(file) => file.number(buffer).and_then(|all| {
                let (cache, key) = &self.cache;
                let cached = value_of(cache.as_ref()?.read(buffer)?, key)?;
                Some(all.saturating_sub(cached))
            }),
            None => summed.memory_pages.map(|pages| pages * constant(SysconfVar::PAGE_SIZE) as u64),
        };
        self.memory_used = memory.map_or(0.0, |bytes| bytes as f32);
        let threads = match &self.threads {
            Some(file) => file.number(buffer).map(|all| all.saturating_sub(self.guests)),
            None => summed.threads,
        };
        let (reads, writes) = match &self.io {
            Some(file) => file.read(buffer).map(disk_bytes).unzip(),
            None => (summed.read_bytes, summed.write_bytes),
        };
        let values = [
            (Metric::Cpu, self.busy.rate(micros, now).map(|rate| rate / per_second)),
            (Metric::Memory, memory.map(|bytes| bytes as f32)),
            (Metric::DiskRead, self.reads.rate(reads, now)),
            (Metric::DiskWrite, self.writes.rate(writes, now)),
            (Metric::Processes, threads.map(|count| count as f32)),
        ];
        values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
    }

    fn sums(&self, buffer: &mut Buffer) -> Sums {
        let members = match &self.members {
            Some(file) => file.read(buffer).map(pids),
            None => descendants(self.place.shepherd),
        };
        members.map_or_else(Sums::default, |members: Vec<u32>| sums(&members, self.place.shepherd))
    }
}

fn constant(name: SysconfVar) -> f32 {
    sysconf(name).ok().flatten().unwrap_or(1) as f32
}

fn pids(lines: &str) -> Vec<u32> {
    lines.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Sums of bytes read and written, from lines such as `8:0 rbytes=1 wbytes=2`.
fn disk_bytes(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        let values = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        values.fold(0, u64::saturating_add)
    };
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// A leaf made of plain files.
    fn leaf(directory: &Path, controllers: BTreeMap<Controller, Place>) -> RunPlace {
        let path = directory.join("leaf");
        fs::create_dir_all(&path).expect("the test owns the directory");
        RunPlace { leaf: Some(LeafSpec { path, controllers }), shepherd: u32::MAX, gpus: BTreeSet::new() }
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("the test owns the directory");
        fs::write(path, text).expect("the test owns the directory");
    }

    #[test]
    fn unified_groups_are_measured() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let controllers = [(Controller::Memory, Place::Unified), (Controller::Pids, Place::Unified)];
        let place = leaf(directory.path(), BTreeMap::from(controllers));
        let file = |name: &str| directory.path().join("leaf").join(name);
        write(&file("cpu.stat"), "usage_usec 1000000\nuser_usec 1\n");
        write(&file("memory.current"), "5120\n");
        write(&file("memory.stat"), "anon 4096\nfile 1024\ninactive_file 1024\n");
        write(&file("pids.current"), "3\n");
        write(&file("io.stat"), "8:0 rbytes=100 wbytes=0 rios=1\n8:16 rbytes=100 wbytes=50\n");
        let (mut meter, mut buffer, start) = (RunMeter::open(place), Buffer::default(), Instant::now());
        let first = meter.measure(&mut buffer, start);
        assert_eq!(
            first,
            BTreeMap::from([(Metric::Memory, 4096.0), (Metric::Processes, 3.0)]),
            "rates need two readings"
        );
        write(&file("cpu.stat"), "usage_usec 16000000\nuser_usec 1\n");
        write(&file("io.stat"), "8:0 rbytes=300 wbytes=50\n8:16 rbytes=100 wbytes=50\n");
        let second = meter.measure(&mut buffer, start + Duration::from_secs(10));
        assert_eq!((second[&Metric::Cpu], second[&Metric::DiskRead], second[&Metric::DiskWrite]), (1.5, 20.0, 5.0));
        write(&file("memory.current"), "not a number\n");
        let third = meter.measure(&mut buffer, start + Duration::from_secs(20));
        assert!(!third.contains_key(&Metric::Memory), "a failed reading is a gap");
    }

    #[test]
    fn groups_of_version_1_do_not_count_the_shepherd() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let controllers = [(Controller::Memory, Place::V1(at("m"))), (Controller::Pids, Place::V1(at("p")))];
        let place = leaf(directory.path(), BTreeMap::from(controllers));
        write(&at("m/memory.usage_in_bytes"), "9216\n");
        write(&at("m/memory.stat"), "inactive_file 1\ntotal_inactive_file 1024\n");
        write(&at("p/pids.current"), "2\n");
        let mut meter = RunMeter::open(place);
        let values = meter.measure(&mut Buffer::default(), Instant::now());
        assert_eq!((values[&Metric::Memory], values[&Metric::Processes]), (8192.0, 1.0));
    }
}
