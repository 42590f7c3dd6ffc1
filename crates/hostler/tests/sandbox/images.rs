//! Jobs with an image as root directory. The images contain a few programs of this machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_testkit::{Outcome, SharedCluster, wait_until};

use super::partitions::slurm;
use super::registry::Registry;
use super::{ADA, BOB, HOSTLER, ids};

const WRITER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sandbox/image.py");

/// Writes images into a directory of ADA's home.
fn images(cluster: &SharedCluster, name: &str, hostile: Option<&str>) -> PathBuf {
    write_images(cluster.home_of(ADA).join(name), hostile)
}

pub(super) fn write_images(directory: PathBuf, hostile: Option<&str>) -> PathBuf {
    let written = Command::new("python3").arg(WRITER).arg(&directory).args(hostile).status().expect("Python runs");
    assert!(written.success(), "{}", directory.display());
    let (root, (uid, gid)) = (directory.join("root"), ids(ADA));
    if root.exists() {
        chown(root, Some(uid), Some(gid)).expect("needs root");
    }
    directory
}

/// Runs a shell script of a user in an image.
fn run(cluster: &SharedCluster, user: &str, image: &str, script: &str) -> Outcome {
    cluster.run(user, &["run", "--image", image, "-m", "64M", "--", "sh", "-c", script])
}

/// What a job's log says about its preparation.
fn preparation(cluster: &SharedCluster, id: &str) -> String {
    cluster.run(ADA, &["logs", "--setup", id]).stderr
}

/// What the node has unpacked, and what it has not finished.
fn unpacked(cluster: &SharedCluster) -> (usize, usize) {
    let entries = fs::read_dir(cluster.path("agent/images")).expect("the agent has started");
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let (attempts, images): (Vec<String>, Vec<String>) = names.partition(|name| name.starts_with("attempt-"));
    (images.len(), attempts.len())
}

