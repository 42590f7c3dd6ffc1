//! Orders for power controllers.

use hostler_model::{NodeName, PowerVerb};

/// A question or order for a node's controller.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) node: NodeName,
    pub(crate) verb: PowerVerb,
    /// Number that identifies the order in the reply.
    pub(crate) ask: u64,
}
