//! The name of an environment: a hash of everything that decides what is in it.

use std::fmt;
use std::path::Path;

use super::cache::Settings;
use super::detect::Requirements;
use super::files::read_regular;
use super::tools::Tools;
use crate::account::act_as;

/// Names one environment. 32 hexadecimal digits: short, because the path of an environment's interpreter must fit into
/// the first line of its scripts, where Linux reads 127 bytes at most in older kernels.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// The key as text, which is also the name of its folder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a folder name back; `None` when it is not a key.
    pub(super) fn parse(name: &str) -> Option<Self> {
        (name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| Self(name.to_owned()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

/// Derives the key of `requirements` when installed by `tools` under `settings`.
pub(super) fn derive(requirements: &Requirements, tools: &Tools, settings: &Settings) -> Key {
    // Change the context whenever the same inputs start to be built differently.
    let mut hasher = blake3::Hasher::new_derive_key("hostler python environment, layout 1");
    let mut field = |name: &str, value: &[u8]| {
        hasher.update(name.as_bytes());
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value);
    };
    field("requirements", requirements.fingerprint().as_bytes());
    field("python", tools.python.identity().as_bytes());
    field("tool", tools.uv.as_ref().map_or("pip", |uv| uv.version.as_str()).as_bytes());
    for (name, value) in build_variables(settings) {
        field("variable", name.as_bytes());
        field("value", value.as_bytes());
    }
    for content in index_files(settings) {
        field("index file", &content);
    }
    Key(hasher.finalize().to_hex()[..32].to_owned())
}

/// Variables that steer pip or uv, sorted; all of them, since missing one would hand out a wrong environment, while one
/// too many costs a build at most. Those that only say where the tools keep things do not count.
fn build_variables(settings: &Settings) -> Vec<(String, String)> {
    const IRRELEVANT: [&str; 6] =
        ["UV_CACHE_DIR", "PIP_CACHE_DIR", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PIP_DISABLE_PIP_VERSION_CHECK", "UV"];
    let mut variables: Vec<(String, String)> = settings
        .environment()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| name.starts_with("PIP_") || name.starts_with("UV_"))
        .filter(|(name, _)| !IRRELEVANT.contains(&name.as_str()))
        .collect();
    variables.sort();
    variables
}

/// The longest of them, in bytes.
const MOST_INDEX_BYTES: u64 = 4 << 20;

/// The configuration files in which an operator or user names a package index.
fn index_files(settings: &Settings) -> Vec<Vec<u8>> {
    let mut files = vec!["/etc/pip.conf".into(), "/etc/uv/uv.toml".into()];
    if let Some(home) = settings.home() {
        let home = Path::new(&home);
        files.extend([".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml"].map(|name| home.join(name)));
    }
    // A file that cannot be read is one the tools cannot read either.
    let read = || files.iter().filter_map(|file| read_regular(file, MOST_INDEX_BYTES).ok()).collect();
    act_as(settings.builder(), read).unwrap_or_default()
}
