//! The program that people call, while its command runs on another node: it stands where the command would stand.
//!
//! Its streams are read and written on threads of their own, since a file or a terminal may take as long as it likes while signals want to be
//! passed on. Nothing is read before there is room for it on the way.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{Pid, Whence, getpgrp, lseek, tcgetpgrp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::connection::{Channel, multiplex};
use crate::frame::{Frame, PIECE_BYTES, Stream, WINDOW};
use crate::message::{Event, Refusal, Reply, Report};
use hostler_model::WindowSize;

/// Signals that the command gets in the place of whoever called it.
const PASSED_ON: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// How often a program in the background looks whether the terminal is its own.
const BACKGROUND: Duration = Duration::from_millis(200);

/// How long a terminal may take to show what a command that was stopped has said last: somebody may have stopped that, too.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the command has of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// It may read standard input.
    pub has_input: bool,
    /// It has the caller's terminal.
    pub has_terminal: bool,
}

/// How following a command ended.
#[derive(Debug)]
pub enum Ending {
    /// With the command.
    Ended(Box<Report>),
    /// Without it: its node, or the way there, has failed.
    Refused(Box<Refusal>),
    /// Without it: nobody can say what became of it. The way to it has broken.
    Lost(io::Error),
}

/// Stands for a command that has started at the other end of `stream` until that ends.
///
/// # Errors
/// When the system refuses what is needed to begin.
pub async fn follow(stream: UnixStream, shown: Shown) -> io::Result<Ending> {
    follow_home(stream, shown, &mut |_| false).await
}

/// As [`follow`], for a command that has taken its tree along: `home` takes the pieces of what it has written, and whether they belong here.
///
/// # Errors
/// As for [`follow`].
pub async fn follow_home(stream: UnixStream, shown: Shown, home: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<Ending> {
    stream.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let (own, _calls, run) = multiplex(stream, None);
    let mut channel = own.only_channel();
    let running = tokio::spawn(run);
    let mut signals = signals()?;
    let mut terminal = if shown.has_terminal { Some(Raw::begin()?) } else { None };
    let mut input = Input::begin(shown.has_input)?;
    let mut outputs = Outputs::default();
    let mut looks = interval(BACKGROUND);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ending = loop {
        let said = tokio::select! {
            frame = channel.receive() => match frame {
                Some(Frame::Reply(Reply::Ended(report))) => break Ending::Ended(report),
                Some(Frame::Reply(Reply::Refused(refusal))) => break Ending::Refused(refusal),
                Some(Frame::Event(Event::Stopped(_))) => stop(&mut channel, terminal.as_mut(), &mut outputs, &mut signals).await,
                Some(Frame::Data(Stream::TREE, piece)) if home(&piece) => {
                    channel.send(Frame::Credit(Stream::TREE, 1)).await
                },
                // Somebody has taken their time to let a command begin.
                Some(Frame::Credit(Stream::TREE, _)) => Ok(()),
                Some(frame) => hear(frame, &input, &mut outputs),
                None => Err(io::Error::new(ErrorKind::BrokenPipe, "the agent of this machine is gone")),
            },
            Some(number) = signals.recv() => pass_on(&mut channel, number, shown.has_terminal).await,
            // A shell says nothing when it gives the terminal to a job that is running.
            _ = looks.tick(), if terminal.as_ref().is_some_and(|raw| !raw.is_taken) => {
                terminal.iter_mut().for_each(Raw::enter);
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
    tokio::select! {
        () = outputs.finish() => {}
        // Nobody may be reading what is left, and whoever called has had enough of it.
        Some(()) = told_to_end(&mut signals) => {}
    }
    if let Ending::Ended(report) = &ending {
        input.give_back(report.input_bytes);
    }
    // Not before all is written: what a terminal wrote there is not for the terminal here to change.
    drop(terminal);
    running.abort();
    Ok(ending)
}

/// Ends when this program is told to.
async fn told_to_end(signals: &mut mpsc::Receiver<libc::c_int>) -> Option<()> {
    loop {
        let number = signals.recv().await?;
        if matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
            return Some(());
        }
    }
}

/// Takes what has come for the streams.
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
    let strange = || io::Error::new(ErrorKind::InvalidData, "the agent does not speak this protocol");
    is_proper.then_some(()).ok_or_else(strange)
}

async fn pass_on(channel: &mut Channel, number: libc::c_int, has_terminal: bool) -> io::Result<()> {
    match number {
        libc::SIGWINCH => match window_size() {
            Some(size) if has_terminal => channel.send(Frame::Event(Event::Resize(size))).await,
            _ => Ok(()),
        },
        _ => channel.send(Frame::Event(Event::Signal(number))).await,
    }
}

/// The command is stopped: so is this program, until somebody continues it; then the command is, too.
async fn stop(
    channel: &mut Channel,
    mut terminal: Option<&mut Raw>,
    outputs: &mut Outputs,
    signals: &mut mpsc::Receiver<libc::c_int>,
) -> io::Result<()> {
    if let Some(raw) = &mut terminal {
        // What it has said to its terminal last is meant for the terminal as it is: it leaves its screen, for instance.
        let until = Instant::now() + LAST_WORDS;
        while outputs.unwritten > 0
            && let Ok(frame) = timeout_at(until, outputs.done()).await
        {
            channel.send(frame).await?;
        }
        raw.leave();
    }
    match terminal {
        // As the terminal itself would have done it: whoever else belongs to this job is stopped, too.
        Some(_) => drop(kill(Pid::from_raw(0), Signal::SIGSTOP)),
        None => drop(raise(Signal::SIGSTOP)),
    }
    // Somebody has continued it, and that has been noticed here as well.
    while let Ok(number) = signals.try_recv() {
        if number != libc::SIGCONT {
            pass_on(channel, number, false).await?;
        }
    }
    if let Some(raw) = terminal {
        raw.enter();
        if let Some(size) = window_size() {
            channel.send(Frame::Event(Event::Resize(size))).await?;
        }
    }
    channel.send(Frame::Event(Event::Signal(libc::SIGCONT))).await
}

/// The signals that this process gets, from now on.
fn signals() -> io::Result<mpsc::Receiver<libc::c_int>> {
    let (sender, receiver) = mpsc::channel(64);
    for number in PASSED_ON.into_iter().filter(|number| !is_ignored(*number)) {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // Where signals are sent faster than they can be passed on, some of a kind are one, as everywhere.
                let _ = sender.try_send(number);
            }
        });
    }
    // Writing to a terminal from the background is for the terminal to forbid, and reading is looked after below.
    let mut readers = SigSet::empty();
    readers.add(Signal::SIGTTIN);
    readers.thread_block()?;
    Ok(receiver)
}

