//! The engine: a loop that feeds local events and messages of the head to the state machine and executes the effects.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use hostler_client::Client;
use hostler_core::agent::{Effect, Event, Exit, RunLaunch, Stage, State, Uncollected, Why, update};
use hostler_model::{Advisory, CpuSet, NodeFacts, NodeName, Request, RunId, Work};
use hostler_power::{MacAddress, WakeUp};
use hostler_proto::link::{AgentHello, AgentMessage, HeadMessage, OUTPUT_CAP_BYTES, StreamKind, StreamRequest, Usage};
use hostler_shepherd::cgroup::{Controller, LeafSpec};
use hostler_shepherd::{Launch, Launcher, cgroup};
use hostler_snapshot::ChunkStore;
use tokio::sync::{mpsc, oneshot};

use crate::account::Accounts;
use crate::activity::{Activity, power_off};
use crate::directory::{RunDirectory, Runs};
use crate::environment::Environments;
use crate::gossip::Gossiping;
use crate::gpus::Gpus;
use crate::roster::{self, NewAccounts};
use crate::stage::NoEnvironment;
use crate::steps::Own;
use crate::supervise::{IdleShepherds, Kept, LaunchOutcome, Order};
use crate::{collect, output, stage, supervise, terminal, transfer, variables};

/// Capacity of each run's order queue. At most three orders are usually queued: begin, end, kill.
const ORDERS_LEN: usize = 8;

/// The node's properties and services that the modules share.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    /// Facts about the node for the hello. `hello` adds the facts that change while the agent runs.
    pub(crate) facts: NodeFacts,
    pub(crate) gpus: Gpus,
    pub(crate) head: Client,
    pub(crate) launcher: Launcher,
    /// Path of this executable, which starts the processes of multi-process runs.
    pub(crate) program: String,
    /// The cgroup tree for jobs, or the reason why there is none.
    pub(crate) cgroups: Result<cgroup::Tree, String>,
    /// Prefix of this agent's cgroup leaf names, unique on this machine.
    pub(crate) leaf_prefix: String,
    pub(crate) chunks: ChunkStore,
    pub(crate) chunk_cap_bytes: u64,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) environments: Environments,
    pub(crate) runs: Runs,
    pub(crate) idle: IdleShepherds,
    pub(crate) new_accounts: NewAccounts,
    /// The node's load gossip; `None` if the node does not gossip.
    pub(crate) gossiping: Option<Arc<Gossiping>>,
    /// Running remote commands, and the block on new ones during a shutdown.
    pub(crate) activity: Arc<Activity>,
    /// Whether the machine has no other use than this node. If so, activity outside of jobs prevents a shutdown.
    pub(crate) has_whole_machine: bool,
}

impl Node {
    /// Requests the list of gossiping nodes. `head` is the head's IP address, given only after a new connection to the
    /// head.
    pub(crate) fn ask_for_peers(&self, head: Option<IpAddr>) {
        if let Some(gossiping) = &self.gossiping {
            gossiping.ask(head);
        }
    }

    /// Describes the cgroup leaf with this name, if cgroups are available.
    pub(crate) fn leaf(&self, name: &str) -> Option<LeafSpec> {
        self.cgroups.as_ref().ok()?.leaf(&format!("{}{name}", self.leaf_prefix)).ok()
    }

    /// Returns the protections that this node does not provide, each with the reason.
    fn advisory(&self) -> Advisory {
        Advisory {
            cpus: self.missing(Controller::Cpuset),
            memory: self.missing(Controller::Memory),
            gpus: self.open_gpus(),
            users: self.accounts.shortcoming(),
            refuses_root: self.accounts.refuse_root(),
        }
    }

    /// Why jobs can use GPUs of other jobs; `None` if the kernel prevents it.
    pub(crate) fn open_gpus(&self) -> Option<String> {
        self.gpus.shortcoming(self.missing(Controller::Devices))
    }

    /// Why the kernel does not enforce the limits of `controller`; `None` if it does.
    fn missing(&self, controller: Controller) -> Option<String> {
        match &self.cgroups {
            Ok(tree) => tree.missing(controller).map(str::to_owned),
            Err(reason) => Some(reason.clone()),
        }
    }
}

/// Handle to send events to the engine and to read its state. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Handle {
    inputs: mpsc::UnboundedSender<Input>,
    state: Arc<Mutex<State>>,
}

