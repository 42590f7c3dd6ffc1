//! Ends requests and streams when the rights of their caller end: after a sign-out or the expiry of a token, when an
//! admin removes or blocks a user or lowers a role, and when a node leaves the cluster.

use axum::body::{Body, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use hostler_model::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::engine::Engine;
use crate::identify::{Credentials, identify};
use crate::identity::{Identity, Origin, Person, Unidentified};

/// The identity of a caller, and how to notice its end.
#[derive(Clone)]
pub(crate) struct Lease {
    engine: Engine,
    credentials: Credentials,
    /// Whether callers without credentials are accepted while the dashboard is public.
    is_open: bool,
    identity: Identity,
    changes: watch::Receiver<()>,
}

impl Lease {
    /// Identifies a caller.
    pub(crate) fn begin(engine: &Engine, credentials: Credentials, is_open: bool) -> Self {
        // Subscribes first, so that no change between the two is missed.
        let changes = engine.changes_of_rights();
        let identity = identity(engine, &credentials, is_open);
        Self { engine: engine.clone(), credentials, is_open, identity, changes }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Waits until a user loses rights. Returns the caller's identity after that. Agents check their certificates
    /// themselves, and callers without rights lose none.
    pub(crate) async fn ended(mut self) -> Identity {
        let Identity::User(person) = self.identity.clone() else { return std::future::pending().await };
        loop {
            let now = identity(&self.engine, &self.credentials, self.is_open);
            if !matches!(&now, Identity::User(now) if has_rights_of(now, &person)) {
                return now;
            }
            let expiry = self.expires_at(&person).and_then(|at| self.engine.instant(at));
            let expired = async {
                match expiry {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return now },
                () = expired => {}
            }
        }
    }

    /// When the caller's token expires, if a token identifies the caller.
    fn expires_at(&self, person: &Person) -> Option<Timestamp> {
        let Origin::Token(token) = &person.origin else { return None };
        Some(self.engine.state().users.by_token(token, self.engine.now().at)?.1)
    }

    /// Ends a streamed answer with the caller's rights. An event stream ends as if it were complete, so that the client
    /// asks again and learns why. Any other stream ends with an error, because its data is incomplete.
    pub(crate) fn bind(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() || !matches!(self.identity, Identity::User(_)) {
            return response;
        }
        let is_event_stream =
            response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        response.map(|body| {
            let parts = Some((body.into_data_stream(), Box::pin(self.ended())));
            Body::from_stream(stream::unfold(parts, move |parts| async move {
                let (mut pieces, mut ended) = parts?;
                tokio::select! {
                    piece = pieces.next() => Some((piece?, Some((pieces, ended)))),
                    _ = &mut ended => {
                        let error = axum::Error::new("the rights of the caller have ended");
                        (!is_event_stream).then_some((Err(error), None))
                    }
                }
            }))
        })
    }
}

/// The identity of a caller at this moment.
fn identity(engine: &Engine, credentials: &Credentials, is_open: bool) -> Identity {
    match identify(engine, credentials) {
        Identity::Unidentified(Unidentified::Stranger) if is_open && engine.state().settings.dashboard_public => {
            Identity::User(Person::public())
        }
        identity => identity,
    }
}

/// Whether `now` is the same user as `before`, with at least the same role.
fn has_rights_of(now: &Person, before: &Person) -> bool {
    now.role >= before.role && *now == Person { role: now.role, ..before.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderValue;
    use hostler_core::head::{Command, NewUser, Now, State, UsersCommand};
    use hostler_model::{Role, UserName};
    use hostler_store::{MemoryStore, Store, Writer};
    use http_body_util::BodyExt;
    use tokio::time::timeout;

    use super::*;
    use crate::audit::Events;
    use crate::blobs::name_of;
    use crate::engine::first_batch;

    const TOKEN: &[u8] = b"secret";

    fn ada() -> UserName {
        "ada".parse().expect("a valid name")
    }

    /// An engine with the user ada. Her token ends after `life_ms`.
    async fn engine(life_ms: Option<u64>) -> Engine {
        let store = MemoryStore::new();
        let reader = store.reader();
        let writer = Writer::start(store).expect("a thread");
        let mut state = State::default();
        writer.commit_and_wait(first_batch(&mut state, 1, Now::default())).expect("memory is available");
        let (engine, _) = Engine::start(state, (1, 2), writer, reader, Events::default());
        let new = NewUser { name: ada(), uid: None, role: Role::Operator, groups: [].into(), keys: Vec::new() };
        command(&engine, UsersCommand::Add(new)).await;
        let until = life_ms.map(|life_ms| engine.now().at.plus_ms(life_ms));
        command(&engine, UsersCommand::IssueToken { token: name_of(TOKEN), user: ada(), until }).await;
        engine
    }

    async fn command(engine: &Engine, command: UsersCommand) {
        engine.command(Command::Users(command)).await.expect("accepted");
    }

    fn lease(engine: &Engine) -> Lease {
        let authorization = Some(HeaderValue::from_static("Bearer secret"));
        let lease = Lease::begin(engine, Credentials { authorization, ..Credentials::default() }, false);
        assert!(matches!(lease.identity(), Identity::User(_)), "{:?}", lease.identity());
        lease
    }

    /// Waits for the end of a lease.
    async fn end(lease: Lease) -> Identity {
        timeout(Duration::from_secs(30), lease.ended()).await.expect("the lease ends")
    }

    /// A stream of this type that gives one piece and then waits forever.
    fn endless(kind: &'static str) -> Response {
        let pieces = stream::iter([Ok::<_, axum::Error>("first")]).chain(stream::pending());
        let mut response = Response::new(Body::from_stream(pieces));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    #[tokio::test]
    async fn lease_ends_with_the_token_and_not_with_changes_of_others() {
        let engine = engine(None).await;
        let lease_before = lease(&engine);
        let ben: UserName = "ben".parse().expect("a valid name");
        let new = NewUser { name: ben.clone(), uid: None, role: Role::User, groups: [].into(), keys: Vec::new() };
        command(&engine, UsersCommand::Add(new)).await;
        command(&engine, UsersCommand::Remove(ben)).await;
        command(&engine, UsersCommand::SetRole(ada(), Role::Admin)).await;
        assert!(timeout(Duration::from_millis(50), lease_before.clone().ended()).await.is_err(), "ada lost nothing");
        command(&engine, UsersCommand::RevokeToken(name_of(TOKEN))).await;
        let now = end(lease_before).await;
        assert!(matches!(now, Identity::Unidentified(Unidentified::BadToken)), "{now:?}");
    }

    #[tokio::test]
    async fn lease_ends_when_the_token_expires() {
        let engine = engine(Some(200)).await;
        let now = end(lease(&engine)).await;
        assert!(matches!(now, Identity::Unidentified(Unidentified::ExpiredToken)), "{now:?}");
    }

    #[tokio::test]
    async fn lease_ends_when_an_admin_blocks_the_user_or_lowers_the_role() {
        let engine = engine(None).await;
        let before = lease(&engine);
        command(&engine, UsersCommand::SetRole(ada(), Role::User)).await;
        assert!(matches!(end(before).await, Identity::User(Person { role: Role::User, .. })));
        let before = lease(&engine);
        let block = UsersCommand::Block { name: ada(), uid: None, by: "root".to_owned(), reason: None };
        command(&engine, block).await;
        assert!(matches!(end(before).await, Identity::Unidentified(Unidentified::Blocked { .. })));
    }

    #[tokio::test]
    async fn events_end_completely_and_other_streams_with_an_error() {
        let engine = engine(None).await;
        let events = lease(&engine).bind(endless("text/event-stream")).into_body();
        let output = lease(&engine).bind(endless("application/octet-stream")).into_body();
        command(&engine, UsersCommand::Remove(ada())).await;
        let read = async |body: Body| timeout(Duration::from_secs(30), body.collect()).await.expect("the stream ends");
        assert!(read(events).await.is_ok());
        assert!(read(output).await.is_err());
    }
}
