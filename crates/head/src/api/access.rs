//! Who asks, and whether they may: found out once for each request, before any handler.
//!
//! Four ways lead to a name. On the head's own socket the kernel says who it is. A node's agent passes on requests of the users of its
//! machine, with the word of the kernel there; the head believes it because it believes the node, and therefore gives nobody more than
//! the role of a user on that way: root of a node is nobody but `root@node`, and whoever has more power elsewhere is `name@node` there.
//! From elsewhere a token stands for its user. An agent that speaks for itself has its certificate.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hostler_core::head::{Caller, Refusal, State as Cluster, Unwelcome, Users, UsersRefusal};
use hostler_model::{Digest, NodeName, Role, UserName};
use hostler_proto::api::BASE;
use hostler_proto::users::{AuditEntry, RELAY_HEADER};

use super::error::{ApiError, ErrorCode};
use crate::answers::{Answer, Pending};
use crate::blobs::name_of;
use crate::guests::Party;
use crate::head::Head;
use crate::listen::{Peer, Visitor};
use crate::rights::{Who, is_audited, rule_of};
use crate::trust::Bearer;

/// The longest name that a node's kernel may give a user.
const MAX_NAME_LEN: usize = 64;

/// Operations whose body is not read at once: it is as long as it takes. Uploads have turns of their own.
const STREAMED: [&str; 2] = ["/blobs", "/agent/streams/{id}"];

/// What an operation has brought about, for the audit log: handlers put it among an answer's extensions.
#[derive(Debug, Clone)]
pub(crate) struct About(pub(crate) String);

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Identity {
    /// A user.
    User(Person),
    /// An agent that speaks for itself.
    Agent(Bearer),
    /// Somebody who is not known.
    Nobody(Nobody),
}

/// A user, and how they came.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    /// Their name.
    pub(crate) name: String,
    /// The uid that a kernel named, or that the cluster knows for the name.
    pub(crate) uid: u32,
    /// What they may do on the way they came.
    pub(crate) role: Role,
    /// How they came.
    pub(crate) origin: Origin,
}

/// How a user came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Through the head's own socket.
    Socket { uid: u32 },
    /// Through a node's socket.
    Node { node: NodeName, uid: u32 },
    /// With a token, whose hash this is.
    Token(Digest),
}

/// Why somebody is not known.
#[derive(Debug, Clone)]
pub(crate) enum Nobody {
    /// They have shown nothing.
    Stranger,
    /// They have shown a token that nobody was given, or that was revoked.
    BadToken,
    /// They have shown a token whose time is over.
    EndedToken,
    /// The kernel's name for them is another's in the cluster.
    NotTheirName { name: String, uid: u32, owner_uid: u32 },
    /// The kernel's number for them is another's in the cluster.
    NotTheirUid { name: String, uid: u32, owner: UserName },
    /// An admin keeps them out.
    Blocked { uid: u32, refusal: UsersRefusal },
    /// A node has passed on something that no agent says.
    BadRelay,
    /// The node that passed it on has no good certificate any more.
    BadNode(Unwelcome),
}

impl Origin {
    /// The node through which they came, if they did.
    pub(crate) fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node { node, .. } => Some(node),
            Self::Socket { .. } | Self::Token(_) => None,
        }
    }
}

impl Person {
    /// As the core wants to know it.
    pub(crate) fn caller(&self) -> Caller {
        Caller { user: self.name.clone(), uid: Some(self.uid), operator: self.role >= Role::Operator }
    }
}

