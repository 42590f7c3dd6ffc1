//! Tests of calls: commands with streams of the caller, which end with their caller.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use hostler_shepherd::{
    CallOptions, Containment, Enforcement, Event, Launch, LaunchError, ResourceLimit, Shepherd, Status,
};

use crate::common::{
    DEADLINE, Leaves, command, directory, drop_and_end, ends, eventually, finished, is_alive, launcher, pid_in,
};

/// A call of a command, without a directory.
pub(crate) fn call<S: Into<std::ffi::OsString>>(argv: impl IntoIterator<Item = S>) -> Launch {
    let mut launch = command(std::path::Path::new("/does/not/exist"), argv);
    launch.cwd = "/".into();
    launch.options.call = Some(CallOptions::default());
    launch
}

pub(crate) fn shell(text: &str) -> Launch {
    call(["/bin/sh", "-c", text])
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    (read.into(), write)
}

fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").expect("the device exists").into()
}

/// Starts a call without input whose output is discarded.
pub(crate) fn start_quietly(launch: &Launch) -> Shepherd {
    let null = null();
    launcher().call(launch, [null.as_fd(); 3], None).expect("starts")
}

/// Runs a call to its end. Returns its standard output and standard error.
fn run_call(launch: &Launch, input: &[u8]) -> (Status, String, String) {
    let (stdin, mut typed) = pipe();
    let ((mut output, stdout), (mut errors, stderr)) = (pipe(), pipe());
    let mut shepherd = launcher().call(launch, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()], None).expect("starts");
    drop((stdin, stdout, stderr));
    File::from(std::mem::replace(&mut typed, null())).write_all(input).expect("the input fits into the pipe");
    let [mut printed, mut complained] = [const { String::new() }; 2];
    output.read_to_string(&mut printed).expect("the pipe ends when all writing ends are closed");
    errors.read_to_string(&mut complained).expect("the pipe ends when all writing ends are closed");
    let record = finished(&mut shepherd);
    assert!(ends(&shepherd));
    (record.status, printed, complained)
}

#[test]
fn call_uses_the_callers_streams_until_their_end() {
    let text = "read line; echo got $line; cat; echo bad >&2; exit 3";
    let ended = run_call(&shell(text), b"one\ntwo\n");
    assert_eq!(ended, (Status::Exited { code: 3 }, "got one\ntwo\n".into(), "bad\n".into()));
    let (status, ..) = run_call(&shell("kill -USR1 $$"), b"");
    assert_eq!(status, Status::Signaled { signal: libc::SIGUSR1, core_dumped: false });
    let (status, ..) = run_call(&call(["no-such-program"]), b"");
    let Status::StartFailed { message, code: 127 } = status else { panic!("{status:?}") };
    assert!(message.contains("cannot execute `no-such-program`: No such file or directory"), "{message}");
}

#[test]
fn large_data_passes_through_a_call() {
    const BYTES: usize = 64 << 20;
    let ((stdin, typed), (mut output, stdout)) = (pipe(), pipe());
    let null = null();
    let mut shepherd =
        launcher().call(&call(["cat"]), [stdin.as_fd(), stdout.as_fd(), null.as_fd()], None).expect("starts");
    drop((stdin, stdout));
    let writer = thread::spawn(move || {
        let mut typed = File::from(typed);
        let chunk: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        (0..BYTES >> 20).for_each(|_| typed.write_all(&chunk).expect("the call reads its input"));
    });
    let mut got = Vec::new();
    output.read_to_end(&mut got).expect("ends");
    writer.join().expect("wrote");
    assert_eq!(got.len(), BYTES);
    assert!(got.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 0 });
}

