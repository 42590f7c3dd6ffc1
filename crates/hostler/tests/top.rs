//! `hostler top` in a real terminal: a multiplexer of 80 columns and 24 rows, whose keys the test presses and whose
//! screen it reads.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hostler_testkit::{Cluster, Size, is_alive, program, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Longest wait for the screen, in seconds.
const PATIENCE: u64 = 30;

/// A terminal in a multiplexer with a socket of its own. Dropping it ends the multiplexer.
struct Screen {
    socket: PathBuf,
}

impl Screen {
    /// Runs a shell in the terminal, with the cluster's environment.
    fn open(cluster: &Cluster) -> Self {
        let screen = Self { socket: cluster.path("tmux.sock") };
        // The environment of the shell is the one of the command that starts the multiplexer.
        let environment = cluster.command(&[]);
        let tmux = program("tmux", "install the package tmux");
        let started = Command::new(tmux)
            .env_clear()
            .envs(environment.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))))
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .arg("-S")
            .arg(&screen.socket)
            .args(["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"])
            .current_dir(cluster.home())
            .stdin(Stdio::null())
            .status();
        assert!(started.expect("tmux starts").success());
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let tmux = program("tmux", "install the package tmux");
        let output = Command::new(tmux).arg("-S").arg(&self.socket).args(arguments).output().expect("tmux runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a command line into the shell.
    fn run(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press("Enter");
    }

    /// Presses a key, by its name in tmux.
    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen fulfils a condition, and returns it.
    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, PATIENCE, || {
                last = self.text();
                is_there(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("the screen never shows {what}:\n{last}"))
    }

    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").stderr(Stdio::null()).status();
    }
}

/// The line of the screen that contains a text.
fn line<'a>(screen: &'a str, text: &str) -> &'a str {
    screen.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} is not in\n{screen}"))
}

fn run_detached(cluster: &Cluster, more: &[&str]) -> String {
    cluster.ok(&[&["run", "--detach", "-m", "16M"], more].concat())
}

#[test]
fn jobs_are_watched_filtered_read_and_cancelled_with_the_keyboard() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, cpus: 1, ..Size::default() });
    let script =
        "printf 'first line\\n\\033[31mred\\033[0m\\033[2J \\302\\233x\\nlast line\\n'; while :; do sleep 0.1; done";
    let running = run_detached(&cluster, &["-t", "10m", "--name", "training", "--", "sh", "-c", script]);
    // The head refuses control characters in names, but not those that change the direction of text.
    let hostile = "evil\u{202e}name\u{2066}";
    let failed = run_detached(&cluster, &["--name", hostile, "--", "sh", "-c", "exit 7"]);
    cluster.wait_for_state(&running, "running");
    cluster.wait_for_state(&failed, "failed");
    let held = run_detached(&cluster, &["--hold", "--name", "parked", "--", "true"]);

    let screen = Screen::open(&cluster);
    let top = format!("{HOSTLER} top");
    screen.run(&top);
    let text = screen.wait("all jobs", |text| text.contains("training") && text.contains("parked"));
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(line(&text, "training").contains("running") && line(&text, "training").contains("/10m00s"), "{text}");
    assert!(line(&text, "parked").contains("held until released"), "{text}");
    assert!(line(&text, "evil").contains(" failed ") && line(&text, "evil").contains("exit code 7"), "{text}");
    assert!(line(&text, "evil").contains("evil\\u{202e}"), "control characters are escaped: {text}");
    assert!(line(&text, "hostler top").contains("as of "), "{text}");
    assert!(text.contains("nodes: 2 up"), "{text}");

    // A job that changes elsewhere changes here.
    let later = run_detached(&cluster, &["--hold", "--name", "appears-later", "--", "true"]);
    screen.wait_for("appears-later");
    cluster.ok(&["cancel", &later]);
    screen.wait("the cancelled job", |text| {
        text.lines().any(|line| line.contains("appears-later") && line.contains("cancelled"))
    });

    // The filter, in the list and at the head.
    screen.press("/");
    screen.tmux(&["send-keys", "-l", "train"]);
    screen.wait("one job", |text| text.contains("training") && !text.contains("parked"));
    screen.press("Escape");
    screen.wait("all jobs again", |text| text.contains("parked"));
    screen.press("/");
    screen.tmux(&["send-keys", "-l", "state:failed"]);
    screen.press("Enter");
    screen.wait("the failed job", |text| text.contains("evil") && !text.contains("training"));
    screen.press("Escape");
    screen.wait_for("training");

    // The output of a job, with its control characters neutralised.
    screen.press("g");
    screen.press("Enter");
    // The command contains these words too, so whole lines are compared.
    let text = screen.wait("the output", |text| text.lines().any(|line| line == "last line"));
    assert!(text.lines().any(|line| line == "first line"), "{text}");
    assert!(text.lines().any(|line| line == "red \\u{9b}x"), "{text}");
    assert!(line(&text, " state ").contains("running") && text.contains("following"), "{text}");

    // Only `y` cancels.
    screen.press("c");
    screen.wait_for("any other key: no");
    screen.press("Enter");
    screen.wait("no question", |text| !text.contains("any other key: no"));
    assert_eq!(cluster.state(&running), "running");
    screen.press("c");
    screen.wait_for("any other key: no");
    screen.press("y");
    cluster.wait_for_state(&running, "cancelled");
    screen
        .wait("the new state", |text| text.lines().any(|line| line.contains(" state ") && line.contains("cancelled")));

    // Nodes, help, and the way out.
    screen.press("2");
    let text = screen.wait("both nodes", |text| text.contains("CPUS HELD") && text.contains("\nn2 "));
    assert!(line(&text, "n1 ").contains(" up ") && line(&text, "n2 ").contains(" up "), "{text}");
    screen.press("?");
    screen.wait_for("cancel, hold, release, requeue");
    screen.press("x");
    screen.press("q");
    let text = screen.wait("the shell", |text| !text.contains("CPUS HELD"));
    assert!(text.contains("top"), "the shell's screen is back: {text}");
    cluster.ok(&["cancel", &held]);
}

