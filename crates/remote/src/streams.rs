//! Passes a command's streams between its node's pipes and the channel to its caller.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::{Channel, ChannelSender};
use crate::frame::{Frame, PIECE_BYTES, Stream, WINDOW};
use crate::message::{Event, Reply, Report};
use hostler_model::WindowSize;

/// How long an output must be silent after the command's end to count as closed. Background processes may keep an
/// output open.
const QUIET: Duration = Duration::from_millis(100);

/// Maximum number of bytes read from an output after the command has ended. A pipe holds less, but a background process
/// may never stop writing.
const LEFTOVER_BYTES: usize = 1 << 20;

/// Timeout for sending the output that a stopped command wrote before the stop.
const STOP_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Poll interval while waiting for a terminal's remaining output.
const LOOK: Duration = Duration::from_millis(1);

/// The agent's ends of a command's streams. All are set to non-blocking mode.
#[derive(Debug, Default)]
pub struct Streams {
    /// The standard input, if any.
    pub input: Option<Input>,
    /// The standard output; `None` if it is on the terminal, or if the command uses the caller's own.
    pub output: Option<OwnedFd>,
    /// The standard error; `None` if it is on the terminal, or if the command writes it to the standard output.
    pub errors: Option<OwnedFd>,
    /// The other end of the command's terminal. Its output takes the place of the standard output or, if there is one, of
    /// the standard error.
    pub terminal: Option<OwnedFd>,
    /// A socket on which the command exchanges messages with its caller.
    pub messages: Option<OwnedFd>,
    /// Where copies of the outputs go.
    pub copies: Option<Copies>,
}

/// Where copies of the outputs of a step's process go.
#[derive(Debug, Clone)]
pub struct Copies {
    pub(crate) step: u32,
    /// The number of the process.
    pub(crate) rank: u32,
    pub(crate) to: broadcast::Sender<Copied>,
}

/// News about a step, for those who watch it.
#[derive(Debug, Clone)]
pub(crate) enum Copied {
    Output {
        step: u32,
        rank: u32,
        stream: Stream,
        bytes: Arc<[u8]>,
    },
    /// A process of the step, or the whole step with this exit code, has ended.
    Ended {
        step: u32,
        code: Option<i32>,
    },
}

impl Copies {
    fn add(&self, stream: Stream, bytes: &[u8]) {
        if self.to.receiver_count() > 0 && stream != Stream::MESSAGES {
            // Everybody may have just stopped watching.
            let _ = self.to.send(Copied::Output { step: self.step, rank: self.rank, stream, bytes: bytes.into() });
        }
    }
}

/// The input of a command.
#[derive(Debug)]
pub enum Input {
    /// A pipe: the end to write to, and the command's end, which serves to count unread bytes.
    Pipe(OwnedFd, Option<OwnedFd>),
    /// The input of the command's terminal.
    Terminal,
}

/// A caller's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Signal(i32),
    /// End the command, because its caller has disconnected.
    End,
}

/// A change of the command's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Became {
    Stopped(i32),
    Ended(Box<Report>),
}

/// Forwards a command's streams until `became` reports the end, and then sends the end to the caller. `wanted` receives
/// the caller's signals, and the request to end the command when the caller has disconnected.
pub async fn carry(
    channel: &mut Channel,
    streams: Streams,
    wanted: mpsc::Sender<Wanted>,
    became: mpsc::Receiver<Became>,
) {
    carry_home(channel, streams, wanted, became, async |_: &mut Channel, _: &mut Report| ()).await;
}

