//! Checks the permission of the caller of each request, before any handler.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hostler_core::head::{Refusal, UsersRefusal};
use hostler_model::Role;
use hostler_proto::api::BASE;
use hostler_proto::users::{AuditEntry, RELAY_HEADER};

use super::error::{ApiError, ErrorCode};
use crate::answers::{Answer, Pending};
use crate::audit::{About, Kind};
use crate::changed_values::{differences, values};
use crate::client_limits::Party;
use crate::head::Head;
use crate::identify::{Credentials, identify};
use crate::identity::{Identity, Origin, Person, Unidentified};
use crate::lease::Lease;
use crate::listen::Visitor;
use crate::rights::{Rights, Who, is_audited};

/// Operations whose body is streamed and may have any size. They do not count towards a client's concurrent requests
/// with a large body, because uploads have limits of their own.
const STREAMED: [&str; 2] = ["/blobs", "/agent/streams/{id}"];

/// Checks a caller's permission, runs the handler, and writes the audit log.
pub(crate) async fn check(
    State((head, rights)): State<(Arc<Head>, Arc<Rights>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let Some(path) = matched.and_then(|path| path.as_str().strip_prefix(BASE)).map(str::to_owned) else {
        // No route matches. The fallback handler reports that.
        return next.run(request).await;
    };
    // HEAD needs the same permission as GET.
    let method = match request.method().as_str() {
        "HEAD" => "get".to_owned(),
        method => method.to_ascii_lowercase(),
    };
    let Some(rule) = rights.rule_of(&method, &path) else {
        return ([(ALLOW, rights.methods_of(&path))], wrong_method().await).into_response();
    };
    let visitor = request.extensions().get::<Visitor>().cloned();
    let lease = Lease::begin(&head.engine, Credentials::of(&request), rule == Who::Viewers);
    let identity = lease.identity().clone();
    let party = Party::from(&identity);
    let share = match share_of(&head, &identity, visitor.as_ref()) {
        Ok(share) => share,
        Err(refusal) => return refusal.into_response(),
    };
    let action = format!("{} {}", request.method(), truncated_path(&request));
    let began = Instant::now();
    let answer = Answer::new(party.clone(), share);
    request.extensions_mut().insert(identity.clone());
    request.extensions_mut().insert(Arc::clone(&answer));
    request.extensions_mut().insert(lease.clone());
    let is_change = is_audited(&method, &path);
    let before = (is_change && matches!(&identity, Identity::User(person) if person.role >= Role::Operator))
        .then(|| values(&head, &path));
    let mut response = match allow(rule, &identity, &head) {
        Ok(()) if has_large_body(&request) && !STREAMED.contains(&path.as_str()) => {
            let _turn = head.client_limits.bodies.take(&party, 1).await;
            next.run(request).await
        }
        // A request that waits must not outlive the rights of its caller. A change is always carried out completely.
        Ok(()) if *request.method() == Method::GET => tokio::select! {
            biased;
            response = next.run(request) => response,
            now = lease.clone().ended() => {
                let refusal = allow(rule, &now, &head).err().unwrap_or_else(rights_changed);
                refusal.into_response()
            }
        },
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    head.engine.metrics().answered(&method, &path, response.status().as_u16(), began.elapsed());
    let refused = matches!(response.status(), StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
    if refused || (response.status().is_success() && is_change) {
        let kind = match &identity {
            _ if refused => Kind::Refused,
            Identity::User(Person { role: Role::User, .. }) => Kind::OfUser,
            _ => Kind::Other,
        };
        let mut entry = entry(&head, &identity, visitor.as_ref(), action, &response);
        if let Some(before) = before {
            let about = entry.about.take().into_iter().chain([differences(&before, &values(&head, &path))]);
            entry.about =
                Some(about.filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ")).filter(|it| !it.is_empty());
        }
        head.audit.write(entry, kind).await;
    }
    // The request's resources are held until the response is sent.
    response.extensions_mut().insert(answer);
    lease.bind(response)
}

/// Name under which requests with the metrics token count. No user has this name.
const SCRAPER: &str = ".metrics";

/// Checks that a caller may read the metrics: a user, or a program with the metrics token. The request's resources are
/// held until the returned value is dropped.
pub(crate) fn check_scraper(head: &Head, request: &Request) -> Result<Arc<Answer>, ApiError> {
    let shown = request.headers().get(AUTHORIZATION);
    let identity = match shown.and_then(|shown| head.metrics_token.shown_in(shown.as_bytes())) {
        Some(token) => {
            let (name, origin) = (SCRAPER.to_owned(), Origin::Token(token));
            Identity::User(Person { name, uid: u32::MAX, role: Role::User, origin })
        }
        None => identify(&head.engine, &Credentials::of(request)),
    };
    let share = share_of(head, &identity, request.extensions().get::<Visitor>())?;
    allow(Who::Users, &identity, head)?;
    Ok(Answer::new(Party::from(&identity), share))
}

/// The error for a request that waited while an admin changed the caller's role.
fn rights_changed() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "rights_changed", "your rights changed while the request waited")
        .hint("send the request again")
}

pub(crate) async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not support this method")
        .hint(format!("GET {BASE}/openapi.json describes all operations"))
}

/// Slots for a request, counted for its user. Operators have no limit.
fn share_of(head: &Head, identity: &Identity, visitor: Option<&Visitor>) -> Result<Option<Pending>, ApiError> {
    let Identity::User(person) = identity else { return Ok(None) };
    let too_many = |code, what: &str, most: usize| {
        let message = format!("{} has {most} {what}, the maximum per user", person.name);
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, message)
            .hint("stop some commands that wait for jobs or follow output, and try again")
    };
    // A caller that stays unidentified keeps the place of a stranger.
    if person.is_identified()
        && let Some(Err(full)) = visitor.map(|visitor| visitor.welcome(&person.name))
    {
        return Err(too_many("too_many_connections", "connections to the head", full.most));
    }
    if person.role >= Role::Operator {
        return Ok(None);
    }
    let (requests, relayed) = (&head.client_limits.requests, &head.client_limits.relayed);
    let own = requests
        .take(person.name.clone())
        .ok_or_else(|| too_many("too_many_requests", "unfinished requests", requests.most()))?;
    let Some(node) = person.origin.node() else { return Ok(Some((own, None))) };
    let of_node = relayed.take(node.clone()).ok_or_else(|| {
        let most = relayed.most();
        let message =
            format!("the users of node {node} have {most} unfinished requests, the maximum for all users of a node");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
            .hint("try again later, or on another machine")
    })?;
    Ok(Some((own, Some(of_node))))
}

