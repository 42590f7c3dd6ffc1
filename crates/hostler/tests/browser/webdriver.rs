//! A client of the WebDriver protocol: JSON over HTTP to a driver on this machine.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Key of an element's id in answers, defined by the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Maximum time for an answer of the driver.
const PATIENCE: Duration = Duration::from_secs(120);

/// A session: one browser window.
pub(crate) struct Session {
    port: u16,
    id: String,
}

/// An element of the page.
pub(crate) struct Element<'a> {
    session: &'a Session,
    id: String,
}

impl Session {
    /// Starts a browser.
    pub(crate) fn begin(port: u16, capabilities: &Value) -> Self {
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let answer = call(port, "POST", "/session", &body).unwrap_or_else(|error| panic!("no browser starts: {error}"));
        Self { port, id: answer["sessionId"].as_str().expect("a session has an id").to_owned() }
    }

    pub(crate) fn get(&self, command: &str) -> Value {
        self.call("GET", command, &Value::Null)
    }

    pub(crate) fn post(&self, command: &str, body: &Value) -> Value {
        self.call("POST", command, body)
    }

    /// The first element that a selector finds.
    pub(crate) fn find(&self, using: &str, value: &str) -> Element<'_> {
        let found = self.post("element", &json!({ "using": using, "value": value }));
        Element { session: self, id: found[ELEMENT].as_str().expect("an element has an id").to_owned() }
    }

    /// Ends the browser.
    pub(crate) fn end(self) {
        self.call("DELETE", "", &Value::Null);
    }

    fn call(&self, method: &str, command: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{command}", self.id);
        let answer = call(self.port, method, path.trim_end_matches('/'), body);
        answer.unwrap_or_else(|error| panic!("{method} {command} {body:.300}: {error}"))
    }
}

impl Element<'_> {
    pub(crate) fn click(&self) {
        self.session.post(&format!("element/{}/click", self.id), &json!({}));
    }

    /// The text that a person sees.
    pub(crate) fn text(&self) -> String {
        let text = self.session.get(&format!("element/{}/text", self.id));
        text.as_str().expect("text of an element").to_owned()
    }

    pub(crate) fn type_text(&self, text: &str) {
        self.session.post(&format!("element/{}/value", self.id), &json!({ "text": text }));
    }
}

/// Sends a command. Returns its value, or the driver's message.
fn call(port: u16, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (is_good, body) =
        stream.write_all(request.as_bytes()).and_then(|()| receive(&stream)).map_err(|error| error.to_string())?;
    let mut answer: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let value = answer["value"].take();
    if is_good { Ok(value) } else { Err(value["message"].to_string()) }
}

/// Reads an answer: whether it is a success, and its body. The driver keeps connections open, so the end of the
/// answer follows from its length.
fn receive(stream: &TcpStream) -> io::Result<(bool, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let (mut status, mut length) = (String::new(), 0);
    stream.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status.split(' ').nth(1) == Some("200"), body))
}
