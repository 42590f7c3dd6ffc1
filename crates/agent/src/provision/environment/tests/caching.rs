//! Tests of builds, sharing, failures, crashes and eviction.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::{BuildError, Cache, EnvError, Settings};
use super::{GIB, Place, Unconfined, import, obtain, obtain_logged, real_python, real_uv, wait_until, write_program};

const SIX: &[(&str, &str)] = &[("requirements.txt", "six==1.17.0\n")];
const MISSING: &[(&str, &str)] = &[("requirements.txt", "no-such-package-xyz-123\n")];

#[test]
fn uv_builds_once_and_reuses_the_environment() {
    let place = Place::with(SIX);
    let cache = place.uv_cache();
    let (lease, log) = obtain_logged(&cache, &place.detect());
    let first = lease.expect("six can be installed");
    assert!(first.built && log.contains("building the environment with uv") && log.contains("six==1.17.0"), "{log}");
    let file = import(&first, "six").expect("six is installed");
    assert!(Path::new(&file).starts_with(&first.path), "{file}");
    warm(&place, &cache);
    assert_eq!(place.uv_installs(), 1);
}

/// Checks that a second `obtain` is fast. Uses the fastest of several attempts, because a busy machine may delay some
/// of them.
fn warm(place: &Place, cache: &Cache) {
    let requirements = place.detect();
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let started = Instant::now();
            let lease = obtain(cache, &requirements).expect("the environment is ready");
            assert!(!lease.built);
            started.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[0] < Duration::from_millis(1), "fastest warm obtain took {:?}", times[0]);
}

/// A new process without `PATH` obtains a ready environment without starting a child process.
#[test]
fn restarted_agent_starts_no_process_for_a_ready_environment() {
    let place = Place::with(SIX);
    symlink(real_python(), place.path("python")).expect("this test owns the path");
    symlink(real_uv(), place.path("bin/uv")).expect("this test owns the path");
    let cache = Cache::with_settings(&place.root(), place.settings()).expect("a new cache opens");
    assert!(obtain(&cache, &place.detect()).expect("six can be installed").built);
    let status = place.helper("warm").wait().expect("the process was started");
    let said = fs::read_to_string(place.path("warm")).unwrap_or_default();
    assert!(status.success() && said.starts_with("built=false children=0 "), "{said}");
}

#[test]
fn concurrent_jobs_build_once() {
    let place = Place::with(SIX);
    let cache = place.uv_cache();
    let requirements = place.detect();
    let together = Barrier::new(50);
    let results: Vec<(bool, String)> = thread::scope(|scope| {
        let job = || {
            together.wait();
            let (lease, log) = obtain_logged(&cache, &requirements);
            (lease.expect("six can be installed").built, log)
        };
        let jobs: Vec<_> = (0..50).map(|_| scope.spawn(job)).collect();
        jobs.into_iter().map(|job| job.join().expect("no job panics")).collect()
    });
    assert_eq!(results.iter().filter(|(built, _)| *built).count(), 1);
    assert_eq!(place.uv_installs(), 1);
    let waited =
        results.iter().filter(|(_, log)| log.contains("waiting until another task has built this environment"));
    assert!(waited.count() > 0, "the log of a waiting job shows the wait");
}

#[test]
fn two_processes_build_once() {
    let place = Place::with(SIX);
    symlink(real_python(), place.path("python")).expect("this test owns the path");
    place.uv_settings();
    let mut processes = [place.helper("a"), place.helper("b")];
    for process in &mut processes {
        assert!(process.wait().expect("the process was started").success());
    }
    let said = ["a", "b"].map(|name| fs::read_to_string(place.path(name)).expect("the process has finished"));
    assert_eq!(said.iter().filter(|said| said.contains("built=true")).count(), 1, "{said:?}");
    assert_eq!(place.uv_installs(), 1);
}

