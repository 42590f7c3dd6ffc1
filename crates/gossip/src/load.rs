//! A node's load, as it publishes it.

use std::net::{IpAddr, SocketAddr};

use crate::wire::{Malformed, Reader, Writer};

/// A node's load and free resources.
///
/// The encoding is small, typically about thirty bytes, since loads are sent often. Newer versions only append fields.
/// A reader decodes the fields that it knows and forwards all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Load average over one minute, in hundredths.
    pub average: u32,
    /// Load average over a few seconds, in hundredths.
    pub recent: u32,
    /// Runnable processes and queued commands.
    pub runnable: u32,
    /// CPUs that the node offers.
    pub cpus: u32,
    /// Memory available without swapping, in MiB.
    pub free_memory_mib: u32,
    /// Total memory, in MiB.
    pub memory_mib: u32,
    /// Recent pressure, i.e. how much work waits for CPU, memory or IO.
    pub pressure: Pressure,
    /// CPUs that no job holds.
    pub unallocated_cpus: u32,
    /// Memory that no job holds, in MiB.
    pub unallocated_memory_mib: u32,
    /// The node's time for a given amount of work, in hundredths of a reference node's time: 200 means half as fast.
    pub load_weight: u32,
    /// The weight of the node's memory, in hundredths: 200 counts twice as much as a reference node's memory.
    pub memory_weight: u32,
    /// Whether the node accepts commands now. False while it is drained or a job has it exclusively.
    pub accepts: bool,
    /// The address at which the node accepts commands.
    pub commands: SocketAddr,
    /// The recent delay of the node's rounds, in milliseconds; set by [`crate::Gossip`]. Other nodes wait longer before
    /// they declare a late node silent.
    pub late_ms: u32,
}

/// Pressure stall information: the share of the last ten seconds in which work was stalled for a resource, in thousandths. `None` if the
/// kernel does not provide it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The share of time in which work waited for a CPU.
    pub cpu: Option<u16>,
    /// The share of time in which work waited for memory.
    pub memory: Option<u16>,
    /// The share of time in which work waited for IO.
    pub io: Option<u16>,
}

/// The maximum length of an encoded load, in bytes.
pub(crate) const MAX_LOAD_BYTES: usize = 200;

const ACCEPTS: u8 = 1;
const HAS_CPU: u8 = 2;
const HAS_MEMORY: u8 = 4;
const HAS_IO: u8 = 8;
const IS_IPV6: u8 = 16;

impl Load {
    /// Creates the load of an idle node with these resources.
    #[must_use]
    pub const fn idle(cpus: u32, memory_mib: u32, commands: SocketAddr) -> Self {
        Self {
            average: 0,
            recent: 0,
            runnable: 0,
            cpus,
            free_memory_mib: memory_mib,
            memory_mib,
            pressure: Pressure { cpu: None, memory: None, io: None },
            unallocated_cpus: cpus,
            unallocated_memory_mib: memory_mib,
            load_weight: 100,
            memory_weight: 100,
            accepts: true,
            commands,
            late_ms: 0,
        }
    }

    /// Returns the busy CPUs in hundredths: the maximum of the recent load average, runnable processes, and CPUs that
    /// jobs hold. A job's CPUs count even while the job sleeps.
    #[must_use]
    pub fn busy(&self) -> u64 {
        let held = self.cpus.saturating_sub(self.unallocated_cpus);
        u64::from(self.recent).max(100 * u64::from(self.runnable)).max(100 * u64::from(held))
    }

    /// Returns the memory available to a command, in MiB.
    #[must_use]
    pub fn available_memory_mib(&self) -> u32 {
        self.free_memory_mib.min(self.unallocated_memory_mib)
    }

    /// Returns whether the load differs enough from the published load `told` to be published before the interval is
    /// over: the CPUs or the memory differ by a quarter, the delay has grown by a second, or a property such as a
    /// weight has changed.
    #[must_use]
    pub fn differs_much(&self, told: &Self) -> bool {
        let fixed = |load: &Self| {
            (load.cpus, load.memory_mib, load.load_weight, load.memory_weight, load.accepts, load.commands)
        };
        let cpus = self.busy().abs_diff(told.busy());
        let memory = self.available_memory_mib().abs_diff(told.available_memory_mib());
        fixed(self) != fixed(told)
            || cpus >= (25 * u64::from(self.cpus)).max(100)
            || memory >= (self.memory_mib / 4).max(1)
            || self.late_ms >= told.late_ms.saturating_add(1000)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        let Pressure { cpu, memory, io } = self.pressure;
        let mut flags = if self.accepts { ACCEPTS } else { 0 };
        for (pressure, flag) in [(cpu, HAS_CPU), (memory, HAS_MEMORY), (io, HAS_IO)] {
            flags |= if pressure.is_some() { flag } else { 0 };
        }
        flags |= if self.commands.is_ipv6() { IS_IPV6 } else { 0 };
        writer.byte(flags);
        for number in [
            self.average,
            self.recent,
            self.runnable,
            self.cpus,
            self.free_memory_mib,
            self.memory_mib,
            self.unallocated_cpus,
            self.unallocated_memory_mib,
            self.load_weight,
            self.memory_weight,
        ] {
            writer.number(number.into());
        }
        for pressure in [cpu, memory, io].into_iter().flatten() {
            writer.number(pressure.into());
        }
        match self.commands.ip() {
            IpAddr::V4(ip) => writer.bytes(&ip.octets()),
            IpAddr::V6(ip) => writer.bytes(&ip.octets()),
        }
        writer.number(self.commands.port().into());
        writer.number(self.late_ms.into());
        writer.into_bytes()
    }

