//! `scontrol`, `sinfo` and the commands about accounts on a real cluster: what they print and change.

use std::fs;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use hostler_testkit::{Outcome, Size, SlurmNames, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A cluster with the names of Slurm's commands.
struct Site(SlurmNames);

impl Deref for Site {
    type Target = SlurmNames;

    fn deref(&self) -> &SlurmNames {
        &self.0
    }
}

impl Site {
    fn up() -> Self {
        Self(SlurmNames::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "1G" }))
    }

    fn scontrol(&self, line: &str) -> String {
        self.print("scontrol", &line.split(' ').collect::<Vec<_>>())
    }

    /// Runs `scontrol`, which must fail. Returns its stderr.
    fn fails(&self, line: &str) -> String {
        let outcome = self.run("scontrol", &line.split(' ').collect::<Vec<_>>());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{line}: {}", outcome.stderr);
        outcome.stderr
    }

    fn sinfo(&self, line: &str) -> String {
        self.print("sinfo", &line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())
    }

    /// A value in the record of a job.
    fn value(&self, job: &str, name: &str) -> String {
        let text = self.scontrol(&format!("show job -o {job}"));
        let token = text.split_whitespace().find_map(|token| token.strip_prefix(&format!("{name}=")));
        token.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
    }

    /// Replaces what differs between runs: times, paths, the user and the host.
    fn redact(&self, text: &str) -> String {
        let home = self.cluster.home().to_str().expect("text");
        let token = |token: &str| {
            let Some((name, value)) = token.split_once('=') else { return token.to_owned() };
            let value = match name.trim_start() {
                "UserId" | "GroupId" => "USER".to_owned(),
                "AllocNode:Sid" => "HOST:0".to_owned(),
                "RunTime" if value != "00:00:00" => "SPAN".to_owned(),
                _ if value.len() == 19 && value.as_bytes()[10] == b'T' => "TIME".to_owned(),
                _ => value.replace(home, "HOME"),
            };
            format!("{name}={value}")
        };
        let line = |line: &str| line.split(' ').map(token).collect::<Vec<_>>().join(" ");
        text.split('\n').map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Checks that every word of a text is `Name=value`.
fn assert_tokens(text: &str) {
    for token in text.split_whitespace() {
        let (name, value) = token.split_once('=').unwrap_or_else(|| panic!("`{token}` has no `=` in {text}"));
        assert!(!name.is_empty() && !value.is_empty(), "`{token}` in {text}");
    }
}

#[test]
fn jobs_are_described_as_slurm_does() {
    let site = Site::up();
    assert_eq!(site.scontrol("show job"), "No jobs in the system\n");
    let held = site.submit(&["-J", "first", "-H", "-t", "90", "-n2", "-c2", "--comment=word", "--wrap", "sleep 60"]);
    let expected = "\
JobId=1 JobName=first
   UserId=USER GroupId=USER MCS_label=N/A
   Priority=0 Nice=0 Account=default QOS=normal
   JobState=PENDING Reason=JobHeldUser Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=01:30:00 TimeMin=N/A
   SubmitTime=TIME EligibleTime=Unknown
   AccrueTime=Unknown
   StartTime=Unknown EndTime=Unknown Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=TIME Scheduler=Main
   Partition=all AllocNode:Sid=HOST:0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=(null)
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=4,mem=32M,node=2,billing=4
   AllocTRES=(null)
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=2 MinMemoryNode=16M MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=(null)
   WorkDir=HOME
   Comment=word
   StdErr=HOME/slurm-1.out
   StdIn=/dev/null
   StdOut=HOME/slurm-1.out

";
    assert_eq!(site.redact(&site.scontrol("show job 1")), expected);
    let one_line = expected.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    for line in ["-o show job 1", "show job -o 1", "show jobid=1 -o", "sho jobs 1 --oneliner"] {
        assert_eq!(site.redact(&site.scontrol(line)), one_line, "{line}");
    }

    // The command replaces an existing file, so a user who prepared and opened that file reads nothing.
    let path = site.cluster.write("slurm-1.sh", "");
    let mut prepared = fs::File::open(&path).expect("the file exists");
    assert_eq!(site.scontrol("write batch_script 1"), "batch script for job 1 written to slurm-1.sh\n");
    assert!(site.read("slurm-1.sh").ends_with("\nsleep 60\n"));
    assert_eq!(fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o700);
    let mut stolen = String::new();
    prepared.read_to_string(&mut stolen).expect("readable");
    assert_eq!(stolen, "");
    symlink("elsewhere", site.cluster.path("link")).expect("writable");
    nix::unistd::mkfifo(&site.cluster.path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("writable");
    for name in ["link", "pipe"] {
        let text = format!(
            "failed to write file `{name}`: it exists and is not a regular file; choose another name, or `-` for stdout\n"
        );
        assert_eq!(site.fails(&format!("write batch_script 1 {name}")), text);
    }
    assert!(!site.cluster.path("elsewhere").exists());

    // A running job and one that failed.
    let script = "#!/bin/sh\n#SBATCH -o log/%x.txt\nwhile ! [ -e go ]; do sleep 0.05; done; exit 3\n";
    site.cluster.write("job.sh", script);
    let running = site.submit(&["-w", "n1", "-C", "n1", "--nice=5", "-A", "physics", "job.sh", "one"]);
    site.wait(&running, "running");
    let text = site.redact(&site.scontrol(&format!("show job {running}")));
    for line in [
        "   Priority=1 Nice=5 Account=physics QOS=normal",
        "   JobState=RUNNING Reason=None Dependency=(null)",
        "   StartTime=TIME EndTime=Unknown Deadline=N/A",
        "   ReqNodeList=n1 ExcNodeList=(null)",
        "   NodeList=n1\n   BatchHost=n1",
        "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*",
        "   ReqTRES=cpu=1,mem=16M,node=1,billing=1\n   AllocTRES=cpu=1,mem=16M,node=1,billing=1",
        "   Features=n1 DelayBoot=00:00:00",
        "   Command=HOME/job.sh one\n   WorkDir=HOME\n   StdErr=HOME/log/job.sh.txt",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("RunTime=SPAN TimeLimit=UNLIMITED") || text.contains("RunTime=00:00:00"), "{text}");
    let steps = site.redact(&site.scontrol("show step"));
    assert!(steps.starts_with(&format!("StepId={running}.batch UserId=USER StartTime=TIME")), "{steps}");
    site.cluster.write("go", "");
    site.wait(&running, "failed");
    let text = site.redact(&site.scontrol(&format!("show job {running}")));
    assert!(text.contains("JobState=FAILED Reason=NonZeroExitCode"), "{text}");
    assert!(text.contains("ExitCode=3:0") && text.contains("StartTime=TIME EndTime=TIME"), "{text}");

    // A job that was cancelled before its start has both times.
    site.print("scancel", &[&held]);
    let text = site.redact(&site.scontrol("show job 1"));
    assert!(text.contains("JobState=CANCELLED") && text.contains("StartTime=TIME EndTime=TIME"), "{text}");
    let all = site.scontrol("show job");
    assert_eq!(all.split("\n\n").filter(|record| record.starts_with("JobId=")).count(), 2, "{all}");
    // Like Slurm, the command is followed by its arguments.
    assert_tokens(&site.scontrol("show job -o").replace("/job.sh one ", "/job.sh "));

    let document: Value = serde_json::from_str(&site.scontrol("show job 1 --json")).expect("JSON");
    let job = &document["jobs"][0];
    assert_eq!((&job["job_id"], &job["job_state"]), (&1.into(), &serde_json::json!(["CANCELLED"])));
    assert_eq!(job["time_limit"], serde_json::json!({ "set": true, "infinite": false, "number": 90 }));
}

#[test]
fn tasks_of_arrays_have_records() {
    let site = Site::up();
    let script = "while ! [ -e go ]; do sleep 0.05; done";
    let array = site.submit(&["-J", "sweep", "-a", "1-5%2", "--wrap", script]);
    wait_until("two tasks to run", 60, || (site.cluster.json(&["job", &array])["tasks"]["live"] == 2).then_some(()));
    wait_until("both to have started", 60, || {
        let text = site.scontrol(&format!("show job {array} -o"));
        (text.matches("JobState=RUNNING").count() == 2).then_some(())
    });
    let text = site.scontrol(&format!("show job {array} -o"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let starts = [
        format!("JobId={array} ArrayJobId={array} ArrayTaskId=3-5%2 ArrayTaskThrottle=2 JobName=sweep "),
        format!("JobId=2 ArrayJobId={array} ArrayTaskId=1 ArrayTaskThrottle=2 JobName=sweep "),
        format!("JobId=3 ArrayJobId={array} ArrayTaskId=2 ArrayTaskThrottle=2 JobName=sweep "),
    ];
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start), "{start}\n{line}");
        assert_tokens(line);
    }
    assert!(lines[0].contains("JobState=PENDING Reason=JobArrayTaskLimit"), "{}", lines[0]);
    for id in [format!("{array}_1"), "2".to_owned()] {
        let one = site.scontrol(&format!("show job {id} -o"));
        assert!(one.starts_with(&starts[1]) && one.lines().count() == 1, "{one}");
        assert!(one.contains(&format!("StdOut={}/slurm-{array}_1.out", site.cluster.home().display())), "{one}");
    }
    let waiting = site.scontrol(&format!("show job {array}_4 -o"));
    let start = format!("JobId=5 ArrayJobId={array} ArrayTaskId=4 ArrayTaskThrottle=2 JobName=sweep ");
    assert!(waiting.starts_with(&start) && waiting.lines().count() == 1, "{waiting}");
    assert_tokens(&waiting);
    let unknown = site.run("scontrol", &["show", "job", &format!("{array}_9")]);
    assert_eq!((unknown.code, unknown.stdout), (1, format!("Job {array}_9 not found\n")));
    site.cluster.write("go", "");
    site.wait(&array, "completed");
    let text = site.scontrol(&format!("show job {array} -o"));
    assert_eq!(text.matches("JobState=COMPLETED").count(), 5, "{text}");
    assert!(text.contains(&format!("JobId={array} ArrayJobId={array} ArrayTaskId=5 ")), "{text}");
}

#[test]
fn mistakes_have_slurms_words() {
    let site = Site::up();
    for (line, text) in [
        ("show job 99", "slurm_load_jobs error: Invalid job id specified\n"),
        ("show jobid=99", "slurm_load_jobs error: Invalid job id specified\n"),
        ("show job x", "scontrol_print_job error: Invalid job id specified\n"),
        ("show job 1 2", "too many arguments for keyword:show\n"),
        ("show", "too few arguments for keyword:show\n"),
        ("show bogus", "invalid entity:bogus for keyword:show \n"),
        ("bogus", "invalid keyword: bogus\n"),
        ("requeue", "too few arguments for keyword:requeue\n"),
        ("requeue 99", "Invalid job id specified for job 99\n"),
        ("requeue 99_1", "99_1: Invalid job id specified\n"),
        ("hold 99", "Invalid job id specified for job 99\nslurm_suspend error: Invalid job id specified\n"),
        ("release x", "Invalid job id specified for job x\nslurm_suspend error: Invalid job id specified\n"),
        ("update", "too few arguments for update keyword\n"),
        ("update jobid=1", "No changes specified\n"),
        ("update jobid=1 bogus=1", "Update of this parameter is not supported: bogus=1\nRequest aborted\n"),
        ("update jobid=1 timelimit=x", "scontrol: error: Invalid TimeLimit value\n"),
        ("update jobid=99 timelimit=5", "Invalid job id specified for job 99\n"),
        ("update nodename=n9 state=drain reason=x", "slurm_update error: Invalid node name specified\n"),
        ("update part=big state=up", "slurm_update error: Invalid partition name specified\n"),
        ("delete partitionname=x", "delete_partition partitionname=x: Invalid partition name specified\n"),
        ("write batch_script 99 -", "job script retrieval failed: Invalid job id specified\n"),
        ("show step 99.0", "slurm_get_job_steps error: Invalid job id specified\n"),
        (
            "reconfigure",
            "scontrol_reconfigure error: Requested operation is presently disabled\n\
             scontrol: hint: there is no slurm.conf; settings count at once\n",
        ),
        ("ping x", "too many arguments for keyword:ping\n"),
    ] {
        assert_eq!(site.fails(line), text, "{line}");
        assert_eq!(site.fails(&format!("-Q {line}")), "", "{line}");
    }
    let mistake = site.run("scontrol", &["--bad"]);
    let text = "scontrol: unrecognized option '--bad'\nTry \"scontrol --help\" for more information\n";
    assert_eq!((mistake.code, mistake.stderr.as_str()), (1, text));
    for (line, text) in [
        ("show node n9", "Node n9 not found\n"),
        ("show partition x", "Partition x not found\n"),
        ("show reservation x", "Reservation x not found\n"),
    ] {
        let outcome = site.run("scontrol", &line.split(' ').collect::<Vec<_>>());
        assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (1, text, ""), "{line}");
    }
    for (line, text) in [
        ("show step", "No job steps in the system\n"),
        ("show reservations", "No reservations in the system\n"),
        ("show licenses", "No licenses configured in Slurm.\n"),
        ("version", "slurm 24.05.8\n"),
        ("--version", "slurm 24.05.8\n"),
    ] {
        assert_eq!(site.scontrol(line), text, "{line}");
    }
    let ping = site.scontrol("ping");
    assert!(ping.starts_with("Slurmctld(primary) at ") && ping.ends_with(" is UP\n"), "{ping}");
    let config = site.scontrol("show config");
    assert!(config.contains("\nMinJobAge               = 300 sec\n"), "{config}");
    assert!(config.contains("\nMaxArraySize            = 1000001\n"), "{config}");

    // Without a cluster there is an error, too.
    site.cluster.ok(&["down"]);
    assert_eq!(site.run("scontrol", &["show", "job", "1"]).code, 1);
    assert_eq!(site.run("sinfo", &[]).code, 1);
}

