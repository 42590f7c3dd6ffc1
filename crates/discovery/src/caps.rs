//! Configured limits for the offered resources. They can only reduce what was detected.

use std::fmt;
use std::str::FromStr;

use hostler_model::ParseError;
use serde::{Deserialize, Serialize};

use crate::{Gpu, Machine, Note, Topic};

/// Upper limits for the resources that a machine offers. A `None` field sets no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caps {
    /// Maximum number of CPUs. [`Topology::choose`](hostler_model::Topology::choose) selects the offered CPUs, as it
    /// selects a job's CPUs.
    pub cpus: Option<u32>,
    pub memory_bytes: Option<u64>,
    /// The GPUs to offer; an empty list offers none.
    pub gpus: Option<Vec<GpuPick>>,
}

/// A GPU in a configuration: an index or a unique id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GpuPick {
    /// The index among all GPUs of the machine. The index may change when cards are added or moved.
    Index(u32),
    /// The unique id, which never changes.
    Uuid(String),
}

impl Machine {
    /// Reduces the machine's offered resources to the limits in `caps`. GPUs keep their indices.
    #[must_use]
    pub fn capped(mut self, caps: &Caps) -> Self {
        if let Some(count) = caps.cpus.filter(|count| *count < self.usable.len()) {
            self.usable = self.topology().choose(&self.usable, count);
        }
        if let Some(memory) = caps.memory_bytes {
            self.memory.usable_bytes = self.memory.usable_bytes.min(memory);
        }
        if let Some(picks) = &caps.gpus {
            for pick in picks.iter().filter(|pick| !self.gpus.iter().any(|gpu| pick.is(gpu))) {
                self.notes.push(Note::new(Topic::Gpus, format!("GPU {pick} does not exist")));
            }
            self.gpus.retain(|gpu| picks.iter().any(|pick| pick.is(gpu)));
        }
        self
    }
}

impl GpuPick {
    fn is(&self, gpu: &Gpu) -> bool {
        match self {
            Self::Index(index) => gpu.index == *index,
            Self::Uuid(uuid) => gpu.uuid.eq_ignore_ascii_case(uuid),
        }
    }
}

impl FromStr for GpuPick {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "an index or a unique id of a GPU");
        let text = text.trim();
        if text.bytes().all(|c| c.is_ascii_digit()) {
            return text.parse().map(Self::Index).map_err(|_| error());
        }
        let is_id = text.bytes().all(|c| c.is_ascii_graphic());
        if is_id { Ok(Self::Uuid(text.to_owned())) } else { Err(error()) }
    }
}

impl TryFrom<String> for GpuPick {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<GpuPick> for String {
    fn from(pick: GpuPick) -> Self {
        pick.to_string()
    }
}

impl fmt::Display for GpuPick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{CoreKind, Cpu, CpuSet};

    use super::*;
    use crate::{Memory, Vendor};

    fn machine() -> Machine {
        let cpu = |id| Cpu { id, core: id % 4, package: 0, numa: 0, kind: CoreKind::Performance };
        let gpu = |index| Gpu {
            index,
            vendor: Vendor::Nvidia,
            uuid: format!("GPU-{index}a"),
            name: "card".to_owned(),
            memory_bytes: None,
            pci: None,
            numa: None,
            slice_of: None,
            devices: Vec::new(),
        };
        Machine {
            cpus: (0..8).map(cpu).collect(),
            usable: CpuSet::first(8),
            memory: Memory { usable_bytes: 100, ..Memory::default() },
            gpus: (0..3).map(gpu).collect(),
            ..Machine::default()
        }
    }

    #[test]
    fn caps_only_reduce_resources() {
        let caps: Caps = toml::from_str("cpus = 2\nmemory_bytes = 50\ngpus = ['gpu-2A', '0', '7']").expect("caps");
        let capped = machine().capped(&caps);
        assert_eq!((capped.usable.to_string().as_str(), capped.memory.usable_bytes), ("0,4", 50));
        assert_eq!(capped.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(capped.notes[0].to_string(), "gpus: GPU 7 does not exist");

        let generous = Caps { cpus: Some(99), memory_bytes: Some(u64::MAX), gpus: None };
        assert_eq!(machine().capped(&generous), machine());
        assert!(machine().capped(&Caps { gpus: Some(Vec::new()), ..Caps::default() }).gpus.is_empty());
    }

    #[test]
    fn invalid_caps_are_errors() {
        for text in ["gpus = ['']", "gpus = ['a b']", "gpus = ['99999999999']", "cpu = 3"] {
            assert!(toml::from_str::<Caps>(text).is_err(), "{text}");
        }
    }
}
