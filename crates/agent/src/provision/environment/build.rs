//! Builds one environment: commands, their variables, and explanations of failures.
//!
//! A [`Runner`] runs the commands without input, in a scratch folder with copies of the files that they need. A build
//! writes nothing into the project folder, whose new files become the job's result. The output goes to the log, and its
//! last lines to the error.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hostler_project::files::read_regular;
use hostler_project::{LOCK_BYTES, Line, List, OwnPackage, PROJECT_BYTES, Plan, ProjectError, Requirements};
use hostler_snapshot::remove_tree;

use super::cause::{self, Tail};
use super::error::{BuildError, EnvError, IoContext, disk_full, explain, free_bytes, one_line, system_error};
use super::files;
use super::pip::Variables;
use super::runner::{Ended, Runner, Step};
use super::settings::{Settings, is_withheld};
use super::tools::{Python, Tools};
use crate::rights::act_as;

/// Free space in bytes below which a failed build is reported as a full disk. Any wheel's metadata needs more space.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// Maximum size in bytes of a file that the editable installation of a project needs. Larger files are data.
const SOURCE_BYTES: u64 = LOCK_BYTES;

/// Variable with the job's folder, for an editable installation of the project.
pub(super) const PROJECT_VARIABLE: &str = "HOSTLER_PROJECT";

pub(super) struct Build<'a> {
    /// Directory of the cache.
    pub(super) root: &'a Path,
    /// Directory with the download caches of the tools.
    pub(super) downloads: PathBuf,
    pub(super) settings: &'a Settings,
    pub(super) requirements: &'a Requirements,
    pub(super) tools: &'a Tools,
    pub(super) runner: &'a dyn Runner,
}

