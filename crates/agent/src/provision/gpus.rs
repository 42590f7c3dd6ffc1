//! GPUs: the devices that a run may not open, and the variables that show the run its GPUs.
//!
//! A run's device rule covers every GPU of the machine, including those that this node does not offer or that another
//! virtual node offers. A run cannot open GPUs that it does not hold. Devices shared by GPUs, such as a driver's
//! control device, are open to runs that hold one of these GPUs. The variables do not protect anything. They tell
//! programs which GPUs to use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use hostler_model::{Gpu, GpuId, Vendor};
use hostler_shepherd::cgroup::Device;

/// The GPUs of a container.
#[derive(Debug, Default)]
pub(crate) struct ContainerGpus {
    /// Ids of NVIDIA GPUs, as the engine's own tools know them.
    pub(crate) nvidia: Vec<String>,
    /// Device files of other GPUs.
    pub(crate) devices: Vec<String>,
    /// Whether some of the other GPUs are AMD's.
    pub(crate) has_amd: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineGpu {
    /// The GPU as reported to the head.
    pub gpu: Gpu,
    /// Index among the GPUs of the machine, from 0.
    pub index: u32,
    /// Devices that programs open to use the GPU.
    pub devices: Vec<DeviceFile>,
    /// Whether this node offers the GPU to jobs.
    pub is_given: bool,
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile {
    pub path: String,
    /// Major and minor number.
    pub device: Device,
}

/// The GPUs of the machine, ordered by index.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    all: Vec<MachineGpu>,
    /// Why device rules would not cover all GPUs; `None` if they would.
    flaw: Option<String>,
}

impl Gpus {
    pub(crate) fn new(all: Vec<MachineGpu>) -> Self {
        let missing = all.iter().find_map(|gpu| Some((gpu, gpu.devices.iter().find(|device| !device.is_there())?)));
        let nothing = all.iter().find(|gpu| gpu.devices.is_empty());
        let flaw = missing.map(|(gpu, device)| {
            let Device { major, minor } = device.device;
            format!("{} ({major}:{minor}) of {} is not on this machine", device.path, gpu.gpu.id)
        });
        let flaw = flaw.or_else(|| nothing.map(|gpu| format!("{} has no device file that rules can deny", gpu.gpu.id)));
        Self { all, flaw }
    }

    /// The GPUs that this node offers.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Gpu> {
        self.all.iter().filter(|gpu| gpu.is_given).map(|gpu| &gpu.gpu)
    }

    /// Why jobs can use GPUs of other jobs; `None` if they cannot, or if there are no GPUs. `cannot_deny` is the reason
    /// why devices cannot be denied on this node.
    pub(crate) fn shortcoming(&self, cannot_deny: Option<String>) -> Option<String> {
        if self.all.is_empty() { None } else { cannot_deny.or_else(|| self.flaw.clone()) }
    }

    /// Returns a GPU in `held` that the machine no longer has; `None` if the machine has all of them.
    pub(crate) fn lacks<'a>(&self, held: &'a BTreeSet<GpuId>) -> Option<&'a GpuId> {
        held.iter().find(|id| !self.all.iter().any(|gpu| gpu.gpu.id == **id))
    }

    /// Devices that a run with these GPUs may not open; `None` on machines without GPUs.
    pub(crate) fn denied(&self, held: &BTreeSet<GpuId>) -> Option<Vec<Device>> {
        if self.all.is_empty() {
            return None;
        }
        let devices = |is_held: bool| {
            let of = self.all.iter().filter(move |gpu| held.contains(&gpu.gpu.id) == is_held);
            of.flat_map(|gpu| &gpu.devices).map(|device| device.device)
        };
        let own: BTreeSet<Device> = devices(true).collect();
        let others: BTreeSet<Device> = devices(false).collect();
        Some(others.difference(&own).copied().collect())
    }

    /// Devices of a run with these GPUs, for its sandbox.
    pub(crate) fn device_files(&self, held: &BTreeSet<GpuId>) -> Vec<hostler_shepherd::DeviceFile> {
        let own = self.all.iter().filter(|gpu| held.contains(&gpu.gpu.id)).flat_map(|gpu| &gpu.devices);
        let files: BTreeMap<&str, Device> = own.map(|file| (file.path.as_str(), file.device)).collect();
        files.into_iter().map(|(path, device)| hostler_shepherd::DeviceFile { path: path.to_owned(), device }).collect()
    }

    /// What a container of a run with these GPUs gets.
    pub(crate) fn in_container(&self, held: &BTreeSet<GpuId>) -> ContainerGpus {
        let own = self.all.iter().filter(|gpu| held.contains(&gpu.gpu.id));
        let (nvidia, others): (Vec<_>, Vec<_>) = own.partition(|gpu| gpu.gpu.vendor == Vendor::Nvidia);
        let has_amd = others.iter().any(|gpu| gpu.gpu.vendor == Vendor::Amd);
        let devices: BTreeSet<&str> =
            others.iter().flat_map(|gpu| &gpu.devices).map(|device| device.path.as_str()).collect();
        ContainerGpus {
            nvidia: nvidia.iter().map(|gpu| gpu.gpu.id.to_string()).collect(),
            devices: devices.into_iter().map(str::to_owned).collect(),
            has_amd,
        }
    }

    /// Files of the driver for a run with these GPUs and an image.
    pub(crate) fn driver_files(&self, held: &BTreeSet<GpuId>) -> Vec<hostler_shepherd::Shown> {
        let has_nvidia = self.all.iter().any(|gpu| held.contains(&gpu.gpu.id) && gpu.gpu.vendor == Vendor::Nvidia);
        if has_nvidia { crate::provision::driver::files() } else { Vec::new() }
    }

    /// Variables of a run with these GPUs; empty on machines without GPUs. If other GPUs are denied, drivers number the
    /// run's own GPUs from 0.
    pub(crate) fn variables(&self, held: &BTreeSet<GpuId>, are_denied: bool) -> Vec<(String, String)> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let own: Vec<&MachineGpu> = self.all.iter().filter(|gpu| held.contains(&gpu.gpu.id)).collect();
        let ids = list(own.iter().map(|gpu| gpu.gpu.id.as_str()));
        let mut all = vec![("HOSTLER_GPUS".to_owned(), ids)];
        let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
        for vendor in [Vendor::Nvidia, Vendor::Amd, Vendor::Intel] {
            let of_vendor: Vec<&MachineGpu> = self.all.iter().filter(|gpu| gpu.gpu.vendor == vendor).collect();
            if !of_vendor.is_empty() {
                Shown::of(&of_vendor, held, are_denied).variables(vendor, &mut add);
            }
        }
        all
    }
}

