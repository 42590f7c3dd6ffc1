//! Commands that act on many jobs at once: by range, name, `last` or filter.

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The cluster has one CPU, so the jobs after the first wait.
const TINY: Size = Size { nodes: 1, cpus: 1, memory: "1G" };

/// Queues jobs of one name that take long, and returns their ids.
fn queue(cluster: &Cluster, name: &str, count: usize) -> Vec<String> {
    let sleep = ["run", "--detach", "--name", name, "-m", "16M", "--", "sleep", "600"];
    (0..count).map(|_| cluster.ok(&sleep)).collect()
}

fn not_ended(cluster: &Cluster) -> Vec<String> {
    let jobs = cluster.json(&["jobs", "--sort", "oldest"]);
    let jobs = jobs["jobs"].as_array().expect("a list");
    jobs.iter().filter(|job| job["state"] != "completing").map(|job| job["id"].to_string()).collect()
}

#[test]
fn jobs_are_cancelled_by_range_name_last_and_filter() {
    let cluster = Cluster::up(HOSTLER, TINY);
    let (train, test) = (queue(&cluster, "train", 4), queue(&cluster, "test", 4));
    cluster.wait_for_state(&train[0], "running");
    cluster.ok(&["cancel", &format!("{}-{}", train[1], train[2])]);
    assert_eq!(not_ended(&cluster), [&train[..1], &train[3..], &test[..]].concat());
    cluster.ok(&["cancel", "last"]);
    assert_eq!(not_ended(&cluster), [&train[..1], &train[3..], &test[..3]].concat());
    cluster.ok(&["cancel", "test"]);
    assert_eq!(not_ended(&cluster), [&train[..1], &train[3..]].concat());
    cluster.ok(&["cancel", "--state", "pending"]);
    assert_eq!(not_ended(&cluster), &train[..1]);
    cluster.ok(&["cancel", "--all"]);
    // The node has to end the one that ran.
    wait_until("the last job to end", 60, || not_ended(&cluster).is_empty().then_some(()));

    for (words, expected) in [
        (&["cancel", "nothing"][..], "you have no job with the name \"nothing\""),
        (&["cancel", "700-900"], "no job has an id from 700 to 900"),
        (&["cancel", "test"], "is cancelled"),
        (&["logs", "1-2"], "1-2 is more than one job"),
        (&["cancel", "1", "--all"], "jobs are named, and a filter is given too"),
        (&["jobs", "--state", "odd"], "the states are pending, starting, running"),
    ] {
        assert!(cluster.fails(words).contains(expected), "{words:?}: {}", cluster.fails(words));
    }
    assert_eq!(cluster.run(&["cancel", "--all"]).code, 0, "nothing to cancel is no error");
}

#[test]
fn filters_refuse_users_and_partitions_that_do_not_exist() {
    let cluster = Cluster::up(HOSTLER, TINY);
    cluster.ok(&["configure", "user", "add", "hannah", "--uid", "70001"]);
    cluster.ok(&["configure", "partition", "add", "batch", "--nodes", "n1"]);
    let commands = ["jobs", "cancel", "hold", "release", "requeue", "fetch"];
    for (flag, good, bad) in [("--user", "hannah", "hanna"), ("--partition", "batch", "bacth")] {
        let takes_flag = |command: &&str| flag == "--user" || *command != "history";
        for command in commands.iter().chain(&["history"]).copied().filter(takes_flag) {
            assert_eq!(cluster.run(&[command, flag, good]).code, 0, "{command} {flag}");
            let refused = cluster.run(&[command, flag, bad]);
            let (kind, said) = (&flag[2..], &refused.stderr);
            assert_eq!((refused.code, refused.stdout.as_str()), (4, ""), "{command} {flag}: {said}");
            assert!(said.contains(&format!("there is no {kind} {bad}")), "{command} {flag}: {said}");
            assert!(said.contains(&format!("did you mean `{good}`?")), "{command} {flag}: {said}");
        }
    }
    assert!(cluster.run(&["jobs", "--key", "none"]).stderr.contains("you have no job with the key none"));
    let set = cluster.run(&["configure", "partition", "set", "batch", "--nodes", "m*"]);
    assert!(set.code == 0 && set.stderr.contains("no node has a name that matches m*"), "{set:?}");
}

