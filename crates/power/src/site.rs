//! What the controllers of one head have in common, and what they need of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use hostler_model::NodeName;

use crate::pace::Lane;
use crate::redfish::{Identity, Service};
use crate::{Fault, WakeUp};

/// The head's way to its nodes, for machines that have no controller of their own.
pub trait Reach: Send + Sync {
    /// Lets `relay`, a node that is up, send the packet to its own segment.
    ///
    /// # Errors
    /// When that node does not take it.
    fn relay<'a>(&'a self, relay: &'a NodeName, packet: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>>;

    /// Asks the agent of `node` to shut its machine down.
    ///
    /// # Errors
    /// When the agent does not take that.
    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>>;

    /// Whether the agent of `node` is there just now.
    fn is_alive(&self, node: &NodeName) -> bool;
}

/// A head without nodes, for trying controllers out.
#[derive(Debug, Clone, Copy)]
pub struct NoNodes;

impl Reach for NoNodes {
    fn relay<'a>(&'a self, relay: &'a NodeName, _: &'a WakeUp) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { Err(Fault::unreachable(format!("there is no node {relay} to send it from"))) })
    }

    fn shut_down<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { Err(Fault::unreachable(format!("there is no agent of {node} to ask"))) })
    }

    fn is_alive(&self, _: &NodeName) -> bool {
        false
    }
}

/// What the controllers of one head share: the way to its nodes, turns at what several use, and sessions there.
pub struct Site {
    pub(crate) reach: Arc<dyn Reach>,
    lanes: Mutex<BTreeMap<String, Weak<Lane>>>,
    services: Mutex<BTreeMap<Identity, Weak<Service>>>,
}

impl Site {
    /// For a head that reaches its nodes in this way.
    #[must_use]
    pub fn new(reach: Arc<dyn Reach>) -> Self {
        Self { reach, lanes: Mutex::default(), services: Mutex::default() }
    }

    /// Where those who use the controller of this name take turns.
    pub(crate) fn lane(&self, name: &str) -> Arc<Lane> {
        shared(&self.lanes, name.to_owned(), Lane::default)
    }

    /// The one that is used for this address with these credentials.
    pub(crate) fn service(&self, identity: Identity, make: impl FnOnce() -> Service) -> Arc<Service> {
        shared(&self.services, identity, make)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}

/// What is there under this key, or a new one. What nobody holds any more is forgotten.
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
    fn those_of_one_controller_share_a_lane_for_as_long_as_there_are_any() {
        let site = Site::new(Arc::new(NoNodes));
        let first = site.lane("a");
        assert!(Arc::ptr_eq(&first, &site.lane("a")));
        assert!(!Arc::ptr_eq(&first, &site.lane("b")));
        assert_eq!(site.lanes.lock().expect("whole").len(), 2, "b is forgotten when the next one comes");
        drop(first);
        site.lane("c");
        assert_eq!(site.lanes.lock().expect("whole").keys().collect::<Vec<_>>(), ["c"]);
    }
}
