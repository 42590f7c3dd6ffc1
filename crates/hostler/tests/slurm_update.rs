//! `hostler update` and `scontrol update`, `hold` and `requeuehold` on a real cluster.

use hostler_testkit::{Size, SlurmNames, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 2, cpus: 2, memory: "1G" };

struct Site(SlurmNames);

impl Site {
    fn up() -> Self {
        Self(SlurmNames::up(HOSTLER, SMALL))
    }

    /// Runs a command that must succeed and print nothing on stderr. Returns stdout.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let (name, words) = line.split_once(' ').expect("a command and its arguments");
        let outcome = self.0.run(name, &words.split(' ').collect::<Vec<_>>());
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{line}: {}", outcome.stdout);
        outcome.stdout.trim_end().to_owned()
    }

    /// Runs a command that must fail. Returns its stderr.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let (name, words) = line.split_once(' ').expect("a command and its arguments");
        let outcome = self.0.run(name, &words.split(' ').collect::<Vec<_>>());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{line}: {}", outcome.stderr);
        outcome.stderr
    }

    fn submit(&self, options: &str, script: &str) -> String {
        let mut words: Vec<&str> = vec!["--parsable", "--mem=16"];
        words.extend(options.split(' ').filter(|word| !word.is_empty()));
        words.extend(["--wrap", script]);
        self.0.run("sbatch", &words).stdout.trim().to_owned()
    }

    /// A value in the record of a job.
    #[track_caller]
    fn value(&self, job: &str, name: &str) -> String {
        let text = self.ok(&format!("scontrol show job -o {job}"));
        let token = text.split_whitespace().find_map(|token| token.strip_prefix(&format!("{name}=")));
        token.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
    }
}

#[test]
fn waiting_jobs_are_changed_with_slurms_names() {
    let site = Site::up();
    let first = site.submit("-H", "true");
    let job = site.submit("-H -t 90 --comment=old", "true");
    let all = "TimeLimit=10 JobName=new Comment=word Account=lab QOS=high WCKey=key Nice=7 Requeue=0 NumCPUs=2 \
               MinMemoryNode=32 ReqNodeList=n2";
    assert_eq!(site.ok(&format!("scontrol update JobId={job} {all} Dependency=afterok:{first}")), "");
    let values = ["TimeLimit", "JobName", "Comment", "Account", "QOS", "Nice", "Requeue", "NumCPUs", "MinMemoryNode"];
    let values = values.map(|name| site.value(&job, name));
    assert_eq!(values, ["00:10:00", "new", "word", "lab", "high", "7", "0", "2", "32M"]);
    assert_eq!(site.value(&job, "ReqNodeList"), "n2");
    assert_eq!(site.value(&job, "Dependency"), format!("afterok:{first}(unfulfilled)"));
    assert_eq!(site.ok(&format!("squeue -h -j {job} -O wckey:.10")).trim(), "key");
    site.ok(&format!("scontrol update job {job} timelimit+=5 dependency= starttime=2099-01-01T00:00"));
    assert_eq!((site.value(&job, "TimeLimit"), site.value(&job, "Dependency")), ("00:15:00".into(), "(null)".into()));
    site.ok(&format!("scontrol update jobid={job} priority=3"));
    assert_eq!(site.value(&job, "Reason"), "BeginTime", "a priority releases the job");
    site.ok(&format!("scontrol update jobid={job} priority=0"));
    assert_eq!((site.value(&job, "Reason"), site.value(&job, "Priority")), ("JobHeldUser".into(), "0".into()));
    site.ok(&format!("scontrol release {job}"));
    site.ok(&format!("scontrol update jobid={job} starttime=now"));
    site.0.cluster.wait_for_state(&job, "completed");
    assert_eq!(site.0.cluster.json(&["job", &job])["nodes"][0], "n2");

    let over = format!("Job has already finished for job {job}\n");
    assert_eq!(site.fails(&format!("scontrol update jobid={job} timelimit=5")), over);
    for values in ["numcpus=64", "gres=gpu:1", "gres=gpu:a100:1,fpga:2"] {
        let large = site.fails(&format!("scontrol update jobid={first} {values}"));
        assert!(
            large.starts_with(&format!("Requested node configuration is not available for job {first}\n")),
            "{large}"
        );
    }
    site.ok(&format!("scontrol update jobid={first} gres=none"));
    let disabled = site.fails(&format!("scontrol update jobid={first} numtasks=4"));
    let text = format!("Requested operation is presently disabled for job {first}\nscontrol: hint: ");
    assert!(disabled.starts_with(&text), "{disabled}");
    let itself = site.fails(&format!("scontrol update jobid={first} dependency=afterok:{first}"));
    assert!(itself.contains("wait for each other"), "{itself}");
}

#[test]
fn new_time_limit_ends_a_running_job_also_after_restarts() {
    let site = Site::up();
    let cluster = &site.0.cluster;
    // A job that may run again moves to another node when agents that restart are silent for long.
    let submit = || site.submit("-t 60 --no-requeue", "sleep 600");
    let (soon, later) = (submit(), submit());
    cluster.wait_for_state(&soon, "running");
    cluster.wait_for_state(&later, "running");
    let refused = site.fails(&format!("scontrol update jobid={soon} numcpus=2"));
    assert!(refused.starts_with(&format!("Job is no longer pending execution for job {soon}\n")), "{refused}");
    // M:S, rounded up to eleven minutes. The longer limit cannot end its job during this test.
    site.ok(&format!("scontrol update jobid={later} timelimit=10:01"));
    cluster.ok(&["update", &soon, "--time", "2s"]);
    cluster.wait_for_state(&soon, "timeout");
    assert_eq!(cluster.state(&later), "running");
    for pid in cluster.agent_pids() {
        cluster.kill_9(pid);
    }
    cluster.kill_9(cluster.head_pid());
    cluster.start(SMALL);
    assert_eq!(site.value(&later, "TimeLimit"), "00:11:00");
    let said = cluster.ok(&["update", &later, "--time", "3s", "--name", "late"]);
    assert_eq!(said, "");
    cluster.wait_for_state(&later, "timeout");
    assert_eq!(cluster.json(&["job", &later])["attempt"], 1);
}

