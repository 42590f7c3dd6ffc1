//! Credentials of controllers, and back-off after a rejection.

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

/// Back-off after a rejection of credentials, because controllers lock accounts. Each further rejection doubles the
/// back-off.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Timeout of a command that prints credentials.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// Maximum size of a credentials file.
const MAX_BYTES: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// One controller's credentials. They are loaded for each use, so that changes take effect immediately.
#[derive(Debug)]
pub(crate) struct Keyring {
    source: CredentialsConfig,
    /// Description of the controller, for messages.
    to: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Output of the command, which is kept until the credentials are rejected.
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

    /// Loads the current credentials.
    ///
    /// # Errors
    /// No credentials exist, other users could read them, or the controller recently rejected them.
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
                let why = format!("{} rejected the user {} with the configured password", self.to, credentials.user);
                return Err(Fault::refused(why).after(self.next_load(rest)).hint(format!(
                    "correct {}; they are not used again for {} s, so that the controller does not lock the account",
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

    /// Records that the controller rejected the credentials. Returns the fault.
    pub(crate) fn refused(&self, credentials: &Credentials, why: &str) -> Fault {
        let pause = self.note_refusal(credentials, Instant::now());
        Fault::refused(why).after(self.next_load(pause)).hint(format!("correct {}", self.place()))
    }

    /// When credentials should be loaded next during a back-off. A file is read at every attempt, so that a correction
    /// takes effect at the next one; a command may be slow or ask a server, so that it waits for the end of the back-off.
    fn next_load(&self, pause: Duration) -> Option<Duration> {
        match self.source {
            CredentialsConfig::File(_) => None,
            CredentialsConfig::Command { .. } => Some(pause),
        }
    }

    fn note_refusal(&self, credentials: &Credentials, now: Instant) -> Duration {
        let mut state = self.state();
        let pause = state.refused.as_ref().map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        state.printed = None;
        state.refused = Some(Refused { credentials: credentials.clone(), until: now + pause, pause });
        pause
    }

    /// Records that the controller accepted the credentials.
    pub(crate) fn accepted(&self) {
        self.state().refused = None;
    }

    /// Source of the credentials, for messages.
    fn place(&self) -> String {
        match &self.source {
            CredentialsConfig::File(path) => format!("the credentials in {}", path.display()),
            CredentialsConfig::Command { command } => {
                format!("the output of `{}`", command.first().map_or("", String::as_str))
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
        // Reading may block: the file may be on a network file system.
        tokio::task::spawn_blocking(move || read_private(&path)).await.expect("reading a file does not panic")?
    };
    parse(&text).map_err(|why| {
        Fault::unprepared(format!("{} {why}", path.display())).hint("write one line, `user:password`, into the file")
    })
}

/// Reads a file that only its owner can read.
fn read_private(path: &Path) -> Result<Zeroizing<String>, Fault> {
    let shown = path.display();
    let cannot = |error: &io::Error| {
        Fault::unprepared(format!("the credentials in {shown} cannot be read: {error}")).hint(format!(
            "write one line, `user:password`, into a file that belongs to the user that runs the head: \
             install -m 600 /dev/stdin {shown}"
        ))
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    // Check the open file, because the path may change meanwhile.
    let facts = file.metadata().map_err(|error| cannot(&error))?;
    if !facts.is_file() {
        return Err(
            Fault::unprepared(format!("{shown} is not a file")).hint("use a file with one line, `user:password`")
        );
    }
    if facts.mode() & 0o077 != 0 {
        let why = format!("other users can read the credentials in {shown}");
        return Err(Fault::unprepared(why).hint(format!("chmod 600 {shown}")));
    }
    let me = nix::unistd::geteuid().as_raw();
    if facts.uid() != me && facts.uid() != 0 {
        let why = format!("the credentials in {shown} belong to another user (uid {})", facts.uid());
        return Err(Fault::unprepared(why).hint(format!("chown {me} {shown}")));
    }
    // The text has its full capacity from the start, because growing it would leave copies of the secret in memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize + 1));
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| cannot(&error))?;
    Ok(text)
}

async fn from_command(argv: &[String]) -> Result<Credentials, Fault> {
    let finished = Program::new(argv, COMMAND_LIMIT).run().await?;
    let name = argv.first().map_or("", String::as_str);
    let hint = "the command must print one line, `user:password`, and exit with 0";
    if !finished.status.success() {
        let why = format!("`{name}`, which prints credentials, {}", finished.failure());
        return Err(Fault::unprepared(why).hint(hint));
    }
    let text = std::str::from_utf8(&finished.stdout).map_err(|_| "is not text").and_then(parse);
    text.map_err(|why| Fault::unprepared(format!("the output of `{name}` {why}")).hint(hint))
}

/// Parses a line `user:password`. Ignores empty lines and lines that begin with `#`.
///
/// # Errors
/// The problem, without any part of the text.
pub(crate) fn parse(text: &str) -> Result<Credentials, &'static str> {
    if text.len() as u64 > MAX_BYTES {
        return Err("is too long for credentials");
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or("contains no credentials")?;
    if lines.next().is_some() {
        return Err("contains more than one line of credentials");
    }
    let (user, password) = line.split_once(':').ok_or("has no colon between user and password")?;
    if user.is_empty() || line.chars().any(char::is_control) {
        return Err("contains no user name, or contains control characters");
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
        fs::write(&path, content).expect("permitted");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permitted");
        (directory, path)
    }

    fn keyring(path: &Path) -> Keyring {
        Keyring::new(CredentialsConfig::File(path.to_owned()), "the controller".into())
    }

    #[tokio::test]
    async fn only_files_without_access_for_others_are_read() {
        let (_directory, path) = file("# of r1\nadmin:a:b c\n", 0o600);
        let credentials = keyring(&path).load().await.expect("the file is private");
        assert_eq!((credentials.user.as_str(), credentials.password.reveal()), ("admin", "a:b c"));
        assert!(!format!("{credentials:?}").contains("a:b"), "{credentials:?}");
        for mode in [0o640, 0o604, 0o660, 0o620] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permitted");
            let fault = keyring(&path).load().await.expect_err("not private");
            assert_eq!(fault.kind(), FaultKind::Unprepared);
            assert_eq!(fault.what_to_do(), Some(format!("chmod 600 {}", path.display()).as_str()));
        }
    }

    #[tokio::test]
    async fn invalid_files_are_rejected_without_showing_content() {
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
    async fn command_runs_again_only_after_a_rejection() {
        let directory = tempfile::tempdir().expect("a directory");
        let counter = directory.path().join("n").display().to_string();
        let keyring = command(&format!("echo x >> {counter}; echo admin:$(wc -l < {counter})"));
        for _ in 0..3 {
            assert_eq!(keyring.load().await.expect("the command prints credentials").password.reveal(), "1");
        }
        let first = keyring.load().await.expect("the command prints credentials");
        let fault = keyring.refused(&first, "it says no");
        assert_eq!(fault.retry_after(), Some(FIRST_PAUSE), "the command does not run at every attempt");
        assert!(fault.what_to_do().is_some_and(|hint| hint.contains("`sh`")), "{fault:?}");
        assert_eq!(keyring.load().await.expect("new credentials are used immediately").password.reveal(), "2");
        assert_eq!(command("exit 3").load().await.expect_err("the command fails").kind(), FaultKind::Unprepared);
    }

    #[test]
    fn rejected_credentials_wait_and_new_ones_are_used_immediately() {
        let keyring = keyring(Path::new("/x"));
        let [old, new] = ["a:old", "a:new"].map(|text| parse(text).expect("valid"));
        let begin = Instant::now();
        keyring.note_refusal(&old, begin);
        let fault = keyring.show(old.clone(), begin + FIRST_PAUSE / 2).expect_err("too soon");
        assert_eq!(
            (fault.kind(), fault.retry_after()),
            (FaultKind::Refused, None),
            "the file is read at every attempt"
        );
        assert!(keyring.show(old.clone(), begin + FIRST_PAUSE).is_ok());
        keyring.note_refusal(&old, begin);
        assert!(keyring.show(old.clone(), begin + FIRST_PAUSE).is_err(), "twice as long the second time");
        assert!(keyring.show(new, begin).is_ok());
        assert!(keyring.show(old.clone(), begin).is_ok(), "a change ends the back-off");
        keyring.note_refusal(&old, begin);
        keyring.accepted();
        assert!(keyring.show(old, begin).is_ok());
    }

    proptest! {
        #[test]
        fn user_and_password_are_parsed(user in "[^:#\\p{C}\\s][^:\\p{C}]{0,20}", password in "\\P{C}{0,40}") {
            let credentials = parse(&format!("\n{user}:{password}\n")).expect("a line");
            prop_assert_eq!(credentials.user, user);
            prop_assert_eq!(credentials.password.reveal(), password);
        }

        #[test]
        fn any_text_is_handled(text in "\\PC*|[a:#\r\n ]{0,12}") {
            let _ = parse(&text);
        }
    }
}