/// Lets a request through to its handler if whoever asks may ask for that, and writes down what must be.
pub(crate) async fn check(State(head): State<Arc<Head>>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let Some(path) = matched.and_then(|path| path.as_str().strip_prefix(BASE)).map(str::to_owned) else {
        // There is nothing at this path, which the next one says.
        return next.run(request).await;
    };
    // Who may read something may also ask how long it is.
    let method = match request.method().as_str() {
        "HEAD" => "get".to_owned(),
        method => method.to_ascii_lowercase(),
    };
    let Some(rule) = rule_of(&method, &path) else { return super::wrong_method().await.into_response() };
    let visitor = request.extensions().get::<Visitor>().cloned();
    let identity = identify(&head, request.extensions().get::<Peer>(), request.headers());
    let party = Party::from(&identity);
    let share = match share_of(&head, &identity, visitor.as_ref()) {
        Ok(share) => share,
        Err(refusal) => return refusal.into_response(),
    };
    let action = format!("{} {}", request.method(), below_base(&request));
    let answer = Answer::new(party.clone(), share);
    request.extensions_mut().insert(identity.clone());
    request.extensions_mut().insert(Arc::clone(&answer));
    let mut response = match allow(rule, &identity, &head) {
        Ok(()) if has_large_body(&request) && !STREAMED.contains(&path.as_str()) => {
            let _turn = head.guests.bodies.take(&party, 1).await;
            next.run(request).await
        }
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let refused = matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
    if refused || (response.status().is_success() && is_audited(&method, &path)) {
        head.audit.write(entry(&head, &identity, visitor.as_ref(), action, &response), refused).await;
    }
    // What the request holds is given back when the answer is sent, not when it is made.
    response.extensions_mut().insert(answer);
    response
}

/// What a request counts as of its user's share. Operators need not be kept from crowding others out.
fn share_of(head: &Head, identity: &Identity, visitor: Option<&Visitor>) -> Result<Option<Pending>, ApiError> {
    let Identity::User(person) = identity else { return Ok(None) };
    let too_many = |code, what: &str, most: usize| {
        let message = format!("{} has {most} {what}, which is as many as one user may have", person.name);
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, message)
            .hint("end some of your commands that wait or follow, and try again")
    };
    if visitor.is_some_and(|visitor| !visitor.welcome(head, &person.name)) {
        return Err(too_many("too_many_connections", "connections to the head", head.guests.users.most()));
    }
    if person.role >= Role::Operator {
        return Ok(None);
    }
    let (requests, relayed) = (&head.guests.requests, &head.guests.relayed);
    let own = requests
        .take(person.name.clone())
        .ok_or_else(|| too_many("too_many_requests", "requests whose answers are not sent yet", requests.most()))?;
    let Some(node) = person.origin.node() else { return Ok(Some((own, None))) };
    let of_node = relayed.take(node.clone()).ok_or_else(|| {
        let most = relayed.most();
        let message = format!("the users of node {node} have {most} requests whose answers are not sent yet, which is as many as those of one node may have");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
            .hint("try again a little later, or on another machine")
    })?;
    Ok(Some((own, Some(of_node))))
}

/// Whether a body may take more memory than is worth a thought.
fn has_large_body(request: &Request) -> bool {
    const SMALL: u64 = 64 << 10;
    axum::body::HttpBody::size_hint(request.body()).upper().is_none_or(|most| most > SMALL)
}

/// The path and query of a request, as much of it as anybody needs.
fn below_base(request: &Request) -> String {
    const LONGEST: usize = 300;
    let uri = request.uri().path_and_query().map_or("", |it| it.as_str());
    uri.strip_prefix(BASE).unwrap_or(uri).chars().take(LONGEST).collect()
}

/// Who asks.
fn identify(head: &Head, peer: Option<&Peer>, headers: &HeaderMap) -> Identity {
    match peer {
        Some(Peer::Local { uid, user }) => {
            let owns_head = *uid == 0 || *uid == nix::unistd::geteuid().as_raw();
            let origin = Origin::Socket { uid: *uid };
            if owns_head {
                return Identity::User(Person { name: user.clone(), uid: *uid, role: Role::Admin, origin });
            }
            let state = head.engine.state();
            let_in(&state.users, by_kernel(&state.users, *uid, user, origin))
        }
        Some(Peer::Node(bearer)) => match headers.get(RELAY_HEADER) {
            // Whether its certificate is still good is asked where it matters.
            None => Identity::Agent(bearer.clone()),
            Some(said) => match head.engine.state().welcomes(&bearer.node, bearer.key, head.engine.now().at) {
                Ok(()) => {
                    let state = head.engine.state();
                    let_in(&state.users, relayed(&state, &bearer.node, said.as_bytes()))
                }
                Err(why) => Identity::Nobody(Nobody::BadNode(why)),
            },
        },
        Some(Peer::Unknown) | None => match headers.get(AUTHORIZATION) {
            None => Identity::Nobody(Nobody::Stranger),
            Some(shown) => {
                let identity = by_token(head, shown.as_bytes());
                let_in(&head.engine.state().users, identity)
            }
        },
    }
}

/// The same, unless it is a user whom an admin keeps out.
fn let_in(users: &Users, identity: Identity) -> Identity {
    let Identity::User(person) = &identity else { return identity };
    match users.let_in(&person.name, Some(person.uid)) {
        Ok(()) => identity,
        Err(refusal) => Identity::Nobody(Nobody::Blocked { uid: person.uid, refusal }),
    }
}

/// A user whom a kernel has named. What the cluster knows of a name holds only for the uid it knows with it, and the other way round:
/// on another machine either may be another person's.
fn by_kernel(users: &Users, uid: u32, name: &str, origin: Origin) -> Identity {
    match users.get(name) {
        Some(user) if user.uid == uid => Identity::User(Person { name: name.to_owned(), uid, role: user.role, origin }),
        Some(user) => Identity::Nobody(Nobody::NotTheirName { name: name.to_owned(), uid, owner_uid: user.uid }),
        None => match users.by_uid(uid) {
            Some(user) => {
                Identity::Nobody(Nobody::NotTheirUid { name: name.to_owned(), uid, owner: user.name.clone() })
            }
            None => Identity::User(Person { name: name.to_owned(), uid, role: Role::User, origin }),
        },
    }
}

