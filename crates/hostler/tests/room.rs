//! The limit on stored results: fetched results are deleted to free space, others stay.

use hostler_testkit::{Cluster, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn only_fetched_results_are_deleted_above_the_limit() {
    let cluster = Cluster::none(HOSTLER);
    cluster.ok(&["up", "--nodes", "1", "--cpus", "2", "--memory", "1G", "--results-cap", "3M"]);
    let two_megabytes = ["run", "--detach", "-m", "16M", "--", "head", "-c", "2000000", "/dev/urandom"];
    let jobs: Vec<String> = (0..2).map(|_| cluster.ok(&two_megabytes)).collect();
    jobs.iter().for_each(|id| cluster.wait_for_state(id, "completed"));
    let warning = || cluster.json(&["info"])["head"]["warning"].as_str().map(str::to_owned);
    let text = wait_until("the head to warn", 30, warning);
    assert!(text.contains("not fetched") && text.contains("3M"), "{text}");
    assert!(cluster.ok(&["info"]).contains("fetch them"));
    // The disk itself has space left, so jobs still run, and the head deletes no result.
    let third = cluster.ok(&two_megabytes);
    cluster.wait_for_state(&third, "completed");
    cluster.ok(&["fetch", &jobs[0], "--to", "out"]);
    let size =
        std::fs::metadata(cluster.path(&format!("out/{}/stdout.log", jobs[0]))).expect("the result was fetched").len();
    assert_eq!(size, 2_000_000);

    wait_until("the fetched result to be dropped", 30, || {
        cluster.json(&["job", &jobs[0]])["tasks_shown"][0]["result"].is_null().then_some(())
    });
    let again = cluster.run(&["fetch", &jobs[0], "--to", "again"]);
    assert!(again.stderr.contains("fetched before"), "{again:?}");
    assert!(cluster.fails(&["logs", &jobs[0]]).contains("deleted it and its output"));
    assert_eq!(cluster.state(&jobs[0]), "completed");
    for id in [&jobs[1], &third] {
        assert!(cluster.json(&["job", id])["tasks_shown"][0]["result"].is_string(), "job {id} was not fetched");
    }

    // Once all results are fetched, the warning disappears, and results are kept up to the limit.
    cluster.ok(&["fetch", "--all", "--outputs", "--to", "out"]);
    wait_until("the warning to disappear", 30, || warning().is_none().then_some(()));
    let kept = cluster.json(&["info"])["head"]["results_bytes"].as_u64().expect("measured");
    assert!((2_000_000..3 << 20).contains(&kept), "{kept}");
    cluster.ok(&["down"]);
}
