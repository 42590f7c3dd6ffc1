//! Signs with the user's SSH keys. `ssh-keygen` does the work: it knows all key types, asks for passphrases and uses
//! the SSH agent for private keys that are not in a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hostler_proto::users::LOGIN_NAMESPACE;

use crate::failure::{During, Failure};
use crate::xdg;

/// Maximum number of keys to try, because the head limits the attempts.
const MAX_KEYS: usize = 6;

/// An SSH key to try.
#[derive(Debug)]
pub(crate) struct Key {
    /// A private key, or a public key whose private key is in the SSH agent.
    path: PathBuf,
    /// Name of the key in messages.
    pub(crate) name: String,
    /// Temporary file with a public key from the SSH agent; deleted when the `Key` is dropped.
    _file: Option<tempfile::NamedTempFile>,
}

impl Key {
    pub(crate) fn in_file(path: &Path) -> Self {
        Self { path: path.to_owned(), name: path.display().to_string(), _file: None }
    }
}

/// The keys that `ssh` would offer: first the keys of the SSH agent, then the files with the default names.
pub(crate) fn usual_keys() -> Result<Vec<Key>, Failure> {
    let mut keys = Vec::new();
    for line in agent_keys() {
        let mut file = tempfile::Builder::new()
            .prefix("hostler-key-")
            .suffix(".pub")
            .tempfile()
            .during(|| "cannot make a temporary file".to_owned())?;
        writeln!(file, "{line}").during(|| "cannot write a temporary file".to_owned())?;
        let comment = line.splitn(3, ' ').nth(2).unwrap_or("without a name").to_owned();
        keys.push(Key {
            path: file.path().to_owned(),
            name: format!("{comment} (from the SSH agent)"),
            _file: Some(file),
        });
    }
    if let Some(home) = xdg::home() {
        let files = ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| home.join(".ssh").join(name));
        keys.extend(files.iter().filter(|path| path.is_file()).map(|path| Key::in_file(path)));
    }
    keys.truncate(MAX_KEYS);
    Ok(keys)
}

/// The public keys of the SSH agent.
fn agent_keys() -> Vec<String> {
    if std::env::var_os("SSH_AUTH_SOCK").is_none() {
        return Vec::new();
    }
    let listed = Command::new("ssh-add").arg("-L").stdin(Stdio::null()).stderr(Stdio::null()).output();
    // Without an agent, or with an empty one, only files are used.
    let text = listed.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().filter(|line| line.starts_with("ssh-") || line.starts_with("ecdsa-")).map(str::to_owned).collect()
}

/// Signs `text` for a login with `ssh-keygen`.
pub(crate) fn sign(key: &Key, text: &str) -> Result<String, Failure> {
    let mut child = Command::new("ssh-keygen")
        .args(["-Y", "sign", "-q", "-n", LOGIN_NAMESPACE, "-f"])
        .arg(&key.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .during(|| "cannot run ssh-keygen, which signs with your key".to_owned())?;
    let fed = child.stdin.take().expect("piped").write_all(text.as_bytes());
    let output = child.wait_with_output().during(|| "cannot wait for ssh-keygen".to_owned())?;
    if output.status.success() && fed.is_ok() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("ssh-keygen cannot sign with {}: {}", key.name, said.trim())))
}
