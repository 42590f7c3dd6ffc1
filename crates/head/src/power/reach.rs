//! Access to nodes for controllers that need an agent's help.

use futures_util::future::BoxFuture;
use hostler_core::head::Stage;
use hostler_model::{NodeName, NodeState};
use hostler_power::{Fault, FaultKind, Reach, WakeUp};
use hostler_proto::link::HeadMessage;

use crate::engine::Engine;

/// The connected agents.
pub(super) struct Agents(pub(super) Engine);

impl Agents {
    fn say(&self, node: &NodeName, message: HeadMessage) -> Result<(), Fault> {
        let connection = self.0.state().node(node).and_then(|node| Some(node.link.as_ref()?.connection));
        match connection.filter(|connection| self.0.send(*connection, message)) {
            Some(_) => Ok(()),
            None => Err(Fault::new(FaultKind::Unreachable, format!("the agent of {node} is not connected"))
                .hint("a node that sends wake-up packets to other nodes must stay on")),
        }
    }
}

impl Reach for Agents {
    fn relay<'a>(&'a self, relay: &'a NodeName, packet: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>> {
        let message = HeadMessage::WakeUp { mac: packet.mac.0, broadcast: packet.broadcast, port: packet.port };
        Box::pin(async move { self.say(relay, message) })
    }

    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>> {
        let stage = self.0.state().power.node(node).map(|power| power.stage);
        Box::pin(async move {
            // The head may have cancelled the shutdown while the order waited.
            if stage.is_some_and(|stage| stage != Stage::Stopping) {
                return Err(Fault::new(FaultKind::Busy, format!("the shutdown of {node} was cancelled")));
            }
            self.say(node, HeadMessage::PowerOff)
        })
    }

    fn is_alive(&self, node: &NodeName) -> bool {
        let state = self.0.state();
        state.node(node).is_some_and(|node| node.link.is_some() && node.state() != NodeState::Suspect)
    }
}