#[test]
fn call_without_streams_is_refused_and_run_ignores_them() {
    let null = null();
    let refused = launcher().launch(&shell("true")).expect_err("a call without streams is refused");
    let LaunchError::Refused(reason) = refused else { panic!("{refused:?}") };
    assert_eq!(reason, "a call needs three descriptors, but got 0");
    let dir = directory();
    let launch = crate::common::script(dir.path(), "ls /proc/$PPID/fd /proc/self/fd; exit 4");
    let (mut output, stdout) = pipe();
    let mut shepherd = launcher().call(&launch, [null.as_fd(), stdout.as_fd(), null.as_fd()], None).expect("a run");
    drop(stdout);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).expect("closed at once");
    assert_eq!((crate::common::finish(&mut shepherd, dir.path()).status, rest.len()), (Status::Exited { code: 4 }, 0));
}

#[test]
fn call_and_its_processes_end_when_the_caller_is_gone() {
    let dir = directory();
    let leaves = Leaves::new();
    let text =
        "trap '' TERM; (trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' &)
        echo $$ > main; while :; do sleep 1; done";
    for leaf in [None, Some(leaves.leaf("left"))] {
        let mut launch = shell(text);
        launch.cwd = dir.path().to_owned();
        launch.options.leaf = leaf.clone();
        launch.options.linger = Some(DEADLINE);
        let shepherd = start_quietly(&launch);
        let pids = [pid_in(dir.path(), "main"), pid_in(dir.path(), "child"), shepherd.pid()];
        assert!(pids.iter().all(|&pid| is_alive(pid)));
        let began = Instant::now();
        drop(shepherd);
        eventually("all processes of the call end", || !pids.iter().any(|&pid| is_alive(pid)));
        assert!(began.elapsed() > Duration::from_secs(1), "TERM was sent before KILL");
        assert!(leaf.is_none_or(|leaf| !leaf.path.exists()));
        ["main", "child"].iter().for_each(|name| fs::remove_file(dir.path().join(name)).expect("the file exists"));
    }
}

#[test]
fn call_that_handles_term_ends_immediately_after_its_caller() {
    let dir = directory();
    let mut launch = shell("trap 'echo 1 > asked; exit' TERM; echo $$ > main; while :; do sleep 0.05; done");
    launch.cwd = dir.path().to_owned();
    let shepherd = start_quietly(&launch);
    pid_in(dir.path(), "main");
    drop_and_end(shepherd);
    pid_in(dir.path(), "asked");
}

#[test]
fn limits_of_the_leaf_apply_to_calls() {
    let leaf = crate::limits::leaf();
    let mut launch = shell("head -c 300000000 /dev/zero | tail > /dev/null");
    launch.options.memory_limit_bytes = Some(32 << 20);
    launch.options.leaf = Some(leaf.clone());
    let mut shepherd = start_quietly(&launch);
    let record = finished(&mut shepherd);
    assert_eq!((record.oom_kill, record.limits.memory), (Some(true), Some(Enforcement::Enforced)));
    assert_eq!(record.containment, Containment::Leaf { path: leaf.path.clone() });
    assert!(ends(&shepherd) && !leaf.path.exists());
}

