//! Where a controller's user and password come from, and when they are not shown to it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::program::Program;
use crate::{CredentialsConfig, Fault, Secret};

/// How long credentials that were refused are not shown again; twice as long after each time more. Controllers lock accounts.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// So long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How long a command may take that prints credentials.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// The largest file that is looked at.
const MAX_BYTES: u64 = 4096;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// One controller's credentials: fetched when they are needed, so that a change counts at once.
#[derive(Debug)]
pub(crate) struct Keyring {
    source: CredentialsConfig,
    /// To whom they are shown, for people.
    to: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What a command has printed: it is not asked again as long as it is good.
    printed: Option<Credentials>,
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Refused {
    credentials: Credentials,
    until: Instant,
    pause: Duration,
}

impl Keyring {
    pub(crate) fn new(source: CredentialsConfig, to: String) -> Self {
        Self { source, to, state: Mutex::default() }
    }

    /// The credentials as they are now.
    ///
    /// # Errors
    /// When there are none, when others could read them, or when the controller has refused these a short while ago.
    pub(crate) async fn load(&self) -> Result<Credentials, Fault> {
        let credentials = match &self.source {
            CredentialsConfig::File(path) => from_file(path.clone()).await?,
            CredentialsConfig::Command { command } => {
                let printed = self.state().printed.clone();
                match printed {
                    Some(printed) => printed,
                    None => from_command(command).await?,
                }
            }
        };
        self.show(credentials, Instant::now())
    }

    fn show(&self, credentials: Credentials, now: Instant) -> Result<Credentials, Fault> {
        let mut state = self.state();
        if let Some(refused) = state.refused.as_ref().filter(|refused| refused.credentials == credentials) {
            if now < refused.until {
                let rest = refused.until - now;
                let why = format!("{} has refused the user {} with this password", self.to, credentials.user);
                return Err(Fault::refused(why).after(Some(rest)).hint(format!(
                    "correct {}; they are not shown to it again for {} s, so that it does not lock the account",
                    self.place(),
                    rest.as_secs() + 1
                )));
            }
        } else {
            state.refused = None;
        }
        if matches!(self.source, CredentialsConfig::Command { .. }) {
            state.printed = Some(credentials.clone());
        }
        Ok(credentials)
    }

    /// Takes note that the controller does not accept these, and says so.
    pub(crate) fn refused(&self, credentials: &Credentials, why: &str) -> Fault {
        let pause = self.note_refusal(credentials, Instant::now());
        Fault::refused(why).after(Some(pause)).hint(format!("correct {}; a change counts at once", self.place()))
    }

    fn note_refusal(&self, credentials: &Credentials, now: Instant) -> Duration {
        let mut state = self.state();
        let pause = state.refused.as_ref().map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        state.printed = None;
        state.refused = Some(Refused { credentials: credentials.clone(), until: now + pause, pause });
        pause
    }

    /// Takes note that the controller accepts what it was shown.
    pub(crate) fn accepted(&self) {
        self.state().refused = None;
    }

