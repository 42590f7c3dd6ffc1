//! What the two ends of a step say to each other: a kind, a length, a body.
//!
//! The launcher begins with [`Frame::Start`]; then come input and signals. The host answers with [`Frame::Started`] or
//! [`Frame::Refused`], sends output, and last [`Frame::Ended`]. Each piece of input is acknowledged, and there are never more of them on
//! the way than [`WINDOW`]: so a command that does not read keeps no signal waiting.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most input or output in one frame.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// The most pieces of input that are on the way.
pub(crate) const WINDOW: usize = 16;

/// The longest command line and environment: twice what Linux takes by default.
const START_BYTES: usize = 4 << 20;

/// The longest word of explanation.
const TEXT_BYTES: usize = 64 << 10;

/// One thing said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Launcher: start this.
    Start(Box<Start>),
    /// Launcher: more of the standard input.
    Input(Vec<u8>),
    /// Launcher: that was all of it.
    InputEnd,
    /// Launcher: signal it.
    Signal(i32),
    /// Host: it has started.
    Started,
    /// Host: a piece of input has been passed on, or is of no use any more.
    Taken,
    /// Host: it wrote this to its standard output.
    Stdout(Vec<u8>),
    /// Host: it wrote this to its standard error.
    Stderr(Vec<u8>),
    /// Host: it has ended with this exit code, 128 plus the signal for one that was ended by a signal. The last frame.
    Ended(u8),
    /// Host: it could not be started, with the exit code that a shell would give, and the reason. The last frame.
    Refused(u8, String),
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    argv: Vec<ByteBuf>,
    environment: Vec<(ByteBuf, ByteBuf)>,
    directory: ByteBuf,
    /// Whether `directory` is below the job's own directory, wherever that is on the node.
    is_within: bool,
    /// Whether there is any standard input.
    pub(crate) has_input: bool,
}

impl Start {
    pub(crate) fn new(
        argv: &[OsString],
        environment: &[(OsString, OsString)],
        directory: Directory,
        has_input: bool,
    ) -> Self {
        let bytes = |text: &OsStr| ByteBuf::from(text.as_bytes());
        let (path, is_within) = match directory {
            Directory::Within(path) => (path, true),
            Directory::Absolute(path) => (path, false),
        };
        Self {
            argv: argv.iter().map(|word| bytes(word)).collect(),
            environment: environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            directory: bytes(path.as_os_str()),
            is_within,
            has_input,
        }
    }

    /// The program and its arguments; at least the program.
    pub(crate) fn argv(&self) -> Vec<OsString> {
        self.argv.iter().map(text).collect()
    }

    pub(crate) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.environment.iter().map(|(name, value)| (text(name), text(value)))
    }

    pub(crate) fn directory(&self) -> Directory {
        let path = PathBuf::from(text(&self.directory));
        if self.is_within { Directory::Within(path) } else { Directory::Absolute(path) }
    }

    /// Whether the system can take it.
    fn is_sound(&self) -> bool {
        let names = self.environment.iter().map(|(name, _)| name);
        let values = self.environment.iter().map(|(_, value)| value);
        let has_nul = |bytes: &ByteBuf| bytes.contains(&0);
        self.argv.first().is_some_and(|program| !program.is_empty())
            && names.clone().all(|name| !name.is_empty() && !name.contains(&b'='))
            && !self.argv.iter().chain(names).chain(values).chain([&self.directory]).any(has_nul)
    }
}

fn text(bytes: &ByteBuf) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// Where a step starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directory {
    /// Below the job's own directory.
    Within(PathBuf),
    /// Anywhere else.
    Absolute(PathBuf),
}

