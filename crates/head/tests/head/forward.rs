//! Connections to ports of jobs through the head.

use hostler_client::{Client, ClientError, Tunnel};
use hostler_model::RunId;
use hostler_proto::forward::{Announcement, Destination, ForwardAnswer, MAX_PATH_BYTES};
use hostler_proto::link::StreamKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use crate::agent::{FakeAgent, Identity};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;
use crate::output::{next_stream, running};

const PORT: Destination = Destination::Port(8888);

/// Opens a connection. The agent gives this answer.
async fn forward(
    client: &Client,
    agent: &mut FakeAgent,
    run: RunId,
    to: &Destination,
    answer: ForwardAnswer,
) -> (Result<Tunnel, ClientError>, Tunnel) {
    let answered = async {
        let request = next_stream(agent).await;
        assert_eq!((request.run, request.what), (run, StreamKind::from(to.clone())));
        agent.client.stream_forward(&request.stream, &answer).await.expect("a reader waits")
    };
    soon("both ends", async { tokio::join!(client.forward(run.task, 0, to), answered) }).await
}

#[tokio::test]
async fn bytes_and_ends_of_both_directions_are_passed_on() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let (user, job) = forward(&head.client(), &mut agent, run, &PORT, ForwardAnswer::Connected).await;
    let user = user.expect("connected");
    // The pipes are smaller than what they carry.
    let (mut program, mut near_program) = duplex(1000);
    let (mut server, mut near_server) = duplex(1000);
    let carried = tokio::spawn(async move { tokio::join!(user.carry(&mut near_program), job.carry(&mut near_server)) });
    let question = vec![b'q'; 200_000];
    let asked = async {
        program.write_all(&question).await.expect("open");
        program.shutdown().await.expect("open");
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.expect("complete");
        answer
    };
    let served = async {
        let mut all = Vec::new();
        server.read_to_end(&mut all).await.expect("complete");
        server.write_all(format!("{} bytes", all.len()).as_bytes()).await.expect("open");
        server.shutdown().await.expect("open");
    };
    let (answer, ()) = soon("the answer", async { tokio::join!(asked, served) }).await;
    assert_eq!(answer, "200000 bytes");
    let (user, job) = soon("both ends", carried).await.expect("no panic");
    user.and(job).expect("both sides ended");
}

#[tokio::test]
async fn broken_connection_is_an_error_and_not_an_end() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let (user, job) = forward(&head.client(), &mut agent, run, &PORT, ForwardAnswer::Connected).await;
    let (_program, mut near_program) = duplex(1000);
    drop(job);
    let broken = soon("the break", user.expect("connected").carry(&mut near_program)).await;
    assert!(matches!(broken, Err(ClientError::TunnelBroken { .. })), "{broken:?}");
}

#[tokio::test]
async fn failures_name_their_cause() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let run = running(&head, &mut agent, &request("a")).await;
    let (refused, _) = forward(&client, &mut agent, run, &PORT, ForwardAnswer::NothingListens).await;
    assert_eq!(code(refused), "no_listener");
    let socket = Destination::Socket("a b/ü&.sock".to_owned());
    let (refused, _) = forward(&client, &mut agent, run, &socket, ForwardAnswer::NothingOnSocket).await;
    let refused = refused.expect_err("nothing listens");
    let why = format!("nothing in task {} listens on socket a b/ü&.sock of node n1", run.task);
    assert!(refused.to_string().ends_with(&why) && refused.code() == Some("no_listener"), "{refused}");
    let (refused, _) = forward(&client, &mut agent, run, &PORT, ForwardAnswer::Failed("no luck".to_owned())).await;
    let refused = refused.expect_err("the agent has failed");
    assert!(refused.to_string().ends_with("no luck") && refused.code() == Some("port_unreachable"), "{refused}");
    let invalid = [String::new(), "a\0b".to_owned(), "x".repeat(MAX_PATH_BYTES + 1)].map(Destination::Socket);
    for to in invalid.iter().chain([&Destination::Port(0)]) {
        assert_eq!(code(client.forward(run.task, 0, to).await), "bad_request", "{to:?}");
    }
    assert_eq!(code(client.forward(run.task, 1, &PORT).await), "no_such_node");
}

#[tokio::test]
async fn listener_announces_connections_until_one_end_is_gone() {
    let head = TestHead::start().await;
    let identity = Identity::join(&head, "n1").await;
    let mut agent = FakeAgent::link(&head, &identity, Vec::new()).await;
    let client = head.client();
    let run = running(&head, &mut agent, &request("a")).await;
    let any_port = Destination::Port(0);
    let answered = async {
        let request = next_stream(&mut agent).await;
        assert_eq!((request.run, request.what), (run, StreamKind::Listen { port: 0, socket: None }));
        let tunnel = agent.client.stream_forward(&request.stream, &ForwardAnswer::Connected).await;
        let mut control = tunnel.expect("a reader waits").into_control();
        control.send(&Announcement::Listening(4000)).await.expect("open");
        control.send(&Announcement::Accepted(7)).await.expect("open");
        control
    };
    let listening = async { tokio::join!(client.listen(run.task, 0, &any_port), answered) };
    let (listener, mut of_agent) = soon("both ends", listening).await;
    let (mut listener, port) = listener.expect("it listens");
    assert_eq!((port, listener.next().await.expect("open")), (4000, Announcement::Accepted(7)));
    let accepted = Destination::Accepted(7);
    let (connection, _) = forward(&client, &mut agent, run, &accepted, ForwardAnswer::Connected).await;
    connection.expect("connected");
    let (refused, _) = forward(&client, &mut agent, run, &accepted, ForwardAnswer::NothingOnSocket).await;
    let refused = refused.expect_err("nobody is there");
    assert!(refused.to_string().ends_with("has been given up"), "{refused}");
    drop(listener);
    soon("the end", of_agent.next()).await.expect_err("the client is gone");

    let socket = Destination::Socket("./a.sock".to_owned());
    let answered = async {
        let request = next_stream(&mut agent).await;
        assert_eq!(request.what, StreamKind::Listen { port: 0, socket: Some("./a.sock".to_owned()) });
        agent.client.stream_forward(&request.stream, &ForwardAnswer::Taken).await.expect("a reader waits")
    };
    let (refused, _) = soon("both ends", async { tokio::join!(client.listen(run.task, 0, &socket), answered) }).await;
    assert_eq!(code(refused), "address_taken");
    assert_eq!(code(client.listen(run.task, 0, &Destination::Socket(String::new())).await), "bad_request");
}

#[tokio::test]
async fn connections_to_ports_of_one_run_are_limited() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let run = running(&head, &mut agent, &request("a")).await;
    let mut tunnels = Vec::new();
    for _ in 0..128 {
        tunnels.push(forward(&head.client(), &mut agent, run, &PORT, ForwardAnswer::Connected).await);
    }
    assert_eq!(code(head.client().forward(run.task, 0, &PORT).await), "too_many_watchers");
    drop(tunnels.pop());
    soon("a free place", async {
        let again = async {
            while head.client().forward(run.task, 0, &PORT).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let answer = async {
            let stream = next_stream(&mut agent).await.stream;
            agent.client.stream_forward(&stream, &ForwardAnswer::Connected).await.map(drop)
        };
        tokio::join!(again, answer).1.expect("a reader waits");
    })
    .await;
}
