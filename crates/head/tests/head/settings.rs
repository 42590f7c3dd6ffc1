//! Settings through the API: lists, changes, validation, persistence, and defaults for submissions.

use std::time::Duration;

use hostler_client::{Client, RecordFilter};
use hostler_model::{PartialRequest, RequestedTime, Submission};
use hostler_proto::settings::{SettingSource, SettingView};

use crate::agent::FakeAgent;
use crate::harness::{TestHead, request, soon};
use crate::jobs::code;

async fn setting(client: &Client, name: &str) -> SettingView {
    let all = client.settings().await.expect("a response");
    all.into_iter().find(|setting| setting.name == name).expect("the setting exists")
}

#[tokio::test]
async fn changed_setting_is_listed_with_its_user_and_survives_a_restart() {
    let mut head = TestHead::start().await;
    let before = setting(&head.client(), "retention").await;
    assert_eq!((before.value.as_str(), before.source, before.by), ("14d", SettingSource::Default, None));
    let changed = head.client().change_setting("retention", Some("36h")).await.expect("a time");
    assert_eq!((changed.value.as_str(), changed.source), ("36h", SettingSource::Set));
    assert!(changed.by.is_some() && changed.set_at.is_some(), "{changed:?}");
    head.client().change_setting("results-cap", Some("3G")).await.expect("a size");
    head.kill();
    head.start_again().await;
    let client = head.client();
    assert_eq!(setting(&client, "retention").await, changed);
    assert_eq!(client.info().await.expect("a response").head.results_cap_bytes, 3 << 30);
    let reset = client.change_setting("retention", None).await.expect("the setting can be reset");
    assert_eq!((reset.value.as_str(), reset.source, reset.by), ("14d", SettingSource::Default, None));
    client.change_setting("results-cap", None).await.expect("the setting can be reset");
    assert!(client.info().await.expect("a response").head.results_cap_bytes != 3 << 30);
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let head = TestHead::start().await;
    let client = head.client();
    assert_eq!(code(client.change_setting("retension", Some("1d")).await), "no_such_setting");
    assert_eq!(code(client.change_setting("retention", Some("soon")).await), "bad_setting");
    assert_eq!(code(client.change_setting("suspect-after", Some("1h")).await), "bad_setting");
}

#[tokio::test]
async fn settings_fill_unspecified_values_of_a_submission() {
    let head = TestHead::start().await;
    let mut agent = FakeAgent::start(&head, "n1").await;
    let client = head.client();
    client.change_setting("default-memory", Some("64M")).await.expect("a size");
    client.change_setting("default-time-limit", Some("2h")).await.expect("a time");
    let mut open = request("open");
    open.spec = Submission { time_limit_ms: None, ..open.spec.resized(PartialRequest::default(), None, None, None) };
    client.submit(&open).await.expect("accepted");
    let spec = agent.next_launch().await.job.spec;
    assert_eq!((spec.request.cpus, spec.request.memory_bytes), (1, 64 << 20));
    assert_eq!(spec.time_limit_ms, Some(7_200_000));
    client.submit(&request("said")).await.expect("accepted");
    let spec = agent.next_launch().await.job.spec;
    assert_eq!((spec.request.memory_bytes, spec.time_limit_ms), (8 << 20, None), "explicit values have precedence");
}

#[tokio::test]
async fn job_begins_a_duration_after_its_submission_by_the_heads_clock() {
    let head = TestHead::start().await;
    let client = head.client();
    let mut later = request("later");
    later.spec.begin = Some(Box::new(RequestedTime::In { in_ms: 3_600_000 }));
    let earliest = client.me().await.expect("a user").now.0 + 3_600_000;
    let id = client.submit(&later).await.expect("accepted").id;
    let latest = client.me().await.expect("a user").now.0 + 3_600_000;
    let filter = RecordFilter { jobs: vec![id], ..RecordFilter::default() };
    let begin = client.records(&filter).await.expect("a response")[0].begin_at.expect("a time").0;
    assert!((earliest..=latest).contains(&begin), "{earliest} {begin} {latest}");
}

#[tokio::test]
async fn info_describes_the_machine_and_lists_show_commands_on_request() {
    let head = TestHead::start().await;
    let client = head.client();
    let machine = client.info().await.expect("a response").head.machine.expect("detected");
    assert!(!machine.name.is_empty() && machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
    client.submit(&request("a")).await.expect("accepted");
    for commands in [false, true] {
        let filter = hostler_client::JobFilter { commands, ..Default::default() };
        let page = client.jobs(&filter).await.expect("a response");
        assert_eq!(page.jobs[0].command.as_deref(), commands.then_some("true"));
    }
}

#[tokio::test]
async fn info_names_a_node_of_power_toml_that_does_not_exist() {
    let head = TestHead::start().await;
    let text = "[nodes.n77]\ncontroller = { kind = \"wake_on_lan\", mac = \"00:11:32:a1:b2:c3\" }\n";
    std::fs::write(head.path("power.toml"), text).expect("writable");
    let client = head.client();
    let warning = soon("the warning", async {
        loop {
            if let Some(warning) = client.info().await.expect("a response").head.warning {
                break warning;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(warning, "power.toml names n77, but no node has this name");
    assert!(client.energy().await.expect("a response").nodes.is_empty(), "nothing to switch uses no energy");
}
