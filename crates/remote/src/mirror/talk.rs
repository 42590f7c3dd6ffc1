//! Messages about trees, split into pieces of a windowed stream.

use std::io;

use hostler_proto::manifest::{Entry, EntryKind};

use super::Message;
use crate::connection::Channel;
use crate::frame::{Frame, PIECE_BYTES, Stream, WINDOW};
use crate::message::Event;

/// Maximum size of a message, in bytes.
const MESSAGE_BYTES: usize = 8 << 20;

/// Approximate maximum size of the entries in one message, in bytes.
const PART_BYTES: usize = 256 << 10;

/// Joins pieces into messages.
#[derive(Debug, Default)]
pub(crate) struct Assembler(Vec<u8>);

impl Assembler {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.0.extend(piece);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// Fails when the bytes are not a message.
    pub(crate) fn next(&mut self) -> io::Result<Option<Message>> {
        let Some(length) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message of {length} bytes exceeds the maximum size"),
            ));
        }
        if self.0.len() < 4 + length {
            return Ok(None);
        }
        let message = rmp_serde::from_slice(&self.0[4..4 + length]);
        self.0.drain(..4 + length);
        if self.0.is_empty() {
            self.0.shrink_to(PIECE_BYTES);
        }
        let strange =
            |error| io::Error::new(io::ErrorKind::InvalidData, format!("invalid message about a tree: {error}"));
        message.map(Some).map_err(strange)
    }
}

/// Splits messages into pieces.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Vec<u8>);

impl Outgoing {
    pub(crate) fn add(&mut self, message: &Message) -> io::Result<()> {
        let at = self.0.len();
        self.0.extend([0; 4]);
        rmp_serde::encode::write_named(&mut self.0, message).expect("a message encodes as MessagePack");
        let length = self.0.len() - at - 4;
        if length > MESSAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a message about a tree is too large"));
        }
        self.0[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(())
    }

    /// Returns the next full piece; with `all`, also a shorter last piece.
    pub(crate) fn piece(&mut self, all: bool) -> Option<Vec<u8>> {
        let length = self.0.len().min(PIECE_BYTES);
        (length == PIECE_BYTES || (all && length > 0)).then(|| self.0.drain(..length).collect())
    }
}

/// The node's side of a conversation about a tree.
#[derive(Debug)]
pub struct TreeChannel<'l> {
    channel: &'l mut Channel,
    incoming: Assembler,
    outgoing: Outgoing,
    room: usize,
    /// Number of bytes received about the tree.
    heard_bytes: u64,
    /// Whether the command has ended. If so, the caller's late frames, such as input and signals, are ignored.
    ignores_late_frames: bool,
}

impl<'l> TreeChannel<'l> {
    /// Creates the conversation before the command starts.
    pub fn before(channel: &'l mut Channel) -> Self {
        let (incoming, outgoing) = (Assembler::default(), Outgoing::default());
        Self { channel, incoming, outgoing, room: WINDOW, heard_bytes: 0, ignores_late_frames: false }
    }

    /// Creates the conversation after the command has ended.
    pub fn after(channel: &'l mut Channel) -> Self {
        Self { ignores_late_frames: true, ..Self::before(channel) }
    }

    /// Queues a message. Sends each full piece; [`TreeChannel::flush`] sends the last, shorter piece.
    ///
    /// # Errors
    /// Fails when the connection breaks.
    pub async fn say(&mut self, message: &Message) -> io::Result<()> {
        self.outgoing.add(message)?;
        self.send(false).await
    }