/// Whether whoever started this program wants a signal to be ignored, as `nohup` does; then the command is not to have it either.
fn is_ignored(number: libc::c_int) -> bool {
    // SAFETY: all zeroes is a valid sigaction, which the call overwrites; nothing is installed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// The size of the caller's window.
pub(crate) fn window_size() -> Option<WindowSize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is to a local of the type that this request writes.
    let asked = unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (asked == 0 && size.ws_row > 0).then_some(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

/// The caller's terminal, which takes every key as it is while the command has it. Dropping it makes it as it was.
struct Raw {
    before: Termios,
    is_taken: bool,
}

impl Raw {
    fn begin() -> io::Result<Self> {
        let mut raw = Self { before: tcgetattr(standard(0))?, is_taken: false };
        raw.enter();
        Ok(raw)
    }

    /// Takes it, if it is this program's to take.
    fn enter(&mut self) {
        if is_in_background() {
            return;
        }
        // In the background it was as the shell has it for itself.
        if !self.is_taken
            && let Ok(now) = tcgetattr(standard(0))
        {
            self.before = now;
        }
        self.is_taken = true;
        let mut raw = self.before.clone();
        cfmakeraw(&mut raw);
        let _ = tcsetattr(standard(0), SetArg::TCSADRAIN, &raw);
    }

    fn leave(&mut self) {
        if self.is_taken && !is_in_background() {
            let _ = tcsetattr(standard(0), SetArg::TCSADRAIN, &self.before);
            self.is_taken = false;
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether another job has the terminal at the moment.
fn is_in_background() -> bool {
    tcgetpgrp(standard(0)).is_ok_and(|foreground| foreground != getpgrp())
}

/// A standard stream, which nobody here closes.
fn standard(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the standard streams are open for as long as the process is; one that was closed before it began is an error when it is used.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// What the command reads.
struct Input {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Pieces that may be on the way.
    room: Arc<Semaphore>,
    /// Whether it has ended, and that has been said.
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
        // Of what has ended nobody has to read: `make` gives all that it starts at once, but one, a pipe that nobody can write to.
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

    /// The next piece, and `None` once at its end. Never ends after that.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.is_over {
            return std::future::pending().await;
        }
        self.pieces.recv().await
    }

    fn sent(&mut self, piece: Option<&Vec<u8>>) {
        self.is_over |= piece.is_none();
    }

    /// Of a file, leaves what the command has not read for whoever reads on.
    fn give_back(&mut self, input_bytes: u64) {
        self.ended.store(true, Ordering::SeqCst);
        self.pieces.close();
        if !is_file(0) {
            return;
        }
        // A file is read at once, so that whoever still reads is done in a moment and is heard by its piece.
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

/// The next piece of standard input; `None` at its end, or when nobody wants it any more.
fn read_piece(ended: &AtomicBool) -> Option<Vec<u8>> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut wait = [PollFd::new(standard(0), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(BACKGROUND).expect("it is short");
        let ready = poll(&mut wait, patience);
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
            // Another job has the terminal.
            Err(nix::errno::Errno::EIO) if is_in_background() => {}
            Err(_) => return None,
        }
    }
}

/// Whether a stream has nothing to read, and nobody who could write to it: to read it would be to hear of its end.
fn is_at_end(stream: BorrowedFd<'_>) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::POLLIN)];
    poll(&mut look, PollTimeout::ZERO).is_ok() && look[0].revents() == Some(PollFlags::POLLHUP)
}

fn is_file(number: RawFd) -> bool {
    nix::sys::stat::fstat(standard(number)).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// What the command writes. Each stream has a thread of its own, from the first piece on: most commands say nothing.
#[derive(Default)]
struct Outputs {
    writers: [Option<mpsc::Sender<Vec<u8>>>; 2],
    /// What is to be said of what was written.
    done: Option<(mpsc::Sender<Frame>, mpsc::Receiver<Frame>)>,
    /// Pieces that are yet to be written.
    unwritten: usize,
}

impl Outputs {
    /// Has a piece written; whether it was to come. The queue is as long as the window: what does not fit was not to be sent.
    fn write(&mut self, stream: Stream, piece: Vec<u8>) -> bool {
        let Some(index) = [Stream::STDOUT, Stream::STDERR].iter().position(|output| *output == stream) else {
            return false;
        };
        let (say, _) = self.done.get_or_insert_with(|| mpsc::channel(4 * WINDOW));
        let writer = self.writers[index].get_or_insert_with(|| writer(stream, index as RawFd + 1, say.clone()));
        self.unwritten += 1;
        writer.try_send(piece).is_ok()
    }

    /// The next thing to say of what was written.
    async fn done(&mut self) -> Frame {
        let Some((_, done)) = &mut self.done else { return std::future::pending().await };
        let frame = done.recv().await.expect("one sender is here");
        // Of what comes for a stream that is closed nothing more is said.
        self.unwritten = if matches!(frame, Frame::Close(_)) { 0 } else { self.unwritten.saturating_sub(1) };
        frame
    }

    /// Writes what has come.
    async fn finish(self) {
        drop(self.writers);
        let Some((say, mut done)) = self.done else { return };
        drop(say);
        while done.recv().await.is_some() {}
    }
}

/// Writes a stream to a descriptor of this process, on a thread.
fn writer(stream: Stream, descriptor: RawFd, say: mpsc::Sender<Frame>) -> mpsc::Sender<Vec<u8>> {
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(WINDOW + 1);
    std::thread::spawn(move || {
        // SAFETY: the stream is open for as long as the process is, and is not closed here.
        let mut output = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        while let Some(piece) = waiting.blocking_recv() {
            if write_all(&mut output, &piece).is_err() {
                let _ = say.blocking_send(Frame::Close(stream));
                // What is still on the way goes nowhere.
                while waiting.blocking_recv().is_some() {}
                return;
            }
            let _ = say.blocking_send(Frame::Credit(stream, 1));
        }
    });
    pieces
}

/// Writes all of it, also where whoever shares the stream does not want to wait.
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
    fn a_stream_is_at_its_end_when_nothing_can_come_of_it_any_more() {
        for other in ["/dev/zero", "/etc/passwd"] {
            assert!(!is_at_end(File::open(other).expect("everywhere").as_fd()), "{other}");
        }
        let (read, mut write) = pipe().expect("a pipe");
        assert!(!is_at_end(read.as_fd()), "somebody may write");
        write.write_all(b"x").expect("there is room");
        drop(write);
        assert!(!is_at_end(read.as_fd()), "something is to be read");
        (&read).read_exact(&mut [0]).expect("that");
        assert!(is_at_end(read.as_fd()));
        let (here, there) = UnixStream::pair().expect("a pair");
        assert!(!is_at_end(here.as_fd()));
        drop(there);
        assert!(!is_at_end(here.as_fd()), "its end is to be read, and that costs little");
    }
}
