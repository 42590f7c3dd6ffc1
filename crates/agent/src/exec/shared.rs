//! State that all parts of remote commands share, and this node's identity.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hostler_gossip::Costs;
use hostler_model::Digest;
use hostler_remote::{Counts, Credentials};

use super::caller_streams::Closers;
use super::connections::Connections;
use super::directory::Directories;
use super::mirror::Mirrors;
use super::written::Written;
use crate::handle::Handle;
use crate::node::Node;
use crate::shepherds::IdleShepherds;

/// State that all parts of this module share.
pub(super) struct Exec {
    pub(super) node: Arc<Node>,
    pub(super) engine: Handle,
    pub(super) own: Own,
    pub(super) connections: Connections,
    pub(super) idle: IdleShepherds,
    pub(super) directories: Directories,
    pub(super) written: Written,
    pub(super) mirrors: Mirrors,
    pub(super) closers: Arc<Closers>,
    /// Average costs of commands.
    pub(super) costs: Mutex<Costs>,
    pub(super) counts: Mutex<Counts>,
    /// Start time of this module.
    pub(super) began: Instant,
    /// Counts started commands, for the names of cgroups.
    pub(super) started: AtomicU64,
}

impl Exec {
    pub(super) fn new(node: Arc<Node>, engine: Handle, own: Own) -> Self {
        let mirrors = Mirrors::open(&own.directory, node.facts.resources.memory_bytes);
        Self {
            node,
            engine,
            own,
            connections: Connections::default(),
            idle: IdleShepherds::default(),
            directories: Directories::default(),
            written: Written::default(),
            mirrors,
            closers: Arc::default(),
            costs: Mutex::default(),
            counts: Mutex::default(),
            began: Instant::now(),
            started: AtomicU64::new(0),
        }
    }
}

/// This node's identity for other nodes.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) credentials: Credentials,
    pub(crate) key: Digest,
    directory: PathBuf,
}

impl Own {
    /// Reads this node's key, or creates it. Other nodes know the key from before a restart.
    pub(crate) fn obtain(directory: &Path) -> io::Result<Self> {
        let path = directory.join("call-key.json");
        let kept = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Credentials>(&text).ok());
        if let Some(credentials) = kept
            && let Ok(key) = credentials.fingerprint()
        {
            return Ok(Self { credentials, key, directory: directory.to_owned() });
        }
        let credentials = Credentials::generate()?;
        let key = credentials.fingerprint()?;
        hostler_sys::replace_file(&path, &serde_json::to_vec(&credentials)?, 0o600)?;
        Ok(Self { credentials, key, directory: directory.to_owned() })
    }
}
