//! What commands report about jobs matches what happened.

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn results_of_a_second_attempt_replace_those_of_the_first() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster
        .write("project/main.sh", "echo \"$HOSTLER_ATTEMPT\" > attempt; echo kept > same; [ $HOSTLER_ATTEMPT != 1 ]");
    let id = cluster.ok(&["submit", "project", "sh", "-m", "16M", "--", "main.sh"]);
    cluster.wait_for_state(&id, "failed");
    cluster.ok(&["fetch", &id]);
    cluster.ok(&["requeue", &id]);
    cluster.wait_for_state(&id, "completed");
    let fetched = cluster.run(&["fetch", &id]);
    assert!(fetched.stderr.contains("; replaced 1 file of an earlier attempt)"), "{}", fetched.stderr);
    let attempt = format!("{id}/attempt");
    assert_eq!(std::fs::read_to_string(cluster.path(&attempt)).expect("fetched"), "2\n");

    // A file that its user has changed stays.
    cluster.write(&attempt, "3\n");
    let refused = cluster.fails(&["fetch", &id]);
    assert!(
        refused.contains("already contains other files:\n  attempt") && refused.contains("--overwrite"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(cluster.path(&attempt)).expect("fetched"), "3\n");
}

#[test]
fn results_of_requeued_attempts_stay_until_they_are_fetched() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write(
        "project/main.sh",
        "echo $HOSTLER_ATTEMPT > checkpoint-$HOSTLER_ATTEMPT; echo attempt $HOSTLER_ATTEMPT
         case $HOSTLER_ATTEMPT in 1) exit 1;; 2) sleep 600;; esac",
    );
    let id = cluster.ok(&["submit", "project", "sh", "-m", "16M", "--", "main.sh"]);
    cluster.wait_for_state(&id, "failed");
    cluster.ok(&["requeue", &id]);
    wait_until("the checkpoint of the second attempt", 30, || {
        cluster.run(&["logs", &id]).stdout.contains("attempt 2").then_some(())
    });
    // Nothing is fetched while the attempt runs, and nothing is lost.
    let waits = cluster.run(&["fetch", &id]);
    assert!(waits.code == 1 && waits.stderr.contains(&format!("`hostler fetch {id} --attempt 1`")), "{}", waits.stderr);
    cluster.ok(&["requeue", &id]);
    cluster.wait_for_state(&id, "completed");

    let fetched = cluster.run(&["fetch", &id]);
    assert!(fetched.stderr.contains(&format!("note: results of attempt 2 of job {id} are kept")), "{}", fetched.stderr);
    cluster.ok(&["fetch", &id, "--attempt", "1"]);
    cluster.ok(&["fetch", "--all"]);
    for (place, attempt) in [(format!("{id}.attempt1"), 1), (format!("{id}.attempt2"), 2), (id.clone(), 3)] {
        let checkpoint = cluster.path(&format!("{place}/checkpoint-{attempt}"));
        assert_eq!(std::fs::read_to_string(checkpoint).expect("fetched"), format!("{attempt}\n"));
    }
    let all = cluster.run(&["fetch", "--all"]);
    assert!(all.stderr.contains("all results were fetched before"), "{}", all.stderr);
    assert!(cluster.fails(&["fetch", &id, "--attempt", "1"]).contains("no result of attempt 1"));
}