#[test]
fn job_in_an_image_has_the_image_its_folder_and_nothing_of_the_node() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let directory = images(&cluster, "images", None);
    let home = cluster.home_of(ADA);
    let (uid, _) = ids(ADA);
    let script = "cat /etc/image; echo $OF_IMAGE $PATH $HOSTLER_JOB_ID; id -un; id -u; pwd; ls /opaque; ls /etc/removed; \
                  ls -d /usr/bin/python3 /home/* /device; touch /etc/image /new /opaque/new; touch here /tmp/here; \
                  cat /etc/hosts; ls -d /dev/null /proc/self/exe /dev/sda /proc/removed; exit 7";
    let oci = format!("oci:{}/oci:1", directory.display());
    let told = run(&cluster, ADA, &oci, script);
    assert_eq!(told.code, 7, "{told:?}");
    let expected = |env: &str, hosts: &str| {
        format!(
            "from the upper layer\n{env}\n{ADA}\n{uid}\n{0}\nkept\n/home/{1}\n{hosts}/dev/null\n/proc/self/exe\n",
            home.display(),
            "",
        )
    };
    // The folder's parent directories are there, and empty.
    let hosts = "127.0.0.1 localhost sandbox\n::1 localhost\n";
    let without_home = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("/home/"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(without_home(&told.stdout), without_home(&expected("yes /bin 1", hosts)), "{told:?}");
    for refused in
        ["touch: cannot touch '/new': Read-only", "cannot touch '/opaque/new'", "'/etc/removed'", "'/device'"]
    {
        assert!(told.stderr.contains(refused), "{refused}: {}", told.stderr);
    }
    assert!(home.join("here").exists());
    let page = cluster.ok(ADA, &["job", "1"]);
    assert!(page.contains("sandbox    yes") && page.contains(&format!("image      {oci}")), "{page}");
    assert_eq!(unpacked(&cluster), (1, 0));
    assert!(preparation(&cluster, "1").contains("unpacked in"));

    // The same image in another form; a project; and a plain directory, which sets no variables.
    let saved = run(&cluster, ADA, "docker-archive:images/saved.tar", script);
    assert_eq!(
        (without_home(&saved.stdout), saved.code),
        (without_home(&expected("yes /bin 2", hosts)), 7),
        "{saved:?}"
    );
    assert_eq!(unpacked(&cluster), (1, 0), "both forms have the same id");
    assert!(preparation(&cluster, "2").contains("found in the cache"));
    let plain = run(&cluster, ADA, "dir:images/root", "cat /etc/image; ls /opaque; echo $PATH; touch /new || exit 8");
    assert!(plain.stdout.starts_with("from the upper layer\nkept\n/usr/local/sbin:"), "{plain:?}");
    assert_eq!(plain.code, 8);
    cluster.write(ADA, "folder/main.sh", "cat /etc/image > result; cat given");
    cluster.write(ADA, "folder/given", "given");
    cluster.write(ADA, "folder/requirements.txt", "no-such-package-in-any-index");
    let folder = home.join("folder");
    let id =
        cluster.ok(ADA, &["submit", "--image", &oci, "-c", "1", "-m", "64M", &folder.to_string_lossy(), "main.sh"]);
    cluster.ok(ADA, &["wait", &id]);
    assert_eq!(cluster.ok(ADA, &["logs", &id]), "given");
    cluster.ok(ADA, &["fetch", &id, "--to", "results"]);
    let result = fs::read_to_string(home.join("results").join(&id).join("result")).expect("fetched");
    assert_eq!(result, "from the upper layer\n");

    // The entry point starts in the image's directory, as the user, and can write to the job's folder.
    let folder = format!("FOLDER={}", home.display());
    for (words, expected) in [(&[][..], "of the image"), (&["--entrypoint", "--", "a", "b"][..], "a b")] {
        let _ = fs::remove_file(home.join("made"));
        // Paths of files start in the job's folder nevertheless.
        let options = ["run", "--image", &oci, "-m", "64M", "--env", &folder, "--stdin", "folder/given"];
        let entered = cluster.run(ADA, &[&options, words].concat());
        assert_eq!((entered.stdout, entered.code), (format!("/opaque\n{uid}\n{expected}\n"), 0), "{}", entered.stderr);
        assert!(home.join("made").exists());
    }
    let without = cluster.run(ADA, &["run", "--image", "dir:images/root", "-m", "64M"]);
    assert!(without.code != 0 && without.stderr.contains("names no entry point"), "{without:?}");

    // Another user may use what ADA's image has become only with the image's files.
    let private = directory.join("oci/blobs");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("ours");
    let denied = run(&cluster, BOB, &oci, "cat /etc/image");
    assert!(denied.code == 126 || denied.code == 125 || denied.code == 1, "{denied:?}");
    assert!(!denied.stdout.contains("layer"), "{denied:?}");
    let bobs = cluster.home_of(BOB).join("oci");
    assert!(
        Command::new("cp").arg("-r").args([directory.join("oci"), bobs.clone()]).status().expect("cp runs").success()
    );
    fs::set_permissions(bobs.join("blobs"), fs::Permissions::from_mode(0o755)).expect("ours");
    let layer = fs::read_dir(bobs.join("blobs/sha256")).expect("readable").map(|entry| entry.expect("readable").path());
    let layer = layer.max_by_key(|path| fs::metadata(path).expect("readable").len()).expect("the lower layer");
    let content = fs::read(&layer).expect("readable");
    fs::write(&layer, b"forged").expect("ours");
    let forged = run(&cluster, BOB, "oci:oci", "cat /etc/image");
    assert!(!forged.stdout.contains("layer") && forged.code != 0, "{forged:?}");
    fs::write(&layer, content).expect("ours");
    assert_eq!(run(&cluster, BOB, "oci:oci", "cat /etc/image").stdout, "from the upper layer\n");
    assert_eq!(unpacked(&cluster), (1, 0));
}

