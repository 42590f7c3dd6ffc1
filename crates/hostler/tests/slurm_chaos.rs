//! Fifty users submit, cancel and requeue jobs with `sbatch`, `scancel` and `scontrol` while the head is killed again and
//! again. No job is lost, doubled or run twice, and `sacct` accounts for all of them. Needs root.
//!
//! `HOSTLER_SEED=N cargo test -p hostler --test slurm_chaos` uses other random numbers. They decide what the users do
//! and how long the head lives each time, but not what the head does when it dies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use hostler_testkit::{Outcome, Person, Random, SharedCluster, replace_people_for_this_thread, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const USERS: u32 = 50;

/// Tasks that each user submits.
const TASKS: u32 = 10;

/// Threads in which the users act.
const THREADS: u32 = 8;

/// How often the head is killed.
const KILLS: u32 = 10;

/// Uid and gid of the first user.
const FIRST_UID: u32 = 62_001;

/// Notes the start of a task in a file of its user, requeues the task during its first run if `$again` is 1, and exits with
/// a code.
const SCRIPT: &str = r#"job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}; task=$job${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
echo "$task ${SLURM_RESTART_COUNT:-0}" >> "$HOME/ran"
if [ $again = 1 ] && [ -z "$SLURM_RESTART_COUNT" ]; then scontrol requeue "$task"; fi
sleep "$nap"; exit "$code""#;

/// The cluster, and the links with the names of Slurm's commands.
struct Site {
    cluster: SharedCluster,
    links: PathBuf,
}

impl Site {
    fn up() -> Self {
        let people: Vec<Person> =
            (0..USERS).map(|user| Person { name: name_of(user), id: FIRST_UID + user, home: "/".into() }).collect();
        replace_people_for_this_thread(&people);
        let mut cluster = SharedCluster::up(HOSTLER, &[]);
        cluster.add_node("n2");
        cluster.add_node("n3");
        let links = cluster.path("links");
        cluster.ok("root", &["shims", links.to_str().expect("text")]);
        Self { cluster, links }
    }

    /// Runs a command with the name of one of Slurm's.
    fn run(&self, user: &str, name: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.cluster.command(user, arguments);
        Outcome::of(&command.arg0(self.links.join(name)).output().expect("the command starts"))
    }
}

fn name_of(user: u32) -> String {
    format!("user{user:02}")
}

/// What a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dependency {
    AfterAny(u64),
    AfterOk(u64),
    AfterCorr(u64),
    Singleton,
}

impl Dependency {
    fn text(self) -> String {
        match self {
            Self::AfterAny(job) => format!("afterany:{job}"),
            Self::AfterOk(job) => format!("afterok:{job}"),
            Self::AfterCorr(job) => format!("aftercorr:{job}"),
            Self::Singleton => "singleton".to_owned(),
        }
    }
}

/// An accepted job.
#[derive(Debug)]
struct Job {
    id: u64,
    user: String,
    /// The job's comment, which no other submission has.
    token: String,
    /// Number of tasks of the array; zero without an array.
    array: u32,
    /// Exit code of the tasks.
    code: i32,
    dependency: Option<Dependency>,
    /// The most requeues of each task: all that were confirmed, and those without an answer.
    requeues: u32,
}

impl Job {
    /// The ids of the tasks, as `sacct` shows them.
    fn tasks(&self) -> Vec<String> {
        match self.array {
            0 => vec![self.id.to_string()],
            array => (0..array).map(|index| format!("{}_{index}", self.id)).collect(),
        }
    }
}

/// A user who acts at random, and remembers what the head has accepted.
struct User<'a> {
    site: &'a Site,
    name: String,
    random: Random,
    jobs: Vec<Job>,
    submissions: u32,
}

