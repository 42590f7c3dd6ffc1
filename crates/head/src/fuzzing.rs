//! Access to internals of this crate for fuzz targets. Not part of the product.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use hostler_core::head::State;
use hostler_model::{Digest, NodeName, Role};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::api;
use crate::blobs::{inline_size, name_of};
use crate::identify::relayed_identity;
use crate::login;
use crate::trust::{Trust, bearer_of};

/// The node name in a certificate, and the fingerprint of its key.
pub fn certificate(der: &[u8]) -> Option<(NodeName, Digest)> {
    bearer_of(&CertificateDer::from(der)).map(|bearer| (bearer.node, bearer.key))
}

/// A cluster's certificate authority.
pub struct Authority(Trust);

impl Authority {
    /// Creates an authority in `directory`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        Trust::open(directory, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), &[]).map(Self)
    }

    /// The authority's certificate in DER form.
    ///
    /// # Errors
    /// The stored certificate is invalid, which would be a bug.
    pub fn certificate(&self) -> anyhow::Result<Vec<u8>> {
        Ok(CertificateDer::from_pem_slice(self.0.authority().as_bytes())?.to_vec())
    }

    /// Signs a request for `node`. Returns the certificate in DER form, or `None` if the request is rejected.
    pub fn sign(&self, node: &NodeName, request: &str) -> Option<Vec<u8>> {
        let issued = self.0.sign(node, request).ok()?;
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).expect("just signed");
        assert_eq!(
            certificate(&der),
            Some((node.clone(), issued.key)),
            "the certificate contains the node's name and key"
        );
        Some(der.to_vec())
    }
}

/// Returns the size of a result that is part of a report, if the result is valid and complete.
pub fn inline_result(blobs: Vec<Vec<u8>>) -> Option<u64> {
    let blobs: Vec<(Digest, Vec<u8>)> = blobs.into_iter().map(|blob| (name_of(&blob), blob)).collect();
    inline_size(&blobs.first()?.0, &blobs)
}

/// A valid signing request, in PEM and DER form.
///
/// # Panics
/// No key can be generated.
pub fn honest_request() -> (String, Vec<u8>) {
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let request = rcgen::CertificateParams::default().serialize_request(&key).expect("a request can be made");
    (request.pem().expect("a request is text"), request.der().to_vec())
}

/// Number of query types that accept this text.
pub fn queries(text: &str) -> usize {
    api::queries(text)
}

/// Parses a public key and returns its normal form.
///
/// # Errors
/// The reason why the key cannot be used.
pub fn normal_key(line: &str) -> Result<String, String> {
    login::normal_key(line)
}

/// Whether this is a login signature of `text` by this key.
pub fn is_signed(signature: &str, text: &str, key: &str) -> bool {
    login::check_signature(signature, text, &[key.to_owned()]).is_ok()
}

/// Returns the user and role of a relayed request, according to the relay header that the node sent.
pub fn relayed(state: &State, node: &NodeName, header: &[u8]) -> Option<(String, Role)> {
    relayed_identity(state, node, header)
}