impl Build<'_> {
    pub(super) fn tool(&self) -> String {
        format!("{} for {}", self.tools.uv.version, self.tools.python)
    }

    /// Builds the environment in the directory `attempt`, which must not exist.
    pub(super) fn run(&self, attempt: &Path, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        let started = Instant::now();
        let site = Site {
            venv: attempt.join("venv"),
            python: attempt.join("python"),
            work: attempt.join("work"),
            temporary: attempt.join("tmp"),
        };
        self.make_directories(attempt, &[&site.work, &site.temporary])?;
        self.install(&site, log)?;
        for dir in [&site.work, &site.temporary] {
            // Otherwise the files are removed with the environment.
            if let Err(error) = self.with_rights(|| remove_tree(dir).context("remove", dir)) {
                tracing::warn!(error = one_line(&error), "cannot remove the files of a build");
            }
        }
        log(format!("hostler: environment ready after {:.1} s\n", started.elapsed().as_secs_f64()).as_bytes());
        Ok(())
    }

    fn install(&self, site: &Site, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        log(format!("hostler: building the environment with {}\n", self.tool()).as_bytes());
        let uv = &self.tools.uv.program;
        let plan = self.requirements.plan();
        let mut install = Step::new(uv, [""; 0]);
        match plan {
            Plan::Lock { whole_tree, own } => {
                self.with_rights(|| self.copy_project(*whole_tree, *own, &site.work))?;
                install.args(["sync", "--frozen"]);
                install.args(match own {
                    OwnPackage::None => &["--no-install-project", "--no-editable"][..],
                    OwnPackage::Linked => &[],
                    OwnPackage::Copied => &["--no-editable"],
                });
                self.choose_python(&mut install, site);
                install.env("UV_PROJECT_ENVIRONMENT", &site.venv);
            }
            Plan::List(list) => {
                if let Some(whole_tree) = list.settings {
                    self.with_rights(|| self.copy_project(whole_tree, OwnPackage::None, &site.work))?;
                }
                install.args(["pip", "install", "--python"]).args([site.interpreter()]);
                self.with_rights(|| self.write_list(list, &site.work, &mut install))?;
            }
            Plan::Pyproject { whole_tree, own, .. } => {
                self.with_rights(|| self.copy_project(*whole_tree, *own, &site.work))?;
                install.args(["pip", "install", "--python"]).args([site.interpreter()]);
                install.args(match own {
                    OwnPackage::None => &["-r", "pyproject.toml"][..],
                    OwnPackage::Linked => &["-e", "."],
                    OwnPackage::Copied => &["."],
                });
                if *own != OwnPackage::Linked {
                    // By default, uv links workspace members to the copied project, which is deleted. Old versions ignore this.
                    install.env("UV_NO_EDITABLE", "1");
                }
            }
        }
        if !matches!(plan, Plan::Lock { .. }) {
            let mut venv = Step::new(uv, ["venv"]);
            self.choose_python(&mut venv, site);
            venv.args([&site.venv]);
            self.step("uv venv", venv, site, log)?;
        }
        if matches!(plan, Plan::List(list) if list.requirements.is_empty()) {
            return Ok(());
        }
        install.args(self.variables().1.then_some("--no-index"));
        let name = if matches!(plan, Plan::Lock { .. }) { "uv sync" } else { "uv pip install" };
        self.step(name, install, site, log)?;
        self.link_own_package(site)
    }

    /// Makes an editable installation of the project find the source in the folder of the job that uses it.
    ///
    /// The backend has written the path of the copy that was built. Jobs with other folders share the environment, so the
    /// path is replaced by the value of a variable of the job.
    fn link_own_package(&self, site: &Site) -> Result<(), EnvError> {
        let (Plan::Pyproject { own, .. } | Plan::Lock { own, .. }) = self.requirements.plan() else { return Ok(()) };
        if *own != OwnPackage::Linked {
            return Ok(());
        }
        let failed = |error: io::Error| system_error(self.root, &error);
        self.with_rights(|| link_modules(&site.venv, &site.work).map_err(failed))
    }

    /// Tells uv which Python to use. A Python that uv installs becomes part of the environment and is removed with it.
    fn choose_python(&self, command: &mut Step, site: &Site) {
        command.args(["--python"]);
        match &self.tools.python {
            Python::Found(python) => command.args([&python.executable]),
            Python::Installed(wanted) => command
                .args([wanted.to_string()])
                .env("UV_PYTHON_PREFERENCE", "only-managed")
                .env("UV_PYTHON_DOWNLOADS", "automatic")
                .env("UV_PYTHON_INSTALL_DIR", &site.python)
                .env("UV_PYTHON_CACHE_DIR", self.downloads.join("python")),
        };
    }

    /// Copies the files that uv reads, or the whole project with `whole_tree`, or what an editable installation needs.
    fn copy_project(&self, whole_tree: bool, own: OwnPackage, work: &Path) -> Result<(), EnvError> {
        let from = self.requirements.project_dir();
        let failed = |error: io::Error| system_error(self.root, &error);
        if whole_tree || own == OwnPackage::Linked {
            let most_bytes = if whole_tree { u64::MAX } else { SOURCE_BYTES };
            return self.copy_tree(from, work, most_bytes);
        }
        for (name, most) in [("pyproject.toml", PROJECT_BYTES), ("uv.lock", LOCK_BYTES), ("uv.toml", PROJECT_BYTES)] {
            let file = from.join(name);
            // A link may lead to another file of the user, which packages must not read.
            if file.canonicalize().is_ok_and(|real| !real.starts_with(from)) {
                return Err(ProjectError::OutsideProject { file: name.to_owned(), target: name.to_owned() }.into());
            }
            match files::copy_regular(&file, &work.join(name), most) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(io::Error::new(error.kind(), format!("cannot copy {name}: {error}"))));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the requirements files, with copies of local packages, and adds options with the paths of these files to
    /// `install`.
    fn write_list(&self, list: &List, work: &Path, install: &mut Step) -> Result<(), EnvError> {
        for (option, name, lines) in
            [("-r", "requirements.txt", &list.requirements), ("-c", "constraints.txt", &list.constraints)]
        {
            if lines.is_empty() {
                continue;
            }
            let mut text = String::new();
            for line in lines {
                text.push_str(&self.line(line, work)?);
                text.push('\n');
            }
            // The working directory may contain a copy of the project with files of these names.
            let file = work.with_file_name("tmp").join(name);
            files::write_new(&file, text.as_bytes()).map_err(|error| system_error(self.root, &error))?;
            install.args([option.into(), file.into_os_string()]);
        }
        Ok(())
    }

    fn line(&self, line: &Line, work: &Path) -> Result<String, EnvError> {
        match line {
            Line::Text(text) => Ok(text.clone()),
            Line::Local(local) => {
                let path = &local.path;
                let dir = work.join(format!("local-{}", files::unique_name()));
                // A wheel must keep its name. A folder may have any name; the project's own depends on the job.
                let copy =
                    if path.is_file() { dir.join(path.file_name().unwrap_or_default()) } else { dir.join("source") };
                fs::create_dir(&dir).map_err(|error| system_error(self.root, &error))?;
                self.copy_tree(path, &copy, u64::MAX)?;
                Ok(local.with_path(&copy))
            }
        }
    }

    /// Copies a part of the project, unless the job ends meanwhile.
    fn copy_tree(&self, from: &Path, to: &Path, most_bytes: u64) -> Result<(), EnvError> {
        let goes_on = || self.runner.goes_on();
        files::copy_tree(from, to, most_bytes, &goes_on).map_err(|stopped| explain(stopped, self.root))
    }

    /// Creates the attempt directory with empty directories in it, and gives them to the building user. The build may
    /// write only there.
    fn make_directories(&self, attempt: &Path, inside: &[&Path]) -> Result<(), EnvError> {
        for dir in [&[attempt], inside].concat() {
            fs::create_dir(dir).map_err(|error| system_error(self.root, &error))?;
        }
        if let Some(ids) = self.settings.builder() {
            fs::set_permissions(attempt, Permissions::from_mode(0o700)).context("close", attempt)?;
            files::give(attempt, inside, ids.uid, ids.gid).context("change the owner of", attempt)?;
        }
        Ok(())
    }

    /// Accesses files of the project or the attempt with the rights of the building user, who owns them.
    fn with_rights(&self, work: impl FnOnce() -> Result<(), EnvError>) -> Result<(), EnvError> {
        act_as(self.settings.builder(), work).map_err(|error| system_error(self.root, &error))?
    }

    /// Runs one command to its end, and explains a failure.
    fn step(&self, name: &str, command: Step, site: &Site, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        let mut tail = Tail::default();
        let ended = self.runner.run(&self.surroundings(command, site), &mut |bytes| {
            tail.push(bytes);
            log(bytes);
        });
        match ended {
            Ok(Ended::Exited(0)) => Ok(()),
            Ok(ended) => Err(self.verdict(name, &ended, &tail).into()),
            Err(stopped) => Err(explain(stopped, self.root)),
        }
    }

    /// The variables of the agent, the settings and the job that do not mislead a build, and uv's variables for pip's
    /// settings. Also returns whether no index may be used.
    fn variables(&self) -> (Variables, bool) {
        let of_job = self.requirements.variables().iter().map(|(name, value)| (name.into(), value.into()));
        let mut all = self.settings.environment().chain(of_job).filter(|(name, _)| !is_withheld(name)).collect();
        let no_index = self.settings.files().hand_over(&mut all, self.requirements.chooses_index());
        (all, no_index)
    }

    /// Adds the variables of a build to `command`, and the paths of the cache's directories. Variables that `command`
    /// already has take precedence.
    fn surroundings(&self, command: Step, site: &Site) -> Step {
        let settings = self.settings;
        let own = [
            ("PATH", settings.search_path.clone()),
            ("TMPDIR", site.temporary.clone().into()),
            ("UV_CACHE_DIR", self.downloads.join("uv").into()),
            ("UV_PYTHON_DOWNLOADS", "never".into()),
            // The environment is built once and used often, maybe by users who cannot write here.
            ("UV_COMPILE_BYTECODE", "1".into()),
            ("UV_NO_PROGRESS", "1".into()),
            ("PYTHONUNBUFFERED", "1".into()),
        ];
        // Links into the downloads, which later builds can change, would make this environment changeable.
        let link_mode = settings.sandbox.as_ref().map(|_| ("UV_LINK_MODE", "copy".into()));
        let (mut env, _) = self.variables();
        env.extend(settings.identity().chain(own).chain(link_mode).map(|(name, value)| (name.into(), value)));
        env.extend(command.env.iter().cloned());
        let credentials = settings.credentials();
        let attempt = site.venv.parent().expect("it is in the attempt's directory");
        let sandbox = settings.sandbox_of_step(&command, &[attempt, &self.downloads]);
        Step { env: env.into_iter().collect(), cwd: site.work.clone(), credentials, sandbox, ..command }
    }

    fn verdict(&self, name: &str, ended: &Ended, tail: &Tail) -> BuildError {
        let output = tail.lines();
        if let Ended::OutOfMemory { limit_bytes } = ended {
            return BuildError::OutOfMemory { command: name.to_owned(), limit_bytes: *limit_bytes };
        }
        // Not all build back ends pass on the system's error.
        let told = output.contains("No space left on device") || output.contains("os error 28");
        if told || free_bytes(self.root) < FULL_BELOW_BYTES {
            return disk_full(self.root);
        }
        BuildError::Failed { command: name.to_owned(), status: ended.to_string(), cause: cause::of(&output), output }
    }
}

