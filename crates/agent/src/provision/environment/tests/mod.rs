//! Tests of environments with a real package index, a real uv, real locks, and killed processes.
//!
//! uv is taken from `HOSTLER_TEST_UV` or the `PATH`. If neither has it, pip installs it next to the test program, once
//! per build directory, so that no test is skipped.

mod caching;
mod entry;
mod users;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::atomic::Ordering;

use hostler_project::{ProjectError, Requirements};

use super::{Cache, Ended, EnvError, Lease, Runner, Settings, Step, Stopped};

const GIB: u64 = 1 << 30;

/// A project and a cache in a temporary directory.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().expect("tests may write temporary files") };
        fs::create_dir(place.project()).expect("the folder is new");
        fs::create_dir(place.path("bin")).expect("the folder is new");
        place
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self::new();
        place.write(files);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn project(&self) -> PathBuf {
        self.path("project")
    }

    fn root(&self) -> PathBuf {
        self.path("cache")
    }

    fn write(&self, files: &[(&str, &str)]) {
        for (name, content) in files {
            let file = self.project().join(name);
            fs::create_dir_all(file.parent().expect("a file in a folder")).expect("this test owns the project");
            fs::write(file, content).expect("this test owns the project");
        }
    }

    fn detect(&self) -> Requirements {
        detect(&self.project(), "main.py").expect("a sound project").expect("the project has requirements")
    }

    /// Settings with a wrapper of uv that logs its runs to the file `uv-runs` and, while the file `stall` exists, never
    /// installs.
    fn uv_settings(&self) -> Settings {
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> '{runs}'\n\
             if [ -e '{stall}' ] && [ \"$1 $2\" = 'pip install' ]; then echo $$ > '{stalled}.new'; mv '{stalled}.new' '{stalled}'; exec sleep 600; fi\n\
             exec '{uv}' \"$@\"\n",
            runs = self.path("uv-runs").display(),
            stall = self.path("stall").display(),
            stalled = self.path("stalled").display(),
            uv = real_uv().display(),
        );
        write_program(&self.path("bin/uv"), &script);
        self.settings()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::new(100 * GIB);
        settings.search_path = format!("{}:/usr/bin:/bin", self.path("bin").display()).into();
        settings.python = Some(real_python().to_owned());
        settings
    }

    fn uv_cache(&self) -> Cache {
        Cache::with_settings(&self.root(), self.uv_settings()).expect("a new cache opens")
    }

    /// Number of times that uv was started to install packages.
    fn uv_installs(&self) -> usize {
        let runs = fs::read_to_string(self.path("uv-runs")).unwrap_or_default();
        runs.lines().filter(|line| line.starts_with("pip install") || line.starts_with("sync")).count()
    }

    /// Number of directories in `envs/`.
    fn environments_on_disk(&self) -> usize {
        fs::read_dir(self.root().join("envs")).expect("the cache has been opened").count()
    }

    /// Starts this test program again as [`helper_process`].
    fn helper(&self, name: &str) -> Child {
        let (_, module) = module_path!().split_once("::").expect("the module path starts with the crate");
        Command::new(std::env::current_exe().expect("the test program has a path"))
            .args(["--exact", &format!("{module}::helper_process"), "--ignored", "--nocapture"])
            .env("ENVIRONMENT_TEST_DIR", self.dir.path())
            .env("ENVIRONMENT_TEST_RESULT", self.path(name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.path(&format!("{name}.err"))).expect("this test owns the path"))
            .spawn()
            .expect("the test program starts")
    }
}

/// Obtains an environment for the directory given by an environment variable, and writes the outcome to a file.
#[test]
#[ignore = "other tests start this function as a second process"]
fn helper_process() {
    let (Some(dir), Some(result)) =
        (std::env::var_os("ENVIRONMENT_TEST_DIR"), std::env::var_os("ENVIRONMENT_TEST_RESULT"))
    else {
        return;
    };
    let dir = PathBuf::from(dir);
    let mut settings = Settings::new(100 * GIB);
    settings.search_path = format!("{}:/usr/bin:/bin", dir.join("bin").display()).into();
    settings.python = Some(fs::canonicalize(dir.join("python")).expect("the test made the link"));
    let requirements =
        detect(&dir.join("project"), "main.py").expect("a sound project").expect("the project has requirements");
    let cache = Cache::with_settings(&dir.join("cache"), settings).expect("the cache opens");
    let started = Instant::now();
    let lease = obtain(&cache, &requirements).expect("the environment is ready or can be built");
    let micros = started.elapsed().as_micros();
    let children = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).expect("allowed");
    fs::write(result, format!("built={} children={} micros={micros}", lease.built, children.max_rss()))
        .expect("this test owns the path");
}

/// Runs commands in a separate process group: a test program has threads, so it cannot start shepherds.
#[derive(Default)]
struct Unconfined {
    cancel: AtomicBool,
    ends_at: Option<Instant>,
    /// Whether every command reports that it ran out of memory.
    out_of_memory: AtomicBool,
}

