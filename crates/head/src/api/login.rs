//! Login and logout requests. [`crate::login`] contains the checks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::NoContent;
use axum::{Extension, Json};
use hostler_core::head::{Command, Refusal, TOKEN_TTL_MS, UsersCommand, UsersRefusal};
use hostler_model::{Timestamp, UserName};
use hostler_proto::users::{Challenge, CodeLogin, KeyLogin, LoggedIn, LoginLink, login_text};

use super::error::ApiError;
use super::extract::Json as Body;
use crate::audit::About;
use crate::blobs::name_of;
use crate::engine::EngineError;
use crate::head::Head;
use crate::identity::{Origin, Person};
use crate::listen::Visitor;
use crate::login::{LINK_TTL, LoginError, check_signature, secret};

/// `POST /login/challenge`.
pub(crate) async fn challenge(State(head): State<Arc<Head>>) -> Json<Challenge> {
    Json(Challenge { nonce: head.logins.challenge(), cluster: head.trust.fingerprint() })
}

/// `POST /login/key`.
pub(crate) async fn by_key(
    visitor: Option<Extension<Visitor>>,
    State(head): State<Arc<Head>>,
    Body(KeyLogin { user, nonce, signature }): Body<KeyLogin>,
) -> Result<(Extension<About>, Json<LoggedIn>), ApiError> {
    let check = || {
        let keys = head.engine.state().users.get(&user).map(|user| user.keys.clone()).unwrap_or_default();
        check_signature(&signature, &login_text(&head.trust.fingerprint(), &nonce, &user), &keys)
    };
    let answered = head.logins.answer(&nonce, check);
    answered.map_err(|error| failed(&head, visitor.as_ref(), error))?;
    let user = user.parse().map_err(|_| refusal(LoginError::BadKey))?;
    issue(&head, user, None, "a key", LoginError::BadKey).await
}

/// `POST /login/code`.
pub(crate) async fn by_code(
    visitor: Option<Extension<Visitor>>,
    State(head): State<Arc<Head>>,
    Body(CodeLogin { secret }): Body<CodeLogin>,
) -> Result<(Extension<About>, Json<LoggedIn>), ApiError> {
    let redeemed = head.logins.redeem(&secret);
    let (user, until) = redeemed.map_err(|error| failed(&head, visitor.as_ref(), error))?;
    issue(&head, user, until, "a code", LoginError::BadCode).await
}

/// `POST /codes/revoke`. Open to anyone: who has the code could also use it.
pub(crate) async fn revoke_code(
    visitor: Option<Extension<Visitor>>,
    State(head): State<Arc<Head>>,
    Body(CodeLogin { secret }): Body<CodeLogin>,
) -> Result<NoContent, ApiError> {
    if head.logins.redeem(&secret).is_ok() || head.trust.invitations.revoke(&secret) {
        return Ok(NoContent);
    }
    Err(failed(&head, visitor.as_ref(), LoginError::BadCode))
}

/// `POST /login/link`.
pub(crate) async fn link(person: Person, State(head): State<Arc<Head>>) -> Result<Json<LoginLink>, ApiError> {
    let origin = site_origin(&head)?;
    // Root on a node can act as any of its users, and a session would outlast the node's rights.
    if let Some(node) = person.origin.node() {
        let message = format!("users of a node (here {node}) get no links to the dashboard");
        return Err(ApiError::new(StatusCode::CONFLICT, "not_through_nodes", message)
            .hint("run the command on the head's machine, or log in with `hostler login`"));
    }
    let state = head.engine.state();
    let Some(user) = state.users.get(&person.name) else {
        let message = format!("{} is not a user of the cluster, so there is nobody to sign in", person.name);
        return Err(ApiError::new(StatusCode::CONFLICT, "no_such_user", message)
            .hint(format!("an admin can add the user: hostler configure user add {}", person.name)));
    };
    // A token must not extend its own life.
    let until = match &person.origin {
        Origin::Token(token) => state.users.by_token(token, head.engine.now().at).map(|(_, ends)| ends),
        Origin::Socket { .. } | Origin::Node { .. } | Origin::Public => None,
    };
    let secret = head.logins.link(user.name.clone(), until);
    let ends_in_ms = u64::try_from(LINK_TTL.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(LoginLink { url: format!("{origin}/sign-in?code={secret}"), ends_in_ms }))
}

