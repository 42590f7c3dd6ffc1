//! Runs a command from another node: account, directory, limits and streams.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hostler_model::{CpuSet, NodeName, Resources, WindowSize, format_bytes};
use hostler_remote::Paths;
use hostler_remote::{
    Became, Caller, Channel, Command, Destination, Event as CallEvent, Frame, Input, Limit, Refusal, RefusalKind,
    Reply, Report, Start, Started, Streams, Wanted, carry_home, shared_files,
};
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{
    CallOptions, Cause, Enforcement, Event, ExitRecord, Launch, LaunchError, Limits, Options, ResourceLimit, Status,
};
use nix::fcntl::OFlag;
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Uid, fchown, geteuid, pipe2};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::caller_streams::CallerStreams;
use super::directory::{self, Found};
use super::mirror::MirroredTree;
use super::refusal::unsuitable;
use super::shared::{Exec, Host};
use super::written::Disk;
use crate::account::{Account, AccountError};
use crate::containers::sandbox;
use crate::handle::Held;
use crate::rights::act_as;
use crate::runs::outcome::is_out_of_memory;
use crate::runs::shepherds::{self, LINGER, Taken, Watched};

/// Time between SIGTERM and SIGKILL for a command whose caller has disconnected.
const GRACE: Duration = Duration::from_secs(2);

/// Minimum memory limit of a command in bytes, even if less memory is free.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;

/// Timeout for a proof file to disappear that this node cannot remove. A network file system may cache its directory for
/// half a minute.
const PROOF_BOUND: Duration = Duration::from_secs(50);
const PROOF_POLL: Duration = Duration::from_millis(20);

/// Timeout for finding a command's directory and refreshing files. Nothing has started by then, so another node can be tried.
const DIRECTORY_BOUND: Duration = Duration::from_secs(5);

/// Timeout for listing recent writes on a shared disk.
const NEWS_BOUND: Duration = Duration::from_secs(2);

/// Runs a command from another node to its end, and reports on its channel.
pub(super) async fn run(exec: &Arc<Exec>, mut channel: Channel, mut start: Start, from: &NodeName) {
    start.command.sandbox |= exec.host.demands_sandbox;
    let Some(_going) = exec.host.activity.begin() else {
        let message = format!("node {} is being switched off", exec.host.name);
        return drop(channel.send(Frame::refused(Box::new(unsuitable(126, message)))).await);
    };
    // The sender may not know this yet.
    if let Some(task) = exec.engine.held().by {
        let message = format!("job {task} has node {} to itself", exec.host.name);
        return drop(channel.send(Frame::refused(Box::new(unsuitable(126, message)))).await);
    }
    match begin(exec, &mut channel, start, from, None).await {
        Ok(begun) => drop(supervise_call(exec, &mut channel, begun).await),
        Err(refusal) => drop(channel.send(Frame::refused(refusal)).await),
    }
}

/// Runs a command of this machine with its caller's streams, to its end. Returns the command's run time in
/// microseconds, if the command ended.
///
/// # Errors
/// Fails when the command cannot be started.
pub(super) async fn run_own(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    start: Start,
    its: CallerStreams,
    placed: Destination,
) -> Result<Option<u64>, Box<Refusal>> {
    let name = exec.host.name.clone();
    let mut begun = begin(exec, channel, start, &name, Some(its)).await?;
    begun.started.placed = Some(placed);
    begun.started.has_streams = true;
    Ok(supervise_call(exec, channel, begun).await)
}

/// Runs a sandboxed command of this machine to its end. The streams are pipes or a terminal of the agent, because those of the
/// caller may lead out of the sandbox. Returns the command's run time in microseconds, if the command ended.
///
/// # Errors
/// Fails when the command cannot be started.
pub(super) async fn run_own_in_sandbox(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    start: Start,
    placed: Destination,
) -> Result<Option<u64>, Box<Refusal>> {
    let name = exec.host.name.clone();
    let mut begun = begin(exec, channel, start, &name, None).await?;
    begun.started.placed = Some(placed);
    Ok(supervise_call(exec, channel, begun).await)
}

