//! Strings of Linux in JSON: names and values of environment variables, arguments and paths, which may contain any byte
//! but zero.
//!
//! Text stays as it is. A byte that is not part of a UTF-8 character becomes a private-use character, U+EF80 to U+EFFF for
//! bytes 0x80 to 0xFF, and so do the three bytes of such a character.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The character of byte 0; bytes below 0x80 are always text.
const BLOCK: u32 = 0xef00;

/// Returns text from which [`os_string_of`] restores the string.
#[must_use]
pub fn text_of(string: impl AsRef<OsStr>) -> String {
    let bytes = string.as_ref().as_bytes();
    let mut text = String::with_capacity(bytes.len());
    let stand_in = |byte: &u8| char::from_u32(BLOCK + u32::from(*byte)).expect("the block has only characters");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match octet(c) {
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stand_in)),
                None => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(stand_in));
    }
    text
}

/// Returns the string of Linux that a text from [`text_of`] stands for.
#[must_use]
pub fn os_string_of(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match octet(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// Returns the byte for which a character of [`text_of`] stands.
pub(crate) fn octet(c: char) -> Option<u8> {
    u8::try_from(u32::from(c).checked_sub(BLOCK)?).ok().filter(|byte| !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_is_no_text_changes() {
        for (bytes, text) in [
            (&b"caf\xc3\xa9 \\xe9"[..], "café \\xe9"),
            (b"caf\xe9", "caf\u{efe9}"),
            (b"\xff/\x80", "\u{efff}/\u{ef80}"),
            ("\u{ef80}".as_bytes(), "\u{efee}\u{efbe}\u{ef80}"),
        ] {
            assert_eq!(text_of(OsStr::from_bytes(bytes)), text);
        }
    }

    proptest! {
        #[test]
        fn every_string_is_restored(bytes: Vec<u8>, text: String) {
            for bytes in [bytes, text.into_bytes()] {
                let text = text_of(OsStr::from_bytes(&bytes));
                prop_assert_eq!(os_string_of(&text).into_vec(), bytes);
            }
        }
    }
}