impl Frame {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Start(start) => (1, rmp_serde::to_vec_named(start).expect("it is plain data")),
            Self::Input(bytes) => (2, bytes.clone()),
            Self::InputEnd => (3, Vec::new()),
            Self::Signal(signal) => (4, signal.to_be_bytes().to_vec()),
            Self::Started => (5, Vec::new()),
            Self::Taken => (6, Vec::new()),
            Self::Stdout(bytes) => (7, bytes.clone()),
            Self::Stderr(bytes) => (8, bytes.clone()),
            Self::Ended(code) => (9, vec![*code]),
            Self::Refused(code, why) => {
                let end = why.floor_char_boundary(TEXT_BYTES - 1);
                (10, [&[*code], &why.as_bytes()[..end]].concat())
            }
        };
        let mut all = Vec::with_capacity(5 + body.len());
        all.push(kind);
        all.extend((body.len() as u32).to_be_bytes());
        all.extend(body);
        all
    }

    /// A frame of this kind with this body; `None` when that is none.
    fn decode(kind: u8, body: Vec<u8>) -> Option<Self> {
        match kind {
            1 => rmp_serde::from_slice::<Start>(&body).ok().filter(Start::is_sound).map(Box::new).map(Self::Start),
            2 => Some(Self::Input(body)),
            3 if body.is_empty() => Some(Self::InputEnd),
            4 => body.try_into().ok().map(i32::from_be_bytes).map(Self::Signal),
            5 if body.is_empty() => Some(Self::Started),
            6 if body.is_empty() => Some(Self::Taken),
            7 => Some(Self::Stdout(body)),
            8 => Some(Self::Stderr(body)),
            9 => <[u8; 1]>::try_from(body).ok().map(|[code]| Self::Ended(code)),
            10 => {
                let (code, why) = body.split_first()?;
                Some(Self::Refused(*code, String::from_utf8_lossy(why).into_owned()))
            }
            _ => None,
        }
    }

    /// The longest body of a kind.
    fn limit(kind: u8) -> usize {
        match kind {
            1 => START_BYTES,
            2 | 7 | 8 => PIECE_BYTES,
            10 => TEXT_BYTES,
            _ => 4,
        }
    }
}

/// The next frame; `None` when the other side has closed the connection between two.
///
/// # Errors
/// When the connection breaks, or what comes is no frame. Not safe to cancel: a frame may be half read.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; 5];
    match from.read(&mut head[..1]).await {
        Ok(0) => return Ok(None),
        // TLS tells a connection that was closed from one that was cut.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    from.read_exact(&mut head[1..]).await?;
    let [kind, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if length > Frame::limit(kind) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes are too many here")));
    }
    let mut body = Vec::new();
    // Room for what has come, not for what was announced.
    (&mut *from).take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Frame::decode(kind, body)
        .map(Some)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the other side does not speak this protocol"))
}

/// Sends a frame.
///
/// # Errors
/// When the connection breaks.
pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    to.write_all(&frame.encode()).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(mut bytes: &[u8]) -> io::Result<Vec<Frame>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut all = Vec::new();
            while let Some(frame) = read(&mut bytes).await? {
                all.push(frame);
            }
            Ok(all)
        })
    }

    fn start(argv: &[&str], environment: &[(&str, &str)]) -> Start {
        let argv: Vec<OsString> = argv.iter().map(Into::into).collect();
        let environment: Vec<(OsString, OsString)> =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Start::new(&argv, &environment, Directory::Within("a/b".into()), true)
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let all = [
            Frame::Start(Box::new(start(&["ls", "-l"], &[("A", "b=c")]))),
            Frame::Input(vec![0, 255]),
            Frame::InputEnd,
            Frame::Signal(15),
            Frame::Started,
            Frame::Taken,
            Frame::Stdout(b"out".to_vec()),
            Frame::Stderr(Vec::new()),
            Frame::Ended(143),
            Frame::Refused(127, "no such file".into()),
        ];
        let bytes: Vec<u8> = all.iter().flat_map(Frame::encode).collect();
        assert_eq!(read_all(&bytes).expect("whole"), all);
        assert!(read_all(&bytes[..bytes.len() - 1]).is_err(), "the last one is cut");
    }

    #[test]
    fn what_the_system_cannot_take_is_no_frame() {
        let unsound: [Start; 5] = [
            start(&[], &[]),
            start(&[""], &[]),
            start(&["a\0b"], &[]),
            start(&["a"], &[("A=B", "c")]),
            start(&["a"], &[("", "c")]),
        ];
        for start in unsound {
            assert!(read_all(&Frame::Start(Box::new(start.clone())).encode()).is_err(), "{start:?}");
        }
        let oversize = [&[2_u8][..], &(PIECE_BYTES as u32 + 1).to_be_bytes(), &[0; 8]].concat();
        assert!(read_all(&oversize).expect_err("too long").to_string().contains("too many"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..12) {
            let _ = read_all(&bytes);
            let framed = [&[kind][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let _ = read_all(&framed);
        }
    }
}
