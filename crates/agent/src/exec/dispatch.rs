//! A command of a local user: chooses its node and starts it there.
//!
//! Tries the best node first, then the next. If no other node can run the command, runs it on this node, if that is
//! allowed. If a node does not answer a start request, the node may have started the command, so no other node is
//! tried.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler_gossip::{Candidate, Costs, Estimate, Explanation, Needs, Unfit};
use hostler_model::NodeName;
use hostler_remote::Paths;
use hostler_remote::{
    Caller, Channel, Choice, Command, Cost, Destination, Event, ExecRequest, FailedAttempt, Frame, NodeScore, Open,
    Proof, Refusal, RefusalKind, Reply, Start, Started,
};
use tokio::time::sleep;

use super::caller_streams::CallerStreams;
use super::connections::OpenError;
use super::directory::RemoteDirectory;
use super::peer::Peer;
use super::refusal::unsuitable;
use super::shared::Exec;
use super::written::{Disk, newest};
use super::{local, mirror, run};
use crate::gossip::Gossiping;
use crate::mutex::lock;
use crate::random::random_bits;
use crate::rights::act_as;

/// Timeout for starting a command on a node. The node may have to look up an account, or wait for a disk to spin up.
const START_BOUND: Duration = Duration::from_secs(60);

/// Maximum overhead that counts in cost estimates, in microseconds. Longer times are caused by a slow reader of the
/// output.
const MAX_OVERHEAD_US: u64 = 10_000_000;

/// How long to wait for gossip about a node that the user named, or for that node to accept this node's certificate.
const GOSSIP_TIMEOUT: Duration = Duration::from_secs(5);
const GOSSIP_POLL: Duration = Duration::from_millis(100);

/// Timeout for listing the newest files of the caller's directory on this node.
const LOOK_BOUND: Duration = Duration::from_secs(10);

/// Timeout for the caller to prove its directory.
const PROOF_BOUND: Duration = Duration::from_secs(60);

/// Timeout for the caller to describe its source tree. The caller reads all files of the tree for its first command.
const TREE_BOUND: Duration = Duration::from_secs(600);

/// Why a command did not run on a node.
enum Failed {
    /// The node has not started the command, so the agent may try another node.
    Not(Box<Refusal>),
    /// The node may have started the command.
    Unknown(String),
    /// The caller has disconnected.
    CallerGone,
}

/// The program that sent a request.
pub(super) struct Client {
    pub(super) caller: Caller,
    pub(super) peer: Peer,
    /// The program's standard streams, if the program has handed them over.
    pub(super) streams: Option<CallerStreams>,
}

