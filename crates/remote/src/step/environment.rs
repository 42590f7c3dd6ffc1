//! Environment variables and node lists for MPI launchers, and filters for variables that are valid on one node only.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::allocation::Place;

/// The name under which MPI launchers call this program instead of `ssh`, to start their daemons on other nodes.
pub const REMOTE_SHELL: &str = "hostler-rsh";

/// Directory of this program's names in a sandbox: the last one on the `PATH` of the job, and the first one in jobs of Slurm's
/// commands, since an image may have an `srun` of another cluster.
pub const COMMANDS_IN_IMAGE: &str = "/run/hostler/bin";

/// Name of the node list in Open MPI's format.
pub const HOSTFILE: &str = "hosts";

/// Name of the node list in Hydra's format, for MPICH and Intel MPI.
pub const MACHINEFILE: &str = "machines";

/// Extra Open MPI settings when all nodes of a run are on one machine.
///
/// Open MPI identifies machines by host name. By default, it would use shared memory between these nodes, although each
/// node assumes that it is alone on its machine. It would also search all networks except loopback.
const ON_ONE_MACHINE: [(&str, &str); 3] =
    [("OMPI_MCA_btl", "self,tcp"), ("OMPI_MCA_btl_tcp_if_include", "lo"), ("OMPI_MCA_oob_tcp_if_include", "lo")];

/// The variable that names the directory for temporary files.
pub const TEMPORARY: &str = "TMPDIR";

/// Variables that name the job's GPUs on a node.
const OF_GPUS: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// Returns the variables by which `mpirun` finds the nodes and its remote shell. `directory` holds the run's step
/// files.
///
/// Node names need not resolve, because [`REMOTE_SHELL`] knows the addresses. Inside a Slurm job, Open MPI and Hydra
/// could detect Slurm; the variables therefore name the launcher explicitly. The MPI daemons stay in the foreground,
/// so that they end with their launcher.
#[must_use]
pub fn launcher_variables(directory: &Path, nodes: &[Place]) -> Vec<(&'static str, String)> {
    let is_within = |node: &Place| node.address.is_some_and(|address| address.is_loopback());
    let mut all = by_name(directory);
    if nodes.len() > 1 && nodes.iter().all(is_within) {
        all.extend(ON_ONE_MACHINE.map(|(name, value)| (name, value.to_owned())));
    }
    all
}

/// The launcher variables that do not depend on the placement of the nodes.
fn by_name(directory: &Path) -> Vec<(&'static str, String)> {
    let file = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let yes = || "1".to_owned();
    vec![
        ("HOSTLER_HOSTFILE", file(HOSTFILE)),
        // Open MPI 4
        ("OMPI_MCA_plm", "rsh".to_owned()),
        ("OMPI_MCA_plm_rsh_agent", file(REMOTE_SHELL)),
        ("OMPI_MCA_ras", "^slurm".to_owned()),
        ("OMPI_MCA_orte_default_hostfile", file(HOSTFILE)),
        ("OMPI_MCA_orte_leave_session_attached", yes()),
        ("OMPI_MCA_orte_keep_fqdn_hostnames", yes()),
        ("OMPI_MCA_if_base_do_not_resolve", yes()),
        // Open MPI 5, by PRRTE
        ("PRTE_MCA_plm", "ssh".to_owned()),
        ("PRTE_MCA_plm_ssh_agent", file(REMOTE_SHELL)),
        ("PRTE_MCA_ras", "^slurm".to_owned()),
        ("PRTE_MCA_prte_default_hostfile", file(HOSTFILE)),
        ("PRTE_MCA_prte_leave_session_attached", yes()),
        ("PRTE_MCA_prte_keep_fqdn_hostnames", yes()),
        ("PRTE_MCA_prte_do_not_resolve", yes()),
        // MPICH
        ("HYDRA_LAUNCHER", "ssh".to_owned()),
        ("HYDRA_LAUNCHER_EXEC", file(REMOTE_SHELL)),
        ("HYDRA_HOST_FILE", file(MACHINEFILE)),
        // Intel MPI
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh".to_owned()),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", file(REMOTE_SHELL)),
        ("I_MPI_HYDRA_HOST_FILE", file(MACHINEFILE)),
    ]
}