/// Whether the body may be so large that the request counts towards the client's limit for large bodies.
fn has_large_body(request: &Request) -> bool {
    const SMALL: u64 = 64 << 10;
    axum::body::HttpBody::size_hint(request.body()).upper().is_none_or(|most| most > SMALL)
}

/// The truncated path and query of a request, for the audit log.
fn truncated_path(request: &Request) -> String {
    const LONGEST: usize = 300;
    let uri = request.uri().path_and_query().map_or("", |it| it.as_str());
    uri.strip_prefix(BASE).unwrap_or(uri).chars().take(LONGEST).collect()
}

/// Checks whether an operation's rule accepts the caller.
fn allow(rule: Who, identity: &Identity, head: &Head) -> Result<(), ApiError> {
    match identity {
        _ if rule == Who::Anyone => Ok(()),
        Identity::User(person) => match rule.least_role() {
            Some(least) if person.role >= least => Ok(()),
            Some(least) => Err(role_too_low(least, person)),
            None => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "agents_only",
                "only agents may call this operation, over TLS",
            )),
        },
        Identity::Agent(_) if rule.is_for_agents() => Ok(()),
        Identity::Agent(bearer) => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "users_only",
            format!(
                "only users may call this operation, but the client's certificate belongs to the agent of node {}",
                bearer.node
            ),
        )),
        Identity::Unidentified(Unidentified::Stranger) if rule == Who::Agents => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "agents_only",
            "only agents may call this operation, but the client sent no certificate of the cluster",
        )
        .hint("join first: POST /nodes/invite on the head's own socket makes a join code")),
        Identity::Unidentified(nobody) => Err(unknown(nobody, head)),
    }
}

