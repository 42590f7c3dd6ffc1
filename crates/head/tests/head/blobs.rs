//! Upload and download of blobs, and results that were uploaded before their report.

use std::time::Duration;

use bytes::Bytes;
use hostler_client::OutputPart;
use hostler_model::{Digest, JobState};
use hostler_proto::link::RunStatus;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind, Manifest, VERSION};
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::{pack, wire};

use crate::agent::{FakeAgent, completed, result};
use crate::harness::{TestHead, request};
use crate::jobs::code;

/// A pack with one chunk.
fn packed(name: &Digest, raw: &[u8]) -> Bytes {
    pack::frame(name, &wire::encode(raw)).expect("short").into()
}

#[tokio::test]
async fn chunk_with_a_wrong_digest_is_rejected_and_earlier_chunks_are_kept() {
    let head = TestHead::start().await;
    let client = head.client();
    let (good, claimed) = (digest_of(b"good"), digest_of(b"what it is said to be"));
    let body = [packed(&good, b"good"), packed(&claimed, b"what it is")].concat();
    assert_eq!(code(client.send_pack(body.into()).await), "bad_chunk");
    assert_eq!(client.missing_blobs(vec![good, claimed]).await.expect("a response"), [claimed]);
    assert_eq!(code(client.fetch_pack(vec![good, claimed]).await), "no_such_blob");

    let half = packed(&claimed, b"what it is said to be");
    assert_eq!(code(client.send_pack(half.slice(..half.len() - 1)).await), "bad_pack");
    assert_eq!(code(client.send_pack(Bytes::from_static(&[0xff; 64])).await), "bad_pack");
    client.send_pack(half).await.expect("a complete pack is accepted");
}

#[tokio::test]
async fn complete_folder_can_be_submitted_and_survives_a_kill() {
    let mut head = TestHead::start().await;
    let client = head.client();
    let content = Content { size: 4, chunks: vec![Chunk { digest: digest_of(b"code"), len: 4 }] };
    let kind = EntryKind::File(content);
    let entry = Entry { path: b"main.py".to_vec(), mode: 0o644, modified_ns: 0, kind };
    let manifest = hostler_proto::encode(&Manifest { version: VERSION, entries: vec![entry] });
    let name = digest_of(&manifest);
    client.send_pack(packed(&name, &manifest)).await.expect("taken");
    assert_eq!(code(client.commit_snapshot(&name).await), "chunks_missing");
    let mut project = request("project");
    project.spec.work =
        hostler_model::Work::Project { snapshot: name, entrypoint: "main.py".to_owned(), args: Vec::new() };
    assert_eq!(code(client.submit(&project).await), "snapshot_missing");
    client.send_pack(packed(&digest_of(b"code"), b"code")).await.expect("taken");
    client.commit_snapshot(&name).await.expect("complete");
    let id = client.submit(&project).await.expect("accepted").id;
    head.kill();
    head.start_again().await;
    let client = head.client();
    assert_eq!(client.job(id, 0).await.expect("the job exists").snapshot, Some(name));
    assert!(client.missing_blobs(vec![name, digest_of(b"code")]).await.expect("a response").is_empty());
}

#[tokio::test]
async fn job_completes_with_an_uploaded_result() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    let id = client.submit(&request("a")).await.expect("accepted").id;
    let run = agent.next_launch().await.runs[0].run;
    let (manifest, blobs) = result(run, b"large");
    for blob in &blobs {
        agent.client.send_pack(packed(&digest_of(blob), blob)).await.expect("taken");
    }
    agent.client.commit_snapshot(&manifest).await.expect("complete");
    let RunStatus::Ended(mut end) = completed(run, b"large") else { panic!("an ending") };
    end.result.as_mut().expect("the end has a result").inline.clear();
    agent.report(run, RunStatus::Ended(end)).await;
    let ended = client.job_when_ended(id, 1, Duration::from_secs(20)).await.expect("a response");
    assert_eq!((ended.summary.state, ended.tasks_shown[0].result), (JobState::Completed, Some(manifest)));
    let mut output = client
        .output(run.task, hostler_proto::link::Output::Stdout, &OutputPart::default())
        .await
        .expect("the job exists");
    assert_eq!(output.next().await.expect("ok"), Some(Bytes::from_static(b"large")));
}