#[test]
fn key_depends_on_content_interpreter_tool_and_index() {
    let place = Place::with(SIX);
    let uv = place.uv_settings();
    let key = |settings: &Settings| {
        let cache = Cache::with_settings(&place.root(), settings.clone()).expect("the cache opens");
        cache.key(&place.detect(), &Unconfined::default()).expect("the tools work")
    };
    let base = key(&uv);
    assert_eq!(base, key(&uv));
    let other_uv = place.path("bin/other-uv");
    write_program(&other_uv, "#!/bin/sh\necho uv 99.0.0\n");
    assert_ne!(base, key(&Settings { uv: Some(other_uv), ..uv.clone() }));
    let indexed = Settings { variables: vec![("UV_INDEX_URL".into(), "https://example.org".into())], ..uv.clone() };
    assert_ne!(base, key(&indexed));
    let other_python = place.path("bin/other-python");
    write_program(&other_python, "#!/bin/sh\nprintf '/opt/python\\n3.99\\n/opt/python|3.99.0|cpython-399\\n'\n");
    assert_ne!(base, key(&Settings { python: Some(other_python), ..uv.clone() }));
    place.write(&[("requirements.txt", "six==1.16.0\n")]);
    assert_ne!(base, key(&uv));
}

#[test]
fn build_variables_and_settings_of_a_job_change_the_key() {
    let place = Place::with(&[("requirements.txt", "--extra-index-url https://${TOKEN}@example.org/simple\nsix\n")]);
    let cache = place.uv_cache();
    let key = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        cache.key(&place.detect().with_variables(&variables), &Unconfined::default()).expect("the tools work")
    };
    let base = key(&[]);
    for name in
        ["UV_INDEX_STRATEGY", "PIP_NO_BINARY", "SETUPTOOLS_SCM_PRETEND_VERSION", "CMAKE_ARGS", "CFLAGS", "TOKEN"]
    {
        assert_ne!(key(&[(name, "one")]), base, "{name}");
        assert_ne!(key(&[(name, "one")]), key(&[(name, "two")]), "{name}");
    }
    for name in ["SEED", "https_proxy", "PYTHONPATH", "UV_CACHE_DIR", "HOSTLER_ARRAY_INDEX"].iter().chain(&MOVING) {
        assert_eq!(key(&[(name, "one")]), base, "{name}");
    }
    place.write(&[("pyproject.toml", "[tool.uv]\nindex-strategy = 'unsafe-best-match'\n")]);
    let configured = key(&[]);
    assert_ne!(configured, base);
    place.write(&[("uv.toml", "index-strategy = 'first-index'\n")]);
    assert!(key(&[]) != configured && key(&[]) != base);
}

/// Variables that change where or whether something is installed.
const MOVING: [&str; 9] = [
    "PIP_target",
    "UV_PROJECT",
    "UV_WORKING_DIR",
    "UV_WORKING_DIRECTORY",
    "UV_PYTHON",
    "UV_PYTHON_INSTALL_DIR",
    "UV_MANAGED_PYTHON",
    "UV_NO_MANAGED_PYTHON",
    "UV_NO_EDITABLE",
];

#[test]
fn variables_of_a_job_do_not_move_the_installation() {
    let place = Place::with(&[("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = ['six']\n")]);
    let elsewhere = place.path("elsewhere");
    let cache = place.uv_cache();
    for name in MOVING {
        let is_switch = ["UV_MANAGED_PYTHON", "UV_NO_MANAGED_PYTHON", "UV_NO_EDITABLE"].contains(&name);
        let value = if is_switch { "1".to_owned() } else { elsewhere.display().to_string() };
        let requirements = place.detect().with_variables(&[(name.to_owned(), value)].into());
        let lease = obtain(&cache, &requirements).unwrap_or_else(|error| panic!("{name}: {error}"));
        let module = import(&lease, "six").unwrap_or_else(|| panic!("{name}: six is not installed"));
        assert!(module.starts_with(&lease.path.display().to_string()), "{name}: {module}");
    }
    assert!(!elsewhere.exists());
}