#[test]
fn resource_limits_are_lowered_and_never_raised() {
    let (own_soft, own_hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("known");
    let limit = |resource: u32, soft, hard| ResourceLimit { resource: resource as i32, soft, hard };
    let mut launch = shell("ulimit -Sn; ulimit -Hn; ulimit -Sf; ulimit -Hf; ulimit -Sc; ulimit -Hc");
    launch.options.call = Some(CallOptions {
        terminal: false,
        limits: vec![
            limit(libc::RLIMIT_NOFILE, 64, u64::MAX),
            limit(libc::RLIMIT_FSIZE, 512 << 10, 1 << 20),
            limit(libc::RLIMIT_CORE, 0, 0),
            limit(1000, 1, 1),
        ],
        ..CallOptions::default()
    });
    assert!(own_soft > 64);
    let (_, printed, _) = run_call(&launch, b"");
    let hard = if own_hard == u64::MAX { "unlimited".to_owned() } else { own_hard.to_string() };
    assert_eq!(printed, format!("64\n{hard}\n1024\n2048\n0\n0\n"));
}

#[test]
fn lingering_shepherds_leak_no_descriptors_over_many_calls() {
    let leaves = Leaves::new();
    let task = |name: &str| {
        let mut launch = shell("cat; exit 7");
        launch.options.linger = Some(DEADLINE);
        launch.options.leaf = Some(leaves.leaf(name));
        launch
    };
    let open =
        |shepherd: &Shepherd| fs::read_dir(format!("/proc/{}/fd", shepherd.pid())).expect("the shepherd runs").count();
    let again = |shepherd: &mut Shepherd, name: &str| {
        let ((stdin, typed), (mut output, stdout)) = (pipe(), pipe());
        File::from(typed).write_all(b"hello").expect("fits");
        let streams: [BorrowedFd<'_>; 3] = [stdin.as_fd(), stdout.as_fd(), stdout.as_fd()];
        // A late request for the previous call must not affect this one.
        shepherd.kill(hostler_shepherd::Cause::Cancelled).expect("it lingers");
        shepherd.call_next(&task(name), &streams).expect("it lingers");
        drop((stdin, stdout));
        let mut printed = String::new();
        output.read_to_string(&mut printed).expect("ends");
        assert!(matches!(shepherd.next_event(), Ok(Event::Started(_))));
        assert_eq!((finished(shepherd).status, &*printed), (Status::Exited { code: 7 }, "hello"));
    };
    let mut shepherds = ["a", "b"].map(|name| (start_quietly(&task(name)), name));
    shepherds.iter_mut().for_each(|(shepherd, _)| drop(finished(shepherd)));
    let before = shepherds.each_ref().map(|(shepherd, _)| open(shepherd));
    for _ in 0..500 {
        shepherds.iter_mut().for_each(|(shepherd, name)| again(shepherd, name));
    }
    assert_eq!(shepherds.each_ref().map(|(shepherd, _)| open(shepherd)), before);
    shepherds.into_iter().for_each(|(shepherd, _)| drop_and_end(shepherd));
}

/// Waits for the next event, which must report that the call was stopped.
fn stopped(shepherd: &mut Shepherd) -> i32 {
    let mut found = None;
    eventually("the call stops", || {
        match shepherd.try_next_event().expect("the shepherd is there") {
            Some(Event::Stopped(signal)) => found = Some(signal),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        found.is_some()
    });
    found.expect("set above")
}

/// Process state as reported by the kernel: `S`, `T` and so on.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("alive");
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).expect("a state")
}

#[test]
fn signal_reaches_the_group_of_a_call_but_no_run() {
    let dir = directory();
    let mut launch = shell(
        "trap 'echo 1 > main; wait; exit 5' USR1
        (trap 'echo 1 > child; exit' USR1; echo 1 > ready; while :; do sleep 0.05; done) & wait",
    );
    launch.cwd = dir.path().to_owned();
    let mut shepherd = start_quietly(&launch);
    pid_in(dir.path(), "ready");
    shepherd.signal(libc::SIGUSR1).expect("the shepherd runs");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 5 });
    assert_eq!((pid_in(dir.path(), "main"), pid_in(dir.path(), "child")), (1, 1));

    let mut shepherd = start_quietly(&shell("exec sleep 600"));
    shepherd.signal(1000).expect("the shepherd runs");
    assert_eq!(
        shepherd.next_event().expect("the shepherd runs"),
        Event::Refused("cannot send signal 1000: Invalid argument".into())
    );
    shepherd.signal(libc::SIGINT).expect("the shepherd runs");
    assert_eq!(finished(&mut shepherd).status, Status::Signaled { signal: libc::SIGINT, core_dumped: false });

    let dir = directory();
    let mut run = crate::common::start_run(&crate::common::script(dir.path(), "exec sleep 600"));
    run.signal(libc::SIGTERM).expect("the shepherd runs");
    assert_eq!(run.next_event().expect("the shepherd runs"), Event::Refused("a run does not accept signals".into()));
    run.kill(hostler_shepherd::Cause::Cancelled).expect("the shepherd runs");
    crate::common::finish(&mut run, dir.path());
}

