//! `srun` and `salloc` on a real cluster.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::ops::Deref;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hostler_testkit::{Size, SlurmNames, kill, wait_until};
use nix::sys::signal::Signal;

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

    /// Runs a batch script, and returns its output.
    fn batch(&self, options: &[&str], script: &str) -> String {
        self.cluster.write("job.sh", format!("#!/bin/bash\n{script}"));
        let outcome = self.run("sbatch", &[&["--wait", "--parsable", "--mem=64"], options, &["job.sh"]].concat());
        let id = outcome.stdout.trim().to_owned();
        let output = fs::read_to_string(self.cluster.path(&format!("slurm-{id}.out")));
        output.unwrap_or_else(|error| panic!("{error}: {}{}{}", outcome.stdout, outcome.stderr, self.cluster.logs()))
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn srun_without_a_job_makes_one() {
    let site = Site::up();
    let outcome = site.run("srun", &["--mem=64", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "out\n"), "{}", outcome.stderr);
    let node = site.cluster.json(&["job", "1"])["tasks_shown"][0]["node"].as_str().expect("a node").to_owned();
    assert_eq!(outcome.stderr, format!("err\nsrun: error: {node}: task 0: Exited with exit code 3\n"));
    site.cluster.wait_for_state("1", "failed");

    // Both nodes, with the variables of each task.
    let show = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_STEP_ID $SLURM_JOB_NODELIST";
    let outcome = site.run("srun", &["--mem=64", "-N2", "-n3", "-l", "sh", "-c", show]);
    assert_eq!(
        (sorted(&outcome.stdout), outcome.stderr.as_str(), outcome.code),
        (vec!["0: 0/3 0 0 n1 0 n[1-2]", "1: 1/3 1 0 n1 0 n[1-2]", "2: 2/3 0 1 n2 0 n[1-2]"], "", 0)
    );

    // What the cluster cannot do is refused in Slurm's words.
    let outcome = site.run("srun", &["-p", "nowhere", "true"]);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stderr.starts_with(
            "srun: error: invalid partition specified: nowhere\n\
             srun: error: Unable to allocate resources: Invalid partition name specified\n"
        ),
        "{}",
        outcome.stderr
    );
    let outcome = site.run("srun", &["--mem=64"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, "srun: fatal: No command given to execute.\n"));
    assert_eq!(site.run("srun", &["-V"]).stdout, "slurm 24.05.8\n");
    assert_eq!(site.run("srun", &["--mpi=list"]).code, 0);
    let outcome = site.run("srun", &["--mem=64", "/no/such/program"]);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    let why = ": error: execve(): /no/such/program: No such file or directory\n";
    assert!(outcome.stderr.starts_with("slurmstepd-n") && outcome.stderr.contains(why), "{}", outcome.stderr);
}

#[test]
fn srun_outside_of_a_job_checks_what_it_can_before_it_makes_one() {
    let site = Site::up();
    let srun = |line: &str| site.run("srun", &line.split(' ').collect::<Vec<_>>());
    site.cluster.write("good", "0 echo first %t\n1 echo other %o\n");
    site.cluster.write("bad", "0 echo a\n5 echo b\n");
    site.cluster.write("rest", "1 echo one\n* echo rest %t\n");
    let outcome = srun("-n2 --mem=64 -l --multi-prog rest");
    assert_eq!((outcome.code, sorted(&outcome.stdout).join(" ").as_str()), (0, "0: rest 0 1: one"), "{outcome:?}");
    let outcome = srun("-n2 --mem=64 -l --multi-prog good");
    assert_eq!((outcome.code, sorted(&outcome.stdout).join(" ").as_str()), (0, "0: first 0 1: other 0"), "{outcome:?}");
    for (line, text) in [
        ("-n3 --multi-prog good", "srun: error: Configuration file good invalid, no record for task id 2\n"),
        (
            "-n2 --multi-prog bad",
            "srun: error: Invalid task id, 5 >= ntasks\nsrun: error: Line 2 of configuration file bad invalid\n",
        ),
        ("--multi-prog missing", "srun: error: Could not open multi_prog config file missing\n"),
        ("-r1 true", "srun: fatal: --relative option invalid for job allocation request\n"),
        (
            "--uid=nobody true",
            "srun: error: --uid names another user\nsrun: hint: call the command as that user, for example with `su`\n",
        ),
        ("--profile=x true", "srun: error: invalid --profile=x option\n"),
        ("--exclusive=x true", "srun: error: Invalid --exclusive specification\n"),
    ] {
        let outcome = srun(line);
        assert_eq!((outcome.code != 0, outcome.stderr.as_str()), (true, text), "{line}");
    }
    // A node without a task is of no use.
    let outcome = srun("-N2 -n1 --mem=64 printenv SLURM_JOB_NUM_NODES");
    let warning = "srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "1\n", warning));
    let all = site.run("sacct", &["-n", "-X", "-P", "-o", "jobid"]);
    assert_eq!(all.stdout, "1\n2\n3\n", "mistakes cost no job");
    let outcome = site.run("salloc", &["--mem=64", "-Q", "nonexistentcommand"]);
    let text = "salloc: error: _fork_command: Unable to find command \"nonexistentcommand\"\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, text));
}

