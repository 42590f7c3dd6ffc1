//! NVIDIA's GPUs: from NVML, or else from `/proc`, where the driver lists its cards.

use std::time::{Duration, Instant};

use hostler_model::Vendor;

use super::answer::{NvmlAnswer, NvmlCard, NvmlSlice};
use super::card::{DeviceFile, Found, Gpu, clean, device_file, note, numa_of_pci, pci_address};
use super::nvml;
use crate::source::Nvml;
use crate::within::TimedCall;
use crate::{Note, Source};

const CARDS: &str = "/proc/driver/nvidia/gpus";

/// Device files that all programs open in addition to the card's own device file. The last of them is for profilers.
const SHARED_DEVICES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// The only device file under WSL, where cards have no device files of their own.
const WINDOWS_DEVICE: &str = "/dev/dxg";

/// Timeout for reading the cards from `/proc` after NVML did not respond: the driver serves both, so `/proc` may hang
/// too.
const SECOND_PATIENCE: Duration = Duration::from_millis(300);

/// A running detection of NVIDIA's GPUs.
pub(super) struct Search {
    source: Source,
    library: Library,
}

enum Library {
    Absent,
    Asked(nvml::Question),
    Recorded(Result<NvmlAnswer, String>),
}

impl Search {
    /// Starts the query of NVML if NVIDIA's driver is loaded. Without the driver, loading the library may start
    /// programs that try to load the driver.
    pub(super) fn begin(source: &Source) -> Option<Self> {
        let has_driver = source.device(SHARED_DEVICES[0]).is_some()
            || source.device(WINDOWS_DEVICE).is_some()
            || !source.list(CARDS).is_empty();
        let library = match source.nvml() {
            _ if !has_driver => return None,
            Nvml::Absent => Library::Absent,
            Nvml::Libraries(names) => Library::Asked(nvml::Question::ask(names)),
            Nvml::Recorded(answer) => Library::Recorded(answer.clone()),
        };
        Some(Self { source: source.clone(), library })
    }

    pub(super) fn end(self, deadline: Instant) -> Found {
        let source = self.source;
        let answer = match self.library {
            Library::Absent => Err("is not queried".to_owned()),
            Library::Asked(question) => question.answer_by(deadline),
            Library::Recorded(answer) => answer,
        };
        source.keep_nvml(&answer);
        match answer {
            Ok(answer) => from_answer(&source, &answer),
            Err(why) => {
                let asked = TimedCall::new(move || from_proc(&source));
                let (gpus, mut notes) =
                    asked.wait_until(deadline.max(Instant::now()) + SECOND_PATIENCE).unwrap_or_else(|| {
                        (Vec::new(), vec![note("NVIDIA's driver does not respond; its GPUs are not offered")])
                    });
                notes.insert(0, note(format!("NVIDIA's library {why}; its GPUs are detected through /proc")));
                (gpus, notes)
            }
        }
    }
}

fn from_answer(source: &Source, answer: &NvmlAnswer) -> Found {
    let mut notes: Vec<_> = answer.silent.iter().map(|text| note(clean(text))).collect();
    let shared = shared_devices(source, &mut notes);
    let mut gpus = Vec::new();
    for card in &answer.cards {
        let Some(own) = card_device(source, card.minor) else {
            notes.push(note(format!("jobs cannot open {}: its device file is missing", clean(&card.uuid))));
            continue;
        };
        let whole = card_gpu(source, card, own, &shared);
        match &card.slices {
            None => gpus.push(whole),
            Some(slices) if slices.is_empty() => {
                notes.push(note(format!("{} is in MIG mode, but has no parts", whole.uuid)));
            }
            Some(slices) => {
                gpus.extend(slices.iter().filter_map(|slice| slice_gpu(source, card, slice, &whole, &mut notes)));
            }
        }
    }
    (gpus, notes)
}

fn card_gpu(source: &Source, card: &NvmlCard, own: DeviceFile, shared: &[DeviceFile]) -> Gpu {
    let pci = card.pci.as_deref().and_then(pci_address);
    Gpu {
        index: 0,
        vendor: Vendor::Nvidia,
        uuid: clean(&card.uuid),
        name: clean(&card.name),
        memory_bytes: card.memory_bytes,
        numa: pci.as_deref().and_then(|pci| numa_of_pci(source, pci)),
        pci,
        slice_of: None,
        devices: with_shared(vec![own], shared),
    }
}

