//! Tests steps between real processes on this machine, including attempts of strangers to connect.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_remote::step::{
    Allocation, Control, HostEnd, Link, Place, Process, Progress, Step, StepError, Surroundings, host, launch,
};
use hostler_remote::{Credentials, Stream};
use tokio::sync::broadcast;

/// A run on two nodes of this machine. The second node has a step host.
struct Run {
    /// The first node's view of the run.
    first: Allocation,
    /// A test sends signals here.
    signals: broadcast::Sender<Control>,
    directory: tempfile::TempDir,
}

/// The outcome of a step.
#[derive(Debug, Default)]
struct Seen {
    stdout: String,
    stderr: String,
}

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [first, second] = allocations(directory.path());
        // The thread ends with the test's process.
        std::thread::spawn(move || host(&second, None, &[]));
        Self { first, signals: broadcast::channel(8).0, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn step(&self, argv: &[&str]) -> (Result<u8, StepError>, Seen) {
        self.step_as(&self.first, argv).await
    }

    async fn step_as(&self, allocation: &Allocation, argv: &[&str]) -> (Result<u8, StepError>, Seen) {
        let mut seen = Seen::default();
        let write = |stream, bytes: &[u8]| {
            let to = if stream == Stream::STDOUT { &mut seen.stdout } else { &mut seen.stderr };
            to.push_str(&String::from_utf8_lossy(bytes));
            Ok(())
        };
        let outcome = launch(allocation, 1, &wanted(argv), self.signals.subscribe(), write).await;
        (outcome, seen)
    }

    /// Waits until a step has created a file, and returns the file's contents.
    async fn file(&self, name: &str) -> String {
        until(|| fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))).await
    }
}

/// Creates two nodes, each with its own key.
fn allocations(directory: &Path) -> [Allocation; 2] {
    let credentials = [(); 2].map(|()| Credentials::generate().expect("a key"));
    let place = |number: usize| Place {
        name: format!("n{}", number + 1).parse().expect("a name"),
        address: Some([127, 0, 0, 1].into()),
        port: std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port is free").port(),
        certificate: credentials[number].fingerprint().expect("the certificate is valid"),
    };
    let nodes = vec![place(0), place(1)];
    let mut rank = 0;
    credentials.map(|credentials| {
        rank += 1;
        Allocation {
            rank: Some(rank - 1),
            directory: directory.to_owned(),
            temporary: None,
            nodes: nodes.clone(),
            credentials,
            holder: None,
        }
    })
}

