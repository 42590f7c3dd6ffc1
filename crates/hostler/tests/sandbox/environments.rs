//! Projects with requirements in a sandbox: their environments are built in a sandbox too.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hostler_testkit::{SharedCluster, processes_with, wait_until};

use crate::{ADA, HOSTLER, ids, mounts_at};

/// A build back end without dependencies, whose `told()` runs when the package is built.
pub(crate) const BACK_END: &str = "\
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    text = 'told = %r' % (told(),)
    name = 'telling-1-py3-none-any.whl'
    with zipfile.ZipFile(os.path.join(directory, name), 'w') as wheel:
        wheel.writestr('telling.py', text)
        wheel.writestr('telling-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: telling\\nVersion: 1\\n')
        wheel.writestr('telling-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('telling-1.dist-info/RECORD', '')
    return name
";

/// The settings of a package with that back end.
pub(crate) const SETTINGS: &str = "[build-system]\nrequires = []\nbuild-backend = 'back'\nbackend-path = ['.']\n[project]\nname = 'telling'\nversion = '1'\n";

/// A project with a local dependency whose build runs `told`, a function in Python. Returns its folder.
fn project(cluster: &SharedCluster, name: &str, main: &str, told: &str) -> String {
    cluster.write(ADA, &format!("{name}/main.py"), main);
    cluster.write(ADA, &format!("{name}/requirements.txt"), "./dependency\n");
    cluster.write(ADA, &format!("{name}/dependency/pyproject.toml"), SETTINGS);
    cluster.write(ADA, &format!("{name}/dependency/back.py"), format!("{BACK_END}{told}"));
    cluster.home_of(ADA).join(name).to_string_lossy().into_owned()
}

/// Submits a project and waits for its job. Returns its id and whether it completed.
fn submit(cluster: &SharedCluster, options: &[&str], folder: &str) -> (String, bool) {
    let arguments = [&["submit", "-c", "1", "-m", "400M"], options, &[folder, "main.py"]].concat();
    let id = cluster.ok(ADA, &arguments);
    let done = cluster.run(ADA, &["wait", &id]).code == 0;
    (id, done)
}

/// What a job printed, after it has completed.
fn output(cluster: &SharedCluster, options: &[&str], folder: &str) -> String {
    let (id, done) = submit(cluster, options, folder);
    let setup = cluster.run(ADA, &["logs", "--setup", &id]).stderr;
    assert!(done, "{} {} {setup}", cluster.job(&id)["message"], cluster.ok(ADA, &["logs", &id]));
    cluster.ok(ADA, &["logs", &id])
}

/// The directory of a user's environments for jobs with or without a sandbox.
fn cache(cluster: &SharedCluster, kind: &str) -> PathBuf {
    cluster.path(&format!("agent/environments/{kind}/{}", ids(ADA).0))
}

/// All entries below a directory that are files, without following links.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => found.extend(files_below(&path)),
            Ok(metadata) if metadata.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

#[test]
fn environment_is_built_once_and_is_read_only_in_the_sandbox_of_the_job() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let main = "\
import os, socket, sys, telling
print(telling.told)
print(socket.gethostname(), sys.prefix == os.environ['VIRTUAL_ENV'])
for path in (telling.__file__, os.path.join(sys.prefix, 'new'), sys.executable):
    try:
        open(path, 'a')
        print('changed', path)
    except OSError as error:
        print(error.strerror)
open('result', 'w').write('result')
";
    let told = "def told():\n    return (os.path.exists('/home'), os.environ['HOME'], os.getuid())\n";
    let folder = project(&cluster, "project", main, told);
    let uid = ids(ADA).0;
    let read_only = "Read-only file system\n";
    let expected = format!("(False, '/tmp/home', {uid})\nsandbox True\n{read_only}{read_only}");
    for _ in 0..2 {
        let told = output(&cluster, &["--sandbox"], &folder);
        // In a virtual environment, `python` is a link to the system's interpreter, which the user cannot change.
        assert!(told.starts_with(&expected) && !told.contains("changed"), "{told}");
    }
    let setup = |id: &str| cluster.run(ADA, &["logs", "--setup", id]).stderr;
    let (first, second) = (setup("1"), setup("2"));
    let key = |text: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("hostler: environment "));
        lines
            .next_back()
            .and_then(|line| line.split(' ').next())
            .map(str::to_owned)
            .expect("the log names the environment")
    };
    assert!(first.contains(" built") && second.contains(" found in the cache"), "{first} {second}");
    cluster.ok(ADA, &["fetch", "1", "--to", "results"]);
    assert!(cluster.home_of(ADA).join("results/1/result").exists());

    // A job without a sandbox has another environment, from another cache.
    let outside = output(&cluster, &[], &folder);
    assert!(!outside.starts_with("(False"), "{outside}");
    let third = setup("3");
    assert!(third.contains(" built") && key(&third) != key(&first), "{third}");
    assert!(cache(&cluster, "users").join("envs").join(key(&third)).join("ready").exists());
    let environment = cache(&cluster, "sandboxed").join("envs").join(key(&first));
    assert!(environment.join("ready").exists());
    // A build that can write to the downloads must not reach a finished environment through them.
    let linked: Vec<PathBuf> = files_below(&environment)
        .into_iter()
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.nlink() > 1))
        .collect();
    assert_eq!(linked, Vec::<PathBuf>::new());
}

