//! Opens a link with a secret in the user's browser.
//!
//! The arguments of a process are visible to all users, so the browser gets the path of a private file that leads to the
//! link.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::failure::{During, Failure};
use crate::xdg;

/// A command that opens an address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Browser {
    words: Vec<String>,
}

impl Browser {
    /// The browser in BROWSER, or the default browser if there is a display.
    pub(crate) fn find() -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match set("BROWSER") {
            Some(list) => Self::first_in(&list),
            None if set("DISPLAY").is_some() || set("WAYLAND_DISPLAY").is_some() => Self::first_in(&"xdg-open".into()),
            None => None,
        }
    }

    /// Reads a list of commands, separated by colons. `%s` stands for the address.
    fn first_in(list: &OsString) -> Option<Self> {
        let list = list.to_str()?;
        let first = list.split(':').find(|command| !command.trim().is_empty())?;
        Some(Self { words: first.split_whitespace().map(str::to_owned).collect() })
    }

    fn command(&self, address: &str) -> Command {
        let has_place = self.words.iter().any(|word| word.contains("%s"));
        let mut words = self.words.iter().map(|word| word.replace("%s", address));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        if !has_place {
            command.arg(address);
        }
        command
    }

    /// Opens `link`. `instead` says what to do if the browser does not start.
    pub(crate) fn open(&self, link: &str, instead: &str) -> Result<Opened, Failure> {
        let directory = redirect_to(link).during(|| "cannot write a file for the browser".to_owned())?;
        let address = format!("file://{}", directory.path().join("open.html").display());
        let mut command = self.command(&address);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .during(|| format!("cannot start the browser `{}`", self.words.join(" ")))
            .map_err(|failure| failure.hint(instead))?;
        let (report, failed) = oneshot::channel();
        let name = self.words.join(" ");
        // Some browsers run in the foreground. The thread collects the process when it ends.
        std::thread::spawn(move || {
            if let Ok(status) = child.wait()
                && !status.success()
            {
                // Fails only if the command has ended already.
                report.send(format!("the browser `{name}` failed: {status}")).ok();
            }
        });
        Ok(Opened { _directory: directory, failed })
    }
}

/// A browser that was started.
pub(crate) struct Opened {
    /// Has the file that leads to the link; deleted when this value is dropped.
    _directory: TempDir,
    /// A sentence, if the browser ends with an error.
    pub(crate) failed: oneshot::Receiver<String>,
}

/// A private directory with a page that leads to `link`.
fn redirect_to(link: &str) -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("hostler-browser-").permissions(Permissions::from_mode(0o700));
    let directory =
        match xdg::runtime(&std::env::temp_dir().to_string_lossy()).map(|runtime| builder.tempdir_in(runtime)) {
            Some(Ok(directory)) => directory,
            Some(Err(_)) | None => builder.tempdir()?,
        };
    let page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0;url={link}\">\n<title>Hostler</title>\n<p><a href=\"{link}\">Continue</a></p>\n"
    );
    let path = directory.path().join("open.html");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(page.as_bytes())?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_gets_the_address_where_it_wants_it() {
        let words = |list: &str| {
            let browser = Browser::first_in(&list.into())?;
            let command = browser.command("file:///x");
            let arguments = command.get_args().map(|word| word.to_string_lossy().into_owned());
            Some(
                [command.get_program().to_string_lossy().into_owned()].into_iter().chain(arguments).collect::<Vec<_>>(),
            )
        };
        assert_eq!(words("firefox:chromium").expect("a browser"), ["firefox", "file:///x"]);
        assert_eq!(words("w3m -o %s -x").expect("a browser"), ["w3m", "-o", "file:///x", "-x"]);
        assert_eq!((words(""), words(":")), (None, None));
    }

    #[test]
    fn only_the_user_can_read_the_redirect_file() {
        let directory = redirect_to("http://h1.localhost:1/enter?key=2").expect("writable");
        let path = directory.path().join("open.html");
        let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(directory.path()), mode(&path)), (0o700, 0o600));
        assert!(std::fs::read_to_string(&path).expect("readable").contains("url=http://h1.localhost:1/enter?key=2"));
        drop(directory);
        assert!(!path.exists());
    }
}
