//! `cargo xtask flaky`: repeats tests beside a load, and counts how often each fails.
//!
//! nextest's stress mode repeats the tests, without retries. A test that is interrupted leaves daemons and mounts behind,
//! so the time limit interrupts none: a wrapper around each test starts no test after the deadline. The load runs in
//! threads of this process and ends with it, however it ends.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::junit::{self, Case};
use crate::test::nextest_command;
use crate::workspace::{cargo, find_program, root, run as run_command};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tests to repeat, as a filter expression of nextest, e.g. 'test(restart)' [default: all tests with real daemons or
    /// processes; with a load, without those that need an idle machine]
    filter: Option<String>,
    /// Minutes after which no test starts, e.g. 0.5
    #[arg(long, value_name = "M", default_value_t = 10.0)]
    minutes: f64,
    /// Load beside the tests
    #[arg(long, value_enum, default_value_t = Load::Cpu)]
    load: Load,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    /// As many busy threads as CPUs
    Cpu,
    /// A thread that writes and syncs a file of 256 MiB below target/, again and again
    Disk,
    /// Both of them
    Both,
    /// No load
    None,
}

/// Size of the file that the disk load writes, in blocks of [`BLOCK_BYTES`].
const BLOCKS: u32 = 256;
const BLOCK_BYTES: usize = 1 << 20;

/// Runs a test, or notes that it did not start because the time is over. nextest also lists tests through this wrapper,
/// without a test name. Skipped tests pass, since nextest prints failed ones.
const WRAPPER: &str = r#"if [ -z "$NEXTEST_TEST_NAME" ] || [ "$(date +%s)" -lt "$HOSTLER_FLAKY_DEADLINE" ]; then exec "$@"; fi
echo "$NEXTEST_BINARY_ID $NEXTEST_TEST_NAME" >> "$HOSTLER_FLAKY_SKIPPED""#;

/// Repeats the tests, prints a table, and fails if a test failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(find_program("cargo-nextest").is_some(), "cargo-nextest is missing: cargo install --locked cargo-nextest");
    let time = Duration::try_from_secs_f64(options.minutes * 60.0).context("--minutes is not a duration")?;
    let filter = match &options.filter {
        Some(filter) => filter.clone(),
        None => default_filter(&fs::read_to_string(root().join(".config/nextest.toml"))?, options.load)?,
    };
    // The time limit does not include the build.
    run_command(cargo().args(["build", "--workspace", "--lib", "--bins", "--tests"]))?;
    let directory = root().join("target/flaky");
    fs::create_dir_all(&directory).context("cannot create target/flaky")?;
    junit::remove_report()?;
    let skipped = tempfile::NamedTempFile::new_in(&directory)?;
    let log = directory.join("nextest.log");
    let mut command = nextest_command(&filter)?;
    stress(&mut command, time, skipped.path(), File::create(&log)?)?;
    println!("repeating `{filter}` for {:.0} s; progress: target/flaky/nextest.log", time.as_secs_f64());
    catch_interrupts();
    let status = beside(options.load, &directory, || command.status()).context("cannot start nextest")?;
    let (cases, skips) = (junit::read_report()?, fs::read_to_string(skipped.path())?);
    if cases.is_empty() {
        ensure!(status.success(), "nextest failed:\n{}", fs::read_to_string(&log)?);
        bail!("`{filter}` selects no test");
    }
    let rows = tally(&cases, &skips);
    ensure!(!rows.is_empty(), "no test ended before the deadline or Ctrl-C; give more --minutes");
    print_table(&rows)?;
    let failures: u32 = rows.iter().map(|row| row.failures).sum();
    ensure!(failures == 0, "{failures} of {} test runs failed", rows.iter().map(|row| row.runs).sum::<u32>());
    Ok(())
}

/// The tests that `.config/nextest.toml` retries. Beside a load, tests fail that have the machine to themselves.
fn default_filter(config: &str, load: Load) -> Result<String> {
    let config: toml::Table = config.parse().context("cannot read .config/nextest.toml")?;
    let overrides = config["profile"]["default"]["overrides"].as_array().context("nextest.toml has no overrides")?;
    let filter = |holds: fn(&toml::Value) -> bool| {
        overrides.iter().find(|entry| holds(entry)).and_then(|entry| entry.get("filter")?.as_str())
    };
    let retried = filter(|entry| entry.get("retries").is_some()).context("nextest.toml retries no tests")?;
    let alone =
        |entry: &toml::Value| entry.get("threads-required").is_some_and(|it| it.as_str() == Some("num-test-threads"));
    Ok(match filter(alone) {
        Some(alone) if load != Load::None => format!("({retried}) and not ({alone})"),
        _ => retried.to_owned(),
    })
}

