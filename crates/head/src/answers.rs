//! Responses in transit: the resources they hold, and clients that do not read.
//!
//! A response that the client does not read stays in memory. An [`Answer`] therefore holds the request's slot and its
//! reserved memory until the last byte is in the socket's buffer, or until the connection ends.
//!
//! [`Unsent`] watches one connection. It closes the connection when the client reads nothing for [`READ_TIMEOUT`] while
//! data waits. An event stream without news has no data to send. Upgraded connections are not watched, because users
//! may pause a terminal's output for any time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hostler_listen::UsagePermit;
use hostler_model::NodeName;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep};

use crate::client_limits::{ClientLimits, Held, Party};

/// Maximum time for which a client may read nothing while data waits for the client.
const READ_TIMEOUT: Duration = Duration::from_secs(25);

/// Interval between checks whether a client still reads. A client that reads nothing is disconnected within 30 seconds.
const LOOK: Duration = Duration::from_secs(5);

/// Maximum size of a piece of a body. Each piece sent counts as progress, so a client that reads 700 bytes per second
/// stays connected.
const PIECE_BYTES: usize = 16 << 10;

/// Slots that an unfinished request occupies: one of its user and, if a node relayed the request, one of the node.
pub(crate) type Pending = (UsagePermit<String>, Option<UsagePermit<NodeName>>);

/// Resources that a request holds until its response is sent. Handlers find this value in the request's extensions.
pub(crate) struct Answer {
    party: Party,
    _share: Option<Pending>,
    memory: Mutex<Vec<Held>>,
}

impl Answer {
    pub(crate) fn new(party: Party, share: Option<Pending>) -> Arc<Self> {
        Arc::new(Self { party, _share: share, memory: Mutex::default() })
    }