#[test]
fn call_without_terminal_can_be_stopped_and_continued() {
    let dir = directory();
    // A shell that starts a child with `vfork` cannot stop before the child runs its program, and the child stops
    // first. So the script uses `exec`.
    let mut launch = shell("echo $$ > main; exec sleep 600");
    launch.cwd = dir.path().to_owned();
    let mut shepherd = start_quietly(&launch);
    let pid = pid_in(dir.path(), "main");
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGSTOP] {
        shepherd.signal(signal).expect("the shepherd runs");
        assert_eq!((stopped(&mut shepherd), state(pid)), (libc::SIGSTOP, 'T'));
        assert_eq!(shepherd.try_next_event().expect("the shepherd runs"), None, "each stop causes one event");
        shepherd.signal(libc::SIGCONT).expect("the shepherd runs");
        eventually("the call continues", || state(pid) != 'T');
    }
    // A stopped call is ended by its time limit too.
    shepherd.signal(libc::SIGTSTP).expect("the shepherd runs");
    stopped(&mut shepherd);
    shepherd.terminate(hostler_shepherd::Cause::Cancelled, DEADLINE).expect("the shepherd runs");
    assert_eq!(finished(&mut shepherd).status, Status::Signaled { signal: libc::SIGTERM, core_dumped: false });
}

/// Both ends of a pseudo terminal. Reading the master ends with an error after the test deadline.
struct Pty {
    master: File,
    seen: String,
}

impl Pty {
    /// Starts a call on a new terminal.
    fn start(launch: &mut Launch) -> (Pty, Shepherd) {
        launch.options.call.as_mut().expect("a call").terminal = true;
        let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let nix::pty::OpenptyResult { master, slave } = nix::pty::openpty(&size, None).expect("a terminal");
        nix::fcntl::fcntl(&master, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC)).expect("ours");
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&master, flags).expect("ours");
        let shepherd = launcher().call(launch, [slave.as_fd(); 3], None).expect("starts");
        (Pty { master: master.into(), seen: String::new() }, shepherd)
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the terminal is open");
    }

    /// Reads until `wanted` was printed, and discards the output up to there.
    fn expect(&mut self, wanted: &str) {
        eventually(&format!("{wanted:?} is printed"), || {
            let mut chunk = [0; 4096];
            if let Ok(length) = self.master.read(&mut chunk) {
                self.seen.push_str(&String::from_utf8_lossy(&chunk[..length]));
            }
            self.seen.contains(wanted)
        });
        self.seen = self.seen.split_once(wanted).expect("`wanted` is in the output").1.to_owned();
    }
}

/// A call of a command under a session leader, which this program implements.
fn under_session_leader(text: &str) -> Launch {
    let mut launch = call([std::env::current_exe().expect("known")]);
    launch.env.push((crate::common::SESSION_LEADER.into(), text.into()));
    launch
}

#[test]
fn call_on_a_terminal_has_it_as_controlling_terminal_and_leaves_its_owner() {
    let mut launch =
        shell("test -t 0 && test -t 2 && stty size < /dev/tty; stat -Lc 'of %u' /dev/stdin; read line; echo got $line");
    launch.options.credentials =
        Some(hostler_shepherd::Credentials { name: "somebody".into(), uid: 65534, gid: 65533, groups: vec![] });
    let (mut pty, mut shepherd) = Pty::start(&mut launch);
    // The test has opened the terminal as root. A user could send the terminal of somebody else.
    pty.expect("24 80\r\nof 0\r\n");
    pty.type_in("this\n");
    pty.expect("got this\r\n");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 0 });
    eventually("the terminal hangs up, because all copies are closed", || {
        pty.master.read(&mut [0; 16]).is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
    });

    let mut launch = shell("true");
    launch.options.call.as_mut().expect("a call").terminal = true;
    let Status::StartFailed { message, code: 126 } = finished(&mut start_quietly(&launch)).status else {
        panic!("the call failed for another reason")
    };
    assert_eq!(message, "cannot take the terminal: standard input is not a terminal");
}

