//! Signing requests from untrusted clients, and certificates as TLS passes them on.

use std::sync::OnceLock;

use hostler_head::fuzzing::{Authority, certificate};

use super::values;
use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "certificate", about: "signing requests and certificates", run, seeds };

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Authority::open(directory.path()).expect("the directory is writable")
    })
}

/// The first byte selects the format: a certificate as DER, a request as DER, or a request as PEM.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => drop(certificate(bytes)),
        1 => drop(authority().sign(&values::node(), &pem(bytes))),
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                drop(authority().sign(&values::node(), text));
            }
        }
    }
}

fn pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE REQUEST-----\n");
    for three in der.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text.push_str("\n-----END CERTIFICATE REQUEST-----\n");
    text
}

fn seeds() -> Vec<Vec<u8>> {
    let (request, der) = hostler_head::fuzzing::honest_request();
    let signed = authority().sign(&values::node(), &request).expect("a valid request is signed");
    let own = authority().certificate().expect("an authority has a certificate");
    vec![
        [vec![0], signed].concat(),
        [vec![0], own].concat(),
        [vec![1], der].concat(),
        [vec![2], request.into_bytes()].concat(),
    ]
}
