//! A class on a real head and real agents, each on a host of its own: students submit sandboxed jobs, some of them as many as they may.
//! Then the example checks that all students got their share, that nobody saw files of others, and that nothing is left.
//!
//! Usage: `classroom PROGRAM SECONDS STUDENTS NODES`; needs root. `cargo xtask classroom` builds and runs it. Not part of the tests: it
//! takes minutes, and its figures depend on the machine.

#![expect(clippy::print_stdout, reason = "people run the example and read its output")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};

/// The uid of the first student.
const FIRST_UID: u32 = 20_001;

/// Of so many students, one is greedy and submits arrays of this many tasks.
const GREEDY_EVERY: usize = 20;
const GREEDY_TASKS: u32 = 20;

/// Time without jobs over which the head's use of the CPU is measured.
const IDLE: Duration = Duration::from_secs(20);

/// What each job runs: it looks for traces of other students, leaves its own, and works for some seconds.
const JOB: &str = r#"#!/bin/sh
umask 000
[ -z "$(ls -A /home /root 2>/dev/null)" ] || echo SEEN homes
[ "$(ls -A .. | wc -l)" -le 1 ] || echo SEEN folders
for place in /tmp "$HOME" /dev/shm; do
    ls "$place"/secret-* 2>/dev/null && echo SEEN "$place"
    echo "$USER" >"$place/secret-$USER"
done
[ "$(sed 1,2d /proc/net/dev | wc -l)" -le 1 ] || echo SEEN interfaces
for process in /proc/[0-9]*; do
    case $(tr '\0' '\n' <"$process/environ" 2>/dev/null | sed -n 's/^USER=//p') in ''|"$USER") ;; *) echo SEEN processes ;; esac
done
sleep 5
echo done
"#;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, program, seconds, students, nodes] = &arguments[..] else {
        anyhow::bail!("usage: classroom PROGRAM SECONDS STUDENTS NODES");
    };
    let class = Class::start(program, students.parse()?, nodes.parse()?)?;
    let time = Duration::from_secs(seconds.parse()?);
    println!("machine          {} CPUs, load {}", std::thread::available_parallelism()?, load());
    let before = class.head_usage()?;
    let begun = Instant::now();
    let students = class.work(begun + time);
    let took = begun.elapsed();
    let after = class.head_usage()?;
    report(&students, took);
    println!("head while busy  {:.1} % of a CPU, {} KiB; load {}", share(&before, &after, took), after.rss_kib, load());
    class.check_nothing_left()?;
    let before = class.head_usage()?;
    std::thread::sleep(IDLE);
    let after = class.head_usage()?;
    println!("head when idle   {:.2} % of a CPU, {} KiB", share(&before, &after, IDLE), after.rss_kib);
    let seen: Vec<&String> = students.iter().flat_map(|student| &student.seen).collect();
    ensure!(seen.is_empty(), "jobs saw what they must not see: {seen:?}");
    let failed: Vec<&String> = students.iter().flat_map(|student| &student.failed).collect();
    ensure!(failed.is_empty(), "{} commands failed: {:?}", failed.len(), failed.first());
    println!("nobody saw files, processes or interfaces of others; no process is left");
    Ok(())
}

struct Class {
    students: usize,
    nodes: Vec<Host>,
    head: Host,
    daemons: Vec<Daemon>,
    // Last: the hosts must end before the switch.
    _network: Network,
}

/// What one student did.
#[derive(Default)]
struct Student {
    is_greedy: bool,
    finished: u32,
    seen: Vec<String>,
    failed: Vec<String>,
}

struct Usage {
    cpu_ticks: u64,
    rss_kib: u64,
}

fn name(student: usize) -> String {
    format!("s{student:03}")
}

impl Class {
    fn start(program: &str, students: usize, nodes: usize) -> Result<Self> {
        let network = Network::new(program);
        let (head, daemon) = network.head();
        add_accounts(&head, students)?;
        let rows: String = (0..students)
            .map(|student| format!("{},{},,class,\n", name(student), FIRST_UID as usize + student))
            .collect();
        head.write("/var/lib/roster.csv", rows);
        let begun = Instant::now();
        head.ok(&["hostler", "configure", "user", "import", "/var/lib/roster.csv"]);
        println!("roster           {students} students imported in {} ms", begun.elapsed().as_millis());
        head.ok(&["hostler", "configure", "group", "quota", "class", "--each", "--jobs", "2", "--queued", "20"]);
        head.ok(&[
            "hostler",
            "configure",
            "partition",
            "add",
            "lab",
            "--nodes",
            "n*",
            "--sandbox",
            "always",
            "--default",
        ]);
        let mut class = Self { students, nodes: Vec::new(), head, daemons: vec![daemon], _network: network };
        for number in 1..=nodes {
            let node = class._network.host(&format!("n{number}"));
            add_accounts(&node, students)?;
            node.join(&class.head);
            class.daemons.push(node.daemon("agent", &["hostler", "agent", "run", "--memory", "1G"]));
            class.nodes.push(node);
        }
        let all_up = || {
            let found = class.head.json(&["hostler", "nodes"]);
            let up = found.as_array().map_or(0, |found| found.iter().filter(|node| node["state"] == "up").count());
            (up == nodes).then_some(())
        };
        wait_until("all nodes to be up", 120, all_up);
        Ok(class)
    }

