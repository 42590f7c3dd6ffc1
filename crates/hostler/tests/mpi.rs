//! Programs on several nodes, launched by `mpirun` or `hostler step`. Needs root, Open MPI and mpi4py.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, Daemon, Host, Network, Outcome, SharedCluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The Python for which Debian packages mpi4py.
const PYTHON: &str = "/usr/bin/python3";

/// An account without processes that every Debian has. `mpirun` refuses to run as root.
const USER: &str = "games";

/// Variables that let `mpirun` run as root.
const AS_ROOT: [&str; 4] = ["--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];

const SUM: &str = "\
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
line = f\"{world.rank} {world.size} {socket.gethostname()} {os.environ['HOSTLER_NODE']} {total}\"
# One write: mpirun passes on what comes as it comes, and print makes several of a line.
os.write(1, f'{line}\\n'.encode())
";

const RING: &str = "\
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, token = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), token *= 2;
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (!rank) {
        MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf(\"%d went round %d\\n\", token, size);
    }
    return MPI_Finalize();
}
";

/// A head and four nodes on their own hosts, with a hosts file, and without `ssh` and DNS.
struct Machines {
    head: Host,
    nodes: Vec<Host>,
    _daemons: Vec<Daemon>,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn new() -> Self {
        let network = Network::new(HOSTLER);
        let (head, daemon) = network.head();
        let mut daemons = vec![daemon];
        head.ok(&["sh", "-c", &format!("mkdir /home/{USER} && chown {USER} /home/{USER}")]);
        let mut nodes = Vec::new();
        for number in 1..=4 {
            let name = format!("n{number}");
            let host = network.host(&name);
            host.ok(&["chmod", "1777", "/tmp"]);
            host.join(&head);
            daemons.push(host.daemon("agent", &["hostler", "agent", "run"]));
            nodes.push(host);
        }
        let machines = Self { head, nodes, _daemons: daemons, _network: network };
        wait_until("all nodes up", 30, || {
            // A node is listed once it has connected.
            let nodes = machines.head.json(&["hostler", "nodes"]);
            let up = nodes.as_array().expect("a list").iter().filter(|node| node["state"] == "up").count();
            (up == machines.nodes.len()).then_some(())
        });
        machines
    }

    /// Runs a client command of the user on the head's host.
    fn run(&self, arguments: &[&str]) -> Outcome {
        let home = format!("HOME=/home/{USER}");
        let user = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env", &home, "hostler"];
        self.head.run(&[&user, arguments].concat())
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "{arguments:?}: {}{}", outcome.stdout, outcome.stderr);
        outcome.stdout.trim_end().to_owned()
    }

    /// Submits a folder with this shell script, on four nodes with two process slots each.
    fn submit(&self, script: &str) -> String {
        self.head.write(&format!("/home/{USER}/p/main.sh"), script);
        self.ok(&["submit", &format!("/home/{USER}/p"), "main.sh", "--first-node", "-N", "4", "-n", "2", "-m", "200M"])
    }

    /// Waits for the end of a job. Returns stdout of the first node and, in place of stderr, everything that Hostler
    /// reports about the job.
    fn ended(&self, id: &str) -> Outcome {
        let waited = self.run(&["wait", id]);
        let logs = self.run(&["logs", id]);
        let job = self.ok(&["job", id]);
        Outcome { code: waited.code, stdout: logs.stdout, stderr: format!("{}{}{job}", waited.stderr, logs.stderr) }
    }

    /// The number of processes with `text` in their command line, per node.
    fn processes(&self, text: &str) -> Vec<usize> {
        let count = |node: &Host| {
            // The brackets keep the search from matching itself.
            let (first, rest) = text.split_at(1);
            let search = format!("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -ao '[{first}]{rest}' | wc -l");
            node.ok(&["sh", "-c", &search]).trim().parse().expect("a number")
        };
        self.nodes.iter().map(count).collect()
    }
}

fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(' ').collect()).collect()
}

