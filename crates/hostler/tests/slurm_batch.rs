//! `sbatch` and `scancel` on a real cluster: what they print, and what their jobs find.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use hostler_testkit::{Outcome, Size, SlurmNames, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Starts a cluster with the names of Slurm's commands.
fn up() -> SlurmNames {
    SlurmNames::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "1G" })
}

#[test]
fn test_only_says_when_and_where_a_job_would_start() {
    let site = up();
    let tried = |name: &str, arguments: &[&str]| {
        let outcome = site.run(name, &[&["--test-only", "--mem=16"], arguments].concat());
        (outcome.code, outcome.stdout, outcome.stderr)
    };
    let (code, stdout, stderr) = tried("sbatch", &["-N2", "--wrap", "true"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
    let starts = |stderr: &str, name: &str| stderr.starts_with(&format!("{name}: Job 1 to start at 20"));
    assert!(starts(&stderr, "sbatch"), "{stderr}");
    assert!(stderr.ends_with(" using 2 processors on nodes n[1-2] in partition all\n"), "{stderr}");
    let (code, stdout, stderr) = tried("srun", &["-n2", "true"]);
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(starts(&stderr, "srun"), "{stderr}");
    assert!(stderr.ends_with(" in partition all\n"), "{stderr}");
    let (code, _, stderr) = tried("sbatch", &["-c9", "--wrap", "true"]);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("allocation failure: Requested node configuration is not available\n"), "{stderr}");
    let nothing = site.run("squeue", &["-h"]);
    assert_eq!(nothing.stdout, "", "nothing was submitted");

    // A job that must wait for another one.
    let busy = site.submit(&["-N2", "-c2", "-t1", "--wrap", "sleep 60"]);
    assert_eq!(busy, "1", "a dry run takes no number");
    site.wait(&busy, "running");
    let (code, _, stderr) = tried("sbatch", &["--wrap", "true"]);
    assert_eq!(code, 0);
    assert!(
        stderr.starts_with("sbatch: Job 2 to start at 20") && stderr.contains("\nsbatch: the job would wait: "),
        "{stderr}"
    );
    let would = site.cluster.ok(&["--json", "run", "--dry-run", "-m", "16M", "--", "true"]);
    let would: serde_json::Value = serde_json::from_str(&would).expect("JSON");
    assert!(would["id"] == 2 && would["starts_at"].is_i64() && would["reason"].is_object(), "{would}");
    site.cluster.write("project/main.sh", "true");
    let would = site.cluster.ok(&["submit", "project", "--dry-run", "-m", "16M", "sh", "--", "main.sh"]);
    assert!(would.starts_with("the job would wait: ") && would.contains("\nit should start on n"), "{would}");
    site.cluster.ok(&["cancel", &busy]);
    site.wait(&busy, "cancelled");
    let would = site.cluster.ok(&["run", "--dry-run", "-m", "16M", "--", "true"]);
    // Among equal nodes, the one that joined first is taken.
    let places = ["n1", "n2"].map(|node| format!("the job would start now on {node}, with 1 CPU"));
    assert!(places.contains(&would), "{would}");
    let refused = site.cluster.fails(&["run", "--dry-run", "-c", "9", "--", "true"]);
    assert!(refused.contains("9 CPUs"), "{refused}");
}

#[test]
fn batch_jobs_find_what_slurm_promises() {
    let site = up();
    site.cluster.write(
        "job.sh",
        "#!/bin/bash\n\
         #SBATCH --job-name=first -o log/%x-%j.txt\n\
         #SBATCH --mem=16 --comment=\"two words\"\n\
         echo \"args $1\"; pwd; env | grep ^SLURM; command -v sbatch\n",
    );
    let outcome = site.run("sbatch", &["job.sh", "one"]);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("Submitted batch job 1\n", ""));
    fs::remove_file(site.cluster.path("job.sh")).expect("the script is there");
    site.wait("1", "completed");
    let output = site.read("log/first-1.txt");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines[0], lines[1]), ("args one", site.cluster.home().to_str().expect("text")));
    let variables: BTreeMap<&str, &str> = lines.iter().filter_map(|line| line.split_once('=')).collect();
    for (name, value) in [
        ("SLURM_JOB_ID", "1"),
        ("SLURM_JOBID", "1"),
        ("SLURM_JOB_NAME", "first"),
        ("SLURM_JOB_NUM_NODES", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_CPUS_ON_NODE", "1"),
        ("SLURM_TASKS_PER_NODE", "1"),
        ("SLURM_SUBMIT_DIR", site.cluster.home().to_str().expect("text")),
    ] {
        assert_eq!(variables.get(name), Some(&value), "{name}");
    }
    for absent in ["SLURM_ARRAY_JOB_ID", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_RESTART_COUNT"] {
        assert_eq!(variables.get(absent), None, "{absent}");
    }
    assert!(output.ends_with(&format!("{}/sbatch\n", site.links.display())), "{output}");
    assert_eq!(site.cluster.json(&["job", "1"])["labels"]["comment"], "two words");

    // Each task of an array has a number of its own, and the whole cluster's shape is known.
    let array = site.submit(&["-N2", "-n3", "-a", "1-3%2", "--wrap", "env | grep ^SLURM"]);
    site.wait(&array, "completed");
    let numbers = [1, 2, 3].map(|index| {
        let output = site.read(&format!("slurm-{array}_{index}.out"));
        let value = |name: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            line.unwrap_or_else(|| panic!("{name} is not in {output}")).to_owned()
        };
        assert_eq!((value("SLURM_ARRAY_JOB_ID"), value("SLURM_ARRAY_TASK_ID")), (array.clone(), index.to_string()));
        assert_eq!((value("SLURM_JOB_NODELIST").as_str(), value("SLURM_TASKS_PER_NODE").as_str()), ("n[1-2]", "2,1"));
        assert_eq!((value("SLURM_NTASKS").as_str(), value("SLURM_ARRAY_TASK_COUNT").as_str()), ("3", "3"));
        value("SLURM_JOB_ID")
    });
    assert_eq!(numbers[2], array, "the last task has the number of the array");
    let number: u32 = array.parse().expect("a number");
    assert_eq!(numbers[..2], [(number + 1).to_string(), (number + 2).to_string()]);
}

