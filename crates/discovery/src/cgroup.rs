//! Limits that control groups set for this process, in version 1 or version 2.
//!
//! Limits apply along the whole path, so all groups from the process's own up to the topmost visible one count. Limits
//! above a container's view are not visible. This module only reads; the shepherd writes.

use hostler_model::CpuSet;

use crate::Source;

/// Memory limits from this value on mean no limit: version 1 expresses "no limit" as a number larger than any memory.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The control groups of this process.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The group in the unified hierarchy.
    v2: Option<Group>,
    /// The group of the version 1 controller `cpu`. The fields below belong to the controllers `cpuset` and `memory`.
    cpu: Option<Group>,
    cpuset: Option<Group>,
    memory: Option<Group>,
}

/// The process's group in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    mount_point: String,
    /// Path below the mount point; empty, or with a leading slash.
    path: String,
}

impl Groups {
    pub(crate) fn of(source: &Source) -> Self {
        let mountinfo = source.lines("/proc/self/mountinfo", &[" - cgroup"]).unwrap_or_default();
        Self::parse(&mountinfo, &source.read("/proc/self/cgroup").unwrap_or_default())
    }

    fn parse(mountinfo: &str, memberships: &str) -> Self {
        let mut groups = Self::default();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            if mount.kind == "cgroup2" {
                let path = memberships.lines().find_map(|line| line.strip_prefix("0::"));
                groups.v2 = groups.v2.or_else(|| mount.group(path?));
            } else if mount.kind == "cgroup" {
                let slots = [("cpu", &mut groups.cpu), ("cpuset", &mut groups.cpuset), ("memory", &mut groups.memory)];
                for (controller, slot) in slots {
                    if slot.is_none() && mount.options.split(',').any(|option| option == controller) {
                        *slot = path_in(memberships, controller).and_then(|path| mount.group(path));
                    }
                }
            }
        }
        groups
    }

    /// The CPUs that the groups allow this process to use; `None` without a limit.
    pub(crate) fn cpus(&self, source: &Source) -> Option<CpuSet> {
        // A group without the controller has no such file. The nearest parent with the file counts.
        let nearest = |group: &Option<Group>, files: &[&str]| {
            let directories = group.as_ref()?.upwards();
            let texts = directories.flat_map(|at| files.iter().map(move |file| format!("{at}/{file}")));
            texts.filter_map(|path| source.read(&path)?.parse().ok()).find(|set: &CpuSet| !set.is_empty())
        };
        let v2 = nearest(&self.v2, &["cpuset.cpus.effective"]);
        let v1 = nearest(&self.cpuset, &["cpuset.effective_cpus", "cpuset.cpus"]);
        match (v1, v2) {
            (Some(v1), Some(v2)) => Some(v1.intersection(&v2)),
            (v1, v2) => v1.or(v2),
        }
    }

    /// The CPU time that the groups allow, in thousandths of a CPU; `None` without a limit.
    pub(crate) fn quota_millicpus(&self, source: &Source) -> Option<u64> {
        let v2 = self.v2.iter().flat_map(Group::upwards).filter_map(|at| {
            let text = source.read(&format!("{at}/cpu.max"))?;
            let (quota, period) = text.split_once(' ')?;
            millicpus(quota.parse().ok()?, period.parse().ok()?)
        });
        let v1 = self.cpu.iter().flat_map(Group::upwards).filter_map(|at| {
            let quota = source.number(&format!("{at}/cpu.cfs_quota_us"))?;
            millicpus(quota, source.number(&format!("{at}/cpu.cfs_period_us"))?)
        });
        v2.chain(v1).min()
    }

    /// The lowest memory limit along the path, in bytes; `None` without a limit.
    pub(crate) fn memory_bytes(&self, source: &Source) -> Option<u64> {
        let limits = |group: &Option<Group>, file: &str| -> Vec<u64> {
            let directories = group.iter().flat_map(Group::upwards);
            directories.filter_map(|at| source.read(&format!("{at}/{file}"))?.parse().ok()).collect()
        };
        // `memory.high` counts too, because processes above it become extremely slow.
        let files = [(&self.v2, "memory.max"), (&self.v2, "memory.high"), (&self.memory, "memory.limit_in_bytes")];
        files.into_iter().flat_map(|(group, file)| limits(group, file)).filter(|limit| *limit < UNLIMITED_BYTES).min()
    }
}

