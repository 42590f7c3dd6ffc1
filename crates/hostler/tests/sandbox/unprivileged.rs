//! Sandboxes of an ordinary user, whose agent is not root: the same, with a user namespace.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hostler_testkit::{Outcome, processes_with, wait_until};
use serde_json::json;
use tempfile::TempDir;

use crate::environments::{BACK_END, SETTINGS};
use crate::escapes::{ATTEMPTS, OF_THE_NETWORK, keeps_abstract_sockets_out, reached};
use crate::images::write_images;
use crate::registry::Registry;
use crate::{ADA, HOSTLER, ids};

/// A cluster of one node that an ordinary user has started for herself.
struct OwnCluster {
    home: TempDir,
    /// Programs before `hostler`, with their arguments.
    through: Vec<String>,
}

impl OwnCluster {
    fn up(through: &[&str]) -> Self {
        let home = tempfile::Builder::new().prefix("hostler-test-").tempdir().expect("a temporary directory");
        let (uid, gid) = ids(ADA);
        chown(home.path(), Some(uid), Some(gid)).expect("root may");
        fs::copy(HOSTLER, home.path().join("hostler")).expect("the disk has space");
        let cluster = Self { home, through: through.iter().map(ToString::to_string).collect() };
        let up = cluster.hostler(&["up", "--nodes", "1", "--cpus", "2", "--memory", "512M"]);
        assert_eq!(up.code, 0, "{up:?}");
        cluster
    }

    /// A command of the user in her home directory.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let (uid, gid) = ids(ADA);
        let mut command = Command::new(program);
        command.args(arguments).uid(uid).gid(gid).env_clear().current_dir(self.home.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.home.path()).env("SECRET", "of the agent");
        command
    }

    fn hostler(&self, arguments: &[&str]) -> Outcome {
        let program = self.home.path().join("hostler").display().to_string();
        let all: Vec<&str> =
            self.through.iter().map(String::as_str).chain([&*program]).chain(arguments.iter().copied()).collect();
        Outcome::of(&self.command(all[0], &all[1..]).output().expect("starts"))
    }

    /// Makes a folder of the user.
    fn folder(&self, name: &str) -> PathBuf {
        let (uid, gid) = ids(ADA);
        let folder = self.home.path().join(name);
        fs::create_dir(&folder).expect("writable");
        chown(&folder, Some(uid), Some(gid)).expect("root may");
        folder
    }

    /// Runs `hostler` in a folder.
    fn hostler_in(&self, folder: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.command("../hostler", arguments);
        Outcome::of(&command.current_dir(self.home.path().join(folder)).output().expect("starts"))
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        self.hostler(&["down", "--cancel"]);
    }
}

#[test]
fn jobs_ranks_and_remote_commands_of_an_ordinary_user_run_in_sandboxes() {
    let cluster = OwnCluster::up(&[]);
    let (uid, gid) = ids(ADA);
    let folder = cluster.folder("folder");
    let script = "id -u; id -g; id -un; id -G; pwd; echo $HOME; hostname; touch made; ls -A /home /root /opt 2>/dev/null; \
                  grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; echo x > /dev/null && head -c 1 /dev/zero | wc -c; exit 7";
    let told = cluster.hostler_in("folder", &["run", "--sandbox", "-m", "100M", "--", "sh", "-c", script]);
    let none = "0000000000000000";
    let expected = format!(
        "{uid}\n{gid}\n{ADA}\n{gid}\n{}\n/tmp/home\nsandbox\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\n1\n",
        folder.display()
    );
    assert_eq!((told.stdout.as_str(), told.code), (expected.as_str(), 7), "{}", told.stderr);
    assert_eq!(fs::metadata(folder.join("made")).expect("the folder is the user's").uid(), uid);

    let ranks = cluster
        .hostler_in("folder", &["run", "--sandbox", "-m", "100M", "-n", "2", "--", "sh", "-c", "echo $HOSTLER_RANK"]);
    let mut numbers: Vec<&str> = ranks.stdout.lines().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["0", "1"], "{ranks:?}");
    let called =
        cluster.hostler_in("folder", &["exec", "--sandbox", "--", "sh", "-c", "ls /proc | grep -c '^[0-9]'; exit 5"]);
    assert_eq!(called.code, 5, "{called:?}");
    assert!(called.stdout.trim().parse::<u32>().is_ok_and(|processes| processes < 9), "{called:?}");

    let program = cluster.home.path().join("hostler").display().to_string();
    // All her files, and those of the agent, stay outside.
    let state = ".local/state/hostler/nodes/n1";
    cluster.folder(".ssh");
    for (place, why) in [
        (".", "programs outside of the sandbox trust the files of"),
        (".local", "programs outside of the sandbox trust the files of"),
        (state, "programs outside of the sandbox trust the files of"),
        (&format!("{state}/chunks"), "where an agent keeps its state"),
        (".ssh", "it is in the hidden directory .ssh"),
        (".local/state/hostler/head", "it is in the hidden directory .local"),
    ] {
        for command in [["run", "--sandbox", "--", "true"], ["exec", "--sandbox", "--", "true"]] {
            let outcome = Outcome::of(
                &cluster
                    .command(&program, &command)
                    .current_dir(cluster.home.path().join(place))
                    .output()
                    .expect("starts"),
            );
            let told = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(outcome.code == 126 && told.contains(why), "{place}: {outcome:?}");
        }
    }

    // A folder that the node lacks.
    let gone = cluster.folder("gone");
    assert_eq!(cluster.hostler_in("gone", &["run", "--sandbox", "--hold", "--detach", "--", "true"]).code, 0);
    fs::remove_dir(gone).expect("the folder is empty");
    assert_eq!(cluster.hostler(&["release", "last"]).code, 0);
    assert_ne!(cluster.hostler(&["wait", "last"]).code, 0);
    let job = cluster.hostler(&["job", "last"]).stdout;
    assert!(job.contains("No such file or directory on this node; create it there, or send a folder"), "{job}");

    // A process that the job leaves behind ends with it.
    let number = format!("7{}", std::process::id());
    let script = format!("setsid sleep {number} & echo started");
    let left = cluster.hostler_in("folder", &["run", "--sandbox", "-m", "100M", "--", "sh", "-c", &script]);
    assert_eq!(left.code, 0, "{left:?}");
    let sleeper = format!("sleep\0{number}\0");
    wait_until("the process has ended", 10, || processes_with(&sleeper).is_empty().then_some(()));
}

