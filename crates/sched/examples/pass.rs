//! Measures scheduling passes over 10,000 nodes and 100,000 waiting jobs, for several mixes.
//!
//! `cargo run --release -p hostler-sched --example pass [-- --brief]`
//!
//! `--brief` prints only the passes in tab-separated form: milliseconds, starts, mix.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the program measures times and prints them"
)]

use std::time::{Duration, Instant};

use hostler_model::{Counted, JobId, NodeName, Request, Timestamp};
use hostler_sched::{NodeIx, Policy, Pool, Running, Waiting, explain, plan};

const NODES: u32 = 10_000;
const JOBS: u64 = 100_000;
const G: u64 = 1 << 30;
const NODE: Request = Request::new(64, 256 * G);
const NOW: Timestamp = Timestamp(1_000_000);
const REPETITIONS: usize = 9;

fn main() {
    if !is_brief() {
        println!("{NODES} nodes, {JOBS} waiting jobs, EASY; the median of {REPETITIONS} passes\n");
        println!("{:<46} {:>9} {:>9} {:>9} {:>12}", "mix", "pass ms", "started", "examined", "µs a start");
    }
    let same = |_: &mut Random| Request::new(4, 16 * G);
    let random = |random: &mut Random| Request::new(1 + random.below(64) as u32, (1 + random.below(256)) * G);
    let large = |_: &mut Random| Request::new(64, 256 * G);
    let one = |_: &mut Random| Request::new(1, G);
    measure("empty cluster, one shape", &empty(), &queue(same));
    measure("empty cluster, random shapes", &empty(), &queue(random));
    measure("empty cluster, whole nodes", &empty(), &queue(large));
    measure("full cluster, one shape", &full(), &queue(same));
    measure("full cluster, random shapes", &full(), &queue(random));
    measure("nearly full (random), one shape", &nearly_full(), &queue(same));
    measure("nearly full (random), random shapes", &nearly_full(), &queue(random));
    measure("nearly full (random), whole nodes", &nearly_full(), &queue(large));
    measure("nearly full (random), single CPUs", &nearly_full(), &queue(one));
    let licensed = |random: &mut Random| Request { counted: licenses(random.below(2)), ..one(random) };
    measure("half ask for licenses that few nodes have", &with_licenses(), &queue(licensed));
    measure("CPUs free everywhere, memory nowhere", &without_memory(), &queue(random));
    measure("nearly full (random), one job", &nearly_full(), &queue(random)[..1]);
    measure("empty cluster, one job", &empty(), &queue(random)[..1]);
    measure("empty cluster, two jobs", &empty(), &queue(random)[..2]);
    if !is_brief() {
        single_calls();
    }
}

fn is_brief() -> bool {
    std::env::args().any(|argument| argument == "--brief")
}

fn measure(mix: &str, cluster: &Cluster, queue: &[Waiting]) {
    let mut times: Vec<Duration> = Vec::new();
    let (mut started, mut examined) = (0, 0);
    for _ in 0..REPETITIONS {
        let begin = Instant::now();
        let running = || cluster.running.iter().cloned();
        let plan = plan(&cluster.pool, queue.iter().cloned(), running, Policy::Easy, NOW);
        times.push(begin.elapsed());
        started = plan.starts.iter().map(|start| u64::from(start.count)).sum();
        examined = plan.examined;
    }
    let median = median(&mut times);
    if is_brief() {
        return println!("{}\t{started}\t{mix}", median.as_secs_f64() * 1e3);
    }
    let each = match started {
        0 => "-".to_owned(),
        _ => format!("{:.2}", median.as_secs_f64() * 1e6 / started as f64),
    };
    println!("{mix:<46} {:>9.2} {started:>9} {examined:>9} {each:>12}", median.as_secs_f64() * 1e3);
}

