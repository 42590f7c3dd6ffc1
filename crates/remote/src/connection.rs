//! Multiplexing: many channels on one connection.
//!
//! Two tasks serve a connection, one per direction. The reader sorts frames into the channels' queues. A queue holds as many frames as a
//! channel may have on the way, so the reader never waits. The writer gathers the frames of all channels in the order in which they come.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::frame::{self, Frame, WINDOW};
use crate::message::{Event, Refusal, RefusalKind};

/// Length of a channel's queue: both outputs with a full window each, acknowledgements of input, and a few messages.
const CHANNEL_LEN: usize = 3 * WINDOW + 16;

/// Length of the queue of frames to be sent, for all channels together.
const OUTGOING_LEN: usize = 64;

/// Most frames that are sent with one system call.
const BATCH: usize = 64;

/// Most channels on a connection; the other side is told to use another node beyond that.
const MAX_CHANNELS: usize = 1024;

/// Most channels that the other side has opened and nobody has accepted yet.
const BACKLOG: usize = 64;

/// How a peer is detected that vanishes without closing the connection, while the connection has channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time between checks; the peer is pinged after such a silence.
    pub interval: Duration,
    /// Silence after which the connection is closed.
    pub timeout: Duration,
}

impl Heartbeat {
    /// Between nodes.
    pub const NODE: Self = Self { interval: Duration::from_secs(2), timeout: Duration::from_secs(10) };
}

/// A peer that was heard this recently counts as alive.
const RECENT: Duration = Duration::from_secs(2);

/// How long the last frames may take to be sent when a connection ends.
const LINGER: Duration = Duration::from_secs(2);

/// One end of a connection; cheap to clone.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

/// Channels that the other side opens.
#[derive(Debug)]
pub struct Incoming(mpsc::Receiver<Channel>);

/// One command on a connection. Dropping the channel before its last frame cancels the command.
#[derive(Debug)]
pub struct Channel {
    number: u32,
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<Frame>,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    channels: Mutex<Table>,
    outgoing: mpsc::Sender<(u32, Frame)>,
    /// Whether the connection is closed.
    closed: watch::Sender<bool>,
    /// When the last frame came.
    heard: watch::Sender<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u32, mpsc::Sender<Frame>>,
    last: u32,
    /// Since when there has always been a channel.
    busy_since: Option<Instant>,
}

/// Multiplexes `stream`. Returns the end for opening channels, the channels that the other side opens, and the future that drives the
/// connection until it is closed.
pub fn multiplex<S>(
    stream: S,
    heartbeat: Option<Heartbeat>,
) -> (Connection, Incoming, impl Future<Output = io::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (outgoing, queued) = mpsc::channel(OUTGOING_LEN);
    let (accept, incoming) = mpsc::channel(BACKLOG);
    let shared = Arc::new(Shared {
        channels: Mutex::default(),
        outgoing,
        closed: watch::Sender::new(false),
        heard: watch::Sender::new(Instant::now()),
    });
    let connection = Connection { shared: Arc::clone(&shared) };
    let guard = CloseOnDrop(Arc::clone(&shared));
    let run = async move {
        let _guard = guard;
        let (from, to) = tokio::io::split(stream);
        tokio::select! {
            outcome = receive(from, &shared, &accept) => outcome,
            outcome = send(queued, to) => outcome,
            error = detect_silence(&shared, heartbeat) => Err(error),
        }
    };
    (connection, Incoming(incoming), run)
}

/// Closes all channels when the connection ends, also when its driver is dropped.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        lock(&self.0.channels).by_number.clear();
        self.0.closed.send_replace(true);
    }
}

impl Connection {
    /// Opens a channel; `None` when there are too many, or the connection is closed.
    #[must_use]
    pub fn open(&self) -> Option<Channel> {
        let mut table = lock(&self.shared.channels);
        if table.by_number.len() >= MAX_CHANNELS || *self.shared.closed.borrow() {
            return None;
        }
        loop {
            table.last = table.last.wrapping_add(1);
            if !table.by_number.contains_key(&table.last) {
                break;
            }
        }
        let number = table.last;
        Some(self.shared.channel(&mut table, number))
    }

    /// The only channel of a connection that was used without multiplexing before.
    #[must_use]
    pub fn only_channel(&self) -> Channel {
        self.shared.channel(&mut lock(&self.shared.channels), 0)
    }

