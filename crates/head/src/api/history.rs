//! What ran: sums over ended jobs, and the list of ended jobs with what they used.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use hostler_core::head::Job;
use hostler_model::{JobId, JobState, WallTime};
use hostler_proto::accounting::{AccountingGroup, AccountingPage, Consumption, EndedJobView, GroupBy, HistoryPage};
use hostler_store::{HistoryFilter, Sums, SumsFilter, day_of};
use jiff::civil::Date;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::{ObjectBuilder, Schema, Type};

use super::error::ApiError;
use super::extract::{Query, list as parse_list};
use super::jobs::telling_rows;
use super::who::User;
use crate::answers::Answer;
use crate::archive::{self, LONGEST_PAGE_BYTES};
use crate::head::Head;
use crate::power::Price;
use crate::views;

/// Default number of days of a period.
const DAYS: i64 = 30;
/// Maximum number of days of a period.
const MOST_DAYS: i64 = 366;
/// Maximum number of groups in an answer, unless the groups are days.
const MOST_GROUPS: usize = 200;
/// Memory to reserve for each group.
const GROUP_BYTES: usize = 1 << 10;
/// Default number of jobs per page.
const PAGE: usize = 50;
/// Maximum number of jobs per page.
const LONGEST_PAGE: usize = 500;
/// Memory to reserve for each job of a page, in bytes.
const IN_LIST_BYTES: usize = 8 << 10;
/// Longest text to search for, in characters.
const LONGEST_TEXT: usize = 100;
/// Number of jobs to show per lock of the state.
const AT_ONCE: usize = 50;
const DAY_MS: i64 = 86_400_000;

/// The query of `GET /accounting`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Period {
    /// First day, as `YYYY-MM-DD` in UTC; 29 days before `to` if absent. An earlier day than 365 days before `to` counts
    /// as that day, and a later day than `to` counts as `to`.
    #[schema(format = "date")]
    from: Option<String>,
    /// Last day; today if absent.
    #[schema(format = "date")]
    to: Option<String>,
    /// Only jobs of this user. Operators see all users if absent; others see only their own jobs.
    user: Option<String>,
    /// How to group the jobs.
    #[serde(default)]
    by: GroupBy,
}

/// `GET /accounting`.
pub(crate) async fn sums(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(Period { from, to, user: of, by }): Query<Period>,
) -> Result<Json<AccountingPage>, ApiError> {
    let of = visible(&user, of)?;
    let (first, last) = days(&head, from.as_deref(), to.as_deref())?;
    let limit = if by == GroupBy::Day { usize::MAX } else { MOST_GROUPS };
    answer.reserve(&head.client_limits, MOST_GROUPS.max((last - first) as usize) * GROUP_BYTES).await;
    let history = head.history.clone();
    let filter = SumsFilter { days: first..=last, user: of.clone(), by, limit };
    let read = move || history.sums(&filter);
    let sums = head.client_limits.read_jobs(user.party(), read).await.map_err(ApiError::internal)??;
    let price = head.switches.price();
    let key = |key: String| match by {
        GroupBy::Day => key.parse().map_or(key, name_of_day),
        GroupBy::User | GroupBy::Partition | GroupBy::Name => key,
    };
    Ok(Json(AccountingPage {
        from: name_of_day(first),
        to: name_of_day(last),
        user: of,
        by,
        groups: sums.groups.into_iter().map(|(name, sums)| group(key(name), &sums, price.as_ref())).collect(),
        total: group(String::new(), &sums.total, price.as_ref()),
    }))
}

fn group(key: String, sums: &Sums, price: Option<&Price>) -> AccountingGroup {
    let Consumption { cpu_held_ms, cpu_used_ms, gpu_held_ms, memory_held_mib_ms, memory_used_mib_ms, energy_uj } =
        sums.consumed;
    AccountingGroup {
        key,
        jobs: sums.jobs(),
        endings: sums.endings,
        core_hours: hours(cpu_held_ms),
        gpu_hours: hours(gpu_held_ms),
        watt_hours: watt_hours(energy_uj),
        cost: price.map(|price| price.of(watt_hours(energy_uj))),
        cpu_efficiency: ratio(cpu_used_ms, cpu_held_ms),
        memory_efficiency: ratio(memory_used_mib_ms, memory_held_mib_ms),
    }
}