/// Refuses a command that cannot run in a sandbox on this node.
pub(super) fn check_sandbox(host: &Host, command: &Command) -> Result<(), Box<Refusal>> {
    let name = &host.name;
    if let Err(why) = &host.sandboxes.offered {
        return Err(Box::new(unsuitable(126, format!("node {name} runs no sandboxed commands: {why}"))));
    }
    // Its user says where in the file system the tree is, also in front of what root would show in the sandbox.
    if command.tree.is_some() {
        let message = format!("node {name} runs the command in a sandbox only, which cannot show a tree of --mirror");
        return Err(Box::new(unsuitable(126, message)));
    }
    Ok(())
}

/// Supervises a command until it has ended.
async fn supervise_call(exec: &Arc<Exec>, channel: &mut Channel, begun: Begun) -> Option<u64> {
    let Begun { started, streams, shepherd, leaf, account, mirrored } = begun;
    let owner = account.as_ref().map(|account| account.ids.uid);
    channel.send(Frame::Reply(Reply::Started(Box::new(started)))).await.ok()?;
    let (want, wanted) = mpsc::channel(16);
    let (tell, became) = mpsc::channel(16);
    let tended = tend(exec, shepherd, account, wanted, tell);
    let send_results = async |channel: &mut Channel, report: &mut Report| {
        if let Some(mirrored) = mirrored {
            mirrored.send_results(channel, report).await;
        }
    };
    let (tended, ()) = tokio::join!(tended, carry_home(channel, streams, want, became, send_results));
    let (shepherd, ran_us) = tended?;
    if let Some(shepherd) = shepherd {
        exec.idle.put(shepherd, leaf, CpuSet::default(), owner, Instant::now());
    }
    Some(ran_us)
}

/// A started command.
struct Begun {
    started: Started,
    streams: Streams,
    shepherd: Watched,
    leaf: Option<LeafSpec>,
    /// The account that the command runs as; `None` for the agent's own user.
    account: Option<Arc<Account>>,
    mirrored: Option<MirroredTree>,
}

async fn begin(
    exec: &Arc<Exec>,
    channel: &mut Channel,
    start: Start,
    from: &NodeName,
    its: Option<CallerStreams>,
) -> Result<Begun, Box<Refusal>> {
    let host = &exec.host;
    let Start { command, caller, written } = start;
    if command.sandbox {
        check_sandbox(host, &command)?;
    }
    let account = account_of(exec, &caller, from).await?;
    let (mirrored, directory_id, is_shared) = match &command.tree {
        Some(spec) => {
            let nodes = (from, &host.name);
            let mirrored = exec.mirrors.prepare(channel, &command, spec, nodes, account.as_ref()).await?;
            (Some(mirrored), None, false)
        }
        None => {
            let (found, is_shared) = find_directory(exec, &command, account.clone(), written).await?;
            if found.has_proof {
                proof_removed(exec, channel, &command, account.clone()).await?;
            }
            (None, Some(found.id), is_shared)
        }
    };
    tracing::info!(user = %caller.name, %from, program = %command.argv()[0].display(), "running a remote command");
    let owner = account.as_ref().map(|account| account.ids.uid);
    let own_streams = |error: io::Error| {
        Box::new(unsuitable(126, format!("node {} cannot create the command's streams: {error}", host.name)))
    };
    let (made, streams) = match &its {
        Some(_) => (None, Streams::default()),
        None => streams_for(&command, owner).map(|(made, streams)| (Some(made), streams)).map_err(own_streams)?,
    };
    let stdio = match (&its, &made) {
        (Some(its), _) => its.borrowed(),
        (None, made) => made.iter().flatten().map(AsFd::as_fd).collect(),
    };
    let namespace = mirrored.as_ref().map(MirroredTree::namespace);
    let mut orders = orders(exec, &command, account.as_ref());
    let shepherd = launch(exec, &mut orders, &stdio, namespace, owner).await?;
    drop((its, made));
    if shepherd.has_started() {
        let started = Started { directory_id, is_shared, ..Started::default() };
        return Ok(Begun { started, streams, shepherd, leaf: orders.options.leaf, account, mirrored });
    }
    Err(not_started(&host.name, shepherd).await)
}

