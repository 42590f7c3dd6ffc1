//! Permissions of users on nodes and on machines outside the cluster.

use std::time::Duration;

use hostler_client::Token;
use hostler_client::{Client, Endpoint, RetryLimits};
use hostler_model::{Digest, JobId, PartitionName, Quota, Role, TaskId, UserName, Work};
use hostler_proto::api::{BlobRequest, ErrorBody, JobSummary};
use hostler_proto::link::{Account, HeadMessage, SystemAccounts};
use hostler_proto::partitions::{NewPartition, PartitionChange};
use hostler_proto::users::{AddUser, AuditEntry, CodeLogin, FROM_CLUSTER, KeyLogin, RELAY_HEADER};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::agent::{FakeAgent, Identity, completed, result};
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;

/// Sends a request. Returns the status, and the JSON body if there is one.
async fn ask(endpoint: &Endpoint, line: &str, headers: &str, body: &str) -> (u16, Value) {
    let mut stream = endpoint.connect().await.expect("the head listens");
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let length = body.len();
    let text = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.expect("the head reads");
    let mut answer = Vec::new();
    // The connection may end without a TLS close notification.
    let _ = soon("an answer", stream.read_to_end(&mut answer)).await;
    let split = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("headers, then a body");
    let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
    (status, serde_json::from_slice(&answer[split + 4..]).unwrap_or_default())
}

/// The error code of a rejected request.
fn word((status, body): (u16, Value)) -> String {
    assert!(status >= 400, "{status}: {body}");
    serde_json::from_value::<ErrorBody>(body).expect("an error").code
}

fn relayed(user: &str) -> String {
    format!("{RELAY_HEADER}: {user}\r\n")
}

fn name(name: &str) -> UserName {
    name.parse().expect("a valid name")
}

fn new(user: &str, uid: u32, role: Role) -> AddUser {
    AddUser { name: name(user), uid: Some(uid), role, groups: Default::default(), keys: Vec::new() }
}

#[tokio::test]
async fn node_relays_its_users_without_their_privileges() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    // Root's name with another uid is one.
    head.client().change_setting("system-accounts", Some("yes")).await.expect("an admin");
    let body = serde_json::to_string(&request("a")).expect("plain data");
    let user_of = async |said: &str| -> String {
        let key = serde_json::to_string(&request(said)).expect("plain data");
        let (status, submitted) = ask(&node, "POST /jobs", &relayed(said), &key).await;
        assert_eq!(status, 200, "{submitted}");
        let id = JobId(submitted["id"].as_u64().expect("an id"));
        head.client().job(id, 0).await.expect("the job exists").summary.user
    };
    assert_eq!(user_of("1000:ada").await, "ada");
    // Root of a node is `root@node`, under any name or uid.
    assert_eq!([user_of("0:toor").await, user_of("7:root").await], ["root@n1", "root@n1"]);
    head.client().add_user(&new("ada", 2000, Role::Admin)).await.expect("new");
    assert_eq!(word(ask(&node, "POST /jobs", &relayed("1000:ada"), &body).await), "not_their_name");
    assert_eq!(user_of("2000:ada").await, "ada@n1");
    // Another account with her uid is rejected, also without a name.
    for other in ["2000:another-name", "2000:2000"] {
        assert_eq!(word(ask(&node, "POST /jobs", &relayed(other), &body).await), "not_their_uid", "{other}");
    }
    for line in ["POST /shutdown", "GET /users", "POST /users/ada/role", "GET /audit", "POST /nodes/invite"] {
        assert_eq!(word(ask(&node, line, &relayed("2000:ada"), "{}").await), "admins_only", "{line}");
    }
    assert_eq!(word(ask(&node, "POST /nodes/n1/forget", &relayed("2000:ada"), "").await), "operators_only");
    // An agent may not use its own operations in a user's name, and vice versa.
    assert_eq!(word(ask(&node, "PUT /agent/streams/x", &relayed("2000:ada"), "").await), "agents_only");
    assert_eq!(word(ask(&node, "GET /jobs", "", "").await), "users_only");
    for damaged in ["ada", "x:ada", "1:", "-1:ada", "1:a,b", "1:2", "1:\u{85}"] {
        assert_eq!(word(ask(&node, "GET /jobs", &relayed(damaged), "").await), "bad_request", "{damaged}");
    }
    // From other clients, the header is ignored.
    let local = Endpoint::Unix(head.socket());
    assert_eq!(ask(&local, "GET /users", &relayed("1000:eve"), "").await.0, 200, "the kernel identifies the user");
    let stranger = Endpoint::remote_head(&head.address().to_string(), authority(&head).await, None);
    assert_eq!(word(ask(&stranger, "GET /jobs", &relayed("0:root"), "").await), "unknown_caller");
}

