//! Frames as bytes: the number of the line, a kind, a length, a body.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::frame::{Ask, Frame, Start};
use hostler_model::WindowSize;

/// The most of a stream in one frame, in bytes.
pub const PIECE_BYTES: usize = 32 << 10;

/// The most pieces of one stream direction that are on the way.
pub const WINDOW: usize = 16;

/// The longest command line and environment: twice what Linux takes by default; and anything else that is said in words.
const WORDS_BYTES: usize = 4 << 20;

/// What precedes a body.
pub(crate) const HEADER_BYTES: usize = 9;

/// The longest name that is to be proved.
const NAME_BYTES: usize = 256;

impl Frame {
    /// Its bytes on a line.
    pub(crate) fn encode(&self, channel: u32, into: &mut Vec<u8>) {
        let header = into.len();
        into.extend(channel.to_be_bytes());
        into.push(self.kind());
        into.extend([0; 4]);
        match self {
            Self::Ask(words) => put(into, words),
            Self::Here(words) => put(into, words),
            Self::Prove(name) => into.extend(name.as_bytes()),
            Self::Proof(words) => put(into, words),
            Self::Tree(words) => put(into, words),
            Self::Explained(words) => put(into, words),
            Self::Start(words) => put(into, words),
            Self::Started(words) => put(into, words),
            Self::Refused(words) => put(into, words),
            Self::Ended(words) => put(into, words),
            Self::Input(bytes) | Self::Stdout(bytes) | Self::Stderr(bytes) | Self::Ship(bytes) => into.extend(bytes),
            Self::Signal(signal) | Self::Stopped(signal) => into.extend(signal.to_be_bytes()),
            Self::Resize(size) => {
                into.extend(size.rows.to_be_bytes());
                into.extend(size.columns.to_be_bytes());
            }
            Self::Taken(pieces) | Self::Shipped(pieces) => into.extend(pieces.to_be_bytes()),
            Self::Passed(output, pieces) => {
                into.push(*output);
                into.extend(pieces.to_be_bytes());
            }
            Self::Closed(output) => into.push(*output),
            Self::InputEnd | Self::Cancel | Self::Ping | Self::Pong | Self::ShipOver | Self::WhichTree => {}
        }
        let length = (into.len() - header - HEADER_BYTES) as u32;
        into[header + 5..header + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Ask(_) => 1,
            Self::Here(_) => 2,
            Self::Prove(_) => 3,
            Self::Proof(_) => 4,
            Self::Explained(_) => 5,
            Self::Start(_) => 6,
            Self::Input(_) => 7,
            Self::InputEnd => 8,
            Self::Signal(_) => 9,
            Self::Resize(_) => 10,
            Self::Cancel => 11,
            Self::Started(_) => 12,
            Self::Refused(_) => 13,
            Self::Stdout(_) => 14,
            Self::Stderr(_) => 15,
            Self::Stopped(_) => 16,
            Self::Ended(_) => 17,
            Self::Taken(_) => 18,
            Self::Ping => 19,
            Self::Pong => 20,
            Self::Passed(..) => 21,
            Self::Closed(_) => 22,
            Self::Ship(_) => 23,
            Self::Shipped(_) => 24,
            Self::ShipOver => 25,
            Self::WhichTree => 26,
            Self::Tree(_) => 27,
        }
    }

