//! Properties of a plan, checked against a naive implementation that shares no code with the scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{Counted, JobId, NodeName, Request, Timestamp};
use hostler_sched::{NodeIx, Plan, Policy, Pool, Reservation, Running, Start, Waiting, plan};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_000);

/// A cluster and its queue at one moment.
#[derive(Debug, Clone)]
struct Scene {
    nodes: Vec<Machine>,
    running: Vec<Running>,
    queue: Vec<Waiting>,
}

#[derive(Debug, Clone)]
struct Machine {
    total: Request,
    free: Request,
    is_usable: bool,
    weight: u32,
}

impl Machine {
    fn has_free(&self, request: &Request) -> bool {
        self.is_usable && fits(request, &self.free)
    }

    fn take(&mut self, request: &Request) {
        self.free = amount(minus(counts(&self.free), counts(request)));
    }
}

/// CPUs, memory, GPUs, and two counted resources.
type Counts = [u64; 5];

fn counts(of: &Request) -> Counts {
    [of.cpus.into(), of.memory_bytes, of.gpus.into(), of.counted.count("camera"), of.counted.count("license")]
}

fn amount([cpus, memory_bytes, gpus, camera, license]: Counts) -> Request {
    let counted = [("camera", camera), ("license", license)].into_iter().filter(|(_, count)| *count > 0);
    let counted = counted.fold(Counted::NONE, |mut all, (name, count)| {
        all.insert(name, count).expect("a new name");
        all
    });
    Request { cpus: cpus as u32, memory_bytes, gpus: gpus as u32, counted }
}

fn minus(have: Counts, part: Counts) -> Counts {
    std::array::from_fn(|i| have[i].checked_sub(part[i]).expect("no more than the node has"))
}

fn fits(request: &Request, have: &Request) -> bool {
    counts(request).iter().zip(counts(have)).all(|(wanted, have)| *wanted <= have)
}

impl Scene {
    fn pool(&self) -> Pool {
        let mut pool = Pool::default();
        for (ix, node) in self.nodes.iter().enumerate() {
            let name: NodeName = format!("n{ix}").parse().expect("a name");
            pool.set(NodeIx(ix as u32), &name, &node.total, &node.free, node.is_usable);
            pool.set_weight(NodeIx(ix as u32), node.weight);
        }
        pool
    }

    fn plan(&self, policy: Policy) -> Plan {
        plan(&self.pool(), self.queue.iter().cloned(), || self.running.iter().cloned(), policy, NOW)
    }

    /// The usable nodes that are large enough for the job.
    fn able(&self, job: &Waiting) -> impl Iterator<Item = (usize, &Machine)> {
        let all = self.nodes.iter().enumerate();
        all.filter(|(ix, node)| may_use(job, *ix) && node.is_usable && fits(&job.request, &node.total))
    }

    fn could_run(&self, job: &Waiting) -> bool {
        self.able(job).count() >= job.nodes as usize
    }

    /// What the job takes of a node: an exclusive job takes all.
    fn need(&self, job: &Waiting, ix: usize) -> Request {
        if job.exclusive { self.nodes[ix].total.clone() } else { job.request.clone() }
    }

    /// The nodes that best fit must choose for a task among nodes for which `may` is true.
    fn best_fit(&self, job: &Waiting, may: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let able = self.able(job).filter(|(ix, node)| may(*ix) && node.has_free(&self.need(job, *ix)));
        let mut able: Vec<_> = able.map(|(ix, node)| (class(node), order(&node.free), ix)).collect();
        able.sort_unstable();
        able.truncate(job.nodes as usize);
        (able.len() == job.nodes as usize).then(|| able.into_iter().map(|(_, _, ix)| ix).collect())
    }

    fn start(&mut self, job: &Waiting, nodes: &[usize]) {
        let ends_at = ends_at(job);
        for &node in nodes {
            let request = self.need(job, node);
            self.nodes[node].take(&request);
            self.running.push(Running { node: NodeIx(node as u32), request, ends_at });
        }
    }

