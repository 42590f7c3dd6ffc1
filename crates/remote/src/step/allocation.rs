//! What a process of a job must know to launch on the job's other nodes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hostler_model::{Digest, NodeName};
use serde::{Deserialize, Serialize};

use crate::credentials::Credentials;

/// A run's nodes as one of them knows them, with its key. Stored where only the job's user can read it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Allocation {
    /// The rank of this node.
    pub rank: u32,
    /// The job's directory on this node.
    pub directory: PathBuf,
    /// The run's directory for temporary files on this node, to which `TMPDIR` is set; `None` when the job has its own.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// All nodes, in the order of their ranks.
    pub nodes: Vec<Place>,
    /// By which the others know this node.
    pub credentials: Credentials,
}

/// One node of a run, and where it takes steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its name.
    pub name: NodeName,
    /// Its address, as far as it is known; otherwise its name must resolve.
    pub address: Option<IpAddr>,
    /// The port there.
    pub port: u16,
    /// The fingerprint of its certificate for this run.
    pub certificate: Digest,
}

impl Allocation {
    /// Reads one that [`Self::to_bytes`] made.
    ///
    /// # Errors
    /// When the file cannot be read, or is something else.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// As it is stored.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// This node.
    ///
    /// # Errors
    /// When the file says a rank that no node has.
    pub fn own(&self) -> io::Result<&Place> {
        self.nodes
            .get(self.rank as usize)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the allocation does not have its own node"))
    }

    /// The rank of the node that somebody means: by its name, its address, or its rank.
    #[must_use]
    pub fn rank_of(&self, node: &str) -> Option<u32> {
        let position = |is_it: &dyn Fn(&Place) -> bool| self.nodes.iter().position(is_it).map(|at| at as u32);
        let by_address = || {
            let address: IpAddr = node.parse().ok()?;
            let mut all = (0..).zip(&self.nodes).filter(|(_, place)| place.address == Some(address));
            // Virtual nodes have one address together.
            let (rank, _) = all.next()?;
            all.next().is_none().then_some(rank)
        };
        let by_rank = || node.parse().ok().filter(|rank| (*rank as usize) < self.nodes.len());
        position(&|place| place.name.as_str() == node).or_else(by_address).or_else(by_rank)
    }

    /// The names of all nodes, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.nodes.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Nodes `n1` to `nN` on this machine, each with its own view.
    pub(crate) fn on_this_machine(count: u32) -> Vec<Allocation> {
        let all: Vec<Credentials> = (0..count).map(|_| Credentials::generate().expect("a key")).collect();
        let place = |(number, credentials): (u32, &Credentials)| Place {
            name: format!("n{number}").parse().expect("a name"),
            address: Some([127, 0, 0, 1].into()),
            port: free_port(),
            certificate: credentials.fingerprint().expect("its own"),
        };
        let nodes: Vec<Place> = (1..).zip(&all).map(place).collect();
        let view = |(rank, credentials): (u32, Credentials)| Allocation {
            rank,
            directory: "/tmp".into(),
            temporary: None,
            nodes: nodes.clone(),
            credentials,
        };
        (0..).zip(all).map(view).collect()
    }

    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        listener.local_addr().expect("it is bound").port()
    }

    #[test]
    fn nodes_are_found_by_name_address_and_rank() {
        let mut one = on_this_machine(3).remove(0);
        one.nodes[2].name = "1".parse().expect("a name");
        assert_eq!(one.rank_of("n2"), Some(1));
        assert_eq!(one.rank_of("1"), Some(2), "a name goes before a rank");
        assert_eq!((one.rank_of("0"), one.rank_of("3")), (Some(0), None));
        assert_eq!(one.rank_of("127.0.0.1"), None, "that is all of them");
        one.nodes[1].address = Some([10, 0, 0, 2].into());
        assert_eq!(one.rank_of("10.0.0.2"), Some(1));
        let again = serde_json::from_slice::<Allocation>(&one.to_bytes()).expect("its own");
        assert_eq!(again.nodes, one.nodes);
    }
}