#[test]
fn hostile_and_damaged_images_are_refused_and_leave_nothing() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    for (hostile, why) in [
        ("parent", "has `..` in its path"),
        ("through a link", "has `..` in its path"),
        ("exchanged", "has the digest sha256:"),
        ("bomb", "makes the layer larger than 32 GiB"),
    ] {
        let directory = images(&cluster, &hostile.replace(' ', "-"), Some(hostile));
        let image = format!("oci:{}/oci", directory.display());
        let id = cluster.ok(ADA, &["run", "--detach", "--image", &image, "-m", "64M", "--", "sh", "-c", "echo ran"]);
        assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0, "{hostile}");
        let page = cluster.ok(ADA, &["job", &id]);
        assert!(page.contains(why), "{hostile}: {page}");
        assert_eq!(cluster.ok(ADA, &["logs", "--stdout", &id]), "");
        assert_eq!(unpacked(&cluster), (0, 0), "{hostile}");
    }
    // A root file system of root's that only root may read, and an archive whose error message would be larger than any frame.
    let home = cluster.home_of(ADA);
    let (closed, long) = (home.join("closed"), home.join("long.tar"));
    fs::create_dir_all(closed.join("bin")).expect("writable");
    chown(&closed, Some(0), Some(0)).expect("needs root");
    let plain = cluster.write(ADA, "plain/file", "text").parent().expect("below").to_owned();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("ours");
    let write_long = "import io, json, sys, tarfile\n\
        data = json.dumps([{'Config': '\\1' * 600000, 'Layers': []}]).encode()\n\
        info = tarfile.TarInfo('manifest.json')\n\
        info.size = len(data)\n\
        tarfile.open(sys.argv[1], 'w').addfile(info, io.BytesIO(data))";
    let written = Command::new("python3").args(["-c", write_long]).arg(&long).status().expect("Python runs");
    assert!(written.success());
    for (image, why) in [
        ("dir:/", "it does not belong to user games"),
        ("dir:/usr", "the node's admin does not list it in `[images] directories` of agent.toml"),
        (&format!("dir:{}", plain.display()), "it has neither /usr nor /bin"),
        (&format!("dir:{}", closed.display()), "Permission denied"),
        ("oci:missing", "cannot read"),
        ("docker-archive:/etc/shadow", "Permission denied"),
        (&format!("docker-archive:{}", long.display()), "…"),
    ] {
        let id = cluster.ok(ADA, &["run", "--detach", "--image", image, "-m", "64M", "--", "sh", "-c", "echo ran"]);
        assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0, "{image}");
        let page = cluster.ok(ADA, &["job", &id]);
        assert!(page.contains(why), "{image}: {page}");
    }
    assert_eq!(cluster.ok(ADA, &["run", "-m", "64M", "--", "echo", "up"]), "up", "the node still takes jobs");
    let bare = cluster.run(ADA, &["run", "--image", "debian:12", "--", "true"]);
    assert!(bare.code == 2 && bare.stderr.contains("docker://debian:12"), "{bare:?}");
}

/// Prints the rights of a process, with the shell alone: its capabilities, and whether it can gain more or call everything.
const RIGHTS: &str = "while read key value; do case $key in CapBnd:) caps=$value ;; NoNewPrivs:) fixed=$value ;; \
     Seccomp:) echo rights $caps $fixed $value ;; esac; done < /proc/self/status";

