//! Becoming another user, between `clone` and `execve`.
//!
//! The order is what makes it safe: groups while it is still allowed to choose them, then the group, then the user, which gives up
//! the rest; then whatever an unusual parent may have left (capabilities that outlive a change of user), and last the promise that
//! no program executed from here on gains rights again. Groups were looked up before, by the agent: asking for them takes locks
//! and memory, and nothing may take those between `clone` and `execve`.
//!
//! The bounding set stays: without new privileges nothing can be gained from it.

use std::ptr;

use libc::{c_int, c_long};

use crate::launch::Credentials;

/// The 64-bit form of `capset`.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
const KEYCTL_SETPERM: c_int = 5;
const KEY_SPEC_SESSION_KEYRING: c_int = -3;

/// Becomes `user` for good. Makes system calls only; on failure `errno` tells, and the process must not go on.
///
/// The calls are made directly, because the C library's wrappers try to reach all threads of a process this one was cloned from.
pub(crate) fn become_user(user: &Credentials) -> Result<(), ()> {
    let done = |returned: c_long| if returned == -1 { Err(()) } else { Ok(()) };
    // SAFETY: system calls on integers and on memory that outlives them.
    unsafe {
        // Were one of these set, giving up root would keep capabilities. Refused without capabilities, when there are none to keep.
        libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0);
        done(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()))?;
        done(libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid))?;
        done(libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid))?;
    }
    drop_capabilities()?;
    // SAFETY: plain integers go in.
    done(c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
    join_new_keyring();
    Ok(())
}

/// Gives up every capability: permitted, effective, inheritable and ambient.
fn drop_capabilities() -> Result<(), ()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    let header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    // Two times effective, permitted, inheritable.
    let none = [0_u32; 6];
    // SAFETY: the kernel reads both, which are of the size that this version says. Kernels before 4.3 know no ambient ones.
    let dropped = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr())
    };
    if dropped == -1 { Err(()) } else { Ok(()) }
}

/// Begins a session keyring that nobody shares. Where that fails (no keys in this kernel, the user's quota is used up), the one that
/// remains is the launcher's, which [`lock_session_keyring`] has closed.
fn join_new_keyring() {
    // SAFETY: a null name asks for a nameless keyring.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, ptr::null::<u8>()) };
}

/// Leaves the session keyring of whoever started the agent, with what root keeps there, for an empty one that nobody may use.
pub(crate) fn lock_session_keyring() {
    join_new_keyring();
    // SAFETY: plain integers go in.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, KEY_SPEC_SESSION_KEYRING, 0) };
}
