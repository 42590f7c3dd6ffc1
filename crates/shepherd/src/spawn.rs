//! Starts the main process of a run with `clone`, a few settings and `execve`.
//!
//! `CLONE_VFORK` suspends the shepherd until the child has executed its program or failed. The child records a failed
//! step and its errno in a shared page. When [`spawn`] returns, the outcome is therefore known without a pipe. With
//! `clone3`, the child temporarily uses the shepherd's memory, on a separate stack, because copying page tables would
//! cost as much as everything else. It also starts directly in its cgroup leaf. The child's code must not damage the
//! shared memory: it only makes system calls with prepared data, and writes only to its stack, the shared page, its
//! image and `errno`. Without `clone3`, the child has a copy of the memory and moves itself into the leaf.
//!
//! A child that switches to another user always has a copy, because that user could otherwise access the memory of a
//! root process.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{c_char, c_int, c_long};

use crate::cgroup::Leaf;
use crate::launch::{Credentials, ResourceLimit};
use crate::{credentials, sys};

/// Search path for programs if the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Flag of `clone3`: start the child in the given cgroup. The constant in libc has an unsuitable type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Value of `oom_score_adj` for programs that [`spawn`] starts. If unset, programs inherit this process's value.
static OOM_SCORE: OnceLock<CString> = OnceLock::new();

/// Makes the OOM killer choose the job before its shepherd. With version 1 cgroups, the shepherd is in the job's memory
/// group, and may use more memory than a job that fills a tmpfs file. If this process runs as root, it protects itself
/// and its forks from the OOM killer. Otherwise, it gives jobs a higher score.
pub(crate) fn offer_jobs_to_oom_killer() {
    const SCORE: &str = "/proc/self/oom_score_adj";
    // As much as the job's whole memory limit. With a lower score, a shepherd outweighs small programs at limits of a
    // few MiB.
    const READILY: i32 = 1000;
    let Ok(usual) = std::fs::read_to_string(SCORE) else { return };
    let usual: i32 = usual.trim().parse().unwrap_or_default();
    let is_protected = std::fs::write(SCORE, "-1000").is_ok();
    let score = if is_protected { usual } else { usual.max(READILY) };
    let _ = OOM_SCORE.set(CString::new(score.to_string()).expect("a decimal number contains no NUL"));
}

/// Program and settings of the child.
pub(crate) struct Program<'a> {
    pub(crate) argv: &'a [&'a CStr],
    pub(crate) env: &'a [&'a CStr],
    pub(crate) cwd: &'a CStr,
    /// Standard input, output and error. Descriptors 0 to 2 are allowed only in their own position.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Whether standard input is a terminal that should become the controlling terminal.
    pub(crate) terminal: bool,
    pub(crate) umask: u32,
    /// Resource limits. A limit above this process's own has no effect.
    pub(crate) limits: &'a [ResourceLimit],
    /// Mount namespace of the program.
    pub(crate) namespace: Option<BorrowedFd<'a>>,
    pub(crate) credentials: Option<&'a Credentials>,
    pub(crate) cpus: Option<&'a [u32]>,
    pub(crate) leaf: Option<&'a Leaf>,
}

/// A child that runs its program.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    /// Why the child is not in the requested leaf; `None` if the child is in the leaf.
    pub(crate) outside_leaf: Option<io::Error>,
    /// Why the child is not bound to the requested CPUs; `None` if the child is bound.
    pub(crate) unbound: Option<io::Error>,
}

/// The reason why the program could not be started. No process of the program is left.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SpawnError {
    pub(crate) message: String,
    /// Exit code as in a shell.
    pub(crate) code: i32,
}

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
            // SAFETY: waits for a child of this process that is exiting.
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

/// Steps of the child that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Session = 1,
    Terminal,
    Output,
    Limits,
    Namespace,
    Credentials,
    Parent,
    Directory,
    Execute,
}

impl Step {
    fn from_number(number: u32) -> Option<Step> {
        use Step::{Credentials, Directory, Execute, Limits, Namespace, Output, Parent, Session, Terminal};
        let steps = [Session, Terminal, Output, Limits, Namespace, Credentials, Parent, Directory, Execute];
        steps.into_iter().find(|&step| step as u32 == number)
    }
}

