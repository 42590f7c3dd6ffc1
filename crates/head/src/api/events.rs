//! Server-sent events about changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, StreamExt, stream};
use hostler_proto::api::Notice;
use tokio::sync::broadcast::error::RecvError;

use super::who::User;
use crate::head::Head;

/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET /events`.
pub(crate) async fn events(
    _: User,
    State(head): State<Arc<Head>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stop = head.stop.clone().cancelled_owned();
    let notices = stream::unfold(head.engine.notices(), |mut notices| async {
        let notice = match notices.recv().await {
            Ok(notice) => notice,
            Err(RecvError::Lagged(_)) => Notice::Missed,
            Err(RecvError::Closed) => return None,
        };
        let event = Event::default().json_data(notice).expect("API types are valid JSON");
        Some((Ok(event), notices))
    });
    Sse::new(notices.take_until(stop)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
