//! Why a sign-in failed.

use hostler_proto::openid::NOT_BEGUN;

use super::token::TokenError;

/// Why a sign-in failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenIdError {
    #[error("this cluster has no sign-in with OpenID Connect")]
    Unconfigured,
    #[error("the sign-in with OpenID Connect is not set up correctly: {0}")]
    File(String),
    #[error("the sign-in provider does not answer: {0}")]
    Away(String),
    #[error("the sign-in provider gave an invalid answer: {0}")]
    Invalid(String),
    #[error("the sign-in provider refused the sign-in: {0}")]
    Refused(String),
    #[error("{NOT_BEGUN}")]
    State,
    #[error("the token of the sign-in provider is not accepted: {0}")]
    Token(String),
    #[error("the clocks of the head and of the sign-in provider differ: {0}")]
    Clock(String),
    #[error("you are known to the sign-in provider, but to no user of this cluster")]
    Unmapped {
        /// Lines that map the subject.
        lines: String,
    },
}

impl OpenIdError {
    pub(super) fn invalid(why: &str) -> Self {
        Self::Invalid(why.to_owned())
    }

    pub(super) fn refused(error: &str, description: Option<&str>) -> Self {
        let description = description.map(|text| format!(" ({})", short(text))).unwrap_or_default();
        Self::Refused(format!("{}{description}", short(error)))
    }
}

impl From<TokenError> for OpenIdError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Time { issued_s, expires_s, now_s } => {
                let [issued, expires, now] = [issued_s, expires_s, now_s].map(|seconds| {
                    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
                });
                Self::Clock(format!("the token is valid from {issued} to {expires}, and the head's clock says {now}"))
            }
            error => Self::Token(error.to_string()),
        }
    }
}

/// The beginning of a text from elsewhere.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
