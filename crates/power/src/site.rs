//! State that the controllers of one head share, and their access to nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use hostler_model::NodeName;

use crate::pace::Lane;
use crate::redfish::{Identity, Service};
use crate::{Fault, WakeUp};

/// Access to nodes through their agents, for machines without a controller.
pub trait Reach: Send + Sync {
    /// Makes `relay`, a node that is up, send the wake-up packet to its network segment.
    ///
    /// # Errors
    /// The node does not accept the request.
    fn relay<'a>(&'a self, relay: &'a NodeName, packet: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>>;

    /// Asks the agent of `node` to shut its machine down.
    ///
    /// # Errors
    /// The agent does not accept the request.
    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>>;

    /// Whether the agent of `node` is connected.
    fn is_alive(&self, node: &NodeName) -> bool;
}

/// A head without nodes, for testing controllers.
#[derive(Debug, Clone, Copy)]
pub struct NoNodes;

impl Reach for NoNodes {
    fn relay<'a>(&'a self, relay: &'a NodeName, _: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { Err(Fault::unreachable(format!("no node {relay} exists that could send the packet"))) })
    }

    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { Err(Fault::unreachable(format!("the agent of {node} is not connected"))) })
    }

    fn is_alive(&self, _: &NodeName) -> bool {
        false
    }
}

/// State that the controllers of one head share: access to nodes, queues of shared controllers, and their sessions.
pub struct Site {
    pub(crate) reach: Arc<dyn Reach>,
    lanes: Mutex<BTreeMap<String, Weak<Lane>>>,
    services: Mutex<BTreeMap<Identity, Weak<Service>>>,
}

impl Site {
    /// Creates the state of a head with this access to nodes.
    #[must_use]
    pub fn new(reach: Arc<dyn Reach>) -> Self {
        Self { reach, lanes: Mutex::default(), services: Mutex::default() }
    }

    /// The queue of the controller with this name.
    pub(crate) fn lane(&self, name: &str) -> Arc<Lane> {
        shared(&self.lanes, name.to_owned(), Lane::default)
    }

    /// The Redfish service for this address and these credentials.
    pub(crate) fn service(&self, identity: Identity, make: impl FnOnce() -> Service) -> Arc<Service> {
        shared(&self.services, identity, make)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}

/// Returns the entry for a key, or creates it. Removes entries that are no longer in use.
fn shared<K: Ord, V>(all: &Mutex<BTreeMap<K, Weak<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, value| value.strong_count() > 0);
    if let Some(value) = all.get(&key).and_then(Weak::upgrade) {
        return value;
    }
    let value = Arc::new(make());
    all.insert(key, Arc::downgrade(&value));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_one_controller_share_a_lane_while_it_is_in_use() {
        let site = Site::new(Arc::new(NoNodes));
        let first = site.lane("a");
        assert!(Arc::ptr_eq(&first, &site.lane("a")));
        assert!(!Arc::ptr_eq(&first, &site.lane("b")));
        assert_eq!(site.lanes.lock().expect("the lock is not poisoned").len(), 2, "b is removed with the next call");
        drop(first);
        site.lane("c");
        assert_eq!(site.lanes.lock().expect("the lock is not poisoned").keys().collect::<Vec<_>>(), ["c"]);
    }
}
