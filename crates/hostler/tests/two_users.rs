//! Two users on one node cannot reach each other's jobs. Needs root, and accounts that every Debian has.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Stdio;

use hostler_testkit::{Outcome, SharedCluster, hide_people_for_this_thread, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

fn ids(user: &str) -> (u32, u32) {
    let user = nix::unistd::User::from_name(user).expect("readable").expect("on every Debian");
    (user.uid.as_raw(), user.gid.as_raw())
}

/// Submits a folder with one shell script as a user; returns the job's id.
fn submit(cluster: &SharedCluster, user: &str, name: &str, script: &str) -> String {
    cluster.write(user, &format!("{name}/main.sh"), script);
    cluster.write(user, &format!("{name}/data"), "original");
    let folder = cluster.home_of(user).join(name);
    cluster.ok(user, &["submit", &folder.to_string_lossy(), "main.sh", "-c", "1", "-m", "64M"])
}

#[test]
fn job_runs_as_its_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let script = "id -u; id -g; id -Gn; umask; echo $USER $LOGNAME $HOME; [ -z \"$XDG_RUNTIME_DIR\" ] && echo none; stat -c '%U %a' . data; touch new";
    for user in [ADA, BOB] {
        let (uid, gid) = ids(user);
        let home = cluster.home_of(user);
        let told =
            cluster.ok(user, &["run", "-c", "1", "-m", "32M", "--", "sh", "-c", "id -u; id -g; echo $USER $HOME"]);
        assert_eq!(told, format!("{uid}\n{gid}\n{user} {}", home.display()), "a command has its caller's variables");

        let id = submit(&cluster, user, "folder", script);
        cluster.ok(user, &["wait", &id]);
        let login = nix::unistd::User::from_name(user).expect("readable").expect("there").dir;
        let expected =
            format!("{uid}\n{gid}\n{user}\n0022\n{user} {user} {}\nnone\n{user} 700\n{user} 644", login.display());
        assert_eq!(cluster.ok(user, &["logs", &id]), expected);
        cluster.ok(user, &["fetch", &id, "--to", "results"]);
        assert_eq!(fs::metadata(home.join(format!("results/{id}/new"))).expect("the result was fetched").uid(), uid);
    }
}

#[test]
fn jobs_of_root_and_of_unknown_users_are_refused() {
    // The uid below must have no account.
    hide_people_for_this_thread();
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let refused = cluster.run("root", &["run", "-m", "32M", "--", "true"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("no node that this job may use runs jobs of root"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--root-jobs"), "{}", refused.stderr);
    assert_eq!(cluster.ok("root", &["jobs", "--all", "--quiet"]), "", "no job was created");

    let home = cluster.path("nobody");
    fs::create_dir(&home).expect("new");
    std::os::unix::fs::chown(&home, Some(54321), Some(54321)).expect("root may");
    let output = cluster.command_by_id((54321, 54321), &home, &["run", "-m", "32M", "--", "true"]).output();
    let stderr = String::from_utf8_lossy(&output.expect("starts").stderr).into_owned();
    assert!(stderr.contains("this node has no user `54321`") && stderr.contains("configure user add"), "{stderr}");

    let allowed = SharedCluster::up(HOSTLER, &["--root-jobs"]);
    assert_eq!(allowed.ok("root", &["run", "-m", "32M", "--", "id", "-u"]), "0");
    assert_eq!(allowed.ok(ADA, &["run", "-m", "32M", "--", "id", "-u"]), ids(ADA).0.to_string());
}

#[test]
fn inaccessible_directory_is_named_in_the_error() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let closed = cluster.home_of(ADA).join("closed");
    fs::create_dir(&closed).expect("root may");
    let mut command = cluster.command(ADA, &["run", "--detach", "--hold", "-m", "32M", "--", "true"]);
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).expect("ours");
    let output = command.current_dir(&closed).output().expect("starts");
    let id = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("ours");
    cluster.ok(ADA, &["release", &id]);
    assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0);
    let told = cluster.ok(ADA, &["job", &id]);
    assert!(told.contains(&format!("cannot enter directory `{}` as user `{ADA}`", closed.display())), "{told}");
}

/// A job that tries to reach another user's job, and prints each attempt that succeeds.
const NEIGHBOUR: &str = r#"
import ctypes, os, sys
pid, work = int(sys.argv[1]), sys.argv[2]
run = os.path.dirname(work)
def can(what, act):
    try:
        act()
        print('can', what, flush=True)
    except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
