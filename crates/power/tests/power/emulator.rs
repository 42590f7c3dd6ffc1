//! Redfish against `sushy-emulator`. Its machines change their state up to three seconds after a request.

use std::process::Command;

use hostler_power::{Answer, Controller, FaultKind, Supply, Verb};
use hostler_testkit::sushy_emulator;

use crate::common::{Running, Secrets, controller, free_port, program, site, wait_for, wait_for_port};

/// An emulator of three machines. Its certificate is like that of many controllers: RSA, self-signed, X.509 version 1.
struct Emulator {
    secrets: Secrets,
    port: u16,
    _running: Running,
}

impl Emulator {
    fn start() -> Self {
        let emulator = program("sushy-emulator", "install the Python package sushy-tools");
        let secrets = Secrets::new("admin:password");
        let directory = secrets.directory();
        make_certificate(directory);
        let port = free_port();
        let arguments = sushy_emulator(directory, &["r1", "r2", "r3"].map(str::to_owned), port);
        let path = |name: &str| directory.join(name).display().to_string();
        let mut command = Command::new(emulator);
        command.env("PYTHONPATH", directory).args(arguments).args([
            "--ssl-certificate",
            &path("certificate"),
            "--ssl-key",
            &path("key"),
        ]);
        let running = Running::start(&mut command, &directory.join("log"));
        wait_for_port(port);
        Self { secrets, port, _running: running }
    }

    fn config(&self, more: &str) -> String {
        format!(
            "kind = 'redfish'\naddress = 'https://127.0.0.1:{}'\ncredentials = '{}'\n{more}",
            self.port,
            self.secrets.path().display()
        )
    }
}

fn make_certificate(directory: &std::path::Path) {
    let openssl = program("openssl", "install the package openssl");
    let script = "openssl req -new -newkey rsa:2048 -nodes -keyout key -subj /CN=ILO1234 -out request 2>/dev/null && \
                  openssl x509 -req -in request -signkey key -days 1 -out certificate 2>/dev/null && \
                  openssl x509 -in certificate -noout -text | grep -q 'Version: 1 '";
    let status = Command::new("sh").args(["-c", script]).current_dir(directory).status();
    assert!(status.is_ok_and(|status| status.success()), "{} makes no certificate", openssl.display());
}

#[tokio::test]
async fn machines_behind_one_controller_are_switched_on_and_off() {
    let emulator = Emulator::start();
    let site = site();
    let fault = controller(&site, &emulator.config("system = 'r1'"))
        .act(Verb::Status)
        .await
        .expect_err("an unknown certificate");
    assert_eq!(fault.kind(), FaultKind::Untrusted);
    let hint = fault.what_to_do().expect("a hint");
    let fingerprint = hint.split('`').nth(1).expect("the hint contains the line").to_owned();

    let fault = controller(&site, &emulator.config(&fingerprint))
        .act(Verb::On)
        .await
        .expect_err("the controller has three systems, and none is chosen");
    assert_eq!(fault.kind(), FaultKind::Unprepared);
    assert!(fault.what_to_do().is_some_and(|hint| hint.contains("uuid-r1, uuid-r2, uuid-r3")), "{fault:?}");

    let machine = |name: &str| controller(&site, &emulator.config(&format!("{fingerprint}\nsystem = '{name}'")));
    let machines = [machine("r1"), machine("uuid-r2"), machine("/redfish/v1/Systems/uuid-r3")];
    let [first, second, third] = &machines;
    tokio::join!(there_and_back(first, Verb::OffGracefully), there_and_back(second, Verb::OffByForce));
    assert_eq!(third.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)), "untouched");
    assert_eq!(third.watts().await, Ok(None));
    for machine in &machines {
        machine.leave().await;
    }

    emulator.secrets.write("admin:wrong");
    let fault = first.act(Verb::On).await.expect_err("rejected");
    assert_eq!(fault.kind(), FaultKind::Refused, "{fault}");
}

/// Switches a machine on and off. Verbs are repeated, as by a caller that has lost its state.
async fn there_and_back(machine: &Controller, off: Verb) {
    assert_eq!(machine.act(off).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(machine.act(Verb::On).await, Ok(Answer::Accepted));
    wait_for(machine, Supply::On).await;
    assert_eq!(machine.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(machine.act(off).await, Ok(Answer::Accepted));
    wait_for(machine, Supply::Off).await;
}
