//! The cgroup leaves of this agent, in which the processes of runs, builds and remote commands are.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hostler_shepherd::RunningRecord;
use hostler_shepherd::cgroup::{Controller, LeafSpec, Tree};

/// How often the agent tries again to end the processes of a lost run.
const RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Leaves {
    tree: Result<Tree, String>,
    prefix: String,
}

impl Leaves {
    /// `tree`: the cgroup tree for jobs, or the reason why there is none. `prefix`: start of the names of this agent's leaves,
    /// unique on this machine.
    pub(crate) const fn new(tree: Result<Tree, String>, prefix: String) -> Self {
        Self { tree, prefix }
    }

    /// The cgroup tree for jobs.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) const fn tree(&self) -> Result<&Tree, &String> {
        self.tree.as_ref()
    }

    /// Start of the names of this agent's leaves.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The leaf with this name, if cgroups are available.
    pub(crate) fn leaf(&self, name: &str) -> Option<LeafSpec> {
        self.tree.as_ref().ok()?.leaf(&format!("{}{name}", self.prefix)).ok()
    }

    /// The description of a leaf that an earlier agent created at `path`, if this agent would create the same.
    pub(crate) fn leaf_at(&self, path: &Path) -> Option<LeafSpec> {
        let name = path.file_name()?.to_str()?;
        self.tree.as_ref().ok()?.leaf(name).ok().filter(|leaf| leaf.path == path)
    }

    /// Why the kernel does not enforce limits of this kind.
    pub(crate) fn missing(&self, controller: Controller) -> Option<String> {
        match &self.tree {
            Ok(tree) => tree.missing(controller).map(str::to_owned),
            Err(reason) => Some(reason.clone()),
        }
    }

    /// Kills processes that a lost run left in its leaf: its main process died with the shepherd, but others may remain.
    /// Retries in the background, because a process on a file system that does not answer ends later.
    pub(crate) fn end_processes(&self, record: Option<&RunningRecord>) {
        let (Ok(tree), Some(leaf)) = (&self.tree, record.and_then(|record| record.leaf.clone())) else { return };
        if tree.end(&leaf) {
            return;
        }
        tracing::warn!(leaf = %leaf.display(), "cannot kill the processes of a lost run; retrying");
        let tree = tree.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETRY).await;
                let (tree, leaf) = (tree.clone(), leaf.clone());
                if tokio::task::spawn_blocking(move || tree.end(&leaf)).await.unwrap_or(true) {
                    return;
                }
            }
        });
    }
}

/// Prefix for cgroup leaves, derived from the directory's path and inode. Agents of several clusters on one machine
/// have different directories, even if node names or, in containers, paths are equal.
pub(crate) fn leaf_prefix(directory: &Path) -> anyhow::Result<String> {
    let found = directory.canonicalize().and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (metadata, path) = found.with_context(|| format!("cannot find {}", directory.display()))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&metadata.dev().to_le_bytes()).update(&metadata.ino().to_le_bytes());
    let hash = hasher.update(path.as_os_str().as_encoded_bytes()).finalize().to_hex();
    Ok(format!("{}-", &hash[..16]))
}