#[test]
fn ports_in_sandboxes_of_an_ordinary_user_are_reached_both_ways() {
    let cluster = OwnCluster::up(&[]);
    cluster.folder("folder");
    // It serves one client with what it has got from this machine, over a port and over a Unix socket.
    let script = "import socket, time\ndef got(*address):\n    while True:\n        try:\n            s = socket.socket(address[0])\n            \
                  s.connect(address[1])\n            return s.recv(9)\n        except OSError:\n            time.sleep(0.05)\n\
                  open('started', 'w')\nport = got(socket.AF_INET, ('127.0.0.1', 8001))\n\
                  path = got(socket.AF_UNIX, 'job.sock')\nserver = socket.create_server(('127.0.0.1', 8002))\n\
                  client = server.accept()[0]\nclient.sendall(port + path)\nclient.recv(1)";
    let run = ["run", "--detach", "--sandbox", "-m", "100M", "--", "python3", "-c", script];
    let id = cluster.hostler_in("folder", &run).stdout.trim().to_owned();
    wait_until("the job to run", 60, || cluster.home.path().join("folder/started").exists().then_some(()));
    let program = cluster.home.path().join("hostler").display().to_string();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = server.local_addr().expect("bound").port();
    let mut reverse = Vec::new();
    for (from, text) in [("8001", "of port"), ("./job.sock", "+socket")] {
        let forward = cluster.command(&program, &["forward", &id, "--reverse", &format!("{from}:{port}")]).spawn();
        reverse.push(forward.expect("starts"));
        server.accept().expect("the job connects").0.write_all(text.as_bytes()).expect("it reads");
    }
    let answer = wait_until("the job to serve", 60, || {
        let mut forward = cluster.command(&program, &["forward", &id, "8002", "--stdio"]);
        let mut forward = forward.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let mut answer = [0; 14];
        let read = forward.stdout.as_mut().expect("a pipe").read_exact(&mut answer);
        // Only now does the job end.
        drop(forward.stdin.take());
        forward.wait().expect("ours");
        read.ok().map(|()| answer)
    });
    assert_eq!(&answer, b"of port+socket");
    assert_eq!(cluster.hostler(&["wait", &id]).code, 0);
    for mut forward in reverse {
        assert_eq!(forward.wait().expect("ours").code(), Some(0));
    }
}

