//! The shepherd: a tiny process that looks after one run of a job and outlives the agent that started it, or after one call.
//!
//! ```text
//! agent ── Launcher ──▶ launcher process ──fork──▶ shepherd ──clone+exec──▶ the job and its descendants
//!   ▲  (one fd per launch)  (never execs)              │  own session, subreaper, outside the job's leaf
//!   └────────────── control connection ────────────────┘  journal, stdout, stderr
//! ```
//!
//! **The idea.** Everything about a run lives in one directory and in one process that depends on nobody. The agent
//! may stop, crash or be upgraded; the shepherd holds the time limit, reaps the job, ends what the job left
//! behind, and writes the exit record before it goes. A restarted agent calls [`adopt`] and learns one of three
//! things: the run goes on, it ended so, or it is lost, and then it is certain that it can never start late.
//!
//! **The launcher process** is forked at the very beginning of the agent's `main`, while there is one thread and
//! little memory. A launch hands it one end of a socket pair; it forks and the child is the shepherd. The [`Launch`]
//! itself travels on that socket pair, which remains the agent's connection: requests go one way, [`Event`]s come back.
//!
//! **What a run's directory holds**
//!
//! | file | written | meaning |
//! | --- | --- | --- |
//! | `journal` | a line for every step, see [`journal`] | who looks after this run, and at the end the [`ExitRecord`]: when that is there, no process of the run remains, or it says which |
//! | `stdout`, `stderr` | by the job itself | appended; a terminal's output goes to `stdout` |
//!
//! The control socket has an abstract name, written in the journal: no file to make and remove for every run, no
//! limit on the length of paths. A shepherd talks only to root and its own user, and a client only to the
//! very process that was written down, both by the kernel's word. Agent and shepherds share a network namespace.
//!
//! **When the shepherd itself is killed** nobody can vouch for the job any more, so the job must not linger: its main
//! process asked the kernel to be killed with its parent. [`adopt`] then says [`Adopted::Lost`] with the leaf's path,
//! and [`cgroup::Tree::sweep`] ends whatever was still in it. Without a cgroup leaf, background processes of such a
//! job can survive it; with one they cannot. The kernel forgets the request when the main process
//! executes a set-user-id program; the leaf covers that too.
//!
//! **A call** is a command that somebody runs on this machine from another one, now: [`Launcher::call`]. Its shepherd is the same process
//! with the same leaf, limits, ladder and lingering, but nothing of it is written down. Its streams are descriptors that come along
//! with the [`Launch`] and that the shepherd closes as soon as the program runs, so that ends of files are seen; signals go to it by
//! [`Shepherd::signal`], and that it has stopped comes back as [`Event::Stopped`]. It ends with the connection that asked for it:
//! TERM, two seconds, KILL. So there is nothing to adopt: an agent that goes takes its calls along. On a terminal a [`seat`] leads its
//! session. A process that is there already is held by a [`cgroup::Enclosure`].
//!
//! **Deliberately absent:** threads, an async runtime, copying of output (the job writes to its files itself), any
//! retry or scheduling decision.

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
mod process;
pub mod ranks;
mod record;
mod run;
pub mod seat;
mod spawn;
mod sys;
mod terminal;
mod wipe;
mod wire;
mod zygote;

pub use adopt::{AdoptError, Adopted, Lost, LostReason, adopt};
pub use handle::{Attachment, ControlError, LinkError, Shepherd};
pub use launch::{CallOptions, Credentials, Launch, Options, ResourceLimit, WindowSize};
pub use launcher::{LaunchError, Launcher, StartError};
pub use process::ProcessId;
pub use record::{
    Cause, Containment, Enforcement, ExitRecord, Io, IoSource, Limits, Moment, Phase, RunningRecord, Status,
    StatusReport,
};
pub use sys::{pidfd_ended, pidfd_open, receive};
pub use wipe::wipe;
pub use wire::{EncodeError, Event, Started, WireError, resize_frame, terminal_input_frame};