#[test]
fn requeue_with_kept_files_starts_in_the_folder_of_the_last_attempt() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("project/unwanted", "a captured file");
    cluster.write(
        "project/main.sh",
        "echo $HOSTLER_ATTEMPT >> log; ls | xargs; rm -f unwanted
         mkdir -p deep; [ -e deep/once ] || echo $HOSTLER_ATTEMPT > deep/once; echo ready
         case $HOSTLER_ATTEMPT in 2) sleep 600;; 1|3|4) exit 1;; esac",
    );
    let id = cluster.ok(&["submit", "project", "sh", "-m", "16M", "--", "main.sh"]);
    cluster.wait_for_state(&id, "failed");
    cluster.ok(&["requeue", &id, "--keep-files"]);
    wait_until("the second attempt", 30, || {
        let logs = cluster.run(&["logs", &id]).stdout;
        (logs.starts_with("deep log main.sh\n") && logs.contains("ready")).then_some(())
    });
    cluster.ok(&["requeue", &id, "--keep-files"]);
    wait_until("the third attempt", 30, || {
        let job = cluster.json(&["job", &id]);
        (job["attempt"] == 3 && job["state"] == "failed").then_some(())
    });
    // The result is complete: it has what all attempts have written.
    cluster.ok(&["fetch", &id, "--to", "fetched"]);
    let read = |path: &str| std::fs::read_to_string(cluster.path(&format!("fetched/{id}/{path}"))).expect("fetched");
    assert_eq!((read("log"), read("deep/once")), ("1\n2\n3\n".to_owned(), "1\n".to_owned()));
    // A fetched result serves as well, until a requeue without the option.
    cluster.ok(&["requeue", &id, "--keep-files"]);
    cluster.wait_for_state(&id, "failed");
    assert!(cluster.ok(&["logs", &id]).starts_with("deep log main.sh\n"));
    cluster.ok(&["requeue", &id]);
    cluster.wait_for_state(&id, "completed");
    assert!(cluster.ok(&["logs", &id]).starts_with("log main.sh unwanted\n"));
}

#[test]
fn unfetched_results_outlive_the_retention_and_their_deletion_is_reported() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("project/main.sh", "echo precious > model");
    let submit = || cluster.ok(&["submit", "project", "sh", "-m", "16M", "--", "main.sh"]);
    let (kept, lost, fetched) = (submit(), submit(), submit());
    [&kept, &lost, &fetched].into_iter().for_each(|id| cluster.wait_for_state(id, "completed"));
    cluster.ok(&["fetch", &fetched]);
    assert!(cluster.ok(&["job", &fetched]).contains("kept until"), "a fetched job has an end");
    assert!(!cluster.ok(&["job", &kept]).contains("kept until"), "unfetched results wait");
    cluster.ok(&["configure", "setting", "retention", "1m"]);
    wait_until("the end of the fetched job", 90, || (cluster.run(&["job", &fetched]).code != 0).then_some(()));
    assert!(!cluster.run(&["jobs"]).stderr.contains("the head deletes"), "nothing is deleted without the setting");
    cluster.ok(&["configure", "setting", "unfetched-retention", "2d"]);
    let jobs = cluster.run(&["jobs"]).stderr;
    assert!(
        jobs.contains("the head deletes the files of 2 jobs that nobody has fetched, the first in 1d23h"),
        "{jobs}"
    );
    let waited = cluster.run(&["wait", &lost]).stderr;
    assert!(waited.contains("the head deletes the files of 1 job that nobody has fetched, in 1d23h"), "{waited}");
    let fetched = cluster.run(&["wait", &kept, "--fetch"]).stderr;
    assert!(fetched.contains("fetched job") && !fetched.contains("the head deletes"), "{fetched}");
    cluster.ok(&["configure", "setting", "unfetched-retention", "1m"]);
    let deleted = format!("job {lost} was deleted, and nobody had fetched its results");
    for command in ["fetch", "job", "requeue"] {
        wait_until("the deletion of the unfetched results", 30, || {
            let told = cluster.run(&[command, &lost]);
            (told.code == 4 && told.stderr.contains(&deleted)).then_some(())
        });
    }
    let all = cluster.fails(&["fetch", "--all"]);
    assert!(all.contains(&format!("job {lost} was deleted on ")) && all.contains("nobody had fetched"), "{all}");
    // The loss is an error once.
    let again = cluster.run(&["fetch", "--all"]);
    let noted = again.stderr.contains(&format!("note: job {lost} was deleted on "));
    assert!(again.code == 0 && noted, "{}", again.stderr);
}

