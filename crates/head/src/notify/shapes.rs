//! The request of each kind of destination.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hostler_model::shortened;
use hostler_proto::notify::Message;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Uri};
use ring::hmac;
use serde_json::{Value, json};

use super::fault::{Fault, Scope};
use super::file::{Config, Matrix, Ntfy, Slack, Webhook, key_of};
use super::http::Call;
use super::text::{Text, text};
use crate::private_file::Secret;

/// The longest text for a chat, in characters. Receivers refuse longer ones.
const MAX_CHAT_CHARACTERS: usize = 3_000;

/// What identifies a message: its id, the name of the cluster, and the current time in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) id: &'a str,
    pub(super) cluster: &'a str,
    pub(super) now_s: i64,
}

/// A request that owns its address.
pub(super) struct Request<'a> {
    method: Method,
    uri: std::borrow::Cow<'a, Uri>,
    headers: HeaderMap,
    body: Bytes,
    allow_private: bool,
    ca: Option<&'a std::path::Path>,
}

impl Request<'_> {
    pub(super) fn call(&self) -> Call<'_> {
        Call {
            method: self.method.clone(),
            uri: &self.uri,
            headers: self.headers.clone(),
            body: self.body.clone(),
            allow_private: self.allow_private,
            ca: self.ca,
        }
    }
}

/// Returns the request that delivers a message; `None` for mail.
pub(super) fn request<'a>(
    config: &'a Config,
    message: &Message,
    envelope: Envelope<'_>,
) -> Result<Option<Request<'a>>, Fault> {
    match config {
        Config::Mail(_) => Ok(None),
        Config::Webhook(hook) => webhook(hook, message, envelope).map(Some),
        Config::Ntfy(it) => ntfy(it, &text(message, envelope.cluster)).map(Some),
        Config::Slack(it) => slack(it, &text(message, envelope.cluster)).map(Some),
        Config::Matrix(it) => matrix(it, &text(message, envelope.cluster), envelope.id).map(Some),
    }
}

fn webhook<'a>(hook: &'a Webhook, message: &Message, envelope: Envelope<'_>) -> Result<Request<'a>, Fault> {
    let body = webhook_body(message, envelope).to_string();
    let mut headers = json_headers();
    let signed = format!("{}.{}.{body}", envelope.id, envelope.now_s);
    let sign = |secret: &Secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key_of(secret).ok()?);
        Some(format!("v1,{}", BASE64_STANDARD.encode(hmac::sign(&key, signed.as_bytes()))))
    };
    let signatures: Vec<String> = hook.secrets.iter().filter_map(sign).collect();
    for (name, value) in [
        ("webhook-id", envelope.id.to_owned()),
        ("webhook-timestamp", envelope.now_s.to_string()),
        ("webhook-signature", signatures.join(" ")),
    ] {
        headers.insert(name, header(&value)?);
    }
    Ok(Request {
        method: Method::POST,
        uri: std::borrow::Cow::Borrowed(&hook.url.0),
        headers,
        body: body.into(),
        allow_private: hook.allow_private,
        ca: hook.ca.as_deref(),
    })
}

fn webhook_body(message: &Message, envelope: Envelope<'_>) -> Value {
    let Text { title, body, .. } = text(message, envelope.cluster);
    let at = message.news.first().map_or(0, |news| news.at.0);
    let at = jiff::Timestamp::from_millisecond(at).map_or_else(|_| String::new(), |at| at.to_string());
    json!({
        "type": "hostler.notification",
        "timestamp": at,
        "data": {
            "cluster": envelope.cluster,
            "title": title,
            "text": body,
            "events": message.news,
            "omitted": message.omitted,
        },
    })
}

fn ntfy<'a>(config: &'a Ntfy, text: &Text) -> Result<Request<'a>, Fault> {
    let body = json!({
        "topic": config.topic.0,
        "title": text.title,
        "message": shortened(&text.body, MAX_CHAT_CHARACTERS),
        "priority": if text.is_bad { 4 } else { 3 },
        "tags": [if text.is_bad { "warning" } else { "white_check_mark" }],
    });
    let mut headers = json_headers();
    if let Some(token) = &config.token {
        headers.insert(AUTHORIZATION, bearer(token)?);
    }
    Ok(Request {
        method: Method::POST,
        uri: std::borrow::Cow::Borrowed(&config.url.0),
        headers,
        body: body.to_string().into(),
        allow_private: config.allow_private,
        ca: config.ca.as_deref(),
    })
}

fn slack<'a>(config: &'a Slack, text: &Text) -> Result<Request<'a>, Fault> {
    // Plain text: Slack reads `<…>` as links and mentions, and marks up `*` and backquotes unless told not to.
    let plain = shortened(&format!("{}\n{}", text.title, text.body), MAX_CHAT_CHARACTERS);
    let plain = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let body = json!({ "text": plain, "mrkdwn": false, "link_names": false, "unfurl_links": false });
    Ok(Request {
        method: Method::POST,
        uri: std::borrow::Cow::Borrowed(&config.url.0),
        headers: json_headers(),
        body: body.to_string().into(),
        allow_private: config.allow_private,
        ca: config.ca.as_deref(),
    })
}

