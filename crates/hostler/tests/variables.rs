//! Compares the table of environment variables in the reference with the variables of real jobs.

use std::collections::BTreeSet;

use hostler_testkit::{Cluster, Outcome, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const REFERENCE: &str = include_str!("../../../docs/reference/variables.md");

/// Variables that shells set, and those of the account, which come from the node or from the caller.
const OTHERS: [&str; 13] =
    ["_", "SHLVL", "OLDPWD", "PWD", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The cells of the tables of a section, without heads of columns.
fn rows(section: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, text) = REFERENCE.split_once(&format!("\n## {section}\n")).expect(section);
    let text = text.split("\n## ").next().unwrap_or(text);
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    text.lines().filter(|line| line.starts_with("| `")).map(cells)
}

/// The names in backticks of a cell, up to the first colon.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(':').next().unwrap_or(cell).split('`').skip(1).step_by(2)
}

/// The variables that the first table lists for a job, step or command of these kinds.
fn documented(kinds: &[&str]) -> BTreeSet<String> {
    let applies = |row: &Vec<&'static str>| row[2].split(", ").any(|kind| kinds.contains(&kind));
    rows("Variables that Hostler sets").filter(applies).flat_map(|row| names(row[0])).map(str::to_owned).collect()
}

/// Whether the second table lists the variable.
fn is_for_mpi(name: &str) -> bool {
    rows("Variables for MPI and Slurm").flat_map(|row| names(row[0])).any(|listed| match listed.strip_suffix('_') {
        Some(_) => name.starts_with(listed),
        None => name == listed,
    })
}

/// Compares the output of `env` with the documented variables for these kinds.
fn check(what: &str, outcome: &Outcome, kinds: &[&str], own: &[String]) {
    assert_eq!(outcome.code, 0, "{what}: {}", outcome.stderr);
    let expected = documented(kinds);
    let seen: BTreeSet<String> = outcome
        .stdout
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .filter(|name| expected.contains(name) || !(OTHERS.contains(&name.as_str()) || own.contains(name)))
        .filter(|name| !is_for_mpi(name))
        .collect();
    assert_eq!(seen, expected, "{what}: variables seen (left) and documented (right)");
}

#[test]
fn reference_lists_exactly_the_variables_of_each_kind_of_job() {
    let cluster = Cluster::none(HOSTLER);
    cluster.ok(&["up", "--nodes", "2", "--cpus", "2", "--memory", "1G", "--resource", "license=2"]);
    let run = |options: &[&str], program: &[&str]| {
        cluster.run(&[&["run", "-m", "16M", "--env-only", "PATH"], options, &["--"], program].concat())
    };
    let (all, several, each) = ("every job", "several processes", "each of several processes");
    let (first_node, projects) = ("`--first-node`", "projects");
    let with_tasks = [HOSTLER, "step", "--tasks", "2", "env"];
    let on_the_second = [HOSTLER, "step", "1", "env"];
    for (options, program, kinds) in [
        (&[][..], &["env"][..], &[all][..]),
        (&["--resource", "license"], &["env"], &[all, "`--resource`"]),
        (&["--pty", "--detach"], &["env"], &[all]),
        (&["-N", "2"], &["env"], &[all, several, each]),
        (&["-n", "2"], &["env"], &[all, several, each]),
        (&["-N", "2", "-n", "2"], &["env"], &[all, several, each]),
        (&["--first-node"], &["env"], &[all, first_node]),
        (&["--first-node", "-N", "2"], &["env"], &[all, several, first_node]),
        (&["--first-node", "-N", "2"], &with_tasks, &[all, several, first_node, each]),
        (&["--first-node", "-N", "2"], &on_the_second, &[all, several, first_node]),
    ] {
        let mut outcome = run(options, program);
        if options.contains(&"--detach") {
            let id = outcome.stdout.trim().to_owned();
            cluster.ok(&["wait", &id]);
            outcome = cluster.run(&["logs", &id]);
        }
        check(&format!("run {options:?} {program:?}"), &outcome, kinds, &[]);
    }

    let array = run(&["-a", "3-4", "--detach"], &["env"]).stdout.trim().to_owned();
    cluster.ok(&["wait", &array]);
    check("run -a", &cluster.run(&["logs", &format!("{array}_4")]), &[all, "arrays (`-a`)"], &[]);

    cluster.write("p/data", "");
    let project = cluster.ok(&["submit", &cluster.path("p").to_string_lossy(), "env", "-m", "16M"]);
    cluster.ok(&["wait", &project]);
    check("submit", &cluster.run(&["logs", &project]), &[all, projects], &[]);
    // An environment without packages needs no network.
    cluster.write("p/requirements.txt", "absent; python_version < '3'\n");
    let project = cluster.ok(&["submit", &cluster.path("p").to_string_lossy(), "env", "-m", "256M"]);
    cluster.ok(&["wait", &project]);
    let kinds = [all, projects, "projects with a Python environment"];
    check("submit with Python", &cluster.run(&["logs", &project]), &kinds, &[]);

    cluster.ok(&["configure", "partition", "add", "fast", "--nodes", "n1"]);
    check("run -p", &run(&["-p", "fast"], &["env"]), &[all, "partitions (`-p`)"], &[]);

    let exec = ["exec", "--node", "n2", "env"];
    let callers: Vec<String> =
        cluster.command(&exec).get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    let there = wait_until("n2 takes remote commands", 30, || Some(cluster.run(&exec)).filter(|it| it.code == 0));
    check("exec", &there, &["remote commands"], &callers);

    // A command of `alloc` runs outside of the nodes, with fewer variables.
    let held = cluster.run(&["alloc", "-m", "16M", "--", "env"]);
    assert_eq!(held.code, 0, "{}", held.stderr);
    let known = documented(&[all, several, first_node]);
    for name in held.stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)) {
        let is_callers = OTHERS.contains(&name) || callers.iter().any(|own| own == name);
        assert!(is_callers || is_for_mpi(name) || known.contains(name), "`alloc` sets {name}, which is not documented");
    }
    assert!(held.stdout.contains("HOSTLER_NODE_LIST=") && !held.stdout.contains("HOSTLER_NODE="), "{}", held.stdout);
}
