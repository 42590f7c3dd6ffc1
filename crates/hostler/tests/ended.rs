//! Ended jobs are stored: after a crash and restart, the head gives the same answers about them.

use std::fs;

use hostler_testkit::{Cluster, Size};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 1, cpus: 2, memory: "1G" };

fn restart(cluster: &Cluster) {
    cluster.kill_9(cluster.head_pid());
    cluster.start(SMALL);
}

#[test]
fn ended_jobs_give_the_same_answers_after_a_restart() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    cluster.write("model/main.sh", "echo made; echo content > result.txt\n");
    let folder = cluster.path("model").to_string_lossy().into_owned();
    let project = cluster.ok(&["submit", &folder, "main.sh", "-m", "16M"]);
    let good = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", "echo well done"]);
    let script = format!("echo try $WORD; test -e {}", cluster.path("now-it-works").display());
    let mut failing = cluster.command(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &script]);
    let failing = failing.env("WORD", "of the caller").output().expect("the program starts");
    let bad = String::from_utf8(failing.stdout).expect("an id").trim().to_owned();
    let array =
        cluster.ok(&["run", "--detach", "-a", "0-9", "-m", "16M", "--", "sh", "-c", "echo $HOSTLER_ARRAY_INDEX"]);
    for (id, state) in [(&project, "completed"), (&good, "completed"), (&bad, "failed"), (&array, "completed")] {
        cluster.wait_for_state(id, state);
    }
    let before = cluster.json(&["jobs", "--all"]);
    let shown: Vec<_> = [&project, &good, &bad, &array].map(|id| cluster.json(&["job", id])).into();

    restart(&cluster);
    assert_eq!(cluster.json(&["jobs", "--all"]), before);
    assert_eq!(Vec::from([&project, &good, &bad, &array].map(|id| cluster.json(&["job", id]))), shown);
    assert_eq!(cluster.ok(&["logs", &good]), "well done");
    assert!(cluster.ok(&["why", &good]).contains("has completed"));
    cluster.ok(&["wait", &good]);
    cluster.ok(&["fetch", &project, "--to", "out"]);
    assert_eq!(fs::read_to_string(cluster.path(&format!("out/{project}/result.txt"))).expect("home"), "content\n");
    assert!(cluster.json(&["job", &project])["unfetched"] == 0);

    // Dependent jobs start, or never will.
    let after = |condition: &str, on: &str| {
        let flag = format!("{condition}:{on}");
        cluster.ok(&["run", "--detach", "--after", &flag, "-m", "16M", "--", "true"])
    };
    let (met, broken) = (after("afterok", &good), after("afterok", &bad));
    cluster.wait_for_state(&met, "completed");
    cluster.wait_for_state(&broken, "cancelled");

    // A failed job can be requeued with its original environment. A completed job cannot, because its environment is
    // deleted.
    cluster.write("now-it-works", "");
    cluster.ok(&["requeue", &bad]);
    cluster.wait_for_state(&bad, "completed");
    restart(&cluster);
    let attempt = cluster.json(&["job", &bad]);
    assert_eq!((&attempt["attempt"], &attempt["state"]), (&2.into(), &"completed".into()), "{attempt}");
    assert_eq!(cluster.ok(&["logs", &bad]), "try of the caller");
    assert!(cluster.fails(&["requeue", &bad]).contains("submit the job again"));
    cluster.ok(&["fetch", "--all", "--outputs", "--to", "all"]);
    assert!(cluster.path(&format!("all/{array}_7")).exists());
    assert_eq!(cluster.json(&["job", &array])["unfetched"], 0);
}

#[test]
fn requeue_offers_and_revives_the_jobs_that_depend_on_it() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let run = |after: &[&str], script: &str| {
        let options = [&["run", "--detach", "-m", "16M"], after, &["--", "sh", "-c", script]].concat();
        cluster.ok(&options)
    };
    let parent = run(&[], "until test -e go; do sleep 0.05; done; test -e mended");
    let child = run(&["--after", &format!("afterok:{parent}")], "test -e mended");
    let grandchild = run(&["--after", &format!("afterok:{child}")], "true");
    let unwanted = run(&["--hold", "--after", &format!("afterok:{parent}")], "true");
    cluster.ok(&["cancel", &unwanted]);
    cluster.write("go", "");
    cluster.wait_for_state(&grandchild, "cancelled");

    let again = cluster.run(&["requeue", &parent]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let note =
        format!("stay cancelled: {child}, {grandchild}; `hostler requeue --dependents {parent}` queues them too");
    assert!(again.stderr.contains(&note), "{}", again.stderr);
    cluster.wait_for_state(&parent, "failed");
    assert_eq!(cluster.state(&child), "cancelled");

    cluster.write("mended", "");
    let all = cluster.run(&["requeue", &parent, "--dependents"]);
    assert_eq!(all.code, 0, "{}", all.stderr);
    for id in [&parent, &child, &grandchild] {
        assert!(all.stderr.contains(&format!("job {id} is queued again")), "{}", all.stderr);
        cluster.wait_for_state(id, "completed");
    }
    let started = |id: &str| cluster.json(&["job", id])["started_at"].as_i64().expect("the job ran");
    assert!(started(&parent) <= started(&child) && started(&child) <= started(&grandchild), "they wait for each other");
    assert_eq!(cluster.state(&unwanted), "cancelled", "the user cancelled this job");
}

#[test]
fn requeue_of_dependents_leaves_out_jobs_whose_other_dependencies_failed() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let run = |after: &[&str], script: &str| {
        let options = [&["run", "--detach", "-m", "16M"], after, &["--", "sh", "-c", script]].concat();
        cluster.ok(&options)
    };
    let parent = run(&["--hold"], "test -e mended");
    let other = run(&["--hold"], "false");
    let child = run(&["--after", &format!("afterok:{parent}:{other}")], "true");
    let sibling = run(&["--after", &format!("afterok:{parent}")], "true");
    cluster.ok(&["release", &parent, &other]);
    for id in [&parent, &other] {
        cluster.wait_for_state(id, "failed");
    }
    for id in [&child, &sibling] {
        cluster.wait_for_state(id, "cancelled");
    }
    cluster.write("mended", "");
    let again = cluster.run(&["requeue", "--dependents", &parent, "999"]);
    assert_ne!(again.code, 0, "{}", again.stderr);
    let stays = format!("job {child} stays cancelled: afterok:{other} can never be satisfied");
    assert!(again.stderr.contains(&stays), "{}", again.stderr);
    cluster.wait_for_state(&sibling, "completed");
    assert_eq!(cluster.state(&child), "cancelled");
}
