//! The encoding of datagrams.
//!
//! ```text
//! datagram   version: u8   sender   incarnation   counter   section*   tag: 32 bytes
//! section    kind: u8   length: u16, little endian   item*
//! beat       id   incarnation   seq * 4 + standing
//! load       id   incarnation   seq * 4 + standing   length: u8   the load
//! ask, want  id   incarnation   seq
//! ```
//!
//! Fields without a type are LEB128 numbers. Within a section, an id is encoded as the difference to the previous item's id, so items are
//! sorted by id. Unknown kinds of sections are skipped. Decoding allocates nothing: the iterator reads items from the datagram.

use crate::{Incarnation, MemberId, Version};

/// The first byte of every datagram.
pub(crate) const PROTOCOL: u8 = 1;

/// The maximum length of a datagram, in bytes. With IPv6 and UDP headers, it fits into the smallest packet that every
/// IPv6 link must carry.
pub(crate) const MAX_DATAGRAM: usize = 1280 - PACKET_OVERHEAD;

/// The size of IPv6 and UDP headers, in bytes.
pub(crate) const PACKET_OVERHEAD: usize = 40 + 8;

pub(crate) const TAG_BYTES: usize = 32;

/// The maximum size of a header, in bytes: a byte, a 32-bit number and two 64-bit numbers in variable-length encoding.
const MAX_HEADER: usize = 1 + 5 + 10 + 10;

/// The maximum size of the sections of a datagram, in bytes.
pub(crate) const MAX_BODY: usize = MAX_DATAGRAM - MAX_HEADER - TAG_BYTES;

const SECTION_HEADER: usize = 3;

/// The error of bytes that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed datagram")]
pub(crate) struct Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sender: MemberId,
    pub(crate) incarnation: Incarnation,
    /// The number of the datagram within the sender's incarnation, from 1.
    pub(crate) counter: u64,
}

impl Header {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.byte(PROTOCOL);
        writer.number(self.sender.0.into());
        writer.number(self.incarnation.0);
        writer.number(self.counter);
        writer.into_bytes()
    }

    /// Decodes the header of a datagram without tag; returns the header and the rest.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != PROTOCOL {
            return Err(Malformed);
        }
        let sender = MemberId(reader.small()?);
        let header = Self { sender, incarnation: Incarnation(reader.number()?), counter: reader.number()? };
        Ok((header, reader.rest))
    }
}

/// A piece of news or a question in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A heartbeat: the newest version of a node that the sender knows.
    Beat { id: MemberId, version: Version, standing: Standing },
    /// The load of a node, which the node published with this version.
    Load { id: MemberId, version: Version, standing: Standing, load: &'a [u8] },
    /// Asks for the receiver's newest version of this node, if it is newer than `known`.
    ExecRequest { id: MemberId, known: Version },
    /// Asks for the receiver's load of this node, if it is newer than `known`.
    Want { id: MemberId, known: Version },
}

/// How the receiver should treat a heartbeat or a load that is new to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A sign of life that the receiver should forward.
    News = 0,
    /// A sign of life that other nodes already know, sent as an answer.
    Answer = 1,
    /// No sign of life, because the sender's news are old.
    Old = 2,
}

const BEAT: u8 = 1;
const LOAD: u8 = 2;
const ASK: u8 = 3;
const WANT: u8 = 4;

impl Standing {
    const fn read(bits: u64) -> Result<Self, Malformed> {
        match bits & 3 {
            0 => Ok(Self::News),
            1 => Ok(Self::Answer),
            2 => Ok(Self::Old),
            _ => Err(Malformed),
        }
    }
}

impl Item<'_> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Beat { .. } => BEAT,
            Self::Load { .. } => LOAD,
            Self::ExecRequest { .. } => ASK,
            Self::Want { .. } => WANT,
        }
    }

    pub(crate) const fn id(&self) -> MemberId {
        match self {
            Self::Beat { id, .. } | Self::Load { id, .. } | Self::ExecRequest { id, .. } | Self::Want { id, .. } => *id,
        }
    }

    fn write(&self, last: u32, writer: &mut Writer) {
        writer.number(self.id().0.wrapping_sub(last).into());
        match *self {
            Self::Beat { version, standing, .. } => writer.standing(version, standing),
            Self::Load { version, standing, load, .. } => {
                writer.standing(version, standing);
                writer.byte(load.len() as u8);
                writer.bytes(load);
            }
            Self::ExecRequest { known, .. } | Self::Want { known, .. } => writer.version(known),
        }
    }
}

