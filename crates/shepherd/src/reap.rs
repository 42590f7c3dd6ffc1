//! Reaping of children, and the resources that they used.

use std::mem::MaybeUninit;
use std::time::Duration;

use crate::record::ProcessEvents;

/// Result of [`reap`].
pub(crate) enum Reaped {
    /// A child has ended and was reaped.
    Child {
        pid: u32,
        /// Status as returned by `waitpid`.
        status: libc::c_int,
        usage: Usage,
    },
    /// The process has children, and all are alive.
    AllAlive,
    /// The process has no children. A subreaper then has no descendants either.
    NoneLeft,
}

/// Resources used by a reaped child and the children that it reaped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) max_rss_bytes: u64,
    /// Bytes read from disks.
    pub(crate) read_bytes: u64,
    /// Bytes written to files on disks.
    pub(crate) write_bytes: u64,
    pub(crate) events: ProcessEvents,
}

/// Reaps one child if one has ended.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers refer to local variables of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, usage.as_mut_ptr()) };
    match pid {
        0 => Reaped::AllAlive,
        -1 => Reaped::NoneLeft,
        _ => {
            // SAFETY: zeroes are a valid rusage, and wait4 has filled it in.
            let usage = unsafe { usage.assume_init() };
            Reaped::Child { pid: pid as u32, status, usage: Usage::from(usage) }
        }
    }
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Usage {
        /// Unit of the kernel's counters in bytes, independent of the disk's block size.
        const BLOCK_BYTES: u64 = 512;
        let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Usage {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_bytes: usage.ru_maxrss as u64 * 1024,
            read_bytes: usage.ru_inblock as u64 * BLOCK_BYTES,
            write_bytes: usage.ru_oublock as u64 * BLOCK_BYTES,
            events: ProcessEvents {
                voluntary_switches: usage.ru_nvcsw as u64,
                involuntary_switches: usage.ru_nivcsw as u64,
                minor_faults: usage.ru_minflt as u64,
                major_faults: usage.ru_majflt as u64,
            },
        }
    }
}
