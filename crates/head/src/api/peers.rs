//! Who gossips, for agents.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use hostler_core::head::Node;
use hostler_proto::peers::{GossipPeer, Peers};

use super::who::Certified;
use crate::head::Head;

/// `GET /agent/peers`.
pub(crate) async fn peers(_: Certified, State(head): State<Arc<Head>>) -> Json<Peers> {
    let state = head.engine.state();
    let peer = |node: &Node| {
        let address = node.gossip_address()?;
        Some(GossipPeer { id: node.ix.0, name: node.name.clone(), address, features: state.features_of(node) })
    };
    Json(Peers { secret: head.trust.gossip_secret().to_owned(), peers: state.nodes().filter_map(peer).collect() })
}
