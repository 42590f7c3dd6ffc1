//! `hostler login` and `hostler logout`: authenticate this user at a remote head.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use hostler_client::remote_head::{self, ToSign};
use hostler_client::{Client, ClientError};
use hostler_model::{Digest, format_ms};
use hostler_proto::join::LoginCode;
use hostler_proto::users::{CodeLogin, KeyLogin, LoggedIn};
use serde_json::json;

use crate::codes::{CodeArgument, LOGIN_CODE};
use crate::config;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::logins::{self, Login as Kept};
use crate::signing::{self, Key};

/// Log in to a cluster from a machine outside the cluster
///
/// To log in at the head's address, you need an SSH key that an admin has registered. The command takes the key from
/// your SSH agent, from a file with a default name in ~/.ssh, or from --key. To log in with a login code from an admin,
/// you need neither key nor address. The code is a secret, and other users can see command lines: the command reads it
/// from standard input. Machines of the cluster need no login.
#[derive(Debug, Args)]
pub struct Login {
    /// Address of the head, e.g. head.example.org:7760; `-` reads a login code [default: -]
    #[arg(value_name = "ADDRESS", default_value = "-", hide_default_value = true)]
    target: CodeArgument,

    /// Your name in the cluster [default: your name on this machine]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// SSH key file: a private key, or the public key of a key in your SSH agent
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Fingerprint of the cluster's certificate authority
    ///
    /// Without this option, the first login shows the fingerprint and asks for confirmation.
    #[arg(long, value_name = "FINGERPRINT")]
    authority: Option<Digest>,
}

/// Log out and revoke the login token
#[derive(Debug, Args)]
pub struct Logout {
    /// Address of the head [default: the address of the last login]
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
}

impl Login {
    pub fn run(self, context: &Context) -> Outcome {
        let (kept, logged_in) = match &self.target {
            CodeArgument::Other(address) => self.by_key(context, &logins::with_port(address)?)?,
            _ if self.user.is_some() => {
                return Err(Failure::usage("--user is for a login with a key; a login code names its user"));
            }
            code => by_code(&code.read(&context.output, &LOGIN_CODE)?, self.authority)?,
        };
        let LoggedIn { user, role, token, ends_in_ms } = logged_in;
        let kept = Kept { user: Some(user.to_string()), token: Some(token), ..kept };
        kept.store()?;
        let address = &kept.address;
        if context.output.is_json() {
            context.output.json(&json!({ "user": user, "role": role, "address": address, "ends_in_ms": ends_in_ms }));
        }
        let time = format_ms(ends_in_ms);
        context.output.say(&format!(
            "logged in at {address} as {user} with the role of {}; the login is valid for {time}",
            role.with_article()
        ));
        let used = config::endpoint(context.head.as_deref()).map(|used| used.to_string());
        if let Ok(used) = used
            && used != *address
        {
            context.output.say(&format!("note: commands still use {used}; `--head {address}` selects this login"));
        }
        Ok(exit::OK)
    }

    fn by_key(&self, context: &Context, address: &str) -> Result<(Kept, LoggedIn), Failure> {
        let authority = self.trusted_authority(context, address)?;
        let kept = Kept { address: address.to_owned(), authority, user: None, token: None };
        // Keep the trusted fingerprint even if the login fails.
        if logins::find(address)?.is_none() {
            kept.store()?;
        }
        let user = self.user.clone().map_or_else(user_here, Ok)?;
        let keys = match &self.key {
            Some(path) => vec![Key::in_file(path)],
            None => signing::usual_keys()?,
        };
        let client = Client::new(kept.endpoint());
        let logged_in = block_on(async {
            let mut last = Failure::new("no SSH key to log in with")
                .hint("choose one with --key, or ask an admin for a login code (`hostler configure user invite`)");
            for key in &keys {
                match attempt(&client, &authority, &user, key).await? {
                    Ok(logged_in) => return Ok(logged_in),
                    Err(failure) => last = failure,
                }
            }
            Err(last)
        })?;
        Ok((kept, logged_in))
    }

    /// The trusted fingerprint for this address: from `--authority`, an earlier login, or the user's confirmation.
    fn trusted_authority(&self, context: &Context, address: &str) -> Result<Digest, Failure> {
        let seen = block_on(async { Ok(remote_head::authority_at(address).await?) })?;
        let known = logins::find(address)?.map(|login| login.authority);
        match (self.authority, known) {
            (Some(named), _) if named == seen => Ok(seen),
            (None, Some(known)) if known == seen => Ok(seen),
            (Some(expected), _) | (None, Some(expected)) => Err(not_the_same(address, &expected, &seen)),
            (None, None) => confirm(context, address, seen),
        }
    }
}

