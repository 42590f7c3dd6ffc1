//! Gets uv for a node that has none: with pip, which knows the node's index, proxies and certificates.
//!
//! The builds of all users run this uv. So the settings of the node choose where it comes from, not those of a job or its
//! user. pip runs within the limits of the job that needs uv. With an agent of root, pip runs as a user without rights,
//! and only the agent can write to the copy that it keeps.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_project::files::open_regular;
use hostler_snapshot::remove_tree;
use nix::unistd::geteuid;

use super::cause::{self, Tail};
use super::error::{BuildError, EnvError, IoContext, explain};
use super::files;
use super::runner::{Ended, Runner, Step, take_lock};
use super::settings::Settings;
use crate::account::{Account, Ids, UNPACKER};
use crate::rights::act_as;

/// Installs uv from a wheel into the directory of the first argument. A wheel is only unpacked, so none of its code runs. On
/// Debian, Python may lack pip, `ensurepip` or both.
const INSTALL: &str = "\
import importlib.util, subprocess, sys
python, target = sys.executable, sys.argv[1]
if not importlib.util.find_spec('pip'):
    if not importlib.util.find_spec('ensurepip'):
        sys.exit(f'{python} has neither pip nor ensurepip')
    subprocess.run([python, '-m', 'venv', f'{target}/venv'], check=True)
    python = f'{target}/venv/bin/python'
options = '--quiet --disable-pip-version-check --no-input --retries=1 --no-deps --only-binary=:all:'.split()
sys.exit(subprocess.run([python, '-m', 'pip', 'install', *options, '--target', target, 'uv']).returncode)
";

/// Maximum size of uv, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Makes pip install uv, and keeps the program as `kept`. Of several jobs, one does it while the others wait.
pub(super) fn get(
    kept: &Path,
    settings: &Settings,
    find_python: fn(&Settings) -> Result<PathBuf, EnvError>,
    runner: &dyn Runner,
    log: &mut dyn FnMut(&[u8]),
) -> Result<(), EnvError> {
    // Has the error of the last attempt, for jobs that waited for it.
    let file = kept.with_file_name("lock");
    let (_alone, waited) = take_lock(&file, b"hostler: waiting until another task has installed uv\n", runner, log)?;
    if kept.exists() {
        return Ok(());
    }
    match fs::read_to_string(&file).context("read", &file)? {
        why if waited && !why.is_empty() => return Err(EnvError::NoUv { why }),
        _ => fs::write(&file, "").context("write", &file)?,
    }
    let attempt = kept.with_file_name("attempt");
    // If the agent was killed.
    let _ = remove_tree(&attempt);
    let done = install(kept, &attempt, settings, find_python, runner, log);
    if let Err(EnvError::NoUv { why }) = &done {
        fs::write(&file, why).context("write", &file)?;
    }
    remove_tree(&attempt).context("remove", &attempt)?;
    done
}

fn install(
    kept: &Path,
    attempt: &Path,
    settings: &Settings,
    find_python: fn(&Settings) -> Result<PathBuf, EnvError>,
    runner: &dyn Runner,
    log: &mut dyn FnMut(&[u8]),
) -> Result<(), EnvError> {
    let ids = Ids { uid: UNPACKER, gid: UNPACKER, groups: Vec::new() };
    // If other users cannot reach the agent's directory, only the jobs of root are built there, as root.
    let is_reached =
        geteuid().is_root() && act_as(Some(&ids), || kept.parent().is_some_and(Path::exists)).unwrap_or(false);
    let account = || Account { name: "hostler-uv".into(), ids, home: attempt.into(), shell: "/bin/sh".into() };
    let run_as = is_reached.then(|| Arc::new(account()));
    let settings = Settings { run_as, sandbox: None, ..settings.clone() };
    fs::create_dir(attempt).context("create", attempt)?;
    fs::set_permissions(attempt, Permissions::from_mode(0o700)).context("close", attempt)?;
    if let Some(ids) = settings.builder() {
        files::give(attempt, &[], ids.uid, ids.gid).context("change the owner of", attempt)?;
    }
    let mut step = Step::new(find_python(&settings)?, ["-c", INSTALL]);
    step.args([attempt]).env("TMPDIR", attempt);
    log(b"hostler: installing uv with pip, once for this node\n");
    let mut tail = Tail::default();
    let ended = runner.run(&settings.as_builder(step), &mut |bytes| {
        tail.push(bytes);
        log(bytes);
    });
    match ended {
        Ok(Ended::Exited(0)) => {}
        Ok(Ended::OutOfMemory { limit_bytes }) => {
            return Err(BuildError::OutOfMemory { command: "pip install uv".into(), limit_bytes }.into());
        }
        Ok(ended) => return Err(EnvError::NoUv { why: format!("pip {ended}: {}", cause::of(&tail.lines())) }),
        Err(stopped) => return Err(explain(stopped, attempt)),
    }
    let installed = attempt.join("bin/uv");
    let open = act_as(settings.builder(), || open_regular(&installed)).and_then(|opened| opened);
    let new = kept.with_file_name("new");
    let _ = fs::remove_file(&new);
    files::copy_opened(open.context("open", &installed)?, &new, MOST_BYTES).context("write", &new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755)).context("open", &new)?;
    fs::rename(&new, kept).context("write", kept)
}