/// Attempts of a package, with those that succeed as the result. `FACTS` is a dictionary.
const ATTEMPTS: &str = "
def told():
    import glob, os, signal, socket
    facts = FACTS
    reached = []
    def attempt(name, act):
        try:
            if act() is not False:
                reached.append(name)
        except Exception:
            pass
    def connect(family, address):
        s = socket.socket(family)
        s.settimeout(5)
        s.connect(address)
    attempt('read_home', lambda: open(facts['secret']).read())
    attempt('list_home', lambda: os.listdir(facts['home']))
    attempt('write_home', lambda: open(facts['home'] + '/planted', 'w'))
    attempt('read_project', lambda: open(facts['folder'] + '/main.py').read())
    attempt('write_project', lambda: open(facts['folder'] + '/planted.py', 'w'))
    attempt('write_beside', lambda: open(facts['shared'] + '/planted', 'w'))
    attempt('read_tmp', lambda: open(facts['in_tmp']).read())
    attempt('change_environment', lambda: bool(glob.glob(facts['caches'] + '/users/*/envs/*/*/venv/lib/*/site-packages/telling.py'))
        and [open(path, 'a').write('changed = 1') for path in
             glob.glob(facts['caches'] + '/users/*/envs/*/*/venv/lib/*/site-packages/telling.py')])
    attempt('change_known_environment', lambda: open(facts['module'], 'a').write('changed = 1'))
    attempt('change_downloads', lambda: open(facts['caches'] + '/users/%d/downloads/planted' % os.getuid(), 'w'))
    attempt('change_sandboxed_environment', lambda: open(facts['sandboxed_module'], 'a').write('changed = 1'))
    attempt('see_processes', lambda: os.stat('/proc/%d' % facts['sleeper']))
    attempt('signal', lambda: os.kill(facts['sleeper'], 0))
    attempt('connect_to_head', lambda: connect(socket.AF_UNIX, facts['head']))
    attempt('connect_to_abstract_socket', lambda: connect(socket.AF_UNIX, '\\0' + facts['abstract']))
    attempt('mount', lambda: os.unshare(0x10000000) if hasattr(os, 'unshare') else False)
    attempt('network', lambda: connect(socket.AF_INET, ('127.0.0.1', facts['port'])))
    attempt('own_environment', lambda: open(os.path.join(os.environ['TMPDIR'], 'file'), 'w'))
    return reached
";

