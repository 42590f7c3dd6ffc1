//! One request to a receiver, to a checked address.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Method, StatusCode, Uri};
use tokio::net::TcpStream;

use super::address::resolve;
use super::fault::{Fault, Scope};
use crate::outgoing::{self, CallError};

/// The largest answer that is read, so that a receiver can finish its response.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The longest delay that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// A request.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) allow_private: bool,
    /// A file with the authorities of the receiver's certificate; the machine's authorities if absent.
    pub(super) ca: Option<&'a Path>,
}

/// Sends a request, and succeeds if the receiver answers with a status of 2xx.
pub(super) async fn send(call: Call<'_>) -> Result<(), Fault> {
    let host = call.uri.host().ok_or_else(Fault::unreachable)?;
    let port = outgoing::port(call.uri);
    let address = resolve(host, port, call.allow_private).await?;
    let tcp = TcpStream::connect(address).await.map_err(|_| Fault::unreachable())?;
    let Call { method, uri, headers, body, ca, .. } = call;
    // The status decides; what follows the limit, or does not arrive, is of no interest.
    let answer = outgoing::Call { method, uri, headers, body, ca, max_answer_bytes: MAX_ANSWER_BYTES };
    let answer = answer.send(tcp).await.map_err(|error| match error {
        CallError::BadUri => Fault::unreachable(),
        CallError::Tls(_) => Fault::new(Scope::Destination, "cannot open an encrypted connection to the receiver"),
        CallError::Broken => Fault::new(Scope::Destination, "the receiver closed the connection without an answer"),
        CallError::UnreadableCa => Fault::new(Scope::Destination, "cannot read the file `ca` of the destination"),
        CallError::BadCa => {
            Fault::new(Scope::Destination, "the file `ca` of the destination holds an invalid certificate")
        }
    })?;
    judge(answer.status, &answer.headers)
}

/// Decides what an answer means for the message and the destination.
fn judge(status: StatusCode, headers: &HeaderMap) -> Result<(), Fault> {
    if status.is_success() {
        return Ok(());
    }
    let text = match status {
        status if status.is_redirection() => {
            format!("the receiver answered {}: the head follows no redirects", status.as_u16())
        }
        StatusCode::GONE => "the receiver answered 410: it is gone".to_owned(),
        status => format!("the receiver answered {}", status.as_u16()),
    };
    let scope = match status {
        StatusCode::GONE => Scope::Gone,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => Scope::Message,
        _ => Scope::Destination,
    };
    Err(Fault { retry_after: retry_after(headers), ..Fault::new(scope, text) })
}

/// The delay that the receiver asks for, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?;
            Duration::try_from(date.timestamp().duration_since(jiff::Timestamp::now())).ok()?
        }
    };
    Some(delay.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_decides_what_follows() {
        let none = HeaderMap::new();
        assert_eq!(judge(StatusCode::NO_CONTENT, &none), Ok(()));
        for (status, scope) in [
            (302, Scope::Destination),
            (400, Scope::Message),
            (404, Scope::Destination),
            (410, Scope::Gone),
            (500, Scope::Destination),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(judge(status, &none).expect_err("failed").scope, scope, "{status}");
        }
    }

    #[test]
    fn receivers_ask_for_a_delay_in_seconds_or_as_a_date() {
        let delay = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().expect("a header"))]));
        assert_eq!(delay("120"), Some(Duration::from_secs(120)));
        assert_eq!(delay("99999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(delay("Fri, 31 Dec 2100 23:59:59 GMT"), Some(MAX_RETRY_AFTER));
        assert_eq!(delay("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(delay("soon"), None);
    }
}
