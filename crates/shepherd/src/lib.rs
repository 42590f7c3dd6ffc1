//! The shepherd: a small process that supervises one run of a job, or one remote command (call). A run's shepherd
//! outlives the agent that started it.
//!
//! ```text
//! agent ── Launcher ──▶ launcher process ──fork──▶ shepherd ──clone+exec──▶ the job and its descendants
//!   ▲  (one fd per launch)  (never execs)              │  own session, subreaper, outside the job's leaf
//!   └────────────── control connection ────────────────┘  journal, stdout, stderr
//! ```
//!
//! **Idea.** All state of a run is in one directory and in one independent process. The agent may stop, crash or be
//! upgraded. The shepherd enforces the time limit, reaps the job, kills leftover processes, and writes the exit record
//! before it exits. A restarted agent calls [`adopt`] and learns one of three things: the run continues, it has ended,
//! or it is lost and can never start late.
//!
//! **The launcher process** is forked at the very beginning of the agent's `main`, while there is one thread and little
//! memory in use. For each launch, the agent sends it one end of a socket pair, and it forks a shepherd. The [`Launch`]
//! itself is sent on that socket pair, which remains the agent's connection: requests in one direction, [`Event`]s in
//! the other.
//!
//! **Files in a run's directory**
//!
//! | file | written | meaning |
//! | --- | --- | --- |
//! | `journal` | one line per step, see [`journal`] | the run's shepherd, and finally the [`ExitRecord`], when no other process is left |
//! | `stdout`, `stderr` | by the job itself | appended; a terminal's output goes to `stdout` |
//!
//! The control socket has an abstract name, stored in the journal. No socket file has to be created and removed for
//! every run, and path lengths do not matter. The kernel's peer credentials authenticate both sides: a shepherd accepts
//! only root and its own user, and a client only the process in the journal. Agent and shepherds share a network
//! namespace.
//!
//! **If the shepherd itself is killed**, nothing supervises the job, so the job must end too: its main process has a
//! parent death signal. [`adopt`] then returns [`Adopted::Lost`] with the leaf's path, and [`cgroup::Tree::sweep`]
//! kills the processes that are still in the leaf. Without a cgroup leaf, background processes of such a job can
//! survive. The kernel clears the parent death signal when the main process executes a set-user-id program; the leaf
//! covers that case too.
//!
//! **While the program starts**, the shepherd waits in `vfork` and serves no requests, usually for well under a
//! millisecond. If a file system never answers, neither the time limit nor [`Shepherd::terminate`] has an effect; the
//! agent then calls [`end_unstarted`].
//!
//! **A call** is a remote command on this machine: see [`Launcher::call`]. Its shepherd is the same process with the
//! same leaf, limits, termination sequence and lingering, but it writes no files. The streams are descriptors sent with
//! the [`Launch`]. The shepherd closes them as soon as the program runs, so that ends of files are seen.
//! [`Shepherd::signal`] sends signals, and [`Event::Stopped`] reports stops. A call ends with its connection: TERM, two
//! seconds, KILL. There is nothing to adopt; calls end with the agent. On a terminal, a [`session_leader`] leads the session. A
//! [`cgroup::ExistingProcess`] contains a process that already exists.
//!
//! **Not included:** threads, an async runtime, copying of output (the job writes to its files itself, except for
//! labelled output of several [`ranks`], see [`merge`]), retries and scheduling decisions.

mod adopt;
pub mod cgroup;
mod connection;
mod credentials;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handle;
pub mod journal;
mod keeper;
mod launch;
mod launcher;
mod members;
pub mod merge;
mod oom;
mod process;
pub mod ranks;
mod reap;
mod record;
mod run;
mod sandbox;
pub mod session_leader;
mod spawn;
mod sys;
mod terminal;
mod wipe;
mod wire;
mod zygote;

pub use adopt::{AdoptError, Adopted, Lost, LostReason, adopt, end_unstarted};
pub use handle::{Attachment, ControlError, LinkError, Shepherd};
pub use launch::{
    CallOptions, Credentials, DeviceFile, Files, Folders, JobNetwork, Launch, Members, Options, ResourceLimit,
    RootImage, RunSignal, Sandbox, Shown, WindowSize,
};
pub use launcher::{LaunchError, Launcher, StartError, Starting};
pub use process::ProcessId;
pub use record::{
    Cause, Containment, Enforcement, ExitRecord, Io, IoSource, Limits, Moment, Phase, ProcessEvents, RunningRecord,
    Status, StatusReport,
};
pub use sandbox::{HOME as SANDBOX_HOME, JOB_INTERFACE, JOB_MTU};
pub use sys::{pidfd_ended, pidfd_open, receive_all};
pub use wipe::wipe;
pub use wire::{EncodeError, Event, Started, WireError, resize_frame, terminal_input_frame};
