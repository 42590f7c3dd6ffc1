//! Environment variables of jobs.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use hostler_core::agent::RunLaunch;
use hostler_model::{Environment, JobSpec, NodeName, PartitionName, Work, text_of};
use hostler_proto::link::{Gang, Peer};
use hostler_shepherd::ranks;
use hostler_slurm::container_options::{PREFERRED, is_preferred};
use hostler_slurm::ids::{far_number, number};
use hostler_slurm::job_variables::{JobFacts, THREAD_VARIABLES, job_times, job_variables};
use hostler_sys::{LOGIN_PATH, known_owner_of_directory};
use nix::unistd::geteuid;

use crate::account::Account;
use crate::job_network;
use crate::provision::program_directory::ProgramDirectory;

/// Variables that the agent passes to projects, and to commands without an environment, if they run as the agent's own
/// user.
const INHERITED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Variables that the agent passes to the runs of every user of the node.
const OF_THE_NODE: [&str; 3] = ["LANG", "LC_ALL", "TZ"];

/// `PATH` if the agent has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `PATH` of jobs that set none. An agent of root runs its jobs as their users.
pub(crate) fn default_path() -> OsString {
    let of_agent = || std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    if geteuid().is_root() { LOGIN_PATH.into() } else { of_agent() }
}

/// The environment of a run, without the additions of a Python environment.
///
/// A command has the variables of its submitter. A project has the variables that its user requested, and a few
/// variables of the agent; with an `account`, the variables of a login replace the agent's. Hostler's own variables
/// override all others. Only jobs of Slurm's commands have variables with Slurm's names: MPI libraries that find some of them
/// expect a complete Slurm allocation.
///
/// With an image, its variables (`image`) replace those of the node, and for jobs of Slurm's commands those of the submitter.
///
/// `is_shared`: other nodes run on the same machine. `program_directory` becomes the last directory of `PATH`, so that
/// jobs find `hostler`.
pub(crate) fn environment(
    launch: &RunLaunch,
    node: &NodeName,
    is_shared: bool,
    account: Option<&Account>,
    program_directory: Option<&ProgramDirectory>,
    image: Option<&[(String, String)]>,
) -> Environment {
    let spec = launch.spec();
    let mut all = Environment::new();
    if let Some(image) = image {
        all.extend(of_image(image));
    } else if matches!(spec.work, Work::Project { .. }) || spec.environment.is_empty() {
        let inherited = if account.is_some() { &OF_THE_NODE[..] } else { &INHERITED[..] };
        all.extend(inherited.iter().filter_map(|name| Some(((*name).to_owned(), text_of(std::env::var_os(name)?)))));
    }
    all.extend(spec.environment.clone());
    if let Some(image) = image.filter(|_| is_slurm_job(spec)) {
        replace_by_image(spec, image, &mut all);
    }
    match account {
        Some(account) => log_in(account, &mut all),
        None => drop(all.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into())),
    }
    // An image does not have it.
    let directory = program_directory.filter(|_| image.is_none());
    let directory = directory.filter(|directory| directory.is_for_all || account.is_none());
    if let (Some(directory), Some(path)) = (directory, all.get_mut("PATH")) {
        *path = directory.appended_to(path);
    }
    all.extend(identity(launch, node).into_iter().map(|(name, value)| (name.to_owned(), value)));
    // Without a limit, numeric libraries start a thread for every CPU of the machine. The script of a job of Slurm's
    // commands may use all CPUs of the job; `srun` sets the variables for its tasks.
    if !is_slurm_job(spec) {
        let threads = (launch.placement.resources.cpus.len() / spec.tasks_per_node).max(1);
        for name in THREAD_VARIABLES {
            all.entry(name.into()).or_insert_with(|| threads.to_string());
        }
    }
    // Output goes to files, where Python would hold it back until the program ends.
    all.entry("PYTHONUNBUFFERED".into()).or_insert_with(|| "1".to_owned());
    if is_slurm_job(spec) {
        all.extend(of_slurm(launch, node).into_iter().map(|(name, value)| (name.to_owned(), value)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        all.extend(job_times(now, spec.time_limit_ms).map(|(name, value)| (name.to_owned(), value)));
    }
    for (name, value) in of_mpi(launch, is_shared) {
        all.entry(name.into()).or_insert(value);
    }
    all
}

/// The variables of an image.
fn of_image(image: &[(String, String)]) -> impl Iterator<Item = (String, String)> {
    let is_ours = |name: &str| name.starts_with("HOSTLER_") || name.starts_with("SLURM_");
    let usual = [("PATH".to_owned(), DEFAULT_PATH.to_owned())];
    usual.into_iter().chain(image.iter().filter(move |(name, _)| !is_ours(name)).cloned())
}

/// Replaces the submitter's variables by those of the image, as pyxis does, except for those that `--container-env` names.
fn replace_by_image(spec: &JobSpec, image: &[(String, String)], all: &mut Environment) {
    let preferred = spec.labels().find(|(label, _)| *label == PREFERRED).map_or("", |(_, names)| names);
    let replacing: Environment = of_image(image).filter(|(name, _)| !is_preferred(preferred, name)).collect();
    all.extend(replacing);
}

/// Whether a command with a name of Slurm submitted the job. Its programs expect Slurm's variables.
pub(crate) fn is_slurm_job(spec: &JobSpec) -> bool {
    spec.labels().any(|(name, _)| name.starts_with("slurm."))
}

/// Variables with Slurm's names.
fn of_slurm(launch: &RunLaunch, node: &NodeName) -> Vec<(&'static str, String)> {
    let (spec, held) = (launch.spec(), launch.placement.resources.counts());
    let run = launch.run();
    let gang = launch.placement.gang.as_ref();
    let nodes: Vec<String> = match gang {
        Some(gang) => gang.nodes.iter().map(|peer| peer.name.to_string()).collect(),
        None => vec![node.to_string()],
    };
    job_variables(&JobFacts {
        job: run.task.job.0,
        raw_id: task_number(launch),
        array_index: spec.array.as_ref().map(|_| run.task.index),
        nodes: &nodes,
        node: node.as_str(),
        node_rank: gang.map_or(0, |gang| gang.rank),
        ntasks: spec.labels().find(|(name, _)| *name == "slurm.ntasks").and_then(|(_, tasks)| tasks.parse().ok()),
        tasks_per_node: spec.tasks_per_node,
        cpus_per_node: held.cpus,
        memory_mib: held.memory_bytes >> 20,
        partition: spec.partition.as_ref().map(PartitionName::as_str),
        restarts: run.attempt.0.saturating_sub(1),
        gpus: held.gpus,
    })
}

/// A number for the run's task, which no other task of the cluster has.
pub(crate) fn task_number(launch: &RunLaunch) -> u64 {
    let task = launch.run().task;
    let Some(array) = &launch.spec().array else { return task.job.0 };
    match (launch.spec().numbers(), array.indices.position(task.index)) {
        (numbers @ 2.., Some(position)) => number(task.job.0, position, numbers),
        _ => far_number(task.job.0, task.index, array.indices.last().unwrap_or(task.index)),
    }
}

/// The CPUs that this process may use. Each look reads several files.
static PRESENT_CPUS: LazyLock<u32> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(u32::MAX, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
});