/// Answers a user's request. If the command runs on another node, forwards its streams until its end.
pub(super) async fn answer(exec: &Arc<Exec>, channel: &mut Channel, mut ask: ExecRequest, client: Client) {
    let Caller { name, uid } = &client.caller;
    if client.streams.is_some()
        && let Some(refusal) = misplaced_streams(&ask.command)
    {
        return drop(channel.send(Frame::refused(Box::new(refusal))).await);
    }
    if let Err(error) = exec.host.accounts.check_may_command(name, *uid) {
        let message = format!("node {} does not run the command: {error}", exec.host.name);
        let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(126, message) };
        return drop(channel.send(Frame::refused(Box::new(refusal))).await);
    }
    let mut kind = Costs::kind(ask.command.argv().iter().map(OsString::as_os_str));
    if ask.mirrors_tree {
        // Commands with a mirrored tree have another overhead, so their costs are kept separately.
        kind.push_str(" with its tree");
    }
    let cost = lock(&exec.costs).estimate(&kind);
    let needs = Needs { way: cost.map_or(0, |cost| cost.overhead()), ..needs_of(&ask) };
    let cost = cost.map(|Estimate { run_us, overhead_us }| Cost { kind: kind.clone(), run_us, overhead_us });
    if ask.explain {
        let choice = Choice {
            cost,
            counts: *lock(&exec.counts),
            ..explain(exec.host.gossiping.as_deref(), &exec.host.name, &needs)
        };
        return drop(channel.send(Frame::Reply(Reply::Explained(Box::new(choice)))).await);
    }
    let placed = |node: &NodeName, how, tried: &[FailedAttempt]| Destination {
        node: node.clone(),
        how,
        cost: cost.clone(),
        tried: tried.to_vec(),
        advisory: Vec::new(),
    };
    let no_sandbox_here =
        ask.command.sandbox.then(|| check_own_sandbox(exec, &ask, &client.peer)).and_then(Result::err);
    let mut tried = Vec::new();
    let mut last = None;
    for candidate in candidates(exec, &needs).await {
        let chosen = placed(&candidate.name, Some(how(&candidate)), &tried);
        if let Some(refusal) = no_sandbox_here.clone().filter(|_| candidate.is_local) {
            tried.push(failed(candidate.name, &refusal));
            last = Some(refusal);
            continue;
        }
        if candidate.is_local {
            return run_locally(exec, channel, &ask, chosen, &kind, client).await;
        }
        match elsewhere(exec, channel, &mut ask, &client, &candidate, chosen, &kind).await {
            Ok(()) | Err(Failed::CallerGone) => return,
            Err(Failed::Not(refusal)) => {
                tried.push(failed(candidate.name, &refusal));
                let is_hopeless = refusal.kind == RefusalKind::Hopeless;
                last = Some(refusal);
                if is_hopeless {
                    break;
                }
            }
            Err(Failed::Unknown(why)) => {
                let message = format!("the command may have started on node {}: {why}", candidate.name);
                let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) };
                return drop(channel.send(Frame::refused(Box::new(refusal))).await);
            }
        }
    }
    let own = &exec.host.name;
    let may_run_here = !ask.not.contains(own)
        && ask.only.is_empty()
        && ask.constraint.is_none()
        && ask.command.memory_bytes.is_none()
        && no_sandbox_here.is_none();
    if may_run_here && last.as_ref().is_none_or(|refusal| refusal.kind != RefusalKind::Hopeless) {
        return run_locally(exec, channel, &ask, placed(own, None, &tried), &kind, client).await;
    }
    let refusal = last
        .or(no_sandbox_here)
        .unwrap_or_else(|| Box::new(no_suitable_node(exec.host.gossiping.as_deref(), &exec.host.name, &needs)));
    let _ = channel.send(Frame::refused(refusal)).await;
}

fn failed(node: NodeName, refusal: &Refusal) -> FailedAttempt {
    FailedAttempt { node, why: refusal.message.clone(), lacks_directory: refusal.lacks_directory }
}

/// Refuses an interactive command whose caller has handed over its streams. Such a command gets a terminal of the agent, or
/// runs in place of its caller. The caller's streams could be the terminal of another user.
fn misplaced_streams(command: &Command) -> Option<Refusal> {
    let message = "an interactive command cannot use the streams of its caller; update the program that sent it";
    command.is_interactive().then(|| Refusal { kind: RefusalKind::Hopeless, ..unsuitable(126, message) })
}

/// Returns the nodes to try, best first. Waits for a named node that is not known yet, because gossip may still be
/// starting.
async fn candidates(exec: &Exec, needs: &Needs) -> Vec<Candidate> {
    let Some(gossiping) = &exec.host.gossiping else { return Vec::new() };
    let until = Instant::now() + GOSSIP_TIMEOUT;
    loop {
        let found = gossiping.choose(needs);
        let is_expected = || {
            let unfit = gossiping.explain(needs).unfit;
            let why = |name: &NodeName| unfit.iter().find(|(node, _)| node == name).map(|(_, why)| why);
            needs.only.iter().any(|name| match why(name) {
                Some(why) => matches!(why, Unfit::Unheard | Unfit::Unknown),
                // The head may not have sent the list of nodes yet.
                None => exec.began.elapsed() < GOSSIP_TIMEOUT,
            })
        };
        if !found.is_empty() || needs.only.is_empty() || Instant::now() >= until || !is_expected() {
            return found;
        }
        sleep(GOSSIP_POLL).await;
    }
}

