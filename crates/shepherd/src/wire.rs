//! Protocol between agents or clients and a shepherd.
//!
//! Both directions are streams of frames: `[u32 length, little endian][u8 kind][body]`, where the length covers kind
//! and body. Small bodies are JSON with named fields, so either side may be newer. A launch has a JSON part and the raw
//! NUL-terminated strings for `execve`, so that a large environment is neither escaped nor copied. The launch of a call
//! has descriptors attached to its first byte: three streams, and optionally a mount namespace. Descriptors of other
//! frames are closed.
//!
//! After [`Event::Attached`], the shepherd's direction of that connection is unframed: it is the terminal's output,
//! until the run ends and the connection closes. The client's direction stays framed: [`terminal_input_frame`] for
//! input, [`resize_frame`] for a new window size.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::launch::{Launch, Options, RunSignal, WindowSize};
use crate::record::{Cause, ExitRecord, StatusReport};

/// Maximum frame size. The kernel refuses arguments and environment above 6 MiB anyway.
pub(crate) const FRAME_LIMIT: usize = 8 << 20;

/// Maximum frame size except for launches: records and answers are a few kilobytes, and input is split.
const SMALL_FRAME_LIMIT: usize = 256 << 10;

const LENGTH_BYTES: usize = 4;

const LAUNCH: u8 = 1;
const STATUS: u8 = 2;
const TERMINATE: u8 = 3;
const ATTACH: u8 = 5;
const RESIZE: u8 = 6;
const INPUT: u8 = 7;
const SIGNAL: u8 = 8;
const SIGNAL_RUN: u8 = 9;
const CHANGE_LIMIT: u8 = 10;
const STARTED: u8 = 64;
const FINISHED: u8 = 65;
const REPORT: u8 = 66;
const REFUSED: u8 = 67;
const ATTACHED: u8 = 68;
const STOPPED: u8 = 69;

/// How a frame violates the protocol; the connection is then closed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The frame exceeds the maximum size.
    #[error("frame of {0} bytes exceeds the maximum size")]
    TooLong(usize),
    /// This version does not know the frame's kind.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The body does not match its kind.
    #[error("malformed frame: {0}")]
    Malformed(String),
}

impl From<serde_json::Error> for WireError {
    fn from(error: serde_json::Error) -> WireError {
        WireError::Malformed(error.to_string())
    }
}

/// Messages from a client to a shepherd.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// Start this launch: the first frame for a new shepherd, or the next run of a lingering shepherd. See
    /// [`LaunchFrame`].
    Launch(LaunchFrame),
    /// Query the status; answered by [`Event::Status`].
    Status,
    /// End the run: TERM now and KILL after the grace period. A zero grace period means KILL immediately.
    Terminate(Terminate),
    /// Attach to the terminal; answered by [`Event::Attached`] or [`Event::Refused`].
    Attach(WindowSize),
    /// The attached client's window has a new size.
    Resize(WindowSize),
    /// Input of the attached client.
    Input(Vec<u8>),
    /// Send this signal to the process group of a call's main process. Answered only if refused, by [`Event::Refused`].
    Signal(i32),
    /// Send this signal to processes of a run. Not answered.
    SignalRun(RunSignal),
    /// Replace the time limit of a run; absent means no limit. Not answered.
    ChangeLimit(Option<Duration>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terminate {
    pub(crate) cause: Cause,
    pub(crate) grace: Duration,
}

/// Messages from a shepherd to a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The run was claimed; sent to the client that sent the launch.
    Started(Started),
    /// The run has ended, and the run's directory contains the exit record. Sent to all connected clients that are not
    /// attached.
    Finished(Box<ExitRecord>),
    /// Answer to a status query.
    Status(StatusReport),
    /// A request was refused, for this reason.
    Refused(String),
    /// From now on, the connection carries the terminal's output.
    Attached,
    /// This signal stopped the main process of a call; sent once per stop to the client that requested the call.
    Stopped(i32),
}

/// Body of [`Event::Started`]. The first such event has a pidfd of the shepherd attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub shepherd: u32,
    /// Pid of the main process; `None` if the process could not be started, see [`Event::Finished`].
    pub child: Option<u32>,
}

/// Frame with terminal input of an attached client. `bytes` may have any content, up to 64 KiB.
pub fn terminal_input_frame(bytes: &[u8]) -> Vec<u8> {
    frame(INPUT, &[bytes])
}

/// Frame with the new window size of an attached client.
pub fn resize_frame(size: WindowSize) -> Vec<u8> {
    frame(RESIZE, &[&json(&size)])
}