/// Variables for `mpirun` of Open MPI 4, and for PRRTE, the launcher of Open MPI 5.
fn of_mpi(launch: &RunLaunch, is_shared: bool) -> Vec<(&'static str, String)> {
    let (spec, cpus) = (launch.spec(), launch.placement.resources.cpus.len());
    let mut all = Vec::new();
    let ranks = if spec.first_node {
        spec.tasks_per_node
    } else {
        // As many slots as CPUs; by default Open MPI counts cores, which may be fewer. With steps, a list of nodes
        // contains the slots.
        let slots = cpus.to_string();
        all.push(("OMPI_MCA_orte_set_default_slots", slots.clone()));
        all.push(("PRTE_MCA_prte_set_default_slots", slots));
        cpus.max(spec.tasks_per_node)
    };
    // Waiting ranks use a full CPU unless they yield. `mpirun` enables that only if it starts more ranks than slots. It
    // does not know about fewer CPUs than slots, or about other ranks on the same CPUs.
    if is_shared || ranks > cpus.min(*PRESENT_CPUS) {
        all.push(("OMPI_MCA_mpi_yield_when_idle", "1".to_owned()));
    }
    all
}

/// Variable with the port on the first node at which the run's processes can connect to each other.
pub(crate) fn meeting_port(port: u16) -> Vec<(OsString, OsString)> {
    vec![("MASTER_PORT".into(), port.to_string().into())]
}

