//! Jobs in containers of an engine. A script takes the place of Docker's client.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hostler_testkit::{SharedCluster, kill, processes_with, wait_until};
use nix::sys::signal::Signal;

use super::{ADA, HOSTLER, ids, parent_of};

const ENGINE: &str = include_str!("engine.py");

/// A cluster whose node runs jobs with an engine, and the engine's log.
fn up() -> (SharedCluster, PathBuf) {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let refused = cluster.run(ADA, &["run", "--runtime", "docker", "--image", "debian:12", "--", "true"]);
    assert!(refused.stderr.contains("no node that has engine-docker"), "{refused:?}");
    let programs = cluster.path("engines");
    fs::create_dir(&programs).expect("root may");
    fs::write(programs.join("docker"), ENGINE).expect("root may");
    for path in [&programs, &programs.join("docker")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("root may");
    }
    fs::write(cluster.path("agent/agent.toml"), "engines = [\"docker\", \"apptainer\"]\n").expect("root may");
    cluster.set_agent_variable("PATH", &format!("{}:/usr/bin:/bin", programs.display()));
    cluster.kill_agent();
    cluster.start_agent();
    let log = cluster.home_of(ADA).join("log");
    (cluster, log)
}

/// The options of a job, before `--`.
fn options(log: &std::path::Path) -> Vec<String> {
    let log = format!("FAKE_LOG={}", log.display());
    ["--runtime", "docker", "--image", "docker://debian:12", "-m", "200M", "--env", &log].map(str::to_owned).to_vec()
}

fn words<'a>(options: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    options.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[test]
fn engine_of_a_node_runs_the_image_as_the_user_with_folder_variables_and_exit_code() {
    let (cluster, log) = up();
    let options = options(&log);
    let shown = cluster.ok(ADA, &["node", "show", "n1"]);
    assert!(shown.contains("engine-docker") && !shown.contains("engine-apptainer"), "{shown}");
    let script = "echo $IMAGE $SECRET $HOSTLER_JOB_ID $HOME $PATH; id -u; pwd; cat; touch made; echo text >&2; exit 7";
    cluster.write(ADA, "input", "given\n");
    let told = cluster.run(
        ADA,
        &[
            &["run", "--stdin", "input", "--env", "SECRET=value", "--env", "PATH=/usr/bin:/bin:/inside"],
            &*words(&options, &["--", "sh", "-c", script]),
        ]
        .concat(),
    );
    let home = cluster.home_of(ADA);
    let (uid, gid) = ids(ADA);
    let expected = format!("debian:12 value 1 /tmp /usr/bin:/bin:/inside\n{uid}\n{}\ngiven\n", home.display());
    assert_eq!((told.stdout.as_str(), told.code), (expected.as_str(), 7), "{told:?}");
    assert!(told.stderr.contains("text") && home.join("made").exists(), "{told:?}");
    let calls = fs::read_to_string(&log).expect("the engine was called");
    assert_eq!(calls.lines().count(), 2, "the container is removed once: {calls}");
    for argument in [
        format!("\"--user={uid}:{gid}\""),
        format!("\"--mount=type=bind,source={0},target={0}\"", home.display()),
        "\"--env=SECRET\"".to_owned(),
        "\"--memory=209715200\"".to_owned(),
    ] {
        assert!(calls.contains(&argument), "{argument}: {calls}");
    }
    assert!(!calls.contains("value") && !calls.contains("inside"), "everybody can read arguments: {calls}");
    let page = cluster.ok(ADA, &["job", "1"]);
    assert!(page.contains("docker://debian:12, run by docker") && page.contains("nodes have engine-docker"), "{page}");

    cluster.write(ADA, "folder/main.sh", "echo $IMAGE > result");
    let folder = home.join("folder").display().to_string();
    let id = cluster.ok(ADA, &[&["submit", "-c", "1"], &*words(&options, &[&folder, "main.sh"])].concat());
    cluster.ok(ADA, &["wait", &id]);
    cluster.ok(ADA, &["fetch", &id, "--to", "results"]);
    let result = fs::read_to_string(home.join("results").join(&id).join("result"));
    assert_eq!(result.expect("fetched"), "debian:12\n");

    let log_of_ada = format!("FAKE_LOG={}", log.display());
    let failed = ["run", "--runtime", "docker", "--image", "missing", "-m", "200M", "--env", &log_of_ada, "--", "true"];
    let failed = cluster.run(ADA, &failed);
    assert!(failed.stderr.contains("no such image"), "{failed:?}");
    assert!(failed.stderr.contains("docker did not run the container; the job's output says why"), "{failed:?}");
    assert_eq!(failed.code, 125);
    for wrong in [["--sandbox", "--detach"], ["-n", "2"]] {
        let refused = cluster.run(ADA, &[&["run"], &*words(&options, &wrong), &["--", "true"]].concat());
        assert!(refused.stderr.contains("a job in a container of an engine has no sandbox"), "{refused:?}");
    }
}

