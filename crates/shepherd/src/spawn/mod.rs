//! Starts the main process of a run with `clone`, a few settings and `execve`.
//!
//! 1. [`prepare`] collects all data that the child needs, so that the child never allocates.
//! 2. [`clone`] creates the child and suspends the shepherd until the child has executed its program or failed. When
//!    [`spawn`] returns, the outcome is therefore known without a pipe.
//! 3. [`child`] is the code of the child: only system calls.
//! 4. [`report`] is a shared page in which the child records a failed step and its errno.
//!
//! The child of a sandbox does not execute the program, but forks again; a pipe then says that the outcome is known.

mod child;
mod clone;
mod prepare;
mod report;

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

use hostler_sys::missing_interpreter;

use self::prepare::Prepared;
pub(crate) use self::prepare::Program;
use self::report::{Page, Report, Step, error};
use crate::launch::Credentials;
use crate::sandbox;
use crate::sys;

/// A child that runs its program.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    /// Why the child is not in the requested leaf; `None` if it is.
    pub(crate) outside_leaf: Option<io::Error>,
    /// Why the child is not bound to the requested CPUs; `None` if it is.
    pub(crate) unbound: Option<io::Error>,
    /// For a sandbox, whose child is its init process: how the program ends.
    pub(crate) program: Option<ProgramEnd>,
}

/// The status of a sandbox's program, which its init process reports.
#[derive(Debug)]
pub(crate) struct ProgramEnd(Page);

impl ProgramEnd {
    /// The status as of `waitpid`; `None` if the program ended with its init process.
    pub(crate) fn status(&self) -> Option<libc::c_int> {
        self.0.report().program_ended.load(Ordering::Acquire).checked_sub(1).filter(|status| *status >= 0)
    }
}

/// Starts the program.
///
/// # Errors
/// Why it could not be started, and the exit code of a shell. No process of the program is left.
pub(crate) fn spawn(program: &Program<'_>) -> Result<Child, (String, i32)> {
    let failed = |what: &str, error: &io::Error| {
        let why = sys::describe(error.raw_os_error().unwrap_or(0));
        (format!("cannot start a process: {what}: {why}"), 126)
    };
    let page = Page::new().map_err(|error| failed("shared memory", &error))?;
    let report = page.report();
    let mut prepared = Prepared::new(program, report);
    if program.sandbox.is_some() {
        let pipe = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(io::Error::from);
        prepared.outcome = Some(pipe.map_err(|error| failed("pipe", &error))?);
    }
    let pid = clone::clone(&mut prepared).map_err(|error| match &program.sandbox {
        Some(plan) if plan.is_unprivileged => (sandbox::explain_clone(&error), 126),
        _ => failed("clone", &error),
    })?;
    if let Some((reader, writer)) = prepared.outcome.take() {
        drop(writer);
        // Nothing is written; the end of the file is awaited.
        let _ = File::from(reader).read(&mut [0]);
    }
    match report.failure() {
        None => {
            let (outside_leaf, unbound) = (error(&report.leaf_errno), error(&report.cpus_errno));
            let program = program.sandbox.is_some().then(|| ProgramEnd(page));
            Ok(Child { pid, outside_leaf, unbound, program })
        }
        Some((step, errno)) => {
            let mut status = 0;
            // SAFETY: waits for a child of this process that is exiting.
            unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, libc::__WALL) };
            Err(explain(step, errno, &prepared, report))
        }
    }
}

/// Describes a failed step.
fn explain(step: Step, errno: i32, prepared: &Prepared<'_>, report: &Report) -> (String, i32) {
    let program = prepared.program;
    let why = sys::describe(errno);
    let name = program.argv[0].to_string_lossy();
    let cwd = program.cwd.to_string_lossy();
    let mut message = match step {
        Step::Session => format!("cannot create a session: {why}"),
        Step::Terminal => format!("cannot take the terminal: {why}"),
        Step::Output => format!("cannot redirect output: {why}"),
        Step::Stdin | Step::Stdout | Step::Stderr => {
            let (stream, path) = match step {
                Step::Stdin => ("input", &program.files.stdin),
                Step::Stdout => ("output", &program.files.stdout),
                _ => ("error", &program.files.stderr),
            };
            let path = path.as_deref().unwrap_or_default();
            format!("cannot open `{path}` for standard {stream} as user{}: {why}", named(program.credentials))
        }
        Step::Login => format!(
            "cannot record the user in `/proc/self/loginuid`, so the job could choose under whose name the kernel's audit log \
             records it: {why}; make `/proc` writable for the agent"
        ),
        Step::Limits => format!("cannot lower a resource limit: {why}"),
        Step::Namespace => format!("cannot enter its mount namespace: {why}"),
        Step::Credentials => format!("cannot switch to user{}: {why}", named(program.credentials)),
        Step::Parent => format!("cannot tie the process to its shepherd: {why}"),
        Step::Directory if program.credentials.is_some() => {
            format!("cannot enter directory `{cwd}` as user{}: {why}", named(program.credentials))
        }
        Step::Directory => format!("cannot enter directory `{cwd}`: {why}"),
        Step::Interpreter => format!("cannot execute `{name}`: {}", missing_interpreter(&report.text())),
        Step::Sandbox => {
            let text = report.text();
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            format!("cannot build the sandbox: {}", String::from_utf8_lossy(text))
        }
        Step::Execute => format!("cannot execute `{name}`: {why}"),
    };
    let starts_in_image = program.sandbox.as_ref().and_then(|it| it.wanted.image.as_ref()?.start_in.as_ref()).is_some();
    if matches!(step, Step::Directory) && starts_in_image {
        message.push_str("; the image names it for its entry point; name a command, which starts in the job's folder");
    }
    let is_about_a_file = matches!(step, Step::Execute | Step::Interpreter | Step::Stdin | Step::Stdout | Step::Stderr);
    if let Some(sandbox) = program.sandbox.as_ref().filter(|_| is_about_a_file) {
        message.push_str(match sandbox.wanted.image {
            Some(_) if errno != libc::ENOENT => "",
            Some(_) => "; the job has only the programs of its image and of its folder",
            None => "; the job's sandbox shows only the programs of the system (/usr) and the job's folder",
        });
    }
    let code = if matches!(step, Step::Execute | Step::Interpreter) && matches!(errno, libc::ENOENT | libc::ENOTDIR) {
        127
    } else {
        126
    };
    (message, code)
}

/// Name and uid of the user, for messages.
fn named(user: Option<&Credentials>) -> String {
    user.map_or_else(String::new, |user| format!(" `{}` (uid {})", user.name, user.uid))
}
