//! The loop: what happens on the node and what the head says goes in, work comes out.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use hostler_client::Client;
use hostler_core::agent::{Effect, Event, Exit, RunLaunch, Stage, State, Uncollected, Why, update};
use hostler_model::{Advisory, BootId, CpuSet, Digest, Feature, Hardware, NodeName, Request, Resources, RunId, Work};
use hostler_power::{MacAddress, WakeUp};
use hostler_proto::link::{
    AgentHello, AgentMessage, HeadMessage, OUTPUT_CAP_BYTES, PROTOCOL, StreamKind, StreamRequest, Usage,
};
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
use crate::supervise::{Asked, IdleShepherds, Kept, Order};
use crate::{collect, output, stage, supervise, terminal, transfer, variables};

/// Orders that a run may have waiting: one to end it, one to end it at once, and room.
const ORDERS_LEN: usize = 8;

/// What every room of the agent needs to know of the node.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) boot: BootId,
    pub(crate) resources: Resources,
    pub(crate) features: BTreeSet<Feature>,
    pub(crate) hardware: Hardware,
    pub(crate) gpus: Gpus,
    pub(crate) head: Client,
    pub(crate) launcher: Launcher,
    /// This very program, for runs that have several processes on the node.
    pub(crate) program: String,
    /// Where the processes of jobs are held together; or why they are not.
    pub(crate) cgroups: Result<cgroup::Tree, String>,
    /// What the names of this agent's cgroup leaves begin with: no other agent's on this machine do.
    pub(crate) leaf_prefix: String,
    pub(crate) chunks: ChunkStore,
    pub(crate) chunk_cap_bytes: u64,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) environments: Environments,
    pub(crate) runs: Runs,
    pub(crate) idle: IdleShepherds,
    pub(crate) new_accounts: NewAccounts,
    /// Its part in the gossip, if it takes part.
    pub(crate) gossiping: Option<Arc<Gossiping>>,
    /// By what other nodes know it when they have a command for it, if it takes any.
    pub(crate) call_key: Option<Digest>,
    /// What goes on besides jobs.
    pub(crate) activity: Arc<Activity>,
    /// Whether whatever else goes on on the machine keeps it on.
    pub(crate) has_whole_machine: bool,
}

impl Node {
    /// The head may have something new to say about who gossips; it was reached at that address, if that is new.
    pub(crate) fn ask_for_peers(&self, head: Option<IpAddr>) {
        if let Some(gossiping) = &self.gossiping {
            gossiping.ask(head);
        }
    }

    /// The leaf of that name, where processes are held together at all.
    pub(crate) fn leaf(&self, name: &str) -> Option<LeafSpec> {
        self.cgroups.as_ref().ok()?.leaf(&format!("{}{name}", self.leaf_prefix)).ok()
    }

    /// Which limits the kernel does not hold jobs to here, and why.
    fn advisory(&self) -> Advisory {
        Advisory {
            cpus: self.missing(Controller::Cpuset),
            memory: self.missing(Controller::Memory),
            gpus: self.open_gpus(),
            users: self.accounts.shortcoming(),
            refuses_root: self.accounts.refuse_root(),
        }
    }

    /// Why jobs can use GPUs that are not theirs; `None` when the kernel keeps them from that.
    pub(crate) fn open_gpus(&self) -> Option<String> {
        self.gpus.shortcoming(self.missing(Controller::Devices))
    }

    /// Why the kernel holds nobody to limits of this kind.
    fn missing(&self, controller: Controller) -> Option<String> {
        match &self.cgroups {
            Ok(tree) => tree.missing(controller).map(str::to_owned),
            Err(reason) => Some(reason.clone()),
        }
    }
}

/// A handle on the loop; cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    inputs: mpsc::UnboundedSender<Input>,
    state: Arc<Mutex<State>>,
}

/// Something for the loop.
enum Input {
    Event(Event),
    Connected(Option<IpAddr>, oneshot::Sender<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)>),
}

