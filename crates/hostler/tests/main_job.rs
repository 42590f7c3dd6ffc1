//! The main use case: submit a folder, fetch its results.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use hostler_testkit::{Cluster, Outcome, Size, kill, wait_until};
use nix::sys::signal::Signal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A project that creates, changes and removes a file and writes to stdout and stderr.
fn project(cluster: &Cluster, name: &str) -> String {
    cluster.write(
        &format!("{name}/main.py"),
        "import os, pathlib, sys\n\
         print('hello from', os.environ['HOSTLER_JOB_ID'], flush=True)\n\
         print('careful', file=sys.stderr)\n\
         pathlib.Path('out').mkdir()\n\
         pathlib.Path('out/result.txt').write_text('42 ' + ' '.join(sys.argv[1:]))\n\
         pathlib.Path('data.txt').write_text('changed')\n\
         pathlib.Path('gone.txt').unlink()\n",
    );
    cluster.write(&format!("{name}/data.txt"), "original");
    cluster.write(&format!("{name}/gone.txt"), "to be removed");
    cluster.write(&format!("{name}/same.txt"), "unchanged");
    cluster.path(name).to_string_lossy().into_owned()
}

#[test]
fn results_of_a_submitted_folder_are_fetched() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = project(&cluster, "model");
    let id = cluster.ok(&["submit", &folder, "main.py", "-c", "1", "-m", "64M", "--", "a", "b c"]);
    assert!(id.parse::<u64>().is_ok(), "only the id is printed: {id:?}");
    cluster.ok(&["wait", &id]);
    cluster.ok(&["fetch", &id, "--to", "home"]);

    let read = |name: &str| fs::read_to_string(cluster.path(&format!("home/{id}/{name}"))).expect(name);
    assert_eq!(read("out/result.txt"), "42 a b c");
    assert_eq!(read("data.txt"), "changed");
    assert_eq!(read("stdout.log"), format!("hello from {id}\n"));
    assert_eq!(read("stderr.log"), "careful\n");
    assert!(!cluster.path(&format!("home/{id}/same.txt")).exists(), "unchanged files are not results");
    assert!(!cluster.path(&format!("home/{id}/setup.log")).exists(), "no environment was built");
    assert_eq!(fs::read_to_string(cluster.path("model/data.txt")).expect("still there"), "original");
}

#[test]
fn later_changes_of_the_folder_do_not_affect_a_queued_job() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let blocker = cluster.ok(&["submit", &project(&cluster, "first"), "sleep", "-c", "1", "-m", "64M", "--", "1"]);
    let folder = project(&cluster, "model");
    let id = cluster.ok(&[
        "submit",
        &folder,
        "cat",
        "-c",
        "1",
        "-m",
        "64M",
        "--after",
        &format!("afterany:{blocker}"),
        "--",
        "data.txt",
    ]);
    cluster.write("model/data.txt", "edited after submission");
    cluster.ok(&["wait", &id]);
    assert_eq!(cluster.ok(&["logs", &id]), "original");
}

#[test]
fn submission_with_a_key_gives_one_job_also_after_its_end_and_after_a_restart() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = project(&cluster, "model");
    let submit = ["submit", "--key", "a/b ü", "-c", "1", "-m", "64M", &folder, "main.py"];
    let id = cluster.ok(&submit);
    assert_eq!(cluster.ok(&[&submit[..], &["--wait"][..]].concat()), id);
    // A drained node is there, too: it needs no other start.
    cluster.ok(&["node", "drain", "n1", "--reason", "new disk"]);
    cluster.ok(&["down"]);
    let up = cluster.run(&["up"]);
    assert!(
        up.code == 0 && up.stderr.contains("note: n1 gets no jobs: ") && up.stderr.contains("new disk"),
        "{}",
        up.stderr
    );
    cluster.ok(&["node", "resume", "n1"]);
    let again = cluster.run(&submit);
    assert_eq!((again.stdout.trim(), again.code), (id.as_str(), 0));
    assert!(again.stderr.contains(&format!("job {id} has this key, so nothing is submitted")), "{}", again.stderr);
    assert_eq!(cluster.ok(&["--quiet", "jobs", "--key", "a/b ü"]), id);
    assert_eq!(cluster.ok(&["--quiet", "jobs", "--key", "a/b"]), "");

    let refused = cluster.run(&[&submit[..], &["--", "another"][..]].concat());
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(
        refused.stderr.contains(&format!("job {id} has the key `a/b ü` and another command")),
        "{}",
        refused.stderr
    );
    cluster.write("model/data.txt", "edited");
    let refused = cluster.run(&submit);
    assert!(refused.stderr.contains("and a folder with other content"), "{}", refused.stderr);
    assert_ne!(cluster.ok(&[&["submit", "--key", "c"][..], &submit[3..]].concat()), id);
}

