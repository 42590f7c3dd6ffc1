//! A host: its files, commands and daemons.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::groups::Groups;
use super::process::{in_network_of, start, succeed};
use crate::accounts::remove_people;
use crate::cluster::end_of_log;
use crate::{Outcome, is_alive, kill, wait_until};

/// Directories private to a host, and their names below the host's root. `/tmp` is last, because mounting it may hide
/// that root.
const PRIVATE: [(&str, &str); 6] =
    [("/etc", "etc"), ("/var/lib", "var-lib"), ("/root", "root"), ("/home", "home"), ("/run", "run"), ("/tmp", "tmp")];

/// A host on the switch. Dropping the value is like a power cut: all processes end, and only the host's files remain.
pub struct Host {
    plan: Plan,
    /// `None` while the host is off.
    running: Option<Namespaces>,
}

/// Namespaces and control groups of a running host.
struct Namespaces {
    holder: Child,
    // Declared last: the groups can be removed only after the processes have ended.
    _groups: Groups,
}

pub(super) struct Plan {
    pub(super) name: String,
    pub(super) address: String,
    /// Directory of the host's files on this machine.
    pub(super) root: PathBuf,
    pub(super) roster: PathBuf,
    pub(super) executable: PathBuf,
    /// A process in the switch's network namespace.
    pub(super) switch: u32,
    /// Name of the host's port on the switch.
    pub(super) port: String,
}

/// A daemon on a host. Dropping the value does not end the daemon; switching the host off ends it.
pub struct Daemon {
    entry: Child,
    pid: u32,
}

impl Host {
    /// Starts the host and connects it to the switch.
    pub(super) fn start(plan: Plan) -> Self {
        lay_out(&plan);
        let mut host = Self { plan, running: None };
        host.power_on();
        host
    }

    /// Switches the host on after [`Self::power_off`]. It keeps its files and its address; no processes run.
    ///
    /// # Panics
    /// If the host is on, or namespaces cannot be created.
    pub fn power_on(&mut self) {
        assert!(self.running.is_none(), "{} is on", self.name());
        let groups = Groups::make();
        write_scripts(&self.plan, &groups);
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"]);
        let holder = start(command.arg(self.plan.root.join("run/boot")));
        self.running = Some(Namespaces { holder, _groups: groups });
        self.plug_in();
    }