/// Like [`carry`], but calls `last` after the command has ended and all output is sent. `last` may send more frames and
/// change the report.
pub async fn carry_home(
    channel: &mut Channel,
    streams: Streams,
    wanted: mpsc::Sender<Wanted>,
    mut became: mpsc::Receiver<Became>,
    last: impl AsyncFnOnce(&mut Channel, &mut Report),
) {
    let say = channel.sender();
    let flows = match Flows::begin(streams, &say) {
        Ok(flows) => flows,
        Err(error) => {
            let _ = wanted.send(Wanted::End).await;
            let message = format!("the agent cannot forward the command's streams: {error}");
            let report = Report { code: 126, message: Some(message), ..Report::default() };
            return drop(channel.send(Frame::Reply(Reply::Ended(Box::new(report)))).await);
        }
    };
    let mut is_gone = false;
    let mut stopped = None;
    let mut report = loop {
        tokio::select! {
            () = flows.passed_on(stopped.map(|(_, until)| until)), if stopped.is_some() => {
                if let Some((signal, _)) = stopped.take() {
                    let _ = say.send(Frame::Event(Event::Stopped(signal))).await;
                }
            }
            frame = channel.receive(), if !is_gone => {
                if matches!(frame, Some(Frame::Event(Event::Signal(libc::SIGCONT)))) {
                    // The end makes an earlier stop obsolete.
                    stopped = None;
                }
                if !flows.execute_frame(frame, &wanted).await {
                    is_gone = true;
                    flows.stop_outputs();
                    let _ = wanted.send(Wanted::End).await;
                }
            }
            event = became.recv() => match event {
                // First pass on the output that the command wrote to its terminal before it stopped.
                Some(Became::Stopped(signal)) => stopped = Some((signal, Instant::now() + STOP_FLUSH_TIMEOUT)),
                Some(Became::Ended(report)) => break report,
                None => break lost(),
            },
        }
    };
    // A slow reader may still have to acknowledge output.
    flows.over.send_replace(true);
    let drained = flows.drained();
    tokio::pin!(drained);
    while !is_gone {
        tokio::select! {
            () = &mut drained => break,
            frame = channel.receive() => is_gone = !flows.execute_frame(frame, &wanted).await,
        }
    }
    report.input_bytes = flows.input_bytes();
    if !is_gone {
        last(channel, &mut report).await;
    }
    let _ = channel.send(Frame::Reply(Reply::Ended(report))).await;
}

fn lost() -> Box<Report> {
    let message = "the command's supervising process has ended; the exit status is unknown".to_owned();
    Box::new(Report { code: 125, message: Some(message), ..Report::default() })
}

