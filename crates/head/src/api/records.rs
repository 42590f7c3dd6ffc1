//! Jobs with their tasks, many in one answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_core::head::Job;
use hostler_model::{JobId, JobState, WallTime};
use hostler_proto::api::RecordPage;
use hostler_store::HistoryFilter;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::Schema;

use super::error::ApiError;
use super::extract::{Query, list as parse_list};
use super::history::parse_position;
use super::jobs::states_schema;
use super::reply::JsonText;
use super::settled::settled_history;
use super::who::User;
use crate::answers::Answer;
use crate::archive::{self, LONGEST_PAGE_BYTES, Page, Wanted};
use crate::head::Head;
use crate::views::{self, History};

/// Maximum number of jobs per page.
const LONGEST_PAGE: usize = 2_000;
/// Maximum number of named jobs.
const MOST_NAMED: usize = 1_000;
/// A page ends when its jobs have this many tasks. A record also has at most this many ended tasks.
const MOST_TASKS: usize = 10_000;
/// A page ends when its text has this many bytes. A record without tasks may have megabytes, for the command line and the
/// indices of an array.
const MOST_BYTES: usize = 2 * LONGEST_PAGE_BYTES;
/// Memory to reserve for a page, in bytes: for its jobs, for its text, whose buffer grows by doubling, and for its last
/// record with the text of that record.
const PAGE_BYTES: usize = LONGEST_PAGE_BYTES + 2 * MOST_BYTES + 2 * MOST_TASKS * (1 << 10);

/// The query of `GET /records`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// Ids of jobs, separated by commas, at most 1000. Unknown ones are left out, and the others are listed by ascending
    /// id. The number of a task of an array of `sbatch` names the array. All jobs if absent.
    #[schema(pattern = "^[1-9][0-9]{0,17}(,[1-9][0-9]{0,17})*$")]
    jobs: Option<String>,
    /// States, separated by commas; all if absent.
    #[schema(schema_with = states)]
    state: Option<String>,
    /// Only jobs of this user; all if absent.
    user: Option<String>,
    /// Only jobs with this name; all if absent.
    name: Option<String>,
    /// Only jobs that ended at this time or later, in milliseconds since the Unix epoch.
    ended_since: Option<WallTime>,
    /// Leave out the ended tasks of the jobs.
    #[serde(default)]
    live: bool,
    /// The value of `next` on the previous page.
    #[schema(pattern = "^([0-9]{1,15}-)?[1-9][0-9]{0,17}$")]
    before: Option<String>,
}

fn states() -> Schema {
    states_schema()
}

/// `GET /records`.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<JsonText<RecordPage>, ApiError> {
    let named: Vec<JobId> = parse_list(filter.jobs.as_deref())?;
    let states: Vec<JobState> = parse_list(filter.state.as_deref())?;
    if named.len() > MOST_NAMED {
        return Err(ApiError::bad_request(format!("`jobs` has at most {MOST_NAMED} ids")));
    }
    answer.reserve(&head.client_limits, PAGE_BYTES).await;
    let wanted =
        Wanted { user: filter.user, name: filter.name, states, ended_since: filter.ended_since, ..Wanted::default() };
    let mut listing =
        Listing { head: &head, user: &user, live: filter.live, text: b"{\"records\":[".to_vec(), tasks: 0 };
    let before = filter.before.as_deref();
    if !named.is_empty() {
        let next = listing.add_named(named, &wanted, before).await?;
        return Ok(listing.finish(next.map(|id| id.to_string())));
    }
    let (jobs, next) = match filter.ended_since {
        Some(since) => ended_since(&head, &user, since, wanted, before).await?,
        None => {
            let before = before.map(str::parse).transpose().map_err(|_| other_list())?;
            let Page { jobs, examined_to, .. } = head.jobs(user.party(), wanted, before, LONGEST_PAGE).await?;
            let last = jobs.last().filter(|_| jobs.len() == LONGEST_PAGE).map(|job| job.id);
            (jobs, last.or(examined_to).map(|id| id.to_string()))
        }
    };
    let cut_after = listing.add_all(&jobs).await.map(|last| {
        let (at, id) = position(last);
        if filter.ended_since.is_some() { format!("{}-{id}", at.0) } else { id.to_string() }
    });
    Ok(listing.finish(cut_after.or(next)))
}

/// A [`RecordPage`] in progress.
struct Listing<'a> {
    head: &'a Head,
    user: &'a User,
    /// Whether to leave out the ended tasks of the jobs.
    live: bool,
    /// The beginning of the page, as JSON: text of known size needs less memory than the records.
    text: Vec<u8>,
    /// Number of tasks in the page.
    tasks: usize,
}