#[test]
fn package_of_a_sandboxed_job_reaches_nothing_but_its_environment() {
    use std::os::unix::process::CommandExt;
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (uid, gid) = ids(ADA);
    let unique = format!("hostler-build-{}", std::process::id());
    let secret = cluster.write(ADA, "secret", "text");
    let shared = cluster.path("shared");
    fs::create_dir(&shared).expect("ours");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("ours");
    let in_tmp = format!("/tmp/{unique}");
    fs::write(&in_tmp, "text").expect("writable");
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&unique).expect("a short name"))
        .expect("the name is free");
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut sleeper = Command::new("sleep").arg("300").uid(uid).gid(gid).spawn().expect("sleep exists");

    // The environments that the package tries to change: of jobs with and without a sandbox.
    let plain =
        project(&cluster, "plain", "import telling\nprint(telling.__file__)\n", "def told():\n    return 'plain'\n");
    let (module, sandboxed_module) = (output(&cluster, &[], &plain), output(&cluster, &["--sandbox"], &plain));
    assert_ne!(module, sandboxed_module);
    let facts = serde_json::json!({
        "secret": secret,
        "home": cluster.home_of(ADA),
        "folder": cluster.home_of(ADA).join("attack"),
        "shared": shared,
        "in_tmp": in_tmp,
        "caches": cluster.path("agent/environments"),
        "module": module,
        "sandboxed_module": sandboxed_module,
        "sleeper": sleeper.id(),
        "head": cluster.path("head.sock"),
        "abstract": unique,
        "port": server.local_addr().expect("bound").port(),
    });
    let main = "import telling\nprint(' '.join(telling.told))\n";
    let attack = project(&cluster, "attack", main, &ATTEMPTS.replace("FACTS", &facts.to_string()));
    let before = [&module, &sandboxed_module].map(|path| fs::read_to_string(path).expect("readable"));
    let inside = output(&cluster, &["--sandbox"], &attack);
    let after = [&module, &sandboxed_module].map(|path| fs::read_to_string(path).expect("readable"));
    assert_eq!(before, after);
    for planted in ["planted", "attack/planted.py"] {
        assert!(!cluster.home_of(ADA).join(planted).exists(), "{planted}");
    }
    assert!(!shared.join("planted").exists());

    // The kernel may be too old to refuse abstract sockets; all packages need the network and their environment.
    let is_known_limit = |name: &&str| *name == "connect_to_abstract_socket" && !refuses_abstract_sockets();
    let reached: Vec<&str> = inside.split(' ').filter(|name| !is_known_limit(name)).collect();
    assert_eq!(reached, ["network", "own_environment"], "{inside}");
    // Without a sandbox, the same package reaches what its user may reach, so the attempts prove something.
    let outside = output(&cluster, &[], &attack);
    sleeper.kill().expect("ours");
    sleeper.wait().expect("ours");
    fs::remove_file(&in_tmp).expect("ours");
    for name in [
        "read_home",
        "list_home",
        "write_home",
        "write_project",
        "write_beside",
        "read_tmp",
        "change_known_environment",
        "change_downloads",
        "change_sandboxed_environment",
        "see_processes",
        "signal",
        "connect_to_head",
        "connect_to_abstract_socket",
        "network",
        "own_environment",
    ] {
        assert!(
            outside.split(' ').any(|reached| reached == name),
            "`{name}` proves nothing: it fails outside too: {outside}"
        );
    }
}

/// Whether the kernel can keep processes from abstract sockets: Linux 6.12 or newer, with Landlock.
/// A function that opens everything that the build may write to, for all users, and returns what it has opened. It also
/// replaces a directory of the downloads by a link.
const OPEN_ALL: &str = "
import pathlib, sys
def told():
    opened = []
    for place in (os.environ['UV_CACHE_DIR'], sys.prefix, os.getcwd()):
        for path in (pathlib.Path(place), *pathlib.Path(place).parents):
            try:
                path.chmod(0o777)
                opened.append(str(path))
            except OSError:
                pass
    unused = pathlib.Path(os.environ['UV_CACHE_DIR']).with_name('python')
    unused.rmdir()
    unused.symlink_to('/nowhere')
    return opened
";

#[test]
fn other_users_do_not_reach_what_a_package_opens_for_them() {
    use std::os::unix::process::CommandExt;
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let main = "import telling\nprint(telling.__file__, *telling.told, sep='\\n')\n";
    let folder = project(&cluster, "opening", main, OPEN_ALL);
    let told = output(&cluster, &["--sandbox"], &folder);
    let opened: Vec<&Path> = told.lines().skip(1).map(Path::new).filter(|path| path.exists()).collect();
    let caches = cache(&cluster, "sandboxed");
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o777 == 0o777);
    assert!(
        is_open(&caches.join("downloads")) && opened.iter().any(|path| path.starts_with(caches.join("envs"))),
        "{told}"
    );
    // Another user, of the same group.
    let (uid, gid) = ids(ADA);
    let reaches = |uid, path: &Path| {
        let mut stat = Command::new("stat");
        stat.arg(path).uid(uid).gid(gid).output().expect("it starts").status.success()
    };
    let module = Path::new(told.lines().next().expect("a module"));
    for path in opened.iter().copied().filter(|path| path.starts_with(&caches)).chain([module]) {
        assert!(reaches(uid, path) && !reaches(64_001, path), "{}", path.display());
    }

    // The next build has its downloads again.
    let unused = caches.join("downloads/python");
    assert!(unused.is_symlink(), "{told}");
    let next = project(&cluster, "next", "import telling\n", "def told():\n    return 'next'\n");
    output(&cluster, &["--sandbox"], &next);
    assert!(!unused.is_symlink() && unused.is_dir());
}

