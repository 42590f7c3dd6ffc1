//! Signals to jobs: on request, and before the time limit.

use std::fs;

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Starts a child, and says which of both got a signal.
const PROGRAM: &str = "\
    #!/bin/bash\n\
    trap 'echo program >> got' USR1\n\
    bash -c 'trap \"echo child >> got; exit\" USR1; touch ready; while :; do sleep 0.1; done' &\n\
    until [ -e stop ]; do sleep 0.1; done\n\
    kill %1 2> /dev/null\n";

/// Runs a step, and says whether the program or the step got a signal.
const WITH_STEP: &str = "\
    #!/bin/bash\n\
    trap 'echo program >> got' USR1\n\
    HOSTLER step -n 1 bash -c 'trap \"echo step >> got; exit\" USR1; touch ready; while :; do sleep 0.1; done' &\n\
    until [ -e stop ]; do sleep 0.1; done\n";

struct Job {
    cluster: Cluster,
}

impl Job {
    fn start(script: &str, options: &[&str]) -> Self {
        let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 2, ..Size::default() });
        cluster.write("job.sh", script.replace("HOSTLER", HOSTLER));
        cluster.ok(&[&["run", "--detach", "--first-node", "-m", "64M"], options, &["bash", "job.sh"]].concat());
        wait_until("the job is ready", 30, || cluster.path("ready").exists().then_some(()));
        Self { cluster }
    }

    fn got(&self, lines: usize) -> Vec<String> {
        let read = || fs::read_to_string(self.cluster.path("got")).unwrap_or_default();
        wait_until("the signal arrives", 30, || (read().lines().count() >= lines).then_some(()));
        let mut got: Vec<String> = read().lines().map(str::to_owned).collect();
        got.sort();
        got
    }

    fn end(self) {
        self.cluster.write("stop", "");
        self.cluster.wait_for_state("1", "completed");
    }
}

#[test]
fn signals_reach_the_program_alone_or_its_group() {
    let job = Job::start(PROGRAM, &[]);
    assert!(job.cluster.ok(&["signal", "1", "SIGUSR1"]).is_empty(), "the result is on standard error");
    assert_eq!(job.got(1), ["program"]);
    job.cluster.ok(&["signal", "1", "10", "--to", "group"]);
    assert_eq!(job.got(3), ["child", "program", "program"]);
    let refused = job.cluster.run(&["signal", "1", "NONE"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let cluster = &job.cluster;
    cluster.write("stop", "");
    cluster.wait_for_state("1", "completed");
    let refused = cluster.run(&["signal", "1", "USR1"]);
    assert!(refused.code != 0 && refused.stderr.contains("job 1 is not running"), "{}", refused.stderr);
}

#[test]
fn signals_reach_steps_and_not_the_program() {
    let job = Job::start(WITH_STEP, &[]);
    job.cluster.ok(&["signal", "1", "USR1", "--to", "steps"]);
    assert_eq!(job.got(1), ["step"]);
    job.cluster.ok(&["signal", "1", "USR1"]);
    assert_eq!(job.got(2), ["program", "step"]);
    job.end();
}

#[test]
fn signal_comes_before_the_time_limit() {
    let job = Job::start(WITH_STEP, &["-t", "10m", "--signal", "USR1@595s:steps"]);
    assert_eq!(job.got(1), ["step"]);
    job.end();
    let job = Job::start(WITH_STEP, &["-t", "10m", "--signal", "USR1@9m55s"]);
    assert_eq!(job.got(1), ["program"]);
    job.end();
}