/// Lets `command` repeat its tests for `time`.
fn stress(command: &mut Command, time: Duration, skipped: &Path, log: File) -> Result<()> {
    let deadline = SystemTime::now() + time;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command
        .args(["--retries", "0", "--status-level", "fail", "--failure-output", "never", "--no-input-handler"])
        .args(["--stress-duration", &format!("{}s", time.as_secs().max(1))])
        .args(["--config", &format!("target.{target}.runner=['sh', '-c', '''{WRAPPER}''', 'sh']")])
        .env("HOSTLER_FLAKY_DEADLINE", deadline.duration_since(UNIX_EPOCH)?.as_secs().to_string())
        .env("HOSTLER_FLAKY_SKIPPED", skipped)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(())
}

/// Keeps this process alive on Ctrl-C, for the table. nextest gets the same signal and ends.
fn catch_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing may run at any time. Unlike SIG_IGN, children do not inherit it.
    unsafe { libc::signal(libc::SIGINT, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
}

/// Runs `work` beside a load.
fn beside<T>(load: Load, directory: &Path, work: impl FnOnce() -> T) -> T {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        if matches!(load, Load::Cpu | Load::Both) {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
        if matches!(load, Load::Disk | Load::Both) {
            scope.spawn(|| {
                if let Err(error) = write_until(done, directory) {
                    eprintln!("the disk load ended early: {error}");
                }
            });
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Writes and syncs a file without a name, which ends with this process.
fn write_until(done: &AtomicBool, directory: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(directory)?;
    let block = vec![0xA5; BLOCK_BYTES];
    for number in (0..BLOCKS).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
        if number == 0 {
            file.rewind()?;
        }
        file.write_all(&block)?;
        file.sync_all()?;
    }
    Ok(())
}

struct Row<'a> {
    test: &'a str,
    runs: u32,
    failures: u32,
    first_failure: Option<&'a Case>,
}

/// Counts runs and failures of each test, the most reliable test first. Runs that did not start or that Ctrl-C ended
/// do not count.
fn tally<'a>(cases: &'a [Case], skipped: &str) -> Vec<Row<'a>> {
    let mut skips: HashMap<&str, u32> = HashMap::new();
    for test in skipped.lines() {
        *skips.entry(test).or_default() += 1;
    }
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for case in cases.iter().filter(|case| !case.interrupted) {
        let test = case.name.as_str();
        let row = rows.entry(test).or_insert(Row { test, runs: 0, failures: 0, first_failure: None });
        row.runs += 1;
        if !case.passed {
            row.failures += 1;
            row.first_failure.get_or_insert(case);
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in &mut rows {
        row.runs = row.runs.saturating_sub(skips.get(row.test).copied().unwrap_or_default());
    }
    rows.retain(|row| row.runs > 0);
    rows.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    rows
}

impl Row<'_> {
    fn rate(&self) -> f64 {
        f64::from(self.failures) / f64::from(self.runs)
    }
}

/// Prints the tests that fail most often last, next to the prompt, and keeps the logs of their first failures.
fn print_table(rows: &[Row]) -> Result<()> {
    let width = rows.iter().map(|row| row.test.len()).max().unwrap_or_default();
    println!("\n{:width$}  {:>6}  {:>8}  {:>6}  log of the first failure", "test", "runs", "failures", "rate");
    for row in rows {
        let log = row.first_failure.map(Case::keep_log).transpose()?.unwrap_or_default();
        let line =
            format!("{:width$}  {:>6}  {:>8}  {:>4.1} %  {log}", row.test, row.runs, row.failures, row.rate() * 100.0);
        println!("{}", line.trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_and_skipped_runs_do_not_count() {
        let cases = junit::parse(include_str!("junit/stress.xml")).expect("a report of nextest");
        let count = |skipped| {
            let rows = tally(&cases, skipped);
            rows.iter().map(|row| (row.test.to_owned(), row.runs, row.failures)).collect::<Vec<_>>()
        };
        let (hangs, fails) = ("flk::net hangs".to_owned(), "flk::net fails_once".to_owned());
        assert_eq!(count(""), [(hangs, 1, 0), (fails.clone(), 2, 1)]);
        assert_eq!(count("flk::net hangs\nflk::net fails_once\n"), [(fails, 1, 1)]);
    }

    #[test]
    fn default_filter_is_that_of_the_retries() {
        let config = include_str!("../../.config/nextest.toml");
        let idle = default_filter(config, Load::None).expect("nextest.toml retries tests");
        assert!(idle.starts_with("kind(test) and "), "{idle}");
        let loaded = default_filter(config, Load::Both).expect("nextest.toml retries tests");
        assert!(loaded.starts_with(&format!("({idle}) and not (binary(idle) or ")), "{loaded}");
    }
}