#[test]
fn second_submission_of_a_folder_uploads_nothing() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = project(&cluster, "model");
    let first = cluster.run(&["submit", &folder, "main.py", "-m", "64M"]);
    let again = cluster.run(&["submit", &folder, "main.py", "-m", "64M"]);
    assert!(first.stderr.contains("uploaded"), "{}", first.stderr);
    assert!(again.stderr.contains("nothing to upload"), "{}", again.stderr);
    assert_ne!(first.stdout, again.stdout);
}

#[test]
fn virtual_environments_and_results_are_left_out() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("model/main.py", "import os\nopen('weights', 'wb').write(os.urandom(1 << 20))\n");
    let folder = cluster.path("model");
    // `python3 -m venv venv` makes the interpreter a link to the system's.
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder.join("venv")).status();
    assert!(made.expect("python3 is installed").success());
    let submit = || {
        let arguments = ["submit", ".", "main.py", "-m", "64M", "--follow"];
        let outcome =
            Outcome::of(&cluster.command(&arguments).current_dir(&folder).output().expect("the program starts"));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        outcome.stderr
    };
    let first = submit();
    assert!(
        first.contains("left out: venv (virtual environment); to include one, add a line such as !venv/"),
        "{first}"
    );
    assert!(first.contains("captured 1 file"), "{first}");
    assert!(first.contains("not used: venv (`venv/bin/pip freeze > requirements.txt` lists its packages"), "{first}");
    cluster.write("needs/main.py", "import no_such_module\n");
    let needs = cluster.path("needs").to_string_lossy().into_owned();
    let failed = cluster.run(&["submit", &needs, "main.py", "-m", "64M", "--wait"]).stderr;
    assert!(failed.contains("Python found no module no_such_module: list its package in the folder's"), "{failed}");
    for results in ["1", "1 and 1 more"] {
        let next = submit();
        assert!(next.contains("nothing to upload"), "{next}");
        assert!(
            next.contains(&format!("left out: venv (virtual environment), {results} (results of jobs);")),
            "{next}"
        );
    }
    // An entry in .hostlerignore includes it in all later submissions.
    cluster.write("model/.hostlerignore", "!/1/\n");
    assert!(submit().contains("captured 5 files"), "the program, the rules, and a result with its two logs");
}

#[test]
fn keys_and_tokens_of_hostler_are_never_captured() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    for secret in [".local/state/hostler/head/trust/ca.key", ".config/hostler/logins/head", ".cache/hostler/folders/x"]
    {
        cluster.write(&format!("person/{secret}"), "secret");
    }
    cluster.write("person/.config/other/hostler/file", "");
    cluster.write("person/.hostlerignore", "!.config/hostler/\n!hostler/\n");
    cluster.write("person/main.sh", "find . -type f | sort\n");
    let home = cluster.path("person");
    let mut submit = cluster.command(&["submit", ".", "main.sh", "-m", "64M", "--follow"]);
    submit.current_dir(&home).env("HOME", &home);
    for variable in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        submit.env_remove(variable);
    }
    let outcome = Outcome::of(&submit.output().expect("the program starts"));
    let expected = "1\n./.config/other/hostler/file\n./.hostlerignore\n./main.sh\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
}

