//! The configuration of a head.

use std::net::SocketAddr;
use std::path::PathBuf;

use hostler_proto::join::Address;

#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the head's state; created if it does not exist.
    pub directory: PathBuf,
    /// Unix socket for local users; its directory is created if it does not exist.
    pub socket: PathBuf,
    /// Listen address for agents. Port 0 means the port of the last start, or else any free port.
    pub listen: SocketAddr,
    /// Addresses under which nodes reach the head; join codes carry the first. Without any, the head uses `listen`.
    pub advertise: Vec<Address>,
    /// Lifetime of a node's certificate, in milliseconds on the cluster's clock. Agents renew it after two thirds.
    pub certificate_life_ms: u64,
    /// Part of an embedded cluster, which belongs to one user and stops as a whole.
    pub embedded: bool,
    /// Configuration file of the nodes that can be switched on and off; it may be missing.
    pub power: PathBuf,
    /// Configuration file of notifications; it may be missing.
    pub notify: PathBuf,
    /// Configuration file of the sign-in with OpenID Connect; it may be missing.
    pub openid: PathBuf,
    /// Limit for the size of all results, in bytes; half of the disk when absent.
    pub results_cap_bytes: Option<u64>,
    /// How browsers reach the dashboard.
    pub site: SiteConfig,
}

/// How browsers reach the dashboard of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteConfig {
    /// Files with a certificate chain and its key, for browsers that connect to the head's port.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Listen address for plain HTTP, a loopback address.
    pub http: Option<SocketAddr>,
    /// Account of the reverse proxy, which may name clients besides root and the head's own account.
    pub proxy_uid: Option<u32>,
    /// Origin of the dashboard in browsers, such as `https://cluster.example.org`.
    pub origin: Option<String>,
}
