//! A connection's place among the others of its listener.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::admission::{Admission, Listener, Party, Standing, TooMany};
use crate::network::Origin;

/// Pause after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection's place. Dropping it frees the place.
pub struct Place<P: Party> {
    admission: Arc<Admission<P>>,
    number: AtomicU64,
    standing: watch::Sender<Standing>,
}

/// Why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Evicted {
    #[error("too many newer connections")]
    Displaced,
    #[error("not identified within the time limit")]
    Late,
}

impl<P: Party> Admission<P> {
    /// Accepts the next connection. It is unidentified.
    pub async fn accept<L: Listener>(self: &Arc<Self>, listener: &mut L) -> (L::Stream, Arc<Place<P>>) {
        loop {
            match listener.accept().await {
                Ok((stream, origin)) => return (stream, Arc::new(Place::new(self, origin))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl<P: Party> Place<P> {
    /// Gives a new connection a place. If there are too many, another one loses its place.
    pub(crate) fn new(admission: &Arc<Admission<P>>, origin: Origin) -> Self {
        let standing = watch::Sender::new(Standing::Stranger(Instant::now()));
        let number = AtomicU64::new(admission.add_stranger(origin, &standing));
        Self { admission: Arc::clone(admission), number, standing }
    }

    /// Counts the connection for this party, and no longer for its previous owner.
    ///
    /// # Errors
    /// The party uses its whole share. The connection keeps its previous owner.
    pub fn identify(&self, party: &P) -> Result<(), TooMany> {
        self.admission.identify(&self.number, party)
    }

    /// Makes the connection unidentified, for example because its next request may come from somebody else.
    pub fn forget(&self) {
        self.admission.forget(&self.number);
    }

    /// Frees the place of a peer that could end this process anyway. The connection is never closed for others.
    pub fn release(&self) {
        if self.admission.leave(&self.number) {
            self.standing.send_replace(Standing::Identified);
        }
    }

    /// Does the connection's work, until the connection must end.
    ///
    /// # Errors
    /// Others needed the place, or nobody identified the peer in time. The work was stopped.
    pub async fn hold<F: Future>(&self, work: F) -> Result<F::Output, Evicted> {
        let mut standing = self.standing.subscribe();
        let mut work = pin!(work);
        loop {
            let now = *standing.borrow_and_update();
            let due = match now {
                Standing::Evicted => return Err(Evicted::Displaced),
                Standing::Stranger(since) => Some(since + self.admission.stranger_time()),
                Standing::Identified => None,
            };
            tokio::select! {
                biased;
                output = work.as_mut() => return Ok(output),
                _ = standing.changed() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Err(Evicted::Late),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn standing(&self) -> Standing {
        *self.standing.borrow()
    }
}

impl<P: Party> Drop for Place<P> {
    fn drop(&mut self) {
        self.admission.leave(&self.number);
    }
}

/// A stream that keeps its place, also after a change of protocol such as to a WebSocket. When the place is lost,
/// reading and writing fail.
pub struct Tied<S, P: Party> {
    stream: S,
    _place: Arc<Place<P>>,
    evicted: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S, P: Party> Tied<S, P> {
    pub fn new(stream: S, place: &Arc<Place<P>>) -> Self {
        let mut standing = place.standing.subscribe();
        let evicted = Box::pin(async move {
            // The place holds the sender, so this waits for the eviction alone.
            let _ = standing.wait_for(|now| *now == Standing::Evicted).await;
        });
        Self { stream, _place: Arc::clone(place), evicted }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // Ready only once, because the stream is not used after the error.
        match self.evicted.as_mut().poll(context) {
            Poll::Ready(()) => {
                self.evicted = Box::pin(std::future::ready(()));
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, Evicted::Displaced))
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin, P: Party> AsyncRead for Tied<S, P> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, P: Party> AsyncWrite for Tied<S, P> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, duplex};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::admission::Limits;

    async fn accepted(admission: &Arc<Admission<()>>, listener: &mut TcpListener) -> (TcpStream, Arc<Place<()>>) {
        let client = TcpStream::connect(listener.local_addr().expect("it listens")).await.expect("it listens");
        let (_, place) = admission.accept(listener).await;
        (client, place)
    }

    async fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.expect("a free port")
    }

    #[tokio::test]
    async fn connection_ends_when_nobody_identifies_it_in_time() {
        let time = Duration::from_millis(200);
        let limits = Limits { strangers: 8, time, total: 32 };
        let (admission, mut listener) = (Admission::<()>::new(limits), listener().await);
        let (_client, place) = accepted(&admission, &mut listener).await;
        assert_eq!(place.hold(std::future::pending::<()>()).await, Err(Evicted::Late));
        let (_client, place) = accepted(&admission, &mut listener).await;
        let work = async {
            place.identify(&()).expect("within the share");
            tokio::time::sleep(3 * time).await;
            place.forget();
            std::future::pending::<()>().await;
        };
        let began = Instant::now();
        assert_eq!(place.hold(work).await, Err(Evicted::Late));
        assert!(began.elapsed() >= 4 * time, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn displaced_connection_ends_at_once_and_so_does_its_stream() {
        let (admission, mut listener) =
            (Admission::<()>::new(Limits::of_strangers(1, Duration::from_secs(60))), listener().await);
        let (_first, place) = accepted(&admission, &mut listener).await;
        let (stream, _peer) = duplex(16);
        let mut tied = Tied::new(stream, &place);
        let read = tokio::spawn(async move { tied.read_u8().await });
        let held = tokio::spawn({
            let place = Arc::clone(&place);
            async move { place.hold(std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        let (_second, other) = accepted(&admission, &mut listener).await;
        assert_eq!(held.await.expect("it does not panic"), Err(Evicted::Displaced));
        let error = read.await.expect("it does not panic").expect_err("the place is lost");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(other.hold(async { 7 }).await, Ok(7));
    }
}