#[test]
fn terminal_is_restored_after_a_suspension_a_signal_and_an_outage() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    run_detached(&cluster, &["--hold", "--name", "parked", "--", "true"]);
    let screen = Screen::open(&cluster);
    screen.run(&format!("clear; TERM=dumb {HOSTLER} top"));
    screen.wait_for("TERM is `dumb`");
    screen.run(&format!("clear; sh -c 'echo $$ > pid; exec {HOSTLER} top --read-only'"));
    screen.wait_for("parked");
    let pid: u32 = fs::read_to_string(cluster.path("pid")).expect("written").trim().parse().expect("a pid");
    screen.press("c");
    screen.wait_for("--read-only");

    // Ctrl-Z gives the shell back, and the screen returns.
    screen.press("C-z");
    screen.wait_for("Stopped");
    screen.run("stty -a | grep -c -- '-icanon'; echo shell works");
    let text = screen.wait("the answer of the shell", |text| text.lines().any(|line| line == "shell works"));
    assert!(text.lines().any(|line| line == "0"), "the terminal reads lines again: {text}");
    screen.run("fg");
    screen.wait("the queue", |text| text.contains("1 Queue") && text.contains("parked"));

    // Another size.
    screen.tmux(&["resize-window", "-x", "120", "-y", "30"]);
    screen.wait("the wide table", |text| text.contains("MEMORY"));

    // The head goes away: the picture stays, and follows the next head.
    cluster.ok(&["down", "--keep"]);
    let text = screen.wait_for("head away, as of");
    assert!(text.contains("parked"), "{text}");
    cluster.start(Size { nodes: 1, cpus: 1, ..Size::default() });
    screen.wait("the next head", |text| !text.contains("head away") && text.contains("parked"));

    // SIGTERM restores the terminal.
    hostler_testkit::kill(pid, nix::sys::signal::Signal::SIGTERM);
    screen.wait("the shell", |text| !text.contains("1 Queue"));
    wait_until("the program to end", PATIENCE, || (!is_alive(pid)).then_some(()));
    // The prompt may come after the command was typed, and before its answer.
    screen.run("echo raw=$(stty -a | grep -c -- '-icanon')");
    let text = screen.wait("the answer of the shell", |text| text.contains("raw=0") || text.contains("raw=1"));
    assert!(text.contains("raw=0"), "the terminal reads lines again: {text}");
}

#[test]
fn steady_state_sends_few_bytes_to_the_terminal() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, cpus: 1, ..Size::default() });
    let flood = "while :; do echo $RANDOM some line of output that is long enough; done";
    let running = run_detached(&cluster, &["--name", "flood", "--", "sh", "-c", flood]);
    for at in 0..30 {
        run_detached(&cluster, &["--hold", "--name", &format!("job-{at}"), "--", "true"]);
    }
    cluster.wait_for_state(&running, "running");
    let screen = Screen::open(&cluster);
    screen.run(&format!("{HOSTLER} top"));
    screen.wait_for("flood");
    screen.press("g");
    screen.press("Enter");
    screen.wait_for("some line of output");
    // Everything that the program writes, for five seconds.
    let log = cluster.path("bytes");
    screen.tmux(&["pipe-pane", &format!("cat > '{}'", log.display())]);
    let began = std::time::Instant::now();
    let size = || fs::metadata(&log).map_or(0, |metadata| metadata.len());
    wait_until("five seconds of pictures", PATIENCE, || (began.elapsed().as_secs() >= 5 && size() > 0).then_some(()));
    let per_second = size() as f64 / began.elapsed().as_secs_f64();
    assert!(per_second < 10_000.0, "{per_second} bytes per second");
    cluster.ok(&["cancel", &running]);
}

#[test]
fn without_a_terminal_the_command_names_another() {
    let cluster = Cluster::none(HOSTLER);
    let refused = cluster.run(&["top"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("needs a terminal") && refused.stderr.contains("hostler jobs"), "{refused:?}");
}