fn wanted(argv: &[&str]) -> Step {
    Step { argv: argv.iter().map(OsString::from).collect(), has_input: false }
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "the expected state was not reached in 20 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn step_returns_exit_code_and_output_of_its_command() {
    let run = Run::new();
    let (code, seen) = run.step(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!((code.expect("the step ran"), &*seen.stdout, &*seen.stderr), (7, "out\n", "err\n"));
    let (code, _) = run.step(&["sh", "-c", "kill -9 $$"]).await;
    assert_eq!(code.expect("the step ran"), 137);
    let (code, seen) = run.step(&["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]).await;
    assert_eq!((code.expect("the step ran"), seen.stdout.len()), (0, 3_000_000), "the complete output arrives");
    let (refused, _) = run.step(&["/no/such/program"]).await;
    let error = refused.expect_err("the program does not exist");
    assert!(matches!(error, StepError::Refused { code: 127, .. }), "{error}");
    assert!(error.to_string().contains("node n2 cannot start /no/such/program"), "{error}");
}

#[tokio::test]
async fn background_processes_of_a_step_do_not_delay_its_end() {
    let run = Run::new();
    let begun = Instant::now();
    let (code, seen) = run.step(&["sh", "-c", "sleep 60 & echo done"]).await;
    assert_eq!((code.expect("the step ran"), &*seen.stdout), (0, "done\n"));
    let (code, seen) = run.step(&["sh", "-c", "yes & echo done"]).await;
    assert!(code.is_ok() && seen.stdout.contains("done\n"), "{code:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn signals_reach_a_step_that_reads_no_input() {
    let run = Run::new();
    let script = format!(
        "trap 'echo caught; exit 3' USR1; echo up > {}; while :; do sleep 0.05; done",
        run.path("up").display()
    );
    let argv = ["sh", "-c", &script];
    let (outcome, ()) = tokio::join!(run.step(&argv), async {
        run.file("up").await;
        run.signals.send(Control::Signal(nix_signal("USR1"))).expect("a receiver exists");
    });
    assert_eq!((outcome.0.expect("the step ran"), &*outcome.1.stdout), (3, "caught\n"));
}

fn nix_signal(name: &str) -> i32 {
    format!("SIG{name}").parse::<nix::sys::signal::Signal>().expect("a signal") as i32
}

#[tokio::test]
async fn messages_pass_in_both_directions() {
    const SIZE: usize = 2 << 20;
    let run = Run::new();
    let link = Link::open(&run.first, 1).await.expect("the host answers");
    let surroundings = Surroundings::new(&run.first, std::env::vars_os(), run.directory.path().to_owned());
    // The process sends back what it gets, and writes nothing else.
    let script = format!("head -c {SIZE} <&$TALK >&$TALK");
    let argv = ["bash", "-c", &script].map(OsString::from).to_vec();
    let process = Process { argv, messages: Some("TALK".to_owned()), ..Process::default() };
    let (mailbox, messages) = tokio::sync::mpsc::channel(64);
    let sent: Vec<u8> = (0..SIZE).map(|index| (index % 251) as u8).collect();
    for part in sent.chunks(70_000) {
        mailbox.try_send(part.to_vec()).expect("there is room for all");
    }
    let mut received = Vec::new();
    let tell = |progress: Progress<'_>| {
        match progress {
            Progress::Started => {}
            Progress::Message(bytes) => received.extend_from_slice(bytes),
            Progress::Output(_, bytes) => panic!("output: {}", String::from_utf8_lossy(bytes)),
        }
        Ok(())
    };
    let ended = link.run(&process, &surroundings, None, Some(messages), run.signals.subscribe(), tell).await;
    assert_eq!(ended.expect("the process starts").code, 0);
    assert!(received == sent, "{} of {SIZE} bytes came back", received.len());
}

#[tokio::test]
async fn step_ends_with_its_caller() {
    let run = Run::new();
    // `polite` ends on SIGTERM and has a child; `deaf` ignores SIGTERM.
    for (name, script) in [("polite", "sleep 600 & wait"), ("deaf", "trap '' TERM; sleep 600 & wait; sleep 600")] {
        let script = format!("echo $$ > {}; {script}", run.path(name).display());
        let argv = ["sh", "-c", &script];
        let pid = tokio::select! {
            outcome = run.step(&argv) => panic!("the step ended too early: {outcome:?}"),
            pid = run.file(name) => pid,
        };
        assert!(is_alive(&pid) || name == "polite");
        until(|| (!is_alive(&pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn peer_with_an_unknown_key_cannot_start_a_step() {
    let run = Run::new();
    let mark = run.path("mark");
    let touch = ["touch", mark.to_str().expect("text")];
    // A caller with a key from outside the run.
    let mut stranger = run.first.clone();
    stranger.credentials = Credentials::generate().expect("a key");
    let (refused, _) = run.step_as(&stranger, &touch).await;
    let error = refused.expect_err("the host does not trust the key");
    assert!(matches!(error, StepError::Stranger { .. }), "{error:?}");
    assert!(error.to_string().contains("is not node n2 of this job, or rejects this node's certificate"), "{error}");
    // A server with another key at the node's address.
    let mut deceived = run.first.clone();
    deceived.nodes[1].certificate = deceived.nodes[0].certificate;
    let (refused, _) = run.step_as(&deceived, &touch).await;
    assert!(matches!(refused, Err(StepError::Stranger { .. })), "{refused:?}");
    // Arbitrary bytes.
    let address = ("127.0.0.1", run.first.nodes[1].port);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 4096],
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 9],
    ] {
        let mut stream = TcpStream::connect(address).expect("the socket listens");
        stream.write_all(bytes).expect("the socket accepts bytes");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
    }
    assert!(!mark.exists());
    let (code, _) = run.step(&touch).await;
    assert_eq!((code.expect("the host still serves steps"), mark.exists()), (0, true));
}

#[tokio::test]
async fn idle_connections_do_not_block_steps() {
    let run = Run::new();
    assert_eq!(run.step(&["true"]).await.0.expect("the step runs"), 0);
    let address = ("127.0.0.1", run.first.nodes[1].port);
    let crowd = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..300 {
        crowd.lock().expect("the lock is not poisoned").push(TcpStream::connect(address).expect("the socket listens"));
    }
    let begun = Instant::now();
    let (code, _) = run.step(&["true"]).await;
    assert_eq!(code.expect("the host serves steps"), 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // The host closes the oldest connections at once, and the others after the timeout.
    let mut first = crowd.lock().expect("the lock is not poisoned").remove(0);
    first.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
    assert!(matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut last = crowd.lock().expect("the lock is not poisoned").pop().expect("connections are left");
    last.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
    assert_eq!(last.read(&mut [0; 1]).ok(), Some(0), "silent connections are closed after ten seconds");
}

#[tokio::test]
async fn unreachable_node_is_named_in_the_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [mut first, _] = allocations(directory.path());
    // An address reserved for documentation, which is unreachable.
    first.nodes[1].address = Some([192, 0, 2, 77].into());
    let signals = broadcast::channel(1).0;
    let outcome = launch(&first, 1, &wanted(&["true"]), signals.subscribe(), |_, _| Ok(())).await;
    let error = outcome.expect_err("the address is unreachable");
    assert!(error.to_string().starts_with("cannot connect to node n2 at 192.0.2.77:"), "{error}");
}

#[test]
fn host_of_the_first_node_ends_with_its_program() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [first, _] = allocations(directory.path());
    let argv = ["sh", "-c", "exit 9"].map(OsString::from);
    assert_eq!(host(&first, Some(&argv), &[]).expect("the host starts"), HostEnd::Code(9));
    let missing = ["/no/such/program".into()];
    assert!(
        host(&first, Some(&missing), &[])
            .expect_err("the program does not exist")
            .to_string()
            .contains("/no/such/program")
    );
}