#[test]
fn mpirun_works_without_ssh() {
    let machines = Machines::new();
    let folder = machines.head.path(&format!("/home/{USER}/p"));
    machines.head.write(&format!("/home/{USER}/p/sum.py"), SUM);
    machines.head.write(&format!("/home/{USER}/p/ring.c"), RING);
    let is_open_mpi = Command::new("mpicc").arg("--showme:version").output().is_ok_and(|shown| shown.status.success());
    assert!(is_open_mpi, "mpicc in PATH is missing, or of another MPI than Open MPI");
    let compiled = Command::new("mpicc").args(["-o", "ring", "ring.c"]).current_dir(&folder).status();
    assert!(compiled.expect("mpicc is there").success());

    // Ranks are assigned to nodes in turn and form one program.
    let id = machines.submit(&format!("mpirun {PYTHON} sum.py\nmpirun ./ring\n"));
    let ended = machines.ended(&id);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (sums, ring): (Vec<_>, Vec<_>) = table(&ended.stdout).into_iter().partition(|words| words.len() == 5);
    assert_eq!(sums.len(), 8, "{ended:?}");
    let ranks: BTreeSet<&str> = sums.iter().map(|words| words[0]).collect();
    let hosts: BTreeSet<&str> = sums.iter().map(|words| words[2]).collect();
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["n1", "n2", "n3", "n4"]);
    assert!(sums.iter().all(|words| words[1] == "8" && words[2] == words[3] && words[4] == "36"), "{sums:?}");
    for host in ["n1", "n2", "n3", "n4"] {
        assert_eq!(sums.iter().filter(|words| words[2] == host).count(), 2, "{sums:?}");
    }
    assert_eq!(ring, [["128", "went", "round", "8"]], "{ended:?}");
    let job = machines.head.json(&["hostler", "job", &id]);
    let states: Vec<_> =
        job["tasks_shown"][0]["parts"].as_array().expect("one for each").iter().map(|part| &part["state"]).collect();
    assert_eq!(states, ["completed"; 4]);

    // If a rank dies, the program and the job end, and the job reports the rank.
    machines.head.write(
        &format!("/home/{USER}/p/dies.py"),
        "from mpi4py import MPI\nimport os\nif MPI.COMM_WORLD.rank == 5: os._exit(9)\nMPI.COMM_WORLD.Barrier()\n",
    );
    let id = machines.submit(&format!("mpirun {PYTHON} dies.py\n"));
    let ended = machines.ended(&id);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("was the first to fail: exit code 9"), "{ended:?}");
    assert!(ended.stderr.contains("non-zero") && ended.stderr.contains("node"), "the message of mpirun: {ended:?}");

    // After a cancellation, no process is left.
    machines.head.write(
        &format!("/home/{USER}/p/sleeps.py"),
        "from mpi4py import MPI\nimport time\nMPI.COMM_WORLD.Barrier()\ntime.sleep(600)\n",
    );
    let id = machines.submit(&format!("mpirun {PYTHON} sleeps.py\n"));
    wait_until("two ranks on each node", 60, || {
        machines.processes("sleeps.py").iter().all(|count| *count >= 2).then_some(())
    });
    machines.ok(&["cancel", &id]);
    let ended = machines.ended(&id);
    assert_ne!(ended.code, 0);
    for name in ["orted", "sleeps.py", "hostler steps", "hostler-rsh"] {
        assert_eq!(machines.processes(name), [0; 4], "{name} is left");
    }
}

