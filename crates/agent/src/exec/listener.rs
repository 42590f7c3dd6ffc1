//! Accepts commands of local users.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hostler_listen::{Admission, Limits, LocalSocket, Place};
use hostler_remote::{Caller, Frame, Open, PROTOCOL, Refusal, RefusalKind, multiplex, write_blocking};
use hostler_sys::Descriptors;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::caller_streams::{CallerSocket, CallerStreams};
use super::dispatch;
use super::peer::Peer;
use super::refusal::unsuitable;
use super::shared::Exec;
use crate::users::local_socket::{LocalUser, socket_access};

/// The requests of local programs. A user of the machine may run 512 commands at once.
const LIMITS: Limits = Limits { strangers: 256, time: ASK_BOUND.saturating_mul(2), total: 8192 };

/// Timeout for a program to send its request.
const ASK_BOUND: Duration = Duration::from_secs(30);

/// Listens at `path`, if given.
pub(super) async fn serve(exec: &Arc<Exec>, path: Option<PathBuf>) {
    let Some(path) = path else { return };
    let mut socket = match LocalSocket::open(&path, socket_access(), Descriptors::Taken).await {
        Ok(socket) => socket,
        Err(error) => {
            return tracing::warn!(socket = %path.display(), %error, "cannot open the socket for remote commands of local users");
        }
    };
    let admission = Admission::new(LIMITS.within_descriptors());
    loop {
        let (stream, place) = admission.accept(&mut socket).await;
        let exec = Arc::clone(exec);
        tokio::spawn(async move {
            if let Err(why) = place.hold(admit(&exec, stream, &place)).await {
                tracing::debug!("closed the connection of a local program: {why}");
            }
        });
    }
}

/// Identifies a program's user, and serves its request or refuses it.
async fn admit(exec: &Arc<Exec>, stream: UnixStream, place: &Place<LocalUser>) {
    let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
    let stream = CallerSocket::new(stream, uid, &exec.closers);
    let Ok(peer) = Peer::of(stream.get()) else { return };
    let has_account = exec.host.accounts.may_have_account(uid).await;
    let refusal = if has_account {
        let full = place.identify(&LocalUser::of(uid, true)).err();
        full.map(|full| {
            format!("you already run {} remote commands from this machine, the maximum per user", full.most)
        })
    } else {
        Some(format!("this machine has no account with uid {uid}"))
    };
    attend(exec, stream, peer, refusal).await;
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
        let caller = Caller { name: exec.host.accounts.name_of(peer.uid()).await, uid: peer.uid() };
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

/// Refuses a request of a program of another build.
pub(crate) fn other_build() -> Refusal {
    Refusal {
        kind: RefusalKind::OtherBuild,
        hints: vec![
            "after an upgrade of Hostler, restart the agent, e.g. `systemctl restart hostler-agent`".to_owned(),
        ],
        ..unsuitable(125, "the agent on this machine is of another build of Hostler than this program")
    }
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
        // The caller may be unable to read it, and the buffer of a new connection has room for it.
        let mut answer = Vec::new();
        write_blocking(&mut answer, &Frame::refused(Box::new(other_build())))?;
        let _ = stream.get().try_write(&answer);
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(streams)
}