#[test]
fn wait_shows_each_task_when_it_starts_and_ends() {
    let cluster = Cluster::up(HOSTLER, TINY);
    let flags = ["run", "--detach", "-m", "16M", "--array", "0-2"];
    let array = cluster.ok(&[&flags[..], &["--", "sh", "-c", "sleep 0.3; exit $HOSTLER_ARRAY_INDEX"]].concat());
    let single = cluster.ok(&["run", "--detach", "-m", "16M", "true"]);
    let waited = cluster.run(&["--json", "wait", "--each", &array, &single]);
    assert_eq!(waited.code, 1, "{waited:?}");
    let lines: Vec<serde_json::Value> =
        waited.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let number = |job: &str| job.parse::<u64>().expect("an id");
    for (job, index, state) in
        [(&array, 0, "completed"), (&array, 1, "failed"), (&array, 2, "failed"), (&single, 0, "completed")]
    {
        let of_task = lines.iter().filter(|line| line["job"] == number(job) && line["index"] == index);
        let states: Vec<&str> = of_task.map(|line| line["state"].as_str().expect("a state")).collect();
        assert_eq!(states.last(), Some(&state), "{lines:?}");
        assert!(states.len() <= 2 && (job == &single || states.len() == 2), "start and end, once each: {lines:?}");
    }
    let one = cluster.run(&["wait", "--each", &format!("{array}_1")]);
    assert_eq!((one.code, one.stdout.as_str()), (1, format!("task {array}_1 failed with exit code 1\n").as_str()));
    assert_eq!(cluster.ok(&["wait", "--each", &single]), format!("job {single} completed"));
}

#[test]
fn many_jobs_make_one_line() {
    let cluster = Cluster::up(HOSTLER, TINY);
    let ids = queue(&cluster, "many", 30);
    let held = cluster.run(&["hold", "--name", "many", "--state", "pending"]);
    let said = &held.stderr;
    assert!(held.code == 0 && said.lines().count() == 1 && said.contains("jobs are held"), "{said}");
    cluster.ok(&["release", "--all"]);
    cluster.ok(&["hold", &ids[29]]);
    let released = cluster.run(&["release", "--all"]);
    let said = format!("job {} is released\n", ids[29]);
    assert_eq!((released.code, released.stderr), (0, said), "the others are not held");
    assert_eq!(cluster.run(&["release", "--all"]).code, 0);
    let cancelled = cluster.run(&["cancel", "many"]);
    assert_eq!(cancelled.stderr, "30 jobs are being cancelled\n");
    ids.iter().for_each(|id| cluster.wait_for_state(id, "cancelled"));
    let range = format!("{}-{}", ids[0], ids[29]);
    assert_eq!(cluster.run(&["cancel", &range]).stderr, "30 jobs had ended already\n");
    let waiting = queue(&cluster, "later", 2);
    let range = format!("{}-{}", ids[0], waiting[1]);
    assert_eq!(cluster.run(&["cancel", &range]).stderr, "2 jobs are being cancelled; 30 had ended already\n");
    // A task says its own state, not that of its array.
    let script = "[ $HOSTLER_ARRAY_INDEX = 0 ] || sleep 600";
    let array = cluster.ok(&["run", "--detach", "-m", "16M", "--array", "0-2", "--", "sh", "-c", script]);
    let first = format!("{array}_0");
    cluster.ok(&["wait", &first]);
    assert_eq!(cluster.run(&["cancel", &first]).stderr, format!("task {first} is completed\n"));
}

#[test]
fn requeue_changes_the_limits_that_a_job_reached() {
    let cluster = Cluster::up(HOSTLER, TINY);
    let script = format!("mkdir {} && sleep 600; echo done", cluster.path("began").display());
    let id = cluster.ok(&["run", "--detach", "--name", "slow", "-t", "1s", "-m", "16M", "--", "sh", "-c", &script]);
    cluster.wait_for_state(&id, "timeout");
    cluster.ok(&["requeue", "--state", "timeout", "-t", "2m", "-m", "32M", "--hold"]);
    let job = cluster.json(&["job", "slow"]);
    assert_eq!((&job["time_limit_ms"], &job["memory_bytes"]), (&120_000.into(), &(32 << 20).into()), "{job}");
    assert!(job["reason"].as_str().is_some_and(|reason| reason.contains("held")), "{job}");
    cluster.ok(&["release", "slow"]);
    cluster.ok(&["wait", "last"]);
    assert_eq!(cluster.ok(&["logs", "slow"]), "done");
    // The message describes the final state, not an intermediate step.
    let done: Vec<String> = (0..11).map(|_| cluster.ok(&["run", "--detach", "-m", "16M", "--", "true"])).collect();
    done.iter().for_each(|id| cluster.wait_for_state(id, "completed"));
    let over = cluster.run(&["cancel", &format!("{}-{}", done[0], done[10])]);
    assert_eq!(over.stderr, "11 jobs had ended already\n");
    let failed = cluster.ok(&["run", "--detach", "-m", "16M", "--", "false"]);
    cluster.wait_for_state(&failed, "failed");
    // A change with which no node could run the job leaves the job as it is.
    let refused = cluster.run(&["requeue", &failed, "-m", "900G"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert_eq!(cluster.json(&["job", &failed])["state"], "failed", "{}", refused.stderr);
    let again = cluster.run(&["requeue", &failed, "-t", "2m", "-m", "32M"]);
    let said = format!("job {failed} is queued again with a time limit of 2m00s and 32M of memory\n");
    assert_eq!((again.code, again.stderr), (0, said));
}
