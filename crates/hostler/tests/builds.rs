//! Environments are built within the limits of their job. Needs root, and accounts that every Debian has.

use std::os::unix::fs::MetadataExt;

use hostler_testkit::{SharedCluster, processes_with, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// An account without processes of its own.
const ADA: &str = "games";

/// A build back end without dependencies; `BODY` runs when the package is built.
const BACK_END: &str = "\
import os, subprocess, sys, zipfile
BODY
def build_wheel(directory, config_settings=None, metadata_directory=None):
    build()
    name = 'telling-1-py3-none-any.whl'
    with zipfile.ZipFile(os.path.join(directory, name), 'w') as wheel:
        wheel.writestr('telling.py', TOLD)
        wheel.writestr('telling-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: telling\\nVersion: 1\\n')
        wheel.writestr('telling-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('telling-1.dist-info/RECORD', '')
    return name
";

/// A project with a local dependency whose build runs `body`. The program prints the output of the build.
fn project(cluster: &SharedCluster, name: &str, body: &str) -> String {
    let back_end = "[build-system]\nrequires = []\nbuild-backend = 'back'\nbackend-path = ['.']\n[project]\nname = 'telling'\nversion = '1'\n";
    cluster.write(ADA, &format!("{name}/main.py"), "import telling\nprint(telling.told)\n");
    cluster.write(ADA, &format!("{name}/requirements.txt"), "./dependency\n");
    cluster.write(ADA, &format!("{name}/dependency/pyproject.toml"), back_end);
    cluster.write(ADA, &format!("{name}/dependency/back.py"), BACK_END.replace("BODY", body));
    cluster.home_of(ADA).join(name).to_string_lossy().into_owned()
}

#[test]
fn build_runs_in_the_cgroup_of_its_job_and_leaves_no_process() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    // The build starts a typical daemon: in its own session, without open streams, and its parent ends.
    let body = "\
TOLD = ''
def build():
    global TOLD
    nothing = subprocess.DEVNULL
    subprocess.Popen(['setsid', 'sleep', '86417'], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    own = open('/proc/self/cgroup').read()
    TOLD = 'told = %r' % ((own, sorted(os.sched_getaffinity(0)), os.getuid()),)
";
    let folder = project(&cluster, "telling", body);
    let id = cluster.ok(ADA, &["submit", &folder, "main.py", "-c", "1", "-m", "256M"]);
    let waited = cluster.run(ADA, &["wait", &id]);
    assert_eq!(waited.code, 0, "{waited:?} {}", cluster.job(&id));
    let told = cluster.ok(ADA, &["logs", &id]);
    assert!(told.contains("/hostler/"), "the build is not in the job's cgroup: {told}");
    assert!(told.contains("-build-"), "{told}");
    let cpus = told.split('[').nth(1).and_then(|rest| rest.split(']').next()).expect("a list of CPUs");
    assert_eq!(cpus.split(',').count(), 1, "the job has one CPU: {told}");
    let uid = nix::unistd::User::from_name(ADA).expect("readable").expect("on every Debian").uid;
    assert!(told.trim_end().ends_with(&format!(" {uid})")), "the build runs as the job's user: {told}");
    assert_eq!(processes_with("sleep\x0086417\0"), [0_u32; 0], "the daemon ends with the build");
}

#[test]
fn build_that_needs_more_memory_than_its_job_ends_as_out_of_memory() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let body = "\
TOLD = 'told = 1'
def build():
    held = bytearray(600 << 20)
    held[::4096] = b'x' * len(held[::4096])
";
    let folder = project(&cluster, "hungry", body);
    let id = cluster.ok(ADA, &["submit", &folder, "main.py", "-c", "1", "-m", "128M"]);
    assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0);
    let job = cluster.job(&id);
    assert_eq!(job["state"], "out_of_memory", "{job}");
    assert!(job.to_string().contains("building the environment exceeded the job's memory limit of 128M"), "{job}");
    // With enough memory the build succeeds; the earlier limit has no effect.
    let id = cluster.ok(ADA, &["submit", &folder, "main.py", "-c", "1", "-m", "800M"]);
    let waited = cluster.run(ADA, &["wait", &id]);
    assert_eq!(waited.code, 0, "{waited:?} {}", cluster.job(&id));
}