/// A part of a card, if the device files of the card and of both MIG levels exist.
fn slice_gpu(source: &Source, card: &NvmlCard, slice: &NvmlSlice, whole: &Gpu, notes: &mut Vec<Note>) -> Option<Gpu> {
    let uuid = clean(&slice.uuid);
    let instance =
        format!("/proc/driver/nvidia/capabilities/gpu{}/mig/gi{}", card.minor.unwrap_or_default(), slice.gpu_instance);
    let access = [format!("{instance}/access"), format!("{instance}/ci{}/access", slice.compute_instance)];
    let mut devices = whole.devices.clone();
    for path in access {
        let minor = source.read(&path).and_then(|text| field(&text, "DeviceFileMinor:")?.parse::<u32>().ok());
        let device = minor.and_then(|minor| device_file(source, format!("/dev/nvidia-caps/nvidia-cap{minor}")));
        let Some(device) = device else {
            notes.push(note(format!("jobs cannot open {uuid}: the device file for {path} is missing")));
            return None;
        };
        devices.push(device);
    }
    Some(Gpu {
        uuid,
        name: clean(&slice.name),
        memory_bytes: slice.memory_bytes,
        slice_of: Some(whole.uuid.clone()),
        devices,
        ..whole.clone()
    })
}

/// Detects cards from the driver's list, which contains neither memory sizes nor parts.
fn from_proc(source: &Source) -> Found {
    let mut notes = Vec::new();
    let shared = shared_devices(source, &mut notes);
    let mut gpus = Vec::new();
    for address in source.list(CARDS) {
        let Some(text) = source.read(&format!("{CARDS}/{address}/information")) else { continue };
        match card_from_proc(source, &address, &text, &shared) {
            Ok(gpu) => gpus.push(gpu),
            Err(why) => notes.push(note(format!("the GPU at {} {why}", clean(&address)))),
        }
    }
    if !gpus.is_empty() {
        notes.push(note("the memory size of NVIDIA's GPUs is unknown without their library"));
    }
    (gpus, notes)
}

fn card_from_proc(source: &Source, address: &str, text: &str, shared: &[DeviceFile]) -> Result<Gpu, &'static str> {
    let minor = field(text, "Device Minor:").and_then(|minor| minor.parse().ok());
    let minor: u32 = minor.ok_or("has no device number and is not offered")?;
    if field(text, "GPU Excluded:") == Some("Yes") {
        return Err("is excluded by the driver's settings");
    }
    let own = card_device(source, Some(minor)).ok_or("cannot be opened by jobs: its device file is missing")?;
    if !source.numbered(&format!("/proc/driver/nvidia/capabilities/gpu{minor}/mig"), "gi").is_empty() {
        return Err("is in MIG mode, and only NVIDIA's library knows its parts");
    }
    let pci = pci_address(field(text, "Bus Location:").unwrap_or(address));
    // Older drivers report question marks until the first use of a card.
    let uuid = field(text, "GPU UUID:").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'));
    Ok(Gpu {
        index: 0,
        vendor: Vendor::Nvidia,
        uuid: uuid.map_or_else(|| format!("pci-{}", pci.as_deref().unwrap_or("unknown")), clean),
        name: clean(field(text, "Model:").unwrap_or("NVIDIA")),
        memory_bytes: None,
        numa: pci.as_deref().and_then(|pci| numa_of_pci(source, pci)),
        pci,
        slice_of: None,
        devices: with_shared(vec![own], shared),
    })
}

/// The value after a label at the start of a line.
fn field<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)).map(str::trim)
}

fn card_device(source: &Source, minor: Option<u32>) -> Option<DeviceFile> {
    let own = minor.and_then(|minor| device_file(source, format!("/dev/nvidia{minor}")));
    own.or_else(|| device_file(source, WINDOWS_DEVICE.to_owned()))
}

fn shared_devices(source: &Source, notes: &mut Vec<Note>) -> Vec<DeviceFile> {
    let shared: Vec<_> = SHARED_DEVICES.iter().filter_map(|path| device_file(source, (*path).to_owned())).collect();
    let has_memory_device = shared.iter().any(|device| device.path == SHARED_DEVICES[1]);
    if !has_memory_device && source.device(WINDOWS_DEVICE).is_none() {
        notes.push(note("/dev/nvidia-uvm is missing, but CUDA needs it; create it with `nvidia-modprobe -u -c 0`"));
    }
    shared
}

fn with_shared(mut devices: Vec<DeviceFile>, shared: &[DeviceFile]) -> Vec<DeviceFile> {
    devices.extend_from_slice(shared);
    devices
}
