//! One remote command: the request to the agent, and the answer.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use hostler_remote::inherited::own_limit;
use hostler_remote::{
    Choice, Command, Destination, DirectoryId, Ending, Event, ExecRequest, Frame, HeldSignals, Open, Proof, Refusal,
    RefusalKind, Reply, Report, Shown, WindowSize, follow_home, handover, read_blocking, shared_files, socket_beside,
    write_blocking,
};
use nix::libc;
use nix::sys::stat::fstat;

use super::mirror::{ActiveMirror, LocalTree};
use super::{exec_command, headless, report};
use crate::config;
use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::here::{absolute, gone};
use crate::output;

/// Numbers of the resource limits of Linux.
const RESOURCES: std::ops::Range<i32> = 0..16;

/// Builds the command with its context: directory, environment, umask, limits, terminal. If `directory` is given, the
/// command runs in the node's directory of this name. `on_terminal`: which standard streams are on the terminal.
pub(super) fn command(argv: &[OsString], directory: Option<&Path>, on_terminal: [bool; 3]) -> Result<Command, Failure> {
    let path = directory.map_or_else(|| current_directory().map_err(|error| gone(&error)), absolute)?;
    let mut command = Command::new(argv, std::env::vars_os(), path);
    if directory.is_none() {
        command.directory_id = Some(directory_id().during(|| "cannot access the current directory".to_owned())?);
    }
    command.umask = umask();
    command.limits = RESOURCES.filter_map(own_limit).collect();
    let usual_size = WindowSize { rows: 24, columns: 80 };
    command.terminal = on_terminal.contains(&true).then(|| output::window_size().unwrap_or(usual_size));
    command.redirected = on_terminal.map(|is_on_terminal| !is_on_terminal);
    command.is_merged = on_terminal[1..] == [false; 2] && is_same_file(io::stdout().as_fd(), io::stderr().as_fd());
    Ok(command)
}

/// The current directory under the name in PWD, if that name is correct. Compilers store the name in their output.
fn current_directory() -> io::Result<PathBuf> {
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
    let here = fs::metadata(".")?;
    let is_here =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (here.dev(), here.ino()));
    named.filter(is_here).map_or_else(std::env::current_dir, Ok)
}

/// Returns the id of the current directory. The id is unique on this machine until the next boot.
fn directory_id() -> io::Result<DirectoryId> {
    Ok(DirectoryId::of(&hostler_sys::boot_id()?, &fs::metadata(".")?))
}

/// Reads the umask, which is possible only by setting it.
fn umask() -> u32 {
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(mask);
    mask.bits()
}

/// Whether both streams are the same file, so that the order of their output matters.
fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let (Ok(one), Ok(other)) = (fstat(one), fstat(other)) else { return false };
    (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)
}

/// Whether a stream is `/dev/null`, which is the same on every machine.
pub(super) fn is_null(stream: BorrowedFd<'_>) -> bool {
    fstat(stream)
        .is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFCHR && found.st_rdev == libc::makedev(1, 3))
}

