//! Redfish controllers: `sushy-emulator`, whose machines change state within three seconds, behind a proxy per machine
//! that simulates faults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hostler_testkit::{Host, program, sushy_emulator, wait_until};
use tempfile::TempDir;

use crate::bmcs::{Bmcs, Fault, secret_path, write_secret};

/// `admin` and `password` as an HTTP header.
const AUTHORIZATION: &str = "Authorization: Basic YWRtaW46cGFzc3dvcmQ=";

/// Port of the emulator on its host's loopback interface.
const PORT: u16 = 8000;

pub(crate) struct Redfish {
    head: Arc<Host>,
    gates: BTreeMap<String, Gate>,
    emulator: Child,
    host: Host,
    _directory: TempDir,
}

/// A proxy between the head and a machine's controller.
struct Gate {
    port: u16,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Redfish {
    /// Starts controllers of machines that are all off.
    pub(crate) fn start(host: Host, head: Arc<Host>, machines: &[String]) -> Self {
        let emulator = program("sushy-emulator", "install the Python package sushy-tools");
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = sushy_emulator(directory.path(), machines, PORT);
        let log = File::create(directory.path().join("log")).expect("it is ours");
        let mut command = host.in_network(&emulator);
        command.env("PYTHONPATH", directory.path()).args(arguments).stdout(Stdio::null()).stderr(log);
        let emulator = command.spawn().expect("nsenter can be started");
        let gates = machines.iter().zip(8001..).map(|(name, port)| (name.clone(), Gate::open(&host, port))).collect();
        for machine in machines {
            write_secret(&head, machine, "admin:password");
        }
        let it = Self { head, gates, emulator, host, _directory: directory };
        let all_answer = || machines.iter().all(|machine| it.ask(machine, "").is_ok()).then_some(());
        wait_until("the emulator to answer", 60, all_answer);
        it
    }

    /// Queries the emulator directly; returns the answer after the status line.
    fn ask(&self, machine: &str, reset: &str) -> io::Result<String> {
        let system = format!("/redfish/v1/Systems/uuid-{machine}");
        let request = if reset.is_empty() {
            format!("GET {system} HTTP/1.0\r\n{AUTHORIZATION}\r\n\r\n")
        } else {
            let body = format!("{{\"ResetType\": \"{reset}\"}}");
            format!(
                "POST {system}/Actions/ComputerSystem.Reset HTTP/1.0\r\n{AUTHORIZATION}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let asked = self.host.thread(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, io::Error>(answer)
        });
        let answer = asked.join().expect("no panic")?;
        let is_well = answer.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
        if is_well { Ok(answer) } else { Err(io::Error::other(answer)) }
    }
}

impl Bmcs for Redfish {
    fn table(&self, machine: &str) -> String {
        format!(
            "{{ kind = 'redfish', address = 'http://{}:{}', insecure = true, system = '{machine}', credentials = '{}', time_limit = '6s' }}",
            self.host.address(),
            self.gates[machine].port,
            secret_path(machine)
        )
    }

    fn is_on(&self, machine: &str) -> bool {
        let answer = self.ask(machine, "").expect("the emulator answers");
        answer.contains("\"PowerState\": \"On\"") || answer.contains("\"PowerState\":\"On\"")
    }

    fn press(&self, machine: &str, on: bool) {
        self.ask(machine, if on { "On" } else { "ForceOff" }).expect("the emulator answers");
    }

    fn spoil(&self, machine: &str, fault: Fault) -> bool {
        self.gates[machine].set(Some(fault));
        if fault == Fault::WrongPassword {
            write_secret(&self.head, machine, "admin:wrong");
        }
        true
    }

    fn mend(&self, machine: &str) {
        self.gates[machine].set(None);
        write_secret(&self.head, machine, "admin:password");
    }
}

impl Drop for Redfish {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Gate {
    fn open(host: &Host, port: u16) -> Self {
        let fault: Arc<Mutex<Option<Fault>>> = Arc::default();
        let address = host.address().to_owned();
        let seen = Arc::clone(&fault);
        // The listener exists as long as the test.
        drop(host.thread(move || {
            let listener = TcpListener::bind((address.as_str(), port)).expect("the port is free on this host");
            for stream in listener.incoming().flatten() {
                let fault = Arc::clone(&seen);
                // A thread is in the network namespace of the thread that started it.
                std::thread::spawn(move || drop(pass(&stream, &fault)));
            }
        }));
        Self { port, fault }
    }

    fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

/// Passes one request to the emulator and returns its answer, subject to the fault.
fn pass(stream: &TcpStream, fault: &Mutex<Option<Fault>>) -> io::Result<()> {
    let now = || *fault.lock().unwrap_or_else(PoisonError::into_inner);
    let mut from = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if name == "content-length" {
            length = line.split_once(':').and_then(|(_, length)| length.trim().parse().ok()).unwrap_or_default();
        }
        if line == "\r\n" {
            break;
        }
        if name != "connection" {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let mut to = stream;
    match now() {
        Some(Fault::Silent) => {
            while now() == Some(Fault::Silent) {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
        Some(Fault::Busy) => to.write_all(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ),
        Some(Fault::Idle) if head.contains("ComputerSystem.Reset") => {
            to.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        }
        _ => {
            let mut emulator = TcpStream::connect(("127.0.0.1", PORT))?;
            emulator.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
            emulator.write_all(&body)?;
            io::copy(&mut emulator, &mut to).map(drop)
        }
    }
}