/// Packs items into as few bodies as possible, in the given order.
///
/// Items should be grouped by kind and sorted by id within a kind; otherwise the bodies become longer.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    full: Vec<Vec<u8>>,
    body: Writer,
    section: Option<Section>,
}

#[derive(Debug, Clone, Copy)]
struct Section {
    kind: u8,
    begins_at: usize,
    last: u32,
}

impl Packer {
    pub(crate) fn push(&mut self, item: &Item<'_>) {
        let before = self.body.bytes.len();
        let goes_on = self.section.filter(|section| section.kind == item.kind() && section.last <= item.id().0);
        if goes_on.is_none() {
            self.finish_section();
            self.body.bytes(&[item.kind(), 0, 0]);
        }
        item.write(goes_on.map_or(0, |section| section.last), &mut self.body);
        if self.body.bytes.len() > MAX_BODY {
            self.body.bytes.truncate(before);
            self.finish_body();
            return self.push(item);
        }
        let begins_at = goes_on.map_or(before, |section| section.begins_at);
        self.section = Some(Section { kind: item.kind(), begins_at, last: item.id().0 });
    }

    /// Returns the bodies; one empty body if there are no items.
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.body.bytes.is_empty() || self.full.is_empty() {
            self.finish_body();
        }
        self.full
    }

    fn finish_body(&mut self) {
        self.finish_section();
        self.full.push(std::mem::take(&mut self.body).into_bytes());
    }

    fn finish_section(&mut self) {
        if let Some(section) = self.section.take() {
            let length = (self.body.bytes.len() - section.begins_at - SECTION_HEADER) as u16;
            self.body.bytes[section.begins_at + 1..][..2].copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Iterates over the items of a body. Stops after the first item that cannot be decoded.
pub(crate) const fn items(body: &[u8]) -> Items<'_> {
    Items { body: Reader::new(body), kind: 0, section: Reader::new(&[]), last: 0 }
}

#[derive(Debug, Clone)]
pub(crate) struct Items<'a> {
    body: Reader<'a>,
    kind: u8,
    section: Reader<'a>,
    last: u32,
}

impl<'a> Items<'a> {
    fn read(&mut self) -> Result<Option<Item<'a>>, Malformed> {
        while self.section.rest.is_empty() {
            if self.body.rest.is_empty() {
                return Ok(None);
            }
            let kind = self.body.byte()?;
            let length = u16::from_le_bytes(self.body.array()?);
            let section = self.body.take(length.into())?;
            if (BEAT..=WANT).contains(&kind) {
                (self.kind, self.section, self.last) = (kind, Reader::new(section), 0);
            }
        }
        let reader = &mut self.section;
        self.last = self.last.checked_add(reader.small()?).ok_or(Malformed)?;
        let (id, incarnation, seq) = (MemberId(self.last), Incarnation(reader.number()?), reader.number()?);
        let known = Version { incarnation, seq };
        let version = Version { incarnation, seq: seq >> 2 };
        Ok(Some(match self.kind {
            BEAT => Item::Beat { id, version, standing: Standing::read(seq)? },
            LOAD => {
                let (standing, length) = (Standing::read(seq)?, reader.byte()?);
                Item::Load { id, version, standing, load: reader.take(length.into())? }
            }
            ASK => Item::ExecRequest { id, known },
            _ => Item::Want { id, known },
        }))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            (self.body, self.section) = (Reader::new(&[]), Reader::new(&[]));
        }
        read.transpose()
    }
}

/// Reads values from the start of a byte slice.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    /// Reads a 32-bit number in variable-length encoding.
    pub(crate) fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }
}

