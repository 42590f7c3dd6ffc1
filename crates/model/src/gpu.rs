//! GPUs and their ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// The longest GPU id, in bytes.
const MAX_ID_BYTES: usize = 128;

/// The id of a GPU: permanent and unique on its node, such as `GPU-5d8f0c1a-…`, `MIG-…` or `pci-0000:07:00.0`. Visible ASCII without
/// commas, so that ids can be listed with commas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = r"^[!-+\--~]{1,128}$")]
pub struct GpuId(String);

/// The vendor of a GPU; decides which environment variables make it visible to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
}

/// A GPU that a node offers, or a separately assignable part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The GPU's id on the node.
    pub id: GpuId,
    /// The GPU's vendor.
    pub vendor: Vendor,
    /// The model, for people.
    pub name: String,
    /// The GPU's own memory in bytes; absent if the GPU shares the machine's memory, or the size is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The GPU's NUMA node; absent if it is unknown, or if the machine has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
}

impl GpuId {
    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates an id from a name. Replaces characters that an id cannot have.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let fit = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '_' };
        let text: String = name.chars().map(fit).take(MAX_ID_BYTES).collect();
        Self(if text.is_empty() { "unknown".to_owned() } else { text })
    }
}

impl FromStr for GpuId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_id = (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic() && c != b',');
        if is_id { Ok(Self(text.to_owned())) } else { Err(ParseError::new(text, "the unique id of a GPU")) }
    }
}

impl TryFrom<String> for GpuId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<GpuId> for String {
    fn from(id: GpuId) -> Self {
        id.0
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Vendor {
    /// Returns the vendor as a word in output and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_ids_are_visible_ascii_without_commas() {
        for text in ["", "a b", "a,b", "GPU-é", &"x".repeat(129)] {
            assert!(text.parse::<GpuId>().is_err(), "{text}");
            assert!(GpuId::from_name(text).as_str().parse::<GpuId>().is_ok(), "{text}");
        }
        assert_eq!(GpuId::from_name("MIG-1").as_str(), "MIG-1");
    }
}
