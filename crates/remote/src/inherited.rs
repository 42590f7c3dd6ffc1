//! What a process inherits from its parent besides variables and its directory: the umask and the resource limits.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use crate::Limit;

/// The resources whose limits Slurm hands on, by Slurm's names.
pub const RESOURCES: [(&str, i32); 10] = [
    ("CPU", libc::RLIMIT_CPU as i32),
    ("FSIZE", libc::RLIMIT_FSIZE as i32),
    ("DATA", libc::RLIMIT_DATA as i32),
    ("STACK", libc::RLIMIT_STACK as i32),
    ("CORE", libc::RLIMIT_CORE as i32),
    ("RSS", libc::RLIMIT_RSS as i32),
    ("NPROC", libc::RLIMIT_NPROC as i32),
    ("NOFILE", libc::RLIMIT_NOFILE as i32),
    ("MEMLOCK", libc::RLIMIT_MEMLOCK as i32),
    ("AS", libc::RLIMIT_AS as i32),
];

/// Start of the variables with the limits of a job's submitter, as in `SLURM_RLIMIT_STACK=8388608`. The job's host applies
/// them to the script, which does not see them.
const VARIABLES: &str = "SLURM_RLIMIT_";

/// A umask and soft limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    pub umask: u32,
    pub limits: Vec<Limit>,
}

impl Inherited {
    /// Those of this process.
    #[must_use]
    pub fn own() -> Self {
        Self {
            umask: own_umask().unwrap_or(0o022),
            limits: RESOURCES.iter().filter_map(|(_, it)| own_limit(*it)).collect(),
        }
    }

    /// Without the limits of other resources than those that `is_kept` accepts by name.
    #[must_use]
    pub fn with_limits_of(mut self, is_kept: impl Fn(&str) -> bool) -> Self {
        let name =
            |limit: &Limit| RESOURCES.iter().find(|(_, number)| *number == limit.resource).map(|(name, _)| *name);
        self.limits.retain(|limit| name(limit).is_some_and(&is_kept));
        self
    }

    /// The soft limits as variables, for a job that is to start with them.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let soft = |number: i32| self.limits.iter().find(|limit| limit.resource == number).map(|limit| limit.soft);
        RESOURCES
            .iter()
            .filter_map(move |(name, number)| Some((format!("{VARIABLES}{name}"), soft(*number)?.to_string())))
    }

    /// Makes a command start with the umask and the soft limits, as far as the hard limits of this process allow. `own` is
    /// what the command would inherit.
    pub(crate) fn apply(&self, own: &Self, command: &mut Command) {
        let is_new = |limit: &&Limit| {
            own.limits.iter().any(|own| own.resource == limit.resource && own.soft != limit.soft.min(own.hard))
        };
        let limits: Vec<Limit> = self.limits.iter().filter(is_new).copied().collect();
        let umask = (self.umask != own.umask).then_some(self.umask);
        if limits.is_empty() && umask.is_none() {
            return;
        }
        // SAFETY: the closure calls only async-signal-safe functions, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if let Some(mask) = umask {
                    libc::umask(mask as libc::mode_t);
                }
                limits.iter().try_for_each(lower)
            });
        }
    }
}

/// Takes the limits of the submitter out of the environment of a job's host.
pub(crate) fn take_submitters(environment: &mut Vec<(OsString, OsString)>) -> Vec<Limit> {
    let limit = |name: &OsStr, value: &OsStr| {
        let name = name.to_str()?.strip_prefix(VARIABLES)?;
        let (_, resource) = RESOURCES.iter().find(|(known, _)| *known == name)?;
        Some(Limit { resource: *resource, soft: value.to_str()?.parse().ok()?, hard: u64::MAX })
    };
    let limits = environment.iter().filter_map(|(name, value)| limit(name, value)).collect();
    environment.retain(|(name, _)| !is_submitters(name));
    limits
}

/// Whether a variable is a limit of the job's submitter.
fn is_submitters(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(VARIABLES))
}

/// Returns a limit of this process; `None` if the kernel does not know the resource.
#[must_use]
pub fn own_limit(resource: i32) -> Option<Limit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the type that the call writes; an unknown resource number is an error.
    let asked = unsafe { libc::getrlimit(resource as _, &raw mut limit) };
    (asked == 0).then_some(Limit { resource, soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// Sets the soft limit of this process, at most to its hard limit.
fn lower(limit: &Limit) -> io::Result<()> {
    let Some(own) = own_limit(limit.resource) else { return Ok(()) };
    let new = libc::rlimit { rlim_cur: limit.soft.min(own.hard), rlim_max: own.hard };
    // SAFETY: the kernel reads the limit.
    let set = unsafe { libc::setrlimit(limit.resource as _, &raw const new) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads the umask from `/proc`: the system call could only set it, for all threads.
fn own_umask() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_submitter_leave_the_environment() {
        let own =
            Inherited { umask: 0o27, limits: vec![Limit { resource: libc::RLIMIT_STACK as i32, soft: 7, hard: 9 }] };
        let mut all: Vec<(OsString, OsString)> =
            own.variables().map(|(name, value)| (name.into(), value.into())).collect();
        assert_eq!(all, [("SLURM_RLIMIT_STACK".into(), "7".into())]);
        all.push(("SLURM_RLIMIT_CORE".into(), "much".into()));
        all.push(("A".into(), "1".into()));
        let limits = take_submitters(&mut all);
        assert_eq!(limits, [Limit { resource: libc::RLIMIT_STACK as i32, soft: 7, hard: u64::MAX }]);
        assert_eq!(all, [("A".into(), "1".into())]);
        assert_eq!(own.with_limits_of(|name| name != "STACK").limits, []);
    }

    #[test]
    fn commands_start_with_other_limits_and_another_umask() {
        let own = Inherited::own();
        let files = own_limit(libc::RLIMIT_NOFILE as i32).expect("the kernel knows it");
        let soft = files.soft - 1;
        let wanted = Inherited { umask: 0o31, limits: vec![Limit { soft, hard: u64::MAX, ..files }] };
        let mut command = Command::new("sh");
        command.args(["-c", "umask; ulimit -S -n; ulimit -H -n"]);
        wanted.apply(&own, &mut command);
        let output = String::from_utf8(command.output().expect("sh").stdout).expect("text");
        let hard = if files.hard == u64::MAX { "unlimited".to_owned() } else { files.hard.to_string() };
        assert_eq!(output, format!("0031\n{soft}\n{hard}\n"));
    }
}
