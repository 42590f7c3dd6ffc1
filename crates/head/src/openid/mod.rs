//! Sign-in of browsers with OpenID Connect: the authorization code flow with PKCE.
//!
//! A sign-in begins with a secret from the head, which the browser keeps in a cookie. The head keeps nothing: state, nonce
//! and code verifier are keyed hashes of the secret, and the secret's [`crate::seal`] shows that the head made it less than
//! ten minutes ago. So another browser cannot complete the sign-in, and a flood of sign-ins uses no memory.
//!
//! A user is identified by issuer and subject. Mail addresses and names may change hands.

mod error;
mod file;
mod proof;
mod provider;
mod token;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use form_urlencoded::Serializer;
use hostler_model::UserName;
use hostler_proto::openid::SignInSecret;
use tokio::sync::Semaphore;

pub(crate) use self::error::OpenIdError;
use self::file::{OpenIdFile, lines_for};
use self::proof::Proof;
use self::provider::Provider;
use self::token::{Expected, TokenError, verify};
use crate::seal::Seal;

/// Path of the page to which the provider sends browsers back.
const CALLBACK: &str = "/sign-in/openid/callback";

/// Time for a sign-in.
const SIGN_IN_TTL: Duration = Duration::from_secs(600);

/// Minimum time between two checks whether the file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// How long the head uses what it knows about the provider.
const PROVIDER_TTL: Duration = Duration::from_secs(3600);

/// Delay before the next attempt to read the provider's description.
const RETRY: Duration = Duration::from_secs(3);

/// Maximum number of sign-ins that talk to the provider at the same time.
const MAX_EXCHANGES: usize = 16;

/// The same for all sign-ins from addresses with many failures, whose sign-ins must not delay those of others.
const MAX_DOUBTFUL_EXCHANGES: usize = 2;

/// Sign-in with the provider in `openid.toml`.
pub(crate) struct OpenId {
    path: PathBuf,
    seal: Seal,
    seen: Mutex<Seen>,
    provider: tokio::sync::Mutex<Option<Known>>,
    exchanges: Semaphore,
    doubtful_exchanges: Semaphore,
}

/// The file when the head last looked.
#[derive(Default)]
struct Seen {
    looked: Option<Instant>,
    file: Option<Arc<OpenIdFile>>,
    /// Why the file is ignored.
    trouble: Option<String>,
}

/// What is known about the provider that a file names.
struct Known {
    file: Arc<OpenIdFile>,
    at: Instant,
    outcome: Result<Arc<Provider>, OpenIdError>,
}

/// A sign-in that has begun.
pub(crate) struct Begun {
    /// Where the browser goes.
    pub(crate) url: String,
    /// What the browser must show at the end.
    pub(crate) secret: SignInSecret,
}

/// What the provider sends with the browser.
pub(crate) enum Reply<'a> {
    Code(&'a str),
    Error { error: &'a str, description: Option<&'a str> },
}

impl OpenId {
    pub(crate) fn new(path: PathBuf) -> Self {
        let [exchanges, doubtful_exchanges] = [MAX_EXCHANGES, MAX_DOUBTFUL_EXCHANGES].map(Semaphore::new);
        let (seal, seen, provider) = (Seal::new(), Mutex::default(), tokio::sync::Mutex::default());
        Self { path, seal, seen, provider, exchanges, doubtful_exchanges }
    }

