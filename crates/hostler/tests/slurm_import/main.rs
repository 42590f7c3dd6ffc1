//! `hostler import slurm` on real clusters, with configurations of a classroom, a lab and a computing centre, and beside a real Slurm.

mod real_slurm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_testkit::{Cluster, Outcome, SharedCluster, Size, SlurmNames, hide_people_for_this_thread};
use serde_json::{Value, json};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const NOTHING_TO_DO: &str = "nothing to do: the cluster has all of these settings\n";

/// A file beside this one.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm_import").join(name);
    path.to_str().expect("text").to_owned()
}

fn up(nodes: u32) -> SlurmNames {
    hide_people_for_this_thread();
    SlurmNames::up(HOSTLER, Size { nodes, cpus: 1, memory: "900M" })
}

/// Everything that an import may change.
fn state(cluster: &Cluster) -> Value {
    let ask = |words: &[&str]| cluster.json(words);
    let nodes = ask(&["nodes"]);
    let node = |node: &Value| json!([node["name"], node["features"], node["weight"], node["reason"]]);
    json!({
        "settings": ask(&["configure", "setting"]),
        "partitions": ask(&["configure", "partition", "list"]),
        "users": ask(&["configure", "user", "list"]),
        "groups": ask(&["configure", "group", "list"]),
        "nodes": nodes.as_array().expect("nodes").iter().map(node).collect::<Vec<_>>(),
    })
}