pub(crate) fn status_frame() -> Vec<u8> {
    frame(STATUS, &[])
}

pub(crate) fn terminate_frame(terminate: &Terminate) -> Vec<u8> {
    frame(TERMINATE, &[&json(terminate)])
}

pub(crate) fn attach_frame(size: WindowSize) -> Vec<u8> {
    frame(ATTACH, &[&json(&size)])
}

pub(crate) fn signal_frame(signal: i32) -> Vec<u8> {
    frame(SIGNAL, &[&json(&signal)])
}

pub(crate) fn signal_run_frame(signal: &RunSignal) -> Vec<u8> {
    frame(SIGNAL_RUN, &[&json(signal)])
}

pub(crate) fn change_limit_frame(limit: Option<Duration>) -> Vec<u8> {
    frame(CHANGE_LIMIT, &[&json(&limit)])
}

pub(crate) fn started_frame(started: &Started) -> Vec<u8> {
    frame(STARTED, &[&json(started)])
}

/// Frame with the exit record, in the same JSON as in the journal.
pub(crate) fn finished_frame(record: &[u8]) -> Vec<u8> {
    frame(FINISHED, &[record])
}

pub(crate) fn report_frame(report: &StatusReport) -> Vec<u8> {
    frame(REPORT, &[&json(report)])
}

pub(crate) fn refused_frame(reason: &str) -> Vec<u8> {
    frame(REFUSED, &[reason.as_bytes()])
}

pub(crate) fn attached_frame() -> Vec<u8> {
    frame(ATTACHED, &[])
}

pub(crate) fn stopped_frame(signal: i32) -> Vec<u8> {
    frame(STOPPED, &[&json(&signal)])
}

fn frame(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + length);
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.push(kind);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("data with string keys always serialises")
}

/// Removes the first complete frame from `inbox` and returns its kind and body.
pub(crate) fn take_frame(inbox: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, WireError> {
    let Some(length) = inbox.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 {
        return Err(WireError::Malformed("empty frame".into()));
    }
    let limit =
        if inbox.get(LENGTH_BYTES).is_none_or(|kind| *kind == LAUNCH) { FRAME_LIMIT } else { SMALL_FRAME_LIMIT };
    if length > limit {
        return Err(WireError::TooLong(length));
    }
    let end = LENGTH_BYTES + length;
    if inbox.len() < end {
        // Reserve exactly the final size: growing step by step would need up to twice that.
        inbox.try_reserve_exact(end - inbox.len()).map_err(|_| WireError::TooLong(length))?;
        return Ok(None);
    }
    let rest = inbox.split_off(end);
    let mut taken = std::mem::replace(inbox, rest);
    let kind = taken[LENGTH_BYTES];
    taken.drain(..=LENGTH_BYTES);
    Ok(Some((kind, taken)))
}

impl Request {
    pub(crate) fn decode(kind: u8, body: Vec<u8>) -> Result<Request, WireError> {
        Ok(match kind {
            LAUNCH => Request::Launch(LaunchFrame { body }),
            STATUS => Request::Status,
            TERMINATE => Request::Terminate(serde_json::from_slice(&body)?),
            ATTACH => Request::Attach(serde_json::from_slice(&body)?),
            RESIZE => Request::Resize(serde_json::from_slice(&body)?),
            INPUT => Request::Input(body),
            SIGNAL => Request::Signal(serde_json::from_slice(&body)?),
            SIGNAL_RUN => Request::SignalRun(serde_json::from_slice(&body)?),
            CHANGE_LIMIT => Request::ChangeLimit(serde_json::from_slice(&body)?),
            other => return Err(WireError::UnknownKind(other)),
        })
    }
}

impl Event {
    pub(crate) fn decode(kind: u8, body: &[u8]) -> Result<Event, WireError> {
        Ok(match kind {
            STARTED => Event::Started(serde_json::from_slice(body)?),
            FINISHED => Event::Finished(serde_json::from_slice(body)?),
            REPORT => Event::Status(serde_json::from_slice(body)?),
            REFUSED => Event::Refused(String::from_utf8_lossy(body).into_owned()),
            ATTACHED => Event::Attached,
            STOPPED => Event::Stopped(serde_json::from_slice(body)?),
            other => return Err(WireError::UnknownKind(other)),
        })
    }
}

/// Why a launch cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The command is empty.
    #[error("the command is empty")]
    EmptyCommand,
    /// A string contains a NUL byte, at which the kernel would end the string.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// The name of a variable is empty or contains `=`.
    #[error("`{0}` cannot name an environment variable")]
    VariableName(String),
    /// The arguments and the environment exceed the kernel's limit.
    #[error("arguments and environment of {0} bytes exceed the kernel's limit")]
    TooLarge(usize),
}

