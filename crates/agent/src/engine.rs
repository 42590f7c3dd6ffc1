//! The engine: a loop that feeds local events and messages of the head to the state machine and executes the effects.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hostler_core::agent::{Effect, Event, RunLaunch, Stage, Why, update};
use hostler_model::{NodeFacts, RunId, SignalNumber};
use hostler_power::{MacAddress, WakeUp};
use hostler_proto::forward::Destination;
use hostler_proto::link::{AgentHello, AgentMessage, EndCause, HeadMessage, StreamKind, StreamRequest};
use hostler_shepherd::{Cause, Launch, Members, RunSignal};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::activity::power_off;
use crate::handle::{Handle, Input, Inputs};
use crate::node::Node;
use crate::provision::stage::{self, NoEnvironment, members};
use crate::runs::control::{Control, Controlled, Order, control};
use crate::runs::directory::{RunDirectory, Runs};
use crate::runs::outcome::RunOutcome;
use crate::runs::steps::{self, Own, free_port, names_resolve};
use crate::runs::supervise::{self, RunState};
use crate::runs::{collect, output, terminal};
use crate::users::restrictions::Restrictions;
use crate::users::roster;
use crate::{containers, forward};

pub(crate) struct Engine {
    node: Arc<Node>,
    handle: Handle,
    link: Option<mpsc::UnboundedSender<AgentMessage>>,
    controls: HashMap<RunId, Control>,
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
                    if let Event::Received(HeadMessage::Forget { run }) = &event
                        && let Some(held) = self.handle.state().run(*run)
                        && !matches!(held.stage, Stage::Over(_))
                    {
                        tracing::warn!(%run, "the head does not know this run or has given it up; ending it");
                    }
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
            address,
            gossip_at: self.node.gossiping.as_ref().and_then(|gossiping| gossiping.address()),
            ..self.node.facts.clone()
        };
        let runs = self.handle.state().reports();
        let (journals, boot) = (&self.node.runs, &self.node.facts.boot);
        let ages = runs.iter().filter_map(|report| journals.of(report.run).age(report.run, boot)).collect();
        let last_job = self.node.last_job.get();
        AgentHello { ages, last_job, ..AgentHello::new(self.node.name.clone(), std::process::id(), facts, runs) }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Start(launch) => self.start(launch),
            Effect::Begin { run, port, endpoints } => self.order(run, Order::Begin { port, endpoints }),
            Effect::End { run, cause, grace_ms } => {
                let cause = if cause == Some(EndCause::Requeued) { Cause::Superseded } else { Cause::Cancelled };
                self.order(run, Order::End { cause, grace: Duration::from_millis(grace_ms) });
            }
            Effect::ChangeLimit { run, time_limit_ms } => {
                self.order(run, Order::ChangeLimit(time_limit_ms.map(Duration::from_millis)));
            }
            Effect::Signal { run, signal, to, step: None } => {
                self.order(run, Order::Signal(RunSignal { signal: signal.get(), to: members(to) }));
            }
            Effect::Signal { run, signal, step: Some(step), .. } => self.signal_step(run, step, signal),
            Effect::Collect { launch } => self.collect(launch),
            Effect::StoreEnd { run, end } => {
                if let Err(error) = self.node.runs.of(run).store_end(&end) {
                    tracing::warn!(%run, %error, "cannot store the end of a run; a restarted agent would run it again");
                }
            }
            Effect::Remove { launch } => self.remove(launch),
            Effect::Send(message) => {
                if let Some(link) = &self.link {
                    // If the link is breaking, the next hello repeats the state.
                    let _ = link.send(message);
                }
            }
            Effect::Stream(request) => self.stream(request),
            Effect::Watch { stream, run } => self.watch(stream, run),
            Effect::Accounts { accounts, blocked, guarded, system } => {
                self.node.accounts.restrict(Restrictions { blocked, guarded, system });
                // Begins now, so that a launch that follows immediately waits for the accounts.
                let (making, how) = (self.node.accounts.begin_creation(), self.node.new_accounts);
                tokio::task::spawn_blocking(move || making.with(|| roster::ensure(&accounts, how)));
            }
            Effect::AskForPeers => {
                if let Some(gossiping) = &self.node.gossiping {
                    gossiping.ask(None);
                }
            }
            Effect::Rest { ask } => self.rest(ask),
            Effect::Rise => self.node.activity.allow_commands(),
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
            let busy = node.activity.shutdown_obstacle(cpus).await;
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
                tokio::spawn(execute(node, handle, launch, identity, controlled));
            }
            Err(error) => {
                let message = format!("node {} cannot create the directory of the run: {error}", self.node.name);
                let (supervisor, handle) = (Arc::clone(&self.node.supervisor), self.handle.clone());
                tokio::spawn(async move {
                    let exit = supervisor.ends.conclude(&launch, &RunOutcome::not_started(message)).await;
                    handle.happened(Event::Exited { run, exit });
                });
            }
        }
    }

    fn order(&self, run: RunId, order: Order) {
        if let Some(control) = self.controls.get(&run) {
            control.order(order);
        }
    }

    /// Sends a signal to the processes of one step on this node.
    fn signal_step(&self, run: RunId, step: u32, signal: SignalNumber) {
        let Some(control) = self.controls.get(&run).cloned() else { return };
        let directory = self.node.runs.of(run);
        tokio::spawn(async move {
            let groups = match control.of_step_host(move || steps::running(&directory)).await {
                Ok(running) => running.groups,
                Err(error) => return tracing::warn!(%run, "a signal did not reach a step: {error:#}"),
            };
            let groups: Vec<u32> = groups.into_iter().filter(|it| it.1 == step).map(|it| it.0).collect();
            if !groups.is_empty() {
                control.order(Order::Signal(RunSignal { signal: signal.get(), to: Members::Groups(groups) }));
            }
        });
    }

    fn collect(&mut self, launch: Arc<RunLaunch>) {
        self.controls.remove(&launch.run());
        let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
        tokio::spawn(async move {
            let run = launch.run();
            let result = collect::collect(&launch, &node.runs.of(run), &node.stager.transfer).await;
            handle.happened(Event::Collected { run, result });
        });
    }

    fn remove(&mut self, launch: Arc<RunLaunch>) {
        self.controls.remove(&launch.run());
        let supervisor = Arc::clone(&self.node.supervisor);
        if Runs::reuses_directory_of(&launch) {
            return supervisor.ends.surroundings.release(&launch);
        }
        tokio::task::spawn_blocking(move || supervisor.ends.surroundings.release(&launch));
    }

    /// Sends measurements of a run, or of the node, every second until the reader disconnects or the run ends.
    fn watch(&self, stream: String, run: Option<RunId>) {
        let lines = self.node.usage.watch(run);
        let node = Arc::clone(&self.node);
        tokio::spawn(async move {
            let mut uplink = node.head.send_stream(&stream, 0, 0);
            // The run has not started or has just ended. The head asks again while the run is on this node.
            let Some(mut lines) = lines else { return drop(uplink.finish().await) };
            loop {
                let line = tokio::select! {
                    line = lines.recv() => line,
                    () = uplink.closed() => return,
                };
                match line {
                    Ok(line) => {
                        if uplink.send(line).await.is_err() {
                            return;
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return drop(uplink.finish().await),
                }
            }
        });
    }

    fn stream(&self, request: StreamRequest) {
        let (node, handle) = (Arc::clone(&self.node), self.handle.clone());
        let control = self.controls.get(&request.run).cloned();
        tokio::spawn(async move {
            let StreamRequest { stream, run, what } = request;
            let directory = node.runs.of(run);
            let running = || {
                let launch = Arc::clone(&handle.state().run(run)?.launch);
                Some(forward::Running { control: control.clone()?, place: node.usage.place_of(run)?, launch })
            };
            let result = match what {
                StreamKind::Output { output, from, follow, tail, limit } => {
                    let part = output::Part { from, tail, limit, cap_bytes: handle.output_cap_bytes(run) };
                    let is_live = || follow && handle.is_live(run);
                    output::send(&node.head, &stream, directory.output(output), part, is_live).await
                }
                StreamKind::Terminal { rows, columns } => {
                    terminal::join(&node.head, &stream, &directory, rows, columns).await
                }
                StreamKind::Forward { port, socket } => {
                    let to = socket.map_or(Destination::Port(port), Destination::Socket);
                    forward::join(&node.forwarding, &stream, running(), to).await
                }
                StreamKind::Listen { port, socket } => {
                    let at = socket.map_or(Destination::Port(port), Destination::Socket);
                    forward::listen(&node.forwarding, &stream, run, running(), at, || handle.is_live(run)).await
                }
                StreamKind::Accepted { number } => forward::join_accepted(&node.forwarding, &stream, run, number).await,
                StreamKind::Steps => match control {
                    Some(control) => steps::send(&node.head, &stream, &control, directory).await,
                    // The run has just ended, as the head is about to learn.
                    None => Ok(()),
                },
            };
            if let Err(error) = result {
                tracing::debug!(%run, "a stream ended early: {error:#}");
            }
        });
    }
}

/// Executes one run from its launch to the end of its process, and reports the end.
async fn execute(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    identity: String,
    mut controlled: Controlled,
) {
    let run = launch.run();
    let began = Instant::now();
    let supervisor = &node.supervisor;
    let begun = begin(&node, &handle, &launch, identity, &mut controlled).await;
    let exit = match begun {
        Ok((RunState::Running(shepherd), orders)) => {
            node.metrics.started(began.elapsed());
            handle.happened(Event::Started { run });
            let owner = supervise::owner_of(&orders);
            supervisor.watch(&launch, shepherd, Some((orders.options.leaf, owner)), controlled).await
        }
        Ok((RunState::Ended(outcome), _)) => {
            node.metrics.started(began.elapsed());
            supervisor.ends.conclude(&launch, &outcome).await
        }
        Err(error) => {
            if !controlled.ending.is_ordered.load(Ordering::Relaxed) {
                node.metrics.not_started();
            }
            let why = error.downcast_ref::<NoEnvironment>().map_or(Why::NotStarted, |error| error.why);
            let outcome = RunOutcome::NotStarted { why, message: format!("{error:#}") };
            supervisor.ends.conclude(&launch, &outcome).await
        }
    };
    handle.happened(Event::Exited { run, exit });
}

/// Prepares a run, begins what surrounds it, and starts its program when all its nodes are ready. Returns the orders with which it
/// was started.
///
/// # Errors
/// With a message for the user, if the program does not start.
async fn begin(
    node: &Node,
    handle: &Handle,
    launch: &Arc<RunLaunch>,
    identity: String,
    controlled: &mut Controlled,
) -> anyhow::Result<(RunState, Launch)> {
    let run = launch.run();
    let (directory, supervisor) = (node.runs.of(run), &node.supervisor);
    let surroundings = &supervisor.ends.surroundings;
    let staged = handle.clone();
    let on_staged = move || staged.happened(Event::Staged { run });
    let mut orders = stage::prepare(&node.stager, launch, &directory, &controlled.ending.is_ordered, on_staged).await?;
    if controlled.ending.is_ordered.load(Ordering::Relaxed) {
        bail!("the job was ended before its start");
    }
    orders.options.identity = identity;
    surroundings.begin(launch).await?;
    if launch.spec().world_size() > 1 || launch.spec().first_node {
        join_others(node, handle, launch, &directory, controlled, &mut orders).await?;
    }
    surroundings.start(launch, &orders).await;
    let started = supervisor.launch(launch, &mut orders, &controlled.ending).await;
    let state = started.with_context(|| format!("node {} cannot start the job", node.name))?;
    Ok((state, orders))
}

/// Waits until all nodes of a run are ready and the head knows their ports. Adds to `orders` the variables with which
/// the run's processes connect to each other.
async fn join_others(
    node: &Node,
    handle: &Handle,
    launch: &RunLaunch,
    directory: &RunDirectory,
    controlled: &mut Controlled,
    orders: &mut Launch,
) -> anyhow::Result<()> {
    let own = launch.spec().first_node.then(Own::make).transpose()?;
    let endpoint = own.as_ref().map(|own| own.endpoint);
    let port = free_port().context("no port is free")?;
    // The client that holds an allocation asks the head for the port, so the head must know it before the run begins.
    let is_alone = launch.placement.gang.is_none() && launch.spec().holder.is_none();
    let (port, endpoints) = if is_alone {
        (port, endpoint.into_iter().collect())
    } else {
        handle.happened(Event::Ready { run: launch.run(), port, endpoint });
        let mut order = controlled.orders.recv().await;
        // Nothing runs that could get a signal.
        while let Some(Order::Signal(_) | Order::ChangeLimit(_)) = order {
            order = controlled.orders.recv().await;
        }
        match order {
            Some(Order::Begin { port, endpoints }) => (port, endpoints),
            Some(Order::End { .. } | Order::Signal(_) | Order::ChangeLimit(_)) | None => {
                bail!("the job was ended before its start")
            }
        }
    };
    orders.env.extend(containers::meeting_port(launch, port));
    let Some(own) = own else { return Ok(()) };
    let resolve = names_resolve(&node.name, launch, orders).await;
    own.lay_out((&node.name, &node.stager.program), launch, directory, &endpoints, resolve, orders)
}