#[test]
fn steps_pass_on_input_output_signals_and_exit_codes() {
    let machines = Machines::new();
    let script = "\
PATH=/run/bin:$PATH
echo $HOSTLER_NODE_LIST
echo a line | hostler step 1 cat
hostler step 2 sh -c 'echo out; echo err >&2; exit 7'; echo code $?
hostler step 3 sh -c 'kill -TERM $$'; echo code $?
head -c 5000000 /dev/zero | hostler step 1 wc -c
hostler step 1 sh -c 'trap \"echo caught; exit 3\" TERM; echo up; while :; do sleep 0.1; done' > signalled &
step=$!
while ! grep -q up signalled; do sleep 0.05; done
kill -TERM $step; wait $step; echo code $?; cat signalled
hostler step --all sh -c 'echo $HOSTLER_NODE_RANK $HOSTLER_NODE; [ $HOSTLER_NODE_RANK -lt 2 ] || exit $HOSTLER_NODE_RANK'; echo code $?
hostler step nowhere true; echo code $?
hostler step 1 /no/such/program; echo code $?
cat $HOSTLER_STEPS >/dev/null && stat -c %a-%U $HOSTLER_STEPS
hostler step 1 sh -c 'echo $$ > pid; exec sleep 600' & left=$!
hostler step 1 sh -c 'while [ ! -s pid ]; do sleep 0.05; done'
kill -9 $left
hostler step 1 sh -c 'while [ -d /proc/$(cat pid) ]; do sleep 0.05; done'; echo gone
hostler step --all stat -c %a-%U-%n $TMPDIR
";
    let id = machines.submit(script);
    let ended = machines.ended(&id);
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let names: Vec<&str> = lines[0].split(',').collect();
    let expected = ["a line", "out", "code 7", "code 143", "5000000", "code 3", "up", "caught"];
    assert_eq!(lines[1..9], expected, "{ended:?}");
    let mut all: Vec<&str> = lines[9..13].to_vec();
    all.sort_by_key(|line| line.split(' ').nth(1).map(ToOwned::to_owned));
    let of_each: Vec<String> = names.iter().enumerate().map(|(rank, name)| format!("{name}: {rank} {name}")).collect();
    assert_eq!(all, of_each);
    assert_eq!(lines[13..18], ["code 2", "code 2", "code 127", "600-games", "gone"], "{ended:?}");
    // On separate machines, the directory for temporary files has the same name on each node.
    let temporary: BTreeSet<&str> = lines[18..].iter().map(|line| line.split(": ").nth(1).expect("a label")).collect();
    let temporary = temporary.first().filter(|_| temporary.len() == 1 && lines.len() == 22).expect("one name");
    let path = temporary.strip_prefix("700-games-").expect("the user's alone");
    assert!(path.starts_with("/tmp/hostler-run-"), "{path}");
    for node in &machines.nodes {
        wait_until("the directory to be removed", 30, || (!node.path(path).exists()).then_some(()));
    }
    let words = [
        &format!("node {}: exit code 3", names[3])[..],
        "nowhere is not a node of this job",
        "cannot start /no/such/program",
        "err",
    ];
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
    // Outside a job that was started with --first-node, `hostler step` fails.
    let outside = machines.run(&["step", "1", "true"]);
    assert_eq!(outside.code, 125);
    assert!(
        outside.stderr.contains("HOSTLER_STEPS is not set") && outside.stderr.contains("--first-node"),
        "{outside:?}"
    );
}

#[test]
fn mpirun_works_on_virtual_nodes() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 4, cpus: 2, ..Size::default() });
    cluster.write("sum.py", SUM);
    let run = |more: &[&str]| {
        let begin = ["run", "--first-node", "-m", "200M"];
        cluster.run(&[&begin, &AS_ROOT, more].concat())
    };
    let outcome = run(&["-N", "4", "-n", "2", "mpirun", PYTHON, "sum.py"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let mut lines = table(&outcome.stdout);
    lines.sort_unstable();
    let nodes: BTreeSet<&str> = lines.iter().map(|words| words[3]).collect();
    assert_eq!((lines.len(), nodes.len()), (8, 4), "{lines:?}");
    assert!(lines.iter().all(|words| words[1] == "8" && words[4] == "36"), "{lines:?}");
    // `mpirun` and `hostler step` also work in a job on one node.
    let outcome = run(&["-n", "2", "mpirun", PYTHON, "sum.py"]);
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (0, 2), "{}", outcome.stderr);
    let outcome = run(&[HOSTLER, "step", "0", "sh", "-c", "exit 4"]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);

    // The example, run as its page describes.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mpi");
    let submit = ["submit", example, "main.sh", "--first-node", "-N", "4", "-n", "2", "-m", "200M"];
    let programs = std::path::Path::new(HOSTLER).parent().expect("the path has a parent").display();
    let path = format!("PATH={programs}:{}", std::env::var("PATH").expect("PATH is set"));
    let id = cluster.ok(&[&submit[..], &AS_ROOT, &["--env", &path]].concat());
    let waited = cluster.run(&["wait", &id]);
    let logs = cluster.run(&["logs", &id]);
    assert_eq!(waited.code, 0, "{}{}", waited.stderr, logs.stderr);
    assert!(
        logs.stdout.contains("pi is 3.14159265") && logs.stdout.contains("8 processes on 4 nodes"),
        "{}",
        logs.stdout
    );
}

