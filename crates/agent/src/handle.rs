//! The handle of the engine: other modules send events with it, and read the state of the runs.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use hostler_core::agent::{Event, Stage, State};
use hostler_model::{CpuSet, RunId, TaskId};
use hostler_proto::link::{AgentHello, AgentMessage, OUTPUT_CAP_BYTES};
use tokio::sync::{mpsc, oneshot};

use crate::mutex::lock;

/// What jobs hold of a node.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) cpus: CpuSet,
    pub(crate) memory_bytes: u64,
    /// The task that has the node to itself, if any.
    pub(crate) by: Option<TaskId>,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    inputs: mpsc::UnboundedSender<Input>,
    state: Arc<Mutex<State>>,
}

pub(crate) enum Input {
    Event(Event),
    Connected(Option<IpAddr>, oneshot::Sender<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)>),
}

impl Handle {
    /// Creates a handle, and the inputs for the engine.
    pub(crate) fn new() -> (Self, Inputs) {
        #[expect(
            clippy::disallowed_methods,
            reason = "a run has a handful of events, and runs are bounded by the node"
        )]
        let (inputs, receiver) = mpsc::unbounded_channel();
        (Self { inputs, state: Arc::default() }, Inputs(receiver))
    }

    pub(crate) fn happened(&self, event: Event) {
        // Sending fails only while the agent stops; the next agent recovers the state from the disk.
        let _ = self.inputs.send(Input::Event(event));
    }

    /// Reports a new link, opened from `address`. Returns the hello to send, and the messages to send afterwards.
    pub(crate) async fn connected(
        &self,
        address: Option<IpAddr>,
    ) -> Option<(AgentHello, mpsc::UnboundedReceiver<AgentMessage>)> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(Input::Connected(address, reply)).ok()?;
        answer.await.ok()
    }

    /// Whether the run's process may still write output.
    pub(crate) fn is_live(&self, run: RunId) -> bool {
        let state = self.state();
        state.run(run).is_some_and(|run| {
            matches!(run.stage, Stage::Staging | Stage::Building | Stage::Ready { .. } | Stage::Running)
        })
    }

    /// Limit for each stored output of a run, in bytes.
    pub(crate) fn output_cap_bytes(&self, run: RunId) -> u64 {
        self.state().run(run).map_or(OUTPUT_CAP_BYTES, |run| run.launch.job.output_cap_bytes())
    }

    /// What jobs hold of this node.
    pub(crate) fn held(&self) -> Held {
        let state = self.state();
        let mut all = Held::default();
        for run in state.runs().map(|(_, run)| run).filter(|run| !matches!(run.stage, Stage::Over(_))) {
            let held = &run.launch.placement.resources;
            all.cpus.add_all(&held.cpus);
            all.memory_bytes = all.memory_bytes.saturating_add(held.memory_bytes);
            all.by = run.launch.spec().surroundings.exclusive.then(|| run.launch.run().task).or(all.by);
        }
        all
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

pub(crate) struct Inputs(pub(crate) mpsc::UnboundedReceiver<Input>);
