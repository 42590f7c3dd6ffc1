//! Commands with what they print, without what differs between runs.

use std::fmt::Write;

use hostler_testkit::{Cluster, Outcome};
use insta::Settings;

/// What differs between runs and machines, and its replacement. Earlier rules come first.
const REDACTED: &[(&str, &str)] = &[
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[DATE]"),
    (r"\b1\d{12}\b", "[MS]"),
    (r"\bpid \d+", "pid [PID]"),
    (r"\d+( +)\[VERSION\]", "[PID]$1[VERSION]"),
    (r"\b[0-9a-f]{64}\b", "[DIGEST]"),
    (r"(hostler|hostlerlogin)1-[a-z0-9]+", "[CODE]"),
    (r"127\.0\.0\.1:\d{4,5}\b", "127.0.0.1:[PORT]"),
    (r"\b\d+\.\d{3}\b", "[SCORE]"),
    (r", \d+ under way", ", [COUNT] under way"),
    (r"(?m)(\[SCORE\] +)\d+$", "$1[COUNT]"),
    (r"CPU time .*", "CPU time [USAGE]"),
    // Depends on who runs the tests, and on the kernel.
    (r"no sandboxed jobs run here: .*", "no sandboxed jobs run here: [REASON]"),
    // A stage of a few milliseconds may be missing.
    (r"(?m)^(stages +queued [^,\n]+), .*", "$1, [STAGES]"),
    (r#""stages":\{[^}]*\}"#, r#""stages":{[STAGES]}"#),
    (r#""usage":\{.*\}\]"#, r#""usage":[USAGE]}]"#),
    (r"the largest node, n\d", "the largest node, [NODE]"),
    (r"features +\S*python\S*", "features [FEATURES]"),
    (r"free \([0-9,-]+\)", "free ([CPUS])"),
    (r"chunks \([0-9.]+[BKM]\)", "chunks ([SIZE])"),
    (r"results +[^\n]+ of at most .*", "results [SIZE] of at most [SIZE]"),
    (r"[0-9.]+[GT]( +size +default +half of the disk)", "[SIZE]$1"),
];

const TIMES: (&str, &str) = (r"\b\d+(\.\d+)?\s?ms\b|\b\d+(\.\d+)?s\b|\b\d+m\d\ds\b|\b\d+h\d\dm\b", "[TIME]");

/// Commands and what they print.
pub(crate) struct Transcript<'a> {
    cluster: &'a Cluster,
    text: String,
    has_times: bool,
}

impl<'a> Transcript<'a> {
    pub(crate) const fn of(cluster: &'a Cluster) -> Self {
        Self { cluster, text: String::new(), has_times: false }
    }

    /// Keeps durations, which are the same in each run.
    pub(crate) fn with_times(self) -> Self {
        Self { has_times: true, ..self }
    }

    /// Runs a command and adds what it prints.
    pub(crate) fn run(&mut self, arguments: &[&str]) {
        let outcome = self.cluster.run(arguments);
        let mut command = "hostler".to_owned();
        for argument in arguments {
            let is_plain = argument.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=@".contains(c));
            let quote = if is_plain { "" } else { "'" };
            write!(command, " {quote}{argument}{quote}").expect("strings can always be written to");
        }
        self.add(&command, &outcome);
    }

    /// Adds what a command has printed: stdout, then stderr with `!` before each line, then the exit code if not 0.
    pub(crate) fn add(&mut self, command: &str, outcome: &Outcome) {
        let mut text = format!("$ {command}\n");
        outcome.stdout.lines().for_each(|line| text += &format!("{line}\n"));
        outcome.stderr.lines().for_each(|line| text += &format!("! {line}\n"));
        if outcome.code != 0 {
            text += &format!("exit code {}\n", outcome.code);
        }
        self.text += &format!("{text}\n");
    }

    /// Compares all with the golden text of this name.
    pub(crate) fn check(self, name: &str) {
        let mut settings = Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.add_filter(&literally(&self.cluster.home().to_string_lossy()), "[HOME]");
        settings.add_filter(&literally(env!("CARGO_PKG_VERSION")), "[VERSION]");
        REDACTED.iter().for_each(|(pattern, by)| settings.add_filter(pattern, *by));
        if !self.has_times {
            settings.add_filter(TIMES.0, TIMES.1);
        }
        settings.add_filter(r"(\S) {2,}", "$1  ");
        settings.bind(|| insta::assert_snapshot!(name, self.text));
    }
}

/// A pattern that matches only this text.
fn literally(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") }).collect()
}
