//! Carries packets: from the interface to the other nodes, and from these to the interface.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hostler_remote::{Channel, Frame, Open, PIECE_BYTES, Stream, WINDOW};
use hostler_shepherd::{JOB_MTU, JobNetwork};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use super::packet::Packet;
use super::{Network, Shared};
use crate::exec::connections::OpenError;
use crate::readiness::Readiness;

/// Capacity of the queue to one node, in packets.
const QUEUE_PACKETS: usize = 256;

/// Capacity of the queues of a run to one node, and to all of them together, in bytes.
const QUEUE_BYTES: (usize, usize) = (2 << 20, 8 << 20);

/// Number of packets after which other tasks of the thread have their turn.
const TURN_PACKETS: usize = 64;

/// First and longest delay before another attempt to reach a node.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

const _: () = assert!(JOB_MTU <= PIECE_BYTES, "a frame holds a packet");

/// A packet that waits, and its share of the queues.
struct Waiting {
    bytes: Vec<u8>,
    _shares: [OwnedSemaphorePermit; 2],
}

/// The queue to one node.
struct Queue {
    packets: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
}

/// Sends packets of the interface to the other nodes. Returns when the interface is gone.
pub(super) async fn send(shared: &Arc<Shared>, network: &Arc<Network>, interface: &Readiness<OwnedFd>) {
    let room = Arc::new(Semaphore::new(QUEUE_BYTES.1));
    let mut queues: Vec<Option<Queue>> = network.nodes.iter().map(|_| None).collect();
    // Ends with this future.
    let mut senders = JoinSet::new();
    let mut buffer = vec![0; JOB_MTU];
    loop {
        interface.readable().await;
        let mut count = 0;
        loop {
            let length = match nix::unistd::read(interface.owner(), &mut buffer) {
                Ok(length) => length,
                Err(nix::errno::Errno::EAGAIN) => break,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => {
                    return tracing::debug!(run = %network.run, %error, "the interface of a job's network is gone");
                }
            };
            count += 1;
            if count % TURN_PACKETS == 0 {
                yield_now().await;
            }
            let Some((rank, packet)) = outgoing(network, &buffer[..length]) else { continue };
            let queue = queues[rank].get_or_insert_with(|| {
                let (packets, waiting) = mpsc::channel(QUEUE_PACKETS);
                senders.spawn(send_to(Arc::clone(shared), Arc::clone(network), rank, waiting));
                Queue { packets, room: Arc::new(Semaphore::new(QUEUE_BYTES.0)) }
            });
            let share = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_many_owned(packet.len() as u32).ok();
            // Without room, the packet is lost: transport protocols then send more slowly.
            if let (Some(own), Some(all)) = (share(&queue.room), share(&room)) {
                let _ = queue.packets.try_send(Waiting { bytes: packet.to_vec(), _shares: [own, all] });
            }
        }
    }
}

/// The rank of the node to which these bytes of the interface go, if they are a packet from this node to another one.
fn outgoing<'a>(network: &Network, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
    let packet = Packet::of(bytes)?;
    let rank = JobNetwork::rank(packet.destination)?;
    let is_valid = packet.source == JobNetwork::address(network.rank) && rank != network.rank;
    let rank = usize::try_from(rank).ok()?;
    (is_valid && rank < network.nodes.len()).then_some((rank, packet.bytes))
}

