//! Verification of a controller's certificate.

use std::sync::Arc;

use hostler_power::{Answer, Fault, FaultKind, Fingerprint, Supply, Verb};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use crate::common::{Secrets, controller, site};
use crate::controller::{Bmc, PASSWORD, USER};

/// Creates a key and its certificate.
fn certificate() -> (CertificateDer<'static>, KeyPair) {
    let key = KeyPair::generate().expect("random bytes");
    let made = CertificateParams::new(vec!["iLO".into()]).and_then(|parameters| parameters.self_signed(&key));
    (made.expect("valid parameters").der().clone(), key)
}

/// A simulated controller with this certificate and this key, which need not match.
async fn showing(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    version: &'static SupportedProtocolVersion,
) -> Bmc {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("the key is valid");
    let key = provider.key_provider.load_private_key(key).expect("a supported key");
    let pair = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("the provider supports it")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(pair));
    Bmc::start_tls(TlsAcceptor::from(Arc::new(config))).await
}

/// A simulated controller with a matching key, and its fingerprint.
async fn bmc() -> (Bmc, Fingerprint) {
    let (certificate, key) = certificate();
    let fingerprint = Fingerprint::of(&certificate);
    (showing(certificate, &key, &TLS13).await, fingerprint)
}

async fn status(bmc: &Bmc, more: &str) -> Result<Answer, Fault> {
    let secrets = Secrets::new(&format!("{USER}:{PASSWORD}"));
    let (port, path) = (bmc.port, secrets.path());
    let text = format!("kind = 'redfish'\naddress = '127.0.0.1:{port}'\ncredentials = '{}'\n{more}", path.display());
    controller(&site(), &text).act(Verb::Status).await
}

#[tokio::test]
async fn first_connection_reports_the_fingerprint_and_sends_nothing() {
    let (bmc, fingerprint) = bmc().await;
    let fault = status(&bmc, "").await.expect_err("an unknown certificate");
    assert_eq!(fault.kind(), FaultKind::Untrusted);
    assert!(!fault.is_worth_retrying());
    let line = format!("fingerprint = \"{fingerprint}\"");
    assert!(fault.what_to_do().is_some_and(|hint| hint.contains(&line)), "{fault:?}");
    assert_eq!(bmc.asked_in_all(), 0);
    assert_eq!(status(&bmc, &line).await, Ok(Answer::Confirmed(Supply::Off)));
}

#[tokio::test]
async fn server_with_another_certificate_gets_no_request() {
    let (bmc, fingerprint) = bmc().await;
    let other = Fingerprint::of(b"another");
    let fault = status(&bmc, &format!("fingerprint = '{other}'")).await.expect_err("another certificate");
    assert_eq!(fault.kind(), FaultKind::Untrusted);
    let (other, fingerprint) = (other.to_string(), fingerprint.to_string());
    assert!(fault.why().contains(&other) && fault.why().contains(&fingerprint), "{fault}");
    assert_eq!(bmc.asked_in_all(), 0);
    // A configured fingerprint has precedence over `insecure`.
    assert!(status(&bmc, &format!("fingerprint = '{other}'\ninsecure = true")).await.is_err());
    assert_eq!(status(&bmc, "insecure = true").await, Ok(Answer::Confirmed(Supply::Off)));
}

#[tokio::test]
async fn server_without_tls_is_untrusted() {
    let bmc = Bmc::start().await;
    let fault = status(&bmc, "").await.expect_err("the server does not use TLS");
    assert_eq!(fault.kind(), FaultKind::Untrusted);
    assert_eq!(bmc.with(|machine| machine.made), 0);
}

#[tokio::test]
async fn right_certificate_without_its_key_is_rejected() {
    for version in [&TLS12, &TLS13] {
        let ((certificate, key), (_, other)) = (certificate(), certificate());
        let pinned = format!("fingerprint = '{}'", Fingerprint::of(&certificate));
        let honest = showing(certificate.clone(), &key, version).await;
        assert_eq!(status(&honest, &pinned).await, Ok(Answer::Confirmed(Supply::Off)), "{version:?}");
        let impostor = showing(certificate, &other, version).await;
        let fault = status(&impostor, &pinned).await.expect_err("the server has another key");
        assert_eq!(fault.kind(), FaultKind::Untrusted, "{version:?}: {fault}");
        assert_eq!(impostor.asked_in_all(), 0);
    }
}
