//! The response of NVIDIA's management library (NVML).

use serde::{Deserialize, Serialize};

/// NVML's response, as recorded in a fixture.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvmlAnswer {
    /// Reasons why cards could not be queried, one sentence each.
    pub silent: Vec<String>,
    /// The other cards, in the order of their addresses.
    pub cards: Vec<NvmlCard>,
}

/// A card in NVML's response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmlCard {
    pub uuid: String,
    /// The model.
    pub name: String,
    /// Memory in bytes; `None` for some processors with an integrated GPU.
    pub memory_bytes: Option<u64>,
    /// PCI address, with eight digits for the domain.
    pub pci: Option<String>,
    /// Number in the name of its device file.
    pub minor: Option<u32>,
    /// Its parts, if the card is in MIG mode.
    pub slices: Option<Vec<NvmlSlice>>,
}

/// A part of a card (MIG device).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmlSlice {
    pub uuid: String,
    /// Model of the card, with the size of the part.
    pub name: String,
    pub memory_bytes: Option<u64>,
    pub gpu_instance: u32,
    /// Number of the compute instance within it.
    pub compute_instance: u32,
}
