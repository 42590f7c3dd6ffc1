//! Threads that act as a user: with the user's rights to files, or as the user in everything.

use std::io;

use nix::libc;
use nix::unistd::{Gid, getegid, geteuid, getgroups};

use crate::account::Ids;

impl Ids {
    /// Runs `work` with this user's file access rights, on this thread and on threads that it starts. Needs root.
    ///
    /// # Errors
    /// If the kernel refuses; `work` does not run then.
    pub(crate) fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let _own = Borrowed::rights(self)?;
        Ok(work())
    }

    /// Changes the effective ids and the groups of this thread for good. That also takes its capabilities.
    fn become_effective(&self) -> io::Result<()> {
        const SAME: u32 = u32::MAX;
        let done = |returned| if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        set_groups(&self.groups)?;
        // SAFETY: the system calls take plain integers.
        done(unsafe { libc::syscall(libc::SYS_setresgid, SAME, self.gid, SAME) })?;
        // SAFETY: as above.
        done(unsafe { libc::syscall(libc::SYS_setresuid, SAME, self.uid, SAME) })
    }
}

/// Like [`Ids::act`]; with `None`, runs `work` with the agent's own rights.
///
/// # Errors
/// If the kernel refuses; `work` does not run then.
pub(crate) fn act_as<T>(user: Option<&Ids>, work: impl FnOnce() -> T) -> io::Result<T> {
    match user {
        Some(user) => user.act(work),
        None => Ok(work()),
    }
}

/// Runs `work` on a new thread that is this user to the kernel: it has only the user's rights, and the other ends of its
/// connections see the user. Its real uid stays the agent's, so that the user cannot signal it. With `None`, it keeps the
/// agent's own rights. Waits for the end of the thread.
///
/// # Errors
/// If the kernel refuses, and those of `work`, which does not run then.
pub(crate) fn act_alone<T: Send>(user: Option<&Ids>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let become_user_and_work = || {
            // The thread ends with these rights, so nothing restores its own.
            user.map_or(Ok(()), Ids::become_effective)?;
            work()
        };
        std::thread::Builder::new().spawn_scoped(scope, become_user_and_work)?.join().expect("the work does not panic")
    })
}

/// Guard that gives the current thread another user's file access rights. Dropping the guard restores the thread's own
/// rights.
///
/// Uses raw system calls, because the C library functions change all threads.
struct Borrowed {
    groups: Vec<u32>,
}

impl Borrowed {
    fn rights(user: &Ids) -> io::Result<Self> {
        let own = Self { groups: getgroups()?.into_iter().map(Gid::as_raw).collect() };
        set_groups(&user.groups)?;
        // From here on, dropping `own` restores the groups.
        set_file_ids(user.uid, user.gid)?;
        Ok(own)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let restored = set_file_ids(geteuid().as_raw(), getegid().as_raw()).and_then(|()| set_groups(&self.groups));
        if restored.is_err() {
            // Abort rather than continue with another user's rights. Jobs survive the end of this process.
            std::process::abort();
        }
    }
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe a valid slice, which the kernel only reads.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets this thread's file system uid and gid. The system calls report no errors, so this function reads the values
/// back.
fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    const ASK: u32 = u32::MAX;
    // SAFETY: the system calls take plain integers.
    let set = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        let now = (libc::syscall(libc::SYS_setfsuid, ASK), libc::syscall(libc::SYS_setfsgid, ASK));
        (now.0 as u32, now.1 as u32)
    };
    if set == (uid, gid) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn act_changes_file_rights_on_this_thread_and_its_children_only() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).expect("this test owns the path");
        let secret = directory.path().join("secret");
        fs::write(&secret, "root's").expect("writable");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("this test owns the path");
        let reads = || fs::read(&secret).is_ok();
        let user = Ids { uid: 65534, gid: 65533, groups: Vec::new() };
        let (here, below, elsewhere) = std::thread::scope(|scope| {
            let (ask, asked) = std::sync::mpsc::sync_channel::<()>(1);
            let elsewhere = scope.spawn(move || asked.recv().is_ok() && reads());
            let acted = user.act(|| {
                let below = std::thread::scope(|scope| scope.spawn(reads).join().expect("reads"));
                ask.send(()).expect("the receiver waits");
                (reads(), below, elsewhere.join().expect("reads"))
            });
            acted.expect("acting as another user needs root")
        });
        assert!(!here && !below, "another user cannot read root's file");
        assert!(elsewhere, "other threads keep root's rights");
        assert!(reads(), "this thread has root's rights again");
    }

    #[test]
    fn thread_of_a_user_has_only_the_users_rights() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("this test owns the path");
        let user = Ids { uid: 65534, gid: 65533, groups: vec![65532] };
        let reads = || fs::read_dir(directory.path()).map(|_| ());
        act_alone(Some(&user), reads).expect_err("another user cannot read root's directory");
        let ids = || Ok((geteuid().as_raw(), getegid().as_raw(), getgroups()?));
        let groups = vec![Gid::from_raw(65532)];
        assert_eq!(act_alone(Some(&user), ids).expect("needs root"), (65534, 65533, groups));
        // The user may signal a process only if this is the real or the saved uid of one of its threads.
        let real = || Ok(nix::unistd::getresuid()?);
        let ids = act_alone(Some(&user), real).expect("needs root");
        assert_eq!((ids.real.as_raw(), ids.saved.as_raw()), (0, 0));
        act_alone(None, reads).expect("the agent's own rights");
        reads().expect("this thread has kept root's rights");
    }

    #[test]
    fn act_applies_supplementary_groups_and_restores_them() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).expect("this test owns the path");
        let shared = directory.path().join("shared");
        fs::write(&shared, "the group's").expect("writable");
        std::os::unix::fs::chown(&shared, Some(0), Some(65532)).expect("needs root");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o040)).expect("this test owns the path");
        let before = getgroups().expect("readable");
        let member = Ids { uid: 65534, gid: 65533, groups: vec![65532] };
        assert!(member.act(|| fs::read(&shared).is_ok()).expect("needs root"));
        let other = Ids { groups: Vec::new(), ..member };
        assert!(!other.act(|| fs::read(&shared).is_ok()).expect("needs root"));
        assert_eq!(getgroups().expect("readable"), before);
    }
}