    /// When the request first fits on the node, if every task ends at its limit and nothing else starts. Tries every end of a task.
    fn earliest_on(&self, ix: usize, request: &Request) -> Timestamp {
        let mut moments: Vec<Timestamp> = self.running.iter().map(|task| task.ends_at.max(NOW)).collect();
        moments.push(NOW);
        moments.sort_unstable();
        let known = moments.into_iter().filter(|moment| *moment != Timestamp::NEVER);
        known.into_iter().find(|moment| self.fits_on(ix, request, *moment)).unwrap_or(Timestamp::NEVER)
    }

    /// When the job first fits on as many usable nodes as it requests.
    fn earliest_start(&self, job: &Waiting) -> Timestamp {
        let mut all: Vec<Timestamp> = self.able(job).map(|(ix, _)| self.earliest_on(ix, &self.need(job, ix))).collect();
        all.sort_unstable();
        all.get(job.nodes as usize - 1).copied().unwrap_or(Timestamp::NEVER)
    }

    /// Whether both jobs may use a common node. A job without a set may use every node, even ones that do not exist.
    fn share_nodes(&self, one: &Waiting, other: &Waiting) -> bool {
        one.among.is_none() || other.among.is_none() || (0..32).any(|ix| may_use(one, ix) && may_use(other, ix))
    }

    fn fits_on(&self, ix: usize, request: &Request, moment: Timestamp) -> bool {
        let node = &self.nodes[ix];
        let held = self.running.iter().filter(|task| task.node.0 as usize == ix && task.ends_at.max(NOW) > moment);
        let held = held.map(|task| &task.request).chain([request]).map(counts);
        let all = held.fold([0; 5], |sum, held| std::array::from_fn(|i| sum[i] + held[i]));
        node.is_usable && fits(&amount(all), &node.total)
    }
}

fn may_use(job: &Waiting, ix: usize) -> bool {
    job.among.as_ref().is_none_or(|among| among.contains(NodeIx(ix as u32)))
}

/// Nodes of the lowest class are used first.
fn class(node: &Machine) -> (u32, u32, usize) {
    (node.weight, node.total.gpus, node.total.counted.kinds())
}

/// Within a class, nodes with the least free are used first.
fn order(free: &Request) -> [u64; 3] {
    let [cpus, memory, gpus, ..] = counts(free);
    [cpus, memory, gpus]
}

fn ends_at(job: &Waiting) -> Timestamp {
    job.time_limit_ms.map_or(Timestamp::NEVER, |limit| NOW.plus_ms(limit))
}

/// The plan by the rules, computed naively: every task examines every node.
fn expected(scene: &Scene, policy: Policy) -> (Vec<Start>, Vec<Reservation>) {
    let mut scene = scene.clone();
    let mut starts = Vec::new();
    let mut blocked: Vec<Blocked> = Vec::new();
    for job in &scene.queue.clone() {
        let is_behind = blocked.iter().any(|blocked| scene.share_nodes(&blocked.job, job));
        if policy == Policy::Fcfs && is_behind {
            continue;
        }
        let is_behind = is_behind || policy == Policy::Greedy;
        for _ in 0..job.tasks {
            let is_unharmed = |ix| blocked.iter().all(|blocked| blocked.is_unharmed(&scene, ix, job));
            let Some(nodes) = scene.best_fit(job, is_unharmed) else { break };
            scene.start(job, &nodes);
            starts.push(Start { job: job.job, nodes: nodes.iter().map(|ix| NodeIx(*ix as u32)).collect(), count: 1 });
        }
        let started = starts.iter().filter(|start| start.job == job.job).count() as u64;
        if !is_behind && started < job.tasks && scene.could_run(job) {
            blocked.push(Blocked::of(&scene, job));
        }
    }
    let reservation = |Blocked { job, at, nodes }: Blocked| {
        let mut nodes: Vec<NodeIx> = nodes.keys().map(|ix| NodeIx(*ix as u32)).collect();
        nodes.sort_unstable();
        Reservation { job: job.job, nodes, at }
    };
    (starts, blocked.into_iter().map(reservation).collect())
}

