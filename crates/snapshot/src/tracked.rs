//! Asks git which files of a folder it tracks although a `.gitignore` names them (`git add -f`).
//!
//! Git itself is asked, because its index has several formats and extensions. Without git, outside a repository, or in
//! a repository of another user, no file counts as tracked.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::paths;

/// The maximum time that git may take. It needs a second for a million files.
const PATIENCE: Duration = Duration::from_secs(20);

/// The maximum size of git's answer, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Variables that direct git to another repository, e.g. in a hook.
const REDIRECTIONS: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

/// Returns the paths below `folder` of files that git tracks although ignore rules name them, and of the directories
/// that contain these files.
pub(crate) fn tracked_though_ignored(folder: &Path) -> HashSet<Vec<u8>> {
    let mut tracked = HashSet::new();
    for file in ask_git(folder).unwrap_or_default().split(|&byte| byte == 0) {
        let mut path = file;
        while !path.is_empty() && tracked.insert(path.to_vec()) {
            path = paths::parent(path);
        }
    }
    tracked
}

fn ask_git(folder: &Path) -> Option<Vec<u8>> {
    let mut git = Command::new("git");
    // The setting `core.fsmonitor` can name a program to start.
    git.args(["-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for name in REDIRECTIONS {
        git.env_remove(name);
    }
    let mut child = git.spawn().ok()?;
    let output = child.stdout.take()?;
    // One answer.
    let (sender, answer) = sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let is_read = output.take(MOST_BYTES).read_to_end(&mut bytes).is_ok();
        // The receiver may have given up.
        let _ = sender.send(is_read.then_some(bytes));
    });
    let bytes = answer.recv_timeout(PATIENCE).ok().flatten();
    if bytes.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    bytes.filter(|_| status.success())
}