#[tokio::test]
async fn audit_log_has_the_values_before_and_after_a_change() {
    let mut head = TestHead::start().await;
    let client = head.client();
    let batch: PartitionName = "batch".parse().expect("a name");
    let change = |priority| PartitionChange { priority: Some(priority), ..PartitionChange::default() };
    let about = PartitionChange { nodes: Some("n*".parse().expect("a pattern")), ..change(1) };
    client.add_partition(&NewPartition { name: batch.clone(), about }).await.expect("new");
    client.change_partition(&batch, &change(5)).await.expect("known");
    client.change_setting("grace", Some("5s")).await.expect("a time");
    client.set_group_quota(&name("vision"), &Quota { cpus: Some(4), ..Quota::default() }).await.expect("accepted");
    let about = soon("the audit log", async {
        loop {
            let entries = client.audit(None, 10).await.expect("an admin").entries;
            if entries.len() == 4 {
                break entries.into_iter().filter_map(|entry| entry.about).collect::<Vec<_>>();
            }
        }
    })
    .await;
    assert!(about[0].contains("batch: none -> {") && about[0].contains("\"priority\":1"), "{about:?}");
    assert_eq!(about[1], "batch.priority: 1 -> 5");
    assert!(about[2].starts_with("grace: ") && about[2].ends_with(" -> 5s"), "{about:?}");
    assert!(about[3].contains("vision: none -> {") && about[3].contains("\"cpus\":4"), "{about:?}");
    head.kill();
    head.start_again().await;
    let client = head.client();
    soon("the restart", async {
        let is_restart = |entry: &AuditEntry| entry.from == FROM_CLUSTER && entry.action == "the head started again";
        while !client.audit(None, 10).await.expect("an admin").entries.iter().any(is_restart) {}
    })
    .await;
}

#[tokio::test]
async fn names_of_all_account_databases_work_and_no_two_users_become_one() {
    let head = TestHead::start().await;
    let _agent = FakeAgent::start(&head, "n1").await;
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let client = head.client();
    let names = ["carla.diaz", r"LAB\bob", "ada@lab.example", "Größe", r"LAB\jane doe", "50%"];
    for (user, uid) in names.into_iter().zip(3000..) {
        // As `hostler configure user` does.
        client.add_user(&new(user, uid, Role::User)).await.expect(user);
        client.set_role(&name(user), Role::User).await.expect(user);
        client.set_user_quota(&name(user), &Default::default()).await.expect(user);
        let body = serde_json::to_string(&request(user)).expect("plain data");
        let (status, submitted) = ask(&node, "POST /jobs", &relayed(&format!("{uid}:{user}")), &body).await;
        assert_eq!(status, 200, "{user}: {submitted}");
        let id = JobId(submitted["id"].as_u64().expect("an id"));
        assert_eq!(client.job(id, 0).await.expect("the job exists").summary.user, user);
        client.block_user(&name(user), &Default::default()).await.expect(user);
        assert_eq!(word(ask(&node, "GET /jobs", &relayed(&format!("{uid}:{user}")), "").await), "blocked", "{user}");
        client.unblock_user(&name(user)).await.expect(user);
    }
    // These names stand for users of the nodes.
    for user in ["dora@n1", "root@n2", "ada@lab.example@n2"] {
        assert_eq!(
            word(ask(&node, "GET /jobs", &relayed(&format!("4000:{user}")), "").await),
            "name_of_node",
            "{user}"
        );
        assert!(client.add_user(&new(user, 4000, Role::User)).await.is_err(), "{user}");
    }
    // An account without a name is called by its uid; no other account may have that name.
    assert_eq!(ask(&node, "GET /jobs", &relayed("4001:4001"), "").await.0, 200);
    assert_eq!(word(ask(&node, "GET /jobs", &relayed("4002:4001"), "").await), "bad_request");
}

