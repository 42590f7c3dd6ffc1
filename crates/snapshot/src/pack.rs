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

/// One chunk in its wire form, not yet checked against its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The sender's name for the chunk.
    pub digest: Digest,
    /// The wire form; see [`crate::wire`].
    pub wire: Vec<u8>,
}

/// The reason why a body is not a pack.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A frame is longer than the receiver allows.
    #[error("chunk {digest} is announced with {length} bytes; at most {limit} are allowed")]
    TooLong {
        digest: Digest,
        /// The announced length, in bytes.
        length: u64,
        /// The receiver's limit, in bytes.
        limit: u64,
    },
    /// A chunk exceeds the maximum size.
    #[error("a chunk of {length} bytes cannot travel; at most {MAX_WIRE_BYTES} are allowed")]
    TooLarge {
        /// The length of its wire form, in bytes.
        length: usize,
    },
    /// The body ended inside a frame.
    #[error("the body ends inside a chunk, {missing} bytes early")]
    Truncated {
        /// Known missing bytes of the frame.
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

/// Decodes a body from pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were already returned.
    taken: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_WIRE_BYTES)
    }
}

impl Decoder {
    /// A decoder that refuses chunks with a wire form longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit }
    }

    /// Adds the next piece of the body. Drain [`Decoder::next_frame`] before feeding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, or `None` until more is fed.
    ///
    /// # Errors
    /// [`PackError::TooLong`]; the rest of the body is unusable.
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

    /// The announced length of the incomplete frame, in bytes; zero before its header is complete.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.header().map_or(0, |(_, length)| length)
    }

    /// Checks that the body ended at the end of a frame.
    ///
    /// # Errors
    /// [`PackError::Truncated`] otherwise.
    pub fn finish(&self) -> Result<(), PackError> {
        let left = self.buffer.len() - self.taken;
        let wanted = self.header().map_or(HEADER_BYTES, |(_, length)| HEADER_BYTES + length);
        if left == 0 { Ok(()) } else { Err(PackError::Truncated { missing: wanted.saturating_sub(left) }) }
    }

    fn header(&self) -> Option<(Digest, usize)> {
        let header = self.buffer[self.taken..].first_chunk::<HEADER_BYTES>()?;
        let (digest, length) = header.split_first_chunk::<32>().expect("36 bytes hold 32");
        let length = u32::from_le_bytes(length.try_into().expect("4 bytes follow"));
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
        fn frames_survive_any_cutting(wires: Vec<Vec<u8>>, step in 1usize..200) {
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
        fn a_cut_body_is_noticed(wire: Vec<u8>, cut in 1usize..36) {
            let body = frame(&Digest([1; 32]), &wire).expect("short");
            let cut_short = decode(&body[..body.len() - cut], 50, 1 << 20);
            let truncated = matches!(cut_short, Err(PackError::Truncated { .. }));
            prop_assert!(truncated);
        }
    }

    #[test]
    fn an_announced_giant_is_refused_at_its_header() {
        let mut decoder = Decoder::default();
        decoder.feed(&[[9; 32].as_slice(), &u32::MAX.to_le_bytes()].concat());
        assert!(matches!(decoder.next_frame(), Err(PackError::TooLong { length: 0xFFFF_FFFF, .. })));
    }
}
