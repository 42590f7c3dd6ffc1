//! Tests of runs as another user, and of what that user cannot access. They need root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use hostler_shepherd::{Containment, Credentials, Launch, Status};

use crate::common::{Leaves, command, directory, drop_and_end, run, script, start_run, stdout};

fn somebody() -> Credentials {
    Credentials { name: "somebody".into(), uid: 65534, gid: 65533, groups: vec![65532] }
}

/// A launch of `sh -c text` as [`somebody`], in `/`.
fn as_somebody(directory: &Path, text: &str) -> Launch {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).expect("ours");
    let mut launch = script(directory, text);
    launch.cwd = "/".into();
    launch.options.credentials = Some(somebody());
    launch
}

#[test]
fn run_as_another_user_has_no_rights_of_root() {
    let dir = directory();
    let launch =
        as_somebody(dir.path(), "grep -E '^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status");
    assert_eq!(run(&launch).status, Status::Exited { code: 0 }, "changing the user needs root");
    let none = "0000000000000000";
    let expected = format!(
        "Uid:\t65534\t65534\t65534\t65534\nGid:\t65533\t65533\t65533\t65533\nGroups:\t65532 \n\
         CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\n"
    );
    assert_eq!(stdout(dir.path()), expected);
}

#[test]
fn set_user_id_program_gains_no_rights() {
    let dir = directory();
    let copy = dir.path().join("id");
    fs::copy("/usr/bin/id", &copy).expect("readable");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("ours");
    run(&as_somebody(dir.path(), &format!("{} -u", copy.display())));
    assert_eq!(stdout(dir.path()), "65534\n");
}

#[test]
fn run_gets_only_its_outputs_a_new_keyring_and_no_core_files() {
    let dir = directory();
    // The sixth column of a key is its owner. Other columns can be 0 as well, e.g. the uses of a key that is about to go.
    let text = "ls /proc/self/fd | tr '\\n' ' '; ulimit -Sc; of() { grep -E \"^([^ ]+ +){5}$1 .* _ses\" /proc/keys; }; \
                of 65534 > /dev/null && echo own; of 0; true";
    run(&as_somebody(dir.path(), text));
    // Descriptor 3 is the directory that `ls` reads.
    assert_eq!(stdout(dir.path()), "0 1 2 3 0\nown\n");
}

#[test]
fn outputs_belong_to_the_user() {
    let dir = directory();
    run(&as_somebody(dir.path(), "echo one > /dev/stdout; echo two >> /dev/stderr"));
    assert_eq!(stdout(dir.path()), "one\n");
    for name in ["stdout", "stderr"] {
        let metadata = fs::metadata(dir.path().join(name)).expect("the file exists");
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (65534, 0o600), "{name}");
    }
    assert_eq!(hostler_shepherd::wipe(dir.path()).expect("looks"), Some(65534), "only runs of this user may reuse it");
}

#[test]
fn user_cannot_access_the_shepherd_and_the_journal() {
    let dir = directory();
    let text =
        "for file in environ mem maps fd/0; do head -c1 /proc/$PPID/$file > /dev/null 2>&1 && echo reads $file; done
        kill -0 $PPID 2> /dev/null && echo signals; kill -9 $PPID 2> /dev/null
        cat $0/journal 2> /dev/null; ls $0 2> /dev/null; rm -f $0/journal 2> /dev/null; mv $0/stdout $0/x 2> /dev/null
        echo 1 2> /dev/null > $1/cgroup.procs; echo over";
    let leaves = Leaves::new();
    let leaf = leaves.leaf("users");
    let mut launch = as_somebody(dir.path(), text);
    launch.argv.extend([dir.path().into(), leaf.path.clone().into()]);
    launch.options.leaf = Some(leaf.clone());
    let record = run(&launch);
    assert_eq!(stdout(dir.path()), "over\n");
    assert_eq!(record.containment, Containment::Leaf { path: leaf.path });
    assert_eq!(record.status, Status::Exited { code: 0 });
}

#[test]
fn error_for_an_inaccessible_directory_names_the_user() {
    let (dir, private) = (directory(), directory());
    let mut launch = as_somebody(dir.path(), "true");
    fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).expect("ours");
    launch.cwd = private.path().to_owned();
    let status = run(&launch).status;
    let Status::StartFailed { message, code } = status else { panic!("the run started: {status:?}") };
    let expected = format!(
        "cannot enter directory `{}` as user `somebody` (uid 65534): Permission denied",
        private.path().display()
    );
    assert_eq!((message, code), (expected, 126));
}

#[test]
fn lingering_shepherd_runs_each_launch_as_its_user() {
    let (first, second) = (directory(), directory());
    let mut launch = as_somebody(first.path(), "id -u");
    launch.options.linger = Some(std::time::Duration::from_secs(60));
    let mut shepherd = start_run(&launch);
    crate::common::finished(&mut shepherd);
    let mut own = command(second.path(), ["id", "-u"]);
    own.options.linger = launch.options.linger;
    shepherd.launch_next(&own).expect("the shepherd waits for another run");
    crate::common::finished(&mut shepherd);
    drop_and_end(shepherd);
    assert_eq!((stdout(first.path()).trim(), stdout(second.path()).trim()), ("65534", "0"));
}
