//! GPUs of AMD and Intel, from `/sys`.
//!
//! AMD's compute driver lists all GPUs that can compute, including parts of divided cards. Each has a render device.
//! Intel's cards are found by their render devices.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::Vendor;

use super::card::{DeviceFile, Found, Gpu, clean, device_file, note, numa_of_pci, pci_address};
use crate::Source;

/// Directory in which AMD's compute driver lists processors and GPUs.
const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const DRM: &str = "/sys/class/drm";
const RENDER: &str = "renderD";

/// PCI vendor id of AMD.
const AMD: i64 = 0x1002;

/// PCI vendor id of Intel.
const INTEL: i64 = 0x8086;

/// Device file that all compute programs open in addition to a card's render device.
const AMD_SHARED: &str = "/dev/kfd";

/// Whether the machine may have GPUs of AMD or Intel.
pub(super) fn may_have_gpus(source: &Source) -> bool {
    !source.numbered(DRM, RENDER).is_empty() || !source.numbered(NODES, "").is_empty()
}

pub(super) fn find(source: &Source) -> Found {
    let (mut gpus, mut notes) = (Vec::new(), Vec::new());
    let mut listed = BTreeSet::new();
    for node in source.numbered(NODES, "") {
        let Some(node) = Node::read(source, node) else { continue };
        listed.insert(node.render);
        match amd(source, &node) {
            Some(gpu) => gpus.push(gpu),
            None => notes.push(note(format!(
                "jobs cannot open AMD's {}: {AMD_SHARED} or /dev/dri/{RENDER}{} is missing",
                node.name, node.render
            ))),
        }
    }
    for render in source.numbered(DRM, RENDER).difference(&listed) {
        let device = format!("{DRM}/{RENDER}{render}/device");
        match vendor(source, &device) {
            Some(AMD) => {
                notes.push(note(format!("AMD's {RENDER}{render} is unknown to the compute driver and is not offered")));
            }
            Some(INTEL) => match intel(source, *render, &device) {
                Ok(gpu) => gpus.push(gpu),
                Err(why) => notes.push(note(why)),
            },
            _ => {}
        }
    }
    (gpus, notes)
}

/// Data of AMD's compute driver about a GPU.
struct Node {
    name: String,
    /// Number of the GPU's render device.
    render: u32,
    properties: BTreeMap<String, u64>,
    memory_bytes: Option<u64>,
}

impl Node {
    /// Reads an entry of the driver's list; `None` for processors, and for entries that this process may not read.
    fn read(source: &Source, node: u32) -> Option<Self> {
        let at = format!("{NODES}/{node}");
        let properties = properties(&source.read(&format!("{at}/properties"))?);
        if properties.get("simd_count").is_none_or(|count| *count == 0) {
            return None;
        }
        let render = u32::try_from(*properties.get("drm_render_minor")?).ok().filter(|render| *render > 0)?;
        let name = clean(&source.read(&format!("{at}/name")).unwrap_or_default());
        Some(Self { name, render, properties, memory_bytes: local_memory(source, &at) })
    }

