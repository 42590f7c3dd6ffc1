//! Checks that a directory on this node is the caller's directory, and not another one with the same path.
//!
//! One kernel identifies a directory by device and inode number, but these differ between machines. So a caller
//! creates an empty file with an unpredictable name. A node that finds the file shares the directory, on any type
//! of file system. The node removes the file before it starts the command, so that the command does not see it. The
//! caller's agent then remembers the directory's identity on that node, which changes when another file system is mounted
//! there.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use hostler_model::NodeName;
use hostler_remote::{Command, DirectoryId, Proof, Refusal, RefusalKind};

use super::refusal::unsuitable;
use crate::account::Ids;
use crate::mutex::lock;
use crate::rights::act_as;

/// Known identities of this machine's directories on other nodes.
#[derive(Default)]
pub(super) struct Directories(Mutex<HashMap<(NodeName, u64, u64), RemoteDirectory>>);

/// The identity of a directory on another node.
#[derive(Clone)]
pub(super) struct RemoteDirectory {
    pub(super) id: DirectoryId,
    /// Whether that node mounts the directory over the network.
    pub(super) is_shared: bool,
}

impl Directories {
    pub(super) fn known(&self, node: &NodeName, here: &DirectoryId) -> Option<RemoteDirectory> {
        lock(&self.0).get(&(node.clone(), here.device, here.inode)).cloned()
    }

    pub(super) fn learn(&self, node: &NodeName, here: &DirectoryId, there: RemoteDirectory) {
        const MOST: usize = 10_000;
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((node.clone(), here.device, here.inode), there);
    }
}

/// The command's directory on this node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: DirectoryId,
    /// Whether the directory still holds the proof file, because the user cannot remove it on this node.
    pub(super) has_proof: bool,
}

/// Finds the command's directory on this node with the user's rights, and removes the proof file. Blocks, on network
/// file systems possibly for minutes.
///
/// # Errors
/// Fails if the directory is missing or is not the caller's directory, or if the caller must still prove which
/// directory it means.
pub(super) fn find(command: &Command, boot: &str, node: &str, ids: Option<&Ids>) -> Result<Found, Box<Refusal>> {
    let path = command.directory();
    let shown = path.display();
    let found = act_as(ids, || look(&path, &command.proof));
    let (found, proof) = match found.and_then(|found| found) {
        Ok(found) => found,
        Err(error) => {
            let mut refusal =
                unsuitable(126, format!("node {node} cannot enter the directory {shown}: {}", said(&error)));
            refusal.hints.push("a command starts in its caller's directory, which must be on a disk that the nodes share; choose another directory with -C".to_owned());
            return Err(Box::new(Refusal { lacks_directory: true, ..refusal }));
        }
    };
    let here = DirectoryId::of(boot, &found);
    let has_proof = proof == ProofFile::Remains;
    let Some(there) = &command.directory_id else { return Ok(Found { id: here, has_proof }) };
    let is_same = *there == here
        || match &command.proof {
            Proof::None => {
                let message = format!("node {node} needs proof that {shown} is the caller's directory");
                return Err(Box::new(Refusal { kind: RefusalKind::Unproven, ..unsuitable(126, message) }));
            }
            Proof::File(_) => proof != ProofFile::Missing,
            Proof::Known(known) if *known == here => true,
            Proof::Known(_) => {
                let message = format!("another file system is now mounted at {shown} on node {node}");
                return Err(Box::new(Refusal { kind: RefusalKind::Unproven, ..unsuitable(126, message) }));
            }
            seen @ Proof::Seen { .. } => there.boot != here.boot && *seen == Proof::seen(&found),
        };
    if is_same {
        return Ok(Found { id: here, has_proof });
    }
    let mut refusal = unsuitable(126, format!("the directory {shown} on node {node} is not the caller's directory"));
    refusal
        .hints
        .push("the nodes do not share the disk of this directory; with -C, the command runs in a directory of the node's own disk".to_owned());
    Err(Box::new(Refusal { lacks_directory: true, ..refusal }))
}