    /// Decodes a load; ignores fields that a newer version appended.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let flags = reader.byte()?;
        let mut number = || reader.small();
        let (average, recent, runnable, cpus) = (number()?, number()?, number()?, number()?);
        let (free_memory_mib, memory_mib) = (number()?, number()?);
        let (unallocated_cpus, unallocated_memory_mib) = (number()?, number()?);
        let (load_weight, memory_weight) = (number()?, number()?);
        let mut pressure = |flag| -> Result<Option<u16>, Malformed> {
            if flags & flag == 0 {
                return Ok(None);
            }
            let thousandths = u16::try_from(reader.small()?).ok().filter(|share| *share <= 1000);
            thousandths.map(Some).ok_or(Malformed)
        };
        let pressure = Pressure { cpu: pressure(HAS_CPU)?, memory: pressure(HAS_MEMORY)?, io: pressure(HAS_IO)? };
        let ip =
            if flags & IS_IPV6 == 0 { IpAddr::from(reader.array::<4>()?) } else { IpAddr::from(reader.array::<16>()?) };
        let port = u16::try_from(reader.small()?).map_err(|_| Malformed)?;
        let late_ms = reader.small()?;
        Ok(Self {
            average,
            recent,
            runnable,
            cpus,
            free_memory_mib,
            memory_mib,
            pressure,
            unallocated_cpus,
            unallocated_memory_mib,
            load_weight,
            memory_weight,
            accepts: flags & ACCEPTS != 0,
            commands: SocketAddr::new(ip, port),
            late_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typical() -> Load {
        let pressure = Pressure { cpu: Some(120), memory: None, io: Some(1000) };
        let commands = "10.1.2.3:7707".parse().expect("an address");
        Load { average: 1234, recent: 800, runnable: 9, pressure, ..Load::idle(64, 256 << 10, commands) }
    }

    #[test]
    fn loads_round_trip_and_are_small() {
        let largest = Load {
            average: u32::MAX,
            recent: u32::MAX,
            runnable: u32::MAX,
            free_memory_mib: u32::MAX,
            unallocated_cpus: u32::MAX,
            unallocated_memory_mib: u32::MAX,
            load_weight: u32::MAX,
            memory_weight: u32::MAX,
            late_ms: u32::MAX,
            pressure: Pressure { cpu: Some(1000), memory: Some(1000), io: Some(1000) },
            ..Load::idle(u32::MAX, u32::MAX, "[fd00::1]:65535".parse().expect("an address"))
        };
        for (load, most) in [(typical(), 37), (largest, MAX_LOAD_BYTES / 2)] {
            let bytes = load.encode();
            assert_eq!(Load::decode(&bytes), Ok(load));
            assert!(bytes.len() <= most, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn appended_fields_are_ignored_and_missing_ones_are_errors() {
        let mut bytes = typical().encode();
        for cut in 0..bytes.len() {
            assert_eq!(Load::decode(&bytes[..cut]), Err(Malformed), "{cut} bytes");
        }
        bytes.extend([1, 2, 3]);
        assert_eq!(Load::decode(&bytes), Ok(typical()));
    }

    #[test]
    fn pressure_above_one_is_refused() {
        let mut load = typical();
        load.pressure.cpu = Some(1001);
        assert_eq!(Load::decode(&load.encode()), Err(Malformed));
    }

    #[test]
    fn cpus_held_by_jobs_count_as_busy() {
        let load = Load { unallocated_cpus: 4, unallocated_memory_mib: 100, ..typical() };
        assert_eq!(load.busy(), 6000);
        assert_eq!(load.available_memory_mib(), 100);
        assert_eq!(Load { runnable: 70, ..load }.busy(), 7000);
        assert_eq!(Load { recent: 9900, ..load }.busy(), 9900);
    }

    #[test]
    fn only_great_changes_are_published_early() {
        let told = typical();
        assert!(!told.differs_much(&told));
        assert!(!Load { runnable: 20, average: 5000, ..told }.differs_much(&told));
        assert!(Load { runnable: 25, ..told }.differs_much(&told));
        assert!(Load { free_memory_mib: 64 << 10, ..told }.differs_much(&told));
        assert!(
            Load { late_ms: 1000, ..told }.differs_much(&told) && !told.differs_much(&Load { late_ms: 1000, ..told })
        );
        assert!(Load { accepts: false, ..told }.differs_much(&told));
    }
}
