//! Building one environment: which commands, in which surroundings, and what their failure means.
//!
//! Commands run in their own process group with no input, in a scratch folder that holds copies of what they need, so
//! a build writes nothing into the project whose new files are the job's results. Their output goes to the log as it
//! comes; the last lines are kept for the error.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getppid};

use super::cache::{Cache, Settings};
use super::detect::{Line, List, Plan, Requirements};
use super::tools::{Interpreter, Tools, Uv};
use super::{BuildError, EnvError, IoContext, files};
use crate::account::act_as;

/// How much output is kept for the error: pip's verdict is its last few lines.
const TAIL_BYTES: usize = 4096;
const TAIL_LINES: usize = 15;

/// With less than this free, a failed build has failed for want of space: any wheel's metadata takes more.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// How long a raised cancel flag goes unnoticed at most.
const CANCEL_LOOK_MS: u16 = 50;

/// Variables of the agent's surroundings that would lead a builder astray.
const MISLEADING: [&str; 12] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "UV_SYSTEM_PYTHON",
    "UV_PYTHON",
];

/// One build: what to install, with what, where, and until when.
pub(super) struct Build<'a> {
    pub(super) cache: &'a Cache,
    pub(super) requirements: &'a Requirements,
    pub(super) tools: &'a Tools,
    pub(super) cancel: &'a AtomicBool,
}

