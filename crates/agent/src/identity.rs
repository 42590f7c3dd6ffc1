//! Who this node is: its key, the certificate that the head gave it, and the authority it trusts.
//!
//! A node joins once, with a code that names the head's address, the authority's fingerprint and a one-time secret. The key never
//! leaves the node.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hostler_client::{Client, Endpoint, tls};
use hostler_model::NodeName;
use hostler_proto::api::JoinRequest;
use hostler_proto::join::JoinCode;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::ServerName;

/// The files of a node that has joined.
#[derive(Debug)]
pub(crate) struct Identity {
    directory: PathBuf,
    /// A file in which the head says its current address, for clusters on one machine whose port may change.
    head_file: Option<PathBuf>,
}

impl Identity {
    /// The identity kept in `directory`; joins with the code in `join_file` when there is none yet.
    pub(crate) async fn obtain(
        directory: PathBuf,
        name: &NodeName,
        join_file: Option<&Path>,
        head_file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let identity = Self { directory, head_file };
        if !identity.path("certificate.pem").exists() {
            let Some(join_file) = join_file else {
                bail!("node {name} has not joined a cluster yet; name a file with a join code: --join-file FILE");
            };
            let text = fs::read_to_string(join_file)
                .with_context(|| format!("cannot read the join code in {}", join_file.display()))?;
            let code: JoinCode = text.trim().parse().context("the join code is damaged")?;
            identity.join(name, &code).await?;
        }
        Ok(identity)
    }

    async fn join(&self, name: &NodeName, code: &JoinCode) -> anyhow::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = CertificateParams::new(vec![name.to_string()])?;
        params.distinguished_name.push(DnType::CommonName, name.as_str());
        let csr = params.serialize_request(&key)?.pem()?;
        let endpoint = Endpoint::Tls {
            address: code.address.clone(),
            server_name: server_name(&code.address)?,
            config: tls::pinned(code.authority),
        };
        let request = JoinRequest { secret: code.secret.clone(), node: name.clone(), csr };
        let joined = Client::new(endpoint)
            .join(&request)
            .await
            .with_context(|| format!("cannot join the cluster at {}", code.address))?;
        self.store("key.pem", key.serialize_pem().as_bytes())?;
        self.store("authority.pem", joined.authority.as_bytes())?;
        self.store("head", code.address.as_bytes())?;
        // Last: a node with a certificate has joined.
        self.store("certificate.pem", joined.certificate.as_bytes())
    }

    /// Where the head is and how to prove who this node is.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let read = |name: &str| {
            fs::read_to_string(self.path(name)).with_context(|| format!("cannot read {}", self.path(name).display()))
        };
        let address = match self.announced_address() {
            Some(address) => address,
            None => read("head")?,
        };
        let config = tls::mutual(&read("authority.pem")?, &read("certificate.pem")?, &read("key.pem")?)?;
        Ok(Endpoint::Tls { server_name: server_name(&address)?, address, config })
    }

    /// The address that the head on this machine has last announced.
    fn announced_address(&self) -> Option<String> {
        let text = fs::read(self.head_file.as_ref()?).ok()?;
        let announced: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(announced.get("address")?.as_str()?.to_owned())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file that only the agent can read, whole or not at all.
    fn store(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let partial = self.path(&format!("{name}.partial"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, self.path(name))?;
        Ok(())
    }
}

/// The host part of an address, as the head's certificate names it.
fn server_name(address: &str) -> anyhow::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).with_context(|| format!("`{address}` is not an address of a head"))
}
