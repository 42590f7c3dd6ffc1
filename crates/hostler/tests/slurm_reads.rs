//! `squeue` and `sacct` on a real cluster: their tables byte for byte, and which jobs they list.

use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::process::Command;

use hostler_testkit::{Outcome, SharedCluster, Size, SlurmNames, wait_until};
use jiff::Timestamp;
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
        Self(SlurmNames::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "2G" }))
    }

    /// Runs a command with a variable in its environment.
    fn run_with(&self, (variable, value): (&str, &str), name: &str, arguments: &[&str]) -> Outcome {
        let output = self.command(name, arguments).env(variable, value).output();
        Outcome::of(&output.expect("the command starts"))
    }

    fn squeue(&self, arguments: &[&str]) -> String {
        self.print("squeue", arguments)
    }

    fn sacct(&self, arguments: &[&str]) -> String {
        self.print("sacct", arguments)
    }

    fn submit(&self, arguments: &[&str]) -> String {
        let usual = ["--parsable", "--mem=16", "-o", "/dev/null"];
        self.print("sbatch", &[&usual, arguments].concat()).trim().to_owned()
    }

    /// Waits until `squeue` prints a text.
    fn wait_for(&self, arguments: &[&str], text: &str) {
        let shows = || self.squeue(arguments).contains(text).then_some(());
        wait_until(&format!("`squeue {arguments:?}` to print {text}"), 20, shows);
    }
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id is installed");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Replaces the elapsed time in the usual tables of `squeue`.
fn redact(table: &str, column: usize) -> String {
    let redact = |line: &str| match line.get(column..column + 10) {
        Some(time) if time.contains(':') => format!("{}      [..]{}\n", &line[..column], &line[column + 10..]),
        _ => format!("{line}\n"),
    };
    table.lines().map(redact).collect()
}

