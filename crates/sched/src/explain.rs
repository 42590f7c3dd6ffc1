//! Explains why a job waits.

use hostler_model::{Reason, Request, Shortfall};

use crate::amount::{distance, without};
use crate::pool::Node;
use crate::{NodeIx, Policy, Pool, Reservation, Waiting};

/// The maximum number of nodes that a reason names.
const NAMED: usize = 3;

/// Returns why a queued job waits. `ahead` is the number of jobs before this job in the queue of its partition.
/// `blocked` has the reservations of the last plan, which was made under `policy`.
///
/// Examines every node if the reason names nodes; is cheap otherwise.
#[must_use]
pub fn explain(pool: &Pool, waiting: &Waiting, ahead: u64, blocked: &[Reservation], policy: Policy) -> Reason {
    let request = &waiting.request;
    let nodes = || pool.nodes().filter(|(ix, _)| waiting.may_use(*ix));
    if !pool.could_ever_run(waiting) {
        // The job was accepted before there were nodes, or the large nodes returned smaller. It waits for another node.
        return lacking(nodes(), waiting, |node| &node.total);
    }
    if !pool.could_run(waiting) {
        let able = nodes().map(|(_, node)| node).filter(|node| !node.is_usable && node.total.covers(request));
        let wanted = waiting.nodes;
        return Reason::NodesDown { wanted, nodes: able.take(NAMED).map(|node| node.name.clone()).collect() };
    }
    let is_blocked = blocked.iter().any(|blocked| blocked.job == waiting.job);
    if !pool.fits_now(waiting) && (ahead == 0 || is_blocked || policy == Policy::Greedy) {
        let able = nodes().filter(|(_, node)| node.is_usable && node.total.covers(request));
        return match waiting.exclusive {
            true => in_use(able, waiting.nodes, blocked.iter().find(|blocked| blocked.job == waiting.job)),
            false => lacking(able, waiting, |node| &node.free),
        };
    }
    if !pool.fits_now(waiting) {
        return Reason::Priority { ahead };
    }
    let in_the_way = blocked.iter().find(|blocked| blocked.nodes.iter().any(|node| waiting.may_use(*node)));
    match (in_the_way, policy) {
        (Some(_), Policy::Fcfs) if !is_blocked && ahead > 0 => Reason::Priority { ahead },
        (Some(blocked), _) if !is_blocked => Reason::Reservation { job: blocked.job },
        // Resources were freed, or the job was submitted, after the last pass.
        _ => Reason::Scheduling,
    }
}

/// Returns a reason that says what the nodes lack: too few nodes have enough, or the single node that the job needs is
/// missing resources. `have` returns the resources that count for a node, such as the free ones.
fn lacking<'a>(
    nodes: impl Iterator<Item = (NodeIx, &'a Node)>,
    waiting: &Waiting,
    have: impl Fn(&Node) -> &Request,
) -> Reason {
    if waiting.nodes == 1 {
        return Reason::Resources { closest: closest(nodes, &waiting.request, have) };
    }
    let (enough, short): (Vec<_>, Vec<_>) = nodes.partition(|(_, node)| have(node).covers(&waiting.request));
    let closest = closest(short.into_iter(), &waiting.request, have);
    Reason::TooFewNodes { wanted: waiting.nodes, enough: enough.len() as u64, closest }
}