/// The line of a job in `hostler jobs --all`.
fn line(cluster: &Cluster, id: &str) -> String {
    let list = cluster.ok(&["jobs", "--all"]);
    let of_job = |line: &&str| line.split_whitespace().next() == Some(id);
    list.lines().find(of_job).unwrap_or_else(|| panic!("job {id} is listed: {list}")).to_owned()
}

fn run_detached(cluster: &Cluster, more: &[&str]) -> String {
    cluster.ok(&[&["run", "--detach", "-m", "16M"], more].concat())
}

#[test]
fn partly_failed_array_shows_failed_and_completed_counts() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let id = run_detached(&cluster, &["-a", "0-4", "--", "sh", "-c", "[ $HOSTLER_ARRAY_INDEX -ge 2 ]"]);
    assert_eq!(cluster.run(&["wait", &id]).code, 1);
    let tasks = cluster.json(&["job", &id])["tasks"].clone();
    assert_eq!((&tasks["failed"], &tasks["completed"], &tasks["cancelled"]), (&2.into(), &3.into(), &0.into()));
    let line = line(&cluster, &id);
    assert!(line.contains(" failed ") && line.ends_with("2 failed, 3 completed"), "{line}");
    assert!(!line.contains("5/5"), "{line}");
}

#[test]
fn dependent_array_is_cancelled_and_each_task_has_the_reason() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let first = run_detached(&cluster, &["--", "false"]);
    let array = run_detached(&cluster, &["-a", "0-7", "--hold", "-d", &format!("afterok:{first}"), "--", "true"]);
    cluster.wait_for_state(&array, "cancelled");
    let job = cluster.json(&["job", &array]);
    assert_eq!((&job["tasks"]["cancelled"], &job["tasks"]["failed"]), (&8.into(), &0.into()));
    let shown = job["tasks_shown"].as_array().expect("a list");
    let reason = format!("job {first} has ended (failed), so afterok:{first} can never be satisfied");
    let messages: Vec<&str> = shown.iter().filter_map(|task| task["message"].as_str()).collect();
    assert_eq!(messages, [reason.as_str(); 8]);
    assert!(line(&cluster, &array).ends_with(&format!("8 cancelled; task 0: {reason}")), "{}", line(&cluster, &array));
    let why = cluster.ok(&["why", &format!("{array}_5")]);
    assert!(why.contains("It was cancelled") && why.contains(&reason), "{why}");

    // A task that a user has cancelled ends without a reason about its dependency.
    let waits = run_detached(&cluster, &["--hold", "--", "false"]);
    let array = run_detached(&cluster, &["-a", "0-3", "-d", &format!("afterok:{waits}"), "--", "true"]);
    cluster.ok(&["cancel", &format!("{array}_0")]);
    cluster.ok(&["cancel", &waits]);
    cluster.wait_for_state(&array, "cancelled");
    let shown = cluster.json(&["job", &array])["tasks_shown"].clone();
    let has_reason: Vec<bool> = (0..4).map(|index| shown[index]["message"].is_string()).collect();
    assert_eq!(has_reason, [false, true, true, true]);
}

