//! The cluster and its users: a head and four agents, run by root, with small disks, and accounts visible only to
//! this process.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use hostler_testkit::{
    Outcome, Person, SmallDisk, free_port, invite, kill, replace_people_for_this_thread, wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const USERS: u32 = 20;

/// Uid and gid of the first user.
pub(crate) const FIRST_UID: u32 = 61_001;

pub(crate) const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// Size of the head's disk and of the first node's disk.
const DISK_BYTES: u64 = 512 << 20;

pub(crate) struct World {
    home: TempDir,
    executable: PathBuf,
    port: u16,
    head: Mutex<Option<Child>>,
    agents: [Mutex<Option<Child>>; NODES.len()],
    _disks: [SmallDisk; 2],
}

impl World {
    pub(crate) fn up(executable: &Path) -> Self {
        let home = tempfile::Builder::new().prefix("hostler-soak-").tempdir().expect("a temporary directory");
        fs::set_permissions(home.path(), Permissions::from_mode(0o711)).expect("just created");
        make_accounts(home.path());
        let copy = home.path().join("hostler");
        fs::copy(executable, &copy).expect("the executable exists");
        let disk = |name: &str| {
            let disk = SmallDisk::mount(&home.path().join(name), DISK_BYTES);
            fs::set_permissions(home.path().join(name), Permissions::from_mode(0o711)).expect("the test owns the file");
            disk
        };
        let disks = [disk("head"), disk("n1")];
        let world = Self {
            executable: copy,
            port: free_port(),
            head: Mutex::default(),
            agents: std::array::from_fn(|_| Mutex::default()),
            _disks: disks,
            home,
        };
        world.start_head();
        for (index, node) in NODES.iter().enumerate() {
            fs::write(world.path(&format!("{node}.join")), invite(&world.socket(), node))
                .expect("the file is writable");
            world.start_agent(index);
        }
        world.wait_for_nodes();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("head.sock")
    }

    /// Starts the head and waits until it answers.
    pub(crate) fn start_head(&self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let (directory, socket) = (text(&self.path("head/state")), text(&self.socket()));
        let mut init = self.daemon("init", &["head", "init", "--directory", &directory]);
        assert!(init.wait().expect("the process is not reaped yet").success(), "see init.log");
        let child =
            self.daemon("head", &["head", "run", "--directory", &directory, "--socket", &socket, "--listen", &listen]);
        *self.head.lock().expect("the lock is not poisoned") = Some(child);
        wait_until("the head to listen", 60, || UnixStream::connect(self.socket()).ok());
    }

    pub(crate) fn start_agent(&self, index: usize) {
        let node = NODES[index];
        let (directory, join) = (text(&self.path(&format!("{node}/state"))), text(&self.path(&format!("{node}.join"))));
        let arguments = [
            "agent",
            "run",
            "--name",
            node,
            "--cpus",
            "0-1",
            "--memory",
            "1G",
            "--directory",
            &directory,
            "--join-file",
            &join,
        ];
        *self.agents[index].lock().expect("the lock is not poisoned") = Some(self.daemon(node, &arguments));
    }