/// Describes a failed step.
fn explain(step: Step, errno: i32, program: &Program<'_>, image: &Image<'_>) -> SpawnError {
    let why = sys::describe(errno);
    let name = program.argv[0].to_string_lossy();
    let cwd = program.cwd.to_string_lossy();
    let message = match step {
        Step::Session => format!("cannot create a session: {why}"),
        Step::Terminal => format!("cannot take the terminal: {why}"),
        Step::Output => format!("cannot redirect output: {why}"),
        Step::Limits => format!("cannot lower a resource limit: {why}"),
        Step::Namespace => format!("cannot enter the command's mount namespace: {why}"),
        Step::Credentials => format!("cannot switch to user{}: {why}", named(program.credentials)),
        Step::Parent => format!("cannot set the parent death signal: {why}"),
        Step::Directory if program.credentials.is_some() => {
            format!("cannot enter directory `{cwd}` as user{}: {why}", named(program.credentials))
        }
        Step::Directory => format!("cannot enter directory `{cwd}`: {why}"),
        Step::Execute if errno == libc::ENOENT && image.found(program.cwd) => {
            format!("cannot execute `{name}`: its interpreter is missing")
        }
        Step::Execute => format!("cannot execute `{name}`: {why}"),
    };
    let code = if step == Step::Execute && matches!(errno, libc::ENOENT | libc::ENOTDIR) { 127 } else { 126 };
    SpawnError { message, code }
}

/// Name and uid of the user, for messages.
fn named(user: Option<&Credentials>) -> String {
    user.map_or_else(String::new, |user| format!(" `{}` (uid {})", user.name, user.uid))
}

/// Report of the child to the shepherd.
#[derive(Default)]
struct Report {
    /// Number of a [`Step`], or 0.
    failed_step: AtomicU32,
    errno: AtomicI32,
    leaf_errno: AtomicI32,
    cpus_errno: AtomicI32,
}

/// A memory page that stays shared after `clone`.
struct Page(NonNull<Report>);

impl Page {
    fn new() -> io::Result<Page> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: this creates a new anonymous mapping at an address that the kernel chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<Report>(), protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // The kernel provides zeroes, which are a valid `Report`.
        Ok(Page(NonNull::new(address.cast()).expect("mmap never maps the null page")))
    }

    fn report(&self) -> &Report {
        // SAFETY: the mapping is aligned, zero-initialised and lives as long as `self`. The fields are atomics, because
        // another process writes them.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the mapping from `new`, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Report>()) };
    }
}

/// All data for `execve`, prepared before the clone so that the child never allocates.
struct Image<'a> {
    /// Paths to try, in order.
    candidates: Vec<CString>,
    argv: Vec<*const c_char>,
    /// Arguments for a script without `#!`: `/bin/sh`, the script's path (set by the child), the arguments.
    shell_argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cpu_mask: Vec<u64>,
    limits: Vec<(c_int, Lowered)>,
    /// `cgroup.procs` of the leaf, opened only if the child must move itself.
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
            limits: program.limits.iter().filter_map(lower).collect(),
            members: None,
            program,
        })
    }

    /// Whether any candidate is a file. The kernel reports "no such file" also for a script whose interpreter is
    /// missing.
    fn found(&self, cwd: &CStr) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let cwd = PathBuf::from(std::ffi::OsStr::from_bytes(cwd.to_bytes()));
        let path = |candidate: &CString| cwd.join(std::ffi::OsStr::from_bytes(candidate.to_bytes()));
        self.candidates.iter().any(|candidate| path(candidate).is_file())
    }
}

/// Paths that a shell would try for `name`.
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
        CString::new([directory, b"/", name.to_bytes()].concat()).expect("the parts contain no NUL")
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

/// A resource limit to set in the child, in the kernel's 64-bit format.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lowered {
    soft: u64,
    hard: u64,
}

impl Lowered {
    /// `wanted`, limited to what `own` allows.
    fn new(own: Lowered, wanted: &ResourceLimit) -> Lowered {
        let hard = wanted.hard.min(own.hard);
        Lowered { soft: wanted.soft.min(hard), hard }
    }
}

/// The value to set for a wanted limit; `None` if the kernel does not know the resource.
fn lower(wanted: &ResourceLimit) -> Option<(c_int, Lowered)> {
    let mut own = Lowered::default();
    let nothing = ptr::null::<Lowered>();
    // SAFETY: the kernel writes two 64-bit words to a local variable.
    sys::check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, wanted.resource, nothing, &raw mut own) }).ok()?;
    Some((wanted.resource, Lowered::new(own, wanted)))
}

