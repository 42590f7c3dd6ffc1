//! Many calls on one connection.
//!
//! Two tasks serve it, one for each direction. What comes is sorted into the lines' own queues, which are as long as a line may have pieces on
//! the way: so the reader waits for nobody. What goes out is gathered from all lines in the order in which they speak.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, timeout};

use crate::frame::{Frame, Refusal, RefusalKind};
use crate::wire::{self, WINDOW};

/// What a line may have waiting: both outputs at their most, acknowledgements of input, and a few words.
const LINE_LEN: usize = 3 * WINDOW + 16;

/// What all lines together may have waiting to be sent.
const OUTGOING_LEN: usize = 64;

/// Frames that are sent with one call of the system.
const GATHERED: usize = 64;

/// The most calls on a connection at a time: beyond that the other side is told to go elsewhere.
const MOST_LINES: usize = 1024;

/// Calls that nobody has taken up yet.
const KNOCKING: usize = 64;

/// How a connection is watched whose other side may vanish without a word, while there are calls on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// How often it is looked after; the other side is asked for a word after such a silence.
    pub look: Duration,
    /// After which silence it is given up.
    pub silence: Duration,
}

impl Watch {
    /// For nodes.
    pub const NODE: Self = Self { look: Duration::from_secs(2), silence: Duration::from_secs(10) };
}

/// For so long it is not asked whether somebody who was heard is still there.
const FRESH: Duration = Duration::from_secs(2);

/// How long a connection that ends may take to send what was said last.
const FAREWELL: Duration = Duration::from_secs(2);

/// One side of a connection; cheap to clone.
#[derive(Debug, Clone)]
pub struct Trunk {
    shared: Arc<Shared>,
}

/// Calls that the other side makes.
#[derive(Debug)]
pub struct Lines(mpsc::Receiver<Line>);

/// One call on a connection. Dropping it before its last frame cancels the call.
#[derive(Debug)]
pub struct Line {
    number: u32,
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<Frame>,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    lines: Mutex<Table>,
    outgoing: mpsc::Sender<(u32, Frame)>,
    /// Whether the connection is gone.
    gone: watch::Sender<bool>,
    /// When the other side was last heard.
    heard: watch::Sender<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u32, mpsc::Sender<Frame>>,
    last: u32,
    /// When the first of them began, after there was none.
    busy_since: Option<Instant>,
}

/// Makes a trunk of a connection: one to make calls with, those that the other side makes, and what carries them all, which ends with the
/// connection.
pub fn trunk<S>(stream: S, watch: Option<Watch>) -> (Trunk, Lines, impl Future<Output = io::Result<()>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (outgoing, said) = mpsc::channel(OUTGOING_LEN);
    let (knock, knocking) = mpsc::channel(KNOCKING);
    let shared = Arc::new(Shared {
        lines: Mutex::default(),
        outgoing,
        gone: watch::Sender::new(false),
        heard: watch::Sender::new(Instant::now()),
    });
    let trunk = Trunk { shared: Arc::clone(&shared) };
    let end = End(Arc::clone(&shared));
    let run = async move {
        let _end = end;
        let (from, to) = tokio::io::split(stream);
        tokio::select! {
            outcome = receive(from, &shared, &knock) => outcome,
            outcome = send(said, to) => outcome,
            error = look_after(&shared, watch) => Err(error),
        }
    };
    (trunk, Lines(knocking), run)
}

/// The end of a connection, also of one that is no longer carried: all lines hear of it.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.0.lines).by_number.clear();
        self.0.gone.send_replace(true);
    }
}

impl Trunk {
    /// A new call; `None` when there are too many, or the connection is gone.
    #[must_use]
    pub fn call(&self) -> Option<Line> {
        let mut table = lock(&self.shared.lines);
        if table.by_number.len() >= MOST_LINES || *self.shared.gone.borrow() {
            return None;
        }
        loop {
            table.last = table.last.wrapping_add(1);
            if !table.by_number.contains_key(&table.last) {
                break;
            }
        }
        let number = table.last;
        Some(self.shared.line(&mut table, number))
    }

    /// The one call of a connection that has one, begun before the trunk was made.
    #[must_use]
    pub fn only_line(&self) -> Line {
        self.shared.line(&mut lock(&self.shared.lines), 0)
    }

