//! Many chunks in one request body: frames of digest, length and wire form, one after another.
//!
//! ```text
//! [32 bytes digest][4 bytes length, little endian][length bytes: the chunk's wire form]   and so on to the end
//! ```
//!
//! A frame is self-contained, so frames received before a connection breaks are kept. The decoder holds at most one
//! incomplete frame. It allocates as bytes arrive, never by an announced length. It checks only the framing; the code
//! that stores a frame checks its content against the digest.

use hostler_model::Digest;

use crate::wire::MAX_WIRE_BYTES;

const HEADER_BYTES: usize = 36;

/// A chunk in its wire form, before its digest is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The digest of the chunk, according to the sender.
    pub digest: Digest,
    /// The wire form; see [`crate::wire`].
    pub wire: Vec<u8>,
}

/// The reason why bytes are not a valid pack.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A frame exceeds the receiver's limit.
    #[error("chunk {digest} has {length} bytes according to its header; at most {limit} are allowed")]
    TooLong {
        digest: Digest,
        /// The announced length, in bytes.
        length: u64,
        /// The receiver's limit, in bytes.
        limit: u64,
    },
    /// A chunk exceeds the maximum size of the wire form.
    #[error("a chunk of {length} bytes is too large to send; at most {MAX_WIRE_BYTES} are allowed")]
    TooLarge {
        /// The length of the chunk's wire form, in bytes.
        length: usize,
    },
    /// The body ended inside a frame.
    #[error("the received data end inside a chunk, {missing} bytes early")]
    Truncated {
        /// The number of missing bytes, if it is known; otherwise a lower bound.
        missing: usize,
    },
}

/// Encodes one frame.
///
/// # Errors
/// [`PackError::TooLarge`] if `wire` is longer than [`MAX_WIRE_BYTES`].
pub fn frame(digest: &Digest, wire: &[u8]) -> Result<Vec<u8>, PackError> {
    if wire.len() > MAX_WIRE_BYTES {
        return Err(PackError::TooLarge { length: wire.len() });
    }
    let length = wire.len() as u32;
    Ok([digest.0.as_slice(), &length.to_le_bytes(), wire].concat())
}

/// Decodes a pack that arrives in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Length of the part of the buffer that was already returned, in bytes.
    taken: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_WIRE_BYTES)
    }
}

impl Decoder {
    /// Creates a decoder that refuses chunks whose wire form is longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit }
    }

    /// Adds the next piece of the pack. Call [`Decoder::next_frame`] until it returns `None` before adding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame; `None` if more data are needed.
    ///
    /// # Errors
    /// [`PackError::TooLong`]; the rest of the pack cannot be decoded.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, PackError> {
        let Some((digest, length)) = self.header() else { return Ok(None) };
        if length > self.limit {
            return Err(PackError::TooLong { digest, length: length as u64, limit: self.limit as u64 });
        }
        let rest = &self.buffer[self.taken + HEADER_BYTES..];
        let Some(wire) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { digest, wire: wire.to_vec() };
        self.taken += HEADER_BYTES + length;
        Ok(Some(frame))
    }

    /// Returns the length of the incomplete frame according to its header, in bytes; zero while the header is
    /// incomplete.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.header().map_or(0, |(_, length)| length)
    }

    /// Checks that the pack ended at the end of a frame.
    ///
    /// # Errors
    /// [`PackError::Truncated`] if a frame is incomplete.
    pub fn finish(&self) -> Result<(), PackError> {
        let left = self.buffer.len() - self.taken;
        let wanted = self.header().map_or(HEADER_BYTES, |(_, length)| HEADER_BYTES + length);
        if left == 0 { Ok(()) } else { Err(PackError::Truncated { missing: wanted.saturating_sub(left) }) }
    }

    fn header(&self) -> Option<(Digest, usize)> {
        let header = self.buffer[self.taken..].first_chunk::<HEADER_BYTES>()?;
        let (digest, length) =
            header.split_first_chunk::<32>().expect("a header of 36 bytes begins with a digest of 32 bytes");
        let length = u32::from_le_bytes(length.try_into().expect("4 bytes of the header follow the digest"));
        Some((Digest(*digest), length as usize))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(body: &[u8], step: usize, limit: usize) -> Result<Vec<Frame>, PackError> {
        let mut decoder = Decoder::new(limit);
        let mut frames = Vec::new();
        for piece in body.chunks(step) {
            decoder.feed(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        decoder.finish().map(|()| frames)
    }

    proptest! {
        #[test]
        fn frames_survive_splitting_at_any_byte(wires: Vec<Vec<u8>>, step in 1usize..200) {
            let frames: Vec<Frame> =
                wires.into_iter().map(|wire| Frame { digest: crate::chunk::digest_of(&wire), wire }).collect();
            let body: Vec<u8> = frames.iter().flat_map(|it| frame(&it.digest, &it.wire).expect("short")).collect();
            prop_assert_eq!(decode(&body, step, 1 << 20), Ok(frames));
        }

        #[test]
        fn hostile_bodies_neither_panic_nor_grow(body: Vec<u8>, step in 1usize..200) {
            if let Ok(frames) = decode(&body, step, 64) {
                prop_assert!(frames.iter().all(|frame| frame.wire.len() <= 64));
            }
        }

        #[test]
        fn truncated_body_is_detected(wire: Vec<u8>, cut in 1usize..36) {
            let body = frame(&Digest([1; 32]), &wire).expect("short");
            let cut_short = decode(&body[..body.len() - cut], 50, 1 << 20);
            let truncated = matches!(cut_short, Err(PackError::Truncated { .. }));
            prop_assert!(truncated);
        }
    }

    #[test]
    fn oversized_frame_is_refused_at_its_header() {
        let mut decoder = Decoder::default();
        decoder.feed(&[[9; 32].as_slice(), &u32::MAX.to_le_bytes()].concat());
        assert!(matches!(decoder.next_frame(), Err(PackError::TooLong { length: 0xFFFF_FFFF, .. })));
    }
}
