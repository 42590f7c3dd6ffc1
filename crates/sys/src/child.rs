//! The end of a child process, with what it used.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::libc;

/// What a process and the children that it waited for have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildUsage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Largest resident memory of a single process, in bytes; at least the resident memory of the calling process at the
    /// start of the child.
    pub max_rss_bytes: u64,
}

/// Waits for the end of a child process, like [`Child::wait`]. Takes the child, because another process may have its pid
/// afterwards.
///
/// # Errors
/// If the process was already waited for.
#[expect(clippy::needless_pass_by_value, reason = "nobody may use the child afterwards")]
pub fn wait_with_usage(child: Child) -> io::Result<(ExitStatus, ChildUsage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers refer to local variables of the right type.
        let pid = unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, usage.as_mut_ptr()) };
        if pid != -1 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroes are a valid rusage, and wait4 has filled it in.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    let used = ChildUsage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss as u64 * 1024,
    };
    Ok((ExitStatus::from_raw(status), used))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn end_of_a_child_comes_with_its_cpu_time() {
        let child = Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7"]).spawn();
        let child = child.expect("there is a shell");
        let (status, used) = wait_with_usage(child).expect("the child is ours");
        assert_eq!(status.code(), Some(7));
        assert!(used.user + used.system > Duration::ZERO && used.max_rss_bytes > 0, "{used:?}");
    }
}
