//! How busy GPUs are, and how much of their memory is in use.
//!
//! AMD's driver reports both in `/sys`, and NVIDIA's driver through its program ([`nvidia_smi`](super::nvidia_smi)). The
//! program does not report parts of a card (MIG). Intel's driver reports nothing without special rights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hostler_model::{GpuId, Vendor};

use crate::measure::nvidia_smi::{GpuReading, NvidiaSmi};
use crate::provision::gpus::MachineGpu;

/// Major number of render devices.
const RENDER: u32 = 226;

/// Reads all GPUs of the machine.
pub(crate) struct GpuUse {
    /// Directories of AMD's GPUs in `/sys`.
    amd: Vec<(GpuId, PathBuf)>,
    /// Absent on machines without GPUs of NVIDIA.
    nvidia: Option<NvidiaSmi>,
}

impl GpuUse {
    pub(crate) fn of(gpus: &[MachineGpu]) -> Self {
        Self::with(Path::new("/sys"), vec!["nvidia-smi".to_owned()], gpus)
    }

    /// Reads AMD's GPUs below the directory `sys`, and NVIDIA's with a program.
    fn with(sys: &Path, nvidia_smi: Vec<String>, gpus: &[MachineGpu]) -> Self {
        let amd = gpus.iter().filter(|gpu| gpu.gpu.vendor == Vendor::Amd).filter_map(|gpu| {
            let render = gpu.devices.iter().map(|device| device.device).find(|device| device.major == RENDER)?;
            Some((gpu.gpu.id.clone(), sys.join(format!("dev/char/{}:{}/device", render.major, render.minor))))
        });
        let has_nvidia = gpus.iter().any(|gpu| gpu.gpu.vendor == Vendor::Nvidia);
        Self { amd: amd.collect(), nvidia: has_nvidia.then(|| NvidiaSmi::new(nvidia_smi)) }
    }

    pub(crate) fn read(&mut self) -> BTreeMap<GpuId, GpuReading> {
        let mut readings = self.nvidia.as_mut().map(|nvidia| nvidia.read(Instant::now())).unwrap_or_default();
        for (id, directory) in &self.amd {
            let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
            let busy = number("gpu_busy_percent").map(|percent| percent.min(100) as f32 / 100.0);
            readings.insert(id.clone(), GpuReading { busy, memory_bytes: number("mem_info_vram_used") });
        }
        readings
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::Gpu;
    use hostler_shepherd::cgroup::Device;

    use super::*;
    use crate::provision::gpus::DeviceFile;

    fn gpu(vendor: Vendor, name: &str, major: u32) -> MachineGpu {
        MachineGpu {
            gpu: Gpu { id: GpuId::from_name(name), vendor, name: "card".into(), memory_bytes: None, numa: None },
            index: 0,
            devices: vec![DeviceFile { path: "/dev/x".into(), device: Device { major, minor: 128 } }],
            is_given: true,
        }
    }

    #[test]
    fn gpus_of_amd_and_nvidia_are_read_and_others_are_unknown() {
        let sys = tempfile::tempdir().expect("a temporary directory");
        let device = sys.path().join("dev/char/226:128/device");
        fs::create_dir_all(&device).expect("the test owns the directory");
        fs::write(device.join("gpu_busy_percent"), "40\n").expect("the test owns the directory");
        let (amd, nvidia) = (gpu(Vendor::Amd, "GPU-a", RENDER), gpu(Vendor::Nvidia, "GPU-n", 195));
        let intel = gpu(Vendor::Intel, "GPU-i", RENDER);
        let smi = ["sh", "-c", "echo GPU-n, 5, 2; exec sleep 600"].map(str::to_owned);
        let mut gpu_use = GpuUse::with(sys.path(), smi.into(), &[amd.clone(), nvidia.clone(), intel]);
        let end = Instant::now() + std::time::Duration::from_secs(20);
        let read = loop {
            let read = gpu_use.read();
            if read.len() > 1 || Instant::now() > end {
                break read;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let of_amd = GpuReading { busy: Some(0.4), memory_bytes: None };
        let of_nvidia = GpuReading { busy: Some(0.05), memory_bytes: Some(2 << 20) };
        assert_eq!(read, BTreeMap::from([(amd.gpu.id, of_amd), (nvidia.gpu.id, of_nvidia)]));
    }
}
