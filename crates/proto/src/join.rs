//! Join codes, with which a machine becomes a node, and login codes, with which a user logs in.
//!
//! A code holds the head's address, the fingerprint of the cluster's authority and a one-time secret. The node can thus
//! verify the head before it sends anything, and the head knows that the node was invited. A code is one word in
//! lower-case base32 with a checksum. It can be read aloud, and a typing error is detected before any connection is
//! opened.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use hostler_model::{Digest, ParseError};

/// Prefix of join codes; the number is the format version.
const PREFIX: &str = "hostler1-";

const EXPECTED: &str = "a join code, which begins with hostler1-";

/// Digits of the code's text: the base32 alphabet of RFC 4648, whose characters differ in most typefaces.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Maximum length of a code that is read, in characters. A code with the longest address and secret is shorter.
const MAX_LEN: usize = 1024;

/// DNS name in every head's certificate. Agents authenticate the head by its key, which the cluster's authority has
/// signed. The head's address can therefore change without a new certificate.
pub const HEAD_NAME: &str = "head.hostler.internal";

/// Default port of the head. It is not registered with IANA.
pub const DEFAULT_PORT: u16 = 7760;

/// Address of a head: a host name or IP address, with an optional port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Host name, or an IP address without brackets.
    pub host: String,
    /// Port; absent if the address contains no port.
    pub port: Option<u16>,
}

impl FromStr for Address {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error =
            || ParseError::new(text, "HOST:PORT or HOST, such as head.example:7760, 192.0.2.1 or [2001:db8::1]:7760");
        let plain = |host: &str| Self { host: host.to_owned(), port: None };
        if text.parse::<IpAddr>().is_ok() {
            return Ok(plain(text));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(error)?)),
            None => (text, None),
        };
        if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            inner.parse::<Ipv6Addr>().map_err(|_| error())?;
            return Ok(Self { host: inner.to_owned(), port });
        }
        let is_name = (1..=200).contains(&host.len())
            && host.split('.').all(|label| !label.is_empty() && !label.starts_with('-'))
            && host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if is_name { Ok(Self { host: host.to_owned(), port }) } else { Err(error()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (_, None) => f.write_str(&self.host),
        }
    }
}

/// Content of a join code.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode {
    /// Host and port of the head, at most 255 bytes.
    pub address: String,
    /// Fingerprint of the cluster's authority: the BLAKE3 hash of the authority's certificate in DER.
    pub authority: Digest,
    /// One-time secret, at most 255 bytes.
    pub secret: String,
}

/// Formats the code without its secret, because codes may appear in logs.
impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinCode")
            .field("address", &self.address)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// Formats the code as the user types it.
///
/// # Panics
/// When the address or the secret is longer than 255 bytes.
impl fmt::Display for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(PREFIX, f)
    }
}

impl JoinCode {
    /// Writes the code as text after `prefix`.
    fn write(&self, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::new();
        bytes.extend(self.authority.0);
        for text in [&self.address, &self.secret] {
            bytes.push(u8::try_from(text.len()).expect("the address and the secret have at most 255 bytes"));
            bytes.extend(text.as_bytes());
        }
        bytes.extend(checksum(&bytes).to_be_bytes());
        f.write_str(prefix)?;
        f.write_str(&base32(&bytes))
    }
}

impl FromStr for JoinCode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // A mistyped code still holds a secret: errors do not repeat it.
        decode(PREFIX, text.trim()).ok_or_else(|| ParseError::secret(EXPECTED))
    }
}

/// Prefix of login codes, which distinguishes them from join codes.
const LOGIN_PREFIX: &str = "hostlerlogin1-";

/// Content of a login code: it lets one user log in at one cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginCode {
    /// Host and port of the head, at most 255 bytes.
    pub address: String,
    /// Fingerprint of the cluster's authority.
    pub authority: Digest,
    /// One-time secret, at most 255 bytes.
    pub secret: String,
}

impl LoginCode {
    /// Returns whether the text has the prefix of a login code, valid or not.
    #[must_use]
    pub fn has_login_prefix(text: &str) -> bool {
        text.trim().to_ascii_lowercase().starts_with(LOGIN_PREFIX)
    }
}

/// Finds what could be a code, or a part of one, anywhere in a text: a prefix of codes and at least ten digits.
#[must_use]
pub fn find_code(text: &str) -> Option<&str> {
    const LEAST_DIGITS: usize = 10;
    let lower = text.to_ascii_lowercase();
    let found = [PREFIX, LOGIN_PREFIX].iter().filter_map(|prefix| Some((lower.find(prefix)?, prefix.len())));
    let ends = found.map(|(start, length)| {
        let digits = lower[start + length..].bytes().take_while(u8::is_ascii_alphanumeric).count();
        (start, start + length + digits, digits)
    });
    ends.filter(|(.., digits)| *digits >= LEAST_DIGITS).map(|(start, end, _)| &text[start..end]).next()
}

/// Formats the code without its secret.
impl fmt::Debug for LoginCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginCode").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Formats the code as the user types it.
///
/// # Panics
/// When the address or the secret is longer than 255 bytes.
impl fmt::Display for LoginCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, authority, secret } = self.clone();
        JoinCode { address, authority, secret }.write(LOGIN_PREFIX, f)
    }
}

impl FromStr for LoginCode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a login code, which begins with hostlerlogin1-";
        let JoinCode { address, authority, secret } =
            decode(LOGIN_PREFIX, text.trim()).ok_or_else(|| ParseError::secret(expected))?;
        Ok(Self { address, authority, secret })
    }
}

