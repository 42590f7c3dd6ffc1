//! The caller's program while its command runs on another node. It forwards streams, signals and the exit status.
//!
//! Separate threads read and write the standard streams, because a file or a terminal may block. Signals are passed
//! on meanwhile. Input is read only when the window allows another piece.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hostler_sys::{RawTerminal, is_in_background, window_size};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, Whence, lseek};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::connection::{Channel, multiplex};
use crate::frame::{Frame, PIECE_BYTES, Stream, WINDOW};
use crate::message::{Event, Refusal, Reply, Report};
use crate::signals::{HeldSignals, caught};
use hostler_model::WindowSize;

/// Interval at which this program, while in the background, checks whether it is in the foreground again.
const BACKGROUND: Duration = Duration::from_millis(200);

/// Timeout for writing a stopped command's last output to the terminal. The terminal's output may itself be stopped.
const STOP_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Exit code for a command that succeeded, but whose output could not be written.
const OUTPUT_LOST: i32 = 125;

/// Which of this program's streams the command uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub has_input: bool,
    /// Whether a stream of the command is on the caller's terminal.
    pub has_terminal: bool,
    /// Whether the command gets each key of the terminal.
    pub is_interactive: bool,
}

/// How following a command ended.
#[derive(Debug)]
pub enum Ending {
    /// The command ended.
    Ended(Box<Report>),
    /// The node refused the command, or the local agent lost its connection to the node.
    Refused(Box<Refusal>),
    /// The connection to the local agent broke, so the command's outcome is unknown.
    Lost(io::Error),
}

/// Forwards streams and signals between this program and a started command at the other end of `stream`, until the
/// command ends.
///
/// # Errors
/// Fails when the system refuses a resource needed at the start.
pub async fn follow(stream: UnixStream, shown: Shown) -> io::Result<Ending> {
    follow_home(stream, shown, None, &mut |_| false).await
}

/// Like [`follow`], for a command with a mirrored tree. Calls `home` with each piece of the files that the command
/// wrote; `home` returns whether the piece is valid. Passes on the signals that `held` has kept.
///
/// # Errors
/// As for [`follow`].
pub async fn follow_home(
    stream: UnixStream,
    shown: Shown,
    held: Option<HeldSignals>,
    home: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<Ending> {
    stream.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let (own, _calls, run) = multiplex(stream, None);
    let mut channel = own.only_channel();
    let running = tokio::spawn(run);
    let mut signals = caught(held)?;
    let mut terminal = if shown.is_interactive { Some(RawTerminal::begin()?) } else { None };
    let mut input = Input::begin(shown.has_input)?;
    let mut outputs = Outputs::default();
    let mut looks = interval(BACKGROUND);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ending = loop {
        let said = tokio::select! {
            frame = channel.receive() => match frame {
                Some(Frame::Reply(Reply::Ended(report))) => break Ending::Ended(report),
                Some(Frame::Reply(Reply::Refused(refusal))) => break Ending::Refused(refusal),
                Some(Frame::Event(Event::Stopped(_))) => stop(&mut channel, terminal.as_mut(), &mut outputs, &mut signals).await,
                Some(Frame::Data(Stream::TREE, piece)) if home(&piece) => {
                    channel.send(Frame::Credit(Stream::TREE, 1)).await
                },
                // The node sends this as a keep-alive before the command starts.
                Some(Frame::Credit(Stream::TREE, _)) => Ok(()),
                Some(frame) => hear(frame, &input, &mut outputs),
                None => Err(io::Error::new(ErrorKind::BrokenPipe, "the agent of this machine closed the connection")),
            },
            Some(number) = signals.recv() => pass_on(&mut channel, number, shown.has_terminal).await,
            // The shell sends no signal when it moves a running job to the foreground.
            _ = looks.tick(), if terminal.as_ref().is_some_and(|raw| !raw.is_raw()) => {
                terminal.iter_mut().for_each(RawTerminal::enter);
                Ok(())
            }
            piece = input.next() => {
                input.sent(piece.as_ref());
                let end = Frame::Close(Stream::STDIN);
                channel.send(piece.map_or(end, |piece| Frame::Data(Stream::STDIN, piece))).await
            }
            frame = outputs.done() => channel.send(frame).await,
        };
        if let Err(error) = said {
            break Ending::Lost(error);
        }
    };
    let lost = tokio::select! {
        lost = outputs.finish() => lost,
        // The remaining output may block on a slow reader; a termination signal skips it.
        Some(()) = termination_signal(&mut signals) => None,
    };
    if let Ending::Ended(report) = &mut ending {
        input.rewind(report.input_bytes);
        if let Some(error) = lost {
            report_lost_output(report, &error);
        }
    }
    // Restore the terminal only after all output is written: the local terminal must not process the remote terminal's
    // output a second time.
    drop(terminal);
    running.abort();
    Ok(ending)
}

/// Adds a failed write of the output to the report. A closed pipe is not an error: the command itself gets SIGPIPE at its
/// next write, as it does here.
fn report_lost_output(report: &mut Report, error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        return;
    }
    let lost = format!("cannot write the output of the command: {error}");
    report.message = Some(report.message.take().map_or_else(|| lost.clone(), |message| format!("{message}; {lost}")));
    if report.code == 0 {
        report.code = OUTPUT_LOST;
    }
}