/// Runs the command on this node with its caller's streams, supervised by a shepherd. On a terminal, or if the shepherd
/// cannot start the command, tells the caller to execute the command itself.
async fn run_locally(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    ask: &ExecRequest,
    placed: Destination,
    kind: &str,
    client: Client,
) {
    count(exec, &placed);
    // Local users are served even when a shutdown is planned. The shutdown ends the command.
    let _going = exec.host.activity.begin();
    let Client { caller, peer, streams } = client;
    let score = placed.how.as_ref().map_or(1000, |how| how.score);
    if ask.command.sandbox {
        let start = Start { command: ask.command.clone(), caller, written: Paths::default() };
        return match run::run_own_in_sandbox(exec, channel, start, placed).await {
            Ok(Some(ran_us)) => lock(&exec.costs).ran(kind, ran_us, score),
            Ok(None) => {}
            // Its caller must not run it without a sandbox instead.
            Err(refusal) => drop(channel.send(Frame::refused(refusal)).await),
        };
    }
    if let Some(its) = streams
        && !local::may_be_in_a_leaf(exec, &peer)
    {
        // The tree is on this machine already.
        let mut command = ask.command.clone();
        command.tree = None;
        let start = Start { command, caller, written: Paths::default() };
        match run::run_own(exec, channel, start, its, placed.clone()).await {
            Ok(Some(ran_us)) => return lock(&exec.costs).ran(kind, ran_us, score),
            Ok(None) => return,
            // It may have started, so its caller must not run it again.
            Err(refusal) if refusal.kind == RefusalKind::Hopeless => {
                return drop(channel.send(Frame::refused(refusal)).await);
            }
            // The caller then reports the same error itself.
            Err(refusal) => {
                tracing::debug!(why = %refusal.message, "cannot start the command; its caller runs it instead");
            }
        }
    }
    relay_command(exec, channel, ask, placed, kind, (score, &peer)).await;
}

/// Refuses a sandboxed command that this node cannot run for one of its own users.
fn check_own_sandbox(exec: &Exec, ask: &ExecRequest, peer: &Peer) -> Result<(), Box<Refusal>> {
    let node = &exec.host.name;
    if local::may_be_in_a_leaf(exec, peer) {
        let message = format!("a program of a job starts no sandboxed command on its own node {node}");
        return Err(Box::new(unsuitable(126, message)));
    }
    if ask.mirrors_tree {
        let message = "a sandbox cannot show a tree of --mirror; run the command without --sandbox or without --mirror";
        return Err(Box::new(unsuitable(126, message)));
    }
    run::check_sandbox(&exec.host, &ask.command)
}

/// Tells the caller to execute the command itself, within the command's limits.
async fn relay_command(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    ask: &ExecRequest,
    mut placed: Destination,
    kind: &str,
    (score, peer): (u64, &Peer),
) {
    let (again, kind) = (Arc::clone(exec), kind.to_owned());
    let is_interactive = ask.command.is_interactive();
    let ended = move |ran: Duration| {
        if !is_interactive {
            lock(&again.costs).ran(&kind, micros(ran), score);
        }
    };
    placed.advisory = local::enclose(exec, peer, ask.command.memory_bytes, Box::new(ended)).await;
    let _ = channel.send(Frame::Reply(Reply::RunHere(Box::new(placed)))).await;
}

fn count(exec: &Exec, placed: &Destination) {
    let mut counts = lock(&exec.counts);
    match (&placed.how, placed.tried.is_empty()) {
        (Some(how), true) if how.is_local => counts.here += 1,
        (Some(_), true) => counts.elsewhere += 1,
        _ => counts.fallen_back += 1,
    }
}

