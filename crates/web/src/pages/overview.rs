//! The first page: jobs that run, wait and failed; free resources; nodes, and those with a problem.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use hostler_model::{JobId, JobState, Reason, WallTime, format_bytes, shortened};
use hostler_proto::api::{Info, JobPage, JobSummary, NodeCounts, NodeView};
use hostler_proto::power::EnergyView;

use super::jobs::may_change;
use crate::api::Refused;
use crate::cluster_map::{CELLS, ClusterMap, TILES};
use crate::cookies;
use crate::form::Fields;
use crate::last_line::LastLines;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::{Badge, Time, Tone};
use crate::url::Url;
use crate::words;

/// Cookie with the time up to which the user has seen what ended, in milliseconds since the Unix epoch.
const SEEN: &str = "hostler-seen";

/// Cookie with the choice between the user's own jobs and those of everyone.
const WHOSE: &str = "hostler-whose";

/// Without the cookie, the page shows what ended in this time.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Number of jobs in each list.
const JOBS: usize = 8;

/// States of a job that has a place, for the API.
const ACTIVE: &str = "starting,running,completing";

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    whose: Whose,
    numbers: Vec<Number>,
    map: ClusterMap,
    since: Time,
    is_marked: bool,
    active: JobPage,
    waiting: JobPage,
    failed: JobPage,
    /// The last lines of failed jobs.
    lines: HashMap<JobId, String>,
    energy: EnergyView,
    warnings: Vec<String>,
}

/// Whose jobs the page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Mine,
    Everyone,
}

impl Whose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Everyone => "everyone",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Mine, Self::Everyone].into_iter().find(|it| it.as_str() == name)
    }
}

/// A number that leads to what it counts.
struct Number {
    value: String,
    label: String,
    url: Url,
    /// Only what needs attention has a colour.
    tone: Option<Tone>,
}

/// `GET /`. The parameter `jobs` chooses whose jobs are shown, also at later visits.
pub(crate) async fn show(
    frame: Frame,
    Extension(last_lines): Extension<Arc<LastLines>>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let marked = cookies::value(&headers, SEEN).and_then(time_of);
    let since = marked.unwrap_or(WallTime(frame.wall().0 - DAY_MS));
    let chosen = frame.query.text("jobs").and_then(Whose::named);
    let usual = if frame.me.identified && !frame.is_operator() { Whose::Mine } else { Whose::Everyone };
    let kept = cookies::value(&headers, WHOSE).and_then(Whose::named).filter(|_| frame.me.identified);
    let whose = chosen.or(kept).unwrap_or(usual);

    let info: Info = frame.api.get("/info").await?;
    let energy: EnergyView = frame.api.get("/energy").await?;
    let jobs = |states: &str| {
        let all = Url::of(["jobs"]).with("state", states).with("limit", JOBS);
        if whose == Whose::Mine { all.with("user", &frame.me.user) } else { all }
    };
    let active: JobPage = frame.api.get(&jobs(ACTIVE).with("order", "oldest")).await?;
    let mut waiting: JobPage = frame.api.get(&jobs("pending").with("order", "queue")).await?;
    let since_then = |states: &str| jobs(states).with("ended_since", since.0.max(0));
    let failed: JobPage = frame.api.get(&since_then(&words::states(&JobState::FAILED))).await?;
    let mut lines = HashMap::new();
    for job in failed.jobs.iter().filter(|job| may_change(&frame, job)) {
        lines.extend(last_lines.of(&frame.api, job).await.map(|line| (job.id, line)));
    }
    let completed: JobPage = frame.api.get(&since_then("completed")).await?;
    let all = Url::of(["nodes"]).with("limit", CELLS);
    let mut nodes: Vec<NodeView> = frame.api.get(&all).await?;
    if nodes.len() <= TILES {
        nodes = frame.api.get(&all.with("holders", true).with("measured", true)).await?;
    }
    let of_jobs = [
        ("running", "running", &active, None),
        ("waiting", "pending", &waiting, None),
        ("failed", "failed", &failed, Some(Tone::Bad)),
        ("completed", "completed", &completed, None),
    ];
    let user = if whose == Whose::Mine { frame.me.user.as_str() } else { "" };
    let of_jobs = of_jobs.into_iter().map(|(label, state, page, tone)| Number {
        value: count(page),
        label: label.to_owned(),
        url: Url::of(["jobs"]).with("user", user).with("state", state),
        tone: tone.filter(|_| page.total > 0),
    });
    let of_jobs: Vec<Number> = of_jobs.collect();
    // Held jobs are not next to start. They count as waiting, and are the last of the queue.
    let held = Reason::Held.to_string();
    waiting.jobs.retain(|job| job.reason.as_ref() != Some(&held));
    let numbers =
        of_jobs.into_iter().chain(of_resources(&info)).chain(of_nodes(&info.nodes)).chain(of_power(&energy)).collect();
    let page = render(&Overview {
        whose,
        numbers,
        map: ClusterMap::new(&frame, &nodes),
        since: frame.full(since),
        is_marked: marked.is_some(),
        active,
        waiting,
        failed,
        lines,
        warnings: [info.head.refusing, info.head.warning, energy.trouble.clone()].into_iter().flatten().collect(),
        energy,
        frame,
    });
    Ok(match chosen {
        Some(whose) => ([cookies::kept_for_a_year(WHOSE, whose.as_str())], page).into_response(),
        None => page.into_response(),
    })
}