#[test]
fn host_lists_are_expanded_and_compressed() {
    let site = Site::up();
    let names = "c1\nc2\nc3\nd5\n";
    for line in
        ["show hostnames c[1-3],d5", "show hostname c[1-3],d5", "show hostnames=c[1-3],d5", "show hostn c[1-3],d5"]
    {
        assert_eq!(site.scontrol(line), names, "{line}");
    }
    assert_eq!(site.scontrol("show hostnames b,a,b"), "b\na\nb\n", "the order and repetitions stay");
    for variables in
        [&[("SLURM_NODELIST", "c[1-3],d5"), ("SLURM_JOB_NODELIST", "x")][..], &[("SLURM_JOB_NODELIST", "c[1-3],d5")]]
    {
        let mut command = site.command("scontrol", &["show", "hostnames"]);
        let output = command.envs(variables.iter().copied()).output().expect("the command starts");
        assert_eq!(Outcome::of(&output).stdout, names);
    }
    let mut piped = site.command("scontrol", &["show", "hostnames", "-"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
    piped.stdin.take().expect("a pipe").write_all(b"c[1-3]\nd5\n").expect("the command reads");
    let output = piped.wait_with_output().expect("the command ends");
    assert_eq!(Outcome::of(&output).stdout, names);
    let empty = site.run("scontrol", &["show", "hostnames"]);
    assert_eq!((empty.code, empty.stderr.as_str()), (0, "scontrol: error: host list is empty\n"));
    assert_eq!(site.scontrol("show hostlist n3,n1,n2,n1"), "n[3,1-2,1]\n");
    assert_eq!(site.scontrol("show hostlistsorted n3,n1,n2,n1"), "n[1,1-3]\n");
    let list = site.cluster.write("list", "n1\nn2\n");
    assert_eq!(site.scontrol(&format!("show hostlist {}", list.display())), "n[1-2]\n");
    assert!(site.fails("show hostnames n[").starts_with("scontrol: error: Invalid hostlist: n["));

    // Inside a job the variables are there, even if the job gets no others.
    let job = site.submit(&["-N2", "--export=NONE", "-o", "hosts", "--wrap", "scontrol show hostnames"]);
    site.wait(&job, "completed");
    assert_eq!(site.read("hosts"), "n1\nn2\n");
}

#[test]
fn commands_are_read_from_standard_input() {
    let site = Site::up();
    let mut command = site.command("scontrol", &[]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let lines = b"show hostnames n[1-2]\n\nbogus\n!!\noneliner\nshow partition\nquit\nping\n";
    child.stdin.take().expect("a pipe").write_all(lines).expect("the command reads");
    let outcome = Outcome::of(&child.wait_with_output().expect("the command ends"));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, "invalid keyword: bogus\ninvalid keyword: bogus\n"));
    let start =
        "scontrol: n1\nn2\nscontrol: scontrol: scontrol: scontrol: scontrol: PartitionName=all AllowGroups=ALL ";
    assert!(outcome.stdout.starts_with(start), "{}", outcome.stdout);
    assert!(outcome.stdout.ends_with("billing=4\nscontrol: "), "{}", outcome.stdout);
}

#[test]
fn jobs_are_requeued_held_and_released() {
    let site = Site::up();
    let script = "date >> starts-$SLURM_JOB_ID; [ -e ok ] || exit 3; while ! [ -e go ]; do sleep 0.05; done";
    let failing = site.submit(&["--wrap", script]);
    site.wait(&failing, "failed");
    site.cluster.write("ok", "");
    assert_eq!(site.scontrol(&format!("requeue {failing}")), "");
    site.wait(&failing, "running");
    assert_eq!((site.value(&failing, "JobState"), site.value(&failing, "Restarts")), ("RUNNING".into(), "1".into()));
    wait_until("the second start", 30, || (site.read(&format!("starts-{failing}")).lines().count() == 2).then_some(()));
    assert_eq!(site.scontrol(&format!("requeue {failing}")), "", "a running job starts again");
    wait_until("the third start", 60, || (site.read(&format!("starts-{failing}")).lines().count() == 3).then_some(()));
    assert_eq!(site.value(&failing, "Restarts"), "2");

    let fixed = site.submit(&["--no-requeue", "--wrap", script]);
    site.wait(&fixed, "running");
    let text = format!("Requested operation is presently disabled for job {fixed}\n");
    let hint = format!(
        "scontrol: hint: the job does not allow requeues (--no-requeue); `hostler requeue {fixed}` queues it again\n"
    );
    assert_eq!(site.fails(&format!("requeue {fixed}")), format!("{text}{hint}"));
    for action in ["suspend", "resume", "requeuehold"] {
        assert!(site.fails(&format!("{action} {fixed}")).starts_with(&text));
    }
    assert!(site.fails(&format!("update jobid={fixed} numtasks=2")).starts_with(&text));
    let text = format!("Job is no longer pending execution for job {fixed}\nslurm_suspend error: Job is no longer");
    assert!(site.fails(&format!("hold {fixed}")).starts_with(&text));

    // Both nodes have free CPUs, but held jobs wait.
    let held = site.submit(&["-H", "-J", "held", "--wrap", "true"]);
    let pending = format!("Job is pending execution for job {held}\n");
    assert_eq!(site.fails(&format!("requeue {held}")), pending);
    assert_eq!(site.fails(&format!("requeue {held},99")), format!("{pending}Invalid job id specified for job 99\n"));
    assert_eq!(site.scontrol(&format!("hold {held}")), "");
    assert_eq!(site.scontrol(&format!("release {held}")), "");
    site.wait(&held, "completed");
    let over = format!("Job has already finished for job {held}\nslurm_suspend error: Job has already finished\n");
    assert_eq!(site.fails(&format!("release {held}")), over);
    let waiting = site.submit(&["-H", "-J", "named", "--wrap", "true"]);
    assert_eq!(site.scontrol("release jobname=named"), "");
    site.wait(&waiting, "completed");
    site.cluster.write("go", "");
    site.wait(&failing, "completed");
    // The head deletes the variables of jobs that have completed, so it cannot run them again.
    let text = format!("Requested operation is presently disabled for job {failing}\n");
    assert!(site.fails(&format!("requeue {failing}")).starts_with(&text));
}

#[test]
fn job_requeues_itself() {
    let site = Site::up();
    let script = "echo start $SLURM_RESTART_COUNT >> starts\n\
                  [ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }";
    let job = site.submit(&["-o", "out", "--open-mode=append", "--wrap", script]);
    site.wait(&job, "completed");
    assert_eq!(site.read("starts"), "start\nstart 1\n");
    let array = site.submit(&[
        "-a",
        "3-4",
        "--wrap",
        "[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue \
        ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; sleep 60; }",
    ]);
    site.wait(&array, "completed");
    let text = site.scontrol(&format!("show job {array} -o"));
    assert_eq!(text.matches("Restarts=1 ").count(), 2, "{text}");
}

#[test]
fn nodes_are_drained_and_resumed() {
    let site = Site::up();
    let nodes = site.scontrol("show node -o");
    assert_eq!(nodes.lines().count(), 2);
    assert_tokens(&nodes);
    let first = nodes.lines().next().expect("a node");
    for token in [
        "NodeName=n1",
        "CPUAlloc=0",
        "CPUTot=2",
        "RealMemory=1024",
        "State=IDLE",
        "Partitions=all",
        "NodeAddr=127.0.0.1",
    ] {
        assert!(first.split(' ').any(|other| other == token), "{token}: {first}");
    }
    assert!(first.contains(" CfgTRES=cpu=2,mem=1G,billing=2 AllocTRES=(null)"), "{first}");
    assert_eq!(site.scontrol("-a show -o nodes n2,n1").lines().count(), 2);
    assert_eq!(site.scontrol("show node=n2").matches("NodeName=").count(), 1);

    let reason = "You must specify a reason when DOWNING or DRAINING a node. Request denied\n";
    assert_eq!(site.fails("update nodename=n1 state=drain"), reason);
    let alone = site.fails("update nodename=n1 reason=x");
    assert!(alone.starts_with("slurm_update error: Requested operation is presently disabled\n"), "{alone}");
    assert_eq!(site.print("scontrol", &["update", "NodeName=n1", "State=DRAIN", "Reason=bad disk"]), "");
    let node = site.scontrol("show node n1");
    assert!(node.contains("\n   State=IDLE+DRAIN ") && node.contains("\n   Reason=bad disk ["), "{node}");
    assert_eq!(site.sinfo("-h -o %t|%T|%E|%N -n n1"), "drain|drained|bad disk|n1\n");
    assert_eq!(site.print("scontrol", &["update", "nodename=n1", "reason=other"]), "");
    let reasons = site.sinfo("-R");
    let lines: Vec<&str> = reasons.lines().collect();
    assert_eq!(lines[0], "REASON               USER      TIMESTAMP           NODELIST");
    assert!(
        lines[1].starts_with("other                ") && lines[1].ends_with(" n1") && lines.len() == 2,
        "{reasons}"
    );
    assert_eq!(site.scontrol("update nodename=n1 state=resume"), "");
    assert!(site.scontrol("show node n1").contains("State=IDLE "));
    assert_eq!(site.sinfo("-R -h"), "");

    // A node that still runs a job drains.
    let job = site.submit(&["-w", "n2", "--wrap", "while ! [ -e go ]; do sleep 0.05; done"]);
    site.wait(&job, "running");
    let down = site.run("scontrol", &["update", "nodename=n[1-2]", "state=down", "reason=move"]);
    assert_eq!(
        (down.code, down.stderr.as_str()),
        (0, "scontrol: note: the jobs on n[1-2] continue; new ones do not start there\n")
    );
    assert_eq!(site.sinfo("-h -N -o %N|%t"), "n1|drain\nn2|drng\n");
    assert!(site.scontrol("show node n2").contains("State=MIXED+DRAIN "));
    assert_eq!(site.sinfo("-h -t drained -o %N|%C"), "n1|0/0/2/2\n");
    assert_eq!(site.sinfo("-h -t drng -o %N|%C"), "n2|1/0/1/2\n");
    site.cluster.write("go", "");
    site.wait(&job, "completed");
    assert_eq!(site.scontrol("update nodename=n[1-2] state=undrain weight=7"), "");
    assert_eq!(site.sinfo("-h -o %t|%w|%N"), "idle|7|n[1-2]\n");
    let document: Value = serde_json::from_str(&site.scontrol("show nodes --json")).expect("JSON");
    assert_eq!(
        (&document["nodes"][1]["name"], &document["nodes"][1]["state"]),
        (&"n2".into(), &serde_json::json!(["IDLE"]))
    );

    // A node without its agent is down, and Slurm's reason says why.
    site.cluster.kill_9(site.cluster.agent_pids()[0]);
    wait_until("the node to be down", 60, || {
        (site.sinfo("-h -n n1 -o %t|%E|%C") == "down*|Not responding|0/0/2/2\n").then_some(())
    });
    assert!(site.scontrol("show node n1").contains("\n   State=DOWN+NOT_RESPONDING "));
    assert_eq!(site.sinfo("-h -r -o %N"), "n2\n");
    assert_eq!(site.sinfo("-h -d -o %N"), "n1\n");
}

#[test]
fn partitions_are_created_changed_and_deleted() {
    let site = Site::up();
    assert_tokens(&site.scontrol("show partition -o"));
    assert_eq!(site.sinfo("-o %P"), "PARTITION\nall*\n");
    assert_eq!(site.scontrol("create partitionname=main nodes=ALL default=yes"), "");
    assert_eq!(site.scontrol("create partitionname=big nodes=n2 maxtime=1-0 defaulttime=30 maxnodes=1"), "");
    let main = site.scontrol("show part main");
    assert!(main.starts_with("PartitionName=main\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n"), "{main}");
    assert!(main.contains(" Default=YES ") && main.contains("\n   Nodes=n[1-2]\n"), "{main}");
    assert!(main.ends_with("\n   TRES=cpu=4,mem=2G,node=2,billing=4\n\n"), "{main}");
    let big = site.scontrol("-a show -o partition=big");
    assert_tokens(&big);
    assert!(big.contains(" DefaultTime=00:30:00 ") && big.contains(" MaxNodes=1 MaxTime=1-00:00:00 "), "{big}");
    assert_eq!(
        site.sinfo("-h -o %R|%a|%l|%L|%s|%N"),
        "big|up|1-00:00:00|30:00|1|n2\nmain|up|infinite|n/a|1-infinite|n[1-2]\n"
    );
    assert_eq!(
        site.scontrol(
            "update partitionname=big state=drain maxtime=infinite maxnodes=unlimited prioritytier=7 default=yes"
        ),
        ""
    );
    assert_eq!(site.sinfo("-h -p big -o %P|%a|%l|%s|%p"), "big*|drain|infinite|1-infinite|7\n");
    assert_eq!(site.scontrol("update part=big state=down"), "");
    assert_eq!(site.sinfo("-h -p big -o %a"), "down\n");
    assert!(site.scontrol("show part big -o").contains(" State=DOWN "));
    assert_eq!(
        site.scontrol("show node n2 -o").split(' ').find(|token| token.starts_with("Partitions=")),
        Some("Partitions=big,main")
    );
    assert_eq!(site.scontrol("delete partitionname=big"), "");
    assert_eq!(site.sinfo("-h -o %R"), "main\n");
    let document: Value = serde_json::from_str(&site.scontrol("show partitions --json")).expect("JSON");
    assert_eq!(document["partitions"][0]["nodes"]["configured"], "n[1-2]");
}

#[test]
fn sinfo_prints_slurms_tables() {
    let site = Site::up();
    let usual = "\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
all*         up   infinite      2   idle n[1-2]
";
    assert_eq!(site.sinfo(""), usual);
    let job = site.submit(&["-w", "n1", "--wrap", "while ! [ -e go ]; do sleep 0.05; done"]);
    site.wait(&job, "running");
    let mixed = "\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
all*         up   infinite      1    mix n1
all*         up   infinite      1   idle n2
";
    assert_eq!(site.sinfo(""), mixed);
    let long = site.sinfo("-l");
    let (date, table) = long.split_once('\n').expect("lines");
    assert!(date.len() == 24 && date.ends_with(|c: char| c.is_ascii_digit()), "{date}");
    assert_eq!(
        table,
        "\
PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST
all*         up   infinite 1-infinite   no       NO        all      1       mixed n1
all*         up   infinite 1-infinite   no       NO        all      1        idle n2
"
    );
    assert_eq!(
        site.sinfo("-N"),
        "\
NODELIST   NODES PARTITION STATE \n\
n1             1      all* mix   \n\
n2             1      all* idle  \n"
    );
    assert_eq!(
        site.sinfo("-s"),
        "\
PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
all*         up   infinite          1/1/0/2 n[1-2]
"
    );
    assert!(site.sinfo("-h -l").starts_with("all* "), "no date without the header");
    let text = site.sinfo("-lN");
    let expected = "\
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON              \n\
n1             1      all*       mixed 2       2:1:1   1024        0      0 ";
    assert!(text.split_once('\n').is_some_and(|(_, table)| table.starts_with(expected)), "{text}");
    for (line, expected) in [
        ("-h -o %C", "1/3/0/4\n"),
        ("-o %C", "CPUS(A/I/O/T)\n1/3/0/4\n"),
        ("-aho %F/%C", "1/1/0/2/1/3/0/4\n"),
        ("-h -o %D,%T", "1,mixed\n1,idle\n"),
        ("-h -o %R,%C", "all,1/3/0/4\n"),
        ("--format %P,%m --noconvert", "PARTITION,MEMORY\nall*,1024\n"),
        ("-h -t idle -o %N", "n2\n"),
        ("-h -n n1,n9 -o %N", "n1\n"),
        ("-h -p nosuch", ""),
        ("-d -h", "all*         up   infinite      0    n/a \n"),
        ("-h -N -S -N -o %N", "n2\nn1\n"),
        ("-h -O nodelist:.6,cpus:4x,statelong:", "    n12   xmixed\n    n22   xidle\n"),
        ("--version", "slurm 24.05.8\n"),
    ] {
        assert_eq!(site.sinfo(line), expected, "{line}");
    }
    assert_eq!(
        site.print("sinfo", &["-a", "-o", "%P %G %l %p %c %m"]),
        "PARTITION GRES TIMELIMIT PRIO_TIER CPUS MEMORY\nall* (null) infinite 1 2 1024\n"
    );
    let columns = site.print("sinfo", &["-h", "-N", "-O", "NodeList,AllocMem,Memory,CPUsState,StateLong"]);
    let padded = |words: [&str; 5]| words.map(|word| format!("{word:<20}")).concat() + "\n";
    assert_eq!(
        columns,
        padded(["n1", "16", "1024", "1/1/0/2", "mixed"]) + &padded(["n2", "0", "1024", "0/2/0/2", "idle"])
    );
    let separators = site.print("sinfo", &["-h", "--Node", "-o", "%N\\x1f%t\\x1f%G\\x1f%c"]);
    assert_eq!(separators, "n1\\x1fmix\\x1f(null)\\x1f2\nn2\\x1fidle\\x1f(null)\\x1f2\n");
    let measured = site.print("sinfo", &["-o", "%n %e %m %a %c %C"]);
    assert!(measured.starts_with("HOSTNAMES FREE_MEM MEMORY AVAIL CPUS CPUS(A/I/O/T)\nn1 "), "{measured}");
    let unknown = site.run("sinfo", &["-h", "-o", "%5q|%R"]);
    assert_eq!(
        (unknown.stdout.as_str(), unknown.stderr.as_str()),
        ("%5q|all\n", "Invalid node format specification: q\n")
    );
    let bogus = site.run("sinfo", &["-t", "bogus,idle"]);
    assert_eq!((bogus.code, bogus.stdout.as_str()), (1, ""));
    assert!(bogus.stderr.starts_with("sinfo: error: Bad state string: \"bogus\"\n"), "{}", bogus.stderr);
    let mut command = site.command("sinfo", &["-h"]);
    let output = command.env("SINFO_FORMAT", "%R %D").env("SINFO_SORT", "D").output().expect("the command starts");
    assert_eq!(Outcome::of(&output).stdout, "all 2\n");
    let document: Value = serde_json::from_str(&site.sinfo("--json")).expect("JSON");
    assert_eq!(document["sinfo"][0]["node"]["state"], serde_json::json!(["MIXED"]));
    assert_eq!(site.sinfo("-M hostler -h -o %R"), "all\n");
    assert_eq!(site.sinfo("-M hostler -o %R"), "CLUSTER: hostler\nPARTITION\nall\n");
    assert_eq!(site.run("sinfo", &["-M", "other"]).code, 1);
}

#[test]
fn commands_about_accounts_answer() {
    let site = Site::up();
    let user = own_name();
    assert_eq!(site.print("sacctmgr", &["-n", "-s", "list", "user", &user, "format=account%256"]), "");
    let list = ["-nP", "show", "users", "withassoc", "format=account,qos", "where", &format!("user={user}")];
    assert_eq!(site.print("sacctmgr", &list), "default|normal\n");
    assert_eq!(site.print("sacctmgr", &["-nP", "list", "cluster", "format=cluster"]), "hostler\n");
    let associations = site.scontrol("show assoc_mgr accounts=default flags=assoc");
    assert!(associations.contains(&format!("ClusterName=hostler Account=default UserName={user}(")), "{associations}");
    let queue: Value = serde_json::from_str(&site.print("squeue", &["--json"])).expect("JSON");
    for time in ["last_backfill", "last_update"] {
        assert!(queue[time]["number"].as_u64().is_some_and(|seconds| seconds > 0), "{time}");
    }
    let refused = site.run("sacctmgr", &["-i", "create", "account", "physics"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("sacctmgr: hint: `hostler configure user`"), "{}", refused.stderr);
    // Snakemake asks this, and takes an empty list for all accounts.
    let shares = site.run("sshare", &["-U", "--format", "Account%256", "--noheader"]);
    assert_eq!((shares.code, shares.stdout.as_str()), (0, ""));

    let running = site.submit(&["-N2", "-c2", "--wrap", "sleep 600"]);
    site.wait(&running, "running");
    let job = site.submit(&["--wrap", "true"]);
    let steps = site.print("sstat", &["-j", &running]);
    assert!(steps.starts_with("JobID         MaxVMSize  MaxVMSizeNode "), "{steps}");
    let steps = site.print("sstat", &["-n", "-P", "-o", "jobid,nodelist,ntasks", "-j", &running]);
    assert_eq!(steps, format!("{running}.batch|n[1-2]|2\n"));
    let waiting = site.run("sstat", &["-n", "-j", &format!("{job},99")]);
    let text = format!("sstat: error: No steps running for job {job}\nsstat: error: couldn't get steps for job 99\n");
    assert_eq!((waiting.code, waiting.stdout.as_str(), waiting.stderr), (0, "", text));
    let none = site.run("sstat", &[]);
    assert_eq!((none.code, none.stderr.as_str()), (1, "sstat: error: You didn't give me any jobs to stat.\n"));
    for name in ["sacctmgr", "scontrol", "sinfo", "sshare", "sstat"] {
        assert_eq!(site.print(name, &["--version"]), "slurm 24.05.8\n");
        assert!(site.print(name, &["--help"]).starts_with(&format!("Usage: {name} ")), "{name}");
        let mistake = site.run(name, &["--nosuch"]);
        let text = format!("{name}: unrecognized option '--nosuch'\nTry \"{name} --help\" for more information\n");
        assert_eq!((mistake.code, mistake.stderr), (1, text));
    }
}

/// The name of the user who runs the tests.
fn own_name() -> String {
    let output = Command::new("id").arg("-un").output().expect("id is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
