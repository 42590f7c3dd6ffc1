//! Multiplexing: many channels on one connection.
//!
//! Two tasks serve a connection, one per direction. The reader sorts frames into the channels' queues. Each queue has
//! room for all frames that flow control allows in flight, so the reader never waits. The writer sends the frames of
//! all channels in the order of arrival.

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

/// Capacity of a channel's queue of received frames: a full window of each of three streams, acknowledgements of two or
/// three others, and a few messages.
const CHANNEL_LEN: usize = 6 * WINDOW + 16;

/// Capacity of a connection's send queue, in frames. All channels of the connection share this queue.
const OUTGOING_LEN: usize = 64;

/// Maximum number of frames per write.
const BATCH: usize = 64;

/// Maximum number of open channels per connection.
const MAX_CHANNELS: usize = 1024;

/// Maximum number of channels that the other side has opened and this side has not yet accepted.
const BACKLOG: usize = 64;

/// Settings for detecting a dead peer. Checks run only while the connection has channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time between checks. If the peer has been silent for this long, each check sends a ping.
    pub interval: Duration,
    /// Silence after which the connection is closed.
    pub timeout: Duration,
}

impl Heartbeat {
    /// Heartbeat of connections between nodes.
    pub const NODE: Self = Self { interval: Duration::from_secs(2), timeout: Duration::from_secs(10) };
}

/// How long after its last frame a peer counts as alive.
const RECENT: Duration = Duration::from_secs(2);

/// Timeout for sending the remaining frames when a connection ends.
const LINGER: Duration = Duration::from_secs(2);

/// One end of a connection. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

/// Queue of channels that the other side has opened.
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
    closed: watch::Sender<bool>,
    /// Time of the last received frame.
    heard: watch::Sender<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u32, mpsc::Sender<Frame>>,
    last: u32,
    /// Start of the current period with an open channel; when no channel is open, of the last such period.
    busy_since: Option<Instant>,
}

/// Multiplexes `stream`. Returns the end that opens channels, the queue of channels opened by the other side, and the
/// driver. The driver is a future that runs until the connection closes.
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

/// On drop, closes all channels of a connection. Belongs to the connection's driver, so the channels close when the
/// driver ends or is dropped.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        lock(&self.0.channels).by_number.clear();
        self.0.closed.send_replace(true);
    }
}

impl Connection {
    /// Opens a channel. Returns `None` when the connection is closed or has the maximum number of open channels.
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

    /// Returns the channel of a connection that has only one, such as the connection between a program and its local
    /// agent.
    #[must_use]
    pub fn only_channel(&self) -> Channel {
        self.shared.channel(&mut lock(&self.shared.channels), 0)
    }

    /// Returns whether the other side has sent a frame in the last two seconds, or answers a ping within `retry_limits`.
    pub async fn is_alive(&self, retry_limits: Duration) -> bool {
        if self.shared.heard.borrow().elapsed() < RECENT {
            return true;
        }
        self.responds(retry_limits).await
    }

    /// Returns whether the other side answers a ping within `retry_limits`.
    ///
    /// With TLS 1.3, a client learns only from the server's first answer that the server accepts the client's
    /// certificate. A new connection is therefore usable only after this function has returned `true`.
    pub async fn responds(&self, retry_limits: Duration) -> bool {
        let (mut heard, mut closed) = (self.shared.heard.subscribe(), self.shared.closed.subscribe());
        let ping = async { self.shared.outgoing.send((0, Frame::Ping)).await.is_ok() && heard.changed().await.is_ok() };
        let answer = async {
            tokio::select! {
                is_heard = ping => is_heard,
                _ = closed.wait_for(|closed| *closed) => false,
            }
        };
        timeout(retry_limits, answer).await.unwrap_or(false) && !self.is_closed()
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.shared.closed.borrow()
    }
}

impl Incoming {
    /// Returns the next channel that the other side opens; `None` when the connection is closed.
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
    /// Fails when the connection is closed.
    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.is_over |= frame.is_last();
        self.sender().send(frame).await
    }

    /// Returns the next frame from the other side; `None` when the connection is closed.
    pub async fn receive(&mut self) -> Option<Frame> {
        let frame = self.incoming.recv().await;
        self.is_over |= frame.as_ref().is_none_or(Frame::is_last);
        frame
    }

    /// Returns another sender for this channel. The other side discards frames that the sender sends after the channel
    /// is dropped.
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

/// Sends frames on a channel.
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

