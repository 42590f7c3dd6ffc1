//! A call of a user of this machine: where it runs, and its way there.
//!
//! The best node is tried first, then the next; what cannot be run anywhere else runs here, if it may. A node that has said no is told apart from
//! one that has not answered after it was told to start: that one may have started, so nobody else is asked.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_calls::fresh::Paths;
use hostler_calls::{
    Ask, Caller, Choice, Command, Cost, DirectoryId, Frame, How, Line, Placed, Proof, Refusal, RefusalKind, Start,
    Started, Tried,
};
use hostler_gossip::{Candidate, Costs, Estimate, Explanation, Needs, Unfit};
use hostler_model::NodeName;
use hostler_snapshot::News;
use tokio::time::sleep;

use super::peer::Peer;
use super::trunks::NoWay;
use super::written::{Disk, newest};
use super::{Calling, here, lock, micros, run, ship, trees, unsuitable};
use crate::account::act_as;
use crate::link::random_bits;

/// How long a node may take to say whether it has started a command: an account may have to be asked for, a disk may have to wake up.
const START_BOUND: Duration = Duration::from_secs(60);

/// The most that the way to another node may be said to take, in microseconds.
const WAY_BOUND_US: u64 = 10_000_000;

/// How long a node that was named may take to be heard of, and between two looks.
const HEARING_BOUND: Duration = Duration::from_secs(5);
const HEARING_LOOK: Duration = Duration::from_millis(100);

/// How long a caller may take to show its directory.
const PROOF_BOUND: Duration = Duration::from_secs(60);

/// What directories of this machine are on other nodes.
#[derive(Default)]
pub(super) struct Directories(Mutex<HashMap<(NodeName, u64, u64), There>>);

/// What a directory of this machine is on another node.
#[derive(Clone)]
struct There {
    id: DirectoryId,
    /// Whether that node has it over the network.
    is_shared: bool,
}

impl Directories {
    fn known(&self, node: &NodeName, here: &DirectoryId) -> Option<There> {
        lock(&self.0).get(&(node.clone(), here.device, here.inode)).cloned()
    }

    fn learn(&self, node: &NodeName, here: &DirectoryId, there: There) {
        const MOST: usize = 10_000;
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((node.clone(), here.device, here.inode), there);
    }
}

/// Why a command has not run on a node.
enum Failed {
    /// It was not started there, so another node may be tried.
    Not(Box<Refusal>),
    /// Nobody knows whether it was.
    Unknown(String),
    /// Its caller is gone.
    Forsaken,
}

/// Who asks.
pub(super) struct Asker {
    pub(super) caller: Caller,
    /// Their program.
    pub(super) peer: Peer,
    /// What it reads and writes, if it has handed that over.
    pub(super) streams: Option<[OwnedFd; 3]>,
}

/// Answers a question of a user, and follows the command to its end when it runs elsewhere.
pub(super) async fn answer(calling: &Arc<Calling>, line: &mut Line, mut ask: Ask, asker: Asker) {
    let Caller { name, uid } = &asker.caller;
    if let Err(error) = calling.node.accounts.let_in(name, Some(*uid)) {
        let message = format!("node {} does not take it: {error}", calling.node.name);
        let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(126, message) };
        return drop(line.send(Frame::Refused(Box::new(refusal))).await);
    }
    let mut kind = Costs::kind(ask.command.argv().iter().map(OsString::as_os_str));
    if ask.tree.is_some() {
        // The way is another one for a tree.
        kind.push_str(" with its tree");
    }
    let cost = lock(&calling.costs).estimate(&kind);
    let needs = Needs { way: cost.map_or(0, |cost| cost.way()), ..needs_of(&ask) };
    let cost = cost.map(|Estimate { run_us, way_us }| Cost { kind: kind.clone(), run_us, way_us });
    if ask.explain {
        let choice = Choice { cost, counts: *lock(&calling.counts), ..explain(calling, &needs) };
        return drop(line.send(Frame::Explained(Box::new(choice))).await);
    }
    let placed = |node: &NodeName, how, tried: &[Tried]| Placed {
        node: node.clone(),
        how,
        cost: cost.clone(),
        tried: tried.to_vec(),
        advisory: Vec::new(),
    };
    let mut tried = Vec::new();
    let mut last = None;
    for candidate in candidates(calling, &needs).await {
        let chosen = placed(&candidate.name, Some(how(&candidate)), &tried);
        if candidate.is_local {
            return stay(calling, line, &ask, chosen, &kind, asker).await;
        }
        match elsewhere(calling, line, &mut ask, &asker, &candidate, chosen, &kind).await {
            Ok(()) | Err(Failed::Forsaken) => return,
            Err(Failed::Not(refusal)) => {
                tried.push(Tried { node: candidate.name, why: refusal.message.clone() });
                let is_hopeless = refusal.kind == RefusalKind::Hopeless;
                last = Some(refusal);
                if is_hopeless {
                    break;
                }
            }
            Err(Failed::Unknown(why)) => {
                let message = format!("node {} was told to start it, and {why}: it may have started", candidate.name);
                let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) };
                return drop(line.send(Frame::Refused(Box::new(refusal))).await);
            }
        }
    }
    let own = &calling.node.name;
    let may_run_here =
        !ask.not.contains(own) && ask.only.is_empty() && ask.constraint.is_none() && ask.command.memory_bytes.is_none();
    if may_run_here && last.as_ref().is_none_or(|refusal| refusal.kind != RefusalKind::Hopeless) {
        return stay(calling, line, &ask, placed(own, None, &tried), &kind, asker).await;
    }
    let refusal = last.unwrap_or_else(|| Box::new(nowhere(calling, &needs)));
    let _ = line.send(Frame::Refused(refusal)).await;
}

