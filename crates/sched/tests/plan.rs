//! Properties of a plan, judged by a checker that shares no code with the scheduler: plain lists, one task at a time.

use std::collections::BTreeMap;

use hostler_model::{JobId, NodeName, Request, Timestamp};
use hostler_sched::{NodeIx, Plan, Policy, Pool, Reservation, Running, Start, Waiting, plan};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_000);

/// A cluster at one moment, with its queue.
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
}

impl Machine {
    fn has_free(&self, request: &Request) -> bool {
        self.is_usable && fits(request, &self.free)
    }

    fn take(&mut self, request: &Request) {
        self.free.cpus = self.free.cpus.checked_sub(request.cpus).expect("over-allocated CPUs");
        self.free.memory_bytes =
            self.free.memory_bytes.checked_sub(request.memory_bytes).expect("over-allocated memory");
    }
}

fn fits(request: &Request, have: &Request) -> bool {
    request.cpus <= have.cpus && request.memory_bytes <= have.memory_bytes
}

impl Scene {
    fn pool(&self) -> Pool {
        let mut pool = Pool::default();
        for (ix, node) in self.nodes.iter().enumerate() {
            let name: NodeName = format!("n{ix}").parse().expect("a name");
            pool.set(NodeIx(ix as u32), &name, node.total, node.free, node.is_usable);
        }
        pool
    }

    fn plan(&self, policy: Policy) -> Plan {
        plan(&self.pool(), self.queue.iter().copied(), || self.running.iter().copied(), policy, NOW)
    }

    fn could_run(&self, request: &Request) -> bool {
        self.nodes.iter().any(|node| node.is_usable && fits(request, &node.total))
    }

    /// The node that best fit must choose among those that `may` be used.
    fn best_fit(&self, request: &Request, may: impl Fn(usize) -> bool) -> Option<usize> {
        let able = self.nodes.iter().enumerate().filter(|(ix, node)| may(*ix) && node.has_free(request));
        able.min_by_key(|(ix, node)| (node.free.cpus, node.free.memory_bytes, *ix)).map(|(ix, _)| ix)
    }

    /// Carries one task out.
    fn start(&mut self, job: &Waiting, node: usize) {
        self.nodes[node].take(&job.request);
        let ends_at = ends_at(job);
        self.running.push(Running { node: NodeIx(node as u32), request: job.request, ends_at });
    }

    /// The first moment at which the request fits on some usable node, if everything ends when its limit says and nothing else
    /// starts. Found by trying every moment at which something ends.
    fn earliest_start(&self, request: &Request) -> Timestamp {
        let mut moments: Vec<Timestamp> = self.running.iter().map(|task| task.ends_at.max(NOW)).collect();
        moments.push(NOW);
        moments.sort_unstable();
        let fits_at =
            |moment: &Timestamp| self.nodes.iter().enumerate().any(|(ix, _)| self.fits_on(ix, request, *moment));
        moments.into_iter().filter(|moment| *moment != Timestamp::NEVER).find(fits_at).unwrap_or(Timestamp::NEVER)
    }

    fn fits_on(&self, ix: usize, request: &Request, moment: Timestamp) -> bool {
        let node = &self.nodes[ix];
        let held = self.running.iter().filter(|task| task.node.0 as usize == ix && task.ends_at.max(NOW) > moment);
        let (cpus, memory) =
            held.fold((0, 0), |(cpus, memory), task| (cpus + task.request.cpus, memory + task.request.memory_bytes));
        node.is_usable
            && cpus + request.cpus <= node.total.cpus
            && memory + request.memory_bytes <= node.total.memory_bytes
    }
}

fn ends_at(job: &Waiting) -> Timestamp {
    job.time_limit_ms.map_or(Timestamp::NEVER, |limit| NOW.plus_ms(limit))
}

/// The plan by the rules, in the plainest way: every task looks at every node.
fn expected(scene: &Scene, policy: Policy) -> (Vec<Start>, Option<Reservation>) {
    let mut scene = scene.clone();
    let mut starts = Vec::new();
    let mut blocked: Option<(Reservation, Request)> = None;
    for job in &scene.queue.clone() {
        for _ in 0..job.tasks {
            let node = match &blocked {
                None => scene.best_fit(&job.request, |_| true),
                Some((reservation, request)) => scene.best_fit(&job.request, |ix| {
                    NodeIx(ix as u32) != reservation.node || is_harmless(&scene, job, reservation, request)
                }),
            };
            let Some(node) = node else { break };
            scene.start(job, node);
            starts.push(Start { job: job.job, node: NodeIx(node as u32), count: 1 });
        }
        let started = starts.iter().filter(|start| start.job == job.job).count() as u64;
        if blocked.is_none() && started < job.tasks && scene.could_run(&job.request) {
            let at = scene.earliest_start(&job.request);
            let node = reserved_node(&scene, &job.request, at);
            blocked = Some((Reservation { job: job.job, node: NodeIx(node as u32), at }, job.request));
            if policy == Policy::Fcfs {
                break;
            }
        }
    }
    (starts, blocked.map(|(reservation, _)| reservation))
}

