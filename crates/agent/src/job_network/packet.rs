//! Checks of packets. Jobs and other nodes can send any bytes.

use std::net::Ipv4Addr;

/// Length of a header without options, in bytes.
const HEADER_BYTES: usize = 20;

/// First byte of such a header: version 4, and five words.
const VERSION_AND_LENGTH: u8 = 0x45;

/// An IPv4 packet without options. Others are lost: jobs do not need options, such as a route to other networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
}

impl<'a> Packet<'a> {
    /// The packet at the beginning of `bytes`, and what follows it; `None` if it is incomplete or of another kind.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header[0] != VERSION_AND_LENGTH || length < HEADER_BYTES {
            return None;
        }
        let (packet, rest) = bytes.split_at_checked(length)?;
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        Some((Self { bytes: packet, source: address(12), destination: address(16) }, rest))
    }

    /// The packet that `bytes` are; `None` if they are anything else.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        Self::first(bytes).filter(|(_, rest)| rest.is_empty()).map(|(packet, _)| packet)
    }

    /// The packets that `bytes` contain, up to the first invalid one.
    pub(super) fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            let (packet, rest) = Self::first(bytes)?;
            bytes = rest;
            Some(packet)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: [u8; 4], destination: [u8; 4], content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![VERSION_AND_LENGTH, 0, 0, 0];
        bytes.extend([0; 8]);
        bytes.extend(source);
        bytes.extend(destination);
        bytes.extend(content);
        let length = u16::try_from(bytes.len()).expect("short");
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn packets_are_read_one_after_the_other() {
        let (one, two) = (packet([10, 0, 0, 1], [10, 0, 0, 2], b"one"), packet([10, 0, 0, 3], [10, 0, 0, 1], b""));
        let both = [&one[..], &two].concat();
        let found: Vec<Packet<'_>> = Packet::all(&both).collect();
        assert_eq!(found, [Packet::of(&one).expect("valid"), Packet::of(&two).expect("valid")]);
        assert_eq!((found[0].source, found[0].destination), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        assert_eq!(Packet::of(&both), None, "an interface hands out one packet at a time");
    }

    #[test]
    fn anything_else_is_no_packet() {
        let valid = packet([10, 0, 0, 1], [10, 0, 0, 2], b"content");
        for length in 0..valid.len() {
            assert_eq!(Packet::of(&valid[..length]), None, "cut after {length} bytes");
        }
        let with = |at: usize, value: u8| {
            let mut bytes = valid.clone();
            bytes[at] = value;
            bytes
        };
        // With options, of version 6, and with a length less than that of the header.
        for bytes in [with(0, 0x46), with(0, 0x60), with(0, 0x44), with(3, 19), with(3, 0)] {
            assert_eq!(Packet::all(&bytes).count(), 0);
        }
        let cut = [&valid[..], &valid[..10]].concat();
        assert_eq!(Packet::all(&cut).count(), 1, "those before it count");
    }
}