#[tokio::test]
async fn privileged_account_has_no_rights_through_a_node_unless_an_admin_allows_it() {
    let head = TestHead::start().await;
    let _agent = FakeAgent::start(&head, "n1").await;
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let client = head.client();
    let submit = async |said: &str, key: &str| {
        let body = serde_json::to_string(&request(key)).expect("plain data");
        ask(&node, "POST /jobs", &relayed(said), &body).await
    };
    let (_, submitted) = submit("2000:ada", "before").await;
    let id = submitted["id"].as_u64().expect("an id");
    for (user, uid, role) in [("ada", 2000, Role::Admin), ("olga", 2001, Role::Operator), ("ben", 2002, Role::User)] {
        client.add_user(&new(user, uid, role)).await.expect("new");
    }
    // Neither submissions in her name nor actions on her jobs work, and the error tells what to do.
    for said in ["2000:ada", "2001:olga"] {
        let (status, body) = submit(said, "a").await;
        assert_eq!(status, 403, "{body}");
        let text = body.to_string();
        assert!(text.contains("not_through_nodes") && text.contains("@n2") && text.contains("hostler login"), "{text}");
    }
    for line in ["cancel", "hold", "requeue"].map(|verb| format!("POST /jobs/{id}/{verb}")) {
        assert_eq!(word(ask(&node, &line, &relayed("2000:ada"), "{}").await), "not_yours", "{line}");
    }
    let output = format!("GET /jobs/{id}/tasks/0/output/stdout");
    let (_, body) = ask(&node, &output, &relayed("2000:ada"), "").await;
    assert!(body.to_string().contains("requests through this node come from ada@n2"), "{body}");
    assert_eq!(submit("2002:ben", "b").await.0, 200, "users can still submit");

    // Only an admin can allow it, and it does not apply to root.
    let change = |value: &str| format!("{{\"value\":\"{value}\"}}");
    let line = "PUT /settings/roles-through-nodes";
    client.change_setting("roles-through-nodes", Some("yes")).await.expect("permitted");
    assert_eq!(submit("2000:ada", "c").await.0, 200);
    assert_eq!(word(ask(&node, line, &relayed("2001:olga"), &change("yes")).await), "admins_only");
    assert_eq!(ask(&node, "GET /users", &relayed("2000:ada"), "").await.0, 200, "with her role");
    assert_eq!(word(submit("0:root", "d").await), "not_for_root");
    assert_eq!(ask(&node, line, &relayed("2000:ada"), &change("no")).await.0, 200);
    assert_eq!(word(submit("2000:ada", "e").await), "not_through_nodes");
}