    /// Lets all students work until the deadline, and then until their last jobs have ended.
    fn work(&self, deadline: Instant) -> Vec<Student> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let student = |number: usize| {
                let is_over = &is_over;
                scope.spawn(move || self.one(number, is_over))
            };
            let all: Vec<_> = (0..self.students).map(student).collect();
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            is_over.store(true, Ordering::Relaxed);
            all.into_iter().map(|thread| thread.join().expect("a student does not panic")).collect()
        })
    }

    fn one(&self, number: usize, is_over: &AtomicBool) -> Student {
        let is_greedy = number.is_multiple_of(GREEDY_EVERY);
        let mut student = Student { is_greedy, ..Student::default() };
        let last = format!("0-{}", GREEDY_TASKS - 1);
        let array: &[&str] = if is_greedy { &["-a", &last] } else { &[] };
        let submit = ["submit", "project", "job.sh", "-c", "1", "-m", "64M", "-t", "2m"];
        while !is_over.load(Ordering::Relaxed) {
            let submitted = self.run(number, &[&submit[..], array].concat());
            let id = submitted.stdout.trim().to_owned();
            if submitted.code != 0 {
                student.failed.push(submitted.stderr);
                // The head may be overloaded; do not add to that.
                std::thread::sleep(Duration::from_secs(1));
                continue;
            }
            // A greedy student has more work than time, so what is left at the end is cancelled.
            while is_greedy && !is_over.load(Ordering::Relaxed) && self.is_live(&id) {
                std::thread::sleep(Duration::from_secs(2));
            }
            if is_greedy && is_over.load(Ordering::Relaxed) {
                let _ = self.run(number, &["cancel", &id]);
            }
            let _ = self.run(number, &["wait", &id]);
            let printed = self.run(number, &["logs", &id]).stdout;
            student.finished += printed.lines().filter(|line| line.ends_with("done")).count() as u32;
            student.seen.extend(printed.lines().filter(|line| line.contains("SEEN")).map(str::to_owned));
        }
        student
    }

    fn is_live(&self, id: &str) -> bool {
        self.head.json(&["hostler", "job", id])["ended_at"].is_null()
    }

    /// Runs `hostler` as a student, in the student's home directory on the head.
    fn run(&self, student: usize, arguments: &[&str]) -> Outcome {
        let (name, uid) = (name(student), (FIRST_UID as usize + student).to_string());
        let home = format!("/home/{name}");
        let begin = ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups", "env", "-C", &home];
        let home = format!("HOME={home}");
        self.head.run(&[&begin[..], &[home.as_str(), "hostler"], arguments].concat())
    }

    fn head_usage(&self) -> Result<Usage> {
        let pid = self.daemons[0].pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = stat.rsplit_once(") ").context("a process has a state")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has memory")?;
        Ok(Usage {
            cpu_ticks: fields[11].parse::<u64>()? + fields[12].parse::<u64>()?,
            rss_kib: rss.trim().trim_end_matches(" kB").parse()?,
        })
    }

    fn check_nothing_left(&self) -> Result<()> {
        for node in &self.nodes {
            let of_students = format!("ps -e -o uid= | awk '$1 >= {FIRST_UID}' | wc -l");
            wait_until("the students' processes to end", 60, || {
                (node.ok(&["sh", "-c", &of_students]) == "0").then_some(())
            });
        }
        let nodes = self.head.json(&["hostler", "nodes"]);
        let busy: u64 = nodes.as_array().into_iter().flatten().filter_map(|node| node["tasks"].as_u64()).sum();
        ensure!(busy == 0, "{busy} tasks still hold resources");
        Ok(())
    }
}

/// Writes the accounts and, for the head, the projects of the students into a host's files, which is faster than `useradd`.
fn add_accounts(host: &Host, students: usize) -> Result<()> {
    let (mut passwd, mut group) = (host.read("/etc/passwd"), host.read("/etc/group"));
    for student in 0..students {
        let (name, uid) = (name(student), FIRST_UID + u32::try_from(student)?);
        passwd.push_str(&format!("{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n"));
        group.push_str(&format!("{name}:x:{uid}:\n"));
        host.write(&format!("/home/{name}/project/job.sh"), JOB);
    }
    host.write("/etc/passwd", passwd);
    host.write("/etc/group", group);
    let own = "cd /home && chmod 755 s*/project/job.sh && for it in s*; do chown -R $it:$it $it; chmod 700 $it; done";
    host.ok(&["sh", "-c", own]);
    Ok(())
}

/// Prints how many jobs the students finished, and how evenly.
fn report(students: &[Student], took: Duration) {
    let finished: Vec<f64> = students.iter().map(|student| f64::from(student.finished)).collect();
    let (sum, squares): (f64, f64) = (finished.iter().sum(), finished.iter().map(|it| it * it).sum());
    let jain = if squares == 0.0 { 0.0 } else { sum * sum / (finished.len() as f64 * squares) };
    let range = |is_greedy: bool| {
        let of: Vec<u32> = students.iter().filter(|it| it.is_greedy == is_greedy).map(|it| it.finished).collect();
        let (least, most) = (of.iter().min().copied().unwrap_or(0), of.iter().max().copied().unwrap_or(0));
        let mean = f64::from(of.iter().sum::<u32>()) / of.len().max(1) as f64;
        format!("{} students, {mean:.1} tasks each ({least} to {most})", of.len())
    };
    println!("finished         {sum} tasks in {} s", took.as_secs());
    println!("one at a time    {}", range(false));
    println!("arrays           {}", range(true));
    println!("Jain's index     {jain:.3} (1 = all finished equally many)");
}

/// The share of a CPU that a process used, in percent.
fn share(before: &Usage, after: &Usage, time: Duration) -> f64 {
    // Linux counts in hundredths of a second on all platforms of Hostler.
    (after.cpu_ticks - before.cpu_ticks) as f64 / time.as_secs_f64()
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}
