//! For users elsewhere: which cluster is trusted, and the token that says who asks.
//!
//! As with SSH, a cluster is trusted by the fingerprint of its authority, which is seen at the first connection, confirmed by a person
//! and kept. From then on any certificate of that authority for a head is good, by whatever address the head is reached; and at any
//! time, since neither clock may be right. Certificates of nodes are for clients, so no node can pose as the head.

use std::fmt;

use hostler_model::Digest;
use hostler_proto::users::{Challenge, CodeLogin, KeyLogin, LoggedIn, login_text};

use crate::client::Call;
use crate::{Client, ClientError, Endpoint, tls};

/// Stands for a user. Shown to nobody but the head.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// Without the secret: endpoints end up in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Endpoint {
    /// The head at `address` (host and port) of the cluster with this authority; requests carry the token, if there is one.
    #[must_use]
    pub fn elsewhere(address: &str, authority: Digest, token: Option<Token>) -> Self {
        Self::Elsewhere { address: address.to_owned(), config: tls::pinned(authority), token }
    }
}

/// The fingerprint of the authority of whoever listens at `address`. Nothing secret is said; whether it is the right one is for a person
/// to judge.
///
/// # Errors
/// [`ClientError::Connect`], also when it is no head.
pub async fn authority_at(address: &str) -> Result<Digest, ClientError> {
    let (config, authority) = tls::looking();
    Endpoint::Elsewhere { address: address.to_owned(), config, token: None }.connect().await?;
    authority.seen().ok_or_else(|| ClientError::NotAHead {
        endpoint: address.to_owned(),
        what: "it names no authority of a cluster".to_owned(),
    })
}

/// What a key signs for a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToSign {
    /// The challenge's nonce, which goes with the signature.
    pub nonce: String,
    /// The text.
    pub text: String,
}

/// The text to sign for a challenge that the head at `endpoint` gave, unless the challenge is not that head's own.
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
            what: "the nonce of its challenge is malformed".to_owned(),
        });
    }
    Ok(ToSign { text: login_text(authority, &challenge.nonce, user), nonce: challenge.nonce })
}

/// Every method fails with a [`ClientError`].
impl Client {
    /// The text to sign for a login of `user` at the cluster with this authority, and its nonce.
    ///
    /// # Errors
    /// [`ClientError::OtherCluster`] when the head names another authority: it may be passing on another cluster's challenge, and a
    /// signature of that would log the head in there.
    pub async fn login_challenge(&self, authority: &Digest, user: &str) -> Result<ToSign, ClientError> {
        let challenge: Challenge = self.call(Call::post("/login/challenge")).await?;
        to_sign(challenge, authority, user, &self.endpoint().to_string())
    }

    /// A token for a challenge that was signed. Not tried again once it may have arrived: a challenge is good once.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `bad_key` or `bad_challenge`.
    pub async fn login_by_key(&self, login: &KeyLogin) -> Result<LoggedIn, ClientError> {
        self.call(Call::post("/login/key").json(login).once()).await
    }

    /// A token for a login code. Not tried again either.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `bad_code`.
    pub async fn login_by_code(&self, login: &CodeLogin) -> Result<LoggedIn, ClientError> {
        self.call(Call::post("/login/code").json(login).once()).await
    }

    /// Makes the token of this client void.
    ///
    /// # Errors
    /// See above.
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
        // Nor may a nonce add lines to the text.
        for nonce in ["", "a0\nuser root", "zz", &"a".repeat(257)] {
            assert!(to_sign(challenge(nonce, ours), &ours, "ada", "head:1").is_err(), "{nonce}");
        }
    }
}
