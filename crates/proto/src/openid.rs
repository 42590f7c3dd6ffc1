//! REST + JSON of the sign-in with OpenID Connect.

use std::fmt;
use std::str::FromStr;

use hostler_model::{Digest, ParseError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a sign-in cannot be completed: this browser does not hold the secret of a recent one.
pub const NOT_BEGUN: &str =
    "this sign-in began in another browser, more than ten minutes ago, or before a restart of the head";

/// The secret of a sign-in, which only the browser that began the sign-in knows. Exactly 64 lower-case hexadecimal
/// digits make one: an absent or empty text is not a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[0-9a-f]{64}$")]
pub struct SignInSecret(pub [u8; 32]);

impl FromStr for SignInSecret {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::secret("a secret of 64 lower-case hexadecimal digits");
        text.parse::<Digest>().map(|bytes| Self(bytes.0)).map_err(|_| error())
    }
}

impl TryFrom<String> for SignInSecret {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<SignInSecret> for String {
    fn from(secret: SignInSecret) -> Self {
        Digest(secret.0).to_string()
    }
}

/// Formats nothing of the secret.
impl fmt::Debug for SignInSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignInSecret")
    }
}

/// The answer to `POST /login/openid/begin`: a sign-in that has begun.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenIdBegun {
    /// Address of the provider, where the browser goes.
    pub url: String,
    /// Origin of the dashboard to which the provider sends the browser back.
    pub origin: String,
    /// Secret that the browser must show at the end.
    pub secret: SignInSecret,
}

/// Request body of `POST /login/openid`: completes a sign-in with what the provider sent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenIdLogin {
    /// Secret from the beginning of the sign-in.
    pub secret: SignInSecret,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_digits_make_a_secret() {
        let digits = "0a".repeat(32);
        let login = |secret: &str| {
            serde_json::from_value::<OpenIdLogin>(serde_json::json!({ "secret": secret, "state": "x", "code": "y" }))
        };
        assert_eq!(String::from(login(&digits).expect("a secret").secret), digits);
        for secret in ["", "0a", &digits[1..], &"0A".repeat(32), &format!("{digits}0"), &format!(" {digits}")] {
            let error = login(secret).expect_err(secret).to_string();
            assert!(secret.is_empty() || !error.contains(secret), "{error}");
        }
        assert!(serde_json::from_str::<OpenIdLogin>(r#"{"state":"x","code":"y"}"#).is_err(), "no secret at all");
    }
}