impl Listing<'_> {
    /// Adds records of the named jobs that match, in the order of their ids. Returns the id after which the next page
    /// begins, if the page is full before the last job.
    async fn add_named(
        &mut self,
        named: Vec<JobId>,
        wanted: &Wanted,
        after: Option<&str>,
    ) -> Result<Option<JobId>, ApiError> {
        let after: Option<JobId> = after.map(str::parse).transpose().map_err(|_| other_list())?;
        let ids: BTreeSet<JobId> = named.into_iter().filter(|id| after.is_none_or(|after| *id > after)).collect();
        let mut listed = BTreeSet::new();
        // Reads one job at a time, because each may have megabytes.
        for id in &ids {
            let job = self.head.find_job_with_number(self.user.party(), *id).await?;
            let is_new = |job: &Arc<Job>| after.is_none_or(|after| job.id > after || job.id == *id);
            if let Some(job) = job.filter(|job| wanted.wants(job) && is_new(job))
                && listed.insert(job.id)
            {
                self.add(&job).await;
            }
            if self.is_full() && ids.last() != Some(id) {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// Adds records of the jobs. Returns the last one in the page, if the page is full before the last job.
    async fn add_all<'b>(&mut self, jobs: &'b [Arc<Job>]) -> Option<&'b Job> {
        for (at, job) in jobs.iter().enumerate() {
            self.add(job).await;
            if self.is_full() && at + 1 < jobs.len() {
                return Some(job);
            }
        }
        None
    }

    async fn add(&mut self, job: &Arc<Job>) {
        let read = if self.live || job.endings.is_empty() {
            None
        } else {
            // A job without its tasks is better than none: it may have been deleted meanwhile.
            settled_history(self.head, self.user, job.id, 0..=u32::MAX, &[], MOST_TASKS).await.ok()
        };
        let (job, history) = read.unwrap_or_else(|| (Arc::clone(job), History::default()));
        // The state is locked for one record at a time, because a record may have ten thousand tasks.
        let record = {
            let (state, now) = (self.head.engine.state(), self.head.engine.now());
            views::record(&state, &job, self.user.sees(&job), &history, now)
        };
        if self.text.last() == Some(&b'}') {
            self.text.push(b',');
        }
        self.tasks += record.tasks.len();
        serde_json::to_writer(&mut self.text, &record).expect("API types are valid JSON");
    }

    fn is_full(&self) -> bool {
        self.tasks >= MOST_TASKS || self.text.len() >= MOST_BYTES
    }

    /// Ends the page. `next` is the position of the next page.
    fn finish(mut self, next: Option<String>) -> JsonText<RecordPage> {
        self.text.push(b']');
        if let Some(next) = next {
            // A position consists of digits and a dash.
            self.text.extend(format!(",\"next\":\"{next}\"").bytes());
        }
        self.text.push(b'}');
        JsonText::new(self.text)
    }
}

/// The error for a page of a list in the other order.
fn other_list() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "bad_page", "`before` is not the `next` of another page of this list")
}

/// A page of jobs that ended since a time, the latest end first, and the position of the next page.
async fn ended_since(
    head: &Head,
    user: &User,
    since: WallTime,
    wanted: Wanted,
    before: Option<&str>,
) -> Result<(Vec<Arc<Job>>, Option<String>), ApiError> {
    // Ends become visible in the store only after the fsync. If the disk is full, the list lacks the latest ends.
    let _ = head.engine.settled().await;
    let before = before.map(parse_position).transpose().map_err(|_| other_list())?;
    let before = before.unwrap_or((WallTime(i64::MAX), JobId(0)));
    let filter = HistoryFilter {
        user: wanted.user.clone(),
        states: wanted.states.clone(),
        // The store searches for a part of the name.
        name: wanted.name.as_deref().unwrap_or_default().to_lowercase(),
        from: since,
        before,
        limit: LONGEST_PAGE,
        most_bytes: LONGEST_PAGE_BYTES,
    };
    let history = head.history.clone();
    let read = move || -> Result<_, archive::ArchiveError> {
        let page = history.history(&filter)?;
        let jobs = page.jobs.iter().map(|bytes| archive::read(bytes)).collect::<Result<Vec<_>, _>>()?;
        Ok((jobs, page.next))
    };
    let read = head.client_limits.read_jobs(user.party(), read).await;
    let (mut jobs, next) = read.map_err(ApiError::internal)??;
    jobs.retain(|job| wanted.wants(job));
    // Jobs that are not in the store yet, between the first and the last position of this page.
    let stored: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
    let is_in_page = |job: &&Arc<Job>| {
        let at = position(job);
        job.is_ended() && at < before && next.is_none_or(|next| at > next) && !stored.contains(&job.id)
    };
    let mut others: Vec<Arc<Job>> = {
        let state = head.engine.state();
        let moves = head.engine.archive().moves();
        state.jobs().chain(moves.jobs()).filter(|job| wanted.wants(job)).filter(is_in_page).cloned().collect()
    };
    jobs.append(&mut others);
    jobs.sort_unstable_by_key(|job| std::cmp::Reverse(position(job)));
    jobs.dedup_by_key(|job| job.id);
    Ok((jobs, next.map(|(at, id)| format!("{}-{id}", at.0))))
}

/// The position of an ended job in the order of ends.
fn position(job: &Job) -> (WallTime, JobId) {
    (job.ended_at().unwrap_or_default(), job.id)
}
