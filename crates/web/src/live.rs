//! `GET /live`: tells browsers that jobs or nodes changed, as server-sent events.
//!
//! An event contains only counters of changes, so a slow reader misses nothing: the next event replaces the ones
//! before it, and each stream holds at most one. One task reads the events of the API for all browsers.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures_util::{Stream, StreamExt, stream};
use hostler_proto::api::Notice;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::Api;
use crate::page::Frame;

/// Minimum time between two events on a stream.
const PACE: Duration = Duration::from_secs(1);

/// Longest time between two events, however many streams are open.
const SLOWEST_PACE: Duration = Duration::from_secs(60);

/// Share of a CPU that open browsers may cost the head. Each event makes a browser load a page, so the pace follows from the cost of
/// a page and the number of streams.
const MAX_SHARE: f64 = 0.1;

/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Maximum life of a stream. The browser then connects again, and the head checks its rights again. Bounds what the
/// head sends to a client that reads nothing.
const MAX_LIFE: Duration = Duration::from_secs(300);

/// Time after which browsers connect again, in milliseconds, and the maximum that is added to it.
const RETRY_MS: (u64, u64) = (2_000, 3_000);

/// Numbers of changes since one task began to count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counters {
    /// Number of the task that counts.
    from: u64,
    jobs: u64,
    nodes: u64,
}

/// The source of changes that all streams share.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Counters of the running task, if any.
    counters: Mutex<Weak<watch::Sender<Counters>>>,
    /// Number of tasks and streams so far.
    numbers: AtomicU64,
    streams: AtomicUsize,
    /// Mean time in which the head makes a page, in microseconds. The last pages count most.
    page_us: AtomicU64,
}

impl Live {
    /// Notes in what time a page was made.
    fn made_page(&self, busy: Duration) {
        let busy = u64::try_from(busy.as_micros()).unwrap_or(u64::MAX).min(500_000);
        // A race loses one sample at most.
        let mean = self.page_us.load(Ordering::Relaxed);
        self.page_us.store((mean * 15 + busy) / 16, Ordering::Relaxed);
    }

    /// Subscribes to changes. Starts the task that counts them, if none runs.
    fn subscribe(&self, api: &Api) -> watch::Receiver<Counters> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = counters.upgrade() {
            return running.subscribe();
        }
        let first = Counters { from: self.numbers.fetch_add(1, Ordering::Relaxed), ..Counters::default() };
        let (sender, receiver) = watch::channel(first);
        let sender = Arc::new(sender);
        *counters = Arc::downgrade(&sender);
        tokio::spawn(count(api.clone(), sender));
        receiver
    }

    /// Time between two events on a stream.
    fn pace(&self) -> Duration {
        let page = Duration::from_micros(self.page_us.load(Ordering::Relaxed));
        let streams = self.streams.load(Ordering::Relaxed) as f64;
        page.mul_f64(streams / MAX_SHARE).clamp(PACE, SLOWEST_PACE)
    }
}

/// Measures what each page costs: the time in which it is made, without the time in which it waits for nodes.
pub(crate) async fn time_pages(Extension(live): Extension<Arc<Live>>, request: Request, next: Next) -> Response {
    let is_get = request.method() == Method::GET;
    let mut busy = Duration::ZERO;
    let mut page = pin!(next.run(request));
    let response = poll_fn(|context| {
        let begun = Instant::now();
        let polled = page.as_mut().poll(context);
        busy += begun.elapsed();
        polled
    })
    .await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if is_get && kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html")) {
        live.made_page(busy);
    }
    response
}

/// Counts the events of the API until they end or nobody listens. Dropping the sender ends all streams.
async fn count(api: Api, counters: Arc<watch::Sender<Counters>>) {
    let mut events = api.send(Method::GET, "/events", Body::empty()).await.into_body().into_data_stream();
    let mut rest = Vec::new();
    loop {
        let piece = tokio::select! {
            piece = events.next() => piece,
            () = counters.closed() => return,
        };
        let Some(Ok(piece)) = piece else { return };
        rest.extend_from_slice(&piece);
        let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { continue };
        let (jobs, nodes) = changes(&rest[..end]);
        rest.drain(..=end);
        if jobs + nodes > 0 {
            counters.send_modify(|counters| {
                counters.jobs += jobs;
                counters.nodes += nodes;
            });
        }
    }
}