/// Waits until this program receives a termination signal.
async fn termination_signal(signals: &mut mpsc::Receiver<libc::c_int>) -> Option<()> {
    loop {
        let number = signals.recv().await?;
        if matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
            return Some(());
        }
    }
}

/// Applies a received frame to the streams. Any other frame is an error.
fn hear(frame: Frame, input: &Input, outputs: &mut Outputs) -> io::Result<()> {
    let is_proper = match frame {
        Frame::Credit(Stream::STDIN, pieces) => {
            input.room.add_permits((pieces as usize).min(WINDOW));
            true
        }
        Frame::Data(stream, bytes) => outputs.write(stream, bytes),
        Frame::Reply(Reply::Started(_)) => true,
        _ => false,
    };
    let strange = || io::Error::new(ErrorKind::InvalidData, "the agent sent an unexpected frame");
    is_proper.then_some(()).ok_or_else(strange)
}

async fn pass_on(channel: &mut Channel, number: libc::c_int, has_terminal: bool) -> io::Result<()> {
    match number {
        libc::SIGWINCH => match window() {
            Some(size) if has_terminal => channel.send(Frame::Event(Event::Resize(size))).await,
            _ => Ok(()),
        },
        _ => channel.send(Frame::Event(Event::Signal(number))).await,
    }
}

/// Stops this program because the command was stopped. Continues the command when this program is continued.
async fn stop(
    channel: &mut Channel,
    mut terminal: Option<&mut RawTerminal>,
    outputs: &mut Outputs,
    signals: &mut mpsc::Receiver<libc::c_int>,
) -> io::Result<()> {
    if let Some(raw) = &mut terminal {
        // Show the command's last output before the terminal is restored; for instance, it may leave the alternate
        // screen.
        let until = Instant::now() + STOP_FLUSH_TIMEOUT;
        while outputs.unwritten > 0
            && let Ok(frame) = timeout_at(until, outputs.done()).await
        {
            channel.send(frame).await?;
        }
        raw.leave();
    }
    match terminal {
        // Stop the whole process group, as the terminal would.
        Some(_) => drop(kill(Pid::from_raw(0), Signal::SIGSTOP)),
        None => drop(raise(Signal::SIGSTOP)),
    }
    // Discard the SIGCONT that this process received too.
    while let Ok(number) = signals.try_recv() {
        if number != libc::SIGCONT {
            pass_on(channel, number, false).await?;
        }
    }
    if let Some(raw) = terminal {
        raw.enter();
        if let Some(size) = window() {
            channel.send(Frame::Event(Event::Resize(size))).await?;
        }
    }
    channel.send(Frame::Event(Event::Signal(libc::SIGCONT))).await
}