    /// A frame of this kind with this body; `None` when that is none.
    fn decode(kind: u8, body: Vec<u8>) -> Option<Self> {
        let number = |body: Vec<u8>| <[u8; 4]>::try_from(body).ok();
        Some(match kind {
            1 => Self::Ask(take_if(&body, |ask: &Ask| ask.command.is_sound())?),
            2 => Self::Here(take(&body)?),
            3 => Self::Prove(String::from_utf8(body).ok()?),
            4 => Self::Proof(*take(&body)?),
            5 => Self::Explained(take(&body)?),
            6 => Self::Start(take_if(&body, |start: &Start| start.command.is_sound())?),
            7 => Self::Input(body),
            8 if body.is_empty() => Self::InputEnd,
            9 => Self::Signal(i32::from_be_bytes(number(body)?)),
            10 => {
                let [a, b, c, d] = number(body)?;
                Self::Resize(WindowSize { rows: u16::from_be_bytes([a, b]), columns: u16::from_be_bytes([c, d]) })
            }
            11 if body.is_empty() => Self::Cancel,
            12 => Self::Started(take(&body)?),
            13 => Self::Refused(take(&body)?),
            14 => Self::Stdout(body),
            15 => Self::Stderr(body),
            16 => Self::Stopped(i32::from_be_bytes(number(body)?)),
            17 => Self::Ended(take(&body)?),
            18 => Self::Taken(u32::from_be_bytes(number(body)?)),
            19 if body.is_empty() => Self::Ping,
            20 if body.is_empty() => Self::Pong,
            21 => {
                let [output, pieces @ ..] = <[u8; 5]>::try_from(body).ok()?;
                Self::Passed(output, u32::from_be_bytes(pieces))
            }
            22 => Self::Closed(<[u8; 1]>::try_from(body).ok()?[0]),
            23 => Self::Ship(body),
            24 => Self::Shipped(u32::from_be_bytes(number(body)?)),
            25 if body.is_empty() => Self::ShipOver,
            26 if body.is_empty() => Self::WhichTree,
            27 => Self::Tree(take(&body)?),
            _ => return None,
        })
    }

    /// The longest body of a kind.
    const fn limit(kind: u8) -> usize {
        match kind {
            1 | 2 | 4..=6 | 12 | 13 | 17 | 27 => WORDS_BYTES,
            3 => NAME_BYTES,
            7 | 14 | 15 | 23 => PIECE_BYTES,
            _ => 5,
        }
    }
}

fn put(into: &mut Vec<u8>, words: &impl Serialize) {
    rmp_serde::encode::write_named(into, words).expect("it is plain data");
}

fn take<T: DeserializeOwned>(body: &[u8]) -> Option<Box<T>> {
    rmp_serde::from_slice(body).ok().map(Box::new)
}

fn take_if<T: DeserializeOwned>(body: &[u8], is_sound: impl FnOnce(&T) -> bool) -> Option<Box<T>> {
    rmp_serde::from_slice(body).ok().filter(is_sound).map(Box::new)
}

/// What a header announces.
struct Header {
    channel: u32,
    kind: u8,
    length: usize,
}

impl Header {
    fn parse(bytes: [u8; HEADER_BYTES]) -> io::Result<Self> {
        let [a, b, c, d, kind, length @ ..] = bytes;
        let header =
            Self { channel: u32::from_be_bytes([a, b, c, d]), kind, length: u32::from_be_bytes(length) as usize };
        if header.length > Frame::limit(kind) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} bytes are too many here", header.length),
            ));
        }
        Ok(header)
    }

    fn with(self, body: Vec<u8>) -> io::Result<(u32, Frame)> {
        if body.len() < self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let frame = Frame::decode(self.kind, body);
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "the other side does not speak this protocol");
        Ok((self.channel, frame.ok_or_else(strange)?))
    }
}

/// The next frame and its line; `None` when the other side has closed the connection between two.
///
/// # Errors
/// When the connection breaks, or what comes is no frame. Not safe to cancel: a frame may be half read.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(u32, Frame)>> {
    let mut header = [0; HEADER_BYTES];
    match from.read(&mut header[..1]).await {
        Ok(0) => return Ok(None),
        // TLS tells a connection that was closed from one that was cut.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    from.read_exact(&mut header[1..]).await?;
    let header = Header::parse(header)?;
    // Room for what has come, not for what was announced.
    let mut body = Vec::with_capacity(header.length.min(PIECE_BYTES));
    (&mut *from).take(header.length as u64).read_to_end(&mut body).await?;
    header.with(body).map(Some)
}

/// The next frame of a call, for a program without a runtime; `None` when the other side has closed the connection.
///
/// # Errors
/// When the connection breaks, or what comes is no frame.
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

