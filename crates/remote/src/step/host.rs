//! The step host: a process on each node of a run that starts commands for the run's other nodes.
//!
//! The shepherd starts it as the run's main process there, so it has the job's user, limits and cgroup. Its steps
//! inherit them. On the first node, the host also starts the job's program and ends with it. If the job has no program,
//! the host ends with the connection of the allocation's holder. On other nodes, it ends on SIGTERM.
//!
//! Strangers may connect, but a connection without a valid certificate never blocks others; see [`Admission`].

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hostler_listen::{Admission, Limits, Place};
use hostler_model::WallTime;
use hostler_proto::link::{SCRIPT_STEP, StepRecord};
use hostler_sys::{explain_start, explain_start_here};
use nix::fcntl::{Flock, FlockArg};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{RwLock, Semaphore, broadcast, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::allocation::{Allocation, Holder};
use super::child::Child;
use super::claims::Claims;
use super::environment::on_this_node;
use super::login::LoginRequest;
use super::notices::{self, MemoryKills};
use super::running::Register;
use super::{RECORDS, SOCKET, VARIABLE};
use crate::inherited::{self, Inherited};
use crate::streams::{Copied, Copies};
use crate::{
    Became, Channel, Connection, Event, Frame, Limit, Open, PIECE_BYTES, Refusal, RefusalKind, Reply, Report, Started,
    StepClaim, StepOutcome, StepStart, Streams, WINDOW, Wanted, carry, keep_alive, multiplex,
};

/// The connections, unidentified during their TLS handshake. All others are the job's own.
const LIMITS: Limits = Limits { strangers: 64, time: Duration::from_secs(10), total: usize::MAX };

/// Maximum number of concurrent steps: larger than a node's number of CPUs, but small enough for the limit of open
/// files.
const MAX_STEPS: usize = 256;

/// How long the host retries to bind the port. The port was free when the run was prepared, but another process may use
/// it briefly.
const BIND_BOUND: Duration = Duration::from_secs(5);

/// Time between SIGTERM and SIGKILL for a step whose caller has disconnected.
const GRACE: Duration = Duration::from_secs(2);

/// Pieces of output that those who watch a step have not read yet.
const COPIES: usize = 64;

/// Pause before retrying to listen.
const PAUSE: Duration = Duration::from_millis(100);

/// Capacity of the queues between a step's streams and its supervision.
const EVENTS: usize = 16;

/// How long the end of an allocation or a step may wait for another side to get the answer.
const FAREWELL: Duration = Duration::from_millis(100);

/// How long an allocation without a program lasts without its holder.
const HOLDER_BOUND: Duration = Duration::from_secs(30);

/// How a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEnd {
    /// The program ended with this exit code, the holder released the allocation, or the host was asked to end.
    Code(i32),
    /// The holder of the allocation was gone for [`Self::HOLDER_BOUND`].
    Abandoned,
}

impl HostEnd {
    /// How long an allocation lasts after the connection with its holder broke.
    pub const HOLDER_BOUND: Duration = HOLDER_BOUND;
}

