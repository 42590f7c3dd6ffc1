//! What jobs, builds and files inherit of the daemons: neither their login uid nor their priority, and nobody else reads the
//! daemons' files, whatever their umask. Needs root, and accounts that every Debian has.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hostler_testkit::{RealCluster, SharedCluster, wait_until};
use nix::libc;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// An account without processes of its own.
const ADA: &str = "games";

/// Prints the login uid, and tries to change it.
const TELL: &str = "cat /proc/self/loginuid; echo; (echo 0 > /proc/self/loginuid) 2>/dev/null && echo changed; cat /proc/self/loginuid";

/// A build back end without dependencies whose build runs `TELL` and keeps the output in the package.
const BACK_END: &str = "\
import os, subprocess, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    told = subprocess.run(['sh', '-c', TELL], stdout=subprocess.PIPE, text=True).stdout
    with zipfile.ZipFile(os.path.join(directory, 'telling-1-py3-none-any.whl'), 'w') as wheel:
        wheel.writestr('telling.py', 'told = %r' % told)
        wheel.writestr('telling-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: telling\\nVersion: 1\\n')
        wheel.writestr('telling-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('telling-1.dist-info/RECORD', '')
    return 'telling-1-py3-none-any.whl'
";

/// Runs a project with an environment, without or with a sandbox. Returns what its build and its program told.
fn project(cluster: &SharedCluster, options: &[&str]) -> String {
    let back_end = "[build-system]\nrequires = []\nbuild-backend = 'back'\nbackend-path = ['.']\n[project]\nname = 'telling'\nversion = '1'\n";
    cluster.write(
        ADA,
        "project/main.py",
        "import telling, os\nprint(telling.told)\nos.umask(0)\nopen('result', 'w').close()\n",
    );
    cluster.write(ADA, "project/requirements.txt", "./dependency\n");
    cluster.write(ADA, "project/dependency/pyproject.toml", back_end);
    cluster.write(ADA, "project/dependency/back.py", BACK_END.replace("TELL", &format!("{TELL:?}")));
    let folder = cluster.home_of(ADA).join("project").to_string_lossy().into_owned();
    let id = cluster.ok(ADA, &[&["submit", &folder, "main.py", "-c", "1", "-m", "256M"], options].concat());
    let waited = cluster.run(ADA, &["wait", &id]);
    assert_eq!(waited.code, 0, "{waited:?} {}", cluster.job(&id));
    cluster.ok(ADA, &["logs", &id])
}

fn uid() -> u32 {
    nix::unistd::User::from_name(ADA).expect("readable").expect("on every Debian").uid.as_raw()
}

#[test]
fn login_uid_of_jobs_and_builds_is_their_users_and_fixed() {
    const UNSET: &str = "4294967295";
    let own = fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let run = |options: &[&str]| {
        cluster.run(ADA, &[&["run", "-c", "1", "-m", "64M"], options, &["--", "sh", "-c", TELL]].concat()).stdout
    };
    let told =
        [run(&[]), run(&["--sandbox"]), run(&["--pty"]), project(&cluster, &[]), project(&cluster, &["--sandbox"])];
    for told in told {
        let told: Vec<&str> = told.split_whitespace().collect();
        match own.as_str() {
            // The kernel has no audit log.
            "" => assert_eq!(told, [""; 0]),
            UNSET => assert_eq!(told, [uid().to_string(), uid().to_string()]),
            // That of the person who runs the tests, which a container without rights over the audit log cannot change.
            own => assert!(told == [own, own] || told == [uid().to_string(), uid().to_string()], "{told:?}"),
        }
    }
}

#[test]
fn jobs_have_no_priority_of_the_agent() {
    const BEST_EFFORT_FIRST: libc::c_int = 2 << 13;
    // SAFETY: the system calls take plain integers. 0 means this thread, whose children are the daemons.
    unsafe {
        assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 0, -5), 0, "root may");
        assert_eq!(libc::syscall(libc::SYS_ioprio_set, 1, 0, BEST_EFFORT_FIRST), 0, "root may");
    }
    // Containers may lack the right to it.
    let is_protected = fs::write("/proc/self/oom_score_adj", "-500").is_ok();
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let tell = format!(
        "nice; cat /proc/self/oom_score_adj; python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall({}, 1, 0))'",
        libc::SYS_ioprio_get
    );
    for options in [&[][..], &["--sandbox"]] {
        let arguments = [&["run", "-c", "1", "-m", "64M"], options, &["--", "sh", "-c", &tell]].concat();
        let told = cluster.ok(ADA, &arguments);
        let told: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(told[0], "0", "{options:?}");
        assert!(!is_protected || told[1] == "0", "{options:?} {told:?}");
        assert_ne!(told[2], BEST_EFFORT_FIRST.to_string(), "{options:?}");
    }
}

