//! The dashboard of a site: a certificate of the site's choice on the head's port, and plain HTTP on loopback for a
//! reverse proxy.
//!
//! A TLS client names the server that it wants. If the site's certificate carries that name, the client gets this
//! certificate and is asked for none. All others, such as agents and `hostler login`, get the cluster's certificate.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hostler_proto::join::HEAD_NAME;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::SiteConfig;
use crate::proxy::{ListenerKind, Proxy};

/// Minimum time between two checks whether the files of the certificate have changed.
const LOOK: Duration = Duration::from_secs(1);

/// The site's certificate and the origins of its pages.
pub(crate) struct Site {
    certificate: Option<Certificate>,
    /// Origin that an admin has configured, such as `https://cluster.example.org`.
    origin: Option<String>,
    /// Address of the plain HTTP listener.
    http: Option<std::net::SocketAddr>,
    pub(crate) proxy: Proxy,
}

/// A certificate in files, which is loaded again when they change.
struct Certificate {
    files: [PathBuf; 2],
    /// Origin that an admin has configured.
    origin: Option<String>,
    port: u16,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    /// State of the files when the certificate was loaded.
    stamps: [Stamp; 2],
    looked: Instant,
    names: Vec<String>,
    origins: Arc<[String]>,
    config: Arc<rustls::ServerConfig>,
}

/// What changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), bytes: metadata.len(), modified }
    }
}

impl Site {
    /// Loads the certificate, if the configuration names one. `port` is the head's TLS port, and `http` the address of
    /// the plain HTTP listener.
    ///
    /// # Errors
    /// The certificate cannot be used.
    pub(crate) fn open(config: &SiteConfig, port: u16, http: Option<std::net::SocketAddr>) -> anyhow::Result<Self> {
        let origin = config.origin.clone();
        let certificate = match &config.certificate {
            Some((certificate, key)) => {
                let files = [certificate.clone(), key.clone()];
                let loaded = Loaded::read(&files, origin.as_deref(), port)?;
                Some(Certificate { files, origin: origin.clone(), port, loaded: Mutex::new(loaded) })
            }
            None => None,
        };
        Ok(Self { certificate, origin, http, proxy: Proxy::new(config.proxy_uid) })
    }

    /// The TLS configuration and the listener kind for a client that asks for the server `name`. `None` if the name is
    /// not the site's.
    pub(crate) fn at(&self, name: Option<&str>) -> Option<(Arc<rustls::ServerConfig>, ListenerKind)> {
        let name = name.filter(|name| !name.eq_ignore_ascii_case(HEAD_NAME))?;
        self.certificate.as_ref()?.at(name)
    }

    /// The kind of the plain HTTP listener; `None` without such a listener.
    pub(crate) fn http_listener_kind(&self) -> Option<ListenerKind> {
        let http = self.http?;
        Some(match &self.origin {
            Some(origin) => ListenerKind::Site { origins: Arc::from([origin.clone()]), is_proxied: true },
            None => ListenerKind::Site { origins: loopback_origins(http), is_proxied: false },
        })
    }

    /// The origin of the pages for a link.
    pub(crate) fn origin(&self) -> Option<String> {
        let of_certificate = || self.certificate.as_ref()?.origins().first().cloned();
        let of_http = || self.http.map(|http| format!("http://{http}"));
        self.origin.clone().or_else(of_certificate).or_else(of_http)
    }
}

fn loopback_origins(http: std::net::SocketAddr) -> Arc<[String]> {
    Arc::from([format!("http://{http}"), format!("http://localhost:{}", http.port())])
}

impl Certificate {
    fn at(&self, name: &str) -> Option<(Arc<rustls::ServerConfig>, ListenerKind)> {
        let loaded = self.current();
        loaded.names.iter().any(|own| is_name(own, name)).then(|| {
            let origins = Arc::clone(&loaded.origins);
            (Arc::clone(&loaded.config), ListenerKind::Site { origins, is_proxied: false })
        })
    }

    fn origins(&self) -> Arc<[String]> {
        Arc::clone(&self.current().origins)
    }

    /// The certificate, loaded again if its files have changed. If they are damaged, the previous one stays in use.
    fn current(&self) -> std::sync::MutexGuard<'_, Loaded> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= LOOK {
            loaded.looked = Instant::now();
            if !stamps(&self.files).is_ok_and(|stamps| stamps == loaded.stamps) {
                match Loaded::read(&self.files, self.origin.as_deref(), self.port) {
                    Ok(new) => {
                        tracing::info!(names = new.names.join(", "), "the site's certificate was loaded again");
                        *loaded = new;
                    }
                    Err(error) => {
                        tracing::warn!("cannot load the site's new certificate; the old one stays: {error:#}");
                    }
                }
            }
        }
        loaded
    }
}

