//! Ethernet hardware addresses.

use std::fmt;
use std::str::FromStr;

/// Hardware address of a network port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// The text is not six pairs of hexadecimal digits.
    #[error("`{0}` is not a MAC address")]
    Form(String),
    /// A multicast, broadcast or zero address.
    #[error("`{0}` is not the MAC address of a single port")]
    NotUnicast(String),
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let form = || MacError::Form(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(form)?, 16).map_err(|_| form())?;
        }
        if parts.next().is_some() {
            return Err(form());
        }
        // The lowest bit of the first byte marks multicast addresses.
        let is_one = bytes[0] & 1 == 0 && bytes != [0; 6];
        if is_one { Ok(Self(bytes)) } else { Err(MacError::NotUnicast(text.to_owned())) }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notations_are_parsed() {
        let one: Mac = "52:54:00:AB:cd:01".parse().expect("an address");
        assert_eq!("52-54-00-ab-cd-01".parse(), Ok(one));
        assert_eq!(one.to_string(), "52:54:00:ab:cd:01");
    }

    #[test]
    fn invalid_and_multicast_addresses_are_rejected() {
        for wrong in [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:01:02",
            "52:54:00:ab:cd:g1",
            "525400abcd01",
            "5:54:00:ab:cd:01",
            "+2:54:00:ab:cd:01",
        ] {
            assert_eq!(wrong.parse::<Mac>(), Err(MacError::Form(wrong.to_owned())), "{wrong}");
        }
        for group in ["ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01"] {
            assert_eq!(group.parse::<Mac>(), Err(MacError::NotUnicast(group.to_owned())), "{group}");
        }
    }
}