/// Replaces the path `copy` in the files with which an editable installation extends the module path. Links between the
/// installation and the downloads are not followed: each changed file is a new one.
fn link_modules(venv: &Path, copy: &Path) -> io::Result<()> {
    let copy = copy.to_string_lossy();
    // The build could have replaced a directory by a link to other files of the user, which a build in a sandbox must not
    // change.
    let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if !is_directory(venv) || !is_directory(&venv.join("lib")) {
        return Err(io::Error::other("the installation has replaced a directory of the environment"));
    }
    let libraries = fs::read_dir(venv.join("lib"))?.flatten().map(|entry| entry.path());
    let libraries = libraries.filter(|library| is_directory(library)).map(|library| library.join("site-packages"));
    for directory in libraries.filter(|directory| is_directory(directory)) {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let kind = path.extension().and_then(OsStr::to_str).unwrap_or_default();
            if !["pth", "py"].contains(&kind) {
                continue;
            }
            let Ok(bytes) = read_regular(&path, SOURCE_BYTES) else { continue };
            let Some(text) = String::from_utf8(bytes).ok().filter(|text| text.contains(&*copy)) else { continue };
            let linked = if kind == "pth" { linked_paths(&text, &copy) } else { linked_module(&text, &copy) };
            let new = path.with_extension("new");
            files::write_new(&new, linked.as_bytes())?;
            fs::rename(&new, &path)?;
        }
    }
    Ok(())
}