/// Returns the node list in Open MPI's format, with this many slots per node.
#[must_use]
pub fn hostfile(nodes: &[Place], slots: u32) -> String {
    nodes.iter().map(|node| format!("{} slots={slots}\n", node.name)).collect()
}

/// Returns the node list in Hydra's format.
#[must_use]
pub fn machinefile(nodes: &[Place], slots: u32) -> String {
    nodes.iter().map(|node| format!("{}:{slots}\n", node.name)).collect()
}

/// Returns the caller's environment for another node. Drops `TMPDIR` if it names the run's temporary directory on the
/// caller's node.
pub(crate) fn for_another_node(
    callers: impl IntoIterator<Item = (OsString, OsString)>,
    temporary: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let is_of_the_run = |value: &OsStr| temporary.is_some_and(|path| path == Path::new(value));
    callers.into_iter().filter(|(name, value)| name != TEMPORARY || !is_of_the_run(value)).collect()
}

/// Slurm's variables with values of their own on each node. `srun` sets those of the step and its tasks.
const OF_SLURM: [&str; 10] = [
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GTIDS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
];

/// Returns the environment of a step: the caller's variables, except that node-specific variables have this node's
/// values. The caller may have set other variables of Slurm.
pub(crate) fn on_this_node(
    callers: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = callers.into_iter().filter(|(name, _)| !is_of_one_node(name)).collect();
    let is_set = |name: &OsStr| all.iter().any(|(known, _)| known == name);
    let is_of_job = |name: &OsStr| name == TEMPORARY || name.as_encoded_bytes().starts_with(b"SLURM");
    let is_own = |name: &OsStr| is_of_one_node(name) || is_of_job(name) && !is_set(name);
    let missing: Vec<_> = own.iter().filter(|(name, _)| is_own(name)).cloned().collect();
    all.extend(missing);
    all
}

fn is_of_one_node(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with("HOSTLER_")
        || OF_SLURM.contains(&name)
        || OF_GPUS.contains(&name)
        || by_name(Path::new("")).iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_gets_its_callers_variables_and_those_of_its_own_node() {
        let variables = |all: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            all.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let callers = variables(&[
            ("A", "1"),
            ("PATH", "/mine"),
            ("HOSTLER_NODE", "n1"),
            ("SLURM_NODEID", "0"),
            ("SLURM_JOB_NAME", "mine"),
            ("HOSTLER_X", "y"),
        ]);
        let own = variables(&[
            ("PATH", "/theirs"),
            ("HOSTLER_NODE", "n2"),
            ("CUDA_VISIBLE_DEVICES", "GPU-7"),
            ("SLURM_JOB_NAME", "theirs"),
            ("SLURM_JOB_QOS", "normal"),
            ("HOME", "/root"),
        ]);
        let expected = variables(&[
            ("A", "1"),
            ("PATH", "/mine"),
            ("SLURM_JOB_NAME", "mine"),
            ("HOSTLER_NODE", "n2"),
            ("CUDA_VISIBLE_DEVICES", "GPU-7"),
            ("SLURM_JOB_QOS", "normal"),
        ]);
        assert_eq!(on_this_node(callers, &own), expected);
    }

    #[test]
    fn step_uses_the_temporary_directory_of_its_node_unless_the_caller_set_one() {
        let own = [(TEMPORARY.into(), "/tmp/two".into())];
        let told = |callers: &str| {
            let callers = [(TEMPORARY.into(), callers.into())];
            on_this_node(for_another_node(callers, Some(Path::new("/tmp/one"))), &own)
        };
        assert_eq!(told("/tmp/one"), own);
        assert_eq!(told("/scratch"), [(TEMPORARY.into(), "/scratch".into())]);
        let none = for_another_node([(TEMPORARY.into(), "/tmp/one".into())], None);
        assert_eq!(
            none,
            [(TEMPORARY.into(), "/tmp/one".into())],
            "a job without a temporary directory keeps its variable"
        );
    }
}
