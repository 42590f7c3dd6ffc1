//! The file in which `up` records the processes that it has started.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hostler_model::{Counted, CpuSet, NodeName};
use serde::{Deserialize, Serialize};

use super::process::ProcessId;
use crate::failure::{During, Failure};
use crate::flags::GpuCap;

/// The processes, sizes and addresses of the cluster at its last start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub head: Option<ProcessId>,
    /// Address of the head for agents. A restarted head uses it again, so that running agents find the head.
    pub address: Option<String>,
    /// Maximum size of stored results in bytes, if the user has set one.
    #[serde(default)]
    pub results_cap_bytes: Option<u64>,
    /// File with a captured machine that replaces this machine in tests.
    #[serde(default)]
    pub machine_from: Option<PathBuf>,
    /// Whether the head switches the nodes on and off.
    #[serde(default)]
    pub is_elastic: bool,
    /// The sizes of the last start. A start without sizes uses them again.
    #[serde(default)]
    pub sizes: Sizes,
    pub nodes: Vec<NodeRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Name of the node, e.g. `n1`.
    pub name: NodeName,
    pub cpus: CpuSet,
    pub memory_bytes: u64,
    /// Unique ids of the GPUs.
    #[serde(default)]
    pub gpus: Vec<String>,
    #[serde(default)]
    pub counted: Counted,
    pub agent: Option<ProcessId>,
}

/// The sizes given to `up`; absent sizes have defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sizes {
    pub nodes: Option<u32>,
    /// CPUs per node.
    pub cpus: Option<u32>,
    /// Memory per node, in bytes.
    pub memory_bytes: Option<u64>,
    /// GPUs of the cluster.
    pub gpus: Option<GpuCap>,
    /// Countable resources of each node.
    pub counted: Counted,
    /// A captured machine that provides GPUs and topology, in tests.
    pub machine_from: Option<PathBuf>,
}

impl Sizes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl NodeRecord {
    /// Whether the agent runs.
    pub fn is_on(&self) -> bool {
        self.agent.as_ref().is_some_and(ProcessId::is_alive)
    }
}

impl Record {
    /// Whether the cluster runs. An elastic cluster also runs while all its nodes are off, as long as its head runs.
    pub fn is_running(&self) -> bool {
        let has_head = || self.head.as_ref().is_some_and(ProcessId::is_alive);
        self.nodes.iter().any(NodeRecord::is_on) || self.is_elastic && has_head()
    }

    /// Whether the cluster was started and has died, instead of being stopped.
    pub fn has_died(&self) -> bool {
        self.head.is_some() && !self.is_running()
    }

    /// Reads the record; empty if the file does not exist.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).during(|| format!("cannot read {}", path.display())),
        };
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!("{} is damaged", path.display()))
                .because(&error)
                .hint("end the cluster's processes, then remove the file; no job is lost")
        })
    }

    /// Writes the record atomically.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("a record is valid JSON");
        let replace = || {
            let directory = path.parent().unwrap_or(Path::new("/"));
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(text.as_bytes())?;
            file.persist(path)?;
            Ok::<(), io::Error>(())
        };
        replace().during(|| format!("cannot write {}", path.display()))
    }

    /// The running processes, agents first.
    pub fn alive(&self) -> Vec<ProcessId> {
        let agents = self.nodes.iter().filter_map(|node| node.agent.as_ref());
        agents.chain(&self.head).filter(|process| process.is_alive()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_record_is_loaded_again() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("cluster.json");
        assert_eq!(Record::load(&path), Ok(Record::default()));
        let node = NodeRecord {
            name: "n1".parse().expect("valid"),
            cpus: CpuSet::first(2),
            memory_bytes: 1 << 30,
            gpus: vec!["GPU-1".to_owned()],
            counted: "license=2".parse().expect("a count"),
            agent: ProcessId::of(std::process::id() as i32).expect("readable"),
        };
        let record = Record { nodes: vec![node], address: Some("127.0.0.1:7".to_owned()), ..Record::default() };
        record.save(&path).expect("writable");
        assert_eq!(Record::load(&path), Ok(record.clone()));
        assert_eq!(record.alive().len(), 1);
        fs::write(&path, "{").expect("writable");
        assert!(Record::load(&path).expect_err("damaged").render().contains("damaged"));
    }
}