impl Loaded {
    fn read(files: &[PathBuf; 2], origin: Option<&str>, port: u16) -> anyhow::Result<Self> {
        // Before the content, so that a change in between leads to another load.
        let stamps = stamps(files)?;
        let [certificate, key] = files;
        let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain =
            chain.with_context(|| format!("cannot read a certificate in PEM form from {}", certificate.display()))?;
        let key = PrivateKeyDer::from_pem_file(key)
            .with_context(|| format!("cannot read a private key in PEM form from {}", key.display()))?;
        let first = chain.first().with_context(|| format!("{} contains no certificate", certificate.display()))?;
        let names = names_of(first).with_context(|| format!("cannot read the names in {}", certificate.display()))?;
        let origins = origins(origin, &names, port, certificate)?;
        let mut config = rustls::ServerConfig::builder_with_provider(hostler_tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .with_context(|| format!("cannot use {} with its key", certificate.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { stamps, looked: Instant::now(), names, origins, config: Arc::new(config) })
    }
}

fn stamps(files: &[PathBuf; 2]) -> anyhow::Result<[Stamp; 2]> {
    let stamp =
        |path: &Path| fs::metadata(path).map(Stamp::from).with_context(|| format!("cannot read {}", path.display()));
    Ok([stamp(&files[0])?, stamp(&files[1])?])
}

/// The DNS names in a certificate, in lower case.
fn names_of(certificate: &CertificateDer<'_>) -> anyhow::Result<Vec<String>> {
    let (_, parsed) = X509Certificate::from_der(certificate).context("not a certificate")?;
    let names = parsed.subject_alternative_name()?.map(|names| names.value.general_names.clone()).unwrap_or_default();
    let names = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok(names.collect())
}

/// The origins of the site's pages: the configured one, or else one for each name in the certificate.
fn origins(origin: Option<&str>, names: &[String], port: u16, file: &Path) -> anyhow::Result<Arc<[String]>> {
    if let Some(origin) = origin {
        let host = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let host = host.split(':').next().unwrap_or_default();
        if !names.iter().any(|own| is_name(own, host)) {
            bail!("{} is for {}, not for {host}", file.display(), names.join(", "));
        }
        return Ok(Arc::from([origin.to_owned()]));
    }
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let plain = names.iter().filter(|name| !name.starts_with("*."));
    let origins: Arc<[String]> = plain.map(|name| format!("https://{name}{port}")).collect();
    if origins.is_empty() {
        bail!("{} names no single host; choose the dashboard's address with --site https://NAME", file.display());
    }
    Ok(origins)
}

/// Whether a name in a certificate covers `name`. A wildcard stands for one label.
fn is_name(own: &str, name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    match own.strip_prefix("*.") {
        Some(parent) => name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
        None => own == name,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Writes a self-signed certificate with these names and its key.
    fn write(directory: &Path, names: &[&str]) -> SiteConfig {
        let key = KeyPair::generate().expect("a key can be made");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("valid names");
        let files = [directory.join("site.pem"), directory.join("site.key")];
        fs::write(&files[1], key.serialize_pem()).expect("a file can be written");
        fs::write(&files[0], params.self_signed(&key).expect("a certificate").pem()).expect("a file can be written");
        let [certificate, key] = files;
        SiteConfig { certificate: Some((certificate, key)), ..SiteConfig::default() }
    }

    #[test]
    fn certificate_is_chosen_by_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = write(directory.path(), &["cluster.example", "*.lab.example", HEAD_NAME]);
        let site = Site::open(&config, 7760, None).expect("a usable certificate");
        for name in ["cluster.example", "CLUSTER.example", "a.lab.example"] {
            let (_, listener) = site.at(Some(name)).expect(name);
            let ListenerKind::Site { origins, .. } = listener else { panic!("{listener:?}") };
            // A wildcard is not an origin: its names may belong to others.
            assert_eq!(origins[0], "https://cluster.example:7760");
            assert!(!origins.iter().any(|origin| origin.contains('*')));
        }
        for name in
            [None, Some("head"), Some(HEAD_NAME), Some("lab.example"), Some("a.b.lab.example"), Some(".lab.example")]
        {
            assert!(site.at(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn configured_origin_must_be_in_the_certificate() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = write(directory.path(), &["*.lab.example"]);
        assert!(Site::open(&config, 443, None).is_err(), "the certificate names no single host");
        let with = |origin: &str| SiteConfig { origin: Some(origin.to_owned()), ..config.clone() };
        let site = Site::open(&with("https://cluster.lab.example"), 443, None).expect("covered by the wildcard");
        assert_eq!(site.origin().as_deref(), Some("https://cluster.lab.example"));
        assert!(Site::open(&with("https://cluster.example"), 443, None).is_err());
    }

    #[test]
    fn new_certificate_is_loaded_and_a_damaged_one_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let site = Site::open(&write(directory.path(), &["a.example"]), 443, None).expect("a usable certificate");
        let expire = |site: &Site| {
            let certificate = site.certificate.as_ref().expect("configured");
            let mut loaded = certificate.loaded.lock().expect("no thread panicked");
            loaded.looked = Instant::now().checked_sub(2 * LOOK).expect("the machine runs for longer");
        };
        write(directory.path(), &["b.example"]);
        expire(&site);
        assert!(site.at(Some("a.example")).is_none() && site.at(Some("b.example")).is_some());
        fs::write(directory.path().join("site.pem"), "rubbish").expect("a file can be written");
        expire(&site);
        assert!(site.at(Some("b.example")).is_some());
    }
}
