//! The first page: what ended since the last visit, what waits and why, what is free, and what is wrong.

use std::borrow::Borrow;

use askama::Template;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{JobState, NodeState, WallTime, format_bytes};
use hostler_proto::api::{Info, JobPage, JobSummary, NodeDetail, NodeView};
use hostler_proto::power::EnergyView;

use crate::api::Refused;
use crate::form::Fields;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::{Badge, Bar, Time};
use crate::url::Url;
use crate::words;

/// Cookie with the time up to which the user has seen what ended, in milliseconds since the Unix epoch.
const SEEN: &str = "hostler-seen";

/// Without the cookie, the page shows what ended in this time.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Number of jobs in each list.
const JOBS: usize = 20;

/// Number of nodes whose details the page reads.
const NODES: usize = 12;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    info: Info,
    since: Time,
    is_marked: bool,
    /// The caller's jobs that ended, failed ones first.
    ended: Vec<Ended>,
    more_ended: bool,
    active: JobPage,
    waiting: JobPage,
    free: Vec<Free>,
    troubled: Vec<Trouble>,
    planned: Vec<Trouble>,
    more_nodes: usize,
    energy: EnergyView,
    warnings: Vec<String>,
}

/// A job that ended.
struct Ended {
    job: JobSummary,
    badge: Badge,
    words: String,
    message: Option<String>,
    is_bad: bool,
    /// Leads to the last lines of its output.
    lines: Url,
}

/// A resource of the cluster.
struct Free {
    name: String,
    text: String,
    bar: Bar,
}

/// A node that gets no jobs.
struct Trouble {
    name: String,
    url: Url,
    badge: Badge,
    /// The time, and how long ago it was.
    since: Option<(Time, Time)>,
    why: Option<String>,
}

/// `GET /`.
pub(crate) async fn show(frame: Frame, headers: HeaderMap) -> Result<Html<String>, Refused> {
    let marked = seen(&headers);
    let since = marked.unwrap_or(WallTime(frame.wall().0 - DAY_MS));
    let mine = || Url::of(["jobs"]).with("user", &frame.me.user).with("limit", JOBS);
    let info: Info = frame.api.get("/info").await?;
    let ended: JobPage = frame.api.get(&mine().with("ended_since", since.0.max(0))).await?;
    let live = mine().with("state", "starting,running,completing");
    let active: JobPage = frame.api.get(&live).await?;
    let waiting: JobPage = frame.api.get(&mine().with("state", "pending")).await?;
    let nodes: Vec<NodeView> = frame.api.get("/nodes").await?;
    let energy: EnergyView = frame.api.get("/energy").await?;
    let more_ended = ended.next.is_some() && !ended.jobs.is_empty();
    let mut ended: Vec<Ended> = ended.jobs.into_iter().map(Ended::new).collect();
    ended.sort_by_key(|ended| (!words::is_bad(ended.job.state), std::cmp::Reverse(ended.job.ended_at)));
    let mut away: Vec<NodeView> = nodes.into_iter().filter(|node| node.state != NodeState::Up).collect();
    away.sort_by_key(|node| is_planned(node.state));
    let more_nodes = away.len().saturating_sub(NODES);
    let (mut troubled, mut planned) = (Vec::new(), Vec::new());
    for node in away.into_iter().take(NODES) {
        let list = if is_planned(node.state) { &mut planned } else { &mut troubled };
        list.push(trouble(&frame, node).await);
    }
    let warnings = [&info.head.refusing, &info.head.warning, &energy.trouble].into_iter().flatten().cloned().collect();
    let free = free(&info);
    let since = frame.full(since);
    Ok(render(&Overview {
        is_marked: marked.is_some(),
        frame,
        info,
        since,
        ended,
        more_ended,
        active,
        waiting,
        free,
        troubled,
        planned,
        more_nodes,
        energy,
        warnings,
    }))
}

/// `POST /seen`: marks everything that ended until now as seen.
pub(crate) async fn mark(frame: Frame, fields: Fields) -> Response {
    let until = fields.read::<i64>("until").ok().flatten().unwrap_or(frame.wall().0).clamp(0, frame.wall().0);
    let response = frame.redirect(&Url::of([""]), Notice::good("Marked as seen."));
    let cookie = format!("{SEEN}={until}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict");
    let cookie = HeaderValue::from_str(&cookie).expect("a number is a valid cookie");
    ([(header::SET_COOKIE, cookie)], response).into_response()
}

