//! For users outside the cluster: trust in the head, and login tokens.
//!
//! As with SSH, a cluster is trusted by the fingerprint of its authority. A person confirms the fingerprint at the
//! first connection, and it is stored. From then on, any head certificate of this authority is valid, at any address
//! and at any time, because no clock can be trusted. Certificates of nodes are client certificates, so a node cannot
//! pose as the head.

use hostler_model::Digest;
use hostler_proto::users::{Challenge, CodeLogin, KeyLogin, LoggedIn, login_text};

use crate::client::Call;
use crate::{Client, ClientError, Endpoint, Token, tls};

impl Endpoint {
    /// Returns the endpoint of the head at `address` (host and port), in the cluster with this authority. Requests
    /// carry the token, if there is one.
    #[must_use]
    pub fn remote_head(address: &str, authority: Digest, token: Option<Token>) -> Self {
        Self::Remote { address: address.to_owned(), config: tls::pinned(authority), token }
    }
}

/// Connects to the server at `address` and returns the fingerprint of its authority. Sends nothing secret. A person
/// must check the fingerprint.
///
/// # Errors
/// [`ClientError::Connect`], also if the server is not a head.
pub async fn authority_at(address: &str) -> Result<Digest, ClientError> {
    let (config, authority) = tls::looking();
    Endpoint::Remote { address: address.to_owned(), config, token: None }.connect().await?;
    authority.get().copied().ok_or_else(|| ClientError::NotAHead {
        endpoint: address.to_owned(),
        what: "the server sends no authority certificate".to_owned(),
    })
}

/// The text to sign for a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToSign {
    /// Nonce of the challenge, sent with the signature.
    pub nonce: String,
    /// The text, in the form that the head verifies.
    pub text: String,
}

/// The text to sign for a challenge of the head at `endpoint`. Fails if the challenge is for another cluster.
fn to_sign(challenge: Challenge, authority: &Digest, user: &str, endpoint: &str) -> Result<ToSign, ClientError> {
    if challenge.cluster != *authority {
        return Err(ClientError::OtherCluster {
            endpoint: endpoint.to_owned(),
            trusted: *authority,
            named: challenge.cluster,
        });
    }
    if !challenge.is_well_formed() {
        return Err(ClientError::NotAHead {
            endpoint: endpoint.to_owned(),
            what: "the nonce of the challenge is malformed".to_owned(),
        });
    }
    Ok(ToSign { text: login_text(authority, &challenge.nonce, user), nonce: challenge.nonce })
}

/// Login. All methods fail with a [`ClientError`].
impl Client {
    /// Returns the text to sign for a login of `user` at the cluster with this authority.
    ///
    /// # Errors
    /// [`ClientError::OtherCluster`] if the challenge contains another authority. The head may have forwarded another
    /// cluster's challenge, and could use the signature to log in there.
    pub async fn login_challenge(&self, authority: &Digest, user: &str) -> Result<ToSign, ClientError> {
        let challenge: Challenge = self.call(Call::post("/login/challenge")).await?;
        to_sign(challenge, authority, user, &self.endpoint().to_string())
    }

    /// Exchanges a signed challenge for a token. Not retried after the request may have arrived, because a challenge is
    /// valid once.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `bad_key` or `bad_challenge`.
    pub async fn login_by_key(&self, login: &KeyLogin) -> Result<LoggedIn, ClientError> {
        self.call(Call::post("/login/key").json(login).once()).await
    }

    /// Exchanges a login code for a token. Not retried after the request may have arrived.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `bad_code`.
    pub async fn login_by_code(&self, login: &CodeLogin) -> Result<LoggedIn, ClientError> {
        self.call(Call::post("/login/code").json(login).once()).await
    }

    /// Revokes a login code or a join code that others may have seen.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `bad_code` if the code is no longer valid.
    pub async fn revoke_code(&self, code: &CodeLogin) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/codes/revoke").json(code).once()).await.map(drop)
    }

    /// Revokes the token of this client.
    pub async fn logout(&self) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/logout")).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_that_names_another_cluster_is_never_signed() {
        let (ours, theirs) = (Digest([1; 32]), Digest([2; 32]));
        let challenge = |nonce: &str, cluster| Challenge { nonce: nonce.to_owned(), cluster };
        let signed = to_sign(challenge("a0", ours), &ours, "ada", "head:1").expect("the head's own");
        assert_eq!((signed.nonce.as_str(), signed.text), ("a0", login_text(&ours, "a0", "ada")));
        let refused = to_sign(challenge("a0", theirs), &ours, "ada", "head:1").expect_err("another cluster's");
        assert!(
            matches!(refused, ClientError::OtherCluster { trusted, named, .. } if (trusted, named) == (ours, theirs))
        );
        // A nonce must not add lines to the text.
        for nonce in ["", "a0\nuser root", "zz", &"a".repeat(257)] {
            assert!(to_sign(challenge(nonce, ours), &ours, "ada", "head:1").is_err(), "{nonce}");
        }
    }
}
