//! Partitions that demand a sandbox, on every way in, and what admins add to sandboxes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;

use hostler_testkit::{Outcome, SharedCluster};

use crate::{ADA, HOSTLER};

/// What a job prints to tell whether it runs in a sandbox.
const WHERE: &str = "hostname";

/// A cluster whose partition `lab` demands a sandbox and has its only node.
fn lab(options: &[&str]) -> SharedCluster {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let add = ["configure", "partition", "add", "lab", "--nodes", "n1", "--sandbox", "always"];
    cluster.ok("root", &[&add, options].concat());
    cluster
}

/// Runs one of Slurm's commands as a user.
pub(super) fn slurm(cluster: &SharedCluster, name: &str, arguments: &[&str]) -> Outcome {
    Outcome::of(&cluster.command(ADA, arguments).arg0(name).output().expect("it can be started"))
}

#[test]
fn partition_demands_a_sandbox_of_all_ways_to_submit() {
    let cluster = lab(&["--default"]);
    assert!(cluster.ok(ADA, &["configure", "partition", "show", "lab"]).contains("\nsandbox    always"));
    let home = cluster.home_of(ADA);
    let host = nix::unistd::gethostname().expect("every machine has a name");
    assert_ne!(host, "sandbox", "the test would prove nothing");

    // Named, by default, as an array, and in a project.
    for options in [&["-p", "lab"][..], &[]] {
        assert_eq!(cluster.ok(ADA, &[&["run", "-m", "32M"], options, &["--", WHERE]].concat()), "sandbox");
    }
    assert!(cluster.ok(ADA, &["job", "1"]).contains("sandbox    yes"));
    cluster.write(ADA, "folder/main.sh", format!("{WHERE}\n"));
    let folder = home.join("folder").to_string_lossy().into_owned();
    let array = cluster.ok(ADA, &["submit", "--array", "1-2", "-c", "1", "-m", "32M", &folder, "main.sh"]);
    cluster.ok(ADA, &["wait", &array]);
    for task in [1, 2] {
        assert_eq!(cluster.ok(ADA, &["logs", &format!("{array}_{task}")]), "sandbox");
    }
    // A dry run says the same as a submission.
    let refusal = "partition lab runs its jobs in a sandbox, where a job has one node";
    for arguments in [
        &["run", "-N", "2", "-m", "32M", "--", "true"][..],
        &["run", "--dry-run", "-N", "2", "-m", "32M", "--", "true"],
        &["submit", "-N", "2", "-m", "32M", &folder, "main.sh"],
        &["alloc", "-m", "32M", "--", "true"],
    ] {
        let refused = cluster.run(ADA, arguments);
        assert!(refused.code != 0 && refused.stderr.contains(refusal), "{arguments:?}: {refused:?}");
    }
    cluster.write(ADA, "batch.sh", "#!/bin/sh\nhostname\n");
    for (name, arguments) in [
        ("sbatch", &["--mem=32M", "-N2", "batch.sh"][..]),
        ("srun", &["--mem=32M", "hostname"]),
        ("salloc", &["--mem=32M", "true"]),
    ] {
        let refused = slurm(&cluster, name, arguments);
        assert!(refused.code != 0 && refused.stderr.contains(refusal), "{name} {arguments:?}: {refused:?}");
    }
    // A script of Slurm with a step, in the same sandbox.
    cluster.write(ADA, "batch.sh", "#!/bin/sh\nhostname\ntouch /tmp/here\nhostler step --tasks 1 ls /tmp/here\n");
    let submitted = slurm(&cluster, "sbatch", &["--mem=32M", "--parsable", "-o", "batch.out", "batch.sh"]);
    let id = submitted.stdout.trim();
    assert_eq!(cluster.run(ADA, &["wait", id]).code, 0, "{submitted:?}");
    assert_eq!(fs::read_to_string(home.join("batch.out")).expect("written"), "sandbox\n/tmp/here\n");
    let of_root = cluster.run("root", &["run", "-m", "32M", "--", "true"]);
    assert!(of_root.stderr.contains("no job in a sandbox can belong to root"), "{of_root:?}");
}

