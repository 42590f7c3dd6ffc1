//! Starting the main process of a run: one `clone`, a few settings, `execve`.
//!
//! `CLONE_VFORK` holds the shepherd until the child has executed its program or failed, and the child notes the
//! failing step and its errno on a page both share. So when [`spawn`] returns, it is known which of the two happened, without
//! a pipe. The child has its own memory (`CLONE_VM` is absent): nothing it does can disturb the shepherd. It
//! is born inside its cgroup leaf where the kernel can do that.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{c_char, c_int, c_long};

use crate::cgroup::Leaf;
use crate::launch::Credentials;
use crate::sys;

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Born in the group whose directory is given. libc's constant of that name does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What the child becomes.
pub(crate) struct Program<'a> {
    pub(crate) argv: &'a [&'a CStr],
    pub(crate) env: &'a [&'a CStr],
    pub(crate) cwd: &'a CStr,
    /// Become standard input, output and error; none of them is 0, 1 or 2.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Standard input is a terminal, to be the controlling one.
    pub(crate) terminal: bool,
    pub(crate) umask: u32,
    pub(crate) credentials: Option<&'a Credentials>,
    pub(crate) cpus: Option<&'a [u32]>,
    pub(crate) leaf: Option<&'a Leaf>,
}

/// A child that executes its program.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    /// Why it is not in the leaf that was asked for.
    pub(crate) outside_leaf: Option<io::Error>,
    /// Why it is not bound to the CPUs that were asked for.
    pub(crate) unbound: Option<io::Error>,
}

/// The program could not be started; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SpawnError {
    pub(crate) message: String,
    /// As shells return it.
    pub(crate) code: i32,
}

/// Starts the program in its own session.
pub(crate) fn spawn(program: &Program<'_>) -> Result<Child, SpawnError> {
    let failed = |what: &str, error: &io::Error| SpawnError {
        message: format!("cannot start a process: {what}: {}", sys::describe(error.raw_os_error().unwrap_or(0))),
        code: 126,
    };
    let page = Page::new().map_err(|error| failed("shared memory", &error))?;
    let mut image = Image::new(program).map_err(|error| failed("cgroup leaf", &error))?;
    let pid = clone(program, &mut image, page.report()).map_err(|error| failed("clone", &error))?;
    let report = page.report();
    match Step::from_number(report.failed_step.load(Ordering::Acquire)) {
        Some(step) => {
            let mut status = 0;
            // SAFETY: waits for our own child, which is on its way out.
            unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, libc::__WALL) };
            Err(explain(step, report.errno.load(Ordering::Acquire), program, &image))
        }
        None => {
            let error = |errno: &AtomicI32| match errno.load(Ordering::Acquire) {
                0 => None,
                errno => Some(io::Error::from_raw_os_error(errno)),
            };
            Ok(Child { pid, outside_leaf: error(&report.leaf_errno), unbound: error(&report.cpus_errno) })
        }
    }
}

/// The steps of the child that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Session = 1,
    Terminal,
    Output,
    Credentials,
    Parent,
    Directory,
    Execute,
}

impl Step {
    fn from_number(number: u32) -> Option<Step> {
        use Step::{Credentials, Directory, Execute, Output, Parent, Session, Terminal};
        let steps = [Session, Terminal, Output, Credentials, Parent, Directory, Execute];
        steps.into_iter().find(|&step| step as u32 == number)
    }
}

/// Turns the failed step into what a person reads.
fn explain(step: Step, errno: i32, program: &Program<'_>, image: &Image<'_>) -> SpawnError {
    let why = sys::describe(errno);
    let name = program.argv[0].to_string_lossy();
    let cwd = program.cwd.to_string_lossy();
    let message = match step {
        Step::Session => format!("cannot make a session: {why}"),
        Step::Terminal => format!("cannot take the terminal: {why}"),
        Step::Output => format!("cannot redirect output: {why}"),
        Step::Credentials => format!("cannot become user {}: {why}", program.credentials.map_or(0, |user| user.uid)),
        Step::Parent => format!("cannot tie the process to its shepherd: {why}"),
        Step::Directory => format!("cannot enter directory `{cwd}`: {why}"),
        Step::Execute if errno == libc::ENOENT && image.found(program.cwd) => {
            format!("cannot execute `{name}`: its interpreter is missing")
        }
        Step::Execute => format!("cannot execute `{name}`: {why}"),
    };
    let code = if step == Step::Execute && matches!(errno, libc::ENOENT | libc::ENOTDIR) { 127 } else { 126 };
    SpawnError { message, code }
}