/// The time in the cookie.
fn seen(headers: &HeaderMap) -> Option<WallTime> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == SEEN)?;
    value.parse().ok().map(WallTime).filter(|at| at.0 >= 0)
}

const fn is_planned(state: NodeState) -> bool {
    !matches!(state, NodeState::Down | NodeState::Suspect)
}

/// Why a node gets no jobs, and since when.
async fn trouble(frame: &Frame, node: NodeView) -> Trouble {
    let url = Url::node(&node.name);
    let detail: Option<NodeDetail> = frame.api.get(&url).await.ok();
    let detail = detail.as_ref();
    let silent = detail.map(|detail| WallTime(frame.wall().0 - i64::try_from(detail.silent_ms).unwrap_or(0)));
    let power = detail.and_then(|detail| detail.power_detail.as_ref());
    let drain = detail.and_then(|detail| detail.drain.as_ref());
    let (since, why) = match node.state {
        NodeState::Off | NodeState::Waking | NodeState::Stopping => {
            (power.map(|power| power.since), power.map(|power| power.why.clone()))
        }
        NodeState::Draining | NodeState::Drained => (drain.map(|drain| drain.at), node.reason.clone()),
        _ => (silent, Some("the agent on the node does not respond".to_owned())),
    };
    let badge = Badge::node(node.state);
    Trouble {
        name: node.name.to_string(),
        url,
        badge,
        since: since.map(|since| (frame.full(since), frame.ago(since))),
        why,
    }
}

impl Ended {
    fn new(job: JobSummary) -> Self {
        let badge = Badge::job(job.state);
        let message = job.message.as_deref().map(|message| words::shortened(message, 300));
        let (words, lines) = (words::state_of(&job), Url::job(job.id).at("last-lines"));
        Self { badge, words, message, is_bad: words::is_bad(job.state), lines, job }
    }
}

/// What is free, by resource.
fn free(info: &Info) -> Vec<Free> {
    let capacity = &info.capacity;
    let entry = |name: &str, free: u64, total: u64, show: &dyn Fn(u64) -> String| {
        let text = format!("{} of {} free", show(free), show(total));
        let bar = Bar::new(format!("{name}: {text}"), total.saturating_sub(free), total);
        Free { name: name.to_owned(), text, bar }
    };
    let plain = |amount: u64| amount.to_string();
    let mut all = vec![
        entry("CPUs", capacity.cpus.free, capacity.cpus.total, &plain),
        entry("Memory", capacity.memory_bytes.free, capacity.memory_bytes.total, &format_bytes),
    ];
    if capacity.gpus.total > 0 {
        all.push(entry("GPUs", capacity.gpus.free, capacity.gpus.total, &plain));
    }
    for (name, total) in &capacity.counted {
        all.push(entry(name, capacity.counted_free.get(name).copied().unwrap_or(0), *total, &plain));
    }
    all
}

impl Overview {
    fn expected(&self, job: &JobSummary) -> Option<Time> {
        job.expected_start_at.map(|at| self.frame.ago(at))
    }

    fn why(&self, job: &JobSummary) -> String {
        words::shortened(job.reason.as_deref().unwrap_or("the scheduler has not looked at it yet"), 300)
    }

    fn ago(&self, at: impl Borrow<Option<WallTime>>) -> Time {
        self.frame.ago(at.borrow().unwrap_or(self.frame.wall()))
    }

    fn badge(&self, state: impl Borrow<JobState>) -> Badge {
        Badge::job(*state.borrow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_last_visit_is_read_from_the_cookie() {
        let with = |value: &'static str| {
            seen(&HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(value))])).map(|at| at.0)
        };
        assert_eq!(with("a=b; hostler-seen=12; c=d"), Some(12));
        for foul in ["", "hostler-seen=", "hostler-seen=-4", "hostler-seen=<b>", "xhostler-seen=4"] {
            assert_eq!(with(foul), None, "{foul}");
        }
    }
}
