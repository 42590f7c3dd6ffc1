//! Accepts commands of local users.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hostler_core::admission::{UsageLimits, UsagePermit};
use hostler_remote::{Caller, Frame, Open, PROTOCOL, multiplex};
use hostler_sys::Descriptors;
use nix::unistd::geteuid;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::caller_streams::{CallerSocket, CallerStreams};
use super::dispatch;
use super::peer::Peer;
use super::refusal::unsuitable;
use super::shared::Exec;
use crate::local_socket::LocalSocket;

/// Maximum number of concurrent requests. Further requests wait.
const CALLS: usize = 1024;

/// Maximum number of requests per user, so that one user cannot block all others.
const CALLS_OF_ONE: usize = CALLS / 2;

/// Maximum number of refusals that are being sent at once. Further connections are closed without an answer.
const MAX_REFUSALS: usize = 256;

/// Maximum number of refusals that are being sent to one user at once.
const MAX_REFUSALS_PER_USER: usize = 64;

/// Timeout for a program to send its request.
const ASK_BOUND: Duration = Duration::from_secs(30);

/// Pause after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at `path`, if given.
pub(super) async fn serve(exec: &Arc<Exec>, path: Option<PathBuf>) {
    let Some(path) = path else { return };
    let mut socket = match LocalSocket::open(path.clone(), geteuid().is_root(), Descriptors::Taken).await {
        Ok(socket) => socket,
        Err(error) => {
            return tracing::warn!(socket = %path.display(), %error, "cannot open the socket for remote commands of local users");
        }
    };
    let places = Arc::new(Semaphore::new(CALLS));
    let shares = UsageLimits::of(CALLS_OF_ONE);
    let refusals =
        Refusals { all: Arc::new(Semaphore::new(MAX_REFUSALS)), shares: UsageLimits::of(MAX_REFUSALS_PER_USER) };
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        match socket.accept().await {
            Ok(stream) => {
                let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
                let stream = CallerSocket::new(stream, uid, &exec.closers);
                let Ok(peer) = Peer::of(stream.get()) else { continue };
                let place = shares.take(peer.uid()).map(|share| (share, place));
                let (exec, refusals) = (Arc::clone(exec), refusals.clone());
                tokio::spawn(async move {
                    let uid = peer.uid();
                    let refusal = if place.is_none() {
                        Some(format!(
                            "you already run {CALLS_OF_ONE} remote commands from this machine, the maximum per user"
                        ))
                    } else if exec.node.accounts.may_have_account(uid).await {
                        None
                    } else {
                        // A user can own many uids without an account, and each uid has its own places.
                        Some(format!("this machine has no account with uid {uid}"))
                    };
                    let place = if refusal.is_some() { refusals.replace(place, uid) } else { place };
                    if place.is_some() {
                        attend(&exec, stream, peer, refusal).await;
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a local user");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A place among the requests, or among the refusals.
type Place = (UsagePermit<u32>, OwnedSemaphorePermit);

/// Bounds the refusals that are being sent.
#[derive(Clone)]
struct Refusals {
    all: Arc<Semaphore>,
    shares: Arc<UsageLimits<u32>>,
}

impl Refusals {
    /// Frees the place of a request, and takes one for its refusal.
    fn replace(&self, place: Option<Place>, uid: u32) -> Option<Place> {
        drop(place);
        let any = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some((self.shares.take(uid)?, any))
    }
}

/// Serves one request to its end. With `refusal`, only sends that answer.
async fn attend(exec: &Arc<Exec>, stream: CallerSocket, peer: Peer, refusal: Option<String>) {
    let deadline = Instant::now() + ASK_BOUND;
    let is_stuck = exec.closers.is_stuck(peer.uid());
    let Ok(Ok(streams)) = timeout_at(deadline, handed_over(&stream)).await else { return };
    let (_own, mut channels, run) = multiplex(stream, None);
    let answer = async {
        let ask = async {
            let mut channel = channels.next().await?;
            if let Frame::Open(Open::Exec(asked)) = channel.receive().await? { Some((channel, asked)) } else { None }
        };
        let Ok(Some((mut channel, asked))) = timeout_at(deadline, ask).await else { return };
        if let Some(why) = refusal {
            return drop(channel.send(Frame::refused(Box::new(unsuitable(126, why)))).await);
        }
        if is_stuck {
            let message =
                "streams of your earlier commands cannot be closed, because their file system does not answer";
            return drop(channel.send(Frame::refused(Box::new(unsuitable(126, message.to_owned())))).await);
        }
        let streams = streams.are_three().then_some(streams);
        let caller = Caller { name: exec.node.accounts.name_of(peer.uid()).await, uid: peer.uid() };
        let from = dispatch::Client { caller, peer, streams };
        dispatch::answer(exec, &mut channel, *asked, from).await;
    };
    tokio::pin!(run);
    tokio::select! {
        _ = &mut run => return,
        () = answer => {}
    }
    // Deliver the last frame: the connection ends when the caller has read it and closes.
    let _ = timeout(ASK_BOUND, run).await;
}

/// Receives the streams that a program hands over before its request.
async fn handed_over(stream: &CallerSocket) -> io::Result<CallerStreams> {
    let mut word = [0; 2];
    let (length, streams) = stream.receive(&mut word).await?;
    // Nothing else follows.
    hostler_sys::refuse_descriptors(stream.get());
    if length < word.len() || word[0] != PROTOCOL {
        tracing::info!(
            version = word[0],
            "rejected a request from a program of another Hostler version; update the program or the agent"
        );
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(streams)
}