#[test]
fn build_counts_against_the_time_limit_and_another_job_takes_over() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let release = cluster.path("release").display().to_string();
    let building = cluster.home_of(ADA).join("building");
    let marker = building.display();
    let body = format!(
        "\
import time
TOLD = 'told = 1'
def build():
    open('{marker}', 'w').close()
    while not os.path.exists('{release}'):
        time.sleep(0.05)
"
    );
    let folder = project(&cluster, "slow", &body);
    let job = |time: &str| cluster.ok(ADA, &["submit", &folder, "main.py", "-c", "1", "-m", "200M", "-t", time]);
    // The limit must end the job while it builds. On a busy machine, the build begins later.
    let first = ["3s", "10s", "30s"].into_iter().find_map(|time| {
        let id = job(time);
        wait_until("the job to build or to end", 60, || {
            (building.exists() || cluster.job(&id)["state"] == "timeout").then_some(())
        });
        building.exists().then_some(id)
    });
    let first = first.expect("a build begins within 30 s");
    let second = job("10m");
    assert_ne!(cluster.run(ADA, &["wait", &first]).code, 0);
    assert_eq!(cluster.job(&first)["state"], "timeout", "{}", cluster.job(&first));
    std::fs::write(&release, "").expect("ours");
    let waited = cluster.run(ADA, &["wait", &second]);
    assert_eq!(waited.code, 0, "{waited:?} {}", cluster.job(&second));
}

#[test]
fn jobs_with_little_memory_end_as_out_of_memory_and_never_as_node_fail() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let refused = cluster.run(ADA, &["run", "-m", "1M", "--", "true"]);
    assert!(refused.code != 0 && refused.stderr.contains("at least 8M"), "{refused:?}");
    for memory in ["8M", "9M", "12M", "16M"] {
        let works = cluster.run(ADA, &["run", "-m", memory, "--", "sh", "-c", "ls / | cat"]);
        assert_eq!(works.code, 0, "{memory}: {works:?}");
        let hungry = "python3 -c 'held = bytearray(60 << 20)'";
        let outcome = cluster.run(ADA, &["run", "-m", memory, "--", "sh", "-c", hungry]);
        assert_ne!(outcome.code, 0, "{memory}");
        assert!(outcome.stderr.contains("ran out of memory"), "{memory}: {outcome:?}");
        // The shell outlives its killed child, so its own exit code counts.
        let survivor = "head -c 60000000 /dev/zero | tail -c 50000000 > /dev/null; exit 3";
        let outcome = cluster.run(ADA, &["run", "-m", memory, "--", "sh", "-c", survivor]);
        assert_eq!(outcome.code, 3, "{memory}: {outcome:?}");
        let message = format!("failed with exit code 3: the memory limit of {memory} was exceeded");
        assert!(outcome.stderr.contains(&message), "{memory}: {outcome:?}");
    }
}

#[test]
fn project_that_requires_another_python_is_refused_or_fails_early() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let folder = cluster.home_of(ADA).join("versions").to_string_lossy().into_owned();
    let submit = |files: &[(&str, &str)]| {
        cluster.write(ADA, "versions/main.py", "print('ran')\n");
        for name in ["pyproject.toml", ".python-version"] {
            let _ = std::fs::remove_file(cluster.home_of(ADA).join("versions").join(name));
        }
        for (name, content) in files {
            cluster.write(ADA, &format!("versions/{name}"), content);
        }
        cluster.run(ADA, &["submit", &folder, "main.py", "-c", "1", "-m", "200M"])
    };
    let requires = |versions: &str| format!("[project]\nname = 'x'\nversion = '1'\nrequires-python = '{versions}'\n");

    // No node has such a version: the refusal names the required version and those of the nodes.
    for files in [("pyproject.toml", &requires(">=3.29")[..]), (".python-version", "3.29\n")] {
        let refused = submit(&[files]);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(
            refused.stderr.contains("the project requires Python") && refused.stderr.contains("3.29"),
            "{refused:?}"
        );
        assert!(refused.stderr.contains("the nodes have 3."), "{refused:?}");
        let dry = cluster.run(ADA, &["submit", "--dry-run", &folder, "main.py", "-c", "1", "-m", "200M"]);
        assert!(dry.code != 0 && dry.stderr.contains("the nodes have 3."), "{dry:?}");
    }
    // The node has the minor version but not this patch version: the job fails before its program runs.
    let interpreter = std::process::Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"])
        .output()
        .expect("Debian's Python is there");
    let version = String::from_utf8_lossy(&interpreter.stdout).trim().to_owned();
    let minor = version.rsplit_once('.').expect("three numbers").0;
    let submitted = submit(&[("pyproject.toml", &requires(&format!("=={minor}.*,>={minor}.50")))]);
    let id = submitted.stdout.trim();
    assert_ne!(cluster.run(ADA, &["wait", id]).code, 0, "{submitted:?}");
    let job = cluster.job(id);
    assert_eq!(job["state"], "failed", "{job}");
    assert!(job.to_string().contains("this node has") && job.to_string().contains(&version), "{job}");
    assert!(job.to_string().contains("install_python = true"), "{job}");
    assert!(!cluster.run(ADA, &["logs", id]).stdout.contains("ran"), "{job}");
    // With the node's version, the project runs.
    let submitted = submit(&[("pyproject.toml", &requires(&format!(">={minor}"))), (".python-version", minor)]);
    let id = submitted.stdout.trim();
    let waited = cluster.run(ADA, &["wait", id]);
    assert_eq!(waited.code, 0, "{waited:?} {}", cluster.job(id));
}