#[test]
fn interrupted_submission_says_that_its_job_continues() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("slow/main.sh", "echo begun\nwhile [ ! -e /proc/self/nothing ]; do sleep 1; done\n");
    for (id, flag) in [("1", "--follow"), ("2", "--wait")] {
        let mut submit = cluster.command(&["submit", "slow", "main.sh", "-m", "64M", flag]);
        let mut submit = submit.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut announced = [0; 1];
        submit.stdout.as_mut().expect("piped").read_exact(&mut announced).expect("the id is printed");
        cluster.wait_for_state(id, "running");
        kill(submit.id(), Signal::SIGINT);
        let outcome = Outcome::of(&submit.wait_with_output().expect("it ends"));
        let says = format!("job {id} continues; `hostler cancel {id}` ends it");
        assert!(outcome.code == 130 && outcome.stderr.contains(&says), "{outcome:?}");
        assert_eq!(cluster.state(id), "running");
        cluster.ok(&["cancel", id]);
    }
}

#[test]
fn nohup_keeps_a_command_and_its_job_alive() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let go = cluster.path("go");
    let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    cluster.write("slow/main.sh", &wait);
    let (run, submit) =
        (["run", "-m", "16M", "--", "sh", "-c", &wait], ["submit", "slow", "main.sh", "-m", "64M", "--wait"]);
    for (id, arguments) in [("1", &run[..]), ("2", &submit)] {
        let usual = cluster.command(arguments);
        let mut nohup = Command::new("nohup");
        nohup.arg(HOSTLER).args(arguments).current_dir(cluster.home()).env_clear();
        nohup.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut running = nohup.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("coreutils");
        wait_until("the job to run", 30, || {
            let jobs = cluster.json(&["jobs"])["jobs"].to_string();
            (jobs.contains(&format!("\"id\":{id},")) && jobs.contains("\"running\"")).then_some(())
        });
        kill(running.id(), Signal::SIGHUP);
        fs::write(&go, "").expect("the directory is writable");
        assert!(running.wait().expect("it ends").success());
        assert_eq!(cluster.state(id), "completed");
        fs::remove_file(&go).expect("just written");
    }
}

#[test]
fn submission_names_requirements_that_no_node_can_install() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("model/main.py", "");
    cluster.write("model/libs/my one/setup.py", "");
    cluster.write("model/.gitignore", "/wheels/\n");
    cluster.write("model/wheels/one-1-py3-none-any.whl", "");
    let folder = cluster.path("model").to_string_lossy().into_owned();
    for (requirements, problem) in [
        ("file:./libs/absent\n", "requirements.txt: refers to ./libs/absent, which does not exist"),
        ("-r \"more reqs.txt\"\n", "requirements.txt: refers to more reqs.txt, which does not exist"),
        ("./libs\n", "requirements.txt: refers to ./libs, which has neither pyproject.toml nor setup.py"),
        ("-e ../other\n", "requirements.txt: refers to ../other, which does not exist"),
        ("wheels/one-1-py3-none-any.whl\n", "refer to wheels/one-1-py3-none-any.whl, which is left out of the folder"),
    ] {
        cluster.write("model/requirements.txt", requirements);
        let refused = cluster.run(&["submit", &folder, "main.py", "-m", "64M"]);
        assert!(refused.code != 0 && refused.stderr.contains(problem), "{requirements}: {}", refused.stderr);
    }
    // What pip reads is accepted; it would be installed on the node.
    cluster.write("model/requirements.txt", "-e \"file:libs/my%20one#egg=one\"\n./libs/my one\n");
    cluster.ok(&["submit", &folder, "main.py", "-m", "64M", "--hold"]);
}

#[test]
fn fetch_all_downloads_each_result_once() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = project(&cluster, "model");
    let ids: Vec<String> = (0..3).map(|_| cluster.ok(&["submit", &folder, "main.py", "-m", "64M"])).collect();
    for id in &ids {
        cluster.ok(&["wait", id]);
    }
    cluster.ok(&["fetch", "--all", "--to", "home"]);
    for id in &ids {
        assert!(cluster.path(&format!("home/{id}/out/result.txt")).exists());
    }
    cluster.ok(&["fetch", "--all", "--to", "again"]);
    assert!(!cluster.path("again").join(&ids[0]).exists(), "each result is fetched once");
    cluster.ok(&["fetch", &ids[0], "--to", "again"]);
    assert!(cluster.path("again").join(&ids[0]).exists(), "by id it can be fetched repeatedly");
}

