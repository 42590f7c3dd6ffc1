//! Tests of runs in a sandbox. They need root. The tests of the whole program try to leave it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use hostler_shepherd::cgroup::Device;
use hostler_shepherd::{Credentials, DeviceFile, Folders, Launch, Sandbox, Shown, Status};

use crate::common::{directory, run, script, stdout};

/// A sandboxed launch of `sh -c text` as an ordinary user, in a folder of that user.
fn sandboxed(directory: &Path, text: &str) -> Launch {
    let folder = directory.join("folder");
    fs::create_dir(&folder).expect("writable");
    chown(&folder, Some(65534), Some(65533)).expect("needs root");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).expect("ours");
    let mut launch = script(directory, text);
    launch.cwd = folder;
    launch.options.credentials =
        Some(Credentials { name: "somebody".into(), uid: 65534, gid: 65533, groups: vec![65532] });
    launch.options.sandbox = Some(Sandbox::default());
    launch
}

/// Says which folders the sandbox may show.
fn limit(launch: &mut Launch, folders: Folders) {
    launch.options.sandbox = Some(Sandbox { folders, ..Sandbox::default() });
}

/// Why the launch could not be started.
fn refusal(launch: &Launch) -> String {
    match run(launch).status {
        Status::StartFailed { message, code: 126 } => message,
        other => panic!("the launch is refused: {other:?}"),
    }
}

#[test]
fn program_has_no_rights_and_is_the_second_process() {
    let dir = directory();
    let launch = sandboxed(
        dir.path(),
        "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|Speculation_Store_Bypass)' /proc/self/status; echo $$; ls /proc/self/fd | wc -l; ulimit -Hc; tr -d '\\0' < /proc/1/cmdline",
    );
    let record = run(&launch);
    assert_eq!(record.status, Status::Exited { code: 0 }, "{record:?}");
    let none = "0000000000000000";
    let expected = format!(
        "Uid:\t65534\t65534\t65534\t65534\nGid:\t65533\t65533\t65533\t65533\nGroups:\t65532 \n\
         CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n\
         Seccomp:\t2\nSeccomp_filters:\t1\n"
    );
    let told = stdout(dir.path());
    // How processors handle speculation differs; only a filter with the wrong flag would force it off.
    let (speculation, rest): (Vec<&str>, Vec<&str>) =
        told.lines().partition(|line| line.starts_with("Speculation_Store_Bypass"));
    assert!(!speculation.iter().any(|line| line.contains("force mitigated")), "{speculation:?}");
    // Three streams, and the directory that `ls` reads.
    assert_eq!(rest.join("\n") + "\n", format!("{expected}2\n4\n0\nhostler-init\n"));
}

#[test]
fn only_listed_files_and_devices_of_the_machine_are_shown() {
    let dir = directory();
    let (shown, hidden) = (dir.path().join("shown"), dir.path().join("hidden"));
    for path in [&shown, &hidden] {
        fs::write(path, "text").expect("writable");
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("ours");
    }
    let number = fs::metadata("/dev/fuse").expect("the kernel has FUSE").rdev();
    let device = Device { major: nix::sys::stat::major(number) as u32, minor: nix::sys::stat::minor(number) as u32 };
    let text = format!(
        "cat {0}; echo; test -e {1} || echo hidden; sh -c 'echo more >> {0}' 2>&1 | grep -o 'Read-only.*'; stat -c %t:%T /dev/fuse; ls /sys | tr '\\n' ' '",
        shown.display(),
        hidden.display()
    );
    let mut launch = sandboxed(dir.path(), &text);
    launch.options.sandbox = Some(Sandbox {
        read_only: vec![shown.display().to_string()],
        devices: vec![DeviceFile { path: "/dev/fuse".into(), device }],
        ..Sandbox::default()
    });
    run(&launch);
    let numbers = format!("{:x}:{:x}", device.major, device.minor);
    assert_eq!(
        stdout(dir.path()),
        format!("text\nhidden\nRead-only file system\n{numbers}\nbus class dev devices module ")
    );

    // A device file that has become another device meanwhile.
    let other = directory();
    let mut launch = sandboxed(other.path(), "true");
    let device = Device { minor: device.minor + 1, ..device };
    launch.options.sandbox =
        Some(Sandbox { devices: vec![DeviceFile { path: "/dev/fuse".into(), device }], ..Sandbox::default() });
    let why = refusal(&launch);
    assert_eq!(why, "cannot build the sandbox: cannot show the device /dev/fuse: it is another device now");
}