#[test]
fn node_without_uv_gets_it_once_with_pip_and_only_its_agent_can_change_it() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let restart = |cluster: &mut SharedCluster| {
        cluster.kill_agent();
        cluster.start_agent();
    };
    cluster.set_agent_variable("PATH", "/usr/bin:/bin");
    restart(&mut cluster);
    let folder = project(&cluster, "telling", "TOLD = 'told = 1'\ndef build():\n    pass\n");
    let submit = |cluster: &SharedCluster, options: &[&str]| {
        let arguments = [&["submit", &folder, "main.py", "-c", "1", "-m", "128M"], options].concat();
        let id = cluster.ok(ADA, &arguments);
        let is_done = cluster.run(ADA, &["wait", &id]).code == 0;
        (is_done, cluster.run(ADA, &["logs", "--setup", &id]).stderr, cluster.job(&id).to_string())
    };
    // All users get the program, so the job's own index does not count.
    let (is_done, setup, job) = submit(&cluster, &["--env", "PIP_INDEX_URL=http://127.0.0.1:9/evil"]);
    assert!(is_done && setup.contains("installing uv with pip"), "{job} {setup}");
    let uv = cluster.path("agent/environments/uv/uv");
    let metadata = std::fs::metadata(&uv).expect("the agent keeps it");
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o755));
    let names = std::fs::read_dir(uv.parent().expect("a directory")).expect("root may").flatten();
    assert_eq!(names.map(|entry| entry.file_name()).filter(|name| name != "lock").collect::<Vec<_>>(), ["uv"]);
    // A sandbox shows it, and the index is not needed again.
    cluster.set_agent_variable("PIP_NO_INDEX", "1");
    cluster.set_agent_variable("PIP_FIND_LINKS", "");
    restart(&mut cluster);
    for options in [&["--env", "CFLAGS=-O1"][..], &["--sandbox"]] {
        let (is_done, setup, job) = submit(&cluster, options);
        assert!(is_done && !setup.contains("installing uv"), "{job} {setup}");
    }
    // Without an index, the jobs fail until the admin names a uv.
    let own = cluster.path("own-uv");
    std::fs::rename(&uv, &own).expect("root may");
    let (is_done, setup, job) = submit(&cluster, &["-a", "0-3", "--env", "CFLAGS=-O2"]);
    assert!(!is_done && job.contains("this node has no uv"), "{job} {setup}");
    assert!(job.contains("No matching distribution found for uv") && job.contains("[environment] uv"), "{job} {setup}");
    let settings = format!("[environment]\nuv = \"{}\"\n", own.display());
    std::fs::write(cluster.path("agent/agent.toml"), settings).expect("root may");
    restart(&mut cluster);
    for options in [&["--env", "CFLAGS=-O3"][..], &["--env", "CFLAGS=-O3", "--sandbox"]] {
        let (is_done, setup, job) = submit(&cluster, options);
        assert!(is_done && !setup.contains("installing uv"), "{job} {setup}");
    }
}
