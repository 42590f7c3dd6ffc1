//! Compares replays with schedules computed by hand and with an independent simulator.

use hostler_model::Request;
use hostler_sched::Policy;
use hostler_sim::{Metrics, Replay, ReplayError, ReplayOptions, Trace, TraceJob, replay};

const SIX_JOBS: &[u8] = include_bytes!("data/six-jobs.swf");

fn options(policy: Policy) -> ReplayOptions {
    ReplayOptions { policy, nodes: Vec::new() }
}

fn starts(replay: &Replay) -> Vec<u64> {
    replay.placements.iter().map(|placement| placement.start_secs).collect()
}

/// Job 1 holds three of four processors until 100. Job 2 requests two and waits; no job may overtake it. At 100 jobs
/// 2, 3 and 4 start together and fill the machine. Job 5 requests the whole machine, so it waits until job 4 ends at
/// 200. Job 6 waits for job 5.
#[test]
fn six_jobs_first_come_first_served() {
    let trace = Trace::parse(SIX_JOBS).expect("valid");
    let replay = replay(&trace, &options(Policy::Fcfs)).expect("everything fits");
    assert_eq!(starts(&replay), [0, 100, 100, 100, 200, 205]);
    let expected = Metrics {
        jobs: 6,
        jobs_that_waited: 5,
        sum_of_waits_secs: 90 + 80 + 70 + 160 + 155,
        max_wait_secs: 160,
        mean_wait_secs: 92.5,
        // 1, 140/50, 120/40, 170/100, 165/10 and 175/20.
        mean_bounded_slowdown: 33.75 / 6.0,
        makespan_secs: 225,
        utilisation: 580.0 / (4.0 * 225.0),
    };
    assert_eq!(replay.metrics, expected);
}

/// Behind job 2, which is due at 100, job 3 starts at once: it ends at 60. Then job 4 starts: it runs past 100, but
/// job 2 leaves two processors free. At 100 job 2 starts, and job 5 becomes the first waiting job. Its reservation is
/// at 260, because job 4 requested 200 seconds. Job 6 starts as backfill and ends at 120. Job 4 ends early, at 160, so
/// job 5 starts then.
#[test]
fn six_jobs_with_backfill() {
    let trace = Trace::parse(SIX_JOBS).expect("valid");
    let replay = replay(&trace, &options(Policy::Easy)).expect("everything fits");
    assert_eq!(starts(&replay), [0, 100, 20, 60, 160, 100]);
    let metrics = replay.metrics;
    assert_eq!((metrics.sum_of_waits_secs, metrics.max_wait_secs, metrics.jobs_that_waited), (290, 120, 4));
    assert_eq!((metrics.makespan_secs, metrics.utilisation), (165, 580.0 / (4.0 * 165.0)));
    // 1, 140/50, 1, 130/100, 125/10 and 70/20.
    assert!((metrics.mean_bounded_slowdown - 22.1 / 6.0).abs() < 1e-12);
}

/// Job 2 requests the whole machine. The greedy policy keeps nothing for it: job 3 starts beside job 1 and delays job 2.
#[test]
fn greedy_policy_lets_small_jobs_delay_a_large_one() {
    let trace = Trace::parse(b"; MaxProcs: 4\n1 0 -1 100 3\n2 10 -1 50 4\n3 20 -1 200 1\n").expect("valid");
    let starts = |policy| starts(&replay(&trace, &options(policy)).expect("everything fits"));
    assert_eq!(starts(Policy::Easy), [0, 100, 150]);
    assert_eq!(starts(Policy::Greedy), [0, 220, 20]);
}

#[test]
fn trace_that_cannot_be_replayed_gives_the_reason() {
    let trace = Trace::parse(b"1 0 -1 10 8\n").expect("valid");
    assert_eq!(replay(&trace, &options(Policy::Easy)), Err(ReplayError::NoNodes));
    let nodes = vec![Request::new(4, 1 << 30); 2];
    let error = replay(&trace, &ReplayOptions { policy: Policy::Easy, nodes }).expect_err("too large");
    assert_eq!(error.to_string(), "job 1 can never run");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert_eq!(cause, "asks for 8 CPUs; the largest node, n1, has 4 CPUs and 1G of memory");
    let nodes = vec![Request::new(u32::MAX, 1)];
    let error = replay(&trace, &ReplayOptions { policy: Policy::Easy, nodes }).expect_err("too large");
    assert_eq!(error, ReplayError::NodeTooLarge { cpus: u32::MAX });
}

#[test]
fn empty_trace_has_metrics() {
    let replay = replay(&Trace { processors: Some(4), ..Trace::default() }, &options(Policy::Easy))
        .expect("an empty trace can be replayed");
    assert_eq!(replay.metrics, Metrics::default());
}

#[test]
fn replay_equals_the_reference_simulator_on_one_node() {
    for policy in Policy::ALL {
        for seed in 0..40 {
            let trace = workload(seed, 300);
            let replay = replay(&trace, &options(policy)).expect("everything fits");
            assert_eq!(starts(&replay), reference(&trace.jobs, 64, policy), "{policy}, seed {seed}");
        }
    }
}