    fn pci(&self) -> Option<String> {
        let location = *self.properties.get("location_id")?;
        let domain = self.properties.get("domain").copied().unwrap_or(0);
        pci_address(&format!("{domain:04x}:{:02x}:{:02x}.{}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7))
    }
}

/// Size of the card's memory in bytes: the sum of the memory banks of type 1, which the processor can access, and type
/// 2, which it cannot.
fn local_memory(source: &Source, node: &str) -> Option<u64> {
    let banks = source.numbered(&format!("{node}/mem_banks"), "");
    let banks = banks.into_iter().filter_map(|bank| source.read(&format!("{node}/mem_banks/{bank}/properties")));
    let local = banks.map(|text| properties(&text)).filter(|bank| matches!(bank.get("heap_type"), Some(1 | 2)));
    let sizes = local.filter_map(|bank| bank.get("size_in_bytes").copied());
    sizes.reduce(u64::saturating_add).filter(|bytes| *bytes > 0)
}

fn amd(source: &Source, node: &Node) -> Option<Gpu> {
    let devices = devices(source, node.render, &[AMD_SHARED])?;
    let pci = node.pci();
    // Parts of a card have no PCI device of their own; use that of the card.
    let device = match vendor(source, &format!("{DRM}/{RENDER}{}/device", node.render)) {
        Some(_) => format!("{DRM}/{RENDER}{}/device", node.render),
        None => format!("/sys/bus/pci/devices/{}", pci.as_deref().unwrap_or("none")),
    };
    let from_driver = || node.properties.get("unique_id").filter(|id| **id != 0).map(|id| format!("{id:016x}"));
    let serial = source.read(&format!("{device}/unique_id")).map(|id| clean(&id)).filter(|id| !id.is_empty());
    let model = source.read(&format!("{device}/product_name")).filter(|name| !name.is_empty());
    let carved_out =
        || source.number(&format!("{device}/mem_info_vram_total")).and_then(|bytes| u64::try_from(bytes).ok());
    Some(Gpu {
        index: 0,
        vendor: Vendor::Amd,
        uuid: serial
            .or_else(from_driver)
            .map_or_else(|| id_from_location(pci.as_deref(), node.render), |id| format!("GPU-{id}")),
        name: model.map_or_else(|| format!("AMD {}", node.name), |name| clean(&name)),
        memory_bytes: node.memory_bytes.or_else(carved_out),
        numa: pci.as_deref().and_then(|pci| numa_of_pci(source, pci)),
        pci,
        slice_of: None,
        devices,
    })
}

/// Returns an Intel card, or the reason why the card is not offered.
fn intel(source: &Source, render: u32, device: &str) -> Result<Gpu, String> {
    let pci = pci_of(source, device);
    // The graphics of Intel's processors are on the first PCI bus, which has no slots.
    if pci.as_deref().is_none_or(|pci| pci.starts_with("0000:00:")) {
        return Err(format!("Intel's {RENDER}{render} is part of the processor and is not offered"));
    }
    let devices = devices(source, render, &[])
        .ok_or_else(|| format!("jobs cannot open Intel's {RENDER}{render}: its device file is missing"))?;
    Ok(Gpu {
        index: 0,
        vendor: Vendor::Intel,
        uuid: id_from_location(pci.as_deref(), render),
        name: format!("Intel {}", clean(&source.read(&format!("{device}/device")).unwrap_or_default()))
            .trim()
            .to_owned(),
        memory_bytes: None,
        numa: pci.as_deref().and_then(|pci| numa_of_pci(source, pci)),
        pci,
        slice_of: None,
        devices,
    })
}

/// Adds rendering devices, which some drivers also use for computing.
pub(super) fn add_drawing_devices(source: &Source, gpus: &mut [Gpu]) {
    if gpus.is_empty() {
        return;
    }
    for prefix in ["card", RENDER] {
        for number in source.numbered(DRM, prefix) {
            let name = format!("{prefix}{number}");
            let Some(pci) = pci_of(source, &format!("{DRM}/{name}/device")) else { continue };
            let Some(device) = device_file(source, format!("/dev/dri/{name}")) else { continue };
            for gpu in gpus.iter_mut().filter(|gpu| gpu.pci.as_ref() == Some(&pci)) {
                if !gpu.devices.contains(&device) {
                    gpu.devices.push(device.clone());
                }
            }
        }
    }
}

/// PCI address of a device; `None` if the device is not a PCI device.
fn pci_of(source: &Source, device: &str) -> Option<String> {
    let uevent = source.read(&format!("{device}/uevent"))?;
    uevent.lines().find_map(|line| pci_address(line.strip_prefix("PCI_SLOT_NAME=")?))
}

/// Returns a render device and the given shared device files; `None` if one of these files is missing.
fn devices(source: &Source, render: u32, shared: &[&str]) -> Option<Vec<DeviceFile>> {
    let render = format!("/dev/dri/{RENDER}{render}");
    let paths = std::iter::once(render).chain(shared.iter().map(|path| (*path).to_owned()));
    paths.map(|path| device_file(source, path)).collect()
}

fn id_from_location(pci: Option<&str>, render: u32) -> String {
    pci.map_or_else(|| format!("{RENDER}{render}"), |pci| format!("pci-{pci}"))
}

/// Reads a device's vendor id, which is written in hexadecimal.
fn vendor(source: &Source, device: &str) -> Option<i64> {
    i64::from_str_radix(source.read(&format!("{device}/vendor"))?.strip_prefix("0x")?, 16).ok()
}

/// Parses lines with a key and a number.
fn properties(text: &str) -> BTreeMap<String, u64> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(' '));
    pairs.filter_map(|(key, value)| Some((key.to_owned(), value.trim().parse().ok()?))).collect()
}