#[test]
fn job_that_is_moved_or_waits_cannot_avoid_the_sandbox() {
    let cluster = lab(&[]);
    cluster.ok("root", &["configure", "partition", "add", "open", "--nodes", "n1"]);
    let hold = |options: &[&str]| {
        cluster.ok(ADA, &[&["run", "--detach", "--hold", "-m", "32M"], options, &["--", WHERE]].concat())
    };
    let finish = |id: &str| {
        cluster.ok(ADA, &["release", id]);
        cluster.ok(ADA, &["wait", id]);
        cluster.ok(ADA, &["logs", id])
    };
    let moved = hold(&["-p", "open"]);
    cluster.ok(ADA, &["update", &moved, "--partition", "lab"]);
    assert_eq!(finish(&moved), "sandbox");
    let by_slurm = hold(&["-p", "open"]);
    let updated = slurm(&cluster, "scontrol", &["update", &format!("JobId={by_slurm}"), "Partition=lab"]);
    assert_eq!(updated.code, 0, "{updated:?}");
    assert_eq!(finish(&by_slurm), "sandbox");

    // The rule comes while jobs wait and have ended.
    let failed = ["run", "--detach", "-m", "32M", "-p", "open", "--", "sh", "-c", "hostname; exit 3"];
    let ran = cluster.ok(ADA, &failed);
    assert_ne!(cluster.run(ADA, &["wait", &ran]).code, 0);
    assert_ne!(cluster.ok(ADA, &["logs", &ran]), "sandbox");
    let waits = hold(&["-p", "open"]);
    cluster.ok("root", &["configure", "partition", "set", "open", "--sandbox", "always"]);
    cluster.ok(ADA, &["release", &waits]);
    let why = cluster.ok(ADA, &["why", &waits]);
    assert!(why.contains("partition open runs its jobs in a sandbox, and this job has none"), "{why}");
    assert!(why.contains(&format!("`hostler update {waits} --partition open` puts it in a sandbox")), "{why}");
    let again = cluster.run(ADA, &["requeue", &ran]);
    assert!(again.stderr.contains("partition open runs its jobs in a sandbox"), "{again:?}");
    cluster.ok("root", &["requeue", &ran]);
    assert!(cluster.ok(ADA, &["why", &ran]).contains("this job has none"));
    cluster.ok(ADA, &["update", &waits, "--partition", "open"]);
    cluster.ok(ADA, &["wait", &waits]);
    assert_eq!(cluster.ok(ADA, &["logs", &waits]), "sandbox");
    // Without a partition, a job uses other nodes only, and there are none.
    let nowhere = cluster.run(ADA, &["run", "-m", "32M", "--", WHERE]);
    assert!(nowhere.stderr.contains("submit it with `--sandbox`"), "{nowhere:?}");
    assert_eq!(cluster.ok(ADA, &["run", "--sandbox", "-m", "32M", "--", WHERE]), "sandbox");
}

#[test]
fn network_of_the_node_is_only_for_partitions_that_allow_it() {
    let cluster = lab(&["--default"]);
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("bound").port();
    let script = format!(
        "import os, socket; socket.create_connection(('localhost', {port})); own = socket.create_server(('127.0.0.1', 0)); \
         print(socket.gethostname(), os.path.exists('/home'), os.getpid()); print(open('/etc/resolv.conf').read())"
    );
    let submit =
        || cluster.run(ADA, &["run", "--sandbox", "--network", "host", "-m", "64M", "--", "python3", "-c", &script]);
    let refused = submit();
    let why = "partition lab runs its jobs in a sandbox without a network; submit the job without `--network host`";
    assert!(refused.code != 0 && refused.stderr.contains(why), "{refused:?}");
    let alone = cluster.run(ADA, &["run", "--network", "host", "--", "true"]);
    assert!(alone.stderr.contains("--sandbox"), "{alone:?}");

    cluster.ok("root", &["configure", "partition", "set", "lab", "--sandbox-network", "host"]);
    let shown = cluster.ok(ADA, &["configure", "partition", "show", "lab"]);
    assert!(shown.contains("\nsandbox    always; jobs may ask for --network job or host"), "{shown}");
    let told = submit();
    let host = nix::unistd::gethostname().expect("every machine has a name");
    let resolver = fs::read_to_string("/etc/resolv.conf").expect("the test needs a resolver");
    let expected = format!("{} False 2\n{resolver}\n", host.display());
    assert_eq!(told.stdout, expected, "{told:?}");
    assert!(cluster.ok(ADA, &["job", "1"]).contains("sandbox    yes, with the network of its node"));
    // A job that does not ask for the network does not get it.
    let usual = cluster.run(ADA, &["run", "-m", "64M", "--", "python3", "-c", &script]);
    assert!(usual.code != 0 && usual.stderr.contains("Connection refused"), "{usual:?}");
}