fn matrix<'a>(config: &'a Matrix, text: &Text, id: &str) -> Result<Request<'a>, Fault> {
    // A notice with a plain body: nothing in it is markup, and `m.mentions` says that it mentions nobody.
    let body = json!({
        "msgtype": "m.notice",
        "body": shortened(&format!("{}\n{}", text.title, text.body), MAX_CHAT_CHARACTERS),
        "m.mentions": {},
    });
    let base = config.homeserver.0.to_string();
    let path = format!(
        "{}/_matrix/client/v3/rooms/{}/send/m.room.message/{}",
        base.trim_end_matches('/'),
        percent_encoded(&config.room),
        percent_encoded(id)
    );
    let uri = path.parse().map_err(|_| Fault::new(Scope::Destination, "the destination's URL is invalid"))?;
    let mut headers = json_headers();
    headers.insert(AUTHORIZATION, bearer(&config.token)?);
    Ok(Request {
        method: Method::PUT,
        uri: std::borrow::Cow::Owned(uri),
        headers,
        body: body.to_string().into(),
        allow_private: config.allow_private,
        ca: config.ca.as_deref(),
    })
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

fn bearer(token: &Secret) -> Result<HeaderValue, Fault> {
    let mut value = header(&format!("Bearer {}", token.0))?;
    value.set_sensitive(true);
    Ok(value)
}

fn header(text: &str) -> Result<HeaderValue, Fault> {
    HeaderValue::from_str(text)
        .map_err(|_| Fault::new(Scope::Destination, "a setting of the destination is not a valid header"))
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobOccasion, JobState};

    use super::super::file::NotifyFile;
    use super::super::text::tests::{job, message};
    use super::*;

    const HOSTILE: &str = "<!channel> <b>&\r\nX: y `*\"\\";

    fn config(rest: &str) -> Config {
        let file = NotifyFile::parse(&format!("[destinations.x]\n{rest}")).expect(rest);
        file.destinations.into_values().next().expect("one destination")
    }

    fn sent(config: &Config, id: &str) -> (String, HeaderMap, String) {
        let message = message(vec![job(HOSTILE, JobOccasion::End, JobState::Completed)]);
        let envelope = Envelope { id, cluster: "c", now_s: 1_700_000_000 };
        let request = request(config, &message, envelope).expect("valid").expect("HTTP");
        let body = String::from_utf8(request.body.to_vec()).expect("text");
        (request.uri.to_string(), request.headers, body)
    }

    #[test]
    fn webhooks_are_signed_with_each_secret() {
        // The expected signatures were computed by Python's `hmac`.
        let config = config(
            "kind = \"webhook\"\nurl = \"https://x/\"\nsecrets = [\"whsec_MDEyMzQ1Njc4OWFiY2RlZg==\", \"another secret key\"]",
        );
        let (_, headers, body) = sent(&config, "m-1");
        let signatures: Vec<&str> = headers["webhook-signature"].to_str().expect("text").split(' ').collect();
        assert_eq!(signatures.len(), 2);
        for (signature, key) in signatures.iter().zip([&b"0123456789abcdef"[..], b"another secret key"]) {
            let tag = BASE64_STANDARD.decode(signature.strip_prefix("v1,").expect("version 1")).expect("base64");
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::verify(&key, format!("m-1.1700000000.{body}").as_bytes(), &tag).expect("the signature is valid");
        }
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["data"]["events"][0]["name"], HOSTILE, "programs get the name as it is");
    }

    #[test]
    fn chats_get_plain_text_without_mentions() {
        let (_, _, body) = sent(&config("kind = \"slack\"\nurl = \"https://x/\""), "m-1");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        let text = body["text"].as_str().expect("text");
        assert!(text.contains("&lt;!channel&gt; &lt;b&gt;&amp;") && !text.contains(['<', '>', '\r']), "{text}");
        assert_eq!(body["mrkdwn"], false);

        let matrix = "kind = \"matrix\"\nhomeserver = \"https://x/\"\nroom = \"!r/..:x\"\ntoken = \"t\"";
        let (uri, headers, body) = sent(&config(matrix), "m/1");
        assert_eq!(uri, "https://x/_matrix/client/v3/rooms/%21r%2F..%3Ax/send/m.room.message/m%2F1");
        assert_eq!(headers[AUTHORIZATION], "Bearer t");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&body["msgtype"], &body["m.mentions"]), (&json!("m.notice"), &json!({})));
        assert!(body.get("formatted_body").is_none() && !body["body"].as_str().expect("text").contains('\r'));

        let ntfy = "kind = \"ntfy\"\nurl = \"https://x/\"\ntopic = \"secret-topic\"";
        let (uri, _, body) = sent(&config(ntfy), "m-1");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert!(!uri.contains("secret-topic"));
        assert_eq!(body["topic"], "secret-topic");
        assert!(!body["title"].as_str().expect("text").contains(char::is_control));
    }
}
