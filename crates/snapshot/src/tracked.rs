//! Asks git which files of a folder it tracks although a `.gitignore` names them (`git add -f`).
//!
//! Git itself is asked, because its index has several formats and extensions. Without git, outside a repository, or in
//! a repository of another user, no file counts as tracked.
//!
//! The folder may come from a stranger, so git must not run the programs that the repository's configuration names.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;
use std::{env, fs};

use nix::unistd::Uid;

use crate::paths;

/// The maximum time that git may take. It needs a second for a million files.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of git's answer, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Settings and variables that keep git from running programs of the repository: the file system monitor (an empty
/// value turns it off in all versions of git), hooks, and the transport to a remote that has missing objects.
const SETTINGS: [&str; 5] = ["--no-pager", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"];
const VARIABLES: [(&str, &str); 3] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", ""), ("GIT_OPTIONAL_LOCKS", "0")];

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
    // Git makes the same check, but older versions do not.
    if fs::metadata(folder).ok()?.uid() != Uid::effective().as_raw() {
        return None;
    }
    let mut git = Command::new("git");
    git.args(SETTINGS)
        .args(["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // Some variables direct git to another repository, e.g. in a hook.
    for (name, _) in env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        git.env_remove(name);
    }
    // As root, git trusts the repositories of the user that this variable names.
    git.env_remove("SUDO_UID").envs(VARIABLES);
    let mut child = git.spawn().ok()?;
    let output = child.stdout.take()?;
    let (sender, answer) = sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let is_read = output.take(MOST_BYTES).read_to_end(&mut bytes).is_ok();
        // The receiver may have given up.
        let _ = sender.send(is_read.then_some(bytes));
    });
    let bytes = answer.recv_timeout(TIMEOUT).ok().flatten();
    if bytes.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    bytes.filter(|_| status.success())
}