#[test]
fn package_with_a_version_from_git_is_installed() {
    let package = "[project]\nname = 'mine'\ndynamic = ['version']\n[tool.setuptools]\npy-modules = ['mine']\n[tool.setuptools_scm]\n\
                   [build-system]\nrequires = ['setuptools', 'setuptools-scm']\nbuild-backend = 'setuptools.build_meta'\n";
    let place = Place::with(&[("requirements.txt", "-e .\n"), ("pyproject.toml", package), ("mine.py", "")]);
    let version = |lease: &super::super::Lease| {
        let code = "import importlib.metadata as it; print(it.version('mine'))";
        let output = Command::new(&lease.python).args(["-c", code]).output().expect("the interpreter starts");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let cache = place.uv_cache();
    let error = obtain(&cache, &place.detect()).expect_err("there is no version");
    let hint = error.hint().expect("the error has a hint");
    assert!(hint.contains("!.git/") && hint.contains("SETUPTOOLS_SCM_PRETEND_VERSION"), "{error}: {hint}");
    let variables = [("SETUPTOOLS_SCM_PRETEND_VERSION".to_owned(), "1.5".to_owned())].into();
    let lease = obtain(&cache, &place.detect().with_variables(&variables)).expect("the version is given");
    assert_eq!(version(&lease), "1.5");
    let git = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x && git tag v2.5";
    let made = Command::new("sh").args(["-c", git]).current_dir(place.project()).status().expect("sh starts");
    assert!(made.success(), "this test needs git");
    let cache = place.uv_cache();
    let lease = obtain(&cache, &place.detect()).expect("the version comes from git");
    assert_eq!(version(&lease), "2.5");
}

#[test]
fn failed_build_states_its_cause_on_one_line_and_leaves_nothing() {
    let place = Place::with(MISSING);
    let words = "no-such-package-xyz-123 was not found";
    let error = obtain(&place.uv_cache(), &place.detect()).expect_err("the package does not exist");
    let EnvError::Build(BuildError::Failed { command, cause, output, .. }) = &error else { panic!("{error}") };
    assert_eq!(command, "uv pip install");
    assert!(cause.contains(words) && output.contains(words), "{cause}\n{output}");
    let message = error.to_string();
    assert!(message.contains(words) && !message.contains('\n') && message.len() < 500, "{message}");
    assert!(error.hint().is_some_and(|hint| hint.contains("logs --setup")));
    assert_eq!(place.environments_on_disk(), 0);
}

#[test]
fn failing_package_build_states_its_cause_on_one_line() {
    let place = Place::with(&[
        ("requirements.txt", "./mine\n"),
        ("mine/setup.py", "import sys\nsys.stderr.write('noise\\n' * 500)\nraise ValueError('no wheel today')\n"),
    ]);
    let cache = place.uv_cache();
    let (outcome, log) = obtain_logged(&cache, &place.detect());
    let message = outcome.expect_err("the package cannot be built").to_string();
    assert!(message.ends_with(": ValueError: no wheel today"), "{message}");
    assert!(!message.contains('\n') && log.contains("noise"), "{message}");
}

#[test]
fn waiting_jobs_share_a_failure_and_later_jobs_retry() {
    let place = Place::with(MISSING);
    let cache = place.uv_cache();
    let requirements = place.detect();
    fs::write(place.path("stall"), "").expect("this test owns the path");
    let waiting = AtomicUsize::new(0);
    let builders = thread::scope(|scope| {
        let job = || {
            let mut note = |bytes: &[u8]| {
                if bytes.starts_with(b"hostler: waiting") {
                    waiting.fetch_add(1, Ordering::Relaxed);
                }
            };
            cache
                .obtain(&requirements, &mut note, &Unconfined::default())
                .expect_err("the package does not exist")
                .to_string()
        };
        let jobs: Vec<_> = (0..10).map(|_| scope.spawn(job)).collect();
        wait_until("nine jobs wait for the tenth job's build", || {
            waiting.load(Ordering::Relaxed) == 9 && place.path("stalled").exists()
        });
        // This build fails because its stalled command is killed.
        let pid =
            fs::read_to_string(place.path("stalled")).expect("the file exists").trim().parse().expect("a process id");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .expect("the process runs");
        let errors: HashSet<String> = jobs.into_iter().map(|job| job.join().expect("no job panics")).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors.iter().all(|error| error.contains("was killed")), "{errors:?}");
        place.uv_installs()
    });
    assert_eq!(builders, 1);
    assert_eq!(place.environments_on_disk(), 0);
    fs::remove_file(place.path("stall")).expect("this test owns the path");
    let error = obtain(&cache, &requirements).expect_err("the package does not exist");
    assert!(error.to_string().contains("was not found"), "the build runs again: {error}");
}