/// Encodes a launch: `[u32 length of options][options][u32 argc]`, followed by NUL-terminated strings: directory,
/// working directory, arguments, `NAME=value` pairs.
pub(crate) fn launch_frame(launch: &Launch) -> Result<Vec<u8>, EncodeError> {
    if launch.argv.is_empty() {
        return Err(EncodeError::EmptyCommand);
    }
    let options = json(&launch.options);
    let mut strings = Vec::new();
    push(&mut strings, launch.directory.as_os_str().as_bytes(), "the directory")?;
    push(&mut strings, launch.cwd.as_os_str().as_bytes(), "the working directory")?;
    for argument in &launch.argv {
        push(&mut strings, argument.as_bytes(), "an argument")?;
    }
    for (name, value) in &launch.env {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(EncodeError::VariableName(name.to_string_lossy().into_owned()));
        }
        check_nul(name.as_bytes(), "the name of a variable")?;
        strings.extend_from_slice(name.as_bytes());
        strings.push(b'=');
        push(&mut strings, value.as_bytes(), "the value of a variable")?;
    }
    let lengths = [options.len(), launch.argv.len()].map(|length| (length as u32).to_le_bytes());
    let bytes = frame(LAUNCH, &[&lengths[0], &options, &lengths[1], &strings]);
    if bytes.len() > FRAME_LIMIT { Err(EncodeError::TooLarge(bytes.len())) } else { Ok(bytes) }
}

fn push(strings: &mut Vec<u8>, bytes: &[u8], what: &'static str) -> Result<(), EncodeError> {
    check_nul(bytes, what)?;
    strings.extend_from_slice(bytes);
    strings.push(0);
    Ok(())
}

fn check_nul(bytes: &[u8], what: &'static str) -> Result<(), EncodeError> {
    if bytes.contains(&0) { Err(EncodeError::Nul(what)) } else { Ok(()) }
}

/// A launch as received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaunchFrame {
    body: Vec<u8>,
}

/// A launch prepared for `execve`. The strings refer to the receive buffer.
#[derive(Debug)]
pub(crate) struct LaunchView<'a> {
    pub(crate) options: Options,
    pub(crate) directory: &'a CStr,
    pub(crate) cwd: &'a CStr,
    /// Program and arguments: at least one string.
    pub(crate) argv: Vec<&'a CStr>,
    pub(crate) env: Vec<&'a CStr>,
}

impl LaunchFrame {
    pub(crate) fn view(&self) -> Result<LaunchView<'_>, WireError> {
        let (options, rest) = split_counted(&self.body)?;
        let options = serde_json::from_slice(options)?;
        let (argc, mut rest) = split_u32(rest)?;
        let mut strings = Vec::new();
        while !rest.is_empty() {
            let string = CStr::from_bytes_until_nul(rest).map_err(|_| truncated())?;
            rest = &rest[string.to_bytes_with_nul().len()..];
            strings.push(string);
        }
        if argc == 0 || strings.len() < 2 + argc {
            return Err(truncated());
        }
        let env = strings.split_off(2 + argc);
        let argv = strings.split_off(2);
        Ok(LaunchView { options, directory: strings[0], cwd: strings[1], argv, env })
    }
}

fn split_u32(bytes: &[u8]) -> Result<(usize, &[u8]), WireError> {
    let (head, rest) = bytes.split_first_chunk::<4>().ok_or_else(truncated)?;
    Ok((u32::from_le_bytes(*head) as usize, rest))
}

fn split_counted(bytes: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (length, rest) = split_u32(bytes)?;
    rest.split_at_checked(length).ok_or_else(truncated)
}