/// What the child tells the shepherd.
#[derive(Default)]
struct Report {
    /// A [`Step`], or 0.
    failed_step: AtomicU32,
    errno: AtomicI32,
    leaf_errno: AtomicI32,
    cpus_errno: AtomicI32,
}

/// A page of memory that stays shared across `clone`.
struct Page(NonNull<Report>);

impl Page {
    fn new() -> io::Result<Page> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address the kernel chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<Report>(), protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // All zeroes, as the kernel gives it, is a valid `Report`.
        Ok(Page(NonNull::new(address.cast()).expect("mmap never maps the null page")))
    }

    fn report(&self) -> &Report {
        // SAFETY: the mapping is aligned, zero-initialised and lives as long as `self`; the fields are atomics, as
        // another process writes them.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Report>()) };
    }
}

/// Everything `execve` needs, laid out before the clone so that the child never allocates.
struct Image<'a> {
    /// Paths to try, in order.
    candidates: Vec<CString>,
    argv: Vec<*const c_char>,
    /// For a script without `#!`: `/bin/sh`, its path (filled in by the child), the arguments.
    shell_argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cpu_mask: Vec<u64>,
    /// `cgroup.procs` of the leaf, opened only when the child must move itself.
    members: Option<OwnedFd>,
    program: &'a Program<'a>,
}

impl<'a> Image<'a> {
    fn new(program: &'a Program<'a>) -> io::Result<Image<'a>> {
        let pointers = |strings: &[&CStr]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let argv = pointers(program.argv);
        let shell_argv = [c"/bin/sh".as_ptr(), ptr::null()].into_iter().chain(argv[1..].iter().copied()).collect();
        Ok(Image {
            candidates: candidates(program.argv[0], program.env),
            argv,
            shell_argv,
            env: pointers(program.env),
            cpu_mask: cpu_mask(program.cpus.unwrap_or_default()),
            members: None,
            program,
        })
    }

    /// Whether any candidate is a file, although executing it said "no such file".
    fn found(&self, cwd: &CStr) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let cwd = PathBuf::from(std::ffi::OsStr::from_bytes(cwd.to_bytes()));
        let path = |candidate: &CString| cwd.join(std::ffi::OsStr::from_bytes(candidate.to_bytes()));
        self.candidates.iter().any(|candidate| path(candidate).is_file())
    }
}

/// The paths a shell would try for `name`.
fn candidates(name: &CStr, env: &[&CStr]) -> Vec<CString> {
    if name.to_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    if name.is_empty() {
        return Vec::new();
    }
    let path = env.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    let join = |directory: &[u8]| {
        let directory = if directory.is_empty() { b"." } else { directory };
        CString::new([directory, b"/", name.to_bytes()].concat()).expect("made of strings without NUL")
    };
    path.split(|&byte| byte == b':').map(join).collect()
}

fn cpu_mask(cpus: &[u32]) -> Vec<u64> {
    let words = cpus.iter().max().map_or(0, |&highest| highest as usize / 64 + 1);
    let mut mask = vec![0; words];
    for &cpu in cpus {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    mask
}

/// Clones; the child runs [`become_program`] and never returns.
fn clone<'a>(program: &Program<'_>, image: &mut Image<'a>, report: &Report) -> io::Result<u32> {
    let parent = std::process::id();
    if let Some(leaf) = program.leaf {
        match clone_into(leaf) {
            Ok(0) => become_program(image, report, parent),
            Ok(pid) => return Ok(pid as u32),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => return Err(error),
            // An old kernel or a container's system call filter: the child moves itself.
            Err(_) => image.members = Some(leaf.members_file()?),
        }
    }
    let flags = c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is fork(2) that waits for the exec. This process has one
    // thread, so the child's copy of every lock is free; the child runs only `become_program`.
    match sys::check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })? {
        0 => become_program(image, report, parent),
        pid => Ok(pid as u32),
    }
}

fn clone_into(leaf: &Leaf) -> io::Result<c_long> {
    // SAFETY: all zeroes is a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_VFORK as u64 | CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = leaf.directory().as_raw_fd() as u64;
    // SAFETY: as for SYS_clone in `clone`; `args` is valid for the size given.
    sys::check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) })
}

