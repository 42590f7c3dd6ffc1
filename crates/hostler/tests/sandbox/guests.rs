//! Sandboxed jobs of other users on a node whose agent is not root: they have the rights of the agent's user to files.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use hostler_testkit::{Outcome, SharedCluster, wait_until};

use crate::images::write_images;
use crate::{ADA, BOB, HOSTLER};

/// A third account.
const CLEO: &str = "lp";

/// A partition with a sandbox for all jobs, on the node `n2`, whose agent Ada runs.
fn lab(cluster: &mut SharedCluster) -> PathBuf {
    let directory = cluster.add_node_of(ADA, "n2");
    cluster.ok("root", &["configure", "partition", "add", "lab", "--nodes", "n2", "--sandbox", "always"]);
    directory
}

/// Runs a shell script of a user in a directory of the node. Returns what `hostler job` says of the ended job.
fn batch(cluster: &SharedCluster, user: &str, directory: &Path, script: &str) -> String {
    let (directory, wrap) = (format!("--chdir={}", directory.display()), format!("--wrap={script}"));
    let arguments = ["-p", "lab", "-c1", "--mem=32M", "--parsable", &directory, &wrap];
    let submitted = Outcome::of(&cluster.command(user, &arguments).arg0("sbatch").output().expect("it starts"));
    let id = submitted.stdout.trim().to_owned();
    assert!(!id.is_empty(), "{submitted:?}");
    let _ = cluster.run(user, &["wait", &id]);
    cluster.ok(user, &["job", &id])
}

/// Submits a project with one script to the partition.
fn submit(cluster: &SharedCluster, user: &str, script: &str, options: &[&str]) -> String {
    cluster.write(user, "folder/main.sh", script);
    let folder = cluster.home_of(user).join("folder").display().to_string();
    cluster.ok(user, &[&["submit", "-p", "lab", "-c", "1", "-m", "64M"], options, &[&folder, "main.sh"]].concat())
}

/// Waits until a job has made the file `started` in its folder. Returns the folder.
fn started(directory: &Path) -> PathBuf {
    wait_until("the job to run", 60, || {
        let works = fs::read_dir(directory.join("runs")).ok()?.flatten().map(|run| run.path().join("work"));
        works.into_iter().find(|work| work.join("started").exists())
    })
}

#[test]
fn job_of_another_user_gets_no_directory_of_the_user_of_the_agent() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let directory = lab(&mut cluster);
    let home = cluster.home_of(ADA);
    let running = submit(&cluster, CLEO, "touch started; until [ -e go ]; do sleep 0.05; done; cat secret", &[]);
    let work = started(&directory);
    let state = directory.parent().and_then(Path::parent).expect("below");
    let places = [
        home.join(".ssh"),
        home.join(".config/hostler/logins"),
        home.join("project"),
        state.join("head/trust"),
        state.join("nodes/n3/identity"),
        directory.join("runs"),
        work.clone(),
    ];
    for place in &places {
        let below = place.strip_prefix(&home).expect("in the home").display().to_string();
        cluster.write(ADA, &format!("{below}/secret"), "secret of ada\n");
        for place in [place.clone(), place.join("missing")] {
            let page = batch(&cluster, BOB, &place, "cat secret; echo changed > secret; touch made");
            let why =
                "the agent of node n2 runs as games, so a sandboxed job of news cannot use a directory of the node";
            assert!(page.contains(why) && page.contains("hostler submit"), "{}: {page}", place.display());
        }
        assert_eq!(fs::read_to_string(place.join("secret")).expect("there"), "secret of ada\n", "{}", place.display());
        assert!(!place.join("made").exists(), "{}", place.display());
    }
    // The usual way to run a command starts in the directory of the caller.
    let usual = cluster.run(BOB, &["run", "-p", "lab", "-m", "32M", "--", "true"]);
    assert!(usual.code != 0 && usual.stderr.contains("hostler submit DIR ENTRYPOINT"), "{usual:?}");

    // Images are not of the node either.
    let images = write_images(home.join("images"), None);
    for (image, why) in [
        (format!("oci:{}/oci:1", images.display()), "gets images from registries only"),
        (format!("docker-archive:{}/saved.tar", images.display()), "gets images from registries only"),
        (format!("dir:{}/root", images.display()), "a job of another user gets only the folder that the agent makes"),
        ("dir:../../other/work".to_owned(), "a job of another user gets only the folder that the agent makes"),
    ] {
        let id = submit(&cluster, BOB, "cat /etc/image", &["--image", &image]);
        let _ = cluster.run(BOB, &["wait", &id]);
        let page = cluster.ok(BOB, &["job", &id]);
        assert!(page.contains(why), "{image}: {page}");
        assert_eq!(cluster.ok(BOB, &["logs", &id]), "", "{image}");
    }

    // Projects run, with images in them. Of the home directory, only the way to the folder is there.
    let script = format!("hostname; pwd; touch here; ls -A {}", home.display());
    let id = submit(&cluster, BOB, &script, &[]);
    cluster.ok(BOB, &["wait", &id]);
    let told = cluster.ok(BOB, &["logs", &id]);
    assert!(told.starts_with("sandbox\n") && told.ends_with("/work\n.local"), "{told}");
    let images = write_images(cluster.home_of(BOB).join("folder/images"), None);
    // A link out of the project cannot be submitted.
    fs::remove_file(images.join("root/dev")).expect("there");
    let id = submit(&cluster, BOB, "cat /etc/image", &["--image", "dir:images/root"]);
    cluster.ok(BOB, &["wait", &id]);
    assert_eq!(cluster.ok(BOB, &["logs", &id]), "from the upper layer");

    fs::write(work.join("go"), "").expect("root may");
    cluster.ok(CLEO, &["wait", &running]);
    assert_eq!(cluster.ok(CLEO, &["logs", &running]), "secret of ada", "nobody has changed the running job's file");
}

#[test]
fn own_job_of_the_user_of_the_agent_gets_no_directory_with_keys_or_of_another_run() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let directory = lab(&mut cluster);
    let (home, hidden) = (cluster.home_of(ADA), "is in the hidden directory");
    let running = submit(&cluster, BOB, "touch started; until [ -e go ]; do sleep 0.05; done", &[]);
    let work = started(&directory);
    for file in
        [".ssh/key", ".config/hostler/logins/login", "cluster/trust/ca.key", "cluster/below/file", "project/file"]
    {
        cluster.write(ADA, file, "secret");
    }
    for (place, why) in [
        (home.clone(), "programs outside of the sandbox trust the files of"),
        (home.join(".ssh"), hidden),
        (home.join(".config/hostler/logins"), hidden),
        // A head whose admin has chosen the directory.
        (home.join("cluster/below"), "a head or an agent keeps its state there"),
        (directory.join("identity"), "where an agent keeps its state"),
        (directory.join("runs"), "programs outside of the sandbox trust the files of"),
        (work.clone(), "where an agent keeps its state"),
    ] {
        let page = batch(&cluster, ADA, &place, "touch made");
        assert!(page.contains(why), "{}: {page}", place.display());
        assert!(!place.join("made").exists(), "{}", place.display());
    }
    let page = batch(&cluster, ADA, &home.join("project"), "touch made");
    assert!(home.join("project/made").exists(), "{page}");
    fs::write(work.join("go"), "").expect("root may");
    cluster.ok(BOB, &["wait", &running]);
}