enum Input {
    Event(Event),
    Connected(Option<IpAddr>, oneshot::Sender<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)>),
}

impl Handle {
    /// Creates a handle, and the inputs for [`Engine::run`].
    pub(crate) fn new() -> (Self, Inputs) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a run has a handful of events, and runs are bounded by the node"
        )]
        let (inputs, receiver) = mpsc::unbounded_channel();
        (Self { inputs, state: Arc::default() }, Inputs(receiver))
    }

    pub(crate) fn happened(&self, event: Event) {
        // Sending fails only while the agent stops; the next agent recovers the state from the disk.
        let _ = self.inputs.send(Input::Event(event));
    }

    /// Reports a new link. `address` is this machine's address on that link. Returns the hello to send, and the
    /// messages to send afterwards.
    pub(crate) async fn connected(
        &self,
        address: Option<IpAddr>,
    ) -> Option<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(Input::Connected(address, reply)).ok()?;
        answer.await.ok()
    }

    pub(crate) fn disconnected(&self) {
        self.happened(Event::Disconnected);
    }

    pub(crate) fn received(&self, message: HeadMessage) {
        self.happened(Event::Received(message));
    }

    /// Whether the run's process may still write output.
    pub(crate) fn is_live(&self, run: RunId) -> bool {
        let state = self.state();
        state.run(run).is_some_and(|run| matches!(run.stage, Stage::Staging | Stage::Ready { .. } | Stage::Running))
    }

    /// Limit for each stored output of a run, in bytes.
    pub(crate) fn output_cap_bytes(&self, run: RunId) -> u64 {
        self.state().run(run).map_or(OUTPUT_CAP_BYTES, |run| run.launch.job.output_cap_bytes())
    }

    /// CPUs and memory of this node that jobs hold.
    pub(crate) fn held(&self) -> Request {
        let (cpus, memory_bytes) = self.held_parts();
        Request::new(cpus.len(), memory_bytes)
    }

    /// CPUs and bytes of memory of this node that jobs hold.
    pub(crate) fn held_parts(&self) -> (CpuSet, u64) {
        let state = self.state();
        let held = state.runs().filter(|(_, run)| !matches!(run.stage, Stage::Over(_)));
        held.map(|(_, run)| &run.launch.placement.resources).fold(
            (CpuSet::default(), 0),
            |(mut cpus, memory_bytes): (_, u64), held| {
                cpus.add_all(&held.cpus);
                (cpus, memory_bytes.saturating_add(held.memory_bytes))
            },
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Inputs(mpsc::UnboundedReceiver<Input>);

pub(crate) struct Engine {
    node: Arc<Node>,
    handle: Handle,
    link: Option<mpsc::UnboundedSender<AgentMessage>>,
    controls: HashMap<RunId, Control>,
}

/// Controls a run that is starting or running.
pub(crate) struct Control {
    cancel: Arc<AtomicBool>,
    orders: mpsc::Sender<Order>,
}

/// Receiving ends of a [`Control`].
pub(crate) struct Controlled {
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) orders: mpsc::Receiver<Order>,
}

pub(crate) fn control() -> (Control, Controlled) {
    let (orders, receiver) = mpsc::channel(ORDERS_LEN);
    let cancel = Arc::new(AtomicBool::new(false));
    (Control { cancel: Arc::clone(&cancel), orders }, Controlled { cancel, orders: receiver })
}

impl Engine {
    /// Creates an engine for `node` with the controls of adopted runs.
    pub(crate) fn new(node: Arc<Node>, handle: Handle, adopted: HashMap<RunId, Control>) -> Self {
        Self { node, handle, link: None, controls: adopted }
    }

    pub(crate) async fn run(mut self, mut inputs: Inputs) {
        while let Some(input) = inputs.0.recv().await {
            match input {
                Input::Event(event) => {
                    let effects = update(&mut self.handle.state(), event);
                    for effect in effects {
                        if effect == Effect::Stop {
                            return;
                        }
                        self.perform(effect);
                    }
                }
                Input::Connected(address, reply) => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "a run has a handful of reports, and runs are bounded"
                    )]
                    let (sender, receiver) = mpsc::unbounded_channel();
                    update(&mut self.handle.state(), Event::Connected);
                    self.link = Some(sender);
                    let _ = reply.send((self.hello(address), receiver));
                }
            }
        }
    }

    fn hello(&self, address: Option<IpAddr>) -> AgentHello {
        let facts = NodeFacts {
            advisory: self.node.advisory(),
            address,
            gossip_at: self.node.gossiping.as_ref().and_then(|gossiping| gossiping.address()),
            ..self.node.facts.clone()
        };
        AgentHello::new(self.node.name.clone(), std::process::id(), facts, self.handle.state().reports())
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Start(launch) => self.start(launch),
            Effect::Begin { run, port, doors } => self.order(run, Order::Begin { port, doors }),
            Effect::End { run, grace_ms } => self.end(run, grace_ms),
            Effect::Collect { launch } => self.collect(launch),
            Effect::StoreEnd { run, end } => {
                if let Err(error) = self.node.runs.of(run).store_end(&end) {
                    tracing::warn!(%run, %error, "cannot store the end of a run; a restarted agent would run it again");
                }
            }
            Effect::Remove { launch } => self.remove(&launch),
            Effect::Send(message) => {
                if let Some(link) = &self.link {
                    // If the link is breaking, the next hello repeats the state.
                    let _ = link.send(message);
                }
            }
            Effect::Stream(request) => self.stream(request),
            Effect::Accounts { accounts, blocked, guarded } => {
                self.node.accounts.keep_out(&blocked);
                self.node.accounts.guard(guarded);
                // Begins now, so that a launch that follows immediately waits for the accounts.
                let (making, how) = (self.node.accounts.begin_making(), self.node.new_accounts);
                tokio::task::spawn_blocking(move || making.with(|| roster::ensure(&accounts, how)));
            }
            Effect::AskForPeers => self.node.ask_for_peers(None),
            Effect::Rest { ask } => self.rest(ask),
            Effect::Rise => self.node.activity.rise(),
            Effect::PowerOff => {
                let handle = self.handle.clone();
                tokio::spawn(async move {
                    if !power_off().await {
                        handle.happened(Event::CannotPowerOff);
                    }
                });
            }
            Effect::WakeUp { mac, broadcast, port } => {
                let wake_up = WakeUp { mac: MacAddress(mac), broadcast, port };
                tokio::task::spawn_blocking(move || match wake_up.send() {
                    Ok(()) => tracing::info!(mac = %wake_up.mac, "waking a machine"),
                    Err(error) => tracing::warn!(mac = %wake_up.mac, %error, "cannot wake a machine"),
                });
            }
            Effect::Stop => {}
        }
    }

    /// Answers the head's question `ask`: whether the machine may be switched off.
    fn rest(&self, ask: u64) {
        let Some(link) = self.link.clone() else { return };
        let node = Arc::clone(&self.node);
        tokio::spawn(async move {
            let cpus = node.has_whole_machine.then_some(&node.facts.resources.cpus);
            let busy = node.activity.may_rest(cpus).await;
            // If the link has broken, the head asks again.
            let _ = link.send(AgentMessage::Resting { ask, busy, is_leaving: false });
        });
    }

    fn start(&mut self, launch: Arc<RunLaunch>) {
        let run = launch.run();
        let (control, controlled) = control();
        self.controls.insert(run, control);
        match self.node.runs.create(&launch, &self.node.facts.boot, self.node.accounts.uid_of(&launch.job.user)) {
            Ok(identity) => {
                let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
                tokio::spawn(start_run(node, handle, launch, identity, controlled));
            }
            Err(error) => {
                let message = format!("node {} cannot create the directory of the run: {error}", self.node.name);
                self.handle.happened(Event::Exited { run, exit: not_started(message) });
            }
        }
    }

    fn end(&mut self, run: RunId, grace_ms: u64) {
        let Some(control) = self.controls.get(&run) else { return };
        control.cancel.store(true, Ordering::Relaxed);
        self.order(run, Order::End { grace: std::time::Duration::from_millis(grace_ms) });
    }

    fn order(&self, run: RunId, order: Order) {
        if let Some(control) = self.controls.get(&run) {
            // The receiver is gone if the run is just ending. If the queue is full, earlier orders to end the run are
            // pending.
            let _ = control.orders.try_send(order);
        }
    }

    fn collect(&mut self, launch: Arc<RunLaunch>) {
        self.controls.remove(&launch.run());
        let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
        tokio::spawn(async move {
            let run = launch.run();
            let directory = node.runs.of(run);
            // Blocking work: a command's output can be long.
            let captured = transfer::blocking(move || collect::capture(&launch, &directory)).await;
            let result = match captured {
                Ok(captured) => collect::deliver(captured, &node.head).await,
                Err(error) => Err(Uncollected { reason: format!("{error:#}"), rest: None }),
            };
            handle.happened(Event::Collected { run, result });
        });
    }

    fn remove(&mut self, launch: &RunLaunch) {
        let run = launch.run();
        self.controls.remove(&run);
        if matches!(launch.spec().work, Work::Command { .. }) && !launch.spec().first_node {
            return self.node.runs.retire(run);
        }
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = node.environments.release(&run.to_string()) {
                tracing::warn!(%run, %error, "cannot release a run's environment");
            }
            node.runs.of(run).remove();
        });
    }

    fn stream(&self, request: StreamRequest) {
        let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
        tokio::spawn(async move {
            let StreamRequest { stream, run, what } = request;
            let directory = node.runs.of(run);
            let result = match what {
                StreamKind::Output { output, from, follow } => {
                    let part = (from, handle.output_cap_bytes(run));
                    let follow = follow.then_some((handle, run));
                    output::send(&node.head, &stream, directory.output(output), part, follow).await
                }
                StreamKind::Terminal { rows, columns } => {
                    terminal::join(&node.head, &stream, &directory, rows, columns).await
                }
            };
            if let Err(error) = result {
                tracing::debug!(%run, "a stream ended early: {error:#}");
            }
        });
    }
}

