//! The machine's GPUs: which devices a run may not open, and the variables that show it its own.
//!
//! A run's device rule covers every GPU of the machine, also those that this node does not give, or that another virtual node gives: what
//! the run does not hold it cannot open. Devices that GPUs share, such as a driver's control device, are open to whoever holds one of
//! them. The variables alone protect nobody; they tell programs which GPUs are theirs and, where no rule can be had, which to leave alone.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use hostler_model::{Gpu, GpuId, Vendor};
use hostler_shepherd::cgroup::Device;

/// A GPU of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineGpu {
    /// What the head is told of it.
    pub gpu: Gpu,
    /// Its place among the GPUs of the machine, from 0.
    pub index: u32,
    /// What must be opened to use it.
    pub devices: Vec<DeviceFile>,
    /// Whether this node gives it to jobs.
    pub is_given: bool,
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile {
    /// Where it is.
    pub path: String,
    /// By what the kernel knows it.
    pub device: Device,
}

/// Those of a machine, in its order.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    all: Vec<MachineGpu>,
    /// Why a device rule would miss some of them.
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
        let flaw = flaw.or_else(|| nothing.map(|gpu| format!("{} has no device that could be denied", gpu.gpu.id)));
        Self { all, flaw }
    }

    /// Those that this node gives.
    pub(crate) fn given(&self) -> impl Iterator<Item = &Gpu> {
        self.all.iter().filter(|gpu| gpu.is_given).map(|gpu| &gpu.gpu)
    }

    /// Why jobs are not kept from the GPUs of others; `None` when they are, and where there are none. `cannot_deny` is why no device can be
    /// denied here.
    pub(crate) fn shortcoming(&self, cannot_deny: Option<String>) -> Option<String> {
        if self.all.is_empty() { None } else { cannot_deny.or_else(|| self.flaw.clone()) }
    }

    /// One that a run is to have and that is not here any more.
    pub(crate) fn lacks<'a>(&self, held: &'a BTreeSet<GpuId>) -> Option<&'a GpuId> {
        held.iter().find(|id| !self.all.iter().any(|gpu| gpu.gpu.id == **id))
    }

    /// What a run that holds these may not open; `None` on machines without GPUs.
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

    /// What a run that holds these finds in its environment; nothing on machines without GPUs. Where others are denied to it, drivers
    /// number its own from 0.
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

/// Those GPUs of one vendor that a run holds, as the vendor's software names them.
struct Shown {
    /// By the ids that the driver gives them; `None` when it gives one of them none.
    by_id: Option<String>,
    /// By the numbers under which the driver shows them to the run.
    by_number: String,
    /// The same among themselves.
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
            // Set and empty it hides all.
            Vendor::Nvidia => {
                if self.by_id.is_none() {
                    // The fastest comes first otherwise.
                    add("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
                }
                add("CUDA_VISIBLE_DEVICES", self.by_id.unwrap_or(self.by_number));
            }
            // The others choose among what the first one leaves, and empty they choose all.
            Vendor::Amd => {
                add("ROCR_VISIBLE_DEVICES", self.by_id.unwrap_or(self.by_number));
                add("HIP_VISIBLE_DEVICES", if is_none { "-1".to_owned() } else { self.counted.clone() });
                add("GPU_DEVICE_ORDINAL", if is_none { "-1".to_owned() } else { self.counted });
            }
            // No value hides all.
            Vendor::Intel if is_none => {}
            Vendor::Intel => add("ZE_AFFINITY_MASK", self.by_number),
        }
    }
}

impl DeviceFile {
    /// Whether the machine has the device, under that name or another: of a machine that was made up for a test it need not.
    fn is_there(&self) -> bool {
        let Device { major, minor } = self.device;
        let number = nix::sys::stat::makedev(major.into(), minor.into());
        fs::metadata(&self.path).is_ok_and(|file| file.file_type().is_char_device() && file.rdev() == number)
            || Path::new(&format!("/sys/dev/char/{major}:{minor}")).exists()
    }
}

/// `0,2`.
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

    /// Three cards of one driver with a control device.
    fn nvidia() -> Gpus {
        let card = |index| gpu(index, Vendor::Nvidia, &format!("GPU-{index}"), &[(195, index), (195, 255)]);
        Gpus::new((0..3).map(card).collect())
    }

    fn held(ids: &[&str]) -> BTreeSet<GpuId> {
        ids.iter().map(|id| id.parse().expect("an id")).collect()
    }

    fn denied(gpus: &Gpus, ids: &[&str]) -> String {
        list(gpus.denied(&held(ids)).expect("there are some").iter().map(|it| format!("{}:{}", it.major, it.minor)))
    }

    fn shown(gpus: &Gpus, ids: &[&str], are_denied: bool) -> String {
        let variables = gpus.variables(&held(ids), are_denied);
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_others_hold_is_denied_and_what_is_shared_is_not() {
        let gpus = nvidia();
        assert_eq!(denied(&gpus, &["GPU-1"]), "195:0,195:2", "also the one that this node does not give");
        assert_eq!(denied(&gpus, &[]), "195:0,195:1,195:2,195:255");
        assert_eq!(denied(&gpus, &["GPU-0", "GPU-1", "GPU-2"]), "");
        assert_eq!(Gpus::default().denied(&held(&[])), None, "a machine without any has no rule");
        assert_eq!(gpus.given().count(), 2);
        assert_eq!(gpus.lacks(&held(&["GPU-1", "GPU-7"])).map(GpuId::as_str), Some("GPU-7"));
    }

    #[test]
    fn programs_are_shown_their_own() {
        let gpus = nvidia();
        assert_eq!(
            shown(&gpus, &["GPU-2", "GPU-1"], true),
            "HOSTLER_GPUS=GPU-1,GPU-2 CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"
        );
        assert_eq!(shown(&gpus, &[], true), "HOSTLER_GPUS= CUDA_VISIBLE_DEVICES=");
        assert!(Gpus::default().variables(&held(&[]), true).is_empty(), "users' own are left alone");
    }

    #[test]
    fn drivers_number_what_they_see() {
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
    fn a_rule_that_would_miss_something_is_advice() {
        let why = |gpus: &Gpus| gpus.shortcoming(None);
        let real = Gpus::new(vec![gpu(0, Vendor::Nvidia, "GPU-0", &[(1, 5)])]);
        assert_eq!(why(&real), None, "another name for a device that there is");
        assert_eq!(real.shortcoming(Some("no cgroups".to_owned())).as_deref(), Some("no cgroups"));
        let made_up = Gpus::new(vec![gpu(0, Vendor::Nvidia, "GPU-0", &[(1, 5), (4000, 1)])]);
        assert_eq!(why(&made_up).as_deref(), Some("/dev/test-4000-1 (4000:1) of GPU-0 is not on this machine"));
        assert!(why(&Gpus::new(vec![gpu(0, Vendor::Amd, "GPU-0", &[])])).is_some());
        assert_eq!(
            Gpus::default().shortcoming(Some("no cgroups".to_owned())),
            None,
            "there is nothing to be kept from"
        );
    }
}