/// A user of a node's machine, as the node says.
fn relayed(state: &Cluster, node: &NodeName, said: &[u8]) -> Identity {
    let parts = || -> Option<(u32, &str)> {
        let (uid, name) = std::str::from_utf8(said).ok()?.split_once(':')?;
        let is_name =
            !name.is_empty() && name.len() <= MAX_NAME_LEN && !name.contains(|c: char| c.is_control() || c == '@');
        is_name.then_some((uid.parse().ok()?, name))
    };
    let Some((uid, name)) = parts() else { return Identity::Nobody(Nobody::BadRelay) };
    let origin = Origin::Node { node: node.clone(), uid };
    let of_node =
        |name: &str, origin| Identity::User(Person { name: format!("{name}@{node}"), uid, role: Role::User, origin });
    if uid == 0 || name == "root" {
        return of_node("root", origin);
    }
    let identity = by_kernel(&state.users, uid, name, origin.clone());
    match &identity {
        // What a job of such an account can do, root of the node could do if its word were taken.
        Identity::User(person) if state.is_privileged(uid, person.role) && !state.settings.roles_through_nodes => {
            of_node(name, origin)
        }
        Identity::User(_) | Identity::Agent(_) | Identity::Nobody(_) => identity,
    }
}

/// Whom the header of a node that passes a request on names, and with which role.
#[cfg(feature = "fuzzing")]
pub(crate) fn named_by_relay(state: &Cluster, node: &NodeName, said: &[u8]) -> Option<(String, Role)> {
    match relayed(state, node, said) {
        Identity::User(person) => Some((person.name, person.role)),
        Identity::Agent(_) | Identity::Nobody(_) => None,
    }
}

/// Whoever a token stands for.
fn by_token(head: &Head, shown: &[u8]) -> Identity {
    let Some(token) = shown.strip_prefix(b"Bearer ") else { return Identity::Nobody(Nobody::BadToken) };
    let token = name_of(token);
    let now = head.engine.now().at;
    let state = head.engine.state();
    match state.users.by_token(&token, now) {
        Some((user, _)) => {
            let (name, origin) = (user.name.to_string(), Origin::Token(token));
            Identity::User(Person { name, uid: user.uid, role: user.role, origin })
        }
        None if state.users.has_ended(&token, now) => Identity::Nobody(Nobody::EndedToken),
        None => Identity::Nobody(Nobody::BadToken),
    }
}

/// Whether the rule lets them.
fn allow(rule: Who, identity: &Identity, head: &Head) -> Result<(), ApiError> {
    match identity {
        _ if rule == Who::Anyone => Ok(()),
        Identity::User(person) => match rule.least_role() {
            Some(least) if person.role >= least => Ok(()),
            Some(least) => Err(too_little(least, person)),
            None => Err(ApiError::new(StatusCode::FORBIDDEN, "agents_only", "this is for agents, which come over TLS")),
        },
        Identity::Agent(_) if rule.is_for_agents() => Ok(()),
        Identity::Agent(bearer) => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "users_only",
            format!("this is for users; node {} is an agent", bearer.node),
        )),
        Identity::Nobody(Nobody::Stranger) if rule == Who::Agents => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "agents_only",
            "this is for agents, and this connection showed no certificate of the cluster",
        )
        .hint("join first: POST /nodes/invite on the head's own socket makes a join code")),
        Identity::Nobody(nobody) => Err(unknown(nobody, head)),
    }
}

pub(super) fn too_little(least: Role, person: &Person) -> ApiError {
    let (code, plural) = match least {
        Role::User | Role::Operator => ("operators_only", "operators"),
        Role::Admin => ("admins_only", "admins"),
    };
    let message = format!("this is for {plural}, and {} comes as {}", person.name, person.role.of_one());
    let error = ApiError::new(StatusCode::FORBIDDEN, code, message);
    match &person.origin {
        Origin::Node { node, .. } => error
            .hint(format!(
                "whoever comes through a node, here {node}, has the role of a user, since its root could be anybody"
            ))
            .hint("ask on the head's own machine, or log in with `hostler login`"),
        Origin::Socket { .. } | Origin::Token(_) => {
            error.hint("root and the user that runs the head are admins; `hostler configure user role` makes others so")
        }
    }
}

