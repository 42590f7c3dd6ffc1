//! Raw HTTP requests, so that tests control every header.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Deadline for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer of a server. Status 0 means that the server closed the connection without one.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, with names in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The value of a hidden field in a form.
    pub(crate) fn field(&self, name: &str) -> String {
        let start = format!(r#"name="{name}" value=""#);
        let (_, rest) = self.body.split_once(&start).unwrap_or_else(|| panic!("no field {name} in {}", self.body));
        rest.split('"').next().expect("split has a first part").to_owned()
    }

    /// `NAME=VALUE` of the cookie that the answer sets.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.header("set-cookie").unwrap_or_else(|| panic!("no cookie in {}", self.head));
        cookie.split(';').next().expect("split has a first part").to_owned()
    }
}

/// A request. The fields are sent as they are.
#[derive(Debug, Clone)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a str,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(path: &'a str, host: &'a str) -> Self {
        Self { method: "GET", path, headers: vec![("host", host)], body: "" }
    }

    pub(crate) fn post(path: &'a str, host: &'a str, body: &'a str) -> Self {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        Self { method: "POST", path, headers: vec![("host", host), kind], body }
    }

    pub(crate) fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The bytes of the request.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.headers.iter().any(|(name, _)| *name == "connection") {
            text += "connection: close\r\n";
        }
        text + &format!("content-length: {}\r\n\r\n{}", self.body.len(), self.body)
    }

    /// Sends the request to a port of this machine.
    pub(crate) fn send(&self, port: u16) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
        // A server may close the connection before it has read everything.
        let _ = stream.write_all(self.text().as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        read(&bytes)
    }
}

pub(crate) fn read(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut lines = head.lines();
    let mut lower = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        lower += &format!("\n{}:{value}", name.to_ascii_lowercase());
    }
    Answer { status, head: lower, body: body.to_owned() }
}