#[test]
fn options_come_from_the_script_then_the_environment_then_the_command_line() {
    let site = up();
    site.cluster.write("job.sh", "#!/bin/sh\n#SBATCH -J script --parsable -H --mem=16 -o /dev/null\ntrue\n");
    let name = |job: &str| site.cluster.json(&["job", job])["name"].as_str().expect("a name").to_owned();
    let held = site.run("sbatch", &["job.sh"]);
    assert_eq!(held.stdout, "1\n", "the script asks for a bare id");
    assert_eq!((name("1").as_str(), site.cluster.state("1").as_str()), ("script", "pending"));
    let mut with_variable = site.command("sbatch", &["job.sh"]);
    let output = with_variable.env("SBATCH_JOB_NAME", "variable").output().expect("the command starts");
    assert_eq!(Outcome::of(&output).stdout, "2\n");
    assert_eq!(name("2"), "variable");
    let mut both = site.command("sbatch", &["--job-n", "line", "-t1", "job.sh"]);
    let output = both.env("SBATCH_JOB_NAME", "variable").output().expect("the command starts");
    assert_eq!(Outcome::of(&output).stdout, "3\n");
    assert_eq!((name("3").as_str(), &site.cluster.json(&["job", "3"])["time_limit_ms"]), ("line", &60_000.into()));

    // Standard input is a script as well, and `--wait` returns the code of the job.
    let mut piped = site.command("sbatch", &["--wait", "--mem=16", "-o", "out"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command starts");
    let script = b"#!/bin/sh\necho from stdin; exit 3\n";
    piped.stdin.take().expect("a pipe").write_all(script).expect("the command reads");
    let output = piped.wait_with_output().expect("the command ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"Submitted batch job 4\n"[..]));
    assert_eq!(site.read("out"), "from stdin\n");

    // `--export` decides what passes; the commands are found all the same.
    let mut bare = site.command("sbatch", &["--export=NONE,A='x, y'", "--mem=16", "-o", "bare", "--wait", "--wrap"]);
    let output = bare.arg("env; command -v scancel").env("SECRET", "1").output().expect("the command starts");
    assert_eq!(output.status.code(), Some(0));
    let text = site.read("bare");
    assert!(text.contains("A=x, y\n") && !text.contains("SECRET") && text.contains("SLURM_JOB_ID=5"), "{text}");
    assert!(text.ends_with("/links/scancel\n"), "{text}");
}

#[test]
fn lines_of_pbs_are_read_unless_they_are_ignored() {
    let site = up();
    let lines =
        "#!/bin/sh\n#PBS -N pb -l walltime=00:05:00\n#PBS -l nodes=1:ppn=2\n#PBS -q all -h\n#SBATCH --mem=32\ntrue\n";
    site.cluster.write("pbs", lines);
    let shown = |arguments: &[&str]| {
        let id = site.submit(arguments);
        site.print("squeue", &["-h", "-j", &id, "-o", "%j %C %l %P %r"])
    };
    assert_eq!(shown(&["pbs"]), "pb 2 5:00 all JobHeldUser\n");
    assert!(shown(&["-H", "--ignore-pbs", "pbs"]).starts_with("pbs 1 UNLIMITED"));
    assert!(shown(&["-H", "-J", "own", "pbs"]).starts_with("own 2 5:00"), "the command line wins");
    let ignored = site.command("sbatch", &["-H", "pbs"]).env("SBATCH_IGNORE_PBS", "1").output().expect("it runs");
    assert!(ignored.status.success());
    // Jobs can be changed by their name.
    let changed = site.run("scontrol", &["update", "JobName=pb", "TimeLimit=4"]);
    assert_eq!((changed.code, changed.stderr.as_str()), (0, ""));
    assert_eq!(site.print("squeue", &["-h", "-n", "pb", "-o", "%l"]), "4:00\n");
    assert_ne!(site.run("scontrol", &["update", "JobName=nosuch", "TimeLimit=4"]).code, 0);
    for (name, arguments) in [("sbatch", ["-n1", ":", "-n1", "pbs"]), ("salloc", ["-n1", ":", "-n1", "true"])] {
        let refused = site.run(name, &arguments);
        assert!(refused.code != 0 && refused.stderr.contains("Heterogeneous jobs are not supported"), "{refused:?}");
    }
    let id = site.submit(&["-n2", "--mem=64", "-w", "n1", "--wrap", "sleep 60"]);
    site.wait(&id, "running");
    let details = site.print("scontrol", &["-d", "show", "job", &id]);
    assert!(details.contains("   JOB_GRES=(null)\n     Nodes=n1 CPU_IDs=0-1 Mem=64 GRES="), "{details}");
    let unknown = site.run("scancel", &["-u", "nosuchuser"]);
    assert_eq!((unknown.code, unknown.stderr.as_str()), (1, "scancel: error: Invalid user name: nosuchuser\n"));
}

#[test]
fn mistakes_have_slurms_words_and_queue_nothing() {
    let site = up();
    site.cluster.write("plain", "echo\n");
    site.cluster.write("empty", "");
    site.cluster.write("blank", " \n\n");
    site.cluster.write("dos", "#!/bin/sh\r\necho\r\n");
    site.cluster.write("nul", b"#!/bin/sh\n\0\n");
    site.cluster.write("operand", "#!/bin/sh\n#SBATCH -N1 stray\n");
    site.cluster.write("large", format!("#!/bin/sh\n{}", "#".repeat(10 << 20)));
    site.cluster.write("good", "#!/bin/sh\ntrue\n");
    let failed = "sbatch: error: Batch job submission failed:";
    for (arguments, text) in [
        (vec!["plain"], "sbatch: error: This does not look like a batch script.  The first".to_owned()),
        (vec!["empty"], "sbatch: error: Batch script is empty!".to_owned()),
        (vec!["blank"], "sbatch: error: Batch script contains only whitespace!".to_owned()),
        (vec!["dos"], "sbatch: error: Batch script contains DOS line breaks".to_owned()),
        (vec!["nul"], "sbatch: error: The Slurm controller does not allow scripts that".to_owned()),
        (vec!["operand"], "sbatch: error: Invalid directive found in batch script: stray".to_owned()),
        (vec!["large"], format!("{failed} Pathname of a file, directory or other parameter too long")),
        (vec!["absent"], "sbatch: error: Unable to open file absent".to_owned()),
        (vec!["--invalid", "good"], "sbatch: unrecognized option '--invalid'\nTry \"sbatch --help\"".to_owned()),
        (vec!["--wrap=true", "good"], "sbatch: error: Script arguments not permitted with --wrap option".to_owned()),
        (vec!["-t", "soon", "good"], "sbatch: error: Invalid --time specification".to_owned()),
        (
            vec!["-p", "nosuch", "good"],
            format!("sbatch: error: invalid partition specified: nosuch\n{failed} Invalid partition name specified"),
        ),
        (
            vec!["--mem=64", "--mem-per-cpu=64", "good"],
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.".to_owned(),
        ),
        (
            vec!["--deadline=2020-01-01", "good"],
            format!("{failed} Requested time limit is invalid (missing or exceeds some limit)"),
        ),
        (
            vec!["--deadline=now+3minutes", "--begin=now+1hour", "good"],
            "sbatch: error: Incompatible begin and deadline time specification".to_owned(),
        ),
        (vec!["-a", "5-1", "good"], format!("{failed} Invalid job array specification")),
        (vec!["-n", "400", "good"], format!("{failed} Requested node configuration is not available")),
        (vec!["-w", "n9", "good"], format!("{failed} Invalid node name specified")),
        (vec!["-d", "afterok:99", "good"], format!("{failed} Job dependency problem")),
    ] {
        let outcome = site.run("sbatch", &arguments);
        // Slurm's code for mistakes in options.
        let is_mistake = ["operand", "--invalid", "-t"].contains(&arguments[0]);
        let code = if is_mistake { 255 } else { 1 };
        assert_eq!((outcome.code, outcome.stdout.as_str()), (code, ""), "{arguments:?}");
        assert!(outcome.stderr.starts_with(&text), "{arguments:?}: {}", outcome.stderr);
    }
    assert_eq!(site.cluster.json(&["jobs", "--all"])["jobs"], serde_json::json!([]));
    for name in ["sbatch", "scancel"] {
        assert_eq!(site.run(name, &["--version"]).stdout, "slurm 24.05.8\n");
    }
}

#[test]
fn exclusive_jobs_have_their_node_for_themselves() {
    let site = up();
    let alone = site.submit(&[
        "--exclusive",
        "-w",
        "n1",
        "--wrap",
        "echo $SLURM_CPUS_ON_NODE; while ! [ -e go ]; do sleep 0.05; done",
    ]);
    site.wait(&alone, "running");
    let (one, other) = (site.submit(&["-w", "n1", "--wrap", "true"]), site.submit(&["--wrap", "true"]));
    site.wait(&other, "completed");
    assert_eq!(site.cluster.state(&one), "pending");
    site.cluster.write("go", "");
    site.wait(&one, "completed");
    assert_eq!(site.read(&format!("slurm-{alone}.out")), "2\n");
}

#[test]
fn all_memory_any_partition_and_singletons() {
    let site = up();
    let show = "echo $SLURM_MEM_PER_NODE; while ! [ -e go ]; do sleep 0.05; done";
    let whole = site.submit(&["--mem=0", "-p", "all", "-J", "one", "--wrap", show]);
    site.wait(&whole, "running");
    let next = site.submit(&["-d", "singleton", "-J", "one", "--wrap", "true"]);
    let other = site.submit(&["-d", "singleton", "-J", "other", "--wrap", "true"]);
    site.wait(&other, "completed");
    assert_eq!(site.cluster.state(&next), "pending");
    site.cluster.write("go", "");
    site.wait(&next, "completed");
    assert_eq!(site.read(&format!("slurm-{whole}.out")), "1024\n");
}

#[test]
fn tasks_that_need_more_than_a_node_spread() {
    let site = up();
    let job = site.submit(&["-n", "4", "--wrap", "echo $SLURM_JOB_NUM_NODES $SLURM_TASKS_PER_NODE"]);
    site.wait(&job, "completed");
    assert_eq!(site.read(&format!("slurm-{job}.out")), "2 2(x2)\n");
}

#[test]
fn submissions_are_checked_and_shown_in_slurms_words() {
    let site = up();
    let squeue = |job: &str, format: &str| site.run("squeue", &["-h", "-j", job, "-o", format]).stdout;
    for (options, format, shown) in [
        (&["-a", "1-60:2"][..], "%K", "1-59:2\n"),
        (&["-a", "7"], "%K %i", "7 31_[7]\n"),
        (&["-a", "1,3,5"], "%K", "1,3,5\n"),
        (&["-w", "n1,n2"], "%n", "n[1-2]\n"),
        (&["-x", "n2"], "%x", "n2\n"),
        (&["-J", "same"], "%E", "(null)\n"),
        (&["-J", "same", "-d", "singleton"], "%E", "singleton(unfulfilled)\n"),
        (&["-J", "same", "-d", "singleton,afterok:1"], "%E", "afterok:1(unfulfilled),singleton(unfulfilled)\n"),
        (&["-J", "alone", "-d", "singleton,afterany:1"], "%E", "afterany:1(unfulfilled)\n"),
        (&["-J", "same", "-d", "singleton,afterany:1"], "%E", "afterany:1(unfulfilled),singleton(unfulfilled)\n"),
    ] {
        let job = site.submit(&[&["-H", "--wrap", "true"], options].concat());
        assert_eq!(squeue(&job, format), shown, "{options:?}");
    }
    let updated = site.run("scontrol", &["update", "jobid=39", "dependency=afterany:1"]);
    assert_eq!((updated.code, squeue("39", "%E").as_str()), (0, "afterany:1(unfulfilled)\n"), "{}", updated.stderr);
    let free = site.submit(&["--begin=2099-01-01", "--wrap", "true"]);
    let first = site.run("squeue", &["-h", "-o", "%i"]).stdout;
    assert!(first.starts_with(&format!("{free}\n")), "held jobs have the lowest priority: {first}");
    for (options, text) in [
        (&["--get-user-env=x"][..], "Invalid --get-user-env specification"),
        (&["--threads-per-core=x"], "Invalid numeric value \"x\" for --threads-per-core."),
        (&["--time-min=x"], "Invalid --time-min specification"),
        (&["--gres-flags=x"], "Invalid --gres-flags specification"),
        (&["--bbf=/nonexistent"], "Invalid --bbf specification"),
        (&["--prefer=a&"], "Batch job submission failed: Invalid feature specification"),
        (&["--batch=a|"], "Batch job submission failed: Invalid feature specification"),
        (&["--gid=nosuchgroup"], "Invalid --gid specification"),
        (&["--export-file=missing"], "Could not open user environment file missing"),
        (&["-C", "nosuchfeature"], "Batch job submission failed: Invalid feature specification"),
        (&["-w", "n1", "-x", "n1"], "Batch job submission failed: Invalid node name specified"),
        (&["-p", "all,bogus"], "invalid partition specified: all,bogus"),
    ] {
        let outcome = site.run("sbatch", &[&["--mem=16", "--wrap", "true"], options].concat());
        assert!(outcome.code != 0 && outcome.stdout.is_empty(), "{options:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with(&format!("sbatch: error: {text}\n")), "{options:?}: {}", outcome.stderr);
    }

    // The script of a job can be read again, by its user only.
    site.cluster.write("variables", b"ONE=1\0TWO=a b\0LATIN=\xe9\0");
    let latin = "$(printf %s $LATIN | od -An -tx1)";
    let script = format!("#!/bin/sh\necho $ONE $TWO {latin} $SLURM_JOB_PARTITION $SLURM_JOB_GID ${{THREE-unset}}\n");
    site.cluster.write("job.sh", script);
    let mut sbatch = site.command("sbatch", &["--parsable", "--export=NONE", "--export-file=variables", "job.sh"]);
    let job = Outcome::of(&sbatch.env("THREE", "3").output().expect("the command starts")).stdout.trim().to_owned();
    site.wait(&job, "completed");
    let gid = nix::unistd::Gid::effective();
    assert_eq!(site.read(&format!("slurm-{job}.out")), format!("1 a b e9 all {gid} unset\n"));
    let scontrol = |words: &[&str]| site.run("scontrol", &[&["write", "batch_script"], words].concat());
    let over = "job script retrieval failed: Job has no batch script\n\
                scontrol: job 43 has completed, so the head has deleted its script\n";
    assert_eq!((job.as_str(), scontrol(&[&job]).stderr.as_str()), ("43", over));
    let job = site.submit(&["-H", "job.sh"]);
    let script = site.read("job.sh");
    assert_eq!(scontrol(&[&job, "-"]).stdout, script);
    let said = scontrol(&[&job]).stdout;
    assert_eq!(said, format!("batch script for job {job} written to slurm-{job}.sh\n"));
    assert_eq!(site.read(&format!("slurm-{job}.sh")), script);
    assert_eq!(site.cluster.ok(&["job", &job, "--script"]), script.trim_end());
    assert!(site.run("sacct", &["-B", "-j", &job]).stdout.ends_with(&format!("---\n{script}\n")));
    let command = site.cluster.ok(&["run", "--detach", "-m", "16M", "--", "true"]);
    let none = site.cluster.run(&["job", &command, "--script"]);
    assert_eq!(none.code, 4);
    assert!(none.stderr.contains("was not submitted as a script"), "{}", none.stderr);
}

#[test]
fn scancel_ends_what_it_names_and_nothing_else() {
    let site = up();
    let hold = |arguments: &[&str]| site.submit(&[&["-H", "--wrap", "true"], arguments].concat());
    let (one, array) = (hold(&["-J", "same"]), hold(&["-a", "1-9"]));
    let (two, other) = (hold(&["-J", "same"]), hold(&["-J", "other"]));
    let quiet = |arguments: &[&str]| {
        let outcome = site.run("scancel", arguments);
        assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "", ""), "{arguments:?}");
    };
    quiet(&[&format!("{array}_[1-3,5]"), &format!("{array}_7")]);
    let tasks = site.cluster.json(&["job", &array])["tasks"].clone();
    assert_eq!((&tasks["cancelled"], &tasks["pending"]), (&5.into(), &4.into()));
    let named = site.run("scancel", &["-v", "--name", "same"]);
    let mut lines: Vec<&str> = named.stderr.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [format!("scancel: Terminating job {one}"), format!("scancel: Terminating job {two}")]);
    assert_eq!(site.cluster.state(&one), "cancelled");
    assert_eq!(site.cluster.state(&other), "pending");
    quiet(&["999", &one]);
    let unknown = site.run("scancel", &["-v", "999"]);
    assert!(unknown.stderr.contains("Kill job error on job id 999: Invalid job id specified"), "{}", unknown.stderr);
    for (arguments, text) in [(vec![], "No job identification provided"), (vec!["x1"], "Invalid job id x1")] {
        let outcome = site.run("scancel", &arguments);
        assert_eq!((outcome.code, outcome.stderr), (1, format!("scancel: error: {text}\n")));
    }
    // Tasks that have ended or do not exist are ignored, unless there is a filter, a signal or a step.
    quiet(&[&format!("{array}_[1-3,77]")]);
    let failed = |ids: &[String]| -> String {
        ids.iter()
            .map(|id| format!("scancel: error: Kill job error on job id {id}: Invalid job id specified\n"))
            .collect()
    };
    let tasks = [1, 3, 77].map(|index| format!("{array}_{index}"));
    let outcome = site.run("scancel", &["-A", "default", &format!("{array}_[1,3-4,77]"), &one]);
    assert_eq!((outcome.code, outcome.stderr), (1, failed(&[tasks.as_slice(), std::slice::from_ref(&one)].concat())));
    let tasks = site.cluster.json(&["job", &array])["tasks"].clone();
    assert_eq!((&tasks["cancelled"], &tasks["pending"]), (&6.into(), &3.into()));
    let outcome = site.run("scancel", &[&format!("{one}.0")]);
    let text = format!("scancel: error: Kill job error on job step id {one}.0: Invalid job id specified\n");
    assert_eq!((outcome.code, outcome.stderr), (1, text));
    // So are unknown ids.
    for arguments in [vec!["-s", "USR1", "999"], vec!["-n", "same", "999"], vec!["-b", "999"]] {
        let outcome = site.run("scancel", &arguments);
        assert_eq!(outcome.code, 1, "{arguments:?}");
        assert!(
            outcome.stderr.contains("Kill job error on job id 999: Invalid job id specified"),
            "{}",
            outcome.stderr
        );
    }
    for (arguments, text) in [
        (["-s", "bogus", "999"], "Unknown job signal: bogus\n"),
        (
            ["-t", "bogus", "999"],
            "Invalid job state specified: bogus\nValid job states are PENDING, RUNNING, and SUSPENDED\n",
        ),
        (["-u", "", "999"], "scancel: error: Invalid user name: \n"),
    ] {
        let outcome = site.run("scancel", &arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1, text));
    }

    let running = site.submit(&["-w", "n1", "--wrap", "sleep 600"]);
    site.wait(&running, "running");
    quiet(&["-t", "PENDING", &running]);
    quiet(&["-w", "n2,n9", "-A", "default"]);
    assert_eq!(site.cluster.state(&running), "running");
    // Of an array, only the tasks on these nodes.
    let array = site.submit(&["-a", "0-1", "-N1", "-c2", "-x", "n1", "--wrap", "sleep 600"]);
    wait_until("a task to run", 60, || (site.cluster.json(&["job", &array])["tasks"]["running"] == 1).then_some(()));
    quiet(&["-w", "n[1-2]", "-p", "all", "-q", "normal"]);
    site.wait(&running, "cancelled");
    let tasks = || site.cluster.json(&["job", &array])["tasks"].clone();
    wait_until("the task to end", 60, || (tasks()["cancelled"] == 1).then_some(()));
    assert_eq!(tasks()["pending"].as_u64().unwrap_or(0) + tasks()["running"].as_u64().unwrap_or(0), 1, "{}", tasks());
    // A state means the tasks in it.
    let mixed = site.submit(&["-a", "0-3%1", "-J", "a,b", "--wrap", "sleep 600"]);
    wait_until("a task to run", 60, || (site.cluster.json(&["job", &mixed])["tasks"]["running"] == 1).then_some(()));
    quiet(&["--state=PENDING", "-n", "a,b", &mixed]);
    let tasks = site.cluster.json(&["job", &mixed])["tasks"].clone();
    assert_eq!((&tasks["cancelled"], &tasks["running"]), (&3.into(), &1.into()));
    assert_eq!(site.cluster.state(&other), "pending");
    quiet(&["--me"]);
    assert_eq!(site.cluster.state(&other), "cancelled");
}