/// Runs the command on another node, and forwards its streams until it ends.
async fn elsewhere(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    ask: &mut ExecRequest,
    client: &Client,
    candidate: &Candidate,
    mut placed: Destination,
    kind: &str,
) -> Result<(), Failed> {
    let began = Instant::now();
    let gossiping = exec.host.gossiping.as_ref().expect("candidates exist only while this node gossips");
    let (node, caller) = (&candidate.name, &client.caller);
    if ask.mirrors_tree && ask.command.tree.is_none() {
        ask.command = with_tree(channel, &ask.command).await?;
    }
    let sent = gossiping.sent(candidate.id);
    let mut command = ask.command.clone();
    let known = command.directory_id.as_ref().and_then(|here| exec.directories.known(node, here));
    let is_remembered = known.as_ref().is_some_and(|there| there.is_shared);
    let written = written(exec, ask, caller, is_remembered).await?;
    if let Some(there) = known {
        command.proof = Proof::Known(there.id);
    }
    let mut start = Start { command, caller: caller.clone(), written };
    let mut is_proved = false;
    let (mut there, started) = loop {
        let mut there = open_channel(exec, candidate, !ask.only.is_empty())
            .await
            .map_err(|why| Failed::Not(Box::new(unsuitable(125, format!("node {node}: {why}")))))?;
        let broken = |_| Failed::Unknown("its connection broke before an answer".to_owned());
        there.send(Frame::Open(Open::Start(Box::new(start.clone())))).await.map_err(broken)?;
        let mut has_told = false;
        let answer = mirror::answer_of(channel, &mut there, START_BOUND, &mut has_told).await;
        let answer = answer.ok_or(Failed::CallerGone)?;
        if has_told && !matches!(answer, Ok(Some(Frame::Reply(Reply::Started(_))))) {
            // The next node starts a new conversation about the tree.
            mirror::begin_anew(channel, START_BOUND).await.ok_or(Failed::CallerGone)?;
        }
        match answer {
            Ok(Some(Frame::Reply(Reply::Started(started)))) => break (there, *started),
            Ok(Some(Frame::Reply(Reply::Refused(refusal)))) if refusal.kind == RefusalKind::Unproven && !is_proved => {
                is_proved = true;
                start.command.proof = prove(channel).await?;
                let more = self::written(exec, ask, caller, true).await?;
                start.written = start.written.to_vec().into_iter().chain(more.to_vec()).collect();
            }
            Ok(Some(Frame::Reply(Reply::Refused(refusal)))) => return Err(Failed::Not(refusal)),
            Ok(Some(_)) => return Err(Failed::Unknown("it sent an unexpected answer".to_owned())),
            Ok(None) => return Err(Failed::Unknown("its connection broke before an answer".to_owned())),
            Err(_) => return Err(Failed::Unknown(format!("it has not answered for {} s", START_BOUND.as_secs()))),
        }
    };
    sent.began();
    if let (Some(here), Some(id)) = (&ask.command.directory_id, started.directory_id) {
        exec.directories.learn(node, here, RemoteDirectory { id, is_shared: started.is_shared });
    }
    count(exec, &placed);
    let score = candidate.score.total;
    placed.advisory.clone_from(&started.advisory);
    let words = Started { placed: Some(placed), ..Started::default() };
    channel.send(Frame::Reply(Reply::Started(Box::new(words)))).await.map_err(|_| Failed::CallerGone)?;
    let ended = pass_on(channel, &mut there, node).await;
    if let Some(wall_us) = ended.filter(|_| !ask.command.is_interactive()) {
        let mut costs = lock(&exec.costs);
        costs.ran(kind, wall_us, score);
        let overhead_us = micros(began.elapsed()).saturating_sub(wall_us);
        // A longer time comes from a slow reader of the output.
        if overhead_us < MAX_OVERHEAD_US {
            costs.went(kind, overhead_us);
        }
    }
    drop(sent);
    Ok(())
}

/// Opens a channel to a node. If the user named the node, retries until the node has this node's certificate.
async fn open_channel(exec: &Exec, candidate: &Candidate, is_named: bool) -> Result<Channel, String> {
    let until = Instant::now() + GOSSIP_TIMEOUT;
    let gossiping = exec.host.gossiping.as_ref().expect("only gossip names candidates");
    loop {
        match exec.connections.call(gossiping, &exec.own.credentials, &candidate.name).await {
            Ok(channel) => return Ok(channel),
            Err(OpenError::NotYet(_)) if is_named && Instant::now() < until => sleep(GOSSIP_POLL).await,
            Err(OpenError::NotYet(why)) => return Err(why),
            Err(OpenError::Unreachable(why)) => {
                gossiping.unreachable(candidate.id);
                return Err(why);
            }
        }
    }
}

