//! Mount points of the cgroup hierarchies, and this process's group in each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::spec::Controller;

/// Path of the calling process's group in each hierarchy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// Group in the unified hierarchy (version 2).
    pub(super) unified: Option<PathBuf>,
    /// Groups in the version 1 hierarchies, by controller.
    pub(super) v1: BTreeMap<Controller, PathBuf>,
}

impl Hierarchies {
    /// Parses the contents of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub(super) fn parse(mountinfo: &str, cgroups: &str) -> Hierarchies {
        let mut found = Hierarchies::default();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            match mount.kind {
                "cgroup2" => {
                    let group = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
                    found.unified = found.unified.or_else(|| mount.path_of(group?));
                }
                "cgroup" => {
                    for controller in Controller::ALL {
                        if mount.options.split(',').any(|option| option == controller.as_str())
                            && let Some(path) = group_with(cgroups, controller).and_then(|group| mount.path_of(group))
                        {
                            found.v1.entry(controller).or_insert(path);
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The group in the version 1 hierarchy of the controller, from a line such as `4:cpu,memory:/group`.
fn group_with(cgroups: &str, controller: Controller) -> Option<&str> {
    cgroups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller.as_str()).then_some(group)
    })
}

/// One line of `mountinfo`.
struct Mount<'a> {
    /// The group that the mount point shows, as a path in the hierarchy.
    root: &'a str,
    mount_point: &'a str,
    kind: &'a str,
    /// Options of the file system; for version 1, the list contains the controllers.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        let (root, mount_point) = (before.next()?, before.next()?);
        let (kind, options) = (after.next()?, after.nth(1)?);
        Some(Mount { root, mount_point, kind, options })
    }

    /// Path of `group` below this mount point; `None` if the mount does not show the group.
    fn path_of(&self, group: &str) -> Option<PathBuf> {
        // In a container, the mount may show only a part of the hierarchy, and group names may be relative to it.
        let group = match Path::new(group).strip_prefix(self.root) {
            Ok(below) => below.to_owned(),
            Err(_) if group == "/" => PathBuf::new(),
            Err(_) => return None,
        };
        // A group outside of this mount is not accessible.
        if group.components().any(|part| part == std::path::Component::ParentDir) {
            return None;
        }
        Some(Path::new(&unescape(self.mount_point)).join(group))
    }
}

/// Decodes the octal escapes for blanks in `mountinfo` paths.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        36 31 0:33 / /sys/fs/cgroup/cpu,cpuset rw,relatime - cgroup cgroup rw,cpu,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    fn unified(mountinfo: &str, cgroups: &str) -> Option<String> {
        Hierarchies::parse(mountinfo, cgroups).unified.map(|path| path.display().to_string())
    }

    #[test]
    fn unified_hierarchy_is_found_at_any_mount_point() {
        assert_eq!(unified(HYBRID, "4:memory:/x\n0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        let pure = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let slice = "0::/user.slice/user-1000.slice/user@1000.service/app.slice\n";
        let expected = format!("/sys/fs/cgroup{}", slice.trim().trim_start_matches("0::"));
        assert_eq!(unified(pure, slice), Some(expected));
        let container = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(unified(container, "0::/docker/abc/agent\n").as_deref(), Some("/sys/fs/cgroup/agent"));
        assert_eq!(unified(container, "0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(unified(container, "0::/docker/other\n"), None, "groups outside of the container are ignored");
        assert_eq!(unified(pure, "0::/../outside\n"), None);
        assert_eq!(unified("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "0::/\n"), None);
    }

    #[test]
    fn version_1_controllers_are_found_in_their_hierarchies() {
        let found = Hierarchies::parse(HYBRID, "4:memory:/a/b\n3:cpu,cpuset:/c\n2:pids:/d\n0::/\n").v1;
        let expected = [
            (Controller::Cpuset, PathBuf::from("/sys/fs/cgroup/cpu,cpuset/c")),
            (Controller::Memory, PathBuf::from("/sys/fs/cgroup/memory/a/b")),
        ];
        assert_eq!(found, BTreeMap::from(expected), "`pids` is not mounted");
    }
}