/// The first column of a table without a header.
fn ids(table: &str) -> Vec<&str> {
    table.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn squeue_prints_slurms_tables_and_formats() {
    let site = Site::up();
    site.cluster.write("job.sh", "#!/bin/sh\n#SBATCH -o out-%j.txt -e err-%x\nsleep 600\n");
    let user = user();
    let user8: String = format!("{user:>8}").chars().take(8).collect();
    let run = site.submit(&["-J", "a long name", "-t", "10", "-w", "n1", "--comment", "a b", "--wrap", "sleep 600"]);
    let array = site.submit(&["-a", "1-4%1", "-J", "arr", "-w", "n2", "--wrap", "sleep 600"]);
    let held = site.submit(&["-H", "-n", "3", "-c", "1", "-J", "held", "-d", "afterok:1", "--wrap", "true"]);
    let wide = site.print("sbatch", &["--parsable", "-H", "-N2", "--mem=512", "-A", "phys", "job.sh", "x", "y"]);
    let wide = wide.trim();
    assert_eq!([run.as_str(), &array, &held, wide], ["1", "2", "6", "7"]);
    site.wait("1", "running");
    site.wait_for(&["-h", "-o", "%i %t %r"], "2_[2-4%1] PD JobArrayTaskLimit\n");
    site.wait_for(&["-h", "-o", "%i %t %M"], "2_1 R 0:");

    let table = site.squeue(&[]);
    let expected = format!(
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n\
         \x20        2_[2-4%1]       all      arr {user8} PD       [..]      1 (JobArrayTaskLimit)\n\
         \x20                6       all     held {user8} PD       [..]      2 (JobHeldUser)\n\
         \x20                7       all   job.sh {user8} PD       [..]      2 (JobHeldUser)\n\
         \x20                1       all a long n {user8}  R       [..]      1 n1\n\
         \x20              2_1       all      arr {user8}  R       [..]      1 n2\n"
    );
    assert_eq!(redact(&table, 50), expected);
    let long = site.squeue(&["--long", "-j", "1"]);
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines.len(), 3, "{long}");
    assert_eq!(lines[0].split_whitespace().count(), 5, "a date as of `date`: {}", lines[0]);
    assert_eq!(
        lines[1],
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)"
    );
    assert_eq!(
        redact(lines[2], 56),
        format!("                 1       all a long n {user8}  RUNNING       [..]     10:00      1 n1\n")
    );
    assert_eq!(
        site.squeue(&["--start", "-j", "7"]),
        format!(
            "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           NODELIST(REASON)\n\
             \x20                7       all   job.sh {user8} PD                 N/A      2 (null)               (JobHeldUser)\n"
        )
    );
    let steps = site.squeue(&["--steps"]);
    assert!(steps.starts_with("         STEPID     NAME PARTITION     USER      TIME NODELIST\n"), "{steps}");
    let steps: Vec<&str> = steps.lines().skip(1).collect();
    assert_eq!(redact(steps[0], 43), format!("        1.batch    batch       all {user8}      [..] n1\n"));
    assert_eq!(redact(steps[1], 43), format!("      2_1.batch    batch       all {user8}      [..] n2\n"));

    // Formats of programs that drive Slurm.
    let home = site.cluster.home().to_str().expect("text").to_owned();
    for (job, format, expected) in [
        ("1", "%i %t", "1 R".to_owned()),
        ("1", "%T %B", "RUNNING n1".to_owned()),
        ("7", "%T %B", "PENDING n/a".to_owned()),
        ("1", "%A|%u|%t|%.15j|%Z", format!("1|{user}|R|    a long name|{home}")),
        ("1", "%2t%20j", "R a long name         ".to_owned()),
        ("1", "\"%i\",\"%j\",\\x1f%k", "\"1\",\"a long name\",\\x1fa b".to_owned()),
        (" 1", " %A<><> %l^^^%D %C", " 1<><> 10:00^^^1 1".to_owned()),
        ("7", "%N|%R|%r|%S|%e|%l|%L|%M", "|(JobHeldUser)|JobHeldUser|N/A|N/A|UNLIMITED|UNLIMITED|0:00".to_owned()),
        ("7", "%m|%C|%D|%a|%q|%o", format!("512M|2|2|phys|normal|{home}/job.sh x y")),
        ("6", "%c|%C|%D|%E|%o", "1|4|2|afterok:1(unfulfilled)|(null)".to_owned()),
        ("2", "%K|%F|%A", "2-4%1|2|2\n1|2|3".to_owned()),
        ("1", "%b|%h|%z|%X|%Y|%v|%w|%W|%y|%n|%x", "N/A|OK|*:*:*|N/A|(null)|(null)|(null)|(null)|0|n1|".to_owned()),
        ("1", "%.3l|%3l|%.1N|%1N", "10:00|10:|n1|n".to_owned()),
    ] {
        assert_eq!(site.squeue(&["-h", "-j", job, "-o", format]), format!("{expected}\n"), "{format}");
    }
    assert_eq!(
        site.squeue(&["-j", "7", "-O", "JobArrayID,StateCompact,Reason"]),
        "JOBID               ST                  REASON              \n\
         7                   PD                  JobHeldUser         \n"
    );
    let long = "jobid:|,name:4;,tres-alloc:|,stdout:|,stderr:|,MinMemory:.6,numtasks:.3,Requeue:2,cluster:";
    assert_eq!(
        site.squeue(&["-h", "-j", "7", "--Format", long]),
        format!("7|job.;cpu=2,mem=1G,node=2,billing=2|{home}/out-7.txt|{home}/err-job.sh|  512M  21 hostler\n")
    );
    let unknown = site.run("squeue", &["-h", "-j1", "-o", "%i|%?|%T"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (0, "1|%?|RUNNING\n"));
    assert_eq!(unknown.stderr, "squeue: error: Invalid job format specification: ?\n");
    let variable = site.run_with(("SQUEUE_FORMAT", "%j"), "squeue", &["-h", "-j", "1"]);
    assert_eq!(variable.stdout, "a long name\n");
    let seconds = site.run_with(("SLURM_TIME_FORMAT", "%s"), "squeue", &["-h", "-j", "1", "-o", "%S"]);
    assert!(seconds.stdout.trim().parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000), "{seconds:?}");

    let text = site.squeue(&["--json"]);
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let by_name = |name: &str| {
        let jobs = all["jobs"].as_array().expect("a list").iter();
        jobs.clone().find(|job| job["name"] == name).unwrap_or_else(|| panic!("{name} is in {text}"))
    };
    let (running, waiting) = (by_name("a long name"), by_name("held"));
    assert_eq!((&running["job_state"][0], &running["job_id"]), (&"RUNNING".into(), &1.into()));
    assert_eq!(running["job_resources"]["nodes"]["allocation"][0]["name"], "n1");
    assert_eq!(
        (&waiting["job_resources"], &waiting["state_reason"]),
        (&serde_json::Value::Null, &"JobHeldUser".into())
    );
    assert_eq!(site.run("squeue", &["--yaml"]).code, 1);

    // A path cannot forge a line, control a terminal or reverse text.
    let hostile = site.submit(&["-H", "-o", "a\u{1b}[2J\nJobId=1\u{202e}", "--wrap", "true # \u{1b}[2J"]);
    let shown = format!("{home}/{}", r"a\u{1b}[2J\nJobId=1\u{202e}");
    assert_eq!(site.squeue(&["-h", "-j", &hostile, "-O", "stdout:"]), format!("{shown}\n"));
    assert_eq!(site.sacct(&["-nXP", "-j", &hostile, "-o", "stdout"]), format!("{shown}\n"));
    let record = site.print("scontrol", &["show", "job", &hostile]);
    assert!(record.contains(&format!("\n   StdOut={shown}\n")), "{record}");
    // A script is printed byte for byte, except on a terminal.
    let piped = site.sacct(&["-B", "-j", &hostile]);
    assert!(piped.ends_with("\n\ntrue # \u{1b}[2J\n\n"), "{piped:?}");
    let on_terminal = site.run("script", &["-qec", &format!("sacct -B -j {hostile}"), "/dev/null"]).stdout;
    assert!(on_terminal.contains(r"true # \u{1b}[2J") && !on_terminal.contains('\u{1b}'), "{on_terminal:?}");
    assert_eq!(site.squeue(&["-V"]), "slurm 24.05.8\n");
}

