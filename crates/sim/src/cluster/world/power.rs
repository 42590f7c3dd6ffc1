//! The power controllers of a world, and the steps that they take.

use hostler_core::head::PowerFault;
use hostler_model::{NodeName, PowerVerb, Supply};

use crate::cluster::rng::Rng;

/// The power controllers between the head and the machines.
#[derive(Debug)]
pub(crate) struct Controllers {
    pub(crate) dice: Rng,
    /// By node: the number of its current order. Earlier orders are void.
    pub(crate) orders: Vec<u64>,
    /// Present in worlds with rough controllers, which carry out off orders late, twice, or after an error or without
    /// an answer. There, operators switch machines too, and nodes leave the plan and come back.
    pub(crate) rough: Option<Rng>,
}

/// A step of the controllers.
#[derive(Debug)]
pub(crate) enum PowerStep {
    /// An operator applies a plan.
    Plan,
    /// The head that asked receives an answer.
    Answer { life: u64, node: NodeName, ask: u64, outcome: Result<Option<Supply>, PowerFault> },
    /// A machine follows an order.
    Follow { node: usize, order: u64, verb: PowerVerb },
    /// An operator changes the power of a node.
    Operate,
}
