//! The cost of a sandbox: a job with and without one, beside programs that start other sandboxes. Needs root.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::measure::{Contender, interleave};
use crate::bench::report::{Goal, Row, compare};

const FLOOR: &str = "hostler run true: without a sandbox";
const SUBJECT: &str = "hostler run true: in a sandbox";
const DOCKER: &str = "docker run true: without a network";

/// Image with one program and its libraries.
const IMAGE: &str = "hostler-bench";

/// Bubblewrap with what a job's sandbox has, except for the system call filter.
const BUBBLEWRAP: &str = "bwrap --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup --die-with-parent --new-session \
     --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp \
     --cap-drop ALL true";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(program) = bench.hostler.as_deref() else { return Ok(Vec::new()) };
    if !nix::unistd::geteuid().is_root() {
        println!("  (skipped: only agents of root run sandboxed jobs)");
        return Ok(Vec::new());
    }
    let cluster = Cluster::up_for_another_user(program)?;
    let run = |options: &[&str]| cluster.command_of_another_user(&[&["run"], options, &["--", "true"]].concat());
    let mut contenders = vec![Contender::timed(FLOOR, || run(&[])), Contender::timed(SUBJECT, || run(&["--sandbox"]))];
    if words("bwrap --version").stdout(Stdio::null()).status().is_ok() {
        contenders.push(Contender::timed("bwrap true", || words(BUBBLEWRAP)));
    } else {
        println!("  (bwrap is absent)");
    }
    let has_docker = words("docker info").output().is_ok_and(|output| output.status.success());
    if has_docker {
        make_image()?;
        let start = format!("docker run --rm --network none {IMAGE} /bin/true");
        contenders.push(Contender::timed(DOCKER, move || words(&start)));
    } else {
        println!("  (docker is absent: its daemon does not answer)");
    }
    let samples = interleave(bench.runs, contenders)?;
    let mut rows = compare(&samples, "ms", SUBJECT, &[(DOCKER, Goal::AtMost(0.1))]);
    let added = samples[1].median - samples[0].median;
    rows.push(Row::once("added by the sandbox", added, "ms").with_goal(Goal::AtMost(3.0)));
    Ok(rows)
}

fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Makes the image from the machine's own `true`, so that nothing is downloaded.
fn make_image() -> Result<()> {
    let script =
        "tar -chf - /bin/true $(ldd /bin/true | grep -o '/[^ ]*') 2> /dev/null | docker import - \"$1\" > /dev/null";
    let made = Command::new("sh").args(["-c", script, "sh", IMAGE]).status().context("cannot start sh")?;
    ensure!(made.success(), "cannot import an image into docker");
    Ok(())
}
