//! IPMI with the real `ipmitool`, against two independent emulators.

use std::fs;
use std::path::Path;
use std::process::Command;

use hostler_power::{Answer, Controller, FaultKind, Supply, Verb};
use hostler_testkit::ipmi_sim;

use crate::common::{Running, Secrets, controller, free_port, program, site, wait_for};

fn bmc(port: u16, secrets: &Secrets, more: &str) -> Controller {
    let _ = program("ipmitool", "install the package ipmitool");
    let path = secrets.path();
    let text =
        format!("kind = 'ipmi'\naddress = '127.0.0.1'\nport = {port}\ncredentials = '{}'\n{more}", path.display());
    controller(&site(), &text)
}

/// Waits until the controller responds. A UDP port does not tell whether a server uses it.
async fn wait_until_it_answers(bmc: impl Fn() -> Controller) {
    let began = std::time::Instant::now();
    while began.elapsed().as_secs() < 60 {
        // A new driver for each attempt: a starting emulator may reject a correct password, which then causes a
        // back-off.
        if bmc().act(Verb::Status).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    panic!("the emulator does not answer: {:?}", bmc().act(Verb::Status).await);
}

async fn there_and_back(bmc: &Controller, off: Verb) {
    assert_eq!(bmc.act(off).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(bmc.act(Verb::On).await, Ok(Answer::Accepted));
    wait_for(bmc, Supply::On).await;
    assert_eq!(bmc.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(bmc.act(off).await, Ok(Answer::Accepted));
    wait_for(bmc, Supply::Off).await;
}

#[tokio::test]
async fn fakebmc_is_switched_and_detects_a_wrong_password() {
    let fakebmc = program("fakebmc", "install the Python package pyghmi");
    let secrets = Secrets::new("admin:password");
    let port = free_port();
    let log = secrets.directory().join("log");
    let _running = Running::start(Command::new(fakebmc).args(["--port", &port.to_string()]), &log);
    let machine = bmc(port, &secrets, "");
    wait_until_it_answers(|| bmc(port, &secrets, "")).await;
    there_and_back(&machine, Verb::OffByForce).await;
    assert_eq!(machine.watts().await, Ok(None), "the emulator has no meter");
    assert_eq!(machine.watts().await, Ok(None));

    secrets.write("admin:wrong");
    let fault = machine.act(Verb::On).await.expect_err("rejected");
    assert_eq!(fault.kind(), FaultKind::Refused, "{fault}");
    assert!(!format!("{fault:?}").contains(":wrong"));
    assert_eq!(machine.act(Verb::On).await.expect_err("the controller is in back-off").kind(), FaultKind::Refused);
    secrets.write("admin:password");
    assert_eq!(machine.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    let fault = bmc(port, &secrets, "cipher = 17")
        .act(Verb::Status)
        .await
        .expect_err("the emulator supports only cipher suite 3");
    assert!(
        fault.kind() == FaultKind::Unprepared && fault.what_to_do().is_some_and(|hint| hint.contains("cipher = 3"))
    );
    secrets.write("admin:this-password-is-longer-than-ipmi-allows");
    assert_eq!(machine.act(Verb::Status).await.expect_err("the password is too long").kind(), FaultKind::Unprepared);
}

/// An `ipmi_sim` whose chassis is a script with the state in a file.
fn simulator(directory: &Path, port: u16) -> Running {
    let program = program("ipmi_sim", "install the package openipmi");
    let chassis = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho \"$*\" >> calls\n\
                   case \"$1 $2\" in\n'get power') echo \"power:$(cat power)\";;\n'set power') echo \"$3\" > power;;\nesac\n";
    let arguments = ipmi_sim(directory, ("127.0.0.1", port), chassis);
    let mut command = Command::new(program);
    command.current_dir(directory).args(arguments);
    Running::start(&mut command, &directory.join("log"))
}

#[tokio::test]
async fn ipmi_sim_is_switched_and_accepted_does_not_mean_done() {
    let secrets = Secrets::new("admin:password");
    let directory = secrets.directory();
    let port = free_port();
    let _running = simulator(directory, port);
    let machine = bmc(port, &secrets, "cipher = 3");
    wait_until_it_answers(|| bmc(port, &secrets, "cipher = 3")).await;
    there_and_back(&machine, Verb::OffByForce).await;
    let calls = || fs::read_to_string(directory.join("calls")).unwrap_or_default();
    let switched =
        || calls().lines().filter(|call| call.starts_with("set power")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(switched(), ["set power 1", "set power 0"], "each verb is sent once");

    // The emulator accepts a graceful shutdown but does nothing.
    assert_eq!(machine.act(Verb::On).await, Ok(Answer::Accepted));
    wait_for(&machine, Supply::On).await;
    assert_eq!(machine.act(Verb::OffGracefully).await, Ok(Answer::Accepted));
    assert!(calls().contains("set shutdown 1"), "{}", calls());
    assert_eq!(machine.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(switched().len(), 3, "no forced switch-off");

    secrets.write("nobody:password");
    let fault = machine.act(Verb::Status).await.expect_err("the user does not exist");
    assert_eq!(fault.kind(), FaultKind::Refused, "{fault}");
}

#[tokio::test]
async fn silent_controller_is_unreachable() {
    let secrets = Secrets::new("admin:password");
    let fault = bmc(free_port(), &secrets, "cipher = 3").act(Verb::On).await.expect_err("no server listens");
    assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
    assert!(fault.is_worth_retrying() && fault.what_to_do().is_some());
}

/// Runs this program again with an empty search path.
#[tokio::test]
async fn missing_tool_is_named_with_its_package() {
    const ALONE: &str = "HOSTLER_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("the test program has a path"));
        again.args(["--exact", "ipmi::missing_tool_is_named_with_its_package"]);
        let output = again.env(ALONE, "1").env("PATH", "/nowhere").output().expect("the test program can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let secrets = Secrets::new("admin:password");
    for (text, package) in [
        (format!("kind = 'ipmi'\naddress = '127.0.0.1'\ncredentials = '{}'", secrets.path().display()), "ipmitool"),
        ("kind = 'slurm'\nagent = ['true']".to_owned(), "slurm-client"),
    ] {
        let fault = controller(&site(), &text).act(Verb::On).await.expect_err("the search path has no tools");
        assert_eq!(fault.kind(), FaultKind::Unprepared);
        assert!(fault.what_to_do().is_some_and(|hint| hint.ends_with(&format!("apt install {package}"))), "{fault:?}");
    }
}
