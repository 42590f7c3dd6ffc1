//! Ports on the command line: `8888` or `9000:8888`.

use std::str::FromStr;

use hostler_model::ParseError;

/// A port of a job, and the port of this machine that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortPair {
    /// 0 for any free port; `None` if only the port of the job is given.
    pub(super) local: Option<u16>,
    pub(super) port: u16,
}

impl FromStr for PortPair {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let number =
            |text: &str| text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse::<u16>().ok()).flatten();
        let parsed = match text.split_once(':') {
            Some((local, port)) => number(local).zip(number(port)).map(|(local, port)| (Some(local), port)),
            None => number(text).map(|port| (None, port)),
        };
        let named = parsed.filter(|(_, port)| *port != 0);
        named
            .map(|(local, port)| Self { local, port })
            .ok_or_else(|| ParseError::new(text, "a port such as 8888, or LOCAL:PORT such as 9000:8888"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed() {
        for (text, local, port) in [
            ("8888", None, 8888),
            ("9000:8888", Some(9000), 8888),
            ("0:8888", Some(0), 8888),
            ("65535:65535", Some(65535), 65535),
        ] {
            assert_eq!(text.parse(), Ok(PortPair { local, port }), "{text}");
        }
        for text in ["", "0", "65536", "9000:0", ":8888", "8888:", "1:2:3", "127.0.0.1:8888", "http", "+1", "-1", " 1"]
        {
            assert!(text.parse::<PortPair>().is_err(), "{text}");
        }
    }
}
