//! GPUs as detection returns them, and what detection of all vendors shares.

use hostler_model::{GpuId, Vendor};
use serde::{Deserialize, Serialize};

use crate::{Note, Source, Topic};

/// A GPU, or a part of one that can be assigned separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Index among the GPUs of this machine, from 0. It may change when cards are added, moved or fail.
    pub index: u32,
    /// The vendor, which determines the environment variables that tell a job about its GPUs.
    pub vendor: Vendor,
    /// Permanent id of the card, unique on this machine. The vendor's software accepts ids of the forms `GPU-…` and
    /// `MIG-…`. If the driver has no id for the card, the id has the form `pci-…`.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// Dedicated memory in bytes; `None` if it is unknown, or if the GPU shares the machine's memory.
    pub memory_bytes: Option<u64>,
    /// PCI address, e.g. `0000:07:00.0`.
    pub pci: Option<String>,
    /// The closest NUMA node; `None` if it is unknown, or if the machine has only one.
    pub numa: Option<u32>,
    /// Unique id of the whole card, if this GPU is a part of a card (MIG).
    pub slice_of: Option<String>,
    /// Device files that a job needs for computing, profiling and rendering. A job that cannot open one of them cannot
    /// use the GPU. Some of these files are shared with other GPUs.
    pub devices: Vec<DeviceFile>,
}

impl Gpu {
    /// The id under which jobs hold the GPU.
    #[must_use]
    pub fn id(&self) -> GpuId {
        GpuId::from_name(&self.uuid)
    }

    /// The GPU's description for the head.
    #[must_use]
    pub fn summary(&self) -> hostler_model::Gpu {
        let Self { vendor, name, memory_bytes, numa, .. } = self.clone();
        hostler_model::Gpu { id: self.id(), vendor, name, memory_bytes, numa }
    }
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceFile {
    pub path: String,
    /// Major number, which identifies the driver.
    pub major: u32,
    /// Minor number, which identifies the device.
    pub minor: u32,
}

/// Detected GPUs, and notes about the detection.
pub(super) type Found = (Vec<Gpu>, Vec<Note>);

pub(super) fn note(text: impl Into<String>) -> Note {
    Note::new(Topic::Gpus, text)
}

/// The device file at `path`, if it exists.
pub(super) fn device_file(source: &Source, path: String) -> Option<DeviceFile> {
    let (major, minor) = source.device(&path)?;
    Some(DeviceFile { path, major, minor })
}

/// The NUMA node of a PCI device. The kernel reports -1 if there is only one node.
pub(super) fn numa_of_pci(source: &Source, pci: &str) -> Option<u32> {
    source.number(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| u32::try_from(node).ok())
}

/// Converts a PCI address to the kernel's form, e.g. `0000:07:00.0`. Drivers use a longer domain and capital letters.
pub(super) fn pci_address(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (domain, rest) = text.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_address = rest.len() == 7 && rest.bytes().all(|c| c.is_ascii_hexdigit() || b":.".contains(&c));
    is_address.then(|| format!("{domain:04x}:{rest}"))
}

/// Removes control characters from a driver's text, and limits its length.
pub(super) fn clean(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(128).collect();
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_normalized() {
        assert_eq!(pci_address("00000000:0A:00.0").as_deref(), Some("0000:0a:00.0"));
        assert_eq!(pci_address("0000:07:00.0\n").as_deref(), Some("0000:07:00.0"));
        for garbage in ["", "07:00.0", "0000:../../", "0000:07:00.00", "x:07:00.0"] {
            assert_eq!(pci_address(garbage), None, "{garbage}");
        }
        assert_eq!(clean("\u{1b}[1mcard\n"), "[1mcard");
    }
}
