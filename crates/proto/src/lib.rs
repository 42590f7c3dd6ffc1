//! Everything that crosses a wire or is stored: one module for each kind of peer.
//!
//! - [`api`]: REST + JSON between clients and the head.
//! - [`join`]: the word with which a new node is invited.
//! - [`link`]: messages between an agent and its head, in batches over one WebSocket.
//! - [`manifest`]: captured folders and results.
//! - [`partitions`]: partitions and what is set about nodes.
//! - [`record`]: rows that the head keeps about tasks that ended.
//! - [`settings`]: settings of the head, as the API shows them.
//! - [`users`]: REST + JSON about users, logging in and who did what.
//!
//! Wire types carry no behaviour beyond encoding. Fields are added, never changed: see `docs/internals/compatibility.md`.

pub mod api;
pub mod join;
pub mod link;
pub mod manifest;
pub mod partitions;
pub mod peers;
pub mod power;
pub mod record;
pub mod settings;
pub mod users;

/// Encodes `value` as self-describing MessagePack: an older reader skips fields that it does not know.
///
/// # Panics
/// Never for the types of this crate: they hold no value that MessagePack lacks.
pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(value).expect("wire types can always be encoded")
}

/// How deep values may lie in one another: several times what ours need. Each level takes some of the stack, also in fields that are
/// unknown and skipped, and a stack that overflows takes the whole daemon with it.
const MAX_DEPTH: usize = 100;

/// Decodes what [`encode`] wrote.
///
/// # Errors
/// When the bytes are damaged or of another type, or nested deeper than any message.
pub fn decode<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    decoder.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut decoder).map_err(DecodeError)
}

/// Bytes that are not the message they should be.
#[derive(Debug, thiserror::Error)]
#[error("not a message of the expected kind: {0}")]
pub struct DecodeError(#[source] rmp_serde::decode::Error);

#[cfg(test)]
mod tests {
    use hostler_model::{Digest, Work};

    use super::*;

    #[test]
    fn nesting_is_bounded_where_nobody_looks() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Known {
            known: u8,
        }
        let with_unknown = |depth: usize| {
            let unknown = [vec![0x91; depth], vec![0xc0]].concat();
            [vec![0x82, 0xa5], b"known".to_vec(), vec![7, 0xa7], b"unknown".to_vec(), unknown].concat()
        };
        assert_eq!(decode::<Known>(&with_unknown(20)).expect("a newer peer's field"), Known { known: 7 });
        // The stack of a test's thread is as large as that of a daemon's: this would not return, were it not refused.
        assert!(decode::<Known>(&with_unknown(1 << 20)).is_err());
    }

    #[test]
    fn a_hash_inside_a_tagged_enum_survives_both_formats() {
        let work = Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".into(), args: vec![] };
        assert_eq!(decode::<Work>(&encode(&work)).expect("binary"), work);
        let text = serde_json::to_string(&work).expect("plain data");
        assert_eq!(serde_json::from_str::<Work>(&text).expect("text"), work);
    }
}