#[test]
fn squeue_lists_the_chosen_jobs_in_order() {
    let site = Site::up();
    let user = user();
    let done = site.submit(&["-J", "done", "--wrap", "true"]);
    let failed = site.submit(&["-J", "failed", "--wrap", "exit 3"]);
    site.wait(&done, "completed");
    site.wait(&failed, "failed");
    let array = site.submit(&["-H", "-J", "Array", "-a", "1-3,7", "--wrap", "true"]);
    let low = site.submit(&["-H", "-J", "low", "--nice=10", "--qos", "Long", "--wrap", "true"]);
    let run = site.submit(&["-J", "run", "-w", "n2", "-A", "Physics", "-t", "5", "--wrap", "sleep 600"]);
    let cancelled = site.submit(&["-H", "-J", "gone", "--wrap", "true"]);
    site.print("scancel", &[&cancelled]);
    site.wait(&run, "running");
    assert_eq!([done.as_str(), &failed, &array, &low, &run, &cancelled], ["1", "2", "3", "7", "8", "9"]);
    let list = |arguments: &[&str]| {
        let text = site.squeue(&[&["-h", "-o", "%i"], arguments].concat());
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for (arguments, expected) in [
        (vec![], vec!["3_[1-3,7]", "7", "8"]),
        (vec!["-r"], vec!["3_1", "3_2", "3_3", "3_7", "7", "8"]),
        (vec!["-t", "all"], vec!["9", "1", "2", "3_[1-3,7]", "7", "8"]),
        (vec!["-t", "PD,CF,RF,RH,RQ,SE"], vec!["3_[1-3,7]", "7"]),
        (vec!["-t", "R,S,CG,RS,SI,SO,ST"], vec!["8"]),
        (vec!["--states=f,CANCELLED"], vec!["9", "2"]),
        (vec!["-n", "RUN,low"], vec!["7", "8"]),
        (vec!["--name", "array"], vec!["3_[1-3,7]"]),
        (vec!["-u", &user], vec!["3_[1-3,7]", "7", "8"]),
        (vec!["--me"], vec!["3_[1-3,7]", "7", "8"]),
        (vec!["-u", "0123456"], vec![]),
        (vec!["-p", "all"], vec!["3_[1-3,7]", "7", "8"]),
        (vec!["-p", "other"], vec![]),
        (vec!["-A", "physics"], vec!["8"]),
        (vec!["-q", "long"], vec!["7"]),
        (vec!["-w", "n[1-2]"], vec!["8"]),
        (vec!["-w", "n1"], vec![]),
        (vec!["-S", "-i"], vec!["8", "7", "3_[1-3,7]"]),
        (vec!["-S", "j"], vec!["3_[1-3,7]", "7", "8"]),
        (vec!["--sort=-t,-i"], vec!["8", "7", "3_[1-3,7]"]),
        (vec!["-t", "all", "-S", "T,-i"], vec!["9", "1", "2", "7", "3_[1-3,7]", "8"]),
        (vec!["-j", "3_2"], vec!["3_2"]),
        (vec!["-j", "3_[1-2],8"], vec!["3_1", "3_2", "8"]),
        (vec!["-j", "3_99"], vec![]),
        (vec!["--jobs=3"], vec!["3_[1-3,7]"]),
        (vec!["--job", "3,7"], vec!["3_[1-3,7]", "7"]),
        (vec!["-j7"], vec!["7"]),
        (vec!["-j", "1"], vec![]),
        (vec!["-t", "all", "-j", "1"], vec!["1"]),
        (vec!["-t", "CD,F", "-j", "1,2,7"], vec!["1", "2"]),
        (vec!["-j", "99,98"], vec![]),
        (vec!["-j", "99,99"], vec![]),
        (vec!["-j", "99,8"], vec!["8"]),
        (vec!["-a", "--noconvert", "--only-job-state", "--local", "--hide", "-P"], vec!["3_[1-3,7]", "7", "8"]),
    ] {
        assert_eq!(list(&arguments), expected, "{arguments:?}");
    }
    assert_eq!(site.run_with(("SQUEUE_STATES", "R"), "squeue", &["-h", "-o%i"]).stdout, "8\n");
    assert_eq!(site.run_with(("SQUEUE_SORT", "-i"), "squeue", &["-h", "-o%A"]).stdout, "8\n7\n3\n");
    assert_eq!(site.run_with(("SQUEUE_ARRAY", "1"), "squeue", &["-h", "-j3", "-o%K"]).stdout, "1\n2\n3\n7\n");
    let ended = site.squeue(&["-h", "-t", "all", "-j", "1,2,9", "-o", "%i|%t|%r|%R|%N", "-S", "i"]);
    let [first, second] = [&ended.lines().next().expect("a line")[10..], ended.lines().nth(1).expect("a line")];
    assert!(["n1|n1", "n2|n2"].contains(&first), "{ended}");
    assert!(second.starts_with("2|F|NonZeroExitCode|(NonZeroExitCode)|n"), "{ended}");
    assert!(ended.ends_with("9|CA|None||\n"), "{ended}");
    assert!(site.squeue(&["-M", "hostler", "-j", "8"]).starts_with("CLUSTER: hostler\n             JOBID PARTITION"));
    assert_eq!(site.squeue(&["-h", "-M", "all", "-j", "8", "-o", "%i"]), "8\n");

    for (arguments, text) in [
        (vec!["-j", "99"], "slurm_load_jobs error: Invalid job id specified\n"),
        (vec!["-h", "-j99", "-o", "%T"], "slurm_load_jobs error: Invalid job id specified\n"),
        (vec!["-j", "abc"], "squeue: error: Invalid job id: abc\n"),
        (vec!["-t", "soon"], "squeue: error: Invalid job state specified: soon\n"),
        (vec!["-w", "n9"], "squeue: error: Invalid node name n9\n"),
        (vec!["-S", "bogus"], "squeue: error: Invalid sort specification: s\n"),
        (vec!["5"], "squeue: error: Unrecognized option: 5\nUsage: squeue"),
        (vec!["--bogus"], "squeue: unrecognized option '--bogus'\nTry \"squeue --help\" for more information\n"),
    ] {
        let outcome = site.run("squeue", &arguments);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{arguments:?}");
        assert!(outcome.stderr.starts_with(text), "{arguments:?}: {}", outcome.stderr);
    }
    let stranger = site.run("squeue", &["-u", "no-such-user", "-h"]);
    assert_eq!((stranger.code, stranger.stdout.as_str()), (0, ""));
    assert_eq!(stranger.stderr, "squeue: error: Invalid user: no-such-user\n\n");
}

#[test]
fn sacct_prints_slurms_tables() {
    let site = Site::up();
    let user = user();
    let wrap = |name: &str, command: &str| site.submit(&["-J", name, "-w", "n1", "--wrap", command]);
    let good = wrap("a long name", "head -c 30000000 /dev/zero | tail -c 1 > /dev/null");
    let bad = wrap("bad", "exit 3");
    let killed = wrap("killed", "kill -9 $$");
    site.wait(&good, "completed");
    site.wait(&bad, "failed");
    site.wait(&killed, "failed");
    let late = site.submit(&["-J", "late", "-t", "1", "--wrap", "sleep 600"]);
    // Slurm's commands know no seconds.
    site.cluster.ok(&["update", &late, "--time", "1s"]);
    site.wait(&late, "timeout");
    let gone = wrap("gone", "sleep 600");
    site.wait(&gone, "running");
    let running = site.sacct(&["-n", "-P", "-j", &gone, "-o", "JobID,State,ExitCode,End"]);
    assert_eq!(running, "5|RUNNING|0:0|Unknown\n5.batch|RUNNING|0:0|Unknown\n");
    site.print("scancel", &[&gone]);
    site.wait(&gone, "cancelled");
    let never = site.submit(&["-H", "-J", "never", "--wrap", "true"]);
    site.print("scancel", &[&never]);
    let held = site.submit(&["-H", "-J", "held", "-a", "3-9%2", "--mem=1536", "--wrap", "true"]);
    assert_eq!([good.as_str(), &bad, &killed, &late, &gone, &never, &held], ["1", "2", "3", "4", "5", "6", "7"]);

    let lines = site.sacct(&["-n", "-P", "-j", &bad, "-o", "SubmitLine"]);
    assert_eq!(lines, "sbatch --parsable --mem=16 -o /dev/null -J bad -w n1 --wrap exit 3\n\n");
    let header = "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n\
                  ------------ ---------- ---------- ---------- ---------- ---------- -------- \n";
    let rows = "1            a long na+        all    default          1  COMPLETED      0:0 \n\
                1.batch           batch               default          1  COMPLETED      0:0 \n\
                2                   bad        all    default          1     FAILED      3:0 \n\
                2.batch           batch               default          1     FAILED      3:0 \n\
                3                killed        all    default          1     FAILED      0:9 \n\
                3.batch           batch               default          1  CANCELLED      0:9 \n\
                4                  late        all    default          1    TIMEOUT      0:0 \n\
                4.batch           batch               default          1  CANCELLED     0:15 \n\
                5                  gone        all    default          1 CANCELLED+      0:0 \n\
                5.batch           batch               default          1  CANCELLED     0:15 \n\
                6                 never        all    default          0 CANCELLED+      0:0 \n";
    // A held job could not start yet, so only its id lists it.
    assert_eq!(site.sacct(&[]), format!("{header}{rows}"));
    assert_eq!(
        site.sacct(&["-X", "--job", "7,6"]),
        format!(
            "{header}{}\n7_[3-9%2]          held        all    default          0    PENDING      0:0 \n",
            rows.lines().last().expect("a line")
        )
    );
    let uid = uid_of_user();
    assert_eq!(
        site.sacct(&["-P", "-n", "-o", "JobID,State,ExitCode", "-j", "4,5", "-j", "6"]),
        format!(
            "4|TIMEOUT|0:0\n4.batch|CANCELLED|0:15\n5|CANCELLED by {uid}|0:0\n5.batch|CANCELLED|0:15\n6|CANCELLED by {uid}|0:0\n"
        )
    );
    for (arguments, expected) in [
        (vec!["-P", "-b", "-j", "2", "-n"], "2|FAILED|3:0\n2.batch|FAILED|3:0\n"),
        (
            vec!["--parsable2", "-j", "1.batch"],
            "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1.batch|batch||default|1|COMPLETED|0:0\n",
        ),
        (vec!["--parsable", "-n", "--delimiter=^|^", "-Xj1", "--format=jobid,state"], "1^|^COMPLETED^|^\n"),
        (
            vec!["-X", "--noheader", "--format=jobid,state%20", "--job", "1,2"],
            "1                       COMPLETED \n2                          FAILED \n",
        ),
        (vec!["-Xnj", "5", "-o", "State%9,JobIDRaw%-5"], "CANCELLE+ 5     \n"),
        (
            vec!["-nXPj7", "-o", "reqmem,nnodes,nodelist,ncpus,timelimit,start,elapsed,reason"],
            "1.50G|1|None assigned|0|UNLIMITED|Unknown|00:00:00|JobHeldUser\n",
        ),
        (vec!["-nXPj7_4", "-o", "jobid,jobidraw,state"], "7_4|9|PENDING\n"),
        (
            vec!["-nPj1", "-o", "Partition,QOS,NTasks,NNodes,NodeList,ReqTRES,AllocTRES,DerivedExitCode"],
            "all|normal||1|n1|billing=1,cpu=1,mem=16M,node=1|billing=1,cpu=1,mem=16M,node=1|0:0\n||1|1|n1||cpu=1,mem=16M,node=1|\n",
        ),
        (
            vec!["-nXPj4", "-o", "timelimit,timelimitraw,restarts,workdir,stdout", "--noconvert"],
            "00:00:01|1|0|HOME|/dev/null\n",
        ),
        (vec!["-nXPj1", "-o", "ReqMem", "--units", "K"], "16384K\n"),
        (vec!["-nj", "99,98", "-o", "jobid"], ""),
        (vec!["-nPj1.0"], ""),
    ] {
        let expected = expected.replace("HOME", site.cluster.home().to_str().expect("text"));
        assert_eq!(site.sacct(&arguments), expected, "{arguments:?}");
    }
    assert_eq!(site.sacct(&["-nXPj1", "-o", "user"]), format!("{user}\n"));

    // Figures belong to the script, whose CPU time the job shows as well.
    let figures =
        site.sacct(&["-nPj1", "-o", "maxrss,totalcpu,usercpu,systemcpu,avecpu,maxrssnode,elapsed,cputimeraw"]);
    let lines: Vec<Vec<&str>> = figures.lines().map(|line| line.split('|').collect()).collect();
    let is_cpu_time = |text: &str| text.len() == 9 && text.starts_with("00:0") && text.contains('.');
    assert!(lines[0][0].is_empty() && lines[1][0].ends_with(['K', 'M']), "{figures}");
    assert!(is_cpu_time(lines[0][1]) && lines[0][1..4] == lines[1][1..4], "{figures}");
    assert_eq!((lines[0][4], lines[1][4], lines[1][5]), ("", "00:00:00", "n1"), "{figures}");

    let list = site.sacct(&["--helpformat"]);
    assert!(list.starts_with("Account             AdminComment        AllocCPUS           AllocNodes         \n"));
    let all = list.split_whitespace().collect::<Vec<_>>().join(",") + ",,";
    // The submit line of the first job has a `|`.
    let whole = site.sacct(&["--format", &all, "--parsable", "--jobs=2"]);
    let counts: Vec<usize> = whole.lines().map(|line| line.matches('|').count()).collect();
    assert_eq!(counts, [list.split_whitespace().count(); 3]);
    assert_eq!(site.run_with(("SACCT_FORMAT", "jobid,user"), "sacct", &["-nPXj1"]).stdout, format!("1|{user}\n"));
}

#[test]
fn sacct_selects_by_period_and_state() {
    let site = Site::up();
    let user = user();
    let done = site.submit(&["-J", "done", "--comment", "of mine", "-a", "1-2", "--wrap", "true"]);
    let failed = site.submit(&["-J", "failed", "-A", "phys", "-w", "n2", "--wrap", "exit 2"]);
    site.wait(&done, "completed");
    site.wait(&failed, "failed");
    let run = site.submit(&["-J", "run", "-t", "5", "-w", "n1", "--wrap", "sleep 600"]);
    site.wait(&run, "running");
    let far = site.submit(&["-J", "wide", "-n", "4", "-N", "2", "-w", "n1,n2", "--wrap", "true"]);
    site.wait_for(&["-h", "-j", &far, "-o", "%r"], "Resources");
    assert_eq!([done.as_str(), &failed, &run, &far], ["1", "3", "4", "5"]);

    let list = |arguments: &[&str]| {
        let text = site.sacct(&[&["-X", "-n", "-P", "-o", "jobid"], arguments].concat());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = vec!["1_1", "1_2", "3", "4", "5"];
    for (arguments, expected) in [
        (vec![], all.clone()),
        (vec!["-S", "1970-01-01-00:00:01"], all.clone()),
        (vec!["-S", "now"], vec!["4", "5"]),
        (vec!["-S", "now-1hours", "-E", "now-30minutes"], vec![]),
        (vec!["-E", "now"], all.clone()),
        // Without a start, states are those of this moment.
        (vec!["-s", "R"], vec!["4"]),
        (vec!["-s", "PENDING"], vec!["5"]),
        (vec!["-s", "F"], vec![]),
        (vec!["-s", "F,CD", "-S", "midnight", "-E", "now"], vec!["1_1", "1_2", "3"]),
        (vec!["-s", "F,CD", "-S", "now-1hour"], vec![]),
        (vec!["-s", "running", "-S", "now-1hour", "-E", "now"], vec!["1_1", "1_2", "3", "4"]),
        (vec!["-s", "F", "-j", "1,3"], vec!["3"]),
        (vec!["-u", &user], all.clone()),
        (vec!["-a"], all.clone()),
        (vec!["-A", "phys,math"], vec!["3"]),
        (vec!["-N", "n[2-3]"], if list(&["-j", "1", "-N", "n2"]).is_empty() { vec!["3"] } else { all[..3].to_vec() }),
        (vec!["--name", "run,failed"], vec!["3", "4"]),
        (vec!["-r", "other"], vec![]),
        (vec!["-i", "2"], vec!["5"]),
        (vec!["-I", "1-3"], vec!["1_1", "1_2", "3", "4"]),
        (vec!["-k", "1", "-K", "10"], vec!["4"]),
        (vec!["-j", "1_2,4"], vec!["1_2", "4"]),
        (vec!["-j", "2"], vec!["1_1"]),
        (vec!["--clusters", "all", "--starttime", "now-1hours", "--endtime", "now", "--name", "run"], vec!["4"]),
    ] {
        assert_eq!(list(&arguments), expected, "{arguments:?}");
    }
    assert_eq!(site.sacct(&["-nP", "-j", "1_2", "-o", "jobid,comment"]), "1_2|of mine\n1_2.batch|\n");
    assert_eq!(ids(&site.sacct(&["-n", "-j", "4.batch,3"])), ["3", "3.batch", "4.batch"]);

    // Times as numbers, all of them known, as programs ask for them.
    let arguments =
        ["-S", "2020-01-01", "-P", "-j", "3,4", "-X", "-o", "jobid,state,exitcode,submit,start,end,nodelist"];
    let seconds = site.run_with(("SLURM_TIME_FORMAT", "%s"), "sacct", &arguments).stdout;
    let lines: Vec<Vec<&str>> = seconds.lines().map(|line| line.split('|').collect()).collect();
    assert!(lines[1][3..6].iter().all(|time| time.parse::<u64>().is_ok()), "{seconds}");
    assert_eq!((&lines[2][..3], &lines[2][5..]), (&["4", "RUNNING", "0:0"][..], &["Unknown", "n1"][..]));
    let cut = site.sacct(&["-T", "-X", "-n", "-P", "-j", "4", "-S", "2020-01-01", "-E", "now", "-o", "end"]);
    assert_ne!(cut, "Unknown\n");

    let text = site.sacct(&["--json", "-S1970-01-01-00:00:01", "-j", "3,4"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let jobs = document["jobs"].as_array().expect("a list");
    assert_eq!(
        (jobs.len(), &jobs[0]["state"]["current"], &jobs[0]["job_id"]),
        (2, &serde_json::json!(["FAILED"]), &3.into())
    );
    assert_eq!(jobs[0]["steps"][0]["step"]["id"], "3.batch");
    assert_eq!(jobs[0]["exit_code"]["return_code"]["number"], 2);
    let script = site.sacct(&["-B", "-j", "3"]);
    assert!(script.starts_with("Batch Script for 3\n-----") && script.ends_with("\n\nexit 2\n\n"), "{script}");
    let script = site.sacct(&["-B", "-j", "1"]);
    assert!(script.ends_with("\nNONE\n\n"), "a completed job has none: {script}");

    for (arguments, text) in [
        (vec!["-nu", &user, "-o", "Account%256", "|", "tail", "-1"], "sacct: invalid option -- '1'\n"),
        (vec!["-o", "bogus"], "sacct: error: Invalid field requested: \"bogus\"\n"),
        (vec!["--bogus"], "sacct: unrecognized option '--bogus'\n"),
        (vec!["extra"], "sacct: error: Unknown arguments:\nsacct: error:  extra\n"),
        (vec!["--yaml"], "sacct: error: --yaml is not supported; use --json\n"),
    ] {
        let outcome = site.run("sacct", &arguments);
        assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (1, "", text), "{arguments:?}");
    }
    assert_eq!(site.sacct(&["--version"]), "slurm 24.05.8\n");
}

/// Needs root, and accounts that every Debian has.
#[test]
fn users_see_the_whole_queue_and_their_own_accounting() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (ada, bob) = ("games", "news");
    for user in [ada, bob] {
        cluster.ok(user, &["run", "-m", "32M", "--", "true"]);
    }
    let print = |user: &str, name: &str, arguments: &[&str]| {
        let output = cluster.command(user, arguments).arg0(name).output().expect("the command starts");
        let outcome = Outcome::of(&output);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{user}: {name} {arguments:?}");
        outcome.stdout
    };
    let sacct =
        |user: &str, more: &[&str]| print(user, "sacct", &[&["-X", "-n", "-P", "-o", "jobid,user"], more].concat());
    let both = "1|games\n2|news\n";
    assert_eq!((sacct(ada, &[]).as_str(), sacct(bob, &[]).as_str()), ("1|games\n", "2|news\n"));
    assert_eq!((sacct(ada, &["-a"]).as_str(), sacct(ada, &["-j1,2"]).as_str()), (both, both));
    assert_eq!((sacct(ada, &["-u", bob]).as_str(), sacct("root", &[]).as_str()), ("2|news\n", both));
    let queue = print(ada, "squeue", &["-h", "-t", "all", "-S", "i", "-o", "%i|%u|%o"]);
    assert_eq!(queue, "1|games|true\n2|news|(null)\n", "others do not see the command");
    assert_eq!(print(ada, "squeue", &["-h", "-t", "all", "--me", "-o", "%i"]), "1\n");

    // Users see that the jobs of others run, but not their steps.
    let running = cluster.ok(bob, &["run", "--detach", "-m", "32M", "--", "sleep", "600"]);
    wait_until("the job runs", 60, || (cluster.job(&running)["state"] == "running").then_some(()));
    assert_eq!(print(ada, "squeue", &["-h", "-s", "-o", "%i"]), "3.batch\n");
    assert_eq!(print(ada, "sacct", &["-n", "-P", "-o", "jobid,state", "-j3"]), "3|RUNNING\n3.batch|RUNNING\n");
}

fn uid_of_user() -> String {
    let output = Command::new("id").arg("-u").output().expect("id is installed");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn elapsed_times_follow_the_clock_of_the_head_and_not_that_of_the_client() {
    let site = Site::up();
    let id = site.submit(&["-t", "2:00:00", "--wrap", "sleep 600"]);
    site.wait_for(&["-h", "-t", "R", "-o", "%i"], &id);
    // The client's clock is a day ahead.
    let source = "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
                  int clock_gettime(clockid_t id, struct timespec *at) {\n\
                  long code = syscall(SYS_clock_gettime, id, at);\n\
                  if (id == CLOCK_REALTIME) at->tv_sec += 86400;\n\
                  return code; }\n";
    site.cluster.write("clock.c", source);
    let library = site.cluster.path("clock.so").display().to_string();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", &library]).arg(site.cluster.path("clock.c")).output();
    let built = built.expect("cc starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ahead = |name: &str, arguments: &[&str]| {
        let outcome = site.run_with(("LD_PRELOAD", &library), name, arguments);
        assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
        outcome.stdout
    };
    let line = ahead("squeue", &["-h", "-j", &id, "-o", "%M %L"]);
    assert!(line.starts_with("0:") && (line.contains(" 2:00:00") || line.contains(" 1:59:")), "{line}");
    assert!(ahead("scontrol", &["show", "job", &id]).contains("RunTime=00:00:"));
    assert!(ahead("sacct", &["-n", "-X", "-j", &id, "-o", "Elapsed"]).trim().starts_with("00:00:"));
    assert!(ahead("seff", &[&id]).contains("00:00:"), "{}", ahead("seff", &[&id]));
    let now = Timestamp::now().as_second();
    for (name, arguments) in [
        ("squeue", &["--json"][..]),
        ("scontrol", &["show", "job", "--json"]),
        ("scontrol", &["show", "node", "--json"]),
        ("scontrol", &["show", "partition", "--json"]),
    ] {
        let document: Value = serde_json::from_str(&ahead(name, arguments)).expect("JSON");
        let at = document["last_update"]["number"].as_i64().expect("a time");
        assert!((now..now + 600).contains(&at), "{name} {arguments:?}: {at}");
    }
}
