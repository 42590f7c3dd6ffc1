//! The variables of a login of the job's user on the node, for batch scripts that ask for them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hostler_sys::LOGIN_PATH;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, User, getuid};

/// Most seconds that a login may take, whatever the job asks for.
const MAX_SECONDS: u32 = 120;

/// Separates the output of login scripts from the variables.
const MARK: &[u8] = b"\0hostler-login\0";

/// Variables that describe the shell of the login, not the user's environment.
const OF_THE_SHELL: [&str; 5] = ["_", "PWD", "OLDPWD", "SHLVL", "TERM"];

/// What a batch script asks for. Its text is the value of a variable that the script does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginRequest {
    /// How long the login may take.
    pub seconds: u32,
    /// Whether the directories of the job's `PATH` come before those of the login.
    pub keeps_path: bool,
}

impl fmt::Display for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.seconds, if self.keeps_path { "+" } else { "" })
    }
}

impl LoginRequest {
    /// The name of the variable.
    pub const VARIABLE: &str = "SLURM_GET_USER_ENV";

    /// Takes the request out of the environment of a job's host.
    pub(super) fn take(environment: &mut Vec<(OsString, OsString)>) -> Option<Self> {
        let place = environment.iter().position(|(name, _)| name == Self::VARIABLE)?;
        let (_, value) = environment.remove(place);
        let text = value.to_str()?;
        let seconds = text.trim_end_matches('+').parse::<u32>().ok()?;
        Some(Self { seconds: seconds.clamp(1, MAX_SECONDS), keeps_path: text.ends_with('+') })
    }

    /// The variables that the program gets besides those of the job, or instead of them. If the login fails, says so and
    /// returns none.
    #[expect(clippy::print_stderr, reason = "the job's standard error is where users look")]
    pub(super) fn variables(self, job: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        match login(Duration::from_secs(self.seconds.into())) {
            Ok(login) => self.merged(login, job),
            Err(error) => {
                eprintln!(
                    "slurmstepd: error: Unable to get user's local environment, running only with passed environment: {error}"
                );
                Vec::new()
            }
        }
    }

    fn merged(self, login: Vec<(OsString, OsString)>, job: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let of_job = |name: &OsStr| job.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str());
        let value = |(name, value): (OsString, OsString)| match of_job(&name) {
            None => Some((name, value)),
            Some(own) if name == "PATH" && self.keeps_path => Some((name, joined(&[own, &value]))),
            // The first directory of the job may be that of Slurm's commands.
            Some(own) if name == "PATH" => {
                let first =
                    own.as_bytes().split(|byte| *byte == b':').next().map(OsStr::from_bytes).unwrap_or_default();
                let is_usual = value.as_bytes().split(|byte| *byte == b':').any(|known| known == first.as_bytes());
                let first = if is_usual { &value } else { first };
                Some((name, joined(&[first, &value, own])))
            }
            Some(_) => None,
        };
        login.into_iter().filter_map(value).collect()
    }
}

/// The directories of search paths, each once.
fn joined(paths: &[&OsStr]) -> OsString {
    let mut all: Vec<&[u8]> = Vec::new();
    for directory in paths.iter().flat_map(|path| path.as_bytes().split(|byte| *byte == b':')) {
        if !all.contains(&directory) {
            all.push(directory);
        }
    }
    OsString::from_vec(all.join(&b':'))
}

/// Runs the user's shell as for a login, and returns the variables that it then has.
fn login(time: Duration) -> io::Result<Vec<(OsString, OsString)>> {
    let user = User::from_uid(getuid())?.ok_or_else(|| io::Error::other("this node does not know the user"))?;
    let shell = if user.shell.as_os_str().is_empty() { "/bin/sh".into() } else { user.shell };
    let mut output = File::from(memfd_create(c"login", MFdFlags::MFD_CLOEXEC)?);
    let mut command = Command::new(&shell);
    // All shells take this name for a login.
    let mut name = OsString::from("-");
    name.push(shell.file_name().unwrap_or_default());
    command.arg0(name);
    command.args(["-c", "printf '\\000hostler-login\\000'; env -0"]).env_clear();
    command.env("HOME", &user.dir).env("SHELL", &shell).env("PATH", LOGIN_PATH);
    command.current_dir(if user.dir.is_dir() { user.dir.as_path() } else { "/".as_ref() });
    command.env("USER", &user.name).env("LOGNAME", &user.name);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let until = Instant::now() + time;
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            child.wait()?;
            return Err(io::Error::other(format!("the login took more than {} seconds", time.as_secs())));
        }
        sleep(Duration::from_millis(5));
    }
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    parse(&text).ok_or_else(|| io::Error::other("the login ended before it had printed its variables"))
}

/// The variables after the mark.
fn parse(text: &[u8]) -> Option<Vec<(OsString, OsString)>> {
    let start = text.windows(MARK.len()).position(|part| part == MARK)? + MARK.len();
    let entry = |line: &[u8]| {
        let end = line.iter().position(|byte| *byte == b'=').filter(|end| *end > 0)?;
        let name = OsStr::from_bytes(&line[..end]);
        let is_kept = !OF_THE_SHELL.iter().any(|known| name == *known);
        is_kept.then(|| (name.to_owned(), OsStr::from_bytes(&line[end + 1..]).to_owned()))
    };
    Some(text[start..].split(|byte| *byte == 0).filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(entries: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        entries.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn variables_of_the_job_win_and_paths_are_joined() {
        let parsed =
            parse(b"Welcome!\n\0hostler-login\0A=1\0B=x\ny\0PATH=/opt/bin:/bin\0PWD=/root\0=z\0").expect("a mark");
        assert_eq!(parsed, all(&[("A", "1"), ("B", "x\ny"), ("PATH", "/opt/bin:/bin")]));
        assert_eq!(parse(b"A=1"), None);
        let job = all(&[("A", "2"), ("PATH", "/own:/bin")]);
        for (text, path) in [("8", "/own:/opt/bin:/bin"), ("8+", "/own:/bin:/opt/bin")] {
            let mut environment = [all(&[(LoginRequest::VARIABLE, text)]), job.clone()].concat();
            let request = LoginRequest::take(&mut environment).expect("a request");
            assert_eq!((request.to_string().as_str(), &environment), (text, &job));
            assert_eq!(request.merged(parsed.clone(), &job), all(&[("B", "x\ny"), ("PATH", path)]));
        }
        assert_eq!(LoginRequest::take(&mut job.clone()), None);
    }

    #[test]
    fn login_has_the_users_variables() {
        let variables = login(Duration::from_secs(30)).expect("the user has a shell");
        assert!(variables.iter().any(|(name, _)| name == "HOME"), "{variables:?}");
    }
}