/// The nodes to try, best first. A node that was named and is not known yet is waited for: after a start, or after another was put out of the
/// cluster, nodes hear of each other within a moment.
async fn candidates(calling: &Calling, needs: &Needs) -> Vec<Candidate> {
    let Some(gossiping) = &calling.node.gossiping else { return Vec::new() };
    let until = Instant::now() + HEARING_BOUND;
    loop {
        let found = gossiping.choose(needs);
        let is_expected = || {
            let unfit = gossiping.explain(needs).unfit;
            let why = |name: &NodeName| unfit.iter().find(|(node, _)| node == name).map(|(_, why)| why);
            needs.only.iter().any(|name| match why(name) {
                Some(why) => matches!(why, Unfit::Unheard | Unfit::Unknown),
                // The head may not have said yet who there is.
                None => calling.began.elapsed() < HEARING_BOUND,
            })
        };
        if !found.is_empty() || needs.only.is_empty() || Instant::now() >= until || !is_expected() {
            return found;
        }
        sleep(HEARING_LOOK).await;
    }
}

/// The command runs here: with its caller's streams, in the hands of a shepherd. On a terminal the caller rather becomes the command, so that
/// nobody else stands between the two; and so it does when a shepherd cannot do what the caller can.
async fn stay(calling: &Arc<Calling>, line: &mut Line, ask: &Ask, placed: Placed, kind: &str, asker: Asker) {
    count(calling, &placed);
    // Whoever is at this machine is served, whatever is planned with it: the shutdown ends it as it ends everything.
    let _going = calling.node.activity.begin();
    let Asker { caller, peer, streams } = asker;
    let score = placed.how.as_ref().map_or(1000, |how| how.score);
    if let Some(its) = streams
        && !here::is_in_a_leaf(calling, &peer)
    {
        // Its tree is here.
        let mut command = ask.command.clone();
        command.ship = None;
        let start = Start { command, caller, written: Paths::default() };
        match run::run_own(calling, line, start, its, placed.clone()).await {
            Ok(Some(ran_us)) => return lock(&calling.costs).ran(kind, ran_us, score),
            Ok(None) => return,
            // It says so itself, in its own words.
            Err(refusal) => tracing::debug!(why = %refusal.message, "a caller does itself what it has called for"),
        }
    }
    become_it(calling, line, ask, placed, kind, (score, &peer)).await;
}

/// The caller becomes the command.
async fn become_it(
    calling: &Arc<Calling>,
    line: &mut Line,
    ask: &Ask,
    mut placed: Placed,
    kind: &str,
    (score, peer): (u64, &Peer),
) {
    let (again, kind) = (Arc::clone(calling), kind.to_owned());
    let is_interactive = ask.command.terminal.is_some();
    let ended = move |ran: Duration| {
        if !is_interactive {
            lock(&again.costs).ran(&kind, micros(ran), score);
        }
    };
    placed.advisory = here::enclose(calling, peer, ask.command.memory_bytes, Box::new(ended)).await;
    let _ = line.send(Frame::Here(Box::new(placed))).await;
}

fn count(calling: &Calling, placed: &Placed) {
    let mut counts = lock(&calling.counts);
    match (&placed.how, placed.tried.is_empty()) {
        (Some(how), true) if how.is_local => counts.here += 1,
        (Some(_), true) => counts.elsewhere += 1,
        _ => counts.fallen_back += 1,
    }
}

