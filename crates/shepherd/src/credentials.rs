//! Switches to another user, between `clone` and `execve`.
//!
//! The order makes it safe. Supplementary groups come first, while changing them is still permitted, then the group,
//! then the user, which gives up the remaining rights. Capabilities follow, because they can survive a change of
//! user. `no_new_privs` comes last, so that no executed program gains rights again. The agent looked up the groups
//! before: a lookup takes locks and allocates memory, which is not allowed between `clone` and `execve`.
//!
//! The bounding set stays unchanged: with `no_new_privs`, a program gains nothing from it.

use std::ptr;

use libc::{c_int, c_long};

use crate::launch::Credentials;

/// The version of `capset` with 64-bit sets.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
const KEYCTL_SETPERM: c_int = 5;
const KEY_SPEC_SESSION_KEYRING: c_int = -3;

/// Switches to `user` permanently, using system calls only. On failure, `errno` has the cause, and the process must
/// exit.
///
/// Uses raw system calls, because the C library's wrappers try to reach all threads of the process that was cloned.
pub(crate) fn become_user(user: &Credentials) -> Result<(), ()> {
    switch_to(user, false)?;
    give_up_rights()
}

/// Like [`become_user`], but programs with a set-user-id bit gain rights, as in a login.
pub(crate) fn become_user_as_in_login(user: &Credentials) -> Result<(), ()> {
    switch_to(user, false)?;
    set_capabilities(0)?;
    join_new_keyring();
    Ok(())
}

/// Like [`become_user`], but this process and all that it executes keep `capability`.
pub(crate) fn become_user_with(user: &Credentials, capability: u32) -> Result<(), ()> {
    switch_to(user, true)?;
    set_capabilities(1 << capability)?;
    // SAFETY: the system call takes plain integers. Executed programs get only capabilities that are ambient.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0) } == -1 {
        return Err(());
    }
    finish()
}

/// Changes groups and user. `keep`: the process may still use its capabilities.
fn switch_to(user: &Credentials, keep: bool) -> Result<(), ()> {
    let done = |returned: c_long| if returned == -1 { Err(()) } else { Ok(()) };
    // SAFETY: system calls with integers and with memory that outlives them.
    unsafe {
        // With one of these bits set, the process would keep capabilities. The call fails without capabilities, which
        // is harmless.
        libc::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0);
        done(libc::prctl(libc::PR_SET_KEEPCAPS, c_int::from(keep), 0, 0, 0).into())?;
        done(libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()))?;
        done(libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid))?;
        done(libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid))
    }
}

/// Gives up all capabilities for good, and the session's keyring.
pub(crate) fn give_up_rights() -> Result<(), ()> {
    set_capabilities(0)?;
    finish()
}

/// Forbids that an executed program gains rights, and leaves the session's keyring.
fn finish() -> Result<(), ()> {
    // SAFETY: the system call takes plain integers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == -1 {
        return Err(());
    }
    join_new_keyring();
    Ok(())
}

/// Drops all capabilities but those of `kept`: permitted, effective, inheritable and ambient.
fn set_capabilities(kept: u64) -> Result<(), ()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    let header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    // Effective, permitted and inheritable capabilities: three times the lower half of each set, then the upper one.
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let sets = [low, low, low, high, high, high];
    // SAFETY: the kernel only reads both structures, which have the size for this version. Kernels before 4.3 have no ambient capabilities.
    let dropped = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr())
    };
    if dropped == -1 { Err(()) } else { Ok(()) }
}

/// Joins a new session keyring. If that fails (no keyrings in this kernel, or the user's quota is exceeded), the
/// launcher's keyring remains, which [`lock_session_keyring`] has locked.
fn join_new_keyring() {
    // SAFETY: a null name creates an anonymous keyring.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, ptr::null::<u8>()) };
}

/// Replaces the session keyring of the user who started the agent, which may contain root's keys, with an empty locked
/// one.
pub(crate) fn lock_session_keyring() {
    join_new_keyring();
    // SAFETY: the system call takes plain integers.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_SETPERM, KEY_SPEC_SESSION_KEYRING, 0) };
}
