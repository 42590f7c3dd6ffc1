//! Enclosures: a cgroup leaf for an existing process that no shepherd started.
//!
//! No shepherd supervises it: the creator of the enclosure polls whether it is empty, and kills its processes. The
//! process leaves its current groups, also those of version 1 if a limit needs one. Later children are in the enclosure
//! too. Earlier children, and memory already in use, stay in the old groups.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use super::files::put;
use super::hierarchies::Hierarchies;
use super::leaf::{Entrant, Leaf};
use super::limits::Limit;
use super::spec::{LeafSpec, Place};
use super::wanted;
use crate::launch::Options;
use crate::record::Limits;
use crate::sys;

/// Number of passes over a group's members. A later pass finds processes that were forked during an earlier pass.
const ROUNDS: u32 = 10;

/// A leaf around a process that was already running.
#[derive(Debug)]
pub struct ExistingProcess {
    spec: LeafSpec,
    leaf: Leaf,
    limits: Limits,
}

impl ExistingProcess {
    /// Creates a leaf with the limits from [`Options`] and moves a process into it. Ignores all other options. The
    /// calling process keeps its own groups.
    ///
    /// The process is given by `pidfd` and its pid. The memory limit is set last, when it is certain that the pid was
    /// not reused for another process. If this machine supports denying devices but denying them fails, this is an
    /// error. [`ExistingProcess::limits`] reports whether the other limits are enforced.
    ///
    /// # Errors
    /// If the process does not exist or ends during the call, the leaf is in use, or creating the leaf or moving the
    /// process fails. The process is then back in its previous groups and the leaf is removed, as far as the system
    /// allows.
    pub fn around(pid: u32, pidfd: BorrowedFd<'_>, spec: &LeafSpec, options: &Options) -> io::Result<ExistingProcess> {
        let origin = groups_of(pid)?;
        unless_ended(pidfd)?;
        if Leaf::open(spec).is_ok_and(|leaf| !leaf.is_empty()) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        enclose(pid, pidfd, spec, options).inspect_err(|_| release(spec, &origin))
    }

    /// Opens the existing leaf of an earlier agent. The limits of this leaf are unknown.
    ///
    /// # Errors
    /// If the leaf does not exist.
    pub fn open(spec: &LeafSpec) -> io::Result<ExistingProcess> {
        Ok(ExistingProcess { spec: spec.clone(), leaf: Leaf::open(spec)?, limits: Limits::default() })
    }

    /// Whether each limit is enforced; `None` for limits that were not requested.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether no process is left in the enclosure.
    pub fn is_empty(&self) -> bool {
        self.leaf.is_empty()
    }

    /// Sends a signal to every process in the enclosure. May miss processes that are being forked. Skips processes that
    /// have left the enclosure.
    pub fn signal_all(&self, signal: i32) {
        let handles: Vec<_> =
            members(&self.spec.path).into_iter().filter_map(|pid| Some((pid, sys::pidfd_open(pid).ok()?))).collect();
        // A pid that is still in the leaf is the process of the handle, unless that has ended and ignores the signal.
        let still = members(&self.spec.path);
        for (_, pidfd) in handles.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = sys::pidfd_signal(pidfd.as_fd(), signal);
        }
    }

    /// Kills all processes in the enclosure, atomically if the kernel supports it. The processes may end slightly
    /// later; see [`ExistingProcess::is_empty`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        match self.leaf.kill() {
            // Kernels before 5.14 have no cgroup.kill.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                for _ in 0..ROUNDS {
                    self.signal_all(libc::SIGKILL);
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Removes the leaf, which must be empty, and its child groups.
    ///
    /// # Errors
    /// If a process is left in the leaf.
    pub fn remove(self) -> io::Result<()> {
        self.spec.remove(Entrant::Other)
    }
}

/// A memory limit that no process can reach. The number is divisible by every page size.
const UNREACHABLE_LIMIT: Limit = Limit::Memory(i64::MAX.cast_unsigned() & !0xffff);

fn unless_ended(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    if sys::pidfd_ended(pidfd) { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
}

fn groups_of(pid: u32) -> io::Result<Hierarchies> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(Hierarchies::parse(&mounts, &fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
}

/// Creates the leaf and moves the process into it.
fn enclose(pid: u32, pidfd: BorrowedFd<'_>, spec: &LeafSpec, options: &Options) -> io::Result<ExistingProcess> {
    let wanted = wanted::limits_of(options);
    let ample = wanted.iter().map(|limit| if let Limit::Memory(_) = limit { UNREACHABLE_LIMIT } else { limit.clone() });
    let mut leaf = Leaf::create(spec, &ample.collect::<Vec<_>>(), Entrant::Process(pid))?;
    unless_ended(pidfd)?;
    put(&spec.path.join("cgroup.procs"), &pid.to_string())?;
    unless_ended(pidfd)?;
    wanted.iter().filter(|limit| matches!(limit, Limit::Memory(_))).for_each(|limit| leaf.change(limit));
    let limits = wanted::enforced_limits(options, Some(&leaf), "the cgroup does not have this limit");
    let options = Options { leaf: Some(spec.clone()), ..options.clone() };
    match wanted::unenforced_device_rule(&options, &limits) {
        Some(reason) => Err(io::Error::other(format!("cannot deny devices that the job does not hold: {reason}"))),
        None => Ok(ExistingProcess { spec: spec.clone(), leaf, limits }),
    }
}

/// Moves the processes of a leaf back to their previous groups and removes the leaf.
fn release(spec: &LeafSpec, origin: &Hierarchies) {
    let v1 = spec.controllers.iter().filter_map(|(controller, place)| match place {
        Place::V1(group) => Some((group, origin.v1.get(controller))),
        Place::Unified | Place::Missing(_) => None,
    });
    let groups: Vec<(&PathBuf, Option<&PathBuf>)> = v1.chain([(&spec.path, origin.unified.as_ref())]).collect();
    for _ in 0..ROUNDS {
        for (group, origin) in
            groups.iter().filter_map(|(group, origin)| Some((group, (*origin)?.join("cgroup.procs"))))
        {
            members(group).iter().for_each(|pid| drop(put(&origin, &pid.to_string())));
        }
        if spec.remove(Entrant::Other).is_ok() {
            return;
        }
    }
}

/// The processes in a group and its child groups.
fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(group).into_iter().flatten().filter_map(Result::ok);
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found.extend(members(&entry.path()));
    }
    found
}