/// Returns the account that the command runs as; `None` for the agent's own user.
async fn account_of(exec: &Exec, caller: &Caller, from: &NodeName) -> Result<Option<Arc<Account>>, Box<Refusal>> {
    let host = &exec.host;
    let refused = |error: AccountError| {
        Box::new(unsuitable(126, format!("node {} does not run the command: {error}", host.name)))
    };
    host.accounts.check_may_command(&caller.name, caller.uid).map_err(refused)?;
    if host.accounts.has_several_users() {
        if *from != host.name {
            host.accounts.check_not_guarded(&caller.name, caller.uid).map_err(refused)?;
        }
        return host.accounts.of(&caller.name, Some(caller.uid)).await.map_err(refused);
    }
    let own = host.accounts.name_of(geteuid().as_raw()).await;
    if own == caller.name {
        return Ok(None);
    }
    let mut refusal = unsuitable(
        126,
        format!("the agent of node {} runs as {own}, and accepts commands of no other user", host.name),
    );
    refusal.hints.push("only an agent that runs as root can run commands of several users".to_owned());
    Err(Box::new(refusal))
}

/// Finds the command's directory, and refreshes files that other machines may have changed.
async fn find_directory(
    exec: &Arc<Exec>,
    command: &Command,
    account: Option<Arc<Account>>,
    written: Paths,
) -> Result<(Found, bool), Box<Refusal>> {
    let (waits, uid) = (Arc::clone(&exec.waits), account.as_ref().map(|account| account.ids.uid));
    let exec = Arc::clone(exec);
    let (command, boot, node) = (command.clone(), exec.host.boot.0.clone(), exec.host.name.to_string());
    let no_answer = format!(
        "node {node} cannot use the directory {}: its file system, or one with recently written files, does not answer",
        command.directory().display()
    );
    let find = move || {
        let ids = account.as_ref().map(|account| &account.ids);
        let found = directory::find(&command, &boot, &node, ids)?;
        let directory = command.directory();
        let is_shared = exec.written.watch(&directory).0 != Disk::Own;
        if is_shared {
            let paths: Vec<PathBuf> = shared_files::named(&command).into_iter().chain(written.to_vec()).collect();
            let _ = act_as(ids, || shared_files::refresh(paths.iter().map(PathBuf::as_path)));
        }
        Ok((found, is_shared))
    };
    match waits.run(uid, DIRECTORY_BOUND, find).await {
        Some(Ok(found)) => found,
        Some(Err(error)) => Err(Box::new(unsuitable(126, format!("cannot check the command's directory: {error}")))),
        None => Err(Box::new(Refusal { lacks_directory: true, ..unsuitable(126, no_answer) })),
    }
}

/// Asks the caller to remove the proof file, and waits until the user no longer sees it on this node.
async fn proof_removed(
    exec: &Exec,
    channel: &mut Channel,
    command: &Command,
    account: Option<Arc<Account>>,
) -> Result<(), Box<Refusal>> {
    let failed = |why: &str| {
        let shown = command.directory();
        let message = format!("node {} cannot use the directory {}: {why}", exec.host.name, shown.display());
        Box::new(unsuitable(126, message))
    };
    channel.send(Frame::Event(CallEvent::RemoveProof)).await.map_err(|_| failed("the caller has disconnected"))?;
    let until = Instant::now() + PROOF_BOUND;
    loop {
        let (command, account) = (command.clone(), account.clone());
        let look = move || directory::has_proof(&command, account.as_ref().map(|account| &account.ids));
        if !tokio::task::spawn_blocking(look).await.unwrap_or(false) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(failed("the file that proves the directory is still there, and cannot be removed"));
        }
        sleep(PROOF_POLL).await;
    }
}