/// Serves steps for this node's part of a run. With a `program`, ends with the program; without, on SIGTERM or with the
/// allocation's holder. `ends`: signals that say why the run ends, with what a job of Slurm's commands then says.
///
/// # Errors
/// Fails when the host cannot listen or cannot start the program.
pub fn host(
    allocation: &Allocation,
    program: Option<&[OsString]>,
    ends: &[(i32, &'static str)],
) -> io::Result<HostEnd> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(serve(allocation, program, ends));
    runtime.shutdown_background();
    end
}

async fn serve(
    allocation: &Allocation,
    program: Option<&[OsString]>,
    ends: &[(i32, &'static str)],
) -> io::Result<HostEnd> {
    let own = allocation.own()?;
    let holder = allocation.holder.map(|holder| holder.certificate);
    let trusted = allocation.nodes.iter().map(|place| place.certificate).chain(holder).collect();
    let _kept = allocation.temporary.as_deref().and_then(keep);
    let mut listener = listen(own.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), own.port).await?;
    let holder = allocation.holder.filter(|_| allocation.rank == Some(0));
    let (holding, mut held) = mpsc::channel(EVENTS);
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let limits = inherited::take_submitters(&mut environment);
    let login = LoginRequest::take(&mut environment);
    let host = Arc::new(Host {
        node: own.name.to_string(),
        acceptor: TlsAcceptor::from(allocation.credentials.to_accept(trusted)?),
        directory: allocation.directory.clone(),
        environment,
        inherited: Inherited::own(),
        memory_kills: MemoryKills::new(),
        steps: Semaphore::new(MAX_STEPS),
        records: records_file(),
        running: Register::new(),
        claims: Claims::new(allocation.nodes.len(), cpus_of_job()),
        copies: broadcast::Sender::new(COPIES),
        watched: RwLock::new(()),
        holding: holder.map(|_| holding),
    });
    // Without the socket, only processes of the job start steps.
    if let Ok(door) = open_door() {
        tokio::spawn(serve_owner(Arc::clone(&host), door));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    for (number, why) in ends {
        let (mut told, node, is_script) =
            (signal(SignalKind::from_raw(*number))?, own.name.to_string(), program.is_some());
        let why = *why;
        tokio::spawn(async move {
            if told.recv().await.is_some() && is_script {
                notices::say_end(why, &node);
            }
        });
    }
    // Catch these signals instead of ignoring them, because the program would inherit ignored signals. The program
    // receives them too.
    for kind in
        [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()]
    {
        drop(signal(kind)?);
    }
    let started_at = now();
    let program = program.map(|argv| start_program(argv, (limits, login), &host)).transpose()?;
    let admission = Admission::new(LIMITS);
    loop {
        tokio::select! {
            (stream, place) = admission.accept(&mut listener) => host.receive(stream, place),
            report = ended(program.as_ref()) => {
                // For the line about the end, whose signal came before: the first pause reads the signal, the second one runs
                // the task that waits for it.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                host.memory_kills.say();
                host.record_script(started_at, &report);
                // Those who watch a step that has just ended get its end before the connections close.
                let _ = tokio::time::timeout(2 * FAREWELL, host.watched.write()).await;
                return Ok(HostEnd::Code(report.code));
            }
            end = released(holder, &mut held), if holder.is_some() => return Ok(end),
            _ = terminate.recv(), if program.is_none() => return Ok(HostEnd::Code(0)),
        }
    }
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The file for the records of steps, in the directory of the node list.
fn records_file() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os(VARIABLE)?).with_file_name(RECORDS))
}

/// The CPUs of the job on each node. Without the variable, as many as any step may ask for.
fn cpus_of_job() -> u32 {
    std::env::var("HOSTLER_CPUS").ok().and_then(|cpus| cpus.parse().ok()).unwrap_or(u32::MAX >> 4)
}

/// A change of the holder's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    Began,
    Broke,
    Released(i32),
}

/// Waits until the holder releases the allocation or has been gone for too long.
async fn released(holder: Option<Holder>, held: &mut mpsc::Receiver<Holding>) -> HostEnd {
    let stays = holder.is_some_and(|holder| holder.stays);
    let mut holders = 0_u32;
    loop {
        let change = match (holders, stays) {
            (0, false) => match timeout(HOLDER_BOUND, held.recv()).await {
                Ok(change) => change,
                Err(_) => return HostEnd::Abandoned,
            },
            _ => held.recv().await,
        };
        match change {
            Some(Holding::Began) => holders += 1,
            Some(Holding::Broke) => holders = holders.saturating_sub(1),
            Some(Holding::Released(code)) => return HostEnd::Code(code),
            None => std::future::pending().await,
        }
    }
}

/// Locks the temporary directory, if it exists. `systemd-tmpfiles` removes directories that were unused for ten days,
/// unless they are locked.
fn keep(temporary: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(temporary).ok()?, FlockArg::LockSharedNonblock).ok()
}

/// Listens at the run's port. Retries for [`BIND_BOUND`] while the port is in use.
async fn listen(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let until = Instant::now() + BIND_BOUND;
    loop {
        match TcpListener::bind(SocketAddr::new(address, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => sleep(PAUSE).await,
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("cannot listen at {address} port {port}: {error}")));
            }
            bound => return bound,
        }
    }
}

/// Listens at the socket for the job's owner. Its path may be too long for an address, but the one of its directory's number is not.
fn open_door() -> io::Result<UnixListener> {
    let nodes = std::env::var_os(VARIABLE).ok_or(io::ErrorKind::NotFound)?;
    let directory = File::open(Path::new(&nodes).parent().ok_or(io::ErrorKind::NotFound)?)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

/// Serves the job's owner. Nobody else gets into the directory of the socket.
async fn serve_owner(host: Arc<Host>, mut door: UnixListener) {
    let admission = Admission::new(LIMITS);
    loop {
        let (stream, place) = admission.accept(&mut door).await;
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            let serve = async {
                if place.identify(&()).is_ok() {
                    host.serve(stream).await;
                }
            };
            let _ = place.hold(serve).await;
        });
    }
}

