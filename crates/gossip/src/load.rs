//! What a node says of itself.

use std::net::{IpAddr, SocketAddr};

use crate::wire::{Malformed, Reader, Writer};

/// A node's load and the room that it has.
///
/// Small, since it travels a lot: a typical one takes about thirty bytes. Fields are only ever added, at the end: a reader takes those
/// that it knows and passes all on as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Load average of the last minute, in hundredths.
    pub average: u32,
    /// Load average of the last few seconds, in hundredths.
    pub recent: u32,
    /// Processes that run or could run, and commands that wait their turn.
    pub runnable: u32,
    /// CPUs that the node has for work.
    pub cpus: u32,
    /// Memory that could be used now without swapping, in MiB.
    pub free_memory_mib: u32,
    /// Memory that the node has, in MiB.
    pub memory_mib: u32,
    /// How much work has been held up lately.
    pub pressure: Pressure,
    /// CPUs that no scheduled job holds.
    pub unallocated_cpus: u32,
    /// Memory that no scheduled job holds, in MiB.
    pub unallocated_memory_mib: u32,
    /// How long the node takes for a given amount of work, in hundredths of what a usual node takes: 200 is half as fast.
    pub load_weight: u32,
    /// How good its memory is, in hundredths: 200 counts twice as much as that of a usual node.
    pub memory_weight: u32,
    /// Whether it takes commands: not while it is drained, or while a job has it for itself.
    pub accepts: bool,
    /// Where it takes commands.
    pub commands: SocketAddr,
    /// By how much its rounds have been late recently, in milliseconds. [`crate::Gossip`] fills it in; others are that much more patient.
    pub late_ms: u32,
}

/// Pressure stall information: the share of the last ten seconds in which some work stood still for want of something, in thousandths.
/// `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// For want of a CPU.
    pub cpu: Option<u16>,
    /// For want of memory.
    pub memory: Option<u16>,
    /// For want of IO.
    pub io: Option<u16>,
}

/// The most bytes that a load may take.
pub(crate) const MAX_LOAD_BYTES: usize = 200;

const ACCEPTS: u8 = 1;
const HAS_CPU: u8 = 2;
const HAS_MEMORY: u8 = 4;
const HAS_IO: u8 = 8;
const IS_IPV6: u8 = 16;

impl Load {
    /// An idle node with this much, which takes commands at `commands`.
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

    /// The CPUs that are busy, in hundredths: by the load of the last seconds, by what could run now and by what jobs hold, whichever is
    /// most. What a job holds is not free even while it sleeps.
    #[must_use]
    pub fn busy(&self) -> u64 {
        let held = self.cpus.saturating_sub(self.unallocated_cpus);
        u64::from(self.recent).max(100 * u64::from(self.runnable)).max(100 * u64::from(held))
    }

    /// The memory that a command can have, in MiB.
    #[must_use]
    pub fn available_memory_mib(&self) -> u32 {
        self.free_memory_mib.min(self.unallocated_memory_mib)
    }

    /// Whether this should not wait for the usual time of telling when `told` is what others know: a quarter of the CPUs or of the memory
    /// has changed hands, the node has become late by a second, or anything that does not change by itself.
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

    /// Reads a load; what a newer version has put behind it is left alone.
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
    fn it_is_read_as_it_was_written_and_small() {
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
    fn what_a_newer_version_adds_is_left_alone_and_what_is_missing_is_not_guessed() {
        let mut bytes = typical().encode();
        for cut in 0..bytes.len() {
            assert_eq!(Load::decode(&bytes[..cut]), Err(Malformed), "{cut} bytes");
        }
        bytes.extend([1, 2, 3]);
        assert_eq!(Load::decode(&bytes), Ok(typical()));
    }

    #[test]
    fn shares_above_the_whole_are_refused() {
        let mut load = typical();
        load.pressure.cpu = Some(1001);
        assert_eq!(Load::decode(&load.encode()), Err(Malformed));
    }

    #[test]
    fn what_jobs_hold_is_busy_even_while_they_sleep() {
        let load = Load { unallocated_cpus: 4, unallocated_memory_mib: 100, ..typical() };
        assert_eq!(load.busy(), 6000);
        assert_eq!(load.available_memory_mib(), 100);
        assert_eq!(Load { runnable: 70, ..load }.busy(), 7000);
        assert_eq!(Load { recent: 9900, ..load }.busy(), 9900);
    }

    #[test]
    fn great_changes_are_told_from_small_ones() {
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
