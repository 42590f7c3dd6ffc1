//! What the launchers of MPI implementations are told, and what of an environment is true of one node only.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::allocation::Place;

/// What MPI implementations call to start their daemons on another node: this program, under a name by which it takes the command line
/// of `ssh`.
pub const REMOTE_SHELL: &str = "hostler-rsh";

/// A list of nodes as Open MPI reads it.
pub const HOSTFILE: &str = "hosts";

/// A list of nodes as Hydra reads it, which MPICH and Intel MPI use.
pub const MACHINEFILE: &str = "machines";

/// What Open MPI is told beside where the nodes of a run are one machine. It tells machines apart by their names, and by those these would
/// share memory although each of them believes to be alone; and it would look for the others on every network but the one within.
const ON_ONE_MACHINE: [(&str, &str); 3] =
    [("OMPI_MCA_btl", "self,tcp"), ("OMPI_MCA_btl_tcp_if_include", "lo"), ("OMPI_MCA_oob_tcp_if_include", "lo")];

/// Where programs put temporary files.
pub const TEMPORARY: &str = "TMPDIR";

/// Variables that say which GPUs are the job's on a node.
const OF_GPUS: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// By which `mpirun` finds its nodes and its way to them, with a run's files for steps in `directory`.
///
/// Nodes go by their names, which need not resolve: [`REMOTE_SHELL`] knows their addresses. Where a cluster is borrowed from Slurm, Open MPI
/// and Hydra could find that, so each is told by name what to use. Their daemons stay in the foreground, so that they end
/// with whoever asked for them.
#[must_use]
pub fn launcher_variables(directory: &Path, nodes: &[Place]) -> Vec<(&'static str, String)> {
    let is_within = |node: &Place| node.address.is_some_and(|address| address.is_loopback());
    let mut all = by_name(directory);
    if nodes.len() > 1 && nodes.iter().all(is_within) {
        all.extend(ON_ONE_MACHINE.map(|(name, value)| (name, value.to_owned())));
    }
    all
}

/// Those of any run.
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

/// The nodes as Open MPI reads them, with room for so many processes on each.
#[must_use]
pub fn hostfile(nodes: &[Place], slots: u32) -> String {
    nodes.iter().map(|node| format!("{} slots={slots}\n", node.name)).collect()
}

/// The nodes as Hydra reads them.
#[must_use]
pub fn machinefile(nodes: &[Place], slots: u32) -> String {
    nodes.iter().map(|node| format!("{}:{slots}\n", node.name)).collect()
}

/// What a step's node is told of its caller's environment: not where temporary files of the caller's node are, unless the caller has
/// chosen another place for them.
pub(crate) fn for_another_node(
    callers: impl IntoIterator<Item = (OsString, OsString)>,
    temporary: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let is_of_the_run = |value: &OsStr| temporary.is_some_and(|path| path == Path::new(value));
    callers.into_iter().filter(|(name, value)| name != TEMPORARY || !is_of_the_run(value)).collect()
}

/// The environment of a step: its caller's, but what is true of one node only as it is on this one.
pub(crate) fn on_this_node(
    callers: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = callers.into_iter().filter(|(name, _)| !is_of_one_node(name)).collect();
    let has_chosen = all.iter().any(|(name, _)| name == TEMPORARY);
    let is_own = |name: &OsStr| is_of_one_node(name) || (name == TEMPORARY && !has_chosen);
    all.extend(own.iter().filter(|(name, _)| is_own(name)).cloned());
    all
}

fn is_of_one_node(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with("HOSTLER_")
        || name.starts_with("SLURM")
        || OF_GPUS.contains(&name)
        || by_name(Path::new("")).iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_its_callers_variables_and_its_own_nodes_place() {
        let variables = |all: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            all.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let callers = variables(&[
            ("A", "1"),
            ("PATH", "/mine"),
            ("HOSTLER_NODE", "n1"),
            ("SLURM_NODEID", "0"),
            ("HOSTLER_X", "y"),
        ]);
        let own = variables(&[
            ("PATH", "/theirs"),
            ("HOSTLER_NODE", "n2"),
            ("CUDA_VISIBLE_DEVICES", "GPU-7"),
            ("HOME", "/root"),
        ]);
        let expected =
            variables(&[("A", "1"), ("PATH", "/mine"), ("HOSTLER_NODE", "n2"), ("CUDA_VISIBLE_DEVICES", "GPU-7")]);
        assert_eq!(on_this_node(callers, &own), expected);
    }

    #[test]
    fn temporary_files_are_on_the_steps_own_node_unless_the_caller_has_chosen() {
        let own = [(TEMPORARY.into(), "/tmp/two".into())];
        let told = |callers: &str| {
            let callers = [(TEMPORARY.into(), callers.into())];
            on_this_node(for_another_node(callers, Some(Path::new("/tmp/one"))), &own)
        };
        assert_eq!(told("/tmp/one"), own);
        assert_eq!(told("/scratch"), [(TEMPORARY.into(), "/scratch".into())]);
        let none = for_another_node([(TEMPORARY.into(), "/tmp/one".into())], None);
        assert_eq!(none, [(TEMPORARY.into(), "/tmp/one".into())], "the job has its own");
    }
}