#[test]
fn requeue_keeps_the_results_of_completed_tasks() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let script = "[ $HOSTLER_ARRAY_INDEX -ge 2 ] || { [ -e again ] && exec sleep 600; exit 1; }";
    let id = run_detached(&cluster, &["-a", "0-4", "--", "sh", "-c", script]);
    cluster.wait_for_state(&id, "failed");
    cluster.write("again", "");
    cluster.ok(&["requeue", &id]);
    assert_eq!(cluster.json(&["job", &id])["tasks"]["completed"], 3);
    cluster.ok(&["cancel", &id]);
    cluster.wait_for_state(&id, "cancelled");
    let job = cluster.json(&["job", &id]);
    assert_eq!((&job["tasks"]["completed"], &job["tasks"]["cancelled"]), (&3.into(), &2.into()), "{job}");
    let task = |index: usize| cluster.json(&["job", &format!("{id}_{index}")])["tasks_shown"][0].clone();
    for index in 2..5 {
        let task = task(index);
        assert!(task["state"] == "completed" && task["attempt"] == 1 && task["result"].is_string(), "{task}");
    }
    let named = format!("{id}_2");
    let refused = cluster.fails(&["requeue", &named]);
    assert!(refused.contains("a requeue keeps completed tasks") && task(2)["result"].is_string(), "{refused}");
    let refused = cluster.fails(&["requeue", "--completed", &named]);
    assert!(
        refused.contains("has not fetched the results of 1 task of job") && task(2)["result"].is_string(),
        "{refused}"
    );
    cluster.ok(&["fetch", &id, "--to", "fetched"]);
    cluster.ok(&["requeue", "--completed", &named]);
    wait_until("the named task to run again", 30, || {
        let task = task(2);
        (task["attempt"] == 2 && task["state"] == "completed").then_some(())
    });

    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let held = run_detached(&cluster, &["-a", "0-1%1", "--", "sh", "-c", wait]);
    cluster.wait_for_state(&held, "running");
    cluster.ok(&["hold", &held]);
    cluster.write("go", "");
    let completed = || cluster.json(&["job", &held])["tasks"]["completed"] == 1;
    wait_until("the first task to complete", 30, || completed().then_some(()));
    let refused = cluster.fails(&["requeue", &held]);
    assert!(refused.contains("a requeue keeps completed tasks"), "{refused}");
    assert!(refused.contains(&format!("`hostler requeue --completed {held}`")), "{refused}");
    assert!(completed());
    cluster.ok(&["fetch", &held, "--to", "fetched"]);
    cluster.ok(&["requeue", "--completed", &held]);
    assert_eq!(cluster.json(&["job", &held])["tasks"]["pending"], 2);
}

#[test]
fn job_that_requeues_itself_learns_that_this_succeeded() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    // The requeue ends the job with SIGTERM, which this shell survives and its children do not inherit.
    let script = format!(
        "trap : TERM; [ $(cat codes | wc -l) -lt 8 ] || exit 0; {HOSTLER} requeue $HOSTLER_JOB_ID; echo $? >>codes"
    );
    cluster.write("codes", "");
    let id = run_detached(&cluster, &["--", "sh", "-c", &script]);
    cluster.wait_for_state(&id, "completed");
    let codes = std::fs::read_to_string(cluster.path("codes")).expect("text");
    assert_eq!(codes, "0\n".repeat(8));
}

#[test]
fn array_task_can_be_named_like_a_job() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let script = "[ $HOSTLER_ARRAY_INDEX = 1 ] && exit 7; [ $HOSTLER_ARRAY_INDEX = 0 ]";
    let id = run_detached(&cluster, &["-a", "0-2%1", "--", "sh", "-c", script]);
    let task = |index: u32| format!("{id}_{index}");
    assert_eq!(cluster.run(&["wait", &task(0)]).code, 0);
    let failed = cluster.run(&["wait", &task(1)]);
    assert_eq!(failed.code, 1);
    assert!(failed.stderr.contains(&format!("task {id}_1 failed with exit code 7")), "{}", failed.stderr);
    let text = cluster.ok(&["job", &task(1)]);
    assert!(text.starts_with(&format!("job        {id}_1  sh\n")), "{text}");
    assert!(text.contains("state      failed with exit code 7 on n"), "{text}");
    let json = cluster.json(&["job", &task(1)]);
    assert_eq!(json["tasks_shown"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["tasks_shown"][0]["exit_code"], 7);
    let why = cluster.ok(&["why", &task(0)]);
    assert!(why.contains(&format!("Task {id}_0 does not wait. It has completed.")), "{why}");
    let refused = cluster.fails(&["job", &task(9)]);
    assert!(refused.contains(&format!("job {id} has no task 9")), "{refused}");

    let held = run_detached(&cluster, &["-a", "0-2", "--hold", "--", "true"]);
    let why = cluster.ok(&["why", &format!("{held}_2")]);
    assert!(why.contains(&format!("Task {held}_2 waits: held until released.")), "{why}");
    let text = cluster.ok(&["job", &format!("{held}_2")]);
    assert!(text.contains("state      pending\nwaits      held until released\n"), "{text}");
}