#[test]
fn session_leader_can_be_stopped_only_by_stop() {
    let (mut pty, mut shepherd) = Pty::start(&mut shell("kill -TSTP $$; echo still here; kill -STOP $$; echo again"));
    pty.expect("still here");
    assert_eq!(stopped(&mut shepherd), libc::SIGSTOP);
    shepherd.signal(libc::SIGCONT).expect("the shepherd runs");
    pty.expect("again");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 0 });
}

#[test]
fn command_under_a_session_leader_can_stop_itself_and_be_continued() {
    let (mut pty, mut shepherd) = Pty::start(&mut under_session_leader(
        "echo before; kill -TSTP $$; echo after; read line; echo got $line; exit 9",
    ));
    pty.expect("before");
    assert_eq!(stopped(&mut shepherd), libc::SIGSTOP, "the session leader stops with its command");
    shepherd.signal(libc::SIGCONT).expect("the shepherd runs");
    pty.expect("after");
    shepherd.signal(libc::SIGTSTP).expect("the shepherd runs");
    assert_eq!(stopped(&mut shepherd), libc::SIGSTOP, "the session leader stops again");
    shepherd.signal(libc::SIGCONT).expect("the shepherd runs");
    // A background process could not read.
    pty.type_in("this\n");
    pty.expect("got this\r\n");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 9 });
}

#[test]
fn ctrl_z_and_ctrl_c_act_on_a_command_under_a_session_leader() {
    let (mut pty, mut shepherd) = Pty::start(&mut under_session_leader("echo ready; exec sleep 600"));
    pty.expect("ready");
    for _ in 0..3 {
        pty.type_in("\x1a");
        assert_eq!(stopped(&mut shepherd), libc::SIGSTOP);
        shepherd.signal(libc::SIGCONT).expect("the shepherd runs");
        let child = shepherd.child().expect("the session leader");
        eventually("the command has the terminal", || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).expect("alive");
            let fields: Vec<&str> = stat.rsplit_once(") ").expect("a state").1.split(' ').collect();
            fields[0] == "S" && fields[5] != fields[2]
        });
    }
    pty.type_in("\x03");
    assert_eq!(finished(&mut shepherd).status, Status::Signaled { signal: libc::SIGINT, core_dumped: false });
}

#[test]
fn session_leader_forwards_signals_and_ends_like_its_command() {
    let text =
        "trap 'echo hup' HUP; trap 'echo usr' USR1; trap 'echo winch' WINCH; trap 'echo term; kill -SEGV $$' TERM
        echo ready; while :; do sleep 0.02; done";
    let (mut pty, mut shepherd) = Pty::start(&mut under_session_leader(text));
    pty.expect("ready");
    for (signal, name) in
        [(libc::SIGHUP, "hup"), (libc::SIGUSR1, "usr"), (libc::SIGWINCH, "winch"), (libc::SIGTERM, "term")]
    {
        shepherd.signal(signal).expect("the shepherd runs");
        pty.expect(name);
    }
    assert_eq!(finished(&mut shepherd).status, Status::Signaled { signal: libc::SIGSEGV, core_dumped: false });

    let mut launch = under_session_leader("x");
    launch.env.last_mut().expect("the variable was just added").0 = crate::common::SESSION_LEADER_PROGRAM.into();
    let (mut pty, mut shepherd) = Pty::start(&mut launch);
    pty.expect("cannot execute `x`: No such file or directory");
    assert_eq!(finished(&mut shepherd).status, Status::Exited { code: 127 });

    let mut launch = under_session_leader("true");
    launch.options.call.as_mut().expect("a call").terminal = false;
    let (status, _, errors) = run_call(&launch, b"");
    assert_eq!(
        (status, &*errors),
        (Status::Exited { code: 125 }, "standard input is not a terminal with this process in its foreground")
    );
}

