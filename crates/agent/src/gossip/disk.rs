//! Stored gossip state: the peer list, for a start without the head, and the incarnation number. A daemon without a head stores
//! nothing.

use std::path::{Path, PathBuf};
use std::{fs, io};

use hostler_gossip::Incarnation;
use hostler_proto::peers::Peers;

use crate::random::random_bits;

const INCARNATION: &str = "incarnation";
const PEERS: &str = "peers.json";

/// The first incarnation of a daemon that stores nothing is below this number, because small numbers take few bytes in datagrams.
const FIRST_LIVES: u64 = 1 << 14;

pub(super) struct Disk {
    /// `None` if nothing is stored.
    directory: Option<PathBuf>,
}

impl Disk {
    pub(super) fn open(directory: Option<&Path>) -> Self {
        Self { directory: directory.map(Path::to_owned) }
    }

    /// Increments this node's incarnation under `secret`, and stores it. Each secret has incarnations of its own, so
    /// messages under an old secret have no effect. Without a directory, draws a random number: peers accept a higher one
    /// than the last, and report the last one to a node with a lower one.
    pub(super) fn begin_life(&self, secret: &[u8; 32]) -> io::Result<Incarnation> {
        if self.directory.is_none() {
            return Ok(Incarnation(1 + random_bits() % FIRST_LIVES));
        }
        let life = self.life(secret).next();
        self.outlive(secret, life)?;
        Ok(life)
    }

    /// Stores an incarnation if it is higher than the stored one.
    pub(super) fn outlive(&self, secret: &[u8; 32], life: Incarnation) -> io::Result<()> {
        if let Some(path) = self.file(INCARNATION).filter(|_| life > self.life(secret)) {
            hostler_sys::replace_file(&path, format!("{} {}", label(secret), life.0).as_bytes(), 0o600)?;
        }
        Ok(())
    }

    /// The stored incarnation; zero if it cannot be read. After a zero, this node learns its last incarnation from
    /// peers.
    fn life(&self, secret: &[u8; 32]) -> Incarnation {
        let text = self.file(INCARNATION).and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let life = text.trim().split_once(' ').filter(|(of, _)| *of == label(secret));
        Incarnation(life.and_then(|(_, life)| life.parse().ok()).unwrap_or(0))
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(name))
    }

    pub(super) fn peers(&self) -> Option<Peers> {
        serde_json::from_slice(&fs::read(self.file(PEERS)?).ok()?).ok()
    }

    pub(super) fn store_peers(&self, peers: &Peers) -> io::Result<()> {
        let Some(path) = self.file(PEERS) else { return Ok(()) };
        hostler_sys::replace_file(&path, &serde_json::to_vec(peers)?, 0o600)
    }
}

/// A label that distinguishes secrets without revealing them.
fn label(secret: &[u8; 32]) -> String {
    blake3::derive_key("hostler gossip 2026-11-21 label", secret)[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_increments_the_incarnation() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (one, other) = ([1; 32], [2; 32]);
        let begin = |secret| Disk::open(Some(directory.path())).begin_life(secret).expect("writable").0;
        assert_eq!((begin(&one), begin(&one)), (1, 2));
        let disk = Disk::open(Some(directory.path()));
        disk.outlive(&one, Incarnation(40)).expect("writable");
        disk.outlive(&one, Incarnation(7)).expect("an earlier incarnation changes nothing");
        assert_eq!(begin(&one), 41);
        // A high incarnation under one secret has no effect under the next.
        disk.outlive(&one, Incarnation(u64::MAX)).expect("writable");
        assert_eq!((begin(&other), begin(&other)), (1, 2));
        fs::write(directory.path().join("incarnation"), "rubbish").expect("writable");
        assert_eq!(begin(&other), 1, "peers report the last incarnation");
        let diskless = || Disk::open(None).begin_life(&one).expect("nothing is stored").0;
        let lives: std::collections::BTreeSet<_> = (0..100).map(|_| diskless()).collect();
        assert!(lives.len() > 90 && lives.iter().all(|life| (1..=FIRST_LIVES).contains(life)), "{lives:?}");
    }

    #[test]
    fn stored_peers_are_readable_by_the_agent_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::open(Some(directory.path()));
        assert_eq!(disk.peers(), None);
        let peers = Peers { secret: "0f".repeat(32), ..Peers::default() };
        disk.store_peers(&peers).expect("writable");
        assert_eq!(Disk::open(Some(directory.path())).peers(), Some(peers));
        let mode = fs::metadata(directory.path().join("peers.json")).expect("the path exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
