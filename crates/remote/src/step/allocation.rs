//! The information that a job's process needs to launch steps on the job's other nodes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hostler_model::{Digest, NodeName};
use serde::{Deserialize, Serialize};

use crate::credentials::Credentials;

/// The nodes of a run as seen from one node, or from the client that holds the allocation; with the key of that node or
/// client. Stored in a file that only the job's user can read.
#[derive(Clone, Serialize, Deserialize)]
pub struct Allocation {
    /// The rank of this node; `None` outside of the job's nodes.
    pub rank: Option<u32>,
    /// The job's directory, on this node.
    #[serde(with = "as_text")]
    pub directory: PathBuf,
    /// The run's temporary directory on this node, which is the value of `TMPDIR`; `None` when the job sets its own
    /// `TMPDIR`.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// All nodes, in rank order.
    pub nodes: Vec<Place>,
    /// The certificate and key by which other nodes identify this node.
    pub credentials: Credentials,
    /// The client that holds the allocation, if the job has no program.
    #[serde(default)]
    pub holder: Option<Holder>,
}

/// The client that holds an allocation without a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The fingerprint of the client's certificate.
    pub certificate: Digest,
    /// Whether the allocation stays when the client's connection breaks.
    pub stays: bool,
}

/// One node of a run, and the address of its step host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub name: NodeName,
    /// The node's address, if known. Without an address, the name must resolve.
    pub address: Option<IpAddr>,
    /// The port of the step host.
    pub port: u16,
    /// The fingerprint of the node's certificate for this run.
    pub certificate: Digest,
}

impl Allocation {
    /// Reads a file with the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// Fails when the file cannot be read or is invalid.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Returns the allocation as JSON.
    ///
    /// # Errors
    /// If the path of the temporary directory is not UTF-8 text.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Returns the entry of this node.
    ///
    /// # Errors
    /// Fails when no entry has the rank of this node.
    pub fn own(&self) -> io::Result<&Place> {
        self.rank
            .and_then(|rank| self.nodes.get(rank as usize))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the allocation file has no entry for this node"))
    }

    /// Returns the rank of a node, given its name, address or rank.
    #[must_use]
    pub fn rank_of(&self, node: &str) -> Option<u32> {
        let position = |is_it: &dyn Fn(&Place) -> bool| self.nodes.iter().position(is_it).map(|at| at as u32);
        let by_address = || {
            let address: IpAddr = node.parse().ok()?;
            let mut all = (0..).zip(&self.nodes).filter(|(_, place)| place.address == Some(address));
            // Virtual nodes share one address, so an ambiguous address names no node.
            let (rank, _) = all.next()?;
            all.next().is_none().then_some(rank)
        };
        let by_rank = || node.parse().ok().filter(|rank| (*rank as usize) < self.nodes.len());
        position(&|place| place.name.as_str() == node).or_else(by_address).or_else(by_rank)
    }

    /// Returns the names of all nodes, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.nodes.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// A path in JSON, as [`hostler_model::text_of`] writes it.
mod as_text {
    use std::path::{Path, PathBuf};

    use hostler_model::{os_string_of, text_of};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text_of(path))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(os_string_of(&String::deserialize(deserializer)?).into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates the allocations of nodes `n1` to `nN`, all on this machine.
    pub(crate) fn on_this_machine(count: u32) -> Vec<Allocation> {
        let all: Vec<Credentials> = (0..count).map(|_| Credentials::generate().expect("a key")).collect();
        let place = |(number, credentials): (u32, &Credentials)| Place {
            name: format!("n{number}").parse().expect("a name"),
            address: Some([127, 0, 0, 1].into()),
            port: free_port(),
            certificate: credentials.fingerprint().expect("the certificate is valid"),
        };
        let nodes: Vec<Place> = (1..).zip(&all).map(place).collect();
        let view = |(rank, credentials): (u32, Credentials)| Allocation {
            rank: Some(rank),
            directory: "/tmp".into(),
            temporary: None,
            nodes: nodes.clone(),
            credentials,
            holder: None,
        };
        (0..).zip(all).map(view).collect()
    }

    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        listener.local_addr().expect("the socket is bound").port()
    }

    #[test]
    fn nodes_are_found_by_name_address_and_rank() {
        let mut one = on_this_machine(3).remove(0);
        one.nodes[2].name = "1".parse().expect("a valid name");
        assert_eq!(one.rank_of("n2"), Some(1));
        assert_eq!(one.rank_of("1"), Some(2), "names take precedence over ranks");
        assert_eq!((one.rank_of("0"), one.rank_of("3")), (Some(0), None));
        assert_eq!(one.rank_of("127.0.0.1"), None, "the address belongs to all nodes");
        one.nodes[1].address = Some([10, 0, 0, 2].into());
        assert_eq!(one.rank_of("10.0.0.2"), Some(1));
        let again = serde_json::from_slice::<Allocation>(&one.to_bytes().expect("text"))
            .expect("decoding succeeds after encoding");
        assert_eq!(again.nodes, one.nodes);
    }
}