#[test]
fn session_leader_and_its_command_end_when_the_caller_is_gone() {
    let dir = directory();
    let mut launch = under_session_leader("trap '' HUP TERM; echo $$ > command; while :; do sleep 1; done");
    launch.cwd = dir.path().to_owned();
    let (pty, shepherd) = Pty::start(&mut launch);
    let pids = [shepherd.pid(), shepherd.child().expect("the session leader"), pid_in(dir.path(), "command")];
    drop((pty, shepherd));
    eventually("all processes of the call end", || !pids.iter().any(|&pid| is_alive(pid)));
}

/// A mount namespace with a separate file system at `/mnt`, which has one file.
fn namespace() -> OwnedFd {
    let make = || {
        hostler_sys::unshare_mounts().expect("root may");
        hostler_sys::mount_tmpfs("own", std::path::Path::new("/mnt"), "size=1m").expect("root may");
        fs::write("/mnt/only-there", "seen\n").expect("writable");
        fs::write("/mnt/orphan", "#!/no/such/interpreter\n").expect("writable");
        fs::set_permissions("/mnt/orphan", fs::Permissions::from_mode(0o755)).expect("just made");
        File::open("/proc/thread-self/ns/mnt").expect("a thread can open its own namespace").into()
    };
    thread::spawn(make).join().expect("the thread does not panic")
}

#[test]
fn call_starts_in_the_given_namespace() {
    let mut launch = shell("cat only-there; id -u; grep NoNewPrivs /proc/self/status");
    launch.cwd = "/mnt".into();
    launch.options.call = Some(CallOptions { namespace: true, ..CallOptions::default() });
    launch.options.linger = Some(DEADLINE);
    launch.options.credentials =
        Some(hostler_shepherd::Credentials { name: "somebody".into(), uid: 2000, gid: 2000, groups: Vec::new() });
    let namespace = namespace();
    let (null, (mut output, stdout)) = (null(), pipe());
    let stdio = [null.as_fd(), stdout.as_fd(), null.as_fd()];
    let mut shepherd = launcher().call(&launch, stdio, Some(namespace.as_fd())).expect("starts");
    finished(&mut shepherd);
    shepherd.call_next(&launch, &[&stdio[..], &[namespace.as_fd()]].concat()).expect("it lingers");
    while !matches!(shepherd.next_event().expect("it is there"), Event::Finished(_)) {}
    let descriptors = fs::read_dir(format!("/proc/{}/fd", shepherd.pid())).expect("it lingers").count();
    assert!(descriptors < 12, "{descriptors} descriptors are open");
    drop(stdout);
    let mut printed = String::new();
    output.read_to_string(&mut printed).expect("ends");
    assert_eq!(printed, "seen\n2000\nNoNewPrivs:\t1\n".repeat(2));
    assert!(!std::path::Path::new("/mnt/only-there").exists(), "not visible in this namespace");
    let refused = launcher().call(&launch, stdio_of(&null), None).expect_err("no namespace");
    let LaunchError::Refused(reason) = refused else { panic!("{refused:?}") };
    assert_eq!(reason, "a call with a namespace needs four descriptors, but got 3");
    drop_and_end(shepherd);
}

#[test]
fn failed_start_is_explained_by_the_files_that_the_program_would_see() {
    let namespace = namespace();
    for (program, reason) in [
        ("./orphan", "its interpreter `/no/such/interpreter` does not exist"),
        ("/mnt/orphan", "its interpreter `/no/such/interpreter` does not exist"),
        ("./nothing", "No such file or directory"),
        ("nothing", "No such file or directory"),
    ] {
        let mut launch = call([program]);
        launch.cwd = "/mnt".into();
        launch.options.call = Some(CallOptions { namespace: true, ..CallOptions::default() });
        let null = null();
        let mut shepherd = launcher().call(&launch, stdio_of(&null), Some(namespace.as_fd())).expect("claimed");
        let message = format!("cannot execute `{program}`: {reason}");
        assert_eq!(finished(&mut shepherd).status, Status::StartFailed { message, code: 127 });
    }
}

fn stdio_of(null: &OwnedFd) -> [BorrowedFd<'_>; 3] {
    [null.as_fd(); 3]
}
