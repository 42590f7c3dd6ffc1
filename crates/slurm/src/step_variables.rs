//! Variables of the environment that describe a step to its tasks.

use crate::hostlist::compress;
use crate::job_variables::repeated;

/// A step and its place in a job.
#[derive(Debug, Clone)]
pub struct StepFacts<'a> {
    /// Id of the job, a number of its own for each task of an array.
    pub raw_id: u64,
    /// Number of the step within the job.
    pub step: u32,
    /// Names of the job's nodes, in order of rank.
    pub job_nodes: &'a [String],
    /// Names of the step's nodes.
    pub nodes: &'a [String],
    /// The node of each task, as a position in `nodes`.
    pub places: &'a [usize],
    /// CPUs of each task, if the user said how many.
    pub cpus_per_task: Option<u32>,
    /// Tasks on each node, if the user said how many.
    pub ntasks_per_node: Option<u32>,
    /// Name of the machine that runs `srun`.
    pub launcher: &'a str,
}

impl StepFacts<'_> {
    /// Returns the number of tasks on each node of the step.
    #[must_use]
    pub fn tasks_on_nodes(&self) -> Vec<u32> {
        let mut counts = vec![0; self.nodes.len()];
        for place in self.places {
            counts[*place] += 1;
        }
        counts
    }

    /// Returns the variables that all tasks share.
    #[must_use]
    pub fn shared(&self) -> Vec<(&'static str, String)> {
        let job_nodes = compress(self.job_nodes);
        let tasks = self.places.len().to_string();
        let per_node = repeated(&self.tasks_on_nodes());
        let mut all = vec![
            ("SLURM_JOB_ID", self.raw_id.to_string()),
            ("SLURM_JOBID", self.raw_id.to_string()),
            ("SLURM_JOB_NODELIST", job_nodes.clone()),
            ("SLURM_NODELIST", job_nodes),
            ("SLURM_JOB_NUM_NODES", self.job_nodes.len().to_string()),
            ("SLURM_NNODES", self.nodes.len().to_string()),
            ("SLURM_NTASKS", tasks.clone()),
            ("SLURM_NPROCS", tasks.clone()),
            ("SLURM_TASKS_PER_NODE", per_node.clone()),
            ("SLURM_STEP_ID", self.step.to_string()),
            ("SLURM_STEPID", self.step.to_string()),
            ("SLURM_STEP_NODELIST", compress(self.nodes)),
            ("SLURM_STEP_NUM_NODES", self.nodes.len().to_string()),
            ("SLURM_STEP_NUM_TASKS", tasks),
            ("SLURM_STEP_TASKS_PER_NODE", per_node),
            ("SLURM_SRUN_COMM_HOST", self.launcher.to_owned()),
        ];
        all.extend(self.cpus_per_task.map(|cpus| ("SLURM_CPUS_PER_TASK", cpus.to_string())));
        all.extend(self.ntasks_per_node.map(|tasks| ("SLURM_NTASKS_PER_NODE", tasks.to_string())));
        all
    }

    /// Returns the variables of the task with this rank.
    ///
    /// # Panics
    /// Panics if the step has no such task.
    #[must_use]
    pub fn of_task(&self, rank: usize) -> Vec<(&'static str, String)> {
        let place = self.places[rank];
        let on_node: Vec<usize> = (0..self.places.len()).filter(|other| self.places[*other] == place).collect();
        let local = on_node.iter().position(|other| *other == rank).unwrap_or_default();
        let ids: Vec<String> = on_node.iter().map(ToString::to_string).collect();
        vec![
            ("SLURM_PROCID", rank.to_string()),
            ("SLURM_LOCALID", local.to_string()),
            ("SLURM_NODEID", place.to_string()),
            ("SLURM_GTIDS", ids.join(",")),
            ("SLURMD_NODENAME", self.nodes[place].clone()),
            ("SLURM_TOPOLOGY_ADDR", self.nodes[place].clone()),
            ("SLURM_TOPOLOGY_ADDR_PATTERN", "node".to_owned()),
        ]
    }
}

/// How the tasks of a step are dealt out to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dealing {
    /// Neighbouring ranks share a node.
    Block,
    /// Neighbouring ranks are on neighbouring nodes.
    Cyclic,
    /// As many neighbouring ranks share a node, and the next ones are on the next node.
    Plane(u32),
}

/// Returns the node of each task, as a position. `counts` is the number of tasks on each node.
#[must_use]
pub fn places(counts: &[u32], dealing: Dealing) -> Vec<usize> {
    let most = match dealing {
        Dealing::Block => u32::MAX,
        Dealing::Cyclic => 1,
        Dealing::Plane(size) => size.max(1),
    };
    let (mut left, mut all) = (counts.to_vec(), Vec::new());
    while left.iter().any(|count| *count > 0) {
        for (node, count) in left.iter_mut().enumerate() {
            let here = most.min(*count);
            *count -= here;
            all.extend(std::iter::repeat_n(node, here as usize));
        }
    }
    all
}

/// Divides tasks among nodes: evenly, or with `most` on each node for as long as there are tasks. `None` if there are too many.
#[must_use]
pub fn divide(tasks: u32, nodes: u32, most: Option<u32>) -> Option<Vec<u32>> {
    let Some(most) = most else {
        let (each, rest) = (tasks / nodes.max(1), tasks % nodes.max(1));
        return Some((0..nodes).map(|node| each + u32::from(node < rest)).collect());
    };
    let mut left = tasks;
    let counts = (0..nodes).map(|_| {
        let here = left.min(most);
        left -= here;
        here
    });
    let counts: Vec<u32> = counts.collect();
    (left == 0).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_out() {
        assert_eq!(places(&[2, 1], Dealing::Block), [0, 0, 1]);
        assert_eq!(places(&[2, 3, 1], Dealing::Cyclic), [0, 1, 2, 0, 1, 1]);
        assert_eq!(places(&[4, 3], Dealing::Plane(2)), [0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(divide(3, 2, None), Some(vec![2, 1]));
        assert_eq!(divide(5, 3, Some(2)), Some(vec![2, 2, 1]));
        assert_eq!(divide(5, 2, Some(2)), None);
    }

    #[test]
    fn variables_describe_each_task() {
        let names = |all: &[&str]| -> Vec<String> { all.iter().map(|name| (*name).to_owned()).collect() };
        let (job_nodes, nodes) = (names(&["c1", "c2", "c3"]), names(&["c2", "c3"]));
        let facts = StepFacts {
            raw_id: 12,
            step: 1,
            job_nodes: &job_nodes,
            nodes: &nodes,
            places: &[0, 0, 1],
            cpus_per_task: Some(2),
            ntasks_per_node: None,
            launcher: "c1",
        };
        let find = |all: &[(&str, String)], name: &str| {
            all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let shared = facts.shared();
        for (name, value) in [
            ("SLURM_JOB_NODELIST", "c[1-3]"),
            ("SLURM_STEP_NODELIST", "c[2-3]"),
            ("SLURM_NNODES", "2"),
            ("SLURM_NTASKS", "3"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
            ("SLURM_STEP_ID", "1"),
            ("SLURM_CPUS_PER_TASK", "2"),
            ("SLURM_NTASKS_PER_NODE", ""),
        ] {
            assert_eq!(find(&shared, name), value, "{name}");
        }
        let last = facts.of_task(2);
        let values = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURMD_NODENAME"];
        assert_eq!(values.map(|name| find(&last, name)), ["2", "0", "1", "2", "c3"]);
        assert_eq!(find(&facts.of_task(1), "SLURM_GTIDS"), "0,1");
    }
}
