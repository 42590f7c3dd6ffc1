//! Frames: the unit of the protocol.
//!
//! ```text
//! channel (4 bytes) · kind (1) · stream (2) · length of the body (4) · body
//! ```
//!
//! A channel carries one command. `Open` starts it, `Reply` answers, and `Event` is any other message; their bodies
//! are MessagePack maps. `Data` carries a piece of a stream. The sender of a stream may have [`WINDOW`]
//! unacknowledged pieces; `Credit` allows it to send more. `Close` from the sender ends the stream. `Close` from the
//! receiver means that it no longer reads the stream.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::message::{Event, Open, Reply};

/// Maximum size of a piece of a stream, in bytes.
pub const PIECE_BYTES: usize = 32 << 10;

/// Maximum number of unacknowledged pieces of a stream.
pub const WINDOW: usize = 16;

/// Maximum size of a message in bytes: twice the command line and environment that Linux accepts by default.
const MESSAGE_BYTES: usize = 4 << 20;

/// Length of the header before the body, in bytes.
const HEADER_BYTES: usize = 11;

/// Version of the protocol. Both ends of a connection must use the same version.
pub const PROTOCOL: u8 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Open(Open),
    /// Answers the request that opened the channel.
    Reply(Reply),
    /// A piece of a stream.
    Data(Stream, Vec<u8>),
    /// Allows the sender of this stream to send this many more pieces.
    Credit(Stream, u32),
    /// From the sender: the end of the stream. From the receiver: the receiver no longer reads the stream.
    Close(Stream),
    Event(Event),
    /// Asks whether the other side is alive.
    Ping,
    /// Answers `Ping`.
    Pong,
}

/// A stream of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(u16);

impl Stream {
    pub const STDIN: Self = Self(0);
    /// Standard output; the terminal's output, if standard output is on the terminal.
    pub const STDOUT: Self = Self(1);
    /// Standard error; the terminal's output, if only standard error is on the terminal.
    pub const STDERR: Self = Self(2);
    /// Messages between a process of a step and its caller, in both directions.
    pub const MESSAGES: Self = Self(3);
    /// Packets between sandboxes of a run on two nodes.
    pub const PACKETS: Self = Self(4);
    /// Messages about the source tree that the command uses, in both directions.
    pub const TREE: Self = Self(u16::MAX);
}

impl Frame {
    /// Builds the reply that refuses a request.
    #[must_use]
    pub const fn refused(refusal: Box<crate::Refusal>) -> Self {
        Self::Reply(Reply::Refused(refusal))
    }

    /// Appends the encoded frame to `into`.
    pub(crate) fn encode(&self, channel: u32, into: &mut Vec<u8>) {
        let header = into.len();
        let (kind, stream) = match self {
            Self::Open(_) => (1, 0),
            Self::Reply(_) => (2, 0),
            Self::Data(Stream(stream), _) => (3, *stream),
            Self::Credit(Stream(stream), _) => (4, *stream),
            Self::Close(Stream(stream)) => (5, *stream),
            Self::Event(_) => (6, 0),
            Self::Ping => (7, 0),
            Self::Pong => (8, 0),
        };
        into.extend(channel.to_be_bytes());
        into.push(kind);
        into.extend(stream.to_be_bytes());
        into.extend([0; 4]);
        match self {
            Self::Open(open) => put(into, open),
            Self::Reply(reply) => put(into, reply),
            Self::Data(_, bytes) => into.extend(bytes),
            Self::Credit(_, pieces) => into.extend(pieces.to_be_bytes()),
            Self::Event(event) => put(into, event),
            Self::Close(_) | Self::Ping | Self::Pong => {}
        }
        let length = (into.len() - header - HEADER_BYTES) as u32;
        into[header + HEADER_BYTES - 4..header + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    /// Returns whether this frame ends its channel.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        match self {
            Self::Reply(reply) => !matches!(reply, Reply::Started(_)),
            Self::Event(event) => matches!(event, Event::Cancel),
            _ => false,
        }
    }

    /// Returns whether the frame may be dropped when a queue is full.
    pub(crate) const fn is_dispensable(&self) -> bool {
        matches!(self, Self::Event(Event::Signal(_) | Event::Resize(_)))
    }
}

fn put(into: &mut Vec<u8>, message: &impl Serialize) {
    rmp_serde::encode::write_named(into, message).expect("a message encodes as MessagePack");
}

fn take<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    rmp_serde::from_slice(body).ok()
}

/// The fixed-size part of a frame before the body.
struct Header {
    channel: u32,
    kind: u8,
    stream: Stream,
    length: usize,
}

impl Header {
    fn parse(bytes: [u8; HEADER_BYTES]) -> io::Result<Self> {
        let [a, b, c, d, kind, e, f, length @ ..] = bytes;
        let header = Self {
            channel: u32::from_be_bytes([a, b, c, d]),
            kind,
            stream: Stream(u16::from_be_bytes([e, f])),
            length: u32::from_be_bytes(length) as usize,
        };
        if header.length > header.limit() {
            return Err(invalid(&format!("a frame of kind {kind} has {} bytes, more than allowed", header.length)));
        }
        Ok(header)
    }