    /// What the sign-in page calls the provider; `None` if there is none.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.look().0.map(|file| file.name())
    }

    /// A warning for operators, if the file is ignored.
    pub(crate) fn warning(&self) -> Option<String> {
        self.look().1
    }

    /// Begins a sign-in. `origin` is the address of the dashboard.
    pub(crate) async fn begin(&self, origin: &str) -> Result<Begun, OpenIdError> {
        let file = self.file()?;
        let provider = self.provider(&file).await?;
        let secret = SignInSecret(self.seal.make());
        let proof = Proof::new(&secret);
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &file.client_id)
            .append_pair("redirect_uri", &callback(origin))
            .append_pair("scope", "openid")
            .append_pair("state", &proof.state())
            .append_pair("nonce", &proof.nonce())
            .append_pair("code_challenge", &proof.challenge())
            .append_pair("code_challenge_method", "S256")
            .finish();
        let place = &provider.authorization;
        let separator = if place.contains('?') { '&' } else { '?' };
        Ok(Begun { url: format!("{place}{separator}{query}"), secret })
    }

    /// Completes a sign-in, and returns its user. `is_doubtful` if the client's address has many failures.
    pub(crate) async fn finish(
        &self,
        origin: &str,
        (secret, state): (&SignInSecret, &str),
        reply: Reply<'_>,
        is_doubtful: bool,
    ) -> Result<UserName, OpenIdError> {
        let file = self.file()?;
        let proof = Proof::new(secret);
        if !self.seal.is_younger(&secret.0, SIGN_IN_TTL) || !proof.is_state(state) {
            return Err(OpenIdError::State);
        }
        let code = match reply {
            Reply::Code(code) => code,
            Reply::Error { error, description } => return Err(OpenIdError::refused(error, description)),
        };
        let provider = self.provider(&file).await?;
        let exchanges = if is_doubtful { &self.doubtful_exchanges } else { &self.exchanges };
        let _turn = exchanges.acquire().await.expect("the semaphore is never closed");
        let token = provider.redeem(&file, code, &proof, &callback(origin)).await?;
        let nonce = proof.nonce();
        let expected = || Expected { issuer: &file.issuer, client_id: &file.client_id, nonce: &nonce, now_s: now_s() };
        let subject = match verify(&token, &provider.keys, expected()) {
            // The provider may have a new key.
            Err(TokenError::UnknownKey) => {
                let provider = self.with_new_keys(&file, &provider).await?;
                verify(&token, &provider.keys, expected())?
            }
            outcome => outcome?,
        };
        let unmapped = || OpenIdError::Unmapped { lines: lines_for(&file.issuer, &subject) };
        file.user(&subject).cloned().ok_or_else(unmapped)
    }

    fn file(&self) -> Result<Arc<OpenIdFile>, OpenIdError> {
        match self.look() {
            (Some(file), _) => Ok(file),
            (None, Some(_)) => Err(OpenIdError::File("see the head's log".to_owned())),
            (None, None) => Err(OpenIdError::Unconfigured),
        }
    }

    /// The file, read again if some time has passed, or why it is ignored.
    fn look(&self) -> (Option<Arc<OpenIdFile>>, Option<String>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            seen.looked = Some(Instant::now());
            let (file, trouble) = match OpenIdFile::read(&self.path) {
                Ok(file) => (file, None),
                Err(error) => (None, Some(error.to_string())),
            };
            if let Some(trouble) = trouble.as_ref().filter(|trouble| seen.trouble.as_ref() != Some(trouble)) {
                tracing::warn!("{trouble}");
            }
            seen.trouble = trouble;
            // An unchanged file stays the same object, so that what is known about its provider stays valid.
            if seen.file.as_deref() != file.as_ref() {
                seen.file = file.map(Arc::new);
            }
        }
        (seen.file.clone(), seen.trouble.clone())
    }

    /// What is known about the provider. Asks the provider if that is old; all who wait share one answer.
    async fn provider(&self, file: &Arc<OpenIdFile>) -> Result<Arc<Provider>, OpenIdError> {
        let mut known = self.provider.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.is_for(file)) {
            return known.outcome.clone();
        }
        let outcome = Provider::discover(file).await.map(Arc::new);
        if let Err(error) = &outcome {
            tracing::warn!("{error}");
        }
        *known = Some(Known { file: Arc::clone(file), at: Instant::now(), outcome: outcome.clone() });
        outcome
    }

    /// Reads the provider's keys again, unless that has happened since `old` was read.
    async fn with_new_keys(&self, file: &Arc<OpenIdFile>, old: &Arc<Provider>) -> Result<Arc<Provider>, OpenIdError> {
        let mut known = self.provider.lock().await;
        if let Some(Known { outcome: Ok(current), .. }) = known.as_ref().filter(|known| known.is_for(file))
            && !Arc::ptr_eq(current, old)
        {
            return Ok(Arc::clone(current));
        }
        let new = Arc::new(Provider::clone(old).with_new_keys(file).await?);
        *known = Some(Known { file: Arc::clone(file), at: Instant::now(), outcome: Ok(Arc::clone(&new)) });
        Ok(new)
    }
}

impl Known {
    fn is_for(&self, file: &Arc<OpenIdFile>) -> bool {
        let ttl = if self.outcome.is_ok() { PROVIDER_TTL } else { RETRY };
        Arc::ptr_eq(&self.file, file) && self.at.elapsed() < ttl
    }
}

fn callback(origin: &str) -> String {
    format!("{origin}{CALLBACK}")
}

fn now_s() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_belongs_to_one_secret() {
        let [proof, other] = [1, 2].map(|byte| Proof::new(&SignInSecret([byte; 32])));
        assert!(proof.is_state(&proof.state()) && !proof.is_state(&other.state()));
        for shown in ["", "a", "=", &proof.nonce(), &proof.verifier()] {
            assert!(!proof.is_state(shown), "{shown}");
        }
    }

    #[test]
    fn challenge_is_the_hash_of_the_verifier() {
        let proof = Proof::new(&SignInSecret([1; 32]));
        // RFC 7636 wants 43 to 128 characters.
        assert_eq!((proof.verifier().len(), proof.challenge().len()), (43, 43));
        assert_ne!(proof.verifier(), proof.nonce());
    }
}