/// Logs in with one key. The inner error means that the head or `ssh-keygen` rejected this key; another key may work.
async fn attempt(
    client: &Client,
    authority: &Digest,
    user: &str,
    key: &Key,
) -> Result<Result<LoggedIn, Failure>, Failure> {
    let ToSign { nonce, text } = client.login_challenge(authority, user).await?;
    let signature = match signing::sign(key, &text) {
        Ok(signature) => signature,
        Err(failure) => return Ok(Err(failure)),
    };
    let login = KeyLogin { user: user.to_owned(), nonce, signature };
    match client.login_by_key(&login).await {
        Ok(logged_in) => Ok(Ok(logged_in)),
        Err(error @ ClientError::Refused { .. }) if error.code() == Some("bad_key") => {
            let failure = Failure::new(format!("cannot log in as {user}")).because(&error).exiting(exit::REFUSED);
            let failure = failure.hint("if your name in the cluster is another one, give it with `--user NAME`");
            Ok(Err(error.hints().into_iter().fold(failure, Failure::hint)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Logs in with a code. Fails if the code's fingerprint differs from `named` or, without `named`, from that of an
/// earlier login.
fn by_code(code: &LoginCode, named: Option<Digest>) -> Result<(Kept, LoggedIn), Failure> {
    let trusted = named.or(logins::find(&code.address)?.map(|login| login.authority));
    if let Some(trusted) = trusted.filter(|trusted| *trusted != code.authority) {
        return Err(not_the_same(&code.address, &trusted, &code.authority));
    }
    let kept = Kept { address: code.address.clone(), authority: code.authority, user: None, token: None };
    let client = Client::new(kept.endpoint());
    let logged_in = block_on(async { Ok(client.login_by_code(&CodeLogin { secret: code.secret.clone() }).await?) })?;
    Ok((kept, logged_in))
}

fn not_the_same(address: &str, expected: &Digest, seen: &Digest) -> Failure {
    Failure::new(format!("the head at {address} belongs to another cluster than expected"))
        .hint(format!("expected fingerprint: {expected}"))
        .hint(format!("found fingerprint:    {seen}"))
        .hint("this may be an attack; if an admin says that the cluster or its authority is new, pass the new fingerprint with --authority")
        .exiting(exit::MISMATCH)
}

/// Asks the user at the terminal to confirm the fingerprint, as SSH does.
fn confirm(context: &Context, address: &str, seen: Digest) -> Result<Digest, Failure> {
    context.output.say(&format!("the cluster at {address} is unknown; the fingerprint of its authority is\n  {seen}"));
    context.output.say("compare the fingerprint with the output of `hostler info` on a machine of the cluster");
    let unknown = || {
        Failure::new(format!("the cluster at {address} is not trusted"))
            .hint(format!("if the fingerprint is correct, pass --authority {seen}"))
            .exiting(exit::MISMATCH)
    };
    if !io::stdin().is_terminal() {
        return Err(unknown());
    }
    context.output.say("is the fingerprint correct? (yes/no)");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).during(|| "cannot read the answer".to_owned())?;
    if answer.trim() == "yes" { Ok(seen) } else { Err(unknown()) }
}

fn user_here() -> Result<String, Failure> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    user.map(|user| user.name)
        .ok_or_else(|| Failure::usage("your account has no name on this machine").hint("pass your name with --user"))
}

impl Logout {
    pub fn run(self, context: &Context) -> Outcome {
        let kept = match &self.address {
            Some(address) => logins::find(&logins::with_port(address)?)?.filter(|login| login.token.is_some()),
            None => logins::last()?,
        };
        let Some(kept) = kept else {
            context.output.say("you are not logged in");
            return Ok(exit::OK);
        };
        let outcome = block_on(async { Ok(Client::new(kept.endpoint()).logout().await) })?;
        let address = kept.address.clone();
        Kept { token: None, ..kept }.store()?;
        match outcome {
            Ok(()) => context.output.say(&format!("logged out at {address}")),
            Err(ClientError::Refused { status: 401, .. }) => {
                context.output.say(&format!("the login at {address} had already ended"));
            }
            Err(error) => {
                context
                    .output
                    .say(&format!("the token was deleted here, but the head at {address} may not have revoked it"));
                return Err(error.into());
            }
        }
        Ok(exit::OK)
    }
}