    /// Returns the client whose share of resources the request uses.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// Reserves memory for the whole response. Waits while unsent responses of the same client use the client's whole
    /// share of memory.
    ///
    /// Call this function once, and before using the memory: a request that holds memory and waits for more may
    /// deadlock with itself.
    pub(crate) async fn reserve(&self, client_limits: &ClientLimits, bytes: usize) {
        let memory = self.memory_for(client_limits, bytes).await;
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// Reserves memory for one part of a streamed response. [`hold`] attaches the memory to the part.
    pub(crate) async fn memory_for(&self, client_limits: &ClientLimits, bytes: usize) -> Held {
        client_limits.answers.take(&self.party, kib(bytes)).await
    }

    /// Reserves memory for the digests of a stream's chunks until the stream ends.
    pub(crate) async fn reserve_list(&self, client_limits: &ClientLimits, bytes: usize) {
        let memory = client_limits.lists.take(&self.party, kib(bytes)).await;
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

/// Rounds up to KiB, the unit of memory limits for responses.
pub(crate) const fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 10)
}

/// Attaches a memory reservation to bytes. The reservation ends when no part of the bytes is in use.
pub(crate) fn hold(bytes: impl AsRef<[u8]> + Send + 'static, mut memory: Held) -> Bytes {
    struct Holder<B>(B, #[expect(dead_code, reason = "dropping the bytes must also drop their reservation")] Held);
    impl<B: AsRef<[u8]>> AsRef<[u8]> for Holder<B> {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }
    // Return the part of the reservation that the bytes do not need.
    for permit in &mut memory {
        let spare = permit.num_permits().saturating_sub(kib(bytes.as_ref().len()));
        drop(permit.split(spare));
    }
    Bytes::from_owner(Holder(bytes, memory))
}

/// Data that waits to be sent on a connection.
pub(crate) struct Unsent {
    progress: Mutex<Progress>,
}

struct Progress {
    /// Number of pieces that are not yet in the socket's buffer, plus number of bodies that may have more data.
    pending: usize,
    /// Time at which the client last read data, or at which data began to wait.
    moved: Instant,
}

impl Default for Unsent {
    fn default() -> Self {
        Self { progress: Mutex::new(Progress { pending: 0, moved: Instant::now() }) }
    }
}

impl Unsent {
    /// Returns when the client has read nothing for [`READ_TIMEOUT`].
    pub(crate) async fn stalled(&self) {
        loop {
            sleep(LOOK).await;
            if self.has_stalled(Instant::now()) {
                return;
            }
        }
    }

    fn has_stalled(&self, now: Instant) -> bool {
        let progress = self.progress();
        progress.pending > 0 && now.saturating_duration_since(progress.moved) >= READ_TIMEOUT
    }

    /// Wraps a response, so that its unsent data counts as pending on this connection.
    pub(crate) fn watch(self: &Arc<Self>, mut response: Response) -> hyper::Response<Watched> {
        let answer = response.extensions_mut().remove();
        response.map(|inner| {
            let more = (!inner.is_end_stream()).then(|| PendingBody::of(self));
            Watched { inner, rest: Bytes::new(), more, answer, unsent: Arc::clone(self) }
        })
    }

    fn owe(&self) {
        let mut progress = self.progress();
        if progress.pending == 0 {
            progress.moved = Instant::now();
        }
        progress.pending += 1;
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a body as pending until this value is dropped: the body may have more data.
struct PendingBody(Arc<Unsent>);

impl PendingBody {
    fn of(unsent: &Arc<Unsent>) -> Self {
        unsent.owe();
        Self(Arc::clone(unsent))
    }
}

impl Drop for PendingBody {
    fn drop(&mut self) {
        // This does not update `moved`: the client has read nothing.
        self.0.progress().pending -= 1;
    }
}

/// A piece of a body that is not yet in the socket's buffer.
struct Piece {
    bytes: Bytes,
    unsent: Arc<Unsent>,
    _answer: Option<Arc<Answer>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut progress = self.unsent.progress();
        progress.pending -= 1;
        progress.moved = Instant::now();
    }
}

pub(crate) struct Watched {
    inner: Body,
    /// Data from `inner` that was not sent yet.
    rest: Bytes,
    /// Counts `inner` as pending, because it may have more data. Absent while `inner` waits for new data.
    more: Option<PendingBody>,
    answer: Option<Arc<Answer>>,
    unsent: Arc<Unsent>,
}

impl Watched {
    fn next_piece(&mut self) -> Bytes {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        self.unsent.owe();
        Bytes::from_owner(Piece { bytes, unsent: Arc::clone(&self.unsent), _answer: self.answer.clone() })
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            let next = Pin::new(&mut self.inner).poll_frame(context);
            if !matches!(next, Poll::Ready(Some(Ok(_)))) {
                self.more = None;
            }
            match ready!(next).transpose()?.map(Frame::into_data) {
                Some(Ok(bytes)) => self.rest = bytes,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        if self.more.is_none() {
            self.more = Some(PendingBody::of(&self.unsent));
        }
        let piece = self.next_piece();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::BodyExt;

    use super::*;

    async fn next(body: &mut Watched) -> Bytes {
        let frame = body.frame().await.expect("the body has another frame").expect("the body gives no error");
        frame.into_data().expect("bytes")
    }

    fn watched(unsent: &Arc<Unsent>, body: Body) -> Watched {
        unsent.watch(Response::new(body)).into_body()
    }

    fn after(time: Duration) -> Instant {
        Instant::now() + time
    }

    #[tokio::test]
    async fn client_that_reads_nothing_is_detected() {
        let unsent = Arc::new(Unsent::default());
        let mut body = watched(&unsent, Body::from(vec![0; 3 * PIECE_BYTES]));
        assert!(!unsent.has_stalled(Instant::now()));
        assert!(unsent.has_stalled(after(READ_TIMEOUT)), "a stall before the first piece is not detected");
        let first = next(&mut body).await;
        let (second, third) = (next(&mut body).await, next(&mut body).await);
        assert!(body.is_end_stream());
        drop((body, first, second));
        assert!(unsent.has_stalled(after(READ_TIMEOUT)), "a stall before the last piece is not detected");
        drop(third);
        assert!(!unsent.has_stalled(after(READ_TIMEOUT)));
    }

    #[tokio::test]
    async fn reading_a_piece_resets_the_timeout_and_adding_one_does_not() {
        let unsent = Arc::new(Unsent::default());
        let pieces = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]);
        let mut body = watched(&unsent, Body::from_stream(pieces.chain(stream::pending())));
        let moved = || unsent.progress().moved;
        let began = moved();
        let first = next(&mut body).await;
        let _second = next(&mut body).await;
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(moved(), began);
        drop(first);
        assert!(moved() > began);
        assert!(unsent.has_stalled(after(READ_TIMEOUT)));
    }

    #[tokio::test]
    async fn idle_stream_never_stalls() {
        let unsent = Arc::new(Unsent::default());
        let quiet = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"news"))]).chain(stream::pending());
        let mut body = watched(&unsent, Body::from_stream(quiet));
        assert_eq!(next(&mut body).await, "news");
        assert!(unsent.has_stalled(after(READ_TIMEOUT)), "more data may follow");
        assert!(body.frame().now_or_never().is_none());
        assert!(!unsent.has_stalled(after(24 * 60 * READ_TIMEOUT)));
    }

    #[tokio::test]
    async fn slot_and_memory_are_held_until_the_last_piece_is_sent() {
        let (client_limits, unsent) = (ClientLimits::default(), Arc::new(Unsent::default()));
        let ada = "ada".to_owned();
        let answer = Answer::new(
            Party::of_user(&ada, None),
            client_limits.requests.take(ada.clone()).map(|share| (share, None)),
        );
        answer.reserve(&client_limits, usize::MAX).await;
        let mut response = Response::new(Body::from("short"));
        response.extensions_mut().insert(answer);
        let mut body = unsent.watch(response).into_body();
        let piece = next(&mut body).await;
        assert!(body.is_end_stream());
        drop(body);
        let other = Answer::new(Party::of_user(&ada, None), None);
        assert!(other.reserve(&client_limits, 1).now_or_never().is_none(), "all of ada's memory is held");
        let others: Vec<_> = std::iter::from_fn(|| client_limits.requests.take(ada.clone())).collect();
        assert_eq!(others.len(), client_limits.requests.most() - 1);
        drop(piece);
        assert!(other.reserve(&client_limits, 1).now_or_never().is_some());
        assert!(client_limits.requests.take(ada).is_some());
    }
}
