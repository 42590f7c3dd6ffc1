//! Creates the child with `clone3`, or with `clone` where `clone3` is not available.
//!
//! The child temporarily uses the shepherd's memory, on a separate stack, because copying page tables would cost as much
//! as everything else. It also starts directly in its cgroup leaf. Without `clone3`, the child has a copy of the memory
//! and moves itself into the leaf.
//!
//! A child that switches to another user always has a copy, because that user could otherwise access the memory of a
//! root process. So has the child of a sandbox.
//!
//! The child of a sandbox also starts in new namespaces, and the shepherd is not suspended: the child never executes a
//! program itself.

use std::io;

use libc::c_long;

use super::child::become_program;
use super::prepare::Prepared;
use crate::sandbox::Plan;
use crate::sys;

/// Creates the child and returns its pid. The child only runs [`become_program`].
pub(super) fn clone(prepared: &mut Prepared<'_>) -> io::Result<u32> {
    match direct::clone(prepared) {
        Ok(pid) => return Ok(pid),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => return Err(error),
        // Old kernels and the system call filters of containers: the child moves itself.
        Err(_) => prepared.members = prepared.program.leaf.and_then(|leaf| leaf.members_file().ok()),
    }
    let flags = c_long::from(how(prepared) | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack, this is like fork(2), and may wait for the exec. This process has one
    // thread, so all locks are free in the child's copy; the child runs only `become_program`.
    match sys::check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })? {
        0 => become_program(prepared),
        pid => Ok(pid as u32),
    }
}

/// The new namespaces of a sandbox, or the shepherd's wait for the start of the program.
fn how(prepared: &Prepared<'_>) -> libc::c_int {
    prepared.program.sandbox.as_ref().map_or(libc::CLONE_VFORK, Plan::namespaces)
}

/// `clone3`, called directly, because the child must not return from a function of the C library on another stack.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod direct {
    use std::arch::asm;
    use std::io;
    use std::os::fd::AsRawFd;

    use libc::c_long;

    use crate::spawn::child::become_program;
    use crate::spawn::clone::how;
    use crate::spawn::prepare::Prepared;

    /// Starts the child in the given cgroup. The constant in libc has an unsuitable type.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

    /// Sufficient, because the child calls only a few functions with small frames.
    const STACK_BYTES: usize = 32 << 10;

    #[repr(align(16))]
    struct Stack(#[expect(dead_code, reason = "used by the child, through its stack pointer")] [u8; STACK_BYTES]);

    pub(super) fn clone(prepared: &mut Prepared<'_>) -> io::Result<u32> {
        let mut stack = Box::<Stack>::new_uninit();
        // SAFETY: zeroes are a valid `clone_args`.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = how(prepared) as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        if prepared.program.credentials.is_none() && prepared.program.sandbox.is_none() {
            args.flags |= libc::CLONE_VM as u64;
            args.stack = stack.as_mut_ptr() as u64;
            args.stack_size = STACK_BYTES as u64;
        }
        if let Some(leaf) = prepared.program.leaf {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = leaf.directory().as_raw_fd() as u64;
        }
        // SAFETY: the stack and the borrows of `prepared` outlive the call, which returns in this process only after a
        // child that shares the memory has executed its program or exited. No other thread exists that could use them meanwhile, or that could
        // hold a lock in the child's copy.
        let pid = unsafe { clone3(&args, run_child, std::ptr::from_mut(prepared).cast()) };
        if pid < 0 { Err(io::Error::from_raw_os_error(-pid as i32)) } else { Ok(pid as u32) }
    }

    extern "C" fn run_child(prepared: *mut ()) -> ! {
        // SAFETY: the pointer comes from `clone`; the parent does not access it while the child runs.
        become_program(unsafe { &mut *prepared.cast::<Prepared<'_>>() })
    }

    /// The raw system call: returns the child's pid or a negative errno. The child calls `entry(argument)`, on its own
    /// stack or on its copy of this one.
    ///
    /// # Safety
    /// With `CLONE_VM`, `args` must also request `CLONE_VFORK` and a stack. `entry` must never return.
    unsafe fn clone3(args: &libc::clone_args, entry: extern "C" fn(*mut ()) -> !, argument: *mut ()) -> c_long {
        let returned: c_long;
        // SAFETY: guaranteed by the caller. The kernel keeps all registers except the named ones. The child's frame
        // pointer is cleared so that stack unwinding stops before the parent's frames.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r9",
                "call r8",
                "ud2",
                "2:",
                inlateout("rax") libc::SYS_clone3 => returned,
                in("rdi") args,
                in("rsi") size_of::<libc::clone_args>(),
                in("r8") entry,
                in("r9") argument,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        // SAFETY: see above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                "svc #0",
                "cbnz x0, 2f",
                "mov x29, xzr",
                "mov x0, x10",
                "blr x9",
                "brk #1",
                "2:",
                in("x8") libc::SYS_clone3,
                inlateout("x0") args => returned,
                in("x1") size_of::<libc::clone_args>(),
                in("x9") entry,
                in("x10") argument,
            );
        }
        returned
    }
}

/// On other architectures, the child is created with `clone`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod direct {
    use std::io;

    use crate::spawn::prepare::Prepared;

    pub(super) fn clone(_prepared: &mut Prepared<'_>) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