/// Clones this process. The child runs [`become_program`] and never returns.
fn clone(program: &Program<'_>, image: &mut Image<'_>, report: &Report) -> io::Result<u32> {
    let parent = std::process::id();
    let mut child = ChildSide { image, report, parent };
    let born = match program.credentials {
        None => borrowing::clone(program.leaf, &mut child),
        Some(_) => copying_clone(program.leaf, &mut child),
    };
    match born {
        Ok(pid) => return Ok(pid),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) => return Err(error),
        // Old kernels and the system call filters of containers: the child moves itself.
        Err(_) => child.image.members = program.leaf.and_then(|leaf| leaf.members_file().ok()),
    }
    let flags = c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack, this is like fork(2) but waits for the exec. This process has one
    // thread, so all locks are free in the child's copy; the child runs only `become_program`.
    match sys::check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })? {
        0 => become_program(child.image, report, parent),
        pid => Ok(pid as u32),
    }
}

/// Creates a child with `clone3`, directly in the cgroup `leaf`. The child has a copy of this process's memory.
fn copying_clone(leaf: Option<&Leaf>, child: &mut ChildSide<'_, '_>) -> io::Result<u32> {
    // SAFETY: zeroes are a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_VFORK as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(leaf) = leaf {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = leaf.directory().as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM and with a null stack, this is like fork(2) but waits for the exec. This process has one
    // thread, so all locks are free in the child's copy; the child runs only `become_program`.
    match sys::check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) })? {
        0 => become_program(child.image, child.report, child.parent),
        pid => Ok(pid as u32),
    }
}

/// Data for the child.
struct ChildSide<'c, 'p> {
    image: &'c mut Image<'p>,
    report: &'c Report,
    parent: u32,
}

/// `clone3` for a child that uses this process's memory until it executes its program.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod borrowing {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    use super::{AsRawFd, CLONE_INTO_CGROUP, ChildSide, Leaf, become_program, c_long, io};

    /// Size of the child's stack. The child calls only a few functions with small frames.
    const STACK_BYTES: usize = 32 << 10;

    #[repr(align(16))]
    struct Stack(
        #[expect(dead_code, reason = "the child uses the memory through its stack pointer")] [u8; STACK_BYTES],
    );

    pub(super) fn clone(leaf: Option<&Leaf>, child: &mut ChildSide<'_, '_>) -> io::Result<u32> {
        let mut stack = Box::<Stack>::new_uninit();
        // SAFETY: zeroes are a valid `clone_args`.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        args.stack = std::ptr::from_mut::<MaybeUninit<Stack>>(&mut stack) as u64;
        args.stack_size = STACK_BYTES as u64;
        if let Some(leaf) = leaf {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = leaf.directory().as_raw_fd() as u64;
        }
        // SAFETY: the stack and the borrows of `child` outlive the call, which returns in this process only after the
        // child has executed its program or exited. No other thread exists that could use them meanwhile.
        let pid = unsafe { clone3(&args, run_child, std::ptr::from_mut(child).cast()) };
        if pid < 0 { Err(io::Error::from_raw_os_error(-pid as i32)) } else { Ok(pid as u32) }
    }

    extern "C" fn run_child(child: *mut ()) -> ! {
        // SAFETY: the pointer comes from `clone`; the parent does not access it while the child runs.
        let child = unsafe { &mut *child.cast::<ChildSide<'_, '_>>() };
        become_program(child.image, child.report, child.parent)
    }

    /// The raw system call: returns the child's pid or a negative errno. The child calls `entry(argument)` on its
    /// stack.
    ///
    /// # Safety
    /// `args` must request `CLONE_VM | CLONE_VFORK` and a stack, and `entry` must never return.
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

/// On other architectures, the child gets a copy of the memory.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod borrowing {
    use super::{ChildSide, Leaf, io};

    pub(super) fn clone(_leaf: Option<&Leaf>, _child: &mut ChildSide<'_, '_>) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Code that the child runs. Makes only system calls with prepared data, because the child may use the shepherd's