#[test]
fn steps_of_a_script_share_its_job() {
    let site = Site::up();
    // The input goes to all tasks; files have patterns; a killed task is named.
    let output = site.batch(
        &["-N2", "-n4"],
        "printf 'a\\nb\\n' | srun -n2 -N2 -l cat\n\
         srun -n4 -o step-%s-%t.txt sh -c 'echo $SLURM_PROCID'\n\
         cat step-1-*.txt\n\
         srun -n1 -N1 sh -c 'kill -9 $$'; echo code $?\n\
         srun --input=none -n1 -N1 cat\n\
         env -i PATH=$PATH SLURM_JOB_ID=$SLURM_JOB_ID srun -n1 -N1 sh -c 'echo stripped $SLURM_NTASKS $SLURM_JOB_ID'\n\
         printf '0 echo first %%t\\n1-3 echo other %%o\\n' > prog.conf; srun -n4 -l --multi-prog prog.conf\n\
         srun -n9 true; echo code $?\n\
         srun --uid=nobody -n1 -N1 true; echo uid $?\n",
    );
    let lines = sorted(&output);
    for line in [
        "0: a",
        "uid 255",
        "1: b",
        "2",
        "3",
        "code 137",
        "srun: error: n1: task 0: Killed",
        "stripped 1 1",
        "0: first 0",
        "3: other 2",
        "code 1",
    ] {
        assert!(lines.contains(&line), "{line} is not in\n{output}");
    }
    assert!(output.contains("More processors requested than permitted"), "{output}");

    // The records of the steps stay with the job.
    let listed =
        site.run("sacct", &["-j", "1", "-P", "-n", "-o", "JobID,JobName,State,ExitCode,NTasks,NNodes,NodeList"]);
    for line in [
        "1.batch|batch|COMPLETED|0:0|1|1|n1",
        "1.0|cat|COMPLETED|0:0|2|2|n[1-2]",
        "1.1|sh|COMPLETED|0:0|4|2|n[1-2]",
        "1.2|sh|CANCELLED|0:9|1|1|n1",
    ] {
        assert!(listed.stdout.lines().any(|it| it == line), "{line} is not in\n{}", listed.stdout);
    }
    let one = site.run("sacct", &["-j", "1.2", "-P", "-n", "-o", "JobID"]);
    assert_eq!(one.stdout, "1.2\n");
    let shown = site.cluster.ok(&["job", "1"]);
    let step = shown.lines().find(|line| line.trim_start().starts_with("2  sh")).expect("the table of steps");
    let words: Vec<&str> = step.split_whitespace().collect();
    assert_eq!(words[..5], ["2", "sh", "1", "n1", "137"], "{shown}");
}

