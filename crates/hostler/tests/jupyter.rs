//! `hostler jupyter`: a real Jupyter as a job, and programs that act like one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use hostler_testkit::{Cluster, Size, kill, wait_until};
use nix::sys::signal::Signal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The variable with the directory of the virtual environment that contains JupyterLab.
const JUPYTER: &str = "HOSTLER_JUPYTER";

const SIZE: Size = Size { nodes: 1, cpus: 2, memory: "2G" };

/// Acts like Jupyter, as far as `hostler jupyter` knows: says its version, listens on its socket, and answers each
/// connection with its token and the variables that kernels would inherit.
const FAKE: &str = r#"#!/usr/bin/python3
import os, socket, sys
if '--version' in sys.argv:
    print('7.1.0')
    sys.exit()
path = next(it.split('=')[1] for it in sys.argv if it.startswith('--ServerApp.sock='))
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
while True:
    connection = server.accept()[0]
    names = [it for it in os.environ if 'TOKEN' in it and it != 'JUPYTER_TOKEN_FILE']
    token = open(os.environ['JUPYTER_TOKEN_FILE']).read()
    try:
        connection.sendall(f'{token} {sys.argv[1]} {names}\n'.encode())
    except OSError:
        # The command only tries whether somebody listens.
        pass
    connection.close()
"#;

/// Runs code in a kernel, over the WebSocket that JupyterLab uses. Arguments: the server's address and the token.
const USE_KERNEL: &str = r"
import json, sys, urllib.request, uuid, websocket
base, token = sys.argv[1:]
request = urllib.request.Request(f'http://{base}/api/kernels', data=b'{}', headers={'Authorization': f'token {token}'})
kernel = json.load(urllib.request.urlopen(request))['id']
channels = websocket.create_connection(f'ws://{base}/api/kernels/{kernel}/channels?token={token}', timeout=60)
header = {'msg_id': uuid.uuid4().hex, 'msg_type': 'execute_request', 'session': 's', 'username': 'u', 'version': '5.3'}
said = 'import json, ipykernel; print(6 * 7, \'curve_publickey\' in json.load(open(ipykernel.get_connection_file())))'
code = {'code': said, 'silent': False, 'store_history': False, 'user_expressions': {}, 'allow_stdin': False}
message = {'header': header, 'parent_header': {}, 'metadata': {}, 'content': code, 'channel': 'shell', 'buffers': []}
channels.send(json.dumps(message))
while True:
    answer = json.loads(channels.recv())
    if answer['msg_type'] == 'stream' and answer['parent_header']['msg_id'] == header['msg_id']:
        print(answer['content']['text'], end='')
        break
";

/// A running `hostler jupyter`.
struct Opened {
    process: Child,
    messages: BufReader<ChildStderr>,
    /// The address and port on this machine, or nothing yet.
    address: String,
    token: String,
}

impl Opened {
    /// Starts the command with `jupyter` from this directory.
    fn start(cluster: &Cluster, bin: &Path, arguments: &[&str]) -> Self {
        let mut command = on_path(cluster, bin, &[&["jupyter", "--no-browser"], arguments].concat());
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the executable starts");
        let messages = BufReader::new(process.stderr.take().expect("piped"));
        Self { process, messages, address: String::new(), token: String::new() }
    }

    /// Waits until the command prints the address.
    fn ready(mut self) -> Self {
        let mut line = String::new();
        BufReader::new(self.process.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let Some((address, token)) = line.trim_end().split_once("?token=") else { panic!("{line}{}", self.rest()) };
        let (address, _) = address.trim_start_matches("http://").split_once('/').expect("a page");
        (self.address, self.token) = (address.to_owned(), token.to_owned());
        self
    }

    /// Waits for a message with this text.
    fn says(&mut self, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            let len = self.messages.read_line(&mut all).expect("text");
            assert!(len > 0, "{text} is not in: {all}");
        }
        all
    }

