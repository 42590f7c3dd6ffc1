//! Nodes: their membership, links, state and partitions.

pub(in crate::head) mod life;
pub(in crate::head) mod member;
pub(in crate::head) mod members;
pub(in crate::head) mod node;
pub(in crate::head) mod partition;
pub(in crate::head) mod partitions;
pub(in crate::head) mod peers;
