//! Networks of jobs: carries packets between the sandboxes of a job on its nodes, and nowhere else.
//!
//! ```text
//! job ──▶ interface in its sandbox ──▶ agent: from this node? to a node of the job? ([`packet`])
//!                                        ║ queue of the receiving node, or the packet is lost ([`relay`])
//! job ◀── interface in its sandbox ◀── agent: from that node, to this one? ◀═══ connection between agents
//! ```
//!
//! The sandbox's interface lives without an agent. So an agent that starts finds it again through a process of the run, and
//! meanwhile packets are lost, as in any network. Each direction between two nodes has a channel of its own, which the
//! sender opens when it has a packet. All jobs of two nodes share a connection, but not that of remote commands. The
//! connection identifies the node, and the head has told both nodes which nodes the run is on.
//!
//! Opening and sending has a runtime thread of its own, which starts with the first such job. Receiving has that of remote
//! commands.

mod packet;
mod relay;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::RunLaunch;
use hostler_model::{NodeName, RunId, SandboxNetwork};
use hostler_proto::link::{Gang, Peer};
use hostler_remote::{Channel, Credentials};
use hostler_shepherd::JobNetwork;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::exec::connections::Connections;
use crate::forward::interface_inside;
use crate::gossip::Gossiping;
use crate::measure::usage::run::RunPlace;
use crate::mutex::lock;
use crate::readiness::Readiness;
use crate::runs::outcome::RunOutcome;
use crate::runs::surroundings::Surrounding;

/// First and longest delay between attempts to open an interface. The first attempt usually comes while the sandbox is being
/// built.
const OPEN_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));

/// Number of attempts after which the log says that the interface cannot be opened.
const OPEN_ATTEMPTS: u32 = 40;

/// How long the network of a sandbox stays after the run's end on this node. Its kernel still sends what the run has written, and
/// that connections are closed, which the other nodes would wait for.
const LINGER: Duration = Duration::from_secs(20);

/// Number of networks that stay after their runs. Further ones end at once.
const MAX_LINGERING: usize = 64;

/// The networks of the runs on this node.
pub(crate) struct Networks {
    shared: Arc<Shared>,
}

struct Shared {
    gossiping: Arc<Gossiping>,
    credentials: Credentials,
    connections: Connections,
    by_run: Mutex<BTreeMap<RunId, Arc<Network>>>,
    lingering: Arc<Semaphore>,
    runtime: OnceLock<Option<Handle>>,
}

/// The network of one run, as this node sees it.
struct Network {
    run: RunId,
    /// Rank of this node.
    rank: u32,
    /// All nodes by rank.
    nodes: Vec<NodeName>,
    interface: watch::Sender<Interface>,
    /// Reads the interface.
    reader: Mutex<Option<AbortHandle>>,
}

/// The interface in the sandbox.
#[derive(Clone)]
enum Interface {
    /// It has not been opened yet.
    Awaited,
    Open(Arc<Readiness<OwnedFd>>),
    /// The run has ended. An open interface would keep the sandbox's network.
    Over,
}

impl Shared {
    fn end(&self, network: &Arc<Network>) {
        let mut by_run = lock(&self.by_run);
        if by_run.get(&network.run).is_some_and(|known| Arc::ptr_eq(known, network)) {
            by_run.remove(&network.run);
        }
        drop(by_run);
        network.interface.send_replace(Interface::Over);
        if let Some(reader) = lock(&network.reader).take() {
            reader.abort();
        }
    }
}