/// Whether the job may start on the reserved node: the first job fits there in time with it running.
fn is_harmless(scene: &Scene, job: &Waiting, reservation: &Reservation, request: &Request) -> bool {
    if reservation.at == Timestamp::NEVER {
        return false;
    }
    let node = reservation.node.0 as usize;
    let mut with_it = scene.clone();
    with_it.running.push(Running { node: reservation.node, request: job.request, ends_at: ends_at(job) });
    with_it.fits_on(node, request, reservation.at)
}

/// Among the nodes on which the job can start first, the one that fits best then; without a known time, the closest one now.
fn reserved_node(scene: &Scene, request: &Request, at: Timestamp) -> usize {
    let able = scene.nodes.iter().enumerate().filter(|(_, node)| node.is_usable && fits(request, &node.total));
    if at == Timestamp::NEVER {
        let lacks = |want: u64, have: u64| (want.saturating_sub(have) * 1_000_000).div_ceil(want.max(1));
        let distance = |node: &Machine| {
            let cpus = lacks(u64::from(request.cpus), u64::from(node.free.cpus));
            cpus.max(lacks(request.memory_bytes, node.free.memory_bytes))
        };
        return able
            .min_by_key(|(ix, node)| (distance(node), node.free.cpus, node.free.memory_bytes, *ix))
            .map(|(ix, _)| ix)
            .expect("a node is large enough");
    }
    let free_then = |ix: usize, node: &Machine| {
        let held = scene.running.iter().filter(|task| task.node.0 as usize == ix && task.ends_at.max(NOW) > at);
        held.fold((node.total.cpus, node.total.memory_bytes), |(cpus, memory), task| {
            (cpus - task.request.cpus, memory - task.request.memory_bytes)
        })
    };
    able.filter(|(ix, _)| scene.fits_on(*ix, request, at))
        .min_by_key(|(ix, node)| (free_then(*ix, node), *ix))
        .map(|(ix, _)| ix)
        .expect("some node fits at the earliest time")
}

/// A plan's starts, one task each.
fn one_by_one(starts: &[Start]) -> Vec<Start> {
    starts.iter().flat_map(|start| (0..start.count).map(|_| Start { count: 1, ..*start })).collect()
}

fn request() -> impl Strategy<Value = Request> {
    (1_u32..9, 1_u64..9).prop_map(|(cpus, memory_bytes)| Request { cpus, memory_bytes })
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 4 => (1_u64..30).prop_map(Some)]
}