/// Lines in alphabetical order: ranks and steps write at the same time.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_and_steps_run_in_the_image_of_their_job() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.add_node("n2");
    let root = images(&cluster, "images", None).join("root");
    let image = format!("dir:{}", root.display());
    // Nothing that the image has where the sandbox has this program may change its start, nor may a closed directory.
    let better = root.join("run/hostler/lib/glibc-hwcaps/x86-64-v2");
    fs::create_dir_all(&better).expect("writable");
    fs::write(better.join("libc.so.6"), "not a library").expect("writable");
    fs::set_permissions(root.join("run/hostler"), fs::Permissions::from_mode(0o700)).expect("ours");
    let run = |options: &[&str], words: &[&str]| {
        let usual = ["run", "--image", &image, "-c", "1", "-m", "64M"];
        cluster.run(ADA, &[&usual, options, &["--"], words].concat())
    };
    // The image lacks a library that this program needs. Its variables are for its own programs only.
    let unfit = ["--env", "LD_PRELOAD=/lib/none.so", "--env", "LD_LIBRARY_PATH=/opaque"];
    let script = format!(
        "echo $RANK of $WORLD_SIZE $LD_PRELOAD $LD_LIBRARY_PATH $HOSTLER_LD_PRELOAD; [ -e /usr/bin/python3 ] && echo of the node; \
         [ -e /run/hostler/lib/glibc-hwcaps ] && echo of the image; {RIGHTS}"
    );
    let ranks = run(&[&["-n", "2", "--label"], &unfit[..]].concat(), &["/bin/sh", "-c", &script]);
    let expected = [
        "0: 0 of 2 /lib/none.so /opaque",
        "0: rights 0000000000000000 1 2",
        "1: 1 of 2 /lib/none.so /opaque",
        "1: rights 0000000000000000 1 2",
    ];
    assert_eq!((sorted(&ranks.stdout), ranks.code), (expected.to_vec(), 0), "{}", ranks.stderr);
    assert_eq!(ranks.stderr.matches("cannot be preloaded").count(), 2, "once in each rank: {}", ranks.stderr);
    let several = run(&["-N", "2", "--network", "host"], &["sh", "-c", "echo $RANK; cat /etc/image"]);
    assert_eq!(sorted(&several.stdout), ["0", "1", "from the upper layer", "from the upper layer"], "{several:?}");

    // Steps find this program, under each of its names, and see the files of the job.
    let script = format!(
        "echo of the job > /tmp/job; hostler step --tasks 2 sh -c 'echo $RANK; cat /etc/image /tmp/job'; \
         hostler step --tasks 1 sh -c 'exit 5'; echo $?; $OMPI_MCA_plm_rsh_agent $HOSTLER_NODE cat /tmp/job; \
         hostler step --tasks 1 sh -c '{RIGHTS}'; touch /run/hostler/bin/x || id -u"
    );
    let steps = run(&[&["--first-node", "-n", "2"], &unfit[..]].concat(), &["sh", "-c", &script]);
    let uid = ids(ADA).0.to_string();
    let rights = "rights 0000000000000000 1 2";
    let mut expected = [
        "0",
        "1",
        "5",
        rights,
        "from the upper layer",
        "from the upper layer",
        "of the job",
        "of the job",
        "of the job",
        &uid,
    ];
    expected.sort_unstable();
    assert_eq!(sorted(&steps.stdout), expected, "{}", steps.stderr);
    let page = cluster.ok(ADA, &["job", "3"]);
    assert!(page.contains("\nSTEP "), "{page}");
    let several =
        run(&["-N", "2", "--network", "host", "--first-node"], &["sh", "-c", "hostler step --all cat /etc/image"]);
    assert_eq!(sorted(&several.stdout), ["n1: from the upper layer", "n2: from the upper layer"], "{several:?}");
}

