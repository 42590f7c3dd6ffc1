//! Requests of a sign-in with OpenID Connect. [`crate::openid`] contains the checks.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use hostler_proto::openid::{OpenIdBegun, OpenIdLogin};
use hostler_proto::users::LoggedIn;

use super::error::ApiError;
use super::extract::Json as Body;
use super::login::{address, issue, site_origin, too_many};
use crate::audit::About;
use crate::head::Head;
use crate::listen::Visitor;
use crate::login::LoginError;
use crate::openid::{Begun, OpenIdError, Reply};

/// `POST /login/openid/begin`.
pub(crate) async fn begin(State(head): State<Arc<Head>>) -> Result<Json<OpenIdBegun>, ApiError> {
    let origin = site_origin(&head)?;
    let Begun { url, secret } = head.openid.begin(&origin).await.map_err(failure)?;
    Ok(Json(OpenIdBegun { url, origin, secret }))
}

/// `POST /login/openid`.
pub(crate) async fn finish(
    visitor: Option<Extension<Visitor>>,
    State(head): State<Arc<Head>>,
    Body(login): Body<OpenIdLogin>,
) -> Result<(Extension<About>, Json<LoggedIn>), ApiError> {
    let from = address(visitor.as_ref());
    let origin = site_origin(&head)?;
    let reply = match (&login.code, &login.error) {
        (Some(code), None) => Reply::Code(code),
        (_, Some(error)) => Reply::Error { error, description: login.error_description.as_deref() },
        (None, None) => return Err(ApiError::bad_request("the provider returned neither a code nor an error")),
    };
    let is_doubtful = head.failures.are_many(from);
    match head.openid.finish(&origin, (&login.secret, &login.state), reply, is_doubtful).await {
        // The file names the user, so an unknown one is the admin's mistake.
        Ok(user) => issue(&head, user.clone(), None, "OpenID Connect", LoginError::NoSuchUser).await,
        Err(error) => {
            let is_guess = matches!(error, OpenIdError::State | OpenIdError::Refused(_) | OpenIdError::Token(_));
            if is_guess && let Some(wait) = head.failures.count(from) {
                return Err(too_many(wait));
            }
            tracing::info!("sign-in with OpenID Connect failed: {error}");
            Err(failure(error))
        }
    }
}

fn failure(error: OpenIdError) -> ApiError {
    let message = error.to_string();
    let new = |status, code| ApiError::new(status, code, message);
    match error {
        OpenIdError::Unconfigured => new(StatusCode::CONFLICT, "no_openid").hint("use a login code instead"),
        OpenIdError::File(_) => new(StatusCode::CONFLICT, "no_openid")
            .hint("tell an admin; the file openid.toml on the head's machine needs a correction"),
        OpenIdError::Away(_) => new(StatusCode::BAD_GATEWAY, "provider_away")
            .hint("try again in a minute, or use a login code")
            .hint("admins: check the provider, the network of the head's machine, and `ca` in openid.toml"),
        OpenIdError::Invalid(_) => new(StatusCode::BAD_GATEWAY, "provider_invalid")
            .hint("tell an admin; `issuer` in openid.toml must be the provider's exact address"),
        OpenIdError::Refused(_) => new(StatusCode::UNAUTHORIZED, "sign_in_failed")
            .hint("sign in again; if that fails too, ask an admin whether the provider lets you use this cluster"),
        OpenIdError::State => {
            new(StatusCode::UNAUTHORIZED, "sign_in_failed").hint("sign in again, in one tab of the browser")
        }
        OpenIdError::Token(_) => new(StatusCode::UNAUTHORIZED, "sign_in_failed")
            .hint("sign in again; if that fails too, tell an admin"),
        OpenIdError::Clock(_) => new(StatusCode::UNAUTHORIZED, "sign_in_failed")
            .hint("tell an admin; on the head's machine, `timedatectl` shows whether the clock is synchronised"),
        OpenIdError::Unmapped { lines } => new(StatusCode::FORBIDDEN, "unmapped_subject")
            .hint("send this page to an admin, who adds these lines to openid.toml on the head's machine, with your user name:")
            .hint(lines),
    }
}
