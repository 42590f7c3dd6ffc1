//! What commands answer to frequent mistakes, and what they leave out.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hostler_testkit::{Cluster, Outcome, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 2, cpus: 2, memory: "1G" };

fn said(outcome: &Outcome, part: &str) {
    assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
}

#[test]
fn mistaken_commands_are_explained() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    // An option that does not exist is not taken as the command.
    for command in
        [&["exec", "--time", "5", "true"][..], &["exec", "-x", "true"], &["exec", "--all", "--tim=5", "true"]]
    {
        let outcome = cluster.run(command);
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        said(&outcome, "has no option `-");
        said(&outcome, "hint: options come before the command");
    }
    // A line for a shell is not a program.
    for line in ["echo $HOME", "ls -l", "true; date"] {
        let outcome = cluster.run(&["run", "-m", "16M", "--", line]);
        assert_eq!(outcome.code, 127, "{}", outcome.stderr);
        said(&outcome, &format!("for a shell command, write sh -c '{line}'"));
    }
    said(&cluster.run(&["-q", "run", "-m", "16M", "--", "/nosuch"]), "cannot execute `/nosuch`");
    said(&cluster.run(&["exec", "--node", "n1", "echo $HOME"]), "write sh -c 'echo $HOME'");
    // A file of this directory is not in PATH, or not executable.
    let script = cluster.write("noexec.sh", "#!/bin/sh\n");
    let outcome = cluster.run(&["run", "-m", "16M", "./noexec.sh"]);
    assert_eq!(outcome.code, 126, "{}", outcome.stderr);
    said(&outcome, "`chmod +x ./noexec.sh`, or `hostler run --script ./noexec.sh`");
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("the file is the test's");
    said(&cluster.run(&["run", "-m", "16M", "noexec.sh"]), "write ./noexec.sh for the file in this directory");
    // Arguments do not belong to the entry point.
    cluster.write("p/train.py", "print(1)\n");
    let project = cluster.path("p").to_string_lossy().into_owned();
    for entry in ["train.py --seed 3", "python3 train.py", "/bin/sh -c date"] {
        let outcome = cluster.run(&["submit", &project, entry]);
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        said(&outcome, "write arguments after `--`");
    }
    // An unknown node is answered with the known ones.
    let unknown = || Some(cluster.run(&["exec", "--node", "n9", "true"])).filter(|it| it.stderr.contains("n1, n2"));
    said(&wait_until("the node learns the names of the others", 30, unknown), "no node of that name is known here");
}

#[test]
fn up_says_which_other_cluster_commands_used() {
    let cluster = Cluster::none(HOSTLER);
    let up = || cluster.run(&["up", "--nodes", "1", "--cpus", "1", "--memory", "100M"]).stderr;
    assert!(!up().contains("commands "), "there is no other cluster");
    cluster.ok(&["down"]);
    let login = serde_json::json!({ "address": "head:7760", "authority": "0".repeat(64), "token": "secret" });
    cluster.write("config/hostler/logins/head_7760.json", login.to_string());
    cluster.write("config/hostler/logins/last", "head:7760");
    let text = up();
    let displaced = "note: commands now use this cluster instead of head:7760; `--head head:7760` selects that one";
    assert!(text.contains(displaced), "{text}");
    assert!(!up().contains("commands "), "this start changes nothing");
    cluster.ok(&["down"]);
    cluster.write("config/hostler/config.toml", "head = \"unix:/other.sock\"");
    let text = up();
    let stays = format!("`--head unix:{}` selects this cluster", cluster.path("run/hostler/head.sock").display());
    assert!(text.contains("note: commands still use unix:/other.sock, which") && text.contains(&stays), "{text}");
}

#[test]
fn commands_in_a_deleted_directory_say_so() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    for command in
        ["run -m 16M true", "submit . true", "exec true", "fetch --all", "alloc true", "measure -- true", "jupyter"]
    {
        let script = format!("mkdir gone && cd gone && rmdir ../gone && exec {HOSTLER} {command}");
        let environment = cluster.command(&[]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(cluster.home()).env_clear();
        shell.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let outcome = Outcome::of(&shell.output().expect("there is a shell"));
        assert_ne!(outcome.code, 0, "{command}");
        said(&outcome, "error: the current directory was deleted\nhint: change to a directory that exists");
    }
}

#[test]
fn long_list_of_entries_that_cannot_be_captured_is_cut() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    cluster.write("folder/main.py", "");
    for number in 0..25 {
        std::os::unix::fs::symlink("/", cluster.path(&format!("folder/link{number}"))).expect("writable");
    }
    let refused = cluster.run(&["submit", "folder", "main.py"]);
    said(&refused, "\n  and 5 more\nhint: ");
    assert_eq!(refused.stderr.matches("leads out of the folder").count(), 20, "{}", refused.stderr);
}