    /// Whether the other side was heard a moment ago, or answers a ping within `patience`.
    pub async fn is_alive(&self, patience: Duration) -> bool {
        if self.shared.heard.borrow().elapsed() < RECENT {
            return true;
        }
        self.responds(patience).await
    }

    /// Whether the other side answers a ping within `patience`. With TLS 1.3, a client learns only from the first answer that its
    /// certificate was accepted, so a new connection is usable when this is true.
    pub async fn responds(&self, patience: Duration) -> bool {
        let (mut heard, mut closed) = (self.shared.heard.subscribe(), self.shared.closed.subscribe());
        let ping = async { self.shared.outgoing.send((0, Frame::Ping)).await.is_ok() && heard.changed().await.is_ok() };
        let answer = async {
            tokio::select! {
                is_heard = ping => is_heard,
                _ = closed.wait_for(|closed| *closed) => false,
            }
        };
        timeout(patience, answer).await.unwrap_or(false) && !self.is_closed()
    }

    /// Whether the connection is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.shared.closed.borrow()
    }
}

impl Incoming {
    /// The next channel that the other side opens; `None` when the connection is closed.
    pub async fn next(&mut self) -> Option<Channel> {
        self.0.recv().await
    }
}

impl Table {
    fn busy_since(&self) -> Option<Instant> {
        self.busy_since.filter(|_| !self.by_number.is_empty())
    }
}

impl Shared {
    fn channel(self: &Arc<Self>, table: &mut Table, number: u32) -> Channel {
        let (sender, incoming) = mpsc::channel(CHANNEL_LEN);
        if table.by_number.is_empty() {
            table.busy_since = Some(Instant::now());
        }
        table.by_number.insert(number, sender);
        Channel { number, shared: Arc::clone(self), incoming, is_over: false }
    }
}

impl Channel {
    /// Sends a frame.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.is_over |= frame.is_last();
        self.sender().send(frame).await
    }

    /// The next frame from the other side; `None` when the connection is closed.
    pub async fn receive(&mut self) -> Option<Frame> {
        let frame = self.incoming.recv().await;
        self.is_over |= frame.as_ref().is_none_or(Frame::is_last);
        frame
    }

    /// Another sender on this channel. The other side discards frames that come after the channel is dropped.
    pub(crate) fn sender(&self) -> ChannelSender {
        ChannelSender { number: self.number, outgoing: self.shared.outgoing.clone() }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        lock(&self.shared.channels).by_number.remove(&self.number);
        if self.is_over || *self.shared.closed.borrow() {
            return;
        }
        if let Err(TrySendError::Full((number, frame))) =
            self.shared.outgoing.try_send((self.number, Frame::Event(Event::Cancel)))
        {
            let outgoing = self.shared.outgoing.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { outgoing.send((number, frame)).await });
            }
        }
    }
}

/// Sends on a channel.
#[derive(Debug, Clone)]
pub(crate) struct ChannelSender {
    number: u32,
    outgoing: mpsc::Sender<(u32, Frame)>,
}