/// Runs a command that must succeed, and returns stdout.
fn slurm(site: &SlurmNames, name: &str, arguments: &[&str]) -> String {
    let outcome = site.run(name, arguments);
    assert_eq!(outcome.code, 0, "{name} {arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

/// The value of `key` in a record of `scontrol show`.
fn value(record: &str, key: &str) -> String {
    let found = record.split_whitespace().find_map(|word| word.strip_prefix(&format!("{key}=")));
    found.unwrap_or_else(|| panic!("{key} is not in {record}")).to_owned()
}

/// The commands that an import made, or would make.
fn changes(document: &Value) -> Vec<String> {
    let changes = document["changes"].as_array().expect("changes").iter();
    changes.map(|change| change.as_str().expect("a command").to_owned()).collect()
}

#[test]
fn classroom_is_imported() {
    let site = up(3);
    let file = fixture("classroom/slurm.conf");
    let before = state(&site.cluster);
    let plan = site.cluster.run(&["import", "slurm", &file, "--dry-run"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert_eq!(plan.stdout.lines().count(), 4, "only commands: {}", plan.stdout);
    assert!(
        plan.stderr.starts_with("not taken over: ClusterName, ") && plan.stderr.contains(", AuthType, "),
        "{}",
        plan.stderr
    );
    assert!(plan.stderr.ends_with("4 changes to make; nothing was changed\n"), "{}", plan.stderr);
    assert_eq!(state(&site.cluster), before, "a dry run changes nothing");

    let done = site.cluster.run(&["import", "slurm", &file]);
    assert!(done.code == 0 && done.stderr.ends_with("made 4 changes\n"), "{}", done.stderr);
    let after = state(&site.cluster);
    let lesson = slurm(&site, "scontrol", &["show", "partition", "-o", "lesson"]);
    for (key, text) in
        [("Default", "YES"), ("MaxTime", "00:30:00"), ("Nodes", "n[1-2]"), ("State", "UP"), ("AllowGroups", "ALL")]
    {
        assert_eq!(value(&lesson, key), text, "{lesson}");
    }
    let sinfo = slurm(&site, "sinfo", &["-h", "-o", "%P %l %L %D %N"]);
    assert_eq!(sinfo, "homework 1-00:00:00 1:00:00 3 n[1-3]\nlesson* 30:00 n/a 2 n[1-2]\n");
    let setting = |name: &str| site.cluster.json(&["configure", "setting", name])["value"].clone();
    assert_eq!([setting("grace"), setting("default-memory"), setting("policy")], ["20s", "256M", "easy"]);
    let refused = site.run("sbatch", &["-t", "45", "--wrap", "true"]);
    assert!(refused.code == 1 && refused.stderr.contains("time limit"), "{}", refused.stderr);
    let job = slurm(&site, "sbatch", &["--parsable", "-p", "homework", "-t", "45", "--wrap", "true"]);
    let record = slurm(&site, "scontrol", &["show", "job", "-o", job.trim()]);
    assert_eq!((value(&record, "TimeLimit"), value(&record, "MinMemoryNode")), ("00:45:00".into(), "256M".into()));

    let again = site.cluster.run(&["import", "slurm", &file]);
    assert!(again.code == 0 && again.stderr.ends_with(NOTHING_TO_DO), "{}", again.stderr);
    let document = site.cluster.json(&["import", "slurm", &file]);
    assert_eq!((&document["changes"], &document["applied"]), (&json!([]), &json!(true)));
    site.cluster.wait_for_state(job.trim(), "completed");
    assert_eq!(state(&site.cluster), after, "the second import changes nothing");
}

#[test]
fn lab_is_imported_with_features_weights_and_users() {
    let site = up(4);
    let (file, dump) = (fixture("lab/slurm.conf"), fixture("lab/accounts.dump"));
    let arguments = ["import", "slurm", &file, "--accounts", &dump];
    let document = site.cluster.json(&[&arguments[..], &["--dry-run"]].concat());
    let planned = changes(&document);
    assert_eq!((document["applied"].clone(), document["compared"].clone()), (json!(false), json!(true)));
    let document = site.cluster.json(&arguments);
    assert_eq!(changes(&document), planned, "an import does what the dry run says");
    assert!(document["not_taken"].as_array().expect("keys").contains(&json!("PriorityType")), "{document}");

    // Slurm's own commands show it as before.
    let gpu = slurm(&site, "scontrol", &["show", "partition", "-o", "gpu"]);
    for (key, text) in [
        ("AllowGroups", "laser,lens"),
        ("PriorityTier", "10"),
        ("MaxTime", "7-00:00:00"),
        ("Nodes", "n4"),
        ("Default", "NO"),
    ] {
        assert_eq!(value(&gpu, key), text, "{gpu}");
    }
    let debug = slurm(&site, "scontrol", &["show", "partition", "-o", "debug"]);
    for (key, text) in [("PriorityTier", "100"), ("MaxTime", "00:15:00"), ("MaxNodes", "1"), ("DefaultTime", "NONE")] {
        assert_eq!(value(&debug, key), text, "{debug}");
    }
    assert_eq!(value(&slurm(&site, "scontrol", &["show", "partition", "-o", "old"]), "State"), "DRAIN");
    assert_eq!(value(&slurm(&site, "scontrol", &["show", "partition", "-o", "batch"]), "Nodes"), "n[1-4]");
    let weights = slurm(&site, "sinfo", &["-h", "-N", "-p", "batch", "-o", "%N %w"]);
    assert_eq!(weights, "n1 10\nn2 10\nn3 20\nn4 100\n");
    let features = value(&slurm(&site, "scontrol", &["show", "node", "-o", "n3"]), "AvailableFeatures");
    for feature in ["ib", "scratch", "zen3"] {
        assert!(features.split(',').any(|word| word == feature), "{features}");
    }
    let drained = slurm(&site, "sinfo", &["-h", "-R", "-o", "%n %E"]);
    assert_eq!(drained, "n4 broken fan, ask Kim\n");
    let job = slurm(&site, "srun", &["-C", "scratch", "--mem=64", "sh", "-c", "echo $HOSTLER_NODE $HOSTLER_PARTITION"]);
    assert_eq!(job, "n3 batch\n", "the constraint and the default partition count");
    let refused = site.run("sbatch", &["-p", "debug", "-t", "20", "--wrap", "true"]);
    assert!(refused.code == 1 && refused.stderr.contains("time limit"), "{}", refused.stderr);

    // Users, groups and quotas.
    let users = site.cluster.json(&["configure", "user", "list"]);
    let user =
        |name: &str| users.as_array().expect("users").iter().find(|user| user["name"] == name).expect(name).clone();
    assert_eq!((&user("bjarne")["role"], &user("bjarne")["quota"]["cpus"]), (&json!("operator"), &json!(2)));
    assert_eq!(user("chidi")["groups"], json!(["laser", "ultrafast"]));
    let groups = site.cluster.json(&["configure", "group", "list"]);
    assert_eq!(groups[0]["name"], "laser");
    assert_eq!((&groups[0]["quota"]["cpus"], &groups[0]["quota"]["memory_bytes"]), (&json!(6), &json!(3_u64 << 30)));

    let after = state(&site.cluster);
    let again = site.cluster.run(&arguments);
    assert!(again.code == 0 && again.stderr.ends_with(NOTHING_TO_DO), "{}", again.stderr);
    site.cluster.ok(&["import", "slurm", &file]);
    assert_eq!(state(&site.cluster), after, "an import without accounts leaves users as they are");
}

#[test]
fn printed_commands_do_the_same_as_the_import() {
    let site = up(4);
    let (file, dump) = (fixture("lab/slurm.conf"), fixture("lab/accounts.dump"));
    let arguments = ["import", "slurm", &file, "--accounts", &dump];
    let plan = site.cluster.run(&[&arguments[..], &["--dry-run", "--quiet"]].concat());
    assert_eq!((plan.code, plan.stderr.as_str()), (0, ""), "only data is printed");
    assert_eq!(plan.stdout.lines().count(), 18, "{}", plan.stdout);
    let links = site.cluster.path("bin");
    fs::create_dir(&links).expect("new");
    std::os::unix::fs::symlink(HOSTLER, links.join("hostler")).expect("new");
    let mut shell = Command::new("sh");
    for (name, value) in site.cluster.command(&[]).get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let path = format!("{}:{}", links.display(), std::env::var("PATH").expect("PATH is set"));
    let output = shell.env("PATH", path).args(["-e", "-c", &plan.stdout]).output().expect("sh starts");
    let outcome = Outcome::of(&output);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let after = state(&site.cluster);
    let import = site.cluster.run(&arguments);
    assert!(import.code == 0 && import.stderr.ends_with(NOTHING_TO_DO), "{}\n{}", import.stdout, import.stderr);
    assert_eq!(state(&site.cluster), after);
}

#[test]
fn centre_is_imported_and_its_nodes_join_later() {
    let site = up(2);
    let file = fixture("centre/slurm.conf");
    let done = site.cluster.run(&["import", "slurm", &file]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(
        done.stderr.contains("note: 677 nodes have not joined yet: c[0001-0600],cloud[001-050],"),
        "{}",
        done.stderr
    );
    let names = slurm(&site, "sinfo", &["-h", "-a", "-o", "%R %a %l %g"]);
    for line in [
        "main up 2-00:00:00 all",
        "short up 30:00 all",
        "gpu up 2-00:00:00 bio,ml",
        "admin up 2-00:00:00 root",
        "big up infinite all",
        "maint drain 2-00:00:00 all",
        "cloud down 2-00:00:00 all",
    ] {
        assert!(names.lines().any(|found| found == line), "{line} is not in\n{names}");
    }
    assert!(!names.contains("empty"), "{names}");
    assert_eq!(value(&slurm(&site, "scontrol", &["show", "partition", "-o", "admin"]), "Nodes"), "n[1-2]");
    assert!(site.cluster.run(&["import", "slurm", &file]).stderr.ends_with(NOTHING_TO_DO));

    // A node that joins later gets its features and weight from the next import.
    site.cluster.write(
        "late/slurm.conf",
        "NodeName=n[1-3] Feature=late Weight=7\nPartitionName=late Nodes=n[1-3] Default=YES\n",
    );
    let late = site.cluster.path("late/slurm.conf");
    let late = late.to_str().expect("text");
    let first = site.cluster.run(&["import", "slurm", late]);
    assert!(first.stderr.contains("note: 1 node has not joined yet: n3."), "{}", first.stderr);
    site.cluster.ok(&["node", "set", "n1", "--features", "late,own"]);
    site.cluster.ok(&["down"]);
    site.cluster.start(Size { nodes: 3, cpus: 1, memory: "900M" });
    let document = site.cluster.json(&["import", "slurm", late]);
    assert_eq!(changes(&document), ["hostler node set n3 --features late --weight 7"]);
    let nodes = site.cluster.json(&["node", "show", "n1"]);
    assert_eq!(nodes["assigned_features"], json!(["late", "own"]), "features that others set stay");
    assert_eq!(site.cluster.json(&["import", "slurm", late])["changes"], json!([]));
}

#[test]
fn bad_files_are_refused_and_change_nothing() {
    let site = up(1);
    let before = state(&site.cluster);
    let good = "NodeName=n1\nPartitionName=p Nodes=n1\n";
    let write = |name: &str, content: &[u8]| site.cluster.write(name, content).to_str().expect("text").to_owned();
    write("loop/b.conf", b"include c.conf\n");
    write("loop/c.conf", b"\nInclude b.conf\n");
    let elf = fs::read(HOSTLER).expect("readable");
    let big = format!("{good}{}", "# filler\n".repeat(1_200_000));
    let cases: Vec<(String, &str)> = vec![
        (write("empty.conf", b""), "empty.conf:1: no NodeName and no PartitionName line; this is not a slurm.conf"),
        (write("toml.conf", b"[nodes]\nn1 = { cpus = 2 }\n"), "toml.conf:1: `[nodes]` is not of the form Key=value"),
        (write("prose.conf", b"Dear admin,\nplease\n"), "prose.conf:1: `Dear` is not of the form Key=value"),
        (write("other.conf", b"ClusterName=x\n"), "other.conf:1: no NodeName and no PartitionName line"),
        (write("missing.conf", format!("{good}include absent.conf\n").as_bytes()), "missing.conf:3: cannot read "),
        (write("loop/slurm.conf", format!("{good}include b.conf\n").as_bytes()), "c.conf:2: b.conf includes itself"),
        (write("self.conf", b"include self.conf\n"), "self.conf:1: self.conf includes itself"),
        (write("binary.conf", &elf[..100_000]), "binary.conf:1: this is not a text file"),
        (write("big.conf", big.as_bytes()), "big.conf has more than 4 MiB"),
        (
            write("nodes.conf", b"NodeName=n[1-99999999]\n"),
            "nodes.conf:1: `1-99999999` stands for more than 65536 names",
        ),
        (
            write("value.conf", format!("{good}PartitionName=q Nodes=n1 MaxTime=never\n").as_bytes()),
            "value.conf:3: MaxTime=never is not a time",
        ),
        (site.cluster.path("none.conf").display().to_string(), "none.conf:1: cannot read "),
        (site.cluster.home().display().to_string(), ": cannot read "),
        ("/dev/zero".to_owned(), "/dev/zero has more than 4 MiB"),
    ];
    for (file, expected) in &cases {
        for more in [&["--dry-run"][..], &[]] {
            let outcome = site.cluster.run(&[&["import", "slurm", file], more].concat());
            assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{file}: {}", outcome.stderr);
            assert!(outcome.stderr.starts_with("error: the files have "), "{file}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(expected), "{file}: {}", outcome.stderr);
        }
    }
    // The accounts are checked as well.
    let file = write("slurm.conf", good.as_bytes());
    for (dump, expected) in [
        ("name,uid\nada,2000\n", "dump:1: a line has the form Kind - 'name':Key=value"),
        ("Cluster - 'c'\nUser - '-x'\n", "dump:2: `-x` is not a name of a user or group"),
    ] {
        let dump = write("dump", dump.as_bytes());
        let said = site.cluster.fails(&["import", "slurm", &file, "--accounts", &dump]);
        assert!(said.contains(expected), "{said}");
    }
    // What the head refuses comes first, so nothing else was changed.
    let dump = write("dump", b"Cluster - 'c'\nUser - 'ada@n1'\n");
    let said = site.cluster.fails(&["import", "slurm", &file, "--accounts", &dump]);
    assert!(said.contains("ada@n1") && said.contains("hint: nothing was changed in the cluster"), "{said}");
    assert_eq!(state(&site.cluster), before);

    let json = site.cluster.run(&["import", "slurm", &cases[4].0, "--json"]);
    let error: Value = serde_json::from_str(&json.stderr).expect("JSON");
    assert_eq!((json.code, &error["error"]["exit"]), (2, &json!(2)));
}

#[test]
fn users_may_look_but_not_import() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let user = "games";
    let file = cluster.write(user, "slurm.conf", "NodeName=n1\nPartitionName=p Nodes=n1 Default=YES\nKillWait=3\n");
    let file = file.to_str().expect("text");
    let plan = cluster.run(user, &["import", "slurm", file, "--dry-run"]);
    assert!(plan.code == 0 && plan.stderr.ends_with("2 changes to make; nothing was changed\n"), "{}", plan.stderr);
    let refused = cluster.run(user, &["import", "slurm", file]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    let text = "error: games is a user here; nothing was changed\nhint: these changes need an operator\n";
    assert_eq!(refused.stderr, text);
    let partitions = cluster.run(user, &["configure", "partition", "list", "--json"]);
    assert_eq!(partitions.stdout, "[]\n");
}

#[test]
fn without_a_cluster_there_is_a_plan() {
    let home = Cluster::none(HOSTLER);
    let file = fixture("classroom/slurm.conf");
    let plan = home.run(&["import", "slurm", &file, "--dry-run"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stderr.contains("note: no head was reached"), "{}", plan.stderr);
    let add = "hostler configure partition add lesson --nodes 'n[1-2]' --default yes --max-time 30m";
    assert!(plan.stdout.lines().any(|line| line == add), "{}", plan.stdout);
    let import = home.run(&["import", "slurm", &file]);
    assert_eq!((import.code, import.stdout.as_str()), (3, ""), "{}", import.stderr);
    let away = home.run(&["--head", "unix:/nowhere/head.sock", "import", "slurm", &file, "--dry-run", "--json"]);
    let document: Value = serde_json::from_str(&away.stdout).expect("JSON");
    assert_eq!((away.code, &document["compared"]), (0, &json!(false)));
}

/// A directory with a `slurm.conf`.
fn site_with(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("slurm.conf");
    fs::write(&path, text).expect("writable");
    (directory, path)
}
