//! Frames of the agent link in both directions, as received from the WebSocket.

use std::fmt::Debug;
use std::sync::Arc;

use hostler_core::link::{Inbox, Outbox};
use hostler_proto::link::{
    AgentHello, AgentMessage, EndCause, Frame, Gang, HeadHello, HeadMessage, JobLaunch, Launch, Output, Peer,
    Placement, RunReport, StreamKind, StreamRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::values;
use crate::Target;

pub(crate) const TARGET: Target = Target { name: "link", about: "frames between an agent and its head", run, seeds };

/// The first byte selects the type of frame.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => drop(reads_back::<AgentHello>(bytes)),
        1 => drop(reads_back::<HeadHello>(bytes)),
        2 => arrives::<AgentMessage>(bytes),
        3 => arrives::<HeadMessage>(bytes),
        4 => drop(reads_back::<hostler_proto::record::EndedTask>(bytes)),
        _ => conversation(bytes),
    }
}

/// Decodes a value and checks that it survives another round trip.
fn reads_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = hostler_proto::decode(bytes).ok()?;
    let again = hostler_proto::decode(&hostler_proto::encode(&value)).expect("encoded values are readable");
    assert_eq!(value, again);
    Some(value)
}

fn arrives<M: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Some(frame) = reads_back::<Frame<M>>(bytes) {
        let sequence = frame.sequence;
        let taken = Inbox::default().accept(frame);
        assert_eq!(taken.is_err(), sequence > 1, "a new inbox accepts only frame 1");
    }
}

/// Receives frames with arbitrary numbers: none is accepted twice, and none is skipped.
fn conversation(bytes: &[u8]) {
    let (mut inbox, mut next) = (Inbox::default(), 1);
    for &byte in bytes {
        let sequence = u64::from(byte % 8) + next.max(4) - 4;
        match inbox.accept(Frame { sequence, messages: vec![sequence] }) {
            Ok(taken) if sequence == next => {
                assert_eq!(taken, [sequence]);
                next += 1;
            }
            Ok(taken) => assert!(taken.is_empty() && sequence < next, "a repeated frame contains no new message"),
            Err(gap) => assert!(gap.expected == next && gap.found > next),
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let run = values::run(3);
    let launch = Launch {
        job: JobLaunch {
            id: run.task.job,
            user: "ada".into(),
            uid: Some(2000),
            spec: Arc::new(values::spec()),
            array_len: 5,
            output_cap_bytes: None,
        },
        runs: vec![Placement {
            run,
            resources: values::hello().facts.resources,
            gang: Some(Gang { rank: 1, nodes: vec![Peer { name: values::node(), address: None }] }),
            files: Some(hostler_model::Digest([7; 32])),
        }],
        environment: None,
    };
    let stream = |what| HeadMessage::Stream(StreamRequest { stream: "x".into(), run, what });
    let to_agent = vec![
        HeadMessage::Launch(launch),
        HeadMessage::Begin { run, port: 5, endpoints: Vec::new() },
        HeadMessage::End { run, cause: EndCause::Cancelled, grace_ms: 10 },
        HeadMessage::Forget { run },
        HeadMessage::Resend { run },
        stream(StreamKind::Output { output: Output::Stdout, from: 1, follow: true, tail: Some(3), limit: None }),
        stream(StreamKind::Terminal { rows: 2, columns: 3 }),
        stream(StreamKind::Listen { port: 1, socket: Some("x".to_owned()) }),
        HeadMessage::Watch { stream: "x".into(), run: None },
        HeadMessage::Shutdown,
    ];
    let to_head = vec![AgentMessage::Heartbeat, AgentMessage::Report(RunReport { run, status: values::ended() })];
    let welcome = HeadHello::Welcome {
        protocol: 1,
        epoch: run.epoch,
        version: "0.1.0".into(),
        heartbeat_ms: 4000,
        renew_in_ms: Some(1),
        return_within_ms: 2,
    };
    let bodies = [
        (0, hostler_proto::encode(&values::hello())),
        (1, hostler_proto::encode(&welcome)),
        (1, hostler_proto::encode(&HeadHello::Refused { message: "no".into() })),
        (2, hostler_proto::encode(&Outbox::default().frame(to_head))),
        (3, hostler_proto::encode(&Outbox::default().frame(to_agent))),
        (5, vec![4, 5, 5, 3, 7]),
    ];
    bodies.into_iter().map(|(kind, body)| [vec![kind], body].concat()).collect()
}
