//! A cgroup leaf that is in use.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::files::{create_group, put, remove_groups};
use super::limits::Limit;
use super::spec::{Controller, LeafSpec, Place};
use crate::record::Enforcement;
use crate::sys;

/// A cgroup leaf that is in use. Files that are read for every run stay open, because opening costs more than reading.
#[derive(Debug)]
pub(crate) struct Leaf {
    spec: LeafSpec,
    limits: Vec<(Limit, Enforcement)>,
    directory: OwnedFd,
    events: Option<File>,
    cpu_stat: Option<File>,
    /// File with the number of OOM kills; only with the memory controller.
    oom_events: Option<File>,
    memory_peak: Option<File>,
    memory_stat: Option<File>,
    /// File with the disk counters; only with the version 2 io controller, because the version 1 controller does not
    /// count delayed writes.
    io_stat: Option<File>,
    /// Whether [`Leaf::kill`] was called. Since Linux 6.14, the kernel then also kills every process that is created in
    /// the leaf later.
    was_killed: Cell<bool>,
}

/// The process that enters the leaf's version 1 groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrant {
    /// The calling process, a shepherd. The job's processes then start in the same groups.
    Shepherd,
    /// The process with this pid, the only member of the leaf.
    Process(u32),
    Other,
}

impl Entrant {
    /// Number of the entrant's processes that are in the leaf's groups but do not belong to the job.
    fn guests(self) -> u64 {
        u64::from(self == Entrant::Shepherd)
    }

    fn enter(self, group: &Path) -> io::Result<()> {
        let write = |pid: &str| put(&group.join("cgroup.procs"), pid);
        match self {
            // For the kernel, 0 means the writing process.
            Entrant::Shepherd => write("0"),
            Entrant::Process(pid) => write(&pid.to_string()),
            Entrant::Other => Ok(()),
        }
    }

    /// Moves the shepherd from `group` to the parent of `group`. Has no effect for other entrants.
    fn leave(self, group: &Path) -> io::Result<()> {
        if self == Entrant::Shepherd { self.enter(group.parent().unwrap_or(group)) } else { Ok(()) }
    }
}

impl Leaf {
    /// Creates the leaf and applies the limits; [`Leaf::enforcement`] returns the kernel's answer for each. Replaces an
    /// empty leaf with this name. A leaf with processes is an error.
    pub(crate) fn create(spec: &LeafSpec, limits: &[Limit], entrant: Entrant) -> io::Result<Leaf> {
        make(&spec.path)?;
        let limits = limits.iter().map(|limit| (limit.clone(), spec.prepare(limit, entrant))).collect();
        match Leaf::open(spec) {
            Ok(leaf) => Ok(Leaf { limits, ..leaf }),
            Err(error) => {
                // Leave the groups that were entered.
                let _ = spec.remove(entrant);
                Err(error)
            }
        }
    }

    /// Reuses the leaf for another run with the same kinds of limits. Returns `false` if the leaf does not match `spec`
    /// or still contains memory of the last run; the caller must then remove the leaf.
    pub(crate) fn take_over(&mut self, spec: &LeafSpec, limits: &[Limit]) -> bool {
        let kinds = |limits: &[Limit]| limits.iter().map(Limit::controller).collect::<Vec<_>>();
        let had: Vec<Limit> = self.limits.iter().map(|(limit, _)| limit.clone()).collect();
        if self.was_killed.get() || self.spec != *spec || kinds(&had) != kinds(limits) || self.has_shared_memory() {
            return false;
        }
        for ((held, enforcement), wanted) in self.limits.iter_mut().zip(limits) {
            if held != wanted {
                if !held.can_change() {
                    return false;
                }
                *enforcement = spec.write(wanted, Entrant::Shepherd);
                *held = wanted.clone();
            }
            if *enforcement != Enforcement::Enforced {
                return false;
            }
        }
        self.forget_peak()
    }

