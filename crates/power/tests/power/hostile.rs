//! Faulty and hostile Redfish controllers.

use std::time::{Duration, Instant};

use hostler_power::{Answer, Controller, FaultKind, Supply, Verb};
use serde_json::json;

use crate::common::{Secrets, controller, site, wait_for};
use crate::controller::{Bmc, PASSWORD, RESET, ROOT, SESSIONS, SYSTEM, SYSTEMS, Said, USER};

const VERBS: [Verb; 4] = [Verb::Status, Verb::On, Verb::OffGracefully, Verb::OffByForce];

/// A simulated controller and a driver for it.
async fn pair() -> (Bmc, Controller, Secrets) {
    pair_within("20s").await
}

async fn pair_within(limit: &str) -> (Bmc, Controller, Secrets) {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let controller = controller(&site(), &config(&bmc, &secrets, &format!("time_limit = '{limit}'")));
    (bmc, controller, secrets)
}

fn config(bmc: &Bmc, secrets: &Secrets, more: &str) -> String {
    let (port, secrets) = (bmc.port, secrets.path());
    format!(
        "kind = 'redfish'\naddress = 'http://127.0.0.1:{port}'\ninsecure = true\ncredentials = '{}'\n{more}",
        secrets.display()
    )
}

#[tokio::test]
async fn machine_is_switched_on_and_off() {
    let (bmc, controller, _secrets) = pair().await;
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(controller.act(Verb::OffByForce).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(controller.act(Verb::OffGracefully).await, Ok(Answer::Accepted));
    wait_for(&controller, Supply::Off).await;
    let sent: Vec<_> = bmc.asked("POST", RESET).into_iter().map(|asked| asked.body).collect();
    assert_eq!(sent, [r#"{"ResetType":"On"}"#, r#"{"ResetType":"GracefulShutdown"}"#]);
    let versions: Vec<_> =
        bmc.asked("GET", SYSTEM).into_iter().filter_map(|it| it.headers.get("odata-version").cloned()).collect();
    assert!(versions.iter().all(|version| version == "4.0") && versions.len() > 4, "{versions:?}");
}

#[tokio::test]
async fn controller_that_only_sends_gzip_works() {
    let (bmc, controller, _secrets) = pair().await;
    bmc.with(|machine| {
        machine.compresses = true;
        machine.extra.insert("/redfish/v1/Chassis/1", json!({ "Power": { "@odata.id": "/power" } }));
        machine.extra.insert("/power", json!({ "PowerControl": { "PowerConsumedWatts": "87.5" } }));
    });
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(controller.watts().await, Ok(Some(87.5)));
    bmc.instead("GET", SYSTEM, Said::Json(500, vec![], json!({ "error": { "message": "out of order" } })));
    let fault = controller.act(Verb::Status).await.expect_err("an error");
    assert!(fault.why().contains("out of order"), "{fault}");
}

#[tokio::test]
async fn busy_controller_is_not_used_for_the_requested_time() {
    let (bmc, controller, _secrets) = pair().await;
    controller.act(Verb::Status).await.expect("the controller works");
    bmc.instead("GET", SYSTEM, Said::Json(503, vec![("Retry-After", "7".into())], json!({})));
    let fault = controller.act(Verb::On).await.expect_err("the controller is busy");
    assert_eq!((fault.kind(), fault.retry_after()), (FaultKind::Busy, Some(Duration::from_secs(7))));
    assert!(fault.is_worth_retrying());
    let asked = bmc.asked_in_all();
    let again = controller.act(Verb::On).await.expect_err("the controller is in back-off");
    assert_eq!(again.kind(), FaultKind::Busy);
    assert!(again.retry_after() <= fault.retry_after());
    assert_eq!(bmc.asked_in_all(), asked);
    controller.forget_faults();
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
}

#[tokio::test]
async fn silent_controller_causes_a_timeout_and_no_verb() {
    for path in [ROOT, SYSTEM] {
        for verb in VERBS {
            let (bmc, controller, _secrets) = pair_within("500ms").await;
            bmc.instead("GET", path, Said::Silence);
            let begun = Instant::now();
            let fault = controller.act(verb).await.expect_err("the controller is silent");
            assert_eq!(fault.kind(), FaultKind::Unreachable);
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
            assert!(bmc.asked("POST", RESET).is_empty());
        }
    }
}

#[tokio::test]
async fn unreachable_controller_is_a_fault_with_a_hint() {
    let secrets = Secrets::new("a:b");
    let port = crate::common::free_port();
    let text = format!(
        "kind = 'redfish'\naddress = 'http://127.0.0.1:{port}'\ninsecure = true\ncredentials = '{}'",
        secrets.path().display()
    );
    let fault = controller(&site(), &text).act(Verb::On).await.expect_err("no server listens");
    assert_eq!(fault.kind(), FaultKind::Unreachable);
    assert!(fault.to_string().contains(&port.to_string()) && fault.what_to_do().is_some(), "{fault}");
}

#[tokio::test]
async fn invalid_responses_are_not_a_state() {
    let big = format!("{{\"PowerState\":\"Off\",\"x\":\"{}\"}}", "y".repeat(10 << 20));
    let answers = [
        Said::Raw(b"HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\n{\"PowerState\":".to_vec()),
        Said::Raw(format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\n\r\n{big}", big.len()).into_bytes()),
        Said::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Said::Raw(b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec()),
        Said::Raw("[".repeat(100_000).into_bytes()),
        Said::Raw(b"HTTP/1.1 200 x\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\n\x1f\x8b\x08abc".to_vec()),
        Said::Json(200, vec![], json!([])),
        Said::Json(200, vec![], json!({ "PowerState": null })),
        Said::Json(200, vec![], json!({ "PowerState": "Perhaps" })),
        Said::Json(200, vec![], json!({ "PowerState": 1 })),
        Said::Json(200, vec![], json!("On")),
        Said::Json(204, vec![], json!({})),
        Said::Json(500, vec![], json!({ "error": { "message": "stack\u{1b}[2J trace" } })),
        Said::Json(404, vec![], json!({})),
    ];
    for said in answers {
        for verb in [Verb::Status, Verb::On, Verb::OffByForce] {
            let (bmc, controller, _secrets) = pair().await;
            bmc.instead("GET", SYSTEM, said.clone());
            let fault = controller.act(verb).await.expect_err("invalid");
            assert_eq!(fault.kind(), FaultKind::Confused, "{fault}");
            assert!(!fault.to_string().contains('\u{1b}'), "{fault}");
            assert!(bmc.asked("POST", RESET).is_empty());
            if verb == Verb::Status {
                // Then the controller works again.
                controller.forget_faults();
                assert_eq!(controller.act(verb).await, Ok(Answer::Confirmed(Supply::Off)));
            }
        }
    }
}

#[tokio::test]
async fn endless_and_invalid_lists_are_limited() {
    let (bmc, controller, _secrets) = pair().await;
    let endless = json!({ "Members": [], "Members@odata.nextLink": SYSTEMS });
    bmc.with(|machine| machine.extra.insert(SYSTEMS, endless));
    assert_eq!(controller.act(Verb::Status).await.expect_err("the list is empty").kind(), FaultKind::Confused);
    assert!(bmc.asked("GET", SYSTEMS).len() <= 16);
    controller.forget_faults();
    bmc.with(|machine| machine.extra.insert(SYSTEMS, json!({ "Members": [{ "@odata.id": "http://10.0.0.1/x" }] })));
    let fault = controller.act(Verb::Status).await.expect_err("a foreign link");
    assert!(fault.why().contains("10.0.0.1"), "{fault}");
}

#[tokio::test]
async fn graceful_shutdown_is_never_forced() {
    for (allowable, gracefully, by_force) in [
        (vec!["On", "GracefulShutdown"], Some("GracefulShutdown"), None),
        (vec!["On", "ForceOff"], None, Some("ForceOff")),
        (vec!["On", "ForceOff", "ForceRestart", "Nmi", "PushPowerButton"], Some("PushPowerButton"), Some("ForceOff")),
        (vec!["PowerCycle", "ForceRestart"], None, None),
    ] {
        for (verb, expected) in [(Verb::OffGracefully, gracefully), (Verb::OffByForce, by_force)] {
            let (bmc, controller, _secrets) = pair().await;
            bmc.with(|machine| {
                machine.power = json!("On");
                machine.allowable = Some(allowable.clone());
            });
            let result = controller.act(verb).await;
            let sent: Vec<_> = bmc.asked("POST", RESET).into_iter().map(|asked| asked.body).collect();
            match expected {
                Some(expected) => assert_eq!(sent, [json!({ "ResetType": expected }).to_string()]),
                None => {
                    assert_eq!(result.expect_err("not supported").kind(), FaultKind::Unsupported);
                    assert!(sent.is_empty(), "{sent:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn supported_reset_types_can_be_in_another_resource() {
    let (bmc, controller, _secrets) = pair().await;
    let info = "/redfish/v1/Systems/Self/ResetActionInfo";
    bmc.with(|machine| {
        let reset = json!({ "target": RESET, "@Redfish.ActionInfo": info });
        machine.extra.insert(SYSTEM, json!({ "PowerState": "Off", "Actions": { "#ComputerSystem.Reset": reset } }));
        machine.extra.insert(info, json!({ "Parameters": [{ "Name": "ResetType", "AllowableValues": ["ForceOn"] }] }));
        machine.allowable = None;
    });
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(bmc.asked("POST", RESET)[0].body, r#"{"ResetType":"ForceOn"}"#);
}

#[tokio::test]
async fn error_is_ignored_if_the_state_is_already_reached() {
    // iLO 4 returns an error if a machine that has just been switched off is switched off again.
    let refusal = || {
        Said::Json(
            400,
            vec![],
            json!({ "error": { "@Message.ExtendedInfo": [{ "MessageID": "iLO.0.10.InvalidOperationForSystemState" }] } }),
        )
    };
    let (bmc, controller, _secrets) = pair().await;
    bmc.with(|machine| machine.power = json!("On"));
    bmc.instead(
        "GET",
        SYSTEM,
        Said::Json(
            200,
            vec![],
            json!({ "PowerState": "On", "Actions": { "#ComputerSystem.Reset": { "target": RESET } } }),
        ),
    );
    bmc.with(|machine| machine.power = json!("Off"));
    bmc.instead("POST", RESET, refusal());
    assert_eq!(controller.act(Verb::OffByForce).await, Ok(Answer::Accepted));
    // But if the state does not change, the error counts.
    bmc.instead("POST", RESET, refusal());
    let fault = controller.act(Verb::On).await.expect_err("the machine stays off");
    assert_eq!(fault.kind(), FaultKind::Unsupported);
    assert!(fault.why().contains("InvalidOperationForSystemState"), "{fault}");
}

#[tokio::test]
async fn accepted_does_not_mean_done() {
    let (bmc, controller, _secrets) = pair().await;
    bmc.with(|machine| machine.obeys = false);
    for _ in 0..2 {
        assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
        assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    }
}

#[tokio::test]
async fn verb_with_a_lost_response_is_not_repeated() {
    let (bmc, controller, _secrets) = pair().await;
    controller.act(Verb::Status).await.expect("the controller works");
    bmc.instead("POST", RESET, Said::Raw(vec![]));
    let fault = controller.act(Verb::On).await.expect_err("unknown outcome");
    assert_eq!(fault.kind(), FaultKind::Unreachable);
    assert_eq!(bmc.asked("POST", RESET).len(), 1);
}

#[tokio::test]
async fn redirects_are_followed_only_within_the_controller() {
    let (bmc, controller, _secrets) = pair().await;
    let here = |to: String| Said::Json(308, vec![("Location", to)], json!({}));
    bmc.instead("GET", ROOT, here(format!("http://127.0.0.1:{}/redfish/v1/", bmc.port)));
    bmc.instead("GET", SYSTEM, here("/elsewhere".into()));
    bmc.with(|machine| machine.extra.insert("/elsewhere", json!({ "PowerState": "On" })));
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::On)));

    let stranger = Bmc::start().await;
    let away = format!("http://127.0.0.1:{}/redfish/v1/", stranger.port);
    bmc.instead("GET", SYSTEM, here(away.clone()));
    let fault = controller.act(Verb::Status).await.expect_err("a foreign redirect");
    assert!(fault.kind() == FaultKind::Confused && fault.why().contains(&away), "{fault}");
    controller.forget_faults();
    for _ in 0..6 {
        bmc.instead("GET", SYSTEM, here(SYSTEM.into()));
    }
    assert!(controller.act(Verb::Status).await.expect_err("circles").why().contains("circles"));
    assert_eq!(stranger.asked_in_all(), 0);
}

#[tokio::test]
async fn chunked_bodies_and_closed_connections_are_handled() {
    let (bmc, controller, _secrets) = pair().await;
    let chunks =
        "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{\"PowerS\r\nd\r\ntate\": \"Off\"}\r\n0\r\n\r\n";
    bmc.instead("GET", SYSTEM, Said::Raw(chunks.as_bytes().to_vec()));
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    let last = Said::Last(Box::new(Said::Json(200, vec![], json!({ "PowerState": "On" }))));
    bmc.instead("GET", SYSTEM, last);
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(bmc.asked("POST", SESSIONS).len(), 1);
}

#[tokio::test]
async fn systems_of_one_controller_are_distinguished() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    bmc.with(|machine| {
        let members = ["/s/a", "/s/b", SYSTEM].map(|path| json!({ "@odata.id": path }));
        machine.extra.insert(SYSTEMS, json!({ "Members": members }));
        machine.extra.insert("/s/a", json!({ "Name": "left", "PowerState": "On" }));
        machine.extra.insert("/s/b", json!({ "Name": "right", "PowerState": "Off" }));
    });
    for (system, expected) in [("a", Supply::On), ("right", Supply::Off), ("/s/a", Supply::On), ("LEFT", Supply::On)] {
        let controller = controller(&site(), &config(&bmc, &secrets, &format!("system = '{system}'")));
        assert_eq!(controller.act(Verb::Status).await, Ok(Answer::Confirmed(expected)), "{system}");
    }
    for more in ["", "system = 'middle'"] {
        let fault = controller(&site(), &config(&bmc, &secrets, more)).act(Verb::On).await.expect_err(more);
        assert_eq!(fault.kind(), FaultKind::Unprepared);
        assert!(fault.what_to_do().is_some_and(|hint| hint.contains("a, b, Self")), "{fault:?}");
    }
}

#[tokio::test]
async fn watts_are_read_if_the_chassis_contains_one_machine() {
    const CHASSIS: &str = "/redfish/v1/Chassis/1";
    let power = json!({ "@odata.id": "/power" });
    for (chassis, expected) in [
        (json!({ "Power": power }), Some(87.5)),
        (json!({ "Power": power, "EnvironmentMetrics": { "@odata.id": "/metrics" } }), Some(91.0)),
        (json!({ "Power": power, "Links": { "ComputerSystems": [{}, {}] } }), None),
        (json!({}), None),
    ] {
        let (bmc, controller, _secrets) = pair().await;
        bmc.with(|machine| {
            machine.extra.insert(CHASSIS, chassis);
            machine.extra.insert("/power", json!({ "PowerControl": [{ "PowerConsumedWatts": 87.5 }] }));
            machine.extra.insert("/metrics", json!({ "PowerWatts": { "Reading": 91 } }));
        });
        assert_eq!(controller.watts().await, Ok(expected));
        assert_eq!(controller.watts().await, Ok(expected));
        assert!(bmc.asked("GET", CHASSIS).len() == 1, "the driver searches the meter once");
    }
    // A meter without a reading is asked again later.
    let (bmc, controller, _secrets) = pair().await;
    bmc.with(|machine| machine.extra.insert(CHASSIS, json!({ "Power": power })));
    bmc.with(|machine| machine.extra.insert("/power", json!({ "PowerControl": [{ "PowerConsumedWatts": null }] })));
    assert_eq!(controller.watts().await, Ok(None));
    bmc.with(|machine| machine.extra.insert("/power", json!({ "PowerControl": [{ "PowerConsumedWatts": 3 }] })));
    assert_eq!(controller.watts().await, Ok(Some(3.0)));
}