/// A run's GPUs of one vendor, in the forms that the vendor's software accepts.
struct Shown {
    /// Driver ids; `None` if one of the GPUs has no such id.
    by_id: Option<String>,
    /// Indices under which the driver lists the run's GPUs to the run.
    by_number: String,
    /// The numbers from 0 on, one for each of the run's GPUs.
    counted: String,
}

impl Shown {
    fn of(of_vendor: &[&MachineGpu], held: &BTreeSet<GpuId>, are_denied: bool) -> Self {
        let own = of_vendor.iter().enumerate().filter(|(_, gpu)| held.contains(&gpu.gpu.id));
        let (numbers, ids): (Vec<usize>, Vec<&str>) = own.map(|(number, gpu)| (number, gpu.gpu.id.as_str())).unzip();
        let counted = list(0..ids.len());
        let are_known = ids.iter().all(|id| id.starts_with("GPU-") || id.starts_with("MIG-"));
        Self {
            by_id: are_known.then(|| list(ids)),
            by_number: if are_denied { counted.clone() } else { list(numbers) },
            counted,
        }
    }

    fn variables(self, vendor: Vendor, add: &mut impl FnMut(&str, String)) {
        let is_none = self.counted.is_empty();
        match vendor {
            // An empty value hides all GPUs.
            Vendor::Nvidia => {
                if self.by_id.is_none() {
                    // The default order starts with the fastest GPU.
                    add("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
                }
                add("CUDA_VISIBLE_DEVICES", self.by_id.unwrap_or(self.by_number));
            }
            // The other variables select among the GPUs that the first one leaves. An empty value would select all.
            Vendor::Amd => {
                add("ROCR_VISIBLE_DEVICES", self.by_id.unwrap_or(self.by_number));
                add("HIP_VISIBLE_DEVICES", if is_none { "-1".to_owned() } else { self.counted.clone() });
                add("GPU_DEVICE_ORDINAL", if is_none { "-1".to_owned() } else { self.counted });
            }
            // No value can hide all GPUs.
            Vendor::Intel if is_none => {}
            Vendor::Intel => add("ZE_AFFINITY_MASK", self.by_number),
        }
    }
}

impl DeviceFile {
    /// Whether the machine has the device, under this or another name. False for simulated machines in tests.
    fn is_there(&self) -> bool {
        let Device { major, minor } = self.device;
        let number = nix::sys::stat::makedev(major.into(), minor.into());
        fs::metadata(&self.path).is_ok_and(|file| file.file_type().is_char_device() && file.rdev() == number)
            || Path::new(&format!("/sys/dev/char/{major}:{minor}")).exists()
    }
}

/// Joins items with commas.
fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, vendor: Vendor, id: &str, devices: &[(u32, u32)]) -> MachineGpu {
        let device = |&(major, minor): &(u32, u32)| DeviceFile {
            path: format!("/dev/test-{major}-{minor}"),
            device: Device { major, minor },
        };
        MachineGpu {
            gpu: Gpu {
                id: id.parse().expect("an id"),
                vendor,
                name: "card".to_owned(),
                memory_bytes: None,
                numa: None,
            },
            index,
            devices: devices.iter().map(device).collect(),
            is_given: index < 2,
        }
    }

    /// Three cards of one driver, with a shared control device.
    fn nvidia() -> Gpus {
        let card = |index| gpu(index, Vendor::Nvidia, &format!("GPU-{index}"), &[(195, index), (195, 255)]);
        Gpus::new((0..3).map(card).collect())
    }

    fn held(ids: &[&str]) -> BTreeSet<GpuId> {
        ids.iter().map(|id| id.parse().expect("an id")).collect()
    }

    fn denied(gpus: &Gpus, ids: &[&str]) -> String {
        list(
            gpus.denied(&held(ids))
                .expect("the list is not empty")
                .iter()
                .map(|it| format!("{}:{}", it.major, it.minor)),
        )
    }

    fn shown(gpus: &Gpus, ids: &[&str], are_denied: bool) -> String {
        let variables = gpus.variables(&held(ids), are_denied);
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn other_gpus_are_denied_but_shared_devices_are_not() {
        let gpus = nvidia();
        assert_eq!(denied(&gpus, &["GPU-1"]), "195:0,195:2", "a GPU that this node does not offer is denied, too");
        assert_eq!(denied(&gpus, &[]), "195:0,195:1,195:2,195:255");
        assert_eq!(denied(&gpus, &["GPU-0", "GPU-1", "GPU-2"]), "");
        assert_eq!(Gpus::default().denied(&held(&[])), None, "a machine without GPUs has no rule");
        assert_eq!(gpus.given().count(), 2);
        assert_eq!(gpus.lacks(&held(&["GPU-1", "GPU-7"])).map(GpuId::as_str), Some("GPU-7"));
    }

    #[test]
    fn variables_list_only_the_gpus_of_the_run() {
        let gpus = nvidia();
        assert_eq!(
            shown(&gpus, &["GPU-2", "GPU-1"], true),
            "HOSTLER_GPUS=GPU-1,GPU-2 CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"
        );
        assert_eq!(shown(&gpus, &[], true), "HOSTLER_GPUS= CUDA_VISIBLE_DEVICES=");
        assert!(Gpus::default().variables(&held(&[]), true).is_empty(), "variables of the user are unchanged");
    }

    #[test]
    fn gpu_indices_match_what_the_driver_shows() {
        let card = |index, id: &str| gpu(index, Vendor::Nvidia, id, &[(195, index)]);
        let unnamed = Gpus::new(vec![card(0, "GPU-0"), card(1, "pci-0000:07:00.0")]);
        let cuda = |are_denied| shown(&unnamed, &["pci-0000:07:00.0"], are_denied);
        assert!(cuda(true).ends_with("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0"), "{}", cuda(true));
        assert!(cuda(false).ends_with("CUDA_VISIBLE_DEVICES=1"), "{}", cuda(false));

        let mixed = Gpus::new(vec![
            card(0, "MIG-0"),
            gpu(1, Vendor::Amd, "GPU-deadbeefdeadbeef", &[(234, 0), (226, 128)]),
            gpu(2, Vendor::Intel, "pci-0000:e3:00.0", &[(226, 129)]),
            gpu(3, Vendor::Intel, "pci-0000:e4:00.0", &[(226, 130)]),
        ]);
        assert_eq!(
            shown(&mixed, &["pci-0000:e4:00.0"], false),
            "HOSTLER_GPUS=pci-0000:e4:00.0 CUDA_VISIBLE_DEVICES= \
             ROCR_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES=-1 GPU_DEVICE_ORDINAL=-1 ZE_AFFINITY_MASK=1"
        );
        let amd = shown(&mixed, &["MIG-0", "GPU-deadbeefdeadbeef"], true);
        assert!(
            amd.ends_with(
                "CUDA_VISIBLE_DEVICES=MIG-0 ROCR_VISIBLE_DEVICES=GPU-deadbeefdeadbeef HIP_VISIBLE_DEVICES=0 GPU_DEVICE_ORDINAL=0"
            ),
            "{amd}"
        );
    }

    #[test]
    fn incomplete_device_rules_are_reported_as_advisory() {
        let why = |gpus: &Gpus| gpus.shortcoming(None);
        let real = Gpus::new(vec![gpu(0, Vendor::Nvidia, "GPU-0", &[(1, 5)])]);
        assert_eq!(why(&real), None, "another path of an existing device is not missing");
        assert_eq!(real.shortcoming(Some("no cgroups".to_owned())).as_deref(), Some("no cgroups"));
        let made_up = Gpus::new(vec![gpu(0, Vendor::Nvidia, "GPU-0", &[(1, 5), (4000, 1)])]);
        assert_eq!(why(&made_up).as_deref(), Some("/dev/test-4000-1 (4000:1) of GPU-0 is not on this machine"));
        assert!(why(&Gpus::new(vec![gpu(0, Vendor::Amd, "GPU-0", &[])])).is_some());
        assert_eq!(
            Gpus::default().shortcoming(Some("no cgroups".to_owned())),
            None,
            "a machine without GPUs needs no rule"
        );
    }
}