#[test]
fn large_array_is_shown_in_pages() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let id = run_detached(&cluster, &["-a", "0-249", "--hold", "--", "true"]);
    cluster.ok(&["cancel", &id]);
    let text = cluster.ok(&["job", &id]);
    assert!(
        text.contains("100 of 250 tasks shown") && text.contains(&format!("hostler job {id} --from 100")),
        "{text}"
    );
    let (mut seen, mut from) = (Vec::new(), None::<String>);
    loop {
        let page = match &from {
            None => cluster.json(&["job", &id]),
            Some(from) => cluster.json(&["job", &id, "--from", from]),
        };
        let tasks = page["tasks_shown"].as_array().expect("a list");
        seen.extend(tasks.iter().map(|task| task["index"].as_u64().expect("an index")));
        match page["tasks_next"].as_u64() {
            Some(next) => from = Some(next.to_string()),
            None => break,
        }
    }
    assert_eq!(seen, (0..250).collect::<Vec<u64>>(), "each task once");
    let last = cluster.ok(&["job", &id, "--from", "200"]);
    assert!(!last.contains("tasks shown"), "{last}");
}

#[test]
fn limits_of_a_job_that_never_started_are_not_called_enforced() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let id = run_detached(&cluster, &["--hold", "-t", "5m", "--", "true"]);
    let promised = || cluster.ok(&["job", &id]).contains("(enforced)");
    assert!(!promised(), "{}", cluster.ok(&["job", &id]));
    cluster.ok(&["cancel", &id]);
    assert!(!promised(), "{}", cluster.ok(&["job", &id]));
    let ran = run_detached(&cluster, &["-t", "5m", "--", "true"]);
    cluster.wait_for_state(&ran, "completed");
    assert!(cluster.ok(&["job", &ran]).contains("time 5m00s (enforced)"), "{}", cluster.ok(&["job", &ran]));
}

#[test]
fn job_on_a_silent_node_shows_duration_consequence_and_advice() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    // Long enough to check the output, short enough for a test.
    cluster.ok(&["configure", "setting", "lost-after", "15s"]);
    let id = run_detached(&cluster, &["--", "sleep", "600"]);
    cluster.wait_for_state(&id, "running");
    cluster.kill_9(cluster.agent_pids()[0]);
    wait_until("the node to be known as silent", 30, || line(&cluster, &id).contains("silent").then_some(()));
    let said = line(&cluster, &id);
    assert!(said.contains("n1 silent for ") && said.contains(", given up in "), "{said}");
    let why = cluster.ok(&["why", &id]);
    assert!(why.contains("was last known to be running on n1"), "{why}");
    assert!(
        why.contains("Node n1 has been silent for ") && why.contains("otherwise the job ends as node_fail"),
        "{why}"
    );
    assert!(why.contains(&format!("`hostler requeue {id}`")) && why.contains("--requeue"), "{why}");
    let job = cluster.ok(&["job", &id]);
    assert!(job.contains("node       n1 silent for "), "{job}");
    assert!(cluster.json(&["job", &id])["node_problem"].as_str().is_some_and(|problem| problem.contains("silent")));
    let early = cluster.run(&["fetch", &id]).stderr;
    assert!(early.contains("has no results yet: it is running (n1 silent for "), "{early}");

    cluster.wait_for_state(&id, "node_fail");
    let lost = cluster.run(&["fetch", &id]).stderr;
    assert!(!lost.contains("never ran"), "{lost}");
    assert!(lost.contains("ran on node n1, and its output there is lost"), "{lost}");
    let why = cluster.ok(&["why", &id]);
    assert!(why.contains("It was lost with its node: node n1 was silent for too long"), "{why}");

    // A job that was cancelled before its start never ran.
    let never = run_detached(&cluster, &["--hold", "--", "true"]);
    cluster.ok(&["cancel", &never]);
    let never = cluster.run(&["fetch", &never]).stderr;
    assert!(never.contains("is cancelled and never ran"), "{never}");
}
