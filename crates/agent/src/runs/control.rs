//! Orders for a run that is starting or running, and turns for what may wait for its user.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostler_proto::link::StepEndpoint;
use hostler_shepherd::{Cause, RunSignal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::runs::ending::Ending;

/// Queued orders per run: one to end it, one to end it at once, and a reserve.
const ORDERS_LEN: usize = 8;

/// How long a request for the running steps waits for the one before.
const STEPS_TURN: Duration = Duration::from_secs(5);

/// How long a connection to a port or socket waits for those before it to be made.
const CONNECT_TURN: Duration = Duration::from_secs(5);

/// The most connections at once that a run makes to its listeners. Further ones wait in their queues.
const MOST_ACCEPTED: usize = 100;

/// Order for a run.
pub(crate) enum Order {
    /// All nodes of the run are ready: begin.
    Begin {
        /// Port on the first node at which the run's processes can connect to each other.
        port: u16,
        /// Where each node accepts steps, if the run uses them.
        endpoints: Vec<StepEndpoint>,
    },
    /// Send a signal.
    Signal(RunSignal),
    /// Replace the time limit; `None` means no limit.
    ChangeLimit(Option<Duration>),
    /// Send TERM now, and KILL after `grace`.
    End {
        /// Why the run ends, for the job's standard error.
        cause: Cause,
        /// Time between TERM and KILL; zero to send KILL immediately.
        grace: Duration,
    },
}

/// Controls a run that is starting or running.
#[derive(Clone)]
pub(crate) struct Control {
    ending: Arc<Ending>,
    orders: mpsc::Sender<Order>,
    /// Locked while a thread reads the run's list of steps.
    steps: Arc<tokio::sync::Mutex<()>>,
    /// Locked while a thread connects to a port or socket of the run.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// Places for connections that the run makes to its listeners.
    pub(crate) accepted: Arc<tokio::sync::Semaphore>,
}

/// Receiving ends of a [`Control`].
pub(crate) struct Controlled {
    pub(crate) ending: Arc<Ending>,
    pub(crate) orders: mpsc::Receiver<Order>,
}

pub(crate) fn control() -> (Control, Controlled) {
    let (orders, receiver) = mpsc::channel(ORDERS_LEN);
    let ending = Arc::new(Ending::new());
    let control = Control {
        ending: Arc::clone(&ending),
        orders,
        steps: Arc::default(),
        connecting: Arc::default(),
        accepted: Arc::new(tokio::sync::Semaphore::new(MOST_ACCEPTED)),
    };
    (control, Controlled { ending, orders: receiver })
}

impl Control {
    pub(crate) fn order(&self, order: Order) {
        if let Order::End { .. } = order {
            self.ending.order();
        }
        // The receiver is gone if the run is just ending. If the queue is full, earlier orders to end the run are
        // pending.
        let _ = self.orders.try_send(order);
    }

    /// Reads files of the host on this node. They are in a directory of the user, who can mount a file system there that
    /// never answers, so only one thread reads them, and others wait for a while.
    pub(crate) async fn of_step_host<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        alone(&self.steps, STEPS_TURN, "the directory with the lists of steps does not answer", read).await
    }

    /// Connects to a port or socket of the run. That takes as long as its user makes it take, so only one thread per run does it.
    pub(crate) async fn connect<T: Send + 'static>(
        &self,
        connect: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        alone(&self.connecting, CONNECT_TURN, "too many connections are being made", connect).await
    }
}

/// Does `work` on a thread when nothing else holds `turns`. Waits for at most `patience`, and then fails with `busy`.
async fn alone<T: Send + 'static>(
    turns: &Arc<tokio::sync::Mutex<()>>,
    patience: Duration,
    busy: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let turn = timeout(patience, Arc::clone(turns).lock_owned()).await.context(busy)?;
    let work = move || {
        let _turn = turn;
        work()
    };
    Ok(tokio::task::spawn_blocking(work).await?)
}