#[test]
fn build_of_a_killed_agent_is_repeated() {
    let place = Place::with(SIX);
    symlink(real_python(), place.path("python")).expect("this test owns the path");
    fs::write(place.path("stall"), "").expect("this test owns the path");
    place.uv_settings();
    let mut agent = place.helper("killed");
    wait_until("the build is under way", || place.path("stalled").exists());
    assert_eq!(place.environments_on_disk(), 1);
    agent.kill().expect("the process runs");
    agent.wait().expect("the process was started");
    let builder = fs::read_to_string(place.path("stalled")).expect("the file exists");
    wait_until("the build process ended with its agent", || !is_running(builder.trim()));
    fs::remove_file(place.path("stall")).expect("this test owns the path");

    let half_built = fs::read_dir(place.root().join("envs"))
        .expect("the path exists")
        .next()
        .expect("one")
        .expect("readable")
        .path();
    fs::write(half_built.join("rubbish"), "").expect("this test owns the path");
    let cache = place.uv_cache();
    assert_eq!(place.environments_on_disk(), 0, "opening removes incomplete builds");
    let lease = obtain(&cache, &place.detect()).expect("six can be installed");
    assert!(lease.built && import(&lease, "six").is_some());
}

#[test]
fn cancelling_kills_the_build_and_a_waiting_job_builds() {
    let place = Place::with(SIX);
    let cache = place.uv_cache();
    let requirements = place.detect();
    fs::write(place.path("stall"), "").expect("this test owns the path");
    let cancelled = Unconfined::default();
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| cache.obtain(&requirements, &mut |_| {}, &cancelled).map(drop));
        wait_until("the build is under way", || place.path("stalled").exists());
        let mut note = |_: &[u8]| waits.store(true, Ordering::Relaxed);
        let (requirements, cache) = (&requirements, &cache);
        let next =
            scope.spawn(move || cache.obtain(requirements, &mut note, &Unconfined::default()).map(|lease| lease.built));
        wait_until("the second job waits", || waits.load(Ordering::Relaxed));
        fs::remove_file(place.path("stall")).expect("this test owns the path");
        cancelled.cancel.store(true, Ordering::Relaxed);
        let started = Instant::now();
        assert!(matches!(first.join().expect("the thread does not panic"), Err(EnvError::Cancelled)));
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(next.join().expect("the thread does not panic").expect("six can be installed"));
    });
    let builder = fs::read_to_string(place.path("stalled")).expect("the file exists");
    wait_until("the build process is gone", || !is_running(builder.trim()));
}

#[test]
fn build_beyond_the_time_limit_is_killed() {
    let place = Place::with(SIX);
    fs::write(place.path("stall"), "").expect("this test owns the path");
    let cache = place.uv_cache();
    let hasty = Unconfined { ends_at: Some(Instant::now() + Duration::from_secs(2)), ..Unconfined::default() };
    let error = cache.obtain(&place.detect(), &mut |_| {}, &hasty).expect_err("the build never ends by itself");
    assert!(matches!(error, EnvError::Build(BuildError::TimedOut { limit_secs: 2, .. })), "{error}");
}

#[test]
fn limits_of_the_building_job_fail_only_that_job() {
    let place = Place::with(SIX);
    let (cache, requirements) = (place.uv_cache(), place.detect());
    // Query the tools first, so that the build runs out of memory and not the query.
    cache.key(&requirements, &Unconfined::default()).expect("the tools work");
    let narrow = Unconfined::default();
    narrow.out_of_memory.store(true, Ordering::Relaxed);
    let error = cache.obtain(&requirements, &mut |_| {}, &narrow).expect_err("no memory");
    assert!(error.to_string().contains("exceeded the job's memory limit of 1M"), "{error}");
    assert!(obtain(&cache, &requirements).expect("six can be installed").built, "the failure is not stored");
}