impl Build<'_> {
    /// What builds, in words.
    pub(super) fn tool(&self) -> String {
        let tool = self.tools.uv.as_ref().map_or("pip", |uv| uv.version.as_str());
        format!("{tool} for Python {}", self.tools.python.version)
    }

    /// Builds in the folder `attempt`, which does not exist yet, and returns the environment's path in it.
    pub(super) fn run(&self, attempt: &Path, log: &mut dyn FnMut(&[u8])) -> Result<PathBuf, EnvError> {
        let started = Instant::now();
        let site =
            Site { venv: attempt.join("venv"), work: attempt.join("work"), temporary: attempt.join("tmp"), started };
        for dir in [&site.work, &site.temporary] {
            fs::create_dir_all(dir).map_err(|error| system_error(&self.cache.root, &error))?;
        }
        self.hand_over(attempt)?;
        let _downloads = self.cache.use_downloads();
        match &self.tools.uv {
            Some(uv) => self.with_uv(uv, &site, log)?,
            None => self.with_pip(&site, log)?,
        }
        for dir in [&site.work, &site.temporary] {
            fs::remove_dir_all(dir).context("remove", dir)?;
        }
        log(format!("hostler: environment ready after {:.1} s\n", started.elapsed().as_secs_f64()).as_bytes());
        Ok(site.venv)
    }

    fn with_uv(&self, uv: &Uv, site: &Site, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        self.announce(log);
        let plan = self.requirements.plan();
        let mut install = Command::new(&uv.program);
        match plan {
            Plan::Lock { whole_tree } => {
                self.with_rights(|| self.copy_project(*whole_tree, &site.work))?;
                install.args(["sync", "--frozen", "--no-install-project", "--no-editable", "--python"]);
                install.arg(&self.tools.python.executable).env("UV_PROJECT_ENVIRONMENT", &site.venv);
            }
            Plan::List(list) => {
                install.args(["pip", "install", "--python"]).arg(site.python());
                self.with_rights(|| self.write_list(list, &site.work, &mut install))?;
            }
            Plan::Pyproject { whole_tree, .. } => {
                self.with_rights(|| self.copy_project(*whole_tree, &site.work))?;
                install.args(["pip", "install", "--python"]).arg(site.python()).args(["-r", "pyproject.toml"]);
            }
        }
        if !matches!(plan, Plan::Lock { .. }) {
            let mut venv = Command::new(&uv.program);
            venv.args(["venv", "--python"]).arg(&self.tools.python.executable).arg(&site.venv);
            self.step("uv venv", &mut venv, site, log)?;
        }
        let name = if matches!(plan, Plan::Lock { .. }) { "uv sync" } else { "uv pip install" };
        self.step(name, &mut install, site, log)
    }

    fn with_pip(&self, site: &Site, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        let (Plan::List(list) | Plan::Pyproject { list, .. }) = self.requirements.plan() else {
            return Err(EnvError::UvNeeded);
        };
        let python = &self.tools.python;
        require_venv(python, &self.cache.settings)?;
        self.announce(log);
        let mut install = Command::new(site.python());
        install.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]);
        self.with_rights(|| self.write_list(list, &site.work, &mut install))?;
        let mut venv = Command::new(&python.executable);
        venv.args(["-m", "venv"]).arg(&site.venv);
        self.step("python -m venv", &mut venv, site, log)?;
        self.step("pip install", &mut install, site, log)
    }

    fn announce(&self, log: &mut dyn FnMut(&[u8])) {
        log(format!("hostler: building the environment with {}\n", self.tool()).as_bytes());
    }

    /// Copies the files that uv reads, or with `whole_tree` everything that they may refer to.
    fn copy_project(&self, whole_tree: bool, work: &Path) -> Result<(), EnvError> {
        let from = self.requirements.project_dir();
        let failed = |error: io::Error| system_error(&self.cache.root, &error);
        if whole_tree {
            return files::copy_tree(from, work).map_err(failed);
        }
        for name in ["pyproject.toml", "uv.lock", "uv.toml"] {
            match fs::copy(from.join(name), work.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied.map_err(failed)?),
            }
        }
        Ok(())
    }

    /// Writes the requirements, with copies of local ones, and adds the options that name them to `install`.
    fn write_list(&self, list: &List, work: &Path, install: &mut Command) -> Result<(), EnvError> {
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
            fs::write(work.join(name), text).map_err(|error| system_error(&self.cache.root, &error))?;
            install.args([option, name]);
        }
        Ok(())
    }

    fn line(&self, line: &Line, work: &Path) -> Result<String, EnvError> {
        match line {
            Line::Text(text) => Ok(text.clone()),
            Line::Local { before, path, after } => {
                let dir = work.join(format!("local-{}", files::unique_name()));
                // A wheel must keep its name. A folder may not have one: the project itself has that of its job.
                let copy =
                    if path.is_file() { dir.join(path.file_name().unwrap_or_default()) } else { dir.join("source") };
                fs::create_dir(&dir).map_err(|error| system_error(&self.cache.root, &error))?;
                files::copy_tree(path, &copy).map_err(|error| system_error(&self.cache.root, &error))?;
                Ok(format!("{before}{}{after}", copy.display()))
            }
        }
    }

    /// Gives the attempt, still without content, to the user who builds, and with it the only place where the build may write.
    fn hand_over(&self, attempt: &Path) -> Result<(), EnvError> {
        if let Some(ids) = self.cache.settings.builder() {
            fs::set_permissions(attempt, Permissions::from_mode(0o700)).context("close", attempt)?;
            files::chown_tree(attempt, ids.uid, ids.gid).context("change the owner of", attempt)?;
        }
        Ok(())
    }

    /// Does what touches the project or the attempt with the builder's rights, whose they are.
    fn with_rights(&self, work: impl FnOnce() -> Result<(), EnvError>) -> Result<(), EnvError> {
        act_as(self.cache.settings.builder(), work).map_err(|error| system_error(&self.cache.root, &error))?
    }

    /// Runs one command to its end, and explains a bad one.
    fn step(&self, name: &str, command: &mut Command, site: &Site, log: &mut dyn FnMut(&[u8])) -> Result<(), EnvError> {
        let failed = |error: io::Error| system_error(&self.cache.root, &error);
        let (output, writer) = io::pipe().map_err(failed)?;
        self.surroundings(command, site);
        command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let child = command.spawn().map_err(failed)?;
        // The command keeps the writing ends open otherwise, and the output would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut tail = Tail::default();
        let status = self.follow(child, output, site, &mut |bytes| {
            tail.push(bytes);
            log(bytes);
        });
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.verdict(name, status, &tail).into()),
            Err(Stopped::Cancelled) => Err(EnvError::Cancelled),
            Err(Stopped::TimedOut(limit_secs)) => Err(BuildError::TimedOut { limit_secs, output: tail.lines() }.into()),
            Err(Stopped::System(error)) => Err(failed(error)),
        }
    }

    /// What a builder may see: the agent's variables without those that mislead, caches of our own, its own group.
    fn surroundings(&self, command: &mut Command, site: &Site) {
        let settings = &self.cache.settings;
        let own: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect();
        settings.become_builder(command);
        command.env_clear().envs(settings.environment().filter(|(name, _)| !is_withheld(name)));
        command.envs(settings.identity());
        command
            .env("PATH", &settings.search_path)
            .env("TMPDIR", &site.temporary)
            .env("UV_CACHE_DIR", self.cache.downloads().join("uv"))
            .env("PIP_CACHE_DIR", self.cache.downloads().join("pip"))
            .env("UV_PYTHON_DOWNLOADS", "never")
            // Built once and run often, perhaps by users who may not write here.
            .env("UV_COMPILE_BYTECODE", "1")
            .env("UV_NO_PROGRESS", "1")
            .env("PYTHONUNBUFFERED", "1");
        command.envs(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(&site.work).process_group(0);
        die_with_the_agent(command);
    }

    /// Passes output on until there is no more. Raised flags and passed limits kill the whole group.
    fn follow(
        &self,
        mut child: Child,
        mut output: PipeReader,
        site: &Site,
        pass_on: &mut dyn FnMut(&[u8]),
    ) -> Result<ExitStatus, Stopped> {
        let result = self.pump(&mut output, site, pass_on);
        if result.is_err() {
            let group = Pid::from_raw(child.id().cast_signed());
            // The child has not been waited for, so its id is still its own. Gone already is as good as killed.
            let _ = killpg(group, Signal::SIGKILL);
        }
        let status = child.wait().map_err(Stopped::System)?;
        result.map(|()| status)
    }

    fn pump(&self, output: &mut PipeReader, site: &Site, pass_on: &mut dyn FnMut(&[u8])) -> Result<(), Stopped> {
        let mut buffer = [0; 8192];
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Stopped::Cancelled);
            }
            if let Some(limit) = self.cache.settings.build_limit.filter(|limit| site.started.elapsed() > *limit) {
                return Err(Stopped::TimedOut(limit.as_secs()));
            }
            let mut ready = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(CANCEL_LOOK_MS)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(Stopped::System(errno.into())),
            }
            match output.read(&mut buffer).map_err(Stopped::System)? {
                0 => return Ok(()),
                count => pass_on(&buffer[..count]),
            }
        }
    }

    fn verdict(&self, name: &str, status: ExitStatus, tail: &Tail) -> BuildError {
        let output = tail.lines();
        // Not every tool passes the system's words on: `python -m venv` swallows those of its ensurepip.
        let told = output.contains("No space left on device") || output.contains("os error 28");
        if told || free_bytes(&self.cache.root) < FULL_BELOW_BYTES {
            return disk_full(&self.cache.root);
        }
        let status =
            status.code().map_or_else(|| format!("was killed ({status})"), |code| format!("exited with {code}"));
        BuildError::Failed { command: name.to_owned(), status, output }
    }
}