fn truncated() -> WireError {
    WireError::Malformed("the launch is truncated".into())
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use proptest::prelude::*;

    use super::*;
    use crate::launch::{CallOptions, ResourceLimit};

    fn bytes_without_nul() -> impl Strategy<Value = OsString> {
        prop::collection::vec(1u8..=255, 0..40).prop_map(|bytes| OsStr::from_bytes(&bytes).to_owned())
    }

    fn variable() -> impl Strategy<Value = (OsString, OsString)> {
        ("[A-Za-z_][A-Za-z0-9_]{0,8}".prop_map(OsString::from), bytes_without_nul())
    }

    fn call_options() -> impl Strategy<Value = CallOptions> {
        let limit = any::<(i32, u64, u64)>().prop_map(|(resource, soft, hard)| ResourceLimit { resource, soft, hard });
        let limits = prop::collection::vec(limit, 0..4);
        (any::<(bool, bool)>(), limits).prop_map(|((terminal, namespace), limits)| CallOptions {
            terminal,
            limits,
            namespace,
        })
    }

    proptest! {
        #[test]
        fn launch_frame_round_trips(
            directory in bytes_without_nul(),
            cwd in bytes_without_nul(),
            argv in prop::collection::vec(bytes_without_nul(), 1..6),
            env in prop::collection::vec(variable(), 0..6),
            call in prop::option::of(call_options()),
            cut in 0usize..400,
        ) {
            let options = Options { call, ..Options::default() };
            let launch = Launch { directory: directory.into(), argv, env, cwd: cwd.into(), options };
            let mut inbox = launch_frame(&launch).expect("no NULs in it");
            // The frame arrives in two parts.
            let late = inbox.split_off(cut.min(inbox.len() - 1));
            prop_assert!(take_frame(&mut inbox).expect("well formed").is_none());
            inbox.extend_from_slice(&late);
            let (kind, body) = take_frame(&mut inbox).expect("well formed").expect("complete");
            let Request::Launch(frame) = Request::decode(kind, body).expect("known kind") else { panic!("not a launch") };
            let view = frame.view().expect("an encoded launch can be decoded");
            prop_assert_eq!(view.directory.to_bytes(), launch.directory.as_os_str().as_bytes());
            prop_assert_eq!(view.cwd.to_bytes(), launch.cwd.as_os_str().as_bytes());
            prop_assert!(view.argv.iter().map(|a| a.to_bytes()).eq(launch.argv.iter().map(|a| a.as_bytes())));
            prop_assert_eq!(view.env.len(), launch.env.len());
            prop_assert_eq!(view.options, launch.options);
            prop_assert!(inbox.is_empty());
        }

        #[test]
        fn signal_frames_round_trip(signal in any::<i32>()) {
            let mut inbox = [signal_frame(signal), stopped_frame(signal)].concat();
            let mut next = || take_frame(&mut inbox).expect("well formed").expect("complete");
            let (kind, body) = next();
            prop_assert_eq!(Request::decode(kind, body).expect("known kind"), Request::Signal(signal));
            let (kind, body) = next();
            prop_assert_eq!(Event::decode(kind, &body).expect("known kind"), Event::Stopped(signal));
            prop_assert!(inbox.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut inbox in prop::collection::vec(any::<u8>(), 0..200)) {
            while let Ok(Some((kind, body))) = take_frame(&mut inbox) {
                let _ = Event::decode(kind, &body);
                if let Ok(Request::Launch(frame)) = Request::decode(kind, body) {
                    let _ = frame.view();
                }
            }
        }

        #[test]
        fn arbitrary_launch_bodies_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LaunchFrame { body }.view();
        }
    }

    #[test]
    fn only_launch_frames_may_be_large() {
        let begin = |length: usize, kind: u8| [&(length as u32).to_le_bytes()[..], &[kind]].concat();
        for (length, kind) in [(FRAME_LIMIT, LAUNCH), (SMALL_FRAME_LIMIT, INPUT), (SMALL_FRAME_LIMIT, FINISHED)] {
            assert!(matches!(take_frame(&mut begin(length, kind)), Ok(None)), "{kind}");
            assert!(matches!(take_frame(&mut begin(length + 1, kind)), Err(WireError::TooLong(_))), "{kind}");
        }
        assert!(
            matches!(take_frame(&mut vec![0xff; 4]), Err(WireError::TooLong(_))),
            "a large frame is refused before its kind is known"
        );
    }

    #[test]
    fn launches_that_the_kernel_would_refuse_are_not_encoded() {
        let refused = |launch: &Launch| launch_frame(launch).expect_err("must be refused");
        assert_eq!(refused(&Launch::new("/x", Vec::<OsString>::new())), EncodeError::EmptyCommand);
        assert_eq!(refused(&Launch::new("/x", ["a\0b"])), EncodeError::Nul("an argument"));
        let mut launch = Launch::new("/x", ["a"]);
        launch.env = vec![("A=B".into(), "c".into())];
        assert_eq!(refused(&launch), EncodeError::VariableName("A=B".into()));
        launch.env = vec![("A".into(), "x".repeat(FRAME_LIMIT).into())];
        assert!(matches!(refused(&launch), EncodeError::TooLarge(_)));
    }
}
