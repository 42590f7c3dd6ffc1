//! Tests of a run's surroundings, outputs and records.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hostler_shepherd::{Containment, Enforcement, LaunchError, Launcher, StartError, Status, cgroup::LeafSpec};

use crate::common::{command, directory, launcher, run, script, start_run, stdout};

#[test]
fn exit_codes_are_reported() {
    for (argv, code) in [(vec!["true"], 0), (vec!["false"], 1), (vec!["sh", "-c", "exit 77"], 77)] {
        let dir = directory();
        let record = run(&command(dir.path(), argv));
        assert_eq!(record.status, Status::Exited { code });
        assert_eq!((record.cause, record.leftovers), (None, 0));
        assert_eq!(record.identity, "test");
    }
}

#[test]
fn signals_are_reported() {
    let dir = directory();
    let record = run(&script(dir.path(), "kill -USR1 $$"));
    assert_eq!(record.status, Status::Signaled { signal: libc::SIGUSR1, core_dumped: false });
    assert_eq!((record.cause.clone(), record.status.exit_code()), (None, 128 + libc::SIGUSR1));
}

#[test]
fn errors_for_programs_that_cannot_run_are_like_a_shells() {
    let dir = directory();
    let plain = dir.path().join("plain");
    fs::write(&plain, "not executable").expect("writes");
    let orphan = dir.path().join("orphan");
    fs::write(&orphan, "#!/no/such/interpreter\n").expect("writes");
    fs::set_permissions(&orphan, fs::Permissions::from_mode(0o755)).expect("ours");
    let windows = dir.path().join("windows");
    fs::write(&windows, "#!/bin/sh\r\necho\r\n").expect("writes");
    fs::set_permissions(&windows, fs::Permissions::from_mode(0o755)).expect("ours");
    let [plain, orphan, windows] = [plain, orphan, windows].map(|path| path.display().to_string());
    let cases = [
        ("no-such-program-here", "cannot execute `no-such-program-here`: No such file or directory".into(), 127),
        ("/no/such/program", "cannot execute `/no/such/program`: No such file or directory".into(), 127),
        (&plain, format!("cannot execute `{plain}`: Permission denied"), 126),
        (&orphan, format!("cannot execute `{orphan}`: its interpreter `/no/such/interpreter` does not exist"), 127),
        (
            &windows,
            format!(
                "cannot execute `{windows}`: its first line ends in a carriage return, so its interpreter `/bin/sh\\r` does \
                 not exist; remove the Windows line ends, e.g. with `dos2unix`"
            ),
            127,
        ),
        ("/etc", "cannot execute `/etc`: Permission denied".into(), 126),
        ("", "cannot execute ``: No such file or directory".into(), 127),
    ];
    for (program, message, code) in cases {
        let dir = directory();
        let record = run(&command(dir.path(), [program]));
        assert_eq!(record.status, Status::StartFailed { message, code });
    }
}

#[test]
fn missing_working_directory_is_reported() {
    let dir = directory();
    let mut launch = command(dir.path(), ["true"]);
    launch.cwd = "/no/such/place".into();
    let message = "cannot enter directory `/no/such/place`: No such file or directory".into();
    assert_eq!(run(&launch).status, Status::StartFailed { message, code: 126 });
}

#[test]
fn script_without_interpreter_runs_in_the_shell() {
    let dir = directory();
    let path = dir.path().join("bare");
    fs::write(&path, "echo \"$1-$2\"; exit 3\n").expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    let record = run(&command(dir.path(), [path.as_os_str(), "a b".as_ref(), "c".as_ref()]));
    assert_eq!(record.status, Status::Exited { code: 3 });
    assert_eq!(stdout(dir.path()), "a b-c\n");
}

