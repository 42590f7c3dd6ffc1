//! Runs the tasks of a step until all have ended.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use hostler_remote::step::{Allocation, Control, Link, Process, Progress, StepError, Surroundings, standard_input};
use hostler_remote::{Report, Stream, WindowSize};
use nix::libc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::time::{Instant, Sleep, sleep_until};

/// Time between SIGTERM and SIGKILL for the tasks of a step that must end.
const KILL_WAIT: Duration = Duration::from_secs(30);

/// Tasks whose start is under way at the same time, so that the queue of a step host does not overflow.
const STARTS: usize = 32;

/// Controls that a task has not received yet.
const CONTROLS: usize = 16;

/// Messages to a task that the task has not read yet. Those of MPI programs read each answer before they ask again.
const MESSAGES: usize = 256;

/// A step.
pub(crate) struct Plan<'a> {
    pub(crate) surroundings: &'a Surroundings,
    /// All tasks; the position of a task is its rank.
    pub(crate) tasks: Vec<Task>,
    /// Ends the step this long after its first task has ended.
    pub(crate) wait: Option<Duration>,
}

/// A task of a step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Task {
    /// The rank of the task's node in the allocation.
    pub(crate) node: u32,
    pub(crate) process: Process,
    /// Whether the task reads this process's standard input.
    pub(crate) has_input: bool,
}

/// What happens to a step after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    GoOn,
    /// Send this signal to all tasks.
    Signal(i32),
    /// Tell the tasks' terminals the size of the window.
    Resize(WindowSize),
    /// End all tasks: TERM, and KILL after a while.
    End,
    /// End all tasks at once.
    Kill,
}

/// What users see of a step.
pub(crate) trait Face {
    fn output(&mut self, rank: usize, stream: Stream, bytes: &[u8]) -> io::Result<()>;
    /// A task sent a message. Returns what to send to which tasks.
    fn message(&mut self, _rank: usize, _bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
        Vec::new()
    }
    /// A message to a task is lost, because the task does not read those before.
    fn unread(&mut self, _rank: usize) {}
    fn ended(&mut self, rank: usize, end: &Result<Report, StepError>) -> Then;
    /// This process got a signal. `running` holds the ranks that have not ended.
    fn signalled(&mut self, number: i32, running: &[usize]) -> Then;
    /// When [`Self::write_due`] must be called.
    fn due(&self) -> Option<std::time::Instant>;
    /// Writes incomplete lines that were held back for long enough.
    fn write_due(&mut self) -> Then;
}

/// The connections with nodes, by rank of the node.
pub(crate) type Links = BTreeMap<u32, Arc<Link>>;

/// Runs a step over `links`, which has all nodes of the tasks. Returns how each task ended, by rank.
pub(crate) async fn run(
    plan: &Plan<'_>,
    links: &Links,
    face: &mut dyn Face,
    mut signals: mpsc::Receiver<i32>,
) -> Vec<Result<Report, StepError>> {
    let (controls, _) = broadcast::channel(CONTROLS);
    let mut pieces = standard_input(plan.tasks.iter().filter(|task| task.has_input).count());
    let starts = Semaphore::new(STARTS);
    let (mailboxes, messages): (Vec<_>, Vec<_>) = plan.tasks.iter().map(|_| mpsc::channel(MESSAGES)).unzip();
    let face = RefCell::new(face);
    let mut running: FuturesUnordered<_> = (0..)
        .zip(plan.tasks.iter().zip(messages))
        .map(|(rank, (task, messages))| {
            let input = if task.has_input { pieces.pop() } else { None };
            let messages = task.process.messages.is_some().then_some(messages);
            let (link, controls, face, starts) = (&links[&task.node], controls.subscribe(), &face, &starts);
            let mailboxes = &mailboxes;
            async move {
                let mut start = starts.acquire().await.ok();
                let tell = |progress: Progress<'_>| match progress {
                    Progress::Started => {
                        drop(start.take());
                        Ok(())
                    }
                    Progress::Output(stream, bytes) => face.borrow_mut().output(rank, stream, bytes),
                    Progress::Message(bytes) => {
                        for (to, reply) in face.borrow_mut().message(rank, bytes) {
                            // A task that has ended needs no reply.
                            if let Err(TrySendError::Full(_)) = mailboxes[to].try_send(reply) {
                                face.borrow_mut().unread(to);
                            }
                        }
                        Ok(())
                    }
                };
                (rank, link.run(&task.process, plan.surroundings, input, messages, controls, tell).await)
            }
        })
        .collect();
    let mut ends: Vec<Option<Result<Report, StepError>>> = plan.tasks.iter().map(|_| None).collect();
    let (mut end_at, mut kill_at): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let then = tokio::select! {
            // Signals come first, and `due` after the tasks' output, which may change the time.
            biased;
            Some(number) = signals.recv() => {
                let left: Vec<usize> = (0..ends.len()).filter(|rank| ends[*rank].is_none()).collect();
                face.borrow_mut().signalled(number, &left)
            }
            ended = running.next() => {
                let Some((rank, end)) = ended else { break };
                let then = face.borrow_mut().ended(rank, &end);
                ends[rank] = Some(end);
                end_at = end_at.or_else(|| plan.wait.map(|wait| Instant::now() + wait));
                then
            }
            () = at(end_at), if kill_at.is_none() => Then::End,
            () = at(kill_at) => Then::Kill,
            () = due(&face) => face.borrow_mut().write_due(),
        };
        let tell = |number| drop(controls.send(Control::Signal(number)));
        match then {
            Then::GoOn => {}
            Then::Signal(number) => tell(number),
            Then::Resize(size) => drop(controls.send(Control::Resize(size))),
            Then::End if kill_at.is_some() => {}
            Then::End => {
                kill_at = Some(Instant::now() + KILL_WAIT);
                tell(libc::SIGCONT);
                tell(libc::SIGTERM);
            }
            Then::Kill => {
                // Again later, for tasks that have just started.
                kill_at = Some(Instant::now() + Duration::from_secs(1));
                tell(libc::SIGKILL);
            }
        }
    }
    ends.into_iter().map(|end| end.expect("every task has ended")).collect()
}

/// Connects with the first node, which numbers the steps, and with the nodes of these ranks. `first`: a connection with the
/// first node, if there is one.
pub(crate) async fn connect(
    allocation: &Allocation,
    nodes: impl IntoIterator<Item = u32>,
    first: Option<Arc<Link>>,
) -> Result<Links, StepError> {
    let nodes: BTreeSet<u32> = nodes.into_iter().chain([0]).collect();
    let open = |node: u32| {
        let known = first.clone().filter(|_| node == 0);
        async move {
            let link = match known {
                Some(link) => link,
                None => Arc::new(Link::open(allocation, node).await?),
            };
            Ok((node, link))
        }
    };
    Ok(try_join_all(nodes.into_iter().map(open)).await?.into_iter().collect())
}

/// Waits until incomplete lines must be written. The time may change whenever a task of the step is polled.
async fn due(face: &RefCell<&mut dyn Face>) {
    let mut waiting: Option<(Instant, Pin<Box<Sleep>>)> = None;
    poll_fn(|context| {
        let Some(due) = face.borrow().due().map(Instant::from_std) else { return Poll::Pending };
        if waiting.as_ref().is_none_or(|(at, _)| *at != due) {
            waiting = Some((due, Box::pin(sleep_until(due))));
        }
        waiting.as_mut().map_or(Poll::Pending, |(_, sleep)| sleep.as_mut().poll(context))
    })
    .await;
}

/// Waits for a time; forever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
