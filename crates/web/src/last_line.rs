//! The last line that a failed job wrote, which often says why it failed. Ended jobs write no more, so each is read once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hostler_model::{JobId, WallTime, shortened};
use hostler_proto::api::JobSummary;
use hostler_proto::link::Output;

use crate::api::Api;
use crate::pages::output::last_text;

/// Number of jobs whose lines are kept.
const KEPT: usize = 1_000;

/// Characters of a line.
const MAX_LEN: usize = 160;

/// The lines of jobs that have ended, by the time at which they did: a job may run again.
#[derive(Debug, Default)]
pub(crate) struct LastLines(Mutex<HashMap<Run, Option<String>>>);

/// A job, and when it ended.
type Run = (JobId, Option<WallTime>);

impl LastLines {
    /// The last line of a job's only task, of stderr or else of stdout. Only for callers who may see it.
    pub(crate) async fn of(&self, api: &Api, job: &JobSummary) -> Option<String> {
        if job.array.is_some() || !job.state.is_ended() || job.started_at.is_none() {
            return None;
        }
        let key = (job.id, job.ended_at);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(line) = known {
            return line;
        }
        let mut line = None;
        for output in [Output::Stderr, Output::Stdout] {
            line = last_text(api, (job.id, 0, output)).await.ok()?;
            if line.is_some() {
                break;
            }
        }
        let line = line.map(|line| shortened(&line, MAX_LEN));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(key, line.clone());
        line
    }
}