/// Sends packets to one node, on a channel that is opened for the first packet, and again after it has broken.
async fn send_to(shared: Arc<Shared>, network: Arc<Network>, rank: usize, mut waiting: mpsc::Receiver<Waiting>) {
    let node = &network.nodes[rank];
    let mut pause = PAUSES.0;
    while let Some(first) = waiting.recv().await {
        let began = Instant::now();
        match shared.connections.call(&shared.gossiping, &shared.credentials, node).await {
            Ok(channel) => {
                let _ = pump(channel, &network, first, &mut waiting).await;
                tracing::debug!(run = %network.run, %node, "the connection of a job's network has ended");
            }
            Err(OpenError::Unreachable(why) | OpenError::NotYet(why)) => {
                tracing::debug!(run = %network.run, %node, why, "packets of a job's network are lost");
            }
        }
        if began.elapsed() > PAUSES.1 {
            pause = PAUSES.0;
        }
        // These are too old. Those that come during the pause are sent: another attempt of a transport protocol may be far away.
        while waiting.try_recv().is_ok() {}
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Sends packets on a channel until it breaks or the receiver closes it.
async fn pump(
    mut channel: Channel,
    network: &Network,
    first: Waiting,
    waiting: &mut mpsc::Receiver<Waiting>,
) -> io::Result<()> {
    channel.send(Frame::Open(Open::Packets(network.run))).await?;
    let mut next = Some(first);
    let mut room = WINDOW;
    loop {
        let packet = tokio::select! {
            biased;
            frame = channel.receive() => match frame {
                Some(Frame::Credit(Stream::PACKETS, pieces)) => {
                    room = (room + pieces as usize).min(WINDOW);
                    continue;
                }
                _ => return Ok(()),
            },
            packet = take(&mut next, waiting), if room > 0 => packet,
        };
        let Some(Waiting { mut bytes, .. }) = packet else { return Ok(()) };
        while let Ok(another) = waiting.try_recv() {
            if bytes.len() + another.bytes.len() > PIECE_BYTES {
                next = Some(another);
                break;
            }
            bytes.extend(another.bytes);
        }
        room -= 1;
        channel.send(Frame::Data(Stream::PACKETS, bytes)).await?;
    }
}

async fn take(next: &mut Option<Waiting>, waiting: &mut mpsc::Receiver<Waiting>) -> Option<Waiting> {
    match next.take() {
        Some(packet) => Some(packet),
        None => waiting.recv().await,
    }
}

/// Writes packets from the node with this rank to the interface, until the channel or the run ends.
pub(super) async fn receive(network: &Network, rank: u32, mut channel: Channel) {
    while let Some(Frame::Data(Stream::PACKETS, bytes)) = channel.receive().await {
        let Some(interface) = network.interface().await else { return };
        for packet in incoming(network.rank, rank, &bytes) {
            // A packet that the interface does not take is lost.
            let _ = nix::unistd::write(interface.owner(), packet);
        }
        drop(interface);
        if channel.send(Frame::Credit(Stream::PACKETS, 1)).await.is_err() {
            return;
        }
    }
}

/// The packets from the node with the rank `from` to the one with the rank `own`.
fn incoming(own: u32, from: u32, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (own, from) = (JobNetwork::address(own), JobNetwork::address(from));
    Packet::all(bytes).filter(move |it| own != from && it.source == from && it.destination == own).map(|it| it.bytes)
}

#[cfg(test)]
mod tests {
    use hostler_model::{Attempt, Epoch, JobId, RunId, TaskId};
    use tokio::sync::watch;

    use super::super::Interface;
    use super::*;

    /// A packet without content.
    fn packet(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        [&[0x45, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0][..], &source, &destination].concat()
    }

    #[test]
    fn only_packets_between_two_nodes_of_the_job_pass() {
        let run = RunId { task: TaskId { job: JobId(1), index: 0 }, attempt: Attempt(1), epoch: Epoch(1) };
        let nodes = ["n1", "n2", "n3"].map(|name| name.parse().expect("a name")).into();
        let interface = watch::Sender::new(Interface::Awaited);
        let network = Network { run, rank: 1, nodes, interface, reader: Default::default() };
        let (own, first, third) = ([10, 0, 0, 2], [10, 0, 0, 1], [10, 0, 0, 3]);
        let rank = |source, destination| outgoing(&network, &packet(source, destination)).map(|(rank, _)| rank);
        assert_eq!((rank(own, first), rank(own, third)), (Some(0), Some(2)));
        // To itself, to no node, to all, to other networks, and from others.
        let others =
            [own, [10, 0, 0, 4], [10, 0, 0, 0], [10, 255, 255, 255], [224, 0, 0, 1], [192, 0, 2, 1], [0; 4], [255; 4]];
        assert!(others.iter().all(|other| rank(own, *other).is_none()));
        assert!([first, third, [127, 0, 0, 1], [0; 4]].iter().all(|other| rank(*other, first).is_none()));

        let all = [packet(first, own), packet(third, own), packet(first, third), packet(own, own), packet(first, own)];
        let bytes = all.concat();
        let passing: Vec<&[u8]> = incoming(1, 0, &bytes).collect();
        assert_eq!(passing, [&all[0], &all[4]], "those from the first node to this one");
        assert_eq!(incoming(1, 2, &bytes).count(), 1);
        assert_eq!(incoming(1, 1, &bytes).count(), 0, "not from this node");
    }
}