/// Variables about the nodes of a run and this node's rank.
fn places(launch: &RunLaunch, node: &NodeName) -> Vec<(&'static str, String)> {
    let alone = Gang { rank: 0, nodes: vec![Peer { name: node.clone(), address: Some(Ipv4Addr::LOCALHOST.into()) }] };
    let gang = launch.placement.gang.as_ref().unwrap_or(&alone);
    let spec = launch.spec();
    let names = gang.nodes.iter().map(|peer| peer.name.to_string()).collect::<Vec<_>>().join(",");
    let address = |(rank, peer): (u32, &Peer)| {
        let known = job_network::address(launch, rank, peer);
        known.map_or_else(|| peer.name.to_string(), |address| address.to_string())
    };
    let mut all = vec![
        ("HOSTLER_NODES", gang.nodes.len().to_string()),
        ("HOSTLER_NODE_RANK", gang.rank.to_string()),
        ("HOSTLER_NODE_LIST", names),
        ("HOSTLER_TASKS_PER_NODE", spec.tasks_per_node.to_string()),
        ("HOSTLER_WORLD_SIZE", spec.world_size().to_string()),
    ];
    // Programs regard these variables as a sign that they are one of several processes.
    if spec.world_size() > 1 {
        all.push(("HOSTLER_NODE_ADDRESSES", (0..).zip(&gang.nodes).map(address).collect::<Vec<_>>().join(",")));
        all.push(("MASTER_ADDR", gang.nodes.first().map_or_else(String::new, |first| address((0, first)))));
        if spec.tasks_per_node == 1 && !spec.first_node {
            all.extend(ranks::variables(u64::from(gang.rank), 0, spec.world_size()));
        }
    }
    all
}

/// Adds the variables of a login to `all`. `USER` and `LOGNAME` replace the submitter's values, which may come from
/// another machine.
fn log_in(account: &Account, all: &mut Environment) {
    for name in ["USER", "LOGNAME"] {
        all.insert(name.into(), account.name.clone());
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let defaults = [("HOME", text(&account.home)), ("SHELL", text(&account.shell)), ("PATH", LOGIN_PATH.to_owned())];
    for (name, value) in defaults {
        all.entry(name.into()).or_insert(value);
    }
    // Other paths are not checked: their disk may hang, and this may be the runtime's only thread. The user may also mount
    // a file system here.
    let usual = Path::new("/run/user").join(account.ids.uid.to_string());
    let is_theirs =
        |directory: &String| Path::new(directory) == usual && known_owner_of_directory(&usual) == Some(account.ids.uid);
    if !all.get("XDG_RUNTIME_DIR").is_some_and(is_theirs) {
        all.remove("XDG_RUNTIME_DIR");
    }
}

/// Variables that describe the job.
fn identity(launch: &RunLaunch, node: &NodeName) -> Vec<(&'static str, String)> {
    let (spec, held) = (launch.spec(), launch.placement.resources.counts());
    let task = launch.run().task;
    let mut all = vec![
        ("HOSTLER_JOB_ID", task.job.to_string()),
        ("HOSTLER_JOB_NAME", spec.name.to_string()),
        ("HOSTLER_ATTEMPT", launch.run().attempt.to_string()),
        ("HOSTLER_NODE", node.to_string()),
        ("HOSTLER_CPUS", held.cpus.to_string()),
        ("HOSTLER_CPU_IDS", launch.placement.resources.cpus.to_string()),
        ("HOSTLER_MEMORY_BYTES", held.memory_bytes.to_string()),
        ("HOSTLER_USER", launch.job.user.clone()),
    ];
    if !held.counted.is_empty() {
        all.push(("HOSTLER_RESOURCES", held.counted.to_string()));
    }
    if let Some(partition) = &spec.partition {
        all.push(("HOSTLER_PARTITION", partition.to_string()));
    }
    all.extend(places(launch, node));
    if spec.array.is_some() {
        all.push(("HOSTLER_ARRAY_INDEX", task.index.to_string()));
        all.push(("HOSTLER_ARRAY_LEN", launch.job.array_len.to_string()));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::account::Ids;

    #[test]
    fn runtime_directory_is_kept_only_at_its_standard_path() {
        let elsewhere = tempfile::tempdir().expect("a temporary directory can be made");
        let uid = std::fs::metadata(elsewhere.path()).expect("the path exists").uid();
        let ids = Ids { uid, gid: 0, groups: Vec::new() };
        let account = Account { name: "ada".into(), ids, home: "/home/ada".into(), shell: "/bin/sh".into() };
        let kept = |directory: &Path| {
            let mut all = Environment::new();
            all.insert("XDG_RUNTIME_DIR".into(), directory.to_str().expect("text").into());
            log_in(&account, &mut all);
            all.contains_key("XDG_RUNTIME_DIR")
        };
        assert!(!kept(elsewhere.path()), "a directory elsewhere is dropped, even if the user owns it");
        let usual = format!("/run/user/{uid}");
        let is_there = std::fs::metadata(&usual).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid);
        assert_eq!(kept(Path::new(&usual)), is_there);
        assert!(!kept(Path::new("/run/user/4000000001")), "another user's directory is dropped");
    }
}