#[test]
fn single_tasks_are_held_and_released() {
    let site = Site::up();
    let job = site.submit("-H -a 1-6%4", "true");
    site.ok(&format!("scontrol release {job}_2"));
    let completed = |tasks: u64| {
        let count = || site.0.cluster.json(&["job", &job])["tasks"]["completed"].as_u64();
        wait_until("released tasks to complete", 60, || (count() == Some(tasks)).then_some(()));
    };
    completed(1);
    let rows = || site.ok(&format!("squeue -h -j {job} -o %i|%t|%r"));
    assert_eq!(rows(), format!("{job}_[1,3-6%4]|PD|JobHeldUser"));
    site.ok(&format!("scontrol release {job}_[1,3]"));
    completed(3);
    site.0.cluster.ok(&["release", &format!("{job}_4")]);
    completed(4);
    assert_eq!(rows(), format!("{job}_[5-6%4]|PD|JobHeldUser"));
    let over = site.fails(&format!("scontrol hold {job}_4"));
    assert!(over.starts_with(&format!("{job}_4: Job has already finished\n")), "{over}");
    site.ok(&format!("scontrol release {job}"));
    site.0.cluster.wait_for_state(&job, "completed");

    // With a later begin time, tasks that are not held wait for it.
    let job = site.submit("-a 1-4 -b 2099-01-01T00:00", "true");
    site.ok(&format!("scontrol hold {job}_[2-3]"));
    site.ok(&format!("scontrol uhold {job}_4"));
    let rows = site.ok(&format!("squeue -h -j {job} -o %i|%r"));
    assert_eq!(rows, format!("{job}_[1]|BeginTime\n{job}_[2-4]|JobHeldUser"));
    let why = site.0.cluster.ok(&["why", &format!("{job}_3")]);
    assert!(why.contains(&format!("`hostler release {job}_3`")), "{why}");
    let one = site.fails(&format!("scontrol update jobid={job}_1 timelimit=5"));
    assert!(one.starts_with(&format!("{job}_1: Requested operation is presently disabled\n")), "{one}");
}

#[test]
fn jobs_are_named_with_keys() {
    let site = Site::up();
    let job = site.submit("-J named --begin=2099-01-01T00:00", "true");
    let keys = [format!("jobid={job}"), format!("JobId={job}"), format!("job={job}")];
    for word in keys.iter().map(String::as_str).chain(["jobname=named", "JobName=named", "Name=named"]) {
        assert_eq!(site.ok(&format!("scontrol hold {word}")), "");
        assert_eq!(site.value(&job, "Priority"), "0", "{word}");
        assert_eq!(site.ok(&format!("scontrol release {word}")), "");
        assert_eq!(site.value(&job, "Reason"), "BeginTime", "{word}");
    }
    assert_eq!(site.ok("scontrol hold jobname=nobody"), "");
    let pending = format!("Job is pending execution for job {job}\n");
    assert_eq!(site.fails(&format!("scontrol requeue jobid={job}")), pending);
}

#[test]
fn job_without_partition_keeps_it_by_its_name() {
    let site = Site::up();
    let job = site.submit("-H", "true");
    assert_eq!(site.value(&job, "Partition"), "all");
    assert_eq!(site.ok(&format!("scontrol update jobid={job} partition=all")), "");
    assert_eq!(site.ok(&format!("scontrol update jobid={job} partition=all comment=word")), "");
    assert_eq!((site.value(&job, "Partition"), site.value(&job, "Comment")), ("all".into(), "word".into()));
    let unknown = site.fails(&format!("scontrol update jobid={job} partition=other"));
    assert!(unknown.starts_with(&format!("Invalid partition name specified for job {job}\n")), "{unknown}");
}

#[test]
fn requeued_jobs_can_be_held() {
    let site = Site::up();
    let script = "[ -e ok ] || exit 3";
    let job = site.submit("", script);
    site.0.cluster.wait_for_state(&job, "failed");
    site.ok(&format!("scontrol requeuehold {job}"));
    assert_eq!((site.value(&job, "JobState"), site.value(&job, "Reason")), ("PENDING".into(), "JobHeldUser".into()));
    site.0.cluster.write("ok", "");
    site.ok(&format!("scontrol release {job}"));
    site.0.cluster.wait_for_state(&job, "completed");

    let running = site.submit("", "sleep 600");
    site.0.cluster.wait_for_state(&running, "running");
    site.ok(&format!("scontrol requeuehold {running}"));
    wait_until("the held job to wait", 60, || (site.value(&running, "JobState") == "PENDING").then_some(()));
    assert_eq!(site.value(&running, "Reason"), "JobHeldUser");
}

#[test]
fn exclusive_jobs_do_not_share_nodes() {
    let site = Site::up();
    let (alone, shared) = (site.submit("-H --exclusive", "true"), site.submit("-H", "true"));
    assert_eq!(site.ok("squeue -h -o %i|%h -S i"), format!("{alone}|NO\n{shared}|OK"));
    assert_eq!((site.value(&alone, "OverSubscribe"), site.value(&shared, "OverSubscribe")), ("NO".into(), "OK".into()));
}
