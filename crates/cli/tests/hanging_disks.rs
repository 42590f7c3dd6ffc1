//! A job whose program lies on a file system that never answers disturbs no other user. Needs root and FUSE.

use std::fs;
use std::process::{Command, Stdio};

use hostler_testkit::{HangingDisk, SharedCluster, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

#[test]
fn program_on_a_hanging_disk_delays_no_other_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    for request in ["lookup", "open", "read"] {
        let at = cluster.path(request);
        fs::create_dir(&at).expect("new");
        let disk = HangingDisk::mount(Command::new("python3"), &at, request);
        let stuck = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "32M", "--", &disk.program()]);
        wait_until("the job to be placed", 30, || (cluster.job(&stuck)["state"] == "starting").then_some(()));
        let mut other = cluster.command(BOB, &["run", "-c", "1", "-m", "32M", "--", "echo", "fine"]);
        let mut other = other.stdout(Stdio::piped()).spawn().expect("the program starts");
        wait_until(&format!("another user's job beside a hanging {request}"), 15, || {
            other.try_wait().expect("a child")
        });
        let output = other.wait_with_output().expect("it has ended");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{output:?}");
        let nodes: serde_json::Value =
            serde_json::from_str(&cluster.ok("root", &["nodes", "--json"])).expect("valid JSON");
        assert_eq!(nodes[0]["state"], "up", "{nodes}");
        drop(disk);
        assert_ne!(cluster.run(ADA, &["wait", &stuck]).code, 0, "its program cannot be read");
    }
}