#[test]
fn steps_of_a_running_job_are_listed_and_signalled_one_by_one() {
    let site = Site::up();
    site.cluster.write(
        "job.sh",
        "#!/bin/bash\n\
         srun -N2 -n2 --overlap sh -c 'touch first-$SLURM_PROCID; exec sleep 600' & first=$!\n\
         until [ -e first-0 ] && [ -e first-1 ]; do sleep 0.05; done\n\
         srun -N1 -n1 --overlap sh -c 'trap \"touch heard\" USR1; touch second; until [ -e heard ] && [ -e last ]; do sleep 0.05; done' & second=$!\n\
         wait $first; echo first $?; until [ -e seen ]; do sleep 0.05; done; touch last; wait $second; echo second $?\n",
    );
    assert_eq!(site.run("sbatch", &["-N2", "--ntasks-per-node=1", "--mem=64", "job.sh"]).code, 0);
    wait_until("both steps run", 60, || site.cluster.path("second").exists().then_some(()));

    let steps = |arguments: &[&str]| site.run("squeue", &[&["-h", "-o", "%i %j %A %N %P"], arguments].concat()).stdout;
    let all = "1.0 sh 2 n[1-2] all\n1.1 sh 1 n1 all\n1.batch batch 1 n1 all\n";
    assert_eq!(steps(&["-s"]), all);
    assert_eq!(
        (steps(&["-s", "-j", "1.1"]), steps(&["-s", "1.1"])),
        (all.lines().nth(1).map(|it| format!("{it}\n")).expect("a line"), "1.1 sh 1 n1 all\n".to_owned())
    );
    let shown = site.run("scontrol", &["show", "step", "1.0"]).stdout;
    for part in ["StepId=1.0 UserId=", "State=RUNNING Partition=all NodeList=n[1-2]", "Nodes=2 CPUs=2 Tasks=2 Name=sh"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(site.run("scontrol", &["show", "step", "1.7"]).stdout, "Job step 1.7 not found\n");
    let listed = |arguments: &[&str]| {
        let outcome = site.run(
            "sacct",
            &[&["-n", "-P", "-o", "jobid,jobname,state,exitcode,end,ntasks,nodelist"], arguments].concat(),
        );
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{arguments:?}");
        outcome.stdout
    };
    let job = "1|job.sh|RUNNING|0:0|Unknown||n[1-2]\n";
    let script = "1.batch|batch|RUNNING|0:0|Unknown|1|n1\n";
    let (first, second) = ("1.0|sh|RUNNING|0:0|Unknown|2|n[1-2]\n", "1.1|sh|RUNNING|0:0|Unknown|1|n1\n");
    assert_eq!(listed(&[]), [job, script, first, second].concat());
    assert_eq!((listed(&["-X"]).as_str(), listed(&["-j", "1.1"]).as_str()), (job, second));
    let used = |id: &str| site.run("sstat", &["-n", "-P", "-o", "jobid,nodelist,ntasks", "-j", id]).stdout;
    assert_eq!(
        (used("1").as_str(), used("1.1").as_str()),
        ("1.batch|n[1-2]|2\n1.0|n[1-2]|2\n1.1|n1|1\n", "1.1|n1|1\n")
    );
    // A node that does not answer costs its steps, but not the list.
    let agent = site.cluster.agent_pids()[0];
    kill(agent, Signal::SIGSTOP);
    assert_eq!(listed(&[]), [job, script].concat());
    kill(agent, Signal::SIGCONT);

    let job = site.cluster.json(&["job", "1"]);
    assert_eq!(job["running_steps"].as_array().map(Vec::len), Some(2), "{job}");
    assert!(site.cluster.ok(&["job", "1"]).contains("RUNNING STEP"));

    let outcome = site.cluster.run(&["signal", "1", "KILL", "--step", "7"]);
    assert!(outcome.code != 0 && outcome.stderr.contains("step 7 of job 1 is not running"), "{outcome:?}");

    // A signal to one step reaches its tasks on all nodes, and nothing else.
    assert_eq!(site.cluster.ok(&["signal", "1", "USR1", "--step", "1"]), "");
    wait_until("the second step hears the signal", 30, || site.cluster.path("heard").exists().then_some(()));
    let outcome = site.run("scancel", &["1.0"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
    // A step that has ended is listed while its job runs.
    wait_until("the first step is listed as ended", 30, || {
        let state = site.run("sacct", &["-n", "-P", "-o", "state,exitcode", "-j", "1.0"]).stdout;
        (state == "CANCELLED|0:9\n").then_some(())
    });
    assert_eq!(steps(&["-s", "-j", "1"]), all.split_inclusive('\n').skip(1).collect::<String>());
    let job = site.cluster.json(&["job", "1"]);
    assert_eq!(job["running_steps"].as_array().map(Vec::len), Some(1), "{job}");
    assert_eq!(job["tasks_shown"][0]["steps"][0]["exit_code"], 137, "{job}");
    site.cluster.write("seen", "");
    site.cluster.wait_for_state("1", "completed");
    let output = fs::read_to_string(site.cluster.path("slurm-1.out")).expect("the output");
    let lines = sorted(&output);
    for line in ["first 137", "second 0", "srun: error: n1: task 0: Killed", "srun: error: n2: task 1: Killed"] {
        assert!(lines.contains(&line), "{line} is not in\n{output}");
    }
    let listed = site.run("sacct", &["-n", "-P", "-o", "jobid,state"]).stdout;
    assert_eq!(listed, "1|COMPLETED\n1.batch|COMPLETED\n1.0|CANCELLED\n1.1|COMPLETED\n");
    assert_eq!(site.run("scancel", &["1.0"]).code, 1, "the job has ended");
}

#[test]
fn steps_wait_for_cpus_unless_they_overlap() {
    let site = Site::up();
    let begun = "date +%s%N";
    let output = site.batch(
        &["-n2"],
        &format!(
            "for i in 1 2 3 4; do srun --exclusive -n1 sh -c 'echo begin $({begun}); sleep 2; echo end $({begun})' & done; wait\n\
             srun -n2 sh -c 'touch busy-$SLURM_PROCID; until [ -e release ]; do sleep 0.05; done' &\n\
             until [ -e busy-0 ] && [ -e busy-1 ]; do sleep 0.05; done\n\
             timeout 60 srun --overlap -n2 true; echo overlap code=$?; touch release; wait\n"
        ),
    );
    let mut times: Vec<(u128, i32)> = output
        .lines()
        .filter_map(|line| {
            let (what, at) = line.split_once(' ')?;
            Some((at.parse().ok()?, if what == "begin" { 1 } else { -1 }))
        })
        .collect();
    times.sort_unstable();
    assert_eq!(times.len(), 8, "{output}");
    let mut running = 0;
    let most = times.iter().map(|(_, change)| {
        running += change;
        running
    });
    assert_eq!(most.max(), Some(2), "{output}");
    assert!(output.contains("overlap code=0\n"), "the overlapping step did not wait: {output}");
}

#[test]
fn bad_exit_ends_a_step_on_request_and_ctrl_c_reports_first() {
    let site = Site::up();
    let begun = Instant::now();
    let outcome = site.run(
        "srun",
        &["--mem=64", "-n2", "-K", "sh", "-c", "if [ $SLURM_PROCID = 1 ]; then exit 9; fi; exec sleep 600"],
    );
    assert!(begun.elapsed() < Duration::from_secs(60) && outcome.code == 143, "{outcome:?}");
    assert!(outcome.stderr.contains("srun: Terminating StepId=1.0\n"), "{}", outcome.stderr);

    let log = site.cluster.path("log");
    let mut command = site.command("srun", &["--mem=64", "sh", "-c", "touch begun; exec sleep 600"]);
    let mut child = command.stderr(fs::File::create(&log).expect("a file")).spawn().expect("srun starts");
    wait_until("the step runs", 30, || site.cluster.path("begun").exists().then_some(()));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let interrupt = || nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("srun runs");
    interrupt();
    let said = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text)).then_some(());
    wait_until("the first Ctrl-C reports", 10, || said("StepId=2.0 task 0: running"));
    std::thread::sleep(Duration::from_millis(1100));
    // Signals that arrive together count as one, so there may have to be more than two.
    let ended = wait_until("the step ends", 60, || {
        interrupt();
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().expect("srun is a child")
    });
    assert_eq!(ended.code(), Some(143));
}

#[test]
fn salloc_holds_resources_for_a_command_and_nests() {
    let site = Site::up();
    let outcome = site.run(
        "salloc",
        &[
            "--mem=64",
            "-N2",
            "sh",
            "-c",
            "echo $SLURM_JOB_ID $SLURM_NNODES; srun -l sh -c 'echo $SLURM_NODEID'; exit 4",
        ],
    );
    assert_eq!(
        (sorted(&outcome.stdout), outcome.code),
        (vec!["0: 0", "1 2", "1: 1"], 4),
        "{}{}",
        outcome.stderr,
        site.cluster.logs()
    );
    assert_eq!(outcome.stderr, "salloc: Granted job allocation 1\nsalloc: Relinquishing job allocation 1\n");

    // A command of a step allocates anew, as command-line tools of a classroom do.
    let outcome = site.run(
        "salloc",
        &[
            "--mem=64",
            "srun",
            "--export=ALL,WORD=hi",
            "salloc",
            "--mem=64",
            "srun",
            "sh",
            "-c",
            "echo $WORD $SLURM_JOB_ID; exit 7",
        ],
    );
    assert_eq!((outcome.stdout.as_str(), outcome.code), ("hi 3\n", 7), "{}", outcome.stderr);

    // Without a shell the allocation stays, and other commands use it by its number.
    let outcome = site.run("salloc", &["--mem=64", "--no-shell"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, "salloc: Granted job allocation 4\n"));
    let outcome = site.run("srun", &["--jobid=4", "sh", "-c", "echo $SLURM_JOB_ID"]);
    assert_eq!((outcome.stdout.as_str(), outcome.code), ("4\n", 0), "{}", outcome.stderr);
    assert_eq!(site.run("scancel", &["4"]).code, 0);
    site.cluster.wait_for_state("4", "cancelled");

    // What must wait says so, and `-I` does not wait.
    let hold = ["--mem=64", "-N2", "--exclusive", "sh", "-c", "touch held; until [ -e release ]; do sleep 0.05; done"];
    let mut holder = site.command("srun", &hold).spawn().expect("srun starts");
    wait_until("the holder runs", 30, || site.cluster.path("held").exists().then_some(()));
    let outcome = site.run("salloc", &["--mem=64", "-I", "true"]);
    assert_eq!(outcome.code, 1);
    assert!(outcome.stderr.contains("Immediate execution impossible, insufficient resources"), "{}", outcome.stderr);
    let mut waiting = site.command("salloc", &["--mem=64", "true"]);
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().expect("salloc starts");
    let mut stderr = BufReader::new(waiting.stderr.take().expect("the stream is piped"));
    let mut said = String::new();
    while !said.contains("queued and waiting") {
        assert_ne!(stderr.read_line(&mut said).expect("text"), 0, "{said}");
    }
    site.cluster.write("release", "");
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(
        (waiting.wait().expect("salloc is a child").code(), said.as_str()),
        (
            Some(0),
            "salloc: Pending job allocation 7\nsalloc: job 7 queued and waiting for resources\nsalloc: job 7 has been allocated resources\nsalloc: Granted job allocation 7\nsalloc: Relinquishing job allocation 7\n"
        )
    );
    holder.wait().expect("srun is a child");
}

#[test]
fn job_ends_when_the_output_of_srun_is_lost() {
    let site = Site::up();
    let endless = "while :; do echo x; sleep 0.1; done";
    for (id, line) in [
        ("1", format!("srun --mem=64 sh -c '{endless}' | head -1")),
        ("2", format!("srun --mem=64 -n2 -l sh -c '{endless}' | head -1")),
        // The other task writes nothing.
        ("3", format!("srun --mem=64 -n2 sh -c '[ $SLURM_PROCID = 0 ] || exec sleep 600; {endless}' | head -1")),
        // The output is an incomplete line, which `srun` holds back for a while.
        ("4", "srun --mem=64 -l -n2 sh -c 'printf x; exec sleep 600' | true".to_owned()),
        ("5", "srun --mem=64 sh -c 'echo x; exec sleep 600' >/dev/full".to_owned()),
    ] {
        let outcome = site.run("bash", &["-c", &format!("set -o pipefail; {line}; echo \"${{PIPESTATUS[0]}}\"")]);
        let code = outcome.stdout.lines().last().unwrap_or_default().to_owned();
        assert_eq!(code, if id == "5" { "1" } else { "141" }, "{line}: {}", outcome.stderr);
        // `srun` ends only after the head knows the end of the job.
        assert!(["failed", "cancelled"].contains(&site.cluster.state(id).as_str()), "{line}");
    }
}
