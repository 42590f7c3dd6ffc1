//! Runs a thousand simulated agents in one process, connected to a real head over the real protocol. Measures the
//! time to join, the head's cost while the agents are idle, and recovery after the head is killed; or, with the name
//! `dashboard`, the cost of the dashboard.
//!
//! `cargo xtask swarm` builds and runs it. The head and the agents share this machine, so CPU-bound times are upper
//! bounds.

#![expect(clippy::print_stdout, reason = "people run the program and read its figures")]

mod agent;
mod head;
mod pages;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hostler_client::{Client, Endpoint};
use hostler_model::{NodeName, NodeState};
use tokio::time::sleep;

use self::agent::Counts;
use self::head::Head;

/// Duration of the measurement of an idle head.
const IDLE: Duration = Duration::from_secs(30);

/// Poll interval for the nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

const DEADLINE: Duration = Duration::from_secs(120);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let is_dashboard = arguments.next_if(|first| first == "dashboard").is_some();
    let executable: PathBuf = arguments
        .next()
        .context(
            "usage: swarm EXECUTABLE [AGENTS] [RUNS], or swarm dashboard EXECUTABLE [AGENTS] [WAITING] [BROWSERS]",
        )?
        .into();
    let mut number = |default: usize| -> anyhow::Result<usize> {
        let Some(text) = arguments.next() else { return Ok(default) };
        text.to_str().and_then(|text| text.parse().ok()).context("not a number")
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if is_dashboard {
        let (agents, waiting, browsers) = (number(1_000)?, number(100_000)?, number(200)?);
        return runtime.block_on(async {
            let head = Head::start(&executable).await?;
            let _swarm = join(&head, agents).await?;
            pages::measure(&head, waiting, browsers).await
        });
    }
    let (agents, runs) = (number(1_000)?, number(3)?);
    for run in 1..=runs {
        println!("run {run} of {runs}, {agents} agents");
        runtime.block_on(measure(&executable, agents))?;
    }
    Ok(())
}

/// Measures one run with its own head.
async fn measure(executable: &std::path::Path, agents: usize) -> anyhow::Result<()> {
    let mut head = Head::start(executable).await?;
    let bare = head.memory_kib()?;
    let Swarm { mut tasks, counts } = join(&head, agents).await?;
    let client = Client::new(Endpoint::Unix(head.socket()));

    let cpu = head.cpu_seconds()?;
    watch(&client, agents).await?;
    let percent = (head.cpu_seconds()? - cpu) / IDLE.as_secs_f64() * 100.0;
    let memory = head.memory_kib()?;
    println!(
        "  idle for {} s, always up: {percent:.2} % of a CPU, polls included; {} MiB resident, {:.1} KiB for each agent",
        IDLE.as_secs(),
        memory / 1024,
        memory.saturating_sub(bare) as f64 / agents as f64,
    );

    let begun = Instant::now();
    head.run_array(agents).await?;
    println!("  {agents} tasks submitted, placed and completed in {:.2} s", begun.elapsed().as_secs_f64());

    head.kill().await?;
    let begun = Instant::now();
    head.run().await?;
    println!("  head killed; ready again after {:.2} s", begun.elapsed().as_secs_f64());
    wait_for_all(&client, &mut tasks, agents).await?;
    println!(
        "  all agents connected {:.2} s after the restart; at most {} handshakes at once, {} attempts failed",
        begun.elapsed().as_secs_f64(),
        counts.most_at_once.load(Ordering::Relaxed),
        counts.failures.load(Ordering::Relaxed),
    );
    ensure!(counts.linked.load(Ordering::Relaxed) == agents, "some agents have two links or none");
    Ok(())
}

/// Agents that have joined a head. Dropping them disconnects them.
struct Swarm {
    tasks: tokio::task::JoinSet<anyhow::Result<()>>,
    counts: Arc<Counts>,
}

/// Joins agents to a head.
async fn join(head: &Head, agents: usize) -> anyhow::Result<Swarm> {
    let client = Client::new(Endpoint::Unix(head.socket()));
    let begun = Instant::now();
    let mut codes = Vec::new();
    for number in 0..agents {
        let node: NodeName = format!("n{number}").parse()?;
        let code = client.invite(&node).await?.code.parse()?;
        codes.push((node, code));
    }
    println!("  invited in {:.2} s", begun.elapsed().as_secs_f64());

    let counts = Arc::new(Counts::default());
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (node, code) in codes {
        tasks.spawn(agent::live(node, code, Arc::clone(&counts)));
    }
    wait_for_all(&client, &mut tasks, agents).await?;
    println!(
        "  joined, linked and up in {:.2} s; at most {} handshakes at once, {} attempts refused; the head used {:.2} s of CPU",
        begun.elapsed().as_secs_f64(),
        counts.most_at_once.swap(0, Ordering::Relaxed),
        counts.failures.swap(0, Ordering::Relaxed),
        head.cpu_seconds()?,
    );
    Ok(Swarm { tasks, counts })
}

/// Waits until every agent's node is up. Fails if a restarted head gives up a node meanwhile.
async fn wait_for_all(
    client: &Client,
    swarm: &mut tokio::task::JoinSet<anyhow::Result<()>>,
    agents: usize,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(ended) = swarm.try_join_next() {
            ended?.context("an agent ended with an error")?;
        }
        let nodes = client.nodes().await?;
        let down = nodes.iter().filter(|node| node.state == NodeState::Down).count();
        ensure!(down == 0, "the head marked {down} nodes as down");
        if nodes.iter().filter(|node| node.state == NodeState::Up).count() == agents {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not all nodes are up");
        sleep(POLL_INTERVAL).await;
    }
}

/// Checks that every node stays up.
async fn watch(client: &Client, agents: usize) -> anyhow::Result<()> {
    let end = Instant::now() + IDLE;
    while Instant::now() < end {
        let up = client.nodes().await?.iter().filter(|node| node.state == NodeState::Up).count();
        ensure!(up == agents, "only {up} nodes are up");
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
