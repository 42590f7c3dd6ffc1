//! Runs other programs in tests.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
use nix::unistd::Pid;

/// A process started by a test, with its descendants.
pub struct Running(Child);

impl Running {
    /// Starts the process with its output in `log`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::create(log).expect("a log can be written");
        let errors = log.try_clone().expect("a descriptor can be duplicated");
        let started = command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0).spawn();
        Self(started.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().cast_signed());
        // The process is not reaped yet, so its pid cannot be reused.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// The path of a required program.
///
/// # Panics
/// If it is missing; the message says how to install it.
#[must_use]
pub fn program(name: &str, how_to_get_it: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(system).map(|directory| directory.join(name)).find(|it| it.exists());
    found.unwrap_or_else(|| panic!("`{name}` is missing: {how_to_get_it}, as .ci/run does"))
}

/// Ports that tests may reserve. They are below the range from which Linux chooses ports itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Reserves a free port, for TCP and UDP, until this process ends. Neither another test nor the kernel gives it to
/// another program, so a daemon can listen there later, and again after a restart.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let count = PORTS.end - PORTS.start;
    // Tests that start one after the other look in different places.
    let first = (u64::from(std::process::id()) * 37 % u64::from(count)) as u16;
    let mut ports = (0..count).map(|number| PORTS.start + (first + number) % count);
    let reserve = |port: u16| {
        // The kernel removes an abstract socket with the process.
        let name = SocketAddr::from_abstract_name(format!("hostler-test-port-{port}")).expect("a short name");
        let reservation = UnixListener::bind_addr(&name).ok()?;
        is_free(port).then_some((port, reservation))
    };
    let (port, reservation) = ports.find_map(reserve).expect("a port is free");
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reservation);
    port
}

/// Whether no socket uses the port, not even one of a connection that has just been closed.
fn is_free(port: u16) -> bool {
    let any = SockaddrIn::new(0, 0, 0, 0, port);
    [SockType::Stream, SockType::Datagram].into_iter().all(|kind| {
        let socket = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None);
        socket.is_ok_and(|socket| bind(socket.as_raw_fd(), &any).is_ok())
    })
}