/// Returns the size of the terminal window that one of this program's streams is on.
fn window() -> Option<WindowSize> {
    (0..3).find_map(|stream| window_size(standard(stream))).map(|(rows, columns)| WindowSize { rows, columns })
}

/// Borrows a standard stream.
pub(crate) fn standard(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: this process never closes its standard streams. If one was closed before the start, each use returns an
    // error.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// The command's standard input.
struct Input {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Send window: one permit for each piece that may be sent.
    room: Arc<Semaphore>,
    /// Whether the end of the input was sent to the command.
    is_over: bool,
    read_bytes: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Input {
    fn begin(has_input: bool) -> io::Result<Self> {
        let (sender, pieces) = mpsc::channel(1);
        let input = Self {
            pieces,
            room: Arc::new(Semaphore::new(WINDOW)),
            is_over: !has_input,
            read_bytes: Arc::default(),
            ended: Arc::default(),
        };
        // Skip a reader thread for an input that is already at its end. `make` gives such a pipe to all jobs but one.
        if has_input && !is_at_end(standard(0)) {
            let (room, count, ended) =
                (Arc::clone(&input.room), Arc::clone(&input.read_bytes), Arc::clone(&input.ended));
            let runtime = tokio::runtime::Handle::current();
            let read = move || {
                while let Ok(permit) = runtime.block_on(room.acquire()) {
                    permit.forget();
                    match read_piece(&ended) {
                        Some(piece) => {
                            count.fetch_add(piece.len() as u64, Ordering::SeqCst);
                            if sender.blocking_send(piece).is_err() {
                                return;
                            }
                        }
                        None => return,
                    }
                }
            };
            std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
        }
        Ok(input)
    }

    /// Returns the next piece, and `None` once at the end of the input. Later calls never return.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_over {
            return std::future::pending().await;
        }
        self.pieces.recv().await
    }

    fn sent(&mut self, piece: Option<&Vec<u8>>) {
        self.is_over |= piece.is_none();
    }

    /// If the input is a file, moves the offset back to the first byte that the command has not read. The next reader
    /// of the file then gets this byte.
    fn rewind(&mut self, input_bytes: u64) {
        self.ended.store(true, Ordering::SeqCst);
        self.pieces.close();
        if !is_file(0) {
            return;
        }
        // Reading a file does not block, so the reader thread soon delivers its last piece.
        let read = loop {
            let before = self.read_bytes.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            if self.read_bytes.load(Ordering::SeqCst) == before {
                break before;
            }
        };
        let rest = i64::try_from(read.saturating_sub(input_bytes)).unwrap_or(0);
        if rest > 0 {
            let _ = lseek(standard(0), -rest, Whence::SeekCur);
        }
    }
}

/// Reads the next piece of standard input; `None` at the end of the input, or after the end of the command.
pub(crate) fn read_piece(ended: &AtomicBool) -> Option<Vec<u8>> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut wait = [PollFd::new(standard(0), PollFlags::POLLIN)];
        let retry_limits = PollTimeout::try_from(BACKGROUND).expect("the interval fits into a poll timeout");
        let ready = poll(&mut wait, retry_limits);
        if ended.load(Ordering::SeqCst) {
            return None;
        }
        if ready == Ok(0) || is_in_background() {
            if ready != Ok(0) {
                std::thread::sleep(BACKGROUND);
            }
            continue;
        }
        match nix::unistd::read(standard(0), &mut piece) {
            Ok(0) => return None,
            Ok(count) => {
                piece.truncate(count);
                return Some(piece);
            }
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
            // Another job is in the foreground.
            Err(nix::errno::Errno::EIO) if is_in_background() => {}
            Err(_) => return None,
        }
    }
}

/// Returns whether a stream is at its end: no data is left and nobody can write more.
pub(crate) fn is_at_end(stream: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::POLLIN)];
    poll(&mut look, PollTimeout::ZERO).is_ok() && look[0].revents() == Some(PollFlags::POLLHUP)
}