#[test]
fn eviction_removes_the_oldest_unused_environment() {
    let place = Place::new();
    let settings = Settings { cap_bytes: 1, ..place.uv_settings() };
    let generous = place.uv_cache();
    let build = |version: &str| {
        place.write(&[("requirements.txt", &format!("six=={version}"))]);
        obtain(&generous, &place.detect()).expect("six can be installed")
    };
    // The lease ends here; from now on, only the pin keeps the environment.
    let pinned = {
        let lease = build("1.15.0");
        lease.pin("7.1").expect("a valid run id");
        lease.key.clone()
    };
    let oldest = build("1.16.0").key.clone();
    let newer = build("1.14.0").key.clone();
    let used = build("1.17.0");
    assert!(matches!(used.pin("../7"), Err(EnvError::RunId(_))));
    assert_eq!(generous.collect(&Unconfined::default()).removed, [], "the cache is below its limit");

    let cap = generous.collect(&Unconfined::default()).total_bytes - 1;
    let tight =
        Cache::with_settings(&place.root(), Settings { cap_bytes: cap, ..settings.clone() }).expect("the cache opens");
    let collected = tight.collect(&Unconfined::default());
    assert_eq!(collected.removed, [oldest], "one removal makes enough space");
    assert!(collected.total_bytes <= cap);

    let tiny = Cache::with_settings(&place.root(), settings).expect("the cache opens");
    assert_eq!(tiny.collect(&Unconfined::default()).removed, [newer]);
    let left: HashSet<_> = tiny.environments().into_iter().map(|env| env.key).collect();
    assert_eq!(left, HashSet::from([pinned.clone(), used.key.clone()]));
    assert!(import(&used, "six").is_some());

    let neighbour = Settings { node: "n2".into(), ..place.uv_settings() };
    let neighbour = Cache::with_settings(&place.root(), neighbour).expect("agents may share a cache");
    assert_eq!(neighbour.retain_pins(&HashSet::new()).expect("readable"), 0, "an agent knows only its own runs");
    neighbour.release("7.1").expect("a valid run id");
    assert_eq!(tiny.retain_pins(&HashSet::from(["7.1".to_owned()])).expect("readable"), 0);
    assert_eq!(tiny.collect(&Unconfined::default()).removed, []);
    tiny.release("7.1").expect("a valid run id");
    tiny.release("7.1").expect("releasing is safe to repeat");
    drop(used.pin("8"));
    assert_eq!(tiny.retain_pins(&HashSet::new()).expect("readable"), 1);
    assert_eq!(tiny.collect(&Unconfined::default()).removed, [pinned]);
    let last = used.key.clone();
    drop(used);
    assert_eq!(tiny.collect(&Unconfined::default()).removed, [last]);
    assert_eq!(place.environments_on_disk(), 0);
}

#[test]
fn downloads_count_and_are_deleted_above_the_limit() {
    let place = Place::with(SIX);
    let cache = place.uv_cache();
    drop(obtain(&cache, &place.detect()).expect("six can be installed"));
    let downloads = place.root().join("downloads/uv");
    assert!(fs::read_dir(&downloads).expect("the path exists").count() > 0, "uv stores downloads in the cache");
    let tight =
        Cache::with_settings(&place.root(), Settings { cap_bytes: 1, ..place.uv_settings() }).expect("the cache opens");
    assert!(tight.collect(&Unconfined::default()).downloads_reduced);
    assert_eq!(fs::read_dir(&downloads).expect("the path exists").count(), 0);
}

#[test]
fn includes_constraints_and_local_packages_are_installed() {
    let place = Place::with(&[
        ("requirements.txt", "-r env/base.txt\n-e ./mine\n"),
        ("env/base.txt", "-c limits.txt\nsix\n"),
        ("env/limits.txt", "six<1.17\n"),
        (
            "mine/pyproject.toml",
            "[project]\nname = 'mine'\nversion = '1'\n[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n",
        ),
        ("mine/mine/__init__.py", "import six\nassert six.__version__ == '1.16.0'\n"),
    ]);
    let cache = place.uv_cache();
    let lease = obtain(&cache, &place.detect()).expect("all requirements can be installed");
    let file = import(&lease, "mine").expect("the local package and the constrained package are installed");
    assert!(Path::new(&file).starts_with(&lease.path), "the package is copied, not linked to the project: {file}");
    let mut names: Vec<_> =
        fs::read_dir(place.project().join("mine")).expect("the path exists").flatten().map(|e| e.file_name()).collect();
    names.sort();
    assert_eq!(names, ["mine", "pyproject.toml"], "the build left nothing in the project");
}

