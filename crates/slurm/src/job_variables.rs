//! Variables of the environment that describe a job to its programs, under the names of Slurm.

use crate::hostlist::compress;

/// The partition of jobs that name none, which contains all nodes.
pub const ALL_NODES: &str = "all";

/// The variables from which numeric libraries take their number of threads.
pub const THREAD_VARIABLES: [&str; 4] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

/// Returns the variables with the start of a job and its end at the time limit, in seconds since the Unix epoch. As in Slurm, a
/// job without a limit ends after a year.
#[must_use]
pub fn job_times(start: u64, limit_ms: Option<u64>) -> [(&'static str, String); 2] {
    const YEAR: u64 = 365 * 86_400;
    let end = start + limit_ms.map_or(YEAR, |ms| ms / 1000);
    [("SLURM_JOB_START_TIME", start.to_string()), ("SLURM_JOB_END_TIME", end.to_string())]
}

/// What the variables of a job depend on, once it has its nodes. Values that are known at submission are not here: `sbatch`
/// puts them into the job's environment.
#[derive(Debug, Clone)]
pub struct JobFacts<'a> {
    /// Id of the job.
    pub job: u64,
    /// Id of the task, a number of its own for each task of an array.
    pub raw_id: u64,
    /// Index of the task in the job's array, if there is one.
    pub array_index: Option<u32>,
    /// Names of the nodes, in order of rank.
    pub nodes: &'a [String],
    /// Name of this node.
    pub node: &'a str,
    /// Number of this node in the job.
    pub node_rank: u32,
    /// Tasks of the job; `None` if the submission did not say.
    pub ntasks: Option<u32>,
    /// Tasks on each node.
    pub tasks_per_node: u32,
    /// CPUs on each node.
    pub cpus_per_node: u32,
    /// Memory on each node, in mebibytes.
    pub memory_mib: u64,
    /// Partition of the job; `None` if the cluster has none, or the job may use all nodes.
    pub partition: Option<&'a str>,
    /// Number of restarts.
    pub restarts: u32,
    /// GPUs on each node.
    pub gpus: u32,
}

/// Returns the variables of the job's script, or of its program on each node.
#[must_use]
pub fn job_variables(facts: &JobFacts<'_>) -> Vec<(&'static str, String)> {
    let nodes = facts.nodes.len() as u32;
    let list = compress(facts.nodes);
    let mut all = vec![
        ("SLURM_JOB_ID", facts.raw_id.to_string()),
        ("SLURM_JOBID", facts.raw_id.to_string()),
        ("SLURM_JOB_NODELIST", list.clone()),
        ("SLURM_NODELIST", list),
        ("SLURM_JOB_NUM_NODES", nodes.to_string()),
        ("SLURM_NNODES", nodes.to_string()),
        ("SLURM_TASKS_PER_NODE", repeated(&tasks_on_nodes(facts))),
        ("SLURM_JOB_CPUS_PER_NODE", repeated(&vec![facts.cpus_per_node; facts.nodes.len()])),
        ("SLURM_CPUS_ON_NODE", facts.cpus_per_node.to_string()),
        ("SLURM_MEM_PER_NODE", facts.memory_mib.to_string()),
        ("SLURMD_NODENAME", facts.node.to_owned()),
        ("SLURM_NODEID", facts.node_rank.to_string()),
        ("SLURM_JOB_PARTITION", facts.partition.unwrap_or(ALL_NODES).to_owned()),
        ("SLURM_PROCID", "0".to_owned()),
        ("SLURM_LOCALID", "0".to_owned()),
        ("SLURM_GTIDS", "0".to_owned()),
        ("SLURM_TOPOLOGY_ADDR", facts.node.to_owned()),
        ("SLURM_TOPOLOGY_ADDR_PATTERN", "node".to_owned()),
        // A submitter may have exported the name of its own machine.
        ("HOSTNAME", facts.node.to_owned()),
        ("ENVIRONMENT", "BATCH".to_owned()),
    ];
    if let Some(index) = facts.array_index {
        all.push(("SLURM_ARRAY_JOB_ID", facts.job.to_string()));
        all.push(("SLURM_ARRAY_TASK_ID", index.to_string()));
    }
    if facts.restarts > 0 {
        all.push(("SLURM_RESTART_COUNT", facts.restarts.to_string()));
    }
    if facts.gpus > 0 {
        all.push(("SLURM_GPUS_ON_NODE", facts.gpus.to_string()));
        all.push(("SLURM_GPUS", (facts.gpus * nodes).to_string()));
    }
    all
}

/// Returns how many tasks each node has: as even as possible, more on the first nodes.
fn tasks_on_nodes(facts: &JobFacts<'_>) -> Vec<u32> {
    let nodes = facts.nodes.len() as u32;
    match facts.ntasks {
        Some(tasks) if tasks >= nodes && nodes > 0 => {
            (0..nodes).map(|rank| tasks / nodes + u32::from(rank < tasks % nodes)).collect()
        }
        _ => vec![facts.tasks_per_node; facts.nodes.len()],
    }
}

/// Writes counts for each node, with equal ones joined: `2(x3),1`.
#[must_use]
pub fn repeated(counts: &[u32]) -> String {
    let write = |run: &[u32]| match run {
        [one] => one.to_string(),
        several => format!("{}(x{})", several[0], several.len()),
    };
    counts.chunk_by(|a, b| a == b).map(write).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_describe_the_allocation() {
        let nodes: Vec<String> = ["c1", "c2"].map(str::to_owned).to_vec();
        let facts = JobFacts {
            job: 12,
            raw_id: 4_000_000_012,
            array_index: Some(3),
            nodes: &nodes,
            node: "c1",
            node_rank: 0,
            ntasks: Some(3),
            tasks_per_node: 2,
            cpus_per_node: 4,
            memory_mib: 512,
            partition: Some("normal"),
            restarts: 1,
            gpus: 0,
        };
        let all = job_variables(&facts);
        let value = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        for (name, expected) in [
            ("SLURM_JOB_ID", Some("4000000012")),
            ("SLURM_ARRAY_JOB_ID", Some("12")),
            ("SLURM_ARRAY_TASK_ID", Some("3")),
            ("SLURM_JOB_NODELIST", Some("c[1-2]")),
            ("SLURM_TASKS_PER_NODE", Some("2,1")),
            ("SLURM_JOB_CPUS_PER_NODE", Some("4(x2)")),
            ("SLURM_RESTART_COUNT", Some("1")),
            ("SLURM_GPUS", None),
        ] {
            assert_eq!(value(name), expected, "{name}");
        }
        let first = JobFacts { array_index: None, restarts: 0, ..facts };
        assert!(job_variables(&first).iter().all(|(name, _)| !name.contains("ARRAY") && !name.contains("RESTART")));
    }

    #[test]
    fn equal_counts_are_joined() {
        assert_eq!(repeated(&[2, 2, 2, 1]), "2(x3),1");
        assert_eq!((repeated(&[4]), repeated(&[])), ("4".to_owned(), String::new()));
    }
}