/// The query of `GET /history`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// First day, as `YYYY-MM-DD` in UTC; any day if absent.
    #[schema(format = "date")]
    from: Option<String>,
    /// Last day; any day if absent.
    #[schema(format = "date")]
    to: Option<String>,
    /// Only jobs of this user. Operators see all users if absent; others see only their own jobs.
    user: Option<String>,
    /// Ended states, separated by commas; all if absent.
    #[schema(schema_with = states_schema)]
    state: Option<String>,
    /// Only jobs whose name contains this text. Case does not matter.
    #[schema(max_length = 100)]
    name: Option<String>,
    /// Maximum number of jobs: 50 if absent, at most 500.
    #[schema(value_type = Option<u32>, minimum = 1)]
    limit: Option<NonZeroU32>,
    /// The value of `next` on the previous page.
    #[schema(pattern = "^[0-9]{1,15}-[0-9]{1,18}$")]
    before: Option<String>,
}

fn states_schema() -> Schema {
    let states = hostler_proto::accounting::JobEndings::STATES.map(JobState::as_str).join("|");
    let pattern = format!("^({states})(,({states}))*$");
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .description(Some("Ended states, separated by commas; all if absent."))
        .into()
}

/// `GET /history`, the latest end first. Contains jobs whose end is durable.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(query): Query<Filter>,
) -> Result<Json<HistoryPage>, ApiError> {
    let name = query.name.as_deref().map(str::trim).unwrap_or_default();
    if name.chars().count() > LONGEST_TEXT {
        return Err(ApiError::bad_request("`name` has at most 100 characters"));
    }
    let from = query.from.as_deref().map(parse_day).transpose()?;
    let to = query.to.as_deref().map(parse_day).transpose()?;
    let end = (WallTime(to.map_or(i64::MAX, |day| (day + 1) * DAY_MS)), JobId(0));
    let before = query.before.as_deref().map(parse_position).transpose()?;
    let limit = query.limit.map_or(PAGE, |limit| limit.get() as usize).clamp(1, LONGEST_PAGE);
    let filter = HistoryFilter {
        user: visible(&user, query.user)?,
        states: parse_list(query.state.as_deref())?,
        name: name.to_lowercase(),
        from: WallTime(from.map_or(i64::MIN, |day| day * DAY_MS)),
        before: before.map_or(end, |before| before.min(end)),
        limit,
        most_bytes: LONGEST_PAGE_BYTES,
    };
    if let Some(state) = filter.states.iter().find(|state| !state.is_ended()) {
        return Err(ApiError::bad_request(format!("a job that is {state} has not ended")));
    }
    answer.reserve(&head.client_limits, 2 * LONGEST_PAGE_BYTES + limit * IN_LIST_BYTES).await;
    let history = head.history.clone();
    let read = move || -> Result<_, archive::ArchiveError> {
        let page = history.history(&filter)?;
        let jobs = page.jobs.iter().map(|bytes| archive::read(bytes)).collect::<Result<Vec<_>, _>>()?;
        Ok((jobs, page.next))
    };
    let (jobs, next) = head.client_limits.read_jobs(user.party(), read).await.map_err(ApiError::internal)??;
    let rows = telling_rows(&head, &user, &jobs).await?;
    let mut views = Vec::with_capacity(jobs.len());
    for some in jobs.chunks(AT_ONCE) {
        let (state, now) = (head.engine.state(), head.engine.now());
        views.extend(
            some.iter().map(|job| ended_job(job, views::summary(&state, job, rows.get(&job.id), user.sees(job), now))),
        );
    }
    let next = next.map(|(at, id)| format!("{}-{id}", at.0));
    Ok(Json(HistoryPage { jobs: views, next }))
}