/// Creates the command's streams. Returns the command's ends and the agent's ends. `owner` becomes the owner of the
/// terminal.
fn streams_for(command: &Command, owner: Option<u32>) -> io::Result<([OwnedFd; 3], Streams)> {
    let on_terminal = command.on_terminal();
    let (its_terminal, terminal) = match command.terminal.map(|size| open_terminal(command, size, owner)).transpose()? {
        Some((its_terminal, terminal)) => (Some(its_terminal), Some(terminal)),
        None => (None, None),
    };
    let of_terminal = |stream: usize| match &its_terminal {
        Some(terminal) if on_terminal[stream] => terminal.try_clone().map(Some),
        _ => Ok(None),
    };
    let pipe = || pipe2(OFlag::O_CLOEXEC);
    let (its_input, input) = match of_terminal(0)? {
        Some(terminal) => (terminal, Some(Input::Terminal)),
        None if command.has_input => {
            let (read, write) = pipe()?;
            (read.try_clone()?, Some(Input::Pipe(write, Some(read))))
        }
        None => (std::fs::File::open("/dev/null")?.into(), None),
    };
    let piped = |terminal: Option<OwnedFd>| match terminal {
        Some(terminal) => Ok((terminal, None)),
        None => pipe().map(|(read, write)| (write, Some(read))),
    };
    let (its_output, output) = piped(of_terminal(1)?)?;
    let (its_errors, errors) =
        if command.is_merged { (its_output.try_clone()?, None) } else { piped(of_terminal(2)?)? };
    Ok(([its_input, its_output, its_errors], Streams { input, output, errors, terminal, ..Streams::default() }))
}

/// Opens a terminal and gives it to the command's user. Returns the command's end and the agent's end.
fn open_terminal(command: &Command, size: WindowSize, owner: Option<u32>) -> io::Result<(OwnedFd, OwnedFd)> {
    let size = nix::pty::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pair = openpty(Some(&size), None)?;
    // Only terminals that the agent opens change their owner, never one that a caller hands over.
    if owner.is_some() {
        fchown(&pair.slave, owner.map(Uid::from_raw), None)?;
    }
    if !command.is_interactive() {
        // The caller's terminal is in its usual mode: it echoes the input and ends the output's lines.
        let mut modes = tcgetattr(&pair.slave)?;
        modes.local_flags.remove(LocalFlags::ECHO);
        modes.output_flags.remove(OutputFlags::OPOST);
        tcsetattr(&pair.slave, SetArg::TCSANOW, &modes)?;
    }
    Ok((pair.slave, pair.master))
}

/// Builds the shepherd's launch request.
fn orders(exec: &Exec, command: &Command, account: Option<&Arc<Account>>) -> Launch {
    let host = &exec.host;
    let number = exec.started.fetch_add(1, Ordering::Relaxed);
    let mut options = options(exec, command.memory_bytes);
    options.umask = command.umask;
    let user = if command.sandbox { host.accounts.in_sandbox(account) } else { account };
    options.credentials = user.map(|user| user.credentials());
    options.linger = (!command.is_interactive()).then_some(LINGER);
    options.leaf = host.leaves.leaf(&format!("call-{number}"));
    let limit = |limit: &Limit| ResourceLimit { resource: limit.resource, soft: limit.soft, hard: limit.hard };
    options.call = Some(CallOptions {
        terminal: command.is_interactive(),
        limits: command.limits.iter().map(limit).collect(),
        namespace: command.tree.is_some(),
    });
    let mut env = command.environment();
    env.retain(|(name, _)| name != "PWD" && name != "HOSTLER_NODE");
    if command.sandbox {
        sandbox::adapt_command(&mut env);
        options.sandbox = Some(host.sandboxes.of_command(user.map(Arc::as_ref)));
    }
    env.push(("PWD".into(), command.directory().into_os_string()));
    env.push(("HOSTLER_NODE".into(), host.name.as_str().into()));
    let mut argv = command.argv();
    // A sandbox does not show this program. Without it, ^Z has no effect.
    if command.is_interactive() && !command.sandbox {
        // A session leader is needed for the terminal.
        argv.splice(0..0, [host.program.clone().into(), "session-leader".into(), "--".into()]);
    }
    Launch { directory: PathBuf::new(), argv, env, cwd: command.directory(), options }
}

/// Returns the limits of a remote command on this node: the CPUs and memory that no job holds, and no GPU.
pub(super) fn options(exec: &Exec, memory_bytes: Option<u64>) -> Options {
    let host = &exec.host;
    Options {
        process_limit: Some(host.processes.of_command()),
        denied_devices: host.gpus.denied(&BTreeSet::new()),
        ..options_beside(&exec.engine.held(), &host.resources, memory_bytes)
    }
}