/// Sends the request and handles the answer.
pub(super) fn run(context: &Context, ask: ExecRequest, report: bool, mut local_tree: Option<LocalTree>) -> Outcome {
    let mut agent = match connect().map_err(headless::connect) {
        Ok(agent) => agent,
        Err(Ok(dshd)) => return run_by_ssh(context, dshd, ask, report),
        // The command requires certain nodes, a memory limit or a sandbox, so it must not run here without the agent.
        Err(Err(failure)) if !is_anywhere(&ask) => return Err(failure),
        Err(Err(failure)) => {
            context.output.say(&format!("{}; running the command here", failure.summary()));
            return exec_command::run(&ask.command, None, report.then_some(context));
        }
    };
    let mut shown = Shown {
        has_input: ask.command.has_input,
        has_terminal: ask.command.terminal.is_some(),
        is_interactive: ask.command.is_interactive(),
    };
    let (command, is_anywhere, has_tree) = (ask.command.clone(), is_anywhere(&ask), ask.mirrors_tree);
    let asked =
        hand_over(&agent, &command).and_then(|()| write_blocking(&mut agent, &Frame::Open(Open::Exec(Box::new(ask)))));
    let mut token = None;
    loop {
        // An agent of another build answers before it has read the request, so sending the request may fail.
        let held = HeldSignals::begin().during(|| "cannot wait for the agent of this machine".to_owned())?;
        held.await_readable(&agent);
        let mut frame = read_blocking(&mut agent).map_err(|error| lost(asked.as_ref().err().unwrap_or(&error)))?;
        // Any other answer means that the command has not started.
        let held = matches!(frame, Some(Frame::Reply(Reply::Started(_)))).then_some(held);
        if let Some(local_tree) = &mut local_tree
            && let Some(said) = frame.take()
        {
            frame = local_tree.hear(said, &mut agent).map_err(|error| tree_copy_failed(&error))?;
            if frame.is_none() {
                continue;
            }
        }
        match frame {
            Some(Frame::Reply(Reply::RunHere(placed))) => {
                drop(token);
                if !report {
                    report::second_best(context, &placed, has_tree);
                }
                return exec_command::run(&command, Some(&placed), report.then_some(context));
            }
            Some(Frame::Event(Event::ProveDirectory(name))) => {
                let proof = match Token::make(&name) {
                    Ok(made) => {
                        token = Some(made);
                        Proof::File(name)
                    }
                    Err(_) => seen(),
                };
                write_blocking(&mut agent, &Frame::Event(Event::Proof(proof))).map_err(|error| lost(&error))?;
            }
            Some(Frame::Event(Event::RemoveProof)) => drop(token.take()),
            Some(Frame::Event(Event::DescribeTree)) => {
                let local_tree = local_tree.as_mut().ok_or_else(|| lost(&ErrorKind::InvalidData.into()))?;
                let tree = Frame::Event(Event::Tree(Box::new(local_tree.look(&command)?)));
                write_blocking(&mut agent, &tree).map_err(|error| lost(&error))?;
            }
            Some(Frame::Reply(Reply::Started(started))) => {
                drop(token);
                shown.has_input &= !started.has_streams;
                if let Some(placed) = started.placed.as_ref().filter(|_| started.has_streams && !report) {
                    report::second_best(context, placed, has_tree);
                }
                // The command has the streams of this program, so it runs here and needs no copy of the tree.
                let local_tree = local_tree.filter(|_| !started.has_streams);
                let under_way = local_tree.map(LocalTree::start_receiving).transpose()?;
                let placed = started.placed.as_ref();
                return forward_streams(context, &command, (agent, held), shown, placed, (report, under_way));
            }
            Some(Frame::Reply(Reply::Refused(refusal))) if refusal.kind == RefusalKind::OtherBuild && is_anywhere => {
                let hints = refusal.hints.join("; ");
                context.output.say(&format!("{}; running the command here; {hints}", refusal.message));
                return exec_command::run(&command, None, report.then_some(context));
            }
            Some(Frame::Reply(Reply::Refused(refusal))) => return Err(refused(&refusal)),
            Some(_) => return Err(lost(&ErrorKind::InvalidData.into())),
            None => return Err(lost(&ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Runs the command on the machine that a `dshd` without a head names.
fn run_by_ssh(context: &Context, dshd: UnixStream, ask: ExecRequest, report: bool) -> Outcome {
    let mut command = ask.command.clone();
    let placed = headless::ask(dshd, ask)?.map_err(|refusal| refused(&refusal))?;
    if let Some(argv) = headless::argv(&placed, &command) {
        let has_input = command.has_input;
        command = self::command(&argv, None, [false; 3])?;
        command.has_input = has_input;
    }
    exec_command::run(&command, Some(&placed), report.then_some(context))
}

fn is_anywhere(ask: &ExecRequest) -> bool {
    ask.only.is_empty() && ask.constraint.is_none() && ask.command.memory_bytes.is_none() && !ask.command.sandbox
}

/// Asks the agent for the score of each node, without running a command.
pub(super) fn choice(mut ask: ExecRequest) -> Result<Box<Choice>, Failure> {
    ask.explain = true;
    let (mut agent, ask) = match connect() {
        Ok(agent) => (agent, ask),
        Err(no_agent) => (headless::connect(no_agent)?, headless::without_command(ask)),
    };
    let answer = handover::hand_over(&agent, None)
        .and_then(|()| write_blocking(&mut agent, &Frame::Open(Open::Exec(Box::new(ask)))))
        .and_then(|()| read_blocking(&mut agent));
    match answer.during(|| "the agent on this machine does not answer".to_owned())? {
        Some(Frame::Reply(Reply::Explained(choice))) => Ok(choice),
        _ => Err(Failure::new("the agent on this machine does not list the nodes").exiting(exit::MISMATCH)),
    }
}

/// Passes the streams of this program to the agent, for a command on this machine. An interactive command
/// replaces this program instead.
pub(super) fn hand_over(agent: &UnixStream, command: &Command) -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let nothing = File::open("/dev/null")?;
    let input = if command.has_input { stdin.as_fd() } else { nothing.as_fd() };
    handover::hand_over(agent, (!command.is_interactive()).then(|| [input, stdout.as_fd(), stderr.as_fd()]))
}

/// Connects to the agent of this machine.
fn connect() -> Result<UnixStream, Failure> {
    let mut why = None;
    for socket in config::agent_sockets()? {
        match UnixStream::connect(socket_beside(&socket)) {
            Ok(stream) => return Ok(stream),
            Err(error) => drop(why.get_or_insert(error)),
        }
    }
    let failure = Failure::new("no agent on this machine accepts remote commands");
    let failure = why.iter().fold(failure, |failure, error| failure.because(error));
    Err(failure
        .hint("`hostler up` starts a cluster on this machine; `hostler agent run` starts the agent of a node")
        .hint("`--no-remote-commands`, or `remote_commands = false` in agent.toml, turns remote commands off")
        .exiting(exit::RUN_FAILED))
}

/// Passes streams and signals between this program and the command until the command ends.
fn forward_streams(
    context: &Context,
    command: &Command,
    (agent, held): (UnixStream, Option<HeldSignals>),
    shown: Shown,
    placed: Option<&Destination>,
    (report, mut under_way): (bool, Option<ActiveMirror>),
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.during(|| "cannot start a runtime".to_owned())?;
    let mut home = |piece: &[u8]| under_way.as_mut().map(|under_way| under_way.take(piece)).is_some();
    let ending = runtime.block_on(follow_home(agent, shown, held, &mut home));
    // Do not wait for a pending read of standard input, which may never return.
    runtime.shutdown_background();
    match ending.during(|| "cannot read the output of the command".to_owned())? {
        Ending::Ended(ended) => {
            let written = ended.written.to_vec();
            if shared_files::is_shared(Path::new(".")) {
                // Refresh cached file attributes, so that the caller sees what the command has written.
                let named = shared_files::named(command);
                shared_files::refresh(named.iter().chain(&written).map(PathBuf::as_path));
            }
            if let Some(message) = &ended.message {
                context.output.say(message);
            }
            let cost = match under_way.map(ActiveMirror::finish).transpose() {
                Err(failure) if ended.code == 0 => return Err(failure),
                Err(failure) => {
                    context.output.say(failure.summary());
                    None
                }
                Ok(cost) => cost,
            };
            if report && let Some(placed) = placed {
                report::placed(context, placed, Some(&ended), cost.as_ref());
            }
            leave(&ended)
        }
        Ending::Refused(refusal) => Err(refused(&refusal)),
        Ending::Lost(error) => Err(lost(&error)),
    }
}

/// Ends like the command: by its signal or with its exit code.
fn leave(ended: &Report) -> Outcome {
    if let Some(signal) = ended.signal {
        exec_command::end_by(signal);
    }
    Ok(u8::try_from(ended.code & 0xff).unwrap_or(exit::FAILED))
}

fn refused(refusal: &Refusal) -> Failure {
    let failure = Failure::new(refusal.message.clone()).exiting(refusal.code);
    refusal.hints.iter().fold(failure, |failure, hint| failure.hint(hint.clone()))
}

fn tree_copy_failed(error: &io::Error) -> Failure {
    Failure::new("cannot copy the tree to the node").because(error).exiting(exit::RUN_FAILED)
}

fn lost(error: &io::Error) -> Failure {
    Failure::new("connection to the local agent lost; the exit status is unknown")
        .because(error)
        .hint("check whether the agent was stopped, restarted or updated; see the agent's log")
        .hint("after an upgrade of Hostler, restart the agent, e.g. `systemctl restart hostler-agent`")
        .exiting(exit::RUN_FAILED)
}

/// An empty file in the current directory, deleted on drop. A node that sees the file has the same directory.
struct Token(PathBuf);

impl Token {
    fn make(name: &str) -> io::Result<Self> {
        let path = Path::new(name);
        File::options().write(true).create_new(true).mode(0o644).open(path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Identifies the current directory by its inode and change time, for a directory in which no file can be created.
fn seen() -> Proof {
    fs::metadata(".").map_or(Proof::None, |found| Proof::seen(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dev_null_counts_as_no_input() {
        assert!(is_null(File::open("/dev/null").expect("every system has the device").as_fd()));
        for other in ["/dev/zero", "/etc/passwd"] {
            assert!(!is_null(File::open(other).expect("the file exists").as_fd()), "{other}");
        }
    }
}
