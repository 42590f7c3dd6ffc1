//! Figures over time: metrics of nodes and runs, and the summary of a metric over a span.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// A quantity that agents measure regularly, for the node and for each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Busy CPUs.
    Cpu,
    /// Load average of the last minute. Nodes only.
    Load,
    /// Memory in use, without cached files that have not been used recently. For a run without a memory cgroup: the
    /// resident memory of its processes. For a node: the memory that it offers minus the available memory of its
    /// machine, but at least what its runs use.
    Memory,
    /// Share of time in which a process waited for a CPU. Nodes only.
    CpuPressure,
    /// Share of time in which a process waited for memory. Nodes only.
    MemoryPressure,
    /// Share of time in which a process waited for a disk. Nodes only.
    IoPressure,
    /// Bytes read from disks.
    DiskRead,
    /// Bytes written to disks.
    DiskWrite,
    /// Free space of the disk with the agent's directory. Nodes only.
    DiskFree,
    /// Bytes received over the network. Nodes only.
    NetworkIn,
    /// Bytes sent over the network. Nodes only.
    NetworkOut,
    /// Busy GPUs.
    Gpu,
    /// GPU memory in use.
    GpuMemory,
    /// Processes and threads. Runs only.
    Processes,
    /// Temperature of the hottest sensor, at least 0. Nodes only.
    Temperature,
    /// Power use. Nodes only.
    Power,
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Number of CPUs; 0.5 is one CPU that is busy half of the time.
    Cpus,
    /// Number of GPUs; 0.5 is one GPU that is busy half of the time.
    Gpus,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Percent.
    Percent,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::Load,
        Self::Memory,
        Self::CpuPressure,
        Self::MemoryPressure,
        Self::IoPressure,
        Self::DiskRead,
        Self::DiskWrite,
        Self::DiskFree,
        Self::NetworkIn,
        Self::NetworkOut,
        Self::Gpu,
        Self::GpuMemory,
        Self::Processes,
        Self::Temperature,
        Self::Power,
    ];

    /// Returns the metric's name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Load => "load",
            Self::Memory => "memory",
            Self::CpuPressure => "cpu_pressure",
            Self::MemoryPressure => "memory_pressure",
            Self::IoPressure => "io_pressure",
            Self::DiskRead => "disk_read",
            Self::DiskWrite => "disk_write",
            Self::DiskFree => "disk_free",
            Self::NetworkIn => "network_in",
            Self::NetworkOut => "network_out",
            Self::Gpu => "gpu",
            Self::GpuMemory => "gpu_memory",
            Self::Processes => "processes",
            Self::Temperature => "temperature",
            Self::Power => "power",
        }
    }

    /// Returns the unit of the metric's values.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Cpu => Unit::Cpus,
            Self::Gpu => Unit::Gpus,
            Self::Load | Self::Processes => Unit::Count,
            Self::Memory | Self::DiskFree | Self::GpuMemory => Unit::Bytes,
            Self::DiskRead | Self::DiskWrite | Self::NetworkIn | Self::NetworkOut => Unit::BytesPerSecond,
            Self::CpuPressure | Self::MemoryPressure | Self::IoPressure => Unit::Percent,
            Self::Temperature => Unit::Celsius,
            Self::Power => Unit::Watts,
        }
    }

    /// Returns whether agents measure the metric for runs.
    #[must_use]
    pub const fn is_of_runs(self) -> bool {
        matches!(
            self,
            Self::Cpu | Self::Memory | Self::DiskRead | Self::DiskWrite | Self::Gpu | Self::GpuMemory | Self::Processes
        )
    }

    /// Returns whether agents measure the metric for nodes.
    #[must_use]
    pub const fn is_of_nodes(self) -> bool {
        !matches!(self, Self::Processes)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Metric {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|metric| metric.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "a metric such as `cpu` or `memory`"))
    }
}

/// What was measured in one span.
pub type Figures = BTreeMap<Metric, Bucket>;

