//! The embedded cluster under systemd: what a logout ends, and the user unit that `hostler up --unit` writes.

use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use serde_json::json;

use crate::cluster::Places;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::Output;
use crate::xdg;

/// systemd-logind keeps a directory here while it runs.
const LOGIND: &str = "/run/systemd/users";

/// Contains an empty file for each user whose processes survive a logout.
const LINGER: &str = "/var/lib/systemd/linger";

/// What happens to the cluster when this user logs out, unless it just continues.
pub fn logout_note(places: &Places) -> Option<String> {
    let user = User::from_uid(geteuid()).ok().flatten()?;
    let of_session = PathBuf::from(format!("/run/user/{}", user.uid));
    note(places.runtime(), &of_session, Path::new(LOGIND), &Path::new(LINGER).join(&user.name))
}

fn note(runtime: &Path, of_session: &Path, logind: &Path, linger: &Path) -> Option<String> {
    let is_affected = runtime.starts_with(of_session) && logind.exists() && !linger.exists();
    is_affected.then(|| {
        format!(
            "your last logout removes {}, where commands find the cluster, and may end the cluster; to prevent both, run \
             `loginctl enable-linger`",
            of_session.display()
        )
    })
}

/// Writes the unit, and says how to enable it.
pub fn write(output: &Output) -> Outcome {
    let directory = xdg::directory("XDG_CONFIG_HOME", ".config");
    let directory = directory.ok_or_else(|| Failure::new("there is no directory for the unit: HOME is not set"))?;
    let path = directory.join("systemd/user/hostler.service");
    let executable = std::env::current_exe().during(|| "cannot find this executable".to_owned())?;
    let state = xdg::directory("XDG_STATE_HOME", ".local/state");
    let text = unit(&executable, state.filter(|_| std::env::var_os("XDG_STATE_HOME").is_some()).as_deref());
    let failed = || format!("cannot write {}", path.display());
    match std::fs::read_to_string(&path) {
        Ok(found) if found == text => {}
        Ok(_) => {
            return Err(Failure::new(format!("{} exists with other contents", path.display()))
                .hint("remove the file, and run `hostler up --unit` again"));
        }
        Err(_) => {
            hostler_sys::create_directory(&directory.join("systemd/user"), 0o700).during(failed)?;
            hostler_sys::replace_file(&path, text.as_bytes(), 0o644).during(failed)?;
        }
    }
    output.say(&format!("the unit is {}", path.display()));
    output.say("if the cluster runs, stop it first: `hostler down --keep`");
    output.say(
        "next: `systemctl --user daemon-reload`, `systemctl --user enable --now hostler`, `loginctl enable-linger`",
    );
    if output.is_json() {
        output.json(&json!({ "unit": path.display().to_string() }));
    }
    Ok(exit::OK)
}

fn unit(executable: &Path, state: Option<&Path>) -> String {
    let hostler = quoted(&executable.display().to_string());
    let state = state.map(|state| format!("Environment={}\n", quoted(&format!("XDG_STATE_HOME={}", state.display()))));
    format!(
        "# Written by `hostler up --unit`.\n\
         \n\
         [Unit]\n\
         Description=Hostler cluster on this machine\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         {}\
         ExecStart={hostler} up\n\
         ExecStop={hostler} down --keep\n\
         # Jobs continue when the cluster stops. With delegation, the kernel enforces their limits.\n\
         KillMode=process\n\
         Delegate=yes\n\
         TasksMax=infinity\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        state.unwrap_or_default()
    )
}

/// A word in a unit. systemd expands `%`, and accepts no program whose path has a quote or a backslash.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn note_about_the_logout_appears_only_without_linger() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (session, logind, linger) = (Path::new("/run/user/7"), directory.path(), directory.path().join("ada"));
        let said = |runtime: &str, logind: &Path| note(Path::new(runtime), session, logind, &linger);
        let text = said("/run/user/7/hostler", logind).expect("a note");
        assert!(text.contains("/run/user/7") && text.contains("loginctl enable-linger"), "{text}");
        assert_eq!(said("/tmp/hostler-7/x", logind), None, "a logout removes only the session's directory");
        assert_eq!(said("/run/user/7/hostler", Path::new("/nowhere")), None, "systemd-logind does not run");
        std::fs::write(&linger, "").expect("ours");
        assert_eq!(said("/run/user/7/hostler", logind), None);
    }

    #[test]
    fn systemd_accepts_the_unit() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("hostler.service");
        let executable = directory.path().join("a program of 100%");
        std::os::unix::fs::symlink("/bin/true", &executable).expect("ours");
        let text = unit(&executable, Some(Path::new("/srv/state of \\ 5%")));
        std::fs::write(&path, text).expect("ours");
        let mut command = Command::new("systemd-analyze");
        command.args(["--user", "verify", "--man=no", "--recursive-errors=no"]).arg(&path);
        command.env("XDG_RUNTIME_DIR", directory.path());
        let verified = command.output().expect("systemd-analyze is needed: install the package systemd");
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(verified.status.success() && said.trim().is_empty(), "{said}");
    }
}
