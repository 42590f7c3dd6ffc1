//! For users elsewhere: which cluster is trusted, and the token that says who asks.
//!
//! As with SSH, a cluster is trusted by the fingerprint of its authority, which is seen at the first connection, confirmed by a person
//! and kept. From then on any certificate of that authority for a head is good, by whatever address the head is reached; and at any
//! time, since neither clock may be right. Certificates of nodes are for clients, so no node can pose as the head.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hostler_model::Digest;
use hostler_proto::users::{Challenge, CodeLogin, KeyLogin, LoggedIn};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::client::Call;
use crate::tls::fingerprint;
use crate::tls::valid_time;
use crate::{Client, ClientError, Endpoint};

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
        let config = config(Arc::new(Authority::new(Some(authority))));
        Self::Elsewhere { address: address.to_owned(), config, token }
    }
}

/// The fingerprint of the authority of whoever listens at `address`. Nothing secret is said; whether it is the right one is for a person
/// to judge.
///
/// # Errors
/// [`ClientError::Connect`], also when it is no head.
pub async fn authority_at(address: &str) -> Result<Digest, ClientError> {
    let authority = Arc::new(Authority::new(None));
    let endpoint =
        Endpoint::Elsewhere { address: address.to_owned(), config: config(Arc::clone(&authority)), token: None };
    endpoint.connect().await?;
    let seen = *authority.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.ok_or_else(|| ClientError::NotAHead {
        endpoint: address.to_owned(),
        what: "it names no authority of a cluster".to_owned(),
    })
}

/// Every method fails with a [`ClientError`].
impl Client {
    /// Something to sign for a login.
    ///
    /// # Errors
    /// See above.
    pub async fn login_challenge(&self) -> Result<Challenge, ClientError> {
        self.call(Call::post("/login/challenge")).await
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

fn config(verifier: Arc<Authority>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports them")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Arc::new(config)
}

/// Verifies against the authority that the server sends along.
#[derive(Debug)]
struct Authority {
    /// The one that is trusted; any when absent.
    trusted: Option<Digest>,
    /// The one that was seen.
    seen: Mutex<Option<Digest>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Authority {
    fn new(trusted: Option<Digest>) -> Self {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Self { trusted, seen: Mutex::default(), algorithms }
    }
}

impl ServerCertVerifier for Authority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_trusted =
            |certificate: &&CertificateDer<'_>| self.trusted.is_none_or(|trusted| fingerprint(certificate) == trusted);
        let authority =
            intermediates.iter().find(is_trusted).ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let at = valid_time(end_entity).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, at, self.algorithms.all)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint(authority));
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