/// Starts the job's program with the limits of its submitter, and the variables of a login if it asks for them.
fn start_program(
    argv: &[OsString],
    (limits, login): (Vec<Limit>, Option<LoginRequest>),
    host: &Host,
) -> io::Result<Child> {
    let cannot = |error: io::Error| {
        let why = explain_start_here(&argv[0], &error);
        io::Error::new(why.kind(), format!("{}: {why}", argv[0].display()))
    };
    let mut command = std::process::Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(host.environment.iter().cloned());
    command.envs(login.map(|login| login.variables(&host.environment)).unwrap_or_default());
    Inherited { umask: host.inherited.umask, limits }.apply(&host.inherited, &mut command);
    let began = Instant::now();
    Child::watch(&command.spawn().map_err(cannot)?, began)
}

/// Waits for the program to end. Never returns without a program.
async fn ended(program: Option<&Child>) -> Report {
    match program {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

/// State that all steps share.
struct Host {
    node: String,
    acceptor: TlsAcceptor,
    /// The job's directory on this node.
    directory: PathBuf,
    /// Environment variables with this node's values.
    environment: Vec<(OsString, OsString)>,
    /// What steps inherit, unless their callers say otherwise.
    inherited: Inherited,
    memory_kills: MemoryKills,
    steps: Semaphore,
    /// The file with the records of ended steps.
    records: Option<PathBuf>,
    /// The steps and processes that run.
    running: Register,
    /// What steps hold of the job; of use on the first node only.
    claims: Claims,
    /// The output of all steps, for those who watch one.
    copies: broadcast::Sender<Copied>,
    /// Held by each client that watches a step, until it has got the end.
    watched: RwLock<()>,
    /// Tells about the holder's connection; `None` if no client holds the allocation at this node.
    holding: Option<mpsc::Sender<Holding>>,
}

impl Host {
    fn receive(self: &Arc<Self>, stream: TcpStream, place: Arc<Place<()>>) {
        let host = Arc::clone(self);
        tokio::spawn(async move {
            let serve = async {
                keep_alive(&stream);
                // A peer without a valid certificate gets the handshake's error.
                let Ok(stream) = host.acceptor.accept(stream).await else { return };
                if place.identify(&()).is_ok() {
                    host.serve(stream).await;
                }
            };
            // A connection that must end has shown no certificate.
            let _ = place.hold(serve).await;
        });
    }

    /// Serves the steps of one connection.
    async fn serve(self: &Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (connection, mut incoming, run) = multiplex(stream, None);
        let steps = async {
            while let Some(mut channel) = incoming.next().await {
                let (host, connection) = (Arc::clone(self), connection.clone());
                tokio::spawn(async move {
                    match channel.receive().await {
                        Some(Frame::Open(Open::Step(start))) => host.step(&mut channel, &start).await,
                        Some(Frame::Open(Open::Hold)) => host.hold(&mut channel, &connection).await,
                        Some(Frame::Open(Open::Claim(claim))) => host.claim(&mut channel, &claim).await,
                        Some(Frame::Open(Open::Watch(step))) => host.watch(&mut channel, step, &connection).await,
                        _ => {}
                    }
                });
            }
        };
        tokio::select! {
            _ = run => {}
            () = steps => {}
        }
    }

    /// Keeps the allocation until the holder releases it or disconnects.
    async fn hold(&self, channel: &mut Channel, connection: &Connection) {
        let Some(holding) = &self.holding else {
            let message = format!("node {} is not the first node of an allocation without a program", self.node);
            return drop(channel.send(refusal(1, message)).await);
        };
        let _ = holding.send(Holding::Began).await;
        let mut end = Holding::Broke;
        if channel.send(Frame::Reply(Reply::Started(Box::default()))).await.is_ok()
            && let Some(Frame::Event(Event::Release(code))) = channel.receive().await
        {
            end = Holding::Released(code);
            let _ = channel.send(Frame::Reply(Reply::Ended(Box::default()))).await;
            // The host's end closes the connection; the answer should arrive before.
            connection.responds(FAREWELL).await;
        }
        let _ = holding.send(end).await;
    }

    /// Gives a step its number once its CPUs are free. The step holds them until its caller disconnects.
    async fn claim(&self, channel: &mut Channel, claim: &StepClaim) {
        let claimed = tokio::select! {
            claimed = self.claims.begin(&claim.cpus) => claimed,
            _ = channel.receive() => return,
        };
        let (step, _held) = match claimed {
            Ok((step, held)) => {
                let started = Started { step: Some(step), ..Started::default() };
                if channel.send(Frame::Reply(Reply::Started(Box::new(started)))).await.is_err() {
                    return;
                }
                (step, held)
            }
            Err(message) => return drop(channel.send(refusal(1, message)).await),
        };
        let running = StepRecord {
            step,
            name: claim.name.clone(),
            nodes: claim.nodes.clone(),
            tasks: claim.tasks,
            cpus: claim.cpus.iter().sum(),
            started_at: now(),
            ended_at: None,
            exit_code: None,
            cpu_ms: 0,
            system_ms: 0,
            peak_memory_bytes: None,
        };
        let entry = self.running.begin(running.clone());
        let mut outcome = None;
        while let Some(frame) = channel.receive().await {
            if let Frame::Event(Event::Finish(told)) = frame {
                outcome = Some(told);
                break;
            }
        }
        self.record(running, outcome);
        drop(entry);
        let _ = self.copies.send(Copied::Ended { step, code: outcome.map(|outcome| outcome.exit_code) });
        let _ = channel.send(Frame::Reply(Reply::Ended(Box::default()))).await;
    }

    /// Sends the output of a step until the step has ended, on this node and, if this is the first one, as a whole. A slow reader
    /// misses output.
    async fn watch(&self, channel: &mut Channel, step: u32, connection: &Connection) {
        let _watched = self.watched.read().await;
        let mut copies = self.copies.subscribe();
        if !self.running.has(step) {
            let message = format!("step {step} does not run on node {}", self.node);
            return drop(channel.send(refusal(1, message)).await);
        }
        let mut is_there = channel.send(Frame::Reply(Reply::Started(Box::default()))).await.is_ok();
        let (mut room, mut code) = (WINDOW, 0);
        while is_there && (self.running.has(step) || !copies.is_empty()) {
            tokio::select! {
                copied = copies.recv(), if room > 0 => match copied {
                    Ok(Copied::Output { step: of, rank, stream, bytes }) if of == step => {
                        for part in bytes.chunks(PIECE_BYTES - size_of::<u32>()) {
                            let piece = [&rank.to_le_bytes()[..], part].concat();
                            is_there &= channel.send(Frame::Data(stream, piece)).await.is_ok();
                            room = room.saturating_sub(1);
                        }
                    }
                    Ok(Copied::Ended { step: of, code: Some(told) }) if of == step => code = told,
                    Ok(_) | Err(_) => {}
                },
                frame = channel.receive() => match frame {
                    Some(Frame::Credit(_, pieces)) => room += pieces as usize,
                    _ => is_there = false,
                },
            }
        }
        let _ = channel.send(Frame::Reply(Reply::Ended(Box::new(Report { code, ..Report::default() })))).await;
        connection.responds(FAREWELL).await;
    }

    /// Writes the record of an ended step. Without an outcome, its caller was lost.
    fn record(&self, running: StepRecord, outcome: Option<StepOutcome>) {
        let mut record = StepRecord { ended_at: Some(now()), ..running };
        if let Some(StepOutcome { exit_code, cpu_ms, system_ms, peak_memory_bytes }) = outcome {
            record = StepRecord { exit_code: Some(exit_code), cpu_ms, system_ms, peak_memory_bytes, ..record };
        }
        self.write_record(&record);
    }

    /// Writes what the script used itself, if the job has started steps: they count with the whole job.
    fn record_script(&self, started_at: WallTime, report: &Report) {
        if self.records.as_ref().is_some_and(|path| path.exists()) {
            self.write_record(&StepRecord {
                step: SCRIPT_STEP,
                name: "batch".to_owned(),
                nodes: self.node.parse().into_iter().collect(),
                tasks: 1,
                cpus: 0,
                started_at,
                ended_at: Some(now()),
                exit_code: Some(report.code),
                cpu_ms: report.cpu_ms,
                system_ms: report.system_ms,
                peak_memory_bytes: report.memory_peak_bytes,
            });
        }
    }

    fn write_record(&self, record: &StepRecord) {
        let Some(path) = &self.records else { return };
        let mut line = serde_json::to_vec(record).unwrap_or_default();
        line.push(b'\n');
        // The record is for people; a full disk must not end the job.
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(&line));
    }

    /// Runs one step. Ends the step when its caller disconnects.
    async fn step(&self, channel: &mut Channel, start: &StepStart) {
        let Ok(_permit) = self.steps.try_acquire() else {
            let message =
                format!("node {} already runs {MAX_STEPS} steps, the maximum; wait until some have ended", self.node);
            return drop(channel.send(refusal(1, message)).await);
        };
        let (child, mut streams) = match self.start(start) {
            Ok(started) => started,
            Err((code, message)) => return drop(channel.send(refusal(code, message)).await),
        };
        let started = Started { has_messages: streams.messages.is_some(), ..Started::default() };
        if channel.send(Frame::Reply(Reply::Started(Box::new(started)))).await.is_err() {
            return end(child).await;
        }
        let entry = start.step.map(|step| self.running.started(child.pid(), step));
        streams.copies = start.step.map(|step| Copies { step, rank: rank_of(start), to: self.copies.clone() });
        let (want, wanted) = mpsc::channel(EVENTS);
        let (tell, became) = mpsc::channel(EVENTS);
        tokio::join!(self.supervise(child, wanted, tell), carry(channel, streams, want, became));
        drop(entry);
        start.step.map(|step| self.copies.send(Copied::Ended { step, code: None }));
    }

    /// Carries out the caller's requests for a step, and reports the step's end.
    async fn supervise(&self, child: Child, mut wanted: mpsc::Receiver<Wanted>, tell: mpsc::Sender<Became>) {
        let kills = MemoryKills::so_far();
        loop {
            let mut report = tokio::select! {
                report = child.wait() => report,
                want = wanted.recv() => match want {
                    Some(Wanted::Signal(number)) => {
                        child.signal(number);
                        continue;
                    }
                    Some(Wanted::End) | None => return end(child).await,
                },
            };
            report.out_of_memory = self.memory_kills.hit_step(kills, report.code);
            return drop(tell.send(Became::Ended(Box::new(report))).await);
        }
    }

    /// Starts the command. On failure, returns the exit code that a shell would give, and the reason.
    fn start(&self, start: &StepStart) -> Result<(Child, Streams), (u8, String)> {
        let directory = match &start.below_job {
            Some(path) if path.is_empty() => self.directory.clone(),
            Some(path) => self.directory.join(OsStr::from_bytes(path)),
            None => start.command.directory(),
        };
        if !directory.is_dir() {
            let why = format!("the directory {} does not exist on node {}", directory.display(), self.node);
            return Err((1, why));
        }
        let argv = start.command.argv();
        let mut command = std::process::Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear();
        command.envs(on_this_node(start.command.environment(), &self.environment)).envs(start.variables());
        command.env("PWD", &directory).current_dir(&directory);
        // Without limits, the caller is an older program, whose umask is not known either.
        if !start.command.limits.is_empty() {
            let callers = Inherited { umask: start.command.umask, limits: start.command.limits.clone() };
            callers.apply(&self.inherited, &mut command);
        }
        let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path).map(OsStr::to_owned);
        let path = path.unwrap_or_default();
        let (has_input, terminal) = (start.command.has_input, start.command.terminal);
        Child::start(command, has_input, terminal, start.messages.as_deref()).map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            let why = explain_start(&argv[0], &directory, &path, &error);
            (code, format!("node {} cannot start {}: {why}", self.node, argv[0].display()))
        })
    }
}

/// The number of a process in its step.
fn rank_of(start: &StepStart) -> u32 {
    let variables = start.variables();
    let rank = variables.iter().find(|(name, _)| name == "SLURM_PROCID");
    rank.and_then(|(_, rank)| rank.to_str()?.parse().ok()).unwrap_or_default()
}

fn refusal(code: u8, message: String) -> Frame {
    Frame::refused(Box::new(Refusal {
        kind: RefusalKind::Hopeless,
        code,
        message,
        hints: Vec::new(),
        lacks_directory: false,
    }))
}

/// Ends a step whose caller has disconnected.
async fn end(child: Child) {
    child.signal(nix::libc::SIGTERM);
    child.signal(nix::libc::SIGCONT);
    if timeout(GRACE, child.wait()).await.is_err() {
        child.signal(nix::libc::SIGKILL);
        child.wait().await;
    }
}