/// The running transfers of a command's streams. Dropping this value stops the transfers.
struct Flows {
    input: mpsc::Sender<Option<Vec<u8>>>,
    /// The caller's messages to the command.
    messages: Option<mpsc::Sender<Option<Vec<u8>>>>,
    /// Bytes of input written to the command's pipe.
    taken: Arc<AtomicU64>,
    /// The command's end of its input pipe.
    unread: Option<OwnedFd>,
    terminal: Option<Arc<Pipe>>,
    /// Send window of each output: one permit for each piece that may be sent.
    rooms: [Arc<Semaphore>; 3],
    /// One notifier for each output, which fires when the caller no longer reads that output.
    closed: [Arc<Notify>; 3],
    over: watch::Sender<bool>,
    left: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Flows {
    fn begin(streams: Streams, say: &ChannelSender) -> io::Result<Self> {
        let output = streams.output.map(Pipe::of).transpose()?.map(Arc::new);
        let errors = streams.errors.map(Pipe::of).transpose()?.map(Arc::new);
        let terminal = streams.terminal.map(Pipe::of).transpose()?.map(Arc::new);
        let messages = streams.messages.map(Pipe::of).transpose()?.map(Arc::new);
        let is_terminal = matches!(streams.input, Some(Input::Terminal));
        let (stdin, unread) = match streams.input {
            None => (None, None),
            Some(Input::Terminal) => (terminal.clone(), None),
            Some(Input::Pipe(ours, its)) => (Some(Arc::new(Pipe::of(ours)?)), its),
        };
        let mut tasks = JoinSet::new();
        let (output, errors) = match (output, errors, &terminal) {
            (None, errors, Some(terminal)) => (Some(Arc::clone(terminal)), errors),
            (output, None, Some(terminal)) => (output, Some(Arc::clone(terminal))),
            (output, errors, Some(terminal)) => {
                tasks.spawn(discard(Arc::clone(terminal)));
                (output, errors)
            }
            (output, errors, None) => (output, errors),
        };
        let (input, pieces) = mpsc::channel(WINDOW + 2);
        let taken = Arc::new(AtomicU64::new(0));
        tasks.spawn(feed(pieces, Stream::STDIN, stdin, is_terminal, Arc::clone(&taken), say.clone()));
        let to_command = messages.clone().map(|socket| {
            let (messages, pieces) = mpsc::channel(WINDOW + 2);
            tasks.spawn(feed(pieces, Stream::MESSAGES, Some(socket), false, Arc::default(), say.clone()));
            messages
        });
        let rooms = [(); 3].map(|()| Arc::new(Semaphore::new(WINDOW)));
        let closed = [(); 3].map(|()| Arc::new(Notify::new()));
        let over = watch::Sender::new(false);
        let (count, left) = watch::channel(0);
        let outputs = [output, errors, messages];
        for ((pipe, stream), (room, closed)) in outputs.into_iter().zip(OUTPUTS).zip(rooms.iter().zip(&closed)) {
            let Some(pipe) = pipe else { continue };
            count.send_modify(|left| *left += 1);
            let (say, room, closed) = (say.clone(), Arc::clone(room), Arc::clone(closed));
            let (over, count, copies) = (over.subscribe(), count.clone(), streams.copies.clone());
            tasks.spawn(async move {
                let copy = |bytes: &[u8]| copies.iter().for_each(|copies| copies.add(stream, bytes));
                tokio::select! {
                    () = pass_on(&pipe, stream, &say, &room, over, copy) => {}
                    () = closed.notified() => {}
                }
                // Closing the pipe makes further writes of the command fail.
                drop(pipe);
                count.send_modify(|left| *left -= 1);
            });
        }
        Ok(Self { input, messages: to_command, taken, unread, terminal, rooms, closed, over, left, _tasks: tasks })
    }

    /// Executes a frame of the caller. Returns `false` when the caller has disconnected or violates the protocol.
    async fn execute_frame(&self, frame: Option<Frame>, wanted: &mpsc::Sender<Wanted>) -> bool {
        match frame {
            Some(Frame::Data(Stream::STDIN, piece)) => self.input.try_send(Some(piece)).is_ok(),
            Some(Frame::Close(Stream::STDIN)) => self.input.try_send(None).is_ok(),
            Some(Frame::Data(Stream::MESSAGES, piece)) => {
                self.messages.as_ref().is_some_and(|messages| messages.try_send(Some(piece)).is_ok())
            }
            Some(Frame::Event(Event::Signal(signal))) => {
                wanted.send(Wanted::Signal(signal)).await.is_ok() || *self.over.borrow()
            }
            Some(Frame::Event(Event::Resize(size))) => {
                if let Some(terminal) = &self.terminal {
                    terminal.resize(size);
                }
                true
            }
            Some(Frame::Credit(stream, pieces)) => {
                if let Some(room) = index_of(stream).map(|index| &self.rooms[index]) {
                    room.add_permits((pieces as usize).min(WINDOW));
                }
                true
            }
            Some(Frame::Close(stream)) => {
                if let Some(closed) = index_of(stream).map(|index| &self.closed[index]) {
                    closed.notify_one();
                }
                true
            }
            _ => false,
        }
    }

    /// Stops all outputs, because the caller has disconnected.
    fn stop_outputs(&self) {
        self.closed.iter().for_each(|closed| closed.notify_one());
    }

    /// Waits until all output of the terminal is sent, but at most until `until`. Background processes may never stop
    /// writing.
    async fn passed_on(&self, until: Option<Instant>) {
        let is_late = || until.is_none_or(|until| Instant::now() >= until);
        while self.terminal.as_ref().is_some_and(|terminal| terminal.has_more()) && !is_late() {
            sleep(LOOK).await;
        }
    }

    /// Waits until all output is sent.
    async fn drained(&self) {
        let mut left = self.left.clone();
        let _ = left.wait_for(|left| *left == 0).await;
    }

    /// Returns the number of input bytes that the command has read.
    fn input_bytes(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.unread.as_ref().map_or(taken, |own| taken.saturating_sub(unread_bytes(own)))
    }
}

/// What a command sends to its caller.
const OUTPUTS: [Stream; 3] = [Stream::STDOUT, Stream::STDERR, Stream::MESSAGES];

/// The index of an output in [`OUTPUTS`].
fn index_of(stream: Stream) -> Option<usize> {
    OUTPUTS.iter().position(|output| *output == stream)
}

/// Writes input to the command until the command closes its input.
async fn feed(
    mut pieces: mpsc::Receiver<Option<Vec<u8>>>,
    stream: Stream,
    mut stdin: Option<Arc<Pipe>>,
    is_terminal: bool,
    taken: Arc<AtomicU64>,
    say: ChannelSender,
) {
    while let Some(piece) = pieces.recv().await {
        match (piece, &stdin) {
            (Some(piece), Some(pipe)) => {
                if pipe.write_all(&piece, &taken).await.is_err() {
                    stdin = None;
                }
                let _ = say.send(Frame::Credit(stream, 1)).await;
            }
            (Some(_), None) => drop(say.send(Frame::Credit(stream, 1)).await),
            // End of input at a terminal: the end-of-file character.
            (None, Some(pipe)) if is_terminal => drop(pipe.write_all(&[4], &taken).await),
            (None, _) => stdin = None,
        }
    }
}

/// Sends an output until the output is closed, or the command has ended and the output is silent.
async fn pass_on(
    from: &Pipe,
    stream: Stream,
    say: &ChannelSender,
    room: &Semaphore,
    mut over: watch::Receiver<bool>,
    copy: impl Fn(&[u8]),
) {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut leftover = LEFTOVER_BYTES;
    loop {
        let Ok(place) = room.acquire().await else { return };
        let count = tokio::select! {
            biased;
            count = from.read(&mut buffer) => count,
            () = quiet(&mut over) => 0,
        };
        copy(&buffer[..count]);
        if count == 0 || leftover == 0 || say.send(Frame::Data(stream, buffer[..count].to_vec())).await.is_err() {
            return;
        }
        from.is_read.store(false, Ordering::SeqCst);
        place.forget();
        if *over.borrow() {
            leftover = leftover.saturating_sub(count);
        }
    }
}

/// Reads the output of a terminal that the caller does not show: both outputs of the command are redirected.
async fn discard(from: Arc<Pipe>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while from.read(&mut buffer).await > 0 {
        from.is_read.store(false, Ordering::SeqCst);
    }
}

async fn quiet(over: &mut watch::Receiver<bool>) {
    let _ = over.wait_for(|over| *over).await;
    sleep(QUIET).await;
}

/// One end of a pipe or of a terminal.
#[derive(Debug)]
struct Pipe {
    fd: AsyncFd<OwnedFd>,
    /// Whether data is being read, or was read but not sent.
    is_read: AtomicBool,
}

impl Pipe {
    fn of(fd: OwnedFd) -> io::Result<Self> {
        let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFL)?;
        let flags = nix::fcntl::OFlag::from_bits_truncate(flags) | nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        // SAFETY: an owned descriptor stays open and unchanged for as long as it is registered.
        let registered = unsafe { AsyncFd::register(fd) };
        let fd = registered.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { fd, is_read: AtomicBool::new(false) })
    }

    /// Returns whether data is readable, or was read but not sent.
    fn has_more(&self) -> bool {
        let mut wait = [PollFd::new(self.fd.get_ref().as_fd(), PollFlags::POLLIN)];
        let is_readable = poll(&mut wait, PollTimeout::ZERO).is_ok()
            && wait[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
        is_readable || self.is_read.load(Ordering::SeqCst)
    }

    /// Reads available data; returns 0 at the end of the data. A terminal without users reports its end as an error,
    /// which also counts as the end.
    async fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            let Ok(mut ready) = self.fd.readable().await else { return 0 };
            self.is_read.store(true, Ordering::SeqCst);
            let read = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer)?));
            if let Ok(Ok(count)) = read {
                return count;
            }
            self.is_read.store(false, Ordering::SeqCst);
            match read {
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return 0,
                _interrupted_or_would_block => {}
            }
        }
    }

    /// Writes all bytes, and adds the number of written bytes to `taken`.
    async fn write_all(&self, mut bytes: &[u8], taken: &AtomicU64) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.fd.writable().await?;
            match ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
                Ok(Ok(count)) => {
                    taken.fetch_add(count as u64, Ordering::Relaxed);
                    bytes = &bytes[count..];
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    fn resize(&self, size: WindowSize) {
        let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the pointer is to a local of the type that this request reads. An error is ignored: a closed
        // terminal needs no size.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    }
}

/// Returns the number of bytes in a pipe.
fn unread_bytes(pipe: &OwnedFd) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: the pointer is to a local of the type that this request writes.
    let asked = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if asked == 0 { u64::try_from(count).unwrap_or(0) } else { 0 }
}