#[test]
fn output_is_stored_unchanged() {
    let dir = directory();
    let script_text = r"printf '\000\377\r\nno newline at the end'; printf 'to stderr' >&2";
    let record = run(&script(dir.path(), script_text));
    let out = fs::read(dir.path().join("stdout")).expect("written");
    let err = fs::read(dir.path().join("stderr")).expect("written");
    assert_eq!(out, b"\0\xff\r\nno newline at the end");
    assert_eq!(err, b"to stderr");
    assert_eq!((record.stdout_bytes, record.stderr_bytes), (out.len() as u64, err.len() as u64));

    let dir = directory();
    let record = run(&script(dir.path(), "head -c 20000000 /dev/zero | tr '\\0' x; printf end"));
    let out = fs::read(dir.path().join("stdout")).expect("written");
    assert!(out.len() == 20_000_003 && out.ends_with(b"xxend"));
    assert_eq!(record.stdout_bytes, 20_000_003);
}

#[test]
fn merged_output_keeps_its_order() {
    let dir = directory();
    let mut launch = script(dir.path(), "echo 1; echo 2 >&2; echo 3");
    launch.options.merge_output = true;
    run(&launch);
    assert_eq!(stdout(dir.path()), "1\n2\n3\n");
    assert!(!dir.path().join("stderr").exists());
}

#[test]
fn large_environment_is_passed_completely_without_inheritance() {
    let dir = directory();
    let mut launch = command(dir.path(), ["/usr/bin/env", "-0"]);
    launch.env = (0..10).map(|n| (format!("V{n}").into(), format!("{n}").repeat(100_000).into())).collect();
    assert_eq!(run(&launch).status, Status::Exited { code: 0 });
    let expected: String = (0..10).map(|n| format!("V{n}={}\0", format!("{n}").repeat(100_000))).collect();
    assert!(stdout(dir.path()) == expected, "the environment has only the given variables");
}

#[test]
fn oversized_environment_is_a_start_failure() {
    let dir = directory();
    let mut launch = command(dir.path(), ["true"]);
    launch.env.push(("BIG".into(), "x".repeat(3 << 20).into()));
    let message = "cannot execute `true`: Argument list too long".into();
    assert_eq!(run(&launch).status, Status::StartFailed { message, code: 126 });
}

#[test]
fn job_starts_with_default_process_settings() {
    let dir = directory();
    let mut launch = command(dir.path(), ["grep", "-E", "^Sig(Blk|Ign)|^Umask", "/proc/self/status"]);
    launch.options.umask = 0o027;
    run(&launch);
    let expected = "Umask:\t0027\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    assert_eq!(stdout(dir.path()), expected);

    let dir = directory();
    run(&command(dir.path(), ["ls", "/proc/self/fd"]));
    assert_eq!(stdout(dir.path()), "0\n1\n2\n3\n", "the standard descriptors, and the one that ls opens");

    let dir = directory();
    run(&script(dir.path(), "read line; echo $?; ps -o pid= -o pgid= -o sid= -p $$; echo $$; pwd"));
    let text = stdout(dir.path());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "1", "standard input is empty");
    assert!(
        lines[1].split_ascii_whitespace().all(|id| id == lines[2]),
        "the job has no session and group of its own: {text}"
    );
    assert_eq!(fs::canonicalize(lines[3]).expect("exists"), fs::canonicalize(dir.path()).expect("exists"));
}

#[test]
fn cpu_affinity_without_a_leaf_is_reported_as_advisory() {
    let dir = directory();
    let mut launch = command(dir.path(), ["nproc"]);
    launch.options.cpus = Some(vec![0]);
    let record = run(&launch);
    assert_eq!(stdout(dir.path()), "1\n");
    assert!(matches!(record.limits.cpus, Some(Enforcement::Advisory(_))));

    let dir = directory();
    let mut launch = command(dir.path(), ["true"]);
    launch.options.cpus = Some(vec![4000]);
    let record = run(&launch);
    let Some(Enforcement::Advisory(reason)) = record.limits.cpus else { panic!("advisory") };
    assert!(reason.starts_with("cannot bind to the CPUs: "), "{reason}");
}

