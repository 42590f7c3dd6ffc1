//! HTTP/1 connections, and bodies of requests with a minimum pace.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioTimer;
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep};

/// Timeout of a request's header. It also ends idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum number of bytes that a body must bring per [`PERIOD`] of waiting for it, or it must end. One KiB per second
/// is less than any usable connection provides.
const MIN_BYTES_PER_PERIOD: usize = 30 << 10;
const PERIOD: Duration = Duration::from_secs(30);

/// The error of a body whose client sends too slowly.
#[derive(Debug, Clone, Copy, Error)]
#[error("received less than {} KiB in {} seconds", MIN_BYTES_PER_PERIOD >> 10, PERIOD.as_secs())]
pub struct Stalled;

/// Whether an error comes from a body whose client sends too slowly.
#[must_use]
pub fn is_stalled(error: &(dyn Error + 'static)) -> bool {
    error.is::<Stalled>() || error.source().is_some_and(is_stalled)
}

/// Creates an HTTP/1 server with a time limit for headers.
#[must_use]
pub fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
}

/// A service that answers requests, whose bodies keep the minimum pace. A handler finds the [`Pace`] of its request in
/// the extensions.
#[expect(clippy::disallowed_methods, reason = "this is the one that paces bodies")]
pub fn service<A, F, B>(
    answer: A,
) -> impl Service<
    Request<Incoming>,
    Response = Response<B>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<B>, Infallible>>,
>
where
    A: Fn(Request<Paced>) -> F,
    F: Future<Output = Response<B>>,
    B: Body,
{
    hyper::service::service_fn(move |request: Request<Incoming>| {
        let pace = Pace::default();
        let mut request = request.map(|body| Paced::new(body, pace.clone()));
        request.extensions_mut().insert(pace);
        let answer = answer(request);
        async move { Ok(answer.await) }
    })
}

/// The pace of one request's body.
#[derive(Debug, Clone, Default)]
pub struct Pace(Arc<AtomicBool>);

impl Pace {
    /// Lets the body be silent, because it is a stream of events of a peer that has a share of its own.
    pub fn waive(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A body that fails with [`Stalled`] if its client sends too slowly. Only the time that a reader waits for the client
/// counts.
pub struct Paced<B = Incoming> {
    inner: B,
    pace: Pace,
    period: Duration,
    /// Bytes and time of the current period.
    came: usize,
    waited: Duration,
    /// The wait for the next frame: its start and its limit.
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Paced<B> {
    fn new(inner: B, pace: Pace) -> Self {
        Self { inner, pace, period: PERIOD, came: 0, waited: Duration::ZERO, wait: None }
    }

    fn count(&mut self, bytes: usize) {
        if let Some((since, _)) = self.wait.take() {
            self.waited += since.elapsed();
        }
        self.came += bytes;
        if self.came >= MIN_BYTES_PER_PERIOD {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B>
where
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(next) = Pin::new(&mut this.inner).poll_frame(context) {
            let bytes = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
            this.count(bytes.unwrap_or_default());
            return Poll::Ready(next.map(|frame| frame.map_err(Into::into)));
        }
        if this.pace.0.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let rest = this.period.saturating_sub(this.waited);
        let (_, limit) = this.wait.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(rest))));
        limit.as_mut().poll(context).map(|()| Some(Err(Stalled.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{Stream, unfold};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    type Dripping<S> = Paced<StreamBody<Pin<Box<S>>>>;

    /// A body without end that brings `bytes` after each pause, and must bring 30 KiB per second.
    fn dripping(bytes: usize, pause: Duration) -> Dripping<impl Stream<Item = Result<Frame<Bytes>, Infallible>>> {
        let drip = move |()| async move {
            sleep(pause).await;
            Some((Ok(Frame::data(Bytes::from(vec![b'x'; bytes]))), ()))
        };
        Paced { period: SECOND, ..Paced::new(StreamBody::new(Box::pin(unfold((), drip))), Pace::default()) }
    }

    #[tokio::test]
    async fn body_that_drips_fails_after_one_period() {
        let began = Instant::now();
        let error = dripping(1, SECOND / 50).collect().await.expect_err("it never ends");
        assert!(is_stalled(&*error), "{error}");
        assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn time_without_a_reader_does_not_count() {
        let mut body = dripping(1, Duration::ZERO);
        for _ in 0..20 {
            body.frame().await.expect("it has no end").expect("the reader has hardly waited");
            sleep(SECOND / 10).await;
        }
    }

    #[tokio::test]
    async fn body_within_the_pace_and_a_waived_one_go_on() {
        let mut body = dripping(MIN_BYTES_PER_PERIOD, SECOND / 20);
        for _ in 0..40 {
            body.frame().await.expect("it has no end").expect("it is fast enough");
        }
        let mut body = dripping(1, SECOND * 2);
        body.pace.waive();
        body.frame().await.expect("it has no end").expect("its pace does not matter");
    }
}