/// Returns the limits of a remote command on a node with these resources, of which jobs hold a part.
fn options_beside(held: &Held, all: &Resources, memory_bytes: Option<u64>) -> Options {
    let mut cpus = all.cpus.clone();
    cpus.remove_all(&held.cpus);
    if cpus.is_empty() {
        // All CPUs are in use, so the command shares all of them.
        cpus = all.cpus.clone();
    }
    let free = all.memory_bytes.saturating_sub(held.memory_bytes).max(LEAST_MEMORY_BYTES);
    Options {
        cpus: Some(cpus.iter().collect()),
        memory_limit_bytes: Some(memory_bytes.unwrap_or(free)),
        ..Options::default()
    }
}

/// Starts the command with an idle shepherd, or with a new one.
async fn launch(
    exec: &Exec,
    orders: &mut Launch,
    stdio: &[BorrowedFd<'_>],
    namespace: Option<BorrowedFd<'_>>,
    owner: Option<u32>,
) -> Result<Watched, Box<Refusal>> {
    let node = &exec.host.name;
    // No other node may run the command, because it may still start here.
    let no_answer = || {
        let message =
            format!("the command may have started on node {node}: its program or a stream takes too long to open");
        Box::new(Refusal { kind: RefusalKind::Hopeless, ..unsuitable(125, message) })
    };
    let descriptors: Vec<_> = stdio.iter().copied().chain(namespace).collect();
    if orders.options.linger.is_some()
        && let Some((mut shepherd, leaf)) = exec.idle.take(&CpuSet::default(), owner)
    {
        let own_leaf = std::mem::replace(&mut orders.options.leaf, leaf);
        match shepherd.take_call(orders, &descriptors).await {
            Taken::Yes => return Ok(shepherd),
            Taken::Unknown => return Err(no_answer()),
            Taken::No => orders.options.leaf = own_leaf,
        }
    }
    shepherds::start(&exec.host.launcher, orders, &descriptors).await.map_err(|error| match error {
        LaunchError::NoAnswer(_) => no_answer(),
        error => {
            let why = format!("{:#}", anyhow::Error::from(error));
            Box::new(unsuitable(126, format!("node {node} cannot start the command: {why}")))
        }
    })
}

/// Returns the refusal for a program that the shepherd could not start.
async fn not_started(node: &NodeName, mut shepherd: Watched) -> Box<Refusal> {
    while let Some(event) = shepherd.next_event().await {
        let Event::Finished(record) = event else { continue };
        if let Status::StartFailed { message, code } = &record.status {
            let code = u8::try_from(*code).unwrap_or(126);
            return Box::new(unsuitable(code, format!("node {node} {message}")));
        }
        break;
    }
    Box::new(Refusal {
        kind: RefusalKind::Hopeless,
        ..unsuitable(125, format!("node {node} lost the command's supervising process"))
    })
}

/// Carries out the caller's requests and reports the command's end. Returns the shepherd if it can serve another
/// command, and the run time in microseconds.
async fn tend(
    exec: &Arc<Exec>,
    mut shepherd: Watched,
    account: Option<Arc<Account>>,
    mut wanted: mpsc::Receiver<Wanted>,
    tell: mpsc::Sender<Became>,
) -> Option<(Option<Watched>, u64)> {
    let began = Instant::now();
    let mut is_wanted = true;
    loop {
        tokio::select! {
            event = shepherd.next_event() => match event {
                Some(Event::Stopped(signal)) => drop(tell.send(Became::Stopped(signal)).await),
                Some(Event::Finished(record)) => {
                    let is_clean = record.unkillable.is_empty();
                    let report = Report { written: written_since(exec, began, account).await, ..report_of(&record) };
                    let ran_us = report.wall_us;
                    let _ = tell.send(Became::Ended(Box::new(report))).await;
                    return Some((is_clean.then_some(shepherd), ran_us));
                }
                Some(_) => {}
                None => return None,
            },
            want = wanted.recv(), if is_wanted => match want {
                // Fails if the shepherd has ended, which is reported as the command's end, or reads no requests.
                Some(Wanted::Signal(signal)) => {
                    if let Err(error) = shepherd.shepherd().signal(signal) {
                        tracing::warn!(signal, %error, "a signal did not reach the command");
                    }
                }
                Some(Wanted::End) => drop(shepherd.shepherd().terminate(Cause::Cancelled, GRACE)),
                None => is_wanted = false,
            },
        }
    }
}

/// Returns files written on shared disks since `then`, as far as the user may see them.
async fn written_since(exec: &Arc<Exec>, then: Instant, account: Option<Arc<Account>>) -> Paths {
    if !exec.written.is_watching() {
        return Paths::default();
    }
    let (waits, uid) = (Arc::clone(&exec.waits), account.as_ref().map(|account| account.ids.uid));
    let exec = Arc::clone(exec);
    let look = move || {
        let (mut all, _) = exec.written.since(then);
        let ids = account.as_ref().map(|account| &account.ids);
        let seen = act_as(ids, || all.retain(|path| path.symlink_metadata().is_ok()));
        if seen.is_ok() { all.into_iter().collect() } else { Paths::default() }
    };
    waits.run(uid, NEWS_BOUND, look).await.and_then(Result::ok).unwrap_or_default()
}

/// Builds the report for the caller.
fn report_of(record: &ExitRecord) -> Report {
    let signal = if let Status::Signaled { signal, .. } = &record.status { Some(*signal) } else { None };
    let mut messages = Vec::new();
    if record.oom_kill == Some(true) && record.status.exit_code() != 0 {
        let peak = record.memory_peak_bytes.map_or_else(String::new, |peak| format!(" of {}", format_bytes(peak)));
        messages.push(if is_out_of_memory(record) {
            format!("the command exceeded its memory limit and was killed, at a peak{peak}; request more with --memory")
        } else {
            format!(
                "the memory limit was exceeded, at a peak{peak}, and a process of the command was killed; request more with --memory"
            )
        });
    }
    if !record.unkillable.is_empty() {
        messages.push(format!("processes {:?} of the command could not be killed", record.unkillable));
    }
    let number = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
    Report {
        code: record.status.exit_code(),
        signal,
        message: (!messages.is_empty()).then(|| messages.join("; ")),
        wall_us: number(record.wall_time.as_micros()),
        cpu_ms: number((record.user_time + record.system_time).as_millis()),
        memory_peak_bytes: record.memory_peak_bytes,
        ..Report::default()
    }
}

/// Describes the limits that the kernel does not enforce.
pub(super) fn advisory(limits: &Limits) -> Vec<String> {
    let kinds = [
        ("CPUs", &limits.cpus),
        ("memory", &limits.memory),
        ("processes", &limits.processes),
        ("GPUs", &limits.devices),
    ];
    let shortcoming = |(kind, enforcement): (&str, &Option<Enforcement>)| match enforcement {
        Some(Enforcement::Advisory(reason)) => Some(format!("{kind}: {reason}")),
        _ => None,
    };
    kinds.into_iter().filter_map(shortcoming).collect()
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::fstat;

    use super::*;

    #[test]
    fn command_gets_the_cpus_and_memory_that_no_job_holds() {
        const GIB: u64 = 1 << 30;
        let all = Resources::new(CpuSet::first(4), 4 * GIB);
        let limits = |cpus: u32, memory_bytes: u64, asked: Option<u64>| {
            let held = Held { cpus: CpuSet::first(cpus), memory_bytes, by: None };
            let options = options_beside(&held, &all, asked);
            (options.cpus.expect("a limit"), options.memory_limit_bytes.expect("a limit"))
        };
        assert_eq!(limits(0, 0, None), (vec![0, 1, 2, 3], 4 * GIB));
        assert_eq!(limits(3, 3 * GIB, None), (vec![3], GIB));
        assert_eq!(limits(3, 3 * GIB, Some(2 * GIB)), (vec![3], 2 * GIB), "the request replaces the limit");
        assert_eq!(limits(4, 4 * GIB, None), (vec![0, 1, 2, 3], LEAST_MEMORY_BYTES), "jobs hold the whole node");
    }

    /// Needs root.
    #[test]
    fn terminal_of_a_command_belongs_to_its_user() {
        let size = WindowSize { rows: 24, columns: 80 };
        for redirected in [[false; 3], [true, false, false]] {
            let mut command = Command::new(&["vi".into()], [], "/".into());
            (command.terminal, command.redirected) = (Some(size), redirected);
            let (terminal, _) = open_terminal(&command, size, Some(65534)).expect("root may open a terminal");
            assert_eq!(fstat(&terminal).expect("the terminal is open").st_uid, 65534, "{redirected:?}");
        }
    }
}
