//! What jobs and builds inherit of the agent, and share: neither its login uid nor its priority, and the machine's process ids.
//! Needs root, and accounts that every Debian has.

use std::fs;
use std::path::Path;

use hostler_testkit::{SharedCluster, wait_until};
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