impl User<'_> {
    /// Submits all tasks, and meanwhile cancels and requeues some.
    fn act(&mut self) {
        let mut left = TASKS;
        while left > 0 {
            left -= self.submit(left);
            match self.random.below(20) {
                0..3 => self.cancel(),
                3..6 => self.requeue(),
                6 => self.submit_by_mistake(),
                _ => {}
            }
        }
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Outcome {
        self.site.run(&self.name, name, arguments)
    }

    /// A comment for the next submission.
    fn token(&mut self) -> String {
        self.submissions += 1;
        format!("{}-{}", self.name, self.submissions)
    }

    /// Submits a job with at most `left` tasks, and returns their number.
    fn submit(&mut self, left: u32) -> u32 {
        let token = self.token();
        let mut array = if self.random.below(4) == 0 { left.min(2 + self.random.below(3) as u32) } else { 0 };
        let mut dependency = None;
        if !self.jobs.is_empty() && self.random.below(3) == 0 {
            let earlier = self.random.one_of(&self.jobs);
            let (id, others) = (earlier.id, earlier.array);
            dependency = Some(match self.random.below(4) {
                0 => Dependency::Singleton,
                1 => Dependency::AfterOk(id),
                2 if (1..=left).contains(&others) => {
                    array = others;
                    Dependency::AfterCorr(id)
                }
                _ => Dependency::AfterAny(id),
            });
        }
        let code = i32::from(self.random.below(8) == 0);
        let again = self.random.below(10) == 0;
        let nap = format!("0.{}", self.random.below(4));
        // Jobs do not inherit the address of the head.
        let head = self.site.cluster.path("head.sock").display().to_string();
        let values = format!("code={code} again={} nap={nap} HOSTLER_HEAD=unix:{head}", i32::from(again));
        let script = format!("export {values}\n{SCRIPT}");
        let name = *self.random.one_of(&["one", "other"]);

        let mut arguments = vec!["--parsable", "--mem=16", "-t5", "-o", "/dev/null", "--comment", &token, "-J", name];
        let (indices, condition) = (format!("0-{}", array.saturating_sub(1)), dependency.map(Dependency::text));
        if array > 0 {
            arguments.extend(["-a", &indices]);
        }
        if let Some(condition) = &condition {
            arguments.extend(["-d", condition]);
        }
        arguments.extend(["--wrap", &script]);
        let outcome = self.run("sbatch", &arguments);
        assert_eq!(outcome.code, 0, "sbatch {arguments:?}: {}", outcome.stderr);
        let id = outcome.stdout.trim().parse().expect("an id");
        let (user, requeues) = (self.name.clone(), u32::from(again));
        self.jobs.push(Job { id, user, token, array, code, dependency, requeues });
        array.max(1)
    }

    /// Submits a job that the head refuses.
    fn submit_by_mistake(&mut self) {
        let token = self.token();
        let mistakes =
            [("-d", "afterok:900000", "Job dependency problem"), ("-p", "nowhere", "Invalid partition name")];
        let (option, value, text) = *self.random.one_of(&mistakes);
        let outcome = self.run("sbatch", &["--mem=16", "--comment", &token, option, value, "--wrap", "true"]);
        assert!(outcome.code == 1 && outcome.stderr.contains(text), "sbatch {option} {value}: {outcome:?}");
    }

    fn cancel(&mut self) {
        let job = self.random.one_of(&self.jobs);
        let tasks = job.tasks();
        let target = if self.random.below(2) == 0 { job.id.to_string() } else { self.random.one_of(&tasks).clone() };
        let outcome = self.run("scancel", &[&target]);
        assert_eq!(outcome.code, 0, "scancel {target}: {}", outcome.stderr);
    }

    /// Requeues a job. The head refuses this if the job waits or has completed.
    fn requeue(&mut self) {
        let index = self.random.below(self.jobs.len() as u64) as usize;
        let outcome = self.run("scontrol", &["requeue", &self.jobs[index].id.to_string()]);
        // The head may have died after the requeue, before its answer.
        let is_unknown = outcome.stderr.contains("Unable to contact slurm controller");
        if outcome.code == 0 || is_unknown {
            self.jobs[index].requeues += 1;
        }
    }
}

/// Lets the users of a thread act one after another, and returns the accepted jobs.
fn act(site: &Site, seed: u64, thread: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for user in (thread..USERS).step_by(THREADS as usize) {
        let random = Random::new(seed ^ (u64::from(user + 1) << 32));
        let mut user = User { site, name: name_of(user), random, jobs: Vec::new(), submissions: 0 };
        user.act();
        jobs.append(&mut user.jobs);
    }
    jobs
}

/// A task, as `sacct` shows it.
#[derive(Debug)]
struct Task {
    token: String,
    user: String,
    state: String,
    restarts: u32,
    nodes: String,
}

/// All tasks by id. Panics if one is listed twice.
fn accounting(site: &Site) -> BTreeMap<String, Task> {
    let fields = ["-a", "-X", "-n", "-P", "-S", "now-1hour", "-o", "jobid,comment,user,state,restarts,nodelist"];
    let listed = site.run("root", "sacct", &fields);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let mut tasks = BTreeMap::new();
    for line in listed.stdout.lines() {
        let [id, token, user, state, restarts, nodes] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let task = Task {
            token: token.to_owned(),
            user: user.to_owned(),
            // `CANCELLED by 62001`
            state: state.split(' ').next().unwrap_or_default().to_owned(),
            restarts: restarts.parse().expect("a number"),
            nodes: nodes.to_owned(),
        };
        assert!(tasks.insert(id.to_owned(), task).is_none(), "sacct lists {id} twice:\n{}", listed.stdout);
    }
    tasks
}

/// The restart count of each run of each task of a user.
fn runs_of(site: &Site, user: &str) -> BTreeMap<String, Vec<u32>> {
    let text = fs::read_to_string(site.cluster.home_of(user).join("ran")).unwrap_or_default();
    let mut runs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in text.lines() {
        let (task, restarts) = line.split_once(' ').expect("two words");
        runs.entry(task.to_owned()).or_default().push(restarts.parse().expect("a number"));
    }
    runs
}

