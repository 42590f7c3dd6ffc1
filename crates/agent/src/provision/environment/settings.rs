//! Settings of a cache of environments.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hostler_project::variables::is_of_access;
use hostler_shepherd::{Credentials, SANDBOX_HOME, Sandbox};

use super::pip::{Files, Variables};
use super::runner::Step;
use crate::account::{Account, Ids};
use crate::rights::act_as;

/// What the sandboxes of builds have besides the directories of their cache.
#[derive(Clone, Debug, Default)]
pub struct BuildSandbox {
    /// Directories and files of the machine that every sandbox of the node shows.
    pub of_machine: Vec<String>,
    /// The agent's own user, unless it is root.
    pub own: Option<Arc<Account>>,
}

impl BuildSandbox {
    /// A search path without the directories that a sandbox does not show.
    #[must_use]
    pub fn search_path(&self, all: &OsStr) -> OsString {
        let is_shown = |directory: &PathBuf| {
            let of_system = SYSTEM.iter().any(|place| directory.starts_with(place));
            of_system || self.of_machine.iter().any(|place| directory.starts_with(place))
        };
        std::env::join_paths(std::env::split_paths(all).filter(is_shown)).unwrap_or_default()
    }
}

/// Directories of programs that every sandbox shows.
const SYSTEM: [&str; 3] = ["/usr", "/bin", "/sbin"];

/// Directories with the machine's configuration of uv.
const OF_UV: [&str; 2] = ["/etc/uv", "/etc/xdg/uv"];

#[derive(Clone, Debug)]
pub struct Settings {
    /// Size limit for environments and downloads in bytes. Above it, least recently used ones are removed.
    pub cap_bytes: u64,
    /// Search path for interpreters, uv and compilers; by default the agent's `PATH`.
    pub search_path: OsString,
    /// Interpreter to use instead of the first `python3` on the search path.
    pub python: Option<PathBuf>,
    /// uv to use instead of another one.
    pub uv: Option<PathBuf>,
    /// Search path for uv, if it is another one: a sandbox shows the uv that it uses, also from directories that it hides.
    pub uv_search_path: Option<OsString>,
    /// Where the agent keeps a uv that it has got, for a node that has none. Its directory exists.
    pub kept_uv: PathBuf,
    /// Whether uv may install Python versions that projects require and this node lacks. Default: no.
    pub install_python: bool,
    /// Variables for builds in addition to the agent's own, e.g. `UV_INDEX_URL` and `PIP_INDEX_URL`.
    pub variables: Vec<(String, String)>,
    /// User who builds and owns this cache, because package installation can run arbitrary code. Default: the agent's
    /// own user.
    pub run_as: Option<Arc<Account>>,
    /// Set if all commands of the cache run in a sandbox: its environments are for sandboxed jobs.
    pub sandbox: Option<Arc<BuildSandbox>>,
    /// Node whose runs pin environments. Agents on one machine may share a cache but only know their own runs.
    pub node: String,
}