#[test]
fn scancel_asks_reads_files_and_takes_options_of_the_environment() {
    let site = up();
    let [one, two, three] = ["one", "two", "three"].map(|name| site.submit(&["-H", "-J", name, "--wrap", "true"]));
    let answered = |arguments: &[&str], answers: &str| {
        let mut command = site.command("scancel", arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        child.stdin.take().expect("piped").write_all(answers.as_bytes()).expect("the command reads");
        Outcome::of(&child.wait_with_output().expect("our child"))
    };
    let asked = answered(&["-i", &one, &two], "what\nn\nY\n");
    let question = |id: &str, name: &str| format!("Cancel job_id={id} name={name} partition=all [y/n]? ");
    let questions = [question(&one, "one"), question(&one, "one"), question(&two, "two")].concat();
    assert_eq!((asked.code, asked.stdout.as_str(), asked.stderr.as_str()), (0, questions.as_str(), ""));
    assert_eq!((site.cluster.state(&one), site.cluster.state(&two)), ("pending".to_owned(), "cancelled".to_owned()));
    let silent = answered(&["--interactive", &one], "");
    assert_eq!(silent.code, 1);
    assert!(silent.stderr.contains("nothing was cancelled"), "{}", silent.stderr);

    let running = site.submit(&["-w", "n2", "--wrap", "sleep 600"]);
    site.wait(&running, "running");
    site.cluster.write("hosts", "n1\n");
    assert_eq!(site.run("scancel", &["-w", "./hosts"]).code, 0);
    assert_eq!(site.cluster.state(&running), "running");
    site.cluster.write("hosts", "n2\n");
    assert_eq!(site.run("scancel", &["-w", "./hosts"]).code, 0);
    site.wait(&running, "cancelled");

    let with = |name: &str, value: &str, arguments: &[&str]| {
        Outcome::of(&site.command("scancel", arguments).env(name, value).output().expect("the command starts"))
    };
    assert_eq!(with("SCANCEL_NAME", "one", &[]).code, 0);
    assert_eq!((site.cluster.state(&one), site.cluster.state(&three)), ("cancelled".to_owned(), "pending".to_owned()));
    let verbose = with("SCANCEL_VERBOSE", "true", &[&three]);
    assert_eq!(verbose.stderr, format!("scancel: Terminating job {three}\n"));
    let wrong = with("SCANCEL_BATCH", "perhaps", &[&three]);
    assert_eq!((wrong.code, wrong.stderr.as_str()), (1, "scancel: error: Unrecognized SCANCEL_BATCH value: perhaps\n"));
    let over = site.run("scancel", &["-Q", "-s", "TERM", &three]);
    assert_eq!((over.code, over.stderr.as_str()), (1, ""));
}

#[test]
fn signals_reach_steps_before_the_limit_and_on_request() {
    let site = up();
    let step = "srun bash -c 'trap \"echo step got it; exit 3\" USR2; touch ready-$SLURM_JOB_ID; while :; do sleep 0.1; done'; echo code $?";
    let wait_for_trap = |job: &str| {
        let ready = site.cluster.path(&format!("ready-{job}"));
        wait_until("the trap of the job", 60, || ready.exists().then_some(()));
    };
    site.cluster.write("job.sh", format!("#!/bin/bash\n{step}\n"));
    // A script without a trap would end.
    let early = site.submit(&["-t", "10", "--signal=USR2@595", "job.sh"]);
    site.wait(&early, "completed");
    assert!(site.read(&format!("slurm-{early}.out")).contains("step got it\n"), "the step gets the signal");
    assert!(site.read(&format!("slurm-{early}.out")).ends_with("code 3\n"), "the script goes on");

    let asked = site.submit(&["job.sh"]);
    wait_for_trap(&asked);
    assert_eq!(site.run("scancel", &[&asked, "--signal", "SIGUSR2"]).code, 0);
    site.wait(&asked, "completed");
    assert!(site.read(&format!("slurm-{asked}.out")).ends_with("code 3\n"), "the script goes on");

    let script = "trap 'echo script; exit 0' USR1; touch ready-$SLURM_JOB_ID; while :; do sleep 0.1; done";
    let script = site.submit(&["--wrap", script]);
    wait_for_trap(&script);
    assert_eq!(site.run("scancel", &["-b", "-s", "USR1", &script]).code, 0);
    site.wait(&script, "completed");
    assert_eq!(site.read(&format!("slurm-{script}.out")), "script\n");
}

#[test]
fn signal_waits_for_the_start_of_its_job() {
    let site = up();
    let job = site.submit(&["-H", "--wrap", "sleep 600"]);
    let running = site.submit(&["--wrap", "sleep 600"]);
    site.wait(&running, "running");
    let mut scancel = site.command("scancel", &["-v", "-f", "-s", "TERM", &job, &running]);
    let mut scancel = scancel.stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(scancel.stderr.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert_eq!(lines.next(), Some(format!("scancel: Signal 15 to job {job}")));
    assert_eq!(lines.next().as_deref(), Some("scancel: Job is in transitional state, retrying"));
    assert_eq!(lines.next(), Some(format!("scancel: Signal 15 to job {running}")));
    // It does not wait for the other one.
    site.wait(&running, "failed");
    assert_eq!(site.run("scontrol", &["release", &job]).code, 0);
    let rest: Vec<String> = lines.collect();
    assert_eq!((scancel.wait().expect("our child").code(), rest), (Some(0), Vec::new()));
    site.wait(&job, "failed");
    let ended = site.run("scancel", &["-s", "TERM", &job]);
    let text = format!("scancel: error: Kill job error on job id {job}: Invalid job id specified\n");
    assert_eq!((ended.code, ended.stderr), (1, text));
}

#[test]
fn dependencies_name_tasks_counterparts_delays_and_alternatives() {
    let site = up();
    let steps = "until [ -e go-$SLURM_ARRAY_TASK_ID ]; do sleep 0.05; done; [ $SLURM_ARRAY_TASK_ID != 1 ]";
    let first = site.submit(&["-a", "0-2", "--wrap", steps]);
    let corr = site.submit(&["-a", "0-2", "-d", &format!("aftercorr:{first}"), "--wrap", "true"]);
    let one = site.submit(&["-d", &format!("afterok:{first}_0"), "--wrap", "true"]);
    let any = site.submit(&["-d", &format!("afternotok:{first}_0?afternotok:{first}_1"), "--wrap", "true"]);
    let late = site.submit(&["-d", &format!("after:{first}+60"), "--wrap", "true"]);
    let dependency = |job: &str| site.run("squeue", &["-h", "-j", job, "-o", "%r %E"]).stdout.trim_end().to_owned();
    assert_eq!(dependency(&corr), format!("Dependency aftercorr:{first}(unfulfilled)"));
    assert_eq!(dependency(&one), format!("Dependency afterok:{first}_0(unfulfilled)"));
    let both = format!("afternotok:{first}_0(unfulfilled)?afternotok:{first}_1(unfulfilled)");
    assert_eq!(dependency(&any), format!("Dependency {both}"));
    let shown = site.run("scontrol", &["show", "job", &any]).stdout;
    assert!(shown.contains(&format!(" Reason=Dependency Dependency={both}\n")), "{shown}");

    site.cluster.write("go-0", "");
    site.wait(&one, "completed");
    assert_eq!(dependency(&any), format!("Dependency afternotok:{first}_1(unfulfilled)"));
    site.cluster.write("go-1", "");
    site.wait(&any, "completed");
    site.cluster.write("go-2", "");
    site.wait(&corr, "cancelled");
    let states = site.run("sacct", &["-n", "-X", "-j", &corr, "--format=jobid,state%9"]).stdout;
    let words: Vec<Vec<&str>> = states.lines().map(|line| line.split_whitespace().collect()).collect();
    let tasks = [format!("{corr}_0"), format!("{corr}_1"), format!("{corr}_2")];
    let expected = [[&tasks[0], "COMPLETED"], [&tasks[1], "CANCELLED"], [&tasks[2], "COMPLETED"]];
    assert_eq!(words, expected.map(Vec::from), "{states}");
    let why = site.cluster.run(&["why", &tasks[1]]).stdout;
    assert!(why.contains(&format!("aftercorr:{first} can never be satisfied")), "{why}");

    let why = site.cluster.run(&["why", &late]).stdout;
    assert!(why.contains(&format!("after:{first}+60: job {first} has begun; the condition holds in 59m")), "{why}");
    site.run("scancel", &[&late]);
    let failed = "sbatch: error: Batch job submission failed: Job dependency problem";
    for list in [format!("afterok:{first}_7"), format!("afterok:{first}?{one},{any}"), "aftercorr:1_2".to_owned()] {
        let outcome = site.run("sbatch", &["-d", &list, "--wrap", "true"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{list}");
        assert!(outcome.stderr.starts_with(failed), "{list}: {}", outcome.stderr);
    }
}