#[test]
fn virtual_nodes_have_their_own_temporary_directories_and_whole_lines() {
    const LINES: usize = 300;
    // Leave room for one more job.
    let cluster = Cluster::up(HOSTLER, Size { nodes: 4, cpus: 2, ..Size::default() });
    // Some programs create sockets at long paths below the temporary directory.
    cluster.write(
        "bind.py",
        "import os, socket, sys\n\
         path = os.environ['TMPDIR'] + '/' + sys.argv[1]\n\
         os.makedirs(os.path.dirname(path))\n\
         socket.socket(socket.AF_UNIX).bind(path)\n",
    );
    let script = "\
hostler=$1
$hostler step --all sh -c 'echo $TMPDIR'
$hostler step --all python3 bind.py ray/session_2026-11-21_16-26-39_881232_1234567/sockets/plasma_store || exit 3
TMPDIR=/elsewhere $hostler step 1 sh -c 'echo 1: $TMPDIR'
TMPDIR=/elsewhere $hostler run --first-node -m 64M sh -c '[ -d $TMPDIR ] && echo 2: $TMPDIR'
$hostler run -m 64M sh -c 'echo 3: ${TMPDIR-none}'
$hostler step --all sh -c 'for line in $(seq 300); do printf \"line \"; printf \"$line \"; printf of; echo \" $HOSTLER_NODE\"; done'
";
    cluster.write("main.sh", script);
    let outcome = cluster.run(&["run", "--first-node", "-N", "4", "-m", "64M", "sh", "main.sh", HOSTLER]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let lines = table(&outcome.stdout);
    let (temporary, own): (BTreeSet<&str>, BTreeSet<&str>) =
        lines[..4].iter().map(|words| (words[1], words[0])).unzip();
    assert_eq!((temporary.len(), own.len()), (4, 4), "{:?}", &lines[..4]);
    assert_eq!(lines[4], ["1:", "/elsewhere"]);
    assert!(!temporary.contains(lines[5][1]) && lines[5][1] != "/elsewhere", "{:?}", lines[5]);
    assert_eq!(lines[6], ["3:", "none"]);
    for path in temporary.into_iter().chain([lines[5][1]]) {
        wait_until("the directory to be removed", 30, || fs::symlink_metadata(path).is_err().then_some(()));
    }
    // Pieces of lines from several nodes at the same time are joined.
    let mut counts = std::collections::BTreeMap::new();
    for words in &lines[7..] {
        let next: &mut usize = counts.entry(words[0]).or_default();
        *next += 1;
        assert_eq!(words[1..], ["line", &next.to_string(), "of", words[0].trim_end_matches(':')]);
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [LINES; 4]);

    let chosen =
        cluster.run(&["run", "--first-node", "--env", "TMPDIR=/mine", "-m", "64M", "sh", "-c", "echo $TMPDIR"]);
    assert_eq!(chosen.stdout, "/mine\n", "{}", chosen.stderr);
}

#[test]
fn other_users_cannot_start_steps_in_a_job() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let run = ["run", "--first-node", "-c", "1", "-m", "64M", "--", "sh", "-c"];
    let home = cluster.home_of(USER);
    let script =
        "ls $HOSTLER_STEPS && echo $HOSTLER_STEPS $TMPDIR > where.part && mv where.part where && exec sleep 60";
    let mut owner = cluster.command(USER, &[&run[..], &[script]].concat());
    let mut owner = owner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let steps = wait_until("the job to write the path of its key", 30, || fs::read_to_string(home.join("where")).ok());
    let (steps, temporary) = steps.trim().split_once(' ').expect("two paths");
    let allocation: serde_json::Value =
        serde_json::from_slice(&fs::read(steps).expect("root may")).expect("the file is JSON");
    let port = allocation["nodes"][0]["port"].as_u64().expect("a port");

    // Neither the file nor a process reveals the key, and connections without it are rejected.
    let spy = format!(
        "cat {steps}; ls $(dirname {steps}) {temporary}; HOSTLER_STEPS={steps} {HOSTLER} step 0 id; \
         cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c PRIVATE; \
         exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3; head -c 100 <&3 | wc -c"
    );
    let spied = cluster.run("news", &["run", "-c", "1", "-m", "64M", "--", "bash", "-c", &spy]);
    let lines: Vec<&str> = spied.stdout.lines().collect();
    assert_eq!(lines[0], "0", "no environment has a key: {spied:?}");
    assert!(lines[1].trim().parse::<u32>().expect("a number") < 20, "an alert at most: {spied:?}");
    assert_eq!(spied.stderr.matches("Permission denied").count(), 4, "{spied:?}");
    let begun = Instant::now();
    assert_eq!(cluster.run(USER, &["cancel", "1"]).code, 0);
    let _ = owner.wait();
    assert!(begun.elapsed() < Duration::from_secs(30));
    wait_until("the job's temporary files to be removed", 30, || (!Path::new(temporary).exists()).then_some(()));
}