impl Handle {
    /// A handle, and what [`Engine::run`] takes its inputs from.
    pub(crate) fn new() -> (Self, Inputs) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a run has a handful of events, and runs are bounded by the node"
        )]
        let (inputs, receiver) = mpsc::unbounded_channel();
        (Self { inputs, state: Arc::default() }, Inputs(receiver))
    }

    /// Something happened.
    pub(crate) fn happened(&self, event: Event) {
        // A loop that is gone means that the agent is stopping; the next one finds out from the disk.
        let _ = self.inputs.send(Input::Event(event));
    }

    /// The link is up, dialled from `address`: what to introduce the node with, and what is to be sent from then on.
    pub(crate) async fn connected(
        &self,
        address: Option<IpAddr>,
    ) -> Option<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(Input::Connected(address, reply)).ok()?;
        answer.await.ok()
    }

    /// The link is gone.
    pub(crate) fn disconnected(&self) {
        self.happened(Event::Disconnected);
    }

    /// The head said something.
    pub(crate) fn received(&self, message: HeadMessage) {
        self.happened(Event::Received(message));
    }

    /// Whether the run's process may still write output.
    pub(crate) fn is_live(&self, run: RunId) -> bool {
        let state = self.state();
        state.run(run).is_some_and(|run| matches!(run.stage, Stage::Staging | Stage::Ready { .. } | Stage::Running))
    }

    /// How much is kept of each output of a run, in bytes.
    pub(crate) fn output_cap_bytes(&self, run: RunId) -> u64 {
        self.state().run(run).map_or(OUTPUT_CAP_BYTES, |run| run.launch.output_cap_bytes())
    }

    /// What jobs hold of this node: CPUs and memory, and nothing else.
    pub(crate) fn held(&self) -> Request {
        let (cpus, memory_bytes) = self.held_parts();
        Request::new(cpus.len(), memory_bytes)
    }

    /// Which CPUs of this node jobs hold, and how much of its memory, in bytes.
    pub(crate) fn held_parts(&self) -> (CpuSet, u64) {
        let state = self.state();
        let held = state.runs().filter(|(_, run)| !matches!(run.stage, Stage::Over(_)));
        held.map(|(_, run)| &run.launch.resources).fold(
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

/// The loop's end of the queue.
pub(crate) struct Inputs(mpsc::UnboundedReceiver<Input>);

/// The loop.
pub(crate) struct Engine {
    node: Arc<Node>,
    handle: Handle,
    link: Option<mpsc::UnboundedSender<AgentMessage>>,
    controls: HashMap<RunId, Control>,
}

/// How a run that is being made ready or runs is ended.
pub(crate) struct Control {
    cancel: Arc<AtomicBool>,
    orders: mpsc::Sender<Order>,
}

/// The other ends of a [`Control`].
pub(crate) struct Controlled {
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) orders: mpsc::Receiver<Order>,
}

/// Both ends.
pub(crate) fn control() -> (Control, Controlled) {
    let (orders, receiver) = mpsc::channel(ORDERS_LEN);
    let cancel = Arc::new(AtomicBool::new(false));
    (Control { cancel: Arc::clone(&cancel), orders }, Controlled { cancel, orders: receiver })
}

impl Engine {
    /// A loop for `node`, with the runs that were adopted.
    pub(crate) fn new(node: Arc<Node>, handle: Handle, adopted: HashMap<RunId, Control>) -> Self {
        Self { node, handle, link: None, controls: adopted }
    }

    /// Runs until it is stopped.
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
        AgentHello {
            protocol_min: *PROTOCOL.start(),
            protocol_max: *PROTOCOL.end(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.name.clone(),
            boot: self.node.boot.clone(),
            pid: std::process::id(),
            resources: self.node.resources.clone(),
            hardware: self.node.hardware.clone(),
            advisory: self.node.advisory(),
            features: self.node.features.clone(),
            address,
            gossip_at: self.node.gossiping.as_ref().and_then(|gossiping| gossiping.address()),
            call_key: self.node.call_key,
            runs: self.handle.state().reports(),
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Start(launch) => self.start(launch),
            Effect::Begin { run, port, doors } => self.order(run, Order::Begin { port, doors }),
            Effect::End { run, grace_ms } => self.end(run, grace_ms),
            Effect::Collect { launch } => self.collect(launch),
            Effect::StoreEnd { run, end } => {
                if let Err(error) = self.node.runs.of(run).store_end(&end) {
                    tracing::warn!(%run, %error, "cannot store how a run ended; a restarted agent would run it again");
                }
            }
            Effect::Remove { launch } => self.remove(&launch),
            Effect::Send(message) => {
                if let Some(link) = &self.link {
                    // A link that is just breaking: the next hello says it all.
                    let _ = link.send(message);
                }
            }
            Effect::Stream(request) => self.stream(request),
            Effect::Accounts { accounts, blocked, guarded } => {
                self.node.accounts.keep_out(&blocked);
                self.node.accounts.guard(guarded);
                // From now on, so that a launch that follows at once waits for it.
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

    /// Says whether the machine may be switched off, as soon as that is known.
    fn rest(&self, ask: u64) {
        let Some(link) = self.link.clone() else { return };
        let node = Arc::clone(&self.node);
        tokio::spawn(async move {
            let cpus = node.has_whole_machine.then_some(&node.resources.cpus);
            let busy = node.activity.may_rest(cpus).await;
            // A link that has just broken: the head asks again.
            let _ = link.send(AgentMessage::Resting { ask, busy, is_leaving: false });
        });
    }

    fn start(&mut self, launch: Arc<RunLaunch>) {
        let run = launch.run;
        let (control, controlled) = control();
        self.controls.insert(run, control);
        match self.node.runs.create(&launch, &self.node.boot, self.node.accounts.uid_of(&launch.user)) {
            Ok(identity) => {
                let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
                tokio::spawn(start_run(node, handle, launch, identity, controlled));
            }
            Err(error) => {
                let message = format!("node {} cannot make a directory for it: {error}", self.node.name);
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
            // Nobody listens when it is just ending by itself; and who has not read the first orders needs no more.
            let _ = control.orders.try_send(order);
        }
    }

    fn collect(&mut self, launch: Arc<RunLaunch>) {
        self.controls.remove(&launch.run);
        let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
        tokio::spawn(async move {
            let run = launch.run;
            let directory = node.runs.of(run);
            // Also what a command has written is as long as its user likes.
            let captured = transfer::blocking(move || collect::capture(&launch, &directory)).await;
            let result = match captured {
                Ok(captured) => collect::deliver(captured, &node.head).await,
                Err(error) => Err(Uncollected { reason: format!("{error:#}"), rest: None }),
            };
            handle.happened(Event::Collected { run, result });
        });
    }

    fn remove(&mut self, launch: &RunLaunch) {
        let run = launch.run;
        self.controls.remove(&run);
        if matches!(launch.spec.work, Work::Command { .. }) && !launch.spec.first_node {
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
                tracing::debug!(%run, "a stream broke off: {error:#}");
            }
        });
    }
}

/// One run from its launch to the end of its process.
async fn start_run(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    identity: String,
    mut controlled: Controlled,
) {
    let run = launch.run;
    let directory = node.runs.of(run);
    let prepared = stage::prepare(&node, &launch, &directory, &controlled.cancel).await;
    let mut orders = match prepared {
        Ok(orders) if !controlled.cancel.load(Ordering::Relaxed) => orders,
        Ok(_) => {
            return handle.happened(Event::Exited { run, exit: not_started("ended before it had started".into()) });
        }
        Err(error) => {
            let why = error.downcast_ref::<NoEnvironment>().map_or(Why::NotStarted, |error| error.why);
            return handle.happened(Event::Exited { run, exit: Exit { why, ..not_started(format!("{error:#}")) } });
        }
    };
    orders.options.identity = identity;
    if (launch.spec.world_size() > 1 || launch.spec.first_node)
        && let Err(error) = join_others(&node, &handle, &launch, &directory, &mut controlled, &mut orders).await
    {
        return handle.happened(Event::Exited { run, exit: not_started(format!("{error:#}")) });
    }
    match supervise::launch(&node, &launch, &mut orders).await {
        Ok(Asked::Over(exit)) => handle.happened(Event::Exited { run, exit }),
        Ok(Asked::Took(shepherd)) => {
            handle.happened(Event::Started { run });
            let owner = supervise::owner_of(&orders);
            let kept = Kept { shepherd, place: Some((orders.options.leaf, owner)) };
            supervise::watch(node, handle, launch, kept, controlled.orders).await;
        }
        Err(error) => {
            let message = format!("node {} cannot start it: {error:#}", node.name);
            handle.happened(Event::Exited { run, exit: not_started(message) });
        }
    }
}

/// Waits until the other nodes of a run are ready too, and says in its orders where its processes find each other.
async fn join_others(
    node: &Node,
    handle: &Handle,
    launch: &RunLaunch,
    directory: &RunDirectory,
    controlled: &mut Controlled,
    orders: &mut Launch,
) -> anyhow::Result<()> {
    let own = launch.spec.first_node.then(Own::make).transpose()?;
    let door = own.as_ref().map(|own| own.door);
    let port = free_port().context("no port is free")?;
    let (port, doors) = if launch.gang.is_none() {
        (port, door.into_iter().collect())
    } else {
        handle.happened(Event::Ready { run: launch.run, port, door });
        match controlled.orders.recv().await {
            Some(Order::Begin { port, doors }) => (port, doors),
            Some(Order::End { .. }) | None => bail!("ended before it had started"),
        }
    };
    orders.env.extend(variables::meeting_port(port));
    own.map_or(Ok(()), |own| own.lay_out(node, launch, directory, &doors, orders))
}

/// A port that nobody listens at now.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// The exit of a run that never began.
fn not_started(message: String) -> Exit {
    Exit { why: Why::NotStarted, message: Some(message), usage: Usage::default() }
}