#[test]
fn slurm_commands_run_jobs_in_images() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let home = cluster.home_of(ADA);
    let root = images(&cluster, "images", None).join("root");
    let slurm = |name: &str, words: &[&str]| slurm(&cluster, name, words);
    let image = format!("--container-image=dir:{}", root.display());
    // A second image would be the step's own, and the variable is one of the caller.
    let script = format!(
        "#!/bin/sh\n#SBATCH {image} --container-mounts=.\n#SBATCH -n2 --mem=64M --parsable -o batch.out\n\
         echo $PATH $OF_CALLER\nsrun -l cat /etc/image\nsrun {image} true\n\
         srun --container-name=x true\nscontrol show hostnames $SLURM_JOB_NODELIST\ntouch here\n"
    );
    // The `srun` of another cluster.
    fs::write(root.join("bin/srun"), "#!/bin/sh\necho of the image\n").expect("writable");
    fs::set_permissions(root.join("bin/srun"), fs::Permissions::from_mode(0o755)).expect("ours");

    cluster.write(ADA, "batch.sh", &script);
    let submitted = slurm("sbatch", &["--export=ALL,OF_CALLER=yes,PATH=/of/the/caller", "batch.sh"]);
    let id = submitted.stdout.trim();
    assert_eq!(cluster.run(ADA, &["wait", id]).code, 0, "{submitted:?}");
    let told = fs::read_to_string(home.join("batch.out")).expect("written");
    let (first, rest) = told.split_once('\n').expect("lines");
    assert_eq!(first, "/run/hostler/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin yes");
    let (refused, lines): (Vec<&str>, Vec<&str>) =
        sorted(rest).into_iter().partition(|line| line.starts_with("srun: "));
    assert_eq!(lines, ["0: from the upper layer", "1: from the upper layer", "n1"], "{told}");
    for why in ["--container-image is an option of whole jobs", "--container-name is not supported"] {
        assert!(refused.iter().any(|line| line.contains(why)), "{told}");
    }
    assert!(home.join("here").exists());

    let alone = slurm("srun", &[&image, "-n2", "-l", "--mem=64M", "sh", "-c", "cat /etc/image; exit $SLURM_PROCID"]);
    assert_eq!(sorted(&alone.stdout), ["0: from the upper layer", "1: from the upper layer"], "{alone:?}");
    assert_eq!(alone.code, 1, "{alone:?}");
    // The job has the variables already, and not on a command line that others see.
    let oci = format!("--container-image=oci:{}:1", home.join("images/oci").display());
    let script = "echo $OF_IMAGE $PATH $KEY";
    for (export, expected) in
        [("NONE", "yes /run/hostler/bin:/bin"), ("ALL,KEY=secret", "yes /run/hostler/bin:/bin secret")]
    {
        let told = slurm("srun", &[&oci, "--mem=64M", "--export", export, "sh", "-c", script]);
        assert_eq!((told.stdout.trim(), told.code), (expected, 0), "{export}: {told:?}");
    }
    let squashed = format!("--container-image={}", home.join("a.sqsh").display());
    for (name, words, why) in [
        ("salloc", &[&*image, "true"][..], "--container-image is an option of whole jobs"),
        ("srun", &[&image, "--pty", "true"], "--pty with --container-image"),
        ("srun", &[&image, "--container-mounts=/data:/data", "true"], "has only its folder"),
        ("sbatch", &[&image, "--container-writable", "--wrap=true"], "images are read-only"),
        ("sbatch", &[&squashed, "--wrap=true"], "squashfs images of enroot"),
    ] {
        let refused = slurm(name, words);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{name} {words:?}: {refused:?}");
    }
}

#[test]
fn image_of_a_registry_runs_and_is_found_in_the_cache() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let layout = images(&cluster, "images", None).join("oci");
    let open = Registry::serve(layout.clone(), None);
    let closed = Registry::serve(layout, Some("Basic nobody"));
    let image = format!("docker://{}/team/app:1", open.host);
    let unlisted = run(&cluster, ADA, &image, "true");
    assert!(unlisted.code != 0 && unlisted.stderr.contains("can list it in `[images] plain_http`"), "{unlisted:?}");
    let settings = format!("[images]\nregistries = []\nplain_http = [\"{}\", \"{}\"]\n", open.host, closed.host);
    fs::write(cluster.path("agent/agent.toml"), settings).expect("root may");
    cluster.kill_agent();
    cluster.start_agent();
    for (user, how) in [(ADA, "pulled and unpacked in"), (BOB, "found in the cache")] {
        let told = run(&cluster, user, &image, "cat /etc/image; id -un; echo $OF_IMAGE");
        assert_eq!(told.stdout, format!("from the upper layer\n{user}\nyes\n"), "{told:?}");
        let id = if user == ADA { "2" } else { "3" };
        let log = cluster.run(user, &["logs", "--setup", id]).stderr;
        let resolved = format!("image {image} is docker://{}/team/app@sha256:", open.host);
        assert!(log.contains(how) && log.contains(&resolved), "{log}");
    }
    assert_eq!(unpacked(&cluster), (1, 0));
    for (image, why) in [
        (
            "docker://registry.example/app".to_owned(),
            "the registry registry.example is not allowed: this node pulls no images",
        ),
        (format!("docker://{}/team/app:2", open.host), "has no image team/app:2"),
        (format!("docker://{}/team/app:1", closed.host), "demands a login; log in on the node"),
    ] {
        let id = cluster.ok(ADA, &["run", "--detach", "--image", &image, "-m", "64M", "--", "sh", "-c", "echo ran"]);
        assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0, "{image}");
        let page = cluster.ok(ADA, &["job", &id]);
        assert!(page.contains(why), "{image}: {page}");
        assert_eq!(cluster.ok(ADA, &["logs", "--stdout", &id]), "");
    }
}

