//! Join codes and login codes as input of commands.
//!
//! All users of a machine can read the command lines of all processes, and use a code before its owner does. So codes come from
//! standard input alone: [`CodeArgument`] is the type of each argument that could hold one, and yields none from the command line.
//! [`refuse_exposed`] looks at all arguments before they are parsed.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, IsTerminal, Read};
use std::str::FromStr;

use hostler_client::{Client, Endpoint, RetryLimits};
use hostler_model::ParseError;
use hostler_proto::join::{JoinCode, LoginCode, find_code};
use hostler_proto::users::CodeLogin;
use hostler_sys::RawTerminal;
use nix::sys::signal::Signal;

use crate::context::block_on;
use crate::failure::{During, Failure};
use crate::interrupts::exit_code;
use crate::output::Output;

/// Maximum length of a code on standard input, in bytes.
const MAX_CODE_BYTES: u64 = 4096;

/// The argument of a command that reads a code.
#[derive(Clone)]
pub enum CodeArgument {
    /// `-`: the code is on standard input.
    Stdin,
    /// Text that cannot be a code, such as an address.
    Other(String),
}

impl FromStr for CodeArgument {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "-" => Self::Stdin,
            text => Self::Other(text.to_owned()),
        })
    }
}

/// Hides the text.
impl fmt::Debug for CodeArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CodeArgument")
    }
}

/// A kind of codes, for messages.
pub struct Kind {
    /// E.g. `login code`.
    name: &'static str,
    /// The command that reads the code.
    reader: &'static str,
    /// The command that makes a code.
    maker: &'static str,
}

pub(crate) const LOGIN_CODE: Kind =
    Kind { name: "login code", reader: "hostler login", maker: "for an admin, `hostler configure user invite NAME`" };

pub const JOIN_CODE: Kind =
    Kind { name: "join code", reader: "hostler agent join", maker: "on the head, `hostler node invite NAME`" };

/// Refuses a command line with a code or a part of one, wherever it is, also among the arguments for another program. The head has
/// then revoked the code, if possible.
pub fn refuse_exposed(args: &[OsString]) -> Result<(), Failure> {
    let words: Vec<_> = args.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let Some(code) = words.iter().find_map(|word| find_code(word)) else { return Ok(()) };
    let kind = if LoginCode::has_login_prefix(code) { &LOGIN_CODE } else { &JOIN_CODE };
    Err(kind.exposed(code))
}

impl CodeArgument {
    /// Reads a code from standard input. On a terminal, asks for it, and does not show it.
    ///
    /// # Errors
    /// The command line has something else than `-`, or standard input has no valid code.
    pub fn read<C: FromStr<Err = ParseError>>(&self, output: &Output, kind: &Kind) -> Result<C, Failure> {
        let Kind { name, reader, maker, .. } = kind;
        match self {
            Self::Stdin => {}
            Self::Other(_) => {
                return Err(Failure::usage(format!("the {name} must come from standard input, not from an argument"))
                    .hint(format!("run `{reader} -` and paste the code, or redirect a file: `{reader} - < FILE`")));
            }
        }
        let line = if io::stdin().is_terminal() {
            output.say(&format!("paste the {name}, which is not shown, then press Enter:"));
            read_hidden_line()?
        } else {
            let mut line = String::new();
            let read = io::stdin().lock().take(MAX_CODE_BYTES).read_line(&mut line);
            read.during(|| format!("cannot read the {name}"))?;
            line
        };
        if line.trim().is_empty() {
            return Err(Failure::usage(format!("no {name} on standard input")).hint(format!("{maker} prints one")));
        }
        Ok(line.parse::<C>()?)
    }
}

impl Kind {
    /// Revokes a code on the command line, and returns the error that says so.
    fn exposed(&self, text: &str) -> Failure {
        let Self { name, reader, maker, .. } = self;
        let failure =
            Failure::usage("a code is on the command line, where all users of this machine can read and use it");
        let failure = match revoke(text) {
            None => failure.hint("the head has not revoked the code, because it has a typing error; tell an admin"),
            Some(Ok(())) => failure.hint("the head has revoked the code, so nobody can use it"),
            Some(Err(error)) if error.code() == Some("bad_code") => failure
                .hint("the code is no longer valid; if you have not used it, tell an admin that somebody else has"),
            Some(Err(error)) => {
                failure.hint(format!("tell an admin that the head has not revoked the code: {}", error.summary()))
            }
        };
        failure
            .hint(format!("ask for a new {name}: {maker} prints one"))
            .hint(format!("then run `{reader} -` and paste it, or redirect a file: `{reader} - < FILE`"))
    }
}

/// Asks the head that a code names to revoke the code. `None` if the code has a typing error.
fn revoke(text: &str) -> Option<Result<(), Failure>> {
    let join = text.parse::<JoinCode>();
    let login = text.parse().map(|LoginCode { address, authority, secret }| JoinCode { address, authority, secret });
    let JoinCode { address, authority, secret } = join.or(login).ok()?;
    let client = Client::new(Endpoint::remote_head(&address, authority, None)).with_retry_limits(RetryLimits::NONE);
    Some(block_on(async { Ok(client.revoke_code(&CodeLogin { secret }).await?) }))
}

/// Reads a line from the terminal without showing it.
fn read_hidden_line() -> Result<String, Failure> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const CTRL_U: u8 = 21;
    const BACKSPACE: u8 = 8;
    const DELETE: u8 = 127;

    let _raw = RawTerminal::begin().during(|| "cannot hide the input on the terminal".to_owned())?;
    let mut line = Vec::new();
    for byte in io::stdin().lock().take(MAX_CODE_BYTES).bytes() {
        match byte.during(|| "cannot read the terminal".to_owned())? {
            CTRL_C => return Err(Failure::new("interrupted").exiting(exit_code(Signal::SIGINT))),
            b'\r' | b'\n' | CTRL_D => break,
            CTRL_U => line.clear(),
            BACKSPACE | DELETE => drop(line.pop()),
            byte => line.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_on_the_command_line_is_refused_in_any_argument() {
        let code =
            "hostler1-aaqea4ama4cc54ebq6ejbygbyvszt2gdynhfqc5y3hh6lyu4oc5vxznbogbzwkahrzga4otfqgmzdgnbvgy3tqmjsgm2dk";
        let refused = |line: &str| refuse_exposed(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in [
            "agent join CODE",
            "agent -q join host 'CODE'",
            "agent join --code=CODE",
            "agent join CODE0",
            "agent join - --directory CODE",
            "agent run --join-file CODE",
            "--head CODE nodes",
            "run -- hostler agent join CODE",
        ] {
            let failure = refused(&format!("hostler {}", line.replace("CODE", code))).expect_err(line);
            let said = failure.render();
            assert!(said.contains("hostler agent join -") && !said.contains(code), "{said}");
        }
        assert_eq!(refused("hostler login head.example:7760"), Ok(()));
        let argument: CodeArgument = "nonsense".parse().expect("any text is accepted");
        let output = Output::new(crate::output::Format::Quiet);
        let failure = argument.read::<JoinCode>(&output, &JOIN_CODE).expect_err("it is no standard input");
        assert!(failure.render().contains("hostler agent join -"));
    }
}