/// The first job that must wait, by the rules.
struct Blocked {
    job: Waiting,
    at: Timestamp,
    /// The nodes on which it will start, and when each is free for it.
    nodes: BTreeMap<usize, Timestamp>,
}

impl Blocked {
    /// The nodes on which the job can start first, at an unknown time last. On a tie: the closest, then best fit, at that time.
    fn of(scene: &Scene, job: &Waiting) -> Self {
        let lacks = |want: u64, have: u64| (want.saturating_sub(have) * 1_000_000).div_ceil(want.max(1));
        let ranked = scene.able(job).map(|(ix, node)| {
            let need = scene.need(job, ix);
            let at = scene.earliest_on(ix, &need);
            let is_held = |task: &&Running| task.ends_at.max(NOW) > at || task.ends_at == Timestamp::NEVER;
            let held = scene.running.iter().filter(|task| task.node.0 as usize == ix).filter(is_held);
            let free = held.fold(counts(&node.total), |free, task| minus(free, counts(&task.request)));
            let lacking = counts(&need).into_iter().zip(free).map(|(want, have)| lacks(want, have)).max();
            (at, lacking, class(node), order(&amount(free)), ix)
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable();
        ranked.truncate(job.nodes as usize);
        let at = ranked.last().expect("enough nodes are large enough").0;
        Self { job: job.clone(), at, nodes: ranked.into_iter().map(|(at, _, _, _, ix)| (ix, at)).collect() }
    }

    /// Whether `job` may start on the node: the first job still fits there in time.
    fn is_unharmed(&self, scene: &Scene, ix: usize, job: &Waiting) -> bool {
        let Some(&free_at) = self.nodes.get(&ix) else { return true };
        let (at, ends_at) = match (self.at, free_at, ends_at(job)) {
            // The start of the first job is unknown: a task with a time limit ends before it.
            (Timestamp::NEVER, _, ends_at) if ends_at != Timestamp::NEVER => return true,
            (Timestamp::NEVER, Timestamp::NEVER, _) => return false,
            (Timestamp::NEVER, free_at, ends_at) => (free_at, ends_at),
            (at, _, ends_at) => (at, ends_at),
        };
        let mut with_it = scene.clone();
        with_it.running.push(Running { node: NodeIx(ix as u32), request: scene.need(job, ix), ends_at });
        with_it.fits_on(ix, &scene.need(&self.job, ix), at)
    }
}

/// A plan's starts, split into single tasks.
fn one_by_one(starts: &[Start]) -> Vec<Start> {
    starts.iter().flat_map(|start| (0..start.count).map(|_| Start { count: 1, ..start.clone() })).collect()
}

/// The indices of a start's nodes in the scene.
fn places(start: &Start) -> Vec<usize> {
    start.nodes.iter().map(|ix| ix.0 as usize).collect()
}

fn single(request: Request) -> Waiting {
    Waiting { job: JobId(1), request, nodes: 1, exclusive: false, among: None, tasks: 1, time_limit_ms: None }
}

fn request() -> impl Strategy<Value = Request> {
    let rare = || prop_oneof![3 => Just(0_u64), 1 => 1_u64..3];
    (1_u64..9, 1_u64..9, rare(), rare(), rare())
        .prop_map(|(cpus, memory, gpus, cameras, licenses)| amount([cpus, memory, gpus, cameras, licenses]))
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 4 => (1_u64..30).prop_map(Some)]
}

/// Small clusters in which a job is almost always blocked. Ends often coincide, and some are overdue.
fn scene() -> impl Strategy<Value = Scene> {
    let rare = || prop_oneof![2 => Just(0_u64), 1 => 1_u64..5];
    let node = (1_u64..13, 1_u64..13, [rare(), rare(), rare()], 0_u32..2, prop::bool::weighted(0.85));
    // The nodes that a job may use, as bits of a number.
    let among = prop_oneof![2 => Just(None), 1 => (0_u32..64).prop_map(Some)];
    let task = (
        any::<prop::sample::Index>(),
        request(),
        prop_oneof![1 => Just(None), 5 => (0_u64..9).prop_map(|n| Some(985 + 5 * n))],
    );
    let nodes = prop_oneof![2 => Just(1_u32), 1 => 1_u32..4];
    let exclusive = prop::bool::weighted(0.2);
    let job = (request(), nodes, exclusive, among, prop_oneof![3 => Just(1_u64), 1 => 0_u64..5], limit());
    let parts =
        (prop::collection::vec(node, 1..6), prop::collection::vec(task, 0..14), prop::collection::vec(job, 0..14));
    parts.prop_map(|(nodes, tasks, jobs)| {
        let nodes = nodes.into_iter().map(|(cpus, memory, [gpus, cameras, licenses], weight, is_usable)| {
            let total = amount([cpus, memory, gpus, cameras, licenses]);
            Machine { total: total.clone(), free: total, is_usable, weight }
        });
        let mut scene = Scene { nodes: nodes.collect(), running: Vec::new(), queue: Vec::new() };
        for (ix, request, ends) in tasks {
            let ix = ix.index(scene.nodes.len());
            if fits(&request, &scene.nodes[ix].free) {
                scene.nodes[ix].take(&request);
                let ends_at = ends.map_or(Timestamp::NEVER, Timestamp);
                scene.running.push(Running { node: NodeIx(ix as u32), request, ends_at });
            }
        }
        let waiting = |(i, (request, nodes, exclusive, among, tasks, time_limit_ms))| {
            let set = |bits: u32| Arc::new((0..32).filter(|ix| bits >> ix & 1 == 1).map(NodeIx).collect());
            let among = Option::map(among, set);
            Waiting { job: JobId(i), request, nodes, exclusive, among, tasks, time_limit_ms }
        };
        scene.queue = (1..).zip(jobs).map(waiting).collect();
        scene
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(&Policy::ALL[..])
}

#[test]
fn each_partition_has_its_own_reservation() {
    let amount = |cpus| Request::new(cpus, 4);
    let machine = |free| Machine { total: amount(4), free: amount(free), is_usable: true, weight: 0 };
    let running = |node, cpus| Running { node: NodeIx(node), request: amount(cpus), ends_at: Timestamp(9_000) };
    let partition = |node: u32| Some(Arc::new([NodeIx(node)].into_iter().collect()));
    let (one, other) = (partition(0), partition(1));
    let job = |job, cpus, among: &Option<_>| Waiting {
        job: JobId(job),
        request: Request::new(cpus, 1),
        among: among.clone(),
        ..single(amount(4))
    };
    // Both nodes are half full equally long. In each partition a small job is behind one that needs a whole node.
    let scene = Scene {
        nodes: vec![machine(2), machine(2)],
        running: vec![running(0, 2), running(1, 2)],
        queue: vec![job(1, 4, &one), job(2, 4, &other), job(3, 1, &one), job(4, 1, &other)],
    };
    for policy in [Policy::Easy, Policy::Fcfs] {
        let plan = scene.plan(policy);
        let waiting: Vec<u64> = plan.blocked.iter().map(|blocked| blocked.job.0).collect();
        assert_eq!((waiting, plan.starts.len()), (vec![1, 2], 0), "{policy}");
    }
    // A job that may use any node waits behind all other jobs.
    let scene = Scene { queue: vec![job(1, 4, &one), job(2, 2, &other), job(3, 1, &None)], ..scene };
    let started = |policy| scene.plan(policy).starts.iter().map(|start| start.job.0).collect::<Vec<_>>();
    assert_eq!(started(Policy::Fcfs), [2], "the other partition does not wait for the first");
    assert_eq!(started(Policy::Easy), [2]);
    assert_eq!(started(Policy::Greedy), [2, 3], "nothing is kept for the first job");
}

#[test]
fn endless_task_in_the_way_keeps_no_node_from_tasks_with_a_time_limit() {
    let machine = |free| Machine { total: Request::new(2, 4), free: Request::new(free, 4), is_usable: true, weight: 0 };
    let endless = Running { node: NodeIx(0), request: Request::new(1, 0), ends_at: Timestamp::NEVER };
    let small = |job, time_limit_ms| Waiting { job: JobId(job), time_limit_ms, ..single(Request::new(1, 1)) };
    let wide = Waiting { nodes: 4, ..single(Request::new(2, 1)) };
    let queue = [
        vec![wide],
        (2..9).map(|job| small(job, None)).collect(),
        (9..12).map(|job| small(job, Some(60_000))).collect(),
    ];
    let scene = Scene {
        nodes: vec![machine(1), machine(2), machine(2), machine(2)],
        running: vec![endless],
        queue: queue.concat(),
    };
    let plan = scene.plan(Policy::Easy);
    let started: Vec<u64> = plan.starts.iter().map(|start| start.job.0).collect();
    assert_eq!(started, [9, 10, 11], "endless tasks could delay the wide job for ever");
    assert_eq!(plan.blocked[0].at, Timestamp::NEVER);
    assert_eq!(scene.plan(Policy::Fcfs).starts, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn plan_equals_the_naive_plan(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let (starts, blocked) = expected(&scene, policy);
        prop_assert_eq!(one_by_one(&plan.starts), starts);
        // The pass stops when nothing is free, so it may omit further reservations.
        prop_assert_eq!(plan.blocked.first(), blocked.first());
        prop_assert!(blocked.starts_with(&plan.blocked), "{:?} of {:?}", plan.blocked, blocked);
    }

    #[test]
    fn plan_never_over_allocates_or_starts_too_many_tasks(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let mut after = scene.clone();
        let mut started: BTreeMap<JobId, u64> = BTreeMap::new();
        for start in one_by_one(&plan.starts) {
            let job = &scene.queue[start.job.0 as usize - 1];
            prop_assert!(start.nodes.iter().all(|ix| after.nodes[ix.0 as usize].is_usable));
            prop_assert_eq!(start.nodes.iter().collect::<BTreeSet<_>>().len(), job.nodes as usize, "a start has all requested nodes");
            after.start(job, &places(&start));
            *started.entry(start.job).or_default() += 1;
        }
        for job in &scene.queue {
            prop_assert!(started.get(&job.job).copied().unwrap_or(0) <= job.tasks);
        }
    }

    #[test]
    fn backfilled_tasks_never_delay_a_reservation(scene in scene()) {
        let plan = scene.plan(Policy::Easy);
        for reservation in &plan.blocked {
            let first = scene.queue.iter().find(|job| job.job == reservation.job).expect("reserved jobs are in the queue");
            let mut without = scene.clone();
            let mut with = scene.clone();
            for start in one_by_one(&plan.starts) {
                let job = &scene.queue[start.job.0 as usize - 1];
                with.start(job, &places(&start));
                if start.job <= first.job {
                    without.start(job, &places(&start));
                }
            }
            prop_assert_eq!(without.earliest_start(first), reservation.at);
            prop_assert_eq!(with.earliest_start(first), reservation.at);
            for node in reservation.nodes.iter().map(|ix| ix.0 as usize) {
                let need = scene.need(first, node);
                let free_at = without.earliest_on(node, &need);
                let endless = |scene: &Scene, node| scene.running.iter().filter(|task| task.node == NodeIx(node as u32) && task.ends_at == Timestamp::NEVER).count();
                let in_time = with.earliest_on(node, &need) <= reservation.at;
                prop_assert!(in_time, "every reserved node is free in time");
                prop_assert!(free_at != Timestamp::NEVER || endless(&with, node) == endless(&without, node), "an endless task in the way");
            }
        }
    }

    #[test]
    fn first_blocked_job_fits_on_no_free_nodes(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let mut after = scene.clone();
        for start in one_by_one(&plan.starts) {
            let job = &scene.queue[start.job.0 as usize - 1];
            if plan.blocked.first().is_none_or(|blocked| start.job <= blocked.job) {
                after.start(job, &places(&start));
            } else if policy == Policy::Fcfs {
                let overtaken = |blocked: &&Reservation| blocked.job < start.job;
                let mut overtaken = plan.blocked.iter().filter(overtaken).map(|blocked| &scene.queue[blocked.job.0 as usize - 1]);
                prop_assert!(overtaken.all(|blocked| !scene.share_nodes(blocked, job)), "a job overtakes under FCFS");
            }
        }
        for job in &scene.queue {
            let started = one_by_one(&plan.starts).iter().filter(|start| start.job == job.job).count() as u64;
            if started < job.tasks {
                let idle = after.best_fit(job, |_| true);
                prop_assert!(!plan.blocked.is_empty() || idle.is_none(), "job {} fits on nodes {:?}", job.job, idle);
            }
            if plan.blocked.first().is_some_and(|blocked| blocked.job == job.job) {
                prop_assert_eq!(after.best_fit(job, |_| true), None);
                break;
            }
        }
    }

    #[test]
    fn the_same_scene_gives_the_same_plan(scene in scene(), policy in policy()) {
        let pool = scene.pool();
        let again = |pool: &Pool| plan(pool, scene.queue.iter().cloned(), || scene.running.iter().cloned(), policy, NOW);
        prop_assert_eq!(again(&pool), again(&pool));
        // The history of the pool does not matter.
        let mut detour = pool.clone();
        for (ix, node) in scene.nodes.iter().enumerate().rev() {
            let ix = NodeIx(ix as u32);
            let name: NodeName = format!("n{}", ix.0).parse().expect("a name");
            detour.remove(ix);
            let larger = Request { cpus: node.total.cpus + 100, ..node.total.clone() };
            detour.set(ix, &name, &larger, &larger, true);
            detour.set_weight(ix, node.weight);
            detour.set(ix, &name, &node.total, &node.free, node.is_usable);
        }
        prop_assert_eq!(again(&pool), again(&detour));
        // Neither does the order of running tasks.
        let backwards = plan(&pool, scene.queue.iter().cloned(), || scene.running.iter().rev().cloned(), policy, NOW);
        prop_assert_eq!(again(&pool), backwards);
    }

    #[test]
    fn best_fit_equals_the_naive_choice(scene in scene(), request in request()) {
        let best = scene.pool().best_fit(&request).map(|ix| vec![ix.0 as usize]);
        prop_assert_eq!(best, scene.best_fit(&single(request), |_| true));
    }

    #[test]
    fn allocate_and_release_restore_the_pool(scene in scene(), requests in prop::collection::vec(request(), 1..20)) {
        let mut pool = scene.pool();
        let mut taken = Vec::new();
        for request in &requests {
            if let Some(ix) = pool.best_fit(request) {
                pool.allocate(ix, request);
                taken.push((ix, request.clone()));
            }
        }
        for (ix, request) in taken {
            pool.release(ix, &request);
        }
        for (ix, node) in scene.nodes.iter().enumerate() {
            prop_assert_eq!(pool.free(NodeIx(ix as u32)), Some(node.free.clone()));
        }
        for request in &requests {
            let best = pool.best_fit(request).map(|ix| vec![ix.0 as usize]);
            prop_assert_eq!(best, scene.best_fit(&single(request.clone()), |_| true));
        }
    }
}