#[test]
fn mpirun_works_in_a_job_on_one_node() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.write(USER, "sum.py", SUM);
    // The caller's shell is in a Slurm allocation, which must not affect the job.
    let run = |words: &[&str]| {
        let arguments = [&["run", "-c", "2", "-m", "300M", "--"][..], words].concat();
        let mut command = cluster.command(USER, &arguments);
        Outcome::of(&command.env("SLURM_JOB_ID", "7").env("SLURM_NTASKS", "1").output().expect("the program starts"))
    };
    let outcome = run(&["mpirun", "-np", "2", PYTHON, "sum.py"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let mut lines = table(&outcome.stdout);
    lines.sort_unstable();
    assert!(lines.len() == 2 && lines.iter().all(|words| words[1] == "2" && words[4] == "3"), "{lines:?}");
    let environment = run(&["env"]);
    assert!(!environment.stdout.contains("SLURM"), "{}", environment.stdout);
    assert!(environment.stdout.contains("\nOMPI_MCA_orte_set_default_slots=2\n"), "{}", environment.stdout);
    assert!(!environment.stdout.contains("yield_when_idle"), "two CPUs that are not shared");
    // There are exactly two slots.
    let outcome = run(&["mpirun", "-np", "3", "true"]);
    assert!(outcome.code != 0 && outcome.stderr.contains("not enough slots"), "{outcome:?}");
}

#[test]
fn ranks_yield_on_shared_cpus() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, cpus: 8, ..Size::default() });
    cluster.write("sum.py", SUM);
    let run = |more: &[&str]| {
        let begin = ["run", "-c", "8", "-m", "500M"];
        cluster.run(&[&begin[..], &AS_ROOT, &["--"], more].concat())
    };
    let outcome = run(&["mpirun", "-np", "8", PYTHON, "sum.py"]);
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (0, 8), "{outcome:?}");
    let outcome = run(&["sh", "-c", "echo $OMPI_MCA_mpi_yield_when_idle"]);
    assert_eq!(outcome.stdout, "1\n", "{outcome:?}");

    // The same for a job that the tool `cmrun` queues.
    let cmrun = cluster.path("cmrun");
    std::os::unix::fs::symlink(HOSTLER, &cmrun).expect("ours");
    let mut command = cluster.command(&[]);
    let mut command = {
        let variables: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
        let mut other = Command::new(cmrun);
        other
            .env_clear()
            .envs(variables)
            .current_dir(command.current_dir(cluster.home()).get_current_dir().expect("set"));
        other
    };
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").stdin(Stdio::null());
    let output = command
        .args(["--wait", "--num-cpus-per-node", "2", "--mem-per-node", "300", "mpirun", "-np", "2", PYTHON, "sum.py"])
        .output()
        .expect("the program starts");
    let outcome = Outcome::of(&output);
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (0, 2), "{outcome:?}");
}