/// What somebody who is not known is told.
fn unknown(nobody: &Nobody, head: &Head) -> ApiError {
    let again = "`hostler login` with the head's address gets a new one";
    match nobody {
        Nobody::Stranger => {
            ApiError::new(StatusCode::UNAUTHORIZED, "unknown_caller", "this is for users, and nothing says who asks")
                .hint(format!("on the head's machine use its socket {}", head.config.socket.display()))
                .hint("from elsewhere log in first: `hostler login` with the head's address or a login code")
        }
        Nobody::BadToken => ApiError::new(
            StatusCode::UNAUTHORIZED,
            "bad_token",
            "this token is not one of this cluster, was revoked, or its user was removed",
        )
        .hint(again),
        Nobody::EndedToken => {
            ApiError::new(StatusCode::UNAUTHORIZED, "token_ended", "this token's time is over").hint(again)
        }
        Nobody::NotTheirName { name, uid, owner_uid } => ApiError::new(
            StatusCode::FORBIDDEN,
            "not_their_name",
            format!("uid {uid} is called {name} on that machine, but in the cluster {name} has uid {owner_uid}"),
        )
        .hint("an account has one uid on all machines: an admin sees it with `hostler configure user list`"),
        Nobody::NotTheirUid { name, uid, owner } => ApiError::new(
            StatusCode::FORBIDDEN,
            "not_their_uid",
            format!("uid {uid} is called {name} on that machine, but in the cluster it is {owner}'s"),
        )
        .hint(format!("if they are one person, give the account the name {owner} on that machine"))
        .hint("if not, one of the two needs another uid: an admin sees those of the cluster with `hostler configure user list`"),
        Nobody::Blocked { refusal, .. } => Refusal::from(refusal.clone()).into(),
        Nobody::BadRelay => ApiError::bad_request(format!("the header {RELAY_HEADER} is damaged")),
        Nobody::BadNode(why) => Refusal::from(why.clone()).into(),
    }
}

/// What is written down of a request.
fn entry(
    head: &Head,
    identity: &Identity,
    visitor: Option<&Visitor>,
    action: String,
    response: &Response,
) -> AuditEntry {
    let now = head.engine.now();
    let (user, from, uid, node) = match identity {
        Identity::User(Person { name, origin, .. }) => {
            let user = Some(name.clone());
            match origin {
                Origin::Socket { uid } => (user, "socket", Some(*uid), None),
                Origin::Node { node, uid } => (user, "node", Some(*uid), Some(node.clone())),
                Origin::Token(_) => (user, "token", None, None),
            }
        }
        Identity::Agent(bearer) => (None, "node", None, Some(bearer.node.clone())),
        Identity::Nobody(Nobody::Blocked { uid, refusal: UsersRefusal::Blocked { user, .. } }) => {
            (Some(user.to_string()), "blocked", Some(*uid), None)
        }
        Identity::Nobody(Nobody::NotTheirName { uid, .. } | Nobody::NotTheirUid { uid, .. }) => {
            (None, "stranger", Some(*uid), None)
        }
        Identity::Nobody(_) => (None, "stranger", None, None),
    };
    AuditEntry {
        at: now.wall,
        clock_ms: now.at.0,
        user,
        from: from.to_owned(),
        uid,
        node,
        address: visitor.map(|visitor| visitor.from.ip().to_string()),
        action,
        about: response.extensions().get::<About>().map(|about| about.0.clone()),
        status: response.status().as_u16(),
        error: response.extensions().get::<ErrorCode>().map(|code| code.0.clone()),
    }
}

#[cfg(test)]
mod tests {
    use hostler_core::head::{Changes, Event, Now, Stamped, update};

    use super::*;

    #[test]
    fn account_that_runs_the_head_is_another_through_a_node() {
        let mut state = Cluster::default();
        let event = Event::EpochStarted { epoch: state.next_epoch(), archives: true, owner: Some(1000) };
        update(&mut state, &Stamped { now: Now::default(), event }, &mut Changes::default());
        let node = "n1".parse().expect("a name");
        let who = |state: &Cluster, said: &str| match relayed(state, &node, said.as_bytes()) {
            Identity::User(person) => (person.name, person.role),
            other => panic!("{other:?}"),
        };
        // By its uid, whatever it is called there.
        for (said, name) in [("1000:hostler", "hostler@n1"), ("1000:eve", "eve@n1"), ("1001:ada", "ada")] {
            assert_eq!(who(&state, said), (name.to_owned(), Role::User), "{said}");
        }
        state.settings.roles_through_nodes = true;
        assert_eq!(who(&state, "1000:hostler"), ("hostler".to_owned(), Role::User), "an admin trusts the nodes");
        assert_eq!(who(&state, "0:root").0, "root@n1");
    }
}