    /// Cuts the power. All processes end, and `/run` and `/tmp` are emptied.
    ///
    /// # Panics
    /// If files in `/run` or `/tmp` cannot be removed.
    #[expect(clippy::disallowed_methods, reason = "tests create no deep directories there")]
    pub fn power_off(&mut self) {
        self.running = None;
        for volatile in ["run", "tmp"].map(|name| self.plan.root.join(name)) {
            // The kernel removes the mounts only a moment after the last process has ended.
            wait_until("the mounts of a host to be removed", 10, || fs::remove_dir_all(&volatile).ok());
            fs::create_dir(&volatile).expect("the directory was removed above");
        }
    }

    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.running.is_some()
    }

    /// The host's name, which the other hosts can resolve.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Joins the cluster of the head on another host, as a node with this host's name. Starts no agent.
    ///
    /// # Panics
    /// If the head refuses the node.
    pub fn join(&self, head: &Self) {
        let code = head.ok(&["hostler", "node", "invite", self.name()]);
        let joined = self.run_with_input(&["hostler", "agent", "join", "-"], &format!("{code}\n"));
        assert_eq!(joined.code, 0, "{joined:?}");
    }

    /// The host's address in the network.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.plan.address
    }

    /// The path on this machine of a host's file. `path` must be below one of the host's private directories.
    ///
    /// # Panics
    /// If `path` is outside these directories.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        let found = PRIVATE.iter().find_map(|(at, name)| {
            let rest = Path::new(path).strip_prefix(at).ok()?;
            Some(self.plan.root.join(name).join(rest))
        });
        found.unwrap_or_else(|| panic!("{path} is not in a private directory of the host"))
    }

    /// Writes a file of the host, and creates its parent directories.
    ///
    /// # Panics
    /// If writing fails.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("the path has a parent")).expect("directories can be created");
        fs::write(path, content).expect("a file can be written");
    }

    /// Reads a file of the host; empty if it does not exist.
    #[must_use]
    pub fn read(&self, path: &str) -> String {
        fs::read(self.path(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Builds a command on the host, as root in `/home/op`.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.enter();
        command.args(["sh", "/run/enter"]).args(arguments);
        command
            .env_clear()
            .env("PATH", format!("/run/bin:{}", std::env::var("PATH").unwrap_or_default()))
            .env("HOME", "/home/op")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command on the host to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(&self.command(arguments).output().expect("nsenter can be started"))
    }

    /// Runs a command on the host with this standard input.
    ///
    /// # Panics
    /// If it cannot be started or does not read its input.
    #[must_use]
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Outcome {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter can be started");
        child
            .stdin
            .take()
            .expect("the stream is piped")
            .write_all(input.as_bytes())
            .expect("the child reads its input");
        Outcome::of(&child.wait_with_output().expect("the program ends"))
    }

    /// Runs a command that must succeed. Returns stdout without the final newline.
    ///
    /// # Panics
    /// If it fails; the message has its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "{arguments:?} failed on {}: {}", self.name(), outcome.stderr);
        outcome.stdout.trim_end_matches('\n').to_owned()
    }

    /// Runs a command with `--json`. Returns its output.
    ///
    /// # Panics
    /// If it fails or prints no JSON.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?} printed no JSON: {error}: {text}"))
    }

    /// A command that runs in the host's network namespace, with the machine's files.
    #[must_use]
    pub fn in_network(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.holder().to_string(), "--"]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a thread of the test in the host's network namespace. Threads that it starts run there too.
    ///
    /// # Panics
    /// If the host is off.
    pub fn thread<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let network = File::open(format!("/proc/{}/ns/net", self.holder())).expect("the host is on");
        std::thread::spawn(move || {
            setns(network, CloneFlags::CLONE_NEWNET).expect("tests run as root");
            run()
        })
    }

    /// Starts a daemon and appends its output to `/home/op/LOG.log`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn daemon(&self, log: &str, arguments: &[&str]) -> Daemon {
        let path = self.path(&format!("/home/op/{log}.log"));
        let log = File::options().append(true).create(true).open(path).expect("a log can be written");
        let mut command = self.command(arguments);
        let entry = command.stdout(Stdio::null()).stderr(log).spawn().expect("nsenter can be started");
        // If the daemon has ended already, its pid is unknown, and the entry's stands for it.
        let ended = || (!is_alive(entry.id())).then_some(entry.id());
        let pid = wait_until("a daemon to start on the host", 30, || child_of(entry.id()).or_else(ended));
        Daemon { entry, pid }
    }

    /// Stops all processes of the host. Like on a suspended machine, connections stay open but nothing answers.
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    /// Continues all processes of the host.
    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    /// Runs a shell command in the host's namespaces. It must succeed.
    pub(super) fn shell(&self, script: &str) {
        succeed(self.enter().args(["sh", "-c", script]));
    }

    /// Runs a shell command in the switch's network namespace. It must succeed.
    pub(super) fn at_switch(&self, script: &str) {
        in_network_of(self.plan.switch, script);
    }

    pub(super) fn port(&self) -> &str {
        &self.plan.port
    }

    /// Signals all processes of the host except the first one and the sender.
    fn signal_all(&self, signal: &str) {
        self.shell(&format!("kill -{signal} -1"));
    }

    fn plug_in(&self) {
        let (port, pid, address) = (self.port(), self.holder(), self.address());
        // The old link may not be removed yet.
        self.at_switch(&format!(
            "ip link delete {port} 2>/dev/null; ip link add {port} type veth peer name eth0 netns {pid} && ip link set {port} master switch up"
        ));
        self.shell(&format!("ip address add {address}/24 dev eth0 && ip link set eth0 up"));
    }

    /// Enters the host's namespaces, but not its control groups.
    fn enter(&self) -> Command {
        let pid = self.holder();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--uts", "--target", &pid.to_string()]);
        command.args([&format!("--pid=/proc/{pid}/ns/pid_for_children"), "--"]);
        command
    }

    /// The process that holds the namespaces; 0 if the host is off.
    pub(super) fn holder(&self) -> u32 {
        self.running.as_ref().map_or(0, |running| running.holder.id())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in fs::read_dir(self.path("/home/op")).into_iter().flatten().flatten() {
                if entry.path().extension().is_some_and(|extension| extension == "log") {
                    #[expect(clippy::print_stderr, reason = "a failing test prints the daemons' logs")]
                    {
                        eprintln!("{}", end_of_log(&entry.path()));
                    }
                }
            }
        }
    }
}

