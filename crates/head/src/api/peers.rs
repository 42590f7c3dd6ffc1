//! Gossip peers, for agents.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use hostler_core::head::Node;
use hostler_proto::peers::{GossipPeer, Known, Peers};
use hostler_snapshot::chunk::digest_of;

use super::extract::Query;
use super::reply::OrNull;
use super::who::Agent;
use crate::answers::Answer;
use crate::head::Head;

/// Memory to reserve for each node of the response.
const PEER_BYTES: usize = 512;

/// `GET /agent/peers`. The response is the full list if it has changed since the agent's last request, else null.
pub(crate) async fn peers(
    _: Agent,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(Known { known }): Query<Known>,
) -> OrNull<Peers> {
    let count = head.engine.state().nodes().count();
    answer.reserve(&head.client_limits, count * PEER_BYTES).await;
    let state = head.engine.state();
    let peer = |node: &Node| {
        let address = node.gossip_address()?;
        Some(GossipPeer {
            id: node.ix.0,
            name: node.name.clone(),
            address,
            features: state.features_of(node),
            call_key: node.facts.call_key,
            is_drained: node.drain.is_some(),
        })
    };
    let secret = head.trust.gossip_secret(state.expelled);
    let mut peers = Peers { version: 0, secret, peers: state.nodes().filter_map(peer).collect() };
    drop(state);
    let digest = digest_of(&hostler_proto::encode(&peers));
    peers.version = digest.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    OrNull((known != Some(peers.version)).then_some(peers))
}