#[tokio::test]
async fn copy_of_another_users_job_has_none_of_its_environment_variables() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let mut asked = request("a");
    asked.spec.environment.insert("TOKEN".to_owned(), "secret".to_owned());
    if let Work::Command { script, .. } = &mut asked.spec.work {
        *script = Some("#!/bin/sh\n".to_owned());
    }
    let body = serde_json::to_string(&asked).expect("plain data");
    let (status, submitted) = ask(&node, "POST /jobs", &relayed("1000:ada"), &body).await;
    assert_eq!(status, 200, "{submitted}");
    let variables = async |agent: &mut FakeAgent| {
        let spec = agent.next_launch().await.job.spec;
        assert!(format!("{:?}", spec.work).contains("/bin/sh"), "the copy has the script");
        spec.environment.contains_key("TOKEN")
    };
    assert!(variables(&mut agent).await);
    let line = format!("POST /jobs/{}/duplicate", submitted["id"]);
    let own = ask(&node, &line, &relayed("1000:ada"), r#"{"key":"own"}"#).await;
    assert_eq!(own.0, 200, "{}", own.1);
    assert!(variables(&mut agent).await, "her own copy has them");
    // The account that runs the head is an admin, and reads the job's output.
    let local = Endpoint::Unix(head.socket());
    for change in [r#"{"key":"b"}"#, r#"{"key":"c","argv":["env"]}"#, r#"{"key":"d","name":"x"}"#] {
        assert_eq!(word(ask(&local, &line, "", change).await), "no_environment", "{change}");
    }
    let (status, copy) = ask(&local, &line, "", r#"{"key":"e","without_environment":true}"#).await;
    assert_eq!(status, 200, "{copy}");
    assert!(!variables(&mut agent).await, "an admin's copy does not");
}

async fn authority(head: &TestHead) -> Digest {
    head.client().info().await.expect("a response").head.authority.expect("the head has an authority")
}

#[tokio::test]
async fn digest_alone_does_not_give_access_to_content() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let body = serde_json::to_string(&request("a")).expect("plain data");
    let (_, submitted) = ask(&node, "POST /jobs", &relayed("1000:ada"), &body).await;
    let id = JobId(submitted["id"].as_u64().expect("an id"));
    let run = agent.next_launch().await.runs[0].run;
    agent.report(run, completed(run, b"secret\n")).await;
    head.client().job_when_ended(id, 1, Duration::from_secs(20)).await.expect("the job ends");
    let manifest = result(run, b"secret\n").0;
    let fetch = async |user: &str, digest: Digest, results: Vec<TaskId>| {
        let body = BlobRequest { digests: vec![digest], results };
        let body = serde_json::to_string(&body).expect("plain data");
        ask(&node, "POST /blobs/fetch", &relayed(user), &body).await
    };
    let mine = vec![TaskId { job: id, index: 0 }];
    let chunk = hostler_snapshot::chunk::digest_of(b"secret\n");
    for digest in [manifest, chunk] {
        assert_eq!(fetch("1000:ada", digest, mine.clone()).await.0, 200);
        assert_eq!(word(fetch("1000:ada", digest, Vec::new()).await), "not_in_results");
        assert_eq!(word(fetch("1001:ben", digest, mine.clone()).await), "not_yours");
        assert_eq!(word(fetch("1001:ben", digest, Vec::new()).await), "not_in_results");
        let line = format!("GET /blobs/{digest}");
        assert_eq!(word(ask(&node, &line, &relayed("1001:ben"), "").await), "not_in_results");
        let line = format!("GET /blobs/{digest}?result={id}_0");
        assert_eq!(word(ask(&node, &line, &relayed("1001:ben"), "").await), "not_yours");
        assert_eq!(ask(&node, &line, &relayed("1000:ada"), "").await.0, 200);
    }
    let elsewhere = hostler_snapshot::chunk::digest_of(b"somebody else's");
    assert_eq!(word(fetch("1000:ada", elsewhere, mine).await), "not_in_results");
    // The job's output and the digests of its content are hidden too.
    for path in [format!("/jobs/{id}/tasks/0/output/stdout"), format!("/results?jobs={id}")] {
        assert_eq!(word(ask(&node, &format!("GET {path}"), &relayed("1001:ben"), "").await), "not_yours");
    }
    let (_, seen) = ask(&node, &format!("GET /jobs/{id}"), &relayed("1001:ben"), "").await;
    assert!(!seen.to_string().contains(&manifest.to_string()), "{seen}");
    let summary: JobSummary = serde_json::from_value(seen).expect("a job");
    assert_eq!(summary.user, "ada");
}