/// Returns recently written files in the caller's directory about which the other node may have outdated cached data.
/// Empty if neither node mounts the directory over the network. Fails if the directory's file system does not answer here.
async fn written(
    exec: &Arc<Exec>,
    ask: &ExecRequest,
    caller: &Caller,
    is_remembered_there: bool,
) -> Result<Paths, Failed> {
    // A mirrored tree is complete as described.
    let (Some(here), None) = (&ask.command.directory_id, &ask.command.tree) else { return Ok(Paths::default()) };
    if exec.written.known(here.device) == Some(Disk::Own) && !is_remembered_there {
        return Ok(Paths::default());
    }
    let (name, waits) = (exec.host.name.clone(), Arc::clone(&exec.waits));
    let (exec, directory) = (Arc::clone(exec), ask.command.directory());
    // Look with the caller's rights only, because the agent can see more files.
    let Ok(account) = exec.host.accounts.of(&caller.name, Some(caller.uid)).await else { return Ok(Paths::default()) };
    let look = move || {
        let (disk, is_new) = exec.written.watch(&directory);
        let (told, are_all) = exec.written.recently();
        let is_told = disk == Disk::Watched && !is_new && are_all || disk == Disk::Own && !is_remembered_there;
        let ids = account.as_ref().map(|account| &account.ids);
        let newest = if is_told { Vec::new() } else { act_as(ids, || newest(&directory)).unwrap_or_default() };
        told.into_iter().chain(newest).collect()
    };
    let shown = ask.command.directory();
    match waits.run(Some(caller.uid), LOOK_BOUND, look).await {
        Some(found) => Ok(found.unwrap_or_default()),
        None => {
            let message = format!("the file system of {} does not answer on node {name}", shown.display());
            Err(Failed::Not(Box::new(unsuitable(126, message))))
        }
    }
}

/// Asks the caller to describe its tree, and returns `command` with the tree. Reading a large tree may take long, but
/// delays no other command.
async fn with_tree(channel: &mut Channel, command: &Command) -> Result<Command, Failed> {
    channel.send(Frame::Event(Event::DescribeTree)).await.map_err(|_| Failed::CallerGone)?;
    match tokio::time::timeout(TREE_BOUND, channel.receive()).await {
        Ok(Some(Frame::Event(Event::Tree(tree)))) => command.with_tree(*tree).ok_or(Failed::CallerGone),
        Ok(_) => Err(Failed::CallerGone),
        Err(_) => {
            let message = format!("the source tree was not described within {} s", TREE_BOUND.as_secs());
            Err(Failed::Not(Box::new(Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) })))
        }
    }
}

/// Asks the caller to create the file that proves its directory.
async fn prove(channel: &mut Channel) -> Result<Proof, Failed> {
    let name = format!("{}{:016x}{:016x}", Proof::FILE_PREFIX, random_bits(), random_bits());
    channel.send(Frame::Event(Event::ProveDirectory(name))).await.map_err(|_| Failed::CallerGone)?;
    match tokio::time::timeout(PROOF_BOUND, channel.receive()).await {
        Ok(Some(Frame::Event(Event::Proof(proof)))) => Ok(proof),
        _ => Err(Failed::CallerGone),
    }
}

/// Relays frames between the caller and the other node until the last frame. Returns the run time in microseconds if
/// the command ended.
async fn pass_on(caller: &mut Channel, there: &mut Channel, node: &NodeName) -> Option<u64> {
    loop {
        tokio::select! {
            frame = there.receive() => match frame {
                Some(frame) => {
                    let is_last = frame.is_last();
                    let ended =
                        if let Frame::Reply(Reply::Ended(report)) = &frame { Some(report.wall_us) } else { None };
                    if caller.send(frame).await.is_err() || is_last {
                        return ended;
                    }
                }
                None => {
                    let message = format!("the connection with node {node} broke while the command ran; the node ends the command");
                    let refusal = Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) };
                    let _ = caller.send(Frame::refused(Box::new(refusal))).await;
                    return None;
                }
            },
            frame = caller.receive() => match frame {
                // Dropping the channel to the other node ends the command.
                None | Some(Frame::Event(Event::Cancel)) => return None,
                Some(frame) => drop(there.send(frame).await),
            },
        }
    }
}