/// Sends a frame of a call, for a program without a runtime.
///
/// # Errors
/// When the connection breaks.
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
    use hostler_model::Digest;

    use crate::{Caller, Command, Placed, Proof, Refusal, RefusalKind, Report, Ship};

    fn command(argv: &[&str], environment: &[(&str, &str)], directory: &str) -> Command {
        let argv: Vec<OsString> = argv.iter().map(Into::into).collect();
        let environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Command::new(&argv, environment, directory.into())
    }

    fn start(command: Command) -> Frame {
        let caller = Caller { name: "ada".into(), uid: 2000 };
        Frame::Start(Box::new(Start { command, caller, written: ["/a".into()].into_iter().collect() }))
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
    fn frames_come_back_as_they_were() {
        let command = command(&["ls", "-l"], &[("A", "b=c")], "/tmp");
        let mut shown = command.clone();
        shown.proof = Proof::File(".hostler-here-a1".into());
        let placed = Placed {
            node: "n1".parse().expect("a name"),
            how: None,
            cost: None,
            tried: Vec::new(),
            advisory: Vec::new(),
        };
        let refusal = Refusal { kind: RefusalKind::Unsuitable, code: 127, message: "no".into(), hints: Vec::new() };
        let ask = Ask {
            command: shown,
            constraint: None,
            only: Vec::new(),
            not: vec!["n2".parse().expect("a name")],
            prefer_local: true,
            ships_tree: true,
            explain: false,
        };
        let all = [
            Frame::Ask(Box::new(ask)),
            Frame::Here(Box::new(placed)),
            Frame::Prove(".hostler-here-a1".into()),
            Frame::Proof(Proof::None),
            Frame::Explained(Box::default()),
            start(command),
            Frame::Input(vec![0, 255]),
            Frame::InputEnd,
            Frame::Signal(15),
            Frame::Resize(WindowSize { rows: 24, columns: 300 }),
            Frame::Cancel,
            Frame::Started(Box::default()),
            Frame::Refused(Box::new(refusal)),
            Frame::Stdout(b"out".to_vec()),
            Frame::Stderr(Vec::new()),
            Frame::Stopped(20),
            Frame::Ended(Box::new(Report { code: 143, signal: Some(15), ..Report::default() })),
            Frame::Taken(3),
            Frame::Ping,
            Frame::Pong,
            Frame::Passed(1, 2),
            Frame::Closed(0),
            Frame::Ship(vec![1, 2, 3]),
            Frame::Shipped(4),
            Frame::ShipOver,
            Frame::WhichTree,
            Frame::Tree(Box::new(Ship::new("/src".into(), Digest([7; 32]), None))),
        ];
        let bytes: Vec<u8> = all.iter().flat_map(bytes_of).collect();
        let expected: Vec<_> = all.iter().cloned().map(|frame| (7, frame)).collect();
        assert_eq!(read_all(&bytes).expect("whole"), expected);
        assert!(read_all(&bytes[..bytes.len() - 1]).is_err(), "the last one is cut");
        let mut rest = &bytes[..];
        for frame in all {
            assert_eq!(read_blocking(&mut rest).expect("whole"), Some(frame));
        }
        assert_eq!(read_blocking(&mut rest).expect("the end"), None);
    }

    #[test]
    fn what_the_system_cannot_take_is_no_frame() {
        let mut climbing = command(&["a"], &[], "/");
        climbing.proof = Proof::File("../../etc/shadow".into());
        let mut hidden = command(&["a"], &[], "/");
        hidden.proof = Proof::File(".hostler-here-../x".into());
        let shipping = |root: &str, directory: &str| {
            let mut command = command(&["a"], &[], directory);
            command.ship = Some(Ship::new(root.into(), Digest([0; 32]), None));
            command
        };
        assert!(read_all(&bytes_of(&start(shipping("/a/b", "/a/b/c")))).is_ok());
        assert!(read_all(&bytes_of(&start(shipping("/a/b", "/a/b")))).is_ok());
        let misplaced =
            [("/", "/a"), ("a", "/a"), ("/a/../b", "/a/../b"), ("/a", "/ab"), ("/a", "/a/../b"), ("/a/", "/a/")];
        for (root, directory) in misplaced {
            assert!(read_all(&bytes_of(&start(shipping(root, directory)))).is_err(), "{root} {directory}");
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
        let mut oversize = bytes_of(&Frame::Input(Vec::new()));
        oversize[5..9].copy_from_slice(&(PIECE_BYTES as u32 + 1).to_be_bytes());
        assert!(read_all(&oversize).expect_err("too long").to_string().contains("too many"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..28) {
            let _ = read_all(&bytes);
            let framed = [&[0, 0, 0, 1, kind][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let _ = read_all(&framed);
        }
    }
}