fn refuses_abstract_sockets() -> bool {
    // SAFETY: asks for the version only.
    let version = unsafe { nix::libc::syscall(nix::libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    version >= 6
}

#[test]
fn programs_that_the_job_names_run_in_the_sandbox_only() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let home = cluster.home_of(ADA);
    let program = cluster.write(
        ADA,
        "bin/python3",
        format!("#!/bin/sh\ntouch {}/ran\nexec /usr/bin/python3 \"$@\"\n", home.display()),
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    cluster.write(ADA, "folder/main.py", "print('done')\n");
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = Command::new("/usr/bin/python3").args(["-c", version]).output().expect("Debian has it").stdout;
    cluster.write(ADA, "folder/.python-version", version);
    let folder = home.join("folder").to_string_lossy().into_owned();
    let path = format!("PATH={}/bin:/usr/bin:/bin", home.display());
    assert_eq!(output(&cluster, &["--sandbox", "--env", &path], &folder), "done");
    assert!(!home.join("ran").exists(), "the program ran outside of the sandbox");
    submit(&cluster, &["--env", &path], &folder);
    assert!(home.join("ran").exists(), "the test proves nothing");
}

/// Serves a directory over HTTP, on a free port that it prints.
const SERVER: &str = "\
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
";

/// Makes a wheel of a package that is a module with a name.
const WHEEL: &str = "\
import os, sys, zipfile
directory, name = sys.argv[1:]
os.makedirs(directory, exist_ok=True)
with zipfile.ZipFile(f'{directory}/{name}-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr(f'{name}.py', 'told = 1')
    wheel.writestr(f'{name}-1.dist-info/METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n')
    wheel.writestr(f'{name}-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(f'{name}-1.dist-info/RECORD', '')
";

#[test]
fn settings_of_the_node_for_package_indexes_work_in_a_sandbox() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let wheel = |directory: &Path, name: &str| {
        let made =
            Command::new("python3").args(["-c", WHEEL]).arg(directory).arg(name).status().expect("python3 starts");
        assert!(made.success());
    };
    let (index, local) = (cluster.path("index"), cluster.path("wheels"));
    wheel(&index.join("served"), "served");
    wheel(&local, "filed");
    for directory in [&index, &index.join("served"), &local] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let mut server = Command::new("python3").args(["-c", SERVER]).arg(&index).stdout(Stdio::piped()).spawn();
    let server = server.as_mut().expect("python3 starts");
    let mut port = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut port).expect("it says its port");
    let address = format!("http://127.0.0.1:{}", port.trim());
    // uv gets pip's settings.
    cluster.set_agent_variable("PIP_INDEX_URL", &address);
    cluster.set_agent_variable("PIP_FIND_LINKS", &local.to_string_lossy());
    cluster.kill_agent();
    cluster.start_agent();
    cluster.write(ADA, "folder/main.py", "import served, filed\nprint(served.told + filed.told)\n");
    cluster.write(ADA, "folder/requirements.txt", "served\nfiled\n");
    let folder = cluster.home_of(ADA).join("folder").to_string_lossy().into_owned();
    let told = output(&cluster, &["--sandbox"], &folder);
    server.kill().expect("ours");
    server.wait().expect("ours");
    assert_eq!(told, "2");
}

#[test]
fn build_in_a_sandbox_ends_with_its_agent_and_leaves_nothing() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let marker = format!("hostler-sandbox-build-{}", std::process::id());
    // Only the downloads are there inside and outside.
    let told = format!(
        "def told():\n    import subprocess, time\n    gate = os.path.dirname(os.environ['UV_CACHE_DIR'])\n    \
         nothing = subprocess.DEVNULL\n    \
         loop = ['setsid', 'sh', '-c', 'while :; do sleep 0.1; done # {marker}']\n    \
         subprocess.Popen(loop, stdin=nothing, stdout=nothing, stderr=nothing)\n    \
         open(gate + '/started', 'w')\n    \
         while not os.path.exists(gate + '/go'):\n        time.sleep(0.02)\n    return 1\n"
    );
    let folder = project(&cluster, "project", "import telling\nprint(telling.told)\n", &told);
    let id = cluster.ok(ADA, &["submit", "--sandbox", "-c", "1", "-m", "400M", &folder, "main.py"]);
    let cache = cache(&cluster, "sandboxed");
    let downloads = cache.join("downloads");
    wait_until("the build to start", 60, || downloads.join("started").exists().then_some(()));
    assert!(!processes_with(&marker).is_empty());
    assert_eq!(mounts_at(&cache), [""; 0], "mounts of the sandbox are not visible outside");
    cluster.kill_agent();
    wait_until("the build to end", 30, || processes_with(&marker).is_empty().then_some(()));
    assert_eq!(mounts_at(&cache), [""; 0]);
    fs::write(downloads.join("go"), "").expect("root may");
    cluster.start_agent();
    // The job may have ended with the agent, or it builds again.
    let _ = cluster.run(ADA, &["wait", &id]);
    wait_until("the incomplete build to be removed", 30, || {
        let keys = fs::read_dir(cache.join("envs")).into_iter().flatten().flatten();
        keys.map(|key| key.path()).all(|key| key.join("ready").exists()).then_some(())
    });
    assert_eq!(output(&cluster, &["--sandbox"], &folder), "1");
    assert!(processes_with(&marker).is_empty());
}