/// Whether a builder must not see a variable: installing a package can run its code, which has no business with ours.
fn is_withheld(name: &OsStr) -> bool {
    MISLEADING.iter().any(|misleading| name == *misleading) || name.as_encoded_bytes().starts_with(b"HOSTLER_")
}

/// The folders of one attempt.
struct Site {
    venv: PathBuf,
    work: PathBuf,
    /// For `TMPDIR`: uv leaves lock files there, and a large build would not fit a small `/tmp`.
    temporary: PathBuf,
    started: Instant,
}

impl Site {
    fn python(&self) -> PathBuf {
        self.venv.join("bin/python")
    }
}

/// Why a command did not come to its own end.
enum Stopped {
    Cancelled,
    TimedOut(u64),
    System(io::Error),
}

/// The end of a command's output.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        // Trimmed in steps, so that long output costs little.
        if self.0.len() > 4 * TAIL_BYTES {
            self.0.drain(..self.0.len() - TAIL_BYTES);
        }
    }

    fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// An error of the system while building, as one that waiting jobs can be told.
pub(super) fn system_error(root: &Path, error: &io::Error) -> EnvError {
    let error = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(root),
        _ => BuildError::System(error.to_string()),
    };
    error.into()
}

fn disk_full(root: &Path) -> BuildError {
    BuildError::DiskFull { path: root.to_owned(), free_bytes: free_bytes(root) }
}

/// What may still be written, in bytes; nothing when no file can be added. Unknown counts as plenty.
fn free_bytes(root: &Path) -> u64 {
    match nix::sys::statvfs::statvfs(root) {
        // Some filesystems have no fixed number of files, and say that they have none at all.
        Ok(stat) if stat.files() > 0 && stat.files_available() == 0 => 0,
        Ok(stat) => stat.blocks_available() * stat.fragment_size(),
        Err(_) => u64::MAX,
    }
}

/// Debian ships Python without the modules that make environments; its own message comes late and is long.
fn require_venv(python: &Interpreter, settings: &Settings) -> Result<(), EnvError> {
    let mut probe = Command::new(&python.executable);
    settings.become_builder(&mut probe);
    probe.args(["-I", "-c", "import venv, ensurepip"]).current_dir("/");
    let probe = probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let package = format!("python{}-venv", python.version);
    Err(BuildError::VenvMissing { python: python.executable.clone(), package }.into())
}

/// Has the kernel kill the command when the thread that started it ends, which waits for it unless the agent dies; and has it gain
/// no rights that it does not begin with.
fn die_with_the_agent(command: &mut Command) {
    let agent = nix::unistd::getpid();
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        nix::sys::prctl::set_no_new_privs()?;
        // The agent may have died before the line above.
        if getppid() == agent { Ok(()) } else { Err(io::Error::from(nix::errno::Errno::ECHILD)) }
    };
    // SAFETY: `prepare` makes three system calls and allocates nothing, which is allowed between fork and exec.
    unsafe { command.pre_exec(prepare) };
}
