//! REST + JSON of the sign-in with OpenID Connect.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer to `POST /login/openid/begin`: a sign-in that has begun.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenIdBegun {
    /// Address of the provider, where the browser goes.
    pub url: String,
    /// Origin of the dashboard to which the provider sends the browser back.
    pub origin: String,
    /// Secret that the browser must show at the end.
    pub secret: String,
}

/// Request body of `POST /login/openid`: completes a sign-in with what the provider sent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenIdLogin {
    /// Secret from the beginning of the sign-in.
    pub secret: String,
    /// State that the provider returned.
    pub state: String,
    /// Code that the provider returned.
    #[serde(default)]
    pub code: Option<String>,
    /// Error that the provider returned instead of a code.
    #[serde(default)]
    pub error: Option<String>,
    /// Description of the error.
    #[serde(default)]
    pub error_description: Option<String>,
}

/// Formats the answer without its secret.
impl fmt::Debug for OpenIdBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenIdBegun").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Formats the request without its secrets.
impl fmt::Debug for OpenIdLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenIdLogin").field("error", &self.error).finish_non_exhaustive()
    }
}