/// Appends values to a buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn version(&mut self, version: Version) {
        self.number(version.incarnation.0);
        self.number(version.seq);
    }

    fn standing(&mut self, version: Version, standing: Standing) {
        self.number(version.incarnation.0);
        self.number(version.seq << 2 | standing as u64);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(incarnation: u64, seq: u64) -> Version {
        Version { incarnation: Incarnation(incarnation), seq }
    }

    /// Items of each kind, more than fit into one datagram.
    fn many(load: &[u8]) -> Vec<Item<'_>> {
        let ids = || (0..400).map(|at| MemberId(at * at));
        let standings = [Standing::News, Standing::Answer, Standing::Old];
        let standing = |id: MemberId| standings[id.0 as usize % 3];
        let beat = |id| Item::Beat { id, version: version(7, u64::from(id.0) << 20), standing: standing(id) };
        let load = |id| Item::Load { id, version: version(u64::MAX, 1), standing: standing(id), load };
        let (beats, loads) = (ids().map(beat), ids().take(30).map(load));
        let asks = ids().map(|id| Item::ExecRequest { id, known: version(1, u64::MAX) });
        let wants = ids().map(|id| Item::Want { id, known: Version::default() });
        beats.chain(loads).chain(asks).chain(wants).collect()
    }

    fn pack(items: &[Item<'_>]) -> Vec<Vec<u8>> {
        let mut packer = Packer::default();
        items.iter().for_each(|item| packer.push(item));
        packer.finish()
    }

    #[test]
    fn items_round_trip() {
        let load = [9; 40];
        let written = many(&load);
        let bodies = pack(&written);
        assert!(bodies.len() > 3 && bodies.iter().all(|body| body.len() <= MAX_BODY));
        let read: Vec<_> = bodies.iter().flat_map(|body| items(body).map(|item| item.expect("well-formed"))).collect();
        assert_eq!(read, written);
        assert_eq!(pack(&[]), [Vec::<u8>::new()], "a datagram without news is still a sign of life");
    }

    #[test]
    fn unsorted_ids_round_trip() {
        let beat = |id| Item::Beat { id: MemberId(id), version: version(1, 1), standing: Standing::News };
        let written = [beat(5), beat(5), beat(3), beat(u32::MAX)];
        let body = &pack(&written)[0];
        let read: Vec<_> = items(body).map(|item| item.expect("well-formed")).collect();
        assert_eq!(read, written);
    }

    #[test]
    fn sections_of_unknown_kinds_are_skipped() {
        let beat = Item::Beat { id: MemberId(5), version: version(1, 1), standing: Standing::News };
        let mut body = vec![77, 3, 0, 1, 2, 3];
        body.extend(&pack(&[beat])[0]);
        body.extend([0, 0, 0]);
        assert_eq!(items(&body).collect::<Vec<_>>(), [Ok(beat)]);
    }

    #[test]
    fn truncation_and_overflow_are_errors_and_end_the_iteration() {
        let whole = &pack(&[Item::ExecRequest { id: MemberId(300), known: version(1, 1000) }])[0];
        for cut in 1..whole.len() {
            assert_eq!(items(&whole[..cut]).collect::<Vec<_>>(), [Err(Malformed)], "{cut} bytes");
        }
        let mut too_large = vec![ASK, 7, 0];
        too_large.extend([0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0, 0]);
        assert_eq!(items(&too_large).collect::<Vec<_>>(), [Err(Malformed)], "an id of 33 bits is refused");
        assert_eq!(Reader::new(&[0xFF; 20]).number(), Err(Malformed));
        let mut over = [0xFF; 10];
        over[9] = 2;
        assert_eq!(Reader::new(&over).number(), Err(Malformed), "a number of 65 bits is refused");
        over[9] = 1;
        assert_eq!(Reader::new(&over).number(), Ok(u64::MAX));
    }

    #[test]
    fn headers_round_trip() {
        let header = Header { sender: MemberId(u32::MAX), incarnation: Incarnation(u64::MAX), counter: u64::MAX };
        let mut bytes = header.write();
        assert_eq!(bytes.len(), MAX_HEADER);
        bytes.push(42);
        assert_eq!(Header::read(&bytes), Ok((header, &[42][..])));
        bytes[0] = PROTOCOL + 1;
        assert_eq!(Header::read(&bytes), Err(Malformed));
    }
}
