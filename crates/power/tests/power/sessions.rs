//! Sessions, passwords, and reactions to their rejection.

use std::time::{Duration, Instant};

use hostler_power::{Answer, FaultKind, Supply, Verb};
use serde_json::json;

use crate::common::{Secrets, controller, site, try_controller};
use crate::controller::{Bmc, PASSWORD, ROOT, SESSIONS, SYSTEM, Said, USER};

fn config(bmc: &Bmc, secrets: &Secrets) -> String {
    let (port, secrets) = (bmc.port, secrets.path());
    format!(
        "kind = 'redfish'\naddress = 'http://127.0.0.1:{port}'\ninsecure = true\ncredentials = '{}'",
        secrets.display()
    )
}

const OFF: Answer = Answer::Confirmed(Supply::Off);

#[tokio::test]
async fn one_session_serves_all_nodes_of_a_controller_and_is_closed() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let site = site();
    let [first, second] = [0, 1].map(|_| controller(&site, &config(&bmc, &secrets)));
    for _ in 0..3 {
        assert_eq!(first.act(Verb::Status).await, Ok(OFF));
        assert_eq!(second.act(Verb::Status).await, Ok(OFF));
    }
    assert_eq!(bmc.asked("POST", SESSIONS).len(), 1);
    assert!(bmc.asked("GET", SYSTEM).iter().all(|asked| !asked.headers.contains_key("authorization")));
    first.leave().await;
    assert_eq!(bmc.with(|machine| machine.sessions.len()), 0);
    assert_eq!(second.act(Verb::Status).await, Ok(OFF));
    assert_eq!(bmc.asked("POST", SESSIONS).len(), 2);
}

#[tokio::test]
async fn nodes_of_one_controller_take_turns() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let site = site();
    let [first, second] = [0, 1].map(|_| controller(&site, &config(&bmc, &secrets)));
    let begun = Instant::now();
    let (a, b, c) = tokio::join!(first.act(Verb::Status), second.act(Verb::Status), first.act(Verb::Status));
    assert_eq!((a, b, c), (Ok(OFF), Ok(OFF), Ok(OFF)));
    assert!(begun.elapsed() >= Duration::from_secs(1), "two gaps of half a second: {:?}", begun.elapsed());
}

#[tokio::test]
async fn fault_of_a_controller_applies_to_all_its_nodes() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let site = site();
    let [first, second] = [0, 1].map(|_| controller(&site, &config(&bmc, &secrets)));
    assert_eq!(first.act(Verb::Status).await, Ok(OFF));
    bmc.instead("GET", SYSTEM, Said::Json(503, vec![("Retry-After", "30".into())], json!({})));
    assert_eq!(first.act(Verb::Status).await.expect_err("the controller is busy").kind(), FaultKind::Busy);
    let asked = bmc.asked_in_all();
    let fault = second.act(Verb::On).await.expect_err("the controller is in back-off");
    assert!(fault.kind() == FaultKind::Busy && fault.retry_after() > Some(Duration::from_secs(20)), "{fault:?}");
    assert_eq!(bmc.asked_in_all(), asked);
    second.forget_faults();
    // A fault of one system affects only that system.
    bmc.instead("GET", SYSTEM, Said::Json(200, vec![], json!({ "PowerState": null })));
    assert_eq!(first.act(Verb::Status).await.expect_err("the answer contains no state").kind(), FaultKind::Confused);
    assert_eq!(second.act(Verb::Status).await, Ok(OFF));
    assert_eq!(first.act(Verb::Status).await.expect_err("the controller is in back-off").kind(), FaultKind::Confused);
}

#[tokio::test]
async fn expired_session_is_created_again() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let controller = controller(&site(), &config(&bmc, &secrets));
    assert_eq!(controller.act(Verb::Status).await, Ok(OFF));
    bmc.with(|machine| machine.sessions.clear());
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(bmc.asked("POST", SESSIONS).len(), 2);
}

#[tokio::test]
async fn rejection_of_a_session_by_other_controllers_is_recognised() {
    let ilo = json!({ "error": { "@Message.ExtendedInfo": { "MessageId": "Base.1.4.NoValidSession" } } });
    for (status, body) in [(401, json!({})), (403, json!({})), (403, ilo.clone()), (400, ilo)] {
        let bmc = Bmc::start().await;
        let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
        let controller = controller(&site(), &config(&bmc, &secrets));
        assert_eq!(controller.act(Verb::Status).await, Ok(OFF));
        bmc.instead("GET", SYSTEM, Said::Json(status, vec![], body.clone()));
        assert_eq!(controller.act(Verb::Status).await, Ok(OFF), "{status} {body}");
        assert_eq!(bmc.asked("POST", SESSIONS).len(), 2);
    }
}

