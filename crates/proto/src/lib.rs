//! Types that are sent between processes or stored, and their encoding.
//!
//! - [`api`]: REST + JSON between clients and the head.
//! - [`browser`]: which requests of browsers the dashboard accepts.
//! - [`certificate`]: how quiet a node was while an exclusive job ran.
//! - [`forward`]: connections to ports of jobs, over WebSockets.
//! - [`join`]: join codes for new nodes, and login codes for users.
//! - [`link`]: messages between an agent and its head, in batches over one WebSocket.
//! - [`manifest`]: captured folders and results.
//! - [`openid`]: REST + JSON of the sign-in with OpenID Connect.
//! - [`partitions`]: partitions, and the settings that operators make for nodes.
//! - [`peers`]: the list of gossiping nodes, and the load table that an agent shows.
//! - [`power`]: power states and energy, as the API shows them.
//! - [`record`]: the stored record of an ended task.
//! - [`settings`]: settings of the head, as the API shows them.
//! - [`stored`]: what the head's store takes and returns.
//! - [`usage`]: figures over time, from agents and for users.
//! - [`users`]: REST + JSON about users, logins and the audit log.
//!
//! Wire types only encode and decode. Fields are added but never changed: see `docs/internals/compatibility.md`.

#![warn(missing_docs)]

/// The release; in packages with the date and the commit, e.g. `0.1.0+20261129.1738929a`.
pub const BUILD: &str = match option_env!("HOSTLER_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

pub mod accounting;
pub mod api;
mod blobs;
pub mod browser;
pub mod certificate;
pub mod dry_run;
pub mod files;
pub mod forward;
pub mod jobs;
pub mod join;
pub mod link;
pub mod manifest;
mod nodes;
pub mod notify;
pub mod openid;
pub mod partitions;
pub mod peers;
pub mod power;
pub mod record;
mod records;
mod results;
pub mod settings;
pub mod stages;
mod step_record;
pub mod stored;
mod task_counts;
pub mod usage;
pub mod users;

/// Encodes `value` as MessagePack with field names, so that an older reader skips unknown fields.
///
/// # Panics
/// Never for the types of this crate: MessagePack can represent all their values.
pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(value).expect("wire types can always be encoded")
}

/// Maximum nesting depth when decoding; messages need a small fraction of it. Each level uses stack space, even in
/// unknown fields that are skipped. A stack overflow would abort the daemon.
const MAX_DEPTH: usize = 100;

/// Decodes bytes from [`encode`].
///
/// # Errors
/// If the bytes are damaged, belong to another type, or are nested too deeply.
pub fn decode<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    decoder.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut decoder).map_err(DecodeError)
}

/// The bytes are not a valid message of the expected type.
#[derive(Debug, thiserror::Error)]
#[error("cannot decode the message: {0}")]
pub struct DecodeError(#[source] rmp_serde::decode::Error);

#[cfg(test)]
mod tests {
    use hostler_model::{Digest, Work};

    use super::*;

    #[test]
    fn decode_limits_nesting_in_unknown_fields() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Known {
            known: u8,
        }
        let with_unknown = |depth: usize| {
            let unknown = [vec![0x91; depth], vec![0xc0]].concat();
            [vec![0x82, 0xa5], b"known".to_vec(), vec![7, 0xa7], b"unknown".to_vec(), unknown].concat()
        };
        assert_eq!(decode::<Known>(&with_unknown(20)).expect("a newer peer's field"), Known { known: 7 });
        // Test threads have the same stack size as daemon threads: without the limit, this call would overflow the
        // stack.
        assert!(decode::<Known>(&with_unknown(1 << 20)).is_err());
    }

    #[test]
    fn digest_in_tagged_enum_round_trips_in_both_formats() {
        let work = Work::Project { snapshot: Digest([7; 32]), entrypoint: "main.py".into(), args: vec![] };
        assert_eq!(decode::<Work>(&encode(&work)).expect("binary"), work);
        let text = serde_json::to_string(&work).expect("plain data");
        assert_eq!(serde_json::from_str::<Work>(&text).expect("text"), work);
    }
}