/// `POST /logout`.
pub(crate) async fn logout(person: Person, State(head): State<Arc<Head>>) -> Result<NoContent, ApiError> {
    let Origin::Token(token) = person.origin else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "not_logged_in",
            "there is no login to end: the kernel identifies this connection, not a token",
        ));
    };
    head.engine.command(Command::Users(UsersCommand::RevokeToken(token))).await?;
    Ok(NoContent)
}

/// The address of the dashboard for browsers.
pub(super) fn site_origin(head: &Head) -> Result<String, ApiError> {
    head.site.origin().ok_or_else(|| {
        ApiError::new(StatusCode::CONFLICT, "no_site", "the head has no address for browsers")
            .hint("`hostler dashboard` without --link opens the dashboard on this machine")
            .hint("an admin can give it an address: see `hostler head run --help`, options --tls-cert and --http")
    })
}

/// Issues a token for an authenticated user. Returns the error `otherwise` if the user was removed meanwhile.
pub(super) async fn issue(
    head: &Head,
    user: UserName,
    until: Option<Timestamp>,
    with: &str,
    otherwise: LoginError,
) -> Result<(Extension<About>, Json<LoggedIn>), ApiError> {
    let token = secret();
    let command = UsersCommand::IssueToken { token: name_of(token.as_bytes()), user: user.clone(), until };
    match head.engine.command(Command::Users(command)).await {
        // The user is authenticated, so the error may contain details.
        Err(EngineError::Refused(refusal @ Refusal::Users(UsersRefusal::Blocked { .. }))) => {
            return Err(refusal.into());
        }
        Err(EngineError::Refused(_)) => return Err(refusal(otherwise)),
        outcome => outcome?,
    };
    let role = head.engine.state().users.get(user.as_str()).map_or_else(Default::default, |user| user.role);
    tracing::info!(%user, with, "logged in");
    let now = head.engine.now().at;
    let ends_in_ms = until.map_or(TOKEN_TTL_MS, |until| until.0.saturating_sub(now.0).min(TOKEN_TTL_MS));
    let about = About(format!("{user} logged in with {with}"));
    Ok((Extension(about), Json(LoggedIn { user, role, token, ends_in_ms })))
}

/// Returns the client's address if the client is on another machine.
pub(super) fn address(visitor: Option<&Extension<Visitor>>) -> Option<IpAddr> {
    visitor.map(|visitor| visitor.0.from.ip())
}

/// Counts a failed login. Returns the error for the client: `error`, or another one if the client's address has too many
/// failures.
fn failed(head: &Head, visitor: Option<&Extension<Visitor>>, error: LoginError) -> ApiError {
    head.failures.count(address(visitor)).map_or_else(|| refusal(error), too_many)
}

/// The error for a failed login from an address with too many failures.
pub(super) fn too_many(wait: Duration) -> ApiError {
    refusal(LoginError::TooMany(wait.as_secs() + 1))
}

fn refusal(error: LoginError) -> ApiError {
    let message = error.to_string();
    match error {
        LoginError::BadChallenge => ApiError::new(StatusCode::UNAUTHORIZED, "bad_challenge", message)
            .hint("request a new challenge with POST /login/challenge"),
        LoginError::BadKey => ApiError::new(StatusCode::UNAUTHORIZED, "bad_key", message)
            .hint("choose another key with `--key`")
            .hint(
                "an admin can add a key with `hostler configure user key add`, or create a login code with `hostler configure user invite`",
            ),
        LoginError::BadCode => ApiError::new(StatusCode::UNAUTHORIZED, "bad_code", message)
            .hint("an admin can create a new code with `hostler configure user invite`"),
        LoginError::NoSuchUser => ApiError::new(StatusCode::FORBIDDEN, "no_such_user", message)
            .hint("an admin can add the user with `hostler configure user add`"),
        LoginError::TooMany(_) => ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", message)
            .hint("a valid login code or key works at any time"),
    }
}
