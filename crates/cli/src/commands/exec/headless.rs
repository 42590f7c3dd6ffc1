//! Commands on machines without agents: `dshd` without a head names the best machine, and the user's own `ssh` runs the command
//! there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use hostler_model::is_system_uid;
use hostler_remote::{
    Command, Destination, ExecRequest, Frame, Open, Refusal, Reply, handover, headless_address, read_blocking,
    write_blocking,
};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;

use crate::exit;
use crate::failure::{During, Failure};

/// The variable that names the program for remote commands, with options, e.g. `ssh -p 2222`.
const SHELL: &str = "DSH_RSH";

/// The uid of `nobody`. Inside a user namespace, the kernel shows it for every user whose uid is not mapped.
const UNMAPPED: u32 = 65_534;

/// Whether this process is outside of user namespaces, where the kernel shows each user's own uid.
fn sees_all_uids() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Connects to a `dshd` without a head. If none runs on this machine, returns the failure to reach an agent.
pub(super) fn connect(no_agent: Failure) -> Result<UnixStream, Failure> {
    let Ok(stream) = headless_address().and_then(|address| UnixStream::connect_addr(&address)) else {
        return Err(no_agent);
    };
    let uid = getsockopt(&stream, PeerCredentials).map_err(io::Error::from);
    let uid = uid.during(|| "cannot tell who runs dshd on this machine".to_owned())?.uid();
    // The daemon decides where the command goes, so it must not be another person's.
    let is_trusted = is_system_uid(uid) && (uid != UNMAPPED || sees_all_uids());
    if uid == 0 || uid == geteuid().as_raw() || is_trusted {
        return Ok(stream);
    }
    Err(Failure::new(format!("dshd on this machine is not trusted, because it runs as another user (uid {uid})"))
        .hint("run dshd as root, as a system account such as nobody, or as yourself")
        .exiting(exit::RUN_FAILED))
}

/// Asks where the command runs.
pub(super) fn ask(mut dshd: UnixStream, ask: ExecRequest) -> Result<Result<Box<Destination>, Box<Refusal>>, Failure> {
    check(&ask)?;
    let ask = without_command(ask);
    let answer = handover::hand_over(&dshd, None)
        .and_then(|()| write_blocking(&mut dshd, &Frame::Open(Open::Exec(Box::new(ask)))))
        .and_then(|()| read_blocking(&mut dshd));
    match answer.during(|| "dshd on this machine does not answer".to_owned())? {
        Some(Frame::Reply(Reply::RunHere(placed))) => Ok(Ok(placed)),
        Some(Frame::Reply(Reply::Refused(refusal))) => Ok(Err(refusal)),
        _ => Err(Failure::new("dshd on this machine names no machine").exiting(exit::MISMATCH)),
    }
}

/// Only what the daemon needs to compare machines: arguments and environment may hold secrets.
pub(super) fn without_command(ask: ExecRequest) -> ExecRequest {
    let mut command = Command::new(&["true".into()], [], "/".into());
    command.memory_bytes = ask.command.memory_bytes;
    ExecRequest { command, ..ask }
}

/// The command line that runs the command on another machine; `None` for this machine.
pub(super) fn argv(placed: &Destination, command: &Command) -> Option<Vec<OsString>> {
    if placed.how.as_ref().is_none_or(|how| how.is_local) {
        return None;
    }
    let shell = std::env::var_os(SHELL).unwrap_or_default();
    let words = shell.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut argv: Vec<OsString> = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    if argv.is_empty() {
        argv.push("ssh".into());
    }
    if command.is_interactive() {
        argv.push("-t".into());
    }
    argv.extend([placed.node.as_str().into(), shell_command(command.directory().as_os_str(), &command.argv())]);
    Some(argv)
}

/// Refuses what needs an agent.
fn check(ask: &ExecRequest) -> Result<(), Failure> {
    let used = [
        ("--memory", ask.command.memory_bytes.is_some()),
        ("--constraint", ask.constraint.is_some()),
        ("--sandbox", ask.command.sandbox),
        ("--mirror", ask.mirrors_tree),
    ];
    match used.iter().find(|(_, is_used)| *is_used) {
        None => Ok(()),
        Some((option, _)) => {
            Err(Failure::usage(format!("{option} needs an agent, and this machine has only a dshd without a head"))
                .hint("leave the option out, or let the machines join a cluster: `hostler agent join`"))
        }
    }
}

/// The command for the shell of the user on the other machine.
fn shell_command(directory: &OsStr, argv: &[OsString]) -> OsString {
    let mut text = b"cd ".to_vec();
    quote(directory, &mut text);
    text.extend(b" || exit 125; exec");
    for word in argv {
        text.push(b' ');
        quote(word, &mut text);
    }
    OsString::from_vec(text)
}

/// Quotes a word for a POSIX shell.
fn quote(word: &OsStr, text: &mut Vec<u8>) {
    text.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_other_shell_unchanged() {
        let argv = ["printf", "%s|", "it's", "$HOME `x` \\", "", "a\nb"].map(OsString::from);
        let command = shell_command("/".as_ref(), &argv);
        let output = std::process::Command::new("sh").arg("-c").arg(&command).output().expect("a shell");
        assert_eq!(output.stdout, b"it's|$HOME `x` \\||a\nb|");
        let command = shell_command("/not there".as_ref(), &argv);
        let status = std::process::Command::new("sh").arg("-c").arg(&command).output().expect("a shell").status;
        assert_eq!(status.code(), Some(125));
    }
}