#[test]
fn several_nodes_are_never_over_allocated_and_keep_the_order() {
    let nodes = vec![Request::new(64, 1 << 40), Request::new(16, 1 << 40)];
    for seed in 0..10 {
        let trace = workload(seed, 300);
        for policy in Policy::ALL {
            let replay = replay(&trace, &ReplayOptions { policy, nodes: nodes.clone() }).expect("everything fits");
            let placed = || trace.jobs.iter().zip(&replay.placements);
            for (_, at) in placed() {
                let held = placed().filter(|(job, other)| {
                    let runs = other.start_secs..other.start_secs + job.run_secs;
                    other.node == at.node && runs.contains(&at.start_secs)
                });
                let held: u32 = held.map(|(job, _)| job.request.cpus).sum();
                assert!(held <= nodes[at.node].cpus, "{policy}, seed {seed}: {held} CPUs of node {}", at.node);
            }
            assert!(placed().all(|(job, at)| at.start_secs >= job.submit_secs));
            if policy == Policy::Fcfs {
                assert!(starts(&replay).is_sorted(), "seed {seed}: a job overtook another");
            }
        }
    }
}

/// Start times of jobs on one machine, by the simplest method: one list of jobs, with all other values recomputed at
/// every instant.
fn reference(jobs: &[TraceJob], processors: u32, policy: Policy) -> Vec<u64> {
    let mut started: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut now = 0;
    loop {
        start_jobs(jobs, processors, policy, &mut started, now);
        let ends = (0..jobs.len()).filter_map(|i| started[i].map(|start| start + jobs[i].run_secs));
        let next = ends.chain(jobs.iter().map(|job| job.submit_secs)).filter(|at| *at > now).min();
        match next {
            Some(next) => now = next,
            None => return started.into_iter().map(|start| start.expect("every job starts")).collect(),
        }
    }
}

/// Starts the jobs that can start at `now`. A job with no run time frees its processors in the same second, so this
/// repeats until nothing changes.
fn start_jobs(jobs: &[TraceJob], processors: u32, policy: Policy, started: &mut [Option<u64>], now: u64) {
    let mut again = true;
    while again {
        again = false;
        let is_running = |started: &[Option<u64>], i: usize, fresh: &[usize]| {
            started[i].is_some_and(|start| start + jobs[i].run_secs > now) || fresh.contains(&i)
        };
        let mut fresh: Vec<usize> = Vec::new();
        let mut shadow: Option<(u64, u32)> = None;
        let waiting: Vec<usize> =
            (0..jobs.len()).filter(|i| started[*i].is_none() && jobs[*i].submit_secs <= now).collect();
        for i in waiting {
            let job = &jobs[i];
            let limit = job.limit_secs.unwrap_or(job.run_secs);
            let running: Vec<usize> = (0..jobs.len()).filter(|i| is_running(started, *i, &fresh)).collect();
            let used: u32 = running.iter().map(|i| jobs[*i].request.cpus).sum();
            let fits = used + job.request.cpus <= processors;
            match &mut shadow {
                None if fits => {}
                None if policy == Policy::Fcfs => break,
                None if policy == Policy::Greedy => continue,
                None => {
                    shadow = Some(reservation(jobs, processors, started, now, &running, job.request.cpus));
                    continue;
                }
                Some((at, extra)) => {
                    let is_gone_in_time = now + limit <= *at;
                    if !fits || (!is_gone_in_time && job.request.cpus > *extra) {
                        continue;
                    }
                    if !is_gone_in_time {
                        *extra -= job.request.cpus;
                    }
                }
            }
            started[i] = Some(now);
            fresh.push(i);
            again |= job.run_secs == 0;
        }
    }
}

/// The time when enough processors are free according to the limits, and the number of extra processors then.
fn reservation(
    jobs: &[TraceJob],
    processors: u32,
    started: &[Option<u64>],
    now: u64,
    running: &[usize],
    cpus: u32,
) -> (u64, u32) {
    let due = |i: usize| {
        let limit = jobs[i].limit_secs.unwrap_or(jobs[i].run_secs);
        (started[i].expect("the job runs") + limit).max(now)
    };
    let mut moments: Vec<u64> = running.iter().map(|i| due(*i)).collect();
    moments.sort_unstable();
    for at in moments {
        let held: u32 = running.iter().filter(|i| due(**i) > at).map(|i| jobs[*i].request.cpus).sum();
        if held + cpus <= processors {
            return (at, processors - held - cpus);
        }
    }
    panic!("no job is larger than the machine");
}

/// A workload with the features of recorded ones: bursts and quiet periods, mostly powers of two, run times over five
/// orders of magnitude, and limits that are far too long, missing or slightly too short.
fn workload(seed: u64, count: u64) -> Trace {
    let mut random = Random(seed);
    let mut submit_secs = 0;
    let mut job = |number| {
        let lull = random.below(10) == 0;
        submit_secs += if lull { random.below(40_000) } else { random.below(300) };
        let cpus = match random.below(4) {
            0 => 1,
            1 => 1 + random.below(64),
            _ => 1 << random.below(7),
        };
        let magnitude = 1 << random.below(17);
        let run_secs = random.below(magnitude);
        let limit_secs = match random.below(5) {
            0 => None,
            1 => Some(1 + run_secs * 9 / 10),
            _ => Some(1 + run_secs * (1 + random.below(5))),
        };
        let request = Request::new(cpus as u32, 0);
        TraceJob { number, submit_secs, run_secs, request, limit_secs }
    };
    let jobs = (1..=count).map(&mut job).collect();
    Trace { processors: Some(64), jobs, skipped: 0 }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