    /// Sends all queued messages.
    ///
    /// # Errors
    /// Fails when the connection breaks.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.send(true).await
    }

    /// Sends an empty frame as a heartbeat, so that the caller does not time out.
    ///
    /// # Errors
    /// Fails when the connection breaks.
    pub async fn hold(&mut self) -> io::Result<()> {
        self.channel.send(Frame::Credit(Stream::TREE, 0)).await
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// Fails when the connection breaks, or the other side violates the protocol.
    pub async fn hear(&mut self) -> io::Result<Message> {
        self.flush().await?;
        loop {
            if let Some(message) = self.incoming.next()? {
                return Ok(message);
            }
            if let Some(piece) = self.receive().await? {
                self.heard_bytes += piece.len() as u64;
                self.incoming.add(&piece);
                self.channel.send(Frame::Credit(Stream::TREE, 1)).await?;
            }
        }
    }

    /// Returns the number of bytes received so far.
    #[must_use]
    pub const fn heard_bytes(&self) -> u64 {
        self.heard_bytes
    }

    async fn send(&mut self, all: bool) -> io::Result<()> {
        while let Some(piece) = self.outgoing.piece(all) {
            while self.room == 0 {
                if self.receive().await?.is_some() {
                    return Err(strange());
                }
            }
            self.room -= 1;
            self.channel.send(Frame::Data(Stream::TREE, piece)).await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.channel.receive().await {
            Some(Frame::Data(Stream::TREE, piece)) if !self.ignores_late_frames => Ok(Some(piece)),
            Some(Frame::Credit(Stream::TREE, pieces)) => {
                self.room = self.room.saturating_add(pieces as usize).min(WINDOW);
                Ok(None)
            }
            None | Some(Frame::Event(Event::Cancel)) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(_) if self.ignores_late_frames => Ok(None),
            Some(_) => Err(strange()),
        }
    }
}

pub(crate) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other side sent an unexpected message")
}

/// Splits entries into messages of limited size.
pub fn entries_in_parts(entries: impl IntoIterator<Item = Entry>) -> Vec<Message> {
    let weight = |entry: &Entry| {
        64 + entry.path.len()
            + match &entry.kind {
                EntryKind::File(content) => 48 * content.chunks.len(),
                EntryKind::Symlink { target } => target.len(),
                EntryKind::Directory => 0,
            }
    };
    let mut parts = vec![Vec::new()];
    let mut held = 0;
    for entry in entries {
        let adds = weight(&entry);
        if held + adds > PART_BYTES && held > 0 {
            parts.push(Vec::new());
            held = 0;
        }
        held += adds;
        parts.last_mut().expect("the list is not empty").push(entry);
    }
    let last = parts.len() - 1;
    let message = |(place, entries)| Message::Entries { entries, is_last: place == last };
    parts.into_iter().enumerate().map(message).collect()
}

/// Decodes messages until the first invalid one.
#[cfg(feature = "fuzzing")]
pub(crate) fn messages_in(bytes: &[u8]) -> Vec<Message> {
    let mut assembler = Assembler::default();
    assembler.add(bytes);
    std::iter::from_fn(|| assembler.next().ok().flatten()).collect()
}

/// Encodes messages.
#[cfg(feature = "fuzzing")]
pub(crate) fn bytes_of(messages: &[Message]) -> Vec<u8> {
    let mut outgoing = Outgoing::default();
    messages.iter().for_each(|message| outgoing.add(message).expect("the message is short"));
    std::iter::from_fn(|| outgoing.piece(true)).flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gathered(pieces: &[Vec<u8>]) -> Vec<Message> {
        let mut assembler = Assembler::default();
        let mut all = Vec::new();
        for piece in pieces {
            assembler.add(piece);
            while let Some(message) = assembler.next().expect("the messages are valid") {
                all.push(message);
            }
        }
        all
    }

    #[test]
    fn messages_survive_splitting_into_pieces() {
        let entry =
            |n: u32| Entry { path: vec![b'a'; n as usize], mode: n, modified_ns: -1, kind: EntryKind::Directory };
        let mut said = vec![
            Message::Describe,
            Message::Tell(Some(vec![1, 2])),
            Message::Tell(None),
            Message::Chunk(vec![7; 3 * PIECE_BYTES].into()),
            Message::Gone { removed: vec![b"a".to_vec().into()], emptied: Vec::new() },
            Message::Ran { began_ns: 1, ended_ns: -1 },
            Message::Done,
        ];
        said.extend(entries_in_parts((1..4000).map(entry)));
        let mut outgoing = Outgoing::default();
        said.iter().for_each(|message| outgoing.add(message).expect("the message is short"));
        let pieces: Vec<_> = std::iter::from_fn(|| outgoing.piece(true)).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(gathered(&pieces), said);
        let one_by_one: Vec<_> = pieces.concat().into_iter().map(|byte| vec![byte]).take(300_000).collect();
        assert_eq!(gathered(&one_by_one)[..3], said[..3]);
    }

    proptest! {
        #[test]
        fn arbitrary_pieces_never_panic(pieces: Vec<Vec<u8>>, body: Vec<u8>) {
            let mut assembler = Assembler::default();
            let framed = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
            for piece in pieces.iter().chain([&framed]) {
                assembler.add(piece);
                while let Ok(Some(_)) = assembler.next() {}
            }
        }
    }
}
