//! Final checks: no job is lost or run twice, nothing is left on the machine, and memory does not grow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler_testkit::wait_until;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::users::{DISK_FULL, Kind, Ledger, Submitted};
use crate::watch::{Look, Looks, look_at};
use crate::world::{FIRST_UID, NODES, USERS, World, name_of};

/// Permitted growth of a daemon's memory, in addition to 10 %, because caches fill.
const GROWTH_KIB: u64 = 12 << 10;

/// Permitted number of run directories: those that an agent keeps for reuse, and a few that the head has not
/// confirmed yet.
const MOST_DIRECTORIES: usize = 64 + 8;

/// Resources of the machine other than processes.
pub(crate) struct Held {
    mounts: usize,
    leaves: BTreeSet<PathBuf>,
    temporary: BTreeSet<PathBuf>,
}

impl Held {
    pub(crate) fn now() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable").lines().count();
        let mut leaves = BTreeSet::new();
        control_groups(Path::new("/sys/fs/cgroup"), &mut leaves);
        let entries = fs::read_dir("/tmp").expect("readable").flatten().map(|entry| entry.path());
        let of_runs =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hostler-run-"));
        Self { mounts, leaves, temporary: entries.filter(of_runs).collect() }
    }
}

fn control_groups(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            control_groups(&entry.path(), found);
            found.insert(entry.path());
        }
    }
}

/// Stops the cluster and returns all violated conditions.
pub(crate) fn judge(world: &World, ledgers: &[Ledger], looks: &Looks, before: &Held) -> Vec<String> {
    let mut faults: Vec<String> = ledgers.iter().flat_map(|ledger| ledger.faults.clone()).collect();
    for index in 0..NODES.len() {
        world.signal(Some(index), Signal::SIGCONT);
    }
    world.signal(None, Signal::SIGKILL);
    world.start_head();
    world.wait_for_nodes();
    finish(world, ledgers);
    let jobs = all_jobs(world);
    for ledger in ledgers {
        faults.extend(ledger.jobs.iter().flat_map(|job| judge_job(world, ledger.user, job, jobs.get(&job.id))));
        faults.extend(ledger.unknown.iter().flat_map(|token| ran_twice(&runs_of(world, ledger.user, token), token)));
    }
    faults.extend(flat(looks));
    report(world, ledgers, &jobs, looks);
    faults.extend(leaks(world, before));
    faults
}

/// Waits until every job has ended.
fn finish(world: &World, ledgers: &[Ledger]) {
    for ledger in ledgers {
        for job in &ledger.jobs {
            drop(world.run(Some(ledger.user), &["release", &job.id.to_string()]));
        }
    }
    wait_until("all jobs to end", 600, || {
        let jobs: Value = serde_json::from_str(&world.run(None, &["jobs", "--json"]).stdout).ok()?;
        (jobs["total"] == 0).then_some(())
    });
}

fn all_jobs(world: &World) -> BTreeMap<u64, Value> {
    let text = world.run(None, &["jobs", "--all", "--json", "--limit", "1000000"]).stdout;
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let jobs = all["jobs"].as_array().expect("a list of jobs");
    jobs.iter().map(|job| (job["id"].as_u64().expect("an id"), job.clone())).collect()
}

fn judge_job(world: &World, user: u32, job: &Submitted, known: Option<&Value>) -> Vec<String> {
    let id = job.id;
    let Some(known) = known else { return vec![format!("job {id} was acknowledged, but the head does not know it")] };
    let mut faults = Vec::new();
    if known["user"] != name_of(user) {
        faults.push(format!("job {id} belongs to {}, not to {}", known["user"], name_of(user)));
    }
    if job.kind == Kind::Hostile {
        return faults;
    }
    let runs = runs_of(world, user, &job.token);
    faults.extend(ran_twice(&runs, &job.token));
    let (state, completed) = (known["state"].as_str().unwrap_or_default(), known["tasks"]["completed"].as_u64());
    let expected = if job.exit == 0 { "completed" } else { "failed" };
    if !["cancelled", "node_fail", expected].contains(&state) && !failed_for_want_of_room(world, id) {
        let shown = world.run(None, &["job", &id.to_string()]).stdout;
        faults.push(format!("job {id} of {} ended as {state}: {shown}", name_of(user)));
    }
    let indices: BTreeSet<&str> = runs.iter().filter_map(|run| run.split(' ').next()).collect();
    if job.exit == 0 && completed > Some(indices.len() as u64) {
        faults.push(format!("job {id}: {completed:?} tasks completed, but only {} ran", indices.len()));
    }
    if known["tasks"]["total"] != job.tasks {
        faults.push(format!("job {id} has {} tasks, not {}", known["tasks"]["total"], job.tasks));
    }
    faults
}

fn failed_for_want_of_room(world: &World, id: u64) -> bool {
    let shown = world.run(None, &["job", &id.to_string(), "--json"]).stdout;
    [DISK_FULL, "no space left", "No space left"].iter().any(|words| shown.contains(words))
}

