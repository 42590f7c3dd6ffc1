//! The program to start, and the data that is prepared for the child.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;

use hostler_sys::LOGIN_PATH;
use libc::{c_char, c_int};
use nix::unistd::geteuid;

use super::report::{Report, Step};
use crate::cgroup::Leaf;
use crate::launch::{Credentials, Files, ResourceLimit};
use crate::sandbox::Plan;
use crate::sys;

/// Program and settings of the child.
pub(crate) struct Program<'a> {
    pub(crate) argv: &'a [&'a CStr],
    pub(crate) env: &'a [&'a CStr],
    pub(crate) cwd: &'a CStr,
    /// Standard input, output and error. Descriptors 0 to 2 are allowed only in their own position.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Files that replace the streams.
    pub(crate) files: &'a Files,
    /// Whether standard input is a terminal that should become the controlling one.
    pub(crate) terminal: bool,
    pub(crate) umask: u32,
    /// Resource limits, applied where they are lower than those of this process.
    pub(crate) limits: &'a [ResourceLimit],
    /// Mount namespace of the program.
    pub(crate) namespace: Option<BorrowedFd<'a>>,
    /// File that the program sees as `/etc/hosts`.
    pub(crate) hosts: Option<&'a CStr>,
    pub(crate) credentials: Option<&'a Credentials>,
    /// Whether programs with a set-user-id bit may give the user rights.
    pub(crate) may_gain_rights: bool,
    pub(crate) cpus: Option<&'a [u32]>,
    pub(crate) leaf: Option<&'a Leaf>,
    /// Excludes a namespace.
    pub(crate) sandbox: Option<Plan<'a>>,
}

/// All data of the child.
pub(super) struct Prepared<'a> {
    pub(super) program: &'a Program<'a>,
    pub(super) report: &'a Report,
    /// Pid of this process.
    pub(super) parent: u32,
    /// The uid of the program's user, as text, if this process is root's.
    pub(super) login_uid: Option<String>,
    /// Paths to try, in order.
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<*const c_char>,
    /// Arguments for a script without `#!`: `/bin/sh`, the script's path (set by the child), the arguments.
    pub(super) shell_argv: Vec<*const c_char>,
    pub(super) env: Vec<*const c_char>,
    pub(super) cpu_mask: Vec<u64>,
    pub(super) limits: Vec<(c_int, CappedLimit)>,
    pub(super) files: Vec<StreamFile>,
    /// Whether standard error is the file of standard output.
    pub(super) stderr_is_stdout: bool,
    /// `cgroup.procs` of the leaf, opened only if the child must move itself.
    pub(super) members: Option<OwnedFd>,
    /// Both ends of the pipe that closes when the program of a sandbox is executed or has failed.
    pub(super) outcome: Option<(OwnedFd, OwnedFd)>,
}

impl<'a> Prepared<'a> {
    pub(super) fn new(program: &'a Program<'a>, report: &'a Report) -> Prepared<'a> {
        let pointers = |strings: &[&CStr]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let argv = pointers(program.argv);
        Prepared {
            program,
            report,
            parent: std::process::id(),
            login_uid: geteuid().is_root().then(|| program.credentials.map_or(0, |user| user.uid).to_string()),
            candidates: candidates(program.argv[0], program.env),
            shell_argv: [c"/bin/sh".as_ptr(), ptr::null()].into_iter().chain(argv[1..].iter().copied()).collect(),
            argv,
            env: pointers(program.env),
            cpu_mask: cpu_mask(program.cpus.unwrap_or_default()),
            limits: program.limits.iter().filter_map(lower).collect(),
            stderr_is_stdout: program.files.stdout.is_some() && program.files.stderr == program.files.stdout,
            files: files(program.files),
            members: None,
            outcome: None,
        }
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
    let path = env.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
    let path = path.unwrap_or(LOGIN_PATH.as_bytes());
    let join = |directory: &[u8]| {
        let directory = if directory.is_empty() { b"." } else { directory };
        CString::new([directory, b"/", name.to_bytes()].concat()).expect("the parts contain no NUL")
    };
    path.split(|&byte| byte == b':').map(join).collect()
}

/// A file for a stream of the program.
pub(super) struct StreamFile {
    pub(super) step: Step,
    /// Descriptor of the stream.
    pub(super) stream: c_int,
    pub(super) path: CString,
    /// Directories to create first, outermost first.
    pub(super) parents: Vec<CString>,
    pub(super) flags: c_int,
}

/// The files to open. A path with a NUL byte becomes an empty path, which cannot be opened.
fn files(files: &Files) -> Vec<StreamFile> {
    let c_string = |path: &str| CString::new(path).unwrap_or_default();
    let keep = if files.append { 0 } else { libc::O_TRUNC };
    // Without O_NONBLOCK, opening a FIFO would block this process and its shepherd.
    let any = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let write = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | keep;
    let stderr = files.stderr.as_ref().filter(|stderr| files.stdout.as_ref() != Some(stderr));
    [
        (Step::Stdin, files.stdin.as_ref(), libc::O_RDONLY),
        (Step::Stdout, files.stdout.as_ref(), write),
        (Step::Stderr, stderr, write),
    ]
    .into_iter()
    .zip(0..)
    .filter_map(|((step, path, flags), stream)| {
        let path = path?;
        let ends = path.match_indices('/').map(|(end, _)| end).filter(|end| *end > 0 && stream > 0);
        let parents = ends.map(|end| c_string(&path[..end])).collect();
        Some(StreamFile { step, stream, path: c_string(path), parents, flags: flags | any })
    })
    .collect()
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
pub(super) struct CappedLimit {
    soft: u64,
    hard: u64,
}

impl CappedLimit {
    /// `wanted`, limited to what `own` allows.
    fn new(own: CappedLimit, wanted: &ResourceLimit) -> CappedLimit {
        let hard = wanted.hard.min(own.hard);
        CappedLimit { soft: wanted.soft.min(hard), hard }
    }
}

/// The value to set for a wanted limit; `None` if the kernel does not know it.
fn lower(wanted: &ResourceLimit) -> Option<(c_int, CappedLimit)> {
    let mut own = CappedLimit::default();
    let nothing = ptr::null::<CappedLimit>();
    // SAFETY: the kernel writes two 64-bit words to a local variable.
    sys::check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, wanted.resource, nothing, &raw mut own) }).ok()?;
    Some((wanted.resource, CappedLimit::new(own, wanted)))
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
        let own = CappedLimit { soft: 10, hard: 100 };
        let lowered = |soft, hard| {
            let CappedLimit { soft, hard } = CappedLimit::new(own, &ResourceLimit { resource: 0, soft, hard });
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
