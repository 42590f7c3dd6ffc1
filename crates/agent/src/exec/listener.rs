//! Where users of this machine come with their calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hostler_remote::{Caller, Frame, Open, PROTOCOL, multiplex};
use hostler_shepherd::receive;
use nix::sys::socket::MsgFlags;
use nix::unistd::geteuid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::peer::Peer;
use super::{Exec, dispatch, unsuitable};
use crate::door::{Crowd, Door};

/// Calls at once; the others wait.
const CALLS: usize = 1024;

/// How many of them one user may have, so that nobody can keep all others out.
const CALLS_OF_ONE: usize = CALLS / 2;

/// How many who have more are told so at once, and how many of one user; the others are not even told.
const TURNED_AWAY: usize = 256;
const TURNED_AWAY_OF_ONE: usize = 64;

/// How long a program may take to say what it wants, all in all.
const ASK_BOUND: Duration = Duration::from_secs(30);

/// A pause after the system had no connection to give, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Keeps the door open, if there is to be one.
pub(super) async fn serve(exec: &Arc<Exec>, path: Option<PathBuf>) {
    let Some(path) = path else { return };
    let door = match Door::open(path.clone(), geteuid().is_root()).await {
        Ok(door) => door,
        Err(error) => {
            return tracing::warn!(socket = %path.display(), %error, "no socket for calls of this machine's users");
        }
    };
    let places = Arc::new(Semaphore::new(CALLS));
    let crowd = Arc::new(Crowd::of(CALLS_OF_ONE));
    let turned_away = (Arc::new(Semaphore::new(TURNED_AWAY)), Arc::new(Crowd::of(TURNED_AWAY_OF_ONE)));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match door.accept().await {
            Ok(stream) => {
                let Ok(peer) = Peer::of(&stream) else { continue };
                let place = crowd.admit(peer.uid(), place);
                let is_admitted = place.is_some();
                let to_be_told = || {
                    let any = Arc::clone(&turned_away.0).try_acquire_owned().ok()?;
                    turned_away.1.admit(peer.uid(), any)
                };
                let Some(place) = place.or_else(to_be_told) else { continue };
                let exec = Arc::clone(exec);
                tokio::spawn(async move {
                    attend(&exec, stream, peer, is_admitted).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a caller");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One call from its question to its end.
async fn attend(exec: &Arc<Exec>, stream: UnixStream, peer: Peer, is_admitted: bool) {
    let deadline = Instant::now() + ASK_BOUND;
    let Ok(Ok(streams)) = timeout_at(deadline, handed_over(&stream)).await else { return };
    let (_own, mut channels, run) = multiplex(stream, None);
    let answer = async {
        let ask = async {
            let mut channel = channels.next().await?;
            if let Frame::Open(Open::Exec(asked)) = channel.receive().await? { Some((channel, asked)) } else { None }
        };
        let Ok(Some((mut channel, asked))) = timeout_at(deadline, ask).await else { return };
        if !is_admitted {
            let message = format!(
                "the agent of this machine takes {CALLS_OF_ONE} calls of one user at once, and there are as many of yours"
            );
            return drop(channel.send(Frame::refused(Box::new(unsuitable(126, message)))).await);
        }
        let caller = Caller { name: exec.node.accounts.name_of(peer.uid()).await, uid: peer.uid() };
        let from = dispatch::Client { caller, peer, streams };
        dispatch::answer(exec, &mut channel, *asked, from).await;
    };
    tokio::pin!(run);
    tokio::select! {
        _ = &mut run => return,
        () = answer => {}
    }
    // What was said last is on its way: it ends when the caller has heard it and goes.
    let _ = timeout(ASK_BOUND, run).await;
}

/// The streams that a program hands over before it says anything, if it does.
async fn handed_over(stream: &UnixStream) -> io::Result<Option<[OwnedFd; 3]>> {
    let mut word = [0; 2];
    let (length, streams) =
        stream.async_io(Interest::READABLE, || receive(stream.as_fd(), &mut word, MsgFlags::MSG_DONTWAIT)).await?;
    if length < word.len() || word[0] != PROTOCOL {
        tracing::info!(version = word[0], "a program of another version of Hostler asked for a command; update both");
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(streams.try_into().ok())
}
