//! Content encodings of responses.
//!
//! iLO 5 sends gzip since firmware 2.30, and status 406 if a request does not accept gzip. Some controllers name another
//! encoding than they use, so the first bytes decide: neither JSON nor text begins like gzip or zlib data.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::header::{CONTENT_ENCODING, HeaderMap};

/// The first bytes of gzip data.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The first byte of zlib data of any compression level.
const ZLIB: u8 = 0x78;

/// Why a body cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undecodable {
    TooLarge,
    /// The compressed data is damaged or incomplete.
    Damaged(String),
    /// The response has an encoding that no request accepts.
    Unknown(String),
}

/// Decodes a body to at most `limit` bytes.
pub(super) fn decode(headers: &HeaderMap, body: Bytes, limit: usize) -> Result<Bytes, Undecodable> {
    let names = headers.get_all(CONTENT_ENCODING).iter().filter_map(|names| names.to_str().ok());
    let names: Vec<String> = names.flat_map(|names| names.split(',')).map(|name| name.trim().to_lowercase()).collect();
    let is_deflate = names.iter().any(|name| name == "deflate");
    if body.starts_with(&GZIP) {
        return read(MultiGzDecoder::new(&*body), limit);
    }
    if is_deflate && !body.is_empty() && !is_text(&body) {
        return match body[0] {
            ZLIB => read(ZlibDecoder::new(&*body), limit),
            _ => read(DeflateDecoder::new(&*body), limit),
        };
    }
    let is_known = |name: &String| ["", "identity", "gzip", "x-gzip", "deflate"].contains(&name.as_str());
    match names.iter().find(|name| !is_known(name)) {
        Some(unknown) if !body.is_empty() && !is_text(&body) => Err(Undecodable::Unknown(unknown.clone())),
        _ => Ok(body),
    }
}

/// Whether a body is JSON or text without an encoding.
fn is_text(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .is_ok_and(|text| text.trim_start_matches(['\u{feff}', ' ', '\r', '\n', '\t']).starts_with(['{', '[', '<']))
}

fn read(decoder: impl Read, limit: usize) -> Result<Bytes, Undecodable> {
    let mut decoded = Vec::new();
    let read: io::Result<usize> = decoder.take(limit as u64 + 1).read_to_end(&mut decoded);
    read.map_err(|error| Undecodable::Damaged(error.to_string()))?;
    if decoded.len() > limit {
        return Err(Undecodable::TooLarge);
    }
    Ok(decoded.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const JSON: &[u8] = br#"{"PowerState":"On"}"#;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
    }

    fn decoded(encoding: &str, body: &[u8]) -> Result<Bytes, Undecodable> {
        let mut headers = HeaderMap::new();
        if !encoding.is_empty() {
            headers.insert(CONTENT_ENCODING, encoding.parse().expect("a header"));
        }
        decode(&headers, Bytes::copy_from_slice(body), 1000)
    }

    #[test]
    fn encodings_of_real_controllers_are_decoded() {
        for (encoding, body) in [
            ("", JSON.to_vec()),
            ("identity", JSON.to_vec()),
            ("gzip", gzip(JSON)),
            ("GZIP", gzip(JSON)),
            ("x-gzip", gzip(JSON)),
            ("identity, gzip", gzip(JSON)),
            ("", gzip(JSON)),
            ("gzip", JSON.to_vec()),
            ("deflate", zlib(JSON)),
            ("deflate", deflate(JSON)),
            ("deflate", JSON.to_vec()),
            ("utf-8", JSON.to_vec()),
        ] {
            assert_eq!(decoded(encoding, &body).as_deref(), Ok(JSON), "{encoding}: {body:?}");
        }
        for encoding in ["", "gzip", "deflate", "br"] {
            assert_eq!(decoded(encoding, b"").as_deref(), Ok(&b""[..]), "{encoding}: a response without a body");
        }
    }

    #[test]
    fn damaged_large_and_unknown_bodies_are_refused() {
        let whole = gzip(JSON);
        assert!(matches!(decoded("gzip", &whole[..whole.len() - 9]), Err(Undecodable::Damaged(_))));
        assert!(matches!(decoded("gzip", &[&GZIP[..], b"rubbish"].concat()), Err(Undecodable::Damaged(_))));
        assert_eq!(decoded("gzip", &gzip(&[b'x'; 1001])), Err(Undecodable::TooLarge));
        assert_eq!(decoded("gzip", &gzip(&[b'x'; 1000])).map(|body| body.len()), Ok(1000));
        assert_eq!(decoded("br", b"\x8b\x02\x80"), Err(Undecodable::Unknown("br".to_owned())));
    }
}