/// Reads frames and puts each into the queue of its channel.
async fn receive(
    mut from: impl AsyncRead + Unpin,
    shared: &Arc<Shared>,
    accept: &mpsc::Sender<Channel>,
) -> io::Result<()> {
    while let Some((number, frame)) = frame::read(&mut from).await? {
        shared.heard.send_replace(Instant::now());
        match frame {
            // A full send queue means that other frames are waiting; they show that this side is alive.
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
        // The other side ignores the window, or the channel is no longer read: close the channel.
        table.by_number.remove(&number);
    }
}

fn accept_channel(shared: &Arc<Shared>, table: &mut Table, accept: &mpsc::Sender<Channel>, number: u32, frame: Frame) {
    let refuse = || {
        let message = "the node already runs the maximum number of commands from this node".to_owned();
        let refusal =
            Refusal { kind: RefusalKind::Unsuitable, code: 126, message, hints: Vec::new(), lacks_directory: false };
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

/// Sends the queued frames of all channels.
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
        // Release a large buffer after a large request; otherwise every connection might keep one.
        bytes.shrink_to(BATCH << 10);
    }
    let _ = timeout(LINGER, to.shutdown()).await;
    Ok(())
}

/// Returns an error once the other side has been silent for longer than the timeout.
async fn detect_silence(shared: &Shared, heartbeat: Option<Heartbeat>) -> io::Error {
    let Some(Heartbeat { interval, timeout }) = heartbeat else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    // Start of the current period in which this process was not suspended.
    let mut listening_since = before;
    loop {
        ticks.tick().await;
        let now = Instant::now();
        if now - before > 2 * interval {
            // This process itself was suspended, so the silence says nothing about the peer.
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
    use crate::paths::Paths;
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

    /// Two connected ends with running drivers.
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
            channel.send(start()).await.expect("the connection is open");
        }
        tokio::spawn(async move {
            let mut code = 0;
            while let Some(mut channel) = calls.next().await {
                assert_eq!(channel.receive().await, Some(start()));
                code += 1;
                let mine = code;
                tokio::spawn(async move {
                    let Some(Frame::Data(Stream::STDIN, bytes)) = channel.receive().await else { panic!("input") };
                    channel.send(Frame::Data(Stream::STDOUT, bytes)).await.expect("the connection is open");
                    channel.send(ended(mine)).await.expect("the connection is open");
                });
            }
        });
        for (number, channel) in channels.iter_mut().enumerate() {
            channel.send(Frame::Data(Stream::STDIN, vec![number as u8])).await.expect("the connection is open");
        }
        for (number, channel) in channels.iter_mut().enumerate() {
            assert_eq!(channel.receive().await, Some(Frame::Data(Stream::STDOUT, vec![number as u8])));
            assert_eq!(channel.receive().await, Some(ended(number as i32 + 1)));
        }
        drop(channels);
        assert!(here.shared.channels.lock().expect("the lock is not poisoned").by_number.is_empty());
    }

    #[tokio::test]
    async fn dropping_a_channel_cancels_it_unless_it_has_ended() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut channel = here.open().expect("a channel");
        channel.send(start()).await.expect("the connection is open");
        let mut heard = calls.next().await.expect("an incoming channel");
        assert_eq!(heard.receive().await, Some(start()));
        drop(channel);
        assert_eq!(heard.receive().await, Some(Frame::Event(Event::Cancel)));
        // In the other direction, no frame follows the last one.
        let mut channel = here.open().expect("a channel");
        channel.send(start()).await.expect("the connection is open");
        let mut heard = calls.next().await.expect("an incoming channel");
        heard.send(ended(0)).await.expect("the connection is open");
        assert_eq!(channel.receive().await, Some(ended(0)));
        drop(channel);
        let mut next = here.open().expect("a channel");
        next.send(start()).await.expect("the connection is open");
        assert_eq!(heard.receive().await, Some(start()));
        calls.next().await.expect("an incoming channel");
        assert!(heard.incoming.try_recv().is_err(), "a channel that has ended sends no cancellation");
    }

    #[tokio::test]
    async fn ignoring_the_window_closes_only_that_channel() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut greedy = here.open().expect("a channel");
        greedy.send(start()).await.expect("the connection is open");
        let mut heard = calls.next().await.expect("an incoming channel");
        for _ in 0..=CHANNEL_LEN {
            greedy.send(Frame::Data(Stream::STDIN, vec![0; 100])).await.expect("the connection is open");
        }
        let mut modest = here.open().expect("a channel");
        modest.send(start()).await.expect("the connection is open");
        assert!(calls.next().await.is_some());
        let mut count = 0;
        while heard.receive().await.is_some() {
            count += 1;
        }
        assert_eq!(count, CHANNEL_LEN, "the window's frames arrive, then the channel is closed");
        // Any number of signals is allowed.
        for _ in 0..=CHANNEL_LEN {
            modest.send(Frame::Event(Event::Signal(28))).await.expect("the connection is open");
        }
        let mut third = here.open().expect("a channel");
        third.send(start()).await.expect("the connection is open");
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
        assert!(!own.responds(Duration::from_millis(10)).await, "the peer does not answer");
        drop(other);
        assert!(!own.responds(LONG).await, "a closed connection does not respond");
    }

    #[tokio::test]
    async fn closing_the_connection_closes_its_channels() {
        let (here, there) = duplex(1 << 16);
        let (own, _lines, run) = multiplex(here, None);
        let running = tokio::spawn(run);
        let mut channel = own.open().expect("a channel");
        drop(there);
        assert_eq!(channel.receive().await, None);
        running.await.expect("the driver closes the connection cleanly").expect("closed in order");
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
        assert!(!own.is_closed(), "a connection without channels stays open");
        let began = Instant::now();
        let mut channel = own.open().expect("a channel");
        assert_eq!(channel.receive().await, None);
        assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
        assert_eq!(running.await.expect("the peer is silent").expect_err("silent").kind(), io::ErrorKind::TimedOut);
    }
}