    /// Where they come from, for people.
    fn place(&self) -> String {
        match &self.source {
            CredentialsConfig::File(path) => format!("the credentials in {}", path.display()),
            CredentialsConfig::Command { command } => {
                format!("what `{}` prints", command.first().map_or("", String::as_str))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn from_file(path: PathBuf) -> Result<Credentials, Fault> {
    let text = {
        let path = path.clone();
        // It may lie on a network's disk.
        tokio::task::spawn_blocking(move || read_private(&path)).await.expect("reading a file does not panic")?
    };
    parse(&text).map_err(|why| {
        Fault::unprepared(format!("{} {why}", path.display())).hint("write one line, `user:password`, into it")
    })
}

/// Reads a file that nobody but its owner can.
fn read_private(path: &Path) -> Result<Zeroizing<String>, Fault> {
    let shown = path.display();
    let cannot = |error: &io::Error| {
        Fault::unprepared(format!("the credentials in {shown} cannot be read: {error}")).hint(format!(
            "write one line, `user:password`, into a file that belongs to the user that runs the head: \
             install -m 600 /dev/stdin {shown}"
        ))
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    // Of the file that is open, whatever its name leads to by now.
    let facts = file.metadata().map_err(|error| cannot(&error))?;
    if !facts.is_file() {
        return Err(Fault::unprepared(format!("{shown} is no file")).hint("name a file with one line, `user:password`"));
    }
    if facts.mode() & 0o077 != 0 {
        let why = format!("the credentials in {shown} can be read by others than their owner");
        return Err(Fault::unprepared(why).hint(format!("chmod 600 {shown}")));
    }
    let me = nix::unistd::geteuid().as_raw();
    if facts.uid() != me && facts.uid() != 0 {
        let why = format!("the credentials in {shown} belong to another user (uid {})", facts.uid());
        return Err(Fault::unprepared(why).hint(format!("chown {me} {shown}")));
    }
    // Room for all of it, so that no copies are left behind as it grows.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    Ok(text)
}

async fn from_command(argv: &[String]) -> Result<Credentials, Fault> {
    let finished = Program::new(argv, COMMAND_LIMIT).run().await?;
    let name = argv.first().map_or("", String::as_str);
    let hint = "it must print one line, `user:password`, and end with 0";
    if !finished.status.success() {
        let why = format!("`{name}`, which prints credentials, {}", finished.failure());
        return Err(Fault::unprepared(why).hint(hint));
    }
    let text = std::str::from_utf8(&finished.stdout).map_err(|_| "is no text").and_then(parse);
    text.map_err(|why| Fault::unprepared(format!("what `{name}` has printed {why}")).hint(hint))
}

/// Reads the one line that says `user:password`. Lines that are empty or begin with `#` do not count.
///
/// # Errors
/// Says what is wrong without showing any of it.
pub(crate) fn parse(text: &str) -> Result<Credentials, &'static str> {
    if text.len() as u64 > MAX_BYTES {
        return Err("is too long for credentials");
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or("holds no credentials")?;
    if lines.next().is_some() {
        return Err("holds more than one line of credentials");
    }
    let (user, password) = line.split_once(':').ok_or("has no colon between user and password")?;
    if user.is_empty() || line.chars().any(char::is_control) {
        return Err("holds no name of a user, or characters that cannot be typed");
    }
    Ok(Credentials { user: user.to_owned(), password: Secret::new(password.to_owned()) })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::FaultKind;

    fn file(content: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ilo.secret");
        fs::write(&path, content).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        (directory, path)
    }

    fn keyring(path: &Path) -> Keyring {
        Keyring::new(CredentialsConfig::File(path.to_owned()), "the controller".into())
    }

    #[tokio::test]
    async fn a_private_file_is_read_and_one_that_others_can_read_is_not() {
        let (_directory, path) = file("# of r1\nadmin:a:b c\n", 0o600);
        let credentials = keyring(&path).load().await.expect("it is private");
        assert_eq!((credentials.user.as_str(), credentials.password.reveal()), ("admin", "a:b c"));
        assert!(!format!("{credentials:?}").contains("a:b"), "{credentials:?}");
        for mode in [0o640, 0o604, 0o660, 0o620] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let fault = keyring(&path).load().await.expect_err("it is not");
            assert_eq!(fault.kind(), FaultKind::Unprepared);
            assert_eq!(fault.what_to_do(), Some(format!("chmod 600 {}", path.display()).as_str()));
        }
    }

    #[tokio::test]
    async fn files_that_hold_no_credentials_say_so_and_show_nothing() {
        for content in
            ["", "# only this\n", "secretword", ":secretword", "a:secretword\nb:secretword", "a:secret\u{7}word"]
        {
            let (_directory, path) = file(content, 0o600);
            let fault = keyring(&path).load().await.expect_err(content);
            assert_eq!(fault.kind(), FaultKind::Unprepared);
            assert!(!format!("{fault:?}").contains("secret\u{7}") && !format!("{fault:?}").contains("secretword"));
        }
        let fault = keyring(Path::new("/nowhere/x")).load().await.expect_err("not there");
        assert!(fault.what_to_do().is_some_and(|hint| hint.contains("user:password")), "{fault:?}");
    }

    fn command(script: &str) -> Keyring {
        let command = ["sh", "-c", script].map(str::to_owned).into();
        Keyring::new(CredentialsConfig::Command { command }, "the controller".into())
    }

    #[tokio::test]
    async fn a_command_is_asked_again_only_after_a_refusal() {
        let directory = tempfile::tempdir().expect("a directory");
        let counter = directory.path().join("n").display().to_string();
        let keyring = command(&format!("echo x >> {counter}; echo admin:$(wc -l < {counter})"));
        for _ in 0..3 {
            assert_eq!(keyring.load().await.expect("it prints").password.reveal(), "1");
        }
        let first = keyring.load().await.expect("it prints");
        let fault = keyring.refused(&first, "it says no");
        assert!(fault.what_to_do().is_some_and(|hint| hint.contains("`sh`")), "{fault:?}");
        assert_eq!(keyring.load().await.expect("others are shown at once").password.reveal(), "2");
        assert_eq!(command("exit 3").load().await.expect_err("it fails").kind(), FaultKind::Unprepared);
    }

    #[test]
    fn what_was_refused_is_shown_again_later_and_what_is_new_at_once() {
        let keyring = keyring(Path::new("/x"));
        let [old, new] = ["a:old", "a:new"].map(|text| parse(text).expect("it is right"));
        let begin = Instant::now();
        keyring.note_refusal(&old, begin);
        let fault = keyring.show(old.clone(), begin + FIRST_PAUSE / 2).expect_err("too soon");
        assert_eq!((fault.kind(), fault.retry_after()), (FaultKind::Refused, Some(FIRST_PAUSE / 2)));
        assert!(keyring.show(old.clone(), begin + FIRST_PAUSE).is_ok());
        keyring.note_refusal(&old, begin);
        assert!(keyring.show(old.clone(), begin + FIRST_PAUSE).is_err(), "twice as long the second time");
        assert!(keyring.show(new, begin).is_ok());
        assert!(keyring.show(old.clone(), begin).is_ok(), "what was before the change counts no more");
        keyring.note_refusal(&old, begin);
        keyring.accepted();
        assert!(keyring.show(old, begin).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_user_and_password_are_they_come_back(user in "[^:#\\p{C}\\s][^:\\p{C}]{0,20}", password in "\\P{C}{0,40}") {
            let credentials = parse(&format!("\n{user}:{password}\n")).expect("a line");
            prop_assert_eq!(credentials.user, user);
            prop_assert_eq!(credentials.password.reveal(), password);
        }

        #[test]
        fn no_text_is_too_odd(text in "\\PC*|[a:#\r\n ]{0,12}") {
            let _ = parse(&text);
        }
    }
}