#[test]
fn jobs_share_the_process_ids_of_the_machine_and_leave_some_to_the_system() {
    let number =
        |path: &Path| fs::read_to_string(path).expect("the file exists").trim().parse::<u64>().expect("a limit");
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let id = cluster
        .ok(ADA, &["run", "--detach", "-c", "1", "-m", "64M", "--", "sh", "-c", "cat /proc/self/cgroup; sleep 600"]);
    let groups = wait_until("the job to tell its groups", 30, || {
        let text = cluster.run(ADA, &["logs", &id]).stdout;
        text.contains("0::/").then_some(text)
    });
    // In its own hierarchy of version 1, or in version 2.
    let leaf = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let top = if controllers.is_empty() { "" } else { "pids" };
        let group = Path::new("/sys/fs/cgroup").join(top).join(group.trim_start_matches('/'));
        (["", "pids"].contains(&controllers) && group.join("pids.max").exists()).then_some(group)
    });
    let leaf = leaf.expect("the job has a limit of processes");
    let of_machine =
        number(Path::new("/proc/sys/kernel/pid_max")).min(number(Path::new("/proc/sys/kernel/threads-max")));
    let (of_task, of_all) = (number(&leaf.join("pids.max")), number(&leaf.with_file_name("pids.max")));
    let cpus = std::thread::available_parallelism().expect("known").get() as u64;
    assert!(of_task <= (of_all * 2 / 3 + 1) / cpus + 1, "{of_task} of {of_all} for one of {cpus} CPUs");
    assert!(of_task <= 8193 && of_all < of_machine, "{of_task} of {of_all} of {of_machine}");
}

/// All that users other than root can list, read, write or pass through in the directories of a head and an agent, with its
/// mode, and why. `*` stands for one name.
const OPEN: [(&str, u32, &str); 14] = [
    ("agent", 0o711, "jobs of all users pass through"),
    ("agent/agent.sock", 0o666, "users of the node connect, and the kernel says who they are"),
    ("agent/agent.calls", 0o666, "as above, for remote commands"),
    ("agent/runs", 0o711, "jobs pass through to their folders"),
    ("agent/runs/*", 0o711, "as above; the folder is closed to others"),
    ("agent/environments", 0o711, "jobs pass through to their environments"),
    ("agent/environments/envs", 0o711, "as above"),
    ("agent/environments/users", 0o711, "as above"),
    ("agent/environments/users/*", 0o711, "as above"),
    ("agent/environments/users/*/envs", 0o711, "as above"),
    ("agent/environments/users/*/envs/*", 0o711, "as above; what is in it belongs to the user and is closed to others"),
    ("agent/environments/sandboxed", 0o711, "as above; the directory of each user is closed to others"),
    ("agent/environments/uv", 0o711, "builds of all users pass through to the uv that the agent keeps"),
    ("agent/images", 0o711, "the process that unpacks an image passes through"),
];

/// Adds what other users can reach at and below a directory, by its path without `top`, and its mode.
fn reach(top: &Path, path: &Path, found: &mut BTreeMap<String, u32>) {
    // Files of ended jobs disappear meanwhile.
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    let mode = metadata.mode() & 0o777;
    if metadata.is_symlink() || mode & 0o007 == 0 {
        return;
    }
    let name = path.strip_prefix(top).expect("below the top").to_string_lossy().into_owned();
    found.insert(name, mode);
    if metadata.is_dir() && mode & 0o001 != 0 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| reach(top, &entry.path(), found));
    }
}

/// What the directory of a daemon contains for other users that is not in [`OPEN`].
fn unlisted(top: &Path, name: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    reach(top, &top.join(name), &mut found);
    let is_listed = |path: &str, mode: u32| {
        let parts: Vec<&str> = path.split('/').collect();
        OPEN.iter().any(|(listed, its_mode, _)| {
            let listed: Vec<&str> = listed.split('/').collect();
            mode == *its_mode
                && listed.len() == parts.len()
                && listed.iter().zip(&parts).all(|(listed, part)| *listed == "*" || listed == part)
        })
    };
    found.retain(|path, mode| !is_listed(path, *mode));
    found
}

#[test]
fn files_of_head_and_agent_are_closed_to_others_but_a_listed_few() {
    // The most open umask of a caller.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let cluster = SharedCluster::up(HOSTLER, &[]);
    project(&cluster, &[]);
    project(&cluster, &["--sandbox"]);
    cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "64M", "--", "sleep", "600"]);
    wait_until("the job to run", 30, || (cluster.job("3")["state"] == "running").then_some(()));
    let top = cluster.path("");
    assert_eq!(unlisted(&top, "agent"), BTreeMap::new());
    assert_eq!(unlisted(&top, "head"), BTreeMap::new());
    assert!(cluster.path("head/series.db").exists(), "the head keeps figures");

    // With all files in one directory, the socket is in it.
    let real = RealCluster::start(HOSTLER);
    let mut found = BTreeMap::new();
    reach(&real.home.path(""), &real.home.path("head"), &mut found);
    let expected = [("head", 0o711), ("head/head.sock", 0o666), ("head/head.toml", 0o644)];
    assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)).into());

    // The umask of a job is its user's.
    assert_eq!(cluster.ok(ADA, &["run", "-c", "1", "-m", "64M", "--", "sh", "-c", "umask"]), "0000");
}