/// memory. Ends in `execve` or `_exit`.
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
        // "0" means the writing process.
        // SAFETY: the buffer is a literal with this length.
        if unsafe { libc::write(members.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
            report.leaf_errno.store(errno(), Ordering::Release);
        }
    }
    if let Some(score) = OOM_SCORE.get() {
        // SAFETY: both strings are NUL-terminated and outlive the calls. A failure is harmless.
        unsafe {
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, score.as_ptr().cast(), score.count_bytes());
            libc::close(file);
        }
    }
    if !image.cpu_mask.is_empty() {
        let size = size_of_val(image.cpu_mask.as_slice());
        // SAFETY: the mask is valid for `size` bytes; pid 0 means the calling process.
        let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size, image.cpu_mask.as_ptr()) };
        if set == -1 {
            report.cpus_errno.store(errno(), Ordering::Release);
        }
    }
    // SAFETY: system calls with integers and with memory that `image` keeps alive.
    unsafe {
        libc::umask(program.umask as libc::mode_t);
        ok(libc::setsid()).map_err(|()| Step::Session)?;
        for (wanted, fd) in (0..).zip(program.stdio) {
            ok(libc::dup2(fd.as_raw_fd(), wanted)).map_err(|()| Step::Output)?;
        }
        if program.terminal {
            ok(libc::ioctl(0, libc::TIOCSCTTY, 0)).map_err(|()| Step::Terminal)?;
        }
        for (resource, limit) in &image.limits {
            let nothing = ptr::null_mut::<Lowered>();
            let set = libc::syscall(libc::SYS_prlimit64, 0, *resource, ptr::from_ref(limit), nothing);
            ok(set as c_int).map_err(|()| Step::Limits)?;
        }
        if let Some(namespace) = program.namespace {
            ok(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS)).map_err(|()| Step::Namespace)?;
        }
        if let Some(user) = program.credentials {
            credentials::become_user(user).map_err(|()| Step::Credentials)?;
        }
        // Set after the change of user, which clears it.
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)).map_err(|()| Step::Parent)?;
        if libc::getppid() as u32 != parent {
            libc::_exit(126);
        }
        ok(libc::chdir(program.cwd.as_ptr())).map_err(|()| Step::Directory)?;
        // The launcher process has reset all signal dispositions; only the mask must be reset.
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// Tries the candidates like `execvpe`. Returns the most informative errno.
fn execute(image: &mut Image<'_>) -> i32 {
    let mut result = libc::ENOENT;
    for candidate in &image.candidates {
        // SAFETY: the arrays are null-terminated, and `image` and its program keep their strings alive.
        unsafe { libc::execve(candidate.as_ptr(), image.argv.as_ptr(), image.env.as_ptr()) };
        match errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => result = libc::EACCES,
            libc::ENOEXEC => {
                image.shell_argv[1] = candidate.as_ptr();
                // SAFETY: see above.
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
    fn programs_are_looked_up_like_in_a_shell() {
        let texts = |name: &CStr, env: &[&CStr]| -> Vec<String> {
            candidates(name, env).into_iter().map(|path| path.into_string().expect("plain")).collect()
        };
        assert_eq!(texts(c"./a", &[c"PATH=/x"]), ["./a"]);
        assert_eq!(texts(c"a", &[c"B=1", c"PATH=/x::/y"]), ["/x/a", "./a", "/y/a"]);
        assert_eq!(texts(c"a", &[]), ["/usr/local/bin/a", "/usr/bin/a", "/bin/a"]);
        assert!(texts(c"", &[]).is_empty());
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let own = Lowered { soft: 10, hard: 100 };
        let lowered = |soft, hard| {
            let Lowered { soft, hard } = Lowered::new(own, &ResourceLimit { resource: 0, soft, hard });
            (soft, hard)
        };
        assert_eq!(lowered(5, 50), (5, 50));
        assert_eq!(lowered(50, u64::MAX), (50, 100));
        assert_eq!(lowered(u64::MAX, u64::MAX), (100, 100));
        assert_eq!(lowered(70, 50), (50, 50), "the soft limit must not exceed the hard limit");
        assert_eq!(lower(&ResourceLimit { resource: 1000, soft: 1, hard: 1 }), None);
    }

    #[test]
    fn cpu_masks_have_one_bit_each() {
        assert_eq!(cpu_mask(&[0, 3, 64]), [0b1001, 1]);
        assert!(cpu_mask(&[]).is_empty());
    }
}
