//! Starts heads in processes of their own, each in a temporary directory.
//!
//! The process is this test program with an environment variable that makes it a head, so a test can kill it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hostler_client::{Client, Endpoint, RetryLimits};
use hostler_head::Config;
use hostler_model::{JobSpec, Request, Work};
use hostler_proto::api::SubmitRequest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Variable with the directory of the head process.
const DIRECTORY: &str = "HOSTLER_TEST_HEAD";

/// Variable with the lifetime of node certificates in milliseconds. Default: a year.
const LIFE: &str = "HOSTLER_TEST_LIFE";

/// File in which a head reports why it could not start.
const PROBLEM: &str = "problem";

/// Timeout for operations that take milliseconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Not a test: runs the head if the environment variable is set.
#[test]
fn head_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    // The head ends with the test, because the pipe then closes. Nothing is written to it.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    let config = Config {
        socket: directory.join("head.sock"),
        power: directory.join("power.toml"),
        notify: directory.join("notify.toml"),
        openid: directory.join("openid.toml"),
        directory,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        advertise: Vec::new(),
        certificate_life_ms: life_ms(),
        embedded: true,
        results_cap_bytes: None,
        site: hostler_head::SiteConfig::default(),
    };
    let problem = config.directory.join(PROBLEM);
    if let Err(error) = hostler_head::run(config) {
        std::fs::write(problem, format!("{error:#}")).expect("writable");
        std::process::exit(1);
    }
}

fn life_ms() -> u64 {
    std::env::var(LIFE).map_or(365 * 24 * 3600 * 1000, |text| text.parse().expect("set by the harness"))
}

/// A running head. Dropping it kills the head.
pub(crate) struct TestHead {
    directory: tempfile::TempDir,
    certificate_life: Option<Duration>,
    process: Option<Child>,
}

impl TestHead {
    /// Starts a head in an empty directory.
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory")).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir) -> Self {
        Self::start_with(directory, None).await
    }

    /// Starts a head with this lifetime of node certificates.
    pub(crate) async fn start_with_life(life: Duration) -> Self {
        Self::start_with(tempfile::tempdir().expect("a temporary directory"), Some(life)).await
    }

    async fn start_with(directory: tempfile::TempDir, certificate_life: Option<Duration>) -> Self {
        let mut head = Self { directory, certificate_life, process: None };
        head.start_again().await;
        head
    }

    /// Restarts the head in its directory, and waits until it is ready.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the previous head still runs");
        let _ = std::fs::remove_file(self.path("head.json"));
        self.process = Some(spawn(self.directory.path(), self.certificate_life));
        self.wait_until_ready().await;
    }

    async fn wait_until_ready(&mut self) {
        let announcement = self.path("head.json");
        let process = self.process.as_mut().expect("the head was just started");
        wait_for("the head to be ready", || {
            let ended = process.try_wait().expect("permitted");
            assert!(ended.is_none(), "the head ended at once; see the file {PROBLEM}");
            announcement.exists()
        })
        .await;
    }

    /// Kills the head without a clean stop.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("the head runs");
        process.kill().expect("permitted");
        process.wait().expect("permitted");
    }

    /// Stops the head with SIGTERM. Returns whether it ended cleanly.
    pub(crate) async fn terminate(&mut self) -> bool {
        let process = self.process.as_ref().expect("the head runs");
        kill(Pid::from_raw(i32::try_from(process.id()).expect("pids are small")), Signal::SIGTERM).expect("permitted");
        self.wait_until_ended().await
    }

    /// Waits for the head's end. Returns whether it ended cleanly.
    pub(crate) async fn wait_until_ended(&mut self) -> bool {
        let mut process = self.process.take().expect("the head runs");
        let mut status = None;
        wait_for("the head to end", || {
            status = process.try_wait().expect("permitted");
            status.is_some()
        })
        .await;
        status.expect("the loop waits for a status").success()
    }

    /// Starts a second head in the same directory. Returns why it could not start.
    pub(crate) async fn start_rival(&self) -> String {
        let mut rival = spawn(self.directory.path(), None);
        let mut status = None;
        wait_for("the rival to give up", || {
            status = rival.try_wait().expect("permitted");
            status.is_some()
        })
        .await;
        assert!(status.is_some_and(|status| !status.success()));
        std::fs::read_to_string(self.path(PROBLEM)).expect("the head wrote its error")
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.process.as_ref().expect("the head runs").id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("the head runs");
        let pages: u64 = text.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("the kernel's format");
        pages * 4096
    }

    /// Peak of the resident memory in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let pid = self.process.as_ref().expect("the head runs").id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the head runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel's format");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("head.sock")
    }

    /// The head's address for agents.
    pub(crate) fn address(&self) -> SocketAddr {
        let text = std::fs::read(self.path("head.json")).expect("head.json exists");
        let announced: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        announced["address"].as_str().and_then(|text| text.parse().ok()).expect("an address")
    }

    /// A client on the head's socket, without retries.
    pub(crate) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.socket())).with_retry_limits(RetryLimits::NONE)
    }
}

impl Drop for TestHead {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn spawn(directory: &Path, certificate_life: Option<Duration>) -> Child {
    Command::new(std::env::current_exe().expect("the test program has a path"))
        .envs(certificate_life.map(|life| (LIFE, life.as_millis().to_string())))
        .args(["--exact", "harness::head_process", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program can be started again")
}

/// Waits for a condition, with a timeout.
pub(crate) async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a future, with a timeout.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// A job with one CPU.
pub(crate) fn spec(name: &str) -> JobSpec {
    JobSpec::new(name, Work::command(["true"], "/"), Request::new(1, 8 << 20))
}

pub(crate) fn request(key: &str) -> SubmitRequest {
    SubmitRequest::new(key.to_owned(), spec("test"))
}
