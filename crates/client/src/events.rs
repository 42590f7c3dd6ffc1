//! The head's server-sent events.

use hostler_proto::api::Notice;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::connection::{Connection, failure};
use crate::{Client, ClientError, Endpoint};

/// Maximum length of a line. Events are about a hundred times shorter.
const MAX_LINE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Events {
    body: Incoming,
    endpoint: Endpoint,
    lines: Lines,
    _connection: Connection,
}

impl Client {
    /// Subscribes to the head's events. Not retried: after an interruption, events may have been missed.
    pub async fn events(&self) -> Result<Events, ClientError> {
        let (connection, response) = self.open("/events").await?;
        Ok(Events {
            body: response.into_body(),
            endpoint: self.endpoint().clone(),
            lines: Lines::default(),
            _connection: connection,
        })
    }
}

impl Events {
    /// The next event, or `None` if the head has closed the stream. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the connection broke, [`ClientError::NotAHead`] if a line is too long.
    pub async fn next(&mut self) -> Result<Option<Notice>, ClientError> {
        loop {
            while let Some(line) = self.lines.next() {
                // Events of unknown kinds are skipped.
                let data = line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok());
                if let Some(notice) = data {
                    return Ok(Some(notice));
                }
            }
            if self.lines.pending.len() > MAX_LINE_BYTES {
                return Err(ClientError::NotAHead {
                    endpoint: self.endpoint.to_string(),
                    what: format!("an event is longer than {MAX_LINE_BYTES} bytes"),
                });
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| failure(&self.endpoint, &error))?;
            if let Ok(bytes) = frame.into_data() {
                self.lines.push(&bytes);
            }
        }
    }
}

/// Splits a stream of bytes into lines. Each event of the head is one `data:` line.
#[derive(Debug, Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let end = self.pending.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_across_reads() {
        let mut lines = Lines::default();
        lines.push(b"data: {\"a\"");
        assert_eq!(lines.next(), None);
        lines.push(b":1}\r\n\ndata");
        assert_eq!(lines.next().as_deref(), Some("data: {\"a\":1}"));
        assert_eq!(lines.next().as_deref(), Some(""));
        assert_eq!(lines.next(), None);
    }
}
