//! What scripts that grew up on Slurm rely on while they run.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use hostler_testkit::{Outcome, Size, SlurmNames, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 2, cpus: 2, memory: "1G" };

/// Starts a cluster with the names of Slurm's commands.
fn up() -> SlurmNames {
    SlurmNames::up(HOSTLER, SMALL)
}

#[test]
fn array_tasks_have_small_numbers_that_all_commands_know() {
    let site = up();
    let array =
        site.submit(&["--mem=60", "-a", "3-9:2%2", "-o", "%A-%a-%j", "--wrap", "srun echo $SLURM_JOB_ID; sleep 100"]);
    assert_eq!(array, "1");
    assert_eq!(site.submit(&["-H", "--wrap", "true"]), "5", "an array takes as many numbers as it has tasks");
    let state = |task: &str| site.print("sacct", &["-XnP", "-j", task, "-o", "state"]);
    let wait = |task: &str, wanted: &str| {
        wait_until(&format!("task {task} {wanted}"), 60, || state(task).starts_with(wanted).then_some(()));
    };
    for (index, number) in [(3, 2), (5, 3)] {
        wait(&format!("1_{index}"), "RUNNING");
        let path = format!("1-{index}-{number}");
        wait_until("the step prints", 30, || {
            (fs::read_to_string(site.cluster.path(&path)).unwrap_or_default() == format!("{number}\n")).then_some(())
        });
    }
    let check = |site: &SlurmNames| {
        let listed = site.print("squeue", &["-h", "-j", "2,1_5", "-o", "%i %A"]);
        assert_eq!(listed.lines().collect::<BTreeSet<_>>(), BTreeSet::from(["1_3 2", "1_5 3"]));
        assert_eq!(site.print("sacct", &["-XnPj", "3", "-o", "jobid,jobidraw"]), "1_5|3\n");
        assert_eq!(site.print("sacct", &["-XnPj", "1_9", "-o", "jobid,jobidraw"]), "1_9|1\n");
        assert!(site.print("scontrol", &["show", "job", "2"]).starts_with("JobId=2 ArrayJobId=1 ArrayTaskId=3 "));
    };
    check(&site);
    site.cluster.kill_9(site.cluster.head_pid());
    site.cluster.start(SMALL);
    check(&site);
    let after = site.submit(&["-d", "afternotok:2:3", "--wrap", "true"]);
    assert_eq!(after, "6");
    assert_eq!(
        site.print("squeue", &["-h", "-j", "6", "-o", "%E"]),
        "afternotok:1_3(unfulfilled),afternotok:1_5(unfulfilled)\n"
    );
    let refused = site.cluster.run(&["run", "--detach", "--after", "2", "--", "true"]);
    assert!(refused.code != 0 && refused.stderr.contains("job 2, which does not exist"), "{}", refused.stderr);
    site.print("scontrol", &["hold", "4"]);
    assert_eq!(site.print("squeue", &["-h", "-j", "1_7", "-o", "%i %r"]), "1_7 JobHeldUser\n");
    site.print("scancel", &["2"]);
    wait("1_3", "CANCELLED");
    site.print("scancel", &["-u", "root", "--state=RUNNING", "3"]);
    wait("1_5", "CANCELLED");
    site.wait("6", "completed");
    site.print("scancel", &["1"]);
    site.wait("1", "cancelled");
    // The array has left the memory of the head.
    assert_eq!(site.print("sacct", &["-XnPj", "3", "-o", "jobid,state"]), "1_5|CANCELLED by 0\n");
    let numbers: BTreeSet<String> = ["1-3-2", "1-5-3"].iter().map(|path| site.read(path)).collect();
    assert_eq!(numbers.len(), 2);
    let unknown: Outcome = site.run("scontrol", &["show", "job", "7"]);
    assert_eq!(unknown.code, 1);
}