impl Runner for Unconfined {
    fn goes_on(&self) -> Result<(), Stopped> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        let is_over = self.ends_at.is_some_and(|end| Instant::now() >= end);
        if is_over { Err(Stopped::TimedOut { limit_secs: 2 }) } else { Ok(()) }
    }

    fn run(&self, step: &Step, output: &mut dyn FnMut(&[u8])) -> Result<Ended, Stopped> {
        if self.out_of_memory.load(Ordering::Relaxed) {
            return Ok(Ended::OutOfMemory { limit_bytes: 1 << 20 });
        }
        let (mut reader, writer) = std::io::pipe().map_err(Stopped::System)?;
        let mut command = Command::new(&step.argv[0]);
        command.args(&step.argv[1..]).env_clear().envs(step.env.iter().cloned()).current_dir(&step.cwd);
        command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(Stopped::System)?).stderr(writer);
        command.process_group(0);
        let die = || nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(Into::into);
        // SAFETY: a single system call, which is allowed between fork and exec. Like a shepherd, it ends the command with its parent.
        unsafe { command.pre_exec(die) };
        if let Some(user) = &step.credentials {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Ended::NotStarted(error.to_string())),
        };
        drop(command);
        let printed = std::thread::spawn(move || {
            let mut printed = Vec::new();
            reader.read_to_end(&mut printed).map(|_| printed)
        });
        let status = loop {
            if let Some(status) = child.try_wait().map_err(Stopped::System)? {
                break status;
            }
            if let Err(stopped) = self.goes_on() {
                let group = nix::unistd::Pid::from_raw(child.id().cast_signed());
                nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL)
                    .expect("the group leader is not reaped");
                child.wait().map_err(Stopped::System)?;
                return Err(stopped);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        output(&printed.join().expect("the thread does not panic").map_err(Stopped::System)?);
        Ok(status.code().map_or_else(|| Ended::Signaled(status.signal().unwrap_or(0)), Ended::Exited))
    }
}

/// Reads the requirements for a job that goes on.
fn detect(project: &Path, entrypoint: &str) -> Result<Option<Requirements>, ProjectError> {
    hostler_project::detect(project, entrypoint, &|| Ok(()))
}

fn obtain(cache: &Cache, requirements: &Requirements) -> Result<Lease, EnvError> {
    cache.obtain(requirements, &mut |_| {}, &Unconfined::default())
}

/// Like [`obtain`], and returns the log as text.
fn obtain_logged(cache: &Cache, requirements: &Requirements) -> (Result<Lease, EnvError>, String) {
    let mut log = Vec::new();
    let lease = cache.obtain(requirements, &mut |bytes| log.extend_from_slice(bytes), &Unconfined::default());
    (lease, String::from_utf8_lossy(&log).into_owned())
}

/// Path of `module` if the environment's interpreter can import it.
fn import(lease: &Lease, module: &str) -> Option<String> {
    let code = format!("import {module}; print({module}.__file__)");
    let output =
        Command::new(&lease.python).args(["-c", &code]).current_dir("/").output().expect("the interpreter starts");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn write_program(path: &Path, text: &str) {
    // Let another process write the file. A program that is open for writing cannot be started, and a concurrent fork
    // of a test could keep a file of this process open.
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh starts");
    writer.stdin.take().expect("stdin is piped").write_all(text.as_bytes()).expect("sh reads");
    assert!(writer.wait().expect("the process was started").success());
}

/// The real path of `python3`.
fn real_python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let code = "import os, sys; print(os.path.realpath(sys.executable))";
        let output = Command::new("python3").args(["-c", code]).output().expect("these tests need python3");
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

fn real_uv() -> &'static Path {
    static UV: OnceLock<PathBuf> = OnceLock::new();
    UV.get_or_init(|| {
        let works = |uv: &Path| Command::new(uv).arg("--version").output().is_ok_and(|output| output.status.success());
        if let Some(uv) = std::env::var_os("HOSTLER_TEST_UV").map(PathBuf::from) {
            assert!(works(&uv), "HOSTLER_TEST_UV names {}, which does not work", uv.display());
            return uv;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        super::tools::which("uv", &path).filter(|uv| works(uv)).unwrap_or_else(install_uv)
    })
}

/// Installs uv next to the test program, where `cargo clean` removes it. Other test processes may do the same
/// concurrently.
fn install_uv() -> PathBuf {
    let program = std::env::current_exe().expect("the test program has a path");
    let dir = program.parent().expect("a program lies in a folder").join("uv-for-tests");
    fs::create_dir_all(&dir).expect("the build folder is writable");
    let lock = File::create(dir.join("lock")).expect("the build folder is writable");
    lock.lock().expect("the build folder is local");
    let uv = dir.join("venv/bin/uv");
    if !uv.exists() {
        let run = |command: &mut Command| {
            let output = command.output().expect("python3 starts");
            assert!(output.status.success(), "installing uv: {}", String::from_utf8_lossy(&output.stderr));
        };
        run(Command::new(real_python()).args(["-m", "venv"]).arg(dir.join("venv")));
        run(Command::new(dir.join("venv/bin/python")).args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "uv",
        ]));
    }
    uv
}