impl Networks {
    pub(crate) fn new(gossiping: Arc<Gossiping>, credentials: Credentials) -> Self {
        let shared = Shared {
            gossiping,
            credentials,
            connections: Connections::default(),
            by_run: Mutex::default(),
            lingering: Arc::new(Semaphore::new(MAX_LINGERING)),
            runtime: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Prepares for packets of other nodes to a run, if the run has a network of its own. Must be called before the run begins
    /// on any node, so that its first packets are not lost.
    fn enter(&self, launch: &RunLaunch) {
        let Some(gang) = gang_of(launch) else { return };
        let network = Arc::new(Network {
            run: launch.run(),
            rank: gang.rank,
            nodes: gang.nodes.iter().map(|peer| peer.name.clone()).collect(),
            interface: watch::Sender::new(Interface::Awaited),
            reader: Mutex::default(),
        });
        lock(&self.shared.by_run).insert(network.run, network);
    }

    /// Ends the network of a run after [`LINGER`].
    fn leave(&self, run: RunId) {
        let Some(network) = lock(&self.shared.by_run).get(&run).cloned() else { return };
        let shared = Arc::clone(&self.shared);
        let runtime = shared.runtime.get().cloned().flatten();
        match (runtime, Arc::clone(&shared.lingering).try_acquire_owned()) {
            (Some(runtime), Ok(place)) => drop(runtime.spawn(async move {
                sleep(LINGER).await;
                shared.end(&network);
                drop(place);
            })),
            _ => shared.end(&network),
        }
    }

    /// Starts to carry the packets of a run, after [`Networks::enter`]. `shepherd` is the process id of its shepherd.
    fn carry(&self, run: RunId, shepherd: u32) {
        let Some(network) = lock(&self.shared.by_run).get(&run).cloned() else { return };
        let Some(runtime) = self.shared.runtime.get_or_init(start_runtime) else { return };
        let serve = serve(Arc::clone(&self.shared), Arc::clone(&network), shepherd);
        let reader = runtime.spawn(serve).abort_handle();
        if let Some(before) = lock(&network.reader).replace(reader) {
            before.abort();
        }
    }

    /// Receives packets of a run from another node, until the channel or the run ends.
    pub(crate) async fn receive(&self, channel: Channel, run: RunId, from: &NodeName) {
        let network = lock(&self.shared.by_run).get(&run).cloned();
        // The run has not begun here, or has ended. The sender tries again.
        let Some(network) = network else { return };
        match network.nodes.iter().zip(0..).find(|(name, _)| *name == from) {
            Some((_, rank)) => relay::receive(&network, rank, channel).await,
            None => tracing::warn!(%run, node = %from, "a node sent packets to a job that does not run on it"),
        }
    }
}

impl Surrounding for Networks {
    fn begin<'a>(&'a self, launch: &'a RunLaunch) -> BoxFuture<'a, anyhow::Result<()>> {
        self.enter(launch);
        ready(Ok(())).boxed()
    }

    fn attach(&self, launch: &RunLaunch, place: &RunPlace) {
        self.carry(launch.run(), place.shepherd);
    }

    fn end<'a>(&'a self, launch: &'a RunLaunch, _outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        self.leave(launch.run());
        ready(()).boxed()
    }

    fn recover<'a>(&'a self, going_on: &'a [Arc<RunLaunch>]) -> BoxFuture<'a, ()> {
        going_on.iter().for_each(|launch| self.enter(launch));
        ready(()).boxed()
    }
}

impl Network {
    /// The interface, when it is open; `None` after the run's end.
    async fn interface(&self) -> Option<Arc<Readiness<OwnedFd>>> {
        let mut changes = self.interface.subscribe();
        let known = changes.wait_for(|it| !matches!(it, Interface::Awaited)).await.ok()?;
        match &*known {
            Interface::Open(interface) => Some(Arc::clone(interface)),
            Interface::Awaited | Interface::Over => None,
        }
    }
}

fn start_runtime() -> Option<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let started = runtime.and_then(|runtime| {
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("job-networks".to_owned()).spawn(serve).map(|_| handle)
    });
    started.inspect_err(|error| tracing::error!(%error, "cannot connect the sandboxes of jobs on several nodes")).ok()
}

/// Opens the interface of a run, and sends its packets to the other nodes.
async fn serve(shared: Arc<Shared>, network: Arc<Network>, shepherd: u32) {
    let interface = open(network.run, shepherd).await;
    match Readiness::of(interface).map(Arc::new) {
        Ok(interface) => {
            network.interface.send_if_modified(|now| {
                let is_awaited = matches!(now, Interface::Awaited);
                if is_awaited {
                    *now = Interface::Open(Arc::clone(&interface));
                }
                is_awaited
            });
            relay::send(&shared, &network, &interface).await;
        }
        Err(error) => tracing::error!(run = %network.run, %error, "cannot watch the interface of a job's network"),
    }
}

/// Opens the interface in the sandbox of a run as soon as the sandbox is complete.
async fn open(run: RunId, shepherd: u32) -> OwnedFd {
    let mut pause = OPEN_PAUSES.0;
    let mut attempts = 0;
    loop {
        let opened = tokio::task::spawn_blocking(move || open_now(shepherd)).await;
        match opened.map_err(io::Error::other).flatten() {
            Ok(interface) => return interface,
            Err(error) if attempts == OPEN_ATTEMPTS => {
                tracing::warn!(%run, %error, "cannot open the interface of a job's network; its nodes do not reach each other");
            }
            Err(_) => {}
        }
        attempts += 1;
        sleep(pause).await;
        pause = (pause * 2).min(OPEN_PAUSES.1);
    }
}

fn open_now(shepherd: u32) -> io::Result<OwnedFd> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    // The init process of a sandbox is a child of the shepherd. Ordinary users may not look into it, but into its children.
    for init in children(shepherd) {
        for pid in [init].into_iter().chain(children(init)) {
            match fs::read_link(format!("/proc/{pid}/ns/net")) {
                Ok(namespace) if namespace != own => match interface_inside(&namespace, pid) {
                    Ok(interface) => return Ok(interface),
                    Err(error) => failure = error,
                },
                _ => {}
            }
        }
    }
    Err(failure)
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The nodes of a run that has a network of its own.
fn gang_of(launch: &RunLaunch) -> Option<&Gang> {
    launch.placement.gang.as_ref().filter(|_| launch.spec().surroundings.network == SandboxNetwork::Job)
}

/// What the sandbox of a run needs to know about its network.
pub(crate) fn of_run(launch: &RunLaunch) -> Option<JobNetwork> {
    let gang = gang_of(launch)?;
    Some(JobNetwork { rank: gang.rank, nodes: gang.nodes.iter().map(|peer| peer.name.to_string()).collect() })
}

/// The address at which other nodes of a run reach the node with this rank; `None` if it is not known.
pub(crate) fn address(launch: &RunLaunch, rank: u32, peer: &Peer) -> Option<IpAddr> {
    match gang_of(launch) {
        Some(_) => Some(JobNetwork::address(rank).into()),
        None => peer.address,
    }
}