#[test]
fn limits_umask_and_threads_follow_the_caller_into_jobs_and_steps() {
    let site = up();
    let batch = |before: &str, options: &str, script: &str| {
        site.cluster.write("job.sh", format!("#!/bin/bash\n#SBATCH --mem=60 -o out.txt {options}\n{script}\n"));
        let outcome = site.run("bash", &["-c", &format!("{before}; sbatch -W job.sh")]);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        site.read("out.txt")
    };
    let limits = "ulimit -s; ulimit -n; ulimit -c";
    assert_eq!(batch("ulimit -S -s 16384 -n 777 -c 0", "", limits), "16384\n777\n0\n");
    let none =
        batch("ulimit -S -s 16384 -n 777", "--propagate=CORE", &format!("{limits}; env | grep -c SLURM_RLIMIT; true"));
    assert!(!none.starts_with("16384\n777\n") && none.ends_with("\n0\n"), "{none}");
    let step = "ulimit -S -s 9000; ulimit -S -n 500; umask 027; srun bash -c 'ulimit -s; ulimit -n; umask'";
    assert_eq!(batch("ulimit -S -s 16384", "", step), "9000\n500\n0027\n");
    let kept = "ulimit -S -s 9000; ulimit -S -n 500; srun --propagate=NOFILE bash -c 'ulimit -s; ulimit -n'";
    assert_eq!(batch("ulimit -S -s 16384", "", kept).lines().nth(1), Some("500"));
    assert_ne!(batch("ulimit -S -s 16384", "", kept).lines().next(), Some("9000"));
    for (option, stack) in [("NONE", false), ("STACK", true)] {
        let some = batch("ulimit -S -s 16384 -n 777", &format!("--propagate={option}"), "ulimit -s; ulimit -n");
        assert_eq!((some.starts_with("16384\n"), some.ends_with("\n777\n")), (stack, false), "{option}: {some}");
    }
    // Neither the niceness nor ignored signals of the caller.
    site.cluster.write("masks.sh", "nice; grep -E 'Sig(Blk|Ign)' /proc/self/status | grep -c '0000$'\n");
    let masks = "bash masks.sh; srun bash masks.sh";
    let usual = batch("true", "", masks);
    assert_eq!(batch("renice -n 5 $$ >renice.txt; trap '' HUP USR1", "", masks), usual);
    assert_eq!(usual.lines().filter(|line| *line == "2").count(), 2, "{usual}");
    let outside = "ulimit -S -n 600; umask 077; srun --mem=60 bash -c 'ulimit -n; umask'";
    assert_eq!(site.print("bash", &["-c", outside]), "600\n0077\n");
    let allocated = "ulimit -S -n 601; salloc -Q --mem=60 srun bash -c 'ulimit -n'";
    assert_eq!(site.print("bash", &["-c", allocated]), "601\n");
    let bogus = site.run("sbatch", &["--propagate=STACK,x", "--wrap", "true"]);
    assert_eq!(
        (bogus.code, bogus.stderr.as_str()),
        (1, "sbatch: error: Bad rlimit name: X\nsbatch: error: --propagate=STACK,x is not valid.\n")
    );

    let threads =
        "echo [$OMP_NUM_THREADS$MKL_NUM_THREADS]; srun -n1 -c2 --mem=60 sh -c 'echo $OMP_NUM_THREADS $MKL_NUM_THREADS'";
    assert_eq!(batch("unset OMP_NUM_THREADS", "-n2", threads), "[]\n2 2\n");
    assert_eq!(batch("export OMP_NUM_THREADS=7", "-n2", "srun -n1 sh -c 'echo $OMP_NUM_THREADS'"), "7\n");
    assert_eq!(batch("true", "-n2", "srun -n1 --export=ALL,OMP_NUM_THREADS=5 sh -c 'echo $OMP_NUM_THREADS'"), "5\n");
    assert_eq!(batch("true", "-n2", "srun -n2 sh -c 'echo $OPENBLAS_NUM_THREADS'"), "1\n1\n");

    let host = "echo $HOSTNAME $SLURMD_NODENAME";
    let hosts = batch("export HOSTNAME=login1", "-w n2", &format!("{host}; srun sh -c '{host}'"));
    assert_eq!(hosts, "n2 n2\nn2 n2\n");
    let names = batch("unset USER LOGNAME", "", "echo $USER $LOGNAME");
    assert_eq!(names, "root root\n");
}

#[test]
fn jobs_know_their_times_and_the_address_of_the_launcher() {
    let site = up();
    let script = "echo $SLURM_JOB_START_TIME $SLURM_JOB_END_TIME; srun sh -c 'echo $SLURM_JOB_END_TIME $SLURM_LAUNCH_NODE_IPADDR'";
    let job = site.submit(&["-t", "0:10", "-o", "out", "--mem=60", "--wrap", script]);
    site.wait(&job, "completed");
    let text = site.read("out");
    let words: Vec<&str> = text.split_whitespace().collect();
    let [start, end] = [words[0], words[1]].map(|word| word.parse::<u64>().expect("seconds"));
    assert_eq!(end - start, 60, "a time limit has whole minutes");
    assert_eq!(words[2..], [words[1], "127.0.0.1"]);
    assert_eq!(site.print("squeue", &["-h", "-t", "all", "-j", &job, "-o", "%l"]), "1:00\n");
    let waiting = site.submit(&["-H", "-t", "1:30", "--wrap", "true"]);
    site.print("scontrol", &["update", &format!("jobid={waiting}"), "timelimit=0:20"]);
    assert_eq!(site.print("squeue", &["-h", "-j", &waiting, "-o", "%l"]), "1:00\n");
    let held = site
        .print("bash", &["-c", "salloc -Q -t 2 --mem=60 sh -c 'echo $((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME))'"]);
    assert_eq!(held, "120\n");
}

