//! `hostler dashboard` for a browser of a test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use hostler_testkit::Cluster;

/// A running relay. Dropping it ends the relay.
pub(crate) struct Relay {
    child: Child,
    /// The link that opens the dashboard; it works once.
    pub(crate) link: String,
}

impl Relay {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let mut command = cluster.command(&["dashboard", "--no-open", "--quiet"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program can be started");
        let mut link = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut link).expect("the relay prints a line");
        Self { child, link: link.trim().to_owned() }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