#[test]
fn jobs_share_one_unpacking_and_a_killed_agent_leaves_no_incomplete_image() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let directory = images(&cluster, "images", Some("large"));
    let image = format!("oci:{}/oci", directory.display());
    let start = |cluster: &SharedCluster| {
        let arguments = ["run", "--detach", "--image", &image, "-c", "1", "-m", "64M", "--", "cat", "/etc/image"];
        cluster.ok(ADA, &arguments)
    };
    let interrupted = start(&cluster);
    // It may also have finished already.
    wait_until("the unpacking to begin", 60, || (unpacked(&cluster) != (0, 0)).then_some(()));
    cluster.kill_agent();
    cluster.start_agent();
    let _ = cluster.run(ADA, &["wait", &interrupted]);
    wait_until("the incomplete image to be removed", 60, || (unpacked(&cluster).1 == 0).then_some(()));

    let jobs = [start(&cluster), start(&cluster)];
    for id in &jobs {
        cluster.ok(ADA, &["wait", id]);
        assert_eq!(cluster.ok(ADA, &["logs", "--stdout", id]), "from the upper layer");
    }
    assert_eq!(unpacked(&cluster), (1, 0));
    let logs: String = jobs.iter().map(|id| preparation(&cluster, id)).collect();
    assert!(logs.contains("found in the cache") && logs.matches("unpacked in").count() <= 1, "{logs}");
}

/// A root file system of root, such as that of a service, may have the sockets of its servers in it.
#[test]
fn directory_of_root_is_an_image_only_if_the_admin_lists_it() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    // Below `/tmp`, others could exchange it.
    let place = tempfile::Builder::new().prefix("hostler-test-").tempdir_in("/opt").expect("root may");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let root = write_images(place.path().join("images"), None).join("root");
    chown(&root, Some(0), Some(0)).expect("needs root");
    fs::create_dir(root.join("service")).expect("ours");
    let socket = root.join("service/socket");
    let _server = UnixListener::bind(&socket).expect("ours");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("ours");
    let image = format!("dir:{}", root.display());
    let look = |cluster: &SharedCluster| run(cluster, ADA, &image, "cat /etc/image; ls /service");
    let refused = look(&cluster);
    let why = "it does not belong to user games, and the node's admin does not list it in `[images] directories`";
    assert!(refused.code == 126 && refused.stderr.contains(why), "{refused:?}");
    assert_eq!(refused.stdout, "");

    let list = |cluster: &mut SharedCluster, path: &Path| {
        let settings = format!("[images]\ndirectories = [\"/opt/hostler-test-missing\", \"{}\"]\n", path.display());
        fs::write(cluster.path("agent/agent.toml"), settings).expect("root may");
        cluster.kill_agent();
        cluster.start_agent();
    };
    list(&mut cluster, &root.join("service"));
    assert!(look(&cluster).stderr.contains(why), "only a part of it is listed");
    list(&mut cluster, place.path());
    assert_eq!(look(&cluster).stdout, "from the upper layer\nsocket\n", "all below is listed");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let unsafe_now = look(&cluster);
    assert!(unsafe_now.code == 126 && unsafe_now.stderr.contains("users other than root may change"), "{unsafe_now:?}");
}