/// The child's side. Only system calls on what was laid out before; ends in `execve` or `_exit`.
fn become_program(image: &mut Image<'_>, report: &Report, parent: u32) -> ! {
    let step = prepare(image, report, parent).err().unwrap_or(Step::Execute);
    if step != Step::Execute {
        fail(report, step, errno());
    }
    let errno = execute(image);
    fail(report, Step::Execute, errno)
}

fn prepare(image: &Image<'_>, report: &Report, parent: u32) -> Result<(), Step> {
    let program = image.program;
    if let Some(members) = &image.members {
        // "0" is the writing process.
        // SAFETY: the buffer is a literal of that length.
        if unsafe { libc::write(members.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
            report.leaf_errno.store(errno(), Ordering::Release);
        }
    }
    if !image.cpu_mask.is_empty() {
        let size = size_of_val(image.cpu_mask.as_slice());
        // SAFETY: the mask is valid for `size` bytes; pid 0 is the calling process.
        let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size, image.cpu_mask.as_ptr()) };
        if set == -1 {
            report.cpus_errno.store(errno(), Ordering::Release);
        }
    }
    // SAFETY: system calls on integers, and on memory that `image` keeps alive. The credential calls are made
    // directly, because the C library's wrappers try to reach all threads of a process this one was cloned from.
    unsafe {
        libc::umask(program.umask as libc::mode_t);
        ok(libc::setsid()).map_err(|()| Step::Session)?;
        for (wanted, fd) in (0..).zip(program.stdio) {
            ok(libc::dup2(fd.as_raw_fd(), wanted)).map_err(|()| Step::Output)?;
        }
        if program.terminal {
            ok(libc::ioctl(0, libc::TIOCSCTTY, 0)).map_err(|()| Step::Terminal)?;
        }
        if let Some(user) = program.credentials {
            let groups = libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr());
            ok(groups as c_int).map_err(|()| Step::Credentials)?;
            ok(libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid) as c_int)
                .map_err(|()| Step::Credentials)?;
            ok(libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid) as c_int)
                .map_err(|()| Step::Credentials)?;
        }
        // After the change of user, which clears it.
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)).map_err(|()| Step::Parent)?;
        if libc::getppid() as u32 != parent {
            libc::_exit(126);
        }
        ok(libc::chdir(program.cwd.as_ptr())).map_err(|()| Step::Directory)?;
        // Dispositions are all default since the launcher process; only the mask is the shepherd's own.
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// Tries the candidates as `execvpe` does; returns the errno that tells most.
fn execute(image: &mut Image<'_>) -> i32 {
    let mut result = libc::ENOENT;
    for candidate in &image.candidates {
        // SAFETY: null-terminated arrays of NUL-terminated strings that `image` and its program keep alive.
        unsafe { libc::execve(candidate.as_ptr(), image.argv.as_ptr(), image.env.as_ptr()) };
        match errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => result = libc::EACCES,
            libc::ENOEXEC => {
                image.shell_argv[1] = candidate.as_ptr();
                // SAFETY: as above.
                unsafe { libc::execve(c"/bin/sh".as_ptr(), image.shell_argv.as_ptr(), image.env.as_ptr()) };
                return libc::ENOEXEC;
            }
            other => return other,
        }
    }
    result
}

fn fail(report: &Report, step: Step, errno: i32) -> ! {
    report.errno.store(errno, Ordering::Release);
    report.failed_step.store(step as u32, Ordering::Release);
    sys::exit(127)
}

fn ok(returned: c_int) -> Result<(), ()> {
    if returned == -1 { Err(()) } else { Ok(()) }
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_up_as_shells_do() {
        let texts = |name: &CStr, env: &[&CStr]| -> Vec<String> {
            candidates(name, env).into_iter().map(|path| path.into_string().expect("plain")).collect()
        };
        assert_eq!(texts(c"./a", &[c"PATH=/x"]), ["./a"]);
        assert_eq!(texts(c"a", &[c"B=1", c"PATH=/x::/y"]), ["/x/a", "./a", "/y/a"]);
        assert_eq!(texts(c"a", &[]), ["/usr/local/bin/a", "/usr/bin/a", "/bin/a"]);
        assert!(texts(c"", &[]).is_empty());
    }

    #[test]
    fn cpu_masks_have_one_bit_each() {
        assert_eq!(cpu_mask(&[0, 3, 64]), [0b1001, 1]);
        assert!(cpu_mask(&[]).is_empty());
    }
}
