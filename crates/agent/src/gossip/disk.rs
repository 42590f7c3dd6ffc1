//! What the gossip keeps: who takes part, for a start while the head is away, and which life of the agent this is.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;

use hostler_gossip::Incarnation;
use hostler_proto::peers::Peers;

/// The files.
pub(super) struct Disk {
    peers: PathBuf,
    incarnation: PathBuf,
    /// The life that is written down.
    life: Mutex<Incarnation>,
}

impl Disk {
    /// Begins another life.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let incarnation = directory.join("incarnation");
        // What cannot be read is as good as forgotten: peers tell.
        let last = fs::read_to_string(&incarnation).ok().and_then(|text| text.trim().parse().ok());
        let life = Incarnation(last.unwrap_or(0)).next();
        let disk = Self { peers: directory.join("peers.json"), incarnation, life: Mutex::new(Incarnation::default()) };
        disk.outlive(life)?;
        Ok(disk)
    }

    /// The life that this is.
    pub(super) fn incarnation(&self) -> Incarnation {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down a later life, if it is one.
    pub(super) fn outlive(&self, life: Incarnation) -> io::Result<()> {
        let mut known = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if life > *known {
            replace(&self.incarnation, life.0.to_string().as_bytes())?;
            *known = life;
        }
        Ok(())
    }

    /// Who takes part, if that was ever said.
    pub(super) fn peers(&self) -> Option<Peers> {
        serde_json::from_slice(&fs::read(&self.peers).ok()?).ok()
    }

    pub(super) fn store_peers(&self, peers: &Peers) -> io::Result<()> {
        replace(&self.peers, &serde_json::to_vec(peers)?)
    }
}

/// Writes a file whole or not at all, for this user alone.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_is_a_later_life() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let lives = |disk: &Disk| disk.incarnation().0;
        assert_eq!(lives(&Disk::open(directory.path()).expect("writable")), 1);
        let second = Disk::open(directory.path()).expect("writable");
        assert_eq!(lives(&second), 2);
        second.outlive(Incarnation(40)).expect("writable");
        second.outlive(Incarnation(7)).expect("an earlier one changes nothing");
        assert_eq!(lives(&Disk::open(directory.path()).expect("writable")), 41);
        fs::write(directory.path().join("incarnation"), "rubbish").expect("writable");
        assert_eq!(lives(&Disk::open(directory.path()).expect("writable")), 1, "peers will tell");
    }

    #[test]
    fn peers_are_kept_for_their_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::open(directory.path()).expect("writable");
        assert_eq!(disk.peers(), None);
        let peers = Peers { secret: "0f".repeat(32), peers: Vec::new() };
        disk.store_peers(&peers).expect("writable");
        assert_eq!(Disk::open(directory.path()).expect("writable").peers(), Some(peers));
        let mode = fs::metadata(directory.path().join("peers.json")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