#[test]
fn pyproject_dependencies_and_inline_metadata_are_installed() {
    let place = Place::with(&[("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = ['toolz']\n")]);
    let cache = place.uv_cache();
    let lease = obtain(&cache, &place.detect()).expect("toolz can be installed");
    assert!(import(&lease, "toolz").is_some());
    place.write(&[("main.py", "# /// script\n# dependencies = [\n#   'six',\n# ]\n# ///\nimport six\n")]);
    let lease = obtain(&cache, &place.detect()).expect("six can be installed");
    assert!(import(&lease, "six").is_some() && import(&lease, "toolz").is_none());
}

#[test]
fn members_of_a_workspace_without_a_lock_are_installed() {
    let build = "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n";
    let root = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['core']\n\
                [tool.uv.workspace]\nmembers = ['packages/*']\n[tool.uv.sources]\ncore = { workspace = true }\n";
    let member = format!("[project]\nname = 'core'\nversion = '1'\ndependencies = ['six']\n{build}");
    for root in [root.to_owned(), format!("{root}{build}")] {
        let place = Place::with(&[
            ("pyproject.toml", &root),
            ("src/p/__init__.py", ""),
            ("packages/core/pyproject.toml", &member),
            ("packages/core/src/core/__init__.py", "import six\n"),
        ]);
        let lease = obtain(&place.uv_cache(), &place.detect()).expect("the environment can be built");
        let file = import(&lease, "core").expect("the member is installed");
        assert!(Path::new(&file).starts_with(&lease.path), "the member is copied, not linked: {file}");
    }
}

#[test]
fn locked_project_is_installed() {
    let place = Place::with(&[(
        "pyproject.toml",
        "[project]\nname = 'p'\nversion = '1'\nrequires-python = '>=3.8'\ndependencies = ['six==1.16.0']\n",
    )]);
    let cache = place.uv_cache();
    let mut lock = Command::new(real_uv());
    lock.args(["lock", "--python"])
        .arg(real_python())
        .current_dir(place.project())
        .env("UV_CACHE_DIR", place.path("lock-cache"));
    let output = lock.output().expect("uv starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lease = obtain(&cache, &place.detect()).expect("the environment can be built");
    assert!(lease.built && import(&lease, "six").is_some());
    assert!(!obtain(&cache, &place.detect()).expect("the environment is ready").built);
    assert!(!place.project().join(".venv").exists());
}

#[test]
fn settings_of_pip_reach_uv() {
    let place = Place::with(SIX);
    let variables = [("PIP_INDEX_URL", "http://127.0.0.1:9/of-pip"), ("UV_HTTP_RETRIES", "0")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let settings = Settings { variables, ..place.uv_settings() };
    let cache = Cache::with_settings(&place.root(), settings).expect("the cache opens");
    let error = obtain(&cache, &place.detect()).expect_err("nothing listens there").to_string();
    assert!(error.contains("127.0.0.1:9/of-pip"), "{error}");
    place.write(&[("requirements.txt", "--index-url http://127.0.0.1:9/of-project\nsix\n")]);
    let error = obtain(&cache, &place.detect()).expect_err("nothing listens there").to_string();
    assert!(error.contains("127.0.0.1:9/of-project"), "{error}");
    place.write(SIX);
    let none = [("PIP_NO_INDEX".to_owned(), "1".to_owned())].into();
    let error = obtain(&place.uv_cache(), &place.detect().with_variables(&none)).expect_err("no index").to_string();
    assert!(error.contains("six was not found"), "{error}");
}

#[test]
fn node_without_a_usable_uv_is_reported() {
    let place = Place::with(SIX);
    // Python is there, and neither pip nor what makes an environment with pip.
    let python = place.path("bin/python3");
    let script =
        "#!/bin/sh\ncase \"$*\" in *-I*) exec /usr/bin/python3 \"$@\";; esac\necho python3 has neither >&2\nexit 1\n";
    write_program(&python, script);
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o711)).expect("this test owns the path");
    fs::create_dir(place.path("uv")).expect("this test owns the path");
    let settings = Settings { python: None, kept_uv: place.path("uv/uv"), ..place.settings() };
    let failure = |settings: Settings| {
        let cache = Cache::with_settings(&place.root(), settings).expect("the cache opens");
        obtain(&cache, &place.detect()).expect_err("there is no uv")
    };
    for _ in 0..2 {
        let error = failure(settings.clone());
        assert!(matches!(&error, EnvError::NoUv { why } if why.ends_with(": python3 has neither")), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("[environment] uv =")));
        assert!(!place.path("uv/attempt").exists());
    }
    let error = failure(Settings { uv: Some(place.path("bin/absent")), ..settings });
    assert!(matches!(error, EnvError::BrokenTool { .. }), "{error}");
}

