//! Steps between real processes on this machine: what a caller sees of them, and what strangers can do.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_remote::step::{Allocation, Place, Step, StepError, host, launch};
use hostler_remote::{Credentials, Stream};
use tokio::sync::broadcast;

/// A run on two nodes, both of them this machine, whose second node takes steps.
struct Run {
    /// What a process on the first node knows.
    first: Allocation,
    /// Nobody sends signals on it unless the test does.
    signals: broadcast::Sender<i32>,
    directory: tempfile::TempDir,
}

/// What a step came to.
#[derive(Debug, Default)]
struct Seen {
    stdout: String,
    stderr: String,
}

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [first, second] = allocations(directory.path());
        // It goes with the test's process.
        std::thread::spawn(move || host(&second, None));
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

    /// Waits until a step has made a file, which is then what it wrote there.
    async fn file(&self, name: &str) -> String {
        until(|| fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))).await
    }
}

/// Of two nodes, each with its own key.
fn allocations(directory: &Path) -> [Allocation; 2] {
    let credentials = [(); 2].map(|()| Credentials::generate().expect("a key"));
    let place = |number: usize| Place {
        name: format!("n{}", number + 1).parse().expect("a name"),
        address: Some([127, 0, 0, 1].into()),
        port: std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free one").port(),
        certificate: credentials[number].fingerprint().expect("its own"),
    };
    let nodes = vec![place(0), place(1)];
    let mut rank = 0;
    credentials.map(|credentials| {
        rank += 1;
        Allocation {
            rank: rank - 1,
            directory: directory.to_owned(),
            temporary: None,
            nodes: nodes.clone(),
            credentials,
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
        assert!(Instant::now() < end, "it does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn exit_codes_and_outputs_are_the_commands() {
    let run = Run::new();
    let (code, seen) = run.step(&["sh", "-c", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!((code.expect("it ran"), &*seen.stdout, &*seen.stderr), (7, "out\n", "err\n"));
    let (code, _) = run.step(&["sh", "-c", "kill -9 $$"]).await;
    assert_eq!(code.expect("it ran"), 137);
    let (code, seen) = run.step(&["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]).await;
    assert_eq!((code.expect("it ran"), seen.stdout.len()), (0, 3_000_000), "all of it arrives");
    let (refused, _) = run.step(&["/no/such/program"]).await;
    let error = refused.expect_err("there is none");
    assert!(matches!(error, StepError::Refused { code: 127, .. }), "{error}");
    assert!(error.to_string().contains("node n2 cannot start /no/such/program"), "{error}");
}

#[tokio::test]
async fn what_it_leaves_in_the_background_does_not_hold_its_caller() {
    let run = Run::new();
    let begun = Instant::now();
    let (code, seen) = run.step(&["sh", "-c", "sleep 60 & echo done"]).await;
    assert_eq!((code.expect("it ran"), &*seen.stdout), (0, "done\n"));
    let (code, seen) = run.step(&["sh", "-c", "yes & echo done"]).await;
    assert!(code.is_ok() && seen.stdout.contains("done\n"), "{code:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn signals_reach_it_while_it_does_not_read() {
    let run = Run::new();
    let script = format!(
        "trap 'echo caught; exit 3' USR1; echo up > {}; while :; do sleep 0.05; done",
        run.path("up").display()
    );
    let argv = ["sh", "-c", &script];
    let (outcome, ()) = tokio::join!(run.step(&argv), async {
        run.file("up").await;
        run.signals.send(nix_signal("USR1")).expect("somebody listens");
    });
    assert_eq!((outcome.0.expect("it ran"), &*outcome.1.stdout), (3, "caught\n"));
}

fn nix_signal(name: &str) -> i32 {
    format!("SIG{name}").parse::<nix::sys::signal::Signal>().expect("a signal") as i32
}

#[tokio::test]
async fn it_ends_with_its_caller() {
    let run = Run::new();
    // One that ends when it is asked to, with a child; and one that does not.
    for (name, script) in [("polite", "sleep 600 & wait"), ("deaf", "trap '' TERM; sleep 600 & wait; sleep 600")] {
        let script = format!("echo $$ > {}; {script}", run.path(name).display());
        let argv = ["sh", "-c", &script];
        let pid = tokio::select! {
            outcome = run.step(&argv) => panic!("{outcome:?} too early"),
            pid = run.file(name) => pid,
        };
        assert!(is_alive(&pid) || name == "polite");
        until(|| (!is_alive(&pid)).then_some(())).await;
    }
}

#[tokio::test]
async fn a_stranger_learns_nothing_and_starts_nothing() {
    let run = Run::new();
    let mark = run.path("mark");
    let touch = ["touch", mark.to_str().expect("text")];
    // A key that is not the run's.
    let mut stranger = run.first.clone();
    stranger.credentials = Credentials::generate().expect("a key");
    let (refused, _) = run.step_as(&stranger, &touch).await;
    let error = refused.expect_err("it is a stranger");
    assert!(matches!(error, StepError::Stranger { .. }), "{error:?}");
    assert!(error.to_string().contains("is not node n2 of this job, or does not take steps of it"), "{error}");
    // Another who answers in the node's place.
    let mut deceived = run.first.clone();
    deceived.nodes[1].certificate = deceived.nodes[0].certificate;
    let (refused, _) = run.step_as(&deceived, &touch).await;
    assert!(matches!(refused, Err(StepError::Stranger { .. })), "{refused:?}");
    // Bytes of any kind.
    let address = ("127.0.0.1", run.first.nodes[1].port);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 4096],
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 9],
    ] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
    }
    assert!(!mark.exists());
    let (code, _) = run.step(&touch).await;
    assert_eq!((code.expect("it goes on"), mark.exists()), (0, true));
}

#[tokio::test]
async fn a_crowd_at_the_door_keeps_nobody_out() {
    let run = Run::new();
    assert_eq!(run.step(&["true"]).await.0.expect("it runs"), 0);
    let address = ("127.0.0.1", run.first.nodes[1].port);
    let crowd = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..300 {
        crowd.lock().expect("ours").push(TcpStream::connect(address).expect("it listens"));
    }
    let begun = Instant::now();
    let (code, _) = run.step(&["true"]).await;
    assert_eq!(code.expect("it is let in"), 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // Those that stand there longest are gone, and the rest goes soon.
    let mut first = crowd.lock().expect("ours").remove(0);
    first.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
    assert!(matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut last = crowd.lock().expect("ours").pop().expect("it is there");
    last.set_read_timeout(Some(Duration::from_secs(15))).expect("valid");
    assert_eq!(last.read(&mut [0; 1]).ok(), Some(0), "whoever says nothing is closed after ten seconds");
}

#[tokio::test]
async fn a_node_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [mut first, _] = allocations(directory.path());
    // Reserved for documentation: nobody answers, or there is no way.
    first.nodes[1].address = Some([192, 0, 2, 77].into());
    let signals = broadcast::channel(1).0;
    let outcome = launch(&first, 1, &wanted(&["true"]), signals.subscribe(), |_, _| Ok(())).await;
    let error = outcome.expect_err("nobody is there");
    assert!(error.to_string().starts_with("node n2 cannot be reached for a step at 192.0.2.77:"), "{error}");
}

#[test]
fn the_program_of_the_first_node_is_its_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [first, _] = allocations(directory.path());
    let argv = ["sh", "-c", "exit 9"].map(OsString::from);
    assert_eq!(host(&first, Some(&argv)).expect("it starts"), 9);
    let missing = ["/no/such/program".into()];
    assert!(host(&first, Some(&missing)).expect_err("there is none").to_string().contains("/no/such/program"));
}
