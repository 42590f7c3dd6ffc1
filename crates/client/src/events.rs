//! The head's server-sent events.

use hostler_proto::api::Notice;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::connection::{Connection, failure};
use crate::{Client, ClientError, Endpoint};

/// The longest line that is taken: an event names a job or a node and takes a hundredth of it.
const MAX_LINE_BYTES: usize = 64 << 10;

/// What changes in the cluster, as it changes.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    endpoint: Endpoint,
    lines: Lines,
    _connection: Connection,
}

impl Client {
    /// Subscribes to the head's events. Not tried again: whoever misses events must ask for what it wants to know.
    ///
    /// # Errors
    /// As for every call.
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
    /// The next event, or `None` when the head has closed the stream. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] when the connection broke, [`ClientError::NotAHead`] when a line has no end.
    pub async fn next(&mut self) -> Result<Option<Notice>, ClientError> {
        loop {
            while let Some(line) = self.lines.next() {
                // Events that this release does not know are not for it.
                let data = line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok());
                if let Some(notice) = data {
                    return Ok(Some(notice));
                }
            }
            if self.lines.pending.len() > MAX_LINE_BYTES {
                return Err(ClientError::NotAHead {
                    endpoint: self.endpoint.to_string(),
                    what: format!("a line of its events has more than {MAX_LINE_BYTES} bytes"),
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

/// Cuts a stream of bytes into lines. Events of the head are one `data:` line each.
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
    fn lines_come_out_whole_however_they_arrive() {
        let mut lines = Lines::default();
        lines.push(b"data: {\"a\"");
        assert_eq!(lines.next(), None);
        lines.push(b":1}\r\n\ndata");
        assert_eq!(lines.next().as_deref(), Some("data: {\"a\":1}"));
        assert_eq!(lines.next().as_deref(), Some(""));
        assert_eq!(lines.next(), None);
    }
}