#[test]
fn full_disk_is_reported() {
    let place = Place::with(SIX);
    // Prints the tool's error message, because a test cannot fill a disk.
    write_program(
        &place.path("bin/uv"),
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo uv 99.0.0\necho 'error: No space left on device (os error 28)'\nexit 2\n",
    );
    let cache =
        Cache::with_settings(&place.root(), Settings { cap_bytes: GIB, ..place.settings() }).expect("the cache opens");
    let error = obtain(&cache, &place.detect()).expect_err("the disk is full");
    let root = place.root().canonicalize().expect("the path exists");
    assert!(
        error.to_string().starts_with(&format!("no space left for environments in {} (", root.display())),
        "{error}"
    );
}

/// Whether the process exists and is not a zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn interpreter_has_a_version_that_the_project_accepts() {
    let place = Place::with(SIX);
    write_program(
        &place.path("bin/python3.29"),
        "#!/bin/sh\nprintf '/opt/python3.29\\n3.29\\n/opt/python3.29|3.29.4 (main)|cpython-329\\n'\n",
    );
    let settings = Settings { python: None, ..place.uv_settings() };
    let cache = Cache::with_settings(&place.root(), settings.clone()).expect("a new cache opens");
    let key = |versions: &str| {
        let project = format!("[project]\nname = 'x'\nversion = '1'\nrequires-python = '{versions}'\n");
        place.write(&[("pyproject.toml", &project)]);
        cache.key(&place.detect(), &Unconfined::default())
    };
    let usual = key(">=3.8,<3.29").expect("an interpreter has this version");
    assert_eq!(key(">=3.8").expect("the default interpreter is chosen"), usual);
    assert_ne!(key(">=3.29").expect("another interpreter is chosen"), usual);
    let error = key(">=3.29.5").expect_err("no interpreter has this version");
    let EnvError::PythonVersion { wanted, found, .. } = &error else { panic!("{error}") };
    assert!(wanted == ">=3.29.5" && found.contains(&"3.29.4".to_owned()) && found.len() > 1, "{error}");
    let has = |settings: &Settings, feature: &str| {
        super::super::python_features(settings).iter().any(|found| found.as_str() == feature)
    };
    assert!(has(&settings, "python3.29") && !has(&settings, "python-install"));
    assert!(error.hint().is_some_and(|hint| hint.contains("install_python = true")), "{error:?}");

    // If uv may install versions, it is used only for missing ones.
    let settings = Settings { install_python: true, ..settings };
    let cache = Cache::with_settings(&place.root(), settings.clone()).expect("the cache opens");
    let key = |versions: &str| {
        let project = format!("[project]\nname = 'x'\nversion = '1'\nrequires-python = '{versions}'\n");
        place.write(&[("pyproject.toml", &project)]);
        cache.key(&place.detect(), &Unconfined::default()).expect("uv is there")
    };
    assert_eq!(key(">=3.8,<3.29"), usual);
    assert_ne!(key(">=3.29.5"), key(">=3.29.6"));
    assert_eq!(key(">=3.29.5"), key(">=3.29.5"));
    assert!(has(&settings, "python-install"));
}
