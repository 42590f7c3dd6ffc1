//! A test agent that is controlled by the test, over a real link.

use futures_util::{SinkExt, StreamExt};
use hostler_client::{Client, ClientError, Endpoint, Stream, tls};
use hostler_core::link::{Inbox, Outbox};
use hostler_model::{CpuSet, Ending, JobState, NodeFacts, NodeName, Resources, RunId};
use hostler_proto::api::{BASE, JoinRequest, RenewRequest};
use hostler_proto::join::JoinCode;
use hostler_proto::link::{
    AgentHello, AgentMessage, Fate, Frame, HeadHello, HeadMessage, Launch, RunEnd, RunReport, RunResult, RunStatus,
    Usage,
};
use hostler_proto::manifest::{Chunk, Content, Manifest, ResultManifest, VERSION};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use serde_bytes::ByteBuf;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{TestHead, soon};

/// A node's certificate and key, for reconnecting.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: NodeName,
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A linked agent.
pub(crate) struct FakeAgent {
    socket: WebSocketStream<Stream>,
    outbox: Outbox,
    inbox: Inbox,
    received: std::collections::VecDeque<HeadMessage>,
    has_accounts: bool,
    pub(crate) client: Client,
}

impl Identity {
    /// Joins as `name` with a join code.
    pub(crate) async fn join(head: &TestHead, name: &str) -> Self {
        let name: NodeName = name.parse().expect("a valid name");
        let code: JoinCode = head.client().invite(&name).await.expect("permitted").code.parse().expect("a join code");
        let key = KeyPair::generate().expect("a key can be made");
        let csr = csr(&key);
        let request =
            JoinRequest { secret: code.secret.clone(), node: Some(name.clone()), machine: None, csr, busy_as: None };
        let joined = pinned(&code).join(&request).await.expect("invited");
        Self { name, authority: joined.authority, certificate: joined.certificate, key: key.serialize_pem() }
    }

    /// Requests a certificate for a new key. Returns the new identity, and the time until its renewal.
    pub(crate) async fn renew(&self, head: &TestHead) -> Result<(Self, u64), ClientError> {
        let key = KeyPair::generate().expect("a key can be made");
        let joined = Client::new(self.endpoint(head)).renew(&RenewRequest { csr: csr(&key) }).await?;
        let renewed = Self { certificate: joined.certificate, key: key.serialize_pem(), ..self.clone() };
        Ok((renewed, joined.renew_in_ms))
    }

    /// The head's endpoint with this identity.
    pub(crate) fn endpoint(&self, head: &TestHead) -> Endpoint {
        let config = tls::mutual(&self.authority, &self.certificate, &self.key).expect("a matching key");
        Endpoint::Tls { address: head.address().to_string().into(), server_name: localhost(), config }
    }

    /// The hello of an agent with four CPUs and these `runs`.
    pub(crate) fn hello(&self, runs: Vec<RunReport>) -> AgentHello {
        let facts = NodeFacts::new("boot", Resources::new(CpuSet::first(4), 1 << 30));
        AgentHello::new(self.name.clone(), 4242, facts, runs)
    }
}

/// A client that knows only the join code.
pub(crate) fn pinned(code: &JoinCode) -> Client {
    Client::new(Endpoint::Tls {
        address: code.address.clone().into(),
        server_name: localhost(),
        config: tls::pinned(code.authority),
    })
}

pub(crate) fn csr(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).and_then(|csr| csr.pem()).expect("a request can be made")
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("127.0.0.1").expect("an address")
}

/// Opens the link and sends a hello.
pub(crate) async fn introduce(
    head: &TestHead,
    identity: &Identity,
    hello: &AgentHello,
) -> (WebSocketStream<Stream>, HeadHello) {
    let stream = identity.endpoint(head).connect().await.expect("the head listens");
    let uri = format!("ws://hostler{BASE}/agent/link");
    let (mut socket, _) = tokio_tungstenite::client_async(uri, stream).await.expect("the head upgrades");
    socket.send(Message::binary(hostler_proto::encode(hello))).await.expect("the head reads");
    let answer = soon("the head's hello", next_binary(&mut socket)).await.expect("the head answers");
    (socket, hostler_proto::decode(&answer).expect("a hello"))
}

async fn next_binary(socket: &mut WebSocketStream<Stream>) -> Option<Vec<u8>> {
    next_binary_or_reason(socket).await.ok()
}

/// The next message, or the reason in the head's close frame (empty without one).
async fn next_binary_or_reason(socket: &mut WebSocketStream<Stream>) -> Result<Vec<u8>, String> {
    loop {
        match socket.next().await.ok_or_else(String::new)? {
            Ok(Message::Binary(bytes)) => return Ok(bytes.to_vec()),
            Ok(Message::Close(Some(frame))) => return Err(frame.reason.to_string()),
            Ok(Message::Close(None)) | Err(_) => return Err(String::new()),
            Ok(_) => {}
        }
    }
}