impl Daemon {
    /// The pid outside the host's pid namespace.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL to the daemon and waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill_9(mut self) {
        kill(self.pid, Signal::SIGKILL);
        let _ = self.entry.wait();
        wait_until("a killed daemon to end", 10, || (!is_alive(self.pid)).then_some(()));
    }
}

fn lay_out(plan: &Plan) {
    let root = plan.root.display();
    for (_, name) in PRIVATE {
        fs::create_dir_all(plan.root.join(name)).expect("directories can be created");
    }
    fs::create_dir(plan.root.join("home/op")).expect("directories can be created");
    succeed(Command::new("cp").args(["--archive", "/etc/.", &format!("{root}/etc")]));
    remove_people(&plan.root.join("etc"));
    // A mount follows symbolic links, so the mount point must be a regular file.
    let _ = fs::remove_file(plan.root.join("etc/hosts"));
    File::create(plan.root.join("etc/hosts")).expect("the file is writable");
}

/// Writes the scripts that start and enter the host.
fn write_scripts(plan: &Plan, groups: &Groups) {
    let root = plan.root.display();
    fs::create_dir_all(plan.root.join("run/bin")).expect("directories can be made");
    // The executable, and the small program built with it.
    let small = "hostler-tools";
    let executables = [("hostler", plan.executable.clone()), (small, plan.executable.with_file_name(small))];
    let bind = |(name, path): &(&str, PathBuf)| {
        File::create(plan.root.join("run/bin").join(name)).expect("the file is writable");
        format!("mount --bind {} {root}/run/bin/{name}\n", path.display())
    };
    let executables: String = executables.iter().filter(|(_, path)| path.exists()).map(bind).collect();
    let enter = groups.enter();
    let binds: String = PRIVATE.iter().map(|(at, name)| format!("mount --rbind {root}/{name} {at}\n")).collect();
    // The first process reaps orphans, like any init, and ends with the pipe.
    let boot = format!(
        "set -e\n{enter}hostname {}\nip link set lo up\nmount --bind {} {root}/etc/hosts\n\
         {executables}cat /proc/sys/kernel/random/uuid > {root}/run/boot_id\n\
         mount --bind {root}/run/boot_id /proc/sys/kernel/random/boot_id\n{binds}echo ready\nexec 3<&0 >&2\ncat <&3 &\nwait $!\n",
        plan.name,
        plan.roster.display(),
    );
    fs::write(plan.root.join("run/boot"), boot).expect("the file is writable");
    fs::write(plan.root.join("run/enter"), format!("{enter}cd /home/op\nexec \"$@\"\n")).expect("the file is writable");
}

/// Waits until a process has a child, and returns the child.
fn child_of(pid: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?;
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|candidate: &u32| {
        let stat = fs::read_to_string(format!("/proc/{candidate}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(pid)
    })
}