/// The smallest, mean and largest value of a metric over a span.
///
/// Time without a measurement does not count: `seconds` is the measured part of the span, and the weight of the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Smallest value.
    pub min: f32,
    /// Mean value over the measured time.
    pub mean: f32,
    /// Largest value.
    pub max: f32,
    /// Measured time in seconds, at least 1.
    #[schema(minimum = 1)]
    pub seconds: u32,
}

impl Bucket {
    /// Creates the bucket of one value that was measured over `seconds`.
    #[must_use]
    pub const fn of(value: f32, seconds: u32) -> Self {
        let seconds = if seconds == 0 { 1 } else { seconds };
        Self { min: value, mean: value, max: value, seconds }
    }

    /// Merges two buckets: the smallest and the largest value of both, the mean weighted by time, and the sum of the
    /// times.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let (own, others) = (f64::from(self.seconds), f64::from(other.seconds));
        let mean = (f64::from(self.mean) * own + f64::from(other.mean) * others) / (own + others);
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        // Rounding must not move the mean out of the range.
        let mean = (mean as f32).clamp(min, max);
        Self { min, mean, max, seconds: self.seconds.saturating_add(other.seconds) }
    }

    /// Adds a bucket to a sum that may be empty.
    pub fn add_to(self, sum: &mut Option<Self>) {
        *sum = Some(sum.map_or(self, |sum| sum.merge(self)));
    }

    /// Returns whether the values are possible: finite, ordered, not negative, and measured for at least a second.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.max.is_finite() && self.min >= 0.0 && self.min <= self.mean && self.mean <= self.max && self.seconds > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket() -> impl Strategy<Value = Bucket> {
        (0.0f32..1e12, 0.0f32..1e12, 0.0f32..=1.0, 1u32..100_000).prop_map(|(a, b, share, seconds)| {
            let (min, max) = (a.min(b), a.max(b));
            Bucket { min, mean: (min + (max - min) * share).clamp(min, max), max, seconds }
        })
    }

    proptest! {
        #[test]
        fn merging_keeps_extremes_and_time(all in prop::collection::vec(bucket(), 1..50), cut in 0usize..50) {
            let merge = |some: &[Bucket]| some.iter().copied().reduce(Bucket::merge);
            let whole = merge(&all).expect("there is at least one");
            let (first, second) = all.split_at(cut.min(all.len()));
            let parts = merge(first).into_iter().chain(merge(second)).reduce(Bucket::merge).expect("as above");
            for merged in [whole, parts] {
                prop_assert!(merged.is_valid());
                prop_assert_eq!(merged.min, all.iter().map(|one| one.min).fold(f32::MAX, f32::min));
                prop_assert_eq!(merged.max, all.iter().map(|one| one.max).fold(0.0, f32::max));
                prop_assert_eq!(merged.seconds, all.iter().map(|one| one.seconds).sum::<u32>());
                let weight: f64 = all.iter().map(|one| f64::from(one.seconds)).sum();
                let mean = all.iter().map(|one| f64::from(one.mean) * f64::from(one.seconds)).sum::<f64>() / weight;
                prop_assert!((f64::from(merged.mean) - mean).abs() <= mean * 1e-4, "{} is not {mean}", merged.mean);
            }
        }
    }

    #[test]
    fn names_of_metrics_are_those_in_json() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_string(&metric).ok(), Some(format!("\"{metric}\"")));
            assert_eq!(metric.as_str().parse(), Ok(metric));
        }
    }

    #[test]
    fn impossible_values_are_not_valid() {
        let valid = Bucket::of(5.0, 10);
        assert!(valid.is_valid());
        for bad in [
            Bucket::of(-5.0, 1),
            Bucket::of(f32::NAN, 1),
            Bucket::of(f32::INFINITY, 1),
            Bucket { seconds: 0, ..valid },
            Bucket { min: 6.0, ..valid },
            Bucket { max: 4.0, ..valid },
            Bucket { mean: f32::NAN, ..valid },
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
