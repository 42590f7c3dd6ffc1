//! Admission of nodes: join codes, certificates, draining, renewal, replacement and removal.

use std::time::Duration;

use hostler_client::{Client, ClientError, Endpoint, LiveJobs, tls};
use hostler_model::{JobState, NodeState};
use hostler_proto::api::{Invite, JoinRequest};
use hostler_proto::join::{HEAD_NAME, JoinCode};
use hostler_proto::link::{HeadHello, RunStatus};
use rcgen::KeyPair;
use rustls::pki_types::ServerName;

use crate::agent::{FakeAgent, Identity, completed, csr, introduce, pinned};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;

/// The head's message to a rejected agent.
async fn refusal(head: &TestHead, identity: &Identity) -> String {
    match introduce(head, identity, &identity.hello(Vec::new())).await.1 {
        HeadHello::Refused { message } => message,
        welcome @ HeadHello::Welcome { .. } => panic!("{welcome:?}"),
    }
}

async fn wait_for_node(client: &Client, state: NodeState) {
    let name = "n1".parse().expect("a valid name");
    soon("the node's state", async {
        while client.node(&name).await.expect("known").node.state != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn code_without_a_name_is_for_new_names_and_wrong_codes_get_one_error() {
    let head = TestHead::start().await;
    Identity::join(&head, "n1").await;
    let client = head.client();
    let address = Some("127.0.0.1".to_owned());
    let invitation = client.invite_as(&Invite { node: None, address }).await.expect("permitted");
    let invited: JoinCode = invitation.code.parse().expect("a join code");
    assert_eq!(invited.address, head.address().to_string(), "the port is the head's");
    let stranger = pinned(&invited);
    let name = |name: &str| Some(name.parse().expect("a valid name"));
    let csr = csr(&KeyPair::generate().expect("a key can be made"));
    let mut join = JoinRequest { secret: invited.secret.clone(), node: name("n1"), machine: None, csr, busy_as: None };
    assert_eq!(code(stranger.join(&join).await), "name_taken");
    (join.node, join.machine) = (None, name("box"));
    let joined = stranger.join(&join).await.expect("the code is still valid");
    assert_eq!(joined.node.as_str(), "box");

    // The same error for a code that never existed, a used one, and one for another node.
    let other = client.invite(&"n3".parse().expect("a valid name")).await.expect("permitted");
    let other: JoinCode = other.code.parse().expect("a join code");
    let mut texts = Vec::new();
    for (secret, node) in [("guess".to_owned(), None), (invited.secret, name("box2")), (other.secret, name("n4"))] {
        let csr = crate::agent::csr(&KeyPair::generate().expect("a key can be made"));
        let refused = stranger
            .join(&JoinRequest { secret, node, machine: None, csr, busy_as: None })
            .await
            .expect_err("not invited");
        texts.push((refused.code().map(str::to_owned), refused.to_string(), refused.hints()));
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");

    // Many wrong codes from an address do not make a valid one invalid.
    let guess =
        || JoinRequest { secret: "guess".to_owned(), node: None, machine: None, csr: join.csr.clone(), busy_as: None };
    let guesses: Vec<_> = (0..20)
        .map(|_| {
            tokio::spawn({
                let (stranger, guess) = (pinned(&invited_again(&invited.address, invited.authority)), guess());
                async move { code(stranger.join(&guess).await) }
            })
        })
        .collect();
    let mut codes = Vec::new();
    for guess in guesses {
        codes.push(guess.await.expect("the task does not panic"));
    }
    assert!(codes.iter().any(|code| code == "too_many_codes"), "{codes:?}");
    let good = client.invite_as(&Invite::default()).await.expect("permitted");
    let good: JoinCode = good.code.parse().expect("a join code");
    let csr = crate::agent::csr(&KeyPair::generate().expect("a key can be made"));
    let late = JoinRequest { secret: good.secret, node: name("n9"), machine: None, csr, busy_as: None };
    let joined = pinned(&invited_again(&good.address, good.authority)).join(&late).await.expect("a valid code");
    assert_eq!(joined.node.as_str(), "n9");
}

/// A join code whose secret does not matter.
fn invited_again(address: &str, authority: hostler_model::Digest) -> JoinCode {
    JoinCode { address: address.to_owned(), authority, secret: String::new() }
}

#[tokio::test]
async fn node_is_drained_and_resumed() {
    let mut head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let name = "n1".parse().expect("a valid name");
    client.submit(&request("a")).await.expect("accepted");
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    let node = client.drain_node(&name, Some("new disk".to_owned())).await.expect("permitted");
    assert_eq!((node.node.state, node.runs.len()), (NodeState::Draining, 1));
    let waiting = client.submit(&request("b")).await.expect("accepted").id;
    let why = client.why(waiting).await.expect("the job exists").lines.join("\n");
    assert!(why.contains("every node that could run the job is drained: n1"), "{why}");
    assert!(why.contains("new disk") && why.contains("hostler node resume n1"), "{why}");
    agent.report(run, completed(run, b"")).await;
    wait_for_node(&client, NodeState::Drained).await;
    let counts = client.info().await.expect("a response").nodes;
    assert_eq!((counts.up, counts.draining, counts.drained), (0, 0, 1));

    head.kill();
    head.start_again().await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let node = client.node(&name).await.expect("known");
    assert_eq!(node.node.state, NodeState::Drained, "still drained after a restart");
    let drain = node.drain.expect("the node is drained");
    assert_eq!(drain.reason.as_deref(), Some("new disk"));
    assert!(node.node.reason.is_some_and(|text| text == format!("drained by {}: new disk", drain.by)));
    let node = client.resume_node(&name).await.expect("permitted");
    assert_eq!((node.node.state, node.drain), (NodeState::Up, None));
    assert_eq!(agent.next_launch().await.job.id, waiting);
    client.shutdown(LiveJobs::Keep).await.expect("the head stops");
}

#[tokio::test]
async fn removed_node_is_disconnected_immediately_with_a_reason() {
    let mut head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let job = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, RunStatus::Running).await;
    agent.client.missing_blobs(Vec::new()).await.expect("nodes are served");
    client.remove_node(&identity.name).await.expect("permitted");
    let reason = agent.farewell().await;
    assert!(reason.contains("has removed node n1"), "{reason}");
    assert_eq!(
        code(agent.client.missing_blobs(Vec::new()).await),
        "unwelcome",
        "requests on an open connection are refused, too"
    );
    let ended = client.job_when_ended(job, 1, Duration::from_secs(20)).await.expect("a response");
    assert_eq!(ended.summary.state, JobState::NodeFail);
    assert!(client.nodes().await.expect("a response").is_empty());
    assert_eq!(code(client.remove_node(&identity.name).await), "no_such_node");
    for _ in 0..2 {
        let message = refusal(&head, &identity).await;
        assert!(message.contains("it was removed") && message.contains("hostler agent join"), "{message}");
        assert!(identity.renew(&head).await.is_err());
        head.kill();
        head.start_again().await;
    }
    let again = Identity::join(&head, "n1").await;
    FakeAgent::link(&head, &again, Vec::new()).await;
    let message = refusal(&head, &identity).await;
    assert!(message.contains("was replaced by a newer one"), "{message}");
}

#[tokio::test]
async fn certificates_are_renewed_and_expire_by_the_clusters_clock() {
    let head = TestHead::start_with_life(Duration::from_secs(9)).await;
    let first = Identity::join(&head, "n1").await;
    let _agent = FakeAgent::link(&head, &first, Vec::new()).await;
    let (second, renew_in_ms) = first.renew(&head).await.expect("permitted");
    assert!((5_000..=6_000).contains(&renew_in_ms), "two thirds of its life: {renew_in_ms}");
    let _agent = FakeAgent::link(&head, &first, Vec::new()).await;
    let _agent = FakeAgent::link(&head, &second, Vec::new()).await;
    assert!(refusal(&head, &first).await.contains("was replaced"), "the new one was used");
    let certificate = head.client().node(&first.name).await.expect("known").certificate.expect("the node has joined");
    assert!(certificate.life_ms == 9_000 && !certificate.is_being_renewed, "{certificate:?}");
    soon("the certificate to expire", async {
        loop {
            match introduce(&head, &second, &second.hello(Vec::new())).await.1 {
                HeadHello::Welcome { .. } => tokio::time::sleep(Duration::from_millis(50)).await,
                HeadHello::Refused { message } => break assert!(message.contains("has expired"), "{message}"),
            }
        }
    })
    .await;
    assert_eq!(code(second.renew(&head).await), "unwelcome");
}

#[tokio::test]
async fn certificate_of_another_cluster_is_rejected_despite_known_authority() {
    let (mine, theirs) = (TestHead::start().await, TestHead::start().await);
    let (known, foreign) = (Identity::join(&mine, "n1").await, Identity::join(&theirs, "n1").await);
    // The agent knows this cluster's authority, but sends the certificate of its own cluster.
    let config = tls::mutual(&known.authority, &foreign.certificate, &foreign.key).expect("a matching key");
    let server_name = ServerName::try_from(HEAD_NAME).expect("a name");
    let endpoint = Endpoint::Tls { address: mine.address().to_string().into(), server_name, config };
    let outcome =
        Client::new(endpoint).with_retry_limits(hostler_client::RetryLimits::NONE).missing_blobs(Vec::new()).await;
    let is_cut = matches!(outcome, Err(ClientError::Connect { .. } | ClientError::Interrupted { .. }));
    assert!(is_cut, "{outcome:?}");
}