/// A `.pth` file whose lines below `copy` lead to the job's folder.
fn linked_paths(text: &str, copy: &str) -> String {
    let line = |line: &str| match line.trim().strip_prefix(copy) {
        Some(below) => format!(
            "import os, sys; '{PROJECT_VARIABLE}' in os.environ and sys.path.append(os.environ['{PROJECT_VARIABLE}'] + {below:?})\n"
        ),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// A module of an editable installation, with string literals below `copy` replaced by expressions.
fn linked_module(text: &str, copy: &str) -> String {
    text.replace(&format!("'{copy}"), &format!("__import__('os').environ.get('{PROJECT_VARIABLE}', '/') + '"))
}

/// The directories of one attempt.
struct Site {
    venv: PathBuf,
    /// Directory for a Python that uv installs.
    python: PathBuf,
    work: PathBuf,
    /// Directory for `TMPDIR`: uv leaves lock files in `TMPDIR`, and a large build may not fit into a small `/tmp`.
    temporary: PathBuf,
}

impl Site {
    fn interpreter(&self) -> PathBuf {
        self.venv.join("bin/python")
    }
}

#[cfg(test)]
mod tests {
    use super::{linked_module, linked_paths};

    #[test]
    fn editable_installations_lead_to_the_folder_of_the_job() {
        let linked = linked_paths("import other\n/cache/copy/src\n/elsewhere\n", "/cache/copy");
        let expected = "import other\nimport os, sys; 'HOSTLER_PROJECT' in os.environ and \
                        sys.path.append(os.environ['HOSTLER_PROJECT'] + \"/src\")\n/elsewhere\n";
        assert_eq!(linked, expected);
        let finder = "MAPPING: dict[str, str] = {'mypkg': '/cache/copy/mypkg'}\n";
        let expected =
            "MAPPING: dict[str, str] = {'mypkg': __import__('os').environ.get('HOSTLER_PROJECT', '/') + '/mypkg'}\n";
        assert_eq!(linked_module(finder, "/cache/copy"), expected);
    }
}