    /// The maximum body length for this kind of frame.
    const fn limit(&self) -> usize {
        match self.kind {
            1 | 2 | 6 => MESSAGE_BYTES,
            3 => PIECE_BYTES,
            4 => 4,
            _ => 0,
        }
    }

    fn with(self, body: Vec<u8>) -> io::Result<(u32, Frame)> {
        if body.len() < self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let frame = match self.kind {
            1 => take(&body).filter(Open::is_valid).map(Frame::Open),
            2 => take(&body).map(Frame::Reply),
            3 => Some(Frame::Data(self.stream, body)),
            4 => body.try_into().ok().map(|pieces| Frame::Credit(self.stream, u32::from_be_bytes(pieces))),
            5 => Some(Frame::Close(self.stream)),
            6 => take(&body).map(Frame::Event),
            7 => Some(Frame::Ping),
            8 => Some(Frame::Pong),
            _ => None,
        };
        Ok((self.channel, frame.ok_or_else(|| invalid("the other side violates the protocol"))?))
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads the next frame and its channel; `None` when the other side has closed the connection. Not cancel-safe:
/// cancelling may lose half a frame.
///
/// # Errors
/// Fails when the connection breaks, or the bytes are not a frame.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(u32, Frame)>> {
    let mut header = [0; HEADER_BYTES];
    match from.read(&mut header[..1]).await {
        Ok(0) => return Ok(None),
        // The peer closed the TLS connection without a close notification.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    from.read_exact(&mut header[1..]).await?;
    let header = Header::parse(header)?;
    // Allocate for the received bytes, not for the announced length.
    let mut body = Vec::with_capacity(header.length.min(PIECE_BYTES));
    (&mut *from).take(header.length as u64).read_to_end(&mut body).await?;
    header.with(body).map(Some)
}

/// Reads the next frame without an async runtime; `None` when the other side has closed the connection.
///
/// # Errors
/// Fails when the connection breaks, or the bytes are not a frame.
pub fn read_blocking(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    if from.read(&mut header[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut header[1..])?;
    let header = Header::parse(header)?;
    let mut body = Vec::with_capacity(header.length.min(PIECE_BYTES));
    from.take(header.length as u64).read_to_end(&mut body)?;
    header.with(body).map(|(_, frame)| Some(frame))
}

/// Sends a frame without an async runtime.
///
/// # Errors
/// Fails when the connection breaks.
pub fn write_blocking(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.encode(0, &mut bytes);
    to.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use proptest::prelude::*;

    use super::*;
    use hostler_model::{Digest, NodeName};

    use crate::message::MOST_ELEMENTS;
    use crate::{
        Caller, Command, Destination, ExecRequest, Limit, Proof, Refusal, RefusalKind, Report, Start, StepStart,
        TreeSpec, WindowSize,
    };

    fn command(argv: &[&str], environment: &[(&str, &str)], directory: &str) -> Command {
        let argv: Vec<OsString> = argv.iter().map(Into::into).collect();
        let environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Command::new(&argv, environment, directory.into())
    }

    fn start(command: Command) -> Frame {
        let caller = Caller { name: "ada".into(), uid: 2000 };
        Frame::Open(Open::Start(Box::new(Start { command, caller, written: ["/a".into()].into_iter().collect() })))
    }

    fn read_all(mut bytes: &[u8]) -> io::Result<Vec<(u32, Frame)>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut all = Vec::new();
            while let Some(frame) = read(&mut bytes).await? {
                all.push(frame);
            }
            Ok(all)
        })
    }

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(7, &mut bytes);
        bytes
    }

    #[test]
    fn frames_survive_encoding() {
        let command = command(&["ls", "-l"], &[("A", "b=c")], "/tmp");
        let mut shown = command.clone();
        shown.proof = Proof::File(".hostler-here-a1".into());
        let placed = Destination {
            node: "n1".parse().expect("a name"),
            how: None,
            cost: None,
            tried: Vec::new(),
            advisory: Vec::new(),
        };
        let refusal = Refusal {
            kind: RefusalKind::Unsuitable,
            code: 127,
            message: "no".into(),
            hints: Vec::new(),
            lacks_directory: true,
        };
        let ask = ExecRequest {
            command: shown,
            constraint: None,
            only: Vec::new(),
            not: vec!["n2".parse().expect("a name")],
            prefer_local: true,
            rank: None,
            mirrors_tree: true,
            explain: false,
        };
        let report = Report { code: 143, signal: Some(15), ..Report::default() };
        let step = StepStart::new(command.clone(), Some(b"here".to_vec().into()), &[("A".into(), "1".into())]);
        let replies = [
            Reply::RunHere(Box::new(placed)),
            Reply::Explained(Box::default()),
            Reply::Started(Box::default()),
            Reply::Refused(Box::new(refusal)),
            Reply::Ended(Box::new(report)),
        ];
        let events = [
            Event::ProveDirectory(".hostler-here-a1".into()),
            Event::Proof(Proof::None),
            Event::RemoveProof,
            Event::DescribeTree,
            Event::Tree(Box::new(TreeSpec::new("/src".into(), Digest([7; 32]), None))),
            Event::ResetTree,
            Event::Signal(15),
            Event::Resize(WindowSize { rows: 24, columns: 300 }),
            Event::Cancel,
            Event::Stopped(20),
        ];
        let mut all = vec![
            Frame::Open(Open::Exec(Box::new(ask))),
            start(command),
            Frame::Open(Open::Step(Box::new(step))),
            Frame::Data(Stream::STDIN, vec![0, 255]),
            Frame::Data(Stream::TREE, Vec::new()),
            Frame::Credit(Stream::STDERR, 3),
            Frame::Close(Stream::STDOUT),
            Frame::Ping,
            Frame::Pong,
        ];
        all.extend(replies.map(Frame::Reply));
        all.extend(events.map(Frame::Event));
        let bytes: Vec<u8> = all.iter().flat_map(bytes_of).collect();
        let expected: Vec<_> = all.iter().cloned().map(|frame| (7, frame)).collect();
        assert_eq!(read_all(&bytes).expect("the frames are valid"), expected);
        assert!(read_all(&bytes[..bytes.len() - 1]).is_err(), "the last frame is incomplete");
        let mut rest = &bytes[..];
        for frame in all {
            assert_eq!(read_blocking(&mut rest).expect("the frame is valid"), Some(frame));
        }
        assert_eq!(read_blocking(&mut rest).expect("the input is at its end"), None);
    }

    #[test]
    fn invalid_commands_are_refused() {
        let mut climbing = command(&["a"], &[], "/");
        climbing.proof = Proof::File("../../etc/shadow".into());
        let mut hidden = command(&["a"], &[], "/");
        hidden.proof = Proof::File(".hostler-here-../x".into());
        let with_tree = |root: &str, directory: &str| {
            let mut command = command(&["a"], &[], directory);
            command.tree = Some(TreeSpec::new(root.into(), Digest([0; 32]), None));
            command
        };
        assert!(read_all(&bytes_of(&start(with_tree("/a/b", "/a/b/c")))).is_ok());
        assert!(read_all(&bytes_of(&start(with_tree("/a/b", "/a/b")))).is_ok());
        let misplaced =
            [("/", "/a"), ("a", "/a"), ("/a/../b", "/a/../b"), ("/a", "/ab"), ("/a", "/a/../b"), ("/a/", "/a/")];
        for (root, directory) in misplaced {
            assert!(read_all(&bytes_of(&start(with_tree(root, directory)))).is_err(), "{root} {directory}");
        }
        let unsound = [
            command(&[], &[], "/"),
            command(&[""], &[], "/"),
            command(&["a\0b"], &[], "/"),
            command(&["a"], &[("A=B", "c")], "/"),
            command(&["a"], &[("", "c")], "/"),
            command(&["a"], &[], "here"),
            climbing,
            hidden,
        ];
        for command in unsound {
            assert!(read_all(&bytes_of(&start(command.clone()))).is_err(), "{command:?}");
        }
        let mut oversize = bytes_of(&Frame::Data(Stream::STDIN, Vec::new()));
        oversize[7..11].copy_from_slice(&(PIECE_BYTES as u32 + 1).to_be_bytes());
        assert!(read_all(&oversize).expect_err("the body is too long").to_string().contains("32769 bytes"));
    }

    #[test]
    fn request_with_too_many_elements_is_refused() {
        let is_read = |open: Open| read_all(&bytes_of(&Frame::Open(open))).is_ok();
        let exec = |command, only| {
            let (constraint, not) = (None, Vec::new());
            let ask = ExecRequest {
                command,
                constraint,
                only,
                not,
                prefer_local: false,
                rank: None,
                mirrors_tree: false,
                explain: false,
            };
            is_read(Open::Exec(Box::new(ask)))
        };
        let arguments = vec!["a"; MOST_ELEMENTS];
        assert!(exec(command(&arguments, &[], "/"), Vec::new()));
        assert!(!exec(command(&arguments, &[("A", "b")], "/"), Vec::new()));
        assert!(!exec(command(&["a"], &vec![("A", "b"); MOST_ELEMENTS], "/"), Vec::new()));
        let mut limited = command(&["a"], &[], "/");
        limited.limits = vec![Limit { resource: 0, soft: 0, hard: 0 }; MOST_ELEMENTS];
        assert!(!exec(limited, Vec::new()));
        let node: NodeName = "n1".parse().expect("a name");
        assert!(exec(command(&["a"], &[], "/"), vec![node.clone(); MOST_ELEMENTS]));
        assert!(!exec(command(&["a"], &[], "/"), vec![node; MOST_ELEMENTS + 1]));
        let step = |count| {
            let variables: Vec<(OsString, OsString)> = vec![("A".into(), "b".into()); count];
            is_read(Open::Step(Box::new(StepStart::new(command(&["a"], &[], "/"), None, &variables))))
        };
        assert!(step(MOST_ELEMENTS - 1) && !step(MOST_ELEMENTS));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..10) {
            let _ = read_all(&bytes);
            let framed = [&[0, 0, 0, 1, kind, 0, 1][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let _ = read_all(&framed);
        }
    }
}