/// Converts a CPU quota to thousandths of a CPU; `None` without a limit, which version 1 reports as -1.
fn millicpus(quota_us: i64, period_us: i64) -> Option<u64> {
    let (quota, period) = (u64::try_from(quota_us).ok()?, u64::try_from(period_us).ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

/// The path of the group in the hierarchy with `controller`, from a line such as `4:cpu,memory:/group`.
fn path_in<'a>(memberships: &'a str, controller: &str) -> Option<&'a str> {
    memberships.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

impl Group {
    /// The directories from the group up to the mount point.
    fn upwards(&self) -> impl Iterator<Item = String> + use<> {
        let mount_point = self.mount_point.clone();
        let mut path = Some(self.path.clone());
        std::iter::from_fn(move || {
            let now = path.take()?;
            path = now.rfind('/').map(|end| now[..end].to_owned());
            Some(format!("{mount_point}{now}"))
        })
    }
}

/// A line of `mountinfo`.
struct Mount<'a> {
    /// The group that the mount point shows, as a path in the hierarchy.
    root: &'a str,
    mount_point: &'a str,
    kind: &'a str,
    /// Mount options; for version 1, the list contains the controllers' names.
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        let (root, mount_point) = (before.next()?, before.next()?);
        let (kind, options) = (after.next()?, after.nth(1)?);
        Some(Self { root, mount_point, kind, options })
    }

    /// The visible directory of the group `path`.
    fn group(&self, path: &str) -> Option<Group> {
        // In a container, the mount may show only a part of the hierarchy, and the path may be relative to the
        // container's root.
        let below = match path.strip_prefix(self.root.trim_end_matches('/')) {
            Some(below) if below.is_empty() || below.starts_with('/') => below,
            _ if path == "/" => "",
            _ => return None,
        };
        if below.split('/').any(|part| part == "..") {
            return None;
        }
        let mount_point = self.mount_point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        Some(Group { mount_point, path: below.trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const CONTAINER: &str = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
        36 31 0:33 /docker/abc /sys/fs/cgroup/cpu,cpuset ro - cgroup cgroup rw,cpu,cpuset\n";

    fn machine(files: &[(&str, &str)]) -> Source {
        let mut fixture = Fixture::default();
        files.iter().for_each(|(path, content)| fixture.insert(path, content));
        Source::fixture(fixture)
    }

    #[test]
    fn version_2_limits_apply_along_the_path() {
        let groups = Groups::parse(V2, "0::/a.slice/b.scope\n");
        let source = machine(&[
            ("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n"),
            ("/sys/fs/cgroup/a.slice/memory.max", "3000\n"),
            ("/sys/fs/cgroup/a.slice/memory.high", "2500\n"),
            ("/sys/fs/cgroup/a.slice/b.scope/cpu.max", "250000 100000\n"),
            ("/sys/fs/cgroup/a.slice/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "400000 100000\n"),
            ("/sys/fs/cgroup/a.slice/cpuset.cpus.effective", "2-5\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
        ]);
        assert_eq!(groups.memory_bytes(&source), Some(2500));
        assert_eq!(groups.quota_millicpus(&source), Some(2500));
        assert_eq!(groups.cpus(&source).map(|set| set.to_string()).as_deref(), Some("2-5"));
        let unlimited = machine(&[("/sys/fs/cgroup/a.slice/cpu.max", "max 100000")]);
        assert_eq!(groups.memory_bytes(&unlimited), None);
        assert_eq!(groups.quota_millicpus(&unlimited), None);
        assert_eq!(groups.cpus(&unlimited), None);
    }

    #[test]
    fn version_1_limits_are_read_in_a_container() {
        let groups = Groups::parse(CONTAINER, "4:memory:/docker/abc/x\n3:cpu,cpuset:/docker/abc\n0::/\n");
        let source = machine(&[
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000"),
            ("/sys/fs/cgroup/cpu,cpuset/cpu.cfs_quota_us", "50000"),
            ("/sys/fs/cgroup/cpu,cpuset/cpu.cfs_period_us", "100000"),
            ("/sys/fs/cgroup/cpu,cpuset/cpuset.cpus", "1,3"),
        ]);
        assert_eq!(groups.memory_bytes(&source), Some(1_000_000));
        assert_eq!(groups.quota_millicpus(&source), Some(500));
        assert_eq!(groups.cpus(&source).map(|set| set.to_string()).as_deref(), Some("1,3"));
        let unlimited = machine(&[
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("/sys/fs/cgroup/cpu,cpuset/cpu.cfs_quota_us", "-1"),
            ("/sys/fs/cgroup/cpu,cpuset/cpu.cfs_period_us", "0"),
        ]);
        assert_eq!(groups.quota_millicpus(&unlimited), None);
        assert_eq!(groups.memory_bytes(&unlimited), None);
    }

    #[test]
    fn groups_outside_the_mount_are_ignored() {
        let unified = |memberships: &str| Groups::parse(V2, memberships).v2.map(|group| group.path);
        assert_eq!(unified("0::/").as_deref(), Some(""));
        assert_eq!(unified("0::/../other"), None);
        assert_eq!(unified(""), None);
        assert_eq!(
            Groups::parse(CONTAINER, "4:memory:/docker/abcd\n").memory,
            None,
            "a group with a longer name is another group"
        );
        assert_eq!(Groups::parse("garbage - cgroup2\n1 2 3 4 5 6 -  - ", "0::/").v2, None);
    }
}
