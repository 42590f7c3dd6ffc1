//! What the fuzz targets need of this crate's inside. Not in the product.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use hostler_core::head::State;
use hostler_model::{Digest, NodeName, Role};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::api;
use crate::api::access::named_by_relay;
use crate::blobs::{inline_size, name_of};
use crate::login;
use crate::trust::{Trust, bearer_of};

/// Whom a certificate names, and the fingerprint of its key.
pub fn certificate(der: &[u8]) -> Option<(NodeName, Digest)> {
    bearer_of(&CertificateDer::from(der)).map(|bearer| (bearer.node, bearer.key))
}

/// A cluster's authority.
pub struct Authority(Trust);

impl Authority {
    /// A new one, kept in `directory`.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        Trust::open(directory, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), &[]).map(Self)
    }

    /// Its own certificate, DER.
    ///
    /// # Errors
    /// When it is none, which would be a bug.
    pub fn certificate(&self) -> anyhow::Result<Vec<u8>> {
        Ok(CertificateDer::from_pem_slice(self.0.authority().as_bytes())?.to_vec())
    }

    /// Signs a request for `node`: the certificate, DER. `None` when it is refused.
    pub fn sign(&self, node: &NodeName, request: &str) -> Option<Vec<u8>> {
        let issued = self.0.sign(node, request).ok()?;
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).expect("just signed");
        assert_eq!(certificate(&der), Some((node.clone(), issued.key)), "a certificate names whom it was signed for");
        Some(der.to_vec())
    }
}

/// The size of a result that came inside a report, if it is one and complete.
pub fn inline_result(blobs: Vec<Vec<u8>>) -> Option<u64> {
    let blobs: Vec<(Digest, Vec<u8>)> = blobs.into_iter().map(|blob| (name_of(&blob), blob)).collect();
    inline_size(&blobs.first()?.0, &blobs)
}

/// A signing request as an agent makes it, PEM and DER.
///
/// # Panics
/// When no key can be made.
pub fn honest_request() -> (String, Vec<u8>) {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request can be made");
    (request.pem().expect("a request is text"), request.der().to_vec())
}

/// How many kinds of query understand this text.
pub fn queries(text: &str) -> usize {
    api::queries(text)
}

/// A public key as somebody wrote it, in the one form in which it is kept.
///
/// # Errors
/// Why it cannot be used.
pub fn normal_key(line: &str) -> Result<String, String> {
    login::normal_key(line)
}

/// Whether this is a signature of `text` by this key, for a login.
pub fn is_signed(signature: &str, text: &str, key: &str) -> bool {
    login::check_signature(signature, text, &[key.to_owned()]).is_ok()
}

/// Whom a node's header names as the user of a request that it passes on, and with which role.
pub fn relayed(state: &State, node: &NodeName, header: &[u8]) -> Option<(String, Role)> {
    named_by_relay(state, node, header)
}