impl FakeAgent {
    /// Joins as a new node without runs, and links.
    pub(crate) async fn start(head: &TestHead, name: &str) -> Self {
        let identity = Identity::join(head, name).await;
        Self::link(head, &identity, Vec::new()).await
    }

    /// Links a node with these `runs`.
    pub(crate) async fn link(head: &TestHead, identity: &Identity, runs: Vec<RunReport>) -> Self {
        Self::link_with(head, identity, &identity.hello(runs)).await
    }

    /// Links a node with this hello.
    pub(crate) async fn link_with(head: &TestHead, identity: &Identity, hello: &AgentHello) -> Self {
        let (socket, answer) = introduce(head, identity, hello).await;
        let is_newest = |protocol| protocol == hello.protocol_max;
        assert!(matches!(answer, HeadHello::Welcome { protocol, .. } if is_newest(protocol)), "{answer:?}");
        Self {
            socket,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            received: Default::default(),
            has_accounts: false,
            client: Client::new(identity.endpoint(head)),
        }
    }

    /// The next message of the head, after the accounts, which are the first message. `None` when the head has closed
    /// the link.
    pub(crate) async fn next(&mut self) -> Option<HeadMessage> {
        loop {
            while self.received.is_empty() {
                let bytes = soon("a message of the head", next_binary(&mut self.socket)).await?;
                let frame: Frame<HeadMessage> = hostler_proto::decode(&bytes).expect("a frame");
                self.received.extend(self.inbox.accept(frame).expect("numbered in order"));
            }
            let message = self.received.pop_front();
            if std::mem::replace(&mut self.has_accounts, true) {
                return message;
            }
            assert!(matches!(message, Some(HeadMessage::Accounts { .. })), "{message:?}");
        }
    }

    /// Waits until the head closes the link. Returns the reason.
    pub(crate) async fn farewell(&mut self) -> String {
        loop {
            match soon("the head to close the link", next_binary_or_reason(&mut self.socket)).await {
                Ok(message) => drop(message),
                Err(reason) => return reason,
            }
        }
    }

    /// The next launch. Skips other messages.
    pub(crate) async fn next_launch(&mut self) -> Launch {
        loop {
            match self.next().await.expect("the link is open") {
                HeadMessage::Launch(launch) => return launch,
                other => drop(other),
            }
        }
    }

    pub(crate) async fn say(&mut self, messages: Vec<AgentMessage>) {
        let frame = self.outbox.frame(messages);
        self.send_raw(hostler_proto::encode(&frame)).await;
    }

    /// Sends raw bytes as one message.
    pub(crate) async fn send_raw(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.expect("the link is open");
    }

    /// Reports the status of a run. The link may be closed already.
    pub(crate) async fn try_report(&mut self, run: RunId, status: RunStatus) {
        let frame = self.outbox.frame(vec![AgentMessage::Report(RunReport { run, status })]);
        // Errors do not matter, because the head may have closed the link.
        let _ = self.socket.send(Message::binary(hostler_proto::encode(&frame))).await;
    }

    /// Reports the status of a run.
    pub(crate) async fn report(&mut self, run: RunId, status: RunStatus) {
        self.say(vec![AgentMessage::Report(RunReport { run, status })]).await;
    }
}

/// The end of a run with exit code 0 and `stdout` as its inline result.
pub(crate) fn completed(run: RunId, stdout: &[u8]) -> RunStatus {
    let (manifest, inline) = result(run, stdout);
    RunStatus::Ended(RunEnd {
        fate: Fate::Ended(Ending { state: JobState::Completed, exit_code: Some(0) }),
        message: None,
        result: Some(RunResult { manifest, inline }),
        usage: Usage { wall_ms: 12, ..Usage::default() },
        steps: Vec::new(),
        certificate: None,
    })
}

/// A result with standard output only.
pub(crate) fn result(run: RunId, stdout: &[u8]) -> (hostler_model::Digest, Vec<ByteBuf>) {
    let digest_of = hostler_snapshot::chunk::digest_of;
    let chunks = if stdout.is_empty() {
        Vec::new()
    } else {
        vec![Chunk { digest: digest_of(stdout), len: u32::try_from(stdout.len()).expect("small") }]
    };
    let manifest = hostler_proto::encode(&ResultManifest {
        version: VERSION,
        run,
        tree: Manifest { version: VERSION, entries: Vec::new() },
        removed: Vec::new(),
        stdout: Content { size: stdout.len() as u64, chunks },
        stderr: Content::default(),
        setup: Content::default(),
        certificate: None,
        problems: Vec::new(),
    });
    (digest_of(&manifest), vec![ByteBuf::from(manifest), ByteBuf::from(stdout.to_vec())])
}
