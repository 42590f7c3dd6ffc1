//! The user's directories, by the XDG base directory specification, which requires that relative paths are ignored.
//!
//! After `su` or `sudo -E`, the variables name directories of another user, and files of root there would lock that user
//! out. Such directories are therefore not used. [`tell`] says what is used instead.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Uid, User, geteuid};

/// Messages about variables that are not used.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the path in the environment variable, or `below_home` in the home directory if the variable has no absolute
/// path. Root uses no directory of another user.
pub(crate) fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let default = || Some(home()?.join(below_home));
    let Some(path) = absolute(variable) else { return default() };
    if !is_of_another(&path, geteuid()) {
        return Some(path);
    }
    let instead = default()?;
    note(variable, &path, OF_ANOTHER, &instead.to_string_lossy());
    Some(instead)
}

/// The variables of the directories in which Hostler has a directory of its own, and their defaults below the home.
const BASES: [(&str, &str); 3] =
    [("XDG_STATE_HOME", ".local/state"), ("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache")];

/// Hostler's own directories: state with keys and results, configuration with tokens, and cache. Besides those that this
/// process uses, returns the defaults below HOME and below the home of the folder's owner. Root may submit the folder of
/// another user, and uses none of that user's directories.
pub fn own_directories(folder: &Path) -> Vec<PathBuf> {
    let used = BASES.into_iter().filter_map(|(variable, below)| directory(variable, below));
    let owner = std::fs::metadata(folder).ok().map(|metadata| Uid::from_raw(metadata.uid()));
    let owner = owner.and_then(|uid| User::from_uid(uid).ok().flatten());
    let owners_home = owner.map(|user| user.dir).filter(|home| home.is_absolute());
    let homes = absolute("HOME").into_iter().chain(owners_home);
    let defaults = homes.flat_map(|home| BASES.map(|(_, below)| home.join(below)));
    used.chain(defaults).map(|base| base.join("hostler")).collect()
}

/// The directory with what project folders contained at their last capture.
pub(crate) fn folder_cache() -> Option<PathBuf> {
    Some(directory("XDG_CACHE_HOME", ".cache")?.join("hostler/folders"))
}

/// The home directory in HOME. If that one belongs to another user, root uses its own.
pub(crate) fn home() -> Option<PathBuf> {
    let home = absolute("HOME")?;
    let user = geteuid();
    if !is_of_another(&home, user) {
        return Some(home);
    }
    let own = User::from_uid(user).ok().flatten().map(|user| user.dir).filter(|own| own.is_absolute());
    let Some(own) = own.filter(|own| *own != home) else { return Some(home) };
    note("HOME", &home, OF_ANOTHER, &own.to_string_lossy());
    Some(own)
}

/// The directory in XDG_RUNTIME_DIR, if only this user can change it. `instead` is what the caller uses otherwise.
pub(crate) fn runtime(instead: &str) -> Option<PathBuf> {
    let path = absolute("XDG_RUNTIME_DIR")?;
    let Some(why) = why_unsafe(&path, geteuid()) else { return Some(path) };
    note("XDG_RUNTIME_DIR", &path, why, instead);
    None
}

/// Prints what is used instead of the directories in the environment, once. Commands call this when they create files or
/// look for a cluster. Remote commands and steps do not, because their stderr belongs to the user's program.
pub fn tell() {
    for note in std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner)) {
        let _ = writeln!(std::io::stderr(), "{}", hostler_model::escaped(&note));
    }
}

/// Returns the path in an environment variable, if it is absolute.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

const OF_ANOTHER: &str = "belongs to another user";

fn note(variable: &str, path: &Path, why: &str, instead: &str) {
    let note = format!("note: {variable} is {}, which {why}; using {instead}", path.display());
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Why files in a runtime directory could be lost, or be replaced by other users.
fn why_unsafe(path: &Path, user: Uid) -> Option<&'static str> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("does not exist"),
        Err(_) => Some("cannot be read"),
        Ok(metadata) if !metadata.is_dir() => Some("is not a directory"),
        Ok(metadata) if metadata.uid() != user.as_raw() => Some(OF_ANOTHER),
        Ok(metadata) if metadata.mode() & 0o022 != 0 => Some("other users can write to"),
        Ok(_) => None,
    }
}

/// Whether root would leave files in a directory of another user. The directory may not exist yet.
fn is_of_another(path: &Path, user: Uid) -> bool {
    let existing = path.ancestors().find_map(|path| std::fs::metadata(path).ok());
    user.is_root() && existing.is_some_and(|metadata| metadata.uid() != user.as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn runtime_directory_is_used_only_if_it_is_private() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let own = Uid::from_raw(std::fs::metadata(folder.path()).expect("exists").uid());
        let runtime = folder.path().join("run");
        assert_eq!(why_unsafe(&runtime, own), Some("does not exist"));
        std::fs::write(&runtime, "").expect("writable");
        assert_eq!(why_unsafe(&runtime, own), Some("is not a directory"));
        assert_eq!(why_unsafe(&runtime.join("below"), own), Some("cannot be read"));
        std::fs::remove_file(&runtime).expect("a file");
        std::fs::create_dir(&runtime).expect("writable");
        for (mode, expected) in [
            (0o700, None),
            (0o755, None),
            (0o770, Some("other users can write to")),
            (0o1777, Some("other users can write to")),
        ] {
            std::fs::set_permissions(&runtime, PermissionsExt::from_mode(mode)).expect("ours");
            assert_eq!(why_unsafe(&runtime, own), expected, "{mode:o}");
        }
        std::fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700)).expect("ours");
        assert_eq!(why_unsafe(&runtime, Uid::from_raw(own.as_raw() + 1)), Some(OF_ANOTHER));
        std::os::unix::fs::symlink(&runtime, folder.path().join("link")).expect("writable");
        assert_eq!(why_unsafe(&folder.path().join("link"), own), None, "a link to a private directory");
    }

    #[test]
    fn own_directories_include_those_of_the_owner_of_the_folder() {
        let folder = tempfile::tempdir().expect("temporary directory");
        if geteuid().is_root() {
            nix::unistd::chown(folder.path(), Some(Uid::from_raw(1)), None).expect("root has permission");
        }
        let owner = Uid::from_raw(std::fs::metadata(folder.path()).expect("exists").uid());
        let Some(owner) = User::from_uid(owner).expect("the accounts are readable") else { return };
        let own = own_directories(folder.path());
        for below in [".local/state/hostler", ".config/hostler", ".cache/hostler"] {
            assert!(own.contains(&owner.dir.join(below)), "{below}: {own:?}");
        }
    }

    #[test]
    fn root_uses_no_directory_of_another_user() {
        let folder = tempfile::tempdir().expect("temporary directory");
        if geteuid().is_root() {
            nix::unistd::chown(folder.path(), Some(Uid::from_raw(12345)), None).expect("root has permission");
        }
        for path in ["", ".config", ".local/state/hostler", ".cache/not/yet"] {
            let path = folder.path().join(path);
            assert!(is_of_another(&path, Uid::from_raw(0)), "{}", path.display());
            assert!(!is_of_another(&path, Uid::from_raw(12345)), "only root leaves files anywhere");
        }
        assert!(!is_of_another(Path::new("/"), Uid::from_raw(0)));
        assert!(!is_of_another(Path::new("/not/there/yet"), Uid::from_raw(0)));
    }
}