#[test]
fn project_of_an_ordinary_user_is_built_and_runs_in_sandboxes() {
    let cluster = OwnCluster::up(&[]);
    let uid = ids(ADA).0;
    let folder = cluster.folder("project");
    fs::create_dir(folder.join("dependency")).expect("writable");
    let told = "def told():\n    return (os.path.exists('/home'), os.environ['HOME'], os.environ.get('SECRET'))\n";
    let main =
        "import socket, telling\nprint(telling.told, socket.gethostname())\nopen('result', 'w').write('result')\n";
    for (name, text) in [
        ("main.py", main),
        ("requirements.txt", "./dependency\n"),
        ("dependency/pyproject.toml", SETTINGS),
        ("dependency/back.py", &format!("{BACK_END}{told}")),
    ] {
        fs::write(folder.join(name), text).expect("writable");
    }
    if !keeps_abstract_sockets_out() {
        // Builds use the network.
        let id = cluster.hostler(&["submit", "--sandbox", "-c", "1", "-m", "400M", "project", "main.py"]).stdout;
        assert_ne!(cluster.hostler(&["wait", id.trim()]).code, 0);
        return;
    }
    for _ in 0..2 {
        let id = cluster.hostler(&["submit", "--sandbox", "-c", "1", "-m", "400M", "project", "main.py"]).stdout;
        let waited = cluster.hostler(&["wait", id.trim()]);
        let logs = cluster.hostler(&["logs", id.trim()]);
        assert_eq!(
            (logs.stdout.as_str(), waited.code),
            ("(False, '/tmp/home', None) sandbox\n", 0),
            "{logs:?} {waited:?}"
        );
        let fetched = cluster.hostler(&["fetch", id.trim(), "--to", "results"]);
        assert_eq!(fetched.code, 0, "{fetched:?}");
        let result = fs::metadata(cluster.home.path().join("results").join(id.trim()).join("result"));
        assert_eq!(result.expect("the result came home").uid(), uid);
    }
    let setup = cluster.hostler(&["logs", "--setup", "2"]).stderr;
    assert!(setup.contains(" found in the cache"), "{setup}");
}

