//! `hostler jobs-folder`: projects that are copied into a folder run, and their results appear beside them. Needs root, and accounts
//! that every Debian has.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hostler_testkit::{Cluster, Running, SharedCluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Waits until a file has this text.
fn wait_for_text(path: &Path, text: &str) -> String {
    wait_until(&format!("{text:?} in {}", path.display()), 60, || read(path).filter(|found| found.contains(text)))
}

#[test]
fn complete_project_runs_and_its_results_appear_beside_it() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let project = cluster.path("jobs/project");
    let start = || Running::start(&mut cluster.command(&["jobs-folder", "jobs"]), &cluster.path("log"));
    // As a program may copy: the marker first, and the rest with pauses.
    cluster.write("jobs/project/submit", "");
    let watch = start();
    for part in 0..8 {
        cluster.write(&format!("jobs/project/part-{part}"), "data");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    cluster.write("jobs/project/main.sh", "cat part-* > all; echo \"$1\"; [ \"$2\" = good ]");
    let order =
        |last: &str| format!("entrypoint = 'main.sh'\nargs = ['--first', '{last}']\ncpus = 1\nmemory = '32M'\n");
    cluster.write("jobs/project/job.toml", order("good"));
    // Neither of these is a project.
    cluster.write("jobs/.upload/submit", "");
    cluster.write("jobs/other/main.sh", "");
    let status = project.join("status.txt");
    let said = wait_for_text(&status, "its results are in the folder `results`");
    assert!(said.starts_with("job 1: completed"), "{said}");
    let results = project.join("results/1");
    assert_eq!(read(&results.join("all")).as_deref(), Some("data".repeat(8).as_str()));
    assert_eq!(read(&results.join("stdout.log")).as_deref(), Some("--first\n"));
    assert!(!project.join("submit").exists());

    // A command that was killed at any time goes on where it was.
    cluster.write("jobs/project/job.toml", order("bad"));
    cluster.write("jobs/project/submit", "");
    drop(watch);
    let watch = start();
    wait_until("the second job", 60, || cluster.run(&["job", "2"]).stdout.contains("project").then_some(()));
    drop(watch);
    cluster.wait_for_state("2", "failed");
    let _watch = start();
    let is_over =
        |text: &String| text.contains("job 2: failed") && text.contains("its results are in the folder `results`");
    wait_until("the end of the second job", 60, || read(&status).filter(is_over));
    assert!(project.join("results/2/all").exists() && !project.join("results/2/part-0").exists());
    assert_eq!(cluster.run(&["job", "3"]).code, 4, "nothing was submitted twice");

    // A project that is submitted again while its job runs gets that job's results first.
    cluster.write("jobs/project/job.toml", order("good"));
    cluster.write("jobs/project/main.sh", "sleep 8; touch all");
    cluster.write("jobs/project/submit", "");
    wait_for_text(&status, "job 3: running");
    cluster.write("jobs/project/submit", "");
    wait_for_text(&status, "job 4: running");
    assert!(project.join("results/3/all").exists());
}

#[test]
fn project_with_a_mistake_gets_a_file_that_says_what_to_do() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("jobs/a/submit", "");
    cluster.write("jobs/b/submit", "");
    cluster.write("jobs/b/job.toml", "entrypoint = 'main.sh'\nmemori = '32M'\n");
    cluster.write("jobs/b/main.sh", "echo done");
    cluster.write("jobs/c/submit", "");
    cluster.write("jobs/c/job.toml", "entrypoint = 'main.sh'\n");
    cluster.write("jobs/d/submit", "");
    cluster.write("jobs/d/job.toml", "entrypoint = 'sh'\nmemory = '1000T'\n");
    let _watch = Running::start(&mut cluster.command(&["jobs-folder", "jobs"]), &cluster.path("log"));
    for (name, texts) in [
        ("a", ["there is no job.toml in the folder", "entrypoint = \"main.py\""]),
        ("b", ["'--memori'", "'--memory'"]),
        ("c", ["main.sh", "hint:"]),
        ("d", ["1000T", "copy the file `submit` again"]),
    ] {
        let said = wait_for_text(&cluster.path(&format!("jobs/{name}/error.txt")), "copy the file `submit` again");
        assert!(texts.iter().all(|text| said.contains(text)), "{name}: {said}");
        let marker = cluster.path(&format!("jobs/{name}/submit"));
        wait_until("the removal of the marker", 30, || (!marker.exists()).then_some(()));
    }
    assert_eq!(cluster.run(&["job", "1"]).code, 4, "nothing was submitted");
    cluster.write("jobs/b/job.toml", "entrypoint = 'main.sh'\nmemory = '32M'\n");
    cluster.write("jobs/b/submit", "");
    wait_for_text(&cluster.path("jobs/b/status.txt"), "its results are in the folder `results`");
    assert!(!cluster.path("jobs/b/error.txt").exists());
    assert!(cluster.fails(&["jobs-folder", "nowhere"]).contains("cannot use nowhere"));
}

#[test]
fn each_project_runs_as_the_user_who_owns_its_folder() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let jobs = cluster.path("jobs");
    fs::create_dir(&jobs).expect("the test's directory is empty");
    fs::set_permissions(&jobs, Permissions::from_mode(0o1777)).expect("just created");
    let folders: Vec<(&str, PathBuf)> = ["games", "news"].map(|user| (user, jobs.join(user))).into();
    for (user, folder) in &folders {
        cluster.write(user, "project/main.sh", "id -un > user");
        cluster.write(user, "project/job.toml", "entrypoint = 'main.sh'\nmemory = '32M'\n");
        cluster.write(user, "project/submit", "");
        fs::rename(cluster.home_of(user).join("project"), folder).expect("on one file system");
    }
    let _watch =
        Running::start(&mut cluster.command("root", &["jobs-folder", &jobs.to_string_lossy()]), &cluster.path("log"));
    for (user, folder) in &folders {
        wait_for_text(&folder.join("status.txt"), "its results are in the folder `results`");
        let results = fs::read_dir(folder.join("results")).expect("fetched").flatten().next().expect("one job").path();
        assert_eq!(read(&results.join("user")), Some(format!("{user}\n")));
        let owner = fs::metadata(folder).expect("exists").uid();
        assert_eq!(fs::metadata(results.join("user")).expect("exists").uid(), owner);
    }
}

#[test]
fn results_come_home_as_they_arrive_also_after_the_head_was_away() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.write("games", "project/main.sh", "echo $1 > result");
    let submit = |result: &str| cluster.ok("games", &["submit", "project", "main.sh", "-m", "32M", "--", result]);
    let first = submit("one");
    let mut watch = cluster.command("games", &["fetch", "--watch", "--to", "home"]);
    let _watch = Running::start(&mut watch, &cluster.path("log"));
    let home = cluster.home_of("games").join("home");
    wait_for_text(&home.join(first).join("result"), "one");
    cluster.kill_and_restart_head();
    let second = submit("two");
    wait_for_text(&home.join(second).join("result"), "two");
}
