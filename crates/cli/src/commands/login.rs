//! `hostler login` and `hostler logout`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use hostler_client::elsewhere::{self, ToSign};
use hostler_client::{Client, ClientError};
use hostler_model::{Digest, format_duration};
use hostler_proto::join::LoginCode;
use hostler_proto::users::{CodeLogin, KeyLogin, LoggedIn};
use serde_json::json;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::logins::{self, Login as Kept};
use crate::signing::{self, Key};

/// Log in to a cluster from a machine that is none of its nodes
///
/// With the address of its head, an SSH key that an admin has registered says who you are: one of your agent, one with a usual name in
/// ~/.ssh, or the one named by --key. With a login code that an admin has made, the code does. On machines of the cluster nobody needs to
/// log in.
#[derive(Debug, Args)]
pub(crate) struct Login {
    /// The head's address such as head.example.org:7760, or a login code; `-` reads it from standard input
    #[arg(value_name = "ADDRESS|CODE")]
    target: String,

    /// Your name in the cluster; the one on this machine by default
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The private key to sign with, or a public one whose private one your SSH agent has
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// The fingerprint of the cluster's authority, instead of being asked about it at the first login
    #[arg(long, value_name = "FINGERPRINT")]
    authority: Option<Digest>,
}

/// Give back the token of a login
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The head's address; that of the last login by default
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
}

impl Login {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let target = match self.target.as_str() {
            "-" => io::read_to_string(io::stdin()).during(|| "cannot read standard input".to_owned())?,
            target => target.to_owned(),
        };
        let target = target.trim();
        let (kept, logged_in) = if LoginCode::is_meant_by(target) {
            by_code(&target.parse()?, self.authority)?
        } else {
            self.by_key(context, &logins::with_port(target)?)?
        };
        let LoggedIn { user, role, token, ends_in_ms } = logged_in;
        let kept = Kept { user: Some(user.to_string()), token: Some(token), ..kept };
        kept.store()?;
        let address = &kept.address;
        if context.output.is_json() {
            context.output.json(&json!({ "user": user, "role": role, "address": address, "ends_in_ms": ends_in_ms }));
        }
        let time = format_duration(std::time::Duration::from_millis(ends_in_ms));
        context.output.say(&format!("you are {user} at {address}, with the role of {}, for {time}", role.of_one()));
        Ok(exit::OK)
    }

    fn by_key(&self, context: &Context, address: &str) -> Result<(Kept, LoggedIn), Failure> {
        let authority = self.trusted_authority(context, address)?;
        let kept = Kept { address: address.to_owned(), authority, user: None, token: None };
        // The pin stays, whatever comes of the login.
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
            let mut last = Failure::new("there is no SSH key to log in with")
                .hint("name one with --key, or ask an admin for a login code: `hostler configure user invite`");
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

    /// The authority that is trusted at this address: the one that was before, was named, or that somebody at the terminal vouches for.
    fn trusted_authority(&self, context: &Context, address: &str) -> Result<Digest, Failure> {
        let seen = block_on(async { Ok(elsewhere::authority_at(address).await?) })?;
        let known = logins::find(address)?.map(|login| login.authority);
        match (self.authority, known) {
            (Some(named), _) if named == seen => Ok(seen),
            (None, Some(known)) if known == seen => Ok(seen),
            (Some(expected), _) | (None, Some(expected)) => Err(not_the_same(address, &expected, &seen)),
            (None, None) => confirm(context, address, seen),
        }
    }
}

/// Logs in with one key. The inner error means that another key may do.
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
        Err(error @ ClientError::Refused { .. }) if error.code() == Some("bad_key") => Ok(Err(error.into())),
        Err(error) => Err(error.into()),
    }
}

/// Logs in with a code. It may not replace the authority that is trusted at its address already, unless that is `named`.
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
    Failure::new(format!("the head at {address} is not of the cluster that was expected there"))
        .hint(format!("expected {expected}"))
        .hint(format!("found    {seen}"))
        .hint("somebody may be listening in; if the cluster was set up anew, say so with --authority")
        .exiting(exit::MISMATCH)
}

/// Asks whoever sits at the terminal, as SSH does.
fn confirm(context: &Context, address: &str, seen: Digest) -> Result<Digest, Failure> {
    context.output.say(&format!("the cluster at {address} is not known yet; its authority's fingerprint is\n  {seen}"));
    context.output.say("`hostler info` on one of its machines shows it as well");
    let unknown = || {
        Failure::new(format!("the cluster at {address} is not trusted"))
            .hint(format!("if the fingerprint is right: --authority {seen}"))
            .exiting(exit::MISMATCH)
    };
    if !io::stdin().is_terminal() {
        return Err(unknown());
    }
    context.output.say("is that right? (yes/no)");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).during(|| "cannot read an answer".to_owned())?;
    if answer.trim() == "yes" { Ok(seen) } else { Err(unknown()) }
}

fn user_here() -> Result<String, Failure> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    user.map(|user| user.name)
        .ok_or_else(|| Failure::usage("you have no name on this machine").hint("say it with --user"))
}

impl Logout {
    pub(crate) fn run(self, context: &Context) -> Outcome {
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
                context.output.say(&format!("the login at {address} was over already"));
            }
            Err(error) => {
                context.output.say(&format!("the token is forgotten here, but {address} could not be told to void it"));
                return Err(error.into());
            }
        }
        Ok(exit::OK)
    }
}