    /// Changes a limit that is already enforced.
    pub(super) fn change(&mut self, wanted: &Limit) {
        for (held, enforcement) in &mut self.limits {
            if held.controller() == wanted.controller() && *enforcement == Enforcement::Enforced {
                *enforcement = self.spec.write(wanted, Entrant::Other);
                *held = wanted.clone();
            }
        }
    }

    /// Whether the leaf is still charged for tmpfs or shared memory, which would count for the next run.
    fn has_shared_memory(&self) -> bool {
        const SMALL_BYTES: u64 = 1 << 20;
        let shared = read(self.memory_stat.as_ref()).and_then(|text| value(&text, "shmem"));
        shared.is_some_and(|bytes| bytes > SMALL_BYTES)
    }

    pub(super) fn open(spec: &LeafSpec) -> io::Result<Leaf> {
        let directory = open(&spec.path, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let file =
            |name| openat(&directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok().map(File::from);
        let (events, cpu_stat, io_stat) = (file("cgroup.events"), file("cpu.stat"), file("io.stat"));
        let writable = |path: &Path| File::options().read(true).write(true).open(path).ok();
        let (memory, counts, peak) = match spec.controllers.get(&Controller::Memory) {
            Some(Place::V1(group)) => (group, "memory.oom_control", "memory.max_usage_in_bytes"),
            _ => (&spec.path, "memory.events", "memory.peak"),
        };
        let oom_events = File::open(memory.join(counts)).ok();
        // Writing resets the peak: with version 2 only for this descriptor, and since Linux 6.12.
        let memory_peak = writable(&memory.join(peak)).or_else(|| File::open(memory.join(peak)).ok());
        let memory_stat = File::open(memory.join("memory.stat")).ok();
        let (limits, was_killed) = (Vec::new(), Cell::new(false));
        let spec = spec.clone();
        Ok(Leaf {
            spec,
            limits,
            directory,
            events,
            cpu_stat,
            oom_events,
            memory_peak,
            memory_stat,
            io_stat,
            was_killed,
        })
    }

    /// Whether the kernel enforces the limit of a controller; `None` if the limit was not requested.
    pub(crate) fn enforcement(&self, controller: Controller) -> Option<&Enforcement> {
        self.limits.iter().find(|(limit, _)| limit.controller() == controller).map(|(_, enforcement)| enforcement)
    }

    /// Directory descriptor for `CLONE_INTO_CGROUP`.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Opens the file that moves processes into the leaf.
    pub(crate) fn members_file(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.directory, "cgroup.procs", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    /// Whether the leaf and its child groups have no processes. A missing leaf counts as empty.
    pub(crate) fn is_empty(&self) -> bool {
        read(self.events.as_ref()).is_none_or(|text| value(&text, "populated") != Some(1))
    }

    /// Kills all processes in the leaf and its child groups atomically.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let file = openat(&self.directory, "cgroup.kill", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        self.was_killed.set(true);
        nix::unistd::write(&file, b"1")?;
        Ok(())
    }

    /// Pids in the leaf itself, for reports only.
    pub(crate) fn members(&self) -> Vec<u32> {
        let procs = openat(&self.directory, "cgroup.procs", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let text = procs.ok().and_then(|file| io::read_to_string(File::from(file)).ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// User and system time of all processes that ever ran in the leaf.
    pub(crate) fn cpu_times(&self) -> Option<(Duration, Duration)> {
        let text = read(self.cpu_stat.as_ref())?;
        let micros = |key| value(&text, key).map(Duration::from_micros);
        Some((micros("user_usec")?, micros("system_usec")?))
    }

    /// Bytes that all processes in the leaf read from and wrote to disks; `None` without the io controller.
    pub(crate) fn io_bytes(&self) -> Option<(u64, u64)> {
        let file = self.io_stat.as_ref()?;
        // One line per disk, and there may be many disks.
        let mut text = vec![0; 64 << 10];
        let length = file.read_at(&mut text, 0).ok()?;
        Some(sum_of_disks(&String::from_utf8_lossy(&text[..length])))
    }

    /// Number of OOM kills in the leaf; `None` without the memory controller.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        value(&read(self.oom_events.as_ref())?, "oom_kill")
    }

    /// Peak memory of the current run in bytes. Includes page cache, also from an earlier run.
    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        read(self.memory_peak.as_ref())?.trim().parse().ok()
    }

    /// Resets the recorded peak memory; `false` if the kernel cannot reset it.
    fn forget_peak(&self) -> bool {
        self.memory_peak.as_ref().is_none_or(|file| file.write_at(b"0", 0).is_ok())
    }

    /// Removes the leaf and the groups that the job created in it. The shepherd leaves the version 1 groups first.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.spec.remove(Entrant::Shepherd)
    }
}

impl LeafSpec {
    pub(super) fn remove(&self, entrant: Entrant) -> io::Result<()> {
        let mut removed = remove_groups(&self.path);
        for place in self.controllers.values() {
            // The group exists only if a limit was requested.
            if let Place::V1(group) = place
                && group.exists()
            {
                let gone = entrant.leave(group).and_then(|()| remove_groups(group));
                removed = removed.and(gone);
            }
        }
        removed
    }

    /// Creates the group for a limit, writes the limit, and moves `entrant` into the group.
    fn prepare(&self, limit: &Limit, entrant: Entrant) -> Enforcement {
        let Some(Place::V1(group)) = self.controllers.get(&limit.controller()) else {
            return self.write(limit, entrant);
        };
        if let Err(error) = make(group) {
            return refused(limit, &error);
        }
        match (self.write(limit, entrant), entrant.enter(group)) {
            (Enforcement::Enforced, Err(error)) => refused(limit, &error),
            (written, _) => written,
        }
    }

    /// Writes a limit to its controller. Returns whether the kernel accepted it.
    fn write(&self, limit: &Limit, entrant: Entrant) -> Enforcement {
        let written = match self.controllers.get(&limit.controller()) {
            Some(Place::Unified) => limit.write_unified(&self.path),
            Some(Place::V1(group)) => limit.write_v1(group, entrant.guests()),
            Some(Place::Missing(reason)) => return Enforcement::Advisory(reason.clone()),
            None => {
                return Enforcement::Advisory(format!("the {} controller was not set up", limit.controller().as_str()));
            }
        };
        match written {
            Ok(()) => Enforcement::Enforced,
            Err(error) => refused(limit, &error),
        }
    }
}

fn refused(limit: &Limit, error: &io::Error) -> Enforcement {
    let name = limit.controller().as_str();
    Enforcement::Advisory(format!("the {name} controller refuses: {}", sys::explain(error)))
}

/// Creates a group. If an empty group exists at `path`, replaces it.
fn make(path: &Path) -> io::Result<()> {
    match create_group(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove_groups(path)?;
            fs::create_dir(path)
        }
        other => other,
    }
}

/// Content of a small control file.
fn read(file: Option<&File>) -> Option<String> {
    let mut buffer = [0; 1024];
    let length = file?.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Value of `key` in a file of `key number` lines.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Sums of bytes read and written, from a file of `8:0 rbytes=1 wbytes=2 …` lines.
fn sum_of_disks(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        let values = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
        values.fold(0, u64::saturating_add)
    };
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_counters_of_disks_are_summed() {
        let text = "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 rbytes=90430464 wbytes=7 rios=1\n";
        assert_eq!(sum_of_disks(text), (91_889_664, 314_773_511));
        assert_eq!(sum_of_disks(""), (0, 0));
    }

    #[test]
    fn values_are_found_by_complete_key() {
        assert_eq!(value("populated 1\nfrozen 0\n", "populated"), Some(1));
        assert_eq!(value("oom_kill_group 3\noom_kill 2\n", "oom_kill"), Some(2));
        assert_eq!(value("", "populated"), None);
    }
}