    /// Whether the other side is there: it was heard a moment ago, or answers within `patience`.
    pub async fn answers(&self, patience: Duration) -> bool {
        if self.shared.heard.borrow().elapsed() < FRESH {
            return true;
        }
        self.says_something(patience).await
    }

    /// Whether the other side, asked now, is heard within `patience`. Whoever is not let in may hear of that only after they have been through the
    /// door themselves: so a new connection is one when something has come of it.
    pub async fn says_something(&self, patience: Duration) -> bool {
        let (mut heard, mut gone) = (self.shared.heard.subscribe(), self.shared.gone.subscribe());
        let ask = async { self.shared.outgoing.send((0, Frame::Ping)).await.is_ok() && heard.changed().await.is_ok() };
        let answer = async {
            tokio::select! {
                is_heard = ask => is_heard,
                _ = gone.wait_for(|gone| *gone) => false,
            }
        };
        timeout(patience, answer).await.unwrap_or(false) && !self.is_gone()
    }

    /// Whether nothing can be said on it any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        *self.shared.gone.borrow()
    }
}

impl Lines {
    /// The next call of the other side; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<Line> {
        self.0.recv().await
    }
}

impl Table {
    /// Since when there has been a call at any time; `None` while there is none.
    fn busy_since(&self) -> Option<Instant> {
        self.busy_since.filter(|_| !self.by_number.is_empty())
    }
}

impl Shared {
    fn line(self: &Arc<Self>, table: &mut Table, number: u32) -> Line {
        let (sender, incoming) = mpsc::channel(LINE_LEN);
        if table.by_number.is_empty() {
            table.busy_since = Some(Instant::now());
        }
        table.by_number.insert(number, sender);
        Line { number, shared: Arc::clone(self), incoming, is_over: false }
    }
}

impl Line {
    /// Says something.
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.is_over |= frame.is_last();
        self.speaker().send(frame).await
    }

    /// The next thing that the other side says; `None` when the connection is gone.
    pub async fn receive(&mut self) -> Option<Frame> {
        let frame = self.incoming.recv().await;
        self.is_over |= frame.as_ref().is_none_or(Frame::is_last);
        frame
    }

    /// Somebody else who speaks on this line. What is said after the line is dropped is lost on the other side.
    pub(crate) fn speaker(&self) -> Speaker {
        Speaker { number: self.number, outgoing: self.shared.outgoing.clone() }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        lock(&self.shared.lines).by_number.remove(&self.number);
        if self.is_over || *self.shared.gone.borrow() {
            return;
        }
        if let Err(TrySendError::Full((number, frame))) = self.shared.outgoing.try_send((self.number, Frame::Cancel)) {
            let outgoing = self.shared.outgoing.clone();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { outgoing.send((number, frame)).await });
            }
        }
    }
}

/// One who speaks on a line.
#[derive(Debug, Clone)]
pub(crate) struct Speaker {
    number: u32,
    outgoing: mpsc::Sender<(u32, Frame)>,
}

impl Speaker {
    pub(crate) async fn send(&self, frame: Frame) -> io::Result<()> {
        self.outgoing.send((self.number, frame)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Frame {
    /// Whether nothing follows on its line.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Here(_) | Self::Explained(_) | Self::Refused(_) | Self::Ended(_) | Self::Cancel)
    }

    /// Whether it begins a line.
    const fn is_first(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Start(_))
    }

    /// Whether it may be lost where there are too many.
    const fn is_dispensable(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::Resize(_))
    }
}

/// Sorts what comes.
async fn receive(mut from: impl AsyncRead + Unpin, shared: &Arc<Shared>, knock: &mpsc::Sender<Line>) -> io::Result<()> {
    while let Some((number, frame)) = wire::read(&mut from).await? {
        shared.heard.send_replace(Instant::now());
        match frame {
            // Whoever is too busy to answer is heard anyway.
            Frame::Ping => drop(shared.outgoing.try_send((number, Frame::Pong))),
            Frame::Pong => {}
            frame => sort(shared, knock, number, frame),
        }
    }
    Ok(())
}

fn sort(shared: &Arc<Shared>, knock: &mpsc::Sender<Line>, number: u32, frame: Frame) {
    let mut table = lock(&shared.lines);
    let Some(line) = table.by_number.get(&number) else {
        // What is said on a line that is over crosses its end.
        if frame.is_first() {
            take_up(shared, &mut table, knock, number, frame);
        }
        return;
    };
    let is_dispensable = frame.is_dispensable();
    if let Err(error) = line.try_send(frame)
        && !(is_dispensable && matches!(error, TrySendError::Full(_)))
    {
        // It does not keep to the window, or nobody listens any more: the line is over for whoever still does.
        table.by_number.remove(&number);
    }
}

