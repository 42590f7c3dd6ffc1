//! The caller's side before a command starts: answers the node's questions about the tree.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler_model::Digest;
use hostler_proto::manifest::Entry;
use hostler_snapshot::mirror::Named;
use hostler_snapshot::{SourceError, Sources, wire};

use super::talk::{Assembler, Outgoing, entries_in_parts, strange};
use super::{Message, Tree};
use crate::frame::{Frame, Stream, WINDOW, read_blocking, write_blocking};
use crate::message::Event;

/// A survey of a tree.
#[derive(Debug)]
pub struct Described {
    tree: Tree,
    digest: Digest,
    tags: Vec<u8>,
    sources: Sources,
    /// Time of the survey by this machine's clock, in nanoseconds since the epoch. No file in the tree is newer.
    as_of_ns: i64,
}

impl Described {
    /// Creates the survey of a tree at `as_of_ns`, in nanoseconds since the epoch. No file in the tree may be newer.
    #[must_use]
    pub fn new(tree: Tree, sources: Sources, as_of_ns: i64) -> Self {
        let (digest, tags) = tree.digest_and_tags();
        Self { tree, digest, tags, sources, as_of_ns }
    }

    /// Returns the digest that names the tree.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the entries, sorted by path.
    #[must_use]
    pub fn entries(&self) -> &[Arc<Named>] {
        &self.tree.entries
    }

    /// Returns the time of the survey, in nanoseconds since the epoch.
    #[must_use]
    pub const fn as_of_ns(&self) -> i64 {
        self.as_of_ns
    }
}

/// The cost of sending a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentStats {
    /// Bytes sent to the node.
    pub bytes: u64,
    /// Number of chunks sent.
    pub chunks: u64,
    /// Time between the node's first and last question.
    pub took: Duration,
}

/// Answers a node's questions about a tree.
pub struct Supplier<'a> {
    described: Described,
    again: Box<dyn FnMut() -> io::Result<Described> + 'a>,
    incoming: Assembler,
    room: usize,
    went: SentStats,
    began: Option<Instant>,
}

impl std::fmt::Debug for Supplier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supplier").field("went", &self.went).finish_non_exhaustive()
    }
}

impl<'a> Supplier<'a> {
    /// Creates a supplier for a surveyed tree. `again` repeats the survey when the tree has changed.
    pub fn new(described: Described, again: impl FnMut() -> io::Result<Described> + 'a) -> Self {
        let (incoming, went) = (Assembler::default(), SentStats::default());
        Self { described, again: Box::new(again), incoming, room: WINDOW, went, began: None }
    }

    /// Returns the survey that was sent last, and the cost of sending it.
    #[must_use]
    pub fn finish(self) -> (Described, SentStats) {
        (self.described, self.went)
    }

    /// Answers a frame about the tree. Returns every other frame to the caller; such a frame may also arrive while this
    /// side is sending.
    ///
    /// # Errors
    /// Fails when the connection breaks, the tree cannot be read, or the other side violates the protocol.
    pub fn hear(&mut self, frame: Frame, agent: &mut (impl Read + Write)) -> io::Result<Option<Frame>> {
        match frame {
            Frame::Data(Stream::TREE, piece) => {
                let began = *self.began.get_or_insert_with(Instant::now);
                self.incoming.add(&piece);
                write_blocking(agent, &Frame::Credit(Stream::TREE, 1))?;
                while let Some(message) = self.incoming.next()? {
                    if let Some(other) = self.answer(message, agent)? {
                        return Ok(Some(other));
                    }
                    self.went.took = began.elapsed();
                }
            }
            Frame::Credit(Stream::TREE, pieces) => self.room = self.room.saturating_add(pieces as usize).min(WINDOW),
            // The next node starts a new conversation.
            Frame::Event(Event::ResetTree) => {
                self.incoming = Assembler::default();
                self.room = WINDOW;
                write_blocking(agent, &Frame::Event(Event::ResetTree))?;
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn answer(&mut self, message: Message, agent: &mut (impl Read + Write)) -> io::Result<Option<Frame>> {
        let mut outgoing = Outgoing::default();
        match message {
            Message::Describe => {
                let Described { tree, digest, tags, .. } = &self.described;
                let tags = tags.clone().into();
                outgoing.add(&Message::Described { tree: *digest, mode: tree.mode, tags })?;
            }
            Message::Tell(places) => {
                let entries = &self.described.tree.entries;
                let all = || (0..).take(entries.len()).collect();
                let told = places.unwrap_or_else(all).into_iter().map(|place| entries.get(place as usize));
                let told: Option<Vec<Entry>> = told.map(|entry| entry.map(|it| it.entry().clone())).collect();
                for part in entries_in_parts(told.ok_or_else(strange)?) {
                    outgoing.add(&part)?;
                    if let Some(other) = self.send(&mut outgoing, agent, false)? {
                        return Ok(Some(other));
                    }
                }
            }
            Message::Send(wanted) => {
                let Described { tree, sources, .. } = &mut self.described;
                sources.locate(tree.entries.iter().map(|it| it.entry()), &wanted);
                for digest in wanted {
                    match self.described.sources.read_chunk(&digest) {
                        Ok(bytes) => outgoing.add(&Message::Chunk(wire::encode(&bytes).into()))?,
                        Err(SourceError::Unknown(_)) => return Err(strange()),
                        Err(_) => {
                            self.described = (self.again)()?;
                            outgoing.add(&Message::Changed)?;
                            break;
                        }
                    }
                    self.went.chunks += 1;
                    if let Some(other) = self.send(&mut outgoing, agent, false)? {
                        return Ok(Some(other));
                    }
                }
            }
            _ => return Err(strange()),
        }
        self.send(&mut outgoing, agent, true)
    }

    /// Sends the ready pieces as the window allows. If another frame arrives, stops and returns that frame, because the
    /// answer is then obsolete.
    fn send(
        &mut self,
        outgoing: &mut Outgoing,
        agent: &mut (impl Read + Write),
        all: bool,
    ) -> io::Result<Option<Frame>> {
        while let Some(piece) = outgoing.piece(all) {
            while self.room == 0 {
                match read_blocking(agent)? {
                    Some(Frame::Credit(Stream::TREE, pieces)) => self.room = (pieces as usize).min(WINDOW),
                    Some(other) => return Ok(Some(other)),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            self.room -= 1;
            self.went.bytes += piece.len() as u64;
            write_blocking(agent, &Frame::Data(Stream::TREE, piece))?;
        }
        Ok(None)
    }
}