fn is_file(number: RawFd) -> bool {
    nix::sys::stat::fstat(standard(number)).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// The command's outputs. A stream's writer thread starts with the stream's first piece, because most commands write
/// nothing.
#[derive(Default)]
struct Outputs {
    writers: [Option<mpsc::Sender<Vec<u8>>>; 2],
    /// Queue of the frames that acknowledge written pieces.
    done: Option<(mpsc::Sender<Frame>, mpsc::Receiver<Frame>)>,
    /// Number of pieces not yet written.
    unwritten: usize,
    /// The first failed write.
    lost: Arc<OnceLock<io::Error>>,
}

impl Outputs {
    /// Queues a piece for writing. Returns `false` if the node sent more pieces than the window allows.
    fn write(&mut self, stream: Stream, piece: Vec<u8>) -> bool {
        let Some(index) = [Stream::STDOUT, Stream::STDERR].iter().position(|output| *output == stream) else {
            return false;
        };
        let (say, _) = self.done.get_or_insert_with(|| mpsc::channel(4 * WINDOW));
        let writer = self.writers[index]
            .get_or_insert_with(|| writer(stream, index as RawFd + 1, say.clone(), Arc::clone(&self.lost)));
        self.unwritten += 1;
        writer.try_send(piece).is_ok()
    }

    /// Returns the next frame that acknowledges written pieces.
    async fn done(&mut self) -> Frame {
        let Some((_, done)) = &mut self.done else { return std::future::pending().await };
        let frame = done.recv().await.expect("this struct keeps the channel open with a sender");
        // No further replies follow for a closed stream.
        self.unwritten = if matches!(frame, Frame::Close(_)) { 0 } else { self.unwritten.saturating_sub(1) };
        frame
    }

    /// Waits until all received pieces are written. Returns the first error.
    async fn finish(self) -> Option<io::Error> {
        drop(self.writers);
        let (say, mut done) = self.done?;
        drop(say);
        while done.recv().await.is_some() {}
        // The writer threads have ended or are about to.
        let error = self.lost.get()?;
        Some(error.raw_os_error().map_or_else(|| io::Error::from(error.kind()), io::Error::from_raw_os_error))
    }
}

/// Starts a thread that writes a stream to a descriptor of this process.
fn writer(
    stream: Stream,
    descriptor: RawFd,
    say: mpsc::Sender<Frame>,
    lost: Arc<OnceLock<io::Error>>,
) -> mpsc::Sender<Vec<u8>> {
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(WINDOW + 1);
    std::thread::spawn(move || {
        // SAFETY: the stream stays open for as long as the process runs, and `ManuallyDrop` prevents closing it here.
        let mut output = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        while let Some(piece) = waiting.blocking_recv() {
            if let Err(error) = write_all(&mut output, &piece) {
                let _ = lost.set(error);
                let _ = say.blocking_send(Frame::Close(stream));
                // Discard the remaining pieces.
                while waiting.blocking_recv().is_some() {}
                return;
            }
            let _ = say.blocking_send(Frame::Credit(stream, 1));
        }
    });
    pieces
}

/// Writes all bytes, also when another process has made the stream non-blocking.
fn write_all(stream: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match io::Write::write(stream, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn stream_is_at_end_when_no_more_data_can_arrive() {
        for other in ["/dev/zero", "/etc/passwd"] {
            assert!(!is_at_end(File::open(other).expect("the file exists").as_fd()), "{other}");
        }
        let (read, mut write) = pipe().expect("a pipe");
        assert!(!is_at_end(read.as_fd()), "the pipe has a writer");
        write.write_all(b"x").expect("the pipe has space");
        drop(write);
        assert!(!is_at_end(read.as_fd()), "the pipe holds a byte");
        (&read).read_exact(&mut [0]).expect("the pipe holds a byte");
        assert!(is_at_end(read.as_fd()));
        let (here, there) = UnixStream::pair().expect("a pair");
        assert!(!is_at_end(here.as_fd()));
        drop(there);
        assert!(!is_at_end(here.as_fd()), "the end of a socket is found by reading");
    }
}
