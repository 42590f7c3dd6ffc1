//! The dashboard's cost on a large cluster: the time of its pages, and what open browsers cost the head and submissions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hostler_client::{Client, Endpoint};
use hostler_model::{JobSpec, Request, Work};
use hostler_proto::api::SubmitRequest;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::head::Head;

/// Pages that answer from the whole state.
const PAGES: [&str; 4] = ["/", "/jobs", "/jobs?user=&state=", "/nodes"];

/// Number of times that each page is loaded.
const LOADS: usize = 30;

/// Number of clients that fill the queue.
const CLIENTS: usize = 16;

/// Duration of each measurement with open browsers.
const WATCH: Duration = Duration::from_secs(20);

/// Time between submissions while the head's CPU time is measured. Each changes a job several times.
const CHANGE_INTERVAL: Duration = Duration::from_millis(200);

/// Number of submissions, one after another, that measure how much browsers slow them down.
const SUBMISSIONS: usize = 300;

/// Fills the queue and measures. The head already has its nodes.
pub(crate) async fn measure(head: &Head, waiting: usize, browsers: usize) -> Result<()> {
    let client = Client::new(Endpoint::Unix(head.socket()));
    fill(head, waiting).await?;
    println!("  {waiting} jobs wait");
    for page in PAGES {
        let (median, bytes) = load_often(&head.socket(), page).await?;
        println!("  page {page} {:.1} ms, {:.1} kB", median.as_secs_f64() * 1000.0, bytes as f64 / 1000.0);
    }
    let (alone_cpu, _) = cost(head, &client, 0).await?;
    let (watched_cpu, loads) = cost(head, &client, browsers).await?;
    println!(
        "  browsers {browsers} cost the head {:.1} % of a CPU; they loaded {loads:.1} pages a second",
        watched_cpu - alone_cpu
    );
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        alone.push(submissions(&client, head, 0).await?);
        watched.push(submissions(&client, head, browsers).await?);
    }
    let (alone, watched) = (median(&mut alone), median(&mut watched));
    println!(
        "  submission {:.2} ms, with browsers {:.2} ms, ratio {:.3}",
        alone.as_secs_f64() * 1000.0,
        watched.as_secs_f64() * 1000.0,
        watched.as_secs_f64() / alone.as_secs_f64()
    );
    Ok(())
}

/// Submits jobs that stay pending.
async fn fill(head: &Head, count: usize) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, next) = (Client::new(Endpoint::Unix(head.socket())), Arc::clone(&next));
        clients.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                let work = Work::command(["./simulate", &number.to_string()], "/");
                let spec = JobSpec { hold: true, ..JobSpec::new("simulate", work, request()) };
                client.submit(&SubmitRequest::new(format!("held-{number}"), spec)).await?;
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

fn request() -> Request {
    Request::new(1, 16 << 20)
}

/// Submits a job that ends at once.
async fn submit(client: &Client) -> Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let key = format!("short-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let spec = JobSpec::new("short", Work::command(["true"], "/"), request());
    client.submit(&SubmitRequest::new(key, spec)).await?;
    Ok(())
}

/// The median time of a page and its size in bytes.
async fn load_often(socket: &Path, page: &str) -> Result<(Duration, usize)> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..LOADS {
        let begun = Instant::now();
        bytes = load(socket, page).await?;
        times.push(begun.elapsed());
    }
    Ok((median(&mut times), bytes))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Loads a page like a browser. Returns the size of the answer in bytes.
async fn load(socket: &Path, page: &str) -> Result<usize> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(head_of_request(page, "close").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{page}: {}",
        String::from_utf8_lossy(&answer[..answer.len().min(300)])
    );
    Ok(answer.len())
}

fn head_of_request(page: &str, connection: &str) -> String {
    format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\nAccept: text/html\r\n\r\n")
}

/// Open browsers. Dropping them closes them.
struct Browsers {
    tasks: JoinSet<Result<()>>,
    loads: Arc<AtomicUsize>,
}

impl Browsers {
    /// Opens browsers that show the queue and load it again at each change, like the dashboard's script.
    async fn open(socket: PathBuf, count: usize) -> Result<Self> {
        let (loads, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(browse(socket.clone(), Arc::clone(&open), Arc::clone(&loads)));
        }
        let all = async {
            while open.load(Ordering::Relaxed) < count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(30), all).await.context("not all browsers get live updates")?;
        Ok(Self { tasks, loads })
    }

    async fn close(mut self) -> Result<usize> {
        if let Some(ended) = self.tasks.try_join_next() {
            ended?.context("a browser lost its live updates")?;
        }
        self.tasks.shutdown().await;
        Ok(self.loads.load(Ordering::Relaxed))
    }
}

async fn browse(socket: PathBuf, open: Arc<AtomicUsize>, loads: Arc<AtomicUsize>) -> Result<()> {
    load(&socket, "/jobs").await?;
    let mut events = UnixStream::connect(&socket).await?;
    events.write_all(head_of_request("/live", "keep-alive").as_bytes()).await?;
    let mut lines = BufReader::new(events).lines();
    let mut events = 0;
    while let Some(line) = lines.next_line().await? {
        if line.trim_start().starts_with("event:") {
            events += 1;
            // The first event says only that the stream is open.
            if events == 1 {
                open.fetch_add(1, Ordering::Relaxed);
            } else {
                load(&socket, "/jobs").await?;
                loads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    anyhow::bail!("the stream of live updates ended")
}

/// The head's use of CPU in percent while jobs come and go, and how many pages browsers load a second.
async fn cost(head: &Head, client: &Client, browsers: usize) -> Result<(f64, f64)> {
    let open = Browsers::open(head.socket(), browsers).await?;
    let (cpu, begun) = (head.cpu_seconds()?, Instant::now());
    while begun.elapsed() < WATCH {
        submit(client).await?;
        sleep(CHANGE_INTERVAL).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let percent = (head.cpu_seconds()? - cpu) / seconds * 100.0;
    Ok((percent, open.close().await? as f64 / seconds))
}

/// The mean time of a submission while browsers are open.
async fn submissions(client: &Client, head: &Head, browsers: usize) -> Result<Duration> {
    let open = Browsers::open(head.socket(), browsers).await?;
    let begun = Instant::now();
    for _ in 0..SUBMISSIONS {
        submit(client).await?;
    }
    let mean = begun.elapsed() / SUBMISSIONS as u32;
    open.close().await?;
    Ok(mean)
}
