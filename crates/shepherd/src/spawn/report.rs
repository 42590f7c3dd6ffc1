//! The child's report to the shepherd, in a page of shared memory.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Steps of the child that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Session = 1,
    Terminal,
    Output,
    Stdin,
    Stdout,
    Stderr,
    Limits,
    Namespace,
    Credentials,
    Parent,
    Directory,
    Execute,
    /// The program exists, but not its interpreter.
    Interpreter,
    Sandbox,
    /// The login uid, for the kernel's audit log.
    Login,
}

impl Step {
    fn from_number(number: u32) -> Option<Step> {
        use Step::{
            Credentials, Directory, Execute, Interpreter, Limits, Login, Namespace, Output, Parent, Sandbox, Session,
            Stderr, Stdin, Stdout, Terminal,
        };
        let steps = [
            Session,
            Terminal,
            Output,
            Stdin,
            Stdout,
            Stderr,
            Limits,
            Namespace,
            Credentials,
            Parent,
            Directory,
            Execute,
            Interpreter,
            Sandbox,
            Login,
        ];
        steps.into_iter().find(|&step| step as u32 == number)
    }
}

/// Report of the child to the shepherd. The fields are atomics, because another process writes them.
pub(super) struct Report {
    /// Number of a [`Step`], or 0.
    failed_step: AtomicU32,
    errno: AtomicI32,
    /// Why the child could not enter its leaf, or 0.
    pub(super) leaf_errno: AtomicI32,
    /// Why the child could not bind itself to its CPUs, or 0.
    pub(super) cpus_errno: AtomicI32,
    /// The beginning of a script whose interpreter is missing, or why a sandbox cannot be built; zeroes after its end.
    text: [AtomicU8; MOST_TEXT],
    /// The status of a sandbox's program as of `waitpid`, plus one; 0 until it has ended.
    pub(super) program_ended: AtomicI32,
}

/// Longest kept text, in bytes.
pub(super) const MOST_TEXT: usize = 512;

impl Report {
    /// Records a failed step. Called by the child.
    pub(super) fn fail(&self, step: Step, errno: i32) {
        self.errno.store(errno, Ordering::Release);
        self.failed_step.store(step as u32, Ordering::Release);
    }

    /// Records a text. Called by the child.
    pub(super) fn keep_text(&self, bytes: &[u8]) {
        bytes.iter().zip(&self.text).for_each(|(byte, kept)| kept.store(*byte, Ordering::Release));
    }

    /// The text that the child recorded, with zeroes after its end.
    pub(super) fn text(&self) -> [u8; MOST_TEXT] {
        self.text.each_ref().map(|byte| byte.load(Ordering::Acquire))
    }

    /// The failed step and its errno; `None` if the child has executed its program.
    pub(super) fn failure(&self) -> Option<(Step, i32)> {
        let step = Step::from_number(self.failed_step.load(Ordering::Acquire))?;
        Some((step, self.errno.load(Ordering::Acquire)))
    }
}

/// The error of a field of the report.
pub(super) fn error(errno: &AtomicI32) -> Option<io::Error> {
    match errno.load(Ordering::Acquire) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(errno)),
    }
}

/// A memory page that stays shared after `clone`.
#[derive(Debug)]
pub(super) struct Page(NonNull<Report>);

const BYTES: NonZeroUsize = NonZeroUsize::new(size_of::<Report>()).expect("a report has fields");

impl Page {
    pub(super) fn new() -> io::Result<Page> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this creates a new mapping at an address that the kernel chooses. Its zeroes are a valid `Report`.
        Ok(Page(unsafe { mmap_anonymous(None, BYTES, protection, MapFlags::MAP_SHARED) }?.cast()))
    }

    pub(super) fn report(&self) -> &Report {
        // SAFETY: the mapping is aligned, zero-initialised and lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this is the mapping from `new`, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.0.cast(), BYTES.get()) };
    }
}
