//! The directory of this program, which jobs have on their `PATH`, so that they find `hostler`.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use crate::provision::environment::first_on_path;

/// Permission to enter a directory, for all users.
const ALL_MAY_ENTER: u32 = 0o001;

/// Permission to change a directory, for all users.
const ALL_MAY_WRITE: u32 = 0o002;

/// Permission to change a directory, for its group.
const GROUP_MAY_WRITE: u32 = 0o020;

/// Users may change only what they have created themselves.
const STICKY: u32 = 0o1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramDirectory {
    pub(crate) path: String,
    /// Whether jobs of all users may use it. Otherwise, only jobs of the agent's own user get it.
    pub(crate) is_for_all: bool,
}

impl ProgramDirectory {
    /// Examines the directory of a program. Returns `None` if no job may use it, because other users can change it.
    pub(crate) fn of(program: &Path) -> Option<Self> {
        let directory = program.parent().filter(|directory| directory.is_absolute())?;
        let path = directory.to_str().filter(|path| !path.contains(':'))?.to_owned();
        let levels: Vec<Metadata> = directory.ancestors().map(Path::metadata).collect::<Result<_, _>>().ok()?;
        // Above the directory, a sticky bit protects what others have created, as in /tmp.
        let is_safe = |(height, level): (usize, &Metadata)| {
            let is_sticky = height > 0 && level.mode() & STICKY != 0;
            // Many systems give each user a group of the same number.
            let has_own_group = level.gid() == 0 || level.gid() == level.uid();
            let others = if has_own_group { ALL_MAY_WRITE } else { ALL_MAY_WRITE | GROUP_MAY_WRITE };
            let has_own_user = level.uid() == 0 || level.uid() == geteuid().as_raw();
            has_own_user && (level.mode() & others == 0 || is_sticky)
        };
        let is_for_all = levels.iter().all(|level| level.mode() & ALL_MAY_ENTER != 0);
        levels.iter().enumerate().all(is_safe).then_some(Self { path, is_for_all })
    }

    /// Returns a `PATH` with the directory at its end.
    pub(crate) fn appended_to(&self, path: &str) -> String {
        let is_there = path.split(':').any(|part| part == self.path);
        if is_there { path.to_owned() } else { format!("{path}:{}", self.path) }
    }
}

/// Whether jobs with this `PATH` find `hostler` without an addition.
pub(crate) fn is_found_on(path: &OsStr) -> bool {
    first_on_path(&["hostler"], path).is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn directory_is_last_on_the_path_once() {
        let directory = ProgramDirectory { path: "/opt/hostler".into(), is_for_all: true };
        assert_eq!(directory.appended_to("/usr/bin:/bin"), "/usr/bin:/bin:/opt/hostler");
        assert_eq!(directory.appended_to("/opt/hostler:/bin"), "/opt/hostler:/bin");
    }

    #[test]
    fn program_is_found_in_its_directory_and_through_a_link() {
        let top = tempfile::tempdir().expect("a temporary directory can be made");
        let directory = |name: &str| {
            let path = top.path().join(name);
            fs::create_dir(&path).expect("the directory is new");
            path
        };
        let [bin, links, empty] = ["bin", "links", "empty"].map(directory);
        let program = bin.join("hostler");
        fs::write(&program, "").expect("the directory is ours");
        symlink(&program, links.join("hostler")).expect("the directory is ours");
        let is_found =
            |path: &[&Path]| is_found_on(&std::env::join_paths(path).expect("the directories have no colons"));
        assert!(!is_found(&[&empty, &bin]), "the file is not executable");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        assert!(is_found(&[&empty, &bin]) && is_found(&[&links]) && is_found(&[&bin.join("")]));
        assert!(!is_found(&[&empty, top.path()]));
    }

    #[test]
    fn directories_that_others_can_change_are_not_used_and_private_ones_only_by_their_owner() {
        let top = tempfile::tempdir().expect("a temporary directory can be made");
        let bin = top.path().join("bin");
        fs::create_dir(&bin).expect("the directory is empty");
        let found = |top_mode: u32, bin_mode: u32| {
            for (path, mode) in [(top.path(), top_mode), (&*bin, bin_mode)] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the directory is ours");
            }
            ProgramDirectory::of(&bin.join("hostler")).map(|directory| directory.is_for_all)
        };
        assert_eq!(found(0o755, 0o755), Some(true));
        assert_eq!(found(0o711, 0o711), Some(true), "users find the program without listing the directory");
        assert_eq!(found(0o700, 0o755), Some(false), "the directory above is private");
        assert_eq!(found(0o755, 0o750), Some(false));
        assert_eq!(found(0o755, 0o777), None);
        assert_eq!(found(0o755, 0o1777), None, "others can add programs");
        assert_eq!(found(0o777, 0o755), None, "others can replace the directory");
        assert_eq!(found(0o1777, 0o755), Some(true));
        assert_eq!(ProgramDirectory::of(Path::new("/no/such/directory/hostler")), None);
        assert_eq!(ProgramDirectory::of(Path::new("hostler")), None);
    }
}