impl ChannelSender {
    pub(crate) async fn send(&self, frame: Frame) -> io::Result<()> {
        self.outgoing.send((self.number, frame)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Sorts frames into channels.
async fn receive(
    mut from: impl AsyncRead + Unpin,
    shared: &Arc<Shared>,
    accept: &mpsc::Sender<Channel>,
) -> io::Result<()> {
    while let Some((number, frame)) = frame::read(&mut from).await? {
        shared.heard.send_replace(Instant::now());
        match frame {
            // With a full queue, other frames show that this side is alive.
            Frame::Ping => drop(shared.outgoing.try_send((number, Frame::Pong))),
            Frame::Pong => {}
            frame => sort(shared, accept, number, frame),
        }
    }
    Ok(())
}

fn sort(shared: &Arc<Shared>, accept: &mpsc::Sender<Channel>, number: u32, frame: Frame) {
    let mut table = lock(&shared.channels);
    let Some(channel) = table.by_number.get(&number) else {
        // Frames for a channel that has just ended are discarded.
        if matches!(frame, Frame::Open(_)) {
            accept_channel(shared, &mut table, accept, number, frame);
        }
        return;
    };
    let is_dispensable = frame.is_dispensable();
    if let Err(error) = channel.try_send(frame)
        && !(is_dispensable && matches!(error, TrySendError::Full(_)))
    {
        // The other side ignores the window, or nobody reads the channel any more: close the channel.
        table.by_number.remove(&number);
    }
}

fn accept_channel(shared: &Arc<Shared>, table: &mut Table, accept: &mpsc::Sender<Channel>, number: u32, frame: Frame) {
    let refuse = || {
        let message = "it has as many commands on this connection as it takes at a time".to_owned();
        let refusal = Refusal { kind: RefusalKind::Unsuitable, code: 126, message, hints: Vec::new() };
        drop(shared.outgoing.try_send((number, Frame::refused(Box::new(refusal)))));
    };
    if table.by_number.len() >= MAX_CHANNELS {
        return refuse();
    }
    let Ok(permit) = accept.try_reserve() else { return refuse() };
    let channel = shared.channel(table, number);
    let sender = &table.by_number[&number];
    sender.try_send(frame).expect("the queue of a new channel is empty");
    permit.send(channel);
}

/// Sends the frames of all channels.
async fn send(mut queued: mpsc::Receiver<(u32, Frame)>, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut frames = Vec::with_capacity(BATCH);
    let mut bytes = Vec::new();
    while queued.recv_many(&mut frames, BATCH).await > 0 {
        for (channel, frame) in frames.drain(..) {
            frame.encode(channel, &mut bytes);
        }
        to.write_all(&bytes).await?;
        to.flush().await?;
        bytes.clear();
        // One large request must not leave every connection with a large buffer.
        bytes.shrink_to(BATCH << 10);
    }
    let _ = timeout(LINGER, to.shutdown()).await;
    Ok(())
}

/// Ends when the other side has been silent for too long.
async fn detect_silence(shared: &Shared, heartbeat: Option<Heartbeat>) -> io::Error {
    let Some(Heartbeat { interval, timeout }) = heartbeat else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    // Since when this process has run without a pause.
    let mut listening_since = before;
    loop {
        ticks.tick().await;
        let now = Instant::now();
        if now - before > 2 * interval {
            // This process was paused itself.
            listening_since = now;
        }
        before = now;
        let Some(busy_since) = lock(&shared.channels).busy_since() else { continue };
        let silent = now.saturating_duration_since(listening_since.max(busy_since).max(*shared.heard.borrow()));
        if silent >= timeout {
            return io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the other side sent nothing for {} s", silent.as_secs()),
            );
        }
        if silent >= interval {
            let _ = shared.outgoing.try_send((0, Frame::Ping));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::frame::Stream;
    use crate::shared_files::Paths;
    use crate::{Caller, Command, Open, Reply, Report, Start};

    fn start() -> Frame {
        let command = Command::new(&["true".into()], [], "/".into());
        Frame::Open(Open::Start(Box::new(Start {
            command,
            caller: Caller { name: "ada".into(), uid: 1 },
            written: Paths::default(),
        })))
    }

    fn ended(code: i32) -> Frame {
        Frame::Reply(Reply::Ended(Box::new(Report { code, ..Report::default() })))
    }

    /// Both ends of a connection, driven.
    fn pair() -> ((Connection, Incoming), (Connection, Incoming)) {
        let (here, there) = duplex(1 << 16);
        let (a, a_lines, run_a) = multiplex(here, None);
        let (b, b_lines, run_b) = multiplex(there, None);
        tokio::spawn(run_a);
        tokio::spawn(run_b);
        ((a, a_lines), (b, b_lines))
    }

    #[tokio::test]
    async fn channels_share_a_connection_and_do_not_mix() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut channels: Vec<Channel> = (0..100).map(|_| here.open().expect("a channel")).collect();
        for channel in &mut channels {
            channel.send(start()).await.expect("it is there");
        }
        tokio::spawn(async move {
            let mut code = 0;
            while let Some(mut channel) = calls.next().await {
                assert_eq!(channel.receive().await, Some(start()));
                code += 1;
                let mine = code;
                tokio::spawn(async move {
                    let Some(Frame::Data(Stream::STDIN, bytes)) = channel.receive().await else { panic!("input") };
                    channel.send(Frame::Data(Stream::STDOUT, bytes)).await.expect("it is there");
                    channel.send(ended(mine)).await.expect("it is there");
                });
            }
        });
        for (number, channel) in channels.iter_mut().enumerate() {
            channel.send(Frame::Data(Stream::STDIN, vec![number as u8])).await.expect("it is there");
        }
        for (number, channel) in channels.iter_mut().enumerate() {
            assert_eq!(channel.receive().await, Some(Frame::Data(Stream::STDOUT, vec![number as u8])));
            assert_eq!(channel.receive().await, Some(ended(number as i32 + 1)));
        }
        drop(channels);
        assert!(here.shared.channels.lock().expect("whole").by_number.is_empty());
    }

    #[tokio::test]
    async fn dropping_a_channel_cancels_it_unless_it_has_ended() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut channel = here.open().expect("a channel");
        channel.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        assert_eq!(heard.receive().await, Some(start()));
        drop(channel);
        assert_eq!(heard.receive().await, Some(Frame::Event(Event::Cancel)));
        // The other way round: the end is the last that is said.
        let mut channel = here.open().expect("a channel");
        channel.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        heard.send(ended(0)).await.expect("it is there");
        assert_eq!(channel.receive().await, Some(ended(0)));
        drop(channel);
        let mut next = here.open().expect("a channel");
        next.send(start()).await.expect("it is there");
        assert_eq!(heard.receive().await, Some(start()));
        calls.next().await.expect("the next");
        assert!(heard.incoming.try_recv().is_err(), "nothing came after the end");
    }

    #[tokio::test]
    async fn ignoring_the_window_closes_only_that_channel() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut greedy = here.open().expect("a channel");
        greedy.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        for _ in 0..=CHANNEL_LEN {
            greedy.send(Frame::Data(Stream::STDIN, vec![0; 100])).await.expect("it is there");
        }
        let mut modest = here.open().expect("a channel");
        modest.send(start()).await.expect("it is there");
        assert!(calls.next().await.is_some());
        let mut count = 0;
        while heard.receive().await.is_some() {
            count += 1;
        }
        assert_eq!(count, CHANNEL_LEN, "what had room came, and then the channel was over");
        // Signals without end are no offence.
        for _ in 0..=CHANNEL_LEN {
            modest.send(Frame::Event(Event::Signal(28))).await.expect("it is there");
        }
        let mut third = here.open().expect("a channel");
        third.send(start()).await.expect("it is there");
        assert!(calls.next().await.is_some());
    }

    #[tokio::test]
    async fn ping_is_answered_unless_the_peer_is_gone() {
        const LONG: Duration = Duration::from_secs(60);
        let ((here, _own), _there) = pair();
        assert!(here.responds(LONG).await && here.is_alive(LONG).await);
        let (stream, other) = duplex(1 << 16);
        let (own, _lines, run) = multiplex(stream, None);
        tokio::spawn(run);
        assert!(!own.responds(Duration::from_millis(10)).await, "nobody is there");
        drop(other);
        assert!(!own.responds(LONG).await, "and now it is closed");
    }

    #[tokio::test]
    async fn closing_the_connection_closes_its_channels() {
        let (here, there) = duplex(1 << 16);
        let (own, _lines, run) = multiplex(here, None);
        let running = tokio::spawn(run);
        let mut channel = own.open().expect("a channel");
        drop(there);
        assert_eq!(channel.receive().await, None);
        running.await.expect("no panic").expect("closed in order");
        assert!(own.is_closed() && own.open().is_none());
    }

    #[tokio::test]
    async fn dropping_the_driver_closes_the_channels() {
        let (here, _there) = duplex(1 << 16);
        let (own, _lines, run) = multiplex(here, None);
        let running = tokio::spawn(run);
        let mut channel = own.open().expect("a channel");
        tokio::task::yield_now().await;
        running.abort();
        assert_eq!(channel.receive().await, None);
        assert!(own.is_closed() && own.open().is_none());
    }

    #[tokio::test]
    async fn silent_connection_is_closed_only_while_it_has_channels() {
        let (interval, timeout) = (Duration::from_millis(20), Duration::from_millis(200));
        let heartbeat = Heartbeat { interval, timeout };
        let (here, _there) = duplex(1 << 16);
        let (own, _lines, run) = multiplex(here, Some(heartbeat));
        let running = tokio::spawn(run);
        tokio::time::sleep(3 * timeout).await;
        assert!(!own.is_closed(), "nobody has called");
        let began = Instant::now();
        let mut channel = own.open().expect("a channel");
        assert_eq!(channel.receive().await, None);
        assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
        assert_eq!(running.await.expect("no panic").expect_err("silent").kind(), io::ErrorKind::TimedOut);
    }
}
