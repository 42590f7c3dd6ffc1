//! A private SSH server on the loopback interface, with its own keys and configuration.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::measure::milliseconds;
use crate::workspace::{find_program, run as run_command};

/// Directory that `sshd` requires when it runs as root.
const SEPARATION: &str = "/run/sshd";

/// An SSH server. Dropping it stops the server and removes its files.
pub(crate) struct SshServer {
    directory: TempDir,
    child: Child,
    made_separation: bool,
}

impl SshServer {
    /// Starts a server, or returns what is missing.
    pub(crate) fn start() -> Result<Self> {
        let sshd = find_program("sshd").context("sshd is not installed")?;
        let directory = tempfile::Builder::new().prefix("bench-ssh-").tempdir()?;
        let port = free_port()?;
        make_key(&directory.path().join("host"))?;
        make_key(&directory.path().join("user"))?;
        fs::write(directory.path().join("sshd_config"), server_config(directory.path(), port))?;
        fs::write(directory.path().join("config"), client_config(directory.path(), port))?;
        // SAFETY: geteuid has no preconditions.
        let root = unsafe { libc::geteuid() } == 0;
        let made_separation = root && !Path::new(SEPARATION).exists() && fs::create_dir(SEPARATION).is_ok();
        let child = Command::new(sshd)
            .arg("-D")
            .arg("-f")
            .arg(directory.path().join("sshd_config"))
            .arg("-E")
            .arg(directory.path().join("log"))
            .stdin(Stdio::null())
            .spawn()?;
        let mut server = Self { directory, child, made_separation };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// `ssh node COMMAND…` on a new connection.
    pub(crate) fn command(&self, remote: &str) -> Command {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(self.config()).arg("node").arg(remote);
        command
    }

    /// Copies a folder's content with `rsync`, including deletions.
    pub(crate) fn rsync(&self, from: &Path, to: &Path) -> Command {
        let mut command = Command::new("rsync");
        command.args(["-a", "--delete", "-e"]).arg(format!("ssh -F {}", self.config().display()));
        command.arg(format!("{}/", from.display())).arg(format!("node:{}/", to.display()));
        command
    }

    /// Opens a connection for several consecutive commands.
    pub(crate) fn keep(&self) -> Result<KeptSsh<'_>> {
        let kept = KeptSsh { server: self };
        // With `-f`, ssh goes to the background once it is connected.
        run_command(kept.with(&["-o", "ControlMaster=yes", "-N", "-f"]).stdout(Stdio::null()).stderr(Stdio::null()))?;
        Ok(kept)
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("config")
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = milliseconds(&mut self.command("true")) {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("sshd ended at once ({status}): {}", log.trim());
            }
            if Instant::now() > deadline {
                return Err(error.context(format!("sshd does not answer: {}", log.trim())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A shared connection to the server, closed on drop.
pub(crate) struct KeptSsh<'a> {
    server: &'a SshServer,
}

impl KeptSsh<'_> {
    /// `ssh node COMMAND…` on this connection.
    pub(crate) fn command(&self, remote: &str) -> Command {
        let mut command = self.with(&[]);
        command.arg(remote);
        command
    }

    fn with(&self, options: &[&str]) -> Command {
        let path = self.server.directory.path();
        let mut command = Command::new("ssh");
        command.arg("-F").arg(self.server.config()).arg("-o").arg(format!("ControlPath={}/kept", path.display()));
        command.args(options).arg("node");
        command
    }
}

impl Drop for KeptSsh<'_> {
    fn drop(&mut self) {
        // If this fails, the connection ends with the server.
        let _ = self.with(&["-O", "exit"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // Killing the server fails only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.made_separation {
            let _ = fs::remove_dir(SEPARATION);
        }
    }
}

/// A port that is free at the moment. If another process takes it, the server does not start.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn make_key(path: &Path) -> Result<()> {
    run_command(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path))
}

fn server_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory}/host\nPidFile none\n\
         AuthorizedKeysFile {directory}/user.pub\nStrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         # Start-up files of the shell are no part of what is measured: bash reads ~/.bashrc only where SHLVL is unset.\n\
         SetEnv SHLVL=2\n"
    )
}

fn client_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "Host node\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {directory}/user\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile {directory}/known_hosts\n  LogLevel ERROR\n  BatchMode yes\n"
    )
}