#[tokio::test]
async fn failed_logins_get_the_same_error_and_many_block_no_valid_one() {
    let head = TestHead::start().await;
    head.client().add_user(&new("ada", 2000, Role::User)).await.expect("new");
    let address = head.address().to_string();
    let authority = authority(&head).await;
    let client = |token: Option<&str>| {
        let token = token.map(|token| Token(token.to_owned()));
        Client::new(Endpoint::remote_head(&address, authority, token)).with_retry_limits(RetryLimits::NONE)
    };
    let stranger = client(None);
    let login = |user: &str, nonce: &str| KeyLogin {
        user: user.to_owned(),
        nonce: nonce.to_owned(),
        signature: "rubbish".to_owned(),
    };
    let nonce = stranger.login_challenge(&authority, "ada").await.expect("permitted").nonce;
    assert_eq!(code(stranger.login_by_key(&login("ada", &nonce)).await), "bad_key");
    assert_eq!(code(stranger.login_by_key(&login("ada", "guess")).await), "bad_challenge");
    assert_eq!(code(stranger.login_by_code(&CodeLogin { secret: "guess".to_owned() }).await), "bad_code");
    assert_eq!(code(client(Some("guess")).jobs(&Default::default()).await), "bad_token");
    let code_text = head.client().invite_user(&name("ada")).await.expect("a known user").code;
    let invited: hostler_proto::join::LoginCode = code_text.parse().expect("a login code");
    let logged_in = stranger.login_by_code(&CodeLogin { secret: invited.secret }).await.expect("invited");
    assert_eq!((logged_in.user, logged_in.role), (name("ada"), Role::User));
    let ada = client(Some(&logged_in.token));
    ada.submit(&request("a")).await.expect("permitted");
    assert_eq!(code(ada.users().await), "admins_only");
    assert_eq!(ada.user(&name("ada")).await.expect("her own data").uid, 2000);
    assert_eq!(code(ada.user(&name("ben")).await), "admins_only", "must not tell whether the user exists");
    // A role change takes effect with the next request. A token has no role of its own.
    head.client().set_role(&name("ada"), Role::Admin).await.expect("known");
    assert_eq!(ada.users().await.expect("an admin").len(), 1);
    head.client().remove_user(&name("ada")).await.expect("known");
    assert_eq!(code(ada.users().await), "bad_token");
    // Her old token stays void when a new user gets her name.
    head.client().add_user(&new("ada", 2001, Role::Admin)).await.expect("new");
    assert_eq!(code(ada.users().await), "bad_token");
    for _ in 0..7 {
        assert_eq!(code(stranger.login_by_code(&CodeLogin { secret: "guess".to_owned() }).await), "bad_code");
    }
    assert_eq!(code(stranger.login_by_code(&CodeLogin { secret: "guess".to_owned() }).await), "too_many_logins");
    // Others with the same address log in all the same.
    let nonce = stranger.login_challenge(&authority, "ada").await.expect("permitted").nonce;
    assert_eq!(code(stranger.login_by_key(&login("ada", &nonce)).await), "too_many_logins");
    let code_text = head.client().invite_user(&name("ada")).await.expect("a known user").code;
    let invited: hostler_proto::join::LoginCode = code_text.parse().expect("a login code");
    stranger.login_by_code(&CodeLogin { secret: invited.secret }).await.expect("a valid code");
}

#[tokio::test]
async fn quota_is_a_waiting_reason_and_agents_receive_accounts() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    client.add_user(&new("ada", 2000, Role::User)).await.expect("new");
    let accounts = vec![Account { name: name("ada"), uid: 2000 }];
    let system = SystemAccounts::default();
    let message = HeadMessage::Accounts { accounts, blocked: Vec::new(), guarded: Vec::new(), system };
    assert_eq!(agent.next().await, Some(message));
    client.set_user_quota(&name("ada"), &Quota { jobs: Some(1), ..Quota::default() }).await.expect("known");
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let mut ids = Vec::new();
    for key in ["a", "b"] {
        let body = serde_json::to_string(&request(key)).expect("plain data");
        let (_, submitted) = ask(&node, "POST /jobs", &relayed("2000:ada"), &body).await;
        ids.push(JobId(submitted["id"].as_u64().expect("an id")));
    }
    agent.next_launch().await;
    let why = client.why(ids[1]).await.expect("the job exists");
    assert!(why.lines[0].contains("the quota of ada limits running jobs to 1 task"), "{:?}", why.lines);
    let mut large = request("c");
    large.spec.request.cpus = Some(2);
    client.set_user_quota(&name("ada"), &Quota { cpus: Some(1), ..Quota::default() }).await.expect("known");
    let body = serde_json::to_string(&large).expect("plain data");
    assert_eq!(word(ask(&node, "POST /jobs", &relayed("2000:ada"), &body).await), "over_quota");
}