fn ended_job(job: &Job, summary: hostler_proto::api::JobSummary) -> EndedJobView {
    let used = job.used.as_deref().copied();
    let sums = used.map(|used| used.sums).unwrap_or_default();
    let peak_memory_bytes = used.map(|used| used.peak_memory_bytes).filter(|peak| *peak > 0);
    EndedJobView {
        core_hours: hours(sums.cpu_held_ms),
        gpu_hours: hours(sums.gpu_held_ms),
        watt_hours: job.energy.as_ref().map(|energy| watt_hours(energy.drawn_uj)),
        cpu_efficiency: ratio(sums.cpu_used_ms, sums.cpu_held_ms),
        peak_memory_bytes,
        suggestion: used
            .filter(|_| !job.spec.surroundings.exclusive)
            .and_then(|used| views::suggestion(&job.spec.request, job.state(), &used)),
        summary,
    }
}

/// The user whose jobs the caller may see; `None` for all users.
fn visible(user: &User, wanted: Option<String>) -> Result<Option<String>, ApiError> {
    match wanted {
        _ if user.0.operator => Ok(wanted),
        Some(name) if name != user.0.user => Err(ApiError::new(
            axum::http::StatusCode::FORBIDDEN,
            "operators_only",
            format!("only operators may see what jobs of {name} used"),
        )
        .hint("leave out `user` to see your own jobs")),
        Some(_) | None => Ok(Some(user.0.user.clone())),
    }
}

/// The first and the last day of a period.
fn days(head: &Head, from: Option<&str>, to: Option<&str>) -> Result<(i64, i64), ApiError> {
    let last = to.map_or_else(|| Ok(day_of(head.engine.now().wall)), parse_day)?;
    let first = from.map_or(Ok(last - DAYS + 1), parse_day)?;
    Ok((first.clamp(last - MOST_DAYS + 1, last), last))
}

/// Parses `YYYY-MM-DD` to the number of days since 1970-01-01.
fn parse_day(text: &str) -> Result<i64, ApiError> {
    let date: Option<Date> = text.parse().ok().filter(|_| text.len() == 10);
    let date = date.ok_or_else(|| ApiError::bad_request(format!("`{text}` is not a day such as 2026-03-14")))?;
    let days = Date::constant(1970, 1, 1).until(date).map_err(ApiError::internal)?;
    Ok(days.get_days().into())
}

fn name_of_day(day: i64) -> String {
    let span = jiff::Span::new().try_days(day);
    span.and_then(|span| Date::constant(1970, 1, 1).checked_add(span))
        .map_or_else(|_| day.to_string(), |date| date.to_string())
}

/// Parses the position after which a page begins: a time and a job id.
pub(super) fn parse_position(text: &str) -> Result<(WallTime, JobId), ApiError> {
    let parts = text.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
    let (at, id) = parts.ok_or_else(|| ApiError::bad_request("`before` is not the `next` of another page"))?;
    Ok((WallTime(at), JobId(id)))
}

fn hours(ms: u64) -> f64 {
    ms as f64 / 3_600_000.0
}

fn watt_hours(microjoules: u64) -> f64 {
    microjoules as f64 / 3.6e9
}

fn ratio(used: u64, held: u64) -> Option<f64> {
    (held > 0).then(|| (used as f64 / held as f64 * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written() {
        for (text, day) in [("1970-01-01", 0), ("2026-03-14", 20_526), ("2028-02-29", 21_243)] {
            assert_eq!(parse_day(text).ok(), Some(day), "{text}");
            assert_eq!(name_of_day(day), text);
        }
        for text in ["", "2026-02-30", "20260314", "2026-03-14T00:00", "yesterday"] {
            assert!(parse_day(text).is_err(), "{text}");
        }
    }

    #[test]
    fn positions_are_read() {
        assert_eq!(parse_position("1800000000000-17").ok(), Some((WallTime(1_800_000_000_000), JobId(17))));
        for text in ["", "-", "17", "a-b", "1-2-3"] {
            assert!(parse_position(text).is_err(), "{text}");
        }
    }
}
