//! Commands on the caller's terminal: job control, full-screen programs, keys that send signals.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use hostler_testkit::wait_until;
use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::machines::{Machines, USER, ids};

/// The prompt of the shell. Typed text contains it only in pieces, so an echo does not match.
const PROMPT: &str = "<ready>";

/// A terminal with an interactive shell of [`USER`] on a node.
struct Terminal {
    master: File,
    shell: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    /// How much of the output has been read.
    read: usize,
}

impl Terminal {
    fn of(machines: &Machines, node: usize) -> Self {
        let pair = openpty(Some(&size(24, 80)), None).expect("there are terminals");
        nix::unistd::fchown(&pair.slave, Some(ids().0.into()), None).expect("root may");
        let slave = || Stdio::from(pair.slave.try_clone().expect("the terminal is open"));
        let shell = ["setsid", "--ctty", "--wait", "env", "TERM=xterm", "PS1=", "bash", "--norc", "--noprofile", "-i"];
        let mut command = machines.command_of(USER, node, &shell);
        let shell = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().expect("nsenter can be started");
        let master = File::from(pair.master);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (mut from, to) = (master.try_clone().expect("the terminal is open"), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                to.lock().expect("the lock is not poisoned").extend(&piece[..count]);
            }
        });
        let mut terminal = Self { master, shell, seen, read: 0 };
        terminal.say("PS1='<re''ady>'\n");
        terminal.until(PROMPT);
        terminal
    }

    fn say(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the terminal is open");
    }

    /// Waits for a text and returns all output before it.
    fn until(&mut self, text: &str) -> String {
        let looked = std::time::Instant::now();
        loop {
            let seen = self.seen.lock().expect("the lock is not poisoned")[self.read..].to_vec();
            if let Some(at) = seen.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.read += at + text.len();
                return String::from_utf8_lossy(&seen[..at]).into_owned();
            }
            assert!(looked.elapsed().as_secs() < 30, "no {text:?} in {:?}", String::from_utf8_lossy(&seen));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Runs a shell command to its end and returns its output.
    fn ask(&mut self, command: &str) -> String {
        self.say(&format!("{command}\n"));
        self.until(PROMPT)
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = size(rows, columns);
        // SAFETY: the pointer is to a local of the type that this request reads.
        assert_eq!(unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    }

    /// Waits until a program has switched the terminal to raw mode. A shell's prompt leaves signal keys to the
    /// terminal.
    fn wait_for_keys(&self) {
        wait_until("the terminal to be in raw mode", 20, || {
            let modes = tcgetattr(&self.master).expect("the terminal is open");
            (!modes.local_flags.contains(LocalFlags::ISIG)).then_some(())
        });
    }

    /// The modes of the terminal in the notation of `stty`.
    fn modes(&mut self) -> String {
        self.ask("stty -g").lines().find(|line| line.matches(':').count() > 10).expect("modes").trim().to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

const fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn command_has_its_callers_terminal() {
    let machines = Machines::of(2);
    let mut terminal = Terminal::of(&machines, 0);
    let before = terminal.modes();

    // The command's terminal has the caller's size, also after a change, and default modes.
    assert!(terminal.ask("dsh --node n2 stty size").contains("24 80"));
    let sane = terminal.ask("dsh --node n2 stty -a");
    let words: Vec<&str> = sane.split_whitespace().collect();
    assert!(["icanon", "echo", "isig", "opost", "iexten"].iter().all(|word| words.contains(word)), "{sane}");
    terminal.say(
        "dsh --node n2 bash -c 'trap \"stty size\" WINCH; echo st\"\"arted; while :; do sleep 1002 & wait; done'\n",
    );
    terminal.until("started");
    terminal.resize(41, 99);
    terminal.until("41 99");

    // A key ends all processes of the command, and the shell learns the signal. In the loop, bash waits with its builtin: it
    // ignores an interrupt that comes just when a program in the foreground ends.
    terminal.say("\x03");
    terminal.until(PROMPT);
    assert!(terminal.ask("echo code $?").contains("code 130"));
    terminal.say("dsh --node n2 sh -c 'sleep 1003 & sh -c \"sleep 1003; true\"; echo not-to-be-seen'\n");
    wait_until("the tree", 30, || {
        let asleep = machines.nodes[1].run(&["pgrep", "-fxc", "sleep 1003"]).stdout;
        (asleep.trim() == "2").then_some(())
    });
    terminal.say("\x03");
    let seen = terminal.until(PROMPT);
    assert!(!seen.contains("\nnot-to-be-seen"), "{seen}");
    machines.wait_for_none(1, "sleep 1003", 10);
    terminal.say("dsh --node n2 sh -c 'echo st\"\"arted; exec cat'\n");
    terminal.until("started");
    terminal.say("a line\n\x04");
    let seen = terminal.until(PROMPT);
    assert_eq!(seen.matches("a line\r\n").count(), 2, "typed, and written: {seen:?}");
    assert_eq!(terminal.modes(), before);

    // If stdout is not a terminal, the output is not changed.
    assert!(terminal.ask("dsh --node n2 sh -c '[ -t 1 ] || echo no terminal' | od -c").contains("l  \\n"));
    assert_eq!(terminal.modes(), before);

    // If the node fails, the terminal's modes are restored.
    machines.write("text", "some text\n");
    terminal.say("dsh --node n2 vim -u NONE text\n");
    terminal.until("some text");
    let mut machines = machines;
    machines.kill_agent(1);
    let seen = terminal.until(PROMPT);
    assert!(seen.contains("node n2"), "{seen}");
    assert_eq!(terminal.modes(), before);
    machines.wait_for_none(1, "vim -u NONE", 10);
}

#[test]
fn each_stream_is_a_terminal_exactly_if_it_is_one_for_the_caller() {
    let machines = Machines::of(2);
    let mut terminal = Terminal::of(&machines, 0);
    let before = terminal.modes();
    machines.write("i", "input\n");
    machines.write("streams.sh", "for stream in 0 1 2; do if [ -t $stream ]; then echo $stream >&3; fi; done 3>$1\n");
    for (redirection, expected) in [
        ("", "0\n1\n2\n"),
        ("2>e", "0\n1\n"),
        (">o", "0\n2\n"),
        ("<i", "1\n2\n"),
        (">o 2>e", "0\n"),
        (">o 2>&1", "0\n"),
        ("<i >o", "2\n"),
        ("<i 2>e", "1\n"),
        ("<i >o 2>e", ""),
    ] {
        for node in ["n1", "n2"] {
            terminal.ask(&format!("dsh --node {node} sh streams.sh {node}.txt {redirection}"));
            assert_eq!(machines.read(&format!("{node}.txt")), expected, "{node} {redirection}");
            assert_eq!(terminal.modes(), before, "{node} {redirection}");
        }
    }

    // Redirected output arrives unchanged, and only in the file. Other output is shown once.
    for (redirection, output, errors) in
        [("2>e >o", "out\n", "err\n"), ("2>e", "", "err\n"), (">o", "out\n", ""), (">o 2>&1", "out\nerr\n", "")]
    {
        machines.write("o", "");
        machines.write("e", "");
        let seen =
            terminal.ask(&format!("dsh --node n2 sh -c 'printf \"o\"ut\\\\n; printf \"e\"rr\\\\n >&2' {redirection}"));
        assert_eq!((machines.read("o").as_str(), machines.read("e").as_str()), (output, errors), "{redirection}");
        assert_eq!(seen.contains("out\r\n"), redirection == "2>e", "{redirection}: {seen:?}");
        assert_eq!(seen.contains("err\r\n"), redirection == ">o", "{redirection}: {seen:?}");
        assert!(!seen.contains("\r\r"), "{redirection}: {seen:?}");
    }

    // Typed lines are echoed once, and the end-of-file key ends the input.
    terminal.say("dsh --node n2 sh -c 'echo st\"\"arted >&2; exec cat' >o\n");
    terminal.until("started\r\n");
    terminal.say("a line\n\x04");
    let seen = terminal.until(PROMPT);
    assert_eq!((machines.read("o").as_str(), seen.matches("a line").count()), ("a line\n", 1), "{seen:?}");
}

#[test]
fn job_control_and_editors_work_remotely() {
    let machines = Machines::of(2);
    shell(&machines);
    editor(&machines);
}

fn shell(machines: &Machines) {
    let mut terminal = Terminal::of(machines, 0);
    let before = terminal.modes();
    machines.write("counts.sh", "echo started\nfor i in $(seq 100000); do echo >>count; sleep 0.01; done\n");
    let count = || machines.read("count").len();
    let stands = |wanted: bool| {
        wait_until(if wanted { "the command to stop" } else { "the command to continue" }, 20, || {
            let before = count();
            std::thread::sleep(std::time::Duration::from_millis(150));
            ((count() == before) == wanted).then_some(())
        });
    };
    terminal.say("dsh --node n2 bash counts.sh\n");
    terminal.until("started");
    for _ in 0..2 {
        stands(false);
        terminal.say("\x1a");
        let seen = terminal.until(PROMPT);
        assert!(seen.contains("Stopped"), "{seen}");
        stands(true);
        assert_eq!(terminal.modes(), before);
        terminal.say("fg\n");
        terminal.until("counts.sh");
    }
    stands(false);
    // A stopped command also continues in the background.
    terminal.say("\x1a");
    terminal.until("Stopped");
    terminal.until(PROMPT);
    terminal.ask("bg");
    stands(false);
    terminal.ask("kill %1; wait; echo");
    machines.wait_for_none(1, "counts.sh", 10);

    // A background command leaves typed input to the shell.
    terminal.ask("dsh --node n2 sh -c 'echo hi >bg' & wait $!");
    assert_eq!(machines.read("bg"), "hi\n");
    terminal.ask("dsh --node n2 sh -c 'echo hi >bg2' </dev/tty >/dev/null & wait $!");
    assert_eq!(machines.read("bg2"), "hi\n");
    assert_eq!(terminal.modes(), before);

    // A command that is brought to the foreground gets typed keys unchanged, and the keys are echoed only once.
    terminal.ask("dsh --node n2 sh -c 'sleep 0.5; echo st\"\"arted; exec cat' &");
    terminal.until("started");
    terminal.say("fg\n");
    terminal.until("exec cat");
    terminal.wait_for_keys();
    terminal.say("a line\n");
    assert_eq!(terminal.until("a line\r\na line\r\n").trim_end_matches(['\r', '\n', '\'']), "");
    terminal.say("\x04");
    terminal.until(PROMPT);
    assert_eq!(terminal.modes(), before);

    // The same for a command that writes all the time.
    terminal.ask("dsh --node n2 sh -c 'while :; do echo tick; sleep 0.02; done' &");
    terminal.until("tick");
    terminal.say("fg\n");
    terminal.wait_for_keys();
    terminal.say("\x03");
    terminal.until(PROMPT);
    assert_eq!(terminal.modes(), before);

    // The output that a command writes just before it stops appears unchanged before the shell's prompt.
    let says = "import os, signal, time
def stop(*_):
    os.write(1, b''.join(b'word %d\\n' % n for n in range(500)))
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGTSTP, stop)
os.write(1, b'ready\\n')
while True: time.sleep(1)
";
    machines.write("says.py", says);
    for _ in 0..3 {
        terminal.say("dsh --node n2 python3 says.py\n");
        terminal.until("ready");
        terminal.say("\x1a");
        let seen = terminal.until("Stopped");
        assert!(seen.contains("word 499\r\n") && !seen.contains("\r\r\n"), "{seen:?}");
        terminal.until(PROMPT);
        terminal.ask("kill -KILL %%; wait; echo");
    }
    machines.wait_for_none(1, "says.py", 10);
    // Another process that writes to the terminal does not prevent the stop.
    let noisy = "import os, time\nif os.fork() == 0:\n    os.setpgid(0, 0)\n    while True: os.write(1, b'noise'); time.sleep(0.001)\n";
    machines.write("noisy.py", format!("{noisy}{says}"));
    terminal.say("dsh --node n2 python3 noisy.py\n");
    terminal.until("ready");
    terminal.say("\x1a");
    terminal.until("Stopped");
    terminal.until(PROMPT);
    terminal.ask("kill -KILL %%; wait; echo");
    machines.wait_for_none(1, "noisy.py", 10);
    assert_eq!(terminal.modes(), before);
}

fn editor(machines: &Machines) {
    let mut terminal = Terminal::of(machines, 0);
    let before = terminal.modes();
    machines.write("text", (1..=100).map(|line| format!("this is line {line}\n")).collect::<String>());
    terminal.say("dsh --node n2 vim -u NONE -n text\n");
    terminal.until("this is line 23");
    terminal.say("50Gccchanged\x1b");
    terminal.until("changed");
    // Suspend vim to use the shell.
    terminal.say("\x1a");
    terminal.until("Stopped");
    terminal.until(PROMPT);
    assert_eq!(terminal.modes(), before);
    terminal.resize(30, 90);
    terminal.say("fg\n");
    terminal.until("changed");
    terminal.say(":set lines? columns?\r");
    terminal.until("lines=30");
    terminal.say(":wq\r");
    terminal.until(PROMPT);
    assert!(terminal.ask("echo code $?").contains("code 0"));
    assert_eq!(terminal.modes(), before);
    let text = machines.read("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[48], lines[49], lines[50]), (100, "this is line 49", "changed", "this is line 51"));
}