/// Numbers of changed jobs and nodes in complete lines of an event stream.
fn changes(lines: &[u8]) -> (u64, u64) {
    let data = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    data.fold((0, 0), |(jobs, nodes), data| match serde_json::from_slice(data) {
        Ok(Notice::Job { .. }) => (jobs + 1, nodes),
        Ok(Notice::Node { .. }) => (jobs, nodes + 1),
        Ok(Notice::Missed) | Err(_) => (jobs + 1, nodes + 1),
    })
}

/// One browser's stream.
struct Subscriber {
    counters: watch::Receiver<Counters>,
    live: Arc<Live>,
    /// Number of the stream, which spreads the streams over time.
    number: u64,
    end: Instant,
    /// When the next event may be sent; absent before the first one.
    next: Option<Instant>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.live.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subscriber {
    /// Waits for the next event. Returns `None` at the end of the stream.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        let mut event = Event::default().event("changed");
        if let Some(next) = self.next {
            timeout_at(self.end, self.counters.changed()).await.ok()?.ok()?;
            // Not all browsers load their pages at the same moment.
            sleep_until(next.max(Instant::now() + spread(self.number, self.live.pace() / 2))).await;
        } else {
            let (least, more) = RETRY_MS;
            event = event.retry(Duration::from_millis(least) + spread(self.number, Duration::from_millis(more)));
        }
        self.next = Some(Instant::now() + self.live.pace());
        let counters = *self.counters.borrow_and_update();
        let event = event.json_data(counters).expect("counters are valid JSON");
        Some((Ok(event), self))
    }
}

/// A part of `span` that differs between consecutive numbers and fills the span evenly.
fn spread(number: u64, span: Duration) -> Duration {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    span.mul_f64((number.wrapping_mul(GOLDEN) >> 11) as f64 / (1_u64 << 53) as f64)
}

/// `GET /live`. The answer 204 tells the browser not to connect again: changes are for users only.
pub(crate) async fn stream(frame: Frame, Extension(live): Extension<Arc<Live>>) -> Response {
    if !frame.me.identified {
        return StatusCode::NO_CONTENT.into_response();
    }
    const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    ([(NO_BUFFERING, "no")], Sse::new(events(&frame.api, live)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
        .into_response()
}

fn events(api: &Api, live: Arc<Live>) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    live.streams.fetch_add(1, Ordering::Relaxed);
    let number = live.numbers.fetch_add(1, Ordering::Relaxed);
    let counters = live.subscribe(api);
    let subscriber = Subscriber { counters, live, number, end: Instant::now() + MAX_LIFE, next: None };
    stream::unfold(subscriber, Subscriber::next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_by_kind() {
        let lines = b"data: {\"event\":\"job\",\"id\":3,\"state\":\"running\"}\n\n: keep-alive\n\n\
            data: {\"event\":\"node\",\"name\":\"n1\",\"state\":\"up\"}\n\ndata: {\"event\":\"missed\"}\n";
        assert_eq!(changes(lines), (2, 2));
        assert_eq!(changes(b""), (0, 0));
    }

    #[test]
    fn streams_are_spread_evenly_and_slow_down_when_there_are_many() {
        let span = Duration::from_secs(1);
        let mut offsets: Vec<Duration> = (0..100).map(|number| spread(number, span)).collect();
        offsets.sort_unstable();
        assert!(offsets.iter().all(|offset| *offset < span));
        assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] < Duration::from_millis(30)), "{offsets:?}");
        let live = Live::default();
        assert_eq!(live.pace(), PACE);
        live.streams.store(200, Ordering::Relaxed);
        assert_eq!(live.pace(), PACE, "pages cost nothing");
        for _ in 0..100 {
            live.made_page(Duration::from_millis(5));
        }
        let pace = live.pace();
        assert!((Duration::from_millis(9_800)..=Duration::from_secs(10)).contains(&pace), "{pace:?}");
        (0..100).for_each(|_| live.made_page(Duration::from_secs(60)));
        assert_eq!(live.pace(), SLOWEST_PACE);
    }
}
