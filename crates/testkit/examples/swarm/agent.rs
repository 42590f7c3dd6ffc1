//! A simulated agent: it joins and connects like a real one, and immediately completes every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hostler_client::{Client, ClientError, Endpoint, Stream, tls};
use hostler_model::{Ending, NodeFacts, NodeName, Resources, TaskState};
use hostler_proto::api::JoinRequest;
use hostler_proto::join::{HEAD_NAME, JoinCode};
use hostler_proto::link::{
    AgentHello, AgentMessage, Fate, Frame, HeadHello, HeadMessage, RunEnd, RunReport, RunStatus, Usage,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Minimum and maximum delay between connection attempts, as in a real agent.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Timeout for an answer of the head, as in a real agent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counters shared by all agents of a swarm.
#[derive(Default)]
pub(crate) struct Counts {
    /// Number of agents with a connection to the head.
    pub(crate) linked: AtomicUsize,
    /// Number of agents in a handshake, before the head's welcome.
    shaking_hands: AtomicUsize,
    /// Maximum of `shaking_hands` since the last reset.
    pub(crate) most_at_once: AtomicUsize,
    /// Failed attempts to join or connect.
    pub(crate) failures: AtomicUsize,
}

impl Counts {
    /// Counts a handshake until the returned value is dropped.
    fn shake_hands(&self) -> Handshake<'_> {
        let now = self.shaking_hands.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(now, Ordering::Relaxed);
        Handshake(self)
    }
}

struct Handshake<'a>(&'a Counts);

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.0.shaking_hands.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Joins with a code, and stays linked while it is polled.
pub(crate) async fn live(node: NodeName, code: JoinCode, counts: Arc<Counts>) -> anyhow::Result<()> {
    let endpoint = join(&code, &counts).await?;
    let mut pause = PAUSES.0;
    loop {
        let mut return_within = None;
        if link(&node, &endpoint, &counts, &mut return_within).await.is_err() && return_within.is_none() {
            counts.failures.fetch_add(1, Ordering::Relaxed);
        }
        let wait = match return_within {
            Some(time) => {
                pause = PAUSES.0;
                time.max(PAUSES.0).mul_f64(fraction())
            }
            None => pause.mul_f64((1.0 + fraction()) / 2.0),
        };
        sleep(wait).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Joins. Retries while the head is unreachable or overloaded.
async fn join(code: &JoinCode, counts: &Counts) -> anyhow::Result<Endpoint> {
    let key = KeyPair::generate()?;
    let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
    let request = JoinRequest { secret: code.secret.clone(), node: None, machine: None, csr, busy_as: None };
    let server_name = ServerName::try_from(HEAD_NAME)?;
    let stranger = Endpoint::Tls {
        address: code.address.clone().into(),
        server_name: server_name.clone(),
        config: tls::pinned(code.authority),
    };
    let mut pause = PAUSES.0;
    let joined = loop {
        let answer = {
            let _counted = counts.shake_hands();
            Client::new(stranger.clone()).join(&request).await
        };
        match answer {
            Ok(joined) => break joined,
            Err(ClientError::Connect { .. } | ClientError::Interrupted { .. }) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                sleep(pause.mul_f64((1.0 + fraction()) / 2.0)).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            Err(error) => return Err(error).context("the head refused the join request"),
        }
    };
    let config = tls::mutual(&joined.authority, &joined.certificate, &key.serialize_pem())?;
    Ok(Endpoint::Tls { address: code.address.clone().into(), server_name, config })
}

type Socket = WebSocketStream<Stream>;

/// Runs one connection until it breaks. Sets `return_within` from the head's welcome.
async fn link(
    node: &NodeName,
    endpoint: &Endpoint,
    counts: &Counts,
    return_within: &mut Option<Duration>,
) -> anyhow::Result<()> {
    let handshake = counts.shake_hands();
    let stream = endpoint.connect().await?;
    let uri = format!("ws://hostler{}/agent/link", hostler_proto::api::BASE);
    let (mut socket, _) = timeout(PATIENCE, tokio_tungstenite::client_async(uri, stream)).await??;
    let hello = Message::binary(hostler_proto::encode(&hello(node)?));
    socket.send(hello).await?;
    let answer = timeout(PATIENCE, next(&mut socket)).await??;
    let HeadHello::Welcome { heartbeat_ms, return_within_ms, .. } = hostler_proto::decode(&answer)? else {
        bail!("refused");
    };
    drop(handshake);
    *return_within = Some(Duration::from_millis(return_within_ms));
    counts.linked.fetch_add(1, Ordering::Relaxed);
    let outcome = carry(socket, Duration::from_millis(heartbeat_ms)).await;
    counts.linked.fetch_sub(1, Ordering::Relaxed);
    outcome
}

fn hello(node: &NodeName) -> anyhow::Result<AgentHello> {
    let facts = NodeFacts::new("swarm", Resources::new("0-3".parse()?, 8 << 30));
    Ok(AgentHello {
        version: "swarm".to_owned(),
        ..AgentHello::new(node.clone(), std::process::id(), facts, Vec::new())
    })
}

/// Sends heartbeats and reports the end of assigned runs.
async fn carry(socket: Socket, heartbeat: Duration) -> anyhow::Result<()> {
    let (mut sink, mut source): (SplitSink<Socket, Message>, SplitStream<Socket>) = socket.split();
    let (mut sent, mut received) = (0, 0);
    let mut beat = Instant::now() + heartbeat;
    loop {
        let messages = tokio::select! {
            bytes = next(&mut source) => {
                let frame: Frame<HeadMessage> = hostler_proto::decode(&bytes?)?;
                received += 1;
                ensure!(frame.sequence == received, "a frame of the link is missing");
                answers(frame.messages)
            }
            () = sleep_until(beat) => vec![AgentMessage::Heartbeat],
        };
        if !messages.is_empty() {
            sent += 1;
            sink.send(Message::binary(hostler_proto::encode(&Frame { sequence: sent, messages }))).await?;
            beat = Instant::now() + heartbeat;
        }
    }
}

fn answers(messages: Vec<HeadMessage>) -> Vec<AgentMessage> {
    let launches = messages.into_iter().filter_map(|message| match message {
        HeadMessage::Launch(launch) => Some(launch.runs),
        _ => None,
    });
    let end = RunEnd {
        fate: Fate::Ended(Ending { state: TaskState::Completed, exit_code: Some(0) }),
        message: None,
        result: None,
        usage: Usage::default(),
        steps: Vec::new(),
        certificate: None,
    };
    let report = |run| AgentMessage::Report(RunReport { run, status: RunStatus::Ended(end.clone()) });
    launches.flatten().map(|placement| report(placement.run)).collect()
}

async fn next<S>(source: &mut S) -> anyhow::Result<Vec<u8>>
where
    S: StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    while let Some(message) = source.next().await {
        match message? {
            Message::Binary(bytes) => return Ok(bytes.to_vec()),
            Message::Close(_) => break,
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    bail!("the head has closed the link")
}

/// A random number from 0 to 1.
fn fraction() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}