impl Settings {
    pub fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes,
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            python: None,
            uv: None,
            uv_search_path: None,
            kept_uv: PathBuf::new(),
            install_python: false,
            variables: Vec::new(),
            run_as: None,
            sandbox: None,
            node: String::new(),
        }
    }

    /// Variables for builds, before a build adds its own. A build of another user gets only those agent variables that
    /// configure access to package indexes and the locale, because others may be confidential.
    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        let overridden = |name: &OsString| self.variables.iter().any(|(other, _)| OsStr::new(other) == name);
        std::env::vars_os()
            .filter(move |(name, _)| !overridden(name))
            .filter(|(name, _)| self.user().is_none() || is_of_the_site(name))
            .chain(self.variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    /// Whether the settings allow the installation of missing Python versions.
    pub(super) fn installs_python(&self) -> bool {
        self.install_python && self.python.is_none()
    }

    /// The user with whose rights the agent accesses the user's files; `None` for the agent's own user.
    pub(super) fn builder(&self) -> Option<&Ids> {
        self.run_as.as_ref().map(|user| &user.ids)
    }

    /// The user of the steps; `None` for the agent's own user, with all that the agent's environment has.
    fn user(&self) -> Option<&Arc<Account>> {
        self.run_as.as_ref().or_else(|| self.sandbox.as_ref()?.own.as_ref())
    }

    /// The user to switch to in a step.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.user().map(|user| user.credentials())
    }

    /// Configures a step to run as the user who builds, with that user's home and the permitted variables.
    pub(super) fn as_builder(&self, mut step: Step) -> Step {
        let mut env: Variables = self.environment().filter(|(name, _)| !is_withheld(name)).collect();
        env.insert("PATH".into(), self.search_path.clone());
        env.extend(self.identity().map(|(name, value)| (name.into(), value)));
        env.extend(std::mem::take(&mut step.env));
        step.env = env.into_iter().collect();
        step.credentials = self.credentials();
        step.sandbox = self.sandbox_of_step(&step, &[]);
        step
    }

    /// The sandbox of a step that may write in these directories; `None` without a sandbox. Only a step that may write reaches
    /// the network. It shows uv, which the agent has chosen, but no interpreter, which the job may have chosen.
    pub(super) fn sandbox_of_step(&self, step: &Step, writable: &[&Path]) -> Option<Sandbox> {
        let sandbox = self.sandbox.as_ref()?;
        let text = |path: &&Path| path.display().to_string();
        let program = step.argv.first().map(Path::new);
        let uv = program.filter(|program| program.ends_with("uv") || self.uv.as_deref() == Some(*program));
        Some(Sandbox {
            of_machine: sandbox.of_machine.clone(),
            settings: self.site_files().into_iter().chain(uv.as_ref().map(text)).collect(),
            writable: writable.iter().map(text).collect(),
            without_folder: true,
            host_network: !writable.is_empty(),
            ..Sandbox::default()
        })
    }

    /// Configuration of the tools, and the local places that the agent's variables name: indexes, certificates and the like.
    fn site_files(&self) -> Vec<String> {
        let mut files: Vec<String> = OF_UV.map(str::to_owned).to_vec();
        let mut all = self.environment().collect();
        self.files().hand_over(&mut all, false);
        for (name, value) in all {
            if is_withheld(&name) || IRRELEVANT_TO_CONTENT.iter().any(|other| name == *other) {
                continue;
            }
            let value = value.to_string_lossy();
            let words = value.split([' ', ',', '\n', '=']).map(|word| word.strip_prefix("file://").unwrap_or(word));
            files.extend(words.filter(|word| is_plain_path(word)).map(|word| word.trim_end_matches('/').to_owned()));
        }
        files.sort();
        files.dedup();
        files
    }

    /// Variables that identify the user of the steps.
    pub(super) fn identity(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let home = |user: &Arc<Account>| match &self.sandbox {
            Some(_) => SANDBOX_HOME.into(),
            None => user.home.clone().into_os_string(),
        };
        let of = |user: &Arc<Account>| {
            let name = OsString::from(&user.name);
            [("HOME", home(user)), ("USER", name.clone()), ("LOGNAME", name)]
        };
        self.user().into_iter().flat_map(of).collect::<Vec<_>>().into_iter()
    }

    /// The configuration files of pip and uv, read with the user's rights.
    pub(super) fn files(&self) -> Files {
        let of_node = self.environment().collect();
        act_as(self.builder(), || Files::read(self.home().as_deref(), &of_node)).unwrap_or_default()
    }

    /// The directory with the user's configuration of the tools, if they see it.
    fn home(&self) -> Option<OsString> {
        if self.sandbox.is_some() {
            return None;
        }
        self.run_as.as_ref().map_or_else(|| std::env::var_os("HOME"), |user| Some(user.home.clone().into()))
    }
}

/// Variables that only set paths of the tools.
pub(super) const IRRELEVANT_TO_CONTENT: [&str; 6] =
    ["UV_CACHE_DIR", "PIP_CACHE_DIR", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "PIP_DISABLE_PIP_VERSION_CHECK", "UV"];

/// Whether a word of a variable is an absolute path that a sandbox can show.
fn is_plain_path(word: &str) -> bool {
    let path = Path::new(word);
    let is_plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    path.is_absolute() && is_plain && path.components().count() > 1
}

/// Whether a variable configures access to package indexes or the locale.
fn is_of_the_site(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["UV_", "PIP_", "LC_"].iter().any(|prefix| name.starts_with(prefix))
        || ["LANG", "TZ"].contains(&&*name)
        || is_of_access(&name)
}

/// Variables of the agent or the job that would mislead a build: they choose another interpreter, project or destination,
/// or prevent the installation. pip accepts its own in lower case, such as `PIP_target`.
const MISLEADING: [&str; 23] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PIP_PYTHON",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_DRY_RUN",
    "PIP_REQUIRE_VIRTUALENV",
    "UV_PROJECT",
    "UV_WORKING_DIR",
    // The former name of `UV_WORKING_DIR`, which uv still accepts.
    "UV_WORKING_DIRECTORY",
    "UV_SYSTEM_PYTHON",
    "UV_PYTHON",
    "UV_PYTHON_INSTALL_DIR",
    "UV_PYTHON_PREFERENCE",
    "UV_MANAGED_PYTHON",
    "UV_NO_MANAGED_PYTHON",
    // uv would copy the project's source into the environment, although the environment's key does not cover it.
    "UV_NO_EDITABLE",
    // Links into the downloads break when these are removed.
    "UV_LINK_MODE",
];

/// Whether to hide a variable from builds, which can run arbitrary code.
pub(super) fn is_withheld(name: &OsStr) -> bool {
    MISLEADING.iter().any(|misleading| name.eq_ignore_ascii_case(misleading))
        || name.as_encoded_bytes().starts_with(b"HOSTLER_")
}