/// Runs it on another node, to its end.
async fn elsewhere(
    calling: &Arc<Calling>,
    line: &mut Line,
    ask: &mut Ask,
    asker: &Asker,
    candidate: &Candidate,
    mut placed: Placed,
    kind: &str,
) -> Result<(), Failed> {
    let began = Instant::now();
    let gossiping = calling.node.gossiping.as_ref().expect("it has named a candidate");
    let (node, caller) = (&candidate.name, &asker.caller);
    if let Some(tree) = ask.tree.as_ref().filter(|_| ask.command.ship.is_none()) {
        let news = trees::news(calling, tree, asker).await;
        ask.command = with_tree(line, &ask.command, news).await?;
    }
    let sent = gossiping.sent(candidate.id);
    let mut command = ask.command.clone();
    let known = command.directory_id.as_ref().and_then(|here| calling.directories.known(node, here));
    let is_remembered = known.as_ref().is_some_and(|there| there.is_shared);
    let written = written(calling, ask, caller, is_remembered).await;
    if let Some(there) = known {
        command.proof = Proof::Known(there.id);
    }
    let mut start = Start { command, caller: caller.clone(), written };
    let mut is_proved = false;
    let (mut there, started) = loop {
        let mut there = way_to(calling, candidate, !ask.only.is_empty())
            .await
            .map_err(|why| Failed::Not(Box::new(unsuitable(125, format!("node {node}: {why}")))))?;
        let broken = |_| Failed::Unknown("its connection broke before it had answered".to_owned());
        there.send(Frame::Start(Box::new(start.clone()))).await.map_err(broken)?;
        let mut has_told = false;
        let answer = ship::answer_of(line, &mut there, START_BOUND, &mut has_told).await;
        let answer = answer.ok_or(Failed::Forsaken)?;
        if has_told && !matches!(answer, Ok(Some(Frame::Started(_)))) {
            // The next node knows nothing of what this one was told.
            ship::begin_anew(line, START_BOUND).await.ok_or(Failed::Forsaken)?;
        }
        match answer {
            Ok(Some(Frame::Started(started))) => break (there, *started),
            Ok(Some(Frame::Refused(refusal))) if refusal.kind == RefusalKind::Unproven && !is_proved => {
                is_proved = true;
                start.command.proof = prove(line).await?;
                let more = self::written(calling, ask, caller, true).await;
                start.written = start.written.to_vec().into_iter().chain(more.to_vec()).collect();
            }
            Ok(Some(Frame::Refused(refusal))) => return Err(Failed::Not(refusal)),
            Ok(Some(_)) => return Err(Failed::Unknown("it does not speak this protocol".to_owned())),
            Ok(None) => return Err(Failed::Unknown("its connection broke before it had answered".to_owned())),
            Err(_) => return Err(Failed::Unknown(format!("has not answered for {} s", START_BOUND.as_secs()))),
        }
    };
    sent.began();
    if let (Some(here), Some(id)) = (&ask.command.directory_id, started.directory_id) {
        calling.directories.learn(node, here, There { id, is_shared: started.is_shared });
    }
    count(calling, &placed);
    let score = candidate.score.total;
    placed.advisory.clone_from(&started.advisory);
    let words = Started { placed: Some(placed), ..Started::default() };
    line.send(Frame::Started(Box::new(words))).await.map_err(|_| Failed::Forsaken)?;
    let ended = pass_on(line, &mut there, node).await;
    if let Some((wall_us, waited_us)) = ended.filter(|_| ask.command.terminal.is_none()) {
        let mut costs = lock(&calling.costs);
        costs.ran(kind, wall_us, score);
        let way_us = micros(began.elapsed()).saturating_sub(wall_us.saturating_add(waited_us));
        // Longer than that, it was whoever reads its output.
        if way_us < WAY_BOUND_US {
            costs.went(kind, way_us);
        }
    }
    drop(sent);
    Ok(())
}

/// The way to a node. One that was named and does not know this one yet is given a moment to hear of it.
async fn way_to(calling: &Calling, candidate: &Candidate, is_named: bool) -> Result<Line, String> {
    let until = Instant::now() + HEARING_BOUND;
    loop {
        match calling.trunks.call(calling, &candidate.name).await {
            Ok(line) => return Ok(line),
            Err(NoWay::NotYet(_)) if is_named && Instant::now() < until => sleep(HEARING_LOOK).await,
            Err(NoWay::NotYet(why)) => return Err(why),
            Err(NoWay::Unreachable(why)) => {
                let gossiping = calling.node.gossiping.as_ref().expect("it has named a candidate");
                gossiping.unreachable(candidate.id);
                return Err(why);
            }
        }
    }
}