#[test]
fn errors_are_json_on_request() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let outcome = cluster.run(&["job", "99", "--json"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (4, ""));
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let error: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let expected = serde_json::json!({
        "message": "there is no job 99", "causes": [], "hints": error["error"]["hints"], "code": "no_such_job", "exit": 4
    });
    assert_eq!(error["error"], expected);
}

#[test]
fn endings_say_how_many_tasks_failed_and_why_a_job_never_began() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let outcome =
        cluster.run(&["run", "-a", "0-4", "-m", "16M", "--", "sh", "-c", "exit $((HOSTLER_ARRAY_INDEX / 3))"]);
    assert_eq!(outcome.code, 1);
    said(&outcome, "job 1 failed with exit code 1 (2 failed, 3 completed)");
    let program = cluster.write("p/main", "#!/bin/nothing\n");
    fs::set_permissions(program, Permissions::from_mode(0o755)).expect("the file is the test's");
    let project = cluster.path("p").to_string_lossy().into_owned();
    let outcome = cluster.run(&["submit", &project, "main", "-m", "16M", "--wait"]);
    said(&outcome, "job 2 failed");
    said(&outcome, "/bin/nothing");
}

#[test]
fn impossible_directory_is_named_once() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let id = cluster.ok(&["run", "--detach", "-a", "0-2", "-m", "16M", "--", "true"]);
    cluster.ok(&["wait", &id]);
    cluster.write("file", "");
    let outcome = cluster.run(&["fetch", &id, "--to", "file/below"]);
    assert_eq!(outcome.code, 1);
    assert_eq!(outcome.stderr.matches("error: ").count(), 1, "{}", outcome.stderr);
    said(&outcome, "cannot create the directory");
}

#[test]
fn output_of_an_array_is_labelled_where_it_is_written() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let script =
        "case $HOSTLER_ARRAY_INDEX in 0) printf no-line-end;; 1) ;; 2) echo out; echo err >&2;; 3) echo last;; esac";
    let id = cluster.ok(&["run", "--detach", "-a", "0-3", "-m", "16M", "--", "sh", "-c", script]);
    cluster.ok(&["wait", &id]);
    for follow in [&[][..], &["--follow"]] {
        let outcome = cluster.run(&[&["logs", &id], follow].concat());
        let expected = format!("==> {id}_0 <==\nno-line-end\n==> {id}_2 <==\nout\n==> {id}_3 <==\nlast\n");
        assert_eq!(outcome.stdout, expected, "a task without output has no heading");
        assert_eq!(outcome.stderr, format!("==> {id}_2 stderr <==\nerr\n"));
    }
    assert_eq!(cluster.run(&["logs", &format!("{id}_0")]).stdout, "no-line-end", "one task has no heading");
}

#[test]
fn fetch_all_leaves_out_commands_and_cancelled_tasks() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    cluster.write("p/main.sh", "echo data > result.txt\ntest ! -e wait || sleep 600\n");
    let project = cluster.path("p").to_string_lossy().into_owned();
    let good = cluster.ok(&["submit", &project, "main.sh", "-m", "16M"]);
    cluster.ok(&["wait", &good]);
    cluster.write("p/wait", "");
    let cancelled = cluster.ok(&["submit", &project, "main.sh", "-m", "16M"]);
    cluster.wait_for_state(&cancelled, "running");
    cluster.ok(&["cancel", &cancelled]);
    cluster.wait_for_state(&cancelled, "cancelled");
    let command = cluster.ok(&["run", "--detach", "-m", "16M", "--", "echo", "hello"]);
    cluster.ok(&["wait", &command]);

    let arrived = |name: &str, id: &str| cluster.path(&format!("{name}/{id}")).exists();
    let outcome = cluster.run(&["fetch", "--all", "--to", "some"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    said(&outcome, "left out: the output of 1 command and 1 cancelled task; --outputs includes them");
    assert_eq!([&good, &cancelled, &command].map(|id| arrived("some", id)), [true, false, false]);
    said(&cluster.run(&["fetch", "--all", "--to", "some"]), "nothing to fetch; left out: ");
    cluster.ok(&["fetch", &command, "--to", "one"]);
    assert!(arrived("one", &command), "a job that is named is fetched");
    cluster.ok(&["fetch", "--all", "--outputs", "--to", "rest"]);
    assert_eq!([&good, &cancelled, &command].map(|id| arrived("rest", id)), [false, true, false]);
}
