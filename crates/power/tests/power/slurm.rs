//! A node borrowed from a real Slurm on this machine.

use std::fs;
use std::path::Path;

use hostler_power::{Answer, Controller, FaultKind, Supply, Verb};
use hostler_testkit::{Slurm, wait_until};

use crate::common::{controller, free_port, program, site, wait_for};

/// A driver that borrows a node and runs this shell script as its agent.
fn driver(slurm: &Slurm, agent: &str, more: &str) -> Controller {
    let conf = slurm.path("slurm.conf");
    let text = format!(
        "kind = 'slurm'\nagent = ['sh', '-c', '''{agent}''']\npartition = 'idle'\nenvironment = {{ SLURM_CONF = '{}' }}\n{more}",
        conf.display()
    );
    controller(&site(), &text)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test]
async fn node_is_borrowed_and_returned() {
    let slurm = Slurm::start();
    let here = slurm.path("");
    let agent = format!(
        "trap \"echo told > {0}/agent; exit\" TERM; echo \"$PROLOGUE $SLURMD_NODENAME\" > {0}/agent; for n in $(seq 900); do sleep 0.1; done",
        here.display()
    );
    let node = driver(&slurm, &agent, "prologue = 'export PROLOGUE=first'\noptions = ['--time=10', '--ntasks=1']");
    assert_eq!(node.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    assert_eq!(node.act(Verb::On).await, Ok(Answer::Accepted));
    // A requested node is not requested again, even by another driver.
    assert_eq!(driver(&slurm, &agent, "").act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    wait_until("the agent to run", 30, || (read(&here.join("agent")) == "first borrowed\n").then_some(()));
    assert_eq!(slurm.ask("squeue", &["-h", "-o", "%j %P %T"]), "hostler-r1 idle RUNNING");

    assert_eq!(node.act(Verb::OffGracefully).await, Ok(Answer::Accepted));
    wait_until("the agent to be told", 30, || (read(&here.join("agent")) == "told\n").then_some(()));
    wait_for(&node, Supply::Off).await;
    assert_eq!(node.act(Verb::OffByForce).await, Ok(Answer::Confirmed(Supply::Off)));

    // An agent that ignores signals, and a waiting job.
    let deaf = driver(
        &slurm,
        &format!("trap \"\" TERM; echo deaf > {}/agent; for n in $(seq 900); do sleep 0.1; done", here.display()),
        "",
    );
    assert_eq!(deaf.act(Verb::On).await, Ok(Answer::Accepted));
    wait_until("the deaf agent to run", 30, || (read(&here.join("agent")) == "deaf\n").then_some(()));
    assert_eq!(deaf.act(Verb::OffByForce).await, Ok(Answer::Accepted));
    wait_for(&deaf, Supply::Off).await;
    let waiting = driver(&slurm, "true", "options = ['--begin=now+1hour']");
    assert_eq!(waiting.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(waiting.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(waiting.act(Verb::OffByForce).await, Ok(Answer::Accepted));
    wait_for(&waiting, Supply::Off).await;

    let wrong = driver(&slurm, "true", "options = ['--partition=none']");
    let fault = wrong.act(Verb::On).await.expect_err("the partition does not exist");
    assert!(fault.kind() == FaultKind::Unsupported && fault.why().contains("partition"), "{fault}");
}

#[tokio::test]
async fn missing_slurm_controller_is_unreachable() {
    let _ = program("squeue", "install the package slurm-client");
    let directory = tempfile::tempdir().expect("a directory");
    let conf = directory.path().join("slurm.conf");
    let port = free_port();
    fs::write(&conf, format!("ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={port}\nMessageTimeout=2\nNodeName=n\nPartitionName=p Nodes=n\n"))
        .expect("permitted");
    let text = format!(
        "kind = 'slurm'\nagent = ['true']\ntime_limit = '8s'\nenvironment = {{ SLURM_CONF = '{}' }}",
        conf.display()
    );
    let fault = controller(&site(), &text).act(Verb::On).await.expect_err("no server listens");
    assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
}