/// Whether the user sees the proof file in the command's directory.
pub(super) fn has_proof(command: &Command, ids: Option<&Ids>) -> bool {
    let Proof::File(name) = &command.proof else { return false };
    act_as(ids, || fs::symlink_metadata(command.directory().join(name)).is_ok()).unwrap_or(false)
}

/// The state of the proof file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProofFile {
    Missing,
    Removed,
    Remains,
}

/// Returns the directory's metadata, and removes the proof file if it is there.
fn look(path: &Path, proof: &Proof) -> std::io::Result<(fs::Metadata, ProofFile)> {
    // The trailing dot requires permission to enter the directory.
    let found = fs::metadata(path.join("."))?;
    let Proof::File(name) = proof else { return Ok((found, ProofFile::Missing)) };
    let file = path.join(name);
    let state = match fs::symlink_metadata(&file) {
        Ok(shown) if shown.is_file() && shown.len() == 0 => match fs::remove_file(&file) {
            Ok(()) => ProofFile::Removed,
            Err(_) => ProofFile::Remains,
        },
        _ => ProofFile::Missing,
    };
    Ok((found, state))
}

fn said(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| nix::errno::Errno::from_raw(code).desc().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn command(path: &Path, id: Option<DirectoryId>, proof: Proof) -> Command {
        let mut command = Command::new(&["true".into()], [], path.to_owned());
        (command.directory_id, command.proof) = (id, proof);
        command
    }

    fn kind(outcome: Result<Found, Box<Refusal>>) -> RefusalKind {
        outcome.expect_err("the directory is refused").kind
    }

    #[test]
    fn directory_on_the_same_kernel_is_identified_by_its_inode() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let here = find(&command(directory.path(), None, Proof::None), "b", "n1", None)
            .expect("a path of this node needs no proof")
            .id;
        let same = || Ok(Found { id: here.clone(), has_proof: false });
        assert_eq!(find(&command(directory.path(), Some(here.clone()), Proof::None), "b", "n1", None), same());
        let other = DirectoryId { inode: here.inode + 1, ..here.clone() };
        let asked = |proof| find(&command(directory.path(), Some(other.clone()), proof), "b", "n1", None);
        assert_eq!(kind(asked(Proof::None)), RefusalKind::Unproven);
        assert_eq!(kind(asked(Proof::Seen { inode: here.inode, changed_ns: 0 })), RefusalKind::Unsuitable);
        assert_eq!(kind(asked(Proof::Known(other.clone()))), RefusalKind::Unproven);
        assert_eq!(asked(Proof::Known(here.clone())), same());
    }

    #[test]
    fn directory_on_another_kernel_needs_a_proof() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let there = DirectoryId { boot: "another".into(), device: 1, inode: 2 };
        let name = format!("{}abc", Proof::FILE_PREFIX);
        let asked =
            || find(&command(directory.path(), Some(there.clone()), Proof::File(name.clone())), "b", "n1", None);
        assert_eq!(kind(asked()), RefusalKind::Unsuitable);
        let file = directory.path().join(&name);
        fs::write(&file, "").expect("writable");
        assert!(!asked().expect("the proof file exists").has_proof);
        assert!(!file.exists(), "the command would see the proof file");
        assert_eq!(kind(asked()), RefusalKind::Unsuitable);
        let found = fs::metadata(directory.path()).expect("the directory exists");
        let seen = |changed_ns| {
            let proof = Proof::Seen { inode: found.ino(), changed_ns };
            find(&command(directory.path(), Some(there.clone()), proof), "b", "n1", None)
        };
        let Proof::Seen { changed_ns, .. } = Proof::seen(&found) else { panic!("`seen` returns `Proof::Seen`") };
        seen(changed_ns).expect("inode and time match");
        assert_eq!(kind(seen(1)), RefusalKind::Unsuitable);
    }

    #[test]
    fn missing_directory_is_refused_with_the_reason() {
        let refusal = find(&command(Path::new("/nonexistent-here"), None, Proof::None), "b", "n1", None)
            .expect_err("the directory does not exist");
        assert_eq!(refusal.message, "node n1 cannot enter the directory /nonexistent-here: No such file or directory");
    }
}
