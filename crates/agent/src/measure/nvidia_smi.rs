//! How busy NVIDIA's GPUs are, according to the driver's program `nvidia-smi`.
//!
//! NVIDIA's driver reports this only through its library, which may hang. The program loads that library in a process of
//! its own, and repeats its report until the agent ends it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_model::GpuId;

use crate::mutex::lock;

/// What the program reports, and how often: every five seconds.
const ARGUMENTS: [&str; 3] =
    ["--query-gpu=uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--loop=5"];

/// Age from which a report says nothing about the present.
const STALE: Duration = Duration::from_secs(15);

/// Delay before the next start of a program that has ended or does not exist.
const RESTART: Duration = Duration::from_secs(60);

/// What a GPU does at the moment. Absent values are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct GpuReading {
    /// Share of time in which the GPU was busy, from 0 to 1.
    pub(crate) busy: Option<f32>,
    /// Memory in use, in bytes.
    pub(crate) memory_bytes: Option<u64>,
}

/// Reports of GPUs, each with the time of its arrival.
type Reports = BTreeMap<GpuId, (Instant, GpuReading)>;

/// The program, which runs from the first reading on.
pub(crate) struct NvidiaSmi {
    /// The program and its first arguments.
    program: Vec<String>,
    process: Option<Child>,
    started: Option<Instant>,
    reports: Arc<Mutex<Reports>>,
}

impl NvidiaSmi {
    pub(crate) fn new(program: Vec<String>) -> Self {
        Self { program, process: None, started: None, reports: Arc::default() }
    }

    /// The last report of each GPU, unless it is old.
    pub(crate) fn read(&mut self, now: Instant) -> BTreeMap<GpuId, GpuReading> {
        self.keep_running(now);
        let is_new = |at: Instant| now.saturating_duration_since(at) < STALE;
        let reports = lock(&self.reports);
        reports.iter().filter(|(_, (at, _))| is_new(*at)).map(|(id, (_, reading))| (id.clone(), *reading)).collect()
    }

    /// Starts the program if it does not run, but not again soon after it has ended.
    fn keep_running(&mut self, now: Instant) {
        if self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None))) {
            return;
        }
        if self.started.is_none_or(|started| now.saturating_duration_since(started) >= RESTART) {
            self.started = Some(now);
            self.process = self.start();
        }
    }

    fn start(&self) -> Option<Child> {
        let (program, arguments) = self.program.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments).args(ARGUMENTS).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                tracing::debug!(%error, "cannot start {program}; the use of NVIDIA's GPUs is unknown");
                return None;
            }
        };
        let output = process.stdout.take()?;
        let reports = Arc::clone(&self.reports);
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((id, reading)) = parse(&line) {
                    lock(&reports).insert(id, (Instant::now(), reading));
                }
            }
        };
        // If the thread cannot start, the pipe closes, and the program ends at its next write.
        std::thread::Builder::new().name("nvidia-smi".to_owned()).spawn(read).ok();
        Some(process)
    }
}

impl Drop for NvidiaSmi {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Parses a line such as `GPU-4f1c…, 37, 1024`: percent and mebibytes. Unknown values are words in brackets.
fn parse(line: &str) -> Option<(GpuId, GpuReading)> {
    let mut fields = line.split(',').map(str::trim);
    let id: GpuId = fields.next()?.parse().ok()?;
    let mut number = || fields.next()?.parse::<u32>().ok();
    let busy = number().map(|percent| percent.min(100) as f32 / 100.0);
    let memory_bytes = number().map(|mebibytes| u64::from(mebibytes) << 20);
    Some((id, GpuReading { busy, memory_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> GpuId {
        text.parse().expect(text)
    }

    #[test]
    fn unknown_values_are_gaps() {
        let reading = |busy, memory_bytes| GpuReading { busy, memory_bytes };
        assert_eq!(parse("GPU-a, 37, 1024"), Some((id("GPU-a"), reading(Some(0.37), Some(1 << 30)))));
        assert_eq!(parse("GPU-a, [N/A], [Not Supported]"), Some((id("GPU-a"), reading(None, None))));
        assert_eq!(parse("GPU-a, 250, 0"), Some((id("GPU-a"), reading(Some(1.0), Some(0)))));
        assert_eq!(parse("NVIDIA-SMI has failed because it could not talk to the driver."), None);
        assert_eq!(parse(""), None);
    }

    /// The program, replaced by a shell script.
    fn script(text: &str) -> NvidiaSmi {
        NvidiaSmi::new(["sh", "-c", text, "nvidia-smi"].map(str::to_owned).into())
    }

    #[test]
    fn reports_are_read_while_the_program_runs_and_dropped_when_they_are_old() {
        let mut smi = script("echo \"GPU-a, 37, 1024\"; echo \"GPU-${3#--loop=}, 0, 5\"; exec sleep 600");
        let end = Instant::now() + Duration::from_secs(20);
        let found = loop {
            let found = smi.read(Instant::now());
            if found.len() == 2 || Instant::now() > end {
                break found;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(found.keys().map(GpuId::as_str).collect::<Vec<_>>(), ["GPU-5", "GPU-a"]);
        assert_eq!(found[&id("GPU-a")].busy, Some(0.37));
        assert!(smi.read(Instant::now() + STALE).is_empty(), "the program has stopped reporting");
        let pid = smi.process.as_ref().expect("it runs").id();
        drop(smi);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the program ends with the agent");
    }

    #[test]
    fn program_that_ends_or_is_missing_is_started_again_after_a_minute() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let starts = directory.path().join("starts");
        let mut smi = script(&format!("echo start >> {}", starts.display()));
        let count = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
        let now = Instant::now();
        smi.read(now);
        smi.process.as_mut().expect("it was started").wait().expect("it ends");
        smi.read(now + RESTART - Duration::from_millis(1));
        assert_eq!(count(), 1);
        smi.read(now + RESTART);
        smi.process.as_mut().expect("it was started").wait().expect("it ends");
        assert_eq!(count(), 2);
        let mut missing = NvidiaSmi::new(vec!["/no/such/program".to_owned()]);
        assert!(missing.read(now).is_empty() && missing.process.is_none());
    }
}