fn take_up(shared: &Arc<Shared>, table: &mut Table, knock: &mpsc::Sender<Line>, number: u32, frame: Frame) {
    let refuse = || {
        let message = "it has as many calls as it takes at a time".to_owned();
        let refusal = Refusal { kind: RefusalKind::Unsuitable, code: 126, message, hints: Vec::new() };
        drop(shared.outgoing.try_send((number, Frame::Refused(Box::new(refusal)))));
    };
    if table.by_number.len() >= MOST_LINES {
        return refuse();
    }
    let Ok(place) = knock.try_reserve() else { return refuse() };
    let line = shared.line(table, number);
    let sender = &table.by_number[&number];
    sender.try_send(frame).expect("its queue is empty");
    place.send(line);
}

/// Sends what all lines say.
async fn send(mut said: mpsc::Receiver<(u32, Frame)>, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut frames = Vec::with_capacity(GATHERED);
    let mut bytes = Vec::new();
    while said.recv_many(&mut frames, GATHERED).await > 0 {
        for (line, frame) in frames.drain(..) {
            frame.encode(line, &mut bytes);
        }
        to.write_all(&bytes).await?;
        to.flush().await?;
        bytes.clear();
        // One great call must not leave every connection with room for it.
        bytes.shrink_to(GATHERED << 10);
    }
    let _ = timeout(FAREWELL, to.shutdown()).await;
    Ok(())
}

