//! Request bodies of the API, and a submission up to its placement.

use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Ended, Event, KEY_LIFE_MS, Now, Replaces, Stamped, State, SubmissionKey,
    decide, explain, schedule, update,
};
use hostler_model::{Digest, Timestamp, WallTime};
use hostler_proto::api::{
    DigestList, DrainRequest, ErrorBody, Fetched, Invite, JobAction, JoinRequest, Joined, Notice, RenewRequest,
    SubmitRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::values;
use crate::Target;

pub(crate) const TARGET: Target =
    Target { name: "api", about: "JSON bodies of the API, and a submission up to its placement", run, seeds };

/// The first byte selects the type of body.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 10 {
        0..=2 => {
            if let Some(request) = reads_back::<SubmitRequest>(bytes) {
                submit(request);
            }
        }
        3 => drop(reads_back::<Invite>(bytes)),
        4 => drop(reads_back::<JoinRequest>(bytes)),
        5 => drop(reads_back::<RenewRequest>(bytes)),
        6 => drop(reads_back::<DrainRequest>(bytes)),
        7 => drop(reads_back::<Fetched>(bytes)),
        8 => drop(reads_back::<DigestList>(bytes)),
        // Bodies that the client reads.
        _ => drop((reads_back::<ErrorBody>(bytes), reads_back::<Notice>(bytes), reads_back::<Joined>(bytes))),
    }
}

/// Decodes a value and checks that it survives another round trip.
fn reads_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_vec(&value).expect("plain data");
    let again: T = serde_json::from_slice(&text).expect("encoded values are readable");
    assert_eq!(value, again);
    Some(value)
}

/// Submits the job to a head with one node. An accepted job is placed or waits for a reason, and the state survives a
/// round trip.
fn submit(request: SubmitRequest) {
    let now = Now { at: Timestamp(1), wall: WallTime(1_000_000) };
    let mut state = State::default();
    let apply = |state: &mut State, event| update(state, &Stamped { now, event }, &mut Changes::default());
    let epoch = state.next_epoch();
    apply(&mut state, Event::EpochStarted { epoch, owner: None });
    let key = Digest([1; 32]);
    let hello = hostler_proto::link::AgentHello { runs: Vec::new(), ..values::hello() };
    let commands = [
        Command::Join { node: values::node(), key, life_ms: KEY_LIFE_MS, replaces: Replaces::Any },
        Command::Hello { connection: ConnectionId(1), key, hello: Box::new(hello), complete: Default::default() },
        Command::Submit {
            caller: Caller { user: "ada".into(), uid: Some(1000), operator: false },
            key: SubmissionKey(1),
            spec: Arc::new(state.complete(request.spec, now.wall)),
            environment: None,
            snapshot_is_complete: true,
        },
    ];
    for command in commands {
        let Ok(events) = decide(&state, &command, &Ended::default(), now) else { return };
        events.into_iter().for_each(|event| apply(&mut state, event));
    }
    while state.needs_pass() {
        let Some(event) = schedule(&mut state, now) else { break };
        apply(&mut state, event);
    }
    for job in state.jobs() {
        let reason = explain(&state, job);
        assert!(job.pending.is_empty() || reason.is_some(), "a waiting job has a reason");
    }
    let stored = hostler_proto::encode(&state);
    hostler_proto::decode::<State>(&stored).expect("a state can be read again");
}

fn seeds() -> Vec<Vec<u8>> {
    let json = |kind: u8, value: &dyn Fn() -> Vec<u8>| [vec![kind], value()].concat();
    let body = |value: &SubmitRequest| serde_json::to_vec(value).expect("plain data");
    let full = SubmitRequest::new("0123456789abcdef".into(), values::spec());
    let plain = SubmitRequest::new("k".into(), values::command());
    let digest = Digest([3; 32]);
    vec![
        json(0, &|| body(&full)),
        json(0, &|| body(&plain)),
        json(3, &|| br#"{"node":"n1"}"#.to_vec()),
        json(4, &|| br#"{"secret":"x","node":"n1","machine":null,"csr":"-----BEGIN"}"#.to_vec()),
        json(5, &|| br#"{"csr":"-----BEGIN"}"#.to_vec()),
        json(6, &|| br#"{"reason":"disk"}"#.to_vec()),
        json(7, &|| br#"{"indices":"0-3,5"}"#.to_vec()),
        json(8, &|| serde_json::to_vec(&DigestList { digests: vec![digest, digest] }).expect("plain data")),
        json(9, &|| br#"{"code":"x","message":"y","hints":["z"]}"#.to_vec()),
        json(9, &|| serde_json::to_vec(&JobAction::Cancel).expect("plain data")),
    ]
}
