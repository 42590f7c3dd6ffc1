//! A machine without a head and without an agent's other tasks: exchanges loads with the machines that have the same key, and names
//! the best one to local programs, which run their commands there by their users' own means. Needs no rights.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, anyhow};
use hostler_gossip::Policy;
use hostler_listen::{Admission, Limits};
use hostler_model::{NodeName, Resources};
use hostler_remote::{
    Choice, Counts, Destination, ExecRequest, Frame, Open, PROTOCOL, Reply, headless_address, multiplex, write_blocking,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::exec::{explain, how, needs_of, no_suitable_node, other_build};
use crate::gossip::{Gossiping, Hellos, Machines, Ports, Setup, StatusPorts, Weights};
use crate::handle::Held;
use crate::mutex::lock;

/// The configuration of a daemon without a head.
#[derive(Debug)]
pub struct Config {
    /// This machine's name, which must be in `machines`, in lower case.
    pub name: NodeName,
    /// The key that all machines share.
    pub key: [u8; 32],
    /// The only machines that take part; `None` to find those on the local network.
    pub machines: Option<Machines>,
    /// UDP addresses for gossip, in order of preference. Other machines expect this one at the same port.
    pub gossip: Vec<SocketAddr>,
    pub resources: Resources,
    pub weights: Weights,
    pub status: StatusPorts,
    pub policy: Policy,
}

/// The UDP port of gossip.
pub const GOSSIP_PORT: u16 = 7761;

/// How often names are resolved again.
const RESOLVE: Duration = Duration::from_secs(60);

/// The port for remote commands that loads announce. Commands go by ssh, so nothing listens there for this daemon.
const COMMAND_PORT: u16 = 22;

/// The requests of local programs.
const LIMITS: Limits = Limits { strangers: 256, time: Duration::from_secs(10), total: 0 };

/// Runs until SIGTERM or SIGINT. Calls `is_up` once the ports are open.
///
/// # Errors
/// If a port or the address for local programs is in use, or the names of the machines are not valid.
pub fn run(config: Config, is_up: impl FnOnce()) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ports = Ports::open(config.status)?;
        let local = listen().context("cannot listen for commands of this machine; does another dshd run?")?;
        let Config { name, key, machines, gossip, resources, weights, policy, .. } = config;
        let listed = machines.as_ref().map(listed).transpose()?;
        let names = listed.as_ref().map(|listed| listed.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        let hellos = Hellos::new(key, name.clone(), names.as_deref()).map_err(|why| anyhow!(why))?;
        let setup = Setup { weights, policy, machines, hellos: Some(hellos) };
        let gossiping = Gossiping::begin(name.clone(), resources.counts(), setup, &gossip, None)
            .context("stop what uses the port for gossip, such as an agent or another dshd")?;
        gossiping.takes_commands_at(COMMAND_PORT);
        gossiping.start(Held::default, resources.cpus)?;
        ports.start(Arc::clone(&gossiping))?;
        if let Some(listed) = listed {
            let (gossiping, own) = (Arc::clone(&gossiping), name.clone());
            std::thread::Builder::new().name("names".to_owned()).spawn(move || resolve(&gossiping, &own, &listed))?;
        }
        tokio::spawn(serve(local, Arc::new(Answers { gossiping, own: name, counts: Mutex::default() })));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        is_up();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn listen() -> io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&headless_address()?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The listed names in lower case, with the addresses that the list sets.
fn listed(machines: &Machines) -> anyhow::Result<Vec<(NodeName, Option<SocketAddr>)>> {
    let entry = |machine: &crate::Machine| Ok((machine.name.to_lowercase().parse()?, machine.address));
    machines.all().iter().map(entry).collect()
}

/// Sets the addresses of the other machines, and looks up those that are not listed again and again.
fn resolve(gossiping: &Gossiping, own: &NodeName, listed: &[(NodeName, Option<SocketAddr>)]) {
    let mut unknown = BTreeSet::new();
    let others = || listed.iter().filter(|(name, _)| name != own);
    // First those that need no name server, which may take long to answer.
    others().for_each(|(name, address)| address.iter().for_each(|address| gossiping.found(name, *address)));
    loop {
        for (name, _) in others().filter(|(_, address)| address.is_none()) {
            match look_up(name) {
                Ok(address) => {
                    unknown.remove(name);
                    gossiping.found(name, address);
                }
                Err(error) if unknown.insert(name) => {
                    tracing::warn!(%error, "cannot look up the address of {name}; write {name}=ADDRESS into the cluster file, or add the name to /etc/hosts");
                }
                Err(_) => {}
            }
        }
        std::thread::sleep(RESOLVE);
    }
}

/// The address of a machine. IPv4 first, so that both ends of a connection choose the same family.
fn look_up(name: &NodeName) -> io::Result<SocketAddr> {
    let mut found: Vec<_> = (name.as_str(), GOSSIP_PORT).to_socket_addrs()?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Answers local programs.
struct Answers {
    gossiping: Arc<Gossiping>,
    own: NodeName,
    counts: Mutex<Counts>,
}

async fn serve(mut listener: UnixListener, answers: Arc<Answers>) {
    let admission = Admission::<()>::new(LIMITS);
    loop {
        let (stream, place) = admission.accept(&mut listener).await;
        let answers = Arc::clone(&answers);
        tokio::spawn(async move { place.hold(answers.attend(stream)).await });
    }
}

impl Answers {
    /// Serves one request.
    async fn attend(&self, mut stream: UnixStream) {
        let mut word = [0; 2];
        if stream.read_exact(&mut word).await.is_err() {
            return;
        }
        if word[0] != PROTOCOL {
            let mut answer = Vec::new();
            let _ = write_blocking(&mut answer, &Frame::refused(Box::new(other_build())));
            return drop(stream.write_all(&answer).await);
        }
        let (_own, mut channels, run) = multiplex(stream, None);
        let answer = async {
            let mut channel = channels.next().await?;
            let Frame::Open(Open::Exec(asked)) = channel.receive().await? else { return None };
            channel.send(self.reply(&asked)).await.ok()
        };
        tokio::pin!(run);
        tokio::select! {
            _ = &mut run => return,
            _ = answer => {}
        }
        // Deliver the frame: the connection ends when the caller has read it and closes.
        let _ = run.await;
    }

    fn reply(&self, asked: &ExecRequest) -> Frame {
        let (gossiping, own) = (&self.gossiping, &self.own);
        let needs = needs_of(asked);
        let mut counts = lock(&self.counts);
        if asked.explain {
            let choice = Choice { counts: *counts, ..explain(Some(gossiping), own, &needs) };
            return Frame::Reply(Reply::Explained(Box::new(choice)));
        }
        let best = gossiping.choose_and_count(&needs);
        // As with an agent, a command that may run anywhere does not fail while loads are not known yet.
        if best.is_none() && (!needs.only.is_empty() || needs.not.contains(own)) {
            return Frame::refused(Box::new(no_suitable_node(Some(gossiping), own, &needs)));
        }
        let node = best.as_ref().map_or(own, |best| &best.name).clone();
        match &best {
            Some(best) if best.is_local => counts.here += 1,
            Some(_) => counts.elsewhere += 1,
            None => counts.fallen_back += 1,
        }
        let how = best.as_ref().map(how);
        let placed = Destination { node, how, cost: None, tried: Vec::new(), advisory: Vec::new() };
        Frame::Reply(Reply::RunHere(Box::new(placed)))
    }
}