/// Ends when the other side has been silent for too long.
async fn look_after(shared: &Shared, watch: Option<Watch>) -> io::Error {
    let Some(Watch { look, silence }) = watch else { return std::future::pending().await };
    let mut looks = interval(look);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = Instant::now();
    // Since when this side has listened without a break.
    let mut listening_since = before;
    loop {
        looks.tick().await;
        let now = Instant::now();
        if now - before > 2 * look {
            // It stood still itself.
            listening_since = now;
        }
        before = now;
        let Some(busy_since) = lock(&shared.lines).busy_since() else { continue };
        let silent = now.saturating_duration_since(listening_since.max(busy_since).max(*shared.heard.borrow()));
        if silent >= silence {
            return io::Error::new(
                io::ErrorKind::TimedOut,
                format!("nothing was heard of it for {} s", silent.as_secs()),
            );
        }
        if silent >= look {
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
    use crate::fresh::Paths;
    use crate::{Caller, Command, Report, Start};

    fn start() -> Frame {
        let command = Command::new(&["true".into()], [], "/".into());
        Frame::Start(Box::new(Start {
            command,
            caller: Caller { name: "ada".into(), uid: 1 },
            written: Paths::default(),
        }))
    }

    fn ended(code: i32) -> Frame {
        Frame::Ended(Box::new(Report { code, ..Report::default() }))
    }

    /// Both ends of a connection, driven.
    fn pair() -> ((Trunk, Lines), (Trunk, Lines)) {
        let (here, there) = duplex(1 << 16);
        let (a, a_lines, run_a) = trunk(here, None);
        let (b, b_lines, run_b) = trunk(there, None);
        tokio::spawn(run_a);
        tokio::spawn(run_b);
        ((a, a_lines), (b, b_lines))
    }

    #[tokio::test]
    async fn calls_share_a_connection_and_do_not_mix() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut lines: Vec<Line> = (0..100).map(|_| here.call().expect("a line")).collect();
        for line in &mut lines {
            line.send(start()).await.expect("it is there");
        }
        tokio::spawn(async move {
            let mut code = 0;
            while let Some(mut line) = calls.next().await {
                assert_eq!(line.receive().await, Some(start()));
                code += 1;
                let mine = code;
                tokio::spawn(async move {
                    let Some(Frame::Input(bytes)) = line.receive().await else { panic!("input") };
                    line.send(Frame::Stdout(bytes)).await.expect("it is there");
                    line.send(ended(mine)).await.expect("it is there");
                });
            }
        });
        for (number, line) in lines.iter_mut().enumerate() {
            line.send(Frame::Input(vec![number as u8])).await.expect("it is there");
        }
        for (number, line) in lines.iter_mut().enumerate() {
            assert_eq!(line.receive().await, Some(Frame::Stdout(vec![number as u8])));
            assert_eq!(line.receive().await, Some(ended(number as i32 + 1)));
        }
        drop(lines);
        assert!(here.shared.lines.lock().expect("whole").by_number.is_empty());
    }

    #[tokio::test]
    async fn a_dropped_call_is_cancelled_and_one_that_is_over_is_not() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut line = here.call().expect("a line");
        line.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        assert_eq!(heard.receive().await, Some(start()));
        drop(line);
        assert_eq!(heard.receive().await, Some(Frame::Cancel));
        // The other way round: the end is the last that is said.
        let mut line = here.call().expect("a line");
        line.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        heard.send(ended(0)).await.expect("it is there");
        assert_eq!(line.receive().await, Some(ended(0)));
        drop(line);
        let mut next = here.call().expect("a line");
        next.send(start()).await.expect("it is there");
        assert_eq!(heard.receive().await, Some(start()));
        calls.next().await.expect("the next");
        assert!(heard.incoming.try_recv().is_err(), "nothing came after the end");
    }

    #[tokio::test]
    async fn whoever_does_not_keep_to_the_window_loses_the_line_and_no_other() {
        let ((here, _own), (_there, mut calls)) = pair();
        let mut greedy = here.call().expect("a line");
        greedy.send(start()).await.expect("it is there");
        let mut heard = calls.next().await.expect("a call");
        for _ in 0..=LINE_LEN {
            greedy.send(Frame::Input(vec![0; 100])).await.expect("it is there");
        }
        let mut modest = here.call().expect("a line");
        modest.send(start()).await.expect("it is there");
        assert!(calls.next().await.is_some());
        let mut count = 0;
        while heard.receive().await.is_some() {
            count += 1;
        }
        assert_eq!(count, LINE_LEN, "what had room came, and then the line was over");
        // Signals without end are no offence.
        for _ in 0..=LINE_LEN {
            modest.send(Frame::Signal(28)).await.expect("it is there");
        }
        let mut third = here.call().expect("a line");
        third.send(start()).await.expect("it is there");
        assert!(calls.next().await.is_some());
    }

    #[tokio::test]
    async fn who_is_asked_answers_or_is_gone() {
        const LONG: Duration = Duration::from_secs(60);
        let ((here, _own), _there) = pair();
        assert!(here.says_something(LONG).await && here.answers(LONG).await);
        let (stream, other) = duplex(1 << 16);
        let (own, _lines, run) = trunk(stream, None);
        tokio::spawn(run);
        assert!(!own.says_something(Duration::from_millis(10)).await, "nobody is there");
        drop(other);
        assert!(!own.says_something(LONG).await, "and now it is closed");
    }

    #[tokio::test]
    async fn all_lines_hear_that_the_connection_is_gone() {
        let (here, there) = duplex(1 << 16);
        let (own, _lines, run) = trunk(here, None);
        let running = tokio::spawn(run);
        let mut line = own.call().expect("a line");
        drop(there);
        assert_eq!(line.receive().await, None);
        running.await.expect("no panic").expect("closed in order");
        assert!(own.is_gone() && own.call().is_none());
    }

    #[tokio::test]
    async fn all_lines_hear_of_a_connection_that_nobody_carries_any_more() {
        let (here, _there) = duplex(1 << 16);
        let (own, _lines, run) = trunk(here, None);
        let running = tokio::spawn(run);
        let mut line = own.call().expect("a line");
        tokio::task::yield_now().await;
        running.abort();
        assert_eq!(line.receive().await, None);
        assert!(own.is_gone() && own.call().is_none());
    }

    #[tokio::test]
    async fn a_silent_connection_is_given_up_only_while_there_are_calls() {
        let (look, silence) = (Duration::from_millis(20), Duration::from_millis(200));
        let watch = Watch { look, silence };
        let (here, _there) = duplex(1 << 16);
        let (own, _lines, run) = trunk(here, Some(watch));
        let running = tokio::spawn(run);
        tokio::time::sleep(3 * silence).await;
        assert!(!own.is_gone(), "nobody has called");
        let began = Instant::now();
        let mut line = own.call().expect("a line");
        assert_eq!(line.receive().await, None);
        assert!(began.elapsed() >= silence, "{:?}", began.elapsed());
        assert_eq!(running.await.expect("no panic").expect_err("silent").kind(), io::ErrorKind::TimedOut);
    }
}
