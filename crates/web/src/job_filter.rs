//! Which jobs a list has: read from the address of the page, and asked from the API.

use hostler_model::{JobId, JobState};
use hostler_proto::api::{JobOrder, JobPage, JobSummary};

use crate::api::{Api, Refused};
use crate::form::Fields;
use crate::url::Url;
use crate::words;

/// Choices of states: name in the address, label, and states for the API.
pub(crate) const STATES: [(&str, &str, &[JobState]); 8] = [
    ("live", "Not ended", &JobState::LIVE),
    ("running", "Running", &[JobState::Starting, JobState::Running, JobState::Completing]),
    ("pending", "Waiting", &[JobState::Pending]),
    ("failed", "Failed", &JobState::FAILED),
    ("completed", "Completed", &[JobState::Completed]),
    ("cancelled", "Cancelled", &[JobState::Cancelled, JobState::Preempted]),
    ("ended", "Ended", &JobState::ENDED),
    ("all", "All", &[]),
];

/// States of [`STATES`] that select jobs by their own state. The others also select arrays with a task in such a state.
const WHOLE_JOBS: [&str; 3] = ["live", "ended", "all"];

/// States of [`STATES`] in which no job has ended. Only such lists can be sorted.
pub(crate) const SORTED: [&str; 3] = ["live", "pending", "running"];

/// Jobs per request when all pages are read.
const AT_ONCE: usize = 1_000;

/// The filter in the address of a list.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) user: String,
    pub(crate) state: &'static str,
    pub(crate) partition: String,
    pub(crate) node: String,
    pub(crate) text: String,
    pub(crate) order: JobOrder,
}

impl Filter {
    /// Reads the filter. Without a user in the address, the list has the jobs of `usual_user`.
    pub(crate) fn read(query: &Fields, usual_user: &str) -> Result<Self, Refused> {
        let wanted = query.text("state").unwrap_or("live");
        let state = STATES.iter().map(|(name, ..)| *name).find(|name| *name == wanted).unwrap_or("live");
        let text = |name| query.text(name).unwrap_or_default().to_owned();
        let user = query.get("user").unwrap_or(usual_user).trim().to_owned();
        let chosen: Option<JobOrder> = query.read("order")?;
        let order = if SORTED.contains(&state) { chosen.unwrap_or(JobOrder::Queue) } else { JobOrder::Newest };
        Ok(Self { user, state, partition: text("partition"), node: text("node"), text: text("q"), order })
    }

    /// The same filter for other states, newest first: the order that costs the API least.
    pub(crate) fn in_state(&self, state: &'static str) -> Self {
        Self { state, order: JobOrder::Newest, ..self.clone() }
    }

    /// Whether the API counts exactly the jobs that match.
    pub(crate) fn is_counted(&self) -> bool {
        self.partition.is_empty() && self.node.is_empty() && self.text.is_empty()
    }

    /// The request for a page of the jobs.
    pub(crate) fn request(&self, limit: usize) -> Url {
        let mut request = Url::of(["jobs"]).with("limit", limit);
        let chosen = STATES.iter().find(|(name, ..)| *name == self.state);
        let states = chosen.map_or_else(String::new, |(_, _, states)| words::states(states));
        for (name, value) in [
            ("state", states.as_str()),
            ("user", &self.user),
            ("partition", &self.partition),
            ("node", &self.node),
            ("text", &self.text),
            ("order", self.order.as_str()),
        ] {
            if !value.is_empty() {
                request = request.with(name, value);
            }
        }
        if WHOLE_JOBS.contains(&self.state) { request } else { request.with("any_task", true) }
    }

    /// The first jobs that match, at most `most`, and whether there are more.
    pub(crate) async fn all(&self, api: &Api, most: usize) -> Result<(Vec<JobSummary>, bool), Refused> {
        let mut jobs = Vec::new();
        let mut before: Option<JobId> = None;
        loop {
            let request = self.request(AT_ONCE);
            let request = match before {
                Some(before) => request.with("before", before),
                None => request,
            };
            let page: JobPage = api.get(&request).await?;
            jobs.extend(page.jobs);
            before = page.next;
            if before.is_none() || jobs.len() > most {
                let has_more = before.is_some() || jobs.len() > most;
                jobs.truncate(most);
                return Ok((jobs, has_more));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_lists_have_no_ended_jobs() {
        for (name, _, states) in STATES {
            let has_no_ended = !states.is_empty() && states.iter().all(|state| !state.is_ended());
            assert_eq!(SORTED.contains(&name), has_no_ended, "{name}");
        }
    }
}