#[test]
fn admin_adds_directories_of_the_machine_that_only_root_can_change() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    // Below `/tmp`, others could exchange it.
    let place = tempfile::Builder::new().prefix("hostler-test-").tempdir_in("/opt").expect("root may");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let (tools, file) = (place.path().join("tools"), place.path().join("file"));
    fs::create_dir(&tools).expect("ours");
    fs::write(tools.join("program"), "#!/bin/sh\necho ran\n").expect("ours");
    fs::set_permissions(tools.join("program"), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::write(&file, "text\n").expect("ours");
    fs::write(place.path().join("hidden"), "text\n").expect("ours");
    symlink(&tools, place.path().join("link")).expect("ours");

    let mut restart = |paths: &[&str]| {
        let quoted: Vec<String> = paths.iter().map(|path| format!("\"{path}\"")).collect();
        fs::write(cluster.path("agent/agent.toml"), format!("[sandbox]\nread_only = [{}]\n", quoted.join(", ")))
            .expect("root may");
        cluster.kill_agent();
        cluster.start_agent();
        let run = cluster.run(
            ADA,
            &[
                "run",
                "--sandbox",
                "-m",
                "32M",
                "--",
                "sh",
                "-c",
                &format!(
                    "cat {0}/file; {0}/tools/program; ls {0}; ls {0}/tools/below 2>/dev/null; \
                     touch {0}/tools/new 2>&1 | grep -o 'Read-only.*'",
                    place.path().display()
                ),
            ],
        );
        let node = cluster.ok("root", &["node", "show", "n1"]);
        // Other jobs run in any case.
        assert_eq!(cluster.ok(ADA, &["run", "-m", "32M", "--", "echo", "other"]), "other");
        (run, node)
    };
    let (tools, file) = (tools.to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let (run, node) = restart(&[&tools, &file]);
    assert_eq!(run.stdout, "text\nran\nfile\ntools\nRead-only file system\n", "{run:?}");
    assert!(!node.contains("no sandboxed jobs"), "{node}");

    let mut refused = |path: &str, why: &str| {
        let (run, node) = restart(&[path]);
        let expected = format!("no sandboxed jobs run here: cannot build the sandbox: cannot show {path}: {why}");
        assert!(run.code != 0 && node.contains(&expected), "{path}: {node}");
    };
    let link = place.path().join("link").to_string_lossy().into_owned();
    refused(&link, &format!("{link} is a symbolic link"));
    refused(&format!("{}/missing", place.path().display()), "No such file or directory");
    refused("/run", "sandboxes have their own");
    refused("/etc", "sandboxes have their own");
    refused("/proc/1", "sandboxes have their own");
    refused("/opt/../etc", "it is not an absolute path without `..`");
    let (uid, gid) = crate::ids(ADA);
    chown(&tools, Some(uid), Some(gid)).expect("root may");
    refused(&tools, &format!("users other than root may change {tools}"));
    refused(&format!("{tools}/program"), &format!("users other than root may change {tools}"));
    chown(&tools, Some(0), Some(0)).expect("root may");
    // The bits of the group are also the most that an access control list gives to anybody.
    for mode in [0o757, 0o775] {
        fs::set_permissions(&tools, fs::Permissions::from_mode(mode)).expect("ours");
        refused(&tools, &format!("users other than root may change {tools}"));
    }

    // Something is mounted below it that shows processes of the machine.
    fs::set_permissions(&tools, fs::Permissions::from_mode(0o755)).expect("ours");
    let below = format!("{tools}/below");
    fs::create_dir(&below).expect("ours");
    let mount = |program: &str, arguments: &[&str]| {
        assert!(std::process::Command::new(program).args(arguments).arg(&below).status().expect("it starts").success());
    };
    mount("mount", &["-t", "proc", "proc"]);
    let (listed, _) = restart(&[&tools, &file]);
    mount("umount", &[]);
    assert_eq!(listed.stdout, run.stdout, "{listed:?}");

    // A directory that changes its owner after the start of the agent.
    fs::set_permissions(&tools, fs::Permissions::from_mode(0o755)).expect("ours");
    restart(&[&tools]);
    chown(&tools, Some(uid), Some(gid)).expect("root may");
    let late = cluster.run(ADA, &["run", "--sandbox", "-m", "32M", "--", "true"]);
    assert!(late.code != 0 && late.stderr.contains("users other than root may change"), "{late:?}");
}