    /// The status of the answer to a request.
    fn status_of(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the command listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a valid timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{header}Connection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("connected");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("text");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// What the program that acts like Jupyter answers.
    fn answer(&self) -> String {
        let mut answer = String::new();
        TcpStream::connect(&self.address).and_then(|mut it| it.read_to_string(&mut answer)).expect("an answer");
        answer
    }

    fn rest(&mut self) -> String {
        let mut said = String::new();
        self.messages.read_to_string(&mut said).expect("text");
        said
    }

    /// Waits for the end. Returns the exit code and the messages.
    fn end(mut self) -> (Option<i32>, String) {
        let said = self.rest();
        (self.process.wait().expect("not reaped yet").code(), said)
    }

    fn interrupt(self) -> (Option<i32>, String) {
        kill(self.process.id(), Signal::SIGINT);
        self.end()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn on_path(cluster: &Cluster, bin: &Path, arguments: &[&str]) -> Command {
    let mut command = cluster.command(arguments);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command
}

/// A directory with this program as `jupyter`.
fn program(cluster: &Cluster, text: &str) -> std::path::PathBuf {
    let file = cluster.write("bin/jupyter", text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("just written");
    cluster.path("bin")
}

/// The directory on the node of the only Jupyter of this cluster.
fn directory_of(cluster: &Cluster, id: &str) -> String {
    let command = cluster.json(&["job", id])["command"].as_str().expect("text").to_owned();
    command.split(' ').nth(1).expect("an argument").to_owned()
}

/// The number of command lines on this machine that contain the text.
fn command_lines_with(text: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("readable").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn real_jupyter_runs_kernels_and_its_token_is_nowhere_else() {
    let environment = std::env::var(JUPYTER).unwrap_or_else(|_| {
        panic!(
            "{JUPYTER} is not set: `python3 -m venv DIR && DIR/bin/pip install jupyterlab ipykernel`, and set it to DIR; \
             .ci/run does this"
        )
    });
    let bin = Path::new(&environment).join("bin");
    let cluster = Cluster::up(HOSTLER, SIZE);
    let mut options = vec!["-m", "1G"];
    if nix::unistd::geteuid().is_root() {
        options.extend(["--", "--allow-root"]);
    }
    let opened = Opened::start(&cluster, &bin, &options).ready();
    let token = opened.token.clone();
    assert_eq!(opened.status_of("/api/kernels", ""), "403");
    assert_eq!(opened.status_of("/api/kernels", "Authorization: token 0123\r\n"), "403");
    assert_eq!(opened.status_of("/api/kernels", &format!("Authorization: token {token}\r\n")), "200");
    assert_eq!(opened.status_of(&format!("/lab?token={token}"), ""), "200");
    let mut kernel = Command::new(bin.join("python"));
    let printed = kernel.args(["-c", USE_KERNEL, &opened.address]).arg(&token).output().expect("Python starts");
    assert_eq!(String::from_utf8_lossy(&printed.stdout), "42 True\n", "{}", String::from_utf8_lossy(&printed.stderr));

    // Jupyter listens on no port.
    let port = cluster.run(&["forward", "1", "8888", "--stdio"]);
    assert!(port.code == 1 && port.stderr.contains("nothing in task 1_0 listens on port 8888"), "{}", port.stderr);
    let directory = directory_of(&cluster, "1");
    let mode = |path: &str| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let files = [format!("{directory}/token"), format!("{directory}/server.sock")];
    assert_eq!((mode(&directory), files.map(|file| mode(&file))), (0o700, [0o600, 0o600]));
    let shown = [vec!["job", "1", "--json"], vec!["job", "1", "--script"], vec!["logs", "1"], vec!["jobs", "--json"]];
    for arguments in shown {
        let shown = cluster.run(&arguments);
        assert!(!shown.stdout.contains(&token) && !shown.stderr.contains(&token), "{arguments:?}");
    }
    assert!(!cluster.logs().contains(&token));
    assert_eq!(command_lines_with(&token), 0);

    let (code, said) = opened.interrupt();
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(cluster.state("1"), "cancelled");
    assert!(!Path::new(&directory).exists(), "the job removes its directory");
}

#[test]
fn detached_jupyter_is_opened_again_and_the_command_ends_with_the_job() {
    let cluster = Cluster::up(HOSTLER, SIZE);
    let bin = program(&cluster, FAKE);
    let detached = on_path(&cluster, &bin, &["jupyter", "notebook", "--detach", "-m", "64M", "--", "x y"]).output();
    assert_eq!(String::from_utf8_lossy(&detached.expect("starts").stdout), "1\n");

    // In a browser that keeps the page that it is told to open.
    let browser = cluster.write("browser", "#!/bin/sh\ncp \"${1#file://}\" \"$HOME/page\"\n");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).expect("just written");
    let mut command = on_path(&cluster, &bin, &["jupyter", "--attach", "1"]);
    let first = Opened::spawn(command.env("BROWSER", &browser)).ready();
    let token = first.token.clone();
    // Kernels inherit no token.
    assert_eq!(first.answer(), format!("{token} notebook []\n"));
    let page = wait_until("the browser to open", 30, || {
        fs::read_to_string(cluster.path("page")).ok().filter(|page| page.ends_with("</p>\n"))
    });
    assert!(page.contains(&format!("url=http://{}/tree?token={token}", first.address)), "{page}");
    let (code, said) = first.interrupt();
    assert!(code == Some(0) && said.ends_with("job 1 continues; `hostler cancel 1` ends it\n"), "{code:?} {said}");

    let mut second = Opened::start(&cluster, &bin, &["lab", "--attach", "1", "--socket", "./j.sock", "--json"]);
    let mut line = String::new();
    BufReader::new(second.process.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let shown: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = format!("http+unix://.%2Fj.sock/lab?token={token}");
    assert_eq!((shown["url"].as_str(), &shown["job"]), (Some(url.as_str()), &1.into()));
    assert!(shown["node"].is_string(), "{shown}");
    let mut answer = String::new();
    UnixStream::connect(cluster.path("j.sock")).and_then(|mut it| it.read_to_string(&mut answer)).expect("an answer");
    assert_eq!(answer, format!("{token} notebook []\n"));
    cluster.ok(&["cancel", "1"]);
    let (code, said) = second.end();
    assert!(code != Some(0) && said.ends_with("job 1 was cancelled\n"), "{code:?} {said}");

    let again = on_path(&cluster, &bin, &["jupyter", "--attach", "1"]).output().expect("starts");
    let again = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.contains("does not have the token of a Jupyter in job 1"), "{again}");
}

#[test]
fn job_ends_with_the_command_whatever_signals_end_it() {
    let cluster = Cluster::up(HOSTLER, SIZE);
    let bin = program(&cluster, FAKE);
    let opened = Opened::start(&cluster, &bin, &["-m", "64M"]).ready();
    for signal in [Signal::SIGHUP, Signal::SIGTERM] {
        kill(opened.process.id(), signal);
    }
    let (code, said) = opened.end();
    assert!(matches!(code, Some(129 | 143)), "{code:?} {said}");
    wait_until("the job to end", 30, || (cluster.state("1") == "cancelled").then_some(()));

    let detached = on_path(&cluster, &bin, &["jupyter", "--detach", "-m", "64M"]).output().expect("starts");
    assert_eq!(String::from_utf8_lossy(&detached.stdout), "2\n");
    cluster.ok(&["cancel", "2"]);
    assert_eq!(cluster.run(&["wait", "2"]).code, 1);
    let attached = on_path(&cluster, &bin, &["jupyter", "--attach", "2"]).output().expect("starts");
    let attached = String::from_utf8_lossy(&attached.stderr).into_owned();
    assert!(attached.contains("error: job 2 was cancelled") && !attached.contains("did not start"), "{attached}");
}

#[test]
fn command_says_why_the_job_waits_and_warns_before_the_time_limit() {
    let cluster = Cluster::up(HOSTLER, SIZE);
    let bin = program(&cluster, FAKE);
    let busy = cluster.ok(&["run", "--detach", "-c", "2", "-m", "64M", "--", "sleep", "600"]);
    let mut opened = Opened::start(&cluster, &bin, &["-m", "64M", "-t", "5s"]);
    opened.says("job 2 waits: ");
    cluster.ok(&["cancel", &busy]);
    let mut opened = opened.ready();
    opened.says("Jupyter ends in 1 minute, at the time limit of job 2: save your work\n");
    let (code, said) = opened.end();
    assert!(code == Some(124) && said.ends_with("job 2 reached its time limit\n"), "{code:?} {said}");
}

/// Makes a wheel named jupyterlab with a program as `jupyter`. Arguments: the directory and the program.
const WHEEL: &str = "\
import sys, zipfile
directory, program = sys.argv[1:]
with zipfile.ZipFile(f'{directory}/jupyterlab-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('jupyterlab-1.data/scripts/jupyter', program)
    wheel.writestr('jupyterlab-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: jupyterlab\\nVersion: 1\\n')
    wheel.writestr('jupyterlab-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('jupyterlab-1.dist-info/RECORD', '')
";

#[test]
fn node_without_jupyter_builds_an_environment_with_it() {
    let cluster = Cluster::up(HOSTLER, SIZE);
    let wheels = cluster.path("wheels");
    fs::create_dir(&wheels).expect("new");
    let made = Command::new("python3").args(["-c", WHEEL]).arg(&wheels).arg(FAKE).status().expect("python3 starts");
    assert!(made.success());
    let requirements = cluster.write("needs.txt", format!("--no-index\n--find-links {}", wheels.display()));
    let arguments = ["-m", "256M", "--requirements", requirements.to_str().expect("text")];
    let jupyter = Opened::start(&cluster, &cluster.path("bin"), &arguments).ready();
    assert_eq!(jupyter.answer().split(' ').next(), Some(jupyter.token.as_str()));
    assert_eq!(jupyter.interrupt().0, Some(130));
}

#[test]
fn jupyter_that_does_not_start_is_explained() {
    let cluster = Cluster::up(HOSTLER, SIZE);
    let fails = |text: &str, arguments: &[&str]| {
        let bin = program(&cluster, text);
        let (code, said) = Opened::start(&cluster, &bin, &[&["-m", "64M"], arguments].concat()).end();
        assert!(said.contains("error: Jupyter did not start: job "), "{said}");
        (code, said)
    };
    let (code, said) = fails("#!/bin/sh\necho 1.24.0\n", &[]);
    let why = "hostler: the package jupyter_server is missing or older than version 2 on node ";
    assert!(code == Some(127) && said.contains(why), "{code:?} {said}");
    let (code, said) = fails("#!/bin/sh\n[ \"$1\" = server ] && echo 2.1 || echo 6.5.4\n", &["notebook"]);
    assert!(code == Some(127) && said.contains("`jupyter notebook` is missing or older than version 7"), "{said}");
    let broken = "#!/bin/sh\n[ \"$2\" = --version ] && echo 7 && exit\nseq -f 'line %g' 30 >&2\nexit 3\n";
    let (code, said) = fails(broken, &[]);
    assert!(code == Some(3) && said.contains("line 11\nline 12\n") && !said.contains("line 10\n"), "{said}");
    assert!(said.contains("failed with exit code 3"), "{said}");

    fs::remove_file(cluster.path("bin/jupyter")).expect("there");
    let (code, said) = Opened::start(&cluster, &cluster.path("bin"), &["-m", "64M"]).end();
    assert!(code == Some(127) && said.contains("there is no `jupyter` in the PATH of the job on node "), "{said}");
    assert!(said.contains("hostler: - run only the kernel there, with Jupyter here: `python -m"), "{said}");
}
