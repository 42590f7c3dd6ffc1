//! Live measurements: one stream from the agent for each watched node or run, shared by all who watch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::StreamExt;
use hostler_model::{Metric, NodeName, RunId};
use hostler_proto::link::HeadMessage;
use hostler_proto::usage::Reading;
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::streams::Streams;

/// Timeout for an agent to open the stream, and for the next line. An agent sends a line every second.
const AGENT_TIME: Duration = Duration::from_secs(10);

/// Delay before the next attempt to reach the agent.
const PAUSE: Duration = Duration::from_secs(1);

/// Readings kept for a slow watcher, who misses older ones.
const READINGS: usize = 4;

/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 16 << 10;

/// What is watched: a node, or a run on it.
type Subject = (NodeName, Option<RunId>);

/// The watched nodes and runs.
pub(crate) struct LiveUsage {
    engine: Engine,
    streams: Arc<Streams>,
    /// Cancelled when the head stops.
    stop: CancellationToken,
    watched: Mutex<HashMap<Subject, broadcast::Sender<Reading>>>,
}

impl LiveUsage {
    pub(crate) fn new(engine: Engine, streams: Arc<Streams>, stop: CancellationToken) -> Self {
        Self { engine, streams, stop, watched: Mutex::default() }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<Subject, broadcast::Sender<Reading>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a node, or a run on it. The receiver is closed when the run has ended or the head stops.
    pub(crate) fn watch(self: &Arc<Self>, node: &NodeName, run: Option<RunId>) -> broadcast::Receiver<Reading> {
        let subject = (node.clone(), run);
        let mut watched = self.watched();
        if let Some(readings) = watched.get(&subject) {
            return readings.subscribe();
        }
        let (readings, receiver) = broadcast::channel(READINGS);
        watched.insert(subject.clone(), readings.clone());
        drop(watched);
        tokio::spawn(Arc::clone(self).keep(subject, readings));
        receiver
    }

    /// Passes readings on until nobody watches, the run has ended, or the head stops.
    async fn keep(self: Arc<Self>, subject: Subject, readings: broadcast::Sender<Reading>) {
        loop {
            tokio::select! {
                () = self.relay(&subject, &readings) => {}
                () = readings.closed() => {}
                () = self.stop.cancelled() => {}
            }
            let mut watched = self.watched();
            // Somebody may have begun to watch just now.
            if readings.receiver_count() == 0 || self.stop.is_cancelled() || self.has_ended(&subject) {
                watched.remove(&subject);
                return;
            }
        }
    }

    /// Passes readings on until the agent's stream ends; then waits briefly.
    async fn relay(&self, subject: &Subject, readings: &broadcast::Sender<Reading>) {
        let (node, run) = subject;
        let mut place = self.streams.outputs.wait_for(node);
        let connection = {
            let state = self.engine.state();
            state.node(node).and_then(|node| node.link.as_ref()).map(|link| link.connection)
        };
        let message = HeadMessage::Watch { stream: place.name.clone(), run: *run };
        if connection.is_some_and(|connection| self.engine.send(connection, message))
            && let Ok(Some(mut upload)) = timeout(AGENT_TIME, place.arrival()).await
        {
            let mut pending = Vec::new();
            while let Ok(Some(Ok(bytes))) = timeout(AGENT_TIME, upload.next()).await {
                for values in lines(&mut pending, &bytes) {
                    // Nobody watches if this fails; the caller notices.
                    let _ = readings.send(Reading { at: self.engine.now().wall, values });
                }
                if pending.len() > MAX_LINE_BYTES {
                    break;
                }
            }
        }
        if !self.has_ended(subject) {
            sleep(PAUSE).await;
        }
    }

    /// Whether a watched run is no longer on its node.
    fn has_ended(&self, (node, run): &Subject) -> bool {
        let Some(run) = run else { return false };
        let state = self.engine.state();
        let active = state.job(run.task.job).and_then(|job| job.active.get(&run.task.index));
        let part = active.filter(|active| active.run == *run).and_then(|active| active.part(active.rank_of(node)?));
        part.is_none_or(|part| part.over.is_some())
    }
}

/// The complete lines in `pending` and `bytes`. Keeps the rest in `pending`, and ignores lines that are not valid.
fn lines(pending: &mut Vec<u8>, bytes: &Bytes) -> Vec<BTreeMap<Metric, f32>> {
    pending.extend_from_slice(bytes);
    let Some(end) = pending.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
    let complete: Vec<u8> = pending.drain(..=end).collect();
    complete.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_across_pieces_and_bad_lines_ignored() {
        let mut pending = Vec::new();
        assert!(lines(&mut pending, &Bytes::from_static(b"{\"cpu\":1.5}\nrubbish\n{\"mem")).len() == 1);
        let rest = lines(&mut pending, &Bytes::from_static(b"ory\":7}\n"));
        assert_eq!(rest, [BTreeMap::from([(Metric::Memory, 7.0)])]);
        assert!(pending.is_empty());
    }
}