/// Measures calls that happen between passes.
fn single_calls() {
    let mut cluster = nearly_full();
    let mut random = Random(7);
    let jobs = queue(|random| Request::new(1 + random.below(8) as u32, (1 + random.below(32)) * G));
    println!();
    let per_call = |begin: Instant, calls: usize| begin.elapsed().as_secs_f64() * 1e9 / calls as f64;
    let begin = Instant::now();
    let found = jobs.iter().filter(|job| cluster.pool.best_fit(&job.request).is_some()).count();
    println!("best_fit            {:>7.0} ns a call ({found} found)", per_call(begin, jobs.len()));
    let begin = Instant::now();
    let refused = jobs.iter().filter(|job| cluster.pool.admit(job).is_err()).count();
    println!("admit               {:>7.0} ns a call ({refused} refused)", per_call(begin, jobs.len()));
    let one = Request::new(1, 1);
    let nodes: Vec<NodeIx> = (0..100_000).map(|_| NodeIx(random.below(u64::from(NODES)) as u32)).collect();
    let begin = Instant::now();
    for ix in &nodes {
        if cluster.pool.free(*ix).is_some_and(|free| free.cpus > 0 && free.memory_bytes > 0) {
            cluster.pool.allocate(*ix, &one);
            cluster.pool.release(*ix, &one);
        }
    }
    println!("allocate or release {:>7.0} ns a call", per_call(begin, 2 * nodes.len()));
    let job = Waiting {
        job: JobId(1),
        request: NODE,
        nodes: 1,
        exclusive: false,
        among: None,
        tasks: 1,
        time_limit_ms: None,
    };
    let begin = Instant::now();
    for _ in 0..100 {
        std::hint::black_box(explain(&cluster.pool, &job, 0, &[], Policy::Easy));
    }
    println!("explain             {:>7.0} ns a call that names the closest nodes", per_call(begin, 100));
}

struct Cluster {
    pool: Pool,
    running: Vec<Running>,
}

/// An idle cluster; one node in a hundred has four licenses.
fn with_licenses() -> Cluster {
    let mut cluster = empty();
    for ix in (0..NODES).step_by(100) {
        let name: NodeName = format!("n{ix}").parse().expect("a node name");
        let total = Request { counted: licenses(4), ..NODE };
        cluster.pool.set(NodeIx(ix), &name, &total, &total, true);
    }
    cluster
}

/// This many licenses; nothing for zero.
fn licenses(count: u64) -> Counted {
    if count == 0 { Counted::NONE } else { format!("license={count}").parse().expect("a count") }
}

/// An idle cluster.
fn empty() -> Cluster {
    cluster(|_| Vec::new())
}

/// Sixteen tasks of four CPUs on every node.
fn full() -> Cluster {
    cluster(|_| vec![Request::new(4, 16 * G); 16])
}

/// Up to ten tasks per node.
fn nearly_full() -> Cluster {
    let random = |random: &mut Random| Request::new(1 + random.below(12) as u32, (1 + random.below(40)) * G);
    cluster(|seed| (0..10).map(|_| random(seed)).collect())
}

/// One task per node that uses all memory.
fn without_memory() -> Cluster {
    cluster(|random| vec![Request::new(1 + random.below(63) as u32, 256 * G)])
}

fn cluster(tasks: impl Fn(&mut Random) -> Vec<Request>) -> Cluster {
    let mut random = Random(1);
    let mut cluster = Cluster { pool: Pool::default(), running: Vec::new() };
    for ix in (0..NODES).map(NodeIx) {
        let name: NodeName = format!("n{}", ix.0).parse().expect("a node name");
        cluster.pool.set(ix, &name, &NODE, &NODE, true);
        for request in tasks(&mut random) {
            let free = cluster.pool.free(ix).expect("it was set above");
            if request.cpus <= free.cpus && request.memory_bytes <= free.memory_bytes {
                cluster.pool.allocate(ix, &request);
                cluster.running.push(Running { node: ix, request, ends_at: NOW.plus_ms(1 + random.below(10_000_000)) });
            }
        }
    }
    cluster
}

fn queue(shape: impl Fn(&mut Random) -> Request) -> Vec<Waiting> {
    let mut random = Random(2);
    let job = |id| {
        let request = shape(&mut random);
        let time_limit_ms = Some(1 + random.below(10_000_000));
        Waiting { job: JobId(id), request, nodes: 1, exclusive: false, among: None, tasks: 1, time_limit_ms }
    };
    (1..=JOBS).map(job).collect()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
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