#[test]
fn resource_usage_is_measured() {
    let dir = directory();
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.2";
    let record = run(&script(dir.path(), busy));
    assert!(record.user_time > Duration::from_millis(10), "{record:?}");
    assert!(record.wall_time >= Duration::from_millis(200) && record.wall_time < Duration::from_secs(20));
    assert!(record.max_rss_bytes > 500_000);
    assert!(record.ended.boottime_ns - record.started.boottime_ns >= 200_000_000);
    assert!(record.started.unix_ms > 1_700_000_000_000);
}

#[test]
fn disk_writes_are_counted() {
    let dir = directory();
    let mut launch = script(dir.path(), "dd if=/dev/zero of=$0 bs=1M count=4 conv=fsync 2> /dev/null; rm $0");
    // Temporary directories may be in memory, and writes to them do not count.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable");
    launch.argv.push(file.path().into());
    let io = run(&launch).io.expect("the kernel counts");
    assert!(io.write_bytes >= 4 << 20 && io.write_bytes < 64 << 20, "{io:?}");
}

#[test]
fn directory_accepts_only_one_run() {
    let dir = directory();
    run(&command(dir.path(), ["true"]));
    let before = fs::read(dir.path().join("journal")).expect("written");
    let refused = launcher().launch(&command(dir.path(), ["false"])).expect_err("taken");
    let LaunchError::Refused(reason) = refused else { panic!("{refused}") };
    assert!(reason.contains("another shepherd has already claimed the run"), "{reason}");
    assert_eq!(fs::read(dir.path().join("journal")).expect("the shepherd still runs"), before);
}

#[test]
fn launch_in_a_missing_directory_is_refused() {
    let refused = launcher().launch(&command("/no/such/run".as_ref(), ["true"])).expect_err("missing");
    assert_eq!(
        refused.to_string(),
        "the run was refused: cannot enter the run's directory `/no/such/run`: No such file or directory"
    );
}

#[test]
fn run_in_a_directory_with_a_long_path_can_be_adopted() {
    let dir = directory();
    let long = dir.path().join("d".repeat(200)).join("e".repeat(200));
    fs::create_dir_all(&long).expect("allowed");
    let mut shepherd = start_run(&script(&long, "exec sleep 60"));
    let hostler_shepherd::Adopted::Running(mut other) = hostler_shepherd::adopt(&long).expect("readable") else {
        panic!("running")
    };
    assert_eq!(other.status().expect("answers").child, shepherd.child());
    shepherd.kill(hostler_shepherd::Cause::Cancelled).expect("the shepherd runs");
    crate::common::finish(&mut shepherd, &long);
}

#[test]
fn files_of_a_run_are_private() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 60"));
    for name in ["journal", "stdout", "stderr"] {
        let mode = fs::metadata(dir.path().join(name)).expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} has mode {mode:o}");
    }
    shepherd.kill(hostler_shepherd::Cause::Cancelled).expect("the shepherd runs");
    crate::common::finish(&mut shepherd, dir.path());
}

#[test]
fn failure_to_create_the_leaf_is_reported() {
    let dir = directory();
    let mut launch = command(dir.path(), ["true"]);
    launch.options.leaf = Some(LeafSpec { path: "/no/such/tree/leaf".into(), ..LeafSpec::default() });
    let record = run(&launch);
    let reason = "cannot create `/no/such/tree/leaf`: No such file or directory".into();
    assert_eq!((record.status, record.containment), (Status::Exited { code: 0 }, Containment::Descent { reason }));
}

#[test]
fn threads_can_launch_concurrently() {
    let dirs: Vec<_> = (0..24).map(|_| directory()).collect();
    std::thread::scope(|scope| {
        for (code, dir) in dirs.iter().enumerate() {
            scope.spawn(move || {
                let record = run(&script(dir.path(), &format!("echo {code}; exit {code}")));
                assert_eq!(record.status, Status::Exited { code: code as i32 });
                assert_eq!(stdout(dir.path()), format!("{code}\n"));
            });
        }
    });
}

#[test]
fn launcher_refuses_to_start_with_several_threads() {
    assert!(matches!(Launcher::start(), Err(StartError::Threads(count)) if count > 1));
}
