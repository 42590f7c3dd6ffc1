//! The launcher that all tests share, and helpers that build launches.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hostler_shepherd::cgroup::{LeafSpec, Tree};
use hostler_shepherd::journal::JournalContent;
use hostler_shepherd::{Event, ExitRecord, Launch, Launcher, Options, Shepherd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;

/// Timeout: long enough for a loaded machine, short enough to notice a hang.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Directory of the run that this process should start in the role of an agent.
const AGENT: &str = "HOSTLER_TEST_AGENT_DIRECTORY";
const AGENT_SCRIPT: &str = "HOSTLER_TEST_AGENT_SCRIPT";
const AGENT_LEAF: &str = "HOSTLER_TEST_AGENT_LEAF";

/// Script or program that this process should run in the role of `hostler session-leader`.
pub(crate) const SESSION_LEADER: &str = "HOSTLER_TEST_SESSION_LEADER";
pub(crate) const SESSION_LEADER_PROGRAM: &str = "HOSTLER_TEST_SESSION_LEADER_PROGRAM";

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// The launcher must start while there is one thread, but the test harness starts threads before any test runs. The C
/// runtime calls the functions in this section before `main`.
// SAFETY: an entry of `.init_array` is a pointer to a function of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    act_as_session_leader();
    let launcher = Launcher::start().expect("the process has only one thread");
    if let Some(directory) = std::env::var_os(AGENT) {
        act_as_agent(&launcher, Path::new(&directory));
    }
    LAUNCHER.set(launcher).expect("the launcher is set once");
}

/// Acts like `hostler session-leader`, if requested.
fn act_as_session_leader() {
    let script = |text| vec!["/bin/sh".into(), "-c".into(), text];
    let program = || std::env::var_os(SESSION_LEADER_PROGRAM).map(|name| vec![name]);
    let argv = std::env::var_os(SESSION_LEADER).map(script).or_else(program);
    let Some(argv) = argv else { return };
    let code = hostler_shepherd::session_leader::run(&argv).unwrap_or_else(|error| {
        write!(std::io::stderr(), "{error}").expect("stderr is open");
        125
    });
    std::process::exit(code);
}

pub(crate) fn launcher() -> &'static Launcher {
    LAUNCHER.get().expect("set before main")
}

/// Starts the run and waits until it is killed.
fn act_as_agent(launcher: &Launcher, directory: &Path) -> ! {
    let text = |name| std::env::var(name).expect("set by the test");
    let mut launch = script(directory, &text(AGENT_SCRIPT));
    launch.options.identity = "of the first agent".into();
    launch.options.leaf =
        std::env::var_os(AGENT_LEAF).map(|path| LeafSpec { path: path.into(), ..LeafSpec::default() });
    let _shepherd = launcher.launch(&launch).expect("launches");
    fs::write(directory.join("launched"), "").expect("the directory is writable");
    loop {
        thread::park();
    }
}

/// Starts this program as an agent with one run. Returns when the run has started.
pub(crate) fn start_agent(directory: &Path, script: &str, leaf: Option<&LeafSpec>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.env(AGENT, directory).env(AGENT_SCRIPT, script);
    if let Some(leaf) = leaf {
        command.env(AGENT_LEAF, &leaf.path);
    }
    let child = command.spawn().expect("the test program can be started");
    eventually("the agent launches", || directory.join("launched").exists());
    child
}

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A launch of `/bin/sh -c script` in its own directory.
pub(crate) fn script(directory: &Path, script: &str) -> Launch {
    command(directory, ["/bin/sh", "-c", script])
}

pub(crate) fn command<S: Into<OsString>>(directory: &Path, argv: impl IntoIterator<Item = S>) -> Launch {
    Launch {
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: directory.to_owned(),
        options: Options {
            grace: Duration::from_millis(300),
            identity: "test".into(),
            // Ends runs that a failed test leaves behind.
            time_limit: Some(4 * DEADLINE),
            ..Options::default()
        },
        ..Launch::new(directory, argv)
    }
}

pub(crate) fn start_run(launch: &Launch) -> Shepherd {
    launcher().launch(launch).expect("launches")
}

/// Executes a run to its end and checks invariants of every run.
pub(crate) fn run(launch: &Launch) -> ExitRecord {
    finish(&mut start_run(launch), &launch.directory)
}

/// Waits for the end of a run and of its shepherd.
pub(crate) fn finish(shepherd: &mut Shepherd, directory: &Path) -> ExitRecord {
    let record = finished(shepherd);
    let on_disk = JournalContent::read(directory).expect("readable").ended.expect("written before it is announced");
    assert_eq!(record, *on_disk);
    assert!(ends(shepherd), "the shepherd exits after its record");
    record
}

/// Drops the handle of a lingering shepherd and waits for its end.
pub(crate) fn drop_and_end(shepherd: Shepherd) {
    let pid = shepherd.pid();
    drop(shepherd);
    eventually("an idle shepherd ends without an agent", || !is_alive(pid));
}

/// Waits for the next end of a run and skips other events.
pub(crate) fn finished(shepherd: &mut Shepherd) -> ExitRecord {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if let Some(Event::Finished(record)) = shepherd.try_next_event().expect("the shepherd is there") {
            return *record;
        }
        let wait = PollTimeout::from(100u16);
        poll(&mut [PollFd::new(shepherd.connection(), PollFlags::POLLIN)], wait).expect("polls");
    }
    panic!("the run did not end within {DEADLINE:?}");
}

/// Whether the shepherd exits before the deadline.
pub(crate) fn ends(shepherd: &Shepherd) -> bool {
    let wait = PollTimeout::try_from(DEADLINE).expect("fits");
    poll(&mut [PollFd::new(shepherd.as_fd(), PollFlags::POLLIN)], wait).expect("polls") == 1
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "this did not happen within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn stdout(directory: &Path) -> String {
    fs::read_to_string(directory.join("stdout")).expect("text")
}

/// Waits until a job has written its pid to the file `name`.
pub(crate) fn pid_in(directory: &Path, name: &str) -> u32 {
    let mut pid = 0;
    eventually(&format!("a pid in {name}"), || {
        let text = fs::read_to_string(directory.join(name)).unwrap_or_default();
        pid = if text.ends_with('\n') { text.trim().parse().unwrap_or(0) } else { 0 };
        pid != 0
    });
    pid
}

/// Whether `pid` is alive and not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A separate cgroup for one test, with a tree for leaves. Removed at the end.
pub(crate) struct Leaves {
    group: PathBuf,
    pub(crate) tree: Tree,
}

impl Leaves {
    pub(crate) fn new() -> Leaves {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let hint = "these tests need a writable cgroup2 hierarchy: run them as root";
        let own = Tree::find().expect(hint).path().parent().expect("the group is not the root").to_owned();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = own.join(format!("hostler-test-{}-{number}", std::process::id()));
        fs::create_dir(&group).expect(hint);
        let tree = Tree::below(&group).expect(hint);
        Leaves { group, tree }
    }

    pub(crate) fn leaf(&self, name: &str) -> LeafSpec {
        self.tree.leaf(name).expect("a plain name")
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        // Kill leftovers of a failed test.
        let _ = self.tree.sweep("", &Default::default());
        let _ = fs::remove_dir(self.tree.path());
        let _ = fs::remove_dir(&self.group);
        // Created by the search for the tree; not removed while others use it.
        let _ = fs::remove_dir(self.group.with_file_name("hostler"));
    }
}
