//! A machine that runs systemd and can be rebooted: a real systemd in namespaces of its own, with Hostler's units only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hostler_testkit::{Outcome, wait_until};
use tempfile::TempDir;

/// Directories in which systemd looks for units: installed, transient and test units.
const UNITS: &str = "/etc/systemd/system:/run/systemd/transient:/run/units";

/// Sets up the machine and executes systemd. `DIR` survives its end, `GROUP` is its cgroup.
const BOOT: &str = r#"set -e
mount --make-rprivate /
mount --bind DIR/etc /etc
mount --bind DIR/var /var/lib
mount -t tmpfs none /run
mkdir -p /run/units
cd /run/units
for target in sysinit basic shutdown network-online; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $target > $target.target
done
printf '[Unit]\nDescription=up\nRequires=basic.target\nAfter=basic.target\n' > multi-user.target
ln -s multi-user.target default.target
echo $$ > GROUP/cgroup.procs
# Nothing of the real machine may be touched: neither its console nor its settings but those of our own network.
mount --bind /dev/null /dev/console
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw /proc/sys/net
hostname machine
sysctl -q net.ipv4.ip_forward=0
ip link set lo up
ip link add eth0 type veth peer name outer
ip link add eth1 type veth peer name inner
ip link set outer up
ip link set inner up
ip address add 192.0.2.7/24 dev eth0
ip link set eth0 up
exec unshare --cgroup sh -c 'umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=UNITS \
    /lib/systemd/systemd --log-target=console --show-status=no'
"#;

/// The machine. Dropping it is like a power cut.
pub(crate) struct Machine {
    holder: Child,
    directory: TempDir,
    group: PathBuf,
}

impl Machine {
    /// Starts a new machine with this gateway configuration.
    #[expect(clippy::disallowed_methods, reason = "a copy of /etc is shallow")]
    pub(crate) fn new(description: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("hostler-systemd-").tempdir().expect("a temporary directory");
        let etc = directory.path().join("etc");
        fs::create_dir(&etc).expect("the directory can be created");
        fs::create_dir_all(directory.path().join("var/hostler")).expect("the directory can be created");
        let copied = Command::new("cp").args(["--archive", "/etc/."]).arg(&etc).status().expect("cp can be started");
        assert!(copied.success());
        let _ = fs::remove_dir_all(etc.join("systemd/system"));
        fs::create_dir_all(etc.join("systemd/system")).expect("the directory can be created");
        fs::create_dir_all(etc.join("hostler")).expect("the directory can be created");
        let group = own_group().join(format!("hostler-systemd-{}", std::process::id()));
        let holder = boot(directory.path(), &group);
        let machine = Self { holder, directory, group };
        machine.describe(description);
        machine.wait_until_up();
        machine
    }

    /// Cuts the power and starts the machine again.
    pub(crate) fn start_anew(&mut self) {
        self.pull_the_plug();
        self.holder = boot(self.directory.path(), &self.group);
        self.wait_until_up();
    }

    pub(crate) fn describe(&self, description: &str) {
        fs::write(self.directory.path().join("etc/hostler/gateway.toml"), description).expect("the file is writable");
    }

    /// Runs a command on the machine.
    pub(crate) fn run(&self, command: &[&str]) -> Outcome {
        let first = child_of(self.holder.id()).expect("systemd runs").to_string();
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &first, "--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "env", "-i"]);
        enter.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", &format!("SYSTEMD_UNIT_PATH={UNITS}"), "HOME=/root"]);
        Outcome::of(&enter.args(command).stdin(Stdio::null()).output().expect("nsenter can be started"))
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, command: &[&str]) -> String {
        let outcome = self.run(command);
        assert_eq!(outcome.code, 0, "{command:?}: {outcome:?}");
        outcome.stdout
    }

    /// Runs `hostler gateway` on the machine.
    pub(crate) fn gateway(&self, arguments: &[&str]) -> Outcome {
        self.run(&[&[env!("CARGO_BIN_EXE_hostler"), "gateway"], arguments].concat())
    }

    fn wait_until_up(&self) {
        let is_up = || self.run(&["systemctl", "is-active", "--quiet", "multi-user.target"]).code == 0;
        wait_until("systemd to be up", 60, || (child_of(self.holder.id()).is_some() && is_up()).then_some(()));
    }

    fn pull_the_plug(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // The kernel needs a moment to mark a cgroup as empty.
        wait_until("the machine's groups to be empty", 30, || {
            remove_groups(&self.group);
            (!self.group.exists()).then_some(())
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        for _ in 0..100 {
            remove_groups(&self.group);
            if !self.group.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn boot(directory: &Path, group: &Path) -> Child {
    fs::create_dir(group).unwrap_or_else(|error| panic!("cannot make {}, as root: {error}", group.display()));
    let script = BOOT
        .replace("DIR", &directory.display().to_string())
        .replace("GROUP", &group.display().to_string())
        .replace("SYSTEMD_UNIT_PATH=UNITS", &format!("SYSTEMD_UNIT_PATH={UNITS}"));
    let log = fs::File::create(directory.join("log")).expect("the file is writable");
    let copy = log.try_clone().expect("the file is open");
    Command::new("unshare")
        .args([
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--uts",
            "--ipc",
            "--mount-proc",
            "sh",
            "-c",
            &script,
        ])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(copy)
        .spawn()
        .expect("unshare can be started")
}

/// The cgroup of this process in the unified hierarchy.
fn own_group() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has it");
    let mount =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("control groups of version 2 are mounted");
    let groups = fs::read_to_string("/proc/self/cgroup").expect("the kernel has it");
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).expect("every process is in one");
    Path::new(mount.split(' ').nth(4).expect("a place")).join(own.trim_start_matches('/'))
}

fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_groups(&entry.path());
    }
    let _ = fs::remove_dir(group);
}

/// The only child of a process, if any.
fn child_of(pid: u32) -> Option<u32> {
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|candidate: &u32| {
        let stat = fs::read_to_string(format!("/proc/{candidate}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(pid)
    })
}