def attach():
    # PTRACE_ATTACH, and PTRACE_DETACH once it has stopped.
    if libc.ptrace(16, pid, None, None) != 0:
        raise OSError(ctypes.get_errno())
    os.waitpid(pid, 0)
    libc.ptrace(17, pid, None, None)
parent = int(open(f'/proc/{pid}/stat').read().rsplit(')')[1].split()[1])
for process in (pid, parent):
    can('signal', lambda: os.kill(process, 0))
    for file in ('environ', 'mem', 'maps', 'fd/1', 'cwd/data', 'root/etc/passwd'):
        can('read ' + file, lambda: open(f'/proc/{process}/{file}', 'rb').read(1))
can('ptrace', attach)
can('list runs', lambda: os.listdir(os.path.dirname(run)))
can('list a run', lambda: os.listdir(run))
can('enter', lambda: os.chdir(work))
for file in ('stdout', 'stderr', 'journal', 'manifest', 'baseline', 'setup', 'work/data'):
    can('read ' + file, lambda: open(os.path.join(run, file), 'rb').read(1))
can('write', lambda: open(os.path.join(run, 'stdout'), 'ab'))
can('put a file there', lambda: open(os.path.join(run, 'end'), 'wb'))
print('tried', flush=True)
"#;

#[test]
fn job_cannot_reach_a_job_of_another_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let victim =
        submit(&cluster, ADA, "victim", "echo $$ $PWD; while [ ! -e release ]; do sleep 0.05; done; echo unharmed");
    let told = wait_until("the victim to speak", 30, || {
        let text = cluster.run(ADA, &["logs", &victim]).stdout;
        let (pid, work) = text.trim().split_once(' ')?;
        Some((pid.to_owned(), work.to_owned()))
    });
    let neighbour = cluster.write(BOB, "neighbour.py", NEIGHBOUR);
    let try_it = |user: &str| {
        cluster.run(user, &["run", "-m", "64M", "--", "python3", &neighbour.to_string_lossy(), &told.0, &told.1])
    };
    assert_eq!(try_it(BOB).stdout, "tried\n", "no attempt succeeds");
    // Run the same attempts in a job of the same user, to show that they can succeed.
    fs::copy(&neighbour, cluster.home_of(ADA).join("neighbour.py")).expect("root may");
    let own = cluster.home_of(ADA).join("neighbour.py");
    let own = cluster.run(ADA, &["run", "-m", "64M", "--", "python3", &own.to_string_lossy(), &told.0, &told.1]).stdout;
    for can in ["can signal", "can read environ", "can enter", "can read work/data", "can read stdout"] {
        assert!(own.contains(can), "{can}: {own}");
    }
    for cannot in ["can list", "read journal", "read manifest", "read baseline", "can put"] {
        assert!(!own.contains(cannot), "{cannot}: {own}");
    }

    // Another user cannot reach the job through the head either.
    assert!(cluster.run(BOB, &["logs", &victim]).stderr.contains("games"), "the error names the owner");
    assert_ne!(cluster.run(BOB, &["cancel", &victim]).code, 0);
    fs::write(PathBuf::from(&told.1).join("release"), "").expect("root may");
    cluster.ok(ADA, &["wait", &victim]);
    assert!(cluster.ok(ADA, &["logs", &victim]).ends_with("unharmed"));
}

#[test]
fn job_cannot_read_files_of_the_agent_the_head_or_other_users() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    // Create results, chunks, journals and outputs.
    for user in [ADA, BOB] {
        let id = submit(&cluster, user, "folder", "echo secret of $USER; echo result > result");
        cluster.ok(user, &["wait", &id]);
    }
    let mut files = Vec::new();
    collect(&cluster.path("agent"), &mut files);
    collect(&cluster.path("head"), &mut files);
    collect(&cluster.path("home-news"), &mut files);
    files.extend(["agent.log", "head.log", "join"].map(|name| cluster.path(name)));
    assert!(files.iter().any(|file| file.ends_with("identity/credentials.pem")), "{files:?}");
    assert!(files.len() > 20, "{files:?}");
    let list = cluster.write(ADA, "list", files.iter().map(|file| format!("{}\n", file.display())).collect::<String>());
    let script = "while read -r file; do [ -r \"$file\" ] && echo reads $file; [ -w \"$file\" ] && echo writes $file; done < $0; echo looked";
    let told = cluster.ok(ADA, &["run", "-m", "64M", "--", "sh", "-c", script, &list.to_string_lossy()]);
    // A job may read its own output. It is in a run directory that the agent reuses for the same user.
    let others: Vec<&str> = told.lines().filter(|line| !line.contains("/runs/")).collect();
    assert_eq!(others, ["looked"], "{told}");
    let status = format!("/proc/{}/environ", cluster.agent_pid());
    assert!(
        cluster.ok(ADA, &["run", "-m", "64M", "--", "sh", "-c", "cat $0 2>&1 | tail -1", &status]).contains("denied")
    );
    let env = cluster.ok(ADA, &["run", "-m", "64M", "--", "env"]);
    assert!(!env.contains("HOSTLER_HEAD") && !env.contains("join"), "{env}");
}

