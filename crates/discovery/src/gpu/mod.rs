//! GPUs, and the device files that a job needs to use one.
//!
//! Drivers hang when a card is faulty. Calls to drivers therefore run on threads of their own, and GPUs whose driver
//! does not respond in time are not offered. Displays and the graphics of Intel's processors do not count as GPUs. The
//! graphics of AMD's processors count if the compute driver lists them.

mod drm;
#[cfg(feature = "nvml")]
mod library;
mod nvidia;
pub(crate) mod nvml;

use std::collections::BTreeSet;
use std::time::Instant;

use hostler_model::{GpuId, Vendor};
use serde::{Deserialize, Serialize};

use crate::within::TimedCall;
use crate::{Note, Source, Topic};

/// A GPU, or a part of one that can be assigned separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Index among the GPUs of this machine, from 0. The index may change when cards are added, moved or fail.
    pub index: u32,
    /// The vendor, which determines the environment variable for jobs.
    pub vendor: Vendor,
    /// Permanent, unique id of the card on this machine. The vendor's software accepts `GPU-…` and `MIG-…`. The form
    /// `pci-…` is used if the driver has no id.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// Dedicated memory in bytes; `None` if unknown, or if the GPU shares the machine's memory.
    pub memory_bytes: Option<u64>,
    /// PCI address, e.g. `0000:07:00.0`.
    pub pci: Option<String>,
    /// The closest NUMA node; `None` if the node is unknown, or the machine has only one NUMA node.
    pub numa: Option<u32>,
    /// Unique id of the whole card, if this GPU is a part of a card (MIG).
    pub slice_of: Option<String>,
    /// Device files that a job needs for computing, profiling and rendering. A job cannot use the GPU unless it can
    /// open all of these files. Some files are shared with other GPUs.
    pub devices: Vec<DeviceFile>,
}

impl Gpu {
    /// The id under which jobs hold the GPU.
    #[must_use]
    pub fn id(&self) -> GpuId {
        GpuId::from_name(&self.uuid)
    }

    /// The description for the head.
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

/// Detected GPUs and notes about them.
type Found = (Vec<Gpu>, Vec<Note>);

/// A detection in progress.
pub(crate) struct Search {
    source: Source,
    nvidia: Option<nvidia::Search>,
    others: Option<TimedCall<Found>>,
    deadline: Instant,
}

impl Search {
    /// Starts the detection. On machines without GPUs, the detection takes only a few system calls.
    pub(crate) fn begin(source: &Source, deadline: Instant) -> Self {
        let nvidia = nvidia::Search::begin(source);
        let others = drm::may_have_gpus(source).then(|| {
            let source = source.clone();
            TimedCall::new(move || drm::find(&source))
        });
        Self { source: source.clone(), nvidia, others, deadline }
    }

    /// Returns the GPUs found before the deadline. If a fallback is used, returns shortly after the deadline.
    pub(crate) fn end(self, notes: &mut Vec<Note>) -> Vec<Gpu> {
        let nvidia = self.nvidia.map(|search| search.end(self.deadline)).unwrap_or_default();
        let others = self.others.map(|asked| {
            let silent = "a graphics driver does not respond; GPUs of AMD and Intel are not offered";
            asked.wait_until(self.deadline).unwrap_or_else(|| (Vec::new(), vec![note(silent)]))
        });
        let (others, about_others) = others.unwrap_or_default();
        notes.extend(nvidia.1.into_iter().chain(about_others));
        let mut gpus = numbered(nvidia.0.into_iter().chain(others).collect());
        drm::add_drawing_devices(&self.source, &mut gpus);
        gpus
    }
}

/// Sets the indices, and makes duplicate ids unique.
fn numbered(mut gpus: Vec<Gpu>) -> Vec<Gpu> {
    let mut seen = BTreeSet::new();
    for (index, gpu) in gpus.iter_mut().enumerate() {
        gpu.index = index as u32;
        if !seen.insert(gpu.uuid.clone()) {
            gpu.uuid = format!("{}-{index}", gpu.uuid);
            seen.insert(gpu.uuid.clone());
        }
    }
    gpus
}

fn note(text: impl Into<String>) -> Note {
    Note::new(Topic::Gpus, text)
}

/// The device file at `path`, if it exists.
fn device_file(source: &Source, path: String) -> Option<DeviceFile> {
    let (major, minor) = source.device(&path)?;
    Some(DeviceFile { path, major, minor })
}

/// The NUMA node of a PCI device. The kernel reports -1 if there is only one node.
fn numa_of_pci(source: &Source, pci: &str) -> Option<u32> {
    source.number(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| u32::try_from(node).ok())
}

/// Converts a PCI address to the kernel's form, e.g. `0000:07:00.0`. Drivers use a longer domain and capital letters.
fn pci_address(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (domain, rest) = text.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_address = rest.len() == 7 && rest.bytes().all(|c| c.is_ascii_hexdigit() || b":.".contains(&c));
    is_address.then(|| format!("{domain:04x}:{rest}"))
}

/// Removes control characters from a driver's text, and limits its length.
fn clean(name: &str) -> String {
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