#[test]
fn container_ends_with_its_job_even_if_engine_shepherd_or_agent_are_killed() {
    let (mut cluster, log) = up();
    let options = options(&log);
    let home = cluster.home_of(ADA);
    let marker = format!("hostler-container-{}", std::process::id());
    let begin = |cluster: &SharedCluster, name: &str| {
        let script = format!("trap 'echo asked; exit 3' TERM; touch {name}; while :; do sleep 0.05; done # {marker}");
        let more = ["--", "sh", "-c", &script];
        let id = cluster.ok(ADA, &[&["run", "--detach"], &*words(&options, &more)].concat());
        wait_until("the container to run", 60, || home.join(name).exists().then_some(()));
        id
    };
    let is_over = |cluster: &SharedCluster, id: &str| {
        assert_ne!(cluster.run(ADA, &["wait", id]).code, 0);
        wait_until("the container to end", 30, || processes_with(&marker).is_empty().then_some(()));
        wait_until("the container to be removed", 30, || {
            let mut left = fs::read_dir(&home).expect("readable").flatten().map(|entry| entry.file_name());
            (!left.any(|name| name.to_string_lossy().starts_with("log."))).then_some(())
        });
    };
    // The engine's program is the parent of the container's first process.
    let engine = || {
        let pids = processes_with(&marker);
        let program = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it.starts_with(b"sh\0"));
        parent_of(pids.into_iter().find(program).expect("the container runs"))
    };
    let cancelled = begin(&cluster, "cancelled");
    cluster.ok(ADA, &["cancel", &cancelled]);
    is_over(&cluster, &cancelled);
    assert_eq!(cluster.ok(ADA, &["logs", &cancelled]), "asked");

    let headless = begin(&cluster, "headless");
    kill(engine(), Signal::SIGKILL);
    is_over(&cluster, &headless);

    let orphan = begin(&cluster, "orphan");
    kill(parent_of(engine()), Signal::SIGKILL);
    is_over(&cluster, &orphan);

    // The client gives up with a status of its own, and the first removal fails.
    let script = format!("while :; do sleep 0.05; done # {marker}");
    let more = ["--env", "FAKE_DROPS=1", "--", "sh", "-c", &script];
    let dropped = cluster.ok(ADA, &[&["run", "--detach"], &*words(&options, &more)].concat());
    is_over(&cluster, &dropped);
    assert!(home.join("log-refused").exists());

    let last = begin(&cluster, "last");
    let shepherd = parent_of(engine());
    cluster.kill_agent();
    kill(shepherd, Signal::SIGKILL);
    cluster.start_agent();
    is_over(&cluster, &last);
    let calls = fs::read_to_string(&log).expect("the engine was called");
    assert!(calls.matches("[\"rm\", \"--force\", \"hostler-").count() >= 3, "{calls}");
}
