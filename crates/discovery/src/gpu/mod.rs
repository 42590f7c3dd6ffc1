//! GPUs, and the devices that a job must be able to open to use one.
//!
//! Drivers hang when a card is sick, so everything that goes through one is asked on threads of their own, and what has not
//! answered in time is not offered. Displays are not GPUs in this sense, nor are the graphics in Intel's processors; those in AMD's
//! are when the compute driver lists them.

mod drm;
#[cfg(feature = "nvml")]
mod library;
mod nvidia;
pub(crate) mod nvml;

use std::collections::BTreeSet;
use std::time::Instant;

use hostler_model::{GpuId, Vendor};
use serde::{Deserialize, Serialize};

use crate::within::Asked;
use crate::{Note, Source, Topic};

/// A GPU, or a part of one that can be given to a job by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its place among the GPUs of this machine, from 0. Changes when cards are added, moved or fall silent.
    pub index: u32,
    /// Whose it is, and with that which variable shows it to a job.
    pub vendor: Vendor,
    /// A name that stays with the card and that no other GPU of this machine has. `GPU-…` and `MIG-…` are what the vendor's own
    /// software understands; `pci-…` is made up where the driver has no such name.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// Memory of its own, in bytes; `None` when it shares the machine's, or its size is unknown.
    pub memory_bytes: Option<u64>,
    /// The address on the PCI bus, such as `0000:07:00.0`.
    pub pci: Option<String>,
    /// The NUMA node that it is attached to; `None` when there is only one, or it is unknown.
    pub numa: Option<u32>,
    /// The unique id of the whole card, when this is a part of one (MIG).
    pub slice_of: Option<String>,
    /// What a job must be able to open to compute on it, to profile that, and to draw with it: whoever cannot open one of them
    /// cannot use it. Some are shared with other GPUs.
    pub devices: Vec<DeviceFile>,
}

impl Gpu {
    /// The name by which jobs hold it.
    #[must_use]
    pub fn id(&self) -> GpuId {
        GpuId::from_name(&self.uuid)
    }

    /// What a head is told of it.
    #[must_use]
    pub fn summary(&self) -> hostler_model::Gpu {
        let Self { vendor, name, memory_bytes, numa, .. } = self.clone();
        hostler_model::Gpu { id: self.id(), vendor, name, memory_bytes, numa }
    }
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceFile {
    /// Where it is.
    pub path: String,
    /// Its major number: the driver.
    pub major: u32,
    /// Its minor number: which device of the driver.
    pub minor: u32,
}

/// GPUs and what is to be said about them.
type Found = (Vec<Gpu>, Vec<Note>);

/// A search under way.
pub(crate) struct Search {
    source: Source,
    nvidia: Option<nvidia::Search>,
    others: Option<Asked<Found>>,
    deadline: Instant,
}

impl Search {
    /// Begins to look for GPUs. Where there is nothing that looks like one, that costs no more than a few system calls.
    pub(crate) fn begin(source: &Source, deadline: Instant) -> Self {
        let nvidia = nvidia::Search::begin(source);
        let others = drm::is_there(source).then(|| {
            let source = source.clone();
            Asked::new(move || drm::find(&source))
        });
        Self { source: source.clone(), nvidia, others, deadline }
    }

    /// What was found by the deadline, and shortly after it when there is another way to look.
    pub(crate) fn end(self, notes: &mut Vec<Note>) -> Vec<Gpu> {
        let nvidia = self.nvidia.map(|search| search.end(self.deadline)).unwrap_or_default();
        let others = self.others.map(|asked| {
            let silent = "a graphics driver does not answer: AMD's and Intel's GPUs are not offered";
            asked.by(self.deadline).unwrap_or_else(|| (Vec::new(), vec![note(silent)]))
        });
        let (others, about_others) = others.unwrap_or_default();
        notes.extend(nvidia.1.into_iter().chain(about_others));
        let mut gpus = numbered(nvidia.0.into_iter().chain(others).collect());
        drm::add_drawing_devices(&self.source, &mut gpus);
        gpus
    }
}

/// Gives each its index, and a unique id to those whose driver gave the same to several.
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

/// The device at `path`, if it is there.
fn device_file(source: &Source, path: String) -> Option<DeviceFile> {
    let (major, minor) = source.device(&path)?;
    Some(DeviceFile { path, major, minor })
}

/// The NUMA node of a device on the PCI bus; the kernel writes -1 where there is only one.
fn numa_of_pci(source: &Source, pci: &str) -> Option<u32> {
    source.number(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| u32::try_from(node).ok())
}

/// An address on the PCI bus as the kernel writes it, `0000:07:00.0`: drivers write a longer domain, and capital letters.
fn pci_address(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (domain, rest) = text.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_address = rest.len() == 7 && rest.bytes().all(|c| c.is_ascii_hexdigit() || b":.".contains(&c));
    is_address.then(|| format!("{domain:04x}:{rest}"))
}

/// A name as a driver gives it, fit for a table and a log.
fn clean(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(128).collect();
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_kernel_does() {
        assert_eq!(pci_address("00000000:0A:00.0").as_deref(), Some("0000:0a:00.0"));
        assert_eq!(pci_address("0000:07:00.0\n").as_deref(), Some("0000:07:00.0"));
        for garbage in ["", "07:00.0", "0000:../../", "0000:07:00.00", "x:07:00.0"] {
            assert_eq!(pci_address(garbage), None, "{garbage}");
        }
        assert_eq!(clean("\u{1b}[1mcard\n"), "[1mcard");
    }
}