    fn daemon(&self, name: &str, arguments: &[&str]) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")))
            .expect("the file is writable");
        Command::new(&self.executable)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor is free"))
            .stderr(log)
            .spawn()
            .expect("the executable can be started")
    }

    /// Whether a daemon has ended unexpectedly. `None` is the head.
    pub(crate) fn has_ended(&self, daemon: Option<usize>) -> bool {
        let mut child = self.child(daemon).lock().expect("the lock is not poisoned");
        child.as_mut().is_some_and(|child| child.try_wait().expect("the process is not reaped yet").is_some())
    }

    /// Sends a signal to a daemon. If the signal ends the daemon, waits for the end. `None` is the head.
    pub(crate) fn signal(&self, daemon: Option<usize>, signal: Signal) {
        let mut child = self.child(daemon).lock().expect("the lock is not poisoned");
        let Some(running) = child.as_mut() else { return };
        kill(running.id(), signal);
        if matches!(signal, Signal::SIGKILL | Signal::SIGTERM) {
            running.wait().expect("the process is not reaped yet");
            *child = None;
        }
    }

    fn child(&self, daemon: Option<usize>) -> &Mutex<Option<Child>> {
        daemon.map_or(&self.head, |index| &self.agents[index])
    }

    /// The pid of a running daemon. `None` is the head.
    pub(crate) fn pid(&self, daemon: Option<usize>) -> Option<u32> {
        self.child(daemon).lock().expect("the lock is not poisoned").as_ref().map(Child::id)
    }

    pub(crate) fn wait_for_nodes(&self) {
        wait_until("all nodes to be up", 120, || {
            let nodes: Value = serde_json::from_str(&self.run(None, &["nodes", "--json"]).stdout).ok()?;
            let up = nodes.as_array()?.iter().filter(|node| node["state"] == "up").count();
            (up == NODES.len()).then_some(())
        });
    }

    /// Builds a command of the program as a user, or as root for `None`.
    pub(crate) fn command(&self, user: Option<u32>, arguments: &[&str]) -> Command {
        let home = user.map_or_else(|| self.path("root"), |user| self.home_of(user));
        let mut command = Command::new(&self.executable);
        if let Some(user) = user {
            command.uid(FIRST_UID + user).gid(FIRST_UID + user);
        }
        command
            .args(arguments)
            .current_dir(&home)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &home)
            .env("LANG", "C.UTF-8")
            .env("HOSTLER_HEAD", format!("unix:{}", self.socket().display()))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command, with a timeout of half a minute.
    pub(crate) fn run(&self, user: Option<u32>, arguments: &[&str]) -> Outcome {
        let mut command = Command::new("timeout");
        let inner = self.command(user, arguments);
        command.args(["-k", "5", "30"]).arg(inner.get_program()).args(inner.get_args()).env_clear();
        if let Some(user) = user {
            command.uid(FIRST_UID + user).gid(FIRST_UID + user);
        }
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.current_dir(inner.get_current_dir().expect("the command has a directory")).stdin(Stdio::null());
        Outcome::of(&command.output().expect("the program can be started"))
    }

    pub(crate) fn home_of(&self, user: u32) -> PathBuf {
        self.path(&format!("home/{}", name_of(user)))
    }

    /// Summarizes the state of the cluster in one line.
    pub(crate) fn at_a_glance(&self) -> String {
        let info = self.run(None, &["info", "--json"]).stdout;
        let info: Value = serde_json::from_str(&info).unwrap_or_default();
        format!("nodes {}, tasks {}", info["nodes"], info["tasks"])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for daemon in (0..NODES.len()).map(Some).chain([None]) {
            self.signal(daemon, Signal::SIGCONT);
            self.signal(daemon, Signal::SIGTERM);
        }
    }
}

pub(crate) fn name_of(user: u32) -> String {
    format!("soak{:02}", user + 1)
}

/// Adds the users to the accounts visible to this process and its children, and creates their homes.
fn make_accounts(home: &Path) {
    fs::create_dir(home.join("root")).expect("the directory is new");
    fs::create_dir(home.join("home")).expect("the directory is new");
    fs::set_permissions(home.join("home"), Permissions::from_mode(0o711)).expect("just created");
    let people: Vec<Person> = (0..USERS)
        .map(|user| {
            let (name, id) = (name_of(user), FIRST_UID + user);
            let directory = home.join("home").join(&name);
            for directory in [directory.clone(), directory.join("ran")] {
                fs::create_dir(&directory).expect("the directory is new");
                fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("just created");
                chown(&directory, Some(id), Some(id)).expect("root has permission");
            }
            Person { name, id, home: directory }
        })
        .collect();
    replace_people_for_this_thread(&people);
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