#[test]
fn attempts_to_leave_the_sandbox_of_an_ordinary_user_fail() {
    let cluster = OwnCluster::up(&[]);
    let (uid, gid) = ids(ADA);
    let folder = cluster.folder("folder");
    fs::write(folder.join("attempts.py"), ATTEMPTS).expect("writable");
    let neighbour = cluster.home.path().join("neighbour");
    fs::write(&neighbour, "text").expect("writable");
    let mut sleeper = Command::new("sleep").arg("300").uid(uid).gid(gid).spawn().expect("sleep exists");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let unique = format!("hostler-own-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&unique).expect("a short name");
    let _abstract = UnixListener::bind_addr(&address).expect("the name is free");
    let facts = json!({
        // The directory above exists inside, in a file system of the sandbox.
        "beside": "/usr/escaped",
        "beside_existing": neighbour,
        "of_bob": neighbour,
        "in_tmp": neighbour,
        "in_shm": neighbour,
        "cluster": cluster.home.path(),
        "setuid_id": "/usr/bin/passwd",
        "device": folder.join("none"),
        "sleeper": sleeper.id(),
        "port": server.local_addr().expect("bound").port(),
        "abstract": unique,
        "shm_key": 0x6873_1111,
    });
    let facts = facts.to_string();
    let attempt = |network: &str| {
        let arguments =
            ["run", "--sandbox", "--network", network, "-m", "200M", "--", "python3", "attempts.py", &facts];
        cluster.hostler_in("folder", &arguments)
    };
    let (told, with_network) = (attempt("none"), attempt("host"));
    sleeper.kill().expect("ours");
    sleeper.wait().expect("ours");
    let count = ATTEMPTS.matches("@attempt\n").count();
    assert!(told.stdout.contains(&format!("tried {count}\n")), "{told:?}");
    assert_eq!(reached(&told.stdout), [""; 0], "{}", told.stdout);
    if keeps_abstract_sockets_out() {
        assert!(with_network.stdout.contains(&format!("tried {count}\n")), "{with_network:?}");
        let beyond: Vec<_> = reached(&with_network.stdout);
        let beyond: Vec<_> = beyond.iter().filter(|name| !OF_THE_NETWORK.contains(&&***name)).collect();
        assert_eq!(beyond, [""; 0], "{}", with_network.stdout);
    } else {
        assert!(with_network.stderr.contains("cannot share the network"), "{with_network:?}");
    }
}

#[test]
fn agent_of_an_ordinary_user_without_user_namespaces_runs_no_sandboxed_jobs() {
    // In this user namespace, no others can be made.
    let closed = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all --no-new-privs \"$@\"";
    let through = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", closed, "sh"];
    let cluster = OwnCluster::up(&through);
    let refused = cluster.hostler(&["run", "--sandbox", "-m", "32M", "--", "true"]);
    let node = cluster.hostler(&["node", "show", "n1"]);
    let usual = cluster.hostler(&["run", "-m", "32M", "--", "true"]);
    assert_ne!(refused.code, 0);
    let why = "the kernel lets no ordinary user create user namespaces";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert!(node.stdout.contains(why) && node.stdout.contains("or start the agent as root"), "{}", node.stdout);
    assert_eq!(usual.code, 0, "{usual:?}");
}

#[test]
fn agent_of_an_ordinary_user_runs_images_of_files_and_registries() {
    let mount = |arguments: &[&str]| {
        assert!(Command::new("mount").args(arguments).status().expect("starts").success(), "{arguments:?}");
    };
    // SAFETY: it changes only this thread, from which the cluster starts.
    assert_eq!(unsafe { nix::libc::unshare(nix::libc::CLONE_NEWNS) }, 0, "needs root");
    mount(&["--make-rprivate", "/"]);
    let cluster = OwnCluster::up(&[]);
    let (uid, gid) = ids(ADA);
    let directory = write_images(cluster.folder("images"), None);
    let work = cluster.folder("work");
    let run = |image: &str, script: &str| {
        cluster.hostler_in("work", &["run", "--image", image, "-m", "64M", "--", "sh", "-c", script])
    };
    let script = "cat /etc/image; echo $OF_IMAGE; id -u; ls /opaque; ls /etc/removed /usr/bin/python3; touch /new /etc/image; touch here; \
                  ls -d /dev/null /proc/self/exe; cat /etc/hosts; exit 7";
    let expected = |env: &str| {
        format!(
            "from the upper layer\n{env}\n{uid}\nkept\n/dev/null\n/proc/self/exe\n127.0.0.1 localhost sandbox\n::1 localhost\n"
        )
    };
    let oci = run(&format!("oci:{}/oci:1", directory.display()), script);
    assert_eq!((oci.stdout.as_str(), oci.code), (expected("yes").as_str(), 7), "{oci:?}");
    assert!(oci.stderr.contains("'/new': Read-only") && oci.stderr.contains("'/etc/image'"), "{oci:?}");
    assert_eq!(fs::metadata(work.join("here")).expect("written").uid(), uid);
    let plain = run(&format!("dir:{}/root", directory.display()), script);
    assert_eq!((plain.stdout.as_str(), plain.code), (expected("").as_str(), 7), "{plain:?}");

    // Ranks, and steps of a job that has them.
    let options = ["run", "--image", &format!("dir:{}/root", directory.display()), "-c", "1", "-m", "64M", "-n", "2"];
    let ranks = cluster.hostler_in("work", &[&options[..], &["--label", "--", "cat", "/etc/image"]].concat());
    let step = "hostler step --tasks 2 --label cat /etc/image";
    let steps = cluster.hostler_in("work", &[&options[..], &["--first-node", "--", "sh", "-c", step]].concat());
    for told in [ranks, steps] {
        let mut lines: Vec<&str> = told.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0: from the upper layer", "1: from the upper layer"], "{told:?}");
    }

    // The kernel takes no mount of others away, and so not the directory around it.
    let deep = directory.join("root/deep");
    fs::create_dir_all(deep.join("inside")).expect("ours");
    fs::write(deep.join("file"), "text\n").expect("ours");
    fs::write(deep.join("below"), "").expect("ours");
    let (inside, below) = (deep.join("inside").display().to_string(), deep.join("below").display().to_string());
    mount(&["-t", "tmpfs", "tmpfs", &inside]);
    mount(&["--bind", "/etc/hostname", &below]);
    fs::write(deep.join("inside/hidden"), "").expect("ours");
    let around = run(&format!("dir:{}/root", directory.display()), "cat /deep/file /deep/below; ls /deep/inside");
    for mounted in [inside, below] {
        Command::new("umount").arg(mounted).status().expect("starts");
    }
    assert_eq!((around.stdout.as_str(), around.code), ("text\n", 0), "{around:?}");

    let registry = Registry::serve(directory.join("oci"), Some("Basic YWRhOnNlY3JldA=="));
    cluster.hostler(&["down"]);
    let found = Command::new("find").arg(cluster.home.path()).args(["-path", "*/nodes/n1"]).output().expect("starts");
    let node = PathBuf::from(String::from_utf8(found.stdout).expect("text").trim());
    fs::write(node.join("agent.toml"), format!("[images]\nplain_http = [\"{}\"]\n", registry.host)).expect("ours");
    let up = cluster.hostler(&["up"]);
    assert_eq!(up.code, 0, "{up:?}");
    let image = format!("docker://{}/team/app:1", registry.host);
    let refused = run(&image, "true");
    assert!(refused.code != 0 && refused.stderr.contains("demands a login"), "{refused:?}");
    fs::create_dir(cluster.home.path().join(".docker")).expect("writable");
    let login = json!({ "auths": { registry.host.clone(): { "auth": "YWRhOnNlY3JldA==" } } }).to_string();
    fs::write(cluster.home.path().join(".docker/config.json"), login).expect("writable");
    chown(cluster.home.path().join(".docker"), Some(uid), Some(gid)).expect("root may");
    let pulled = run(&image, "cat /etc/image");
    assert_eq!(pulled.stdout, "from the upper layer\n", "{pulled:?}");
}