#[test]
fn no_memory_per_cpu_is_all_memory() {
    let site = up();
    let use_some = "echo $SLURM_MEM_PER_NODE; head -c 50M /dev/zero | tail -c 50M | wc -c";
    let outcome = site.run("sbatch", &["-W", "-o", "out", "--mem-per-cpu=0", "--wrap", use_some]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(site.read("out"), "1024\n52428800\n");
    assert_eq!(site.print("srun", &["--mem-per-cpu=0", "sh", "-c", "echo $SLURM_MEM_PER_NODE"]), "1024\n");
    let waiting = site.submit(&["-H", "--wrap", "true"]);
    for change in ["MinMemoryNode=0", "MinMemoryCPU=0"] {
        let refused = site.run("scontrol", &["update", &format!("jobid={waiting}"), change]);
        assert_eq!(refused.code, 1, "{change}: {}", refused.stdout);
    }
}

#[test]
fn step_ignores_tasks_per_node_that_do_not_fit() {
    let site = up();
    let script = "srun --ntasks-per-node=1 echo x; srun -N2 -n3 --ntasks-per-node=1 echo y";
    let job = site.submit(&["-N2", "-n4", "-o", "out", "--mem=60", "--wrap", script]);
    site.wait(&job, "completed");
    let text = site.read("out");
    let count = |line: &str| text.lines().filter(|it| *it == line).count();
    assert_eq!((count("x"), count("y")), (4, 3), "{text}");
    let warning = "srun: Warning: can't honor --ntasks-per-node set to 1 which doesn't match the requested tasks";
    assert_eq!(text.matches(warning).count(), 2, "{text}");
}

#[test]
fn signal_cancels_a_step_that_waits_for_cpus() {
    let site = up();
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let script = format!(
            "srun -n1 --mem=60 sleep 600 & sleep 1; timeout -k 30 -s {signal} 2 srun -n1 sh -c 'echo inner >> inner.txt'; echo code $?; kill %1; wait"
        );
        let outcome = site.run("salloc", &["-Q", "-n1", "--mem=60", "bash", "-mc", &script]);
        assert_eq!(outcome.stdout, "code 124\n", "{signal}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("srun: Cancelled pending job step with signal "), "{}", outcome.stderr);
        assert!(!site.cluster.path("inner.txt").exists(), "the step never starts");
    }
}

#[test]
fn begin_and_array_take_the_forms_of_the_manual() {
    let site = up();
    for begin in ["01/02/30", "010230", "3:04 PM", "12/24-8:00", "8:00 12/24", "now + 1 hour", "fika"] {
        let job = site.submit(&["--begin", begin, "--wrap", "true"]);
        site.print("scancel", &[&job]);
    }
    let job = site.submit(&["-H", "--array=[0-4]%2", "--export=all", "--wrap", "true"]);
    assert_eq!(site.print("squeue", &["-h", "-j", &job, "-o", "%K"]), "0-4%2\n");
    site.print("scontrol", &["update", &format!("jobid={job}"), "StartTime=12/31"]);
}

#[test]
fn node_lists_in_files_are_read_where_the_command_runs() {
    let site = up();
    site.cluster.write("hosts", "# mine\nn2\n");
    let on = ["--mem=60", "sh", "-c", "echo $SLURMD_NODENAME"];
    for options in [&["-F", "hosts", "-n1"][..], &["-w", "./hosts", "-n1"], &["-x", "./hosts", "-n1"]] {
        let expected = if options[0] == "-x" { "n1\n" } else { "n2\n" };
        assert_eq!(site.print("srun", &[options, &on].concat()), expected, "{options:?}");
    }
    let hosts = site.cluster.path("hosts");
    let script = format!("SLURM_HOSTFILE={} srun -m arbitrary sh -c 'echo $SLURMD_NODENAME'", hosts.display());
    let job = site.submit(&["-N2", "-o", "out", "--mem=60", "--wrap", &script]);
    site.wait(&job, "completed");
    assert_eq!(site.read("out"), "n2\n");
    let job = site.submit(&["-F", "hosts", "-o", "out2", "--wrap", "echo $SLURM_JOB_NODELIST"]);
    site.wait(&job, "completed");
    assert_eq!(site.read("out2"), "n2\n");
    let failed = "sbatch: error: Batch job submission failed: Invalid node name specified";
    let unknown = site.run("sbatch", &["-x", "n9", "--wrap", "true"]);
    assert!(unknown.code == 1 && unknown.stderr.starts_with(failed), "{}", unknown.stderr);
    let missing = site.run("sbatch", &["-F", "nowhere", "--wrap", "true"]);
    assert!(missing.code == 1 && missing.stderr.contains("Unable to read the node list nowhere"), "{}", missing.stderr);
}

#[test]
fn placement_of_a_job_holds_for_its_steps() {
    let site = up();
    let places = "srun sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort";
    let output = |options: &[&str], script: &str| {
        let job = site.submit(&[options, &["-o", "out", "--wrap", script]].concat());
        site.wait(&job, "completed");
        site.read("out")
    };
    let (block, cyclic) = ("0 n1\n1 n1\n2 n2\n3 n2\n", "0 n1\n1 n2\n2 n1\n3 n2\n");
    for (distribution, expected) in [("block", block), ("plane=2", block), ("plane=1", cyclic), ("cyclic", cyclic)] {
        let options = ["-N2", "-n4", "--mem=60", "-m", distribution];
        assert_eq!(output(&options, places), expected, "{distribution}");
        let script = places.replacen("srun", &format!("srun -m {distribution}"), 1);
        assert_eq!(output(&options[..3], &script), expected, "{distribution}");
    }
    let invalid = site.run("sbatch", &["-m", "plane", "--wrap", "true"]);
    let text = "sbatch: error: Invalid plane size or size not specified\nsbatch: error: Invalid --distribution specification\n";
    assert_eq!((invalid.code, invalid.stderr.as_str()), (255, text));

    // A list in a file gives each task its node, without another option.
    site.cluster.write("two", "n2\nn1\n");
    let mut listed = site.command("sbatch", &["--parsable", "--mem=60", "-o", "out", "--wrap", places]);
    let listed = listed.env("SLURM_HOSTFILE", "./two").output().expect("the command starts");
    site.wait(String::from_utf8_lossy(&listed.stdout).trim(), "completed");
    assert_eq!(site.read("out"), "0 n2\n1 n1\n");
    let mut few = site.command("srun", &["-n3", "true"]);
    let few = few.env("SLURM_HOSTFILE", "./two").output().expect("the command starts");
    let few = String::from_utf8_lossy(&few.stderr);
    assert!(few.starts_with("srun: error: Too few NodeNames in Slurm Hostfile\n"), "{few}");

    // Tasks share CPUs if the job says so.
    let script = "echo $SLURM_OVERCOMMIT $SLURM_CPUS_ON_NODE; srun sh -c 'echo $SLURM_PROCID' | sort | tail -1";
    assert_eq!(output(&["-N1", "-n9", "-O", "--mem=60"], script), "1 1\n8\n");

    // Options of `srun` in variables reach the steps of a job.
    let mut labelled = site.command("sbatch", &["--parsable", "--mem=60", "-o", "out", "--wrap", "srun -n1 echo x"]);
    let labelled = labelled.env("SLURM_LABELIO", "1").env("SLURM_NTASKS", "7").output().expect("the command starts");
    site.wait(String::from_utf8_lossy(&labelled.stdout).trim(), "completed");
    assert_eq!(site.read("out"), "0: x\n");

    // More nodes than tasks, and names of the caller.
    let script = "srun -N3 -n1 echo one; SLURM_JOB_NAME=mine SLURM_OF_USER=2 srun -n1 sh -c 'echo $SLURM_JOB_NAME $SLURM_OF_USER'
        srun -n1 -J other sh -c 'echo $SLURM_JOB_NAME'; echo ${0##*/}";
    assert_eq!(output(&["-n1", "--mem=60"], script), "one\nmine 2\nother\nslurm_script\n");
}

#[test]
fn kills_for_memory_and_ends_from_outside_leave_a_trace() {
    let site = up();
    let output = |name: &str| site.read(name);
    let eat = "python3 -c 'x = bytearray(300_000_000)'";
    let script = format!("{eat}; true");
    let killed = site.submit(&["-o", "killed", "--mem=60", "--wrap", &script]);
    let dependent = site.submit(&["-d", &format!("afterok:{killed}"), "-o", "never", "--wrap", "echo published"]);
    site.wait(&killed, "out_of_memory");
    site.wait(&dependent, "cancelled");
    let state = |job: &str| site.print("sacct", &["-nP", "-j", job, "-o", "jobid,state,exitcode"]);
    let expected = format!("{killed}|OUT_OF_MEMORY|0:125\n{killed}.batch|OUT_OF_MEMORY|0:125\n");
    assert_eq!(state(&killed), expected);
    let line = format!("slurmstepd: error: Detected 1 oom_kill event in StepId={killed}.batch. Some of the step tasks");
    assert!(output("killed").contains(&line), "{}", output("killed"));

    // Jobs of other commands go on, unless their user wants otherwise.
    let script = format!("{eat}; true");
    for (action, state) in [("continue", "completed"), ("fail", "out_of_memory")] {
        let arguments = ["run", "--detach", "-m", "60M", "--oom", action, "--", "sh", "-c", &script];
        let job = site.cluster.ok(&arguments);
        site.wait(&job, state);
        let shown = site.cluster.ok(&["job", &job]);
        assert!(shown.contains("a process of the job was killed"), "{shown}");
        assert_eq!(shown.contains("\noom        fail"), action == "fail", "{shown}");
    }

    let script = format!("srun {eat}; true");
    let step = site.submit(&["-o", "step", "--mem=60", "--wrap", &script]);
    site.wait(&step, "completed");
    let states = state(&step);
    assert!(states.contains(&format!("{step}|COMPLETED|0:0\n")), "{states}");
    assert!(states.contains(&format!("{step}.0|OUT_OF_MEMORY|0:125\n")), "{states}");
    assert!(output("step").contains("task 0: Out Of Memory"), "{}", output("step"));
    let line = format!("slurmstepd: error: Detected 1 oom_kill event in StepId={step}.0. Some of the step tasks");
    assert!(output("step").contains(&line), "{}", output("step"));

    let sleeps = |name: &str| {
        let job = site.submit(&["-w", "n1", "-o", name, "--wrap", "echo on; sleep 600"]);
        site.wait(&job, "running");
        wait_until("the script to start", 30, || {
            (fs::read_to_string(site.cluster.path(name)).unwrap_or_default() == "on\n").then_some(())
        });
        job
    };
    let cancelled = sleeps("cancelled");
    site.print("scancel", &[&cancelled]);
    site.wait(&cancelled, "cancelled");
    // The shell may report the end of its own process in another line.
    let says = |name: &str, start: &str, end: &str| {
        let text = output(name);
        assert!(text.lines().any(|line| line.starts_with(start) && line.ends_with(end)), "{start}…{end}: {text}");
    };
    let line = |job: &str| format!("slurmstepd: error: *** JOB {job} ON n1 CANCELLED AT 20");
    says("cancelled", &line(&cancelled), " ***");
    let late = sleeps("late");
    site.cluster.ok(&["update", &late, "--time", "1s"]);
    site.wait(&late, "timeout");
    says("late", &line(&late), " DUE TO TIME LIMIT ***");
    let script = "echo on; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 600";
    let again = site.submit(&["-w", "n1", "-o", "again", "--open-mode=append", "--wrap", script]);
    wait_until("the script to start", 30, || site.cluster.path("again").exists().then_some(()));
    wait_until("the script to write", 30, || (output("again") == "on\n").then_some(()));
    site.print("scontrol", &["requeue", &again]);
    site.wait(&again, "completed");
    says("again", &line(&again), " DUE TO JOB REQUEUE ***");
}

#[test]
fn paths_exit_codes_of_steps_and_addresses_are_shown_as_slurm_does() {
    let site = up();
    for (folder, script) in [("i(j)", "run me.sh"), ("g~h", "#x's.sh")] {
        let path = format!("{folder}/{script}");
        site.cluster.write(&path, "#!/bin/bash\nsrun -n1 sh -c 'exit 3'\nsrun -n1 sh -c 'kill -9 $$'\nsrun -n1 true\n");
        let job = site.submit(&["--mem=60", "-o", "out", &path, "a", "b c"]);
        site.wait(&job, "completed");
        let command = format!("{} a b c", site.cluster.path(&path).display());
        let record = site.print("scontrol", &["-d", "show", "job", &job]);
        assert!(record.contains(&format!("\n   Command={command}\n")), "{record}");
        assert!(record.contains("\n   DerivedExitCode=3:0\n"), "{record}");
        assert_eq!(site.print("squeue", &["-ht", "all", "-j", &job, "-o", "%o"]), format!("{command}\n"));
        assert_eq!(site.print("squeue", &["-ht", "all", "-j", &job, "-O", "derivedec"]).trim_end(), "768");
        assert_eq!(site.print("sacct", &["-XnPj", &job, "-o", "exitcode,derivedexitcode"]), "0:0|3:0\n");
        let json = site.print("sacct", &["-Xj", &job, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["jobs"][0]["derived_exit_code"]["return_code"]["number"], 3);
    }
    let script = "srun -n1 sh -c 'exit 4'; touch failed; sleep 600";
    let job = site.submit(&["--mem=60", "-o", "/dev/null", "--wrap", script]);
    wait_until("the step ends", 60, || site.cluster.path("failed").exists().then_some(()));
    let record = site.print("scontrol", &["-d", "show", "job", &job]);
    assert!(record.contains("DerivedExitCode=4:0\n") && record.contains("Command=(null)\n"), "{record}");
    site.print("scancel", &[&job]);
    assert_eq!(site.print("sinfo", &["-h", "-o", "%o"]), "127.0.0.1\n");
    let free = || {
        let free: u64 = site.print("sinfo", &["-h", "-n", "n2", "-o", "%e"]).trim_end().parse().ok()?;
        assert!(free > 0, "other programs of the machine use none of the node's memory");
        Some(())
    };
    wait_until("the memory is measured", 120, free);
}

#[test]
fn scripts_and_variables_may_be_as_large_as_documented() {
    let site = up();
    let run = |before: &str, script: &str| {
        site.run("bash", &["-c", &format!("ulimit -S -s unlimited; {before}; sbatch -W --mem=200 -o out.txt {script}")])
    };
    let large = |name: &str, filler: &str, bytes: usize| {
        let start = "#!/bin/sh\necho $V1 | wc -c; srun -n1 sh -c 'echo $V1 | wc -c'; exit 0\n: ";
        let filler = filler.repeat((bytes - start.len()) / filler.len());
        site.cluster.write(name, [start.as_bytes(), filler.as_bytes()].concat());
    };
    large("plain.sh", "x", 4 << 20);
    large("control.sh", "\u{1}", 200_000);
    large("all-control.sh", "\u{1}", 4 << 20);
    large("larger.sh", "x", (4 << 20) + 1);
    let variables =
        |count: u32| format!("for i in $(seq {count}); do export V$i=$(head -c 100000 /dev/zero | tr '\\0' y); done");
    for script in ["plain.sh", "control.sh", "all-control.sh"] {
        let outcome = run("true", script);
        assert_eq!((outcome.code, site.read("out.txt").as_str()), (0, "1\n1\n"), "{script}: {}", outcome.stderr);
    }
    let outcome = run(&variables(12), "control.sh");
    assert_eq!((outcome.code, site.read("out.txt").as_str()), (0, "100001\n100001\n"), "{}", outcome.stderr);
    for (outcome, said) in [
        (run("true", "larger.sh"), "hint: a script has at most 4 MiB"),
        (run(&variables(25), "control.sh"), "the environment variables of a job have at most 2M"),
        (
            run("true", "control.sh $(for i in $(seq 12); do head -c 100000 /dev/zero | tr '\\0' z; echo; done)"),
            "the command line and the options of a job have at most 1M",
        ),
    ] {
        assert!(outcome.code == 1 && outcome.stderr.contains(said), "{said}: {}", outcome.stderr);
    }
}

#[test]
fn script_and_steps_each_show_what_they_used() {
    let site = up();
    let burn = "python3 -c 'import time; x = bytearray(60_000_000); e = time.process_time() + 2\nwhile time.process_time() < e: pass'";
    let job = site.submit(&["--mem=200", "-o", "out", "--wrap", &format!("srun -n1 {burn}")]);
    site.wait(&job, "completed");
    let used = |fields: &str| -> Vec<Vec<String>> {
        let text = site.print("sacct", &["-nPj", &job, "-o", fields]);
        text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    };
    // The job, its script, and its step.
    let seconds: Vec<f64> = used("totalcpu")
        .iter()
        .map(|row| row[0].rsplit(':').next().expect("seconds").parse().expect(&row[0]))
        .collect();
    let [all, script, step] = seconds[..] else { panic!("{seconds:?}") };
    assert!(step >= 2.0 && (all - script - step).abs() < 0.1, "the job has what its steps used: {seconds:?}");
    let memory: Vec<u64> =
        used("maxrss").iter().skip(1).map(|row| row[0].trim_end_matches('K').parse().expect(&row[0])).collect();
    assert!(memory[0] < 50_000 && memory[1] > 55_000, "script and step in KiB: {memory:?}");
    let shown = site.cluster.run(&["job", &job]).stdout;
    assert!(!shown.contains("4294967291"), "{shown}");

    let text = site.print("seff", &[&job]);
    let lines: Vec<&str> = text.lines().collect();
    let start = format!("Job ID: {job}|Cluster: hostler|User/Group: root/root|State: COMPLETED (exit code 0)|Cores: 1");
    assert_eq!(lines[..5].join("|"), start);
    let says = |start: &str, end: &str| {
        assert!(lines.iter().any(|line| line.starts_with(start) && line.ends_with(end)), "{start}…{end}: {text}");
    };
    says("CPU Utilized: 00:00:0", "");
    says("CPU Efficiency: ", " core-walltime");
    says("Memory Utilized: ", " MB");
    says("Memory Efficiency: ", "% of 200.00 MB (200.00 MB/node)");
    let held = site.submit(&["-H", "--wrap", "true"]);
    let waiting = site.print("seff", &[&held]);
    assert!(
        waiting.ends_with("State: PENDING\nCores: 1\nEfficiency not available for jobs in the PENDING state.\n"),
        "{waiting}"
    );
    for (arguments, code) in [(&["99"][..], 2), (&["x"], 2), (&[], 1), (&["1", "2"], 1)] {
        assert_eq!(site.run("seff", arguments).code, code, "{arguments:?}");
    }
}

#[test]
fn sreport_sums_what_users_accounts_and_the_cluster_used() {
    let site = up();
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).expect("readable").expect("known").name;
    for account in ["physics", "chemistry"] {
        site.wait(&site.submit(&["-A", account, "-n2", "--mem=60", "--wrap", "sleep 2"]), "completed");
    }
    let period = ["start=now-1hour", "end=now"];
    let report = |words: &[&str]| site.print("sreport", &[words, &period].concat());
    let seconds = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text}"));
    let top = report(&[
        "-nP",
        "-t",
        "seconds",
        "user",
        "top",
        "users=ALL,".replace("ALL", &user).as_str(),
        "format=login,account,used",
    ]);
    let lines: Vec<Vec<&str>> = top.lines().map(|line| line.split('|').collect()).collect();
    assert!(
        lines.len() == 2 && lines.iter().all(|line| line[0] == user && (4..60).contains(&seconds(line[2]))),
        "{top}"
    );
    let by_account = report(&[
        "-nP",
        "-t",
        "Seconds",
        "cluster",
        "AccountUtilizationByUser",
        "accounts=physics",
        "format=Account,Login,Used",
    ]);
    let used = by_account.lines().next().and_then(|line| line.rsplit('|').next()).expect("a sum");
    assert_eq!(by_account, format!("root||{used}\nphysics||{used}\nphysics|{user}|{used}\n"));
    // Two nodes of this cluster for an hour.
    let utilization = report(&["-nP", "-t", "sec", "cluster", "util", "format=allocated,idle,reported"]);
    let [allocated, idle, reported] = utilization.trim().split('|').map(seconds).collect::<Vec<_>>()[..] else {
        panic!("{utilization}")
    };
    assert!(allocated >= 8 && allocated + idle == reported && reported % 3600 == 0, "{utilization}");
    let titled = report(&["-t", "percent", "job", "sizesbyaccount"]);
    assert!(
        titled.contains("\nUsage reported in CPU Percentage of Total\n") && titled.contains("0-49 CPUs"),
        "{titled}"
    );
    assert!(report(&["-n", "user", "top", "user=nobody"]).is_empty());
    for words in [
        &["user", "nosuch"][..],
        &["-t", "weeks", "user", "top"],
        &["user", "top", "start=soon"],
        &["user", "top", "x=1"],
    ] {
        assert_eq!(site.run("sreport", words).code, 1, "{words:?}");
    }
}

#[test]
fn sbcast_copies_a_file_to_all_nodes_of_a_job() {
    let site = up();
    let large = site.cluster.write("large", vec![b'x'; 3_000_000]);
    fs::set_permissions(&large, std::os::unix::fs::PermissionsExt::from_mode(0o750)).expect("owned");
    // The nodes of this cluster share their disk.
    let script = "sbcast -fp large copied; echo code $?; sbcast large copied; echo code $?; stat -c '%a %s %Y' copied large;                   touch on; until [ -e release ]; do sleep 0.1; done";
    let job = site.submit(&["-N2", "--mem=60", "-o", "out", "--wrap", script]);
    wait_until("the script copies", 60, || site.cluster.path("on").exists().then_some(()));
    let text = site.read("out");
    assert!(text.starts_with("code 0\n") && text.contains("code 1\n"), "{text}");
    for node in ["n1", "n2"] {
        assert!(text.contains(&format!("sbcast: error: {node}: copied: File exists\n")), "{text}");
    }
    let [.., copied, original] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(copied == original && copied.starts_with("750 3000000 "), "{text}");
    let outside = site.run("sbcast", &["-f", "-j", &job, "large", "from-outside"]);
    assert_eq!(outside.code, 0, "{}", outside.stderr);
    assert_eq!(fs::metadata(site.cluster.path("from-outside")).expect("copied").len(), 3_000_000);
    for (arguments, said) in [
        (&["large"][..], "Need two file names"),
        (&["none", "x"], "Can't open `none`"),
        (&["large", "x"], "Need a job id"),
        (&["-j", "99", "large", "x"], "Invalid job id"),
    ] {
        let refused = site.run("sbcast", arguments);
        assert!(refused.code == 1 && refused.stderr.contains(said), "{arguments:?}: {}", refused.stderr);
    }
    site.cluster.write("release", "");
    site.wait(&job, "completed");
}

#[test]
fn sattach_shows_the_output_of_a_running_step_until_it_ends() {
    let site = up();
    let step =
        "while [ ! -e stop ]; do echo tick $SLURM_PROCID; sleep 0.05; done; echo bad >&2; exit $((3 * SLURM_PROCID))";
    site.cluster.write("step.sh", step);
    let job =
        site.submit(&["-N2", "-n2", "--mem=60", "-o", "out", "--wrap", "echo before; srun sh step.sh; echo code $?"]);
    wait_until("the step runs", 60, || {
        site.cluster.path("out").exists().then(|| site.read("out").contains("tick 1").then_some(())).flatten()
    });
    let attach = |arguments: &[&str]| {
        site.command("sattach", arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let mut children = [attach(&["-l", &format!("{job}.0")]), attach(&["--output-filter=1", &format!("{job}.0")])];
    let first = children.each_mut().map(|child| {
        let mut byte = [0; 1];
        child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("output of the step");
        byte[0] as char
    });
    let layout = site.print("sattach", &["--layout", &format!("{job}.0")]);
    assert_eq!(layout, "Job step layout:\n\t2 tasks, 2 nodes (n[1-2])\n");
    let script = site.run("sattach", &[&format!("{job}.batch")]);
    assert!(
        script.code == 1 && script.stderr.contains(&format!("hint: tail -f {}\n", site.cluster.path("out").display())),
        "{script:?}"
    );
    // Both tasks write a line until then.
    wait_until("each task writes", 60, || (site.read("out").matches("tick").count() > 100).then_some(()));
    site.cluster.write("stop", "");
    let [labelled, only] = children.map(|child| Outcome::of(&child.wait_with_output().expect("it ends")));
    assert_eq!((labelled.code, only.code), (3, 3), "{labelled:?} {only:?}");
    for line in ["\n0: tick 0\n", "\n1: tick 1\n"] {
        assert!(labelled.stdout.contains(line), "{labelled:?}");
    }
    assert!(labelled.stderr.contains("0: bad\n") && labelled.stderr.contains("1: bad\n"), "{labelled:?}");
    let only = format!("{}{}", first[1], only.stdout);
    assert!(only.lines().count() > 1 && only.lines().all(|line| line == "tick 1"), "{only}");
    wait_until("the script ends", 60, || site.read("out").ends_with("code 3\n").then_some(()));
    for (arguments, text) in [
        (&[][..], "One step is needed"),
        (&["x.0"], "Invalid job id or step id"),
        (&[job.as_str()], "Invalid job id or step id"),
        (&[&format!("{job}.0")], "does not run"),
        (&["--pty", "1.0"], "--pty is not supported"),
        (&["--input-filter=0", "1.0"], "--input-filter is not supported"),
        (&["--input-filter=none", "1.0"], "does not run"),
    ] {
        let refused = site.run("sattach", arguments);
        assert!(refused.code == 1 && refused.stderr.contains(text), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn jobs_without_the_callers_variables_have_those_of_a_login() {
    let site = up();
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).expect("readable").expect("known");
    let mut login = Command::new(&user.shell);
    login.args(["-l", "-c", "printf %s \"$PATH\""]).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let login = login.env("HOME", &user.dir).env("USER", &user.name).output().expect("the shell starts").stdout;
    let login = String::from_utf8(login).expect("text");
    let mut known = BTreeSet::new();
    let login = login.split(':').filter(|directory| known.insert(*directory)).collect::<Vec<_>>().join(":");
    // The directory of Slurm's commands stays first, since the login may find others.
    let of_login = format!("{}:{login}", site.links.display());
    let run = |options: &[&str]| {
        let script = "echo $PATH; echo $CALLERS-$SLURM_GET_USER_ENV-$USER-$LOGNAME-$SHELL; srun sh -c 'echo $PATH-$SLURM_GET_USER_ENV'";
        let usual = ["-W", "--mem=60", "-o", "out", "--wrap", script];
        let mut command = site.command("sbatch", &[&usual, options].concat());
        for name in ["USER", "LOGNAME", "SHELL", "SBATCH_GET_USER_ENV"] {
            command.env_remove(name);
        }
        let path = format!("/callers:{}:{}", site.links.display(), std::env::var("PATH").expect("set"));
        let outcome = Outcome::of(&command.env("CALLERS", "x").env("PATH", path).output().expect("it starts"));
        assert_eq!(outcome.code, 0, "{options:?}: {outcome:?}");
        site.read("out").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (name, shell) = (&user.name, user.shell.display());
    for options in [&["--export=NONE"][..], &["--export=A=1"], &["--export=NONE", "--get-user-env=L60"]] {
        let lines = run(options);
        assert!(lines[0].starts_with(&of_login), "{options:?}: {lines:?} {login}");
        assert_eq!(lines[1], format!("--{name}-{name}-{shell}"), "{options:?}");
        assert_eq!(lines[2], format!("{}-", lines[0]), "steps have the variables of the script");
    }
    for options in [&["--get-user-env"][..], &["--get-user-env=60L"], &[]] {
        let lines = run(options);
        let has_login = login.split(':').all(|directory| lines[0].split(':').any(|one| one == directory));
        assert!(lines[0].starts_with("/callers:") && (has_login || options.is_empty()), "{options:?}: {lines:?}");
        assert_eq!(lines[1], format!("x--{name}-{name}-{shell}"), "{options:?}");
    }
    assert!(!run(&["--export=NIL"])[0].starts_with(&of_login));
}

/// Needs root, as the mount namespaces of jobs do.
#[test]
fn names_of_nodes_resolve_in_jobs() {
    let site = up();
    let outside = Command::new("getent").args(["ahostsv4", "n2"]).output().expect("getent is installed");
    assert!(!outside.status.success(), "no other name service knows n2");
    let script = "for node in n1 n2; do getent ahostsv4 $node | head -1; done; srun -w n2 -N1 -n1 getent ahostsv4 n1 | head -1; \
                  head -1 /etc/hosts; mount | grep -c 'on /etc/hosts '";
    let outcome = site.run("sbatch", &["-W", "-N2", "--mem=60", "-o", "out", "--wrap", script]);
    let text = site.read("out");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines.last()), (5, Some(&"1")), "{text} {outcome:?}");
    assert!(lines[..3].iter().all(|line| line.starts_with("127.0.0.1 ")), "{text}");
    let own = fs::read_to_string("/etc/hosts").expect("readable");
    assert_eq!(Some(lines[3]), own.lines().next(), "the machine's names stay");
    // A job that asks for one node has its name, and jobs of other commands are as before.
    site.run("sbatch", &["-W", "--mem=60", "-w", "n2", "-o", "one", "--wrap", "getent ahostsv4 n2 | head -1"]);
    assert!(site.read("one").starts_with("127.0.0.1 "), "{}", site.read("one"));
    assert!(!site.cluster.run(&["run", "-m", "60M", "--", "getent", "ahostsv4", "n2"]).stdout.contains("127"));
}

#[test]
fn srun_with_a_job_id_joins_a_running_batch_job() {
    let site = up();
    let script = "touch on.$SLURM_JOB_ID; until [ -e release ]; do sleep 0.1; done";
    let job = site.submit(&["-J", "joined", "-N2", "--mem=60", "--wrap", script]);
    let array = site.submit(&["-J", "joined-array", "-a", "1-2", "--mem=60", "--wrap", script]);
    let first = (array.parse::<u64>().expect("a number") + 1).to_string();
    for number in [&job, &array, &first] {
        wait_until("the script runs", 60, || site.cluster.path(&format!("on.{number}")).exists().then_some(()));
        let id = format!("--jobid={number}");
        let step = site.run("srun", &[&id, "--overlap", "-n1", "sh", "-c", "echo $SLURM_JOB_ID; exit 3"]);
        assert_eq!((step.stdout.as_str(), step.code), (format!("{number}\n").as_str(), 3), "{}", step.stderr);
    }
    let id = format!("--jobid={job}");
    let on = site.print("srun", &[&id, "--overlap", "-w", "n2", "sh", "-c", "echo $SLURMD_NODENAME"]);
    assert_eq!(on, "n2\n");
    // No process of the job is visible here.
    let words = ["--pid", "--fork", "--mount-proc", "srun", &id, "--overlap", "-n1", "sh", "-c", "echo $SLURM_JOB_ID"];
    let apart = site.command("unshare", &words).output().expect("unshare is installed");
    assert_eq!(
        (String::from_utf8_lossy(&apart.stdout).trim(), apart.status.code()),
        (job.as_str(), Some(0)),
        "{apart:?}"
    );
    let terminal = site.print("srun", &[&id, "--overlap", "--pty", "-n1", "sh", "-c", "test -t 1 && echo yes"]);
    assert_eq!(terminal.trim_end(), "yes");
    // The limits of the job hold: the step is in its cgroup.
    let eat = "python3 -c 'x = bytearray(300_000_000)'";
    let killed = site.run("srun", &[&id, "--overlap", "-w", "n2", "sh", "-c", &format!("{eat}; exit $?")]);
    assert!(killed.code != 0 && killed.stderr.contains("Out Of Memory"), "{}", killed.stderr);
    site.cluster.write("release", "");
    site.wait(&job, "completed");
    let ended = site.run("srun", &[&id, "--overlap", "true"]);
    assert!(ended.code == 1 && ended.stderr.contains("Expired or invalid job"), "{}", ended.stderr);
}
