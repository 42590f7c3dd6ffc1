//! Settings of a cache of environments.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use super::runner::Step;
use crate::account::{Account, Ids};

#[derive(Clone, Debug)]
pub struct Settings {
    /// Size limit for environments and downloads in bytes. Above it, least recently used ones are removed.
    pub cap_bytes: u64,
    /// Search path for interpreters, uv and compilers; by default the agent's `PATH`.
    pub search_path: OsString,
    /// Interpreter to use instead of the first `python3` on the search path.
    pub python: Option<PathBuf>,
    /// Whether to use uv if present. Default: yes.
    pub use_uv: bool,
    /// Whether uv may install Python versions that projects require and this node lacks. Default: no.
    pub install_python: bool,
    /// Variables for builds in addition to the agent's own, e.g. `UV_INDEX_URL` and `PIP_INDEX_URL`.
    pub variables: Vec<(String, String)>,
    /// User who builds and owns this cache, because package installation can run arbitrary code. Default: the agent's
    /// own user.
    pub run_as: Option<Arc<Account>>,
    /// Node whose runs pin environments. Agents on one machine may share a cache but only know their own runs.
    pub node: String,
}

impl Settings {
    pub fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes,
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            python: None,
            use_uv: true,
            install_python: false,
            variables: Vec::new(),
            run_as: None,
            node: String::new(),
        }
    }

    /// Variables for builds, before a build adds its own. A build of another user gets only those agent variables that
    /// configure access to package indexes and the locale, because others may be confidential.
    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        let overridden = |name: &OsString| self.variables.iter().any(|(other, _)| OsStr::new(other) == name);
        std::env::vars_os()
            .filter(move |(name, _)| !overridden(name))
            .filter(|(name, _)| self.run_as.is_none() || is_of_the_site(name))
            .chain(self.variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    /// Whether the settings allow the installation of missing Python versions.
    pub(super) fn installs_python(&self) -> bool {
        self.install_python && self.use_uv && self.python.is_none()
    }

    /// The user with whose rights the agent accesses the user's files; `None` for the agent's own user.
    pub(super) fn builder(&self) -> Option<&Ids> {
        self.run_as.as_ref().map(|user| &user.ids)
    }

    /// Configures a step to run as the user who builds, with that user's home and the permitted variables.
    pub(super) fn as_builder(&self, mut step: Step) -> Step {
        let mut env: BTreeMap<OsString, OsString> = self.environment().collect();
        env.insert("PATH".into(), self.search_path.clone());
        env.extend(self.identity().map(|(name, value)| (name.into(), value)));
        env.extend(step.env);
        step.env = env.into_iter().collect();
        step.credentials = self.run_as.as_ref().map(|user| user.credentials());
        step
    }

    /// Variables that identify the building user, if it is not the agent's own user.
    pub(super) fn identity(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let of = |user: &Arc<Account>| {
            let name = OsString::from(&user.name);
            [("HOME", user.home.clone().into_os_string()), ("USER", name.clone()), ("LOGNAME", name)]
        };
        self.run_as.iter().flat_map(of).collect::<Vec<_>>().into_iter()
    }

    pub(super) fn home(&self) -> Option<OsString> {
        self.run_as.as_ref().map_or_else(|| std::env::var_os("HOME"), |user| Some(user.home.clone().into()))
    }
}

/// Whether a variable can change what a build installs. Such variables of a job reach its build, and are part of the key
/// of its environment. Other variables of a job do neither, so that they cause no new build.
pub(super) fn is_of_builds(name: &str) -> bool {
    const PREFIXES: [&str; 12] = [
        "UV_",
        "PIP_",
        "SETUPTOOLS_",
        "VCS_VERSIONING_",
        "PBR_",
        "PDM_BUILD_",
        "POETRY_DYNAMIC_VERSIONING_",
        "HATCH_",
        "CMAKE_",
        "SKBUILD_",
        "MATURIN_",
        "CARGO_",
    ];
    const NAMES: [&str; 11] = [
        "CC",
        "CXX",
        "FC",
        "CFLAGS",
        "CXXFLAGS",
        "CPPFLAGS",
        "FFLAGS",
        "LDFLAGS",
        "RUSTFLAGS",
        "PKG_CONFIG_PATH",
        "CUDA_HOME",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// Whether a variable configures the access to networks, which does not change what a build installs.
pub(super) fn is_of_access(name: &str) -> bool {
    name.starts_with("SSL_CERT_") || name == "REQUESTS_CA_BUNDLE" || name.to_ascii_lowercase().ends_with("_proxy")
}

/// Whether a variable configures access to package indexes or the locale.
fn is_of_the_site(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["UV_", "PIP_", "LC_"].iter().any(|prefix| name.starts_with(prefix))
        || ["LANG", "TZ"].contains(&&*name)
        || is_of_access(&name)
}