#[tokio::test]
async fn user_cannot_raise_the_priority_of_a_job_or_of_its_copy() {
    let head = TestHead::start().await;
    let node = Identity::join(&head, "n1").await.endpoint(&head);
    let with = |key: &str, priority: i32| {
        let mut wanted = request(key);
        wanted.spec.priority = priority;
        wanted
    };
    let submit = async |key: &str, priority: i32| {
        let body = serde_json::to_string(&with(key, priority)).expect("plain data");
        ask(&node, "POST /jobs", &relayed("2000:ada"), &body).await
    };
    let (status, submitted) = submit("low", -5).await;
    assert_eq!(status, 200, "{submitted}");
    let (status, body) = submit("high", 7).await;
    assert_eq!(status, 403, "{body}");
    let text = body.to_string();
    assert!(text.contains("at most 0") && text.contains("hostler configure setting user-priority 7"), "{text}");

    let line = format!("POST /jobs/{}/duplicate", submitted["id"]);
    let copy = async |key: &str, priority: i32| {
        let body = format!("{{\"key\":\"{key}\",\"priority\":{priority}}}");
        ask(&node, &line, &relayed("2000:ada"), &body).await
    };
    assert_eq!(word(copy("high copy", 1).await), "priority_too_high");
    assert_eq!(copy("low copy", 0).await.0, 200);

    let client = head.client();
    client.submit(&with("by an admin", 1_000)).await.expect("admins may set any priority");
    client.change_setting("user-priority", Some("5")).await.expect("a number");
    assert_eq!(submit("raised", 5).await.0, 200);
    assert_eq!(word(submit("too high", 6).await), "priority_too_high");
}

#[tokio::test]
async fn only_an_admin_allows_system_accounts_to_submit_jobs() {
    let head = TestHead::start().await;
    let _agent = FakeAgent::start(&head, "n1").await;
    let node = Identity::join(&head, "n2").await.endpoint(&head);
    let client = head.client();
    let submit = async |said: &str, key: &str| {
        let body = serde_json::to_string(&request(key)).expect("plain data");
        ask(&node, "POST /jobs", &relayed(said), &body).await
    };
    // A copy of a job is a submission as well.
    let copy = async |said: &str, id: &Value, key: &str| {
        ask(&node, &format!("POST /jobs/{id}/duplicate"), &relayed(said), &format!("{{\"key\":\"{key}\"}}")).await
    };
    for said in ["1:daemon", "5:games", "999:munge", "65534:nobody"] {
        let (status, body) = submit(said, said).await;
        assert_eq!(status, 403, "{said}: {body}");
        let text = body.to_string();
        for part in ["system_account", "configure setting system-accounts yes", "configure user add"] {
            assert!(text.contains(part), "{said}: {text}");
        }
        assert_eq!(ask(&node, "GET /jobs", &relayed(said), "").await.0, 200, "{said} may look");
    }
    assert_eq!(submit("2000:ada", "a").await.0, 200, "the account of a person");

    client.add_user(&new("olga", 2001, Role::Operator)).await.expect("new");
    let code_text = client.invite_user(&name("olga")).await.expect("a known user").code;
    let invited: hostler_proto::join::LoginCode = code_text.parse().expect("a login code");
    let remote = |token| Endpoint::remote_head(&head.address().to_string(), invited.authority, token);
    let login = CodeLogin { secret: invited.secret.clone() };
    let token = Client::new(remote(None)).login_by_code(&login).await.expect("invited").token;
    let olga = Client::new(remote(Some(Token(token))));
    olga.change_setting("retention", Some("2d")).await.expect("operators change other settings");
    assert_eq!(code(olga.change_setting("system-accounts", Some("yes")).await), "admins_only");
    let line = "PUT /settings/system-accounts";
    assert_eq!(word(ask(&node, line, &relayed("1:daemon"), "{\"value\":\"yes\"}").await), "operators_only");

    client.change_setting("system-accounts", Some("yes")).await.expect("root is an admin");
    let (status, submitted) = submit("1:daemon", "b").await;
    assert_eq!(status, 200, "{submitted}");
    assert_eq!(copy("1:daemon", &submitted["id"], "c").await.0, 200);
    client.change_setting("system-accounts", None).await.expect("root is an admin");
    assert_eq!(word(submit("1:daemon", "d").await), "system_account");
    assert_eq!(word(copy("1:daemon", &submitted["id"], "e").await), "system_account");
}
