//! Reads nextest's JUnit report, and keeps the output of failed attempts in `target/flaky`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

use crate::workspace::root;

/// One run of a test, with its retries.
pub(crate) struct Case {
    /// The test binary and the test, e.g. `hostler::steps steps_share_nodes`.
    pub(crate) name: String,
    pub(crate) passed: bool,
    /// Whether Ctrl-C ended the test.
    pub(crate) interrupted: bool,
    /// The output of each failed attempt, in order.
    failures: Vec<String>,
}

impl Case {
    /// Whether the test passed only when nextest repeated it.
    pub(crate) fn is_flaky(&self) -> bool {
        self.passed && !self.failures.is_empty()
    }

    /// Writes the output of the failed attempts to a file, and returns its path below the root of the checkout.
    pub(crate) fn keep_log(&self) -> Result<String> {
        let path = format!("target/flaky/{}.log", safe(&self.name));
        let mut log = format!("{}\n", self.name);
        for (index, output) in self.failures.iter().enumerate() {
            log.push_str(&format!("\n=== attempt {} failed\n{output}\n", index + 1));
        }
        fs::create_dir_all(root().join("target/flaky")).context("cannot create target/flaky")?;
        fs::write(root().join(&path), log).with_context(|| format!("cannot write {path}"))?;
        Ok(path)
    }

    /// The line about a flaky test at the end of `cargo xtask test`. Writes the log that the line names.
    fn describe(&self) -> Result<String> {
        Ok(format!("{}: passed at attempt {}; log: {}", self.name, self.failures.len() + 1, self.keep_log()?))
    }
}

/// Removes the report of an earlier run. nextest writes none if, for example, the tests do not compile.
pub(crate) fn remove_report() -> Result<()> {
    match fs::remove_file(report_path()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("cannot remove nextest's old report")
        }
        _ => Ok(()),
    }
}

/// The test runs in the report of the last run, or none if there is no report.
pub(crate) fn read_report() -> Result<Vec<Case>> {
    match fs::read_to_string(report_path()) {
        Ok(report) => parse(&report),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read nextest's report"),
    }
}

/// Lines about the flaky tests of the last run, whose logs are kept.
pub(crate) fn flaky_tests() -> Result<Vec<String>> {
    read_report()?.iter().filter(|case| case.is_flaky()).map(Case::describe).collect()
}

/// The `path` of `.config/nextest.toml`. nextest's directory does not follow `CARGO_TARGET_DIR`.
fn report_path() -> PathBuf {
    root().join("target/nextest/default/junit.xml")
}

pub(crate) fn parse(report: &str) -> Result<Vec<Case>> {
    let document = Document::parse(report).context("nextest's report is not XML")?;
    document.descendants().filter(|node| node.has_tag_name("testcase")).map(case).collect()
}

/// nextest puts the output of the first attempt of a failed test into the test case, and the output of each other
/// failed attempt into the element of that attempt.
fn case(node: Node) -> Result<Case> {
    let attribute = |name| node.attribute(name).with_context(|| format!("a test in nextest's report has no {name}"));
    let name = format!("{} {}", attribute("classname")?, attribute("name")?);
    let mut case = Case { name, passed: true, interrupted: false, failures: Vec::new() };
    for child in node.children() {
        let from = match child.tag_name().name() {
            "failure" | "error" => {
                case.passed = false;
                case.interrupted = child.attribute("message").is_some_and(|message| message.contains("(SIGINT)"));
                node
            }
            "flakyFailure" | "flakyError" | "rerunFailure" | "rerunError" => child,
            _ => continue,
        };
        case.failures.push(output(child, from));
    }
    Ok(case)
}

/// How an attempt failed, and its output.
fn output(failure: Node, from: Node) -> String {
    let [stdout, stderr] = ["system-out", "system-err"].map(|stream| {
        let element = from.children().find(|child| child.has_tag_name(stream));
        element.and_then(|element| element.text()).unwrap_or_default().trim()
    });
    let attribute = |name| failure.attribute(name).unwrap_or_default();
    format!("{}: {}\n\n{stdout}\n\n{stderr}", attribute("type"), attribute("message"))
}

/// A file name for a test.
fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by nextest 0.9.143 with two retries.
    const RETRIED: &str = include_str!("junit/retried.xml");

    /// Written by nextest 0.9.143 with `--stress-duration` and Ctrl-C in the second iteration.
    const STRESS: &str = include_str!("junit/stress.xml");

    #[test]
    fn only_tests_that_passed_on_retry_are_flaky() {
        let cases = parse(RETRIED).expect("a report of nextest");
        let found: Vec<_> =
            cases.iter().map(|case| (&*case.name, case.passed, case.failures.len(), case.is_flaky())).collect();
        let expected = [
            ("flk unit", true, 0, false),
            ("flk::net fails_once", true, 1, true),
            ("flk::net passes", true, 0, false),
            ("flk::net fails_always", false, 3, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn logs_contain_the_output_of_each_failed_attempt() {
        let cases = parse(RETRIED).expect("a report of nextest");
        let once = &cases[1].failures[0];
        assert!(once.starts_with("test failure with exit code 101: thread 'fails_once'"), "{once}");
        assert!(once.contains("the answer is <none> & red") && once.contains("no mark"), "{once}");
        let pids = ["(18549)", "(18553)", "(18561)"];
        for (output, pid) in cases[3].failures.iter().zip(pids) {
            assert_eq!(output.matches(pid).count(), 2, "the summary and stderr of one attempt: {output}");
            assert!(pids.iter().all(|other| other == &pid || !output.contains(other)), "{output}");
        }
    }

    #[test]
    fn interrupted_tests_are_marked() {
        let cases = parse(STRESS).expect("a report of nextest");
        let found: Vec<_> = cases.iter().map(|case| (&*case.name, case.passed, case.interrupted)).collect();
        let expected = [
            ("flk::net fails_once", true, false),
            ("flk::net hangs", true, false),
            ("flk::net fails_once", false, false),
            ("flk::net hangs", false, true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn file_names_contain_only_safe_characters() {
        assert_eq!(safe("hostler::exec inner::a_test/é"), "hostler--exec-inner--a_test--");
    }
}