/// The number of jobs, of which the API may have counted only some.
fn count(page: &JobPage) -> String {
    let is_part = page.next.is_some() && page.total <= page.jobs.len() as u64;
    format!("{}{}", page.total, if is_part { "+" } else { "" })
}

/// What is free of each resource of the cluster.
fn of_resources(info: &Info) -> Vec<Number> {
    let capacity = &info.capacity;
    let of = |label: &str, free: u64, total: u64, show: &dyn Fn(u64) -> String| Number {
        value: format!("{} of {} free", show(free), show(total)),
        label: label.to_owned(),
        url: Url::of(["nodes"]),
        tone: None,
    };
    let plain = |amount: u64| amount.to_string();
    let mut all = vec![
        of("CPUs", capacity.cpus.free, capacity.cpus.total, &plain),
        of("memory", capacity.memory_bytes.free, capacity.memory_bytes.total, &format_bytes),
    ];
    if capacity.gpus.total > 0 {
        all.push(of("GPUs", capacity.gpus.free, capacity.gpus.total, &plain));
    }
    for (name, total) in &capacity.counted {
        all.push(of(name, capacity.counted_free.get(name).copied().unwrap_or(0), *total, &plain));
    }
    all
}

/// The nodes by what can be expected of them.
fn of_nodes(counts: &NodeCounts) -> impl Iterator<Item = Number> {
    [
        ("up", counts.up, "up", None),
        ("not responding", counts.suspect + counts.down, "suspect,down", Some(Tone::Bad)),
        ("off or changing", counts.off + counts.waking + counts.stopping, "off,waking,stopping", None),
        ("drained", counts.draining + counts.drained, "draining,drained", None),
    ]
    .into_iter()
    .filter(|(label, count, ..)| *count > 0 || *label == "up")
    .map(|(label, count, state, tone)| Number {
        value: count.to_string(),
        label: format!("{} {label}", if count == 1 { "node" } else { "nodes" }),
        url: Url::of(["nodes"]).with("state", state),
        tone,
    })
}

fn of_power(energy: &EnergyView) -> Option<Number> {
    (!energy.nodes.is_empty()).then(|| Number {
        value: format!("{} W", energy.watts),
        label: "now".to_owned(),
        url: Url::of(["nodes"]),
        tone: None,
    })
}

/// `POST /seen`: marks everything that ended until now as seen.
pub(crate) async fn mark(frame: Frame, fields: Fields) -> Response {
    let until = fields.read::<i64>("until").ok().flatten().unwrap_or(frame.wall().0).clamp(0, frame.wall().0);
    let response = frame.redirect(&Url::of([""]), Notice::good("Marked as seen."));
    ([cookies::kept_for_a_year(SEEN, &until.to_string())], response).into_response()
}

/// The time in a cookie.
fn time_of(value: &str) -> Option<WallTime> {
    value.parse().ok().map(WallTime).filter(|at| at.0 >= 0)
}

impl Overview {
    /// The list of jobs in a state, of whom the page shows.
    fn list(&self, state: &str) -> Url {
        let user = if self.whose == Whose::Mine { self.frame.me.user.as_str() } else { "" };
        Url::of(["jobs"]).with("user", user).with("state", state)
    }

    fn expected(&self, job: &JobSummary) -> Option<Time> {
        job.expected_start_at.map(|at| self.frame.ago(at))
    }

    fn why(&self, job: &JobSummary) -> String {
        shortened(job.reason.as_deref().unwrap_or("the scheduler has not looked at it yet"), 200)
    }

    /// How a job ended, and why.
    fn ending(&self, job: &JobSummary) -> String {
        let why = job.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        shortened(&format!("{}{why}", words::state_of(job)), 200)
    }

    fn nodes(&self, job: &JobSummary) -> String {
        match job.nodes.as_slice() {
            [] => String::new(),
            [node] => node.to_string(),
            [node, others @ ..] => format!("{node} and {} more", others.len()),
        }
    }

    fn ago(&self, at: impl Borrow<Option<WallTime>>) -> Time {
        self.frame.ago(at.borrow().unwrap_or(self.frame.wall()))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn time_of_last_visit_is_read_from_the_cookie() {
        let with = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(value))]);
            cookies::value(&headers, SEEN).and_then(time_of).map(|at| at.0)
        };
        assert_eq!(with("a=b; hostler-seen=12; c=d"), Some(12));
        for foul in ["", "hostler-seen=", "hostler-seen=-4", "hostler-seen=<b>", "xhostler-seen=4"] {
            assert_eq!(with(foul), None, "{foul}");
        }
    }
}