fn decode(prefix: &str, text: &str) -> Option<JoinCode> {
    if text.len() > MAX_LEN {
        return None;
    }
    let bytes = unbase32(text.to_ascii_lowercase().strip_prefix(prefix)?)?;
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    if checksum(bytes).to_be_bytes() != *sum {
        return None;
    }
    let (authority, rest) = bytes.split_first_chunk::<32>()?;
    let (address, rest) = take_text(rest)?;
    let (secret, rest) = take_text(rest)?;
    rest.is_empty().then_some(JoinCode { address, authority: Digest(*authority), secret })
}

/// Reads a length byte and that many bytes of text.
fn take_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(len))?;
    Some((String::from_utf8(text.to_vec()).ok().filter(|text| !text.is_empty())?, rest))
}

/// Computes the FNV-1a hash of the code's content. The hash detects typing errors; the secret protects against forgery.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn base32(bytes: &[u8]) -> String {
    let digit_at = |at: usize| {
        let bit = at * 5;
        let pair = [bytes[bit / 8], bytes.get(bit / 8 + 1).copied().unwrap_or(0)];
        let shift = 11 - bit % 8;
        char::from(DIGITS[usize::from(u16::from_be_bytes(pair) >> shift & 31)])
    };
    (0..(bytes.len() * 8).div_ceil(5)).map(digit_at).collect()
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes() {
        let value = DIGITS.iter().position(|it| *it == digit)?;
        bits = bits << 5 | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // The rest is padding: fewer bits than one digit has, all zero, so that each code has one spelling.
    (count < 5 && bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code() -> JoinCode {
        JoinCode {
            address: "[2001:db8::1]:7777".to_owned(),
            authority: Digest(std::array::from_fn(|i| i as u8)),
            secret: "0123456789abcdef".to_owned(),
        }
    }

    #[test]
    fn join_code_format_is_stable() {
        assert_eq!(
            code().to_string(),
            "hostler1-aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dyprewzsgaydcotemi4duorrlu5donzxg4idamjsgm2dknrxha4wcytdmrswn5einf7q"
        );
        assert!(code().to_string().strip_prefix(PREFIX).is_some_and(|it| it.bytes().all(|b| DIGITS.contains(&b))));
    }

    #[test]
    fn address_accepts_hosts_and_ports() {
        for text in ["head", "head.example:7760", "192.0.2.1:1", "192.0.2.1", "[2001:db8::1]:7760", "2001:db8::1"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in
            ["", ":7760", "head:", "head:0", "head:99999", "a b", "http://head", "[head]:1", "a..b", "head:7760/x"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn join_and_login_codes_are_not_interchangeable() {
        let JoinCode { address, authority, secret } = code();
        let login = LoginCode { address, authority, secret };
        assert_eq!(login.to_string().parse(), Ok(login.clone()));
        assert!(login.to_string().parse::<JoinCode>().is_err() && code().to_string().parse::<LoginCode>().is_err());
        assert!(LoginCode::has_login_prefix(&login.to_string()) && !LoginCode::has_login_prefix(&code().to_string()));
        assert!(!format!("{login:?}").contains(&login.secret));
    }

    #[test]
    fn codes_are_found_in_any_text_and_differ_from_addresses() {
        let JoinCode { address, authority, secret } = code();
        let login = LoginCode { address, authority, secret }.to_string();
        for code in [code().to_string(), login.to_ascii_uppercase(), format!("{login}a"), login[..40].to_owned()] {
            for text in [code.clone(), format!("  '{code}'"), format!("--code={code}\n"), format!("é{code}:7760")] {
                assert_eq!(find_code(&text), Some(code.as_str()), "{text}");
            }
        }
        let long = format!("{}.example:7760", "a".repeat(63));
        for text in ["hostler1-a.example", "hostlerlogin1-…", "hostler1-", "hostler1-n2:7760", &long] {
            assert_eq!(find_code(text), None, "{text}");
        }
    }

    #[test]
    fn join_code_ignores_case_and_surrounding_space() {
        let text = format!("  {}\n", code().to_string().to_ascii_uppercase());
        assert_eq!(text.parse(), Ok(code()));
    }

    #[test]
    fn join_code_with_a_typo_is_refused_without_printing_the_secret() {
        let text = code().to_string();
        for at in PREFIX.len()..text.len() {
            let mut slip = text.clone().into_bytes();
            slip[at] = if slip[at] == b'a' { b'b' } else { b'a' };
            let slip = String::from_utf8(slip).expect("ASCII");
            let error = slip.parse::<JoinCode>().expect_err("a digit is wrong");
            assert!(!error.to_string().contains(&slip[20..]), "{error}");
        }
        assert!(!format!("{:?}", code()).contains(&code().secret));
    }

    proptest! {
        #[test]
        fn join_code_round_trips(address in "[a-z0-9.:]{1,80}", authority: [u8; 32], secret in "[a-z0-9]{1,64}") {
            let code = JoinCode { address, authority: Digest(authority), secret };
            prop_assert_eq!(code.to_string().parse(), Ok(code));
        }

        #[test]
        fn malformed_join_codes_are_refused(text: String, tail in "[a-z2-7]{0,200}") {
            for hostile in [text, format!("{PREFIX}{tail}"), format!("{}{tail}a", code())] {
                prop_assert!(hostile.parse::<JoinCode>().is_err());
            }
        }
    }
}