/// Checks one task against the runs that it noted.
fn check(id: &str, job: &Job, task: &Task, runs: &[u32]) {
    let about = || format!("task {id}: {task:?}, runs {runs:?}, {job:?}");
    assert_eq!((&task.token, &task.user), (&job.token, &job.user), "{}", about());
    let distinct: BTreeSet<u32> = runs.iter().copied().collect();
    assert_eq!(distinct.len(), runs.len(), "a run began twice: {}", about());
    assert!(runs.len() as u32 <= 1 + job.requeues, "a task ran again without a requeue: {}", about());
    match task.state.as_str() {
        "COMPLETED" => assert!(job.code == 0 && runs.contains(&task.restarts), "{}", about()),
        "FAILED" => assert!(job.code != 0 && runs.contains(&task.restarts), "{}", about()),
        "CANCELLED" if task.nodes == "None assigned" && job.requeues == 0 => {
            assert!(runs.is_empty(), "a task ran although it was cancelled before: {}", about());
        }
        "CANCELLED" => {}
        _ => panic!("{}", about()),
    }
}

/// Checks that a job ran only if the job that it depends on allowed that. A requeue of that job changes its state later, and
/// one of the dependent job runs it although its dependency can never be satisfied.
fn check_dependency(job: &Job, jobs: &BTreeMap<u64, &Job>, tasks: &BTreeMap<String, Task>, ran: &BTreeSet<&String>) {
    let (earlier, is_corr) = match job.dependency {
        Some(Dependency::AfterOk(earlier)) => (earlier, false),
        Some(Dependency::AfterCorr(earlier)) => (earlier, true),
        Some(Dependency::AfterAny(_) | Dependency::Singleton) | None => return,
    };
    let earlier = jobs[&earlier];
    if job.requeues > 0 || earlier.requeues > 0 {
        return;
    }
    let earlier = earlier.tasks();
    for (index, id) in job.tasks().iter().enumerate().filter(|(_, id)| ran.contains(id)) {
        let needed = if is_corr { &earlier[index..=index] } else { &earlier[..] };
        let is_met = needed.iter().all(|id| tasks[id].state == "COMPLETED");
        assert!(is_met, "{id} ran, but not all of {needed:?} completed: {job:?}");
    }
}

/// Prints the seed if the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test prints how to repeat it")]
            {
                eprintln!("repeat with HOSTLER_SEED={}", self.0);
            }
        }
    }
}

#[test]
fn jobs_of_fifty_users_are_neither_lost_nor_doubled_while_the_head_is_killed() {
    let seed = Seed(std::env::var("HOSTLER_SEED").map_or(1, |text| text.parse().expect("HOSTLER_SEED is a number")));
    let site = Site::up();
    let jobs: Vec<Job> = thread::scope(|scope| {
        let (site, seed) = (&site, seed.0);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || act(site, seed, thread))).collect();
        let mut random = Random::new(!seed);
        for _ in 0..KILLS {
            thread::sleep(Duration::from_millis(random.below(1_500)));
            site.cluster.kill_and_restart_head();
        }
        threads.into_iter().flat_map(|thread| thread.join().expect("no user fails")).collect()
    });
    wait_until("the queue to be empty", 300, || {
        let queue = site.run("root", "squeue", &["-h"]);
        (queue.code == 0 && queue.stdout.is_empty()).then_some(())
    });

    let tasks = accounting(&site);
    let accepted: BTreeSet<String> = jobs.iter().flat_map(Job::tasks).collect();
    assert_eq!(accepted.len() as u32, USERS * TASKS, "each accepted task has its own id");
    let listed: BTreeSet<String> = tasks.keys().cloned().collect();
    assert_eq!(listed, accepted, "sacct lists what was accepted, and nothing else");

    let mut runs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for user in (0..USERS).map(name_of) {
        let own: BTreeSet<String> = jobs.iter().filter(|job| job.user == user).flat_map(Job::tasks).collect();
        let of_user = runs_of(&site, &user);
        assert!(of_user.keys().all(|id| own.contains(id)), "{user} ran tasks that were not accepted: {of_user:?}");
        runs.extend(of_user);
    }
    let (by_id, ran) = (jobs.iter().map(|job| (job.id, job)).collect(), runs.keys().collect());
    for job in &jobs {
        for id in job.tasks() {
            check(&id, job, &tasks[&id], runs.get(&id).map_or(&[][..], Vec::as_slice));
        }
        check_dependency(job, &by_id, &tasks, &ran);
    }

    let count = |state: &str| tasks.values().filter(|task| task.state == state).count() as u32;
    let ends = ["COMPLETED", "FAILED", "CANCELLED"].map(count);
    assert_eq!(ends.iter().sum::<u32>(), USERS * TASKS, "{ends:?}");
    // Otherwise the test proves little.
    let is_again = |task: &Task| task.state == "COMPLETED" && task.restarts > 0;
    assert!(ends.iter().all(|count| *count > 0) && tasks.values().any(is_again), "{ends:?}");
}