/// Collects all files below a directory.
fn collect(directory: &std::path::Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("root may").flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&path, files),
            // The agent's socket, at which the kernel identifies users.
            Ok(kind) if kind.is_socket() => {}
            _ => files.push(path),
        }
    }
}

#[test]
fn results_contain_no_files_that_the_user_may_not_read() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let secret = cluster.path("secret");
    fs::write(&secret, "for root's eyes only").expect("ours");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("ours");
    let script = format!(
        "ln -s {0} link; ln -s / root; ln {0} hard; mkfifo pipe; rm data; ln -s {0} data
         cd ..; mv work elsewhere; ln -s /etc work; rm -f stdout; ln -s {0} stdout; ln -s {0} stderr; ln -s {0} setup
         cd work; echo mine > mine; chmod 000 mine; touch ready
         while [ ! -e hard ]; do sleep 0.05; done; exit 0",
        secret.display()
    );
    let id = submit(&cluster, ADA, "attack", &script);
    let work = wait_until("the job to be ready", 30, || {
        let runs = fs::read_dir(cluster.path("agent/runs")).ok()?.flatten();
        runs.map(|run| run.path().join("work")).find(|work| work.join("ready").exists())
    });
    // Create the hard link as root, because the kernel may forbid users such links.
    fs::hard_link(&secret, work.join("hard")).expect("root may");
    cluster.ok(ADA, &["wait", &id]);
    let told = cluster.run(ADA, &["job", &id]).stdout;
    cluster.ok(ADA, &["fetch", &id, "--to", "results"]);
    let mut files = Vec::new();
    collect(&cluster.home_of(ADA).join("results"), &mut files);
    for file in &files {
        let content = fs::read(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        assert!(!text.contains("for root's eyes"), "{} came home", file.display());
    }
    assert!(told.contains("hard cannot be read: permission denied"), "{told}");
    assert_eq!(fs::read_to_string(&secret).expect("root may"), "for root's eyes only");
}

#[test]
fn shepherds_and_directories_are_reused_only_for_their_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    // Run jobs with one CPU one after another, so that shepherds and directories are reused for the next run.
    let run_each = || {
        for user in [ADA, BOB] {
            let told = cluster
                .ok(user, &["run", "-m", "32M", "--", "sh", "-c", "id -un; echo $PPID; stat -Lc %U /proc/self/fd/1"]);
            let lines: Vec<&str> = told.lines().collect();
            assert_eq!((lines[0], lines[2]), (user, user));
        }
    };
    let mut expected = vec![ids(ADA).0, ids(BOB).0];
    expected.sort_unstable();
    (0..3).for_each(|_| run_each());
    // A directory that is still open, e.g. by a reader of its output, is not kept for reuse; the next one is.
    wait_until("a directory of each to be kept", 60, || {
        let owners = owners_of_spares(&cluster);
        if owners == expected {
            return Some(());
        }
        run_each();
        None
    });
}

/// Owners of the directories kept for reuse: at most one per user.
fn owners_of_spares(cluster: &SharedCluster) -> Vec<u32> {
    let runs = || fs::read_dir(cluster.path("agent/runs")).expect("there").flatten().map(|it| it.path());
    wait_until("every run's directory to be kept for reuse", 10, || {
        let is_spare =
            |path: PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("spare-"));
        runs().all(is_spare).then_some(())
    });
    let mut owners: Vec<u32> =
        runs().filter_map(|spare| fs::metadata(spare.join("stdout")).ok()).map(|output| output.uid()).collect();
    owners.sort_unstable();
    assert!(owners.windows(2).all(|pair| pair[0] < pair[1]), "two directories of one user: {owners:?}");
    owners
}