pub(super) fn role_too_low(least: Role, person: &Person) -> ApiError {
    let (code, plural) = match least {
        Role::User | Role::Operator => ("operators_only", "operators"),
        Role::Admin => ("admins_only", "admins"),
    };
    let message =
        format!("only {plural} may do this, and {} has the role of {}", person.name, person.role.with_article());
    let error = ApiError::new(StatusCode::FORBIDDEN, code, message);
    match &person.origin {
        Origin::Node { node, .. } => error
            .hint(format!(
                "users on a node (here {node}) have no higher role than user, because root on the node can act as any user"
            ))
            .hint("run the command on the head's own machine, or log in with `hostler login`"),
        Origin::Socket { .. } | Origin::Token(_) | Origin::Public => {
            error.hint("root and the user that runs the head are admins; `hostler configure user role` makes other users admins")
        }
    }
}

/// The error for an unidentified or rejected caller.
fn unknown(nobody: &Unidentified, head: &Head) -> ApiError {
    let again = "`hostler login` with the head's address gets a new token";
    match nobody {
        Unidentified::Stranger => {
            ApiError::new(StatusCode::UNAUTHORIZED, "unknown_caller", "only users may call this operation; the request has no credentials")
                .hint(format!("on the head's machine, use the head's socket {}", head.config.socket.display()))
                .hint("on other machines, log in first: `hostler login ADDRESS`, or `hostler login -` with a login code")
        }
        Unidentified::BadToken => ApiError::new(
            StatusCode::UNAUTHORIZED,
            "bad_token",
            "the token is unknown or revoked, or its user was removed",
        )
        .hint(again),
        Unidentified::ExpiredToken => {
            ApiError::new(StatusCode::UNAUTHORIZED, "token_ended", "the token has expired").hint(again)
        }
        Unidentified::NameMismatch { name, uid, owner_uid } => ApiError::new(
            StatusCode::FORBIDDEN,
            "not_their_name",
            format!("uid {uid} is called {name} on that machine, but in the cluster {name} has uid {owner_uid}"),
        )
        .hint("an account must have the same uid on all machines; admins can list them with `hostler configure user list`"),
        Unidentified::UidMismatch { name, uid, owner } => ApiError::new(
            StatusCode::FORBIDDEN,
            "not_their_uid",
            format!("uid {uid} is called {name} on that machine, but in the cluster the uid belongs to {owner}"),
        )
        .hint(format!("if both names belong to the same person, rename the account on that machine to {owner}"))
        .hint("if not, change one of the two uids; `hostler configure user list` shows the uids of all users"),
        Unidentified::Blocked { refusal, .. } => Refusal::from(refusal.clone()).into(),
        Unidentified::BadRelay => ApiError::bad_request(format!("the header {RELAY_HEADER} is malformed")),
        Unidentified::UnusableName(why) => ApiError::bad_request(why.to_string())
            .hint("rename the account on that machine, or log in with `hostler login` as another user of the cluster"),
        Unidentified::NameOfNode(name) => name_of_node(name),
        Unidentified::BadNode(why) => Refusal::from(why.clone()).into(),
    }
}

/// Creates the error for an account whose name already stands for a user of a node, such as `ada@n1`.
pub(super) fn name_of_node(name: &str) -> ApiError {
    let (user, node) = name.rsplit_once('@').unwrap_or((name, ""));
    ApiError::new(
        StatusCode::CONFLICT,
        "name_of_node",
        format!("the name {name} already stands for the user {user} of node {node}, so no other account may have it"),
    )
    .hint("rename the account or the node")
}

/// The audit entry of a request.
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
                Origin::Public => (None, "stranger", None, None),
            }
        }
        Identity::Agent(bearer) => (None, "node", None, Some(bearer.node.clone())),
        Identity::Unidentified(Unidentified::Blocked { uid, refusal: UsersRefusal::Blocked { user, .. } }) => {
            (Some(user.to_string()), "blocked", Some(*uid), None)
        }
        Identity::Unidentified(Unidentified::NameMismatch { uid, .. } | Unidentified::UidMismatch { uid, .. }) => {
            (None, "stranger", Some(*uid), None)
        }
        Identity::Unidentified(_) => (None, "stranger", None, None),
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
