//! Environment keys: a hash of everything that determines an environment's content.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use hostler_project::Requirements;
use hostler_project::variables::is_of_builds;

use super::settings::{IRRELEVANT_TO_CONTENT, Settings, is_withheld};
use super::tools::Tools;

/// Key of an environment: 32 hexadecimal digits. It is short because the path of the interpreter must fit into the
/// first line of scripts, which older kernels limit to 127 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// The key as text, which is also the name of its directory.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a directory name; `None` if it is not a key.
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

/// Derives the key from requirements, tools and settings.
pub(super) fn derive(requirements: &Requirements, tools: &Tools, settings: &Settings) -> Key {
    // Change this context string whenever the same inputs are built differently.
    let mut hasher = blake3::Hasher::new_derive_key("hostler python environment, layout 3");
    let mut field = |name: &str, value: &[u8]| {
        hasher.update(name.as_bytes());
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value);
    };
    field("requirements", requirements.fingerprint().as_bytes());
    field("python", tools.python.identity().as_bytes());
    field("tool", tools.uv.version.as_bytes());
    if settings.sandbox.is_some() {
        field("sandbox", b"yes");
    }
    for (name, value) in build_variables(requirements, settings) {
        field("variable", name.as_bytes());
        field("value", value.as_bytes());
    }
    let files = settings.files();
    for content in files.pip.iter().chain(&files.uv) {
        field("index file", content);
    }
    Key(hasher.finalize().to_hex()[..32].to_owned())
}

/// All variables of the node and the job that can change what a build installs, and those that requirements name as
/// `${NAME}`. A missing variable could select a wrong environment; an unnecessary variable only costs a build. Variables
/// that only set paths of the tools are excluded.
fn build_variables(requirements: &Requirements, settings: &Settings) -> BTreeMap<String, String> {
    let of_node = settings
        .environment()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    let of_job = requirements.variables().iter().map(|(name, value)| (name.clone(), value.clone()));
    of_node
        .chain(of_job)
        .filter(|(name, _)| (is_of_builds(name) || requirements.names_variable(name)) && !is_withheld(OsStr::new(name)))
        .filter(|(name, _)| !IRRELEVANT_TO_CONTENT.contains(&name.as_str()))
        .collect()
}
