//! A leaf around a process that is there already, which nobody has started for us.
//!
//! No shepherd looks after it: whoever made the enclosure asks now and then whether it is empty, and ends what is in it. The process
//! leaves the groups it was in, those of version 1 too where one is needed for a limit, and whatever it starts from then on is in
//! the enclosure with it. What it has started before stays where it was, and so does memory that it has in use.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use super::hierarchies::Hierarchies;
use super::leaf::{Entrant, Leaf};
use super::limits::{Limit, put};
use super::{LeafSpec, Place, wanted};
use crate::launch::Options;
use crate::record::Limits;
use crate::sys;

/// How often who sits in a group is looked at: what is forked in between is there at the next time.
const ROUNDS: u32 = 10;

/// A leaf with a process in it that was there before.
#[derive(Debug)]
pub struct Enclosure {
    spec: LeafSpec,
    leaf: Leaf,
    limits: Limits,
}

impl Enclosure {
    /// Makes a leaf with the limits that [`Options`] has, and moves a process into it; everything else in the options is ignored. The
    /// caller enters nothing.
    ///
    /// The process is the one behind `pidfd`, and has this pid. Its limit of memory is set only when it is certain that nobody else has been
    /// moved, who was given the pid meanwhile. Where devices can be denied and yet are not, that is an error; of
    /// other limits [`Enclosure::limits`] tells.
    ///
    /// # Errors
    /// When there is no such process, somebody else is in the leaf, it cannot be made, or the process cannot be moved or has ended meanwhile. Then it is in the
    /// groups it was in, and nothing is left behind, as far as the system allows.
    pub fn around(pid: u32, pidfd: BorrowedFd<'_>, spec: &LeafSpec, options: &Options) -> io::Result<Enclosure> {
        let origin = groups_of(pid)?;
        unless_ended(pidfd)?;
        if Leaf::open(spec).is_ok_and(|leaf| !leaf.is_empty()) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        enclose(pid, pidfd, spec, options).inspect_err(|_| release(spec, &origin))
    }

    /// That of an agent before this one, in the leaf of this name; nothing is known of its limits.
    ///
    /// # Errors
    /// When there is no such leaf.
    pub fn again(spec: &LeafSpec) -> io::Result<Enclosure> {
        Ok(Enclosure { spec: spec.clone(), leaf: Leaf::open(spec)?, limits: Limits::default() })
    }

    /// Which limits hold; `None` for those that were not asked for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether no process is left in it.
    pub fn is_empty(&self) -> bool {
        self.leaf.is_empty()
    }

    /// Sends a signal to every process in it. One that is forked meanwhile may be missed; one that has left it is not sent any.
    pub fn signal_all(&self, signal: i32) {
        let handles: Vec<_> =
            members(&self.spec.path).into_iter().filter_map(|pid| Some((pid, sys::pidfd_open(pid).ok()?))).collect();
        // Whoever has the pid now and is in here is the process behind the handle, unless that has ended, when it takes no signal.
        let still = members(&self.spec.path);
        for (_, pidfd) in handles.iter().filter(|(pid, _)| still.contains(pid)) {
            let _ = sys::pidfd_signal(pidfd.as_fd(), signal);
        }
    }

    /// Kills everything in it, at once where the kernel can. They are gone when [`Enclosure::is_empty`] says so, not when this returns.
    ///
    /// # Errors
    /// When the kernel refuses.
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

    /// Removes the leaf, which must be empty, and the groups that were made in it.
    ///
    /// # Errors
    /// When a process is left in it.
    pub fn remove(self) -> io::Result<()> {
        self.spec.remove(Entrant::Other)
    }
}

/// As good as no limit; divisible by every size of a page.
const AMPLE: Limit = Limit::Memory(i64::MAX.cast_unsigned() & !0xffff);

fn unless_ended(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    if sys::pidfd_ended(pidfd) { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
}

/// The groups that a process is in.
fn groups_of(pid: u32) -> io::Result<Hierarchies> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(Hierarchies::parse(&mounts, &fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
}

/// Makes the leaf, and moves the process in.
fn enclose(pid: u32, pidfd: BorrowedFd<'_>, spec: &LeafSpec, options: &Options) -> io::Result<Enclosure> {
    let wanted = wanted::limits_of(options);
    let ample = wanted.iter().map(|limit| if let Limit::Memory(_) = limit { AMPLE } else { limit.clone() });
    let mut leaf = Leaf::create(spec, &ample.collect::<Vec<_>>(), Entrant::Process(pid))?;
    unless_ended(pidfd)?;
    put(&spec.path.join("cgroup.procs"), &pid.to_string())?;
    unless_ended(pidfd)?;
    wanted.iter().filter(|limit| matches!(limit, Limit::Memory(_))).for_each(|limit| leaf.change(limit));
    let limits = wanted::held(options, Some(&leaf), "the leaf has no such limit");
    let options = Options { leaf: Some(spec.clone()), ..options.clone() };
    match wanted::open_devices(&options, &limits) {
        Some(reason) => Err(io::Error::other(format!("cannot be kept from devices that are not its own: {reason}"))),
        None => Ok(Enclosure { spec: spec.clone(), leaf, limits }),
    }
}

/// Puts whoever is in a leaf where it came from, and removes it.
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

/// The processes in a group and below it.
fn members(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(group).into_iter().flatten().filter_map(Result::ok);
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found.extend(members(&entry.path()));
    }
    found
}