/// Executes one run from its launch to the end of its process.
async fn start_run(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    identity: String,
    mut controlled: Controlled,
) {
    let run = launch.run();
    let directory = node.runs.of(run);
    let prepared = stage::prepare(&node, &launch, &directory, &controlled.cancel).await;
    let mut orders = match prepared {
        Ok(orders) if !controlled.cancel.load(Ordering::Relaxed) => orders,
        Ok(_) => {
            return handle
                .happened(Event::Exited { run, exit: not_started("the job was ended before its start".into()) });
        }
        Err(error) => {
            let why = error.downcast_ref::<NoEnvironment>().map_or(Why::NotStarted, |error| error.why);
            return handle.happened(Event::Exited { run, exit: Exit { why, ..not_started(format!("{error:#}")) } });
        }
    };
    orders.options.identity = identity;
    if (launch.spec().world_size() > 1 || launch.spec().first_node)
        && let Err(error) = join_others(&node, &handle, &launch, &directory, &mut controlled, &mut orders).await
    {
        return handle.happened(Event::Exited { run, exit: not_started(format!("{error:#}")) });
    }
    match supervise::launch(&node, &launch, &mut orders).await {
        Ok(LaunchOutcome::Ended(exit)) => handle.happened(Event::Exited { run, exit }),
        Ok(LaunchOutcome::Started(shepherd)) => {
            handle.happened(Event::Started { run });
            let owner = supervise::owner_of(&orders);
            let kept = Kept { shepherd, place: Some((orders.options.leaf, owner)) };
            supervise::watch(node, handle, launch, kept, controlled.orders).await;
        }
        Err(error) => {
            let message = format!("node {} cannot start the job: {error:#}", node.name);
            handle.happened(Event::Exited { run, exit: not_started(message) });
        }
    }
}

/// Waits until all nodes of a run are ready. Adds to `orders` the variables with which the run's processes connect to
/// each other.
async fn join_others(
    node: &Node,
    handle: &Handle,
    launch: &RunLaunch,
    directory: &RunDirectory,
    controlled: &mut Controlled,
    orders: &mut Launch,
) -> anyhow::Result<()> {
    let own = launch.spec().first_node.then(Own::make).transpose()?;
    let door = own.as_ref().map(|own| own.door);
    let port = free_port().context("no port is free")?;
    let (port, doors) = if launch.placement.gang.is_none() {
        (port, door.into_iter().collect())
    } else {
        handle.happened(Event::Ready { run: launch.run(), port, door });
        match controlled.orders.recv().await {
            Some(Order::Begin { port, doors }) => (port, doors),
            Some(Order::End { .. }) | None => bail!("the job was ended before its start"),
        }
    };
    orders.env.extend(variables::meeting_port(port));
    own.map_or(Ok(()), |own| own.lay_out(node, launch, directory, &doors, orders))
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// Exit of a run that never started.
fn not_started(message: String) -> Exit {
    Exit { why: Why::NotStarted, message: Some(message), usage: Usage::default() }
}
