//! Everything that crosses a wire or is stored: one module for each kind of peer.
//!
//! - [`api`]: REST + JSON between clients and the head.
//! - [`join`]: the word with which a new node is invited.
//! - [`link`]: messages between an agent and its head, in batches over one WebSocket.
//! - [`manifest`]: captured folders and results.
//! - [`record`]: rows that the head keeps about tasks that ended.
//! - [`settings`]: settings of the head, as the API shows them.
//! - [`users`]: REST + JSON about users, logging in and who did what.
//!
//! Wire types carry no behaviour beyond encoding. Fields are added, never changed: see `docs/internals/compatibility.md`.

pub mod api;
pub mod join;
pub mod link;
pub mod manifest;
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

/// Decodes what [`encode`] wrote.
///
/// # Errors
/// When the bytes are damaged or of another type.
pub fn decode<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    rmp_serde::from_slice(bytes).map_err(DecodeError)
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
    fn a_hash_inside_a_tagged_enum_survives_both_formats() {
        let work = Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".into(), args: vec![] };
        assert_eq!(decode::<Work>(&encode(&work)).expect("binary"), work);
        let text = serde_json::to_string(&work).expect("plain data");
        assert_eq!(serde_json::from_str::<Work>(&text).expect("text"), work);
    }
}
