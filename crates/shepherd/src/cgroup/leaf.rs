//! A leaf in use.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use super::limits::Limit;
use super::{Controller, LeafSpec, Place};
use crate::record::Enforcement;
use crate::sys;

/// A leaf in use. What is read for every run is kept open: opening costs more than reading.
#[derive(Debug)]
pub(crate) struct Leaf {
    spec: LeafSpec,
    limits: Vec<(Limit, Enforcement)>,
    directory: OwnedFd,
    events: Option<File>,
    cpu_stat: Option<File>,
    /// Counts kills for lack of memory; only with the memory controller.
    oom_events: Option<File>,
    memory_peak: Option<File>,
}

impl Leaf {
    /// Makes the leaf and holds it to the limits; [`Leaf::enforcement`] tells which of them the kernel took. One of that
    /// name left over and empty is replaced, a populated one is an error.
    pub(crate) fn create(spec: &LeafSpec, limits: &[Limit]) -> io::Result<Leaf> {
        make(&spec.path)?;
        let limits = limits.iter().map(|limit| (limit.clone(), spec.prepare(limit))).collect();
        Ok(Leaf { limits, ..Leaf::open(spec)? })
    }

    /// Takes the leaf for another run with the same kinds of limits, when it is the one that `spec` says.
    pub(crate) fn take_over(&mut self, spec: &LeafSpec, limits: &[Limit]) -> bool {
        let kinds = |limits: &[Limit]| limits.iter().map(Limit::controller).collect::<Vec<_>>();
        let had: Vec<Limit> = self.limits.iter().map(|(limit, _)| limit.clone()).collect();
        if self.spec != *spec || kinds(&had) != kinds(limits) {
            return false;
        }
        for ((held, enforcement), wanted) in self.limits.iter_mut().zip(limits) {
            if held != wanted {
                *enforcement = spec.write(wanted);
                *held = wanted.clone();
            }
        }
        true
    }

    pub(super) fn open(spec: &LeafSpec) -> io::Result<Leaf> {
        let directory = open(&spec.path, OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let file =
            |name| openat(&directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok().map(File::from);
        let (events, cpu_stat) = (file("cgroup.events"), file("cpu.stat"));
        let (oom_events, memory_peak) = match spec.controllers.get(&Controller::Memory) {
            Some(Place::V1(group)) => {
                let peak = File::options().read(true).write(true).open(group.join("memory.max_usage_in_bytes"));
                (File::open(group.join("memory.oom_control")).ok(), peak.ok())
            }
            _ => (file("memory.events"), file("memory.peak")),
        };
        Ok(Leaf { spec: spec.clone(), limits: Vec::new(), directory, events, cpu_stat, oom_events, memory_peak })
    }

    /// Whether the kernel holds the leaf to the limit of a controller; `None` when none was asked for.
    pub(crate) fn enforcement(&self, controller: Controller) -> Option<&Enforcement> {
        self.limits.iter().find(|(limit, _)| limit.controller() == controller).map(|(_, enforcement)| enforcement)
    }

    /// For `CLONE_INTO_CGROUP`.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// A descriptor that takes the pid of a process to be moved in.
    pub(crate) fn members_file(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.directory, "cgroup.procs", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    /// Whether no process is in the leaf or below it. Unreadable means removed, hence empty.
    pub(crate) fn is_empty(&self) -> bool {
        read(self.events.as_ref()).is_none_or(|text| value(&text, "populated") != Some(1))
    }

    /// Kills everything in the leaf and below it, atomically.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let file = openat(&self.directory, "cgroup.kill", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        nix::unistd::write(&file, b"1")?;
        Ok(())
    }

    /// Pids directly in the leaf, for reports only.
    pub(crate) fn members(&self) -> Vec<u32> {
        let procs = openat(&self.directory, "cgroup.procs", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let text = procs.ok().and_then(|file| io::read_to_string(File::from(file)).ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// User and system time of everything that ever ran in the leaf.
    pub(crate) fn cpu_times(&self) -> Option<(Duration, Duration)> {
        let text = read(self.cpu_stat.as_ref())?;
        let micros = |key| value(&text, key).map(Duration::from_micros);
        Some((micros("user_usec")?, micros("system_usec")?))
    }

    /// How many processes of the leaf were killed for lack of memory; `None` without the memory controller.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        value(&read(self.oom_events.as_ref())?, "oom_kill")
    }

    /// The most memory that was in use at once since [`Leaf::forget_peak`], page cache included, in bytes.
    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        read(self.memory_peak.as_ref())?.trim().parse().ok()
    }

    /// Begins to look for a new peak; `false` where there is one that cannot be forgotten.
    pub(crate) fn forget_peak(&self) -> bool {
        self.memory_peak.as_ref().is_none_or(|file| file.write_at(b"0", 0).is_ok())
    }

    /// Removes the leaf and the groups the job made in it. The shepherd leaves the groups of version 1 first.
    pub(crate) fn remove(self) -> io::Result<()> {
        let mut removed = remove_groups(&self.spec.path);
        for place in self.spec.controllers.values() {
            if let Place::V1(group) = place {
                let parent = group.parent().unwrap_or(group);
                let gone = enter(parent).and_then(|()| remove_groups(group));
                removed = removed.and(gone);
            }
        }
        removed
    }
}

impl LeafSpec {
    /// Makes the group that a limit needs, writes the limit, and enters the group.
    fn prepare(&self, limit: &Limit) -> Enforcement {
        let Some(Place::V1(group)) = self.controllers.get(&limit.controller()) else { return self.write(limit) };
        if let Err(error) = make(group) {
            return refused(limit, &error);
        }
        match (self.write(limit), enter(group)) {
            (Enforcement::Enforced, Err(error)) => refused(limit, &error),
            (written, _) => written,
        }
    }

    /// Writes a limit where its controller is, and tells whether the kernel took it.
    fn write(&self, limit: &Limit) -> Enforcement {
        let written = match self.controllers.get(&limit.controller()) {
            Some(Place::Unified) => limit.write_unified(&self.path),
            Some(Place::V1(group)) => limit.write_v1(group),
            Some(Place::Missing(reason)) => return Enforcement::Advisory(reason.clone()),
            None => {
                return Enforcement::Advisory(format!("no {} controller was looked for", limit.controller().as_str()));
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

/// Moves the calling process into a group of version 1.
fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Makes a group; one left over and empty is replaced.
fn make(path: &Path) -> io::Result<()> {
    match create_group(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir(path)?;
            fs::create_dir(path)
        }
        other => other,
    }
}

/// Makes a group, and the one that holds it, which somebody may have tidied away while it was empty.
pub(super) fn create_group(path: &Path) -> io::Result<()> {
    match (fs::create_dir(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            match fs::create_dir(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::create_dir(path)
        }
        (made, _) => made,
    }
}

pub(super) fn remove_groups(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            for entry in fs::read_dir(path)?.filter_map(Result::ok) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove_groups(&entry.path())?;
                }
            }
            fs::remove_dir(path)
        }
        other => other,
    }
}

/// What a small file of the kernel says now.
fn read(file: Option<&File>) -> Option<String> {
    let mut buffer = [0; 1024];
    let length = file?.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The number after `key` in a file of `key number` lines.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_values_are_matched_whole() {
        assert_eq!(value("populated 1\nfrozen 0\n", "populated"), Some(1));
        assert_eq!(value("oom_kill_group 3\noom_kill 2\n", "oom_kill"), Some(2));
        assert_eq!(value("", "populated"), None);
    }
}