/// The `INDEX ATTEMPT` lines of all runs that began.
fn runs_of(world: &World, user: u32, token: &str) -> Vec<String> {
    let text = fs::read_to_string(world.home_of(user).join("ran").join(token)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn ran_twice(runs: &[String], token: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = runs.iter().filter(|run| !seen.insert(run.as_str()));
    twice.map(|run| format!("the same attempt of job {token} ran twice: {run}")).collect()
}

/// Reports daemons with growing memory or a growing number of descriptors. Uses only samples of a daemon's last
/// process.
fn flat(looks: &Looks) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, looks) in looks.iter().enumerate() {
        let Some(last) = looks.last() else { continue };
        let same: Vec<Look> = looks.iter().filter(|look| look.pid == last.pid).copied().collect();
        // Too few samples to distinguish warm-up from growth.
        if same.len() < 60 {
            continue;
        }
        let (early, late) = (&same[same.len() / 4..same.len() / 2], &same[same.len() * 3 / 4..]);
        let middle = |looks: &[Look], of: fn(&Look) -> u64| {
            let mut all: Vec<u64> = looks.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        let (rss, later) = (middle(early, |look| look.rss_kib), middle(late, |look| look.rss_kib));
        if later > rss + rss / 10 + GROWTH_KIB {
            faults.push(format!("the memory of daemon {index} grew from {rss} to {later} KiB"));
        }
        let (descriptors, later) = (middle(early, |look| look.descriptors), middle(late, |look| look.descriptors));
        if later > descriptors + 30 {
            faults.push(format!("the descriptors of daemon {index} grew from {descriptors} to {later}"));
        }
    }
    faults
}

/// Reports processes and directories that remain when no job runs, and resources that remain after the daemons have
/// ended.
fn leaks(world: &World, before: &Held) -> Vec<String> {
    let mut faults = Vec::new();
    std::thread::sleep(Duration::from_secs(5));
    for pid in processes_of_users() {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        faults.push(format!("process {pid} of a user is left: {command}"));
    }
    for node in NODES {
        let runs = fs::read_dir(world.path(&format!("{node}/state/runs"))).map_or(0, Iterator::count);
        println!("{node}: {runs} directories of runs");
        if runs > MOST_DIRECTORIES {
            faults.push(format!("{node} keeps {runs} directories of runs"));
        }
    }
    for daemon in (0..NODES.len()).map(Some).chain([None]) {
        world.signal(daemon, Signal::SIGTERM);
    }
    std::thread::sleep(Duration::from_secs(3));
    let now = Held::now();
    faults.extend(
        now.leaves.difference(&before.leaves).map(|leaf| format!("a control group is left: {}", leaf.display())),
    );
    faults.extend(
        now.temporary.difference(&before.temporary).map(|path| format!("a temporary file is left: {}", path.display())),
    );
    if now.mounts > before.mounts {
        faults.push(format!("the number of mounts grew from {} to {}", before.mounts, now.mounts));
    }
    faults
}

fn processes_of_users() -> Vec<u32> {
    let uids = FIRST_UID..FIRST_UID + USERS;
    let pids =
        fs::read_dir("/proc").expect("readable").flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_of_user = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
        uid.is_some_and(|uid: u32| uids.contains(&uid)) && hostler_testkit::is_alive(*pid)
    };
    pids.filter(is_of_user).collect()
}

fn report(world: &World, ledgers: &[Ledger], jobs: &BTreeMap<u64, Value>, looks: &Looks) {
    let operations: u64 = ledgers.iter().map(|ledger| ledger.operations).sum();
    let acknowledged: usize = ledgers.iter().map(|ledger| ledger.jobs.len()).sum();
    let refused: u64 = ledgers.iter().map(|ledger| ledger.refused).sum();
    println!(
        "{operations} operations, {acknowledged} submissions acknowledged, {refused} refused, {} jobs known",
        jobs.len()
    );
    if let Some(refusal) = ledgers.iter().find_map(|ledger| ledger.first_refusal.as_ref()) {
        println!("first refusal of a user: {}", refusal.trim());
    }
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    jobs.values().for_each(|job| *states.entry(job["state"].as_str().unwrap_or_default()).or_default() += 1);
    println!("{states:?}");
    for (index, looks) in looks.iter().enumerate() {
        let name = index.checked_sub(1).map_or("head", |index| NODES[index]);
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { continue };
        let most = looks.iter().map(|look| look.rss_kib).max().unwrap_or_default();
        println!(
            "{name}: memory {} KiB in the first sample, {most} at most, {} in the last; descriptors {} and {}",
            first.rss_kib, last.rss_kib, first.descriptors, last.descriptors
        );
    }
    if let Some(head) = world.pid(None).and_then(look_at) {
        println!("head after its restart: memory {} KiB, {} descriptors", head.rss_kib, head.descriptors);
    }
}
