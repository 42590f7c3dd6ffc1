//! What to forward, on the command line: `8888`, `9000:8888`, `./job.sock` or `9000:./job.sock`.

use std::str::FromStr;

use hostler_model::ParseError;
use hostler_proto::forward::{Destination, MAX_PATH_BYTES};

const EXPECTED: &str =
    "a port such as 8888, the path of a socket such as ./job.sock, or either after a local port, as in 9000:8888";

/// A port or socket of a job, and the port of this machine that leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    /// 0 for any free port; `None` if it is not given.
    pub(super) local: Option<u16>,
    pub(super) to: Destination,
}

impl Pair {
    /// The local port to listen on: without a given one, that with the number of the job's port, or any.
    pub(super) fn local_port(&self) -> u16 {
        self.local.unwrap_or(match self.to {
            Destination::Port(port) => port,
            Destination::Socket(_) | Destination::Accepted(_) => 0,
        })
    }
}

impl FromStr for Pair {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // The path of a socket may contain colons.
        let (local, to) = match text.split_once(':') {
            Some((local, to)) if number(local).is_some() => (number(local), to),
            _ => (None, text),
        };
        // As for `ssh -L`, a path contains a slash.
        let to = match number(to) {
            Some(port) if port != 0 => Destination::Port(port),
            None if to.contains('/') && to.len() <= MAX_PATH_BYTES => Destination::Socket(to.to_owned()),
            _ => return Err(ParseError::new(text, EXPECTED)),
        };
        Ok(Self { local, to })
    }
}

pub(super) fn number(text: &str) -> Option<u16> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_sockets_are_parsed() {
        let port = Destination::Port;
        let socket = |path: &str| Destination::Socket(path.to_owned());
        for (text, local, to) in [
            ("8888", None, port(8888)),
            ("9000:8888", Some(9000), port(8888)),
            ("0:8888", Some(0), port(8888)),
            ("65535:65535", Some(65535), port(65535)),
            ("./a.sock", None, socket("./a.sock")),
            ("9000:/run/a.sock", Some(9000), socket("/run/a.sock")),
            ("0:run/a:b.sock", Some(0), socket("run/a:b.sock")),
            ("./9000:8888", None, socket("./9000:8888")),
        ] {
            assert_eq!(text.parse(), Ok(Pair { local, to }), "{text}");
        }
        let wrong = ["", "0", "65536", "9000:0", ":8888", "8888:", "1:2:3", "127.0.0.1:8888", "http", "+1", "-1", " 1"];
        // Abstract sockets belong to no user.
        for text in wrong.into_iter().chain(["a.sock", "9000:a.sock", "@a.sock", "\0a"]) {
            assert!(text.parse::<Pair>().is_err(), "{text}");
        }
    }

    #[test]
    fn local_port_is_that_of_the_job_by_default() {
        let local = |text: &str| text.parse::<Pair>().expect("a pair").local_port();
        assert_eq!([local("8888"), local("9:8888"), local("./a"), local("9:./a")], [8888, 9, 0, 9]);
    }
}
