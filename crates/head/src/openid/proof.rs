//! What follows from the secret of a sign-in: state, nonce, and the code verifier of PKCE.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hostler_proto::openid::SignInSecret;
use ring::{digest, hmac};

/// The secret of a sign-in, from which everything else follows.
pub(super) struct Proof(hmac::Key);

impl Proof {
    pub(super) fn new(secret: &SignInSecret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &secret.0))
    }

    pub(super) fn derive(&self, what: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, what.as_bytes()))
    }

    pub(super) fn state(&self) -> String {
        self.derive("state")
    }

    /// Whether the provider returned this sign-in's state. Takes the same time for every wrong value.
    pub(super) fn is_state(&self, shown: &str) -> bool {
        BASE64_URL_SAFE_NO_PAD.decode(shown).is_ok_and(|shown| hmac::verify(&self.0, b"state", &shown).is_ok())
    }

    pub(super) fn nonce(&self) -> String {
        self.derive("nonce")
    }

    pub(super) fn verifier(&self) -> String {
        self.derive("verifier")
    }

    /// The challenge of PKCE (S256).
    pub(super) fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier().as_bytes()))
    }
}