/// Returns a reason that names the job's reserved nodes, then those of which the least is in use.
fn in_use<'a>(nodes: impl Iterator<Item = (NodeIx, &'a Node)>, wanted: u32, reserved: Option<&Reservation>) -> Reason {
    let busy = nodes.filter(|(_, node)| !node.is_idle());
    let is_other = |ix: &NodeIx| !reserved.is_some_and(|reserved| reserved.nodes.contains(ix));
    let rank = |(ix, node): (NodeIx, &'a Node)| (is_other(&ix), distance(&node.free, &node.total), ix, &node.name);
    let mut ranked: Vec<_> = busy.map(rank).collect();
    ranked.sort_unstable();
    let closest = ranked.into_iter().take(NAMED).map(|(.., name)| name.clone()).collect();
    Reason::NotIdle { wanted, closest }
}

/// Returns what each node lacks for a request, the closest nodes first. `have` returns the resources that count for a
/// node, such as the free ones.
pub(crate) fn closest<'a>(
    nodes: impl Iterator<Item = (NodeIx, &'a Node)>,
    request: &Request,
    have: impl Fn(&Node) -> &Request,
) -> Vec<Shortfall> {
    let mut ranked: Vec<(u32, NodeIx, &Node)> =
        nodes.map(|(ix, node)| (distance(have(node), request), ix, node)).collect();
    let rank = |(distance, ix, _): &(u32, NodeIx, &Node)| (*distance, *ix);
    if ranked.len() > NAMED {
        ranked.select_nth_unstable_by_key(NAMED, rank);
        ranked.truncate(NAMED);
    }
    ranked.sort_unstable_by_key(rank);
    let shortfall =
        |(_, _, node): (u32, NodeIx, &Node)| Shortfall { node: node.name.clone(), lacks: without(request, have(node)) };
    ranked.into_iter().map(shortfall).collect()
}

#[cfg(test)]
mod tests {
    use hostler_model::{JobId, Timestamp};

    use super::*;

    /// Four nodes with 8 CPUs, of which 0, 2, 4 and 6 are free, and an unusable one with 64.
    fn pool() -> Pool {
        let mut pool = Pool::default();
        for ix in 0..4 {
            let (total, free) = (amount(8), amount(2 * ix));
            pool.set(NodeIx(ix), &format!("n{ix}").parse().expect("a name"), &total, &free, true);
        }
        pool.set(NodeIx(4), &"big".parse().expect("a name"), &amount(64), &amount(64), false);
        pool
    }

    fn amount(cpus: u32) -> Request {
        Request::new(cpus, 1 << 30)
    }

    fn why(cpus: u32, ahead: u64, blocked: Option<u64>) -> String {
        why_under(Policy::Easy, cpus, ahead, blocked)
    }

    fn why_under(policy: Policy, cpus: u32, ahead: u64, blocked: Option<u64>) -> String {
        let waiting = Waiting {
            job: JobId(9),
            request: amount(cpus),
            nodes: 1,
            exclusive: false,
            among: None,
            tasks: 1,
            time_limit_ms: None,
        };
        let blocked = blocked.map(|job| Reservation { job: JobId(job), nodes: vec![NodeIx(0)], at: Timestamp::NEVER });
        explain(&pool(), &waiting, ahead, blocked.as_slice(), policy).to_string()
    }

    #[test]
    fn every_wait_has_a_reason() {
        assert_eq!(why(8, 0, Some(9)), "no node has enough free now; closest is n3, which lacks 2 CPUs");
        assert_eq!(why(8, 0, None), "no node has enough free now; closest is n3, which lacks 2 CPUs");
        assert_eq!(why(8, 5, Some(3)), "5 jobs are ahead in the queue");
        assert_eq!(why(2, 1, Some(3)), "starting this job now could delay job 3, which is first in the queue");
        assert_eq!(why(2, 1, None), "about to be scheduled");
        assert_eq!(why(64, 0, None), "every node that could run the job is down: big");
        assert_eq!(why(65, 0, None), "no node has enough free now; closest is big, which lacks 1 CPU");
        assert_eq!(why(65, 7, Some(3)), "no node has enough free now; closest is big, which lacks 1 CPU");
        assert_eq!(why_under(Policy::Fcfs, 2, 1, Some(3)), "one job is ahead in the queue");
        assert_eq!(why_under(Policy::Fcfs, 8, 0, Some(9)), why(8, 0, Some(9)));
        assert_eq!(why_under(Policy::Greedy, 8, 5, None), why(8, 0, None), "jobs ahead do not matter");
    }

    #[test]
    fn reason_for_several_nodes_names_how_many_have_enough() {
        let why = |nodes, cpus| {
            let waiting = Waiting {
                job: JobId(9),
                request: amount(cpus),
                nodes,
                exclusive: false,
                among: None,
                tasks: 1,
                time_limit_ms: None,
            };
            explain(&pool(), &waiting, 0, &[], Policy::Easy).to_string()
        };
        let text =
            "the job needs 3 nodes at once and one has enough free now; closest of the others is n2, which lacks 1 CPU";
        assert_eq!(why(3, 5), text);
        let text = "the job needs 2 nodes at once and none has enough free now; closest is n3, which lacks 1 CPU";
        assert_eq!(why(2, 7), text);
        assert_eq!(why(2, 3), "about to be scheduled");
        assert_eq!(why(5, 8), "the job needs 5 nodes at once, and too many that could run it are down: big");
    }

    #[test]
    fn exclusive_job_waits_for_the_nodes_of_which_the_least_is_in_use() {
        let why = |nodes, cpus| {
            let (job, request) = (JobId(9), amount(cpus));
            let waiting = Waiting { job, request, nodes, exclusive: true, among: None, tasks: 1, time_limit_ms: None };
            explain(&pool(), &waiting, 0, &[], Policy::Easy).to_string()
        };
        assert_eq!(why(1, 2), "the job needs an idle node, and none that it may use is idle; next is n3");
        assert_eq!(why(2, 2), "the job needs 2 idle nodes at once, and too few that it may use are idle; next is n3");
        assert_eq!(why(1, 9), "every node that could run the job is down: big");
    }

    #[test]
    fn reason_names_the_three_closest_nodes() {
        let waiting = Waiting {
            job: JobId(9),
            request: amount(7),
            nodes: 1,
            exclusive: false,
            among: None,
            tasks: 1,
            time_limit_ms: None,
        };
        let Reason::Resources { closest } = explain(&pool(), &waiting, 0, &[], Policy::Easy) else {
            panic!("the job does not wait for resources")
        };
        let names: Vec<&str> = closest.iter().map(|lack| lack.node.as_str()).collect();
        assert_eq!(names, ["n3", "n2", "n1"]);
    }
}