/// What was written lately in the caller's directory, as far as the node that it goes to may not know: where it has that over the network, or so
/// does this one.
async fn written(calling: &Arc<Calling>, ask: &Ask, caller: &Caller, is_remembered_there: bool) -> Paths {
    // A tree that a command takes along is as it was told.
    let (Some(here), None) = (&ask.command.directory_id, &ask.command.ship) else { return Paths::default() };
    if calling.written.known(here.device) == Some(Disk::Own) && !is_remembered_there {
        return Paths::default();
    }
    let (calling, directory) = (Arc::clone(calling), ask.command.directory());
    // Without the caller's own rights nothing is looked at: the agent sees more than they may.
    let Ok(account) = calling.node.accounts.of(&caller.name, Some(caller.uid)).await else { return Paths::default() };
    let look = move || {
        let (disk, is_new) = calling.written.watch(&directory);
        let told = calling.written.recently();
        let is_told = disk == Disk::Watched && !is_new || disk == Disk::Own && !is_remembered_there;
        let ids = account.as_ref().map(|account| &account.ids);
        let newest = if is_told { Vec::new() } else { act_as(ids, || newest(&directory)).unwrap_or_default() };
        told.into_iter().chain(newest).collect()
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

/// Has the caller say which tree its command takes along. That takes as long as the tree is large, and nobody else waits for it.
async fn with_tree(line: &mut Line, command: &Command, news: News) -> Result<Command, Failed> {
    line.send(Frame::WhichTree(Box::new(news))).await.map_err(|_| Failed::Forsaken)?;
    match line.receive().await {
        Some(Frame::Tree(tree)) => command.with_tree(*tree).ok_or(Failed::Forsaken),
        _ => Err(Failed::Forsaken),
    }
}

/// Has the caller show that it is in its directory.
async fn prove(line: &mut Line) -> Result<Proof, Failed> {
    let name = format!("{}{:016x}{:016x}", Proof::FILE_PREFIX, random_bits(), random_bits());
    line.send(Frame::Prove(name)).await.map_err(|_| Failed::Forsaken)?;
    match tokio::time::timeout(PROOF_BOUND, line.receive()).await {
        Ok(Some(Frame::Proof(proof))) => Ok(proof),
        _ => Err(Failed::Forsaken),
    }
}

/// Carries what both sides say until one of them has said its last; how long the command ran and had waited before, in microseconds, if it came to
/// its end.
async fn pass_on(caller: &mut Line, there: &mut Line, node: &NodeName) -> Option<(u64, u64)> {
    loop {
        tokio::select! {
            frame = there.receive() => match frame {
                Some(frame) => {
                    let is_last = frame.is_last();
                    let ended =
                        if let Frame::Ended(report) = &frame { Some((report.wall_us, report.waited_us)) } else { None };
                    if caller.send(frame).await.is_err() || is_last {
                        return ended;
                    }
                }
                None => {
                    let message = format!("the connection with node {node} broke while the command ran; it was ended there, or will be in a moment");
                    let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) };
                    let _ = caller.send(Frame::Refused(Box::new(refusal))).await;
                    return None;
                }
            },
            frame = caller.receive() => match frame {
                // Dropping the line there ends the command.
                None | Some(Frame::Cancel) => return None,
                Some(frame) => drop(there.send(frame).await),
            },
        }
    }
}

fn needs_of(ask: &Ask) -> Needs {
    Needs {
        memory_bytes: ask.command.memory_bytes.unwrap_or(0),
        constraint: ask.constraint.clone(),
        only: ask.only.iter().cloned().collect(),
        not: ask.not.iter().cloned().collect(),
        prefer_local: ask.prefer_local,
        way: 0,
    }
}

fn explain(calling: &Calling, needs: &Needs) -> Choice {
    let Some(gossiping) = &calling.node.gossiping else {
        let why = "this node does not gossip, so it knows no other".to_owned();
        return Choice { unfit: vec![(calling.node.name.clone(), why)], ..Choice::default() };
    };
    let Explanation { candidates, unfit } = gossiping.explain(needs);
    Choice {
        candidates: candidates.iter().map(how).collect(),
        unfit: unfit.into_iter().map(|(node, why)| (node, why.to_string())).collect(),
        ..Choice::default()
    }
}

fn how(candidate: &Candidate) -> How {
    let score = &candidate.score;
    How {
        node: candidate.name.clone(),
        is_local: candidate.is_local,
        score: score.total,
        sharing: score.sharing,
        fullness: score.fullness,
        pressure: score.pressure,
        memory: score.memory,
        in_flight: candidate.in_flight,
    }
}

/// Why no node will do.
fn nowhere(calling: &Calling, needs: &Needs) -> Refusal {
    let choice = explain(calling, needs);
    let mut refusal = unsuitable(125, "no node can run this command");
    refusal.hints = choice.unfit.into_iter().take(8).map(|(node, why)| format!("{node}: {why}")).collect();
    let known: Vec<_> = calling.node.gossiping.iter().flat_map(|gossiping| gossiping.names()).collect();
    for name in needs.only.iter().filter(|name| !known.contains(name)) {
        refusal.hints.push(format!("{name}: no node of that name gossips with this one"));
    }
    refusal
}