#[test]
fn file_that_only_root_can_change_is_shown_at_another_place() {
    let dir = directory();
    let file = fs::canonicalize(dir.path()).expect("there").join("libcuda.so.550");
    fs::write(&file, "driver").expect("writable");
    let show = |directory: &Path| {
        let at = "/opt/driver/libcuda.so.1";
        let mut launch =
            sandboxed(directory, &format!("cat {at}; echo; sh -c 'echo more >> {at}' 2>/dev/null || echo refused"));
        let shown = vec![Shown { from: file.display().to_string(), at: at.to_owned() }];
        launch.options.sandbox = Some(Sandbox { driver: shown, ..Sandbox::default() });
        launch
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
    run(&show(dir.path()));
    assert_eq!(stdout(dir.path()), "driver\nrefused\n");
    for change in
        [&|| fs::set_permissions(&file, fs::Permissions::from_mode(0o664)), &|| chown(&file, Some(65534), None)]
            as [&dyn Fn() -> std::io::Result<()>; 2]
    {
        change().expect("root may");
        let why = refusal(&show(directory().path()));
        assert!(why.ends_with("users other than root can change this file"), "{why}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("root may");
    }
}

#[test]
fn folders_that_would_open_the_sandbox_are_refused() {
    let refused = |folder: &str, change: &dyn Fn(&mut Launch)| {
        let dir = directory();
        let mut launch = sandboxed(dir.path(), "true");
        fs::create_dir(dir.path().join("own")).expect("writable");
        launch.cwd = launch.cwd.join(folder);
        change(&mut launch);
        refusal(&launch)
    };
    let mut outside = Command::new("sleep").arg("300").uid(65534).gid(65533).spawn().expect("sleep exists");
    for (folder, why) in [
        ("../own", "it does not belong to user somebody"),
        ("/", "it does not belong to user somebody"),
        ("missing", "No such file or directory"),
        ("../folder", "cannot be the path of a job's folder"),
        // Through its directory in /proc, a process of the same user leads to all its files.
        (&format!("/proc/{}", outside.id()), "it is in a file system of the kernel"),
    ] {
        let why_not = refused(folder, &|_| {});
        assert!(why_not.contains(why), "{folder}: {why_not}");
    }
    outside.kill().expect("ours");
    outside.wait().expect("ours");
    for home in ["", "below/deeper"] {
        let at_home = |launch: &mut Launch| {
            let home = launch.cwd.join(home);
            fs::create_dir_all(&home).expect("writable");
            limit(launch, Folders { private: vec![home.display().to_string()], ..Folders::default() });
        };
        assert!(refused("", &at_home).contains("programs outside of the sandbox trust the files of"), "{home}");
    }
    // The state of an agent.
    let inside = "own, where an agent keeps its state; use another directory";
    for (folder, expected) in [
        ("own", Some("own; use a directory without them")),
        ("own/images", Some(inside)),
        ("own/runs/7", Some(inside)),
        ("own/runs/7/steps", Some(inside)),
        ("own/runs/7/folder/below", None),
    ] {
        let dir = directory();
        let mut launch = sandboxed(dir.path(), "true");
        let path = |name: &str| launch.cwd.join(name).display().to_string();
        let of_runs = Some((path("own/runs"), "folder".to_owned()));
        let folders = Folders { state: vec![path("own")], of_runs, ..Folders::default() };
        limit(&mut launch, folders);
        launch.cwd = launch.cwd.join(folder);
        fs::create_dir_all(launch.cwd.parent().expect("below").join("folder")).expect("writable");
        fs::create_dir_all(&launch.cwd).expect("writable");
        chown(&launch.cwd, Some(65534), Some(65533)).expect("needs root");
        if let Some(expected) = expected {
            let why = refusal(&launch);
            assert!(why.contains(expected), "{folder}: {why}");
        } else {
            assert_eq!(run(&launch).status, Status::Exited { code: 0 });
        }
    }
    let through_link = |launch: &mut Launch| {
        // As an earlier job in the folder above may have left it.
        let link = launch.cwd.join("link");
        std::os::unix::fs::symlink("/tmp", &link).expect("writable");
        std::os::unix::fs::lchown(&link, Some(65534), Some(65533)).expect("needs root");
        launch.cwd = link.join("below");
    };
    assert!(refused("", &through_link).contains("link is a symbolic link; use the directory that it leads to"));
    let of_root = |launch: &mut Launch| launch.options.credentials.as_mut().expect("set").uid = 0;
    let of_agent = |launch: &mut Launch| launch.options.credentials = None;
    assert!(refused("", &of_root).contains("a user other than root"));
    assert!(refused("", &of_agent).contains("a user other than root"));
}

#[test]
fn job_of_another_user_than_the_agent_gets_only_the_folder_that_the_agent_made() {
    for (folder, is_made) in [
        ("made", true),
        ("made/below", true),
        ("made/link", false),
        ("beside", false),
        // Nothing of the message says that it does not exist.
        ("missing", false),
    ] {
        let dir = directory();
        let mut launch = sandboxed(dir.path(), "touch here");
        for name in ["made", "beside", "made/below"] {
            fs::create_dir(launch.cwd.join(name)).expect("writable");
            chown(launch.cwd.join(name), Some(65534), Some(65533)).expect("needs root");
        }
        std::os::unix::fs::symlink("../beside", launch.cwd.join("made/link")).expect("writable");
        let made = Some(launch.cwd.join("made").display().to_string());
        // It is in the agent's state.
        let state = vec![launch.cwd.display().to_string()];
        limit(&mut launch, Folders { made, only_made: true, state, ..Folders::default() });
        launch.cwd = launch.cwd.join(folder);
        if is_made {
            assert_eq!(run(&launch).status, Status::Exited { code: 0 }, "{folder}");
            assert!(launch.cwd.join("here").exists(), "{folder}");
        } else {
            let why = refusal(&launch);
            let expected = "the agent runs as user somebody, and a job of another user gets only the folder";
            assert!(why.contains(expected), "{folder}: {why}");
        }
    }
}

#[test]
fn background_processes_end_with_the_program() {
    let dir = directory();
    let record = run(&sandboxed(dir.path(), "setsid sleep 300 & exit 9"));
    assert_eq!((record.status, record.leftovers), (Status::Exited { code: 9 }, 0));
}