/// Small clusters in which something almost always blocks. Ends often coincide, and some are overdue.
fn scene() -> impl Strategy<Value = Scene> {
    let node = (1_u32..13, 1_u64..13, prop::bool::weighted(0.85));
    let task = (
        any::<prop::sample::Index>(),
        request(),
        prop_oneof![1 => Just(None), 5 => (0_u64..9).prop_map(|n| Some(985 + 5 * n))],
    );
    let job = (request(), prop_oneof![3 => Just(1_u64), 1 => 0_u64..5], limit());
    let parts =
        (prop::collection::vec(node, 1..6), prop::collection::vec(task, 0..14), prop::collection::vec(job, 0..14));
    parts.prop_map(|(nodes, tasks, jobs)| {
        let nodes = nodes.into_iter().map(|(cpus, memory_bytes, is_usable)| {
            let total = Request { cpus, memory_bytes };
            Machine { total, free: total, is_usable }
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
        let waiting = |(i, (request, tasks, time_limit_ms))| Waiting { job: JobId(i), request, tasks, time_limit_ms };
        scene.queue = (1..).zip(jobs).map(waiting).collect();
        scene
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Fcfs), Just(Policy::Easy)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn follows_the_rules_task_by_task(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let (starts, blocked) = expected(&scene, policy);
        prop_assert_eq!(one_by_one(&plan.starts), starts);
        prop_assert_eq!(plan.blocked, blocked);
    }

    #[test]
    fn never_over_allocates_and_never_starts_too_many(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let mut after = scene.clone();
        let mut started: BTreeMap<JobId, u64> = BTreeMap::new();
        for start in one_by_one(&plan.starts) {
            let job = &scene.queue[start.job.0 as usize - 1];
            prop_assert!(after.nodes[start.node.0 as usize].is_usable);
            after.start(job, start.node.0 as usize);
            *started.entry(start.job).or_default() += 1;
        }
        for job in &scene.queue {
            prop_assert!(started.get(&job.job).copied().unwrap_or(0) <= job.tasks);
        }
    }

    #[test]
    fn what_starts_behind_the_first_waiting_job_never_delays_it(scene in scene()) {
        let plan = scene.plan(Policy::Easy);
        let Some(reservation) = plan.blocked else { return Ok(()) };
        let first = scene.queue.iter().find(|job| job.job == reservation.job).expect("in the queue");
        let mut without = scene.clone();
        let mut with = scene.clone();
        for start in one_by_one(&plan.starts) {
            let job = &scene.queue[start.job.0 as usize - 1];
            with.start(job, start.node.0 as usize);
            if start.job <= first.job {
                without.start(job, start.node.0 as usize);
            }
        }
        prop_assert_eq!(without.earliest_start(&first.request), reservation.at);
        prop_assert_eq!(with.earliest_start(&first.request), reservation.at);
        if reservation.at == Timestamp::NEVER {
            let node = reservation.node.0 as usize;
            prop_assert_eq!(with.nodes[node].free, without.nodes[node].free, "the closest node is kept");
        }
    }

    #[test]
    fn the_first_waiting_job_could_not_have_started(scene in scene(), policy in policy()) {
        let plan = scene.plan(policy);
        let mut after = scene.clone();
        for start in one_by_one(&plan.starts) {
            let job = &scene.queue[start.job.0 as usize - 1];
            if plan.blocked.as_ref().is_none_or(|blocked| start.job <= blocked.job) {
                after.start(job, start.node.0 as usize);
            } else {
                prop_assert_eq!(policy, Policy::Easy, "nothing overtakes under FCFS");
            }
        }
        for job in &scene.queue {
            let started = one_by_one(&plan.starts).iter().filter(|start| start.job == job.job).count() as u64;
            if started < job.tasks {
                let idle = after.best_fit(&job.request, |_| true);
                prop_assert!(plan.blocked.is_some() || idle.is_none(), "job {} fits on node {:?}", job.job, idle);
            }
            if plan.blocked.as_ref().is_some_and(|blocked| blocked.job == job.job) {
                prop_assert_eq!(after.best_fit(&job.request, |_| true), None);
                break;
            }
        }
    }

    #[test]
    fn the_same_scene_gives_the_same_plan(scene in scene(), policy in policy()) {
        let pool = scene.pool();
        let again = |pool: &Pool| plan(pool, scene.queue.iter().copied(), || scene.running.iter().copied(), policy, NOW);
        prop_assert_eq!(again(&pool), again(&pool));
        // How the pool came to be as it is makes no difference.
        let mut detour = pool.clone();
        for (ix, node) in scene.nodes.iter().enumerate().rev() {
            let ix = NodeIx(ix as u32);
            let name: NodeName = format!("n{}", ix.0).parse().expect("a name");
            detour.remove(ix);
            let larger = Request { cpus: node.total.cpus + 100, ..node.total };
            detour.set(ix, &name, larger, larger, true);
            detour.set(ix, &name, node.total, node.free, node.is_usable);
        }
        prop_assert_eq!(again(&pool), again(&detour));
        // Neither does the order in which running tasks are listed.
        let backwards = plan(&pool, scene.queue.iter().copied(), || scene.running.iter().rev().copied(), policy, NOW);
        prop_assert_eq!(again(&pool), backwards);
    }

    #[test]
    fn best_fit_is_the_least_that_satisfies(scene in scene(), request in request()) {
        let best = scene.pool().best_fit(&request).map(|ix| ix.0 as usize);
        prop_assert_eq!(best, scene.best_fit(&request, |_| true));
    }

    #[test]
    fn what_is_taken_and_given_back_leaves_no_trace(scene in scene(), requests in prop::collection::vec(request(), 1..20)) {
        let mut pool = scene.pool();
        let mut taken = Vec::new();
        for request in &requests {
            if let Some(ix) = pool.best_fit(request) {
                pool.allocate(ix, request);
                taken.push((ix, *request));
            }
        }
        for (ix, request) in taken {
            pool.release(ix, &request);
        }
        for (ix, node) in scene.nodes.iter().enumerate() {
            prop_assert_eq!(pool.free(NodeIx(ix as u32)), Some(node.free));
        }
        for request in &requests {
            prop_assert_eq!(pool.best_fit(request).map(|ix| ix.0 as usize), scene.best_fit(request, |_| true));
        }
    }
}