#[test]
fn restarted_agent_sends_the_results_of_a_users_job() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let id = submit(
        &cluster,
        BOB,
        "folder",
        "id -un > who; touch started; while [ ! -e release ]; do sleep 0.05; done; echo $? > result",
    );
    let work = wait_until("the job to have begun", 30, || {
        let runs = fs::read_dir(cluster.path("agent/runs")).ok()?.flatten();
        runs.map(|run| run.path().join("work")).find(|work| work.join("started").exists())
    });
    cluster.kill_agent();
    fs::write(work.join("release"), "").expect("root may");
    cluster.start_agent();
    cluster.ok(BOB, &["wait", &id]);
    cluster.ok(BOB, &["fetch", &id, "--to", "results"]);
    let read = |name: &str| fs::read_to_string(cluster.home_of(BOB).join(format!("results/{id}/{name}"))).expect(name);
    assert_eq!((read("who").trim(), read("result").trim()), (BOB, "0"));
}

#[test]
fn resource_use_of_a_job_is_reported() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let script = "head -c 20000000 /dev/zero | tail > /dev/null; dd if=/dev/zero of=big bs=1M count=3 conv=fsync 2> /dev/null; rm big";
    let id = submit(&cluster, ADA, "folder", script);
    cluster.ok(ADA, &["wait", &id]);
    let usage = cluster.job(&id)["tasks_shown"][0]["usage"].clone();
    let peak = usage["memory_peak_bytes"].as_u64().expect("the kernel counts");
    assert!((16 << 20..64 << 20).contains(&peak), "{usage}");
    assert!(usage["io"]["write_bytes"].is_u64() && usage["io"]["source"].is_string(), "{usage}");
    assert!(cluster.ok(ADA, &["job", &id]).contains("in total with cached files"));
}

#[test]
fn cluster_without_root_reports_its_limitations() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let own = |arguments: &[&str]| {
        let output = cluster
            .command(ADA, arguments)
            .env_remove("HOSTLER_HEAD")
            .env("XDG_RUNTIME_DIR", cluster.home_of(ADA))
            .output();
        let output = output.expect("starts");
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (_, said) = own(&["up", "--nodes", "1", "--cpus", "1", "--memory", "128M"]);
    assert!(said.contains("note: the kernel does not limit jobs to their CPUs and memory here: "), "{said}");
    let nodes: serde_json::Value = serde_json::from_str(&own(&["nodes", "--json"]).0).expect("JSON");
    let users = nodes[0]["advisory"]["users"].as_str().expect("said");
    assert!(users.starts_with(&format!("jobs run as {ADA}")), "{users}");
    assert_eq!(own(&["run", "-m", "32M", "--", "id", "-un"]).0.trim(), ADA);
    own(&["down", "--cancel"]);
}

#[test]
fn operator_watches_a_terminal_and_only_its_user_types() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.ok("root", &["configure", "user", "add", BOB, "--role", "operator"]);
    let script = "while read line; do echo got $line; done";
    let job = cluster.ok(ADA, &["run", "--detach", "--pty", "-c", "1", "-m", "32M", "--", "sh", "-c", script]);
    wait_until("the job to run", 60, || (cluster.job(&job)["state"] == "running").then_some(()));
    let attached = |user: &str, keys: &[u8]| {
        let mut command = cluster.command(user, &["attach", &job]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(keys).expect("the program reads");
        (child, stdin)
    };
    // Ctrl-A d detaches, after the keys before it.
    let (child, _stdin) = attached(BOB, b"theirs\n\x01d");
    let watched = Outcome::of(&child.wait_with_output().expect("the program ends"));
    assert!(watched.code == 0 && watched.stderr.contains("note: you can only watch"), "{watched:?}");
    let (mut child, mut stdin) = attached(ADA, b"mine\n");
    let mut seen = String::new();
    let mut screen = BufReader::new(child.stdout.take().expect("piped"));
    while !seen.contains("got mine") {
        assert_ne!(screen.read_line(&mut seen).expect("text"), 0, "{seen}");
    }
    assert!(!seen.contains("theirs"), "{seen}");
    stdin.write_all(b"\x01d").expect("the program reads");
    assert!(child.wait().expect("the program ends").success());
    cluster.ok(ADA, &["cancel", &job]);
}