#[tokio::test]
async fn password_is_sent_if_no_session_is_available() {
    let limit = json!({ "error": { "@Message.ExtendedInfo": [{ "MessageId": "Base.1.8.SessionLimitExceeded" }] } });
    for instead in [None, Some(Said::Json(503, vec![], limit)), Some(Said::Json(405, vec![], json!({})))] {
        let bmc = Bmc::start().await;
        let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
        bmc.with(|machine| machine.has_sessions = instead.is_some());
        if let Some(instead) = instead {
            bmc.instead("POST", SESSIONS, instead);
        }
        let controller = controller(&site(), &config(&bmc, &secrets));
        assert_eq!(controller.act(Verb::Status).await, Ok(OFF));
        assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
        assert!(bmc.asked("GET", SYSTEM).iter().all(|asked| asked.headers.contains_key("authorization")));
        assert!(bmc.asked("POST", SESSIONS).len() <= 1, "no attempt per request");
    }
}

#[tokio::test]
async fn password_is_sent_only_to_a_redfish_controller() {
    let printer = || Said::Raw(b"HTTP/1.1 200 x\r\ncontent-length: 6\r\n\r\n<html>".to_vec());
    for more in ["", "system = '/redfish/v1/Systems/Self'"] {
        let bmc = Bmc::start().await;
        let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
        bmc.with(|machine| machine.has_sessions = false);
        bmc.instead("GET", ROOT, printer());
        let controller = controller(&site(), &format!("{}\n{more}", config(&bmc, &secrets)));
        let fault = controller.act(Verb::On).await.expect_err("a printer");
        assert_eq!(fault.kind(), FaultKind::Confused);
        assert_eq!(bmc.asked_in_all(), 1);
        assert!(!bmc.asked("GET", ROOT)[0].headers.contains_key("authorization"));
    }
}

#[tokio::test]
async fn rejected_password_is_not_sent_again_until_it_changes() {
    for has_sessions in [true, false] {
        let bmc = Bmc::start().await;
        let secrets = Secrets::new(&format!("{USER}:wrong"));
        bmc.with(|machine| machine.has_sessions = has_sessions);
        let controller = controller(&site(), &config(&bmc, &secrets));
        let fault = controller.act(Verb::On).await.expect_err("rejected");
        assert_eq!(fault.kind(), FaultKind::Refused);
        assert!(!fault.is_worth_retrying());
        let hint = fault.what_to_do().expect("a hint").to_owned();
        assert!(hint.contains(&secrets.path().display().to_string()), "{hint}");
        assert!(!format!("{fault:?}").contains("wrong\"") && !format!("{fault:?}").contains(":wrong"));
        let asked = bmc.asked_in_all();
        for _ in 0..3 {
            let fault = controller.act(Verb::On).await.expect_err("the password is still rejected");
            assert_eq!(
                (fault.kind(), fault.retry_after()),
                (FaultKind::Refused, None),
                "a new password needs no pause"
            );
            assert!(fault.what_to_do().is_some_and(|hint| hint.contains("not used again for ")), "{fault:?}");
        }
        assert_eq!(bmc.asked_in_all(), asked, "repeated attempts would lock the account");
        secrets.write(&format!("{USER}:{PASSWORD}"));
        assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
    }
}

#[tokio::test]
async fn missing_permission_is_reported() {
    let bmc = Bmc::start().await;
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let controller = controller(&site(), &config(&bmc, &secrets));
    // Also with a new session.
    for _ in 0..2 {
        let refusal = json!({ "error": { "message": "Insufficient privilege" } });
        bmc.instead("GET", SYSTEM, Said::Json(403, vec![], refusal));
    }
    let fault = controller.act(Verb::On).await.expect_err("the user has no permission");
    assert_eq!(fault.kind(), FaultKind::Refused);
    assert!(fault.why().contains("Insufficient privilege") && fault.what_to_do().is_some(), "{fault:?}");
    assert_eq!(bmc.with(|machine| machine.sessions.len()), 1, "no session stays open unused");
    assert_eq!(controller.act(Verb::On).await, Ok(Answer::Accepted));
}

#[test]
fn password_is_sent_unencrypted_only_with_permission() {
    let fault = try_controller(&site(), "kind = 'redfish'\naddress = 'http://10.0.0.1'\ncredentials = '/x'").map(drop);
    let fault = fault.expect_err("not permitted");
    assert!(fault.kind() == FaultKind::Unprepared && fault.what_to_do().is_some_and(|hint| hint.contains("insecure")));
}