#[test]
fn array_has_one_result_per_task() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("sweep/main.py", "import os\nopen('index', 'w').write(os.environ['HOSTLER_ARRAY_INDEX'])\n");
    let folder = cluster.path("sweep").to_string_lossy().into_owned();
    let id = cluster.ok(&["submit", &folder, "main.py", "-a", "1-9:2%3", "-c", "1", "-m", "64M"]);
    cluster.ok(&["wait", &id]);
    cluster.ok(&["fetch", &id, "--to", "home"]);
    for index in [1, 3, 5, 7, 9] {
        let text = fs::read_to_string(cluster.path(&format!("home/{id}_{index}/index"))).expect("a result a task");
        assert_eq!(text, index.to_string());
    }
    let job = cluster.json(&["job", &id]);
    assert_eq!(job["tasks"]["completed"], 5);
}

#[test]
fn file_attributes_survive_submission_and_fetch() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = cluster.path("odd");
    cluster.write("odd/with\nnewline and ünïcode", "1");
    cluster.write("odd/script.sh", "#!/bin/sh\nls -A empty && readlink link && mkdir new && cp -a 'with\nnewline and ünïcode' new/ && printf '\\0\\377' > new/binary && chmod 640 new/binary\n");
    fs::set_permissions(folder.join("script.sh"), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::create_dir(folder.join("empty")).expect("mkdir");
    symlink("script.sh", folder.join("link")).expect("symlink");
    cluster.write("odd/.gitignore", "*.tmp\n");
    cluster.write("odd/scratch.tmp", "not captured");
    cluster.write("odd/.hostlerignore", "private\n");
    cluster.write("odd/private", "not captured");

    let folder = folder.to_string_lossy().into_owned();
    let id = cluster.ok(&["submit", &folder, "script.sh", "-m", "64M"]);
    cluster.ok(&["wait", &id]);
    cluster.ok(&["fetch", &id, "--to", "home"]);
    let home = cluster.path(&format!("home/{id}/new"));
    assert_eq!(fs::read(home.join("binary")).expect("binary"), [0, 0o377]);
    assert_eq!(fs::metadata(home.join("binary")).expect("binary").permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(home.join("with\nnewline and ünïcode")).expect("odd name"), "1");
    assert_eq!(cluster.ok(&["logs", &id]), "script.sh");

    let listing = cluster.ok(&["submit", &folder, "ls", "-m", "64M"]);
    cluster.ok(&["wait", &listing]);
    let names = cluster.ok(&["logs", &listing]);
    assert!(!names.contains("scratch.tmp") && !names.contains("private"), "{names}");
}

#[test]
fn environment_is_built_once_and_its_build_errors_are_shown() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 4, cpus: 13, memory: "4G" });
    cluster.write("env/main.py", "import six, sys\nprint(six.__name__, sys.prefix != sys.base_prefix)\n");
    cluster.write("env/requirements.txt", "six==1.16.0\n");
    let folder = cluster.path("env").to_string_lossy().into_owned();
    // Fifty tasks need the environment at the same time, on four nodes of one machine.
    let id = cluster.ok(&["submit", &folder, "main.py", "-a", "0-49", "-c", "1", "-m", "256M"]);
    cluster.ok(&["wait", &id]);
    cluster.ok(&["fetch", "--all", "--to", "home"]);
    let of_task = |task: usize, name: &str| {
        fs::read_to_string(cluster.path(&format!("home/{id}_{task}/{name}"))).expect("every task has its logs")
    };
    assert!((0..50).all(|task| of_task(task, "stdout.log") == "six True\n"));
    let built = (0..50).filter(|&task| of_task(task, "setup.log").contains(" built\n"));
    assert_eq!(built.count(), 1, "one task builds, the others reuse its result");

    cluster.write("bad/main.py", "print('never')\n");
    cluster.write("bad/requirements.txt", "no-such-package-of-hostler==9.9\n");
    let bad = cluster.ok(&["submit", &cluster.path("bad").to_string_lossy(), "main.py", "-m", "64M"]);
    assert_ne!(cluster.run(&["wait", &bad]).code, 0);
    assert_eq!(cluster.state(&bad), "failed");
    let words = cluster.run(&["logs", &bad]);
    assert!(format!("{words:?}").contains("no-such-package-of-hostler"), "{words:?}");
}