/// A duration in whole microseconds.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn needs_of(ask: &ExecRequest) -> Needs {
    Needs {
        memory_bytes: ask.command.memory_bytes.unwrap_or(0),
        constraint: ask.constraint.clone(),
        only: ask.only.iter().cloned().collect(),
        not: ask.not.iter().cloned().collect(),
        prefer_local: ask.prefer_local,
        way: 0,
        rank: ask.rank.clone(),
    }
}

/// Rates the nodes for a command; `own` is the name of this node.
pub(crate) fn explain(gossiping: Option<&Gossiping>, own: &NodeName, needs: &Needs) -> Choice {
    let Some(gossiping) = gossiping else {
        let why = "this node does not gossip, so it knows no other nodes".to_owned();
        return Choice { unfit: vec![(own.clone(), why)], ..Choice::default() };
    };
    let Explanation { candidates, mut unfit } = gossiping.explain(needs);
    unfit.sort_by(|one, other| one.0.cmp(&other.0));
    Choice {
        candidates: candidates.iter().map(how).collect(),
        unwanted: unfit.iter().filter(|(_, why)| why.is_unwanted()).map(|(node, _)| node.clone()).collect(),
        unfit: unfit.into_iter().map(|(node, why)| (node, why.to_string())).collect(),
        ..Choice::default()
    }
}

pub(crate) fn how(candidate: &Candidate) -> NodeScore {
    let score = &candidate.score;
    NodeScore {
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

/// Lists the nodes that the command could name.
fn listed(nodes: &BTreeSet<&NodeName>) -> String {
    const SHOWN: usize = 20;
    let names: Vec<&str> = nodes.iter().take(SHOWN).map(|name| name.as_str()).collect();
    let more = match nodes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("known nodes: {}{more}", names.join(", "))
}

/// Returns a refusal that explains for each node why it is unsuitable.
pub(crate) fn no_suitable_node(gossiping: Option<&Gossiping>, own: &NodeName, needs: &Needs) -> Refusal {
    let choice = explain(gossiping, own, needs);
    let is_wanted = |node: &NodeName| needs.only.is_empty() || needs.only.contains(node);
    let unfit: Vec<_> = choice.unfit.into_iter().filter(|(node, _)| is_wanted(node)).collect();
    let lacks_features = Unfit::Features.to_string();
    let message = match &needs.constraint {
        Some(constraint) if !unfit.is_empty() && unfit.iter().all(|(_, why)| *why == lacks_features) => {
            format!("no node can run this command: no node has {constraint}")
        }
        _ => "no node can run this command".to_owned(),
    };
    let mut refusal = unsuitable(125, message);
    refusal.hints = unfit.into_iter().take(8).map(|(node, why)| format!("{node}: {why}")).collect();
    let known: Vec<_> = gossiping.iter().flat_map(|gossiping| gossiping.names()).collect();
    let unknown: Vec<_> = needs.only.iter().filter(|name| !known.contains(name)).collect();
    refusal.hints.extend(unknown.iter().map(|name| format!("{name}: no node of that name is known here")));
    if !unknown.is_empty() {
        let nodes: BTreeSet<&NodeName> = known.iter().chain([own]).collect();
        refusal.hints.push(listed(&nodes));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use hostler_model::WindowSize;

    use super::*;

    #[test]
    fn interactive_command_may_not_bring_streams() {
        let mut command = Command::new(&["vi".into()], [], "/".into());
        assert_eq!(misplaced_streams(&command), None);
        command.terminal = Some(WindowSize { rows: 24, columns: 80 });
        let refusal = misplaced_streams(&command).expect("the command is interactive");
        assert_eq!((refusal.kind, refusal.code), (RefusalKind::Hopeless, 126));
        command.redirected = [true, false, false];
        assert_eq!(misplaced_streams(&command), None, "the terminal is only an output");
    }
}
