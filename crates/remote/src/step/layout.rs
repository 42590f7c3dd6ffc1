//! Where the tasks of a step run.

/// Divides `tasks` among `nodes` as evenly as possible. Earlier nodes get the larger parts, and neighbouring ranks share a
/// node. Returns the number of tasks on each node.
#[must_use]
pub fn layout(tasks: u32, nodes: u32) -> Vec<u32> {
    let (each, rest) = (tasks / nodes.max(1), tasks % nodes.max(1));
    (0..nodes).map(|node| each + u32::from(node < rest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_divided_evenly_and_earlier_nodes_get_more() {
        assert_eq!(layout(3, 2), [2, 1]);
        assert_eq!(layout(7, 3), [3, 2, 2]);
        assert_eq!(layout(2, 3), [1, 1, 0]);
        assert_eq!((layout(4, 1), layout(4, 0)), (vec![4], vec![]));
    }
}
