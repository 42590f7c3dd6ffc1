//! Where the tasks of a step run.

use hostler_slurm::hostlist;
use hostler_slurm::step_variables::{Dealing, divide, places};

use super::super::Ended;
use super::asked::Asked;

/// What errors about a step begin with.
pub(super) const NO_STEP: &str = "Unable to create step";

/// The nodes of a step and its tasks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The step's nodes, as positions among those of the job.
    pub(super) nodes: Vec<usize>,
    /// The node of each task, as a position in `nodes`.
    pub(super) places: Vec<usize>,
    pub(super) cpus_per_task: u32,
    /// A demand that the step does not meet, in Slurm's words.
    pub(super) warning: Option<String>,
}

/// Chooses nodes of the job for the tasks. `names`: the job's nodes. `cpus`: the job's CPUs on each of them.
pub(super) fn shape(asked: &Asked, names: &[String], cpus: u32) -> Result<Shape, Ended> {
    let options = &asked.options;
    let listed = expand(options.nodelist.as_deref())?;
    let excluded = expand(options.exclude.as_deref())?;
    let find = |name: &String| names.iter().position(|known| known == name).ok_or_else(unavailable);
    let listed = listed.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let cpus_per_task = options.cpus_per_task.unwrap_or(1).max(1);
    if options.is_arbitrary() && !listed.is_empty() {
        return Ok(by_list(&listed, options.ntasks, cpus_per_task));
    }
    let is_allowed = |node: &usize| {
        *node >= asked.relative as usize
            && (listed.is_empty() || listed.contains(node))
            && !excluded.contains(&names[*node])
    };
    let allowed: Vec<usize> = (0..names.len()).filter(is_allowed).collect();
    let (least, most) = options.nodes.unwrap_or((1, u32::MAX));
    let least = options.ntasks.map_or(least, |tasks| least.min(tasks));
    let available = u32::try_from(allowed.len()).unwrap_or(u32::MAX);
    // A number of nodes from the job's own variables does not bind a step with few tasks or few allowed nodes.
    if least > available && listed.is_empty() && excluded.is_empty() && asked.relative == 0 {
        return Err(Ended::error(format!("Only allocated {available} nodes asked for {least}")));
    }
    let count = most.min(available);
    if count == 0 {
        return Err(unavailable());
    }
    let ntasks = options.ntasks.unwrap_or_else(|| options.ntasks_per_node.unwrap_or(1).saturating_mul(count)).max(1);
    let count = count.min(ntasks);
    let (counts, warning) = match (divide(ntasks, count, options.ntasks_per_node), options.ntasks_per_node) {
        (Some(counts), _) => (counts, None),
        (None, each) => {
            let warning = format!(
                "Warning: can't honor --ntasks-per-node set to {} which doesn't match the requested tasks {ntasks} with the number of requested nodes {count}. Ignoring --ntasks-per-node.",
                each.unwrap_or_default()
            );
            (divide(ntasks, count, None).ok_or_else(unavailable)?, Some(warning))
        }
    };
    let is_shared = options.overcommit || asked.overlap;
    let fits = |counts: &Vec<u32>| is_shared || counts.iter().all(|tasks| tasks.saturating_mul(cpus_per_task) <= cpus);
    // `--ntasks-per-node` is a maximum: tasks spread if that many do not fit on a node.
    let spread = || divide(ntasks, count, None).filter(fits);
    let too_many = || unavailable().instead(UNAVAILABLE, "More processors requested than permitted");
    let counts = if fits(&counts) { counts } else { spread().ok_or_else(too_many)? };
    let used = counts.iter().filter(|tasks| **tasks > 0).count();
    Ok(Shape {
        nodes: allowed[..used].to_vec(),
        places: places(&counts[..used], options.dealing().unwrap_or(Dealing::Block)),
        cpus_per_task: if options.overcommit { 0 } else { cpus_per_task },
        warning,
    })
}

const UNAVAILABLE: &str = "Requested node configuration is not available";

fn unavailable() -> Ended {
    Ended::error(format!("{NO_STEP}: {UNAVAILABLE}"))
}

fn expand(list: Option<&str>) -> Result<Vec<String>, Ended> {
    let invalid = |_| Ended::error(format!("{NO_STEP}: Invalid node name specified"));
    list.map_or(Ok(Vec::new()), |list| hostlist::expand(list).map_err(invalid))
}

/// One task on each listed node, in this order.
fn by_list(listed: &[usize], ntasks: Option<u32>, cpus_per_task: u32) -> Shape {
    let tasks: Vec<usize> = listed.iter().copied().take(ntasks.map_or(usize::MAX, |tasks| tasks as usize)).collect();
    let mut nodes = tasks.clone();
    nodes.sort_unstable();
    nodes.dedup();
    let places = tasks.iter().map(|node| nodes.iter().position(|known| known == node).unwrap_or_default()).collect();
    Shape { nodes, places, cpus_per_task, warning: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<(Vec<usize>, Vec<usize>), String> {
        let names: Vec<String> = ["c1", "c2", "c3"].map(str::to_owned).to_vec();
        let line = ["srun"].iter().chain(words).chain(&["true"]).map(Into::into).collect();
        let asked = Asked::parse(line).map_err(|ended| ended.texts().collect::<String>())?;
        let shape = shape(&asked, &names, 2).map_err(|ended| ended.texts().collect::<String>())?;
        Ok((shape.nodes, shape.places))
    }

    #[test]
    fn tasks_get_nodes() {
        for (words, nodes, places) in [
            (&[][..], vec![0, 1, 2], vec![0, 1, 2]),
            (&["-n2"], vec![0, 1], vec![0, 1]),
            (&["-n4"], vec![0, 1, 2], vec![0, 0, 1, 2]),
            (&["-N2", "-n3"], vec![0, 1], vec![0, 0, 1]),
            (&["-N2", "-n3", "-m", "cyclic"], vec![0, 1], vec![0, 1, 0]),
            (&["--ntasks-per-node=2", "-N2"], vec![0, 1], vec![0, 0, 1, 1]),
            (&["-w", "c[2-3]", "-n3"], vec![1, 2], vec![0, 0, 1]),
            (&["-N2", "-n4", "--ntasks-per-node=1"], vec![0, 1], vec![0, 0, 1, 1]),
            (&["-n3", "--ntasks-per-node=2"], vec![0, 1], vec![0, 0, 1]),
            (&["-n3", "-c2", "--ntasks-per-node=2"], vec![0, 1, 2], vec![0, 1, 2]),
            (&["-x", "c2"], vec![0, 2], vec![0, 1]),
            (&["-r1", "-n1"], vec![1], vec![0]),
            (&["-m", "arbitrary", "-w", "c3,c1,c3"], vec![0, 2], vec![1, 0, 1]),
            (&["-N2", "-n4", "-m", "plane=1"], vec![0, 1], vec![0, 1, 0, 1]),
            (&["-N4", "-n1"], vec![0], vec![0]),
        ] {
            assert_eq!(of(words), Ok((nodes, places)), "{words:?}");
        }
        assert!(of(&["-N4"]).expect_err("too many").contains("Only allocated 3 nodes asked for 4"));
        assert!(of(&["-n7"]).expect_err("too many").contains("More processors requested than permitted"));
        assert!(of(&["-n7", "--overlap"]).is_ok() && of(&["-n7", "-O"]).is_ok());
        assert!(of(&["-w", "c9"]).expect_err("unknown").contains("not available"));
    }
}
